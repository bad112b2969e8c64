# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a refused bare pod means for the rollout. Messages: as Kubernetes 1.34's API server writes them."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import dry_run
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.places import Place

PLACE = Place("apps/v1", "Deployment", "llm", "llama", "deployments")
RECREATE = {"type": "Recreate"}
NO_SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def workload(kind="Deployment", memory="32Gi", pods=1, strategy=None, **spec):
    container = {"name": "vllm", "resources": {"limits": {"memory": memory, "nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": {"app": "llama"}}, "spec": {"containers": [container]}}
    key = "strategy" if kind == "Deployment" else "updateStrategy"
    given = {key: strategy} if strategy else {}
    return {
        "kind": kind,
        "metadata": {"name": "llama"},
        "spec": {"replicas": pods, "template": template, **given, **spec},
        "status": {"replicas": pods, "currentNumberScheduled": pods},
    }


class Server:
    """Refuses pods by ``said(pod)``: (status, message) or None."""

    def __init__(self, said):
        self.said, self.asked = said, []

    def ask(self, path, body, params=()):
        assert (path, list(params)) == ("/api/v1/namespaces/llm/pods", [("dryRun", "All")])
        self.asked.append(body)
        refused = self.said(body)
        if refused:
            raise ApiError(*refused)
        return body


def forbidden(rest):
    return lambda pod: (403, f'pods "llama-dry-run-x7k2p" is forbidden: {rest}')


def said(server, after, before=None):
    return dry_run.ask_for_pod(server, PLACE, before or after, after)


def quota(asked, used, hard):
    return forbidden(f"exceeded quota: gpu, requested: {asked}, used: {used}, limited: {hard}")


GPU = "requests.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("after", "used", "refused"),
    [
        (workload(strategy=RECREATE), 8, False),
        (workload(strategy=NO_SURGE), 8, False),
        (workload("StatefulSet"), 8, False),
        (workload("DaemonSet"), 8, False),
        (workload(), 8, True),
        (workload("DaemonSet", strategy={"rollingUpdate": {"maxSurge": 1}}), 8, True),
        # Nothing runs that could be deleted first.
        (workload(pods=0, strategy=RECREATE), 8, True),
        # Over the quota by more than its own pod.
        (workload(strategy=RECREATE), 9, True),
    ],
)
def test_a_full_quota_counts_the_pods_that_run_now(after, used, refused):
    found = said(Server(quota(f"{GPU}=1", f"{GPU}={used}", f"{GPU}=8")), after)
    assert bool(found.refused) is refused
    if refused:
        assert (
            f"ResourceQuota gpu would refuse its pods ({GPU}: a pod asks for 1, {used} of 8 are used"
            in found.refused
        )
    else:
        (note,) = found.notes
        assert note.endswith(f"which frees {GPU}=1")


def test_what_the_change_adds_must_fit_beside_what_is_freed():
    before, after = (workload(memory=size, strategy=RECREATE) for size in ("32Gi", "64Gi"))
    for hard, refused in (("127Gi", True), ("128Gi", False)):
        server = Server(quota("limits.memory=64Gi", "limits.memory=96Gi", f"limits.memory={hard}"))
        assert bool(said(server, after, before).refused) is refused


def test_all_replicas_go_first_where_they_are_recreated():
    after = workload(pods=4, strategy=RECREATE)
    asked = "limits.memory=32Gi,requests.memory=32Gi"
    full = "limits.memory=128Gi,requests.memory=128Gi"
    (note,) = said(Server(quota(asked, full, full)), after).notes
    assert "frees limits.memory=128.00 GiB, requests.memory=128.00 GiB" in note


def test_other_refusals_are_the_changes_only_where_the_old_pod_was_let_in():
    before, after = workload(), workload(memory="64Gi")
    words = "maximum memory usage per Container is 48Gi, but limit is 64Gi"

    def only_new(pod):
        memory = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        return forbidden(words)(pod) if memory == "64Gi" else None

    assert said(Server(only_new), after, before).refused == f"namespace llm would refuse its pods: {words}"
    found = said(
        Server(forbidden("unable to validate against any security context constraint")), after, before
    )
    assert found.refused is None
    assert "refuses a pod of the template as it is now with the same words" in found.notes[0]


def test_without_the_right_it_says_that_nobody_was_asked():
    words = 'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "llm"'
    found = said(Server(lambda pod: (403, words)), workload())
    assert found == (None, [dry_run.unasked(PLACE)])
    assert "needs create pods in namespace llm" in found.notes[0]


def test_a_server_that_is_gone_is_no_answer():
    with pytest.raises(ApiError):
        said(Server(lambda pod: (None, "nothing came in time")), workload())


def test_the_bare_pod_is_the_templates():
    raw = workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "cache"}}])
    before = copy.deepcopy(raw)
    pod = dry_run.pod_of(raw)
    assert pod["metadata"] == {"labels": {"app": "llama"}, "generateName": "llama-dry-run-"}
    assert pod["spec"]["volumes"] == [
        {"name": "cache", "persistentVolumeClaim": {"claimName": "cache-llama-0"}}
    ]
    assert raw == before
    assert dry_run.pod_of({"kind": "InferenceService", "spec": {"predictor": {}}}) is None


def test_usage_counts_as_a_quota_does():
    pod = {
        "spec": {
            "containers": [
                {"resources": {"limits": {"memory": "2Gi", "cpu": "1"}, "requests": {"cpu": "500m"}}},
                {"resources": {"limits": {"memory": "1Gi"}}},
            ],
            "initContainers": [{"resources": {"requests": {"cpu": "4"}}}],
        }
    }
    found = dry_run.usage_of(pod)
    assert {name: str(size) for name, size in found.items()} == {
        "requests.memory": str(3 * 2**30),
        "memory": str(3 * 2**30),
        "requests.cpu": "4",
        "cpu": "4",
        "limits.memory": str(3 * 2**30),
        "limits.cpu": "1",
        "pods": "1",
        "count/pods": "1",
    }
