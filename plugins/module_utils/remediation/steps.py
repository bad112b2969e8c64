# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes together in a plan, and the budget before it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """Changes that go together. rows: CHANGEs; costs: the dearest of what they take; proof: the counterfactual in words;
    before, after: the budget's, as ``after`` of its changes, or None; trial: whether it finds out more than it cures."""

    rows: tuple
    costs: str
    proof: str | None = None
    before: dict | None = None
    after: dict | None = None
    trial: bool = False


def before_of(entry):
    """The budget's entry as it is, under the names that ``after`` of its changes has."""
    kv = entry.get("kv") or {}
    return {
        "available_kv": entry.get("available_kv"),
        "fits": entry.get("fits"),
        "need_bytes": kv.get("need_bytes"),
        "estimated_max_len": kv.get("estimated_max_len"),
        "max_concurrency": kv.get("max_concurrency"),
        "outside": (entry.get("outside") or {}).get("margin"),
    }
