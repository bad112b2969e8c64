# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A namespace of 300 pods of which 30 are sick: what the API server is asked for, and what is said."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import fake_engines
import pytest
from fake_engines import DEATHS, engine_spec
from harness import Audit, Kubectl, Runbook
from in_process import connect
from manifests import owner
from testcluster import fleet
from testcluster.cluster import Cluster

NAMESPACE = f"fleet-{os.getpid()}"
NODES = [f"fake-{NAMESPACE}-{name}" for name in DEATHS]
PODS, SICK = 300, 30

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def sick(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The namespace; the names of its sick pods, each with what it died of."""
    started = time.monotonic()
    kubectl("create", "namespace", NAMESPACE)
    kubectl.apply(fleet.node(name, gpus=64) for name in NODES)
    # A Deployment and a node for each death, of equal parts.
    share, rest = divmod(PODS, len(DEATHS))
    deployments = []
    for number, (name, death) in enumerate(DEATHS.items()):
        spec = engine_spec(death, NODES[number])
        deployments.append(owner("Deployment", name, spec, replicas=share + (number < rest)))
    kubectl.apply(deployments, "-n", NAMESPACE)
    pods = fake_engines.wait_until_running(kubectl, NAMESPACE, PODS)
    # Every tenth pod, so of every Deployment some.
    dead = [(pod, DEATHS[pod["metadata"]["labels"]["app"]]) for pod in pods[:: PODS // SICK]]
    fake_engines.kill(kubectl, dead, tmp_path_factory.mktemp("logs"))
    print(f"{PODS} pods after {time.monotonic() - started:.1f} s")
    yield {pod["metadata"]["name"]: death.cause for pod, death in dead}
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "node", *NODES)


def _kind(entry: dict) -> str:
    """What was asked for, as a right is written."""
    about = entry.get("objectRef") or {"resource": entry["requestURI"]}
    words = (about["resource"], about.get("subresource"))
    return f"{entry['verb']} {'/'.join(filter(None, words))}"


def _query(entry: dict) -> dict[str, list[str]]:
    return parse_qs(urlsplit(entry["requestURI"]).query)


def test_only_the_sick_ones_are_read(sick: dict[str, str], runbook: Runbook, audit: Audit) -> None:
    mark, started = audit.mark(), time.monotonic()
    run = runbook(namespace=NAMESPACE)
    took = time.monotonic() - started

    assert run.evidence["counts"] == {"pods_seen": PODS, "engines": PODS, "suspicious": SICK}
    assert {pod["name"]: pod["verdict"]["cause"] for pod in run.diagnosis["pods"]} == sick
    assert run.evidence["unreadable"] == []
    assert f"Pods seen: {PODS}, vLLM engines: {PODS}, suspicious: {SICK}" in run.report

    # A log has two entries: when it begins and when it has ended.
    asked = list({entry["auditID"]: entry for entry in audit.since(mark)}.values())
    kinds = Counter(_kind(entry) for entry in asked)
    print(f"{len(asked)} requests, {took:.1f} s: {dict(kinds.most_common())}")
    logs = [entry for entry in asked if _kind(entry) == "get pods/log"]
    # They wait for their next attempt: what they died of is in the log of the one before.
    assert all(_query(entry)["previous"] == ["true"] for entry in logs)
    assert Counter(entry["objectRef"]["name"] for entry in logs) == Counter(list(sick))
    assert {entry["verb"] for entry in asked} == {"get", "list"}
    assert all(_query(entry)["limit"] == ["500"] for entry in asked if entry["verb"] == "list")
    # No pod is asked for by itself, and an owner not once for each of its pods.
    assert kinds["get pods"] == 0
    assert kinds["get deployments"] == kinds["get replicasets"] == len(DEATHS)
    # Beside logs, owners and nodes ten lists at most, and what kinds of autoscalers there are.
    assert len(asked) <= SICK + 3 * len(DEATHS) + 11


def test_a_list_comes_in_pages(sick: dict[str, str], cluster: Cluster, audit: Audit) -> None:
    mark = audit.mark()
    pages = connect(cluster.kubeconfig).pages(f"/api/v1/namespaces/{NAMESPACE}/pods", limit=70)
    names = [pod["metadata"]["name"] for pod in pages]
    assert len(names) == len(set(names)) == PODS
    assert set(sick) < set(names)
    assert ["continue" in _query(entry) for entry in audit.since(mark)] == [False, True, True, True, True]
