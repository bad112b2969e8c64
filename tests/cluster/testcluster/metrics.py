# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""metrics-server, outside the cluster: an aggregated API that leads to a port of this machine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from . import Failed
from .addresses import free_ports
from .control_plane import ControlPlane
from .processes import Processes

_NAME, _NAMESPACE = "metrics-server", "kube-system"


def start(
    folder: Path, program: Path, control_plane: ControlPlane, processes: Processes, address: str
) -> None:
    """Start it and register v1beta1.metrics.k8s.io; the first figures are there after two scrapes (20 s)."""
    (port,) = free_ports(1)
    config = control_plane.admin_config
    processes.start(
        _NAME,
        [
            program,
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--secure-port={port}",
            f"--bind-address={address}",
            f"--cert-dir={folder / 'metrics-server-certificates'}",
            "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=5s",
        ],
    )
    registered = subprocess.run(
        [control_plane.programs / "kubectl", f"--kubeconfig={config}", "apply", "-f", "-"],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": _registration(address, port)}),
        capture_output=True,
        text=True,
        check=False,
    )
    if registered.returncode != 0:
        raise Failed(f"metrics-server can't be registered: {registered.stderr.strip()}")


def _registration(address: str, port: int) -> list[dict]:
    place = {"name": _NAME, "namespace": _NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": place,
            "spec": {"ports": [{"name": "https", "port": port, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**place, "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**place, "port": port},
            },
        },
    ]
