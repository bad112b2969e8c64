# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the weights of a model take on each GPU, as ``Model loading took`` counts it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from math import gcd

from ..engine.versions import in_range
from ..quantities import MIB
from .architecture import dtype_bytes, layer_list
from .quantization import NONE, Plan, matrix_bytes, quantization_plan, scheme_of
from .tensors import Split, Tensor, kv_heads_of_rank, layer_tensors

PARTS = ("embedding", "attention", "mlp", "experts", "norms", "lm_head", "encoder", "draft", "rope")

# torch's allocator: from 10 MiB on a tensor gets a segment of whole 2 MiB; what is left over is given to others
# only when it is more than 1 MiB, otherwise it counts as the tensor's.
_LARGE = 10 * MIB
_SEGMENT = 2 * MIB
_KEPT = MIB
# From 0.31 blocks above this aren't split at all while loading (vllm-memory 5.2).
_MAX_SPLIT = 20 * MIB
# By what share files may differ from an unquantized config: buffers, towers and draft layers that one of them leaves out.
FILES_DIFFER = 0.05
_PADDED_VOCABULARY = 64
_FOUR_NORMS = ("gemma2", "gemma3", "gemma4", "glm4_moe_nextn")
# Kernels for MXFP4 experts want whole tiles.
_MXFP4_TILE = {"inner": 128, "hidden": 256}


def weights(
    arch,
    quantization=None,
    dtype=None,
    tp=1,
    pp=1,
    dp=1,
    expert_parallel=False,
    version=None,
    checkpoint_bytes=None,
    draft=False,
    encoder="weights",
):
    """The bytes of the weights on one rank.

    arch: of ``architecture``; quantization: a quantization_config, a name or None (arch's own); dtype: the name
    the engine runs with, None: the one it takes by itself (float32 is cast down to 16 bits); expert_parallel: experts are dealt out over tp x dp;
    checkpoint_bytes: the ``total_size`` of a safetensors index (or the size of a GGUF file), which then decides;
    draft: whether in-checkpoint draft layers are loaded; encoder: how the towers are split: ``weights`` over
    tp, ``data`` (a whole copy on each rank), ``none`` (not loaded).

    Returns ``{bytes, parts: {part: bytes}, stages: [bytes], parameters: {total, active}, quantization,
    source: arithmetic|checkpoint, assumptions}``. bytes and parts are those of the fullest pipeline stage; part
    ``rope`` are tables and other buffers that aren't in a checkpoint.
    """
    assumptions: list[str] = []
    plan = quantization_plan(quantization, arch, version, assumptions)
    element = dtype_bytes(dtype if dtype not in (None, "auto") else arch["dtype"])
    moe_ranks = tp * dp
    absorbed = _absorbed(version)
    split = Split(tp, 1 if expert_parallel else moe_ranks, moe_ranks if expert_parallel else 1, absorbed)
    measure = _Measure(arch, plan, element, version)
    total, active = parameter_counts(arch)
    factor = 1.0
    if checkpoint_bytes:
        stored = _stored_plan(arch, plan, quantization, version)
        factor = _of_checkpoint(arch, stored, checkpoint_bytes)
        if stored.name == "none" and factor < 1 - FILES_DIFFER:
            # A download that was cut says nothing of what is loaded once it is whole.
            assumptions.append("the files are smaller than the config says: the config counts")
            checkpoint_bytes, factor = None, 1.0
    stages = [measure.stage(split, pp, stage, draft, encoder, factor) for stage in range(pp)]
    fullest = max(stages, key=lambda parts: sum(parts.values()))
    return {
        "bytes": sum(fullest.values()),
        "parts": fullest,
        "stages": [sum(parts.values()) for parts in stages],
        "parameters": {"total": total, "active": active},
        "quantization": plan.name,
        "source": "checkpoint" if checkpoint_bytes else "arithmetic",
        "assumptions": arch["assumptions"] + assumptions,
    }


def checkpoint_size(arch, plan):
    """Bytes of the checkpoint that ``arch`` describes under its own ``plan`` (see ``quantization_plan``)."""
    return _Measure(arch, plan, dtype_bytes(arch["stored_dtype"]), None).checkpoint()


def _of_checkpoint(arch, plan, size):
    expected = checkpoint_size(arch, plan)
    return size / expected if expected else 1.0


