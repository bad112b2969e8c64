# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod objects as evidence: containers, attempts, probes, shared memory, and which container is the engine.

Container states and what they mean: shared facts "kubernetes-gpu-facts", section 1. Recognition of engines:
"workload-kinds", section 6. Everything here takes raw API JSON and returns plain documents; nothing is read.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

from ..documents import attempt, container, engine, log, pod
from ..engine.accelerators import make_of
from ..engine.command_line import is_engine_command
from ..quantities import quantity_bytes
from ..times import parse_time
from .events import events_about
from .gpu_request import gpu_request

DEFAULT_SINCE = 24 * 3600.0

# What an object whose fields have other types than the API's makes of the code that reads it.
MALFORMED = (AttributeError, TypeError, KeyError, ValueError)

# Container names that deployers fix (workload-kinds section 1); each with the label that must be on the pod
# where the name alone says little.
_FIXED_NAMES = (
    (re.compile(r"vllm(-openai|-container|-server)?"), None),
    (re.compile(r"kserve-container|worker-container"), "serving.kserve.io/inferenceservice"),
    (re.compile(r"main"), "app.kubernetes.io/part-of=llminferenceservice"),
    (re.compile(r"main"), "nvidia.com/dynamo-graph-deployment-name"),
    (re.compile(r"main"), "grove.io/podclique"),
    (re.compile(r"ome-container"), "ome.io/inferenceservice"),
    (re.compile(r"user-container"), "serving.knative.dev/service"),
    (re.compile(r".+-ctr"), "app.kubernetes.io/part-of=nim-service"),
    (re.compile(r"engine"), "modelserving.volcano.sh/name"),
    (re.compile(r"server"), "app.kubernetes.io/managed-by=kubeai"),
    (re.compile(r"ray-(head|worker|node)"), None),
)
_ENGINE_IMAGE = re.compile(r"vllm|llm-d-cuda|huggingfaceserver|(^|/)nim/|rhaiis?\b|ray-llm|vllm-runtime")
_CPU_IMAGE = re.compile(r"vllm[^@]*cpu|cpu[^@]*vllm")
# Images with "vllm" in their path that are no engine (workload-kinds 6.4), and programs beside the engine.
_NO_ENGINE_IMAGE = re.compile(
    r"router|exporter|inference-sim|simulator|gateway|epp\b|scheduler|operator|controller|lora-adapter|"
    r"routing-sidecar|queue-proxy|istio|envoy|lmcache.*server|dashboard|benchmark|guidellm"
)
# Other users of accelerators: what an image or command of theirs contains.
_OTHER_PROGRAM = re.compile(
    r"tritonserver|text-generation-inference|text-embeddings|sglang|lmdeploy|ollama|llama\.cpp|llama-server|"
    r"dcgm|device-plugin|gpu-feature-discovery|node-feature-discovery|gpu-operator|mig-manager|container-toolkit|"
    r"cuda-?sample|vectoradd|jupyter|torchrun|accelerate launch|deepspeed|comfyui|whisper|nccl-tests|"
    r"tensorflow/serving|torchserve|milvus"
)

