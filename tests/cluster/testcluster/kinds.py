# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The custom kinds that run vLLM or own what runs it, as CustomResourceDefinitions that accept any content.

Groups, versions and kinds: shared facts "workload-kinds", sections 1 and 4. No operator stands behind them: a test
makes the children itself, as the operator would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import Failed

_SERVED_WITHIN_S = 60


class CustomKind(NamedTuple):
    """versions: all that are served, the stored one first. status: whether status is a resource of its own."""

    group: str
    kind: str
    versions: tuple[str, ...]
    status: bool = True
    scope: str = "Namespaced"

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"


_NO_STATUS = False
_V1ALPHA1 = ("v1alpha1",)
_V1BETA1 = ("v1beta1",)

CUSTOM_KINDS = (
    CustomKind("serving.kserve.io", "InferenceService", _V1BETA1),
    CustomKind("serving.kserve.io", "ServingRuntime", _V1ALPHA1, _NO_STATUS),
    CustomKind("serving.kserve.io", "ClusterServingRuntime", _V1ALPHA1, _NO_STATUS, "Cluster"),
    CustomKind("serving.kserve.io", "LLMInferenceService", ("v1alpha2", "v1alpha1")),
    CustomKind("serving.kserve.io", "LLMInferenceServiceConfig", ("v1alpha2", "v1alpha1"), _NO_STATUS),
    CustomKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet", ("v1",)),
    CustomKind("jobset.x-k8s.io", "JobSet", ("v1alpha2",)),
    CustomKind("argoproj.io", "Rollout", _V1ALPHA1),
    CustomKind("argoproj.io", "Application", _V1ALPHA1, _NO_STATUS),
    CustomKind("serving.knative.dev", "Service", ("v1",)),
    CustomKind("serving.knative.dev", "Configuration", ("v1",)),
    CustomKind("serving.knative.dev", "Revision", ("v1",)),
    CustomKind("serving.knative.dev", "Route", ("v1",)),
    CustomKind("production-stack.vllm.ai", "VLLMRuntime", _V1ALPHA1),
    CustomKind("ray.io", "RayCluster", ("v1",)),
    CustomKind("ray.io", "RayService", ("v1",)),
    CustomKind("ray.io", "RayJob", ("v1",)),
    CustomKind("ray.io", "RayCronJob", ("v1",)),
    CustomKind("orchestration.aibrix.ai", "StormService", _V1ALPHA1),
    CustomKind("orchestration.aibrix.ai", "RoleSet", _V1ALPHA1),
    CustomKind("orchestration.aibrix.ai", "PodSet", _V1ALPHA1),
    CustomKind("orchestration.aibrix.ai", "RayClusterFleet", _V1ALPHA1),
    CustomKind("orchestration.aibrix.ai", "RayClusterReplicaSet", _V1ALPHA1),
    CustomKind("nvidia.com", "DynamoGraphDeployment", ("v1beta1", "v1alpha1")),
    CustomKind("nvidia.com", "DynamoComponentDeployment", ("v1beta1", "v1alpha1")),
    CustomKind("grove.io", "PodCliqueSet", _V1ALPHA1),
    CustomKind("grove.io", "PodCliqueScalingGroup", _V1ALPHA1),
    CustomKind("grove.io", "PodClique", _V1ALPHA1),
    CustomKind("apps.nvidia.com", "NIMService", _V1ALPHA1),
    CustomKind("kaito.sh", "Workspace", ("v1beta1", "v1alpha1")),
    CustomKind("kaito.sh", "InferenceSet", ("v1beta1", "v1alpha1")),
    CustomKind("kaito.sh", "MultiRoleInference", _V1ALPHA1),
    CustomKind("ome.io", "InferenceService", _V1BETA1),
    CustomKind("ome.io", "ServingRuntime", _V1BETA1),
    CustomKind("ome.io", "ClusterServingRuntime", _V1BETA1, scope="Cluster"),
    CustomKind("workload.serving.volcano.sh", "ModelBooster", _V1ALPHA1),
    CustomKind("workload.serving.volcano.sh", "ModelServing", _V1ALPHA1),
    CustomKind("kubeai.org", "Model", ("v1",)),
    # Somebody else's Model, which the collection doesn't know.
    CustomKind("models.example", "Model", ("v1",)),
    CustomKind("helm.toolkit.fluxcd.io", "HelmRelease", ("v2",)),
    CustomKind("kustomize.toolkit.fluxcd.io", "Kustomization", ("v1",)),
    CustomKind("keda.sh", "ScaledObject", _V1ALPHA1),
    CustomKind("autoscaling.k8s.io", "VerticalPodAutoscaler", ("v1",)),
)


def definition(row: CustomKind) -> dict:
    """Its CustomResourceDefinition."""
    metadata: dict = {"name": row.name}
    if row.group.endswith(".k8s.io"):
        # The API server wants to know who allowed a group of Kubernetes' own.
        approved = "https://github.com/kubernetes/kubernetes/pull/63797"
        metadata["annotations"] = {"api-approved.kubernetes.io": approved}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": row.group,
            "names": {"kind": row.kind, "plural": row.plural, "singular": row.kind.lower()},
            "scope": row.scope,
            "versions": [_version(row, version) for version in row.versions],
        },
    }


def _version(row: CustomKind, version: str) -> dict:
    any_content = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": version,
        "served": True,
        "storage": version == row.versions[0],
        "schema": {"openAPIV3Schema": any_content},
        **({"subresources": {"status": {}}} if row.status else {}),
    }


def install(kubectl: Callable) -> None:
    """Have the API server serve them all; ``kubectl`` is a harness.Kubectl. Raises Failed."""
    kubectl.apply([definition(row) for row in CUSTOM_KINDS])
    ours = {row.name for row in CUSTOM_KINDS}
    end = time.monotonic() + _SERVED_WITHIN_S
    # Not kubectl wait: it asks for one after the other, five a second.
    while waiting := ours - set(_established(kubectl)):
        if time.monotonic() > end:
            raise Failed(f"not served after {_SERVED_WITHIN_S} s: {', '.join(sorted(waiting))}")
        time.sleep(0.2)


def _established(kubectl: Callable) -> Iterator[str]:
    for item in kubectl.items("customresourcedefinitions"):
        conditions = item.get("status", {}).get("conditions") or []
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            yield item["metadata"]["name"]
