# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live source against a recorded-response API server: a happy run and everything that can be refused."""

from __future__ import annotations

import json
import re

import pytest
from support import kube_objects as kube
from support.recorded_api import RecordedApi

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, cluster

NAME = "llama-6f7d9c9b5-x2x4k"
NOW = "2026-11-30T07:00:00Z"
CRASH = """\
INFO 11-30 06:50:03 [api_server.py:1839] vLLM API server version 0.11.0
INFO 11-30 06:50:03 [utils.py:233] non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 131072}
(EngineCore_DP0 pid=73) INFO 11-30 06:51:10 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 4.130533 seconds
(EngineCore_DP0 pid=73) INFO 11-30 06:51:40 [gpu_worker.py:298] Available KV cache memory: 4.60 GiB
(EngineCore_DP0 pid=73) ERROR 11-30 06:51:41 [core.py:708] EngineCore failed to start.
(EngineCore_DP0 pid=73) ERROR 11-30 06:51:41 [core.py:708] Traceback (most recent call last):
(EngineCore_DP0 pid=73) ERROR 11-30 06:51:41 [core.py:708]   File "/vllm/v1/core/kv_cache_utils.py", line 715, in _check
(EngineCore_DP0 pid=73) ERROR 11-30 06:51:41 [core.py:708]     raise ValueError(
(EngineCore_DP0 pid=73) ERROR 11-30 06:51:41 [core.py:708] ValueError: To serve at least one request with the models's max seq len \
(131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (4.60 GiB). Based on the available \
memory, the estimated maximum model length is 37680.
"""


def make_api(raw=None, **pod):
    raw = raw or kube.crashing_pod(**pod)
    api = RecordedApi(
        [
            raw,
            kube.replica_set(),
            kube.replica_set(
                "llama-5d5f5f5f5",
                revision="1",
                template={
                    "spec": {
                        "containers": [
                            kube.container(
                                args=[
                                    "--model",
                                    "meta-llama/Llama-3.1-8B-Instruct",
                                    "--max-model-len",
                                    "8192",
                                ]
                            )
                        ]
                    }
                },
            ),
            kube.deployment(annotations={"meta.helm.sh/release-name": "llama"}),
            kube.node(),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}},
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": kube.metadata("gpu"),
                "spec": {"hard": {"limits.cpu": "64"}},
                "status": {"hard": {"limits.cpu": "64"}, "used": {"limits.cpu": "8"}},
            },
            kube.event("BackOff", "Back-off restarting failed container vllm in pod x"),
            kube.event(
                "SystemOOM",
                "System OOM encountered, victim process: python3, pid: 4711",
                about={"kind": "Node", "name": "gpu-3", "uid": "gpu-3"},
            ),
        ]
    )
    api.add_log("llm", raw["metadata"]["name"], "vllm", CRASH, previous=True)
    api.add_log("llm", raw["metadata"]["name"], "vllm", CRASH)
    return api


@pytest.fixture
def api():
    with make_api().serve() as server:
        yield server


def connect(api, **params):
    found = client.connect({"kubeconfig": api.kubeconfig(), **params}, environ={})
    found._pause = lambda _seconds: None
    return found


def collect(api, **query):
    # Far back: the recorded times are fixed, the clock isn't.
    return cluster.collect(connect(api), {"since": 1e9, "exec": "never", **query})


def unreadable(document):
    return {(item["source"], item["object"]): item for item in document["unreadable"]}


def the_pod(document):
    assert [item["name"] for item in document["pods"]] == [NAME]
    return document["pods"][0]


def engine(pod):
    return next(item for item in pod["containers"] if item["engine"])


# --- what a run with all rights sees


