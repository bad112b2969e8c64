# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice on what lies between the ranks: NCCL and /dev/shm."""

from __future__ import annotations

import re

from ..evidence.nccl_log import nccl_facts
from ..quantities import GIB, MIB, show_bytes, to_gi
from .advice_parts import (
    MEMORY_LIMIT,
    MODEL_LEN,
    NOT_LIMIT,
    NOT_LIMIT_GPU,
    NOT_UTILIZATION,
    STEP_NCCL,
    UTILIZATION,
    Advice,
    action,
    env_change,
    flag_change,
    groups_of,
    k8s_change,
    lower_utilization,
    number_of,
)
from .commands import in_cluster
from .nccl_memory import ERROR, WITHOUT_NVLS, estimate, known, saving_changes
from .nccl_seen import NcclSeen

# -- NCCL -------------------------------------------------------------------------------------------------------------


def nccl_gpu_oom(facts, judged):
    sized = (
        judged.verdict.phase in ("graph_capture", "warmup", "serving")
        or facts.number("kv_tokens") is not None
    )
    lower = lower_utilization(
        facts,
        "NCCL takes its buffers outside the budget: a smaller KV cache leaves room for them"
        if sized
        else "it helps once the KV cache has been sized; before that the card is full for another reason",
    )
    reported = nccl_facts(facts.lines)
    seen = NcclSeen(facts.pod, facts.container, facts.node)
    about = (seen.layout, seen.variables, reported["version"], reported)
    savings, useless = saving_changes(*about, wanted=reported["wanted"]["gpu"])
    holder = action(
        "free_gpu", "a stale process on one of the GPUs is the usual reason before the KV cache exists"
    )
    recommend = [lower, *savings[:1], holder] if sized else [holder, *savings[:1], lower]
    recommend += [
        *savings[1:],
        action(
            "collect_nccl_debug",
            "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,ALLOC,NVLS names the buffer that failed",
        ),
    ]
    return Advice(
        "NCCL could not get GPU memory for its own communication buffers, which lie outside PyTorch's accounting and outside "
        f"the utilization.{_buffers(about)}",
        STEP_NCCL,
        recommend,
        [
            *useless,
            flag_change(UTILIZATION, "increase", "NCCL needs memory outside the budget"),
            k8s_change(
                "volumes.shm.sizeLimit", "increase", "the failing call allocates GPU memory, not /dev/shm"
            ),
            flag_change(MODEL_LEN, "decrease", "the KV cache takes what the utilization gives; lower that"),
            NOT_LIMIT_GPU,
        ],
        [] if sized else ["nvidia-smi on the node before the start: is every GPU of the pod empty?"],
    )


def _buffers(about):
    """What the buffers take, in a sentence, where it is known what NCCL uses."""
    if not known(about[0], about[3]):
        return ""
    found = estimate(*about)
    if not found["bytes"]:
        return ""
    parts = ", ".join(f"{item['name']} {show_bytes(item['bytes'])}" for item in found["segments"])
    return f" They take about {show_bytes(found['bytes'])} of each GPU ({parts}), right within a factor of {ERROR}."


_NVLS = re.compile(r"nvls|NVLS|NVLink SHARP")


def _interfaces(signature):
    """Which interface the ranks use, when it is what they could not find or reach."""
    if signature != "nccl_no_interface":
        return []
    why = "the interface that the pods can reach each other on"
    return [
        env_change("GLOO_SOCKET_IFNAME", "set", why, "eth0"),
        env_change("NCCL_SOCKET_IFNAME", "set", why, "eth0"),
    ]


