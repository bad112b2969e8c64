# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For every cause: what its mechanism allows to change, and what must not change, whatever is allowed."""

from __future__ import annotations

import pytest
from plan_samples import EVERYTHING, budget, diagnosis, entry, evidence, finding, planned, pod, row, steps

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.advice import ADVICE
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.facts import Facts
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.judge import Judged
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.resolve import verdict
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB

LENGTH, UTILIZATION, TOKENS = "--max-model-len", "--gpu-memory-utilization", "--max-num-batched-tokens"
RANKS, GPUS = "--tensor-parallel-size", "resources.limits.nvidia.com/gpu"
EAGER, CPU = "--enforce-eager", "resources.limits.cpu"
MEMORY = ("resources.limits.memory", "resources.requests.memory")
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"

# A menu in which every kind of change is said to help: what is planned then is what the mechanism lets through.
MENU = (
    row(TOKENS, "decrease", 2048, "speed"),
    row(UTILIZATION, "decrease", 0.85, "concurrency"),
    row(UTILIZATION, "increase", 0.95),
    row(LENGTH, "decrease", 16384, "context"),
    row(RANKS, "increase", 2, "hardware"),
)
HARDWARE = frozenset((RANKS, GPUS))

# Cause -> names of what is planned with the menu above and everything allowed. The plan's pod has a memory limit of 40Gi, a
# CPU limit of 4, one GPU, a startup probe of 300 s and no /dev/shm volume.
PLANNED = {
    # Nothing but weights matters; the utilization is without effect on them.
    "gpu_weights_oom": HARDWARE,
    # Lower utilization is wrong, higher is right.
    "kv_no_blocks": {TOKENS, UTILIZATION, LENGTH} | HARDWARE,
    "kv_max_len": {TOKENS, UTILIZATION, LENGTH} | HARDWARE,
    # Another process' memory was booked: it must go first.
    "kv_budget_misestimate": set(),
    # Checked before the model is looked at: without free memory in the budget nothing says how much.
    "gpu_free_below_util": set(),
    # The neighbour must go, not our settings.
    "gpu_held_by_other": set(),
    "profiling_memory_changed": set(),
    # Beside the budget.
    "cudagraph_capture_oom": {TOKENS, UTILIZATION, EAGER} | HARDWARE,
    "sampler_warmup_oom": {TOKENS, UTILIZATION} | HARDWARE,
    "serving_gpu_oom": {TOKENS, UTILIZATION} | HARDWARE,
    "serving_gpu_growth": {TOKENS, UTILIZATION} | HARDWARE,
    "nccl_gpu_oom": {TOKENS, UTILIZATION, "NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE"} | HARDWARE,
    "gpu_fragmentation": {ALLOCATOR, TOKENS, UTILIZATION, LENGTH} | HARDWARE,
    "cuda_library_alloc": {TOKENS, UTILIZATION, LENGTH} | HARDWARE,
    # The peak doesn't depend on the utilization.
    "profile_run_oom": {TOKENS} | HARDWARE,
    "allocator_conf_side_effect": {ALLOCATOR},
    "sleep_wakeup_oom": {UTILIZATION},
    "mig_oom_masked": {UTILIZATION, LENGTH},
    "mig_vgpu_config": set(),
    "unified_memory_accounting": {UTILIZATION},
    "accelerator_hbm_oom": {TOKENS, UTILIZATION} | HARDWARE,
    "false_oom_driver": set(),
    "kernel_workspace_overflow": set(),
    "kernel_shared_memory": set(),
    "kv_bytes_too_large": set(),
    # Host memory: the limit by the budget's host part.
    "shm_exhausted": {"volumes.shm"},
    "host_oom_load": set(MEMORY),
    "host_oom_compile": {"MAX_JOBS"},
    "host_oom_growth": set(),
    "host_oom_offload": set(MEMORY),
    "host_oom_cpu_backend": set(MEMORY),
    "host_pin_limit": set(),
    "host_page_cache_benign": set(),
    "kv_swap_pool_exhausted": set(),
    "cpu_backend_kv": {*MEMORY, LENGTH},
    "node_oom": set(),
    "eviction": set(),
    "ray_memory_monitor": {*MEMORY, "--distributed-executor-backend"},
    # No memory.
    "probe_kill": {"startupProbe"},
    "sigterm_shutdown": set(),
    "exit_code_masked": set(),
    "device_oom_hidden_by_probe": HARDWARE,
    "sigkill_unattributed": set(),
    "native_crash": set(),
    "pids_limit": {"OMP_NUM_THREADS", "--distributed-executor-backend"},
    "memlock_limit": set(),
    "nccl_not_memory": set(),
    "not_memory_config": set(),
    "not_memory_driver": set(),
    "not_memory_auth": set(),
    "not_memory_cuda_fault": set(),
    "not_memory_hang": set(),
    "cpu_throttling": {CPU},
    "slot_limit": set(),
    "undetermined": set(),
    "status_unknown": set(),
    "start_error": set(),
}
# Causes of what is around the pod or in its spec; their checks say what is recommended.
CHECKED = {
    "memory_limit_missing": ([("k8s", MEMORY[0], "set", "64Gi")], set(MEMORY)),
    "memory_limit_low": ([("k8s", MEMORY[0], "increase", "64Gi")], set(MEMORY)),
    "memory_ratio": ([("k8s", MEMORY[1], "set", "30Gi")], {MEMORY[1]}),
    "cpu_limit_set": ([("k8s", CPU, "remove", None)], {CPU}),
    "shm_small": ([("k8s", "volumes.shm", "add", "2Gi")], {"volumes.shm"}),
    "shm_counts_against_limit": ([("k8s", MEMORY[0], "increase", "64Gi")], set(MEMORY)),
    "node_pressure": ([("action", "move_pod", "set", None)], set()),
    "gpu_hardware_fault": ([("action", "reset_gpu", "set", None)], set()),
    "admission_rejected": ([("k8s", "resourcequota/q.limits.memory", "increase", "96Gi")], set()),
    "unschedulable": ([("action", "larger_gpu", "set", None)], set()),
    # Proved by the measured use, as the check says.
    "headroom_unused": ([("flag", "--max-num-seqs", "increase", 512)], {"--max-num-seqs"}),
}


