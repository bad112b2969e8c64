# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod never ran: refused by quota, policy or kubelet, no node with room, or a container that never started.

Messages: shared facts "kubernetes-gpu-facts" 1.2, 1.5, 2 and 6.4.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..documents import change
from .commands import namespace_option
from .death_scene import NOT_STARTED
from .pod_findings import action, attempt_proof, event_proof, events_of, field, pod_finding, status_proof

# A message's reading: pattern -> what it means in words, and the changes that follow.
Reading = namedtuple("Reading", "pattern meaning recommend rejected")

GPU_RESOURCE = r"(?:nvidia|amd)\.com/\S+?|google\.com/tpu|habana\.ai/gaudi|gpu\.intel\.com/\S+?"


# -- admission -----------------------------------------------------------------------------------------------

_REJECTED_REASON = re.compile(
    r"UnexpectedAdmissionError|Topology ?Affinity ?Error|OutOf\w[\w./-]*|NodeAffinity|NodeShutdown"
)

_NOT_MEMORY_SETTINGS = change(
    "flag", "--gpu-memory-utilization", "decrease", why="vLLM never ran: no setting of it matters yet"
)

_ADMISSION = (
    Reading(
        r"failed quota: (?P<who>\S+): must specify (?P<what>[\w.,/-]+)",
        "the ResourceQuota {who} demands that every container states {what}",
        (
            field("{what}", "add", why="the quota refuses containers that don't state it"),
            action("fix_spec", "or take the line out of the quota, if it is only there for CPU limits"),
        ),
        (),
    ),
    Reading(
        r"exceeded quota: (?P<who>[^,\s]+), requested: (?P<what>\S+?), used: (?P<used>\S+?), "
        r"limited: (?P<limit>\S+)",
        "the ResourceQuota {who} has no room: {what} asked, {used} used, {limit} allowed",
        (action("fix_spec", "raise the quota or free what other pods of the namespace hold"),),
        (),
    ),
    Reading(
        r"(?P<what>maximum|minimum) (?P<who>\w+) usage per \w+ is (?P<limit>\w+)",
        "a LimitRange of the namespace sets a {what} {who} of {limit}",
        (action("fix_spec", "state a value inside the LimitRange, or change the LimitRange first"),),
        (),
    ),
    Reading(
        r"is forbidden: violates PodSecurity \"?(?P<who>[^\"\s]+)",
        "the namespace's Pod Security level {who} refuses the pod",
        (action("fix_spec", "drop what the level forbids (host IPC, added capabilities, hostPath)"),),
        (),
    ),
    Reading(
        r"admission webhook \"(?P<who>[^\"]+)\" denied",
        "the policy webhook {who} refuses the pod",
        (action("fix_spec", "satisfy the policy, or ask its owner for an exception"),),
        (),
    ),
    Reading(
        r"request for '[^']+' too large: maximum request size for shared resources is (?P<limit>\d+)",
        "the GPU is shared by time-slicing: more than {limit} gives no more memory and is refused",
        (field("resources.limits.nvidia.com/gpu", "set", 1, "shared GPUs are handed out one by one"),),
        (),
    ),
    Reading(
        r"no healthy devices present|cannot allocate unhealthy devices|devices are no longer healthy",
        "the node's GPUs are unhealthy",
        (
            action("reset_gpu", "the device plugin took them out of service"),
            action("move_pod", "another node has healthy ones"),
        ),
        (),
    ),
    Reading(
        r"requested number of devices unavailable for (?P<what>\S+)|"
        r"cannot allocate unregistered device (?P<who>\S+)",
        "the device plugin could not hand out the GPU; after a restart of node or plugin this is a race, "
        "not memory",
        (
            action("recreate_pod", "a rejected pod is never tried again"),
            action("free_gpu", "see which pods hold the node's GPUs"),
        ),
        (),
    ),
    Reading(
        r"Topology ?(?:Affinity|Locality)|with Topology locality",
        "the topology manager found no CPUs and GPUs on one NUMA node",
        (
            field("resources.requests.cpu", "decrease", why="fewer CPUs fit beside the GPU"),
            action("move_pod", "another node may have them side by side"),
        ),
        (),
    ),
    Reading(
        r"NodeShutdown|imminent node shutdown|node is shutting down",
        "the node is shutting down and takes no new pods",
        (action("recreate_pod", "its next pod goes to a node that stays"),),
        (),
    ),
    Reading(
        r"Node didn't have enough resource: (?P<what>\S+), requested: (?P<used>\d+), used: \d+, "
        r"capacity: (?P<limit>\d+)",
        "the node has not enough {what}: {used} asked, {limit} there",
        (action("move_pod", "another node may have room"),),
        (),
    ),
)
_FORBIDDEN = re.compile(r"is forbidden|denied the request|exceeded quota|must specify")


