# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about each cause, what not to do, and why: from the cause's mechanism and the log's own numbers.

One entry a cause. An entry is a function of the facts and the judged finding that returns an ``Advice``; causes whose
advice does not depend on numbers are rows of ``_fixed``. Cheapest changes come first (design, rule 5); every rejected
change says why it does not help, since that is what teaches the reader.
"""

from __future__ import annotations

import math
from collections import namedtuple

from ..documents import change
from ..quantities import GIB, gib, show_bytes, to_gi
from .resolve import offload_pool
from .torch_oom import fragmented, held_by_others, outside_allocator

# explanation: two or three sentences; runbook: which step of the runbook speaks about it; settle: observations.
Advice = namedtuple("Advice", "explanation runbook recommend rejected settle")

UTILIZATION = "--gpu-memory-utilization"
BATCH_TOKENS = "--max-num-batched-tokens"
SEQUENCES = "--max-num-seqs"
MODEL_LEN = "--max-model-len"
TENSOR_PARALLEL = "--tensor-parallel-size"
KV_DTYPE = "--kv-cache-dtype"
EAGER = "--enforce-eager"
SWAP = "--swap-space"
MEMORY_LIMIT = "resources.limits.memory"

_STEP_RESOURCES = "check the container's resources first"
_STEP_HOST = "OOMKilled (exit 137) is host memory, not GPU memory"
_STEP_GPU = "'out of memory' in the log: lower --gpu-memory-utilization or use a bigger GPU"
_STEP_NCCL = "NCCL: check the communication between the GPUs, prefer one node with several GPUs"
_STEP_CPU = "CPU limits: remove them, keep the requests"
_STEP_EXIT_1 = "exit code 1: read the last 100 log lines; the first error is the trigger"
_STEP_EXIT_137 = "exit code 137: raise the limit or find the leak"
_STEP_EXIT_143 = "exit code 143 is SIGTERM: check the graceful shutdown"

# Highest utilization worth proposing on a card that nobody else uses: the CUDA context, NCCL and graphs live outside.
_HIGHEST_UTILIZATION = 0.95
# Graph capture, NCCL and context together rarely need more than this outside the budget (vllm facts 7.6).
_MARGIN_OUTSIDE = 2 * GIB


def _flag(name, direction, why, value=None, proof="rule", with_=()):
    return change("flag", name, direction, value=value, why=why, proof=proof, with_=with_)


def _env(name, direction, why, value=None, proof="rule"):
    return change("env", name, direction, value=value, why=why, proof=proof)


def _k8s(name, direction, why, value=None, proof="rule", with_=()):
    return change("k8s", name, direction, value=value, why=why, proof=proof, with_=with_)


def _do(name, why, proof="rule"):
    return change("action", name, "set", why=why, proof=proof)


def _fixed(explanation, runbook, recommend=(), rejected=(), settle=()):
    """Advice that does not depend on numbers."""

    def advice(facts, judged):
        return Advice(explanation, runbook, list(recommend), list(rejected), list(settle))

    return advice


# -- changes that are wrong for a whole class of causes ---------------------------------------------------------------

_NOT_UTILIZATION_HOST = _flag(UTILIZATION, "decrease", "it sizes GPU memory; this is memory of the host")
_NOT_UTILIZATION = _flag(UTILIZATION, "decrease", "no GPU memory ran out")
_NOT_LIMIT = _k8s(MEMORY_LIMIT, "increase", "no host memory ran out")
_NOT_LIMIT_GPU = _k8s(MEMORY_LIMIT, "increase", "the limit is host memory; the GPU ran out")
_NOT_SHM_SIZE = _k8s("volumes.shm.sizeLimit", "increase", "/dev/shm is not involved")
_NOT_UTILIZATION_UP = _flag(
    UTILIZATION, "increase", "it leaves less memory outside the budget, which is where it ran out"
)
_NOT_LENGTH = _flag(
    MODEL_LEN, "decrease", "the KV cache takes what the utilization gives, whatever the length of a sequence"
)


def _rejected_expandable(facts, judged):
    """Why not to follow PyTorch's own hint, where its numbers speak against it."""
    numbers = judged.verdict.numbers or {}
    reserved = numbers.get("reserved")
    if facts.sleep_mode:
        return [
            _env(
                _allocator(facts),
                "set",
                "it is not compatible with the sleep-mode allocator",
                "expandable_segments:True",
            )
        ]
    if reserved is None or fragmented(numbers):
        return []
    why = f"only {show_bytes(reserved)} were reserved but unallocated: fragmentation is not the problem"
    return [_env(_allocator(facts), "set", why, "expandable_segments:True", proof="log")]


def _allocator(facts):
    """The allocator variable that this build reads."""
    if facts.accelerator == "rocm":
        return "PYTORCH_HIP_ALLOC_CONF"
    return facts.allocator_conf[0] or "PYTORCH_CUDA_ALLOC_CONF"


def _lower_utilization(facts, why, step=0.05, proof="rule", with_=()):
    """Utilization down from what is in force, to a value two decimals wide; no value when it is low already."""
    current = facts.utilization
    value = round(current - step, 2) if current - step >= 0.3 else None
    return _flag(UTILIZATION, "decrease", why, value, proof, with_)


def _next_parallel(facts):
    """The next tensor-parallel size: twice as many ranks halve the weights on each."""
    return facts.tensor_parallel * 2


# -- GPU: weights -----------------------------------------------------------------------------------------------------


def _gpu_weights_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    allocated, total, free = numbers.get("allocated"), numbers.get("total"), numbers.get("free")
    if allocated and total:
        seen = (
            f"PyTorch held {show_bytes(allocated)} of the card's {show_bytes(total)}"
            + (f" with {show_bytes(free)} free" if free is not None else "")
            + " before the model was loaded."
        )
    else:
        seen = "The card was full before the model was loaded."
    recommend = [
        _flag(
            TENSOR_PARALLEL,
            "increase",
            "more ranks take a smaller share of the weights each",
            _next_parallel(facts),
            proof="arithmetic" if allocated else "rule",
        ),
        _do("smaller_quantization", "a smaller number format makes the weights smaller"),
        _flag(
            "--cpu-offload-gb",
            "increase",
            "part of the weights moves to pinned host memory, at a cost in speed",
        ),
        _do("larger_gpu", "the weights need a larger card"),
        _do("smaller_model", "the weights need a smaller model"),
    ]
    if judged.verdict.confidence == "possible":
        recommend.insert(
            0,
            _do(
                "free_gpu",
                "the message has no numbers: first see whether the GPU was empty when the engine started",
            ),
        )
    rejected = [
        _flag(
            UTILIZATION,
            "decrease",
            "it does not limit or free memory for weights; vLLM's hint to lower it is misleading",
        ),
        _flag(SWAP, "increase", "swap space holds KV blocks on the host, never weights"),
        _NOT_LIMIT_GPU,
    ] + _rejected_expandable(facts, judged)
    settle = []
    if judged.verdict.confidence != "certain":
        settle = [
            "the full log of the first failing start, from the vLLM banner on: which phase had been reached",
            "nvidia-smi on the node before the pod starts: was the GPU empty?",
        ]
    return Advice(
        f"{seen} Nothing but the size of the weights on each GPU matters here.",
        _STEP_GPU,
        recommend,
        rejected,
        settle,
    )


# -- GPU: KV cache ----------------------------------------------------------------------------------------------------


def _needed_utilization(facts, extra=0):
    """The smallest utilization (two decimals) at which weights, profile peak and ``extra`` bytes fit, or None."""
    total = facts.gpu_total
    kv = facts.number("kv_available")
    if total is None or kv is None:
        return None
    return math.ceil((facts.utilization - (kv - extra) / total) * 100) / 100


