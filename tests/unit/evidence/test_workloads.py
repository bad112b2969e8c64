# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Owner chain, the object to edit, managers, revisions; and which pods form one engine."""

from __future__ import annotations

import pytest
from support import kube_objects as kube

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import PENDING_ANNOTATION
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import workloads
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.groups import group_of
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.workloads import (
    KINDS,
    managers_of,
    owner_chain,
    template_diff,
    workload_evidence,
)


class Objects:
    """lookup and listing over given objects; remembers what was asked."""

    def __init__(self, *objects):
        self.objects = objects

    def lookup(self, api_version, kind, namespace, name):
        for item in self.objects:
            about = item["metadata"]
            if (item["apiVersion"], item["kind"], about.get("namespace"), about["name"]) == (
                api_version,
                kind,
                namespace,
                name,
            ):
                return item
        return None

    def listing(self, api_version, kind, namespace):
        return [
            item
            for item in self.objects
            if (item["apiVersion"], item["kind"], item["metadata"].get("namespace"))
            == (api_version, kind, namespace)
        ]


def thing(api_version, kind, name, owner=None, spec=None, **meta):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": kube.metadata(name, owner=owner, **meta),
        "spec": spec or {},
    }


def ref(item):
    return (item["apiVersion"], item["kind"], item["metadata"]["name"], item["metadata"]["uid"])


def chain_of(*kinds):
    """Objects from the top down and a pod owned by the last, as ``(objects, owner of the pod)``."""
    objects, owner = [], None
    for api_version, kind, spec in kinds:
        objects.append(thing(api_version, kind, f"m-{len(objects)}", owner=owner, spec=spec))
        owner = ref(objects[-1])
    return objects, owner


DEPLOYMENT = (("apps/v1", "Deployment", {}), ("apps/v1", "ReplicaSet", {}))


