# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model is made of, from its Hugging Face ``config.json``.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..engine.versions import in_range
from .attention_kinds import attention_of_layers
from .config_fields import first, integer, mapping, note, positive
from .encoder_towers import encoder_towers
from .mlp_kinds import mlp_of_layers

# Sections that hold the language model of a model with several towers, outermost first.
_TEXT_SECTIONS = (
    *("thinker_config", "text_config", "llm_config", "language_config", "language_model"),
    "transformer_layer_config",
)
_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4, "auto": 2}

# Families whose embedding is tied unless the config says otherwise (their classes' default).
_TIED_BY_DEFAULT = (
    "gemma",
    "cohere",
    "gpt2",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "granitemoeshared",
    "t5",
    "whisper",
)


# Families that vLLM has classes for, by the beginning of model_type; another one is read by its fields all the same.
_FAMILIES = """
afmoe aimv2 apertus aquila arcee arctic aria aya bagel baichuan bailing bamba bart bee bert bge blip bloom chameleon
chatglm clip cogagent cogvlm codestral cohere colpali colqwen cwm dbrx deci deepseek dots donut eagle ernie exaone
fairseq falcon florence flex_olmo fuyu gemma glm gpt granite grok gte h2ovl hcx hunyuan hyperclovax idefics intern
iquest jais jamba jina joyai keye kimi kormo lfm ling llama llava longcat mamba mbart mimo minicpm minimax ministral
mistral mixtral mllama modernbert molmo mono motif mpt musicflamingo nemotron new nomic nvlm olmo opencua openpangu
opt orion ouro ovis paligemma pangu persimmon phi pixtral plamo qwen radio refinedweb roberta rw sarvam seed
siglip skywork smol solar speculators stablelm starcoder step tarsier tele terratorch t5 ultravox voxtral whisper
xlm xverse yi zamba
"""
_KNOWN = tuple(_FAMILIES.split())

# Families that learn their positions instead of rotating by them.
_LEARNED_POSITIONS = ("bert", "roberta", "xlm-roberta", "gpt2", "gpt_bigcode", "opt", "whisper")


class ConfigError(ValueError):
    """The config describes no model that could be sized; the text says what is missing."""


