# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Go programs of the test cluster: the engine stand-in by its own tests, all of them by gofmt and go vet."""

from __future__ import annotations

import subprocess

import pytest
from testcluster import HOME, programs

SOURCES = HOME / "programs"


@pytest.mark.parametrize("command", [("vet", "./..."), ("test", "./...")], ids=lambda words: words[0])
def test_the_engine_stand_in(command):
    done = subprocess.run(
        [programs.go(), *command],
        cwd=SOURCES / "engine",
        env=programs.go_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_go_sources_are_formatted():
    done = subprocess.run([f"{programs.go()}fmt", "-l", SOURCES], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_each_module_is_tidy_about_what_it_builds():
    """go.sum holds what the build needs, so that a build never asks the checksum database."""
    for program in programs.ALL:
        done = subprocess.run(
            [programs.go(), "list", "-mod=readonly", "-deps", program.package],
            cwd=SOURCES / program.folder,
            env=programs.go_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
