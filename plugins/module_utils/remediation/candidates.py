# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a finding's mechanism allows to change, with computed values: from the budget, from the log, or by rule.

The diagnosis says which changes are right for a cause; the budget says how large they must be and which of them suffice.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..diagnosis.budgeted import BESIDE, WITHIN
from ..diagnosis.torch_oom import parse_oom
from ..documents import change
from ..quantities import GIB, show_bytes
from . import costs, host_memory
from .counterfactual import of_row
from .host_memory import LIMIT, REQUEST, SHM
from .steps import Step, before_of
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
# What makes weights on a GPU smaller; where they don't fit, nothing else helps.
_OF_WEIGHTS = frozenset(
    (
        *("--tensor-parallel-size", "--pipeline-parallel-size", "--quantization", "--cpu-offload-gb"),
        *("smaller_quantization", "--speculative-config", "--language-model-only"),
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
# Phases that an engine reaches only with a KV cache.
_WITH_CACHE = ("graph_capture", "warmup", "serving", "shutdown")
_EAGER, _OFFLOAD, _BACKEND = "--enforce-eager", "--cpu-offload-gb", "--distributed-executor-backend"
_ANSWERED = re.compile(r"statuscode: (4\d\d)")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Causes whose memory limit is raised for /dev/shm's sake only.
_SHM_CAUSES = ("shm_exhausted", "shm_small")
_PROVED = ("budget", "arithmetic", "log")
_RANKS = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
}
# What the budget says of a length, which isn't known of another one.
_OF_LENGTH = ("need_bytes", "estimated_max_len", "max_concurrency")
_OPPOSITE = {"increase": "decrease", "decrease": "increase", "add": "remove", "remove": "add"}


class Candidates(NamedTuple):
    """steps: what may be planned, in order; considered: ``[(CHANGE, why)]`` of what isn't."""

    steps: list
    considered: list


def candidates(finding, entry, pod, container, room):
    """The Candidates of one finding.

    entry: of the budget, of the finding's attempt, or None; pod, container: of the evidence; room: ``host_memory.Room``.
    """
    if finding["confidence"] == "possible":
        settle = "; ".join(finding["would_settle"]) or "nothing proves it yet"
        left = [(item, f"the cause is only possible: {settle}") for item in finding["recommend"]]
        return Candidates([], left)
    found = _Candidates(finding, entry, pod, container, room)
    return Candidates(found.steps(), found.considered)


class _Candidates:
    """The search for one finding."""

    def __init__(self, finding, entry, pod, container, room):
        self.finding, self.entry, self.pod, self.container = finding, entry, pod, container
        self.room = room
        self.cause = finding["cause"]
        self.contradicted = _contradicted(finding, entry)
        # What the GPU's part of the budget says, where the attempt doesn't contradict it.
        self.sized: Any = None if self.contradicted else entry
        self.considered: list = []
        self.numbers = _torch_numbers(finding)

    def steps(self):
        found = self._menu()
        names = {_key(row) for step in found for row in step.rows}
        refused = {_key(item) for item, _why in self.considered}
        limit = self._limit(names)
        for item in self.finding["recommend"]:
            if _key(item) in names or _key(item) in refused or _replaced(item, names):
                continue
            if item["name"] in (LIMIT, REQUEST) and self.cause != "memory_ratio":
                found += limit
                limit = []
                continue
            step = self._step(item)
            if step is not None:
                found.append(step)
        return sorted(found, key=_order)

    # --- the budget's menu ---

    def _menu(self):
        rows = (self.sized or {}).get("changes") or []
        whole = self.cause in WITHIN or self.cause in BESIDE
        wrong = {_key(item) for item in self.finding["rejected"]}
        wanted = {_key(item) for item in self.finding["recommend"]}
        # What the log itself gives for a shortage beside the budget is better than what the budget models.
        logged = (
            {_key(item) for item in self.finding["recommend"] if item["proof"] == "log"}
            if self.cause in BESIDE
            else set()
        )
        steps: list = []
        taken: set = set()
        for row in rows:
            if _key(row) in taken | logged or not (whole or _key(row) in wanted):
                continue
            if not row["helps"] or not self._for_cause(row, wrong):
                too_little = self._too_little(row)
                # The numbers of the attempt give a utilization that is low enough.
                later = too_little and (row["name"], row["direction"]) == (UTILIZATION, "decrease")
                if _key(row) not in wrong and not (later and _key(row) in wanted):
                    self.considered.append((row, too_little or row["why"]))
                continue
            if self._spans([row]) or self._is_too_slow(row):
                continue
            pair = [other for other in rows if _are_pair(row, other)]
            beside = self._room_beside(row, rows)
            if beside is None:
                continue
            together = [self._as_logged(row), *pair, *beside]
            completed = self._complete(together)
            if completed is None:
                continue
            taken.update(_key(item) for item in together)
            dearest = max((costs.taken(item) for item in together), key=costs.rank)
            proof, after = of_row(self.sized, row, self.cause), row["after"]
            if together[0] is not row:
                proof, after = None, dict(after, **dict.fromkeys(_OF_LENGTH))
            elif beside:
                proof += "; without CUDA graphs nothing more is needed beside the budget"
            steps.append(
                Step(completed, dearest, proof or self._why(together[0]), before_of(self.sized), after)
            )
        return steps

    def _as_logged(self, row):
        """The row with the value that the diagnosis has from the log itself, where that is the stricter one."""
        for item in self.finding["recommend"]:
            if _key(item) == _key(row) and row["direction"] == "decrease" and self.cause in WITHIN:
                values = (item["value"], row["value"])
                if all(_is_number(value) for value in values) and values[0] < values[1]:
                    return dict(row, value=item["value"], why=item["why"], proof="log")
        return row

    def _is_too_slow(self, row):
        """Whether most of the weights would cross the bus in each step."""
        weights = next((part["bytes"] for part in self.sized["segments"] if part["name"] == "weights"), None)
        slow = row["name"] == _OFFLOAD and weights is not None and row["value"] * GIB > weights / 2
        if slow:
            self._consider([row], "more than half of the weights would cross the bus in each step")
        return slow

    def _room_beside(self, row, rows):
        """What a row needs so that graphs can be captured beside the budget: nothing, or that none are; None where neither
        is enough."""
        lacking = self._lacking(row)
        if lacking <= 0:
            return []
        margin = (self.sized.get("outside") or {}).get("margin")
        eager = next((item for item in rows if (item["name"], item["direction"]) == (_EAGER, "add")), None)
        if (
            eager is not None
            and eager is not row
            and margin is not None
            and row["after"]["outside"] >= margin
            and (eager["after"]["outside"] or 0) > 0
        ):
            return [eager]
        why = f"the KV cache would be large enough, and {show_bytes(lacking)} would be missing beside the budget"
        self.considered.append((row, f"{why}: it would end while graphs are captured"))
        return None

    def _lacking(self, row):
        """Bytes that are surely missing beside the budget with a change; none where the log shows that graphs were captured."""
        outside, after = self.sized.get("outside"), row["after"].get("outside")
        captured = any(
            part["name"] == "graph" and part["proof"] == "measured"
            for part in self.sized.get("segments") or []
        )
        if after is None or captured:
            return 0
        return -after - ((outside or {}).get("error_bytes") or 0)

    def _for_cause(self, row, wrong):
        """Whether a change that helps the budget helps this cause: beside the budget it must make room there."""
        if self.cause in WITHIN and (row["name"], row["direction"]) == (UTILIZATION, "decrease"):
            return False
        if self.cause == "gpu_weights_oom":
            return row["name"] in _OF_WEIGHTS
        if self.cause not in BESIDE:
            return True
        if _key(row) in wrong:
            return False
        if self.cause == "gpu_free_below_util":
            return (self.sized["capacity"] or {}).get("free_check") is False
        gained = self._gained(row)
        return gained is not None and gained > 0 and self._too_little(row) is None

    def _gained(self, row):
        """Bytes that a row leaves beside the budget more than there are, or None."""
        margin, after = (self.sized.get("outside") or {}).get("margin"), row["after"].get("outside")
        return None if margin is None or after is None else after - margin

    def _too_little(self, row):
        """The sentence on a row that makes less room beside the budget than this attempt lacked, or None."""
        tried, free = self.numbers.get("tried"), self.numbers.get("free")
        gained = self._gained(row) if self.cause in BESIDE and row["helps"] else None
        if tried is None or free is None or gained is None or not 0 < gained < tried - free:
            return None
        return f"it leaves {show_bytes(gained)} more beside the budget, and {show_bytes(tried - free)} were missing"

    def _spans(self, rows):
        """Whether ranks of an engine of several pods would change: its size is one of the group, not of a pod."""
        spans = self.pod.get("group") is not None and rows[0]["name"] in _RANKS
        if spans:
            self._consider(rows, f"the engine spans the pods of {self.pod['group']}: its size is set there")
        return spans

    def _complete(self, rows):
        """The rows with what else must change: GPUs for ranks, host memory for what moves to the host; None where it isn't
        known what the container's GPUs are counted by."""
        found = list(rows)
        for row in rows:
            if row["name"] in _RANKS:
                count, resource = self._gpus_for(row), costs.gpu_resource(self.container)
                if resource is None:
                    self._consider(
                        rows, "it isn't known by which resource the container gets its accelerators"
                    )
                    return None
                text = f"one GPU for each of {count} ranks"
                name = f"resources.limits.{resource}"
                found.append(change("k8s", name, "increase", str(count), text, "arithmetic"))
            if row["name"] == _OFFLOAD:
                ranks = (self.entry.get("ranks") or {}).get("count") or 1
                found += host_memory.offloaded(self.entry, int(row["value"] * GIB * ranks), self.room)
        return tuple(found)

    def _gpus_for(self, row):
        used = (self.entry or {}).get("settings") or {}
        sizes = {name: used.get(name) or 1 for name in _RANKS.values()}
        sizes[_RANKS[row["name"]]] = row["value"]
        return (
            sizes["tensor_parallel_size"]
            * sizes["pipeline_parallel_size"]
            * (used.get("data_parallel_size") or 1)
        )

    def _limit(self, names):
        """The step of the memory limit, in a list, where the diagnosis asks for one that isn't there yet."""
        wanted = [item for item in self.finding["recommend"] if item["name"] in (LIMIT, REQUEST)]
        if not wanted or _key(wanted[0]) in names:
            return []
        if self.cause in _SHM_CAUSES and any(item["name"] in SHM for item in self.finding["recommend"]):
            # It goes with the volume, as far as that needs it.
            return []
        if self.cause == "ray_memory_monitor" and not self._has_limit():
            self._consider(
                wanted, "without a limit Ray counts the node's memory: with one it would only kill earlier"
            )
            return []
        found = host_memory.limit(self.entry, self.container, self.finding, self.room)
        if isinstance(found, str):
            self._consider(wanted, found)
            return []
        return [found]

    def _has_limit(self):
        limits = ((self.container or {}).get("resources") or {}).get("limits") or {}
        return limits.get("memory") is not None

    # --- what the diagnosis recommends ---

    def _step(self, item):
        computed = self._computed(item)
        if isinstance(computed, str):
            self._consider([item], computed)
            return None
        if computed is not None:
            return computed
        # How far the request may be from the limit is a rule of its own.
        if item["name"] in _SIZES and item["proof"] not in _PROVED and self.cause != "memory_ratio":
            self._consider([item], self._unproved())
            return None
        if item["name"] in _SIZES and item["value"] is None and item["direction"] != "remove":
            self._consider([item], "nothing says how much")
            return None
        follows = (LIMIT,) if item["name"] in SHM else ()
        missing = [name for name in item["with"] if name in _SIZES and name not in follows]
        if missing:
            self._consider(
                [item], f"alone it isn't enough, and nothing says how much {missing[0]} must change"
            )
            return None
        if item["name"] in _RANKS:
            completed = None if self._spans([item]) else self._complete([item])
            return None if completed is None else Step(completed, "hardware")
        if item["name"] in SHM:
            rows = (item, *host_memory.for_shm(item, self.entry, self.container, self.room))
            return Step(rows, costs.taken(item), self._why(item))
        trial = item["name"] in _OBSERVING or (self.cause in _TRIED and item["target"] in ("flag", "env"))
        trial = trial or (self.cause, item["name"]) in _TRIED_FLAGS
        wrong = self._is_wrong_here(item)
        if wrong and not trial:
            self._consider([item], wrong)
            return None
        return Step((item,), costs.taken(item), self._why(item), trial=trial)

    def _is_wrong_here(self, item):
        """Why a change that is right for the cause can't work for this pod, or None."""
        if item["name"] == _BACKEND and self.pod.get("group") is not None:
            return f"the engine spans the pods of {self.pod['group']}, which Ray brings together"
        if item["name"] == "startupProbe":
            code = self._answered()
            if code:
                return f"the probe was answered with {code}: the server was up, and the probe's path or port is wrong"
        model = ((self.container or {}).get("settings") or {}).get("model") or {}
        if item["name"] == "--load-format" and "://" in str(model.get("value")):
            return "the weights are read from a URL, which needs the loader that is set"
        return None

    def _answered(self):
        """The status that a server which was up gave each probe that failed, or None."""
        failed = [event["message"] or "" for event in self.pod.get("events") or []]
        found = [_ANSWERED.search(message) for message in failed if " probe failed: " in message]
        codes = [match.group(1) for match in found if match]
        return codes[0] if codes and len(codes) == len(found) else None

    def _why(self, item):
        return f"{item['why']} (by {item['proof']})" if item["proof"] in _PROVED else None

    def _unproved(self):
        if self.contradicted:
            return self.contradicted
        if self.entry is None:
            return "a size needs a budget, and none was given for this attempt"
        known = "; ".join(self.entry["undetermined"][:1])
        return "the budget doesn't prove it" + (f": not known is {known}" if known else "")

    def _consider(self, items, why):
        self.considered += [(item, why) for item in items]

    def _computed(self, item):
        """The step with a value that this attempt's numbers give, the reason (str) why there is none, or None."""
        asked = (item["name"], item["direction"])
        if asked == (UTILIZATION, "decrease") and self.cause in BESIDE:
            return lower_utilization(item, self.sized, self.numbers)
        if asked == (BATCH_TOKENS, "decrease") and self.cause == "profile_run_oom":
            return fewer_tokens(item, self.sized, self.numbers)
        devices = costs.gpus_of(self.container)
        if item["name"] == _VISIBLE and item["value"] == "0" and devices > 1:
            row = dict(item, value=",".join(str(index) for index in range(devices)))
            return Step((row,), costs.taken(item), self._why(item))
        return None


def _contradicted(finding, entry):
    """The sentence on a budget by which the engine could not have come as far as it did, or None."""
    need = ((entry or {}).get("kv") or {}).get("need_bytes")
    if finding["phase"] not in _WITH_CACHE or need is None or entry.get("available_kv") is None:
        return None
    most = entry["available_kv"] + (entry.get("available_kv_error") or 0)
    if most >= need:
        return None
    return (
        f"by the budget the KV cache would have {show_bytes(max(most, 0))} and need {show_bytes(need)}, yet the engine came further: "
        "its settings aren't known well enough to size a change"
    )


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _key(item):
    return (item["target"], item["name"].lstrip("-").replace("-", "_"), item["direction"])


def _replaced(item, names):
    """Whether a change of the same thing in the same sense is among ``names`` (keys)."""
    target, name, direction = _key(item)
    return any((target, name) == other[:2] and other[2] != _OPPOSITE.get(direction) for other in names)


def _are_pair(row, other):
    return row is not other and other["name"] in row["with"] and row["name"] in other["with"]


def _order(step):
    """Singles before pairs, the cheapest first; hardware and what a person does last."""
    by_person = step.trial or any(row["target"] == "action" for row in step.rows)
    # Offloaded weights cross the bus in each step: only where nothing else but hardware helps.
    last = any(row["name"] == _OFFLOAD for row in step.rows)
    hardware = 2 if step.costs == "hardware" else int(last)
    changed = [row for row in step.rows if row["target"] in ("flag", "env")]
    return (by_person, hardware, len(changed) > 1, costs.rank(step.costs))


def _torch_numbers(finding):
    for shown in finding["evidence"]:
        numbers = parse_oom(shown.get("text") or "")
        if numbers and numbers.get("tried") is not None:
            return numbers
    return {}
