# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL out of memory, NCCL errors that aren't memory, hangs and dead peers, by the texts of NCCL and torch.

Texts: shared facts "kubernetes-gpu-facts" 10.4; NVIDIA/nccl issues 1838 (peer access) and 2190 (attaching).
"""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose_pod
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner

CUDA = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
SYSTEM = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
USAGE = "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"
REMOTE = "RuntimeError: NCCL error: remote process exited or there was a network error"
TORCH = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {}, NCCL version 2.27.5"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 3 has a total capacity of 79.18 GiB of which "
    "212.00 MiB is free. Including non-PyTorch memory, this process has 78.96 GiB memory in use. Of the allocated memory 74.20 GiB "
    "is allocated by PyTorch, and 150.00 MiB is reserved by PyTorch but unallocated."
)


def warn(message, pid=411, stamp=""):
    return f"{stamp}gpu-7:{pid}:1290 [3] misc/x.cc:190 NCCL WARN {message}"


def diagnosed(*lines):
    scanner = LogScanner()
    scanner.feed("".join(f"{line}\n" for line in lines).encode())
    container = documents.container(
        "vllm",
        engine=documents.engine("0.22.1", accelerator="cuda"),
        settings={"tensor_parallel_size": {"value": 4, "from": "arg", "line": None}},
        attempts=[documents.attempt(0, "terminated", exit_code=1, log=scanner.close())],
    )
    return diagnose_pod(documents.pod("llm", "vllm-0", uid="u", containers=[container]))


def cause(*lines):
    return diagnosed(*lines)["verdict"]["cause"]


@pytest.mark.parametrize(
    ("message", "end", "expected"),
    [
        ("Cuda failure 'out of memory'", CUDA, "nccl_gpu_oom"),
        ("Cuda failure 2 'out of memory'", CUDA, "nccl_gpu_oom"),
        ("Cuda failure 2 'out of memory'", TORCH.format("unhandled cuda error (run with NCCL_DEBUG=INFO for details)"), "nccl_gpu_oom"),
        ("Failed to CUDA malloc 4194304 bytes", CUDA, "nccl_gpu_oom"),
        ("Failed to CUDA calloc 6291456 bytes", CUDA, "nccl_gpu_oom"),
        ("Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.", CUDA, "nccl_gpu_oom"),
        ("Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation'.", CUDA, "nccl_not_memory"),
        ("Cuda failure 1 'invalid argument'", CUDA, "nccl_not_memory"),
        ("Cuda failure 217 'peer access is not supported between these two devices'", CUDA, "nccl_not_memory"),
        ("Cuda failure 999 'unknown error'", CUDA, "nccl_not_memory"),
        ("Cuda failure 'an illegal memory access was encountered'", CUDA, "not_memory_cuda_fault"),
        ("Cuda failure 719 'unspecified launch failure'", CUDA, "not_memory_cuda_fault"),
        ("Failed to CUDA host alloc 4194304 bytes", CUDA, "host_pin_limit"),
        ("Failed to malloc 4194304 bytes", SYSTEM, "host_oom_load"),
        ("Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes", SYSTEM, "shm_exhausted"),
        (
            "Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888), error: No space left on device (28)",
            SYSTEM,
            "shm_exhausted",
        ),
        (
            "Error while attaching to shared memory segment /dev/shm/nccl-AbCdEf (size 0), error: No such file or directory (2)",
            SYSTEM,
            "nccl_not_memory",
        ),
        ("Error: Could not map /dev/shm/nccl-AbCdEf size 9637888, error: Cannot allocate memory (12)", SYSTEM, "host_oom_load"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", SYSTEM, "memlock_limit"),
        ("Call to ibv_create_qp failed with error Cannot allocate memory errno 12", SYSTEM, "memlock_limit"),
        ("Bootstrap : no socket interface found", SYSTEM, "nccl_not_memory"),
        ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000", USAGE, "not_memory_config"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [1, -1])
def test_the_warn_line_names_the_reason(message, end, expected, order):
    """Standard error and the exception may change places in a log."""
    assert cause(*[warn(message), end][::order]) == expected


@pytest.mark.parametrize(
    "line",
    [
        TORCH.format("timeout"),
        "RuntimeError: NCCL error: timeout",
        "[rank1]:[E1130 07:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
        "NCCL timeout in communicator initialization.",
    ],
)
def test_hangs(line):
    verdict = diagnosed(line)["verdict"]
    assert (verdict["cause"], verdict["is_memory"]) == ("nccl_not_memory", False)


@pytest.mark.parametrize(
    "lines",
    [
        [REMOTE],
        [warn("socketProgress: Connection closed by remote peer gpu-7<46822>"), REMOTE],
        [TORCH.format("remote process exited or there was a network error")],
    ],
)
def test_a_victim_alone_settles_nothing_and_says_so(lines):
    result = diagnosed(*lines)
    assert (result["verdict"]["cause"], result["verdict"]["is_memory"]) == ("undetermined", None)
    (trigger,) = [item for item in result["findings"] if item["role"] == "trigger"]
    assert "victim of another one" in trigger["explanation"]
    assert trigger["recommend"][0]["name"] == "collect_nccl_debug"


def test_the_dead_peers_error_counts_wherever_it_stands():
    assert cause(REMOTE, OOM) == cause(OOM, REMOTE) != "undetermined"


@pytest.mark.parametrize(
    "text", ["unhandled cuda error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"]
)
def test_a_bare_cuda_error_may_be_memory_or_not(text):
    verdict = diagnosed(f"RuntimeError: NCCL error: {text}")["verdict"]
    assert (verdict["cause"], verdict["is_memory"]) == ("undetermined", None)


def test_the_earliest_of_all_ranks_counts():
    """Logs of two ranks one after the other, the victim's first: the stamps tell."""
    late, early = "[2026-02-03 10:11:40] ", "[2026-02-03 10:11:12] "
    victim = warn("Cuda failure 1 'invalid argument'", 301, late)
    first = warn("Cuda failure 2 'out of memory'", 302, early)
    assert cause(victim, first) == "nccl_gpu_oom"
    assert cause(first, victim) == "nccl_gpu_oom"
    assert cause(victim.replace(late, ""), first.replace(early, "")) == "nccl_not_memory"


