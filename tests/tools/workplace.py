# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gates stand on: where things are, clean copies of the checkout, the interpreters of this machine.

Standard library only.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
COLLECTION = "vllm_runbook/oom"
# Everything that may be thrown away and made again.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm_runbook"
# One folder for each checkout, so that two don't disturb each other.
WORK = CACHE / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
# The oldest Python that plugins/module_utils and plugins/modules must import on (tests/config.yml).
OLDEST_PYTHON = (3, 9)


def checkout_files() -> list[str]:
    """The files that a commit of everything would hold: tracked, and untracked but not ignored.

    Where the checkout isn't a git repository (an unpacked archive), every file that no tool made.
    """
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = os.fsdecode(listing.stdout).split("\0")
        return sorted({name for name in names if name and (ROOT / name).is_file()})
    every = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(str(path) for path in every if not _is_made(path))


def _is_made(path: Path) -> bool:
    """Whether a tool made it, by .gitignore's main entries."""
    at_root = {".git", ".venv", ".ansible", "build"}
    return path.parts[0] in at_root or path.parts[:2] == ("tests", "output") or "__pycache__" in path.parts


def clean_copy(name: str) -> Path:
    """Bring ``WORK/name/ansible_collections/vllm_runbook/oom`` to the checkout's state; return that folder.

    ansible-test refuses a collection that is reached through a link, and the linters would look at .venv and
    at whatever else lies about. Only files that differ are written, so that the tools' own caches stay good.
    """
    target = WORK / name / "ansible_collections" / COLLECTION
    wanted = checkout_files()
    for file in wanted:
        _copy_changed(ROOT / file, target / file)
    # The tools' own output stays; so do its parents.
    kept = {target / file for file in wanted} | {target / "tests" / "output"}
    folders = {parent for path in kept for parent in path.parents}
    for path in sorted(target.rglob("*"), reverse=True):
        if path in kept or path in folders or target / "tests" / "output" in path.parents:
            continue
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    return target


def _copy_changed(source: Path, target: Path) -> None:
    same_mode = target.is_file() and source.stat().st_mode == target.stat().st_mode
    if same_mode and source.read_bytes() == target.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def site_packages() -> Path:
    """Where the environment's packages lie (the `ansible` package's collections among them)."""
    return Path(sysconfig.get_path("purelib"))


def lay_kubernetes_core(collections: Path) -> None:
    """Copy kubernetes.core out of the `ansible` package: ansible-test looks only beside our collection."""
    source = site_packages() / "ansible_collections" / "kubernetes" / "core"
    target = collections / "kubernetes" / "core"
    manifest = source / "MANIFEST.json"
    if (target / "MANIFEST.json").is_file() and manifest.read_bytes() == (
        target / "MANIFEST.json"
    ).read_bytes():
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def lay_pip_for_ansible_test(home: Path) -> None:
    """Give ansible-test the pip that it would download from a host of its own.

    ansible-test runs ``get_pip_X_Y.py`` out of its cache to put pip into its virtual environments. Ours runs
    the same version from a wheel of the package index; which version that is stands in ansible-test's source.
    """
    source = (site_packages() / "ansible_test/_internal/python_requirements.py").read_text(encoding="utf-8")
    found = re.search(r"""\bpip=['"]([0-9.]+)['"]""", source)
    if not found:
        raise RuntimeError(
            "ansible-test no longer says which pip it wants (python_requirements.py): see tests/tools"
        )
    version = found[1]
    wheel = f"pip-{version}-py3-none-any.whl"
    cache = home / ".ansible" / "test" / "cache"
    script = cache / f"get_pip_{version.replace('.', '_')}.py"
    if script.is_file():
        return
    cache.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", cache, f"pip=={version}"],
        check=True,
    )
    script.write_text(
        "import os, sys\n"
        f"wheel = os.path.join(os.path.dirname(os.path.abspath(__file__)), {wheel!r})\n"
        "sys.path.insert(0, wheel)\n"
        "from pip._internal.cli.main import main\n"
        "sys.exit(main(['install', '--no-index', '--quiet', wheel]))\n",
        encoding="utf-8",
    )


@functools.cache
def real_pythons() -> dict[tuple[int, int], Path]:
    """The interpreters of this machine that run, by version: from PATH and pyenv, never pyenv's shims.

    A shim of a version that isn't active fails when called, and ansible-test dies of it.
    """
    pyenv_roots = {Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"), Path("/root/.pyenv")}
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    candidates = [path for folder in folders for path in _glob(folder, "python3.*")]
    candidates += [
        path for root in sorted(pyenv_roots) for path in _glob(root / "versions", "3.*/bin/python3.*")
    ]
    found: dict[tuple[int, int], Path] = {}
    for path in candidates:
        named = re.fullmatch(r"python3\.(\d+)", path.name)
        if named and "shims" not in path.parts and (3, int(named[1])) not in found:
            version = _version_of(path)
            if version == (3, int(named[1])):
                found[version] = path
    return dict(sorted(found.items()))


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _version_of(python: Path) -> tuple[int, int] | None:
    """(major, minor) as the interpreter says it; None when it doesn't run or can't make environments."""
    program = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        said = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if said.returncode != 0:
        return None
    major, minor = said.stdout.split()
    return int(major), int(minor)


def path_without_shims(*first: Path) -> str:
    """A PATH for child processes: this environment's tools, the given folders, the caller's without shims."""
    inherited = [name for name in os.environ.get("PATH", "").split(os.pathsep) if "shims" not in name]
    return os.pathsep.join([str(BIN), *(str(folder) for folder in first), *inherited])
