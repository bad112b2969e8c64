# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a plan would be written now, and the sentence why or why not."""

from __future__ import annotations

import pytest
from plan_samples import (
    EVERYTHING,
    budget,
    diagnosis,
    entry,
    evidence,
    finding,
    planned,
    pod,
    row,
    workload,
)

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan

LENGTH, UTILIZATION, DTYPE, GRAPHS = (
    "--max-model-len",
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--enforce-eager",
)
CPU, LIMIT, REQUEST = "resources.limits.cpu", "resources.limits.memory", "resources.requests.memory"
NO_CPU = change("k8s", CPU, "remove", None, "it throttles", "rule")
MENU = (
    row(UTILIZATION, "increase", 0.95),
    row(LENGTH, "decrease", 16384, "context"),
    row(DTYPE, "set", "fp8", "precision"),
)


def throttled(**more):
    """A risk that nothing failed of yet."""
    return finding("cpu_limit_set", NO_CPU, role="risk", attempt=None, **more)


def chosen(*findings, menu=MENU, seen=None, tried=(), judged=(), **limits):
    seen = seen or pod(
        settings={"gpu_memory_utilization": 0.9, "max_model_len": 40960},
        limits={"cpu": "4", "memory": "64Gi"},
    )
    document = plan(
        diagnosis(*(findings or [finding()]), workloads=judged),
        evidence(*seen) if isinstance(seen, list) else evidence(seen),
        budget(entry(*menu)),
        limits,
        list(tried),
    )
    return document["plans"][0]["apply"]


def values(found):
    return {item["name"]: item["after"] for item in found["changes"]}


def test_the_first_step_that_may_be_written_is_chosen_with_its_proof():
    found = chosen()
    assert (found["step"], values(found)) == (1, {UTILIZATION: 0.95})
    assert found["why"].startswith(
        "set --gpu-memory-utilization to 0.95 (now 0.9) against kv_max_len: with this change the first attempt would have had"
    )


def test_a_step_that_is_refused_is_passed_over():
    assert values(chosen(menu=MENU[1:], allow=["kv_cache_dtype"])) == {DTYPE: "fp8"}


def test_where_nothing_is_allowed_it_says_what_to_give():
    found = chosen(menu=MENU[1:])
    assert (found["step"], found["changes"]) == (None, [])
    assert found["why"] == (
        "against kv_max_len it takes to set --max-model-len to 16384 (now 40960), which isn't allowed yet: requests could have "
        "16384 tokens at most: give min_model_len (vllm_oom_min_model_len), 16384 or less"
    )


def test_the_limit_that_would_help_is_named_before_an_obstacle_that_no_limit_removes():
    slice_ = pod(gpus=0, limits={"nvidia.com/mig-1g.10gb": "1"})
    menu = (row("--tensor-parallel-size", "increase", 2, "hardware"), MENU[1])
    assert "give min_model_len" in chosen(menu=menu, seen=slice_)["why"]


def test_of_an_advised_step_it_says_what_a_person_must_do():
    found = chosen(finding("gpu_held_by_other", change("action", "free_gpu", "set", None, "it isn't vLLM's")))
    assert found["step"] is None
    assert found["why"] == (
        "against gpu_held_by_other nothing can be written: it is for a person to find out with nvidia-smi who holds the GPU memory "
        "and stop or move it (it isn't vLLM's)"
    )


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (pod(limits={"cpu": "4"}, workload=workload("Job", "batch/v1")), "must be made anew"),
        (pod(limits={"cpu": "4"}, workload=workload("Rollout", "argoproj.io/v1alpha1")), "aren't tested"),
        (
            pod(
                limits={"cpu": "4"},
                workload=workload(
                    managers=[
                        {"tool": "Flux", "object": "StatefulSet/vllm", "proof": "proof", "reverts": "on_sync"}
                    ]
                ),
            ),
            "Flux (StatefulSet/vllm) reverts a live edit: change it in its source",
        ),
    ],
)
def test_what_is_not_written_live_is_not_chosen(seen, said):
    found = chosen(seen=seen, **EVERYTHING)
    assert found["step"] is None
    assert said in found["why"]


def test_a_blocked_object_gives_nothing_and_the_reason():
    found = chosen(seen=pod(workload=workload("Deployment", paused=True)), **EVERYTHING)
    assert found["step"] is None
    assert found["why"] == "Deployment/vllm is paused: resume it, or ask who paused it, before it is changed"


