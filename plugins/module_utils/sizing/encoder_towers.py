# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vision and audio towers of a model and what joins them to the language model, counted in parameters.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .config_fields import first, note, positive

_VISION_SECTIONS = ("vision_config", "vision_tower_config", "visual", "vit_config", "img_processor")
_AUDIO_SECTIONS = ("audio_config", "audio_encoder_config", "sound_config", "audio_tower_config")

# The tower of a family whose config leaves it (or its sizes) out: layers, hidden, intermediate, patch.
_FAMILY = {
    "llama4": (34, 1408, 5632, 14),
    "phi3_v": (24, 1024, 4096, 14),
    "kimi_k25": (27, 1152, 4304, 14),
    "mistral3": (24, 1024, 4096, 14),
}
# Qwen3.5 has three towers, by the width of its language model: largest width, then the sizes as above.
_QWEN35 = ((1024, (12, 768, 3072, 16)), (2560, (24, 1024, 4096, 16)), (None, (27, 1152, 4304, 16)))
# Towers that run as Transformers' own modules: not split over ranks.
_UNSPLIT = ("gemma4",)
_THREE_MATRICES = ("pixtral", "qwen2_5_vl", "qwen2_5_omni", "gemma4_vision", "dots_vit")
# (rows, columns) of the projector's matrices, from the tower's width v, its merged width m and the text's width t.
_PROJECTORS = {
    "llama4": lambda v, m, t: ((5632, 4096), (4096, 4096), (4096, t)),
    "phi3_v": lambda v, m, t: ((4 * v, t), (t, t)),
    "mistral3": lambda v, m, t: ((m, v), (v, t), (t, t)),
    "pixtral": lambda v, m, t: ((v, t), (t, t)),
    "gemma3": lambda v, m, t: ((v, t),),
    "gemma4": lambda v, m, t: ((v, t),),
    "llava": lambda v, m, t: ((v, t), (t, t)),
    # Four neighbouring patches become one.
    "internvl_chat": lambda v, m, t: ((4 * v, t), (t, t)),
    # The last layer's states beside those of five inner ones.
    "mllama": lambda v, m, t: ((6 * v, t),),
}
_FEW = {"llava_next": "llava", "llava_onevision": "llava", "internvl": "internvl_chat"}
# Llama 3.2's tower knows eight ways to tile an image (and none): it learns positions for each.
_TILINGS = 9


def encoder_towers(config, model_type, architectures, hidden, assumptions):
    """``[{kind, parameters, layers, hidden_size, intermediate_size, projector, split, heads}]``.

    parameters: with the projector; split: whether tensor parallelism splits the tower.
    """
    towers = []
    section = None
    for key in _VISION_SECTIONS:
        if isinstance(config.get(key), dict):
            section = config[key]
            break
    multimodal = any("ForConditionalGeneration" in name or "VForCausalLM" in name for name in architectures)
    family = model_type in _FAMILY or model_type.startswith("qwen3_5")
    if section is not None or (family and (multimodal or not architectures)):
        towers.append(_vision(section or {}, model_type, hidden, assumptions))
    for key in _AUDIO_SECTIONS:
        audio = config.get(key)
        if isinstance(audio, dict):
            towers.append(_audio(audio, hidden, assumptions))
            break
    if model_type == "whisper":
        towers.append(_audio(config, hidden, assumptions))
    return [tower for tower in towers if tower]


def _vision(section, model_type, hidden, assumptions):
    layers = positive(section, "depth", "num_hidden_layers", "layers", "num_layers", "vt_num_hidden_layers")
    width = positive(section, "embed_dim", "hidden_size", "width", "vt_hidden_size")
    inner = positive(section, "intermediate_size", "mlp_dim", "vt_intermediate_size")
    patch = positive(section, "patch_size") or 14
    if model_type.startswith("qwen2_vl"):
        inner = int((width or 1280) * float(section.get("mlp_ratio") or 4))
    if not (layers and width):
        known = _FAMILY.get(model_type)
        if model_type.startswith("qwen3_5"):
            known = next(sizes for limit, sizes in _QWEN35 if limit is None or hidden <= limit)
        if known is None:
            note(assumptions, "the vision tower's sizes aren't in the config: it isn't counted")
            return None
        layers, width, inner, patch = known
        note(assumptions, f"the vision tower's sizes aren't in the config: those of {model_type} are assumed")
    inner = inner or 4 * width
    kind = str(section.get("model_type") or "")
    matrices = (
        3 if kind.startswith(_THREE_MATRICES) or model_type in ("qwen2_5_vl", "mistral3", "pixtral") else 2
    )
    per_layer = 4 * width * width + matrices * width * inner + 8 * width + inner
    patches = _positions(section, patch) * width
    if model_type == "mllama":
        layers += positive(section, "num_global_layers") or 0
        patches *= _TILINGS * (positive(section, "max_num_tiles") or 4)
    projector = sum(rows * columns for rows, columns in _projector(section, model_type, width, hidden))
    return {
        "kind": "vision",
        "parameters": layers * per_layer + 3 * patch * patch * width + patches + projector,
        "layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "projector": projector,
        "split": not model_type.startswith(_UNSPLIT),
        # Of the tower that keeps its attention whole where ranks don't divide its heads.
        "heads": positive(section, "num_attention_heads") if kind.startswith("intern_vit") else None,
    }


def _positions(section, patch):
    given = positive(section, "num_position_embeddings")
    if given:
        return given
    image = first(section, "image_size")
    if isinstance(image, int) and "pixtral" not in str(section.get("model_type")):
        return (image // patch) ** 2
    return 0


def _projector(section, model_type, width, hidden):
    merge = positive(section, "spatial_merge_size") or 2
    merged = width * merge * merge
    name = _FEW.get(model_type, model_type)
    if name in _PROJECTORS:
        return _PROJECTORS[name](width, merged, hidden)
    out = positive(section, "out_hidden_size") or hidden
    once = ((merged, merged), (merged, out))
    if model_type.startswith(("qwen", "kimi", "glm")):
        # Qwen3-VL joins some of the inner layers too (deepstack), each with its own merger.
        return once * (1 + len(section.get("deepstack_visual_indexes") or ()))
    return ((width, hidden), (hidden, hidden))


def _audio(section, hidden, assumptions):
    layers = positive(section, "encoder_layers", "num_hidden_layers", "conf_num_hidden_layers", "num_layers")
    width = positive(section, "d_model", "hidden_size", "n_embd", "encoder_hidden_dim")
    if not (layers and width):
        note(assumptions, "the audio tower's sizes aren't in the config: it isn't counted")
        return None
    inner = positive(section, "encoder_ffn_dim", "intermediate_size") or 4 * width
    per_layer = 4 * width * width + 2 * width * inner + 9 * width + inner
    front = 3 * 128 * width + 3 * width * width + 1500 * width
    return {
        "kind": "audio",
        "parameters": layers * per_layer + front + width * hidden,
        "layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "projector": width * hidden,
        "split": True,
        "heads": None,
    }
