# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods: which container is the engine, attempts, what is suspicious, shared memory, probes, redaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from support import kube_objects as kube

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.pods import (
    accelerator_of,
    attempts_of,
    engine_container_index,
    is_suspicious,
    pod_evidence,
    recognise_engine,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor

NOW = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def box(name, image, command=(), args=(), resources=None, **more):
    return {
        "name": name,
        "image": image,
        "command": list(command),
        "args": list(args),
        "resources": resources or {},
        **more,
    }


PROXY = box("proxy", "envoyproxy/envoy:v1.35")


@pytest.mark.parametrize(
    ("containers", "labels", "expected"),
    [
        # 1: the command
        ([PROXY, box("x", "acme/llm:1", ["vllm", "serve", "m"], resources=GPU)], {}, (1, "command")),
        (
            [box("x", "acme/llm:1", ["python3", "-m", "vllm.entrypoints.openai.api_server"])],
            {},
            (0, "command"),
        ),
        (
            [box("x", "acme/llm:1", ["sh", "-c"], ["exec vllm serve m --max-num-seqs 4"], GPU)],
            {},
            (0, "command"),
        ),
        (
            [box("main", "nvcr.io/x:1", ["python3"], ["-m", "dynamo.vllm", "--model", "m"], GPU)],
            {},
            (0, "command"),
        ),
        # 2: names that deployers fix
        (
            [PROXY, box("kserve-container", "acme/llm:1", resources=GPU), box("y", "z:1", resources=GPU)],
            {"serving.kserve.io/inferenceservice": "m"},
            (1, "name"),
        ),
        (
            [box("a", "z:1", resources=GPU), box("main", "acme/llm:1", resources=GPU)],
            {"nvidia.com/dynamo-graph-deployment-name": "g"},
            (1, "name"),
        ),
        ([box("a", "z:1", resources=GPU), box("main", "acme/llm:1", resources=GPU)], {}, None),
        (
            [box("llama-ctr", "nvcr.io/nim/meta/llama:1", resources=GPU), box("y", "z:1", resources=GPU)],
            {"app.kubernetes.io/part-of": "nim-service"},
            (0, "name"),
        ),
        # 3: it alone has the accelerator
        (
            [PROXY, box("llm", "registry.acme/llm-server:2", args=["/start.sh"], resources=GPU)],
            {},
            (1, "accelerator"),
        ),
        (
            [box("llm", "registry.acme/llm-server:2", resources={"claims": [{"name": "gpu"}]})],
            {},
            (0, "accelerator"),
        ),
        # 4: the image
        (
            [box("a", "z:1", resources=GPU), box("b", "quay.io/llm-d/llm-d-cuda:v0.4", resources=GPU)],
            {},
            (1, "image"),
        ),
        ([box("llm", "vllm-cpu-env:latest")], {}, (0, "image")),
        ([box("llm", "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.11.0")], {}, (0, "image")),
        # letters alone are no engine
        ([box("router", "lmcache/lmstack-router:latest", ["vllm-router", "--port", "8001"])], {}, None),
        ([box("vllm", "ghcr.io/llm-d/llm-d-inference-sim:v0.5", ["vllm", "serve", "m"])], {}, None),
        ([box("vllm", "vllm/vllm-openai:v0.11.0")], {}, None),
        ([box("exporter", "acme/vllm-exporter:1", resources=GPU)], {}, None),
        # other users of GPUs
        ([box("triton", "nvcr.io/nvidia/tritonserver:25.01-py3", resources=GPU)], {}, None),
        ([box("train", "pytorch/pytorch:2.9", ["torchrun", "train.py"], resources=GPU)], {}, None),
        (
            [box("sglang", "lmsysorg/sglang:v0.5", ["python3", "-m", "sglang.launch_server"], resources=GPU)],
            {},
            None,
        ),
        (
            [box("kserve-container", "ghcr.io/huggingface/text-generation-inference:3", resources=GPU)],
            {"serving.kserve.io/inferenceservice": "m"},
            None,
        ),
        ([box("web", "nginx:1.29")], {}, None),
        ([], {}, None),
    ],
)
def test_recognition(containers, labels, expected):
    raw = kube.pod(containers=containers, labels=labels or {"x": "y"})
    assert recognise_engine(raw) == expected
    assert engine_container_index(raw) == (expected[0] if expected else None)


def test_a_pod_that_the_user_named_has_an_engine():
    raw = kube.pod(
        containers=[box("web", "nginx:1.29"), box("train", "pytorch/pytorch", ["torchrun"], resources=GPU)]
    )
    assert recognise_engine(raw, asked=True) == (1, "asked")
    assert recognise_engine(kube.pod(containers=[box("web", "nginx:1.29")]), asked=True) == (0, "asked")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"nvidia.com/gpu": "4"}}, (True, "cuda")),
        ({"limits": {"nvidia.com/gpu": "0"}}, (False, None)),
        ({"limits": {"nvidia.com/mig-3g.40gb": "1"}}, (True, "cuda")),
        ({"limits": {"nvidia.com/gpumem": "8000"}}, (True, "cuda")),
        ({"requests": {"amd.com/gpu": "1"}}, (True, "rocm")),
        ({"limits": {"google.com/tpu": "4"}}, (True, "tpu")),
        ({"limits": {"gpu.intel.com/i915": "1"}}, (True, "xpu")),
        ({"limits": {"habana.ai/gaudi": "1"}}, (True, "hpu")),
        ({"limits": {"huawei.com/Ascend910": "1"}}, (True, "npu")),
        ({"claims": [{"name": "gpu"}]}, (True, None)),
        ({"limits": {"memory": "1Gi", "nvidia.com/hostdev": "1"}}, (False, None)),
        (None, (False, None)),
    ],
)
def test_accelerator(resources, expected):
    assert accelerator_of({"resources": resources}) == expected


