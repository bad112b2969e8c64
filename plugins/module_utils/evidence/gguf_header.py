# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata at the beginning of a GGUF file, as a config.json would say it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Any

# Value types of the format (ggml-org/ggml, docs/gguf.md): number -> struct's letter.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_STRING_LIMIT = 1 << 20
_PAIRS_LIMIT = 4096
_ITEMS_LIMIT = 1 << 21

# general.architecture -> model_type where Transformers calls it otherwise.
_TYPES = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gemma3": "gemma3_text", "phi2": "phi"}
# Fields of a config.json by the key behind "<architecture>.".
_FIELDS = (
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("sliding_window", "attention.sliding_window"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("vocab_size", "vocab_size"),
)
# general.file_type -> the name of the quantization (llama.cpp's llama_ftype).
_FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m",
    13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 23: "iq3_xxs", 25: "iq4_nl",
    27: "iq3_m", 29: "iq2_m", 30: "iq4_xs", 32: "bf16",
}  # fmt: skip
_IN_NAME = re.compile(r"(?:^|[-._])(i?q\d(?:_[a-z0-9]+)*|bf16|f16|f32)(?=[-.]|$)")


class GgufError(ValueError):
    """The header is cut, or isn't one that this reads."""


def read_gguf(path):
    """(config, assumptions) of the GGUF file ``path``: the fields of a config.json that its header tells."""
    with open(path, "rb") as file:
        pairs = _pairs(file)
    family = pairs.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise GgufError("it names no general.architecture")
    config: dict[str, Any] = {"model_type": _TYPES.get(family, family)}
    for field, key in _FIELDS:
        value = pairs.get(f"{family}.{key}")
        if isinstance(value, (int, list)) and not isinstance(value, bool):
            config[field] = value
    config.setdefault("vocab_size", pairs.get("tokenizer.ggml.tokens"))
    assumptions = []
    if config["vocab_size"] is None:
        del config["vocab_size"]
    kind = _FILE_TYPES.get(pairs.get("general.file_type"))
    named = _IN_NAME.search(os.path.basename(path).lower().replace("-q", ".q").replace(".gguf", ""))
    kind = kind or (named.group(1) if named else None)
    if kind is None:
        assumptions.append("the GGUF file names no quantization: Q4_K_M is assumed")
    if kind not in ("f16", "bf16", "f32"):
        config["quantization_config"] = {"quant_method": "gguf", "type": kind or "q4_k_m"}
    # Whether the output is the embedding stands in the list of tensors, not in the header.
    assumptions.append("which embeddings a GGUF file ties isn't in its header: taken by the family")
    return config, assumptions


def _pairs(file):
    magic, version, _tensors, count = struct.unpack("<4sIQQ", _exactly(file, 24))
    if magic != b"GGUF" or version not in (2, 3):
        raise GgufError(f"version {version} isn't known (2 and 3 are)")
    if count > _PAIRS_LIMIT:
        raise GgufError(f"{count} metadata entries are too many")
    pairs = {}
    for _index in range(count):
        key = _string(file)
        pairs[key] = _value(file, _number(file, "I"), key)
    return pairs


def _value(file, kind, key):
    if kind in _NUMBERS:
        return _number(file, _NUMBERS[kind])
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise GgufError(f"{key} has the unknown type {kind}")
    item, count = _number(file, "I"), _number(file, "Q")
    if count > _ITEMS_LIMIT:
        raise GgufError(f"{key} has {count} items")
    if item == _STRING:
        # Only how many there are tells something (the vocabulary); the strings are passed over.
        for _index in range(count):
            file.seek(_length(file), os.SEEK_CUR)
        return count
    if item not in _NUMBERS:
        raise GgufError(f"{key} is a list of the unknown type {item}")
    size = struct.calcsize("<" + _NUMBERS[item])
    return list(struct.unpack(f"<{count}{_NUMBERS[item]}", _exactly(file, size * count)))


def _number(file, letter):
    return struct.unpack("<" + letter, _exactly(file, struct.calcsize("<" + letter)))[0]


def _length(file):
    length = _number(file, "Q")
    if length > _STRING_LIMIT:
        raise GgufError(f"a string of {length} bytes")
    return length


def _string(file):
    return _exactly(file, _length(file)).decode("utf-8", "replace")


def _exactly(file, size):
    data = file.read(size)
    if len(data) < size:
        raise GgufError("it is cut")
    return data