def _admission_texts(pod, namespace):
    """(text, proof) of every refusal: the pod's own status and FailedCreate events of its controllers."""
    reason, message = pod.get("reason") or "", pod.get("message") or ""
    if _REJECTED_REASON.fullmatch(reason):
        yield f"{reason}: {message}", status_proof(pod, f"pod Failed: {reason}. {message}")
    sources = list(pod.get("events") or []) + list((pod.get("workload") or {}).get("events") or [])
    for event in sources + list(namespace.get("events") or []):
        if event.get("reason") == "FailedCreate" and _FORBIDDEN.search(event.get("message") or ""):
            yield event["message"], event_proof(pod, event)


def admission(pod, namespace, node):
    found, seen = [], set()
    for text, shown in _admission_texts(pod, namespace):
        reading, match = _read(_ADMISSION, text)
        meaning = reading.meaning.format(**_groups(match)) if reading else "the pod was refused"
        if meaning in seen:
            continue
        seen.add(meaning)
        changes = (
            [_filled(item, match) for item in reading.recommend]
            if reading
            else [action("fix_spec", text[:200])]
        )
        found.append(
            pod_finding(
                pod,
                None,
                "admission_rejected",
                "trigger",
                "certain",
                [shown],
                f"No container was started: {meaning}. Nothing ran out of memory.",
                recommend=changes,
                rejected=[_NOT_MEMORY_SETTINGS],
                check=[f"kubectl{namespace_option(pod)} get resourcequota,limitrange -o yaml"]
                if "quota" in text or "usage per" in text
                else [],
            )
        )
    return found


def _read(readings, text):
    for reading in readings:
        match = re.search(reading.pattern, text)
        if match:
            return reading, match
    return None, None


def _groups(match):
    return {name: (value or "").rstrip(",.") for name, value in match.groupdict().items()}


def _filled(item, match):
    """A change whose name may hold a group of the match: ``{what}`` is ``limits.cpu`` of a quota."""
    if "{" not in item["name"]:
        return dict(item)
    names = _groups(match)["what"].split(",")
    return dict(item, name="resources." + names[0])


# -- scheduling ----------------------------------------------------------------------------------------------
_SCHEDULING = (
    Reading(
        rf"Insufficient (?P<what>{GPU_RESOURCE})(?=[,.\s]|$)",
        "no node has enough free {what}",
        (
            action(
                "free_gpu",
                "see which pods hold the GPUs; an earlier revision of this workload may be one of them",
            ),
            field(
                "strategy",
                "set",
                "maxSurge 0, maxUnavailable 1",
                "a surge pod needs a spare GPU that isn't there",
            ),
        ),
        (),
    ),
    Reading(
        r"Insufficient memory",
        "no node has enough unreserved host memory for the request",
        (
            field(
                "resources.requests.memory",
                "decrease",
                why="only the request is reserved; the limit is not counted",
            ),
            action("move_pod", "a larger node, or room made on this one"),
        ),
        (field("resources.limits.memory", "decrease", why="the scheduler doesn't look at limits"),),
    ),
    Reading(
        r"Insufficient cpu",
        "no node has enough unreserved CPU for the request",
        (field("resources.requests.cpu", "decrease", why="only the request is reserved"),),
        (field("resources.limits.cpu", "decrease", why="the scheduler doesn't look at limits"),),
    ),
    Reading(
        r"Insufficient ephemeral-storage",
        "no node has enough disk for the request",
        (action("use_volume", "put the model and the caches on a volume"),),
        (),
    ),
    Reading(
        r"untolerated taint \{(?P<what>[^:}]+)",
        "the nodes carry the taint {what}, which the pod doesn't tolerate",
        (action("fix_spec", "add the toleration"),),
        (),
    ),
    Reading(
        r"didn't match Pod's node affinity/selector",
        "no node matches the pod's node selector or affinity",
        (action("fix_spec", "correct nodeSelector or affinity"),),
        (),
    ),
    Reading(
        r"SchedulingGated|scheduling gates",
        "a scheduling gate holds it back, which Kueue or another controller must lift",
        (action("fix_spec", "see which quota or queue holds the gate"),),
        (),
    ),
    Reading(
        r"volume node affinity conflict|unbound immediate PersistentVolumeClaims",
        "its volume can't be used on any node with room",
        (action("fix_spec", "bind the claim, or use a volume that more nodes can mount"),),
        (),
    ),
)


