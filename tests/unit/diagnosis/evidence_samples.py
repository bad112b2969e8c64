# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence documents for the tests of the diagnosis, made by hand from the documents' builders."""

from __future__ import annotations

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB


def excerpt(texts, phase=None, numbers=None, frames=(), complete=True):
    """A log excerpt whose lines are ``texts``. phase: reached before the first of them; frames: functions of the last one."""
    log = documents.log(readable=True, complete=complete)
    lines = [documents.line(number, text) for number, text in enumerate(texts, 10)]
    log["tail"] = lines
    if lines:
        last = dict(
            lines[-1],
            frames=[{"file": "vllm/x.py", "line": 1, "function": name} for name in frames],
            context=[],
        )
        log["errors"] = [dict(line, frames=[], context=[]) for line in lines[:-1]] + [last]
        log["first_error"] = log["errors"][0]
    if phase:
        log["markers"] = [documents.line(1, "marker", phase=phase, marker="test")]
    log["numbers"] = [
        documents.line(2, name, name=name, value=value, unit=documents.NUMBERS[name], rank=None)
        for name, value in (numbers or {}).items()
    ]
    return log


def setting(value, source="arg"):
    return {"value": value, "from": source, "line": None}


def pod_with(attempts, settings=None, version="0.11.0", accelerator="cuda", limits=None, env=(), **more):
    """A pod with one engine container. ``limits``: its resource limits."""
    container = documents.container(
        "vllm",
        engine=documents.engine(version, "log", accelerator=accelerator),
        settings={name: setting(value) for name, value in (settings or {}).items()},
        resources={"requests": {}, "limits": dict({"nvidia.com/gpu": "1"}, **(limits or {}))},
        env=[{"name": name, "value": value, "from": None} for name, value in env],
        attempts=attempts,
        restart_count=max(0, len(attempts) - 1),
    )
    return documents.pod("llm", "vllm-0", uid="u-1", node="gpu-0", containers=[container], **more)


def evidence_of(pod, node=None):
    evidence = documents.evidence("2026-11-30T07:00:00Z", "bundle", "test")
    evidence["pods"].append(pod)
    evidence["nodes"]["gpu-0"] = documents.node(**(node or {}))
    return evidence


def failed(texts, exit_code=1, reason="Error", phase=None, numbers=None, frames=(), node=None, **pod):
    """Evidence of one failed run with these log lines."""
    attempt = documents.attempt(
        0,
        "terminated",
        reason=reason,
        exit_code=exit_code,
        log=excerpt(texts, phase, numbers, frames) if texts is not None else documents.log(readable=False),
    )
    return evidence_of(pod_with([attempt], **pod), node)


def oom_text(tried=0.5, total=80.0, free=0.1, allocated=70.0, reserved=0.1, processes=(), pools=None):
    """A torch OOM text; sizes in GiB."""
    clauses = "".join(f"Process {pid} has {used:.2f} GiB memory in use. " for pid, used in processes)
    private = f"with {pools:.2f} GiB allocated in private pools (e.g., CUDA Graphs), " if pools else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried:.2f} GiB. GPU 0 has a total capacity of "
        f"{total:.2f} GiB of which {free:.2f} GiB is free. {clauses}Of the allocated memory {allocated:.2f} GiB is allocated by "
        f"PyTorch, {private}and {reserved:.2f} GiB is reserved by PyTorch but unallocated."
    )


def gib(value):
    return int(value * GIB)
