# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the namespace lets in a pod of the changed template: quotas, limit ranges and policies speak only at pods.

A bare pod is created as a dry run. What its quota says counts the pods that run now; where the rollout deletes one before
it makes the next, its share is taken off.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import NamedTuple

from ..evidence.client import ApiError
from ..quantities import parse_quantity, show_bytes
from ..remediation.json_patch import copied
from .rights import pods_place

_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.*?), used: (?P<used>.*?), limited: (?P<hard>.*)"
)
_PAIR = re.compile(r"([^=,\s]+)=([^,\s]+)")
_PODS = ("pods", "count/pods")
# Kinds with one pod template -> its path's keys.
_TEMPLATE = ("spec", "template")


class Said(NamedTuple):
    """refused: the sentence that pods of the template wouldn't come, or None; notes: what else is to be said."""

    refused: str | None
    notes: list[str]


def pod_of(raw):
    """A bare pod made from the object's pod template, or None where it has none."""
    spec = raw.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance((template.get("spec") or {}).get("containers"), list):
        return None
    about = template.get("metadata") or {}
    pod_spec = copied(template["spec"])
    claims = [item.get("metadata", {}).get("name") for item in spec.get("volumeClaimTemplates") or []]
    if claims:
        # A StatefulSet adds them to each of its pods.
        own = [item for item in pod_spec.get("volumes") or [] if item.get("name") not in claims]
        name = (raw.get("metadata") or {}).get("name")
        pod_spec["volumes"] = own + [
            {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}} for claim in claims
        ]
    metadata = {name: copied(about[name]) for name in ("labels", "annotations") if about.get(name)}
    metadata["generateName"] = f"{str((raw.get('metadata') or {}).get('name'))[:40]}-dry-run-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def ask_for_pod(writer, place, before, after):
    """``Said`` of a pod of the template as it is ``after``; before: the object as it is now, both raw."""
    pod = pod_of(after)
    if pod is None:
        return Said(None, [])
    refusal = _refusal(writer, place, pod)
    if refusal is None:
        return Said(None, [])
    if refusal.status == 403 and "cannot create resource" in refusal.message:
        return Said(None, [unasked(place)])
    quota = _QUOTA.search(refusal.message)
    if quota:
        return _of_quota(quota, before, after)
    old = pod_of(before)
    known = _refusal(writer, place, old) if old else None
    if known is not None and _same_words(known.message, refusal.message):
        return Said(
            None,
            [
                f"namespace {place.namespace} refuses a pod of the template as it is now with the same words, so this says nothing"
                f" about the change: {_words(refusal)}"
            ],
        )
    return Said(f"namespace {place.namespace} would refuse its pods: {_words(refusal)}", [])


def unasked(place):
    """The sentence that nobody was asked whether pods are let in."""
    return (
        "whether quotas, limit ranges and policies let its pods in was not asked: needs"
        f" {pods_place(place).right('create')}"
    )


def _refusal(writer, place, pod):
    try:
        writer.ask(pods_place(place).listing, pod, [("dryRun", "All")])
    except ApiError as error:
        if error.status is None or error.status == 401:
            raise
        return error
    return None


def _same_words(one, other):
    """Whether two refusals say the same of two pods, whose generated names differ."""
    name = re.compile(r"-dry-run-\w*")
    return name.sub("", one) == name.sub("", other)


def _words(error):
    return re.sub(r'^pods "[^"]*" is forbidden: |^Pod "[^"]*" is invalid: ', "", error.message)


# --- quotas


def _of_quota(quota, before, after):
    """What the quota's numbers mean once the pods that run now are taken off, as far as the rollout deletes them first."""
    asked, used, hard = (dict(_PAIR.findall(quota.group(part))) for part in ("asked", "used", "hard"))
    freed, how = freed_first(after)
    mine = usage_of(pod_of(before) or {})
    short = [name for name in asked if _left(name, used, hard, mine, freed) < _number(asked[name])]
    name = quota.group("name")
    if not short:
        share = ", ".join(f"{key}={_shown(key, mine.get(key, 0) * freed)}" for key in sorted(asked))
        return Said(
            None,
            [
                f"quota {name} is full with the pods that run now, but the rollout deletes them first ({how}), which frees {share}"
            ],
        )
    told = ", ".join(
        f"{key}: a pod asks for {asked[key]}, {used.get(key)} of {hard.get(key)} are used"
        for key in sorted(short)
    )
    more = (
        f", of which the rollout frees {_shown(short[0], mine.get(short[0], 0) * freed)} first"
        if freed
        else ""
    )
    return Said(
        f"ResourceQuota {name} would refuse its pods ({told}{more}): raise the quota first, or ask for less",
        [],
    )


def _left(name, used, hard, mine, freed):
    return _number(hard.get(name)) - _number(used.get(name)) + mine.get(name, Decimal(0)) * freed


def _number(text):
    return parse_quantity(text) or Decimal(0)


def _shown(name, number):
    return show_bytes(int(number)) if "memory" in name or "storage" in name else f"{number.normalize():f}"


def freed_first(raw):
    """``(pods, how)``: how many pods that run now are deleted before the first new one is made."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    kind = raw.get("kind")
    if kind == "Deployment":
        now = status.get("replicas") or 0
        strategy = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return now, "strategy Recreate"
        rolling = strategy.get("rollingUpdate") or {}
        desired = spec.get("replicas", 1) or 0
        if _share(rolling.get("maxSurge", "25%"), desired, math.ceil) == 0:
            gone = max(1, _share(rolling.get("maxUnavailable", "25%"), desired, math.floor))
            return min(now, gone), "maxSurge 0"
        return 0, "it surges"
    if kind == "StatefulSet":
        return min(status.get("replicas") or 0, 1), "a StatefulSet deletes a pod before it makes the next"
    if kind == "DaemonSet":
        rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        if str(rolling.get("maxSurge", 0)) in ("0", "0%"):
            return min(status.get("currentNumberScheduled") or 0, 1), "maxSurge 0"
    return 0, "nothing is known to be deleted first"


def _share(value, replicas, rounded):
    text = str(value)
    if text.endswith("%"):
        return rounded(int(text[:-1]) * replicas / 100)
    return int(text)


def usage_of(pod):
    """What a pod counts in a quota: ``{requests.memory, limits.memory, memory, pods, ...}`` as Decimals.

    Requests that aren't given are those of the limits; init containers count where one of them is larger.
    """
    spec = pod.get("spec") or {}
    found: dict[str, Decimal] = {}
    for side in ("requests", "limits"):
        running = _sum(spec.get("containers"), side)
        for item in spec.get("initContainers") or []:
            for name, size in _sizes(item, side).items():
                running[name] = max(running.get(name, Decimal(0)), size)
        for name, size in running.items():
            found[f"{side}.{name}"] = size
            if side == "requests":
                found[name] = size
    found.update(dict.fromkeys(_PODS, Decimal(1)))
    return found


def _sum(containers, side):
    total: dict[str, Decimal] = {}
    for item in containers or []:
        for name, size in _sizes(item, side).items():
            total[name] = total.get(name, Decimal(0)) + size
    return total


def _sizes(container, side):
    resources = container.get("resources") or {}
    given = dict(resources.get("limits") or {}) if side == "requests" else {}
    given.update(resources.get(side) or {})
    return {name: _number(size) for name, size in given.items()}
