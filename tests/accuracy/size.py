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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / ".ansible" / "collections")]

import listed_arch  # noqa: E402
import report_fields as fields  # noqa: E402

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.defaults import (  # noqa: E402
    default_of,
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
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.known_models import (  # noqa: E402
    known_model,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.quantization import (  # noqa: E402
    family,
    quantization_plan,
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
# From this share on a size that a GPU's name writes is another card's.
_OTHER_SIZE = 0.08
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
    HERE / "model_configs",
)
# A block size of more than this is what vLLM chose for a hybrid and says in the log, no flag.
_LARGEST_FLAG = 256
UNKNOWN_MODEL = "no config.json for this model"
_LEAST = "4 bits"
_LISTED = "no config.json: sizes are read from the report's own list of fields"
_SIXTEEN_BITS = "quantization isn't given, nor the config of the checkpoint that ran: 16 bits are assumed"
# From this compute capability on a GPU multiplies in FP8.
_FP8_CAPABILITY, _FP4_CAPABILITY = (8, 9), (10, 0)


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


def size(report, configs=None, given=None, blocks=None):
    """The output for one report that holds only what may be read.

    given: KV memory in bytes that isn't to be modelled; blocks: number of blocks that isn't to be computed.
    """
    config, undetermined = _config(report, configs)
    if config is None:
        return _nothing(report.get("id"), *undetermined)
    try:
        arch = architecture(config)
        version = version_of(report, arch["model_type"], undetermined)
        settings = _settings(report, arch, undetermined)
        measured = _measured(report, version, settings)
        if given is not None:
            measured["kv_available"] = given
        if blocks is not None:
            settings["num_gpu_blocks_override"] = blocks
        own = arch["quantization"]
        arch = _read_quantization(report, arch, settings, undetermined)
        sized = _sized(report, arch, own, settings, version, measured, undetermined)
    except (ConfigError, BudgetError, KeyError, TypeError, ValueError) as error:
        return _nothing(report.get("id"), f"{type(error).__name__}: {error}")
    return _output(report, sized, undetermined)


def _sized(report, arch, own, settings, version, measured, undetermined):
    """The budget; where 16 bits were only assumed and don't fit, that of the most bits which this GPU computes in."""
    gpu = _gpu(report, undetermined)

    def attempt(quantization=None):
        model = dict(arch, quantization=quantization) if isinstance(quantization, dict) else arch
        named = {"quantization": quantization} if isinstance(quantization, str) else {}

        def budget_of(facts):
            return budget(model, facts, {**settings, **named}, version, measured)

        return _of_gpus(gpu, undetermined, budget_of)

    result, facts = attempt()
    if _SIXTEEN_BITS not in undetermined or (result["available_kv"] or 0) >= 0 or "kv_available" in measured:
        return result
    undetermined.remove(_SIXTEEN_BITS)
    for quantization, bits in _guesses(own, facts):
        result, facts = attempt(quantization)
        if result["available_kv"] >= 0 or bits == _LEAST:
            undetermined.append(
                f"quantization isn't given and 16 bits don't fit this GPU: {bits} are assumed for its weights"
            )
            break
    return result


def _guesses(own, facts):
    """[(quantization, its bits in words)] that may have run where 16 bits don't fit, the likeliest first."""
    capability = facts.get("compute_capability") or (0, 0)
    guesses = []
    if capability >= _FP8_CAPABILITY:
        guesses.append(("fp8", "8 bits"))
        if own and (capability >= _FP4_CAPABILITY or not re.search("fp4|mixed", str(own).lower())):
            # Not what it says of the KV cache, which is another thing to choose.
            weights_only = {key: value for key, value in own.items() if not key.startswith("kv_cache")}
            guesses.insert(0, (weights_only, "the config's own"))
    return [*guesses, ("int4", _LEAST)]


def _nothing(name, *reasons):
    return {"id": name, **dict.fromkeys(OUTPUT), "undetermined": list(reasons)}


def _output(report, result, undetermined):
    parts = {segment["name"]: segment["bytes"] for segment in result["segments"]}
    stage = result["ranks"]["stages"][0]
    kv = result["kv"] or {}
    shown_first = result["ranks"]["shown"] == 0
    available = stage["kv_available"]
    undetermined = undetermined + [text for text in result["assumptions"] if text not in undetermined]
    undetermined += [text for text in result["problems"] if text not in undetermined]
    if available is None:
        undetermined.append("available_kv_gib: the GPU's total memory isn't known")
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
    for key in ("config_id", "model"):
        name = report.get(key)
        if isinstance(name, str) and name:
            path = _config_file(name, (configs,) if configs else _CONFIGS)
            if path:
                return json.loads(path.read_text(encoding="utf-8")), []
    arch = report.get("arch")
    for known in filter(None, map(known_model, _spellings(report.get("config_id"), report.get("model")))):
        if _same_layers(known["config"], arch):
            return known["config"], [
                f"no config.json: that of {known['name']} is taken",
                *known["assumptions"],
            ]
    if isinstance(arch, dict) and arch.get("num_hidden_layers"):
        listed = listed_arch.config(arch, report.get("config_id"), report.get("model"))
        return listed, [_LISTED]
    return None, [UNKNOWN_MODEL]


def _spellings(*names):
    """What may be a repository's name in the words that a report uses for a model: ``x-8B NVFP4 (by y)``."""
    for name in names:
        if isinstance(name, str) and name:
            bare = re.sub(r"\(.*?\)", "", name).strip()
            yield from dict.fromkeys((name, re.sub(r"\s+", "-", bare), bare.split(" ")[0]))


def _same_layers(config, arch):
    """Whether a config has the layers and the width that the report lists, where it lists them."""
    if not isinstance(arch, dict):
        return True
    mine = architecture(config)
    layers = sum(run["count"] for run in mine["layers"])
    return arch.get("num_hidden_layers") in (None, layers) and arch.get("hidden_size") in (
        None,
        mine["hidden_size"],
    )


def _config_file(name, folders):
    wanted = (name.strip().replace("/", "__") + ".json").lower()
    for folder in folders:
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name.lower() == wanted:
                    return path
    return None


def version_of(report, model_type=None, undetermined=None):
    """The release that the report means, or None; ``undetermined`` takes what was assumed."""
    version = fields.version(report.get("vllm_version"))
    if version is not None or engine_of(report) == "V0":
        return version
    version = fields.first_release(model_type)
    if version is not None and undetermined is not None:
        undetermined.append(
            f"vLLM's version isn't known: {version} is taken, of the months in which {model_type} models came"
        )
    return version


def engine_of(report):
    """V0, V1 or None."""
    return fields.engine(report.get("engine"), report.get("vllm_version"))


def _base(name):
    return str(name or "").rsplit("/", 1)[-1].lower()


def _is_another(report):
    """Whether the config is another checkpoint's than the one that ran."""
    model = report.get("model")
    if not isinstance(model, str) or not model or not report.get("config_id"):
        return False
    # "Reasoning" and "Thinking" variants are quantized as the instruct model is.
    return _base(report["config_id"]) not in model.lower() and "Thinking" not in model


def _read_quantization(report, arch, settings, undetermined):
    """``arch`` with the quantization of the checkpoint that ran; a name that decides goes into ``settings``."""
    own, model = arch["quantization"], report.get("model")
    if fields.is_sixteen_bits(report.get("quantization")):
        return dict(arch, quantization=None)
    another = _is_another(report)
    name = fields.quantization(report.get("quantization"), model)
    if name is None and _base(report.get("config_id")) != _base(model):
        name = fields.named_quantization(model)
    if name is None:
        if (own and another) or _LISTED in undetermined:
            undetermined.append(_SIXTEEN_BITS)
            return dict(arch, quantization=None)
        return arch
    if own and _says_the_same(name, own, arch, another):
        # The config says more than the name.
        return arch
    settings["quantization"] = name
    # A checkpoint of another maker: no fp8 KV cache that this config would ask for.
    return dict(arch, quantization=None)


def _says_the_same(name, own, arch, another):
    """Whether a name may mean the config's own quantization: by its kind, and by its bits where it states them."""
    method = str(own.get("quant_method") or own.get("quant_algo") or "")
    kin = family(name) == family(method)
    if not re.search(r"\d", name):
        return kin
    return (kin or not another) and _bits(own, arch) == _bits(name, arch)


def _bits(quantization, arch):
    """Bits of the least of what a quantization (a name or a config) stores."""
    plan = quantization_plan(quantization, dict(arch, quantization=None), None, [])
    schemes = [
        *plan.roles.values(),
        *(scheme for _targets, scheme in plan.groups),
        *(plan.named or {}).values(),
    ]
    return min((scheme.bits for scheme in schemes if scheme.bits), default=16)


def _settings(report, arch, undetermined):
    block = fields.count(report.get("block_size"))
    eager = report.get("enforce_eager")
    settings: dict[str, Any] = {
        "engine": engine_of(report),
        "model": report.get("model"),
        "tensor_parallel_size": fields.count(report.get("tp")),
        "pipeline_parallel_size": fields.count(report.get("pp")),
        "data_parallel_size": fields.count(report.get("dp")),
        "decode_context_parallel_size": fields.count(report.get("dcp")),
        "dtype": fields.words(report.get("dtype")) or None,
        "kv_cache_dtype": fields.words(report.get("kv_cache_dtype")) or None,
        "gpu_memory_utilization": fields.number(report.get("gpu_memory_utilization")),
        "max_model_len": fields.count(report.get("max_model_len")),
        "max_num_seqs": fields.count(report.get("max_num_seqs")),
        "max_num_batched_tokens": fields.count(report.get("max_num_batched_tokens")),
        "enforce_eager": fields.words(eager) == "true" if isinstance(eager, str) else eager,
        "block_size": block if block and block <= _LARGEST_FLAG else None,
        **_draft(report, arch, undetermined),
    }
    for name in ("tensor_parallel_size", "max_model_len"):
        if settings[name] is None:
            assumed = "1" if name != "max_model_len" else f"the model's own {arch['max_position_embeddings']}"
            undetermined.append(f"{name} isn't given: {assumed} is assumed")
    for name in ("pp", "dp", "dcp", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"):
        value = report.get(name)
        if value is not None and fields.number(value) is None:
            undetermined.append(f"{name} is no number: {str(value)[:40]!r} isn't read")
    return {name: value for name, value in settings.items() if value is not None}


def _draft(report, arch, undetermined):
    """The settings of speculative decoding."""
    spec = fields.speculation(report.get("speculative"))
    if spec is None:
        return {}
    if spec["tokens"] is None:
        undetermined.append("the number of speculative tokens isn't given: 2 are assumed")
    settings = {"speculative_tokens": spec["tokens"] or 2}
    if spec["kind"] == "mtp" and arch["draft"]:
        settings["draft_layers"] = 1
    elif spec["kind"] == "eagle":
        undetermined.append("the Eagle head isn't described: one layer as the model's own is counted")
        settings["draft"] = _one_layer(arch)
    elif spec["kind"] != "none":
        undetermined.append("a draft model of its own runs, which isn't described: it isn't counted")
    return settings


def _one_layer(arch):
    """A model of one dense layer with full attention; its embedding and head are the target's."""
    runs = arch["layers"]
    full = [
        run["attention"] for run in runs if run["attention"] and run["attention"]["kind"] in ("full", "mla")
    ]
    dense = [run["mlp"] for run in runs if run["mlp"] and run["mlp"]["kind"] == "dense"]
    layer = {"count": 1, "attention": full[-1] if full else None, "mlp": dense[-1] if dense else None}
    return dict(
        arch, layers=[layer], vocab_size=0, encoders=[], draft=None, rope=[], embeddings_per_layer=None
    )


def _total(report):
    """Total memory in GiB that the report itself states, or None."""
    total = fields.number(report.get("total_gib")) or fields.number(report.get("gpu_total_gib"))
    return total if total and total > 0 else None


def requested_gib(report):
    """Total memory x utilization in GiB as the report or the GPU's name gives them (of several the least), or None."""
    total = _gpu(report, [])[0]["total_bytes"]
    if total is None:
        return None
    utilization = fields.number(report.get("gpu_memory_utilization"))
    if utilization is None:
        utilization = default_of("gpu_memory_utilization", version_of(report), engine_of(report))
    return total / GIB * (utilization or (0.9 if engine_of(report) == "V0" else 0.92))


def total_error_gib(report):
    """How far total memory x utilization may be off: 0 where the report states the total."""
    product = gpus.gpu(report.get("gpu")) if isinstance(report.get("gpu"), str) else None
    if _total(report) is not None or product is None:
        return 0.0
    return product["visible_error_gib"] * (fields.number(report.get("gpu_memory_utilization")) or 1)


def _gpu(report, undetermined):
    """The GPUs that the report may mean, as ``budget`` takes them, smallest first."""
    name = report.get("gpu") if isinstance(report.get("gpu"), str) else None
    total = _total(report)
    size = None if total is None else int(total * GIB)
    product = gpus.gpu(name, size) if name else None
    if product is None and name and size is not None:
        # Not that product's usual total, but the name says what the GPU can do.
        same = [gpus.gpu(other) for other in gpus.candidates(name, nearest=False)]
        product = same[-1] if same else None
    if size is None and name:
        written = fields.memory_in_name(name)
        if product is not None and written and abs(written - product["visible_gib"]) > _OTHER_SIZE * written:
            # A laptop's or a slice's card goes by its sister's name.
            undetermined.append(
                f"the memory in '{name}' isn't that of {product['name']}: {written:.1f} GiB are assumed"
            )
            return [_facts(report, product, int(written * GIB))]
        if product is not None:
            undetermined.append(
                f"total memory isn't given: {product['visible_gib']} GiB of {product['name']}"
            )
            return [_facts(report, product, None)]
        names = gpus.candidates(name, nearest=False)
        products = [item for item in map(gpus.gpu, names) if item is not None]
        if written is not None:
            undetermined.append(
                f"the GPU '{name}' isn't known: {written:.1f} GiB, from its name, are assumed"
            )
            return [_facts(report, products[-1] if products else None, int(written * GIB))]
        if " or " in name and products and products[0]["visible_gib"] < 0.95 * products[-1]["visible_gib"]:
            undetermined.append(f"'{name}' names GPUs of several sizes")
        elif products:
            return [_facts(report, item, None) for item in products]
        else:
            undetermined.append(f"the GPU '{name}' isn't known")
    return [_facts(report, product, size)]


def _of_gpus(options, undetermined, sized):
    """(``sized``, facts) of the smallest of the GPUs that holds the weights, else of the largest."""
    for facts in options:
        result = sized(facts)
        if (result["available_kv"] or 0) > 0:
            break
    if len(options) > 1:
        names = ", ".join(item["product"] for item in options[:4])
        text = f"'{facts['name']}' may be {names}: {facts['product']} is assumed"
        undetermined[:] = [item for item in undetermined if " may be " not in item] + [text]
    return result, facts


def _facts(report, product, size):
    free = fields.number(report.get("free_gib"))
    name = report.get("gpu")
    facts: dict[str, Any] = {"name": name if isinstance(name, str) else None, "total_bytes": size}
    facts["free_bytes"] = None if free is None or free < 0 else int(free * GIB)
    if product is not None:
        facts.update({key: product[key] for key in ("compute_capability", "nvlink", "unified")})
        facts["product"] = product["name"]
        facts["total_bytes"] = size or gpus.visible_bytes(product)
    return facts


def _measured(report, version, settings):
    """What the report's log measured; graphs only where that version subtracts them."""
    measured = {}
    for field, name in _MEASURED.items():
        value = fields.number(report.get(field))
        if value is None:
            continue
        if name.startswith("graph") and not graphs_subtracted(version, settings.get("engine", "V1")):
            continue
        measured[name] = int(value * GIB)
    return measured


if __name__ == "__main__":
    main()
