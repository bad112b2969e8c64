# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice on host memory: loading, compiling, growth, pools, pinning, the node."""

from __future__ import annotations

import math
import re

from ..quantities import GIB, show_bytes, to_gi
from .advice_parts import (
    MEMORY_LIMIT,
    MODEL_LEN,
    NOT_UTILIZATION_HOST,
    SEQUENCES,
    STEP_EXIT_137,
    STEP_HOST,
    SWAP,
    TENSOR_PARALLEL,
    UTILIZATION,
    Advice,
    action,
    env_change,
    fitting_length,
    fixed,
    flag_change,
    groups_of,
    k8s_change,
    number_of,
    raise_limit,
)
from .resolve import offload_pool

# -- host memory ------------------------------------------------------------------------------------------------------


def _beside_engine(facts):
    """Whether the container is one beside the engine's: what is known of models says nothing about it."""
    if facts.engine.get("name"):
        return False
    others = [item for item in facts.pod.get("containers") or [] if item is not facts.container]
    return facts.container.get("role") in ("init", "sidecar") or any(item.get("engine") for item in others)


def _beside_engine_advice(facts):
    name, limit = facts.container["name"], facts.memory_limit
    init = facts.container.get("role") == "init"
    return Advice(
        f"Container {name} was killed at its own memory limit"
        + (f" of {show_bytes(limit)}. " if limit else ". ")
        + (
            "It runs before the engine, which has not started. "
            if init
            else "The engine runs in another container, with a limit of its own. "
        )
        + "What a container writes to a memory-backed volume or /dev/shm counts against its limit too.",
        STEP_EXIT_137,
        [
            k8s_change(
                MEMORY_LIMIT, "increase", f"the limit of container {name} is the one that was reached"
            ),
            action("use_volume", "files in a memory-backed volume are host memory; a disk volume takes none")
            if init
            else action("compare_process_memory", "see which of its processes grows"),
        ],
        [NOT_UTILIZATION_HOST],
        ["memory.stat of the container: anonymous memory (a leak) or shmem (files in memory)?"],
    )


def host_oom_load(facts, judged):
    if _beside_engine(facts):
        return _beside_engine_advice(facts)
    load_format = str(facts.setting("load_format") or "")
    recommend, rejected = [], [NOT_UTILIZATION_HOST]
    ranks = facts.world_size
    if "runai" in load_format or "tensorizer" in load_format:
        recommend.append(
            flag_change(
                "--load-format",
                "set",
                "streamed tensors are copied in host memory by every rank; safetensors are mapped",
                "safetensors",
            )
        )
    if str(facts.setting("safetensors_load_strategy") or "") in ("eager", "prefetch"):
        recommend.append(
            flag_change(
                "--safetensors-load-strategy",
                "set",
                "mapped files are page cache, which the kernel can reclaim",
                "lazy",
            )
        )
    recommend.append(raise_limit(facts, "the loader's peak must fit beside the processes"))
    if recommend[0]["name"] != "--load-format":
        recommend.append(
            action(
                "convert_checkpoint",
                "every rank reads whole .bin or .pt files into memory; safetensors are mapped instead",
            )
        )
    if (facts.env("RAY_memory_monitor_refresh_ms") is not None) or judged.match:
        rejected.append(
            env_change(
                "RAY_memory_monitor_refresh_ms", "set", "without Ray's monitor the kernel kills next", "0"
            )
        )
    if ranks > 1:
        recommend.append(
            flag_change("--max-parallel-loading-workers", "set", "old versions then load rank by rank", 1)
            if facts.version and facts.version < (0, 8)
            else action("upgrade", "later loaders share or release what they have read")
        )
    rejected += [
        flag_change(TENSOR_PARALLEL, "increase", "more workers load at the same time"),
        action("larger_gpu", "the GPU had room"),
    ]
    return Advice(
        "The container's host memory ran out while the model was loaded"
        + (f" (limit {show_bytes(facts.memory_limit)}, {ranks} ranks)." if facts.memory_limit else ".")
        + " Weights pass through the host: what is mapped can be reclaimed, copies and whole files can't.",
        STEP_HOST,
        recommend,
        rejected,
        [
            "memory.peak and memory.stat of the container just before the kill: anonymous or shared memory?",
            "the kernel's OOM report: anon-rss, file-rss and shmem-rss of the killed process",
        ],
    )


