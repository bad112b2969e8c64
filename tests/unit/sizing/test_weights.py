# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights per rank: against vLLM's own "Model loading took" lines, and laws that hold for every model."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing_samples import CONFIGS, LLAMA, load, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import (
    architecture,
    layer_list,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.kv_cache import KvCache
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import (
    allocated,
    draft_bytes,
    encoder_split,
    lora_bytes,
    parallel_error,
    parameter_counts,
    pipeline_split,
    weights,
)


def gib(arch, **settings):
    return weights(arch, **settings)["bytes"] / GIB


# What vLLM printed (shared/cases/sizing_dev.jsonl), to the last digit: config, settings, GiB.
REPORTED = [
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.5.4"}, 14.9888),
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.19.0", "dtype": "float32"}, 29.98),
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.19.0", "pp": 2}, 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", {"version": "0.31.0"}, 15.0),
    ("Qwen/Qwen2.5-7B-Instruct", {"version": "0.19.0"}, 14.25),
    ("Qwen/Qwen2.5-7B-Instruct", {"version": "0.19.0", "tp": 4}, 3.55),
    ("Qwen/Qwen2.5-7B-Instruct", {"quantization": "bitsandbytes", "version": "0.7.3"}, 5.43),
    ("Qwen/Qwen2.5-72B-Instruct", {"version": "0.19.0", "tp": 4}, 33.98),
    ("Qwen/Qwen3-8B", {"version": "0.19.0", "tp": 4}, 3.82),
    ("Qwen/Qwen3-30B-A3B", {"version": "0.19.0", "tp": 4}, 14.25),
    ("Qwen/Qwen3-30B-A3B-FP8", {}, 29.09),
    ("Qwen/Qwen1.5-MoE-A2.7B", {"version": "0.19.0"}, 26.67),
    ("Qwen/Qwen3.5-0.8B", {"version": "0.28.0"}, 1.72),
    ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", {"version": "0.19.0", "tp": 2}, 33.88),
    ("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", {"version": "0.19.0", "tp": 4}, 16.96),
    ("RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8", {"version": "0.19.0", "tp": 2}, 12.11),
    (
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        {"version": "0.19.0", "tp": 4, "encoder": "data"},
        11.86,
    ),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"version": "0.19.0", "tp": 2}, 43.51),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {"version": "0.19.0", "tp": 4}, 53.12),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", {"version": "0.19.0"}, 29.43),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", {"version": "0.5.0"}, 29.301),
    ("google/gemma-2-27b-it", {"version": "0.19.0"}, 50.72),
    ("google/gemma-3-4b-it", {"version": "0.19.0"}, 8.58),
    ("google/gemma-3-27b-it", {"version": "0.8.2", "tp": 4}, 13.1665),
    ("google/gemma-4-26B-A4B", {}, 48.5),
    ("nvidia/Gemma-4-31B-IT-NVFP4", {}, 31.04),
    ("openai/gpt-oss-120b", {}, 65.9651),
    ("MiniMaxAI/MiniMax-M2.5", {"tp": 4}, 53.75),
    ("ibm-granite/granite-3.1-8b-instruct", {"version": "0.19.0", "tp": 4}, 3.87),
    ("microsoft/phi-4", {"version": "0.19.0", "tp": 2}, 13.77),
    ("llava-hf/llava-v1.6-mistral-7b-hf", {"version": "0.10.2"}, 14.0786),
]


@shared
@pytest.mark.parametrize(("name", "settings", "reported"), REPORTED)
def test_weights_are_those_that_vllm_reported(name, settings, reported):
    assert gib(load(name), **settings) == pytest.approx(reported, rel=0.006)


@shared
def test_parts_add_up_and_total_fits_the_parameters():
    for path in sorted(CONFIGS.glob("*.json")):
        arch = architecture(json.loads(path.read_text()))
        result = weights(arch, tp=2, version="0.19.0")
        assert result["bytes"] == sum(result["parts"].values()), path.name
        total, active = parameter_counts(arch)
        assert 0 < active <= total, path.name
        assert result["parameters"] == {"total": total, "active": active}


