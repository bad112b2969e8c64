# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes as ``gpu_node_info`` describes them, by hand from the contract of ``documents.node``; sizes of GPUs as their vendors' tools print them."""

from __future__ import annotations

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB

UID = "6d1f0c3e-7a4b-4c55-9a43-0d5a3f3f1b11"
OTHER_UID = "0b7e3a52-91aa-4a6e-8a6d-1e2f3a4b5c6d"
IDS = {"first": "a" * 64, "second": "b" * 64, "other": "c" * 64, "sidecar": "d" * 64, "docker": "e" * 64}
UUIDS = [f"GPU-{number:08x}-1111-2222-3333-444444444444" for number in range(8)]
# An empty H100: total 81559, reserved 479, free 81081 MiB (facts 8.11).
H100 = 81559 * MIB
RESERVED = 479 * MIB


def gib(value):
    return int(value * GIB)


def slice_path(uid, container_id):
    """The cgroup path of a container under the systemd driver (facts 3.2)."""
    pod = uid.replace("-", "_")
    return f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{container_id}.scope"


def gpu(index=0, taken=0, **more):
    return dict(
        {
            "index": index,
            "uuid": UUIDS[index],
            "name": "NVIDIA H100 80GB HBM3",
            "bus_id": f"00000000:{index + 0x3B:02X}:00.0",
            "minor": index,
            "total": H100,
            "reserved": RESERVED,
            "used": taken,
            "free": H100 - RESERVED - taken,
            "mig": {"enabled": False, "pending": False, "instances": []},
            "virtualization": None,
            "ecc": {"enabled": True, "uncorrected": 0, "pending": True},
            "remapped": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
            "retired": {"double_bit": None, "pending": None},
            "throttle": [],
            "recovery": None,
            "lost": False,
            "error": None,
            "fabric": {"state": None, "status": None},
            "make": "cuda",
        },
        **more,
    )


def process(used, index=0, pid=4711, name="python3", uid=None, container=None, **more):
    """A process that holds ``used`` GiB. uid, container: whose it is by its cgroup."""
    path = slice_path(uid, IDS[container]) if uid and container else None
    return dict(
        {
            "gpu": UUIDS[index],
            "pid": pid,
            "name": name,
            "type": "C",
            "used": None if used is None else gib(used),
            "gi": None,
            "ci": None,
            "cgroup": path,
            "pod_uid": uid,
            "container_id": IDS.get(container),
            "started_at": "2026-11-30T06:00:00Z",
            "command": name,
            "alive": True,
            "state": "S",
        },
        **more,
    )


def outside(used, **more):
    """A process of a systemd service of the node."""
    return process(
        used,
        **dict({"cgroup": "/system.slice/jupyter.service", "pid": 999, "name": "/usr/bin/python3"}, **more),
    )


def node(processes=(), gpus=None, **more):
    """A node whose GPUs are used by ``processes`` and nothing else, unless ``gpus`` says it."""
    if gpus is None:
        sums = {}
        for item in processes:
            sums[item["gpu"]] = sums.get(item["gpu"], 0) + (item["used"] or 0)
        gpus = [gpu(0, sums.get(UUIDS[0], 0))]
    fields = {
        "driver": {"version": "590.48.01", "cuda": "13.1", "error": None},
        "gpus": gpus,
        "processes": list(processes),
        "reader": {"user": "root", "uid": 0, "pid_namespace": "host", "pod_uid": None, "container_id": None},
    }
    return documents.node(**dict(fields, **more))


def document(name="gpu-0", seen=None, unreadable=(), **fields):
    """An evidence document of ``gpu_node_info``."""
    found = documents.evidence("2026-11-30T07:00:00Z", "node", f"{name}, read on {name} as root")
    found["nodes"][name] = seen if seen is not None else node(**fields)
    found["unreadable"] = list(unreadable)
    return found
