# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a cluster, stop it, find one that is there."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import workplace

from . import HOME, Failed, Missing, cgroups, fleet, image, leftovers, metrics, programs
from .addresses import node_address
from .control_plane import ControlPlane
from .debian import host_programs
from .node import Node, NodeSettings
from .processes import Processes

GIVEN = "VLLM_OOM_TEST_KUBECONFIG"
_PREFIX = "vllm-oom-cluster-"
# A Unix socket's path may have 107 characters; containerd's lies 40 deep in the folder.
_LONGEST_FOLDER = 60


class Cluster:
    """A cluster in one folder, whose processes and audit log are at hand.

    without_kubelet: why no container really runs here, or None where they do.
    """

    without_ours = None

    def __init__(self, folder: Path):
        self.folder = folder
        self.processes = Processes(folder)
        self._settings = folder / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.conf"

    @property
    def kubectl_program(self) -> Path:
        return self.control_plane.programs / "kubectl"

    @property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(self.folder, Path(self._read()["programs"]), self.processes)

    @property
    def without_kubelet(self) -> str | None:
        return self._read()["without_kubelet"]

    def start(self, owner: int | None = None) -> None:
        """Start everything that this machine allows, in an empty folder.

        owner: the pid with whose end, however it ends, the cluster is taken down; None keeps it until ``stop``, once
        it is up (while it starts, this process is its owner).
        Raises Missing, Failed; what was started until then has been taken down.
        """
        if len(str(self.folder)) > _LONGEST_FOLDER:
            raise Failed(
                f"{self.folder} is too long a name for a cluster's folder (sockets lie in it): it may have "
                f"{_LONGEST_FOLDER} characters; set TMPDIR to a shorter folder."
            )
        kubernetes = programs.build(programs.KUBERNETES).parent
        kwok = programs.build(programs.KWOK)
        without = _why_no_kubelet()
        engine = None if without else programs.build(programs.ENGINE)
        metrics_server = None if without else programs.build(programs.METRICS_SERVER)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settings.write_text(json.dumps({"programs": str(kubernetes), "without_kubelet": without}))
        self._start_guard(owner or os.getpid())
        try:
            address = node_address()
            self.control_plane.start(address)
            fleet.start(self.folder, kwok, self.control_plane, self.processes, address)
            if engine:
                image.write_archive(self.folder / "images.tar", host_programs().busybox, engine)
                self.add_node(NodeSettings("gpu-node-1"))
                metrics.start(self.folder, metrics_server, self.control_plane, self.processes, address)
        except BaseException as problem:
            self.stop(keep_logs=isinstance(problem, Failed))
            raise
        if owner is None:
            self.processes.stop("guard")

    def why_broken(self) -> str | None:
        """What of it doesn't run or answer, or None where all of it does."""
        if not self._settings.exists() or not self.kubeconfig.exists():
            return "it was never up"
        ended = [name for name in self.processes.known() if name != "guard" and not self.processes.runs(name)]
        if ended:
            return f"{', '.join(ended)} ended"
        return why_unreachable(self.kubectl_program, self.kubeconfig)

    def add_node(self, settings: NodeSettings) -> Node:
        """A further node whose containers really run."""
        node = self._node(settings)
        node.start(node_address(), self.folder / "images.tar")
        return node

    def nodes(self) -> list[Node]:
        """The nodes with a kubelet, also of a cluster that another program started."""
        found = sorted((self.folder / "nodes").glob("*/settings.json"))
        return [self._node(NodeSettings(**json.loads(path.read_text()))) for path in found]

    def stop(self, keep_logs: bool = False) -> None:
        """Stop every process, and take away containers, cgroups, mounts and the folder.

        keep_logs: copy the processes' outputs to where they can be read afterwards.
        """
        for name in ("metrics-server", "kwok", "kube-scheduler", "kube-controller-manager"):
            self.processes.stop(name)
        for node in self.nodes():
            node.stop()
        for name in ("kube-apiserver", "etcd"):
            self.processes.stop(name)
        leftovers.remove(self.folder)
        if keep_logs:
            kept = workplace.WORK / "cluster-logs"
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for log in self.folder.glob("*.log"):
                shutil.copy(log, kept)
            print(f"test cluster: the logs of the start that failed are in {kept}", file=sys.stderr)
        # Last, so that it goes on with what an interrupted stop leaves.
        if self.processes.pid("guard") != os.getpid():
            self.processes.stop("guard")
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> dict[str, list]:
        """What of this cluster is on the machine, by kind; all empty after ``stop``."""
        names = {path.name for tree in cgroups.trees() for path in tree.glob(f"{self.folder.name}-*")}
        return {
            "processes": sorted(leftovers.processes(self.folder).values()),
            "mounts": leftovers.mounts(self.folder),
            "cgroups": [path for name in names for path in cgroups.existing(name)],
            "links": leftovers.log_links(self.folder),
            "folder": [self.folder] if self.folder.exists() else [],
        }

    def _node(self, settings: NodeSettings) -> Node:
        folder = self.folder / "nodes" / settings.name
        return Node(folder, settings, self.control_plane, host_programs(), self.processes)

    def _read(self) -> dict:
        return json.loads(self._settings.read_text())

    def _start_guard(self, owner: int) -> None:
        """A process outside our session that takes the cluster down when its owner ends, even by SIGKILL."""
        self.processes.start(
            "guard",
            [sys.executable, "-m", "testcluster", "guard", self.folder, str(owner)],
            env={"PYTHONPATH": os.pathsep.join(str(HOME.parent / name) for name in ("cluster", "tools"))},
        )


class ForeignCluster:
    """Somebody's cluster, used as it is: its nodes lack the test image, its processes are none of ours."""

    without_kubelet = "it can't be known whether the nodes of this cluster have the test image"
    without_ours = "the processes and the audit log of this cluster are out of reach"

    def __init__(self, kubeconfig: Path):
        self.kubeconfig = kubeconfig

    @property
    def kubectl_program(self) -> Path:
        return programs.build(programs.KUBERNETES).parent / "kubectl"


def why_unreachable(kubectl: Path, kubeconfig: Path) -> str | None:
    """Why the API server of a kubeconfig isn't ready, or None where it is."""
    asked = subprocess.run(
        [kubectl, f"--kubeconfig={kubeconfig}", "--request-timeout=10s", "get", "--raw", "/readyz"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if asked.returncode == 0 else asked.stderr.strip().splitlines()[-1]


def _why_no_kubelet() -> str | None:
    if os.geteuid() != 0:
        return "only root may run a kubelet and containers"
    try:
        host_programs()
    except Missing as lack:
        return str(lack)
    return None


def guard(folder: Path, owner: int) -> None:
    """Wait for the end of process ``owner``, then stop the cluster in ``folder`` if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(owner)], [], [])
    if folder.exists():
        Cluster(folder).stop()


@contextmanager
def own_cluster() -> Iterator[Cluster]:
    """A new cluster for this process, taken down at the end of the block."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix=_PREFIX)))
    try:
        cluster.start(owner=os.getpid())
        yield cluster
    finally:
        cluster.stop()


def standing_cluster() -> Cluster:
    """The one of ``make cluster-up`` of this checkout, whether it is up or not."""
    return Cluster(Path(tempfile.gettempdir()) / f"{_PREFIX}{workplace.WORK.name}")


def at_kubeconfig(path: Path) -> Cluster | None:
    """The cluster of ours whose admin.conf this is; None when somebody else made it."""
    folder = path.resolve().parent
    return Cluster(folder) if (folder / "cluster.json").exists() else None
