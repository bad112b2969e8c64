# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remediation plan on a terminal: one step to decide on, what else there is, and what not to do, in at most 25 lines an object.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .console import WIDTH
from .sections import Section, bullets, command_lines, fit
from .text import KEEPS_ALL, shorten, wrap

LINES_PER_OBJECT = 25
OBJECTS = 20
_INDENT = 12
_SHORT_HOW = {"live": "live", "patch": "in its source", "by_hand": "by hand", None: "by hand"}
# Sections in the order they are shown: label -> (lines it keeps when there is little room, who gets room that is left
# first). The commands of the step are kept whole.
_SECTIONS = {
    "": (1, 2),
    "Blocked": (2, 0),
    "Change": (2, 0),
    "Needs": (2, 1),
    "Why": (1, 4),
    "Proof": (2, 3),
    "Costs": (1, 2),
    "Restarts": (1, 2),
    "How": (2, 0),
    "Next": (1, 1),
    "Or": (1, 5),
    "Refused": (1, 6),
    "By hand": (1, 7),
    "Also": (1, 8),
    "Don't": (2, 9),
    "Left out": (1, 11),
    "Note": (1, 10),
}


def render(view, width=WIDTH, lines_per_object=LINES_PER_OBJECT, objects=OBJECTS):
    """The plans of a ``plan_view.plan_view`` as text, lines of at most ``width`` characters.

    Only a shell word or name that is itself longer than the width may stick out: a broken command is no command.
    """
    blocks = []
    if not view["plans"]:
        blocks.append(["Nothing to change: no finding asks for it."])
    if len(view["plans"]) > 1:
        blocks.append(_overview(view, width))
    blocks += [_object(item, width, lines_per_object) for item in view["plans"][:objects]]
    if len(view["plans"]) > objects:
        blocks.append(
            wrap(f"{len(view['plans']) - objects} more are in the overview above; {KEEPS_ALL}.", width)
        )
    foot = [f"Allowed: {'; '.join(view['allowed'])}."] if view["allowed"] else []
    foot += [f"Note: {text}." for text in view["notes"]]
    if foot:
        blocks.append([line for text in foot for line in wrap(text, width, "  ")])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(view, width):
    summary = view["summary"]
    words = (
        ("changeable", "can be changed"),
        ("refused", "need something first"),
        ("advised", "are for a person"),
        ("nothing", "have nothing to change"),
    )
    said = ", ".join(f"{summary[name]} {word}" for name, word in words if summary[name])
    lines = wrap(f"{summary['objects']} objects planned: {said}.", width)
    for item in view["plans"]:
        lines += wrap(f"  {_head(item)}", width, "    ")
    return lines


def _head(item):
    where = f" (namespace {item['namespace']})" if item["namespace"] else ""
    causes = ", ".join(entry["cause"] for entry in item["causes"])
    return f"{item['ref']}{where}" + (f": {causes}" if causes else "")


def _object(item, width, room):
    """The block of one object: a head line, then labelled sections that share the room."""
    sections = [section for section in _sections(item, width) if section.versions[0]]
    return [shorten(_head(item), width), *fit(sections, room - 1, width, _INDENT)]


def _sections(item, width):
    inner = width - _INDENT
    first = next((step for step in item["steps"] if step["number"] == item["first"]), None)
    others = [step for step in item["steps"] if step is not first]
    means = item["causes"][0]["means"] if item["causes"] else ""
    yield _text("", wrap(means[:1].upper() + means[1:] + ".", width - 2) if means else [])
    yield _text("Blocked", bullets(item["blocked"], inner))
    if first is None:
        against = f" against {item['causes'][0]['cause']}" if item["causes"] else ""
        yield _text("Change", wrap(f"nothing is planned{against}", inner))
    else:
        yield from _step(first, inner)
    yield _text("Next", wrap(item["next"], inner))
    # Of a pod that didn't fail, all of it is against risks.
    main = first["role"] if first else "trigger"
    harm = [step for step in others if step["role"] == main]
    yield _steps("Or", harm, inner, "planned")
    yield _steps("Refused", harm, inner, "refused")
    yield _steps("By hand", harm, inner, "advised")
    yield _steps("Also", [step for step in others if step["role"] != main], inner)
    yield _refusals("Don't", item["rejected"], inner)
    yield _refusals("Left out", item["considered"], inner)
    yield _text("Note", bullets(item["notes"], inner))


def _text(label, lines):
    """A section that may be cut after any line."""
    floor, rank = _SECTIONS[label]
    return Section(label, [lines], min(floor, len(lines)), rank)


def _whole(label, lines):
    """A section that isn't cut: a step is made as a whole, and needs all that it needs."""
    return Section(label, [lines], len(lines), _SECTIONS[label][1])


def _list(label, items, width):
    """A section of items, lists of lines: as many of them as there is room for, and how many there are more."""
    versions = [
        _counted([line for item in items[:shown] for line in item], len(items) - shown, width)
        for shown in range(len(items), 0, -1)
    ]
    floor, rank = _SECTIONS[label]
    return Section(label, versions or [[]], min(floor, len(versions[-1])) if versions else 0, rank)


def _counted(lines, more, width):
    if not more:
        return lines
    words = f" (and {more} more)"
    if len(lines[-1]) + len(words) <= width:
        return [*lines[:-1], lines[-1] + words]
    return [*lines, words.strip()]


def _step(step, width):
    """The step to decide on, in full."""
    head = [f"step {step['number']}, {step['title']}:"]
    yield _whole("Change", head + [line for text in step["what"] for line in wrap(text, width, "  ")])
    yield _whole("Needs", bullets(step["refused"], width))
    yield _text("Why", [line for text in step["why"] for line in wrap(text, width, "  ")])
    yield _text("Proof", wrap(step["proof"], width))
    risks = [f"mind: {text}" for text in step["risks"]]
    costs = [] if step["state"] == "advised" else [step["takes"]]
    yield _text("Costs", [line for text in costs + risks for line in wrap(text, width, "  ")])
    starts = [text for text in (step["restarts"], step["strategy"]) if text]
    yield _text("Restarts", [line for text in starts for line in wrap(text, width, "  ")])
    yield _how(step, width)


def _how(step, width):
    """How it reaches the object, and the commands, each of them whole."""
    said = [line for text in (step["delivery"], *step["hints"]) for line in wrap(text, width, "  ")]
    commands = [line for command in step["commands"] for line in command_lines(command, width)]
    floor = len(said[:1] + commands) if commands else min(len(said), _SECTIONS["How"][0])
    return Section("How", [said + commands, said[:1] + commands], floor, _SECTIONS["How"][1], tuple(commands))


def _steps(label, steps, width, state=None):
    shown = [step for step in steps if state in (None, step["state"])]
    items = [wrap(f"{step['number']}. {_in_short(step, label)}", width, "   ") for step in shown]
    return _list(label, items, width)


def _in_short(step, label):
    """A step in a line or two; under Also with what it is against: harm that wasn't done yet, or that made it worse."""
    against = f"against {', '.join(step['causes'])}: " if label == "Also" else ""
    if step["state"] == "planned":
        return f"{against}{step['short']} (costs {step['takes']}; {_SHORT_HOW[step['how']]})"
    why = step["refused"] if step["state"] == "refused" else step["why"]
    return against + step["short"] + (f": {'; '.join(why)}" if why else "")


def _refusals(label, entries, width):
    texts = [f"{entry['what']}: {entry['why']}" if entry["why"] else entry["what"] for entry in entries]
    return _list(label, [bullets([text], width) for text in texts], width)
