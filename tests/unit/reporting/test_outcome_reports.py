# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remediation's outcome as people read it."""

from __future__ import annotations

import pytest
from test_plan_reports import LONG, made

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
    outcome_console,
    remediation_markdown,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting.outcome_view import (
    VERDICT_WORDS,
    outcome_summary,
    outcome_view,
)

UNDO = "ansible-playbook vllm_runbook.oom.rollback_oom -e vllm_oom_namespace=llm -e vllm_oom_workload=deployment/qwen3"
FIRST = {
    "pod": "llm/qwen3-0",
    "cause": "kv_max_len",
    "sentence": "One request needs 10 GiB, and 4.45 GiB are there.",
}
LAST = {"pod": "llm/qwen3-1", "cause": "cudagraph_capture_oom", "sentence": "Graph capture found no memory."}


def attempt(verdict="served", changed=True, sentence="it answered a request", verifiable=True, **more):
    facts = {
        "step": 1,
        "changes": [made()["change"]],
        "written": {
            "changed": changed,
            "mode": "written" if changed else "dry_run",
            "sentence": "Deployment/qwen3 was changed: --max-model-len: 40960 -> 18224",
            "at": "2026-11-30T07:00:00Z",
            "record": "r-1",
        },
        "verification": {"verdict": verdict, "verifiable": verifiable, "seconds": 73.4, "sentence": sentence},
    }
    return documents.outcome_attempt(**dict(facts, **more))


def outcome(*attempts, name="qwen3", verdict="served", **more):
    edited = {"namespace": "llm", "kind": "Deployment", "name": name, "api_version": "apps/v1", "path": None}
    facts = {
        "plan": f"Deployment/{name}: first set --max-model-len to 18224 (now 40960), live; steps: 1 planned.",
        "attempts": list(attempts),
        "verdict": verdict,
        "first_failure": FIRST,
        "undo": UNDO,
        "sentence": "--max-model-len 18224 was written, and the model serves again.",
    }
    return documents.object_outcome(edited, **dict(facts, **more))


def document(*objects, notes=()):
    return dict(documents.outcome_document(), objects=list(objects), notes=list(notes))


def console(*objects, **more):
    return outcome_console.render(outcome_view(document(*objects, **more)))


def markdown(*objects, **more):
    return remediation_markdown.outcomes(outcome_view(document(*objects, **more)))


def test_what_was_changed_what_came_of_it_and_how_to_take_it_back():
    shown = outcome(
        attempt("failed", sentence="the new pod died: GPU memory ran out"),
        attempt(step=2, changes=[made("--enforce-eager", None, True)["change"]]),
        last_failure=LAST,
    )
    assert console(shown) == (
        """\
Deployment/qwen3 (namespace llm): it serves: the new engine answered a request
  Before llm/qwen3-0: kv_max_len: One request needs 10 GiB, and 4.45 GiB are there.
  Done   1. --max-model-len: 40960 -> 18224
            written at 2026-11-30T07:00:00Z
            failed: the new pod died: GPU memory ran out (after 73 s)
         2. --enforce-eager: vLLM's default -> on
            written at 2026-11-30T07:00:00Z
            served: it answered a request (after 73 s)
  Last   llm/qwen3-1: cudagraph_capture_oom: Graph capture found no memory.
  Undo   ansible-playbook vllm_runbook.oom.rollback_oom -e vllm_oom_namespace=llm -e \\
             vllm_oom_workload=deployment/qwen3
"""
    )


@pytest.mark.parametrize("verdict", [*documents.VERDICTS, None])
def test_every_verdict_is_said_in_words(verdict):
    text = console(outcome(verdict=verdict))
    assert text.splitlines()[0].endswith(VERDICT_WORDS[verdict or "nothing"])
    assert VERDICT_WORDS[verdict or "nothing"][1:] in markdown(outcome(verdict=verdict))


def test_an_engine_that_cannot_be_asked_is_no_failure():
    shown = attempt("starts", sentence="a strict mesh lets no port-forward in", verifiable=False)
    assert "starts: not verifiable here: a strict mesh lets no port-forward in (after 73 s)\n" in console(
        outcome(shown, verdict="starts")
    )


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dry_run", "not written: the API server has gone through it"),
        ("client_side", "not written: computed here, the API server wasn't asked"),
        ("unchanged", "it was so already"),
        (None, "nothing could be asked"),
    ],
)
def test_a_run_that_writes_nothing_shows_what_would_be_changed(mode, said):
    written = {"changed": False, "mode": mode, "sentence": "nothing could be asked"}
    dry = attempt(changed=False, verification=None, written=written)
    text = console(outcome(dry, verdict=None, undo=None))
    assert "nothing was written\n" in text
    assert f"  Would  1. --max-model-len: 40960 -> 18224\n            {said}\n" in text
    assert "Undo" not in text


def test_a_missing_right_is_named():
    needs = "patch deployments.apps in namespace llm"
    written = {"changed": False, "mode": "client_side", "sentence": "s", "missing": [needs]}
    shown = outcome(attempt(changed=False, verification=None, written=written), verdict=None, undo=None)
    assert f"            needs: {needs}\n" in console(shown)
    assert f"- Needs: {needs}\n" in markdown(shown)


def test_without_an_attempt_the_plan_is_shown():
    assert "  Plan   Deployment/qwen3: first set" in console(outcome(verdict=None, undo=None, sentence=None))


