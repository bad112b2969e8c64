# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How large a memory limit is planned: by the budget, and where less is allowed, as much as is, down to what would do."""

from __future__ import annotations

import pytest
from plan_samples import budget, diagnosis, entry, evidence, finding, planned, pod, row, steps

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, quantity_bytes
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.host import host_memory

LIMIT, REQUEST = "resources.limits.memory", "resources.requests.memory"
RAISE = change("k8s", LIMIT, "increase", "24Gi", "the loader", "rule")


def host(**more):
    """The budget of a model of 8 billion parameters on one GPU."""
    return dict(
        host_memory({"model": "org/model-8B"}, "0.19.1", **more), limit=None, request=None, fits=False
    )


def found(
    cause="host_oom_load",
    limit="8Gi",
    request="6Gi",
    sized=None,
    namespace=None,
    node=None,
    qos=None,
    **limits,
):
    seen = pod(
        limits={"memory": limit} if limit else {}, requests={"memory": request} if request else {}, qos=qos
    )
    return planned(
        diagnosis(finding(cause, RAISE)),
        evidence(seen, namespace=namespace, node=node),
        budget(entry(host=sized or host())),
        **limits,
    )


def quota(**left):
    """A quota with so much left of each name."""
    hard = {name.replace("_", "."): value for name, value in left.items()}
    return {"quotas": [{"name": "q", "hard": hard, "used": {}, "scopes": []}]}


def test_the_table_and_what_it_is_made_of():
    sized = host()
    assert [size // GIB for size in sized["limit_bounds"]] == [16, 24]
    assert sized["need_bytes"] == 6 * GIB
    assert steps(found(max_memory="30Gi")) == [("planned", {LIMIT: "24Gi", REQUEST: "18Gi"})]


@pytest.mark.parametrize(
    ("given", "sizes", "bound"),
    [
        ({"max_memory": "20Gi"}, ("20Gi", "15Gi"), "max_memory of 20Gi"),
        ({"max_memory": "20G"}, ("18Gi", "14Gi"), "max_memory of 20G"),
        ({"max_memory": "16Gi"}, ("16Gi", "12Gi"), "max_memory of 16Gi"),
        (
            {"node": {"allocatable": {"memory": "24578Mi"}}},
            ("24Gi", "18Gi"),
            None,
        ),
        (
            {"node": {"allocatable": {"memory": "24003Mi"}}},
            ("23Gi", "18Gi"),
            "the node's allocatable 23.44 GiB",
        ),
        # 8Gi are in force, and 10Gi are left.
        ({"namespace": quota(limits_memory="10Gi")}, ("18Gi", "14Gi"), "ResourceQuota q"),
        # A request of 13Gi goes with a limit of 17Gi.
        ({"namespace": quota(requests_memory="7Gi")}, ("17Gi", "13Gi"), "ResourceQuota q"),
        ({"namespace": quota(memory="7Gi")}, ("17Gi", "13Gi"), "ResourceQuota q"),
        (
            {
                "namespace": {
                    "limit_ranges": [
                        {"name": "r", "limits": [{"type": "Container", "max": {"memory": "22Gi"}}]}
                    ]
                }
            },
            ("22Gi", "17Gi"),
            "LimitRange r",
        ),
        # The tightest counts.
        (
            {"max_memory": "20Gi", "node": {"allocatable": {"memory": "18Gi"}}},
            ("18Gi", "14Gi"),
            "the node's allocatable 18.00 GiB",
        ),
    ],
)
def test_where_less_is_allowed_that_much_is_planned(given, sizes, bound):
    plan = found(**{"max_memory": "64Gi", **given})
    assert steps(plan) == [("planned", {LIMIT: sizes[0], REQUEST: sizes[1]})]
    why = plan["changes"][0]["change"]["why"]
    assert why.startswith(f"{sizes[0]}: {bound} allows no more; 16.00 GiB to 24.00 GiB by") == bool(bound)
    assert plan["changes"][0]["predicted"]["after"]["host_limit"] == quantity_bytes(sizes[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"max_memory": "15Gi"},
            "above max_memory (vllm_oom_max_memory) of 15Gi by 9.00 GiB: give 16Gi at least",
        ),
        ({"node": {"allocatable": {"memory": "12Gi"}}}, "more than the node's allocatable 12.00 GiB"),
        ({"namespace": quota(limits_memory="7Gi")}, "ResourceQuota q has limits.memory 7Gi"),
        ({"namespace": quota(requests_memory="5Gi")}, "ResourceQuota q has requests.memory 5Gi"),
    ],
)
def test_where_not_even_the_least_is_allowed_it_is_refused(given, said):
    plan = found(**{"max_memory": "64Gi", **given})
    assert steps(plan) == [("refused", {LIMIT: "24Gi", REQUEST: "18Gi"})]
    assert any(said in sentence for sentence in plan["changes"][0]["refused"])


