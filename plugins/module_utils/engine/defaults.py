# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's defaults by release, engine generation and device, and what an upgrade changes by default.

Source: vllm-memory sections 5, 6, 7 and 8. Ranges are inclusive, as there. What depends on a fact that isn't
known (version, GPU memory, model) is None, never a guess.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..quantities import GIB
from .versions import compare, in_range, parse_version


class Default(NamedTuple):
    """A default value. generation: only for V0 or V1; accelerators: only for these."""

    option: str
    value: Any
    since: str | None = None
    until: str | None = None
    generation: str | None = None
    accelerators: tuple[str, ...] = ()


DEFAULTS = (
    Default("gpu_memory_utilization", 0.9, None, "0.19"),
    Default("gpu_memory_utilization", 0.92, "0.20"),
    Default("enable_chunked_prefill", True, "0.6.4", generation="V1"),
    Default("enable_chunked_prefill", False, "0.4.1", "0.5.4", "V0"),
    Default("enable_prefix_caching", False, "0.4.1", generation="V0"),
    Default("enable_prefix_caching", True, "0.6.4", generation="V1"),
    Default("enforce_eager", False),
    Default("max_seq_len_to_capture", 8192, "0.4.3", "0.10.2"),
    Default("tensor_parallel_size", 1),
    Default("pipeline_parallel_size", 1),
    Default("data_parallel_size", 1, "0.8.3"),
    Default("enable_expert_parallel", False, "0.8.0"),
    Default("enable_eplb", False, "0.9.2"),
    Default("decode_context_parallel_size", 1, "0.10.2"),
    Default("prefill_context_parallel_size", 1, "0.12"),
    Default("kv_cache_dtype", "auto"),
    # From 0.18 the attention backend may prefer another size; FlashMLA and hybrid models always do.
    Default("block_size", 16, accelerators=("cuda",)),
    Default("block_size", 128, accelerators=("cpu", "hpu")),
    Default("disable_hybrid_kv_cache_manager", False, "0.9.1"),
    Default("cpu_offload_gb", 0.0, "0.5.5"),
    Default("swap_space", 4.0, None, "0.17"),
    Default("num_scheduler_steps", 1, "0.5.5", "0.10.0"),
    Default("language_model_only", False, "0.17"),
    Default("skip_mm_profiling", False, "0.10.1.1"),
    Default("mm_encoder_tp_mode", "weights", "0.10.2"),
    Default("enable_lora", False),
    Default("max_loras", 1),
    Default("max_lora_rank", 16),
    Default("fully_sharded_loras", False, "0.4.3"),
    Default("enable_sleep_mode", False, "0.7.0"),
    Default("enable_cumem_allocator", False, "0.22"),
    Default("disable_custom_all_reduce", False),
    Default("enable_dbo", False, "0.11"),
    Default("scheduler_reserve_full_isl", True, "0.19"),
    Default("watermark", 0.0, "0.24"),
    Default("performance_mode", "balanced", "0.17"),
    Default("load_format", "auto"),
    Default("safetensors_load_strategy", "lazy", "0.10.2", "0.18"),
    Default("mm_processor_cache_gb", 4.0, "0.10.1.1"),
    Default("mm_processor_cache_type", "lru", "0.11"),
    Default("mm_shm_cache_max_object_size_mb", 128, "0.11"),
    Default("enable_shm_tensor_arena", False, "0.32"),
    Default("api_server_count", 1, "0.9.1"),
    Default("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", False, "0.18", "0.19"),
    Default("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", True, "0.20"),
    Default("VLLM_ENABLE_STARTUP_PLAN", False, "0.26"),
    Default("VLLM_USE_V1", False, "0.6.4", "0.7"),
    Default("VLLM_USE_V1", True, "0.8", "0.10.2"),
    Default("VLLM_USE_V2_MODEL_RUNNER", False, "0.12", "0.21"),
    Default("VLLM_CPU_KVCACHE_SPACE", 4.0, "0.4.1", "0.12", accelerators=("cpu",)),
    Default("VLLM_MQ_MAX_CHUNK_BYTES_MB", 16, "0.9.1"),
    Default("VLLM_RINGBUFFER_WARNING_INTERVAL", 60, "0.5.5"),
    Default("VLLM_ENGINE_READY_TIMEOUT_S", 600, "0.14"),
    Default("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", 300, "0.9.2"),
    Default("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", False, "0.5.5"),
    Default("VLLM_ALLREDUCE_USE_SYMM_MEM", False, "0.10.2", "0.10.2"),
    Default("VLLM_ALLREDUCE_USE_SYMM_MEM", True, "0.11"),
    Default("VLLM_ALLREDUCE_USE_FLASHINFER", False, "0.17", "0.28"),
    Default("VLLM_ALLREDUCE_USE_FLASHINFER", True, "0.29"),
    Default("VLLM_USE_NCCL_SYMM_MEM", False, "0.11"),
    Default("VLLM_SKIP_P2P_CHECK", False, "0.6.3", "0.10.0"),
    Default("VLLM_SKIP_P2P_CHECK", True, "0.10.1.1"),
    Default("VLLM_WORKER_MULTIPROC_METHOD", "spawn", "0.4.3", "0.5.0"),
    Default("VLLM_WORKER_MULTIPROC_METHOD", "fork", "0.5.5"),
    Default("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", 394 << 20, "0.11.1"),
    Default("VLLM_DEEPEP_BUFFER_SIZE_MB", 1024, "0.11"),
    Default("VLLM_FUSED_MOE_CHUNK_SIZE", 65536, "0.5.5", "0.5.5"),
    Default("VLLM_FUSED_MOE_CHUNK_SIZE", 32768, "0.6.0", "0.11.2"),
    Default("VLLM_FUSED_MOE_CHUNK_SIZE", 16384, "0.12", "0.17"),
    Default("VLLM_MOE_DP_CHUNK_SIZE", 256, "0.9.2", "0.19"),
    Default("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", 512, "0.19"),
    Default("VLLM_MM_INPUT_CACHE_GIB", 8.0, "0.8.0", "0.8.1"),
    Default("VLLM_MM_INPUT_CACHE_GIB", 4.0, "0.8.2", "0.12"),
    Default("VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY", False, "0.17"),
    Default("VLLM_WEIGHT_OFFLOADING_DISABLE_UVA", False, "0.17"),
    Default("VLLM_MLA_DISABLE", False, "0.7.1"),
    Default("VLLM_ALLOW_LONG_MAX_MODEL_LEN", False, "0.5.5"),
    Default("VLLM_SLEEP_MEM_CHUNK_SIZE", 256, accelerators=("rocm",)),
    Default("VLLM_ENABLE_RESPONSES_API_STORE", False, "0.10.1.1"),
    # vLLM itself sets this one (section 7.5).
    Default("NCCL_CUMEM_ENABLE", 0, "0.4.3", "0.10.1.1"),
)

