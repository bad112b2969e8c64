# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates of `make test`, run side by side: a line for each, the output of those that fail, a table.

    .venv/bin/python tests/tools/gates.py [NAME ...]

Without names all gates run. GATES_JOBS sets how many at a time (default: the number of cores and one, since those with a
cluster mostly wait). Outputs are
kept in build/gates/NAME.log. A gate that lacks something of the checkout or of the machine is skipped, except
under CI=true where that is a failure. Standard library only.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import workplace
from workplace import BIN, ROOT, WORK

LOGS = ROOT / "build" / "gates"
PACKAGE = "ansible_collections.vllm_runbook.oom.plugins"
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
# A step that runs longer than this hangs. The longest, on a cold cache: building Kubernetes on two busy cores.
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Step:
    """One command of a gate: ``argv`` names a program of .venv/bin; run in ``cwd`` with ``env`` on top."""

    argv: tuple[str | Path, ...]
    cwd: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    forbidden: str = ""  # an output that makes the step fail although it ended with 0


class Unready(Exception):
    """Something that the gate needs isn't there; the message says what."""


class Broken(Exception):
    """The gate failed by a check of its own; the message says what and where."""


@dataclass(frozen=True)
class Gate:
    """``steps`` yields each Step after the one before has passed; ``seconds`` (warm) orders the start."""

    name: str
    seconds: int
    steps: Callable[[], Iterator[Step]]


@dataclass(frozen=True)
class Outcome:
    name: str
    result: str  # passed, failed, skipped
    seconds: float
    log: Path
    note: str = ""


# -- the gates -----------------------------------------------------------------------------------------------


def unit() -> Iterator[Step]:
    yield Step(("pytest", "-q", "tests/unit"))


def accuracy() -> Iterator[Step]:
    yield Step(("python", existing("tests/accuracy/score.py"), "--check"))


def ruff() -> Iterator[Step]:
    yield Step(("ruff", "check", "--output-format=concise", "."))
    yield Step(("ruff", "format", "--check", "."))


def mypy() -> Iterator[Step]:
    yield Step(("mypy", "-p", PACKAGE))


def layers() -> Iterator[Step]:
    yield Step(("lint-imports",), env={"PYTHONPATH": str(ROOT / ".ansible" / "collections")})


def ansible_lint() -> Iterator[Step]:
    copy = workplace.clean_copy("lint")
    yield Step(
        ("ansible-lint", "--offline", "--strict"),
        cwd=copy,
        env={"ANSIBLE_COLLECTIONS_PATH": str(copy.parents[2])},
    )


def documentation() -> Iterator[Step]:
    copy = workplace.clean_copy("docs")
    yield Step(
        (
            "antsibull-docs",
            "lint-collection-docs",
            "--plugin-docs",
            "--validate-collection-refs=dependent",
            ".",
        ),
        cwd=copy,
        # It copies kubernetes.core out of .venv by `git ls-files`, if it finds the checkout's repository.
        env={"GIT_CEILING_DIRECTORIES": str(ROOT)},
    )


def changelog() -> Iterator[Step]:
    yield Step(("antsibull-changelog", "lint"))


def sanity() -> Iterator[Step]:
    """Everything on this environment's Python, then compile and import on the machine's other ones."""
    copy = workplace.clean_copy("sanity")
    workplace.lay_kubernetes_core(copy.parents[1])
    home = workplace.CACHE / "home"
    workplace.lay_pip_for_ansible_test(home)
    ignores = sorted(str(path.relative_to(copy)) for path in copy.glob("tests/sanity/ignore-*.txt"))
    if ignores:
        raise Broken(f"sanity is held without ignores, but there is {', '.join(ignores)}.")
    found = workplace.real_pythons()
    pythons = {version: path for version, path in found.items() if version >= workplace.OLDEST_PYTHON}
    env = {
        "HOME": str(home),
        # ansible-test dies of a pyenv shim whose version isn't active.
        "PATH": workplace.path_without_shims(*(path.parent for path in pythons.values())),
    }
    own = sys.version_info[:2]
    common = ("--color", "no", "--python")
    yield Step(("ansible-test", "sanity", *common, dotted(own)), cwd=copy, env=env)
    for version in pythons:
        if version != own:
            yield Step(
                ("ansible-test", "sanity", "--test", "compile", "--test", "import", *common, dotted(version)),
                cwd=copy,
                env=env,
                forbidden="Skipping",
            )
    if workplace.OLDEST_PYTHON not in pythons:
        raise Unready(f"no Python {dotted(workplace.OLDEST_PYTHON)}, the oldest that modules must import on.")


