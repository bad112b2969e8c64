# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the diagnosis recommends as steps: by the log, by rule, or with a value that the attempt's numbers give.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..diagnosis.budgeted import BESIDE
from . import costs, host_memory
from .cases import PROVED, key_of, proof_of
from .costs import RANKS
from .host_memory import LIMIT, REQUEST, SHM
from .steps import Step
from .values import BATCH_TOKENS, UTILIZATION, fewer_tokens, lower_utilization

# Sizes of GPU or host memory: a rule alone doesn't say whether one of them helps (design, rule 4).
_SIZES = frozenset(
    (
        *(UTILIZATION, BATCH_TOKENS, LIMIT, REQUEST, "--max-model-len", "--max-num-seqs", "--max-loras"),
        *("--tensor-parallel-size", "--pipeline-parallel-size", "--decode-context-parallel-size"),
        *("--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--kv-cache-dtype", "--quantization"),
        *("--cpu-offload-gb", "--swap-space", "--kv-offloading-size", "--mm-processor-cache-gb"),
        *("VLLM_CPU_KVCACHE_SPACE", "LMCACHE_MAX_LOCAL_CPU_SIZE"),
    )
)
# They show more of what happens, and cure nothing.
_OBSERVING = frozenset(("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "CUDA_LAUNCH_BLOCKING", "VLLM_TRACE_FUNCTION"))
# Causes whose settings are tried one after the other to find the fault.
_TRIED = ("not_memory_cuda_fault", "not_memory_hang")
# Changes that show whether a guess is right: which peer, interface or device is at fault, who held the GPU, or what a masked
# message says. None of them is known to cure, and some cost speed.
_TRIED_FLAGS = frozenset(
    (
        ("host_oom_growth", "--speculative-config"),
        ("nccl_not_memory", "NCCL_P2P_DISABLE"),
        ("nccl_not_memory", "--disable-custom-all-reduce"),
        ("nccl_not_memory", "GLOO_SOCKET_IFNAME"),
        ("nccl_not_memory", "NCCL_SOCKET_IFNAME"),
        ("mig_oom_masked", "PYTORCH_CUDA_ALLOC_CONF"),
        ("false_oom_driver", "ZE_AFFINITY_MASK"),
        ("kernel_workspace_overflow", "--enforce-eager"),
        # The profile run captures no graphs.
        ("profile_run_oom", "--enforce-eager"),
        ("gpu_held_by_other", "strategy"),
        # The model then goes to the node's disk, which may not hold it.
        ("not_memory_auth", "HF_HOME"),
    )
)
_BACKEND, _VISIBLE = "--distributed-executor-backend", "CUDA_VISIBLE_DEVICES"
_ANSWERED = re.compile(r"statuscode: (4\d\d)")
# Causes whose memory limit is raised for /dev/shm's sake only.
_SHM_CAUSES = ("shm_exhausted", "shm_small")
_OPPOSITE = {"increase": "decrease", "decrease": "increase", "add": "remove", "remove": "add"}


def recommended_steps(case, names):
    """The steps of what the finding recommends, in a list. names: keys of what the budget's menu changes already."""
    found: list = []
    refused = {key_of(item) for item, _why in case.considered}
    limit = _limit(case, names)
    for item in case.finding["recommend"]:
        if key_of(item) in names or key_of(item) in refused or _replaced(item, names):
            continue
        if item["name"] in (LIMIT, REQUEST) and case.cause != "memory_ratio":
            found += limit
            limit = []
            continue
        step = _step(case, item)
        if step is not None:
            found.append(step)
    return found


def _replaced(item, names):
    """Whether a change of the same thing in the same sense is among ``names`` (keys)."""
    target, name, direction = key_of(item)
    return any((target, name) == other[:2] and other[2] != _OPPOSITE.get(direction) for other in names)


def _limit(case, names):
    """The step of the memory limit, in a list, where the diagnosis asks for one that isn't there yet."""
    wanted = [item for item in case.finding["recommend"] if item["name"] in (LIMIT, REQUEST)]
    if not wanted or key_of(wanted[0]) in names:
        return []
    if case.cause in _SHM_CAUSES and any(item["name"] in SHM for item in case.finding["recommend"]):
        # It goes with the volume, as far as that needs it.
        return []
    if case.cause == "ray_memory_monitor" and not _has_limit(case):
        case.consider(
            wanted, "without a limit Ray counts the node's memory: with one it would only kill earlier"
        )
        return []
    found = host_memory.limit(case.entry, case.container, case.finding, case.room)
    if isinstance(found, str):
        case.consider(wanted, found)
        return []
    return [found]


def _has_limit(case):
    limits = ((case.container or {}).get("resources") or {}).get("limits") or {}
    return limits.get("memory") is not None


def _step(case, item):
    """The Step of a recommended change, or None with the reason considered."""
    computed = _computed(case, item)
    if isinstance(computed, str):
        case.consider([item], computed)
        return None
    if computed is not None:
        return computed
    # How far the request may be from the limit is a rule of its own.
    if item["name"] in _SIZES and item["proof"] not in PROVED and case.cause != "memory_ratio":
        case.consider([item], _unproved(case))
        return None
    if item["name"] in _SIZES and item["value"] is None and item["direction"] != "remove":
        case.consider([item], "nothing says how much")
        return None
    follows = (LIMIT,) if item["name"] in SHM else ()
    missing = [name for name in item["with"] if name in _SIZES and name not in follows]
    if missing:
        case.consider([item], f"alone it isn't enough, and nothing says how much {missing[0]} must change")
        return None
    if item["name"] in RANKS:
        completed = None if case.spans([item]) else case.complete([item])
        return None if completed is None else Step(completed, "hardware")
    if item["name"] in SHM:
        rows = (item, *host_memory.for_shm(item, case.entry, case.container, case.room))
        return Step(rows, costs.taken(item), proof_of(item))
    trial = _is_trial(case, item)
    wrong = _is_wrong_here(case, item)
    if wrong and not trial:
        case.consider([item], wrong)
        return None
    return Step((item,), costs.taken(item), proof_of(item), trial=trial)


def _is_trial(case, item):
    """Whether a change finds out more than it cures."""
    return (
        item["name"] in _OBSERVING
        or (case.cause in _TRIED and item["target"] in ("flag", "env"))
        or (case.cause, item["name"]) in _TRIED_FLAGS
    )


def _computed(case, item):
    """The step with a value that this attempt's numbers give, the reason (str) why there is none, or None."""
    asked = (item["name"], item["direction"])
    if asked == (UTILIZATION, "decrease") and case.cause in BESIDE:
        return lower_utilization(item, case.sized, case.numbers)
    if asked == (BATCH_TOKENS, "decrease") and case.cause == "profile_run_oom":
        return fewer_tokens(item, case.sized, case.numbers)
    devices = costs.gpus_of(case.container)
    if item["name"] == _VISIBLE and item["value"] == "0" and devices > 1:
        row = dict(item, value=",".join(str(index) for index in range(devices)))
        return Step((row,), costs.taken(item), proof_of(item))
    return None


def _is_wrong_here(case, item):
    """Why a change that is right for the cause can't work for this pod, or None."""
    if item["name"] == _BACKEND and case.pod.get("group") is not None:
        return f"the engine spans the pods of {case.pod['group']}, which Ray brings together"
    if item["name"] == "startupProbe":
        code = _answered(case)
        if code:
            return f"the probe was answered with {code}: the server was up, and the probe's path or port is wrong"
    model = ((case.container or {}).get("settings") or {}).get("model") or {}
    if item["name"] == "--load-format" and "://" in str(model.get("value")):
        return "the weights are read from a URL, which needs the loader that is set"
    return None


def _answered(case):
    """The status that a server which was up gave each probe that failed, or None."""
    failed = [event["message"] or "" for event in case.pod.get("events") or []]
    found = [_ANSWERED.search(message) for message in failed if " probe failed: " in message]
    codes = [match.group(1) for match in found if match]
    return codes[0] if codes and len(codes) == len(found) else None


def _unproved(case):
    if case.contradicted:
        return case.contradicted
    if case.entry is None:
        return "a size needs a budget, and none was given for this attempt"
    known = "; ".join(case.entry["undetermined"][:1])
    return "the budget doesn't prove it" + (f": not known is {known}" if known else "")
