# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm values of charts that deploy vLLM, recognised by their shape and rendered as the chart's templates do it.

Charts: vllm-project/production-stack ``helm/templates/{deployment-vllm-multi.yaml,_helpers.tpl}``, llm-d modelservice
``charts/llm-d-modelservice/templates/_helpers.tpl``, vllm-project/vllm ``examples/online_serving/chart-helm``. Values are
read without the chart's own defaults and without other values files: what those add isn't known.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .manifest_parts import Template, field, flags, hub_name, maps, number, scalar, with_shm

# The chart's default where a tensor parallel size is set and no size of /dev/shm is.
_STACK_SHM = "20Gi"
_REFERENCE = re.compile(r"[\"']?\{\{-?\s*\.Values\.([\w.]+)\s*-?\}\}[\"']?")


class Release(NamedTuple):
    """What one chart makes of values. chart: its name; kind, name: of the object that it renders; path: where the
    settings are in the values."""

    chart: str
    kind: str
    api_version: str
    name: str
    path: str
    template: Template


def chart_of(values):
    """Which chart's values these are (see ``_CHARTS``), or None."""
    return next((name for name, (is_its, _read) in _CHARTS.items() if is_its(values)), None)


def releases(values):
    """``[Release]`` of values that ``chart_of`` knows. Raises DocumentError for fields of another type than the chart's."""
    _is_its, read = _CHARTS[chart_of(values)]
    return read(values)


# --- vLLM production-stack


def _is_stack(values):
    specs = values.get("servingEngineSpec")
    return isinstance(specs, dict) and "modelSpec" in specs


def _stack(values):
    engine = field(values, "servingEngineSpec")
    return [_stack_model(engine, item, index) for index, item in enumerate(maps(engine, "modelSpec"))]


def _stack_model(engine, model, index):
    config = field(model, "vllmConfig")
    cache = field(model, "lmcacheConfig")
    container = {
        "name": "vllm",
        "image": f"{model.get('repository') or ''}:{model.get('tag') or ''}".strip(":"),
        "command": ["vllm", "serve", scalar(model.get("modelURL") or "")],
        "args": _stack_flags(model, config),
        "env": maps(model, "env") + _stack_cache(cache),
        "resources": field(model, "resources") or _stack_resources(model),
        "volumeMounts": maps(model, "extraVolumeMounts"),
    }
    spec: dict[str, Any] = {"containers": [container], "volumes": maps(model, "extraVolumes")}
    for key in ("nodeSelector", "tolerations", "affinity"):
        if engine.get(key) or model.get(key):
            spec[key] = model.get(key) or engine.get(key)
    if maps(model, "nodeSelectorTerms"):
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": model["nodeSelectorTerms"]
            }
        }
        spec["affinity"] = {"nodeAffinity": required}
    if cache.get("enablePD") is True:
        spec["hostIPC"] = True
    if "initContainer" in model:
        spec["initContainers"] = [field(model, "initContainer")]
    if "tensorParallelSize" in config:
        spec = with_shm(spec, "shm", model.get("shmSize") or _STACK_SHM)
    ray = "raySpec" in model
    name = scalar(model.get("name") or f"model-{index}")
    template = Template(
        spec,
        labels={"model": name},
        replicas=number(model.get("replicaCount")),
        members=(number(config.get("pipelineParallelSize"), 1) or 1) if ray else 1,
    )
    kind, version = ("RayCluster", "ray.io/v1") if ray else ("Deployment", "apps/v1")
    return Release(
        "vLLM production-stack",
        kind,
        version,
        f"{name}-deployment-vllm",
        f"servingEngineSpec.modelSpec[{index}]",
        template,
    )


def _stack_flags(model, config):
    known = (
        ("--enable-lora", model.get("enableLoRA") is True),
        ("--enable-chunked-prefill", config.get("enableChunkedPrefill") is True),
        ("--no-enable-chunked-prefill", config.get("enableChunkedPrefill") is False),
        ("--enable-prefix-caching", config.get("enablePrefixCaching") is True),
        ("--no-enable-prefix-caching", bool(config) and not config.get("enablePrefixCaching")),
        ("--max-model-len", config.get("maxModelLen")),
        ("--dtype", config.get("dtype")),
        ("--tensor-parallel-size", config.get("tensorParallelSize")),
        ("--pipeline-parallel-size", config.get("pipelineParallelSize")),
        ("--max-num-seqs", config.get("maxNumSeqs")),
        ("--gpu_memory_utilization", config.get("gpuMemoryUtilization")),
        ("--max_loras", config.get("maxLoras")),
    )
    return flags(known) + [scalar(item) for item in field(config, "extraArgs", list)]