@pytest.mark.parametrize(
    ("node", "said"),
    [(None, "24Gi, or 16Gi at least"), ({"allocatable": {"memory": "18Gi"}}, "18Gi, or 16Gi at least")],
)
def test_without_max_memory_it_says_what_would_do(node, said):
    plan = found(node=node)
    assert said in plan["changes"][0]["refused"][0]
    assert said in plan["apply"]["why"]


def test_what_is_said_to_be_the_least_is_enough():
    assert steps(found(max_memory="16Gi"), "planned")


def test_more_than_there_was():
    # Killed at the table's lower end: the same is not enough, and a little more is most often the same.
    killed = host(measured={"peak": 16 * GIB, "killed": True})
    assert "24Gi, or 20Gi at least" in found(limit="16Gi", sized=killed)["changes"][0]["refused"][0]
    for ceiling, expected in (("19Gi", []), ("20Gi", [("planned", {LIMIT: "20Gi", REQUEST: "15Gi"})])):
        assert (
            steps(found(limit="16Gi", request="12Gi", sized=killed, max_memory=ceiling), "planned")
            == expected
        )


def test_killed_just_below_what_the_budget_has_it_gets_more_than_that():
    # The table ends at 24Gi; nothing was measured.
    plan = found(limit="23Gi", request="18Gi", max_memory="64Gi")
    assert steps(plan) == [("planned", {LIMIT: "29Gi", REQUEST: "22Gi"})]
    assert plan["changes"][0]["change"]["why"].startswith(
        "a quarter more than the 23.00 GiB at which it was killed"
    )
    refused = found(limit="23Gi", request="18Gi", max_memory="28Gi")["changes"][0]["refused"]
    assert refused == [
        "resources.limits.memory of 29Gi is above max_memory (vllm_oom_max_memory) of 28Gi by 1.00 GiB"
    ]


def test_a_limit_at_which_nothing_was_killed_is_raised_to_what_the_budget_has():
    plan = found("memory_limit_low", limit="15Gi", request="11Gi", max_memory="16Gi")
    assert steps(plan) == [("planned", {LIMIT: "16Gi", REQUEST: "12Gi"})]


@pytest.mark.parametrize(("parameters", "least"), [(0.6, "9Gi"), (120, "48Gi")])
def test_outside_of_the_table(parameters, least):
    sized = host_memory({}, "0.19.1", parameters=parameters, ranks=1)
    sized = dict(sized, limit=None, request=None, fits=False)
    seen = evidence(pod(limits={"memory": "4Gi"}))
    model = {"name": "org/model", "parameters": parameters}
    plan = planned(diagnosis(finding("host_oom_load", RAISE)), seen, budget(entry(host=sized, model=model)))
    assert f", or {least} at least" in plan["changes"][0]["refused"][0]


def test_what_was_measured_counts_beyond_the_table():
    measured = host(measured={"held": 30 * GIB})
    for ceiling, limit, request in (("64Gi", "40Gi", "30Gi"), ("36Gi", "36Gi", "27Gi")):
        plan = found(limit="24Gi", sized=measured, max_memory=ceiling)
        assert steps(plan) == [("planned", {LIMIT: limit, REQUEST: request})]
    assert not steps(found(limit="24Gi", sized=measured, max_memory="29Gi"), "planned")