# --- attempts

DEAD = kube.terminated(137, "OOMKilled")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (kube.status(), [(0, "running", None)]),
        (kube.status(last=DEAD, restarts=3), [(2, "terminated", "OOMKilled"), (3, "running", None)]),
        (
            kube.status(state=kube.terminated(1), last=DEAD, restarts=1),
            [(0, "terminated", "OOMKilled"), (1, "terminated", "Error")],
        ),
        # While it backs off, the last termination is the newest run.
        (
            kube.status(state=kube.BACK_OFF, last=DEAD, restarts=5),
            [(5, "terminated", "OOMKilled"), (6, "waiting", "CrashLoopBackOff")],
        ),
        (
            kube.status(state={"waiting": {"reason": "ImagePullBackOff"}}),
            [(0, "waiting", "ImagePullBackOff")],
        ),
        ({}, [(0, "waiting", None)]),
    ],
)
def test_attempts(status, expected):
    found = attempts_of(status, Redactor())
    assert [(item["index"], item["state"], item["reason"]) for item in found] == expected
    assert all(item["log"]["readable"] is False for item in found)


def test_attempt_fields():
    found = attempts_of(
        kube.status(state=kube.terminated(139, signal=11, message="core dumped")), Redactor()
    )[0]
    assert (found["exit_code"], found["signal"], found["message"]) == (139, 11, "core dumped")
    assert (found["started_at"], found["finished_at"]) == ("2026-11-30T06:50:01Z", "2026-11-30T06:52:44Z")


@pytest.mark.parametrize(
    ("state", "expected"),
    [(kube.RUNNING, ["a" * 64, "b" * 64]), (kube.BACK_OFF, ["a" * 64, None])],
)
def test_each_attempt_has_the_id_of_its_own_container(state, expected):
    # The status' own id is the running container's; while one waits, it is still that of the one before.
    status = kube.status(
        state=state, last=kube.terminated(137), restarts=1, containerID="containerd://" + "b" * 64
    )
    assert [item["container_id"] for item in attempts_of(status, Redactor())] == expected


# --- what is suspicious


def seen(events=(), **more):
    return pod_evidence(kube.pod(**more), Redactor(), events)


OLD = kube.terminated(1, finished="2026-11-28T00:00:00Z")
RECENT = kube.terminated(1, finished="2026-11-30T06:52:44Z")
OLD_EVENT = {"lastTimestamp": "2026-11-28T00:00:00Z"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (dict(ready=True), False),
        (dict(ready=False), True),
        (dict(ready=True, status_phase="Failed"), True),
        (dict(ready=True, statuses=[kube.status(last=RECENT, restarts=1, ready=True)]), True),
        (dict(ready=True, statuses=[kube.status(last=OLD, restarts=1, ready=True)]), False),
        (dict(ready=True, statuses=[kube.status(state=kube.BACK_OFF, last=OLD, restarts=9)]), True),
        (dict(ready=True, events=[kube.event("OOMKilling", "x")]), True),
        (dict(ready=True, events=[kube.event("Killing", "Stopping container vllm", type="Normal")]), True),
        (dict(ready=True, events=[kube.event("Killing", "Stopping container vllm", **OLD_EVENT)]), False),
        (dict(ready=True, events=[kube.event("Unhealthy", "Liveness probe failed: HTTP 503")]), True),
        # Every slow start fails its startup probe for a while.
        (
            dict(ready=True, events=[kube.event("Unhealthy", "Startup probe failed: connection refused")]),
            False,
        ),
        (dict(ready=True, events=[kube.event("Pulled", "x", type="Normal")]), False),
        (
            dict(
                ready=True,
                initContainers=[kube.container("fetch")],
                status_initContainerStatuses=[kube.status("fetch", state=kube.terminated(0, "Completed"))],
            ),
            False,
        ),
        (
            dict(
                ready=True,
                initContainers=[kube.container("fetch")],
                status_initContainerStatuses=[kube.status("fetch", state=kube.terminated(0, "OOMKilled"))],
            ),
            True,
        ),
    ],
)
def test_suspicion(pod, expected):
    assert is_suspicious(seen(**pod), 24 * 3600, NOW) is expected


