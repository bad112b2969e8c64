# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The anatomy of one log line: which process said it, when, how loud, and the message itself.

Prefixes come in layers, outermost first: the container runtime's or kubectl's timestamp, a JSON record,
process tags (vLLM's ``(EngineCore_DP0 pid=N)``, Ray's ``(RayWorkerWrapper pid=N, ip=A)``, torchrun's
``[rank0]:``), and the logger's own prefix (vLLM of both eras, uvicorn, Ray, glog, NCCL, the kernel).
Forms: shared facts "vllm-memory", section 1; NCCL and kernel: "kubernetes-gpu-facts", sections 3 and 10.4.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re

_LEVELS = {
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "NOTICE": "INFO",
    "WARN": "WARNING",
    "WARNING": "WARNING",
    "ERR": "ERROR",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
    "CRITICAL": "CRITICAL",
    "CRIT": "CRITICAL",
    # glog, Ray C++
    "D": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
    "C": "CRITICAL",
}
_WORDS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_RFC3339 = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))"
    r"(?: (?:stdout|stderr) (?P<flag>[FP])(?= |$))?(?: |$)"
)
_KUBECTL_PREFIX = re.compile(r"\[pod/[^\s\]]+\] ?|[a-z0-9][\w.-]*-\d+\s+\| ")
_PROCESS_TAG = re.compile(
    r"\((?:(?P<name>[A-Za-z_][\w.:]*(?: [\w=]+)*?) ?)?(?<=[ (])pid=(?P<pid>\d+)(?:, ip=[\w.:-]+)?\)(?: |$)"
    r"|\((?P<daemon>raylet|gcs_server|autoscaler|scheduler)(?:[ ,][^)]*)?\)(?: |$)"
)
_RANK_TAG = re.compile(r"\[rank(?P<rank>\d+)\]:? ?")
_REPEATED = re.compile(r"\s*\[repeated (?P<count>\d{1,9})x across cluster\](?:\s*\(Ray deduplicates.*)?$")

# vLLM's prefix; a VLLM_LOGGING_PREFIX or an unfinished progress bar may stand before it.
_VLLM = re.compile(
    rf"(?P<level>{_WORDS}) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) "
    r"(?:\[(?P<origin>[^\]\s]+)\]|(?P<old_origin>[\w./<>-]+:\d+)\])(?: |$)"
)
_VLLM_AFTER = 160  # characters that may stand before vLLM's prefix

_NCCL_TIME = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?=\S+:\d+:\d+ \[)")

# Logger prefixes that stand at the line's start; the first that matches wins. A group ``keep`` stays in the text.
_LOGGERS = tuple(
    re.compile(pattern)
    for pattern in (
        # NCCL: host:pid:tid [device] file:line (function) NCCL WARN message
        r"(?P<process>[\w.-]+:\d+):\d+ \[\d+\] (?:(?P<origin>[\w./-]+:\d+)(?: \([^)]*\))? )?"
        r"(?P<keep>NCCL (?P<level>WARN|INFO|TRACE|ERROR) )",
        r"(?P<origin>[\w./-]+:\d+)(?: \([^)]*\))? (?P<keep>NCCL (?P<level>WARN) )",
        # the same vLLM prefix where somebody cut the time or the line number
        rf"(?P<level>{_WORDS}) (?:\d\d-\d\d \d\d:\d\d:\d\d )?\[?(?P<origin>[\w./<>-]+\.(?:py|pyx|cc|cpp|cu)(?::\d+)?)\](?: |$)",
        # Ray and the standard library: 2023-11-18 03:39:16,283 WARNING services.py:1996 -- message
        rf"\[?(?P<time>\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)\]?(?: [-|])? (?:[\w.]+ [-|] )?\[?(?P<level>{_WORDS})\]?"
        r"(?: +(?P<origin>[\w./<>-]+\.\w+:\d+))?(?: --| -| \||:)? +",
        # Ray's C++ part: [2023-08-25 00:42:40,265 E 5623 7733] logging.cc:97: message
        r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+) (?P<level>[DIWEFC]) \d+ \d+\] (?:\([\w.-]+\) )?"
        r"(?P<origin>[\w./-]+:\d+): ",
        # torch's glog: [W429 05:19:45.151525875 ProcessGroupNCCL.cpp:1496] message
        r"\[(?P<level>[EWIF]) ?(?:(?P<time>\d{3,4} \d\d:\d\d:\d\d(?:\.\d+)?) )?(?P<origin>[\w./-]+\.\w+:\d+)\] ?",
        # a device-sharing shim: [HAMI-core ERROR (utils.c:160)]: message
        rf"\[[\w-]+ (?P<level>{_WORDS}|Warn|Error|Info|Msg)(?:\((?:[^)]*)\)| \((?P<origin>[^)\s]+)\))?[^\]]*\]: ?",
        # kernel: syslog, journal, dmesg with seconds or with a date
        r"(?:(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) )?(?:[\w.-]+ )?(?P<process>kernel): (?:\[\s*\d+\.\d+\] ?)?",
        r"(?:<\d+>)?\[(?P<dmesg>\s*\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ",
        # uvicorn and plain levels
        rf"(?P<level>{_WORDS})(?::\s+|\s+)(?=\S)",
    )
)

