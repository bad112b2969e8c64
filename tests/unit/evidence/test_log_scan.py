# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scanner: what it keeps, in any split of the input, of broken, long, interleaved and enormous logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import (
    LogScanner,
    completeness,
)

TEMPLATES = Path(__file__).parent.parent / "diagnosis" / "message_templates.json"
ACCESS = '(APIServer pid=1) INFO:     10.0.0.{}:4{:04} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
STATS = (
    "(APIServer pid=1) INFO 11-30 08:00:{:02} [loggers.py:127] Engine 000: Avg prompt throughput: {}.0 tokens/s, Avg generation "
    "throughput: 20.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.5%, Prefix cache hit rate: 0.0%"
)
ORDINARY = "\n".join(
    STATS.format(number % 60, number, number % 7) if number % 20 == 0 else ACCESS.format(number % 250, number)
    for number in range(500)
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB. GPU 1 has a total capacity of 23.57 GiB of which "
    "605.88 MiB is free. Process 288 has 22.97 GiB memory in use. Of the allocated memory 20.21 GiB is allocated by PyTorch, with "
    "128.00 MiB allocated in private pools (e.g., CUDA Graphs), and 185.98 MiB is reserved by PyTorch but unallocated."
)


def scan(text, size=None, **options):
    data = text if isinstance(text, bytes) else text.encode()
    scanner = LogScanner(**options)
    for start in range(0, len(data), size or max(len(data), 1)):
        scanner.feed(data[start : start + (size or len(data))])
    return scanner.close()


def texts(items):
    return [item["text"] for item in items]


def kept_fields(excerpt, number):
    return {
        field
        for field in ("errors", "notes", "markers", "numbers", "arguments")
        if any(item["line"] == number for item in excerpt[field])
    }


def message_templates():
    rows = json.loads(TEMPLATES.read_text(encoding="utf-8"))["rows"]
    return sorted(
        {
            text["text"]
            for row in rows
            if row["section"].startswith("vllm 3.") or row["section"] == "k8s 10.4"
            for text in row["texts"]
            if text.get("text")
            and not text["text"].lstrip().startswith("File ")  # a traceback's frame, no message
        }
    )


@pytest.mark.parametrize("template", message_templates())
@pytest.mark.parametrize("prefix", ["(EngineCore_DP0 pid=3) INFO 07-28 23:02:27 [core.py:1] ", ""])
def test_every_catalogued_message_survives(template, prefix):
    """At the weakest level and bare, amid ordinary lines and out of the tail's reach."""
    message = re.sub(r"\{[^}]*\}", "7", template).replace("\n", " ")
    excerpt = scan(f"{ORDINARY}\n{prefix}{message}\n{ORDINARY}\n")
    assert kept_fields(excerpt, 501)


ENGINE_LINES = [
    "vLLM API server version 0.8.3",
    "vLLM server version 0.20.0, serving model Qwen/Qwen3-8B",
    " █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B",
    "  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.15.1",
    "Initializing an LLM engine (v0.6.1) with config: model='x'",
    "Initializing a V0 LLM engine (v0.7.2) with config: model='x'",
    "Initializing a V1 LLM engine (v0.9.2) with config: model='x'",
    "args: Namespace(host=None, port=8000)",
    "non-default args: {'model': 'x', 'max_model_len': 4096}",
    "Using max model len 4096",
    "Chunked prefill is enabled with max_num_batched_tokens=2048.",
    "Using fp8 data type to store kv cache. It reduces the GPU memory footprint",
    "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
    "Padding mamba page size by 1.2% to ensure that mamba page size and attention page size are exactly equal.",
    "Automatically detected platform cuda.",
    "Using V2 Model Runner",
]


@pytest.mark.parametrize("message", ENGINE_LINES)
def test_version_and_argument_lines(message):
    excerpt = scan(f"{ORDINARY}\nINFO 07-28 23:02:27 [a.py:1] {message}\n{ORDINARY}\n")
    assert texts(excerpt["arguments"]) == [message.strip()]