def architecture(config):
    """A plain description of the model of ``config`` (the dict of a config.json).

    Returns::

        {model_type, architectures, hidden_size, vocab_size,
         dtype: what vLLM runs unless it is told: float32 is cast down; stored_dtype: the checkpoint's,
         max_position_embeddings: the longest context as vLLM derives it, rotary scaling counted,
         trained_length: of models with LongRoPE the length below it, or None,
         tied: whether lm_head is the embedding,
         layers: [{count, attention, mlp}],    # runs of equal layers, in order
         encoders: [{kind, parameters, layers, hidden_size, intermediate_size, projector, split, heads}],
         draft: {kind, layers, attention, mlp} or None,       # in-checkpoint MTP modules
         head: {kind: eagle|eagle3, inputs: width, vocabulary} or None,   # of a draft head: what it is fed with
         embeddings_per_layer: width or None,                 # Gemma 3n and 4
         positions: rows of the table of learned positions, or None,
         rope: [{positions, width}],                          # tables of cosines, one per kind of layer
         pooling: True for models without lm_head,
         quantization: quantization_config or None,
         assumptions: [sentence]}

    attention: ``None`` or ``{kind, ...}``. kind and its further keys:

    - full, sliding, chunked, encoder, cross: heads, kv_heads, head_size, head_size_v; sliding: window; chunked:
      chunk; cross: tokens (of the encoder); gate (queries carry an output gate), bias (of qkv, of the output),
      norms (per-head norms), k_is_v (no own value projection), kv_from (layers back whose KV it uses).
    - mla: heads, q_lora_rank, kv_lora_rank, qk_nope, qk_rope, v_head, indexer {heads, head_size, own} or None.
    - compressed: DeepSeek-V4: as mla with ratio (0: window only), window, head_size, indexer.
    - mamba1, mamba2, gated_delta_net, kda, lightning, short_conv: the sizes of their state and projections;
      state_dtype (bytes) where the config fixes it.
    - parallel: a list ``branches`` of the above that run side by side (Falcon-H1).
    - linear: one matrix in place of attention; keeps nothing.

    mlp: ``None`` or ``{kind: dense, width, gated, bias}`` or ``{kind: moe, experts, width, active, gated, bias,
    shared: width, dense: width, latent: width}`` (dense: an MLP beside the experts, Gemma 4; latent: the routed experts
    work in that width, between two projections, Nemotron 3). Sizes in elements; nothing is rounded.

    A family that isn't known is read by its fields as a GQA transformer; each such step is a sentence in
    ``assumptions``. Raises ConfigError when there is no layer count or no hidden size, or when one of them, or the
    number of heads, is no size that a model has.
    """
    if not isinstance(config, dict):
        raise ConfigError("a model config is a JSON object")
    assumptions: list[str] = []
    text = _text_config(config)
    architectures = list(config.get("architectures") or text.get("architectures") or [])
    model_type = str(text.get("model_type") or config.get("model_type") or "").lower()
    outer_type = str(config.get("model_type") or model_type).lower()
    layers = _layer_count(text)
    if not layers or layers > _MOST_LAYERS:
        raise _size_error(text, "number of layers", _LAYER_COUNTS, _MOST_LAYERS)
    hidden = positive(text, *_HIDDEN_SIZES)
    if not hidden or hidden > _WIDEST:
        raise _size_error(text, "hidden size", _HIDDEN_SIZES, _WIDEST)
    _check_heads(text, model_type)
    vocabulary = positive(text, "vocab_size", "padded_vocab_size") or positive(config, "vocab_size")
    if not vocabulary:
        vocabulary = 0
        note(assumptions, "vocab_size isn't in the config: embeddings aren't counted")
    if not model_type:
        note(
            assumptions, "model_type isn't in the config: read as a transformer with grouped-query attention"
        )
    elif not (model_type.startswith(_KNOWN) or outer_type.startswith(_KNOWN)):
        note(
            assumptions,
            f"model_type {_quoted(model_type)} isn't known: read as a transformer with grouped-query attention, as far as"
            " its fields don't say otherwise",
        )
    for key in ("num_key_value_heads", "head_dim", "vocab_size"):
        if text.get(key) is not None and not isinstance(text[key], list) and not positive(text, key):
            note(assumptions, f"{key} is {_quoted(text[key])}, which is no size: it counts as not set")
    attentions = attention_of_layers(text, model_type, layers, hidden, assumptions)
    mlps = mlp_of_layers(text, model_type, layers, hidden, assumptions)
    stored = _dtype(config, text)
    arch = {
        "model_type": model_type,
        "outer_type": outer_type,
        "architectures": architectures,
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "max_position_embeddings": _longest(text, config, model_type, assumptions),
        "trained_length": _trained_length(text),
        "dtype": _running_dtype(stored, model_type),
        "stored_dtype": stored,
        "tied": _tied(config, text, model_type),
        "layers": _runs(attentions, mlps),
        "encoders": encoder_towers(
            mapping(config, "thinker_config") or config, outer_type, architectures, hidden, assumptions
        ),
        "draft": _draft(text, model_type, attentions, mlps),
        "head": _head(config, text, architectures, layers, hidden, vocabulary),
        "embeddings_per_layer": integer(text, "hidden_size_per_layer_input") or None,
        "positions": _shortest(text) if model_type in _LEARNED_POSITIONS else None,
        "rope": _rope_tables(text, outer_type, attentions),
        "pooling": _is_pooling(architectures),
        "quantization": mapping(config, "quantization_config")
        or mapping(text, "quantization_config")
        or None,
        "assumptions": assumptions,
    }
    return arch