def installed() -> Iterator[Step]:
    """Build the archive and look into it, install as AWX does, call the playbook by name from elsewhere."""
    bundle = existing("docs/examples")
    copy = workplace.clean_copy("build")
    made = WORK / "installed"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    yield Step(("ansible-galaxy", "collection", "build", "--output-path", made), cwd=copy)
    check_archive(*made.glob("*.tar.gz"))
    yield Step(
        ("ansible-galaxy", "collection", "install", "-r", "collections/requirements.yml", "-p", made),
        cwd=copy,
    )
    example = first_bundle(bundle)
    yield Step(
        ("ansible-playbook", "vllm_runbook.oom.diagnose_oom", "-e", f"vllm_oom_bundle={example}"),
        cwd=made,
        env={"ANSIBLE_COLLECTIONS_PATH": str(made)},
    )


def molecule() -> Iterator[Step]:
    """The scenarios that run on bundles; those that need a cluster are run beside one, by tests/cluster."""
    scenarios = sorted(path.parent.name for path in existing("extensions/molecule").glob("*/molecule.yml"))
    copy = workplace.clean_copy("molecule")
    for scenario in scenarios:
        if not scenario.endswith("_cluster"):
            yield Step(
                ("molecule", "test", "-s", scenario),
                cwd=copy / "extensions",
                env={
                    "ANSIBLE_COLLECTIONS_PATH": str(copy.parents[2]),
                    "MOLECULE_EPHEMERAL_DIRECTORY": str(WORK / "molecule-state"),
                },
            )


def cluster() -> Iterator[Step]:
    """The runbook against real API servers, kubelets and OOM kills; the programs are built first, once."""
    yield from on_cluster(
        "tests/cluster", *(f"--ignore={path.relative_to(ROOT)}" for path in tests_of_changes())
    )


def changes() -> Iterator[Step]:
    """The same of what is written to a cluster and taken back, on one of its own: it takes as long as all the rest."""
    yield from on_cluster(*(path.relative_to(ROOT) for path in tests_of_changes()))


GATES = (
    Gate("changes", 400, changes),
    Gate("cluster", 330, cluster),
    Gate("unit", 60, unit),
    Gate("molecule", 30, molecule),
    Gate("sanity", 20, sanity),
    Gate("accuracy", 10, accuracy),
    Gate("ansible-lint", 10, ansible_lint),
    Gate("docs", 6, documentation),
    Gate("installed", 6, installed),
    Gate("mypy", 5, mypy),
    Gate("ruff", 1, ruff),
    Gate("layers", 1, layers),
    Gate("changelog", 1, changelog),
)


# -- their helpers -------------------------------------------------------------------------------------------


def existing(name: str) -> Path:
    path = ROOT / name
    if not path.exists():
        raise Unready(f"{name} isn't there.")
    return path


def tests_of_changes() -> list[Path]:
    """The test files of what writes to a cluster, or watches what was written."""
    names = ("remediation", "remediation_meanwhile", "serving", "workload", "writer_rights")
    return [existing(f"tests/cluster/test_{name}.py") for name in names]


def on_cluster(*arguments: str | Path) -> Iterator[Step]:
    paths = {"PYTHONPATH": os.pathsep.join(str(ROOT / "tests" / name) for name in ("cluster", "tools"))}
    yield Step(("python", "-m", "testcluster", "build"), env=paths)
    yield Step(("pytest", "-q", "--durations=15", *arguments))


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def first_bundle(examples: Path) -> Path:
    """The first evidence bundle of docs/examples, by name."""
    bundles = sorted(
        path for path in examples.iterdir() if path.is_dir() or path.suffix in (".json", ".log", ".gz")
    )
    if not bundles:
        raise Unready("docs/examples holds no evidence bundle.")
    return bundles[0]


def check_archive(archive: Path) -> None:
    """What is installed is what is needed at run time and its documentation, nothing of the workshop."""
    with tarfile.open(archive) as opened:
        tops = {name.split("/")[0] for name in opened.getnames()}
    needed = {"LICENSE", "README.md", "meta", "playbooks", "plugins", "roles"}
    wanted = needed | {"CHANGELOG.md", "FILES.json", "MANIFEST.json", "changelogs", "docs", "extensions"}
    wanted |= {"diagnose-oom.yml", "remediate-oom.yml"}
    if surplus := tops - wanted:
        raise Broken(
            f"the archive holds what isn't meant to ship (galaxy.yml, build_ignore): {sorted(surplus)}."
        )
    if missing := needed - tops:
        raise Broken(f"the archive lacks {sorted(missing)}.")


