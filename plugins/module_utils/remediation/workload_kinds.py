# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the kinds keep what a change sets, as far as it isn't the field of an ordinary container, and which are written live.

Facts: workload-kinds, sections 2 and 3. Places are paths from the object's root; ``{part}`` is the beginning of the
container's path up to the part of the object that it is in (a Dynamo component, a service).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Layout(NamedTuple):
    """How a kind differs from a pod template.

    appends: its args go behind those of a template; nim: the engine reads options from NIM's variables; shm: path of the
    /dev/shm size; resources: path of the resources; single: one value of resources is request and limit; env: path of the
    env list; env_map: that it is a map; flags: option -> path of its own field; more: path of the list for the other
    options; config: path of a map of options; script: path of a shell command; strategy: path of the update strategy;
    refused: what can't be changed in it (flag, env, resources, removed limit, shm, probes) -> why, and where it is instead;
    live: whether it is written at all; not_live: why it isn't, where that has a reason of its own.
    """

    appends: bool = False
    nim: bool = False
    shm: str | None = None
    resources: str | None = None
    single: bool = False
    env: str | None = None
    env_map: bool = False
    flags: dict[str, str] = {}  # noqa: RUF012 - read only, a NamedTuple's default
    more: str | None = None
    config: str | None = None
    script: str | None = None
    strategy: str | None = None
    refused: dict[str, str] = {}  # noqa: RUF012 - as above
    live: bool = False
    not_live: str | None = None


_SERVE_CONFIG = "the engine's options are in the YAML text of spec.serveConfigV2 (llm_configs, engine_kwargs): change them there"
_PRESET = (
    "KAITO reads the engine's options from the ConfigMap that inference.config names, in the YAML text of its key"
    " inference_config.yaml: change them there, and restart the pods"
)
_KSERVE_LIMIT = (
    "KServe merges resources with those of the runtime: without the limit here the runtime's applies; remove it in a copy of"
    " the ServingRuntime in this namespace"
)
_UNSIZED_SHM = (
    "the operator mounts /dev/shm itself, in memory and without a limit: the object has no field for it"
)
_OWN_PROBES = "the operator makes the probes itself: the object has no container with a probe"

_APPS_STRATEGY = {
    "Deployment": "spec.strategy",
    "StatefulSet": "spec.updateStrategy",
    "DaemonSet": "spec.updateStrategy",
}

_RECREATED = "its pod template can't be changed in place: it must be made anew"

