# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a config says about its layers: every shared config, hand-written ones of other families, bad ones."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing_samples import CONFIGS, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import (
    ConfigError,
    architecture,
    default_length,
    layer_list,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.known_models import (
    known_model,
    known_names,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.kv_cache import KvCache
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import parameter_counts, weights

# Total parameters in billions as the models' cards and papers give them.
TOTALS = {
    "MiniMaxAI__MiniMax-M2.5": 228.7,
    "Qwen__Qwen1.5-MoE-A2.7B": 14.3,
    "Qwen__Qwen2.5-0.5B-Instruct": 0.494,
    "Qwen__Qwen2.5-1.5B-Instruct": 1.54,
    "Qwen__Qwen2.5-32B-Instruct": 32.8,
    "Qwen__Qwen2.5-3B-Instruct": 3.09,
    "Qwen__Qwen2.5-72B-Instruct": 72.7,
    "Qwen__Qwen2.5-7B-Instruct": 7.62,
    "Qwen__Qwen2.5-VL-72B-Instruct": 73.4,
    "Qwen__Qwen3-0.6B": 0.596,
    "Qwen__Qwen3-1.7B": 1.72,
    "Qwen__Qwen3-14B": 14.8,
    "Qwen__Qwen3-235B-A22B-FP8": 235.1,
    "Qwen__Qwen3-30B-A3B": 30.5,
    "Qwen__Qwen3-32B": 32.8,
    "Qwen__Qwen3-8B": 8.19,
    "Qwen__Qwen3-Coder-480B-A35B-Instruct": 480.2,
    "Qwen__Qwen3-VL-30B-A3B-Instruct": 31.1,
    "codellama__CodeLlama-13b-hf": 13.0,
    "codellama__CodeLlama-7b-hf": 6.74,
    "deepseek-ai__DeepSeek-R1-Distill-Qwen-1.5B": 1.78,
    "deepseek-ai__DeepSeek-V2-Lite-Chat": 15.7,
    "deepseek-ai__DeepSeek-V4-Flash": 284.0,
    "google__gemma-2-27b-it": 27.2,
    "google__gemma-2-9b-it": 9.24,
    "google__gemma-3-27b-it": 27.4,
    "google__gemma-3-4b-it": 4.30,
    "google__gemma-4-26B-A4B": 25.8,
    "google__gemma-7b": 8.54,
    "ibm-granite__granite-3.0-3b-a800m-instruct": 3.30,
    "ibm-granite__granite-3.1-2b-instruct": 2.53,
    "ibm-granite__granite-3.1-8b-instruct": 8.17,
    "ibm-granite__granite-vision-3.3-2b": 2.98,
    "llava-hf__llava-v1.6-mistral-7b-hf": 7.57,
    "meta-llama__Llama-2-13b-hf": 13.0,
    "meta-llama__Llama-2-70b-hf": 69.0,
    "meta-llama__Llama-3.1-8B-Instruct": 8.03,
    "meta-llama__Llama-3.2-3B-Instruct": 3.21,
    "meta-llama__Llama-4-Scout-17B-16E-Instruct": 108.6,
    "meta-llama__Meta-Llama-3.1-405B": 405.9,
    "microsoft__Phi-3-vision-128k-instruct": 4.15,
    "microsoft__phi-4": 14.7,
    "mistralai__Ministral-3-14B-Instruct-2512": 13.9,
    "mistralai__Mistral-Small-3.1-24B-Instruct-2503": 24.0,
    "mistralai__Mixtral-8x7B-Instruct-v0.1": 46.7,
    "moonshotai__Kimi-Dev-72B": 72.7,
    "moonshotai__Kimi-K2-Instruct": 1026.0,
    "moonshotai__Kimi-VL-A3B-Instruct": 16.4,
    "nvidia__Gemma-4-31B-IT-NVFP4": 31.3,
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": 31.6,
    "nvidia__Qwen3.6-27B-NVFP4": 27.4,
    "nvidia__Qwen3.6-35B-A3B-NVFP4": 35.1,
    "openai__gpt-oss-120b": 116.8,
    "openai__gpt-oss-20b": 20.9,
}
ACTIVE = {
    "Qwen__Qwen3-235B-A22B-FP8": 22.0,
    "deepseek-ai__DeepSeek-V4-Flash": 13.0,
    "openai__gpt-oss-120b": 5.1,
    "openai__gpt-oss-20b": 3.6,
    "moonshotai__Kimi-K2-Instruct": 32.0,
    "mistralai__Mixtral-8x7B-Instruct-v0.1": 12.9,
}


def load(name):
    return json.loads((CONFIGS / f"{name}.json").read_text())


def kinds(config):
    return Counter((layer["attention"] or {}).get("kind") for layer in layer_list(architecture(config)))


@shared
def test_every_shared_config_is_read_without_a_guess_about_its_layers():
    for path in sorted(CONFIGS.glob("*.json")):
        arch = architecture(json.loads(path.read_text()))
        unexpected = [
            text for text in arch["assumptions"] if "tower" not in text and "longest context" not in text
        ]
        assert not unexpected, path.name
        assert arch["vocab_size"] > 0, path.name


@shared
@pytest.mark.parametrize("name", sorted(TOTALS))
def test_total_parameters_are_the_published_ones(name):
    total, _active = parameter_counts(architecture(load(name)))
    assert total / 1e9 == pytest.approx(TOTALS[name], rel=0.01)


@shared
@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_active_parameters_are_about_the_published_ones(name):
    _total, active = parameter_counts(architecture(load(name)))
    assert active / 1e9 == pytest.approx(ACTIVE[name], rel=0.03)


@shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google__gemma-3-27b-it", {"sliding": 52, "full": 10}),
        ("google__gemma-2-9b-it", {"sliding": 21, "full": 21}),
        ("openai__gpt-oss-120b", {"sliding": 18, "full": 18}),
        ("meta-llama__Llama-4-Scout-17B-16E-Instruct", {"chunked": 36, "full": 12}),
        ("nvidia__Qwen3.6-27B-NVFP4", {"gated_delta_net": 48, "full": 16}),
        ("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", {"mamba2": 23, "full": 6, None: 23}),
        ("moonshotai__Kimi-K2-Instruct", {"mla": 61}),
        ("deepseek-ai__DeepSeek-V4-Flash", {"compressed": 43}),
        # use_sliding_window is false although a window is named.
        ("Qwen__Qwen2.5-7B-Instruct", {"full": 28}),
    ],
)
def test_kinds_of_layers(name, expected):
    assert kinds(load(name)) == expected


