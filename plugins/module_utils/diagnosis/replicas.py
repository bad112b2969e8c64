# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods judged together: the pods of one engine, whose first error may be in another pod, and replicas of one workload.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from .times import seconds

# What a rank reports when another one died: never the group's trigger while a pod says something of its own
# (kubernetes-gpu-facts 10.4: the rank that prints "remote process exited" is a victim). SIGTERM is among
# them, since a group's controller stops all pods when one fails (1.8).
VICTIM_CAUSES = frozenset(
    (
        "nccl_not_memory",
        "not_memory_hang",
        "exit_code_masked",
        "sigterm_shutdown",
        "status_unknown",
        "undetermined",
    )
)

# vLLM's own stamp, without a year: "11-30 07:00:00".
_SHORT_STAMP = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
# Labels that change with the pod template (Deployment, Argo Rollouts, StatefulSet and DaemonSet, LWS).
_TEMPLATE_LABELS = (
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
)


def _key(pod):
    return f"{pod.get('namespace') or ''}/{pod.get('name')}"


def _pairs(evidence, pod_results):
    """(evidence pod, its diagnosis) for every diagnosed pod, by uid, else by namespace and name."""
    by_uid = {pod["uid"]: pod for pod in evidence.get("pods") or [] if pod.get("uid")}
    by_name = {_key(pod): pod for pod in evidence.get("pods") or []}
    for result in pod_results:
        pod = by_uid.get(result.get("uid")) or by_name.get(_key(result))
        if pod is not None:
            yield pod, result


def _trigger(result):
    return next((item for item in result.get("findings") or [] if item["role"] == "trigger"), None)


# -- one engine over several pods ----------------------------------------------------------------------------


def group_diagnoses(evidence, pod_results):
    """The diagnosis of each group, ``[{ref, pods, trigger_pod, sentence, findings}]``.

    evidence: the evidence document; pod_results: the ``pods`` of the diagnosis. ``pods`` and ``trigger_pod``
    are ``namespace/name``. ``findings``: the trigger of the pod whose error was first, as the group's
    trigger, then the other pods' triggers as cascade, in order of time; each has ``pod``.
    """
    pairs = list(_pairs(evidence, pod_results))
    found = []
    for group in evidence.get("groups") or []:
        members = [(pod, result) for pod, result in pairs if _key(pod) in group["pods"]]
        if len(group["pods"]) > 1 and members:
            found.append(_group(group, members))
    return found


def _group(group, members):
    failed = [(pod, _trigger(result)) for pod, result in members]
    failed = [(pod, trigger) for pod, trigger in failed if trigger is not None]
    ordered = _by_time(failed)
    result = {
        "ref": group["ref"],
        "pods": list(group["pods"]),
        "trigger_pod": None,
        "sentence": None,
        "findings": [],
    }
    if not ordered:
        return result
    first, trigger = ordered[0]
    unseen = _unseen(group, members)
    confidence = trigger["confidence"]
    timed = len(ordered) < 2 or _comparable(failed) is not None
    if confidence == "certain" and (unseen or not timed):
        confidence = "likely"
    settle = list(trigger["would_settle"])
    settle.extend(f"the log of {name}: an earlier error may be there" for name in unseen)
    result["trigger_pod"] = _key(first)
    result["sentence"] = _group_sentence(first, ordered, timed)
    result["findings"] = [dict(trigger, pod=_key(first), confidence=confidence, would_settle=settle)]
    result["findings"].extend(dict(item, role="cascade", pod=_key(pod)) for pod, item in ordered[1:])
    return result


def _group_sentence(first, ordered, timed):
    if len(ordered) == 1:
        return f"Only {first['name']} of this engine failed by itself."
    others = ", ".join(pod["name"] for pod, _item in ordered[1:])
    how = "failed first" if timed else "is the one whose error is no consequence, as far as the times tell"
    return f"{first['name']} {how}; {others} followed. Fix what {first['name']} reports."


def _unseen(group, members):
    """Pods of the group that aren't in the evidence or whose failing attempt's log couldn't be read."""
    missing = [name for name in group["pods"] if name not in {_key(pod) for pod, _result in members}]
    for pod, _result in members:
        ended = [
            attempt
            for container in pod.get("containers") or []
            if container.get("engine")
            for attempt in container.get("attempts") or []
            if attempt.get("state") == "terminated"
        ]
        if any(not (attempt.get("log") or {}).get("readable") for attempt in ended):
            missing.append(_key(pod))
    return missing


def _log_stamps(item):
    return [shown.get("time") for shown in item["evidence"] if shown["source"] in ("log", "kernel")]


def _clock_time(pod, item):
    """Seconds by a real clock in the trigger's own lines, or None."""
    return next((seconds(stamp) for stamp in _log_stamps(item) if seconds(stamp) is not None), None)


