# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL_DEBUG output: read from whole logs through the scanner, as pods print it.

The lines are those of public reports (host names shortened): an H100 box with NVLS (a benchmark's log of June 2026, NCCL 2.27),
github.com/NVIDIA/nccl issues 1189 (H20, two nodes), 892 (P2P/direct pointer), 1838 and 1234, vllm-project/vllm issue 10453, a pod
with RoCE (koordinator's documentation), GPUs without peer access (NCCL 2.28.9); forms of ALLOC lines: NCCL's alloc.h and p2p.cc.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import log_lines
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LIMITS, LogScanner
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.nccl_log import info, nccl_facts

MIB = 1 << 20


def scanned(*lines):
    scanner = LogScanner()
    scanner.feed("".join(f"{line}\n" for line in lines).encode())
    return scanner.close()


def facts(*lines):
    return nccl_facts(log_lines(scanned(*lines)))


def h100(rank, comm, stamp=""):
    """What one of eight ranks prints, channel by channel."""
    head = f"{stamp}gpu-dev:{1795 + rank}:{1795 + rank} [{rank}] NCCL INFO "
    after = (rank + 1) % 8
    return [
        head + "NCCL_ALGO set by environment to ring,tree",
        *(
            f"{head}Channel {channel:02}/0 : {rank}[{rank}] -> {after}[{after}] via P2P/IPC"
            for channel in range(24)
        ),
        head + "Connected all trees",
        head
        + f"NVLS comm {comm} headRank {rank} nHeads 8 nvlsRanks 8 buffSize 1048576 nvlsPerRankSize 33554432 "
        "nvlsTotalSize 268435456",
        f"{stamp}gpu-dev:{1795 + rank}:2381 [0] NCCL INFO [Proxy Progress] Device {rank} CPU core 160",
        head + "TUNER/Plugin: Could not find: libnccl-tuner.so",
        head + "threadThresholds 8/8/64 | 64/8/64 | 512 | 512",
        head
        + "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        head
        + f"ncclCommInitRankConfig comm {comm} rank {rank} nranks 8 cudaDev {rank} nvmlDev {rank} busId ca000 "
        "commId 0x4dd4bb71647e17d6 - Init COMPLETE",
    ]


COMMS = [f"0x55c4d3fd8f{rank}0" for rank in range(8)]


@pytest.mark.parametrize("stamp", ["", "[2026-04-28 14:14:49] "])
def test_eight_ranks_with_nvls(stamp):
    lines = [line for rank, comm in enumerate(COMMS) for line in h100(rank, comm, stamp)]
    found = facts("NCCL version 2.27.5+cuda12.9", *lines)
    assert found["version"] == "2.27.5"
    (communicator,) = found["communicators"]
    assert communicator == {
        "ranks": 8,
        "nodes": None,
        "local_ranks": None,
        "coll": 24,
        "nvls": 16,
        "p2p": 32,
        "p2p_per_peer": 32,
        "nvls_bytes": 256 * MIB,
    }
    assert found["transports"] == {"P2P/IPC": 8 * 24}
    assert found["nvls_bytes"] == 256 * MIB
    assert found["variables"] == {"NCCL_ALGO": ["ring,tree"]}


def test_it_takes_little_of_the_excerpt():
    lines = [line for rank, comm in enumerate(COMMS) for line in h100(rank, comm)] * 12
    excerpt = scanned(*lines)
    kept = [item for item in excerpt["notes"] if item["text"].startswith("NCCL INFO")]
    assert len(kept) <= LIMITS["nccl"]
    assert sum(len(item["text"]) for item in kept) < 6000
    assert not excerpt["errors"]


def test_other_notes_keep_their_room():
    noise = [line for rank, comm in enumerate(COMMS) for line in h100(rank, comm)]
    excerpt = scanned(
        *noise,
        "WARNING 11-30 07:00:00 [cache.py:1] Possibly too large swap space. 4.00 GiB out of the 8.00 GiB",
    )
    assert any("too large swap space" in item["text"] for item in excerpt["notes"])


def test_what_is_left_out_is_said():
    lines = [f"h:1:1 [0] NCCL INFO NCCL_X{n} set by environment to {n}" for n in range(LIMITS["nccl"] + 3)]
    assert f"3 more nccl beyond the first {LIMITS['nccl']}" in scanned(*lines)["cut"]


def test_every_communicator_of_one_rank():
    head = "vllm-0:31:31 [0] NCCL INFO "
    found = facts(
        head + "comm 0xa1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0",
        head
        + "8 coll channels, 0 collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
        head
        + "ncclCommInitRank comm 0xa1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 38000 commId 0xf0 - Init COMPLETE",
        "vllm-0:32:32 [1] NCCL INFO ncclCommInitRank comm 0xb1 rank 1 nranks 8 cudaDev 1 nvmlDev 1 busId 39000 commId 0xf0 - Init COMPLETE",
        head + "2 coll channels, 2 p2p channels, 2 p2p channels per peer",
        head + "comm 0xa2 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 38000 commId 0xf1 - Init COMPLETE",
    )
    assert [
        (item["ranks"], item["nodes"], item["coll"], item["p2p_per_peer"]) for item in found["communicators"]
    ] == [
        (8, 2, 8, 2),
        (2, None, 2, 2),
    ]


def test_a_log_that_ends_while_nccl_starts():
    found = facts(
        "n:1:1 [0] NCCL INFO 24 coll channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer"
    )
    assert [item["coll"] for item in found["communicators"]] == [24]
    assert found["communicators"][0]["ranks"] is None


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("Channel 05/0 : 2[2] -> 3[3] via P2P/CUMEM", "P2P/CUMEM"),
        ("Channel 03/0 : 1[1] -> 2[2] via P2P/CUMEM/read", "P2P/CUMEM"),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read", "P2P/IPC"),
        ("Channel 15/0 : 7[7] -> 4[4] via P2P/direct pointer", "P2P/direct pointer"),
        ("Channel 00 : 7[ca000] -> 6[c7000] via SHM/direct/direct", "SHM"),
        ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0", "NET/Socket"),
        ("Channel 04/1 : 3[1] -> 0[0] [receive] via NET/IB/3/GDRDMA", "NET/IB/GDRDMA"),
        ("Channel 04/1 : 3[1] -> 0[0] [receive] via NET/IB/3", "NET/IB"),
        ("Channel 00/0 : 8[0] -> 0[0] [send] via NET/AWS Libfabric/0/GDRDMA", "NET/AWS"),
    ],
)
def test_transports(printed, name):
    assert list(facts(f"h:1:2 [0] NCCL INFO {printed}")["transports"]) == [name]


