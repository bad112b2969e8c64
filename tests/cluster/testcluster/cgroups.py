# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroup below which a node's pods live: made before its kubelet starts, emptied and removed with the node."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


def version() -> int:
    """2 where the unified hierarchy is mounted, else 1 (one tree for each controller)."""
    return 2 if (_MOUNT / "cgroup.controllers").exists() else 1


def make(name: str) -> None:
    """An empty cgroup called ``name`` at the top of each hierarchy."""
    for tree in trees():
        (tree / name).mkdir(exist_ok=True)
        if tree.name.startswith("cpuset"):
            # Version 1 lets no process into a cpuset without them.
            for file in ("cpuset.cpus", "cpuset.mems"):
                (tree / name / file).write_text((tree / file).read_text())
    if version() == 2:
        available = (_MOUNT / "cgroup.controllers").read_text().split()
        for folder in (_MOUNT, _MOUNT / name):
            for controller in available:
                with contextlib.suppress(OSError):
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def existing(name: str) -> list[Path]:
    """Where there still is a cgroup of that name."""
    return [tree / name for tree in trees() if (tree / name).exists()]


def processes_of(container: str) -> list[int]:
    """The pids in a container, by its id."""
    tree = _MOUNT if version() == 2 else _MOUNT / "memory"
    return [
        int(pid) for file in tree.rglob(f"*{container}*/cgroup.procs") for pid in file.read_text().split()
    ]


def cpu_statistics(container: str) -> dict[str, int]:
    """The container's cpu.stat on the node ({} where it isn't found)."""
    tree = _MOUNT if version() == 2 else _MOUNT / "cpu"
    for file in tree.rglob(f"*{container}*/cpu.stat"):
        return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
    return {}


def remove(name: str) -> None:
    """Kill whatever runs in it and take it away; what the kernel doesn't give up stays for ``existing`` to tell."""
    end = time.monotonic() + 10
    while existing(name) and time.monotonic() < end:
        for top in existing(name):
            for path in sorted([top, *(p for p in top.rglob("*") if p.is_dir())], reverse=True):
                _kill_processes(path)
                with contextlib.suppress(OSError):
                    path.rmdir()
        time.sleep(0.05)


def _kill_processes(path: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def trees() -> list[Path]:
    """The roots of the hierarchies; links (cpu -> cpu,cpuacct) lead to the same ones."""
    if version() == 2:
        return [_MOUNT]
    return [path for path in sorted(_MOUNT.iterdir()) if path.is_dir() and not path.is_symlink()]
