# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where each kind of object has its pod templates, and what the kinds without one are rendered to.

Kinds, paths and what operators add: shared facts "workload-kinds", sections 1 and 2. A reader takes an object and the
other objects of the files (``files``, see manifests.py) and returns ``manifest_parts.Template`` s; what it cannot tell
it names with ``files.missing``. Raises DocumentError for fields of another type than the kind's.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from ..documents import DocumentError
from ..engine.command_line import is_engine_command
from . import manifest_files
from .kserve_manifest import inference_service, llm_inference_service, ome_inference_service, serving_runtime
from .manifest_parts import (
    Template,
    field,
    flags,
    hub_name,
    maps,
    merged_container,
    number,
    scalar,
    with_shm,
)

_LWS = "leaderworkerset.sigs.k8s.io"


def _name(raw):
    return scalar(raw["metadata"]["name"])


def _of_template(template, **more):
    """A Template of a PodTemplateSpec."""
    metadata = field(template, "metadata")
    labels = {**field(metadata, "labels"), **more.pop("labels", {})}
    return Template(
        field(template, "spec"), labels=labels, annotations=field(metadata, "annotations"), **more
    )


# --- kinds that hold pod templates


def _pod(raw, _files):
    return [_of_template(raw)]


def _one(path, raw, _files):
    """The pod template at ``path``."""
    return [_of_template(field(raw, path))]


def _rollout(raw, files):
    reference = field(raw, "spec.workloadRef")
    if not reference:
        return _one("spec.template", raw, files)
    if not files.find("apps", scalar(reference.get("kind")), reference.get("name"), raw):
        files.missing(
            raw,
            f"its pods are those of {reference.get('kind')}/{reference.get('name')}, which isn't in the files",
            "that object in a file beside it",
        )
    return []


def _leader_worker_set(raw, _files):
    group = field(raw, "spec.leaderWorkerTemplate")
    size = number(group.get("size"), 1) or 1
    labels = {f"{_LWS}/name": _name(raw), f"{_LWS}/group-index": "0", f"{_LWS}/worker-index": "0"}
    worker = field(group, "workerTemplate")
    if "leaderTemplate" not in group:
        return [_of_template(worker, labels=labels, members=size)]
    found = [_of_template(field(group, "leaderTemplate"), role="leader", labels=labels)]
    if size > 1:
        labels = dict(labels, **{f"{_LWS}/worker-index": "1"})
        found.append(_of_template(worker, role="worker", labels=labels, members=size - 1))
    return found


def _job_set(raw, _files):
    found = []
    jobs = maps(raw, "spec.replicatedJobs")
    for item in jobs:
        pods = number(field(item, "template.spec", dict).get("parallelism"), 1) or 1
        found.append(
            _of_template(
                field(item, "template.spec.template"),
                role=scalar(item.get("name")) if len(jobs) > 1 else "",
                labels={
                    "jobset.sigs.k8s.io/jobset-name": _name(raw),
                    "jobset.sigs.k8s.io/replicatedjob-name": scalar(item.get("name")),
                },
                members=pods * (number(item.get("replicas"), 1) or 1),
            )
        )
    return found


def _knative(path, raw, _files):
    """Knative names the container itself where it has no name."""
    template = field(raw, path) if path else raw
    found = _of_template(template, labels={"serving.knative.dev/service": _name(raw)})
    containers = [
        dict(item, name=item.get("name") or "user-container") for item in maps(found.spec, "containers")
    ]
    return [found._replace(spec=dict(found.spec, containers=containers))]


def _storm_service(path, raw, _files):
    found = []
    roles = maps(raw, path)
    for item in roles:
        labels = {"storm-service-name": _name(raw), "role-name": scalar(item.get("name"))}
        found.append(
            _of_template(
                field(item, "template"),
                role=scalar(item.get("name")) if len(roles) > 1 else "",
                labels=labels,
                replicas=number(item.get("replicas")),
                members=number(item.get("podGroupSize"), 1) or 1,
            )
        )
    return found


