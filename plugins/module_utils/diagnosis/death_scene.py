# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules about a container's death look at: status, events, node, kernel and log of one attempt, read once.

Sources: shared facts "kubernetes-gpu-facts" sections 1 to 4 and "vllm-memory" 3.14.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import log_lines, proof
from . import kernel_oom, signatures
from .times import lifetime, seconds, show_seconds

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}

# Waiting reasons under which the container has not started at all (kubelet and its image manager).
NOT_STARTED = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
    "PreStartHookError",
    "PostStartHookError",
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
)

_PROBE_KILL = re.compile(r"Container (?P<name>\S+) failed (?P<probe>startup|liveness) probe")
_STOPPING = re.compile(r"Stopping container (?P<name>\S+)")
SHUTDOWN = re.compile(r"node shutdown|node is shutting down", re.IGNORECASE)
_LOW_ON_RESOURCE = re.compile(
    r"low on resource|had condition: \[\w*Pressure|emptyDir|ephemeral", re.IGNORECASE
)

# A child process that ended by a signal, as vLLM, multiprocessing, torch and Ray print it ("vllm-memory"
# 3.14).
_CHILD_SIGNAL = (
    re.compile(r"proc\(s\): \{[^}]*: (?P<code>-\d+)[,}]"),
    re.compile(r"(?:exit ?code|exitcode)\b\s*[:=]?\s*(?P<code>-\d+)", re.IGNORECASE),
    re.compile(r"killed by signal: (?P<word>Killed|Bus error|Segmentation fault|Aborted|Terminated)"),
)
_SIGNAL_WORDS = {"Killed": 9, "Bus error": 7, "Segmentation fault": 11, "Aborted": 6, "Terminated": 15}
_SIGTERM_RECEIVED = re.compile(
    r"KeyboardInterrupt: terminated|trigger received signal=SIGTERM|received signal:? (?:15|SIGTERM)|"
    r"Received (?:SIGTERM|signal 15)",
    re.IGNORECASE,
)
# Lines that come from outside the engine or only say that it was stopped: no error of its own.
_NOT_OWN = re.compile(
    r"KeyboardInterrupt|SystemExit|CancelledError|oom-kill|Kill(?:ed)? process|OOM killer|killed by signal|"
    r"^Killed$|"
    r"exit ?code:? -\d+|Connection (?:closed|reset)|Broken ?pipe|EOFError|Container \S+ failed \w+ probe",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception)\b")

# What the kubelet says that a node or volume ran short of (K-EVH, K-EVM): pattern -> resource.
_STARVED = (
    (re.compile(r"low on resource: (?P<resource>[\w.-]+)"), None),
    (re.compile(r"had condition: \[(?P<resource>\w+)\]"), None),
    (re.compile(r"Usage of EmptyDir volume"), "ephemeral-storage"),
    (
        re.compile(r"exceeded its local ephemeral storage limit|ephemeral local storage usage exceeds"),
        "ephemeral-storage",
    ),
)
_STARVED_NAMES = {
    "MemoryPressure": "memory",
    "DiskPressure": "ephemeral-storage",
    "PIDPressure": "pids",
    "memory.available": "memory",
    "allocatableMemory.available": "memory",
}

# Clocks of kubelet, API server and node differ a little, and events carry whole seconds.
_SLACK = 30.0
_DEFAULT_GRACE = 30.0
# The kubelet stops repeating an event after a while (its spam filter), so the Killing events of later runs are
# missing: that many kills of earlier runs by one probe are taken to go on.
_REPEATED = 3

# DisruptionTarget's reason -> (kind of death, who did it) (kubernetes, pod disruption conditions).
_DISRUPTIONS = {
    "PreemptionByScheduler": ("preempted", "the scheduler, to make room for a pod of higher priority"),
    "EvictionByEvictionAPI": ("sigterm", "the eviction API (kubectl drain, cluster autoscaler, descheduler)"),
    "DeletionByTaintManager": ("sigterm", "the taint manager: the node carries a NoExecute taint"),
    "DeletionByPodGC": ("sigterm", "the pod garbage collector: the node is gone"),
}


