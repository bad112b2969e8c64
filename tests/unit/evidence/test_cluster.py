# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live source against a recorded-response API server: a happy run and everything that can be refused."""

from __future__ import annotations

import json
import re
import time

import pytest
import urllib3
from support import kube_objects as kube
from support.recorded_api import RecordedApi

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, cluster
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.nvidia_smi import GPU_QUERIES, gpu

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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"spec": "text"}, "llm/odd"),
        ({"status": {"containerStatuses": {"a": 1}}}, "llm/odd"),
        ({"spec": {"containers": [5]}}, "llm/odd"),
        ({"metadata": {"name": "odd", "namespace": "llm", "uid": "u", "labels": ["x"]}}, "llm/odd"),
        ({"metadata": {"name": "odd", "namespace": "llm", "uid": ["u"]}}, "llm/odd"),
    ],
)
def test_an_odd_pod_is_named_and_the_run_goes_on(api, change, named):
    api.add(healthy("odd"))
    api.objects["v1", "llm", "pods"]["odd"].update(change)
    document = collect(api, namespace="llm")
    assert [pod["name"] for pod in document["pods"]] == [NAME]
    entry = unreadable(document)["pod", named]
    assert entry["reason"].startswith("not as the Kubernetes API writes it (")
    assert document["counts"]["pods_seen"] == 2


def test_an_odd_pod_that_was_named_is_one_sentence(api):
    api.objects["v1", "llm", "pods"][NAME]["spec"] = "text"
    sentence(api, rf"^the pod {NAME} in namespace llm is not as the Kubernetes API writes it", pod=NAME)


@pytest.mark.parametrize(
    ("plural", "name", "change", "named"),
    [
        ("replicasets", "llama-6f7d9c9b5", {"metadata": {"ownerReferences": "x"}}, f"the owners of llm/{NAME}"),
        ("replicasets", "llama-6f7d9c9b5", {"status": {"conditions": [5]}}, f"the owners of llm/{NAME}"),
        ("resourcequotas", "gpu", {"status": "x"}, "quotas of llm"),
    ],
)  # fmt: skip
def test_odd_owners_and_quotas_are_named_and_the_run_goes_on(api, plural, name, change, named):
    version = "apps/v1" if plural == "replicasets" else "v1"
    api.objects[version, "llm", plural][name].update(change)
    document = collect(api, namespace="llm")
    assert [pod["name"] for pod in document["pods"]] == [NAME]
    assert engine(the_pod(document))["attempts"][-2]["log"]["errors"]
    assert named in [item["object"] for item in document["unreadable"]]


def test_an_odd_event_is_named_and_the_others_are_read(api):
    odd = kube.event("Killing", "x", about={"kind": "Pod", "namespace": "llm", "name": NAME, "uid": ["u"]})
    odd["metadata"]["name"] = "odd-event"
    api.add(odd)
    document = collect(api, namespace="llm")
    assert ("event", "llm/odd-event") in unreadable(document)
    assert "BackOff" in [item["reason"] for item in the_pod(document)["events"]]


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
    if status not in client.NODE_FAILURES:
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
    (entry,) = [item for item in document["unreadable"] if item["source"] == "log"]
    assert len(entry["object"].split(", ")) == 31
    assert entry["needs"] == "get pods/log in namespace llm"
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


GONE = "unable to retrieve container logs for containerd://" + "a" * 64
LINK = 'failed to try resolving symlinks in path "/var/log/pods/x/vllm/2.log": lstat /var/log/pods/x: no such file or directory'


@pytest.mark.parametrize("text", [GONE, GONE + "\n", LINK])
@pytest.mark.parametrize("previous", [True, False])
def test_refusal_in_place_of_a_log_is_no_log(text, previous):
    statuses = None if previous else [kube.status(last=kube.terminated(), restarts=1)]
    api = make_api(kube.crashing_pod(**({"statuses": statuses} if statuses else {})))
    api.refuse_log("llm", NAME, "vllm", text, previous=previous)
    with api.serve():
        document = collect(api)
    attempts = engine(the_pod(document))["attempts"]
    refused = attempts[0] if previous else attempts[-1]
    assert refused["log"]["readable"] is False
    assert refused["log"]["lines"] == 0
    assert refused["log"]["reason"] == f"the node no longer has it ({text.strip()})"
    (entry,) = document["unreadable"]
    assert entry["object"] == f"llm/{NAME}/vllm" + (" (previous)" if previous else "")
    assert entry["reason"] == refused["log"]["reason"]
    assert "log store" in entry["needs"]


