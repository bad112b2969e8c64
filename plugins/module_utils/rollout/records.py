# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection notes on an object that it changes: who is at work on it now, and how each change is taken back.

Both are JSON in annotations of the object itself (never of its pod template, which would start pods anew):

- pending: ``{run, at, until, host}``;
- undo: ``{"records": [{id, run, at, causes, changes, steps, verdict}]}``, the newest last. changes: in words; steps: see
  ``remediation.undo.record``; verdict: of documents.VERDICTS, None while nobody has found it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, NamedTuple

from ..documents import PENDING_ANNOTATION, UNDO_ANNOTATION, DocumentError
from ..remediation.json_patch import copied
from ..remediation.wording import run_name
from ..times import parse_time
from .access import stamp

# What the API server allows all annotations of an object to take together, names included.
_MAX_ANNOTATIONS = 256 * 1024
_TEXTS = ("id", "run", "at")


class Notes(NamedTuple):
    """pending: the mark, or None; records: the undo records, the oldest first."""

    pending: dict[str, Any] | None
    records: list[dict[str, Any]]

    def unfinished(self, run):
        """The newest record without a verdict that is another run's and that nobody holds, else None."""
        if self.pending and self.pending["run"] == run:
            return None
        open_records = [item for item in self.records if item["verdict"] is None and item["run"] != run]
        return open_records[-1] if open_records else None


def notes_of(raw, shown):
    """The ``Notes`` on a raw object. shown: its name in sentences. DocumentError where they aren't what was written."""
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    pending = _parsed(annotations, PENDING_ANNOTATION, shown)
    if pending is not None and not (
        isinstance(pending, dict)
        and all(isinstance(pending.get(name), str) for name in ("run", "at", "until", "host"))
        and parse_time(pending["until"])
    ):
        _refuse(PENDING_ANNOTATION, shown)
    undo = _parsed(annotations, UNDO_ANNOTATION, shown)
    records = undo.get("records") if isinstance(undo, dict) else None
    if undo is not None and not (isinstance(records, list) and all(map(_is_record, records))):
        _refuse(UNDO_ANNOTATION, shown)
    return Notes(pending, records or [])


def _parsed(annotations, name, shown):
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return _refuse(name, shown)


def _refuse(name, shown):
    raise DocumentError(
        f"the annotation {name} of {shown} isn't what this collection writes there: look at it, then remove it"
        f" (kubectl annotate {shown.lower()} {name}-)"
    )


def _is_record(item):
    return (
        isinstance(item, dict)
        and all(isinstance(item.get(name), str) for name in _TEXTS)
        and isinstance(item.get("steps"), list)
        and all(isinstance(step, dict) and isinstance(step.get("path"), str) for step in item["steps"])
        and isinstance(item.get("changes"), list)
        and "verdict" in item
    )


def mark(run, host, now, lease):
    """The mark of a run from ``now`` (aware datetime) on for ``lease`` seconds."""
    return {"run": run, "at": stamp(now), "until": stamp(now + timedelta(seconds=lease)), "host": host}


def held_by_other(notes, run, now, shown):
    """The sentence that another run is at work on the object, or None."""
    pending = notes.pending
    if pending is None or pending["run"] == run or parse_time(pending["until"]) <= now:
        return None
    return (
        f"{shown} is being changed by {run_name(pending['run'])} on host {pending['host']}, which holds it until {pending['until']}:"
        " wait for its end"
    )


def patch_notes(raw, notes, shown):
    """The operations of a JSON patch that make ``notes`` those of the object. An empty list where they are already."""
    annotations = (raw.get("metadata") or {}).get("annotations")
    wanted = {
        PENDING_ANNOTATION: _text(notes.pending),
        UNDO_ANNOTATION: _text({"records": notes.records} if notes.records else None),
    }
    given = annotations or {}
    operations: list[dict[str, Any]] = []
    for name, text in wanted.items():
        path = "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")
        if text is None and name in given:
            operations.append({"op": "remove", "path": path})
        elif text is not None and given.get(name) != text:
            operations.append({"op": "replace" if name in given else "add", "path": path, "value": text})
    kept = {name: text for name, text in {**given, **wanted}.items() if text is not None}
    size = sum(len(f"{name}{text}".encode()) for name, text in kept.items())
    if operations and size > _MAX_ANNOTATIONS:
        raise DocumentError(
            f"the undo records of {shown} would take {size} bytes with its other annotations, and {_MAX_ANNOTATIONS} is what"
            " Kubernetes allows: take the changes back first (rollback_oom), or remove what is large"
        )
    if annotations is None and any(item["op"] == "add" for item in operations):
        operations.insert(0, {"op": "add", "path": "/metadata/annotations", "value": {}})
    return operations


def _text(value):
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def with_record(notes, record, pending):
    """The notes with one more record, and with this mark."""
    return Notes(pending, [*notes.records, record])


def taken_over(notes, run, pending):
    """The notes with this mark, whose run goes on with the changes of ``run`` that have no verdict, as if they were its own."""
    found = copied(notes.records)
    for item in found:
        if item["run"] == run and item["verdict"] is None:
            item["run"] = pending["run"]
    return Notes(pending, found)


def with_verdict(notes, run, verdict):
    """The notes without the run's mark, and with the verdict in its records and in those that it has taken over."""
    pending = notes.pending if notes.pending and notes.pending["run"] != run else None
    records = copied(notes.records)
    for item in records:
        if verdict and (item["run"] == run or (item["verdict"] is None and pending is None)):
            item["verdict"] = verdict
    return Notes(pending, records)


def brief(record):
    """A record without its steps, for people."""
    return {name: value for name, value in record.items() if name != "steps"}