PHASES = [
    ("Initializing a V1 LLM engine (v0.9.2) with config: x", "engine_start", "load"),
    ("Starting to load model Qwen/Qwen3-8B...", "load_start", "load"),
    (
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<00:02,  1.20it/s]",
        "load_progress",
        "load",
    ),
    ("Loading weights took 3.50 seconds", "weights_read", "load"),
    ("Loading model weights took 8.1425 GB", "model_loaded", "profile"),
    ("Model loading took 14.99 GiB memory and 3.1 seconds", "model_loaded", "profile"),
    (
        "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items",
        "encoder_cache",
        "profile",
    ),
    ("Dynamo bytecode transform time: 5.21 s", "compile", "profile"),
    ("Profiling CUDA graph memory: FULL=3 (largest=8)", "graph_profile", "profile"),
    ("Memory profiling takes 3.25 seconds", "memory_profiled", "kv_init"),
    ("Available KV cache memory: 18.83 GiB", "memory_profiled", "kv_init"),
    ("# GPU blocks: 48320, # CPU blocks: 9362", "kv_sized", "graph_capture"),
    ("GPU KV cache size: 176,240 tokens", "kv_sized", "graph_capture"),
    (
        "Capturing CUDA graph shapes:  10%|#         | 3/35 [00:01<00:16,  1.96it/s]",
        "capture",
        "graph_capture",
    ),
    ("Capturing cudagraphs for decoding. This may lead to", "capture", "graph_capture"),
    ("Graph capturing finished in 20 secs, took 0.31 GiB", "captured", "warmup"),
    ("init engine (profile, create kv cache, warmup model) took 20.1 seconds", "engine_ready", "warmup"),
    ("Starting vLLM API server on http://0.0.0.0:8000", "server_start", "warmup"),
    ("Application startup complete.", "serving", "serving"),
    ("Shutting down", "shutdown", "shutdown"),
    ("[shutdown] EngineCore: trigger received signal=SIGTERM", "shutdown_asked", "shutdown"),
    ("KeyboardInterrupt: terminated", "shutdown_asked", "shutdown"),
]


@pytest.mark.parametrize(("message", "marker", "phase"), PHASES, ids=[row[0][:40] for row in PHASES])
def test_phase_markers(message, marker, phase):
    excerpt = scan(f"(EngineCore pid=3) {message}\n")
    assert [(item["marker"], item["phase"]) for item in excerpt["markers"]] == [(marker, phase)]
    assert phase in documents.PHASES


def test_a_served_request_marks_serving_where_the_start_is_missing():
    excerpt = scan(f"{ORDINARY}\n")
    assert [(item["line"], item["phase"]) for item in excerpt["markers"]] == [(1, "serving")]
    started = scan(f"INFO:     Application startup complete.\n{ORDINARY}\n")
    assert [item["marker"] for item in started["markers"]] == ["serving"]


def test_first_error_with_frames_and_context_of_its_own_process():
    log = f"""\
(VllmWorker rank=0 pid=10) INFO 03-19 07:27:50 [gpu_model_runner.py:1] Starting to load model x...
(VllmWorker rank=1 pid=11) INFO 03-19 07:27:51 [loader.py:2] Loading weights took 3.10 seconds
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375] WorkerProc hit an exception: %s
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375] Traceback (most recent call last):
(VllmWorker rank=0 pid=10) INFO 03-19 07:27:53 [other.py:1] a line of another rank about memory
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375]   File "vllm/a.py", line 10, in load_model
(VllmWorker rank=0 pid=10) ERROR 03-19 07:27:53 [multiproc_executor.py:375] Traceback (most recent call last):
(VllmWorker rank=0 pid=10) ERROR 03-19 07:27:53 [multiproc_executor.py:375]   File "vllm/zero.py", line 1, in zero
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375]     self.model = get_model(x)
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375]                  ^^^^^^^^^^^^
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375]   File "vllm/b.py", line 20, in create_weights
(VllmWorker rank=1 pid=11) ERROR 03-19 07:27:53 [multiproc_executor.py:375] {OOM}
(VllmWorker rank=0 pid=10) ERROR 03-19 07:27:54 [multiproc_executor.py:375] {OOM.replace("GPU 1", "GPU 0")}
ERROR 03-19 07:27:55 [core.py:340] RuntimeError: Engine core initialization failed. See root cause above.
"""
    excerpt = scan(log)
    first = excerpt["first_error"]
    assert first["text"].startswith("WorkerProc hit an exception")
    oom = excerpt["errors"][1]
    assert (oom["line"], oom["process"], oom["count"]) == (12, "VllmWorker rank=1", 2)
    assert oom["text"] == OOM
    assert [(frame["file"], frame["line"], frame["function"]) for frame in oom["frames"]] == [
        ("vllm/a.py", 10, "load_model"),
        ("vllm/b.py", 20, "create_weights"),
    ]
    assert [(item["line"], item["process"]) for item in first["context"]] == [(2, "VllmWorker rank=1")]
    assert oom["context"] == []  # lines 2 and 3 of its process: a marker and an error
    assert texts(excerpt["errors"])[-1].startswith("RuntimeError: Engine core initialization failed")


