# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extended resources of accelerators: their make, and how many devices they stand for."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.accelerators import devices, make_of


@pytest.mark.parametrize(
    ("quantities", "make", "whole", "with_parts"),
    [
        ({"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}, "cuda", 4, 4),
        ({"nvidia.com/gpu.shared": "2"}, "cuda", 2, 2),
        ({"nvidia.com/mig-3g.40gb": "1"}, "cuda", None, 1),
        # amounts of memory or cores are no devices
        ({"nvidia.com/gpumem": "24000", "nvidia.com/gpu": 1}, "cuda", 1, 1),
        ({"nvidia.com/gpumem": "24000"}, "cuda", None, None),
        ({"volcano.sh/vgpu-memory": "24000"}, "cuda", None, None),
        ({"aliyun.com/gpu-mem": "24"}, "cuda", None, None),
        ({"amd.com/gpu": "8"}, "rocm", 8, 8),
        ({"google.com/tpu": "4"}, "tpu", 4, 4),
        ({"habana.ai/gaudi": "8"}, "hpu", 8, 8),
        ({"gpu.intel.com/i915": "1"}, "xpu", None, None),
        ({"huawei.com/Ascend910": "8"}, "npu", None, None),
        ({"nvidia.com/gpu": "0"}, None, 0, 0),
        ({"nvidia.com/gpu": "many"}, "cuda", None, None),
        ({"cpu": "8", "rdma/hca": "1"}, None, None, None),
        ({}, None, None, None),
    ],
)
def test_make_and_devices(quantities, make, whole, with_parts):
    assert make_of(quantities) == make
    assert devices(quantities) == whole
    assert devices(quantities, parts=True) == with_parts
