# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A config for a report that has no config.json but a list of a few sizes (field ``arch``) and the model's name.

The name tells the family, and the family what its class knows without the config: biases, head norms, tied
embeddings, towers, latent attention.
"""

from __future__ import annotations

import re

# Words of a model's name -> model_type, the first that fits.
_FAMILIES = (
    (r"deepseek[-_ ]?v4", "deepseek_v4"),
    (r"deepseek[-_ ]?(?:coder[-_ ]?)?v2", "deepseek_v2"),
    (r"deepseek[-_ ]?(?:v3|r1(?!.*(?:distill|llama|qwen)))", "deepseek_v3"),
    (r"kimi[-_ ]?k2\.[5-9]", "kimi_k25"),
    (r"kimi[-_ ]?k2", "kimi_k2"),
    (r"qwen[-_ ]?3[-_ ]?next", "qwen3_next"),
    (r"qwen[-_ ]?3\.[5-9].*a\d+b", "qwen3_5_moe"),
    (r"qwen[-_ ]?3\.[5-9]", "qwen3_5"),
    (r"qwen[-_ ]?3[-_ ]?vl.*a\d+b", "qwen3_vl_moe"),
    (r"qwen[-_ ]?3[-_ ]?vl", "qwen3_vl"),
    (r"qwen[-_ ]?3.*a\d+b", "qwen3_moe"),
    (r"qwen[-_ ]?3", "qwen3"),
    (r"qwen[-_ ]?2\.5[-_ ]?vl", "qwen2_5_vl"),
    (r"qwen[-_ ]?2[-_ ]?vl", "qwen2_vl"),
    (r"qwen.*moe", "qwen2_moe"),
    (r"qwen|qwq|kimi[-_ ]?dev", "qwen2"),
    (r"gemma[-_ ]?4", "gemma4"),
    (r"gemma[-_ ]?3n", "gemma3n"),
    (r"gemma[-_ ]?3", "gemma3"),
    (r"gemma[-_ ]?2", "gemma2"),
    (r"gemma", "gemma"),
    (r"gpt[-_ ]?oss", "gpt_oss"),
    (r"llama[-_ ]?4", "llama4"),
    (r"llava", "llava_next"),
    (r"glm[-_ ]?5", "glm_moe_dsa"),
    (r"glm[-_ ]?4\.[5-9]", "glm4_moe"),
    (r"minimax[-_ ]?m2", "minimax_m2"),
    (r"mistral[-_ ]?small[-_ ]?3\.1|ministral[-_ ]?3", "mistral3"),
    (r"nemotron.*(?:nano|super|cascade|-h)", "nemotron_h"),
    (r"mixtral", "mixtral"),
    (r"phi[-_ ]?3.*vision", "phi3_v"),
    (r"phi[-_ ]?[34]", "phi3"),
    (r"phi", "phi"),
    (r"granite.*a\d+m", "granitemoe"),
    (r"llama|mistral|granite|vicuna|yi-", "llama"),
)
# Families whose small models share embedding and head, up to this width.
_TIED_UP_TO = {
    "qwen2": 2048,
    "qwen3": 2560,
    "qwen3_vl": 2560,
    "qwen3_5": 2560,
    "llama": 3072,
    "granitemoe": 1536,
}
# Llama 1 to 3 never do; 3.2's small ones and Granite 3's 2B do.
_NEVER_TIED = re.compile(
    r"llama[-_ ]?[12](?!\d)|llama[-_ ]?3(?:\.1)?[-_ ]|tinyllama|r1[-_ ]distill|mistral|vicuna"
)
# What a family's class knows and the list doesn't hold.
_KNOWN = {
    "gemma4": {"attention_k_eq_v": True},
    "qwen2_moe": {"shared_expert_intermediate_size": 5632},
    "deepseek_v2": {
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
    },
    "deepseek_v3": {"qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536, "n_shared_experts": 1},
    "kimi_k2": {"qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536, "n_shared_experts": 1},
    "kimi_k25": {"qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536, "n_shared_experts": 1},
}


def model_type(name):
    """The family that a model's name tells, or None."""
    text = str(name or "").lower()
    return next((kind for words, kind in _FAMILIES if re.search(words, text)), None)


def config(arch, *names):
    """A config.json for the listed sizes ``arch``; names: of the model, the first that tells a family counts."""
    kind, name = next(
        ((model_type(item), str(item).lower()) for item in names if model_type(item)), (None, "")
    )
    listed = {
        **arch,
        "layer_types": _layer_types(arch.get("layer_type_counts"), arch.get("num_hidden_layers")),
    }
    if arch.get("model_type") or kind is None:
        return listed
    listed.update({key: value for key, value in _KNOWN.get(kind, {}).items() if key not in arch})
    listed["model_type"] = kind
    width = arch.get("hidden_size")
    limit = _TIED_UP_TO.get(kind)
    if limit and isinstance(width, int) and not _NEVER_TIED.search(name):
        listed["tie_word_embeddings"] = width <= limit
    return listed


def _layer_types(counts, layers):
    """The kinds of layers spread evenly, from how many there are of each; None where that isn't listed."""
    if not isinstance(counts, dict) or not all(isinstance(count, int) for count in counts.values()):
        return None
    if sum(counts.values()) != layers or len(counts) < 2:
        return None
    places = sorted(
        ((index + 1) / count, -count, kind)
        for kind, count in counts.items()
        if count
        for index in range(count)
    )
    return [kind for _place, _count, kind in places]
