# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prefixes of log lines: vLLM's of every era, Ray's, torchrun's, NCCL's, the kernel's, the container runtime's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_lines import (
    cri_piece,
    last_segment,
    parse,
    rank_of,
)

STAMP = "2026-01-01T00:00:00.123456789Z"

# (line, process, level, origin, time, text)
PREFIXES = [
    (
        "INFO 09-05 11:55:55 model_runner.py:732] Loading model weights took 8.1425 GB",
        (None, "INFO", "model_runner.py:732", "09-05 11:55:55", "Loading model weights took 8.1425 GB"),
    ),
    (
        "INFO 07-28 23:02:27 [kv_cache_utils.py:833] GPU KV cache size: 176,240 tokens",
        (None, "INFO", "kv_cache_utils.py:833", "07-28 23:02:27", "GPU KV cache size: 176,240 tokens"),
    ),
    (
        "DEBUG 07-28 23:02:27 [v1/engine/core.py:842] x",
        (None, "DEBUG", "v1/engine/core.py:842", "07-28 23:02:27", "x"),
    ),
    (
        "(VllmWorker rank=0 pid=2120280) INFO 07-28 23:02:27 [gpu_worker.py:255] Available KV cache memory: 18.83 GiB",
        (
            "VllmWorker rank=0",
            "INFO",
            "gpu_worker.py:255",
            "07-28 23:02:27",
            "Available KV cache memory: 18.83 GiB",
        ),
    ),
    (
        "(EngineCore_0 pid=3) (VllmWorker TP0 pid=4) ERROR 07-28 23:02:27 [core.py:842]   File",
        ("EngineCore_0/VllmWorker TP0", "ERROR", "core.py:842", "07-28 23:02:27", "  File"),
    ),
    (
        "(EngineCore_DP0 pid=301) torch.OutOfMemoryError: CUDA",
        ("EngineCore_DP0", None, None, None, "torch.OutOfMemoryError: CUDA"),
    ),
    (
        "(Worker_PP0_TP1 pid=9) INFO 01-02 03:04:05 [a.py:1] x",
        ("Worker_PP0_TP1", "INFO", "a.py:1", "01-02 03:04:05", "x"),
    ),
    (
        "(VllmWorkerProcess pid=428) ERROR 08-04 16:54:59 [a.py:2] x",
        ("VllmWorkerProcess pid=428", "ERROR", "a.py:2", "08-04 16:54:59", "x"),
    ),
    (
        "(RayWorkerWrapper pid=14, ip=192.168.10.60) INFO 03-27 10:29:01 [worker.py:267] weights",
        ("RayWorkerWrapper pid=14", "INFO", "worker.py:267", "03-27 10:29:01", "weights"),
    ),
    ("(raylet) A worker died", ("raylet", None, None, None, "A worker died")),
    ("(raylet, ip=10.0.0.2) A worker died", ("raylet", None, None, None, "A worker died")),
    (
        "(pid=5623) [2023-08-25 00:42:40,265 E 5623 7733] logging.cc:97: Unhandled exception",
        ("pid=5623", "ERROR", "logging.cc:97", "2023-08-25 00:42:40,265", "Unhandled exception"),
    ),
    (
        "[node7] INFO 09-05 11:55:55 [a.py:1] with a VLLM_LOGGING_PREFIX",
        (None, "INFO", "a.py:1", "09-05 11:55:55", "with a VLLM_LOGGING_PREFIX"),
    ),
    (
        "team-a (EngineCore pid=4) INFO 09-05 11:55:55 [a.py:1] x",
        ("EngineCore", "INFO", "a.py:1", "09-05 11:55:55", "x"),
    ),
    (
        "INFO [__init__.py] Automatically detected platform cuda.",
        (None, "INFO", "__init__.py", None, "Automatically detected platform cuda."),
    ),
    (
        "(EngineCore pid=80) INFO Loading weights took 549.60 seconds",
        ("EngineCore", "INFO", None, None, "Loading weights took 549.60 seconds"),
    ),
    (
        "ERROR multiproc_worker_utils.py] Worker died",
        (None, "ERROR", "multiproc_worker_utils.py", None, "Worker died"),
    ),
    (
        "INFO:     Application startup complete.",
        (None, "INFO", None, None, "Application startup complete."),
    ),
    (
        "(APIServer pid=1) INFO:     Shutting down",
        ("APIServer", "INFO", None, None, "Shutting down"),
    ),
    (
        "2023-11-18 03:39:16,283 WARNING services.py:1996 -- WARNING: The object store",
        (None, "WARNING", "services.py:1996", "2023-11-18 03:39:16,283", "WARNING: The object store"),
    ),
    (
        "2025-08-01 10:00:00,123 - vllm.engine - ERROR - boom",
        (None, "ERROR", None, "2025-08-01 10:00:00,123", "boom"),
    ),
    ('[rank0]:   File "a.py", line 1, in b', ("rank0", None, None, None, '  File "a.py", line 1, in b')),
    (
        "[rank0]:[W429 05:19:45.151525875 ProcessGroupNCCL.cpp:1496] Warning: x",
        ("rank0", "WARNING", "ProcessGroupNCCL.cpp:1496", "429 05:19:45.151525875", "Warning: x"),
    ),
    (
        "[rank3]:[E 719 12:00:00.123 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog",
        ("rank3", "ERROR", "ProcessGroupNCCL.cpp:629", "719 12:00:00.123", "[Rank 3] Watchdog"),
    ),
    (
        "[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog",
        ("rank0", "ERROR", "ProcessGroupNCCL.cpp:563", None, "[Rank 0] Watchdog"),
    ),
    (
        "decode-0:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error while creating",
        ("decode-0:3663", "WARNING", "misc/shmutils.cc:129", None, "NCCL WARN Error while creating"),
    ),
    (
        "[2026-01-01 00:00:00] node0:555:771 [0] misc/ibvwrap.cc:217 (wrap_ibv_reg_mr) NCCL WARN Call",
        ("node0:555", "WARNING", "misc/ibvwrap.cc:217", "2026-01-01 00:00:00", "NCCL WARN Call"),
    ),
    (
        "transport/nvls.cc:287 NCCL WARN Failed to bind",
        (None, "WARNING", "transport/nvls.cc:287", None, "NCCL WARN Failed to bind"),
    ),
    ("[HAMI-core ERROR (utils.c:160)]: host pid", (None, "ERROR", "utils.c:160", None, "host pid")),
    (
        "Nov 30 08:00:00 node1 kernel: [12.5] oom-kill:constraint",
        ("kernel", None, None, "Nov 30 08:00:00", "oom-kill:constraint"),
    ),
    ("kernel: Memory cgroup out of memory", ("kernel", None, None, None, "Memory cgroup out of memory")),
    ("[12345.678901] Out of memory", ("kernel", None, None, None, "Out of memory")),
    ("[Mon Nov 30 08:00:00 2026] python3 invoked", ("kernel", None, None, None, "python3 invoked")),
    (
        "2026-11-30T08:00:00+0000 node1 kernel: Killed process",
        ("kernel", None, None, "2026-11-30T08:00:00+0000", "Killed process"),
    ),
    (
        f"{STAMP} stdout F (APIServer pid=1) INFO:     ready",
        ("APIServer", "INFO", None, STAMP, "ready"),
    ),
    (f"{STAMP} INFO 09-05 11:55:55 [a.py:1] x", (None, "INFO", "a.py:1", STAMP, "x")),
    ("[pod/vllm-0/vllm] INFO 09-05 11:55:55 [a.py:1] x", (None, "INFO", "a.py:1", "09-05 11:55:55", "x")),
    ("vllm-1  | INFO 09-05 11:55:55 [a.py:1] x", (None, "INFO", "a.py:1", "09-05 11:55:55", "x")),
    ("\x1b[32mINFO\x1b[0m 09-05 11:55:55 [a.py:1] x", (None, "INFO", "a.py:1", "09-05 11:55:55", "x")),
    ("RuntimeError: cancelled", (None, None, None, None, "RuntimeError: cancelled")),
    ("| NVIDIA-SMI 560.35.03 |", (None, None, None, None, "| NVIDIA-SMI 560.35.03 |")),
    ("", (None, None, None, None, "")),
]


