# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The KV cache: the facts' check values, what vLLM printed release by release, and laws that hold for all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing_samples import CONFIGS, LLAMA, load, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.kv_cache import KvCache
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.kv_groups import (
    group_size,
    hybrid_block_size,
)

NAMES = sorted(path.stem for path in CONFIGS.glob("*.json")) if CONFIGS.exists() else ["none"]


def model(**fields):
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }
    config.update(fields)
    return architecture(config)


def latent(**fields):
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    return model(model_type="deepseek_v3", num_hidden_layers=61, **sizes, **fields)


# vllm-memory 6.5.
@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        (model(num_hidden_layers=28, head_dim=128, hidden_size=1024, num_attention_heads=16), 114_688),
        (model(), 131_072),
        (model(num_hidden_layers=80, hidden_size=8192, num_attention_heads=64), 327_680),
        (
            model(num_hidden_layers=28, hidden_size=3584, num_attention_heads=28, num_key_value_heads=4),
            57_344,
        ),
        (model(num_hidden_layers=64, hidden_size=5120, num_attention_heads=40), 262_144),
        (model(num_hidden_layers=48, num_key_value_heads=4, head_dim=128), 98_304),
        (latent(), 70_272),
    ],
)
def test_check_values_of_the_facts(arch, expected):
    assert KvCache(arch).bytes_per_token == expected


def test_field_check_of_the_facts():
    cache = KvCache(model(num_hidden_layers=28, head_dim=128, hidden_size=1024), version="0.10.0")
    blocks = cache.num_blocks(18.825 * GIB)
    assert abs(cache.tokens(blocks, 8192) - 176_240) <= 16
    assert cache.concurrency(blocks, 8192) == pytest.approx(21.51, abs=0.01)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp8", 65_536),
        ("fp8_e5m2", 65_536),
        ("bfloat16", 131_072),
        ("int8_per_token_head", 32 * 8 * (256 + 8)),
        ("fp8_per_token_head", 32 * 8 * (256 + 8)),
        ("int4_per_token_head", 32 * 8 * (128 + 8)),
        ("nvfp4", 32 * 8 * 2 * (64 + 8)),
        ("turboquant_k8v4", 32 * 8 * (128 + 64 + 4)),
    ],
)
def test_kv_dtypes(name, expected):
    assert KvCache(model(), name).bytes_per_token == expected


def test_skipped_layers_stay_in_the_models_dtype():
    first_and_last = KvCache(model(), "fp8", version="0.19", skip_layers=["0", "31"])
    assert first_and_last.bytes_per_token == 30 * 2048 + 2 * 4096
    # The flag came with 0.19.
    assert KvCache(model(), "fp8", version="0.18", skip_layers=["0"]).bytes_per_token == 65_536
    types = ["sliding_attention", "full_attention"] * 4
    arch = model(model_type="x", num_hidden_layers=8, layer_types=types, sliding_window=1024)
    groups = KvCache(arch, "fp8", version="0.19", skip_layers=("sliding_window",)).groups
    # Of two 8-bit tokens the page is that of one in 16 bits.
    assert {(group.spec.kind, group.spec.token, group.spec.block) for group in groups} == {
        ("sliding", 4096, 16),
        ("full", 2048, 32),
    }


def test_auto_follows_the_checkpoint_and_the_models_dtype():
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert KvCache(model(quantization_config=scheme)).bytes_per_token == 65_536
    assert KvCache(model(), dtype="float32").bytes_per_token == 262_144


def test_latent_attention():
    assert KvCache(latent(), tp=8).bytes_per_token == 70_272
    assert KvCache(latent(), "fp8").bytes_per_token == 35_136
    assert KvCache(latent(), "fp8_ds_mla").bytes_per_token == 61 * 656
    assert KvCache(latent(), "nvfp4_ds_mla").bytes_per_token == 61 * 352
    # Without it every head keeps its own key and value, padded to 256.
    assert KvCache(latent(), mla_disabled=True, tp=8).bytes_per_token == 61 * 4 * 2 * 256 * 2
    old = {"version": "0.5.0", "generation": "V0"}
    assert KvCache(latent(), **old).bytes_per_token == 61 * 32 * 2 * 256 * 2
    # 0.7.2 and 0.7.3 round each entry to 256 bytes.
    assert KvCache(latent(), version="0.7.3", generation="V0").bytes_per_token == 61 * 1280