def test_happy_run(api):
    document = collect(api)
    assert document["unreadable"] == []
    assert document["counts"] == {"pods_seen": 1, "engines": 1, "suspicious": 1}
    assert document["source"]["kind"] == "cluster"
    pod = the_pod(document)
    assert pod["suspicious"] is True
    assert [item["reason"] for item in pod["events"]] == ["BackOff"]
    container = engine(pod)
    assert [(item["index"], item["state"]) for item in container["attempts"]] == [
        (2, "terminated"),
        (3, "waiting"),
    ]
    excerpt = container["attempts"][0]["log"]
    assert excerpt["readable"] is True
    assert excerpt["complete"] is True
    assert "37680" in excerpt["first_error"]["text"] or any(
        "37680" in item["text"] for item in excerpt["errors"]
    )
    assert (container["engine"]["version"], container["engine"]["version_from"]) == ("0.11.0", "log")
    assert container["settings"]["max_model_len"]["value"] == 131072
    assert container["settings"]["max_model_len"]["from"] == "log"
    assert document["namespaces"]["llm"]["quotas"][0]["used"] == {"limits.cpu": "8"}
    assert document["nodes"]["gpu-3"]["events"][0]["reason"] == "SystemOOM"
    assert document["nodes"]["gpu-3"]["gpu"]["count"] == 8


def test_workload_of_the_happy_run(api):
    found = the_pod(collect(api))["workload"]
    assert (found["kind"], found["name"]) == ("Deployment", "llama")
    assert found["edit"]["path"] == "spec.template.spec.containers[vllm]"
    assert [(item["kind"], item["read"]) for item in found["chain"]] == [
        ("ReplicaSet", True),
        ("Deployment", True),
    ]
    assert found["replicas"]["desired"] == 2
    assert [item["tool"] for item in found["managers"]] == ["Helm"]
    assert [item["revision"] for item in found["revisions"]] == ["1", "2"]
    assert found["revisions"][1]["current"] is True
    changed = {item["field"]: (item["before"], item["after"]) for item in found["revisions"][1]["diff"]}
    assert changed == {"args.max_model_len": (8192, None)}


def test_logs_are_asked_with_container_and_previous(api):
    collect(api)
    assert len(api.asked("/log")) == 1
    assert re.search(r"container=vllm&timestamps=true&previous=true", api.asked("/log")[0])


def test_one_pass_over_few_connections(api):
    collect(api)
    assert len(api.requests) == len(set(api.requests)), "something was asked twice"
    assert len(api.requests) <= 14
    assert api.connections <= client.WORKERS + 1


def test_document_is_json_and_ordered_the_same_each_time(api):
    first, second = collect(api), collect(api)
    first["collected_at"] = second["collected_at"] = None
    assert json.dumps(first) == json.dumps(second)


# --- which pods


def healthy(name, **more):
    return kube.pod(
        name, ready=True, owner=("apps/v1", "ReplicaSet", "llama-6f7d9c9b5", "uid-llama-6f7d9c9b5"), **more
    )


def test_healthy_pods_only_count(api):
    api.add(healthy("llama-6f7d9c9b5-aaaaa"))
    api.add(kube.pod("nginx", containers=[{"name": "nginx", "image": "nginx:1.29"}]))
    document = collect(api)
    assert document["counts"] == {"pods_seen": 3, "engines": 2, "suspicious": 1}
    assert the_pod(document)["workload"]["replicas"]["same_template_ready"] == 1


def test_healthy_pod_in_full_when_named(api):
    api.add(healthy("llama-6f7d9c9b5-aaaaa"))
    api.add_log(
        "llm",
        "llama-6f7d9c9b5-aaaaa",
        "vllm",
        "INFO 11-30 06:53:03 [x.py:1] vLLM API server version 0.11.0\n",
    )
    document = collect(api, pod="llama-6f7d9c9b5-aaaaa")
    assert [(item["name"], item["suspicious"]) for item in document["pods"]] == [
        ("llama-6f7d9c9b5-aaaaa", False)
    ]
    assert engine(document["pods"][0])["attempts"][-1]["log"]["lines"] == 1
    assert document["counts"]["engines"] == 2


