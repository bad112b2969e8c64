# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings about a pod's surroundings and settings, put together in one way: nature, commands, checks.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change, finding, proof
from .causes import NATURE
from .commands import checks, command_for


def engine_container(pod):
    """The pod's engine container, else its first main container, else None."""
    containers = pod.get("containers") or []
    main = [item for item in containers if item.get("role") == "main"] or containers
    return next((item for item in main if item.get("engine")), main[0] if main else None)


def pod_finding(pod, container, cause, role, confidence, proofs, explanation, **more):
    """A finding with memory and phase of its cause, a command at each change, and the checks for its proofs.

    more: fields of documents.finding; ``check`` adds commands before the usual ones, ``memory`` and ``phase``
    overrule the cause's own. container None: the finding is about the pod as a whole.
    """
    nature = NATURE[cause]
    edited = container or engine_container(pod) or {"name": "CONTAINER", "restart_count": None}
    changes = {}
    for field in ("recommend", "rejected"):
        kept = more.pop(field, None) or []
        changes[field] = [
            item
            if item.get("command") or field == "rejected"
            else dict(item, command=command_for(item, pod, edited))
            for item in kept
        ]
    shown = list(more.pop("check", None) or [])
    shown.extend(
        item for item in checks(pod, edited, proofs, attempt=more.get("attempt")) if item not in shown
    )
    return finding(
        cause,
        more.pop("memory", None) or nature.memory,
        more.pop("phase", None) or nature.phase,
        role,
        confidence,
        container=container["name"] if container else None,
        evidence=list(proofs),
        explanation=explanation,
        check=shown,
        **changes,
        **more,
    )


def events_of(pod, *reasons):
    return [item for item in pod.get("events") or [] if item.get("reason") in reasons]


def event_proof(pod, event):
    text = f"{event['reason']}: {event['message']}"
    if (event.get("count") or 1) > 1:
        text += f" (x{event['count']})"
    return proof("event", event.get("object") or f"Pod/{pod['name']}", text, time=event.get("last_at"))


def status_proof(pod, text, time=None):
    return proof("status", f"Pod/{pod['name']}", " ".join(text.split()), time=time)


def attempt_proof(pod, container, attempt):
    text = f"container {container['name']}: {attempt.get('state')}, reason {attempt.get('reason')}"
    if attempt.get("exit_code") is not None:
        text += f", exit code {attempt['exit_code']}"
    return status_proof(pod, f"{text}. {attempt.get('message') or ''}", attempt.get("finished_at"))


def memory_limit_of(pod):
    """The engine's memory limit as a quantity (its own, else the pod's), or None."""
    container = engine_container(pod) or {}
    for resources in (container.get("resources"), pod.get("pod_resources")):
        limit = ((resources or {}).get("limits") or {}).get("memory")
        if limit:
            return limit
    return None


def field(name, direction, value=None, why=None):
    return change("k8s", name, direction, value, why)


def action(name, why):
    return change("action", name, "set", why=why)
