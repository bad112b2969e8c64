# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start takes beside weights and KV cache: the profile run's peak, memory outside torch, CUDA graphs.

Models with a stated error. The terms are what the profile run allocates; the few coefficients are fitted on the
development reports (``../shared/cases/sizing_dev.jsonl``) and on nothing else. Each estimate is
``{bytes, error_bytes, formula, reports}``: error_bytes is the 90th percentile of the absolute error on the
``reports`` development reports that the coefficients come from; 0 reports: a mechanism that no report shows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..engine.versions import in_range
from ..quantities import GIB, MIB
from .architecture import dtype_bytes, layer_list


class Load(NamedTuple):
    """What the profile run is made for.

    tokens, seqs: max_num_batched_tokens and max_num_seqs; dtype: the engine's, None: the checkpoint's; quantization:
    the name that ``weights`` gave; runner2: whether runner 2 is used; encoder: whether towers are profiled; graphs:
    whether CUDA graphs are captured; sizes: how many batch sizes, None: vLLM's own list;
    nvlink: whether GPUs are linked, None: not known; unified: whether GPU and host share their memory; capability:
    the GPU's compute capability ((9, 0)), None: not known.
    """

    tokens: int
    seqs: int
    version: str | tuple | None = None
    generation: str = "V1"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dtype: str | None = None
    quantization: str = "none"
    expert_parallel: bool = False
    max_model_len: int | None = None
    runner2: bool = False
    encoder: bool = True
    graphs: bool = True
    sizes: int | None = None
    nvlink: bool | None = None
    unified: bool = False
    capability: tuple | None = None


class Estimate(NamedTuple):
    """One modelled number; see the module's text."""

    bytes: int
    error_bytes: int
    formula: str
    reports: int


# Bytes for each logit of the profile run's sampling step, beside the logits in the model's own dtype.
# Sorting (values, indices, softmax, cumulated sums, masks) until the Triton kernel (vLLM pull request 33538).
_SORTED = 35.5
_TRITON = 12.0
# Runner 2 samples without a copy of all logits in 32 bits for each step.
_RUNNER2 = 4.0
# Buffers of the sampler and the input batch, and hidden states that live until sampling.
_SAMPLER_BUFFERS = 105 * MIB
_HELD_STATES = 1.15
# Hidden states alive while the MLP runs: the residual, the input, the norm's output and the MLP's output.
_LIVE_STATES = 4
# A stage that isn't the only one holds what it received and what it sends, each hidden states and residual.
_PIPELINE_STATES = 3
# A multimodal batch: the processor's dummy inputs and the rows they become stay until the profile run ends.
_ENCODER_INPUTS = 82 * MIB
# Families whose largest image takes so many tokens whatever the batch (2 x 2 patches each).
_DYNAMIC_RESOLUTION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_6")
_LARGEST_IMAGE = 16384
_PATCHES_PER_TOKEN = 4
_PATCH_INPUT = 3 * 2 * 16 * 16 * 4
_DEEP_GEMM = ((9, 0), (10, 0), (10, 3))
# Copies of a tower's hidden states that live at its peak: whole ones, those split over TP; copies of its MLP states.
_TOWER_STATES = (4, 4, 2)
# Latent attention with an index gathers whole contexts (vllm-memory 7.6).
_SPARSE_ROWS = 5
_SPARSE_WIDTH = 576
_SPARSE_ERROR = 1.2

# Seen in one measured peak and four KV sizes.
_TOWER_ERROR = (1.5, 5)
_ACTIVATION_ERROR = {"triton": (0.13, 31), "sorted": (0.25, 16), "runner2": (1.0, 2)}