def test_healthy_looking_pod_with_an_oom_event_is_kept(api):
    about = {
        "kind": "Pod",
        "namespace": "llm",
        "name": "llama-6f7d9c9b5-bbbbb",
        "uid": "uid-llama-6f7d9c9b5-bbbbb",
    }
    api.add(healthy("llama-6f7d9c9b5-bbbbb"))
    api.add_log("llm", "llama-6f7d9c9b5-bbbbb", "vllm", "")
    api.add(kube.event("OOMKilling", "Memory cgroup out of memory", about=about))
    document = collect(api)
    assert [item["name"] for item in document["pods"]] == ["llama-6f7d9c9b5-bbbbb", NAME]


def test_all_pods_of_a_suspicious_engine_are_kept_and_read(api):
    labels = {"leaderworkerset.sigs.k8s.io/name": "deepseek", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    bad = kube.pod("deepseek-0-1", labels={**labels, "leaderworkerset.sigs.k8s.io/worker-index": "1"})
    good = kube.pod(
        "deepseek-0", labels={**labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"}, ready=True
    )
    other = kube.pod(
        "deepseek-1", labels={**labels, "leaderworkerset.sigs.k8s.io/group-index": "1"}, ready=True
    )
    for item in (bad, good, other):
        api.add(item)
        api.add_log("llm", item["metadata"]["name"], "vllm", "one line\n")
    document = collect(api)
    assert document["groups"] == [
        {"ref": "llm/LeaderWorkerSet/deepseek/0", "pods": ["llm/deepseek-0", "llm/deepseek-0-1"]}
    ]
    leader = next(item for item in document["pods"] if item["name"] == "deepseek-0")
    assert leader["suspicious"] is False
    assert engine(leader)["attempts"][-1]["log"]["lines"] == 1


def test_ray_head_without_accelerator_joins_its_engine(api):
    labels = {"ray.io/cluster": "big"}
    head = kube.pod(
        "big-head",
        labels=labels,
        ready=True,
        containers=[
            kube.container(
                "ray-head", image="rayproject/ray-llm:2.52.0", args=["ray start --head"], resources={}
            )
        ],
        statuses=[kube.status("ray-head", ready=True)],
    )
    api.add(head)
    api.add_log("llm", "big-head", "ray-head", "head line\n")
    api.add(kube.pod("big-worker", labels=labels))
    api.add_log("llm", "big-worker", "vllm", "worker line\n")
    document = collect(api)
    found = next(item for item in document["pods"] if item["name"] == "big-head")
    assert found["containers"][0]["attempts"][0]["log"]["lines"] == 1


def test_selector_limits_the_pods(api):
    api.add(healthy("llama-6f7d9c9b5-aaaaa", labels={"app": "other"}))
    assert collect(api, selector="app=llama")["counts"]["pods_seen"] == 1


def test_all_namespaces(api):
    elsewhere = kube.crashing_pod(name="mistral-0")
    elsewhere["metadata"].update(namespace="prod", ownerReferences=[])
    api.add(elsewhere)
    api.add_log("prod", "mistral-0", "vllm", CRASH, previous=True)
    document = collect(api, all_namespaces=True)
    assert [item["namespace"] for item in document["pods"]] == ["llm", "prod"]
    assert sorted(document["namespaces"]) == ["llm", "prod"]


def test_init_containers_and_sidecars_are_read_when_they_went_wrong():
    raw = kube.crashing_pod(
        initContainers=[
            kube.container("fetch", image="busybox:1.37", args=[], resources={}),
            kube.container("proxy", image="envoy:1", args=[], resources={}, restartPolicy="Always"),
        ],
        status_initContainerStatuses=[
            kube.status("fetch", state=kube.terminated(1)),
            kube.status("proxy", last=kube.terminated(137, "OOMKilled"), restarts=1),
        ],
    )
    api = make_api(raw)
    api.add_log("llm", NAME, "fetch", "wget: server returned error: HTTP/1.1 403 Forbidden\n")
    api.add_log("llm", NAME, "proxy", "starting\n", previous=True)
    api.add_log("llm", NAME, "proxy", "running\n")
    with api.serve():
        pod = the_pod(collect(api))
    roles = {
        item["name"]: (item["role"], [entry["log"]["lines"] for entry in item["attempts"]])
        for item in pod["containers"]
    }
    assert roles["fetch"] == ("init", [1])
    assert roles["proxy"] == ("sidecar", [1, 0])


# --- paging, broken answers, refusals


def many(api, count):
    for number in range(count):
        api.add(healthy(f"llama-6f7d9c9b5-{number:05d}"))


def test_paging(api):
    many(api, 1100)
    document = collect(api)
    assert document["counts"]["pods_seen"] == 1101
    assert len(api.asked("/namespaces/llm/pods\\?")) == 3


def test_expired_continue_token_goes_on_with_the_one_given(api):
    many(api, 1100)
    api.fail(
        r"/pods\?.*continue=500",
        410,
        "The provided continue parameter is too old",
        times=1,
        metadata={"continue": "500"},
    )
    assert collect(api)["counts"]["pods_seen"] == 1101


def test_expired_continue_token_starts_again_without_doubles(api):
    many(api, 1100)
    api.fail(r"/pods\?.*continue=1000", 410, "The provided continue parameter is too old", times=1)
    assert collect(api)["counts"] == {"pods_seen": 1101, "engines": 1101, "suspicious": 1}


@pytest.mark.parametrize("status", [429, 500, 503, "reset"])
def test_a_passing_failure_is_tried_again(api, status):
    api.fail(r"/namespaces/llm/pods\?", status, "try later", times=2)
    api.fail(r"/log\?", status, "try later", times=2)
    document = collect(api)
    assert document["unreadable"] == []
    assert engine(the_pod(document))["attempts"][0]["log"]["lines"] == 9


@pytest.mark.parametrize(
    ("pattern", "source", "needs"),
    [
        (r"/log\?", "log", "get pods/log in namespace llm"),
        (r"/api/v1/nodes/", "node", "get nodes (a ClusterRole)"),
        (r"/namespaces/llm/events", "events", "list events in namespace llm"),
        (r"/namespaces/default/events", "events", "list events in namespace default"),
        (r"/replicasets/", "object", "get replicasets.apps in namespace llm"),
        (r"/replicasets\?", "replicasets", "list replicasets.apps in namespace llm"),
        (r"/resourcequotas", "resourcequotas", "list resourcequotas in namespace llm"),
        (
            r"/horizontalpodautoscalers",
            "horizontalpodautoscalers",
            "list horizontalpodautoscalers.autoscaling in namespace llm",
        ),
    ],
)
def test_a_missing_right_is_named_and_the_run_goes_on(api, pattern, source, needs):
    api.fail(pattern, 403, "forbidden: User cannot")
    document = collect(api)
    assert [(item["source"], item["reason"], item["needs"]) for item in document["unreadable"]] == [
        (source, "forbidden", needs)
    ]
    assert the_pod(document)["suspicious"] is True


def test_403_on_logs_is_not_asked_again_for_every_pod(api):
    for number in range(30):
        api.add(kube.crashing_pod(name=f"more-{number}"))
    api.fail(r"/log\?", 403, "forbidden")
    document = collect(api)
    assert len(api.asked("/log")) <= client.WORKERS
    assert sum(item["source"] == "log" for item in document["unreadable"]) == 31
    assert all(engine(item)["attempts"][0]["log"]["reason"] == "forbidden" for item in document["pods"])


def test_pod_deleted_while_it_is_read(api):
    api.fail(r"/log\?", 404, f'pods "{NAME}" not found')
    document = collect(api)
    entry = unreadable(document)["log", f"llm/{NAME}/vllm (previous)"]
    assert entry["reason"] == "the pod was deleted while it was read"
    assert engine(the_pod(document))["attempts"][0]["exit_code"] == 1


def test_previous_log_that_the_node_has_removed(api):
    api.logs.pop(("llm", NAME, "vllm", True))
    entry = unreadable(collect(api))["log", f"llm/{NAME}/vllm (previous)"]
    assert "no longer has the previous container's log" in entry["reason"]


def test_container_that_has_not_started_is_not_asked_for_a_log():
    raw = kube.pod(
        statuses=[kube.status(state={"waiting": {"reason": "ContainerCreating"}})], status_phase="Pending"
    )
    with make_api(raw).serve() as api:
        found = engine(the_pod(collect(api)))["attempts"]
    assert [(item["index"], item["state"]) for item in found] == [(0, "waiting")]
    assert found[0]["log"]["reason"] == "not started (ContainerCreating)"
    assert api.asked("/log") == []


def test_container_that_stopped_running_meanwhile():
    with make_api(kube.pod()).serve() as api:
        api.fail(
            r"/log\?", 400, 'container "vllm" in pod "x" is waiting to start: CreateContainerConfigError'
        )
        document = collect(api)
    assert "has not started" in document["unreadable"][0]["reason"]


def test_log_that_breaks_off_keeps_what_was_read(api):
    sent = CRASH[: CRASH.index("ERROR")].encode()
    api.fail(r"/log\?", "break", sent=sent)
    document = collect(api)
    excerpt = engine(the_pod(document))["attempts"][0]["log"]
    assert excerpt["readable"] is True
    assert excerpt["lines"] >= 4
    assert "broke off" in excerpt["reason"]
    assert "broke off" in document["unreadable"][0]["reason"]


def test_server_that_goes_away_in_the_middle_keeps_partial_evidence(api):
    api.fail(r"/apis/|/nodes/|/log\?|quota|limitrange|/events", "reset")
    document = collect(api)
    assert the_pod(document)["containers"][0]["attempts"][0]["exit_code"] == 1
    assert {"log", "events", "node"} <= {item["source"] for item in document["unreadable"]}
    assert all(item["reason"].startswith("no answer") for item in document["unreadable"])


# --- nothing to diagnose: one sentence each


def sentence(api, match, **query):
    with pytest.raises(DocumentError) as caught:
        collect(api, **query)
    text = str(caught.value)
    assert re.search(match, text), text
    assert "\n" not in text
    assert caught.value.evidence["schema"] == "vllm_runbook.oom/evidence/v1"
    return text


def test_401(api):
    expired = client.connect({"host": api.url, "api_key": "expired"}, environ={})
    with pytest.raises(
        DocumentError, match=r"127\.0\.0\.1:\d+ refuses the credentials \(401 Unauthorized\); renew"
    ):
        cluster.collect(expired, {"namespace": "llm"})


def test_unreachable():
    with RecordedApi().serve() as api:
        pass
    sentence(api, r"can't be read: .*refused.*; check that the cluster is up")


def test_403_on_pods(api):
    api.fail("/pods", 403, "forbidden")
    sentence(api, "needs: list pods in namespace llm")
    sentence(api, "needs: get pods in namespace llm", pod=NAME)


def test_no_vllm_pods_names_what_was_seen():
    with RecordedApi(
        [kube.pod("web-1", containers=[{"name": "nginx", "image": "nginx:1.29"}])]
    ).serve() as api:
        sentence(api, r"namespace llm has no vLLM pods; seen instead: web-1 \(nginx:1\.29\)")


def test_unknown_namespace(api):
    sentence(api, r"there is no namespace ghost on http", namespace="ghost")
    sentence(api, r"there is no namespace ghost on http", namespace="ghost", pod="x")


def test_empty_namespace_says_why_no_pod_could_be_created():
    failed = kube.event(
        "FailedCreate",
        'Error creating: pods "llama-x" is forbidden: failed quota: gpu: must specify limits.cpu for: vllm',
        about={"kind": "ReplicaSet", "namespace": "llm", "name": "llama-6f7d9c9b5", "uid": "rs"},
    )
    with RecordedApi(
        [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}}, failed]
    ).serve() as api:
        sentence(
            api, "has no pods; ReplicaSet llama-6f7d9c9b5 could not create any: .*must specify limits.cpu"
        )


