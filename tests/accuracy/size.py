# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Size reports: JSON lines on standard input, one budget line for each on standard output.

A report has fields of ``shared/cases/sizing_dev.jsonl``; any may be missing or null. Only those in ``READ_FIELDS``
are looked at, with ``--calibrated`` those in ``CALIBRATION`` too, as a real run with logs does. Output: ``{id,
weights_gib, non_torch_gib, activation_gib, graph_gib, available_kv_gib, kv_bytes_per_token_per_rank, kv_tokens,
max_concurrency, estimated_max_len, undetermined: [sentence]}``; what can't be told is null and said in
``undetermined``, and so is every input that had to be assumed. Numbers are one rank's, the first's; tokens and
concurrency are those of the rank with the least room.

The config of ``config_id`` is looked for in ``--configs`` (default: model_configs of the shared cases).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.versions import (  # noqa: E402
    parse_version,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import gpus  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import (  # noqa: E402
    ConfigError,
    architecture,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.budget import (  # noqa: E402
    BudgetError,
    budget,
    graphs_subtracted,
)

# The whole of what may be read of a report (design, section 8), and with --calibrated.
READ_FIELDS = (
    *("id", "model", "config_id", "arch", "dtype", "quantization", "kv_cache_dtype", "tp", "pp", "dp", "dcp"),
    *("gpu", "gpu_total_gib", "total_gib", "free_gib", "gpu_memory_utilization", "max_model_len"),
    *("max_num_seqs", "max_num_batched_tokens", "enforce_eager", "block_size", "speculative"),
    *("vllm_version", "engine"),
)
CALIBRATION = ("weights_gib", "activation_gib", "non_torch_gib", "graph_gib", "graph_estimated_gib")
OUTPUT = (
    *("weights_gib", "non_torch_gib", "activation_gib", "graph_gib", "available_kv_gib"),
    *("kv_bytes_per_token_per_rank", "kv_tokens", "max_concurrency", "estimated_max_len"),
)
_MEASURED = {
    "weights_gib": "weights",
    "activation_gib": "activation_peak",
    "non_torch_gib": "non_torch",
    "graph_gib": "graph",
    "graph_estimated_gib": "graph_estimated",
}
_CONFIGS = (
    Path(os.environ.get("VLLM_OOM_SHARED") or ROOT.parent / "shared") / "cases" / "model_configs",
    Path("/work/shared/cases/model_configs"),
)
# A block size of more than this is what vLLM chose for a hybrid and says in the log, no flag.
_LARGEST_FLAG = 256
_NO_SIZE = 1e9
_SIXTEEN_BITS = "quantization isn't given and the config is another checkpoint's: 16 bits are assumed"
_DATED = re.compile(r"[A-Za-z]+ 20\d\d")
_SPECULATIVE = re.compile(r"(\d+) tokens?")
# A quantization that only the model's name tells; "int8 KV" is none.
_NAMED = re.compile(r"(?i)(?<![a-z])(nvfp4|mxfp4|fp8|awq|gptq)(?![a-z0-9])(?! kv)")
_GGUF = re.compile(r"(?i)[-.](i?q\d\w*)")


def main(arguments=None):
    """Sizes every line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibrated", action="store_true", help="also read what the report measured")
    parser.add_argument("--configs", type=Path, default=None, help="directory of config.json files")
    options = parser.parse_args(arguments)
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(size_line(line, options.calibrated, options.configs)))


def size_line(line, calibrated=False, configs=None):
    """The output of one line, whatever it holds."""
    try:
        report = json.loads(line)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        return _nothing(None, "the line is no JSON object")
    names = READ_FIELDS + (CALIBRATION if calibrated else ())
    return size({name: report.get(name) for name in names}, configs)


def size(report, configs=None):
    """The output for one report that holds only what may be read."""
    config, undetermined = _config(report, configs)
    if config is None:
        return _nothing(report.get("id"), *undetermined)
    try:
        arch = architecture(config)
        settings = _settings(report, arch, undetermined)
        version = _version(report)
        measured = _measured(report, version, settings)
        if arch["quantization"] and _foreign_quantization(report, arch["quantization"]):
            arch = dict(arch, quantization=None)
            if "quantization" not in settings:
                undetermined.append(_SIXTEEN_BITS)
        result = _of_gpu(report, undetermined, lambda gpu: budget(arch, gpu, settings, version, measured))
    except (ConfigError, BudgetError, KeyError, TypeError, ValueError) as error:
        return _nothing(report.get("id"), f"{type(error).__name__}: {error}")
    return _output(report, settings, result, undetermined)


def _nothing(name, *reasons):
    return {"id": name, **dict.fromkeys(OUTPUT), "undetermined": list(reasons)}


def _output(report, settings, result, undetermined):
    parts = {segment["name"]: segment["bytes"] for segment in result["segments"]}
    stage = dict(result["ranks"]["stages"][0])
    kv = result["kv"] or {}
    if (stage["kv_available"] or 0) < 0 and _SIXTEEN_BITS in undetermined:
        # What ran there was no checkpoint in 16 bits.
        stage.update(weights=None, kv_available=None)
        parts["weights"], kv = None, {}
        undetermined = [
            *undetermined,
            "weights_gib: in 16 bits they don't fit this GPU, so which bits isn't known",
        ]
    shown_first = result["ranks"]["shown"] == 0
    available = stage["kv_available"]
    undetermined = undetermined + [text for text in result["assumptions"] if text not in undetermined]
    undetermined += [text for text in result["problems"] if text not in undetermined]
    if available is None:
        why = "the GPU's total memory" if result["capacity"]["total"] is None else "what the weights take"
        undetermined.append(f"available_kv_gib: {why} isn't known")
    return {
        "id": report.get("id"),
        "weights_gib": _gib(parts["weights"] if shown_first else stage["weights"]),
        "non_torch_gib": _gib(parts["non_torch"]),
        "activation_gib": _gib(parts["activation_peak"] if shown_first else stage["activation_peak"]),
        "graph_gib": _gib(parts["graph"]),
        "available_kv_gib": _gib(available),
        "kv_bytes_per_token_per_rank": result["kv_bytes_per_token"] or None,
        "kv_tokens": kv.get("tokens"),
        "max_concurrency": kv.get("max_concurrency"),
        "estimated_max_len": kv.get("estimated_max_len"),
        "undetermined": undetermined,
    }


def _gib(size):
    return None if size is None else round(size / GIB, 4)


def _config(report, configs):
    """(config.json, what isn't determined)."""
    name = report.get("config_id")
    if isinstance(name, str) and name:
        for folder in (configs,) if configs else _CONFIGS:
            path = folder / (name.replace("/", "__") + ".json")
            if path.is_file():
                return json.loads(path.read_text(encoding="utf-8")), []
    arch = report.get("arch")
    if isinstance(arch, dict) and arch.get("num_hidden_layers"):
        return arch, ["no config.json: sizes are read from the report's own list of fields"]
    return None, ["no config.json for this model"]


def _number(value):
    """``value`` where it is a number that a report could hold, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < _NO_SIZE else None


def _version(report):
    """The version in the report: a lower end counts as that release, a date as none."""
    text = str(report.get("vllm_version") or "").replace(">=", "").strip()
    if not text or _DATED.match(text) or parse_version(text) is None:
        return None
    return text


def _base(name):
    return str(name or "").rsplit("/", 1)[-1].lower()


def _foreign_quantization(report, quantization):
    """Whether the config's quantization is another checkpoint's than the one that ran."""
    same = _base(report.get("config_id")) in str(report.get("model")).lower()
    if report.get("quantization") is None:
        return not same and "Thinking" not in str(report.get("model"))
    # A checkpoint of another maker: another scheme, and no fp8 KV cache that its config would ask for.
    theirs = str(quantization).lower()
    return "modelopt" in theirs and "nvfp4" not in str(report["quantization"]).lower()


def _settings(report, arch, undetermined):
    spec = str(report.get("speculative") or "")
    drafted = _SPECULATIVE.search(spec)
    tokens = int(drafted.group(1)) if drafted else 2 if spec else 0
    if spec and not drafted:
        undetermined.append("the number of speculative tokens isn't given: 2 are assumed")
    block = _number(report.get("block_size"))
    settings: dict[str, Any] = {
        "engine": report.get("engine"),
        "model": report.get("model"),
        "tensor_parallel_size": report.get("tp"),
        "pipeline_parallel_size": report.get("pp"),
        "data_parallel_size": report.get("dp"),
        "decode_context_parallel_size": report.get("dcp"),
        "dtype": report.get("dtype"),
        "quantization": _quantization(report),
        "kv_cache_dtype": report.get("kv_cache_dtype"),
        "gpu_memory_utilization": report.get("gpu_memory_utilization"),
        "max_model_len": report.get("max_model_len"),
        "max_num_seqs": report.get("max_num_seqs"),
        "max_num_batched_tokens": report.get("max_num_batched_tokens"),
        "enforce_eager": report.get("enforce_eager"),
        "block_size": block if block and block <= _LARGEST_FLAG else None,
        "speculative_tokens": tokens,
        "draft_layers": 1 if "mtp" in spec and arch["draft"] else 0,
    }
    if spec and not settings["draft_layers"]:
        undetermined.append("a draft model of its own runs, which isn't described: it isn't counted")
    for name in ("tensor_parallel_size", "max_model_len"):
        if settings[name] is None:
            assumed = "1" if name != "max_model_len" else f"the model's own {arch['max_position_embeddings']}"
            undetermined.append(f"{name} isn't given: {assumed} is assumed")
    return {name: value for name, value in settings.items() if value is not None}


def _quantization(report):
    name = report.get("quantization")
    if name is None and _base(report.get("config_id")) != _base(report.get("model")):
        named = _NAMED.search(str(report.get("model")))
        return named.group(1).lower() if named else None
    if name != "gguf":
        return name
    kind = _GGUF.search(str(report.get("model")))
    return f"gguf {kind.group(1).lower()}" if kind else name


def _of_gpu(report, undetermined, sized):
    """``sized`` for the report's GPU; of several that the name may mean, for the smallest that holds the weights."""
    name = report.get("gpu") if isinstance(report.get("gpu"), str) else None
    total = _number(report.get("total_gib")) or _number(report.get("gpu_total_gib"))
    size = None if total is None else int(total * GIB)
    product = gpus.gpu(name, size) if name else None
    if product is not None or size is not None or not name:
        result = sized(_facts(report, product, size))
        if product is not None and size is None:
            undetermined.append(
                f"total memory isn't given: {product['visible_gib']} GiB of {product['name']}"
            )
        return result
    names = gpus.candidates(name)
    products = [item for item in map(gpus.gpu, names) if item is not None]
    if " or " in name and products and products[0]["visible_gib"] < 0.95 * products[-1]["visible_gib"]:
        undetermined.append(f"'{name}' names GPUs of several sizes")
        return sized(_facts(report, None, None))
    result = None
    for product in products:
        result = sized(_facts(report, product, None))
        if result["available_kv"] is not None and result["available_kv"] > 0:
            break
    if result is None:
        undetermined.append(f"the GPU '{name}' isn't known")
        return sized(_facts(report, None, None))
    undetermined.append(f"'{name}' may be {', '.join(names[:4])}: {product['name']} is assumed")
    return result


def _facts(report, product, size):
    free = _number(report.get("free_gib"))
    name = report.get("gpu")
    facts: dict[str, Any] = {"name": name if isinstance(name, str) else None, "total_bytes": size}
    facts["free_bytes"] = None if free is None else int(free * GIB)
    if product is not None:
        facts.update({key: product[key] for key in ("compute_capability", "nvlink", "unified")})
        facts["total_bytes"] = size or gpus.visible_bytes(product)
    return facts


def _measured(report, version, settings):
    """What the report's log measured; graphs only where that version subtracts them."""
    measured = {}
    for field, name in _MEASURED.items():
        value = _number(report.get(field))
        if value is None:
            continue
        if name.startswith("graph") and not graphs_subtracted(version, settings.get("engine", "V1")):
            continue
        measured[name] = int(value * GIB)
    return measured


if __name__ == "__main__":
    main()
