# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RFC 3339 times as Kubernetes and log shippers write them, and durations as people write them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from .documents import DocumentError

# Also with a blank instead of T, a comma before the fraction, and no zone.
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](?P<fraction>\d+))?"
    r"\s*(?:(?P<utc>[Zz])|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))?",
    re.ASCII,
)


class Stamp(NamedTuple):
    """moment: UTC, whole seconds; fraction: of a second, always nine digits; zoned: whether a zone was written."""

    moment: datetime
    fraction: str
    zoned: bool


def read_stamp(text):
    """The Stamp of an RFC 3339 time, or None if ``text`` isn't one. A time without a zone is taken as UTC."""
    match = _RFC3339.fullmatch(text.strip()) if isinstance(text, str) else None
    if not match:
        return None
    offset = timedelta(hours=int(match.group("hours") or 0), minutes=int(match.group("minutes") or 0))
    try:
        year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        moment = moment + offset if match.group("sign") == "-" else moment - offset
    except (ValueError, OverflowError):
        return None
    fraction = (match.group("fraction") or "")[:9].ljust(9, "0")
    zoned = bool(match.group("utc") or match.group("sign"))
    return Stamp(moment, fraction, zoned)


def parse_time(text):
    """An RFC 3339 time as an aware datetime in UTC, or None if it isn't one. Nanoseconds are cut to microseconds."""
    stamp = read_stamp(text)
    return stamp.moment.replace(microsecond=int(stamp.fraction[:6])) if stamp else None


_DURATION_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def parse_duration(text):
    """A duration such as ``24h``, ``90m``, ``1d12h`` or plain seconds, in seconds. Raises DocumentError."""
    given = str(text).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhdw])", given)
    if not parts or re.sub(r"\d+(\.\d+)?\s*[smhdw]|\s", "", given):
        raise DocumentError(
            f"since: {text!r} is no duration: give one such as 24h, 90m, 1d12h or a number of seconds"
        )
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