def test_chained_exceptions_keep_their_own_frames():
    log = """\
Traceback (most recent call last):
  File "a.py", line 1, in inner
    x()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in outer
RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.
"""
    errors = scan(log)["errors"]
    assert [[frame["file"] for frame in error["frames"]] for error in errors] == [["a.py"], ["b.py"]]


def test_frames_without_a_header_and_innermost_ones_when_there_are_many():
    frames = "".join(f'  File "f{number}.py", line {number}, in f\n' for number in range(30))
    error = scan(f"{frames}ValueError: x\n")["errors"][0]
    assert [frame["file"] for frame in error["frames"]] == [f"f{number}.py" for number in range(18, 30)]


def test_an_exception_without_error_in_its_name_ends_its_traceback():
    errors = scan('Traceback (most recent call last):\n  File "a.py", line 1, in f\nqueue.Empty\n')["errors"]
    assert texts(errors) == ["queue.Empty"]


@pytest.mark.parametrize(
    "text",
    [
        OOM,
        "HIP out of memory. Tried to allocate 64.00 MiB.",
        "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        "Cuda failure 2 'out of memory'",
        "kernel: Memory cgroup out of memory: Killed process 2343 (python3)",
        "Nov 30 08:00:00 n kernel: [1.5] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task=python3",
        "h:1:2 [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 3), "
        "error: No space left on device (28)",
        "ERROR 05-21 09:27:46 [multiproc_executor.py:123] Worker proc VllmWorker-6 died unexpectedly, shutting down executor.",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "Bus error (core dumped)",
        "*** SIGABRT received at time=1764150000 on cpu 0 ***",
        "!!!!!!! Segfault encountered !!!!!!!",
        "Killed",
        "RESOURCE_EXHAUSTED: Error loading program",
        "[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog caught collective operation timeout",
        "vllm serve: error: unrecognized arguments: --swap-space 4",
        "CRITICAL 03-20 02:29:07 [core_client.py:269] Got fatal signal from worker processes, shutting down.",
        "  Value error, User-specified max_model_len (65536) is greater than the derived max_model_len",
    ],
)
def test_errors(text):
    excerpt = scan(f"{ORDINARY}\n{text}\n{ORDINARY}\n")
    assert [item["line"] for item in excerpt["errors"]] == [501]


@pytest.mark.parametrize(
    "text",
    [
        "INFO 03-27 10:29:03 [model_runner.py:1442] CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running "
        "out of memory, consider decreasing `gpu_memory_utilization` or enforcing eager mode.",
        "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`",
        "WARNING 02-20 18:36:00 config.py:1148] Possibly too large swap space. 4.00 GiB out of the 7.75 GiB total CPU memory",
        "INFO [shm_broadcast.py] No available shared memory broadcast block found in 60 seconds.",
        "WARNING 02-20 18:36:00 [x.py:1] The model has a long context length (131072). This may causeOOM during",
        "INFO 01-01 00:00:00 [x.py:1] Parent process exited, terminating worker",
        "memory.current   443.5 GiB",
        "Mem:            62Gi       5.8Gi        13Gi        45Mi        43Gi        56Gi",
    ],
)
def test_advice_and_warnings_are_no_errors(text):
    excerpt = scan(f"{ORDINARY}\n{text}\n{ORDINARY}\n")
    assert excerpt["errors"] == []
    assert kept_fields(excerpt, 501)


def test_ordinary_lines_leave_only_the_last_statistics():
    excerpt = scan(f"{ORDINARY}\n")
    assert excerpt["errors"] == []
    assert [item["line"] for item in excerpt["notes"]] == [481]
    assert {item["name"] for item in excerpt["numbers"]} == {"running", "waiting", "kv_usage"}


