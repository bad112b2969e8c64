# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/rbac-reader.yaml against a real API server: enough as it stands, and each missing right is named.

Real service accounts and real tokens; what they may do is decided by the API server's RBAC.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import fake_engines
import pytest
from fake_engines import DEATHS, Death, engine_spec
from harness import Audit, Kubectl, Runbook, wait_for
from in_process import Read, connect, read
from reader import READER, Granted, as_user, manifest, reader
from testcluster import fleet
from testcluster.cluster import Cluster
from testcluster.image import vllm_image

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.cluster import CollectionError

NAMESPACE = f"rights-{os.getpid()}"
NODE = f"fake-{NAMESPACE}"
NODE_READER, NODE_EVENTS = "vllm-oom-node-reader", "vllm-oom-node-events"
EXEC = "vllm-oom-exec"
USER = f"system:serviceaccount:{NAMESPACE}:{READER}"
# An owner of each kind that Kubernetes itself has, and what its pod dies of.
ENGINES: dict[str, tuple[str, str, Death]] = {
    "chat": ("apps/v1", "Deployment", DEATHS["weights"]),
    "big": ("apps/v1", "StatefulSet", DEATHS["host"]),
    "each": ("apps/v1", "DaemonSet", DEATHS["neighbour"]),
    "old": ("v1", "ReplicationController", DEATHS["blocks"]),
    "nightly": ("batch/v1", "CronJob", DEATHS["serving"]),
}
# (role, API group, resource), and the rights that are named when it is left out.
RIGHTS = {
    (READER, "", "pods/log"): {f"get pods/log in namespace {NAMESPACE}"},
    (READER, "", "events"): {f"list events in namespace {NAMESPACE}"},
    (READER, "", "resourcequotas"): {f"list resourcequotas in namespace {NAMESPACE}"},
    (READER, "", "limitranges"): {f"list limitranges in namespace {NAMESPACE}"},
    (READER, "", "replicationcontrollers"): {f"get replicationcontrollers in namespace {NAMESPACE}"},
    (READER, "apps", "deployments"): {f"get deployments.apps in namespace {NAMESPACE}"},
    (READER, "apps", "replicasets"): {
        f"get replicasets.apps in namespace {NAMESPACE}",
        f"list replicasets.apps in namespace {NAMESPACE}",
    },
    (READER, "apps", "statefulsets"): {f"get statefulsets.apps in namespace {NAMESPACE}"},
    (READER, "apps", "daemonsets"): {f"get daemonsets.apps in namespace {NAMESPACE}"},
    (READER, "apps", "controllerrevisions"): {f"list controllerrevisions.apps in namespace {NAMESPACE}"},
    (READER, "batch", "jobs"): {f"get jobs.batch in namespace {NAMESPACE}"},
    (READER, "batch", "cronjobs"): {f"get cronjobs.batch in namespace {NAMESPACE}"},
    (READER, "autoscaling", "horizontalpodautoscalers"): {
        f"list horizontalpodautoscalers.autoscaling in namespace {NAMESPACE}"
    },
    (NODE_READER, "", "nodes"): {"get nodes (a ClusterRole)"},
    (NODE_EVENTS, "", "events"): {"list events in namespace default"},
}
PODS = (READER, "", "pods")

pytestmark = pytest.mark.ours

OF_KUBERNETES = ("", "apps", "batch", "autoscaling")
# Their kinds are listed wherever they are served; those of other makers only where a pod has such an owner.
LISTED = ("keda.sh", "autoscaling.k8s.io")


# --- the scene


