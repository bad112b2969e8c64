# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate runner and the copies that it works on: a gate that can't fail would be worse than none."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import gates
import pytest
import workplace


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gates, "LOGS", tmp_path)
    return tmp_path


def python_step(program: str, **more: str) -> gates.Step:
    return gates.Step(("python", "-c", program), **more)


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (python_step("print('fine')"), "passed"),
        (python_step("raise SystemExit(3)"), "failed"),
        (python_step("print('Skipping 3.9')", forbidden="Skipping"), "failed"),
        (python_step("print('nothing left out')", forbidden="Skipping"), "passed"),
    ],
)
def test_a_gate_is_what_its_step_says(step: gates.Step, result: str):
    assert gates.run(gates.Gate("one", 1, lambda: iter([step]))).result == result


def test_a_failed_step_ends_the_gate(logs: Path):
    steps = [python_step("raise SystemExit('first fails')"), python_step("print('second ran')")]
    outcome = gates.run(gates.Gate("two", 1, lambda: iter(steps)))
    said = outcome.log.read_text()
    assert outcome.result == "failed"
    assert "first fails" in said
    assert "second ran" not in said


def test_a_forbidden_word_of_an_earlier_step_is_not_held_against_a_later_one():
    steps = [python_step("print('Skipping')"), python_step("print('done')", forbidden="Skipping")]
    assert gates.run(gates.Gate("three", 1, lambda: iter(steps))).result == "passed"


@pytest.mark.parametrize(("in_ci", "result"), [(False, "skipped"), (True, "failed")])
def test_what_is_missing_is_a_failure_in_ci_only(in_ci: bool, result: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gates, "IN_CI", in_ci)

    def lacking():
        yield python_step("", cwd=gates.existing("tests/no-such-thing"))

    outcome = gates.run(gates.Gate("four", 1, lacking))
    assert (outcome.result, outcome.note) == (result, "tests/no-such-thing isn't there.")


def test_the_callers_settings_do_not_reach_a_gate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", "/elsewhere")
    monkeypatch.setenv("PATH", "/root/.pyenv/shims:/usr/bin")
    given = gates.environment()
    assert "ANSIBLE_COLLECTIONS_PATH" not in given
    assert given["PATH"].split(":") == [str(workplace.BIN), "/usr/bin"]


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("....\n12 passed in 3.45s\n", "12 passed in 3.45s"),
        ("FAILED a\n1 failed, 11 passed, 2 skipped in 61.02s (0:01:01)\n", "1 failed, 11 passed, 2 skipped in 61.02s (0:01:01)"),
        ("1 error in 0.19s\n", "1 error in 0.19s"),
        ("usage: pytest\n", ""),
    ],
)  # fmt: skip
def test_pytest_closing_line(log: str, line: str, tmp_path: Path):
    (tmp_path / "unit.log").write_text(log)
    assert gates.pytest_closing_line(tmp_path / "unit.log") == line


def archive_of(names: list[str], path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return path


NEEDED = [
    "LICENSE",
    "README.md",
    "meta/runtime.yml",
    "playbooks/a.yml",
    "plugins/a.py",
    "roles/a/tasks/main.yml",
]


def test_an_archive_with_what_is_needed_is_fine(tmp_path: Path):
    gates.check_archive(archive_of([*NEEDED, "docs/a.md"], tmp_path / "a.tar.gz"))


@pytest.mark.parametrize(
    ("names", "complaint"),
    [([*NEEDED, ".venv/bin/python"], r"isn't meant to ship.*\.venv"), (NEEDED[1:], "lacks.*LICENSE")],
)
def test_an_archive_with_too_much_or_too_little_is_refused(names: list[str], complaint: str, tmp_path: Path):
    with pytest.raises(gates.Broken, match=complaint):
        gates.check_archive(archive_of(names, tmp_path / "a.tar.gz"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that is no git repository, and a place for its copies."""
    root = tmp_path / "checkout"
    for name in ("README.md", "plugins/filter/one.py", ".venv/bin/python", "plugins/__pycache__/one.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    monkeypatch.setattr(workplace, "ROOT", root)
    monkeypatch.setattr(workplace, "WORK", tmp_path / "work")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return root


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_clean_copy_follows_the_checkout(checkout: Path):
    copy = workplace.clean_copy("one")
    assert copy.parts[-3:] == ("ansible_collections", "vllm_runbook", "oom")
    assert files_of(copy) == ["README.md", "plugins/filter/one.py"]

    (checkout / "plugins/filter/one.py").unlink()
    (checkout / "plugins/two.py").write_text("new")
    (checkout / "README.md").write_text("changed")
    (copy / "tests/output").mkdir(parents=True)
    (copy / "tests/output/cache").write_text("the tools' own")
    assert workplace.clean_copy("one") == copy
    assert files_of(copy) == ["README.md", "plugins/two.py", "tests/output/cache"]
    assert (copy / "README.md").read_text() == "changed"
    assert not (copy / "plugins/filter").exists()


def test_pyenv_shims_are_not_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shims = tmp_path / "shims"
    shims.mkdir()
    for folder, program in ((shims, "exit 0"), (tmp_path, "exit 127")):
        (folder / "python3.99").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "python3.99").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{tmp_path}")
    workplace.real_pythons.cache_clear()
    try:
        assert (3, 99) not in workplace.real_pythons()
    finally:
        workplace.real_pythons.cache_clear()
