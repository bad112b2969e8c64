# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod belongs to: owner chain, the object to edit, who would revert a change, and what changed lately.

Kinds, paths and markers: shared facts "workload-kinds", sections 1 to 4. Objects come from two functions that
the caller gives, so that a cluster and a saved tree are read alike:

- ``lookup(api_version, kind, namespace, name)`` returns the raw object or None;
- ``listing(api_version, kind, namespace)`` returns the raw objects of a kind in a namespace (maybe none).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..documents import workload
from ..engine.settings import engine_settings, engine_version, what_an_upgrade_changes
from .pods import recognise_engine

_MAX_DEPTH = 8
_MAX_REVISIONS = 5


class Kind(NamedTuple):
    """One kind of owner.

    path: where the engine container is, ``{c}`` its name, ``{r}`` the pod's role in the object; None when
    settings aren't kept as a container. tool: the controller that owns what is below, None for Kubernetes' own;
    reverts: what it does to a patch of a child (now, on_sync, on_upgrade, never, unknown).
    """

    plural: str
    path: str | None = None
    tool: str | None = None
    reverts: str | None = None


_TEMPLATE = "spec.template.spec.containers[{c}]"

# (API group, kind) -> how it is written.
KINDS = {
    ("", "Pod"): Kind("pods", "spec.containers[{c}]"),
    ("", "Node"): Kind("nodes"),
    ("", "ReplicationController"): Kind("replicationcontrollers", _TEMPLATE),
    ("apps", "Deployment"): Kind("deployments", _TEMPLATE),
    ("apps", "ReplicaSet"): Kind("replicasets", _TEMPLATE),
    ("apps", "StatefulSet"): Kind("statefulsets", _TEMPLATE),
    ("apps", "DaemonSet"): Kind("daemonsets", _TEMPLATE),
    ("apps", "ControllerRevision"): Kind("controllerrevisions"),
    ("batch", "Job"): Kind("jobs", _TEMPLATE),
    ("batch", "CronJob"): Kind("cronjobs", "spec.jobTemplate.spec.template.spec.containers[{c}]"),
    ("argoproj.io", "Rollout"): Kind("rollouts", _TEMPLATE, "Argo Rollouts", "now"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Kind(
        "leaderworkersets", "spec.leaderWorkerTemplate.{r}.spec.containers[{c}]", "LeaderWorkerSet", "now"
    ),
    ("jobset.x-k8s.io", "JobSet"): Kind(
        "jobsets", "spec.replicatedJobs[{r}].template.spec.template.spec.containers[{c}]", "JobSet", "now"
    ),
    ("serving.knative.dev", "Service"): Kind("services", _TEMPLATE, "Knative", "now"),
    ("serving.knative.dev", "Configuration"): Kind("configurations", _TEMPLATE, "Knative", "now"),
    ("serving.knative.dev", "Revision"): Kind("revisions", "spec.containers[{c}]", "Knative", "now"),
    ("production-stack.vllm.ai", "VLLMRuntime"): Kind(
        "vllmruntimes", "spec", "vLLM production-stack operator", "on_sync"
    ),
    ("serving.kserve.io", "InferenceService"): Kind(
        "inferenceservices", "spec.predictor.model", "KServe", "now"
    ),
    ("serving.kserve.io", "LLMInferenceService"): Kind(
        "llminferenceservices", "spec.template.containers[{c}]", "KServe", "now"
    ),
    ("ray.io", "RayCluster"): Kind(
        "rayclusters", "spec.{r}.template.spec.containers[{c}]", "KubeRay", "unknown"
    ),
    ("ray.io", "RayService"): Kind("rayservices", "spec.serveConfigV2", "KubeRay", "now"),
    ("ray.io", "RayJob"): Kind("rayjobs", "spec.entrypoint", "KubeRay", "now"),
    ("ray.io", "RayCronJob"): Kind("raycronjobs", None, "KubeRay", "now"),
    ("orchestration.aibrix.ai", "StormService"): Kind(
        "stormservices", "spec.template.spec.roles[{r}].template.spec.containers[{c}]", "AIBrix", "now"
    ),
    ("orchestration.aibrix.ai", "RoleSet"): Kind(
        "rolesets", "spec.roles[{r}].template.spec.containers[{c}]", "AIBrix", "now"
    ),
    ("orchestration.aibrix.ai", "PodSet"): Kind("podsets", None, "AIBrix", "now"),
    ("orchestration.aibrix.ai", "RayClusterFleet"): Kind(
        "rayclusterfleets", "spec.template.spec.{r}.template.spec.containers[{c}]", "AIBrix", "now"
    ),
    ("orchestration.aibrix.ai", "RayClusterReplicaSet"): Kind(
        "rayclusterreplicasets", "spec.template.spec.{r}.template.spec.containers[{c}]", "AIBrix", "now"
    ),
    ("nvidia.com", "DynamoGraphDeployment"): Kind(
        "dynamographdeployments",
        "spec.components[{r}].podTemplate.spec.containers[{c}]",
        "NVIDIA Dynamo",
        "now",
    ),
    ("nvidia.com", "DynamoComponentDeployment"): Kind(
        "dynamocomponentdeployments", None, "NVIDIA Dynamo", "now"
    ),
    ("grove.io", "PodCliqueSet"): Kind("podcliquesets", None, "Grove", "now"),
    ("grove.io", "PodCliqueScalingGroup"): Kind("podcliquescalinggroups", None, "Grove", "now"),
    ("grove.io", "PodClique"): Kind("podcliques", "spec.podSpec.containers[{c}]", "Grove", "now"),
    ("apps.nvidia.com", "NIMService"): Kind("nimservices", "spec", "NVIDIA NIM operator", "on_upgrade"),
    ("kaito.sh", "Workspace"): Kind(
        "workspaces", "inference.template.spec.containers[{c}]", "KAITO", "on_upgrade"
    ),
    ("kaito.sh", "InferenceSet"): Kind("inferencesets", None, "KAITO", "on_upgrade"),
    ("kaito.sh", "MultiRoleInference"): Kind("multiroleinferences", None, "KAITO", "on_upgrade"),
    ("ome.io", "InferenceService"): Kind("inferenceservices", "spec.{r}.runner", "OME", "now"),
    ("workload.serving.volcano.sh", "ModelBooster"): Kind(
        "modelboosters", "spec.backend.workers[{r}].config", "Kthena", "on_upgrade"
    ),
    ("workload.serving.volcano.sh", "ModelServing"): Kind(
        "modelservings", "spec.template.roles[{r}].{t}.spec.containers[{c}]", "Kthena", "now"
    ),
    ("kubeai.org", "Model"): Kind("models", "spec", "KubeAI", "now"),
    ("autoscaling", "HorizontalPodAutoscaler"): Kind("horizontalpodautoscalers"),
    ("autoscaling.k8s.io", "VerticalPodAutoscaler"): Kind("verticalpodautoscalers"),
    ("keda.sh", "ScaledObject"): Kind("scaledobjects"),
}

_AUTOSCALERS = (
    ("autoscaling/v2", "HorizontalPodAutoscaler", "scaleTargetRef"),
    ("keda.sh/v1alpha1", "ScaledObject", "scaleTargetRef"),
    ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "targetRef"),
)