OPTIONS_WITH_DEFAULT = tuple(
    sorted(
        {row.option for row in DEFAULTS if row.option.islower()} | {"max_num_seqs", "max_num_batched_tokens"}
    )
)


class Batch(NamedTuple):
    """Section 7.3, V1 on a GPU: the first row that fits counts. gpu: a key of ``_GPU_TESTS``.

    tokens, seqs: max_num_batched_tokens and max_num_seqs for (LLM class, server).
    """

    since: str
    until: str | None
    gpu: str
    tokens: tuple[int, int]
    seqs: tuple[int, int]


_BATCHES = (
    Batch("0.33", None, "gb10", (8192, 2048), (256, 256)),
    Batch("0.28", None, "160 GiB", (16384, 16384), (1024, 1024)),
    Batch("0.9.0", None, "70 GiB, no A100", (16384, 8192), (1024, 1024)),
    Batch("0.8.5", "0.8.5", "70 GiB", (16384, 8192), (1024, 1024)),
    Batch("0.8.5", None, "any", (8192, 2048), (256, 256)),
    Batch("0.8.0", "0.8.4", "H100 or H200", (16384, 8192), (1024, 1024)),
    Batch("0.8.0", "0.8.4", "any", (8192, 2048), (1024, 1024)),
)


def _at_least(gib):
    return lambda name, size: None if size is None else size >= gib * GIB


