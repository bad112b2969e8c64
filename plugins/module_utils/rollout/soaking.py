# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which causes come back only after a while of serving, so that a start and an answer prove nothing.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..diagnosis.causes import NATURE

# Those that usually happen in serving, and those that come with time whatever the phase was.
SERVING_TIME = frozenset(
    {cause for cause, nature in NATURE.items() if nature.phase == "serving" and cause != "headroom_unused"}
    | {"gpu_fragmentation", "node_oom", "nccl_not_memory", "not_memory_hang", "sigkill_unattributed"}
)


def needs_soak(causes):
    """Whether one of the causes is proven gone only by a time without a new death."""
    return any(cause in SERVING_TIME for cause in causes)