# Memory outside torch that the budget counts: since, until, generation, (one rank, error), (TP > 1, error), reports.
_OUTSIDE = (
    (None, "0.6.2", "V0", (0.05, 0.15), (0.3, 0.5), 0),
    (None, "0.10.2", "V0", (0.05, 0.3), (0.3, 3.0), 13),
    (None, "0.9.0", "V1", (0.55, 0.5), (1.5, 1.0), 0),
    ("0.9.1", "0.10.2", "V1", (0.07, 0.1), (0.5, 0.5), 1),
    ("0.11", "0.17", "V1", (0.13, 0.02), (0.55, 0.5), 4),
    ("0.18", "0.19", "V1", (0.25, 0.02), (2.09, 0.06), 33),
    ("0.20", None, "V1", (0.25, 0.1), (0.95, 0.8), 4),
)
# Cards without NVLink, several ranks: no buffers of fast all-reduces (from KV sizes, not from a measured figure).
_UNLINKED = (0.25, 0.3, 2)
_BRIDGED = (8, 6)
# Where GPU and host share their memory, what the host takes meanwhile (page cache of the weights too) counts.
_UNIFIED = (3.5, 6.0, 7)
# Between the versions with the most and the least, several ranks.
_UNKNOWN_VERSION = 1.9
# Pipeline stages only pass states on.
_PIPELINE_OUTSIDE = 0.07

# CUDA graphs: since, until, (GiB fixed, for each layer, with experts), error, reports. 51 sizes where the number counts.
_GRAPHS = (
    (None, "0.17", (0.0, 0.02, 0.0), 0.7, 5),
    ("0.18", "0.19", (0.31, 0.0165, 0.42), 0.33, 38),
    ("0.20", None, (0.24, 0.0, 0.0), 0.1, 4),
)
_V0_GRAPHS = (None, "0.10.2", (0.0, 0.006, 0.0), 0.05, 2)
# An unknown version: as the newest, and as far off as the others are.
_UNKNOWN_GRAPHS_ERROR = 1.2
_ESTIMATED_GRAPHS = (0.19, 0.0192, 0.27)
_ALL_SIZES = 51
_SPARSE_GRAPHS = 4.7


def activation_peak(arch, load, last=True):
    """The peak of torch memory during the profile run above the weights, on one rank (an Estimate).

    last: whether the rank is of the last pipeline stage, which samples.
    """
    forward, kept = _forward(arch, load), _kept(arch, load)
    sampling = _sampling(arch, load) if last else 0
    towers = _towers(arch, load) if load.encoder else 0
    peaks = {
        "MLP of one step": forward + kept,
        "sampling": sampling + kept,
        "largest image in the encoder": towers,
    }
    name = max(peaks, key=lambda key: peaks[key])
    regime = (
        "runner2"
        if load.runner2
        else "triton"
        if load.generation == "V1" and in_range(load.version, "0.17") is not False
        else "sorted"
    )
    error, reports = _ACTIVATION_ERROR[regime]
    size = peaks[name]
    if name == "largest image in the encoder":
        error, reports = max(error, _TOWER_ERROR[0]), _TOWER_ERROR[1]
    if _sparse(arch):
        error, reports = max(error, _SPARSE_ERROR), 1
    error = int(error * GIB)
    if load.generation == "V1" and in_range(load.version, "0.17") is None:
        # Either way of sampling is possible.
        error = max(error, int(_sampling(arch, load._replace(version="0.16"))) - int(sampling))
    formula = f"{name}: {load.tokens} batched tokens, {load.seqs} sequences x vocabulary {arch['vocab_size']}"
    return Estimate(int(size), error, formula, reports)


def non_torch(load):
    """What the start allocates outside torch within the budget: NCCL, kernels, the context by version (Estimate)."""
    for since, until, generation, one, several, reports in _OUTSIDE:
        inside = in_range(load.version, since, until)
        if generation != load.generation or not (inside or (inside is None and _is_last(since, generation))):
            continue
        size, error = several if load.tp > 1 else one
        if load.tp == 1 and load.pp > 1:
            size = _PIPELINE_OUTSIDE
        if load.tp > 1 and _unlinked(load) and generation == "V1":
            size, error, reports = _UNLINKED
        if inside is None and load.tp > 1:
            error = max(error, _UNKNOWN_VERSION)
        if load.unified and generation == "V1":
            size, error, reports = size + _UNIFIED[0], _UNIFIED[1], _UNIFIED[2]
        ranks = "several GPUs" if load.tp > 1 else "pipeline" if load.pp > 1 else "one GPU"
        formula = (
            f"table of memory outside torch: {generation}, {since or 'start'} to {until or 'now'}, {ranks}"
        )
        return Estimate(int(size * GIB), int(error * GIB), formula, reports)
    return Estimate(0, GIB, "no table for this version", 0)


