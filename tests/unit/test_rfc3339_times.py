# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RFC 3339 times as Kubernetes, the logs and log shippers write them, and durations as people do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.times import (
    parse_duration,
    parse_time,
    read_stamp,
)


@pytest.mark.parametrize(
    ("text", "expected", "fraction", "zoned"),
    [
        ("2026-11-30T06:50:01Z", (6, 50, 1, 0), "000000000", True),
        ("2026-11-30t06:50:01z", (6, 50, 1, 0), "000000000", True),
        ("2026-11-30T06:50:01.123456789Z", (6, 50, 1, 123456), "123456789", True),
        ("2026-11-30T06:50:01.1234567891Z", (6, 50, 1, 123456), "123456789", True),
        ("2026-11-30 06:50:01,5", (6, 50, 1, 500000), "500000000", False),
        ("2026-11-30T08:50:01+02:00", (6, 50, 1, 0), "000000000", True),
        ("2026-11-30 03:20:01 -0330", (6, 50, 1, 0), "000000000", True),
        (" 2026-11-30 06:50:01 ", (6, 50, 1, 0), "000000000", False),
    ],
)
def test_times(text, expected, fraction, zoned):
    found = parse_time(text)
    assert found.tzinfo == UTC
    assert (found.hour, found.minute, found.second, found.microsecond) == expected
    assert read_stamp(text)[1:] == (fraction, zoned)


@pytest.mark.parametrize(
    "text",
    [
        None,
        12,
        "",
        "yesterday",
        "11-30 06:50:01",
        "2026-13-40T99:00:00Z",
        "2026-11-30T06:50:60Z",
        "0001-01-01T00:00:00+01:00",
        "2026-11-30T06:50:01Z and more",
    ],
)
def test_what_is_no_time(text):
    assert (parse_time(text), read_stamp(text)) == (None, None)


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(min_value=-23 * 60, max_value=23 * 60),
)
def test_what_python_writes_comes_back(moment, offset):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    assert parse_time(moment.isoformat()) == moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86400), ("90m", 5400), ("1d12h", 129600), ("3600", 3600), ("1.5 h", 5400), (30, 30)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "24x", "h", "-3h"])
def test_what_is_no_duration(text):
    with pytest.raises(DocumentError, match="is no duration: give one such as 24h"):
        parse_duration(text)