def _model_serving(raw, _files):
    found = []
    roles = maps(raw, "spec.template.roles")
    for item in roles:
        name = scalar(item.get("name"))
        workers = number(item.get("workerReplicas"), 0) or 0
        for part, count in (("entry", 1), ("worker", workers)):
            if part == "worker" and not (workers and "workerTemplate" in item):
                continue
            labels = {
                "modelserving.volcano.sh/name": _name(raw),
                "modelserving.volcano.sh/role": name,
                "modelserving.volcano.sh/entry": "true" if part == "entry" else "false",
            }
            if workers:
                labels.update(
                    {
                        "modelserving.volcano.sh/group-name": f"{_name(raw)}-0",
                        "modelserving.volcano.sh/role-id": f"{name}-0",
                    }
                )
            words = [name if len(roles) > 1 else "", part if workers else ""]
            found.append(
                _of_template(
                    field(item, f"{part}Template"),
                    role="-".join(word for word in words if word),
                    labels=labels,
                    replicas=number(item.get("replicas")),
                    members=count,
                )
            )
    return found


def _clique_set(raw, _files):
    found = []
    cliques = maps(raw, "spec.template.cliques")
    for item in cliques:
        role = scalar(item.get("name")) if len(cliques) > 1 else ""
        found.append(
            Template(
                field(item, "spec.podSpec"),
                role=role,
                path=f"spec.template.cliques[{item.get('name')}].spec.podSpec.containers[{{c}}]",
                labels={"grove.io/podclique": scalar(item.get("name"))},
                replicas=number(field(item, "spec").get("replicas")),
            )
        )
    return found


# --- Ray


def _ray(path, raw, files):
    """Head and workers of a Ray cluster, with what the object says of the engines beside its pods."""
    cluster = field(raw, path)
    groups = maps(cluster, "workerGroupSpecs")
    pods = [
        _of_template(
            field(cluster, "headGroupSpec.template"),
            role="head",
            labels=_ray_labels(raw, "head", "headgroup"),
        )
    ]
    for item in groups:
        name = scalar(item.get("groupName"))
        count = number(item.get("replicas"), number(item.get("minReplicas"), 1)) or 1
        pods.append(
            _of_template(
                field(item, "template"),
                role=name if len(groups) > 1 else "worker",
                labels=_ray_labels(raw, "worker", name),
                members=count * (number(item.get("numOfHosts"), 1) or 1),
            )
        )
    entrypoint = field(raw, "spec", dict).get("entrypoint")
    if isinstance(entrypoint, str) and is_engine_command(["sh", "-c", entrypoint], None):
        return [_commanded(item, ["sh", "-c", entrypoint]) for item in pods]
    engines = _ray_engines(raw, files)
    return [engine for item in pods for engine in _ray_placed(item, engines)] if engines else pods


def _ray_labels(raw, kind, group):
    return {"ray.io/cluster": _name(raw), "ray.io/node-type": kind, "ray.io/group": group}


def _commanded(template, command):
    """The Ray pod with the engine's command, which Ray runs beside the container's own."""
    first, *others = maps(template.spec, "containers") or [{}]
    if not _has_gpu(first):
        return template
    return template._replace(
        spec=dict(template.spec, containers=[dict(first, command=command, args=[]), *others])
    )


def _has_gpu(container):
    limits = {**field(container, "resources.requests"), **field(container, "resources.limits")}
    return any("gpu" in name or "/tpu" in name or "mig-" in name for name in limits)


def _ray_engines(raw, files):
    """The engines of ``serveConfigV2``: ``[(name, settings as in a --config file, source of the model)]``."""
    text = field(raw, "spec").get("serveConfigV2")
    if not text:
        return []
    documents = manifest_files.parse(text, "spec.serveConfigV2") if isinstance(text, str) else [text]
    found = []
    for application in maps(
        documents[0] if documents and isinstance(documents[0], dict) else {}, "applications"
    ):
        for item in maps(field(application, "args"), "llm_configs"):
            loading = field(item, "model_loading_config")
            source = loading.get("model_source") or loading.get("model_id")
            if isinstance(source, dict):
                source = source.get("bucket_uri")
            settings = dict(field(item, "engine_kwargs"))
            if source:
                settings["model"] = scalar(source)
            found.append((scalar(loading.get("model_id") or source or "model"), settings))
    if not found:
        files.missing(
            raw,
            "spec.serveConfigV2 holds no llm_configs; what its application tells vLLM isn't known",
            "the engine's settings given beside the manifest",
        )
    return found