def base(**fields):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 2816,
        "vocab_size": 32000,
    }
    config.update(fields)
    return config


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (base(model_type="mistral", sliding_window=4096), {"sliding": 8}),
        (base(model_type="gemma2", sliding_window=4096), {"sliding": 4, "full": 4}),
        (base(model_type="gemma3_text", sliding_window=512), {"sliding": 7, "full": 1}),
        (
            base(model_type="qwen2", use_sliding_window=True, sliding_window=512, max_window_layers=6),
            {"full": 6, "sliding": 2},
        ),
        (base(model_type="jamba", attn_layer_period=4, attn_layer_offset=2), {"mamba1": 6, "full": 2}),
        (base(model_type="bamba", attn_layer_indices=[3]), {"mamba2": 7, "full": 1}),
        (
            base(
                model_type="granitemoehybrid",
                layers_block_type=["mamba"] * 7 + ["attention"],
                mamba_n_heads=16,
                mamba_d_head=64,
            ),
            {"mamba2": 7, "full": 1},
        ),
        (
            base(
                model_type="kimi_linear",
                kv_lora_rank=512,
                qk_rope_head_dim=64,
                linear_attn_config={
                    "kda_layers": [1, 2, 3, 5, 6, 7],
                    "full_attn_layers": [4, 8],
                    "num_heads": 8,
                },
            ),
            {"kda": 6, "mla": 2},
        ),
        (base(model_type="minimax_text_01", attn_type_list=[0] * 7 + [1]), {"lightning": 7, "full": 1}),
        (base(model_type="lfm2", layer_types=["conv", "full_attention"] * 4), {"short_conv": 4, "full": 4}),
        (base(model_type="falcon_h1", mamba_n_heads=16), {"parallel": 8}),
        (base(model_type="mamba2", num_heads=32), {"mamba2": 8}),
        (base(model_type="bert"), {"encoder": 8}),
    ],
)
def test_other_families(config, expected):
    assert kinds(config) == expected


LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}


def family(model_type, hidden, layers, heads, kv_heads, width, vocabulary, **fields):
    config = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
    }
    config.update(fields)
    return {key: value for key, value in config.items() if value is not None}


def moe(experts, active, width, **fields):
    return dict(num_experts=experts, num_experts_per_tok=active, moe_intermediate_size=width, **fields)


# Families that aren't among the shared configs: published dimensions, published total in billions.
FAMILIES = {
    "Falcon-7B": (
        family("falcon", 4544, 32, 71, None, None, 65024, multi_query=True, tie_word_embeddings=True),
        6.92,
    ),
    "Phi-2": (family("phi", 2560, 32, 32, 32, 10240, 51200), 2.78),
    "Mixtral-8x22B": (
        family("mixtral", 6144, 56, 48, 8, 16384, 32768, num_local_experts=8, num_experts_per_tok=2),
        140.6,
    ),
    "DeepSeek-V3": (
        family(
            *("deepseek_v3", 7168, 61, 128, 128, 18432, 129280),
            **LATENT,
            **{
                "q_lora_rank": 1536,
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 2048,
            },
            **{"n_shared_experts": 1, "first_k_dense_replace": 3},
        ),
        671.0,
    ),
    "Qwen3-Next-80B-A3B": (
        family(
            *("qwen3_next", 2048, 48, 16, 2, 5120, 151936),
            **moe(512, 10, 512, shared_expert_intermediate_size=512),
            **{"head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16},
            **{"linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
        ),
        79.7,
    ),
    "Jamba-mini": (
        family(
            *("jamba", 4096, 32, 32, 8, 14336, 65536),
            **{
                "attn_layer_period": 8,
                "attn_layer_offset": 4,
                "expert_layer_period": 2,
                "expert_layer_offset": 1,
            },
            **{"num_experts": 16, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_dt_rank": 256},
        ),
        51.6,
    ),
    "Granite-4.0-h-small": (
        family(
            *("granitemoehybrid", 4096, 40, 32, 8, 768, 100352),
            layers_block_type=(["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
            tie_word_embeddings=True,
            **{"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "num_local_experts": 72},
            **{"num_experts_per_tok": 10, "shared_intermediate_size": 1536},
        ),
        32.2,
    ),
    "Falcon-H1-7B": (
        family(
            *("falcon_h1", 3072, 44, 12, 2, 12288, 130048),
            **{
                "head_dim": 128,
                "mamba_d_ssm": 3072,
                "mamba_n_heads": 24,
                "mamba_d_head": 128,
                "mamba_d_state": 256,
            },
        ),
        7.59,
    ),
    "Kimi-Linear-48B-A3B": (
        family(
            *("kimi_linear", 2304, 27, 32, 32, 9216, 163840),
            **LATENT,
            **{"num_experts": 256, "num_experts_per_token": 8, "moe_intermediate_size": 1024},
            **{"num_shared_experts": 1, "first_k_dense_replace": 1},
            linear_attn_config={
                "kda_layers": [index for index in range(1, 27) if index % 4],
                "num_heads": 32,
                "head_dim": 128,
            },
        ),
        49.1,
    ),
    "MiniMax-Text-01": (
        family(
            *("minimax_text_01", 6144, 80, 64, 8, 9216, 200064),
            **{"head_dim": 128, "attn_type_list": ([0] * 7 + [1]) * 10},
            **{"num_local_experts": 32, "num_experts_per_tok": 2},
        ),
        456.0,
    ),
    "Falcon-Mamba-7B": (
        family(
            *("falcon_mamba", 4096, 64, None, None, 8192, 65024),
            **{"state_size": 16, "time_step_rank": 256, "conv_kernel": 4},
        ),
        7.27,
    ),
    "DBRX": (
        {
            **{"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352},
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        132.0,
    ),
    "Whisper-large-v3": (
        {
            **{"model_type": "whisper", "d_model": 1280, "num_hidden_layers": 32, "encoder_layers": 32},
            **{
                "decoder_attention_heads": 20,
                "encoder_ffn_dim": 5120,
                "decoder_ffn_dim": 5120,
                "vocab_size": 51866,
            },
        },
        1.54,
    ),
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_families_beyond_the_shared_configs(name):
    config, published = FAMILIES[name]
    total, _active = parameter_counts(architecture(config))
    assert total / 1e9 == pytest.approx(published, rel=0.01)


def test_window_layers_that_share_keys_take_those_of_the_last_own_layer_of_their_kind():
    config = base(
        model_type="gemma3n_text",
        sliding_window=512,
        layer_types=["sliding_attention"] * 3
        + ["full_attention"]
        + ["sliding_attention"] * 3
        + ["full_attention"],
        num_kv_shared_layers=4,
    )
    layers = layer_list(architecture(config))
    assert [layer["attention"].get("kv_from") for layer in layers] == [None] * 4 + [2, 3, 4, 4]


def test_dense_layers_shared_experts_and_interleaving():
    config = base(
        model_type="deepseek_v3",
        n_routed_experts=16,
        num_experts_per_tok=4,
        moe_intermediate_size=512,
        n_shared_experts=2,
        first_k_dense_replace=3,
    )
    mlps = [layer["mlp"] for layer in layer_list(architecture(config))]
    assert [mlp["kind"] for mlp in mlps] == ["dense"] * 3 + ["moe"] * 5
    assert mlps[-1]["shared"] == 1024
    assert mlps[0]["width"] == 2816
    step = base(
        model_type="llama4_text", num_local_experts=4, interleave_moe_layer_step=2, intermediate_size_mlp=4096
    )
    mlps = [layer["mlp"] for layer in layer_list(architecture(step))]
    assert [mlp["kind"] for mlp in mlps] == ["dense", "moe"] * 4
    assert mlps[0]["width"] == 4096


def test_layers_that_were_pruned_away_are_none():
    blocks = [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.625}}] * 7
    blocks.append({"attention": {"no_op": True}, "ffn": {"no_op": True}})
    layers = layer_list(architecture(base(model_type="nemotron-nas", block_configs=blocks)))
    assert layers[-1] == {"attention": None, "mlp": None}
    assert layers[0]["attention"]["kv_heads"] == 2
    assert layers[0]["mlp"]["width"] == 1792


def test_a_family_that_is_not_known_is_read_by_its_fields():
    arch = architecture({"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8})
    assert arch["layers"][0]["attention"]["head_size"] == 64
    assert len(arch["assumptions"]) == 4
    assert architecture(base(layer_types=["novel"] * 8))["assumptions"] == [
        "layer type 'novel' isn't known: counted as full attention",
        NO_LENGTH,
    ]
    (said,) = architecture(base(model_type="fancy9", max_position_embeddings=4096))["assumptions"]
    assert said.startswith(
        'model_type "fancy9" isn\'t known: read as a transformer with grouped-query attention'
    )


NO_LENGTH = "the config names no longest context (max_position_embeddings): give --max-model-len"


def test_a_size_that_is_none_is_named_where_something_stands_in_for_it():
    (said,) = architecture(base(num_key_value_heads="8", max_position_embeddings=4096))["assumptions"]
    assert said == 'num_key_value_heads is "8", which is no size: it counts as not set'


def test_every_family_of_the_table_is_known():
    for name in known_names():
        said = architecture(known_model(name)["config"])["assumptions"]
        assert not [text for text in said if text.startswith("model_type")], name


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "JSON object"),
        ([], "JSON object"),
        ({"hidden_size": 512}, "number of layers"),
        ({"num_hidden_layers": 0, "hidden_size": 512}, "num_hidden_layers is 0; the number of layers is"),
        ({"num_hidden_layers": 2}, "names no hidden size"),
        (
            base(num_hidden_layers="36"),
            'num_hidden_layers is "36"; the number of layers is a whole number from 1 to',
        ),
        (base(num_hidden_layers=-36), "num_hidden_layers is -36; "),
        (base(num_hidden_layers=1e12), r"num_hidden_layers is 1000000000000\.0; "),
        (base(num_hidden_layers=10**6), "num_hidden_layers is 1000000; "),
        (base(num_hidden_layers=["x" * 99] * 99), r'num_hidden_layers is \["x+\.\.\.; '),
        (base(hidden_size=1 << 30), "hidden_size is 1073741824; the hidden size is"),
        (base(num_attention_heads=0), "num_attention_heads is 0; the number of attention heads is"),
        (base(num_attention_heads="32"), 'num_attention_heads is "32"; '),
    ],
)
def test_a_config_without_a_model_is_refused(config, words):
    with pytest.raises(ConfigError, match=words):
        architecture(config)


VALUES = st.none() | st.booleans() | st.integers(-3, 70) | st.floats(allow_nan=False) | st.text(max_size=5)
FIELDS = (
    *(
        "sliding_window",
        "layer_types",
        "num_key_value_heads",
        "head_dim",
        "num_experts",
        "kv_lora_rank",
        "rope_scaling",
    ),
    *(
        "qk_rope_head_dim",
        "vision_config",
        "compress_ratios",
        "hybrid_override_pattern",
        "moe_layer_freq",
        "vocab_size",
    ),
    *(
        "full_attention_interval",
        "quantization_config",
        "tie_word_embeddings",
        "moe_layers",
        "block_configs",
        "dtype",
    ),
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES | st.lists(VALUES, max_size=9), max_size=5))
def test_odd_values_never_break_the_reader(fields):
    arch = architecture(base(**fields))
    assert sum(run["count"] for run in arch["layers"]) == 8
    assert weights(arch, tp=2)["bytes"] > 0
    assert KvCache(arch, tp=2).report(1 << 30, 4096)["num_blocks"] >= 0


# Pruned Nemotron models: a block is a (attention), n (none) or _ (neither), then its ffn_mult. Of the published configs.
SUPER_49B = (
    "a2.625 a5.25*5 n2.625*2 a5.25*3 n3.28125 a5.25*30 n1.3125 n2.625*2 n1.3125 n5.25 n1.3125 n2.625 n1.3125*3 a5.25 "
    "n1.3125 n1*2 n1.3125 n1*3 n1.3125*2 n.5*2 n1*2 n.5*2 n1 n.5*2 a5.25*9"
)
ULTRA_253B = (
    "a.4875 a.975 a1.4625*6 a1.95 _*4 a1.95*3 a4.875*2 _*6 a4.875*3 _*5 a4.875*3 a2.4375 _*3 a1.95*3 n1.95 a4.875 n4.875 "
    "_*5 a4.875*4 _*5 a4.875*4 _*5 a4.875*4 _*5 a4.875*4 _*5 a4.875 a3.4125*3 _*2 a2.925 a2.4375*3 n2.4375*2 a2.4375 _ "
    "n2.4375*7 a2.4375 _*5 a2.925 a4.875 n4.875 a4.875 _*8 n36.5625 _*8 n39 _*8 n31.40625 _*5 n27.5625 n1.95 a1.95 a2.4375 "
    "_ a2.4375*2 a3.4125 a4.875*4 a2.4375"
)


def pruned(hidden, heads, group, blocks):
    configs = []
    for word in blocks.split():
        block, _star, count = word.partition("*")
        kind, multiple = block[0], float(block[1:] or 0)
        configs += [
            {
                "attention": {"n_heads_in_group": group if kind == "a" else None, "no_op": kind != "a"},
                "ffn": {"ffn_mult": multiple or None, "no_op": kind == "_"},
            }
        ] * int(count or 1)
    return {
        "model_type": "nemotron-nas",
        "architectures": ["DeciLMForCausalLM"],
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": len(configs),
        "block_configs": configs,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


@pytest.mark.parametrize(
    ("config", "layers", "attentions", "billions"),
    [
        (pruned(8192, 64, 8, SUPER_49B), 80, 49, 49.9),
        (pruned(16384, 128, 16, ULTRA_253B), 162, 64, 253.4),
    ],
)
def test_pruned_nemotron_models(config, layers, attentions, billions):
    arch = architecture(config)
    total, active = parameter_counts(arch)
    assert total / 1e9 == pytest.approx(billions, rel=0.002)
    assert active < total
    assert kinds(config) == {"full": attentions, None: layers - attentions}
    assert KvCache(arch, version="0.19.0").bytes_per_token == attentions * 2 * 8 * 128 * 2


def test_a_matrix_in_place_of_attention_keeps_nothing():
    config = pruned(8192, 64, 8, "a5.25*4")
    with_two = pruned(8192, 64, 8, "a5.25*4")
    for index in (1, 2):
        replaced = {"attention": {"replace_with_linear": True}, "ffn": config["block_configs"][0]["ffn"]}
        with_two["block_configs"][index] = replaced
    assert kinds(with_two) == {"full": 2, "linear": 2}
    before, after = (parameter_counts(architecture(given))[0] for given in (config, with_two))
    # Instead of queries, keys, values and output (2 + 2 / 8 squares): one square of the hidden size.
    assert before - after == 2 * (2.25 - 1) * 8192**2
    halves = [KvCache(architecture(given)).bytes_per_token for given in (config, with_two)]
    assert halves[0] == 2 * halves[1]


# The fields that Megatron-LM's launchers and model cards give of Nemotron 3.
SUPER_120B = {
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 88,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 131072,
    "intermediate_size": 2688,
    "mlp_hidden_act": "relu2",
    "moe_intermediate_size": 2688,
    "moe_latent_size": 1024,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 5376,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    "tie_word_embeddings": False,
}
ULTRA_550B = {
    **{key: value for key, value in SUPER_120B.items() if key != "hybrid_override_pattern"},
    "hidden_size": 8192,
    "num_hidden_layers": None,
    "num_attention_heads": 64,
    "moe_intermediate_size": 5120,
    "moe_latent_size": 2048,
    "moe_shared_expert_intermediate_size": 10240,
    "mamba_num_heads": 256,
    # 12 attention layers, the rest Mamba and experts in turn.
    "layers_block_type": [
        *[
            "mamba",
            "moe",
            "mamba",
            "moe",
            "mamba",
            "moe",
            "mamba",
            "attention",
            "moe",
            "mamba",
            "moe",
            "mamba",
        ],
        *[
            "moe",
            "mamba",
            "attention",
            *["moe", "mamba"] * 4,
            "attention",
            *["moe", "mamba"] * 4,
            "attention",
        ],
        *[*["moe", "mamba"] * 3, "attention", *["moe", "mamba"] * 4, "attention", *["moe", "mamba"] * 4],
        *["attention", *["moe", "mamba"] * 3, "attention", *["moe", "mamba"] * 4, "attention"],
        *[*["moe", "mamba"] * 4, "attention", *["moe", "mamba"] * 3, "attention", *["moe", "mamba"] * 4],
        *["attention", *["moe", "mamba"] * 4, "moe"],
    ],
}
KIMI_K3 = {
    "model_type": "kimi_k3",
    "architectures": ["KimiK3ForConditionalGeneration"],
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "kimi_linear",
        "hidden_size": 7168,
        "num_hidden_layers": 93,
        "num_attention_heads": 96,
        "num_key_value_heads": 96,
        "vocab_size": 163840,
        "max_position_embeddings": 1048576,
        "intermediate_size": 33792,
        "first_k_dense_replace": 1,
        "num_experts": 896,
        "num_experts_per_token": 16,
        "num_shared_experts": 2,
        "moe_intermediate_size": 3072,
        "routed_expert_hidden_size": 3584,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "mla_use_output_gate": True,
        "linear_attn_config": {
            "kda_layers": [layer for layer in range(1, 93) if layer % 4],
            "num_heads": 96,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
    },
}


@pytest.mark.parametrize(
    ("config", "layers", "billions", "active"),
    [
        (SUPER_120B, {"mamba2": 40, "full": 8, None: 40}, 120.6, 12.2),
        (ULTRA_550B, {"mamba2": 48, "full": 12, None: 48}, 550, 55),
        (KIMI_K3, {"kda": 69, "mla": 24}, 2800, 104),
    ],
)
def test_experts_that_work_in_a_narrower_width(config, layers, billions, active):
    assert kinds(config) == layers
    total, per_token = parameter_counts(architecture(config))
    assert total / 1e9 == pytest.approx(billions, rel=0.01)
    assert per_token / 1e9 == pytest.approx(active, rel=0.01)


def test_projections_around_narrow_experts_are_whole_on_every_rank():
    arch = architecture(SUPER_120B)
    one, eight = weights(arch)["parts"]["mlp"], weights(arch, tp=8)["parts"]["mlp"]
    projections, shared = (40 * 2 * 4096 * width * 2 for width in (1024, 5376))
    assert one == pytest.approx(projections + shared, rel=0.01)
    assert eight == pytest.approx(projections + shared / 8, rel=0.01)


@pytest.mark.parametrize(
    ("fields", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        # The smallest of the fields counts; the one that Cohere's models name apart wins.
        ({"max_position_embeddings": 8192, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 16384, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, 32768),
        # Hunyuan's kind of dynamic scaling has no factor.
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "dynamic", "alpha": 1000.0}}, 32768),
        (
            {
                "max_position_embeddings": 40960,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
        ),
        # DeepSeek's own length already counts the factor: 40 x 4096.
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
            },
            32768,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"type": "linear", "factor": 8.0},
                "model_type": "gemma3",
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 8192,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.0},
                    "sliding_attention": {"rope_type": "default"},
                },
            },
            16384,
        ),
        ({}, None),
        ({"model_type": "mamba"}, 2048),
    ],
)
def test_the_longest_context_is_the_one_that_vllm_derives(fields, length):
    arch = architecture(base(**fields))
    assert arch["max_position_embeddings"] == length
    assert default_length(arch, "0.19.0") == length