# What was tried.


def test_what_was_tried_is_not_tried_again():
    first = chosen(**EVERYTHING)
    second = chosen(tried=first["changes"], **EVERYTHING)
    third = chosen(tried=[*first["changes"], *second["changes"]], **EVERYTHING)
    assert [values(found) for found in (first, second, third)] == [
        {UTILIZATION: 0.95},
        {LENGTH: 16384},
        {DTYPE: "fp8"},
    ]
    every = [*first["changes"], *second["changes"], *third["changes"]]
    last = chosen(tried=every, **EVERYTHING)
    assert (last["step"], last["why"]) == (
        None,
        "all that is planned against kv_max_len was tried without success",
    )


def made(name, before, after, target="flag", action="set"):
    """A change as a plan's apply had it."""
    return dict(
        change(target, name, "set", after), container="vllm", action=action, before=before, after=after
    )


@pytest.mark.parametrize(
    "tried",
    [
        made(UTILIZATION, 0.95, 0.9),
        # half of the way back
        made(UTILIZATION, 0.97, 0.9),
        made("gpu_memory_utilization", 0.95, 0.9),
    ],
)
def test_a_tried_change_is_not_taken_back(tried):
    assert values(chosen(tried=[tried], **EVERYTHING)) == {LENGTH: 16384}


def test_further_the_same_way_is_another_change():
    assert values(chosen(tried=[made(UTILIZATION, 0.8, 0.9)])) == {UTILIZATION: 0.95}


def test_what_was_added_is_not_removed():
    back = change("env", "NCCL_NVLS_ENABLE", "remove", None, "it isn't needed", "log")
    seen = pod(env={"NCCL_NVLS_ENABLE": "0"})
    asked = finding("nccl_gpu_oom", back)
    tried = [made("NCCL_NVLS_ENABLE", None, "0", target="env")]
    assert values(chosen(asked, menu=(), seen=seen)) == {"NCCL_NVLS_ENABLE": None}
    assert chosen(asked, menu=(), seen=seen, tried=tried)["step"] is None


def test_a_tried_change_of_another_container_is_another_one():
    other = dict(made(UTILIZATION, 0.95, 0.9), container="proxy")
    assert values(chosen(tried=[other])) == {UTILIZATION: 0.95}


def test_a_pair_of_which_one_was_tried_alone_is_a_new_step():
    pair = (
        row("--max-num-batched-tokens", "decrease", 2048, "speed", with_=("--max-num-seqs",)),
        row("--max-num-seqs", "decrease", 8, "concurrency", with_=("--max-num-batched-tokens",)),
    )
    tried = [made("--max-num-batched-tokens", 8192, 2048)]
    found = chosen(menu=pair, tried=tried, **EVERYTHING)
    assert values(found) == {"--max-num-batched-tokens": 2048, "--max-num-seqs": 8}


def test_the_strategy_of_an_earlier_attempt_does_not_count_as_tried():
    counts = {"desired": 1, "ready": 0, "updated": 1}
    seen = pod(settings={"max_model_len": 40960}, workload=workload("Deployment", replicas=counts))
    first = chosen(menu=MENU[:2], seen=seen, **EVERYTHING)
    second = chosen(menu=MENU[:2], seen=seen, tried=first["changes"], **EVERYTHING)
    assert values(first) == {UTILIZATION: 0.95, "strategy": {"type": "Recreate"}}
    assert values(second) == {LENGTH: 16384, "strategy": {"type": "Recreate"}}


@pytest.mark.parametrize("tried", ["--max-model-len", [5], [{"name": "x"}]])
def test_what_is_no_list_of_changes_is_refused(tried):
    with pytest.raises(DocumentError, match="list of changes"):
        plan(diagnosis(finding()), evidence(), None, None, tried)


# What goes together.