def test_alloc_lines_are_summed_over_one_rank():
    def rank(pid, sizes):
        return [
            f"gpu-3:{pid}:9 [1] NCCL INFO init.cc:{n} Cuda Alloc Size {size} pointer 0x7f{n:06x}"
            for n, size in enumerate(sizes)
        ]

    one, two = rank(301, [6 * MIB] * 50), rank(302, [MIB] * 300)
    mixed = [line for pair in zip(one, two, strict=False) for line in pair] + two[50:]
    assert facts(*mixed)["allocated_bytes"] == 300 * MIB


def test_shareable_buffers_count_where_cumem_makes_them():
    lines = [
        "node-01:63:65 [0] NCCL INFO Allocated shareable buffer 0x7f10 size 10485760 ipcDesc 0x7f20",
        "node-01:63:65 [0] NCCL INFO Allocated shareable buffer 0x7f11 size 2097152 ipcDesc 0x7f21",
    ]
    plain = "node-01:63:65 [0] NCCL INFO transport/p2p.cc:1 Cuda Alloc Size 12582912 pointer 0x7f10"
    cumem = "node-01:63:63 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    assert facts(*lines, plain)["allocated_bytes"] == 12 * MIB
    assert facts(*lines, plain, cumem)["allocated_bytes"] == 24 * MIB


def test_host_side_and_network():
    found = facts(
        "pod-vf07:15718:15718 [0] NCCL INFO cudaDriverVersion 12040",
        "pod-vf07:15718:15718 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
        "pod-vf07:15718:15718 [0] NCCL INFO NCCL_IB_MERGE_VFS set by environment to 0.",
        "pod-vf07:15718:15718 [0] NCCL INFO Bootstrap : Using eth0:10.244.1.10<0>",
        "pod-vf07:15718:15726 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/IB/SHARP [RO]; OOB eth0:10.244.2.21<0>",
        "pod-vf07:15718:15726 [0] NCCL INFO Using network IBext_v8",
        "pod-vf07:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with "
        "NCCL_IGNORE_DISABLED_P2P=1.",
        "pod-vf07:1:1 [0] NCCL INFO cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based "
        "implementation. This could be due to the container runtime disabling NUMA support. To disable this warning, set "
        "NCCL_CUMEM_HOST_ENABLE=0",
        "pod-vf07:1:1 [0] NCCL INFO CUMEM Host Alloc Size 33030144 pointer 0x7f handle 1 numa 0 dev 0 granularity 4096",
    )
    assert found["interfaces"] == ["eth0"]
    assert found["hcas"] == ["mlx5_2", "mlx5_3"]
    assert found["network"] == "IBext_v8"
    assert found["cumem_host"] is False
    assert found["p2p"] is False
    assert found["host_bytes"] == 33030144
    assert found["variables"] == {"NCCL_SOCKET_IFNAME": ["eth0"], "NCCL_IB_MERGE_VFS": ["0"]}


