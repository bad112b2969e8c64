# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes say of themselves (``gpu_node_info``) put beside what the cluster says of them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import EVIDENCE_SCHEMA, DocumentError, require
from .proc_files import pod_of


def with_nodes(evidence, nodes):
    """The evidence document with the nodes of other evidence documents in it; the given ones stay as they are.

    nodes: evidence documents of ``gpu_node_info``. A node goes by its name; where no pod runs on a node of that name, but its
    processes belong to a pod that was seen, by that pod's node. Counters of a container's cgroup go to its running attempt, where
    the pod itself didn't give them. A node that was to be read itself has a ``reader``, an empty one where that
    failed. Raises DocumentError when one of ``nodes`` is another document.
    """
    if not nodes:
        return evidence
    if not isinstance(nodes, list):
        raise DocumentError(
            f"the diagnosis' nodes must be a list of evidence documents, got {type(nodes).__name__}"
        )
    merged = dict(evidence, nodes=dict(evidence.get("nodes") or {}))
    merged["unreadable"] = list(evidence.get("unreadable") or [])
    for document in nodes:
        require(document, EVIDENCE_SCHEMA, "the diagnosis' nodes")
        for name, seen in (document.get("nodes") or {}).items():
            known = name_in_cluster(name, seen, evidence.get("pods") or [])
            merged["nodes"][known] = dict({"reader": {}}, **_joined(merged["nodes"].get(known) or {}, seen))
        merged["unreadable"] += [
            item for item in document.get("unreadable") or [] if item not in merged["unreadable"]
        ]
    merged["pods"] = [_with_counters(pod, merged["nodes"]) for pod in evidence.get("pods") or []]
    return merged


def pod_uids(node):
    """The uids of the pods that the node's processes and kernel lines name."""
    uids = {item.get("pod_uid") for item in node.get("processes") or []}
    for line in node.get("kernel_oom") or []:
        uids.add(pod_of(line if isinstance(line, str) else line.get("text"))[0])
    return uids - {None}


def name_in_cluster(name, seen, pods):
    """The node's name as the cluster has it: an inventory may call its hosts otherwise."""
    if any(pod.get("node") == name for pod in pods):
        return name
    uids = pod_uids(seen)
    placed = {pod["node"] for pod in pods if pod.get("node") and pod.get("uid") in uids}
    return placed.pop() if len(placed) == 1 else name


def _joined(known, seen):
    """One node of two descriptions; what the second one says counts, where it says something."""
    merged = dict(known)
    for field, value in seen.items():
        before = merged.get(field)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[field] = _joined(before, value)
        elif field in ("kernel_oom", "events", "conditions") and before:
            merged[field] = before + [item for item in value or [] if item not in before]
        elif value not in (None, [], {}) or field not in merged:
            merged[field] = value
    return merged


def _with_counters(pod, nodes):
    counters = (nodes.get(pod.get("node") or "") or {}).get("cgroups") or {}
    if not counters:
        return pod
    return dict(
        pod,
        containers=[
            dict(
                container,
                attempts=[_counted(attempt, counters) for attempt in container.get("attempts") or []],
            )
            for container in pod.get("containers") or []
        ],
    )


def _counted(attempt, counters):
    """The attempt with its cgroup's counters: those of a run that has ended are gone with it."""
    own = counters.get(attempt.get("container_id") or "")
    return dict(attempt, cgroup=own) if own and attempt.get("cgroup") is None else attempt
