# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a log as a stream and keep what a diagnosis needs: an excerpt, see ``documents.log``.

Most of a serving log is access lines and periodic statistics. Those are set aside by two byte
comparisons a line; of the rest only lines with a word of interest are looked at closely, and whole
blocks without one are never decoded. Memory stays flat: a block, a few hundred remembered lines and the excerpt.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
from collections import deque
from datetime import datetime, timedelta, timezone
from itertools import dropwhile, islice

from ..documents import line, log
from ..times import parse_time, read_stamp
from .log_lines import cri_piece, parse, rank_of, segments
from .log_numbers import numbers_in
from .nccl_log import INFO as NCCL_INFO
from .nccl_log import info as nccl_info
from .redact import MASK, Redactor

# How much of each kind an excerpt holds (entries, lines, or bytes of JSON for the tail; characters for texts).
LIMITS = {
    "errors": 40,
    "notes": 40,
    "markers": 60,
    "numbers": 80,
    "arguments": 40,
    "nccl": 32,
    "tail_lines": 100,
    "tail_bytes": 12 * 1024,
    "text": 2000,
    "argument_text": 12 * 1024,
    "short_text": 400,
    "repeated_text": 40,
    "frames": 12,
    "context": 5,
}
_RESERVED = (
    10  # of errors and notes: kept for lines that name memory or a death, so that noise can't fill the list
)
_BLOCK = 256 * 1024
_LINE_BYTES = 64 * 1024  # of a longer line the beginning is kept, and this much more of its end
_LINE_END_BYTES = 8 * 1024
_REMEMBERED_LINES = 400
_REMEMBERED_BYTES = 1024 * 1024
_LOOK_BACK = 120  # lines searched for an error's context
_OPEN_TRACES = 64
_TRACE_PATIENCE = 50  # other lines of its process after which an unfinished traceback is given up
_TRACE_LINES = 5000  # the same in lines of the log

# Ordinary lines of a serving engine (uvicorn's access lines; vllm-memory section 4.7).
_ACCESS_END = b" 200 OK"
_STATS = b"generation throughput: "
_STATS_AFTER = 30  # it never begins earlier in its line
_PREEMPTIONS = b"Preemptions: "
_REQUEST_RECORD = re.compile(rb"(?:Received|Added|Finished|Aborted|Aborting) request ")
_REQUEST_WITHIN = 200
_KNOWN_LINES = 4096
_KNOWN_BYTES = 1024

# A line without any of these (in lower case) is not decoded. Word stems, so that few searches find many words.
_INTEREST = (
    b"error", b"warn", b"critical", b"fatal", b"exception", b"traceback", b'  file "', b"interrupt", b"memory",
    b"oom", b"gib", b"mib", b" gb", b"gi ", b"nccl", b"shm", b"swap", b"mmap", b"kill", b"died", b"dead",
    b"signal", b"sig", b"seg", b"dump", b"abort", b"bad_alloc", b"terminat", b"exit", b"cache", b"block", b"cuda",
    b"nvml", b"nvrm", b"xid", b"mig", b"max_", b"max ", b"concurren", b"padding", b"encounter", b"data buffer",
    b"cpu_bytes", b"scheduler", b"preempt", b"too l", b"exceed", b"context", b"slots", b"version", b"args",
    b"llm engine", b"model", b"load", b"platform", b"data type", b"graph", b"compil", b"dynamo", b"warm",
    b"profil", b"encoder", b"startup", b"shut", b"server", b"took", b"gracefully", b"space", b"limit", b"throttl",
    b"cpu.", b"pids", b"thread", b"cannot", b"can't", b"fail", b"unavailable", b"insufficient", b"exhausted",
    b"offload", b"pinned", b"cgroup", b"reduce", b"symm", b"sleep", b"awake", b"wake_up", b"executor",
    b"background", b"didn't", b"timed out", b"no available", b"not running", b"evicted", b"probe", b"hbm",
    b"worker", b"process", b"mooncake", b"workspace", b"ipc_", b"backend", b"vllm", b"anon", b"mem", b"  model",
    b"invoked", b"reaped", b"prefetch", b"pool",
)  # fmt: skip

_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)",(?: line (?P<line>\d{1,9}),)? in (?P<function>.+)')
# What stands before a package's own path says nothing.
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_TRACEBACK = "Traceback (most recent call last)"
_CHAIN = re.compile(r"(?:During handling of the above exception|The above exception was the direct cause)")
_GROUPED = re.compile(r"\s*\| ?(?P<text>.*)|\s*\+-+.*")
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|ExceptionGroup|OutOfResources|Timeout|Failure)(?::|$)"
)
_NAME_AND_COLON = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: |:?$)")
_INNER_EXCEPTION = re.compile(r"\b(?:[A-Za-z_]\w*\.){0,12}[A-Z]\w*(?:Error|Exception): ")
_PYDANTIC = re.compile(r"\s+(?:Value error|Assertion failed), ")

