# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our own annotations say of an object, and that anything else in them is named and not believed."""

from __future__ import annotations

import json

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    UNDO_ANNOTATION,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.own_change import own_change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor

PENDING = {"run": "b2", "at": "2026-11-30T06:58:00Z", "until": "2026-11-30T07:01:00Z", "host": "runner-7"}
STEP = {"path": "spec.template.spec.containers[vllm].args[3]", "before": "8192", "after": "4096"}
RECORD = {
    "id": "r1",
    "run": "a1",
    "at": "2026-11-29T20:00:00Z",
    "causes": ["kv_max_len"],
    "changes": ["set --max-model-len to 4096"],
    "steps": [STEP],
    "verdict": "served",
}


def annotated(pending=None, undo=None):
    texts = {PENDING_ANNOTATION: pending, UNDO_ANNOTATION: undo}
    found = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in texts.items()
        if value is not None
    }
    return {"metadata": {"name": "vllm", "annotations": {"team": "ml", **found}}}


@pytest.mark.parametrize(
    "raw", [None, {}, {"metadata": {}}, {"metadata": {"annotations": None}}, annotated()]
)
def test_an_object_without_our_annotations_was_not_changed_by_us(raw):
    assert own_change(raw) is None


def test_a_change_that_was_verified():
    assert own_change(annotated(undo={"records": [dict(RECORD, run="a0", verdict="undone"), RECORD]})) == {
        "run": "a1",
        "at": "2026-11-29T20:00:00Z",
        "until": None,
        "host": None,
        "verdict": "served",
        "causes": ["kv_max_len"],
        "records": 2,
        "problems": [],
    }


def test_a_run_at_work_is_the_one_that_is_named():
    found = own_change(annotated(PENDING, {"records": [RECORD, dict(RECORD, run="b2", verdict=None)]}))
    assert (found["run"], found["at"], found["until"], found["host"]) == tuple(
        PENDING[name] for name in ("run", "at", "until", "host")
    )
    assert (found["verdict"], found["records"], found["problems"]) == (None, 2, [])


def test_a_mark_without_a_record_is_a_run_that_has_not_written_yet():
    found = own_change(annotated(PENDING))
    assert (found["run"], found["until"], found["records"], found["causes"]) == (
        "b2",
        PENDING["until"],
        0,
        [],
    )


def test_where_everything_was_taken_back_no_change_is_left():
    assert own_change(annotated(undo={"records": []}))["records"] == 0


@pytest.mark.parametrize(
    ("pending", "undo", "named"),
    [
        ("{", None, [PENDING_ANNOTATION]),
        ("", None, [PENDING_ANNOTATION]),
        ("[]", None, [PENDING_ANNOTATION]),
        ("null", None, [PENDING_ANNOTATION]),
        ({"run": "b2"}, None, [PENDING_ANNOTATION]),
        (dict(PENDING, until="soon"), None, [PENDING_ANNOTATION]),
        (dict(PENDING, until=None), None, [PENDING_ANNOTATION]),
        (dict(PENDING, run=5), None, [PENDING_ANNOTATION]),
        (None, {"records": "x"}, [UNDO_ANNOTATION]),
        (None, {"records": [5]}, [UNDO_ANNOTATION]),
        (None, {"records": [dict(RECORD, verdict="great")]}, [UNDO_ANNOTATION]),
        (None, {"records": [dict(RECORD, causes=5)]}, [UNDO_ANNOTATION]),
        (None, {"records": [dict(RECORD, causes=[[]])]}, [UNDO_ANNOTATION]),
        (None, "[" * 100_000, [UNDO_ANNOTATION]),
        ("x", "y", [PENDING_ANNOTATION, UNDO_ANNOTATION]),
        ("x", {"records": [RECORD]}, [PENDING_ANNOTATION]),
    ],
)
def test_what_is_not_as_we_write_it_is_named(pending, undo, named):
    found = own_change(annotated(pending, undo))
    assert [problem.split()[2] for problem in found["problems"]] == named
    assert found["until"] is None
    assert found["run"] == ("a1" if isinstance(undo, dict) and UNDO_ANNOTATION not in named else None)


def test_a_text_of_somebody_elses_is_cut_and_redacted():
    found = own_change(annotated(dict(PENDING, host="https://user:s3cr3t@host/" + "x" * 500)), Redactor())
    assert "s3cr3t" not in found["host"]
    assert len(found["host"]) <= 120
    unknown = own_change(annotated(undo={"records": [dict(RECORD, causes=["kv_max_len", "<script>"])]}))
    assert unknown["causes"] == ["kv_max_len"]
