# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's "raise" column: room on the GPU that the requests don't use.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import change, log_lines, proof

_STEP_RAISE = "Raise: what the GPU has room for"

# The stats line of every engine and version (vllm-memory 4.7).
_STATS = re.compile(
    r"Running: (?P<running>\d+) reqs,.*?(?:Waiting|Pending): (?P<waiting>\d+) reqs,? .*?"
    r"\w+ KV cache usage: (?P<usage>[\d.]+)%"
)
_PREEMPTED = re.compile(r"Preemptions: [1-9]|Swapped: [1-9]")
_LOW_USE = 50.0
_MIN_SAMPLES = 3


def kv_usage(lines):
    """The stats lines among log ``lines`` as ``(running, waiting, usage in percent, line)``, in log order."""
    found = []
    for item in lines:
        match = _STATS.search(item["text"])
        if match:
            numbers = (int(match.group("running")), int(match.group("waiting")), float(match.group("usage")))
            found.append((*numbers, item))
    return found


def headroom(seen):
    """KV cache mostly empty under load and nobody waiting: only from measured stats lines, never a guess."""
    excerpt = seen.serving_log
    if excerpt is None:
        return []
    lines = log_lines(excerpt)
    samples = kv_usage(lines)
    busy = [item for item in samples if item[0] > 0]
    waits = any(item[1] > 0 for item in samples) or any(_PREEMPTED.search(item["text"]) for item in lines)
    if len(busy) < _MIN_SAMPLES or waits or max(item[2] for item in busy) >= _LOW_USE:
        return []
    running, _waiting, usage, line = max(busy, key=lambda item: item[2])
    changes = [
        change(
            "flag",
            "--max-num-batched-tokens",
            "increase",
            why="longer prompts are then read in fewer steps; it costs activation memory at start",
        )
    ]
    slots = seen.number("max_num_seqs")
    if slots and max(item[0] for item in busy) >= slots:
        changes.insert(
            0,
            change(
                "flag",
                "--max-num-seqs",
                "increase",
                why="all slots were taken while the KV cache was mostly empty",
            ),
        )
    return [
        seen.finding(
            "headroom_unused",
            "risk",
            "possible",
            [proof("log", seen.where, line["text"], line=line["line"], time=line.get("time"))],
            f"The busiest of {len(busy)} samples used {usage:g} % of the KV cache with {running} requests, "
            "and none was waiting. The card has room for more or longer requests than it gets.",
            _STEP_RAISE,
            recommend=changes,
            rejected=[
                change(
                    "flag",
                    "--gpu-memory-utilization",
                    "increase",
                    why="it would add KV cache, of which most is already unused",
                )
            ],
            would_settle=["vllm:kv_cache_usage_perc and vllm:num_requests_waiting over a busy day"],
        )
    ]