def test_last_statistics_with_preemptions_are_kept():
    preempting = STATS.format(1, 5, 9).replace(", GPU KV", ", Preemptions: 3, GPU KV")
    excerpt = scan(f"{preempting}\n{ORDINARY}\n")
    assert [item["line"] for item in excerpt["notes"]] == [1, 482]
    assert {item["value"] for item in excerpt["numbers"] if item["name"] == "preemptions"} == {3}


def test_numbers_carry_rank_and_repeat_once():
    log = (
        "(VllmWorker rank=0 pid=1) INFO 07-28 23:02:27 [gpu_worker.py:255] Available KV cache memory: 18.83 GiB\n"
        "(VllmWorker rank=1 pid=2) INFO 07-28 23:02:27 [gpu_worker.py:255] Available KV cache memory: 17.83 GiB\n"
        "(VllmWorker rank=1 pid=2) INFO 07-28 23:02:27 [gpu_worker.py:255] Available KV cache memory: 17.83 GiB\n"
    )
    numbers = scan(log)["numbers"]
    assert [(item["rank"], item["name"], item["value"], item["unit"]) for item in numbers] == [
        (0, "kv_available", round(18.83 * 2**30), "bytes"),
        (1, "kv_available", round(17.83 * 2**30), "bytes"),
    ]


def test_equal_errors_are_counted_once():
    excerpt = scan("".join(f"ERROR 01-01 00:00:00 [a.py:{n}] request {n} failed\n" for n in range(5000)))
    assert [(item["line"], item["count"]) for item in excerpt["errors"]] == [(1, 5000)]