def _short_time(pod, item):
    """vLLM's stamp as comparable numbers, or None. Within one engine all pods use one time zone."""
    for stamp in _log_stamps(item):
        match = _SHORT_STAMP.match(stamp or "")
        if match:
            return tuple(int(part) for part in match.groups())
    return None


def _end_time(pod, item):
    """When the attempt ended, in seconds, or None."""
    for container in pod.get("containers") or []:
        if container["name"] == item["container"]:
            for attempt in container.get("attempts") or []:
                if attempt.get("index") == item["attempt"]:
                    return seconds(attempt.get("finished_at"))
    return None


def _comparable(failed):
    """The first way of telling time that all triggers share, or None."""
    for clock in (_clock_time, _short_time, _end_time):
        if all(clock(pod, item) is not None for pod, item in failed):
            return clock
    return None


def _by_time(failed):
    """The triggers in order: real errors before what victims report, then by time, then as the evidence has them."""
    clock = _comparable(failed)

    def order(entry):
        pod, item = entry
        return (item["cause"] in VICTIM_CAUSES, clock(pod, item) if clock else 0)

    return sorted(failed, key=order)


# -- replicas of one workload --------------------------------------------------------------------------------


def workload_diagnoses(evidence, pod_results):
    """Replicas of one workload judged together, ``[{ref, pods, sentence, serving, template_suspect, findings}]``.

    Pods of a workload that fail in the same way are one entry, those that fail differently are listed apart.
    ``findings``: the trigger once, with ``pods``; ``serving``: the pods of that workload that are ready, with
    the same template; ``template_suspect``: False when such pods serve (then look at node, GPU, volume and
    traffic first), None when it isn't known. Only workloads of which more than one pod is known.
    """
    workloads: dict[tuple, list] = {}
    for pod, result in _pairs(evidence, pod_results):
        ref = _workload_ref(pod)
        if ref:
            workloads.setdefault((pod.get("namespace"), ref), []).append((pod, result))
    found = []
    for (namespace, ref), members in workloads.items():
        replicas = (members[0][0].get("workload") or {}).get("replicas") or {}
        if len(members) > 1 or (replicas.get("desired") or 0) > 1:
            found.extend(_workload(f"{namespace or ''}/{ref}", members))
    return found


def _workload_ref(pod):
    workload = pod.get("workload") or {}
    edit = workload.get("edit") or workload
    kind, name = edit.get("kind"), edit.get("name")
    return f"{kind}/{name}" if kind and name and kind != "Pod" else None


def _workload(ref, members):
    failures: dict[tuple, list] = {}
    for pod, result in members:
        trigger = _trigger(result)
        if trigger is not None:
            failures.setdefault((trigger["cause"], trigger["memory"]), []).append((pod, trigger))
    entries = []
    for failed in sorted(failures.values(), key=lambda item: -len(item)):
        serving, counted = _serving(failed[0][0], members)
        entries.append(
            {
                "ref": ref,
                "pods": [_key(pod) for pod, _item in failed],
                "sentence": _workload_sentence(failed, len(members), len(serving) or counted, len(failures)),
                "serving": serving,
                "template_suspect": _suspect(serving, counted, failed, members),
                "findings": [dict(failed[0][1], pods=[_key(pod) for pod, _item in failed])],
            }
        )
    return entries


def _is_ready(pod):
    return any(
        item.get("type") == "Ready" and item.get("status") == "True" for item in pod.get("conditions") or []
    )


def _template(pod):
    labels = pod.get("labels") or {}
    return next((labels[name] for name in _TEMPLATE_LABELS if labels.get(name)), None)


def _serving(failed_pod, members):
    """``(ready pods with the failed pod's template, how many more are ready by the controller's counts)``."""
    template = _template(failed_pod)
    ready = [_key(pod) for pod, _result in members if _is_ready(pod) and _template(pod) == template]
    replicas = (failed_pod.get("workload") or {}).get("replicas") or {}
    return (ready if template else []), replicas.get("same_template_ready") or 0


def _suspect(serving, counted, failed, members):
    if serving or counted:
        return False
    return True if len(failed) == len(members) and len(failed) > 1 else None


def _workload_sentence(failed, known, serving, ways):
    cause = failed[0][1]["cause"]
    text = f"{len(failed)} of {known} known replicas failed with {cause}"
    if serving:
        text += (
            f"; {serving} with the same template serve, so look at node, GPU and traffic before the template"
        )
    elif len(failed) == known and known > 1:
        text += "; all of them, so the template or what it loads is the first suspect"
    if ways > 1:
        text += f"; replicas of this workload fail in {ways} different ways"
    return text + "."
