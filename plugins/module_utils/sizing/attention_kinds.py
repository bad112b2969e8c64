# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attention (or what stands in its place) of each layer of a model, from its config.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .config_fields import first, integer, note, of_layer, positive, sequence
from .state_kinds import is_linear_hybrid, state_layer

# Families by the name in model_type (prefix match), for facts that their classes hold, not their configs.
_QKV_BIAS = (
    "qwen2",
    "qwen1",
    "qwen",
    "chatglm",
    "glm4_moe",
    "gpt2",
    "gptj",
    "gpt_neox",
    "opt",
    "bloom",
    "starcoder2",
)
_OUTPUT_BIAS = ("gpt2", "gpt_neox", "opt", "bloom", "gpt_oss", "starcoder2", "phi")
_HEAD_NORMS = (
    "qwen3",
    "gemma3",
    "gemma4",
    "glm4_moe",
    "olmo2",
    "olmo3",
    "minimax_m2",
    "hunyuan_v1",
    "exaone4",
)
_GATED_QUERY = ("qwen3_5", "qwen3_next")
# Families whose pattern of window layers isn't in older configs: model_type -> every n-th layer is global.
_WINDOW_PERIOD = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gemma3n": 5, "gemma3n_text": 5, "cohere2": 4}
_WINDOW_NAMES = ("sliding_attention", "sliding_window", "local", "local_attention", "swa")
_FULL_NAMES = ("full_attention", "attention", "global", "full", "deepseek_sparse_attention", "hybrid", "nope")
_ENCODER_ONLY = ("bert", "roberta", "xlm-roberta", "nomic_bert", "modernbert", "new", "gte")
# Llama 4: layers without rotary positions attend to everything.
_CHUNKED = ("llama4", "llama4_text")


def attention_of_layers(text, model_type, layers, hidden, assumptions):
    """One attention dict (see ``architecture``), or None, for each of the ``layers`` layers."""
    types = _layer_types(text, model_type, layers, assumptions)
    shared = integer(text, "num_kv_shared_layers") or 0
    result: list[dict | None] = []
    for index in range(layers):
        item = _attention(text, model_type, index, types[index], hidden, assumptions)
        if item and shared and index >= layers - shared and item["kind"] in ("full", "sliding"):
            back = _last_of_kind(result, item["kind"], layers - shared, index)
            if back is not None:
                item["kv_from"] = back
        result.append(item)
    return result


def _last_of_kind(done, kind, end, index):
    """How many layers back the layer lies whose keys and values a sharing layer uses."""
    for other in range(min(end, len(done)) - 1, -1, -1):
        if done[other] and done[other]["kind"] == kind:
            return index - other
    return None


def _layer_types(text, model_type, layers, assumptions):
    """A kind for each layer: full, sliding, chunked, compressed, none, or a kind of ``state_kinds``."""
    given = _given_types(text, layers)
    if given is None:
        given = is_linear_hybrid(text, model_type, layers)
    window = integer(text, "sliding_window", "sliding_window_size", "window_size")
    if text.get("use_sliding_window") is False:
        window = None
    if given is not None:
        return [_kind_of(name, window, assumptions) for name in given]
    if sequence(text, "compress_ratios"):
        return ["compressed"] * layers
    if model_type.startswith(_CHUNKED):
        return _llama4_types(text, layers)
    if model_type in _ENCODER_ONLY or str(text.get("is_decoder")) == "encoder":
        return ["encoder"] * layers
    if not window:
        return ["full"] * layers
    period = integer(text, "sliding_window_pattern", "global_attn_every_n_layers") or _WINDOW_PERIOD.get(
        model_type
    )
    if model_type == "gpt_oss":
        period = 2
    if period and period > 1:
        return ["full" if (index + 1) % period == 0 else "sliding" for index in range(layers)]
    if text.get("use_sliding_window") and integer(text, "max_window_layers") is not None:
        return [
            "sliding" if index >= integer(text, "max_window_layers") else "full" for index in range(layers)
        ]
    return ["sliding"] * layers


