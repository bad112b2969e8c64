# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of one container: which error was the trigger, which were cascade, and what the end says when no error does.

Exit codes don't settle a cause (design, rule 2), so the log's first root error comes first; the way the container
ended is asked only where the log holds none, or where what it holds is what a killed process leaves behind.
"""

from __future__ import annotations

import ast
import re
from collections import namedtuple

from ..documents import proof
from ..quantities import show_bytes
from .budgeted import missing
from .causes import DEVICE_MEMORY
from .resolve import Verdict, host_cause, interrupted_start, nccl_reason, resolve, verdict

# One judged thing: its verdict, the role it plays, the proofs, the catalogue's match (or None), and the cause that it hides.
Judged = namedtuple("Judged", "verdict role proofs match hides", defaults=(None,))

# What surviving processes print when another one was killed: not a root where a kill is on record.
_AFTERMATH = frozenset(
    (
        "crash",
        "nccl_generic",
        "nccl_watchdog_timeout",
        "nccl_no_interface",
        "shm_broadcast_wait",
        "nccl_cuda_failure",
    )
)
_DEVICE_FAMILIES = ("device_oom", "driver_oom", "cumem_oom")
_KILLED = ("oom_killed_container", "oom_killed_child")
_STARVED_BATCH_TOKENS = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=2048\b")
_SIGNALS = {"-9": "SIGKILL", "-7": "SIGBUS", "-11": "SIGSEGV", "-6": "SIGABRT", "-15": "SIGTERM"}


def judge(facts):
    """The findings of one attempt in order, the trigger first; an empty list when nothing failed."""
    roots = _roots(facts)
    trigger = _trigger(facts, roots)
    if trigger is None:
        return []
    trigger = trigger._replace(verdict=_beside_budget(facts, trigger.verdict))
    judged = [trigger, *_cascade(facts, roots, trigger)]
    if trigger.verdict.cause in DEVICE_MEMORY and _ended_by_sigterm(facts):
        hidden = verdict(
            "device_oom_hidden_by_probe",
            trigger.verdict.confidence,
            f"the container ended by a termination, but {_cause_words(trigger.verdict.cause)} came first",
            phase=trigger.verdict.phase,
            memory=trigger.verdict.memory,
            numbers=trigger.verdict.numbers,
        )
        judged = [
            Judged(
                hidden, "trigger", trigger.proofs + _death_proofs(facts), trigger.match, trigger.verdict.cause
            ),
            trigger._replace(role="contributing"),
            *judged[1:],
        ]
    return judged


def _beside_budget(facts, found):
    """Who else holds the GPU is no certain cause of a start that the budget doesn't fit on an empty one either."""
    if found.cause == "gpu_held_by_other" and found.confidence == "certain" and missing(facts.budget):
        return found._replace(confidence="likely")
    return found


def _cause_words(cause):
    return cause.replace("_", " ")


# Refusals that end a start at once. Where the start went on, or it was only a warning, they were survived.
_REFUSALS = ("not_memory_auth", "not_memory_config", "not_memory_driver")


def _roots(facts):
    """``(line, Match)`` of the rows that name what went wrong, the earliest first, without the errors that the engine survived."""
    return _by_time(
        [
            (line, row)
            for line, row in facts.matches
            if row.signature.kind in ("root", "refines") and not _survived(facts, line, row)
        ]
    )


def _by_time(roots):
    """In the order of their stamps, where all have one of the same form and day; else as they stand in the log.

    A log may hold its ranks' logs one after another, and the victim's first.
    """
    stamps = [line.get("time") or "" for line, _row in roots]
    forms = {re.sub(r"\d", "0", stamp) for stamp in stamps}
    days = {stamp.rpartition(" ")[0] for stamp in stamps}
    if len(forms) != 1 or len(days) != 1 or "" in forms:
        return roots
    return sorted(roots, key=lambda root: root[0]["time"])


