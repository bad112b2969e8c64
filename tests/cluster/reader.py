# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service account of docs/examples/rbac-reader.yaml, with a real token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import yaml
from harness import Kubectl
from testcluster import ROOT
from testcluster.cluster import Cluster
from testcluster.control_plane import kubeconfig

MANIFEST = ROOT / "docs" / "examples" / "rbac-reader.yaml"
READER = "vllm-oom-reader"


def manifest(namespace: str) -> list[dict]:
    """The manifest's objects, for that namespace and otherwise as they stand."""
    text = MANIFEST.read_text(encoding="utf-8").replace("namespace: llm", f"namespace: {namespace}")
    return yaml.safe_load(text)["items"]


def as_user(cluster: Cluster, user: Mapping, namespace: str) -> dict:
    """A kubeconfig of the cluster for somebody else than admin."""
    known = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    trust = {name: value for name, value in known.items() if name != "server"}
    made = kubeconfig(known["server"], trust, "", namespace)
    made["users"][0]["user"] = dict(user)
    return made


@contextmanager
def reader(cluster: Cluster, kubectl: Kubectl, namespace: str) -> Iterator[dict]:
    """The reader's kubeconfig, with every right of the manifest; what stands outside the namespace goes at the end."""
    objects = manifest(namespace)
    kubectl.apply(objects)
    token = kubectl("create", "token", READER, "-n", namespace).strip()
    try:
        yield as_user(cluster, {"token": token}, namespace)
    finally:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        kubectl("delete", "-f", "-", stdin=json.dumps(items))
