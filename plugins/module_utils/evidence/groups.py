# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods form one engine together: multi-node deployments, where the first error may be in another pod.

Labels: shared facts "workload-kinds", section 1.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

# Kind of the group, the labels that name it (all must be there), and label=value pairs that select its pods.
_BY_LABELS = (
    (
        "LeaderWorkerSet",
        ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ),
    (
        "PodCliqueScalingGroup",
        ("grove.io/podcliquescalinggroup", "grove.io/podcliquescalinggroup-replica-index"),
    ),
    (
        "ModelServing",
        (
            "modelserving.volcano.sh/name",
            "modelserving.volcano.sh/group-name",
            "modelserving.volcano.sh/role",
            "modelserving.volcano.sh/role-id",
        ),
    ),
    ("RayCluster", ("ray.io/cluster",)),
    ("JobSet", ("jobset.sigs.k8s.io/jobset-name",)),
    ("SkyPilot", ("skypilot-cluster",)),
    ("SkyPilot", ("skypilot-cluster-name",)),
)
# Owners whose pods are parts of one engine although no label pair says so.
_BY_OWNER = ("PodSet",)
# A StatefulSet or Job whose pods are ranks of one engine says so in its command.
_MULTI_NODE = re.compile(
    r"--headless\b|--nnodes[ =]+(?!1\b)\d|--node[-_]rank\b|\bray start\b|--data[-_]parallel[-_]address\b|"
    r"multi-node-serving\.sh"
)
_RANKED_OWNERS = ("StatefulSet", "Job")


def group_of(raw_pod):
    """The engine that a pod is part of, as ``NAMESPACE/KIND/NAME[/…]``, or None for a pod on its own."""
    metadata = raw_pod.get("metadata") or {}
    found = group_labels(raw_pod)
    if found:
        kind, labels = found
        return "/".join([metadata.get("namespace") or "", kind, *labels.values()])
    owner = _controller(metadata)
    if not owner:
        return None
    if owner.get("kind") in _BY_OWNER or (
        owner.get("kind") in _RANKED_OWNERS and _MULTI_NODE.search(_commands(raw_pod))
    ):
        return "/".join([metadata.get("namespace") or "", owner["kind"], owner.get("name") or ""])
    return None


def group_labels(raw_pod):
    """``(kind, {label: value})`` that select all pods of this pod's group, or None if labels don't name one."""
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    for kind, keys in _BY_LABELS:
        if all(labels.get(key) for key in keys):
            return kind, {key: labels[key] for key in keys}
    service = labels.get("serving.kserve.io/inferenceservice")
    if service and _is_multi_node_kserve(raw_pod):
        return "InferenceService", {"serving.kserve.io/inferenceservice": service}
    return None


def _is_multi_node_kserve(raw_pod):
    """KServe gives head and workers of a multi-node predictor the pipeline size and head address as env."""
    for item in (raw_pod.get("spec") or {}).get("containers") or []:
        names = {entry.get("name") for entry in item.get("env") or []}
        if item.get("name") == "worker-container" or {"PIPELINE_PARALLEL_SIZE", "HEAD_SVC"} & names:
            return True
    return False


def _controller(metadata):
    owners = metadata.get("ownerReferences") or []
    return next((item for item in owners if item.get("controller")), owners[0] if owners else None)


def _commands(raw_pod):
    return " ".join(
        str(token)
        for item in (raw_pod.get("spec") or {}).get("containers") or []
        for token in (item.get("command") or []) + (item.get("args") or [])
    )
