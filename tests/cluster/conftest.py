# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fixtures that stand on a real cluster.

Which one: that of VLLM_OOM_TEST_KUBECONFIG, else one made for this session. A test says by a marker what it needs
beyond an API server; where the cluster lacks it the test is skipped with the reason, and fails under CI=true.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Audit, Kubectl, Runbook
from testcluster import Missing
from testcluster.cluster import (
    GIVEN,
    Cluster,
    ForeignCluster,
    at_kubeconfig,
    own_cluster,
    why_unreachable,
)

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def _lacking(reason: str) -> None:
    if IN_CI:
        pytest.fail(f"CI=true allows no skipped test: {reason}", pytrace=False)
    pytest.skip(reason)


def _given(kubeconfig: Path) -> Cluster | ForeignCluster:
    """The cluster of a kubeconfig; the session ends where there is none."""
    found = at_kubeconfig(kubeconfig) or ForeignCluster(kubeconfig)
    why = "there is no such file"
    if kubeconfig.is_file():
        why = why_unreachable(found.kubectl_program, kubeconfig)
    if why:
        pytest.exit(f"{GIVEN}={kubeconfig} can't be used: {why}", returncode=2)
    return found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster | ForeignCluster]:
    """The cluster of this session."""
    if given := os.environ.get(GIVEN):
        yield _given(Path(given))
        return
    try:
        with own_cluster() as made:
            yield made
    except Missing as lack:
        _lacking(str(lack))


def _check_markers(request: pytest.FixtureRequest) -> None:
    """Skip where a marker asks for what this cluster hasn't got."""
    for marker in ("kubelet", "ours"):
        if request.node.get_closest_marker(marker):
            lack = getattr(request.getfixturevalue("cluster"), f"without_{marker}")
            if lack:
                _lacking(lack)


@pytest.fixture(autouse=True, scope="module")
def _able_module(request: pytest.FixtureRequest) -> None:
    """By the module's own markers, before its fixtures write anything into the cluster."""
    _check_markers(request)


@pytest.fixture(autouse=True)
def _able(request: pytest.FixtureRequest) -> None:
    """By each test's markers."""
    _check_markers(request)


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(cluster)


@pytest.fixture(scope="session")
def runbook(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Runbook:
    """``runbook(namespace=..., pod=...)`` runs diagnose-oom.yml and returns a harness.Run."""
    return Runbook(cluster.kubeconfig, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def audit(cluster: Cluster) -> Audit:
    """What the API server was asked."""
    if cluster.without_ours:
        _lacking(cluster.without_ours)
    return Audit(cluster.control_plane.audit_log)


_numbers = itertools.count(1)


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new namespace, deleted after the test."""
    name = f"test-{next(_numbers)}-{os.getpid()}"
    kubectl("create", "namespace", name)
    # Until it is there, pods are refused.
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