def test_unknown_pod_gives_nearest_names(api):
    sentence(
        api, f"there is no pod llama-6f7d9c9b5-x2x4 in namespace llm; nearest names: {NAME}", pod=NAME[:-1]
    )


@pytest.mark.parametrize("query", [{"pod": "deploy/llama"}, {"namespace": "a?b"}, {"namespace": "../x"}])
def test_what_is_no_name_is_not_sent(api, query):
    with pytest.raises(DocumentError, match="is no name of a"):
        collect(api, **query)
    assert api.requests == []


def test_bad_selector(api):
    api.fail(r"labelSelector", 400, "unable to parse requirement: found '=='")
    sentence(api, "refuses the label selector 'a==='", selector="a===")


def test_selector_without_matches(api):
    sentence(api, "namespace llm has no pods that match the selector app=ghost", selector="app=ghost")


# --- settings that lie elsewhere


def test_config_file_and_environment_from_config_maps():
    raw = kube.crashing_pod(
        containers=[
            kube.container(
                args=["--model", "$(MODEL)", "--config", "/etc/vllm/serve.yaml"],
                env=[
                    {"name": "MODEL", "valueFrom": {"configMapKeyRef": {"name": "llama", "key": "model"}}},
                    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                ],
                envFrom=[{"configMapRef": {"name": "flags"}}],
                volumeMounts=[{"name": "config", "mountPath": "/etc/vllm"}],
            )
        ],
        volumes=[{"name": "config", "configMap": {"name": "llama"}}],
    )
    api = make_api(raw)
    api.logs.clear()
    api.add(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": kube.metadata("llama"),
            "data": {
                "model": "acme/llama",
                "serve.yaml": "max-model-len: 4096\napi-key: sk-verysecret1234567890\n",
            },
        }
    )
    api.add(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": kube.metadata("flags"),
            "data": {"VLLM_USE_V1": "1"},
        }
    )
    with api.serve():
        document = collect(api)
    container = engine(the_pod(document))
    settings = container["settings"]
    assert settings["model"]["value"] == "acme/llama"
    assert (settings["max_model_len"]["value"], settings["max_model_len"]["from"]) == (4096, "config")
    env = {item["name"]: (item["value"], item["from"]) for item in container["env"]}
    assert env["VLLM_USE_V1"] == ("1", "configMap/flags/VLLM_USE_V1")
    assert env["HF_TOKEN"] == (None, "secret/hf/token")
    assert "sk-verysecret" not in json.dumps(document)