def test_ranks_that_see_different_values():
    found = facts(
        "a:1:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 4194304.",
        "a:2:2 [1] NCCL INFO NCCL_BUFFSIZE set by environment to 2097152.",
    )
    assert found["variables"] == {"NCCL_BUFFSIZE": ["4194304", "2097152"]}


@pytest.mark.parametrize(
    ("warned", "gpu", "shm"),
    [
        (
            "gpu-7:411:1290 [3] include/alloc.h:199 NCCL WARN Failed to CUDA calloc 6291456 bytes",
            6291456,
            None,
        ),
        ("gpu-7:411:1290 [3] include/alloc.h:199 NCCL WARN Failed to CUDA malloc async 512 bytes", 512, None),
        (
            "transport/nvls.cc:287 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.",
            2097152,
            None,
        ),
        (
            "[2025-06-06 09:52:01] n:15016:15201 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-YrFC5V to "
            "33030532 bytes, error: No space left on device (28)",
            None,
            33030532,
        ),
        ("n:1:2 [0] enqueue.cc:1616 NCCL WARN Cuda failure 2 'out of memory'", None, None),
    ],
)
def test_what_the_failing_allocation_wanted(warned, gpu, shm):
    assert facts(warned)["wanted"] == {"gpu": gpu, "shm": shm}


def test_the_way_of_an_error_names_the_transport():
    found = facts(
        "02fdc141b80d:213:520 [1] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        "02fdc141b80d:213:520 [1] NCCL INFO include/alloc.h:240 -> 1",
        "02fdc141b80d:213:520 [1] NCCL INFO transport/p2p.cc:228 -> 1",
    )
    assert found["places"] == ["include/alloc.h:240", "transport/p2p.cc:228"]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NCCL version 2.21.5+cuda12.4", "2.21.5"),
        ("h:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2", "2.26.2"),
        ("INFO 11-30 07:00:00 [pynccl.py:63] vLLM is using nccl==2.27.3", "2.27.3"),
        ("INFO 11-30 07:00:00 [cuda.py:1] Automatically detected platform cuda.", None),
    ],
)
def test_version(line, version):
    assert facts(line)["version"] == version


def test_a_log_without_nccl():
    found = facts(
        "INFO 11-30 07:00:00 [llm.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'"
    )
    assert not found["spoken"]
    assert not found["communicators"]
    assert found["allocated_bytes"] is None


def test_the_tail_is_not_counted_again():
    """The last lines stand in the tail as they are: a sum that has them already stays what it is."""
    lines = [f"h:1:2 [0] NCCL INFO x.cc:{n} Cuda Alloc Size {MIB} pointer 0x7f" for n in range(30)]
    excerpt = scanned(*lines)
    assert any("Cuda Alloc" in item["text"] for item in excerpt["tail"])
    assert nccl_facts(log_lines(excerpt))["allocated_bytes"] == 30 * MIB


@pytest.mark.parametrize(
    "message",
    [
        "NCCL INFO Connected all rings, use ring PXN 0 GDR 1",
        "NCCL INFO Trees [0] 1/-1/-1->0->-1",
        "NCCL INFO threadThresholds 8/8/64 | 64/8/64 | 512 | 512",
    ],
)
def test_dull_lines(message):
    assert info(message) is None


@given(st.text(max_size=300))
def test_any_text_may_follow(text):
    info("NCCL INFO " + text)
    nccl_facts([{"line": 1, "text": "NCCL INFO " + text, "process": None, "count": 1}])
    nccl_facts([{"line": 1, "text": "NCCL INFO Channel 00 : a via " + text, "process": None, "count": 1}])
