# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change takes: from the user, in restarts and downtime, and in GPUs while it is rolled out.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math

from ..engine.accelerators import devices
from ..quantities import GIB, parse_quantity
from ..sizing.fit import COSTS

# Flag, variable, field or action -> what a change of it takes where no budget says it; the rest takes nothing.
_TAKEN = {
    "--max-num-batched-tokens": "speed",
    "--enforce-eager": "speed",
    "--cudagraph-capture-sizes": "speed",
    "--cuda-graph-sizes": "speed",
    "--max-seq-len-to-capture": "speed",
    "--cpu-offload-gb": "speed",
    "VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY": "speed",
    "--no-enable-prefix-caching": "speed",
    "--speculative-config": "speed",
    "--disable-custom-all-reduce": "speed",
    "--mm-processor-cache-gb": "speed",
    "--kv-offloading-size": "speed",
    "LMCACHE_MAX_LOCAL_CPU_SIZE": "speed",
    "CUDA_LAUNCH_BLOCKING": "speed",
    "VLLM_TRACE_FUNCTION": "speed",
    "NCCL_NVLS_ENABLE": "speed",
    "NCCL_CUMEM_ENABLE": "speed",
    "NCCL_P2P_DISABLE": "speed",
    "NCCL_P2P_LEVEL": "speed",
    "NCCL_SHM_DISABLE": "speed",
    "NCCL_IB_DISABLE": "speed",
    "NCCL_BUFFSIZE": "speed",
    "NCCL_MAX_CTAS": "speed",
    "NCCL_MAX_NCHANNELS": "speed",
    "--max-num-seqs": "concurrency",
    "--kv-cache-memory-bytes": "concurrency",
    "--num-gpu-blocks-override": "concurrency",
    "--max-model-len": "context",
    "--kv-cache-dtype": "precision",
    "--quantization": "precision",
    "smaller_quantization": "precision",
    "smaller_model": "quality",
    "--limit-mm-per-prompt": "features",
    "--language-model-only": "features",
    "--max-loras": "features",
    "--enable-sleep-mode": "features",
    "--tensor-parallel-size": "hardware",
    "--pipeline-parallel-size": "hardware",
    "larger_gpu": "hardware",
}
# Flags that give the engine more ranks, each of which needs a GPU -> the setting.
RANKS = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
}
# The other way round they give: more of these, less or none of those.
_GIVE_MORE = frozenset(
    (
        *(
            "--max-num-batched-tokens",
            "--max-num-seqs",
            "--kv-cache-memory-bytes",
            "--num-gpu-blocks-override",
        ),
        *("--max-model-len", "--limit-mm-per-prompt", "--max-loras", "--max-seq-len-to-capture"),
        *("--mm-processor-cache-gb", "--kv-offloading-size", "LMCACHE_MAX_LOCAL_CPU_SIZE"),
    )
)
_GIVE_LESS = frozenset(
    (
        *("--enforce-eager", "--cudagraph-capture-sizes", "--cuda-graph-sizes", "--cpu-offload-gb"),
        *("--no-enable-prefix-caching", "--language-model-only", "--tensor-parallel-size"),
        "--pipeline-parallel-size",
    )
)
# Without these NCCL, CUDA and vLLM are as fast as they can be.
_SLOW_WHEN_SET = frozenset(
    (
        *("--disable-custom-all-reduce", "CUDA_LAUNCH_BLOCKING", "VLLM_TRACE_FUNCTION"),
        *(name for name in _TAKEN if name.startswith("NCCL_")),
    )
)
_IN_WORDS = {
    "nothing": "nothing",
    "speed": "speed",
    "concurrency": "how many requests run at once",
    "context": "how long a request may be",
    "precision": "precision of the answers",
    "quality": "quality of the answers",
    "features": "a feature",
    "hardware": "nothing, but needs more or larger GPUs",
}
# Bytes per second of PCIe 5.0 with 16 lanes.
_PCIE = 64e9
# A slice of a GPU is a resource of its own.
SLICE = "nvidia.com/mig-"
# Accelerator -> the resource of its device plugin, where there is one name for it.
_PLUGINS = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "tpu": "google.com/tpu",
    "hpu": "habana.ai/gaudi",
}
# Resources with the model in their name, of which each is a device.
_COUNTED = ("gpu.intel.com/", "huawei.com/Ascend")
# Kinds that delete a pod before they make the next one.
_NO_SURGE = ("StatefulSet", "DaemonSet", "ReplicaSet", "Pod")
# Controllers whose ``readyReplicas`` or ``numberReady`` counts pods that are being deleted, too; a ReplicaSet's, and so a
# Deployment's, doesn't (Kubernetes, pkg/controller: statefulset, daemon; replicaset filters its active pods).
_COUNT_LEAVING = ("StatefulSet", "DaemonSet")
_ONE = "the only replica gives its GPUs back before the new one starts"
_SEVERAL = "one replica after the other, none before its GPUs are free"
# Rolling updates of a Deployment without a strategy of its own.
_DEFAULT_SURGE = "25%"


def taken(item):
    """What a CHANGE takes from the user, of ``COSTS``."""
    if item.get("costs") in COSTS:
        return item["costs"]
    if item["name"] == "--gpu-memory-utilization" and item["direction"] == "decrease":
        return "concurrency"
    return "nothing" if gives(item) else _TAKEN.get(item["name"], "nothing")


