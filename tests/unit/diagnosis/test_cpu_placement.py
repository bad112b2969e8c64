# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs next to the GPUs or across the socket, and the threads that run on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import cpu_placement

LINKS = {f"GPU{a}": {f"GPU{b}": "X" if a == b else "NV18" for b in range(4)} for a in range(4)}
AFFINITY = {
    "GPU0": {"cpus": "0-23,96-119", "numa": "0"},
    "GPU1": {"cpus": "0-23,96-119", "numa": "0"},
    "GPU2": {"cpus": "24-47,120-143", "numa": "1"},
    "GPU3": {"cpus": "24-47,120-143", "numa": "1"},
}


def node(**more):
    return documents.node(
        **dict(
            {
                "topology": {"links": LINKS, "affinity": AFFINITY},
                "cpu": {"count": 96, "numa": {"0": "0-23,96-119", "1": "24-47,120-143"}},
                "capacity": {"cpu": "96"},
                "gpus": [{"index": index, "uuid": f"GPU-{index}"} for index in range(4)],
                "processes": [{"gpu": f"GPU-{index}", "pid": index, "pod_uid": "u1"} for index in (0, 1)],
            },
            **more,
        )
    )


def findings(cpuset=None, env=None, gpus=2, requests=None, limits=None, at=None):
    counters = dict(documents.cgroup(2), cpuset=cpuset)
    container = documents.container(
        "vllm",
        engine=documents.engine("0.11.0", accelerator="cuda"),
        resources={
            "requests": requests or {},
            "limits": dict({"nvidia.com/gpu": str(gpus)}, **(limits or {})),
        },
        settings={"tensor_parallel_size": {"value": gpus, "from": "arg", "line": None}},
        env=[{"name": name, "value": value} for name, value in (env or {}).items()],
        attempts=[documents.attempt(0, "running", cgroup=counters)],
    )
    pod = documents.pod("llm", "vllm-0", uid="u1", node="n1", containers=[container])
    return cpu_placement.placement_findings(pod, container, node() if at is None else at)


@pytest.mark.parametrize(
    ("cpuset", "confidence"),
    [
        ("24-39", "certain"),
        ("0-15", None),
        ("16-31", None),
        ("0-47,96-143", None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_exclusive_cpus_and_the_gpus_socket(cpuset, confidence):
    found = findings(cpuset)
    assert [item["confidence"] for item in found] == ([confidence] if confidence else [])
    if found:
        (item,) = found
        assert (item["cause"], item["role"], item["memory"]) == ("not_memory_config", "risk", "none")
        assert "24-39 (NUMA node 1)" in item["evidence"][0]["text"]
        assert "GPU0, GPU1: 0-23,96-119 (NUMA node 0)" in item["evidence"][1]["text"]
        assert item["recommend"][0]["value"] == "single-numa-node"


def test_gpus_on_both_sockets():
    everywhere = node(processes=[])
    (item,) = findings("0-15", gpus=4, at=everywhere)
    assert item["confidence"] == "likely"
    assert "GPU2, GPU3" in item["evidence"][1]["text"]
    assert item["recommend"][0]["value"] == "restricted"


def test_unknown_gpus_or_cpus_say_nothing():
    assert findings("24-39", at=node(processes=[])) == []
    assert findings("24-39", at=node(topology={"links": LINKS})) == []
    assert findings("24-39", at={}) == []


@pytest.mark.parametrize(
    ("env", "requests", "cpuset", "expected"),
    [
        ({"OMP_NUM_THREADS": "16"}, {"cpu": "16"}, None, 8),
        ({"OMP_NUM_THREADS": "8"}, {"cpu": "16"}, None, None),
        ({"OMP_NUM_THREADS": "8"}, {}, "0-7", 4),
        ({"OMP_NUM_THREADS": "8"}, {}, None, None),
        ({"OMP_NUM_THREADS": "1"}, {"cpu": "1"}, None, None),
        ({"OMP_NUM_THREADS": "many"}, {"cpu": "1"}, None, None),
        ({}, {"cpu": "1"}, None, None),
    ],
)
def test_threads_of_all_ranks(env, requests, cpuset, expected):
    found = findings(cpuset, env=env, requests=requests)
    assert [item["recommend"][0]["value"] for item in found] == ([expected] if expected else [])
    assert all(item["cause"] == "cpu_throttling" for item in found)


def test_with_a_limit_the_limits_check_speaks():
    assert findings(env={"OMP_NUM_THREADS": "64"}, requests={"cpu": "4"}, limits={"cpu": "8"}) == []


def test_a_container_that_is_no_engine():
    container = documents.container("side", attempts=[])
    pod = documents.pod("llm", "vllm-0", containers=[container])
    assert cpu_placement.placement_findings(pod, container, node()) == []


@given(st.sets(st.integers(0, 500), min_size=1))
def test_lists_of_cpus(cpus):
    assert cpu_placement.cpu_set(",".join(str(cpu) for cpu in sorted(cpus))) == cpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("3-1", None), ("", None), (None, None), ("0-99999999999", None)],
)
def test_forms_of_cpu_lists(text, expected):
    assert cpu_placement.cpu_set(text) == expected
