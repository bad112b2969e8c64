# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container's attempt ended, by Kubernetes' status, events, node, kernel and the log's own words.

An exit code doesn't settle it: 137 also comes from probe kills, eviction, node shutdown and the end of the
grace period; ``OOMKilled`` may be a child's mark, a sticky mark, or a kill of the whole node (shared facts
"kubernetes-gpu-facts" section 1, from the sources of kubelet, containerd and CRI-O, Kubernetes up to 1.37).

The rules are one table, read from the top: the first that applies decides.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..documents import log_lines, proof
from .death_scene import NOT_STARTED, SHUTDOWN, SIGNALS, Scene, spec_known, starved_resource
from .times import lifetime, seconds, show_seconds

Rule = namedtuple("Rule", "name kind memory certain applies source")


# -- the rules' conditions: each returns the proofs that make it apply, or nothing ---------------------------


def _evicted(scene):
    if not scene.current:
        return None
    if scene.pod.get("reason") == "Evicted":
        return [scene.pod_proof()]
    if scene.reason == "Evicted":
        return [scene.status_proof()]
    if scene.disruption_kind[0] == "eviction":
        return [scene.condition_proof()]
    return None


def _node_shutdown(scene):
    if not scene.current:
        return None
    pod = scene.pod
    if pod.get("reason") == "NodeShutdown" or SHUTDOWN.search(pod.get("message") or ""):
        return [scene.pod_proof()]
    return [scene.condition_proof()] if scene.disruption_kind[0] == "node_shutdown" else None


def _preempted(scene):
    if not scene.current:
        return None
    if scene.pod.get("reason") in ("Preempting", "Preempted"):
        return [scene.pod_proof()]
    return [scene.condition_proof()] if scene.disruption_kind[0] == "preempted" else None


def _never_started(scene):
    if scene.state == "waiting" and scene.reason in NOT_STARTED:
        return [scene.status_proof()]
    started = scene.reason in ("StartError", "ContainerCannotRun")
    return [scene.status_proof()] if started else None


def _waiting(scene):
    return [scene.status_proof()] if scene.state == "waiting" and scene.code is None else None


def _running_child(scene):
    counters = scene.attempt.get("cgroup") or {}
    kills = (counters.get("memory") or {}).get("oom_kills")
    if scene.state != "running" or not kills:
        return None
    name = scene.container["name"]
    times = "1 OOM kill" if kills == 1 else f"{kills} OOM kills"
    file = "memory.oom_control" if counters.get("version") == 1 else "memory.events"
    text = f"container {name}: {times} among its processes ({file}), and PID 1 still runs"
    return [proof("cgroup", scene.object, text)]


def _running(scene):
    return [scene.status_proof()] if scene.state == "running" else None


def _kernel_node(scene):
    reports = scene.kernel(("node",)) if scene.oomish or scene.code is None else []
    return [scene.kernel_proof(reports[-1]), scene.status_proof()] if reports else None


def _kernel_limit(scene):
    reports = scene.kernel(("container", "pod"))
    whole = scene.signal == 9 or scene.code is None
    return [scene.kernel_proof(reports[-1]), scene.status_proof()] if reports and whole else None


def _kernel_child(scene):
    reports = scene.kernel(("container", "pod"))
    if not reports or scene.own_error:
        return None
    return [scene.kernel_proof(reports[-1]), scene.status_proof()]


def _near_kernel_node(scene):
    reports = scene.kernel(("node",), sure=False) if scene.oomish else []
    return [scene.kernel_proof(reports[-1]), scene.status_proof()] if reports else None


def _near_kernel_limit(scene):
    reports = scene.kernel(("container", "pod"), sure=False) if scene.signal == 9 else []
    return [scene.kernel_proof(reports[-1]), scene.status_proof()] if reports else None


def _oom_without_limit(scene):
    if scene.reason != "OOMKilled" or scene.signal != 9 or scene.memory_limit:
        return None
    if not spec_known(scene.pod, scene.container):
        return None
    text = f"container {scene.container['name']} has no memory limit that it could have reached"
    return [scene.status_proof(), proof("spec", scene.object, text)]


def _oom_137(scene):
    oom = scene.reason == "OOMKilled" and (scene.signal == 9 or scene.code is None)
    return [scene.status_proof()] if oom else None


def _oom_child_in_log(scene):
    line = scene.child_line if scene.child == 9 else None
    return [scene.status_proof(), scene.log_proof(line)] if scene.reason == "OOMKilled" and line else None


