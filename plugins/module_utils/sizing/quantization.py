# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many bytes a weight matrix takes under a quantization, and which matrices a checkpoint quantizes.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..engine.versions import in_range


class Scheme(NamedTuple):
    """A storage of weights. name: none, fp8, int8, int4, nvfp4, mxfp4, bnb4, bnb8, gguf.

    bits: of one weight; group: weights per scale along the input (0: one scale per output channel, -1: one per
    matrix); block: weights per scale along the output too; scale: bytes of one scale; zero_bits: of a zero point
    per scale.
    """

    name: str
    bits: float
    group: int = 0
    block: int = 0
    scale: float = 0.0
    zero_bits: float = 0.0


NONE = Scheme("none", 0)
_FP8 = Scheme("fp8", 8, 0, 0, 4)
_FP8_BLOCK = Scheme("fp8", 8, 128, 128, 4)
_FP8_TENSOR = Scheme("fp8", 8, -1, 0, 4)
_INT8 = Scheme("int8", 8, 0, 0, 4)
_INT4 = Scheme("int4", 4, 128, 0, 2, 0)
_AWQ = Scheme("int4", 4, 128, 0, 2, 4)
_NVFP4 = Scheme("nvfp4", 4, 16, 0, 1)
_MXFP4 = Scheme("mxfp4", 4, 32, 0, 1)
# Blocks of 64 with a 32-bit maximum each; in-checkpoint double quantization packs the maxima to 8 bits.
_BNB4 = Scheme("bnb4", 4, 64, 0, 4)
_BNB4_DOUBLE = Scheme("bnb4", 4, 64, 0, 1 + 4 / 256)
_BNB8 = Scheme("bnb8", 8, 0, 0, 4)

# Bits per weight of GGUF's types, scales included (llama.cpp's block layouts; _S, _M, _L: the usual mixes).
GGUF_BITS = {
    "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q6_k": 6.5625, "q5_k_m": 5.68, "q5_k_s": 5.54, "q5_1": 6.0, "q5_0": 5.5,
    "q4_k_m": 4.85, "q4_k_s": 4.58, "q4_1": 5.0, "q4_0": 4.5, "iq4_nl": 4.5, "iq4_xs": 4.25, "q3_k_l": 4.27,
    "q3_k_m": 3.91, "q3_k_s": 3.5, "iq3_m": 3.66, "iq3_xxs": 3.06, "q2_k": 3.35, "iq2_m": 2.7, "iq2_xxs": 2.06,
}  # fmt: skip

# Sentences for what a config doesn't say.
_MODELOPT_EXPERTS = "the NVFP4 checkpoint doesn't list what it leaves out: attention is counted in 16 bits"
_MODELOPT_MIXED = "the mixed-precision checkpoint doesn't list its layers: MLPs and experts count as NVFP4, the rest as 16 bits"


class Plan(NamedTuple):
    """Which scheme each module takes. roles: by role (attention, mlp, expert, state, lm_head, encoder, embedding).

    ignored: names and patterns of modules that stay in the model's dtype; groups: [(targets, Scheme)] of mixed
    checkpoints, the first that matches counts; name: how the quantization is called.
    """

    name: str
    roles: dict[str, Scheme]
    exact: frozenset[str] = frozenset()
    patterns: tuple[Any, ...] = ()
    groups: tuple[tuple[tuple[str, ...], Scheme], ...] = ()

    @property
    def per_layer(self):
        """Whether a module's scheme can depend on its layer."""
        return bool(
            self.exact or self.patterns or any(_names_modules(targets) for targets, _scheme in self.groups)
        )


def _names_modules(targets):
    return any(target not in ("Linear", "FusedMoE", "LinearBase") for target in targets)


def quantization_plan(value, arch, version, assumptions):
    """The Plan for ``value``: a quantization_config (dict), a name (as ``--quantization``), or None (arch's own).

    A name of the same kind as the checkpoint's own config takes that config.
    """
    own = arch["quantization"]
    if isinstance(value, str) and value.strip():
        if own and _method(own) and _family(value) == _family(_method(own)):
            value = dict(own, quant_method=_method(own))
        else:
            return _by_name(value.lower(), arch, version, assumptions)
    config = value or own
    if not isinstance(config, dict) or not _method(config):
        return Plan("none", {})
    return _by_config(config, arch, version, assumptions)


