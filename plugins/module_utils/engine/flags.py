# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's options and environment variables: names, spellings, types, the releases that know them.

One table each; everything that reads or explains a setting looks here. Sources: vllm-memory sections 7.1, 7.2
and 7.5 for what has an effect on memory, vLLM's own argument parser for the ordinary rest.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..secret_names import is_secret_name

HIDDEN = "***"
_MAX_NESTING = 40


class Option(NamedTuple):
    """An engine option.

    kind: int, float, str, bool; count (human-readable int), length (the same, and auto), json (object), level
    (an optimization level or a JSON object), strings and ints (several values). spellings: flags besides
    ``--name``. since, until: releases, inclusive. memory: has an effect on GPU memory, host memory or
    /dev/shm.
    """

    name: str
    kind: str
    spellings: tuple[str, ...]
    since: str | None
    until: str | None
    memory: bool
    secret: bool


class Variable(NamedTuple):
    """An environment variable and the releases that read it. kind: int, float, bool or str."""

    name: str
    kind: str
    since: str | None
    until: str | None


def _option(name, kind="str", *spellings, since=None, until=None, memory=False, secret=False):
    return Option(name, kind, spellings, since, until, memory, secret)


def _memory(name, kind="str", *spellings, since=None, until=None):
    return Option(name, kind, spellings, since, until, True, False)