# --- the rest of the document


def test_pod_fields():
    found = seen(
        status_reason="Evicted",
        status_message="The node was low on resource: memory. ",
        metadata_deletionTimestamp="2026-11-30T06:59:00Z",
        resources={"limits": {"memory": "64Gi"}},
        resourceClaims=[{"name": "gpu", "resourceClaimName": "two-gpus"}],
    )
    assert (found["reason"], found["node"], found["qos"]) == ("Evicted", "gpu-3", "Burstable")
    assert (found["grace_period"], found["deleted_at"]) == (30.0, "2026-11-30T06:59:00Z")
    assert found["pod_resources"]["limits"] == {"memory": "64Gi"}
    assert found["resource_claims"] == ["two-gpus"]


def test_roles_and_order():
    found = seen(
        initContainers=[kube.container("fetch"), kube.container("proxy", restartPolicy="Always")],
        ephemeralContainers=[{"name": "debug", "image": "busybox"}],
        status_ephemeralContainerStatuses=[kube.status("debug")],
    )
    roles = [(item["name"], item["role"], bool(item["engine"])) for item in found["containers"]]
    assert roles == [
        ("fetch", "init", False),
        ("proxy", "sidecar", False),
        ("vllm", "main", True),
        ("debug", "ephemeral", False),
    ]


def test_probes_and_lifecycle():
    container = kube.container(
        startupProbe={
            "httpGet": {"path": "/health", "port": 8000},
            "failureThreshold": 30,
            "periodSeconds": 10,
        },
        livenessProbe={"tcpSocket": {"port": "http"}, "terminationGracePeriodSeconds": 5},
        readinessProbe={"grpc": {"port": 9000}},
        lifecycle={"preStop": {"exec": {"command": ["sleep", "30"]}}},
    )
    found = seen(containers=[container])["containers"][0]
    assert found["probes"]["startup"] == {
        "failure_threshold": 30,
        "period_seconds": 10.0,
        "initial_delay_seconds": None,
        "timeout_seconds": None,
        "grace_period_seconds": None,
        "handler": "httpGet :8000/health",
    }
    assert found["probes"]["liveness"]["grace_period_seconds"] == 5.0
    assert [found["probes"][kind]["handler"] for kind in ("liveness", "readiness")] == [
        "tcpSocket :http",
        "grpc :9000",
    ]
    assert found["lifecycle"] == {"pre_stop": "exec sleep 30"}


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}, ("emptyDir", "Memory", 16 << 30)),
        ({"emptyDir": {"medium": "Memory"}}, ("emptyDir", "Memory", None)),
        ({"emptyDir": {}}, ("emptyDir", None, None)),
        ({"hostPath": {"path": "/dev/shm"}}, ("hostPath", None, None)),
    ],
)
def test_shm(volume, expected):
    found = seen(
        containers=[kube.container(volumeMounts=[{"name": "dshm", "mountPath": "/dev/shm/"}])],
        volumes=[
            {"name": "cache", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "dshm", **volume},
        ],
    )
    assert found["volumes"][1]["kind"] == expected[0]
    assert found["volumes"][0]["claim"] == "models"
    assert (found["shm"]["medium"], found["shm"]["size_limit"]) == expected[1:]
    assert found["shm"]["mounted_at"] == "/dev/shm/"


def test_without_shm_mount_and_with_host_ipc():
    found = seen(hostIPC=True)["shm"]
    assert (found["mounted_at"], found["host_ipc"]) == (None, True)


