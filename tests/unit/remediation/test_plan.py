# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of an edited object: its order, its proof, what it takes, how it is delivered, what stands against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_samples import (
    EVERYTHING,
    budget,
    diagnosis,
    entry,
    evidence,
    finding,
    oom,
    planned,
    pod,
    row,
    steps,
    workload,
)

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation import costs
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.workload_kinds import LAYOUTS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LENGTH, UTILIZATION, TOKENS = "--max-model-len", "--gpu-memory-utilization", "--max-num-batched-tokens"
CPU, LIMIT = "resources.limits.cpu", "resources.limits.memory"
NO_CPU = change("k8s", CPU, "remove", None, "it throttles", "rule")
EAGER = change("flag", "--enforce-eager", "add", None, "no graphs, no memory for them", "rule")
SERVES = [{"type": "Ready", "status": "True"}]


def throttled(seen=None, namespace=None, **limits):
    document = evidence(seen or pod(limits={"cpu": "4"}, requests={"cpu": "4"}), namespace=namespace)
    (found,) = planned(diagnosis(finding("cpu_throttling", NO_CPU)), document, **limits)["changes"]
    return found


# Order and proof.


def test_a_document_has_every_documented_field():
    found = plan(diagnosis(finding("cpu_throttling", NO_CPU)), evidence(pod(limits={"cpu": "4"})))
    assert set(found) == set(documents.plan_document({}))
    assert set(found["plans"][0]) == set(documents.object_plan({}, []))
    (item,) = found["plans"][0]["changes"]
    assert set(item) == set(documents.planned_change(item["change"], "planned"))
    json.dumps(found)


def test_singles_come_before_pairs_the_cheapest_first_and_hardware_last():
    pair = (
        row(TOKENS, "decrease", 2048, "speed", with_=("--max-num-seqs",)),
        row("--max-num-seqs", "decrease", 8, "concurrency", with_=(TOKENS,)),
    )
    menu = (
        row("--tensor-parallel-size", "increase", 2, "hardware"),
        *pair,
        row("--kv-cache-dtype", "set", "fp8", "precision"),
        row(LENGTH, "decrease", 16384, "context"),
        row(UTILIZATION, "increase", 0.95),
    )
    found = planned(diagnosis(finding()), None, budget(entry(*menu)), **EVERYTHING)
    assert steps(found) == [
        ("planned", {UTILIZATION: 0.95}),
        ("planned", {LENGTH: 16384}),
        ("planned", {"--kv-cache-dtype": "fp8"}),
        ("planned", {TOKENS: 2048, "--max-num-seqs": 8}),
        ("planned", {"--tensor-parallel-size": 2, "resources.limits.nvidia.com/gpu": "2"}),
    ]


def test_weights_go_to_the_host_only_where_nothing_cheaper_helps_and_the_limit_goes_with_them():
    menu = (row("--cpu-offload-gb", "set", 4, "speed"), row(LENGTH, "decrease", 16384, "context"))
    seen = evidence(pod(limits={"memory": "40Gi"}, requests={"memory": "32Gi"}))
    sized = budget(entry(*menu, host={"limit": 40 * GIB, "request": 32 * GIB}))
    found = planned(diagnosis(finding()), seen, sized, **EVERYTHING)
    assert steps(found) == [
        ("planned", {LENGTH: 16384}),
        ("planned", {"--cpu-offload-gb": 4, LIMIT: "44Gi", "resources.requests.memory": "36Gi"}),
    ]


def test_the_proof_says_what_would_have_been():
    sized = budget(entry(row(LENGTH, "decrease", 16384, "context", available=4.0, need=0.9)))
    (item,) = planned(diagnosis(finding()), None, sized, **EVERYTHING)["changes"]
    assert item["proof"] == (
        "with this change the first attempt would have had 4.00 GiB for the KV cache, 3.10 GiB more than the 921.6 MiB "
        "that one request of full length needs"
    )
    assert item["predicted"]["before"]["available_kv"] == 4 * GIB
    assert item["predicted"]["after"]["fits"] is True


def test_a_change_that_does_not_reach_the_goal_is_considered():
    found = planned(diagnosis(finding()), None, budget(entry(row(TOKENS, "decrease", 256, helps=False))))
    assert found["changes"] == []
    assert [item["change"]["name"] for item in found["considered"]] == [TOKENS]


def test_what_is_missing_beside_the_budget_is_no_way_to_a_larger_kv_cache():
    found = planned(diagnosis(finding()), None, budget(entry(row(TOKENS, "decrease", 256, outside=-1.0))))
    assert found["changes"] == []
    assert "1.00 GiB would be missing beside the budget" in found["considered"][0]["why"]


def test_without_a_budget_sizes_are_not_planned_and_it_is_said():
    recommended = [
        change("flag", LENGTH, "decrease", 18224, "as the log says", "log"),
        change("flag", UTILIZATION, "increase", 0.95, "more", "rule"),
        EAGER,
    ]
    document = plan(diagnosis(finding("kv_max_len", *recommended)), evidence(), None, EVERYTHING)
    found = document["plans"][0]
    assert [item["change"]["name"] for item in found["changes"]] == ["--enforce-eager", LENGTH]
    assert found["considered"][0]["why"] == "a size needs a budget, and none was given for this attempt"
    assert document["notes"]


def test_an_attempt_without_numbers_has_the_budget_of_the_next_one():
    """It was killed before it printed any, and the next one was running when the evidence was read."""
    menu = row(LENGTH, "decrease", 16384, "context")
    sized = budget(entry(menu, attempt=2))
    asked = diagnosis(finding("kv_max_len", attempt=1))
    assert steps(planned(asked, None, sized, **EVERYTHING)) == [("planned", {LENGTH: 16384})]