_LEADER = "spec.leaderWorkerTemplate.leaderTemplate"
# Where an object keeps the container elsewhere than usual: the usual path, the other, and the keys that show it.
_OTHER_PATHS = (
    ("spec.predictor.model", "spec.predictor.containers[{c}]", ("predictor", "containers")),
    ("spec.predictor.model", "spec.predictor.huggingface", ("predictor", "huggingface")),
    ("spec.components[", "spec.services", ("services",)),
)


class Marker(NamedTuple):
    """A trace that a tool leaves on the objects it writes (workload-kinds section 4).

    where: labels, annotations or managers (managedFields); key and value are patterns over the whole string;
    proof: proof or hint; reverts: what the tool does to a live change.
    """

    tool: str
    where: str
    key: str
    value: str
    proof: str
    reverts: str


_MARKERS = (
    Marker("Argo CD", "annotations", r"argocd\.argoproj\.io/tracking-id", ".+", "proof", "on_sync"),
    Marker("Argo CD", "managers", r"argocd-(application-)?controller", "", "hint", "on_sync"),
    Marker("Flux", "labels", r"kustomize\.toolkit\.fluxcd\.io/name", ".+", "proof", "on_sync"),
    Marker("Flux", "managers", "kustomize-controller", "", "hint", "on_sync"),
    Marker("Flux HelmRelease", "labels", r"helm\.toolkit\.fluxcd\.io/name", ".+", "proof", "on_upgrade"),
    Marker("Flux HelmRelease", "managers", "helm-controller", "", "hint", "on_upgrade"),
    Marker("OLM", "labels", r"olm\.owner", ".+", "proof", "now"),
    Marker("Rancher Fleet", "annotations", r"objectset\.rio\.cattle\.io/id", ".+", "proof", "unknown"),
    Marker("Rancher Fleet", "managers", "fleetagent", "", "hint", "unknown"),
    Marker("Config Sync", "annotations", r"configmanagement\.gke\.io/managed", "enabled", "proof", "now"),
    Marker("Carvel kapp", "labels", r"kapp\.k14s\.io/app", ".+", "proof", "on_sync"),
    Marker("Crossplane", "labels", r"crossplane\.io/composite", ".+", "proof", "now"),
    Marker("Terraform", "managers", "Terraform|HashiCorp", "", "hint", "on_upgrade"),
    Marker("Pulumi", "annotations", r"pulumi\.com/.+", ".*", "hint", "on_upgrade"),
    Marker("Pulumi", "managers", "pulumi-kubernetes.*", "", "hint", "on_upgrade"),
    Marker("Helm", "annotations", r"meta\.helm\.sh/release-name", ".+", "proof", "on_upgrade"),
    Marker("Helm", "labels", r"app\.kubernetes\.io/managed-by", "Helm", "hint", "on_upgrade"),
    Marker("Helm", "managers", "helm", "", "hint", "on_upgrade"),
    Marker("Kueue", "labels", r"kueue\.x-k8s\.io/queue-name", ".+", "proof", "never"),
    Marker(
        "kubectl apply",
        "annotations",
        r"kubectl\.kubernetes\.io/last-applied-configuration",
        ".+",
        "proof",
        "on_upgrade",
    ),
    Marker("kubectl apply", "managers", "kubectl-client-side-apply", "", "hint", "on_upgrade"),
)


