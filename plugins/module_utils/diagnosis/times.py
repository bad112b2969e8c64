# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times as evidence carries them, made comparable.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..times import read_stamp


def seconds(stamp):
    """Seconds since 1970 (float) of an RFC 3339 time, or None.

    A stamp without a year (vLLM's own ``11-30 07:00:00``) gives None: it can't be ordered against another
    clock.
    """
    found = read_stamp(stamp)
    total = found.moment.timestamp() + float(f"0.{found.fraction}") if found else 0.0
    return total or None  # 1970-01-01T00:00:00Z is how Kubernetes writes "no time"


_OWN_STAMP = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")


def apart(earlier, later):
    """Seconds between two stamps of one log, both RFC 3339 or both vLLM's own (no year), or None; never negative."""
    first, last = seconds(earlier), seconds(later)
    if first is None and last is None:
        first, last = _in_some_year(earlier), _in_some_year(later)
    if first is None or last is None:
        return None
    return last - first if last >= first else None


def _in_some_year(stamp):
    match = _OWN_STAMP.match(stamp) if isinstance(stamp, str) else None
    return (
        seconds(f"2024-{match.group(1)}-{match.group(2)} {':'.join(match.groups()[2:])}") if match else None
    )


def lifetime(attempt):
    """How long an attempt ran, in seconds, or None if a time is missing."""
    started, finished = seconds(attempt.get("started_at")), seconds(attempt.get("finished_at"))
    if started is None or finished is None or finished < started:
        return None
    return finished - started


def show_seconds(value):
    """``value`` seconds for a person: ``40 s``, ``12 min``, ``3.5 h``."""
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
