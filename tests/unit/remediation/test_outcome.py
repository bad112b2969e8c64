# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome document: verdicts, what stays in the cluster, and how each end is said."""

from __future__ import annotations

import shlex

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.outcome import outcome

OBJECT = {
    "namespace": "llm",
    "kind": "Deployment",
    "name": "llama",
    "api_version": "apps/v1",
    "path": "spec.x",
}
LONGER = dict(
    change("flag", "--max-model-len", "decrease", 8192, "it fits"),
    container="vllm",
    action="set",
    before=16384,
    after=8192,
)
WRITTEN = {
    "changed": True,
    "mode": "written",
    "sentence": "It was changed.",
    "at": "now",
    "record": {"id": "r1"},
}
UNDO = "ansible-playbook vllm_runbook.oom.rollback_oom -e vllm_oom_namespace=llm -e vllm_oom_workload=deployment/llama"


def plan(*objects, why="it takes a limit that isn't given"):
    document = documents.plan_document({})
    for edited in objects or (OBJECT,):
        made = documents.object_plan(edited, [f"llm/{edited['name']}-0"])
        made.update(causes=["kv_max_len"], apply={"step": None, "with": [], "changes": [], "why": why})
        document["plans"].append(made)
    return document


def one_round(verdict, written=None, failure=None):
    verification = {"verdict": verdict, "verifiable": True, "seconds": 3.0, "sentence": "It was looked at."}
    return {
        "step": 1,
        "changes": [LONGER],
        "written": written or WRITTEN,
        "verification": verification,
        "failure": failure,
    }


def became(*rounds, **more):
    (made,) = outcome(plan(), [dict({"object": OBJECT, "rounds": list(rounds)}, **more)])["objects"]
    return made


@pytest.mark.parametrize("verdict", ["starts", "served", "held"])
def test_what_helped_stays_and_can_be_taken_back(verdict):
    made = became(one_round(verdict), ended={"changed": True, "mode": "written"})
    assert made["verdict"] == verdict
    assert made["undo"] == UNDO
    assert made["problem"] is None
    assert (
        made["sentence"] == "Deployment llm/llama: set --max-model-len to 8192 (now 16384); It was looked at."
    )


def test_what_failed_was_taken_back():
    failure = {"pod": "llm/llama-1", "cause": "kv_no_blocks", "sentence": "There is no room."}
    made = became(one_round("failed", failure=failure), ended={"changed": True, "mode": "written"})
    assert made["verdict"] == "undone"
    assert made["undo"] is None
    assert made["last_failure"] == failure
    assert made["sentence"].endswith(
        "it failed again: There is no room. Everything that this run had changed was taken back."
    )


def test_what_was_to_stay_stays():
    made = became(one_round("failed"), ended={"changed": True, "mode": "written"}, kept=True)
    assert (made["verdict"], made["undo"]) == ("failed", UNDO)
    assert "was kept, as asked" in made["sentence"]


def test_what_cannot_be_taken_back_is_still_failed():
    made = became(one_round("failed"), ended={"failed": True, "msg": "somebody changed it"})
    assert (made["verdict"], made["undo"]) == ("failed", UNDO)
    assert "could not be taken back: somebody changed it." in made["sentence"]


def test_what_was_so_already_is_not_taken_back():
    unchanged = {"changed": False, "mode": "unchanged", "sentence": "It is so already."}
    made = became(one_round("failed", unchanged), ended={"changed": False, "mode": "unchanged"})
    assert (made["verdict"], made["undo"]) == ("failed", None)
    assert "Nothing was written" in made["sentence"]


@pytest.mark.parametrize(
    "access",
    [
        {"kubeconfig": "/home/me/.kube/b", "context": "arn:aws:eks:us-east-1:1:cluster/b"},
        {"kubeconfig": "~/my clusters/b", "context": "it's b"},
        {"kubeconfig": "", "context": 'name=b \\ "quoted" #1 é'},
    ],
)
def test_it_is_taken_back_in_the_same_cluster(access):
    """The command as a shell and Ansible read it."""
    done = [{"object": OBJECT, "rounds": [one_round("served")], "ended": {"mode": "written"}}]
    (made,) = outcome(plan(), done, access=access)["objects"]
    program, playbook, *options = shlex.split(made["undo"])
    assert [program, playbook, *options[::2]] == [*UNDO.split()[:2], *["-e"] * (len(options) // 2)]
    loader, read = DataLoader(), {}
    for text in options[1::2]:
        read.update(loader.load(text) if text.startswith("{") else parse_kv(text))
    given = {f"vllm_oom_{name}": value for name, value in access.items() if value}
    assert read == {"vllm_oom_namespace": "llm", "vllm_oom_workload": "deployment/llama", **given}


def test_an_end_before_the_verdict_leaves_the_change():
    broken = dict(one_round("served"), verification=None)
    made = became(broken, problem={"task": "Verify it", "sentence": "the server\n went away"})
    assert (made["verdict"], made["undo"], made["problem"]) == (None, UNDO, "the server\n went away")
    assert (
        "the run ended before that was verified: the server went away. The change is in the cluster"
        in made["sentence"]
    )


def test_where_nothing_can_be_said_that_is_the_problem():
    made = became(one_round(None))
    assert (made["verdict"], made["problem"], made["undo"]) == (None, "It was looked at.", UNDO)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dry_run", "(the API server would take it)."),
        ("client_side", "(the API server wasn't asked, since that takes the right to write)."),
    ],
)
def test_what_was_only_asked_for_changes_nothing(mode, words):
    made = became(dict(one_round(None, dict(WRITTEN, mode=mode)), verification=None))
    assert (made["verdict"], made["undo"]) == (None, None)
    assert made["attempts"][0]["written"]["changed"] is False
    assert made["sentence"].endswith(words)


