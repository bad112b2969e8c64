# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of a model's repository say: which hold the weights, how they are quantized, Mistral's params.json.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

# Configs of quantizers beside config.json, as vLLM looks for them: file -> quant_method where it names none.
QUANTIZATION_FILES = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}

# Files that training leaves beside the weights, which vLLM doesn't load.
_NOT_LOADED = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
_PICKLED = (".bin", ".pt")

# Mistral's own names of the fields of a config.json.
_MISTRAL = (
    ("hidden_size", "dim"),
    ("num_hidden_layers", "n_layers"),
    ("num_attention_heads", "n_heads"),
    ("num_key_value_heads", "n_kv_heads"),
    ("head_dim", "head_dim"),
    ("intermediate_size", "hidden_dim"),
    ("vocab_size", "vocab_size"),
    ("sliding_window", "sliding_window"),
    ("max_position_embeddings", "max_position_embeddings"),
    ("tie_word_embeddings", "tied_embeddings"),
)
# What vLLM takes for a params.json that names no context.
_MISTRAL_CONTEXT = 128000


def checkpoint(files, total=None):
    """The weights among ``files`` ([{name, bytes or None}]): which vLLM loads, and how large they are.

    total: ``total_size`` of a safetensors index, which counts tensors only and then decides.

    Returns ``{files, checkpoint_bytes, largest_file_bytes, pickled}``; pickled: whether they are PyTorch's files,
    which are read into anonymous memory; None where no weights are listed.
    """
    weights, pickled = _weights(files)
    sizes = [entry["bytes"] for entry in weights]
    known = bool(sizes) and all(size is not None for size in sizes)
    return {
        "files": weights,
        "checkpoint_bytes": total or (sum(sizes) if known else None),
        "largest_file_bytes": max(sizes) if known else None,
        "pickled": pickled if weights else None,
    }


def _weights(files):
    files = [entry for entry in files if "/" not in entry["name"]]
    tensors = [entry for entry in files if entry["name"].endswith(".safetensors")]
    if tensors:
        # A repository with both has the same weights twice: Mistral's own files are for their own loader.
        own = [entry for entry in tensors if not entry["name"].startswith("consolidated")]
        return own or tensors, False
    pickles = [
        entry for entry in files if entry["name"].endswith(_PICKLED) and entry["name"] not in _NOT_LOADED
    ]
    if pickles:
        return pickles, True
    return [entry for entry in files if entry["name"].endswith(".gguf")], False


def quantization_of(config, names, load):
    """``config`` with the quantization_config that a file beside it holds, if it has none itself.

    names: of the files there; load: gives the JSON object of one of them.
    """
    sections = (config, config.get("text_config"))
    if any(isinstance(section, dict) and section.get("quantization_config") for section in sections):
        return config
    for name, method in QUANTIZATION_FILES.items():
        if name in names:
            quantization = load(name)
            if isinstance(quantization.get("quantization"), dict):
                quantization = {**quantization, **quantization["quantization"]}
                del quantization["quantization"]
            quantization.setdefault("quant_method", method)
            return dict(config, quantization_config=quantization)
    return config


def mistral_config(params, assumptions):
    """A config.json for Mistral's ``params.json``, read as vLLM reads it (``--config-format mistral``)."""
    config = {name: params[own] for name, own in _MISTRAL if params.get(own) is not None}
    experts = params.get("moe")
    if isinstance(experts, dict):
        config["num_local_experts"] = experts.get("num_experts")
        config["num_experts_per_tok"] = experts.get("num_experts_per_tok")
        if experts.get("expert_hidden_dim"):
            config["moe_intermediate_size"] = experts["expert_hidden_dim"]
    config["model_type"] = "mixtral" if "num_local_experts" in config else "mistral"
    config["architectures"] = [
        "MixtralForCausalLM" if "num_local_experts" in config else "MistralForCausalLM"
    ]
    vision = params.get("vision_encoder")
    if isinstance(vision, dict):
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "patch_size", "image_size")
        config["vision_config"] = {name: vision[name] for name in names if vision.get(name) is not None}
        config["vision_config"]["model_type"] = "pixtral"
        config = {
            "model_type": "pixtral",
            "architectures": ["PixtralForConditionalGeneration"],
            "vision_config": config.pop("vision_config"),
            "text_config": config,
        }
    text = config.get("text_config", config)
    if "max_position_embeddings" not in text:
        text["max_position_embeddings"] = params.get("max_seq_len") or _MISTRAL_CONTEXT
        if not params.get("max_seq_len"):
            assumptions.append(
                f"params.json names no context length: {_MISTRAL_CONTEXT} is assumed, as vLLM does"
            )
    quantization = params.get("quantization")
    if isinstance(quantization, dict) and "fp8" in str(quantization.get("qformat_weight", "")):
        config["quantization_config"] = {"quant_method": "fp8"}
    return config