def test_kind_that_is_not_in_the_table_is_found_by_discovery():
    raw = kube.crashing_pod(owner=("acme.example/v1", "Llama", "big", "uid-big"))
    api = make_api(raw)
    api.add({"apiVersion": "acme.example/v1", "kind": "Llama", "metadata": kube.metadata("big"), "spec": {}})
    with api.serve():
        found = the_pod(collect(api))["workload"]
    assert (found["kind"], found["chain"][0]["read"]) == ("Llama", True)
    assert found["edit"]["path"] is None


# --- no secrets


SECRETS = (
    "hunter2hunter2",
    "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "sk-proj-abcdefghijklmnop123456",
    "s3cr3tpassw0rd",
)


def test_no_secret_reaches_the_document():
    raw = kube.crashing_pod(
        containers=[
            kube.container(
                args=[
                    "--model",
                    "x",
                    "--api-key",
                    SECRETS[2],
                    "--download-dir",
                    f"https://bob:{SECRETS[0]}@host/models",
                ],
                env=[
                    {"name": "HF_TOKEN", "value": SECRETS[1]},
                    {"name": "DB_PASSWORD", "value": SECRETS[3]},
                    {"name": "PROXY", "value": f"http://user:{SECRETS[3]}@proxy:3128"},
                ],
                livenessProbe={
                    "exec": {"command": ["curl", "-H", f"Authorization: Bearer {SECRETS[2]}", "localhost"]}
                },
            )
        ],
        metadata_annotations={"vpaUpdates": f"token={SECRETS[1]}", "internal/secret": SECRETS[0]},
        status_message=f"pulling from https://bob:{SECRETS[0]}@registry failed",
    )
    api = make_api(raw)
    api.add_log(
        "llm",
        NAME,
        "vllm",
        CRASH + f"\nERROR 11-30 06:51:41 [x.py:1] login with {SECRETS[1]} failed\n",
        previous=True,
    )
    api.add(kube.event("Failed", f"Failed to pull: https://bob:{SECRETS[0]}@registry.example/v2/"))
    template = {"spec": {"containers": [kube.container(env=[{"name": "DB_PASSWORD", "value": SECRETS[3]}])]}}
    api.add(kube.replica_set("llama-5d5f5f5f5", revision="1", template=template))
    with api.serve():
        text = json.dumps(collect(api))
    for secret in SECRETS:
        assert secret not in text
    assert json.loads(text)["redactions"]["count"] >= 6