def _survived(facts, line, row):
    """Whether the engine went on after a refusal: the next phase began after the line."""
    if row.signature.cause not in _REFUSALS:
        return False
    later = any(start > line["line"] and phase != "shutdown" for start, phase in facts.phases)
    return later or line.get("level") in ("WARNING", "INFO", "DEBUG")


def _log_proof(facts, line):
    return proof("log", _object(facts), line["text"], line=line["line"], time=line.get("time"))


def _object(facts):
    return f"{facts.pod['name']}/{facts.container['name']}"


def _death_proofs(facts):
    return list(facts.death.get("evidence") or [])


def _ended_by_sigterm(facts):
    return (
        facts.death.get("kind") in ("probe_kill", "sigterm", "grace_period_expired")
        or facts.attempt.get("exit_code") == 143
    )


def _killed_for_memory(facts):
    return facts.death.get("kind") in _KILLED or facts.said("kernel_memcg_oom")


def _trigger(facts, roots):
    """The trigger of this attempt as Judged, or None."""
    strong = roots
    if _killed_for_memory(facts) or facts.death.get("kind") == "oom_killed_node":
        strong = [(line, row) for line, row in roots if row.signature.id not in _AFTERMATH]
    # A crash is the way a process ended; where another root is on record, that is what it ended of.
    strong = [(line, row) for line, row in strong if row.signature.family != "crash"] or strong
    if strong:
        line, row = strong[0]
        refined = _refinement(strong)
        if refined is not None:
            # vLLM's hint comes before the exception that it is about.
            device = next(
                (found for found in strong if found[1].signature.family in _DEVICE_FAMILIES), (line, row)
            )
            inner = resolve(facts, *device) if device[1].signature.family else None
            if inner is not None and inner.cause in ("gpu_held_by_other", "gpu_fragmentation"):
                proofs = [_log_proof(facts, shown) for shown in _once(device[0], refined[0])]
                return Judged(inner, "trigger", proofs, device[1])
            found = resolve(facts, *refined)
            numbers = inner.numbers if inner else None
            proofs = [_log_proof(facts, shown) for shown in _once(line, refined[0])]
            return Judged(found._replace(numbers=numbers or found.numbers), "trigger", proofs, refined[1])
        reason = nccl_reason(facts) if row.signature.id == "nccl_generic" else None
        if reason is not None:
            proofs = [_log_proof(facts, reason[0]), _log_proof(facts, line)]
            return Judged(resolve(facts, *reason), "trigger", proofs, reason[1])
        found = resolve(facts, line, row)
        # The message that carries the numbers proves more than the exception that only names it.
        return Judged(found, "trigger", [_log_proof(facts, line)], row)
    return _by_end(facts)


def _once(*lines):
    """The lines without one that is there already."""
    return [line for number, line in enumerate(lines) if line not in lines[:number]]


def _refinement(strong):
    """The ``refines`` row that says more exactly what the first root was, or None."""
    first = strong[0][1].signature
    if first.kind == "refines":
        return strong[0]
    if first.family in _DEVICE_FAMILIES:
        for line, row in strong[1:]:
            if row.signature.kind == "refines":
                return line, row
    return None


def _cascade(facts, roots, trigger):
    """Later root errors and generic ends, as cascade findings, each cause once."""
    seen, judged = {trigger.verdict.cause}, []
    shown = {item["line"] for item in trigger.proofs}
    for line, row in roots:
        if line["line"] in shown:
            continue
        found = resolve(facts, line, row)
        if found.cause not in seen and found.cause != "undetermined":
            seen.add(found.cause)
            judged.append(Judged(found, "cascade", [_log_proof(facts, line)], row))
    if _killed_for_memory(facts) and not trigger.verdict.cause.startswith("host_"):
        found = host_cause(facts)
        if found.cause not in seen:
            judged.append(Judged(found, "contributing", _death_proofs(facts), None))
    masked = facts.attempt.get("exit_code") == 0 and facts.attempt.get("state") == "terminated"
    if masked and "exit_code_masked" not in seen:
        judged.append(
            Judged(
                verdict(
                    "exit_code_masked",
                    "certain",
                    "the container ended with exit code 0 although its engine had died",
                ),
                "contributing",
                _death_proofs(facts),
                None,
            )
        )
    return judged