def test_sparse_indexer_and_its_layout_by_gpu():
    arch = latent(index_n_heads=64, index_head_dim=128)
    assert KvCache(arch, "fp8", capability=(9, 0)).bytes_per_token == 61 * (656 + 132)
    assert KvCache(arch, "fp8", capability=(10, 0)).bytes_per_token == 61 * (576 + 132)
    assert KvCache(arch).block_size == 64


# What vLLM printed (shared/cases/sizing_dev.jsonl): config, settings, blocks, length, tokens, concurrency.
PRINTED = [
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.19.0"}, 29750, 8192, 476_000, 58.11),
    ("google/gemma-2-27b-it", {"version": "0.19.0", "batched_tokens": 8192}, 7335, 8192, 58_672, 7.16),
    ("google/gemma-3-4b-it", {"version": "0.19.0", "batched_tokens": 8192}, 204_817, 8192, 468_144, 57.05),
    (
        "openai/gpt-oss-20b",
        {"version": "0.19.0", "tp": 2, "batched_tokens": 8192},
        323_972,
        8192,
        2_591_776,
        316.07,
    ),
    (
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        {"version": "0.19.0", "tp": 4, "batched_tokens": 8192},
        *(91_495, 8192, 365_968, 44.68),
    ),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", {"version": "0.19.0"}, 94_097, 8192, 1_505_552, 183.78),
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.19.0", "pp": 2}, 67_207, 8192, 1_075_312, 131.26),
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.31.0"}, 28_781, 131_072, 460_496, 3.51),
    ("Qwen/Qwen2.5-1.5B-Instruct", {"version": "0.7.2", "generation": "V0"}, 5517, 32_768, 88_272, 2.69),
    # Hybrids with state layers: two states a group with prefix caching, one without, more with drafts.
    ("Qwen/Qwen3.5-0.8B", {"version": "0.28.0"}, 10_775, 262_144, 5_788_118, 22.08),
    (
        "nvidia/Qwen3.6-27B-NVFP4",
        {"version": "0.28", "tp": 2, "kv_cache_dtype": "fp8"},
        411,
        262_144,
        619_202,
        2.36,
    ),
    (
        "nvidia/Qwen3.6-27B-NVFP4",
        {"version": "0.21", "kv_cache_dtype": "bfloat16"},
        *(184, 131_072, 141_036, 1.08),
    ),
    (
        "nvidia/Qwen3.6-27B-NVFP4",
        {"version": "0.21", "tp": 4, "kv_cache_dtype": "fp8", "speculative_tokens": 3, "draft_layers": 1},
        *(1212, 262_144, 1_774_963, 6.77),
    ),
    (
        "nvidia/Qwen3.6-35B-A3B-NVFP4",
        {"version": "0.22.0", "kv_cache_dtype": "fp8", "speculative_tokens": 2, "draft_layers": 1},
        *(3275, 262_144, 6_312_658, 24.08),
    ),
    (
        "Qwen/Qwen3.5-122B-A10B",
        {"version": "0.19.0", "kv_cache_dtype": "fp8", "prefix_caching": True},
        448,
        131_072,
        467_712,
        11.79,
    ),
]


@shared
@pytest.mark.parametrize(("name", "settings", "blocks", "length", "tokens", "concurrency"), PRINTED)
def test_tokens_and_concurrency_are_those_that_vllm_printed(
    name, settings, blocks, length, tokens, concurrency
):
    cache = KvCache(load(name), **settings)
    assert cache.tokens(blocks, length) == tokens
    assert cache.concurrency(blocks, length) == pytest.approx(concurrency, abs=0.006)


