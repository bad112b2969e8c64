# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plain view of a diagnosis that every report format shows.

A format decides only on layout. What is said, in which order and in which words is decided here, so that
console, Markdown, JSON and whatever comes later never disagree.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..documents import (
    CAUSES,
    CONFIDENCES,
    DIAGNOSIS_SCHEMA,
    EVIDENCE_SCHEMA,
    ROLES,
    DocumentError,
    log_lines,
    require,
)
from .budget_view import entry_view
from .node_view import node_counts, node_views
from .wording import change_view, clean

MEMORY_WORDS = {
    "gpu": "GPU memory",
    "nccl_gpu": "GPU memory (NCCL's buffers)",
    "host": "host memory",
    "shm": "/dev/shm",
    "node": "the node's memory",
    "unified": "memory shared by GPU and host",
    "none": "no memory ran out",
    "unknown": "memory not known",
}

PHASE_WORDS = {
    "load": "while the model was loaded",
    "profile": "in the profile run",
    "kv_init": "while the KV cache was sized",
    "graph_capture": "while CUDA graphs were captured",
    "warmup": "in the warm-up",
    "serving": "while serving",
    "shutdown": "while shutting down",
    "unknown": "phase not known",
}

PROOF_WORDS = {
    "budget": "shown by the memory budget",
    "arithmetic": "shown by arithmetic on the numbers of this log",
    "log": "the log itself names the value",
    "rule": "follows from the mechanism",
    "none": "not proved: try it by hand",
}

# How bad a pod is, worst first.
SEVERITIES = ("memory", "undetermined", "not_memory", "risk", "fine")
SEVERITY_WORDS = {
    "memory": "ran out of memory",
    "undetermined": "undetermined",
    "not_memory": "failed, not for memory",
    "risk": "no failure, but risks",
    "fine": "nothing found",
}

_MAX_SUMMARY_PODS = 50


def view(diagnosis, evidence=None):
    """The view of a diagnosis document.

    diagnosis: a ``diagnosis`` document; evidence: the ``evidence`` document it was made from, or None (then the
    view can't name the process of a log line, nor what was only seen in part).
    Returns ``{collected_at, source, summary, pods, groups, workloads, nodes, unreadable, redactions}``; ``pods`` and ``nodes`` have
    the worst first, with replicas that failed alike named in ``alike`` of one of them.
    Raises DocumentError when one of the two is another document.
    """
    _require_findings(diagnosis)
    if evidence is not None:
        require(evidence, EVIDENCE_SCHEMA, "The report's evidence")
    seen = _by_name((evidence or {}).get("pods") or [])
    pods = [_pod_view(pod, seen.get(_ref(pod))) for pod in diagnosis.get("pods") or []]
    pods.sort(key=_severity_key)
    return {
        "collected_at": clean((evidence or {}).get("collected_at")) or None,
        "source": _source((evidence or {}).get("source")),
        "counts": dict((evidence or {}).get("counts") or {}),
        "summary": summary(diagnosis),
        "pods": _fold(pods, _workload_of(diagnosis)),
        "groups": [_together_view(entry) for entry in diagnosis.get("groups") or []],
        "workloads": [_together_view(entry) for entry in diagnosis.get("workloads") or []],
        "nodes": node_views(diagnosis),
        "unreadable": _unreadable(diagnosis, evidence),
        "redactions": int(((evidence or {}).get("redactions") or {}).get("count") or 0),
    }


def summary(diagnosis):
    """What a job leaves behind (``set_stats``, AWX artifacts): small, and never evidence.

    Returns ``{pods, memory: {MEMORY: count}, causes: {CAUSE: count}, certain, likely, any, undetermined, verdicts, more}``:
    ``certain`` and ``likely`` count the triggers found with at least that confidence, ``any`` counts all findings,
    ``verdicts`` lists at most 50 pods, worst first, ``more`` counts the rest; ``nodes``: how many, and in which state (see
    ``node_counts``).
    """
    _require_findings(diagnosis)
    pods = sorted((_pod_view(pod, None) for pod in diagnosis.get("pods") or []), key=_severity_key)
    together = [
        finding
        for field in ("groups", "workloads")
        for entry in diagnosis.get(field) or []
        for finding in entry.get("findings") or []
    ]
    findings = [
        finding for pod in diagnosis.get("pods") or [] for finding in pod.get("findings") or []
    ] + together
    settled = [f for f in findings if f["role"] == "trigger" and f["cause"] != "undetermined"]
    failed = [pod for pod in pods if pod["severity"] in ("memory", "undetermined", "not_memory")]
    return {
        "pods": len(pods),
        "memory": _count(pod["memory"] for pod in failed),
        "causes": _count(pod["cause"] for pod in failed),
        "certain": sum(f["confidence"] == "certain" for f in settled),
        "likely": sum(f["confidence"] in ("certain", "likely") for f in settled),
        "any": len(findings),
        "undetermined": sum(pod["severity"] == "undetermined" for pod in pods),
        "verdicts": [
            {key: pod[key] for key in ("namespace", "name", "cause", "memory", "phase", "confidence")}
            for pod in pods[:_MAX_SUMMARY_PODS]
        ],
        "more": max(0, len(pods) - _MAX_SUMMARY_PODS),
        "nodes": node_counts(diagnosis),
    }


