# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node: containerd and kubelet, whose containers really run, are throttled and are killed by the kernel."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from . import Failed, cgroups, leftovers
from .addresses import free_ports
from .control_plane import ControlPlane
from .debian import HostPrograms
from .processes import Processes

_READY_WITHIN_S = 60
PAUSE_IMAGE = "docker.io/local/pause:1"


@dataclass(frozen=True)
class NodeSettings:
    """gpus: how many nvidia.com/gpu it offers. memory_threshold: with less available than that it evicts.

    restart_period: the longest wait before a container that keeps ending is started again (kubelet's own: 5 min).
    """

    name: str
    gpus: int = 64
    memory_threshold: str = "100Mi"
    restart_period: str = "300s"


class Node:
    """One node in ``folder``, with its own containerd; several may run beside each other."""

    def __init__(
        self,
        folder: Path,
        settings: NodeSettings,
        control_plane: ControlPlane,
        host: HostPrograms,
        processes: Processes,
    ):
        self.folder = folder
        self.settings = settings
        self.control_plane = control_plane
        self.host = host
        self.processes = processes
        self.socket = folder / "containerd.sock"
        # The name of the cluster's folder makes it unlike that of another cluster.
        self.cgroup = f"{folder.parents[1].name}-{settings.name}"

    def start(self, address: str, images: Path) -> None:
        """Start containerd, give it the images of an OCI archive, start kubelet; returns when the node is Ready."""
        for name in ("kubelet", "pod-logs", "cni", "static-pods"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "settings.json").write_text(json.dumps(asdict(self.settings)))
        cgroups.make(self.cgroup)
        self._start_containerd(images)
        self._start_kubelet(address)
        self._wait_until_ready()
        self._offer_gpus()

    def stop(self) -> None:
        """Stop kubelet, kill the containers, stop containerd, take away what they leave."""
        self.processes.stop(self._process("kubelet"))
        cgroups.remove(self.cgroup)
        self.processes.stop(self._process("containerd"))
        leftovers.remove(self.folder)

    def _process(self, program: str) -> str:
        return f"{program}-{self.settings.name}"

    def _start_containerd(self, images: Path) -> None:
        # No pod gets a network of its own here (all use the host's), but kubelet wants a configuration.
        loopback = {"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
        (self.folder / "cni" / "10-loopback.conflist").write_text(json.dumps(loopback))
        config = self.folder / "containerd.toml"
        config.write_text(_containerd_config(self.folder, self.socket, self.host))
        self.processes.start(
            self._process("containerd"),
            [self.host.containerd, "--config", config],
            env={"PATH": self.host.path, "TMPDIR": str(self.folder)},
        )
        self._import(images)

    def _import(self, images: Path) -> None:
        command = [self.host.ctr, "--address", self.socket, "--namespace", "k8s.io", "images", "import"]
        end = time.monotonic() + _READY_WITHIN_S
        while True:
            done = subprocess.run(
                [*command, "--snapshotter", "native", images], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return
            if time.monotonic() > end or not self.processes.runs(self._process("containerd")):
                log = self.processes.log_tail(self._process("containerd"))
                raise Failed(f"containerd takes no images: {done.stderr.strip()}\n{log}")
            time.sleep(0.1)

    def _start_kubelet(self, address: str) -> None:
        (port,) = free_ports(1)
        config = self.folder / "kubelet.json"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "address": address,
                    "port": port,
                    "readOnlyPort": 0,
                    "healthzPort": 0,
                    # The API server comes in by its certificate, metrics-server by its token, nobody else.
                    "authentication": {
                        "anonymous": {"enabled": False},
                        "webhook": {"enabled": True},
                        "x509": {"clientCAFile": str(self.control_plane.kubelet_client_certificate)},
                    },
                    "authorization": {"mode": "Webhook"},
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": f"/{self.cgroup}",
                    "failSwapOn": False,
                    "makeIPTablesUtilChains": False,
                    "containerRuntimeEndpoint": f"unix://{self.socket}",
                    "podLogsDir": str(self.folder / "pod-logs"),
                    "staticPodPath": str(self.folder / "static-pods"),
                    "volumePluginDir": str(self.folder / "kubelet" / "volume-plugins"),
                    "resolvConf": "",
                    "maxPods": 250,
                    "imageGCHighThresholdPercent": 100,
                    "evictionHard": {
                        "memory.available": self.settings.memory_threshold,
                        "nodefs.available": "1%",
                    },
                    "evictionPressureTransitionPeriod": "5s",
                    "nodeStatusUpdateFrequency": "2s",
                    "syncFrequency": "5s",
                    "serializeImagePulls": False,
                    "featureGates": {"KubeletCrashLoopBackOffMax": True},
                    "crashLoopBackOff": {"maxContainerRestartPeriod": self.settings.restart_period},
                }
            )
        )
        self.processes.start(
            self._process("kubelet"),
            [
                self.control_plane.programs / "kubelet",
                f"--config={config}",
                f"--kubeconfig={self.control_plane.admin_config}",
                f"--root-dir={self.folder / 'kubelet'}",
                f"--cert-dir={self.folder / 'kubelet-certificates'}",
                f"--hostname-override={self.settings.name}",
                f"--node-ip={address}",
                # So that each of metrics-server's scrapes finds a new sample.
                "--housekeeping-interval=3s",
            ],
            env={"PATH": self.host.path},
        )

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [
                self.control_plane.programs / "kubectl",
                f"--kubeconfig={self.control_plane.admin_config}",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + _READY_WITHIN_S
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        while self.kubectl("get", "node", self.settings.name, "-o", ready).stdout != "True":
            if time.monotonic() > end or not self.processes.runs(self._process("kubelet")):
                raise Failed(
                    f"node {self.settings.name} isn't Ready: {self.processes.log_tail(self._process('kubelet'))}"
                )
            time.sleep(0.2)

    def _offer_gpus(self) -> None:
        """Kubelet keeps an extended resource that it didn't make itself."""
        offered = {"nvidia.com/gpu": str(self.settings.gpus)}
        patch = json.dumps({"status": {"capacity": offered, "allocatable": offered}})
        done = self.kubectl(
            "patch", "node", self.settings.name, "--subresource=status", "--type=merge", "-p", patch
        )
        if done.returncode != 0:
            raise Failed(f"node {self.settings.name} takes no GPUs: {done.stderr.strip()}")


def _containerd_config(folder: Path, socket: Path, host: HostPrograms) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE (as in a container) a lower score is refused, and runc with it.
    # The native snapshotter works on every file system.
    return f"""version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{host.cni}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{folder}/runc"
"""
