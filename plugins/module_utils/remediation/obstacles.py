# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands against a change whatever is allowed: the object's state, the namespace, the node, replicas that serve.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from ..quantities import GIB, parse_quantity, quantity_bytes, show_bytes
from ..times import parse_time
from .costs import SLICE, is_gpu
from .edited import object_name
from .wording import run_name


def of_object(pods, collected_at=None, run=None):
    """Sentences, why nothing of the object may be written now: paused, a rollout or a run of somebody else's goes on.

    pods: of the evidence, those that failed, or all where none did; collected_at: of the evidence, the time that counts; run:
    the id of the run that asks. Where a pod of the newest revision is among them, older ones are no obstacle.
    """
    found = []
    newest = [pod for pod in pods if not is_old(pod)]
    for pod in newest or pods:
        workload = pod.get("workload") or {}
        name = _name(workload)
        if workload.get("paused"):
            found.append(f"{name} is paused: resume it, or ask who paused it, before it is changed")
        current = [item["revision"] for item in workload.get("revisions") or [] if item.get("current")]
        if not current and _unfinished(workload.get("replicas") or {}):
            found.append(
                f"a rollout of {name} hasn't ended, and whether the pod is of the newest revision isn't known: wait for it"
            )
        elif is_old(pod):
            revision = workload["revisions"][-1]["revision"]
            found.append(
                f"{pod['name']} isn't of {name}'s newest revision {revision}: wait for that rollout and diagnose its pods"
            )
        found += _held(workload, collected_at, run)
    return _once(found)


def _name(workload):
    return object_name(workload.get("edit") or workload)


def _held(workload, collected_at, run):
    """The sentence on a run of this collection that is at work at the object, and on its annotations that can't be read."""
    own = workload.get("own_change") or {}
    found = [f"{_name(workload)}: {problem}" for problem in own.get("problems") or []]
    now, until = parse_time(collected_at), parse_time(own.get("until"))
    if until is None or own["run"] == run or (now is not None and until <= now):
        return found
    host = f" on {own['host']}" if own.get("host") else ""
    return [
        *found,
        f"another run ({own['run']}{host}) changed {_name(workload)} at {own['at']} and watches it until {own['until']}: wait for it",
    ]


def left_behind(workload, collected_at):
    """The sentence on a change of this collection that nobody watched to its end, in a list."""
    own = (workload or {}).get("own_change") or {}
    now, until = parse_time(collected_at), parse_time(own.get("until"))
    if until is None or now is None or until > now or own.get("verdict") is not None:
        return []
    return [
        f"{run_name(own['run'])} changed {_name(workload)} at {own['at']} and ended before it said what came of it: the change is in force"
    ]


def _unfinished(replicas):
    return (
        None not in (replicas.get("desired"), replicas.get("updated"))
        and replicas["updated"] < replicas["desired"]
    )


def is_old(pod):
    """Whether a newer revision than the pod's exists: what failed may be changed by it already."""
    revisions = (pod.get("workload") or {}).get("revisions") or []
    marked = [item for item in revisions if item.get("current")]
    return bool(marked) and marked[-1] is not revisions[-1]


def of_operation(operation, pod, namespace, node, pods):
    """Sentences, what must change before ``operation``.

    namespace, node: of the evidence, empty where not read; pods: how many run with the changed template.
    """
    if operation["name"] == "--cpu-offload-gb" and operation["action"] == "set":
        return _over_host(operation, node)
    if operation["target"] != "k8s" or not operation["name"].startswith("resources."):
        return []
    _resources, bound, resource = operation["name"].split(".", 2)
    found = _autoscaled(operation, pod)
    if operation["action"] == "remove":
        return found + (_demanded(resource, namespace) if bound == "limits" else [])
    if resource.startswith(SLICE):
        return [f"slices of a GPU ({resource}) don't work together: it takes a larger slice, or whole GPUs"]
    if is_gpu(resource) and (node.get("gpu") or {}).get("unified") and _amount(operation["after"]) > 1:
        return [
            "a GPU that shares its memory with the host is the only one of its node: it takes another machine"
        ]
    after = _amount(operation["after"])
    if after > _amount(operation["before"]):
        found += [item.why for item in ceilings(operation, namespace, node, pods) if after > item.most]
    return found


class Ceiling(NamedTuple):
    """How much of a resource a container may have. most: the number; by: what bounds it, in words; why: the sentence that
    refuses more."""

    most: Decimal
    by: str
    why: str


def ceilings(operation, namespace, node, pods):
    """The Ceilings of a request or limit: of the node, the namespace's quotas and its limit ranges.

    operation: ``{name, before, after}``; namespace, node, pods: as for ``of_operation``. What other pods reserve on the node
    isn't in the evidence, so it isn't taken off.
    """
    _resources, bound, resource = operation["name"].split(".", 2)
    return [
        *_of_node(operation, resource, node),
        *_of_quotas(operation, bound, resource, namespace, pods),
        *_of_ranges(resource, namespace),
    ]


def _amount(value):
    return parse_quantity(value) or Decimal(0)


def _autoscaled(operation, pod):
    return [
        f"VerticalPodAutoscaler {item['name']} sets the resources of new pods: change it there"
        for item in (pod.get("workload") or {}).get("autoscalers") or []
        if item.get("kind") == "VerticalPodAutoscaler" and item.get("mode") != "Off"
    ]


