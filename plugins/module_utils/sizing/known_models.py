# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Well-known models by the names they are deployed under: what needs no network.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib
import re
from copy import deepcopy
from functools import cache

from .known_model_configs import CLASSES, COLUMNS, FLAT, NESTED
from .model_names import parameters_in_billions

# What quantizers, and those who convert a checkpoint, put behind a model's name. Each is one or more parts between
# dashes or dots; what a part says is in _QUANTIZED.
_SUFFIX = re.compile(
    r"[-.](?:bf16|fp16|f16|qat|unquantized|quantized|unsloth|dynamic|block|static|mixed|channel|kv|sym|asym"
    r"|per-(?:tensor|token|channel)|g?(?:32|64|128)g?|actorder|marlin|quark|modelopt|compressed-tensors"
    r"|bnb|bitsandbytes|[48]-?bits?|int[48]|fp[48]|nvfp4(?:a16)?|mxfp4|awq|gptq|w[48]a(?:16|8|4)|auto-?round|hqq"
    r"|gguf|(?:ud-)?i?q\d(?:-(?:[01]|k-(?:xl|l|m|s)|k|xxs|xs|nl|m|s))?)$"
)
# A second try of a quantizer's: "-FP4-v2".
_AGAIN = re.compile(r"(?<=-fp[48]|-awq)-v\d$")
_GGUF = re.compile(r"(?:ud-)?(i?q\d(?:-\w+)*)")
# GGUF files and shards of a checkpoint, as vLLM is given them.
_FILE = re.compile(r"(?:-\d{5}-of-\d{5})?\.(?:gguf|safetensors)$", re.IGNORECASE)
_REVISION = re.compile(r"[0-9a-f]{12,64}")
# "s3://", and the drive of a Windows path.
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*://|[a-z]:(?=[\\/]))", re.IGNORECASE)
# What the tuned model of a family, or the one in 16 bits, is called where only that one is published.
_TUNED = ("-instruct", "-chat", "-it", "-bf16")
# Owners who quantize others' models: a checkpoint of theirs isn't the copy of another owner's quantized one.
_QUANTIZERS = ("amd", "intel", "neuralmagic", "nm-testing", "nvidia", "redhatai")
# Owners whose FP8 checkpoints have a scale for each block of 128 x 128, not for each tensor.
_FP8_BLOCKS = ("qwen", "deepseek-ai", "zai-org", "minimaxai", "moonshotai")
# Owners whose "-AWQ-4bit" is compressed-tensors in groups of 32, as reports from them have it.
_AWQ_IN_32 = ("cyankiwi",)


def _integers(bits, group=128, **more):
    return dict({"bits": bits, "group_size": group}, **more)


def _packed(bits, kind, **more):
    """A quantization_config of compressed-tensors, one group for all linear layers."""
    weights = dict({"num_bits": bits, "type": kind}, **more)
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