# Config, settings, what the log called "Available KV cache memory" (GiB), blocks of the log.
SIZED = [
    ("google/gemma-2-9b-it", {"version": "0.19.0"}, 54.12, 21_110),
    ("google/gemma-3-4b-it", {"version": "0.19.0"}, 62.51, 204_817),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {"version": "0.19.0", "tp": 4}, 16.75, 91_495),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", {"version": "0.7.3", "generation": "V0"}, 59.75, 116_023),
    ("Qwen/Qwen3.5-0.8B", {"version": "0.28.0"}, 67.08, 10_775),
    ("nvidia/Qwen3.6-27B-NVFP4", {"version": "0.25.1", "tp": 2, "kv_cache_dtype": "fp8", "speculative_tokens": 2,
                                  "draft_layers": 1}, 14.68, 565),
]  # fmt: skip


@shared
@pytest.mark.parametrize(("name", "settings", "available", "blocks"), SIZED)
def test_blocks_of_the_memory_that_vllm_had(name, settings, available, blocks):
    cache = KvCache(load(name), **settings)
    slack = 0.005 * GIB / cache.bytes_per_block + 1
    assert abs(cache.num_blocks(available * GIB) - blocks) <= slack


# Config, settings, length, need (GiB), available (GiB), vLLM's estimate.
CHECKED = [
    ("Qwen/Qwen2.5-7B-Instruct", {}, 118_000, 6.3, 6.11, 114_432),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", {"version": "0.11.0"}, 262_144, 24.0, 8.04, 87_840),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", {"version": "0.10.1"}, 262_144, 62.0, 48.66, 205_728),
    (
        "MiniMaxAI/MiniMax-M2.7",
        {"version": "0.29.1", "tp": 2, "dtype": "bfloat16"},
        196_608,
        23.25,
        22.5,
        190_272,
    ),
    (
        "deepseek-ai/DeepSeek-V4-Flash",
        {"version": "0.22", "tp": 2, "kv_cache_dtype": "fp8", "batched_tokens": 16_384},
        *(30_000, 6.66, 5.44, 13_528),
    ),
    (
        "deepseek-ai/DeepSeek-V4-Flash",
        {"kv_cache_dtype": "fp8", "batched_tokens": 8192},
        131_072,
        3.79,
        3.12,
        7740,
    ),
]


@shared
@pytest.mark.parametrize(("name", "settings", "length", "need", "available", "estimate"), CHECKED)
def test_need_and_estimated_length_are_those_that_vllm_printed(
    name, settings, length, need, available, estimate
):
    cache = KvCache(load(name), **settings)
    assert cache.need_bytes(length) / GIB == pytest.approx(need, abs=0.006)
    assert not cache.fits(available * GIB, length)
    # The printed memory is rounded: what its last digit may hide, and one block.
    low = cache.estimated_max_len((available - 0.005) * GIB, length)
    high = cache.estimated_max_len((available + 0.005) * GIB, length)
    assert low - cache.block_size <= estimate <= high + cache.block_size


@shared
@pytest.mark.parametrize(
    ("name", "settings", "block"),
    [
        ("nvidia/Qwen3.6-27B-NVFP4", {"tp": 2, "kv_cache_dtype": "fp8"}, 1568),
        ("nvidia/Qwen3.6-27B-NVFP4", {"tp": 4, "kv_cache_dtype": "fp8", "speculative_tokens": 3}, 1600),
        ("nvidia/Qwen3.6-27B-NVFP4", {"kv_cache_dtype": "bfloat16"}, 784),
        ("nvidia/Qwen3.6-27B-NVFP4", {"kv_cache_dtype": "bfloat16", "speculative_tokens": 7}, 832),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", {"kv_cache_dtype": "fp8", "speculative_tokens": 2}, 2128),
        ("Qwen/Qwen3.5-0.8B", {}, 544),
        (
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
            {"kv_cache_dtype": "fp8", "mamba_state_dtype": "float32"},
            4176,
        ),
        ("nvidia/Qwen3.6-27B-NVFP4", {"kv_cache_dtype": "bfloat16", "block_size": 4096}, 4096),
        ("nvidia/Qwen3.6-27B-NVFP4", {"kv_cache_dtype": "bfloat16", "block_size": 32}, 784),
    ],
)
def test_block_size_of_hybrids_covers_a_state(name, settings, block):
    assert KvCache(load(name), version="0.21", **settings).block_size == block
    assert hybrid_block_size(0, 100, None) == 16


