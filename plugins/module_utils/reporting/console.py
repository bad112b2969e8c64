# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on a terminal: what a tired person needs, in at most 20 lines a pod.

Plain text without colour, because it passes through Ansible's callbacks, job logs and chat windows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .node_console import node_blocks
from .sections import Section, bullets, command_lines, fit, marked
from .text import KEEPS_ALL, shorten, wrap
from .view_model import SEVERITY_WORDS

WIDTH = 100
LINES_PER_POD = 20
PODS = 20
_LABEL = 9
# How many places are named that could not be read for the same reason.
_OBJECTS = 3
# Sections of a pod in the order they are shown: label -> (lines it keeps when there is little room, who gets
# room that is left first). A section that ends in a command keeps that command whole.
_SECTIONS = {
    "": (2, 1),
    "Seen": (3, 4),
    "Why": (2, 2),
    "Budget": (2, 2),
    "Do": (3, 0),
    "Don't": (2, 3),
    "Also": (1, 6),
    "Settle": (1, 5),
    "Check": (1, 7),
    "Unseen": (1, 8),
    "Alike": (1, 9),
    "Note": (0, 10),
}


def render(view, width=WIDTH, lines_per_pod=LINES_PER_POD, pods=PODS):
    """The console report of a ``view_model.view`` as text, lines of at most ``width`` characters.

    Only a shell word or name that is itself longer than the width may stick out: a broken command is no command.
    Of a fleet, the overview names all and the ``pods`` worst are shown in detail.
    """
    blocks, detailed = [], view["pods"]
    # A check of nodes alone has no pods to speak of.
    alone = view["nodes"] and not view["pods"]
    if not alone and (len(view["pods"]) != 1 or view["pods"][0]["alike"]):
        blocks.append(_overview(view, width))
        detailed = [pod for pod in view["pods"] if pod["severity"] != "fine"]
    blocks += [_pod(pod, width, lines_per_pod) for pod in detailed[:pods]]
    if len(detailed) > pods:
        blocks.append(wrap(f"{len(detailed) - pods} more are in the overview above; {KEEPS_ALL}.", width))
    for kind, entries in (("Group", view["groups"]), ("Workload", view["workloads"])):
        blocks += [_together(kind, entry, width) for entry in entries if entry["sentence"]]
    blocks += node_blocks(view["nodes"], width)
    if view["unreadable"]:
        blocks.append(_unreadable(view["unreadable"], width))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(view, width):
    """The fleet at a glance: one line for each distinct failure, worst first."""
    if not view["pods"]:
        return [_nothing(view["counts"])]
    rows = [("memory", "cause", "confidence", "pod")]
    for pod in view["pods"]:
        more = f" and {len(pod['alike'])} alike" if pod["alike"] else ""
        rows.append((pod["memory"], pod["cause"] or "-", pod["confidence"] or "-", pod["ref"] + more))
    columns = [max(len(row[index]) for row in rows) for index in range(3)]
    lines = [shorten(_counts(view), width)]
    for row in rows:
        cells = "  ".join(cell.ljust(size) for cell, size in zip(row, columns))
        lines.append(shorten(f"  {cells}  {row[3]}", width))
    return lines


def _nothing(counts):
    engines, seen = counts.get("engines"), counts.get("pods_seen")
    if not engines:
        return "Nothing to diagnose: no vLLM pod was seen."
    return f"Nothing to diagnose: none of the {engines} vLLM pods (of {seen} pods seen) looks suspicious."


def _counts(view):
    by_severity: dict = {}
    for pod in view["pods"]:
        by_severity[pod["severity"]] = by_severity.get(pod["severity"], 0) + 1 + len(pod["alike"])
    parts = [f"{count} {SEVERITY_WORDS[name]}" for name, count in by_severity.items()]
    return f"{view['summary']['pods']} pods diagnosed: {', '.join(parts)}."


def _pod(pod, width, room):
    """The block of one pod: a head line, then labelled sections that share the room."""
    verdict = f": {pod['cause']} ({pod['confidence']})" if pod["finding"] else ""
    sections = [section for section in _sections(pod, width) if section.versions[0]]
    return [shorten(pod["ref"] + verdict, width), *fit(sections, room - 1, width, _LABEL)]


