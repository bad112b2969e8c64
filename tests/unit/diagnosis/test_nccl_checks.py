# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known-bad combinations of NCCL's settings and surroundings: each row fires for its case and not for the case's neighbour.

Rows: shared facts "kubernetes-gpu-facts" 10.1 and 10.2.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import nccl_checks
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner

MIB, GIB = 1 << 20, 1 << 30

NV = {f"GPU{a}": {f"GPU{b}": "X" if a == b else "NV18" for b in range(8)} for a in range(8)}
PAIRS = {
    f"GPU{a}": {f"GPU{b}": "X" if a == b else "NV4" if a // 2 == b // 2 else "SYS" for b in range(4)}
    for a in range(4)
}
SOCKETS = {
    f"GPU{a}": {f"GPU{b}": "X" if a == b else "NODE" if a // 2 == b // 2 else "SYS" for b in range(4)}
    for a in range(4)
}
NICS = {"NIC0": "mlx5_0", "NIC1": "mlx5_1", "NIC2": "mlx5_10", "NIC3": "mlx5_11"}


def scanned(*lines):
    scanner = LogScanner()
    scanner.feed("".join(f"{line}\n" for line in lines).encode())
    return scanner.close()


def version(number):
    return f"INFO 11-30 07:00:00 [pynccl.py:63] vLLM is using nccl=={number}"


def make(
    env=None,
    options=None,
    log=(),
    node=None,
    gpus=8,
    vllm="0.11.0",
    shm="16Gi",
    resource="nvidia.com/gpu",
    serving=False,
    others=(),
    limits=None,
    **pod_fields,
):
    """(pod, container, node): eight ranks on eight GPUs with a large /dev/shm, unless told otherwise."""
    lines = list(log)
    if serving:
        lines.append("INFO:     Application startup complete.")
    container = documents.container(
        "vllm",
        engine=documents.engine(vllm, "image", accelerator="cuda"),
        resources={"requests": {}, "limits": dict({resource: str(gpus), "memory": "64Gi"}, **(limits or {}))},
        env=[{"name": name, "value": value, "from": None} for name, value in (env or {}).items()],
        settings={
            name: {"value": value, "from": "arg", "line": None}
            for name, value in {"tensor_parallel_size": gpus, **(options or {})}.items()
        },
        mounts=[{"volume": "dshm", "path": "/dev/shm"}] if shm else [],
        attempts=[documents.attempt(0, "running" if serving else "terminated", log=scanned(*lines))]
        if lines
        else [],
    )
    fields = {
        "uid": "u1",
        "node": "n1",
        "containers": [container, *others],
        "shm": {
            "size_limit": shm,
            "medium": "Memory" if shm else None,
            "mounted_at": "/dev/shm" if shm else None,
            "used": None,
        },
    }
    return documents.pod("llm", "vllm-0", **dict(fields, **pod_fields)), container, node


def box(**more):
    """A node with eight GPUs on NVSwitch."""
    return documents.node(
        **dict(
            {
                "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "count": 8},
                "capacity": {"nvidia.com/gpu": "8"},
                "topology": {"links": NV, "nics": NICS},
                "services": {"fabric_manager": "active"},
                "driver": {"version": "570.1", "cuda": "12.8"},
            },
            **more,
        )
    )


def told(*pods):
    """A node whose GPU processes were told something. pods: ``(uid, variables, interfaces)``."""
    return box(
        nccl={
            "variables": {},
            "processes": [
                {"pids": [number], "pod_uid": uid, "variables": variables, "interfaces": names}
                for number, (uid, variables, names) in enumerate(pods, 100)
            ],
        }
    )


def limits(**values):
    return box(
        limits=[{"pid": 0, "memlock": 1, "nofile": 1, "stack": "unlimited"}, dict({"pid": 4711}, **values)],
        processes=[{"gpu": "GPU-1", "pid": 4711, "pod_uid": "u1"}],
    )


def other_engine(**more):
    return documents.container("second", engine=documents.engine("0.11.0"), **more)


# row: (name, a case that it's about, what makes it harmless)
CASES = [
    (
        "p2p_off_small_shm",
        {"env": {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}, "shm": None, "gpus": 4},
        {"env": {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}, "shm": "4Gi", "gpus": 4},
    ),
    (
        "p2p_off_small_shm",
        # cuMem host buffers exist from 2.24 on: here they hold the data.
        {"env": {"NCCL_P2P_DISABLE": "1"}, "shm": None, "gpus": 2, "log": [version("2.21.5")]},
        {"env": {"NCCL_P2P_DISABLE": "1"}, "shm": None, "gpus": 2, "log": [version("2.27.3")]},
    ),
    (
        "p2p_off_small_shm",
        # vLLM up to 0.10.1 switched cuMem off.
        {"env": {"NCCL_P2P_DISABLE": "1"}, "shm": None, "gpus": 2, "vllm": "0.10.1"},
        {"env": {"NCCL_P2P_DISABLE": "1"}, "shm": None, "gpus": 2, "vllm": "0.11.0"},
    ),
    (
        "p2p_off_small_shm",
        {
            "shm": None,
            "gpus": 4,
            "log": [
                "n:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0.",
                "n:1:1 [0] NCCL INFO cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based",
            ],
        },
        {
            "shm": None,
            "gpus": 4,
            "log": ["n:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0."],
        },
    ),
    (
        "shm_and_p2p_off",
        {"env": {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}},
        {"env": {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "0"}},
    ),
    (
        "different_shm",
        {"others": [other_engine()]},
        {"others": [other_engine(mounts=[{"volume": "dshm", "path": "/dev/shm"}])]},
    ),
    (
        "mnnvl_without_cumem",
        {"env": {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "0"}},
        {"env": {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}},
    ),
    (
        "mnnvl_without_cumem",
        {"env": {"NCCL_MNNVL_ENABLE": "1"}, "vllm": "0.9.2"},
        {"env": {"NCCL_MNNVL_ENABLE": "1"}, "vllm": "0.11.0"},
    ),
    (
        "cumem_off_on_rack",
        {"env": {"NCCL_CUMEM_ENABLE": "0"}, "node": box(gpu={"product": "NVIDIA-GB200", "count": 4})},
        {"env": {"NCCL_CUMEM_ENABLE": "0"}, "node": box()},
    ),
    (
        "cumem_host_forced",
        {"env": {"NCCL_CUMEM_HOST_ENABLE": "1"}, "log": [version("2.26.2")]},
        {"env": {"NCCL_CUMEM_HOST_ENABLE": "1"}, "log": [version("2.26.5")]},
    ),
    (
        "cumem_host_forced",
        {"env": {"NCCL_CUMEM_HOST_ENABLE": "1", "NCCL_P2P_DISABLE": "1"}, "node": box()},
        {"env": {"NCCL_CUMEM_HOST_ENABLE": "1", "NCCL_P2P_DISABLE": "1"}, "node": box(driver={"cuda": "13.0"})},
    ),
    (
        "broken_fabric",
        {"node": box(services={"fabric_manager": "failed"})},
        {"node": box(services={"fabric_manager": "failed"}), "env": {"NCCL_NVLS_ENABLE": "0"}},
    ),
    (
        "broken_fabric",
        {"node": box(gpus=[{"index": 0, "uuid": "GPU-1", "fabric": {"state": "In Progress", "status": "N/A"}}])},
        {"node": box(gpus=[{"index": 0, "uuid": "GPU-1", "fabric": {"state": "Completed", "status": "Success"}}])},
    ),
    (
        "broken_fabric",
        {"node": box(services={"fabric_manager": "inactive"})},
        # Two GPUs with a bridge have no NVSwitch, and so no fabric manager.
        {
            "gpus": 2,
            "node": box(
                services={"fabric_manager": "inactive"},
                topology={"links": {"GPU0": {"GPU1": "NV4"}, "GPU1": {"GPU0": "NV4"}}},
            ),
        },
    ),
    ("nvls_forced", {"env": {"NCCL_NVLS_ENABLE": "1"}}, {"env": {"NCCL_NVLS_ENABLE": "2"}}),
    (
        "nvls_in_little_room",
        {"options": {"gpu_memory_utilization": 0.97}, "node": box(), "log": [version("2.21.5")]},
        {"options": {"gpu_memory_utilization": 0.97}, "node": box(), "log": [version("2.27.5")]},
    ),
    (
        "graph_order",
        {"env": {"NCCL_GRAPH_STREAM_ORDERING": "0"}},
        {"env": {"NCCL_GRAPH_STREAM_ORDERING": "0", "NCCL_GRAPH_MIXING_SUPPORT": "0"}},
    ),
    (
        "ranks_differ",
        {
            "log": [
                "a:1:1 [0] NCCL INFO NCCL_PROTO set by environment to Simple",
                "a:2:2 [1] NCCL INFO NCCL_PROTO set by environment to LL",
            ]
        },
        {"log": ["a:1:1 [0] NCCL INFO NCCL_PROTO set by environment to Simple"] * 2},
    ),
    ("stack_unlimited", {"node": limits(stack="unlimited")}, {"node": limits(stack=8 * MIB)}),
    (
        "stack_unlimited",
        {"node": limits(stack="unlimited"), "log": [version("2.27.5")]},
        {"node": limits(stack="unlimited"), "log": [version("2.28.3")]},
    ),
    (
        "few_files",
        {"node": limits(nofile=1024), "options": {"pipeline_parallel_size": 2}},
        {"node": limits(nofile=65536), "options": {"pipeline_parallel_size": 2}},
    ),
    ("debug_left_on", {"env": {"NCCL_DEBUG": "INFO"}, "serving": True}, {"env": {"NCCL_DEBUG": "WARN"}, "serving": True}),
    # Of a failed start it is what one wants.
    ("debug_left_on", {"env": {"NCCL_DEBUG": "TRACE"}}, {"env": {"NCCL_DEBUG": "INFO"}}),
    ("hca_prefix", {"env": {"NCCL_IB_HCA": "mlx5_1"}, "node": box()}, {"env": {"NCCL_IB_HCA": "=mlx5_1"}, "node": box()}),
    ("hca_prefix", {"env": {"NCCL_IB_HCA": "^mlx5_1:1"}, "node": box()}, {"env": {"NCCL_IB_HCA": "mlx5_0"}, "node": box()}),
    ("hca_prefix", {"env": {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}}, {"env": {"NCCL_IB_HCA": "mlx5_0,mlx5_2"}}),
    ("hca_missing", {"env": {"NCCL_IB_HCA": "mlx5_7"}, "node": box()}, {"env": {"NCCL_IB_HCA": "mlx5"}, "node": box()}),
    ("interface_missing", {"env": {"NCCL_SOCKET_IFNAME": "eth9"}, "host_network": False}, {"env": {"NCCL_SOCKET_IFNAME": "eth"}, "host_network": False}),
    (
        "interface_missing",
        {"env": {"GLOO_SOCKET_IFNAME": "ens5"}, "annotations": {"k8s.v1.cni.cncf.io/network-status": '[{"interface": "eth0"}, {"interface": "net1"}]'}},
        {"env": {"GLOO_SOCKET_IFNAME": "net1"}, "annotations": {"k8s.v1.cni.cncf.io/network-status": '[{"interface": "eth0"}, {"interface": "net1"}]'}},
    ),
    (
        "interface_missing",
        {"env": {"NCCL_SOCKET_IFNAME": "ens5"}, "log": ["vllm-1:40:40 [0] misc/socket.cc:50 NCCL WARN Bootstrap : no socket interface found"]},
        # On the host's network it may well be there.
        {"env": {"NCCL_SOCKET_IFNAME": "ens5"}},
    ),
    (
        "interface_missing",
        {"env": {"NCCL_SOCKET_IFNAME": "ens5"}, "node": told(("u1", {}, ["lo", "eth0", "net1"]), ("u2", {}, ["lo", "ens5"]))},
        {"env": {"NCCL_SOCKET_IFNAME": "net"}, "node": told(("u1", {}, ["lo", "eth0", "net1"]), ("u2", {}, ["lo", "ens5"]))},
    ),
    (
        "interface_missing",
        {"env": {"NCCL_SOCKET_IFNAME": "ib0"}, "host_network": True, "node": box(nccl={"interfaces": ["docker0", "ens5", "lo"]})},
        {"env": {"NCCL_SOCKET_IFNAME": "ens"}, "host_network": True, "node": box(nccl={"interfaces": ["docker0", "ens5", "lo"]})},
    ),
    (
        "interface_missing",
        {"env": {"NCCL_SOCKET_IFNAME": "ib0"}, "node": box(nccl={"interfaces": ["eth0", "lo"]}, reader={"pod_uid": "u1"})},
        # Another pod's interfaces say nothing.
        {"env": {"NCCL_SOCKET_IFNAME": "ib0"}, "node": box(nccl={"interfaces": ["eth0", "lo"]}, reader={"pod_uid": "u2"})},
    ),
    (
        "hca_missing",
        {"env": {"NCCL_IB_HCA": "mlx5_7"}, "node": box(topology={}, nccl={"hcas": ["mlx5_0"]})},
        {"env": {"NCCL_IB_HCA": "mlx5_7"}, "node": box(topology={})},
    ),
    (
        "loopback",
        {"env": {"NCCL_SOCKET_IFNAME": "lo"}, "options": {"pipeline_parallel_size": 2}},
        {"env": {"NCCL_SOCKET_IFNAME": "lo"}},
    ),
    (
        "memlock",
        {"node": limits(memlock=64 * 1024), "env": {"NCCL_IB_HCA": "mlx5_0"}},
        {"node": limits(memlock="unlimited"), "env": {"NCCL_IB_HCA": "mlx5_0"}},
    ),
    (
        "memlock",
        {"node": limits(memlock=8 * MIB), "limits": {"rdma/hca_shared_devices_a": "1"}},
        {"node": limits(memlock=8 * MIB), "limits": {"rdma/hca_shared_devices_a": "1"}, "env": {"NCCL_IB_DISABLE": "1"}},
    ),
    ("p2p_off_with_nvlink", {"env": {"NCCL_P2P_DISABLE": "1"}, "node": box()}, {"env": {"NCCL_P2P_DISABLE": "1"}}),
    ("huge_buffers", {"env": {"NCCL_BUFFSIZE": str(64 * MIB)}}, {"env": {"NCCL_BUFFSIZE": str(4 * MIB)}}),
    ("many_channels", {"env": {"NCCL_MIN_NCHANNELS": "32"}}, {"env": {"NCCL_MIN_NCHANNELS": "4"}}),
    (
        "growing_network_buffers",
        {"env": {"NCCL_NET_SHARED_BUFFERS": "0"}, "options": {"pipeline_parallel_size": 4}},
        {"env": {"NCCL_NET_SHARED_BUFFERS": "0"}},
    ),
    ("ll128_forced", {"env": {"NCCL_PROTO": "LL,LL128"}}, {"env": {"NCCL_PROTO": "^LL128"}}),
    (
        "cumem_costs_graphs",
        {"env": {"NCCL_CUMEM_ENABLE": "1"}, "log": [version("2.21.5")]},
        {"env": {"NCCL_CUMEM_ENABLE": "1"}, "log": [version("2.22.3")]},
    ),
    (
        "cumem_costs_graphs",
        {
            "env": {"NCCL_CUMEM_ENABLE": "1"},
            "log": [
                "WARNING 11-30 07:00:00 [env_override.py:1] NCCL_CUMEM_ENABLE explicitly set to 1, skipping override. This may "
                "increase memory overhead with cudagraph+allreduce"
            ],
        },
        {"env": {"NCCL_CUMEM_ENABLE": "1"}},
    ),
    (
        "mig_ranks",
        {"resource": "nvidia.com/mig-3g.40gb", "gpus": 2},
        {"resource": "nvidia.com/mig-3g.40gb", "gpus": 2, "env": {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}, "log": [version("2.30.7")]},
    ),
    (
        "late_connections",
        {"options": {"gpu_memory_utilization": 0.96}},
        {"options": {"gpu_memory_utilization": 0.96}, "env": {"NCCL_RUNTIME_CONNECT": "0"}},
    ),
    (
        "late_connections",
        {"options": {"gpu_memory_utilization": 0.96}, "log": [version("2.22.3")]},
        {"options": {"gpu_memory_utilization": 0.96}, "log": [version("2.21.5")]},
    ),
    (
        "one_debug_file",
        {"env": {"NCCL_DEBUG_FILE": "/logs/nccl.txt"}},
        {"env": {"NCCL_DEBUG_FILE": "/logs/nccl.%h.%p.txt"}},
    ),
    ("tensor_over_nodes", {"options": {"tensor_parallel_size": 16}}, {"options": {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}}),
    (
        "one_node_would_do",
        {"gpus": 1, "options": {"tensor_parallel_size": 1, "pipeline_parallel_size": 4}, "node": box()},
        {"gpus": 1, "options": {"tensor_parallel_size": 1, "pipeline_parallel_size": 16}, "node": box()},
    ),
    (
        "tensor_across_islands",
        {"gpus": 4, "node": box(topology={"links": PAIRS})},
        {
            "gpus": 4,
            "node": box(topology={"links": PAIRS}),
            "options": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        },
    ),
    ("tensor_across_islands", {"gpus": 4, "node": box(topology={"links": SOCKETS})}, {"gpus": 8, "node": box()}),
]  # fmt: skip


def hit_rows(arguments):
    seen = nccl_checks.NcclSeen(*make(**arguments))
    return {row.name for row in nccl_checks.ROWS if row.test(seen)}


@pytest.mark.parametrize(
    ("name", "bad", "good"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)]
)
def test_rows(name, bad, good):
    assert name in hit_rows(bad)
    assert name not in hit_rows(good)


def test_every_row_has_its_case():
    assert {case[0] for case in CASES} == {row.name for row in nccl_checks.ROWS}
    assert len({row.name for row in nccl_checks.ROWS}) == len(nccl_checks.ROWS)


@pytest.mark.parametrize(
    ("name", "bad", "good"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)]
)
def test_findings_are_whole(name, bad, good):
    row = next(row for row in nccl_checks.ROWS if row.name == name)
    found = nccl_checks.nccl_findings(*make(**bad))
    (item,) = [entry for entry in found if entry["cause"] == row.cause]
    assert row.words in item["explanation"]
    assert item["recommend"]
    assert all(change["why"] for change in item["recommend"])
    assert all(entry["text"] for entry in item["evidence"])
    assert item["role"] in ("risk", "contributing")
    assert item["runbook"]