def gives(item):
    """Whether a CHANGE gives what others of its name take."""
    if item["direction"] == "remove" and item["name"] in _SLOW_WHEN_SET:
        return True
    if item["direction"] in ("decrease", "remove"):
        return item["name"] in _GIVE_LESS
    return item["direction"] == "increase" and item["name"] in _GIVE_MORE


def rank(costs):
    return COSTS.index(costs)


def in_words(costs):
    return _IN_WORDS[costs]


def over_the_bus(gib):
    """What offloaded weights, ``gib`` GiB of each GPU's, take in words."""
    seconds = gib * GIB / _PCIE
    return f"{gib:g} GiB cross PCIe in each step, {seconds:.2g} s at least for each token (5.0 x16: 64 GB/s; 4.0 has half)"


def gpu_resource(container):
    """The extended resource that the container has its GPUs by; where it has none, that of its accelerator's device plugin, or
    None where it isn't known."""
    found = next((name for name in sorted(_limits(container)) if is_gpu(name)), None)
    accelerator = ((container or {}).get("engine") or {}).get("accelerator")
    return found or _PLUGINS.get(accelerator or "cuda")


def gpus_of(container):
    """GPUs (or slices of them) that the container asks for."""
    return int(parse_quantity(_limits(container).get(gpu_resource(container))) or 0)


def _limits(container):
    return ((container or {}).get("resources") or {}).get("limits") or {}


def is_gpu(resource):
    """Whether a quantity of the resource is a number of accelerators or of their slices."""
    return devices({resource: "1"}, parts=True) is not None or resource.startswith(_COUNTED)


def restarts(pods):
    """``{pods, serving}`` of one edited object: how many pods its change starts anew, how many of them are ready.

    pods: the evidence's pods of it. A pod that is being deleted is neither: it may answer until its grace period ends, and ends
    without any change. The controller's own counts win where they are larger: not every replica's pod need be in the evidence.
    """
    staying = [pod for pod in pods if not pod.get("deleted_at")]
    leaving = sum(_is_ready(pod) for pod in pods if pod.get("deleted_at"))
    workloads = [pod.get("workload") or {} for pod in pods]
    ready = sum(map(_is_ready, staying))
    return {
        # A lone pod that is being deleted has its template's next one.
        "pods": max([len(staying) or 1] + [_count(item, "desired") for item in workloads]),
        "serving": max([ready] + [_staying_ready(item, leaving) for item in workloads]),
    }


def _count(workload, name):
    return (workload.get("replicas") or {}).get(name) or 0


def _staying_ready(workload, leaving):
    """The controller's count of ready pods, without the ``leaving`` ones where it counts those in."""
    return _count(workload, "ready") - (leaving if workload.get("kind") in _COUNT_LEAVING else 0)


def _is_ready(pod):
    return any(
        item.get("type") == "Ready" and item.get("status") == "True" for item in pod.get("conditions") or []
    )


def rollout(kind, strategy, restarted, gpus):
    """``(strategy change or None, extra GPUs)`` of a rollout; extra GPUs are None where the kind's rollout isn't known.

    kind: of the edited object; strategy: the evidence's; restarted: see ``restarts``; gpus: of one pod. A spare GPU is
    never taken for granted: other namespaces' pods aren't seen. So a Deployment doesn't surge.
    """
    if not gpus or kind in _NO_SURGE:
        return None, 0
    if kind == "LeaderWorkerSet" and str((strategy or {}).get("max_surge") or 0) in ("0", "0%"):
        return None, 0
    if kind != "Deployment":
        return None, None
    now, count = strategy or {}, restarted["pods"]
    recreates = now.get("type") == "Recreate"
    surge = _surge(now.get("max_surge"), count)
    wanted = rolling(count)
    if recreates if count == 1 else not recreates and surge == 0:
        return None, 0
    why = _ONE if count == 1 else _SEVERAL
    if not recreates:
        why += f"; as it is, the rollout would wait for {surge * gpus} spare GPU{'s' if surge * gpus > 1 else ''}"
    return {"before": shown_strategy(strategy), "after": wanted, "why": why}, 0


def rolling(replicas):
    """The strategy of a Deployment that needs no spare GPU: Recreate for one replica only."""
    if replicas == 1:
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1}


def shown_strategy(strategy):
    """The part of the evidence's strategy that ``rolling`` sets, or None."""
    if not strategy:
        return None
    return {name: strategy.get(name) for name in ("type", "max_surge", "max_unavailable")}


def _surge(value, count):
    text = str(_DEFAULT_SURGE if value is None else value)
    number = parse_quantity(text.rstrip("%"))
    if number is None:
        return 1
    return math.ceil(number * count / 100) if text.endswith("%") else int(number)


def downtime(restarted, probes):
    """``{seconds, at_most, sentence}``: how long nothing serves. at_most: what the startup probe allows one start, or None."""
    at_most = _longest_start((probes or {}).get("startup") or {})
    if not restarted["serving"]:
        return {"seconds": 0.0, "at_most": 0.0, "sentence": "none: no replica serves now"}
    if restarted["serving"] > 1:
        share = f"1 of {restarted['serving']}"
        return {
            "seconds": 0.0,
            "at_most": 0.0,
            "sentence": f"none: {share} serving replicas at a time is started anew",
        }
    limit = "" if at_most is None else f", at most {at_most:g} s by its startup probe"
    return {"seconds": None, "at_most": at_most, "sentence": f"one start of the engine{limit}"}


def _longest_start(probe):
    threshold, period = probe.get("failure_threshold"), probe.get("period_seconds")
    if threshold is None or period is None:
        return None
    return float(threshold * period + (probe.get("initial_delay_seconds") or 0))
