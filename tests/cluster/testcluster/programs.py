# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's own programs: built once from Go sources, then taken from the cache.

A program's key is a hash of its sources and build flags, so that a changed file is built anew and nothing else is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import workplace

from . import HOME, Failed, Missing

KUBERNETES_VERSION = "1.34.3"
_OLDEST_GO = (1, 24)
_MAJOR, _MINOR, _PATCH = KUBERNETES_VERSION.split(".")


@dataclass(frozen=True)
class Program:
    """``folder`` under tests/cluster/programs is a Go module; ``package`` of it is built; ``links`` are its other names."""

    folder: str
    package: str = "."
    ldflags: str = "-s -w"
    links: tuple[str, ...] = ()


def _version_flags(package: str, **values: str) -> str:
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in values.items())])


KUBERNETES = Program(
    "kubernetes",
    ldflags=_version_flags(
        "k8s.io/component-base/version",
        gitVersion=f"v{KUBERNETES_VERSION}",
        gitMajor=_MAJOR,
        gitMinor=_MINOR,
    ),
    links=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
)
KWOK = Program("kwok", package="sigs.k8s.io/kwok/cmd/kwok")
METRICS_SERVER = Program("metrics-server", package="sigs.k8s.io/metrics-server/cmd/metrics-server")
ENGINE = Program("engine")
ALL = (KUBERNETES, KWOK, METRICS_SERVER, ENGINE)


def build(program: Program) -> Path:
    """The program's file; beside it are its links. Raises Missing without Go, Failed when it can't be built."""
    sources = HOME / "programs" / program.folder
    made = workplace.CACHE / "programs" / f"{program.folder}-{_key(program, sources)}"
    file = made / program.folder
    if not file.exists():
        with _lock(made):
            if not file.exists():
                _go_build(program, sources, file)
    return file


def _key(program: Program, sources: Path) -> str:
    digest = hashlib.sha256(repr(program).encode())
    for path in sorted(sources.rglob("*")):
        if path.is_file() and not path.name.endswith("_test.go"):
            digest.update(f"\n{path.relative_to(sources)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _lock(made: Path) -> Iterator[None]:
    """Two test runs that need the same program build it once."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / f"{made.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def go_environment() -> dict[str, str]:
    """What Go builds with: its caches are kept outside the checkout, and it downloads no other toolchain."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOCACHE": str(workplace.CACHE / "go-build"),
        "GOFLAGS": "-modcacherw",
        "GOMODCACHE": str(workplace.CACHE / "go-mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def go() -> str:
    """Where Go is. Raises Missing."""
    found = shutil.which("go")
    said = (
        subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False)
        if found
        else None
    )
    version = re.match(r"go(\d+)\.(\d+)", said.stdout) if said else None
    if not version or tuple(map(int, version.groups())) < _OLDEST_GO:
        there = f"{found} is {said.stdout.strip()}" if version else "it isn't on PATH"
        raise Missing(
            f"Go {'.'.join(map(str, _OLDEST_GO))} or newer builds the test cluster's programs; {there}."
        )
    return found


def _go_build(program: Program, sources: Path, file: Path) -> None:
    compiler = go()
    print(f"building {program.folder} (once; minutes on a cold cache) ...", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.unfinished")
    built = subprocess.run(
        [compiler, "build", "-trimpath", "-ldflags", program.ldflags, "-o", unfinished, program.package],
        cwd=sources,
        env=go_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        last = "\n".join((built.stdout + built.stderr).splitlines()[-15:])
        raise Failed(
            f"go build of tests/cluster/programs/{program.folder} ended with {built.returncode}:\n{last}"
        )
    for link in program.links:
        (file.parent / link).unlink(missing_ok=True)
        (file.parent / link).symlink_to(file.name)
    unfinished.rename(file)
