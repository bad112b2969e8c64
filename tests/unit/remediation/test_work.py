# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan would do now, object by object."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    DocumentError,
    change,
    planned_change,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.work import work


def edited(name, kind="Deployment"):
    return {"namespace": "llm", "kind": kind, "name": name, "api_version": "apps/v1", "path": "spec.x"}


def made(name="--max-model-len", container="vllm"):
    return dict(
        change("flag", name, "set", 1, "because"), container=container, action="set", before=None, after=1
    )


def planned(number, cause, how="live", state="planned", also=(), name="--max-model-len"):
    return planned_change(
        made(name),
        state,
        step=number,
        cause=cause,
        also=list(also),
        delivery=documents.delivery(how, "because"),
    )


def of(name, *changes, step=1, beside=(), written=None):
    """The plan of one object that would write a step; step None: it would write none."""
    plan = documents.object_plan(edited(name), [f"llm/{name}-0"])
    plan["causes"] = ["kv_max_len", "cpu_limit_set", "memory_ratio"]
    plan["changes"] = list(changes)
    chosen = [item["change"] for item in changes if item["step"] in (step, *beside)]
    plan["apply"] = {
        "step": step,
        "with": list(beside),
        "changes": chosen if written is None else written,
        "why": "because",
    }
    plan["expected"] = {"uid": "u", "generation": 3}
    return plan


def plan(*plans):
    return dict(documents.plan_document({}), plans=list(plans))


def left(name, unfinished=True):
    entry = {"namespace": "llm", "kind": "Deployment", "name": name, "api_version": "apps/v1"}
    return dict(entry, unfinished=unfinished, causes=["kv_max_len"], run="run-0", at="then")


def test_the_step_of_the_plan_is_written_against_its_own_causes():
    steps = (
        planned(1, "kv_max_len"),
        planned(2, "cpu_limit_set", name="--x"),
        planned(3, "memory_ratio", name="--y"),
    )
    (item,) = work(plan(of("llama", *steps, beside=[2])))["write"]
    assert item["causes"] == ["kv_max_len", "cpu_limit_set"]
    assert (item["step"], item["container"], item["label"]) == (1, "vllm", "Deployment llm/llama")
    assert item["expected"] == {"uid": "u", "generation": 3}
    assert [change["name"] for change in item["changes"]] == ["--max-model-len", "--x"]


def test_where_nothing_would_be_written_there_is_nothing_to_do():
    refused = of("llama", planned(1, "kv_max_len", state="refused"), step=None)
    assert work(plan(refused)) == {"write": [], "patch": []}


def test_what_was_left_comes_first_and_once():
    found = [left("llama"), left("done", unfinished=False), left("gone")]
    items = work(plan(of("other", planned(1, "kv_max_len")), of("llama", planned(1, "kv_max_len"))), found)[
        "write"
    ]
    assert [(item["object"]["name"], bool(item["found"]), len(item["changes"])) for item in items] == [
        ("llama", True, 0),
        ("gone", True, 0),
        ("other", False, 1),
    ]


def test_only_objects_of_the_evidence_are_gone_on_with_where_it_is_given():
    document = documents.evidence("now", "cluster", "test")
    document["pods"] = [documents.pod("llm", "llama-0", workload=documents.workload(edit=edited("llama")))]
    document["pods"].append(documents.pod("llm", "bare"))
    items = work(plan(), [left("llama"), left("gone")], document)["write"]
    assert [item["object"]["name"] for item in items] == ["llama"]


def test_a_namesake_of_another_kind_is_another_object():
    found = [dict(left("llama"), kind="StatefulSet")]
    assert len(work(plan(of("llama", planned(1, "kv_max_len"))), found)["write"]) == 2


def test_what_is_for_its_source_gets_a_patch():
    for_source = of(
        "llama",
        planned(1, "kv_max_len", how="patch"),
        planned(2, "memory_ratio", how="patch", name="--y"),
        step=None,
    )
    found = work(plan(for_source))
    assert found["write"] == []
    (item,) = found["patch"]
    assert (item["live"], item["step"], item["causes"]) == (False, 1, ["kv_max_len"])


def test_a_patch_for_the_source_has_the_update_strategy_that_the_plan_announces():
    strategy = {"before": {"type": "RollingUpdate"}, "after": {"type": "Recreate"}, "why": "one replica"}
    step = dict(planned(1, "kv_max_len", how="patch"), strategy=strategy)
    (item,) = work(plan(of("llama", step, step=None)))["patch"]
    assert [(change["name"], change["after"]) for change in item["changes"]] == [
        ("--max-model-len", 1),
        ("strategy", {"type": "Recreate"}),
    ]
    assert item["changes"][1]["container"] == "vllm"


def test_an_object_of_no_cluster_has_no_work():
    nameless = of("llama", planned(1, "kv_max_len", how="patch"), step=None)
    nameless["object"] = dict(edited("llama"), name=None, kind=None)
    assert work(plan(nameless)) == {"write": [], "patch": []}


def test_a_plan_without_its_shape_is_refused():
    with pytest.raises(DocumentError, match="needs a document with schema"):
        work({})
    with pytest.raises(DocumentError, match="without its shape"):
        work(plan({"object": {}}))
