# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that runs, reports no error and isn't ready: it is still starting, or it hangs.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import proof
from .pod_findings import pod_finding, status_proof
from .times import seconds

# The longest silences of a start that goes on are those of one big shard from a slow disk, of compilation and of
# kernel warm-up: minutes.
SILENT_S = 600

_SETTLE = (
    "whether its log goes on: run this again in some minutes",
    "py-spy dump --pid of the engine core, in the container: where each process waits",
    "nvidia-smi on the node: whether its GPUs compute; with several of them NCCL_DEBUG=INFO, for the rank that is missing",
)


def starting_words(pod, collected_at):
    """That an engine of the pod runs without being ready, and how far it got, as half a sentence; None where none does."""
    for container, attempt in _unready_engines(pod):
        words = f"container {container['name']} runs without being ready"
        running = _between(attempt.get("started_at"), collected_at)
        if running is not None:
            words = (
                f"container {container['name']} has been running for {_duration(running)} without being ready"
            )
        last = _last_line(attempt)
        return words + (f"; the last line of its log: {_short(last['text'])}" if last else "")
    return None


def hang_findings(pod, collected_at):
    """``undetermined`` for each engine that isn't ready and whose log has been silent for SILENT_S."""
    found = []
    for container, attempt in _unready_engines(pod):
        last = _last_line(attempt)
        silent = _between(last.get("time"), collected_at) if last else None
        if silent is None or silent < SILENT_S:
            continue
        running = f"container {container['name']}: running since {attempt.get('started_at')}, not ready"
        where = f"{pod.get('namespace')}/{pod['name']}/{container['name']}"
        proofs = [
            status_proof(pod, running, attempt.get("started_at")),
            proof("log", where, last["text"], line=last["line"], time=last["time"]),
        ]
        explanation = (
            f"It runs without being ready, and its log has been silent for {_duration(silent)}: it hangs, or does "
            "something that takes long without a word. Nothing shows that memory ran out."
        )
        found.append(
            pod_finding(
                pod,
                container,
                "undetermined",
                "trigger",
                "possible",
                proofs,
                explanation,
                attempt=attempt.get("index"),
                would_settle=list(_SETTLE),
            )
        )
    return found


def _unready_engines(pod):
    """``(container, its running attempt)`` of the engines that run and aren't ready."""
    for container in pod.get("containers") or []:
        attempts = container.get("attempts") or []
        if (
            container.get("engine")
            and container.get("ready") is False
            and attempts
            and attempts[-1].get("state") == "running"
        ):
            yield container, attempts[-1]


def _last_line(attempt):
    tail = (attempt.get("log") or {}).get("tail") or []
    return tail[-1] if tail else None


def _between(earlier, later):
    first, last = seconds(earlier), seconds(later)
    return None if first is None or last is None else max(0.0, last - first)


def _duration(length):
    """``45 s``, ``12 min``, ``3 h 5 min``."""
    minutes, rest = divmod(int(length), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _short(text):
    return text if len(text) <= 100 else f"{text[:99]}…"