def test_errors_of_different_requests_are_one():
    ids = [
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "deadbeefcafe00112233445566778899",
        "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    ]
    excerpt = scan("".join(f"ERROR 01-01 00:00:00 [a.py:1] request chatcmpl-{one} failed\n" for one in ids))
    assert [(item["line"], item["count"]) for item in excerpt["errors"]] == [(1, 3)]


def test_a_flood_of_different_errors_leaves_room_for_a_late_out_of_memory():
    # Words, not digits: each is a shape of its own.
    flood = "".join(
        f"ERROR 01-01 00:00:00 [a.py:1] bad {chr(97 + n % 26)}{chr(97 + n // 26)}\n" for n in range(200)
    )
    excerpt = scan(f"{flood}{OOM}\n")
    assert texts(excerpt["errors"])[0] == "bad aa"
    assert OOM in texts(excerpt["errors"])
    assert any("more errors" in cut for cut in excerpt["cut"])


def test_tail_is_the_last_lines_within_its_share():
    excerpt = scan("".join(f"line {n} {'word ' * 30}\n" for n in range(1000)))
    assert [item["line"] for item in excerpt["tail"]][-1] == 1000
    assert len(json.dumps(excerpt["tail"])) < 16 * 1024
    assert any(cut.startswith("tail:") for cut in excerpt["cut"])
    short = scan("".join(f"line {n}\n" for n in range(1000)), limits={"tail_bytes": 1 << 20})
    assert [item["line"] for item in short["tail"]] == list(range(901, 1001))


def test_counts_and_an_unfinished_last_line():
    excerpt = scan("one\ntwo\nthree")
    assert (excerpt["lines"], excerpt["bytes"]) == (3, 13)
    assert texts(excerpt["tail"]) == ["one", "two", "three"]


def test_empty_log():
    excerpt = LogScanner().close()
    assert (excerpt["lines"], excerpt["bytes"], excerpt["tail"], excerpt["first_error"]) == (0, 0, [], None)
    assert set(documents.log()) <= set(excerpt)
    assert excerpt["readable"] is True


def test_progress_bars_with_carriage_returns():
    progress = "".join(
        f"\rCapturing CUDA graph shapes:  {n}%|#| {n}/35 [00:01<00:16,  1.96it/s]" for n in range(36)
    )
    excerpt = scan(f"x\n{progress}\r\n(Worker_TP0 pid=3) half a bar\r(Worker_TP0 pid=3) {OOM}\n")
    assert excerpt["markers"][0]["text"].startswith("Capturing CUDA graph shapes:  35%")
    assert [item["line"] for item in excerpt["errors"]] == [3]
    assert excerpt["errors"][0]["process"] == "Worker_TP0"


def test_broken_utf8_and_zero_bytes():
    excerpt = scan(b"\xff\xfe\x00bad\n\xc3(RuntimeError: x\nRuntimeError: \xff\xff died\n")
    assert [item["line"] for item in excerpt["errors"]] == [2, 3]


def test_a_line_of_ten_megabytes_is_cut_and_said_so():
    scanner = LogScanner()
    scanner.feed(b"RuntimeError: ")
    for _chunk in range(160):
        scanner.feed(b"x" * 65536)
    scanner.feed(b" end\nValueError: after\n")
    excerpt = scanner.close()
    assert [item["line"] for item in excerpt["errors"]] == [1, 2]
    assert len(excerpt["errors"][0]["text"]) < 3000
    assert any(cut.startswith("line 1:") for cut in excerpt["cut"])
    assert excerpt["bytes"] == 160 * 65536 + len(b"RuntimeError:  end\nValueError: after\n")


def test_lines_split_by_the_container_runtime_are_joined():
    stamp = "2026-01-01T00:00:00.123456789Z"
    log = (
        f"{stamp} stdout F first\n{stamp} stderr P torch.OutOfMemory\n{stamp} stdout F between\n"
        f"{stamp} stderr F Error: CUDA out of memory.\n"
    )
    excerpt = scan(log)
    assert [(item["line"], item["text"]) for item in excerpt["errors"]] == [
        (2, "torch.OutOfMemoryError: CUDA out of memory.")
    ]
    assert excerpt["first_time"] == stamp
    unfinished = scan(f"{stamp} stdout F first\n{stamp} stderr P RuntimeError: the rest never came")
    assert [item["line"] for item in unfinished["errors"]] == [2]
    assert texts(unfinished["tail"]) == ["first"]
    docker = "".join(
        json.dumps({"log": piece, "stream": "stderr", "time": stamp}, separators=(",", ":")) + "\n"
        for piece in ("start\n", "ValueError: No available", " memory for the cache blocks.\n")
    )
    assert texts(scan(docker)["errors"]) == ["ValueError: No available memory for the cache blocks."]


def test_a_json_record_with_a_traceback():
    record = {
        "message": "EngineCore failed to start.",
        "level": "ERROR",
        "exc_info": f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{OOM}',
    }
    errors = scan(json.dumps(record) + "\n")["errors"]
    assert texts(errors) == ["EngineCore failed to start.", OOM]
    assert errors[1]["frames"] == [{"file": "a.py", "line": 1, "function": "f"}]


def test_users_text_never_reaches_an_excerpt():
    log = (
        "INFO 07-28 23:02:27 [logger.py:41] Received request chatcmpl-1: prompt: 'my secret memory error plan', params: "
        "SamplingParams(n=1), prompt_token_ids: None, lora_request: None.\n"
        "(EngineCore pid=3) ERROR 04-23 21:09:12 [dump_input.py:79] Dumping scheduler output for model execution: "
        "SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=chatcmpl-1,prompt_token_ids=[4711, 4712],"
        "sampling_params=SamplingParams(n=1, stop=['my secret stop']))], total_num_scheduled_tokens=5)\n"
        '(APIServer pid=1) INFO:     10.0.0.1:4 - "GET /v1/models?user=my-secret-user HTTP/1.1" 500 Internal Server Error\n'
        "RuntimeError: x --api-key my-secret-key\n"
    )
    shown = json.dumps(scan(log))
    assert "secret" not in shown
    assert "4711" not in shown
    assert "total_num_scheduled_tokens=5" in shown


def test_a_line_is_whole_in_one_list_only():
    frame = '  File "/usr/lib/python3.12/site-packages/vllm/worker.py", line 10, in load_model'
    lines = [
        "INFO 11-24 07:10:31 [worker.py:1] vLLM API server version 0.10.2",
        "an ordinary line",
        "Traceback (most recent call last):",
        frame,
        "    self.model = get_model(pin_memory=True)",
        "                 ^^^^^^^^^^^^^^^^^^^^^^^^^^",
        OOM,
    ]
    excerpt = scan("\n".join(lines))
    assert excerpt["errors"][0]["frames"] == [
        {"file": "vllm/worker.py", "line": 10, "function": "load_model"}
    ]
    assert texts(excerpt["tail"]) == [lines[1], lines[2], lines[4]]
    assert excerpt["first_error"]["text"] == OOM
    assert [item["line"] for item in excerpt["first_error"]["context"]] == [1, 2]
    assert texts(excerpt["errors"]) == [OOM]
    assert all(len(text) < 80 < len(OOM) for text in texts(excerpt["numbers"]))
    whole = documents.log_lines(excerpt)
    assert [item["line"] for item in whole] == [1, 2, 3, 5, 7]
    assert whole[0]["text"] == "vLLM API server version 0.10.2"
    assert (whole[-1]["text"], whole[-1]["frames"]) == (OOM, excerpt["errors"][0]["frames"])


def test_a_private_key_after_a_kept_line():
    key = (
        "-----BEGIN RSA PRIVATE KEY----- CUDA out of memory\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"
    )
    excerpt = scan(f"before\n{key}\nafter\n")
    assert texts(excerpt["tail"])[-3:] == ["***", "***", "after"]
    assert "MIIEp" not in json.dumps(excerpt)


def test_a_private_key_in_the_tail():
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nshortend\n-----END RSA PRIVATE KEY-----"
    excerpt = scan(f"before\n{key}\nafter\n")
    assert texts(excerpt["tail"]) == ["before", "***", "***", "***", "***", "after"]


LOG = f"""\
INFO 11-30 08:00:00 [__init__.py:1] Automatically detected platform cuda.
{ORDINARY}
(EngineCore_DP0 pid=3) ERROR 11-30 08:00:01 [core.py:1] Traceback (most recent call last):
(EngineCore_DP0 pid=3) ERROR 11-30 08:00:01 [core.py:1]   File "a.py", line 1, in f
(EngineCore_DP0 pid=3) ERROR 11-30 08:00:01 [core.py:1] {OOM}
{ORDINARY}
WARNING 11-30 08:00:02 [x.py:1] swap space
last words""".encode()
WHOLE = scan(LOG)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(LOG)), max_size=12))
def test_the_excerpt_does_not_depend_on_how_the_log_arrives(cuts):
    scanner, at = LogScanner(), 0
    for cut in [*sorted(cuts), len(LOG)]:
        scanner.feed(LOG[at:cut])
        at = cut
    assert scanner.close() == WHOLE