def test_log_that_quotes_such_a_refusal_is_a_log(api):
    api.refuse_log("llm", NAME, "vllm", GONE + "\nERROR: CUDA out of memory\n", previous=True)
    document = collect(api)
    assert document["unreadable"] == []
    assert engine(the_pod(document))["attempts"][0]["log"]["lines"] == 2


DIAL = 'Get "https://10.0.0.5:10250/containerLogs/llm/x/vllm?previous=true": dial tcp 10.0.0.5:10250: connect: refused'


@pytest.mark.parametrize("status", client.NODE_FAILURES)
def test_node_that_gives_no_logs_is_not_asked_for_each(api, status):
    for number in range(30):
        api.add(kube.crashing_pod(name=f"more-{number}"))
    api.fail(r"/log\?", status, DIAL)
    document = collect(api)
    assert len(api.asked("/log")) <= client.WORKERS
    (entry,) = [item for item in document["unreadable"] if item["source"] == "log"]
    assert (
        entry["reason"]
        == f"the kubelet of node gpu-3 gives no logs ({status}: dial tcp 10.0.0.5:10250: connect: refused)"
    )
    assert len(entry["object"].split(", ")) == 31
    assert {engine(item)["attempts"][0]["log"]["reason"] for item in document["pods"]} == {entry["reason"]}


def test_other_nodes_give_their_logs(api):
    silent = [kube.crashing_pod(name=f"more-{number}", nodeName="gpu-4") for number in range(20)]
    for item in silent:
        api.add(item)
    api.add(kube.node("gpu-4"))
    api.fail(r"/more-\d+/log\?", 500, DIAL)
    document = collect(api)
    assert len(api.asked("/more-.*/log")) <= client.WORKERS
    read = {item["name"]: engine(item)["attempts"][0]["log"]["readable"] for item in document["pods"]}
    assert [name for name, readable in read.items() if readable] == [NAME]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(client, "_READ_TIMEOUT", 0.4)
    monkeypatch.setattr(client, "_PATIENCE", 0.8)


@pytest.mark.usefixtures("impatient")
def test_server_that_freezes_in_the_middle_is_given_up(api):
    for number in range(30):
        api.add(kube.crashing_pod(name=f"more-{number}", nodeName=f"gpu-{number}"))
    api.fail(r"/log\?|/nodes/|/apis|quota|limitrange|/version", "hang")
    started = time.monotonic()
    document = collect(api)
    assert time.monotonic() - started < 3
    assert len(api.requests) < 40
    entries = document["unreadable"]
    assert {item["reason"] for item in entries} == {"no answer: nothing came in time"}
    assert len(entries) == len({item["source"] for item in entries})
    logs = next(item["object"] for item in entries if item["source"] == "log")
    assert len(logs.split(", ")) == 31
    assert len(document["pods"]) == 31


@pytest.mark.usefixtures("impatient")
def test_server_frozen_from_the_start_is_one_sentence(api):
    api.fail("", "hang")
    started = time.monotonic()
    sentence(api, "can't be read: nothing came in time; check that the cluster is up")
    assert time.monotonic() - started < 3


@pytest.mark.usefixtures("impatient")
def test_frozen_kubelet_is_told_from_a_frozen_server(api):
    for number in range(30):
        api.add(kube.crashing_pod(name=f"more-{number}"))
    api.fail(r"/log\?", "hang")
    document = collect(api)
    assert len(api.asked("/log")) <= client.WORKERS
    (entry,) = document["unreadable"]
    assert entry["reason"] == "the kubelet of node gpu-3 gives no logs (504: nothing came within 0.4 s)"


def test_all_requests_of_a_run_share_the_time_for_trying_again(api, monkeypatch):
    monkeypatch.setattr(client, "_PAUSES_OF_A_RUN", 1.0)
    api.fail(r"/apis/|quota|limitrange|/nodes/", 503, "overloaded")
    document = collect(api)
    assert len(api.requests) < len(set(api.requests)) + 10
    assert "503: overloaded" in {item["reason"] for item in document["unreadable"]}


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


