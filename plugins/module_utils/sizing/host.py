# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory of one engine's pod: the runbook's table, and the mechanism under it.

The table is the limit for a model of 8 to 70 billion parameters; the mechanism says what fills it, corrects it
(loader, worker processes, offload pools, /dev/shm, a measured peak), and speaks alone outside of it. Sizes are
bytes, parameters are in billions. Sources: design, rule 7; vllm-memory 3.12 to 3.17, 7.2, 8; Kubernetes facts
4.3 to 4.5; "case ID" is a line of the out-of-memory cases.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from ..engine import defaults
from ..engine.versions import in_range, parse_version
from ..quantities import GIB, MIB, show_bytes
from .model_names import parameters_in_billions

# The runbook's table: total parameters in billions -> memory LIMIT from, to, in GiB. Between rows it is
# linear, outside of them only the mechanism speaks (design, rule 7).
MEMORY_LIMITS = ((8.0, 16.0, 24.0), (13.0, 24.0, 32.0), (70.0, 48.0, 64.0))
# A row is a class of models: what is sold as 70B has 70.55 billion parameters, as 8B 7.6 to 8.2.
_CLASS = 0.05
# The runbook's example is a request of 48Gi under a limit of 64Gi.
REQUEST_OF_LIMIT = 0.75
# A Python process with torch and CUDA: 1 to 3 GiB resident, part of it shared (vllm-memory 8.1).
PROCESS = (1 * GIB, 3 * GIB)
BF16 = 2
# containerd's and CRI-O's tmpfs at /dev/shm, one for the pod (kubernetes-gpu-facts 4.5).
RUNTIME_SHM = 64 * MIB
EXAMPLE_SHM = 2 * GIB  # vLLM's own Kubernetes page (vllm-memory 8.4)

# Pinned staging, tokenizer and compile cache together are 1 to 3 GiB (vllm-memory 8.3); how they share it is ours.
_STAGING, _TOKENIZER, _COMPILE = GIB // 2, GIB // 4, 5 * GIB // 4
# One cicc of a FlashInfer build: 16 of them took 91.5 GiB (case vllm-54237-cicc-16-jobs).
_COMPILER = int(91.5 / 16 * GIB)
_COMPILER_JOBS = 16
# A checkpoint's file where nobody says how large it is: 9.8 GB in case vllm-322-bin-shards-times-ranks, 5 GB is
# what transformers writes.
_USUAL_FILE = 5 * 10**9
_LARGE_FILE = 10 * 10**9
# RUNAI_STREAMER_MEMORY_LIMIT when unset (Run:ai Model Streamer, environment variables).
_STREAMER_BUFFER = 40 * 10**9
_LMCACHE_SIZE = 5.0  # GiB per worker when unset (LMCache, configuration)
_CPU_KV_SPACE = 4.0  # GiB, VLLM_CPU_KVCACHE_SPACE up to 0.12 (vllm-memory 3.17)

# Formats that read safetensors through the loader with a strategy of its own.
_SAFETENSORS = ("auto", "safetensors", "hf", "mistral", "sharded_state", "bitsandbytes", "gguf")
_PICKLED = ("pt", "npcache")
_RUNAI = ("runai_streamer", "runai_streamer_sharded")

# A segment belongs to a phase of the start, or to all of them: what a loader takes is free again when the KV
# pools are made.
_ALWAYS, _LOAD, _PROFILE, _SERVING = "always", "load", "profile", "serving"


def table_bounds(parameters):
    """``(lower, upper)`` bytes of the memory limit by the runbook's table, or None outside of it.

    parameters: total parameters in billions. Linear between the rows; the first and the last row hold for 5 %
    beyond them.
    """
    first, last = MEMORY_LIMITS[0][0], MEMORY_LIMITS[-1][0]
    if parameters is None or not first * (1 - _CLASS) <= parameters <= last * (1 + _CLASS):
        return None
    parameters = min(max(parameters, first), last)
    for (small, low0, high0), (large, low1, high1) in zip(MEMORY_LIMITS, MEMORY_LIMITS[1:]):
        if small <= parameters <= large:
            part = (parameters - small) / (large - small)
            return (int((low0 + part * (low1 - low0)) * GIB), int((high0 + part * (high1 - high0)) * GIB))
    return None


