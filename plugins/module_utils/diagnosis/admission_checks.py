# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server will refuse of a manifest: a memory limit that is no quantity, more than a quota or limit range allows.

A pod that exists was admitted; these checks are for pods that nobody has created yet.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import change
from ..quantities import parse_quantity

_STEP = "Admission: quantities that can be read, within the namespace's quotas and limit ranges"
# What Kubernetes counts under a plain name; without a request of it a quota refuses the pod.
_PLAIN = ("cpu", "memory")


def will_be_refused(seen):
    """admission_rejected as a risk, one finding for each reason; none for a pod that was admitted."""
    if not seen.is_planned:
        return []
    reasons = [_unreadable(seen), *_over_quota(seen), *_over_maximum(seen)]
    return [_finding(seen, *reason) for reason in reasons if reason]


def _finding(seen, text, explanation, recommend):
    return seen.finding(
        "admission_rejected",
        "risk",
        "certain",
        [seen.spec_proof(text)],
        explanation,
        _STEP,
        recommend=recommend,
    )


def _unreadable(seen):
    written = seen.written_limit
    if not written or seen.memory_limit is not None:
        return None
    meant = re.sub(r"(?<=[KMGTPE])(i?)B$", r"\1", str(written).strip())
    value = meant if parse_quantity(meant) is not None else None
    return (
        f"container {seen.container['name']}: memory limit {written}",
        f"The memory limit {written} can't be read: it is no Kubernetes quantity, and the API server refuses the pod. "
        "Whether it is large enough isn't known.",
        [
            change(
                "k8s",
                "resources.limits.memory",
                "set",
                value,
                "a Kubernetes quantity, such as 64Gi or 64G",
                "rule",
            )
        ],
    )


def _over_quota(seen):
    for quota in seen.namespace.get("quotas") or []:
        if quota.get("scopes"):
            continue
        for name, hard in sorted((quota.get("hard") or {}).items()):
            asked = _asked(seen, name)
            most = parse_quantity(hard)
            if asked is None or most is None or asked <= most:
                continue
            yield (
                f"pod asks for {_shown(asked, name)} of {name}; ResourceQuota/{quota['name']} allows {hard}",
                f"The quota {quota['name']} of its namespace allows {hard} of {name}, and one pod asks for "
                f"{_shown(asked, name)}: no pod of it is created.",
                [
                    change(
                        "k8s", f"resourcequota/{quota['name']}.{name}", "increase", why="one pod needs more"
                    ),
                ],
            )


def _asked(seen, name):
    """What the pod's containers ask of a quota's ``name`` (``requests.nvidia.com/gpu``, ``limits.memory``, ``cpu``) in all."""
    kind, dot, resource = name.partition(".")
    if kind not in ("requests", "limits") or not dot:
        kind, resource = "requests", name
    if resource in _PLAIN or kind == "limits" or "/" in resource:
        found = [_quantity(item, kind, resource) for item in seen.pod["containers"] if item["role"] != "init"]
        known = [value for value in found if value is not None]
        return sum(known) if known else None
    return None


def _quantity(container, kind, resource):
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    given = (resources.get(kind) or {}).get(resource)
    return parse_quantity(given if given is not None or kind == "limits" else limits.get(resource))


def _shown(number, name):
    if name.endswith("memory"):
        return f"{number / 1024**3:.2f} GiB"
    return f"{number.normalize():f}"


def _over_maximum(seen):
    limits = seen.limits
    for limit_range in seen.namespace.get("limit_ranges") or []:
        for item in limit_range.get("limits") or []:
            if item.get("type") != "Container":
                continue
            for name, most in sorted((item.get("max") or {}).items()):
                given, maximum = parse_quantity(limits.get(name)), parse_quantity(most)
                if given is None or maximum is None or given <= maximum:
                    continue
                yield (
                    f"container {seen.container['name']}: limits.{name} {limits[name]}; LimitRange/{limit_range['name']} "
                    f"allows {most}",
                    f"The limit range {limit_range['name']} of its namespace allows a container {most} of {name} at most: "
                    "no pod of it is created.",
                    [
                        change(
                            "k8s",
                            f"limitrange/{limit_range['name']}.max.{name}",
                            "increase",
                            why="it needs more",
                        )
                    ],
                )