def _oom_child_silent(scene):
    if scene.reason != "OOMKilled" or scene.own_error or scene.code in (0, 143):
        return None
    return [scene.status_proof()] + ([scene.log_proof(scene.dead_child)] if scene.dead_child else [])


def _oom_sticky(scene):
    if scene.reason != "OOMKilled":
        return None
    return [scene.status_proof()] + ([scene.log_proof(scene.own_error)] if scene.own_error else [])


def _status_unknown(scene):
    lost = scene.reason == "ContainerStatusUnknown" or (scene.reason == "Unknown" and scene.code == 255)
    return [scene.status_proof()] if lost else None


def _probe_events(scene):
    return scene.events["startup"] + scene.events["liveness"]


def _probe_kill(scene):
    events = _probe_events(scene)
    if not events or not (scene.stopped or scene.sigterm_line) or _own_end(scene):
        return None
    return [scene.event_proof(events[-1]), scene.status_proof()]


def _probe_kills_before(scene):
    """Earlier runs were killed by a probe again and again, and this one ended by the same kind of signal."""
    events = scene.events["earlier"]
    if not events or scene.signal not in (9, 15) or scene.own_error or scene.deleted:
        return None
    return [scene.event_proof(events[-1]), scene.status_proof()]


def _own_end(scene):
    """True if it ended by an error of its own before anybody told it to stop (exit 1, no SIGTERM seen)."""
    return scene.code == 1 and bool(scene.own_error) and not scene.sigterm_line


def _grace_expired(scene):
    if scene.signal != 9:
        return None
    events = scene.events["stopping"]
    if scene.deleted:
        return [scene.deletion_proof(), scene.status_proof()]
    return [scene.event_proof(events[-1]), scene.status_proof()] if events else None


def _grace_expired_in_log(scene):
    if scene.signal != 9 or not scene.sigterm_line:
        return None
    return [scene.log_proof(scene.sigterm_line), scene.status_proof()]


def _told_to_stop(scene):
    """Proofs that somebody outside ended this attempt with SIGTERM: deletion, disruption, Killing."""
    found = []
    if scene.deleted:
        found.append(scene.deletion_proof())
    if scene.disruption_kind[0] == "sigterm":
        found.append(scene.condition_proof())
    found.extend(scene.event_proof(event) for event in scene.events["stopping"][-1:])
    return found


def _sigterm_known(scene):
    if not scene.stopped or _own_end(scene) or scene.code == 137:
        return None
    found = _told_to_stop(scene)
    return [*found, scene.status_proof()] if found else None


def _disrupted_137(scene):
    if scene.signal != 9 or scene.disruption_kind[0] != "sigterm":
        return None
    return [scene.condition_proof(), scene.status_proof()]


def _sigterm(scene):
    return [scene.status_proof()] if scene.signal == 15 else None


def _sigterm_in_log(scene):
    line = scene.sigterm_line
    own = scene.own_error
    if not line or (own and own["line"] < line["line"]) or not scene.stopped:
        return None
    return [scene.log_proof(line), scene.status_proof()]


def _sigkill(scene):
    return [scene.status_proof()] if scene.signal == 9 else None


def _signal(scene):
    return [scene.status_proof()] if scene.signal else None


def _before_own_error(scene):
    own, line = scene.own_error, scene.child_line
    return line is not None and (own is None or own["line"] >= line["line"])


def _child_sigkill(scene):
    if scene.child != 9 or not _before_own_error(scene):
        return None
    return [scene.log_proof(scene.child_line), scene.status_proof()]


def _child_signalled(scene):
    if not scene.child or not _before_own_error(scene):
        return None
    return [scene.log_proof(scene.child_line), scene.status_proof()]


def _completed(scene):
    return [scene.status_proof()] if scene.code == 0 else None


def _exit(scene):
    return [scene.status_proof()]