def _kv_no_blocks(facts, judged):
    kv, total, current = facts.number("kv_available"), facts.gpu_total, facts.utilization
    weights, activation = facts.number("weights"), facts.number("activation_peak")
    missing = f" {show_bytes(-kv)} are missing before the first block." if kv is not None and kv < 0 else ""
    parts = ""
    if weights is not None and activation is not None:
        parts = f" (weights {show_bytes(weights)}, profile peak {show_bytes(activation)})"
    explanation = f"Of the budget of {current:g} of the card, weights and profile peak{parts} leave nothing for the KV cache.{missing}"
    lower_batch = _flag(
        BATCH_TOKENS, "decrease", "the profile run is made with that many tokens: fewer of them cut its peak"
    )
    fewer = _flag(SEQUENCES, "decrease", "fewer sequences need less for sampling, graphs and state")
    needed = _needed_utilization(facts, extra=GIB // 2)
    recommend = []
    rejected = [_flag(UTILIZATION, "decrease", "it makes the budget, and so the shortage, still worse")]
    weights_alone = weights is not None and total and weights > 0.9 * total
    raise_to = max(needed or 0, 0.9)
    if weights_alone:
        rejected.append(
            _flag(
                UTILIZATION,
                "increase",
                "the weights alone fill over 90 % of the card: no setting makes room",
                proof="arithmetic",
            )
        )
    elif current < 0.9 and raise_to <= _HIGHEST_UTILIZATION and raise_to > current:
        recommend.append(
            _flag(
                UTILIZATION,
                "increase",
                "the card has room that the budget does not use",
                raise_to,
                proof="arithmetic" if needed else "rule",
            )
        )
    if not weights_alone:
        recommend += [lower_batch, fewer]
    if current >= 0.9 and not weights_alone:
        highest = f"{_HIGHEST_UTILIZATION:g}"
        recommend.append(
            _flag(
                UTILIZATION,
                "increase",
                f"up to {highest} together with the smaller batch: by itself it moves the failure to warm-up or graph capture",
                min(_HIGHEST_UTILIZATION, max(raise_to, round(current + 0.03, 2))),
                with_=(BATCH_TOKENS, SEQUENCES),
            )
        )
        rejected.append(
            _flag(
                UTILIZATION, "increase", "alone it only moves the failure to sampler warm-up or graph capture"
            )
        )
    if facts.multimodal:
        recommend.append(
            _flag(
                "--limit-mm-per-prompt",
                "decrease",
                "the encoder's share of the profile peak follows the number of items",
            )
        )
    recommend += [
        _flag(
            TENSOR_PARALLEL,
            "increase",
            "more ranks take a smaller share of the weights each",
            _next_parallel(facts),
        ),
        _do("smaller_quantization", "smaller weights leave more of the budget"),
        _flag(
            "--cpu-offload-gb",
            "increase",
            "weights moved to the host leave room for the KV cache, at a cost in speed",
        ),
    ]
    rejected += [
        _flag(SWAP, "increase", "CPU blocks are not what is missing"),
        _k8s(
            MEMORY_LIMIT, "increase", "the message's remark on CPU memory is generic text; this runs on a GPU"
        ),
    ]
    return Advice(explanation, _STEP_GPU + " (here lowering makes it worse)", recommend, rejected, [])


def _groups(judged):
    return judged.match.groups if judged.match else {}


def _number_of(groups, name):
    try:
        return float(groups[name])
    except (KeyError, ValueError):
        return None


def fitting_length(groups):
    """The largest length that the available KV memory holds: vLLM's own estimate, else the proportion, in whole blocks of 16.

    The proportion holds for models with one attention type (vllm facts, rule 10.7).
    """
    if groups.get("estimate"):
        return int(groups["estimate"]), "log"
    if groups.get("tokens"):
        tokens = int(groups["tokens"])
        return (tokens, "log") if tokens > 0 else (None, "none")
    needed, available = _number_of(groups, "needed"), _number_of(groups, "available")
    length = _number_of(groups, "max_model_len")
    if needed and available and available > 0 and length:
        return int(length * available / needed) // 16 * 16 or None, "arithmetic"
    return None, "none"


def _kv_max_len(facts, judged):
    groups = _groups(judged)
    needed, available = _number_of(groups, "needed"), _number_of(groups, "available")
    length, proof = fitting_length(groups)
    asked = groups.get("max_model_len", "max_model_len")
    if needed is not None and available is not None:
        explanation = f"One sequence of {asked} tokens needs {needed:g} GiB of KV cache, and {available:g} GiB are left for it."
    elif groups.get("tokens"):
        explanation = f"The KV cache holds {groups['tokens']} tokens, and one sequence may be {asked} long."
    else:
        explanation = f"One sequence of {asked} tokens does not fit the KV cache."
    recommend, rejected = [], []
    why = "that many tokens fit the KV cache as it is" if length else "a shorter sequence needs less KV cache"
    recommend.append(_flag(MODEL_LEN, "decrease", why, length, proof if length else "rule"))
    gap = (needed - available) * GIB if needed is not None and available is not None else None
    total, current = facts.gpu_total, facts.utilization
    target = math.ceil((current + gap / total) * 100) / 100 if gap is not None and total else None
    if "fp8" not in str(facts.setting("kv_cache_dtype") or ""):
        enough = needed is not None and available is not None and available >= needed / 2
        recommend.append(
            _flag(
                KV_DTYPE,
                "set",
                "it halves the KV cache of 16-bit models"
                + ("" if enough or needed is None else ", which alone is not enough here"),
                "fp8",
                proof="arithmetic" if enough else "rule",
                with_=() if enough or needed is None else (MODEL_LEN,),
            )
        )
    if target is not None and target <= _HIGHEST_UTILIZATION:
        recommend.append(
            _flag(
                UTILIZATION,
                "increase",
                f"it adds the missing {show_bytes(int(gap))}",
                target,
                proof="arithmetic",
            )
        )
    elif gap is not None:
        rejected.append(
            _flag(
                UTILIZATION,
                "increase",
                f"alone it cannot add the missing {show_bytes(int(gap))}",
                proof="arithmetic" if total else "rule",
            )
        )
    recommend.append(
        _flag(
            TENSOR_PARALLEL,
            "increase",
            "each rank then holds fewer KV heads and weights",
            _next_parallel(facts),
        )
    )
    if facts.said("kv_full_for_window_layers"):
        recommend.append(
            _flag(
                "--disable-hybrid-kv-cache-manager",
                "remove",
                "without the hybrid manager sliding-window layers keep the full length",
            )
        )
    rejected += [
        _flag(UTILIZATION, "decrease", "it makes the KV cache still smaller"),
        _NOT_LIMIT_GPU,
    ]
    return Advice(explanation, _STEP_GPU + " (here lowering makes it worse)", recommend, rejected, [])


def _kv_budget_misestimate(facts, judged):
    kv = facts.number("kv_available")
    if facts.sleep_mode:
        given = f" It gave {show_bytes(kv)} to the KV cache." if kv is not None else ""
        return Advice(
            f"With sleep mode vLLM's start-up arithmetic counts part of the memory twice, so that the KV cache gets more than "
            f"is free.{given}",
            _STEP_GPU,
            [
                _flag("--enable-sleep-mode", "remove", "without it the arithmetic is right"),
                _flag(
                    "--kv-cache-memory-bytes", "set", "a fixed size that fits takes the estimate out of it"
                ),
                _lower_utilization(facts, "it leaves a margin for what the estimate misses"),
                _do("upgrade", "later versions account for the sleep-mode allocator"),
            ],
            [
                _flag(MODEL_LEN, "decrease", "the length fits once the estimate is right"),
                _flag(UTILIZATION, "increase", "the budget is over-committed already"),
            ],
            [],
        )
    return Advice(
        "The memory that vLLM booked for the KV cache was not what the card had: another process' memory was counted as ours, "
        "or somebody took it after it had been measured.",
        _STEP_GPU,
        [
            _do("free_gpu", "another process on the GPU is what makes the arithmetic wrong"),
            _do("upgrade", "from 0.9.1 on other processes' memory is not booked as vLLM's own"),
            _flag("--kv-cache-memory-bytes", "set", "a fixed size that fits takes the estimate out of it"),
        ],
        [_flag(MODEL_LEN, "decrease", "the model's own need is not what failed")],
        ["nvidia-smi on the node while the engine starts: who else uses the GPU?"],
    )


def _kv_bytes_too_large(facts, judged):
    name = "--" + (facts.fixed_kv or "kv_cache_memory_bytes").replace("_", "-")
    return Advice(
        f"The KV cache size is fixed by {name}, so vLLM did not size it by what is free, and the rest of the start ran out.",
        _STEP_GPU,
        [
            _flag(name, "decrease", "the fixed size leaves too little for graphs, warm-up and context"),
            _flag(name, "remove", "vLLM then sizes the KV cache by what is left"),
        ],
        [_flag(UTILIZATION, "decrease", f"it has no effect on the KV cache while {name} is set")],
        [],
    )


# -- GPU: somebody else, or the start-up check ------------------------------------------------------------------------


def _gpu_free_below_util(facts, judged):
    groups = _groups(judged)
    free, total, asked = (_number_of(groups, name) for name in ("free", "total", "requested"))
    asked = asked if asked is not None else _number_of(groups, "engine")
    held = total - free if None not in (free, total) else None
    value = None
    if free and total:
        value = math.floor(free / total * 100) / 100
        if value * total > free - 0.01:
            value = round(value - 0.01, 2)
    explanation = (
        f"Only {free:g} of {total:g} GiB were free when vLLM started, and it asks for {asked:g} GiB. About {held:.1f} GiB were in "
        "use before the model was looked at; up to 1.5 GiB of that can be vLLM's own CUDA context."
        if held is not None and asked is not None
        else "Less GPU memory was free at start than the utilization asks for, before the model was looked at."
    )
    return Advice(
        explanation,
        _STEP_GPU,
        [
            _do(
                "free_gpu",
                "the memory in use before the start belongs to somebody else, often the previous container",
            ),
            _flag(
                UTILIZATION,
                "decrease",
                "only if the GPU is meant to be shared: it must be below free / total",
                value,
                proof="arithmetic" if value else "rule",
            ),
            _do("one_engine_per_gpu", "engines that share a GPU must share its memory by their utilizations"),
            _do("wait_for_gpu", "after a crash the previous processes can hold the GPU for a while"),
        ],
        [
            _flag(UTILIZATION, "increase", "it asks for still more"),
            _flag(MODEL_LEN, "decrease", "the check is made before the model is looked at"),
            _flag(SEQUENCES, "decrease", "the check is made before the model is looked at"),
            _do("smaller_model", "the check is made before the model is looked at"),
        ],
        [],
    )


def _gpu_held_by_other(facts, judged):
    numbers = judged.verdict.numbers or {}
    others = held_by_others(numbers) if numbers else None
    explanation = (
        f"Other processes hold {show_bytes(others)} of the card's {show_bytes(numbers['total'])}; vLLM's own share was not what "
        "filled it."
        if others and numbers.get("total")
        else "The GPU's memory was held by somebody else when the engine needed it; the same settings run on an empty GPU."
    )
    return Advice(
        explanation,
        _STEP_GPU,
        [
            _do(
                "free_gpu",
                "stop or move the process whose memory is not vLLM's",
                proof="log" if others else "rule",
            ),
            _do(
                "wait_for_gpu",
                "start only when the previous pod has released the GPU (strategy Recreate or an init container)",
            ),
            _do("one_engine_per_gpu", "two engines on one GPU must not both plan with the whole of it"),
            _k8s("strategy", "set", "the old pod then ends before the new one starts", "Recreate"),
        ],
        [
            _do("smaller_model", "the model fits when the GPU is empty"),
            _do("smaller_quantization", "the model fits when the GPU is empty"),
            _flag(MODEL_LEN, "decrease", "the model fits when the GPU is empty"),
            _flag(UTILIZATION, "decrease", "it treats somebody else's memory as a permanent shortage"),
        ]
        + _rejected_expandable(facts, judged),
        [
            "nvidia-smi on the node (not in the container): which processes hold the GPU, and to which pods they belong"
        ],
    )


def _profiling_memory_changed(facts, judged):
    groups = _groups(judged)
    unchanged = groups.get("initial") and groups.get("initial") == groups.get("current")
    rejected = [
        _flag(UTILIZATION, "decrease", "nothing is short"),
        _flag(UTILIZATION, "increase", "nothing is short"),
        _do("larger_gpu", "nothing is short"),
    ]
    if facts.vgpu or unchanged:
        return Advice(
            "The GPU's memory counter did not move while the model was profiled: the layer that reports it (a vGPU shim) does "
            "not see this process.",
            _STEP_EXIT_1,
            [
                _do(
                    "fix_gpu_visibility", "the shim must be able to map the container's process to its device"
                ),
                _do("upgrade", "of the vGPU layer: its counters are what is wrong"),
            ],
            rejected + [_do("one_engine_per_gpu", "vLLM is alone; the counter is wrong")],
            [],
        )
    return Advice(
        "Another process released GPU memory while vLLM measured its own use, often a predecessor that was still ending. It is a "
        "race, not a shortage.",
        _STEP_EXIT_1,
        [
            _do("restart_pod", "the next start finds the GPU quiet"),
            _do("wait_for_gpu", "start only when the previous holder has released the GPU"),
            _do(
                "one_engine_per_gpu",
                "engines that start together on one GPU disturb each other's measurement",
            ),
        ],
        rejected,
        [],
    )


# -- GPU: outside the budget ------------------------------------------------------------------------------------------


def _cudagraph_capture_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    kv, current = facts.number("kv_available"), facts.utilization
    outside = outside_allocator(numbers) if numbers else None
    parts = ["CUDA graphs are captured after the KV cache has taken its share, and need memory outside it."]
    if kv is not None:
        parts.append(f"The KV cache got {show_bytes(kv)} at a utilization of {current:g}.")
    if outside and outside >= _MARGIN_OUTSIDE:
        parts.append(
            f"About {show_bytes(outside)} of this process are outside PyTorch's allocator (communication, graphs, context)."
        )
    eager = _flag(EAGER, "add", "no graphs, no memory for them; decoding gets slower")
    sizes = _flag(_graph_sizes_flag(facts), "decrease", "fewer and smaller graphs need less memory")
    lower = _lower_utilization(facts, "it leaves more memory outside the KV cache", step=_capture_step(facts))
    fewer = _flag(SEQUENCES, "decrease", "graphs are captured up to that many sequences")
    recommend = [lower, eager, fewer, sizes] if current >= 0.85 else [eager, sizes, fewer, lower]
    rejected = [
        _NOT_UTILIZATION_UP,
        _do("smaller_model", "the weights had been loaded and the KV cache sized"),
        _NOT_LENGTH,
    ] + _rejected_expandable(facts, judged)
    return Advice(" ".join(parts), _STEP_GPU, recommend, rejected, [])


def _capture_step(facts):
    """How far to lower the utilization for graph capture: at least to 0.92, else by two percent points more than a graph set takes."""
    return max(0.05, round(facts.utilization - 0.92, 2))


def _graph_sizes_flag(facts):
    """The flag that names the captured batch sizes in this version (vllm facts 7.1)."""
    if facts.version and facts.version < (0, 11, 1):
        return "--cuda-graph-sizes" if facts.version >= (0, 9) else "--max-seq-len-to-capture"
    return "--cudagraph-capture-sizes"


def _sampler_warmup_oom(facts, judged):
    groups = _groups(judged)
    requests = int(groups["requests"]) if groups.get("requests") else None
    numbers = judged.verdict.numbers or {}
    tried = numbers.get("tried")
    explanation = (
        f"Warming up with {requests or 'max_num_seqs'} dummy requests needs "
        f"{show_bytes(tried) if tried else 'memory'} outside the KV cache: sequences x vocabulary."
    )
    value = 256 if requests and requests > 256 else (max(1, requests // 2) if requests else None)
    return Advice(
        explanation,
        _STEP_GPU,
        [
            _flag(
                SEQUENCES,
                "decrease",
                "the warm-up is made with that many sequences",
                value,
                proof="log" if requests else "rule",
            ),
            _lower_utilization(facts, "it leaves more memory outside the KV cache"),
        ],
        [
            _NOT_UTILIZATION_UP,
            _flag(MODEL_LEN, "decrease", "sampling memory is sequences x vocabulary"),
        ]
        + _rejected_expandable(facts, judged),
        [],
    )


def _profile_run_oom(facts, judged):
    rejected = [
        _flag(
            UTILIZATION,
            "decrease",
            "the profile run comes before the KV cache: its peak does not depend on it",
        ),
        _flag(MODEL_LEN, "increase", "a longer sequence makes the profile run larger"),
        _NOT_LIMIT_GPU,
    ] + _rejected_expandable(facts, judged)
    old = facts.version is not None and facts.version < (0, 8)
    if facts.multimodal:
        recommend = [
            _flag(SEQUENCES, "decrease", "the profile run builds dummy items for that many sequences")
            if facts.given("limit_mm_per_prompt") is None
            else _flag(
                "--limit-mm-per-prompt",
                "decrease",
                "the profile run encodes that many of the largest items at once",
            ),
            _flag("--limit-mm-per-prompt", "set", "the profile run encodes only as many items as are allowed")
            if facts.given("limit_mm_per_prompt") is None
            else _flag(SEQUENCES, "decrease", "the profile run builds dummy items for that many sequences"),
            _flag(
                "--mm-processor-kwargs",
                "set",
                "smaller images give the encoder fewer tokens",
                '{"max_pixels": …}',
            ),
            _flag(BATCH_TOKENS, "decrease", "the profile run is made with that many tokens"),
        ]
        explanation = "The profile run encodes the largest images or videos that the settings allow, all at once, and that did not fit."
    else:
        recommend = [
            _flag(BATCH_TOKENS, "decrease", "the profile run is made with that many tokens"),
            _flag(SEQUENCES, "decrease", "the profile run samples for that many sequences"),
            _flag(
                TENSOR_PARALLEL,
                "increase",
                "weights and activations are shared by more ranks",
                _next_parallel(facts),
            ),
        ]
        if old or facts.setting("enable_chunked_prefill") in (False, "false", "False"):
            recommend.insert(
                1,
                _flag(
                    MODEL_LEN,
                    "decrease",
                    "without chunked prefill the profile run is made with a whole sequence",
                ),
            )
        explanation = "The profile run computes one batch of max_num_batched_tokens, and its activations did not fit beside the weights."
    recommend.append(_flag(EAGER, "add", "compilation and graphs need memory of their own"))
    return Advice(explanation, _STEP_GPU + " (lowering it does not help here)", recommend, rejected, [])


# -- GPU: serving -----------------------------------------------------------------------------------------------------


def _serving_gpu_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    tried, free = numbers.get("tried"), numbers.get("free")
    seen = (
        f" {show_bytes(tried)} were asked for and {show_bytes(free)} were free."
        if tried and free is not None
        else ""
    )
    recommend = [
        _flag(BATCH_TOKENS, "decrease", "it bounds what one step computes, logits and adapters included"),
        _lower_utilization(
            facts, "it leaves more memory outside the KV cache for what the profile run did not see"
        ),
        _do(
            "limit_requests",
            "requests with prompt log-probabilities, adapters or large inputs need memory beyond the profile",
        ),
    ]
    if facts.setting("enable_chunked_prefill") in (False, "false", "False") or (
        facts.version and facts.version < (0, 8, 1)
    ):
        recommend.append(_flag("--enable-chunked-prefill", "add", "long prompts are then computed in pieces"))
    return Advice(
        f"The engine ran out of GPU memory while serving: a step needed more than the profile run had seen.{seen} A full KV cache "
        "never does this: vLLM then queues or preempts.",
        _STEP_GPU,
        recommend,
        [
            _NOT_UTILIZATION_UP,
            _flag(MODEL_LEN, "decrease", "the peak belongs to one step, not to the length of a sequence"),
            _env("NCCL_BUFFSIZE", "set", "a collective is only where the allocation happened to fail"),
            _NOT_LIMIT_GPU,
        ]
        + _rejected_expandable(facts, judged),
        [],
    )


def _serving_gpu_growth(facts, judged):
    return Advice(
        "GPU memory outside the KV cache budget grew with the requests (encoder activations, caching allocator) until one "
        "request did not fit.",
        _STEP_GPU,
        [
            _lower_utilization(facts, "it leaves more memory for what grows", step=0.1),
            _do("upgrade", "later versions include the encoder in the profile and free its caches"),
            _flag(
                "--mm-processor-kwargs", "set", "smaller images need less in the encoder", '{"max_pixels": …}'
            ),
        ],
        [
            _NOT_UTILIZATION_UP,
            _flag(EAGER, "add", "the growth is not in the graphs"),
            _flag("--mm-encoder-tp-mode", "remove", "the growth does not depend on how the encoder is split"),
            _flag(MODEL_LEN, "decrease", "the growth is not in the KV cache"),
        ],
        ["GPU memory over time (DCGM_FI_DEV_FB_USED or nvidia-smi): does it rise with the requests?"],
    )


def _gpu_fragmentation(facts, judged):
    numbers = judged.verdict.numbers or {}
    view = ""
    if facts.unified and numbers.get("total"):
        view = f" The driver shows {show_bytes(numbers['total'])} in all."
    recommend = [
        _env(
            _allocator(facts),
            "set",
            "segments that grow can use the pieces",
            "expandable_segments:True",
            proof="log",
        ),
        _lower_utilization(facts, "it leaves more memory outside the KV cache", step=0.1),
    ]
    rejected = [_flag(UTILIZATION, "increase", "more memory for the KV cache does not join the pieces")]
    if facts.unified:
        recommend.append(
            _do("check_memory_view", "see whether the driver exposes all the memory it was configured for")
        )
    if facts.sleep_mode:
        recommend = recommend[1:]
        rejected += _rejected_expandable(facts, judged)
    return Advice(
        f"{show_bytes(numbers.get('reserved'))} of GPU memory were reserved but in pieces too small for the "
        f"{show_bytes(numbers.get('tried'))} that were asked for.{view}",
        _STEP_GPU,
        recommend,
        rejected,
        [],
    )


def _sleep_wakeup_oom(facts, judged):
    return Advice(
        "A sleeping engine gave its GPU memory back; when it woke up, somebody else had taken it.",
        _STEP_GPU,
        [
            _do("free_gpu", "the other tenant must release its memory before the engine wakes up"),
            _lower_utilization(facts, "a smaller engine needs less when it wakes up"),
        ],
        [
            _flag(MODEL_LEN, "decrease", "the size of the KV cache follows the utilization"),
            _env(
                _allocator(facts),
                "set",
                "it is not compatible with the sleep-mode allocator",
                "expandable_segments:True",
            ),
        ],
        ["nvidia-smi on the node just before the wake-up: who holds the GPU?"],
    )


# -- GPU: slices, other accelerators, libraries -----------------------------------------------------------------------


def _mig_vgpu_config(facts, judged):
    if judged.match and judged.match.signature.id == "mig_uuid_parsed":
        return Advice(
            "CUDA_VISIBLE_DEVICES holds a MIG identifier where this version expects a number; in a container the slice is device 0.",
            _STEP_EXIT_1,
            [
                _env("CUDA_VISIBLE_DEVICES", "set", "inside the container the slice is device 0", "0"),
                _do("upgrade", "newer versions accept identifiers"),
            ],
            [_NOT_UTILIZATION, _do("larger_gpu", "the identifier was not understood; nothing ran out")],
            [],
        )
    return Advice(
        "On a MIG slice vLLM cannot read the device, and takes the batch defaults of the smallest GPUs. Nothing is short; "
        "throughput is lower than it could be.",
        "raise --max-num-batched-tokens and --max-num-seqs where memory allows",
        [
            _flag(BATCH_TOKENS, "set", "the default was chosen without knowing the device"),
            _flag(SEQUENCES, "set", "the default was chosen without knowing the device"),
        ],
        [_do("larger_gpu", "memory is not short")],
        [],
    )


def _cuda_library_alloc(facts, judged):
    clear = judged.match and judged.match.signature.id == "cublas_alloc"
    if clear:
        return Advice(
            "A CUDA library could not allocate its workspace, which it takes outside the budget: the card was (nearly) full.",
            _STEP_GPU,
            [
                _do("free_gpu", "another process, or a partition smaller than believed, is the usual reason"),
                _lower_utilization(facts, "the library allocates outside the budget"),
            ],
            [_NOT_UTILIZATION_UP, _do("upgrade_driver", "a full card is the usual reason")],
            ["nvidia-smi on the node at that moment: how much was free, and who held the rest?"],
        )
    rejected = [_do("upgrade_driver", "first see whether the card was full")]
    recommend = [
        _do("read_gpu_memory", "the message carries no size: a full card and a real fault print the same")
    ]
    if facts.given("mm_device_do_normalize") is not None or facts.multimodal:
        recommend.append(
            _flag(
                "--mm-device-do-normalize",
                "remove",
                "images are then prepared on the host, without this library call",
            )
        )
    recommend.append(_lower_utilization(facts, "only if the card was full"))
    return Advice(
        "A CUDA library reported an internal error. It prints the same when it cannot allocate or load its kernels on a full card "
        "and for real faults, so this alone does not say that memory ran out.",
        _STEP_EXIT_1,
        recommend,
        rejected,
        [
            "free GPU memory at that moment (nvidia-smi, DCGM)",
            "does the same request fail on a freshly started engine?",
        ],
    )


def _unified(facts, judged):
    lower = _lower_utilization(
        facts, "GPU and host share this memory, so the share must leave room for the host", step=0.1
    )
    if judged.match and judged.match.signature.id == "free_below_desired":
        groups = _groups(judged)
        free, total = _number_of(groups, "free"), _number_of(groups, "total")
        value = math.floor(free / total * 100) / 100 - 0.01 if free and total else None
        lower = _flag(
            UTILIZATION,
            "decrease",
            "it must be below free / total of the shared memory",
            round(value, 2) if value else None,
            proof="arithmetic" if value else "rule",
        )
    return Advice(
        "GPU and host share one memory here. What the GPU takes appears neither in the container's memory counters nor reliably in "
        "MemAvailable, and page cache counts against what is free.",
        _STEP_GPU,
        [
            lower,
            _flag("--speculative-config", "decrease", "a smaller drafter takes less of the shared memory")
            if facts.given("speculative_config") is not None
            else _flag(SEQUENCES, "decrease", "fewer sequences need less of the shared memory"),
            _flag(_graph_sizes_flag(facts), "decrease", "fewer and smaller graphs need less memory"),
            _do("read_kernel_log", "the driver's own line (NV_ERR_NO_MEMORY) is the reliable sign"),
        ],
        [
            _k8s(MEMORY_LIMIT, "increase", "GPU memory is not charged to the container"),
            _do("no_change", "MemAvailable looks free until it collapses"),
        ],
        [],
    )


def _false_oom_driver(facts, judged):
    recommend = [
        _do(
            "fix_gpu_visibility",
            "show the container one device only and try again (ZE_AFFINITY_MASK, CUDA_VISIBLE_DEVICES)",
        ),
        _do("change_version", "go back to the image or driver before the regression"),
        _do("upgrade_driver", "the driver or the framework build is what refuses"),
    ]
    if facts.accelerator == "xpu":
        recommend.insert(0, _env("ZE_AFFINITY_MASK", "set", "one device avoids the refusing path", "0"))
    return Advice(
        "The allocation was refused although far more memory was free than it asked for: the driver or its limit, not the card, "
        "said no.",
        _STEP_EXIT_1,
        recommend,
        [
            _flag(UTILIZATION, "decrease", "the card is not full"),
            _do("smaller_model", "the card is not full"),
        ],
        [
            "does a one-element tensor on the same device fail too?",
            "is an MPS or vGPU memory limit in force?",
        ],
    )


# -- NCCL -------------------------------------------------------------------------------------------------------------


def _nccl_gpu_oom(facts, judged):
    sized = (
        judged.verdict.phase in ("graph_capture", "warmup", "serving")
        or facts.number("kv_tokens") is not None
    )
    lower = _lower_utilization(
        facts,
        "NCCL takes its buffers outside the budget: a smaller KV cache leaves room for them"
        if sized
        else "it helps once the KV cache has been sized; before that the card is full for another reason",
    )
    nvls = _env("NCCL_NVLS_ENABLE", "set", "NVLS buffers are hundreds of MiB on NVSwitch machines", "0")
    holder = _do(
        "free_gpu", "a stale process on one of the GPUs is the usual reason before the KV cache exists"
    )
    recommend = [lower, nvls, holder] if sized else [holder, nvls, lower]
    recommend += [
        _env("NCCL_MAX_CTAS", "set", "fewer channels need fewer buffers", "8"),
        _do(
            "collect_nccl_debug",
            "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,ALLOC,NVLS names the buffer that failed",
        ),
    ]
    return Advice(
        "NCCL could not get GPU memory for its own communication buffers, which lie outside PyTorch's accounting and outside "
        "the utilization.",
        _STEP_NCCL,
        recommend,
        [
            _flag(UTILIZATION, "increase", "NCCL needs memory outside the budget"),
            _k8s("volumes.shm.sizeLimit", "increase", "the failing call allocates GPU memory, not /dev/shm"),
            _flag(MODEL_LEN, "decrease", "the KV cache takes what the utilization gives; lower that"),
            _NOT_LIMIT_GPU,
        ],
        [] if sized else ["nvidia-smi on the node before the start: is every GPU of the pod empty?"],
    )


def _nccl_not_memory(facts, judged):
    signature = judged.match.signature.id if judged.match else None
    rejected = [
        _NOT_UTILIZATION,
        _NOT_LIMIT,
        _k8s("volumes.shm.sizeLimit", "increase", "no shared-memory segment failed"),
    ]
    if signature in ("nvls_bind_failed", "nvls_bind_out_of_memory"):
        return Advice(
            "NVLink SHARP could not bind its multicast memory, for a reason of the fabric's state, not for want of memory.",
            _STEP_NCCL,
            [
                _env("NCCL_NVLS_ENABLE", "set", "the other algorithms do not need it", "0"),
                _do("repair_fabric_manager", "the fabric manager of the node is the usual reason"),
            ],
            rejected,
            [],
        )
    if signature == "nccl_watchdog_timeout":
        return Advice(
            "A collective operation never completed: some rank did not take part, or the GPUs cannot reach each other. Nothing ran "
            "out of memory here.",
            _STEP_NCCL,
            [
                _env(
                    "NCCL_P2P_DISABLE",
                    "set",
                    "a first collective that hangs is peer-to-peer access between the GPUs",
                    "1",
                ),
                _env("NCCL_DEBUG", "set", "it names the transport and the rank that waits", "INFO"),
                _flag("--disable-custom-all-reduce", "add", "it takes the second user of peer access out"),
                _do(
                    "read_earlier_log",
                    "a rank that died earlier (its own out of memory included) makes the others wait",
                ),
                _do("repair_gpu_peering", "ACS or IOMMU between the GPUs blocks peer access"),
            ],
            rejected + [_env("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "increase", "it hangs; it is not slow")],
            ["the logs of all ranks by time: which one is silent first?"],
        )
    return Advice(
        "The communication between the ranks failed for a reason that is not memory: interfaces, peers, transport or state.",
        _STEP_NCCL,
        [
            _env("NCCL_DEBUG", "set", "NCCL then names the call that failed", "INFO"),
            _do(
                "read_earlier_log",
                "the rank that complains is often the victim: find the earliest error of all ranks",
            ),
            _env("NCCL_SOCKET_IFNAME", "set", "the interface that the pods can reach each other on", "eth0"),
        ],
        rejected,
        ["the same start with NCCL_DEBUG=INFO: the WARN line before the exception names the reason"],
    )


# -- /dev/shm ---------------------------------------------------------------------------------------------------------


def _shm_exhausted(facts, judged):
    groups = _groups(judged)
    leftovers = facts.said("shm_leftovers") or (
        judged.match and judged.match.signature.family == "tmpfs_refused_pages"
    )
    restarted = (facts.restarts or 0) > 0 or facts.attempt.get("reason") == "CrashLoopBackOff"
    needed = _number_of(groups, "needed")
    volume = (facts.pod.get("shm") or {}).get("mounted_at")
    size = "2Gi" if facts.world_size <= 8 else "8Gi"
    if needed:
        size = to_gi(max(needed * (1 << 20) * 2, 2 * GIB))
    grow = (
        _k8s(
            "volumes.shm.sizeLimit",
            "increase",
            "the segments of all ranks live there",
            size,
            with_=(MEMORY_LIMIT,),
        )
        if volume
        else _k8s(
            "volumes.shm",
            "add",
            "without a volume /dev/shm has the container runtime's 64 MiB",
            size,
            with_=(MEMORY_LIMIT,),
        )
    )
    clean = [
        _do(
            "recreate_pod",
            "the volume behind /dev/shm survives container restarts; only a new pod gets an empty one",
        ),
        _do("clear_shm", "segments of crashed processes stay there and fill it"),
    ]
    recommend = clean + [grow] if leftovers or (restarted and volume) else [grow] + clean[:1]
    if leftovers or restarted:
        recommend.append(_do("read_earlier_log", "the first crash is what left the files behind"))
    rejected = [
        _flag(UTILIZATION, "decrease", "no GPU memory is involved"),
        _env("NCCL_IB_DISABLE", "set", "the ranks are on one host: it is no network fault"),
        _do("use_volume", "/dev/shm is memory, not the node's disk"),
        _k8s(MEMORY_LIMIT, "increase", "the size of /dev/shm does not follow the limit by itself"),
    ]
    if leftovers:
        rejected.append(
            _k8s("volumes.shm.sizeLimit", "increase", "what is left behind fills any size over time")
        )
    needed_words = f" {needed:g} MiB were needed." if needed else ""
    return Advice(
        f"/dev/shm was full or too small for the segments that the ranks exchange data through.{needed_words} What is written "
        "there counts against the container's memory limit.",
        _STEP_NCCL,
        recommend,
        rejected,
        []
        if judged.verdict.confidence == "certain"
        else ["df -h /dev/shm and ls -la /dev/shm in the container at that moment"],
    )


# -- host memory ------------------------------------------------------------------------------------------------------


def _raise_limit(facts, why, proof="rule"):
    limit = facts.memory_limit
    value = to_gi(limit * 1.3) if limit else None
    return _k8s(MEMORY_LIMIT, "increase" if limit else "set", why, value, proof)


def _host_oom_load(facts, judged):
    load_format = str(facts.setting("load_format") or "")
    recommend, rejected = [], [_NOT_UTILIZATION_HOST]
    ranks = facts.world_size
    if "runai" in load_format or "tensorizer" in load_format:
        recommend.append(
            _flag(
                "--load-format",
                "set",
                "streamed tensors are copied in host memory by every rank; safetensors are mapped",
                "safetensors",
            )
        )
    if str(facts.setting("safetensors_load_strategy") or "") in ("eager", "prefetch"):
        recommend.append(
            _flag(
                "--safetensors-load-strategy",
                "set",
                "mapped files are page cache, which the kernel can reclaim",
                "lazy",
            )
        )
    recommend.append(_raise_limit(facts, "the loader's peak must fit beside the processes"))
    if not recommend[0]["name"] == "--load-format":
        recommend.append(
            _do(
                "convert_checkpoint",
                "every rank reads whole .bin or .pt files into memory; safetensors are mapped instead",
            )
        )
    if (facts.env("RAY_memory_monitor_refresh_ms") is not None) or judged.match:
        rejected.append(
            _env("RAY_memory_monitor_refresh_ms", "set", "without Ray's monitor the kernel kills next", "0")
        )
    if ranks > 1:
        recommend.append(
            _flag("--max-parallel-loading-workers", "set", "old versions then load rank by rank", 1)
            if facts.version and facts.version < (0, 8)
            else _do("upgrade", "later loaders share or release what they have read")
        )
    rejected += [
        _flag(TENSOR_PARALLEL, "increase", "more workers load at the same time"),
        _do("larger_gpu", "the GPU had room"),
    ]
    return Advice(
        "The container's host memory ran out while the model was loaded"
        + (f" (limit {show_bytes(facts.memory_limit)}, {ranks} ranks)." if facts.memory_limit else ".")
        + " Weights pass through the host: what is mapped can be reclaimed, copies and whole files can't.",
        _STEP_HOST,
        recommend,
        rejected,
        [
            "memory.peak and memory.stat of the container just before the kill: anonymous or shared memory?",
            "the kernel's OOM report: anon-rss, file-rss and shmem-rss of the killed process",
        ],
    )


def _host_oom_compile(facts, judged):
    return Advice(
        "Kernels were being compiled at the start by many parallel compiler processes, each with gigabytes of its own; vLLM itself "
        "was small.",
        _STEP_HOST,
        [
            _env("MAX_JOBS", "set", "it bounds the parallel compiler processes", "2"),
            _do(
                "prebuild_kernels", "a kernel cache or prebuilt kernels take the compilation out of the start"
            ),
            _do("stagger_starts", "two engines that compile at once need twice as much"),
        ],
        [
            _NOT_UTILIZATION_HOST,
            _k8s(MEMORY_LIMIT, "increase", "step by step it only lets the spike grow until it hits the node"),
            _flag(SWAP, "decrease", "the memory is in the compilers"),
        ],
        ["ps in the container during the start: how many compiler processes, how large?"],
    )


def _victim(facts):
    found = facts.first("kernel_memcg_oom")
    return (found[1].groups.get("victim") or "") if found else ""


def _host_oom_growth(facts, judged):
    victim = _victim(facts)
    recommend = [
        _do("upgrade", "growth of host memory while serving is a leak, and leaks are fixed by versions"),
        _do("restart_before_limit", "until then a planned restart costs less than a kill"),
        _do("compare_process_memory", "API server, engine core and workers leak for different reasons"),
    ]
    if victim.startswith("VLLM::EngineC") or "EngineCore" in victim:
        recommend.insert(
            2,
            _flag(
                "--no-enable-prefix-caching",
                "add",
                "the engine core keeps a hash object for every cached block",
            ),
        )
    if facts.given("speculative_config") is not None:
        recommend.append(
            _flag(
                "--speculative-config", "remove", "to see whether the growth belongs to speculative decoding"
            )
        )
    if facts.multimodal:
        recommend.append(
            _flag("--mm-processor-cache-gb", "decrease", "that cache exists once per API server and engine")
        )
    return Advice(
        "The model was serving when the kernel killed the container: host memory grew with requests or time until the limit"
        + (f" of {show_bytes(facts.memory_limit)}." if facts.memory_limit else "."),
        _STEP_EXIT_137,
        recommend,
        [
            _NOT_UTILIZATION_HOST,
            _flag(SWAP, "decrease", "V1 allocates no swap space"),
            _k8s(MEMORY_LIMIT, "increase", "alone it only moves the kill to a later time"),
        ],
        [
            "container_memory_working_set_bytes over the last runs: a slope (leak) or a step (one request)?",
            "the time from start to death over several restarts",
        ],
    )


def _host_oom_offload(facts, judged):
    pool, name = offload_pool(facts)
    flag = {
        "kv_offloading_size": "--kv-offloading-size",
        "cpu_offload_gb": "--cpu-offload-gb",
        "swap_space": SWAP,
    }.get(name or "", "--kv-offloading-size")
    recommend = [
        _flag(flag, "decrease", "the pool is pinned or shared memory, which can't be reclaimed"),
        _k8s(
            MEMORY_LIMIT,
            "increase",
            "the pinned allocator can round every tensor up to a power of two: plan with twice the pool",
            to_gi(2 * pool + 40 * GIB) if pool and flag == "--kv-offloading-size" else None,
            proof="arithmetic" if pool and flag == "--kv-offloading-size" else "rule",
        ),
        _do("upgrade", "later versions allocate the pool without rounding"),
    ]
    return Advice(
        f"Swap space or an offload pool takes {show_bytes(int(pool)) if pool else 'much'} of host memory by its setting alone, "
        "pinned or shared, and so counts in full against the limit.",
        _STEP_HOST,
        recommend,
        [
            _NOT_UTILIZATION_HOST,
            _do(
                "judge_by_anonymous_memory", "shared memory is not cache: dropping caches frees nothing of it"
            ),
        ],
        [
            "memory.stat of the container: shmem against anon",
            "the kernel's OOM report: shmem-rss of the killed process",
        ],
    )


def _host_oom_cpu_backend(facts, judged):
    recommend = [
        _env("VLLM_CPU_KVCACHE_SPACE", "set", "it is the size of the KV cache in GiB of host memory", "1")
        if facts.said("cpu_kv_space_default")
        else _env("VLLM_CPU_KVCACHE_SPACE", "set", "a smaller KV cache leaves room for the weights"),
        _raise_limit(facts, "weights, KV cache and processes must fit together"),
    ]
    if facts.version is None or facts.version < (0, 18):
        recommend.insert(1, _flag(SWAP, "decrease", "swap space is allocated on top of it", 0))
    if facts.version and facts.version >= (0, 20):
        recommend.append(
            _flag(
                UTILIZATION,
                "decrease",
                "on the CPU backend it is the share of the node's memory from 0.20 on",
            )
        )
    return Advice(
        "On the CPU backend weights, KV cache and swap space are all host memory, and their defaults do not know the pod's limit.",
        _STEP_HOST,
        recommend,
        [_do("smaller_model", "the pools are larger than the weights of a small model")]
        if facts.said("swap_space_large")
        else [],
        [],
    )


def _host_pin_limit(facts, judged):
    return Advice(
        "Pinning host memory failed; the message is CUDA's although no GPU memory was asked for.",
        _STEP_HOST,
        [
            _flag(SWAP, "decrease", "swap space is pinned host memory", 0),
            _do("upgrade", "later versions do not pin where the platform forbids it"),
            _do("use_linux", "under WSL little memory can be pinned"),
            _do("raise_memlock", "a memlock limit also refuses pinned memory"),
        ],
        [
            _do("free_gpu", "the GPU is not what is full"),
            _flag(UTILIZATION, "decrease", "the allocation is on the host"),
        ],
        [],
    )


_page_cache_benign = _fixed(
    "What looks like memory use is page cache of the weight files. The kernel takes it back when anything needs it, so nothing is "
    "short.",
    _STEP_HOST,
    [
        _do("judge_by_anonymous_memory", "anonymous and shared memory are what can't be reclaimed"),
        _do("no_change", "nothing ran out"),
    ],
    [
        _flag(UTILIZATION, "decrease", "it does not touch host memory"),
        _k8s(MEMORY_LIMIT, "increase", "the cache grows to any limit"),
    ],
)


def _kv_swap_pool(facts, judged):
    if judged.match and judged.match.signature.id == "hisparse_pool_blocks":
        return Advice(
            "The host pool for KV blocks is too small for one sequence; the host itself has memory.",
            _STEP_HOST,
            [
                _flag("--kv-transfer-config", "increase", "host_pool_gib must hold max_model_len"),
                _flag(MODEL_LEN, "decrease", "a shorter sequence needs fewer blocks"),
            ],
            [_k8s(MEMORY_LIMIT, "increase", "alone it does not change the pool")],
            [],
        )
    return Advice(
        "vLLM's fixed CPU swap pool is full because preempted sequences are swapped out to it; the host's own memory is not short.",
        _STEP_HOST,
        [
            _flag(SWAP, "increase", "the pool has the size of this flag, in GiB per GPU"),
            _flag(SEQUENCES, "decrease", "fewer sequences are preempted"),
            _do("limit_requests", "a smaller n or best_of per request needs fewer blocks"),
        ],
        [
            _k8s(MEMORY_LIMIT, "increase", "alone it does not change the size of the pool"),
            _NOT_UTILIZATION_HOST,
        ],
        [],
    )


def _cpu_backend_kv(facts, judged):
    groups = _groups(judged)
    needed = _number_of(groups, "needed")
    length, proof = fitting_length(groups)
    space = str(max(1, math.ceil(needed))) if needed else None
    utilization = (
        [
            _flag(
                UTILIZATION,
                "increase",
                "on the CPU backend it is the share of the node's memory from 0.20 on",
            )
        ]
        if facts.version and facts.version >= (0, 20)
        else []
    )
    return Advice(
        "On the CPU backend the KV cache is a pool of host memory of fixed size, and one sequence does not fit it.",
        _STEP_HOST,
        [
            _env(
                "VLLM_CPU_KVCACHE_SPACE",
                "increase",
                "it is the size of the pool in GiB",
                space,
                proof="log" if space else "rule",
            ),
            _flag(
                MODEL_LEN,
                "decrease",
                "that many tokens fit the pool as it is",
                length,
                proof if length else "rule",
            ),
            _k8s(MEMORY_LIMIT, "increase", "the limit must cover weights and pool"),
        ]
        + utilization,
        []
        if utilization
        else [
            _flag(
                UTILIZATION,
                "increase",
                "the message names it, but it has no effect on this version's CPU backend",
            )
        ],
        [],
    )


def _node_oom(facts, judged):
    recommend = []
    if facts.memory_limit is None:
        recommend.append(
            _k8s(
                MEMORY_LIMIT,
                "set",
                "without a limit the pod can take the whole node down instead of being killed alone",
            )
        )
    recommend += [
        _do("reserve_node_memory", "kube-reserved and system-reserved keep memory for the node itself"),
        _do(
            "read_kernel_log",
            "the kernel's report names the victim and what it held; the victim need not be the culprit",
        ),
        _do("move_pod", "another node may have room"),
    ]
    return Advice(
        "The node as a whole ran out of memory, not this container's limit: the kernel then picks a victim, or the node stops "
        "answering.",
        _STEP_HOST,
        recommend,
        [
            _k8s(MEMORY_LIMIT, "remove", "a pod without a limit is what wedges a node"),
            _flag(UTILIZATION, "increase", "it takes more memory, not less"),
        ],
        ["memory of all pods on the node at that time", "the kernel log: global_oom or oom_memcg="],
    )


def _ray_memory_monitor(facts, judged):
    return Advice(
        "Ray's own memory monitor killed the worker when the node passed its threshold (95 %); the kernel killed nothing.",
        _STEP_HOST,
        [
            _raise_limit(facts, "the Ray pod needs more memory"),
            _flag(SWAP, "decrease", "swap space is pinned host memory")
            if facts.version is None or facts.version < (0, 8)
            else _flag("--distributed-executor-backend", "set", "on one node Ray is not needed", "mp"),
            _flag("--distributed-executor-backend", "set", "on one node Ray is not needed", "mp")
            if facts.version is None or facts.version < (0, 8)
            else _do("compare_process_memory", "see which process holds the memory"),
        ],
        [
            _env("RAY_memory_monitor_refresh_ms", "set", "alone it only leaves the kill to the kernel", "0"),
            _NOT_UTILIZATION_HOST,
        ],
        [],
    )


def _sigkill_unattributed(facts, judged):
    return Advice(
        "A process was killed with SIGKILL, and neither the container's status nor the log says by whom. The kernel's OOM killer is "
        "the usual sender; probes, evictions and people are others.",
        _STEP_EXIT_137,
        [
            _do("read_kernel_log", "the kernel logs every OOM kill with the process and the cgroup"),
            _do("find_sender", "probe kills and evictions leave events for an hour"),
        ],
        [_NOT_UTILIZATION_HOST],
        [
            "the kernel log of the node around that time (oom-kill lines)",
            "events of the pod and the node: Killing, Evicted, SystemOOM",
            "memory.peak of the container against its limit",
        ],
    )


# -- not memory -------------------------------------------------------------------------------------------------------


def _probe_kill(facts, judged):
    probe = (facts.death.get("probe") or _groups(judged).get("probe") or "startup") if judged else "startup"
    recommend = []
    if facts.env("VLLM_TRACE_FUNCTION") not in (None, "0"):
        recommend.append(
            _env("VLLM_TRACE_FUNCTION", "remove", "tracing every function makes the start many times slower")
        )
    recommend.insert(
        0,
        _k8s(
            "startupProbe",
            "increase",
            "failureThreshold x periodSeconds must cover the longest start, compilation and download included",
            "failureThreshold: 60, periodSeconds: 10",
        ),
    )
    if probe == "liveness":
        recommend.append(
            _k8s(
                "livenessProbe",
                "set",
                "with a startupProbe it begins only when the start is over",
                "periodSeconds: 10, failureThreshold: 3",
            )
        )
    return Advice(
        f"The kubelet's {probe} probe gave up on the container and stopped it. Nothing ran out of memory; the start took longer "
        "than the probe allows."
        if not facts.serving_seen
        else f"The kubelet's {probe} probe gave up on the container and stopped it. No memory ran out as far as the log shows; the "
        "server stopped answering in time.",
        _STEP_EXIT_143,
        recommend,
        [
            _NOT_LIMIT,
            _NOT_UTILIZATION,
            _k8s("livenessProbe", "remove", "the probe is right to exist; its time is too short"),
        ],
        []
        if judged.verdict.confidence == "certain"
        else ["events of the pod: 'failed startup probe, will be restarted'"],
    )


def _eviction(facts, judged):
    resource = _groups(judged).get("resource") or facts.death.get("resource") or ""
    if judged.verdict.memory == "node":
        return Advice(
            "The kubelet evicted the pod because the node was short of memory; pods above their request go first.",
            _STEP_RESOURCES,
            [
                _k8s("resources.requests.memory", "increase", "pods within their request are evicted last"),
                _do("move_pod", "another node may have room"),
                _do("reserve_node_memory", "the node's own processes need their share"),
            ],
            [
                _NOT_UTILIZATION_HOST,
                _k8s(MEMORY_LIMIT, "remove", "it lets the pod take more of what is short"),
            ],
            ["kubectl describe node: MemoryPressure, and the requests of the other pods"],
        )
    recommend = [
        _do("use_volume", "caches and model files belong on a volume, not on the node's disk"),
        _k8s(
            "resources.requests.ephemeral-storage",
            "set",
            "the scheduler then places the pod where there is room",
        ),
    ]
    disk = next(
        (
            item["name"]
            for item in facts.container.get("env") or []
            if item.get("name", "").endswith("_DISK_SIZE") or "LOCAL_DISK" in item.get("name", "")
        ),
        None,
    ) or next((name for name in facts.settings if "LOCAL_DISK" in name), None)
    if disk:
        recommend.insert(
            0,
            _env(disk, "decrease", "the cache is kept once per worker, so the node needs it that many times"),
        )
    return Advice(
        f"The kubelet evicted the pod because of {resource or 'local storage'}; memory was not short.",
        _STEP_RESOURCES,
        recommend,
        [_NOT_LIMIT, _NOT_UTILIZATION],
        [],
    )


_sigterm_shutdown = _fixed(
    "The container was told to stop from outside (SIGTERM). What the engine prints afterwards is its shutdown.",
    _STEP_EXIT_143,
    [
        _do(
            "find_sender",
            "rollouts, drains, preemption and people send it; the events of the last hour name it",
        ),
        _k8s(
            "terminationGracePeriodSeconds",
            "increase",
            "only if running requests were cut off: the grace period must cover them and the preStop hook",
        ),
    ],
    [_NOT_LIMIT, _NOT_UTILIZATION],
    ["kubectl get events: Killing, Preempted, NodeShutdown; the ReplicaSet's history for a rollout"],
)


def _exit_code_masked(facts, judged):
    return Advice(
        "The exit code shows a consequence, not the cause: vLLM ends the remaining processes itself once one has failed"
        + (
            ", and a dead engine lets the server end with exit code 0."
            if facts.attempt.get("exit_code") == 0
            else "."
        ),
        _STEP_EXIT_1,
        [
            _do("read_earlier_log", "the first error stands further up, or in another rank or attempt"),
        ],
        [
            _k8s(MEMORY_LIMIT, "increase", "a kill for memory would show SIGKILL (-9, 137)"),
            _NOT_UTILIZATION,
        ],
        ["the whole log of this attempt from its first line", "the logs of the other ranks"],
    )


def _hidden(facts, judged):
    inner = ADVICE[judged.hides](facts, judged)
    return inner._replace(
        explanation="The container ended by a termination, which hides what came first: " + inner.explanation,
        runbook=_STEP_EXIT_143,
    )


def _native_crash(facts, judged):
    recommend = []
    if any(
        "CuMemHost" in str(line.get("text")) or "cuMemCreate" in str(line.get("text")) for line in facts.lines
    ):
        recommend += [
            _env("NCCL_CUMEM_HOST_ENABLE", "set", "the crash is in NCCL's probe of that allocation", "0"),
            _env("NCCL_CUMEM_ENABLE", "set", "it keeps NCCL off that driver interface", "0"),
        ]
    recommend.append(
        _do("upgrade_driver", "a crash in native code is a bug of driver, NCCL, framework or kernel")
    )
    if facts.allocator_conf[1] or not recommend[:-1]:
        recommend.insert(
            0 if facts.allocator_conf[1] else len(recommend),
            _env(_allocator(facts), "remove", "if it is set: allocator settings are known to break starts"),
        )
    recommend.append(_do("upgrade", "the crash may be fixed in a later version"))
    return Advice(
        "A process crashed in native code. No allocation failed as far as the log shows.",
        _STEP_EXIT_1,
        recommend,
        [_NOT_UTILIZATION, _NOT_LIMIT, _NOT_SHM_SIZE],
        ["the native stack (PYTHONFAULTHANDLER=1), and dmesg on the node for Xid lines at that time"],
    )


_pids_limit = _fixed(
    "A thread or process could not be created (EAGAIN): the pids limit of the pod or user is reached. That is not memory.",
    _STEP_EXIT_1,
    [
        _do("raise_pids_limit", "the kubelet's podPidsLimit or ulimit -u is what is reached"),
        _env("OMP_NUM_THREADS", "set", "thread pools are sized by the host's cores", "1"),
        _flag(
            "--distributed-executor-backend",
            "set",
            "Ray starts many threads; one node does not need it",
            "mp",
        ),
    ],
    [
        _k8s(MEMORY_LIMIT, "increase", "EAGAIN is not ENOMEM"),
        _NOT_UTILIZATION,
        _flag(SWAP, "decrease", "no memory ran out"),
    ],
)
_memlock_limit = _fixed(
    "RDMA needs locked memory, and the container's memlock limit is too small for it: the kernel answers 'Cannot allocate memory' "
    "with plenty of memory free.",
    _STEP_NCCL,
    [
        _do(
            "raise_memlock",
            "LimitMEMLOCK=infinity on the container runtime, or the capability IPC_LOCK in the container",
        ),
        _do(
            "read_kernel_log", "if it persists with an unlimited memlock, the kernel log names the real limit"
        ),
    ],
    [
        _k8s(MEMORY_LIMIT, "increase", "memory is free; the limit is on locking it"),
        _NOT_UTILIZATION,
        _env("NCCL_IB_DISABLE", "set", "it only hides the loss of RDMA"),
    ],
    ["ulimit -l inside the container"],
)


def _not_memory_config(facts, judged):
    signature = judged.match.signature.id if judged.match else None
    text = judged.match.text if judged.match else ""
    base_rejected = [_NOT_UTILIZATION, _NOT_LIMIT]
    if signature in ("device_ordinal", "duplicate_gpu") or "larger than the number of available GPUs" in text:
        gpus = facts.gpus
        have = f" The container has {gpus}." if gpus else ""
        return Advice(
            f"The engine asks for more devices than the container has: --tensor-parallel-size is {facts.tensor_parallel}.{have}",
            _STEP_EXIT_1,
            [
                _flag(
                    TENSOR_PARALLEL, "decrease", "one device a rank", gpus, proof="log" if gpus else "rule"
                ),
                _k8s("resources.limits.gpu", "increase", "if that many ranks are wanted", facts.world_size),
            ],
            base_rejected + [_do("upgrade_driver", "the device count does not match; the driver is fine")],
            [],
        )
    if signature == "no_space":
        return Advice(
            "A file system is full. The message does not say which; memory is not short.",
            _STEP_EXIT_1,
            [
                _do("use_volume", "model downloads and compile caches belong on a volume"),
            ],
            base_rejected,
            ["df -h in the container: which file system is full?"],
        )
    return Advice(
        "vLLM refused its configuration. Nothing ran out; the message names the setting.",
        _STEP_EXIT_1,
        [
            _do("fix_spec", "the message names the setting and what it must be", proof="log"),
            _do("rollback_revision", "if the setting came with the last change"),
        ],
        base_rejected,
        [],
    )


_not_memory_driver = _fixed(
    "The CUDA libraries of the image and the node's driver do not match; the GPUs are empty.",
    _STEP_EXIT_1,
    [
        _do("match_driver", "the image's CUDA version must be one that the driver supports"),
        _env("LD_LIBRARY_PATH", "remove", "a CUDA compat folder in it shadows the driver's own libraries"),
        _do("upgrade_driver", "or bring the node's driver to the image's version"),
    ],
    [_NOT_UTILIZATION, _NOT_LIMIT],
)
_not_memory_auth = _fixed(
    "The model could not be downloaded or opened: the token is missing or not authorised, or the path is wrong. Nothing was loaded.",
    _STEP_EXIT_1,
    [
        _env("HF_TOKEN", "set", "from a Secret; the account must have access to the model"),
        _do("accept_licence", "gated models need it, or mount the weights and set HF_HUB_OFFLINE=1"),
    ],
    [_NOT_UTILIZATION, _NOT_LIMIT, _do("larger_gpu", "nothing was loaded")],
)
_not_memory_cuda_fault = _fixed(
    "A GPU kernel touched an invalid address or failed otherwise: 'memory access' is not 'out of memory'.",
    _STEP_EXIT_1,
    [
        _do("upgrade", "it is a bug of a kernel; later versions may have the fix"),
        _flag(EAGER, "add", "to see whether it belongs to the captured graphs"),
        _env("CUDA_LAUNCH_BLOCKING", "set", "it names the kernel", "1"),
        _flag("--no-enable-prefix-caching", "add", "to narrow it down"),
    ],
    [_NOT_UTILIZATION, _NOT_LIMIT],
    ["Xid lines in the node's kernel log: the same GPU again and again points at hardware"],
)
_not_memory_hang = _fixed(
    "Processes wait for each other: the 'blocks' in the message are slots of a small ring buffer, not space. A long compilation, or "
    "a peer that hangs or died, is behind it.",
    _STEP_EXIT_1,
    [
        _env(
            "VLLM_RINGBUFFER_WARNING_INTERVAL",
            "set",
            "a compilation of over a minute prints it once a minute",
            "120",
        ),
        _k8s("startupProbe", "increase", "the start must be allowed to take as long as compilation needs"),
        _do("read_earlier_log", "if it goes on for many minutes: which rank fell silent first?"),
    ],
    [
        _k8s("volumes.shm.sizeLimit", "increase", "no space is missing"),
        _do("restart_pod", "compilation would begin again"),
        _NOT_UTILIZATION,
    ],
    ["the logs of the other ranks", "py-spy dump of the workers", "does it end by itself?"],
)
_kernel_shared_memory = _fixed(
    "A kernel wants more on-chip shared memory per block than this GPU has. That is neither GPU memory nor /dev/shm.",
    _STEP_EXIT_1,
    [
        _do("upgrade", "later versions bring a kernel configuration for this GPU"),
        _do("change_kernel_backend", "another attention or quantization backend uses another kernel"),
    ],
    [
        _k8s("volumes.shm.sizeLimit", "increase", "it is a different 'shared memory'"),
        _flag(UTILIZATION, "decrease", "the limit is bytes per thread block"),
        _flag("--block-size", "decrease", "the KV block is not the kernel's block"),
    ],
)


def _kernel_workspace_overflow(facts, judged):
    groups = _groups(judged)
    rejected = [
        _flag(UTILIZATION, "decrease", "the pool has a fixed size; the GPU has memory"),
        _do("larger_gpu", "the pool has a fixed size; the GPU has memory"),
    ]
    if judged.match and judged.match.signature.id == "workspace_locked":
        return Advice(
            "A workspace that is fixed after warm-up turned out too small for a shape that warm-up had not seen. More memory does "
            "not help.",
            _STEP_EXIT_1,
            [
                _do("upgrade", "it is a gap in the warm-up, fixed by versions"),
                _do("change_kernel_backend", "another backend does not use that workspace"),
                _flag(EAGER, "add", "to see whether it belongs to the captured graphs"),
            ],
            rejected,
            [],
        )
    size = _number_of(groups, "size")
    available = _number_of(groups, "available")
    need = ""
    value = None
    if size and available:
        need = f" It has {show_bytes(int(available))} and needed {show_bytes(int(size))} more at once."
        value = 1 << math.ceil(math.log2(size + available))
    return Advice(
        f"The attention library's fixed workspace is too small for this model's shape.{need} The GPU itself has memory.",
        _STEP_EXIT_1,
        [
            _env(
                "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
                "set",
                "the size of the workspace in bytes, in versions that have it (0.11.1 and later)",
                value,
                proof="log" if value else "rule",
            ),
            _flag(SEQUENCES, "decrease", "fewer sequences need less of it"),
            _do("change_kernel_backend", "another backend has no such pool"),
            _do("upgrade", "later versions size the workspace themselves"),
        ],
        rejected,
        [],
    )


_allocator_conf_side_effect = _fixed(
    "The allocator setting in the environment breaks the start; no allocation failed.",
    _STEP_EXIT_1,
    [
        _env("PYTORCH_CUDA_ALLOC_CONF", "set", "or unset it", "expandable_segments:False"),
        _do("upgrade", "later versions refuse or support the combination"),
    ],
    [
        _env("PYTORCH_CUDA_ALLOC_CONF", "set", "it is what breaks the start", "expandable_segments:True"),
        _NOT_UTILIZATION,
        _do("larger_gpu", "nothing ran out"),
    ],
)
_accelerator_hbm_oom = _fixed(
    "The accelerator's memory was exhausted: compiled programs and activations need room outside the KV cache's share.",
    _STEP_GPU,
    [
        _flag(UTILIZATION, "decrease", "programs are loaded outside the KV cache's share"),
        _flag(BATCH_TOKENS, "decrease", "smaller batches need smaller programs and activations"),
        _flag(SEQUENCES, "decrease", "smaller batches need smaller programs and activations"),
        _flag(TENSOR_PARALLEL, "increase", "more chips share the weights"),
    ],
    [
        _flag(UTILIZATION, "increase", "programs need memory outside it"),
        _do("restart_pod", "trying again is luck"),
        _NOT_LIMIT_GPU,
    ],
)
_mig_oom_masked = _fixed(
    "The slice was full. PyTorch asks NVML while it reports that, which is forbidden on a MIG slice, so an assertion is printed in "
    "place of 'out of memory'. vLLM may also have been told the whole card's memory.",
    _STEP_GPU,
    [
        _do("size_for_slice", "the usable memory is that of the slice, somewhat less than its name says"),
        _k8s("resources.limits.gpu", "set", "a larger nvidia.com/mig-* profile, or a whole GPU"),
        _flag(UTILIZATION, "decrease", "the budget was computed from the whole card"),
        _flag(MODEL_LEN, "decrease", "a shorter sequence needs less KV cache"),
        _env(
            "PYTORCH_CUDA_ALLOC_CONF",
            "set",
            "it removes one NVML path, so that the real message appears; no cure by itself",
            "expandable_segments:False",
        ),
    ],
    [
        _env("PYTORCH_CUDA_ALLOC_CONF", "set", "it is a path that asks NVML", "expandable_segments:True"),
        _do("no_change", "'please report a bug' in the message is misleading: the allocation did not fit"),
    ],
)
_cpu_throttling = _fixed(
    "The CPU limit stops all threads of the container for the rest of each period once it is used up; a stalled tokenizer or launch "
    "thread starves the GPU.",
    _STEP_CPU,
    [
        _k8s("resources.limits.cpu", "remove", "requests never throttle; keep the request"),
        _env("OMP_NUM_THREADS", "set", "thread pools are sized by the host's cores, not by the limit"),
        _do("limit_requests", "requests with many distinct grammars compile them on the CPU"),
    ],
    [
        _do("larger_gpu", "the GPU waits for the CPU"),
        _flag(SEQUENCES, "decrease", "the GPU is not the bottleneck"),
    ],
    ["cpu.stat of the container over a minute: nr_throttled against nr_periods"],
)
_slot_limit = _fixed(
    "A number of slots or the size of a fixed pool was reached, not the memory behind it.",
    _STEP_EXIT_1,
    [
        _do("fix_spec", "raise the number that the message names", proof="log"),
        _do("limit_requests", "or send fewer such requests at once"),
    ],
    [_NOT_UTILIZATION, _NOT_LIMIT],
)


def _undetermined(facts, judged):
    settle = [
        "the whole log of the first failing attempt, from the vLLM banner on",
        "the container's last state: reason and exit code",
        "the node's kernel log around the time of death",
    ]
    return Advice(
        "The evidence does not settle what happened. "
        + (
            "No log of the failing run could be read."
            if not facts.log.get("readable")
            else "No line of the log is one that is known as the root of a memory failure."
        ),
        _STEP_EXIT_1,
        [_do("read_earlier_log", "the first error stands further up, or in another rank or attempt")],
        [],
        settle,
    )


_status_unknown = _fixed(
    "The node lost track of the container, and the status was filled in afterwards: its exit code means nothing.",
    _STEP_EXIT_137,
    [
        _do("read_kernel_log", "what happened on the node at that time: restart, memory, runtime"),
        _do("find_sender", "events of the node name a reboot or a shutdown"),
    ],
    [_k8s(MEMORY_LIMIT, "increase", "the 137 is synthetic: nothing shows a kill for memory")],
    ["kubectl describe node: Rebooted, NotReady, kubelet restarts"],
)
_start_error = _fixed(
    "The container never started: entrypoint, device, mount or image. vLLM did not run.",
    _STEP_EXIT_1,
    [_do("fix_spec", "the status message names what failed", proof="log")],
    [_NOT_LIMIT, _NOT_UTILIZATION],
)


ADVICE = {
    "gpu_weights_oom": _gpu_weights_oom,
    "kv_no_blocks": _kv_no_blocks,
    "kv_max_len": _kv_max_len,
    "kv_budget_misestimate": _kv_budget_misestimate,
    "kv_bytes_too_large": _kv_bytes_too_large,
    "gpu_free_below_util": _gpu_free_below_util,
    "gpu_held_by_other": _gpu_held_by_other,
    "profiling_memory_changed": _profiling_memory_changed,
    "cudagraph_capture_oom": _cudagraph_capture_oom,
    "sampler_warmup_oom": _sampler_warmup_oom,
    "profile_run_oom": _profile_run_oom,
    "serving_gpu_oom": _serving_gpu_oom,
    "serving_gpu_growth": _serving_gpu_growth,
    "gpu_fragmentation": _gpu_fragmentation,
    "allocator_conf_side_effect": _allocator_conf_side_effect,
    "nccl_gpu_oom": _nccl_gpu_oom,
    "sleep_wakeup_oom": _sleep_wakeup_oom,
    "mig_oom_masked": _mig_oom_masked,
    "mig_vgpu_config": _mig_vgpu_config,
    "unified_memory_accounting": _unified,
    "accelerator_hbm_oom": _accelerator_hbm_oom,
    "false_oom_driver": _false_oom_driver,
    "cuda_library_alloc": _cuda_library_alloc,
    "kernel_workspace_overflow": _kernel_workspace_overflow,
    "kernel_shared_memory": _kernel_shared_memory,
    "shm_exhausted": _shm_exhausted,
    "host_oom_load": _host_oom_load,
    "host_oom_compile": _host_oom_compile,
    "host_oom_growth": _host_oom_growth,
    "host_oom_offload": _host_oom_offload,
    "host_oom_cpu_backend": _host_oom_cpu_backend,
    "host_pin_limit": _host_pin_limit,
    "host_page_cache_benign": _page_cache_benign,
    "kv_swap_pool_exhausted": _kv_swap_pool,
    "cpu_backend_kv": _cpu_backend_kv,
    "node_oom": _node_oom,
    "eviction": _eviction,
    "probe_kill": _probe_kill,
    "sigterm_shutdown": _sigterm_shutdown,
    "exit_code_masked": _exit_code_masked,
    "device_oom_hidden_by_probe": _hidden,
    "sigkill_unattributed": _sigkill_unattributed,
    "native_crash": _native_crash,
    "pids_limit": _pids_limit,
    "memlock_limit": _memlock_limit,
    "ray_memory_monitor": _ray_memory_monitor,
    "nccl_not_memory": _nccl_not_memory,
    "not_memory_config": _not_memory_config,
    "not_memory_driver": _not_memory_driver,
    "not_memory_auth": _not_memory_auth,
    "not_memory_cuda_fault": _not_memory_cuda_fault,
    "not_memory_hang": _not_memory_hang,
    "cpu_throttling": _cpu_throttling,
    "slot_limit": _slot_limit,
    "undetermined": _undetermined,
    "status_unknown": _status_unknown,
    "start_error": _start_error,
}