# Labels and annotations that later stages use; the others stay out of the evidence.
_KEPT_LABELS = re.compile(
    r"app|model|environment|release|helm-release-name|component|role(-name)?|roleset-name|storm-service-name|"
    r"role-template-hash|pod-template-hash|rollouts-pod-template-hash|controller-revision-hash|"
    r"pod-template-generation|parent|skypilot-[a-z-]+|ray-node-type|helm\.sh/chart|"
    r"(app\.kubernetes\.io|apps\.kubernetes\.io|statefulset\.kubernetes\.io|batch\.kubernetes\.io|"
    r"leaderworkerset\.sigs\.k8s\.io|jobset\.sigs\.k8s\.io|serving\.knative\.dev|llm-d\.ai|"
    r"serving\.kserve\.io|kserve\.io|ray\.io|model\.aibrix\.ai|stormservice\.orchestration\.aibrix\.ai|"
    r"kaito\.sh|inferenceset\.kaito\.sh|ome\.io|modelserving\.volcano\.sh|workload\.serving\.volcano\.sh|"
    r"grove\.io|kueue\.x-k8s\.io|kubeai\.org)/.+|"
    r"nvidia\.com/(dynamo-.+|selector)"
)
_KEPT_ANNOTATIONS = re.compile(
    r"vpaUpdates|vpaObservedContainers|kubernetes\.io/limit-ranger|kubernetes\.io/config\.source|"
    r"leaderworkerset\.sigs\.k8s\.io/.+|serving\.kserve\.io/deploymentMode|ome\.io/(deploymentMode|serving-runtime)|"
    r"kubectl\.kubernetes\.io/restartedAt|skypilot-cluster-name"
)

# Multus' list of the pod's networks; of it only the interfaces' names are kept.
_NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
_INTERFACES = 16

# Annotation that an admission plugin leaves, and the plugin.
_MUTATORS = {
    "kubernetes.io/limit-ranger": "LimitRange",
    "vpaUpdates": "VerticalPodAutoscaler",
    "vpaObservedContainers": "VerticalPodAutoscaler",
}

_VOLUME_KINDS = {
    "emptyDir": (),
    "hostPath": ("path",),
    "persistentVolumeClaim": ("claimName",),
    "configMap": ("name",),
    "secret": ("secretName",),
    "csi": ("driver",),
    "nfs": ("path",),
    "image": ("reference",),
}


# --- which container is the engine


def accelerator_of(raw_container):
    """``(requested, kind)``: whether the container asks for an accelerator, and its make (cuda, rocm, …, None).

    Counts device-plugin resources and DRA claims (whose make isn't in the pod).
    """
    resources = raw_container.get("resources") or {}
    make = make_of({**(resources.get("requests") or {}), **(resources.get("limits") or {})})
    return bool(make or resources.get("claims")), make


def engine_container_index(raw_pod):
    """Index in ``spec.containers`` of the container that runs vLLM, or None if the pod is no vLLM pod."""
    found = recognise_engine(raw_pod)
    return None if found is None else found[0]


def recognise_engine(raw_pod, asked=False):
    """``(index, by)`` of the engine container, or None. by: command, name, accelerator, image or asked.

    The order is that of workload-kinds section 6.2. A container without an accelerator is an engine only if its
    command starts vLLM or its image is vLLM for CPUs; a router or simulator never is. asked: the user named this
    pod, so it has an engine: the first container with an accelerator, else the first.
    """
    candidates = [
        (index, item)
        for index, item in enumerate((raw_pod.get("spec") or {}).get("containers") or [])
        if not _NO_ENGINE_IMAGE.search(_image_path(item))
    ]
    by_command = [
        index
        for index, item in candidates
        if is_engine_command(item.get("command") or [], item.get("args") or [])
    ]
    if by_command:
        return by_command[0], "command"
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    able = [
        (index, item)
        for index, item in candidates
        if (accelerator_of(item)[0] or _CPU_IMAGE.search(_image_path(item))) and not _is_other_program(item)
    ]
    for index, item in able:
        if _has_fixed_name(item.get("name") or "", labels):
            return index, "name"
    accelerated = [index for index, item in able if accelerator_of(item)[0]]
    if len(accelerated) == 1:
        return accelerated[0], "accelerator"
    for index, item in able:
        if _ENGINE_IMAGE.search(_image_path(item)):
            return index, "image"
    if asked and (raw_pod.get("spec") or {}).get("containers"):
        return next((index for index, item in candidates if accelerator_of(item)[0]), 0), "asked"
    return None


def _image_path(raw_container):
    """The image reference in lower case without its digest."""
    return (raw_container.get("image") or "").lower().split("@")[0]


