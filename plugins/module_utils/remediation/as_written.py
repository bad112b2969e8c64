# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan's changes as the operations that ``operations.patch`` makes, and where in the object they go.

A plan speaks in what the evidence shows (``action``, ``before``, ``after``); an operation has one ``value``, None to remove.
``before`` comes from redacted evidence, so it is never looked at here.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DIRECTIONS, TARGETS, DocumentError
from . import differences, operations, undo

_CONTAINER = re.compile(r"(?P<list>(?:^|\.)containers)\[(?P<name>[^\]]*)\]$")
# Fields of a strategy: evidence -> Kubernetes.
_ROLLING = {"max_surge": "maxSurge", "max_unavailable": "maxUnavailable"}


def patch(raw, path, changes, **more):
    """The ``operations.Patch`` of CHANGEs on an object, each at its own container.

    path: of the engine's container in the object (``workload.edit.path``); more: config, guard and running of
    ``operations.patch``. What can't be done is in ``refused``, as ``{change, why}`` with the change as it was given.
    """
    guard = more.pop("guard", True)
    after, refused = raw, []
    for change in changes:
        try:
            made = operation_of(change)
        except DocumentError as error:
            refused.append({"change": change, "why": str(error)})
            continue
        where = {"path": path_of_container(path, change.get("container"))}
        found = operations.patch(after, where, [made], guard=guard, **more)
        after = found.after
        refused += [{"change": change, "why": item["why"]} for item in found.refused]
    whole = operations.patch(raw, {"path": path}, [], guard=guard)
    merged = None if whole.strategic_merge is None else differences.strategic_merge(raw, after)
    record = undo.record(raw, after)
    return operations.Patch(after, differences.json_patch(raw, after, guard), merged, record, refused)


def operation_of(change):
    """The operation of a CHANGE, as it stands in a plan or as somebody wrote it (target, name, value, direction).

    Raises DocumentError for what is no change, and for what only a person does.
    """
    if not isinstance(change, dict) or not isinstance(change.get("name"), str) or not change["name"]:
        raise DocumentError(f"a change is a dictionary with target, name and value, not {change!r:.80}")
    name, target, direction = change["name"], change.get("target"), change.get("direction")
    if target not in TARGETS:
        raise DocumentError(
            f"{name}: the target of a change is one of {', '.join(TARGETS)}, not {target!r:.80}"
        )
    if direction is not None and direction not in DIRECTIONS:
        raise DocumentError(
            f"{name}: the direction of a change is one of {', '.join(DIRECTIONS)}, not {direction!r:.80}"
        )
    if target == "action" or ("action" in change and change["action"] is None):
        raise DocumentError(f"{name} is nothing that a patch of the object can do: only a person can")
    return dict(change, value=_value(change))


def _value(change):
    if change.get("action", change.get("direction")) == "remove":
        return None
    # A plan's switch has no value of its own.
    after = change.get("after") if change.get("action") else change.get("value")
    if after is None and change.get("direction") == "add":
        return True
    if after is None:
        raise DocumentError(
            f"{change['name']}: there is no value to set; to remove it, its direction is remove"
        )
    return _strategy(after) if change["name"] == "strategy" else after


def _strategy(given):
    """``{type, max_surge, max_unavailable}`` as ``operations.patch`` takes a strategy."""
    if not isinstance(given, dict) or not {"type", *_ROLLING} & given.keys():
        return given
    if given.get("type") == "Recreate":
        return "Recreate"
    return {_ROLLING[name]: given[name] for name in _ROLLING if given.get(name) is not None}


def path_of_container(path, container):
    """The path of ``container`` where ``path`` is that of the engine's.

    path: ``workload.edit.path``; container: a name, None for the engine's own. A kind that keeps the engine in fields of its own
    has no place for another container: there the path is the engine's whatever the name, which its operator gives.
    """
    found = _CONTAINER.search(path or "")
    if container is None or found is None or found.group("name") == container:
        return path
    return path[: found.start()] + f"{found.group('list')}[{container}]"


def is_list_of_containers(path):
    """Whether the container at ``path`` is one of a list, so that its pod's others are beside it."""
    return _CONTAINER.search(path or "") is not None
