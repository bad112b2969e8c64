# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CHANGE as one operation on one flag, environment variable or field: set or remove, before and after.

``before`` is what the evidence shows, with secrets redacted: nothing that is written may come from it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..engine.flags import is_secret
from ..quantities import parse_quantity
from .costs import rolling, shown_strategy

# Flags that say off what they name: ``--no-enable-prefix-caching`` is the setting ``enable_prefix_caching``.
_NEGATED = "--no-"
_ALLOCATOR = re.compile(r"PYTORCH_(CUDA_|HIP_)?ALLOC_CONF")
_PROBES = {"startupProbe": "startup", "livenessProbe": "liveness"}
_PROBE_FIELDS = {"failureThreshold": "failure_threshold", "periodSeconds": "period_seconds"}
# A start that a probe cut off needs more than it was given; how much more nothing tells.
_LONGER = 2
# Fields that the workload module sets; the rest is a person's.
_WRITTEN = ("volumes.shm", "volumes.shm.sizeLimit", "startupProbe", "strategy", "image")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_NOTHING_SAYS = "nothing says how much"


class Operation(NamedTuple):
    """change: a CHANGE with container, action, before, after, or None with the reason in refused."""

    change: dict | None
    refused: str | None = None


def operation(item, pod, container):
    """The Operation of the CHANGE ``item`` on a container of the evidence's ``pod``."""
    if item["direction"] == "keep":
        return Operation(None, "it is to stay as it is")
    if item["proof"] == "none":
        return Operation(None, "nothing proves it")
    if item["target"] == "action":
        return Operation(_made(item, container, None, None, None))
    if item["target"] == "env" and is_secret(item["name"]):
        return Operation(None, "it is a secret, which no plan sets")
    if item["target"] == "k8s" and not _is_written(item["name"]):
        return Operation(_made(item, container, None, None, None))
    if item["name"] == "strategy":
        return _strategy(item, pod, container)
    before = _before(item, pod, container)
    if item["direction"] == "remove":
        if before is None and item["target"] != "flag":
            return Operation(None, "it isn't set")
        return Operation(_made(item, container, "remove", before, None))
    after = _after(item, before)
    if after is None or "…" in str(after):
        return Operation(None, _NOTHING_SAYS)
    if _same(before, after):
        return Operation(None, "it is in force already")
    if _backwards(item["direction"], before, after):
        return Operation(None, f"{before} is in force, which is beyond it")
    return Operation(_made(item, container, "set", before, after))


def _is_written(name):
    first, _dot, resource = name.partition(".limits.") if ".limits." in name else name.partition(".requests.")
    if first == "resources":
        # Other resources have a vendor's name before a slash.
        return resource in _RESOURCES or "/" in resource
    return name in _WRITTEN


def _strategy(item, pod, container):
    """Recreate is for the only replica of a Deployment; several restart one after the other."""
    workload = pod.get("workload") or {}
    if (workload.get("edit") or {}).get("kind") != "Deployment":
        return Operation(None, "only a Deployment surges; others delete a pod before they make the next")
    wanted = rolling((workload.get("replicas") or {}).get("desired"))
    before = shown_strategy(workload.get("strategy"))
    if before is not None and wanted.items() <= before.items():
        return Operation(None, "it is in force already")
    return Operation(_made(item, container, "set", before, wanted))


def _made(item, container, action, before, after):
    named = dict(item, container=(container or {}).get("name"), action=action, before=before, after=after)
    if item["target"] == "flag":
        named["name"] = "--" + item["name"].lstrip("-").replace("_", "-")
    if after is not None and not isinstance(after, bool):
        named["value"] = after
    return named


def _before(item, pod, container):
    container = container or {}
    name = item["name"]
    if item["target"] == "flag":
        return _setting(container, name)
    if item["target"] == "env":
        found = [entry.get("value") for entry in container.get("env") or [] if entry.get("name") == name]
        return found[-1] if found else None
    if name.startswith("resources."):
        _resources, bound, resource = name.split(".", 2)
        return ((container.get("resources") or {}).get(bound) or {}).get(resource)
    if name in _PROBES:
        probe = (container.get("probes") or {}).get(_PROBES[name])
        return probe and {field: probe.get(key) for field, key in _PROBE_FIELDS.items()}
    shm = pod.get("shm") or {}
    return {
        "volumes.shm.sizeLimit": shm.get("size_limit"),
        "image": container.get("image"),
    }.get(name)


def _setting(container, flag):
    """The flag's value in force where somebody set it; None where it is vLLM's default."""
    settings = container.get("settings") or {}
    option = flag.lstrip("-").replace("-", "_")
    negated = flag.startswith(_NEGATED) and option not in settings
    found = settings.get(option[len("no_") :] if negated else option) or {}
    if found.get("from") == "default" or found.get("value") is None:
        return None
    return not found["value"] if negated and isinstance(found["value"], bool) else found["value"]


def _after(item, before):
    value = item["value"]
    if item["target"] == "flag":
        if value is None and item["direction"] == "add":
            return True
        return value
    if item["target"] == "env" and value is not None:
        # The allocator's options are a list in one variable.
        return _merged(before, str(value)) if before and _ALLOCATOR.fullmatch(item["name"]) else str(value)
    if item["name"] in _PROBES and value is not None:
        return _probe(item, str(value), before)
    return value


def _merged(before, option):
    """The allocator's options with one more, in the place of another value of the same."""
    name = option.partition(":")[0]
    kept = [part for part in before.split(",") if part.partition(":")[0].strip() != name]
    return ",".join([*kept, option])


def _probe(item, text, before):
    """``failureThreshold: 60, periodSeconds: 10`` as fields; to increase: at least twice what was allowed."""
    fields = {}
    for part in text.split(","):
        name, _colon, number = part.partition(":")
        if not number.strip().isdigit():
            return None
        fields[name.strip()] = int(number)
    threshold, period = ((before or {}).get(name) for name in _PROBE_FIELDS)
    if item["direction"] == "increase" and threshold and period and set(fields) == set(_PROBE_FIELDS):
        wanted = max(fields["failureThreshold"] * fields["periodSeconds"], _LONGER * threshold * period)
        fields = {"failureThreshold": int(-(-wanted // period)), "periodSeconds": int(period)}
    return fields


def _same(before, after):
    if before == after:
        return True
    if before is None:
        return False
    pair = [_number(value) for value in (before, after)]
    return None not in pair and pair[0] == pair[1]


def _backwards(direction, before, after):
    pair = [_number(value) for value in (before, after)]
    if before is None or None in pair:
        return False
    return (
        pair[1] < pair[0]
        if direction == "increase"
        else pair[1] > pair[0]
        if direction == "decrease"
        else False
    )


def _number(value):
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return parse_quantity(value) if isinstance(value, str) else None