@shared
@given(st.data())
def test_more_ranks_never_need_more_bytes_each(data):
    name = data.draw(st.sampled_from(sorted(path.stem for path in CONFIGS.glob("*.json"))))
    arch = load(name)
    version = data.draw(st.sampled_from([None, "0.7.3", "0.19.0", "0.31.0"]))
    sizes = [weights(arch, tp=tp, version=version)["bytes"] for tp in (1, 2, 4, 8)]
    # What torch's allocator rounds up doesn't shrink with the tensors: at most 1 MiB of each.
    slack = len(layer_list(arch)) * 12 * MIB
    assert all(later <= earlier + slack for earlier, later in pairwise(sizes))
    spread = weights(arch, tp=2, dp=4, expert_parallel=True)["bytes"]
    assert spread <= weights(arch, tp=2)["bytes"] + slack


def test_data_parallel_ranks_share_experts_only():
    moe = architecture(dict(LLAMA, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2))
    one, four = weights(moe), weights(moe, dp=4, expert_parallel=True)
    assert four["parts"]["attention"] == one["parts"]["attention"]
    assert four["parts"]["experts"] == pytest.approx(one["parts"]["experts"] / 4, rel=0.01)
    assert weights(moe, dp=4)["parts"]["experts"] == pytest.approx(four["parts"]["experts"], rel=0.01)
    dense = architecture(LLAMA)
    assert weights(dense, dp=4)["bytes"] == weights(dense)["bytes"]


def test_kv_heads_are_replicated_where_ranks_outnumber_them():
    few = architecture(dict(LLAMA, num_key_value_heads=2))
    eight, two = weights(few, tp=8)["parts"]["attention"], weights(few, tp=2)["parts"]["attention"]
    # Queries and output split on; keys and values of one head stay.
    split = 32 * 2 * 4096 * 4096 * 2
    keys = 32 * 2 * 128 * 4096 * 2
    assert two == pytest.approx(split / 2 + keys, rel=0.02)
    assert eight == pytest.approx(split / 8 + keys, rel=0.02)


def test_vocabulary_is_padded_and_tied_embeddings_are_held_once():
    odd = architecture(dict(LLAMA, vocab_size=50001))
    assert weights(odd, tp=4)["parts"]["embedding"] == allocated(50048 // 4 * 4096 * 2)
    tied = architecture(dict(LLAMA, tie_word_embeddings=True))
    assert weights(tied)["parts"]["lm_head"] == 0
    ends = weights(tied, pp=2)["stages"]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_index_total_decides_over_arithmetic():
    arch = architecture(LLAMA)
    true = 16_060_522_496
    plain, told = weights(arch), weights(arch, checkpoint_bytes=true)
    assert told["source"] == "checkpoint"
    assert told["bytes"] == pytest.approx(plain["bytes"], rel=1e-3)
    assert weights(arch, checkpoint_bytes=true * 2)["bytes"] == pytest.approx(2 * plain["bytes"], rel=0.01)
    # Quantized while loading: the checkpoint is still in 16 bits.
    online = weights(arch, quantization="fp8", checkpoint_bytes=true)
    assert online["bytes"] == pytest.approx(weights(arch, quantization="fp8")["bytes"], rel=1e-3)
    # A GGUF file is what is loaded.
    gguf = weights(arch, quantization="gguf q4_k_m", checkpoint_bytes=4_920_000_000)
    assert gguf["bytes"] == pytest.approx(4.95e9, rel=0.01)


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        (32, 1, [32]),
        (32, 2, [16, 16]),
        (61, 2, [31, 30]),
        (61, 4, [15, 15, 16, 15]),
        (62, 4, [15, 16, 16, 15]),
    ],
)
def test_pipeline_stages(layers, pp, expected):
    assert pipeline_split(layers, pp) == expected


def test_draft_layers_and_towers_are_counted_when_they_are_loaded():
    config = dict(LLAMA, model_type="qwen3_5", num_nextn_predict_layers=1)
    arch = architecture(config)
    assert weights(arch)["parts"]["draft"] == 0
    assert weights(arch, draft=True)["parts"]["draft"] > 200 * MIB
    assert weights(arch, encoder="none")["parts"]["encoder"] == 0
    assert weights(arch, tp=4, encoder="data")["parts"]["encoder"] == weights(arch)["parts"]["encoder"]
    assert encoder_split("mistralai/Pixtral-12B") == "data"
    assert encoder_split("Qwen/Qwen2.5-VL-7B") == "weights"
    assert encoder_split("Qwen/Qwen2.5-VL-7B", "data") == "data"