def _is_other_program(raw_container):
    command = " ".join(
        str(item) for item in (raw_container.get("command") or []) + (raw_container.get("args") or [])
    )
    image = _image_path(raw_container)
    return not _ENGINE_IMAGE.search(image) and bool(_OTHER_PROGRAM.search(image + " " + command.lower()))


def _has_fixed_name(name, labels):
    for pattern, label in _FIXED_NAMES:
        if not pattern.fullmatch(name):
            continue
        key, _equals, value = (label or "").partition("=")
        if not key or (key in labels and value in ("", labels[key])):
            return True
    return False


# --- the pod


def pod_evidence(raw_pod, redactor, events=(), asked=False):
    """One raw Pod as ``documents.pod``, its logs not read. events: raw events, of which this pod's are kept;
    asked: the user named this pod (see recognise_engine).

    More fields than ``documents.pod`` names: gpu_request (see gpu_request.py), pod_resources (pod-level requests and limits), resource_claims
    (DRA), host_ipc, host_network (None where neither the API nor the spec says so), restart_policy, scheduling_gates, and
    mutations: who changed the pod at admission, ``[{tool, text}]``. Secrets in env, arguments, URLs, annotations and messages are redacted.
    """
    metadata, spec = raw_pod.get("metadata") or {}, raw_pod.get("spec") or {}
    status = raw_pod.get("status") or {}
    annotations = {
        **_kept(metadata.get("annotations"), _KEPT_ANNOTATIONS, redactor),
        **_networks(metadata.get("annotations"), redactor),
    }
    volumes = [_volume(item) for item in spec.get("volumes") or []]
    recognised = recognise_engine(raw_pod, asked)
    containers = _containers(raw_pod, redactor, recognised)
    return pod(
        metadata.get("namespace"),
        metadata.get("name"),
        uid=metadata.get("uid"),
        node=spec.get("nodeName"),
        pod_phase=status.get("phase"),
        reason=status.get("reason"),
        message=_text(status.get("message"), redactor),
        conditions=[_condition(item, redactor) for item in status.get("conditions") or []],
        qos=status.get("qosClass"),
        created_at=metadata.get("creationTimestamp"),
        deleted_at=metadata.get("deletionTimestamp"),
        grace_period=_seconds(spec.get("terminationGracePeriodSeconds")),
        labels=_kept(metadata.get("labels"), _KEPT_LABELS, redactor),
        annotations=annotations,
        containers=containers,
        volumes=volumes,
        shm=_shm(containers, volumes, bool(spec.get("hostIPC"))),
        events=events_about(dict(raw_pod, kind="Pod"), events, redactor),
        gpu_request=gpu_request(spec, recognised[0] if recognised else None),
        pod_resources=_resources(spec.get("resources")),
        resource_claims=[
            item.get("resourceClaimName") or item.get("resourceClaimTemplateName") or item.get("name")
            for item in spec.get("resourceClaims") or []
        ],
        host_ipc=bool(spec.get("hostIPC")),
        # The API leaves out what is false; a describe text and a log say nothing of it.
        host_network=True if spec.get("hostNetwork") else False if metadata.get("uid") else None,
        restart_policy=spec.get("restartPolicy"),
        scheduling_gates=[item.get("name") for item in spec.get("schedulingGates") or []],
        mutations=_mutations(annotations),
    )


def _containers(raw_pod, redactor, recognised):
    spec, status = raw_pod.get("spec") or {}, raw_pod.get("status") or {}
    listed = []
    for item in spec.get("initContainers") or []:
        role = "sidecar" if item.get("restartPolicy") == "Always" else "init"
        listed.append((role, item, "initContainerStatuses", None))
    for index, item in enumerate(spec.get("containers") or []):
        by = recognised[1] if recognised and recognised[0] == index else None
        listed.append(("main", item, "containerStatuses", by))
    for item in spec.get("ephemeralContainers") or []:
        listed.append(("ephemeral", item, "ephemeralContainerStatuses", None))
    return [
        _container(item, role, _status_of(status.get(statuses), item.get("name")), redactor, by)
        for role, item, statuses, by in listed
    ]


