# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of vLLM's log that carry memory numbers, as one table.

A row is ``(versions, source, pattern)``. The pattern is a regular expression in which ``{name:unit}``
stands for a printed number: name as in ``documents.NUMBERS``, unit as it is to be understood, which is
not always what is printed: vLLM divides by 2^30 even where it prints ``GB``; only lines that really
count 10^9 say ``GB`` here. From shared facts "vllm-memory" sections 3 and 4, read in the releases named.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math
import re

from ..documents import NUMBERS
from ..quantities import GIB, MIB

_SCALES = {
    "GiB": GIB,
    "MiB": MIB,
    "GB": 10**9,
    "bytes": 1,
    "tokens": 1,
    "count": 1,
    "fraction": 1,
    "percent": 0.01,
}
_WHOLE = ("bytes", "tokens", "count")

_GPU_WORKER = "v1/worker/gpu_worker.py"
_V0_WORKER = "worker/worker.py"
_KV_UTILS = "v1/core/kv_cache_utils.py"
_TORCH = "c10/cuda/CUDACachingAllocator.cpp"

ROWS = (
    # 4.1 weights
    ("0.4.1-0.9.2", "worker/model_runner.py", r"Loading model weights took {weights:GiB} Gi?B"),
    ("0.8.0-", "v1/worker/gpu_model_runner.py", r"Model loading took {weights:GiB} Gi?B"),
    ("0.16-", "model_loader/base_loader.py", r"Peak GPU memory after loading weights: {weights_peak:GiB} GiB"),
    ("0.17-", "offloader/uva.py", r"Total CPU offloaded parameters: {cpu_offloaded:GiB}"),
    (
        "0.20-",
        "model_loader/weight_utils.py",
        r"Checkpoint size: {checkpoint:GiB} GiB\. Available RAM: {host_available:GiB} GiB",
    ),
    (
        "0.19-",
        "model_loader/weight_utils.py",
        r"checkpoint total size \({checkpoint:GiB} GiB\) exceeds [\d.]+% of available RAM \({host_available:GiB} GiB\)",
    ),
    # 4.2 profiling result
    (
        "0.6.4",
        _V0_WORKER,
        r"Memory profiling results: total_gpu_memory={gpu_total:GiB}GiB initial_memory_usage=[\d.]+GiB "
        r"peak_torch_memory=[\d.]+GiB memory_usage_post_profile=[\d.]+Gi[bB] non_torch_memory={non_torch:GiB}GiB "
        r"kv_cache_size={kv_available:GiB}GiB gpu_memory_utilization={utilization:fraction}",
    ),
    (
        "0.6.5-0.10.2",
        _V0_WORKER,
        r"total_gpu_memory \({gpu_total:GiB}GiB\) x gpu_memory_utilization \({utilization:fraction}\) = {gpu_requested:GiB}GiB",
    ),
    (
        "0.6.5-0.10.2",
        _V0_WORKER,
        r"model weights take {weights:GiB}GiB; non_torch_memory takes {non_torch:GiB}GiB; PyTorch activation peak memory "
        r"takes {activation_peak:GiB}GiB; the rest of the memory reserved for KV Cache is {kv_available:GiB}GiB",
    ),
    ("0.9.1-", _GPU_WORKER, r"Available KV cache memory: {kv_available:GiB} GiB"),
    (
        "0.10.2-",
        _GPU_WORKER,
        r"Initial free memory {gpu_free:GiB} GiB, reserved {kv_reserved:GiB} ?GiB memory for KV Cache as specified",
    ),
    (
        "0.9.1-",
        "utils/mem_utils.py",
        r"Total non KV cache memory: {non_kv:GiB}GiB; torch peak memory increase: {activation_peak:GiB}GiB; "
        r"non-torch forward increase memory: {non_torch:GiB}GiB; weights memory: {weights:GiB}GiB",
    ),
    (
        "0.27-",
        "utils/mem_utils.py",
        r"Total non KV cache memory: {non_kv:GiB} ?GiB; torch peak memory increase: {activation_peak:GiB} ?GiB",
    ),
    (
        "0.27-",
        "utils/mem_utils.py",
        r"total consumed \(from mem_get_info\)\D*{gpu_consumed:GiB} ?GiB",
    ),
    (
        "0.9.1-",
        _GPU_WORKER,
        r"Initial free memory: {gpu_free:GiB} GiB; Requested memory: {utilization:fraction} \(util\), {gpu_requested:GiB} GiB",
    ),
    (
        "0.9.1-",
        _GPU_WORKER,
        r"Free memory after profiling: {gpu_free_after:GiB} GiB \(total\), {kv_available:GiB} GiB \(within requested\)",
    ),
    # 4.3 summary after warm-up
    (
        "0.10.2-",
        _GPU_WORKER,
        r"Free memory on device \({gpu_free:GiB}/{gpu_total:GiB} GiB\) on startup\. "
        r"Desired GPU memory utilization is \({utilization:fraction}, {gpu_requested:GiB} GiB\)",
    ),
    (
        "0.10.2-0.26",
        _GPU_WORKER,
        r"Actual usage is {weights:GiB} GiB for weight, {activation_peak:GiB} GiB for peak activation, "
        r"{non_torch:GiB} GiB for non-torch memory, and {graph_actual:GiB} GiB for CUDAGraph memory",
    ),
    (
        "0.27-",
        _GPU_WORKER,
        r"Actual usage is {gpu_consumed:GiB} GiB for consumed memory \(weights \+ non-torch\), "
        r"{activation_peak:GiB} GiB for peak activation, and {graph_actual:GiB} GiB for CUDAGraph memory",
    ),
    (
        "0.10.2-",
        _GPU_WORKER,
        r"--kv-cache-memory={kv_fits_requested:bytes}`[^,]* to fit into requested memory, or `--kv-cache-memory={kv_fits_gpu:bytes}`",
    ),
    ("0.10.2", _GPU_WORKER, r"Current kv cache memory in use is {kv_available:bytes} bytes"),
    ("0.11.0-", _GPU_WORKER, r"Current kv cache memory in use is {kv_available:GiB} GiB"),
    # 4.4 CUDA graphs
    (
        "0.6.4-",
        "worker/model_runner.py",
        r"(?<!Encoder g)(?<!Encoder )[Gg]raph capturing finished in [\d.]+ secs?, took {graph_actual:GiB} GiB",
    ),
    ("0.31-", "v1/worker/gpu_model_runner.py", r"Encoder graph capturing finished in [\d.]+ secs?, took {graph_encoder:GiB} GiB"),
    ("0.18-", "v1/worker/gpu_model_runner.py", r"Estimated CUDA graph memory: {graph_estimate:GiB} GiB total"),
    (
        "0.18-",
        _GPU_WORKER,
        r"CUDA graph pool memory: {graph_actual:GiB} GiB \(actual\), {graph_estimate:GiB} GiB \(estimated\)",
    ),
    (
        "0.20-",
        _GPU_WORKER,
        r"--gpu-memory-utilization={utilization:fraction} is equivalent to --gpu-memory-utilization={utilization_without_graphs:fraction} "
        r"without CUDA graph memory profiling",
    ),
    (
        "0.18-0.19.1",
        _GPU_WORKER,
        r"increase --gpu-memory-utilization from {utilization:fraction} to {utilization_with_graphs:fraction} to maintain",
    ),
    (
        "0.20-",
        _GPU_WORKER,
        r"same effective KV cache size as before, increase --gpu-memory-utilization to {utilization_with_graphs:fraction}",
    ),
    # 4.5 KV cache size
    ("0.3.3-0.6.6", "executor/gpu_executor.py", r"# GPU blocks: {kv_blocks:count}"),
    ("0.7.0-0.11.0", "executor/executor_base.py", r"# (?!GPU|CPU)\w+ blocks: {kv_blocks:count}, # CPU blocks"),
    ("0.3.3-0.11.0", "executor/executor_base.py", r"# \w+ blocks: \d+, # CPU blocks: {cpu_blocks:count}"),
    ("0.4.3-0.6.6", "executor/cpu_executor.py", r"^# CPU blocks: {kv_blocks:count}"),
    ("0.8.0-", _KV_UTILS, r"\w+ KV cache size: {kv_tokens:tokens} tokens"),
    (
        "0.6.3-",
        _KV_UTILS,
        r"[Mm]aximum concurrency for {max_len:tokens} tokens per request: {max_concurrency:count}x",
    ),
    ("0.9.0-", "v1/core/kv_cache_utils.py", r"initialization after num_gpu_blocks is: {kv_blocks:count}"),
    (
        "0.4.1-",
        _KV_UTILS,
        r"Overriding num_gpu_blocks={kv_blocks_profiled:count} with num_gpu_blocks_override={kv_blocks:count}",
    ),
    # 4.6 start-up plan
    (
        "0.26-",
        "v1/worker/startup_plan.py",
        r"startup plan \(fingerprint [^)]*\): kv_cache_memory_bytes={kv_reserved:bytes} .*?current {gpu_free:GiB} GiB",
    ),
    (
        "0.26-",
        "v1/worker/startup_plan.py",
        r"Startup plan not applied: current free memory \({gpu_free:GiB} GiB\)",
    ),
    # 4.7 periodic statistics
    (
        "0.3.3-",
        "v1/metrics/loggers.py",
        r"Running: {running:count} reqs, (?:Swapped: \d+ reqs, Pending|(?:Deferred: \d+ reqs, )?Waiting): {waiting:count} reqs",
    ),
    ("0.3.3-", "v1/metrics/loggers.py", r"throughput: .*(?<!CPU )KV cache usage: {kv_usage:percent}%"),
    ("0.11.1-", "v1/metrics/loggers.py", r"Preemptions: {preemptions:count}"),
    (
        "0.4.3-0.10.2",
        "core/scheduler.py",
        r"is preempted by .*total_num_cumulative_preemption={preemptions:count}",
    ),
    # 4.8 and 3.12 host side
    ("0.20-", "v1/kv_offload/cpu/shared_offload_region.py", r"Created mmap file \S+ \({mmap_file:GB} GB\)"),
    ("0.26-", "ec_connector/cpu/ec_shared_region.py", r"Created EC mmap file \S+ \({mmap_file:MiB} MiB\)"),
    (
        "0.19-",
        "v1/simple_kv_offload/worker.py",
        r"[Aa]llocating {cpu_blocks:count} (?:CPU|offload) blocks \({kv_offload:GB} GB",
    ),
    (
        "0.30-",
        "v1/hisparse/runtime.py",
        r"HiSparse pinned host pool needs ~{host_requested:GiB} GiB but only {host_available:GiB} GiB of RAM",
    ),
    (
        "0.17-",
        "offloader/prefetch.py",
        r"\[PrefetchOffloader\].*Total GPU memory saved: {cpu_offloaded:GB} GB",
    ),
    # 3.1 free memory before weights
    (
        "0.9.1-",
        _GPU_WORKER,
        r"Free memory on device (?:\S+ )?\({gpu_free:GiB}/{gpu_total:GiB} GiB\) on startup is less than desired GPU memory "
        r"utilization \({utilization:fraction}, {gpu_requested:GiB} GiB\)",
    ),
    (
        "0.32-",
        "v1/worker/utils.py",
        r"Free memory on device (?:\S+ )?\({gpu_free:GiB}/{gpu_total:GiB} GiB\) on startup is less than the engine's budget "
        r"after excluding external process's weights \({utilization:fraction}, {gpu_requested:GiB} GiB\)",
    ),
    (
        "0.32-",
        "v1/worker/utils.py",
        r"Externally held weights on device (?:\S+ )?\({weights_external:GiB}/{gpu_total:GiB} GiB\) exceed the desired GPU memory "
        r"utilization \({utilization:fraction}, {gpu_requested:GiB} GiB\)",
    ),
    (
        "0.32-",
        "v1/worker/utils.py",
        r"of the {gpu_requested:GiB} GiB utilization budget, {weights_external:GiB} GiB is externally held",
    ),
    # 3.2 memory changed while profiling
    (
        "0.5.5-0.15.1",
        _V0_WORKER,
        r"Initial free memory {gpu_free:bytes}(?: bytes)?, current free memory {gpu_free_after:bytes}(?! GiB|\.\d+ GiB)\b",
    ),
    (
        "0.9.1-",
        _GPU_WORKER,
        r"Initial free memory {gpu_free:GiB} GiB, current free memory {gpu_free_after:GiB} GiB",
    ),
    (
        "0.7.0-0.10.2",
        _V0_WORKER,
        r"Initial used memory {gpu_used:bytes}(?: bytes)?, currently used memory {gpu_used_after:bytes}",
    ),
    (
        "0.29-",
        _GPU_WORKER,
        r"Free memory grew by [\d.]+ GiB during profiling \(initial {gpu_free:GiB} GiB, current {gpu_free_after:GiB} GiB\)",
    ),
    # 3.3 and 3.20: what the driver says of the card when an allocation fails
    ("all", _TORCH, r"has a total capaci?ty of {gpu_total:GiB} GiB"),
    # 3.5 the KV cache does not fit
    (
        "0.7.0-0.8.2",
        _KV_UTILS,
        r"max seq len \({max_len:tokens}\), \({kv_needed:GiB} Gi?B KV cache is needed, which is larger than the available KV cache "
        r"memory \({kv_available:GiB} Gi?B\)",
    ),
    ("0.8.4-", _KV_UTILS, r"estimated maximum model length is {estimated_max_len:tokens}"),
    (
        "0.3.3-0.10.2",
        _V0_WORKER,
        r"max seq len \({max_len:tokens}\) is larger than the maximum number of tokens that can be stored in KV cache "
        r"\({kv_tokens:tokens}\)",
    ),
    # 3.6 automatic context length
    (
        "0.14-",
        _KV_UTILS,
        r"Auto-fit max_model_len: full model context length {max_len:tokens} fits in available \w+(?: \w+)* memory"
        r"(?: \({kv_available:GiB} GiB)?",
    ),
    (
        "0.14-",
        _KV_UTILS,
        r"Auto-fit max_model_len: reduced from {max_len:tokens} to {estimated_max_len:tokens} to fit in available "
        r"\w+(?: \w+)* memory \({kv_available:GiB} GiB",
    ),
    # 3.7 memory set aside for multimodal decoding
    (
        "0.25-",
        "multimodal/gpu_ipc_memory.py",
        r"Reserving {mm_reserved:GiB} GiB of GPU memory .*KV cache memory reduced to {kv_available:GiB} GiB",
    ),
    (
        "0.25-",
        "multimodal/gpu_ipc_memory.py",
        r"GPU decoding reserves {mm_reserved:GiB} GiB .*but only {kv_available:GiB} GiB is available",
    ),
    # 3.13 /dev/shm
    (
        "0.27-",
        "distributed/device_communicators/shm_broadcast.py",
        r"Insufficient space in \S+(?: for [^:]+)?: {shm_needed:MiB} MiB required, {shm_free:MiB} MiB free",
    ),
    (
        "0.31-",
        "utils/cpu_resource_utils.py",
        r"Cgroup memory preflight for [^:]+: {host_requested:MiB} MiB required, {cgroup_usage:MiB} MiB current usage, "
        r"[\d.]+ MiB available under {cgroup_limit:MiB} MiB limit",
    ),
    # 3.16 swap space
    (
        "0.3.3-0.17.1",
        "config/cache.py",
        r"oo large swap space\. {swap_space:GiB} GiB out of the {host_total:GiB} GiB total CPU memory",
    ),
    # 3.17 CPU backend
    ("0.13-0.19.1", "platforms/cpu.py", r"VLLM_CPU_KVCACHE_SPACE not set\. Using {kv_reserved:GiB} GiB"),
    ("0.4.1-0.12", "platforms/cpu.py", r"VLLM_CPU_KVCACHE_SPACE \(Gi?B\) .*is not set, using {kv_reserved:GiB} by default"),
    (
        "0.20-0.32",
        "v1/worker/cpu_worker.py",
        r"Available memory on node \S+ \({host_available:GiB}/{host_total:GiB} GiB\) on startup is less than desired CPU memory "
        r"utilization \({utilization:fraction}, {host_requested:GiB} GiB\)",
    ),
    (
        "0.20-",
        "v1/worker/cpu_worker.py",
        r"Available memory on node \S+ \({host_available:GiB}/{host_total:GiB} GiB\) on kv cache allocation is less than requested "
        r"memory for kv \({kv_reserved:GiB}(?:/{host_requested:GiB})? GiB\)",
    ),
    (
        "0.33-",
        "v1/worker/cpu_worker.py",
        r"worker already uses {weights:GiB} GiB \(model weights and runtime\), more than the {host_requested:GiB} GiB of CPU memory",
    ),
    (
        "0.20-",
        "v1/worker/cpu_worker.py",
        r"(?:Auto|Explicitly) set \({kv_available:GiB}/[\d.]+\) GiB for KV cache on node \S+, with {host_requested:GiB} GiB requested "
        r"memory for the worker\. {non_kv:GiB} GiB memory was consumed",
    ),
)  # fmt: skip