def matrix_bytes(scheme, out, inner, element):
    """(bytes of the weights, bytes of the scales and zero points) of an ``out`` x ``inner`` matrix."""
    if scheme.bits == 0:
        return out * inner * element, 0
    weights = int(out * inner * scheme.bits / 8)
    if scheme.group == 0:
        scales = out
    elif scheme.group < 0:
        scales = 1
    elif scheme.block:
        scales = -(-out // scheme.block) * -(-inner // scheme.group)
    else:
        scales = out * -(-inner // scheme.group)
    return weights, int(scales * (scheme.scale + scheme.zero_bits / 8))


def scheme_of(plan, role, names, layer):
    """The Scheme of a fused module. names: of its parts (``q_proj``); layer: its index or None."""
    scheme = plan.roles.get(role, NONE)
    if not plan.per_layer:
        return scheme
    for targets, grouped in plan.groups:
        if _names_modules(targets) and any(_matches(targets, name, layer) for name in names):
            scheme = grouped
            break
    if scheme.bits and any(_ignored(plan, name, layer) for name in names):
        return NONE
    return scheme


def _matches(targets, name, layer):
    full = _full_name(name, layer)
    for target in targets:
        if target.startswith("re:"):
            try:
                if re.match(target[3:], full):
                    return True
            except re.error:
                continue
        elif target == name.rpartition(".")[2] or full.endswith(target):
            return True
    return False


def _full_name(name, layer):
    return name if layer is None else f"model.layers.{layer}.{name}"


def _ignored(plan, name, layer):
    full = _full_name(name, layer)
    if full in plan.exact or "language_" + full in plan.exact or "model.language_" + full in plan.exact:
        return True
    if name in plan.exact or name.rpartition(".")[2] in plan.exact:
        return True
    return any(pattern.match(full) or pattern.match("model.language_" + full) for pattern in plan.patterns)


def _method(config):
    method = config.get("quant_method") or config.get("quant_algo") or ""
    return str(method).lower()


_FAMILIES = (
    ("mxfp4", "mxfp4"), ("modelopt", "nvfp4"), ("nvfp4", "nvfp4"), ("compressed", "compressed"), ("awq", "awq"),
    ("gptq", "gptq"), ("auto", "autoround"), ("bitsandbytes", "bnb"), ("bnb", "bnb"), ("gguf", "gguf"), ("fp8", "fp8"),
)  # fmt: skip


def _family(name):
    name = name.lower()
    return next((family for word, family in _FAMILIES if word in name), name)


def _everywhere(scheme, lm_head=NONE, embedding=NONE):
    roles = dict.fromkeys(("attention", "mlp", "expert", "state"), scheme)
    roles["lm_head"] = lm_head
    roles["embedding"] = embedding
    return roles


def _mlp_only(scheme):
    return {"mlp": scheme, "expert": scheme}


def _by_name(name, arch, version, assumptions):
    """The plan for a quantization that is known by name only."""
    if "experts" in name and ("int4" in name or "4" in name):
        return Plan(name, {"expert": _INT4._replace(group=32)})
    if "mxfp4" in name:
        return Plan("mxfp4", {"expert": _MXFP4})
    if "nvfp4" in name or "modelopt" in name or "fp4" in name:
        assumptions.append(_MODELOPT_EXPERTS)
        return Plan("nvfp4", _mlp_only(_NVFP4))
    if "gguf" in name:
        return _gguf(name)
    if name in ("4-bit", "4bit", "bnb-4bit"):
        # Of the checkpoints that call themselves so, the maxima are quantized too.
        return Plan("bitsandbytes", _everywhere(_BNB4_DOUBLE))
    if "bitsandbytes" in name or "bnb" in name:
        return Plan("bitsandbytes", _everywhere(_BNB4))
    if name == "fbgemm_fp8":
        return Plan("fp8", _mlp_only(_FP8))
    if "fp8" in name:
        return Plan("fp8", _everywhere(_FP8))
    if "w8a8" in name or "int8" in name:
        return Plan("int8", _everywhere(_INT8))
    if "awq" in name:
        return Plan("awq", _everywhere(_AWQ))
    if any(word in name for word in ("gptq", "int4", "round", "w4a16", "marlin", "compressed")):
        return Plan("int4", _everywhere(_INT4))
    assumptions.append(
        f"the quantization {name!r} isn't known: weights are counted as 4 bits with groups of 128"
    )
    return Plan(name, _everywhere(_INT4))


def _gguf(name):
    bits = next((bits for kind, bits in GGUF_BITS.items() if kind in name), 4.85)
    scheme = Scheme("gguf", bits, -1)
    return Plan("gguf", _everywhere(scheme, scheme, scheme))


def _by_config(config, arch, version, assumptions):
    method = _method(config)
    exact, patterns = _ignore_lists(config)
    if method == "fp8":
        scheme = _FP8_BLOCK if config.get("weight_block_size") else _FP8_TENSOR
        if scheme is _FP8_BLOCK:
            out, inner = [*config["weight_block_size"], 128, 128][:2]
            scheme = scheme._replace(group=int(inner), block=int(out))
        roles = _everywhere(scheme)
        if arch["model_type"] == "deepseek_v4" or str(config.get("expert_dtype")) == "fp4":
            roles["expert"] = _MXFP4
        return Plan("fp8", roles, exact, patterns)
    if method == "fbgemm_fp8":
        return Plan("fp8", _everywhere(_FP8), exact, patterns)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed_tensors(config, exact, patterns, assumptions)
    if method.startswith("awq"):
        zero = 4 if config.get("zero_point", True) else 0
        return Plan("awq", _everywhere(_sized(_AWQ, config)._replace(zero_bits=zero)), exact, patterns)
    if method.startswith(("gptq", "auto-round", "auto_round", "autoround", "intel")):
        zero = 0 if config.get("sym", True) else _integer(config.get("bits"), 4)
        head = _sized(_INT4, config) if config.get("lm_head") else NONE
        plan = Plan(
            method, _everywhere(_sized(_INT4, config)._replace(zero_bits=zero), head), exact, patterns
        )
        return _auto_round_extra(plan, config)
    if method == "bitsandbytes":
        return _bitsandbytes(config, version, exact, patterns)
    if method.startswith("modelopt") or "nvfp4" in method or method in ("fp8_pb_wo", "mixed_precision"):
        return _modelopt(config, exact, patterns, assumptions)
    if method == "mxfp4":
        return Plan("mxfp4", {"expert": _MXFP4}, exact, patterns)
    if method == "gguf":
        return _gguf(str(config.get("type") or ""))
    plan = _by_name(method, arch, version, assumptions)
    return plan._replace(exact=exact, patterns=patterns)


def _integer(value, default):
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _sized(scheme, config):
    bits = _integer(config.get("bits", config.get("w_bit")), int(scheme.bits))
    group = _integer(config.get("group_size", config.get("q_group_size")), scheme.group)
    return scheme._replace(name="int4" if bits <= 4 else "int8", bits=bits, group=group if group > 0 else 0)


def _auto_round_extra(plan, config):
    """AutoRound's extra_config: layers with bits of their own; those with 16 stay unquantized."""
    extra = config.get("extra_config")
    if not isinstance(extra, dict):
        return plan
    unquantized = {
        name for name, item in extra.items() if isinstance(item, dict) and _integer(item.get("bits"), 4) >= 16
    }
    patterns = tuple(_compiled(name) for name in unquantized if not _PLAIN_NAME.fullmatch(name))
    exact = frozenset(name for name in unquantized if _PLAIN_NAME.fullmatch(name))
    return plan._replace(exact=plan.exact | exact, patterns=plan.patterns + tuple(p for p in patterns if p))


def _bitsandbytes(config, version, exact, patterns):
    if config.get("load_in_8bit"):
        return Plan("bitsandbytes", _everywhere(_BNB8), exact, patterns)
    # Newer loaders unpack the doubly quantized maxima to 32 bits.
    double = config.get("bnb_4bit_use_double_quant") and in_range(version, None, "0.7")
    return Plan("bitsandbytes", _everywhere(_BNB4_DOUBLE if double else _BNB4), exact, patterns)


def _modelopt(config, exact, patterns, assumptions):
    algorithm = str(
        config.get("quant_algo") or (config.get("quantization") or {}).get("quant_algo") or ""
    ).upper()
    listed = bool(exact or patterns)
    layers = config.get("quantized_layers")
    if isinstance(layers, dict) and layers:
        return _modelopt_layers(layers, exact, patterns)
    if algorithm.startswith("FP8"):
        return Plan("modelopt", _everywhere(_FP8_TENSOR), exact, patterns)
    if algorithm.startswith("MIXED"):
        if not listed:
            assumptions.append(_MODELOPT_MIXED)
        return Plan("modelopt", _mlp_only(_NVFP4), exact, patterns)
    if not listed:
        assumptions.append(_MODELOPT_EXPERTS)
        return Plan("modelopt", _mlp_only(_NVFP4))
    return Plan("modelopt", _everywhere(_NVFP4), exact, patterns)


def _modelopt_layers(layers, exact, patterns):
    """quantized_layers of a mixed checkpoint: {module: {quant_algo}}."""
    schemes: dict[str, Scheme] = {}
    by_scheme: dict[Scheme, list[str]] = {}
    for name, item in layers.items():
        algorithm = str((item or {}).get("quant_algo") or "").upper()
        scheme = _FP8_TENSOR if algorithm.startswith("FP8") else _INT4 if "W4A16" in algorithm else _NVFP4
        schemes[name] = scheme
        inner = re.sub(r"^.*?layers\.", "layers.", name)
        by_scheme.setdefault(scheme, []).append(inner)
    groups = tuple((tuple(names), scheme) for scheme, names in by_scheme.items())
    return Plan("modelopt", {}, exact, patterns, groups)


def _compressed_tensors(config, exact, patterns, assumptions):
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        text = " ".join(str(value) for value in config.values()).lower()
        scheme = _by_words(text)
        return Plan("compressed-tensors", _everywhere(scheme), exact, patterns)
    named = []
    roles = None
    for group in groups.values():
        if not isinstance(group, dict):
            continue
        scheme = _group_scheme(group, config)
        targets = tuple(str(target) for target in group.get("targets") or ("Linear",))
        named.append((targets, scheme))
        if roles is None and not _names_modules(targets):
            roles = _everywhere(scheme)
    return Plan("compressed-tensors", roles or {}, exact, patterns, tuple(named))


def _group_scheme(group, config):
    weights = group.get("weights") or {}
    bits = _integer(weights.get("num_bits"), 8)
    size = _integer(weights.get("group_size"), 0)
    strategy = str(weights.get("strategy") or ("group" if size else "channel"))
    floating = str(weights.get("type")) == "float"
    form = str(group.get("format") or config.get("format") or "")
    if floating and bits == 4:
        return _NVFP4 if "nv" in form or size == 16 else _MXFP4
    if floating:
        if strategy == "block":
            return _FP8_BLOCK
        return _FP8_TENSOR if strategy == "tensor" else _FP8
    zero = 0 if weights.get("symmetric", True) else bits
    if bits == 8 and strategy == "channel":
        return _INT8
    return Scheme("int4" if bits <= 4 else "int8", bits, max(size, 0), 0, 2, zero)


def _by_words(text):
    if "nvfp4" in text:
        return _NVFP4
    if "w4a16" in text or "int4" in text or "4-bit" in text:
        return _INT4
    if "fp8" in text or "float" in text:
        return _FP8
    return _INT8


_PLAIN_NAME = re.compile(r"[\w.\-]+")


def _ignore_lists(config):
    """(exact names, compiled patterns) of what stays unquantized."""
    exact: set[str] = set()
    patterns = []
    for key in (
        "ignore",
        "ignored_layers",
        "modules_to_not_convert",
        "exclude_modules",
        "llm_int8_skip_modules",
    ):
        for item in config.get(key) or ():
            if not isinstance(item, str):
                continue
            if _PLAIN_NAME.fullmatch(item) and not item.startswith("re:"):
                exact.add(item)
                # A name that isn't a whole path covers everything below it.
                patterns.append(_compiled(".*" + re.escape(item) + r"($|\..*)"))
            else:
                patterns.append(
                    _compiled(
                        item[3:] if item.startswith("re:") else item.replace(".", r"\.").replace("*", ".*")
                    )
                )
    return frozenset(exact), tuple(pattern for pattern in patterns if pattern)


def _compiled(text):
    try:
        return re.compile(text)
    except re.error:
        return None