def _named(*parts):
    return lambda name, size: None if name is None else any(part in name for part in parts)


def _large_and_no_a100(name, size):
    large, a100 = _at_least(70)(name, size), _named("a100")(name, size)
    if large is False or a100:
        return False
    return None if large is None or a100 is None else True


# Whether a GPU (lower-case name or None, bytes or None) is of the kind; None: not known.
_GPU_TESTS: dict[str, Callable[[str | None, int | None], bool | None]] = {
    "gb10": _named("gb10"),
    "160 GiB": _at_least(160),
    "70 GiB": _at_least(70),
    "70 GiB, no A100": _large_and_no_a100,
    "H100 or H200": _named("h100", "h200"),
    "any": lambda name, size: True,
}
# V1 on the CPU backend, per rank: (LLM class, server).
_CPU_BATCH = {"max_num_batched_tokens": (4096, 2048), "max_num_seqs": (256, 128)}
_V0_SEQS = 256


def default_of(option, version, generation=None, accelerator="cuda", **facts):
    """The value that ``option`` takes when nobody sets it, or None when that isn't known.

    option: a name of ``flags``; version: text, tuple or None; generation: V0, V1 or None; accelerator: cuda,
    rocm, cpu, hpu, xpu, tpu, npu or None. facts for max_num_seqs and max_num_batched_tokens:
    gpu_memory_bytes, gpu_name, usage (``server``, the default, or ``llm``), world_size, max_model_len,
    chunked_prefill, performance_mode. A default that all releases share is given for an unknown version too.
    """
    if option in ("max_num_seqs", "max_num_batched_tokens"):
        return _batch_default(option, parse_version(version), generation, accelerator, facts)
    generation = generation or engine_generation(version)
    for row in DEFAULTS:
        if row.option != option:
            continue
        everywhere = row.since is None and row.until is None
        if not (everywhere or in_range(version, row.since, row.until)):
            continue
        if row.generation in (None, generation) and (not row.accelerators or accelerator in row.accelerators):
            return row.value
    return None


def _batch_default(option, version, generation, accelerator, facts):
    generation = generation or engine_generation(version)
    if version is None or generation is None:
        return None
    if generation == "V0":
        return _V0_SEQS if option == "max_num_seqs" else _v0_batched_tokens(version, facts)
    server = facts.get("usage", "server") != "llm"
    doubled = 2 if facts.get("performance_mode") == "throughput" and in_range(version, "0.17") else 1
    if accelerator == "cpu":
        size = facts.get("world_size")
        return None if size is None else _CPU_BATCH[option][server] * size
    if accelerator not in ("cuda", "rocm"):
        return None
    name = facts.get("gpu_name")
    name = name.lower() if name else None
    candidates = set()
    for row in _BATCHES:
        if not in_range(version, row.since, row.until):
            continue
        fits = _GPU_TESTS[row.gpu](name, facts.get("gpu_memory_bytes"))
        if fits is not False:
            candidates.add((row.tokens if option == "max_num_batched_tokens" else row.seqs)[server])
        if fits:
            break
    # Where the GPU isn't known, the rows that may apply can still agree.
    return candidates.pop() * doubled if len(candidates) == 1 else None


def _v0_batched_tokens(version, facts):
    chunked, length = facts.get("chunked_prefill"), facts.get("max_model_len")
    if chunked is False and isinstance(length, int) and length > 0:
        return max(length, 2048)
    # With chunked prefill older releases take 512; in which release that ended isn't known.
    return 2048 if chunked and in_range(version, "0.7") else None


def engine_generation(version, use_v1=None):
    """V0, V1 or None (section 0.2). use_v1: the value of VLLM_USE_V1 (bool or None).

    0.8.0-0.10.2 fall back from V1 to V0 for features that V1 lacks; without a log line V1 is their default.
    """
    version = parse_version(version)
    if version is None:
        return None if use_v1 is None else ("V1" if use_v1 else "V0")
    if compare(version, (0, 11)) >= 0:
        return "V1"
    if compare(version, (0, 8)) >= 0:
        return "V0" if use_v1 is False else "V1"
    return "V1" if use_v1 and compare(version, (0, 6, 4)) >= 0 else "V0"


