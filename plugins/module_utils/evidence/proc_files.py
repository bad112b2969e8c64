# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of /proc and /sys as numbers: processes, their cgroups and limits, memory, mounts, CPUs; and NCCL's configuration file.

Texts in, plain data out; ``node_reader`` reads the files. Formats: proc(5), cgroups(7), shared facts "kubernetes-gpu-facts",
section 3.2.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..quantities import KIB

_UID = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
# As a name of its own or in cri-containerd-<id>.scope, crio-<id>.scope, docker-<id>.scope and ...slice:cri-containerd:<id>;
# crio-conmon-<id>.scope holds CRI-O's monitor of the container.
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?=\.scope|/|$)")
_LIMITS = {"Max locked memory": "memlock", "Max open files": "nofile", "Max stack size": "stack"}
_LIMIT = re.compile(r"(?P<name>Max [a-z ]+?) {2,}(?P<soft>\S+) +(?P<hard>\S+)")
_MEMORY = {
    "MemTotal": "total",
    "MemAvailable": "available",
    "SwapTotal": "swap_total",
    "SwapFree": "swap_free",
    "HugePages_Total": "hugepages_total",
    "HugePages_Free": "hugepages_free",
    "Hugepagesize": "hugepage_size",
}
_OCTAL = re.compile(r"\\([0-7]{3})")


def pod_of(path):
    """``(pod uid, container id)`` of a cgroup path, each None where the path names none.

    The uid has dashes, as in ``metadata.uid``. The container's id is the first one below the pod: a container may make cgroups of
    its own, and a nested kubelet (kind) lives in a container itself. That one's cgroups of all pods are no container's.
    """
    uid = _UID.search(path or "")
    if not uid and "kubepods" in (path or ""):
        return None, None
    ids = _CONTAINER.findall(path[uid.end() :] if uid else path or "")
    container = ids[0] if ids and uid else ids[-1] if ids else None
    return (uid.group(1).replace("_", "-") if uid else None), container


def container_path(path):
    """The part of a cgroup path that is the container's own cgroup, without what the container has made below it; or None."""
    _uid, container = pod_of(path)
    if not container:
        return None
    end = path.rindex(container) + len(container)
    return path[:end] + path[end:].partition("/")[0]


