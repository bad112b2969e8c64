# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which broken pods are deleted once their template has changed, and what is said where that can't be done."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import stuck_pods
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.places import Place

PLACE = Place("apps/v1", "StatefulSet", "llm", "llama", "statefulsets")
PODS = "/api/v1/namespaces/llm/pods"
ENDED = {"state": {"terminated": {"exitCode": 1}}, "restartCount": 0}
STARTING = {"state": {"running": {}}, "restartCount": 0}


def stateful_set(seen=2, **spec):
    return {
        "kind": "StatefulSet",
        "metadata": {"uid": "u-set", "generation": 2},
        "spec": {"selector": {"matchLabels": {"b": "2", "app": "llama"}}, **spec},
        "status": {"observedGeneration": seen},
    }


def waiting(reason):
    return {"state": {"waiting": {"reason": reason}}, "restartCount": 0}


def pod(name="llama-0", engine=..., ready=False, owner="u-set", going=False, init=None):
    metadata = {"name": name, "uid": f"u-{name}", "ownerReferences": [{"uid": owner}]}
    if going:
        metadata["deletionTimestamp"] = "2026-11-30T07:00:00Z"
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    if engine is ...:
        engine = ENDED
    if engine:
        status["containerStatuses"] = [dict(engine, name="vllm")]
    if init:
        status["initContainerStatuses"] = [dict(init, name="fetch")]
    return {"metadata": metadata, "status": status}


class Cluster:
    """What the API server has and says. refusals: status of a pod's deletion, by its name; later: the object of each later look."""

    def __init__(self, *pods, refusals=None, later=(), unlisted=None):
        self.pods, self.refusals, self.later = pods, refusals or {}, list(later)
        self.unlisted = unlisted
        self.host, self.asked, self.deleted, self.pauses = "server", [], [], 0

    def get(self, path):
        self.asked.append(path)
        found = self.later.pop(0) if len(self.later) > 1 else self.later[0]
        if isinstance(found, Exception):
            raise found
        return found

    def pages(self, path, params):
        self.asked.append((path, params))
        if self.unlisted:
            raise self.unlisted
        yield from self.pods

    def delete(self, path, uid):
        name = path.rpartition("/")[2]
        if name in self.refusals:
            raise ApiError(self.refusals[name], "refused")
        self.deleted.append((path, uid))

    def pause(self, _seconds):
        self.pauses += 1


def delete(cluster, raw=None):
    return stuck_pods.delete_broken_pods(cluster, PLACE, raw or stateful_set())


@pytest.mark.parametrize(
    ("kind", "spec", "waits"),
    [
        ("StatefulSet", {}, True),
        ("StatefulSet", {"podManagementPolicy": "OrderedReady"}, True),
        ("StatefulSet", {"podManagementPolicy": "Parallel"}, False),
        ("StatefulSet", {"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}, True),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, True),
        ("DaemonSet", {"updateStrategy": {"type": "RollingUpdate"}}, False),
        ("DaemonSet", {}, False),
        ("Deployment", {"strategy": {"type": "Recreate"}}, False),
        ("LeaderWorkerSet", {}, False),
    ],
)
def test_which_controllers_wait(kind, spec, waits):
    cluster = Cluster(pod())
    raw = dict(stateful_set(**spec), kind=kind)
    assert stuck_pods.waits(raw) is waits
    assert delete(cluster, raw) == ((["llama-0"] if waits else []), [])
    assert bool(cluster.asked) is waits


@pytest.mark.parametrize(
    ("found", "deleted"),
    [
        (pod(engine=ENDED), True),
        (pod(engine=waiting("CrashLoopBackOff")), True),
        (pod(engine=waiting("ImagePullBackOff")), True),
        (pod(engine=dict(STARTING, restartCount=1)), True),
        # Nothing has taken it yet.
        (pod(engine=None), True),
        (
            pod(engine=waiting("PodInitializing"), init=dict(waiting("CrashLoopBackOff"), restartCount=3)),
            True,
        ),
        (pod(engine=STARTING), False),
        (pod(engine=waiting("ContainerCreating")), False),
        (pod(engine=waiting("PodInitializing"), init=STARTING), False),
        (pod(engine=STARTING, ready=True), False),
        (pod(engine=dict(STARTING, restartCount=7), ready=True), False),
        (pod(engine=ENDED, going=True), False),
        (pod(engine=ENDED, owner="u-other"), False),
    ],
    ids=[
        *("ended", "crash loop", "no image", "started again", "no node", "init crashes"),
        *("starts", "is made", "fetches", "ready", "ready again", "on its way out", "another's"),
    ],
)
def test_only_broken_pods_of_the_object_are_deleted(found, deleted):
    cluster = Cluster(found)
    assert delete(cluster) == ((["llama-0"], []) if deleted else ([], []))
    assert cluster.deleted == ([(f"{PODS}/llama-0", "u-llama-0")] if deleted else [])
    assert cluster.asked == [(PODS, {"labelSelector": "app=llama,b=2"})]


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_is_gone_is_no_matter(status):
    cluster = Cluster(pod("llama-1"), pod("llama-0"), refusals={"llama-0": status})
    assert delete(cluster) == (["llama-1"], [])


@pytest.mark.parametrize(
    ("status", "needs"), [(403, " (needs: delete pods in namespace llm)"), (500, ""), (None, "")]
)
def test_what_could_not_be_deleted_is_for_a_person_and_stops_no_other(status, needs):
    cluster = Cluster(pod("llama-1"), pod("llama-0"), refusals={"llama-0": status})
    sentence = f"StatefulSet/llama waits for its broken pod llama-0: kubectl -n llm delete pod llama-0{needs}"
    assert delete(cluster) == (["llama-1"], [sentence])


def test_pods_that_cannot_be_listed_are_said():
    deleted, said = delete(Cluster(unlisted=ApiError(403, "pods is forbidden")))
    assert deleted == []
    assert said == [
        "whether broken pods of StatefulSet/llama hold up the change isn't known: pods is forbidden"
    ]


def test_nothing_is_deleted_before_the_controller_has_seen_the_change():
    cluster = Cluster(pod(), later=[stateful_set(seen=1), stateful_set(seen=2)])
    assert delete(cluster, stateful_set(seen=1)) == (["llama-0"], [])
    assert cluster.asked == [PLACE.path, PLACE.path, (PODS, {"labelSelector": "app=llama,b=2"})]
    assert cluster.pauses == 2


def test_a_controller_that_never_looks_is_not_waited_for_for_ever():
    cluster = Cluster(pod(), later=[stateful_set(seen=1)])
    assert delete(cluster, stateful_set(seen=1)) == (["llama-0"], [])
    assert cluster.pauses == 20


@pytest.mark.parametrize("error", [ApiError(None, "no route"), DocumentError("no route")])
def test_a_server_that_goes_away_meanwhile_fails_nothing(error):
    cluster = Cluster(pod(), later=[error])
    deleted, (said,) = delete(cluster, stateful_set(seen=1))
    assert deleted == cluster.deleted == []
    assert said.startswith("whether broken pods of StatefulSet/llama hold up the change isn't known: ")
    assert "no route" in said
