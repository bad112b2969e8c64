# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects as evidence: sizes, pressure, the GPU that their labels describe, node-wide memory events.

Labels: NVIDIA GPU feature discovery (shared facts "kubernetes-gpu-facts", section 8.7), AMD's node labeller,
and the GPU labels of GKE and Karpenter where discovery isn't installed. They aren't updated when a GPU dies.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import node
from ..engine.accelerators import devices
from ..quantities import MIB, parse_quantity
from .events import events_about

# Node events that say something about memory, disk or a reboot (facts section 2); the rest is noise here.
_EVENT_REASONS = (
    "SystemOOM",
    "OOMKilling",
    "EvictionThresholdMet",
    "NodeHasMemoryPressure",
    "NodeHasDiskPressure",
    "NodeHasPIDPressure",
    "NodeNotReady",
    "Rebooted",
    "Shutdown",
)
_GPU_LABELS = ("nvidia.com/gpu.", "nvidia.com/mig", "nvidia.com/mps.", "nvidia.com/cuda.", "amd.com/gpu.")
_PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_MEMORY_LABELS_MIB = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")
_COUNT_LABELS = (
    "nvidia.com/gpu.count",
    "cloud.google.com/gke-accelerator-count",
    "karpenter.k8s.aws/instance-gpu-count",
)
_MIG_PROFILE = re.compile(r"nvidia\.com/mig-([0-9a-z.]+?)\.(count|memory|product)")
# GPU and host share one memory: DGX Spark (GB10), Jetson (Tegra: Xavier, Orin, Thor) and AMD's APUs.
# Grace Hopper and Grace Blackwell (GH200, GB200, GB300) have HBM of their own.
_UNIFIED = re.compile(
    r"GB10\b|Tegra|Jetson|Xavier|Orin|\bThor\b|MI300A|Strix|Radeon[-_ ]?8060S", re.IGNORECASE
)
_BAD_WHEN_FALSE = ("Ready",)


def node_evidence(raw_node, redactor, events=()):
    """One raw Node as ``documents.node``. events: raw events, of which those of this node are kept.

    Sizes under allocatable and capacity stay Kubernetes quantities; gpu.memory_bytes is bytes of one device.
    kubelet also says version, container_runtime, kernel and os_image.
    """
    status = raw_node.get("status") or {}
    labels = (raw_node.get("metadata") or {}).get("labels") or {}
    info = status.get("nodeInfo") or {}
    kept = [item for item in events_about(dict(raw_node, kind="Node"), events, redactor) if _matters(item)]
    return node(
        allocatable=_sizes(status.get("allocatable")),
        capacity=_sizes(status.get("capacity")),
        conditions=[_condition(item, redactor) for item in status.get("conditions") or []],
        events=kept,
        gpu=gpu_of_labels(labels, status.get("capacity") or {}),
        kubelet={
            "version": info.get("kubeletVersion"),
            "container_runtime": info.get("containerRuntimeVersion"),
            "kernel": info.get("kernelVersion"),
            "os_image": info.get("osImage"),
        },
        unschedulable=bool((raw_node.get("spec") or {}).get("unschedulable")),
        taints=[
            {key: item.get(key) for key in ("key", "value", "effect")}
            for item in (raw_node.get("spec") or {}).get("taints") or []
        ],
    )


def gpu_of_labels(labels, capacity):
    """``{product, count, memory_bytes, mig, unified, sharing, labels}`` from node labels and capacity.

    mig: None without MIG, else ``{strategy, profiles: {profile: {count, memory_bytes}}}``. unified: None when
    no product is known. sharing: none, time-slicing, mps or None.
    """
    product = _first(labels, _PRODUCT_LABELS)
    memory = _integer(_first(labels, _MEMORY_LABELS_MIB))
    if memory is not None:
        memory *= MIB
    else:
        memory = _amd_memory(labels.get("amd.com/gpu.vram"))
    count = _integer(_first(labels, _COUNT_LABELS))
    if count is None:
        count = devices(capacity)
    return {
        "product": product,
        "count": count,
        "memory_bytes": memory,
        "mig": _mig(labels),
        "unified": bool(_UNIFIED.search(product)) if product else None,
        "sharing": labels.get("nvidia.com/gpu.sharing-strategy"),
        "labels": {
            key: labels[key]
            for key in sorted(labels)
            if key in _PRODUCT_LABELS or key.startswith(_GPU_LABELS)
        },
    }


def _mig(labels):
    profiles: dict[str, dict[str, int | None]] = {}
    for key, value in labels.items():
        match = _MIG_PROFILE.fullmatch(key)
        if not match:
            continue
        profile = profiles.setdefault(match.group(1), {"count": None, "memory_bytes": None})
        number = _integer(value)
        if number is not None and match.group(2) == "count":
            profile["count"] = number
        elif number is not None and match.group(2) == "memory":
            profile["memory_bytes"] = number * MIB
    product = labels.get("nvidia.com/gpu.product") or ""
    single = re.search(r"-MIG-([0-9a-z.]+)$", product)
    if single and not profiles:
        memory = _integer(labels.get("nvidia.com/gpu.memory"))
        profiles[single.group(1)] = {
            "count": _integer(labels.get("nvidia.com/gpu.count")),
            "memory_bytes": None if memory is None else memory * MIB,
        }
    if not profiles:
        return None
    return {"strategy": labels.get("nvidia.com/mig.strategy"), "profiles": dict(sorted(profiles.items()))}


def _amd_memory(value):
    """AMD's labeller prints binary gigabytes as ``192G``."""
    match = re.fullmatch(r"(\d+)([GM])i?B?", value or "")
    return int(match.group(1)) * (MIB if match.group(2) == "M" else MIB << 10) if match else None


def _matters(item):
    return item["reason"] in _EVENT_REASONS or "oom" in (item["reason"] or "").lower()


def _condition(raw, redactor):
    """A condition; its message only when it isn't the normal state, for the normal ones say nothing."""
    bad = (raw.get("status") != "True") == (raw.get("type") in _BAD_WHEN_FALSE)
    return {
        "type": raw.get("type"),
        "status": raw.get("status"),
        "reason": raw.get("reason"),
        "message": redactor.text(raw.get("message") or "") if bad else None,
        "since": raw.get("lastTransitionTime"),
    }


def _sizes(quantities):
    return {key: str(value) for key, value in sorted((quantities or {}).items()) if _is_size(key)}


def _is_size(name):
    return (
        name in ("cpu", "memory", "ephemeral-storage", "pods") or "/" in name or name.startswith("hugepages-")
    )


def _first(mapping, names):
    return next((mapping[name] for name in names if mapping.get(name) not in (None, "")), None)


def _integer(value):
    number = parse_quantity(value)
    return None if number is None else int(number)