def layer_list(arch):
    """The layers of ``arch``, one entry per layer: ``[{attention, mlp}]``."""
    return [
        {"attention": run["attention"], "mlp": run["mlp"]}
        for run in arch["layers"]
        for _index in range(run["count"])
    ]


def dtype_bytes(name):
    """Bytes of one element of a torch dtype's name; ``auto`` and None count as 16 bits."""
    return _DTYPES.get(str(name or "auto").replace("torch.", ""), 2)


# Beyond these a config is broken: no model has a tenth of it.
_MOST_LAYERS = 10_000
_WIDEST = 1 << 20
_MOST_HEADS = 1 << 16
_HIDDEN_SIZES = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
# Of an encoder and a decoder num_hidden_layers counts the first: Whisper's turbo has 32 and 4.
_LAYER_COUNTS = ("decoder_layers", "num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADLESS = ("mamba", "mamba2", "falcon_mamba")


def _size_error(text, what, keys, largest):
    """The ConfigError for a size that isn't there, or that no model has."""
    bad = next((key for key in keys if text.get(key) is not None), None)
    if bad is None:
        return ConfigError(f"the config names no {what} ({next(key for key in keys if key in _COMMON)})")
    return ConfigError(f"{bad} is {_quoted(text[bad])}; the {what} is a whole number from 1 to {largest}")


# The names of these sizes in most configs.
_COMMON = ("num_hidden_layers", "hidden_size", "num_attention_heads")


def _check_heads(text, model_type):
    heads = text.get("num_attention_heads")
    if heads is None or isinstance(heads, list) or model_type in _HEADLESS:
        return
    count = positive(text, "num_attention_heads")
    if not count or count > _MOST_HEADS:
        raise _size_error(text, "number of attention heads", ("num_attention_heads",), _MOST_HEADS)


def _quoted(value):
    """A value of a config as JSON spells it, cut to what a sentence bears."""
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "..."


_LONGEST_SHOWN = 40


def _text_config(config):
    for name in _TEXT_SECTIONS:
        section = config.get(name)
        if isinstance(section, dict) and section:
            inner = _text_config(section)
            if _layer_count(inner):
                merged = dict(inner)
                # A section may leave to the outer config what both share.
                for key in ("vocab_size", "torch_dtype", "dtype"):
                    if merged.get(key) is None and config.get(key) is not None:
                        merged[key] = config[key]
                return merged
    return _flat(config)


def _flat(config):
    """``config`` with the nested sections of DBRX and MPT beside its own fields."""
    nested = {
        key: value for part in ("ffn_config", "attn_config") for key, value in mapping(config, part).items()
    }
    return {**nested, **config} if nested else config


def _layer_count(text):
    count = positive(text, *_LAYER_COUNTS)
    if count:
        return count
    for key in ("layers_block_type", "layer_types", "hybrid_override_pattern"):
        if isinstance(text.get(key), (list, str)) and text[key]:
            return len(text[key])
    return None


# Where vLLM looks for the longest context (its _get_and_verify_max_len); the smallest counts.
_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
# Families whose config class has none of these fields: vLLM takes 2048 then.
_NO_LENGTH = ("mamba", "mamba2", "falcon_mamba", "bloom")
_LENGTH_OF_NONE = 2048
# Rotary scaling that max_position_embeddings already counts.
_COUNTED = ("su", "longrope", "llama3")


def default_length(arch, version=None):
    """The ``max_model_len`` that vLLM takes when none is given, or None where the config names no length.

    The longest context; for LongRoPE from 0.11.1 on the trained length (vLLM pull request 27431). Gemma 2 was cut
    to its window while vLLM had no window layers among others (vLLM issue 6220).
    """
    if arch["model_type"] == "gemma2" and in_range(version, "0.5.1", "0.6.4"):
        windows = [
            run["attention"]["window"] for run in arch["layers"] if run["attention"]["kind"] == "sliding"
        ]
        return min(windows, default=arch["max_position_embeddings"])
    if arch["trained_length"] and in_range(version, "0.11.1") is not False:
        return arch["trained_length"]
    return arch["max_position_embeddings"]


def _longest(text, config, model_type, assumptions):
    """The longest context: the config's smallest length, times the factor of a rotary scaling that isn't in it."""
    # Cohere's models name a larger one apart, which wins.
    longest = positive(text, "model_max_length") or _shortest(text) or _shortest(config)
    if not longest and model_type in _NO_LENGTH:
        note(assumptions, f"the config names no longest context: vLLM takes {_LENGTH_OF_NONE}")
        longest = _LENGTH_OF_NONE
    if not longest:
        note(
            assumptions, "the config names no longest context (max_position_embeddings): give --max-model-len"
        )
    if not longest or "gemma3" in model_type:
        return longest
    factor = 1.0
    for scaling in _rotary_scalings(text):
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if kind in _COUNTED:
            continue
        given = scaling.get("factor")
        if isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0:
            factor = given
        if kind == "yarn":
            longest = positive(scaling, "original_max_position_embeddings") or longest
    return int(longest * factor)


def _shortest(section):
    return min((length for length in (positive(section, key) for key in _LENGTHS) if length), default=None)


def _rotary_scalings(text):
    """The objects that describe a rotary scaling: one, or one for each kind of layer."""
    scaling = mapping(text, "rope_scaling") or mapping(text, "rope_parameters")
    nested = [mapping(scaling, key) for key in scaling if mapping(scaling, key)]
    return nested or [scaling]


def _trained_length(text):
    kinds = [scaling.get("rope_type") or scaling.get("type") for scaling in _rotary_scalings(text)]
    return positive(text, "original_max_position_embeddings") if {"longrope", "su"} & {*kinds} else None


def _dtype(config, text):
    for section in (text, config):
        name = first(section, "dtype", "torch_dtype")
        if isinstance(name, str) and name:
            return name.replace("torch.", "")
    return "bfloat16"


def _running_dtype(stored, model_type):
    """What vLLM runs a checkpoint of dtype ``stored`` in under ``--dtype auto`` (its _resolve_auto_dtype).

    float32 is cast down to the GPU's 16 bits: bfloat16 where it has that, and where the model can't be run in float16.
    """
    if dtype_bytes(stored) <= dtype_bytes("auto"):
        return stored
    return "bfloat16" if model_type.startswith(_NOT_FLOAT16) else "float16"


_NOT_FLOAT16 = ("gemma2", "gemma3", "plamo2", "glm4")


def _tied(config, text, model_type):
    for section in (text, config):
        if section.get("tie_word_embeddings") is not None:
            return bool(section["tie_word_embeddings"])
    return model_type.startswith(_TIED_BY_DEFAULT)


def _is_pooling(architectures):
    names = " ".join(architectures)
    return bool(names) and not any(
        word in names
        for word in (
            *("CausalLM", "ConditionalGeneration", "LMHead", "ForGeneration", "VL", "Chat"),
            *("MiniCPMV", "MiniCPMO", "OmniModel"),
        )
    )


def _runs(attentions, mlps):
    runs: list[dict] = []
    for attention, mlp in zip(attentions, mlps):
        if runs and runs[-1]["attention"] == attention and runs[-1]["mlp"] == mlp:
            runs[-1]["count"] += 1
        else:
            runs.append({"count": 1, "attention": attention, "mlp": mlp})
    return runs


def _draft(text, model_type, attentions, mlps):
    """The multi-token-prediction modules of the checkpoint: each is one more layer of the full-attention kind."""
    count = integer(
        text, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"
    )
    if not count:
        return None
    kinds = ("full", "mla", "compressed")
    last = max((i for i, item in enumerate(attentions) if item and item["kind"] in kinds), default=None)
    if last is None:
        return None
    attention = attentions[last]
    if attention["kind"] == "compressed":
        attention = dict(attention, ratio=0, indexer=None)
    return {"kind": "mtp", "layers": count, "attention": attention, "mlp": mlps[-1] or mlps[last]}


# Hidden states of so many of the target's layers feed a draft head, side by side.
_HEAD_INPUTS = {"eagle": 2, "eagle3": 3}


def _head(config, text, architectures, layers, hidden, vocabulary):
    """What a draft head (EAGLE) has beside its layers, or None for a model of its own."""
    name = f"{' '.join(architectures)} {config.get('speculators_model_type') or ''}".lower()
    drafted = positive(config, "draft_vocab_size") or positive(text, "draft_vocab_size")
    if "eagle3" in name or drafted:
        kind, width = "eagle3", positive(text, "target_hidden_size") or hidden
    elif "eagle" in name:
        kind, width = "eagle", hidden
    else:
        return None
    return {"kind": kind, "inputs": _HEAD_INPUTS[kind] * width, "vocabulary": drafted or vocabulary}


def _rope_tables(text, outer_type, attentions):
    """Tables of cosines and sines that vLLM keeps on every rank: ``[{positions, width}]``."""
    positions = _rope_positions(text, outer_type)
    if not positions:
        return []
    scaling = mapping(text, "rope_scaling") or mapping(text, "rope_parameters")
    if not scaling and outer_type == "gemma3":
        # Every Gemma 3 with a vision tower stretches its global layers so.
        scaling = {"rope_type": "linear", "factor": 8}
    fraction = first(text, "partial_rotary_factor", "rotary_pct", "rope_pct")
    if fraction is None:
        fraction = scaling.get("partial_rotary_factor")
    if fraction is None:
        fraction = 0.25 if outer_type.startswith(("qwen3_5", "qwen3_next")) else 1.0
    tables = []
    for item in attentions:
        if not item or item["kind"] not in _ROTARY:
            continue
        width = (
            item["qk_rope"] if item["kind"] in ("mla", "compressed") else int(item["head_size"] * fraction)
        )
        two = outer_type.startswith(_TWO_ROPES)
        # Where window layers have a rotary base of their own, only the global ones are scaled.
        scaled = positions if two and item["kind"] == "sliding" else _scaled(positions, scaling)
        table = (scaled, width, item["kind"] if two else "")
        if width and table not in tables:
            tables.append(table)
    return [{"positions": rows, "width": width} for rows, width, _kind in tables]


def _rope_positions(text, outer_type):
    positions = positive(text, "max_position_embeddings", "max_seq_len", "n_positions", "seq_length")
    if not positions and outer_type.startswith(("qwen3_5", "qwen3_next")):
        positions = 262144
    # Multi-dimensional positions (images, video) keep four times as many.
    scaling = mapping(text, "rope_scaling") or mapping(text, "rope_parameters")
    if positions and (outer_type in _MROPE or "mrope_section" in scaling):
        positions *= 4
    return positions


def _scaled(positions, scaling):
    """Rows of a table under a kind of scaling: the scaled context, not the trained one."""
    kind = scaling.get("rope_type") or scaling.get("type")
    factor = scaling.get("factor")
    original = scaling.get("original_max_position_embeddings")
    if kind in ("linear", "dynamic") and isinstance(factor, (int, float)):
        return int(positions * factor)
    if kind in ("yarn", "deepseek_yarn") and isinstance(factor, (int, float)):
        return max(positions, int((original or positions) * factor)) if original else positions
    if kind in ("longrope", "su"):
        return positions + (original or 0)
    return positions


_ROTARY = ("full", "sliding", "chunked", "mla", "compressed")
_MROPE = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen2_5_omni",
    "glm4v",
)
# Families with one rotary base for window layers and another for global ones.
_TWO_ROPES = ("gemma3", "gemma4", "modernbert")
