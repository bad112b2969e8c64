# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The full report as Markdown: for a ticket, a merge request or a post-mortem.

Whatever comes from a log or a cluster is shown as code or escaped, so that it can't become markup.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from .node_view import HEAD, STATE_WORDS
from .view_model import MEMORY_WORDS, PHASE_WORDS, PROOF_WORDS, SEVERITY_WORDS

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")
_BACKTICKS = re.compile(r"`+")


def render(view):
    """The Markdown report of a ``view_model.view`` as text."""
    # A check of nodes alone has no pods to speak of.
    alone = view["nodes"] and not view["pods"]
    lines = ["# GPU nodes"] if alone else ["# vLLM out-of-memory diagnosis", "", *_preamble(view)]
    if len(view["pods"]) > 1:
        lines += ["", "## Overview", "", *_overview(view["pods"])]
    for pod in view["pods"]:
        lines += ["", *_pod(pod)]
    for title, entries in (("Group", view["groups"]), ("Workload", view["workloads"])):
        for entry in entries:
            lines += ["", *_together(title, entry)]
    lines += _nodes(view["nodes"])
    if view["unreadable"]:
        lines += ["", "## What could not be read", "", *[_unreadable(entry) for entry in view["unreadable"]]]
    return "\n".join(lines) + "\n"


def escape(text):
    """``text`` as Markdown that shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def code(text):
    """``text`` as inline code, whatever back-ticks it holds."""
    text = " ".join(str(text).split())
    fence = "`" * (max([len(run) for run in _BACKTICKS.findall(text)], default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text, language="text"):
    """``text`` as a fenced block, as lines, whatever fences it holds."""
    fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(text))])
    return [fence + language, *text.splitlines(), fence]


def _preamble(view):
    facts = []
    if view["source"]:
        facts.append(f"- Source: {view['source']['kind']} {code(view['source']['detail'])}")
    if view["collected_at"]:
        facts.append(f"- Collected: {view['collected_at']}")
    counts = view["counts"]
    if counts:
        facts.append(
            f"- Pods seen: {counts.get('pods_seen')}, vLLM engines: {counts.get('engines')}, "
            f"suspicious: {counts.get('suspicious')}"
        )
    facts.append(f"- Pods diagnosed: {view['summary']['pods']}")
    if view["redactions"]:
        facts.append(f"- Values hidden because they may be secret or private: {view['redactions']}")
    return facts


def _overview(pods):
    rows = ["| Pod | Memory | Phase | Cause | Confidence |", "| --- | --- | --- | --- | --- |"]
    for pod in pods:
        more = f" and {len(pod['alike'])} alike" if pod["alike"] else ""
        cells = (
            escape(pod["ref"]) + more,
            MEMORY_WORDS.get(pod["memory"], pod["memory"]),
            PHASE_WORDS.get(pod["phase"], pod["phase"]),
            code(pod["cause"] or "-"),
            pod["confidence"] or "-",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _pod(pod):
    finding = pod["finding"]
    lines = [
        f"## {escape(pod['ref'])}",
        "",
        f"**{escape(pod['sentence'] or SEVERITY_WORDS[pod['severity']])}**",
    ]
    if finding:
        lines += [
            "",
            f"- Memory: {MEMORY_WORDS.get(pod['memory'], pod['memory'])}",
            f"- Phase: {PHASE_WORDS.get(pod['phase'], pod['phase'])}",
            f"- Cause: {code(pod['cause'])}, {finding['means']}",
            f"- Confidence: {pod['confidence']}",
        ]
    if pod["alike"]:
        lines += ["", f"Failed alike: {', '.join(code(ref) for ref in pod['alike'])}"]
    if finding:
        lines += _finding(finding, "###")
    for entry in pod["budgets"]:
        lines += [
            "",
            f"### Memory budget of {escape(entry['ref'])}",
            "",
            escape(entry["title"]) + ".",
            "",
            escape(entry["sentence"]),
        ]
        lines += budget_tables(entry, "####")
    for other in pod["others"]:
        lines += ["", f"### {other['role'].capitalize()}: {other['cause']} ({other['confidence']})"]
        lines += ["", escape(other["means"][:1].upper() + other["means"][1:]) + ".", *_finding(other, "####")]
    lines += listed("### Ruled out", [f"{code(e['cause'])}: {escape(e['why'])}" for e in pod["ruled_out"]])
    lines += listed("### Worth knowing", [escape(text) for text in pod["notes"]])
    lines += listed("### Not seen", [escape(text) for text in pod["partial"]])
    return lines


def _finding(finding, level):
    lines = []
    if finding["seen"]:
        lines += ["", f"{level} What was seen"]
        for seen in finding["seen"]:
            lines += ["", f"{escape(seen['where'])}:", "", *block(seen["text"])]
    if finding["why"]:
        lines += ["", f"{level} Why", "", escape(finding["why"])]
    if finding["runbook"]:
        lines += ["", f"> Rule of thumb: {escape(finding['runbook'])}"]
    if finding["do"]:
        lines += ["", f"{level} Do this", ""]
        for number, change in enumerate(finding["do"], 1):
            lines += _change(change, f"{number}. ")
    if finding["avoid"]:
        lines += ["", f"{level} Don't do that", ""]
        for change in finding["avoid"]:
            lines += _change(change, "- ", proof=False)
    lines += listed(f"{level} What would settle it", [escape(text) for text in finding["settle"]])
    if finding["check"]:
        lines += ["", f"{level} See for yourself", "", *block("\n".join(finding["check"]), "shell")]
    return lines


def _change(change, mark, proof=True):
    together = f", together with {', '.join(code(name) for name in change['with'])}" if change["with"] else ""
    shown = f" ({PROOF_WORDS[change['proof']]})" if proof and change["proof"] in PROOF_WORDS else ""
    what = escape(change["what"][:1].upper() + change["what"][1:])
    why = f": {escape(change['why'])}" if change["why"] else ""
    lines = [f"{mark}{what}{together}{why}{shown}"]
    if change["command"]:
        pad = " " * len(mark)
        lines += ["", *[pad + line for line in block(change["command"], "shell")], ""]
    return lines


def _together(title, entry):
    lines = [f"## {title} {escape(entry['ref'])}"]
    if entry["sentence"]:
        lines += ["", escape(entry["sentence"])]
    return [*lines, "", f"Pods: {', '.join(code(pod) for pod in entry['pods'])}"]


def _nodes(nodes):
    """All nodes in one table, then each that isn't fine in full."""
    if not nodes:
        return []
    lines = ["", "## Nodes", "", *table(HEAD, [node["row"] for node in nodes])]
    for node in nodes:
        if node["state"] == "fine" and not node["findings"]:
            continue
        lines += [
            "",
            f"### Node {escape(node['name'])}: {STATE_WORDS[node['state']]}",
            "",
            escape(node["sentence"]),
        ]
        for finding in node["findings"]:
            lines += [
                "",
                f"#### {finding['severity'].capitalize()}: {escape(finding['means'] or finding['check'])}",
                "",
                escape(finding["sentence"]),
            ]
            for seen in finding["seen"]:
                lines += ["", f"{escape(seen['where'])}:", "", *block(seen["text"])]
            if finding["do"]:
                lines += [""]
            for number, change in enumerate(finding["do"], 1):
                lines += _change(change, f"{number}. ")
        if node["gpus"]:
            head = ("GPU", "name", "used GiB", "total GiB", "free GiB", "processes", "remarks")
            lines += ["", *table(head, node["gpus"])]
    return lines


