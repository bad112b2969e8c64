# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes and quantities as they are printed, and as nobody prints them."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import (
    GIB,
    parse_size,
    quantity_bytes,
    quantity_cores,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64Gi", 64 * GIB),
        # As kubelet and metrics-server write every memory of theirs.
        ("24581684Ki", 24581684 * 1024),
        ("2k", 2000),
        ("1e3", 1000),
        (".5Gi", GIB // 2),
        ("2.", 2),
        ("100m", 1),
        (0, 0),
        ("1E", 10**18),
    ],
)
def test_a_quantity_in_bytes_is_rounded_up_as_the_api_server_does(text, size):
    assert quantity_bytes(text) == size


def test_a_quantity_in_cores():
    assert quantity_cores("1500m") == 1.5


@pytest.mark.parametrize(
    "text", [None, True, "", "64GiB", "1K", "1i", "1e999999999", "9" * 100_000 + "x", "x"]
)
def test_what_is_no_quantity_is_none(text):
    assert quantity_bytes(text) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("Tried to allocate 1.50 GiB.", GIB * 3 // 2), ("0 bytes", 0), ("-2 GiB", -2 * GIB), ("1.2.3 KB", 2300)],
)
def test_the_first_printed_size_of_a_text(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", [None, "", "12", "9" * 400 + " GiB", "1" * 100_000])
def test_a_text_without_a_size_is_none(text):
    assert parse_size(text) is None
