# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that are not there: refused by a quota or policy, or gone. Only events (kept for an hour) tell of them.

Reasons and senders: shared facts "kubernetes-gpu-facts", section 2. Takes raw API JSON; nothing is read.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from .events import event_count, involved, last_time

_DEATHS = re.compile(r"oom|^BackOff$|^Evicted$|^Preempted$|^Killing$", re.IGNORECASE)
# Every pod that is deleted in good order ends with such an event.
_ORDINARY_KILLING = re.compile(r"Stopping container \S+$")
_ENGINE_WORD = re.compile(r"vllm", re.IGNORECASE)
_LONGEST = 300


def is_death(raw_event):
    """Whether an event about a pod tells why it is gone."""
    return bool(_DEATHS.search(raw_event.get("reason") or ""))


def is_ordinary(raw_event):
    """Whether it tells of a deletion only, as every rollout and scaling down brings."""
    return raw_event.get("reason") == "Killing" and bool(
        _ORDINARY_KILLING.match(raw_event.get("message") or "")
    )


def more_telling(known, raw_event):
    """Of two events about one pod (known may be None) the newer, but a death before an ordinary deletion."""
    events = [item for item in (known, raw_event) if item]
    return newest([item for item in events if not is_ordinary(item)] or events)


def newest(raw_events):
    """The event that was seen last, or None."""
    return max(raw_events, key=lambda item: last_time(item) or "", default=None)


def refusal(raw_events):
    """The newest event among an owner's that says it may not create a pod, or None."""
    return newest([item for item in raw_events if (item.get("reason") or "").startswith("FailedCreate")])


def has_all_pods(owner):
    """Whether a raw workload object has the pods it wants, so that a refusal is over; False when that isn't known."""
    spec, status = owner.get("spec") or {}, owner.get("status") or {}
    if "currentNumberScheduled" in status:
        return status["currentNumberScheduled"] >= status.get("desiredNumberScheduled", 0)
    if "replicas" in status:
        return status["replicas"] >= spec.get("replicas", 1)
    if owner.get("kind") == "Job":
        done = status.get("succeeded", 0)
        return status.get("active", 0) + done >= min(
            spec.get("parallelism", 1), spec.get("completions", done + 1)
        )
    return False


def is_under(owner_of_pod, about, owner):
    """Whether a pod belongs to the object that refusals are about, or to the same Deployment (a refused rollout).

    owner_of_pod: the pod's controller reference or None; about: the event's object reference; owner: that object,
    or ``{}`` when it may not be read.
    """
    if not owner_of_pod:
        return False
    if owner_of_pod.get("uid") == about.get("uid"):
        return True
    if not owner_of_pod.get("kind") == about.get("kind") == "ReplicaSet":
        return False
    above = ((owner.get("metadata") or {}).get("ownerReferences") or [{}])[0].get("name")
    # A Deployment names its ReplicaSets after itself and the template's hash.
    above = above or (about.get("name") or "").rpartition("-")[0]
    return bool(above) and (owner_of_pod.get("name") or "").rpartition("-")[0] == above


def looks_like_engine(raw_event, engine_names):
    """Whether the pod that an event is about was a vLLM pod, as far as names tell.

    engine_names: those of engine pods that are there; pods of one template differ in the last part only.
    """
    about = involved(raw_event)
    words = (about.get("name"), about.get("fieldPath"), raw_event.get("message"))
    if any(_ENGINE_WORD.search(item) for item in words if item):
        return True
    return _stem(about.get("name") or "") in {_stem(name) for name in engine_names}


def _stem(name):
    """A pod's name without what its controllers append: index, or template hash and suffix."""
    return re.sub(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}$|-\d+$", "", name)


def words(raw_event):
    """An event as part of a sentence: ``BackOff: Back-off restarting … (3 times, last at 2026-…)``."""
    message = " ".join((raw_event.get("message") or raw_event.get("note") or "").split())
    if len(message) > _LONGEST:
        message = message[:_LONGEST] + "…"
    count = event_count(raw_event)
    seen = f"{count} times, last at" if count > 1 else "at"
    return f"{raw_event.get('reason')}: {message} ({seen} {last_time(raw_event) or 'an unknown time'})"
