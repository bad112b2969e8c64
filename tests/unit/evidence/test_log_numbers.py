# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory numbers of vLLM's log lines: real lines of public reports, and one line of every template."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import NUMBERS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_numbers import (
    _COMPILED,
    ROWS,
    numbers_in,
)

GIB = 1 << 30
MIB = 1 << 20


def gib(size):
    return round(size * GIB)


LINES = [
    # vllm-project/vllm#8180: "GB" is GiB
    ("Loading model weights took 8.1425 GB", {"weights": gib(8.1425)}),
    ("Model loading took 14.9 GB and 3.1 seconds", {"weights": gib(14.9)}),
    ("Model loading took 14.9889 GiB memory and 3.123456 seconds", {"weights": gib(14.9889)}),
    ("Model loading took 7.1 GiB and 3.123456 seconds", {"weights": gib(7.1)}),
    ("Peak GPU memory after loading weights: 16.2 GiB", {"weights_peak": gib(16.2)}),
    ("Total CPU offloaded parameters: 4.5", {"cpu_offloaded": gib(4.5)}),
    (
        "Filesystem type for checkpoints: EXT4. Checkpoint size: 61.04 GiB. Available RAM: 55.30 GiB.",
        {"checkpoint": gib(61.04), "host_available": gib(55.30)},
    ),
    (
        "NFS detected but checkpoint total size (61.0 GiB) exceeds 90% of available RAM (55.3 GiB). Skipping",
        {"checkpoint": gib(61.0), "host_available": gib(55.3)},
    ),
    (
        "Memory profiling results: total_gpu_memory=79.33GiB initial_memory_usage=0.50GiB peak_torch_memory=17.00GiB "
        "memory_usage_post_profile=15.00Gib non_torch_memory=0.25GiB kv_cache_size=53.50GiB gpu_memory_utilization=0.90",
        {
            "gpu_total": gib(79.33),
            "non_torch": gib(0.25),
            "kv_available": gib(53.5),
            "utilization": 0.9,
        },
    ),
    (
        "the current vLLM instance can use total_gpu_memory (44.53GiB) x gpu_memory_utilization (0.98) = 43.64GiB",
        {"gpu_total": gib(44.53), "utilization": 0.98, "gpu_requested": gib(43.64)},
    ),
    # vllm-project/vllm#15598
    (
        "model weights take 20.64GiB; non_torch_memory takes 0.28GiB; PyTorch activation peak memory takes 1.52GiB; "
        "the rest of the memory reserved for KV Cache is 21.20GiB.",
        {
            "weights": gib(20.64),
            "non_torch": gib(0.28),
            "activation_peak": gib(1.52),
            "kv_available": gib(21.2),
        },
    ),
    ("Available KV cache memory: 18.83 GiB", {"kv_available": gib(18.83)}),
    ("Available KV cache memory: -1.05 GiB", {"kv_available": gib(-1.05)}),
    (
        "Initial free memory 78.5 GiB, reserved 20.0GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
        {"gpu_free": gib(78.5), "kv_reserved": gib(20)},
    ),
    (
        "Memory profiling takes 5.2 seconds. Total non KV cache memory: 17.5GiB; torch peak memory increase: 1.5GiB; "
        "non-torch forward increase memory: 0.5GiB; weights memory: 15.5GiB.",
        {
            "non_kv": gib(17.5),
            "activation_peak": gib(1.5),
            "non_torch": gib(0.5),
            "weights": gib(15.5),
        },
    ),
    (
        "Initial free memory: 78.9 GiB; Requested memory: 0.9 (util), 71.2 GiB",
        {"gpu_free": gib(78.9), "utilization": 0.9, "gpu_requested": gib(71.2)},
    ),
    (
        "Free memory after profiling: 60.5 GiB (total), 52.8 GiB (within requested)",
        {"gpu_free_after": gib(60.5), "kv_available": gib(52.8)},
    ),
    (
        "Free memory on device (78.6/79.1 GiB) on startup. Desired GPU memory utilization is (0.9, 71.2 GiB). Actual usage is "
        "15.3 GiB for weight, 1.4 GiB for peak activation, 0.2 GiB for non-torch memory, and 0.5 GiB for CUDAGraph memory. "
        "Replace gpu_memory_utilization config with `--kv-cache-memory=57200000000` to fit into requested memory, or "
        "`--kv-cache-memory=65000000000` to fully utilize gpu memory. Current kv cache memory in use is 57900000000 bytes.",
        {
            "gpu_free": gib(78.6),
            "gpu_total": gib(79.1),
            "utilization": 0.9,
            "gpu_requested": gib(71.2),
            "weights": gib(15.3),
            "activation_peak": gib(1.4),
            "non_torch": gib(0.2),
            "graph_actual": gib(0.5),
            "kv_fits_requested": 57200000000,
            "kv_fits_gpu": 65000000000,
            "kv_available": 57900000000,
        },
    ),
    (
        "Free memory on device (78.6/79.1 GiB) on startup. Desired GPU memory utilization is (0.92, 72.8 GiB). Actual usage is "
        "15.8 GiB for consumed memory (weights + non-torch), 1.4 GiB for peak activation, and 0.5 GiB for CUDAGraph memory. "
        "Replace gpu_memory_utilization config with `--kv-cache-memory=57200000000` (53.27 GiB) to fit into requested memory, or "
        "`--kv-cache-memory=65000000000` (60.54 GiB) to fully utilize gpu memory. Current kv cache memory in use is 53.9 GiB.",
        {
            "gpu_free": gib(78.6),
            "gpu_total": gib(79.1),
            "utilization": 0.92,
            "gpu_requested": gib(72.8),
            "gpu_consumed": gib(15.8),
            "activation_peak": gib(1.4),
            "graph_actual": gib(0.5),
            "kv_fits_requested": 57200000000,
            "kv_fits_gpu": 65000000000,
            "kv_available": gib(53.9),
        },
    ),
    (
        "Memory profiling takes 5.2 seconds. Total non KV cache memory: 17.5GiB; torch peak memory increase: 1.5GiB; "
        "total consumed (from mem_get_info): 16.0GiB; weights memory: 15.5GiB.",
        {"non_kv": gib(17.5), "activation_peak": gib(1.5), "gpu_consumed": gib(16)},
    ),
    (
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9200 is "
        "equivalent to --gpu-memory-utilization=0.9050 without CUDA graph memory profiling. To maintain the same effective KV "
        "cache size as before, increase --gpu-memory-utilization to 0.9350. To disable, set",
        {
            "utilization": 0.92,
            "utilization_without_graphs": 0.905,
            "utilization_with_graphs": 0.935,
        },
    ),
    (
        "In v0.19, CUDA graph memory profiling will be enabled by default (x), increase --gpu-memory-utilization from 0.9000 to "
        "0.9150 to maintain the same effective KV cache size.",
        {"utilization": 0.9, "utilization_with_graphs": 0.915},
    ),
    (
        "Startup plan not applied: current free memory (60.50 GiB) is below the recorded baseline (78.00 GiB); falling back",
        {"gpu_free": gib(60.5)},
    ),
    (
        "Sequence group cmpl-1-0 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
        "total_num_cumulative_preemption=51",
        {"preemptions": 51},
    ),
    ("Created EC mmap file /dev/shm/ec_0 (512.0 MiB)", {"mmap_file": 512 * MIB}),
    (
        "HiSparse pinned host pool needs ~64.5 GiB but only 40.5 GiB of RAM is available. Lower the HiSparseConnector",
        {"host_requested": gib(64.5), "host_available": gib(40.5)},
    ),
    (
        "[PrefetchOffloader] Initialized 8 modules. Total GPU memory saved: 12.5 GB, Static buffer pool: 1.5 GB (x)",
        {"cpu_offloaded": 12500000000},
    ),
    (
        "Free memory on device cuda:0 (59.3/79.1 GiB) on startup is less than the engine's budget after excluding external "
        "process's weights (0.9, 41.2 GiB). Decrease",
        {"gpu_free": gib(59.3), "gpu_total": gib(79.1), "utilization": 0.9, "gpu_requested": gib(41.2)},
    ),
    (
        "Externally held weights on device cuda:0 (75.5/79.1 GiB) exceed the desired GPU memory utilization (0.9, 71.2 GiB).",
        {
            "weights_external": gib(75.5),
            "gpu_total": gib(79.1),
            "utilization": 0.9,
            "gpu_requested": gib(71.2),
        },
    ),
    (
        "Weights are held outside this process: of the 71.2 GiB utilization budget, 30.5 GiB is externally held and 40.7 GiB x",
        {"gpu_requested": gib(71.2), "weights_external": gib(30.5)},
    ),
    (
        "Free memory grew by 1.5 GiB during profiling (initial 60.0 GiB, current 61.5 GiB). Sizing the KV cache",
        {"gpu_free": gib(60), "gpu_free_after": gib(61.5)},
    ),
    (
        "Reserving 3.5 GiB of GPU memory for frontend multimodal decoding (x); KV cache memory reduced to 20.5 GiB.",
        {"mm_reserved": gib(3.5), "kv_available": gib(20.5)},
    ),
    (
        "frontend multimodal GPU decoding reserves 3.5 GiB (2.5 GiB raw-frame budget, 1.0 GiB decoder cache budget), but only "
        "2.2 GiB is available for the KV cache.",
        {"mm_reserved": gib(3.5), "kv_available": gib(2.2)},
    ),
    (
        "The worker already uses 20.5 GiB (model weights and runtime), more than the 18.0 GiB of CPU memory reserved for it",
        {"weights": gib(20.5), "host_requested": gib(18)},
    ),
    (
        "Auto set (30.5/60.5) GiB for KV cache on node 0, with 56.0 GiB requested memory for the worker. 25.5 GiB memory was "
        "consumed by non-kv usages.",
        {"kv_available": gib(30.5), "host_requested": gib(56), "non_kv": gib(25.5)},
    ),
    ("Graph capturing finished in 20 secs, took 0.31 GiB", {"graph_actual": gib(0.31)}),
    ("Graph capturing finished in 20 secs.", {}),
    ("Encoder graph capturing finished in 20 secs, took 0.31 GiB (3 graphs)", {"graph_encoder": gib(0.31)}),
    ("Estimated CUDA graph memory: 1.20 GiB total", {"graph_estimate": gib(1.2)}),
    (
        "CUDA graph pool memory: 1.5 GiB (actual), 1.2 GiB (estimated), difference: 0.3 GiB (25.0%).",
        {"graph_actual": gib(1.5), "graph_estimate": gib(1.2)},
    ),
    # vllm-project/vllm#7201
    ("# GPU blocks: 48320, # CPU blocks: 9362", {"kv_blocks": 48320, "cpu_blocks": 9362}),
    ("# cuda blocks: 0, # CPU blocks: 4681", {"kv_blocks": 0, "cpu_blocks": 4681}),
    ("# GPU blocks: 5541", {"kv_blocks": 5541}),
    ("# CPU blocks: 1024", {"kv_blocks": 1024}),
    ("GPU KV cache size: 176,240 tokens", {"kv_tokens": 176240}),
    (
        "Maximum concurrency for 8,192 tokens per request: 21.51x",
        {"max_len": 8192, "max_concurrency": 21.51},
    ),
    (
        "GPU + host KV cache size: 1,176,240 tokens, Maximum concurrency for 8,192 tokens per request: 21.51x",
        {"kv_tokens": 1176240, "max_len": 8192, "max_concurrency": 21.51},
    ),
    ("Maximum concurrency for 4096 tokens per request: 0.00x", {"max_len": 4096, "max_concurrency": 0}),
    (
        "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 11015",
        {"kv_blocks": 11015},
    ),
    (
        "Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
        {"kv_blocks_profiled": 0, "kv_blocks": 512},
    ),
    (
        "Applying persisted startup plan (fingerprint ab12): kv_cache_memory_bytes=21474836480 (20.00 GiB), recorded free-memory "
        "baseline 78.00 GiB, current 77.90 GiB. Memory profiling will be skipped.",
        {"kv_reserved": 21474836480, "gpu_free": gib(77.9)},
    ),
    (
        "Avg prompt throughput: 2082.8 tokens/s, Avg generation throughput: 194.4 tokens/s, Running: 3 reqs, Swapped: 1 reqs, "
        "Pending: 2 reqs, GPU KV cache usage: 4.8%, CPU KV cache usage: 9.0%.",
        {"running": 3, "waiting": 2, "kv_usage": 0.048},
    ),
    (
        "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 5 reqs, "
        "Waiting: 3 reqs, Preemptions: 7, GPU KV cache usage: 93.4%, Prefix cache hit rate: 0.0%",
        {"running": 5, "waiting": 3, "kv_usage": 0.934, "preemptions": 7},
    ),
    ("Created mmap file /dev/shm/vllm_offload_0001.mmap (17.18 GB)", {"mmap_file": 17180000000}),
    (
        "SimpleCPUOffloadScheduler: Allocating 4096 CPU blocks (12.50 GB, mode=eager)",
        {"cpu_blocks": 4096, "kv_offload": 12500000000},
    ),
    (
        "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        {
            "gpu_free": gib(31.44),
            "gpu_total": gib(47.38),
            "utilization": 0.95,
            "gpu_requested": gib(45.01),
        },
    ),
    (
        "Free memory on device cuda:0 (59.3/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).",
        {"gpu_free": gib(59.3), "gpu_total": gib(79.1), "utilization": 0.9, "gpu_requested": gib(71.2)},
    ),
    (
        "Error in memory profiling. Initial free memory 23.4375 GiB, current free memory 23.4375 GiB. This happens when",
        {"gpu_free": gib(23.4375), "gpu_free_after": gib(23.4375)},
    ),
    (
        "Error in memory profiling. Initial free memory 25165824000, current free memory 25265824000. This happens when",
        {"gpu_free": 25165824000, "gpu_free_after": 25265824000},
    ),
    (
        "Error in memory profiling. Initial used memory 1165824000, currently used memory 1065824000. This happens when",
        {"gpu_used": 1165824000, "gpu_used_after": 1065824000},
    ),
    # vllm-project/vllm#14452
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU 0 has a total capacity of 15.48 GiB of which "
        "953.94 MiB is free.",
        {"gpu_total": gib(15.48)},
    ),
    (
        "To serve at least one request with the models's max seq len (8192), (1.00 GB KV cache is needed, which is larger than "
        "the available KV cache memory (0.50 GB). Try increasing",
        {"max_len": 8192, "kv_needed": gib(1), "kv_available": gib(0.5)},
    ),
    (
        "To serve at least one request with the model's max seq len (262144), (36.0 GiB KV cache is needed, which is larger than "
        "the available KV cache memory (6.94 GiB). Based on the available memory, the estimated maximum model length is 50512. ",
        {
            "max_len": 262144,
            "kv_needed": gib(36),
            "kv_available": gib(6.94),
            "estimated_max_len": 50512,
        },
    ),
    (
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (20224). Try",
        {"max_len": 32768, "kv_tokens": 20224},
    ),
    (
        "Auto-fit max_model_len: reduced from 131072 to 50512 to fit in available KV cache memory (6.94 GiB cuda)",
        {"max_len": 131072, "estimated_max_len": 50512, "kv_available": gib(6.94)},
    ),
    (
        "Auto-fit max_model_len: full model context length 8192 fits in available GPU memory",
        {"max_len": 8192},
    ),
    (
        "Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 64 MiB free. Increase /dev/shm",
        {"shm_needed": 160 * MIB, "shm_free": 64 * MIB},
    ),
    (
        "Cgroup memory preflight for ShmTensorArena: 1024 MiB required, 15000 MiB current usage, 1384 MiB available under "
        "16384 MiB limit, 360 MiB remaining after allocation",
        {"host_requested": 1024 * MIB, "cgroup_usage": 15000 * MIB, "cgroup_limit": 16384 * MIB},
    ),
    (
        "Possibly too large swap space. 4.00 GiB out of the 7.75 GiB total CPU memory is allocated for the swap space.",
        {"swap_space": gib(4), "host_total": gib(7.75)},
    ),
    ("VLLM_CPU_KVCACHE_SPACE not set. Using 31.5 GiB for KV cache.", {"kv_reserved": gib(31.5)}),
    (
        "Environment variable VLLM_CPU_KVCACHE_SPACE (GB) for CPU backend is not set, using 4 by default.",
        {"kv_reserved": gib(4)},
    ),
    (
        "Available memory on node 0 (20.5/62.5 GiB) on startup is less than desired CPU memory utilization (0.9, 56.25 GiB). x",
        {
            "host_available": gib(20.5),
            "host_total": gib(62.5),
            "utilization": 0.9,
            "host_requested": gib(56.25),
        },
    ),
    (
        "Available memory on node 0 (20.5/62.5 GiB) on kv cache allocation is less than requested memory for kv (30 GiB). Decrease",
        {"host_available": gib(20.5), "host_total": gib(62.5), "kv_reserved": gib(30)},
    ),
]


@pytest.mark.parametrize(("text", "expected"), LINES, ids=[text[:50] for text, _numbers in LINES])
def test_numbers_of_a_line(text, expected):
    found = {number["name"]: number["value"] for number in numbers_in(text)}
    assert found == expected


def test_units_are_those_of_the_vocabulary():
    for text, _expected in LINES:
        for number in numbers_in(text):
            assert number["unit"] == NUMBERS[number["name"]]
            assert not (number["unit"] in ("bytes", "tokens") and isinstance(number["value"], float))


def test_every_row_is_reached_by_a_line():
    """A row that no line of this file matches would be an unproved claim."""
    texts = [text for text, _expected in LINES]
    unreached = [
        row[2]
        for row, (pattern, _units) in zip(ROWS, _COMPILED, strict=True)
        if not any(pattern.search(text) for text in texts)
    ]
    assert unreached == []


def test_lines_that_only_look_alike_give_nothing():
    for text in (
        "Free memory on device is unknown",
        "Tried to allocate 1.74 GiB",
        "Created EC mmap file",
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    ):
        assert numbers_in(text) == []