def _status_of(statuses, name):
    return next((item for item in statuses or [] if item.get("name") == name), {})


def _container(raw, role, status, redactor, recognised_by):
    """A container; fields beyond ``documents.container``: image_id, started, device_health, capabilities (those added; ALL
    if it is privileged).

    resources are those of the spec; actual_resources those the kubelet applied, when they differ (resize).
    """
    found_engine = None
    if recognised_by:
        requested, kind = accelerator_of(raw)
        if not requested and _CPU_IMAGE.search(_image_path(raw)):
            kind = "cpu"
        found_engine = dict(engine(accelerator=kind), recognised_by=recognised_by)
    resources, actual = _resources(raw.get("resources")), _resources(status.get("resources"))
    return container(
        raw.get("name"),
        role,
        image=_text(raw.get("image"), redactor),
        engine=found_engine,
        command=redactor.arguments([str(item) for item in raw.get("command") or []]),
        args=redactor.arguments([str(item) for item in raw.get("args") or []]),
        env=_environment(raw, redactor),
        resources=resources,
        probes={
            kind: _probe(raw.get(kind + "Probe"), redactor) for kind in ("startup", "liveness", "readiness")
        },
        lifecycle={"pre_stop": _handler((raw.get("lifecycle") or {}).get("preStop"), redactor)},
        mounts=[
            {"volume": item.get("name"), "path": item.get("mountPath")}
            for item in raw.get("volumeMounts") or []
        ],
        restart_count=status.get("restartCount"),
        ready=status.get("ready"),
        attempts=attempts_of(status, redactor),
        image_id=status.get("imageID") or None,
        started=status.get("started"),
        actual_resources=actual if status.get("resources") and actual != resources else None,
        device_health=_unhealthy_devices(status),
        capabilities=_capabilities(raw.get("securityContext") or {}),
    )


def attempts_of(status, redactor):
    """The attempts that a container status knows, oldest first: at most the previous and the current one.

    index counts runs from 0 as the kubelet names log files (``<restartCount>.log``): the newest run is
    restartCount. While the container waits to be restarted, the last termination is that newest run and
    the waiting one comes after it. Without a status there is one waiting attempt.
    """
    restarts = status.get("restartCount") or 0
    state, last = status.get("state") or {}, status.get("lastState") or {}
    waiting = "waiting" in state or not state
    found = []
    if last.get("terminated"):
        found.append(_attempt(restarts if waiting else max(0, restarts - 1), last, redactor))
    elif last.get("running"):
        found.append(_attempt(max(0, restarts - 1), last, redactor))
    current = max(restarts, found[-1]["index"] + 1) if found else restarts
    # While a container waits, its status still names the one that ended.
    found.append(
        _attempt(current, state or {"waiting": {}}, redactor, None if waiting else status.get("containerID"))
    )
    return found


def _attempt(index, state, redactor, container_id=None):
    """container_id: of the run, where the state itself doesn't name it (a running one)."""
    name = next(
        (key for key in ("running", "terminated", "waiting") if state.get(key) is not None), "waiting"
    )
    details = state.get(name) or {}
    signal = details.get("signal") or None
    reason = {
        "waiting": f"not started ({details['reason']})" if details.get("reason") else "not started",
    }.get(name, "not read")
    return attempt(
        index,
        name,
        reason=details.get("reason"),
        message=_text(details.get("message"), redactor),
        exit_code=details.get("exitCode"),
        signal=signal,
        started_at=details.get("startedAt"),
        finished_at=details.get("finishedAt"),
        container_id=_bare_id(details.get("containerID") or container_id),
        log=log(readable=False, reason=reason),
    )


def _bare_id(container_id):
    """``containerd://ID`` as the kernel has it in the cgroup's path: the id alone."""
    return container_id.rpartition("//")[2] or None if isinstance(container_id, str) else None