def only(cause, found):
    (item,) = [entry for entry in found if entry["cause"] == cause]
    return item


def test_a_sound_engine_gives_nothing():
    assert nccl_checks.nccl_findings(*make(node=box(), log=[version("2.27.5")])) == []
    assert nccl_checks.nccl_findings(*make()) == []


BOTH = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1"}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (told(("u1", BOTH, []), ("u2", {"NCCL_IB_DISABLE": "1"}, [])), BOTH),
        # What the ranks don't agree on isn't a setting of the pod.
        (told(("u1", BOTH, []), ("u1", {"NCCL_DEBUG": "INFO"}, [])), {"NCCL_DEBUG": "INFO"}),
        (told(("u2", BOTH, [])), {}),
        (told((None, BOTH, [])), {}),
        (box(nccl={"variables": BOTH, "processes": []}), BOTH),
        (box(nccl={"variables": BOTH}, reader={"pod_uid": "u1"}), BOTH),
        (box(nccl={"variables": BOTH}, reader={"pod_uid": "u2"}), {}),
        (box(nccl=dict(told(("u2", {}, []))["nccl"], variables=BOTH), reader={"pod_uid": None}), {}),
        (box(nccl=dict(told(("u2", {}, []))["nccl"], variables=BOTH), reader={"pod_uid": "u1"}), BOTH),
    ],
)
def test_what_the_node_tells_of_this_pod(node, expected):
    assert nccl_checks.NcclSeen(*make(node=node)).variables == expected