def test_a_patch_for_its_source_is_no_failure():
    refused = dict(one_round(None, {"msg": "Argo CD reverts it", "mode": None}), verification=None)
    made = became(refused, problem={"sentence": "Argo CD reverts it"}, live=False)
    assert made["problem"] is None
    assert made["sentence"] == "Deployment llm/llama: nothing was written: it takes a limit that isn't given."


def test_what_a_killed_run_changed_is_named_and_can_be_taken_back():
    found = {"run": "run-0", "at": "then", "changes": ["--max-model-len: 16384 -> 8192"]}
    taken = dict(one_round("served", dict(WRITTEN, found=found)), changes=[])
    made = became(taken, ended={"changed": True, "mode": "written"})
    assert made["undo"] == UNDO
    assert made["attempts"][0]["written"]["found"] == found
    assert "go on with what run-0 changed at then (--max-model-len: 16384 -> 8192)" in made["sentence"]


@pytest.mark.parametrize("mode", ["dry_run", "client_side"])
def test_what_a_killed_run_changed_is_not_gone_on_with_where_that_was_only_asked(mode):
    found = {"run": "run-0", "at": "then", "changes": ["--max-model-len: 16384 -> 8192"]}
    made = became(dict(one_round(None, dict(WRITTEN, mode=mode, found=found)), verification=None))
    assert (made["verdict"], made["undo"]) == (None, UNDO)
    assert made["attempts"][0]["written"]["changed"] is False
    assert made["sentence"].startswith(
        "Deployment llm/llama: would go on with what run-0 changed at then (--max-model-len: 16384 -> 8192), set"
    )


def test_all_objects_of_the_plan_come_in_its_order_then_the_others():
    other = dict(OBJECT, name="other")
    beside = dict(OBJECT, name="beside")
    made = outcome(plan(OBJECT, other), [{"object": beside, "rounds": [one_round("served")]}])
    assert [item["object"]["name"] for item in made["objects"]] == ["llama", "other", "beside"]
    assert [item["verdict"] for item in made["objects"]] == [None, None, "served"]


def test_the_first_failure_is_that_of_the_diagnosis():
    diagnosis = documents.diagnosis()
    diagnosis["pods"] = [
        {
            "namespace": "llm",
            "name": "llama-0",
            "verdict": {"cause": "kv_max_len", "sentence": "It is too long."},
            "findings": [],
        }
    ]
    (made,) = outcome(plan(), diagnosis=diagnosis)["objects"]
    assert made["first_failure"] == {
        "pod": "llm/llama-0",
        "cause": "kv_max_len",
        "sentence": "It is too long.",
    }


def test_a_rollback_is_undone_only_where_it_was_done():
    done = [
        {
            "object": OBJECT,
            "withdrawn": True,
            "ended": {"mode": "written", "sentence": "It was restored."},
            "waited": "0 of 1 ready",
        },
        {
            "object": dict(OBJECT, name="b"),
            "withdrawn": True,
            "ended": {"failed": True, "msg": "changed since"},
        },
        {
            "object": dict(OBJECT, name="c"),
            "withdrawn": True,
            "ended": {"mode": "dry_run", "sentence": "It would be restored."},
        },
    ]
    first, second, third = outcome(None, done)["objects"]
    assert (first["verdict"], first["undo"], first["sentence"]) == (
        "undone",
        None,
        "Deployment llm/llama: It was restored. 0 of 1 ready.",
    )
    assert (second["verdict"], second["problem"]) == (None, "changed since")
    # The command that has just refused would refuse again; one that was only asked for is the one to give.
    assert second["undo"] is None
    assert third["undo"] == UNDO.replace("llama", "c")
    assert (third["verdict"], third["problem"]) == (None, None)


def test_what_other_runs_hold_and_what_could_not_be_listed_is_noted():
    held = dict(OBJECT, held=True, run="run-0", host="h1", until="later")
    free = dict(OBJECT, name="free", held=False, run="run-0", host="h1", until=None)
    notes = outcome(
        plan(),
        found={"objects": [held, free], "unreadable": [{"object": "daemonsets.apps", "reason": "forbidden"}]},
    )["notes"]
    assert len(notes) == 2
    assert notes[0] == "Deployment llm/llama is being changed by run-0 on host h1, which holds it until later"
    assert "daemonsets.apps (forbidden)" in notes[1]


def test_what_is_no_plan_is_refused():
    with pytest.raises(DocumentError, match="needs a document with schema"):
        outcome(documents.diagnosis())
    with pytest.raises(DocumentError, match="without their shape"):
        outcome(plan(), [{"rounds": []}])
