# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each cause says about memory: which one ran out, whether one ran out at all, and in which phase it usually does."""

from __future__ import annotations

from collections import namedtuple

Nature = namedtuple("Nature", "memory is_memory phase")

_GPU = "gpu"
_HOST = "host"
_NONE = "none"

NATURE = {
    "gpu_weights_oom": Nature(_GPU, True, "load"),
    "kv_no_blocks": Nature(_GPU, True, "kv_init"),
    "kv_max_len": Nature(_GPU, True, "kv_init"),
    "kv_budget_misestimate": Nature(_GPU, True, "kv_init"),
    "gpu_free_below_util": Nature(_GPU, True, "load"),
    "gpu_held_by_other": Nature(_GPU, True, "load"),
    "profiling_memory_changed": Nature(_NONE, False, "profile"),
    "cudagraph_capture_oom": Nature(_GPU, True, "graph_capture"),
    "sampler_warmup_oom": Nature(_GPU, True, "warmup"),
    "profile_run_oom": Nature(_GPU, True, "profile"),
    "serving_gpu_oom": Nature(_GPU, True, "serving"),
    "serving_gpu_growth": Nature(_GPU, True, "serving"),
    "gpu_fragmentation": Nature(_GPU, True, "unknown"),
    "allocator_conf_side_effect": Nature(_NONE, False, "load"),
    "nccl_gpu_oom": Nature("nccl_gpu", True, "load"),
    "sleep_wakeup_oom": Nature(_GPU, True, "serving"),
    "mig_oom_masked": Nature(_GPU, True, "kv_init"),
    "mig_vgpu_config": Nature(_NONE, False, "load"),
    "unified_memory_accounting": Nature("unified", True, "unknown"),
    "accelerator_hbm_oom": Nature(_GPU, True, "unknown"),
    "false_oom_driver": Nature(_NONE, False, "load"),
    "cuda_library_alloc": Nature(_GPU, True, "profile"),
    "kernel_workspace_overflow": Nature(_NONE, False, "serving"),
    "kernel_shared_memory": Nature(_NONE, False, "serving"),
    "shm_exhausted": Nature("shm", True, "load"),
    "host_oom_load": Nature(_HOST, True, "load"),
    "host_oom_compile": Nature(_HOST, True, "warmup"),
    "host_oom_growth": Nature(_HOST, True, "serving"),
    "host_oom_offload": Nature(_HOST, True, "kv_init"),
    "host_oom_cpu_backend": Nature(_HOST, True, "load"),
    "host_pin_limit": Nature(_HOST, True, "kv_init"),
    "host_page_cache_benign": Nature(_NONE, False, "load"),
    "kv_swap_pool_exhausted": Nature(_HOST, True, "serving"),
    "cpu_backend_kv": Nature(_HOST, True, "kv_init"),
    "node_oom": Nature("node", True, "unknown"),
    "eviction": Nature(_NONE, False, "serving"),
    "probe_kill": Nature(_NONE, False, "load"),
    "sigterm_shutdown": Nature(_NONE, False, "shutdown"),
    "exit_code_masked": Nature(_NONE, False, "unknown"),
    "device_oom_hidden_by_probe": Nature(_GPU, True, "load"),
    "sigkill_unattributed": Nature(_HOST, None, "unknown"),
    "native_crash": Nature(_NONE, False, "unknown"),
    "pids_limit": Nature(_NONE, False, "load"),
    "memlock_limit": Nature(_NONE, False, "load"),
    "ray_memory_monitor": Nature(_HOST, True, "serving"),
    "nccl_not_memory": Nature(_NONE, False, "load"),
    "not_memory_config": Nature(_NONE, False, "load"),
    "not_memory_driver": Nature(_NONE, False, "load"),
    "not_memory_auth": Nature(_NONE, False, "load"),
    "not_memory_cuda_fault": Nature(_NONE, False, "serving"),
    "not_memory_hang": Nature(_NONE, False, "unknown"),
    "cpu_throttling": Nature(_NONE, False, "serving"),
    "undetermined": Nature("unknown", None, "unknown"),
    "memory_limit_missing": Nature(_HOST, False, "unknown"),
    "memory_limit_low": Nature(_HOST, False, "unknown"),
    "memory_ratio": Nature(_HOST, False, "unknown"),
    "cpu_limit_set": Nature(_NONE, False, "unknown"),
    "shm_small": Nature("shm", False, "unknown"),
    "shm_counts_against_limit": Nature(_HOST, False, "unknown"),
    "kv_bytes_too_large": Nature(_GPU, True, "kv_init"),
    "slot_limit": Nature(_NONE, False, "serving"),
    "node_pressure": Nature("node", False, "unknown"),
    "gpu_hardware_fault": Nature(_NONE, False, "unknown"),
    "admission_rejected": Nature(_NONE, False, "load"),
    "unschedulable": Nature(_NONE, False, "load"),
    "start_error": Nature(_NONE, False, "load"),
    "status_unknown": Nature("unknown", None, "unknown"),
    "headroom_unused": Nature(_GPU, False, "serving"),
}

# The memory on the device itself: where these are the first failure, a later SIGTERM or probe only hides them.
DEVICE_MEMORY = frozenset(
    cause for cause, nature in NATURE.items() if nature.memory in ("gpu", "nccl_gpu") and nature.is_memory
)
