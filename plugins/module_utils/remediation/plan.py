# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis, evidence, budget and limits in; the plan document out: what to change at each edited object.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..diagnosis.budgeted import by_attempt
from ..documents import (
    BUDGET_SCHEMA,
    DIAGNOSIS_SCHEMA,
    EVIDENCE_SCHEMA,
    DocumentError,
    plan_document,
    require,
)
from .edited import object_key, pod_key
from .limits import limits_of
from .object_plans import Asked, ObjectPlan

_CONSUMER = "the remediation plan"


def plan(diagnosis, evidence, budget=None, limits=None, tried=None, run=None):
    """The plan document (``documents.plan_document``), one plan for each edited object of pods with a finding.

    limits: ``{max_memory, max_gpus, min_model_len, min_concurrency, allow, apply}``, see ``limits.limits_of``; tried: CHANGEs
    that were made already without success, see ``choice.choose``; run: the id of the run that asks, whose own pending mark
    is no obstacle. Nothing is written here. Raises DocumentError where a document isn't one, doesn't have its shape, or
    belongs to other pods.
    """
    require(diagnosis, DIAGNOSIS_SCHEMA, _CONSUMER)
    require(evidence, EVIDENCE_SCHEMA, _CONSUMER)
    if budget is not None:
        require(budget, BUDGET_SCHEMA, _CONSUMER)
    document = plan_document(limits_of(limits))
    asked = Asked(document["limits"], _changes(tried), run)
    if budget is None:
        document["notes"].append(
            "without a budget only changes that the log or a rule proves are planned: give the memory budget for sizes"
        )
    try:
        document["plans"] = _plans(diagnosis, evidence, budget, asked)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise DocumentError(
            f"{_CONSUMER} was given documents with the right schema but not their shape ({type(error).__name__}: {error}); "
            "make them again from the evidence"
        ) from error
    return document


def _changes(tried):
    """The tried changes; DocumentError where they aren't a list of CHANGEs."""
    if not isinstance(tried or [], (list, tuple)):
        raise DocumentError(f"{_CONSUMER}: what was tried is a list of changes, not {type(tried).__name__}")
    for item in tried or []:
        if not isinstance(item, dict) or not {"target", "name"} <= item.keys():
            raise DocumentError(
                f"{_CONSUMER}: what was tried is a list of changes as a plan's apply has them"
            )
    return list(tried or [])


def _plans(diagnosis, evidence, budget, asked):
    known = {pod_key(pod): pod for pod in evidence["pods"]}
    entries = by_attempt(budget)
    objects: dict[tuple, list] = {}
    for result in diagnosis["pods"]:
        pod = known.get(pod_key(result))
        if pod is None:
            raise DocumentError(
                f"{_CONSUMER}: the diagnosis names pod {pod_key(result)}, which the evidence doesn't hold: give the evidence that it was "
                "made from"
            )
        objects.setdefault(object_key(pod), []).append((pod, result))
    first = {name for group in diagnosis.get("groups") or [] for name in [group.get("trigger_pod")] if name}
    found = []
    for members in objects.values():
        members = sorted(members, key=lambda member: pod_key(member[0]) not in first)
        if any(result["findings"] for _pod, result in members):
            found.append(ObjectPlan(members, diagnosis, evidence, entries, asked).made())
    return found