OPTIONS = (
    # vllm-memory 7.1
    _memory("gpu_memory_utilization", "float", "--device-memory-utilization"),
    _memory("kv_cache_memory_bytes", "count", "--kv-cache-memory", since="0.10.2"),
    _memory("num_gpu_blocks_override", "int", since="0.4.1"),
    _memory("max_model_len", "length"),
    _memory("max_num_seqs", "count"),
    _memory("max_num_active_seqs", "int", since="0.31"),
    _memory("max_num_batched_tokens", "count"),
    _memory("enable_chunked_prefill", "bool", since="0.4.1"),
    _memory("enable_prefix_caching", "bool", since="0.4.1"),
    _memory("enforce_eager", "bool"),
    _memory("max_seq_len_to_capture", "int", since="0.4.3", until="0.10.2"),
    _memory("cuda_graph_sizes", "ints", since="0.9.0", until="0.12"),
    _memory("cudagraph_capture_sizes", "ints", since="0.11.1"),
    _memory("max_cudagraph_capture_size", "int", since="0.11.1"),
    _memory("compilation_config", "level", "-cc", "-O", since="0.6.5"),
    _memory("optimization_level", "int", since="0.12"),
    _memory("tensor_parallel_size", "int", "-tp"),
    _memory("pipeline_parallel_size", "int", "-pp"),
    _memory("data_parallel_size", "int", "-dp", since="0.8.3"),
    _memory("data_parallel_size_local", "int", "-dpl", since="0.8.3"),
    _memory("enable_expert_parallel", "bool", "-ep", since="0.8.0"),
    _memory("enable_eplb", "bool", since="0.9.2"),
    _memory("num_redundant_experts", "int", since="0.9.2"),
    _memory("eplb_config", "json", since="0.10.2"),
    _memory("decode_context_parallel_size", "int", "-dcp", since="0.10.2"),
    _memory("prefill_context_parallel_size", "int", "-pcp", since="0.12"),
    _memory("kv_cache_dtype"),
    _memory("kv_cache_dtype_skip_layers", "strings", since="0.19"),
    _memory("block_size", "int"),
    _memory("mamba_block_size", "int", since="0.11.1"),
    _memory("mamba_cache_dtype", since="0.10.1.1"),
    _memory("mamba_ssm_cache_dtype", since="0.10.1.1"),
    _memory("mamba_cache_mode", since="0.15"),
    _memory("disable_hybrid_kv_cache_manager", "bool", since="0.9.1"),
    _memory("quantization", "str", "-q"),
    _memory("dtype"),
    _memory("cpu_offload_gb", "float", since="0.5.5"),
    _memory("cpu_offload_params", "strings", since="0.17"),
    _memory("offload_backend", since="0.17"),
    _memory("offload_group_size", "int", since="0.17"),
    _memory("offload_num_in_group", "int", since="0.17"),
    _memory("offload_prefetch_step", "int", since="0.17"),
    _memory("offload_params", "strings", since="0.17"),
    _memory("swap_space", "float", until="0.17"),
    _memory("preemption_mode", since="0.5.0", until="0.10.2"),
    _memory("num_scheduler_steps", "int", since="0.5.5", until="0.10.0"),
    _memory("limit_mm_per_prompt", "json", since="0.5.5"),
    _memory("language_model_only", "bool", since="0.17"),
    _memory("skip_mm_profiling", "bool", since="0.10.1.1"),
    _memory("mm_encoder_tp_mode", since="0.10.2"),
    _memory("mm_ipc_gpu_memory_gb", "float", since="0.25"),
    _memory("mm_tensor_ipc", since="0.19"),
    _memory("enable_lora", "bool"),
    _memory("max_loras", "int"),
    _memory("max_lora_rank", "int"),
    _memory("max_cpu_loras", "int"),
    _memory("fully_sharded_loras", "bool", since="0.4.3"),
    _memory("speculative_config", "json", "-sc", since="0.8.2"),
    _memory("speculative_model", since="0.4.1", until="0.8.2"),
    _memory("num_speculative_tokens", "int", since="0.4.1", until="0.8.2"),
    _memory("speculative_draft_tensor_parallel_size", "int", until="0.8.2"),
    _memory("enable_sleep_mode", "bool", since="0.7.0"),
    _memory("enable_cumem_allocator", "bool", since="0.22"),
    _memory("sleep_mode_offload_cudagraph", "bool", since="0.32"),
    _memory("disable_custom_all_reduce", "bool"),
    _memory("enable_dbo", "bool", since="0.11"),
    _memory("scheduler_reserve_full_isl", "bool", since="0.19"),
    _memory("watermark", "float", since="0.24"),
    _memory("performance_mode", since="0.17"),
    _memory("kv_transfer_config", "json", since="0.6.5"),
    _memory("kv_offloading_size", "float", since="0.11.1"),
    _memory("kv_offloading_backend", since="0.11.1"),
    # vllm-memory 7.2 and 8.2: host memory and /dev/shm
    _memory("load_format"),
    _memory("safetensors_load_strategy", since="0.10.2"),
    _memory("max_parallel_loading_workers", "int"),
    _memory("model_loader_extra_config", "json"),
    _memory("mm_processor_cache_gb", "float", since="0.10.1.1"),
    _memory("mm_processor_cache_type", since="0.11"),
    _memory("mm_shm_cache_max_object_size_mb", "int", since="0.11"),
    _memory("disable_mm_preprocessor_cache", "bool", since="0.6.6", until="0.12"),
    _memory("enable_shm_tensor_arena", "bool", since="0.32"),
    _memory("api_server_count", "int", "-asc", since="0.9.1"),
    # What else decides which model runs where
    _memory("model", "str", "--model-tag"),
    _memory("hf_overrides", "json"),
    _memory("rope_scaling", "json"),
    _memory("mm_processor_kwargs", "json"),
    _memory("distributed_executor_backend"),
    _memory("attention_backend", since="0.12"),
    _memory("all2all_backend"),
    _memory("async_scheduling", "bool"),
    _memory("disable_cascade_attn", "bool"),
    _memory("disable_sliding_window", "bool"),
    _memory("additional_config", "json"),
    _option("additional_config_file"),
    _option("served_model_name", "strings"),
    _option("tokenizer"),
    _option("tokenizer_mode"),
    _option("skip_tokenizer_init", "bool"),
    _option("trust_remote_code", "bool"),
    _option("download_dir"),
    _option("revision"),
    _option("code_revision"),
    _option("tokenizer_revision"),
    _option("hf_config_path"),
    _option("hf_token", secret=True),
    _option("config_format"),
    _option("model_impl"),
    _option("task"),
    _option("runner"),
    _option("convert"),
    _option("seed", "int"),
    _memory("device"),
    _option("host"),
    _option("port", "int"),
    _option("uds"),
    _option("root_path"),
    _option("api_key", "strings", secret=True),
    _option("ssl_keyfile"),
    _option("ssl_certfile"),
    _option("headless", "bool"),
    _option("nnodes", "int", "-n"),
    _option("node_rank", "int", "-r"),
    _option("master_addr"),
    _option("master_port", "int"),
    _option("data_parallel_rank", "int", "-dpn"),
    _option("data_parallel_start_rank", "int", "-dpr"),
    _option("data_parallel_address", "str", "-dpa"),
    _option("data_parallel_rpc_port", "int", "-dpp"),
    _option("data_parallel_backend", "str", "-dpb"),
    _option("data_parallel_hybrid_lb", "bool", "-dph"),
    _option("data_parallel_external_lb", "bool", "-dpe"),
    _option("lora_modules", "strings"),
    _option("lora_dtype"),
    _option("lora_extra_vocab_size", "int"),
    _option("chat_template"),
    _option("chat_template_content_format"),
    _option("response_role"),
    _option("generation_config"),
    _option("override_generation_config", "json"),
    _option("override_pooler_config", "json"),
    _option("pooler_config", "json"),
    _option("guided_decoding_backend"),
    _option("structured_outputs_config", "json"),
    _option("reasoning_parser"),
    _option("tool_call_parser"),
    _option("enable_auto_tool_choice", "bool"),
    _option("enable_reasoning", "bool"),
    _option("scheduling_policy"),
    _option("scheduler_delay_factor", "float"),
    _option("max_logprobs", "int"),
    _option("max_log_len", "int"),
    _option("uvicorn_log_level"),
    _option("disable_uvicorn_access_log", "bool"),
    _option("disable_log_requests", "bool"),
    _option("enable_log_requests", "bool"),
    _option("disable_log_stats", "bool"),
    _option("disable_frontend_multiprocessing", "bool"),
    _option("enable_prompt_tokens_details", "bool"),
    _option("enable_server_load_tracking", "bool"),
    _option("enable_request_id_headers", "bool"),
    _option("show_hidden_metrics_for_version"),
    _option("otlp_traces_endpoint"),
    _option("collect_detailed_traces", "strings"),
    _option("kv_cache_metrics", "bool"),
    _option("kv_events_config", "json"),
    _option("ec_transfer_config", "json"),
    _option("allowed_local_media_path"),
    _option("media_io_kwargs", "json"),
    _option("allowed_origins", "json"),
    _option("allowed_methods", "json"),
    _option("allowed_headers", "json"),
    _option("allow_credentials", "bool"),
    _option("middleware", "strings"),
    _option("worker_cls"),
    _option("worker_extension_cls"),
    _option("worker_use_ray", "bool"),
    _option("engine_use_ray", "bool"),
    _option("use_v2_block_manager", "bool"),
    _option("calculate_kv_scales", "bool"),
    _option("logits_processors", "strings"),
    _option("stream_interval", "int"),
    _option("long_prefill_token_threshold", "int"),
    _option("max_num_partial_prefills", "int"),
    _option("max_long_partial_prefills", "int"),
    _option("profiler_config", "json"),
    _option("attention_config", "json", "-ac"),
    _option("config"),
)