def host_oom_compile(facts, judged):
    return Advice(
        "Kernels were being compiled at the start by many parallel compiler processes, each with gigabytes of its own; vLLM itself "
        "was small.",
        STEP_HOST,
        [
            env_change("MAX_JOBS", "set", "it bounds the parallel compiler processes", "2"),
            action(
                "prebuild_kernels", "a kernel cache or prebuilt kernels take the compilation out of the start"
            ),
            action("stagger_starts", "two engines that compile at once need twice as much"),
        ],
        [
            NOT_UTILIZATION_HOST,
            k8s_change(
                MEMORY_LIMIT, "increase", "step by step it only lets the spike grow until it hits the node"
            ),
            flag_change(SWAP, "decrease", "the memory is in the compilers"),
        ],
        ["ps in the container during the start: how many compiler processes, how large?"],
    )


def _victim(facts):
    found = facts.first("kernel_memcg_oom")
    return (found[1].groups.get("victim") or "") if found else ""


def host_oom_growth(facts, judged):
    if _beside_engine(facts):
        return _beside_engine_advice(facts)
    victim = _victim(facts)
    caches = flag_change(
        "--mm-processor-cache-gb", "decrease", "that cache exists once per API server and engine"
    )
    recommend = [
        action("upgrade", "growth of host memory while serving is a leak, and leaks are fixed by versions"),
        action("restart_before_limit", "until then a planned restart costs less than a kill"),
        action("compare_process_memory", "API server, engine core and workers leak for different reasons"),
    ]
    if victim.startswith("VLLM::EngineC") or "EngineCore" in victim:
        recommend.insert(
            2,
            flag_change(
                "--no-enable-prefix-caching",
                "add",
                "the engine core keeps a hash object for every cached block",
            ),
        )
    if facts.multimodal:
        recommend.insert(1, caches)
    if facts.given("speculative_config") is not None:
        recommend.append(
            flag_change(
                "--speculative-config", "remove", "to see whether the growth belongs to speculative decoding"
            )
        )
    killed = (
        "a process of the container" if facts.death.get("kind") == "oom_killed_child" else "the container"
    )
    return Advice(
        f"The model was serving when the kernel killed {killed}: host memory grew with requests or time until the limit"
        + (f" of {show_bytes(facts.memory_limit)}." if facts.memory_limit else "."),
        STEP_EXIT_137,
        recommend,
        [
            NOT_UTILIZATION_HOST,
            flag_change(SWAP, "decrease", "V1 allocates no swap space"),
            k8s_change(MEMORY_LIMIT, "increase", "alone it only moves the kill to a later time"),
        ],
        [
            "container_memory_working_set_bytes over the last runs: a slope (leak) or a step (one request)?",
            "the time from start to death over several restarts",
        ],
    )


def host_oom_offload(facts, judged):
    pool, name = offload_pool(facts)
    flag = {
        "kv_offloading_size": "--kv-offloading-size",
        "cpu_offload_gb": "--cpu-offload-gb",
        "swap_space": SWAP,
    }.get(name or "", "--kv-offloading-size")
    recommend = [
        flag_change(flag, "decrease", "the pool is pinned or shared memory, which can't be reclaimed"),
        k8s_change(
            MEMORY_LIMIT,
            "increase",
            "the pinned allocator can round every tensor up to a power of two: plan with twice the pool",
            to_gi(2 * pool + 40 * GIB) if pool and flag == "--kv-offloading-size" else None,
            proof="arithmetic" if pool and flag == "--kv-offloading-size" else "rule",
        ),
        action("upgrade", "later versions allocate the pool without rounding"),
    ]
    return Advice(
        f"Swap space or an offload pool takes {show_bytes(int(pool)) if pool else 'much'} of host memory by its setting alone, "
        "pinned or shared, and so counts in full against the limit.",
        STEP_HOST,
        recommend,
        [
            NOT_UTILIZATION_HOST,
            action(
                "judge_by_anonymous_memory", "shared memory is not cache: dropping caches frees nothing of it"
            ),
        ],
        [
            "memory.stat of the container: shmem against anon",
            "the kernel's OOM report: shmem-rss of the killed process",
        ],
    )


