# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the caller may do, by the API server's own word (SelfSubjectAccessReview), which everybody may ask for.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..evidence.client import ApiError
from .places import Place

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Rights(NamedTuple):
    """patch: of the object; pods: to create pods, which a dry run of one takes; missing: the rights in words."""

    patch: bool
    pods: bool
    missing: list[str]


def rights(writer, place):
    """The ``Rights`` that writing to an object takes. Where the review itself is refused, they count as missing."""
    pods = pods_place(place)
    may_patch = _allowed(writer, "patch", place, place.name)
    may_create = _allowed(writer, "create", pods, None)
    missing = [] if may_patch else [place.right("patch")]
    return Rights(may_patch, may_create, missing if may_create else [*missing, pods.right("create")])


def pods_place(place):
    """Pods of the same namespace."""
    return Place("v1", "Pod", place.namespace, place.name, "pods")


def _allowed(writer, verb, place, name):
    about = {
        "verb": verb,
        "group": place.group,
        "resource": place.plural,
        "namespace": place.namespace,
        **({"name": name} if name else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": about},
    }
    try:
        answer = writer.ask(_REVIEWS, review)
    except ApiError as error:
        if error.status in (403, 404):
            return False
        raise
    return bool((answer.get("status") or {}).get("allowed"))