def least_beyond_the_table(parameters):
    """Bytes of the lower end of the table's last row for a model larger than those in it, else 0."""
    _billions, lower, _upper = MEMORY_LIMITS[-1]
    return int(lower * GIB) if parameters and parameters > MEMORY_LIMITS[-1][0] else 0


def request_for(limit):
    """Bytes of the request under a limit, in the proportion of the runbook's example and in whole GiB."""
    return _whole_gib(limit * REQUEST_OF_LIMIT)


def usual_ranks(parameters):
    """How many workers a model of that size has on 80 GB cards in bf16; the table counts those in."""
    if parameters is None:
        return 1
    return max(1, math.ceil(parameters * BF16 / 75.0))


class Told:
    """An engine's settings, read: ``engine.settings`` gives them, or a plain ``{name: value}`` (all given)."""

    def __init__(self, settings):
        self._settings = settings or {}

    def value(self, name):
        entry = self._settings.get(name)
        return entry.get("value") if isinstance(entry, dict) and "value" in entry else entry

    def given(self, name):
        """The value if somebody set it, not vLLM's default."""
        entry = self._settings.get(name)
        if isinstance(entry, dict) and entry.get("from") == "default":
            return None
        return self.value(name)

    def number(self, name, otherwise=None):
        return _number(self.value(name), otherwise)

    def given_number(self, name):
        return _number(self.given(name), None)

    def on(self, name):
        return str(self.value(name)).lower() in ("true", "1")

    def table(self, name):
        """An option that is a JSON object, as dict; empty where it isn't set or can't be read."""
        value = self.value(name)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return {}
        return value if isinstance(value, dict) else {}


def _number(value, otherwise):
    try:
        number = float(value)
    except (TypeError, ValueError):
        return otherwise
    return number if math.isfinite(number) else otherwise


def generation(told, version):
    """V0, V1 or None (vllm-memory 0.2): by version and VLLM_USE_V1."""
    chosen = told.value("VLLM_USE_V1")
    return defaults.engine_generation(
        version, None if chosen is None else str(chosen).lower() in ("true", "1")
    )


def _segment(name, size, kind, phase, why, error=0):
    return {
        "name": name,
        "bytes": int(size),
        "kind": kind,
        "phase": phase,
        "proof": "modelled",
        "why": why,
        "error": int(error),
    }


# Pools: host memory that a setting takes for certain (vllm-memory 8.3).


def pools(told, version, ranks):
    """Segments of the pools that settings take: offload, swap space, KV tiers, caches of images.

    The name is the setting's. ranks: worker processes of this pod. A pool that is only vLLM's default counts
    for swap space alone: V0 allocates that one at start.
    """
    found = (
        _cpu_offload(told, ranks)
        + _swap_space(told, version, ranks)
        + _kv_offload(told, version)
        + _kv_connector(told, version, ranks)
        + _image_cache(told, version)
    )
    return [item for item in found if item["bytes"] > 0]


def _cpu_offload(told, ranks):
    size = told.given_number("cpu_offload_gb")
    if not size:
        return []
    why = f"{size:g} GiB of weights for each of {ranks} workers"
    return [_segment("cpu_offload_gb", size * GIB * ranks, "pinned", _ALWAYS, why)]


def _swap_space(told, version, ranks):
    """V0 allocates it as pinned memory at start; V1 takes the option and allocates nothing; gone from 0.18."""
    if generation(told, version) != "V0":
        return []
    size = told.number("swap_space")
    if size is None:
        size = defaults.default_of("swap_space", version, "V0")
    if not size:
        return []
    why = f"{size:g} GiB for each of {ranks} GPUs, allocated at start"
    return [_segment("swap_space", size * GIB * ranks, "pinned", _SERVING, why)]