def test_a_guaranteed_pod_has_its_request_within_what_is_allowed():
    plan = found(
        limit="8Gi",
        request="8Gi",
        qos="Guaranteed",
        max_memory="64Gi",
        namespace=quota(requests_memory="12Gi"),
    )
    assert steps(plan) == [("planned", {LIMIT: "20Gi", REQUEST: "20Gi"})]


def test_several_pods_share_what_a_quota_has_left():
    seen = [pod(name, limits={"memory": "8Gi"}, requests={"memory": "6Gi"}) for name in ("vllm-0", "vllm-1")]
    asked = diagnosis(finding("host_oom_load", RAISE))
    left = quota(limits_memory="20Gi")
    plan = planned(asked, evidence(*seen, namespace=left), budget(entry(host=host())), max_memory="64Gi")
    assert steps(plan) == [("planned", {LIMIT: "18Gi", REQUEST: "14Gi"})]


@pytest.mark.parametrize(("ceiling", "expected"), [("64Gi", "14Gi"), ("13Gi", "13Gi"), ("11Gi", None)])
def test_dev_shm_beside_what_the_engine_needs(ceiling, expected):
    volume = change("k8s", "volumes.shm", "add", "6Gi", "NCCL's segments", "arithmetic", with_=[LIMIT])
    seen = evidence(pod(limits={"memory": "8Gi"}, requests={"memory": "6Gi"}))
    sized = budget(entry(host=dict(host(), need_error_bytes=GIB)))
    plan = planned(diagnosis(finding("shm_exhausted", volume)), seen, sized, max_memory=ceiling)
    if expected is None:
        assert steps(plan)[0][0] == "refused"
        assert "give 13Gi at least" in plan["changes"][0]["refused"][0]
    else:
        assert steps(plan) == [("planned", {"volumes.shm": "6Gi", LIMIT: expected})]


def test_dev_shm_leaves_a_guaranteed_pod_guaranteed():
    volume = change("k8s", "volumes.shm", "add", "6Gi", "NCCL's segments", "arithmetic", with_=[LIMIT])
    seen = evidence(pod(limits={"memory": "8Gi"}, requests={"memory": "8Gi"}, qos="Guaranteed"))
    plan = planned(
        diagnosis(finding("shm_exhausted", volume)), seen, budget(entry(host=host())), max_memory="64Gi"
    )
    assert steps(plan) == [("planned", {"volumes.shm": "6Gi", LIMIT: "14Gi", REQUEST: "14Gi"})]


@pytest.mark.parametrize(
    ("now", "ceiling", "expected"),
    [
        ("18Gi", "64Gi", {LIMIT: "22Gi", REQUEST: "22Gi"}),
        ("18Gi", "20Gi", {LIMIT: "20Gi", REQUEST: "20Gi"}),
        # The limit holds what moves.
        ("24Gi", "24Gi", {REQUEST: "22Gi"}),
        ("18Gi", "19Gi", None),
    ],
)
def test_weights_that_move_to_the_host(now, ceiling, expected):
    seen = evidence(pod(limits={"memory": now}, requests={"memory": "18Gi"}))
    sized = dict(host(), limit=quantity_bytes(now), request=18 * GIB)
    menu = row("--cpu-offload-gb", "set", 4, "speed", with_=(LIMIT,))
    plan = planned(
        diagnosis(finding("kv_max_len")),
        seen,
        budget(entry(menu, host=sized)),
        max_memory=ceiling,
        allow=["cpu_offload"],
    )
    assert [step[1] for step in steps(plan, "planned")] == (
        [{"--cpu-offload-gb": 4, **expected}] if expected else []
    )


def test_no_limit_is_raised_against_a_leak():
    grown = finding(
        "host_oom_growth", change("action", "upgrade", "set", None, "a leak", "rule"), phase="serving"
    )
    killed = host(measured={"peak": 8 * GIB, "killed": True})
    seen = evidence(pod(limits={"memory": "8Gi"}, requests={"memory": "6Gi"}))
    asked = diagnosis(grown, finding("memory_limit_low", RAISE, role="risk"))
    plan = planned(asked, seen, budget(entry(host=killed)), max_memory="64Gi", allow=["risks"])
    assert (plan["apply"]["step"], plan["apply"]["changes"]) == (None, [])
    assert "it is for a person" in plan["apply"]["why"]
