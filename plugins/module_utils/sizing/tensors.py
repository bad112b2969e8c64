# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The weight tensors that one rank holds of a layer, fused and split as vLLM does.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple


class Split(NamedTuple):
    """tp: ranks that share attention and dense MLPs; moe_tp: that share each expert's matrices; ep: that share
    the experts among them; absorbed: how latent attention keeps kv_b_proj once more: no, halves, products."""

    tp: int = 1
    moe_tp: int = 1
    ep: int = 1
    absorbed: str = "halves"


class Tensor(NamedTuple):
    """One weight of a rank: ``copies`` matrices of ``out`` x ``inner``, in one allocation.

    part: attention, mlp, experts, norms; role: of the quantization (``Plan.roles``), None: never quantized;
    names: of the checkpoint's modules in it; active: how many of the copies one token uses; derived: computed
    at load, not a parameter.
    """

    part: str
    role: str | None
    names: tuple[str, ...]
    out: int
    inner: int
    copies: int = 1
    active: float = 1
    derived: bool = False


def layer_tensors(attention, mlp, hidden, split, norms=2):
    """The Tensors of one layer on one rank. norms: of the width of the hidden state."""
    tensors = [Tensor("norms", None, ("norm",), 1, norms * hidden)]
    if attention:
        tensors += attention_tensors(attention, hidden, split)
    if mlp:
        tensors += mlp_tensors(mlp, hidden, split)
    return tensors


def attention_tensors(item, hidden, split):
    """The Tensors of the attention, or of what stands in its place."""
    kind = item["kind"]
    if kind == "parallel":
        return [tensor for branch in item["branches"] for tensor in attention_tensors(branch, hidden, split)]
    tensors = _BUILDERS.get(kind, _grouped)(item, hidden, split.tp)
    return tensors + _absorbed(item, hidden, split) if kind == "mla" else tensors


