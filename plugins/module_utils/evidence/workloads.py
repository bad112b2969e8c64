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
from .own_change import own_change
from .pods import recognise_engine

_MAX_DEPTH = 8
_MAX_REVISIONS = 5


class Kind(NamedTuple):
    """One kind of owner.

    path: where the engine container is, ``{c}`` its name, ``{r}`` the part of the object that the pod is made from
    (see ``_PARTS``); None when settings aren't kept as a container. tool: the controller that owns what is below,
    None for Kubernetes' own; reverts: what it does to a patch of a child (now, on_sync, on_upgrade, never, unknown).
    arguments: where the engine's flags are, when they aren't in that container.
    """

    plural: str
    path: str | None = None
    tool: str | None = None
    reverts: str | None = None
    arguments: str | None = None


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
        "inferenceservices", "spec.predictor.{r}", "KServe", "now"
    ),
    ("serving.kserve.io", "LLMInferenceService"): Kind(
        "llminferenceservices", "spec.{r}.containers[{c}]", "KServe", "now"
    ),
    ("ray.io", "RayCluster"): Kind(
        "rayclusters", "spec.{r}.template.spec.containers[{c}]", "KubeRay", "unknown"
    ),
    ("ray.io", "RayService"): Kind(
        "rayservices",
        "spec.rayClusterConfig.{r}.template.spec.containers[{c}]",
        "KubeRay",
        "now",
        "spec.serveConfigV2",
    ),
    ("ray.io", "RayJob"): Kind(
        "rayjobs",
        "spec.rayClusterSpec.{r}.template.spec.containers[{c}]",
        "KubeRay",
        "now",
        "spec.entrypoint",
    ),
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
        "dynamographdeployments", "spec.{r}", "NVIDIA Dynamo", "now"
    ),
    ("nvidia.com", "DynamoComponentDeployment"): Kind(
        "dynamocomponentdeployments", None, "NVIDIA Dynamo", "now"
    ),
    ("grove.io", "PodCliqueSet"): Kind("podcliquesets", None, "Grove", "now"),
    ("grove.io", "PodCliqueScalingGroup"): Kind("podcliquescalinggroups", None, "Grove", "now"),
    ("grove.io", "PodClique"): Kind("podcliques", "spec.podSpec.containers[{c}]", "Grove", "now"),
    ("apps.nvidia.com", "NIMService"): Kind("nimservices", "spec", "NVIDIA NIM operator", "on_upgrade"),
    ("kaito.sh", "Workspace"): Kind("workspaces", "inference.{r}", "KAITO", "on_upgrade"),
    ("kaito.sh", "InferenceSet"): Kind("inferencesets", "spec.template.inference.{r}", "KAITO", "on_upgrade"),
    ("kaito.sh", "MultiRoleInference"): Kind("multiroleinferences", None, "KAITO", "on_upgrade"),
    ("ome.io", "InferenceService"): Kind("inferenceservices", "spec.{r}", "OME", "now"),
    ("workload.serving.volcano.sh", "ModelBooster"): Kind(
        "modelboosters",
        "spec.backend.workers[{r}]",
        "Kthena",
        "on_upgrade",
        "spec.backend.workers[{r}].config",
    ),
    ("workload.serving.volcano.sh", "ModelServing"): Kind(
        "modelservings", "spec.template.{r}.spec.containers[{c}]", "Kthena", "now"
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


class Marker(NamedTuple):
    """A trace that a tool leaves on the objects it writes (workload-kinds section 4).

    where: labels, annotations or managers (managedFields); key and value are patterns over the whole string, for
    managers over the manager's name and its operation; proof: proof or hint; reverts: what the tool does to a live
    change; beside: another label or annotation without which the proof is a hint.
    """

    tool: str
    where: str
    key: str
    value: str
    proof: str
    reverts: str
    beside: str | None = None


_FLUX, _FLUX_HELM = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"
_MARKERS = (
    Marker("Argo CD", "annotations", r"argocd\.argoproj\.io/tracking-id", ".+", "proof", "on_sync"),
    Marker("Argo CD", "managers", r"argocd-(application-)?controller", ".*", "hint", "on_sync"),
    Marker("Flux", "labels", re.escape(f"{_FLUX}/name"), ".+", "proof", "on_sync", f"{_FLUX}/namespace"),
    Marker("Flux", "managers", "kustomize-controller", ".*", "hint", "on_sync"),
    Marker(
        "Flux HelmRelease",
        "labels",
        re.escape(f"{_FLUX_HELM}/name"),
        ".+",
        "proof",
        "on_upgrade",
        f"{_FLUX_HELM}/namespace",
    ),
    Marker("Flux HelmRelease", "managers", "helm-controller", ".*", "hint", "unknown"),
    Marker("OLM", "labels", r"olm\.owner", ".+", "proof", "now"),
    Marker("OLM", "managers", "olm|catalog", ".*", "hint", "now"),
    Marker("Rancher Fleet", "annotations", r"objectset\.rio\.cattle\.io/id", ".+", "proof", "unknown"),
    Marker("Rancher Fleet", "managers", "fleetagent", ".*", "hint", "unknown"),
    Marker("Config Sync", "annotations", r"configmanagement\.gke\.io/managed", "enabled", "proof", "now"),
    Marker("Config Sync", "managers", "configsync", ".*", "hint", "now"),
    Marker("Carvel kapp", "labels", r"kapp\.k14s\.io/app", ".+", "proof", "on_sync"),
    Marker("Carvel kapp", "managers", "kapp(-controller)?", ".*", "hint", "on_sync"),
    Marker("Crossplane", "labels", r"crossplane\.io/composite", ".+", "proof", "now"),
    Marker("Crossplane", "managers", r"apiextensions\.crossplane\.io/.+", ".*", "hint", "now"),
    Marker("Terraform", "managers", "Terraform|HashiCorp", ".*", "hint", "on_upgrade"),
    Marker("Pulumi", "annotations", r"pulumi\.com/.+", ".*", "hint", "on_upgrade"),
    Marker("Pulumi", "managers", "pulumi-kubernetes.*", ".*", "hint", "on_upgrade"),
    Marker("Helm", "annotations", r"meta\.helm\.sh/release-name", ".+", "proof", "on_upgrade"),
    Marker("Helm", "labels", r"app\.kubernetes\.io/managed-by", "Helm", "hint", "on_upgrade"),
    Marker("Helm", "managers", "helm", ".*", "hint", "on_upgrade"),
    Marker("Kueue", "labels", r"kueue\.x-k8s\.io/queue-name", ".+", "proof", "never"),
    Marker("SkyPilot", "labels", "parent", "skypilot", "proof", "never"),
    Marker(
        "kubectl apply",
        "annotations",
        r"kubectl\.kubernetes\.io/last-applied-configuration",
        ".+",
        "proof",
        "on_upgrade",
    ),
    Marker("kubectl apply", "managers", "kubectl-client-side-apply", ".*", "hint", "on_upgrade"),
    # Other commands of kubectl update; a server-side apply applies.
    Marker("kubectl apply", "managers", "kubectl", "Apply", "hint", "on_upgrade"),
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
    edit: ``{kind, name, api_version, path, arguments, inferred, uid, generation}`` of the object on which a change lasts,
    with the path of the engine container in it, and that of the engine's flags where they are elsewhere; uid and
    generation are None where it wasn't read. paused: whether its controller rolls nothing out, None where the kind has
    no such field or the object wasn't read. own_change: see ``own_change.own_change``. managers:
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
    edit = _edit(chain, raw_pod)
    edited = _edited(edit, chain, raw_pod, lookup)
    if edit:
        made = (edited or {}).get("metadata") or {}
        edit.update(uid=made.get("uid"), generation=made.get("generation"))
    revisions = _revisions(chain, raw_pod, namespace, listing, redactor)
    return workload(
        top.get("kind"),
        top.get("name"),
        top.get("apiVersion"),
        edit=edit,
        paused=_paused([edited, *objects[-1:]]),
        own_change=own_change(edited, redactor),
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
        managers=managers_of(chain or [(top, raw_pod)], lookup),
        revisions=revisions,
        revision=next(iter(_revisions_of(raw_pod)), None),
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
    """The object that a lasting change goes to: mostly the top of the chain. None where it is no object of the
    cluster: a static pod's file on its node, SkyPilot's task on the user's machine."""
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    if not chain:
        if labels.get("parent") == "skypilot":
            return None
        pod = {"apiVersion": "v1", "kind": "Pod", "name": (raw_pod.get("metadata") or {}).get("name")}
        return _edit_of(pod, *_path_in(pod, raw_pod, None))
    top, raw = chain[-1]
    if top.get("kind") == "Node":
        return None
    referred = _referred_template(top, raw)
    if referred:
        return _edit_of(referred, *_path_in(referred, raw_pod, None))
    return _kaito_preset(chain) or _edit_of(top, *_path_in(top, raw_pod, raw))


def _edit_of(reference, path, arguments=None):
    return {
        "kind": reference.get("kind"),
        "name": reference.get("name"),
        "api_version": reference.get("apiVersion"),
        "path": path,
        "arguments": arguments,
        "inferred": bool(reference.get("inferred")),
        "uid": None,
        "generation": None,
    }


def _edited(edit, chain, raw_pod, lookup):
    """The raw object that ``edit`` names, or None where it wasn't read (a ConfigMap is none of the reader's rights)."""
    if not edit or edit["kind"] == "ConfigMap":
        return None
    named = (edit["api_version"], edit["kind"], edit["name"])
    if not chain:
        return raw_pod
    for reference, raw in chain:
        if (reference.get("apiVersion"), reference.get("kind"), reference.get("name")) == named:
            return raw
    return lookup(*named[:2], (raw_pod.get("metadata") or {}).get("namespace"), edit["name"])


# Kinds whose controller rolls nothing out while spec.paused is set.
_PAUSABLE = (("apps", "Deployment"), ("argoproj.io", "Rollout"), ("orchestration.aibrix.ai", "StormService"))


def _paused(objects):
    """Whether one of the raw objects is paused; None where none of them is of a kind that can be."""
    found = [
        (raw.get("spec") or {}).get("paused") is True
        for raw in objects
        if raw and (api_group(raw.get("apiVersion")), raw.get("kind")) in _PAUSABLE
    ]
    return any(found) if found else None


def _referred_template(reference, raw):
    """The reference to the object that holds a Rollout's template when the Rollout doesn't, else None."""
    if (api_group(reference.get("apiVersion")), reference.get("kind")) != ("argoproj.io", "Rollout"):
        return None
    referred = ((raw or {}).get("spec") or {}).get("workloadRef") or {}
    return referred if referred.get("kind") and referred.get("name") else None


def _kaito_preset(chain):
    """A preset of KAITO has its settings in a ConfigMap that its Workspace names, or doesn't name yet; else None."""
    inference = next(
        (
            raw.get("inference") or {}
            for reference, raw in chain
            if raw
            and (api_group(reference.get("apiVersion")), reference.get("kind")) == ("kaito.sh", "Workspace")
        ),
        {},
    )
    if "preset" in inference and inference.get("config"):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "name": inference["config"]}
        return _edit_of(config, "data[inference_config.yaml].vllm")
    return None


class _Made(NamedTuple):
    """What tells which part of an owner a pod is made from. spec: the owner's, empty where it can't be read."""

    container: str
    labels: dict
    spec: dict
    raw: dict
    version: str


def _path_in(reference, raw_pod, raw_owner):
    """``(path, arguments)`` as in ``Kind``, for the owner that ``reference`` names; None where it isn't known."""
    group, kind = api_group(reference.get("apiVersion")), reference.get("kind")
    known = KINDS.get((group, kind))
    if known is None or known.path is None:
        return None, None
    recognised = recognise_engine(raw_pod)
    containers = (raw_pod.get("spec") or {}).get("containers") or [{}]
    raw = raw_owner or {}
    made = _Made(
        container=containers[recognised[0] if recognised else 0].get("name"),
        labels=(raw_pod.get("metadata") or {}).get("labels") or {},
        spec=raw.get("spec") or {},
        raw=raw,
        version=reference.get("apiVersion").rpartition("/")[2],
    )
    part = _PARTS[group, kind](made) if (group, kind) in _PARTS else made.labels.get(_ROLE_LABELS.get(group))
    if "{r}" in known.path and not part:
        return None, None
    return tuple(text and text.format(c=made.container, r=part) for text in (known.path, known.arguments))


def _is_first_of_group(labels):
    """Whether a pod of a LeaderWorkerSet or RayCluster is the leader or head; None outside of these."""
    index = labels.get("leaderworkerset.sigs.k8s.io/worker-index")
    node_type = labels.get("ray.io/node-type")
    return None if index is None and node_type is None else index == "0" or node_type == "head"


def _lws_part(made):
    """Without a template of its own the leader is made from the workers'."""
    templates = made.spec.get("leaderWorkerTemplate") or {}
    own = not made.spec or bool(templates.get("leaderTemplate"))
    return "leaderTemplate" if _is_first_of_group(made.labels) and own else "workerTemplate"


def _ray_part(made):
    if _is_first_of_group(made.labels):
        return "headGroupSpec"
    group = made.labels.get("ray.io/group")
    return group and f"workerGroupSpecs[{group}]"


def _kserve_part(made):
    """The model is the container; older forms are a list of containers, and a key that is the framework's name."""
    predictor = made.spec.get("predictor") or {}
    if made.container == "worker-container":
        return "workerSpec.containers[worker-container]"
    if "model" not in predictor and "huggingface" in predictor:
        return "huggingface"
    if "model" not in predictor and "containers" in predictor:
        return f"containers[{made.container}]"
    return "model"


def _kserve_llm_part(made):
    component = made.labels.get("app.kubernetes.io/component") or ""
    template = "worker" if "-worker" in component else "template"
    return f"prefill.{template}" if "-prefill" in component else template


def _dynamo_part(made):
    """The older version keeps a map of services, the newer a list of components; the API converts."""
    name = made.labels.get("nvidia.com/dynamo-component")
    older = "services" in made.spec if made.spec else made.version == "v1alpha1"
    if name and older:
        return f"services.{name}.extraPodSpec.mainContainer"
    return name and f"components[{name}].podTemplate.spec.containers[{made.container}]"


def _kaito_part(made):
    """A preset without a ConfigMap of its own needs one, which is named there."""
    holder = ((made.spec.get("template") or {}) if made.spec else made.raw).get("inference") or {}
    if holder.get("template"):
        return f"template.spec.containers[{made.container}]"
    return "config" if "preset" in holder else None


def _ome_part(made):
    component, first = made.labels.get("component"), _is_first_of_group(made.labels)
    if component not in ("engine", "decoder"):
        return None
    return f"{component}." + ("runner" if first is None else "leader.runner" if first else "worker.runner")


def _booster_part(made):
    """A booster whose pods do both makes a role that is called leader from its worker of the type server."""
    role = made.labels.get("modelserving.volcano.sh/role")
    return "server" if role == "leader" else role


def _model_serving_part(made):
    role = made.labels.get("modelserving.volcano.sh/role")
    entry = made.labels.get("modelserving.volcano.sh/entry") == "true"
    return role and f"roles[{role}].{'entryTemplate' if entry else 'workerTemplate'}"


# (API group, kind) -> which part of the object the pod is made from, as its path names it; None: it can't be told.
_PARTS = {
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _lws_part,
    ("serving.kserve.io", "InferenceService"): _kserve_part,
    ("serving.kserve.io", "LLMInferenceService"): _kserve_llm_part,
    ("ray.io", "RayCluster"): _ray_part,
    ("ray.io", "RayService"): _ray_part,
    ("ray.io", "RayJob"): _ray_part,
    ("orchestration.aibrix.ai", "RayClusterFleet"): _ray_part,
    ("orchestration.aibrix.ai", "RayClusterReplicaSet"): _ray_part,
    ("nvidia.com", "DynamoGraphDeployment"): _dynamo_part,
    ("kaito.sh", "Workspace"): _kaito_part,
    ("kaito.sh", "InferenceSet"): _kaito_part,
    ("ome.io", "InferenceService"): _ome_part,
    ("workload.serving.volcano.sh", "ModelBooster"): _booster_part,
    ("workload.serving.volcano.sh", "ModelServing"): _model_serving_part,
}
# API group -> the pods' label with the part's name, where that is all.
_ROLE_LABELS = {
    "jobset.x-k8s.io": "jobset.sigs.k8s.io/replicatedjob-name",
    "orchestration.aibrix.ai": "role-name",
}


# --- who reverts


def managers_of(chain, lookup):
    """``[{tool, object, proof, reverts}]`` for a chain (see ``owner_chain``), the object to edit first.

    proof: ``proof`` when the mark can only come from the tool, else ``hint``; a hint is left out where the
    same tool is proved for the same object. An operator is proved by the ownerReference of its child, which is the
    object that it manages: not its own, in which a change lasts.
    """
    found: list[dict] = []
    maker, maker_was_read = None, False
    for index, (reference, raw) in reversed(list(enumerate(chain))):
        referred = _referred_template(reference, raw)
        if referred:
            namespace = (raw.get("metadata") or {}).get("namespace")
            template = lookup(referred.get("apiVersion"), referred["kind"], namespace, referred["name"])
            found += _marks(referred, template, lookup) if template else []
        # Controllers copy the marks of their object to what they make of it (a Deployment to its ReplicaSets): there
        # they prove nothing, and tell something only while the object itself can't be read.
        if raw and not (maker and maker_was_read):
            found += _marks(reference, raw, lookup, copied=bool(maker))
        known = kind_of(reference.get("apiVersion"), reference.get("kind"))
        if known and known.tool and index > 0 and not reference.get("inferred"):
            found.append(_manager(known.tool, chain[index - 1][0], "proof", known.reverts))
        maker, maker_was_read = known, raw is not None
    return found


def _marks(reference, raw, lookup, copied=False):
    """The tools that left a mark on one object; copied: it may be that of another object."""
    marks = [(marker, _match(marker, raw)) for marker in _MARKERS]
    proved = {marker.tool for marker, strength in marks if strength == "proof"}
    found = {}
    for marker, strength in marks:
        if strength and marker.tool not in found and (strength == "proof" or marker.tool not in proved):
            reverts = _reverts(marker, raw, lookup)
            found[marker.tool] = _manager(marker.tool, reference, "hint" if copied else strength, reverts)
    return list(found.values())


def _manager(tool, reference, proof, reverts):
    name = f"{reference.get('kind')}/{reference.get('name')}"
    return {"tool": tool, "object": name, "proof": proof, "reverts": reverts}


def _match(marker, raw):
    """``proof``, ``hint`` or None: whether the object carries the marker."""
    metadata = raw.get("metadata") or {}
    if marker.where == "managers":
        writers = [
            (entry.get("manager") or "", entry.get("operation") or "")
            for entry in metadata.get("managedFields") or []
        ]
        return marker.proof if any(_fits(marker, *writer) for writer in writers) else None
    texts = metadata.get(marker.where) or {}
    for key, value in texts.items():
        if not _fits(marker, key, str(value)):
            continue
        stale = key == "argocd.argoproj.io/tracking-id" and not _tracks(str(value), raw)
        return "hint" if stale or (marker.beside and not texts.get(marker.beside)) else marker.proof
    return None


def _fits(marker, key, value):
    return re.fullmatch(marker.key, key) and re.fullmatch(marker.value, value, re.DOTALL)


def _tracks(tracking_id, raw):
    """Whether ``app:group/Kind:namespace/name`` names this very object; a copied object has a stale id."""
    metadata = raw.get("metadata") or {}
    group = api_group(raw.get("apiVersion"))
    own = f"{group}/{raw.get('kind')}:{metadata.get('namespace') or ''}/{metadata.get('name')}"
    return tracking_id.partition(":")[2] == own


def _reverts(marker, raw, lookup):
    metadata = raw.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if marker.tool == "Flux" and (
        annotations.get("kustomize.toolkit.fluxcd.io/reconcile") == "disabled"
        or annotations.get("kustomize.toolkit.fluxcd.io/ssa") in ("IfNotPresent", "Ignore")
    ):
        return "never"
    if marker.tool == "Flux HelmRelease" and marker.where == "labels":
        release = lookup(
            "helm.toolkit.fluxcd.io/v2",
            "HelmRelease",
            labels.get("helm.toolkit.fluxcd.io/namespace") or metadata.get("namespace"),
            labels["helm.toolkit.fluxcd.io/name"],
        )
        if not release:
            return "unknown"
        detection = (release.get("spec") or {}).get("driftDetection") or {}
        return "on_sync" if detection.get("mode") == "enabled" else marker.reverts
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
    if not chain:
        return []
    found = []
    for api_version, kind, field in _AUTOSCALERS:
        for raw in listing(api_version, kind, namespace):
            spec = raw.get("spec") or {}
            target = spec.get(field) or {}
            if not any(_is_target(target, reference) for reference, _item in chain):
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


def _is_target(target, reference):
    """Whether an autoscaler's target is that object. KEDA leaves out what it means by default, a Deployment."""
    named = (target.get("kind") or "Deployment", target.get("name"))
    groups = [api_group(item.get("apiVersion")) for item in (target, reference) if item.get("apiVersion")]
    return named == (reference.get("kind"), reference.get("name")) and len(set(groups)) < 2


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


_REVISION_LABELS = (
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
    "controller-revision-hash",
)


def _revisions_of(raw_pod):
    """The pod's revision in each of its owners that counts them, the one that people read first."""
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    return [labels[key] for key in _REVISION_LABELS if labels.get(key)]


def _revisions(chain, raw_pod, namespace, listing, redactor):
    """The last revisions of the owner that keeps a history, oldest first, each with its diff."""
    templates = _replica_set_templates(chain, namespace, listing) or _controller_revision_templates(
        chain, raw_pod, namespace, listing
    )
    templates.sort(key=lambda item: item["number"])
    own = _revisions_of(raw_pod)
    revisions = []
    for before, after in zip([None, *templates], templates):
        revisions.append(
            {
                "revision": str(after["number"]),
                "at": after["at"],
                "current": after["hash"] in own,
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


def _controller_revision_templates(chain, raw_pod, namespace, listing):
    """Templates of the nearest owner with several ControllerRevisions (StatefulSet, DaemonSet, LeaderWorkerSet).

    The StatefulSet of a LeaderWorkerSet's workers is made anew with each revision and has only one.
    """
    only: list[dict] = []
    for owner, _item in chain:
        if owner.get("kind") in ("ReplicaSet", "Job"):
            continue
        found = [
            _controller_revision(raw, owner, raw_pod)
            for raw in listing("apps/v1", "ControllerRevision", namespace)
            if _owned(raw.get("metadata") or {}, owner)
        ]
        if len(found) > 1:
            return found
        only = only or found
    return only


def _controller_revision(raw, owner, raw_pod):
    metadata = raw.get("metadata") or {}
    labels = metadata.get("labels") or {}
    spec = (raw.get("data") or {}).get("spec") or {}
    group = spec.get("leaderWorkerTemplate") or {}
    leader = _is_first_of_group((raw_pod.get("metadata") or {}).get("labels") or {})
    return {
        "number": raw.get("revision") or 0,
        "at": metadata.get("creationTimestamp"),
        # A StatefulSet's pods carry the revision's name, a DaemonSet's its hash.
        "hash": metadata.get("name")
        if owner.get("kind") == "StatefulSet"
        else labels.get("controller-revision-hash")
        or labels.get("leaderworkerset.sigs.k8s.io/template-revision-hash"),
        "change_cause": (metadata.get("annotations") or {}).get("kubernetes.io/change-cause"),
        "template": spec.get("template")
        or (leader and group.get("leaderTemplate"))
        or group.get("workerTemplate")
        or {},
    }


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