def exit_signal(attempt):
    """The signal number that ended an attempt, or None. Runtimes leave ``signal`` unset; 128+n says it."""
    if attempt.get("signal"):
        return attempt["signal"]
    code = attempt.get("exit_code")
    if code is None:
        return None
    if -64 <= code < 0:
        return -code
    return code - 128 if code - 128 in SIGNALS else None


def current_attempt(container):
    """The attempt that a pod-level event can have ended: the last that ran or runs, else the last."""
    attempts = container.get("attempts") or []
    ran = [item for item in attempts if item.get("state") != "waiting"]
    return (ran or attempts or [None])[-1]


def _covers(event, moment, before=0.0, after=0.0):
    """True if ``moment`` (seconds) lies in the event's time span; True as well when either isn't known."""
    first, last = seconds(event.get("first_at")), seconds(event.get("last_at"))
    first, last = (last if first is None else first), (first if last is None else last)
    if moment is None or first is None or last is None:
        return True
    return first - before <= moment <= last + after


def _killing_events(pod, container, attempt):
    """The pod's Killing events that name this container and can have ended this attempt, by what they say."""
    grace = pod.get("grace_period") or _DEFAULT_GRACE
    found: dict[str, list] = {"startup": [], "liveness": [], "stopping": [], "earlier": []}
    for event in pod.get("events") or []:
        message = event.get("message") or ""
        probe, stopping = _PROBE_KILL.search(message), _STOPPING.search(message)
        match = probe or stopping
        if not match or match.group("name").rstrip(",.") != container["name"]:
            continue
        if not _covers(event, seconds(attempt.get("finished_at")), _SLACK, grace + _SLACK):
            if probe and (event.get("count") or 1) >= _REPEATED:
                found["earlier"].append(event)
            continue
        found[probe.group("probe") if probe else "stopping"].append(event)
    return found


def _kernel_sources(pod, attempt, node):
    """Kernel lines at hand, source by source: ``([(text, time)], trusted)``. trusted: this attempt's own log."""
    yield [(item["text"], item.get("time")) for item in log_lines(attempt.get("log") or {})], True
    lines: list[tuple] = []
    for item in (node or {}).get("kernel_oom") or []:
        text, time = (item, None) if isinstance(item, str) else (item.get("text") or "", item.get("time"))
        lines.extend((part, time) for part in text.splitlines())
    yield lines, False
    for event in list((node or {}).get("events") or []) + list(pod.get("events") or []):
        if event.get("reason") in ("OOMKilling", "SystemOOM"):
            yield [(event.get("message") or "", event.get("last_at"))], False


def _kernel_reports(pod, container, attempt, node):
    """Kernel OOM reports about this attempt; each with ``time`` and ``sure`` (by cgroup or its own log)."""
    # A run's own id tells its kill from those of other runs; an older bundle knows none.
    own = attempt.get("container_id")
    ids = [own] if own else [item.get("container_id") for item in container.get("attempts") or []]
    once = not container.get("restart_count")
    finished, started = seconds(attempt.get("finished_at")), seconds(attempt.get("started_at"))
    found = []
    for lines, trusted in _kernel_sources(pod, attempt, node):
        for report in kernel_oom.parse([text for text, _time in lines]):
            index = report["first"] if report["index"] is None else report["index"]
            time = lines[index][1]
            about = kernel_oom.concerns(report, pod.get("uid"), ids)
            moment = seconds(time)
            early = moment is not None and started is not None and moment < started - _SLACK
            late = moment is not None and finished is not None and moment > finished + _SLACK
            if about is False or early or late:
                continue
            # A nameless line without a time may be this one: it is taken, but never as certain.
            near = moment is None or finished is None or abs(moment - finished) <= 2 * _SLACK
            # One that names the pod and neither its run nor a time may be an earlier run's.
            this_run = about and (once or moment is not None or bool(own and report["container_id"]))
            if about or trusted or near:
                found.append(dict(report, time=time, sure=bool(this_run or trusted)))
    return found


