# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many bytes a weight matrix takes under a quantization, and which matrices a checkpoint quantizes.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..engine.versions import in_range
from .config_fields import mapping, sequence


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
_MODELOPT_DENSE = "the NVFP4 checkpoint doesn't list what it leaves out: all linear layers but lm_head are counted in 4 bits"
_MODELOPT_EXPERTS = "the NVFP4 checkpoint doesn't list what it leaves out: attention is counted in 16 bits"
_MODELOPT_MIXED = "the mixed-precision checkpoint doesn't list its layers: MLPs, experts and lm_head count as NVFP4, attention as FP8"
_FIRST_AND_LAST = "Meta's FP8 checkpoint: the MLPs but those of the first and the last layer count as FP8"


class Plan(NamedTuple):
    """Which scheme each module takes.

    name: how the quantization is called; roles: {attention, mlp, expert, state, lm_head, embedding: Scheme};
    ignored: paths of modules that stay in the model's dtype (``layers.3.mlp``, ``lm_head``), patterns the same as
    compiled expressions; groups: [(patterns or names, Scheme)] of mixed checkpoints, the first that matches
    counts; named: {path: Scheme} of checkpoints that list every module; draft: whether the draft module is quantized.
    """

    name: str
    roles: dict[str, Scheme]
    ignored: frozenset[str] = frozenset()
    patterns: tuple[Any, ...] = ()
    groups: tuple[tuple[tuple[Any, ...], Scheme], ...] = ()
    named: dict[str, Scheme] | None = None
    draft: bool = True

    @property
    def per_layer(self):
        """Whether a module's scheme can depend on its layer."""
        return bool(
            self.patterns or self.groups or self.named or any("layers." in path for path in self.ignored)
        )


def quantization_plan(value, arch, version, assumptions):
    """The Plan for ``value``: a quantization_config (dict), a name (as ``--quantization``), or None (arch's own).

    A name of the same kind as the checkpoint's own config takes that config.
    """
    own = arch["quantization"]
    if isinstance(value, str) and value.strip():
        if own and _method(own) and family(value) == family(_method(own)):
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
    """The Scheme of a fused module. names: of its parts (``self_attn.q_proj``); layer: its index or None."""
    scheme = plan.roles.get(role, NONE)
    if not (plan.ignored or plan.patterns or plan.groups or plan.named):
        return scheme
    paths = [name if layer is None else f"layers.{layer}.{name}" for name in names]
    if plan.named is not None:
        scheme = next((plan.named[path] for path in paths if path in plan.named), scheme)
    for targets, grouped in plan.groups:
        if any(_matches(target, path) for target in targets for path in paths):
            scheme = grouped
            break
    if scheme.bits and any(_ignored(plan, path) for path in paths):
        return NONE
    return scheme


def _matches(target, path):
    if isinstance(target, str):
        return path == target or path.endswith("." + target)
    return any(target.match(prefix + path) for prefix in _PREFIXES)


# What stands before "layers.": in most checkpoints, and in those of models with several towers.
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")


def _ignored(plan, path):
    parts = path.split(".")
    for begin in range(len(parts)):
        for end in range(begin + 1, len(parts) + 1):
            if ".".join(parts[begin:end]) in plan.ignored:
                return True
    return any(_matches(pattern, path) for pattern in plan.patterns)


_EXPERT = re.compile(r"\.experts\.\d+(?=\.|$)")
_LAYERS = re.compile(r"^.*?\blayers\.")


def _path(name):
    """A checkpoint's name of a module as ``scheme_of`` spells it: from ``layers.`` on, experts as one."""
    return _EXPERT.sub(".experts", _LAYERS.sub("layers.", name))


def _method(config):
    method = config.get("quant_method") or config.get("quant_algo") or ""
    return str(method).lower()


_FAMILIES = (
    ("mxfp4", "mxfp4"), ("modelopt", "nvfp4"), ("nvfp4", "nvfp4"), ("compressed", "compressed"), ("awq", "awq"),
    ("gptq", "gptq"), ("auto", "autoround"), ("bitsandbytes", "bnb"), ("bnb", "bnb"), ("gguf", "gguf"), ("fp8", "fp8"),
)  # fmt: skip


def family(name):
    """The kind of quantization that a name (of a flag, a method, a report) belongs to; the name itself if unknown."""
    name = name.lower()
    return next((kind for word, kind in _FAMILIES if word in name), name)


def _everywhere(scheme, lm_head=NONE, embedding=NONE):
    roles = dict.fromkeys(("attention", "mlp", "expert", "state"), scheme)
    roles["lm_head"] = lm_head
    roles["embedding"] = embedding
    return roles


def _mlp_only(scheme):
    return {"mlp": scheme, "expert": scheme}


def _mixed():
    """The roles of NVIDIA's mixed checkpoints; they leave the draft module as it is."""
    return {**_mlp_only(_NVFP4), "lm_head": _NVFP4, "attention": _FP8_TENSOR, "state": _FP8_TENSOR}


