# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view that every report shows."""

from __future__ import annotations

import copy
import json

import pytest
from report_documents import (
    diagnosis,
    evidence_of,
    healthy_pod,
    pod,
    risk_finding,
    verdict,
    weights_finding,
    weights_pod,
)

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import view_model


def test_the_vocabularies_have_words():
    assert set(view_model.MEMORY_WORDS) == set(documents.MEMORIES)
    assert set(view_model.PHASE_WORDS) == set(documents.PHASES)
    assert set(view_model.PROOF_WORDS) == set(documents.PROOFS)


def test_the_worst_pod_comes_first():
    likely = weights_pod("b-likely")
    likely["findings"][0]["confidence"] = "likely"
    undetermined = pod(
        "c-undetermined",
        [documents.finding("undetermined", "unknown", "unknown", "trigger", "possible")],
        verdict("undetermined", "unknown", "unknown", None),
    )
    probe = pod(
        "d-probe",
        [documents.finding("probe_kill", "none", "load", "trigger", "certain")],
        verdict("probe_kill", "none", "load", False),
    )
    risky = pod("e-risk", [risk_finding()], verdict(None, "none", "unknown", False))
    shown = view_model.view(
        diagnosis(healthy_pod(), risky, probe, undetermined, likely, weights_pod("a-certain"))
    )
    assert [item["name"] for item in shown["pods"]] == [
        "a-certain",
        "b-likely",
        "c-undetermined",
        "d-probe",
        "e-risk",
        "healthy-0",
    ]
    assert [item["severity"] for item in shown["pods"]] == [
        "memory",
        "memory",
        "undetermined",
        "not_memory",
        "risk",
        "fine",
    ]


def test_the_trigger_line_names_its_process_when_the_evidence_is_given():
    with_evidence = view_model.view(diagnosis(weights_pod()), evidence_of())
    seen = with_evidence["pods"][0]["finding"]["seen"][0]
    assert seen["where"] == "log, container vllm, line 31, 10-25 13:05:14, EngineCore_DP0"
    without = view_model.view(diagnosis(weights_pod()))
    assert without["pods"][0]["finding"]["seen"][0]["where"] == "log, container vllm, line 31"


def test_the_cause_of_the_verdict_is_shown_before_a_cascade():
    cascade = documents.finding("exit_code_masked", "none", "shutdown", "cascade", "certain")
    entry = pod("x", [cascade, weights_finding()], verdict())
    shown = view_model.view(diagnosis(entry))["pods"][0]
    assert shown["finding"]["cause"] == "gpu_weights_oom"
    assert [other["cause"] for other in shown["others"]] == ["exit_code_masked"]


def test_replicas_that_fail_alike_are_shown_once():
    alike = [weights_pod(f"llama-{number}") for number in range(3)]
    other = pod(
        "llama-9",
        [documents.finding("probe_kill", "none", "load", "trigger", "certain")],
        verdict("probe_kill"),
    )
    refs = [f"llm/llama-{number}" for number in (0, 1, 2, 9)]
    workloads = [{"ref": "llm/Deployment/llama", "pods": refs, "findings": []}]
    shown = view_model.view(diagnosis(*alike, other, workloads=workloads))
    assert [(item["ref"], item["alike"]) for item in shown["pods"]] == [
        ("llm/llama-0", ["llm/llama-1", "llm/llama-2"]),
        ("llm/llama-9", []),
    ]
    assert [item["ref"] for item in view_model.view(diagnosis(*alike))["pods"]] == refs[:3]


def test_what_was_not_seen_is_said_unless_the_explanation_does():
    seen = evidence_of(restart_count=4, complete=False)
    elsewhere = view_model.view(diagnosis(weights_pod(container="init")), seen)
    assert elsewhere["pods"][0]["partial"] == [
        "vllm ran 5 times, and the last 1 can be looked at.",
        "The log of vllm, attempt 0, does not begin at the start of the attempt: earlier errors may be missing.",
    ]
    assert view_model.view(diagnosis(weights_pod()), seen)["pods"][0]["partial"] == []


def test_the_summary_counts_and_holds_no_evidence():
    summary = view_model.summary(diagnosis(weights_pod(), weights_pod("b"), healthy_pod()))
    assert summary["pods"] == 3
    assert summary["memory"] == {"gpu": 2}
    assert summary["causes"] == {"gpu_weights_oom": 2}
    assert (summary["certain"], summary["likely"], summary["any"]) == (2, 2, 4)
    assert "Tried to allocate" not in json.dumps(summary)


def test_the_summary_of_a_fleet_stays_small():
    summary = view_model.summary(diagnosis(*[weights_pod(f"pod-{number:04}") for number in range(2000)]))
    assert len(summary["verdicts"]) + summary["more"] == 2000
    assert len(json.dumps(summary)) < 16384


def test_undetermined_is_no_certain_cause():
    entry = pod(
        "x",
        [documents.finding("undetermined", "unknown", "unknown", "trigger", "certain")],
        verdict("undetermined", "unknown", "unknown", None),
    )
    summary = view_model.summary(diagnosis(entry))
    assert (summary["certain"], summary["any"], summary["undetermined"]) == (0, 1, 1)


def test_the_view_changes_nothing_and_is_the_same_each_time():
    given, seen = diagnosis(weights_pod(), healthy_pod()), evidence_of()
    before = copy.deepcopy((given, seen))
    assert view_model.as_json(view_model.view(given, seen)) == view_model.as_json(
        view_model.view(given, seen)
    )
    assert (given, seen) == before


@pytest.mark.parametrize("document", [None, [], "text", {}, {"schema": documents.EVIDENCE_SCHEMA}])
def test_another_document_is_refused_in_one_sentence(document):
    with pytest.raises(documents.DocumentError, match=r"The report needs a document with schema \S+, got "):
        view_model.view(document)


@pytest.mark.parametrize(
    ("field", "value"), [("role", "culprit"), ("confidence", None), ("cause", "gremlins")]
)
def test_a_finding_edited_by_hand_is_refused_in_one_sentence(field, value):
    broken = weights_pod()
    broken["findings"][0][field] = value
    with pytest.raises(documents.DocumentError, match=f"needs a known {field} in every finding of pods"):
        view_model.view(diagnosis(broken))
