# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ceilings, floors and permissions: what a plan may raise and what it may take from users (design, rule 8).

None is given by default. A sentence that refuses names the variable that would allow it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import DocumentError
from ..quantities import quantity_bytes, show_bytes, to_gi
from .costs import RANKS, gives

# Permission -> what it lets a change take.
PERMISSIONS = {
    "eager": "decoding without CUDA graphs, or with a few of them, is slower",
    "quantization": "the weights lose precision",
    "kv_cache_dtype": "the KV cache loses precision",
    "cpu_offload": "each step waits for weights that cross the bus from host memory",
    "prefix_caching": "requests with a common beginning compute it anew",
    "speculative_decoding": "decoding is slower without the draft model",
    "modalities": "requests with images, video or audio are refused or may hold fewer of them",
    "lora": "fewer LoRA adapters are served at once",
    "sleep_mode": "the engine can't be put to sleep",
    "restart_of_serving": "replicas that serve now are started anew",
    "risks": "what didn't cause the failure is changed too, as far as it costs nothing",
}
# Flag or variable -> the permission that a change of it needs.
_NEEDED = {
    "--enforce-eager": "eager",
    "--cudagraph-capture-sizes": "eager",
    "--cuda-graph-sizes": "eager",
    "--max-seq-len-to-capture": "eager",
    "--quantization": "quantization",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--cpu-offload-gb": "cpu_offload",
    "VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY": "cpu_offload",
    "--no-enable-prefix-caching": "prefix_caching",
    "--speculative-config": "speculative_decoding",
    "--language-model-only": "modalities",
    "--limit-mm-per-prompt": "modalities",
    "--max-loras": "lora",
    "--enable-sleep-mode": "sleep_mode",
}
# What a sentence that a limit would answer holds.
_VARIABLE = "(vllm_oom_"
_NAMES = ("max_memory", "max_gpus", "min_model_len", "min_concurrency", "allow", "apply")


def limits_of(given):
    """``given`` (a dict, any key may be missing; None: nothing is allowed) with every key, as the plan document shows it.

    max_memory: Kubernetes quantity, a container's memory limit at most; max_gpus: of one pod at most; min_model_len:
    tokens; min_concurrency: requests at once, of full length where the KV cache decides; allow: of PERMISSIONS; apply:
    whether anything may be written. Raises DocumentError for what isn't any of these.
    """
    if given is not None and not isinstance(given, dict):
        raise DocumentError(f"the limits of a plan are a dictionary, not {type(given).__name__}")
    given = given or {}
    unknown = sorted(str(name) for name in given if name not in _NAMES)
    if unknown:
        raise DocumentError(f"unknown limit {unknown[0]!r}: the limits of a plan are {', '.join(_NAMES)}")
    allow = given.get("allow")
    if allow is not None and not isinstance(allow, (list, tuple)):
        raise DocumentError(f"the limit 'allow' is a list such as [eager], not {allow!r}")
    for word in allow or ():
        if word not in PERMISSIONS:
            raise DocumentError(f"unknown permission {word!r} in 'allow': it takes {', '.join(PERMISSIONS)}")
    memory = given.get("max_memory")
    if memory is not None and not (quantity_bytes(memory) or 0) > 0:
        raise DocumentError(f"the limit 'max_memory' is a Kubernetes quantity such as 96Gi, not {memory!r}")
    if given.get("apply") not in (None, True, False):
        raise DocumentError(f"the limit 'apply' is true or false, not {given['apply']!r}")
    return {
        "max_memory": None if memory is None else str(memory),
        "max_gpus": _whole(given, "max_gpus"),
        "min_model_len": _whole(given, "min_model_len"),
        "min_concurrency": _positive(given, "min_concurrency"),
        "allow": sorted(set(allow or ())),
        "apply": bool(given.get("apply")),
    }


def _whole(given, name):
    value = given.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise DocumentError(f"the limit {name!r} is a whole number from 1 on, not {value!r}")
    return value


def _positive(given, name):
    value = given.get(name)
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
    ):
        raise DocumentError(f"the limit {name!r} is a number above 0, not {value!r}")
    return value