def _stack_cache(cache):
    size = cache.get("cpuOffloadingBufferSize")
    if size in (None, "", "0", 0):
        return []
    return [
        {"name": "LMCACHE_LOCAL_CPU", "value": "True"},
        {"name": "LMCACHE_MAX_LOCAL_CPU_SIZE", "value": scalar(size)},
    ]


def _stack_resources(model):
    gpu = {}
    if number(model.get("requestGPU"), 0):
        gpu = {scalar(model.get("requestGPUType") or "nvidia.com/gpu"): model["requestGPU"]}
    found = {}
    for kind, word in (("requests", "request"), ("limits", "limit")):
        sizes = {
            "cpu": model.get(f"{word}CPU"),
            "memory": model.get(f"{word}Memory"),
            "nvidia.com/gpumem": model.get(f"{word}GPUMem"),
            "nvidia.com/gpumem-percentage": model.get(f"{word}GPUMemPercentage"),
            "nvidia.com/gpucores": model.get(f"{word}GPUCores"),
        }
        found[kind] = {**{key: value for key, value in sizes.items() if value is not None}, **gpu}
    return found


# --- llm-d modelservice


def _is_model_service(values):
    roles = [values.get(name) for name in ("decode", "prefill")]
    has_containers = any(isinstance(role, dict) and "containers" in role for role in roles)
    return has_containers and isinstance(values.get("modelArtifacts"), dict)


def _model_service(values):
    values = _resolved(values, values)
    found = []
    for role in ("decode", "prefill"):
        part = field(values, role)
        if not part.get("containers") or part.get("create") is False:
            continue
        parallelism = field(part, "parallelism") or field(values, "parallelism")
        sizes = _parallel_sizes(parallelism)
        containers = [_service_container(values, item, sizes) for item in maps(part, "containers")]
        spec = {
            "containers": containers,
            "initContainers": maps(part, "initContainers"),
            "volumes": maps(part, "volumes"),
        }
        spec.update(field(part, "extraConfig"))
        types = field(part, "acceleratorTypes")
        if types.get("labelKey"):
            expression = {
                "key": types["labelKey"],
                "operator": "In",
                "values": field(types, "labelValues", list),
            }
            terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        multi = values.get("multinode") is True
        kind, version = (
            ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1") if multi else ("Deployment", "apps/v1")
        )
        template = Template(
            spec,
            labels={
                "llm-d.ai/role": role,
                **{key: scalar(value) for key, value in field(values, "modelArtifacts.labels").items()},
            },
            replicas=number(part.get("replicas")),
            members=sizes["workers"] if multi else 1,
        )
        name = scalar(
            values.get("fullnameOverride") or field(values, "modelArtifacts").get("name") or "model"
        )
        name = f"{name.rpartition('/')[2].lower()}-{role}"
        found.append(Release("llm-d modelservice", kind, version, name, f"{role}.containers", template))
    return found


def _resolved(value, values):
    """``value`` with ``{{ .Values.a.b }}`` filled in, as the chart does for some of its values."""
    if isinstance(value, dict):
        return {key: _resolved(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, values) for item in value]
    if not isinstance(value, str) or "{{" not in value:
        return value

    def filled(match):
        found: Any = values
        for name in match.group(1).split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return match.group(0) if found is None or isinstance(found, (dict, list)) else scalar(found)

    return _REFERENCE.sub(filled, value)