# From the strongest witness to the weakest. "k8s" numbers are sections of "kubernetes-gpu-facts", "vllm" of
# "vllm-memory".
RULES = (
    Rule("evicted", "eviction", "node", True, _evicted, "k8s 1.5"),
    Rule("node_shutdown", "node_shutdown", "none", True, _node_shutdown, "k8s 1.5, 1.6"),
    Rule("preempted", "preempted", "none", True, _preempted, "k8s 1.5, 1.6"),
    Rule("never_started", "start_error", "none", True, _never_started, "k8s 1.2 StartError/128"),
    Rule("waiting", "waiting", "none", True, _waiting, "k8s 1.8"),
    Rule(
        "running_after_child_kill", "oom_killed_child", "host", True, _running_child, "k8s 4.2 memory.events"
    ),
    Rule("running", "running", "none", True, _running, "k8s 1.1"),
    Rule("kernel_says_node", "oom_killed_node", "node", True, _kernel_node, "k8s 3.1 global_oom"),
    Rule("kernel_says_limit", "oom_killed_container", "host", True, _kernel_limit, "k8s 3.1 oom_memcg"),
    Rule("kernel_says_child", "oom_killed_child", "host", True, _kernel_child, "k8s 1.3, 3.1"),
    Rule("kernel_near_node", "oom_killed_node", "node", False, _near_kernel_node, "k8s 2 SystemOOM"),
    Rule("kernel_near_limit", "oom_killed_container", "host", False, _near_kernel_limit, "k8s 2 OOMKilling"),
    Rule("oom_without_limit", "oom_killed_node", "node", False, _oom_without_limit, "k8s 1.2 OOMKilled/137"),
    Rule("oom_137", "oom_killed_container", "host", False, _oom_137, "k8s 1.2 OOMKilled/137"),
    Rule("oom_child_in_log", "oom_killed_child", "host", True, _oom_child_in_log, "k8s 1.2, 1.3; vllm 3.14"),
    Rule("oom_child_silent", "oom_killed_child", "host", False, _oom_child_silent, "k8s 1.2 OOMKilled/other"),
    Rule("oom_sticky", "oom_mark_sticky", "unknown", False, _oom_sticky, "k8s 1.2 OOMKilled/other"),
    Rule(
        "status_unknown", "status_unknown", "unknown", True, _status_unknown, "k8s 1.2 ContainerStatusUnknown"
    ),
    Rule("probe", "probe_kill", "none", True, _probe_kill, "k8s 1.4"),
    Rule("disrupted_137", "grace_period_expired", "none", True, _disrupted_137, "k8s 1.6"),
    Rule("grace_expired", "grace_period_expired", "none", True, _grace_expired, "k8s 1.2 Error/137"),
    Rule(
        "grace_expired_in_log",
        "grace_period_expired",
        "none",
        False,
        _grace_expired_in_log,
        "k8s 1.2 Error/137",
    ),
    Rule("told_to_stop", "sigterm", "none", True, _sigterm_known, "k8s 1.2 Error/143, 1.6"),
    Rule("probe_before", "probe_kill", "none", False, _probe_kills_before, "k8s 1.4, 2 event spam filter"),
    Rule("sigterm", "sigterm", "none", True, _sigterm, "k8s 1.2 Error/143"),
    Rule("sigkill", "sigkill_unattributed", "unknown", False, _sigkill, "k8s 1.2 Error/137"),
    Rule("signal", "signal", "none", True, _signal, "k8s 1.2 Error/134, 135, 139"),
    Rule("sigterm_in_log", "sigterm", "none", False, _sigterm_in_log, "k8s 1.4; vllm 8.4"),
    Rule("child_sigkill", "sigkill_unattributed", "host", False, _child_sigkill, "vllm 3.14"),
    Rule("child_signal", "signal", "none", False, _child_signalled, "vllm 3.14"),
    Rule("completed", "completed", "none", True, _completed, "k8s 1.2 Completed/0"),
    Rule("exit", "exit", "unknown", True, _exit, "k8s 1.2 Error/1"),
)

SENTENCES = {
    "oom_killed_container": "the kernel killed the container because its memory limit was reached",
    "oom_killed_child": "the kernel killed a process of the container for its memory; PID 1 lived on",
    "oom_killed_node": "the kernel killed it because the node's memory ran out, not because of its own limit",
    "oom_mark_sticky": "the mark OOMKilled is a child process's, perhaps an old one; PID 1 ended for its own reason",
    "probe_kill": "the kubelet killed the container because a probe failed",
    "eviction": "the kubelet evicted the pod",
    "sigterm": "the container was told to stop with SIGTERM",
    "grace_period_expired": "the container was told to stop and killed when its grace period was over",
    "node_shutdown": "the node was shut down",
    "preempted": "the pod had to make room for a more important one",
    "status_unknown": "the node lost the container; its exit code is made up by the kubelet",
    "start_error": "the container never started",
    "signal": "a process of the container ended by a signal",
    "sigkill_unattributed": "it was killed with SIGKILL, and nothing at hand shows by whom",
    "exit": "the container ended by itself with an error",
    "completed": "the container ended by itself with exit code 0",
    "running": "the container runs",
    "waiting": "the container waits to be started",
}