@pytest.mark.parametrize(("raw", "expected"), PREFIXES, ids=[raw[:40] for raw, _parts in PREFIXES])
def test_prefix(raw, expected):
    parts = parse(raw)
    assert (parts["process"], parts["level"], parts["origin"], parts["time"], parts["text"]) == expected


def test_ray_counts_lines_of_other_workers():
    parts = parse(
        "(RayWorkerWrapper pid=1) INFO 03-27 10:29:01 [worker.py:267] takes 4.26 seconds [repeated 30x across cluster]"
    )
    assert (parts["text"], parts["count"]) == ("takes 4.26 seconds", 30)
    assert parse("x [repeated 2x across cluster] (Ray deduplicates logs by default.)")["count"] == 2


def test_carriage_returns_leave_what_a_terminal_shows():
    assert parse("Loading:   0%\rLoading:  25%\rLoading:  50%\r\n")["text"] == "Loading:  50%"
    assert last_segment("a\r\r") == "a"
    assert last_segment("\r") == ""


def test_journal_json_line():
    parts = parse(json.dumps({"MESSAGE": "ERROR 11-30 06:51:41 [core.py:708] it failed", "PRIORITY": "6"}))
    assert (parts["level"], parts["text"]) == ("ERROR", "it failed")


def test_docker_json_line():
    raw = json.dumps(
        {
            "log": "(EngineCore_DP0 pid=3) ERROR 09-05 11:55:55 [a.py:1] boom\n",
            "stream": "stderr",
            "time": STAMP,
        }
    )
    parts = parse(raw)
    assert (parts["process"], parts["level"], parts["time"], parts["text"]) == (
        "EngineCore_DP0",
        "ERROR",
        STAMP,
        "boom",
    )