def _owner(name: str) -> dict:
    api_version, kind, death = ENGINES[name]
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": engine_spec(death, NODE)}
    spec: dict = {"template": template, "selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    elif kind == "ReplicationController":
        spec["selector"] = labels
    elif kind == "CronJob":
        template["spec"]["restartPolicy"] = "Never"
        job = {"spec": {"template": template, "backoffLimit": 0}}
        spec = {"schedule": "0 3 1 1 *", "suspend": True, "jobTemplate": job}
    return _object(api_version, kind, name, spec=spec)


def _object(api_version: str, kind: str, name: str, namespace: str = NAMESPACE, **fields) -> dict:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _healthy(name: str, limits: dict) -> dict:
    """An engine that runs; looked into by exec."""
    spec = engine_spec(DEATHS["weights"], NODE)
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", **limits}}
    return _object("v1", "Pod", name, spec=spec)


def _around() -> list[dict]:
    """What else of the namespace and the node a diagnosis looks at."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    load = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    scaling = {
        "scaleTargetRef": target,
        "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": load}],
    }
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        _object("autoscaling/v2", "HorizontalPodAutoscaler", "gpu", spec=scaling),
        _object("v1", "ResourceQuota", "gpu", spec={"hard": {"requests.nvidia.com/gpu": "16"}}),
        # A minimum sets no limit for who has none.
        _object(
            "v1", "LimitRange", "gpu", spec={"limits": [{"type": "Container", "min": {"memory": "1Mi"}}]}
        ),
        _object(
            "v1",
            "Event",
            NODE,
            namespace="default",
            involvedObject={"kind": "Node", "name": NODE, "uid": NODE},
            type="Warning",
            reason="SystemOOM",
            message="System OOM encountered, victim process: python3, pid: 4711",
            firstTimestamp=now,
            lastTimestamp=now,
            count=1,
        ),
    ]


@pytest.fixture(scope="module")
def scene(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A pod of every kind of owner, each dead of something else, and two that run."""
    healthy = [_healthy("running", {}), _healthy("limited", {"memory": "24Gi"})]
    kubectl("create", "namespace", NAMESPACE)
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s")
    kubectl.apply([fleet.node(NODE), *_around(), *(_owner(name) for name in ENGINES), *healthy])
    kubectl("create", "job", "nightly-1", "--from=cronjob/nightly", "-n", NAMESPACE)

    def placed() -> list[dict]:
        pods = kubectl.items("pods", "-n", NAMESPACE)
        phases = {_name(pod): pod["status"].get("phase") for pod in pods}
        # kwok lets a Job's pod succeed after it has let it run.
        expected = dict.fromkeys([*ENGINES, "running", "limited"], "Running") | {"nightly": "Succeeded"}
        return pods if phases == expected else []

    pods = wait_for("a pod of each owner", placed)
    logs = tmp_path_factory.mktemp("logs")
    starting = logs / "starting.log"
    now = datetime.datetime.now(datetime.UTC)
    fleet.write_log(starting, DEATHS["weights"].lines[:5], now, now)
    kubectl.apply(fleet.log(NAMESPACE, name, current=starting) for name in ("running", "limited"))
    dead = [(pod, ENGINES[_name(pod)][2]) for pod in pods if _name(pod) in ENGINES]
    fake_engines.kill(kubectl, dead, logs)
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "node", NODE)
    kubectl("delete", "event", NODE, "-n", "default")


def _name(pod: dict) -> str:
    return pod["metadata"]["name"].split("-")[0]


class ReaderGranted(Granted):
    """The manifest, with its namespace changed and nothing else, and what is left of it."""

    def __init__(self, kubectl: Kubectl):
        super().__init__(kubectl, NAMESPACE, manifest(NAMESPACE), READER)

    def exec(self, verbs: list[str]) -> None:
        """Bind the role that only exec needs, with those verbs; without any it allows nothing."""
        role = copy.deepcopy(next(item for item in self.objects if item["metadata"]["name"] == EXEC))
        role["rules"][0]["verbs"] = verbs
        role["rules"] = role["rules"] if verbs else []
        binding = copy.deepcopy(next(item for item in self.objects if item["kind"] == "RoleBinding"))
        binding["metadata"]["name"] = binding["roleRef"]["name"] = EXEC
        self.kubectl.apply([role, binding])
        for verb in ("get", "create"):
            self.wait_until(verb in verbs, verb, "pods/exec")


@pytest.fixture(scope="module")
def access(cluster: Cluster, kubectl: Kubectl, scene: None) -> Iterator[dict]:
    """A kubeconfig with the reader's token."""
    with reader(cluster, kubectl, NAMESPACE) as made:
        yield made


@pytest.fixture(scope="module")
def granted(kubectl: Kubectl, access: dict) -> ReaderGranted:
    whole = ReaderGranted(kubectl)
    whole.wait_until(True, "list", "pods")
    return whole


@pytest.fixture(scope="module")
def everything(access: dict, granted: ReaderGranted) -> Read:
    """What is seen with the whole manifest."""
    granted.without()
    return read(connect(access))


def _sentence(access: dict | Path, **query) -> str:
    """What a run ends with that could read nothing."""
    options = {name: query.pop(name) for name in list(query) if name.startswith("impersonate_")}
    with pytest.raises(CollectionError) as refused:
        read(connect(access, **options), **query)
    return str(refused.value)


# --- with the manifest as it stands