def test_node_that_has_no_log_of_a_running_container():
    with make_api(kube.pod()).serve() as api:
        api.fail(r"/log\?", 400, 'no logs found for container "vllm" in pod "x"')
        document = collect(api)
    reason = 'the node gives none (no logs found for container "vllm" in pod "x")'
    assert document["unreadable"][0]["reason"] == reason


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


def test_log_that_broke_off_is_read_again(api):
    undisturbed = collect(api)
    api.fail(r"/log\?", "break", sent=CRASH[:200].encode(), times=1)
    document = collect(api)
    assert document["unreadable"] == []
    assert document["redactions"] == undisturbed["redactions"]
    assert document["pods"] == undisturbed["pods"]


# What is asked for after the lists of pods and events, and when it is looked whether the server is there.
LATER = r"/log\?|/nodes/|/apis|quota|limitrange|/version"


def test_server_that_is_restarted_in_the_middle_is_waited_for(api):
    for number in range(10):
        api.add(kube.crashing_pod(name=f"more-{number}"))
        api.add_log("llm", f"more-{number}", "vllm", CRASH, previous=True)
    looks = client.WORKERS * 3

    def is_away():
        """From the first log on, until somebody has looked for it often enough."""
        return bool(api.asked(r"/log\?")) and len(api.asked("/version")) < looks

    api.fail("", "reset", when=is_away)
    connected = connect(api)
    connected._pause = lambda seconds: time.sleep(seconds / 20)
    document = cluster.collect(connected, {"since": 1e9})
    assert document["unreadable"] == []
    assert {engine(item)["attempts"][0]["log"]["lines"] for item in document["pods"]} == {9}
    assert len(api.asked("/version")) >= looks


def test_server_that_has_just_started_knows_nobody_yet(api):
    api.fail(LATER, "reset", times=client.WORKERS * 6)
    api.fail(LATER, 401, "Unauthorized", times=2)
    api.fail(LATER, 403, "forbidden", times=2)
    assert collect(api)["unreadable"] == []


@pytest.mark.usefixtures("impatient")
def test_server_that_stays_away_is_given_up(api):
    for number in range(30):
        api.add(kube.crashing_pod(name=f"more-{number}", nodeName=f"gpu-{number}"))
    api.fail(LATER, "reset")
    connected = connect(api)
    connected._pause = lambda _seconds: time.sleep(0.05)
    started = time.monotonic()
    document = cluster.collect(connected, {"since": 1e9})
    assert time.monotonic() - started < 3
    entries = document["unreadable"]
    assert len({item["reason"] for item in entries}) == 1
    assert "reset" in entries[0]["reason"]
    assert len(entries) == len({item["source"] for item in entries})


def test_server_that_was_never_there_is_not_waited_for(api):
    api.fail("", "reset")
    sentence(api, "can't be read: .*check that the cluster is up")
    assert len(api.requests) == 1 + len(client._PAUSES)


def test_request_that_always_fails_is_told_from_a_server_that_is_away(api):
    api.fail("/nodes/", "reset")
    document = collect(api)
    assert [item["source"] for item in document["unreadable"]] == ["node"]
    # Twice as often where nothing else was asked meanwhile.
    assert len(api.asked("/nodes/")) <= 2 * (1 + len(client._PAUSES))


def test_tls_that_breaks_off_is_an_outage_once_the_server_is_known(api):
    """A load balancer without a server behind it takes the connection and closes it."""
    connected = connect(api)
    pool, failures = connected._pool, []

    class Pool:
        def request(self, *arguments, **options):
            if failures:
                raise failures.pop()
            return pool.request(*arguments, **options)

    connected._pool = Pool()
    eof = urllib3.exceptions.SSLError("EOF occurred in violation of protocol")
    failures.append(eof)
    with pytest.raises(client.ApiError, match="TLS to http"):
        connected.get("/api/v1/nodes/gpu-3")
    assert connected.get("/api/v1/nodes/gpu-3")["kind"] == "Node"
    failures += [eof] * 6
    assert connected.get("/api/v1/nodes/gpu-3")["kind"] == "Node"


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
    said = sentence(api, r"can't be read: .*refused.*; check that the cluster is up")
    assert "HTTPConnection" not in said


