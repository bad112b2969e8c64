# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A memory budget as a table on a terminal.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .console import WIDTH
from .text import shorten, wrap

_SHOWN_CHANGES = 4
_SHOWN_ASSUMPTIONS = 4


def render(view, width=WIDTH):
    """The budgets of a ``budget_view.budget_view`` as text, lines of at most ``width`` characters."""
    blocks = []
    if not view["entries"]:
        blocks.append(["Nothing to size: no vLLM engine was found."])
    if len(view["entries"]) > 1:
        blocks.append(_overview(view, width))
    blocks += [_entry(entry, width) for entry in view["entries"]]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(view, width):
    summary = view["summary"]
    counts = f"{summary['fits']} fit, {summary['doesnt_fit']} don't, {summary['unknown']} not known"
    lines = [f"{summary['engines']} engines sized: {counts}."]
    for entry in view["entries"]:
        lines += wrap(f"  {entry['verdict'].ljust(11)}  {entry['head']}", width, " " * 15)
    return lines


def _entry(entry, width):
    lines = wrap(entry["head"], width, "  ")
    lines += ["  " + line for line in wrap(entry["sentence"], width - 2)]
    lines += budget_lines(entry, width)
    if entry["host"]:
        lines += ["", *_table("Host memory", entry["host"], width)]
    lines += _section("Fits up to", [", ".join(entry["largest"])] if entry["largest"] else [], width)
    changes = [_change(item) for item in entry["do"]]
    lines += _numbered("Do", changes[:_SHOWN_CHANGES], width)
    lines += _section("Don't", [_change(item) for item in entry["avoid"]][:2], width)
    lines += _section("Or use", entry["hardware"], width)
    lines += _section("Contradiction", entry["contradictions"], width)
    lines += _section("Not known", entry["undetermined"], width)
    assumed = entry["assumptions"]
    more = len(assumed) - _SHOWN_ASSUMPTIONS
    shown = assumed[:_SHOWN_ASSUMPTIONS] + (
        [f"{more} more in the JSON and Markdown reports"] if more > 0 else []
    )
    lines += _section("Assumed", shown, width)
    return lines


def budget_lines(entry, width):
    """The GPU's table of one engine, as lines; none where nothing is known of it."""
    return ["", *_table(f"{entry['gpu_title']}, GiB", entry["gpu"], width)] if entry["gpu"] else []


def _table(title, rows, width):
    columns = [max(len(row[index]) for row in rows) for index in (0, 1)]
    lines = [f"  {title}"]
    for what, size, remark in rows:
        lines.append(
            shorten(f"    {what.ljust(columns[0])}  {size.rjust(columns[1])}  {remark}".rstrip(), width)
        )
    return lines


def _change(change):
    together = f" together with {', '.join(change['with'])}" if change["with"] else ""
    return f"{change['what']}{together}" + (f": {change['why']}" if change["why"] else "")


def _section(title, texts, width):
    if not texts:
        return []
    return ["", f"  {title}", *[line for text in texts for line in _bullet("- ", text, width)]]


def _numbered(title, texts, width):
    if not texts:
        return []
    items = [line for number, text in enumerate(texts, 1) for line in _bullet(f"{number}. ", text, width)]
    return ["", f"  {title}", *items]


def _bullet(mark, text, width):
    return ["    " + line for line in wrap(mark + text, width - 4, " " * len(mark))]
