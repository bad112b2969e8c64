# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quantization configs of every kind: which modules they take and how many bytes a matrix has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.quantization import (
    NONE,
    matrix_bytes,
    quantization_plan,
    scheme_of,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import weights

LAYER = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 4096}
ARCH = architecture(dict(LAYER, model_type="llama", vocab_size=32000))
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
DOWN = ("mlp.down_proj",)


def plan_of(config, version=None):
    return quantization_plan(config, ARCH, version, [])


def bits(config, role="mlp", names=DOWN, layer=0, version=None):
    """Bits of a weight, scales included, in a 1024 x 4096 matrix."""
    scheme = scheme_of(plan_of(config, version), role, names, layer)
    return 8 * sum(matrix_bytes(scheme, 1024, 4096, 2)) / (1024 * 4096)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, 16),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, 8),
        ("fp8", 8 + 32 / 4096),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, 8 + 16 / 4096),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128),
        ("bitsandbytes", 4.5),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8 + 32 / 4096),
        ("nvfp4", 4.5),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_method": "compressed-tensors", "fmt": "int8 w8a8"}, 8 + 32 / 4096),
        ("gguf q8_0", 8.5),
        ("gguf Q4_K_M", 4.85),
        ("awq_marlin", 4 + 20 / 128),
    ],
)
def test_bits_of_a_weight(config, expected):
    assert bits(config) == pytest.approx(expected, rel=1e-3)


def test_mxfp4_takes_experts_only():
    config = {"quant_method": "mxfp4"}
    assert bits(config) == 16
    assert bits(config, "expert", ("mlp.experts.down_proj",)) == 4.25


def test_fbgemm_leaves_attention_and_the_outer_layers_alone():
    assert bits("fbgemm_fp8", layer=1) == pytest.approx(8, rel=1e-3)
    assert bits("fbgemm_fp8", layer=0) == bits("fbgemm_fp8", layer=3) == 16
    assert bits("fbgemm_fp8", "attention", QKV, 1) == 16


def test_a_mixed_checkpoint_of_nvidia():
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    assert bits(config) == bits(config, "lm_head", ("lm_head",)) == 4.5
    assert bits(config, "attention", QKV) == pytest.approx(8, rel=1e-3)
    assert not plan_of(config).draft


def test_an_nvfp4_hybrid_that_lists_nothing_counts_as_a_mixed_one():
    types = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    heads = {
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    }
    hybrid = architecture(dict(LAYER, model_type="qwen3_5", vocab_size=32000, layer_types=types, **heads))
    for name in ("nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}):
        assert quantization_plan(name, hybrid, None, []).roles["state"].bits == 8
        assert "lm_head" in quantization_plan(name, ARCH, None, []).ignored


def test_an_nvfp4_model_that_lists_nothing_is_read_as_such_models_are_published():
    said = []
    dense = quantization_plan("nvfp4", ARCH, None, said)
    assert dense.roles["attention"].bits == 4
    assert "all linear layers but lm_head" in said[0]
    experts = architecture(
        dict(
            LAYER,
            model_type="qwen3_moe",
            vocab_size=32000,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=512,
        )
    )
    assert "attention" not in quantization_plan("nvfp4", experts, None, []).roles


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("GPTQ-Int8", "w8a16", "torchao int8wo", "8-bit", "bitsandbytes 8bit", "modelopt_fp8", "mxfp8"), 8),
        (
            ("GPTQ-Int4", "W4A16", "autoround int4", "awq_marlin", "compressed-tensors", "hqq 4bit", "weird"),
            4,
        ),
        (("exl3 6.0bpw",), 6),
        (("3-bit",), 3),
    ],
)
def test_names_as_people_write_them(names, expected):
    for name in names:
        assert scheme_of(plan_of(name), "mlp", DOWN, 1).bits == expected, name


def test_experts_alone():
    plan = plan_of("int4 experts + fp8 mixed")
    assert (plan.roles["expert"].bits, plan.roles["attention"].bits) == (4, 8)
    assert set(plan_of("experts_int8").roles) == {"expert"}


