# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed from one version of an object to the next, as single steps and as patches.

Steps are as small as the object allows: one key, one list item. Items of lists that have names (containers, variables,
volumes) are told apart by these, other items by their place.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib
import json
from typing import Any, NamedTuple

from .json_patch import copied, pointer, same
from .object_paths import name_key, path_of

ABSENT: Any = object()
# The merge keys of Kubernetes' pod templates (OpenAPI: x-kubernetes-patch-merge-key).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}


class Step(NamedTuple):
    """One change, to be made after the steps before it.

    place: keys and list indexes; path: the same for people, with names; before, after: ABSENT where there is nothing;
    length: of the list after this step, where the place is a list item; named: whether that item is chosen by
    its name; names: ``(place, name)`` of list items on the way.
    """

    place: tuple[Any, ...]
    path: str
    before: Any
    after: Any
    length: int | None
    named: bool
    names: tuple[tuple[tuple[Any, ...], str], ...]


def steps(old, new):
    """The ``Step`` s from one JSON value to another."""
    return list(_steps(old, new, (), (), ()))


def json_patch(old, new, guard=True):
    """The JSON patch (RFC 6902) from one object to the other; an empty list where they are equal.

    Every value is tested before it is replaced or removed, every named item on the way before it is entered, so that the
    API server refuses the patch when the object has changed. guard: test metadata.generation as well, which a patch for
    a file in a repository can't.
    """
    made = steps(old, new)
    patch = []
    generation = (old.get("metadata") or {}).get("generation")
    if made and guard and generation is not None:
        patch.append({"op": "test", "path": "/metadata/generation", "value": generation})
    for step in made:
        tests = [{"op": "test", "path": pointer(place), "value": name} for place, name in step.names]
        patch += [test for test in tests if test not in patch]
        patch += _operations(step)
    return patch


def _operations(step):
    path = pointer(step.place)
    found = []
    if step.before is not ABSENT:
        found.append({"op": "test", "path": path, "value": copied(step.before)})
    if step.after is ABSENT:
        found.append({"op": "remove", "path": path})
    else:
        kind = "add" if step.before is ABSENT else "replace"
        found.append({"op": kind, "path": path, "value": copied(step.after)})
    return found


def _steps(old, new, place, path, names):
    if same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            before, after = old.get(key, ABSENT), new.get(key, ABSENT)
            where, called = (*place, key), (*path, key)
            if before is ABSENT or after is ABSENT:
                yield Step(where, path_of(called), before, after, None, False, names)
            else:
                yield from _steps(before, after, where, called, names)
    elif isinstance(old, list) and isinstance(new, list):
        key = name_key([*old]) if old else name_key(new)
        if key and (not new or name_key(new) == key):
            yield from _named(old, new, key, place, path, names)
        else:
            yield from _listed(old, new, place, path, names)
    else:
        yield Step(place, path_of(path), old, new, None, False, names)


def _blocks(old, new):
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _named(old, new, key, place, path, names):
    """Items with names; one that stays is entered."""
    index, length = 0, len(old)
    for kind, left, left_end, right, right_end in _blocks([i[key] for i in old], [i[key] for i in new]):
        if kind == "equal":
            for before, after in zip(old[left:left_end], new[right:right_end]):
                where = (*place, index)
                inside = (*names, ((*where, key), before[key]))
                yield from _steps(before, after, where, (*path, (before[key],)), inside)
                index += 1
            continue
        for item in old[left:left_end]:
            length -= 1
            yield Step((*place, index), path_of((*path, (item[key],))), item, ABSENT, length, True, names)
        for item in new[right:right_end]:
            length += 1
            yield Step((*place, index), path_of((*path, (item[key],))), ABSENT, item, length, True, names)
            index += 1


def _listed(old, new, place, path, names):
    """Items without names, such as arguments."""
    index, length = 0, len(old)
    for kind, left, left_end, right, right_end in _blocks(_hashable(old), _hashable(new)):
        if kind == "equal":
            index += left_end - left
            continue
        before, after = old[left:left_end], new[right:right_end]
        for item, other in zip(before, after):
            yield Step((*place, index), path_of((*path, (index,))), item, other, length, False, names)
            index += 1
        for item in before[len(after) :]:
            length -= 1
            yield Step((*place, index), path_of((*path, (index,))), item, ABSENT, length, False, names)
        for item in after[len(before) :]:
            length += 1
            yield Step((*place, index), path_of((*path, (index,))), ABSENT, item, length, False, names)
            index += 1


def _hashable(items):
    return [json.dumps(item, sort_keys=True) for item in items]


def strategic_merge(old, new):
    """The strategic-merge patch from one object with a pod template to the other; None where it can't be told.

    It can't where a list that is merged by name holds a name twice, or where its items change their order. Lists such as
    args are in it whole.
    """
    try:
        return _merge(old, new)
    except ValueError:
        return None


def _merge(old, new):
    found: dict[str, Any] = {}
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if same(before, after) and (key in old) == (key in new):
            continue
        if key not in new:
            found[key] = None
        elif isinstance(before, dict) and isinstance(after, dict):
            found[key] = _merge(before, after)
        elif key in _MERGE_KEYS and isinstance(before, list) and isinstance(after, list):
            found[key] = _merge_named(before, after, _MERGE_KEYS[key])
        else:
            found[key] = copied(after)
    return found


def _merge_named(old, new, key):
    before, after = ({item[key]: item for item in items} for items in (old, new))
    kept = [name for name in after if name in before]
    if (
        len(before) != len(old)
        or len(after) != len(new)
        or kept != [name for name in before if name in after]
    ):
        raise ValueError("names")
    found = []
    for name, item in after.items():
        if name not in before:
            found.append(copied(item))
        elif not same(before[name], item):
            found.append({key: name, **_merge(before[name], item)})
    return found + [{key: name, "$patch": "delete"} for name in before if name not in after]
