# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hand-made Kubernetes objects for tests, shaped as a 1.34 API server returns them."""

from __future__ import annotations

import copy

NAMESPACE = "llm"
POD_UID = "5b6a7f0e-0a87-4d0c-8f6b-6b1a3c8c9f11"


def metadata(name, namespace=NAMESPACE, uid=None, owner=None, **more):
    """owner: (apiVersion, kind, name, uid)."""
    found = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": "2026-11-30T06:40:00Z",
    }
    if owner:
        keys = ("apiVersion", "kind", "name", "uid")
        found["ownerReferences"] = [dict(zip(keys, owner, strict=True), controller=True)]
    return {**found, **more}


def container(
    name="vllm",
    image="vllm/vllm-openai:v0.11.0",
    args=("--model", "meta-llama/Llama-3.1-8B-Instruct"),
    **more,
):
    return {
        "name": name,
        "image": image,
        "args": list(args),
        "env": [],
        "resources": {
            "requests": {"memory": "24Gi", "nvidia.com/gpu": "1"},
            "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"},
        },
        **more,
    }


def terminated(
    exit_code=1, reason="Error", started="2026-11-30T06:50:01Z", finished="2026-11-30T06:52:44Z", **more
):
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": started,
            "finishedAt": finished,
            "containerID": "containerd://" + "a" * 64,
            **more,
        }
    }


RUNNING = {"running": {"startedAt": "2026-11-30T06:53:00Z"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}


def status(name="vllm", state=None, last=None, restarts=0, ready=False, **more):
    return {
        "name": name,
        "state": copy.deepcopy(state or RUNNING),
        "lastState": copy.deepcopy(last) if last else {},
        "restartCount": restarts,
        "ready": ready,
        "started": ready,
        "image": "vllm/vllm-openai:v0.11.0",
        "imageID": "docker.io/vllm/vllm-openai@sha256:" + "b" * 64,
        **more,
    }


def pod(
    name="llama-6f7d9c9b5-x2x4k", containers=None, statuses=None, ready=False, labels=None, owner=None, **more
):
    """A pod; more: keys of spec, or ``status_`` followed by a key of status, or ``metadata_`` likewise."""
    spec = {"nodeName": "gpu-3", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
    state = {
        "phase": "Running",
        "qosClass": "Burstable",
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "lastTransitionTime": "2026-11-30T06:53:00Z",
            }
        ],
        "containerStatuses": statuses if statuses is not None else [status(ready=ready)],
    }
    about = metadata(name, uid=POD_UID if name.startswith("llama-6f7d9c9b5-x2x4k") else None, owner=owner)
    about["labels"] = labels or {"app": "llama", "pod-template-hash": "6f7d9c9b5"}
    for key, value in more.items():
        if key.startswith("status_"):
            state[key[len("status_") :]] = value
        elif key.startswith("metadata_"):
            about[key[len("metadata_") :]] = value
        else:
            spec[key] = value
    spec["containers"] = containers if containers is not None else [container()]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": state}


def crashing_pod(**more):
    """The pod of the happy run: it crashed with exit code 1, was restarted twice and waits for the next start."""
    more.setdefault("owner", ("apps/v1", "ReplicaSet", "llama-6f7d9c9b5", "uid-llama-6f7d9c9b5"))
    more.setdefault("statuses", [status(state=BACK_OFF, last=terminated(), restarts=2)])
    return pod(**more)


def replica_set(name="llama-6f7d9c9b5", revision="2", template=None, **more):
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": metadata(
            name,
            owner=("apps/v1", "Deployment", "llama", "uid-llama"),
            labels={"pod-template-hash": name.rsplit("-", 1)[-1]},
            annotations={"deployment.kubernetes.io/revision": revision},
            **more,
        ),
        "spec": {"replicas": 1, "template": template or {"spec": {"containers": [container()]}}},
        "status": {"replicas": 1},
    }


def deployment(name="llama", **meta):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, **meta),
        "spec": {
            "replicas": 2,
            "progressDeadlineSeconds": 600,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            },
            "template": {"spec": {"containers": [container()]}},
        },
        "status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 2},
    }


def node(name="gpu-3", **labels):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {
                "kubernetes.io/hostname": name,
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.memory": "81559",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.sharing-strategy": "none",
                **labels,
            },
        },
        "spec": {},
        "status": {
            "capacity": {"cpu": "192", "memory": "2113548184Ki", "nvidia.com/gpu": "8", "pods": "110"},
            "allocatable": {"cpu": "191", "memory": "2113445784Ki", "nvidia.com/gpu": "7", "pods": "110"},
            "conditions": [
                {
                    "type": "MemoryPressure",
                    "status": "False",
                    "reason": "KubeletHasSufficientMemory",
                    "message": "kubelet has sufficient memory available",
                },
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                },
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.31.4",
                "containerRuntimeVersion": "containerd://1.7.24",
                "kernelVersion": "5.15.0-1074-nvidia",
                "osImage": "Ubuntu 22.04.5 LTS",
            },
        },
    }


def event(reason, message, about=None, type="Warning", **more):
    """A v1 event as the kubelet writes it, about a pod unless ``about`` says otherwise."""
    about = about or {"kind": "Pod", "namespace": NAMESPACE, "name": "llama-6f7d9c9b5-x2x4k", "uid": POD_UID}
    name = f"{about['name']}.{abs(hash((reason, message))):x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata(name, namespace=about.get("namespace") or "default"),
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": type,
        "count": 3,
        "firstTimestamp": "2026-11-30T06:41:00Z",
        "lastTimestamp": "2026-11-30T06:53:00Z",
        **more,
    }