def _environment(raw, redactor):
    """``[{name, value, from}]``; from says where a value comes from that the pod doesn't hold."""
    found = []
    for source in raw.get("envFrom") or []:
        for kind, word in (("configMapRef", "configMap"), ("secretRef", "secret")):
            if source.get(kind):
                name = (source.get("prefix") or "") + "*"
                found.append({"name": name, "value": None, "from": f"{word}/{source[kind].get('name')}"})
    for item in raw.get("env") or []:
        name, value = item.get("name"), item.get("value")
        if value is not None:
            value = redactor.env_value(name, str(value))
        found.append({"name": name, "value": value, "from": _env_source(item.get("valueFrom"))})
    return found


def _env_source(source):
    for kind, word, fields in (
        ("secretKeyRef", "secret", ("name", "key")),
        ("configMapKeyRef", "configMap", ("name", "key")),
        ("fieldRef", "field", ("fieldPath",)),
        ("resourceFieldRef", "resource", ("containerName", "resource")),
    ):
        if source and source.get(kind):
            return "/".join(
                [word] + [str(source[kind][field]) for field in fields if source[kind].get(field)]
            )
    return "unknown" if source else None


def _probe(raw, redactor):
    if not raw:
        return None
    return {
        "failure_threshold": raw.get("failureThreshold"),
        "period_seconds": _seconds(raw.get("periodSeconds")),
        "initial_delay_seconds": _seconds(raw.get("initialDelaySeconds")),
        "timeout_seconds": _seconds(raw.get("timeoutSeconds")),
        "grace_period_seconds": _seconds(raw.get("terminationGracePeriodSeconds")),
        "handler": _handler(raw, redactor),
    }


def _handler(raw, redactor):
    """A probe's or hook's action as one line: ``httpGet :8000/health``, ``exec sleep 30``, ``tcpSocket :8000``."""
    raw = raw or {}
    if raw.get("httpGet"):
        return _text(f"httpGet :{raw['httpGet'].get('port')}{raw['httpGet'].get('path') or '/'}", redactor)
    if raw.get("exec"):
        return "exec " + " ".join(
            redactor.arguments([str(item) for item in raw["exec"].get("command") or []])
        )
    for kind in ("tcpSocket", "grpc"):
        if raw.get(kind):
            return f"{kind} :{raw[kind].get('port')}"
    if raw.get("sleep"):
        return f"sleep {raw['sleep'].get('seconds')}"
    return None


def _volume(raw):
    """``{name, kind, medium, size_limit, claim, source}``; source: path, claim, config map, secret or image."""
    kind = next((key for key in raw if key != "name"), "")
    details = raw.get(kind) or {}
    source = next((details[key] for key in _VOLUME_KINDS.get(kind, ()) if details.get(key)), None)
    return {
        "name": raw.get("name"),
        "kind": kind or None,
        "medium": details.get("medium") or None if kind == "emptyDir" else None,
        "size_limit": quantity_bytes(details.get("sizeLimit")) if kind == "emptyDir" else None,
        "claim": details.get("claimName") if kind == "persistentVolumeClaim" else None,
        "source": source,
    }


def _shm(containers, volumes, host_ipc):
    """What is mounted at /dev/shm, in the engine container first. size_limit is bytes; None = not set.

    Without a mount the runtime's own tmpfs is there (64 MiB with containerd), or the host's with hostIPC.
    """
    found = {"size_limit": None, "medium": None, "mounted_at": None, "used": None}
    for item in sorted(containers, key=lambda entry: entry["engine"] is None):
        for mount in item["mounts"]:
            if (mount["path"] or "").rstrip("/") != "/dev/shm":
                continue
            named = {volume["name"]: volume for volume in volumes}
            source = named.get(mount["volume"]) or {}
            found.update(
                size_limit=source.get("size_limit"), medium=source.get("medium"), mounted_at=mount["path"]
            )
            return dict(found, volume=mount["volume"], host_ipc=host_ipc)
    return dict(found, volume=None, host_ipc=host_ipc)