def api_group(api_version):
    """The group of an apiVersion: ``apps`` of ``apps/v1``, empty for ``v1``."""
    return api_version.rpartition("/")[0] if api_version else ""


def kind_of(api_version, kind):
    """The row of ``KINDS`` for an object's apiVersion and kind, or None."""
    return KINDS.get((api_group(api_version), kind))


def workload_evidence(raw_pod, lookup, listing=None, redactor=None):
    """``documents.workload`` of a raw pod.

    kind, name, api_version: the top of the owner chain. chain: from the pod's owner to the top,
    ``{kind, name, api_version, uid, read, inferred}`` (read: whether the object itself could be read; inferred:
    whether no object names it as its owner and its own name is a conclusion, see ``_inferred_owner``).
    edit: ``{kind, name, api_version, path, inferred}`` of the object on which a change lasts. managers:
    ``{tool, object, proof, reverts}``. replicas: ``{desired, current, ready, available, updated}``. revisions:
    oldest first, ``{revision, at, current, change_cause, diff}`` with diff against the revision before,
    ``[{container, field, before, after, why}]``. More: revision (of this pod), conditions (abnormal ones).
    """
    listing = listing or (lambda *_args: [])
    metadata = raw_pod.get("metadata") or {}
    namespace = metadata.get("namespace")
    chain = owner_chain(raw_pod, lookup)
    objects = [item for _reference, item in chain if item]
    top = chain[-1][0] if chain else {"apiVersion": "v1", "kind": "Pod", "name": metadata.get("name")}
    scaled = _scaled_object(chain)
    revisions = _revisions(chain, raw_pod, namespace, listing, redactor)
    return workload(
        top.get("kind"),
        top.get("name"),
        top.get("apiVersion"),
        edit=_edit(chain, raw_pod),
        chain=[
            {
                "kind": reference.get("kind"),
                "name": reference.get("name"),
                "api_version": reference.get("apiVersion"),
                "uid": reference.get("uid"),
                "read": item is not None,
                "inferred": bool(reference.get("inferred")),
            }
            for reference, item in chain
        ],
        replicas=_replicas(scaled),
        strategy=_strategy(scaled),
        autoscalers=_autoscalers(chain, namespace, listing),
        managers=managers_of([*objects, raw_pod] if not chain else objects),
        revisions=revisions,
        revision=_revision_of(raw_pod),
        conditions=_abnormal_conditions(objects, redactor),
    )


