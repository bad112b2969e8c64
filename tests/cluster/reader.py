# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service accounts of docs/examples/rbac-reader.yaml and rbac-writer.yaml, with real tokens, and with parts of their rights."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import yaml
from harness import Kubectl, wait_for
from testcluster import ROOT
from testcluster.cluster import Cluster
from testcluster.control_plane import kubeconfig

EXAMPLES = ROOT / "docs" / "examples"
READER, WRITER = "vllm-oom-reader", "vllm-oom-writer"


def manifest(namespace: str, file: str = "rbac-reader.yaml") -> list[dict]:
    """The manifest's objects, for that namespace and otherwise as they stand."""
    text = (EXAMPLES / file).read_text(encoding="utf-8").replace("namespace: llm", f"namespace: {namespace}")
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
    with granted(kubectl, manifest(namespace)):
        yield of_account(cluster, kubectl, namespace, READER)


@contextmanager
def granted(kubectl: Kubectl, objects: list[dict]) -> Iterator[None]:
    """Those roles and bindings, until the end."""
    kubectl.apply(objects)
    try:
        yield
    finally:
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(items))


def of_account(cluster: Cluster, kubectl: Kubectl, namespace: str, name: str) -> dict:
    """The kubeconfig of a service account, with a token of its own."""
    token = kubectl("create", "token", name, "-n", namespace).strip()
    return as_user(cluster, {"token": token}, namespace)


class Granted:
    """A manifest's roles as an account has them, and what is left of them."""

    def __init__(self, kubectl: Kubectl, namespace: str, objects: list[dict], account: str):
        self.kubectl, self.namespace, self.objects = kubectl, namespace, objects
        self.user = f"system:serviceaccount:{namespace}:{account}"
        self._left_out: set[tuple[str, str, str]] = set()

    def rights(self, *roles: str) -> set[tuple[str, str, str]]:
        """(role, API group, resource) of everything in those roles."""
        return {
            (item["metadata"]["name"], group, resource)
            for item in self.objects
            for rule in item.get("rules", ())
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            if item["metadata"]["name"] in roles
        }

    def without(self, *left_out: tuple[str, str, str]) -> None:
        """Grant everything but that; returns when the API server goes by it."""
        objects = copy.deepcopy(self.objects)
        for item in objects:
            for rule in item.get("rules", ()):
                place = (item["metadata"]["name"], rule["apiGroups"][0])
                rule["resources"] = [name for name in rule["resources"] if (*place, name) not in left_out]
            if "rules" in item:
                item["rules"] = [rule for rule in item["rules"] if rule["resources"]]
        self.kubectl.apply(objects)
        # One of each role that has changed: a role changes as a whole.
        for right in {right[0]: right for right in self._left_out ^ set(left_out)}.values():
            verb, namespace = self._asked_for(right)
            self.wait_until(right not in left_out, verb, right[2], right[1], namespace)
        self._left_out = set(left_out)

    def _asked_for(self, right: tuple[str, str, str]) -> tuple[str, str]:
        """The last verb of a right, the one that least else grants, and where it holds."""
        role, group, resource = right
        for item in self.objects:
            for rule in item.get("rules", ()):
                if (
                    item["metadata"]["name"] == role
                    and group in rule["apiGroups"]
                    and resource in rule["resources"]
                ):
                    return rule["verbs"][-1], item["metadata"].get("namespace", self.namespace)
        raise AssertionError(f"no such right: {right}")

    def wait_until(
        self, allowed: bool, verb: str, resource: str, group: str = "", namespace: str | None = None
    ) -> None:
        """Until the authorizer says so of the account: it hears of changed roles by a watch."""
        name, _slash, subresource = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": name, "namespace": namespace or self.namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self.user,
                "groups": ["system:authenticated"],
                "resourceAttributes": {**wanted, "subresource": subresource},
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

        def said() -> bool:
            answer = self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review))
            return json.loads(answer)["status"]["allowed"] is allowed

        wait_for(f"{'may' if allowed else 'may not'} {verb} {resource}", said, every=0.05)