def _kv_offload(told, version):
    """One file in /dev/shm from 0.27; pinned tensors before, whose allocator rounds up to powers of two."""
    size = told.given_number("kv_offloading_size")
    if not size:
        return []
    if told.value("kv_offloading_backend") == "lmcache":
        return [
            _segment("kv_offloading_size", size * GIB, "pinned", _SERVING, "LMCache's pool, over all workers")
        ]
    if in_range(version, None, "0.26"):
        why = "pinned tensors; each may be rounded up to a power of two (case vllm-53042-kv-offload-192x: 1.92 times)"
        return [_segment("kv_offloading_size", size * GIB, "pinned", _SERVING, why, size * GIB)]
    return [_segment("kv_offloading_size", size * GIB, "shm", _SERVING, "one file in /dev/shm")]


def _lmcache(told, ranks):
    size = told.number("LMCACHE_MAX_LOCAL_CPU_SIZE", _LMCACHE_SIZE)
    if str(told.value("LMCACHE_LOCAL_CPU")).lower() in ("false", "0"):
        return []
    why = f"{size:g} GiB of LMCache" + (f" for each of {ranks} workers" if ranks > 1 else "")
    return [_segment("LMCACHE_MAX_LOCAL_CPU_SIZE", size * GIB * ranks, "pinned", _SERVING, why)]


def _kv_connector(told, version, ranks):
    config = told.table("kv_transfer_config")
    name = str(config.get("kv_connector") or "")
    extra = config.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, dict) else {}
    if name.startswith("LMCache"):
        return _lmcache(told, ranks)
    size = _number(extra.get("cpu_bytes_to_use_per_rank"), 0.0) * ranks or _number(
        extra.get("cpu_bytes_to_use"), 0.0
    )
    if not size:
        size = _number(extra.get("host_pool_gib"), 0.0) * GIB
    # The tiers' file is in /dev/shm from 0.20, the ordinary offload's from 0.27 (vllm-memory 8.2).
    since = "0.20" if "Tiering" in str(extra.get("spec_name")) else "0.27"
    in_shm = name == "OffloadingConnector" and in_range(version, since) is not False
    why = f"the CPU pool of {name}"
    return [_segment("kv_transfer_config", size, "shm" if in_shm else "pinned", _SERVING, why)]


def _image_cache(told, version):
    """Processed images: in each API server and each data parallel rank; one shared one with type shm."""
    size = told.given_number("mm_processor_cache_gb")
    if size is None and in_range(version, "0.8", "0.10.0"):
        size = told.given_number("VLLM_MM_INPUT_CACHE_GIB")
        why = f"{size} GiB in the API server and in the engine"
        return [_segment("VLLM_MM_INPUT_CACHE_GIB", 2 * (size or 0) * GIB, "anonymous", _SERVING, why)]
    if str(told.given("mm_processor_cache_type")) == "shm":
        size = told.number("mm_processor_cache_gb", 4.0)
        return [_segment("mm_processor_cache_gb", size * GIB, "shm", _SERVING, "one shared cache of images")]
    copies = _count(told, "api_server_count") + _count(told, "data_parallel_size")
    why = f"{size} GiB in each of {copies} processes (API servers and data parallel ranks)"
    return [_segment("mm_processor_cache_gb", (size or 0) * GIB * copies, "anonymous", _SERVING, why)]


# /dev/shm (vllm-memory 8.2).


def shm_need(version, ranks):
    """``(largest single buffer, all of them)`` in bytes that one engine's processes put into /dev/shm.

    A ring from the engine core to the workers, from 0.11 on (V1 before: smaller) a response ring for each
    worker, the tensor parallel group's broadcaster, and NCCL's segments where there is no peer access. An
    unknown version counts as the newest. One rank needs none of it.
    """
    if ranks < 2:
        return 0, 0
    ring = 100 * MIB if version is not None and version < (0, 9, 1) else 160 * MIB
    response = 240 * MIB
    if version is not None and version < (0, 11):
        response = 0 if version < (0, 8) else 100 * MIB
    nccl = 33 * MIB
    return max(ring, response), ring + ranks * (response + nccl) + 24 * MIB


