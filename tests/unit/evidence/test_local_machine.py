# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and files of this machine: what hangs is given up, what is endless is cut, what isn't a file isn't opened."""

from __future__ import annotations

import os
import time

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.local_machine import Machine


@pytest.fixture
def machine(tmp_path):
    return Machine(timeout=5, root=str(tmp_path))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_command_that_ends(machine):
    command = machine.run("sh", "-c", "echo out; echo err >&2; exit 15")
    assert (command.text, command.errors, command.status, command.problem) == ("out\n", "err", 15, None)


def test_commands_speak_english_and_count_in_utc(machine):
    assert machine.run("sh", "-c", "echo $LC_ALL $TZ").text == "C UTC\n"


def test_a_command_that_is_not_there(machine):
    command = machine.run("no-such-nvidia-smi")
    assert (command.problem, command.text, command.status) == ("missing", "", None)


def test_a_command_that_may_not_be_executed(machine, tmp_path):
    (tmp_path / "smi").write_text("#!/bin/sh\n")
    assert machine.run(str(tmp_path / "smi")).problem == "refused"


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path):
    machine = Machine(timeout=0.5)
    started = time.monotonic()
    command = machine.run("sh", "-c", f"echo before; sleep 60 & echo $! > {tmp_path}/child; wait")
    assert time.monotonic() - started < 3
    assert (command.problem, command.text, command.is_stuck) == ("hangs", "before\n", False)
    child = int((tmp_path / "child").read_text())
    end = time.monotonic() + 3
    while alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(child)


def test_a_command_whose_child_keeps_the_output_open_ends_in_time():
    machine = Machine(timeout=0.5)
    started = time.monotonic()
    command = machine.run("sh", "-c", "sleep 60 & echo done")
    assert time.monotonic() - started < 3
    assert (command.problem, command.text) == ("hangs", "done\n")


def test_endless_output_ends_in_time_and_takes_no_memory():
    machine = Machine(timeout=0.5)
    seen = sum(1 for _line in machine.start("yes").lines())
    assert seen > 1000
    assert len(machine.run("yes").text) <= (16 << 20) + (64 << 10)


def test_lines_that_arrive_in_pieces(machine):
    command = machine.start("sh", "-c", "printf 'a'; sleep 0.1; printf 'b\\nc\\303\\244'")
    assert list(command.lines()) == ["ab", "cä"]
    assert command.status == 0


def test_much_complaint_is_cut_to_its_end(machine):
    command = machine.run("sh", "-c", "yes no | head -100000 >&2; echo last >&2")
    assert command.errors.endswith("no\nlast")
    assert len(command.errors) <= 8192


def test_a_file(machine, tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffb")
    assert machine.read("/file") == "a�b"
    assert machine.read_or_none("/none") is None
    with pytest.raises(FileNotFoundError):
        machine.read("/none")


def test_a_pipe_or_a_device_is_not_read(machine, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "zero")
    for path in ("/pipe", "/zero", "/"):
        assert machine.read_or_none(path) is None


def test_a_large_file_is_cut(machine, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * (1 << 20))
    assert len(machine.read("/large")) == 256 << 10


def test_files_of_the_kernel_have_no_size(tmp_path):
    assert Machine(timeout=1).read("/proc/self/status").startswith("Name:")


def test_programs_are_found_beside_path(tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "tool").chmod(0o755)
    machine = Machine(timeout=5, environ={"PATH": "/nowhere"}, folders=(str(tmp_path),))
    assert machine.has_program("tool")
    assert machine.run("tool").text == "here\n"
    assert not machine.has_program("sh")