def test_the_interface_to_set_is_one_of_the_pod():
    node = told(("u1", {}, ["lo", "docker0", "net1"]))
    found = nccl_checks.nccl_findings(*make(env={"NCCL_SOCKET_IFNAME": "ens5"}, node=node))
    assert changes(only("nccl_not_memory", found))["NCCL_SOCKET_IFNAME"] == ("set", "net1")


def test_of_many_interfaces_some_are_named():
    node = box(nccl={"interfaces": [f"veth{number}" for number in range(100)]})
    found = nccl_checks.nccl_findings(*make(env={"NCCL_SOCKET_IFNAME": "ens5"}, node=node, host_network=True))
    assert "veth7 and 92 more" in only("nccl_not_memory", found)["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("name", "capability", "arguments"),
    [
        ("memlock", "IPC_LOCK", {"node": limits(memlock=64 * 1024), "env": {"NCCL_IB_HCA": "mlx5_0"}}),
        (
            "cumem_host_forced",
            "SYS_NICE",
            {"env": {"NCCL_CUMEM_HOST_ENABLE": "1"}, "log": [version("2.26.2")]},
        ),
    ],
)
def test_a_capability_answers_a_row(name, capability, arguments):
    pod, container, node = make(**arguments)
    (row,) = (row for row in nccl_checks.ROWS if row.name == name)
    assert row.test(nccl_checks.NcclSeen(pod, dict(container, capabilities=["NET_ADMIN"]), node))
    for one in (capability, "ALL"):
        assert not row.test(nccl_checks.NcclSeen(pod, dict(container, capabilities=[one]), node))