def test_the_manifest_is_enough(everything: Read) -> None:
    assert everything.evidence["unreadable"] == []
    assert everything.evidence["counts"] == {"pods_seen": 7, "engines": 7, "suspicious": 5}
    assert {name.split("-")[0]: cause for name, cause in everything.causes.items()} == {
        name: death.cause for name, (_version, _kind, death) in ENGINES.items()
    }
    owners = {pod["name"].split("-")[0]: pod["workload"] for pod in everything.evidence["pods"]}
    for name, (_version, kind, _death) in ENGINES.items():
        assert (owners[name]["kind"], owners[name]["name"]) == (kind, name)
        assert all(entry["read"] for entry in owners[name]["chain"]), owners[name]["chain"]
    assert [item["name"] for item in owners["chat"]["autoscalers"]] == ["gpu"]
    assert all(owners[name]["revisions"] for name in ("chat", "big", "each"))
    rules = everything.evidence["namespaces"][NAMESPACE]
    assert [item["name"] for item in rules["quotas"] + rules["limit_ranges"]] == ["gpu", "gpu"]
    node = everything.evidence["nodes"][NODE]
    assert [event["reason"] for event in node["events"]] == ["SystemOOM"]
    assert node["gpu"]["product"] == "NVIDIA-H100-80GB-HBM3"


def test_the_playbook_with_the_token(
    runbook: Runbook, access: dict, granted: ReaderGranted, tmp_path: Path
) -> None:
    granted.without()
    run = runbook(kubeconfig=_file(access, tmp_path))
    assert run.evidence["unreadable"] == []
    assert len(run.diagnosis["pods"]) == len(ENGINES)
    assert "could not be read" not in run.report.lower()


def _file(access: dict, folder: Path) -> Path:
    path = folder / "reader.conf"
    path.write_text(json.dumps(access))
    return path


def test_rules_for_what_is_not_installed_cost_nothing(
    access: dict, granted: ReaderGranted, everything: Read, audit: Audit
) -> None:
    """Nobody is asked about the kinds of other makers where no pod has such an owner."""
    others = {right for right in granted.rights(READER) if right[1] not in (*OF_KUBERNETES, *LISTED)}
    assert len(others) > 20
    asked = []
    for left_out in ((), others):
        granted.without(*left_out)
        mark = audit.mark()
        seen = read(connect(access))
        asked.append(sorted(entry["requestURI"] for entry in audit.since(mark)))
        assert seen.evidence["unreadable"] == []
        assert seen.causes == everything.causes
    assert asked[0] == asked[1]
    print(f"{len(asked[0])} requests for {len(ENGINES)} pods of as many kinds of owners")


# --- with a part of it


def test_every_right_of_kubernetes_itself_is_left_out_once(granted: ReaderGranted) -> None:
    tried = {right for right in granted.rights(READER, NODE_READER, NODE_EVENTS) if right[1] in OF_KUBERNETES}
    assert tried == {*RIGHTS, PODS}


@pytest.mark.parametrize("right", RIGHTS, ids="-".join)
def test_a_missing_right_is_named_and_the_rest_is_diagnosed(
    right: tuple[str, str, str], access: dict, granted: ReaderGranted, everything: Read
) -> None:
    granted.without(right)
    seen = read(connect(access))
    assert seen.missing_rights == RIGHTS[right]
    assert {entry["reason"] for entry in seen.evidence["unreadable"]} == {"forbidden"}
    for needed in RIGHTS[right]:
        assert f"needs {needed}" in seen.report
    assert list(seen.causes) == list(everything.causes)
    if right[2] == "pods/log":
        assert seen.causes["big-0"].startswith("host_oom")
    else:
        assert seen.causes == everything.causes


def test_pods_logs_and_events_are_enough_to_begin_with(
    access: dict, granted: ReaderGranted, everything: Read
) -> None:
    """As the README says."""
    kept = {PODS, (READER, "", "pods/log"), (READER, "", "events")}
    granted.without(*(granted.rights(READER, NODE_READER, NODE_EVENTS) - kept))
    seen = read(connect(access))
    assert seen.causes == everything.causes
    named = set().union(*(RIGHTS[right] for right in RIGHTS if right not in kept))
    # A Deployment is known by its ReplicaSet's name; what stands behind a Job that can't be read isn't.
    assert named - seen.missing_rights == {f"get cronjobs.batch in namespace {NAMESPACE}"}
    # Another test may have left the kinds of KEDA and VPA, which are then asked for too.
    autoscalers = {
        f"list scaledobjects.keda.sh in namespace {NAMESPACE}",
        f"list verticalpodautoscalers.autoscaling.k8s.io in namespace {NAMESPACE}",
    }
    assert seen.missing_rights <= named | autoscalers