def host_oom_cpu_backend(facts, judged):
    recommend = [
        env_change(
            "VLLM_CPU_KVCACHE_SPACE", "set", "it is the size of the KV cache in GiB of host memory", "1"
        )
        if facts.said("cpu_kv_space_default")
        else env_change("VLLM_CPU_KVCACHE_SPACE", "set", "a smaller KV cache leaves room for the weights"),
        raise_limit(facts, "weights, KV cache and processes must fit together"),
    ]
    if facts.version is None or facts.version < (0, 18):
        recommend.insert(1, flag_change(SWAP, "decrease", "swap space is allocated on top of it", 0))
    if facts.version and facts.version >= (0, 20):
        recommend.append(
            flag_change(
                UTILIZATION,
                "decrease",
                "on the CPU backend it is the share of the node's memory from 0.20 on",
            )
        )
    return Advice(
        "On the CPU backend weights, KV cache and swap space are all host memory, and their defaults do not know the pod's limit.",
        STEP_HOST,
        recommend,
        [action("smaller_model", "the pools are larger than the weights of a small model")]
        if facts.said("swap_space_large")
        else [],
        [],
    )


_SLEEP_BACKUP = re.compile(r"cumem\.py.*\bsleep\b|'function': 'sleep'")
_LMCACHE = re.compile(r"lmcache|LMCache|LMCascade", re.IGNORECASE)


def host_pin_limit(facts, judged):
    offloaded = facts.given("cpu_offload_gb") is not None
    pools = [flag_change(SWAP, "decrease", "swap space is pinned host memory", 0)]
    if facts.sleep_mode or facts.mentions(_SLEEP_BACKUP):
        pools = [
            raise_limit(facts, "level 1 of sleep mode copies all weights into pinned host memory"),
            action("raise_memlock", "a memlock limit also refuses pinned memory"),
        ]
    if facts.mentions(_LMCACHE):
        why = "LMCache pins a pool of that many GB for each rank"
        pools = [env_change("LMCACHE_MAX_LOCAL_CPU_SIZE", "decrease", why)]
    if offloaded:
        pools = [
            flag_change("--cpu-offload-gb", "decrease", "offloaded weights are pinned host memory"),
            env_change(
                "VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY",
                "set",
                "the weights then stay in ordinary memory, at a cost in speed (0.17 and later)",
                "1",
            ),
        ]
    return Advice(
        "Pinning host memory failed; the message is CUDA's although no GPU memory was asked for.",
        STEP_HOST,
        [
            *pools,
            action("upgrade", "later versions do not pin where the platform forbids it"),
            action("use_linux", "under WSL little memory can be pinned"),
            action("raise_memlock", "a memlock limit also refuses pinned memory"),
        ],
        [
            action("free_gpu", "the GPU is not what is full"),
            flag_change(UTILIZATION, "decrease", "the allocation is on the host"),
        ],
        [],
    )


page_cache_benign = fixed(
    "What looks like memory use is page cache of the weight files. The kernel takes it back when anything needs it, so nothing is "
    "short.",
    STEP_HOST,
    [
        action("judge_by_anonymous_memory", "anonymous and shared memory are what can't be reclaimed"),
        action("no_change", "nothing ran out"),
    ],
    [
        flag_change(UTILIZATION, "decrease", "it does not touch host memory"),
        k8s_change(MEMORY_LIMIT, "increase", "the cache grows to any limit"),
    ],
)


def kv_swap_pool(facts, judged):
    if judged.match and judged.match.signature.id == "hisparse_pool_blocks":
        return Advice(
            "The host pool for KV blocks is too small for one sequence; the host itself has memory.",
            STEP_HOST,
            [
                flag_change("--kv-transfer-config", "increase", "host_pool_gib must hold max_model_len"),
                flag_change(MODEL_LEN, "decrease", "a shorter sequence needs fewer blocks"),
            ],
            [k8s_change(MEMORY_LIMIT, "increase", "alone it does not change the pool")],
            [],
        )
    return Advice(
        "vLLM's fixed CPU swap pool is full because preempted sequences are swapped out to it; the host's own memory is not short.",
        STEP_HOST,
        [
            flag_change(SWAP, "increase", "the pool has the size of this flag, in GiB per GPU"),
            flag_change(SEQUENCES, "decrease", "fewer sequences are preempted"),
            action("limit_requests", "a smaller n or best_of per request needs fewer blocks"),
        ],
        [
            k8s_change(MEMORY_LIMIT, "increase", "alone it does not change the size of the pool"),
            NOT_UTILIZATION_HOST,
        ],
        [],
    )