def parameter_counts(arch):
    """(total, active) parameters of the model, without draft layers, with encoder towers; active: one token's."""
    total = active = 0.0
    for run in arch["layers"]:
        for tensor in _of_run(run, arch, Split()):
            if not tensor.derived:
                total += run["count"] * tensor.copies * tensor.out * tensor.inner
                active += run["count"] * tensor.active * tensor.out * tensor.inner
    for tensor in _ends(arch, 1, True, True, padded=False):
        total += tensor.out * tensor.inner
        # Of the embedding a token reads one row.
        active += (
            tensor.out * tensor.inner if tensor.part != "embedding" or arch["tied"] else arch["hidden_size"]
        )
    total += sum(tower["parameters"] for tower in arch["encoders"])
    return int(total), int(active)


def pipeline_split(layers, pp):
    """How many layers each pipeline stage has: the rest goes to the stages before the last."""
    base, rest = divmod(layers, pp)
    counts = [base] * pp
    for index in range(2, rest + 2):
        counts[-index] += 1
    return counts


def parallel_error(arch, tp):
    """vLLM's own words where ``tp`` doesn't divide the attention heads, or None."""
    for run in arch["layers"]:
        item = run["attention"] or {}
        for branch in item.get("branches", [item]):
            heads = branch.get("heads")
            if heads and heads % tp and branch["kind"] in ("full", "sliding", "chunked", "mla", "compressed"):
                return f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tp})."
    return None