def kv_heads_of_rank(kv_heads, tp):
    """KV heads on one rank: replicated where there are fewer than ranks."""
    return max(1, kv_heads // tp)


def _share(count, ranks):
    return -(-count // ranks)


def _matrix(role, names, out, inner, part="attention"):
    return Tensor(part, role, names if isinstance(names, tuple) else (names,), out, inner)


def _small(out, part="attention"):
    return Tensor(part, None, ("small",), 1, out)


def _grouped(item, hidden, tp):
    heads = _share(item["heads"], tp)
    kv = kv_heads_of_rank(item["kv_heads"], tp)
    queries = heads * item["head_size"] * (2 if item.get("gate") else 1)
    keys = kv * item["head_size"]
    # k_is_v: the checkpoint has no value projection, the loader fills it from the keys'.
    values = kv * item["head_size_v"]
    if item.get("kv_from"):
        keys = values = 0
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    if item.get("k_is_v"):
        projections = [
            _matrix("attention", names[:2], queries + keys, hidden),
            _matrix("attention", names[2], values, hidden)._replace(derived=True),
        ]
    else:
        projections = [_matrix("attention", names, queries + keys + values, hidden)]
    tensors = [
        *projections,
        _matrix("attention", "self_attn.o_proj", hidden, heads * item["head_size_v"]),
    ]
    small = 0
    if item.get("bias") and item["bias"][0]:
        small += queries + keys + values
    if item.get("bias") and item["bias"][1]:
        small += hidden
    if item.get("norms"):
        small += 2 * item["head_size"]
    if item.get("sinks"):
        small += heads
    if small:
        tensors.append(_small(small))
    if item.get("cross"):
        tensors += [
            _matrix("attention", "encoder_attn.q_proj", heads * item["head_size"], hidden),
            _matrix("attention", "encoder_attn.kv_proj", 2 * kv * item["head_size"], hidden),
            _matrix("attention", "encoder_attn.o_proj", hidden, heads * item["head_size"]),
        ]
    return tensors


def _latent(item, hidden, tp):
    heads = _share(item["heads"], tp)
    query = heads * (item["qk_nope"] + item["qk_rope"])
    latent = item["kv_lora_rank"] + item["qk_rope"]
    tensors = []
    if item["q_lora_rank"]:
        names = ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa")
        tensors += [
            _matrix("attention", names, item["q_lora_rank"] + latent, hidden),
            _matrix("attention", "self_attn.q_b_proj", query, item["q_lora_rank"]),
        ]
    else:
        tensors += [
            _matrix("attention", "self_attn.q_proj", query, hidden),
            _matrix("attention", "self_attn.kv_a_proj_with_mqa", latent, hidden),
        ]
    unpacked = heads * (item["qk_nope"] + item["v_head"])
    if item.get("gate"):
        tensors.append(_matrix("attention", "self_attn.g_proj", heads * item["v_head"], hidden))
    tensors += [
        _matrix("attention", "self_attn.kv_b_proj", unpacked, item["kv_lora_rank"]),
        _matrix("attention", "self_attn.o_proj", hidden, heads * item["v_head"]),
        _small(item["q_lora_rank"] + item["kv_lora_rank"]),
    ]
    return tensors + _indexer(item["indexer"], hidden, item["q_lora_rank"])


def _absorbed(item, hidden, split):
    """What latent attention computes from its projections at load, in the model's dtype."""
    heads, latent = _share(item["heads"], split.tp), item["kv_lora_rank"]
    if split.absorbed == "halves":
        sizes = [(heads * item["qk_nope"], latent), (heads * item["v_head"], latent)]
    elif split.absorbed == "products":
        query = item["q_lora_rank"] or hidden
        sizes = [(heads * latent, query), (heads * latent, hidden), (heads * item["qk_rope"], query)]
    else:
        sizes = []
    return [Tensor("attention", None, ("absorbed",), out, inner, derived=True) for out, inner in sizes]


def _indexer(indexer, hidden, q_lora_rank):
    if not indexer or not indexer["own"]:
        return []
    width = indexer["heads"] * indexer["head_size"]
    return [
        _matrix("attention", "self_attn.indexer.wq_b", width, q_lora_rank or hidden),
        _matrix("attention", "self_attn.indexer.wk", indexer["head_size"], hidden),
        Tensor("attention", None, ("self_attn.indexer.weights_proj",), indexer["heads"], hidden),
    ]


def _compressed(item, hidden, tp):
    heads = _share(item["heads"], tp)
    size = item["head_size"]
    groups = _share(item["o_groups"], tp)
    tensors = [
        _matrix("attention", ("self_attn.wq_a", "self_attn.wkv"), item["q_lora_rank"] + size, hidden),
        _matrix("attention", "self_attn.wq_b", heads * size, item["q_lora_rank"] or hidden),
        _matrix("attention", "self_attn.wo_a", groups * item["o_lora_rank"], heads * size // groups),
        _matrix("attention", "self_attn.wo_b", hidden, groups * item["o_lora_rank"]),
        _small(item["q_lora_rank"] + size + heads),
    ]
    if item["ratio"]:
        # Windows of four overlap: twice the width.
        width = size * (2 if item["ratio"] == 4 else 1)
        tensors.append(Tensor("attention", None, ("self_attn.compressor",), 2 * width, hidden))
    if item["indexer"]:
        indexer = item["indexer"]
        tensors += _indexer(indexer, hidden, item["q_lora_rank"])[:1]
        tensors.append(
            Tensor("attention", None, ("self_attn.indexer.compressor",), 4 * indexer["head_size"], hidden)
        )
    return tensors


def _delta_net(item, hidden, tp):
    keys = _share(item["k_heads"] * item["k_head"], tp)
    values = _share(item["v_heads"] * item["v_head"], tp)
    heads = _share(item["v_heads"], tp)
    return [
        _matrix("state", ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"), 2 * keys + 2 * values, hidden),
        Tensor("attention", None, ("linear_attn.in_proj_ba",), 2 * heads, hidden),
        Tensor("attention", None, ("linear_attn.conv1d",), 2 * keys + values, item["conv_kernel"]),
        _matrix("state", "linear_attn.out_proj", hidden, values),
        _small(2 * heads + item["v_head"]),
    ]


def _kda(item, hidden, tp):
    width = _share(item["heads"] * item["head_size"], tp)
    size = item["head_size"]
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    # The decay goes through a low rank; the output gate too, unless it has the full one (Kimi-K3).
    narrow = 1 if item["full_gate"] else 2
    gate = [_matrix("state", "self_attn.g_proj", width, hidden)] if item["full_gate"] else []
    return [
        _matrix("state", names, 3 * width, hidden),
        *gate,
        _matrix("state", "self_attn.f_a_proj", narrow * size, hidden),
        _matrix("state", "self_attn.f_b_proj", narrow * width, size),
        Tensor("attention", None, ("self_attn.b_proj",), _share(item["heads"], tp), hidden),
        Tensor("attention", None, ("self_attn.conv",), 3 * width, item["conv_kernel"]),
        _matrix("state", "self_attn.o_proj", hidden, width),
        _small(2 * width),
    ]


def _lightning(item, hidden, tp):
    width = _share(item["heads"] * item["head_size"], tp)
    return [
        _matrix("state", "self_attn.qkv_proj", 3 * width, hidden),
        _matrix("state", "self_attn.output_gate", width, hidden),
        _matrix("state", "self_attn.out_proj", hidden, width),
        _small(width),
    ]


def _mamba2(item, hidden, tp):
    inner = _share(item["inner"], tp)
    heads = _share(item["heads"], tp)
    groups = max(_share(item["groups"], tp), 1) * item["state"]
    return [
        _matrix("state", "mixer.in_proj", 2 * inner + 2 * groups + heads, hidden),
        Tensor("attention", None, ("mixer.conv1d",), inner + 2 * groups, item["conv_kernel"] + 1),
        _matrix("state", "mixer.out_proj", hidden, inner),
        _small(3 * heads + inner),
    ]


def _mamba1(item, hidden, tp):
    inner = _share(item["inner"], tp)
    return [
        _matrix("state", "mixer.in_proj", 2 * inner, hidden),
        Tensor("attention", None, ("mixer.conv1d",), inner, item["conv_kernel"] + 1),
        _matrix("state", "mixer.x_proj", item["dt_rank"] + 2 * item["state"], inner),
        _matrix("state", "mixer.dt_proj", inner, item["dt_rank"]),
        _matrix("state", "mixer.out_proj", hidden, inner),
        _small(inner * (item["state"] + 2)),
    ]


def _short_conv(item, hidden, tp):
    width = _share(item["width"], tp)
    return [
        _matrix("state", "conv.in_proj", 3 * width, hidden),
        Tensor("attention", None, ("conv.conv",), width, item["conv_kernel"]),
        _matrix("state", "conv.out_proj", hidden, width),
    ]


def _linear(item, hidden, tp):
    """One matrix in place of attention (pruned Nemotron models)."""
    return [_matrix("attention", "self_attn.linear_attn", hidden, hidden)]


_BUILDERS = {
    "linear": _linear,
    "mla": _latent,
    "compressed": _compressed,
    "gated_delta_net": _delta_net,
    "kda": _kda,
    "lightning": _lightning,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
}


def mlp_tensors(item, hidden, split):
    """The Tensors of a dense MLP or of the experts, their router and what stands beside them."""
    if item["kind"] == "dense":
        return _dense("mlp", item, item["width"], hidden, split.tp)
    factor = 2 if item["gated"] else 1
    experts = _share(item["experts"], split.ep)
    width = _share(item["width"], split.moe_tp)
    active = item["active"] / item["experts"] * experts
    up = ("mlp.experts.gate_proj", "mlp.experts.up_proj") if item["gated"] else ("mlp.experts.up_proj",)
    # The width that the experts see: a narrower one where the layer projects down before them and up after.
    seen = item.get("latent") or hidden
    tensors = [
        Tensor("experts", None, ("mlp.gate",), item["experts"], hidden),
        Tensor("experts", "expert", up, factor * width, seen, experts, active),
        Tensor("experts", "expert", ("mlp.experts.down_proj",), seen, width, experts, active),
    ]
    if item.get("bias"):
        tensors.append(
            Tensor("experts", None, ("mlp.experts.bias",), 1, factor * width + seen, experts, active)
        )
    if item.get("latent"):
        # Whole on every rank.
        tensors += [
            Tensor("mlp", "mlp", ("mlp.fc1_latent_proj",), seen, hidden),
            Tensor("mlp", "mlp", ("mlp.fc2_latent_proj",), hidden, seen),
        ]
    if item.get("shared"):
        tensors += _dense("mlp.shared_experts", item, item["shared"], hidden, split.tp)
        if item.get("shared_gate"):
            tensors.append(Tensor("experts", None, ("mlp.shared_expert_gate",), 1, hidden))
    if item.get("dense"):
        tensors += _dense("mlp", dict(item, bias=False), item["dense"], hidden, split.tp)
        # Three more norms around the two branches, and a scale per expert.
        tensors.append(_small(3 * hidden + item["experts"], "norms"))
    return tensors


def _dense(prefix, item, width, hidden, tp):
    width = _share(width, tp)
    if item["gated"]:
        up, rows = [prefix + ".gate_proj", prefix + ".up_proj"], 2 * width
    else:
        up, rows = [prefix + ".up_proj"], width
    tensors = [
        Tensor("mlp", "mlp", tuple(up), rows, hidden),
        Tensor("mlp", "mlp", (prefix + ".down_proj",), hidden, width),
    ]
    if item.get("bias"):
        tensors.append(_small(rows + hidden, "mlp"))
    return tensors
