# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which step of an object's plan would be written now, if anything may be, and the one sentence why or why not.

One step at a time, against the first trigger: what happens then shows whether it was right. What didn't cause the failure is
changed with it only where the permission ``risks`` is given and where it costs nothing.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change
from ..quantities import parse_quantity
from .limits import names_a_limit
from .wording import in_words

_NAMES = ("target", "name", "container")
# Host memory ran short for a reason that no table of limits knows: a limit by the table could end the engine earlier.
_HOST_USE = ("ray_memory_monitor", "host_oom_growth", "sigkill_unattributed")


def choose(plan, triggered, limits, tried=()):
    """``{step, with, changes, why}`` of an object's plan (``documents.object_plan``). triggered: whether something failed.

    step: the number of the step that would be written, or None; with: numbers of the steps that go with it; changes: their
    CHANGEs in order, all of one container; why: one sentence. limits: see ``limits.limits_of``; tried: CHANGEs that were made
    already without success, as they stood in a plan. A step isn't chosen where all of it was tried, nor where a part of it
    takes a tried change back.
    """
    steps = _steps(plan["changes"])
    triggers = [
        step for step in steps if step[0]["role"] == "trigger" and _is_against(step, plan["causes"][0])
    ]
    others = [step for step in steps if step[0]["role"] != "trigger"] if "risks" in limits["allow"] else []
    others = [step for step in others if all(item["costs"] == "nothing" for item in step)]
    if plan["blocked"]:
        return _nothing(plan["blocked"][0])
    for step in triggers:
        if _may_be_written(step) and not _was_tried(step, tried):
            return _chosen(step, _beside(step, others, tried))
    if not triggered:
        ready = [step for step in others if _may_be_written(step) and not _was_tried(step, tried)]
        if ready:
            return _chosen(ready[0], _beside(ready[0], ready[1:], tried))
        return _nothing(_why_no_risk(steps, others, limits))
    return _nothing(_why_nothing(plan, triggers, tried))


def _steps(changes):
    """The changes by their step, in order."""
    found: dict[int, list] = {}
    for item in changes:
        found.setdefault(item["step"], []).append(item)
    return list(found.values())


def _is_against(step, cause):
    return cause in (step[0]["cause"], *step[0]["also"])


def _may_be_written(step):
    """Whether every change of a step is planned, live, and of one container."""
    return (
        all(item["state"] == "planned" and item["delivery"]["how"] == "live" for item in step)
        and len({item["change"]["container"] for item in step}) == 1
    )


# --- what goes together


def _chosen(step, beside):
    written = [item["change"] for item in step]
    for other in beside:
        written += [item["change"] for item in other]
    why = f"{_in_words(step)} against {step[0]['cause']}: {step[0]['proof']}"
    if beside:
        why += "; with it, as risks are allowed, " + " and ".join(_in_words(other) for other in beside)
    strategy = strategy_of(step, written)
    return {
        "step": step[0]["step"],
        "with": [other[0]["step"] for other in beside],
        "changes": [*written, *strategy],
        "why": why,
    }


def _beside(step, others, tried):
    """The steps against risks that go with a step: those of its container that touch nothing which another one touches."""
    taken = {_place(item["change"]) for item in step}
    if step[0]["cause"] in _HOST_USE:
        taken.add(("k8s", "resources.memory"))
    container = step[0]["change"]["container"]
    found = []
    for other in others:
        places = {_place(item["change"]) for item in other}
        mine = all(item["change"]["container"] in (None, container) for item in other)
        if mine and not places & taken and _may_be_written(other) and not _was_tried(other, tried):
            found.append(other)
            taken |= places
    return found


def _place(item):
    """What a change touches; request and limit of one resource are one."""
    parts = item["name"].split(".", 2)
    name = f"resources.{parts[2]}" if parts[0] == "resources" and len(parts) == 3 else item["name"]
    return (item["target"], name.lstrip("-").replace("-", "_"))