def test_the_utilization_is_lowered_by_what_was_missing():
    sized = entry(available_kv=20 * GIB, fits=True, outside={"margin": GIB, "error_bytes": 0})
    recommended = change("flag", UTILIZATION, "decrease", 0.85, "room", "rule")
    found = planned(
        diagnosis(finding("serving_gpu_oom", recommended, phase="serving", evidence=[oom(1.5, 0.3)])),
        None,
        budget(sized),
        **EVERYTHING,
    )
    (item,) = found["changes"]
    # 1.2 GiB were missing, half a GiB is left for workspaces: 1.7 of 80 GiB are 0.022.
    assert (item["change"]["after"], item["change"]["proof"]) == (0.87, "arithmetic")
    assert item["predicted"]["after"]["available_kv"] == pytest.approx(17.6 * GIB, abs=GIB // 100)


def test_a_lower_utilization_that_leaves_no_request_is_not_planned():
    sized = entry(available_kv=10 * GIB, fits=True)
    recommended = change("flag", UTILIZATION, "decrease", 0.85, "room", "rule")
    asked = finding("serving_gpu_oom", recommended, phase="serving", evidence=[oom(1.5, 0.3)])
    found = planned(diagnosis(asked), None, budget(sized), **EVERYTHING)
    assert found["changes"] == []
    assert "10.00 GiB" in found["considered"][0]["why"]


def test_batched_tokens_follow_from_the_profiles_peak():
    part = {"name": "activation_peak", "bytes": 8 * GIB, "proof": "modelled", "error_bytes": GIB}
    sized = entry(available_kv=20 * GIB, segments=[part])
    recommended = change("flag", TOKENS, "decrease", None, "the profile", "rule")
    asked = finding("profile_run_oom", recommended, phase="profile", evidence=[oom(2.0, 1.0)])
    (item,) = planned(diagnosis(asked), None, budget(sized), **EVERYTHING)["changes"]
    # 1 GiB was missing and 1 GiB is the error: a quarter of the peak, so of the 8192 tokens.
    assert item["change"]["after"] == 6144


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "expandable_segments:True"),
        ("max_split_size_mb:128", "max_split_size_mb:128,expandable_segments:True"),
        (
            "expandable_segments:False,garbage_collection_threshold:0.8",
            "garbage_collection_threshold:0.8,expandable_segments:True",
        ),
    ],
)
def test_an_allocator_option_takes_the_place_of_its_own_value_only(before, after):
    option = change("env", "PYTORCH_CUDA_ALLOC_CONF", "set", "expandable_segments:True", "fragments", "log")
    seen = evidence(pod(env={"PYTORCH_CUDA_ALLOC_CONF": before} if before else {}))
    (item,) = planned(diagnosis(finding("gpu_fragmentation", option)), seen)["changes"]
    assert (item["change"]["before"], item["change"]["after"]) == (before, after)


def test_a_model_of_unknown_size_gets_no_memory_limit():
    recommended = change("k8s", LIMIT, "set", "9Gi", "a limit", "rule")
    sized = budget(entry(model={"name": "org/model", "parameters": None}))
    found = planned(diagnosis(finding("node_oom", recommended)), None, sized, **EVERYTHING)
    assert found["changes"] == []
    assert found["considered"][0]["why"].startswith("how large the model is isn't known")


def test_a_request_alone_is_raised_up_to_the_limit_and_sets_none():
    recommended = change("k8s", "resources.requests.memory", "increase", None, "evicted first", "rule")
    asked = diagnosis(finding("eviction", recommended))
    for limits, expected in (({"memory": "40Gi"}, "40Gi"), ({}, "48Gi")):
        seen = evidence(pod(limits=limits, requests={"memory": "8Gi"}))
        found = planned(asked, seen, budget(entry()), **EVERYTHING)
        assert steps(found) == [("planned", {"resources.requests.memory": expected})]


def test_a_field_that_is_none_of_kubernetes_is_left_to_a_person():
    gpus = change("k8s", "resources.limits.gpu", "set", 4, "as many as ranks", "rule")
    assert steps(planned(diagnosis(finding("not_memory_config", gpus))), "planned") == []


def test_a_fixed_kv_cache_does_not_follow_the_utilization():
    part = {"name": "kv_available", "bytes": 20 * GIB, "proof": "set", "error_bytes": 0}
    recommended = change("flag", UTILIZATION, "decrease", 0.85, "room", "rule")
    asked = finding("serving_gpu_oom", recommended, phase="serving", evidence=[oom(1.5, 0.3)])
    found = planned(
        diagnosis(asked), None, budget(entry(available_kv=20 * GIB, segments=[part])), **EVERYTHING
    )
    assert found["changes"] == []
    assert "size is set, whatever the utilization" in found["considered"][0]["why"]


def test_the_ranks_of_an_engine_of_several_pods_are_not_one_pods_matter():
    sized = budget(entry(row("--tensor-parallel-size", "increase", 16, "hardware")))
    found = planned(diagnosis(finding()), evidence(pod(group="LeaderWorkerSet/vllm-0")), sized, **EVERYTHING)
    assert found["changes"] == []
    assert "spans the pods of LeaderWorkerSet/vllm-0" in found["considered"][0]["why"]


def test_a_volume_that_the_limit_does_not_hold_raises_it():
    volume = change("k8s", "volumes.shm", "add", "16Gi", "ranks", "arithmetic", with_=(LIMIT,))
    asked = diagnosis(finding("shm_exhausted", volume))
    for limit, expected in (
        ("40Gi", {"volumes.shm": "16Gi", LIMIT: "56Gi"}),
        ("46Gi", {"volumes.shm": "16Gi"}),
    ):
        seen = evidence(pod(limits={"memory": limit}))
        # The engine needs 30 GiB itself.
        assert steps(planned(asked, seen, budget(entry()), **EVERYTHING)) == [("planned", expected)]


# Several pods, several findings.


def test_what_the_first_failure_rules_out_is_not_said_to_be_impossible():
    """The diagnosis leaves out what the first failure's cause rules out; the plan says so, or that it is set already."""
    raised = change("k8s", LIMIT, "increase", None, "alone it makes no room", "rule")
    # What the risk would recommend is among that.
    low = finding("memory_limit_low", role="risk")
    first = finding("kv_max_len", rejected=[raised])
    (note,) = [text for text in planned(diagnosis(first, low))["notes"] if "memory_limit_low" in text]
    assert note == (
        "nothing is planned against memory_limit_low: kv_max_len comes first, and what would help against memory_limit_low is "
        "among what that rules out"
    )
    volume = change("k8s", "volumes.shm", "add", "6Gi", "NCCL's segments", "arithmetic", with_=[LIMIT])
    seen = evidence(pod(limits={"memory": "8Gi"}, requests={"memory": "6Gi"}))
    first = finding("shm_exhausted", volume, rejected=[raised])
    (note,) = planned(diagnosis(first, low), seen, budget(entry()), max_memory="64Gi")["notes"]
    assert note == (
        "nothing is planned against memory_limit_low: step 1 against shm_exhausted sets resources.limits.memory already"
    )


def test_a_change_that_two_findings_ask_for_is_planned_once():
    risk = finding("cpu_limit_set", NO_CPU, role="risk", attempt=None)
    found = planned(diagnosis(finding("cpu_throttling", NO_CPU), risk), evidence(pod(limits={"cpu": "4"})))
    (item,) = found["changes"]
    assert (item["cause"], item["also"]) == ("cpu_throttling", ["cpu_limit_set"])