def test_lora_slots():
    arch = architecture(LLAMA)
    # 41.9 M parameters of rank 16 beside q, k, v, o, gate, up and down of an 8B Llama; its embedding and its head too.
    ends = 2 * 16 * (128256 + 4096)
    assert lora_bytes(arch) == 2 * (41_943_040 + ends)
    assert lora_bytes(arch, max_loras=4, max_lora_rank=32) == 8 * lora_bytes(arch)
    assert lora_bytes(arch, tp=2, fully_sharded=True) == 2 * (41_943_040 // 2 + ends)
    assert lora_bytes(arch) // 2 < lora_bytes(arch, tp=2) < lora_bytes(arch)
    # Until 0.11 an adapter could bring 256 tokens of its own: rows of both, and their whole embeddings.
    older = lora_bytes(arch, version="0.10.2") - lora_bytes(arch, version="0.19.0")
    assert older == 2 * 2 * (256 * 16 + 256 * 4096)
    # Qwen's classes offer neither.
    assert lora_bytes(architecture(dict(LLAMA, model_type="qwen2"))) == 2 * 41_943_040


def test_lora_slots_of_experts_came_with_0111():
    fields = dict(
        LLAMA, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=1024
    )
    arch = architecture(fields)
    # fused_moe.py of vllm/lora: gate, up and down of each expert and of the rank, shared out over tp; the router's beside.
    attention = 32 * 16 * (3 * 4096 + 4096 + 2048 + 4096 + 4096)
    router = 32 * 16 * (4096 + 8)
    expert = 32 * 16 * 8 * (2 * (4096 + 1024) + 1024 + 4096)
    assert lora_bytes(arch, version="0.11.0") == 2 * (attention + router)
    assert lora_bytes(arch, version="0.11.1") == 2 * (attention + router + expert)
    assert lora_bytes(arch, version="0.11.1", expert_parallel=True) == lora_bytes(arch, version="0.11.0")
    more = lora_bytes(arch, 2, version="0.11.1") - lora_bytes(arch, 2, version="0.11.0")
    assert more == 2 * 32 * 16 * 8 * (2 * (4096 + 512) + 512 + 4096)


# An EAGLE3 head for an 8B Llama (SpecForge's llama3-8B-eagle3.json).
EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
}


def test_a_draft_head_is_sized_as_its_file():
    target, head = architecture(LLAMA), architecture(EAGLE3)
    # EAGLE3-LLaMA3.1-Instruct-8B's file of 850 MB has no embedding; vLLM lets the head use the target's.
    assert draft_bytes(head, target) == pytest.approx(850e6, rel=0.005)
    assert draft_bytes(head, target, tp=4) == pytest.approx(850e6 / 4 + 0.75 * 2 * 3 * 4096**2, rel=0.01)
    # Behind a pipeline, or for a target of another width, it loads its own.
    own = 128256 * 4096 * 2
    assert draft_bytes(head, target, pp=2) - draft_bytes(head, target) == pytest.approx(own, rel=0.001)
    wider = architecture(dict(LLAMA, hidden_size=8192))
    assert draft_bytes(head, wider) == draft_bytes(head, target, pp=2)
    # 202 700 416 parameters (a published head for Qwen3-4B) hold two maps between the vocabularies, which no rank keeps.
    small = architecture(dict(EAGLE3, hidden_size=2560, intermediate_size=9728, vocab_size=151936))
    total, _active = parameter_counts(small)
    assert total - 151936 * 2560 == 202_700_416 - 32000 - 151936


