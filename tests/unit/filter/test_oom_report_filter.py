# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter oom_report: its formats and what it says of bad input."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.vllm_runbook.oom.plugins.filter import oom_report
from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents

FILTER = oom_report.FilterModule().filters()["oom_report"]
FINDING = documents.finding(
    "probe_kill", "none", "load", "trigger", "certain", explanation="The probe gave up."
)
DIAGNOSIS = dict(
    documents.diagnosis(),
    pods=[
        {
            "namespace": "llm",
            "name": "x-0",
            "verdict": {
                "is_memory": False,
                "memory": "none",
                "phase": "load",
                "cause": "probe_kill",
                "sentence": "A probe killed it.",
            },
            "findings": [FINDING],
            "ruled_out": [],
        }
    ],
)


@pytest.mark.parametrize(
    ("format", "start"),
    [("console", "llm/x-0: probe_kill (certain)\n"), ("markdown", "# vLLM out-of-memory diagnosis\n")],
)
def test_text(format, start):
    assert FILTER(DIAGNOSIS, format=format).startswith(start)


def test_console_is_the_default():
    assert FILTER(DIAGNOSIS) == FILTER(DIAGNOSIS, format="console")


def test_json_is_the_view():
    view = json.loads(FILTER(DIAGNOSIS, format="json"))
    assert view["pods"][0]["finding"]["why"] == "The probe gave up."


def test_summary_is_a_dictionary():
    assert FILTER(DIAGNOSIS, format="summary")["causes"] == {"probe_kill": 1}


PLAN = dict(
    documents.plan_document({"allow": []}),
    plans=[
        dict(
            documents.object_plan({"namespace": "llm", "kind": "Deployment", "name": "x"}, ["llm/x-0"]),
            causes=["probe_kill"],
        )
    ],
)
OUTCOME = dict(
    documents.outcome_document(),
    objects=[
        documents.object_outcome({"namespace": "llm", "kind": "Deployment", "name": "x"}, verdict="held")
    ],
)


@pytest.mark.parametrize(
    ("document", "console", "markdown", "summary"),
    [
        (PLAN, "Deployment/x (namespace llm): probe_kill\n", "# vLLM remediation plan\n", ("objects", 1)),
        (
            OUTCOME,
            "Deployment/x (namespace llm): it holds",
            "# Outcome of the vLLM remediation\n",
            ("verdicts", {"held": 1}),
        ),
    ],
    ids=["plan", "outcome"],
)
def test_plans_and_outcomes(document, console, markdown, summary):
    assert FILTER(document).startswith(console)
    assert FILTER(document, format="markdown").startswith(markdown)
    assert json.loads(FILTER(document, format="json"))["summary"] == FILTER(document, format="summary")
    assert FILTER(document, format="summary")[summary[0]] == summary[1]


@pytest.mark.parametrize("document", [DIAGNOSIS, PLAN, OUTCOME], ids=["diagnosis", "plan", "outcome"])
def test_the_documented_formats_are_those_that_work(document):
    options = yaml.safe_load(oom_report.DOCUMENTATION)["options"]
    for format in options["format"]["choices"]:
        assert FILTER(document, format=format)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((DIAGNOSIS, None, "pdf"), "format must be one of console, markdown, json, summary, got 'pdf'."),
        (("text",), "needs a document with schema vllm_runbook.oom/diagnosis/v1, got str"),
        (
            (dict(PLAN, plans=[{"changes": [{"state": "planned"}]}]),),
            "the document has the right schema but not its shape (KeyError: 'change')",
        ),
        (({"schema": ["x"]},), "needs a document with schema vllm_runbook.oom/diagnosis/v1, got no schema"),
        ((DIAGNOSIS, DIAGNOSIS), "needs a document with schema vllm_runbook.oom/evidence/v1"),
    ],
)
def test_bad_input_names_the_filter_and_what_it_got(arguments, message):
    with pytest.raises(AnsibleFilterError) as caught:
        FILTER(*arguments)
    assert "vllm_runbook.oom.oom_report: " in str(caught.value)
    assert message in str(caught.value)