def test_double_quantization_stays_packed_in_old_loaders():
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    assert bits(config, version="0.7.3") == pytest.approx(4.127, rel=1e-3)
    assert bits(config, version="0.19.0") == 4.5


GROUPS = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["re:.*self_attn.*"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        },
        "group_1": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": 32,
                "symmetric": True,
            },
        },
    },
    "ignore": ["lm_head", "model.layers.2.mlp.down_proj", "re:.*layers\\.3\\..*"],
}


def test_mixed_groups_and_modules_left_out():
    assert bits(GROUPS, "attention", QKV, 0) == pytest.approx(8, rel=1e-3)
    assert bits(GROUPS) == 4 + 16 / 32
    assert bits(GROUPS, layer=2) == 16
    assert bits(GROUPS, "mlp", ("mlp.gate_proj", "mlp.up_proj"), 2) == 4.5
    assert bits(GROUPS, "attention", QKV, 3) == 16
    assert bits(GROUPS, "lm_head", ("lm_head",), None) == 16


@pytest.mark.parametrize(
    ("item", "left_out"),
    [
        ("self_attn", True),
        ("model.layers.1", True),
        ("model.language_model.layers.1.self_attn.q_proj", True),
        ("model.layers.11", False),
        ("*self_attn*", True),
        ("model.layers.1.self_attn*", True),
        ("mlp", False),
        ("self_attn.q", False),
        ("re:.*[", False),
    ],
)
def test_names_expressions_and_globs_of_what_is_left_out(item, left_out):
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": [item, "lm_head"]}
    assert (bits(config, "attention", QKV, 1) == 16) is left_out


def test_a_checkpoint_that_lists_every_module():
    layers = {
        "model.language_model.layers.0.mlp.experts.7.down_proj": {"quant_algo": "NVFP4"},
        "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert bits(config, "expert", ("mlp.experts.down_proj",), 0) == 4.5
    assert bits(config, "attention", QKV, 0) == pytest.approx(8, rel=1e-3)
    assert bits(config, "attention", QKV, 1) == 16


def test_modules_with_bits_of_their_own_in_auto_round():
    extra = {"model.layers.1.mlp.down_proj": {"bits": 16}, "model.layers.0.mlp.down_proj": {"bits": 4}}
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra}
    assert bits(config, layer=1) == 16
    assert bits(config, layer=0) < 5


def test_what_a_checkpoint_does_not_say_is_named():
    named: list[str] = []
    quantization_plan({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ARCH, None, named)
    quantization_plan("exl3", ARCH, None, named)
    assert len(named) == 2
    assert "'exl3' isn't known" in named[1]


def test_a_name_of_the_checkpoints_own_kind_takes_its_config():
    own = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["self_attn"]}
    arch = architecture(dict(LAYER, model_type="llama", vocab_size=32000, quantization_config=own))
    assert weights(arch, quantization="fp8")["bytes"] == weights(arch)["bytes"]
    assert weights(arch, quantization="awq")["bytes"] < weights(arch)["bytes"]


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.text(max_size=6)
    | st.lists(st.text(max_size=4), max_size=2)
)
METHODS = (
    "fp8",
    "awq",
    "gptq",
    "auto-round",
    "bitsandbytes",
    "compressed-tensors",
    "modelopt",
    "mxfp4",
    "gguf",
    "hqq",
)
KEYS = (
    *(
        "bits",
        "group_size",
        "weight_block_size",
        "ignore",
        "modules_to_not_convert",
        "config_groups",
        "quant_algo",
    ),
    *(
        "quantized_layers",
        "extra_config",
        "load_in_8bit",
        "sym",
        "zero_point",
        "quantization",
        "fmt",
        "lm_head",
    ),
)


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_odd_configs_give_a_scheme_all_the_same(method, fields):
    plan = plan_of(dict(fields, quant_method=method))
    scheme = scheme_of(plan, "mlp", DOWN, 1)
    assert scheme == NONE or 1 <= scheme.bits <= 16
    assert sum(matrix_bytes(scheme, 64, 64, 2)) > 0