_JSON_TEXT = ("message", "msg", "text", "event", "log", "body", "MESSAGE")
_JSON_LEVEL = ("level", "levelname", "severity", "lvl", "log.level")
_JSON_TIME = ("timestamp", "@timestamp", "time", "asctime", "ts")
_JSON_PROCESS = ("process", "process_name", "processName", "proc_name")
_JSON_ORIGIN = ("origin", "caller", "filename", "file", "pathname", "source", "logger", "name")
_JSON_LINE = ("lineno", "line")
_JSON_TRACE = ("exc_info", "exc_text", "exception", "traceback", "stack_trace", "stacktrace", "stack")

# Names of single processes; of all others there may be several, so that the pid is kept.
_SINGLE = ("APIServer", "EngineCore", "raylet")


def parse(raw):
    """Split a log line (str) into ``{time, process, level, origin, text, count}``.

    What is not there is None. ``time`` is the outermost stamp as printed (RFC 3339 from kubectl or the
    runtime, else the logger's own). ``text`` keeps its indentation and holds several lines when a JSON
    record does. ``count`` is 1, or what Ray's ``[repeated Nx across cluster]`` says. The keys fit
    ``documents.line(number, **parse(raw))``.
    """
    text = raw.rstrip("\r\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = last_segment(text)
    parts = {"time": None, "process": None, "level": None, "origin": None, "text": text, "count": 1}
    found = _KUBECTL_PREFIX.match(text)
    if found:
        text = text[found.end() :]
    found = _RFC3339.match(text)
    if found:
        parts["time"], text = found.group("time"), text[found.end() :]
    if text.startswith("{") and text.rstrip().endswith("}"):
        record = _json_record(text)
        if record is not None:
            return _from_json(parts, record)
    return _from_text(parts, text)


def cri_piece(raw):
    """``(flag, start)`` of a line of a container runtime's log file, or None.

    flag: ``P`` for a piece that the next line continues, ``F`` for a full or last one; start: where its content begins.
    """
    found = _RFC3339.match(raw)
    if not found or not found.group("flag"):
        return None
    return found.group("flag"), found.end()


def segments(text):
    """The pieces of a line that carriage returns overwrite on a terminal, without empty ones."""
    return [piece for piece in text.split("\r") if piece.strip()]


def last_segment(text):
    """What a terminal shows of a line with carriage returns."""
    pieces = segments(text)
    return pieces[-1] if pieces else ""


def rank_of(process):
    """The rank that a process name tells (``VllmWorker rank=3``, ``Worker_TP3``, ``rank3``), or None.

    With pipeline parallelism a tensor-parallel index alone is no rank: None.
    """
    if not process or "PP" in process:
        return None
    found = re.search(r"rank=?(\d{1,6})|TP(\d{1,6})", process)
    return int(found.group(1) or found.group(2)) if found else None


def _from_text(parts, text):
    processes = []
    while True:
        found = _PROCESS_TAG.match(text)
        if found:
            processes.append(found.group("daemon") or _process_name(found.group("name"), found.group("pid")))
            text = text[found.end() :]
            continue
        found = _RANK_TAG.match(text)
        if not found:
            break
        if not processes:
            processes.append("rank" + found.group("rank"))
        text = text[found.end() :]
    found = _VLLM.search(text, 0, _VLLM_AFTER) if "-" in text[:_VLLM_AFTER] else None
    if found:
        if not processes:
            before = _PROCESS_TAG.search(text, 0, found.start())
            if before:
                processes.append(
                    before.group("daemon") or _process_name(before.group("name"), before.group("pid"))
                )
        parts["level"] = _LEVELS[found.group("level")]
        parts["origin"] = found.group("origin") or found.group("old_origin")
        parts["time"] = parts["time"] or found.group("time")
        text = text[found.end() :]
    else:
        text = _other_logger(parts, text)
    if processes:
        parts["process"] = "/".join(processes)
    if text.endswith((")", "cluster]")) and "[repeated " in text:
        found = _REPEATED.search(text)
        if found:
            parts["count"], text = int(found.group("count")), text[: found.start()]
    parts["text"] = text.rstrip()
    return parts


def _other_logger(parts, text):
    found = _NCCL_TIME.match(text)
    if found:
        parts["time"] = parts["time"] or found.group("time")
        text = text[found.end() :]
    for pattern in _LOGGERS:
        found = pattern.match(text)
        if found:
            break
    else:
        return text
    named = found.groupdict()
    level = named.get("level")
    parts["level"] = _LEVELS.get(level.upper()) if level else None
    parts["origin"] = named.get("origin")
    parts["time"] = parts["time"] or named.get("time")
    parts["process"] = "kernel" if "dmesg" in named else named.get("process")
    return (named.get("keep") or "") + text[found.end() :]


def _process_name(name, pid):
    """``VllmWorker rank=0``, ``Worker_TP0`` and ``APIServer`` as they are, ``RayWorkerWrapper pid=N`` with its pid."""
    if name and (name[-1].isdigit() or name in _SINGLE):
        return name
    return f"{name} pid={pid}" if name else f"pid={pid}"


def _json_record(text):
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not any(isinstance(record.get(key), str) for key in _JSON_TEXT):
        return None
    return record


def _first(record, keys):
    for key in keys:
        value = record.get(key)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
            return value
    return None


def _from_json(parts, record):
    message = next(record[key] for key in _JSON_TEXT if isinstance(record.get(key), str))
    if isinstance(record.get("log"), str) and "stream" in record:  # docker's json-file
        inner = parse(message)
        inner["time"] = parts["time"] or _first(record, _JSON_TIME) or inner["time"]
        return inner
    inner = _from_text(dict(parts, time=None), message.rstrip("\n"))
    stamp = _first(record, _JSON_TIME)
    level, process = _first(record, _JSON_LEVEL), _first(record, _JSON_PROCESS)
    origin, number = _first(record, _JSON_ORIGIN), _first(record, _JSON_LINE)
    trace = [record[key] for key in _JSON_TRACE if isinstance(record.get(key), str)]
    if isinstance(origin, str) and number is not None and ":" not in origin:
        origin = f"{origin}:{number}"
    return {
        "time": parts["time"] or (None if stamp is None else str(stamp)) or inner["time"],
        "process": process if isinstance(process, str) else inner["process"],
        "level": _LEVELS.get(str(level).upper(), inner["level"]),
        "origin": origin if isinstance(origin, str) else inner["origin"],
        "text": "\n".join([inner["text"], *trace]).rstrip(),
        "count": inner["count"],
    }
