# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planned changes made in one object: what it looks like then, and the patches that bring it there.

Each change is one operation on one flag, variable or field of the object as it is now; a change that the object has
already is none. Whatever isn't changed survives as it is, also what this code doesn't know.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..documents import DocumentError
from . import differences, undo
from .engine_options import set_flag, set_variable
from .json_patch import copied
from .object_fields import set_field
from .sites import group_of, site_of

# Kinds of the API server itself: others know no strategic merge (kubernetes-gpu-facts 7.1).
_MERGED_GROUPS = ("", "apps", "batch")
# Target of a CHANGE -> what sets it: ``(site, name, value)``, None removes.
_TARGETS = {"flag": set_flag, "env": set_variable, "k8s": set_field}


class Patch(NamedTuple):
    """after: the object with the changes; json_patch: RFC 6902; strategic_merge: for kinds of the API server with a pod
    template, else None; undo: the record (``undo.record``); refused: ``[{change, why}]``, which are not in the others.
    Patches and ``after`` hold the object's own words, secrets included: they are for the API server, not for people."""

    after: dict[str, Any]
    json_patch: list[dict[str, Any]]
    strategic_merge: dict[str, Any] | None
    undo: dict[str, Any]
    refused: list[dict[str, Any]]


def patch(raw, edit, changes, config=None, guard=True, running=None):
    """The ``Patch`` of planned changes on an object.

    raw: the live object or a manifest; edit: ``workload.edit`` of evidence (path of the engine's container); changes:
    CHANGEs with target flag, env or k8s (documents.change), value None removes; config: the parsed --config file,
    where it is known; guard: see ``differences.json_patch``; running: the engine's container of a pod that was made from the
    object, by which it is checked whether arguments get through a template in between (KServe).

    k8s names: ``resources.limits.memory``; ``volumes.shm.sizeLimit``; ``image``; ``startupProbe`` (value: the seconds that a
    start may take, or fields of the probe) or ``livenessProbe.timeoutSeconds``; ``strategy`` (``Recreate``, ``{maxSurge,
    maxUnavailable}``).
    """
    raw = copied(raw)
    after = copied(raw)
    refused = []
    for change in changes:
        tried = copied(after)
        try:
            site = site_of(tried, edit, config, running)
            _set(site, change)
            undo.record(raw, tried)
        except DocumentError as error:
            refused.append({"change": change, "why": str(error)})
        else:
            after = tried
    merged = None
    if group_of(raw) in _MERGED_GROUPS:
        merged = differences.strategic_merge(raw, after)
    return Patch(after, differences.json_patch(raw, after, guard), merged, undo.record(raw, after), refused)


def _set(site, change):
    """One change made at its site; DocumentError where it can't be."""
    target = _TARGETS.get(change["target"])
    if target is None:
        raise DocumentError(f"{change['name']} is nothing that a patch of the object can do")
    target(site, change["name"], change["value"])
