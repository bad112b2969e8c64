# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that people write into a size report's fields, read as values.

Each function takes what the field holds, whatever that is, and gives the value or None; it never raises.
"""

from __future__ import annotations

import json
import re
from datetime import date

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.versions import parse_version

# No size of a report is larger.
_NO_SIZE = 1e9
_NOTHING = ("", "none", "null", "no", "off", "false", "n/a", "unknown", "?", "default", "auto")
_SIXTEEN = (
    "bf16",
    "fp16",
    "bfloat16",
    "float16",
    "half",
    "unquantized",
    "16-bit",
    "16 bit",
    "full precision",
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATES = (
    re.compile(r"(?i)\b(?P<name>" + "|".join(_MONTHS) + r")[a-z]*\.?,? \(?(?P<year>20\d\d)"),
    re.compile(r"(?<!\d)(?P<year>20\d\d)-?(?P<month>0[1-9]|1[0-2])(?:-?(?P<day>[0-3]\d))?(?!\d)"),
    # NVIDIA's containers are called by year and month.
    re.compile(r"^(?:ngc )?(?P<year>2\d)\.(?P<month>0[1-9]|1[0-2])(?![.\d])"),
)
_UNRELEASED = re.compile(r"(?i)\b(?:main|nightly|master|fork)\b")
_LATER = re.compile(r"(?i)^\s*(?:>=?|from )|\d\s*\+\s*$|\d\+? or (?:later|newer)")
# First upload of each release to PyPI.
_RELEASES = tuple(
    (date.fromisoformat(day), version)
    for day, version in (
        ("2023-06-20", "0.1.0"), ("2023-09-28", "0.2.0"), ("2024-01-31", "0.3.0"), ("2024-03-31", "0.4.0"),
        ("2024-06-11", "0.5.0"), ("2024-09-05", "0.6.0"), ("2024-10-14", "0.6.3"), ("2024-11-15", "0.6.4"),
        ("2024-12-18", "0.6.5"), ("2025-01-27", "0.7.0"), ("2025-02-06", "0.7.2"), ("2025-03-18", "0.8.0"),
        ("2025-04-28", "0.8.5"), ("2025-05-28", "0.9.0"), ("2025-06-10", "0.9.1"), ("2025-07-25", "0.10.0"),
        ("2025-08-19", "0.10.1"), ("2025-09-13", "0.10.2"), ("2025-10-04", "0.11.0"), ("2025-11-19", "0.11.1"),
        ("2025-12-03", "0.12.0"), ("2025-12-19", "0.13.0"), ("2026-01-20", "0.14.0"), ("2026-01-29", "0.15.0"),
        ("2026-02-26", "0.16.0"), ("2026-03-07", "0.17.0"), ("2026-03-20", "0.18.0"), ("2026-04-03", "0.19.0"),
        ("2026-04-27", "0.20.0"), ("2026-05-10", "0.20.2"), ("2026-05-15", "0.21.0"), ("2026-05-29", "0.22.0"),
        ("2026-06-13", "0.23.0"), ("2026-06-30", "0.24.0"), ("2026-07-11", "0.25.0"), ("2026-07-25", "0.26.0"),
        ("2026-08-10", "0.27.0"), ("2026-08-26", "0.28.0"), ("2026-09-09", "0.29.0"), ("2026-09-22", "0.30.0"),
        ("2026-10-05", "0.31.0"), ("2026-10-18", "0.32.0"), ("2026-11-02", "0.33.0"),
    )
)  # fmt: skip
# Families by model_type: the release of the months in which they came. Most reports without a version are of then.
_FIRST_RELEASE = {
    "gpt_oss": "0.10.1", "qwen3": "0.8.5", "qwen3_moe": "0.8.5", "llama4": "0.8.3", "llama4_text": "0.8.3",
    "gemma3": "0.8.0", "gemma3_text": "0.8.0", "qwen3_next": "0.10.2", "qwen3_vl": "0.11.0", "qwen3_vl_moe": "0.11.0",
    "qwen3_vl_text": "0.11.0", "qwen3_vl_moe_text": "0.11.0", "glm4_moe": "0.10.0", "minimax_m2": "0.11.1",
    "kimi_linear": "0.11.1", "qwen2_5_vl": "0.8.0", "deepseek_v32": "0.11.0", "kimi_k2": "0.10.0",
    "deepseek_v4": "0.21.0",
}  # fmt: skip


def number(value):
    """A number that a report could hold: as it is, or from text such as ``262,144``; else None."""
    if isinstance(value, str):
        try:
            value = float(value.replace(",", "").replace("_", "").strip())
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if abs(value) < _NO_SIZE else None


def count(value):
    """A whole number from 1 on, or None."""
    value = number(value)
    return int(value) if value is not None and value == int(value) and value >= 1 else None


def words(value):
    """Text in lower case without what means nothing; numbers and other kinds give an empty one."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return "" if text in _NOTHING else text


def engine(value, version=None):
    """V0, V1 or None; people also write it where the version goes."""
    for text in (words(value), words(version)):
        found = re.match(r"v([01])\b(?!\.)", text)
        if found:
            return "V" + found.group(1)
    return None