def default_runner_is_v2(version, model=None, accelerator="cuda"):
    """Whether runner 2 ("V2 model runner") is used when nobody chooses (section 5.4): True, False or None.

    model: ``{"architecture", "quantized", "moe", "hybrid"}`` as far as known.
    """
    version, model = parse_version(version), model or {}
    if version is None:
        return None
    if compare(version, (0, 22)) < 0:
        return False
    if compare(version, (0, 29)) >= 0:
        return None if accelerator == "rocm" and compare(version, (0, 31)) < 0 else True
    architecture, moe, hybrid = model.get("architecture"), model.get("moe"), model.get("hybrid")
    if compare(version, (0, 25)) >= 0:
        return True if moe is False and hybrid is False else None
    if architecture is None:
        return None
    families = (
        ("Qwen3ForCausalLM",)
        if compare(version, (0, 23)) < 0
        else ("Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM")
    )
    if architecture in families:
        quantized = model.get("quantized")
        return (
            True
            if compare(version, (0, 24)) >= 0 or quantized is False
            else (None if quantized is None else False)
        )
    return None if moe is not False and compare(version, (0, 24)) >= 0 else False


class Change(NamedTuple):
    """A default that changed with release ``version``. on: for which hardware or use (None: everywhere)."""

    version: str
    option: str
    before: Any
    after: Any
    why: str
    on: str | None = None


_RUNNER_2 = "up to 0.28 runner 2 reserves no memory for CUDA graphs: their capture fails more easily"
_SMALL, _A100, _LARGE = "GPUs below 70 GiB", "A100 with 80 GB", "GPUs from 70 GiB, A100 aside"
_MORE_SEQUENCES = "more sequences need larger sampler buffers at warm-up and more CUDA graphs"
_FEWER_SEQUENCES = "fewer sequences: smaller sampler buffers at warm-up and fewer CUDA graphs"