BY_NAME = {option.name: option for option in OPTIONS}
_BY_FLAG = {
    flag: option for option in OPTIONS for flag in ("--" + option.name.replace("_", "-"), *option.spellings)
}
_LONG_FLAGS = tuple(sorted(flag for flag in _BY_FLAG if flag.startswith("--")))


# Environment variables that change what vLLM allocates, checks or survives (vllm-memory 7.5 and 8).
VARIABLES = (
    Variable("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "bool", "0.18", None),
    Variable("VLLM_ENABLE_STARTUP_PLAN", "bool", "0.26", None),
    Variable("VLLM_USE_V1", "bool", "0.6.4", "0.10.2"),
    Variable("VLLM_USE_V2_MODEL_RUNNER", "bool", "0.12", None),
    Variable("VLLM_CPU_KVCACHE_SPACE", "float", None, None),
    Variable("VLLM_MQ_MAX_CHUNK_BYTES_MB", "int", "0.9.1", None),
    Variable("VLLM_RINGBUFFER_WARNING_INTERVAL", "int", "0.5.5", None),
    Variable("VLLM_ENGINE_READY_TIMEOUT_S", "int", "0.14", None),
    Variable("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "int", "0.9.2", None),
    Variable("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "bool", "0.5.5", None),
    Variable("VLLM_ALLREDUCE_USE_SYMM_MEM", "bool", "0.10.2", None),
    Variable("VLLM_ALLREDUCE_USE_FLASHINFER", "bool", "0.17", None),
    Variable("VLLM_USE_NCCL_SYMM_MEM", "bool", "0.11", None),
    Variable("VLLM_SKIP_P2P_CHECK", "bool", "0.6.3", None),
    Variable("VLLM_WORKER_MULTIPROC_METHOD", "str", "0.4.3", None),
    Variable("VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "int", "0.11.1", None),
    Variable("VLLM_DEEPEP_BUFFER_SIZE_MB", "int", "0.11", None),
    Variable("VLLM_FUSED_MOE_CHUNK_SIZE", "int", "0.5.5", "0.17"),
    Variable("VLLM_MOE_DP_CHUNK_SIZE", "int", "0.9.2", "0.19"),
    Variable("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", "int", "0.19", None),
    Variable("VLLM_MM_INPUT_CACHE_GIB", "float", "0.8.0", "0.12"),
    Variable("VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY", "bool", "0.17", None),
    Variable("VLLM_WEIGHT_OFFLOADING_DISABLE_UVA", "bool", "0.17", None),
    Variable("VLLM_KV_CACHE_LAYOUT", "str", "0.9.2", None),
    Variable("VLLM_MLA_DISABLE", "bool", "0.7.1", None),
    Variable("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "bool", "0.5.5", None),
    Variable("VLLM_SLEEP_MEM_CHUNK_SIZE", "int", None, None),
    Variable("VLLM_ENABLE_RESPONSES_API_STORE", "bool", "0.10.1.1", None),
    Variable("OMP_NUM_THREADS", "int", None, None),
    Variable("MAX_JOBS", "int", None, None),
    Variable("CUDA_LAUNCH_BLOCKING", "bool", None, None),
    Variable("NCCL_CUMEM_ENABLE", "int", None, None),
    Variable("NCCL_NVLS_ENABLE", "int", None, None),
    Variable("NCCL_P2P_DISABLE", "bool", None, None),
    Variable("NCCL_SHM_DISABLE", "bool", None, None),
    Variable("NCCL_IB_DISABLE", "bool", None, None),
    Variable("NCCL_BUFFSIZE", "int", None, None),
    Variable("NCCL_MAX_NCHANNELS", "int", None, None),
    Variable("NCCL_MIN_NCHANNELS", "int", None, None),
    Variable("NCCL_MAX_CTAS", "int", None, None),
    Variable("NCCL_GRAPH_REGISTER", "bool", None, None),
)
BY_VARIABLE = {variable.name: variable for variable in VARIABLES}
# Other variables of these families are kept as text: they steer the engine or the libraries below it.
_FAMILIES = re.compile(
    r"(VLLM|NCCL|GLOO|TORCH|PYTORCH|TORCHINDUCTOR|CUDA|NVIDIA|HIP|ROCR|HSA|AMD|ZE|ONEAPI|HABANA|PT_HPU|ASCEND|TPU|PJRT"
    r"|HF|TRANSFORMERS|SAFETENSORS|RUNAI_STREAMER|LMCACHE|UCX|NVSHMEM|RAY|NIM|FLASHINFER|TRITON|OMP|MKL"
    r"|MALLOC|TOKENIZERS|PYTHON)_[A-Z0-9_]+|MAX_JOBS|LD_PRELOAD"
)
_URL_LOGIN = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)

# Longer ones are no size; Python refuses to read integers of over 4300 digits.
_PLAIN_INT = re.compile(r"[+-]?\d{1,18}")
_SHORT_INT = re.compile(r"(\d{1,18})(\.\d{1,18})?([kKmMgGtT])")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_WORDS = {
    "true": True,
    "false": False,
    "1": True,
    "0": False,
    "yes": True,
    "no": False,
    "on": True,
    "off": False,
}
_PAIRS = re.compile(r"\{?\s*(\w+\s*[:=]\s*[^{},:=]+(?:,\s*\w+\s*[:=]\s*[^{},:=]+)*)\s*\}?")


def flag_of(name):
    """The command-line spelling of a setting: ``max_model_len`` -> ``--max-model-len``."""
    return "--" + name.replace("_", "-")


def find_option(flag):
    """The option that a flag means, or None. flag: with dashes, without value (``--max_model_len``, ``-tp``).

    vLLM takes underscores for hyphens in long flags and argparse takes any unambiguous beginning. The table
    lacks options that have no effect on memory, so what is ambiguous to vLLM may be found here.
    """
    if not flag.startswith("--"):
        return _BY_FLAG.get(flag)
    long = flag.replace("_", "-")
    if long in _BY_FLAG:
        return _BY_FLAG[long]
    started = (
        {_BY_FLAG[known].name for known in _LONG_FLAGS if known.startswith(long)} if len(long) > 4 else ()
    )
    return BY_NAME[next(iter(started))] if len(started) == 1 else None


def name_of(option, value):
    """The setting's name: an int given as compilation_config is an optimization level (``-O3``)."""
    is_level = option.kind == "level" and isinstance(value, int)
    return "optimization_level" if is_level else option.name


def is_kept_variable(name):
    """Whether an environment variable says something about the engine or the libraries below it."""
    return bool(_FAMILIES.fullmatch(name)) or name in BY_VARIABLE


def is_secret(name):
    """Whether the value of a flag, variable or JSON key of this name must not be shown."""
    option = BY_NAME.get(name)
    return option.secret if option else is_secret_name(name)


def without_secrets(name, value):
    """``value`` with everything that looks secret replaced by ``***`` (also inside JSON objects and URLs)."""
    if value is None:
        return None
    if is_secret(name) and not isinstance(value, bool):
        return HIDDEN
    if isinstance(value, dict):
        return {key: without_secrets(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets("", inner) for inner in value]
    return _URL_LOGIN.sub(r"\1" + HIDDEN + "@", value) if isinstance(value, str) else value


def human_readable_int(text):
    """``4096``, ``32k`` (decimal, fractions allowed) or ``32K`` (binary) as int; None for the rest (``2Gi``).

    Source: vLLM's ``human_readable_int``, vllm-memory section 5.3.
    """
    text = text.strip()
    if _PLAIN_INT.fullmatch(text):
        return int(text)
    match = _SHORT_INT.fullmatch(text)
    if not match:
        return None
    number, fraction, suffix = match.groups()
    if suffix in _DECIMAL:
        # round: float(25.6) * 1000 may fall just short of the integer meant
        return int(round(float(number + (fraction or "")) * _DECIMAL[suffix], 6))
    return None if fraction else int(number) * _BINARY[suffix]


def _length(text):
    return -1 if text.strip().lower() == "auto" else human_readable_int(text)


def _float(text):
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _int(text):
    return int(text) if _PLAIN_INT.fullmatch(text.strip()) else None


def _bool(text):
    return _WORDS.get(text.strip().lower())


def _json(text):
    """A JSON object, its Python spelling, or flat ``image=10,video=1`` or ``{image: 10}``; else None."""
    text = text.strip()
    if nests_too_deep(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    if not _PAIRS.fullmatch(text):
        return None
    pairs = (re.split(r"\s*[:=]\s*", pair.strip(), maxsplit=1) for pair in text.strip("{} ").split(","))
    return {key: scalar(value) for key, value in pairs}


def scalar(text):
    """A bare word as the number, bool or null that it spells, else the word."""
    if nests_too_deep(text):
        return text.strip()
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def nests_too_deep(text):
    """Whether brackets are nested deeper than any option's value is: Python's parsers recurse on them."""
    depth = 0
    for character in text:
        if character in "([{<":
            depth += 1
            if depth > _MAX_NESTING:
                return True
        elif character in ")]}>":
            depth -= 1
    return False


def _object(text):
    value = _json(text)
    return value if isinstance(value, (dict, list)) else None


def _level(text):
    value = _json(text)
    return value if isinstance(value, (dict, int)) and not isinstance(value, bool) else None


def _ints(text):
    """One or more ints: ``4``, ``1,2,4``, ``[1, 2, 4]``."""
    numbers = [_int(part) for part in text.strip("[] ").replace(",", " ").split()]
    return numbers if numbers and None not in numbers else None


def _strings(text):
    value = _json(text) if text.startswith("[") else None
    return value if isinstance(value, list) else [text]


_READERS: dict[str, Callable[[str], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "count": human_readable_int,
    "length": _length,
    "json": _object,
    "level": _level,
    "ints": _ints,
    "strings": _strings,
    "str": str,
}


def read_value(kind, text):
    """``text`` as a value of ``kind``, or None when it isn't one."""
    return _READERS[kind](text)


def fit_value(kind, value):
    """A value that is no text (from a log's echo, YAML) brought to the type of ``kind``; None if it can't be.

    Whole floats become ints and single values become lists, so that every spelling gives the same setting.
    """
    if isinstance(value, str):
        return read_value(kind, value)
    if kind in ("ints", "strings"):
        return list(value) if isinstance(value, (list, tuple)) else [value]
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "str":
        return value if isinstance(value, (dict, list)) else str(value)
    return value
