# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU faults that the node reports: Xids, devices out of service (shared facts "kubernetes-gpu-facts" 8.8, 9).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..documents import change, proof
from ..quantities import parse_quantity
from .placement import GPU_RESOURCE
from .pod_findings import action, pod_finding, status_proof

Xid = namedtuple("Xid", "name confidence action")
_RESET, _DRAIN = "reset_gpu", "move_pod"
# XIDs that speak of the GPU and not of the program (k8s 9). Left out on purpose: 13, 31, 32, 43, 45, 68, 69,
# 109, 137 (the program's fault or a killed process), 63, 92, 121, 157, 160 (handled), 61, 154, 155 (say
# nothing by themselves).
XIDS = {
    46: Xid("GPU timeout", "likely", _RESET),
    48: Xid("double bit ECC error", "certain", _RESET),
    62: Xid("internal micro-controller halt", "likely", _RESET),
    64: Xid("row remapping failed", "certain", _RESET),
    74: Xid("NVLink error", "likely", _RESET),
    79: Xid("GPU has fallen off the bus", "certain", _RESET),
    94: Xid("contained memory error", "certain", _RESET),
    95: Xid("uncontained memory error", "certain", _RESET),
    110: Xid("security fault", "likely", _RESET),
    119: Xid("GSP RPC timeout", "likely", _RESET),
    120: Xid("GSP error", "likely", _RESET),
    140: Xid("unrecovered ECC error", "certain", _RESET),
    143: Xid("GPU initialisation error", "likely", _RESET),
    **{code: Xid("NVLink fault", "possible", _RESET) for code in range(144, 151)},
    156: Xid("resource retirement", "likely", _RESET),
    158: Xid("fatal GPU timeout", "certain", _RESET),
    168: Xid("less GPU memory usable than before", "likely", _RESET),
    171: Xid("uncorrectable DRAM error", "certain", _RESET),
    172: Xid("uncorrectable SRAM error", "certain", _RESET),
}
_XID_LINE = re.compile(r"Xid \((?P<pci>[^)]*)\): (?P<code>\d+)")
_DEVICE_RESOURCE = re.compile(rf"(?:{GPU_RESOURCE})$")


def _xid(item):
    """(code, text, time) of one entry of a node's ``xids``: a kernel line or a dict with code and text."""
    entry = {"text": item} if isinstance(item, str) else item
    text = entry.get("text") or ""
    match = _XID_LINE.search(text)
    code = entry.get("code") if entry.get("code") is not None else (match and int(match.group("code")))
    return code, text or f"Xid {code}", entry.get("time")


def gpu_faults(pod, namespace, node):
    proofs, words, confidence = [], [], "possible"
    order = ("possible", "likely", "certain")
    where = f"Node/{pod.get('node')}"
    for item in node.get("xids") or []:
        code, text, time = _xid(item)
        known = XIDS.get(code)
        if known:
            proofs.append(proof("kernel", where, text, time=time))
            words.append(f"Xid {code} ({known.name})")
            confidence = max(confidence, known.confidence, key=order.index)
    for name, capacity in (node.get("capacity") or {}).items():
        total, usable = parse_quantity(capacity), parse_quantity((node.get("allocatable") or {}).get(name))
        if _DEVICE_RESOURCE.match(name) and total is not None and usable is not None and usable < total:
            proofs.append(proof("node", where, f"{name}: capacity {capacity}, allocatable {usable}"))
            words.append(f"{int(total - usable)} of {int(total)} {name} out of service")
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
            recommend=[
                action(_DRAIN, "the pod then runs on healthy hardware"),
                action(_RESET, "drain the node first; a fault that comes back is a case for the vendor"),
            ],
            rejected=[
                change("flag", "--gpu-memory-utilization", "decrease", why="a broken GPU isn't a full one")
            ],
            check=[
                f"kubectl get node {pod.get('node') or 'NODE'} -o jsonpath='{{.status.capacity}} "
                f"{{.status.allocatable}}'"
            ],
        )
    ]
