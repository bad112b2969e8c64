# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget's menu as steps: the changes that it recomputed, as far as they help against a finding's cause.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..diagnosis.budgeted import BESIDE, WITHIN
from ..quantities import GIB, show_bytes
from ..sizing.fit import LARGE_SHARE
from . import costs
from .cases import OFFLOAD, key_of, proof_of
from .counterfactual import of_row
from .steps import Step, before_of
from .values import UTILIZATION

# What makes weights on a GPU smaller; where they don't fit, nothing else helps.
_OF_WEIGHTS = frozenset(
    (
        *("--tensor-parallel-size", "--pipeline-parallel-size", "--quantization", "--cpu-offload-gb"),
        *("smaller_quantization", "--speculative-config", "--language-model-only"),
    )
)
_EAGER = "--enforce-eager"
# What the budget says of a length, which isn't known of another one.
_OF_LENGTH = ("need_bytes", "estimated_max_len", "max_concurrency")


def menu_steps(case):
    """The steps of the menu, in its order; what is changed in one of them is in no other."""
    rows = (case.sized or {}).get("changes") or []
    whole = case.cause in WITHIN or case.cause in BESIDE
    wanted = _keys(case.finding["recommend"])
    taken: set = set()
    if case.cause in BESIDE:
        # What the log itself gives for a shortage beside the budget is better than what the budget models.
        taken |= _keys(item for item in case.finding["recommend"] if item["proof"] == "log")
    steps = []
    for row in rows:
        if key_of(row) in taken or not (whole or key_of(row) in wanted) or not _may_help(case, row, wanted):
            continue
        beside = _room_beside(case, row, rows)
        if beside is None:
            continue
        together = [_as_logged(case, row), *(other for other in rows if _are_pair(row, other)), *beside]
        step = _step(case, row, together, without_graphs=bool(beside))
        if step is not None:
            taken |= _keys(together)
            steps.append(step)
    return steps


def _may_help(case, row, wanted):
    """Whether a row helps this cause and this engine; where not, it is considered."""
    wrong = _keys(case.finding["rejected"])
    if row["helps"] and _for_cause(case, row, wrong):
        return not (case.spans([row]) or _is_too_slow(case, row))
    too_little = _too_little(case, row)
    # The numbers of the attempt give a utilization that is low enough.
    later = too_little and (row["name"], row["direction"]) == (UTILIZATION, "decrease")
    if key_of(row) not in wrong and not (later and key_of(row) in wanted):
        case.consider([row], too_little or row["why"])
    return False


def _step(case, row, together, without_graphs):
    """The Step of a row and what goes with it (``together``, the row itself or a stricter one first), or None."""
    completed = case.complete(together)
    if completed is None:
        return None
    dearest = max((costs.taken(item) for item in together), key=costs.rank)
    before = before_of(case.sized)
    if together[0] is not row:
        after = dict(row["after"], **dict.fromkeys(_OF_LENGTH))
        return Step(completed, dearest, proof_of(together[0]), before, after)
    proof = of_row(case.sized, row, case.cause)
    if without_graphs:
        proof += "; without CUDA graphs nothing more is needed beside the budget"
    return Step(completed, dearest, proof or proof_of(row), before, row["after"])


def _keys(items):
    return {key_of(item) for item in items}


def _as_logged(case, row):
    """The row with the value that the diagnosis has from the log itself, where that is the stricter one."""
    for item in case.finding["recommend"]:
        if key_of(item) == key_of(row) and row["direction"] == "decrease" and case.cause in WITHIN:
            values = (item["value"], row["value"])
            if all(_is_number(value) for value in values) and values[0] < values[1]:
                return dict(row, value=item["value"], why=item["why"], proof="log")
    return row


def _is_too_slow(case, row):
    """Whether so much of the weights would cross the bus in each step that nobody would serve it."""
    if row["name"] != OFFLOAD or not case.weights or row["value"] * GIB <= LARGE_SHARE * case.weights:
        return False
    share = f"of {show_bytes(case.weights)} of weights on each GPU"
    case.consider(
        [row], f"{share}, {costs.over_the_bus(row['value'])}: more GPUs or smaller weights serve better"
    )
    return True


def _room_beside(case, row, rows):
    """What a row needs so that graphs can be captured beside the budget: nothing, or that none are; None where neither
    is enough."""
    lacking = _lacking(case, row)
    if lacking <= 0:
        return []
    margin = (case.sized.get("outside") or {}).get("margin")
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
    case.consider([row], f"{why}: it would end while graphs are captured")
    return None


def _lacking(case, row):
    """Bytes that are surely missing beside the budget with a change; none where the log shows that graphs were captured."""
    outside, after = case.sized.get("outside"), row["after"].get("outside")
    captured = any(
        part["name"] == "graph" and part["proof"] == "measured" for part in case.sized.get("segments") or []
    )
    if after is None or captured:
        return 0
    return -after - ((outside or {}).get("error_bytes") or 0)


def _for_cause(case, row, wrong):
    """Whether a change that helps the budget helps this cause: beside the budget it must make room there."""
    if case.cause in WITHIN and (row["name"], row["direction"]) == (UTILIZATION, "decrease"):
        return False
    if case.cause == "gpu_weights_oom":
        return row["name"] in _OF_WEIGHTS
    if case.cause not in BESIDE:
        return True
    if key_of(row) in wrong:
        return False
    if case.cause == "gpu_free_below_util":
        return (case.sized["capacity"] or {}).get("free_check") is False
    gained = _gained(case, row)
    return gained is not None and gained > 0 and _too_little(case, row) is None


def _gained(case, row):
    """Bytes that a row leaves beside the budget more than there are, or None."""
    margin, after = (case.sized.get("outside") or {}).get("margin"), row["after"].get("outside")
    return None if margin is None or after is None else after - margin


def _too_little(case, row):
    """The sentence on a row that makes less room beside the budget than this attempt lacked, or None."""
    tried, free = case.numbers.get("tried"), case.numbers.get("free")
    gained = _gained(case, row) if case.cause in BESIDE and row["helps"] else None
    if tried is None or free is None or gained is None or not 0 < gained < tried - free:
        return None
    return (
        f"it leaves {show_bytes(gained)} more beside the budget, and {show_bytes(tried - free)} were missing"
    )


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_pair(row, other):
    return row is not other and other["name"] in row["with"] and row["name"] in other["with"]
