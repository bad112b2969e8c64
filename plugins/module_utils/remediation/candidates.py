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
from ..quantities import GIB, quantity_bytes, show_bytes, to_gi
from . import costs
from .counterfactual import of_host, of_row, of_utilization

UTILIZATION = "--gpu-memory-utilization"
BATCH_TOKENS = "--max-num-batched-tokens"
LIMIT, REQUEST = "resources.limits.memory", "resources.requests.memory"
_SHM = ("volumes.shm", "volumes.shm.sizeLimit")
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
_PROVED = ("budget", "arithmetic", "log")
_RANKS = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
}
# Room to leave beside the budget for libraries' workspaces (vllm-memory 7.6).
_WORKSPACES = GIB // 2
_LOWEST = 0.3
_FEWEST_TOKENS = 256
_OPPOSITE = {"increase": "decrease", "decrease": "increase", "add": "remove", "remove": "add"}


class Step(NamedTuple):
    """Changes that go together. rows: CHANGEs; costs: the dearest of what they take; proof: the counterfactual in words;
    before, after: the budget's, as ``after`` of its changes, or None; trial: whether it finds out more than it cures."""

    rows: tuple
    costs: str
    proof: str | None = None
    before: dict | None = None
    after: dict | None = None
    trial: bool = False


class Candidates(NamedTuple):
    """steps: what may be planned, in order; considered: ``[(CHANGE, why)]`` of what isn't; notes: sentences."""

    steps: list
    considered: list
    notes: list


def candidates(finding, entry, pod, container):
    """The Candidates of one finding.

    entry: of the budget, of the finding's attempt, or None; pod, container: of the evidence.
    """
    if finding["confidence"] == "possible":
        settle = "; ".join(finding["would_settle"]) or "nothing proves it yet"
        left = [(item, f"the cause is only possible: {settle}") for item in finding["recommend"]]
        return Candidates([], left, [])
    found = _Candidates(finding, entry, pod, container)
    return Candidates(found.steps(), found.considered, found.notes)