def test_one_gpu_has_no_nccl():
    assert (
        nccl_checks.nccl_findings(*make(gpus=1, env={"NCCL_NVLS_ENABLE": "1", "NCCL_DEBUG": "TRACE"})) == []
    )


def test_a_container_that_is_no_engine():
    pod, container, node = make(env={"NCCL_NVLS_ENABLE": "1"})
    container["engine"] = None
    assert nccl_checks.nccl_findings(pod, container, node) == []


def test_a_row_contributes_where_the_log_shows_its_effect():
    warned = (
        "[2025-10-11 04:57:50] decode-0:3663:4044 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Ewjreo to "
        "33030532 bytes, error: No space left on device (28)"
    )
    env = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}
    item = only("shm_exhausted", nccl_checks.nccl_findings(*make(env=env, shm=None, log=[warned])))
    assert item["role"] == "contributing"
    assert [entry["source"] for entry in item["evidence"]] == ["spec", "log"]
    quiet = only("shm_exhausted", nccl_checks.nccl_findings(*make(env=env, shm=None)))
    assert (quiet["role"], quiet["rejected"]) == ("risk", [])


def test_rows_of_one_cause_are_one_finding():
    env = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_PROTO": "LL128", "NCCL_NVLS_ENABLE": "1"}
    item = only("nccl_not_memory", nccl_checks.nccl_findings(*make(env=env)))
    assert {change["name"] for change in item["recommend"]} == {
        "NCCL_SHM_DISABLE",
        "NCCL_PROTO",
        "NCCL_NVLS_ENABLE",
    }
    assert len(item["evidence"]) == 3
    assert item["confidence"] == "likely"


