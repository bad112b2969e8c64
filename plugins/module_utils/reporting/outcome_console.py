# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remediation's outcome on a terminal: what was changed, what came of it, and how to take it back.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .console import WIDTH
from .sections import Section, command_lines, fit
from .text import KEEPS_ALL, shorten, wrap

LINES_PER_OBJECT = 20
OBJECTS = 20
_INDENT = 9
# Sections in the order they are shown: label -> (lines it keeps when there is little room, who gets room first).
_SECTIONS = {
    "": (2, 0),
    "Before": (1, 2),
    "Done": (3, 1),
    "Would": (3, 1),
    "Last": (2, 3),
    "Undo": (2, 0),
    "Plan": (1, 4),
}
_COUNT_WORDS = {
    "failed": "failed",
    "undone": "taken back",
    "nothing": "not written",
    "starts": "started",
    "served": "served",
    "held": "held",
}


def render(view, width=WIDTH, lines_per_object=LINES_PER_OBJECT, objects=OBJECTS):
    """The outcomes of an ``outcome_view.outcome_view`` as text, lines of at most ``width`` characters."""
    blocks = []
    if not view["objects"]:
        blocks.append(["Nothing was changed: no pod has a finding that a change could answer."])
    if len(view["objects"]) > 1:
        blocks.append(_overview(view, width))
    blocks += [_object(item, width, lines_per_object) for item in view["objects"][:objects]]
    if len(view["objects"]) > objects:
        blocks.append(
            wrap(f"{len(view['objects']) - objects} more are in the overview above; {KEEPS_ALL}.", width)
        )
    if view["notes"]:
        blocks.append([line for text in view["notes"] for line in wrap(f"Note: {text}", width, "  ")])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(view, width):
    counts = ", ".join(f"{count} {_COUNT_WORDS[name]}" for name, count in view["summary"]["verdicts"].items())
    lines = wrap(f"{view['summary']['objects']} objects: {counts}.", width)
    for item in view["objects"]:
        lines.append(shorten(f"  {_COUNT_WORDS[item['verdict']].ljust(11)}  {_name(item)}", width))
    return lines


def _name(item):
    return item["ref"] + (f" (namespace {item['namespace']})" if item["namespace"] else "")


def _object(item, width, room):
    sections = [section for section in _sections(item, width) if section.versions[0]]
    head = wrap(f"{_name(item)}: {item['words']}", width, "  ")
    return [*head, *fit(sections, room - len(head), width, _INDENT)]


def _sections(item, width):
    inner = width - _INDENT
    yield _text("", [] if item["told"] else wrap(item["sentence"], width - 2))
    # The plan itself is shown before it.
    yield _text("Plan", [] if item["attempts"] or item["sentence"] else wrap(item["plan"], inner))
    yield _text("Before", _failure(item["first"], inner) if item["attempts"] else [])
    done = any(attempt["changed"] for attempt in item["attempts"]) or item["verdict"] != "nothing"
    lines = [line for attempt in item["attempts"] for line in _attempt(attempt, inner)]
    yield _text("Done" if done else "Would", lines)
    yield _text("Last", _failure(item["last"], inner))
    command = command_lines(item["undo"], inner) if item["undo"] else []
    yield Section("Undo", [command], len(command), _SECTIONS["Undo"][1], tuple(command))


def _text(label, lines):
    """A section that may be cut after any line."""
    floor, rank = _SECTIONS[label]
    return Section(label, [lines], min(floor, len(lines)), rank)


def _failure(failure, width):
    if not failure:
        return []
    said = failure["sentence"] or failure["means"]
    return wrap(": ".join(part for part in (failure["pod"], failure["cause"], said) if part), width, "  ")


def _attempt(attempt, width):
    """One change and what came of it."""
    what = attempt["what"] or ([f"step {attempt['step']}"] if attempt["step"] is not None else [])
    lines = [line for text in what for line in wrap(text, width - 3, "  ")]
    took = f" (after {attempt['seconds']:.0f} s)" if attempt["seconds"] is not None else ""
    at = f" at {attempt['at']}" if attempt["at"] and attempt["changed"] else ""
    verdict = f"{attempt['verdict']}: " if attempt["verdict"] else ""
    for text in (
        attempt["written"] + at if attempt["written"] else "",
        verdict + attempt["result"] + took if attempt["result"] else "",
        f"needs: {', '.join(attempt['missing'])}" if attempt["missing"] else "",
        *[f"warning: {text}" for text in attempt["warnings"]],
    ):
        lines += wrap(text, width - 3, "  ")
    # What was taken back is no attempt: only what was seen afterwards is told.
    mark = f"{attempt['number']}. " if what else "-  "
    return [(mark if number == 0 else "   ") + line for number, line in enumerate(lines)]