# In the order of releases. Names in lower case that are no options name a mechanism.
CHANGES = (
    Change(
        "0.6.3",
        "gpu_budget",
        "only this engine's memory counts",
        "all memory in use on the GPU counts",
        "a neighbour on the GPU now shrinks the KV cache",
    ),
    Change(
        "0.6.5",
        "gpu_budget",
        "all memory in use on the GPU counts",
        "only this engine's memory counts",
        "a neighbour on the GPU no longer shrinks the KV cache",
    ),
    Change(
        "0.8.0",
        "engine",
        "V0",
        "V1",
        "V1 profiles, schedules and captures differently: activation, CUDA graph and host memory all change",
    ),
    Change(
        "0.8.0",
        "gpu_budget",
        "only this engine's memory counts",
        "all memory in use on the GPU counts",
        "a neighbour on the GPU now shrinks the KV cache",
    ),
    Change("0.8.0", "max_num_seqs", 256, 1024, _MORE_SEQUENCES, _SMALL),
    Change("0.8.0", "max_num_seqs", 256, 1024, _MORE_SEQUENCES, _A100),
    Change("0.8.0", "max_num_seqs", 256, 1024, _MORE_SEQUENCES, _LARGE),
    Change(
        "0.8.0",
        "max_num_batched_tokens",
        "max_model_len, at least 2048",
        "2048 (8192 on H100 and H200)",
        "the profile run's activation peak follows this number",
    ),
    Change(
        "0.8.0",
        "enable_chunked_prefill",
        "off up to 32k context",
        True,
        "prompts are split, so that max_num_batched_tokens bounds the activation memory",
    ),
    Change(
        "0.8.0", "enable_prefix_caching", False, True, "no change of size: unused KV blocks keep old prefixes"
    ),
    Change(
        "0.8.0",
        "limit_mm_per_prompt",
        "1 of each kind",
        "999 of each kind",
        "one request may hold many images",
    ),
    Change(
        "0.8.0", "VLLM_MM_INPUT_CACHE_GIB", None, 8.0, "host memory for processed images, in two processes"
    ),
    Change("0.8.2", "VLLM_MM_INPUT_CACHE_GIB", 8.0, 4.0, "less host memory for processed images"),
    Change("0.8.5", "max_num_seqs", 1024, 256, _FEWER_SEQUENCES, _SMALL),
    Change(
        "0.8.5",
        "max_num_batched_tokens",
        2048,
        8192,
        "a larger activation peak",
        "GPUs from 70 GiB, H100 and H200 aside",
    ),
    Change("0.9.0", "max_num_seqs", 1024, 256, _FEWER_SEQUENCES, _A100),
    Change("0.9.0", "max_num_batched_tokens", 8192, 2048, "a smaller activation peak", _A100),
    Change(
        "0.9.1",
        "gpu_budget",
        "all memory in use on the GPU counts",
        "only this engine's memory counts",
        "a neighbour on the GPU no longer shrinks the KV cache",
    ),
    Change(
        "0.9.1",
        "free_memory_check",
        None,
        "free memory at start must reach total x gpu_memory_utilization",
        "a GPU that is shared or not yet released now refuses the start instead of failing later",
    ),
    Change(
        "0.9.1",
        "VLLM_MQ_MAX_CHUNK_BYTES_MB",
        10,
        16,
        "the ring buffer in /dev/shm grows from 100 to 160 MiB (tensor or pipeline parallel)",
    ),
    Change(
        "0.10.0",
        "cudagraph_capture_sizes",
        "up to 512",
        "up to min(2 x max_num_seqs, 512)",
        "the number of CUDA graphs follows max_num_seqs",
    ),
    Change(
        "0.10.1.1",
        "mm_processor_cache_gb",
        None,
        4.0,
        "replaces VLLM_MM_INPUT_CACHE_GIB: host memory per API server and data parallel rank",
    ),
    Change("0.10.1.1", "VLLM_SKIP_P2P_CHECK", False, True, "the peer-to-peer test at start is skipped"),
    Change(
        "0.10.2",
        "NCCL_CUMEM_ENABLE",
        0,
        None,
        "vLLM no longer switches NCCL's cuMem allocator off: NCCL's GPU buffers are allocated differently",
    ),
    Change(
        "0.11.0",
        "engine",
        "V1 with V0 as fallback",
        "V1 only",
        "what fell back to V0 now runs on V1 or not at all",
    ),
    Change(
        "0.11.0",
        "memory_snapshot",
        "before NCCL starts",
        "after NCCL has started",
        "CUDA context and NCCL buffers are outside the budget: near 1.0 the free memory check fails",
    ),
    Change(
        "0.11.0",
        "VLLM_ALLREDUCE_USE_SYMM_MEM",
        False,
        True,
        "32-128 MiB more on each GPU with tensor parallelism",
    ),
    Change(
        "0.11.0",
        "cudagraph_mode",
        "PIECEWISE",
        "FULL_AND_PIECEWISE",
        "two sets of CUDA graphs are captured, which takes more GPU memory",
    ),
    Change(
        "0.11.0",
        "response_ring",
        "10 x 10 MiB",
        "10 x 24 MiB",
        "each worker's response ring in /dev/shm grows from 100 to 240 MiB (tensor or pipeline parallel)",
    ),
    Change("0.12", "VLLM_FUSED_MOE_CHUNK_SIZE", 32768, 16384, "smaller mixture-of-experts workspace"),
    Change(
        "0.13",
        "VLLM_CPU_KVCACHE_SPACE",
        "4 GiB",
        "half of the NUMA node's memory, whatever the container's limit",
        "a CPU pod with a memory limit is OOM-killed unless the variable is set",
        "CPU backend",
    ),
    Change("0.18", "swap_space", 4.0, None, "the option is gone: passing it is an error at start"),
    Change(
        "0.18",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        None,
        False,
        "the memory of CUDA graphs is estimated and logged, not yet subtracted",
    ),
    Change("0.18", "VLLM_FUSED_MOE_CHUNK_SIZE", 16384, None, "the variable is gone"),
    Change(
        "0.19",
        "safetensors_load_strategy",
        "lazy",
        "lazy, prefetched from network file systems",
        "prefetch fills the page cache of the pod, which is reclaimable",
    ),
    Change(
        "0.19",
        "scheduler_reserve_full_isl",
        None,
        True,
        "a request waits until its whole prompt fits the KV cache",
    ),
    Change(
        "0.20",
        "gpu_memory_utilization",
        0.9,
        0.92,
        "2 % more of the GPU is asked for: the free memory check fails earlier, less is left outside",
    ),
    Change(
        "0.20",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        False,
        True,
        "the estimate for CUDA graphs is subtracted: a smaller KV cache, fewer failures at graph capture",
    ),
    Change(
        "0.20",
        "VLLM_CPU_KVCACHE_SPACE",
        "half of the NUMA node's memory, whatever the container's limit",
        "gpu_memory_utilization x the NUMA node's memory, whatever the container's limit",
        "a CPU pod with a memory limit is OOM-killed unless the variable is set",
        "CPU backend",
    ),
    Change(
        "0.22",
        "model_runner",
        1,
        2,
        _RUNNER_2,
        "unquantized dense Qwen3 models",
    ),
    Change(
        "0.23",
        "model_runner",
        1,
        2,
        _RUNNER_2,
        "Llama and Mistral models",
    ),
    Change(
        "0.24",
        "VLLM_CPU_KVCACHE_SPACE",
        "gpu_memory_utilization x the NUMA node's memory, whatever the container's limit",
        "gpu_memory_utilization x the container's memory limit or the NUMA node's memory",
        "the container's limit is respected",
        "CPU backend",
    ),
    Change(
        "0.25",
        "model_runner",
        1,
        2,
        _RUNNER_2,
        "dense generating models",
    ),
    Change(
        "0.27",
        "gpu_budget",
        "this engine's growth while profiling",
        "all growth on the GPU while profiling",
        "a neighbour that grows during the start is charged to this engine",
    ),
    Change(
        "0.27",
        "shm_space_check",
        None,
        "free /dev/shm must hold each buffer when it is created",
        "a small /dev/shm now refuses the start (160 MiB and 240 MiB buffers) instead of a bus error later",
    ),
    Change(
        "0.27",
        "kv_offload_pool",
        "pinned host memory",
        "one file in /dev/shm",
        "kv_offloading_size must fit /dev/shm",
        "kv_offloading_size is set",
    ),
    Change("0.28", "max_num_batched_tokens", 8192, 16384, "a larger activation peak", "GPUs from 160 GiB"),
    Change(
        "0.29",
        "model_runner",
        1,
        2,
        "runner 2 also estimates CUDA graphs from this release on",
        "all models it supports",
    ),
    Change(
        "0.29",
        "runner2_graph_estimate",
        "none",
        "subtracted from the budget",
        "a smaller KV cache, fewer failures at graph capture",
        "models on runner 2",
    ),
    Change(
        "0.29",
        "VLLM_ALLREDUCE_USE_FLASHINFER",
        False,
        True,
        "a workspace on each GPU with tensor parallelism",
    ),
    Change(
        "0.33",
        "cudagraph_capture_sizes",
        "up to 512",
        "up to 1024",
        "more CUDA graphs",
        "compute capability 10.x",
    ),
    Change("0.33", "max_num_seqs", 1024, 256, _FEWER_SEQUENCES, "GB10"),
)


def what_an_upgrade_changes(old, new):
    """The defaults that differ between two releases, oldest first.

    Returns ``[{option, before, after, why, on, version}]``. old, new: text or tuple; version: the release in
    which it changed; on: for which hardware or use it holds (None: everywhere). A downgrade gives the
    changes backwards. Steps of one option for the same hardware are joined, and left out when they cancel
    out. Empty when a version is unknown.
    """
    first, last = parse_version(old), parse_version(new)
    if first is None or last is None or first == last:
        return []
    backwards = compare(first, last) > 0
    low, high = (last, first) if backwards else (first, last)
    joined: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in CHANGES:
        at = parse_version(row.version)
        if not (compare(low, at) < 0 <= compare(high, at)):
            continue
        key = (row.option, row.on)
        before = joined[key]["before"] if key in joined else row.before
        joined.pop(key, None)
        joined[key] = dict(row._asdict(), before=before)
    rows = [row for row in joined.values() if row["before"] != row["after"]]
    if backwards:
        rows = [
            dict(row, before=row["after"], after=row["before"], why="going back undoes: " + row["why"])
            for row in reversed(rows)
        ]
    return rows