def test_403_on_pods(api):
    api.fail("/pods", 403, "forbidden")
    sentence(api, "needs: list pods in namespace llm")
    sentence(api, "needs: get pods in namespace llm", pod=NAME)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "llm"',
            "does not allow ann to read pods; needs: list pods in namespace llm$",
        ),
        (
            'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group ""',
            "was given neither a token nor a client certificate",
        ),
        (
            'users "bob" is forbidden: User "ann" cannot impersonate resource "users" in API group ""',
            "does not allow ann to act as somebody else; needs: impersonate users$",
        ),
    ],
)
def test_403_says_who_is_refused_what(api, message, said):
    api.fail("/pods", 403, message)
    sentence(api, said)


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


QUOTA = 'Error creating: pods "llama-x" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=1, used: 8, limited: 8'


def refused(name="llama-6f7d9c9b5", kind="ReplicaSet", **more):
    about = {
        "kind": kind,
        "apiVersion": "apps/v1",
        "namespace": "llm",
        "name": name,
        "uid": f"uid-{name}",
    }
    return kube.event("FailedCreate", QUOTA, about=about, **more)


def of_gone_pod(reason, message, name="llama-6f7d9c9b5-gone1", container="vllm", **more):
    about = {
        "kind": "Pod",
        "namespace": "llm",
        "name": name,
        "uid": f"gone-{name}",
        "fieldPath": f"spec.containers{{{container}}}",
    }
    return kube.event(reason, message, about=about, **more)


def short(name="llama-6f7d9c9b5", wanted=2, there=1, deployment="llama", **more):
    """A ReplicaSet of a Deployment that has not all the pods it wants."""
    found = kube.replica_set(name, **more)
    found["spec"]["replicas"], found["status"]["replicas"] = wanted, there
    found["metadata"]["ownerReferences"][0].update(name=deployment, uid=f"uid-{deployment}")
    return found


def serving(*more, replica_set=None):
    """A namespace in which one engine serves well."""
    return RecordedApi(
        [
            healthy("llama-6f7d9c9b5-aaaaa"),
            replica_set or short(),
            kube.deployment(),
            kube.node(),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}},
            *more,
        ]
    )


def test_replica_refused_beside_a_running_pod_is_told_of_by_that_pod():
    with serving(refused()).serve() as api:
        document = collect(api)
    (pod,) = document["pods"]
    assert pod["suspicious"] is True
    assert [(item["reason"], item["message"], item["object"]) for item in pod["events"]] == [
        ("FailedCreate", QUOTA, "ReplicaSet/llama-6f7d9c9b5")
    ]


def test_refused_rollout_is_told_of_by_a_pod_of_the_old_template():
    with serving(
        refused("llama-7c8dddddd"), short("llama-7c8dddddd", there=0), replica_set=short(there=2)
    ).serve() as api:
        (pod,) = collect(api)["pods"]
    assert pod["name"] == "llama-6f7d9c9b5-aaaaa"
    assert [item["object"] for item in pod["events"]] == ["ReplicaSet/llama-7c8dddddd"]


def test_refusal_without_read_rights_on_its_owner_is_believed():
    with serving(refused()).serve() as api:
        api.fail("/replicasets/", 403, "forbidden")
        (pod,) = collect(api)["pods"]
    assert "FailedCreate" in {item["reason"] for item in pod["events"]}


def test_refusal_that_is_over_or_old_is_none():
    with serving(refused(), replica_set=short(there=2)).serve() as api:
        assert collect(api)["pods"] == []
    with serving(refused("llama-gone")).serve() as api:
        assert collect(api)["pods"] == []
    with serving(refused(lastTimestamp="2025-01-01T00:00:00Z")).serve() as api:
        assert collect(api, since=3600)["pods"] == []