def owner_chain(raw_object, lookup):
    """``[(ownerReference, raw object or None)]`` from the nearest owner to the top; controllers go first.

    Above a ReplicaSet that can't be read goes what its name tells, ``inferred`` in the reference.
    """
    chain: list[tuple[dict, dict | None]] = []
    seen = set()
    namespace = (raw_object.get("metadata") or {}).get("namespace")
    current = raw_object
    while current and len(chain) < _MAX_DEPTH:
        owners = (current.get("metadata") or {}).get("ownerReferences") or []
        owner = next((item for item in owners if item.get("controller")), owners[0] if owners else None)
        if not owner or owner.get("uid") in seen:
            break
        seen.add(owner.get("uid"))
        current = lookup(owner.get("apiVersion"), owner.get("kind"), namespace, owner.get("name"))
        if current and _other_uid(current, owner):
            current = None
        chain.append((owner, current))
        inferred = None if current else _inferred_owner(raw_object, owner)
        if inferred:
            current = lookup(inferred["apiVersion"], inferred["kind"], namespace, inferred["name"])
            uid = (current.get("metadata") or {}).get("uid") if current else None
            chain.append((dict(inferred, uid=uid), current))
    return chain


# What names a ReplicaSet NAME-HASH and puts the hash on its pods: the pods' label, and the owner's apiVersion and kind.
_MAKERS_OF_REPLICA_SETS = (
    ("pod-template-hash", "apps/v1", "Deployment"),
    ("rollouts-pod-template-hash", "argoproj.io/v1alpha1", "Rollout"),
)


def _inferred_owner(raw_pod, owner):
    """The reference to what made the pod's own ReplicaSet, by its name and the pod's label; else None."""
    name = owner.get("name") or ""
    if owner.get("kind") != "ReplicaSet" or owner not in raw_pod["metadata"]["ownerReferences"]:
        return None
    labels = raw_pod["metadata"].get("labels") or {}
    for label, api_version, kind in _MAKERS_OF_REPLICA_SETS:
        ending = f"-{labels[label]}" if labels.get(label) else None
        if ending and name.endswith(ending) and name != ending:
            made_by = name[: -len(ending)]
            return {"apiVersion": api_version, "kind": kind, "name": made_by, "inferred": True}
    return None


def _other_uid(raw, reference):
    """An object of the owner's name that isn't the owner (it was deleted and made anew)."""
    uid = (raw.get("metadata") or {}).get("uid")
    return bool(uid and reference.get("uid") and uid != reference["uid"])


# --- where to edit


def _edit(chain, raw_pod):
    """The object that a lasting change goes to: the top of the chain. Static pods are a file on the node."""
    metadata = raw_pod.get("metadata") or {}
    if not chain:
        return {
            "kind": "Pod",
            "name": metadata.get("name"),
            "api_version": "v1",
            "path": _path(KINDS["", "Pod"], raw_pod),
            "inferred": False,
        }
    top = chain[-1][0]
    if top.get("kind") == "Node":
        return None
    known = kind_of(top.get("apiVersion"), top.get("kind"))
    return {
        "kind": top.get("kind"),
        "name": top.get("name"),
        "api_version": top.get("apiVersion"),
        "path": _path(known, raw_pod, chain[-1][1]) if known else None,
        "inferred": bool(top.get("inferred")),
    }


