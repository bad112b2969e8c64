# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel OOM reports: whose limit was hit, who was killed, and what the memory was.

The line formats are the kernel's (mm/oom_kill.c, mm/memcontrol.c; kernels 4.x to 6.x), the rule that tells a
limit from a full node is ``oom_memcg=`` against ``global_oom``, never ``constraint=``: kernels exist that
print CONSTRAINT_NONE together with ``oom_memcg=`` (shared facts "kubernetes-gpu-facts" section 3).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..evidence.proc_files import pod_of
from ..quantities import KIB, show_bytes

_INVOKED = re.compile(r"(?P<comm>\S.*?) invoked oom-killer: ")
_USAGE = re.compile(r"\bmemory: usage (?P<usage>\d+)kB, limit (?P<limit>\d+)kB, failcnt \d+")
_OOM_KILL = re.compile(r"\boom-kill:constraint=(?P<constraint>\w+)")
_FIELD = re.compile(r"(?P<name>oom_memcg|task_memcg|task|pid)=(?P<value>[^,]*)")
_KILLED = re.compile(
    r"(?:(?P<prefix>Memory cgroup out of memory|Out of memory)[^:]*: )?"
    r"Kill(?P<done>ed)? process(?: (?P<pid>\d+))?,? \((?P<comm>[^)]*)\)?"
)
_OLD_CONTEXT = re.compile(r"\bTask in (?P<task>\S+) killed as a result of limit of (?P<memcg>\S+)")
# Version 1 prints the cgroup's own counters first and then, as total_, those with the cgroups below it, which count.
_STAT = re.compile(
    r"(?:^|\s)(?P<name>anon|file|shmem|total_rss|total_cache|total_shmem) (?P<value>\d+)(?=\s|$)"
)
_STAT_OF_VERSION_1 = {"total_rss": "anon", "total_cache": "file", "total_shmem": "shmem"}
_RSS = re.compile(r"(?P<name>anon|file|shmem)-rss:(?P<value>\d+)kB")
_GROUP = re.compile(r"are going to be killed due to memory\.oom\.group set")

# A kubelet's own event for a victim outside every pod's cgroup (kubernetes pkg/kubelet/oom).
_SYSTEM_OOM = re.compile(r"System OOM encountered(?:, victim process: (?P<comm>[^,]*), pid: (?P<pid>\d+))?")

# Literals one of which every line of a report holds; a cheap test before the patterns.
_HINTS = (
    "oom-kill", "Kill process", "Killed process", "memory: usage", "-rss:", "anon ", "file ", "shmem ",
    "total_rss ", "total_cache ", "as a result of limit of", "memory.oom.group", "System OOM",
)  # fmt: skip


def _new_report():
    return {
        "scope": None,
        "enforced_on": None,
        "victim": None,
        "pid": None,
        "victims": [],
        "announced": None,
        "constraint": None,
        "oom_memcg": None,
        "task_memcg": None,
        "pod_uid": None,
        "container_id": None,
        "invoked_by": None,
        "usage": None,
        "limit": None,
        "anon": None,
        "file": None,
        "shmem": None,
        "stat": {"anon": None, "file": None, "shmem": None},
        "group": False,
        "first": None,
        "index": None,
        "text": None,
    }


def memcg_scope(path):
    """Whose limit a memory cgroup path is: ``container``, ``pod``, ``node``, or None if it's no pod's.

    ``node`` for ``kubepods.slice`` and its QoS slices: that is the node's allocatable, enforced by the
    kubelet.
    """
    uid, container = pod_of(path)
    if container:
        return "container"
    if uid:
        return "pod"
    return "node" if "kubepods" in (path or "") else None


def _take_memcg(report, oom_memcg, task_memcg):
    report["oom_memcg"] = oom_memcg or report["oom_memcg"]
    report["task_memcg"] = task_memcg or report["task_memcg"]
    if oom_memcg:
        # A path that names neither container nor pod can still only be a limit, and inside a pod's own
        # cgroup namespace the container's limit is "/".
        report["scope"] = memcg_scope(oom_memcg) or "container"
        report["enforced_on"] = "limit" if report["scope"] != "node" else "allocatable"
    uid, container = pod_of(task_memcg or oom_memcg)
    report["pod_uid"] = uid or report["pod_uid"]
    report["container_id"] = container or report["container_id"]


