# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster leaves nothing behind, however it ends, and two don't disturb each other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness import Kubectl, wait_for
from manifests import busybox, pod
from testcluster import HOME, Failed, Missing, control_plane, programs
from testcluster.cluster import Cluster, own_cluster
from testcluster.processes import Processes

# Starts a cluster, says where, and waits to be ended.
PROGRAM = """
import signal, sys
from testcluster.cluster import own_cluster
# Whoever runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with own_cluster() as made:
    print(made.folder, flush=True)
    signal.pause()
"""


def start_program() -> tuple[subprocess.Popen, Cluster]:
    path = os.pathsep.join(str(HOME.parent / name) for name in ("cluster", "tools"))
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines = iter(started.stdout.readline, "")
    folder = next((line.strip() for line in lines if line.startswith("/")), None)
    assert folder, f"no cluster came up (the program ended with {started.wait()})"
    return started, Cluster(Path(folder))


def is_gone(cluster: Cluster) -> bool:
    return not any(cluster.left().values())


@pytest.mark.kubelet
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_nothing_is_left_of_a_cluster_whose_owner_is_ended(cluster, number):
    program, made = start_program()
    try:
        kubectl = Kubectl(made)
        kubectl.apply([pod("sleeper", busybox("sleeper", "sleep 1000"))])
        wait_for("the pod runs", lambda: kubectl.get("pod", "sleeper")["status"].get("phase") == "Running")
        there = made.left()
        # So that what is looked for below can be found at all.
        assert {kind for kind, found in there.items() if found} == set(there)
        program.send_signal(number)
        program.wait(timeout=60)
        wait_for("nothing is left", lambda: is_gone(made), seconds=60)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_not_even_a_folder_is_left_where_something_is_missing(cluster, monkeypatch):
    def lacks(program: programs.Program) -> Path:
        raise Missing("no Go, says the test")

    monkeypatch.setattr(programs, "build", lacks)
    # pytest's own folders have too long names for a cluster.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with pytest.raises(Missing, match="says the test"), own_cluster():
            pass
        assert list(Path(folder).iterdir()) == []


def test_nothing_is_left_of_a_cluster_that_does_not_start(cluster, monkeypatch, tmp_path):
    seen = []

    def fails(self) -> None:
        seen.append(Cluster(self.folder))
        raise Failed("as told by the test")

    monkeypatch.setattr(control_plane.ControlPlane, "wait_until_ready", fails)
    with pytest.raises(Failed, match="as told by the test"), own_cluster():
        pass
    assert is_gone(seen[0])


@pytest.mark.ours
@pytest.mark.kubelet
def test_two_clusters_run_side_by_side(cluster, kubectl):
    mine = kubectl.get("namespace", "kube-system")["metadata"]["uid"]
    with own_cluster() as second:
        other = Kubectl(second)
        assert other.get("namespace", "kube-system")["metadata"]["uid"] != mine
        other.apply([pod("sleeper", busybox("sleeper", "sleep 1000"))])
        wait_for("the pod runs", lambda: other.get("pod", "sleeper")["status"].get("phase") == "Running")
    assert is_gone(second)
    # The first one still answers, and its node is still there.
    conditions = kubectl.get("node", "gpu-node-1")["status"]["conditions"]
    assert {"Ready": "True"}.items() <= {item["type"]: item["status"] for item in conditions}.items()


@pytest.mark.ours
def test_its_secrets_are_readable_by_its_owner_only(cluster):
    assert cluster.folder.stat().st_mode & 0o077 == 0
    token = json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]["token"]
    assert token not in " ".join(word for kept in cluster.processes.known().values() for word in kept["argv"])


# Its first thread ends at once, and another one holds a port for a second: so ends a killed API server on a busy machine.
HOLDING = """
import ctypes, socket, threading, time
held = socket.create_server(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
threading.Thread(target=time.sleep, args=(1,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_threads_still_hold_its_port_runs(tmp_path):
    processes = Processes(tmp_path)
    processes.start("holding", [sys.executable, "-c", HOLDING])
    port = int(wait_for("its port", lambda: processes.log_tail("holding")))
    pid = processes.pid("holding")
    wait_for("its first thread has ended", lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text())
    assert processes.runs("holding")
    wait_for("it has ended", lambda: not processes.runs("holding"), every=0.01)
    socket.create_server(("127.0.0.1", port)).close()
    os.waitpid(pid, 0)
