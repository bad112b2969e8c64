# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would have been: the sentence that proves a planned change by the numbers of the attempt that failed.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..diagnosis.budgeted import BESIDE
from ..quantities import show_bytes


def _attempt(entry):
    index = (entry.get("subject") or {}).get("attempt")
    if index is None:
        return "a start"
    return "the first attempt" if index == 0 else f"attempt {index + 1}"


def of_row(entry, row, cause):
    """Of a change that the budget recomputed."""
    after, capacity = row["after"], entry.get("capacity") or {}
    start = f"with {'these changes' if row['with'] else 'this change'} {_attempt(entry)} would have"
    if cause == "gpu_free_below_util" and None not in (
        capacity.get("free"),
        capacity.get("total"),
        row["value"],
    ):
        asked = int(row["value"] * capacity["total"])
        return f"{start} asked for {show_bytes(asked)} of the {show_bytes(capacity['free'])} that were free"
    kv = _kv(after)
    if cause in BESIDE and after.get("outside") is not None:
        return (
            f"{start} had {show_bytes(after['outside'])} left beside the budget{', and ' + kv if kv else ''}"
        )
    return f"{start} had {kv}" if kv else row["why"]


def _kv(after):
    available, need = after.get("available_kv"), after.get("need_bytes")
    if available is None:
        return None
    if need is None:
        return f"{show_bytes(available)} for the KV cache"
    return (
        f"{show_bytes(available)} for the KV cache, {show_bytes(available - need)} more than the {show_bytes(need)} that one request of "
        "full length needs"
    )


def of_host(entry, limit, before, cause):
    """Of another memory limit: what was needed where that tells it, else what the limit follows from."""
    need = entry["host"]["need_bytes"]
    if before is not None and need <= before and cause.startswith("host_oom"):
        return (
            f"{_attempt(entry)} was killed at a limit of {show_bytes(before)}, so it needs more than that; with this change it would "
            f"have had {show_bytes(limit - before)} more: {entry['host']['words']}"
        )
    was = "no limit" if before is None else f"a limit of {show_bytes(before)}"
    return (
        f"{_attempt(entry)} ran with {was} and needs {show_bytes(need)} that can't be reclaimed; with this limit it would have had "
        f"{show_bytes(limit - need)} left"
    )


def of_node(entry, before, asked):
    """Of another memory request, where the node's memory ran out."""
    reserved = "nothing" if before is None else show_bytes(before)
    return (
        f"{_attempt(entry)} had {reserved} of the node's memory reserved and needs {show_bytes(entry['host']['need_bytes'])} that can't "
        f"be reclaimed; with this request it is placed only where {show_bytes(asked)} are left for it"
    )


def of_utilization(entry, missing, left, need):
    """Of a lower utilization for memory that was missing beside the budget."""
    return (
        f"with this change {_attempt(entry)} would have had {show_bytes(missing)} more beside the budget, what was missing and room for "
        f"workspaces, and {show_bytes(left)} for a KV cache that needs {show_bytes(need)}"
    )