def test_small_chunks_give_the_same_excerpt():
    assert scan(LOG, size=7) == WHOLE


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read(data):
    excerpt = scan(data)
    assert excerpt["bytes"] == len(data)
    json.dumps(excerpt)


@pytest.mark.parametrize(
    ("first", "started", "complete"),
    [
        ("2026-01-01T00:00:04.5Z", "2026-01-01T00:00:00Z", True),
        ("2026-01-01T00:00:06Z", "2026-01-01T00:00:00Z", False),
        ("2026-01-01T01:00:03.123456789+01:00", "2026-01-01T00:00:00Z", True),
        ("01-01 00:00:03", "2026-01-01T00:00:00Z", True),
        ("01-01 00:07:03", "2026-01-01T00:00:00Z", None),
        ("2026-01-01T00:00:04Z", None, None),
        (None, "2026-01-01T00:00:00Z", None),
        ("nonsense", "2026-01-01T00:00:00Z", None),
        ("02-30 00:00:00", "2026-01-01T00:00:00Z", None),
    ],
)
def test_completeness(first, started, complete):
    assert completeness(dict(documents.log(), first_time=first), started) is complete


@pytest.mark.parametrize(("line", "complete"), [(3, True), (400, False)])
def test_an_early_version_line_shows_a_whole_log(line, complete):
    arguments = [documents.line(line, "vLLM API server version 0.11.0")]
    excerpt = dict(documents.log(), first_time="2026-01-01T00:00:40Z", arguments=arguments)
    assert completeness(excerpt, "2026-01-01T00:00:00Z") is complete


def test_completeness_of_an_unread_log_is_unknown():
    excerpt = dict(documents.log(readable=False), first_time="2026-01-01T00:00:00Z")
    assert completeness(excerpt, "2026-01-01T00:00:00Z") is None