# Ends in which the container had its grace period to finish.
_STOPS = ("sigterm", "grace_period_expired", "node_shutdown", "preempted", "probe_kill")

_KERNEL_LOG = (
    "the node's kernel log at the time of death: oom_memcg= (a limit) or global_oom (the whole node)"
)
_KILLING = "the pod's Killing events and who deleted or drained it at that time"
WOULD_SETTLE = {
    "oom_killed_container": [_KERNEL_LOG],
    "oom_killed_child": [
        _KERNEL_LOG,
        "the log's first line about a process that died, in this and earlier attempts",
    ],
    "oom_killed_node": [_KERNEL_LOG, "other pods on the node that were killed or grew at the same time"],
    "oom_mark_sticky": [_KERNEL_LOG, "the log's first error before the exit"],
    "sigkill_unattributed": [_KERNEL_LOG, _KILLING, "working set against the limit just before the death"],
    "grace_period_expired": [_KILLING],
    "sigterm": [_KILLING],
    "probe_kill": [_KILLING],
    "exit": ["the container's last state: reason and exit code (kubectl describe pod)"],
    "signal": ["the log lines before the signal, and the kernel log (segfault, Xid)"],
}


def _sender(scene, kind):
    """Who told the container to stop, in words, or None."""
    if kind == "probe_kill":
        return f"the kubelet: the {scene.probe} probe failed"
    if kind not in ("sigterm", "grace_period_expired", "node_shutdown", "preempted", "eviction"):
        return None
    sender = scene.disruption_kind[1]
    if sender:
        return sender
    if kind == "node_shutdown":
        return "the kubelet: the node shuts down"
    if kind == "preempted":
        return "the kubelet or the scheduler, for a pod of higher priority"
    if kind == "eviction":
        return "the kubelet"
    return "somebody deleted the pod (rollout, scale-down, kubectl delete)" if scene.deleted else None


# Which of the kernel's reports a rule went by: whose memory was full, and whether the report names this
# container.
_KERNEL_RULES = {
    "kernel_says_node": (("node",), True),
    "kernel_says_limit": (("container", "pod"), True),
    "kernel_says_child": (("container", "pod"), True),
    "kernel_near_node": (("node",), False),
    "kernel_near_limit": (("container", "pod"), False),
}


def _kernel_report(scene, rule):
    wanted = _KERNEL_RULES.get(rule.name)
    return scene.kernel(*wanted)[-1] if wanted else None


def death(pod, container, attempt, node=None):
    """How ``attempt`` of ``container`` ended (evidence shapes, see documents.py).

    Returns ``kind`` (SENTENCES has them all), ``rule`` (the row of RULES that decided), ``source`` (where the
    rule comes from), ``sentence``, ``memory`` (what the death alone says ran out: host, node, none, unknown),
    ``certain`` (False: another reading is open, ``would_settle`` says what closes it), ``signal`` (number),
    ``signal_name``, ``exit_code``, ``child`` (the signal ended a child process, not PID 1), ``probe``
    (startup or liveness), ``sender``, ``drain`` (see drain_time), ``scope`` (container, pod or node: whose
    memory was full, if the kernel says it), ``kernel`` (its report), ``own_error`` (the log's first error
    that isn't itself a consequence of a death), ``seconds`` (how long it ran) and ``evidence``.
    """
    scene = Scene(pod, container, attempt, node)
    for rule in RULES:
        proofs = rule.applies(scene)
        if proofs:
            return _result(scene, rule, proofs)
    raise AssertionError("the last rule applies to everything")  # pragma: no cover


_SLEEP = re.compile(r"sleep (?P<seconds>\d+(?:\.\d+)?)")


def drain_time(pod, container):
    """How long running requests have after the container was told to stop: ``{grace, pre_stop, left, sentence}``.

    The grace period starts before the preStop hook, so the hook's time is lost for the engine. ``pre_stop``
    is the hook's own sleep in seconds, None without one or when it isn't a plain sleep; ``left`` is None
    then.
    """
    grace = pod.get("grace_period")
    hook = (container.get("lifecycle") or {}).get("pre_stop")
    slept = _SLEEP.search(hook or "")
    pre_stop = float(slept.group("seconds")) if slept else None
    if grace is None:
        return {"grace": None, "pre_stop": pre_stop, "left": None, "sentence": None}
    left = grace if not hook else (max(0.0, grace - pre_stop) if pre_stop is not None else None)
    text = f"The grace period is {grace:g} s"
    if pre_stop is not None:
        text += f", of which the preStop hook sleeps {pre_stop:g} s: {left:g} s are left to finish requests"
    elif hook:
        text += f", and the preStop hook ({hook}) takes its time from it"
    return {"grace": grace, "pre_stop": pre_stop, "left": left, "sentence": text + "."}