def _path(kind, raw_pod, raw_owner=None):
    if kind.path is None:
        return None
    recognised = recognise_engine(raw_pod)
    containers = (raw_pod.get("spec") or {}).get("containers") or [{}]
    name = containers[recognised[0] if recognised else 0].get("name")
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    path = kind.path.format(
        c=name,
        r=_role(kind.plural, labels),
        t="entryTemplate" if labels.get("modelserving.volcano.sh/entry") == "true" else "workerTemplate",
    )
    spec = (raw_owner or {}).get("spec") or {}
    for shown, really, keys in _OTHER_PATHS:
        held = spec
        for key in keys:
            held = (held or {}).get(key)
        if held is not None and path.startswith(shown):
            return really.format(c=name)
    if (
        path.startswith(_LEADER)
        and spec
        and not (spec.get("leaderWorkerTemplate") or {}).get("leaderTemplate")
    ):
        return path.replace("leaderTemplate", "workerTemplate")
    return path


def _role(plural, labels):
    """The pod's part in an object with several templates, as the path names it."""
    if plural == "leaderworkersets":
        leader = labels.get("leaderworkerset.sigs.k8s.io/worker-index") == "0"
        return "leaderTemplate" if leader else "workerTemplate"
    if plural in ("rayclusters", "rayclusterfleets", "rayclusterreplicasets"):
        if labels.get("ray.io/node-type") == "head":
            return "headGroupSpec"
        return f"workerGroupSpecs[{labels.get('ray.io/group') or ''}]"
    if plural == "inferenceservices":
        return labels.get("component") or "engine"
    for label in (
        "jobset.sigs.k8s.io/replicatedjob-name",
        "role-name",
        "nvidia.com/dynamo-component",
        "modelserving.volcano.sh/role",
    ):
        if labels.get(label):
            return labels[label]
    return ""


# --- who reverts


def managers_of(raw_objects):
    """``[{tool, object, proof, reverts}]`` for the raw objects of a chain, the nearest to the pod first.

    proof: ``proof`` when the mark can only come from the tool, else ``hint``; a hint is left out where the
    same tool is proved for the same object. Operators that own a child by ownerReference are proof.
    """
    found = []
    for index, item in enumerate(raw_objects):
        name = _reference(item)
        known = kind_of(item.get("apiVersion"), item.get("kind"))
        if known and known.tool and index > 0:
            found.append({"tool": known.tool, "object": name, "proof": "proof", "reverts": known.reverts})
        marks = [(marker, _match(marker, item)) for marker in _MARKERS]
        proved = {marker.tool for marker, strength in marks if strength == "proof"}
        listed = set()
        for marker, strength in marks:
            if not strength or marker.tool in listed or (strength == "hint" and marker.tool in proved):
                continue
            listed.add(marker.tool)
            found.append(
                {
                    "tool": marker.tool,
                    "object": name,
                    "proof": strength,
                    "reverts": _reverts(marker, item),
                }
            )
    return found


def _match(marker, raw):
    """``proof``, ``hint`` or None: whether the object carries the marker."""
    metadata = raw.get("metadata") or {}
    if marker.where == "managers":
        names = [entry.get("manager") or "" for entry in metadata.get("managedFields") or []]
        return marker.proof if any(re.fullmatch(marker.key, name) for name in names) else None
    for key, value in (metadata.get(marker.where) or {}).items():
        if not (re.fullmatch(marker.key, key) and re.fullmatch(marker.value, str(value), re.DOTALL)):
            continue
        if key == "argocd.argoproj.io/tracking-id" and not _tracks(str(value), raw):
            return "hint"
        return marker.proof
    return None


def _tracks(tracking_id, raw):
    """Whether ``app:group/Kind:namespace/name`` names this very object; a copied object has a stale id."""
    metadata = raw.get("metadata") or {}
    group = api_group(raw.get("apiVersion"))
    own = f"{group}/{raw.get('kind')}:{metadata.get('namespace') or ''}/{metadata.get('name')}"
    return tracking_id.partition(":")[2] == own


