# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a finding's mechanism allows to change, with computed values: from the budget, from the log, or by rule.

The diagnosis says which changes are right for a cause; the budget says how large they must be and which of them suffice.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

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
_TRIED_FLAGS = (("host_oom_growth", "--speculative-config"),)
# Causes whose memory limit is raised for /dev/shm's sake only.
_SHM_CAUSES = ("shm_exhausted", "shm_small")
_PROVED = ("budget", "arithmetic", "log")
_RANKS = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
}
_OPPOSITE = {"increase": "decrease", "decrease": "increase", "add": "remove", "remove": "add"}


class Candidates(NamedTuple):
    """steps: what may be planned, in order; considered: ``[(CHANGE, why)]`` of what isn't."""

    steps: list
    considered: list


def candidates(finding, entry, pod, container):
    """The Candidates of one finding.

    entry: of the budget, of the finding's attempt, or None; pod, container: of the evidence.
    """
    if finding["confidence"] == "possible":
        settle = "; ".join(finding["would_settle"]) or "nothing proves it yet"
        left = [(item, f"the cause is only possible: {settle}") for item in finding["recommend"]]
        return Candidates([], left)
    found = _Candidates(finding, entry, pod, container)
    return Candidates(found.steps(), found.considered)


class _Candidates:
    """The search for one finding."""

    def __init__(self, finding, entry, pod, container):
        self.finding, self.entry, self.pod, self.container = finding, entry, pod, container
        self.cause = finding["cause"]
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
        rows = (self.entry or {}).get("changes") or []
        whole = self.cause in WITHIN or self.cause in BESIDE
        wrong = {_key(item) for item in self.finding["rejected"]}
        wanted = {_key(item) for item in self.finding["recommend"]}
        steps: list = []
        taken: set = set()
        for row in rows:
            if _key(row) in taken or not (whole or _key(row) in wanted):
                continue
            if not row["helps"] or not self._for_cause(row, wrong):
                if _key(row) not in wrong:
                    self.considered.append((row, row["why"]))
                continue
            if self._spans([row]):
                continue
            lacking = self._lacking(row)
            if lacking > 0:
                why = f"the KV cache would be large enough, and {show_bytes(lacking)} would be missing beside the budget"
                self.considered.append((row, f"{why}: it would end while graphs are captured"))
                continue
            pair = [other for other in rows if _are_pair(row, other)]
            together = [row, *pair]
            taken.update(_key(item) for item in together)
            dearest = max((costs.taken(item) for item in together), key=costs.rank)
            proof = of_row(self.entry, row, self.cause)
            steps.append(Step(self._complete(together), dearest, proof, before_of(self.entry), row["after"]))
        return steps

    def _lacking(self, row):
        """Bytes that are surely missing beside the budget with a change; none where the log shows that graphs were captured."""
        outside, after = self.entry.get("outside"), row["after"].get("outside")
        captured = any(
            part["name"] == "graph" and part["proof"] == "measured"
            for part in self.entry.get("segments") or []
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
            return (self.entry["capacity"] or {}).get("free_check") is False
        margin, after = (self.entry.get("outside") or {}).get("margin"), row["after"].get("outside")
        return margin is not None and after is not None and after > margin

    def _spans(self, rows):
        """Whether ranks of an engine of several pods would change: its size is one of the group, not of a pod."""
        spans = self.pod.get("group") is not None and rows[0]["name"] in _RANKS
        if spans:
            self._consider(rows, f"the engine spans the pods of {self.pod['group']}: its size is set there")
        return spans

    def _complete(self, rows):
        """The rows with what else must change: GPUs for ranks, host memory for what moves to the host."""
        found = list(rows)
        for row in rows:
            if row["name"] in _RANKS:
                count = self._gpus_for(row)
                text = f"one GPU for each of {count} ranks"
                name = f"resources.limits.{costs.gpu_resource(self.container)}"
                found.append(change("k8s", name, "increase", str(count), text, "arithmetic"))
            if row["name"] == "--cpu-offload-gb":
                ranks = (self.entry.get("ranks") or {}).get("count") or 1
                found += host_memory.offloaded(self.entry, int(row["value"] * GIB * ranks))
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
        found = host_memory.limit(self.entry, self.pod, self.container, self.finding)
        if isinstance(found, str):
            self._consider(wanted, found)
            return []
        return [found]

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
            return None if self._spans([item]) else Step(self._complete([item]), "hardware")
        if item["name"] in SHM:
            rows = (item, *host_memory.for_shm(item, self.entry, self.container))
            return Step(rows, costs.taken(item), self._why(item))
        trial = item["name"] in _OBSERVING or (self.cause in _TRIED and item["target"] in ("flag", "env"))
        trial = trial or (self.cause, item["name"]) in _TRIED_FLAGS
        return Step((item,), costs.taken(item), self._why(item), trial=trial)

    def _why(self, item):
        return f"{item['why']} (by {item['proof']})" if item["proof"] in _PROVED else None

    def _unproved(self):
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
            return lower_utilization(item, self.entry, self.numbers)
        if asked == (BATCH_TOKENS, "decrease") and self.cause == "profile_run_oom":
            return fewer_tokens(item, self.entry, self.numbers)
        return None


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
    last = any(row["name"] == "--cpu-offload-gb" for row in step.rows)
    hardware = 2 if step.costs == "hardware" else int(last)
    changed = [row for row in step.rows if row["target"] in ("flag", "env")]
    return (by_person, hardware, len(changed) > 1, costs.rank(step.costs))


def _torch_numbers(finding):
    for shown in finding["evidence"]:
        numbers = parse_oom(shown.get("text") or "")
        if numbers and numbers.get("tried") is not None:
            return numbers
    return {}
