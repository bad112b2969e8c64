# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of messages: what a line says, and what may be concluded from it.

One row a message. ``kind`` says what a row is good for:

* ``root``: names what went wrong. With a ``family`` the message alone does not settle the cause: the phase, the
  numbers and the settings do (see ``resolve``), and ``cause`` is at most the usual one.
* ``refines``: printed after a root by the code around it, and says more exactly what that root was.
* ``cascade``: a consequence, or a generic end; the root is elsewhere.
* ``context``: worth knowing. With ``cause`` it becomes the diagnosis when nothing stronger is found.
* ``false_friend``: sounds like memory and is not.

Sources: "vllm" sections are those of the facts sheet on vLLM's messages (read in the vLLM releases named in
``versions``), "k8s" those of the sheet on Kubernetes, kernel, NVIDIA and NCCL.
"""

from __future__ import annotations

import re
from collections import namedtuple
from functools import cache

from .causes import NATURE

Signature = namedtuple("Signature", "id kind cause family memory phase pattern flags versions groups source")
Match = namedtuple("Match", "signature groups text")

_NUM = r"(-?[\d.]+)"


def _row(
    id,
    kind,
    pattern,
    cause=None,
    family=None,
    memory=None,
    phase=None,
    versions=None,
    groups=None,
    source=None,
    flags=0,
):
    memory = memory or (NATURE[cause].memory if cause else None)
    return Signature(id, kind, cause, family, memory, phase, pattern, flags, versions, groups or {}, source)


SIGNATURES = (
    # -- advice and progress lines that only sound like trouble; first, so that they shadow nothing below -----------
    _row(
        "graphs_take_memory_advice",
        "false_friend",
        r"CUDA graphs can take additional 1~3 GiB memory per GPU",
        versions="0.3.3-0.6.3",
        source="vllm 3.4",
    ),
    _row(
        "oom_during_capture_advice",
        "false_friend",
        r"If out-of-memory error occurs during cudagraph capture",
        phase="graph_capture",
        versions="0.6.4-0.10.2",
        source="vllm 3.4",
    ),
    _row(
        "long_context_warning",
        "false_friend",
        r"has a long context length .*This may cause ?OOM",
        versions="0.5.5-0.10.2",
        source="vllm 3.19",
    ),
    _row(
        "free_memory_summary",
        "false_friend",
        r"Free memory on device .*on startup\. Desired GPU memory utilization is",
        versions="0.10.2-0.33",
        source="vllm 4.3",
    ),
    _row(
        "module_path_named_oom",
        "false_friend",
        r"(?:import|from) \S*(?:OutOfMemory|oom)\S* ",
        source="vllm 3.21",
    ),
    # -- free memory before the model is looked at ----------------------------------------------------------------
    _row(
        "free_below_desired",
        "root",
        r"Free memory on device(?: (?P<device>\S+))? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
        r"(?:desired GPU memory utilization|the engine's budget after excluding external process's weights) "
        r"\((?P<utilization>[\d.]+), (?P<requested>[\d.]+) GiB\)",
        cause="gpu_free_below_util",
        phase="load",
        versions="0.9.1-0.33",
        groups={"free": "GiB", "total": "GiB", "utilization": "fraction", "requested": "GiB"},
        source="vllm 3.1",
    ),
    _row(
        "external_weights_exceed_budget",
        "root",
        r"Externally held weights on device \S+ \((?P<held>[\d.]+)/(?P<total>[\d.]+) GiB\) exceed the desired GPU memory "
        r"utilization \((?P<utilization>[\d.]+), (?P<requested>[\d.]+) GiB\)",
        cause="kv_no_blocks",
        phase="load",
        versions="0.32-0.33",
        groups={"held": "GiB", "total": "GiB", "utilization": "fraction", "requested": "GiB"},
        source="vllm 3.1",
    ),
    _row(
        "external_weights_budget",
        "context",
        r"Weights are held outside this process: of the",
        versions="0.32-0.33",
        source="vllm 3.1",
    ),
    # -- profiling assertions -------------------------------------------------------------------------------------
    _row(
        "profiling_memory_changed",
        "root",
        r"Error in memory profiling\.(?: Initial (?P<what>free|used) memory (?P<initial>[\d.]+)(?: GiB)?,"
        r" current(?:ly)? (?:free|used) memory (?P<current>[\d.]+))?",
        cause="profiling_memory_changed",
        phase="profile",
        versions="0.4.1-0.33",
        groups={"initial": "bytes, GiB from 0.9.1", "current": "bytes, GiB from 0.9.1"},
        source="vllm 3.2",
    ),
    _row(
        "profiling_memory_grew",
        "context",
        r"Free memory grew by .* GiB during profiling",
        versions="0.29-0.33",
        source="vllm 3.2",
    ),
    # -- weights --------------------------------------------------------------------------------------------------
    _row(
        "not_enough_memory_for_weights",
        "refines",
        r"Failed to load model - not enough GPU memory",
        cause="gpu_weights_oom",
        phase="load",
        versions="0.13-0.33",
        source="vllm 3.3",
    ),
    _row(
        "create_linear_weights_failed",
        "root",
        r"Failed to create unquantized linear weights|Failed to initialize q/k/v range constants",
        cause="gpu_weights_oom",
        phase="load",
        versions="0.11.0",
        source="vllm 3.3",
    ),
    _row(
        "tpu_model_too_large",
        "root",
        r"Unable to load model, a likely reason is the model is too large for the current device's HBM",
        cause="accelerator_hbm_oom",
        phase="load",
        versions="0.10.0-0.13",
        source="vllm 3.3",
    ),
    _row(
        "weight_daemon_unreachable",
        "context",
        r"Cannot query weight cache daemon memory",
        versions="0.32-0.33",
        source="vllm 3.3",
    ),
    # -- warm-up and graphs ---------------------------------------------------------------------------------------
    _row(
        "sampler_warmup_oom",
        "refines",
        r"CUDA out of memory occurred when warming up (?P<what>sampler|pooler)(?: \(task=(?P<task>[^)]*)\))?"
        r"(?: with (?P<requests>\d+) dummy requests)?",
        cause="sampler_warmup_oom",
        phase="warmup",
        versions="0.8.0-0.33",
        groups={"requests": "count"},
        source="vllm 3.4",
    ),
    _row(
        "mamba_blocks_below_seqs",
        "root",
        r"max_num_seqs \((?P<seqs>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)",
        cause="kv_no_blocks",
        phase="graph_capture",
        versions="0.20-0.33",
        groups={"seqs": "count", "blocks": "count"},
        source="vllm 3.4",
    ),
    _row(
        "mamba_graphs_capped",
        "context",
        r"Capping cudagraph capture sizes from max|No valid cudagraph capture sizes remain",
        versions="0.18-0.19.1",
        source="vllm 3.4",
    ),
    _row(
        "gdn_warmup_failed",
        "context",
        r"GDN prefill kernel warmup .* failed",
        versions="0.18-0.33",
        source="vllm 3.4",
    ),
    # -- KV cache -------------------------------------------------------------------------------------------------
    _row(
        "cpu_no_blocks",
        "root",
        r"No available memory for the cache blocks\. Try increasing .?(?P<variable>VLLM_(?:CPU|OPENVINO)_KVCACHE_SPACE)",
        cause="cpu_backend_kv",
        phase="kv_init",
        versions="0.4.1-0.9.2",
        source="vllm 3.5",
    ),
    _row(
        "kv_no_blocks",
        "root",
        r"No available memory for the cache blocks",
        cause="kv_no_blocks",
        phase="kv_init",
        versions="0.3.3-0.33",
        source="vllm 3.5",
    ),
    _row(
        "cpu_max_seq_len_above_kv",
        "root",
        r"max seq len \((?P<max_model_len>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
        r"cache \((?P<tokens>\d+)\)\. Try increasing .?VLLM_(?:CPU|OPENVINO)_KVCACHE_SPACE",
        cause="cpu_backend_kv",
        phase="kv_init",
        versions="0.4.1-0.9.2",
        groups={"max_model_len": "tokens", "tokens": "tokens"},
        source="vllm 3.5",
    ),
    _row(
        "max_seq_len_above_kv",
        "root",
        r"max seq len \((?P<max_model_len>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
        r"cache \((?P<tokens>\d+)\)",
        cause="kv_max_len",
        phase="kv_init",
        versions="0.3.3-0.10.2",
        groups={"max_model_len": "tokens", "tokens": "tokens"},
        source="vllm 3.5",
    ),
    _row(
        "kv_below_one_sequence",
        "root",
        rf"To serve at least one request with the models?'s max seq len \((?P<max_model_len>\d+)\), \((?P<needed>{_NUM}) "
        rf"Gi?B KV cache is needed, which is larger than the available KV cache memory \((?P<available>{_NUM}) Gi?B\)"
        r"(?:.*estimated maximum model length is (?P<estimate>\d+))?",
        cause="kv_max_len",
        phase="kv_init",
        versions="0.7.0-0.33",
        groups={
            "max_model_len": "tokens",
            "needed": "GiB",
            "available": "GiB",
            "estimate": "tokens",
        },
        source="vllm 3.5",
    ),
    _row(
        "kv_available_negative",
        "context",
        r"Available KV cache memory: -[\d.]+ GiB",
        cause="kv_no_blocks",
        phase="kv_init",
        versions="0.9.1-0.33",
        source="vllm 0.3, 4.2",
    ),
    _row(
        "auto_fit_impossible",
        "root",
        r"Cannot auto-fit max_model_len: not enough GPU memory",
        cause="kv_no_blocks",
        phase="kv_init",
        versions="0.14-0.33",
        source="vllm 3.6",
    ),
    _row(
        "auto_fit_result",
        "context",
        r"Auto-fit max_model_len:",
        versions="0.14-0.33",
        source="vllm 3.6",
    ),
    _row(
        "kv_layout_unsupported",
        "root",
        r"KV cache layout \S+ cannot express this model's mixed page sizes|"
        r"failed to convert the KV cache specs to one unified type",
        cause="not_memory_config",
        phase="kv_init",
        versions="0.9.1-0.33",
        source="vllm 3.5",
    ),
    _row(
        "kv_full_for_window_layers",
        "context",
        r"Hybrid KV cache manager is disabled for this hybrid model|KV cache page sizes cannot be unified|"
        r"Add \d+ padding layers, may waste",
        versions="0.9.1-0.33",
        source="vllm 3.5",
    ),
    _row(
        "blocks_overridden",
        "context",
        r"Overriding num_gpu_blocks=(?P<blocks>\d+) with num_gpu_blocks_override=(?P<override>\d+)",
        versions="0.4.1-0.33",
        groups={"blocks": "count", "override": "count"},
        source="vllm 3.5",
    ),
    # -- multimodal -----------------------------------------------------------------------------------------------
    _row(
        "encoder_budget",
        "context",
        r"Encoder cache will be initialized with a budget of|Skipping memory profiling for multimodal encoder|"
        r"Reserving .* GiB of GPU memory for frontend multimodal decoding",
        versions="0.7.0-0.33",
        source="vllm 3.7",
    ),
    _row(
        "mm_item_above_batch",
        "root",
        r"Chunked MM input disabled but max_tokens_per_mm_item",
        cause="not_memory_config",
        phase="load",
        versions="0.8.4-0.33",
        source="vllm 3.7",
    ),
    _row(
        "mm_item_above_encoder_cache",
        "context",
        r"exceeds the pre-allocated encoder cache size|mm_input \S+ too large to cache",
        versions="0.16-0.33",
        source="vllm 3.7",
    ),
    _row(
        "mm_decode_reserve_too_large",
        "root",
        r"frontend multimodal GPU decoding reserves (?P<reserved>[\d.]+) GiB .* but only (?P<available>-?[\d.]+) GiB is "
        r"available for the KV cache",
        cause="kv_no_blocks",
        phase="kv_init",
        versions="0.25-0.33",
        groups={"reserved": "GiB", "available": "GiB"},
        source="vllm 3.7",
    ),
    _row(
        "mm_decode_pool_too_small",
        "root",
        r"Multimodal GPU decode requested \d+ bytes, which exceeds the total pool size|"
        r"Not enough space in the data buffer, try calling free_buf\(\)",
        cause="slot_limit",
        phase="serving",
        versions="0.11-0.33",
        source="vllm 3.7",
    ),
    # -- LoRA and other slots -------------------------------------------------------------------------------------
    _row(
        "adapter_slots_used_up",
        "root",
        r"No free (?:lora|LoRA|adapter) slots|Number of requested LoRAs \(\d+\) is greater than the number of GPU LoRA slots",
        cause="slot_limit",
        phase="serving",
        versions="0.3.3-0.33",
        source="vllm 3.8",
    ),
    _row(
        "lora_configuration",
        "root",
        r"LoRA rank \d+ is greater than max_lora_rank|max_cpu_loras \(\d+\) must be >= max_loras|"
        r"V0 LoRA does not support CPU offload",
        cause="not_memory_config",
        phase="load",
        versions="0.3.3-0.33",
        source="vllm 3.8",
    ),
    _row(
        "kv_blocks_used_up",
        "root",
        r"Out of memory! No free blocks are available|No free blocks available|Cannot get \d+ free blocks from the pool",
        cause="slot_limit",
        phase="serving",
        versions="0.3.3-0.33",
        source="vllm 3.18",
    ),
    # -- sleep mode and allocator settings ------------------------------------------------------------------------
    _row(
        "cumem_oom",
        "root",
        r"CUDA Error: out of memory at \S*cumem_allocator\.cpp|wake_up method failed: .*out of memory",
        cause="sleep_wakeup_oom",
        family="cumem_oom",
        versions="0.7.0-0.33",
        source="vllm 3.9",
    ),
    _row(
        "memory_grew_while_sleeping",
        "root",
        r"Memory usage increased after sleeping",
        cause="sleep_wakeup_oom",
        phase="serving",
        versions="0.7.0-0.33",
        source="vllm 3.9",
    ),
    _row(
        "cumem_one_instance",
        "root",
        r"(?:Sleep mode|CuMem allocator) can only be used for one instance per process",
        cause="not_memory_config",
        phase="load",
        versions="0.7.0-0.33",
        source="vllm 3.9",
    ),
    _row(
        "expandable_segments_incompatible",
        "root",
        r"Expandable segments are not compatible with memory pool|is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable",
        cause="allocator_conf_side_effect",
        phase="load",
        versions="0.8.0-0.33",
        source="vllm 3.9",
    ),
    _row(
        "sleep_mode_report",
        "context",
        r"Sleep mode freed|MemAllocator: sleep freed|NCCL_GRAPH_REGISTER=\S+ pins the CUDA graph pool",
        versions="0.7.0-0.33",
        source="vllm 3.9",
    ),
    # -- kernels and workspaces -----------------------------------------------------------------------------------
    _row(
        "workspace_locked",
        "root",
        r"Workspace is locked but",
        cause="kernel_workspace_overflow",
        phase="serving",
        versions="0.13-0.33",
        source="vllm 3.10",
    ),
    _row(
        "flashinfer_workspace",
        "root",
        r"Buffer overflow when allocating memory for (?P<buffer>\S+) with size (?P<size>\d+) and alignment \d+, but only "
        r"(?P<available>\d+) bytes available|Increase the workspace buffer size|Out of workspace memory in Aligned\w+",
        cause="kernel_workspace_overflow",
        groups={"size": "bytes", "available": "bytes"},
        source="flashinfer allocator.h",
    ),
    _row(
        "kernel_out_of_resources",
        "root",
        r"out of resources?: shared memory(?:, Required: (?P<required>\d+), Hardware limit: (?P<limit>\d+))?|"
        r"Ran out of memory in memory space (?:vmem|smem)|(?:scoped|vmem|smem)[^\n]{0,40} (?:exceeded|limit)",
        cause="kernel_shared_memory",
        groups={"required": "bytes", "limit": "bytes"},
        source="vllm 3.21",
    ),
    _row(
        "attention_workspace",
        "context",
        r"TokenSpeed MLA decode workspace",
        versions="0.32-0.33",
        source="vllm 3.10",
    ),
    # -- collectives ----------------------------------------------------------------------------------------------
    _row(
        "nccl_out_of_memory",
        "root",
        r"NCCL error: out of memory|NCCL error.{0,120}out of memory",
        cause="nccl_gpu_oom",
        source="the runbook; vllm 3.11",
    ),
    _row(
        "nvls_bind_out_of_memory",
        "root",
        r"Failed to bind NVLink SHARP.*CUDA error 2 ",
        cause="nccl_gpu_oom",
        source="k8s 10.4",
    ),
    _row(
        "nvls_bind_failed",
        "root",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ : CUDA error (?P<code>\d+)",
        cause="nccl_not_memory",
        groups={"code": "CUDA driver error code"},
        source="k8s 10.4",
    ),
    _row(
        "nccl_cuda_malloc",
        "root",
        r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:malloc|calloc) (?:async )?\d+ bytes",
        cause="nccl_gpu_oom",
        source="k8s 10.4",
    ),
    _row(
        "nccl_host_malloc",
        "root",
        r"Failed to CUDA host alloc \d+ bytes",
        cause="host_pin_limit",
        source="k8s 10.4",
    ),
    _row(
        "nccl_plain_malloc",
        "root",
        r"NCCL WARN Failed to malloc \d+ bytes|^Failed to malloc \d+ bytes",
        cause="host_oom_load",
        family="host_alloc",
        source="k8s 10.4",
    ),
    _row(
        "nccl_shm_segment",
        "root",
        r"failed to extend /dev/shm/nccl-\S+ to (?P<size>\d+) bytes|"
        r"Error while creating shared memory segment /dev/shm/nccl-|"
        r"Call to posix_fallocate failed : No space left on device|\(?ncclShmOpen\)?",
        cause="shm_exhausted",
        source="k8s 10.4",
    ),
    _row(
        "nccl_shm_not_mapped",
        "root",
        r"Could not map /dev/shm/\S+ size \d+, error: Cannot allocate memory",
        cause="host_oom_load",
        family="host_alloc",
        source="k8s 10.4",
    ),
    _row(
        "nccl_shm_attach",
        "root",
        r"Error while attaching to shared memory segment /dev/shm/nccl-|Could not map /dev/shm/\S+ size \d+",
        cause="nccl_not_memory",
        source="k8s 10.4; NVIDIA/nccl issue 2190",
    ),
    _row(
        "rdma_registration",
        "root",
        r"ibv_(?:reg_mr\w*|create_cq|create_qp) failed.*(?:Cannot allocate memory|errno 12)|"
        r"(?:UCX|uct|NIXL).{0,200}(?:register|ibv_reg_mr).{0,200}(?:Cannot allocate memory|memlock)",
        cause="memlock_limit",
        source="k8s 10.4",
    ),
    _row(
        "memory_registration",
        "root",
        r"[Ff]ailed to register memory\b.*(?:Cannot allocate memory|\[12\]|errno 12)",
        cause="memlock_limit",
        source="Mooncake, UCX",
    ),
    _row(
        "nccl_cuda_failure",
        "root",
        # An illegal access or a launch failure is an earlier kernel's fault, whoever notices it: see cuda_fault.
        r"Cuda failure (?:\d+ )?'(?P<text>(?!out of memory|an illegal memory access|unspecified launch failure)[^']+)'",
        cause="nccl_not_memory",
        groups={"text": "CUDA error text"},
        source="k8s 10.4",
    ),
    _row(
        "duplicate_gpu",
        "root",
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        cause="not_memory_config",
        source="k8s 10.4",
    ),
    _row(
        "nccl_no_interface",
        "root",
        r"Bootstrap : no socket interface found|Failed to initialize any NET plugin|"
        r"unable to find (?:an )?interface|Unable to find address for|Unable to resolve hostname|"
        r"\[?gloo\]?.{0,80}connectFullMesh failed|Gloo connectFullMesh failed",
        cause="nccl_not_memory",
        source="k8s 10.4",
        flags=re.IGNORECASE,
    ),
    _row(
        "nccl_watchdog_timeout",
        "root",
        r"Watchdog caught collective operation timeout|Heartbeat monitor timed out|watchdog got stuck for|NCCL timeout in communicator initialization|"
        r"NCCL error(?:: | in: [^,]{1,200}, )timeout\b|Timeout at NCCL work|wait timeout after \d+ms|Timed out waiting \d+ms for (?:recv|send)",
        cause="nccl_not_memory",
        groups={},
        source="torch ProcessGroupNCCL",
    ),
    _row(
        "nccl_peer_gone",
        "cascade",
        r"remote process exited or there was a network error|Connection closed by remote peer|socketProgress: |"
        r"ncclRemoteError|NCCL communicator was aborted on rank|Connection reset by peer|Connection closed by peer",
        source="k8s 10.4",
    ),
    _row(
        "shm_segment_gone",
        "context",
        r"unlink shared memory /dev/shm/nccl-\S+ failed",
        source="k8s 10.4",
    ),
    _row(
        "nccl_generic",
        "root",
        r"NCCL error.*(?P<what>unhandled cuda error|unhandled system error|internal error|invalid usage|invalid argument)",
        family="nccl_generic",
        source="k8s 10.4",
    ),
    _row(
        "nccl_interpretation",
        "context",
        r"nccl(?:UnhandledCuda|System|Internal)Error|ncclInvalid(?:Usage|Argument)",
        source="k8s 10.4",
    ),
    _row(
        "collective_fallback",
        "context",
        r"SymmMemCommunicator: |Custom allreduce is disabled|Failed to initialize FlashInfer All ?[Rr]educe|"
        r"Failed to compile NCCL memory allocator|AITER MegaMoE: MORI_SHMEM_HEAP_SIZE|"
        r"cuMem host allocations do not appear to be working|NCCL_CUMEM_ENABLE explicitly set to 1",
        versions="0.3.3-0.33",
        source="vllm 3.11",
    ),
    # -- KV offload, weight offload, pinned memory ----------------------------------------------------------------
    _row(
        "offload_configuration",
        "root",
        r"cpu_bytes_to_use must be specified|You must set kv_offloading_size when kv_offloading_backend",
        cause="not_memory_config",
        phase="load",
        versions="0.11.1-0.33",
        source="vllm 3.12",
    ),
    _row(
        "offload_peer_died",
        "cascade",
        r"Timed out waiting for mmap file to reach \d+ bytes",
        versions="0.20-0.33",
        source="vllm 3.12",
    ),
    _row(
        "pin_refused",
        "root",
        r"Unable to pin host memory|alloc_pinned_ptr|register ptr failed|aclrtHostRegister|"
        r"cudaHostAlloc\w*.{0,60}(?:fail|error|invalid)",
        cause="host_pin_limit",
        source="LMCache, vllm utils",
    ),
    _row(
        "offload_pool_full",
        "root",
        r"Failed to allocate memory for tensor\b.*because no memory is available",
        cause="kv_swap_pool_exhausted",
        phase="serving",
        source="LMCache",
    ),
    _row(
        "host_register_refused",
        "root",
        r"cudaHostRegister failed: (?P<error>.+)",
        cause="host_pin_limit",
        phase="kv_init",
        versions="0.19-0.33",
        source="vllm 3.12",
    ),
    _row(
        "host_register_pageable",
        "context",
        r"(?:cudaHostRegister|host_register) failed for rank=",
        cause="host_pin_limit",
        phase="kv_init",
        versions="0.20-0.33",
        source="vllm 3.12",
    ),
    _row(
        "hisparse_host_pool",
        "root",
        r"HiSparse pinned host pool needs ~(?P<needed>[\d.]+) GiB but only (?P<available>[\d.]+) GiB of RAM is available",
        cause="host_oom_offload",
        phase="kv_init",
        versions="0.30-0.33",
        groups={"needed": "GiB", "available": "GiB"},
        source="vllm 3.12",
    ),
    _row(
        "hisparse_pool_blocks",
        "root",
        r"HiSparse host pool has (?P<blocks>\d+) blocks but max_model_len needs (?P<needed>\d+)",
        cause="kv_swap_pool_exhausted",
        phase="kv_init",
        versions="0.31-0.33",
        groups={"blocks": "count", "needed": "count"},
        source="vllm 3.12",
    ),
    _row(
        "offload_pool",
        "context",
        r"Created (?:EC )?mmap file (?P<path>\S+) \((?P<size>[\d.]+) (?P<unit>[GM]i?B)\)|Opened existing mmap file|"
        r"Removed mmap file|SimpleCPUOffload\w+: |cpu_bytes_to_use_per_rank|HiSparse HMA:|Total CPU offloaded parameters|"
        r"\[PrefetchOffloader\]|Engram table offloaded to pinned host memory",
        versions="0.17-0.33",
        groups={"size": "GB (10^9) or MiB"},
        source="vllm 3.12",
    ),
    _row(
        "transfer_pool_full",
        "context",
        r"Recv Tensor, Out Of Memory|Send Tensor, Peer Out Of Memory|^(?:ValueError: )?Insufficient memory$|"
        r"CPU offloading pressure",
        versions="0.9.2-0.23",
        source="vllm 3.12",
    ),
    # -- /dev/shm -------------------------------------------------------------------------------------------------
    _row(
        "shm_insufficient",
        "root",
        r"Insufficient space in (?P<path>\S+?)(?: for (?P<what>[^:]+))?: (?:[\d.]+/)?(?P<needed>[\d.]+) MiB required, (?P<free>[\d.]+) "
        r"MiB free",
        cause="shm_exhausted",
        versions="0.27-0.33",
        groups={"needed": "MiB", "free": "MiB"},
        source="vllm 3.13",
    ),
    _row(
        "cgroup_preflight",
        "context",
        r"Cgroup memory preflight for",
        versions="0.31-0.33",
        source="vllm 3.13",
    ),
    _row(
        "ray_store_above_shm",
        "root",
        r"System memory request exceeds memory available in /dev/shm\. The request is for (?P<needed>\d+) bytes, and the "
        r"amount available is (?P<free>\d+) bytes",
        cause="shm_exhausted",
        phase="load",
        groups={"needed": "bytes", "free": "bytes"},
        source="Ray store_runner.cc",
    ),
    _row(
        "bus_error",
        "root",
        r"\b[Bb]us error\b|SIGBUS|exit(?: |_)?code:? (?:-7|135)\b",
        family="bus_error",
        source="vllm 3.13",
    ),
    _row(
        "tmpfs_refused_pages",
        "root",
        r"OSError: \[Errno 14\] Bad address",
        family="tmpfs_refused_pages",
        source="vllm 3.12; kernel madvise(2)",
    ),
    _row(
        "no_space",
        "root",
        r"No space left on device|\[Errno 28\]",
        family="no_space",
        source="vllm 3.20",
    ),
    _row(
        "shm_default_size",
        "context",
        r"/dev/shm has only (?P<bytes>\d+) bytes available",
        groups={"bytes": "bytes"},
        source="Ray services.py",
    ),
    _row(
        "shm_leftovers",
        "context",
        r"\s(?:psm_[0-9a-f]{8}|nccl-\w{6}|vllm_offload_\S+\.mmap)$",
        source="vllm 3.13",
    ),
    _row(
        "shm_broadcast_wait",
        "context",
        r"No available shared memory broadcast block found ?in",
        cause="not_memory_hang",
        versions="0.8.2-0.33",
        source="vllm 3.15",
    ),
    # -- swap space (V0) and the CPU backend ----------------------------------------------------------------------
    _row(
        "swap_space_too_large",
        "root",
        r"(?<!Possibly )[Tt]oo large swap space\. (?P<swap>[\d.]+) GiB out of the (?P<total>[\d.]+) GiB total CPU memory",
        cause="host_oom_offload",
        phase="load",
        versions="0.3.3-0.17.1",
        groups={"swap": "GiB", "total": "GiB"},
        source="vllm 3.16",
    ),
    _row(
        "swap_space_large",
        "context",
        r"Possibly too large swap space\. (?P<swap>[\d.]+) GiB out of the (?P<total>[\d.]+) GiB total CPU memory",
        versions="0.3.3-0.17.1",
        groups={"swap": "GiB", "total": "GiB"},
        source="vllm 3.16",
    ),
    _row(
        "swap_pool_exhausted",
        "root",
        r"Aborted due to the lack of CPU swap space",
        cause="kv_swap_pool_exhausted",
        phase="serving",
        versions="0.3.3-0.10.2",
        source="vllm 3.16",
    ),
    _row(
        "cpu_kv_space_default",
        "context",
        r"VLLM_CPU_KVCACHE_SPACE (?:\(\w+\) for CPU backend is )?not set",
        versions="0.4.1-0.19.1",
        source="vllm 3.17",
    ),
    _row(
        "cpu_kv_space_invalid",
        "root",
        r"Invalid environment variable VLLM_CPU_KVCACHE_SPACE",
        cause="not_memory_config",
        phase="load",
        versions="0.4.1-0.9.2",
        source="vllm 3.17",
    ),
    _row(
        "cpu_memory_below_desired",
        "root",
        r"Available memory on node \S+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on (?P<when>startup|kv cache allocation) is "
        r"less than (?:desired CPU memory utilization|requested memory for kv)",
        cause="host_oom_cpu_backend",
        versions="0.20-0.33",
        groups={"free": "GiB", "total": "GiB"},
        source="vllm 3.17",
    ),
    _row(
        "cpu_worker_over_budget",
        "root",
        r"The worker already uses (?P<used>[\d.]+) GiB .*more than the (?P<budget>[\d.]+) GiB of CPU memory reserved",
        cause="host_oom_cpu_backend",
        phase="kv_init",
        versions="0.33",
        groups={"used": "GiB", "budget": "GiB"},
        source="vllm 3.17",
    ),
    _row(
        "cpu_kv_set",
        "context",
        r"(?:Auto|Explicitly) set \([\d.]+/[\d.]+\) GiB for KV cache on node",
        versions="0.20-0.33",
        source="vllm 3.17",
    ),
    # -- pressure while serving, request errors -------------------------------------------------------------------
    _row(
        "preempted",
        "context",
        r"is preempted by PreemptionMode|Preemptions: \d+|Failing the request \S+ because there's not enough kv cache",
        versions="0.4.3-0.33",
        source="vllm 3.18",
    ),
    _row(
        "prompt_too_long",
        "context",
        r"Input prompt \(\d+ tokens\).*is too long|maximum context length is \d+ tokens",
        versions="0.3.3-0.33",
        source="vllm 3.18",
    ),
    _row(
        "size_configuration",
        "root",
        r"max_num_batched_tokens \(\d+\) (?:is smaller than max_model_len|must be greater than or equal to max_num_seqs)|"
        r"User-specified max_model_len \(\d+\) is greater than the derived|"
        r"GPU memory utilization must be less than 1\.0|gpu_memory_utilization[\s\S]{0,80}(?:less than or equal to 1|greater than 0)|"
        r"CPU offload space must be non-negative|max_num_active_seqs \(\d+\) cannot be greater than",
        cause="not_memory_config",
        phase="load",
        versions="0.3.3-0.33",
        source="vllm 3.19",
    ),
    _row(
        "batch_above_sequences",
        "context",
        r"max_num_batched_tokens \(\d+\) exceeds max_num_seqs ?\* max_model_len",
        versions="0.9.0-0.33",
        source="vllm 3.19",
    ),
    # -- MIG and vGPU ---------------------------------------------------------------------------------------------
    _row(
        "mig_uuid_parsed",
        "root",
        r"invalid literal for int\(\) with base 10: '(?P<uuid>MIG-[^']+)'",
        cause="mig_vgpu_config",
        phase="load",
        source="vllm platforms/cuda.py",
    ),
    _row(
        "gpu_uuid_parsed",
        "root",
        r"invalid literal for int\(\) with base 10: '(?P<uuid>GPU-[^']+)'",
        cause="not_memory_config",
        phase="load",
        source="vllm platforms/cuda.py",
    ),
    _row(
        "nvml_assert",
        "root",
        r"NVML_SUCCESS == \w+ INTERNAL ASSERT FAILED",
        cause="mig_oom_masked",
        source="torch CUDACachingAllocator",
    ),
    _row(
        "vgpu_shim_error",
        "context",
        r"HAMI-core ERROR|host pid is error|vgpu.{0,40}error",
        source="HAMi-core",
        flags=re.IGNORECASE,
    ),
    _row(
        "mig_slice_listed",
        "context",
        r"\bMIG (?:\d+c\.)?(?P<profile>\d+g\.\d+gb\S*)\s+Device",
        source="k8s 8.5",
    ),
    # -- device memory: the phase and the numbers decide ----------------------------------------------------------
    _row(
        "device_oom_impossible_size",
        "root",
        r"Tried to allocate more than 1EB memory",
        cause="not_memory_cuda_fault",
        source="vllm 3.20",
    ),
    _row(
        "hbm_exhausted",
        "root",
        r"RESOURCE_EXHAUSTED|Attempting to (?:reserve|allocate) [\d.]+\s?[KMG]i?B? at the bottom of memory|"
        r"Ran out of memory in memory space hbm|HPU out of memory|Lack of device memory|"
        r"Not enough memory for \d+ blocks of KV cache|"
        r"PT_DEVMEM Allocation failed|synStatus \d+.*(?:[Oo]ut of|[Aa]llocat)|Allocation failed for size.*HPU",
        cause="accelerator_hbm_oom",
        source="vllm 3.3; XLA",
    ),
    _row(
        "device_oom",
        "root",
        r"^(?!.*more than 1EB)(?:.*?)(?:(?P<api>CUDA|HIP|XPU|NPU) out of memory\b|torch(?:\.cuda)?\.OutOfMemoryError|"
        r"Triton Error \[(?:CUDA|HIP)\]: out of memory|"
        r"Allocation was preemptively rejected|memory mapping failed with OOM on device)",
        family="device_oom",
        source="vllm 3.20",
    ),
    _row(
        "driver_oom",
        "root",
        r"(?:CUDA|HIP)(?: driver)? error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|"
        r"cudaErrorMemoryAllocation|UR_RESULT_ERROR_OUT_OF_(?:DEVICE|RESOURCES)\w*",
        family="driver_oom",
        source="vllm 3.20",
    ),
    _row(
        "cublas_alloc",
        "root",
        r"CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED",
        cause="cuda_library_alloc",
        source="vllm 3.20",
    ),
    _row(
        "cuda_library_internal",
        "root",
        r"CUDNN_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|EXECUTION_FAILED)\w*|"
        r"CUBLAS_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)",
        cause="cuda_library_alloc",
        source="torch issue 81620",
    ),
    _row(
        "nvrm_no_memory",
        "root",
        r"NV_ERR_NO_MEMORY|NvMapMem\w*: .*error 12",
        family="nvrm_no_memory",
        source="k8s 3.3",
    ),
    # -- host memory ----------------------------------------------------------------------------------------------
    _row(
        "kernel_memcg_oom",
        "root",
        r"Memory cgroup out of memory: Kill(?:ed)? process(?: (?P<pid>\d+))? \((?P<victim>[^)]*)\)|oom-kill:.*oom_memcg=",
        family="host_kill",
        memory="host",
        source="k8s 3.1",
    ),
    _row(
        "kernel_global_oom",
        "root",
        r"(?<!cgroup )[Oo]ut of memory: Kill(?:ed)? process(?: (?P<pid>\d+))? \((?P<victim>[^)]*)\)|oom-kill:.*global_oom|"
        r"System OOM encountered",
        cause="node_oom",
        source="k8s 3.1",
    ),
    _row(
        "ray_memory_monitor",
        "root",
        r"exceeds the memory usage threshold|Ray killed this worker|killed due to memory pressure \(OOM\)|"
        r"Task was killed due to the node running low on memory|ray\.exceptions\.OutOfMemoryError|"
        r"To adjust the kill threshold, set the environment variable .?RAY_memory_usage_threshold",
        cause="ray_memory_monitor",
        family="ray_memory_monitor",
        source="vllm 3.20",
    ),
    _row(
        "host_alloc_refused",
        "root",
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|unable to mmap \d+ bytes from file|"
        r"^(?:\S+\.)?MemoryError\b(?!: Not enough space in the data buffer)|std::bad_alloc|\[Errno 12\] Cannot allocate memory",
        cause="host_oom_load",
        family="host_alloc",
        source="vllm 3.20",
    ),
    _row(
        "checkpoint_above_ram",
        "context",
        r"checkpoint total size \([\d.]+ GiB\) exceeds|Filesystem type for checkpoints",
        versions="0.19-0.33",
        source="vllm 4.8",
    ),
    # -- threads, crashes, faults ---------------------------------------------------------------------------------
    _row(
        "threads_refused",
        "root",
        r"thread: Resource temporarily unavailable|can't start new thread|pthread_create failed|Thread creation failed|"
        r"(?:fork|vfork|clone)[^\n]{0,40}Resource temporarily unavailable|\[Errno 11\] Resource temporarily unavailable",
        cause="pids_limit",
        source="k8s 4.2",
    ),
    _row(
        "compiler_killed",
        "root",
        r"FAILED: \[code=(?:137|9)\]|\bninja\b.{0,400}exit status (?:137|-9)|Killed signal terminated program|"
        r"(?:nvcc|cicc|ptxas|cc1plus)\b.{0,40}\bKilled\b|died due to signal 9",
        cause="host_oom_compile",
        source="gcc, nvcc",
    ),
    _row(
        "allocation_not_shareable",
        "root",
        r"pidfd_getfd: Operation not permitted|NIXL_ERR_REMOTE_DISCONNECT|IBV_WC_REM_ACCESS_ERR|custom_all_reduce\.cuh:\d+ 'invalid argument'|"
        r"cudaIpc(?:Get|Open)MemHandle.{0,80}(?:invalid argument|not supported)",
        family="allocation_not_shareable",
        source="torch CUDACachingAllocator",
    ),
    _row(
        "cuda_invalid_argument",
        "root",
        r"CUDA error: invalid argument",
        family="invalid_argument",
        source="CUDA runtime",
    ),
    _row(
        "cuda_fault",
        "root",
        r"an illegal memory access was encountered|device-side assert triggered|misaligned address|"
        r"unspecified launch failure|CUDA error: an illegal instruction|CUDA error: (?:launch|invalid program counter)|"
        r"Memory access fault by GPU node|uncorrectable (?:NVLink|ECC) error|hipErrorIllegalAddress",
        cause="not_memory_cuda_fault",
        source="k8s 10.4",
    ),
    _row(
        "crash",
        "root",
        r"^(?!.*Some common causes include).*?(?:Segfault encountered|Segmentation fault|SIGSEGV|Fatal Python error: (?:Aborted|Segmentation fault|Floating)|"
        r"SIGABRT received|\(core dumped\)|double free or corruption|malloc\(\): |free\(\): invalid|terminate called after throwing)",
        family="crash",
        source="k8s 1.2",
    ),
    # -- configuration, driver, authentication --------------------------------------------------------------------
    _row(
        "device_ordinal",
        "root",
        r"CUDA error: invalid device ordinal|invalid device ordinal",
        cause="not_memory_config",
        phase="load",
        source="CUDA runtime",
    ),
    _row(
        "driver_mismatch",
        "root",
        r"Error 80[23]: |unsupported display driver / cuda driver combination|CUDA driver version is insufficient|"
        r"Driver/library version mismatch|forward compatibility was attempted|no kernel image is available|"
        r"NVIDIA driver on your system is too old|couldn't communicate with the NVIDIA driver|"
        r"system not yet initialized|CUDA driver initialization failed|NVMLError_LibRmVersionMismatch|was compiled with an unsupported toolchain",
        cause="not_memory_driver",
        phase="load",
        source="CUDA runtime; k8s 8.4",
    ),
    _row(
        "nvml_query_refused",
        "root",
        r"NVMLError_(?:NoPermission|NotSupported|InvalidArgument|NotFound|Unknown)",
        cause="not_memory_driver",
        phase="load",
        source="k8s 8.4, 8.5",
    ),
    _row(
        "platform_not_detected",
        "root",
        r"Failed to infer device type|No CUDA GPUs are available|No devices were found|"
        r"no CUDA-capable device is detected|libcuda\.so\.1: cannot open shared object|"
        r"World size \(\d+\) is larger than the number of available GPUs|"
        r"is not supported for GPU|Bfloat16 is only supported on GPUs|must be divisible by tensor parallel size|"
        r"doesn't support querying the available free memory|exceeds the total number of available GPUs|"
        r"unrecognized arguments:|error: argument|UVA is not available",
        cause="not_memory_config",
        phase="load",
        source="vllm platforms",
    ),
    _row(
        "port_in_use",
        "root",
        r"\[Errno 98\] (?:error while attempting to bind on address .*)?[Aa]ddress already in use|EADDRINUSE",
        cause="not_memory_config",
        source="Linux errno 98; asyncio",
    ),
    _row(
        "settings_refused",
        "context",
        r"ValidationError: \d+ validation error",
        cause="not_memory_config",
        phase="load",
        source="pydantic",
    ),
    _row(
        "model_access",
        "root",
        r"GatedRepoError|RepositoryNotFoundError|LocalEntryNotFoundError|Access to model \S+ is restricted|"
        r"Cannot access gated repo|You are trying to access a gated repo|40[13] Client Error|HfHubHTTPError|"
        r"Cannot access content at: https?://|does not appear to have a file named|"
        r"is not a (?:valid model identifier|local folder and is not a valid)|OfflineModeIsEnabled|"
        r"We couldn't connect to '?https?://|Invalid (?:user token|credentials in Authorization)|PermissionError: \[Errno 13\]",
        cause="not_memory_auth",
        phase="load",
        source="huggingface_hub errors",
    ),
    # -- the pod's own words (events, status and pasted text) -----------------------------------------------------
    _row(
        "probe_killed",
        "root",
        r"failed (?P<probe>startup|liveness) probe, will be restarted",
        cause="probe_kill",
        source="k8s 1.4",
    ),
    _row(
        "evicted_low_resource",
        "root",
        r"The node was low on resource: (?P<resource>[\w.-]+?)\.(?:\s|$)|The node had condition: \[(?P<condition>\w+)\]",
        cause="eviction",
        groups={"resource": "starved resource"},
        source="k8s 1.5",
    ),
    _row(
        "evicted_ephemeral",
        "root",
        r"Usage of EmptyDir volume \S+ exceeds the limit|exceeded its local ephemeral storage limit|"
        r"ephemeral local storage usage exceeds the total limit",
        cause="eviction",
        source="k8s 1.5",
    ),
    _row(
        "node_shutdown",
        "root",
        r"Pod was terminated in response to imminent node shutdown",
        cause="sigterm_shutdown",
        phase="shutdown",
        source="k8s 1.5",
    ),
    _row(
        "node_gone",
        "root",
        r"[Kk]ubelet stopped posting node status|NodeNotReady|Node condition: NotReady",
        family="node_gone",
        source="k8s 1.6",
    ),
    _row(
        "interrupted_start",
        "context",
        r"KeyboardInterrupt: terminated",
        family="interrupted_start",
        source="vllm 3.21",
    ),
    _row(
        "sigterm_received",
        "context",
        r"trigger received signal=SIGTERM|received signal(?: |=)?(?:15|SIGTERM)|Received SIGTERM|"
        r"SIGTERM received|Gracefully stopping http server",
        cause="sigterm_shutdown",
        phase="shutdown",
        source="vllm v1/engine shutdown",
    ),
    # -- processes that died: consequences, unless nothing else is left -------------------------------------------
    _row(
        "ray_worker_lost",
        "cascade",
        r"A worker died or was killed while executing a task|The actor died unexpectedly|RayActorError|ActorDiedError",
        source="Ray",
    ),
    _row(
        "failed_processes",
        "cascade",
        r"Failed core proc\(s\): (?P<codes>\{[^}]*\})|[Ff]ailed frontend proc\(s\): (?P<frontend>\{[^}]*\})",
        groups={"codes": "process name to exit code"},
        source="vllm 3.14",
    ),
    _row(
        "process_died",
        "cascade",
        r"Worker proc \S+ died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?|Engine core proc(?:ess)? \S+ died unexpectedly|"
        r"Process \S+ \(PID: \d+\) died with exit code (?P<exit>-?\d+)|RayWorkerProc rank=\S+ died unexpectedly|"
        r"Worker \S+ pid \d+ died, exit code: (?P<worker>-?\d+)|Worker processes are not running|worker died",
        groups={"code": "negative signal number or exit code"},
        source="vllm 3.14",
    ),
    _row(
        "engine_silent",
        "context",
        r"Timed out waiting for engine core processes|RPC call to \S+ timed out|(?:MQLLMEngine|RPCServer) didn't reply",
        cause="not_memory_hang",
        versions="0.5.5-0.33",
        source="vllm 3.14",
    ),
    _row(
        "generic_end",
        "cascade",
        r"Engine core initialization failed|initialization failed\. See root cause above|"
        r"Frontend process failed during engine core initialization|WorkerProc initialization failed|"
        r"WorkerProc failed to start|EngineCore failed to start|EngineCore hit an exception|Engine process failed to start|"
        r"RPCServer process died|EngineCore encountered|EngineDeadError|"
        r"AsyncEngineDeadError|AsyncLLM output_handler failed|\(engine dead\)|engine core exited unexpectedly|"
        r"WorkerProc hit an exception|Executor failed|Dumping input data|Dumping scheduler|"
        r"Parent process exited, terminating worker|Killing local vLLM worker|Background loop (?:is|has)|"
        r"MQLLMEngine is already dead|Got fatal signal from worker processes|"
        r"Exception in worker \S+ while processing method|See stack trace \(above\)|leaked shared_memory objects",
        source="vllm 3.14",
    ),
    _row(
        "torch_exit_noise",
        "cascade",
        r"destroy_process_group\(\) was not called|To avoid data inconsistency, we are taking the entire process down|"
        r"Some NCCL operations have failed or timed out|CUDA kernel errors might be asynchronously reported",
        source="torch ProcessGroupNCCL",
    ),
)

STRONG_KINDS = ("root", "refines")

# When a pattern is first needed: while modules import each other the stack is so deep that CPython, which takes its frames'
# memory in blocks, may take and give back a block for each call of its pattern parser, and needs several times as long.
_compiled = cache(re.compile)


def match(text):
    """Every row of the catalogue that ``text`` matches, as a list of ``Match``, in the catalogue's order.

    A false friend silences the rest: its line is advice, not an event.
    """
    found = []
    for signature in SIGNATURES:
        hit = _compiled(signature.pattern, signature.flags).search(text)
        if hit:
            groups = {name: value for name, value in hit.groupdict().items() if value is not None}
            found.append(Match(signature, groups, text))
            if signature.kind == "false_friend":
                return found
    return found


def best(text):
    """The strongest row that ``text`` matches, or None: a root or refinement before context before cascade."""
    order = {"false_friend": 0, "root": 1, "refines": 1, "context": 2, "cascade": 3}
    found = match(text)
    return min(found, key=lambda m: order[m.signature.kind]) if found else None
