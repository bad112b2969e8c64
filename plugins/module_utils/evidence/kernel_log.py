# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log: reports of the OOM killer, Xids and other lines of the GPU driver, kept within bounds.

Read are ``journalctl -o json``, ``short-iso`` and its default, ``dmesg`` plain, with ``-T`` (in UTC) and with ``--time-format iso``, and records
of /dev/kmsg; which of them a line is, the line shows. The texts: shared facts "kubernetes-gpu-facts", section 3.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import calendar
import collections
import json
import re
from datetime import datetime, timezone

from ..times import read_stamp
from .nvidia_smi import normal_bus_id

# Bounds of what is kept, in characters and entries. A report of the OOM killer takes about 2,000 characters.
_OOM_TEXT = 20_000
_LINE = 1_000
_REPORT_LINES = 40
_REPORT_RECORDS = 2_000  # a table of tasks may be long
_TASKS = 5
_REPORTS = 200
_DRIVER_LINE = 300
_XIDS = 60
_XIDS_ALIKE = 3
_NVRM = 30

_SHORT_ISO = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) (?:\S+ kernel: )?(?P<text>.*)"
)
_CTIME = re.compile(
    r"\[\w{3} (?P<month>\w{3}) +(?P<day>\d+) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d) (?P<year>\d{4})\] ?(?P<text>.*)"
)
_SINCE_BOOT = re.compile(r"(?:<\d+>)?\[ *(?P<seconds>\d+\.\d+)\](?:\[ *[TC]\d+\])? ?(?P<text>.*)")
_SYSLOG = re.compile(r"\w{3} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? \S+ kernel: (?:\[ *\d+\.\d+\] )?(?P<text>.*)")
_KMSG = re.compile(r"\d+,\d+,(?P<microseconds>\d+),[^;]*;(?P<text>.*)")
_DECODED = re.compile(r"[a-z]+ *:[a-z]+ *: ")  # dmesg -x: "kern  :warn  : "
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}

_INVOKED = " invoked oom-killer: "
_OOM_KILL = "oom-kill:constraint="
_KILLED = re.compile(r"Kill(?:ed)? process \d+")
_OLD_CONTEXT = " killed as a result of limit of "
_USAGE = re.compile(r"(?:memory|swap|memory\+swap|kmem): usage \d+kB, limit \d+kB")
_STATS_OF = "Memory cgroup stats for "
# Of version 1's statistics the hierarchical ones count: the processes live in the cgroups below.
_STAT = re.compile(r"(?P<own>anon|file|shmem) \d+|total_(?:rss|cache|shmem) \d+")
_TASKS_OF = "Tasks state (memory values in pages)"
_TASK_HEADER = re.compile(r"\[ *pid *\] +uid +tgid total_vm +rss ")
_TASK = re.compile(r"\[ *\d+\] +\d+ +\d+ +\d+ +(?P<rss>\d+) ")
_AFTERMATH = ("memory.oom.group set", "oom_reaper: ")

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)\b")
_XID_PID = re.compile(r"""\bpid=["']?(?P<pid>\d+)""")
_DRIVER = ("NVRM: ", "SXid (")

# One of these is in every line that begins something: a cheap test before a line is taken apart. A message that isn't UTF-8
# stands in journalctl's JSON as a list of numbers.
_HINTS = (
    "oom-kill", "Kill process", "Killed process", _OLD_CONTEXT, "NVRM", "SXid", '"MESSAGE":[', '"MESSAGE" : [',
)  # fmt: skip


def read_kernel_log(lines, since=None, booted=None, mask=str):
    """``{kernel_oom, xids, nvrm, left_out}`` of the lines (str) of a kernel log, the oldest first.

    since: seconds since 1970 before which a line doesn't count (one without a time does); booted: when the machine started, which
    plain dmesg and /dev/kmsg count from; mask: what takes secrets out of a text. kernel_oom: ``[{time, text}]``, whole reports
    without stack and registers, with the five largest tasks; xids: ``[{time, code, bus_id, pid, text, count}]``, bus_id as
    nvidia-smi prints it, count: how many of this code on this GPU; nvrm: ``[{time, text, count}]``, other lines of the driver, alike
    ones once; left_out: sentences about the driver's lines that the bounds have cut.
    """
    oom, driver = _OomReports(mask), _DriverLines(mask)
    time = None
    for line in lines:
        if not oom.is_open and not any(hint in line for hint in _HINTS):
            time = None
            continue
        time, texts = _record(line, time, booted)
        if since is not None and time is not None and time < since:
            continue
        for text in texts:
            if not driver.take(time, text):
                oom.take(time, text)
    return dict({"kernel_oom": oom.kept(), "left_out": driver.left_out()}, **driver.kept())