def names_a_limit(sentence):
    """Whether a sentence that refuses names the variable that would allow it; other obstacles a limit doesn't remove."""
    return _VARIABLE in sentence


def refusals(operation, limits, costs, after=None, gpus=None):
    """Sentences, one for each limit that ``operation`` needs and that isn't given; empty where it is allowed.

    operation: a CHANGE with ``action``, ``before``, ``after``, and of memory ``least`` (see ``host_memory``); costs: of
    ``sizing.fit.COSTS``; after: the budget with it (``max_concurrency``), or None; gpus: those of one pod with it, None
    where it has them already.
    """
    name, value = operation["name"], operation["after"]
    if name in ("resources.limits.memory", "resources.requests.memory"):
        return _memory(operation, limits)
    if name in RANKS:
        return [] if gpus is None else _gpus(gpus, limits)
    if name == "--max-model-len" and operation["direction"] == "decrease":
        return _length(value, limits)
    permission = _NEEDED.get(name)
    if permission and not gives(operation):
        return _permission(permission, limits)
    if name == "--max-num-seqs" and operation["direction"] == "decrease":
        return _concurrency(value, limits, "max_num_seqs")
    if costs == "concurrency":
        return _concurrency((after or {}).get("max_concurrency"), limits, "requests of full length at once")
    return []


def _memory(operation, limits):
    new, old = quantity_bytes(operation["after"]), quantity_bytes(operation["before"])
    if new is None or (old is not None and new <= old):
        return []
    least = operation.get("least")
    smaller = to_gi(least) if least is not None and to_gi(least) != to_gi(new) else None
    ceiling = quantity_bytes(limits["max_memory"])
    if ceiling is None:
        enough = f"{to_gi(new)}, or {smaller} at least" if smaller else f"{to_gi(new)} or more"
        return [
            f"it raises {operation['name']} to {operation['after']}: give max_memory (vllm_oom_max_memory), {enough}"
        ]
    if new > ceiling:
        return [
            f"{operation['name']} of {operation['after']} is above max_memory (vllm_oom_max_memory) of {limits['max_memory']} "
            f"by {show_bytes(new - ceiling)}{f': give {smaller} at least' if smaller else ''}"
        ]
    return []


def _gpus(count, limits):
    ceiling = limits["max_gpus"]
    if ceiling is None:
        return [f"a pod would take {count} GPUs: give max_gpus (vllm_oom_max_gpus), {count} or more"]
    if count > ceiling:
        return [f"a pod would take {count} GPUs, and max_gpus (vllm_oom_max_gpus) is {ceiling}"]
    return []


def _length(value, limits):
    floor = limits["min_model_len"]
    if floor is None:
        return [
            f"requests could have {value} tokens at most: give min_model_len (vllm_oom_min_model_len), {value} or less"
        ]
    if value < floor:
        return [f"a length of {value} tokens is below min_model_len (vllm_oom_min_model_len) of {floor}"]
    return []


def _concurrency(value, limits, what):
    floor = limits["min_concurrency"]
    if value is None:
        return [
            f"how many {what} it leaves isn't known, so no floor can be kept: make it by hand, or give what the budget lacks"
        ]
    shown = f"{value:g}" if isinstance(value, int) else f"{value:.1f}"
    if floor is None:
        return [f"it leaves {shown} {what}: give min_concurrency (vllm_oom_min_concurrency), {shown} or less"]
    if value < floor:
        return [f"it leaves {shown} {what}, below min_concurrency (vllm_oom_min_concurrency) of {floor:g}"]
    return []


def _permission(name, limits):
    if name in limits["allow"]:
        return []
    return [f"{PERMISSIONS[name]}: give allow (vllm_oom_allow) with {name}"]


def restart_refusals(serving, limits):
    """The sentence that refuses to start serving replicas anew, in a list; empty where it is allowed or none serves."""
    if not serving or "restart_of_serving" in limits["allow"]:
        return []
    return [
        f"{serving} serving replica{'s' if serving > 1 else ''} would be started anew: give allow (vllm_oom_allow) with "
        "restart_of_serving"
    ]
