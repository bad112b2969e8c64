# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes were looked at themselves (``gpu_node_info``), and not only their objects in the cluster.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

# Fields that only a node itself can fill: a node that has one of them was looked at.
_OF_THE_NODE = ("driver", "gpus", "processes", "kernel_oom", "xids", "nvrm", "memory", "services", "limits")


def names(evidence):
    """The names of the nodes that were to be looked at, whether or not anything could be read of them."""
    alone = (evidence.get("source") or {}).get("kind") == "node"
    return {name for name, node in (evidence.get("nodes") or {}).items() if alone or "reader" in node}


def was_looked_at(node):
    """Whether the node itself was looked at, and not only its object in the cluster."""
    return any(node.get(field) for field in _OF_THE_NODE)
