# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading files and running commands on the machine that this runs on, each within a time and a size.

A command that hangs in the kernel (nvidia-smi on a GPU that is gone) can't be killed: it is left behind, never waited for.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import stat
import subprocess
import time
from typing import Any

_FILE = 256 << 10
_OUTPUT = 16 << 20
_ERRORS = 8 << 10
_CHUNK = 64 << 10
_DIES_WITHIN_S = 0.3
# Where a login shell of root would look too, and where GKE puts NVIDIA's programs.
_FOLDERS = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/opt/rocm/bin",
    "/usr/local/nvidia/bin", "/home/kubernetes/bin/nvidia/bin",
)  # fmt: skip


class Machine:
    """timeout: seconds that one command may take; root: the folder that stands for ``/`` where files are read; environ: as
    os.environ; folders: where commands are looked for beside PATH."""

    def __init__(self, timeout, root="/", environ=None, folders=_FOLDERS):
        self.timeout = timeout
        self.root = root.rstrip("/")
        self.environ = dict(os.environ if environ is None else environ)
        given = self.environ.get("PATH", "").split(os.pathsep)
        path = os.pathsep.join([*filter(None, given), *(name for name in folders if name not in given)])
        self._command_environ = dict(self.environ, PATH=path, LC_ALL="C", TZ="UTC")

    def read(self, path):
        """The text of a regular file, at most 256 KiB of it. Raises OSError, also for a pipe or a device."""
        descriptor = os.open(self.root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{path} isn't a regular file")
            chunks, size = [], 0
            while size < _FILE:
                chunk = os.read(descriptor, _FILE - size)
                if not chunk:
                    break
                chunks.append(chunk)
                size += len(chunk)
        finally:
            os.close(descriptor)
        return b"".join(chunks).decode("utf-8", "replace")

    def read_or_none(self, path):
        """The same, None where it can't be read."""
        try:
            return self.read(path)
        except OSError:
            return None

    def names(self, path):
        """The names in a folder, sorted; none where it can't be read."""
        try:
            return sorted(os.listdir(self.root + path))
        except OSError:
            return []

    def link(self, path):
        """What a symbolic link says, or None."""
        try:
            return os.readlink(self.root + path)
        except OSError:
            return None

    def exists(self, path):
        return os.path.exists(self.root + path)

    def has_program(self, name):
        """Whether a command of this name would be found."""
        return shutil.which(name, path=self._command_environ["PATH"]) is not None

    def file_system(self, path):
        """``(size, used)`` in bytes of the file system at ``path``. Raises OSError."""
        found = os.statvfs(self.root + path)
        return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize

    def run(self, *argv):
        """A Command that has ended, its output in ``text``."""
        command = Command(argv, self.timeout, self._command_environ)
        command.text = b"".join(command.chunks(_OUTPUT)).decode("utf-8", "replace")
        return command

    def start(self, *argv):
        """A Command whose ``lines`` are for the caller to read."""
        return Command(argv, self.timeout, self._command_environ)

    def kernel_records(self):
        """The records of /dev/kmsg, which ends where a reader would have to wait for the next one. Raises OSError."""
        descriptor = os.open(self.root + "/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._records(descriptor)

    def _records(self, descriptor):
        end = time.monotonic() + self.timeout
        try:
            while time.monotonic() < end:
                try:
                    record = os.read(descriptor, 8192)
                except BrokenPipeError:  # overwritten while it was to be read
                    continue
                except BlockingIOError:
                    return
                if not record:
                    return
                yield from record.decode("utf-8", "replace").splitlines()
        finally:
            os.close(descriptor)


class Command:
    """A command that was started.

    After its output was read: status (exit code, None if it didn't end), errors (the end of what it wrote to standard error) and
    problem (None, "missing", "refused", or "hangs").
    """

    def __init__(self, argv, timeout, environ):
        self.name = " ".join(argv)
        self.status = None
        self.text = ""
        self.errors = ""
        self.problem = None
        self.is_stuck = False
        self._timeout = timeout
        self._process: Any = None
        try:
            # AnsibleModule.run_command has no time after which it gives up, and waits for what can't be killed.
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                start_new_session=True,
            )
        except FileNotFoundError:
            self.problem = "missing"
        except OSError:
            self.problem = "refused"

    def chunks(self, limit=None):
        """What it prints (bytes), at most ``limit`` bytes; it is killed when its time is over."""
        process = self._process
        if process is None:
            return
        end = time.monotonic() + self._timeout
        errors, size = b"", 0
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                left = end - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    self.problem = "hangs"
                    break
                for key, _events in ready:
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        errors = (errors + chunk)[-_ERRORS:]
                    elif limit is None or size < limit:
                        size += len(chunk)
                        yield chunk
        self.errors = errors.decode("utf-8", "replace").strip()
        process.stdout.close()
        process.stderr.close()
        self._end(process)

    def lines(self):
        """What it prints, line by line (str)."""
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    def _end(self, process):
        if not self.problem:
            try:
                self.status = process.wait(_DIES_WITHIN_S)
                return
            except subprocess.TimeoutExpired:
                self.problem = "hangs"
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_DIES_WITHIN_S)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            self.is_stuck = True
