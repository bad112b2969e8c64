# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is noted on an object: who is at work on it, and the undo records."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    UNDO_ANNOTATION,
    DocumentError,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.json_patch import apply
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import records

NOW = datetime(2026, 11, 30, 7, 0, 0, tzinfo=UTC)
SHOWN = "Deployment/llama"


def record(run, verdict=None, steps=(), name="1"):
    made = {"id": name, "run": run, "at": "2026-11-30T06:00:00Z", "causes": [], "changes": [f"{run} did"]}
    return {**made, "steps": list(steps), "verdict": verdict}


def raw(pending=None, made=None, **more):
    annotations = dict(more)
    if pending is not None:
        annotations[PENDING_ANNOTATION] = json.dumps(pending)
    if made is not None:
        annotations[UNDO_ANNOTATION] = json.dumps({"records": made})
    return {"metadata": {"annotations": annotations} if annotations else {}}


def mark(run="a", lease=180):
    return records.mark(run, "host-1", NOW, lease)


def test_what_is_written_is_read_again():
    notes = records.Notes(mark(), [record("a"), record("b", "served")])
    for start in (raw(), raw(other="x"), raw(mark("z"), [record("z")])):
        written = apply(start, records.patch_notes(start, notes, SHOWN))
        assert records.notes_of(written, SHOWN) == notes
        assert records.patch_notes(written, notes, SHOWN) == []
        kept = start["metadata"].get("annotations", {}).get("other")
        assert written["metadata"]["annotations"].get("other") == kept
        cleared = apply(written, records.patch_notes(written, records.Notes(None, []), SHOWN))
        assert set(cleared["metadata"]["annotations"]) <= {"other"}


@pytest.mark.parametrize(
    ("pending", "run", "told"),
    [
        (None, "b", None),
        (mark("b"), "b", None),
        (mark("a", 0), "b", None),
        (
            mark("a"),
            "b",
            "Deployment/llama is being changed by run a on host host-1, which holds it until 2026-11-30T07:03:00Z: wait for its end",
        ),
        (
            mark("run-1f0c"),
            "b",
            "Deployment/llama is being changed by run-1f0c on host host-1, which holds it until 2026-11-30T07:03:00Z: wait for its end",
        ),
    ],
)
def test_another_runs_mark_holds_until_it_expires(pending, run, told):
    assert records.held_by_other(records.Notes(pending, []), run, NOW, SHOWN) == told


@pytest.mark.parametrize(
    ("pending", "made", "found"),
    [
        (None, [], None),
        (None, [record("b")], None),
        (None, [record("a", "served")], None),
        (mark("b"), [record("a")], None),
        (mark("a"), [record("a", name="1"), record("a", name="2"), record("c", "served")], "2"),
    ],
)
def test_what_a_killed_run_left(pending, made, found):
    unfinished = records.Notes(pending, made).unfinished("b")
    assert (unfinished and unfinished["id"]) == found


@pytest.mark.parametrize(
    ("pending", "verdicts", "left"),
    [
        # Its own, again too, and those that it has taken over; what another run found stays.
        (mark("a"), ["failed", "served", "served"], None),
        # While another run holds the object its records are its own.
        (mark("b"), ["failed", "served", None], "b"),
    ],
)
def test_a_verdict_is_noted_where_it_belongs(pending, verdicts, left):
    notes = records.Notes(pending, [record("b", "failed"), record("a", "starts"), record("b")])
    found = records.with_verdict(notes, "a", "served")
    assert [item["verdict"] for item in found.records] == verdicts
    assert (found.pending and found.pending["run"]) == left
    assert [item["verdict"] for item in notes.records] == ["failed", "starts", None]


@pytest.mark.parametrize(
    "annotations",
    [
        {PENDING_ANNOTATION: "no JSON"},
        {PENDING_ANNOTATION: json.dumps({"run": "a"})},
        {PENDING_ANNOTATION: json.dumps({**mark(), "until": "soon"})},
        {UNDO_ANNOTATION: "[]"},
        {UNDO_ANNOTATION: json.dumps({"records": [{"id": "1"}]})},
        {UNDO_ANNOTATION: json.dumps({"records": [record("a", steps=["x"])]})},
    ],
)
def test_what_somebody_else_wrote_there_is_told(annotations):
    (name,) = annotations
    with pytest.raises(DocumentError, match="isn't what this collection writes there") as refused:
        records.notes_of(raw(**annotations), SHOWN)
    assert f"kubectl annotate deployment/llama {name}-" in str(refused.value)


def test_annotations_have_a_size():
    large = record("a", steps=[{"path": "spec.x", "before": "y" * 200_000}])
    start = raw(other="z" * 70_000)
    with pytest.raises(DocumentError, match="and 262144 is what Kubernetes allows"):
        records.patch_notes(start, records.Notes(None, [large]), SHOWN)
    start = raw(other="z" * 50_000)
    assert records.patch_notes(start, records.Notes(None, [large]), SHOWN)