def test_replicas_of_one_object_have_one_plan_and_the_first_pods_value_counts():
    names = ("vllm-0", "vllm-1")
    sized = [
        entry(row(LENGTH, "decrease", value, "context"), pod=name)
        for name, value in zip(names, (16384, 8192), strict=True)
    ]
    document = plan(
        diagnosis(finding(), others=[("vllm-1", [finding()])]),
        evidence(*(pod(name) for name in names)),
        budget(*sized),
        EVERYTHING,
    )
    (found,) = document["plans"]
    assert found["pods"] == ["llm/vllm-0", "llm/vllm-1"]
    assert [item["change"]["after"] for item in found["changes"]] == [16384]


def test_objects_have_plans_of_their_own():
    other = pod("other-0", limits={"cpu": "2"}, workload=workload("Deployment"))
    document = plan(
        diagnosis(
            finding("cpu_throttling", NO_CPU), others=[("other-0", [finding("cpu_throttling", NO_CPU)])]
        ),
        evidence(pod(limits={"cpu": "4"}), other),
    )
    assert [item["object"]["kind"] for item in document["plans"]] == ["StatefulSet", "Deployment"]


# Back to what ran.


def changed(*diff):
    revisions = [
        {"revision": "6", "current": False, "diff": []},
        {"revision": "7", "current": True, "diff": list(diff)},
    ]
    return pod(
        settings={"max_model_len": 131072},
        workload=workload(
            "Deployment", revisions=revisions, replicas={"desired": 2, "ready": 1, "updated": 1}
        ),
    )


def diff(field, before, after):
    return {"container": "vllm", "field": field, "before": before, "after": after, "why": None}


def back(proof="log"):
    return change("action", "rollback_revision", "set", None, "Pods of another revision serve.", proof)


def test_back_to_the_revision_that_serves_comes_first_and_takes_nothing():
    seen = changed(diff("args.max_model_len", 8192, 131072), diff("env.MAX_JOBS", None, "16"))
    sized = budget(entry(row(LENGTH, "decrease", 16384, "context")))
    seen["containers"][0]["env"] = [{"name": "MAX_JOBS", "value": "16", "from": None}]
    found = planned(diagnosis(finding("kv_max_len", back())), evidence(seen), sized)
    assert steps(found)[0] == ("planned", {LENGTH: 8192, "MAX_JOBS": None})
    first = found["changes"][0]
    assert first["proof"] == "revision 6 ran and serves now; this goes back to it"
    assert first["restarts"]["serving"] == 0


@pytest.mark.parametrize(
    "item",
    [
        diff("env.HF_TOKEN", "***", "***"),
        diff("env.KEY", "(from elsewhere)", None),
        diff("command", "sh -c a", "sh -c b"),
        diff("volumes.dshm", "emptyDir", None),
    ],
)
def test_what_cannot_be_undone_singly_goes_back_by_hand(item):
    found = planned(diagnosis(finding("kv_max_len", back())), evidence(changed(item)))
    (only,) = found["changes"]
    assert (only["state"], only["change"]["name"]) == ("advised", "rollback_revision")


def test_a_revision_that_nobody_saw_running_is_advised_only():
    seen = evidence(changed(diff("args.max_model_len", 8192, 131072)))
    found = planned(diagnosis(finding("kv_max_len", back("rule"))), seen)
    assert steps(found, "planned") == []


# What the log, the attempt and the pod say against the budget.


def test_the_logs_own_length_counts_where_it_is_the_shorter():
    logged = change("flag", LENGTH, "decrease", 12288, "that many tokens fit the KV cache as it is", "log")
    sized = budget(entry(row(LENGTH, "decrease", 16384, "context")))
    found = planned(diagnosis(finding("kv_max_len", logged)), None, sized, **EVERYTHING)
    assert steps(found) == [("planned", {LENGTH: 12288})]
    assert found["changes"][0]["proof"] == "that many tokens fit the KV cache as it is (by log)"


def test_what_the_warm_up_was_made_with_counts_before_the_model():
    logged = change("flag", "--max-num-seqs", "decrease", 256, "the warm-up is made with that many", "log")
    menu = (row("--max-num-seqs", "decrease", 904, "concurrency"),)
    sized = budget(entry(*menu, available_kv=20 * GIB, fits=True))
    asked = diagnosis(finding("sampler_warmup_oom", logged, phase="warmup"))
    assert steps(planned(asked, None, sized, **EVERYTHING)) == [("planned", {"--max-num-seqs": 256})]


@pytest.mark.parametrize(("outside", "planned_"), [(0.4, []), (0.6, [("planned", {TOKENS: 2048})])])
def test_room_beside_the_budget_must_be_as_much_as_was_missing(outside, planned_):
    sized = entry(row(TOKENS, "decrease", 2048, "speed", outside=outside), available_kv=20 * GIB, fits=True)
    asked = finding("cudagraph_capture_oom", phase="graph_capture", evidence=[oom(1.5, 0.5)])
    found = planned(diagnosis(asked), None, budget(sized), **EVERYTHING)
    assert steps(found) == planned_
    if not planned_:
        assert "more beside the budget, and 1.00 GiB were missing" in found["considered"][0]["why"]


def test_a_utilization_of_the_budget_that_leaves_too_little_is_lowered_by_what_was_missing():
    menu = (row(UTILIZATION, "decrease", 0.88, "concurrency", outside=0.4),)
    sized = entry(*menu, available_kv=20 * GIB, fits=True, outside={"margin": 0, "error_bytes": 0})
    recommended = change("flag", UTILIZATION, "decrease", 0.85, "room", "rule")
    asked = finding("sampler_warmup_oom", recommended, phase="warmup", evidence=[oom(1.5, 0.3)])
    # 1.2 GiB were missing, half a GiB is left for workspaces: 1.7 of 80 GiB are 0.022.
    assert steps(planned(diagnosis(asked), None, budget(sized), **EVERYTHING)) == [
        ("planned", {UTILIZATION: 0.87})
    ]


@pytest.mark.parametrize("phase", ["graph_capture", "warmup", "serving"])
def test_a_budget_that_denies_what_the_attempt_did_is_not_used(phase):
    menu = (row(TOKENS, "decrease", 2048, "speed"), row("--quantization", "set", "fp8", "precision"))
    asked = finding(
        "serving_gpu_oom", change("flag", UTILIZATION, "decrease", 0.85, "room", "rule"), phase=phase
    )
    found = planned(diagnosis(asked), None, budget(entry(*menu)), **EVERYTHING)
    assert steps(found) == []
    assert found["considered"][0]["why"].startswith(
        "by the budget the KV cache would have 4.25 GiB and need 10.00 GiB, yet the engine came further"
    )