def _reverts(marker, raw):
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    if marker.tool == "Flux" and (
        annotations.get("kustomize.toolkit.fluxcd.io/reconcile") == "disabled"
        or annotations.get("kustomize.toolkit.fluxcd.io/ssa") in ("IfNotPresent", "Ignore")
    ):
        return "never"
    return marker.reverts


# --- sizes and autoscalers


def _scaled_object(chain):
    """The nearest owner above a ReplicaSet that has replicas: its counts tell how the replicas fare."""
    for reference, item in chain:
        if (
            item
            and reference.get("kind") not in ("ReplicaSet", "Job")
            and "replicas" in (item.get("spec") or {})
        ):
            return item
    return next((item for _reference, item in chain if item), None)


def _replicas(raw):
    if not raw or raw.get("kind") == "Job":
        return None
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if "replicas" not in spec and "replicas" not in status:
        return None
    return {
        "desired": spec.get("replicas"),
        "current": status.get("replicas", 0),
        "ready": status.get("readyReplicas", 0),
        "available": status.get("availableReplicas", 0),
        "updated": status.get("updatedReplicas", 0),
    }


def _strategy(raw):
    if not raw:
        return None
    spec = raw.get("spec") or {}
    given = spec.get("strategy") or spec.get("updateStrategy") or spec.get("rolloutStrategy")
    if not isinstance(given, dict):
        return None
    rolling = given.get("rollingUpdate") or given.get("rollingUpdateConfiguration") or {}
    return {
        "type": given.get("type"),
        "max_surge": rolling.get("maxSurge"),
        "max_unavailable": rolling.get("maxUnavailable"),
        "partition": rolling.get("partition"),
        "progress_deadline_seconds": spec.get("progressDeadlineSeconds"),
    }


def _autoscalers(chain, namespace, listing):
    """``[{kind, name, target, min, max}]`` of the autoscalers that point at an object of the chain."""
    targets = {(reference.get("kind"), reference.get("name")) for reference, _item in chain}
    if not targets:
        return []
    found = []
    for api_version, kind, field in _AUTOSCALERS:
        for raw in listing(api_version, kind, namespace):
            spec = raw.get("spec") or {}
            target = spec.get(field) or {}
            # KEDA leaves the kind out when it means a Deployment.
            if (target.get("kind") or "Deployment", target.get("name")) not in targets:
                continue
            policy = (spec.get("updatePolicy") or {}).get("updateMode")
            found.append(
                {
                    "kind": kind,
                    "name": (raw.get("metadata") or {}).get("name"),
                    "target": f"{target.get('kind') or 'Deployment'}/{target.get('name')}",
                    "min": spec.get("minReplicas", spec.get("minReplicaCount")),
                    "max": spec.get("maxReplicas", spec.get("maxReplicaCount")),
                    "mode": policy,
                }
            )
    return sorted(found, key=lambda item: (item["kind"], item["name"] or ""))


def _abnormal_conditions(objects, redactor):
    """Conditions of the owners that say a rollout or creation fails, ``{object, type, reason, message}``."""
    found = []
    for item in objects:
        for condition in (item.get("status") or {}).get("conditions") or []:
            failing = (
                condition.get("type") in ("ReplicaFailure", "Failed") and condition.get("status") == "True"
            )
            stuck = condition.get("type") in ("Progressing", "Available", "Ready") and (
                condition.get("status") == "False"
            )
            if failing or stuck:
                found.append(
                    {
                        "object": _reference(item),
                        "type": condition.get("type"),
                        "reason": condition.get("reason"),
                        "message": _redacted(condition.get("message") or "", redactor),
                    }
                )
    return found


def _reference(raw):
    return f"{raw.get('kind')}/{(raw.get('metadata') or {}).get('name')}"


# --- what changed