def strategy_of(step, written):
    """The change of how the pods are replaced, in a list: it goes with the changes that replace them, unless one is of it.

    step: planned changes (``documents.planned_change``); written: their CHANGEs and those of what goes with them.
    """
    wanted = step[0]["strategy"]
    if not wanted or any(item["name"] == "strategy" for item in written):
        return []
    made = change("k8s", "strategy", "set", wanted["after"], wanted["why"], "rule")
    container = written[0]["container"]
    return [dict(made, container=container, action="set", before=wanted["before"], after=wanted["after"])]


# --- what was tried


def _was_tried(step, tried):
    """Whether all of a step was tried, or a part of it takes a tried change back."""
    items = [item["change"] for item in step]
    return all(any(_is_same(item, old) for old in tried) for item in items) or any(
        _takes_back(item, old) for item in items for old in tried
    )


def _is_same_thing(item, old):
    return all(_named(item, name) == _named(old, name) for name in _NAMES)


def _named(item, name):
    text = item.get(name)
    return text.lstrip("-").replace("-", "_") if name == "name" and isinstance(text, str) else text


def _is_same(item, old):
    return _is_same_thing(item, old) and _are_equal(item.get("after"), old.get("after"))


def _takes_back(item, old):
    """Whether a change goes the other way than an earlier one of the same, or to where that began."""
    if not _is_same_thing(item, old):
        return False
    if _are_equal(item.get("after"), old.get("before")):
        return True
    before, after, now = (
        _number(value) for value in (old.get("before"), old.get("after"), item.get("after"))
    )
    return None not in (before, after, now) and (after - before) * (now - after) < 0


def _are_equal(one, other):
    if one == other:
        return True
    numbers = [_number(value) for value in (one, other)]
    return None not in numbers and numbers[0] == numbers[1]


def _number(value):
    if isinstance(value, bool):
        return None
    return (
        value
        if isinstance(value, (int, float))
        else parse_quantity(value)
        if isinstance(value, str)
        else None
    )


# --- why nothing


def _nothing(why):
    return {"step": None, "with": [], "changes": [], "why": why}


def _in_words(step):
    return " and ".join(in_words(item["change"]) for item in step)


def _why_no_risk(steps, others, limits):
    if not steps:
        return "nothing failed, and there is nothing to change"
    if "risks" not in limits["allow"]:
        return "nothing failed; to change what is a risk, give allow (vllm_oom_allow) with risks"
    for step in others:
        if not _may_be_written(step) and not _is_advised(step):
            return f"nothing failed, and against the risk {step[0]['cause']} nothing can be written: {_hindrance(step)}"
    return "nothing failed, and nothing that costs nothing is left to change"


def _why_nothing(plan, triggers, tried):
    """The sentence on the first step that a limit would allow, else on the first that there is."""
    cause = plan["causes"][0]
    untried = [step for step in triggers if not _was_tried(step, tried)]
    if triggers and not untried:
        return f"all that is planned against {cause} was tried without success"
    if not untried:
        about = [note for note in plan["notes"] if f" {cause}: " in note]
        return next(iter(about), f"nothing is known that would help against {cause}")
    allowed = [step for step in untried if _needs_only_a_limit(step)]
    if allowed:
        return f"against {cause} it takes to {_in_words(allowed[0])}, which isn't allowed yet: {_hindrance(allowed[0])}"
    written = [step for step in untried if not _is_advised(step)]
    if written:
        return f"against {cause} it takes to {_in_words(written[0])}, which can't be written: {_hindrance(written[0])}"
    # An experiment says less than what a person must do.
    asked = next((step for step in untried if step[0]["change"]["target"] == "action"), untried[0])
    return f"against {cause} nothing can be written: it is for a person to {_in_words(asked)} ({asked[0]['why']})"


def _is_advised(step):
    return any(item["state"] == "advised" for item in step)


def _needs_only_a_limit(step):
    refused = [text for item in step for text in item["refused"]]
    live = all(item["delivery"]["how"] == "live" for item in step)
    return bool(refused) and live and not _is_advised(step) and all(map(names_a_limit, refused))


def _hindrance(step):
    """What stands in a step's way."""
    refused = list(dict.fromkeys(text for item in step for text in item["refused"]))
    elsewhere = [item["delivery"]["why"] for item in step if item["delivery"]["how"] != "live"]
    several = ["its changes are of several containers, which aren't written together"]
    return "; ".join(refused or elsewhere[:1] or several)