_PLACE = re.compile(r"\{(\w+):(\w+)\}")
_FORMS = {"tokens": r"\d[\d,]*", "bytes": r"\d+"}
_ANY_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def _compile(pattern):
    units = {}

    def group(found):
        name, unit = found.groups()
        units[name] = unit
        return f"(?P<{name}>{_FORMS.get(unit, _ANY_NUMBER)})"

    return re.compile(_PLACE.sub(group, pattern)), units


_COMPILED = tuple(_compile(pattern) for _versions, _source, pattern in ROWS)


def numbers_in(text):
    """The memory numbers of one log message, as a list of ``{name, value, unit}`` in the order of the table.

    value: bytes and counts as int, fractions and concurrency as float.
    """
    found, seen = [], set()
    for pattern, units in _COMPILED:
        match = pattern.search(text)
        if not match:
            continue
        for name, unit in units.items():
            printed = match.group(name)
            if printed is None or name in seen:
                continue
            value = _value(printed, unit, NUMBERS[name])
            if value is not None:
                seen.add(name)
                found.append({"name": name, "value": value, "unit": NUMBERS[name]})
    return found


def _value(printed, unit, measure):
    """The number in ``measure``'s unit; None for digits without end, which no engine prints."""
    value = float(printed.replace(",", "")) * _SCALES[unit]
    if not math.isfinite(value):
        return None
    if measure in _WHOLE and (unit != "count" or value.is_integer()):
        return round(value)
    return round(value, 6)