def cgroup_paths(text):
    """``{controller: path}`` of /proc/PID/cgroup; version 2's one hierarchy has the controller ``""``."""
    found = {}
    for line in (text or "").splitlines():
        number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        if number.isdecimal() and path.startswith("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def memory_cgroup(paths):
    """The path that says whose memory it is: the memory controller's under version 1, else version 2's."""
    return paths.get("memory") or paths.get("")


def limits_of(text):
    """``{memlock, nofile, stack}`` of /proc/PID/limits: the soft limits, in bytes or a count, or "unlimited"."""
    found = dict.fromkeys(_LIMITS.values())
    for match in map(_LIMIT.match, (text or "").splitlines()):
        if match and match.group("name") in _LIMITS:
            soft = match.group("soft")
            found[_LIMITS[match.group("name")]] = int(soft) if soft.isdecimal() else "unlimited"
    return found


def status_of(text):
    """``{name, state, uid, ns_pid}`` of /proc/PID/status. state: one letter (Z: zombie, D: hangs in the kernel); ns_pid: the
    process's number in the innermost namespace, as its container sees it."""
    fields = dict(line.split(":", 1) for line in (text or "").splitlines() if ":" in line)
    numbers = {name: fields.get(name, "").split() for name in ("State", "Uid", "NSpid")}
    return {
        "name": fields.get("Name", "").strip() or None,
        "state": numbers["State"][0] if numbers["State"] else None,
        "uid": _whole(numbers["Uid"][:1]),
        "ns_pid": _whole(numbers["NSpid"][-1:]),
    }


def started_at(stat, booted, ticks):
    """Seconds since 1970 at which the process of /proc/PID/stat began, or None. booted: the machine's start; ticks: a second's."""
    # The name in parentheses may hold blanks and parentheses itself; 22 is starttime, 3 the first field behind the name.
    fields = (stat or "").rpartition(")")[2].split()
    if booted is None or len(fields) < 20 or not fields[19].isdecimal():
        return None
    return booted + int(fields[19]) / ticks


def boot_time(stat):
    """Seconds since 1970 at which the machine started, of /proc/stat, or None."""
    match = re.search(r"^btime (\d+)$", stat or "", re.M)
    return int(match.group(1)) if match else None


def driver_version(text):
    """The version of the loaded NVIDIA kernel module, of /proc/driver/nvidia/version, or None."""
    match = re.search(r"Kernel Module(?: for \S+)? +(\d+(?:\.\d+)+)", text or "")
    return match.group(1) if match else None


def arguments_of(text):
    """The argument list of /proc/PID/cmdline; a process that has set a title has that alone."""
    return [part for part in (text or "").split("\0") if part]


def environment_of(text):
    """``{name: value}`` of /proc/PID/environ: the environment with which the process was started."""
    pairs = (entry.partition("=") for entry in (text or "").split("\0"))
    return {name: value for name, equals, value in pairs if equals and name}


def memory_of(text):
    """``{total, available, swap_total, swap_free, hugepages_total, hugepages_free, hugepage_size}`` of /proc/meminfo, in bytes
    except for the two counts."""
    found = dict.fromkeys(_MEMORY.values())
    for line in (text or "").splitlines():
        name, _colon, value = line.partition(":")
        words = value.split()
        if name in _MEMORY and words and words[0].isdecimal():
            found[_MEMORY[name]] = int(words[0]) * (KIB if words[1:] == ["kB"] else 1)
    return found


def mount_at(mountinfo, point):
    """The file system type of what is mounted at ``point`` (the last mount hides the others), of /proc/self/mountinfo, or None."""
    found = None
    for line in (mountinfo or "").splitlines():
        fields, _dash, rest = line.partition(" - ")
        places = fields.split()
        if len(places) > 4 and _unescaped(places[4]) == point and rest:
            found = rest.split()[0]
    return found


def pod_of_mounts(mountinfo):
    """The uid of the pod whose files are mounted here: a kubelet gives each container an /etc/hosts of the pod. Or None."""
    for line in (mountinfo or "").splitlines():
        fields = line.split()
        match = re.search(r"/pods/([0-9a-f-]{36})/etc-hosts$", fields[3]) if len(fields) > 4 else None
        if match and fields[4] == "/etc/hosts":
            return match.group(1)
    return None


def _unescaped(path):
    return _OCTAL.sub(lambda code: chr(int(code.group(1), 8)), path)


def cpu_count(text):
    """How many CPUs a list such as ``0-23,48-71`` names, or None."""
    try:
        spans = [span.split("-") for span in (text or "").strip().split(",")]
        return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
    except ValueError:
        return None


def nccl_settings(text):
    """``{name: value}`` of NCCL's configuration file: ``NAME=value`` lines; one that begins with ``#`` is a comment."""
    lines = (line.strip() for line in (text or "").splitlines())
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def interfaces_of(text):
    """The names of the network interfaces in /proc/PID/net/dev: two header lines, then ``name: counters``."""
    return [line.partition(":")[0].strip() for line in (text or "").splitlines()[2:] if ":" in line]


def hides_processes(mountinfo):
    """Whether /proc is mounted so that other users' processes can't be seen (hidepid), of /proc/self/mountinfo: the last mount
    hides the others. None where that file can't be read."""
    if mountinfo is None:
        return None
    hides = False
    for line in mountinfo.splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[4] == "/proc":
            options = re.search(r"\bhidepid=(\w+)", line)
            hides = options is not None and options.group(1) not in ("0", "off")
    return hides


def _whole(words):
    return int(words[0]) if words and words[0].isdecimal() else None