def _given_types(text, layers):
    names = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(names, list) and len(names) >= layers:
        return [str(name) for name in names[:layers]]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) >= layers:
        return [
            {"M": "mamba2", "*": "full", "E": "none", "-": "none"}.get(letter, "none") for letter in pattern
        ]
    return None


def _kind_of(name, window, assumptions):
    if name in _WINDOW_NAMES:
        return "sliding" if window else "full"
    if name in _FULL_NAMES:
        return "full"
    if name == "chunked_attention":
        return "chunked"
    if name in (
        "linear_attention",
        "mamba",
        "mamba1",
        "mamba2",
        "conv",
        "short_conv",
        "recurrent",
        "kda",
        "lightning",
    ):
        return {"conv": "short_conv"}.get(name, name)
    if name in ("none", "moe", "mlp"):
        return "none"
    if name.startswith(("compressed", "heavily_compressed")):
        return "compressed"
    note(assumptions, f"layer type {name!r} isn't known: counted as full attention")
    return "full"


def _llama4_types(text, layers):
    no_rope = text.get("no_rope_layers")
    if not isinstance(no_rope, list) or len(no_rope) < layers:
        # vLLM's and Transformers' default: every fourth layer is without rotary positions, hence global.
        no_rope = [int((index + 1) % 4 != 0) for index in range(layers)]
    chunked = bool(positive(text, "attention_chunk_size"))
    return ["chunked" if chunked and no_rope[index] else "full" for index in range(layers)]


def _attention(text, model_type, index, kind, hidden, assumptions):
    if kind == "none":
        return None
    block = _block_config(text, index)
    if block is not None and block.get("no_op"):
        return None
    if block is not None and block.get("replace_with_linear"):
        return {"kind": "linear"}
    if kind in _STATES:
        return state_layer(text, model_type, kind, hidden, assumptions)
    if kind == "compressed":
        return _compressed(text, index)
    if model_type == "falcon_h1":
        branches = [
            _grouped(text, model_type, index, "full", hidden, block, assumptions),
            state_layer(text, model_type, "mamba2", hidden, assumptions),
        ]
        return {"kind": "parallel", "branches": branches}
    if positive(text, "kv_lora_rank") and positive(text, "qk_rope_head_dim"):
        return _latent(text, index)
    return _grouped(text, model_type, index, kind, hidden, block, assumptions)


_STATES = ("linear_attention", "mamba", "mamba1", "mamba2", "short_conv", "recurrent", "kda", "lightning")


def _block_config(text, index):
    """The attention section of a layer of Nemotron's pruned models (block_configs), or None."""
    blocks = text.get("block_configs")
    if isinstance(blocks, list) and index < len(blocks) and isinstance(blocks[index], dict):
        return blocks[index].get("attention") or {}
    return None


def _latent(text, index):
    item = {
        "kind": "mla",
        "heads": positive(text, "num_attention_heads") or 1,
        "q_lora_rank": integer(text, "q_lora_rank") or 0,
        "kv_lora_rank": integer(text, "kv_lora_rank"),
        "qk_nope": integer(text, "qk_nope_head_dim") or 0,
        "qk_rope": integer(text, "qk_rope_head_dim"),
        "v_head": integer(text, "v_head_dim") or integer(text, "qk_nope_head_dim") or 0,
        "gate": bool(text.get("mla_use_output_gate")),
        "indexer": None,
    }
    if positive(text, "index_n_heads") and positive(text, "index_head_dim"):
        types = text.get("indexer_types")
        # GLM-5: a "shared" layer takes the tokens that the layer before it has chosen.
        own = not (isinstance(types, list) and index < len(types) and types[index] == "shared")
        item["indexer"] = {
            "heads": integer(text, "index_n_heads"),
            "head_size": integer(text, "index_head_dim"),
            "own": own,
        }
    return item