# Published shapes; what a layer keeps of a request and what a token takes, both counted by hand from vllm-memory 6.1.
HYBRIDS = {
    "jamba-v0.1": (
        model(model_type="jamba", attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4),
        # conv: 8192 x 3, state: 8192 x 16, both in 16 bits.
        8192 * (3 + 16) * 2,
        {"layers": 4, "token": 2 * 8 * 128 * 2},
        80,
    ),
    "minimax-text-01": (
        model(
            model_type="minimax_text_01",
            hidden_size=6144,
            num_hidden_layers=80,
            num_attention_heads=64,
            head_dim=128,
            attn_type_list=[*[0] * 7, 1] * 10,
        ),
        # The engine V1 keeps it in the model's dtype.
        64 * 128 * 128 * 2,
        {"layers": 10, "token": 2 * 8 * 128 * 2},
        512,
    ),
    "falcon-h1-7b": (
        model(
            model_type="falcon_h1",
            hidden_size=3072,
            num_hidden_layers=44,
            num_attention_heads=12,
            num_key_value_heads=2,
            head_dim=128,
            mamba_d_ssm=3072,
            mamba_n_heads=24,
            mamba_d_head=128,
            mamba_d_state=256,
            mamba_n_groups=1,
            mamba_d_conv=4,
        ),
        (3072 + 2 * 256) * 3 * 2 + 24 * 128 * 256 * 2,
        {"layers": 44, "token": 2 * 2 * 128 * 2},
        1568,
    ),
    "kimi-linear-48b": (
        model(
            model_type="kimi_linear",
            hidden_size=2304,
            num_hidden_layers=27,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            qk_nope_head_dim=128,
            v_head_dim=128,
            linear_attn_config={
                "kda_layers": [layer for layer in range(1, 27) if layer % 4],
                "num_heads": 32,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        ),
        # Queries, keys and values are convolved; the recurrent state is in 32 bits.
        3 * 4096 * 3 * 2 + 32 * 128 * 128 * 4,
        {"layers": 7, "token": 576 * 2},
        1888,
    ),
    # Its block size is said in vLLM's issue 24280.
    "nemotron-nano-9b-v2": (
        model(
            model_type="nemotron_h",
            hidden_size=4480,
            num_hidden_layers=56,
            num_attention_heads=40,
            head_dim=128,
            hybrid_override_pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
            mamba_num_heads=128,
            mamba_head_dim=80,
            ssm_state_size=128,
            n_groups=8,
            conv_kernel=4,
        ),
        (128 * 80 + 2 * 8 * 128) * 3 * 2 + 128 * 80 * 128 * 2,
        {"layers": 4, "token": 2 * 8 * 128 * 2},
        672,
    ),
}


@pytest.mark.parametrize("name", sorted(HYBRIDS))
def test_states_and_tokens_of_hybrid_families(name):
    arch, state, attention, block = HYBRIDS[name]
    cache = KvCache(arch, version="0.19.0")
    assert cache.block_size == block
    assert {group.spec.state for group in cache.groups if group.spec.kind == "state"} == {state}
    growing = [group for group in cache.groups if group.spec.kind != "state"]
    assert {group.spec.token for group in growing} == {attention["token"]}
    assert sum(len(group.layers) for group in growing) == attention["layers"]
    # A page holds a state, and no block of 16 tokens less would.
    assert (block - 16) * attention["token"] < state <= block * attention["token"]


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [
        ({"version": "0.11.0"}, 1),
        ({"version": "0.14.0"}, 1),
        ({"version": "0.14.0", "prefix_caching": True}, 16),
        ({"version": "0.19.0", "prefix_caching": False}, 1),
        ({"version": "0.19.0", "prefix_caching": True}, 2),
        ({"version": "0.27.1"}, 1),
        ({"version": "0.28"}, 2),
        ({}, 2),
        ({"version": "0.19.0", "speculative_tokens": 2}, 3),
        ({"version": "0.20.2", "speculative_tokens": 2}, 4),
        ({"version": "0.19.0", "mamba_mode": "all"}, 16),
        ({"version": "0.19.0", "prefix_caching": True, "speculative_tokens": 3}, 5),
    ],
)
def test_states_of_a_request_by_version_and_mode(settings, blocks):
    arch = model(model_type="bamba", attn_layer_indices=[9, 18, 27], mamba_n_heads=128)
    cache = KvCache(arch, block_size=1024, **settings)
    assert cache.block_size == 1024
    states = [group for group in cache.report(GIB, 16_384)["groups"] if group["kind"] == "state"]
    assert {group["blocks_per_request"] for group in states} == {blocks}