def _ray_placed(template, engines):
    """The pod once for each engine that may run on it: those with accelerators."""
    if not any(_has_gpu(item) for item in maps(template.spec, "containers")):
        return [template]
    placed = []
    for name, settings in engines:
        words = [template.role, name if len(engines) > 1 else ""]
        per_engine = (number(settings.get("tensor_parallel_size"), 1) or 1) * (
            number(settings.get("pipeline_parallel_size"), 1) or 1
        )
        gpus = max((_gpus(item) for item in maps(template.spec, "containers")), default=1) or 1
        placed.append(
            template._replace(
                role="-".join(word for word in words if word),
                config=settings,
                members=max(1, -(-per_engine // gpus)),
                assumptions=(
                    "Ray places the engine on this group of the cluster, since its pods have accelerators",
                ),
            )
        )
    return placed


def _gpus(container):
    limits = {**field(container, "resources.requests"), **field(container, "resources.limits")}
    return sum(
        number(value, 0) or 0 for name, value in limits.items() if name in ("nvidia.com/gpu", "amd.com/gpu")
    )


# --- NVIDIA Dynamo

# What the operator mounts at /dev/shm when the graph doesn't say (workload-kinds section 2, row 24).
_DYNAMO_SHM = "8Gi"


def _dynamo(raw, _files):
    spec = field(raw, "spec")
    older = "services" in spec
    if older:
        services = field(spec, "services")
        parts = [(scalar(name), field(services, scalar(name))) for name in services]
    else:
        parts = [(scalar(item.get("name")), item) for item in maps(spec, "components")]
    return [
        (_dynamo_service if older else _dynamo_component)(raw, name, item, len(parts) > 1)
        for name, item in parts
    ]


def _dynamo_labels(raw, name):
    return {"nvidia.com/dynamo-graph-deployment-name": _name(raw), "nvidia.com/dynamo-component": name}


def _dynamo_component(raw, name, item, several):
    template = _of_template(
        field(item, "podTemplate"),
        role=name if several else "",
        labels=_dynamo_labels(raw, name),
        replicas=number(item.get("replicas")),
        members=number(field(item, "multinode").get("nodeCount"), 1) or 1,
    )
    env = maps(raw, "spec.env")
    containers = [merged_container({"env": env}, entry) for entry in maps(template.spec, "containers")]
    size = item.get("sharedMemorySize")
    return template._replace(
        spec=_dynamo_shm(dict(template.spec, containers=containers), size, str(size) == "0")
    )


def _dynamo_service(raw, name, item, several):
    """The older version: a main container, and resources in words of its own."""
    pod = field(item, "extraPodSpec")
    resources = field(item, "resources")
    container = merged_container(
        {"env": maps(raw, "spec.envs") + maps(item, "envs"), "resources": {}},
        dict(
            field(pod, "mainContainer"),
            name="main",
        ),
    )
    for kind in ("requests", "limits"):
        own = field(resources, kind)
        named = {key: value for key, value in own.items() if key in ("cpu", "memory")}
        if own.get("gpu"):
            named[scalar(own.get("gpuType") or "nvidia.com/gpu")] = own["gpu"]
        named.update(field(own, "custom"))
        container["resources"][kind] = {**container["resources"].get(kind, {}), **named}
    spec = {key: value for key, value in pod.items() if key != "mainContainer"}
    spec["containers"] = [container, *maps(pod, "containers")]
    shared = field(item, "sharedMemory")
    return Template(
        _dynamo_shm(spec, shared.get("size"), shared.get("disabled") is True),
        role=name if several else "",
        labels=_dynamo_labels(raw, name),
        replicas=number(item.get("replicas")),
        members=number(field(item, "multinode").get("nodeCount"), 1) or 1,
    )


def _dynamo_shm(spec, size, disabled):
    mounted = any(
        mount.get("mountPath") == "/dev/shm"
        for item in maps(spec, "containers")
        for mount in maps(item, "volumeMounts")
    )
    if disabled or mounted:
        return spec
    return with_shm(spec, "shared-memory", size or _DYNAMO_SHM, containers=("main",))


# --- kinds that are rendered to a container


def _vllm_runtime(raw, _files):
    """The production-stack operator's container: one value is request and limit at once."""
    model, config, deployment = (
        field(raw, f"spec.{name}") for name in ("model", "vllmConfig", "deploymentConfig")
    )
    given, image = field(deployment, "resources"), field(deployment, "image")
    sizes = {key: given[key] for key in ("cpu", "memory") if given.get(key)}
    if given.get("gpu"):
        sizes[scalar(given.get("gpuType") or "nvidia.com/gpu")] = given["gpu"]
    cache = field(raw, "spec.lmCacheConfig")
    env = list(maps(config, "env"))
    if cache.get("enabled") and cache.get("cpuOffloadingBufferSize") not in (None, "", "0", 0):
        env.append({"name": "LMCACHE_LOCAL_CPU", "value": "True"})
        env.append({"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": scalar(cache["cpuOffloadingBufferSize"])})
    container = {
        "name": "vllm",
        "image": "/".join(scalar(image[key]) for key in ("registry", "name") if image.get(key)),
        "command": ["vllm", "serve", scalar(model.get("modelURL") or "")],
        "args": flags(
            (
                ("--enable-lora", model.get("enableLoRA") is True),
                ("--max-model-len", model.get("maxModelLen")),
                ("--dtype", model.get("dtype")),
                ("--max-num-seqs", model.get("maxNumSeqs")),
                ("--tensor-parallel-size", config.get("tensorParallelSize")),
                ("--gpu_memory_utilization", config.get("gpuMemoryUtilization")),
                ("--max-loras", config.get("maxLoras")),
                ("--enable-chunked-prefill", config.get("enableChunkedPrefill") is True),
                ("--no-enable-chunked-prefill", config.get("enableChunkedPrefill") is False),
                ("--no-enable-prefix-caching", config.get("enablePrefixCaching") is False),
            )
        )
        + [scalar(item) for item in field(config, "extraArgs", list)],
        "env": env,
        "resources": {"requests": sizes, "limits": sizes},
    }
    spec = {"containers": [container]}
    if deployment.get("shmSize"):
        spec = with_shm(spec, "shm", deployment["shmSize"])
    sidecar = field(deployment, "sidecarConfig")
    if sidecar.get("enabled"):
        sizes = {key: value for key, value in field(sidecar, "resources").items() if key in ("cpu", "memory")}
        beside = {
            "name": scalar(sidecar.get("name") or "sidecar"),
            "resources": {"requests": sizes, "limits": sizes},
        }
        spec["containers"] = [*spec["containers"], beside]
    replicas = number(deployment.get("replicas"))
    return [Template(spec, labels={"app": _name(raw)}, replicas=replicas)]


def _nim(raw, files):
    spec = field(raw, "spec")
    env = list(maps(spec, "env"))
    names = {item.get("name"): item.get("value") for item in env}
    if str(names.get("NIM_USE_SGLANG")) == "1":
        files.missing(raw, "runs SGLang (NIM_USE_SGLANG), not vLLM; left aside")
        return []
    parallelism = field(spec, "multiNode.parallelism")
    for key, name in (("pp", "NIM_PIPELINE_PARALLEL_SIZE"), ("tp", "NIM_TENSOR_PARALLEL_SIZE")):
        if parallelism.get(key) is not None and name not in names:
            env.append({"name": name, "value": scalar(parallelism[key])})
    image = field(spec, "image")
    reference = ":".join(scalar(image[key]) for key in ("repository", "tag") if image.get(key))
    container = {
        "name": f"{_name(raw)}-ctr",
        "image": reference,
        "command": field(spec, "command", list),
        "args": field(spec, "args", list),
        "env": env,
        "resources": field(spec, "resources"),
    }
    pod = {key: spec[key] for key in ("nodeSelector", "affinity", "tolerations") if key in spec}
    pod = with_shm(
        dict(pod, containers=[container]), "dshm", field(spec, "storage").get("sharedMemorySizeLimit")
    )
    return [
        Template(
            pod,
            labels={"app.kubernetes.io/part-of": "nim-service", "app.kubernetes.io/name": _name(raw)},
            replicas=number(spec.get("replicas")),
            members=number(parallelism.get("pp"), 1) or 1,
            model=_nim_model(raw, spec, reference, files),
            assumptions=(
                "the NIM picks a profile of its model by the GPU it finds, unless NIM_MODEL_PROFILE names one",
            ),
        )
    ]


def _nim_model(raw, spec, image, files):
    """The model by the NIMCache that the service uses, else by the name of the model's own image."""
    cache = files.find("apps.nvidia.com", "NIMCache", field(spec, "storage.nimCache").get("name"), raw)
    source = field(cache or {}, "spec.source.hf")
    if source.get("modelName"):
        name = "/".join(scalar(source[key]) for key in ("namespace", "modelName") if source.get(key))
        return {"value": name, "from": f"NIMCache/{_name(cache)}"}
    _registry, found, path = image.partition("/nim/")
    return {"value": path.partition(":")[0], "from": "image"} if found and path else None


_KAITO_CONFIG = "inference_config.yaml"


def _kaito(path, raw, files):
    """KAITO: a pod template of one's own, or a preset whose settings are in a ConfigMap."""
    # The fields are at the root of a Workspace; some write them below spec, as the InferenceSet has them.
    holder = field(raw, path) if path else raw if "inference" in raw else field(raw, "spec")
    inference, resource = field(holder, "inference"), field(holder, "resource")
    labels = {"kaito.sh/workspace": _name(raw)}
    selector = {}
    if resource.get("instanceType"):
        selector = {"node.kubernetes.io/instance-type": scalar(resource["instanceType"])}
    if "template" in inference:
        found = _of_template(field(inference, "template"), labels=labels)
        return [
            found._replace(
                spec=dict(found.spec, nodeSelector={**selector, **field(found.spec, "nodeSelector")})
            )
        ]
    preset = field(inference, "preset").get("name")
    if not preset:
        raise DocumentError("inference has neither preset nor template: nothing here says what it runs")
    config, assumptions = _kaito_config(raw, inference.get("config"), files)
    mig = field(resource, "mig")
    devices = {}
    if mig.get("profile"):
        devices = {f"nvidia.com/mig-{mig['profile']}": scalar(mig.get("count") or 1)}
    container = {
        "name": _name(raw),
        "image": "kaito-preset/vllm",
        "command": ["vllm", "serve", scalar(preset)],
        "resources": {"limits": devices},
    }
    pod = with_shm({"containers": [container], "nodeSelector": selector}, "dshm")
    return [
        Template(
            pod,
            labels=labels,
            members=number(resource.get("count"), 1) or 1,
            config=config,
            assumptions=(
                "KAITO starts its own script around vLLM; taken as vllm serve with the preset's name, no CPU or memory"
                " request or limit, and a memory-backed /dev/shm without a limit",
                *assumptions,
            ),
        )
    ]


def _kaito_config(raw, name, files):
    if not name:
        return None, (
            "no config is named: KAITO's inference-params-template of the operator's namespace applies",
        )
    found = files.find("", "ConfigMap", name, raw)
    text = field(found or {}, "data").get(_KAITO_CONFIG)
    if not isinstance(text, str):
        files.missing(
            raw,
            f"the ConfigMap {name} with {_KAITO_CONFIG} isn't in the files; its settings aren't known",
            "that ConfigMap",
        )
        return None, ()
    documents = manifest_files.parse(text, f"ConfigMap/{name}")
    return (documents[0] if documents and isinstance(documents[0], dict) else None), ()


def _model_booster(raw, files):
    """Kthena: an engine container a worker, its flags in a map."""
    spec = field(raw, "spec")
    backends = maps(spec, "backends") if "backends" in spec else [field(spec, "backend")]
    found = []
    for backend in backends:
        if not str(backend.get("type") or "").lower().startswith("vllm"):
            files.missing(raw, f"a backend runs {backend.get('type')}, not vLLM; left aside")
            continue
        uri = backend.get("modelURI")
        workers = [
            item
            for item in maps(backend, "workers")
            if item.get("type") in (None, "server", "prefill", "decode")
        ]
        for item in workers:
            found.append(_booster_worker(raw, backend, item, uri, len(workers) * len(backends) > 1))
    return found


def _booster_worker(raw, backend, item, uri, several):
    config = field(item, "config")
    container = {
        "name": "engine",
        "image": item.get("image"),
        "command": ["vllm", "serve", hub_name(uri) or scalar(uri or "")],
        "args": flags(
            (f"--{key}", json.dumps(value) if isinstance(value, (dict, list)) else value)
            for key, value in config.items()
        ),
        "env": maps(backend, "env"),
        "envFrom": maps(backend, "envFrom"),
        "resources": field(item, "resources"),
    }
    kind = scalar(item.get("type") or "server")
    labels = {
        "modelserving.volcano.sh/name": _name(raw),
        "modelserving.volcano.sh/role": "leader" if kind == "server" else kind,
    }
    return Template(
        with_shm({"containers": [container]}, "dshm"),
        role=kind if several else "",
        labels=labels,
        replicas=number(item.get("replicas")),
        members=number(item.get("pods"), 1) or 1,
    )


def _kubeai(raw, files):
    spec = field(raw, "spec")
    if spec.get("engine") not in (None, "VLLM"):
        files.missing(raw, f"runs {spec.get('engine')}, not vLLM; left aside")
        return []
    profile, _colon, count = scalar(spec.get("resourceProfile") or "").partition(":")
    known = files.resource_profiles().get(profile)
    devices: dict[str, Any] = {}
    pod: dict[str, Any] = {}
    assumptions: tuple[str, ...] = ()
    gpu = None
    if known is not None:
        factor = number(count, 1) or 1
        for kind in ("requests", "limits"):
            devices[kind] = {key: _times(value, factor) for key, value in field(known, kind).items()}
        pod = {key: known[key] for key in ("nodeSelector", "affinity", "tolerations") if key in known}
    elif profile.startswith(("nvidia-gpu-", "amd-gpu-")):
        make, _gpu, product = profile.partition("-gpu-")
        name = f"{make}.com/gpu"
        devices = {"requests": {name: count or "1"}, "limits": {name: count or "1"}}
        gpu = {"product": product.upper(), "from": f"resourceProfile {profile}"}
        assumptions = (
            f"the resource profile {profile} is in the chart's values, which aren't in the files: its name was read as the"
            " GPU, and no CPU or memory request or limit is known",
        )
    elif profile:
        files.missing(
            raw,
            f"the resource profile {profile} is in KubeAI's values, which aren't in the files: its GPU and memory aren't known",
            "the values of the KubeAI chart (resourceProfiles), in a file beside it",
        )
    url = spec.get("url")
    container = {
        "name": "server",
        "image": spec.get("image") or "vllm/vllm-openai",
        "args": [f"--model={hub_name(url) or scalar(url or '')}", *field(spec, "args", list)],
        "env": [{"name": scalar(name), "value": scalar(value)} for name, value in field(spec, "env").items()],
        "envFrom": maps(spec, "envFrom"),
        "resources": devices,
    }
    labels = {"model": _name(raw), "app.kubernetes.io/managed-by": "kubeai"}
    replicas = number(spec.get("replicas"), number(spec.get("minReplicas")))
    pod = with_shm(dict(pod, containers=[container]), "dshm")
    return [Template(pod, labels=labels, replicas=replicas, gpu=gpu, assumptions=assumptions)]


def _times(value, factor):
    plain = number(value)
    return value if plain is None else plain * factor


# --- the table

_TEMPLATE = partial(_one, "spec.template")
_APPS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")

# (API group, kind) -> its reader.
READERS: dict[tuple[str, str], Callable[..., list[Template]]] = {
    ("", "Pod"): _pod,
    ("", "PodTemplate"): partial(_one, "template"),
    ("", "ReplicationController"): _TEMPLATE,
    **{("apps", kind): _TEMPLATE for kind in _APPS},
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): partial(_one, "spec.jobTemplate.spec.template"),
    ("argoproj.io", "Rollout"): _rollout,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("serving.knative.dev", "Service"): partial(_knative, "spec.template"),
    ("serving.knative.dev", "Configuration"): partial(_knative, "spec.template"),
    ("serving.knative.dev", "Revision"): partial(_knative, ""),
    ("serving.kserve.io", "InferenceService"): inference_service,
    ("serving.kserve.io", "ServingRuntime"): serving_runtime,
    ("serving.kserve.io", "ClusterServingRuntime"): serving_runtime,
    ("serving.kserve.io", "LLMInferenceService"): llm_inference_service,
    ("ome.io", "InferenceService"): ome_inference_service,
    ("ome.io", "ServingRuntime"): serving_runtime,
    ("ome.io", "ClusterServingRuntime"): serving_runtime,
    ("ray.io", "RayCluster"): partial(_ray, "spec"),
    ("ray.io", "RayService"): partial(_ray, "spec.rayClusterConfig"),
    ("ray.io", "RayJob"): partial(_ray, "spec.rayClusterSpec"),
    ("ray.io", "RayCronJob"): partial(_ray, "spec.jobTemplate.rayClusterSpec"),
    ("orchestration.aibrix.ai", "RayClusterFleet"): partial(_ray, "spec.template.spec"),
    ("orchestration.aibrix.ai", "RayClusterReplicaSet"): partial(_ray, "spec.template.spec"),
    ("orchestration.aibrix.ai", "StormService"): partial(_storm_service, "spec.template.spec.roles"),
    ("orchestration.aibrix.ai", "RoleSet"): partial(_storm_service, "spec.roles"),
    ("nvidia.com", "DynamoGraphDeployment"): _dynamo,
    ("grove.io", "PodCliqueSet"): _clique_set,
    ("production-stack.vllm.ai", "VLLMRuntime"): _vllm_runtime,
    ("apps.nvidia.com", "NIMService"): _nim,
    ("kaito.sh", "Workspace"): partial(_kaito, ""),
    ("kaito.sh", "InferenceSet"): partial(_kaito, "spec.template"),
    ("workload.serving.volcano.sh", "ModelBooster"): _model_booster,
    ("workload.serving.volcano.sh", "ModelServing"): _model_serving,
    ("kubeai.org", "Model"): _kubeai,
}

# Objects that carry Helm values: where.
VALUES = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): "spec.values",
    ("argoproj.io", "Application"): "spec.source.helm.valuesObject",
}

# Objects that stand for others which only a tool can make of them: what to do.
UNRENDERED = {
    (
        "kustomize.config.k8s.io",
        "Kustomization",
    ): "kubectl kustomize FOLDER > rendered.yaml, and give that file",
    ("helm.toolkit.fluxcd.io", "HelmRelease"): "helm template with its spec.values, and give the output",
    ("argoproj.io", "Application"): "argocd app manifests NAME --source git, and give the output",
    (
        "kaito.sh",
        "MultiRoleInference",
    ): "the Workspaces that KAITO makes of it (kubectl get workspace -o yaml)",
    ("template.openshift.io", "Template"): "oc process -f FILE, and give the output",
    ("", "Template"): "oc process -f FILE, and give the output",
}