def test_stamps_of_two_forms_are_not_compared():
    vllm = "(Worker_TP3 pid=103) ERROR 02-03 10:12:00 [multiproc_executor.py:897] " + OOM
    assert (
        cause(vllm, warn("Cuda failure 1 'invalid argument'", 301, "[2026-02-03 10:11:12] "))
        != "nccl_not_memory"
    )


def test_the_way_of_the_error_tells_host_buffers_from_gpu_buffers():
    failed = warn("Cuda failure 2 'out of memory'")
    shm = "gpu-7:411:1290 [3] NCCL INFO transport/shm.cc:590 -> 1"
    p2p = "gpu-7:411:1290 [3] NCCL INFO transport/p2p.cc:228 -> 1"
    assert cause(failed, shm, CUDA) == "host_pin_limit"
    assert cause(failed, p2p, CUDA) == "nccl_gpu_oom"
    assert cause(failed, CUDA) == "nccl_gpu_oom"


def test_the_advice_says_what_the_buffers_take_and_what_a_setting_frees():
    head = "gpu-7:411:1290 [3] NCCL INFO "
    (trigger,) = [
        item
        for item in diagnosed(
            head
            + "NVLS comm 0xa headRank 3 nHeads 4 nvlsRanks 4 buffSize 1048576 nvlsPerRankSize 33554432 nvlsTotalSize 134217728",
            head
            + "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
            head
            + "ncclCommInitRank comm 0xa rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId ca000 commId 0x4d - Init COMPLETE",
            warn("Failed to CUDA malloc 2147483648 bytes"),
            CUDA,
        )["findings"]
        if item["role"] == "trigger"
    ]
    assert "rings 220.5 MiB, nvls 128.0 MiB" in trigger["explanation"]
    # 2 GiB were wanted: none of NCCL's own settings frees as much.
    refused = {item["name"] for item in trigger["rejected"]}
    assert {"NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE"} <= refused
    assert not any(item["name"].startswith("NCCL_") for item in trigger["recommend"])