def table(head, rows):
    """A table as lines, its cells escaped."""
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *[f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows],
    ]


def budget_tables(entry, level):
    """The tables and lists of one engine's budget (a ``budget_view.entry_view``), under headings of ``level``."""
    title = f"{level} Host memory" + (f", by {entry['host_by']}" if entry["host_by"] else "")
    lines = _budget_table(f"{level} {entry['gpu_title']}", entry["gpu"]) + _budget_table(title, entry["host"])
    for heading, texts in (
        ("Fits up to", entry["largest"]),
        ("Do this", [_change_words(item) for item in entry["do"]]),
        ("Don't do that", [_change_words(item) for item in entry["avoid"]]),
        ("Or use", entry["hardware"]),
        ("Contradictions", entry["contradictions"]),
        ("Not known", entry["undetermined"]),
        ("Assumed", entry["assumptions"]),
    ):
        lines += listed(f"{level} {heading}", [escape(text) for text in texts])
    return lines


def _change_words(change):
    together = f" together with {', '.join(change['with'])}" if change["with"] else ""
    return f"{change['what']}{together}" + (f": {change['why']}" if change["why"] else "")


def _budget_table(title, rows):
    if not rows:
        return []
    cells = [" | ".join(escape(cell) for cell in row) for row in rows]
    return ["", title, "", "| what | GiB | |", "| --- | ---: | --- |", *[f"| {row} |" for row in cells]]


def budgets(view):
    """The Markdown report of a ``budget_view.budget_view`` as text."""
    lines = ["# vLLM memory budget"]
    for entry in view["entries"]:
        lines += ["", f"## {escape(entry['ref'])}", "", escape(entry["title"]) + "."]
        lines += ["", f"**{escape(entry['sentence'])}**", *budget_tables(entry, "###")]
    return "\n".join(lines) + "\n"


def listed(title, items):
    """A list under its heading as lines, none without items; the items are Markdown already."""
    return ["", title, "", *[f"- {item}" for item in items]] if items else []


def _unreadable(entry):
    needs = f"; needs {escape(entry['needs'])}" if entry["needs"] else ""
    what = " ".join(part for part in (entry["source"], entry["object"]) if part)
    return f"- {code(what)}: {escape(entry['reason'])}{needs}"
