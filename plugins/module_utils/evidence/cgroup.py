# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cgroup files, version 1 and 2, as numbers.

File names, units and traps: shared facts "kubernetes-gpu-facts", section 4. The counters belong to the
container that runs now; those of a killed one are gone.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import cgroup

# What to read in a container (paths inside it), by cgroup version.
V2_FILES = tuple(
    "/sys/fs/cgroup/" + name
    for name in (
        "memory.max",
        "memory.current",
        "memory.peak",
        "memory.stat",
        "memory.events",
        "cpu.max",
        "cpu.stat",
        "cpuset.cpus.effective",
    )
)
V1_FILES = tuple(
    "/sys/fs/cgroup/" + name
    for name in (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.max_usage_in_bytes",
        "memory/memory.stat",
        "memory/memory.oom_control",
        "cpu/cpu.cfs_quota_us",
        "cpu/cpu.cfs_period_us",
        "cpu/cpu.stat",
        "cpuset/cpuset.cpus",
    )
)

# Version 1 prints its page-aligned maximum where there is no limit.
_V1_UNLIMITED = 1 << 62


def parse_cgroup(files):
    """``documents.cgroup`` from ``{file name or path: text}``; a file that is missing leaves its fields None.

    No limit is None as well: ``max`` (v2), the largest number or -1 (v1).
    """
    by_name = {path.rsplit("/", 1)[-1]: text for path, text in files.items() if text is not None}
    version = _version(by_name)
    found = cgroup(version)
    if version == 2:
        _read_v2(by_name, found)
    elif version == 1:
        _read_v1(by_name, found)
    return found


def _version(by_name):
    if any(name.startswith(("memory.limit_in", "memory.usage_in", "cpu.cfs_")) for name in by_name):
        return 1
    if any(name in by_name for name in ("memory.max", "memory.current", "memory.events", "cpu.max")):
        return 2
    stat = _table(by_name.get("memory.stat"))
    if "total_rss" in stat:
        return 1
    return 2 if "anon" in stat else None


def _read_v2(by_name, found):
    stat, events = _table(by_name.get("memory.stat")), _table(by_name.get("memory.events"))
    found["memory"].update(
        limit=_number(by_name.get("memory.max")),
        usage=_number(by_name.get("memory.current")),
        peak=_number(by_name.get("memory.peak")),
        oom_kills=events.get("oom_kill"),
        shmem=stat.get("shmem"),
        file=stat.get("file"),
        anon=stat.get("anon"),
    )
    quota = (by_name.get("cpu.max") or "").split()
    if len(quota) == 2:
        found["cpu"]["limit"] = _share(_number(quota[0]), _number(quota[1]))
    stat = _table(by_name.get("cpu.stat"))
    found["cpu"].update(
        periods=stat.get("nr_periods"),
        throttled=stat.get("nr_throttled"),
        throttled_seconds=_scaled(stat.get("throttled_usec"), 1e6),
    )
    found["cpuset"] = (by_name.get("cpuset.cpus.effective") or "").strip() or None


def _read_v1(by_name, found):
    stat = _table(by_name.get("memory.stat"))
    limit = _number(by_name.get("memory.limit_in_bytes"))
    found["memory"].update(
        limit=None if limit is None or limit >= _V1_UNLIMITED else limit,
        usage=_number(by_name.get("memory.usage_in_bytes")),
        peak=_number(by_name.get("memory.max_usage_in_bytes")),
        oom_kills=_table(by_name.get("memory.oom_control")).get("oom_kill"),
        shmem=stat.get("total_shmem", stat.get("shmem")),
        file=stat.get("total_cache", stat.get("cache")),
        anon=stat.get("total_rss", stat.get("rss")),
    )
    quota = _number(by_name.get("cpu.cfs_quota_us"))
    if quota is not None and quota > 0:
        found["cpu"]["limit"] = _share(quota, _number(by_name.get("cpu.cfs_period_us")))
    stat = _table(by_name.get("cpu.stat"))
    found["cpu"].update(
        periods=stat.get("nr_periods"),
        throttled=stat.get("nr_throttled"),
        throttled_seconds=_scaled(stat.get("throttled_time"), 1e9),
    )
    cpus = by_name.get("cpuset.effective_cpus") or by_name.get("cpuset.cpus") or ""
    found["cpuset"] = cpus.strip() or None


def _table(text):
    """``{key: int}`` of a file of "key number" lines; other lines are passed over."""
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(text):
    """The one integer of a file, or None (absent, ``max``, unreadable)."""
    try:
        return int((text or "").strip())
    except ValueError:
        return None


def _share(quota, period):
    """CPU cores from a quota and a period, both in microseconds."""
    return quota / period if quota is not None and period else None


def _scaled(value, unit):
    return None if value is None else value / unit
