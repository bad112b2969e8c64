# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ceilings, floors and permissions: each refused without, with the variable to give, and allowed with."""

from __future__ import annotations

import pytest
from plan_samples import budget, diagnosis, entry, evidence, finding, planned, pod, row

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.limits import (
    PERMISSIONS,
    limits_of,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan

LIMIT = "resources.limits.memory"
# What is planned -> (name of the limit, one that forbids it, one that allows it).
CASES = {
    "length": (row("--max-model-len", "decrease", 16384, "context"), "min_model_len", 16385, 16384),
    "sequences": (row("--max-num-seqs", "decrease", 8, "concurrency"), "min_concurrency", 9, 8),
    "utilization": (
        row("--gpu-memory-utilization", "decrease", 0.85, "concurrency", available=6.0, need=4.0),
        "min_concurrency",
        1.6,
        1.5,
    ),
    "ranks": (row("--tensor-parallel-size", "increase", 2, "hardware"), "max_gpus", 1, 2),
    "eager": (row("--enforce-eager", "add", None, "speed"), "allow", ["quantization"], ["eager"]),
    "kv_cache_dtype": (row("--kv-cache-dtype", "set", "fp8", "precision"), "allow", [], ["kv_cache_dtype"]),
    "quantization": (row("--quantization", "set", "fp8", "precision"), "allow", [], ["quantization"]),
    "modalities": (row("--language-model-only", "add", None, "features"), "allow", [], ["modalities"]),
    "lora": (row("--max-loras", "decrease", 1, "features"), "allow", [], ["lora"]),
    "speculative_decoding": (
        row("--speculative-config", "remove", None, "speed"),
        "allow",
        [],
        ["speculative_decoding"],
    ),
    "prefix_caching": (
        row("--no-enable-prefix-caching", "add", None, "speed"),
        "allow",
        [],
        ["prefix_caching"],
    ),
    "cpu_offload": (row("--cpu-offload-gb", "set", 4, "speed"), "allow", ["eager"], ["cpu_offload"]),
}


def only(case, **limits):
    # Beside the budget everything in the menu makes room; a lower utilization is wrong within.
    cause = "cudagraph_capture_oom" if case[0]["name"] == "--gpu-memory-utilization" else "kv_max_len"
    found = planned(diagnosis(finding(cause)), None, budget(entry(case[0])), **limits)
    return next(item for item in found["changes"] if item["change"]["name"] == case[0]["name"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_without_its_limit_a_change_is_refused_and_names_what_to_give(name):
    case = CASES[name]
    item = only(case)
    assert item["state"] == "refused"
    assert f"vllm_oom_{case[1]}" in item["refused"][0]
    if case[1] == "allow":
        assert name in item["refused"][0]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_limit_that_is_too_tight_refuses(name):
    case = CASES[name]
    item = only(case, **{case[1]: case[2]})
    assert item["state"] == "refused"


@pytest.mark.parametrize("name", sorted(CASES))
def test_its_limit_allows_a_change(name):
    case = CASES[name]
    item = only(case, **{case[1]: case[3]})
    assert (item["state"], item["refused"]) == ("planned", [])


def test_what_takes_nothing_needs_no_limit():
    found = planned(
        diagnosis(finding("kv_max_len")),
        None,
        budget(entry(row("--gpu-memory-utilization", "increase", 0.95))),
    )
    assert [item["state"] for item in found["changes"]] == ["planned"]


@pytest.mark.parametrize(("ceiling", "state"), [(None, "refused"), ("47Gi", "refused"), ("64Gi", "planned")])
def test_more_memory_needs_a_ceiling(ceiling, state):
    recommended = change("k8s", LIMIT, "increase", "52Gi", "the loader", "rule")
    given = {} if ceiling is None else {"max_memory": ceiling}
    seen = evidence(pod(limits={"memory": "40Gi"}, requests={"memory": "32Gi"}))
    sized = budget(entry(host={"limit": 40 * GIB, "request": 32 * GIB}))
    found = planned(diagnosis(finding("host_oom_load", recommended)), seen, sized, **given)
    assert {item["state"] for item in found["changes"]} == {state}
    assert [item["change"]["after"] for item in found["changes"]] == ["64Gi", "48Gi"]
    if state == "refused":
        assert "vllm_oom_max_memory" in found["changes"][0]["refused"][0]


def test_gpus_that_the_container_has_already_need_no_ceiling():
    ranks = row("--tensor-parallel-size", "increase", 2, "hardware")
    found = planned(diagnosis(finding("kv_max_len")), evidence(pod(gpus=2)), budget(entry(ranks)))
    assert [(item["change"]["name"], item["state"]) for item in found["changes"]] == [
        ("--tensor-parallel-size", "planned")
    ]


@pytest.mark.parametrize(("allow", "state"), [([], "refused"), (["restart_of_serving"], "planned")])
def test_replicas_that_serve_are_started_anew_only_with_permission(allow, state):
    cpu = change("k8s", "resources.limits.cpu", "remove", None, "it throttles", "rule")
    seen = pod(limits={"cpu": "4"}, conditions=[{"type": "Ready", "status": "True"}])
    found = planned(diagnosis(finding("cpu_throttling", cpu)), evidence(seen), allow=allow)
    (item,) = found["changes"]
    assert item["state"] == state
    assert item["restarts"] == {"pods": 1, "serving": 1}
    if state == "refused":
        assert "restart_of_serving" in item["refused"][0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_memory": "much"}, "'max_memory' is a Kubernetes quantity"),
        ({"max_memory": "0"}, "'max_memory' is a Kubernetes quantity"),
        ({"max_gpus": 0}, "'max_gpus' is a whole number"),
        ({"max_gpus": True}, "'max_gpus' is a whole number"),
        ({"min_model_len": "4k"}, "'min_model_len' is a whole number"),
        ({"min_concurrency": 0}, "'min_concurrency' is a number above 0"),
        ({"allow": "eager"}, "'allow' is a list"),
        ({"allow": ["everything"]}, "unknown permission 'everything'"),
        ({"apply": "yes"}, "'apply' is true or false"),
        ({"max_cpu": 4}, "unknown limit 'max_cpu'"),
        (["eager"], "the limits of a plan are a dictionary"),
    ],
)
def test_a_limit_that_is_none_is_refused_in_one_sentence(given, said):
    with pytest.raises(DocumentError, match=said):
        plan(diagnosis(finding()), evidence(), None, given)


def test_nothing_is_allowed_by_default():
    assert (
        limits_of(None)
        == limits_of({})
        == {
            "max_memory": None,
            "max_gpus": None,
            "min_model_len": None,
            "min_concurrency": None,
            "allow": [],
            "apply": False,
        }
    )


def test_each_permission_can_be_given():
    assert limits_of({"allow": list(PERMISSIONS)})["allow"] == sorted(PERMISSIONS)