# What the words of a name mean, the first that fits: (words, name, scheme, which modules).
_WORDS = (
    (r"bitsandbytes.*8|bnb.*8", "bitsandbytes", _BNB8, "all"),
    # Of the checkpoints that call themselves so, the maxima are quantized too.
    (r"^(?:4-?bit|bnb-4bit)$", "bitsandbytes", _BNB4_DOUBLE, "all"),
    (r"bitsandbytes|bnb", "bitsandbytes", _BNB4, "all"),
    (r"(?:int)?8.*experts|experts.*int8", "int8", _INT8, "experts"),
    (r"4.*experts|experts.*4", "int4", _INT4._replace(group=32), "experts"),
    (r"fp8|fp_8|float8|8[- ]?bit float", "fp8", _FP8, "all"),
    (r"w8a8|w8a16|int8|8[- ]?bit", "int8", _INT8, "all"),
    (r"awq", "awq", _AWQ, "all"),
    (r"gptq|int4|round|w4a|marlin|compressed|wna16|4[- ]?bit|hqq|quanto", "int4", _INT4, "all"),
)
_MODULES = {"all": _everywhere, "experts": lambda scheme: {"expert": scheme}}
_BITS_PER_WEIGHT = re.compile(r"(\d(?:\.\d+)?) ?(?:bpw|-?bits?)\b")


def _by_name(name, arch, version, assumptions):
    """The plan for a quantization that is known by name only."""
    if "mxfp4" in name:
        roles = {**(_everywhere(_FP8) if "fp8" in name.replace("mxfp4", "") else {}), "expert": _MXFP4}
        return Plan("mxfp4", roles)
    if "gguf" in name:
        return _gguf(name)
    if "fbgemm" in name:
        assumptions.append(_FIRST_AND_LAST)
        last = sum(run["count"] for run in arch["layers"]) - 1
        return Plan("fp8", _mlp_only(_FP8), frozenset({"layers.0.mlp", f"layers.{last}.mlp"}))
    if "fp4" in name or ("modelopt" in name and "fp8" not in name):
        return _unlisted_nvfp4("nvfp4", arch, assumptions)
    for words, kind, scheme, modules in _WORDS:
        if re.search(words, name):
            beside = _everywhere(_FP8) if modules == "experts" and "fp8" in name else {}
            return Plan(kind, {**beside, **_MODULES[modules](scheme)})
    given = _BITS_PER_WEIGHT.search(name)
    if given and 1 <= float(given.group(1)) <= 16:
        return Plan(name, _everywhere(Scheme("int4", float(given.group(1)), 0, 0, 2)))
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
    ignored, patterns = _ignore_lists(config)
    if method == "fp8":
        scheme = _FP8_BLOCK if config.get("weight_block_size") else _FP8_TENSOR
        sizes = sequence(config, "weight_block_size")
        if len(sizes) == 2 and all(isinstance(size, int) and size > 0 for size in sizes):
            scheme = scheme._replace(block=sizes[0], group=sizes[1])
        roles = _everywhere(scheme)
        if arch["model_type"] == "deepseek_v4" or str(config.get("expert_dtype")) == "fp4":
            roles["expert"] = _MXFP4
        return Plan("fp8", roles, ignored, patterns)
    if method == "fbgemm_fp8":
        return Plan("fp8", _everywhere(_FP8), ignored, patterns)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed_tensors(config, ignored, patterns, assumptions)
    if method.startswith("awq"):
        zero = 4 if config.get("zero_point", True) else 0
        return Plan("awq", _everywhere(_sized(_AWQ, config)._replace(zero_bits=zero)), ignored, patterns)
    if method.startswith(("gptq", "auto-round", "auto_round", "autoround", "intel")):
        zero = 0 if config.get("sym", True) else _bits(config.get("bits"), 4)
        head = _sized(_INT4, config) if config.get("lm_head") else NONE
        plan = Plan(
            method, _everywhere(_sized(_INT4, config)._replace(zero_bits=zero), head), ignored, patterns
        )
        return _auto_round_extra(plan, config)
    if method == "bitsandbytes":
        return _bitsandbytes(config, version, ignored, patterns)
    if method.startswith("modelopt") or "nvfp4" in method or method in ("fp8_pb_wo", "mixed_precision"):
        return _modelopt(config, arch, ignored, patterns, assumptions)
    if method == "mxfp4":
        return Plan("mxfp4", {"expert": _MXFP4}, ignored, patterns)
    if method == "gguf":
        return _gguf(str(config.get("type") or ""))
    plan = _by_name(method, arch, version, assumptions)
    return plan._replace(ignored=ignored, patterns=patterns)


def _integer(value, default):
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _bits(value, default):
    bits = _integer(value, default)
    return bits if 1 <= bits <= 16 else default


def _sized(scheme, config):
    bits = _bits(config.get("bits", config.get("w_bit")), int(scheme.bits))
    group = _integer(config.get("group_size", config.get("q_group_size")), scheme.group)
    return scheme._replace(name="int4" if bits <= 4 else "int8", bits=bits, group=group if group > 0 else 0)