def test_longrope_starts_at_the_trained_length_from_0111_on():
    # Phi-3-mini-128k
    arch = architecture(
        base(
            max_position_embeddings=131072,
            original_max_position_embeddings=4096,
            rope_scaling={"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
        )
    )
    assert arch["max_position_embeddings"] == 131072
    assert default_length(arch, "0.11.0") == 131072
    assert default_length(arch, "0.11.1") == 4096
    assert default_length(arch) == 4096


LLAMA_3_8B = {
    "model_type": "mllama_text_model",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "is_encoder_decoder": True,
    "d_model": 1280,
    "encoder_layers": 32,
    "num_hidden_layers": 32,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "vocab_size": 51866,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}
INTERNLM2 = {**LLAMA_3_8B, "model_type": "internlm2", "num_hidden_layers": 32, "vocab_size": 92553}
# Published configs of models with towers and of encoders, and the parameters in billions that their cards give.
WITH_TOWERS = {
    "Llama-3.2-11B-Vision": (
        {
            "model_type": "mllama",
            "architectures": ["MllamaForConditionalGeneration"],
            "text_config": {**LLAMA_3_8B, "num_hidden_layers": 40},
            "vision_config": {
                "hidden_size": 1280,
                "num_hidden_layers": 32,
                "num_global_layers": 8,
                "intermediate_size": 5120,
                "image_size": 560,
                "patch_size": 14,
                "max_num_tiles": 4,
            },
        },
        10.67,
    ),
    "InternVL2-8B": (
        {
            "model_type": "internvl_chat",
            "architectures": ["InternVLChatModel"],
            "llm_config": INTERNLM2,
            "vision_config": {
                "model_type": "intern_vit_6b",
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "intermediate_size": 4096,
                "image_size": 448,
                "patch_size": 14,
            },
        },
        8.08,
    ),
    "pixtral-12b": (
        {
            "model_type": "llava",
            "architectures": ["LlavaForConditionalGeneration"],
            "text_config": {
                **LLAMA_3_8B,
                "model_type": "mistral",
                "hidden_size": 5120,
                "head_dim": 128,
                "num_hidden_layers": 40,
                "vocab_size": 131072,
            },
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "intermediate_size": 4096,
                "image_size": 1024,
                "patch_size": 16,
            },
        },
        12.68,
    ),
    "whisper-large-v3": ({**WHISPER, "decoder_layers": 32}, 1.543),
    "whisper-large-v3-turbo": ({**WHISPER, "decoder_layers": 4}, 0.809),
    "bge-large-en": (
        {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
        0.335,
    ),
}


@pytest.mark.parametrize("name", sorted(WITH_TOWERS))
def test_parameters_of_models_with_towers_and_of_encoders(name):
    config, billions = WITH_TOWERS[name]
    assert parameter_counts(architecture(config))[0] / 1e9 == pytest.approx(billions, rel=0.005)


def test_whisper_keeps_keys_of_its_decoder_only():
    sizes = [KvCache(architecture({**WHISPER, "decoder_layers": n})).bytes_per_block for n in (4, 32)]
    assert sizes[1] == 8 * sizes[0]


def test_gemma_2_was_cut_to_its_window():
    arch = architecture(base(model_type="gemma2", sliding_window=4096, max_position_embeddings=8192))
    assert [default_length(arch, version) for version in ("0.6.4", "0.6.5", None)] == [4096, 8192, 8192]