def _require_findings(diagnosis):
    """Raise DocumentError unless ``diagnosis`` holds findings that can be shown; it may be a file edited by hand."""
    require(diagnosis, DIAGNOSIS_SCHEMA, "The report")
    for field in ("pods", "groups", "workloads"):
        for entry in diagnosis.get(field) or []:
            for finding in entry.get("findings") or []:
                for key, words in (("role", ROLES), ("confidence", CONFIDENCES), ("cause", CAUSES)):
                    if finding.get(key) not in words:
                        raise DocumentError(
                            f"The report needs a known {key} in every finding of {field}, got {finding.get(key)!r}: "
                            "make the diagnosis again from its evidence."
                        )


def _finding_view(finding, pod_evidence):
    return {
        "cause": finding["cause"],
        "means": CAUSES.get(finding["cause"], finding["cause"]),
        "memory": finding.get("memory"),
        "phase": finding.get("phase"),
        "role": finding["role"],
        "confidence": finding["confidence"],
        "container": finding.get("container"),
        "attempt": finding.get("attempt"),
        "seen": [_seen(proof, finding, pod_evidence) for proof in finding.get("evidence") or []],
        "why": clean(finding.get("explanation")),
        "runbook": clean(finding.get("runbook")),
        "do": [change_view(change) for change in finding.get("recommend") or []],
        "avoid": [change_view(change) for change in finding.get("rejected") or []],
        "settle": [clean(text) for text in finding.get("would_settle") or []],
        "check": [clean(text) for text in finding.get("check") or []],
    }


def _seen(proof, finding, pod_evidence):
    """One piece of evidence: where it was seen, in words, and its text."""
    found = (
        proof
        if proof.get("source") != "log"
        else dict(_log_line(proof, finding, pod_evidence), **_known(proof))
    )
    name = (pod_evidence or {}).get("name")
    where = [clean(found.get("source")), clean(found.get("object")).replace(f"{name}/", "", 1)]
    if found.get("line"):
        where.append(f"line {found['line']}")
    where += [clean(found[key]) for key in ("time", "process") if found.get(key)]
    return {
        "source": found.get("source"),
        "object": found.get("object"),
        "line": found.get("line"),
        "time": found.get("time"),
        "process": found.get("process"),
        "where": ", ".join(part for part in where if part),
        "text": clean(found.get("text")),
    }


def _known(proof):
    return {key: value for key, value in proof.items() if value is not None}


def _log_line(proof, finding, pod_evidence):
    """The line of the evidence that a proof of a log points to, or an empty dict."""
    for container in (pod_evidence or {}).get("containers") or []:
        if container["name"] != finding.get("container"):
            continue
        for attempt in container.get("attempts") or []:
            if attempt.get("index") == finding.get("attempt") and attempt.get("log"):
                for kept in log_lines(attempt["log"]):
                    if kept["line"] == proof.get("line"):
                        return {key: kept.get(key) for key in ("time", "process")}
    return {}


def _pod_view(pod, pod_evidence):
    verdict = pod.get("verdict") or {}
    findings = [_finding_view(finding, pod_evidence) for finding in pod.get("findings") or []]
    main = _main_finding(findings, verdict.get("cause"))
    others = [finding for finding in findings if finding is not main]
    return {
        "namespace": pod.get("namespace"),
        "name": pod.get("name"),
        "ref": _ref(pod),
        "severity": _severity(verdict, findings),
        "sentence": clean(verdict.get("sentence")),
        "is_memory": verdict.get("is_memory"),
        "memory": verdict.get("memory") or "unknown",
        "phase": verdict.get("phase") or "unknown",
        "cause": verdict.get("cause") or (main["cause"] if main else None),
        "confidence": main["confidence"] if main else None,
        "finding": main,
        "others": sorted(others, key=_finding_key),
        "settle": _unique(text for finding in findings for text in finding["settle"]),
        "check": _unique(text for finding in findings for text in finding["check"]),
        "ruled_out": [
            {
                "cause": entry["cause"],
                "means": CAUSES.get(entry["cause"], entry["cause"]),
                "why": clean(entry.get("why")),
            }
            for entry in pod.get("ruled_out") or []
        ],
        "notes": [clean(note) for note in pod.get("notes") or []],
        "budgets": [entry_view(entry) for entry in pod.get("budgets") or []],
        "partial": _partial(pod_evidence, main),
        "alike": [],
    }


