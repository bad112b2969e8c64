# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plain view of the nodes of a diagnosis that every report format shows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import NODE_STATES, DocumentError
from ..quantities import GIB
from .wording import change_view, clean

STATE_WORDS = {"bad": "bad", "warning": "warning", "unknown": "not known", "fine": "fine"}
# Enough to tell products apart.
_PRODUCT = 20
HEAD = ("node", "GPUs", "product", "driver", "used/total GiB", "state", "what is wrong")


def node_views(diagnosis):
    """The nodes of a diagnosis document, worst first: ``{name, state, row, sentence, findings, gpus}``; row: cells under ``HEAD``.

    Raises DocumentError for a node that can't be shown; the document may be a file edited by hand.
    """
    nodes = diagnosis.get("nodes") or []
    for node in nodes:
        if node.get("state") not in NODE_STATES or not node.get("name"):
            raise DocumentError(
                f"The report needs a name and a known state of every node, got {node.get('name')!r} with {node.get('state')!r}: "
                "make the diagnosis again from its evidence."
            )
    return [_node_view(node) for node in sorted(nodes, key=lambda item: NODE_STATES.index(item["state"]))]


def node_counts(diagnosis):
    """``{nodes, bad, warning, unknown, fine}``: how many nodes there are, and in which state."""
    states = [node.get("state") for node in diagnosis.get("nodes") or []]
    return dict({"nodes": len(states)}, **{state: states.count(state) for state in NODE_STATES})


def _node_view(node):
    gpus = node.get("gpus") or []
    return {
        "name": clean(node["name"]),
        "state": node["state"],
        "sentence": clean(node.get("sentence")),
        "product": clean(node.get("product")) or None,
        "row": (
            _cell(node["name"]),
            str(len(gpus)) if gpus else "-",
            _cell(node.get("product")).replace("NVIDIA ", "")[:_PRODUCT].strip() or "-",
            _cell(node.get("driver")) or "-",
            _used_of(node),
            STATE_WORDS[node["state"]],
            _wrong(node),
        ),
        "findings": [_finding_view(finding) for finding in node.get("findings") or []],
        "gpus": [_gpu_row(gpu) for gpu in gpus],
    }


def _wrong(node):
    """What is wrong with a node in one line; a sound one may still be one whose kernel log nobody could read."""
    unlogged = any(finding.get("check") == "kernel_log_unread" for finding in node.get("findings") or [])
    if node["state"] == "fine":
        return "kernel log not read" if unlogged else ""
    said = _cell(node.get("sentence"))
    # In front, because a table's cells are cut at their end.
    return f"kernel log not read; {said}" if unlogged and node["state"] != "bad" else said


def _cell(text):
    """Text of a table's cell: one line."""
    return " ".join(clean(text).split())


def _used_of(node):
    used, total = node.get("used"), node.get("total")
    if total is None:
        return "-"
    return f"{'?' if used is None else f'{used / GIB:.0f}'}/{total / GIB:.0f}"


def _finding_view(finding):
    return {
        "check": clean(finding.get("check")),
        "means": clean(finding.get("means")),
        "severity": clean(finding.get("severity")),
        "sentence": clean(finding.get("sentence")),
        "seen": [
            {
                "where": ", ".join(
                    clean(proof[key]) for key in ("source", "object", "time") if proof.get(key)
                ),
                "text": clean(proof.get("text")),
            }
            for proof in finding.get("evidence") or []
        ],
        "do": [change_view(change) for change in finding.get("recommend") or []],
    }


def _gpu_row(gpu):
    """``(index, name, used, total, free, processes, remarks)`` as text; sizes in GiB."""
    mig = (
        [f"MIG {', '.join(clean(profile) for profile in gpu['mig']) or 'without instances'}"]
        if gpu.get("mig") is not None
        else []
    )
    return (
        clean(gpu.get("index")),
        clean(gpu.get("name")),
        *(
            "-" if gpu.get(field) is None else f"{gpu[field] / GIB:.1f}"
            for field in ("used", "total", "free")
        ),
        clean(gpu.get("processes")),
        "; ".join(mig + [clean(text) for text in gpu.get("wrong") or []]),
    )
