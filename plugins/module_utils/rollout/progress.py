# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a rollout is, what stands in its way, and which of the new pods died. Pure: takes raw API JSON.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..evidence.absent_pods import is_death
from ..evidence.events import involved, last_time
from ..times import parse_time
from .server import engine_of

# A pod that finds no place, or that a quota refuses, may only have to wait for the pods that it replaces, for a new node
# or for a scheduler that hasn't looked again.
PATIENCE_S = 60.0
# The node controller takes 40 s to call a node not ready and 300 s to evict its pods; a kubelet's restart is shorter.
NODE_PATIENCE_S = 120.0
# Reasons of a waiting container that no waiting helps against. ErrImagePull turns into ImagePullBackOff when it comes again.
_CANT_START = (
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
_BEING_MADE = ("ContainerCreating", "PodInitializing")
_LONGEST = 300
_HASH = "pod-template-hash"


class Problem(NamedTuple):
    """Something in the way. final: whether the rollout can't get on by itself."""

    sentence: str
    final: bool


class Progress(NamedTuple):
    """desired, updated, ready, old: numbers of pods; finished: nothing is left to be done; observed: its controller has seen the
    change; by_hand: a sentence where only somebody who deletes the old pods updates them; blockers: names of old pods that
    aren't ready and that a controller waits for; to_delete: of old pods without whose deletion it can't get on.
    """

    desired: int
    updated: int
    ready: int
    old: int
    finished: bool
    observed: bool
    by_hand: str | None = None
    blockers: tuple[str, ...] = ()
    to_delete: tuple[str, ...] = ()

    @property
    def sentence(self):
        if not self.observed:
            return "its controller hasn't seen the change yet"
        words = f"{self.updated} of {self.desired} pods updated, {self.ready} ready"
        if self.old:
            words += f", {self.old} old {'pod' if self.old == 1 else 'pods'} left"
        return words


def meta(raw):
    return raw.get("metadata") or {}


def name_of(raw_pod):
    return meta(raw_pod).get("name")


def is_ready(raw_pod):
    return any(
        item.get("type") == "Ready" and item.get("status") == "True"
        for item in (raw_pod.get("status") or {}).get("conditions") or []
    )


def is_going(raw_pod):
    return bool(meta(raw_pod).get("deletionTimestamp"))


def is_made_since(raw_pod, since):
    """Whether the API server made the pod at ``since`` (aware datetime, None: ever) or later; its times are whole seconds."""
    made = parse_time(meta(raw_pod).get("creationTimestamp"))
    return since is None or (made is not None and made >= since.replace(microsecond=0))


# --- how far it is


def progress_of(raw, pods, since, generation, replica_sets=(), children=()):
    """``(Progress, the new raw pods)`` of one object.

    pods: the raw pods that belong to it; since, generation: of the write (None: whatever is there); replica_sets: those of
    a Deployment; children: Deployments, StatefulSets and DaemonSets below an object of another kind.
    """
    rule = _RULES.get(raw.get("kind")) if _is_apps(raw) else None
    if rule:
        return rule(raw, pods, generation, replica_sets)
    return _by_pods(raw, pods, since, generation, children, replica_sets)


def _is_apps(raw):
    return str(raw.get("apiVersion") or "").startswith("apps/")


def _observed(raw, generation):
    seen = (raw.get("status") or {}).get("observedGeneration")
    own = meta(raw).get("generation")
    if own is None or seen is None:
        # Kinds that don't count: nothing to compare.
        return own is None or not _is_apps(raw)
    return seen >= own and own >= (generation or 0)


def _split(pods, is_new):
    new = [pod for pod in pods if is_new(pod)]
    return new, [pod for pod in pods if not is_new(pod) and not is_going(pod) and not _is_over(pod)]


def _is_over(pod):
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _label(pod, key):
    return (meta(pod).get("labels") or {}).get(key)


def _deployment(raw, pods, generation, replica_sets):
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    desired = _count(spec.get("replicas"), 1)
    current = _current_set(raw, replica_sets)
    observed = _observed(raw, generation)
    code = _label(current, _HASH) if current and observed else None
    new, old = _split(pods, lambda pod: code is not None and _label(pod, _HASH) == code)
    updated, total = status.get("updatedReplicas") or 0, status.get("replicas") or 0
    available = status.get("availableReplicas") or 0
    finished = observed and updated >= desired and total == updated and available >= updated
    done = Progress(
        desired, updated if observed else 0, _ready(new), len(old), finished and not old, observed
    )
    return done, new


def _current_set(raw, replica_sets):
    """The ReplicaSet of a Deployment's template, found as its controller finds it; None until it is made.

    The revision in the annotations is still the old one when the change is observed and the pods before it are only going (Recreate).
    """
    wanted = _unhashed(raw)
    own = [item for item in replica_sets if _owned_by(item, raw) and _unhashed(item) == wanted]
    return min(own, key=lambda item: meta(item).get("creationTimestamp") or "", default=None)


def _unhashed(raw):
    """A pod template without the label that tells ReplicaSets apart."""
    template = (raw.get("spec") or {}).get("template") or {}
    labels = {key: value for key, value in (meta(template).get("labels") or {}).items() if key != _HASH}
    return dict(template, metadata=dict(meta(template), labels=labels))


def _owned_by(raw, owner):
    return any(item.get("uid") == meta(owner).get("uid") for item in meta(raw).get("ownerReferences") or [])


def _ready(pods):
    return sum(1 for pod in pods if is_ready(pod) and not is_going(pod))


def _stateful_set(raw, pods, generation, _replica_sets):
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    strategy = spec.get("updateStrategy") or {}
    replicas = _count(spec.get("replicas"), 1)
    start = (spec.get("ordinals") or {}).get("start") or 0
    partition = max(0, ((strategy.get("rollingUpdate") or {}).get("partition") or 0) - start)
    desired = max(0, replicas - partition)
    observed = _observed(raw, generation)
    code = status.get("updateRevision") if observed else None
    new, kept = _split(pods, lambda pod: code is not None and _label(pod, "controller-revision-hash") == code)
    # Those below the partition stay as they are.
    old = [pod for pod in kept if _ordinal(pod) >= start + partition]
    there = [pod for pod in new if not is_going(pod)]
    finished = observed and len(there) >= desired and _ready(there) >= desired and not old
    done = Progress(desired, len(there), _ready(there), len(old), finished, observed)
    if observed and old and strategy.get("type") == "OnDelete":
        done = _on_delete(done, "StatefulSet", old)
    elif observed and spec.get("podManagementPolicy") != "Parallel" and not any(map(is_going, pods)):
        # With the policy OrderedReady (the default) no pod is replaced while one isn't ready: seen on Kubernetes 1.34.
        waited_for = [pod for pod in old if not is_ready(pod)]
        done = done._replace(
            blockers=tuple(sorted(map(name_of, waited_for))),
            to_delete=tuple(sorted(name_of(pod) for pod in waited_for if _is_broken(pod))),
        )
    return done, there


def is_stuck(raw_pod):
    """Whether a pod is broken, and neither ready nor on its way out."""
    return not is_ready(raw_pod) and not is_going(raw_pod) and _is_broken(raw_pod)


def _is_broken(pod):
    """Whether a pod that isn't ready won't get so by itself, as far as that shows: its container ended, or can't start."""
    if _is_running(pod):
        return any(item.get("restartCount") for item in statuses(pod))
    found = statuses(pod) + statuses(pod, "initContainerStatuses")
    return any(item.get("restartCount") for item in found) or not _is_being_made(pod)


def _is_being_made(pod):
    """Whether its node makes the pod's containers, or those run that come before the engine and may fetch its model."""
    waiting = [((item.get("state") or {}).get("waiting") or {}).get("reason") for item in statuses(pod)]
    return bool(waiting) and set(waiting) <= set(_BEING_MADE)


def _ordinal(pod):
    tail = (name_of(pod) or "").rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def _on_delete(done, kind, old):
    names = sorted(map(name_of, old))
    by_hand = f"the {kind} updates a pod only when somebody deletes it (OnDelete): kubectl delete pod {' '.join(names)}"
    return done._replace(by_hand=by_hand, to_delete=tuple(names))


def _daemon_set(raw, pods, generation, _replica_sets):
    status = raw.get("status") or {}
    desired = status.get("desiredNumberScheduled") or 0
    observed = _observed(raw, generation)
    count = (meta(raw).get("annotations") or {}).get("deprecated.daemonset.template.generation")
    new, old = _split(
        pods, lambda pod: observed and count is not None and _label(pod, "pod-template-generation") == count
    )
    there = [pod for pod in new if not is_going(pod)]
    updated = status.get("updatedNumberScheduled") or 0
    finished = observed and updated >= desired and (status.get("numberAvailable") or 0) >= desired and not old
    done = Progress(desired, len(there), _ready(there), len(old), finished, observed)
    if observed and old and ((raw.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete":
        done = _on_delete(done, "DaemonSet", old)
    return done, there


_RULES = {"Deployment": _deployment, "StatefulSet": _stateful_set, "DaemonSet": _daemon_set}


def _by_pods(raw, pods, since, generation, children, replica_sets):
    """Of a kind whose controller's own rules aren't known here: the pods made since the write, and what is below it."""
    observed = _observed(raw, generation)
    new, old = _split(pods, lambda pod: is_made_since(pod, since))
    there = [pod for pod in new if not is_going(pod)]
    below = [
        _RULES[item["kind"]](item, [pod for pod in pods if _is_under(pod, item)], None, replica_sets)[0]
        for item in children
        if item.get("kind") in _RULES
    ]
    finished = (
        observed
        and bool(there)
        and not old
        and all(map(is_ready, there))
        and all(item.finished for item in below)
    )
    desired = max(len(there) + len(old), sum(item.desired for item in below))
    by_hand = next((item.by_hand for item in below if item.by_hand), None)
    blockers = tuple(name for item in below for name in item.blockers)
    return Progress(
        desired, len(there), _ready(there), len(old), finished, observed, by_hand, blockers
    ), there


def _is_under(pod, owner):
    if _owned_by(pod, owner):
        return True
    prefix = f"{name_of(owner)}-"
    references = meta(pod).get("ownerReferences") or []
    return owner.get("kind") == "Deployment" and any(
        item.get("kind") == "ReplicaSet" and (item.get("name") or "").rpartition("-")[0] + "-" == prefix
        for item in references
    )


def _count(value, otherwise):
    return otherwise if value is None else value


# --- who died


def statuses(raw_pod, key="containerStatuses"):
    return (raw_pod.get("status") or {}).get(key) or []


def status_of(raw_pod, container):
    """The raw status of a container, empty where there is none yet."""
    found: dict[str, Any] = next((item for item in statuses(raw_pod) if item.get("name") == container), {})
    return found


def restarts(raw_pod, container=None):
    """How often the engine's container was restarted, 0 when that isn't known."""
    engine = engine_of(raw_pod, container) or {}
    return status_of(raw_pod, engine.get("name")).get("restartCount") or 0


def death_of(raw_pod, since, baseline=None, container=None):
    """The sentence that a new pod died, or None.

    baseline: ``{pod's uid: restarts}`` up to which nothing counts. Without it every end of a container in a pod made at
    ``since`` or later counts, and in an older one every end after ``since``; without ``since`` too only one that keeps it
    from running now. A pod that is being deleted ends in good order.
    """
    name = name_of(raw_pod)
    status = raw_pod.get("status") or {}
    if status.get("phase") == "Failed" and status.get("reason"):
        return f"pod {name} failed: {status['reason']}{_colon(status.get('message'))}"
    if is_going(raw_pod):
        return None
    for item in statuses(raw_pod, "initContainerStatuses"):
        end = _end_that_counts(raw_pod, item, since, None)
        if end and end.get("exitCode") != 0:
            return _died(f"init container {item.get('name')}", name, end)
    engine = engine_of(raw_pod, container) or {}
    for item in statuses(raw_pod):
        if item.get("name") == engine.get("name"):
            end = _end_that_counts(raw_pod, item, since, baseline)
            if end:
                return _died(f"container {item.get('name')}", name, end)
    return None


def _end_that_counts(raw_pod, status, since, baseline):
    state, last = status.get("state") or {}, status.get("lastState") or {}
    now, before = state.get("terminated"), last.get("terminated")
    known = (baseline or {}).get(meta(raw_pod).get("uid"))
    if known is not None:
        return now or (before if (status.get("restartCount") or 0) > known else None)
    if since is None:
        held = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
        return now or (before if held else None)
    if is_made_since(raw_pod, since):
        return now or before
    return next((end for end in (now, before) if end and _is_after(end.get("finishedAt"), since)), None)


def _is_after(text, since):
    moment = parse_time(text)
    return moment is not None and moment >= since.replace(microsecond=0)


def _died(what, pod, end):
    reason = f" ({end['reason']})" if end.get("reason") else ""
    return f"{what} of pod {pod} ended with exit code {end.get('exitCode')}{reason}"


# --- what is in the way


def problems_of(raw, pods, new, events, nodes, now, since, progress):
    """The ``Problem``s of a rollout, those that are final first.

    pods: all of the object's; new: those of them that are new; events: raw events of the namespace; nodes: raw nodes by name;
    now: the API server's time.
    """
    found = [
        *_of_object(raw, pods, new, now),
        *_refusals(raw, pods, events, now, since),
        *(item for pod in new for item in _of_pod(pod, pods, events, nodes, now)),
    ]
    if progress.blockers:
        names = " ".join(progress.blockers)
        found.append(
            Problem(
                f"the StatefulSet waits for the old {names} to get ready before it makes new pods (podManagementPolicy"
                f" OrderedReady): kubectl delete pod {names}",
                bool(progress.to_delete),
            )
        )
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda item: not item.final)


def _of_object(raw, pods, new, now):
    if (raw.get("spec") or {}).get("paused") is True:
        yield Problem("the rollout is paused", True)
    starting = any(_is_running(pod) and not is_ready(pod) for pod in new)
    for item in (raw.get("status") or {}).get("conditions") or []:
        if item.get("type") == "ReplicaFailure" and item.get("status") == "True":
            final = _lasts(item.get("lastTransitionTime"), now, PATIENCE_S) and not _making_room(pods)
            yield Problem(f"its pods are refused: {_words(item.get('message'))}", final)
        if item.get("type") == "Progressing" and item.get("reason") == "ProgressDeadlineExceeded":
            # Kubernetes stops nothing then: a pod that still starts may get ready.
            yield Problem("its progress deadline is exceeded", not starting)


def _refusals(raw, pods, events, now, since):
    """Of kinds that have no such condition: what their controller may not make."""
    if raw.get("kind") == "Deployment":
        return
    uids = {meta(raw).get("uid")} | {
        item.get("uid") for pod in pods for item in meta(pod).get("ownerReferences") or []
    }
    newest: dict[str, Any] | None = None
    for event in events:
        seen = parse_time(last_time(event))
        if (
            (event.get("reason") or "").startswith("FailedCreate")
            and involved(event).get("uid") in uids
            and (since is None or (seen and seen >= since))
            and (newest is None or (last_time(event) or "") >= (last_time(newest) or ""))
        ):
            newest = event
    status = raw.get("status") or {}
    wanted = _count((raw.get("spec") or {}).get("replicas"), 1)
    if newest and (status.get("replicas") is None or status["replicas"] < wanted):
        first = newest.get("firstTimestamp") or last_time(newest)
        final = _lasts(first, now, PATIENCE_S) and not _making_room(pods)
        yield Problem(f"its pods are refused: {_words(newest.get('message'))}", final)


def _of_pod(pod, pods, events, nodes, now):
    name, status = name_of(pod), pod.get("status") or {}
    if is_going(pod):
        yield Problem(f"the new pod {name} is being deleted by somebody", False)
        return
    for item in status.get("conditions") or []:
        if item.get("type") == "PodScheduled" and item.get("status") == "False":
            if item.get("reason") == "SchedulingGated":
                yield Problem(f"pod {name} is held back by a scheduling gate (a queue such as Kueue)", False)
                continue
            final = (
                _lasts(item.get("lastTransitionTime"), now, PATIENCE_S)
                and not _making_room(pods)
                and not _scales_up(pod, events)
            )
            yield Problem(f"pod {name} finds no node: {_words(item.get('message'))}", final)
    for item in statuses(pod, "initContainerStatuses") + statuses(pod):
        waiting = (item.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in (*_CANT_START, "ErrImagePull"):
            yield Problem(
                f"container {item.get('name')} of pod {name} can't start: {waiting['reason']}{_colon(waiting.get('message'))}",
                waiting["reason"] in _CANT_START,
            )
    node = nodes.get((pod.get("spec") or {}).get("nodeName"))
    if node:
        yield from _of_node(node, name, now)


def _of_node(node, pod, now):
    if (node.get("spec") or {}).get("unschedulable"):
        yield Problem(f"node {name_of(node)} of pod {pod} is cordoned", False)
    for item in (node.get("status") or {}).get("conditions") or []:
        if item.get("type") == "Ready" and item.get("status") != "True":
            final = _lasts(item.get("lastTransitionTime"), now, NODE_PATIENCE_S)
            yield Problem(f"node {name_of(node)} of pod {pod} is not ready", final)


def _is_running(pod):
    return any("running" in (item.get("state") or {}) for item in statuses(pod))


def _making_room(pods):
    """Whether a pod is on its way out: its GPU and its share of the quota get free."""
    return any(map(is_going, pods))


def _scales_up(pod, events):
    uid = meta(pod).get("uid")
    return any(
        event.get("reason") == "TriggeredScaleUp" and involved(event).get("uid") == uid for event in events
    )


def _lasts(text, now, seconds):
    since = parse_time(text)
    return since is None or (now - since).total_seconds() >= seconds


def _words(text):
    words = " ".join(str(text or "no reason is given").split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _colon(text):
    return f": {_words(text)}" if text else ""


def evictions(uids, events):
    """Sentences about pods that are gone, by their last telling event. uids: of pods that were there."""
    return [
        f"pod {involved(event).get('name')} is gone: {event.get('reason')}{_colon(event.get('message'))}"
        for event in events
        if involved(event).get("uid") in uids and is_death(event) and event.get("reason") != "Killing"
    ]


# --- how long it may take


def time_limit(raw, progress, start_seconds):
    """Seconds that a rollout may take: what each start may, as often as pods come one after the other, and five minutes more;
    at least ten minutes, at most four hours. start_seconds: what a startup probe allows, None without one: half an hour.
    """
    spec = raw.get("spec") or {}
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    desired = max(1, progress.desired)
    at_once = 1
    if (
        strategy.get("type") == "Recreate"
        or spec.get("podManagementPolicy") == "Parallel"
        or raw.get("kind") == "DaemonSet"
    ):
        at_once = desired
    elif raw.get("kind") == "Deployment":
        at_once = max(
            1,
            _share(rolling.get("maxSurge"), desired, True)
            + _share(rolling.get("maxUnavailable"), desired, False),
        )
    rounds = math.ceil(desired / at_once)
    return min(4 * 3600.0, max(600.0, 300.0 + rounds * (1800.0 if start_seconds is None else start_seconds)))


def _share(value, desired, up):
    if value is None:
        value = "25%"
    text = str(value)
    if text.endswith("%") and text[:-1].isdigit():
        exact = desired * int(text[:-1]) / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(text) if text.isdigit() else 0
