# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths in Kubernetes objects as documents write them: ``spec.template.spec.containers[vllm].args[3]``.

Brackets choose an item of a list by its name (or what it has instead of one) or by its index, and a key that holds a dot.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DocumentError

# What an item of a list is called by, the first that all items have.
NAMES = ("name", "mountPath", "groupName", "type")
_SEGMENT = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def segments_of(path):
    """The keys and choices of a path, as text: ``data[a.b].c`` -> ``["data", "a.b", "c"]``."""
    found, position = [], 0
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if not match:
            raise DocumentError(f"{path!r} isn't a path")
        found.append(match.group(1) if match.group(1) is not None else match.group(2))
        position = match.end()
    return found


def path_of(segments):
    """The path of keys, and of choices in lists, given as ``(choice,)``."""
    text = ""
    for segment in segments:
        if isinstance(segment, tuple) or re.search(r"[.\[\]]", segment):
            text += f"[{segment[0] if isinstance(segment, tuple) else segment}]"
        else:
            text += f".{segment}" if text else segment
    return text


def name_key(items):
    """By which field each of the items is called, where all names differ; else None."""
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in NAMES:
        names = [item.get(key) for item in items]
        if all(isinstance(name, str) for name in names):
            return key if len(set(names)) == len(names) else None
    return None


def locate(raw, path):
    """The keys and list indexes of ``path`` in an object. DocumentError when it isn't there."""
    return locate_segments(raw, segments_of(path), path)


def locate_segments(raw, segments, path):
    """As ``locate``, of a path taken apart."""
    found: list[str | int] = []
    value = raw
    for segment in segments:
        key = _key(value, segment)
        if key is None:
            raise DocumentError(f"the object has no {path}")
        found.append(key)
        value = value[key]
    return found


def _key(value, segment):
    if isinstance(value, dict):
        return segment if segment in value else None
    if not isinstance(value, list):
        return None
    for index, item in enumerate(value):
        if isinstance(item, dict) and segment in (item.get(key) for key in NAMES):
            return index
    # a single container needs no name with Knative and KServe
    if len(value) == 1 and isinstance(value[0], dict) and not any(key in value[0] for key in NAMES):
        return 0
    return int(segment) if re.fullmatch(r"\d{1,6}", segment) and int(segment) < len(value) else None


def value_at(raw, segments):
    """The value at keys and indexes that are there."""
    for segment in segments:
        raw = raw[segment]
    return raw