def test_a_larger_kv_cache_that_leaves_graphs_no_room_goes_without_graphs():
    menu = (
        row(LENGTH, "decrease", 16384, "context", outside=-0.5),
        row("--enforce-eager", "add", None, "speed", helps=False, outside=0.1),
    )
    found = planned(diagnosis(finding()), None, budget(entry(*menu)), **EVERYTHING)
    assert steps(found) == [("planned", {LENGTH: 16384, "--enforce-eager": True})]
    assert found["changes"][0]["costs"] == "context"
    assert found["changes"][0]["proof"].endswith(
        "without CUDA graphs nothing more is needed beside the budget"
    )
    assert planned(diagnosis(finding()), None, budget(entry(*menu)), min_model_len=1)["apply"]["step"] is None


RANKS = {"--tensor-parallel-size": 2, "resources.limits.nvidia.com/gpu": "2"}


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        (4, [{"--cpu-offload-gb": 4}, RANKS]),
        # More than a tenth of the weights would slow each step down several times: more GPUs come first.
        (5, [RANKS, {"--cpu-offload-gb": 5}]),
        (10, [RANKS, {"--cpu-offload-gb": 10}]),
        (11, [RANKS]),
    ],
)
def test_the_more_weights_would_cross_the_bus_the_later_they_go_to_the_host(moved, expected):
    weights = {"name": "weights", "bytes": 40 * GIB, "proof": "modelled", "error_bytes": 0}
    menu = (
        row("--cpu-offload-gb", "set", moved, "speed"),
        row("--tensor-parallel-size", "increase", 2, "hardware"),
    )
    plan = planned(diagnosis(finding()), None, budget(entry(*menu, segments=[weights])), **EVERYTHING)
    assert [step[1] for step in steps(plan, "planned")] == expected


def test_what_a_person_does_is_in_the_order_of_what_it_takes_and_what_is_tried_in_that_of_the_diagnosis():
    actions = [change("action", name, "set", None, "x", "rule") for name in ("larger_gpu", "smaller_model")]
    actions.append(change("action", "smaller_quantization", "set", None, "x", "rule"))
    found = planned(diagnosis(finding("gpu_weights_oom", *actions)))
    assert [item["change"]["name"] for item in found["changes"]] == [
        "smaller_quantization",
        "smaller_model",
        "larger_gpu",
    ]
    tried = [
        change("env", "NCCL_P2P_DISABLE", "set", "1", "the usual one", "rule"),
        change("env", "NCCL_DEBUG", "set", "INFO", "it shows more", "rule"),
    ]
    found = planned(diagnosis(finding("nccl_not_memory", *tried)))
    assert [item["change"]["name"] for item in found["changes"]] == ["NCCL_P2P_DISABLE", "NCCL_DEBUG"]


def test_how_long_a_step_waits_for_the_bus_is_said():
    sized = budget(entry(row("--cpu-offload-gb", "set", 4, "speed")))
    (item,) = planned(diagnosis(finding()), None, sized, **EVERYTHING)["changes"]
    # 4.29 GB at 64 GB/s.
    assert any("4 GiB cross PCIe in each step, 0.067 s at least" in text for text in item["risks"])
    weights = {"name": "weights", "bytes": 131 * GIB, "proof": "modelled", "error_bytes": 0}
    sized = budget(entry(row("--cpu-offload-gb", "set", 66, "speed"), segments=[weights]))
    (left,) = planned(diagnosis(finding()), None, sized, **EVERYTHING)["considered"]
    assert left["why"].startswith(
        "of 131.00 GiB of weights on each GPU, 66 GiB cross PCIe in each step, 1.1 s at least"
    )


def test_weights_that_the_node_cannot_hold_are_not_moved_to_it():
    seen = evidence(node={"allocatable": {"memory": "16Gi"}})
    sized = budget(entry(row("--cpu-offload-gb", "set", 20, "speed")))
    (item,) = planned(diagnosis(finding()), seen, sized, **EVERYTHING)["changes"]
    assert item["refused"] == ["20 GiB of weights are more than the node's allocatable memory, 16.00 GiB"]


@pytest.mark.parametrize(
    ("accelerator", "resource"),
    [("cuda", "nvidia.com/gpu"), ("rocm", "amd.com/gpu"), ("tpu", "google.com/tpu"), ("xpu", None)],
)
def test_more_ranks_ask_for_the_accelerators_own_resource(accelerator, resource):
    seen = pod(gpus=0)
    seen["containers"][0]["engine"]["accelerator"] = accelerator
    sized = budget(entry(row("--tensor-parallel-size", "increase", 2, "hardware")))
    found = planned(diagnosis(finding()), evidence(seen), sized, **EVERYTHING)
    name = f"resources.limits.{resource}"
    assert steps(found) == ([("planned", {"--tensor-parallel-size": 2, name: "2"})] if resource else [])
    if resource is None:
        assert "isn't known by which resource" in found["considered"][0]["why"]


def test_a_gpu_that_shares_the_hosts_memory_has_no_second_one():
    seen = evidence(node={"gpu": {"unified": True}})
    sized = budget(entry(row("--tensor-parallel-size", "increase", 2, "hardware")))
    found = planned(diagnosis(finding()), seen, sized, **EVERYTHING)
    assert "takes another machine" in found["changes"][0]["refused"][0]


def test_what_is_left_unknown_is_not_asked_for_by_a_limit():
    unknown = row(UTILIZATION, "decrease", 0.85, "concurrency", max_concurrency=None)
    sized = budget(entry(unknown, available_kv=20 * GIB, fits=True))
    asked = diagnosis(finding("cudagraph_capture_oom", phase="graph_capture"))
    for limits in ({}, {"min_concurrency": 1}):
        (item,) = planned(asked, None, sized, **limits)["changes"]
        assert item["refused"] == [
            "how many requests of full length at once it leaves isn't known, so no floor can be kept: make it by hand, or give what "
            "the budget lacks"
        ]


def test_ray_without_a_limit_gets_none():
    recommended = change("k8s", LIMIT, "set", None, "it counts against the limit", "rule")
    asked = diagnosis(finding("ray_memory_monitor", recommended, phase="serving"))
    assert steps(planned(asked, evidence(pod()), budget(entry()), **EVERYTHING)) == []
    limited = evidence(pod(limits={"memory": "40Gi"}, requests={"memory": "40Gi"}))
    assert steps(planned(asked, limited, budget(entry()), **EVERYTHING)) == [
        ("planned", {LIMIT: "64Gi", "resources.requests.memory": "48Gi"})
    ]


def test_an_engine_of_several_pods_needs_ray():
    backend = change("flag", "--distributed-executor-backend", "set", "mp", "one node", "rule")
    asked = diagnosis(finding("ray_memory_monitor", backend, phase="serving"))
    assert steps(planned(asked)) == [("planned", {"--distributed-executor-backend": "mp"})]
    spread = planned(asked, evidence(pod(group="RayCluster/vllm")))
    assert spread["changes"] == []
    assert "which Ray brings together" in spread["considered"][0]["why"]