def version(value):
    """The release that the text means, or None: a version, the lower end of a range, or what was newest on a date."""
    text = value.strip() if isinstance(value, str) else ""
    when = _date(text)
    known = parse_version(text)
    if known is not None and known[0] >= 2:
        known = None
    if when and (known is None or _UNRELEASED.search(text)):
        return next((release for day, release in reversed(_RELEASES) if day <= when), None)
    return text.lstrip("<>=~ ") if known else None


def _date(text):
    for pattern in _DATES:
        found = pattern.search(text)
        if not found:
            continue
        parts = found.groupdict()
        month = _MONTHS.index(parts["name"].lower()) + 1 if parts.get("name") else int(parts["month"])
        year = int(parts["year"])
        try:
            return date(year if year > 2000 else 2000 + year, month, int(parts.get("day") or 15))
        except ValueError:
            return date(year if year > 2000 else 2000 + year, month, 15)
    return None


def is_lower_end(value):
    """Whether the text gives only the oldest version that it may have been."""
    return isinstance(value, str) and bool(_LATER.search(value))


def first_release(model_type):
    """The release of the months in which a family came, for those where it says more than the newest does; or None."""
    return _FIRST_RELEASE.get(model_type)


# A quantization that only the model's name tells; "int8 KV" is none.
_NAMED = re.compile(
    r"(?i)(?<![a-z])(nvfp4|mxfp4|mxfp8|fp8|awq|gptq|w4a16|w8a16|w8a8|int4|int8|autoround|auto-round|bnb-4bit|exl3|gguf"
    r"|4[- ]?bit|8[- ]?bit)(?![a-z0-9])(?!.{0,3}kv)"
)
# Tools that store weights in many ways.
_TOOLS = (
    "compressed-tensors",
    "compressed_tensors",
    "modelopt",
    "quark",
    "torchao",
    "auto-round",
    "auto_round",
)
_GGUF = re.compile(r"(?i)(?<![a-z0-9])(i?q\d(?:_\w+)?)(?![a-z0-9])")


def is_sixteen_bits(value):
    """Whether the field says that nothing is quantized."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return text == "none" or text in _SIXTEEN


def quantization(value, model=None):
    """The name of a quantization as ``weights`` takes it, or None. model: its name tells a GGUF file's type."""
    text = words(value)
    if not text or text in _SIXTEEN:
        return None
    kind = _GGUF.search(text) or (_GGUF.search(str(model)) if "gguf" in text else None)
    if kind and ("gguf" in text or "_" in kind.group(1)):
        return f"gguf {kind.group(1).lower()}"
    if text == "fp8" and re.search(r"meta-llama/.*fp8", str(model).lower()):
        # Meta's own FP8 checkpoints are FBGEMM's.
        return "fbgemm_fp8"
    if text in _TOOLS:
        # A tool's name tells no bits; the model's may.
        named = named_quantization(model)
        if named and re.search(r"[48]", named):
            return named
    if "bitsandbytes" in text and "bnb-4bit" in str(model).lower():
        # Checkpoints of that name hold doubly quantized maxima.
        return "bnb-4bit"
    return text


def named_quantization(model):
    """The quantization that a model's name tells, or None; "quantized" alone is taken as 4 bits."""
    found = _NAMED.search(str(model or ""))
    if found:
        return found.group(1).lower()
    return "int4" if "quantized" in str(model or "").lower() else None


_TOKENS = (
    re.compile(r"(\d+) ?(?:speculative |draft )?tok"),
    re.compile(r"num_speculative_tokens\D{0,5}(\d+)"),
    re.compile(r"\b(?:k|n) ?= ?(\d+)"),
    re.compile(r"\bmtp[ -]?(\d+)\b"),
)
# What drafts without a model.
_MODELLESS = ("ngram", "n-gram", "suffix", "lookup")


def speculation(value):
    """``{kind: mtp|eagle|none|draft, tokens: number or None}`` of a draft, or None: nothing drafts."""
    text = json.dumps(value).lower() if isinstance(value, dict) and value else words(value)
    if not text:
        return None
    tokens = next((int(found.group(1)) for found in (p.search(text) for p in _TOKENS) if found), None)
    if any(word in text for word in _MODELLESS):
        kind = "none"
    elif "eagle" in text:
        kind = "eagle"
    else:
        kind = "mtp" if "mtp" in text else "draft"
    return {"kind": kind, "tokens": tokens if tokens and tokens < 65 else None}


_MIB = re.compile(r"(?i)(\d{4,6}) ?mib")
_GIB = re.compile(r"(?i)(?<![\w.])(\d{1,3}(?:\.\d+)?) ?g(?:i?b)?\b")


def memory_in_name(name):
    """(GiB that vLLM sees, whether that is measured) of a size in a GPU's name, or None."""
    found = _MIB.search(str(name))
    if found:
        # Driver and firmware keep about half a GiB of nvidia-smi's total.
        return int(found.group(1)) / 1024 - 0.5
    found = _GIB.search(str(name))
    return float(found.group(1)) * 0.975 if found else None
