# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a config is everything that sizing reads."""

from __future__ import annotations

import ast
import inspect
import json

import pytest
from sizing_samples import CONFIGS, LLAMA, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import (
    architecture,
    attention_kinds,
    encoder_towers,
    mlp_kinds,
    state_kinds,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_fields import READ, sized_config
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import weights

READERS = ("first", "integer", "positive", "of_layer", "sequence", "mapping")
# Variables of these modules that hold a config, or a section of one.
SECTIONS = ("text", "config", "section", "audio", "linear", "nested", "block", "ffn", "scaling", "inner")


def fields_asked_for(module):
    """The names of fields that a module's code asks a config for."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in READERS:
            keys = node.args[1:]
        elif isinstance(function, ast.Attribute) and function.attr == "get":
            held = function.value
            keys = node.args[:1] if isinstance(held, ast.Name) and held.id in SECTIONS else []
        else:
            continue
        found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


@pytest.mark.parametrize(
    "module",
    [architecture, attention_kinds, encoder_towers, mlp_kinds, state_kinds],
    ids=lambda m: m.__name__,
)
def test_every_field_that_is_asked_for_is_kept(module):
    asked = fields_asked_for(module)
    assert len(asked) > 10
    assert asked - READ <= {"quantization_config"}


def test_sections_are_kept():
    for name in (
        *architecture._TEXT_SECTIONS,
        *encoder_towers._VISION_SECTIONS,
        *encoder_towers._AUDIO_SECTIONS,
    ):
        assert name in READ


@shared
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_nothing_is_lost(path):
    config = json.loads(path.read_text())
    kept = sized_config(config)
    assert architecture.architecture(kept) == architecture.architecture(config)
    assert weights(architecture.architecture(kept)) == weights(architecture.architecture(config))


def test_the_rest_goes():
    config = dict(
        LLAMA,
        transformers_version="4.57.0",
        sliding_window=None,
        quantization_config={"quant_method": "awq", "version": "gemm"},
        text_config={"hidden_size": 64, "id2label": {"0": "x"}},
        block_configs=[{"attention": {"no_op": True, "sparsify": None}, "ffn": {"ffn_mult": 1.5}}],
    )
    assert sized_config(config) == dict(
        LLAMA,
        quantization_config={"quant_method": "awq", "version": "gemm"},
        text_config={"hidden_size": 64},
        block_configs=[{"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}}],
    )
