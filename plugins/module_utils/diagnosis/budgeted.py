# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recommended changes, recomputed by the memory budget before they are proposed.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import show_bytes
from .advice_parts import MODEL_LEN, UTILIZATION

# The start failed by the budget's own arithmetic.
WITHIN = ("gpu_weights_oom", "kv_no_blocks", "kv_max_len")
# Memory ran out beside the budget: what is taken from the KV cache is free there.
BESIDE = (
    *("cudagraph_capture_oom", "sampler_warmup_oom", "serving_gpu_oom", "serving_gpu_growth", "nccl_gpu_oom"),
    *("gpu_free_below_util", "cuda_library_alloc", "gpu_fragmentation"),
)
# What the diagnosis keeps of a budget's entry: the menu and the settings stand in the budget itself.
_LEFT_OUT = ("changes", "hardware", "settings")


def by_attempt(budget):
    """Entries of a budget document: ``{(uid or (namespace, pod), container, attempt): entry}``; empty without one."""
    found = {}
    for entry in (budget or {}).get("entries") or []:
        subject = entry["subject"]
        found[(_pod_key(subject, "pod"), subject.get("container"), subject.get("attempt"))] = entry
    return found


def of_container(entries, pod, container):
    """The container's entries, ``{attempt: entry}``."""
    key = _pod_key(pod, "name")
    return {
        attempt: entry
        for (pod_key, name, attempt), entry in entries.items()
        if pod_key == key and name == container.get("name")
    }


def _pod_key(item, name):
    return item.get("uid") or (item.get("namespace"), item.get(name))


def shown(entry):
    """What a diagnosis keeps of an entry."""
    return {name: value for name, value in entry.items() if name not in _LEFT_OUT}


def missing(entry):
    """Bytes that the budget lacks on a card that nobody else uses, beyond the model's error; 0 where it fits or none tells."""
    if (
        not entry
        or entry.get("fits") is not False
        or entry.get("available_kv") is None
        or not _certain(entry)
    ):
        return 0
    return max(0, ((entry.get("kv") or {}).get("need_bytes") or 0) - entry["available_kv"])


def recomputed(entry, cause, recommend, rejected):
    """``(recommend, rejected)`` after each change was looked up in the budget.

    entry: the budget's entry of the attempt, or None: then nothing changes. A change that the budget shows to help has its
    value and the proof ``budget``; one that improves but isn't enough says what is still missing; one that it shows to
    change nothing, or to make it worse, is rejected with the reason.
    """
    if entry is None:
        return recommend, rejected
    if cause in WITHIN:
        return _within(entry, recommend, rejected)
    if cause in BESIDE:
        return [_beside(entry, item) for item in recommend], rejected
    return recommend, rejected


# A start that fails by the budget's arithmetic.


def _within(entry, recommend, rejected):
    menu = {_key(item): item for item in entry.get("changes") or []}
    kept, refused = [], []
    for item in recommend:
        row = menu.get(_key(item))
        if row is None or row.get("after") is None:
            kept.append(item)
        elif row["helps"]:
            kept.append(_proved(item, row))
        elif item["with"] or _improves(entry, row):
            kept.append(_not_enough(item, row, entry))
        elif _certain(entry):
            refused.append(dict(item, value=None, why=_recomputed_why(row, entry), proof="budget"))
        else:
            kept.append(item)
    names = {(item["target"], item["name"], item["direction"]) for item in refused}
    others = [item for item in rejected if (item["target"], item["name"], item["direction"]) not in names]
    return kept, refused + others


def _key(item):
    return (item["target"], item["name"].lstrip("-").replace("-", "_"), item["direction"])


def _certain(entry):
    """Whether the shortage is larger than the model's error."""
    need = (entry.get("kv") or {}).get("need_bytes") or 0
    short = need - (entry.get("available_kv") or 0)
    return abs(short) > (entry.get("available_kv_error") or 0)


def _improves(entry, row):
    after = row["after"].get("available_kv")
    before = entry.get("available_kv")
    less_needed = (row["after"].get("need_bytes") or 0) < ((entry.get("kv") or {}).get("need_bytes") or 0)
    return less_needed or (after is not None and before is not None and after > before)


def _proved(item, row):
    # What the engine itself printed (its estimated maximum length) is better than what is computed.
    value = item["value"] if item["proof"] == "log" and item["value"] is not None else row["value"]
    after = row["after"]
    proof = f"the budget then has {show_bytes(after['available_kv'])} for the KV cache"
    if after.get("max_concurrency"):
        proof += f", {after['max_concurrency']:.2f} requests of full length"
    return dict(
        item, value=item["value"] if value is None else value, why=_joined(item["why"], proof), proof="budget"
    )


def _not_enough(item, row, entry):
    after = row["after"]
    need = after.get("need_bytes") or (entry.get("kv") or {}).get("need_bytes")
    if need is None or after.get("available_kv") is None or item["with"]:
        return item
    short = f"alone it isn't enough: {show_bytes(need - after['available_kv'])} are still missing"
    return dict(item, why=_joined(item["why"], short), proof="budget")


def _recomputed_why(row, entry):
    after, before = row["after"].get("available_kv"), entry.get("available_kv")
    if after is None or before is None:
        return row["why"]
    if after < before:
        return f"recomputed: the KV cache would have {show_bytes(before - after)} less"
    return "recomputed: the KV cache would have the same room"


def _joined(first, second):
    return f"{first}; {second}" if first else second


# Memory that ran out beside the budget.


def _beside(entry, item):
    """A lower utilization leaves so much less for the KV cache: enough for a request, or the length must go down too."""
    capacity = entry.get("capacity") or {}
    lowers = item["name"] == UTILIZATION and item["direction"] == "decrease"
    known = [capacity.get("total"), capacity.get("utilization"), entry.get("available_kv"), item["value"]]
    need = (entry.get("kv") or {}).get("need_bytes")
    if not lowers or need is None or not all(isinstance(value, (int, float)) for value in known):
        return item
    total, before, available, value = known
    left = int(available - (before - value) * total)
    if left >= need:
        return dict(
            item,
            why=_joined(
                item["why"],
                f"{show_bytes(left)} remain for the KV cache, one request of full length needs {show_bytes(need)}",
            ),
            proof="budget",
        )
    short = f"only {show_bytes(max(left, 0))} would remain for the KV cache, and one request of full length needs {show_bytes(need)}"
    return dict(item, why=_joined(item["why"], short), proof="budget", **{"with": [*item["with"], MODEL_LEN]})