def _take_victim(report, comm, pid, text, index):
    name = comm or report["victim"]
    if report["victim"] is None:
        report["victim"], report["pid"] = name, pid
    if (name, pid) not in report["victims"]:
        report["victims"].append((name, pid))
    if report["index"] is None:
        report["index"], report["text"] = index, text


def _on_oom_kill(report, constraint, text, index):
    fields = {m.group("name"): m.group("value") for m in _FIELD.finditer(text)}
    report["constraint"] = constraint
    if "global_oom" in text:
        report["scope"], report["enforced_on"] = "node", "global"
    _take_memcg(report, fields.get("oom_memcg"), fields.get("task_memcg"))
    pid = fields.get("pid", "")
    _take_victim(report, fields.get("task"), int(pid) if pid.isdigit() else None, text, index)
    report["index"], report["text"] = index, text


def _named(killed):
    """``(name, pid)`` of a line that says who is or was killed."""
    return killed.group("comm"), int(killed.group("pid")) if killed.group("pid") else None


def _is_sacrificed(report, killed):
    """Whether a line says who was killed in place of the process that the report has announced: old kernels may take a child."""
    return bool(report["announced"] and killed.group("done") and not killed.group("prefix"))


def _on_killed(report, match, text, index):
    name, pid = _named(match)
    if _is_sacrificed(report, match) and report["announced"] != (name, pid):
        report["victims"].remove(report["announced"])
        report["victim"], report["pid"] = report["victims"][0] if report["victims"] else (None, None)
        if not report["constraint"]:
            report["index"] = None
    _take_victim(report, name, pid, text, index)
    report["announced"] = None if match.group("done") else report["victims"][-1]
    if match.group("prefix") and report["scope"] is None:
        node = match.group("prefix") == "Out of memory"
        report["scope"] = "node" if node else "container"
        report["enforced_on"] = "global" if node else "limit"
    for rss in _RSS.finditer(text):
        size = int(rss.group("value")) * KIB
        # Under a group kill every process has its own line: the sum is what the cgroup's processes held.
        report[rss.group("name")] = size + (report[rss.group("name")] or 0)


def _opens_new(report, text, killed):
    """True when ``text`` can't belong to ``report``, the one being read."""
    if _INVOKED.search(text) or _SYSTEM_OOM.search(text):
        return True
    if report is None:
        return True
    if _OOM_KILL.search(text):
        return report["constraint"] is not None or bool(report["victims"])
    if _OLD_CONTEXT.search(text) or _USAGE.search(text):
        return bool(report["victims"])
    if killed and report["victims"] and not report["constraint"] and not _is_sacrificed(report, killed):
        return _named(killed) not in report["victims"]
    return False


def parse(lines):
    """The OOM reports in ``lines`` (list of str, any prefixes), one dict each, in their order.

    Each: ``scope`` container|pod|node|None (whose memory was full), ``enforced_on`` limit|allocatable|global,
    ``victim``/``pid`` (first killed process), ``victims`` (all of them), ``announced`` (one that was to be killed and of whose
    end no line was seen), ``oom_memcg``, ``task_memcg``,
    ``pod_uid``, ``container_id`` (of the victim), ``invoked_by``, ``usage``/``limit`` (bytes),
    ``anon``/``file``/``shmem`` (bytes of the killed processes), ``stat`` (bytes of the cgroup), ``group``
    (killed as a group), ``index``/``text`` (the line that names the victim), ``first`` (the report's first
    line). One event is one report, also when a group kill prints a line for every process.
    """
    found: list[dict] = []
    report = None
    for index, text in enumerate(lines):
        if not any(hint in text for hint in _HINTS):
            continue
        killed = None if _OOM_KILL.search(text) else _KILLED.search(text)
        starts = killed or _INVOKED.search(text) or _OOM_KILL.search(text) or _USAGE.search(text)
        starts = starts or _OLD_CONTEXT.search(text) or _SYSTEM_OOM.search(text)
        if starts and _opens_new(report, text, killed):
            report = _new_report()
            report["first"] = index
            found.append(report)
        if report is not None:
            _take_line(report, text, index, killed)
    return [item for item in found if item["victims"] or item["scope"]]