# Texts that are an error whoever printed them: out of memory (torch, driver, NCCL, kernel, Ray, XLA), deaths, raw signals.
_FATAL_WORDS = (
    "ut of memory", "ut Of Memory", "utOfMemory", "oom-kill", "oom_kill", "OOM kill", "OOM Kill",
    "memory pressure", "low on memory", "memory usage threshold", "RESOURCE_EXHAUSTED", "NV_ERR_", "bad_alloc",
    "annot allocate memory", "can't allocate memory", "No space left on device",
    "Resource temporarily unavailable", "can't start new thread", "Cuda failure", "CUDA error", "CUDA Error",
    "CUDA failure", "CUDA driver error", "HIP error", "CUBLAS_STATUS_", "CUDNN_STATUS_", "NCCL error",
    "unhandled cuda error", "unhandled system error", "Failed to CUDA", "failed to extend", "INTERNAL ASSERT",
    " died", "killed", "Killed", "Kill process", "Bus error", "egmentation fault", "egfault",
    "Fatal Python error", "core dumped", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL",
    "terminate called", "Evicted", "NVRM: Xid", "fallen off the bus", "atchdog caught", "NVML_SUCCESS",
    "Failed to initialize NVML", "error: unrecognized", "error: argument", "error: the following", "nvcc fatal",
    "ninja: build stopped", "Insufficient space in",
)  # fmt: skip
# Advice on a normal start that speaks of memory running out (vllm-memory 3.21): never an error.
_ADVICE_WORDS = (
    "If you are running out of memory",
    "If out-of-memory error occurs",
    "may cause out-of-memory",
    "may cause OOM",
    "may causeOOM",
)
# Lines that matter and are no errors: memory, caches, processes, pressure, slots, pasted output of kubectl, cgroup files, free.
_NOTE_WORDS = (
    "emory", "GiB", "MiB", " GB", "Gi ", "OOM", "oom", "swap", "Swap", "shm", "mmap", "KV cache", "kv cache",
    "KV Cache", "kv_cache", "KVCACHE", "cache blocks", " blocks", " block ", "cuMem", "cumem", "CuMem", "inned",
    "ffload", "cgroup", "NVLS", "NVML", "MIG ", "Xid", "reempt", "slots", "LoRA rank", "max_cpu_loras",
    "too long", "exceeds", "max_num_", "max_model_len", "max_tokens", "context length", "udagraph", "CUDA graph",
    "CUDAGraph", "llreduce", "ll-reduce", "llReduce", "ll Reduce", "SymmMem", "Workspace", "MORI_", " died",
    "Kill", "kill", "dead", "SIG", "erminat", "exit code", "exited", "Exit Code", "Reason:", "Last State",
    "didn't reply", "imed out", "not running", "loop is", "loop has", "ailed", "annot", "unavailable", "robe",
    "hrottl", "cpu.max", "Max locked", "pids", "EXHAUSTED", "autotuner", "sleep", "wake", "Parent process",
    "Shutting down", "shutting down", "NCCL_", "NCCL version", "startup plan", "refetch", "safetensors_load",
    "TokenSpeed", "exception", "encountered", "Sleep mode", "free up space", "_bytes_to_use", "Dumping scheduler",
    "HiSparse", "Engram", "Insufficient", "nsufficient", "Mooncake", "MemAvailable", "SwapTotal", "anon", "shmem",
)  # fmt: skip
_WEIGHTY_WORDS = (
    "emory", "GiB", "MiB", "swap", "shm", "kv_cache", "KV cache", "KVCACHE", "blocks", "oom", "OOM", "reempt",
    "illed", "died", "mmap", "ffload", "NCCL", "cgroup", "inned", "max_num_seqs", "slots", "llreduce", "SIG",
)  # fmt: skip
_NUMBER_WORDS = (
    "GiB", "Gib", "GB", "MiB", "tokens", "blocks", "reqs", "memory", "num_gpu_blocks", "KVCACHE", "parameters",
    "utilization", "preemption",
)  # fmt: skip