def changes(item):
    return {change["name"]: (change["direction"], change["value"]) for change in item["recommend"]}


def test_the_exact_form_of_a_prefix():
    for text, exact in (("mlx5_1", "=mlx5_1"), ("^mlx5_1", "^=mlx5_1")):
        found = nccl_checks.nccl_findings(*make(env={"NCCL_IB_HCA": text}, node=box()))
        assert changes(only("nccl_not_memory", found))["NCCL_IB_HCA"] == ("set", exact)


@pytest.mark.parametrize(
    ("arguments", "tensor", "pipeline"),
    [
        ({"options": {"tensor_parallel_size": 16}}, 8, 2),
        ({"options": {"tensor_parallel_size": 8}, "gpus": 1}, 1, 8),
        ({"options": {"tensor_parallel_size": 12}}, 6, 2),
        ({"gpus": 4, "node": box(topology={"links": PAIRS})}, 2, 2),
        ({"gpus": 4, "node": box(topology={"links": SOCKETS})}, 2, 2),
    ],
)
def test_tensor_inside_pipeline_across(arguments, tensor, pipeline):
    item = only("nccl_not_memory", nccl_checks.nccl_findings(*make(**arguments)))
    found = changes(item)
    assert found["--tensor-parallel-size"] == ("decrease", tensor)
    assert found["--pipeline-parallel-size"] == ("increase", pipeline)