def _parallel_sizes(parallelism):
    """Sizes as the chart derives the missing ones from those given."""
    tensor = number(parallelism.get("tensor"), 1) or 1
    data, local, workers = (number(parallelism.get(name)) for name in ("data", "dataLocal", "workers"))
    if local is None:
        local = data // workers if data and workers else data or 1
    if data is None:
        data = local * (workers or 1)
    if workers is None:
        workers = max(1, data // local) if local else 1
    return {"tensor": tensor, "data": data, "local": local, "workers": workers}


def _service_container(values, item, sizes):
    command = item.get("modelCommand") or "custom"
    container = {
        key: value
        for key, value in item.items()
        if key not in ("modelCommand", "mountModelVolume", "extraConfig")
    }
    container.update(field(item, "extraConfig"))
    container["name"] = item.get("name") or "vllm"
    if command in ("vllmServe", "imageDefault"):
        model = _model_argument(values)
        built_in = flags(
            (
                ("--tensor-parallel-size", sizes["tensor"] if sizes["tensor"] > 1 else None),
                ("--data-parallel-size", sizes["data"] if sizes["data"] > 1 else None),
                ("--data-parallel-size-local", sizes["local"] if sizes["local"] > 1 else None),
                ("--served-model-name", field(values, "modelArtifacts").get("name")),
            )
        )
        own = field(item, "args", list)
        if command == "vllmServe":
            container["command"] = ["vllm", "serve"]
            container["args"] = [model, *built_in, *own]
        else:
            container["args"] = ["--model", model, *built_in, *own]
    elif not item.get("command"):
        container["args"] = field(item, "args", list)
    container["env"] = [
        *maps(item, "env"),
        {"name": "DP_SIZE", "value": scalar(sizes["data"])},
        {"name": "TP_SIZE", "value": scalar(sizes["tensor"])},
        {"name": "DP_SIZE_LOCAL", "value": scalar(sizes["local"])},
    ]
    container["resources"] = _service_resources(values, item, sizes)
    return container


def _model_argument(values):
    artifacts = field(values, "modelArtifacts")
    uri = scalar(artifacts.get("uri") or "")
    scheme, _separator, rest = uri.partition("://")
    if scheme == "pvc":
        return f"{artifacts.get('mountPath') or '/model-cache'}/{rest.partition('/')[2]}"
    if scheme == "pvc+hf":
        return "/".join(rest.split("/")[-2:])
    return hub_name(uri) or scalar(artifacts.get("name") or uri)


def _service_resources(values, item, sizes):
    """The chart adds the accelerator that parallelism asks for where the container names none."""
    given = field(item, "resources")
    accelerator = field(values, "accelerator")
    if accelerator.get("dra") is True or accelerator.get("type") == "cpu":
        return given
    make = scalar(accelerator.get("type") or "nvidia")
    name = scalar(field(accelerator, "resources").get(make) or "nvidia.com/gpu")
    count = sizes["local"] * sizes["tensor"]
    return {
        **given,
        **{kind: {name: scalar(count), **field(given, kind)} for kind in ("requests", "limits")},
    }


# --- vLLM's sample chart


def _is_sample_chart(values):
    image = values.get("image")
    if not isinstance(image, dict) or "repository" not in image:
        return False
    return "vllm" in f"{image['repository']} {image.get('command')}" and isinstance(
        values.get("resources"), dict
    )


def _sample_chart(values):
    image = field(values, "image")
    container = {
        "name": "vllm",
        "image": f"{image['repository']}:{image.get('tag') or 'latest'}",
        "command": field(image, "command", list),
        "env": maps(image, "env"),
        "resources": field(values, "resources"),
    }
    spec: dict[str, Any] = {"containers": [container, *maps(values, "extraContainers")]}
    for key in ("nodeSelector", "tolerations"):
        if values.get(key):
            spec[key] = values[key]
    models = [scalar(item) for item in field(values, "gpuModels", list) if item != "TYPE_GPU_USED"]
    if models:
        expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": models}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    shm = field(values, "shm")
    if shm.get("enabled") is True:
        spec = with_shm(spec, "shm", shm.get("size"), containers=("vllm",))
    template = Template(
        spec,
        labels={key: scalar(value) for key, value in field(values, "labels").items()},
        replicas=number(values.get("replicaCount")),
    )
    return [Release("vLLM's sample chart", "Deployment", "apps/v1", "deployment-vllm", "image", template)]


# Chart -> whether values are its, and what it renders of them. The first that fits counts.
_CHARTS = {
    "vLLM production-stack": (_is_stack, _stack),
    "llm-d modelservice": (_is_model_service, _model_service),
    "vLLM's sample chart": (_is_sample_chart, _sample_chart),
}
