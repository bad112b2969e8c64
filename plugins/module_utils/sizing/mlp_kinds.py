# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MLP or the experts of each layer of a model, from its config.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .config_fields import first, integer, note, of_layer, positive, sequence

# Two matrices instead of three: no gate.
_PLAIN = (
    *(
        "gpt2",
        "gpt_neox",
        "gptj",
        "gpt_bigcode",
        "opt",
        "bloom",
        "mpt",
        "phi",
        "starcoder2",
        "falcon",
        "nemotron",
    ),
    *("whisper", "bert", "roberta", "xlm-roberta", "persimmon", "stablelm_alpha"),
)
_GATED_ANYWAY = ("phi3", "phi4", "phimoe", "falcon_h1", "falcon3", "falcon_mamba", "nemotron-nas")
_BIAS = ("gpt2", "gpt_neox", "opt", "bloom", "gpt_oss", "starcoder2", "phi", "gpt_bigcode", "bert", "roberta")


def mlp_of_layers(text, model_type, layers, hidden, assumptions):
    """One mlp dict (see ``architecture``), or None, for each of the ``layers`` layers."""
    experts = positive(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    listed = [count for count in sequence(text, "moe_num_experts") if isinstance(count, int)]
    experts = max(listed, default=0) or experts
    if text.get("enable_moe_block") is False:
        experts = None
    result: list[dict | None] = []
    for index in range(layers):
        if not _has_mlp(text, model_type, index):
            result.append(None)
        elif experts and _is_moe(text, model_type, index):
            result.append(_moe(text, model_type, experts, hidden, assumptions))
        else:
            result.append(_dense(text, model_type, index, hidden, bool(experts), assumptions))
    return result


def _mixer(text, index):
    """What a layer with one mixer alone is (Nemotron-H): a letter of its pattern, E for experts and - for an MLP, or None."""
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and index < len(pattern):
        return pattern[index]
    # Later configs spell the letters out; where no layer is an MLP alone, each has one beside its mixer.
    names = sequence(text, "layers_block_type")
    if index < len(names) and ("moe" in names or "mlp" in names):
        return {"moe": "E", "mlp": "-"}.get(names[index], "*")
    return None


def _has_mlp(text, model_type, index):
    mixer = _mixer(text, index)
    if mixer:
        return mixer in "E-"
    blocks = text.get("block_configs")
    if isinstance(blocks, list) and index < len(blocks) and isinstance(blocks[index], dict):
        return not (blocks[index].get("ffn") or {}).get("no_op")
    return model_type not in ("mamba", "mamba2", "falcon_mamba", "codestral_mamba")


def _is_moe(text, model_type, index):
    mixer = _mixer(text, index)
    if mixer:
        return mixer == "E"
    if index < (integer(text, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index") or 0):
        return False
    for key in ("mlp_only_layers", "dense_layers"):
        if index in sequence(text, key):
            return False
    listed = text.get("moe_layers")
    if isinstance(listed, list):
        return index in listed
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(frequency[index]) if index < len(frequency) else True
    if isinstance(frequency, int) and frequency > 1:
        return index % frequency == 0
    period = positive(text, "expert_layer_period")
    if period:
        return index % period == (integer(text, "expert_layer_offset") or 0)
    step = positive(text, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
    return not step or (index + 1) % step == 0


def _moe(text, model_type, experts, hidden, assumptions):
    width = positive(
        text,
        "moe_intermediate_size",
        "expert_ffn_hidden_size",
        "moe_ffn_hidden_size",
        "expert_intermediate_size",
    ) or of_layer(text, 0, "intermediate_size", "ffn_hidden_size")
    if not width:
        width = 4 * hidden
        note(assumptions, f"the width of the experts isn't in the config: {width} is assumed")
    active = of_layer(text, 0, "num_experts_per_token", "moe_topk", "moe_top_k") or integer(
        text, "num_experts_per_tok", "top_k_experts", "moe_topk", "moe_k", "num_selected_experts"
    )
    item = {
        "kind": "moe",
        "experts": experts,
        "width": width,
        "active": active or 2,
        "gated": _gated(text, model_type),
        "bias": model_type.startswith("gpt_oss"),
        "shared": _shared_width(text, model_type, width),
        "shared_gate": model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")),
        "dense": None,
        "latent": positive(text, "moe_latent_size", "routed_expert_hidden_size"),
    }
    if text.get("enable_moe_block"):
        item["dense"] = positive(text, "intermediate_size")
    return item


def _shared_width(text, model_type, width):
    given = first(
        text,
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
    )
    if given is not None:
        return int(given) or None
    count = integer(
        text, "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"
    )
    if count:
        return count * width
    return width if model_type.startswith("llama4") else None


def _dense(text, model_type, index, hidden, beside_moe, assumptions):
    width = None
    blocks = text.get("block_configs")
    if isinstance(blocks, list) and index < len(blocks) and isinstance(blocks[index], dict):
        width = _block_width(blocks[index].get("ffn") or {}, hidden)
    if not width and beside_moe:
        # Llama 4 names the width of its dense layers apart from that of the experts.
        width = positive(text, "intermediate_size_mlp", "dense_intermediate_size")
    width = width or of_layer(
        text,
        index,
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "ffn_dim",
        "decoder_ffn_dim",
        "d_ff",
        "hidden_dim",
    )
    if not width:
        width = 4 * hidden
        if model_type not in ("gpt2", "falcon", "bloom", "gptj", "gpt_bigcode", "mpt"):
            note(
                assumptions,
                f"the width of the MLP isn't in the config: {width} (four times hidden) is assumed",
            )
    if model_type == "qwen":
        # The first Qwen's field is the width of gate and up together.
        width //= 2
    return {
        "kind": "dense",
        "width": width,
        "gated": _gated(text, model_type),
        "bias": _bias(text, model_type),
    }


def _block_width(ffn, hidden):
    if positive(ffn, "intermediate_size"):
        return ffn["intermediate_size"]
    multiple = ffn.get("ffn_mult")
    if not multiple:
        return None
    # Nemotron-NAS rounds two thirds of the four-fold width up to 256.
    return -(-int(2 * multiple * hidden / 3) // 256) * 256


def _gated(text, model_type):
    if model_type.startswith(_GATED_ANYWAY):
        return True
    if model_type.startswith("nemotron_h") or text.get("mlp_hidden_act") == "relu2":
        return False
    return not model_type.startswith(_PLAIN)


def _bias(text, model_type):
    if text.get("mlp_bias") is not None:
        return bool(text["mlp_bias"])
    return model_type.startswith(_BIAS) and not model_type.startswith(_GATED_ANYWAY)
