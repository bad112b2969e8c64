# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about each cause, what not to do, and why: from the cause's mechanism and the log's own numbers.

One entry a cause: a function of the facts and the judged finding that returns an ``Advice``. Cheapest changes come first
(design, rule 5); every rejected change says why it does not help, since that is what teaches the reader.
"""

from __future__ import annotations

from . import advice_gpu, advice_host, advice_links, advice_other, advice_parts


def hidden(facts, judged):
    inner = ADVICE[judged.hides](facts, judged)
    return inner._replace(
        explanation="The container ended by a termination, which hides what came first: " + inner.explanation,
        runbook=advice_parts.STEP_EXIT_143,
    )


ADVICE = {
    "gpu_weights_oom": advice_gpu.gpu_weights_oom,
    "kv_no_blocks": advice_gpu.kv_no_blocks,
    "kv_max_len": advice_gpu.kv_max_len,
    "kv_budget_misestimate": advice_gpu.kv_budget_misestimate,
    "kv_bytes_too_large": advice_gpu.kv_bytes_too_large,
    "gpu_free_below_util": advice_gpu.gpu_free_below_util,
    "gpu_held_by_other": advice_gpu.gpu_held_by_other,
    "profiling_memory_changed": advice_gpu.profiling_memory_changed,
    "cudagraph_capture_oom": advice_gpu.cudagraph_capture_oom,
    "sampler_warmup_oom": advice_gpu.sampler_warmup_oom,
    "profile_run_oom": advice_gpu.profile_run_oom,
    "serving_gpu_oom": advice_gpu.serving_gpu_oom,
    "serving_gpu_growth": advice_gpu.serving_gpu_growth,
    "gpu_fragmentation": advice_gpu.gpu_fragmentation,
    "allocator_conf_side_effect": advice_other.allocator_conf_side_effect,
    "nccl_gpu_oom": advice_links.nccl_gpu_oom,
    "sleep_wakeup_oom": advice_gpu.sleep_wakeup_oom,
    "mig_oom_masked": advice_other.mig_oom_masked,
    "mig_vgpu_config": advice_gpu.mig_vgpu_config,
    "unified_memory_accounting": advice_gpu.unified,
    "accelerator_hbm_oom": advice_gpu.accelerator_hbm_oom,
    "false_oom_driver": advice_gpu.false_oom_driver,
    "cuda_library_alloc": advice_gpu.cuda_library_alloc,
    "kernel_workspace_overflow": advice_other.kernel_workspace_overflow,
    "kernel_shared_memory": advice_other.kernel_shared_memory,
    "shm_exhausted": advice_links.shm_exhausted,
    "host_oom_load": advice_host.host_oom_load,
    "host_oom_compile": advice_host.host_oom_compile,
    "host_oom_growth": advice_host.host_oom_growth,
    "host_oom_offload": advice_host.host_oom_offload,
    "host_oom_cpu_backend": advice_host.host_oom_cpu_backend,
    "host_pin_limit": advice_host.host_pin_limit,
    "host_page_cache_benign": advice_host.page_cache_benign,
    "kv_swap_pool_exhausted": advice_host.kv_swap_pool,
    "cpu_backend_kv": advice_host.cpu_backend_kv,
    "node_oom": advice_host.node_oom,
    "eviction": advice_other.eviction,
    "probe_kill": advice_other.probe_kill,
    "sigterm_shutdown": advice_other.sigterm_shutdown,
    "exit_code_masked": advice_other.exit_code_masked,
    "device_oom_hidden_by_probe": hidden,
    "sigkill_unattributed": advice_host.sigkill_unattributed,
    "native_crash": advice_other.native_crash,
    "pids_limit": advice_other.pids_limit,
    "memlock_limit": advice_other.memlock_limit,
    "ray_memory_monitor": advice_host.ray_memory_monitor,
    "nccl_not_memory": advice_links.nccl_not_memory,
    "not_memory_config": advice_other.not_memory_config,
    "not_memory_driver": advice_other.not_memory_driver,
    "not_memory_auth": advice_other.not_memory_auth,
    "not_memory_cuda_fault": advice_other.not_memory_cuda_fault,
    "not_memory_hang": advice_other.not_memory_hang,
    "cpu_throttling": advice_other.cpu_throttling,
    "slot_limit": advice_other.slot_limit,
    "undetermined": advice_other.undetermined,
    "status_unknown": advice_other.status_unknown,
    "start_error": advice_other.start_error,
}
