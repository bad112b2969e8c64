# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model configs for the tests of the sizing: one written out, and the shared ones beside the checkout."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture

CONFIGS = Path(__file__).parents[4] / "shared" / "cases" / "model_configs"
# In CI their absence is a failure, as it is for the cases.
shared = pytest.mark.skipif(
    not CONFIGS.exists() and not os.environ.get("CI"), reason="the shared configs aren't at hand"
)

# Llama-3.1-8B
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def load(name):
    """The architecture of a shared config, by the model's name."""
    return architecture(json.loads((CONFIGS / f"{name.replace('/', '__')}.json").read_text()))
