# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes on around a pod: eviction, node pressure, refused admission, no room, a container that never
started, a lost node, a broken GPU. All of it from Kubernetes' own words (shared facts "kubernetes-gpu-facts"
1.5, 1.6, 2, 8.8, 9).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import change, proof
from ..quantities import quantity_bytes, to_gi
from . import gpu_health, placement
from .death_scene import spec_known, starved_resource
from .pod_findings import (
    attempt_proof,
    engine_container,
    event_proof,
    events_of,
    memory_limit_of,
    pod_finding,
    status_proof,
)
from .times import seconds


def surrounding_findings(pod, namespace=None, node=None):
    """The findings about ``pod``'s surroundings (evidence shapes), most telling first.

    namespace: the evidence's entry of the pod's namespace (quotas, limit_ranges); node: its node's. Both may
    be None.
    """
    found = []
    for ask in (
        _evictions,
        placement.admission,
        placement.unschedulable,
        placement.start_errors,
        _lost_node,
        _lost_container,
        gpu_health.gpu_faults,
        _node_pressure,
    ):
        found.extend(ask(pod, namespace or {}, node or {}))
    return found


# -- eviction ------------------------------------------------------------------------------------------------

_USING = re.compile(r"(?:Container|Pod) (?P<name>\S+) was using (?P<usage>\w+), request is (?P<request>\w+)")
_EMPTY_DIR = re.compile(r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"')
_DISK_CACHES = ("LMCACHE_MAX_LOCAL_DISK_SIZE", "LMCACHE_LOCAL_DISK_SIZE")


def _evictions(pod, namespace, node):
    proofs = []
    if pod.get("reason") == "Evicted":
        proofs.append(
            status_proof(pod, f"pod {pod.get('pod_phase') or ''}: Evicted. {pod.get('message') or ''}")
        )
    for condition in pod.get("conditions") or []:
        low = "low on resource" in (condition.get("message") or "")
        if (
            condition.get("type") == "DisruptionTarget"
            and condition.get("reason") == "TerminationByKubelet"
            and low
        ):
            proofs.append(status_proof(pod, f"DisruptionTarget: {condition['message']}"))
    proofs.extend(event_proof(pod, event) for event in events_of(pod, "Evicted"))
    if not proofs:
        return []
    resource = starved_resource(pod)
    text = " ".join(item["text"] for item in proofs)
    if resource == "memory":
        parts = _evicted_for_memory(pod, text)
    elif resource == "pids":
        parts = _evicted_for_pids()
    elif resource:
        parts = _evicted_for_storage(pod, text)
    else:
        parts = {
            "memory": "unknown",
            "explanation": "The kubelet evicted the pod, and the message that names the resource it was short of "
            "is gone. Only if it was memory is this an out-of-memory failure.",
            "would_settle": ["the Evicted event's message or the pod's status.message"],
        }
    explanation = parts.pop("explanation")
    return [pod_finding(pod, None, "eviction", "trigger", "certain", proofs, explanation, **parts)]


def _evicted_for_memory(pod, text):
    used = _USING.search(text)
    usage = quantity_bytes(used.group("usage")) if used else None
    request = used.group("request") if used else None
    words = "The node ran short of memory and the kubelet evicted the pod; it did not hit its own limit. "
    if used:
        words += f"{used.group('name')} used {used.group('usage')} with a request of {request}: "
    words += "pods that use more than they request go first."
    value = to_gi(usage * 1.1) if usage else memory_limit_of(pod)
    return {
        "memory": "node",
        "explanation": words,
        "recommend": [
            change(
                "k8s",
                "resources.requests.memory",
                "increase",
                value,
                "the scheduler then reserves what the pod really uses, and the kubelet looks for others "
                "first",
                "log" if usage else "rule",
            ),
            change(
                "action", "reserve_node_memory", "set", why="the kubelet then acts before the node is short"
            ),
            change("action", "move_pod", "set", why="another node may have the memory that this one lacks"),
        ],
        "rejected": [
            change(
                "flag",
                "--gpu-memory-utilization",
                "decrease",
                why="GPU memory is not what the node ran short of",
            ),
            change(
                "k8s",
                "resources.limits.memory",
                "remove",
                why="without a limit it takes the node down instead",
            ),
        ],
        "would_settle": ["which pods on the node used more memory than they request"],
    }


def _evicted_for_pids():
    return {
        "memory": "none",
        "explanation": "The node ran short of process ids, not of memory. Threads count as processes here.",
        "recommend": [change("action", "raise_pids_limit", "set", why="the pids limit is what was reached")],
        "rejected": [change("k8s", "resources.limits.memory", "increase", why="no memory ran out")],
    }


def _evicted_for_storage(pod, text):
    volume = _EMPTY_DIR.search(text)
    recommend = []
    container = engine_container(pod) or {}
    for item in container.get("env") or []:
        if item.get("name") in _DISK_CACHES:
            recommend.append(
                change(
                    "env",
                    item["name"],
                    "decrease",
                    why="this disk cache is per worker and fills the node's disk",
                )
            )
    if volume:
        recommend.append(
            change(
                "k8s",
                f"volumes.{volume.group('volume')}.sizeLimit",
                "increase",
                why=f"its content went over its limit of {volume.group('limit')}",
                proof="log",
            )
        )
    recommend.append(
        change(
            "action",
            "use_volume",
            "set",
            why="models and caches then no longer fill the container's own layer",
        )
    )
    recommend.append(
        change(
            "k8s",
            "resources.requests.ephemeral-storage",
            "increase",
            why="the scheduler then picks a node with that much disk",
        )
    )
    return {
        "memory": "none",
        "explanation": "The kubelet evicted the pod because disk space ran short, not memory. Downloads and disk "
        "caches in the container's own file system are the usual reason.",
        "recommend": recommend,
        "rejected": [
            change("k8s", "resources.limits.memory", "increase", why="disk ran short, not memory"),
            change("flag", "--gpu-memory-utilization", "decrease", why="disk ran short, not GPU memory"),
        ],
    }


# -- the node ------------------------------------------------------------------------------------------------


def _lost_node(pod, namespace, node):
    """The node stopped reporting. A container without a memory limit can do that to its node."""
    proofs = []
    if pod.get("reason") in ("NodeLost", "NodeNotReady"):
        proofs.append(status_proof(pod, f"pod: {pod['reason']}. {pod.get('message') or ''}"))
    for condition in node.get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") not in ("True", None):
            text = f"Ready {condition['status']}: {condition.get('reason')} {condition.get('message') or ''}"
            proofs.append(proof("node", f"Node/{pod.get('node')}", text.strip(), time=condition.get("since")))
    if not proofs:
        return []
    container = engine_container(pod)
    if memory_limit_of(pod) or container is None or not spec_known(pod, container):
        return [
            pod_finding(
                pod,
                None,
                "status_unknown",
                "trigger",
                "likely",
                proofs,
                "The node stopped reporting, so what the pod's status says may be old. Nothing shows that "
                "this pod used up the node's memory.",
                would_settle=["the node's console or kernel log around that time"],
            )
        ]
    proofs.append(proof("spec", f"Pod/{pod['name']}", "the engine's container has no memory limit"))
    return [
        pod_finding(
            pod,
            None,
            "node_oom",
            "trigger",
            "likely",
            proofs,
            "The node stopped reporting, and nothing limits the memory of this pod. Such a pod isn't "
            "OOM-killed: it takes the whole node down.",
            recommend=[
                change(
                    "k8s", "resources.limits.memory", "add", why="the kernel then kills the pod, not the node"
                ),
                change(
                    "action", "reserve_node_memory", "set", why="kubelet and system keep memory of their own"
                ),
            ],
            rejected=[
                change(
                    "k8s",
                    "resources.limits.memory",
                    "remove",
                    why="the missing limit is what took the node down",
                ),
                change("flag", "--gpu-memory-utilization", "increase", why="it doesn't give the node memory"),
            ],
            would_settle=["the node's console or kernel log around that time", "a node memory graph"],
        )
    ]


_PRESSURES = {
    "MemoryPressure": ("node", "memory"),
    "DiskPressure": ("none", "disk space"),
    "PIDPressure": ("none", "process ids"),
}
_PRESSURE_EVENTS = {
    "NodeHasMemoryPressure": "MemoryPressure",
    "NodeHasDiskPressure": "DiskPressure",
    "NodeHasPIDPressure": "PIDPressure",
    "SystemOOM": "MemoryPressure",
}


def _node_pressure(pod, namespace, node):
    pressed: dict[str, list] = {}
    where = f"Node/{pod.get('node')}"
    for condition in node.get("conditions") or []:
        if condition.get("type") in _PRESSURES and condition.get("status") == "True":
            text = f"{condition['type']}: {condition.get('message') or condition.get('reason') or 'True'}"
            shown = proof("node", where, text, time=condition.get("since"))
            pressed.setdefault(condition["type"], []).append(shown)
    lasting = set(pressed)
    for event in node.get("events") or []:
        if _before_attempts(pod, event):
            continue
        kind = _PRESSURE_EVENTS.get(event.get("reason"))
        if event.get("reason") == "EvictionThresholdMet":
            kind = "MemoryPressure" if "memory" in (event.get("message") or "").lower() else "DiskPressure"
        if kind:
            text = f"{event['reason']}: {event['message']}"
            pressed.setdefault(kind, []).append(proof("node", where, text, time=event.get("last_at")))
    return [_pressure(pod, kind, proofs, kind in lasting) for kind, proofs in sorted(pressed.items())]


def _before_attempts(pod, event):
    """Whether a node's event was over before the first run of the pod that is at hand: it can't have hurt it."""
    starts = [
        seconds(attempt.get("started_at"))
        for container in pod.get("containers") or []
        for attempt in container.get("attempts") or []
    ]
    known = [start for start in starts if start is not None]
    last = seconds(event.get("last_at"))
    return bool(known) and last is not None and last < min(known)


# The runbook's ratio of request to limit: from here on a request is near enough to the real use.
_NEAR = 0.75


def _request_is_near(pod):
    requests = ((engine_container(pod) or {}).get("resources") or {}).get("requests") or {}
    asked, limit = quantity_bytes(requests.get("memory")), quantity_bytes(memory_limit_of(pod))
    return bool(asked and limit and asked >= _NEAR * limit)


def _pressure(pod, kind, proofs, lasting):
    """lasting: the node is short now; otherwise only events say that it was."""
    memory, what = _PRESSURES[kind]
    larger_request = change(
        "k8s",
        "resources.requests.memory",
        "increase",
        why="a request near the real use keeps the node from being filled beyond its memory",
    )
    reserve = change(
        "action", "reserve_node_memory", "set", why="the kubelet then acts before the kernel must"
    )
    recommend = {
        "MemoryPressure": [reserve] if _request_is_near(pod) else [larger_request, reserve],
        "DiskPressure": [
            change("action", "use_volume", "set", why="models and caches leave the node's disk")
        ],
        "PIDPressure": [change("action", "raise_pids_limit", "set", why="process ids ran short on the node")],
    }[kind]
    return pod_finding(
        pod,
        None,
        "node_pressure",
        "contributing",
        "certain",
        proofs,
        f"The node {'is' if lasting else 'was'} short of {what}. "
        + (
            "Pods that use more memory than they request are evicted first, and the kernel may kill any of "
            "them."
            if kind == "MemoryPressure"
            else "Pods are evicted for it; their memory settings don't matter."
        ),
        memory=memory,
        recommend=recommend,
    )


def _lost_container(pod, namespace, node):
    found = []
    for container in pod.get("containers") or []:
        for attempt in container.get("attempts") or []:
            unknown = attempt.get("reason") == "ContainerStatusUnknown"
            lost = attempt.get("reason") == "Unknown" and attempt.get("exit_code") == 255
            if not (unknown or lost):
                continue
            made_up = "137" if unknown else "255"
            found.append(
                pod_finding(
                    pod,
                    container,
                    "status_unknown",
                    "contributing",
                    "certain",
                    [attempt_proof(pod, container, attempt)],
                    "The runtime lost the container (node restart, eviction), and the kubelet filled in "
                    f"exit code {made_up}. That number is no signal and no proof of an out of memory.",
                    attempt=attempt.get("index"),
                    rejected=[
                        change(
                            "k8s",
                            "resources.limits.memory",
                            "increase",
                            why="the 137 here doesn't stand for SIGKILL",
                        )
                    ]
                    if unknown
                    else [],
                    would_settle=[
                        "whether the node rebooted or the pod was evicted at that time (node events)"
                    ],
                )
            )
    return found
