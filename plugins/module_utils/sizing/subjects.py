# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be sized: an engine of the evidence, or a model with flags, read into what ``budget`` takes.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from typing import Any, NamedTuple

from ..engine import flags
from ..engine.accelerators import devices
from ..engine.command_line import is_unresolved
from ..engine.settings import engine_generation, engine_settings, uses_v2_runner
from ..engine.versions import in_range
from ..quantities import MIB, quantity_bytes
from . import gpus
from .architecture import ConfigError, architecture, layer_list
from .config_fields import note
from .known_models import known_model
from .model_names import parameters_in_billions
from .weights import parameter_counts

# vLLM's options that the budget of a start reads, under their own names.
_BUDGET_OPTIONS = (
    *("gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override"),
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill"),
    *("enable_prefix_caching", "enforce_eager", "cudagraph_capture_sizes"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"),
    *("decode_context_parallel_size", "prefill_context_parallel_size"),
    *(
        "kv_cache_dtype",
        "kv_cache_dtype_skip_layers",
        "block_size",
        "mamba_cache_mode",
        "mamba_ssm_cache_dtype",
    ),
    *("disable_hybrid_kv_cache_manager", "quantization", "dtype", "cpu_offload_gb"),
    *("language_model_only", "mm_encoder_tp_mode", "mm_ipc_gpu_memory_gb"),
    *("enable_lora", "max_loras", "max_lora_rank", "fully_sharded_loras", "async_scheduling"),
)
_WHOLE = (
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes"),
    *("num_gpu_blocks_override", "block_size", "max_loras", "max_lora_rank"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    *("decode_context_parallel_size", "prefill_context_parallel_size"),
)
# A setting's words for "vLLM decides".
_AUTOMATIC = ("auto", "", None)
_MIG_RESOURCE = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb)(?:\.me)?")
# Speculative methods that draft with layers of the checkpoint itself, and those that draft without a model.
_OWN_LAYERS = ("mtp",)
_NO_MODEL = ("ngram", "suffix", "custom_class")
# Numbers of a log -> what ``budget`` calls them. Only those of the first rank are one rank's.
_MEASURED = {
    "weights": "weights",
    "activation_peak": "activation_peak",
    "non_torch": "non_torch",
    "graph_actual": "graph",
    "graph_estimate": "graph_estimated",
    "kv_available": "kv_available",
}
# What a log prints is rounded to two decimals of a GiB.
ROUNDING = 0.005 * 1024 * MIB


class Subject(NamedTuple):
    """One engine to be sized.

    ref: ``{namespace, pod, uid, container, attempt}``; model: ``{name, source, parameters, ...}``; arch: of
    ``architecture`` or None; settings: plain, what somebody set; told: all settings as the evidence has them;
    refused: sentences on values that vLLM doesn't take; gpus_given: of all pods of the engine, None: not known;
    ranks_of_a_replica: tensor times pipeline parallel size;
    gpu: ``{name, count, total_bytes, free_bytes, from, ...}``; measured: bytes of a log by ``budget``'s names;
    numbers: the log's other numbers by their own names; host: what ``host_memory`` takes beside the settings, and
    ``limit_bytes``, ``request_bytes``; auto_length: whether the length is whatever fits; missing: sentences.
    """

    ref: dict
    model: dict
    arch: dict | None
    settings: dict
    told: dict
    version: str | None
    generation: str | None
    gpu: dict
    measured: dict
    numbers: dict
    host: dict
    accelerator: str | None
    auto_length: bool
    assumptions: list
    missing: list
    refused: list
    gpus_given: int | None
    ranks_of_a_replica: int


def of_evidence(evidence, models=None, gpu=None, version=None):
    """The subjects of an evidence document: one for each engine container and attempt that tells a number.

    models: ``{name: model document}`` for models that the table doesn't know; gpu, version: a product's name and a release
    that are taken where the evidence has none. An engine whose attempts tell no number gives one subject, of its last attempt.
    """
    found, leaders = [], _leaders(evidence)
    for pod in evidence.get("pods") or []:
        node = (evidence.get("nodes") or {}).get(pod.get("node") or "") or {}
        for container in _engines(pod):
            if not _value(container.get("settings") or {}, "model") and pod.get("group") in leaders:
                # A worker of an engine over several pods starts without flags: it runs what its leader is told.
                container = dict(container, **leaders[pod["group"]])
            if version and not (container.get("engine") or {}).get("version"):
                container = dict(container, engine=dict(container["engine"], version=version))
            found += _of_container(pod, container, node, models or {}, gpu)
    return found


def _engines(pod):
    return [
        container
        for container in pod.get("containers") or []
        if container.get("engine") and container.get("role") != "init"
    ]


def _leaders(evidence):
    """What the pod that names the model is told, for each group of pods that form one engine."""
    return {
        pod["group"]: {"settings": container["settings"], "model_source": container.get("model_source")}
        for pod in evidence.get("pods") or []
        if pod.get("group")
        for container in _engines(pod)
        if _value(container.get("settings") or {}, "model")
    }


def of_model(model, arguments=None, gpu=None, count=None, version=None, memory_limit=None, env=None):
    """The subject of a model document (or name) with the command line's further arguments (list of str).

    gpu: a product's name; count: how many the pod gets, default: as many as the ranks; memory_limit: Kubernetes
    quantity of the container's memory limit.
    """
    document = model if isinstance(model, dict) else {"name": model}
    name = document.get("name") or "model"
    pairs = [{"name": key, "value": str(value)} for key, value in sorted((env or {}).items())]
    told = engine_settings(
        ["vllm", "serve", str(name)], list(arguments or ()), pairs, version=version, defaults=True
    )
    container = {
        "name": name,
        "settings": told,
        "engine": {"version": version, "accelerator": None},
        "resources": {"limits": {"memory": memory_limit} if memory_limit else {}},
    }
    request = {"product": gpu, "count": count, "from": "given"}
    pod: dict[str, Any] = {"name": name, "gpu_request": request, "volumes": [], "shm": {}}
    return _subject(pod, container, None, {}, {name: document}, gpu)


def _of_container(pod, container, node, models, gpu):
    attempts = [item for item in container.get("attempts") or [] if item.get("state") != "waiting"]
    telling = [item for item in attempts if (item.get("log") or {}).get("numbers")]
    return [
        _subject(pod, container, attempt, node, models, gpu) for attempt in telling or attempts[-1:] or [None]
    ]


def _subject(pod, container, attempt, node, models, gpu):
    assumptions: list[str] = []
    missing: list[str] = list(container.get("unresolved") or [])
    refused: list[str] = []
    log = (attempt or {}).get("log") or {}
    told = container.get("settings") or {}
    engine = container.get("engine") or {}
    version = engine.get("version")
    given = {name: entry.get("value") for name, entry in told.items() if entry.get("from") != "default"}
    arguments = log.get("arguments") or ()
    generation = engine_generation(version, told, arguments)
    model = _model(_name(container, told), models, given, assumptions, missing)
    arch = model.pop("arch")
    settings = _settings(given, arch, version, assumptions)
    if model["quantization_guessed"] and not given.get("quantization"):
        settings["quantization_guessed"] = True
    _unread(told, missing, refused)
    if _on(given.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN")) or log.get("numbers"):
        # An engine that printed numbers had passed the check of its length.
        settings["allow_long_max_model_len"] = True
    if generation:
        settings["engine"] = generation
    if model["checkpoint_bytes"] and not given.get("quantization"):
        # What the files hold is what is loaded, unless the engine is told to quantize it.
        settings["checkpoint_bytes"] = model["checkpoint_bytes"]
    auto_length = settings.get("max_model_len") is None and str(given.get("max_model_len")) in ("-1", "auto")
    facts = _gpu_facts(pod, container, node, log, gpu, settings, assumptions, missing)
    if arch is not None:
        runner2 = uses_v2_runner(version, told, arguments, _runner_facts(arch, settings))
        if runner2 is not None:
            settings["v2_runner"] = runner2
    if given.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS") is not None:
        settings["estimate_graphs"] = _on(given["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"])
    return Subject(
        ref={
            "namespace": pod.get("namespace"),
            "pod": pod.get("name"),
            "uid": pod.get("uid"),
            "container": container.get("name"),
            "attempt": (attempt or {}).get("index"),
        },
        model=model,
        arch=arch,
        settings=settings,
        told=_told(container),
        version=version,
        generation=generation,
        gpu=facts,
        measured=_measured(log),
        numbers=_numbers(log),
        host=_host_facts(pod, container, attempt, model, arch, settings, facts),
        accelerator=engine.get("accelerator"),
        auto_length=auto_length,
        assumptions=assumptions,
        missing=missing,
        refused=refused,
        gpus_given=_gpus_given(pod, container),
        ranks_of_a_replica=_ranks(settings, ("tensor_parallel_size", "pipeline_parallel_size")),
    )


# Settings.


def _value(told, name):
    return (told.get(name) or {}).get("value")


def _told(container):
    """The settings, and the environment variables that are none, as ``host_memory`` reads them."""
    env = {item.get("name"): item.get("value") for item in container.get("env") or []}
    return {**env, **(container.get("settings") or {})}


def _on(value):
    return str(value).lower() in ("true", "1")


def _settings(given, arch, version, assumptions):
    """What somebody set, as ``budget`` reads it; ``auto`` and what can't be read are left out."""
    settings: dict[str, Any] = {}
    for name in _BUDGET_OPTIONS:
        value = given.get(name)
        if value in _AUTOMATIC or (name == "max_model_len" and value == -1):
            continue
        settings[name] = value
    for name in _WHOLE:
        value = settings.get(name)
        if isinstance(value, float) and value.is_integer():
            settings[name] = int(value)
    if settings.get("num_gpu_blocks_override") == 0 or settings.get("kv_cache_memory_bytes") == 0:
        settings = {name: value for name, value in settings.items() if value != 0 or name not in _WHOLE}
    limits = _table(given.get("limit_mm_per_prompt"))
    if limits:
        settings["limit_mm_per_prompt"] = limits
    settings.update(_speculation(given, arch, assumptions))
    if "enable_prefix_caching" not in settings and arch is not None and _is_hybrid(arch):
        # Models with state layers cache prefixes by default from 0.28 only (vllm-memory 6.3).
        settings["enable_prefix_caching"] = in_range(version, "0.28") is not False
    return settings


def _unread(told, missing, refused):
    """What was written for an option that counts and can't be read: a variable that isn't set, a value that vLLM refuses."""
    for name, entry in told.items():
        flag = "--" + name.replace("_", "-")
        if (
            name in _BUDGET_OPTIONS
            and entry.get("value") is None
            and entry.get("from") not in ("log", "default")
        ):
            written = entry.get("written")
            if written and is_unresolved(written):
                missing.append(f"what {written} in {flag} stands for")
            elif written is not None:
                refused.append(f"{flag} {written or 'without a value'}: vLLM doesn't take that.")
        elif entry.get("from") == "arg" and name not in flags.BY_NAME and name.islower():
            near = difflib.get_close_matches(name, _BUDGET_OPTIONS, 1, 0.85)
            if near:
                refused.append(
                    f"{flag} is no option of vLLM that is known; --{near[0].replace('_', '-')} is."
                )


def _table(value):
    """An option that is a JSON object, as dict; empty where it isn't set or can't be read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _speculation(given, arch, assumptions):
    """Tokens drafted in a step, and the layers or the model that draft them."""
    config = _table(given.get("speculative_config"))
    tokens = config.get("num_speculative_tokens") or given.get("num_speculative_tokens")
    name = config.get("model") or given.get("speculative_model")
    method = str(config.get("method") or "").lower()
    if not (tokens or name or method):
        return {}
    found: dict[str, Any] = {"speculative_tokens": int(tokens) if isinstance(tokens, (int, float)) else 1}
    if method.startswith(_NO_MODEL) or str(name).startswith("[ngram]"):
        return found
    own = method.endswith(_OWN_LAYERS) or (not name and arch is not None and arch["draft"])
    if own and arch is not None and arch["draft"]:
        found["draft_layers"] = 1
        return found
    known = known_model(str(name)) if name else None
    if known is None:
        note(assumptions, f"the draft model {name or method or 'that runs'} isn't known: it isn't counted")
        return found
    try:
        found["draft"] = architecture(known["config"])
    except ConfigError as error:
        note(assumptions, f"the draft model {name} isn't counted: {error}")
    return found


_STATES = ("mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "short_conv", "parallel")


def _is_hybrid(arch):
    return any((layer["attention"] or {}).get("kind") in _STATES for layer in layer_list(arch))


def _runner_facts(arch, settings):
    return {
        "architecture": next(iter(arch["architectures"]), None),
        "quantized": bool(settings.get("quantization") or arch["quantization"]),
        "moe": any(layer["mlp"] and layer["mlp"]["kind"] == "moe" for layer in layer_list(arch)),
        "hybrid": _is_hybrid(arch),
    }


# The model.


def _name(container, told):
    """What the engine serves; of a folder without a telling name what is put there (``model_source`` of a manifest)."""
    name, stored = _value(told, "model"), (container.get("model_source") or {}).get("value")
    return stored if stored and (not name or known_model(str(name)) is None) else name


def _model(name, models, given, assumptions, missing):
    """``{name, source, parameters, checkpoint_bytes, ..., arch}``: a given document, the table, or only a name."""
    document = models.get(name)
    if document is None:
        # One document alone stands for whatever the table doesn't know.
        document = (models.get("*") if not name or known_model(str(name)) is None else None) or {}
    config, source = document.get("config"), document.get("source")
    guessed = bool(document.get("quantization_guessed"))
    for text in document.get("assumptions") or ():
        note(assumptions, text)
    if config is None and name:
        row = known_model(str(name))
        if row is not None:
            config, source, guessed = row["config"], f"table: {row['name']}", bool(row.get("guessed"))
            for text in row.get("assumptions") or ():
                note(assumptions, text)
    found = {
        "name": name,
        "source": source,
        "parameters": (document.get("parameters") or {}).get("billions") or parameters_in_billions(name),
        "checkpoint_bytes": document.get("checkpoint_bytes"),
        "largest_file_bytes": document.get("largest_file_bytes"),
        "pickled": bool(document.get("pickled")),
        "quantization": None,
        "quantization_guessed": guessed,
        "arch": None,
    }
    if config is None:
        missing.append(
            "the model, which the command line doesn't name"
            if not name
            else f"the architecture of {name} (give its config.json with vllm_oom_model_config)"
        )
        return found
    try:
        arch = architecture(_overridden(config, _table(given.get("hf_overrides"))))
    except ConfigError as error:
        missing.append(f"how to read the config of {name} ({error})")
        return found
    for text in arch["assumptions"]:
        note(assumptions, text)
    total, _active = parameter_counts(arch)
    found.update(arch=arch, parameters=round(total / 1e9, 2) or found["parameters"])
    method = (arch["quantization"] or {}).get("quant_method")
    found["quantization"] = given.get("quantization") or method
    return found


def _overridden(config, overrides):
    """``--hf-overrides`` put over the config, section by section."""
    merged = dict(config)
    for key, value in overrides.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _overridden(merged[key], value) if both else value
    return merged


# The GPU.


def _gpu_facts(pod, container, node, log, asked, settings, assumptions, missing):
    """``{name, count, total_bytes, free_bytes, from, ...}``: the log first, then the node, then what was asked for."""
    request = pod.get("gpu_request") or {}
    labels = node.get("gpu") or {}
    numbers = _numbers(log)
    named = labels.get("product") or _smallest(request) or asked
    if request.get("resource") == "nvidia.com/gpu.shared":
        note(assumptions, "the GPU is shared with others, whose memory isn't known: it is taken as empty")
    if request.get("preferred") and not named:
        note(assumptions, f"{request['preferred']} is preferred, not required: no GPU is taken for granted")
    name = _with_profile(named, container, request)
    if asked and name and gpus.gpu(asked) is not None and gpus.gpu(name) not in (None, gpus.gpu(asked)):
        note(assumptions, f"{asked}, which was asked for, isn't taken: {name} is selected")
    total = numbers.get("gpu_total")
    origin = "log" if total is not None else None
    product = (gpus.gpu(name, total) or gpus.gpu(name)) if name else None
    if name and product is None and total is None:
        total = labels.get("memory_bytes")
        if total is None:
            missing.append(unknown_gpu(name))
        else:
            origin = "node"
    elif product is not None and total is None:
        total = gpus.visible_bytes(product)
        origin = "node" if labels.get("product") else request.get("from") or "given"
        note(assumptions, f"the GPU's total memory is that of {product['name']} by the catalogue")
    if total is None and not missing:
        missing.append("which GPU it runs on (name it with vllm_oom_gpu)")
    facts: dict[str, Any] = {
        "name": product["name"] if product else name,
        "count": _gpu_count(container, request, settings),
        "total_bytes": None if total is None else int(total),
        "free_bytes": None if numbers.get("gpu_free") is None else int(numbers["gpu_free"]),
        "from": origin,
        "compute_capability": None,
        "nvlink": None,
        "unified": bool(labels.get("unified")),
        "make": product["make"] if product else None,
    }
    if product is not None:
        facts.update({key: product[key] for key in ("compute_capability", "nvlink")})
        facts["unified"] = facts["unified"] or product["unified"]
    return facts


def _smallest(request):
    """Of the products that a selector allows the one with the least memory: it must fit there too."""
    names = [name for name in (request.get("product"), *(request.get("alternatives") or ())) if name]
    known = [(gpus.visible_bytes(product), name) for name in names for product in [gpus.gpu(name)] if product]
    return min(known)[1] if known else next(iter(names), None)


def _with_profile(name, container, request):
    """A card's name with the MIG profile that the container asks for."""
    limits = (container.get("resources") or {}).get("limits") or {}
    profile = request.get("profile") or next(
        (match.group(1) for match in map(_MIG_RESOURCE.fullmatch, sorted(limits)) if match), None
    )
    if not profile or "mig" in str(name or "").lower():
        return name
    return f"{name or ''} MIG {profile}".strip()


def unknown_gpu(name):
    """What to say of a name that is no product's, or several products'."""
    nearest = gpus.candidates(name)
    near = (
        f"; name one of {', '.join(nearest[:5])}"
        if nearest
        else "; names are like A100 80GB, H100 80GB, L40S, H200"
    )
    return f"the GPU '{name}' isn't one product of the catalogue{near}"


_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def _ranks(settings, names=_PARALLEL):
    total = 1
    for name in names:
        value = settings.get(name)
        total *= value if isinstance(value, int) and value > 0 else 1
    return total


def _gpu_count(container, request, settings):
    limits = (container.get("resources") or {}).get("limits") or {}
    return devices(limits, parts=True) or request.get("count") or _ranks(settings)


def _gpus_given(pod, container):
    """GPUs of all pods of one engine, or None where that isn't known."""
    request = pod.get("gpu_request") or {}
    limits = (container.get("resources") or {}).get("limits") or {}
    count = devices(limits, parts=True) or request.get("count")
    if not count or pod.get("group"):
        return None
    return count * (pod.get("members") or 1)


# What a log measured.


def _numbers(log):
    """The first value of each number, of the first rank where several print theirs."""
    found: dict[str, float] = {}
    for item in log.get("numbers") or []:
        if item.get("rank") in (None, 0) and item.get("value") is not None:
            found.setdefault(item["name"], item["value"])
    return found


def _measured(log):
    numbers = _numbers(log)
    measured = {
        ours: int(numbers[name])
        for name, ours in _MEASURED.items()
        if isinstance(numbers.get(name), (int, float)) and math.isfinite(numbers[name])
    }
    rooms = [
        item["value"]
        for item in log.get("numbers") or []
        if item["name"] == "kv_available" and item.get("value") is not None
    ]
    if rooms:
        # The rank with the least room decides the number of blocks.
        measured["kv_available"] = int(min(rooms))
    return measured


# The host.


def _host_facts(pod, container, attempt, model, arch, settings, facts):
    resources = container.get("resources") or {}
    whole = pod.get("pod_resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    pod_limits = whole.get("limits") or {}
    count = facts["count"]
    shm = pod.get("shm") or {}
    return {
        "limit_bytes": quantity_bytes(limits.get("memory") or pod_limits.get("memory")),
        "limit_written": limits.get("memory") or pod_limits.get("memory"),
        "request_bytes": quantity_bytes(requests.get("memory") or limits.get("memory")),
        "model_bytes": model["checkpoint_bytes"],
        "parameters": model["parameters"],
        "ranks": min(_ranks(settings), count) if count else None,
        "largest_file": model["largest_file_bytes"],
        "pickled": model["pickled"],
        "multimodal": None if arch is None else bool(arch["encoders"]),
        "accelerator": (container.get("engine") or {}).get("accelerator") or "cuda",
        "shm": _shm(shm),
        "measured": _host_measured(attempt),
    }


def _shm(shm):
    size = (
        quantity_bytes(shm.get("size_limit"))
        if isinstance(shm.get("size_limit"), str)
        else shm.get("size_limit")
    )
    if size is None and shm.get("medium") is None:
        return None
    return {"size_bytes": size, "memory_backed": shm.get("medium") == "Memory"}


def _host_measured(attempt):
    memory = ((attempt or {}).get("cgroup") or {}).get("memory") or {}
    anon, shmem = memory.get("anon"), memory.get("shmem")
    killed = (attempt or {}).get("reason") == "OOMKilled"
    if anon is None and memory.get("peak") is None:
        return None
    return {
        "held": None if anon is None else anon + (shmem or 0),
        "peak": memory.get("peak"),
        "killed": killed,
    }
