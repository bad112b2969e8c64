# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One finding with what is known around it, and the changes that were thought of and left out.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import Any

from ..diagnosis.torch_oom import parse_oom
from ..documents import change
from ..quantities import GIB, show_bytes
from . import host_memory
from .costs import RANKS, gpu_resource

OFFLOAD = "--cpu-offload-gb"
# Proofs by which a value may be written.
PROVED = ("budget", "arithmetic", "log")
# Phases that an engine reaches only with a KV cache.
_WITH_CACHE = ("graph_capture", "warmup", "serving", "shutdown")


class Case:
    """A finding, the budget's entry of its attempt (or None), pod and container of the evidence, and the Room of its memory.

    sized: the entry, where the attempt doesn't contradict the GPU's part of it; weights: bytes of them on a GPU by that, or None;
    numbers: of torch's error, as ``diagnosis.torch_oom`` reads it; considered: ``[(CHANGE, why)]`` of what isn't planned.
    """

    def __init__(self, finding, entry, pod, container, room):
        self.finding, self.entry, self.pod, self.container = finding, entry, pod, container
        self.room = room
        self.cause = finding["cause"]
        self.contradicted = _contradicted(finding, entry)
        self.sized: Any = None if self.contradicted else entry
        parts = (self.sized or {}).get("segments") or []
        self.weights = next((part["bytes"] for part in parts if part["name"] == "weights"), None)
        self.considered: list = []
        self.numbers = _torch_numbers(finding)

    def consider(self, items, why):
        """Leave changes out, for a reason."""
        self.considered += [(item, why) for item in items]

    def spans(self, rows):
        """Whether ranks of an engine of several pods would change: its size is one of the group, not of a pod."""
        spans = self.pod.get("group") is not None and rows[0]["name"] in RANKS
        if spans:
            self.consider(rows, f"the engine spans the pods of {self.pod['group']}: its size is set there")
        return spans

    def complete(self, rows):
        """The rows with what else must change: GPUs for ranks, host memory for what moves to the host; None where it isn't
        known what the container's GPUs are counted by."""
        found = list(rows)
        for row in rows:
            if row["name"] in RANKS:
                count, resource = self._gpus_for(row), gpu_resource(self.container)
                if resource is None:
                    self.consider(
                        rows, "it isn't known by which resource the container gets its accelerators"
                    )
                    return None
                text = f"one GPU for each of {count} ranks"
                name = f"resources.limits.{resource}"
                found.append(change("k8s", name, "increase", str(count), text, "arithmetic"))
            if row["name"] == OFFLOAD:
                ranks = (self.entry.get("ranks") or {}).get("count") or 1
                found += host_memory.offloaded(self.entry, int(row["value"] * GIB * ranks), self.room)
        return tuple(found)

    def _gpus_for(self, row):
        used = (self.entry or {}).get("settings") or {}
        sizes = {name: used.get(name) or 1 for name in RANKS.values()}
        sizes[RANKS[row["name"]]] = row["value"]
        return (
            sizes["tensor_parallel_size"]
            * sizes["pipeline_parallel_size"]
            * (used.get("data_parallel_size") or 1)
        )


def key_of(item):
    """What a CHANGE changes and which way, in any spelling."""
    return (item["target"], item["name"].lstrip("-").replace("-", "_"), item["direction"])


def proof_of(item):
    """The proof of a change that isn't the budget's, in words, or None."""
    return f"{item['why']} (by {item['proof']})" if item["proof"] in PROVED else None


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


def _torch_numbers(finding):
    """The numbers of torch's error, empty where the finding's evidence has none."""
    for shown in finding["evidence"]:
        numbers = parse_oom(shown.get("text") or "")
        if numbers and numbers.get("tried") is not None:
            return numbers
    return {}