class _Candidates:
    """The search for one finding."""

    def __init__(self, finding, entry, pod, container):
        self.finding, self.entry, self.pod, self.container = finding, entry, pod, container
        self.cause = finding["cause"]
        self.considered: list = []
        self.notes: list = []
        self.numbers = _torch_numbers(finding)

    def steps(self):
        found = self._menu()
        names = {_key(row) for step in found for row in step.rows}
        refused = {_key(item) for item, _why in self.considered}
        limit = self._limit(names)
        for item in self.finding["recommend"]:
            if _key(item) in names or _key(item) in refused or _replaced(item, names):
                continue
            if item["name"] in (LIMIT, REQUEST) and item["target"] == "k8s":
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
        steps, taken = [], set()
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
            if row["helps"] and lacking > 0:
                why = f"the KV cache would be large enough, and {show_bytes(lacking)} would be missing beside the budget"
                self.considered.append((row, f"{why}: it would end while graphs are captured"))
                continue
            pair = [other for other in rows if _are_pair(row, other)]
            together = [row, *pair]
            taken.update(_key(item) for item in together)
            dearest = max((costs.taken(item) for item in together), key=costs.rank)
            proof = of_row(self.entry, row, self.cause)
            steps.append(Step(self._complete(together), dearest, proof, self._before(), row["after"]))
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
                found += self._offload(row)
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

    def _offload(self, row):
        host = (self.entry or {}).get("host") or {}
        limit = host.get("limit")
        if limit is None:
            return []
        ranks = ((self.entry or {}).get("ranks") or {}).get("count") or 1
        moved = int(row["value"] * GIB * ranks)
        text = f"{show_bytes(moved)} of weights move to host memory"
        found = [change("k8s", LIMIT, "increase", to_gi(limit + moved), text, "arithmetic")]
        if host.get("request") is not None:
            found.append(
                change("k8s", REQUEST, "increase", to_gi(host["request"] + moved), text, "arithmetic")
            )
        return found

    def _before(self):
        entry = self.entry or {}
        kv = entry.get("kv") or {}
        return {
            "available_kv": entry.get("available_kv"),
            "fits": entry.get("fits"),
            "need_bytes": kv.get("need_bytes"),
            "estimated_max_len": kv.get("estimated_max_len"),
            "max_concurrency": kv.get("max_concurrency"),
            "outside": (entry.get("outside") or {}).get("margin"),
        }

    # --- the memory limit ---

    def _limit(self, names):
        """Limit and request of the container by the budget's host part: the loader, the table, the measured peak."""
        wanted = [item for item in self.finding["recommend"] if item["name"] in (LIMIT, REQUEST)]
        if not wanted or _key(wanted[0]) in names:
            return []
        if self.finding["cause"] in _SHM_CAUSES and self._shm_fits():
            return []
        host = (self.entry or {}).get("host")
        now = _limit_of(self.container, "limits")
        if not host:
            self._consider(wanted, "a size needs a budget, and none was given for this attempt")
            return []
        if self.container and (self.entry["subject"] or {}).get("container") != self.container["name"]:
            self._consider(wanted, "the budget is of another container")
            return []
        if now is not None and host["limit_bytes"] <= now and self.cause not in ("memory_ratio",):
            self._consider(
                wanted,
                f"by the budget {show_bytes(host['limit_bytes'])} are enough, and the limit is {show_bytes(now)}",
            )
            return []
        return [self._limit_step(host, now)]

    def _limit_step(self, host, now):
        size = max(host["limit_bytes"], now or 0)
        # Equal request and limit make a pod Guaranteed, which it must stay.
        asked = size if self.pod.get("qos") == "Guaranteed" else host["request_bytes"]
        asked = max(asked, min(_limit_of(self.container, "requests") or 0, size))
        why, rows = host["words"], []
        if size != now:
            rows.append(
                change("k8s", LIMIT, "set" if now is None else "increase", to_gi(size), why, "arithmetic")
            )
        if asked != _limit_of(self.container, "requests"):
            rows.append(
                change(
                    "k8s", REQUEST, "set", to_gi(asked), "the request reserves it on the node", "arithmetic"
                )
            )
        before = {"host_limit": now, "host_need": host["need_bytes"], "host_fits": host["fits"]}
        after = dict(before, host_limit=size, host_fits=True)
        return Step(tuple(rows), "nothing", of_host(self.entry, size, now, self.cause), before, after)

    def _shm_fits(self):
        """Whether the limit holds the volume beside what the engine needs, so that it needn't be raised."""
        host, now = (self.entry or {}).get("host"), _limit_of(self.container, "limits")
        sizes = [quantity_bytes(item["value"]) for item in self.finding["recommend"] if item["name"] in _SHM]
        if not host or now is None or not sizes or None in sizes:
            return False
        return now >= host["need_bytes"] + max(sizes)

    # --- what the diagnosis recommends ---

    def _step(self, item):
        computed = self._computed(item)
        if computed is not None:
            return computed if computed.rows else None
        if item["name"] in _SIZES and item["proof"] not in _PROVED:
            self._consider([item], self._unproved())
            return None
        if item["name"] in _SIZES and item["value"] is None and item["direction"] != "remove":
            self._consider([item], "nothing says how much")
            return None
        missing = [name for name in item["with"] if name in _SIZES and not self._with_follows(item, name)]
        if missing:
            self._consider(
                [item], f"alone it isn't enough, and nothing says how much {missing[0]} must change"
            )
            return None
        if item["name"] in _RANKS:
            return None if self._spans([item]) else Step(self._complete([item]), "hardware")
        if item["name"] in _SHM and not self._shm_fits():
            item = dict(item, **{"with": [name for name in item["with"] if name != LIMIT]})
            return Step((item, *self._limit_for_shm(item)), costs.taken(item), self._why(item))
        trial = item["name"] in _OBSERVING or (self.cause in _TRIED and item["target"] in ("flag", "env"))
        return Step((item,), costs.taken(item), self._why(item), trial=trial)

    def _why(self, item):
        return f"{item['why']} (by {item['proof']})" if item["proof"] in _PROVED else None

    def _with_follows(self, item, name):
        return item["name"] in _SHM and name == LIMIT

    def _limit_for_shm(self, item):
        now, size = _limit_of(self.container, "limits"), quantity_bytes(item["value"])
        if now is None or size is None:
            return []
        text = "what is written to /dev/shm counts against the limit"
        return [change("k8s", LIMIT, "increase", to_gi(now + size), text, "arithmetic")]

    def _unproved(self):
        if self.entry is None:
            return "a size needs a budget, and none was given for this attempt"
        known = "; ".join(self.entry["undetermined"][:1])
        return "the budget doesn't prove it" + (f": not known is {known}" if known else "")

    def _consider(self, items, why):
        self.considered += [(item, why) for item in items]

    def _computed(self, item):
        """The step with a value that this attempt's numbers give, or None."""
        if (item["name"], item["direction"]) == (UTILIZATION, "decrease") and self.cause in BESIDE:
            return self._utilization(item)
        if (item["name"], item["direction"]) == (
            BATCH_TOKENS,
            "decrease",
        ) and self.cause == "profile_run_oom":
            return self._batch_tokens(item)
        return None

    def _utilization(self, item):
        """Lower by what was missing and room for workspaces; enough must be left for a request."""
        entry = self.entry or {}
        capacity, kv = entry.get("capacity") or {}, entry.get("kv") or {}
        tried, free = (self.numbers.get(name) for name in ("tried", "free"))
        now, total = capacity.get("utilization"), capacity.get("total") or self.numbers.get("total")
        available, need = entry.get("available_kv"), kv.get("need_bytes")
        if None in (tried, free, now, total, available, need):
            return None
        missing = max(tried - free, 0) + _WORKSPACES
        value = int(round((now - missing / total) * 100, 6)) / 100
        left = int(available - (now - value) * total)
        if value < _LOWEST or left < need:
            self._consider(
                [item],
                f"{show_bytes(missing)} are needed beside the budget, and {show_bytes(max(left, 0))} would remain for a KV cache "
                f"that needs {show_bytes(need)}",
            )
            return Step((), "nothing")
        after = dict(self._before(), available_kv=left, fits=True)
        if kv.get("max_concurrency") and available > 0:
            after["max_concurrency"] = kv["max_concurrency"] * left / available
        if after["outside"] is not None:
            after["outside"] += available - left
        row = dict(item, value=value, proof="arithmetic", **{"with": []})
        proof = of_utilization(self.entry, missing, left, need)
        return Step((row,), "concurrency", proof, self._before(), after)

    def _batch_tokens(self, item):
        """As many tokens as make the profile's activations smaller by what was missing, the model's error counted."""
        entry = self.entry or {}
        tried, free = (self.numbers.get(name) for name in ("tried", "free"))
        now = (entry.get("settings") or {}).get("max_num_batched_tokens")
        peak = next((part for part in entry.get("segments") or [] if part["name"] == "activation_peak"), None)
        if None in (tried, free, now, peak) or not peak["bytes"]:
            return None
        missing = max(tried - free, 0) + (peak.get("error_bytes") or 0)
        value = int(now * (1 - missing / peak["bytes"])) // _FEWEST_TOKENS * _FEWEST_TOKENS
        freed = int(peak["bytes"] * (1 - value / now))
        available, need = entry.get("available_kv"), (entry.get("kv") or {}).get("need_bytes") or 0
        if value < _FEWEST_TOKENS:
            self._consider(
                [item], f"even {_FEWEST_TOKENS} tokens don't free the {show_bytes(missing)} that are missing"
            )
            return Step((), "nothing")
        if available is not None and available + freed < need:
            self._consider(
                [item],
                f"the profile would end, and {show_bytes(max(available + freed, 0))} would remain for a KV cache that "
                f"needs {show_bytes(need)}",
            )
            return Step((), "nothing")
        after = dict(self._before(), available_kv=None if available is None else available + freed)
        row = dict(item, value=value, proof="arithmetic")
        proof = (
            f"the profile of {now} tokens lacked {show_bytes(max(tried - free, 0))}; with {value} tokens its activations would have taken "
            f"{show_bytes(freed)} less"
        )
        return Step((row,), "speed", proof, self._before(), after)


# Causes whose memory limit is raised for /dev/shm's sake only.
_SHM_CAUSES = ("shm_exhausted", "shm_small")


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


def _limit_of(container, bound):
    return quantity_bytes((((container or {}).get("resources") or {}).get(bound) or {}).get("memory"))


def _torch_numbers(finding):
    for shown in finding["evidence"]:
        numbers = parse_oom(shown.get("text") or "")
        if numbers and numbers.get("tried") is not None:
            return numbers
    return {}
