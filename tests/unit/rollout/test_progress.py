# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a rollout is, who died, what is in the way: objects as the API server shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import progress

NOW = datetime(2026, 11, 30, 7, 10, tzinfo=UTC)
SINCE = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
BEFORE, AFTER = "2026-11-30T06:00:00Z", "2026-11-30T07:01:00Z"


def pod(
    name="p", *, labels=None, made=AFTER, ready=True, state=None, last=None, restarts=0, owner=None, **more
):
    status = {"name": "vllm", "state": state or {"running": {}}, "restartCount": restarts}
    if last:
        status["lastState"] = {"terminated": last}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": made,
            "labels": labels or {},
            "ownerReferences": [owner] if owner else [],
            **more.pop("metadata", {}),
        },
        "spec": {"containers": [{"name": "vllm", "command": ["vllm", "serve"]}], **more.pop("spec", {})},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [status],
            **more.pop("status", {}),
        },
    }


def deployment(**status):
    counts = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": "d",
            "uid": "uid-d",
            "generation": 3,
            "annotations": {"deployment.kubernetes.io/revision": "2"},
        },
        "spec": {"replicas": 2, "template": template("new")},
        "status": {**counts, **status},
    }


def template(image, **labels):
    return {"metadata": {"labels": {"app": "d", **labels}}, "spec": {"containers": [{"image": image}]}}


def replica_set(revision, code, owner="uid-d", image=None, made=BEFORE):
    return {
        "metadata": {
            "labels": {"pod-template-hash": code},
            "annotations": {"deployment.kubernetes.io/revision": revision},
            "ownerReferences": [{"uid": owner}],
            "creationTimestamp": made,
        },
        "spec": {"template": template(image or code, **{"pod-template-hash": code})},
    }


SETS = [
    replica_set("1", "old"),
    # Of two with the same template the controller takes the one that was first.
    replica_set("2", "second", image="new", made=AFTER),
    replica_set("2", "new"),
    replica_set("2", "strange", owner="other", image="new", made="2020-01-01T00:00:00Z"),
]
NEW, OLD = {"pod-template-hash": "new"}, {"pod-template-hash": "old"}


def of_deployment(raw, pods, generation=None, sets=None):
    return progress.progress_of(raw, pods, None, generation, SETS if sets is None else sets)


def test_a_deployment_is_finished_when_all_pods_are_new_and_available():
    done, new = of_deployment(deployment(), [pod("a", labels=NEW), pod("b", labels=NEW)])
    assert (done.finished, done.desired, done.updated, done.ready, done.old) == (True, 2, 2, 2, 0)
    assert [progress.name_of(item) for item in new] == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"observedGeneration": 2}, "its controller hasn't seen the change"),
        ({"updatedReplicas": 1}, "1 of 2 pods updated"),
        ({"availableReplicas": 1}, "2 of 2 pods updated"),
        ({"replicas": 3}, "2 of 2 pods updated"),
    ],
)
def test_a_deployment_is_not_finished(status, why):
    done, _new = of_deployment(deployment(**status), [pod("a", labels=NEW), pod("b", labels=NEW)])
    assert not done.finished
    assert why in done.sentence


def test_an_old_pod_is_left_unless_it_is_going():
    pods = [pod("a", labels=NEW), pod("b", labels=NEW)]
    assert not of_deployment(deployment(), [*pods, pod("c", labels=OLD)])[0].finished
    going = pod("c", labels=OLD, metadata={"deletionTimestamp": AFTER})
    assert of_deployment(deployment(), [*pods, going])[0].finished