def window(**fields):
    types = ["full_attention", *["sliding_attention"] * 4] * 4
    return model(model_type="x", num_hidden_layers=20, layer_types=types, sliding_window=1024, **fields)


def test_groups_by_version():
    assert [group_size([20, 24], version) for version in ("0.11.0", "0.12", "0.17.1", "0.18", None)] == [
        *(20, 24, 24, 24, 24)
    ]
    assert [group_size([20, 26], version) for version in ("0.11.0", "0.17.1", "0.18")] == [20, 20, 26]
    # Before 0.9.1 there are no groups: window layers keep every token.
    assert len(KvCache(window(), version="0.9.0").groups) == 1
    assert len(KvCache(window(), version="0.10.0").groups) == 5
    assert len(KvCache(window(), version="0.10.0", hybrid_disabled=True).groups) == 1
    assert len(KvCache(window(), version="0.8.5", generation="V0").groups) == 1


def test_both_meanings_of_the_printed_tokens():
    arch = window()
    old, new = KvCache(arch, version="0.20.0"), KvCache(arch, version="0.20.2")
    assert old.tokens(5000, 65_536) == 1000 * 16
    assert new.tokens(5000, 65_536) == int(new.concurrency(5000, 65_536) * 65_536) > 16_000
    assert new.tokens(5000, None) is None
    assert KvCache(arch, version="0.9.0").tokens(5000, 65_536) == 80_000
    assert KvCache(model(), version="0.19", dcp=4, tp=8).tokens(1000, 4096) == 64_000