# --- exec, only when asked for


class Inside:
    """A client whose containers can be entered."""

    def __init__(self, real, files, refuse=None):
        self.real, self.files, self.refuse, self.commands = real, files, refuse, []

    def __getattr__(self, name):
        return getattr(self.real, name)

    def exec(self, _namespace, _pod, _container, command):
        self.commands.append(command)
        if self.refuse:
            raise client.ApiError(self.refuse, "forbidden")
        name = command[-1] if command[0] == "cat" else command[0]
        if name not in self.files:
            raise client.ApiError(None, "No such file or directory")
        return self.files[name]


FILES = {
    "/sys/fs/cgroup/memory.max": "34359738368\n",
    "/sys/fs/cgroup/memory.current": "1073741824\n",
    "df": "Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 65000 536 100% /dev/shm\n",
    "nvidia-smi": "0, GPU-1, NVIDIA H100 80GB HBM3, 81559, 71000, [N/A]\n",
}


def running_pod(usage):
    api = make_api(kube.pod(statuses=[kube.status(last=kube.terminated(), restarts=1)]))
    if usage:
        api.add(
            {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "PodMetrics",
                "metadata": kube.metadata(NAME),
                "containers": [{"name": "vllm", "usage": {"memory": usage}}],
            }
        )
    return api


