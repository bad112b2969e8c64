# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan in, and what earlier runs left; what is to be done out: object by object, in order.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import PLAN_SCHEMA, DocumentError, require
from .choice import strategy_of
from .edited import edit_of

_CONSUMER = "the work on a plan"
_OBJECT = ("namespace", "kind", "name", "api_version", "path")


def work(plan, found=(), evidence=None):
    """``{write, patch}``, two lists of ``{object, label, container, causes, step, changes, expected, found, live}``.

    write: what is written one after the other: first the objects that an earlier run changed without finding a verdict (they have
    ``found`` and no changes), then those of which the plan would write a step now. An object is in it once.
    patch: objects whose first planned step is for their source: only the patch can be made.
    label: kind and name in words; expected: ``{uid, generation}`` of the diagnosis, or None; found: ``{run, at}`` of the change
    that was left, or None; live: whether it is written.

    found: ``objects`` of module ``changes_info``; evidence: where given, only its objects are gone on with.

    Raises DocumentError where a document isn't one.
    """
    require(plan, PLAN_SCHEMA, _CONSUMER)
    try:
        left = [_left(item) for item in found or () if item["unfinished"]]
        if evidence is not None:
            known = {_key(dict(edit_of(pod), namespace=pod.get("namespace"))) for pod in evidence["pods"]}
            left = [item for item in left if _key(item["object"]) in known]
        taken = {_key(item["object"]) for item in left}
        # An object that another run is at work on now is refused when it is written.
        planned = [_planned(item) for item in plan["plans"] if item["apply"]["step"] is not None]
        return {
            "write": left + [item for item in planned if _key(item["object"]) not in taken],
            "patch": [item for item in map(_for_its_source, plan["plans"]) if item],
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise DocumentError(
            f"{_CONSUMER} was given a plan without its shape ({type(error).__name__}: {error}); make it again with the filter "
            "remediation_plan"
        ) from error


def _key(edited):
    return tuple(edited.get(name) for name in ("namespace", "kind", "name"))


def _item(edited, **more):
    place = f"{edited['namespace']}/" if edited.get("namespace") else ""
    return dict(
        {
            "object": {name: edited.get(name) for name in _OBJECT},
            "label": f"{edited['kind']} {place}{edited['name']}",
            "container": None,
            "causes": [],
            "step": None,
            "changes": [],
            "expected": None,
            "found": None,
            "live": True,
        },
        **more,
    )


def _left(item):
    return _item(item, causes=list(item["causes"]), found={"run": item["run"], "at": item["at"]})


def _planned(plan):
    made = plan["apply"]
    return _of_changes(plan, made["step"], made["changes"], [made["step"], *made["with"]])


def _of_changes(plan, step, changes, steps):
    """steps: the numbers of those that the changes are of."""
    containers = [item["container"] for item in changes if item.get("container")]
    return _item(
        plan["object"],
        container=containers[0] if containers else None,
        causes=_against(plan, steps),
        step=step,
        changes=list(changes),
        expected=plan.get("expected"),
    )


def _for_its_source(plan):
    """The first planned step where it isn't one that is written live; None where there is none."""
    if plan["apply"]["step"] is not None or not plan["object"].get("name"):
        return None
    planned = [item for item in plan["changes"] if item["state"] == "planned"]
    first = [item for item in planned if item["step"] == planned[0]["step"]]
    if not first or any(item["delivery"]["how"] != "patch" for item in first):
        return None
    step, written = first[0]["step"], [item["change"] for item in first]
    return dict(_of_changes(plan, step, [*written, *strategy_of(first, written)], [step]), live=False)


def _against(plan, steps):
    """The causes that steps are against, in the plan's order."""
    found = {
        cause for item in plan["changes"] if item["step"] in steps for cause in (item["cause"], *item["also"])
    }
    return [cause for cause in plan["causes"] if cause in found]