def test_the_rollout_goes_with_the_change_that_needs_it():
    counts = {"desired": 3, "ready": 0, "updated": 3}
    seen = pod(workload=workload("Deployment", replicas=counts, strategy={"type": "RollingUpdate"}))
    strategy = chosen(seen=seen)["changes"][-1]
    assert strategy == {
        **change(
            "k8s",
            "strategy",
            "set",
            {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
            "one replica after the other, none before its GPUs are free; as it is, the rollout would wait for 1 spare GPU",
            "rule",
        ),
        "container": "vllm",
        "action": "set",
        "before": {"type": "RollingUpdate", "max_surge": None, "max_unavailable": None},
        "after": {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
    }


def test_a_risk_is_left_alone_without_permission():
    assert values(chosen(finding(), throttled())) == {UTILIZATION: 0.95}


def test_with_permission_a_risk_that_costs_nothing_goes_with_it():
    found = chosen(finding(), throttled(), allow=["risks"])
    assert values(found) == {UTILIZATION: 0.95, CPU: None}
    assert (found["step"], found["with"]) == (1, [4])
    assert "; with it, as risks are allowed, remove resources.limits.cpu (now 4)" in found["why"]


def test_a_contributing_cause_is_treated_as_a_risk():
    beside = finding("cpu_throttling", NO_CPU, role="contributing")
    assert values(chosen(finding(), beside)) == {UTILIZATION: 0.95}
    assert values(chosen(finding(), beside, allow=["risks"])) == {UTILIZATION: 0.95, CPU: None}


def test_a_risk_that_costs_something_or_touches_the_same_stays_out():
    dear = finding("slot_limit", change("flag", "--max-num-seqs", "decrease", 8, "fewer", "log"), role="risk")
    same = finding("headroom_unused", change("flag", UTILIZATION, "set", 0.92, "room", "log"), role="risk")
    assert values(chosen(finding(), dear, same, **EVERYTHING)) == {UTILIZATION: 0.95}


def test_request_and_limit_of_one_resource_are_changed_by_one_step():
    asked = finding("eviction", change("k8s", REQUEST, "increase", None, "evicted first", "rule"))
    ratio = finding("memory_ratio", change("k8s", LIMIT, "set", "90Gi", "far", "arithmetic"), role="risk")
    seen = pod(limits={"memory": "64Gi"}, requests={"memory": "8Gi"})
    assert values(chosen(asked, ratio, menu=(), seen=seen, **EVERYTHING)) == {REQUEST: "48Gi"}


def test_where_host_use_is_what_failed_no_limit_is_set_beside():
    ray = finding(
        "ray_memory_monitor",
        change("flag", "--distributed-executor-backend", "set", "mp", "one node", "rule"),
        phase="serving",
    )
    missing = finding(
        "memory_limit_missing", change("k8s", LIMIT, "set", "64Gi", "none", "rule"), role="risk"
    )
    found = chosen(ray, missing, menu=(), seen=pod(), **EVERYTHING)
    assert values(found) == {"--distributed-executor-backend": "mp"}


def test_where_nothing_failed_risks_are_changed_with_permission_only():
    seen = pod(limits={"cpu": "4"}, conditions=[{"type": "Ready", "status": "True"}])
    without = chosen(throttled(), menu=(), seen=seen, allow=["restart_of_serving"])
    assert (
        without["why"] == "nothing failed; to change what is a risk, give allow (vllm_oom_allow) with risks"
    )
    serving = chosen(throttled(), menu=(), seen=seen, allow=["risks"])
    assert "restart_of_serving" in serving["why"]
    both = chosen(throttled(), menu=(), seen=seen, allow=["risks", "restart_of_serving"])
    assert (values(both), both["with"]) == ({CPU: None}, [])


def test_only_the_first_trigger_is_written_against():
    """The second replica's failure is another one, and its change would hide what the first does."""
    other = finding("pids_limit", change("env", "OMP_NUM_THREADS", "set", "1", "threads", "rule"))
    names = ("vllm-0", "vllm-1")
    document = plan(
        diagnosis(finding(), others=[("vllm-1", [other])]),
        evidence(*(pod(name) for name in names)),
        budget(entry(MENU[1])),
    )
    found = document["plans"][0]
    assert [item["change"]["name"] for item in found["changes"] if item["state"] == "planned"] == [
        "OMP_NUM_THREADS"
    ]
    assert found["apply"]["step"] is None
    assert "give min_model_len" in found["apply"]["why"]


def test_the_object_must_be_the_one_that_was_diagnosed():
    found = planned(diagnosis(finding()))
    assert found["expected"] == {"uid": "uid-of-the-object", "generation": 4}
    assert planned(diagnosis(finding()), evidence(pod(workload=documents.workload("Node", "gpu-0"))))[
        "expected"
    ] == {
        "uid": None,
        "generation": None,
    }
