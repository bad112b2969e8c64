# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameter counts by model names: total, not active; sizes that are no sizes are not taken for one."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_names import (
    parameters_in_billions,
)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-8B", 8.0),
        ("meta-llama/Llama-3.1-70B-Instruct", 70.0),
        ("Llama2-70B", 70.0),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.5),
        ("facebook/opt-125m", 0.125),
        ("Qwen/Qwen3-30B-A3B", 30.0),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", 480.0),
        ("ibm-granite/granite-3.0-3b-a800m-instruct", 3.0),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7),
        ("mistralai/Mixtral-8x22B-v0.1", 140.6),
        ("someone/moe-4x13b-chat", 42.6),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 109.0),
        ("Qwen/Qwen1.5-MoE-A2.7B", 14.3),
        ("deepseek-ai/DeepSeek-R1", 671.0),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8.0),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 8.0),
        ("deepseek-ai/DeepSeek-R1-0528", 671.0),
        ("deepseek-ai/deepseek-moe-16b-chat", 16.4),
        ("deepseek-ai/DeepSeek-V4-Flash", 284.0),
        ("zai-org/GLM-4.7", 355.0),
        ("zai-org/GLM-4.7-Flash", 30.0),
        ("zai-org/GLM-5.2-FP8", 744.0),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", 15.7),
        ("moonshotai/Kimi-K2-Instruct", 1000.0),
        ("moonshotai/Kimi-VL-A3B-Instruct", 16.0),
        ("microsoft/phi-4", 14.7),
        ("microsoft/Phi-3-vision-128k-instruct", 4.2),
        ("google/gemma-3n-E4B-it", 7.8),
        ("openai/gpt-oss-120b", 120.0),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", 8.0),
        ("Qwen2.5-7B (4-bit)", 7.0),
        ("Qwen/Qwen2.5-14B-Instruct-1M", 14.0),
        ("/models/llama-3-8b/", 8.0),
        (r"C:\models\mistral-7b", 7.0),
        (
            "/root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/9216db5781bf21249d130ec9da846c4624c1603b",
            32.0,
        ),
        ("Llama-3.2-3B-Instruct-Q8_0.gguf", 3.0),
    ],
)
def test_a_name_that_tells_its_size(name, billions):
    assert parameters_in_billions(name) == billions


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        8,
        "my-model",
        "NVFP4 checkpoint",
        "Qwen3-VL-Instruct",
        "model-128k",
        "int4-w4a16",
        "/models/latest",
        "0b",
    ],
)
def test_a_name_that_tells_no_size(name):
    assert parameters_in_billions(name) is None