# -- no root error in the log -------------------------------------------------------------------------------------------


def _by_end(facts):
    """The trigger when no line names one: how the container ended, then what only hints, then the quiet conditions."""
    for ask in (_kernel_and_runtime, _dead_processes, _signal_or_exit, _hints, _quiet_conditions):
        found = ask(facts)
        if found is not None:
            return found
    return None


def _kernel_and_runtime(facts):
    kind = facts.death.get("kind")
    proofs = _death_proofs(facts)
    if kind in _KILLED:
        return Judged(host_cause(facts), "trigger", proofs, None)
    table = {
        "oom_killed_node": ("node_oom", None),
        "probe_kill": ("probe_kill", None),
        "node_shutdown": ("sigterm_shutdown", "the node was shutting down"),
        "preempted": ("sigterm_shutdown", "the pod was preempted"),
        "status_unknown": ("status_unknown", "the node lost the container, so its exit code is made up"),
        "start_error": ("start_error", None),
    }
    if kind == "eviction":
        resource = facts.death.get("resource") or ""
        memory = "node" if "memory" in resource.lower() else "none"
        return Judged(
            verdict("eviction", "certain", None, memory=memory, phase=_seen_phase(facts)),
            "trigger",
            proofs,
            None,
        )
    if kind in table:
        cause, reason = table[kind]
        confidence = "certain" if facts.death.get("certain") else "likely"
        return Judged(verdict(cause, confidence, reason, phase=_seen_phase(facts)), "trigger", proofs, None)
    interrupted = facts.first("interrupted_start")
    if interrupted and kind not in ("oom_mark_sticky",):
        found = interrupted_start(facts, *interrupted)
        return Judged(found, "trigger", [_log_proof(facts, interrupted[0]), *proofs], interrupted[1])
    if kind in ("sigterm", "grace_period_expired"):
        return Judged(verdict("sigterm_shutdown", "likely", None), "trigger", proofs, None)
    return None


def _seen_phase(facts):
    return None if facts.last_phase == "unknown" else facts.last_phase


def _exit_codes(facts):
    """``(line, Match, code)`` of processes that the log reports dead, negative codes being signals."""
    for line, row in facts.matches:
        if row.signature.id == "process_died":
            for name in ("code", "exit", "worker"):
                if name in row.groups:
                    yield line, row, row.groups[name]
        elif row.signature.id == "failed_processes":
            for code in _process_codes(row.groups.get("codes") or row.groups.get("frontend")):
                yield line, row, code


def _process_codes(text):
    try:
        codes = ast.literal_eval(text or "{}")
    except (ValueError, SyntaxError):
        return []
    return [str(code) for code in codes.values()] if isinstance(codes, dict) else []


def _dead_processes(facts):
    """A child that died by a signal, reported by its parent."""
    for line, row, code in _exit_codes(facts):
        proofs = [_log_proof(facts, line), *_death_proofs(facts)]
        name = _SIGNALS.get(code)
        if code == "-9":
            found = verdict(
                "sigkill_unattributed",
                "likely",
                "a process was killed with SIGKILL; the kernel's OOM killer is the usual sender, and nothing names it",
                phase=_seen_phase(facts),
            )
            found = _killed_on_unified(facts) or found
        elif code == "-7":
            found = verdict(
                "shm_exhausted", "likely", "a process died of a bus error", phase=_seen_phase(facts)
            )
        elif code in ("-11", "-6"):
            found = verdict("native_crash", "likely", f"a process died of {name}", phase=_seen_phase(facts))
        elif code == "-15":
            found = verdict(
                "exit_code_masked",
                "likely",
                "-15 is SIGTERM from vLLM's own clean-up after another process had failed",
                phase="unknown",
            )
        else:
            continue
        return Judged(found, "trigger", proofs, row)
    return None


