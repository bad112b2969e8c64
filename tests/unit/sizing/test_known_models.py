# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundled table: every row is as large as its makers say, and every name leads to its own model or to none."""

from __future__ import annotations

import json
import re

import pytest
from sizing_samples import CONFIGS, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import known_model_configs
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.known_models import (
    known_model,
    known_names,
    nearest_models,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.kv_pages import cache_dtype
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_fields import sized_config
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_names import (
    parameters_in_billions,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.quantization import quantization_plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import parameter_counts, weights

# Billions of parameters by the model cards (or the Hub's count) of those whose name rounds them or has none.
COUNTS = (
    (r"salamandra-2b", 2.25),
    (r"salamandra-7b", 7.77),
    (r"(Llama-2|CodeLlama|lmsys/vicuna)-7b", 6.74),
    (r"Llama-3\.2-1B", 1.24),
    (r"Llama-3\.2-3B", 3.21),
    (r"Falcon3-1B", 1.67),
    (r"Falcon3-3B", 3.23),
    (r"Falcon3-7B", 7.46),
    (r"Falcon3-10B", 10.3),
    (r"mistralai/(Mistral|mathstral)-7B|unsloth/Mistral-7B|zephyr-7b-beta", 7.25),
    (r"Mistral-Small-Instruct-2409", 22.2),
    (r"Devstral-Small-25", 23.6),
    (r"pixtral-12b|Pixtral-12B", 12.7),
    (r"command-r7b", 8.03),
    (r"ERNIE-4\.5-21B", 21.8),
    (r"Falcon-H1-3B", 3.15),
    (r"Falcon-H1-7B", 7.59),
    (r"falcon-mamba-7b", 7.27),
    (r"granite-4\.0-h-1b", 1.5),
    (r"granite-4\.0-h-tiny", 7.0),
    (r"granite-4\.0-h-small", 32.0),
    (r"Hunyuan-A13B", 80.0),
    # 850 MB in 16 bits, by its file, and the embedding of its target, which that leaves out.
    (r"EAGLE3-LLaMA3\.1-Instruct-8B", 0.425 + 128256 * 4096 / 1e9),
    (r"Llama-3\.2-11B-Vision", 10.6),
    (r"Llama-3\.2-90B-Vision", 88.8),
    (r"MiniCPM-V-2_6", 8.1),
    (r"nomic-embed-text", 0.137),
    (r"Qwen1\.5-7B|Qwen/Qwen-7B", 7.72),
    (r"Qwen/Qwen-1_8B", 1.84),
    (r"Nemotron-Super-49B", 49.9),
    # The thinker, which vLLM serves: 16.73 GiB measured on a GPU.
    (r"Qwen2\.5-Omni-7B", 8.98),
    (r"R1-Distill-Qwen-1\.5B", 1.78),
    (r"R1-Distill-Qwen-7B", 7.61),
    (r"R1-Distill-Qwen-14B", 14.7),
    (r"Qwen(2|2\.5)-(Coder-|Math-)?7B", 7.61),
    (r"Qwen2\.5-(Coder-)?14B", 14.7),
    (r"Qwen3-14B", 14.8),
    (r"Baichuan2-7B", 7.5),
    (r"google/(code)?gemma-7b", 8.54),
    (r"google/gemma-2b", 2.51),
    (r"gemma-2-2b", 2.61),
    (r"(?i:glm-(4|z1)-9b)", 9.4),
    # By OpenAI's own table: 1550 M and 809 M.
    (r"whisper-large-v3$", 1.55),
    (r"whisper-large-v3-turbo$", 0.809),
    (r"chatglm3-6b", 6.24),
    (r"gpt-oss-(safeguard-)?20b", 20.9),
    (r"granite-3\.[123]-2b", 2.53),
    (r"granite-3\.0-3b-a800m", 3.3),
    (r"granite-vision-3\.3-2b", 2.98),
    (r"internlm2(_5)?-(chat-)?7b", 7.74),
    (r"MiniCPM-2B", 2.72),
    (r"Nemotron-3-Nano-30B-A3B", 31.6),
    (r"OLMo-1B", 1.18),
    (r"OLMo-2-1124-7B", 7.3),
    (r"OLMo-2-1124-13B", 13.7),
    (r"phi-1_5", 1.42),
    (r"Qwen3-Coder-Next", 80.0),
    (r"stablelm-(3b|zephyr-3b)|stable-code-3b", 2.8),
    (r"stablelm-2-zephyr-1_6b", 1.64),
    (r"starcoder2-15b", 16.0),
    (r"bge-(m3|reranker-v2-m3)", 0.568),
    (r"multilingual-e5-large", 0.56),
    (r"gemma-3-4b|medgemma-4b", 4.3),
    (r"llava-v1\.6-mistral-7b", 7.57),
    # 3.4 of the language model and 0.4 of the tower.
    (r"Ministral-3-3B", 3.85),
    (r"openai-community/gpt2$", 0.124),
    (r"Qwen2\.5-VL-3B", 3.75),
    (r"Qwen2\.5-VL-7B", 8.29),
    (r"Qwen2\.5-VL-32B", 33.5),
    (r"Qwen3-VL-2B", 2.13),
    (r"Qwen3-VL-4B", 4.44),
    (r"Qwen3-VL-8B", 8.77),
    (r"Qwen3-VL-30B-A3B", 31.1),
    (r"Qwen3-VL-32B", 33.4),
    # 1.72 GiB measured on a GPU, less 0.125 GiB for the table of cosines.
    (r"Qwen3\.5-0\.8B", 0.86),
    (r"arctic-embed-m", 0.109),
    (r"falcon-40b", 41.3),
)
# Whole numbers of a name that no other source refines.
ROUNDED = {"Qwen/Qwen3.5-9B": 9.0}


def expected_billions(name):
    written = next((count for pattern, count in COUNTS if re.search(pattern, name)), None)
    return written or parameters_in_billions(name)


@pytest.mark.parametrize("name", known_names())
def test_every_row_has_the_parameters_its_makers_count(name):
    known = known_model(name)
    total, active = parameter_counts(architecture(known["config"]))
    if name in ROUNDED:
        assert round(total / 1e9) == ROUNDED[name]
    else:
        assert total / 1e9 == pytest.approx(expected_billions(name), rel=0.03)
    assert 0 < active <= total
    assert known["source"]


@pytest.mark.parametrize("name", known_names())
def test_a_repository_finds_itself(name):
    known = known_model(name)
    # Meta's repositories have two names each; what they lead to is the same.
    assert known["name"].lower().replace("meta-llama-", "llama-") == name.lower().replace(
        "meta-llama-", "llama-"
    )
    assert known["assumptions"] == []


def test_names_are_unique():
    names = [name.lower() for name in known_names()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in names)


def test_rows_are_distinct_and_have_no_field_that_isnt_read():
    configs = [row[1] for row in known_model_configs.NESTED]
    rows = [json.dumps(known_model(name)["config"], sort_keys=True) for name in known_names()]
    assert len(set(rows)) == len(known_model_configs.FLAT) + len(known_model_configs.NESTED)
    assert configs
    for name in known_names():
        config = known_model(name)["config"]
        assert sized_config(config) == config


# Where the shared config is wrong: a report of this model (vLLM 0.19.0) runs with 8192 tokens, the length of its class.
CORRECTED = {"google/gemma-7b": {"max_position_embeddings": 8192}}


@shared
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_every_shared_config_has_its_row(path):
    name = path.stem.replace("__", "/")
    config = {**json.loads(path.read_text()), **CORRECTED.get(name, {})}
    given, known = architecture(config), architecture(known_model(name)["config"])
    # A row may know the sizes of a tower which the shared config leaves out.
    apart = ("quantization", "assumptions")
    assert {key: value for key, value in known.items() if key not in apart} == {
        key: value for key, value in given.items() if key not in apart
    }
    if given["quantization"] is None:
        # What quantizes it, if anything does, stands beside the config.json.
        return
    assert cache_dtype("auto", known, 2) == cache_dtype("auto", given, 2)
    planned, told = (quantization_plan(None, arch, None, []) for arch in (known, given))
    if planned.ignored or planned.patterns:
        # The shared configs leave out the lists of what isn't quantized.
        assert not told.ignored | frozenset(told.patterns)
        assert planned.name == told.name
        assert planned.groups == told.groups
        assert told.roles.items() <= planned.roles.items()
    else:
        assert planned == told
        assert weights(known, tp=2)["bytes"] == weights(given, tp=2)["bytes"]


def test_what_nvidia_quantizes_for_fp8_kv_keeps_its_keys_so():
    names = [name for name in known_names() if re.match(r"nvidia/.*(NVFP4|FP8)", name)]
    plain = [
        name
        for name in names
        if cache_dtype("auto", architecture(known_model(name)["config"]), 2).name != "fp8"
    ]
    # Its config.json tells no scheme, and that is what vLLM reads.
    assert plain == ["nvidia/Qwen3.6-35B-A3B-NVFP4"]


# What is deployed -> (the repository of its row, quant_method or None).
FOUND = [
    ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", None),
    ("qwen/qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct", None),
    ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", None),
    ("  Qwen/Qwen3-8B ", "Qwen/Qwen3-8B", None),
    ("gpt2", "openai-community/gpt2", None),
    # copies
    ("unsloth/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("NousResearch/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B", None),
    ("NousResearch/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-chat-hf", None),
    # quantized
    ("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B", "awq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B-Instruct", "gptq"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-7B-Instruct", "gptq"),
    ("TheBloke/Llama-2-13B-chat-GPTQ", "meta-llama/Llama-2-13b-chat-hf", "gptq"),
    ("casperhansen/llama-3.3-70b-instruct-awq", "meta-llama/Llama-3.3-70B-Instruct", "awq"),
    ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B", "compressed-tensors"),
    ("RedHatAI/Qwen3-8B-FP8-dynamic", "Qwen/Qwen3-8B", "compressed-tensors"),
    ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "meta-llama/Llama-3.1-8B-Instruct", "fp8"),
    ("nvidia/Llama-3.3-70B-Instruct-FP4", "meta-llama/Llama-3.3-70B-Instruct", "modelopt"),
    ("nvidia/Qwen3-30B-A3B-NVFP4", "Qwen/Qwen3-30B-A3B", "modelopt"),
    ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B-Instruct", "bitsandbytes"),
    ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "Qwen/Qwen3-14B", "bitsandbytes"),
    ("Intel/Qwen3-8B-int4-AutoRound", "Qwen/Qwen3-8B", "auto-round"),
    ("QuantTrio/Qwen3-235B-A22B-Instruct-2507-AWQ", "Qwen/Qwen3-235B-A22B-Instruct-2507", "awq"),
    ("QuantTrio/DeepSeek-V3.1-AWQ", "deepseek-ai/DeepSeek-V3.1", "awq"),
    ("unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M", "Qwen/Qwen3-30B-A3B", "gguf"),
    ("/models/Llama-3.1-8B-Instruct-Q5_K_M.gguf", "meta-llama/Llama-3.1-8B-Instruct", "gguf"),
    ("/models/Qwen3-32B-UD-Q4_K_XL-00001-of-00002.gguf", "Qwen/Qwen3-32B", "gguf"),
    ("unsloth/gpt-oss-20b-BF16", "openai/gpt-oss-20b", None),
    ("unsloth/DeepSeek-V3-bf16", "deepseek-ai/DeepSeek-V3", None),
    ("amd/Llama-3.1-70B-Instruct-FP8-KV", "nvidia/Llama-3.1-70B-Instruct-FP8", "modelopt"),
    ("nvidia/DeepSeek-R1-FP4-v2", "deepseek-ai/DeepSeek-R1", "modelopt"),
    ("google/gemma-3-27b-it-qat-q4_0-unquantized", "google/gemma-3-27b-it", None),
    ("cyankiwi/Qwen3-32B-AWQ-4bit", "Qwen/Qwen3-32B", "compressed-tensors"),
    # rows of their own
    ("Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-30B-A3B-FP8", "fp8"),
    ("openai/gpt-oss-120b", "openai/gpt-oss-120b", "mxfp4"),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1-0528", "fp8"),
    # published as a tuned model only
    ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct", None),
    ("Qwen/Qwen3-VL-32B", "Qwen/Qwen3-VL-32B-Instruct", None),
    ("Qwen3-VL-30B-A3B-AWQ", "Qwen/Qwen3-VL-30B-A3B-Instruct", "awq"),
    ("llava-1.5-7b", "llava-hf/llava-1.5-7b-hf", None),
    # Llama's generation in other spellings
    ("Llama3.1-8B-instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("llama2-70b-chat", "meta-llama/Llama-2-70b-chat-hf", None),
    ("meta-llama/Llama-3_3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", None),
    ("meta-llama3-8b-instruct", "meta-llama/Meta-Llama-3-8B-Instruct", None),
    ("/models/llama3.3-70b-fp8", "meta-llama/Llama-3.3-70B-Instruct", "fp8"),
    # paths and URIs
    ("/models/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("/mnt/models/Meta-Llama-3.1-8B-Instruct/", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("./Qwen3-8B", "Qwen/Qwen3-8B", None),
    (r"C:\models\Qwen3-8B", "Qwen/Qwen3-8B", None),
    ("/models/Qwen3-8B/config.json", "Qwen/Qwen3-8B", None),
    ("/models/Qwen3-8B/snapshot-1", "Qwen/Qwen3-8B", None),
    ("/cache/hub/models--meta-llama--Meta-Llama-3-8B/snapshots/0e9e39f249a16976918f6564b8830bc894c89659", "meta-llama/Meta-Llama-3-8B", None),
    ("s3://bucket/llm/Meta-Llama-3.1-8B-Instruct/", "meta-llama/Llama-3.1-8B-Instruct", None),
    ("gs://bucket/Qwen3-8B", "Qwen/Qwen3-8B", None),
    ("oci://registry.example:5000/llm/qwen3-8b:v1", "Qwen/Qwen3-8B", None),
    ("oci://registry.example/qwen3-8b@sha256:0e9e39f249a1", "Qwen/Qwen3-8B", None),
    ("pvc://models/Qwen3-8B", "Qwen/Qwen3-8B", None),
    ("hf://meta-llama/Llama-3.3-70B-Instruct:abc123", "meta-llama/Llama-3.3-70B-Instruct", None),
    ("hf://Qwen/Qwen3-8B?revision=main", "Qwen/Qwen3-8B", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "repository", "method"), FOUND)
def test_what_is_deployed_is_found(name, repository, method):
    known = known_model(name)
    assert known is not None
    assert known["name"] == repository
    assert (known["config"].get("quantization_config") or {}).get("quant_method") == method
    architecture(known["config"])


@pytest.mark.parametrize(
    "name",
    [
        # another generation, size, context or kind
        "Qwen/Qwen2.5-7B-VL",
        "Qwen/Qwen2.5-6B-Instruct",
        "Qwen/Qwen4-8B",
        "meta-llama/Llama-3.1-9B",
        "gradientai/Llama-3-8B-Instruct-262k",
        "meta-llama/Llama-3.4-70B",
        "meta-llama/Llama-33-70B",
        "mistralai/Mistral-7B",
        "Qwen/Qwen2.5-VL-14B",
        "Qwen/Qwen2.5-7B-Instruct-1M-long",
        "Qwen/Qwen3-8B-Coder",
        # changed by somebody: its vocabulary or layers may be others
        "someone/Llama-3.1-8B-Instruct-merged",
        "/models/Llama-3.1-8B/my-finetune-7b",
        "s3://models/Qwen3-8B/Qwen3-8B-pruned-6B",
        # parts that quantizers use, without a quantization
        "Qwen/Qwen3-8B-dynamic",
        "Qwen/Qwen3-8B-128g",
        # an owner is no model
        "gpt2/other",
        "Qwen3-8B/other",
        # nothing that names one
        "/mnt/models",
        "/mnt/models/",
        "s3://bucket/",
        "model",
        "",
        "   ",
        "-AWQ",
        "AWQ",
        "hf://",
        ":::",
        "/",
        "x" * 5000,
        "-awq" * 500,
        None,
        7,
    ],
)
def test_what_isnt_known_is_nothing(name):
    assert known_model(name) is None
    assert isinstance(nearest_models(name), list)


def test_contexts_of_like_names_arent_mixed_up():
    lengths = {
        name: known_model(name)["config"]["max_position_embeddings"]
        for name in (
            "meta-llama/Meta-Llama-3-8B-Instruct",
            "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-7B-Instruct-1M",
            "Qwen/Qwen3-30B-A3B",
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            "microsoft/Phi-3-mini-4k-instruct",
            "microsoft/Phi-3-mini-128k-instruct",
            "google/gemma-2b-it",
            "Qwen/QwQ-32B",
            "Qwen/QwQ-32B-Preview",
            "mistralai/Mistral-7B-Instruct-v0.1",
        )
    }
    assert list(lengths.values()) == [
        8192,
        131072,
        32768,
        1010000,
        40960,
        262144,
        4096,
        131072,
        *(8192, 40960, 32768, 32768),
    ]


def test_metas_own_fp8_checkpoint_is_not_what_others_quantize():
    # Attention, the first and the last layer are in 16 bits: 57.75 GiB a rank (vLLM issue 6746).
    meta, others = (
        known_model(f"{owner}/Meta-Llama-3.1-405B-Instruct-FP8") for owner in ("meta-llama", "neuralmagic")
    )
    assert (meta["guessed"], others["guessed"]) == (False, True)
    assert others["name"] == "meta-llama/Meta-Llama-3.1-405B-Instruct"
    sizes = [
        weights(architecture(known["config"]), tp=8, version="0.5.3")["bytes"] / (1 << 30)
        for known in (meta, others)
    ]
    assert sizes[0] == pytest.approx(57.75, rel=0.02)
    assert sizes[1] < 0.9 * 57.75


@pytest.mark.parametrize(
    ("name", "guessed"),
    [
        ("someone/Qwen3-8B-FP8", True),
        ("someone/Qwen3-8B-GGUF:Q4_K_M", True),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", True),
        ("someone/Qwen3-8B", False),
        # In 16 bits nothing is left to guess.
        ("unsloth/DeepSeek-V3-bf16", False),
        ("Qwen/Qwen3-30B-A3B-FP8", False),
    ],
)
def test_a_quantization_by_name_is_marked_as_guessed(name, guessed):
    assert known_model(name)["guessed"] is guessed


def test_what_was_concluded_from_a_name_is_said():
    assert known_model("RedHatAI/Qwen3-8B-quantized.w4a16")["assumptions"] == [
        "Qwen3-8B-quantized.w4a16 is taken for Qwen/Qwen3-8B quantized as its name says (INT4 in groups of 128); its own"
        " config may differ"
    ]
    assert known_model("unsloth/Qwen3-8B")["assumptions"] == [
        "unsloth/Qwen3-8B is taken for a copy of Qwen/Qwen3-8B"
    ]
    assert known_model("Qwen/Qwen3-8B")["assumptions"] == []
    assert known_model("meta-llama/Llama-3.3-70B")["assumptions"] == [
        "Llama-3.3-70B is taken for meta-llama/Llama-3.3-70B-Instruct"
    ]
    assert known_model("llama2-70b-chat")["assumptions"] == [
        "llama2-70b-chat is taken for meta-llama/Llama-2-70b-chat-hf"
    ]
    assert known_model("meta-llama/Llama-2-70b-chat")["assumptions"] == []


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("Qwen/Qwen3-32B-AWQ", 4.3),
        ("x/Qwen3-32B-GPTQ-Int8", 8.3),
        ("x/Qwen3-32B-FP8", 8.1),
        ("Qwen/Qwen3-32B-FP8", 8.1),
        ("x/Qwen3-32B-quantized.w8a8", 8.1),
        ("x/Qwen3-32B-bnb-4bit", 4.5),
        ("x/Qwen3-32B-8bit", 8.1),
        ("x/Qwen3-32B-w4a16-g128", 4.3),
        ("x/Qwen3-32B-GGUF:Q8_0", 8.5),
        ("x/Qwen3-32B-BF16", 16.0),
    ],
)
def test_the_quantization_of_a_name_is_what_sizing_counts(name, bits):
    arch = architecture(known_model(name)["config"])
    total = parameter_counts(arch)[0]
    # Embeddings and lm_head, 5 % of the parameters, stay in 16 bits but in a GGUF file.
    whole = 0 if "GGUF" in name else 2 * arch["hidden_size"] * arch["vocab_size"]
    expected = (bits * (total - whole) + 16 * whole) / 8
    assert weights(arch)["bytes"] == pytest.approx(expected, rel=0.03)


def test_the_config_is_the_callers_own():
    known_model("Qwen/Qwen3-8B")["config"]["hidden_size"] = 1
    known_model("Qwen/Qwen3.5-9B")["config"]["text_config"]["hidden_size"] = 1
    assert known_model("Qwen/Qwen3-8B")["config"]["hidden_size"] == 4096
    assert known_model("Qwen/Qwen3.5-9B")["config"]["text_config"]["hidden_size"] == 4096


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("meta-llama/Llama-3.1-8B-Instuct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen/Qwen-3-8B", "Qwen/Qwen3-8B"),
        ("/models/mixtral-8x7b-instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ],
)
def test_near_names_are_offered(name, near):
    assert near in nearest_models(name)
    assert len(nearest_models(name)) <= 3
