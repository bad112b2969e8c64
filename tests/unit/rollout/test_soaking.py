# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which causes need a time without deaths."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import CAUSES
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import soaking


@pytest.mark.parametrize(
    "cause", ["serving_gpu_oom", "serving_gpu_growth", "host_oom_growth", "gpu_fragmentation"]
)
def test_what_comes_with_serving_needs_it(cause):
    assert soaking.needs_soak(["kv_max_len", cause])


def test_what_ends_a_start_does_not():
    starts = ["gpu_weights_oom", "kv_no_blocks", "kv_max_len", "profile_run_oom", "cudagraph_capture_oom", "host_oom_load",
              "shm_exhausted", "nccl_gpu_oom", "gpu_free_below_util", "headroom_unused"]  # fmt: skip
    assert not soaking.needs_soak(starts)
    assert not soaking.needs_soak([])


def test_it_names_causes_only():
    assert not soaking.SERVING_TIME - set(CAUSES)