def unschedulable(pod, namespace, node):
    if pod.get("node"):
        return []
    proofs = [event_proof(pod, event) for event in events_of(pod, "FailedScheduling")[-1:]]
    for condition in pod.get("conditions") or []:
        unscheduled = condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        if unscheduled and not proofs:
            proofs.append(status_proof(pod, f"{condition.get('reason')}: {condition.get('message') or ''}"))
    if not proofs:
        return []
    text = proofs[0]["text"].split("preemption:")[0]
    readings = [(reading, re.search(reading.pattern, text)) for reading in _SCHEDULING]
    hits = [(reading, match) for reading, match in readings if match]
    meanings = [reading.meaning.format(**_groups(match)) for reading, match in hits]
    words = "; ".join(meanings) if meanings else "the scheduler gives its reason in the event"
    recommend = [dict(item) for reading, _match in hits for item in reading.recommend]
    return [
        pod_finding(
            pod,
            None,
            "unschedulable",
            "trigger",
            "certain",
            proofs,
            f"The pod was never placed: {words}. vLLM has not run, so nothing ran out of memory.",
            recommend=_for_workload(pod, recommend),
            rejected=[
                _NOT_MEMORY_SETTINGS,
                *(dict(item) for reading, _m in hits for item in reading.rejected),
            ],
            check=["kubectl describe nodes | grep -A 8 'Allocated resources'"],
        )
    ]


def _for_workload(pod, changes):
    """Without a rollout strategy of its own (a bare pod, a Job) the advice about surging is no use."""
    workload = pod.get("workload") or {}
    kind = (workload.get("edit") or workload).get("kind")
    return [item for item in changes if item["name"] != "strategy" or kind in ("Deployment", None)]


# -- containers that never started ---------------------------------------------------------------------------

_INIT_OOM = Reading(
    r"init was OOM-killed|memory limit too low|cannot allocate memory",
    "the memory limit is too small even for the runtime's own start-up",
    (
        field(
            "resources.limits.memory",
            "increase",
            why="the container's first process was killed at the limit",
        ),
    ),
    (),
)
_START = (
    _INIT_OOM,
    Reading(
        r"nvidia-container-cli|libnvidia-container|nvidia-container-runtime|failed to inject CDI devices",
        "the NVIDIA runtime hook failed: driver, device or image don't fit together",
        (
            action("match_driver", "the image's CUDA must not be newer than the node's driver allows"),
            action("fix_gpu_visibility", "the device asked for must exist on the node"),
        ),
        (),
    ),
    Reading(
        r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable|"
        r"ImageInspectError",
        "the image could not be pulled",
        (action("fix_spec", "correct the image name, the pull secret, or the access to the registry"),),
        (),
    ),
    Reading(
        r"(?:secret|configmap|key) .*not found|CreateContainerConfigError",
        "something that the container's settings refer to is missing",
        (action("fix_spec", "create the Secret or ConfigMap, or correct its name"),),
        (),
    ),
    Reading(
        r"executable file not found|no such file or directory|permission denied|exec format error",
        "the entrypoint can't be executed",
        (action("fix_spec", "correct command, image or architecture"),),
        (),
    ),
)


def start_errors(pod, namespace, node):
    found = []
    for container in pod.get("containers") or []:
        attempts = container.get("attempts") or []
        last = attempts[-1] if attempts else None
        shown = next(
            (
                item
                for item in reversed(attempts)
                if item.get("reason") in NOT_STARTED and (item is last or item.get("state") == "terminated")
            ),
            None,
        )
        if shown:
            found.append(_start_error(pod, container, shown))
    return found or _never_created(pod)


# What a kubelet says again and again of a pod whose containers it can't even create.
_CREATION_FAILURES = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedMapVolume")


def _never_created(pod):
    """``start_error`` of a pod that waits for its network, a volume or its sandbox while the kubelet complains."""
    attempts = [run for item in pod.get("containers") or [] for run in item.get("attempts") or []]
    if any(run.get("state") != "waiting" for run in attempts):
        return []
    complaints = events_of(pod, *_CREATION_FAILURES)
    if not complaints:
        return []
    proof = event_proof(pod, complaints[-1])
    return [
        pod_finding(
            pod,
            None,
            "start_error",
            "trigger",
            "likely",
            [proof],
            "No container of the pod has been created: the kubelet says why. No memory is involved: vLLM has not run.",
            recommend=[action("fix_spec", proof["text"][:200])],
            rejected=[_NOT_MEMORY_SETTINGS],
        )
    ]


def _start_error(pod, container, attempt):
    failed = events_of(pod, "Failed", "FailedMount", "InspectFailed")
    proofs = [attempt_proof(pod, container, attempt)] + [event_proof(pod, event) for event in failed[-1:]]
    text = " ".join(item["text"] for item in proofs)
    reading, _match = _read(_START, text)
    memory = "host" if reading is _INIT_OOM else None
    meaning = reading.meaning if reading else "the runtime gives its reason in the message"
    return pod_finding(
        pod,
        container,
        "start_error",
        "trigger" if container.get("role") == "main" else "contributing",
        "certain",
        proofs,
        f"Container {container['name']} never started: {meaning}."
        + ("" if memory else " No memory of the model is involved: vLLM has not run."),
        memory=memory,
        attempt=attempt.get("index"),
        recommend=[dict(item) for item in reading.recommend] if reading else [action("fix_spec", text[:200])],
        rejected=[] if memory else [_NOT_MEMORY_SETTINGS],
    )
