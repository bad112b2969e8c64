# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose case lines: JSON lines on standard input, one verdict line for each on standard output.

A case is one failure as somebody reported it (fields of ``shared/cases/oom_dev.jsonl``; any may be missing or null).
Each becomes an evidence document and goes through the code behind the filter ``diagnosis``. Only the fields in
``READ_FIELDS`` are looked at, whatever else a line holds. Output: ``{id, is_memory, memory, phase, cause,
causes: [ranked], recommend: [CHANGE], rejected: [CHANGE]}``; a line that can't be judged gets ``undetermined`` and an
``error`` of one sentence.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import diagnose  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import (  # noqa: E402
    assemble,
    bundle,
    log_scan,
    redact,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import parse_size  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import (  # noqa: E402
    budgets_of,
)

# The whole of what may be read of a case (design, section 8).
READ_FIELDS = (
    "id",
    "vllm_version",
    "engine",
    "accelerator",
    "evidence_log",
    "extra_evidence",
    "pod_status",
    "gpu",
    "model",
    "args",
)
# A case has no times; the diagnosis needs one to count from.
COLLECTED_AT = "2026-11-30T07:00:00Z"
NODE = "node"
CONTAINER = "vllm"

# --- Reading a case's loose texts ------------------------------------------------------------------------------


def allowed(case):
    """The fields of ``case`` that may be read, and no others; null where one is missing."""
    return {field: case.get(field) for field in READ_FIELDS}


def as_text(value):
    return value if isinstance(value, str) else ""


_VERSION = re.compile(r"(?<![\d.\-])\d+\.\d+(?:\.\d+)*(?:(?:rc|\.?dev|\.?post)\d+)*(?!x|\d|-\d\d\b)")


def engine_version(text):
    """The first release named in ``text`` (``0.7.x`` -> 0.7, ``0.28.0-0.29.0`` -> 0.28.0), or None (``0.2x``)."""
    found = _VERSION.search(as_text(text))
    return found.group(0) if found else None


# What the cases call the accelerator -> the evidence's word, and whether GPU and host share their memory.
_ACCELERATORS = ("cuda", "rocm", "tpu", "xpu", "hpu", "npu", "cpu")
_UNIFIED = re.compile(r"\b(?:GB10|DGX Spark|Strix|Ryzen AI|Jetson|Orin|Thor|MI300A|Grace)\b", re.IGNORECASE)


def accelerator_of(text):
    """``(accelerator, unified)`` of a case's word for it, e.g. ``cuda-unified``."""
    word, _dash, rest = as_text(text).lower().partition("-")
    return (word if word in _ACCELERATORS else None), rest == "unified"


_COUNT = re.compile(r"(?:^|\bof )(\d+)\s*x\s|^(\d+) GPUs?\b|^x?(\d+)\s*x\s*", re.IGNORECASE)
# The better statement first: what is usable of a slice, what the driver reports, the maker's figure.
_SIZES = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (
        r"(\d+(?:\.\d+)?) ?(GB|GiB) usable",
        r"(\d+(?:\.\d+)?) ?(GiB|MiB)",
        r"(\d+(?:\.\d+)?) ?(GB)",
    )
)
_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
_MIG_PROFILE = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)


def gpu_of(text, unified):
    """The evidence's ``gpu`` of a node from words such as ``2x A100 80GB`` or ``H200 MIG 2g.35gb``."""
    text = as_text(text)
    gpu = documents.node()["gpu"]
    if not text:
        return {**gpu, "unified": unified or None}
    counted, profile = _COUNT.search(text), _MIG_PROFILE.search(text)
    sized = next((found for pattern in _SIZES if (found := pattern.search(text))), None)
    # Makers' "80GB" are GiB, more or less.
    memory = (
        parse_size(f"{sized.group(1)} {'MiB' if sized.group(2).lower() == 'mib' else 'GiB'}")
        if sized
        else None
    )
    return {
        **gpu,
        "product": text,
        "count": int(next(group for group in counted.groups() if group)) if counted else None,
        "memory_bytes": memory,
        "mig": profile.group(0) if profile else bool(_MIG.search(text)) or None,
        "unified": unified or bool(_UNIFIED.search(text)) or None,
    }