def nccl_not_memory(facts, judged):
    signature = judged.match.signature.id if judged.match else None
    rejected = [
        NOT_UTILIZATION,
        NOT_LIMIT,
        k8s_change("volumes.shm.sizeLimit", "increase", "no shared-memory segment failed"),
    ]
    seen = NcclSeen(facts.pod, facts.container, facts.node)
    # NCCL also says that there is none.
    if signature == "nvls_bind_failed" or (facts.mentions(_NVLS) and seen.generation != WITHOUT_NVLS):
        return Advice(
            "NVLink SHARP could not bind its multicast memory, for a reason of the fabric's state, not for want of memory.",
            STEP_NCCL,
            [
                env_change("NCCL_NVLS_ENABLE", "set", "the other algorithms do not need it", "0"),
                action("repair_fabric_manager", "the fabric manager of the node is the usual reason"),
            ],
            rejected,
            [],
        )
    if signature == "nccl_watchdog_timeout":
        return Advice(
            "A collective operation never completed: some rank did not take part, or the GPUs cannot reach each other. Nothing ran "
            "out of memory here.",
            STEP_NCCL,
            [
                env_change(
                    "NCCL_P2P_DISABLE",
                    "set",
                    "a first collective that hangs is peer-to-peer access between the GPUs",
                    "1",
                ),
                env_change("NCCL_DEBUG", "set", "it names the transport and the rank that waits", "INFO"),
                flag_change(
                    "--disable-custom-all-reduce", "add", "it takes the second user of peer access out"
                ),
                action(
                    "read_earlier_log",
                    "a rank that died earlier (its own out of memory included) makes the others wait",
                ),
                action("repair_gpu_peering", "ACS or IOMMU between the GPUs blocks peer access"),
            ],
            [
                *rejected,
                env_change("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "increase", "it hangs; it is not slow"),
            ],
            ["the logs of all ranks by time: which one is silent first?"],
        )
    return Advice(
        "The communication between the ranks failed for a reason that is not memory: interfaces, peers, transport or state.",
        STEP_NCCL,
        [
            *_interfaces(signature),
            env_change("NCCL_DEBUG", "set", "NCCL then names the call that failed", "INFO"),
            action(
                "read_earlier_log",
                "the rank that complains is often the victim: find the earliest error of all ranks",
            ),
        ],
        rejected,
        ["the same start with NCCL_DEBUG=INFO: the WARN line before the exception names the reason"],
    )


# -- /dev/shm ---------------------------------------------------------------------------------------------------------


def _grow_shm(facts, needed):
    """The change that makes /dev/shm large enough for ``needed`` MiB (or the usual segments), its volume's size or a volume."""
    size = "2Gi" if facts.world_size <= 8 else "8Gi"
    if needed:
        size = to_gi(max(needed * MIB * 2, 2 * GIB))
    if (facts.pod.get("shm") or {}).get("mounted_at"):
        return k8s_change(
            "volumes.shm.sizeLimit",
            "increase",
            "the segments of all ranks live there",
            size,
            with_=(MEMORY_LIMIT,),
        )
    why = "without a volume /dev/shm has the container runtime's 64 MiB"
    if not in_cluster(facts.pod):
        why += "; where there is one already, raise its sizeLimit"
    return k8s_change("volumes.shm", "add", why, size, with_=(MEMORY_LIMIT,))


def _shm_leftovers(facts, judged):
    """``(seen, likely)``: whether files of earlier runs were seen in /dev/shm, or a restarted container makes them likely."""
    restarted = (facts.restarts or 0) > 0 or facts.attempt.get("reason") == "CrashLoopBackOff"
    region = judged.match is not None and judged.match.signature.family == "tmpfs_refused_pages"
    return facts.said("shm_leftovers") or (region and restarted), restarted


def shm_exhausted(facts, judged):
    groups = groups_of(judged)
    leftovers, restarted = _shm_leftovers(facts, judged)
    needed = number_of(groups, "needed")
    if needed and judged.match.signature.groups["needed"] == "bytes":
        needed /= MIB
    grow = _grow_shm(facts, needed)
    clean = [
        action(
            "recreate_pod",
            "the volume behind /dev/shm survives container restarts; only a new pod gets an empty one",
        ),
        action("clear_shm", "segments of crashed processes stay there and fill it"),
    ]
    volume = (facts.pod.get("shm") or {}).get("mounted_at")
    recommend = [*clean, grow] if leftovers or (restarted and volume) else [grow, *clean[:1]]
    if facts.said("offload_pool") or facts.given("kv_offloading_size") is not None:
        smaller = flag_change(
            "--kv-offloading-size", "decrease", "the offload region is made in /dev/shm in its full size"
        )
        recommend.insert(2 if leftovers else 1, smaller)
    if leftovers or restarted:
        recommend.append(action("read_earlier_log", "the first crash is what left the files behind"))
    rejected = [
        flag_change(UTILIZATION, "decrease", "no GPU memory is involved"),
        env_change("NCCL_IB_DISABLE", "set", "the ranks are on one host: it is no network fault"),
        action("use_volume", "/dev/shm is memory, not the node's disk"),
        k8s_change(MEMORY_LIMIT, "increase", "the size of /dev/shm does not follow the limit by itself"),
    ]
    if leftovers:
        rejected.append(
            k8s_change("volumes.shm.sizeLimit", "increase", "what is left behind fills any size over time")
        )
    needed_words = f" {needed:.0f} MiB were needed." if needed else ""
    return Advice(
        f"/dev/shm was full or too small for the segments that the ranks exchange data through.{needed_words} What is written "
        "there counts against the container's memory limit.",
        STEP_NCCL,
        recommend,
        rejected,
        []
        if judged.verdict.confidence == "certain"
        else ["df -h /dev/shm and ls -la /dev/shm in the container at that moment"],
    )