def test_refused_engine_without_any_pod_beside_another_engine_is_named():
    template = {"spec": {"containers": [{"name": "nginx", "image": "nginx:1.29"}]}}
    with serving(
        refused("qwen-5d5f5f5f5"),
        short("qwen-5d5f5f5f5", there=0, deployment="qwen"),
        refused("web-5d5f5f5f5"),
        short("web-5d5f5f5f5", there=0, deployment="web", template=template),
    ).serve() as api:
        document = collect(api)
    assert document["pods"] == []
    (entry,) = document["unreadable"]
    assert entry["object"] == "llm/ReplicaSet/qwen-5d5f5f5f5"
    assert entry["reason"].startswith("its pods are refused; its last event is FailedCreate: Error creating")


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (of_gone_pod("BackOff", "Back-off restarting failed container vllm"), True),
        (of_gone_pod("Evicted", "The node was low on resource: memory.", container=""), True),
        (of_gone_pod("OOMKilling", "out of memory", name="x-1"), True),
        (of_gone_pod("Killing", "Container vllm failed liveness probe, will be restarted"), True),
        (of_gone_pod("Killing", "Stopping container vllm"), False),
        (of_gone_pod("Scheduled", "Successfully assigned"), False),
        (
            of_gone_pod("BackOff", "Back-off restarting failed container", name="web-1", container="nginx"),
            False,
        ),
    ],
)
def test_pod_that_died_and_is_gone_is_named_beside_running_ones(event, told):
    with serving(event, replica_set=short(there=2)).serve() as api:
        document = collect(api)
    assert document["pods"] == []
    assert [item["object"] for item in document["unreadable"]] == (
        [f"llm/{event['involvedObject']['name']}"] if told else []
    )
    if told:
        reason = document["unreadable"][0]["reason"]
        assert reason == (
            f"gone with its logs; its last event is {event['reason']}: {event['message']} "
            "(3 times, last at 2026-11-30T06:53:00Z)"
        )


def test_death_is_quoted_rather_than_the_deletion_after_it():
    later = of_gone_pod("Killing", "Stopping container vllm", lastTimestamp="2026-11-30T06:59:00Z")
    with serving(of_gone_pod("BackOff", "Back-off"), later, replica_set=short(there=2)).serve() as api:
        (entry,) = collect(api)["unreadable"]
    assert "BackOff: Back-off (" in entry["reason"]


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}}
WEB = kube.pod("web-1", containers=[{"name": "nginx", "image": "nginx:1.29"}])


@pytest.mark.parametrize("others", [[], [WEB]])
def test_no_engine_now_but_one_that_died(others):
    event = of_gone_pod("Killing", "Stopping container vllm")
    with (
        RecordedApi([NAMESPACE, event, *others]).serve() as api,
        pytest.raises(cluster.CollectionError) as caught,
    ):
        collect(api)
    assert str(caught.value).endswith(
        "; the newest event of a pod that is gone, llm/llama-6f7d9c9b5-gone1, is Killing: Stopping container vllm "
        "(3 times, last at 2026-11-30T06:53:00Z)"
    )
    assert [item["object"] for item in caught.value.evidence["unreadable"]] == ["llm/llama-6f7d9c9b5-gone1"]


def test_no_engine_but_one_that_is_refused_beside_other_pods():
    with RecordedApi([NAMESPACE, WEB, refused(), short(there=0)]).serve() as api:
        sentence(
            api,
            r"seen instead: web-1 .*; ReplicaSet llama-6f7d9c9b5 could not create its pods: .*exceeded quota",
        )


def test_refusal_of_something_else_explains_no_missing_engine():
    template = {"spec": {"containers": [{"name": "nginx", "image": "nginx:1.29"}]}}
    other = short("web-5d5f5f5f5", there=0, template=template)
    with RecordedApi([NAMESPACE, WEB, refused("web-5d5f5f5f5"), other]).serve() as api:
        assert "could not create" not in sentence(api, r"seen instead: web-1")


def test_unknown_pod_has_its_last_event_quoted(api):
    api.add(of_gone_pod("OOMKilling", "Memory cgroup out of memory", name="llama-old"))
    sentence(
        api,
        "there is no pod llama-old in namespace llm any more, and its last event is OOMKilling: Memory cgroup",
        pod="llama-old",
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
        gpu(index=0, uuid="GPU-1", name="NVIDIA H100 80GB HBM3", total=81559 << 20, used=71000 << 20)
    ]
    assert {command[0] for command in inside.commands} == {"cat", "df", "nvidia-smi"}


def not_entered(api):
    inside, document = look_inside(api)
    assert inside.commands == []
    (entry,) = document["unreadable"]
    assert (entry["source"], entry["object"]) == ("exec", f"llm/{NAME}/vllm")
    return entry


