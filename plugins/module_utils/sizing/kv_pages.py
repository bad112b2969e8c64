# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the KV cache of one layer: of a token, of a state, of a page (vllm-memory 6.1).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..engine.versions import in_range
from .config_fields import mapping
from .tensors import kv_heads_of_rank


class Spec(NamedTuple):
    """What one layer keeps. kind: full, sliding, chunked, state, cross.

    block: tokens of a page; token: bytes of a token (0 for a state); state: bytes of a state; page: bytes of a
    page, padding included; window: of sliding and chunked layers; alignment: a page is a multiple of it; ratio:
    tokens that share one entry. Layers with equal Specs are of one type.
    """

    kind: str
    block: int
    token: int
    page: int
    state: int = 0
    window: int = 0
    alignment: int = 1
    ratio: int = 1


class Cache(NamedTuple):
    """How keys and values are stored. name: the resolved dtype; element: bytes of one element, where it is that
    simple; model: bytes of the model's own dtype; state: bytes of recurrent states, 0 for the model's dtype."""

    name: str
    element: float
    model: int
    state: int = 0


_ONE_BYTE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8", "fp8_per_token_head", "int8_per_token_head")
_TWO_BYTES = ("float16", "bfloat16", "half")
# Bytes of one token in the layouts of sparse MLA.
_LATENT_ROWS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_COMPRESSED_ROW = 584
_COMPRESSED_ALIGNMENT = 576
_ROW_ALIGNMENT_V0 = 256


def cache_dtype(name, arch, model_bytes, state_dtype=None):
    """The Cache for ``--kv-cache-dtype`` ``name``; ``auto`` takes the checkpoint's scheme, else the model's dtype."""
    name = str(name or "auto").lower().split(" ", 1)[0]
    state = {"float32": 4, "float16": 2, "bfloat16": 2}.get(str(state_dtype), 0)
    if name == "auto":
        config = arch["quantization"] or {}
        algorithm = str(config.get("kv_cache_quant_algo") or "").upper()
        if mapping(config, "kv_cache_scheme").get("num_bits") == 8 or algorithm == "FP8":
            return Cache("fp8", 1, model_bytes, state)
        return Cache("auto", model_bytes, model_bytes, state)
    if name in _TWO_BYTES:
        return Cache(name, 2, model_bytes, state)
    if name == "float32":
        return Cache(name, 4, model_bytes, state)
    if name in _ONE_BYTE or name.startswith("fp8"):
        return Cache(name, 1, model_bytes, state)
    if name.startswith(("int4", "nvfp4", "octave", "ultraquant")):
        return Cache(name, 0.5, model_bytes, state)
    if name.startswith("turboquant"):
        return Cache(name, 1, model_bytes, state)
    return Cache(name, model_bytes, model_bytes, state)


def token_bytes(item, cache, tp, version=None, generation="V1", mla_disabled=False, capability=None):
    """Bytes of one token in one layer on one rank; 0 for layers that keep a state or nothing.

    capability: the GPU's compute capability, which decides how sparse MLA stores fp8 ((10, 0) and newer: plain).
    """
    kind = item["kind"]
    if kind == "mla":
        return _latent_bytes(item, cache, tp, version, generation, mla_disabled, capability)
    if kind == "compressed":
        return (
            _COMPRESSED_ROW
            if cache.element < 2 or cache.name == "auto"
            else int(item["head_size"] * cache.element)
        )
    if kind not in ("full", "sliding", "chunked", "cross"):
        return 0
    heads = kv_heads_of_rank(item["kv_heads"], tp)
    return heads * _head_bytes(item["head_size"], item["head_size_v"], cache)


def _head_bytes(key, value, cache):
    """Bytes of the key and the value of one head."""
    if cache.name.endswith("per_token_head"):
        # One 32-bit scale for the key and one for the value.
        return int((key + value) * cache.element) + 8
    if cache.name.startswith("nvfp4"):
        return (key + value) // 2 + (key + value) // 16
    if cache.name.startswith("turboquant"):
        return _turboquant(key, value, cache.name)
    return int((key + value) * cache.element)