def _sections(pod, width):
    finding, inner = pod["finding"], width - _LABEL
    yield _text("", wrap(pod["sentence"] or SEVERITY_WORDS[pod["severity"]], width - 2))
    if finding:
        yield _text("Seen", _seen(finding["seen"], inner))
        yield _text("Why", wrap(finding["why"], inner))
    yield _text(
        "Budget", [line for entry in pod["budgets"] if entry["line"] for line in wrap(entry["line"], inner)]
    )
    if finding:
        yield _to_do(finding["do"], inner)
        yield _text("Don't", [line for change in finding["avoid"] for line in _change(change, "- ", inner)])
    yield _text("Also", _others(pod["others"], inner))
    yield _text("Settle", bullets(pod["settle"], inner))
    yield _checks(pod["check"], inner)
    yield _text("Note", bullets(pod["notes"], inner))
    yield _text("Unseen", bullets(pod["partial"], inner))
    yield _text("Alike", wrap(", ".join(pod["alike"]), inner))


def _text(label, lines):
    """A section that may be cut after any line."""
    floor, rank = _SECTIONS[label]
    return Section(label, [lines], min(floor, len(lines)), rank)


def _to_do(changes, width):
    """All changes; as many of their commands as there is room for, that of the first one always."""
    texts = [_change(change, f"{number}. ", width) for number, change in enumerate(changes, 1)]
    commands = [["   " + line for line in command_lines(change["command"], width - 3)] for change in changes]
    versions = [
        [
            line
            for number, (text, command) in enumerate(zip(texts, commands))
            for line in (text + command if number < shown else text)
        ]
        for shown in range(max(1, len(changes)), 0, -1)
    ]
    first = texts[0] + commands[0] if changes else []
    floor = max(min(_SECTIONS["Do"][0], len(versions[-1])), len(first))
    return Section(
        "Do", versions, floor, _SECTIONS["Do"][1], tuple(line for command in commands for line in command)
    )


def _checks(commands, width):
    """As many of the commands as there is room for, each of them whole."""
    shown = [command_lines(command, width) for command in commands]
    versions = [
        [line for command in shown[:number] for line in command] for number in range(len(shown), 0, -1)
    ]
    longest = versions[0] if versions else []
    shortest = versions[-1] if versions else []
    return Section("Check", versions or [[]], len(shortest), _SECTIONS["Check"][1], tuple(longest))


def _seen(seen, width):
    if not seen:
        return []
    first = seen[0]
    text = wrap(first["text"], width)
    if len(text) > 3:
        text = [*text[:2], marked(text[2], width)]
    return [shorten(first["where"] + ":", width), *text]


def _change(change, mark, width):
    """What to change and why, after a number or bullet."""
    together = f" together with {', '.join(change['with'])}" if change["with"] else ""
    why = f": {change['why']}" if change["why"] else ""
    return wrap(mark + change["what"] + together + why, width, " " * len(mark))


def _others(others, width):
    lines = []
    for finding in others:
        said = finding["why"] or finding["means"]
        if finding["do"]:
            said = f"{said.rstrip('.')}; {finding['do'][0]['what']}"
        lines += wrap(
            f"- {finding['role']} {finding['cause']} ({finding['confidence']}): {said}", width, "  "
        )
    return lines


def _together(kind, entry, width):
    """A group or workload: what is only seen when its pods are looked at together."""
    return wrap(f"{kind} {entry['ref']} ({', '.join(entry['pods'])}): {entry['sentence']}", width, "  ")


def _alike(entries):
    """``(entry, objects)``: what is missing for the same reason in several places is told once."""
    places: dict = {}
    for entry in entries:
        places.setdefault((entry["source"], entry["reason"], entry["needs"]), []).append(entry)
    return [(found[0], [item["object"] for item in found if item["object"]]) for found in places.values()]


def _unreadable(entries, width):
    lines = ["Could not be read:"]
    for entry, objects in _alike(entries):
        needs = f" (needs {entry['needs']})" if entry["needs"] else ""
        more = f" and {len(objects) - _OBJECTS} more" if len(objects) > _OBJECTS + 1 else ""
        shown = objects[:_OBJECTS] if more else objects
        what = " ".join(part for part in (entry["source"], ", ".join(shown) + more) if part)
        lines += wrap(f"  - {what}: {entry['reason']}{needs}", width, "    ")
    return lines