def test_full_containers_are_not_entered():
    with running_pod("31Gi").serve() as api:
        assert "uses 97% of its memory limit" in not_entered(api)["reason"]


@pytest.mark.parametrize(
    ("status", "why", "needs"),
    [
        (None, "the cluster serves no PodMetrics", "metrics-server"),
        (403, "PodMetrics: forbidden", "get pods.metrics.k8s.io in namespace llm"),
        (503, "PodMetrics: 503: unable to handle the request", "a metrics-server that answers"),
    ],
)
def test_container_of_unknown_use_is_not_entered(status, why, needs):
    with running_pod(None).serve() as api:
        if status:
            api.fail("/apis/metrics.k8s.io", status, "unable to handle the request")
        entry = not_entered(api)
    assert entry["reason"] == f"not entered: how much of its memory limit it uses is unknown ({why})"
    assert entry["needs"] == needs


def test_pod_that_metrics_server_does_not_know_yet_is_not_entered():
    api = running_pod(None)
    metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics"}
    api.add({**metrics, "metadata": kube.metadata("other"), "containers": []})
    with api.serve():
        assert "metrics-server has no PodMetrics of this pod yet" in not_entered(api)["reason"]
    api.add({**metrics, "metadata": kube.metadata(NAME), "containers": []})
    with api.serve():
        assert "don't name this container" in not_entered(api)["reason"]


def test_container_without_a_limit_is_entered_whatever_it_uses():
    raw = kube.pod(containers=[kube.container(resources={"limits": {"nvidia.com/gpu": "1"}})])
    with make_api(raw).serve() as api:
        inside, document = look_inside(api)
        assert inside.commands
        assert api.asked("metrics.k8s.io") == []
    assert document["unreadable"] == []


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


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            "Unable to determine the device handle for GPU0: Unknown Error\nmore\n",
            "Unable to determine .* GPU0: Unknown Error",
        ),
        ("\n", "nvidia-smi: it failed"),
    ],
)
def test_exec_that_fails_says_what_was_printed(api, printed, sentence):
    api.add_program(["nvidia-smi"], printed, exit_code=255, stream=1)
    with pytest.raises(client.ApiError, match=f"^{sentence}$"):
        connect(api).exec("llm", NAME, "vllm", ["nvidia-smi"])


def test_what_nvidia_smi_prints_as_it_fails_is_the_drivers_error():
    api = make_api(kube.pod(containers=[kube.container(resources={"limits": {"nvidia.com/gpu": "1"}})]))
    for fields in GPU_QUERIES:
        query = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
        said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n"
        api.add_program(query, said, exit_code=18, stream=1)
    with api.serve():
        document = collect(api, exec="running")
    assert "version" in document["nodes"]["gpu-3"]["driver"]["error"]


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


def test_what_a_credential_plugin_says_keeps_no_secret(tmp_path, monkeypatch):
    def load(*_args, **_options):
        raise OSError("exec: process returned 1. token: PLANTED-IN-STDERR")

    monkeypatch.setattr("kubernetes.config.load_kube_config", load)
    (tmp_path / "config").write_text("{}")
    with pytest.raises(DocumentError, match=r"process returned 1\. token: \*\*\*") as caught:
        client.connect({"kubeconfig": str(tmp_path / "config")}, environ={})
    assert "PLANTED" not in str(caught.value)


@pytest.mark.parametrize("variable", [None, "K8S_AUTH_KUBECONFIG", "KUBECONFIG"])
def test_missing_kubeconfig_is_one_sentence(tmp_path, variable):
    path = str(tmp_path / "none")
    params, environ = ({"kubeconfig": path}, {}) if variable is None else ({}, {variable: path})
    with pytest.raises(DocumentError, match=f"^there is no kubeconfig file {path}: give the path of one"):
        client.connect(params, environ)


def test_of_several_kubeconfigs_one_is_enough(tmp_path, api):
    path = tmp_path / "config"
    path.write_text(json.dumps(api.kubeconfig()))
    several = f"{tmp_path / 'none'}:{path}"
    with pytest.raises(DocumentError, match=r"none nor .*none2: "):
        client.connect({"kubeconfig": f"{tmp_path / 'none'}:{tmp_path / 'none2'}"}, environ={})
    assert client.connect({"kubeconfig": several}, environ={}).host == api.url


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