def _record(line, previous, booted):
    """``(seconds since 1970 or None, [texts])`` of one line; one without a prefix goes on from the record before."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        return _journal_record(line)
    if line[:1].isdigit():
        found = _KMSG.match(line)
        if found:
            text = _ESCAPE.sub(lambda code: chr(int(code.group(1), 16)), found.group("text"))
            return _after(booted, int(found.group("microseconds")) / 1e6), text.splitlines()
        found = _SHORT_ISO.match(line)
        if found:
            stamp = read_stamp(found.group("stamp"))
            time = stamp.moment.timestamp() + float("0." + stamp.fraction) if stamp else None
            return time, [found.group("text")]
    found = _DECODED.match(line)
    line = line[found.end() :] if found else line
    found = _SINCE_BOOT.match(line)
    if found:
        return _after(booted, float(found.group("seconds"))), [found.group("text")]
    found = _CTIME.match(line)
    if found and found.group("month") in _MONTHS:
        fields = [int(found.group(name)) for name in ("day", "hour", "minute", "second")]
        return _utc(int(found.group("year")), _MONTHS[found.group("month")], *fields), [found.group("text")]
    found = _SYSLOG.match(line)
    if found:  # such a stamp has no year
        return None, [found.group("text")]
    return previous, [line.strip()]


def _journal_record(line):
    try:
        record = json.loads(line)
    except ValueError:
        return None, []
    message = record.get("MESSAGE")
    if isinstance(message, list):
        message = bytes(code & 255 for code in message if isinstance(code, int)).decode("utf-8", "replace")
    time = _microseconds(record, "__REALTIME_TIMESTAMP")
    # journald stamps what it receives, late on a node without memory, and all of a boot at once where it started late.
    source = _microseconds(record, "_SOURCE_MONOTONIC_TIMESTAMP")
    received = _microseconds(record, "__MONOTONIC_TIMESTAMP")
    if None not in (time, source, received):
        time -= received - source
    return time, message.splitlines() if isinstance(message, str) else []


def _microseconds(record, field):
    """A time of the journal in seconds, or None."""
    value = record.get(field)
    return int(value) / 1e6 if isinstance(value, str) and value.isdecimal() else None


def _after(booted, seconds):
    return None if booted is None else booted + seconds


def _utc(year, month, day, hour, minute, second):
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _stamp(time):
    """RFC 3339 in UTC with milliseconds, or None."""
    try:
        moment = datetime.fromtimestamp(time, timezone.utc)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _OomReports:
    """Takes the lines of a kernel log in order and keeps those of the OOM killer's reports."""

    def __init__(self, mask):
        self._mask = mask
        self._reports: collections.deque[list] = collections.deque(maxlen=_REPORTS)
        self._open = None
        self._records = 0

    @property
    def is_open(self):
        """Whether a report is being read, so that a line of any look may belong to it."""
        return self._open is not None

    def take(self, time, text):
        if self._begins(text):
            if self._open:
                self._open[:] = _whole(self._open)
            self._open, self._records = [], 0
            self._reports.append(self._open)
        if self._open is None:
            return
        self._records += 1
        if self._records > _REPORT_RECORDS:
            self._open = None
        elif _belongs(text):
            self._open.append((time, text))

    def _begins(self, text):
        if _INVOKED in text:
            return True
        if self._open is None:
            return _OOM_KILL in text or _OLD_CONTEXT in text or bool(_KILLED.search(text))
        settled = any(_OOM_KILL in line or _KILLED.search(line) for _time, line in self._open)
        return settled and (_OOM_KILL in text or _OLD_CONTEXT in text)

    def kept(self):
        """``[{time, text}]``. The newest reports are whole, older ones the two lines that name limit and victim."""
        chosen, length = [], 0
        for report in reversed(self._reports):
            lines = _whole(report)
            if length + _length(lines) > _OOM_TEXT * 3 // 4:
                lines = _in_short(report)
                if length + _length(lines) > _OOM_TEXT:
                    continue
            length += _length(lines)
            chosen.append(lines)
        return [
            {"time": _stamp(time), "text": self._mask(text[:_LINE])}
            for report in reversed(chosen)
            for time, text in report
        ]