def _revision_of(raw_pod):
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    return next(
        (
            labels[key]
            for key in (
                "pod-template-hash",
                "rollouts-pod-template-hash",
                "leaderworkerset.sigs.k8s.io/template-revision-hash",
                "controller-revision-hash",
            )
            if labels.get(key)
        ),
        None,
    )


def _revisions(chain, raw_pod, namespace, listing, redactor):
    """The last revisions of the owner that keeps a history, oldest first, each with its diff."""
    templates = _replica_set_templates(chain, namespace, listing) or _controller_revision_templates(
        chain, namespace, listing
    )
    templates.sort(key=lambda item: item["number"])
    own = _revision_of(raw_pod)
    revisions = []
    for before, after in zip([None, *templates], templates):
        revisions.append(
            {
                "revision": str(after["number"]),
                "at": after["at"],
                "current": after["hash"] is not None and after["hash"] == own,
                # With kubectl's --record it is a whole command line.
                "change_cause": _redacted(after["change_cause"], redactor),
                "diff": template_diff(before["template"], after["template"], redactor) if before else [],
            }
        )
    return revisions[-_MAX_REVISIONS:]


def _replica_set_templates(chain, namespace, listing):
    """Templates of a Deployment's (or Rollout's) ReplicaSets, by ``deployment.kubernetes.io/revision``."""
    owner = next((ref for ref, _item in chain if ref.get("kind") in ("Deployment", "Rollout")), None)
    if not owner:
        return []
    found = []
    for raw in listing("apps/v1", "ReplicaSet", namespace):
        metadata = raw.get("metadata") or {}
        if not _owned(metadata, owner):
            continue
        annotations = metadata.get("annotations") or {}
        number = annotations.get("deployment.kubernetes.io/revision") or annotations.get(
            "rollout.argoproj.io/revision"
        )
        labels = metadata.get("labels") or {}
        if number and str(number).isdecimal():
            found.append(
                {
                    "number": int(number),
                    "at": metadata.get("creationTimestamp"),
                    "hash": labels.get("pod-template-hash") or labels.get("rollouts-pod-template-hash"),
                    "change_cause": annotations.get("kubernetes.io/change-cause"),
                    "template": (raw.get("spec") or {}).get("template") or {},
                }
            )
    return found


def _controller_revision_templates(chain, namespace, listing):
    """Templates of the nearest owner that keeps ControllerRevisions (StatefulSet, DaemonSet, LeaderWorkerSet)."""
    for owner, _item in chain:
        if owner.get("kind") in ("ReplicaSet", "Job"):
            continue
        found = []
        for raw in listing("apps/v1", "ControllerRevision", namespace):
            metadata = raw.get("metadata") or {}
            if not _owned(metadata, owner):
                continue
            data = (raw.get("data") or {}).get("spec") or {}
            template = (
                data.get("template") or (data.get("leaderWorkerTemplate") or {}).get("workerTemplate") or {}
            )
            labels = metadata.get("labels") or {}
            found.append(
                {
                    "number": raw.get("revision") or 0,
                    "at": metadata.get("creationTimestamp"),
                    # A StatefulSet's pods carry the revision's name, a DaemonSet's its hash.
                    "hash": metadata.get("name")
                    if owner.get("kind") == "StatefulSet"
                    else labels.get("controller-revision-hash")
                    or labels.get("leaderworkerset.sigs.k8s.io/template-revision-hash"),
                    "change_cause": (metadata.get("annotations") or {}).get("kubernetes.io/change-cause"),
                    "template": template,
                }
            )
        if found:
            return found
    return []


def _owned(metadata, owner):
    return any(
        item.get("uid") == owner.get("uid")
        if item.get("uid") and owner.get("uid")
        else (item.get("kind"), item.get("name")) == (owner.get("kind"), owner.get("name"))
        for item in metadata.get("ownerReferences") or []
    )