def _signal_or_exit(facts):
    kind, code = facts.death.get("kind"), facts.attempt.get("exit_code")
    proofs = _death_proofs(facts)
    if kind == "signal":
        if facts.death.get("signal") == 7:
            return Judged(
                verdict(
                    "shm_exhausted", "possible", "the container died of a bus error", phase=_seen_phase(facts)
                ),
                "trigger",
                proofs,
                None,
            )
        return Judged(
            verdict("native_crash", "likely", None, phase=_seen_phase(facts)), "trigger", proofs, None
        )
    killed = any(line["text"].strip() == "Killed" for line in facts.lines)
    if kind == "sigkill_unattributed" or code == 137 or (code is None and killed):
        return Judged(
            _killed_on_unified(facts)
            or verdict(
                "sigkill_unattributed",
                "possible",
                "the container was killed with SIGKILL, and nothing shows by whom",
                phase=_seen_phase(facts),
                # A shell prints "Killed" for its child: then it was no signal to the container as a whole.
                memory="host" if killed else "unknown",
            ),
            "trigger",
            proofs,
            None,
        )
    stopped = facts.first("sigterm_received")
    if stopped:
        return Judged(
            resolve(facts, *stopped), "trigger", [_log_proof(facts, stopped[0]), *proofs], stopped[1]
        )
    if kind == "oom_mark_sticky":
        found = host_cause(facts)
        reason = "the mark OOMKilled says that some process of the container was killed for its memory, perhaps long before"
        return Judged(found._replace(confidence="possible", reason=reason), "trigger", proofs, None)
    cascades = [
        (line, row) for line, row in facts.matches if row.signature.id in ("generic_end", "process_died")
    ]
    if cascades and kind == "completed":
        return Judged(
            verdict(
                "exit_code_masked", "likely", "the engine died, and the server then ended with exit code 0"
            ),
            "trigger",
            [_log_proof(facts, cascades[0][0]), *proofs],
            cascades[0][1],
        )
    return None


def _killed_on_unified(facts):
    """A SIGKILL without an OOM mark where GPU and host share one memory: the GPU's part is charged to no container."""
    if not facts.unified or facts.last_phase == "unknown":
        return None
    return verdict(
        "unified_memory_accounting",
        "likely",
        "GPU and host share one memory, and what the GPU takes of it is charged to no container: the kernel kills without a limit "
        "being reached",
        phase=_seen_phase(facts),
    )


def _hints(facts):
    """Context lines that become the diagnosis when nothing stronger is there."""
    for line, row in facts.matches:
        if row.signature.kind == "context" and row.signature.cause:
            found = resolve(facts, line, row)
            return Judged(found._replace(confidence="likely"), "trigger", [_log_proof(facts, line)], row)
    return None


def _quiet_conditions(facts):
    """What explains a pod that did not fail by itself, or a failure that left nothing but an exit code."""
    for ask in (_throttled, _page_cache, _gpu_growth, _mig_defaults):
        found = ask(facts)
        if found is not None:
            return found
    reason = _open_question(facts)
    if reason is None:
        return None
    first = facts.log.get("first_error")
    last = facts.lines[-1:] if reason == SILENT_END else []
    proofs = [_log_proof(facts, line) for line in ([first] if first else last)]
    if facts.attempt.get("exit_code") is not None or not proofs:
        proofs += _death_proofs(facts)
    return Judged(
        Verdict("undetermined", "unknown", facts.last_phase, "possible", reason, None),
        "trigger",
        proofs,
        None,
    )