def test_where_the_nodes_memory_ran_out_what_the_engine_needs_is_reserved():
    recommended = change("k8s", LIMIT, "set", "64Gi", "none is set", "rule")
    sized = budget(entry(host={"need_bytes": 50 * GIB}))
    (_limit, request) = planned(diagnosis(finding("node_oom", recommended)), None, sized, **EVERYTHING)[
        "changes"
    ]
    assert request["change"]["after"] == "50Gi"
    assert request["proof"] == (
        "the first attempt had nothing of the node's memory reserved and needs 50.00 GiB that can't be reclaimed; with this request it "
        "is placed only where 50.00 GiB are left for it"
    )


def test_several_slices_are_all_shown_to_the_engine():
    shown = change("env", "CUDA_VISIBLE_DEVICES", "set", "0", "numbers, not identifiers", "log")
    asked = diagnosis(finding("not_memory_config", shown))
    for gpus, expected in ((1, "0"), (4, "0,1,2,3")):
        assert steps(planned(asked, evidence(pod(gpus=gpus)))) == [
            ("planned", {"CUDA_VISIBLE_DEVICES": expected})
        ]


def test_weights_behind_a_url_keep_their_loader():
    loader = change("flag", "--load-format", "set", "safetensors", "they are mapped", "rule")
    asked = diagnosis(finding("host_oom_load", loader, phase="load"))
    seen = evidence(pod(settings={"model": "s3://bucket/model", "load_format": "runai_streamer"}))
    assert steps(planned(asked, seen)) == []
    assert steps(planned(asked, evidence(pod(settings={"load_format": "runai_streamer"})))) == [
        ("planned", {"--load-format": "safetensors"})
    ]


# What it takes.


@pytest.mark.parametrize(
    ("kind", "replicas", "strategy", "after"),
    [
        ("Deployment", 1, None, {"type": "Recreate"}),
        ("Deployment", 1, {"type": "Recreate"}, None),
        (
            "Deployment",
            3,
            {"type": "RollingUpdate"},
            {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
        ),
        ("Deployment", 3, {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1}, None),
        (
            "Deployment",
            3,
            {"type": "Recreate"},
            {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
        ),
        ("StatefulSet", 3, {"type": "RollingUpdate"}, None),
    ],
)
def test_a_rollout_never_waits_for_a_spare_gpu(kind, replicas, strategy, after):
    counts = {"desired": replicas, "ready": 0, "updated": replicas}
    seen = pod(limits={"cpu": "4"}, workload=workload(kind, replicas=counts, strategy=strategy))
    item = throttled(seen)
    assert (item["strategy"] or {}).get("after") == after
    assert item["extra_gpus"] == 0
    assert item["restarts"] == {"pods": replicas, "serving": 0}


LEAVING = {"conditions": SERVES, "deleted_at": "2026-11-30T06:59:50Z"}


@pytest.mark.parametrize(
    ("kind", "ready", "serving"),
    [
        # A Deployment's count has no pod that is being deleted, so one that nobody read serves; a StatefulSet's has.
        ("Deployment", 0, 0),
        ("Deployment", 1, 1),
        ("StatefulSet", 1, 0),
        ("StatefulSet", 2, 1),
        ("DaemonSet", 1, 0),
    ],
)
def test_a_pod_that_is_being_deleted_does_not_serve(kind, ready, serving):
    owner = workload(kind, replicas={"desired": 1, "ready": ready, "updated": 1})
    seen = evidence(pod(limits={"cpu": "4"}, workload=owner), pod("vllm-1", workload=owner, **LEAVING))
    recommended = change("k8s", CPU, "remove", None, "throttled", "rule")
    found = planned(diagnosis(finding("cpu_limit_set", recommended)), seen)
    assert found["changes"][0]["restarts"] == {"pods": 1, "serving": serving}
    assert [text for text in found["changes"][0]["refused"] if "serving replica" in text] == (
        ["1 serving replica would be started anew: give allow (vllm_oom_allow) with restart_of_serving"]
        if serving
        else []
    )


@pytest.mark.parametrize(
    ("item", "takes"),
    [
        (change("action", "smaller_model", "set", None, "smaller"), "quality"),
        (change("action", "smaller_quantization", "set", None, "smaller"), "precision"),
        (change("action", "larger_gpu", "set", None, "larger"), "hardware"),
        (change("env", "NCCL_NVLS_ENABLE", "set", "0", "without NVLS"), "speed"),
        (change("env", "NCCL_NVLS_ENABLE", "remove", None, "with NVLS"), "nothing"),
        (change("env", "NCCL_BUFFSIZE", "set", "2097152", "smaller buffers"), "speed"),
        (change("env", "NCCL_BUFFSIZE", "remove", None, "usual buffers"), "nothing"),
        (change("env", "NCCL_MAX_CTAS", "set", "8", "fewer channels"), "speed"),
        (change("env", "NCCL_P2P_DISABLE", "set", "1", "no peer access"), "speed"),
        (change("flag", "--disable-custom-all-reduce", "add", None, "NCCL's own"), "speed"),
        (change("flag", "--mm-processor-cache-gb", "decrease", 1, "smaller cache"), "speed"),
        (change("flag", "--mm-processor-cache-gb", "increase", 8, "larger cache"), "nothing"),
        (change("env", "NCCL_DEBUG", "set", "INFO", "shows more"), "nothing"),
    ],
)
def test_what_a_change_takes_where_no_budget_says_it(item, takes):
    assert costs.taken(item) == takes
    assert costs.in_words(takes)


def test_downtime_is_one_start_where_the_only_serving_replica_restarts():
    probes = {"startup": {"failure_threshold": 30, "period_seconds": 10}, "liveness": None, "readiness": None}
    seen = pod(limits={"cpu": "4"}, probes=probes, conditions=SERVES)
    item = throttled(seen, allow=["restart_of_serving"])
    assert item["downtime"] == {
        "seconds": None,
        "at_most": 300.0,
        "sentence": "one start of the engine, at most 300 s by its startup probe",
    }


def test_a_pod_that_stops_being_guaranteed_is_said():
    sizes = {"cpu": "4", "memory": "40Gi"}
    item = throttled(pod(limits=sizes, requests=sizes, qos="Guaranteed"))
    assert item["risks"][0].startswith("the pod is no longer Guaranteed")


def test_a_guaranteed_pod_stays_so_with_more_memory():
    sizes = {"memory": "40Gi"}
    recommended = change("k8s", LIMIT, "increase", "52Gi", "the loader", "rule")
    seen = evidence(pod(limits=sizes, requests=sizes, qos="Guaranteed"))
    found = planned(
        diagnosis(finding("host_oom_load", recommended)), seen, budget(entry()), max_memory="64Gi"
    )
    assert steps(found) == [("planned", {LIMIT: "64Gi", "resources.requests.memory": "64Gi"})]


@pytest.mark.parametrize(
    ("kind", "replicas", "after"),
    [
        ("Deployment", 1, {"type": "Recreate"}),
        ("Deployment", 2, {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1}),
    ],
)
def test_recreate_is_for_one_replica_only(kind, replicas, after):
    recommended = change("k8s", "strategy", "set", "Recreate", "the previous pod holds the GPU", "rule")
    seen = pod(workload=workload(kind, replicas={"desired": replicas, "ready": 0, "updated": replicas}))
    found = planned(diagnosis(finding("unschedulable", recommended)), evidence(seen))
    assert steps(found) == [("planned", {"strategy": after})]


def test_how_another_kind_rolls_out_is_not_known():
    item = throttled(pod(limits={"cpu": "4"}, workload=workload("Rollout", "argoproj.io/v1alpha1")))
    assert item["extra_gpus"] is None
    assert item["risks"][-1].startswith("a new pod may wait for GPUs that an old one holds")


@pytest.mark.parametrize(
    ("strategy", "extra"),
    [(None, 0), ({"max_surge": 0}, 0), ({"max_surge": "0%"}, 0), ({"max_surge": 1}, None)],
)
def test_a_leader_worker_set_that_does_not_surge_needs_no_spare_gpu(strategy, extra):
    owner = workload("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", strategy=strategy)
    assert throttled(pod(limits={"cpu": "4"}, workload=owner))["extra_gpus"] == extra


# What stands against it.


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        (
            {"quotas": [{"name": "q", "hard": {"limits.cpu": "64"}, "used": {}, "scopes": []}]},
            "ResourceQuota q",
        ),
        (
            {"limit_ranges": [{"name": "r", "limits": [{"type": "Container", "default": {"cpu": "2"}}]}]},
            "adds a limit",
        ),
        (
            {"limit_ranges": [{"name": "r", "limits": [{"type": "Container", "max": {"cpu": "8"}}]}]},
            "refuses pods",
        ),
    ],
)
def test_a_namespace_that_demands_the_limit_comes_first(namespace, said):
    item = throttled(namespace=namespace)
    assert item["state"] == "refused"
    assert said in item["refused"][0]


