# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many parameters a model has, as far as its name tells.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

# Names whose size isn't in them, or not as one number: pattern -> total parameters in billions, by the model
# cards. Experts share attention and embeddings, so a name such as 8x7B overstates the total.
_KNOWN = tuple(
    (re.compile(pattern, re.IGNORECASE), size)
    for pattern, size in (
        (r"mixtral-?8x7b", 46.7),
        (r"mixtral-?8x22b", 140.6),
        (r"dbrx", 132.0),
        (r"llama-?4-scout", 109.0),
        (r"llama-?4-maverick", 400.0),
        (r"deepseek-(?:coder-)?v2-lite", 15.7),
        (r"deepseek-moe-16b", 16.4),
        (r"deepseek-vl2-tiny", 3.4),
        (r"deepseek-(?:coder-)?v2(?:\.5)?(?![\w.])", 236.0),
        (r"deepseek-(?:v3(?:\.\d)?|r1)(?!-distill|-0528-qwen3)(?![\w.])", 671.0),
        (r"deepseek-v4-flash", 284.0),
        (r"deepseek-v4-pro", 1600.0),
        (r"kimi-k2", 1000.0),
        (r"kimi-vl-a3b|moonlight-16b", 16.0),
        (r"qwen1\.5-moe-a2\.7b", 14.3),
        (r"glm-4\.5v|glm-4\.5-air|glm-4\.6v(?!-flash)", 106.0),
        (r"glm-4\.[567](?![\w.]|-air|-flash)", 355.0),
        (r"glm-4\.7-flash", 30.0),
        (r"glm-5(?:\.[123])?(?![\w.])", 744.0),
        (r"minimax-m2", 229.0),
        (r"minimax-(?:m1|text-01)", 456.0),
        (r"grok-1", 314.0),
        (r"phi-?4-mini", 3.8),
        (r"phi-?4-multimodal", 5.6),
        (r"phi-?4(?![\w.]|-mini|-multimodal)", 14.7),
        (r"phi-3(?:\.5)?-vision", 4.2),
        (r"phi-3(?:\.5)?-mini", 3.8),
        (r"phi-3-small", 7.4),
        (r"phi-3-medium", 14.0),
        (r"phi-3\.5-moe", 41.9),
        (r"phi-?2(?![\w.])", 2.8),
        (r"gemma-3n-e2b", 5.4),
        (r"gemma-3n-e4b", 7.8),
        (r"jamba-1\.5-mini|jamba-mini|jamba-v0\.1", 52.0),
        (r"jamba-1\.5-large|jamba-large", 398.0),
        (r"c4ai-command-r-plus|command-r-plus", 104.0),
        (r"c4ai-command-r(?!7b|-plus)|command-r(?!7b|-plus)-", 35.0),
        (r"command-a-", 111.0),
        (r"mistral-large", 123.0),
        (r"pixtral-large", 124.0),
        (r"codestral-mamba", 7.3),
        (r"mistral-nemo", 12.2),
        (r"stablebeluga2?(?![\w.]*-?\d+b)", 70.0),
    )
)

# "8x7B": experts times size. "70B", "1.5b", "125m", "1T": a number with a unit that isn't part of a longer
# word, nor an active ("A3B") or effective ("E4B") size, nor a context length ("128k") or a width ("4bit").
_EXPERTS = re.compile(r"(?<![A-Za-z0-9.])(\d+)x(\d+(?:\.\d+)?)b(?![A-Za-z0-9])", re.IGNORECASE)
_SIZE = re.compile(r"(?<![0-9.])(?<![-_/ ][AaEe])(?<!^[AaEe])(\d+(?:\.\d+)?)([bBtTmM])(?![A-Za-z0-9])")
_REVISION = re.compile(r"[0-9a-f]{12,64}")
_BILLIONS = {"b": 1.0, "t": 1000.0, "m": 0.001}
# Attention, embeddings and norms exist once, not once an expert: 8x7B is 46.7, 8x22B is 140.6 (83 % and 80
# %).
_SHARED = 0.82


def parameters_in_billions(name):
    """Total parameters in billions (float) by a model's name, or None if the name doesn't tell.

    Takes repository ids (``Qwen/Qwen3-30B-A3B`` -> 30.0), local and cache paths, GGUF files, and free text
    (``8B w8a8``). Total, not active: memory holds every expert. The last part of a path that tells a size
    decides.
    """
    if not isinstance(name, str):
        return None
    for part in reversed(re.split(r"[/\\]|--", name)):
        size = None if _REVISION.fullmatch(part) else _size_of(part.strip())
        if size is not None:
            return size
    return None


def _size_of(text):
    for pattern, size in _KNOWN:
        if pattern.search(text):
            return size
    experts = _EXPERTS.search(text)
    if experts:
        return round(int(experts.group(1)) * float(experts.group(2)) * _SHARED, 1)
    sizes = [float(number) * _BILLIONS[unit.lower()] for number, unit in _SIZE.findall(text)]
    # "Qwen2.5-32B-Instruct-draft-0.5B": the first is the model's own; a name starts with what it is.
    return sizes[0] if sizes and sizes[0] > 0 else None