SILENT_END = (
    "the log ends during the start, without an error: that is what SIGKILL leaves behind (OOMKilled above all), or a log that was "
    "taken while the engine was still starting"
)
NO_ENGINE = "no line of the log is one that vLLM prints"
EMPTY = "the log is empty"
PEER_GONE = (
    "the process that complains is the victim of another one that ended first: the earliest error of all ranks' logs is the one "
    "that counts, and it isn't in this log"
)
UNKNOWN_ERROR = "its first error is not one that is known to come from a shortage of memory"
NO_ERROR = "no line of the log names an error"


def _open_question(facts):
    """Why nothing is settled although something may have failed, or None when nothing shows a failure."""
    code, ended = facts.attempt.get("exit_code"), facts.attempt.get("state") == "terminated"
    if facts.said("nccl_peer_gone") and (ended or facts.log.get("first_error")):
        return PEER_GONE
    if facts.log.get("first_error"):
        return UNKNOWN_ERROR
    if not ended:
        return NO_ERROR if _restarting(facts) else None
    if code == 0:
        return None
    if not facts.lines:
        return EMPTY if facts.log.get("readable") else NO_ERROR
    starting = facts.last_phase in ("load", "profile", "kv_init", "graph_capture", "warmup")
    if starting and not facts.serving_seen:
        return SILENT_END
    if code is not None:
        return NO_ERROR
    known = any(facts.log.get(field) for field in ("markers", "numbers", "arguments", "notes"))
    return None if known else NO_ENGINE


def _restarting(facts):
    """Whether Kubernetes says that the container fails again and again, without a run that could be read."""
    if facts.attempt.get("state") != "waiting":
        return False
    reasons = {event.get("reason") for event in facts.pod.get("events") or []}
    return facts.attempt.get("reason") == "CrashLoopBackOff" or bool(reasons & {"BackOff", "Unhealthy"})


def _throttled(facts):
    share = facts.throttled_share
    if share is None or share < 0.25:
        return None
    text = f"the container was throttled in {share:.0%} of its CPU periods"
    return Judged(
        verdict("cpu_throttling", "certain", text, phase=_seen_phase(facts) or "serving"),
        "trigger",
        [proof("cgroup", _object(facts), text)],
        None,
    )


def _page_cache(facts):
    memory = facts.host_memory
    anon, cache = memory.get("anon"), memory.get("file")
    if anon is None or cache is None or facts.attempt.get("state") == "terminated":
        return None
    # `file` includes shared memory, which can't be reclaimed.
    if cache - memory.get("shmem", 0) <= anon:
        return None
    text = f"{show_bytes(anon)} anonymous memory, {show_bytes(cache)} file pages"
    return Judged(
        verdict(
            "host_page_cache_benign",
            "likely",
            "most of the memory shown is page cache, which the kernel reclaims",
        ),
        "trigger",
        [proof("cgroup", _object(facts), text)],
        None,
    )


def _gpu_growth(facts):
    """Samples of nvidia-smi that rise while the engine serves: memory outside the KV cache, which is allocated once."""
    if not facts.serving_seen or not facts.gpu_use_rose:
        return None
    first, last = facts.gpu_use_rose
    text = f"GPU memory in use rose from {show_bytes(first)} to {show_bytes(last)}"
    return Judged(
        verdict("serving_gpu_growth", "possible", text), "trigger", [proof("log", _object(facts), text)], None
    )


def _mig_defaults(facts):
    """On a MIG slice the device query is denied, and vLLM takes the batch defaults of the smallest GPUs."""
    if not facts.mig:
        return None
    entry = facts.settings.get("max_num_batched_tokens") or {}
    for line in facts.lines:
        if not _STARVED_BATCH_TOKENS.search(line["text"]):
            continue
        if entry.get("from") in (None, "default") or (entry["from"], entry.get("line")) == (
            "log",
            line["line"],
        ):
            return Judged(
                verdict(
                    "mig_vgpu_config",
                    "possible",
                    "on the slice vLLM could not read the device and took the batch defaults of the smallest GPUs",
                ),
                "trigger",
                [_log_proof(facts, line)],
                None,
            )
    return None