def test_more_memory_than_node_or_quota_have_is_refused():
    recommended = change("k8s", LIMIT, "increase", "52Gi", "the loader", "rule")
    quota = {"name": "q", "hard": {"limits.memory": "46Gi"}, "used": {"limits.memory": "40Gi"}, "scopes": []}
    seen = evidence(
        pod(limits={"memory": "40Gi"}, requests={"memory": "32Gi"}),
        namespace={"quotas": [quota]},
        node={"allocatable": {"memory": "47Gi"}},
    )
    found = planned(
        diagnosis(finding("host_oom_load", recommended)), seen, budget(entry()), max_memory="64Gi"
    )
    refused = " ".join(found["changes"][0]["refused"])
    assert "more than the node's allocatable 47.00 GiB" in refused
    assert "ResourceQuota q has limits.memory 46Gi" in refused


def ranged(ratio, limit, request, kind="Container", **more):
    """The plan of a container killed at ``limit`` in a namespace with such a ratio at most."""
    recommended = change("k8s", LIMIT, "increase", "52Gi", "the loader", "rule")
    limits = [{"type": kind, "maxLimitRequestRatio": {"memory": ratio}}]
    seen = evidence(
        pod(limits={"memory": limit}, requests={"memory": request} if request else {}, **more),
        namespace={"limit_ranges": [{"name": "r", "limits": limits}]},
    )
    asked = diagnosis(finding("host_oom_load", recommended))
    return planned(asked, seen, budget(entry()), max_memory="64Gi")


@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_a_limit_range_bounds_how_far_a_limit_is_above_its_request(kind):
    # 64Gi over a request of 48Gi.
    assert [step[0] for step in steps(ranged("1334m", "40Gi", "30Gi", kind))] == ["planned"]
    refused = ranged("1.2", "40Gi", "30Gi", kind)["changes"][0]["refused"]
    assert refused == [
        "LimitRange r allows a limit of memory of 1.2 times its request at most, and 64.00 GiB would be more than that of "
        "48.00 GiB: raise the request, too, or change the LimitRange first"
    ]