def _main_finding(findings, cause):
    """The finding that the verdict rests on: its own cause's, else the trigger, else the first."""
    for matches in (
        lambda finding: finding["role"] == "trigger" and finding["cause"] == cause,
        lambda finding: finding["role"] == "trigger",
        lambda finding: finding["cause"] == cause,
    ):
        for finding in findings:
            if matches(finding):
                return finding
    return findings[0] if findings else None


def _severity(verdict, findings):
    if verdict.get("is_memory") is True:
        return "memory"
    if not any(finding["role"] in ("trigger", "cascade") for finding in findings):
        return "risk" if findings else "fine"
    return "not_memory" if verdict.get("is_memory") is False else "undetermined"


def _severity_key(pod):
    confidence = (
        CONFIDENCES.index(pod["confidence"]) if pod["confidence"] in CONFIDENCES else len(CONFIDENCES)
    )
    return (SEVERITIES.index(pod["severity"]), confidence, pod["ref"])


def _finding_key(finding):
    return (ROLES.index(finding["role"]), CONFIDENCES.index(finding["confidence"]))


def _partial(pod_evidence, main):
    """What was not seen of this pod, in sentences: a reader must know what the verdict could not rest on.

    What was not seen of the run that ``main`` is about is said in its explanation, not here.
    """
    notes = []
    for container in (pod_evidence or {}).get("containers") or []:
        attempts = [item for item in container.get("attempts") or [] if item.get("state") != "waiting"]
        runs = (container.get("restart_count") or 0) + 1
        told = bool(main) and main["container"] == container["name"]
        if attempts and container.get("engine") and runs > len(attempts) and not told:
            notes.append(
                f"{container['name']} ran {runs} times, and the last {len(attempts)} can be looked at."
            )
        for attempt in attempts:
            note = None if told and main["attempt"] == attempt.get("index") else _log_note(container, attempt)
            if note:
                notes.append(note)
    return notes


def _log_note(container, attempt):
    log = attempt.get("log") or {}
    which = f"The log of {container['name']}, attempt {attempt.get('index')},"
    if not log.get("readable"):
        if not container.get("engine"):
            return None
        return f"{which} could not be read: {clean(log.get('reason')) or 'no reason given'}."
    if log.get("complete") is False:
        return f"{which} does not begin at the start of the attempt: earlier errors may be missing."
    return None


def _together_view(entry):
    """A group or a workload whose pods are judged together; its findings are those of its pods, in short."""
    return {
        "ref": clean(entry.get("ref")),
        "pods": [_plain_ref(pod) for pod in entry.get("pods") or []],
        "trigger_pod": _plain_ref(entry.get("trigger_pod")) or None,
        "sentence": clean(entry.get("sentence")),
        "findings": [
            {key: finding.get(key) for key in ("pod", "cause", "memory", "role", "confidence")}
            for finding in entry.get("findings") or []
        ],
    }


def _workload_of(diagnosis):
    """Pod reference -> reference of its workload."""
    return {
        _plain_ref(pod): entry.get("ref")
        for entry in diagnosis.get("workloads") or []
        for pod in entry.get("pods") or []
    }


def _fold(pods, workload_of):
    """Replicas of one workload with the same verdict become one entry that names the others in ``alike``."""
    first: dict = {}
    for pod in pods:
        workload = workload_of.get(pod["ref"])
        key = (
            (workload, pod["cause"], pod["memory"], pod["phase"], pod["confidence"])
            if workload
            else pod["ref"]
        )
        if key in first:
            first[key]["alike"].append(pod["ref"])
        else:
            first[key] = pod
    return list(first.values())


def _plain_ref(ref):
    """``namespace/name``, or the name alone of a pod whose namespace isn't known."""
    return clean(ref).lstrip("/")


def _ref(pod):
    return "/".join(clean(part) for part in (pod.get("namespace"), pod.get("name")) if part)


def _by_name(pods):
    return {_ref(pod): pod for pod in pods}


def _source(source):
    if not source:
        return None
    return {"kind": clean(source.get("kind")), "detail": clean(source.get("detail"))}


def _unreadable(diagnosis, evidence):
    entries = list((evidence or {}).get("unreadable") or []) + list(diagnosis.get("unreadable") or [])
    cleaned = [
        {key: clean(entry.get(key)) for key in ("source", "object", "reason", "needs")} for entry in entries
    ]
    return _unique(cleaned)


def _unique(items):
    kept = []
    for item in items:
        if item and item not in kept:
            kept.append(item)
    return kept


def _count(names):
    counts: dict = {}
    for name in names:
        counts[name or "unknown"] = counts.get(name or "unknown", 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def as_json(view_of_diagnosis):
    """The view as JSON text, for tools."""
    return json.dumps(view_of_diagnosis, indent=2, ensure_ascii=False)