_REMARK = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)\s*$")
_ENVIRONMENT = re.compile(r"([A-Z][A-Z0-9]*(?:_[A-Za-z0-9]+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"-{0,2}([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_NEXT_FLAG = re.compile(r"\s+(?=-{1,2}[A-Za-z])")
_SHORT_NAMES = {
    "TP": "tensor-parallel-size",
    "PP": "pipeline-parallel-size",
    "DP": "data-parallel-size",
}


def arguments_of(entries):
    """``(args, env)`` of a case's loosely written arguments.

    ``--max-model-len 4096``, ``max_model_len=4096``, ``-tp 2``, ``TP=8``, ``enable_sleep_mode``, ``LMCACHE_X=640``;
    a remark in brackets at the end is dropped, so is ``~`` before a number.
    """
    args, env = [], []
    for entry in entries if isinstance(entries, list) else []:
        text = _REMARK.sub("", as_text(entry)).strip()
        variable = _ENVIRONMENT.fullmatch(text)
        if variable:
            env.append({"name": variable.group(1), "value": variable.group(2), "from": None})
        elif text.startswith("-"):
            for part in _NEXT_FLAG.split(text):
                name, space, value = part.partition(" ")
                args += [name, re.sub(r"^~(?=\d)", "", value.strip())] if space else [name]
        else:
            assigned = _ASSIGNMENT.fullmatch(text)
            if assigned:
                name, value = assigned.groups()
                option = "--" + _SHORT_NAMES.get(name, name).replace("_", "-")
                args.append(option if value is None else f"{option}={value}")
    return args, env


# --- From a case to an evidence document -------------------------------------------------------------------------

_COUNTED_RESTARTS = re.compile(r"(\d+) restarts?|^\D{0,2}(\d+)$")
_SEVERAL = re.compile(r"many|several", re.IGNORECASE)
_RUNNING = re.compile(r"^\W*running\b", re.IGNORECASE)
# Reasons that belong to the pod or the node, not to a container's end.
_POD_REASONS = ("Evicted", "Preempting", "NodeLost", "UnexpectedAdmissionError", "Terminated", "NodeShutdown")
_WAITING_REASONS = ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerError")
# Words of an event -> the reason that the kubelet gives such an event.
_EVENT_REASONS = (
    (r"failed (?:startup|liveness) probe|stopping container", "Killing"),
    (r"probe failed", "Unhealthy"),
    (r"low on resource|exceeds the (?:total )?limit|ephemeral", "Evicted"),
    (r"system oom", "SystemOOM"),
    (r"back-?off", "BackOff"),
)


def restarts_of(status):
    """How often the container was restarted, as far as the words of ``status`` say."""
    for text in (status.get("restarts"), status.get("note")):
        if isinstance(text, int) and not isinstance(text, bool):
            return text
        counted = _COUNTED_RESTARTS.search(as_text(text))
        if counted:
            number = int(counted.group(1) or counted.group(2))
            return number + 1 if as_text(text).startswith(">") else number
    return 2 if _SEVERAL.search(as_text(status.get("restarts"))) else None


def event_of(text):
    reason = next((reason for words, reason in _EVENT_REASONS if re.search(words, text, re.IGNORECASE)), None)
    return documents.event(reason, text, object="Pod/case")


def read_log(text):
    """The evidence of a log as a user would hand it in: as a file, perhaps with describe text pasted into it."""
    try:
        return bundle.read_bundle("-", stdin=text.encode("utf-8", "replace"), now=COLLECTED_AT)
    except documents.DocumentError:
        # Nothing that the reader could use (an empty log): the case may still hold a status and arguments.
        evidence = documents.evidence(COLLECTED_AT, "bundle", "case line")
        container = documents.container(CONTAINER, engine=documents.engine())
        container["attempts"].append(documents.attempt(0, "terminated", log=scan(text)))
        evidence["pods"].append(documents.pod(None, "case", containers=[container]))
        return evidence


def scan(text):
    """The log excerpt of ``text``."""
    scanner = log_scan.LogScanner(redactor=redact.Redactor())
    scanner.feed(text.encode("utf-8", "replace"))
    return scanner.close()


def engine_container(evidence):
    """``(pod, container)`` of the first engine in ``evidence``."""
    return next((pod, item) for pod in evidence["pods"] for item in pod["containers"] if item["engine"])


def add_status(attempts, status):
    """Tell the last of ``attempts`` how the case's status says that it ended; add the waiting one after it."""
    exit_code, reason = status.get("exit_code"), as_text(status.get("reason")) or None
    last, note = attempts[-1], as_text(status.get("note")) or None
    of_container = reason not in (*_POD_REASONS, *_WAITING_REASONS, "NodeNotReady")
    last["message"] = last["message"] or note
    if last["exit_code"] is None and isinstance(exit_code, int) and not isinstance(exit_code, bool):
        last["exit_code"] = exit_code
    if last["reason"] is None and of_container:
        last["reason"] = reason
    if last["exit_code"] is None and _RUNNING.search(note or ""):
        last["state"] = "running"
    if reason in _WAITING_REASONS:
        attempts.append(documents.attempt(len(attempts), "waiting", reason=reason))


def add_spec(container, case):
    """Put the case's model, arguments and environment into ``container``."""
    args, env = arguments_of(case["args"])
    if as_text(case["model"]):
        args = ["--model", case["model"], *args]
    extra = case["extra_evidence"]
    given = extra.get("env") if isinstance(extra, dict) else None
    if isinstance(given, dict):
        env += [{"name": str(name), "value": str(value), "from": None} for name, value in given.items()]
    container["command"] = container["command"] or ["vllm", "serve"]
    container["args"] = [*container["args"], *args]
    container["env"] = [*container["env"], *env]


def evidence_of(case):
    """The evidence document of one case (a dict with ``READ_FIELDS``)."""
    status = case["pod_status"] if isinstance(case["pod_status"], dict) else {}
    reason = as_text(status.get("reason")) or None
    accelerator, unified = accelerator_of(case["accelerator"])

    evidence = read_log(as_text(case["evidence_log"]))
    pod, container = engine_container(evidence)
    attempts = container["attempts"]
    add_status(attempts, status)
    if as_text(case["extra_evidence"]):
        attempts.append(documents.attempt(len(attempts), "terminated", log=scan(case["extra_evidence"])))
    if container["restart_count"] is None:
        container["restart_count"] = restarts_of(status)
    add_spec(container, case)
    excerpts = [attempt["log"] for attempt in attempts if attempt["log"]["readable"]]
    version = engine_version(case["vllm_version"])
    image = container["image"] or (f"vllm/vllm-openai:v{version}" if version else None)
    # The image stays out of the container: one that was read means that the whole spec was, limits included.
    finished = assemble.finish_container(dict(container, image=image), excerpts, pod["labels"])
    container["settings"] = finished["settings"]
    container["engine"]["accelerator"] = accelerator or container["engine"]["accelerator"]

    pod.update(node=pod["node"] or NODE, suspicious=True)
    if reason in _POD_REASONS:
        pod.update(pod_phase="Failed", reason=reason)
    if as_text(status.get("event")):
        pod["events"].append(event_of(status["event"]))
    node = evidence["nodes"].setdefault(pod["node"], documents.node())
    node["gpu"] = gpu_of(case["gpu"], unified)
    if reason == "NodeNotReady":
        node["conditions"].append({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"})
    return assemble.finish(evidence)


# --- From a diagnosis to a verdict line ----------------------------------------------------------------------------

# Findings about this failure, the most telling first; a risk is about the next one.
_RANKED = ("trigger", "contributing", "cascade")
# Whose changes answer the failure: what only followed from it needs none of its own.
_ANSWERING = ("trigger", "contributing")


def unique(items, key):
    """``items`` without later ones that have the same ``key``."""
    seen: dict[Any, Any] = {}
    for item in items:
        seen.setdefault(key(item), item)
    return list(seen.values())


def verdict_line(case_id, diagnosis):
    """The output line of one diagnosed case."""
    pod = next((pod for pod in diagnosis["pods"] if pod["verdict"]["cause"]), diagnosis["pods"][0])
    findings = sorted(
        (finding for finding in pod["findings"] if finding["role"] in _RANKED),
        key=lambda finding: _RANKED.index(finding["role"]),
    )
    changes = {
        field: unique(
            [change for finding in findings if finding["role"] in _ANSWERING for change in finding[field]],
            key=lambda change: (change["target"], change["name"], change["direction"]),
        )
        for field in ("recommend", "rejected")
    }
    verdict = {field: pod["verdict"][field] for field in ("is_memory", "memory", "phase", "cause")}
    if verdict["cause"] is None:
        # Nothing failed in what was given, yet somebody reported a failure.
        verdict.update(is_memory=None, memory="unknown", cause="undetermined")
    causes = [verdict["cause"], *(finding["cause"] for finding in findings)]
    return {"id": case_id, **verdict, "causes": unique(causes, key=str), **changes}


def undetermined(case_id, error):
    return {
        "id": case_id,
        "is_memory": None,
        "memory": "unknown",
        "phase": "unknown",
        "cause": "undetermined",
        "causes": ["undetermined"],
        "recommend": [],
        "rejected": [],
        "error": error,
    }


def classify(raw):
    """The output line for one input line."""
    case_id = None
    try:
        case = json.loads(raw)
        if not isinstance(case, dict):
            raise ValueError(f"a case line must be a JSON object, this one is a {type(case).__name__}")
        case_id = case.get("id")
        evidence = evidence_of(allowed(case))
        return verdict_line(case_id, diagnose.diagnose(evidence, budgets_of(evidence)))
    except Exception as error:
        # One unusable line must not cost the others their verdict.
        return undetermined(case_id, f"{type(error).__name__}: {error}")


def main():
    for raw in sys.stdin.buffer:
        line = raw.decode("utf-8", "replace")
        if line.strip():
            print(json.dumps(classify(line), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