# (API group, kind) -> Layout; a kind that isn't here is an ordinary pod template that isn't written live.
#
# Live are the kinds that a test writes on a real API server and takes back again, and whose rule for changes was read in its
# controller's source (workload-kinds section 3, rows marked S in section 1): apps/v1, rows 1 to 3, edited in place;
# LeaderWorkerSet, row 9; InferenceService and LLMInferenceService of KServe, rows 15 and 17; VLLMRuntime, row 13; NIMService,
# row 25. All of these are written at the object at the top, whose controller brings the change down.
LAYOUTS = {
    **{("apps", kind): Layout(strategy=path, live=True) for kind, path in _APPS_STRATEGY.items()},
    ("", "Pod"): Layout(not_live=_RECREATED),
    ("batch", "Job"): Layout(not_live=_RECREATED),
    ("argoproj.io", "Rollout"): Layout(),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Layout(strategy="spec.rolloutStrategy", live=True),
    ("serving.kserve.io", "InferenceService"): Layout(
        appends=True, refused={"removed limit": _KSERVE_LIMIT}, live=True
    ),
    ("serving.kserve.io", "LLMInferenceService"): Layout(appends=True, live=True),
    ("ome.io", "InferenceService"): Layout(appends=True, refused={"removed limit": _KSERVE_LIMIT}),
    ("ray.io", "RayService"): Layout(refused={"flag": _SERVE_CONFIG}),
    ("ray.io", "RayJob"): Layout(script="spec.entrypoint"),
    ("production-stack.vllm.ai", "VLLMRuntime"): Layout(
        flags={
            "max_model_len": "spec.model.maxModelLen",
            "max_num_seqs": "spec.model.maxNumSeqs",
            "dtype": "spec.model.dtype",
            "gpu_memory_utilization": "spec.vllmConfig.gpuMemoryUtilization",
            "tensor_parallel_size": "spec.vllmConfig.tensorParallelSize",
            "enable_chunked_prefill": "spec.vllmConfig.enableChunkedPrefill",
            "enable_prefix_caching": "spec.vllmConfig.enablePrefixCaching",
            "max_loras": "spec.vllmConfig.maxLoras",
        },
        more="spec.vllmConfig.extraArgs",
        env="spec.vllmConfig.env",
        resources="spec.deploymentConfig.resources",
        single=True,
        shm="spec.deploymentConfig.shmSize",
        refused={"probes": _OWN_PROBES},
        live=True,
    ),
    ("apps.nvidia.com", "NIMService"): Layout(
        nim=True, shm="spec.storage.sharedMemorySizeLimit", refused={"probes": _OWN_PROBES}, live=True
    ),
    ("kubeai.org", "Model"): Layout(
        appends=True,
        env_map=True,
        refused={
            "resources": "spec.resourceProfile chooses them: change the profile in the values of the KubeAI chart"
            " (resourceProfiles)",
            "shm": _UNSIZED_SHM,
            "probes": _OWN_PROBES,
        },
    ),
    ("workload.serving.volcano.sh", "ModelBooster"): Layout(
        config="{part}.config",
        env="spec.backend.env",
        refused={"shm": _UNSIZED_SHM, "probes": _OWN_PROBES},
    ),
    ("nvidia.com", "DynamoGraphDeployment"): Layout(shm="{part}.sharedMemorySize"),
    ("kaito.sh", "preset"): Layout(
        refused=dict.fromkeys(("flag", "env", "resources", "shm", "probes"), _PRESET)
    ),
    # v1alpha1 (spec.services) of the same kind
    ("nvidia.com", "services"): Layout(
        shm="{part}.sharedMemory.size", resources="{part}.resources", env="{part}.envs"
    ),
}

# Templates that start one engine together must agree on its options (workload-kinds section 3, trap 5): in the path of a
# container, a part and what is there in the path of the others.
TWINS = (
    (r"\.leaderTemplate\.", ".workerTemplate."),
    (r"\.workerTemplate\.", ".leaderTemplate."),
    (r"\.entryTemplate\.", ".workerTemplate."),
    (r"\.workerTemplate\.", ".entryTemplate."),
    (r"\.leader\.runner", ".worker.runner"),
    (r"\.worker\.runner", ".leader.runner"),
    (r"\.template\.containers", ".worker.containers"),
    (r"\.worker\.containers", ".template.containers"),
    (r"\.workerGroupSpecs\[[^\]]*\]\.", ".headGroupSpec."),
)


# The kind of a change -> the word that ``Layout.refused`` has for it, the first that fits.
_SUBJECTS = (
    (r"volumes\.shm(\.sizeLimit)?", "shm"),
    (r"(startup|liveness|readiness)Probe(\..+)?", "probes"),
    (r"resources\..+", "resources"),
)
_SINGLE = "one value is request and limit at once there: without it the pod has neither"


def refused_in(layout, change):
    """Why a kind's own fields can't hold a CHANGE (target, name, action or direction), or None."""
    removed = change.get("action", change.get("direction")) == "remove"
    subject = change["target"]
    if subject == "k8s":
        subject = next((word for name, word in _SUBJECTS if re.fullmatch(name, change["name"])), subject)
    if subject == "resources" and removed and layout.single:
        return _SINGLE
    if (
        subject == "resources"
        and removed
        and ".limits." in change["name"]
        and "removed limit" in layout.refused
    ):
        return layout.refused["removed limit"]
    if change["name"] == "strategy" and layout.strategy is None:
        return "its update strategy isn't a field that is changed here"
    return layout.refused.get(subject)


def layout_of(group, kind, path):
    """The ``Layout`` for a container at ``path`` of an object."""
    if path.endswith("].vllm") or (group == "kaito.sh" and path.endswith(".config")):
        return LAYOUTS["kaito.sh", "preset"]
    if kind == "DynamoGraphDeployment" and path.startswith("spec.services"):
        return LAYOUTS["nvidia.com", "services"]
    return LAYOUTS.get((group, kind), Layout())
