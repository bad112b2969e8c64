# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, with real RBAC and an audit log."""

from __future__ import annotations

import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from . import Failed
from .addresses import free_ports
from .certificates import write_client_certificate, write_key_pair
from .processes import Processes

_READY_WITHIN_S = 60


class ControlPlane:
    """What runs from ``folder``; ``programs`` is the folder with the links (etcd, kube-apiserver, ...)."""

    def __init__(self, folder: Path, programs: Path, processes: Processes):
        self.folder = folder
        self.programs = programs
        self.processes = processes
        self.admin_config = folder / "admin.conf"
        self.audit_log = folder / "audit.log"
        # The API server's certificate for kubelets, at the same time the only one that they accept.
        self.kubelet_client_certificate = folder / "kubelet-client.crt"

    def start(self, address: str) -> None:
        """Start all four; returns when the API server is ready. ``address``: the machine's."""
        etcd, peers, api = free_ports(3)
        write_key_pair(self.folder / "service-accounts.key", self.folder / "service-accounts.pub")
        write_client_certificate(
            self.kubelet_client_certificate,
            self.folder / "kubelet-client.key",
            user="kube-apiserver",
            group="system:masters",
        )
        write_client_certificate(
            self.folder / "aggregator.crt", self.folder / "aggregator.key", user="aggregator"
        )
        token = secrets.token_hex(16)
        self._write_private("tokens.csv", f'{token},admin,admin,"system:masters"\n')
        self._write_config(self.admin_config, f"https://127.0.0.1:{api}", token)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        (self.folder / "audit.json").write_text(json.dumps(policy))
        self._start_etcd(etcd, peers)
        self._start_api_server(address, etcd, api)
        self.wait_until_ready()
        self._start_controllers()

    def wait_until_ready(self) -> None:
        """Until the API server says so. Raises Failed."""
        config = json.loads(self.admin_config.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        token = config["users"][0]["user"]["token"]
        asked = urllib.request.Request(f"{server}/readyz", headers={"Authorization": f"Bearer {token}"})
        # Its certificate is made by itself at the first start.
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        end = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < end:
            for name in ("etcd", "kube-apiserver"):
                if not self.processes.runs(name):
                    raise Failed(f"{name} ended: {self.processes.log_tail(name)}")
            try:
                with urllib.request.urlopen(asked, timeout=2, context=unchecked):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise Failed(
            f"kube-apiserver isn't ready after {_READY_WITHIN_S} s: {self.processes.log_tail('kube-apiserver')}"
        )

    def _start_etcd(self, port: int, peers: int) -> None:
        clients, between = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        self.processes.start(
            "etcd",
            [
                self.programs / "etcd",
                "--unsafe-no-fsync",
                f"--data-dir={self.folder / 'etcd-data'}",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={between}",
                f"--initial-advertise-peer-urls={between}",
                f"--initial-cluster=default={between}",
                "--log-level=warn",
            ],
        )

    def _start_api_server(self, address: str, etcd: int, port: int) -> None:
        self.processes.start(
            "kube-apiserver",
            [
                self.programs / "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                f"--cert-dir={self.folder / 'certificates'}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                f"--advertise-address={address}",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/24",
                f"--service-account-key-file={self.folder / 'service-accounts.pub'}",
                f"--service-account-signing-key-file={self.folder / 'service-accounts.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={self.kubelet_client_certificate}",
                f"--kubelet-client-key={self.folder / 'kubelet-client.key'}",
                # For metrics-server: there is no kube-proxy, so it is reached by its endpoint.
                "--enable-aggregator-routing=true",
                f"--proxy-client-cert-file={self.folder / 'aggregator.crt'}",
                f"--proxy-client-key-file={self.folder / 'aggregator.key'}",
                f"--requestheader-client-ca-file={self.folder / 'aggregator.crt'}",
                "--requestheader-allowed-names=aggregator",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--audit-policy-file={self.folder / 'audit.json'}",
                f"--audit-log-path={self.audit_log}",
                # A stop in the middle of a test shouldn't wait for watches to end.
                "--shutdown-delay-duration=0s",
            ],
        )

    def _start_controllers(self) -> None:
        without = ("node-ipam", "node-route", "cloud-node-lifecycle", "service-lb")
        self.processes.start(
            "kube-controller-manager",
            [
                self.programs / "kube-controller-manager",
                f"--kubeconfig={self.admin_config}",
                "--leader-elect=false",
                "--secure-port=0",
                "--use-service-account-credentials",
                f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
                f"--root-ca-file={self.folder / 'certificates' / 'apiserver.crt'}",
                f"--controllers=*,{','.join(f'-{name}-controller' for name in without)}",
                # By default it makes 20 pods a second.
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ],
        )
        self.processes.start(
            "kube-scheduler",
            [
                self.programs / "kube-scheduler",
                f"--kubeconfig={self.admin_config}",
                "--leader-elect=false",
                "--secure-port=0",
            ],
        )

    def _write_config(self, path: Path, server: str, token: str) -> None:
        certificate = self.folder / "certificates" / "apiserver.crt"
        config = kubeconfig(server, {"certificate-authority": str(certificate)}, token)
        self._write_private(path.name, json.dumps(config, indent=1))

    def _write_private(self, name: str, text: str) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def kubeconfig(server: str, trust: dict, token: str, namespace: str = "default") -> dict:
    """One cluster, one user, one context, all called ``test``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, **trust}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}
        ],
    }