def _take_line(report, text, index, killed):
    if killed:
        _on_killed(report, killed, text, index)
        return
    system = _SYSTEM_OOM.search(text)
    if system:
        report["scope"], report["enforced_on"] = "node", "global"
        pid = system.group("pid")
        _take_victim(report, system.group("comm"), int(pid) if pid else None, text, index)
        return
    kill = _OOM_KILL.search(text)
    if kill:
        _on_oom_kill(report, kill.group("constraint"), text, index)
        return
    old = _OLD_CONTEXT.search(text)
    if old:
        _take_memcg(report, old.group("memcg"), old.group("task"))
        return
    invoked = _INVOKED.search(text)
    if invoked:
        report["invoked_by"] = invoked.group("comm").rsplit("] ", 1)[-1].rsplit(": ", 1)[-1]
        return
    usage = _USAGE.search(text)
    if usage:
        report["usage"] = int(usage.group("usage")) * KIB
        report["limit"] = int(usage.group("limit")) * KIB
        return
    if _GROUP.search(text):
        report["group"] = True
        return
    if not report["victims"]:
        for stat in _STAT.finditer(text):
            name = stat.group("name")
            report["stat"][_STAT_OF_VERSION_1.get(name, name)] = int(stat.group("value"))


def concerns(report, uid=None, container_ids=()):
    """True/False if the report's cgroup names (or excludes) this pod or container, None if it doesn't say.

    uid: the pod's ``metadata.uid``; container_ids: ids of the container's runs, with or without
    ``containerd://``.
    """
    known = {item.rsplit("//", 1)[-1] for item in container_ids if item}
    if report["container_id"] and known:
        return report["container_id"] in known
    if report["pod_uid"] and uid:
        return report["pod_uid"] == uid
    return None


_WHOSE = {
    "container": "the container's memory limit was reached",
    "pod": "the memory limit of the whole pod was reached",
}


def words(report):
    """Who was killed, what of it was in memory, and whose memory was full, in one sentence without its full stop."""
    who = report["victim"] or "a process"
    pid = f" (pid {report['pid']} of the node)" if report["pid"] else ""
    killed = f"the kernel killed {who}{pid}"
    if len(report["victims"]) > 1:
        killed += f" and {len(report['victims']) - 1} more of the same cgroup"
    kinds = (("anon", "anonymous"), ("file", "file"), ("shmem", "shared"))
    parts = [f"{show_bytes(report[name])} {word}" for name, word in kinds if report[name] is not None]
    if parts:
        killed += f", with {', '.join(parts)} memory"
    if report["enforced_on"] == "allocatable":
        full = "the memory that the node has for pods was used up"
    else:
        full = _WHOSE.get(report["scope"], "the node's memory was used up")
    limit = f" ({show_bytes(report['limit'])})" if report["limit"] and report["scope"] != "node" else ""
    return f"{killed}: {full}{limit}"


def held(report):
    """What the report shows of the memory that was full, in bytes: ``{usage, limit, anon, file, shmem}``, of what it names.

    The counters of the cgroup count all of its processes and their files; where the report lacks them, what the killed ones held.
    """
    found = {name: report["stat"][name] for name in ("anon", "file", "shmem")}
    if all(value is None for value in found.values()):
        found = {name: report[name] for name in ("anon", "file", "shmem")}
        # A process' file pages don't include shared memory, a cgroup's do.
        if found["file"] is not None and found["shmem"] is not None:
            found["file"] += found["shmem"]
    found.update(usage=report["usage"], limit=report["limit"])
    return {name: value for name, value in found.items() if value is not None}
