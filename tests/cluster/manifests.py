# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects for the tests: engine containers (the stand-in of programs/engine), pods, their owners, and how one sees
that something has happened to them.
"""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable, Iterable

from testcluster.addresses import free_ports
from testcluster.image import BUSYBOX_IMAGE, vllm_image

LLAMA_8B = ("meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192", "--max-num-seqs", "1024")
LLAMA_8B_SETTINGS = ("--gpu-memory-utilization", "0.95")


# -- how one sees that it has happened ----------------------------------------------------------------------


def statuses(pod: dict, init: bool = False) -> list[dict]:
    key = "initContainerStatuses" if init else "containerStatuses"
    return pod.get("status", {}).get(key) or []


def terminations(pod: dict) -> list[dict]:
    """Every termination that the pod's status still tells of."""
    found = []
    for status in statuses(pod) + statuses(pod, init=True):
        found += [
            status[key]["terminated"] for key in ("state", "lastState") if status[key].get("terminated")
        ]
    return found


def ended(count: int = 1, **expected) -> Callable[[list[dict]], bool]:
    """``count`` pods have a termination with these fields (exitCode=..., reason=...)."""

    def look(pods: list[dict]) -> bool:
        matching = [
            pod
            for pod in pods
            if any(all(end.get(k) == v for k, v in expected.items()) for end in terminations(pod))
        ]
        return len(matching) >= count

    return look


def restarted(times: int) -> Callable[[list[dict]], bool]:
    return lambda pods: any(status["restartCount"] >= times for pod in pods for status in statuses(pod))


def pod_field(name: str, value: str) -> Callable[[list[dict]], bool]:
    """status.NAME of a pod is that."""
    return lambda pods: any(pod["status"].get(name) == value for pod in pods)


def condition(kind: str, reason: str, status: str = "True") -> Callable[[list[dict]], bool]:
    """A pod has a condition of that type and status, for that reason."""
    wanted = {"type": kind, "status": status, "reason": reason}.items()
    return lambda pods: any(
        wanted <= item.items() for pod in pods for item in pod["status"].get("conditions") or []
    )


def waiting(reason: str) -> Callable[[list[dict]], bool]:
    """A container waits for that reason."""
    return lambda pods: any(
        status["state"].get("waiting", {}).get("reason") == reason for pod in pods for status in statuses(pod)
    )


def runs_for(seconds: float) -> Callable[[list[dict]], bool]:
    """A container has been running that long."""

    def look(pods: list[dict]) -> bool:
        started = [
            s["state"]["running"]["startedAt"] for p in pods for s in statuses(p) if "running" in s["state"]
        ]
        return any(age(moment) >= seconds for moment in started)

    return look


def now_unready(pods: list[dict]) -> bool:
    """A pod was ready and no longer is: its condition has changed since its container started."""
    for item in pods:
        for condition in item["status"].get("conditions") or []:
            if condition["type"] == "Ready" and condition["status"] == "False":
                started = [s["state"].get("running", {}).get("startedAt") for s in statuses(item)]
                if all(started) and started and age(condition["lastTransitionTime"]) < age(max(started)) - 1:
                    return True
    return False


def age(moment: str) -> float:
    """Seconds since a time of the API (RFC 3339)."""
    then = datetime.datetime.fromisoformat(moment)
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def ready(count: int = 1) -> Callable[[list[dict]], bool]:
    return lambda pods: (
        sum(all(s["ready"] for s in statuses(pod)) and bool(statuses(pod)) for pod in pods) >= count
    )


# -- the objects --------------------------------------------------------------------------------------------


def engine(
    *arguments: str,
    deaths: str = "none",
    version: str = "0.19.1",
    memory: str | None = "256Mi",
    gpus: int = 1,
    cpu_limit: str | None = None,
    env: dict[str, str] | None = None,
    port: int | None = None,
    pod_name: bool = False,
    **fields,
) -> dict:
    """An engine container; ``deaths`` is the stand-in's STANDIN_DEATHS. pod_name: tell it the pod's name."""
    variables = {"STANDIN_GPU": "H100 80GB", "STANDIN_DEATHS": deaths, **(env or {})}
    limits = {"nvidia.com/gpu": str(gpus), **({"memory": memory} if memory else {})}
    limits |= {"cpu": cpu_limit} if cpu_limit else {}
    listening = port or free_ports(1)[0]
    name_of_pod = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    from_pod = [name_of_pod] if pod_name else []
    return {
        "name": "vllm",
        "image": vllm_image(version),
        "imagePullPolicy": "Never",
        "command": ["vllm", "serve"],
        "args": [*(arguments or (*LLAMA_8B, *LLAMA_8B_SETTINGS)), "--port", str(listening)],
        "env": [{"name": name, "value": value} for name, value in variables.items()] + from_pod,
        "resources": {
            "limits": limits,
            "requests": {"cpu": "10m", "memory": "32Mi", "nvidia.com/gpu": str(gpus)},
        },
        **fields,
    }


def busybox(name: str, script: str, memory: str | None = None, **fields) -> dict:
    resources = {"resources": {"limits": {"memory": memory}}} if memory else {}
    return {
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        **resources,
        **fields,
    }


def pod_spec(*containers: dict, **fields) -> dict:
    """On the node whose containers really run; a field given as None is left out. hostNetwork: there is no other."""
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 3,
        "nodeSelector": {"kubernetes.io/hostname": "gpu-node-1"},
        "containers": list(containers),
        **fields,
    }
    return {name: value for name, value in spec.items() if value is not None}


def pod(name: str, *containers: dict, labels: dict | None = None, **fields) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name, **(labels or {})}},
        "spec": pod_spec(*containers, **fields),
    }


def owner(kind: str, name: str, spec: dict, replicas: int = 1, **fields) -> dict:
    """A Deployment or StatefulSet whose pods have the label app=NAME."""
    labels = {"app": name}
    service = {"serviceName": name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **service,
            **fields,
        },
    }


def counted(container: dict) -> dict:
    """The engine with an attempt counter that outlives its restarts, for deaths that differ by attempt."""
    changed = copy.deepcopy(container)
    changed["env"].append({"name": "STANDIN_STATE", "value": "/state"})
    changed["volumeMounts"] = [*changed.get("volumeMounts", []), {"name": "state", "mountPath": "/state"}]
    return changed


STATE = [{"name": "state", "emptyDir": {}}]


def http_probe(port: int, **fields) -> dict:
    return {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 1, **fields}


def in_namespace(objects: Iterable[dict], namespace: str) -> list[dict]:
    """The objects with that namespace written into them."""
    placed = json.loads(json.dumps(list(objects)))
    for item in placed:
        item["metadata"]["namespace"] = namespace
    return placed
