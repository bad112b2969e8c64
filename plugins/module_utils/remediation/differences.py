# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed from one version of an object to the next, as single steps and as patches.

Steps are as small as the object allows: one key, one list item. Items of lists that have names (containers, variables,
volumes) are told apart by these, other items by their place.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .json_patch import copied, pointer, same
from .object_paths import name_key, path_of

ABSENT: Any = object()
_MOST_PAIRS = 10**6  # of list items that are compared; above, all of them count as changed
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
    metadata = old.get("metadata")
    generation = metadata.get("generation") if isinstance(metadata, dict) else None
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
        key = name_key(old or new)
        if key and (not new or name_key(new) == key) and _keep_order(old, new, key):
            yield from _named(old, new, key, place, path, names)
        else:
            yield from _listed(old, new, place, path, names)
    else:
        yield Step(place, path_of(path), old, new, None, False, names)


def _keep_order(old, new, key):
    """Whether the items that stay do so in the same order: a name then means one item in every step."""
    before, after = ([item[key] for item in items] for items in (old, new))
    return [name for name in before if name in after] == [name for name in after if name in before]


def blocks(old, new):
    """``(kind, start, end, start in new, end in new)`` of two lists, as difflib's opcodes.

    old, new: lists of texts. As much text as possible stays (the heaviest common subsequence): difflib's choice may leave
    out what stays.
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    pairs = [(at, at) for at in range(head)]
    pairs += _common(old, new, head, len(old) - tail, len(new) - tail)
    pairs += [(len(old) - at, len(new) - at) for at in range(tail, 0, -1)]
    return _opcodes(pairs, len(old), len(new))


def _common(old, new, start, end, new_end):
    """The pairs of equal items between the places, in order."""
    rows, columns = range(end - 1, start - 1, -1), range(new_end - 1, start - 1, -1)
    if len(rows) * len(columns) > _MOST_PAIRS:
        return []
    heaviest: dict[tuple[int, int], int] = {}
    for row in rows:
        for column in columns:
            heaviest[row, column] = (
                heaviest.get((row + 1, column + 1), 0) + 1 + len(old[row])
                if old[row] == new[column]
                else max(heaviest.get((row + 1, column), 0), heaviest.get((row, column + 1), 0))
            )
    found = []
    row, column = start, start
    while row < end and column < new_end:
        if old[row] == new[column]:
            found.append((row, column))
            row, column = row + 1, column + 1
        elif heaviest.get((row + 1, column), 0) >= heaviest.get((row, column + 1), 0):
            row += 1
        else:
            column += 1
    return found


def _opcodes(pairs, length, new_length):
    found = []
    row = column = 0
    for old_at, new_at in [*pairs, (length, new_length)]:
        if (row, column) != (old_at, new_at):
            kind = "replace" if row < old_at and column < new_at else "delete" if row < old_at else "insert"
            found.append((kind, row, old_at, column, new_at))
        if old_at < length and new_at < new_length:
            found.append(("equal", old_at, old_at + 1, new_at, new_at + 1))
        row, column = old_at + 1, new_at + 1
    return found


def _named(old, new, key, place, path, names):
    """Items with names; one that stays is entered."""
    index, length = 0, len(old)
    for kind, left, left_end, right, right_end in blocks([i[key] for i in old], [i[key] for i in new]):
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
    for kind, left, left_end, right, right_end in blocks(_hashable(old), _hashable(new)):
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
    if not all(isinstance(item, dict) and isinstance(item.get(key), str) for item in [*old, *new]):
        raise ValueError("names")
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
