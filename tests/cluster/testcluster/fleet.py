# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kwok: nodes and pods that exist in the API only, for what needs many of them and runs none.

A pod on such a node becomes Running by kwok; a test then writes the status that it needs (``ended``), and the log that
the node has of it (``log``).
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import Failed
from .addresses import free_ports
from .control_plane import ControlPlane
from .processes import Processes

# Nodes with this annotation are kwok's; the real kubelets' are left alone.
FAKE = {"kwok.x-k8s.io/node": "fake"}
# kwok's own kind for the logs of one pod; it checks what it reads, so the schema needn't.
_LOGS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "logs.kwok.x-k8s.io"},
    "spec": {
        "group": "kwok.x-k8s.io",
        "names": {"kind": "Logs", "listKind": "LogsList", "plural": "logs", "singular": "logs"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def start(folder: Path, kwok: Path, control_plane: ControlPlane, processes: Processes, address: str) -> None:
    """Start kwok; it takes care of the nodes that ``node`` describes."""
    _serve_logs(control_plane)
    (port,) = free_ports(1)
    selector = ",".join(f"{name}={value}" for name, value in FAKE.items())
    processes.start(
        "kwok",
        [
            kwok,
            f"--kubeconfig={control_plane.admin_config}",
            f"--manage-nodes-with-annotation-selector={selector}",
            f"--server-address={address}:{port}",
            f"--node-ip={address}",
            f"--node-port={port}",
            "--enable-crds=Logs",
            # Another kwok takes a node only when its lease has ended.
            "--node-lease-duration-seconds=6",
        ],
        env={"HOME": str(folder)},
    )


def _serve_logs(control_plane: ControlPlane) -> None:
    """Make the kind known before kwok asks for it: it waits longer and longer for one that isn't there."""
    kubectl = [control_plane.programs / "kubectl", f"--kubeconfig={control_plane.admin_config}"]
    for words in (["apply", "-f", "-"], ["wait", "--for=condition=Established", "crd/logs.kwok.x-k8s.io"]):
        done = subprocess.run(
            [*kubectl, *words], input=json.dumps(_LOGS), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Failed(f"the API server doesn't take kwok's kind Logs: {done.stderr.strip()}")


def node(name: str, gpus: int = 8, product: str = "NVIDIA-H100-80GB-HBM3", memory: str = "2Ti") -> dict:
    """The Node object of a fake GPU node, tainted so that only pods that name it come there."""
    offered = {"cpu": "192", "memory": memory, "pods": "1000", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": FAKE,
            "labels": {
                "kubernetes.io/hostname": name,
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.count": str(gpus),
            },
        },
        "spec": {"taints": [{"key": "vllm-runbook/fake", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": offered, "capacity": offered},
    }


def on_node(pod_spec: dict, name: str) -> dict:
    """The pod spec, for the fake node ``name``."""
    bound = json.loads(json.dumps(pod_spec))
    bound["nodeSelector"] = {"kubernetes.io/hostname": name}
    bound["tolerations"] = [{"key": "vllm-runbook/fake", "operator": "Exists"}]
    return bound


def ended(
    container: str,
    image: str,
    *,
    exit_code: int,
    reason: str,
    started: datetime.datetime,
    finished: datetime.datetime,
    for_good: bool = False,
) -> dict:
    """The status of a pod whose only container has ended, and waits for its next attempt unless that was ``for_good``."""
    terminated = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": _time(started),
        "finishedAt": _time(finished),
    }
    waiting = {
        "reason": "CrashLoopBackOff",
        "message": f"back-off 40s restarting failed container={container}",
    }
    states = {
        "state": {"terminated": terminated} if for_good else {"waiting": waiting},
        "lastState": {} if for_good else {"terminated": terminated},
        "restartCount": 0 if for_good else 3,
    }
    not_ready = {"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": _time(finished)}
    return {
        "phase": "Failed" if for_good else "Running",
        "conditions": [{"type": kind, **not_ready} for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {
                "name": container,
                "image": image,
                "imageID": image,
                "ready": False,
                "started": False,
                **states,
            }
        ],
    }


def write_log(
    path: Path, lines: Iterable[str], started: datetime.datetime, finished: datetime.datetime
) -> None:
    """A container's log as a node keeps it, its lines spread evenly over the attempt."""
    texts = list(lines)
    step = (finished - started) / max(1, len(texts))
    path.write_text(
        "".join(f"{_time(started + step * number)} stdout F {text}\n" for number, text in enumerate(texts))
    )


def log(namespace: str, name: str, *, current: Path | None = None, previous: Path | None = None) -> dict:
    """What the node has of that pod's logs; of a pod without this object it has none."""
    files = {"logsFile": current, "previousLogsFile": previous}
    kept = {name: str(path) for name, path in files.items() if path}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Logs",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"logs": [kept]},
    }


def _time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
