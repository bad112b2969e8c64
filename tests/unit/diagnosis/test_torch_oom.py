# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading PyTorch's out-of-memory text, on real lines of public reports (facts "vllm-memory" 10.1)."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.torch_oom import (
    fragmented,
    held_by_others,
    outside_allocator,
    parse_oom,
    refused_with_room,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB

# vllm-project/vllm#14452, #29049, #31273 and #751
OWN = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU 0 has a total capacity of 15.48 GiB of which "
    "953.94 MiB is free. Including non-PyTorch memory, this process has 14.53 GiB memory in use. Of the allocated memory 12.19 GiB "
    "is allocated by PyTorch, with 81.88 MiB allocated in private pools (e.g., CUDA Graphs), and 368.65 MiB is reserved by PyTorch "
    "but unallocated."
)
ZERO_OWN = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.47 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.25 "
    "GiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory 70.03 GiB is "
    "allocated by PyTorch, with 340.00 MiB allocated in private pools (e.g., CUDA Graphs), and 331.08 MiB is reserved by PyTorch "
    "but unallocated."
)
HOST_PID = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB. GPU 0 has a total capacity of 139.72 GiB of which "
    "60.69 MiB is free. Process 691170 has 139.65 GiB memory in use. Of the allocated memory 139.21 GiB is allocated by PyTorch, "
    "and 12.81 MiB is reserved by PyTorch but unallocated."
)
TWO = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacty of 79.11 GiB of which "
    "391.12 MiB is free. Process 247 has 50.52 GiB memory in use. Process 477 has 28.19 GiB memory in use. Of the allocated memory "
    "27.48 GiB is allocated by PyTorch, and 1.98 MiB is reserved by PyTorch but unallocated."
)


def test_every_number_is_read():
    oom = parse_oom(OWN)
    assert oom["tried"] == round(1.74 * GIB)
    assert oom["total"] == round(15.48 * GIB)
    assert oom["free"] == round(953.94 * MIB)
    assert oom["own"] == round(14.53 * GIB)
    assert oom["allocated"] == round(12.19 * GIB)
    assert oom["pools"] == round(81.88 * MIB)
    assert oom["reserved"] == round(368.65 * MIB)
    assert oom["processes"] == []


def test_a_text_without_numbers_gives_none():
    assert parse_oom("torch.OutOfMemoryError: CUDA out of memory.") is None


@pytest.mark.parametrize(
    ("text", "foreign_gib"),
    [
        (OWN, 15.48 - 953.94 / 1024 - 14.53),
        (HOST_PID, 0.0),  # one process that can hold what PyTorch holds is our own under its host pid
        (TWO, 50.52),  # the smallest process that can hold 27.48 GiB is ours
    ],
)
def test_memory_of_other_processes(text, foreign_gib):
    assert held_by_others(parse_oom(text)) / GIB == pytest.approx(foreign_gib, abs=0.02)


def test_small_contexts_beside_ours_are_no_tenants():
    text = (
        "CUDA out of memory. Tried to allocate 1.71 GiB. GPU 0 has a total capacity of 22.30 GiB of which 1.52 GiB is free. Process "
        "291 has 248.00 MiB memory in use. Process 529 has 248.00 MiB memory in use. Process 519 has 20.28 GiB memory in use. Of the "
        "allocated memory 19.55 GiB is allocated by PyTorch, and 244.94 MiB is reserved by PyTorch but unallocated."
    )
    assert held_by_others(parse_oom(text)) == 0


def test_zero_bytes_in_use_says_nothing_about_others():
    assert held_by_others(parse_oom(ZERO_OWN)) is None


def test_an_impossible_own_size_is_dropped():
    text = OWN.replace("this process has 14.53 GiB", "this process has 17179869184.00 GiB")
    assert parse_oom(text)["own"] is None


def test_memory_outside_the_allocator():
    assert outside_allocator(parse_oom(OWN)) / GIB == pytest.approx(14.53 - 12.19 - 368.65 / 1024, abs=0.01)
    assert outside_allocator(parse_oom(TWO)) is None


@pytest.mark.parametrize(
    ("tried", "reserved", "total", "expected"),
    [
        (816 * MIB, 2.53 * GIB, 61.35 * GIB, True),
        (64 * MIB, 92 * MIB, 15.98 * GIB, False),  # enough, but no notable share of the card
        (1.74 * GIB, 0.2 * GIB, 24 * GIB, False),  # could not have served the request
        (816 * MIB, None, 61.35 * GIB, False),
    ],
)
def test_fragmentation_needs_enough_and_a_notable_share(tried, reserved, total, expected):
    assert fragmented({"tried": tried, "reserved": reserved, "total": total}) is expected


def test_refusal_with_room():
    assert refused_with_room({"tried": 2 * MIB, "free": 11 * GIB})
    assert not refused_with_room({"tried": 2 * GIB, "free": 3 * GIB})
    assert not refused_with_room({"tried": 2 * MIB, "free": 60 * MIB})


ALONE_IN_LIST = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which "
    "566.00 MiB is free. Process {pid} has {used} GiB memory in use. Of the allocated memory 12.09 GiB is allocated by PyTorch, "
    "and 20.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("used", "foreign_gib"),
    [
        ("12.62", 79.18 - 566 / 1024 - 12.62),
        ("40.00", 0.0),  # far above what PyTorch holds: whose the rest is can't be told
    ],
)
def test_one_listed_process_of_our_size_is_ours_and_the_rest_somebody_elses(used, foreign_gib):
    text = ALONE_IN_LIST.format(pid=4711, used=used)
    assert held_by_others(parse_oom(text)) / GIB == pytest.approx(foreign_gib, abs=0.02)
