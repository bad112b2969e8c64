# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers that keep a state of fixed size instead of keys and values: which there are, and their sizes.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .config_fields import integer, mapping, note, positive

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Families that keep their recurrent state in 32 bits whatever the model's dtype is.
_FLOAT32_STATE = ("qwen3_5",)


def is_linear_hybrid(text, model_type, layers):
    """The kinds of the layers of a hybrid whose config says it by periods or lists, or None if it is none."""
    interval = positive(text, "full_attention_interval")
    if interval and interval > 1:
        return ["full" if (index + 1) % interval == 0 else "linear_attention" for index in range(layers)]
    linear = text.get("linear_attn_config")
    if isinstance(linear, dict) and linear.get("kda_layers"):
        # Kimi-Linear counts its layers from 1.
        kda = set(linear["kda_layers"])
        return ["kda" if index + 1 in kda else "full" for index in range(layers)]
    listed = text.get("attn_type_list") or text.get("decoder_attention_types")
    if isinstance(listed, list) and len(listed) >= layers:
        return ["full" if item else "lightning" for item in listed[:layers]]
    period = positive(text, "attn_layer_period")
    if period:
        offset = integer(text, "attn_layer_offset") or 0
        return ["full" if index % period == offset else "mamba1" for index in range(layers)]
    chosen = text.get("attn_layer_indices")
    if isinstance(chosen, list) and chosen and model_type.startswith(("bamba", "nemotron_h", "granite")):
        return ["full" if index in chosen else "mamba2" for index in range(layers)]
    if model_type in ("mamba", "falcon_mamba"):
        return ["mamba1"] * layers
    if model_type in ("mamba2", "codestral_mamba"):
        return ["mamba2"] * layers
    return None


def state_layer(text, model_type, kind, hidden, assumptions):
    """The dict of one state layer (see ``architecture``)."""
    if kind == "linear_attention":
        if positive(text, "linear_num_value_heads"):
            return _delta_net(text, model_type)
        kind = "lightning" if positive(text, "num_attention_heads") else "mamba2"
    if kind == "kda":
        return _kda(text)
    if kind == "lightning":
        return _lightning(text, hidden)
    if kind == "short_conv":
        return {
            "kind": "short_conv",
            "width": positive(text, "conv_dim") or hidden,
            "conv_kernel": positive(text, "conv_L_cache", "conv_kernel", "d_conv") or 3,
            "state_dtype": None,
        }
    if kind == "mamba" and (positive(text, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")):
        kind = "mamba2"
    if kind == "mamba2":
        return _mamba2(text, hidden)
    if kind == "recurrent":
        note(assumptions, "recurrent layers (RG-LRU) are counted as Mamba layers")
    return _mamba1(text, hidden)


def _delta_net(text, model_type):
    dtype = _BYTES.get(str(text.get("mamba_ssm_dtype")))
    if dtype is None and model_type.startswith(_FLOAT32_STATE):
        dtype = 4
    return {
        "kind": "gated_delta_net",
        "k_heads": positive(text, "linear_num_key_heads"),
        "v_heads": positive(text, "linear_num_value_heads"),
        "k_head": positive(text, "linear_key_head_dim") or 128,
        "v_head": positive(text, "linear_value_head_dim") or 128,
        "conv_kernel": positive(text, "linear_conv_kernel_dim") or 4,
        "state_dtype": dtype,
    }


def _kda(text):
    linear = mapping(text, "linear_attn_config")
    return {
        "kind": "kda",
        "heads": positive(linear, "num_heads") or positive(text, "num_attention_heads") or 1,
        "head_size": positive(linear, "head_dim") or 128,
        "conv_kernel": positive(linear, "short_conv_kernel_size") or 4,
        "full_gate": bool(linear.get("use_full_rank_gate")),
        "state_dtype": 4,
    }


def _lightning(text, hidden):
    heads = positive(text, "num_attention_heads") or 1
    return {
        "kind": "lightning",
        "heads": heads,
        "head_size": positive(text, "head_dim") or hidden // heads,
        # V1 keeps it in the model's dtype (only V0's own cache manager took 32 bits).
        "state_dtype": None,
    }


def _mamba2(text, hidden):
    head = positive(text, "mamba_head_dim", "mamba_d_head", "head_dim") or 64
    heads = positive(text, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    expand = positive(text, "mamba_expand", "expand") or 2
    inner = (
        heads * head if heads else positive(text, "mamba_d_ssm", "mamba_intermediate_size") or expand * hidden
    )
    return {
        "kind": "mamba2",
        "inner": inner,
        "heads": heads or inner // head,
        "head_size": head,
        "groups": positive(text, "n_groups", "mamba_n_groups", "mamba_ngroups") or 1,
        "state": positive(text, "ssm_state_size", "mamba_d_state", "state_size") or 128,
        "conv_kernel": positive(text, "conv_kernel", "mamba_d_conv") or 4,
        "state_dtype": _BYTES.get(str(text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype"))),
    }


def _mamba1(text, hidden):
    inner = (
        positive(text, "intermediate_size") if text.get("model_type") in ("mamba", "falcon_mamba") else None
    )
    return {
        "kind": "mamba1",
        "inner": inner or (positive(text, "mamba_expand", "expand") or 2) * hidden,
        "state": positive(text, "mamba_d_state", "state_size") or 16,
        "dt_rank": positive(text, "mamba_dt_rank", "time_step_rank") or -(-hidden // 16),
        "conv_kernel": positive(text, "mamba_d_conv", "conv_kernel") or 4,
        "state_dtype": None,
    }