def shm_users(told, version):
    """What else the settings put into /dev/shm: ``[(option, bytes)]``. An unknown version counts as the newest."""
    found = []
    if str(told.given("mm_processor_cache_type")) == "shm":
        found.append(("mm_processor_cache_gb", int((told.number("mm_processor_cache_gb", 4) or 4) * GIB)))
    if str(told.given("enable_shm_tensor_arena")).lower() in ("true", "1"):
        found.append(("enable_shm_tensor_arena", 2 * GIB))
    offload = told.given_number("kv_offloading_size")
    if offload and (version is None or version >= (0, 27)):
        found.append(("kv_offloading_size", int(offload * GIB)))
    return found


# Loaders (vllm-memory 7.2, 8.3).


class _Model:
    """What is known of the checkpoint, and what is assumed of it."""

    def __init__(self, size, largest_file, pickled, storage, assumptions):
        self.size = size
        self.pickled = pickled
        self.storage = storage
        self.assumptions = assumptions
        self._largest = largest_file

    def file(self, usual=_USUAL_FILE):
        """Bytes of the largest file."""
        if self._largest:
            return self._largest
        size = min(usual, self.size) if self.size else usual
        self.assumptions.append(f"the checkpoint's largest file has {show_bytes(size)}")
        return size


def loader(told, version, ranks, model):
    """Segments of loading the weights: page cache that the kernel takes back, and what it can't take back."""
    name = str(told.value("load_format") or "auto")
    if name == "dummy":
        return []
    if name in _RUNAI:
        found = _streamed(told, version, ranks, model)
    elif name in _PICKLED or model.pickled:
        found = _copies(model.file(_LARGE_FILE), ranks, "deserializes each file into its own memory")
    elif name in _SAFETENSORS:
        found = _safetensors(told, ranks, model)
    elif name == "tensorizer":
        found = [
            _segment("loader", GIB * ranks, "anonymous", _LOAD, "tensors in flight to the GPU", GIB * ranks)
        ]
    else:
        model.assumptions.append(f"--load-format {name} takes page cache only, as safetensors does")
        found = _mapped(model)
    if model.storage == "tmpfs" and model.size:
        why = "the checkpoint lies in a memory-backed volume; what is written there can't be reclaimed"
        found = [item for item in found if item["kind"] != "page_cache"]
        found.append(_segment("model_files", model.size, "shm", _ALWAYS, why))
    return found


def _mapped(model):
    if not model.size:
        model.assumptions.append("the checkpoint's size isn't known; its page cache isn't shown")
        return []
    why = "mapped files: charged to the pod, taken back by the kernel when memory is short"
    return [_segment("model_files", model.size, "page_cache", _LOAD, why)]


def _copies(size, ranks, what):
    why = f"each of {ranks} workers {what}" if ranks > 1 else f"the worker {what}"
    return [_segment("loader", size * ranks, "anonymous", _LOAD, why, size * ranks * 0.25)]


def _safetensors(told, ranks, model):
    strategy = str(told.value("safetensors_load_strategy") or "lazy")
    if strategy in ("eager", "torchao"):
        return _mapped(model) + _copies(model.file(), ranks, "reads one whole file into its own memory")
    return _mapped(model)


def _streamed(told, version, ranks, model):
    extra = told.table("model_loader_extra_config")
    limit = _number(extra.get("memory_limit"), told.number("RUNAI_STREAMER_MEMORY_LIMIT", _STREAMER_BUFFER))
    buffer = model.size if limit < 0 and model.size else max(limit, 0)
    if model.size:
        buffer = min(buffer, model.size)
    found = [
        _segment(
            "loader",
            buffer * ranks,
            "anonymous",
            _LOAD,
            f"the streamer's buffer of {show_bytes(buffer)} in each worker (memory_limit)",
            buffer * ranks * 0.25,
        )
    ]
    if model.size and in_range(version, "0.22.1", "0.22.1"):
        why = "each worker keeps a copy of every streamed tensor (case vllm-44430-runai-clone-retained)"
        copies = model.size * ranks
        found.append(_segment("streamed_copies", copies, "anonymous", _LOAD, why, copies * 0.25))
    return found