def _belongs(text):
    return bool(
        _INVOKED in text
        or _OOM_KILL in text
        or _OLD_CONTEXT in text
        or text.startswith((_STATS_OF, _TASKS_OF))
        or any(part in text for part in _AFTERMATH)
        or _USAGE.match(text)
        or _STAT.fullmatch(text)
        or _TASK_HEADER.match(text)
        or _TASK.match(text)
        or _KILLED.search(text)
    )


def _whole(report):
    """The report's lines: of the tasks the largest, of version 1's statistics the hierarchical ones."""
    version_1 = any(text.startswith("total_") for _time, text in report)
    tasks = [match for match in (_TASK.match(text) for _time, text in report) if match]
    largest = {match.string for match in sorted(tasks, key=lambda match: -int(match.group("rss")))[:_TASKS]}
    lines = []
    for time, text in report:
        stat = _STAT.fullmatch(text)
        if (stat and version_1 and stat.group("own")) or (_TASK.match(text) and text not in largest):
            continue
        lines.append((time, text))
    return lines[:_REPORT_LINES]


def _in_short(report):
    kill = [line for line in report if _OOM_KILL in line[1] or _OLD_CONTEXT in line[1]][:1]
    return kill + [line for line in report if _KILLED.search(line[1])][:1]


def _length(lines):
    return sum(min(len(text), _LINE) for _time, text in lines)


class _DriverLines:
    """Takes the lines of a kernel log in order and keeps what NVIDIA's driver says."""

    def __init__(self, mask):
        self._mask = mask
        self._taken = self._dropped = 0
        self._xids = {}
        self._other = {}

    def take(self, time, text):
        """True if it was a line of the driver."""
        xid = _XID.search(text)
        if not xid and not any(mark in text for mark in _DRIVER):
            return False
        self._taken += 1
        entry = {"time": _stamp(time), "text": self._mask(text.strip()[:_DRIVER_LINE])}
        if xid:
            pid = _XID_PID.search(text, xid.end())
            entry.update(
                code=int(xid.group("code")),
                bus_id=normal_bus_id(xid.group("bus")),
                pid=int(pid.group("pid")) if pid else None,
            )
            # A storm of one code must not push out another: the first of each code and GPU, and the last ones.
            alike = self._xids.setdefault((entry["code"], entry["bus_id"]), _Alike())
            alike.take(self._taken, entry)
        else:
            alike = self._other.setdefault(entry["text"], _Alike())
            alike.take(self._taken, entry)
            if len(self._other) > 10 * _NVRM:
                self._other.pop(next(iter(self._other)))
                self._dropped += 1
        return True

    def kept(self):
        xids = sorted((place, entry) for alike in self._xids.values() for place, entry in alike.entries())
        other = sorted(alike.entries()[-1] for alike in self._other.values())
        return {
            "xids": [entry for _place, entry in xids[-_XIDS:]],
            "nvrm": [entry for _place, entry in other[-_NVRM:]],
        }

    def left_out(self):
        cut = self._dropped + max(0, len(self._other) - _NVRM)
        return [f"{cut} earlier lines of the GPU driver are left out"] if cut else []


class _Alike:
    """The first and the last of entries that are alike."""

    def __init__(self):
        self._kept: dict[int, dict] = {}
        self._count = 0

    def take(self, place, entry):
        self._count += 1
        self._kept[place] = entry
        if len(self._kept) > 1 + _XIDS_ALIKE:
            del self._kept[list(self._kept)[1]]

    def entries(self):
        """``[(place, entry)]``."""
        return [(place, dict(entry, count=self._count)) for place, entry in self._kept.items()]