def _child_signal(lines):
    """(signal number, line) of the first child that a signal other than SIGTERM ended, or (None, None)."""
    for line in lines:
        for pattern in _CHILD_SIGNAL:
            match = pattern.search(line["text"])
            if not match:
                continue
            groups = match.groupdict()
            number = _SIGNAL_WORDS[groups["word"]] if "word" in groups else -int(groups["code"])
            if number in SIGNALS and number != 15:
                return number, line
    return None, None


def _is_own_error(text):
    """True if an error line is about the engine itself, not about being stopped or about a dead child."""
    if _NOT_OWN.search(text):
        return False
    kinds = {item.signature.kind for item in signatures.match(text)}
    return bool(kinds & set(signatures.STRONG_KINDS)) if kinds else bool(_EXCEPTION.match(text))


def _resource_named(text):
    for pattern, resource in _STARVED:
        match = pattern.search(text or "")
        if match:
            name = resource or match.group("resource").rstrip(".")
            return _STARVED_NAMES.get(name, name)
    return None


def starved_resource(pod, lines=()):
    """What an evicted pod's node or volume ran short of (memory, ephemeral-storage, inodes, pids), or None.

    lines: log lines (documents.line) to read where the pod's own status says nothing (pasted describe
    output).
    """
    for event in pod.get("events") or []:
        named = (event.get("details") or {}).get("starved_resource")
        if event.get("reason") == "Evicted" and named:
            return _STARVED_NAMES.get(named, named)
    texts = [pod.get("message"), *(c.get("message") for c in pod.get("conditions") or [])]
    texts.extend(e.get("message") for e in pod.get("events") or [] if e.get("reason") == "Evicted")
    texts.extend(item["text"] for item in lines)
    return next((found for found in map(_resource_named, texts) if found), None)


def spec_known(pod, container):
    """False when only a log or a status was read: then a missing limit is missing in the evidence, not in the pod.

    A pod from the API has a uid, a describe text a QoS class; a manifest has neither, but states some
    resources.
    """
    resources = container.get("resources") or {}
    return bool(pod.get("uid") or pod.get("qos") or resources.get("requests") or resources.get("limits"))


def _disruption(pod):
    """The pod's DisruptionTarget condition, or None."""
    for condition in pod.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return condition
    return None


