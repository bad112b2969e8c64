# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change makes worse, in sentences: no plan makes another risk worse unsaid.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .costs import over_the_bus
from .delivery import later_reverts

_WAITS = "a new pod may wait for GPUs that an old one holds until that is deleted: how its controller replaces pods isn't known"


def side_effects(item, pod, extra_gpus):
    """Sentences on a CHANGE (with action, before, after) of the evidence's ``pod``.

    extra_gpus: that its rollout takes, None where that isn't known.
    """
    found = _of_change(item, pod) + later_reverts(pod)
    return found + ([_WAITS] if extra_gpus is None else [])


def _of_change(item, pod):
    found = []
    if (
        pod.get("qos") == "Guaranteed"
        and item["name"].startswith("resources.limits.")
        and item["action"] == "remove"
    ):
        found.append(
            "the pod is no longer Guaranteed: it loses exclusive CPUs under the static CPU manager and is evicted before those that are"
        )
    if item["name"] == "resources.limits.memory" and item["before"] is None and item["action"] == "set":
        found.append(
            "without a limit the container could use the node's memory; with it, it is killed at the limit"
        )
    if item["name"] == "--gpu-memory-utilization" and item["direction"] == "increase":
        found.append("less memory is left beside the budget for graphs, NCCL and workspaces")
    if item["name"] == "--cpu-offload-gb" and item["direction"] in ("set", "increase"):
        found.append("the weights that move take pinned host memory")
        found.append(over_the_bus(item["after"]))
    if item["name"] in ("volumes.shm", "volumes.shm.sizeLimit"):
        found.append("what is written to /dev/shm counts against the memory limit")
    if item["target"] == "k8s" and item["name"].startswith("startupProbe"):
        found.append("a start that hangs is found later")
    return found
