# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU faults that the node reports: Xids, sick GPUs, devices out of service (shared facts "kubernetes-gpu-facts" 8.8, 9).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import change, proof
from ..quantities import parse_quantity
from . import gpu_state, xids
from .placement import GPU_RESOURCE
from .pod_findings import action, pod_finding, status_proof
from .times import seconds

_RESET, _DRAIN = "reset_gpu", "move_pod"
_DEVICE_RESOURCE = re.compile(rf"(?:{GPU_RESOURCE})$")
# A pod's own history begins at its first known start; clocks of node and API server differ a little.
_SLACK = 60.0


def _begun(pod):
    """When the pod's first known run started, in seconds, or None."""
    starts = [
        seconds(attempt.get("started_at"))
        for container in pod.get("containers") or []
        for attempt in container.get("attempts") or []
    ]
    known = [moment for moment in starts if moment is not None]
    return min(known) if known else seconds(pod.get("created_at"))


def _gpus_of(pod, node):
    """Addresses of the GPUs that the pod's processes hold memory on; empty where none is known."""
    mine = {
        item.get("gpu")
        for item in node.get("processes") or []
        if pod.get("uid") and item.get("pod_uid") == pod["uid"]
    }
    found = {xids.bus_address(gpu.get("bus_id")) for gpu in node.get("gpus") or [] if gpu.get("uuid") in mine}
    return found - {None}


def _xids(pod, node):
    """The Xids that speak of a fault of the GPU and can concern this pod: on its GPUs where they are known, and not from before it."""
    begun, own = _begun(pod), _gpus_of(pod, node)
    for item in node.get("xids") or []:
        found = xids.seen(item)
        if found is None or found.xid.confidence is None:
            continue
        elsewhere = own and found.bus and found.bus not in own
        moment = seconds(found.time)
        before = moment is not None and begun is not None and moment < begun - _SLACK
        if not elsewhere and not (before and not found.reset):
            yield found


def _troubles(pod, node):
    """``(gpu, Trouble)`` of the hardware faults of the pod's GPUs; of all where its own aren't known."""
    own = _gpus_of(pod, node)
    for gpu in node.get("gpus") or []:
        if not own or xids.bus_address(gpu.get("bus_id")) in own:
            yield from ((gpu, trouble) for trouble in gpu_state.troubles(gpu) if trouble.confidence)


def _cure(actions):
    """What to do about faults that ask for ``actions``: a contained error ends with its program, all others need healthy hardware."""
    if actions == {"restart_pod"}:
        return [action("restart_pod", "only the program that used the broken memory had to end")]
    cure = [action(_DRAIN, "the pod then runs on healthy hardware")]
    if "check_memory_view" in actions:
        cure.append(action("check_memory_view", "the GPU has less memory to give than its product has"))
    if actions - {"restart_pod", "check_memory_view"}:
        cure.append(action(_RESET, "drain the node first; a fault that comes back is a case for the vendor"))
    return cure


def gpu_faults(pod, namespace, node):
    proofs, words, confidence = [], [], "possible"
    order = ("possible", "likely", "certain")
    where = f"Node/{pod.get('node')}"
    actions = set()
    for item in _xids(pod, node):
        proofs.append(proof("kernel", where, item.text, time=item.time))
        words.append(xids.words(item))
        confidence = max(confidence, item.xid.confidence, key=order.index)
        actions.add(item.xid.action)
    for gpu, trouble in _troubles(pod, node):
        text = f"{gpu_state.label(gpu)}: {trouble.text}"
        proofs.append(proof("node", where, text))
        words.append(text)
        confidence = max(confidence, trouble.confidence, key=order.index)
        actions.add(_RESET)
    for name, capacity in (node.get("capacity") or {}).items():
        total, usable = parse_quantity(capacity), parse_quantity((node.get("allocatable") or {}).get(name))
        if _DEVICE_RESOURCE.match(name) and total is not None and usable is not None and usable < total:
            proofs.append(proof("node", where, f"{name}: capacity {capacity}, allocatable {usable}"))
            words.append(f"{int(total - usable)} of {int(total)} {name} out of service")
            actions.add(_RESET)
            confidence = max(confidence, "likely", key=order.index)
    for container in pod.get("containers") or []:
        for device in container.get("device_health") or []:
            proofs.append(
                status_proof(
                    pod,
                    f"container {container['name']}: {device['resource']} {device['id']} {device['health']}",
                )
            )
            words.append(f"device {device['id']} is {device['health']}")
            sure = "certain" if device["health"] == "Unhealthy" else "possible"
            actions.add(_RESET)
            confidence = max(confidence, sure, key=order.index)
    if not proofs:
        return []
    return [
        pod_finding(
            pod,
            None,
            "gpu_hardware_fault",
            "contributing",
            confidence,
            proofs,
            f"The GPU or its node reports a fault: {'; '.join(dict.fromkeys(words))}. That is hardware, "
            "never an out of memory; a memory setting doesn't help.",
            recommend=_cure(actions),
            rejected=[
                change("flag", "--gpu-memory-utilization", "decrease", why="a broken GPU isn't a full one")
            ],
            check=[
                f"kubectl get node {pod.get('node') or 'NODE'} -o jsonpath='{{.status.capacity}} "
                f"{{.status.allocatable}}'"
            ],
        )
    ]
