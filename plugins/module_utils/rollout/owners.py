# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else has a hand in an object: what undoes a live write of it, and whose fields a write takes over.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..evidence.client import ApiError
from ..evidence.workloads import kind_of, managers_of, owner_chain
from ..remediation.delivery import overwritten_later
from ..remediation.workload_kinds import layout_of
from .access import FIELD_MANAGER
from .places import Place

_REVERTING = ("now", "on_sync", "unknown")
# kubectl create, edit, patch, set: a person's single writes. Of kubectl only apply brings its fields again.
_SINGLE_WRITE, _APPLY = "kubectl-", "kubectl-client-side-apply"


def why_not_live(place, path=""):
    """The sentence that refuses a live write to an object of this kind, or None. path: of the engine's container."""
    layout = layout_of(place.group, place.kind, path)
    if layout.not_live:
        return f"{place.shown}: {layout.not_live}"
    if layout.live:
        return None
    return (
        f"live writes to {place.kind} of {place.api_version} aren't tested, so nothing is written: give the patch to whoever keeps"
        " the object"
    )


def managers(writer, place, raw):
    """``[{tool, object, proof, reverts}]`` of what manages the object itself (evidence.workloads)."""

    def lookup(api_version, kind, namespace, name):
        known = kind_of(api_version, kind)
        if known is None or not namespace or not name:
            return None
        try:
            found = writer.get(Place(api_version, kind, namespace, name, known.plural).path)
        except ApiError:
            return None
        found.setdefault("kind", kind)
        found.setdefault("apiVersion", api_version)
        return found

    reference = {"apiVersion": place.api_version, "kind": place.kind, "name": place.name}
    chain = [(reference, raw), *owner_chain(raw, lookup)]
    return [item for item in managers_of(chain, lookup) if item["object"] == place.shown]


def who_reverts(place, raw, found):
    """The sentence that something undoes a live write, or None. found: of ``managers``."""
    owners = (raw.get("metadata") or {}).get("ownerReferences") or []
    for owner in owners:
        if owner.get("controller"):
            return f"{place.shown} is made by {owner.get('kind')}/{owner.get('name')}, whose controller sets it back: change it there"
    for item in found:
        if item["reverts"] in _REVERTING:
            sure = "reverts" if item["proof"] == "proof" and item["reverts"] != "unknown" else "may revert"
            return f"{item['tool']} {sure} a live edit of {place.shown}: change it in its source"
    return None


def later_reverts(place, found):
    """Sentences: what overwrites a live write later. found: of ``managers``."""
    return [f"{place.shown}: {text}" for text in overwritten_later(found)]


# --- fields


def field_owners(raw, places):
    """Sentences about fields that somebody else manages and that a change takes over, one for each manager.

    places: ``[(keys and list indexes, path in words)]`` of the changed fields; raw: the object before.
    """
    found: dict[str, list[str]] = {}
    for entry in (raw.get("metadata") or {}).get("managedFields") or []:
        manager = entry.get("manager")
        if not manager or manager == FIELD_MANAGER or entry.get("subresource"):
            continue
        if manager.startswith(_SINGLE_WRITE) and manager != _APPLY:
            continue
        for place, path in places:
            if _owns(entry.get("fieldsV1"), raw, place) and path not in found.setdefault(manager, []):
                found[manager].append(path)
    return [
        f"{', '.join(paths)} {'is' if len(paths) == 1 else 'are'} managed by {manager}, which sets"
        f" {'it' if len(paths) == 1 else 'them'} back when it writes the next time"
        for manager, paths in sorted(found.items())
        if paths
    ]


def _owns(fields, raw, place):
    """Whether a set of fields (``managedFields[].fieldsV1``) has the field at ``place``, or the whole that it is a part of."""
    value = raw
    for segment in place:
        if not isinstance(fields, dict):
            return False
        key = _item_key(fields, value, segment) if isinstance(segment, int) else f"f:{segment}"
        if key not in fields:
            # A field without fields below it is owned as a whole, as lists of arguments are.
            return fields == {}
        fields = fields[key]
        value = _inside(value, segment)
    return isinstance(fields, dict)


def _item_key(fields, items, index):
    """The key of a list's item: ``k:{"name":"vllm"}`` or ``v:"x"``."""
    item = _inside(items, index)
    for key in fields:
        kind, _colon, text = key.partition(":")
        try:
            wanted = json.loads(text)
        except ValueError:
            continue
        if kind == "k" and isinstance(item, dict) and all(item.get(k) == v for k, v in wanted.items()):
            return key
        if kind == "v" and item == wanted:
            return key
    return None


def _inside(value, segment):
    if isinstance(value, dict):
        return value.get(segment)
    if isinstance(value, list) and isinstance(segment, int) and segment < len(value):
        return value[segment]
    return None