def cpu_backend_kv(facts, judged):
    groups = groups_of(judged)
    needed = number_of(groups, "needed")
    length, proof = fitting_length(groups)
    space = str(max(1, math.ceil(needed))) if needed else None
    utilization = (
        [
            flag_change(
                UTILIZATION,
                "increase",
                "on the CPU backend it is the share of the node's memory from 0.20 on",
            )
        ]
        if facts.version and facts.version >= (0, 20)
        else []
    )
    return Advice(
        "On the CPU backend the KV cache is a pool of host memory of fixed size, and one sequence does not fit it.",
        STEP_HOST,
        [
            env_change(
                "VLLM_CPU_KVCACHE_SPACE",
                "increase",
                "it is the size of the pool in GiB",
                space,
                proof="log" if space else "rule",
            ),
            flag_change(
                MODEL_LEN,
                "decrease",
                "that many tokens fit the pool as it is",
                length,
                proof if length else "rule",
            ),
            k8s_change(MEMORY_LIMIT, "increase", "the limit must cover weights and pool"),
            *utilization,
        ],
        []
        if utilization
        else [
            flag_change(
                UTILIZATION,
                "increase",
                "the message names it, but it has no effect on this version's CPU backend",
            )
        ],
        [],
    )


def node_oom(facts, judged):
    recommend = []
    if facts.memory_limit is None:
        recommend.append(
            k8s_change(
                MEMORY_LIMIT,
                "set",
                "without a limit the pod can take the whole node down instead of being killed alone",
            )
        )
    recommend += [
        action("reserve_node_memory", "kube-reserved and system-reserved keep memory for the node itself"),
        action(
            "read_kernel_log",
            "the kernel's report names the victim and what it held; the victim need not be the culprit",
        ),
        action("move_pod", "another node may have room"),
    ]
    return Advice(
        "The node as a whole ran out of memory, not this container's limit: the kernel then picks a victim, or the node stops "
        "answering.",
        STEP_HOST,
        recommend,
        [
            k8s_change(MEMORY_LIMIT, "remove", "a pod without a limit is what wedges a node"),
            flag_change(UTILIZATION, "increase", "it takes more memory, not less"),
        ],
        ["memory of all pods on the node at that time", "the kernel log: global_oom or oom_memcg="],
    )


def ray_memory_monitor(facts, judged):
    return Advice(
        "Ray's own memory monitor killed the worker when the node passed its threshold (95 %); the kernel killed nothing.",
        STEP_HOST,
        [
            raise_limit(facts, "the Ray pod needs more memory"),
            flag_change(SWAP, "decrease", "swap space is pinned host memory")
            if facts.version is None or facts.version < (0, 8)
            else flag_change("--distributed-executor-backend", "set", "on one node Ray is not needed", "mp"),
            flag_change("--distributed-executor-backend", "set", "on one node Ray is not needed", "mp")
            if facts.version is None or facts.version < (0, 8)
            else action("compare_process_memory", "see which process holds the memory"),
        ],
        [
            env_change(
                "RAY_memory_monitor_refresh_ms", "set", "alone it only leaves the kill to the kernel", "0"
            ),
            NOT_UTILIZATION_HOST,
        ],
        [],
    )


def sigkill_unattributed(facts, judged):
    return Advice(
        "A process was killed with SIGKILL, and neither the container's status nor the log says by whom. The kernel's OOM killer is "
        "the usual sender; probes, evictions and people are others.",
        STEP_EXIT_137,
        [
            action("read_kernel_log", "the kernel logs every OOM kill with the process and the cgroup"),
            action("find_sender", "probe kills and evictions leave events for an hour"),
        ],
        [NOT_UTILIZATION_HOST],
        [
            "the kernel log of the node around that time (oom-kill lines)",
            "events of the pod and the node: Killing, Evicted, SystemOOM",
            "memory.peak of the container against its limit",
        ],
    )
