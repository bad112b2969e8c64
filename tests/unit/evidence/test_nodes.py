# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: sizes, GPU labels of several makers, MIG, unified memory, events; and namespaces."""

from __future__ import annotations

import pytest
from support import kube_objects as kube

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.namespaces import namespace_evidence
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.nodes import (
    gpu_of_labels,
    node_evidence,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor


def test_sizes_and_gpu():
    found = node_evidence(kube.node(), Redactor())
    assert found["capacity"]["nvidia.com/gpu"] == "8"
    assert found["allocatable"]["nvidia.com/gpu"] == "7"
    assert (found["gpu"]["product"], found["gpu"]["count"]) == ("NVIDIA-H100-80GB-HBM3", 8)
    assert found["gpu"]["memory_bytes"] == 81559 * 1024 * 1024
    assert found["gpu"]["unified"] is False
    assert found["gpu"]["mig"] is None
    assert "kubernetes.io/hostname" not in found["gpu"]["labels"]
    assert found["kubelet"]["version"] == "v1.31.4"


def test_only_abnormal_conditions_keep_their_message():
    raw = kube.node()
    raw["status"]["conditions"][0].update(status="True", message="kubelet has insufficient memory available")
    conditions = {item["type"]: item["message"] for item in node_evidence(raw, Redactor())["conditions"]}
    assert conditions == {"MemoryPressure": "kubelet has insufficient memory available", "Ready": None}


def test_memory_events_of_this_node_are_kept():
    about = {"kind": "Node", "name": "gpu-3", "uid": "gpu-3"}
    events = [
        kube.event("SystemOOM", "System OOM encountered, victim process: python3, pid: 1", about=about),
        kube.event("SystemOOM", "of another node", about={"kind": "Node", "name": "gpu-4", "uid": "gpu-4"}),
        kube.event("NodeSchedulable", "noise", about=about, type="Normal"),
        kube.event("OOMKilling", "Memory cgroup out of memory: Killed process 7 (python3)", about=about),
    ]
    found = node_evidence(kube.node(), Redactor(), events)["events"]
    assert sorted(item["reason"] for item in found) == ["OOMKilling", "SystemOOM"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
                "nvidia.com/gpu.memory": "4864",
                "nvidia.com/gpu.count": "7",
            },
            {"strategy": None, "profiles": {"1g.5gb": {"count": 7, "memory_bytes": 4864 << 20}}},
        ),
        (
            {
                "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/mig-3g.40gb.count": "2",
                "nvidia.com/mig-3g.40gb.memory": "40448",
                "nvidia.com/mig-1g.10gb.me.count": "1",
            },
            {
                "strategy": "mixed",
                "profiles": {
                    "1g.10gb.me": {"count": 1, "memory_bytes": None},
                    "3g.40gb": {"count": 2, "memory_bytes": 40448 << 20},
                },
            },
        ),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, None),
    ],
)
def test_mig(labels, expected):
    assert gpu_of_labels(labels, {})["mig"] == expected


@pytest.mark.parametrize(
    ("product", "unified"),
    [
        ("NVIDIA-GB10", True),
        ("Orin", True),
        ("NVIDIA-Jetson-AGX-Thor", True),
        ("AMD_Instinct_MI300A", True),
        ("AMD_Instinct_MI300X", False),
        ("NVIDIA-GH200-480GB", False),
        ("NVIDIA-GB200", False),
        ("NVIDIA-GB100", False),
        ("NVIDIA-L4", False),
        (None, None),
    ],
)
def test_unified_memory(product, unified):
    labels = {"nvidia.com/gpu.product": product} if product else {}
    assert gpu_of_labels(labels, {})["unified"] is unified


@pytest.mark.parametrize(
    ("labels", "capacity", "product", "memory", "count"),
    [
        (
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X", "amd.com/gpu.vram": "192G"},
            {"amd.com/gpu": "8"},
            "AMD_Instinct_MI300X",
            192 << 30,
            8,
        ),
        (
            {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-accelerator-count": "1"},
            {},
            "nvidia-l4",
            None,
            1,
        ),
        (
            {
                "karpenter.k8s.aws/instance-gpu-name": "h100",
                "karpenter.k8s.aws/instance-gpu-memory": "81920",
                "karpenter.k8s.aws/instance-gpu-count": "8",
            },
            {},
            "h100",
            81920 << 20,
            8,
        ),
        ({}, {"nvidia.com/gpu": "4"}, None, None, 4),
        ({}, {}, None, None, None),
    ],
)
def test_other_sources_of_gpu_facts(labels, capacity, product, memory, count):
    found = gpu_of_labels(labels, capacity)
    assert (found["product"], found["memory_bytes"], found["count"]) == (product, memory, count)


def test_namespace():
    quota = {
        "metadata": {"name": "gpu"},
        "spec": {
            "hard": {"limits.cpu": "64"},
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]},
        },
        "status": {"hard": {"limits.cpu": "64"}, "used": {"limits.cpu": "60"}},
    }
    limits = {
        "metadata": {"name": "defaults"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "4"}}]},
    }
    assert namespace_evidence([quota], [limits]) == {
        "quotas": [
            {
                "name": "gpu",
                "hard": {"limits.cpu": "64"},
                "used": {"limits.cpu": "60"},
                "scopes": ["PriorityClass"],
            }
        ],
        "limit_ranges": [{"name": "defaults", "limits": [{"type": "Container", "default": {"cpu": "4"}}]}],
    }
    assert namespace_evidence() == {"quotas": [], "limit_ranges": []}
