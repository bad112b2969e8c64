# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's checks of host memory: a limit, large enough for the model, and a request near it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change, proof
from ..engine.versions import in_range
from ..quantities import GIB, quantity_bytes, show_bytes, to_gi
from ..sizing.host import BF16, PROCESS, REQUEST_OF_LIMIT, cpu_kv_bytes
from .checked import option

# Above this the pod is placed on a node that need not have what the limit promises.
FAR_RATIO = 1.5

_STEP_MEMORY = "Host memory: the limit against the table for the model's size"
_STEP_RATIO = "Host memory: the request about 30 % below the limit"


def demand(seen):
    """``(lower, upper, words)``: what the container needs by table, pools and processes, in bytes.

    None on the CPU backend where the model's size isn't known: its weights are most of it.
    """
    if seen.on_cpu and not (seen.parameters or seen.weights):
        return None
    lower, upper = seen.host["limit_bounds"]
    return lower, upper, seen.host["words"]


def recommended_limit(seen):
    """A quantity for the limit, as the budget has it; None where nothing tells the model's size."""
    return to_gi(seen.host["limit_bytes"]) if seen.parameters or seen.weights else None


def _limit_changes(seen, direction, value, why, proof_kind):
    request = to_gi(quantity_bytes(value) * REQUEST_OF_LIMIT)
    return [
        change(
            "k8s",
            "resources.limits.memory",
            direction,
            value,
            why,
            proof_kind,
            with_=["resources.requests.memory"],
        ),
        change(
            "k8s",
            "resources.requests.memory",
            "set",
            request,
            "the request reserves the memory on the node; about 30 % below the limit is the runbook's rule",
            "rule",
            with_=["resources.limits.memory"],
        ),
    ]


def memory_limit_missing(seen):
    if seen.memory_limit is not None or not seen.spec_known or seen.written_limit:
        return []
    need, value = demand(seen), recommended_limit(seen)
    why = "the kernel then kills this container at its limit, instead of whatever it finds on the node"
    if value:
        recommend = _limit_changes(seen, "add", value, f"{why}; {need[2]}", "rule")
    else:
        recommend = [
            change("k8s", "resources.limits.memory", "add", why=why + "; measure the peak of one start first")
        ]
    return [
        seen.finding(
            "memory_limit_missing",
            "risk",
            "certain",
            [seen.spec_proof(f"container {seen.container['name']}: resources.limits.memory is not set")],
            "Nothing limits this container's host memory. When it grows, the node runs out, and the kernel "
            "or the kubelet picks a victim that need not be this pod.",
            _STEP_MEMORY,
            recommend=recommend,
        )
    ]


def _measured(seen):
    """``(what can't be reclaimed, peak)`` in bytes of the newest attempt with counters; each may be None."""
    memory = seen.counters.get("memory") or {}
    anon, shmem = memory.get("anon"), memory.get("shmem")
    held = None if anon is None else anon + (shmem or 0)
    return held, memory.get("peak")


def memory_limit_low(seen):
    limit, need = seen.memory_limit, demand(seen)
    if limit is None:
        return []
    held, peak = _measured(seen)
    if held is not None and held > 0.9 * limit:
        return [_limit_nearly_used(seen, limit, held)]
    # A start that was seen to stay well under the limit beats the table (design, rule 3).
    if seen.serving_log is not None and peak is not None and peak < 0.9 * limit:
        return []
    if _kv_ignores_limit(seen):
        return [_kv_of_the_node(seen, limit)]
    if need is None or limit >= need[0]:
        return []
    lower, upper, words = need
    by_table = seen.host["by"] == "table"
    origin = " (the default of a LimitRange)" if seen.limit_by_range else ""
    text = f"container {seen.container['name']}: memory limit {show_bytes(limit)}{origin}; needed: {words}"
    value = recommended_limit(seen) or to_gi(upper)
    changes = _limit_changes(seen, "increase", value, words, "rule" if by_table else "arithmetic")
    changes.extend(
        change(
            "flag",
            option(item["name"]),
            "decrease",
            why=f"takes {show_bytes(item['bytes'])} of host memory",
            proof="arithmetic",
        )
        for item in seen.host["segments"]
        if item["name"] in ("cpu_offload_gb", "swap_space", "kv_offloading_size", "mm_processor_cache_gb")
    )
    if seen.on_cpu and cpu_kv_bytes(seen.told, seen.version):
        changes.append(
            change(
                "env",
                "VLLM_CPU_KVCACHE_SPACE",
                "decrease",
                why="on the CPU backend the KV cache is host memory",
            )
        )
    return [
        seen.finding(
            "memory_limit_low",
            "risk",
            "likely" if lower > 1.25 * limit else "possible",
            [seen.spec_proof(text)],
            f"The memory limit of {show_bytes(limit)} is below the {show_bytes(lower)} that this engine "
            "needs at least. It can start for a while on page cache that the kernel takes back, then it is "
            "OOMKilled.",
            _STEP_MEMORY,
            recommend=changes,
            rejected=[_NOT_GPU],
        )
    ]


