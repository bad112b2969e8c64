# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON patches (RFC 6902) over JSON pointers (RFC 6901): the operations test, add, replace and remove.

The API server applies them; here they are applied on paper, for diffs and checks.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DocumentError

_INDEX = re.compile(r"0|[1-9]\d{0,8}")


def pointer(segments):
    """The JSON pointer of keys and list indexes: ``["a/b", 0]`` -> ``/a~1b/0``."""
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)


def segments_of(text):
    """The keys of a JSON pointer, all as text; DocumentError for what is none."""
    if text and not text.startswith("/"):
        raise DocumentError(f"{text!r} is no JSON pointer: it must be empty or begin with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def apply(document, patch):
    """The document that a patch makes of ``document``, which stays as it is.

    patch: list of ``{op, path, value}``. Raises DocumentError where the API server would refuse the patch: a test that
    fails, a place that isn't there, an operation that isn't one of the four.
    """
    # below one key, so that the whole document is a place like any other
    root = {"": copied(document)}
    for operation in patch:
        _apply_one(root, operation)
    return root[""]


def _apply_one(root, operation):
    kind, path = operation.get("op"), operation.get("path")
    if kind not in _OPERATIONS:
        raise DocumentError(f"the operation {kind!r} of a JSON patch isn't one of {', '.join(_OPERATIONS)}")
    if not isinstance(path, str) or (kind != "remove" and "value" not in operation):
        raise DocumentError(f"a JSON patch's {kind} needs a path{'' if kind == 'remove' else ' and a value'}")
    segments = ["", *segments_of(path)]
    above, last = segments[:-1], segments[-1]
    holder = root
    for segment in above:
        holder = holder[_key(holder, segment, path)]
    _OPERATIONS[kind](holder, last, path, copied(operation.get("value")))


def _key(holder, segment, path):
    """``segment`` as a key of the dict or an index of the list, which must be there."""
    if isinstance(holder, dict) and segment in holder:
        return segment
    if isinstance(holder, list) and _INDEX.fullmatch(segment) and int(segment) < len(holder):
        return int(segment)
    raise DocumentError(f"{path} isn't there")


def _test(holder, last, path, value):
    if not same(holder[_key(holder, last, path)], value):
        raise DocumentError(f"{path} isn't what the patch expects: it has been changed")


def _add(holder, last, path, value):
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list) and last == "-":
        holder.append(value)
    elif isinstance(holder, list) and _INDEX.fullmatch(last) and int(last) <= len(holder):
        holder.insert(int(last), value)
    else:
        raise DocumentError(f"{path} isn't there")


def _replace(holder, last, path, value):
    holder[_key(holder, last, path)] = value


def _remove(holder, last, path, _value):
    del holder[_key(holder, last, path)]


_OPERATIONS = {"test": _test, "add": _add, "replace": _replace, "remove": _remove}


def copied(value):
    """A JSON value's copy without parts in common; ``copy.deepcopy`` keeps those that YAML's anchors make."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def same(one, other):
    """Whether two JSON values are equal; unlike Python's ``==``, true isn't 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
