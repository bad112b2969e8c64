# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the ranks sit: one node with several GPUs before several nodes; tensor parallel within NVLink, pipeline across.

A tensor parallel group exchanges data in every layer, a pipeline stage once: the first belongs on the fastest links.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..engine.accelerators import devices
from .advice_parts import TENSOR_PARALLEL, flag_change, k8s_change

PIPELINE_PARALLEL = "--pipeline-parallel-size"


def _split(tensor, pipeline, why):
    """Fewer tensor parallel ranks and as many pipeline stages more, together: the product stays."""
    return [
        flag_change(TENSOR_PARALLEL, "decrease", why, tensor, with_=(PIPELINE_PARALLEL,)),
        flag_change(
            PIPELINE_PARALLEL, "increase", "the stages exchange little", pipeline, with_=(TENSOR_PARALLEL,)
        ),
    ]


def _fitting(size, ranks):
    """The largest divisor of ``ranks`` that is no larger than ``size``."""
    return max((part for part in range(1, min(size, ranks) + 1) if ranks % part == 0), default=1)


def _node_gpus(seen):
    return devices(seen.node.get("capacity") or {}) or 0


def _tensor_over_nodes(seen):
    tensor = seen.parallel("tensor")
    if not seen.gpus or tensor <= seen.gpus or seen.rack_scale:
        return None
    return f"--tensor-parallel-size {tensor}; {seen.gpus} GPUs in this pod"


def _within_the_pod(seen):
    inside = _fitting(seen.gpus, seen.parallel("tensor"))
    return _split(
        inside, seen.world // inside, "as many ranks as the pod has GPUs: the group stays on one node"
    )


def _one_node_would_do(seen):
    here = _node_gpus(seen)
    if not seen.over_nodes or here < seen.world or seen.rack_scale:
        return None
    return f"{seen.world} ranks over pods with {seen.gpus} GPUs each; this node has {here} GPUs"


def _one_pod(seen):
    return [
        k8s_change(
            "resources.limits."
            + next((name for name in seen.limits if name.endswith("/gpu")), "nvidia.com/gpu"),
            "increase",
            "one pod with all ranks needs no network between them",
            seen.world,
        )
    ]


def _tensor_group(seen):
    """The islands that the GPUs form, where the tensor parallel group is larger than the largest of them; else []."""
    islands = seen.islands
    if len(islands) < 2 or seen.parallel("tensor") <= max(len(group) for group in islands):
        return []
    return islands


def _tensor_across(seen):
    islands = _tensor_group(seen)
    if not islands:
        return None
    first, second = islands[0][0], islands[1][0]
    shown = " | ".join(", ".join(group) for group in islands)
    return f"--tensor-parallel-size {seen.parallel('tensor')} over {shown}; between {first} and {second}: {seen.link_between(first, second)}"


def _within_an_island(seen):
    inside = _fitting(max(len(group) for group in seen.islands), seen.parallel("tensor"))
    return _split(
        inside, seen.world // inside, "the group stays within the GPUs that are joined by the fastest links"
    )


# name, confidence, test, words, changes, shown_by: rows of ``nccl_checks.ROWS``.
ROWS = (
    (
        "tensor_over_nodes",
        "likely",
        _tensor_over_nodes,
        "A tensor parallel group that spans nodes sends every layer's results over the network. Keep it inside the node, and put "
        "pipeline stages across the nodes.",
        _within_the_pod,
        "spec",
    ),
    (
        "one_node_would_do",
        "possible",
        _one_node_would_do,
        "One node with several GPUs comes before several nodes: its GPUs reach each other without network, interfaces and RDMA "
        "limits.",
        _one_pod,
        "node",
    ),
    (
        "tensor_across_islands",
        "possible",
        _tensor_across,
        "The tensor parallel group spans GPUs that reach each other only through the host or across CPU sockets. Keep it within "
        "GPUs that share fast links, and put pipeline stages between them.",
        _within_an_island,
        "node",
    ),
)