@pytest.mark.parametrize(
    ("record", "level", "text"),
    [
        (
            {"message": "x", "levelname": "WARNING", "asctime": STAMP, "process_name": "EngineCore"},
            "WARNING",
            "x",
        ),
        ({"msg": "x", "level": "error", "ts": STAMP, "caller": "a.go:1"}, "ERROR", "x"),
        (
            {"message": "failed", "level": "ERROR", "exc_info": "Traceback\nValueError: z"},
            "ERROR",
            "failed\nTraceback\nValueError: z",
        ),
    ],
)
def test_json_record(record, level, text):
    parts = parse(json.dumps(record))
    assert (parts["level"], parts["text"]) == (level, text)


def test_json_that_is_no_record_stays_text():
    assert parse('{"a": 1}')["text"] == '{"a": 1}'
    assert parse('{"message": broken}')["text"] == '{"message": broken}'


def test_cri_piece():
    assert cri_piece(f"{STAMP} stderr P half") == ("P", len(f"{STAMP} stderr P "))
    assert cri_piece(f"{STAMP} stderr F half")[0] == "F"
    assert cri_piece("INFO x") is None


@pytest.mark.parametrize(
    ("process", "rank"),
    [
        ("VllmWorker rank=3", 3),
        ("EngineCore_0/VllmWorker TP1", 1),
        ("Worker_DP0_TP2_EP2", 2),
        ("Worker_PP1_TP0", None),
        ("rank7", 7),
        ("APIServer", None),
        (None, None),
    ],
)
def test_rank(process, rank):
    assert rank_of(process) == rank


@given(st.text())
def test_any_text_parses_and_nothing_but_prefixes_is_lost(raw):
    parts = parse(raw)
    assert set(parts) == {"time", "process", "level", "origin", "text", "count"}
    assert parts["text"].strip() in raw or "\x1b" in raw
