# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times of evidence made comparable."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import times


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:00:00Z", None),  # Kubernetes' "no time"
        ("1970-01-01T00:01:00.5Z", 60.5),
        ("1970-01-01T00:01:00,250Z", 60.25),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("1970-01-01T00:00:00-0001", 60.0),
        ("1970-01-01 00:01:00", 60.0),
        ("1970-01-01T00:01:00.123456789Z", 60.123456789),
        ("11-30 07:00:00", None),
        ("2026-13-40T00:00:00Z", None),
        ("", None),
        (None, None),
        (12, None),
    ],
)
def test_seconds(stamp, expected):
    assert times.seconds(stamp) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("started", "finished", "expected"),
    [
        ("2026-11-30T07:00:00Z", "2026-11-30T07:02:00Z", 120.0),
        ("2026-11-30T07:00:00Z", None, None),
        ("2026-11-30T07:02:00Z", "2026-11-30T07:00:00Z", None),
    ],
)
def test_lifetime(started, finished, expected):
    assert times.lifetime({"started_at": started, "finished_at": finished}) == expected


@pytest.mark.parametrize(("value", "shown"), [(40, "40 s"), (720, "12 min"), (12600, "3.5 h")])
def test_show_seconds(value, shown):
    assert times.show_seconds(value) == shown