# The parts that every engine has.


class _Layout:
    """The processes of one pod: API servers, engine cores, and workers (vllm-memory 8.1).

    ranks: worker processes of this pod; a core's only worker lives inside of it. cores: data parallel ranks of
    this pod, each with its own engine core.
    """

    def __init__(self, told, ranks):
        self.servers = _count(told, "api_server_count")
        parallel = "data_parallel_size"
        cores = _count(
            told, "data_parallel_size_local" if told.value("data_parallel_size_local") else parallel
        )
        self.ranks = ranks or cores * _count(told, "tensor_parallel_size") * _count(
            told, "pipeline_parallel_size"
        )
        self.cores = min(cores, self.ranks)
        self.ranks_of_a_core = -(-self.ranks // self.cores)

    def more_than_usual(self, parameters):
        """How many processes it has beyond what a model of that size usually has."""
        cores = self.cores - 1 if self.ranks_of_a_core > 1 else 0
        return self.ranks - usual_ranks(parameters) + self.servers - 1 + cores


def _count(told, name):
    return max(1, int(told.number(name, 1)))


def _processes(layout):
    each, error = sum(PROCESS) // 2, (PROCESS[1] - PROCESS[0]) // 2
    rows = [("api_server", layout.servers, "API server"), ("engine_core", layout.cores, "engine core")]
    if layout.ranks_of_a_core > 1:
        rows.append(("workers", layout.ranks, "worker, one a rank"))
    return [
        _segment(name, count * each, "anonymous", _ALWAYS, f"{count} x {what}", count * error)
        for name, count, what in rows
    ]


def _common(told, ranks, servers):
    found = [
        _segment(
            "staging", _STAGING * ranks, "pinned", _ALWAYS, "pinned buffers to the GPU", _STAGING * ranks / 2
        ),
        _segment(
            "tokenizer", _TOKENIZER * servers, "anonymous", _ALWAYS, "tokenizer", _TOKENIZER * servers / 2
        ),
    ]
    if not told.on("enforce_eager"):
        why = "torch.compile in each worker; a cold cache needs more than a warm one"
        found.append(_segment("compile", _COMPILE * ranks, "anonymous", _PROFILE, why, _COMPILE * ranks / 2))
    return found


def _kernel_compile(told, cpus, assumptions):
    """Kernels built at the start by parallel compilers: MAX_JOBS bounds them."""
    jobs = told.number("MAX_JOBS") or cpus
    if not jobs:
        jobs = _COMPILER_JOBS
        assumptions.append(f"{jobs} compilers run in parallel; MAX_JOBS isn't set")
    why = f"{int(jobs)} compilers of {show_bytes(_COMPILER)} each (MAX_JOBS)"
    size = int(jobs) * _COMPILER
    return [_segment("kernel_compile", size, "anonymous", _SERVING, why, size * 0.25)]


def _sleep(told, model):
    if not told.on("enable_sleep_mode") or not model.size:
        return []
    why = "sleep level 1 copies the weights to pinned memory"
    return [_segment("enable_sleep_mode", model.size, "pinned", _SERVING, why)]


def cpu_kv_bytes(told, version):
    """Bytes of VLLM_CPU_KVCACHE_SPACE; 4 GiB up to 0.12 when unset, later 0: it fits itself to what it sees."""
    size = told.number("VLLM_CPU_KVCACHE_SPACE", 0.0)
    if not size and in_range(version, None, "0.12"):
        size = _CPU_KV_SPACE
    return int(size * GIB)


def _cpu_backend(told, version, model, parameters):
    """On the CPU backend weights and KV cache are host memory (vllm-memory 3.17)."""
    found = []
    size = model.size
    if not size and parameters:
        size = int(parameters * 1e9 * BF16)
        model.assumptions.append(f"the weights of {parameters:g}B parameters take two bytes each (bf16)")
    if size:
        why = "the weights are host memory"
        found.append(_segment("weights", size, "anonymous", _ALWAYS, why, size / 10))
    else:
        model.assumptions.append(
            "the model's size isn't known: its weights, which are host memory, aren't counted"
        )
    space = cpu_kv_bytes(told, version)
    if space:
        found.append(
            _segment("kv_cache", space, "anonymous", _SERVING, f"VLLM_CPU_KVCACHE_SPACE, {show_bytes(space)}")
        )
    else:
        model.assumptions.append("VLLM_CPU_KVCACHE_SPACE isn't set: the KV cache takes what the node shows")
    return found


def _shm_segments(told, version, layout):
    rings = layout.cores * shm_need(version, layout.ranks_of_a_core)[1]
    found = []
    if rings:
        why = "rings between engine cores and workers, NCCL's segments; touched little by little"
        found.append(_segment("shm_rings", rings, "shm", _ALWAYS, why, rings / 2))
    if told.on("enable_shm_tensor_arena"):
        found.append(_segment("enable_shm_tensor_arena", 2 * GIB, "shm", _SERVING, "8 x 256 MiB"))
    return found


def host_memory(
    settings,
    version=None,
    model_bytes=None,
    parameters=None,
    ranks=None,
    largest_file=None,
    pickled=False,
    storage=None,
    multimodal=None,
    accelerator="cuda",
    builds_kernels=False,
    cpus=None,
    shm=None,
    measured=None,
):
    """What one pod's engine needs of host memory, and the limit and request that follow.

    settings: as ``engine.settings`` gives them or plain; version: text or tuple; model_bytes: the checkpoint on
    disk; parameters: total, in billions (the table is read by the setting ``model`` where its name tells them);
    ranks: worker processes of this pod (default: tensor times pipeline times local data parallel size);
    largest_file: bytes of the checkpoint's largest file; pickled: .bin or .pt files; storage: ``tmpfs`` where the
    files lie in a memory-backed volume of this pod; multimodal: whether the model takes images (None: unknown);
    builds_kernels: whether kernels are compiled at the start, cpus: the processors that are seen then; shm:
    ``{size_bytes, memory_backed}`` of /dev/shm, whose files count against the limit; measured: ``{held, peak,
    killed}``, anonymous plus shared bytes, highest use with page cache, whether the attempt was OOM-killed.

    Returns ``{segments, need_bytes, need_error_bytes, least_bytes, limit_bytes, limit_bounds, request_bytes,
    shm_bytes, shm_fits, by, words, assumptions}``. need_bytes: what can't be reclaimed at the worst moment of the
    start or in serving; least_bytes: the same with every error in its favour; limit_bounds: from where on a limit
    is no risk, and up to where it is of use; limit_bytes: the limit to set; by: ``table``, ``mechanism`` or
    ``measured``; words: what the bounds and the limit are made of. Each segment is ``{name, bytes, kind, phase, proof,
    why, error}``, kind one of anonymous, page_cache, shm, pinned.
    """
    told, release, assumptions = Told(settings), parse_version(version), []
    if release is None:
        assumptions.append("vLLM's version isn't known: the newest rules are used")
    if told.value("distributed_executor_backend") == "ray":
        assumptions.append("Ray's object store, by default up to 30 % of the memory, isn't counted")
    layout = _Layout(told, ranks)
    model = _Model(model_bytes, largest_file, pickled, storage, assumptions)
    # The runbook's rows are classes as models are named; a name is also what every part of the product has.
    size = parameters_in_billions(told.value("model")) or parameters
    segments = _engine_segments(told, release, layout, model, accelerator, size)
    segments += _images(told, release, multimodal, segments, assumptions)
    segments += _kernel_compile(told, cpus, assumptions) if builds_kernels else []
    _uncounted_shm(segments, shm, assumptions)
    limits = _limits(segments, size, layout, accelerator)
    limits = _corrected(limits, measured or {}, assumptions)
    return _result(segments, limits, shm or {}, assumptions)


def _engine_segments(told, version, layout, model, accelerator, parameters):
    ranks = layout.ranks
    found = _processes(layout) + _common(told, ranks, layout.servers)
    if accelerator == "cpu":
        found += _cpu_backend(told, version, model, parameters)
    found += loader(told, version, ranks, model) + pools(told, version, ranks) + _sleep(told, model)
    return found + _shm_segments(told, version, layout)


def _images(told, version, multimodal, segments, assumptions):
    """The default cache of images, which only models that take images fill."""
    named = any(item["name"] == "mm_processor_cache_gb" for item in segments)
    if named or told.given("mm_processor_cache_gb") is not None or in_range(version, "0.10.1.1") is False:
        return []
    if multimodal is None:
        assumptions.append("the model takes no images; else 4 GiB (--mm-processor-cache-gb) in each process")
    if not multimodal:
        return []
    given = Told(
        {
            "mm_processor_cache_gb": 4.0,
            **{n: told.value(n) for n in ("api_server_count", "data_parallel_size")},
        }
    )
    return _image_cache(given, version)


def _uncounted_shm(segments, shm, assumptions):
    """Files of a /dev/shm that is a disk are page cache, not memory of the pod."""
    if (shm or {}).get("memory_backed") is False:
        assumptions.append("/dev/shm is no memory-backed volume: what lies there is page cache")
        for item in segments:
            if item["kind"] == "shm" and item["name"] != "model_files":
                item["kind"] = "page_cache"


def _held(segments, error=0):
    """Bytes that can't be reclaimed, at the worst of the phases. error: how many times each one's error is added."""
    sums: dict[str, int] = {}
    for item in segments:
        if item["kind"] != "page_cache":
            size = max(0, item["bytes"] + error * item["error"])
            sums[item["phase"]] = sums.get(item["phase"], 0) + size
    always = sums.pop(_ALWAYS, 0)
    return always + max(sums.values(), default=0)


# What the table already counts in: the processes that a model of that size usually has, its page cache, start-up.
_IN_THE_TABLE = ("api_server", "engine_core", "workers", "staging", "tokenizer", "compile", "shm_rings")


class _Limits(NamedTuple):
    """need, least, most: what can't be reclaimed, and its ends; bounds: of the memory limit; limit: what to set."""

    need: int
    least: int
    most: int
    bounds: tuple[int, int]
    limit: int
    by: str
    words: str


def _limits(segments, parameters, layout, accelerator):
    """What the segments need, and the limit by the table; outside of it by the mechanism, the table's end in view."""
    need, least, most = (_held(segments, error) for error in (0, -1, 1))
    table = table_bounds(parameters) if accelerator != "cpu" else None
    beyond = [item for item in segments if item["name"] not in _IN_THE_TABLE]
    if table:
        lower, upper, words = _row_corrected(table, parameters, beyond, layout)
        bounds = (lower, upper) if need <= upper else (max(lower, need), max(upper, most))
        told = f"by the runbook's table for {parameters:g}B"
        return _Limits(need, least, most, bounds, bounds[1], "table", _sum_of(table, told, words))
    own = [item for item in segments if item["name"] in _IN_THE_TABLE]
    base = (_held(own, -1), _held(own, 1))
    words = _sum_of(base, "for the processes and what they start with", _parts(beyond))
    limit, remark = most, ""
    if parameters and accelerator != "cpu":
        limit, remark = _beside_the_table(most, parameters, beyond, layout)
    return _Limits(need, least, most, (least, most), limit, "mechanism", words + remark)


def _row_corrected(row, parameters, beyond, layout):
    """``(lower, upper, parts)`` of a row with what comes on top counted in: pools, loaders that copy, more processes."""
    more, parts = max(0, layout.more_than_usual(parameters)), _parts(beyond)
    if more:
        kind = "worker process" if layout.ranks > usual_ranks(parameters) else "process"
        parts.append((f"{more} more {kind}{'es' if more > 1 else ''}", more * PROCESS[0], more * PROCESS[1]))
    lower, upper = row
    return (
        lower + _held(beyond) + more * PROCESS[0],
        upper + _held(beyond, 1) + more * PROCESS[1],
        parts,
    )


def _beside_the_table(most, parameters, beyond, layout):
    """``(limit to set, remark)`` outside of the table: no risk follows from its ends, but a limit that fits beside it.

    Below its first row: room for the files of the checkpoint (bf16) as page cache, at most that row. Above the last
    one: at least that row.
    """
    first, last = MEMORY_LIMITS[0], MEMORY_LIMITS[-1]
    if parameters < first[0]:
        row = _row_corrected(table_bounds(first[0]), first[0], beyond, layout)[1]
        limit = max(most, min(row, most + int(parameters * 1e9 * BF16)))
        return limit, (
            f"; to set: with room for its files as page cache, at most what the runbook's table has for {first[0]:g}B"
        )
    row = _row_corrected(table_bounds(last[0]), last[0], beyond, layout)[1]
    return max(most, row), f"; to set: at least what the runbook's table has for {last[0]:g}B, its last row"


def _parts(segments):
    """``[(what, at least, at most)]`` of segments that can't be reclaimed."""
    return [
        (item["name"], item["bytes"], item["bytes"] + item["error"])
        for item in segments
        if item["kind"] != "page_cache"
    ]


def _sum_of(base, what, parts):
    shown = [f"{show_bytes(base[0])} to {show_bytes(base[1])} {what}"]
    return " + ".join(shown + [f"{show_bytes(low)} for {name}" for name, low, _high in parts])


def _result(segments, limits, shm, assumptions):
    in_shm = [item for item in segments if item["kind"] == "shm" and item["name"] != "model_files"]
    shm_bytes = sum(item["bytes"] for item in in_shm)
    limit = max(limits.limit, limits.need)
    if shm.get("memory_backed"):
        # A file in it counts against the limit, and may be as large as the volume.
        limit = max(limit, limits.bounds[0] + max(0, (shm.get("size_bytes") or 0) - shm_bytes))
    limit = _whole_gib(limit)
    return {
        "segments": segments,
        "need_bytes": limits.need,
        "need_error_bytes": max(limits.most - limits.need, 0),
        "least_bytes": limits.least,
        "limit_bytes": limit,
        "limit_bounds": list(limits.bounds),
        "request_bytes": request_for(limit),
        "shm_bytes": shm_bytes,
        "shm_fits": None if shm.get("size_bytes") is None else shm_bytes <= shm["size_bytes"],
        "by": limits.by,
        "words": limits.words,
        "assumptions": assumptions,
    }


def _corrected(limits, measured, assumptions):
    """A measured peak beats the model; of a killed attempt it is only a lower bound."""
    held, peak, need = measured.get("held"), measured.get("peak"), limits.need
    if measured.get("killed"):
        seen = max(held or 0, peak or 0)
        if not seen:
            return limits
        assumptions.append(f"an attempt was killed at {show_bytes(seen)}: it needs more than that")
        least = max(need, seen)
        upper = max(limits.bounds[1], int(least / REQUEST_OF_LIMIT))
        return limits._replace(
            need=least,
            least=max(limits.least, seen),
            bounds=(max(limits.bounds[0], least), upper),
            limit=max(limits.limit, upper),
        )
    if held is not None:
        if abs(held - need) > 0.05 * held:
            assumptions.append(
                f"measured {show_bytes(held)}, modelled {show_bytes(need)}: the measured one counts"
            )
        return _measured(limits, held, "can't be reclaimed")
    if peak is not None and peak < need:
        assumptions.append(f"the highest use was {show_bytes(peak)}, page cache included: it needs no more")
        return _measured(limits, peak, "were used at most")
    return limits


def _measured(limits, size, what):
    upper = int(size / REQUEST_OF_LIMIT)
    words = f"{show_bytes(size)} {what}, measured"
    return limits._replace(
        need=size, least=size, bounds=(size, upper), limit=upper, by="measured", words=words
    )


def _whole_gib(size):
    """Up to whole GiB; an eighth of one is within what any of these figures means."""
    return -(-max(int(size) - GIB // 8, 1) // GIB) * GIB