def test_without_pods_nothing_can_be_read(
    runbook: Runbook, access: dict, granted: ReaderGranted, tmp_path: Path
) -> None:
    granted.without(PODS)
    refused = f"does not allow {USER} to read pods; needs: list pods in namespace {NAMESPACE}"
    assert _sentence(access).endswith(refused)
    assert _sentence(access, pod="big-0").endswith(refused.replace("needs: list", "needs: get"))
    run = runbook(kubeconfig=_file(access, tmp_path), rc=2)
    assert refused in " ".join(run.output.split())
    assert "Traceback" not in run.output


# --- as somebody else


def test_other_namespaces_are_refused_by_name(access: dict, granted: ReaderGranted) -> None:
    granted.without()
    assert _sentence(access, namespace="default").endswith("needs: list pods in namespace default")
    assert _sentence(access, all_namespaces=True).endswith("needs: list pods in all namespaces")


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ({"token": "made-up"}, "refuses the credentials (401 Unauthorized); renew the token"),
        ({}, "was given neither a token nor a client certificate"),
    ],
    ids=["invalid", "none"],
)
def test_a_token_that_says_nothing(cluster: Cluster, user: dict, sentence: str) -> None:
    assert sentence in _sentence(as_user(cluster, user, NAMESPACE))


def test_an_administrator_acts_as_the_reader(
    cluster: Cluster, granted: ReaderGranted, everything: Read
) -> None:
    granted.without((READER, "", "resourcequotas"))
    seen = read(connect(cluster.kubeconfig, impersonate_user=USER), namespace=NAMESPACE)
    assert seen.missing_rights == {f"list resourcequotas in namespace {NAMESPACE}"}
    assert seen.causes == everything.causes


def test_the_reader_acts_as_nobody_else(access: dict, granted: ReaderGranted) -> None:
    said = _sentence(access, impersonate_user="admin")
    assert said.endswith(f"does not allow {USER} to act as somebody else; needs: impersonate users")


# --- inside containers

UNKNOWN_USE = "not entered: how much of its memory limit it uses is unknown"


@pytest.mark.parametrize(
    ("pod", "verbs", "reason", "needs"),
    [
        ("running", [], "forbidden", f"create and get pods/exec in namespace {NAMESPACE}"),
        ("running", ["create"], "forbidden", f"create and get pods/exec in namespace {NAMESPACE}"),
        (
            "limited",
            [],
            rf"{UNKNOWN_USE} \(PodMetrics: forbidden\)",
            f"get pods.metrics.k8s.io in namespace {NAMESPACE}",
        ),
        # Whether the cluster has a metrics-server or not, nobody knows of a fake pod.
        (
            "limited",
            ["get", "create"],
            rf"{UNKNOWN_USE} \((the cluster serves no|metrics-server has no) PodMetrics.*\)",
            "metrics-server|a second run, a minute after the pod's start",
        ),
    ],
    ids=["exec-none", "exec-create", "metrics-none", "metrics-get"],
)
def test_exec_needs_its_own_rights(
    pod: str, verbs: list[str], reason: str, needs: str, access: dict, granted: ReaderGranted
) -> None:
    granted.without()
    granted.exec(verbs)
    seen = read(connect(access), pod=pod, exec="running")
    (entry,) = seen.evidence["unreadable"]
    assert (entry["source"], entry["object"]) == ("exec", f"{NAMESPACE}/{pod}/vllm")
    assert re.fullmatch(reason, entry["reason"])
    assert re.fullmatch(needs, entry["needs"])


@pytest.mark.kubelet
def test_exec_with_its_rights(kubectl: Kubectl, access: dict, granted: ReaderGranted) -> None:
    container = {
        "name": "vllm",
        "image": vllm_image("0.11.0"),
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
    }
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    kubectl.apply([_object("v1", "Pod", "real", spec={**spec, "nodeName": "gpu-node-1"})])
    kubectl("wait", "--for=condition=Ready", "pod/real", "-n", NAMESPACE, "--timeout=60s")
    granted.without()
    granted.exec(["get", "create"])
    seen = read(connect(access), pod="real", exec="running")
    kubectl("delete", "pod", "real", "-n", NAMESPACE, "--now")
    (running,) = seen.evidence["pods"][0]["containers"][0]["attempts"]
    assert running["cgroup"]["memory"]["usage"] > 0
    assert seen.evidence["unreadable"] == []
