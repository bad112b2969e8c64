# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice on GPU memory: weights, KV cache, what lies outside the budget, slices and other accelerators."""

from __future__ import annotations

import math

from ..quantities import GIB, show_bytes
from .advice_parts import (
    BATCH_TOKENS,
    EAGER,
    HIGHEST_UTILIZATION,
    KV_DTYPE,
    MARGIN_OUTSIDE,
    MEMORY_LIMIT,
    MODEL_LEN,
    NOT_LENGTH,
    NOT_LIMIT_GPU,
    NOT_UTILIZATION,
    NOT_UTILIZATION_UP,
    SEQUENCES,
    STEP_EXIT_1,
    STEP_GPU,
    STEP_GPU_NO_HELP,
    STEP_GPU_WORSE,
    SWAP,
    TENSOR_PARALLEL,
    UTILIZATION,
    Advice,
    action,
    allocator_variable,
    env_change,
    fitting_length,
    flag_change,
    graph_sizes_flag,
    groups_of,
    k8s_change,
    lower_utilization,
    next_parallel,
    number_of,
    rejected_expandable,
)
from .budgeted import missing
from .torch_oom import held_by_others, outside_allocator

# -- GPU: weights -----------------------------------------------------------------------------------------------------


def gpu_weights_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    allocated, total, free = numbers.get("allocated"), numbers.get("total"), numbers.get("free")
    if allocated and total:
        seen = (
            f"PyTorch held {show_bytes(allocated)} of the card's {show_bytes(total)}"
            + (f" with {show_bytes(free)} free" if free is not None else "")
            + " while the model was being built or loaded."
        )
    else:
        seen = "The card was full while the model was being built or loaded."
    recommend = [
        flag_change(
            TENSOR_PARALLEL,
            "increase",
            "more ranks take a smaller share of the weights each",
            next_parallel(facts),
            proof="arithmetic" if allocated else "rule",
        ),
        action("smaller_quantization", "a smaller number format makes the weights smaller"),
        flag_change(
            "--cpu-offload-gb",
            "increase",
            "part of the weights moves to pinned host memory, at a cost in speed",
        ),
        action("larger_gpu", "the weights need a larger card"),
        action("smaller_model", "the weights need a smaller model"),
    ]
    if judged.verdict.confidence == "possible":
        recommend.insert(
            0,
            action(
                "free_gpu",
                "the message has no numbers: first see whether the GPU was empty when the engine started",
            ),
        )
    rejected = [
        flag_change(
            UTILIZATION,
            "decrease",
            "it does not limit or free memory for weights; vLLM's hint to lower it is misleading",
        ),
        flag_change(SWAP, "increase", "swap space holds KV blocks on the host, never weights"),
        NOT_LIMIT_GPU,
        *rejected_expandable(facts, judged),
    ]
    settle = []
    if judged.verdict.confidence != "certain":
        settle = [
            "the full log of the first failing start, from the vLLM banner on: which phase had been reached",
            "nvidia-smi on the node before the pod starts: was the GPU empty?",
        ]
    return Advice(
        f"{seen} Nothing but the size of the weights on each GPU matters here.",
        STEP_GPU_NO_HELP,
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


def kv_no_blocks(facts, judged):
    kv, total, current = facts.number("kv_available"), facts.gpu_total, facts.utilization
    weights, activation = facts.number("weights"), facts.number("activation_peak")
    missing = f" {show_bytes(-kv)} are missing before the first block." if kv is not None and kv < 0 else ""
    parts = ""
    if weights is not None and activation is not None:
        parts = f" (weights {show_bytes(weights)}, profile peak {show_bytes(activation)})"
    explanation = f"Of the budget of {current:g} of the card, weights and profile peak{parts} leave nothing for the KV cache.{missing}"
    lower_batch = flag_change(
        BATCH_TOKENS, "decrease", "the profile run is made with that many tokens: fewer of them cut its peak"
    )
    fewer = flag_change(SEQUENCES, "decrease", "fewer sequences need less for sampling, graphs and state")
    needed = _needed_utilization(facts, extra=GIB // 2)
    recommend = []
    rejected = [flag_change(UTILIZATION, "decrease", "it makes the budget, and so the shortage, still worse")]
    weights_alone = weights is not None and total and weights > 0.9 * total
    raise_to = max(needed or 0, 0.9)
    if weights_alone:
        rejected.append(
            flag_change(
                UTILIZATION,
                "increase",
                "the weights alone fill over 90 % of the card: no setting makes room",
                proof="arithmetic",
            )
        )
    elif current < 0.9 and raise_to <= HIGHEST_UTILIZATION and raise_to > current:
        recommend.append(
            flag_change(
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
        highest = f"{HIGHEST_UTILIZATION:g}"
        recommend.append(
            flag_change(
                UTILIZATION,
                "increase",
                f"up to {highest} together with the smaller batch: by itself it moves the failure to warm-up or graph capture",
                min(HIGHEST_UTILIZATION, max(raise_to, round(current + 0.03, 2))),
                with_=(BATCH_TOKENS, SEQUENCES),
            )
        )
        rejected.append(
            flag_change(
                UTILIZATION, "increase", "alone it only moves the failure to sampler warm-up or graph capture"
            )
        )
    if facts.multimodal:
        recommend.append(
            flag_change(
                "--limit-mm-per-prompt",
                "decrease",
                "the encoder's share of the profile peak follows the number of items",
            )
        )
    recommend += [
        flag_change(
            TENSOR_PARALLEL,
            "increase",
            "more ranks take a smaller share of the weights each",
            next_parallel(facts),
        ),
        action("smaller_quantization", "smaller weights leave more of the budget"),
        flag_change(
            "--cpu-offload-gb",
            "increase",
            "weights moved to the host leave room for the KV cache, at a cost in speed",
        ),
    ]
    rejected += [
        flag_change(SWAP, "increase", "CPU blocks are not what is missing"),
        k8s_change(
            MEMORY_LIMIT, "increase", "the message's remark on CPU memory is generic text; this runs on a GPU"
        ),
    ]
    return Advice(explanation, STEP_GPU_WORSE, recommend, rejected, [])


def _halving_is_enough(needed, available, groups):
    """Whether half the need fits what is there (GiB, or tokens in the older wording); None when neither is known."""
    if needed is not None and available is not None:
        return available >= needed / 2
    tokens, length = number_of(groups, "tokens"), number_of(groups, "max_model_len")
    return None if tokens is None or length is None else tokens >= length / 2


def kv_max_len(facts, judged):
    groups = groups_of(judged)
    needed, available = number_of(groups, "needed"), number_of(groups, "available")
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
    recommend.append(flag_change(MODEL_LEN, "decrease", why, length, proof if length else "rule"))
    gap = (needed - available) * GIB if needed is not None and available is not None else None
    total, current = facts.gpu_total, facts.utilization
    target = math.ceil((current + gap / total) * 100) / 100 if gap is not None and total else None
    if "fp8" not in str(facts.setting("kv_cache_dtype") or ""):
        enough = _halving_is_enough(needed, available, groups)
        recommend.append(
            flag_change(
                KV_DTYPE,
                "set",
                "it halves the KV cache of 16-bit models"
                + (", which alone is not enough here" if enough is False else ""),
                "fp8",
                proof="arithmetic" if enough else "rule",
                with_=(MODEL_LEN,) if enough is False else (),
            )
        )
    if gap is not None and target is not None and target <= HIGHEST_UTILIZATION:
        recommend.append(
            flag_change(
                UTILIZATION,
                "increase",
                f"it adds the missing {show_bytes(int(gap))}",
                target,
                proof="arithmetic",
            )
        )
    elif gap is not None:
        rejected.append(
            flag_change(
                UTILIZATION,
                "increase",
                f"alone it cannot add the missing {show_bytes(int(gap))}",
                proof="arithmetic" if total else "rule",
            )
        )
    recommend.append(
        flag_change(
            TENSOR_PARALLEL,
            "increase",
            "each rank then holds fewer KV heads and weights",
            next_parallel(facts),
        )
    )
    if facts.said("kv_full_for_window_layers"):
        recommend.append(
            flag_change(
                "--disable-hybrid-kv-cache-manager",
                "remove",
                "without the hybrid manager sliding-window layers keep the full length",
            )
        )
    rejected += [
        flag_change(UTILIZATION, "decrease", "it makes the KV cache still smaller"),
        NOT_LIMIT_GPU,
    ]
    return Advice(explanation, STEP_GPU_WORSE, recommend, rejected, [])


def _kv_allocation_failed(facts, judged):
    numbers = judged.verdict.numbers or {}
    others = held_by_others(numbers) if numbers else None
    fixed = flag_change(
        "--kv-cache-memory-bytes", "set", "a fixed size that fits takes the estimate out of it"
    )
    lower = lower_utilization(facts, "it leaves room for what the estimate missed")
    free = action("free_gpu", "another process on the GPU is what makes the arithmetic wrong")
    upgrade = action("upgrade", "from 0.9.1 on other processes' memory is not booked as vLLM's own")
    alone = others is not None and others < GIB
    recommend = [lower, fixed] if alone else [free, fixed]
    if facts.version is None or facts.version < (0, 9, 1):
        recommend.insert(1, upgrade)
    return Advice(
        "The memory that vLLM booked for the KV cache was not what the card had: another process' memory was counted as ours, "
        "or somebody took it after it had been measured."
        if not alone
        else "The KV cache that the start-up arithmetic allowed did not fit, and no other process holds memory of the card.",
        STEP_GPU_NO_HELP if not alone else STEP_GPU,
        recommend,
        [flag_change(MODEL_LEN, "decrease", "the model's own need is not what failed")],
        ["nvidia-smi on the node while the engine starts: who else uses the GPU?"],
    )


def kv_budget_misestimate(facts, judged):
    kv = facts.number("kv_available")
    if facts.sleep_mode:
        given = f" It gave {show_bytes(kv)} to the KV cache." if kv is not None else ""
        return Advice(
            f"With sleep mode vLLM's start-up arithmetic counts part of the memory twice, so that the KV cache gets more than "
            f"is free.{given}",
            STEP_GPU,
            [
                flag_change("--enable-sleep-mode", "remove", "without it the arithmetic is right"),
                flag_change(
                    "--kv-cache-memory-bytes", "set", "a fixed size that fits takes the estimate out of it"
                ),
                lower_utilization(facts, "it leaves a margin for what the estimate misses"),
                action("upgrade", "later versions account for the sleep-mode allocator"),
            ],
            [
                flag_change(MODEL_LEN, "decrease", "the length fits once the estimate is right"),
                flag_change(UTILIZATION, "increase", "the budget is over-committed already"),
            ],
            [],
        )
    return _kv_allocation_failed(facts, judged)


def kv_bytes_too_large(facts, judged):
    name = "--" + (facts.fixed_kv or "kv_cache_memory_bytes").replace("_", "-")
    return Advice(
        f"The KV cache size is fixed by {name}, so vLLM did not size it by what is free, and the rest of the start ran out.",
        STEP_GPU_NO_HELP,
        [
            flag_change(name, "decrease", "the fixed size leaves too little for graphs, warm-up and context"),
            flag_change(name, "remove", "vLLM then sizes the KV cache by what is left"),
        ],
        [flag_change(UTILIZATION, "decrease", f"it has no effect on the KV cache while {name} is set")],
        [],
    )


# -- GPU: somebody else, or the start-up check ------------------------------------------------------------------------


def _drop_page_cache(facts):
    """On unified memory the page cache of an earlier load counts as used GPU memory."""
    if not facts.unified:
        return []
    return [action("drop_page_cache", "the weight files of an earlier load sit in the same memory")]


def gpu_free_below_util(facts, judged):
    groups = groups_of(judged)
    free, total, asked = (number_of(groups, name) for name in ("free", "total", "requested"))
    asked = asked if asked is not None else number_of(groups, "engine")
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
        STEP_GPU,
        [
            *_drop_page_cache(facts),
            action(
                "free_gpu",
                "the memory in use before the start belongs to somebody else, often the previous container",
            ),
            flag_change(
                UTILIZATION,
                "decrease",
                "only if the GPU is meant to be shared: it must be below free / total",
                value,
                proof="arithmetic" if value else "rule",
            ),
            action(
                "one_engine_per_gpu", "engines that share a GPU must share its memory by their utilizations"
            ),
            action("wait_for_gpu", "after a crash the previous processes can hold the GPU for a while"),
        ],
        [
            flag_change(UTILIZATION, "increase", "it asks for still more"),
            flag_change(MODEL_LEN, "decrease", "the check is made before the model is looked at"),
            flag_change(SEQUENCES, "decrease", "the check is made before the model is looked at"),
            action("smaller_model", "the check is made before the model is looked at"),
        ],
        [],
    )


def gpu_held_by_other(facts, judged):
    numbers = judged.verdict.numbers or {}
    others = held_by_others(numbers) if numbers else None
    short, fits = missing(facts.budget), "the model fits when the GPU is empty"
    smaller = [
        action("smaller_model", fits),
        action("smaller_quantization", fits),
        flag_change(MODEL_LEN, "decrease", fits),
    ]
    explanation = (
        f"Other processes hold {show_bytes(others)} of the card's {show_bytes(numbers['total'])}; vLLM's own share was not what "
        "filled it."
        if others and numbers.get("total")
        else "The GPU's memory was held by somebody else when the engine needed it"
        + ("." if short else "; the same settings run on an empty GPU.")
    )
    if short:
        explanation += (
            f" An empty GPU isn't enough: the memory budget then leaves {show_bytes(facts.budget['available_kv'])} for the KV cache, "
            f"{show_bytes(short)} too little."
        )
    return Advice(
        explanation,
        STEP_GPU_NO_HELP,
        [
            action(
                "free_gpu",
                "stop or move the process whose memory is not vLLM's",
                proof="log" if others else "rule",
            ),
            action(
                "wait_for_gpu",
                "start only when the previous pod has released the GPU (strategy Recreate or an init container)",
            ),
            action("one_engine_per_gpu", "two engines on one GPU must not both plan with the whole of it"),
            k8s_change("strategy", "set", "the old pod then ends before the new one starts", "Recreate"),
        ],
        [
            *([] if short else smaller),
            flag_change(UTILIZATION, "decrease", "it treats somebody else's memory as a permanent shortage"),
            *rejected_expandable(facts, judged),
        ],
        [
            "nvidia-smi on the node (not in the container): which processes hold the GPU, and to which pods they belong"
        ],
    )


def profiling_memory_changed(facts, judged):
    groups = groups_of(judged)
    unchanged = groups.get("initial") and groups.get("initial") == groups.get("current")
    rejected = [
        flag_change(UTILIZATION, "decrease", "nothing is short"),
        flag_change(UTILIZATION, "increase", "nothing is short"),
        action("larger_gpu", "nothing is short"),
    ]
    if facts.vgpu or unchanged:
        return Advice(
            "The GPU's memory counter did not move while the model was profiled: the layer that reports it (a vGPU shim) does "
            "not see this process.",
            STEP_EXIT_1,
            [
                action(
                    "fix_gpu_visibility", "the shim must be able to map the container's process to its device"
                ),
                action("upgrade", "of the vGPU layer: its counters are what is wrong"),
            ],
            [*rejected, action("one_engine_per_gpu", "vLLM is alone; the counter is wrong")],
            [],
        )
    return Advice(
        "Another process released GPU memory while vLLM measured its own use, often a predecessor that was still ending. It is a "
        "race, not a shortage.",
        STEP_EXIT_1,
        [
            action("restart_pod", "the next start finds the GPU quiet"),
            action("wait_for_gpu", "start only when the previous holder has released the GPU"),
            action(
                "one_engine_per_gpu",
                "engines that start together on one GPU disturb each other's measurement",
            ),
        ],
        rejected,
        [],
    )


# -- GPU: outside the budget ------------------------------------------------------------------------------------------


def cudagraph_capture_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    kv, current = facts.number("kv_available"), facts.utilization
    outside = outside_allocator(numbers) if numbers else None
    parts = ["CUDA graphs are captured after the KV cache has taken its share, and need memory outside it."]
    if kv is not None:
        parts.append(f"The KV cache got {show_bytes(kv)} at a utilization of {current:g}.")
    if outside and outside >= MARGIN_OUTSIDE:
        parts.append(
            f"About {show_bytes(outside)} of this process are outside PyTorch's allocator (communication, graphs, context)."
        )
    eager = flag_change(EAGER, "add", "no graphs, no memory for them; decoding gets slower")
    sizes = flag_change(graph_sizes_flag(facts), "decrease", "fewer and smaller graphs need less memory")
    lower = lower_utilization(facts, "it leaves more memory outside the KV cache", step=_capture_step(facts))
    fewer = flag_change(SEQUENCES, "decrease", "graphs are captured up to that many sequences")
    recommend = [lower, eager, fewer, sizes] if current >= 0.85 else [eager, sizes, fewer, lower]
    rejected = [
        NOT_UTILIZATION_UP,
        action("smaller_model", "the weights had been loaded and the KV cache sized"),
        NOT_LENGTH,
        *rejected_expandable(facts, judged),
    ]
    return Advice(" ".join(parts), STEP_GPU, recommend, rejected, [])


def _capture_step(facts):
    """How far to lower the utilization for graph capture: at least to 0.92, else by two percent points more than a graph set takes."""
    return max(0.05, round(facts.utilization - 0.92, 2))


def sampler_warmup_oom(facts, judged):
    groups = groups_of(judged)
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
        STEP_GPU,
        [
            flag_change(
                SEQUENCES,
                "decrease",
                "the warm-up is made with that many sequences",
                value,
                proof="log" if requests else "rule",
            ),
            lower_utilization(facts, "it leaves more memory outside the KV cache"),
        ],
        [
            NOT_UTILIZATION_UP,
            flag_change(MODEL_LEN, "decrease", "sampling memory is sequences x vocabulary"),
            *rejected_expandable(facts, judged),
        ],
        [],
    )


def profile_run_oom(facts, judged):
    rejected = [
        flag_change(
            UTILIZATION,
            "decrease",
            "the profile run comes before the KV cache: its peak does not depend on it",
        ),
        flag_change(MODEL_LEN, "increase", "a longer sequence makes the profile run larger"),
        NOT_LIMIT_GPU,
        *rejected_expandable(facts, judged),
    ]
    old = facts.version is not None and facts.version < (0, 8)
    if facts.multimodal:
        recommend = [
            flag_change(SEQUENCES, "decrease", "the profile run builds dummy items for that many sequences")
            if facts.given("limit_mm_per_prompt") is None
            else flag_change(
                "--limit-mm-per-prompt",
                "decrease",
                "the profile run encodes that many of the largest items at once",
            ),
            flag_change(
                "--limit-mm-per-prompt", "set", "the profile run encodes only as many items as are allowed"
            )
            if facts.given("limit_mm_per_prompt") is None
            else flag_change(
                SEQUENCES, "decrease", "the profile run builds dummy items for that many sequences"
            ),
            flag_change(
                "--mm-processor-kwargs",
                "set",
                "smaller images give the encoder fewer tokens",
                '{"max_pixels": …}',
            ),
            flag_change(BATCH_TOKENS, "decrease", "the profile run is made with that many tokens"),
        ]
        explanation = "The profile run encodes the largest images or videos that the settings allow, all at once, and that did not fit."
    else:
        recommend = [
            flag_change(BATCH_TOKENS, "decrease", "the profile run is made with that many tokens"),
            flag_change(SEQUENCES, "decrease", "the profile run samples for that many sequences"),
            flag_change(
                TENSOR_PARALLEL,
                "increase",
                "weights and activations are shared by more ranks",
                next_parallel(facts),
            ),
        ]
        if old or facts.setting("enable_chunked_prefill") in (False, "false", "False"):
            recommend.insert(
                1,
                flag_change(
                    MODEL_LEN,
                    "decrease",
                    "without chunked prefill the profile run is made with a whole sequence",
                ),
            )
        explanation = "The profile run computes one batch of max_num_batched_tokens, and its activations did not fit beside the weights."
    recommend.append(flag_change(EAGER, "add", "compilation and graphs need memory of their own"))
    return Advice(explanation, STEP_GPU_NO_HELP, recommend, rejected, [])


# -- GPU: serving -----------------------------------------------------------------------------------------------------


def serving_gpu_oom(facts, judged):
    numbers = judged.verdict.numbers or {}
    tried, free = numbers.get("tried"), numbers.get("free")
    seen = (
        f" {show_bytes(tried)} were asked for and {show_bytes(free)} were free."
        if tried and free is not None
        else ""
    )
    recommend = [
        flag_change(
            BATCH_TOKENS, "decrease", "it bounds what one step computes, logits and adapters included"
        ),
        lower_utilization(
            facts, "it leaves more memory outside the KV cache for what the profile run did not see"
        ),
        action(
            "limit_requests",
            "requests with prompt log-probabilities, adapters or large inputs need memory beyond the profile",
        ),
    ]
    if facts.setting("enable_chunked_prefill") in (False, "false", "False") or (
        facts.version and facts.version < (0, 8, 1)
    ):
        recommend.append(
            flag_change("--enable-chunked-prefill", "add", "long prompts are then computed in pieces")
        )
    return Advice(
        f"The engine ran out of GPU memory while serving: a step needed more than the profile run had seen.{seen} A full KV cache "
        "never does this: vLLM then queues or preempts.",
        STEP_GPU,
        recommend,
        [
            NOT_UTILIZATION_UP,
            flag_change(
                MODEL_LEN, "decrease", "the peak belongs to one step, not to the length of a sequence"
            ),
            env_change("NCCL_BUFFSIZE", "set", "a collective is only where the allocation happened to fail"),
            NOT_LIMIT_GPU,
            *rejected_expandable(facts, judged),
        ],
        [],
    )


def serving_gpu_growth(facts, judged):
    return Advice(
        "GPU memory outside the KV cache budget grew with the requests (encoder activations, caching allocator) until one "
        "request did not fit.",
        STEP_GPU,
        [
            lower_utilization(facts, "it leaves more memory for what grows", step=0.1),
            action("upgrade", "later versions include the encoder in the profile and free its caches"),
            flag_change(
                "--mm-processor-kwargs", "set", "smaller images need less in the encoder", '{"max_pixels": …}'
            ),
        ],
        [
            NOT_UTILIZATION_UP,
            flag_change(EAGER, "add", "the growth is not in the graphs"),
            flag_change(
                "--mm-encoder-tp-mode", "remove", "the growth does not depend on how the encoder is split"
            ),
            flag_change(MODEL_LEN, "decrease", "the growth is not in the KV cache"),
        ],
        ["GPU memory over time (DCGM_FI_DEV_FB_USED or nvidia-smi): does it rise with the requests?"],
    )


def gpu_fragmentation(facts, judged):
    numbers = judged.verdict.numbers or {}
    view = ""
    if facts.unified and numbers.get("total"):
        view = f" The driver shows {show_bytes(numbers['total'])} in all."
    recommend = [
        env_change(
            allocator_variable(facts),
            "set",
            "segments that grow can use the pieces",
            "expandable_segments:True",
            proof="log",
        ),
        lower_utilization(facts, "it leaves more memory outside the KV cache", step=0.1),
    ]
    rejected = [flag_change(UTILIZATION, "increase", "more memory for the KV cache does not join the pieces")]
    if facts.unified:
        recommend.append(
            action("check_memory_view", "see whether the driver exposes all the memory it was configured for")
        )
    if facts.sleep_mode:
        recommend = recommend[1:]
        rejected += rejected_expandable(facts, judged)
    return Advice(
        f"{show_bytes(numbers.get('reserved'))} of GPU memory were reserved but in pieces too small for the "
        f"{show_bytes(numbers.get('tried'))} that were asked for.{view}",
        STEP_GPU,
        recommend,
        rejected,
        [],
    )


def sleep_wakeup_oom(facts, judged):
    return Advice(
        "A sleeping engine gave its GPU memory back; when it woke up, somebody else had taken it.",
        STEP_GPU,
        [
            action("free_gpu", "the other tenant must release its memory before the engine wakes up"),
            lower_utilization(facts, "a smaller engine needs less when it wakes up"),
        ],
        [
            flag_change(MODEL_LEN, "decrease", "the size of the KV cache follows the utilization"),
            env_change(
                allocator_variable(facts),
                "set",
                "it is not compatible with the sleep-mode allocator",
                "expandable_segments:True",
            ),
        ],
        ["nvidia-smi on the node just before the wake-up: who holds the GPU?"],
    )


# -- GPU: slices, other accelerators, libraries -----------------------------------------------------------------------


def mig_vgpu_config(facts, judged):
    if judged.match and judged.match.signature.id == "mig_uuid_parsed":
        return Advice(
            "CUDA_VISIBLE_DEVICES holds a MIG identifier where this version expects a number; in a container the slice is device 0.",
            STEP_EXIT_1,
            [
                env_change("CUDA_VISIBLE_DEVICES", "set", "inside the container the slice is device 0", "0"),
                action("upgrade", "newer versions accept identifiers"),
            ],
            [NOT_UTILIZATION, action("larger_gpu", "the identifier was not understood; nothing ran out")],
            [],
        )
    return Advice(
        "On a MIG slice vLLM cannot read the device, and takes the batch defaults of the smallest GPUs. Nothing is short; "
        "throughput is lower than it could be.",
        "raise --max-num-batched-tokens and --max-num-seqs where memory allows",
        [
            flag_change(BATCH_TOKENS, "set", "the default was chosen without knowing the device"),
            flag_change(SEQUENCES, "set", "the default was chosen without knowing the device"),
        ],
        [action("larger_gpu", "memory is not short")],
        [],
    )


def cuda_library_alloc(facts, judged):
    clear = judged.match and judged.match.signature.id == "cublas_alloc"
    if clear:
        return Advice(
            "A CUDA library could not allocate its workspace, which it takes outside the budget: the card was (nearly) full.",
            STEP_GPU,
            [
                action(
                    "free_gpu", "another process, or a partition smaller than believed, is the usual reason"
                ),
                lower_utilization(facts, "the library allocates outside the budget"),
            ],
            [NOT_UTILIZATION_UP, action("upgrade_driver", "a full card is the usual reason")],
            ["nvidia-smi on the node at that moment: how much was free, and who held the rest?"],
        )
    rejected = [action("upgrade_driver", "first see whether the card was full")]
    recommend = [
        action("read_gpu_memory", "the message carries no size: a full card and a real fault print the same")
    ]
    if facts.given("mm_device_do_normalize") is not None or facts.multimodal:
        recommend.append(
            flag_change(
                "--mm-device-do-normalize",
                "remove",
                "images are then prepared on the host, without this library call",
            )
        )
    recommend.append(lower_utilization(facts, "only if the card was full"))
    return Advice(
        "A CUDA library reported an internal error. It prints the same when it cannot allocate or load its kernels on a full card "
        "and for real faults, so this alone does not say that memory ran out.",
        STEP_EXIT_1,
        recommend,
        rejected,
        [
            "free GPU memory at that moment (nvidia-smi, DCGM)",
            "does the same request fail on a freshly started engine?",
        ],
    )


def accelerator_hbm_oom(facts, judged):
    smaller = [
        flag_change(TENSOR_PARALLEL, "increase", "more chips share the weights", next_parallel(facts)),
        action("smaller_quantization", "smaller weights leave room"),
        action("smaller_model", "the weights need a smaller model"),
    ]
    rejected = [
        flag_change(UTILIZATION, "increase", "programs need memory outside it"),
        action("restart_pod", "trying again is luck"),
        NOT_LIMIT_GPU,
    ]
    if judged.verdict.phase == "load":
        return Advice(
            "The accelerator's memory was full before the model was loaded: only the size of the weights on each chip matters.",
            STEP_GPU,
            smaller,
            [*rejected, flag_change(UTILIZATION, "decrease", "it does not limit or free memory for weights")],
            [],
        )
    return Advice(
        "The accelerator's memory was exhausted: compiled programs, graphs and activations need room outside the KV cache's share.",
        STEP_GPU,
        [
            flag_change(
                UTILIZATION, "decrease", "programs and graphs are loaded outside the KV cache's share"
            ),
            flag_change(
                SEQUENCES, "decrease", "fewer sequences need smaller programs, graphs and activations"
            ),
            flag_change(BATCH_TOKENS, "decrease", "smaller batches need smaller programs and activations"),
            *smaller,
        ],
        rejected,
        [],
    )


def unified(facts, judged):
    lower = lower_utilization(
        facts, "GPU and host share this memory, so the share must leave room for the host", step=0.1
    )
    if judged.match and judged.match.signature.id == "free_below_desired":
        groups = groups_of(judged)
        free, total = number_of(groups, "free"), number_of(groups, "total")
        value = math.floor(free / total * 100) / 100 - 0.01 if free and total else None
        lower = flag_change(
            UTILIZATION,
            "decrease",
            "it must be below free / total of the shared memory",
            round(value, 2) if value else None,
            proof="arithmetic" if value else "rule",
        )
    if judged.match and judged.match.signature.family == "driver_oom" and judged.verdict.phase == "load":
        return Advice(
            "GPU and host share one memory here, and the host had none left for the driver when the engine came up: page cache "
            "counts as used there.",
            STEP_GPU,
            [
                *_drop_page_cache(facts),
                action("upgrade_driver", "newer drivers and vLLM count reclaimable memory as available"),
                action("free_gpu", "other processes of the host take from the same memory"),
            ],
            [
                flag_change(UTILIZATION, "decrease", "the engine had not come to its own budget"),
                k8s_change(MEMORY_LIMIT, "increase", "GPU memory is not charged to the container"),
            ],
            ["free -h on the node: available against free"],
        )
    return Advice(
        "GPU and host share one memory here. What the GPU takes appears neither in the container's memory counters nor reliably in "
        "MemAvailable, and page cache counts against what is free.",
        STEP_GPU,
        [
            lower,
            *(
                _drop_page_cache(facts)
                if judged.match and judged.match.signature.id == "free_below_desired"
                else []
            ),
            flag_change(
                "--speculative-config", "decrease", "a smaller drafter takes less of the shared memory"
            )
            if facts.given("speculative_config") is not None
            else flag_change(SEQUENCES, "decrease", "fewer sequences need less of the shared memory"),
            flag_change(graph_sizes_flag(facts), "decrease", "fewer and smaller graphs need less memory"),
            action("read_kernel_log", "the driver's own line (NV_ERR_NO_MEMORY) is the reliable sign"),
        ],
        [
            k8s_change(MEMORY_LIMIT, "increase", "GPU memory is not charged to the container"),
            action("no_change", "MemAvailable looks free until it collapses"),
        ],
        [],
    )


def false_oom_driver(facts, judged):
    one_device = action(
        "fix_gpu_visibility",
        "show the container one device only and try again (ZE_AFFINITY_MASK, CUDA_VISIBLE_DEVICES)",
    )
    before = action("change_version", "go back to the image or driver before the regression")
    driver = action("upgrade_driver", "the driver or the framework build is what refuses")
    reset = action("reset_gpu", "a driver in a bad state refuses everything until the GPU is reset")
    if facts.accelerator == "xpu":
        recommend = [
            env_change("ZE_AFFINITY_MASK", "set", "one device avoids the refusing path", "0"),
            one_device,
            before,
            driver,
        ]
    else:
        recommend = [driver, reset, one_device, before]
    return Advice(
        "The allocation was refused although far more memory was free than it asked for: the driver or its limit, not the card, "
        "said no.",
        STEP_EXIT_1,
        recommend,
        [
            flag_change(UTILIZATION, "decrease", "the card is not full"),
            action("smaller_model", "the card is not full"),
        ],
        [
            "does a one-element tensor on the same device fail too?",
            "is an MPS or vGPU memory limit in force?",
        ],
    )
