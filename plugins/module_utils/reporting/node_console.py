# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a diagnosis on a terminal: one table, worst first, then those that are bad or have warnings in a few lines each.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .node_view import HEAD
from .text import KEEPS_ALL, shorten, wrap

# Details are for what somebody has to act on; a fleet's are in the Markdown report.
_DETAILED = 20
_FINDINGS = 3
# Severity -> how many of a finding's changes are shown.
_CHANGES = {"bad": 2, "warning": 1}
_ROWS = 500
# Names are cut in the table; the details have them whole.
_CELL = 34


def node_blocks(nodes, width):
    """The blocks of ``node_view.node_views``, lists of lines of at most ``width`` characters; none without nodes."""
    if not nodes:
        return []
    wrong = [node for node in nodes if node["state"] in _CHANGES]
    blocks = [_table(nodes, width)]
    blocks += [_details(node, width) for node in wrong[:_DETAILED]]
    left = [node["state"] for node in wrong[_DETAILED:]]
    if left:
        kinds = " and ".join(
            f"{left.count(state)} more {words}"
            for state, words in (("bad", "bad nodes"), ("warning", "nodes with warnings"))
            if state in left
        )
        blocks.append(wrap(f"{kinds} are in the table above; {KEEPS_ALL}.", width))
    return blocks


def _table(nodes, width):
    """One line a node; what is wrong goes to a line of its own where there is no room for it."""
    shown = [[shorten(cell, _CELL) for cell in node["row"][:-1]] for node in nodes[:_ROWS]]
    sizes = [max(len(row[index]) for row in (HEAD, *shown)) for index in range(len(HEAD) - 1)]
    lines = [_counts(nodes), shorten(_line(HEAD, sizes).rstrip(), width)]
    for cells, node in zip(shown, nodes):
        line, wrong = _line(cells, sizes), node["row"][-1]
        if len(line) + len(wrong) + 2 <= width or not wrong:
            lines.append(f"{line}  {wrong}".rstrip())
        else:
            lines += [line.rstrip(), shorten(f"      {wrong}", width)]
    if len(nodes) > _ROWS:
        lines.append(f"  and {len(nodes) - _ROWS} more, none of them worse; {KEEPS_ALL}")
    return lines


def _line(cells, sizes):
    return "  " + "  ".join(cell.ljust(size) for cell, size in zip(cells, sizes))


def _counts(nodes):
    states = [node["state"] for node in nodes]
    words = (("bad", "bad"), ("warning", "with warnings"), ("unknown", "not known"), ("fine", "fine"))
    said = [f"{states.count(state)} {word}" for state, word in words if state in states]
    return f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} checked: {', '.join(said)}."


def _details(node, width):
    """What is wrong with one node and what to do: the first of its bad findings, then of its warnings."""
    lines = [shorten(f"Node {node['name']}" + (f": {node['product']}" if node["product"] else ""), width)]
    shown = [
        finding
        for severity in _CHANGES
        for finding in [item for item in node["findings"] if item["severity"] == severity][:_FINDINGS]
    ]
    for finding in shown:
        lines += ["  " + line for line in wrap(f"- {finding['sentence']}", width - 2, "  ")]
        for change in finding["do"][: _CHANGES[finding["severity"]]]:
            why = f": {change['why']}" if change["why"] else ""
            lines += ["    " + line for line in wrap(f"{change['what']}{why}", width - 4, "  ")]
    more = len(node["findings"]) - len(shown)
    if more > 0:
        lines.append(f"  and {more} more; {KEEPS_ALL}")
    return lines