def look_inside(api, **more):
    inside = Inside(connect(api), FILES, **more)
    return inside, cluster.collect(inside, {"since": 1e9, "exec": "running"})


def test_exec_reads_cgroup_shm_and_gpus():
    with running_pod("4Gi").serve() as api:
        inside, document = look_inside(api)
    pod = the_pod(document)
    assert engine(pod)["attempts"][-1]["cgroup"]["memory"]["usage"] == 1 << 30
    assert pod["shm"]["used"] == 65000 * 1024
    assert document["nodes"]["gpu-3"]["gpus"] == [
        {
            "index": 0,
            "uuid": "GPU-1",
            "name": "NVIDIA H100 80GB HBM3",
            "total": 81559 << 20,
            "used": 71000 << 20,
            "free": None,
        }
    ]
    assert {command[0] for command in inside.commands} == {"cat", "df", "nvidia-smi"}


@pytest.mark.parametrize(
    ("usage", "reason"), [("31Gi", "uses 97% of its memory limit"), (None, "is unknown")]
)
def test_full_containers_are_not_entered(usage, reason):
    with running_pod(usage).serve() as api:
        inside, document = look_inside(api)
    assert inside.commands == []
    assert any(item["source"] == "exec" and reason in item["reason"] for item in document["unreadable"])


def test_refused_exec_names_the_right():
    with running_pod("4Gi").serve() as api:
        _inside, document = look_inside(api, refuse=403)
    entry = next(item for item in document["unreadable"] if item["source"] == "exec")
    assert entry["needs"] == "create and get pods/exec in namespace llm"


