# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's own checks of an engine's container: memory limit, CPU limit, /dev/shm, unused room.

They hold for a healthy pod as for a failed one. A check that the settings alone decide is a risk; it becomes
a contributing finding where counters of this very container show the effect.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import show_bytes
from . import admission_checks, cpu_checks, headroom_checks, memory_checks, shm_checks
from .checked import Checked


def runbook_findings(pod, container, node=None, namespace=None):
    """The runbook's findings about one container (evidence shapes); none for a container that is no engine.

    node: the evidence's entry of the pod's node; namespace: of its namespace (quotas, limit_ranges); None if
    unknown.
    """
    if not container.get("engine"):
        return []
    seen = Checked(pod, container, node, namespace)
    found = []
    for check in (
        admission_checks.will_be_refused,
        memory_checks.memory_limit_missing,
        memory_checks.memory_limit_low,
        memory_checks.memory_ratio,
        cpu_checks.cpu_limit,
        shm_checks.shm_small,
        shm_checks.shm_counts,
        headroom_checks.headroom,
    ):
        found.extend(check(seen))
    return found


def runbook_notes(pod, container):
    """What the checks say that is no finding: a memory limit above the runbook's table. List of sentences."""
    seen = Checked(pod, container, None, None)
    if not container.get("engine") or seen.memory_limit is None or seen.host["by"] != "table":
        return []
    upper = max(seen.host["limit_bounds"][1], seen.host["limit_bytes"])
    if seen.memory_limit <= upper:
        return []
    return [
        f"The memory limit of {show_bytes(seen.memory_limit)} is above the {show_bytes(upper)} that a model "
        f"of {seen.parameters:g}B parameters needs by the runbook's table; the rest serves as page cache at "
        "most."
    ]