def _demanded(resource, namespace):
    """Quotas that refuse pods without this limit, limit ranges that add it again or refuse them."""
    found = [
        f"ResourceQuota {quota['name']} demands limits.{resource}: pods without it are refused; change the quota first"
        for quota in namespace.get("quotas") or []
        if f"limits.{resource}" in (quota.get("hard") or {})
        and "Terminating" not in (quota.get("scopes") or [])
    ]
    for limit_range, item in _ranges(namespace):
        if resource in (item.get("default") or {}):
            found.append(
                f"LimitRange {limit_range} adds a limit of {item['default'][resource]} {resource} to new pods: change it first"
            )
        elif resource in (item.get("max") or {}):
            found.append(
                f"LimitRange {limit_range} refuses pods without a limit of {resource}: change it first"
            )
    return found


def _ranges(namespace):
    for limit_range in namespace.get("limit_ranges") or []:
        for item in limit_range.get("limits") or []:
            if item.get("type") in ("Container", "Pod"):
                yield limit_range["name"], item


def _of_node(operation, resource, node):
    allocatable = (node.get("allocatable") or {}).get(resource)
    if allocatable is None:
        return
    size = _shown(resource, allocatable)
    why = f"{operation['name']} of {operation['after']} is more than the node's allocatable {size}"
    yield Ceiling(_amount(allocatable), f"the node's allocatable {size}", why)


def _over_host(operation, node):
    """What moves to the host is each GPU's share: at least that much memory the node must have."""
    memory = quantity_bytes((node.get("allocatable") or {}).get("memory"))
    if memory is None or operation["after"] * GIB <= memory:
        return []
    return [
        f"{operation['after']:g} GiB of weights are more than the node's allocatable memory, {show_bytes(memory)}"
    ]


def _of_quotas(operation, bound, resource, namespace, pods):
    """What a quota has left is shared by the pods that grow."""
    names = (f"{bound}.{resource}", resource) if bound == "requests" else (f"{bound}.{resource}",)
    if is_gpu(resource):
        names = (f"requests.{resource}",)
    for quota in namespace.get("quotas") or []:
        for name in names:
            hard, used = (quota.get("hard") or {}).get(name), (quota.get("used") or {}).get(name)
            if hard is None:
                continue
            most = _amount(operation["before"]) + (_amount(hard) - _amount(used)) / max(pods, 1)
            by = f"ResourceQuota {quota['name']}"
            yield Ceiling(most, by, f"{by} has {name} {hard}, of which {used or 0} are used: raise it first")


def _of_ranges(resource, namespace):
    for name, item in _ranges(namespace):
        most = (item.get("max") or {}).get(resource)
        if most is not None:
            by = f"LimitRange {name}"
            yield Ceiling(_amount(most), by, f"{by} allows {most} of {resource} at most")


def of_ratios(operations, pod, namespace):
    """Sentences, which limit ranges refuse new pods for how far a limit is above its request. operations: those of one step."""
    found = []
    for name, item in _ranges(namespace):
        for resource, ratio in (item.get("maxLimitRequestRatio") or {}).items():
            changed = {
                (operation["container"], operation["name"].split(".", 2)[1]): operation["after"]
                for operation in operations
                if operation["target"] == "k8s"
                and operation["name"] in (f"resources.limits.{resource}", f"resources.requests.{resource}")
            }
            for limit, request in _limits_and_requests(changed, resource, pod, item["type"]):
                if limit is None:
                    found.append(
                        f"LimitRange {name} refuses pods without a limit of {resource}: change it first"
                    )
                elif limit > _amount(ratio) * request:
                    found.append(
                        f"LimitRange {name} allows a limit of {resource} of {ratio} times its request at most, and {_size(resource, limit)} "
                        f"would be more than that of {_size(resource, request)}: raise the request, too, or change the LimitRange first"
                    )
    return found


def _limits_and_requests(changed, resource, pod, kind):
    """``(limit, request)`` of each container that is changed, or of the whole pod (kind ``Pod``); limit: None where there is none.

    changed: ``{(container, "limits" or "requests"): the new value}``. Without a request the limit is the request.
    """
    containers = [
        item
        for item in pod.get("containers") or []
        if kind == "Pod" or item["name"] in {name for name, _bound in changed}
    ]
    pairs = []
    for container in containers if changed else []:
        resources = container.get("resources") or {}
        limit, request = (
            changed.get((container["name"], bound), (resources.get(bound) or {}).get(resource))
            for bound in ("limits", "requests")
        )
        if (container.get("role") or "main") == "main":
            pairs.append((parse_quantity(limit), parse_quantity(limit if request is None else request)))
    if kind != "Pod" or not pairs:
        return pairs
    limits = [limit for limit, _request in pairs]
    return [(None if None in limits else sum(limits), sum(request or 0 for _limit, request in pairs))]


def _size(resource, amount):
    return show_bytes(int(amount or 0)) if resource == "memory" else f"{amount or 0:g}"


def _shown(resource, quantity):
    return show_bytes(quantity_bytes(quantity)) if resource == "memory" else str(quantity)


def serving_template(finding, judged):
    """The sentence that refuses a template's change because the same template serves elsewhere, in a list.

    judged: the diagnosis' ``workloads`` entry of the pod, or None. What failed at start on one node only isn't the
    template's fault; what fails while serving may be.
    """
    if judged is None or judged.get("template_suspect") is not False:
        return []
    if finding["role"] != "trigger" or finding["phase"] == "serving":
        return []
    names = ", ".join(judged.get("serving") or []) or "other replicas"
    return [
        f"{names} serve with the same template, so it isn't the first suspect: look at this pod's node, GPU and volumes first"
    ]


def _once(texts):
    return list(dict.fromkeys(texts))