def _turboquant(key, value, name):
    digits = [int(letter) for letter in name if letter.isdigit()]
    key_bits = digits[0] if digits else 4
    value_bits = digits[1] if len(digits) > 1 else key_bits
    keys = key if key_bits == 8 else -(-key * key_bits // 8) + 2
    size = keys + -(-value * value_bits // 8) + 4
    return size + size % 2


def _latent_bytes(item, cache, tp, version, generation, mla_disabled, capability):
    unsupported = generation == "V0" and in_range(version, "0.7.1") is False
    if mla_disabled or unsupported:
        # Every head by itself, key and value padded to one size that the kernel takes.
        heads = max(1, item["heads"] // tp)
        size = item["qk_nope"] + item["qk_rope"]
        return int(heads * 2 * _padded_head(size) * cache.element)
    size = item["kv_lora_rank"] + item["qk_rope"]
    if cache.name in _LATENT_ROWS:
        return _LATENT_ROWS[cache.name]
    if item["indexer"] and cache.element == 1 and (capability is None or capability < (10, 0)):
        return _LATENT_ROWS["fp8_ds_mla"]
    row = int(size * cache.element)
    if generation == "V0" and in_range(version, "0.7.2", "0.7"):
        row = -(-row // _ROW_ALIGNMENT_V0) * _ROW_ALIGNMENT_V0
    return row


def _padded_head(size):
    return next(
        (known for known in (64, 80, 96, 112, 120, 128, 192, 256) if known >= size and known != 192), size
    )


def indexer_bytes(item):
    """Bytes of a token in the cache of a sparse indexer of its own, or 0."""
    indexer = item.get("indexer") if item["kind"] in ("mla", "compressed") else None
    if not indexer or not indexer["own"]:
        return 0
    size = indexer["head_size"]
    return size + -(-size // 128) * 4


def state_bytes(item, cache, tp, speculative_tokens=0):
    """Bytes of the state of one request in one layer on one rank, or 0."""
    builder = _STATES.get(item["kind"])
    return builder(item, cache, tp, speculative_tokens) if builder else 0


def _recurrent(item, cache):
    return cache.state or item.get("state_dtype") or cache.model


def _share(count, ranks):
    return -(-count // ranks)


def _delta_net(item, cache, tp, extra):
    width = 2 * item["k_head"] * item["k_heads"] + item["v_head"] * item["v_heads"]
    conv = _share(width, tp) * (item["conv_kernel"] - 1 + extra)
    state = _share(item["v_heads"], tp) * item["v_head"] * item["k_head"]
    return conv * cache.model + state * _recurrent(item, cache)


def _kda(item, cache, tp, extra):
    heads = _share(item["heads"], tp)
    conv = 3 * heads * item["head_size"] * (item["conv_kernel"] - 1 + extra)
    return conv * cache.model + heads * item["head_size"] ** 2 * 4


def _lightning(item, cache, tp, extra):
    return _share(item["heads"], tp) * item["head_size"] ** 2 * _recurrent(item, cache)


def _mamba2(item, cache, tp, extra):
    groups = item["groups"]
    if groups % tp:
        # Fewer groups than ranks: each rank keeps a copy.
        groups += tp - groups % tp if groups > 1 else tp - 1
    width = item["inner"] + 2 * groups * item["state"]
    conv = _share(width, tp) * (item["conv_kernel"] - 1 + extra)
    state = _share(item["heads"], tp) * item["head_size"] * item["state"]
    return conv * cache.model + state * _recurrent(item, cache)


def _mamba1(item, cache, tp, extra):
    inner = _share(item["inner"], tp)
    return inner * (item["conv_kernel"] - 1) * cache.model + inner * item["state"] * _recurrent(item, cache)


def _short_conv(item, cache, tp, extra):
    return _share(item["width"], tp) * (item["conv_kernel"] - 1) * cache.model


_STATES = {
    "gated_delta_net": _delta_net,
    "kda": _kda,
    "lightning": _lightning,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
}
