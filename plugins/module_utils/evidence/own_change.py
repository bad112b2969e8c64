# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this collection wrote at an object before, and whether a run of it is at work there, by the object's annotations.

Annotations can be written by anybody: what isn't as this collection writes it is named and believed in nothing.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..documents import CAUSES, PENDING_ANNOTATION, UNDO_ANNOTATION, VERDICTS
from ..times import parse_time

_MAX_TEXT = 100


def own_change(raw, redactor=None):
    """``{run, at, until, host, verdict, causes, records, problems}`` of an object; None without an annotation of ours.

    run, at, host: of the run that is or was last at work there; until: how long it holds the object, None where none does;
    verdict, causes: of the newest undo record, verdict None while its change isn't verified; records: how many changes could be
    taken back; problems: sentences, which annotation isn't readable.
    """
    annotations = ((raw or {}).get("metadata") or {}).get("annotations") or {}
    if not annotations.keys() & {PENDING_ANNOTATION, UNDO_ANNOTATION}:
        return None
    problems: list[str] = []
    pending = _read(annotations, PENDING_ANNOTATION, _pending, redactor, problems) or {}
    record = _read(annotations, UNDO_ANNOTATION, _records, redactor, problems) or {}
    return {
        "run": pending.get("run") or record.get("run"),
        "at": pending.get("at") or record.get("at"),
        "until": pending.get("until"),
        "host": pending.get("host"),
        "verdict": record.get("verdict"),
        "causes": record.get("causes") or [],
        "records": record.get("records", 0),
        "problems": problems,
    }


def _read(annotations, name, reader, redactor, problems):
    if name not in annotations:
        return None
    try:
        return reader(json.loads(annotations[name]), redactor)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        problems.append(
            f"its annotation {name} isn't as this collection writes it: look at it, then repair or remove it"
        )
        return None


def _pending(found, redactor):
    """``{run, at, until, host}``; ValueError where a time is none, KeyError where one is missing."""
    return {
        "run": _text(found["run"], redactor),
        "at": _time(found["at"]),
        "until": _time(found["until"]),
        "host": _text(found.get("host") or "", redactor) or None,
    }


def _records(found, redactor):
    """The newest of ``{"records": [{run, at, causes, verdict}]}``; empty where none is left."""
    records = found["records"]
    if not isinstance(records, list):
        raise TypeError("the records aren't a list")
    if not records:
        return {}
    newest = records[-1]
    verdict = newest.get("verdict")
    if verdict is not None and verdict not in VERDICTS:
        raise ValueError("no verdict")
    return {
        "run": _text(newest["run"], redactor),
        "at": _time(newest["at"]),
        "verdict": verdict,
        "causes": [cause for cause in newest.get("causes") or [] if cause in CAUSES],
        "records": len(records),
    }


def _text(given, redactor):
    if not isinstance(given, str):
        raise TypeError("no text")
    cut = given[:_MAX_TEXT]
    return redactor.text(cut) if redactor else cut


def _time(given):
    if parse_time(given) is None:
        raise ValueError("no time")
    return given