def test_a_limit_range_with_a_ratio_demands_a_limit():
    limits = [{"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}}]
    item = throttled(namespace={"limit_ranges": [{"name": "r", "limits": limits}]})
    assert item["refused"] == ["LimitRange r refuses pods without a limit of cpu: change it first"]


def test_a_paused_object_is_not_changed():
    seen = pod(limits={"cpu": "4"}, workload=workload("Deployment", paused=True))
    item = throttled(seen)
    assert "is paused" in item["refused"][0]


def test_a_pod_of_an_older_revision_waits_for_the_rollout():
    revisions = [
        {"revision": "6", "current": True, "diff": []},
        {"revision": "7", "current": False, "diff": []},
    ]
    item = throttled(pod(limits={"cpu": "4"}, workload=workload("Deployment", revisions=revisions)))
    assert "newest revision 7" in item["refused"][0]


def two_revisions(current):
    revisions = [{"revision": number, "current": number == current, "diff": []} for number in ("6", "7")]
    return workload("Deployment", revisions=revisions, replicas={"desired": 2, "ready": 0, "updated": 1})


def test_a_pod_of_the_newest_revision_is_planned_against_also_while_older_ones_are_left():
    """A rollout that fails never ends by itself: waiting for it would be waiting for ever."""
    old = pod("vllm-0", limits={"cpu": "4"}, workload=two_revisions("6"))
    new = pod("vllm-1", limits={"cpu": "4"}, workload=two_revisions("7"))
    asked = diagnosis(
        finding("pids_limit", change("env", "OMP_NUM_THREADS", "set", "1", "threads", "rule")),
        others=[("vllm-1", [finding("cpu_throttling", NO_CPU)])],
    )
    found = planned(asked, evidence(old, new))
    assert (found["blocked"], steps(found)) == ([], [("planned", {CPU: None})])
    assert found["notes"][0].startswith("llm/vllm-0: of an older revision")
    only_old = planned(diagnosis(finding("cpu_throttling", NO_CPU)), evidence(old, new))
    assert "newest revision 7" in only_old["apply"]["why"]


def changed_by_us(**own):
    known = {"run": "a1", "at": "2026-11-30T06:58:00Z", "until": "2026-11-30T07:01:00Z", "host": "runner-7"}
    known.update({"verdict": None, "causes": [], "records": 1, "problems": []}, **own)
    return pod(limits={"cpu": "4"}, workload=workload(own_change=known))


def test_an_object_that_another_run_watches_is_not_changed():
    seen = evidence(changed_by_us())
    found = planned(diagnosis(finding("cpu_throttling", NO_CPU)), seen)
    assert found["blocked"] == [
        "another run (a1 on runner-7) changed StatefulSet/vllm at 2026-11-30T06:58:00Z and watches it until "
        "2026-11-30T07:01:00Z: wait for it"
    ]
    assert found["apply"]["why"] == found["blocked"][0]
    mine = plan(diagnosis(finding("cpu_throttling", NO_CPU)), seen, run="a1")["plans"][0]
    assert (mine["blocked"], mine["apply"]["step"]) == ([], 1)


@pytest.mark.parametrize("until", [None, "2026-11-30T07:00:00Z", "2026-11-30T08:30:00+02:00"])
def test_a_run_that_has_ended_is_no_obstacle(until):
    """The time that counts is that of the evidence."""
    found = planned(diagnosis(finding("cpu_throttling", NO_CPU)), evidence(changed_by_us(until=until)))
    assert found["blocked"] == []
    left = [note for note in found["notes"] if "ended before it said what came of it" in note]
    assert bool(left) is (until is not None)


def test_an_annotation_that_cannot_be_read_is_an_obstacle():
    problem = "its annotation x isn't as this collection writes it"
    found = planned(
        diagnosis(finding("cpu_throttling", NO_CPU)), evidence(changed_by_us(until=None, problems=[problem]))
    )
    assert found["blocked"] == [f"StatefulSet/vllm: {problem}"]


def test_a_start_that_fails_where_the_same_template_serves_is_not_the_templates_fault():
    judged = {"pods": ["llm/vllm-0"], "serving": ["llm/vllm-1"], "template_suspect": False}
    asked = diagnosis(finding("cudagraph_capture_oom", EAGER), workloads=[judged])
    (item,) = planned(asked, None, None, **EVERYTHING)["changes"]
    assert item["state"] == "refused"
    assert "llm/vllm-1 serve with the same template" in item["refused"][0]


def test_slices_do_not_work_together():
    seen = pod(gpus=0, limits={"nvidia.com/mig-1g.10gb": "1"})
    sized = budget(entry(row("--tensor-parallel-size", "increase", 2, "hardware")))
    found = planned(diagnosis(finding()), evidence(seen), sized, **EVERYTHING)
    assert {item["state"] for item in found["changes"]} == {"refused"}
    assert "slices of a GPU" in found["changes"][0]["refused"][0]


# How it is delivered.


def managed(reverts, proof="proof", tool="Argo CD"):
    manager = {"tool": tool, "object": "Deployment/vllm", "proof": proof, "reverts": reverts}
    return pod(limits={"cpu": "4"}, workload=workload("Deployment", managers=[manager]))


@pytest.mark.parametrize(
    ("seen", "how"),
    [
        (pod(limits={"cpu": "4"}), "live"),
        (managed("now"), "patch"),
        (managed("on_sync"), "patch"),
        (managed("on_sync", "hint"), "patch"),
        (managed("unknown"), "patch"),
        (managed("on_upgrade"), "live"),
        (managed("never"), "live"),
        (pod(limits={"cpu": "4"}, workload=workload("Rollout", "argoproj.io/v1alpha1")), "patch"),
        (pod(limits={"cpu": "4"}, workload=workload("ReplicaSet")), "patch"),
        (pod(limits={"cpu": "4"}, workload=workload("Job", "batch/v1")), "by_hand"),
        (pod(limits={"cpu": "4"}, workload=documents.workload("Node", "gpu-0")), "by_hand"),
    ],
)
def test_an_object_that_is_reverted_gets_a_patch(seen, how):
    item = throttled(seen)
    assert item["delivery"]["how"] == how
    assert item["delivery"]["why"]
    assert item["delivery"]["command"]


def commands(found):
    return [item["delivery"]["command"] for item in found["changes"]]


def test_the_command_sets_what_the_plan_sets():
    """The diagnosis' command has the diagnosis' value."""
    probe = {"startup": {"failure_threshold": 2, "period_seconds": 1}, "liveness": None, "readiness": None}
    longer = change(
        "k8s",
        "startupProbe",
        "increase",
        "failureThreshold: 60, periodSeconds: 10",
        "slow",
        command="kubectl edit it  # failureThreshold: 60, periodSeconds: 10",
    )
    found = planned(diagnosis(finding("probe_kill", longer)), evidence(pod(probes=probe)))
    assert commands(found) == [
        "kubectl -n llm edit statefulset/vllm  # container vllm: a startupProbe with failureThreshold: 600, periodSeconds: 1"
    ]


def test_the_command_for_a_request_leaves_the_new_limit_as_it_is():
    seen = evidence(pod(limits={"memory": "24Gi"}, requests={"memory": "16Gi"}))
    sized = budget(entry(host={"limit": 24 * GIB, "request": 16 * GIB}))
    recommended = change("k8s", LIMIT, "increase", "64Gi", "the loader", "rule")
    found = planned(diagnosis(finding("host_oom_load", recommended)), seen, sized, **EVERYTHING)
    assert commands(found) == [
        "kubectl -n llm set resources statefulset/vllm -c vllm --limits=memory=64Gi",
        "kubectl -n llm set resources statefulset/vllm -c vllm --requests=memory=48Gi",
    ]


# Kind -> (where it keeps the engine's container, a field that it has no place for).
LIVE = {
    ("apps/v1", "Deployment"): ("spec.template.spec.containers[vllm]", None),
    ("apps/v1", "StatefulSet"): ("spec.template.spec.containers[vllm]", None),
    ("apps/v1", "DaemonSet"): ("spec.template.spec.containers[vllm]", None),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): (
        "spec.leaderWorkerTemplate.workerTemplate.spec.containers[vllm]",
        None,
    ),
    ("serving.kserve.io/v1beta1", "InferenceService"): (
        "spec.predictor.model",
        ("resources.limits.cpu", "remove", "KServe merges resources"),
    ),
    ("serving.kserve.io/v1alpha2", "LLMInferenceService"): ("spec.template.containers[vllm]", None),
    ("production-stack.vllm.ai/v1alpha1", "VLLMRuntime"): (
        "spec",
        ("resources.limits.cpu", "remove", "request and limit at once"),
    ),
    ("apps.nvidia.com/v1alpha1", "NIMService"): (
        "spec",
        ("startupProbe", "increase", "makes the probes itself"),
    ),
}


def delivered_to(api_version, kind, path, changed):
    owner = workload(kind, api_version)
    owner["edit"]["path"] = path
    seen = pod(
        limits={"cpu": "4"},
        env={"MAX_JOBS": "8"},
        probes={
            "startup": {"failure_threshold": 30, "period_seconds": 10},
            "liveness": None,
            "readiness": None,
        },
        workload=owner,
    )
    (item,) = planned(diagnosis(finding("host_oom_compile", changed)), evidence(seen))["changes"]
    return item["delivery"]


@pytest.mark.parametrize("kind", sorted(LIVE))
def test_kinds_whose_rule_was_read_are_written_live(kind):
    path, lacking = LIVE[kind]
    jobs = change("env", "MAX_JOBS", "set", "2", "it bounds the compilers", "rule")
    assert delivered_to(*kind, path, jobs)["how"] == "live"
    assert delivered_to(*kind, None, jobs)["how"] == "patch"
    if lacking:
        name, direction, why = lacking
        probe = "failureThreshold: 60, periodSeconds: 10" if name == "startupProbe" else None
        found = delivered_to(*kind, path, change("k8s", name, direction, probe, "a check", "rule"))
        assert found["how"] == "by_hand"
        assert why in found["why"]


def test_the_table_of_kinds_says_which_are_live():
    live = {kind for kind, layout in LAYOUTS.items() if layout.live}
    assert live == {(api_version.rpartition("/")[0], kind) for api_version, kind in LIVE}
    assert not [kind for kind, layout in LAYOUTS.items() if layout.live and layout.not_live]


def test_a_container_that_the_object_does_not_hold_is_left_to_a_person():
    seen = pod(limits={"cpu": "4"})
    init = dict(seen["containers"][0], name="fetch", role="init", engine=None)
    seen["containers"].append(init)
    asked = finding("cpu_throttling", NO_CPU, container="fetch")
    (item,) = planned(diagnosis(asked), evidence(seen))["changes"]
    assert item["delivery"]["how"] == "by_hand"
    assert "has no container fetch of its own" in item["delivery"]["why"]


def test_a_sidecar_of_a_kind_with_fields_of_its_own_is_left_to_a_person():
    owner = workload("InferenceService", "serving.kserve.io/v1beta1")
    owner["edit"]["path"] = "spec.predictor.model"
    seen = pod(limits={"cpu": "4"}, workload=owner)
    seen["containers"].append(dict(seen["containers"][0], name="agent", engine=None))
    jobs = change("env", "MAX_JOBS", "set", "2", "it bounds the compilers", "rule")
    for container, how in (("vllm", "live"), ("agent", "by_hand")):
        asked = finding("host_oom_compile", jobs, container=container)
        (item,) = planned(diagnosis(asked), evidence(seen))["changes"]
        assert item["delivery"]["how"] == how


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("Some operator", "the next release of Some operator overwrites it: change its source too"),
        ("kubectl apply", "the next kubectl apply of its manifest overwrites it: change the manifest too"),
        ("Helm", "the next helm upgrade of its release overwrites it: change the release's values too"),
        ("Terraform", "the next terraform apply overwrites it: change the Terraform configuration too"),
    ],
)
def test_what_overwrites_it_later_is_a_risk(tool, said):
    assert throttled(managed("on_upgrade", tool=tool))["risks"] == [said]


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([], evidence()), "needs a document with schema vllm_runbook.oom/diagnosis/v1, got list"),
        ((diagnosis(), {}), "needs a document with schema vllm_runbook.oom/evidence/v1, got no schema"),
        (
            (diagnosis(), evidence(), {"schema": "x"}),
            "needs a document with schema vllm_runbook.oom/budget/v1, got x",
        ),
        (
            (diagnosis(finding(), pod="gone"), evidence()),
            "names pod llm/gone, which the evidence doesn't hold",
        ),
        (({"schema": documents.DIAGNOSIS_SCHEMA}, evidence()), "not their shape"),
        (({"schema": documents.DIAGNOSIS_SCHEMA, "pods": [{"name": "vllm-0"}]}, evidence()), "doesn't hold"),
        ((dict(diagnosis(), pods=[None]), evidence()), "not their shape"),
        ((diagnosis({"role": "trigger"}), evidence()), "not their shape"),
        ((diagnosis(finding()), evidence(), dict(budget(), entries=[{}])), "not their shape"),
    ],
)
def test_what_is_no_document_is_refused_in_one_sentence(arguments, said):
    with pytest.raises(DocumentError, match=said) as raised:
        plan(*arguments)
    assert "\n" not in str(raised.value)