def test_the_engines_shm_counts():
    found = seen(
        containers=[
            box("side", "busybox:1", volumeMounts=[{"name": "small", "mountPath": "/dev/shm"}]),
            kube.container(volumeMounts=[{"name": "big", "mountPath": "/dev/shm"}]),
        ],
        volumes=[
            {"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            {"name": "big", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        ],
    )
    assert found["shm"]["size_limit"] == 8 << 30


def test_environment_sources():
    found = seen(
        containers=[
            kube.container(
                env=[
                    {"name": "A", "value": "1"},
                    {"name": "EMPTY", "value": ""},
                    {"name": "UNSET"},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                ],
                envFrom=[
                    {"configMapRef": {"name": "flags"}, "prefix": "VLLM_"},
                    {"secretRef": {"name": "keys"}},
                ],
            )
        ]
    )["containers"][0]["env"]
    assert [(item["name"], item["value"], item["from"]) for item in found] == [
        ("VLLM_*", None, "configMap/flags"),
        ("*", None, "secret/keys"),
        ("A", "1", None),
        ("EMPTY", "", None),
        ("UNSET", None, None),
        ("IP", None, "field/status.podIP"),
        ("LIMIT", None, "resource/limits.memory"),
        ("TOKEN", None, "secret/hf/token"),
    ]


def test_only_useful_labels_and_annotations():
    found = seen(
        labels={
            "app": "llama",
            "leaderworkerset.sigs.k8s.io/name": "x",
            "team": "red",
            "pod-template-hash": "1",
        },
        metadata_annotations={
            "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu limit for container vllm",
            "cni.projectcalico.org/podIP": "10.0.0.1",
            "prometheus.io/scrape": "true",
        },
    )
    assert sorted(found["labels"]) == ["app", "leaderworkerset.sigs.k8s.io/name", "pod-template-hash"]
    assert list(found["annotations"]) == ["kubernetes.io/limit-ranger"]
    assert [item["tool"] for item in found["mutations"]] == ["LimitRange"]


def test_resized_resources_and_sick_devices():
    found = seen(
        statuses=[
            kube.status(
                resources={"limits": {"memory": "48Gi"}, "requests": {"memory": "24Gi"}},
                allocatedResourcesStatus=[
                    {
                        "name": "nvidia.com/gpu",
                        "resources": [
                            {"resourceID": "GPU-1", "health": "Unhealthy"},
                            {"resourceID": "GPU-2", "health": "Healthy"},
                        ],
                    }
                ],
            )
        ]
    )["containers"][0]
    assert found["actual_resources"]["limits"] == {"memory": "48Gi"}
    assert found["device_health"] == [{"resource": "nvidia.com/gpu", "id": "GPU-1", "health": "Unhealthy"}]


def test_no_secret_in_the_document():
    raw = kube.pod(
        containers=[
            kube.container(
                env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "topsecretvalue1"}],
                args=["--api-key=topsecretvalue2"],
                lifecycle={"preStop": {"exec": {"command": ["curl", "https://u:topsecretvalue3@x/"]}}},
            )
        ],
        metadata_annotations={"vpaUpdates": "password=topsecretvalue4"},
    )
    redactor = Redactor()
    text = json.dumps(pod_evidence(raw, redactor))
    assert "topsecret" not in text
    assert redactor.summary()["count"] == 4


def test_empty_object_gives_every_field():
    found = pod_evidence({}, Redactor())
    assert (found["name"], found["containers"], found["pod_phase"]) == (None, [], None)


def test_of_the_networks_only_the_interfaces_are_kept():
    status = [
        {
            "name": "cbr0",
            "interface": "eth0",
            "ips": ["10.1.2.3"],
            "mac": "aa:bb:cc:dd:ee:ff",
            "default": True,
            "dns": {},
        },
        {"name": "roce", "interface": "net1", "device-info": {"type": "pci"}},
        {"name": "without"},
    ]
    name = "k8s.v1.cni.cncf.io/network-status"
    found = seen(metadata_annotations={name: json.dumps(status)})["annotations"]
    assert json.loads(found[name]) == [{"interface": "eth0"}, {"interface": "net1"}]


@pytest.mark.parametrize("text", ["", "eth0", "{}", "3", '["eth0"]', "[null]", "[{}]"])
def test_what_is_no_list_of_networks_is_left_out(text):
    assert seen(metadata_annotations={"k8s.v1.cni.cncf.io/network-status": text})["annotations"] == {}


def test_the_hosts_network_is_known_from_the_api_only():
    assert seen(hostNetwork=True)["host_network"] is True
    assert seen()["host_network"] is False
    assert pod_evidence({"spec": {"containers": [{"name": "vllm"}]}}, Redactor())["host_network"] is None


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (None, []),
        ({"capabilities": {"drop": ["ALL"]}}, []),
        ({"capabilities": {"add": ["SYS_NICE", "CAP_IPC_LOCK", "SYS_NICE"]}}, ["IPC_LOCK", "SYS_NICE"]),
        ({"privileged": True}, ["ALL"]),
    ],
)
def test_added_capabilities(context, expected):
    (container,) = seen(containers=[box("vllm", "vllm/vllm-openai:v0.11.0", securityContext=context)])[
        "containers"
    ]
    assert container["capabilities"] == expected