@pytest.mark.parametrize(
    ("attempts", "more", "told"),
    [
        ([attempt()], {}, True),
        ([attempt()], {"problem": "the API server went away"}, False),
        ([attempt(verification=None)], {}, False),
        ([attempt(changed=False, verification=None)], {"verdict": None}, True),
        ([attempt(changed=False, verification=None, written={"changed": False})], {"verdict": None}, False),
        ([], {"verdict": None}, False),
    ],
)
def test_the_sentence_is_shown_where_the_attempts_do_not_say_it(attempts, more, told):
    shown = outcome(*attempts, **more)
    assert ("the model serves again" in console(shown)) is not told
    assert "the model serves again" in markdown(shown)


def test_the_name_of_the_object_stands_once():
    text = console(outcome(sentence="Deployment llm/qwen3: nothing is planned."))
    assert text.splitlines()[1] == "  Nothing is planned."


def test_what_the_api_server_warned_of_is_shown():
    warned = dict(attempt()["written"], warnings=["spec.template: deprecated"])
    shown = outcome(attempt(written=warned))
    assert "written at 2026-11-30T07:00:00Z" in console(shown)
    assert "            warning: spec.template: deprecated\n" in console(shown)
    assert "- Warning: spec.template: deprecated\n" in markdown(shown)


def test_the_same_failure_is_told_once():
    assert "Last" not in console(outcome(attempt("failed"), verdict="failed", last_failure=dict(FIRST)))


def test_what_was_seen_after_a_rollback_is_no_attempt():
    seen = {"verdict": None, "verifiable": None, "seconds": None, "sentence": "1 of 1 pods updated"}
    shown = outcome(documents.outcome_attempt(verification=seen), verdict="undone", undo=None)
    assert "  Done   -  1 of 1 pods updated\n" in console(shown)
    assert "### Afterwards\n\n- Seen: 1 of 1 pods updated\n" in markdown(shown)


def test_several_objects_have_an_overview_worst_first():
    many = [outcome(attempt(), name=f"m-{number:02}") for number in range(21)]
    many += [outcome(attempt("failed"), name="bad", verdict="failed"), outcome(name="none", verdict=None)]
    lines = console(*many).splitlines()
    assert lines[:2] == [
        "23 objects: 1 failed, 1 not written, 21 served.",
        "  served       Deployment/m-00 (namespace llm)",
    ]
    assert lines[22] == "  failed       Deployment/bad (namespace llm)"
    assert lines[-1].startswith("3 more are in the overview above")


def test_an_object_takes_at_most_20_lines_of_100_characters():
    changes = [made(f"--option-{number}", number, LONG)["change"] for number in range(9)]
    many = [attempt(sentence=LONG, changes=changes) for _index in range(5)]
    lines = console(outcome(*many, sentence=LONG, last_failure=dict(LAST, sentence=LONG))).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert "vllm_oom_workload=deployment/qwen3" in lines[-1]


def test_nothing_is_said():
    assert console() == "Nothing was changed: no pod has a finding that a change could answer.\n"
    assert "Nothing was changed" in markdown()


def test_markdown_holds_each_attempt():
    text = markdown(outcome(attempt(), last_failure=LAST), notes=["one of two"])
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Outcome of the vLLM remediation",
        "## Notes",
        "## Deployment/qwen3 (namespace llm)",
        "### Attempt 1 (step 1 of the plan)",
        "### Take it back",
    ]
    assert "- `--max-model-len: 40960 -> 18224`\n" in text
    assert "- Verdict: served (after 73 s)\n" in text
    assert "- Undo record: `r-1`\n" in text
    assert f"```shell\n{UNDO}\n```" in text
    assert "- Last failure: `llm/qwen3-1`: `cudagraph_capture_oom`: Graph capture found no memory.\n" in text


def test_text_is_shown_literally():
    hostile = "\x1b[31m<b> | [x](http://example.org)\n# c"
    shown = outcome(attempt(sentence=hostile), sentence=hostile, last_failure=dict(LAST, sentence=hostile))
    text = markdown(shown, notes=[hostile])
    assert "\x1b" not in text + console(shown, notes=[hostile])
    assert "\n# c" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")


def test_the_summary_counts_and_is_bounded():
    objects = [outcome(attempt(), name=f"m-{number}") for number in range(58)]
    objects += [outcome(verdict=None), outcome(attempt(changed=False), verdict=None)]
    found = outcome_summary(document(*objects))
    assert (found["objects"], found["written"], len(found["outcomes"]), found["more"]) == (60, 58, 50, 10)
    assert found["verdicts"] == {"nothing": 2, "served": 58}


@pytest.mark.parametrize(
    "wrong", [outcome(verdict="fine"), outcome(attempt("perhaps"))], ids=["object", "verification"]
)
def test_a_verdict_that_is_none_is_refused(wrong):
    with pytest.raises(DocumentError, match="known verdict"):
        outcome_view(document(wrong))


def test_another_document_is_refused():
    with pytest.raises(DocumentError, match="outcome/v1"):
        outcome_view({"schema": "x"})


def test_what_a_killed_run_changed_is_shown_as_its_change():
    found = {
        "run": "run-0",
        "at": "2026-11-30T06:00:00Z",
        "changes": ["container vllm: --max-model-len: 40960 -> 18224"],
    }
    written = {"changed": True, "mode": "written", "sentence": "s", "at": found["at"], "found": found}
    resumed = outcome(attempt(step=None, changes=[], written=written), first_failure=None)
    assert console(resumed).startswith(
        """\
Deployment/qwen3 (namespace llm): it serves: the new engine answered a request
  Before not known: the change was made by an earlier run (run-0)
  Done   1. container vllm: --max-model-len: 40960 -> 18224 (by run-0)
            written at 2026-11-30T06:00:00Z
            served: it answered a request (after 73 s)
"""
    )
    assert "- `container vllm: --max-model-len: 40960 -> 18224 (by run-0)`\n" in markdown(resumed)