def test_a_target_and_its_draft_head_are_what_vllm_reported():
    # "Model loading took 15.8114 GiB" of an 8B Llama with EAGLE3-LLaMA3.1-Instruct-8B, the embedding shared (pull request
    # 166 of speculators, October 2025); "Using max model len 131072" is said of the head too.
    target = architecture(dict(LLAMA, rope_scaling={"rope_type": "llama3", "factor": 8.0}))
    head = architecture(dict(EAGLE3, max_position_embeddings=131072))
    size = weights(target, version="0.11.1")["bytes"] + draft_bytes(head, target, version="0.11.1")
    # Beside it a map of 32000 64-bit tokens.
    assert (size + 32000 * 8) / GIB == pytest.approx(15.8114, abs=0.0002)


def test_a_draft_model_is_split_as_its_target():
    target = architecture(LLAMA)
    draft = architecture(dict(LLAMA, num_hidden_layers=4))
    assert draft_bytes(draft, target) == weights(draft)["bytes"]
    assert draft_bytes(draft, target, tp=4) == weights(draft, tp=4)["bytes"]


def test_heads_of_the_first_eagle_and_of_speculators():
    # EagleLlamaForCausalLM joins embedding and hidden state before its layer and uses the target's lm_head.
    first = architecture(dict(EAGLE3, architectures=["EagleLlamaForCausalLM"], draft_vocab_size=None))
    parts = weights(first)["parts"]
    assert parts["draft"] == 2 * 4096 * 4096 * 2
    assert parts["lm_head"] == 0
    nested = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "transformer_layer_config": {key: EAGLE3[key] for key in EAGLE3 if key != "architectures"},
    }
    assert weights(architecture(nested))["parts"] == weights(architecture(EAGLE3))["parts"]


def test_heads_that_ranks_do_not_divide():
    arch = architecture(LLAMA)
    assert parallel_error(arch, 8) is None
    expected = "Total number of attention heads (32) must be divisible by tensor parallel size (3)."
    assert parallel_error(arch, 3) == expected


@given(st.integers(1, 1 << 36), st.sampled_from([None, "0.19.0", "0.31.0"]))
def test_allocator_never_books_less_nor_two_mebibytes_more(size, version):
    assert size <= allocated(size, version) < size + 2 * MIB


def test_attention_of_a_tower_stays_whole_where_ranks_do_not_divide_its_heads():
    # InternViT-6B: 25 heads. vLLM prints 21.67 GiB a rank for InternVL3-78B over 8 GPUs.
    vision = {
        "model_type": "intern_vit_6b",
        "hidden_size": 3200,
        "intermediate_size": 12800,
        "num_hidden_layers": 45,
        "num_attention_heads": 25,
        "patch_size": 14,
    }
    arch = architecture({"model_type": "internvl_chat", "vision_config": vision, "llm_config": dict(LLAMA)})
    tower = weights(arch, tp=8)["parts"]["encoder"] - weights(arch, tp=8, encoder="none")["parts"]["encoder"]
    attention = 45 * 4 * 3200**2 * 2
    assert tower > attention
    whole = weights(arch)["parts"]["encoder"]
    assert tower == pytest.approx(attention + (whole - attention) / 8, rel=0.001)


def test_a_checkpoint_in_32_bits_is_run_in_16():
    # vLLM's _resolve_auto_dtype casts float32 down; only --dtype float32 keeps it.
    half, single = (architecture(dict(LLAMA, torch_dtype=dtype)) for dtype in ("float16", "float32"))
    assert weights(single) == weights(half)
    assert weights(single, dtype="float32")["bytes"] == pytest.approx(2 * weights(half)["bytes"], rel=0.001)
    caches = [KvCache(arch).bytes_per_token for arch in (half, single)]
    assert caches[0] == caches[1]
    # The files are twice as large, and tell the same.
    files = 4 * parameter_counts(half)[0]
    assert weights(single, checkpoint_bytes=files)["bytes"] == pytest.approx(
        weights(half)["bytes"], rel=0.001
    )
    assert architecture(dict(LLAMA, model_type="gemma3_text", torch_dtype="float32"))["dtype"] == "bfloat16"


def test_a_download_that_was_cut_does_not_shrink_the_model():
    arch = architecture(LLAMA)
    whole = weights(arch)
    cut = weights(arch, checkpoint_bytes=whole["bytes"] // 3)
    assert (cut["bytes"], cut["source"]) == (whole["bytes"], "arithmetic")
    assert "the files are smaller than the config says: the config counts" in cut["assumptions"]
