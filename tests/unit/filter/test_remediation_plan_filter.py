# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter remediation_plan: what it takes, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.vllm_runbook.oom.plugins.filter import remediation_plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.limits import (
    PERMISSIONS,
    limits_of,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
FILTER = remediation_plan.FilterModule().filters()["remediation_plan"]
EVIDENCE = read_bundle(str(EXAMPLES / "cpu-limit.json"))
BUDGET = budgets_of(EVIDENCE)
DIAGNOSIS = diagnose(EVIDENCE, BUDGET)
SUBOPTIONS = yaml.safe_load(remediation_plan.DOCUMENTATION)["options"]["limits"]["suboptions"]


def test_a_plan_of_an_example():
    found = FILTER(DIAGNOSIS, evidence=EVIDENCE, budget=BUDGET, limits={"max_memory": "96Gi"})
    assert found["schema"] == documents.PLAN_SCHEMA
    (planned,) = found["plans"]
    (change,) = planned["apply"]["changes"]
    assert (change["name"], change["action"], change["before"]) == ("resources.limits.cpu", "remove", "6")
    json.dumps(found)


def test_what_was_tried_is_told():
    options = {"evidence": EVIDENCE, "budget": BUDGET}
    first = FILTER(DIAGNOSIS, **options)["plans"][0]["apply"]
    again = FILTER(DIAGNOSIS, tried=first["changes"], **options)["plans"][0]["apply"]
    assert (first["step"], again["step"]) == (1, None)


def test_empty_options_count_as_not_given():
    options = {"budget": {}, "limits": {}, "tried": [], "run": ""}
    assert FILTER(DIAGNOSIS, evidence=EVIDENCE, **options) == FILTER(DIAGNOSIS, evidence=EVIDENCE)


def test_the_documentation_names_each_limit_and_each_permission():
    assert sorted(SUBOPTIONS) == sorted(limits_of(None))
    assert SUBOPTIONS["allow"]["choices"] == list(PERMISSIONS)


def test_the_documentation_names_each_field_of_a_plan():
    contains = yaml.safe_load(remediation_plan.RETURN)["_value"]["contains"]
    plans = contains["plans"]["contains"]
    assert sorted(contains) == sorted(documents.plan_document({}))
    empty = documents.object_plan({}, [])
    assert sorted(plans) == sorted(empty)
    assert sorted(plans["apply"]["contains"]) == sorted(empty["apply"])
    change = documents.planned_change(documents.change("flag", "--x", "set"), "planned")
    assert sorted(plans["changes"]["contains"]) == sorted(change)


@pytest.mark.parametrize(
    ("diagnosis", "options", "words"),
    [
        (None, {}, "needs a document with schema vllm_runbook.oom/diagnosis/v1, got NoneType"),
        (DIAGNOSIS, {}, "needs a document with schema vllm_runbook.oom/evidence/v1, got NoneType"),
        (
            DIAGNOSIS,
            {"evidence": EVIDENCE, "budget": EVIDENCE},
            "needs a document with schema vllm_runbook.oom/budget/v1",
        ),
        (
            DIAGNOSIS,
            {"evidence": EVIDENCE, "limits": {"max_memory": "much"}},
            "is a Kubernetes quantity such as 96Gi",
        ),
        (
            DIAGNOSIS,
            {"evidence": EVIDENCE, "limits": ["eager"]},
            "the limits of a plan are a dictionary, not list",
        ),
        (DIAGNOSIS, {"evidence": EVIDENCE, "tried": "eager"}, "what was tried is a list of changes, not str"),
        (DIAGNOSIS, {"evidence": dict(EVIDENCE, pods=[])}, "which the evidence doesn't hold"),
        (dict(DIAGNOSIS, pods=5), {"evidence": EVIDENCE}, "not their shape"),
        (DIAGNOSIS, {"evidence": {"schema": documents.EVIDENCE_SCHEMA}}, "not their shape"),
    ],
)
def test_bad_input_is_one_sentence(diagnosis, options, words):
    with pytest.raises(AnsibleFilterError) as error:
        FILTER(diagnosis, **options)
    assert words in str(error.value)
    assert str(error.value).startswith("vllm_runbook.oom.remediation_plan: ")
    assert "\n" not in str(error.value)
