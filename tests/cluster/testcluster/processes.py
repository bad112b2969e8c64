# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's processes: each in a session of its own, known by pid and start time, stopped by nothing else.

A pid alone may have been given to somebody else's process since.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def start_time(pid: int) -> str | None:
    """The kernel's start time of a process, in clock ticks; None when it has ended (also as a zombie).

    A zombie with other threads hasn't: they still hold its files and its ports.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    state, threads, started = fields[0], int(fields[17]), fields[19]
    return None if state in "ZX" and threads <= 1 else started


class Processes:
    """What was started from one folder, kept in its processes.json so that another program can stop it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._file = folder / "processes.json"

    def known(self) -> dict[str, dict]:
        """name -> {pid, start, argv, env} in the order of their start."""
        try:
            return json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Start it with its output in NAME.log; a second start of the same name appends there."""
        argv = [str(word) for word in argv]
        with (self.folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        known = self.known()
        known.pop(name, None)
        known[name] = {
            "pid": started.pid,
            "start": start_time(started.pid),
            "argv": argv,
            "env": dict(env or {}),
        }
        self._save(known)

    def restart(self, name: str) -> None:
        """Start again, as it was, what has been stopped."""
        kept = self.known()[name]
        self.start(name, kept["argv"], kept["env"])

    def runs(self, name: str) -> bool:
        kept = self.known().get(name)
        return bool(kept and kept["start"]) and start_time(kept["pid"]) == kept["start"]

    def pid(self, name: str) -> int | None:
        """Its pid while it runs."""
        return self.known()[name]["pid"] if self.runs(name) else None

    def stop(self, name: str, patience_s: float = 20) -> None:
        """Ask it to end, and kill it when it hasn't after ``patience_s``. Returns when it is gone."""
        if not self.runs(name):
            return
        pid = self.known()[name]["pid"]
        for number, patience in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            end = time.monotonic() + patience
            while time.monotonic() < end:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                if not self.runs(name):
                    return
                time.sleep(0.02)

    def log_tail(self, name: str, lines: int = 5) -> str:
        """The last lines of what it printed."""
        try:
            text = (self.folder / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _save(self, known: dict[str, dict]) -> None:
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(known, indent=1))
        unfinished.rename(self._file)