def _unlinked(load):
    """Whether the GPUs have no NVLink; of Ampere's workstation and gaming boards only a bridge would make one."""
    return load.nvlink is False or (load.nvlink is None and load.capability == _BRIDGED)


def graph_memory(arch, load, estimated=False):
    """CUDA graphs after the start, or with ``estimated`` what vLLM estimates before it (an Estimate)."""
    if not load.graphs:
        return Estimate(0, 0, "no graphs: eager", 0)
    if estimated and load.runner2 and in_range(load.version, "0.22", "0.28"):
        return Estimate(0, 0, "runner 2 estimates none until 0.28", 0)
    version = load.version
    row = next((item for item in _GRAPHS if in_range(version, item[0], item[1])), _GRAPHS[-1])
    since, until, coefficients, error, reports = _V0_GRAPHS if load.generation == "V0" else row
    if load.generation == "V1" and in_range(version, "0.20") is None:
        error = _UNKNOWN_GRAPHS_ERROR
    if estimated and since == "0.18":
        coefficients = _ESTIMATED_GRAPHS
    layers = layer_list(arch)
    fixed, each, moe = coefficients
    count = -(-len(layers) // load.pp)
    experts = any(layer["mlp"] and layer["mlp"]["kind"] == "moe" for layer in layers)
    sizes = load.sizes if load.sizes is not None else len(capture_sizes(load))
    share = sizes / _ALL_SIZES
    if load.generation == "V0" or not in_range(version, "0.18", "0.19"):
        share = 1.0 if load.sizes is None else min(1.0, share)
    size = fixed + (each * count + moe * bool(experts)) * share
    if _sparse(arch):
        size, error = size + _SPARSE_GRAPHS, 1.0
    formula = f"{fixed} GiB + {each} GiB x {count} layers" + (f" + {moe} GiB with experts" if experts else "")
    return Estimate(
        int(size * GIB), int(error * GIB), f"{formula} ({since or 'start'} to {until or 'now'})", reports
    )


def capture_sizes(load):
    """The batch sizes for which graphs are captured when nobody lists them (vllm-memory 7.4)."""
    if load.generation == "V0":
        return [1, 2, 4, *range(8, min(load.seqs, 256) + 1, 8)]
    if in_range(load.version, None, "0.9"):
        return [1, 2, 4, *range(8, 513, 8)]
    largest = min(2 * load.seqs, 512)
    sizes = [1, 2, 4, *range(8, min(largest, 256) + 1, 8), *range(272, largest + 1, 16)]
    return [size for size in sizes if size <= largest]


def _is_last(since, generation):
    """Whether an unknown version is taken as this row: the newest of its engine."""
    return since == "0.20" if generation == "V1" else since is None


def _element(arch, load):
    return dtype_bytes(load.dtype if load.dtype not in (None, "auto") else arch["dtype"])


def _state(arch, load):
    """Bytes of one hidden state for every batched token."""
    return load.tokens * arch["hidden_size"] * _element(arch, load)


def _forward(arch, load):
    """The widest layer's step: MLP states and the hidden states that live beside them."""
    element = _element(arch, load)
    states = _LIVE_STATES + (_PIPELINE_STATES if load.pp > 1 else 0)
    widest = 0
    for run in arch["layers"]:
        widest = max(widest, _mlp_width(run["mlp"], load, element))
    return load.tokens * widest + states * _state(arch, load)


def _mlp_width(mlp, load, element):
    """Bytes of a token's MLP states: gate and up, and their product (8 bits where the next matrix wants it so)."""
    if not mlp:
        return 0
    beside = max(mlp.get("shared") or 0, mlp.get("dense") or 0)
    width = beside if mlp["kind"] == "moe" else mlp["width"]
    eight_bits = load.quantization.startswith("fp8") and in_range(load.version, "0.20")
    product = 1 if eight_bits else element
    return -(-width // load.tp) * ((2 if mlp["gated"] else 1) * element + product)


def _sampling(arch, load):
    """The dummy sampling step for max_num_seqs sequences, on the whole vocabulary whatever the TP."""
    # A later stage of a pipeline also holds what it received.
    held = (_HELD_STATES + (2 if load.pp > 1 else 0)) * _state(arch, load)
    if arch["pooling"]:
        return int(held)
    each = _element(arch, load)
    if load.runner2:
        each += _RUNNER2
    elif load.generation == "V1" and in_range(load.version, "0.17") is not False:
        each += _TRITON
    else:
        each += _SORTED
    buffers = _SAMPLER_BUFFERS if load.generation == "V1" else 0
    return int(min(load.seqs, load.tokens) * arch["vocab_size"] * each + held + buffers)


def _kept(arch, load):
    """Workspaces that stay for the whole run: experts, gathered contexts, the encoder's results."""
    element, size = _element(arch, load), 0
    for mlp in (run["mlp"] for run in arch["layers"]):
        if mlp and mlp["kind"] == "moe":
            seen = mlp.get("latent") or arch["hidden_size"]
            size = max(size, _experts(mlp, seen, load, element, _deep_gemm(arch, load)))
    if _sparse(arch) and load.max_model_len:
        size += _SPARSE_ROWS * load.max_model_len * _SPARSE_WIDTH * element
    if arch["encoders"] and load.encoder:
        size += _ENCODER_INPUTS + _state(arch, load)
    return size


def _deep_gemm(arch, load):
    """Whether experts run through DeepGEMM: FP8 in blocks on Hopper and Blackwell servers, by default from 0.11."""
    blocks = load.quantization.startswith("fp8") and (arch["quantization"] or {}).get("weight_block_size")
    return bool(blocks and load.capability in _DEEP_GEMM and in_range(load.version, "0.11") is not False)


def _experts(mlp, hidden, load, element, deep_gemm):
    """Two workspaces of the fused experts: gate and up (or the results, if wider), and their product."""
    if load.quantization == "mxfp4" or mlp["active"] is None:
        return 0
    ranks = load.tp * load.dp
    # With expert parallelism a rank computes its share of the experts at their full width.
    width = mlp["width"] if load.expert_parallel else -(-mlp["width"] // ranks)
    rows = load.tokens * mlp["active"]
    if load.expert_parallel:
        rows = -(-rows // load.tp)
    first = max((2 if mlp["gated"] else 1) * width, hidden)
    if deep_gemm:
        # Its two workspaces are both as wide as the hidden state, and the inputs are sorted by expert in 8 bits.
        return rows * ((first + max(width, hidden)) * element + hidden)
    return rows * (first + width) * element


def _sparse(arch):
    return any((run["attention"] or {}).get("indexer") for run in arch["layers"]) and not any(
        (run["attention"] or {}).get("kind") == "compressed" for run in arch["layers"]
    )


def _towers(arch, load):
    """The encoder's own step for the largest image of families without a fixed size of one.

    V0 takes an image and a video in one step; before 0.7 its largest image was small.
    """
    if not arch["outer_type"].startswith(_DYNAMIC_RESOLUTION):
        return 0
    items = 1
    if load.generation == "V0":
        items = 0 if in_range(load.version, None, "0.6") else 2
    size = 0
    for tower in arch["encoders"]:
        if tower["kind"] != "vision":
            continue
        patches = items * _LARGEST_IMAGE * _PATCHES_PER_TOKEN
        whole, split, inner = _TOWER_STATES
        ranks = load.tp if tower["split"] else 1
        states = whole * tower["hidden_size"]
        states += (split * tower["hidden_size"] + inner * tower["intermediate_size"]) // ranks
        size = max(size, patches * (_PATCH_INPUT + states * _element(arch, load)))
    return size