# -- running them --------------------------------------------------------------------------------------------


def run(gate: Gate) -> Outcome:
    started = time.monotonic()
    log = LOGS / f"{gate.name}.log"

    def outcome(result: str, note: str = "") -> Outcome:
        return Outcome(gate.name, result, time.monotonic() - started, log, note)

    with log.open("w", encoding="utf-8") as output:
        try:
            for step in gate.steps():
                if not passes(step, output, log):
                    return outcome("failed")
        except Unready as lack:
            return outcome("failed" if IN_CI else "skipped", str(lack))
        except (Broken, OSError, RuntimeError, subprocess.SubprocessError) as problem:
            return outcome("failed", str(problem))
    return outcome("passed")


def passes(step: Step, output, log: Path) -> bool:
    program, *arguments = map(str, step.argv)
    print(f"$ {program} {' '.join(arguments)}", file=output, flush=True)
    begin = log.stat().st_size
    ended = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=step.cwd,
        env={**environment(), **step.env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    said = log.read_bytes()[begin:].decode("utf-8", "replace")
    if step.forbidden and step.forbidden in said:
        print(f"This output must not say {step.forbidden!r}.", file=output, flush=True)
        return False
    return ended.returncode == 0


# What a caller may have set that would change a result.
CHANGING = (
    "ANSIBLE_",
    "GIT_",
    "K8S_AUTH_",
    "KUBECONFIG",
    "MOLECULE_",
    "PYTEST_",
    "PYTHON",
    "RUFF_",
    "VIRTUAL_ENV",
)


def environment() -> dict[str, str]:
    """The caller's environment without what would change a result, and our tools first on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(CHANGING)}
    ours = {"PATH": workplace.path_without_shims(), "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "PY_COLORS": "0"}
    return {**kept, **ours}


def pytest_closing_line(log: Path) -> str:
    """pytest's own last line (`12 passed in 3.45s`), for whoever reads how many tests ran."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    closing = re.compile(r"\d+ (passed|failed|errors?)\b.* in ")
    return next((line for line in reversed(lines) if closing.search(line)), "")


def show(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.result == "failed":
            print(f"\n--- {outcome.name} failed {'-' * (60 - len(outcome.name))}")
            text = outcome.log.read_text(encoding="utf-8", errors="replace").splitlines()
            if len(text) > 200:
                print(f"(the last 200 of {len(text)} lines; all are in {outcome.log.relative_to(ROOT)})")
            print("\n".join(text[-200:]))
            if outcome.note:
                print(outcome.note)
    width = max(len(outcome.name) for outcome in outcomes)
    print(f"\n{'gate':<{width}}  result   seconds")
    for outcome in outcomes:
        note = f"  {outcome.note}" if outcome.note else ""
        print(f"{outcome.name:<{width}}  {outcome.result:<7}  {outcome.seconds:7.1f}{note}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the gates of `make test`.")
    names = [gate.name for gate in GATES]
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which gates (default: all): {', '.join(names)}"
    )
    chosen = parser.parse_args().names or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"unknown gate {', '.join(unknown)}; there are {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    jobs = int(os.environ.get("GATES_JOBS") or (os.cpu_count() or 1) + 1)
    # The longest first, so that no long one is left alone at the end.
    gates = sorted((gate for gate in GATES if gate.name in chosen), key=lambda gate: -gate.seconds)
    by_name: dict[str, Outcome] = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, gate) for gate in gates]):
            outcome = done.result()
            by_name[outcome.name] = outcome
            print(f"{outcome.result:<7}  {outcome.name}  {outcome.seconds:.1f} s", flush=True)
    outcomes = [by_name[name] for name in names if name in by_name]
    show(outcomes)
    for name in ("unit", "cluster"):
        if name in by_name and (line := pytest_closing_line(by_name[name].log)):
            print(f"\n{name} tests: {line.strip('= ')}")
    counted = collections.Counter(outcome.result for outcome in outcomes)
    print(f"all gates took {time.monotonic() - started:.0f} s")
    skipped = f", {counted['skipped']} skipped" if counted["skipped"] else ""
    print(f"gates: {counted['passed']} passed, {counted['failed']} failed{skipped}")
    return 1 if counted["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
