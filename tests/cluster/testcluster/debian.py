# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd, runc, a static busybox and the loopback CNI plugin, without installing anything.

Where the machine has them they are used as they are. Otherwise the Debian packages are fetched and unpacked into the
cache: no service is started, no file outside the cache is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import workplace

from . import Failed, Missing

PACKAGES = ("containerd", "runc", "busybox-static", "containernetworking-plugins")


@dataclass(frozen=True)
class HostPrograms:
    """Where the programs are: ``path`` is what PATH must begin with so that containerd finds its shim and runc."""

    containerd: Path
    ctr: Path
    busybox: Path
    cni: Path
    path: str


def host_programs() -> HostPrograms:
    """Those of the machine, else those of the Debian packages. Raises Missing, Failed."""
    root = Path("/")
    if not _complete(root):
        root = workplace.CACHE / "programs" / "debian"
        if not _complete(root):
            _unpack(root)
    folders = [root / "usr/bin", root / "usr/sbin", root / "bin"]
    return HostPrograms(
        containerd=root / "usr/bin/containerd",
        ctr=root / "usr/bin/ctr",
        busybox=_busybox(root),
        cni=root / "usr/lib/cni",
        path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]),
    )


def _busybox(root: Path) -> Path:
    inside = root / "bin/busybox"
    return inside if inside.exists() else root / "usr/bin/busybox"


def _complete(root: Path) -> bool:
    needed = ("usr/bin/containerd", "usr/bin/ctr", "usr/bin/containerd-shim-runc-v2", "usr/lib/cni/loopback")
    runc = any((root / name).exists() for name in ("usr/bin/runc", "usr/sbin/runc"))
    return runc and _is_static(_busybox(root)) and all((root / name).exists() for name in needed)


def _is_static(program: Path) -> bool:
    """In the test image there is no C library: Debian's other busybox wouldn't start."""
    try:
        return b"/ld-linux" not in program.read_bytes()
    except OSError:
        return False


def _unpack(root: Path) -> None:
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise Missing(
                f"no {' and no '.join(PACKAGES)} on this machine, and no {tool} to fetch them with: install them."
            )
    downloads = root.parent / "debian-packages"
    lists = downloads / "lists"
    for folder in (downloads, lists / "partial", root):
        folder.mkdir(parents=True, exist_ok=True)
    # Own package lists: the machine's may be empty or old, and only root may renew those.
    options = ("-q", "-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=")
    for command in (("update",), ("download", *PACKAGES)):
        done = subprocess.run(
            ["apt-get", *options, *command], cwd=downloads, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Failed(
                f"apt-get {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            )
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    shutil.rmtree(downloads)
    if not _complete(root):
        raise Failed(
            f"the Debian packages {', '.join(PACKAGES)}, unpacked into {root}, lack a program that is needed."
        )