def template_diff(before, after, redactor=None):
    """What changed between two raw pod templates, ``[{container, field, before, after, why}]``.

    Fields: image, command, args.<option>, env.<NAME>, resources.limits.<name>, resources.requests.<name>,
    volumes.<name>, container (added or removed), and engine.<option> for what a new vLLM version changes by
    default (why says so). Values are redacted.
    """
    changes = []
    old, new = _by_name(before), _by_name(after)
    for name in sorted(set(old) | set(new)):
        if name not in old or name not in new:
            changes.append(
                _change(name, "container", _image(old.get(name)), _image(new.get(name)), redactor=redactor)
            )
            continue
        changes += _container_diff(name, old[name], new[name], redactor)
    return changes + _volume_diff(before, after)


def _container_diff(name, old, new, redactor):
    changes = []
    if old.get("image") != new.get("image"):
        changes.append(_change(name, "image", old.get("image"), new.get("image"), redactor=redactor))
    changes += _argument_diff(name, old, new, redactor)
    changes += _map_diff(name, "env", _env(old, redactor), _env(new, redactor))
    for kind in ("requests", "limits"):
        changes += _map_diff(
            name,
            f"resources.{kind}",
            (old.get("resources") or {}).get(kind) or {},
            (new.get("resources") or {}).get(kind) or {},
        )
    return changes + _upgrade_diff(name, old, new)


def _argument_diff(name, old, new, redactor):
    """By option where the command line is vLLM's; what can't be read as options is compared as a whole."""
    sides = [(list(item.get("command") or []), list(item.get("args") or [])) for item in (old, new)]
    if sides[0] == sides[1]:
        return []
    if redactor:
        sides = [(redactor.arguments(command), redactor.arguments(args)) for command, args in sides]
    options = [
        {
            option: setting["value"]
            for option, setting in engine_settings(command, args, [], defaults=False).items()
            if setting["from"] == "arg"
        }
        for command, args in sides
    ]
    changes = _map_diff(name, "args", *options)
    if changes:
        return changes
    return [
        _change(name, field, " ".join(map(str, before)) or None, " ".join(map(str, after)) or None)
        for field, before, after in zip(("command", "args"), *sides)
        if before != after
    ]


def _upgrade_diff(name, old, new):
    before, after = (engine_version(item.get("image"), [])[0] for item in (old, new))
    if not before or not after or before == after:
        return []
    return [
        _change(
            name,
            f"engine.{item['option']}",
            item["before"],
            item["after"],
            item["why"] + (f" ({item['on']})" if item.get("on") else ""),
        )
        for item in what_an_upgrade_changes(before, after)
    ]


def _volume_diff(before, after):
    def volumes(template):
        listed = ((template or {}).get("spec") or {}).get("volumes") or []
        return {item.get("name"): _volume_text(item) for item in listed}

    return _map_diff(None, "volumes", volumes(before), volumes(after))


def _volume_text(raw):
    kind = next((key for key in raw if key != "name"), None)
    details = raw.get(kind) or {}
    shown = [
        f"{key}={details[key]}" for key in ("medium", "sizeLimit", "claimName", "path") if details.get(key)
    ]
    return " ".join([str(kind), *shown])


def _env(raw, redactor):
    found = {}
    for item in raw.get("env") or []:
        value = item.get("value")
        if value is None:
            value = "(from elsewhere)" if item.get("valueFrom") else ""
        found[item.get("name")] = redactor.env_value(item.get("name"), str(value)) if redactor else str(value)
    return found


def _map_diff(container, prefix, before, after):
    return [
        _change(container, f"{prefix}.{key}", before.get(key), after.get(key))
        for key in sorted(set(before) | set(after), key=str)
        if before.get(key) != after.get(key)
    ]


def _change(container, field, before, after, why=None, redactor=None):
    if redactor:
        before, after = (_redacted(item, redactor) for item in (before, after))
    return {"container": container, "field": field, "before": before, "after": after, "why": why}


def _redacted(value, redactor):
    return redactor.text(value) if redactor and isinstance(value, str) else value


def _by_name(template):
    spec = (template or {}).get("spec") or {}
    return {
        item.get("name"): item for item in (spec.get("initContainers") or []) + (spec.get("containers") or [])
    }


def _image(raw):
    return raw.get("image") if raw else None