def test_nothing_is_executed_by_default():
    with running_pod("4Gi").serve() as api:
        inside = Inside(connect(api), FILES)
        cluster.collect(inside, {"since": 1e9, "exec": "never"})
    assert inside.commands == []


def test_exec_over_a_websocket(api):
    api.add_program(["cat", "/sys/fs/cgroup/memory.max"], "34359738368\n")
    assert connect(api).exec("llm", NAME, "vllm", ["cat", "/sys/fs/cgroup/memory.max"]) == "34359738368\n"
    assert api.asked(
        r"/exec\?container=vllm&stdout=true.*command=cat&command=%2Fsys%2Ffs%2Fcgroup%2Fmemory.max"
    )


def test_exec_of_something_that_is_not_there(api):
    with pytest.raises(client.ApiError, match="No such file") as caught:
        connect(api).exec("llm", NAME, "vllm", ["cat", "/none"])
    assert caught.value.status is None


def test_exec_that_does_not_end(api):
    api.add_program(["nvidia-smi"], None)
    with pytest.raises(client.ApiError, match=r"did not end within 0\.2 s"):
        connect(api).exec("llm", NAME, "vllm", ["nvidia-smi"], timeout=0.2)


def test_exec_that_is_refused(api):
    api.fail("/exec", 403, "forbidden")
    with pytest.raises(client.ApiError) as caught:
        connect(api).exec("llm", NAME, "vllm", ["df"])
    assert caught.value.status == 403


# --- authentication


def test_token_and_host_need_no_kubeconfig(api):
    found = client.connect({"host": api.url + "/", "api_key": api.token}, environ={})
    assert cluster.collect(found, {"since": 1e9, "namespace": "llm"})["counts"]["engines"] == 1


def test_environment_variables_are_those_of_kubernetes_core(api, tmp_path):
    path = tmp_path / "config"
    path.write_text(json.dumps(api.kubeconfig(namespace="other")))
    found = client.connect({}, environ={"K8S_AUTH_KUBECONFIG": str(path), "K8S_AUTH_CONTEXT": "recorded"})
    assert found.namespace == "other"
    assert found.get("/api/v1/namespaces/llm")["metadata"]["name"] == "llm"
    settings = client.auth_settings(
        {"host": "https://a", "validate_certs": False},
        {
            "K8S_AUTH_HOST": "https://b",
            "K8S_AUTH_VERIFY_SSL": "true",
            "K8S_AUTH_SSL_CA_CERT": "/ca",
            "K8S_AUTH_IMPERSONATE_GROUPS": "a,b",
        },
    )
    assert settings == {
        "host": "https://a",
        "verify_ssl": False,
        "ssl_ca_cert": "/ca",
        "impersonate_groups": ["a", "b"],
    }


@pytest.mark.parametrize("content", ["", "{", "apiVersion: v1\nkind: Config\n", "just text"])
def test_unusable_kubeconfig_is_one_sentence(tmp_path, content):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(DocumentError, match=r"no cluster can be read: .*config is not usable") as caught:
        client.connect({"kubeconfig": str(path)}, environ={})
    assert "\n" not in str(caught.value)


def test_missing_kubeconfig_is_one_sentence(tmp_path):
    with pytest.raises(DocumentError, match="is not usable"):
        client.connect({"kubeconfig": str(tmp_path / "none")}, environ={})


def test_unknown_context_is_one_sentence(api):
    with pytest.raises(DocumentError, match="ghost"):
        client.connect({"kubeconfig": api.kubeconfig(), "context": "ghost"}, environ={})


def test_impersonation_goes_with_every_request_but_never_with_exec(api):
    found = connect(api, impersonate_user="jane", impersonate_groups=["dev", "ops"])
    headers = found._headers()
    assert ("Impersonate-User", "jane") in headers
    assert [value for name, value in headers if name == "Impersonate-Group"] == ["dev", "ops"]
    with pytest.raises(client.ApiError, match="impersonation"):
        found.exec("llm", NAME, "vllm", ["cat", "/proc/1/status"])