# Version, platform, model and argument lines (vllm-memory 1.1).
_ARGUMENT = re.compile(
    r"vLLM (?:API )?server version|^[^\w]*[█▄▀▝▘▗▖▐▌ ](?:version|model) +\S|\bLLM engine \(v|LLM engine with config:|non-default args:|"
    r"args: Namespace\(|Using max model len|Chunked prefill is enabled|data type to store kv cache|Setting attention block size|"
    r"Padding mamba page size|Automatically detected platform|V2 [Mm]odel [Rr]unner|Model Runner V2|Resolved architecture|"
    r"vLLM is using nccl|Defaulting to use (?:mp|ray|uni)|Using \S+ (?:attention )?backend|Maximum number of tokens in a batch"
)

# The phase that runs from a line on (vllm-memory section 2), both engines. The first row that matches wins.
_MARKERS = tuple(
    (marker, phase, re.compile(pattern))
    for marker, phase, pattern in (
        (
            "shutdown_asked",
            "shutdown",
            r"\[shutdown\].*signal|KeyboardInterrupt: terminated|[Rr]eceived (?:SIGTERM|SIGINT|signal)|Launcher task cancelled",
        ),
        (
            "shutdown",
            "shutdown",
            r"^Shutting down|Waiting for application shutdown|Application shutdown complete|Finished server process|\[shutdown\]|"
            r"Gracefully stopping|Waiting for (?:connections|background tasks) to",
        ),
        ("server_version", "load", r"vLLM (?:API )?server version"),
        ("engine_start", "load", r"Initializing an? (?:V\d )?LLM engine"),
        ("load_start", "load", r"Starting to load model"),
        (
            "load_progress",
            "load",
            r"Loading (?:safetensors|pt|bin|checkpoint)\S* (?:checkpoint )?(?:shards|using)",
        ),
        ("weights_read", "load", r"Loading weights took"),
        ("model_loaded", "profile", r"(?:Model loading|Loading model weights) took"),
        (
            "encoder_cache",
            "profile",
            r"Encoder cache will be initialized|Starting profile run for multi-modal",
        ),
        (
            "compile",
            "profile",
            r"Dynamo bytecode transform time|torch\.compile (?:takes|took)|Compiling a graph for|Initial profiling/warmup run took",
        ),
        ("graph_profile", "profile", r"^Profiling CUDA graph memory|Estimated CUDA graph memory"),
        (
            "memory_profiled",
            "kv_init",
            r"Available KV cache memory|Memory profiling (?:takes|results)|Applying persisted startup plan|"
            r"for KV Cache as specified by kv_cache_memory_bytes",
        ),
        ("kv_sized", "graph_capture", r"KV cache size: [\d,]+ tokens|# \w+ blocks: \d+"),
        (
            "capture",
            "graph_capture",
            r"Capturing (?:CUDA ?[Gg]raphs?|cudagraphs|the model for CUDA graphs)",
        ),
        ("captured", "warmup", r"^Graph capturing finished"),
        (
            "engine_ready",
            "warmup",
            r"init engine \(profile, create kv cache, warmup model\) took|on startup\. Desired GPU memory utilization",
        ),
        (
            "server_start",
            "warmup",
            r"Starting vLLM (?:API )?server|Started server process|Waiting for application startup",
        ),
        ("serving", "serving", r"Application startup complete|Uvicorn running on"),
    )
)

_DIGITS = b"0123456789"
_HEXADECIMAL = re.compile(rb"0x[0-9a-fA-F]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,12})*")
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,12})*|\d+")
_SHAPE_CHARACTERS = 400
# Of a message, how much is searched for what vLLM prints: longer ones hold users' text, which could make a search slow.
_PATTERN_CHARACTERS = 4096
_PEM_BEGIN, _PEM_END = "-----BEGIN ", "-----END "


# A version line this early shows that the log begins where the engine began.
_FIRST_LINES = 20