def _kv_ignores_limit(seen):
    """The CPU backend of 0.13 to 0.23 sizes an unset KV cache by the node's memory, not by the cgroup's limit."""
    unset = not seen.env("VLLM_CPU_KVCACHE_SPACE") and seen.given("kv_cache_memory_bytes") is None
    return seen.on_cpu and unset and in_range(seen.version, (0, 13), (0, 23)) is True


def _kv_of_the_node(seen, limit):
    weights = int((seen.parameters or 0) * 1e9 * BF16)
    room = (limit - weights - PROCESS[1]) // GIB
    text = f"container {seen.container['name']}: memory limit {show_bytes(limit)}, VLLM_CPU_KVCACHE_SPACE not set"
    return seen.finding(
        "memory_limit_low",
        "risk",
        "possible",
        [seen.spec_proof(text)],
        "This version takes its KV cache from the memory that the node has, not from the container's "
        "limit. On a node much larger than the limit it is OOMKilled when the cache fills.",
        _STEP_MEMORY,
        recommend=[
            change(
                "env",
                "VLLM_CPU_KVCACHE_SPACE",
                "set",
                int(room) if seen.parameters and room > 0 else None,
                "GiB: the limit less the weights and the processes",
                "arithmetic" if seen.parameters else "rule",
            ),
            change(
                "action", "upgrade", "set", "0.24", "from there on the cgroup's limit is taken into account"
            ),
        ],
        would_settle=["the log's 'Using … GiB for KV cache' against the memory limit"],
    )


_NOT_GPU = change(
    "flag", "--gpu-memory-utilization", "decrease", why="it sizes GPU memory; the limit is about host memory"
)


def _limit_nearly_used(seen, limit, held):
    value = to_gi(max(held / 0.75, limit * 1.25))
    text = f"anonymous and shared memory {show_bytes(held)} of a limit of {show_bytes(limit)}"
    return seen.finding(
        "memory_limit_low",
        "risk",
        "certain",
        [proof("cgroup", seen.where, text)],
        f"{show_bytes(held)} of the {show_bytes(limit)} limit can't be reclaimed. Little more is needed, "
        "and the kernel kills a process of this container.",
        _STEP_MEMORY,
        recommend=_limit_changes(seen, "increase", value, "the measured use leaves less than 10 %", "log"),
        rejected=[_NOT_GPU],
    )


def advised_limit(seen):
    """The memory limit that memory_limit_low advises, as a quantity, or None: other checks then say the same."""
    for found in memory_limit_low(seen):
        for item in found["recommend"]:
            if item["name"] == "resources.limits.memory":
                return item["value"]
    return None


def memory_ratio(seen):
    limit, request = seen.memory_limit, seen.memory_request
    if not limit or not seen.spec_known or (request and limit <= FAR_RATIO * request):
        return []
    value = to_gi((quantity_bytes(advised_limit(seen)) or limit) * REQUEST_OF_LIMIT)
    asked = show_bytes(request) if request else "nothing"
    # A request that fits only under the limit that another check advises needs that one too.
    together = ["resources.limits.memory"] if quantity_bytes(value) > limit else []
    return [
        seen.finding(
            "memory_ratio",
            "risk",
            "certain",
            [
                seen.spec_proof(
                    f"container {seen.container['name']}: request {asked}, limit {show_bytes(limit)}"
                )
            ],
            f"The scheduler reserves {asked} for a container that may use {show_bytes(limit)}. A full node "
            "then kills or evicts it first, although it is below its own limit.",
            _STEP_RATIO,
            recommend=[
                change(
                    "k8s",
                    "resources.requests.memory",
                    "increase",
                    value,
                    "about 30 % below the limit, as 48Gi under 64Gi",
                    with_=together,
                )
            ],
        )
    ]