def test_nothing_is_planned_where_nothing_was_found():
    assert plan(diagnosis(), evidence())["plans"] == []


# The bundled examples, through every stage.


def example(name, **limits):
    seen = read_bundle(str(EXAMPLES / name))
    sized = budgets_of(seen)
    (found,) = plan(diagnose(seen, sized), seen, sized, limits)["plans"]
    return found


@pytest.mark.parametrize(
    ("name", "limits", "expected"),
    [
        ("cpu-limit.json", {}, [("planned", {CPU: None})]),
        ("max-model-len", {"min_model_len": 16384}, [("planned", {LENGTH: 18224})]),
        ("max-model-len", {"min_model_len": 32768}, [("refused", {LENGTH: 18224})]),
        ("neighbour-on-gpu.log", {"min_concurrency": 6}, [("planned", {UTILIZATION: 0.53})]),
        ("probe-kill", {}, [("planned", {"startupProbe": {"failureThreshold": 60, "periodSeconds": 10}})]),
        ("dev-shm", {}, [("planned", {"volumes.shm": "2Gi"})]),
        ("kv-no-blocks.log", {}, []),
        (
            "host-oomkilled",
            {"max_memory": "96Gi"},
            [
                ("planned", {"--safetensors-load-strategy": "lazy"}),
                ("planned", {LIMIT: "76Gi", "resources.requests.memory": "57Gi"}),
            ],
        ),
        # Nothing of what is running now would be restarted, but requests would be fewer.
        ("serving-oom", {"min_concurrency": 1}, [("planned", {UTILIZATION: 0.91})]),
    ],
)
def test_an_example_is_planned_as_its_log_says(name, limits, expected):
    found = example(name, **limits)
    assert [step for step in steps(found) if step[0] != "advised"] == expected


def test_weights_of_half_a_gpu_too_much_take_more_gpus_whatever_is_allowed():
    found = example("gpu-weights", **EVERYTHING)
    assert [next(iter(step[1].items())) for step in steps(found, "planned")] == [
        ("--tensor-parallel-size", 2),
        ("--pipeline-parallel-size", 2),
    ]
    assert (
        next(
            item["change"]["value"]
            for item in found["considered"]
            if item["change"]["name"] == "--cpu-offload-gb"
        )
        == 66
    )


def test_where_the_weights_do_not_fit_the_plan_names_the_gpus_that_hold_them():
    found = example("gpu-weights")
    advised = [item for item in found["changes"] if item["change"]["name"] == "larger_gpu"]
    assert [item["change"]["value"] for item in advised] == ["B200"]
    assert "these would hold the same settings" in advised[0]["why"]
    assert steps(found, "planned") == []