def allocated(size, version=None):
    """Bytes that torch's allocator books for a tensor of ``size`` bytes."""
    if size < _LARGE:
        return -(-size // 512) * 512
    segment = -(-size // _SEGMENT) * _SEGMENT
    if segment - size <= _KEPT or (size > _MAX_SPLIT and in_range(version, "0.31")):
        return segment
    return size


def _absorbed(version):
    """What latent attention keeps beside its projections: nothing before it was supported (0.7.1)."""
    if in_range(version, "0.7.1", "0.7"):
        return "products"
    return "no" if in_range(version, None, "0.7.0") else "halves"


def _tower_share(tower, ranks):
    """Parameters of a tower on one of ``ranks``: attention whose heads they don't divide stays whole (InternViT 6B has 25)."""
    whole = 0
    if tower["heads"] and tower["heads"] % ranks:
        whole = tower["layers"] * 4 * tower["hidden_size"] ** 2
    return whole + (tower["parameters"] - whole) // ranks


def encoder_split(name, mode=None):
    """The ``encoder`` argument of ``weights`` for a model of that name and ``--mm-encoder-tp-mode``.

    Repositories of mistralai are loaded in Mistral's own format; its tower isn't split.
    """
    return "data" if mode == "data" or str(name or "").lower().startswith("mistralai/") else "weights"


def _stored_plan(arch, plan, quantization, version):
    """The plan that the checkpoint itself follows: its own config's, or none where it is quantized at load."""
    if isinstance(quantization, dict) or quantization is None:
        return plan
    if arch["quantization"]:
        return quantization_plan(None, arch, version, [])
    online = plan.name in ("fp8", "bitsandbytes")
    return Plan("none", {}) if online else plan


def _of_run(run, arch, split):
    norms = 4 if arch["model_type"].startswith(_FOUR_NORMS) else 2 if run["attention"] and run["mlp"] else 1
    return layer_tensors(run["attention"], run["mlp"], arch["hidden_size"], split, norms)


def _ends(arch, tp, first, last, padded=True):
    """Embedding, last norm and head of a pipeline's first and last stage."""
    hidden = arch["hidden_size"]
    step = _PADDED_VOCABULARY * tp // gcd(_PADDED_VOCABULARY, tp) if padded else 1
    rows = -(-arch["vocab_size"] // step) * step // tp
    tensors = []
    if first or (last and arch["tied"]):
        tensors.append(Tensor("embedding", "embedding", ("embed_tokens",), rows, hidden))
        if arch["positions"] and first:
            # Whole on every rank.
            tensors.append(Tensor("embedding", None, ("embed_positions",), arch["positions"], hidden))
        if arch["embeddings_per_layer"] and first:
            width = arch["embeddings_per_layer"] * len(layer_list(arch))
            tensors.append(Tensor("embedding", None, ("embed_tokens_per_layer",), rows, width))
    if last:
        tensors.append(Tensor("norms", None, ("norm",), 1, hidden))
        if arch["head"]:
            tensors += _head(arch, tp, step)
        elif not arch["tied"] and not arch["pooling"]:
            tensors.append(Tensor("lm_head", "lm_head", ("lm_head",), rows, hidden))
    return tensors


def _head(arch, tp, step):
    """What joins a draft head to its target, and its own lm_head (EAGLE's first kind uses the target's)."""
    head, hidden = arch["head"], arch["hidden_size"]
    tensors = [Tensor("draft", None, ("fc",), hidden, head["inputs"])]
    if head["kind"] == "eagle3":
        # The first layer's queries, keys and values see the token's embedding beside the hidden state.
        item = arch["layers"][0]["attention"]
        queries = -(-item["heads"] // tp) * item["head_size"]
        keys = kv_heads_of_rank(item["kv_heads"], tp) * (item["head_size"] + item["head_size_v"])
        tensors += [
            Tensor("norms", None, ("hidden_norm",), 1, hidden),
            Tensor("draft", None, ("self_attn.qkv_proj",), queries + keys, hidden),
        ]
        rows = -(-head["vocabulary"] // step) * step // tp
        tensors.append(Tensor("lm_head", "lm_head", ("lm_head",), rows, hidden))
    return tensors


# Models whose classes let adapters change embedding and head too (embedding_modules of vLLM's classes).
_LORA_EMBEDDINGS = ("llama", "mistral", "mixtral", "granite")
# Rows for tokens that an adapter adds, until 0.11; their own embeddings stand beside.
_LORA_TOKENS = 256


def lora_bytes(
    arch,
    tp=1,
    max_loras=1,
    max_lora_rank=16,
    element=2,
    fully_sharded=False,
    version=None,
    expert_parallel=False,
):
    """Bytes of the LoRA slots on one rank: two narrow matrices beside each linear layer, for each slot.

    A column-parallel layer replicates its first matrix, a row-parallel one its second, unless fully sharded.
    Experts take some from 0.11.1 on (vLLM pull request 21229), not with expert parallelism.
    """
    experts = not expert_parallel and in_range(version, "0.11.1") is not False
    size = 0
    for run in arch["layers"]:
        for whole, mine in zip(_of_run(run, arch, Split()), _of_run(run, arch, Split(tp, tp))):
            if not _takes_lora(mine, experts):
                continue
            inner, out = mine.inner, mine.out
            if fully_sharded and (whole.inner, whole.out) != (inner, out):
                inner, out = -(-whole.inner // tp), -(-whole.out // tp)
            size += run["count"] * mine.copies * (len(mine.names) * inner + out)
    more = _LORA_TOKENS if in_range(version, None, "0.11") else 0
    slot = size * max_lora_rank
    if arch["model_type"] in _LORA_EMBEDDINGS:
        # Whole on every rank.
        rows = arch["vocab_size"] + more
        slot += 2 * ((rows + arch["hidden_size"]) * max_lora_rank + more * arch["hidden_size"])
    return slot * max_loras * element


def _takes_lora(tensor, experts):
    """Whether adapters may change it: linear layers, the router's too."""
    if tensor.derived:
        return False
    roles = ("attention", "mlp", "state", "expert") if experts else ("attention", "mlp", "state")
    return tensor.role in roles or tensor.names == ("mlp.gate",)


def draft_bytes(draft, arch, tp=1, pp=1, dtype=None, version=None):
    """Bytes on one rank of the weights of a draft model of its own, which is split as the target ``arch`` is.

    A draft head (EAGLE) takes the target's embedding where that has its size and the pipeline is one stage.
    """
    result = weights(draft, dtype=dtype, tp=tp, version=version)
    same = all(draft[name] == arch[name] for name in ("vocab_size", "hidden_size"))
    shared = draft["head"] and same and pp == 1
    return result["bytes"] - (result["parts"]["embedding"] if shared else 0)


class _Measure:
    """Bytes of tensors under one plan, dtype and version."""

    def __init__(self, arch, plan, element, version):
        self.arch = arch
        self.plan = plan
        self.element = element
        self.version = version

    def checkpoint(self):
        """Bytes of all that the checkpoint holds: no split, no rounding, with draft layers and towers."""
        size = 0
        for index, layer in enumerate(layer_list(self.arch)):
            run = dict(layer, count=1)
            size += sum(
                self._raw(tensor, index) for tensor in _of_run(run, self.arch, Split()) if not tensor.derived
            )
        size += sum(self._raw(tensor, None) for tensor in _ends(self.arch, 1, True, True, padded=False))
        if self.arch["draft"]:
            whole = (
                self if self.plan.draft else _Measure(self.arch, Plan("none", {}), self.element, self.version)
            )
            size += sum(whole._raw(tensor, None) for tensor in self._draft(Split()) if not tensor.derived)
        return size + sum(tower["parameters"] for tower in self.arch["encoders"]) * self.element

    def stage(self, split, pp, stage, draft, encoder, factor):
        """``{part: bytes}`` of one rank of pipeline stage ``stage``."""
        parts = dict.fromkeys(PARTS, 0)
        counts = pipeline_split(sum(run["count"] for run in self.arch["layers"]), pp)
        begin = sum(counts[:stage])
        for run, first, count in self._runs(begin, begin + counts[stage]):
            tensors = _of_run(run, self.arch, split)
            if self.plan.per_layer:
                for index in range(first, first + count):
                    self._add(parts, tensors, index, 1, factor)
            else:
                self._add(parts, tensors, None, count, factor)
        self._add(parts, _ends(self.arch, split.tp, stage == 0, stage == pp - 1), None, 1, factor)
        if draft and self.arch["draft"] and stage == pp - 1:
            drafted = dict.fromkeys(PARTS, 0)
            plan = self.plan if self.plan.draft else Plan("none", {})
            _Measure(self.arch, plan, self.element, self.version)._add(
                drafted, self._draft(split), None, 1, factor
            )
            parts["draft"] = sum(drafted.values())
        if stage == 0 and encoder != "none":
            for tower in self.arch["encoders"]:
                shared = split.tp if tower["split"] and encoder == "weights" else 1
                parts["encoder"] += int(_tower_share(tower, shared) * self.element * factor)
        for table in self.arch["rope"]:
            parts["rope"] += allocated(table["positions"] * table["width"] * self.element, self.version)
        return parts

    def _runs(self, begin, end):
        """(run, index of its first layer, layers of it) within [begin, end)."""
        at = 0
        for run in self.arch["layers"]:
            first, last = max(at, begin), min(at + run["count"], end)
            if first < last:
                yield run, first, last - first
            at += run["count"]

    def _draft(self, split):
        draft = self.arch["draft"]
        run = {"attention": draft["attention"], "mlp": draft["mlp"]}
        hidden = self.arch["hidden_size"]
        joined = Tensor("draft", None, ("eh_proj",), hidden, 2 * hidden)
        return [joined, *_of_run(run, self.arch, split)] * draft["layers"]

    def _add(self, parts, tensors, layer, count, factor):
        for tensor in tensors:
            size = self._size(tensor, layer, 1.0 if tensor.derived else factor)
            parts[tensor.part] += size * count

    def _scheme(self, tensor, layer):
        if tensor.role is None:
            return NONE
        return scheme_of(self.plan, tensor.role, tensor.names, layer)

    def _raw(self, tensor, layer):
        weight, scales = matrix_bytes(self._scheme(tensor, layer), tensor.out, tensor.inner, self.element)
        return (weight + scales) * tensor.copies

    def _size(self, tensor, layer, factor):
        scheme = self._scheme(tensor, layer)
        out, inner = tensor.out, tensor.inner
        if scheme.name == "mxfp4" and tensor.role == "expert":
            out, inner = _tiled(tensor, self.arch["hidden_size"])
        weight, scales = matrix_bytes(scheme, out, inner, self.element)
        size = allocated(int(weight * tensor.copies * factor), self.version)
        return size + (allocated(int(scales * tensor.copies * factor), self.version) if scales else 0)


def _tiled(tensor, hidden):
    """(out, inner) of MXFP4 experts, padded to whole tiles."""
    if tensor.names[-1].endswith("down_proj"):
        return _up(tensor.out, _MXFP4_TILE["hidden"]), _up(tensor.inner, _MXFP4_TILE["inner"])
    halves = len(tensor.names)
    return halves * _up(tensor.out // halves, _MXFP4_TILE["inner"]), _up(hidden, _MXFP4_TILE["hidden"])


def _up(value, step):
    return -(-value // step) * step
