# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod templates of KServe's and OME's services, merged with their runtimes as the controllers do it.

What KServe ships: ``config/runtimes/*.yaml`` and ``config/llmisvcconfig/config-llm-template.yaml`` of kserve/kserve; merging:
shared facts "workload-kinds", sections 2 and 3. A runtime that is in the same files wins over what is known of it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import DocumentError
from .manifest_parts import (
    Template,
    field,
    flags,
    hub_name,
    maps,
    merged_container,
    merged_spec,
    number,
    scalar,
)

_KSERVE, _OME = "serving.kserve.io", "ome.io"
_MODEL_FOLDER = "/mnt/models"
_SMALL = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}


def _shipped(container, size=None):
    volume = {"medium": "Memory", **({"sizeLimit": size} if size else {})}
    mounted = dict(
        container, name="kserve-container", volumeMounts=[{"name": "devshm", "mountPath": "/dev/shm"}]
    )
    return {"containers": [mounted], "volumes": [{"name": "devshm", "emptyDir": volume}]}


_HUGGINGFACE_COMMAND = ["python3", "-m", "huggingfaceserver"]
# Runtimes that KServe ships and that run vLLM: name -> spec.
_SHIPPED = {
    "kserve-huggingfaceserver": _shipped(
        {"image": "kserve/huggingfaceserver", "command": _HUGGINGFACE_COMMAND, "resources": _SMALL}
    ),
    "kserve-vllmserver": _shipped(
        {
            "image": "kserve/vllmserver",
            "command": [
                "bash",
                "-c",
                f"vllm serve ${{MODEL_ID:-{_MODEL_FOLDER}}} --host 0.0.0.0 --port 8000 $@",
                "bash",
            ],
            "resources": _SMALL,
        }
    ),
}
_MULTI_NODE = {"requests": {"cpu": "8"}, "limits": {"cpu": "16", "memory": "48Gi"}}
_SHIPPED["kserve-huggingfaceserver-multinode"] = dict(
    _shipped(
        {
            "image": "kserve/huggingfaceserver",
            "command": [
                *_HUGGINGFACE_COMMAND,
                f"--model_dir={_MODEL_FOLDER}",
                "--tensor-parallel-size=$(TENSOR_PARALLEL_SIZE)",
                "--pipeline-parallel-size=$(PIPELINE_PARALLEL_SIZE)",
            ],
            "env": [{"name": "TENSOR_PARALLEL_SIZE", "value": "1"}],
            "resources": {
                "requests": _MULTI_NODE["requests"],
                "limits": dict(_MULTI_NODE["limits"], **{"nvidia.com/gpu": "1"}),
            },
        },
        size="12Gi",
    ),
    workerSpec={
        "containers": [
            {
                "name": "worker-container",
                "image": "kserve/huggingfaceserver",
                "resources": _MULTI_NODE,
                "volumeMounts": [{"name": "devshm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": "12Gi"}}],
    },
)
# The model format of an InferenceService without a runtime's name -> the shipped runtime that KServe selects.
_BY_FORMAT = {"huggingface": "kserve-huggingfaceserver", "vllm": "kserve-vllmserver"}


# --- InferenceService


def inference_service(raw, files):
    """Templates of a KServe InferenceService: the predictor, and the workers of a multi-node one."""
    predictor = field(raw, "spec.predictor")
    labels = {"serving.kserve.io/inferenceservice": scalar(raw["metadata"]["name"]), "component": "predictor"}
    model, kind = _model_of(predictor)
    if kind == "containers":
        spec = {key: value for key, value in predictor.items() if key != "workerSpec"}
        return [Template(spec, labels=labels, path="spec.predictor.containers[{c}]")]
    if model is None:
        raise DocumentError(
            "spec.predictor has neither model nor containers nor huggingface: nothing here says what it runs"
        )
    runtime, assumptions = _runtime_of(raw, model, kind, predictor, files)
    containers = maps(runtime, "containers")
    named = [item for item in containers if item.get("name") == "kserve-container"]
    first: dict = next(iter(named or containers), {})
    own = {key: value for key, value in model.items() if key not in _MODEL_FIELDS}
    container = dict(merged_container(first, own, append_args=True), name="kserve-container")
    container = _with_server(_filled(container, raw))
    spec = merged_spec(
        {key: value for key, value in runtime.items() if key not in _RUNTIME_FIELDS},
        {key: value for key, value in predictor.items() if key not in ("model", kind, "workerSpec")},
    )
    spec["containers"] = [
        container,
        *[item for item in spec["containers"] if item.get("name") != first.get("name")],
    ]
    uri = model.get("storageUri") or field(model, "storage").get("path")
    spec, source = _with_initializer(spec, uri)
    replicas = number(predictor.get("minReplicas"))
    templates = [Template(spec, labels=labels, replicas=replicas, model=source, assumptions=assumptions)]
    if "workerSpec" in predictor:
        templates = _multi_node(templates[0], predictor, runtime)
    return templates


# What an inline model has beside the fields of a container, and a runtime beside those of a PodSpec.
_MODEL_FIELDS = ("modelFormat", "runtime", "storageUri", "storage", "protocolVersion", "runtimeVersion")
_RUNTIME_FIELDS = (
    "supportedModelFormats",
    "protocolVersions",
    "annotations",
    "labels",
    "multiModel",
    "disabled",
    "grpcEndpoint",
    "grpcDataEndpoint",
    "httpDataEndpoint",
    "builtInAdapter",
    "storageHelper",
    "workerSpec",
    "replicas",
)


def _model_of(predictor):
    if "model" in predictor:
        return field(predictor, "model"), "model"
    if predictor.get("containers"):
        return None, "containers"
    if "huggingface" in predictor:
        return field(predictor, "huggingface"), "huggingface"
    return None, None


def _runtime_of(raw, model, kind, predictor, files):
    """``(spec, assumptions)`` of the runtime that serves ``model``."""
    name = model.get("runtime")
    wanted = "huggingface" if kind == "huggingface" else field(model, "modelFormat").get("name")
    found = _in_files(files, raw, name, wanted, "workerSpec" in predictor)
    if found:
        return field(found, "spec"), ()
    if not name:
        name = _BY_FORMAT.get(wanted or "")
        name = "kserve-huggingfaceserver-multinode" if name and "workerSpec" in predictor else name
        why = f"no runtime is named: for the model format {wanted} KServe selects its own"
    else:
        why = "the runtime isn't in the files"
    if name in _SHIPPED:
        text = (
            f"{why}; taken as {name} as KServe ships it (memory limit and CPU limit where the service sets none,"
            " a memory-backed /dev/shm)"
        )
        return _SHIPPED[name], (text,)
    files.missing(
        raw,
        f"the ServingRuntime or ClusterServingRuntime {name} isn't in the files; the pod was read without it"
        if name
        else f"no runtime for the model format {wanted} is in the files; the pod was read without one",
        f"kubectl get clusterservingruntime {name or 'NAME'} -o yaml, in a file beside it",
    )
    return {}, ()


def _in_files(files, raw, name, wanted, multi_node):
    """The runtime of that name, else the one in the files that supports the model's format."""
    runtimes = files.of_kind(_KSERVE, "ServingRuntime") + files.of_kind(_KSERVE, "ClusterServingRuntime")
    if name:
        return next((item for item in runtimes if item["metadata"].get("name") == name), None)
    fitting = [
        item
        for item in runtimes
        if any(
            known.get("name") == wanted and known.get("autoSelect")
            for known in maps(item, "spec.supportedModelFormats")
        )
        and ("workerSpec" in field(item, "spec")) == multi_node
    ]
    return fitting[0] if fitting else None


def _filled(container, raw):
    """KServe fills in ``{{.Name}}`` of a runtime's arguments."""

    def filled(text):
        name = scalar(raw["metadata"]["name"])
        return text.replace("{{.Name}}", name).replace("{{ .Name }}", name) if isinstance(text, str) else text

    return dict(
        container,
        args=[filled(item) for item in field(container, "args", list)],
        env=[
            dict(item, value=filled(item["value"])) if "value" in item else item
            for item in maps(container, "env")
        ],
    )


def _with_server(container):
    """The image's own entry point, without which its arguments would be read as vLLM's own."""
    if not container.get("command") and "huggingfaceserver" in str(container.get("image") or ""):
        return dict(container, command=_HUGGINGFACE_COMMAND)
    return container


def _with_initializer(spec, uri):
    """The init container with which KServe loads a model, and the repository that it loads."""
    if not uri:
        return spec, None
    loader = {
        "name": "storage-initializer",
        "image": "kserve/storage-initializer",
        "args": [scalar(uri), _MODEL_FOLDER],
    }
    source = {"value": hub_name(uri) or scalar(uri), "from": "storageUri"}
    return dict(spec, initContainers=[*maps(spec, "initContainers"), loader]), source


def _multi_node(head, predictor, runtime):
    worker = field(predictor, "workerSpec")
    pipeline = number(worker.get("pipelineParallelSize"), 2)
    sizes = {"PIPELINE_PARALLEL_SIZE": scalar(pipeline)}
    if worker.get("tensorParallelSize") is not None:
        sizes["TENSOR_PARALLEL_SIZE"] = scalar(worker["tensorParallelSize"])
    env = [{"name": name, "value": value} for name, value in sizes.items()]
    containers = [merged_container(item, {"env": env}) for item in head.spec["containers"][:1]]
    spec = merged_spec(
        field(runtime, "workerSpec"),
        {
            key: value
            for key, value in worker.items()
            if key not in ("pipelineParallelSize", "tensorParallelSize")
        },
    )
    spec["containers"] = [merged_container(item, {"env": env}) for item in spec["containers"]]
    # KServe gives every node as many GPUs as the tensor is split into.
    if worker.get("tensorParallelSize") is not None:
        gpus = {kind: {"nvidia.com/gpu": sizes["TENSOR_PARALLEL_SIZE"]} for kind in ("requests", "limits")}
        containers = [_with_gpus(item, gpus) for item in containers]
        spec["containers"] = [_with_gpus(item, gpus) for item in spec["containers"]]
    return [
        head._replace(spec=dict(head.spec, containers=containers + head.spec["containers"][1:]), role="head"),
        Template(spec, role="worker", labels=head.labels, members=max(1, pipeline - 1), model=head.model),
    ]


def _with_gpus(container, gpus):
    limits = field(container, "resources.limits")
    if any("gpu" in name for name in limits) and limits.get("nvidia.com/gpu") not in (1, "1"):
        return container
    return merged_container(container, {"resources": gpus})


def serving_runtime(raw, files):
    """The template of a runtime on its own, where no service of the same files uses a runtime."""
    services = files.of_kind(_KSERVE, "InferenceService") + files.of_kind(_OME, "InferenceService")
    if services:
        return []
    spec = field(raw, "spec")
    labels = {"serving.kserve.io/inferenceservice": scalar(raw["metadata"]["name"])}
    if "engineConfig" in spec or "decoderConfig" in spec:
        return [
            item
            for component, config in (("engine", "engineConfig"), ("decoder", "decoderConfig"))
            if config in spec
            for item in _ome_component(raw, component, {}, field(spec, config), raw["metadata"]["name"])
        ]
    pods = {key: value for key, value in spec.items() if key not in _RUNTIME_FIELDS}
    pods["containers"] = [_with_server(item) for item in maps(spec, "containers")]
    return [Template(pods, labels=labels, path="spec.containers[{c}]")]


# --- LLMInferenceService

_LLM_COMMAND = ["vllm", "serve", _MODEL_FOLDER]
_LLM_BASE = {
    "containers": [
        {
            "name": "main",
            "image": "ghcr.io/llm-d/llm-d-cuda",
            "command": _LLM_COMMAND,
            "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
        }
    ],
    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
}
_LLM_ASSUMPTION = "KServe's own base configuration: vllm serve /mnt/models, and a /dev/shm of 1Gi"


def llm_inference_service(raw, files):
    """Templates of an LLMInferenceService: decode (or both), prefill, and the workers of each."""
    spec = _with_bases(raw, files)
    name = scalar(raw["metadata"]["name"])
    uri = field(spec, "model").get("uri")
    templates = []
    for role, part in (("", spec), ("prefill", field(spec, "prefill"))):
        if role and "prefill" not in spec:
            continue
        parallelism = field(part, "parallelism") or field(spec, "parallelism")
        multi_node = "worker" in part
        for worker in (False, True) if multi_node else (False,):
            component = (
                "llminferenceservice-workload" + (f"-{role}" if role else "") + ("-worker" if worker else "")
            )
            labels = {
                "app.kubernetes.io/part-of": "llminferenceservice",
                "app.kubernetes.io/name": name,
                "app.kubernetes.io/component": component,
            }
            if multi_node:
                labels.update(_group_labels(f"{name}-kserve-mn" + (f"-{role}" if role else ""), worker))
            pod_spec = merged_spec(_LLM_BASE, field(part, "worker" if worker else "template"))
            pod_spec["containers"] = [
                _llm_container(item, parallelism, multi_node) if item.get("name") == "main" else item
                for item in pod_spec["containers"]
            ]
            pod_spec, source = _with_initializer(pod_spec, uri)
            size = _nodes(parallelism) if multi_node else 1
            templates.append(
                Template(
                    pod_spec,
                    role="-".join(word for word in (role, "worker" if worker else "") if word),
                    labels=labels,
                    replicas=number(part.get("replicas"), 1),
                    members=max(1, size - 1) if worker else 1,
                    model=source,
                    assumptions=(_LLM_ASSUMPTION,),
                )
            )
    return templates


def _with_bases(raw, files):
    """``spec`` over the configurations that ``baseRefs`` name, the later ones on top."""
    spec = field(raw, "spec")
    merged: dict = {}
    for reference in maps(spec, "baseRefs"):
        name = reference.get("name")
        base = files.find(_KSERVE, "LLMInferenceServiceConfig", name, raw)
        if base is None:
            files.missing(
                raw,
                f"the LLMInferenceServiceConfig {name} isn't in the files; it was read without it",
                f"kubectl get llminferenceserviceconfig {name} -o yaml, in a file beside it",
            )
        merged = _over(merged, field(base or {}, "spec"))
    return _over(merged, spec)


def _over(below, above):
    result = {**below, **above}
    for key in ("template", "worker"):
        if key in below and key in above:
            result[key] = merged_spec(field(below, key), field(above, key))
    for key in ("model", "parallelism"):
        if key in below and key in above:
            result[key] = {**field(below, key), **field(above, key)}
    if "prefill" in below and "prefill" in above:
        result["prefill"] = _over(field(below, "prefill"), field(above, "prefill"))
    return result


def _nodes(parallelism):
    """How many pods one engine has: by data parallel ranks a node, else by pipeline stages."""
    data, local = number(parallelism.get("data")), number(parallelism.get("dataLocal"))
    if data and local:
        return max(1, data // local)
    return number(parallelism.get("pipeline"), 2) or 2


def _llm_container(container, parallelism, multi_node):
    built_in = flags(
        (
            ("--tensor-parallel-size", parallelism.get("tensor")),
            ("--pipeline-parallel-size", parallelism.get("pipeline")),
            ("--data-parallel-size", parallelism.get("data")),
            ("--data-parallel-size-local", parallelism.get("dataLocal") if multi_node else None),
            ("--enable-expert-parallel", parallelism.get("expert") is True),
        )
    )
    if container.get("command") != _LLM_COMMAND:
        return container  # a command of its own takes care of all flags
    return dict(container, args=built_in + field(container, "args", list))


def _group_labels(name, worker):
    return {
        "leaderworkerset.sigs.k8s.io/name": name,
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/worker-index": "1" if worker else "0",
    }


# --- OME


def ome_inference_service(raw, files):
    """Templates of an OME InferenceService: engine and decoder, each alone or as leader and workers."""
    spec = field(raw, "spec")
    model = _ome_model(spec, raw, files)
    runtime, assumptions = _ome_runtime(spec, raw, files)
    templates = []
    for component, config in (("engine", "engineConfig"), ("decoder", "decoderConfig")):
        if component not in spec:
            continue
        below = field(runtime, config)
        if not below and component == "engine" and runtime.get("containers"):
            below = {**runtime, "runner": maps(runtime, "containers")[0], "containers": None}
        found = _ome_component(raw, component, field(spec, component), below, model["value"])
        templates += [item._replace(model=model, assumptions=assumptions) for item in found]
    if not templates:
        raise DocumentError("spec has neither engine nor decoder: nothing here says what it runs")
    if len({item.labels["component"] for item in templates}) == 1:
        templates = [item._replace(role=item.role.partition("-")[2]) for item in templates]
    return templates


def _ome_model(spec, raw, files):
    name = field(spec, "model").get("name")
    for kind in ("BaseModel", "ClusterBaseModel"):
        found = files.find(_OME, kind, name, raw)
        uri = field(found or {}, "spec.storage").get("storageUri")
        if uri:
            return {"value": hub_name(uri) or scalar(uri), "from": f"{kind}/{name}"}
    return {"value": scalar(name) if name else "", "from": "spec.model.name"}


def _ome_runtime(spec, raw, files):
    name = field(spec, "runtime").get("name")
    runtimes = files.of_kind(_OME, "ServingRuntime") + files.of_kind(_OME, "ClusterServingRuntime")
    fitting = [item for item in runtimes if name in (None, item["metadata"].get("name"))]
    if len(fitting) == 1:
        text = (
            f"no runtime is named: taken as {fitting[0]['metadata'].get('name')}, the only one in the files"
        )
        return field(fitting[0], "spec"), () if name else (text,)
    if not any(
        field(spec, component).get(key) for component in ("engine", "decoder") for key in ("runner", "leader")
    ):
        raise DocumentError(
            f"the runtime {name or 'that OME selects'} isn't in the files, and the service itself says nothing of what it"
            " runs: add it (kubectl get clusterservingruntime NAME -o yaml)"
        )
    files.missing(
        raw,
        f"the runtime {name or 'that OME selects'} isn't in the files; the pod was read without it",
        "kubectl get clusterservingruntime NAME -o yaml, in a file beside it",
    )
    return {}, ()


def _ome_component(raw, component, own, below, model):
    labels = {"ome.io/inferenceservice": scalar(raw["metadata"]["name"]), "component": component}
    if "leader" not in own and "leader" not in below:
        replicas = number(own.get("minReplicas"))
        return [Template(_ome_spec(own, below, model), role=component, labels=labels, replicas=replicas)]
    found = []
    for part in ("leader", "worker"):
        spec = _ome_spec(field(own, part), field(below, part), model)
        size = number(field(own, "worker").get("size", field(below, "worker").get("size")), 1)
        found.append(
            Template(
                spec,
                role=f"{component}-{part}",
                labels=dict(
                    labels, **_group_labels(f"{raw['metadata']['name']}-{component}", part == "worker")
                ),
                members=size if part == "worker" else 1,
            )
        )
    return found


def _ome_spec(own, below, model):
    runner = merged_container(field(below, "runner"), field(own, "runner"))
    # OME tells its runtimes where the model lies; the name says more than the folder.
    runner["env"] = [*runner["env"], {"name": "MODEL_PATH", "value": scalar(model)}]
    spec = merged_spec(
        {
            key: value
            for key, value in below.items()
            if key not in ("runner", "leader", "worker", "containers")
        },
        {key: value for key, value in own.items() if key not in ("runner", "leader", "worker")},
    )
    return dict(
        spec, containers=[dict(runner, name=runner.get("name") or "ome-container"), *spec["containers"]]
    )