# What a name says of its quantization, the first that fits: parts of the name that must all be there -> (how it is
# called in a sentence, quantization_config).
_QUANTIZED: tuple[tuple[tuple[str, ...], str, dict], ...] = (
    (("nvfp4",), "NVFP4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    (("nvfp4a16",), "NVFP4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    (("fp4",), "NVFP4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    (("mxfp4",), "MXFP4", {"quant_method": "mxfp4"}),
    (
        ("awq",),
        "AWQ, 4 bits in groups of 128",
        dict(_integers(4, zero_point=True), quant_method="awq"),
    ),
    (("gptq", "int8"), "GPTQ, 8 bits", dict(_integers(8, sym=True), quant_method="gptq")),
    (("gptq", "8bit"), "GPTQ, 8 bits", dict(_integers(8, sym=True), quant_method="gptq")),
    (("gptq",), "GPTQ, 4 bits in groups of 128", dict(_integers(4, sym=True), quant_method="gptq")),
    (
        ("autoround",),
        "AutoRound, 4 bits in groups of 128",
        dict(_integers(4, sym=True), quant_method="auto-round"),
    ),
    (("w4a16",), "INT4 in groups of 128", _packed(4, "int", strategy="group", group_size=128)),
    (("w4a8",), "INT4 in groups of 128", _packed(4, "int", strategy="group", group_size=128)),
    (("w8a16",), "INT8", _packed(8, "int", strategy="channel")),
    (("bnb", "8bit"), "bitsandbytes, 8 bits", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    (
        ("4bit",),
        "bitsandbytes, 4 bits",
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
    ),
    (("bnb",), "bitsandbytes, 4 bits", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    (("fp8", "dynamic"), "FP8", _packed(8, "float", strategy="channel")),
    (("fp8",), "FP8", {"quant_method": "fp8"}),
    (("w8a8",), "INT8", _packed(8, "int", strategy="channel")),
    (("int8",), "INT8", _packed(8, "int", strategy="channel")),
    (("8bit",), "INT8", _packed(8, "int", strategy="channel")),
    (("int4",), "INT4 in groups of 128", _packed(4, "int", strategy="group", group_size=128)),
)
_PLAIN = ("bf16", "fp16", "f16", "unquantized")


def known_model(name):
    """The model that ``name`` is, from the bundled table, or None.

    name: what ``--model`` says: a repository id, a local or cache path, a GGUF file, a URI (``hf://``, ``s3://``,
    ``oci://``, ``pvc://`` ...). In a path the last part that names a model counts. Other makers' copies have the
    original's architecture; a quantized one that has no row of its own has the quantization its name says.

    Returns ``{name: repository id of the row, config, source: where the row was read, guessed, assumptions:
    [sentence]}``; config is the caller's own; guessed: whether its quantization is concluded from the name, so that what
    is left in 16 bits (and with it the size of the weights) isn't known. Never a model of another size, generation or context.
    """
    for owner, part in _parts(name):
        found = _named(owner, part)
        if found:
            return found
        if parameters_in_billions(part) is not None:
            # It names a model that isn't in the table; what stands before it doesn't tell more.
            return None
    return None


def nearest_models(name, limit=3):
    """Repository ids of known models with a name near ``name``, nearest first."""
    parts = [part for _owner, part in _parts(name)][:1]
    keys = _index()
    near = difflib.get_close_matches(_key(parts[0]), keys, n=3 * limit, cutoff=0.6) if parts else []
    return list(dict.fromkeys(keys[key][0] for key in near))[:limit]


def known_names():
    """The repository ids of the table, in its order."""
    return [repository for repository, _source, _config in _rows()]


def _rows():
    """(repository id, source, config) of every name. The config is shared: copy before changing it."""
    for names, source, family, values, further in FLAT:
        config = dict({"architectures": [CLASSES[family]], "model_type": family}, **further)
        config.update(zip(COLUMNS, values))
        for repository in _repositories(names):
            yield repository, source, config
    for names, source, config in NESTED:
        for repository in _repositories(names):
            yield repository, source, config


def _repositories(names):
    owner = ""
    for name in names.split():
        if "/" in name:
            owner, name = name.split("/")
        yield f"{owner}/{name}"


@cache
def _index():
    """{_key of a name: (repository id, source, config)}."""
    index: dict[str, tuple] = {}
    for row in _rows():
        index.setdefault(_key(row[0].rsplit("/", 1)[-1]), row)
    return index


def _plain(part):
    """A name without what its two repositories at Meta and Transformers' conversion differ in."""
    key = part.lower().replace("_", "-")
    if key.startswith("meta-llama-"):
        key = key[len("meta-") :]
    return key[: -len("-hf")] if key.endswith("-hf") else key


def _key(part):
    """A name as the table compares it: ``_plain``, and Llama's generation in one spelling (llama3.1, Llama-3_1)."""
    key = re.sub(r"^(?:meta-)?llama-?(?=\d)", "llama-", _plain(part))
    return re.sub(r"^(llama-\d)-(?=\d-)", r"\1.", key)


def _row(key):
    """The row of a key, or else the only one of its tuned model: ``Llama-3.3-70B`` is published as ``-Instruct``."""
    index = _index()
    tuned = [index[key + suffix] for suffix in _TUNED if key + suffix in index]
    return index.get(key) or (tuned[0] if len(tuned) == 1 else None)


def _parts(name):
    """(owner or "", part) of a name, path or URI, from its end: those parts that may name a model."""
    if not isinstance(name, str):
        return
    text = name.strip()
    scheme = _SCHEME.match(text)
    if scheme:
        text = text[scheme.end() :]
    text, _at, _digest = re.split(r"[?#]", text)[0].partition("@")
    text, tag = _without_tag(text)
    parts = [part for part in re.split(r"[/\\]", text) if part and part not in (".", "..")]
    whole = len(parts) == 2 and not name.lstrip().startswith(("/", ".", "~", "\\"))
    if whole and (not scheme or scheme.group().lower().startswith("hf")):
        # A repository id: the first part is its owner, whatever it is called.
        yield parts[0], parts[1] + tag
        return
    for position in range(len(parts) - 1, -1, -1):
        part = _FILE.sub("", parts[position])
        if part.startswith("models--"):
            owner, _dashes, part = part[len("models--") :].rpartition("--")
            yield owner, part
        elif not _REVISION.fullmatch(part):
            owner = parts[position - 1] if position else ""
            yield owner, part + (tag if position == len(parts) - 1 else "")


def _without_tag(text):
    """(text, suffix): ``:Q4_K_M`` names a GGUF file of the repository; any other tag is a revision."""
    head, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        return text, ""
    return head, f"-{tag}" if _GGUF.fullmatch(tag.lower().replace("_", "-")) else ""


def _named(owner, part):
    key = _key(part)
    row = _row(key)
    if row is not None and _is_others_quantized(row, owner):
        row = None
    key = _AGAIN.sub("", key)
    said: list[str] = []
    while row is None:
        suffix = _SUFFIX.search(key)
        if not suffix:
            return None
        said.insert(0, suffix.group()[1:])
        # "-Instruct-hf-AWQ": what Transformers' conversion added may stand before the suffix.
        key = _key(key[: suffix.start()])
        row = _row(key)
    repository, source, config = row
    config = deepcopy(config)
    assumptions: list[str] = []
    if said and not _requantize(config, repository, part, owner, said, assumptions):
        return None
    its_owner, _slash, its_name = repository.partition("/")
    if not said and owner and owner.lower() != its_owner.lower():
        assumptions.append(f"{owner}/{part} is taken for a copy of {repository}")
    elif not said and _plain(part) != _plain(its_name):
        assumptions.append(f"{part} is taken for {repository}")
    return {
        "name": repository,
        "config": config,
        "source": source,
        "guessed": bool(said) and "quantization_config" in config,
        "assumptions": assumptions,
    }


def _is_others_quantized(row, owner):
    """Whether ``row`` is a quantized checkpoint that the quantizer ``owner`` didn't make."""
    repository, _source, config = row
    others = repository.partition("/")[0].lower() != owner.lower()
    return others and owner.lower() in _QUANTIZERS and "quantization_config" in config


def _requantize(config, repository, part, owner, said, assumptions):
    """Gives ``config`` the quantization that the parts ``said`` of a name tell; False where they tell none."""
    parts = {re.sub(r"-|s$", "", word) if "bit" in word or "round" in word else word for word in said}
    gguf = next((word for word in reversed(said) if word == "gguf" or _GGUF.fullmatch(word)), None)
    if "unquantized" in parts or (parts <= set(_PLAIN) | {"unsloth"} and parts & set(_PLAIN)):
        _set_quantization(config, None)
        assumptions.append(f"{part} is taken for {repository} in 16 bits, by its name")
        return True
    if gguf:
        kind = "q4_k_m" if gguf == "gguf" else gguf.replace("ud-", "").replace("-", "_")
        called, quantization = f"GGUF {kind.upper()}", {"quant_method": "gguf", "type": kind}
    else:
        fitting = next((row for row in _QUANTIZED if parts.issuperset(row[0])), None)
        if fitting is None:
            # "-FP8-KV": the row is of a quantized checkpoint already, or the name tells no quantization.
            assumptions.append(f"{part} is taken for {repository}, by its name")
            return "quantization_config" in config
        called, quantization = fitting[1:]
    if quantization.get("quant_method") == "awq" and owner.lower() in _AWQ_IN_32:
        called, quantization = (
            "INT4 in groups of 32",
            _packed(4, "int", strategy="group", group_size=32),
        )
    if quantization.get("quant_method") == "fp8" and ("block" in parts or owner.lower() in _FP8_BLOCKS):
        quantization = dict(quantization, weight_block_size=[128, 128])
    _set_quantization(config, deepcopy(quantization))
    assumptions.append(
        f"{part} is taken for {repository} quantized as its name says ({called}); its own config may differ"
    )
    return True


def _set_quantization(config, quantization):
    for section in (config, config.get("text_config") or {}):
        section.pop("quantization_config", None)
    if quantization:
        config["quantization_config"] = quantization