def sick():
    return pod(
        settings={"max_model_len": 40960, "gpu_memory_utilization": 0.9, "tensor_parallel_size": 1},
        limits={"memory": "40Gi", "cpu": "4"},
        requests={"memory": "32Gi", "cpu": "4"},
        probes={
            "startup": {"failure_threshold": 30, "period_seconds": 10},
            "liveness": None,
            "readiness": None,
        },
    )


def advised(cause, seen):
    """The finding of a cause with the advice that the diagnosis really gives."""
    hides = "gpu_weights_oom" if cause == "device_oom_hidden_by_probe" else None
    given = verdict(cause, "certain", None)
    container = seen["containers"][0]
    advice = ADVICE[cause](
        Facts(seen, container, container["attempts"][0]), Judged(given, "trigger", [], None, hides)
    )
    return finding(cause, *advice.recommend, rejected=advice.rejected, phase=given.phase)


def sized(asked):
    """The budget of a start that fails for want of a KV cache, or of one that came further, as the finding has it."""
    started = asked["phase"] in ("graph_capture", "warmup", "serving", "shutdown")
    return budget(entry(*MENU, **({"available_kv": 20 * GIB, "fits": True} if started else {})))


def names(found, *states):
    return {item["change"]["name"] for item in found["changes"] if item["state"] in (states or ("planned",))}


def test_the_tables_hold_every_cause():
    assert sorted([*PLANNED, *CHECKED]) == sorted(documents.CAUSES)


@pytest.mark.parametrize("cause", sorted(PLANNED))
def test_what_is_planned_for_a_cause_is_what_its_mechanism_allows(cause):
    seen = sick()
    asked = advised(cause, seen)
    found = planned(diagnosis(asked), evidence(seen), sized(asked), **EVERYTHING)
    assert names(found) == PLANNED[cause]
    assert names(found, "refused") == set()


@pytest.mark.parametrize("cause", sorted(CHECKED))
def test_what_is_planned_for_a_risk_is_what_its_check_recommends(cause):
    seen, (recommended, expected) = sick(), CHECKED[cause]
    changes = [documents.change(*item, why="a check", proof="arithmetic") for item in recommended]
    risk = finding(cause, *changes, role="risk", attempt=None)
    found = planned(diagnosis(risk), evidence(seen), budget(entry(*MENU)), **EVERYTHING)
    assert names(found) == expected


@pytest.mark.parametrize("with_budget", [True, False])
@pytest.mark.parametrize("cause", sorted(documents.CAUSES))
def test_each_cause_has_steps_or_a_note_why_nothing_is_planned(cause, with_budget):
    seen = sick()
    asked = advised(cause, seen) if cause in PLANNED else finding(cause, role="risk", attempt=None)
    found = planned(diagnosis(asked), evidence(seen), budget(entry()) if with_budget else None, **EVERYTHING)
    notes = [note for note in found["notes"] if note.startswith(f"nothing is planned against {cause}: ")]
    assert bool(notes) is not bool(found["changes"])
    assert all(item["why"] for item in found["considered"] + found["rejected"])
    assert found["apply"]["why"]


@pytest.mark.parametrize("cause", ["kv_no_blocks", "kv_max_len"])
def test_a_lower_utilization_is_never_the_answer_to_a_kv_cache_that_is_too_small(cause):
    seen = sick()
    found = planned(diagnosis(advised(cause, seen)), evidence(seen), budget(entry(*MENU)), **EVERYTHING)
    values = [item["change"]["after"] for item in found["changes"] if item["change"]["name"] == UTILIZATION]
    assert values == [0.95]
    assert any(item["change"]["direction"] == "decrease" for item in found["rejected"])


@pytest.mark.parametrize("cause", ["not_memory_hang", "not_memory_cuda_fault", "nccl_not_memory"])
def test_what_only_shows_more_is_advised_and_not_made(cause):
    seen = sick()
    found = planned(diagnosis(advised(cause, seen)), evidence(seen), None, **EVERYTHING)
    assert steps(found, "planned") == []
    assert steps(found, "advised")


def test_a_change_without_proof_is_never_planned():
    change = documents.change("env", "NCCL_ALGO", "set", "Ring", "somebody said so", "none")
    found = planned(diagnosis(finding("nccl_not_memory", change)), **EVERYTHING)
    assert found["changes"] == []
    assert found["considered"][0]["why"] == "nothing proves it"


def test_a_finding_that_is_only_possible_is_not_acted_on():
    change = documents.change("k8s", CPU, "remove", None, "it throttles", "rule")
    found = planned(
        diagnosis(finding("cpu_limit_set", change, confidence="possible", would_settle=["cpu.stat"]))
    )
    assert found["changes"] == []
    assert found["considered"][0]["why"] == "the cause is only possible: cpu.stat"


def test_a_secret_is_never_planned():
    change = documents.change("env", "HF_TOKEN", "set", "hf_abc", "gated", "rule")
    found = planned(diagnosis(finding("not_memory_auth", change)))
    assert found["changes"] == []