def _auto_round_extra(plan, config):
    """AutoRound's extra_config: modules with bits of their own; those with 16 stay unquantized."""
    extra = mapping(config, "extra_config")
    whole = [name for name in extra if _integer(mapping(extra, name).get("bits"), 4) >= 16]
    ignored, patterns = _ignore_list(whole)
    return plan._replace(ignored=plan.ignored | ignored, patterns=plan.patterns + patterns)


def _bitsandbytes(config, version, ignored, patterns):
    if config.get("load_in_8bit"):
        return Plan("bitsandbytes", _everywhere(_BNB8), ignored, patterns)
    # Newer loaders unpack the doubly quantized maxima to 32 bits.
    double = config.get("bnb_4bit_use_double_quant") and in_range(version, None, "0.7")
    return Plan("bitsandbytes", _everywhere(_BNB4_DOUBLE if double else _BNB4), ignored, patterns)


def _unlisted_nvfp4(name, arch, assumptions):
    """An NVFP4 checkpoint of which nobody says what it leaves out.

    As they are published: hybrids with a delta net as mixed ones, dense text models with all their linear layers, others
    (experts, latent attention, images) with their MLPs.
    """
    if any((run.get("attention") or {}).get("kind") == "gated_delta_net" for run in arch["layers"]):
        assumptions.append(_MODELOPT_MIXED)
        return Plan(name, _mixed(), draft=False)
    if not arch["encoders"] and all((run["mlp"] or {}).get("kind") == "dense" for run in arch["layers"]):
        assumptions.append(_MODELOPT_DENSE)
        return Plan(name, _everywhere(_NVFP4), frozenset({"lm_head"}))
    assumptions.append(_MODELOPT_EXPERTS)
    return Plan(name, _mlp_only(_NVFP4))


def _modelopt(config, arch, ignored, patterns, assumptions):
    algorithm = str(
        config.get("quant_algo") or mapping(config, "quantization").get("quant_algo") or ""
    ).upper()
    listed = bool(ignored or patterns)
    layers = config.get("quantized_layers")
    if isinstance(layers, dict) and layers:
        return _modelopt_layers(layers, ignored, patterns)
    if algorithm.startswith("FP8"):
        return Plan("modelopt", _everywhere(_FP8_TENSOR), ignored, patterns)
    if algorithm.startswith("MIXED"):
        if not listed:
            assumptions.append(_MODELOPT_MIXED)
        return Plan("modelopt", _mixed(), ignored, patterns, draft=False)
    if not listed:
        return _unlisted_nvfp4("modelopt", arch, assumptions)
    return Plan("modelopt", _everywhere(_NVFP4), ignored, patterns)


def _modelopt_layers(layers, ignored, patterns):
    """quantized_layers of a mixed checkpoint: {module: {quant_algo}}."""
    named: dict[str, Scheme] = {}
    for name in layers:
        algorithm = str(mapping(layers, name).get("quant_algo") or "").upper()
        scheme = _FP8_TENSOR if algorithm.startswith("FP8") else _INT4 if "W4A16" in algorithm else _NVFP4
        named[_path(name)] = scheme
    return Plan("modelopt", {}, ignored, patterns, named=named)


def _compressed_tensors(config, ignored, patterns, assumptions):
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        text = " ".join(str(value) for value in config.values()).lower()
        scheme = _by_words(text)
        return Plan("compressed-tensors", _everywhere(scheme), ignored, patterns)
    named = []
    roles = None
    for group in groups.values():
        if not isinstance(group, dict):
            continue
        scheme = _group_scheme(group, config)
        targets = tuple(str(target) for target in sequence(group, "targets") or ("Linear",))
        if any(target in _ALL for target in targets):
            roles = roles or _everywhere(scheme)
            continue
        compiled = (
            _compiled(target[3:]) if target.startswith("re:") else _path(target) for target in targets
        )
        named.append((tuple(target for target in compiled if target), scheme))
    return Plan("compressed-tensors", roles or {}, ignored, patterns, tuple(named))


# Targets that mean every linear layer.
_ALL = ("Linear", "LinearBase", "FusedMoE")


def _group_scheme(group, config):
    weights = mapping(group, "weights")
    bits = _bits(weights.get("num_bits"), 8)
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
_IGNORE_KEYS = (
    "ignore",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude_modules",
    "llm_int8_skip_modules",
)


def _ignore_lists(config):
    return _ignore_list([item for key in _IGNORE_KEYS for item in sequence(config, key)])


def _ignore_list(items):
    """(paths, compiled patterns) of what stays unquantized: names, ``re:`` expressions or globs."""
    paths: set[str] = set()
    patterns = []
    for item in items:
        if not isinstance(item, str) or not item:
            continue
        if item.startswith("re:"):
            patterns.append(_compiled(item[3:]))
        elif _PLAIN_NAME.fullmatch(item):
            paths.add(_path(item).rstrip("."))
        else:
            patterns.append(_compiled(item.replace(".", r"\.").replace("*", ".*") + r"(\..*)?$"))
    return frozenset(paths), tuple(pattern for pattern in patterns if pattern)


def _compiled(text):
    try:
        return re.compile(text)
    except re.error:
        return None
