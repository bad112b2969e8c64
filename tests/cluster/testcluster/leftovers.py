# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster may leave on the machine, found by the name of its folder, and taken away."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

# kubelet puts a link here for each container, wherever its logs are.
_LOG_LINKS = Path("/var/log/containers")
# A shim's socket is there, whatever containerd's folders are; it goes with the shim, unless that is killed.
_SHIM_SOCKETS = "/run/containerd/s/"


def processes(folder: Path) -> dict[int, str]:
    """pid -> command line of everything that was called with a path in ``folder`` (containerd's shims, mainly)."""
    found = {}
    inside = f"{folder}/"
    for path in Path("/proc").glob("[0-9]*"):
        if path.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            started_there = any(
                word.startswith(inside) or f"={inside}" in word for word in words[:1] + words[1:]
            )
            if started_there and "testcluster" not in words:
                found[int(path.name)] = " ".join(words).strip()
    return found


def mounts(folder: Path) -> list[Path]:
    """Mount points below ``folder``, the inner ones first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].replace("\\040", " ") for line in lines]
    return sorted((Path(point) for point in points if point.startswith(f"{folder}/")), reverse=True)


def log_links(folder: Path) -> list[Path]:
    """Links of kubelet that lead into ``folder``."""
    if not _LOG_LINKS.is_dir():
        return []
    return [
        link
        for link in _LOG_LINKS.iterdir()
        if link.is_symlink() and os.readlink(link).startswith(f"{folder}/")
    ]


def _shim_sockets(pids: Iterable[int]) -> list[Path]:
    """The sockets of containerd's shims among these processes: they lie in one folder for all clusters."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(handle)))
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return [
        Path(row[7]) for row in rows if len(row) > 7 and row[6] in inodes and row[7].startswith(_SHIM_SOCKETS)
    ]


def remove(folder: Path) -> None:
    """Kill, unmount and unlink what the functions above find."""
    sockets = _shim_sockets(processes(folder))
    end = time.monotonic() + 10
    while (left := processes(folder)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for point in mounts(folder):
        subprocess.run(["umount", "-l", point], capture_output=True, check=False)
    for path in [*log_links(folder), *sockets]:
        path.unlink(missing_ok=True)