def _compressed(text, index):
    ratios = sequence(text, "compress_ratios")
    ratio = ratios[index] if index < len(ratios) and ratios[index] in (4, 128) else 0
    indexer = None
    if ratio == 4 and positive(text, "index_n_heads"):
        indexer = {
            "heads": integer(text, "index_n_heads"),
            "head_size": integer(text, "index_head_dim") or 128,
            "own": True,
        }
    return {
        "kind": "compressed",
        "heads": positive(text, "num_attention_heads") or 1,
        "head_size": positive(text, "head_dim") or 512,
        "qk_rope": integer(text, "qk_rope_head_dim") or 64,
        "q_lora_rank": integer(text, "q_lora_rank") or 0,
        "o_lora_rank": integer(text, "o_lora_rank") or 1024,
        "o_groups": integer(text, "o_groups") or 8,
        "ratio": ratio,
        "window": positive(text, "sliding_window") or 128,
        "indexer": indexer,
    }


def _grouped(text, model_type, index, kind, hidden, block, assumptions):
    heads = of_layer(text, index, "num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
    heads = heads or positive(text, "decoder_attention_heads", "num_attention_head")
    if not heads:
        heads = max(1, hidden // 128)
        note(assumptions, f"num_attention_heads isn't in the config: {heads} heads of 128 are assumed")
    kv_heads = _kv_heads(text, model_type, index, heads, block)
    size = (
        of_layer(text, index, "head_dim", "head_size", "attention_head_dim", "kv_channels", "d_kv")
        or hidden // heads
    )
    value = positive(text, "v_head_dim", "head_dim_v") or size
    k_is_v = False
    if kind == "full" and positive(text, "global_head_dim"):
        size = value = integer(text, "global_head_dim")
        if text.get("attention_k_eq_v"):
            k_is_v = True
            kv_heads = positive(text, "num_global_key_value_heads") or kv_heads
    item = {
        "kind": kind,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": size,
        "head_size_v": value,
        "gate": model_type.startswith(_GATED_QUERY) or bool(text.get("attn_output_gate")),
        "bias": _biases(text, model_type),
        "norms": model_type.startswith(_HEAD_NORMS)
        or bool(text.get("use_qk_norm") or text.get("qk_layernorm")),
        "k_is_v": k_is_v,
        "sinks": model_type == "gpt_oss",
    }
    if kind == "sliding":
        item["window"] = integer(text, "sliding_window", "sliding_window_size", "window_size")
    elif kind == "chunked":
        item["chunk"] = positive(text, "attention_chunk_size") or 8192
    if model_type == "whisper" or text.get("is_encoder_decoder"):
        item["cross"] = {"tokens": positive(text, "max_source_positions", "max_position_embeddings") or 1500}
    return item


def _kv_heads(text, model_type, index, heads, block):
    if block and positive(block, "n_heads_in_group"):
        return max(1, heads // block["n_heads_in_group"])
    if block and positive(block, "num_key_value_heads"):
        return block["num_key_value_heads"]
    if model_type.startswith("falcon") and model_type != "falcon_h1":
        if not text.get("new_decoder_architecture"):
            return 1 if text.get("multi_query", True) else heads
        return positive(text, "num_kv_heads") or heads
    given = of_layer(
        text, index, "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num"
    )
    if given:
        return given
    if text.get("multi_query"):
        return 1
    nested = first(text, "attn_config")
    if isinstance(nested, dict) and positive(nested, "kv_n_heads"):
        return nested["kv_n_heads"]
    return heads


def _biases(text, model_type):
    """[bias of q, k and v, bias of the output projection]."""
    qkv = first(text, "qkv_bias", "attention_bias", "use_qkv_bias", "add_qkv_bias", "use_bias", "bias")
    if qkv is None:
        qkv = model_type.startswith(_QKV_BIAS)
    if model_type.startswith(("qwen3", "internlm3")) and not text.get("attention_bias"):
        qkv = False
    output = model_type.startswith(_OUTPUT_BIAS) or bool(text.get("attention_out_bias"))
    return [bool(qkv), bool(output)]
