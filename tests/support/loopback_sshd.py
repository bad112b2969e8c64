# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real sshd on a free port of loopback, and a real journal, for three users: root, one who may read the journal, one who may nothing.

The two unprivileged users exist for this sshd alone: it runs in a mount namespace with /etc/passwd, /etc/group and /run of its own,
where a journald collects what the kernel has said. Nothing of the machine is changed. Where it has no sshd, Debian's package is
fetched and unpacked into the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import workplace

PACKAGES = ("openssh-server", "libwrap0")
PLAIN_USER, JOURNAL_USER = "vllmplain", "vllmjournal"
USERS = {PLAIN_USER: 64901, JOURNAL_USER: 64902}
JOURNALD = Path("/lib/systemd/systemd-journald")
JOURNAL_GROUP = "systemd-journal"
STARTS_WITHIN_S = 15
UNSHARED = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
# $1: the folder with our files; then sshd and its arguments. sshd wants an empty /run/sshd.
IN_NAMESPACE = f"""
set -e
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
if [ -f "$1/journald.conf" ]; then
  mount --bind "$1/journald.conf" /etc/systemd/journald.conf
  mkdir -p /run/systemd/journal /run/log/journal
  chgrp {JOURNAL_GROUP} /run/log/journal
  chmod 2755 /run/log/journal
  {JOURNALD} &
  until journalctl --quiet --lines=1 _TRANSPORT=kernel 2>/dev/null | grep -q .; do sleep 0.1; done
fi
shift
exec "$@"
"""


class Missing(Exception):
    """This machine can't have such an sshd; the message says why."""


@dataclass(frozen=True)
class Sshd:
    """A running sshd. ``key`` opens the account of each of the users."""

    port: int
    key: Path
    known_hosts: Path
    log: Path

    def variables(self, user: str) -> dict[str, str]:
        """Inventory variables of a host that is reached through it."""
        options = (
            f"-o UserKnownHostsFile={self.known_hosts} -o IdentitiesOnly=yes -o ControlMaster=no -F none"
        )
        return {
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": str(self.port),
            "ansible_user": user,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": options,
            "ansible_python_interpreter": "/usr/bin/python3",
        }


@contextmanager
def loopback_sshd(folder: Path):
    """An Sshd that ends with the block. folder: one that other users may enter. Raises Missing."""
    if os.geteuid() != 0:
        raise Missing("an sshd for two users takes root")
    for tool in ("ssh", "ssh-keygen", "unshare"):
        if not shutil.which(tool):
            raise Missing(f"no {tool} on this machine")
    program, libraries = _sshd()
    sshd, arguments = _configure(folder)
    process = _start(program, libraries, folder, arguments, sshd.log)
    try:
        _wait_for(sshd, process)
        yield sshd
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=10)


def has_journal() -> bool:
    """Whether this machine has a journald for the journal to come from."""
    return JOURNALD.exists() and f"\n{JOURNAL_GROUP}:" in Path("/etc/group").read_text()


def _configure(folder: Path) -> tuple[Sshd, list[str]]:
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    keys = folder / "authorized_keys"
    keys.write_bytes((folder / "user_key.pub").read_bytes())
    keys.chmod(0o644)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    accounts, groups = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
    if "\nsshd:" not in accounts:
        accounts += "sshd:*:64900:65534::/run/sshd:/usr/sbin/nologin\n"
    for user, uid in USERS.items():
        home = folder / user
        home.mkdir()
        os.chown(home, uid, uid)
        accounts += f"{user}:*:{uid}:{uid}::{home}:/bin/sh\n"
    members = re.compile(rf"^({JOURNAL_GROUP}:[^:]*:\d+:.*?),?$", re.M)
    (folder / "passwd").write_text(accounts)
    (folder / "group").write_text(members.sub(rf"\1,{JOURNAL_USER}", groups).replace(":,", ":"))
    if has_journal():
        # Audit=: leave the kernel's auditing as it is, which journald would turn on.
        (folder / "journald.conf").write_text("[Journal]\nStorage=volatile\nAudit=\n")
    (folder / "sshd_config").write_text(
        f"""Port {port}
ListenAddress 127.0.0.1
HostKey {folder / "host_key"}
PidFile none
AuthorizedKeysFile {keys}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers root {" ".join(USERS)}
Subsystem sftp internal-sftp
"""
    )
    sshd = Sshd(port, folder / "user_key", folder / "known_hosts", folder / "sshd.log")
    return sshd, ["-D", "-e", "-f", str(folder / "sshd_config")]


def _start(program: Path, libraries: str, folder: Path, arguments: list[str], log: Path) -> subprocess.Popen:
    with log.open("w") as errors:
        return subprocess.Popen(
            [*UNSHARED, IN_NAMESPACE, "sh", folder, program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            start_new_session=True,
        )


def _wait_for(sshd: Sshd, process: subprocess.Popen) -> None:
    end = time.monotonic() + STARTS_WITHIN_S
    while True:
        if process.poll() is not None:
            raise Missing(f"sshd did not start: {sshd.log.read_text().strip()[-500:]}")
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", sshd.port)) == 0:
                return
        if time.monotonic() > end:
            raise Missing(f"sshd does not answer: {sshd.log.read_text().strip()[-500:]}")
        time.sleep(0.05)


def _sshd() -> tuple[Path, str]:
    """``(sshd, the folders of its libraries)``: those of the machine, else of the Debian packages."""
    installed = Path("/usr/sbin/sshd")
    if installed.exists():
        return installed, ""
    root = workplace.CACHE / "programs" / "sshd"
    program = root / "usr/sbin/sshd"
    if not program.exists():
        _unpack(root)
    libraries = [path.parent for path in root.glob("usr/lib/*/libwrap.so.0")]
    return program, os.pathsep.join(map(str, libraries))


def _unpack(root: Path) -> None:
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise Missing(f"no sshd on this machine, and no {tool} to fetch it with: install openssh-server")
    downloads = root.parent / "sshd-packages"
    lists = downloads / "lists"
    for folder in (downloads, lists / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    # Own package lists: the machine's may be empty or old.
    options = ("-q", "-o", f"Dir::State::lists={lists}", "-o", "APT::Sandbox::User=")
    for command in (("update",), ("download", *PACKAGES)):
        done = subprocess.run(
            ["apt-get", *options, *command], cwd=downloads, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Missing(f"no sshd on this machine, and apt-get {command[0]} failed: {done.stderr[-300:]}")
    partial = root.with_suffix(".partial")
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, partial], check=True)
    shutil.rmtree(downloads)
    partial.rename(root)
