# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one change found in a live object and what it made of it, both in the form that the change is given in. Pure.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..remediation.object_paths import locate, value_at
from ..remediation.workload_kinds import layout_of
from . import wording
from .server import PROBE_PERIOD, PROBE_THRESHOLD, allowance

# What is said of a variable whose value stands elsewhere.
_REFERENCE = "a reference"
# Of a Deployment whose strategy leaves them out.
_ROLLING = {"type": "RollingUpdate", "max_surge": "25%", "max_unavailable": "25%"}


def before_and_after(item, path, place, raw, made):
    """``(before, after)`` of one change, each None where nothing is set.

    item: the CHANGE with its ``value``; path: of the engine's container; raw: the object before it; made: its
    ``operations.Patch``.
    """
    container = item.get("container")
    where = re.sub(r"\[[^\]]*\]$", f"[{container}]", path) if container else path
    layout = layout_of(place.group, place.kind, where)
    if item["name"] == "strategy":
        return _strategy(raw, place, layout), _strategy(made.after, place, layout)
    if item["name"] == "startupProbe":
        return tuple(_startup(part_of(side, where), item["value"]) for side in (raw, made.after))
    if item["target"] == "flag" and not (layout.flags or layout.config or layout.script):
        name = item["name"].lstrip("-").replace("-", "_")
        values = [wording.setting_of(part_of(side, where), layout, name) for side in (raw, made.after)]
        if values[0] != values[1]:
            return tuple(values)
    return _before(made.undo["steps"], item), item["value"]


def part_of(raw, path):
    """The dictionary at a path of an object, empty where there is none."""
    found = value_at(raw, locate(raw, path))
    return found if isinstance(found, dict) else {}


def _strategy(raw, place, layout):
    """The update strategy as plans write it."""
    above, _dot, key = (layout.strategy or "").rpartition(".")
    given = part_of(raw, above).get(key) or {}
    rolling = given.get("rollingUpdate") or given.get("rollingUpdateConfiguration") or {}
    found = {
        "type": given.get("type"),
        "max_surge": rolling.get("maxSurge"),
        "max_unavailable": rolling.get("maxUnavailable"),
    }
    found = {name: value for name, value in found.items() if value is not None}
    if place.kind == "Deployment" and found.get("type") != "Recreate":
        found = {**_ROLLING, **found}
    return found or None


def _startup(container, asked):
    """What a startup probe allows: seconds, or the fields that were asked for."""
    probe = container.get("startupProbe")
    if not probe:
        return None
    if not isinstance(asked, dict):
        seconds = allowance(container)
        return int(seconds) if seconds == int(seconds) else seconds
    fields = {"failureThreshold": PROBE_THRESHOLD, "periodSeconds": PROBE_PERIOD}
    return {name: probe.get(name) or otherwise for name, otherwise in fields.items() if name in asked}


def _before(steps, item):
    """What was before in the steps of one field: the one value of all of them, else that of the step about the field itself."""
    found = [_scalar(step.get("before"), item) for step in steps]
    if len(set(map(repr, found))) == 1:
        return found[0]
    last = item["name"].rpartition(".")[2]
    named = [value for value, step in zip(found, steps) if step["path"].endswith(f".{last}")]
    return named[0] if len(named) == 1 else None


def _scalar(before, item):
    if item["target"] == "env" and isinstance(before, dict):
        return before.get("value", _REFERENCE if "valueFrom" in before else "")
    return None if isinstance(before, (dict, list)) else before