def _mutations(annotations):
    """Signs that admission changed the pod, so that its resources need not be those of the template."""
    return [
        {"tool": tool, "text": annotations[key]} for key, tool in _MUTATORS.items() if annotations.get(key)
    ]


def _condition(raw, redactor):
    return {
        "type": raw.get("type"),
        "status": raw.get("status"),
        "reason": raw.get("reason"),
        "message": _text(raw.get("message"), redactor),
        "since": raw.get("lastTransitionTime"),
    }


def _unhealthy_devices(status):
    return [
        {"resource": entry.get("name"), "id": device.get("resourceID"), "health": device.get("health")}
        for entry in status.get("allocatedResourcesStatus") or []
        for device in entry.get("resources") or []
        if device.get("health") not in (None, "Healthy")
    ]


def _capabilities(context):
    """``IPC_LOCK``, not ``CAP_IPC_LOCK``: a spec may have either."""
    if context.get("privileged"):
        return ["ALL"]
    added = (context.get("capabilities") or {}).get("add") or []
    return sorted({re.sub("^CAP_", "", str(name).upper()) for name in added})


def _networks(annotations, redactor):
    """The annotation with the pod's networks, reduced to their interfaces; {} where it is missing or no list of networks."""
    try:
        listed = json.loads((annotations or {}).get(_NETWORK_STATUS) or "[]")
        names = [
            {"interface": redactor.text(str(item["interface"]))} for item in listed if item.get("interface")
        ]
    except MALFORMED:
        return {}
    return {_NETWORK_STATUS: json.dumps(names[:_INTERFACES])} if names else {}


def _resources(raw):
    raw = raw or {}
    return {
        kind: {key: str(value) for key, value in sorted((raw.get(kind) or {}).items())}
        for kind in ("requests", "limits")
    }


def _kept(mapping, pattern, redactor):
    return {
        key: redactor.text(str(value))
        for key, value in sorted((mapping or {}).items())
        if pattern.fullmatch(key)
    }


def _text(value, redactor):
    return redactor.text(str(value)) if value else None


def _seconds(value):
    return None if value is None else float(value)


# --- which pods deserve a look

_BAD_EVENTS = re.compile(r"oom|^Killing$|^Evicted$|^Preempted$|^FailedCreate", re.IGNORECASE)


def is_suspicious(pod_evidence, since_seconds=DEFAULT_SINCE, now=None):
    """Whether a pod's logs are worth reading: it terminated or restarted within ``since_seconds`` before
    ``now`` (datetime, default: the present), is Failed, waiting or not Ready, has OOM, Killing or Evicted
    events in that time, or fails its health. An init container that ended with 0 is no sign.
    """
    now = now or datetime.now(timezone.utc)

    def recent(time):
        parsed = parse_time(time)
        return parsed is None or (now - parsed).total_seconds() <= since_seconds

    if pod_evidence["pod_phase"] in ("Failed", "Unknown") or not _is_ready(pod_evidence):
        return True
    for item in pod_evidence["containers"]:
        if item["role"] == "ephemeral":
            continue
        for entry in item["attempts"]:
            if entry["state"] == "waiting":
                return True
            ended_well = item["role"] == "init" and entry["exit_code"] == 0 and entry["reason"] != "OOMKilled"
            if entry["state"] == "terminated" and not ended_well and recent(entry["finished_at"]):
                return True
    return any(is_bad_event(item) and recent(item["last_at"]) for item in pod_evidence["events"])


def is_bad_event(item):
    """Whether an event (evidence) is a sign of trouble.

    Failed startup and readiness probes are part of every slow start; a failed liveness probe never is.
    """
    if item["reason"] == "Unhealthy":
        return (item["message"] or "").startswith("Liveness")
    return bool(_BAD_EVENTS.search(item["reason"] or ""))


def _is_ready(pod_evidence):
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod_evidence["conditions"])