def test_window_layers_need_more_with_more_batched_tokens():
    needs = [
        KvCache(window(), version="0.25", batched_tokens=tokens).need_bytes(65_536) for tokens in (2048, 8192)
    ]
    assert needs[0] < needs[1]
    # From 0.26 a step in flight counts too.
    late = KvCache(window(), version="0.26", batched_tokens=2048)
    assert late.need_bytes(65_536) > needs[0]
    assert (
        KvCache(window(), version="0.26", batched_tokens=2048, async_scheduling=False).need_bytes(65_536)
        == needs[0]
    )
    full, one = 4096, -(-(1023 + 2048) // 16) + 1
    assert needs[0] == (full + 4 * one) * 4 * 8 * 256 * 2 * 16


def test_context_parallel_divides_a_request():
    arch = latent()
    assert KvCache(arch, dcp=8, tp=8, version="0.20").need_bytes(65_536) == 512 * 16 * 70_272
    assert KvCache(arch, pcp=2, version="0.20").need_bytes(65_536) == 2048 * 16 * 70_272
    assert KvCache(arch, pcp=2, version="0.26").need_bytes(65_536) == 4096 * 16 * 70_272


def test_null_block_is_not_usable_from_029_on():
    arch = model()
    available = 100 * 16 * 131_072
    assert KvCache(arch, version="0.28").fits(available, 1600)
    assert not KvCache(arch, version="0.29").fits(available, 1600)
    assert KvCache(arch, version="0.29").estimated_max_len(available, 4096) == 1584


def test_override_replaces_the_number_of_blocks():
    cache = KvCache(model(), version="0.29")
    assert cache.num_blocks(GIB, override=7) == 7
    assert not cache.fits(1 << 60, 1600, override=100)
    assert cache.fits(0, 1584, override=100)


def test_layers_of_a_draft_model_come_on_top():
    draft = model(num_hidden_layers=1)
    cache = KvCache(model(), version="0.19", draft=draft)
    assert cache.bytes_per_token == 131_072
    assert cache.bytes_per_block == 33 * 4096 * 16
    # An Eagle head beside gpt-oss: 13 full and 12 window layers become two groups of 13.
    types = ["sliding_attention", "full_attention"] * 12
    arch = model(model_type="gpt_oss", num_hidden_layers=24, layer_types=types, sliding_window=128)
    assert [group.width for group in KvCache(arch, version="0.19", draft=draft).groups] == [13, 13]
    assert [group.width for group in KvCache(arch, version="0.11", draft=draft).groups] == [12, 12, 12]


def test_layers_that_share_keys_keep_none():
    types = ["sliding_attention", "full_attention"] * 4
    own = model(model_type="gemma3n_text", num_hidden_layers=8, layer_types=types, sliding_window=512)
    sharing = model(
        model_type="gemma3n_text",
        num_hidden_layers=8,
        layer_types=types,
        sliding_window=512,
        num_kv_shared_layers=4,
    )
    assert KvCache(sharing).bytes_per_block * 2 == KvCache(own).bytes_per_block


def test_layers_of_two_sizes():
    shape = {"head_dim": 256, "num_key_value_heads": 16, "sliding_window": 1024, "hidden_size": 5376}
    types = [*["sliding_attention"] * 5, "full_attention"] * 10
    arch = model(
        model_type="gemma4_text",
        num_hidden_layers=60,
        layer_types=types,
        global_head_dim=512,
        num_global_key_value_heads=4,
        attention_k_eq_v=True,
        **shape,
    )
    cache = KvCache(arch, version="0.27", batched_tokens=2048)
    assert {(group.spec.kind, group.spec.block) for group in cache.groups} == {("sliding", 16), ("full", 32)}
    assert cache.bytes_per_block == 10 * 16 * 16 * 256 * 2 * 2


def test_a_model_without_attention_has_a_block_for_nothing():
    cache = KvCache(model(model_type="bert"))
    assert cache.report(GIB, 512)["num_blocks"] == 1
    assert cache.bytes_per_token == 0
    report = KvCache(model(model_type="mamba2", num_heads=32), version="0.19").report(GIB, 4096)
    assert report["groups"][0]["kind"] == "state"
    assert report["bytes_per_token"] == 0


def test_negative_memory_holds_nothing():
    report = KvCache(model(), version="0.20").report(-GIB, 4096)
    assert (report["num_blocks"], report["tokens"], report["fits"], report["estimated_max_len"]) == (
        0,
        0,
        False,
        0,
    )


@shared
@given(
    st.sampled_from(NAMES),
    st.sampled_from(
        ["0.8.5", "0.9.1", "0.11.0", "0.12", "0.17.1", "0.19.0", "0.20.2", "0.27", "0.29", "0.33", None]
    ),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 80 * GIB),
    st.integers(1, 300_000),
)
def test_laws(name, version, tp, available, length):
    cache = KvCache(load(name), tp=tp, version=version, batched_tokens=2048)
    blocks = cache.num_blocks(available)
    assert blocks * cache.bytes_per_block <= available < (blocks + 1) * cache.bytes_per_block
    longest = cache.estimated_max_len(available, length)
    assert longest <= length
    if longest:
        assert cache.fits(available, longest)
    if longest < length:
        assert not cache.fits(available, longest + 1)
    assert cache.fits(available, length) == (longest == length)
    assert cache.need_bytes(length) <= cache.need_bytes(length + 1)
    json.dumps(cache.report(available, length))
    assert KvCache(load(name), tp=8, version=version).bytes_per_token <= cache.bytes_per_token


def test_a_stage_with_fewer_layers_keeps_less_of_a_block():
    # 27 layers in two stages: 14 and 13.
    arch = architecture(dict(LLAMA, num_hidden_layers=27))
    cache = KvCache(arch, pp=2, version="0.11.0")
    assert [cache.share_of_stage(stage) for stage in (0, 1)] == [1.0, pytest.approx(13 / 14)]
    assert KvCache(arch, version="0.11.0").share_of_stage(0) == 1.0