def test_the_words_name_the_slow_link():
    item = only(
        "nccl_not_memory", nccl_checks.nccl_findings(*make(gpus=4, node=box(topology={"links": PAIRS})))
    )
    assert "GPU0, GPU1 | GPU2, GPU3; between GPU0 and GPU2: SYS" in item["evidence"][0]["text"]


def test_only_this_pods_gpus_count():
    node = box(
        topology={"links": PAIRS},
        gpus=[{"index": index, "uuid": f"GPU-{index}"} for index in range(4)],
        processes=[{"gpu": f"GPU-{index}", "pid": index, "pod_uid": "u1"} for index in (0, 1)],
    )
    assert nccl_checks.nccl_findings(*make(gpus=2, node=node)) == []
    node["processes"][1]["gpu"] = "GPU-2"
    assert nccl_checks.nccl_findings(*make(gpus=2, node=node)) != []


def test_nothing_is_changed():
    given = make(env={"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}, node=box(), log=[version("2.27.5")])
    before = copy.deepcopy(given)
    nccl_checks.nccl_findings(*given)
    assert given == before


@pytest.mark.parametrize(
    "node",
    [
        {},
        documents.node(topology={"links": {"GPU0": None}}),
        documents.node(limits=[{"pid": 7, "stack": None}], gpus=[{}], processes=[{}]),
        documents.node(driver={"cuda": None}, services={}, topology={"nics": {}}),
    ],
)
def test_nodes_that_say_little(node):
    nccl_checks.nccl_findings(
        *make(node=node, env={"NCCL_IB_HCA": "", "NCCL_BUFFSIZE": "4M", "NCCL_PROTO": ""})
    )


def test_commands_that_show_it_again():
    found = nccl_checks.nccl_findings(*make(node=limits(memlock=64 * 1024), env={"NCCL_IB_HCA": "mlx5_0"}))
    assert (
        only("memlock_limit", found)["check"][0] == "kubectl -n llm exec vllm-0 -c vllm -- sh -c 'ulimit -l'"
    )


NAMES = sorted({name for _row, bad, good in CASES for side in (bad, good) for name in side.get("env", {})})


@given(st.dictionaries(st.sampled_from(NAMES), st.one_of(st.text(max_size=12), st.integers().map(str))))
def test_any_value_is_judged(env):
    for item in nccl_checks.nccl_findings(*make(env=env, node=box(), options={"pipeline_parallel_size": 2})):
        assert item["explanation"]