def test_pods_that_a_change_only_takes_away_yet_are_old():
    """With Recreate the change is observed and the revision is still that of before, until the last old pod is gone."""
    raw = deployment(updatedReplicas=0, availableReplicas=0)
    raw["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    pods = [pod("a", labels=OLD), pod("b", labels=OLD, metadata={"deletionTimestamp": AFTER})]
    done, new = of_deployment(raw, pods, sets=[replica_set("1", "old")])
    assert (done.observed, done.updated, done.old, new) == (True, 0, 1, [])


def test_a_generation_that_the_object_has_not_yet_is_waited_for():
    pods = [pod("a", labels=NEW), pod("b", labels=NEW)]
    assert of_deployment(deployment(), pods, generation=3)[0].finished
    assert not of_deployment(deployment(), pods, generation=4)[0].finished


def stateful_set(update=None, **spec):
    return {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": "s", "uid": "uid-s", "generation": 1},
        "spec": {"replicas": 3, "updateStrategy": update or {}, **spec},
        "status": {"observedGeneration": 1, "updateRevision": "r2", "replicas": 3},
    }


def ordinals(*revisions, **more):
    return [
        pod(f"s-{n}", labels={"controller-revision-hash": code}, **more) for n, code in enumerate(revisions)
    ]


def test_pods_below_a_partition_stay_as_they_are():
    halves = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    done, new = progress.progress_of(stateful_set(halves), ordinals("r1", "r1", "r2"), None, None)
    assert (done.finished, done.desired, done.old) == (True, 1, 0)
    assert [progress.name_of(item) for item in new] == ["s-2"]
    done, _new = progress.progress_of(stateful_set(halves), ordinals("r1", "r1", "r1"), None, None)
    assert (done.finished, done.old) == (False, 1)


def test_ordinals_may_start_elsewhere():
    raw = stateful_set({"rollingUpdate": {"partition": 2}}, ordinals={"start": 1}, replicas=2)
    pods = [pod(f"s-{n}", labels={"controller-revision-hash": code}) for n, code in ((1, "r1"), (2, "r2"))]
    done, _new = progress.progress_of(raw, pods, None, None)
    assert (done.finished, done.desired) == (True, 1)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_on_delete_names_the_pods_to_delete(kind):
    raw = dict(stateful_set({"type": "OnDelete"}), kind=kind)
    if kind == "DaemonSet":
        raw["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
        raw["status"].update(desiredNumberScheduled=1)
    done, _new = progress.progress_of(raw, ordinals("r1"), None, None)
    assert done.to_delete == ("s-0",)
    assert done.by_hand.endswith("kubectl delete pod s-0")


def test_a_broken_pod_holds_up_an_ordered_statefulset_only():
    crashing = {"waiting": {"reason": "CrashLoopBackOff"}}
    pods = ordinals("r1", ready=False, state=crashing)
    assert progress.progress_of(stateful_set(), pods, None, None)[0].to_delete == ("s-0",)
    parallel = stateful_set(podManagementPolicy="Parallel")
    assert progress.progress_of(parallel, pods, None, None)[0].blockers == ()
    starting = progress.progress_of(stateful_set(), ordinals("r1", ready=False), None, None)[0]
    assert (starting.blockers, starting.to_delete) == (("s-0",), ())


def test_a_daemonset_counts_by_its_template():
    raw = {
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": "x", "generation": 2, "annotations": {"deprecated.daemonset.template.generation": "2"}},
        "status": {
            "observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2,
        },
    }  # fmt: skip
    pods = [pod(name, labels={"pod-template-generation": "2"}) for name in "ab"]
    assert progress.progress_of(raw, pods, None, None)[0].finished
    pods[0]["metadata"]["labels"]["pod-template-generation"] = "1"
    assert not progress.progress_of(raw, pods, None, None)[0].finished


OTHER = {
    "kind": "RayService",
    "apiVersion": "ray.io/v1",
    "metadata": {"name": "o", "uid": "uid-o", "generation": 5},
}


def test_another_kind_goes_by_the_pods_made_since():
    def finished(*pods):
        return progress.progress_of(OTHER, list(pods), SINCE, None)[0].finished

    assert not finished()
    assert not finished(pod(made=BEFORE))
    assert not finished(pod("a", made=BEFORE), pod("b"))
    assert not finished(pod(ready=False))
    assert finished(pod())
    # The API's times are whole seconds: a pod of the same second may be the new one.
    assert finished(pod(made="2026-11-30T07:00:00Z"))


def test_another_kind_waits_for_what_is_below_it():
    below = deployment(updatedReplicas=1)
    done = progress.progress_of(OTHER, [pod()], SINCE, None, SETS, [below])[0]
    assert (done.finished, done.desired) == (False, 2)


# -- deaths

DEAD = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": AFTER}


def test_any_end_in_a_pod_made_since_counts():
    sentence = "container vllm of pod p ended with exit code 137 (OOMKilled)"
    assert progress.death_of(pod(state={"terminated": DEAD}), SINCE) == sentence
    # It runs and is ready again: it died all the same, whatever the node's clock says.
    assert progress.death_of(pod(last=dict(DEAD, finishedAt=BEFORE), restarts=1), SINCE) == sentence
    assert progress.death_of(pod(state={"terminated": {"exitCode": 0}}), SINCE)
    assert progress.death_of(pod(), SINCE) is None


def test_in_an_older_pod_only_what_ended_since_counts():
    assert progress.death_of(pod(made=BEFORE, last=DEAD, restarts=1), SINCE)
    assert progress.death_of(pod(made=BEFORE, last=dict(DEAD, finishedAt=BEFORE), restarts=1), SINCE) is None


def test_without_a_change_only_what_keeps_it_from_running_counts():
    assert progress.death_of(pod(last=DEAD, restarts=4), None) is None
    crashing = pod(last=DEAD, restarts=4, state={"waiting": {"reason": "CrashLoopBackOff"}})
    assert "137" in progress.death_of(crashing, None)


def test_restarts_up_to_the_baseline_do_not_count():
    once = pod(last=DEAD, restarts=1)
    assert progress.death_of(once, SINCE, {"uid-p": 1}) is None
    assert progress.death_of(once, SINCE, {"uid-p": 0})


def test_an_end_in_good_order_is_no_death():
    going = pod(state={"terminated": {"exitCode": 143}}, metadata={"deletionTimestamp": AFTER})
    assert progress.death_of(going, SINCE) is None


def test_an_eviction_is_one():
    evicted = pod(status={"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
    assert progress.death_of(evicted, SINCE) == "pod p failed: Evicted: low on memory"


def test_an_init_container_that_fails_is_one_and_one_that_is_done_is_none():
    def with_init(code):
        state = {"terminated": {"exitCode": code, "finishedAt": AFTER}}
        return pod(status={"initContainerStatuses": [{"name": "fetch", "state": state}]})

    assert progress.death_of(with_init(0), SINCE) is None
    assert "init container fetch" in progress.death_of(with_init(1), SINCE)


def test_a_sidecar_is_not_the_engine():
    two = pod()
    two["status"]["containerStatuses"].append({"name": "side", "state": {"terminated": DEAD}})
    assert progress.death_of(two, SINCE) is None


# -- what is in the way


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def problems(*pods, raw=None, events=(), nodes=None, others=()):
    raw = raw or deployment()
    done = progress.progress_of(raw, list(pods), None, None, SETS)[0]
    found = progress.problems_of(raw, [*pods, *others], list(pods), events, nodes or {}, NOW, SINCE, done)
    return [(item.sentence, item.final) for item in found]


def unplaced(seconds, reason="Unschedulable"):
    condition = {
        "type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": ago(seconds),
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }  # fmt: skip
    return pod(ready=False, status={"conditions": [condition], "containerStatuses": []})


def test_no_room_is_named_at_once_and_final_when_nothing_makes_room():
    sentence = "pod p finds no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert problems(unplaced(45)) == [(sentence, False)]
    assert problems(unplaced(90)) == [(sentence, True)]
    going = pod("old", metadata={"deletionTimestamp": AFTER})
    assert problems(unplaced(90), others=[going]) == [(sentence, False)]
    scaled = {"reason": "TriggeredScaleUp", "involvedObject": {"uid": "uid-p"}}
    assert problems(unplaced(90), events=[scaled]) == [(sentence, False)]
    assert problems(unplaced(4000, "SchedulingGated"))[0][1] is False


@pytest.mark.parametrize(("reason", "final"), [("ErrImagePull", False), ("ImagePullBackOff", True)])
def test_an_image_that_cannot_be_pulled(reason, final):
    waiting = {"waiting": {"reason": reason, "message": "not found"}}
    expected = f"container vllm of pod p can't start: {reason}: not found"
    assert problems(pod(ready=False, state=waiting)) == [(expected, final)]


def test_refused_pods():
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": "exceeded quota",
        "lastTransitionTime": ago(60),
    }
    assert problems(raw=deployment(conditions=[condition])) == [
        ("its pods are refused: exceeded quota", True)
    ]
    event = {
        "reason": "FailedCreate", "message": "exceeded quota", "involvedObject": {"uid": "uid-s"},
        "firstTimestamp": ago(60), "lastTimestamp": ago(1),
    }  # fmt: skip
    short = stateful_set()
    short["status"]["replicas"] = 0
    assert problems(raw=short, events=[event]) == [("its pods are refused: exceeded quota", True)]
    assert problems(raw=stateful_set(), events=[event]) == [], "it has its pods: that is over"


def test_a_deadline_of_kubernetes_stops_no_pod_that_still_starts():
    late = deployment(
        conditions=[{"type": "Progressing", "reason": "ProgressDeadlineExceeded", "status": "False"}]
    )
    assert problems(pod(labels=NEW, ready=False), raw=late) == [("its progress deadline is exceeded", False)]
    assert problems(raw=late) == [("its progress deadline is exceeded", True)]


def test_what_is_wrong_with_the_node():
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(10)}]},
    }
    on_it = pod(spec={"nodeName": "n", "containers": []})
    assert problems(on_it, nodes={"n": node}) == [
        ("node n of pod p is cordoned", False),
        ("node n of pod p is not ready", False),
    ]
    node["status"]["conditions"][0]["lastTransitionTime"] = ago(200)
    assert ("node n of pod p is not ready", True) in problems(on_it, nodes={"n": node})


def test_a_pod_that_somebody_deletes_is_named():
    assert problems(pod(metadata={"deletionTimestamp": AFTER})) == [
        ("the new pod p is being deleted by somebody", False)
    ]


# -- how long it may take


@pytest.mark.parametrize(
    ("spec", "desired", "start", "seconds"),
    [
        ({}, 1, None, 2100.0),
        ({}, 1, 60.0, 600.0),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, 4, 600.0, 2700.0),
        ({"strategy": {"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}}, 4, 600.0, 1500.0),
        ({"strategy": {"type": "Recreate"}}, 4, 600.0, 900.0),
        ({}, 1, 86400.0, 14400.0),
    ],
)
def test_the_time_limit_follows_the_start_and_the_rounds(spec, desired, start, seconds):
    done = progress.Progress(desired, 0, 0, 0, False, True)
    assert progress.time_limit({"kind": "Deployment", "spec": spec}, done, start) == seconds
