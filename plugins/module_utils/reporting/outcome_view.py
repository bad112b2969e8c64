# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plain view of a remediation's outcome that every report format shows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import CAUSES, OUTCOME_SCHEMA, VERDICTS, DocumentError, require
from .plan_view import change_line, object_ref
from .wording import clean

_NOTHING = "nothing"
VERDICT_WORDS = {
    "starts": "it starts and is healthy; no request was answered",
    "served": "it serves: the new engine answered a request",
    "held": "it holds: it went on serving for the time that its cause needs",
    "failed": "it failed again",
    "undone": "taken back: the object is as it was",
    _NOTHING: "nothing was written",
}
# Worst first, for the overview and the counts.
_ORDER = ("failed", "undone", _NOTHING, "starts", "served", "held")
_UNVERIFIED = "not verifiable here"
# What module ``workload`` did with a change, in words.
_MODE_WORDS = {
    "written": "written",
    "dry_run": "not written: the API server has gone through it",
    "client_side": "not written: computed here, the API server wasn't asked",
    "unchanged": "it was so already",
}
_MAX_OBJECTS = 50


def outcome_view(outcome):
    """``{summary, notes, objects}`` of an outcome document; each object's outcome as ``object_view`` has it.

    Raises DocumentError when it is another document.
    """
    _require(outcome)
    return {
        "summary": outcome_summary(outcome),
        "notes": [clean(text) for text in outcome.get("notes") or []],
        "objects": [object_view(item) for item in outcome.get("objects") or []],
    }


def outcome_summary(outcome):
    """What a job leaves behind: ``{objects, written, verdicts: {VERDICT: count}, outcomes, more}``; outcomes: at most 50.

    written: objects that a write was made to; ``nothing`` among the verdicts: where none was.
    """
    _require(outcome)
    objects = outcome.get("objects") or []
    verdicts = [_verdict(item) for item in objects]
    return {
        "objects": len(objects),
        "written": sum(any(_changed(attempt) for attempt in item.get("attempts") or []) for item in objects),
        "verdicts": {name: verdicts.count(name) for name in _ORDER if name in verdicts},
        "outcomes": [
            {
                "object": object_ref(item),
                "namespace": (item.get("object") or {}).get("namespace"),
                "verdict": item.get("verdict"),
                "sentence": clean(item.get("sentence")),
            }
            for item in objects[:_MAX_OBJECTS]
        ],
        "more": max(0, len(objects) - _MAX_OBJECTS),
    }


def _require(outcome):
    require(outcome, OUTCOME_SCHEMA, "The report")
    for item in outcome.get("objects") or []:
        found = [item.get("verdict")]
        found += [
            (attempt.get("verification") or {}).get("verdict") for attempt in item.get("attempts") or []
        ]
        for verdict in found:
            if verdict is not None and verdict not in VERDICTS:
                raise DocumentError(
                    f"The report needs a known verdict of every object, got {verdict!r}: it is one of {', '.join(VERDICTS)}, or null where "
                    "nothing was written."
                )


def _verdict(item):
    return item.get("verdict") or _NOTHING


def _changed(attempt):
    return bool((attempt.get("written") or {}).get("changed"))


def object_view(item):
    """One object's outcome as text: ``{ref, namespace, verdict, words, sentence, told, plan, first, last, attempts, undo}``.

    told: whether the attempts tell what the sentence does; first, last: the failure before the first change and that of the last
    attempt that failed, in a sentence each; attempts: see ``_attempt_view``; undo: the command that takes everything back.
    """
    verdict = _verdict(item)
    first = _failure(item.get("first_failure")) or _inherited(item)
    last = _failure(item.get("last_failure"))
    return {
        "ref": object_ref(item),
        "namespace": clean((item.get("object") or {}).get("namespace")) or None,
        "verdict": verdict,
        "words": VERDICT_WORDS[verdict],
        "sentence": _without_name(clean(item.get("sentence")), item.get("object") or {}),
        "told": _told(item),
        "plan": clean(item.get("plan")),
        "first": first,
        "last": last if last != first else None,
        "attempts": [
            _attempt_view(number, attempt) for number, attempt in enumerate(item.get("attempts") or [], 1)
        ],
        "undo": clean(item.get("undo")) or None,
    }


def _told(item):
    """Whether the attempts say it all: nothing came between, and what was written was verified."""
    attempts = item.get("attempts") or []
    if not attempts or item.get("problem"):
        return False
    return all(
        attempt.get("verification") or (not _changed(attempt) and (attempt.get("written") or {}).get("mode"))
        for attempt in attempts
    )


def _without_name(sentence, edited):
    """A sentence without the object's name before it, which stands above it."""
    place = f"{clean(edited['namespace'])}/" if edited.get("namespace") else ""
    name = f"{clean(edited.get('kind'))} {place}{clean(edited.get('name'))}: "
    text = sentence[len(name) :] if sentence.startswith(name) else sentence
    return text[:1].upper() + text[1:] if text[:1] != "-" else text


def _failure(failure):
    """``{pod, cause, means, sentence}`` or None."""
    if not failure:
        return None
    cause = failure.get("cause")
    return {
        "pod": clean(failure.get("pod")).lstrip("/"),
        "cause": clean(cause) or None,
        "means": CAUSES.get(cause, ""),
        "sentence": clean(failure.get("sentence")),
    }


def _inherited(item):
    """Instead of the failure before a killed run's changes, which only that run knew; None where there are none."""
    for attempt in item.get("attempts") or []:
        found = (attempt.get("written") or {}).get("found")
        if found:
            said = f"not known: the change was made by an earlier run ({clean(found['run'])})"
            return {"pod": "", "cause": None, "means": "", "sentence": said}
    return None


def _what(attempt):
    """The changes of an attempt, those of a killed run that it went on with first."""
    found = (attempt.get("written") or {}).get("found") or {}
    own = [change_line(change) for change in attempt.get("changes") or []]
    earlier = [clean(text) for text in found.get("changes") or []]
    by = f" (by {clean(found['run'])})" if earlier else ""
    return [text + by for text in earlier] + own


def _attempt_view(number, attempt):
    """One change and what came of it: ``{number, step, what, written, missing, warnings, at, record, changed, verdict,
    result, seconds}``; missing: rights; warnings: of the API server."""
    written, checked = attempt.get("written") or {}, attempt.get("verification") or {}
    return {
        "number": number,
        "step": attempt.get("step"),
        "what": _what(attempt),
        "changed": _changed(attempt),
        "written": _MODE_WORDS.get(written.get("mode") or "") or clean(written.get("sentence")),
        "at": clean(written.get("at")) or None,
        "record": clean(written.get("record")) or None,
        "missing": [clean(text) for text in written.get("missing") or []],
        "warnings": [clean(text) for text in written.get("warnings") or []],
        "verdict": checked.get("verdict"),
        "result": _result(checked),
        "seconds": checked.get("seconds"),
    }


def _result(checked):
    """What the verification found, in a sentence; empty where there was none."""
    if not checked:
        return ""
    said = clean(checked.get("sentence"))
    if checked.get("verifiable") is False and _UNVERIFIED not in said:
        said = f"{_UNVERIFIED}: {said}" if said else _UNVERIFIED
    return said or VERDICT_WORDS.get(checked.get("verdict") or "", "")
