# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that the numbers of the failed attempt give: what PyTorch asked for and what was free.

Each returns a Step, or the reason (str) why no value is enough, or None where the numbers aren't known.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import GIB, show_bytes
from .counterfactual import of_utilization
from .steps import Step, before_of

UTILIZATION = "--gpu-memory-utilization"
BATCH_TOKENS = "--max-num-batched-tokens"

# Room to leave beside the budget for libraries' workspaces (vllm-memory 7.6).
_WORKSPACES = GIB // 2
_LOWEST = 0.3
_FEWEST_TOKENS = 256


def lower_utilization(item, entry, numbers):
    """The utilization lower by what was missing and room for workspaces; enough must be left for a request.

    item: the CHANGE; entry: of the budget, or None; numbers: see ``diagnosis.torch_oom.parse_oom``.
    """
    known = _around_the_budget(entry or {}, numbers)
    if None in known.values():
        return None
    part = _segment(entry, "kv_available")
    if part and part["proof"] == "set":
        return "the KV cache's size is set, whatever the utilization: lower that"
    total, need = known["total"], known["need"]
    missing = max(known["tried"] - known["free"], 0) + _WORKSPACES
    value = int(round((known["utilization"] - missing / total) * 100, 6)) / 100
    left = int(known["available"] - (known["utilization"] - value) * total)
    if value < _LOWEST or left < need:
        return (
            f"{show_bytes(missing)} are needed beside the budget, and {show_bytes(max(left, 0))} would remain for a KV cache that "
            f"needs {show_bytes(need)}"
        )
    before = before_of(entry)
    after = dict(before, available_kv=left, fits=True)
    if before["max_concurrency"]:
        after["max_concurrency"] = before["max_concurrency"] * left / known["available"]
    if before["outside"] is not None:
        after["outside"] = before["outside"] + known["available"] - left
    row = dict(item, value=value, proof="arithmetic", **{"with": []})
    return Step((row,), "concurrency", of_utilization(entry, missing, left, need), before, after)


def _around_the_budget(entry, numbers):
    capacity = entry.get("capacity") or {}
    return {
        "tried": numbers.get("tried"),
        "free": numbers.get("free"),
        "total": capacity.get("total") or numbers.get("total"),
        "utilization": capacity.get("utilization"),
        "available": entry.get("available_kv"),
        "need": (entry.get("kv") or {}).get("need_bytes"),
    }


def _segment(entry, name):
    return next((part for part in (entry or {}).get("segments") or [] if part["name"] == name), None)


def fewer_tokens(item, entry, numbers):
    """As many tokens as make the profile's activations smaller by what was missing, the model's error counted.

    They are taken to be proportional to the tokens. Arguments as for ``lower_utilization``.
    """
    tried, free = numbers.get("tried"), numbers.get("free")
    now = ((entry or {}).get("settings") or {}).get("max_num_batched_tokens")
    peak = _segment(entry, "activation_peak")
    if tried is None or free is None or not now or not peak or not peak["bytes"]:
        return None
    short = max(tried - free, 0)
    missing = short + (peak.get("error_bytes") or 0)
    value = int(now * (1 - missing / peak["bytes"])) // _FEWEST_TOKENS * _FEWEST_TOKENS
    if value < _FEWEST_TOKENS:
        return f"even {_FEWEST_TOKENS} tokens don't free the {show_bytes(missing)} that are missing"
    freed = int(peak["bytes"] * (1 - value / now))
    before = before_of(entry)
    after = dict(before)
    if before["available_kv"] is not None:
        after["available_kv"] = before["available_kv"] + freed
        if after["available_kv"] < (before["need_bytes"] or 0):
            return (
                f"the profile would end, and {show_bytes(max(after['available_kv'], 0))} would remain for a KV cache that needs "
                f"{show_bytes(before['need_bytes'])}"
            )
    proof = (
        f"the profile of {now} tokens lacked {show_bytes(short)}; with {value} tokens its activations would have taken "
        f"{show_bytes(freed)} less"
    )
    return Step((dict(item, value=value, proof="arithmetic"),), "speed", proof, before, after)