def completeness(excerpt, started_at):
    """Whether the excerpt's log reaches back to the attempt's start: first line no later than 5 s after it, or vLLM's
    version line among the first lines (importing Python, torch and vLLM takes longer than 5 s by itself).

    excerpt: from ``LogScanner.close``; started_at: RFC 3339 or None. None when either time is unknown. vLLM's
    own stamps have neither year nor time zone: they can confirm, but never deny.
    """
    if any(line["line"] <= _FIRST_LINES and "version" in line["text"] for line in excerpt["arguments"]):
        return True
    start = _time(started_at)
    printed = excerpt.get("first_time")
    if start is None or not printed or not excerpt.get("readable"):
        return None
    first = _time(printed)
    if first is not None:
        return first <= start + timedelta(seconds=5)
    own = re.fullmatch(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)?", printed)
    if not own:
        return None
    month, day, hour, minute, second = map(int, own.groups())
    try:
        first = datetime(start.year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return True if timedelta(seconds=-1) <= first - start <= timedelta(seconds=5) else None


def _time(text):
    """A time with a written zone as an aware datetime, or None: without one it may be any clock's."""
    stamp = read_stamp(text)
    return parse_time(text) if stamp and stamp.zoned else None


class LogScanner:
    """Takes a log in pieces of any size and makes its excerpt.

    redactor: a ``redact.Redactor`` shared by everything that goes into one document, or None for an own one.
    limits: overrides of ``LIMITS``.
    """

    def __init__(self, redactor=None, limits=None):
        self._redactor = redactor or Redactor()
        self._limits = dict(LIMITS, **(limits or {}))
        self._rest = b""
        self._rest_dropped = 0
        self._bytes = 0
        self._lines = 0
        self._history: deque[_Block] = deque()  # of _Block
        self._history_lines = 0
        self._history_bytes = 0
        self._pieces = None
        self._first_time = None
        self._serving_seen = False
        self._last_stats = None
        self._last_preempting = None
        self._traces = {}
        self._known_lines: dict = {}  # line without its digits -> the entry that counts it, or None
        self._known_shapes: dict = {}  # the same without long hexadecimal ids
        self._counters, self._unique = (
            [],
            False,
        )  # what the line in work did: entries that count it, anything else
        self._kept: dict[str, list[dict]] = {
            "errors": [],
            "notes": [],
            "markers": [],
            "numbers": [],
            "arguments": [],
        }
        self._nccl: dict = {}  # (kind, key) -> the entry of NCCL's own report
        self._nccl_rank = None  # the process of which each line is kept
        self._shapes = {}
        self._seen_numbers = set()
        self._marker_counts = {}
        self._dropped = {}
        self._cut = []

    def feed(self, chunk):
        """Take the next bytes of the log."""
        for start in range(0, len(chunk), _BLOCK):
            self._take(chunk[start : start + _BLOCK])

    def close(self):
        """Finish the log and return its excerpt (``documents.log`` plus ``first_time``)."""
        if self._rest:
            last = self._end_rest()
            self._scan([last], last)
        for number, raw in self._pieces.rest() if self._pieces is not None else ():
            self._line(number, raw)
        if self._last_preempting:
            self._statistics(*self._last_preempting)
        if self._last_stats:
            self._statistics(*self._last_stats[0].line_at(self._last_stats[1]))
        self._kept["notes"] += self._nccl.values()
        excerpt = log(readable=True)
        excerpt.update(self._kept)
        for items in self._kept.values():
            items.sort(key=lambda item: item["line"])
        excerpt["first_error"] = _first_of(excerpt["errors"])
        excerpt["tail"] = self._tail()
        self._say_once(excerpt)
        excerpt["lines"], excerpt["bytes"] = self._lines, self._bytes
        excerpt["first_time"] = self._first_time
        excerpt["cut"] = self._cut + [
            f"{count} more {field} beyond the first {self._limits[field]}"
            for field, count in sorted(self._dropped.items())
        ]
        return excerpt

    # Blocks and lines

    def _take(self, data):
        self._bytes += len(data)
        lines = data.split(b"\n")
        if len(lines) == 1:
            self._grow_rest(data)
            return
        if self._rest_dropped:
            self._grow_rest(lines[0])
            lines[0] = b""
        head = self._end_rest()
        lines[0] = head + lines[0]
        self._rest = lines.pop()
        self._scan(lines, data)

    def _grow_rest(self, data):
        self._rest += data
        if len(self._rest) > 2 * _LINE_BYTES:
            self._rest_dropped += len(self._rest) - _LINE_BYTES - _LINE_END_BYTES
            self._rest = self._rest[:_LINE_BYTES] + self._rest[-_LINE_END_BYTES:]

    def _end_rest(self):
        rest, self._rest = self._rest, b""
        if self._rest_dropped:
            self._cut.append(f"line {self._lines + 1}: {self._rest_dropped} bytes of its middle")
            self._rest_dropped = 0
        return rest

    def _scan(self, lines, data):
        """Scan whole lines. data: what they were split from, without the first line's beginning."""
        access, stats, preemptions, after = _ACCESS_END, _STATS, _PREEMPTIONS, _STATS_AFTER
        # bytes.find is quicker than ``in``; the loop's cost is that of the whole scan.
        odd = [
            raw
            for raw in lines
            if raw[-7:] != access and (raw.find(stats, after) < 0 or raw.find(preemptions, after) >= 0)
        ]
        start = self._lines + 1
        self._lines += len(lines)
        for key in [key for key, trace in self._traces.items() if trace["start"] < start - _TRACE_LINES]:
            del self._traces[key]
        block = _Block(start, lines[0], data, len(lines))
        self._remember(block)
        if start == 1:
            self._look_at_first_lines(lines)
        at = 0
        for raw in odd:
            at = lines.index(raw, at)
            self._odd_line(start + at, raw)
            at += 1
        if len(odd) < len(lines):
            self._look_at_ordinary(block, len(data) - len(self._rest))

    def _odd_line(self, number, raw):
        if _is_request(raw):
            return
        if self._pieces is not None:
            united = self._pieces.add(number, raw)
            if united is None:
                return
            number, raw = united
        # Lines that differ in digits or long hexadecimal ids only are looked at once: then they are dull, or counted.
        shape = raw.translate(None, _DIGITS)
        known = self._known_lines.get(shape, self)
        if known is self:
            rougher = _HEXADECIMAL.sub(b"", raw).translate(None, _DIGITS)
            known, is_new = self._known_shapes.get(rougher, self), False
            if known is self:
                known, is_new = self._new_line(number, raw), True
                if known is self:
                    return
                _remember_in(self._known_shapes, rougher, known)
            _remember_in(self._known_lines, shape, known)
            if is_new:
                return
        if known is not None:
            known["count"] += 1

    def _new_line(self, number, raw):
        """What lines of this shape are from now on: an entry that counts them, None for dull ones, or self for neither."""
        if not self._traces and not _is_interesting(raw):
            return None
        self._counters, self._unique = [], False
        self._line(number, raw)
        if self._unique:
            return self
        return self._counters[0] if self._counters else None

    def _look_at_first_lines(self, lines):
        for raw in lines[:20]:
            stamp = parse(_decode(raw))["time"]
            if stamp:
                self._first_time = stamp
                break
        if _is_runtime_format(lines[0]):
            self._pieces = _Pieces()

    def _remember(self, block):
        self._history.append(block)
        self._history_lines += block.count
        self._history_bytes += len(block.data)
        while len(self._history) > 1 and (
            self._history_lines - self._history[0].count >= _REMEMBERED_LINES
            or self._history_bytes > _REMEMBERED_BYTES
        ):
            gone = self._history.popleft()
            self._history_lines -= gone.count
            self._history_bytes -= len(gone.data)

    def _look_at_ordinary(self, block, end):
        """The first served request ends the start-up if its own mark wasn't seen; the last statistics are kept."""
        if not self._serving_seen:
            for index, raw in enumerate(block.lines()):
                if _is_ordinary(raw):
                    self._mark("request_served", "serving", block.start + index, parse(_decode(raw)))
                    break
        at = block.data.rfind(_STATS, 0, end)
        if at < 0 and _STATS in block.first:
            at = 0
        if at >= 0:
            self._last_stats = (block, at)

    def _line(self, number, raw):
        if _STATS in raw and _PREEMPTIONS in raw:
            self._last_preempting = (number, raw)
            return
        text = _decode(raw)
        pieces = [text]
        if "\r" in text.rstrip("\r"):
            pieces = segments(text)
            pieces = [piece for piece in pieces[:-1] if not _is_progress(piece)][:20] + pieces[-1:]
        messages = []
        for piece in pieces:
            parts = parse(piece)
            messages += [dict(parts, text=message) for message in parts["text"].split("\n")]
        self._unique = len(messages) != 1 or messages[0]["count"] != 1
        for parts in messages:
            if parts["text"].strip():
                self._message(number, parts)

    # One message

    def _message(self, number, parts):
        text = parts["text"]
        key = (parts["process"], parts["level"] is None)
        trace = self._traces.get(key)
        if trace:
            self._unique = True
            grouped = _GROUPED.match(text)
            if grouped:
                text = grouped.group("text") or ""
        at = text.find(_TRACEBACK)
        if at >= 0:
            if text[:at].strip():
                self._keep(number, dict(parts, text=text[:at].rstrip(" :")), [], number, False)
            self._open_trace(key, number)
            return
        frame = _FRAME.match(text)
        if frame:
            (trace or self._open_trace(key, number))["frames"].append(_frame(frame))
            return
        if _CHAIN.match(text) or not text.strip("^~ |+-"):
            return
        frames, start, ended = [], number, False
        if trace:
            if text[:1].isspace():
                return
            ended = _ends_trace(text)
            trace["patience"] -= 1
            if ended:
                frames, start = list(trace["frames"]), trace["start"]
            if ended or not trace["patience"]:
                del self._traces[key]
        self._keep(number, dict(parts, text=text), frames, start, ended)

    def _open_trace(self, key, number):
        self._unique = True
        if key not in self._traces and len(self._traces) >= _OPEN_TRACES:
            del self._traces[next(iter(self._traces))]
        trace = {
            "frames": deque(maxlen=self._limits["frames"]),
            "start": number,
            "patience": _TRACE_PATIENCE,
        }
        self._traces[key] = trace
        return trace

    def _keep(self, number, parts, frames, start, ended_trace):
        text, level = parts["text"], parts["level"]
        message = text.strip()
        if message.startswith(NCCL_INFO) and self._report_of_nccl(number, parts, message):
            return
        head = message[:_PATTERN_CHARACTERS]
        is_argument = bool(_ARGUMENT.search(head))
        if is_argument:
            self._add("arguments", self._entry(number, parts, message, "argument_text"))
        marker = next((row for row in _MARKERS if row[2].search(head)), None)
        if marker:
            self._mark(marker[0], marker[1], number, parts)
        numbers = numbers_in(head) if _has(head, _NUMBER_WORDS) else []
        for found in numbers:
            self._number(number, parts, message, found)
        self._unique = bool(self._unique or is_argument or marker or numbers)
        if ended_trace or _is_error(text, message, level):
            entry = self._distinct("errors", number, parts, message, _has(message, _FATAL_WORDS))
            if entry is not None:
                entry["frames"] = frames
                entry["context"] = self._context(start, parts["process"])
        elif not (is_argument or marker or numbers) and (
            level in ("WARNING", "ERROR", "CRITICAL")
            or _has(message, _NOTE_WORDS)
            or _has(message, _FATAL_WORDS)
        ):
            self._distinct("notes", number, parts, message, _has(message, _WEIGHTY_WORDS))

    def _report_of_nccl(self, number, parts, message):
        """Keep an INFO line of NCCL that tells of communicators, transports or sizes, beside the notes; whether it is one.

        A start prints thousands of them: of one rank each is kept or summed up, of all ranks each kind once, counted.
        """
        found = nccl_info(message[:_PATTERN_CHARACTERS])
        if found is None:
            return False
        self._unique = self._unique or found.distinct
        if found.one_rank:
            self._nccl_rank = self._nccl_rank or (parts["process"],)
            if self._nccl_rank != (parts["process"],):
                return True
        key = (found.kind, found.key)
        entry = self._nccl.get(key)
        if entry is not None:
            entry["count"] += parts["count"]
            if found.size is not None:
                entry["bytes"] += found.size
            self._counters.append(entry)
        elif len(self._nccl) < self._limits["nccl"]:
            entry = self._entry(number, parts, message, "short_text")
            if found.size is not None:
                entry["bytes"] = found.size
            self._nccl[key] = entry
            self._counters.append(entry)
        else:
            self._dropped["nccl"] = self._dropped.get("nccl", 0) + 1
        return True

    def _mark(self, marker, phase, number, parts):
        if phase == "serving":
            self._serving_seen = True
        times = self._marker_counts.get((marker, parts["process"]), 0)
        self._marker_counts[(marker, parts["process"])] = times + 1
        if times < 2:
            self._add(
                "markers",
                dict(
                    self._entry(number, parts, parts["text"].strip(), "short_text"),
                    marker=marker,
                    phase=phase,
                ),
            )

    def _number(self, number, parts, message, found):
        rank = rank_of(parts["process"])
        key = (found["name"], found["value"], rank)
        if key in self._seen_numbers:
            return
        self._seen_numbers.add(key)
        self._add("numbers", dict(self._entry(number, parts, message, "short_text"), rank=rank, **found))

    def _statistics(self, number, raw):
        parts = parse(_decode(raw))
        message = parts["text"].strip()
        for found in numbers_in(message[:_PATTERN_CHARACTERS]):
            self._number(number, parts, message, found)
        if all(item["line"] != number for item in self._kept["notes"]):
            self._kept["notes"].append(self._entry(number, parts, message, "short_text"))

    def _distinct(self, field, number, parts, message, weighty):
        """Keep a message of a new shape (digits ignored); of a known one count it. The new entry, or None."""
        shape = (field, _VARYING.sub("#", message[:_SHAPE_CHARACTERS]))
        known = self._shapes.get(shape)
        if known is not None:
            known["count"] += parts["count"]
            self._counters.append(known)
            return None
        room = self._limits[field] - len(self._kept[field])
        if room <= 0 or (not weighty and room <= _RESERVED):
            self._dropped[field] = self._dropped.get(field, 0) + 1
            return None
        entry = self._entry(number, parts, message, "text")
        self._shapes[shape] = entry
        self._counters.append(entry)
        self._kept[field].append(entry)
        return entry

    def _add(self, field, entry):
        if len(self._kept[field]) < self._limits[field]:
            self._kept[field].append(entry)
        else:
            self._dropped[field] = self._dropped.get(field, 0) + 1

    def _entry(self, number, parts, message, limit):
        text = _shorten(self._redactor.text(message[: 2 * _LINE_BYTES]), self._limits[limit])
        return line(
            number, text, parts["time"], parts["process"], parts["level"], parts["origin"], parts["count"]
        )

    # Looking back

    def _before(self, number):
        """Raw lines before line ``number``, nearest first, as ``(number, bytes)``."""
        for block in reversed(self._history):
            lines = block.lines()
            for index in range(min(number - block.start, len(lines)) - 1, -1, -1):
                yield block.start + index, lines[index]

    def _context(self, number, process):
        found: list[dict] = []
        later = self._pieces.later if self._pieces is not None else ()
        for steps, (earlier, raw) in enumerate(self._before(number)):
            if steps >= _LOOK_BACK or len(found) >= self._limits["context"]:
                break
            if _is_ordinary(raw) or _is_request(raw) or earlier in later:
                continue
            parts = parse(_decode(raw))
            text = parts["text"]
            if process is not None and parts["process"] != process:
                continue
            if not text.strip() or text[:1].isspace() or _TRACEBACK in text or _CHAIN.match(text):
                continue
            found.append(self._entry(earlier, parts, text.split("\n")[0], "short_text"))
        return found[::-1]

    def _tail(self):
        raws = list(islice(self._before(self._lines + 1), self._limits["tail_lines"]))[::-1]
        if self._pieces is not None:
            joiner, later = _Pieces(), set(self._pieces.later)
            raws = list(dropwhile(lambda item: item[0] in later, raws))
            raws = [united for item in raws if (united := joiner.add(*item))] + joiner.rest()
        elsewhere = {item["line"] for items in self._kept.values() for item in items}
        frames = _KeptFrames(self._kept["errors"])
        entries, in_pem = [], False
        for number, raw in raws:
            parts = parse(_decode(raw))
            if not parts["text"].strip():
                continue
            masked = in_pem or _PEM_BEGIN in parts["text"]
            if masked:
                in_pem = _PEM_END not in parts["text"]
            if frames.hold(parts) or number in elsewhere:
                continue
            entry = self._entry(number, parts, parts["text"], "short_text")
            entries.append(dict(entry, text=MASK) if masked else entry)
        size = 0
        kept: list[dict] = []
        for entry in reversed(entries):
            size += len(json.dumps(entry, ensure_ascii=False))
            if kept and size > self._limits["tail_bytes"]:
                self._cut.append(f"tail: {len(entries) - len(kept)} of the last {len(entries)} lines")
                break
            kept.append(entry)
        return kept[::-1]

    def _say_once(self, excerpt):
        """Cut the text of a line that an excerpt holds several times, except in the list where it is whole."""
        whole: dict[int, str] = {}
        limit = self._limits["repeated_text"]

        def shorten(items):
            for item in items:
                text = whole.get(item["line"])
                if text is None:
                    whole[item["line"]] = item["text"]
                elif text[:limit] == item["text"][:limit] and len(item["text"]) > 2 * limit:
                    item["text"] = _shorten(item["text"], limit)

        for field in ("errors", "notes", "arguments", "numbers", "markers"):
            shorten(excerpt[field])
        if excerpt["first_error"]:
            shorten(excerpt["first_error"]["context"])
        for error in excerpt["errors"]:
            error["context"] = [near for near in error["context"] if near["line"] not in whole]
            shorten(error["context"])


class _KeptFrames:
    """The lines of tracebacks that errors keep as their ``frames``; the code shown under them is no part of these."""

    def __init__(self, errors):
        self._frames = [frame for error in errors for frame in error.get("frames") or []]
        self._under = set()  # processes in whose code the next line may point

    def hold(self, parts):
        """Whether the next line, in the order of the log, is one of these."""
        text, process = parts["text"], parts["process"]
        found = _FRAME.match(text)
        held = _frame(found) in self._frames if found else process in self._under and not text.strip("^~ ")
        if found:
            (self._under.add if held else self._under.discard)(process)
        return held


class _Block:
    """A scanned piece of the log, split into lines again only when somebody looks back at them."""

    def __init__(self, start, first, data, count):
        self.start, self.count = start, count
        self.first, self.data = first, data
        self._split = None

    def lines(self):
        if self._split is None:
            self._split = self.data.split(b"\n")[: self.count]
            self._split[0] = self.first
        return self._split

    def line_at(self, at):
        """``(number, raw)`` of the line that holds ``data[at]``."""
        index = self.data.count(b"\n", 0, at)
        return self.start + index, self.lines()[index]


class _Pieces:
    """Joins lines that a container runtime split: CRI's ``P`` lines, docker's records without a final newline."""

    def __init__(self):
        self._held: dict = {}
        self.later: deque[int] = deque(
            maxlen=_REMEMBERED_LINES
        )  # numbers of pieces that aren't their line's first

    def add(self, number, raw):
        """``(number of the first piece, whole line)``, or None while pieces are missing."""
        if not self._held and (raw.find(b" F ", 0, 60) >= 0 or raw.find(b'\\n","stream"') >= 0):
            return number, raw
        stream, whole, head, content = _piece(raw)
        held = self._held.pop(stream, None)
        if held:
            self.later.append(number)
            number, head, content = held[0], held[1], (held[2] + content)[: 2 * _LINE_BYTES]
        if not whole:
            self._held[stream] = (number, head, content)
            return None
        return number, head + content

    def rest(self):
        """Lines whose last piece never came."""
        rest = [(number, head + content) for number, head, content in self._held.values()]
        self._held = {}
        return sorted(rest)


def _is_runtime_format(raw):
    return raw.startswith(b'{"log":"') or cri_piece(raw[:100].decode("ascii", "replace")) is not None


def _piece(raw):
    """``(stream, whole, head, content)`` of one line of a runtime's log file."""
    if raw.startswith(b'{"log":"'):
        try:
            record = json.loads(raw)
            content, stream = str(record["log"]), str(record["stream"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None, True, b"", raw
        head = f"{record.get('time')} {stream} F ".encode()
        return stream, content.endswith("\n"), head, content.rstrip("\n").encode()
    found = cri_piece(raw[:100].decode("ascii", "replace"))
    if not found:
        return None, True, b"", raw
    flag, start = found
    return raw[:start].split(b" ")[1], flag == "F", raw[:start], raw[start:]


def _first_of(errors):
    """``first_error``, which takes its context over from the earliest of ``errors``."""
    if not errors:
        return None
    first = {name: errors[0][name] for name in ("line", "time", "process", "text")}
    context, errors[0]["context"] = errors[0].get("context") or [], []
    return dict(first, context=context)


def _decode(raw):
    return raw[: 2 * _LINE_BYTES].decode("utf-8", "replace")


def _is_ordinary(raw):
    return raw.endswith(_ACCESS_END) or _STATS in raw


def _remember_in(known, shape, entry):
    if len(shape) <= _KNOWN_BYTES:
        if len(known) >= _KNOWN_LINES:
            known.clear()
        known[shape] = entry


def _is_interesting(raw):
    lowered = raw.lower()
    for word in _INTEREST:  # noqa: SIM110 - a generator costs more than the searches
        if lowered.find(word) >= 0:
            return True
    return False


def _is_request(raw):
    at = raw.find(b" request ", 0, _REQUEST_WITHIN)
    return at >= 0 and _REQUEST_RECORD.search(raw, max(0, at - 12), at + 10) is not None


def _is_progress(piece):
    return "it/s]" in piece or "s/it]" in piece or "%|" in piece or "% Completed" in piece


def _frame(found):
    number = found.group("line")
    return {
        "file": _PACKAGES.sub("", found.group("file")),
        "line": int(number) if number else None,
        "function": found.group("function").strip(),
    }


def _ends_trace(text):
    """Whether a line is the exception that ends a traceback, and no other line of the process between."""
    found = _NAME_AND_COLON.match(text)
    if not found:
        return False
    return "." in found.group(1) or found.group(1) == text or bool(_EXCEPTION.match(text))


def _has(text, words):
    return any(word in text for word in words)


def _is_error(text, message, level):
    if _has(message, _ADVICE_WORDS):
        return False
    if level in ("ERROR", "CRITICAL"):
        return not text[:1].isspace()
    if level in ("INFO", "DEBUG"):
        return False
    if level == "WARNING":
        return message.startswith("NCCL WARN") and _has(message, _FATAL_WORDS)
    return bool(
        _EXCEPTION.match(message)
        or _has(message, _FATAL_WORDS)
        or message in ("Killed", "Aborted", "Aborted!")
        or _INNER_EXCEPTION.search(message)
        or _PYDANTIC.match(text)
    )


def _shorten(text, limit):
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
