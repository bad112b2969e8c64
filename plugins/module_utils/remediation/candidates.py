# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a finding's mechanism allows to change, with computed values: from the budget, from the log, or by rule.

The diagnosis says which changes are right for a cause; the budget says how large they must be and which of them suffice.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..sizing.fit import is_small_offload
from . import costs
from .cases import OFFLOAD, Case, key_of
from .menu import menu_steps
from .recommended import recommended_steps


class Candidates(NamedTuple):
    """steps: what may be planned, in order; considered: ``[(CHANGE, why)]`` of what isn't."""

    steps: list
    considered: list


def candidates(finding, entry, pod, container, room):
    """The Candidates of one finding.

    entry: of the budget, of the finding's attempt, or None; pod, container: of the evidence; room: ``host_memory.Room``.
    """
    if finding["confidence"] == "possible":
        settle = "; ".join(finding["would_settle"]) or "nothing proves it yet"
        left = [(item, f"the cause is only possible: {settle}") for item in finding["recommend"]]
        return Candidates([], left)
    case = Case(finding, entry, pod, container, room)
    steps = menu_steps(case)
    steps += recommended_steps(case, {key_of(row) for step in steps for row in step.rows})
    return Candidates(sorted(steps, key=lambda step: _order(step, case.weights)), case.considered)


def _order(step, weights):
    """Singles before pairs, the cheapest first; hardware and what a person does last. weights: a GPU's, in bytes, or None.

    What is tried to find the fault is taken back afterwards, so that the most telling is tried first, as the diagnosis has it.
    """
    by_person = step.trial or any(row["target"] == "action" for row in step.rows)
    changed = [row for row in step.rows if row["target"] in ("flag", "env")]
    rank = 0 if step.trial else costs.rank(step.costs)
    return (by_person, _resort(step, weights), len(changed) > 1, rank)


def _resort(step, weights):
    """Offloaded weights cross the bus in each step: only where nothing else but hardware helps, and if they are many, only where
    that doesn't either."""
    for row in step.rows:
        if row["name"] == OFFLOAD:
            return 1 if is_small_offload(row["value"], weights) else 3
    return 2 if step.costs == "hardware" else 0