class Scene:
    """The facts about how one attempt of a container ended. Shapes as in documents.py; ``node`` may be None."""

    def __init__(self, pod, container, attempt, node=None):
        excerpt = attempt.get("log") or {}
        lines = log_lines(excerpt)
        errors = excerpt.get("errors") or []
        self.pod = pod
        self.container = container
        self.attempt = attempt
        self.state = attempt.get("state")
        self.reason = attempt.get("reason")
        self.code = attempt.get("exit_code")
        self.signal = exit_signal(attempt)
        # A pod-level event can only have ended the run that was the last.
        self.current = attempt == current_attempt(container)
        self.events = _killing_events(pod, container, attempt)
        self.disruption = _disruption(pod)
        self.kernel_reports = _kernel_reports(pod, container, attempt, node)
        self.child, self.child_line = _child_signal(lines)
        self.own_error = next((item for item in errors if _is_own_error(item["text"])), None)
        self.dead_child = next((item for item in lines if "died unexpectedly" in item["text"]), None)
        self.sigterm_line = next((item for item in lines if _SIGTERM_RECEIVED.search(item["text"])), None)

    @property
    def object(self):
        """The pod as proofs name it."""
        return f"Pod/{self.pod['name']}"

    def status_proof(self):
        """The container's own status: state, reason, exit code, signal, lifetime, message."""
        attempt = self.attempt
        parts = [f"container {self.container['name']}: {attempt.get('state') or 'state not known'}"]
        for field, label in (("reason", "reason"), ("exit_code", "exit code"), ("signal", "signal")):
            if attempt.get(field) is not None:
                parts.append(f"{label} {attempt[field]}")
        ran = lifetime(attempt)
        if ran is not None:
            parts.append(f"after {show_seconds(ran)}")
        if attempt.get("message"):
            parts.append(str(attempt["message"]).strip()[:300])
        if len(parts) == 1 and attempt.get("state") == "terminated":
            # A plain log shows that the run ended, and nobody reported a status.
            parts = [f"container {self.container['name']}: how it ended is not known (no status at hand)"]
        return proof("status", self.object, ", ".join(parts), time=attempt.get("finished_at"))

    def pod_proof(self):
        pod = self.pod
        text = f"pod {pod.get('pod_phase') or ''}: {pod.get('reason') or ''}. {pod.get('message') or ''}"
        return proof("status", self.object, " ".join(text.split()))

    def event_proof(self, event):
        text = f"{event['reason']}: {event['message']}"
        if (event.get("count") or 1) > 1:
            text += f" (x{event['count']})"
        return proof("event", event.get("object") or self.object, text, time=event.get("last_at"))

    def log_proof(self, line):
        return proof("log", self.container["name"], line["text"], line=line["line"], time=line.get("time"))

    def kernel_proof(self, report):
        node = self.pod.get("node")
        return proof(
            "kernel", f"Node/{node}" if node else self.object, report["text"], time=report.get("time")
        )

    @property
    def probe(self):
        """startup or liveness: the probe that killed this attempt by the events, else earlier ones, or None."""
        for name in ("startup", "liveness"):
            if self.events[name]:
                return name
        said = [_PROBE_KILL.search(event["message"]) for event in self.events["earlier"]]
        return next((match.group("probe") for match in reversed(said) if match), None)

    @property
    def stopped(self):
        """True if it ended as a container that was told to stop: vLLM exits 0, 1, 130, 143 or is killed."""
        return self.code in (None, 0, 1) or self.signal in (2, 9, 15)

    @property
    def disruption_kind(self):
        """(kind, sender) by the pod's DisruptionTarget condition, or (None, None)."""
        condition = self.disruption
        if not condition or not self.current or not self.stopped:
            return None, None
        if self.ended_before(seconds(condition.get("since"))):
            return None, None
        reason, message = condition.get("reason"), condition.get("message") or ""
        if reason in _DISRUPTIONS:
            return _DISRUPTIONS[reason]
        if reason == "TerminationByKubelet":
            if SHUTDOWN.search(message):
                return "node_shutdown", "the kubelet: the node shuts down"
            if "critical pod" in message.lower():
                return "preempted", "the kubelet, to admit a critical pod"
            if _LOW_ON_RESOURCE.search(message):
                return "eviction", "the kubelet: the node runs short of a resource"
        return None, None

    def condition_proof(self):
        """The DisruptionTarget condition; only where ``disruption`` isn't None."""
        condition = self.disruption
        text = f"DisruptionTarget: {condition.get('reason')}: {condition.get('message') or ''}".strip()
        return proof("status", self.object, text)

    def ended_before(self, moment):
        """True if the attempt had ended before ``moment`` (seconds), so that what came then can't have ended it."""
        finished = seconds(self.attempt.get("finished_at"))
        return moment is not None and finished is not None and finished < moment - _SLACK

    @property
    def deleted(self):
        """True if the pod's deletion can have ended the attempt. deletionTimestamp is the request plus the grace period."""
        deadline = seconds(self.pod.get("deleted_at"))
        if not self.pod.get("deleted_at") or not self.current:
            return False
        grace = self.pod.get("grace_period") or _DEFAULT_GRACE
        return deadline is None or not self.ended_before(deadline - grace)

    def deletion_proof(self):
        grace = self.pod.get("grace_period")
        text = f"deletionTimestamp {self.pod['deleted_at']}"
        if grace is not None:
            text += f", grace period {grace} s"
        return proof("status", self.object, text, time=self.pod["deleted_at"])

    @property
    def oomish(self):
        """True if the status alone would fit an OOM kill of the container or of a child."""
        return self.reason == "OOMKilled" or self.signal == 9 or self.child == 9

    @property
    def memory_limit(self):
        """The container's memory limit as a quantity, else the pod's, or None."""
        own = (self.container.get("resources") or {}).get("limits") or {}
        whole = (self.pod.get("pod_resources") or {}).get("limits") or {}
        return own.get("memory") or whole.get("memory")

    def kernel(self, scopes, sure=True):
        """The kernel's reports about these scopes; sure: those that name this container or stand in its log."""
        return [item for item in self.kernel_reports if item["scope"] in scopes and item["sure"] is sure]