@pytest.mark.parametrize(
    ("kinds", "labels", "container", "edit"),
    [
        (DEPLOYMENT, {}, "vllm", ("Deployment", "spec.template.spec.containers[vllm]")),
        (
            (("apps/v1", "StatefulSet", {}),),
            {},
            "vllm",
            ("StatefulSet", "spec.template.spec.containers[vllm]"),
        ),
        (
            (("batch/v1", "CronJob", {}), ("batch/v1", "Job", {})),
            {},
            "vllm",
            ("CronJob", "spec.jobTemplate.spec.template.spec.containers[vllm]"),
        ),
        ((), {}, "vllm", ("Pod", "spec.containers[vllm]")),
        ((("v1", "Node", {}),), {}, "vllm", None),
        (
            (
                (
                    "leaderworkerset.x-k8s.io/v1",
                    "LeaderWorkerSet",
                    {"leaderWorkerTemplate": {"leaderTemplate": {}, "workerTemplate": {}}},
                ),
                ("apps/v1", "StatefulSet", {}),
            ),
            {"leaderworkerset.sigs.k8s.io/worker-index": "1"},
            "vllm",
            ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate.spec.containers[vllm]"),
        ),
        (
            (
                (
                    "leaderworkerset.x-k8s.io/v1",
                    "LeaderWorkerSet",
                    {"leaderWorkerTemplate": {"workerTemplate": {}}},
                ),
            ),
            {"leaderworkerset.sigs.k8s.io/worker-index": "0"},
            "vllm",
            ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate.spec.containers[vllm]"),
        ),
        (
            (("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"model": {}}}), *DEPLOYMENT),
            {},
            "kserve-container",
            ("InferenceService", "spec.predictor.model"),
        ),
        (
            (
                ("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"containers": []}}),
                *DEPLOYMENT,
            ),
            {},
            "kserve-container",
            ("InferenceService", "spec.predictor.containers[kserve-container]"),
        ),
        (
            (("ome.io/v1beta1", "InferenceService", {}), *DEPLOYMENT),
            {"component": "decoder"},
            "ome-container",
            ("InferenceService", "spec.decoder.runner"),
        ),
        (
            (("ray.io/v1", "RayService", {}), ("ray.io/v1", "RayCluster", {})),
            {"ray.io/group": "gpu"},
            "ray-worker",
            (
                "RayService",
                "spec.rayClusterConfig.workerGroupSpecs[gpu].template.spec.containers[ray-worker]",
            ),
        ),
        (
            (("ray.io/v1", "RayCluster", {}),),
            {"ray.io/group": "gpu", "ray.io/node-type": "worker"},
            "ray-worker",
            ("RayCluster", "spec.workerGroupSpecs[gpu].template.spec.containers[ray-worker]"),
        ),
        (
            (("ray.io/v1", "RayCluster", {}),),
            {"ray.io/node-type": "head"},
            "ray-head",
            ("RayCluster", "spec.headGroupSpec.template.spec.containers[ray-head]"),
        ),
        (
            (
                ("nvidia.com/v1beta1", "DynamoGraphDeployment", {}),
                ("nvidia.com/v1beta1", "DynamoComponentDeployment", {}),
                *DEPLOYMENT,
            ),
            {"nvidia.com/dynamo-component": "decode"},
            "main",
            ("DynamoGraphDeployment", "spec.components[decode].podTemplate.spec.containers[main]"),
        ),
        (
            (
                ("apps.nvidia.com/v1alpha1", "NIMService", {}),
                ("serving.kserve.io/v1beta1", "InferenceService", {}),
                *DEPLOYMENT,
            ),
            {},
            "x-ctr",
            ("NIMService", "spec"),
        ),
        (
            (
                ("orchestration.aibrix.ai/v1alpha1", "StormService", {}),
                ("orchestration.aibrix.ai/v1alpha1", "RoleSet", {}),
            ),
            {"role-name": "prefill"},
            "vllm",
            ("StormService", "spec.template.spec.roles[prefill].template.spec.containers[vllm]"),
        ),
        (
            (
                ("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"workerSpec": {}}}),
                *DEPLOYMENT,
            ),
            {},
            "worker-container",
            ("InferenceService", "spec.predictor.workerSpec.containers[worker-container]"),
        ),
        # Beside the model there may be containers of other things.
        (
            (
                (
                    "serving.kserve.io/v1beta1",
                    "InferenceService",
                    {"predictor": {"containers": [], "model": {}}},
                ),
                *DEPLOYMENT,
            ),
            {},
            "kserve-container",
            ("InferenceService", "spec.predictor.model"),
        ),
        (
            (("serving.kserve.io/v1alpha2", "LLMInferenceService", {}), *DEPLOYMENT),
            {"app.kubernetes.io/component": "llminferenceservice-workload-prefill"},
            "main",
            ("LLMInferenceService", "spec.prefill.template.containers[main]"),
        ),
        (
            (
                ("serving.kserve.io/v1alpha2", "LLMInferenceService", {}),
                ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {}),
            ),
            {"app.kubernetes.io/component": "llminferenceservice-workload-worker-prefill"},
            "main",
            ("LLMInferenceService", "spec.prefill.worker.containers[main]"),
        ),
        (
            (("nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"Decode": {}}}), *DEPLOYMENT),
            {"nvidia.com/dynamo-component": "Decode"},
            "main",
            ("DynamoGraphDeployment", "spec.services.Decode.extraPodSpec.mainContainer"),
        ),
        (
            (
                ("ome.io/v1beta1", "InferenceService", {}),
                ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {}),
            ),
            {"component": "engine", "leaderworkerset.sigs.k8s.io/worker-index": "0"},
            "ome-container",
            ("InferenceService", "spec.engine.leader.runner"),
        ),
        (
            (("kaito.sh/v1beta1", "InferenceSet", {"template": {"inference": {"template": {"spec": {}}}}}),),
            {},
            "m",
            ("InferenceSet", "spec.template.inference.template.spec.containers[m]"),
        ),
        (
            (
                ("workload.serving.volcano.sh/v1alpha1", "ModelBooster", {}),
                ("workload.serving.volcano.sh/v1alpha1", "ModelServing", {}),
            ),
            {"modelserving.volcano.sh/role": "leader"},
            "engine",
            ("ModelBooster", "spec.backend.workers[server]"),
        ),
        # A part that the pod doesn't name isn't guessed.
        ((("ray.io/v1", "RayCluster", {}),), {}, "ray-worker", ("RayCluster", None)),
        (
            (("argoproj.io/v1alpha1", "Rollout", {"workloadRef": {"kind": "Deployment", "name": "d"}}),),
            {},
            "vllm",
            ("Deployment", None),
        ),
        (
            (
                (
                    "argoproj.io/v1alpha1",
                    "Rollout",
                    {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
                ),
            ),
            {},
            "vllm",
            ("Deployment", "spec.template.spec.containers[vllm]"),
        ),
        ((), {"parent": "skypilot"}, "ray-node", None),
        ((("acme.example/v1", "Llama", {}), *DEPLOYMENT), {}, "vllm", ("Llama", None)),
    ],
)
def test_the_object_to_edit_is_the_top(kinds, labels, container, edit):
    objects, owner = chain_of(*kinds)
    raw = kube.pod(containers=[kube.container(container)], labels={"app": "m", **labels}, owner=owner)
    found = workload_evidence(raw, Objects(*objects).lookup)
    assert (found["edit"] and (found["edit"]["kind"], found["edit"]["path"])) == edit
    assert len(found["chain"]) == len(kinds)


def test_engine_flags_that_are_not_in_the_container():
    objects, owner = chain_of(("ray.io/v1", "RayService", {}), ("ray.io/v1", "RayCluster", {}))
    raw = kube.pod(labels={"ray.io/node-type": "head"}, owner=owner)
    assert workload_evidence(raw, Objects(*objects).lookup)["edit"]["arguments"] == "spec.serveConfigV2"


def test_where_the_top_cannot_be_read_its_version_tells_the_path():
    owner = ("nvidia.com/v1alpha1", "DynamoGraphDeployment", "g", "u")
    raw = kube.pod(labels={"nvidia.com/dynamo-component": "Decode"}, owner=owner)
    found = workload_evidence(raw, Objects().lookup)["edit"]
    assert found["path"] == "spec.services.Decode.extraPodSpec.mainContainer"


@pytest.mark.parametrize(
    ("inference", "edit"),
    [
        ({"preset": {}, "config": "params"}, ("ConfigMap", "params", "data[inference_config.yaml].vllm")),
        # The default ConfigMap is the operator's: another must be made and named.
        ({"preset": {}}, ("Workspace", "w", "inference.config")),
        ({"template": {"spec": {}}}, ("Workspace", "w", "inference.template.spec.containers[vllm]")),
        ({}, ("Workspace", "w", None)),
    ],
)
def test_kaito_keeps_the_settings_of_a_preset_in_a_config_map(inference, edit):
    workspace = {**thing("kaito.sh/v1beta1", "Workspace", "w"), "inference": inference}
    found = workload_evidence(kube.pod(owner=ref(workspace)), Objects(workspace).lookup)["edit"]
    assert (found["kind"], found["name"], found["path"]) == edit


def test_every_path_with_a_part_has_somebody_who_tells_it():
    told = {key for key in KINDS if key in workloads._PARTS or key[0] in workloads._ROLE_LABELS}
    assert {key for key, kind in KINDS.items() if kind.path and "{r}" in kind.path} <= told


def test_the_object_to_edit_is_told_as_it_was_read():
    deployment = thing("apps/v1", "Deployment", "vllm", generation=7)
    replica_set = thing("apps/v1", "ReplicaSet", "vllm-5d", ref(deployment), generation=1)
    raw = kube.pod(owner=ref(replica_set))
    found = workload_evidence(raw, Objects(deployment, replica_set).lookup)["edit"]
    assert (found["uid"], found["generation"]) == ("uid-vllm", 7)
    unread = workload_evidence(raw, Objects(replica_set).lookup)["edit"]
    assert (unread["uid"], unread["generation"]) == (None, None)


def test_a_bare_pod_is_the_object_itself():
    raw = kube.pod()
    raw["metadata"]["generation"] = 2
    found = workload_evidence(raw, Objects().lookup)["edit"]
    assert (found["uid"], found["generation"]) == (raw["metadata"]["uid"], 2)


def test_the_object_that_a_rollout_refers_to_is_told_as_it_was_read():
    template = thing("apps/v1", "Deployment", "template", generation=3)
    rollout = thing(
        "argoproj.io/v1alpha1",
        "Rollout",
        "vllm",
        spec={"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "template"}},
    )
    found = workload_evidence(kube.pod(owner=ref(rollout)), Objects(rollout, template).lookup)["edit"]
    assert (found["name"], found["uid"], found["generation"]) == ("template", "uid-template", 3)


def test_a_config_map_is_not_asked_for():
    asked = []
    workspace = thing("kaito.sh/v1beta1", "Workspace", "phi")
    workspace["inference"] = {"preset": {"name": "phi-4"}, "config": "tuned"}

    def lookup(*about):
        asked.append(about[1])
        return workspace if about[1] == "Workspace" else None

    found = workload_evidence(kube.pod(owner=ref(workspace)), lookup)["edit"]
    assert (found["kind"], found["uid"]) == ("ConfigMap", None)
    assert "ConfigMap" not in asked


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "paused"),
    [
        ("apps/v1", "Deployment", {"paused": True}, True),
        ("apps/v1", "Deployment", {}, False),
        ("apps/v1", "Deployment", {"paused": "no"}, False),
        ("argoproj.io/v1alpha1", "Rollout", {"paused": True}, True),
        ("orchestration.aibrix.ai/v1alpha1", "StormService", {"paused": True}, True),
        ("apps/v1", "StatefulSet", {"paused": True}, None),
    ],
)
def test_a_paused_object_is_told(api_version, kind, spec, paused):
    owner = thing(api_version, kind, "vllm", spec=spec)
    raw = kube.pod(owner=ref(owner))
    assert workload_evidence(raw, Objects(owner).lookup)["paused"] is paused
    assert workload_evidence(raw, Objects().lookup)["paused"] is None


def test_a_rollout_is_paused_though_the_template_it_refers_to_is_not():
    template = thing("apps/v1", "Deployment", "template")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "template"}
    rollout = thing(
        "argoproj.io/v1alpha1", "Rollout", "vllm", spec={"workloadRef": reference, "paused": True}
    )
    assert (
        workload_evidence(kube.pod(owner=ref(rollout)), Objects(rollout, template).lookup)["paused"] is True
    )


def test_our_own_change_is_read_at_the_object_to_edit():
    mark = '{"run": "b2", "at": "2026-11-30T06:58:00Z", "until": "2026-11-30T07:01:00Z", "host": "runner-7"}'
    ours = {PENDING_ANNOTATION: mark}
    deployment = thing("apps/v1", "Deployment", "vllm", annotations=ours)
    # A Deployment hands its annotations down to its ReplicaSets.
    replica_set = thing("apps/v1", "ReplicaSet", "vllm-5d", ref(deployment), annotations=ours)
    raw = kube.pod(owner=ref(replica_set))
    assert workload_evidence(raw, Objects(deployment, replica_set).lookup)["own_change"]["run"] == "b2"
    assert workload_evidence(raw, Objects(replica_set).lookup)["own_change"] is None


def test_chain_stops_where_an_object_cannot_be_read_and_says_so():
    raw = kube.crashing_pod(labels={"app": "llama"})
    found = workload_evidence(raw, Objects().lookup)
    assert (found["kind"], found["chain"][0]["read"], found["replicas"]) == ("ReplicaSet", False, None)


@pytest.mark.parametrize(
    ("labels", "owner", "edit"),
    [
        ({"pod-template-hash": "6f7d9c9b5"}, "llama-6f7d9c9b5", ("Deployment", "llama", "apps/v1", True)),
        (
            {"rollouts-pod-template-hash": "6f7d9c9b5"},
            "llama-6f7d9c9b5",
            ("Rollout", "llama", "argoproj.io/v1alpha1", True),
        ),
        # the name doesn't end in the label's hash: nothing is concluded
        ({"pod-template-hash": "5d5f5f5f5"}, "llama-6f7d9c9b5", ("ReplicaSet", "llama-6f7d9c9b5", "apps/v1", False)),
        ({"pod-template-hash": "6f7d9c9b5"}, "-6f7d9c9b5", ("ReplicaSet", "-6f7d9c9b5", "apps/v1", False)),
    ],
)  # fmt: skip
def test_a_replica_set_that_cannot_be_read_tells_its_maker(labels, owner, edit):
    raw = kube.crashing_pod(labels=labels, owner=("apps/v1", "ReplicaSet", owner, "uid-rs"))
    found = workload_evidence(raw, Objects().lookup)
    assert tuple(found["edit"][key] for key in ("kind", "name", "api_version", "inferred")) == edit
    assert (found["kind"], found["name"]) == edit[:2]
    assert found["edit"]["path"] == "spec.template.spec.containers[vllm]"
    assert [(item["read"], item["inferred"]) for item in found["chain"]] == [(False, False), (False, True)][
        : 1 + edit[3]
    ]


def test_the_maker_of_an_unreadable_replica_set_is_looked_up():
    raw = kube.crashing_pod()
    found = workload_evidence(raw, Objects(kube.deployment()).lookup)
    assert [(item["kind"], item["uid"], item["read"]) for item in found["chain"]] == [
        ("ReplicaSet", "uid-llama-6f7d9c9b5", False),
        ("Deployment", "uid-llama", True),
    ]
    assert found["replicas"]["desired"] is not None


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_of_other_unreadable_owners_nothing_is_concluded(kind):
    raw = kube.crashing_pod(owner=("apps/v1", kind, "llama-6f7d9c9b5", "uid-x"))
    found = workload_evidence(raw, Objects().lookup)
    assert (found["edit"]["kind"], found["edit"]["inferred"], len(found["chain"])) == (kind, False, 1)


def test_a_replica_set_that_was_read_and_has_no_owner_is_the_object_to_edit():
    alone = kube.replica_set()
    del alone["metadata"]["ownerReferences"]
    found = workload_evidence(kube.crashing_pod(), Objects(alone).lookup)
    assert (found["edit"]["kind"], found["edit"]["inferred"]) == ("ReplicaSet", False)


def test_an_owner_made_anew_under_the_same_name_is_not_the_owner():
    raw = kube.crashing_pod(owner=("apps/v1", "ReplicaSet", "llama-6f7d9c9b5", "old-uid"))
    assert owner_chain(raw, Objects(kube.replica_set()).lookup)[0][1] is None


def test_owners_in_a_circle_end():
    a = thing("acme.example/v1", "A", "a", owner=("acme.example/v1", "B", "b", "uid-b"))
    b = thing("acme.example/v1", "B", "b", owner=("acme.example/v1", "A", "a", "uid-a"))
    raw = kube.pod(owner=ref(a))
    assert [item["kind"] for item in workload_evidence(raw, Objects(a, b).lookup)["chain"]] == ["A", "B"]


def test_controller_reference_goes_first():
    raw = kube.pod()
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "2", "controller": True},
    ]
    assert workload_evidence(raw, Objects().lookup)["kind"] == "StatefulSet"


def test_sizes_strategy_and_conditions():
    top = kube.deployment()
    top["status"]["conditions"] = [
        {"type": "Available", "status": "True"},
        {
            "type": "Progressing",
            "status": "False",
            "reason": "ProgressDeadlineExceeded",
            "message": "timed out",
        },
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"},
    ]
    found = workload_evidence(kube.crashing_pod(), Objects(kube.replica_set(), top).lookup)
    assert found["replicas"] == {"desired": 2, "current": 2, "ready": 1, "available": 1, "updated": 2}
    assert (found["strategy"]["max_surge"], found["strategy"]["progress_deadline_seconds"]) == ("25%", 600)
    assert [item["reason"] for item in found["conditions"]] == ["ProgressDeadlineExceeded", "FailedCreate"]
    assert found["revision"] == "6f7d9c9b5"


def test_autoscalers_that_point_at_the_chain():
    objects = Objects(
        kube.replica_set(),
        kube.deployment(),
        thing(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "h",
            spec={
                "scaleTargetRef": {"kind": "Deployment", "name": "llama"},
                "minReplicas": 1,
                "maxReplicas": 4,
            },
        ),
        thing(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "other",
            spec={"scaleTargetRef": {"kind": "Deployment", "name": "else"}},
        ),
        thing(
            "keda.sh/v1alpha1",
            "ScaledObject",
            "k",
            spec={"scaleTargetRef": {"name": "llama"}, "maxReplicaCount": 8},
        ),
        thing(
            "autoscaling.k8s.io/v1",
            "VerticalPodAutoscaler",
            "v",
            spec={
                "targetRef": {"kind": "Deployment", "name": "llama"},
                "updatePolicy": {"updateMode": "Auto"},
            },
        ),
    )
    found = workload_evidence(kube.crashing_pod(), objects.lookup, objects.listing)["autoscalers"]
    assert [(item["kind"], item["name"], item["max"], item["mode"]) for item in found] == [
        ("HorizontalPodAutoscaler", "h", 4, None),
        ("ScaledObject", "k", 8, None),
        ("VerticalPodAutoscaler", "v", None, "Auto"),
    ]


@pytest.mark.parametrize(
    ("target", "points"),
    [
        ({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": "m-0"}, True),
        ({"apiVersion": "ome.io/v1", "kind": "InferenceService", "name": "m-0"}, True),
        ({"kind": "InferenceService", "name": "m-0"}, True),
        ({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "m-0"}, False),
        # Without a kind it is KEDA's, which means a Deployment.
        ({"name": "m-0"}, False),
    ],
)
def test_an_autoscaler_of_another_groups_kind_is_another_one(target, points):
    objects, owner = chain_of(("ome.io/v1beta1", "InferenceService", {}))
    scaler = thing("keda.sh/v1alpha1", "ScaledObject", "k", spec={"scaleTargetRef": target})
    given = Objects(*objects, scaler)
    found = workload_evidence(kube.pod(owner=owner), given.lookup, given.listing)["autoscalers"]
    assert bool(found) is points


# --- managers

TRACKED = "shop:apps/Deployment:llm/llama"


@pytest.mark.parametrize(
    ("labels", "annotations", "fields", "expected"),
    [
        ({}, {}, (), []),
        (
            {"app.kubernetes.io/managed-by": "Helm"},
            {"meta.helm.sh/release-name": "llama"},
            ("helm",),
            [("Helm", "proof", "on_upgrade")],
        ),
        ({"app.kubernetes.io/managed-by": "Helm"}, {}, (), [("Helm", "hint", "on_upgrade")]),
        ({}, {"argocd.argoproj.io/tracking-id": TRACKED}, (), [("Argo CD", "proof", "on_sync")]),
        # A copied object carries the id of the one it was copied from.
        (
            {},
            {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:llm/other"},
            (),
            [("Argo CD", "hint", "on_sync")],
        ),
        # Set by many charts themselves: no proof of anything.
        ({"app.kubernetes.io/instance": "llama"}, {}, (), []),
        (
            {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"},
            {},
            (),
            [("Flux", "proof", "on_sync")],
        ),
        (
            {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"},
            {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"},
            (),
            [("Flux", "proof", "never")],
        ),
        # Name and namespace are the proof.
        ({"kustomize.toolkit.fluxcd.io/name": "apps"}, {}, (), [("Flux", "hint", "on_sync")]),
        # Whether it looks for drift is in the HelmRelease, which can't be read here.
        (
            {"helm.toolkit.fluxcd.io/name": "llama", "helm.toolkit.fluxcd.io/namespace": "flux"},
            {"meta.helm.sh/release-name": "llama"},
            ("helm-controller",),
            [("Flux HelmRelease", "proof", "unknown"), ("Helm", "proof", "on_upgrade")],
        ),
        (
            {},
            {"kubectl.kubernetes.io/last-applied-configuration": "{\n}"},
            ("kubectl-client-side-apply",),
            [("kubectl apply", "proof", "on_upgrade")],
        ),
        ({}, {}, ("Terraform",), [("Terraform", "hint", "on_upgrade")]),
        ({}, {}, ("apiextensions.crossplane.io/composed/1a2b",), [("Crossplane", "hint", "now")]),
        ({}, {}, ("kubectl-edit", "kube-controller-manager"), []),
        # kubectl scale and the like; with the operation Apply it is kubectl apply --server-side.
        ({}, {}, ("kubectl",), []),
        ({"kueue.x-k8s.io/queue-name": "gpu"}, {}, (), [("Kueue", "proof", "never")]),
    ],
)
def test_managers(labels, annotations, fields, expected):
    written = [{"manager": name, "operation": "Update"} for name in fields]
    assert (
        marks_of(kube.deployment(labels=labels, annotations=annotations, managedFields=written)) == expected
    )


def marks_of(raw, *others):
    reference = {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "name": raw["metadata"]["name"]}
    found = managers_of([(reference, raw)], Objects(*others).lookup)
    return [(item["tool"], item["proof"], item["reverts"]) for item in found]


def test_a_server_side_apply_by_kubectl_is_a_hint():
    raw = kube.deployment(managedFields=[{"manager": "kubectl", "operation": "Apply"}])
    assert marks_of(raw) == [("kubectl apply", "hint", "on_upgrade")]


@pytest.mark.parametrize(
    ("spec", "reverts"),
    [
        ({}, "on_upgrade"),
        ({"driftDetection": {"mode": "enabled"}}, "on_sync"),
        ({"driftDetection": {"mode": "warn"}}, "on_upgrade"),
    ],
)
def test_a_helm_release_that_looks_for_drift_undoes_changes(spec, reverts):
    labels = {"helm.toolkit.fluxcd.io/name": "r", "helm.toolkit.fluxcd.io/namespace": kube.NAMESPACE}
    release = thing("helm.toolkit.fluxcd.io/v2", "HelmRelease", "r", spec=spec)
    assert marks_of(kube.deployment(labels=labels), release) == [("Flux HelmRelease", "proof", reverts)]


def test_the_object_to_edit_comes_first():
    objects, owner = chain_of(
        ("apps.nvidia.com/v1alpha1", "NIMService", {}),
        ("serving.kserve.io/v1beta1", "InferenceService", {}),
        *DEPLOYMENT,
    )
    objects[0]["metadata"]["annotations"] = {"meta.helm.sh/release-name": "nim"}
    found = workload_evidence(kube.pod(owner=owner), Objects(*objects).lookup)["managers"]
    assert [(item["tool"], item["object"], item["proof"], item["reverts"]) for item in found] == [
        ("Helm", "NIMService/m-0", "proof", "on_upgrade"),
        ("NVIDIA NIM operator", "InferenceService/m-1", "proof", "on_upgrade"),
        ("KServe", "Deployment/m-2", "proof", "now"),
    ]


HELM_MARK = {"meta.helm.sh/release-name": "llama"}


def test_marks_that_a_deployment_passed_on_to_its_replica_set_are_its_own():
    top, made = kube.deployment(annotations=HELM_MARK), kube.replica_set()
    made["metadata"]["annotations"] |= HELM_MARK
    pod = kube.crashing_pod()
    read = workload_evidence(pod, Objects(made, top).lookup)["managers"]
    assert [(item["object"], item["proof"]) for item in read] == [("Deployment/llama", "proof")]
    unread = workload_evidence(pod, Objects(made).lookup)["managers"]
    assert [(item["object"], item["proof"]) for item in unread] == [("ReplicaSet/llama-6f7d9c9b5", "hint")]


def test_marks_below_an_owner_of_an_unknown_kind_count():
    objects, owner = chain_of(("operators.coreos.com/v1alpha1", "ClusterServiceVersion", {}), *DEPLOYMENT)
    objects[1]["metadata"]["labels"] = {"olm.owner": "llm-operator"}
    found = workload_evidence(kube.pod(owner=owner), Objects(*objects).lookup)["managers"]
    assert [(item["tool"], item["object"], item["proof"]) for item in found] == [
        ("OLM", "Deployment/m-1", "proof")
    ]


def test_the_owner_of_a_rollouts_template_counts():
    refers = {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"}}
    objects, owner = chain_of(("argoproj.io/v1alpha1", "Rollout", refers), ("apps/v1", "ReplicaSet", {}))
    lookup = Objects(*objects, kube.deployment(annotations=HELM_MARK)).lookup
    found = workload_evidence(kube.pod(owner=owner), lookup)["managers"]
    assert [(item["tool"], item["object"]) for item in found] == [
        ("Helm", "Deployment/llama"),
        ("Argo Rollouts", "ReplicaSet/m-1"),
    ]


def test_an_operator_above_is_a_manager_also_where_its_object_cannot_be_read():
    objects, owner = chain_of(("serving.kserve.io/v1beta1", "InferenceService", {}), *DEPLOYMENT)
    kserve = {"tool": "KServe", "object": "Deployment/m-1", "proof": "proof", "reverts": "now"}
    for known in (objects, objects[1:]):
        assert workload_evidence(kube.pod(owner=owner), Objects(*known).lookup)["managers"] == [kserve]


# --- revisions


def template(**changes):
    container = kube.container(**{key: value for key, value in changes.items() if key != "volumes"})
    return {"spec": {"containers": [container], "volumes": changes.get("volumes", [])}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, {}),
        (
            {"args": ["--model", "m", "--max-model-len=8192"]},
            {"args": ["--model", "m", "--max_model_len", "32k"]},
            {"args.max_model_len": (8192, 32000)},
        ),
        (
            {"command": ["/start.sh", "a"], "args": []},
            {"command": ["/start.sh", "b"], "args": []},
            {"command": ("/start.sh a", "/start.sh b")},
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}]},
            {"env.A": ("1", None), "env.B": (None, "2")},
        ),
        (
            {"resources": {"limits": {"memory": "64Gi", "cpu": "8"}}},
            {"resources": {"limits": {"memory": "32Gi"}}},
            {"resources.limits.memory": ("64Gi", "32Gi"), "resources.limits.cpu": ("8", None)},
        ),
        (
            {"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]},
            {"volumes": []},
            {"volumes.dshm": ("emptyDir medium=Memory sizeLimit=16Gi", None)},
        ),
    ],
)
def test_template_diff(before, after, expected):
    found = template_diff(template(**before), template(**after), Redactor())
    assert {item["field"]: (item["before"], item["after"]) for item in found} == expected


def test_a_new_vllm_brings_its_changed_defaults():
    found = template_diff(
        template(image="vllm/vllm-openai:v0.19.0"), template(image="vllm/vllm-openai:v0.20.0"), Redactor()
    )
    fields = {item["field"]: item for item in found}
    assert fields["image"]["after"].endswith("v0.20.0")
    utilization = fields["engine.gpu_memory_utilization"]
    assert (float(utilization["before"]), float(utilization["after"])) == (0.9, 0.92)
    assert utilization["why"]


def test_added_container_and_redaction():
    before = {
        "spec": {"containers": [kube.container(env=[{"name": "API_TOKEN", "value": "firstsecretvalue"}])]}
    }
    after = {
        "spec": {
            "containers": [
                kube.container(
                    env=[{"name": "API_TOKEN", "value": "secondsecretvalue"}],
                    args=["--api-key", "thirdsecretvalue"],
                ),
                kube.container("side", image="https://u:fourthsecretvalue@r/x"),
            ]
        }
    }
    found = template_diff(before, after, Redactor())
    assert ("side", "container") in {(item["container"], item["field"]) for item in found}
    assert "secretvalue" not in str(found)


def test_revisions_of_a_deployment_are_ordered_by_number_not_time():
    objects = Objects(
        kube.deployment(),
        kube.replica_set("llama-6f7d9c9b5", "10"),
        kube.replica_set("llama-aaa", "9", template=template(args=["--max-model-len", "4096"])),
        thing(
            "apps/v1",
            "ReplicaSet",
            "stranger",
            owner=("apps/v1", "Deployment", "x", "y"),
            annotations={"deployment.kubernetes.io/revision": "3"},
        ),
    )
    found = workload_evidence(kube.crashing_pod(), objects.lookup, objects.listing, Redactor())["revisions"]
    assert [(item["revision"], item["current"]) for item in found] == [("9", False), ("10", True)]
    assert found[0]["diff"] == []
    assert "args.max_model_len" in {item["field"] for item in found[1]["diff"]}


def test_a_recorded_command_line_keeps_no_secret():
    recorded = kube.replica_set("llama-6f7d9c9b5", "10")
    recorded["metadata"]["annotations"]["kubernetes.io/change-cause"] = (
        "kubectl set env deploy/llama HF_TOKEN=PLANTED --record=true"
    )
    objects = Objects(kube.deployment(), recorded)
    found = workload_evidence(kube.crashing_pod(), objects.lookup, objects.listing, Redactor())["revisions"]
    assert found[0]["change_cause"] == "kubectl set env deploy/llama HF_TOKEN=*** --record=true"


def test_revisions_of_a_stateful_set():
    owner = ("apps/v1", "StatefulSet", "kaito", "uid-kaito")

    def revision(name, number, args):
        item = thing(
            "apps/v1", "ControllerRevision", name, owner=owner, labels={"controller-revision-hash": name}
        )
        return {**item, "revision": number, "data": {"spec": {"template": template(args=args)}}}

    objects = Objects(
        thing("apps/v1", "StatefulSet", "kaito", uid="uid-kaito"),
        revision("kaito-1", 1, ["--max-num-seqs", "256"]),
        revision("kaito-2", 2, ["--max-num-seqs", "512"]),
    )
    raw = kube.pod(owner=owner, labels={"controller-revision-hash": "kaito-2"})
    found = workload_evidence(raw, objects.lookup, objects.listing, Redactor())["revisions"]
    assert [(item["revision"], item["current"]) for item in found] == [("1", False), ("2", True)]
    assert found[1]["diff"][0]["field"] == "args.max_num_seqs"


LWS_LABELS = {
    "leaderworkerset.sigs.k8s.io/name": "d",
    "leaderworkerset.sigs.k8s.io/group-index": "0",
    "leaderworkerset.sigs.k8s.io/template-revision-hash": "new",
    "controller-revision-hash": "d-0-5c7",
}


def lws_objects(worker_index):
    """A LeaderWorkerSet with two revisions of both templates, the StatefulSet of the pod with one, and the pod."""
    group = thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "d")
    own = thing("apps/v1", "StatefulSet", "d-0", owner=ref(group))

    def revision(name, number, owner, data, **labels):
        item = thing("apps/v1", "ControllerRevision", name, owner=ref(owner), labels=labels)
        return {**item, "revision": number, "data": {"spec": data}}

    def templates(length):
        return {
            "leaderWorkerTemplate": {
                "leaderTemplate": template(args=["--max-model-len", length]),
                "workerTemplate": template(args=["--max-num-seqs", length]),
            }
        }

    key = "leaderworkerset.sigs.k8s.io/template-revision-hash"
    pod = kube.pod(
        owner=ref(own), labels={**LWS_LABELS, "leaderworkerset.sigs.k8s.io/worker-index": worker_index}
    )
    return pod, Objects(
        group,
        own,
        revision("d-0-5c7", 1, own, {"template": template()}),
        revision("d-old", 1, group, templates("1024"), **{key: "old"}),
        revision("d-new", 2, group, templates("2048"), **{key: "new"}),
    )


@pytest.mark.parametrize(("worker_index", "field"), [("0", "args.max_model_len"), ("1", "args.max_num_seqs")])
def test_the_workers_of_a_group_have_the_groups_revisions(worker_index, field):
    pod, objects = lws_objects(worker_index)
    found = workload_evidence(pod, objects.lookup, objects.listing, Redactor())
    assert [(item["revision"], item["current"]) for item in found["revisions"]] == [("1", False), ("2", True)]
    assert [item["field"] for item in found["revisions"][1]["diff"]] == [field]
    assert found["revision"] == "new"


def test_a_pod_with_labels_of_two_levels_is_of_the_current_revision_of_both():
    pod, objects = lws_objects("0")
    # As if the LeaderWorkerSet's own revisions couldn't be read.
    kept = Objects(
        *(item for item in objects.objects if not item["metadata"]["name"].startswith(("d-old", "d-new")))
    )
    found = workload_evidence(pod, kept.lookup, kept.listing, Redactor())["revisions"]
    assert [(item["revision"], item["current"]) for item in found] == [("1", True)]


# --- groups


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, None),
        (
            {
                "labels": {
                    "leaderworkerset.sigs.k8s.io/name": "d",
                    "leaderworkerset.sigs.k8s.io/group-index": "2",
                }
            },
            "llm/LeaderWorkerSet/d/2",
        ),
        ({"labels": {"ray.io/cluster": "c", "ray.io/node-type": "worker"}}, "llm/RayCluster/c"),
        (
            {
                "labels": {
                    "grove.io/podclique": "x",
                    "grove.io/podcliquescalinggroup": "g",
                    "grove.io/podcliquescalinggroup-replica-index": "0",
                }
            },
            "llm/PodCliqueScalingGroup/g/0",
        ),
        # A clique on its own: each pod is an engine.
        ({"labels": {"grove.io/podclique": "x"}}, None),
        (
            {
                "labels": {
                    "modelserving.volcano.sh/name": "m",
                    "modelserving.volcano.sh/group-name": "m-0",
                    "modelserving.volcano.sh/role": "decode",
                    "modelserving.volcano.sh/role-id": "decode-0",
                }
            },
            "llm/ModelServing/m/m-0/decode/decode-0",
        ),
        ({"owner": ("orchestration.aibrix.ai/v1alpha1", "PodSet", "p", "u")}, "llm/PodSet/p"),
        ({"owner": ("orchestration.aibrix.ai/v1alpha1", "RoleSet", "r", "u")}, None),
        (
            {
                "owner": ("apps/v1", "StatefulSet", "s", "u"),
                "containers": [kube.container(args=["vllm serve m --nnodes 2 --node-rank $RANK"])],
            },
            "llm/StatefulSet/s",
        ),
        (
            {
                "owner": ("apps/v1", "StatefulSet", "s", "u"),
                "containers": [kube.container(args=["--nnodes", "1"])],
            },
            None,
        ),
        ({"owner": ("apps/v1", "StatefulSet", "s", "u")}, None),
        (
            {
                "owner": ("apps/v1", "ReplicaSet", "s", "u"),
                "containers": [kube.container(args=["--headless"])],
            },
            None,
        ),
        (
            {
                "labels": {"serving.kserve.io/inferenceservice": "i"},
                "containers": [kube.container("worker-container")],
            },
            "llm/InferenceService/i",
        ),
        (
            {
                "labels": {"serving.kserve.io/inferenceservice": "i"},
                "containers": [kube.container("kserve-container")],
            },
            None,
        ),
    ],
)
def test_groups(pod, expected):
    assert group_of(kube.pod(**pod)) == expected
