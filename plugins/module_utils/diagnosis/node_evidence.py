# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes were looked at themselves (``gpu_node_info``), and not only their objects in the cluster.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import unreadable

# Fields that only a node itself can fill: a node that has one of them was looked at.
_OF_THE_NODE = ("driver", "gpus", "processes", "kernel_oom", "xids", "nvrm", "memory", "services", "limits")
# How many of the given nodes are named to show what their names look like.
_NAMED = 5


def names(evidence):
    """The names of the nodes that were to be looked at, whether or not anything could be read of them."""
    alone = (evidence.get("source") or {}).get("kind") == "node"
    return {name for name, node in (evidence.get("nodes") or {}).items() if alone or "reader" in node}


def not_given(pods, evidence, nodes):
    """Entries of ``unreadable`` for the nodes of ``pods`` that none of the documents ``nodes`` was about.

    evidence: the one that ``nodes`` were put into. A document under another name would be left aside without a word.
    """
    given = sorted({name for document in nodes or () for name in document.get("nodes") or {}})
    if not given:
        return []
    there = ", ".join(given[:_NAMED]) + (f" and {len(given) - _NAMED} more" if len(given) > _NAMED else "")
    known = names(evidence)
    return [
        unreadable("nodes", f"node {name}", f"no node document for {name}; there are {there}")
        for name in dict.fromkeys(pod["node"] for pod in pods if pod.get("node"))
        if name not in known
    ]


def was_looked_at(node):
    """Whether the node itself was looked at, and not only its object in the cluster."""
    return any(node.get(field) for field in _OF_THE_NODE)
