# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerators as Kubernetes counts them: the extended resources of device plugins.

Names: shared facts "workload-kinds", section 6.1; the sharing schedulers'
(HAMi, Volcano, Aliyun, Tencent, AWS) are those of their documentation.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..quantities import parse_quantity


class _Resource(NamedTuple):
    """One row: a pattern at the start of a resource's name, the accelerator's make, and what a quantity of it is:
    ``device``, ``part`` (MIG instances) or None (memory, cores, shares)."""

    pattern: re.Pattern[str]
    make: str
    unit: str | None


# The first row that matches counts, for a name and for a container that has several.
_RESOURCES = (
    _Resource(re.compile(r"nvidia\.com/(?:gpu|gpu\.shared)$"), "cuda", "device"),
    _Resource(re.compile(r"amd\.com/gpu$"), "rocm", "device"),
    _Resource(re.compile(r"google\.com/tpu$"), "tpu", "device"),
    _Resource(re.compile(r"habana\.ai/gaudi$"), "hpu", "device"),
    _Resource(re.compile(r"nvidia\.com/mig-"), "cuda", "part"),
    _Resource(re.compile(r"nvidia\.com/(?:gpu|gpumem|gpucores|vgpu)"), "cuda", None),
    _Resource(
        re.compile(r"aliyun\.com/gpu-|volcano\.sh/v?gpu-|tencent\.com/vcuda-|k8s\.amazonaws\.com/vgpu"),
        "cuda",
        None,
    ),
    _Resource(re.compile(r"amd\.com/gpu"), "rocm", None),
    _Resource(re.compile(r"google\.com/tpu"), "tpu", None),
    _Resource(re.compile(r"gpu\.intel\.com/"), "xpu", None),
    _Resource(re.compile(r"habana\.ai/gaudi"), "hpu", None),
    _Resource(re.compile(r"huawei\.com/Ascend"), "npu", None),
)


def make_of(quantities):
    """The make (cuda, rocm, tpu, xpu, hpu, npu) that a container's or node's ``{resource: quantity}`` has, or None."""
    for name in sorted(quantities):
        found = _row(name)
        if found and str(quantities[name]) != "0":
            return found.make
    return None


def devices(quantities, parts=False):
    """How many accelerators ``{resource: quantity}`` has, or None where no resource counts them.

    parts: whether MIG instances count too, each as one.
    """
    units = ("device", "part") if parts else ("device",)
    for row in _RESOURCES:
        for name, quantity in quantities.items():
            if row.unit in units and row.pattern.match(name):
                count = parse_quantity(quantity)
                if count is not None:
                    return int(count)
    return None


def _row(name):
    return next((row for row in _RESOURCES if row.pattern.match(name)), None)