def _result(scene, rule, proofs):
    certain = rule.certain and not (rule.name == "exit" and scene.code is None)
    report = _kernel_report(scene, rule)
    child = rule.kind == "oom_killed_child" or rule.name.startswith("child_")
    signal = (scene.child or 9 if rule.kind == "oom_killed_child" else scene.child) if child else scene.signal
    memory, starved = rule.memory, None
    if rule.kind == "eviction":
        starved = starved_resource(scene.pod, log_lines(scene.attempt.get("log") or {}))
        memory = {"memory": "node", None: "unknown"}.get(starved, "none")
    return {
        "kind": rule.kind,
        "rule": rule.name,
        "source": rule.source,
        "sentence": SENTENCES[rule.kind],
        "memory": memory,
        "resource": starved,
        "certain": certain,
        "signal": signal,
        "signal_name": SIGNALS.get(signal),
        "exit_code": scene.code,
        "child": child,
        "probe": scene.probe if rule.kind == "probe_kill" else None,
        "sender": _sender(scene, rule.kind),
        "drain": drain_time(scene.pod, scene.container) if rule.kind in _STOPS else None,
        "scope": report["scope"] if report else None,
        "kernel": report,
        "own_error": scene.own_error,
        "seconds": lifetime(scene.attempt),
        "evidence": proofs,
        "would_settle": [] if certain else list(WOULD_SETTLE.get(rule.kind, [])),
    }


# A container that ran this long counts as healthy for the kubelet: its restart backoff is reset (k8s 1.8).
HEALTHY_AFTER = 600.0
_SIMILAR = 0.25


def _serving_since(attempt):
    """When the attempt began to serve (seconds since 1970 or None), and whether a marker says it did."""
    markers = (attempt.get("log") or {}).get("markers") or []
    serving = [item for item in markers if item.get("phase") == "serving"]
    return (seconds(serving[0].get("time")) if serving else None), bool(serving)


def time_to_death(container):
    """How long the container's attempts lived, and whether that looks like growth or like one sudden demand.

    Returns ``{seconds: [...], restarts, served, similar, pattern, sentence}``; ``seconds`` holds the known
    lifetimes of the terminated attempts, oldest first; ``served`` whether the last of them reached serving
    (None: not known); ``similar`` whether the lifetimes differ by at most 25 % (None with fewer than two);
    ``pattern`` growth, sudden or None.

    growth: it served and died at least HEALTHY_AFTER later. sudden: it died before it served, or within
    HEALTHY_AFTER of its start. The API keeps one earlier attempt only, so ``seconds`` is a sample when
    ``restarts`` is larger.
    """
    ended = [item for item in container.get("attempts") or [] if item.get("state") == "terminated"]
    known = [(item, lifetime(item)) for item in ended]
    lived = [value for _item, value in known if value is not None]
    last = ended[-1] if ended else {}
    since, served = _serving_since(last)
    complete = (last.get("log") or {}).get("complete")
    lasted = lifetime(last) if last else None
    pattern = None
    if served:
        finished = seconds(last.get("finished_at"))
        after = finished - since if finished is not None and since is not None else lasted
        if after is not None:
            pattern = "growth" if after >= HEALTHY_AFTER else "sudden"
    elif (ended and complete) or (lasted is not None and lasted < HEALTHY_AFTER):
        pattern = "sudden"
    similar = None
    if len(lived) > 1:
        similar = max(lived) - min(lived) <= _SIMILAR * max(lived)
    return {
        "seconds": lived,
        "restarts": container.get("restart_count"),
        "served": True if served else (False if complete else None),
        "similar": similar,
        "pattern": pattern,
        "sentence": _time_sentence(lived, container.get("restart_count"), pattern, similar),
    }


def _time_sentence(lived, restarts, pattern, similar):
    if not lived:
        return None
    text = f"It lived {', '.join(show_seconds(value) for value in lived)}"
    if restarts and restarts > len(lived):
        text += f" ({len(lived)} of {restarts + 1} runs are still known)"
    if pattern == "growth":
        text += ", long after it began to serve: its memory grew"
    elif pattern == "sudden":
        text += ", which points at one sudden demand, not at slow growth"
    if similar:
        text += "; the same time each run points at the same step"
    return text + "."
