# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's check of the CPU: no limit, except where it buys exclusive CPUs; with throttle evidence.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change, proof
from ..quantities import quantity_cores
from .checked import Checked
from .commands import command_for, namespace_option

# kubernetes-mixin's CPUThrottlingHigh fires above this share; fewer periods (10 s) than that are no sample.
THROTTLED = 0.25
_MIN_PERIODS = 100

_STEP_CPU = "CPU: no limit on a vLLM container"

# Kinds where taking the CPU limit out of the object isn't enough (workload-kinds section 3, traps 1 and 3).
_KIND_TRAPS = {
    "InferenceService": "KServe merges the limits of its runtime and of the inferenceservice-config ConfigMap in: "
    "copy the ServingRuntime without limits.cpu, and clear cpuLimit there",
    "VLLMRuntime": "its field cpu is request and limit at once: without the limit the request is gone too",
}


def cpu_advice(pod, container, node=None, namespace=None):
    """What to do about a container's CPU limit: ``{recommend, rejected, would_settle}``, or None without a limit.

    For a cause that another rule has found (cpu_throttling by the log's words): whether the limit goes or stays, and
    what demands it, follows from QoS class, CPU manager, quotas and limit ranges in the same way.
    """
    seen = Checked(pod, container, node, namespace)
    limit = quantity_cores(seen.limits.get("cpu"))
    if limit is None:
        return None
    changes, settle, rejected = _cpu_changes(seen, limit, _cpu_manager(seen, limit))
    changes = [
        item if item["command"] else dict(item, command=command_for(item, pod, container)) for item in changes
    ]
    return {"recommend": changes, "rejected": rejected, "would_settle": settle}


def cpu_limit(seen):
    """cpu_limit_set, or cpu_throttling where this container's counters show it; none where it buys exclusive CPUs."""
    limit = quantity_cores(seen.limits.get("cpu"))
    if limit is None:
        return []
    share, throttled_proof = _throttled(seen)
    policy = _cpu_manager(seen, limit)
    if policy == "static" and (share is None or share < THROTTLED):
        return []
    changes, settle, rejected = _cpu_changes(seen, limit, policy)
    proofs = [
        seen.spec_proof(f"container {seen.container['name']}: resources.limits.cpu {seen.limits['cpu']}")
    ]
    if throttled_proof:
        proofs.insert(0, throttled_proof)
    starved = share is not None and share >= THROTTLED
    if starved:
        explanation = (
            f"The CPU limit of {seen.limits['cpu']} stopped all threads of the container in {share:.0%} of "
            "its periods. Tokenizing and launching GPU work wait for it, so the GPU idles and probes time "
            "out."
        )
    else:
        explanation = (
            f"A CPU limit of {seen.limits['cpu']} stops every thread of the container once the quota of a "
            "100 ms period is used. Bursts of tokenizing, weight loading or graph capture then starve the "
            "GPU" + (f"; so far {share:.0%} of the periods were throttled." if share is not None else ".")
        )
    sure = policy in ("none", None) or starved
    return [
        seen.finding(
            "cpu_throttling" if starved else "cpu_limit_set",
            "contributing" if starved else "risk",
            "certain" if sure else "possible",
            proofs,
            explanation,
            _STEP_CPU,
            recommend=changes,
            rejected=rejected,
            would_settle=settle,
            check=_cpu_checks(seen),
        )
    ]


def _cpu_checks(seen):
    prefix = f"kubectl{namespace_option(seen.pod)}"
    name, container = seen.pod["name"], seen.container["name"]
    return [
        f"{prefix} exec {name} -c {container} -- cat /sys/fs/cgroup/cpu.stat",
        f"{prefix} get resourcequota,limitrange -o yaml",
    ]


def _throttled(seen):
    """``(share of throttled periods, proof)``, or (None, None) without enough periods to say."""
    cpu = seen.counters.get("cpu") or {}
    periods, throttled = cpu.get("periods"), cpu.get("throttled")
    if not periods or throttled is None or periods < _MIN_PERIODS:
        return None, None
    text = f"cpu.stat: throttled in {throttled} of {periods} periods ({throttled / periods:.0%})"
    if cpu.get("throttled_seconds") is not None:
        text += f", {cpu['throttled_seconds']:.0f} s in all"
    return throttled / periods, proof("cgroup", seen.where, text)


def _cpu_manager(seen, limit):
    """``static`` or ``none`` where known, ``unknown`` where it may be static, None where it can't matter.

    Exclusive CPUs need Guaranteed QoS and a whole number of CPUs; the policy isn't in the node object, but a
    cpuset of just that size shows it (kubernetes-gpu-facts 6.2).
    """
    request = quantity_cores(seen.requests.get("cpu") or seen.limits.get("cpu"))
    if not _guaranteed(seen) or request != limit or not float(limit).is_integer():
        return None
    kubelet = seen.node.get("kubelet") or {}
    policy = kubelet.get("cpu_manager_policy") or kubelet.get("cpuManagerPolicy")
    if policy in ("static", "none"):
        return policy
    assigned, capacity = _cpuset_size(seen.counters.get("cpuset")), _node_cpus(seen)
    if assigned is not None and capacity is not None:
        if assigned == limit and assigned < capacity:
            return "static"
        if assigned == capacity > limit:
            return "none"
    return "unknown"


def _guaranteed(seen):
    if seen.pod.get("qos"):
        return seen.pod["qos"] == "Guaranteed"
    return all(
        seen.limits.get(name) and seen.requests.get(name, seen.limits[name]) == seen.limits[name]
        for name in ("cpu", "memory")
    )


def _node_cpus(seen):
    return quantity_cores((seen.node.get("capacity") or {}).get("cpu"))


def _cpuset_size(text):
    """How many CPUs a cpuset names (``0-3,8`` -> 5), or None."""
    if not text:
        return None
    count = 0
    for part in str(text).split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        count += int(last or first) - int(first) + 1
    return count


def _cpu_changes(seen, limit, policy):
    """``(recommended, would_settle, rejected)`` for a CPU limit."""
    keep_request = change(
        "k8s",
        "resources.requests.cpu",
        "remove",
        why="a request never throttles; it keeps the share of a busy node",
    )
    threads = _thread_changes(seen, limit)
    if policy == "static":
        raise_both = change(
            "k8s",
            "resources.limits.cpu",
            "increase",
            why="the static CPU manager gives exclusive CPUs for it: keep limit = request, with more CPUs; "
            "from Kubernetes 1.33 the quota isn't enforced on exclusive CPUs",
            with_=["resources.requests.cpu"],
        )
        remove = change(
            "k8s", "resources.limits.cpu", "remove", why="it would lose the exclusive CPUs next to the GPU"
        )
        return [raise_both, *threads], [], [remove, keep_request]
    if policy == "unknown":
        keep = change(
            "k8s",
            "resources.limits.cpu",
            "keep",
            seen.limits["cpu"],
            "Guaranteed QoS with whole CPUs: under the static CPU manager this limit buys exclusive CPUs",
        )
        node = seen.pod.get("node") or "NODE"
        settle = [
            f"the kubelet's policy: kubectl get --raw /api/v1/nodes/{node}/proxy/configz | jq "
            ".kubeletconfig.cpuManagerPolicy (static: keep the limit; none: remove it, keep the request)",
            "cpuset.cpus.effective in the container: as many CPUs as requested means static",
        ]
        return [keep, *threads], settle, [keep_request]
    first, needed = _namespace_demands(seen)
    why = "nothing may stop the engine's threads; the request keeps its share of the CPUs"
    trap = _KIND_TRAPS.get(((seen.pod.get("workload") or {}).get("edit") or {}).get("kind") or "")
    if trap:
        why += f". {trap}"
    if seen.pod.get("qos") == "Guaranteed":
        why += (
            ". The pod becomes Burstable: keep the memory request equal to the memory limit if that matters"
        )
    removal = change("k8s", "resources.limits.cpu", "remove", why=why, with_=needed)
    kept = []
    if not seen.requests.get("cpu") or quantity_cores(seen.requests["cpu"]) is None:
        kept.append(
            change(
                "k8s",
                "resources.requests.cpu",
                "set",
                seen.limits["cpu"],
                "so far the request was a copy of the limit; without the limit it must be stated",
            )
        )
    return [*first, removal, *kept, *threads], [], [keep_request]


def _namespace_demands(seen):
    """Changes that must come first because the namespace demands or re-adds CPU limits, and their names."""
    changes = []
    for quota in seen.namespace.get("quotas") or []:
        if "limits.cpu" in (quota.get("hard") or {}) and "Terminating" not in (quota.get("scopes") or []):
            changes.append(
                _first(
                    seen,
                    "resourcequota",
                    quota["name"],
                    "limits.cpu",
                    "pods without a CPU limit are refused by it",
                )
            )
    for limit_range in seen.namespace.get("limit_ranges") or []:
        for item in limit_range.get("limits") or []:
            if item.get("type") not in ("Container", "Pod"):
                continue
            if "cpu" in (item.get("default") or {}):
                changes.append(
                    _first(
                        seen,
                        "limitrange",
                        limit_range["name"],
                        "default.cpu",
                        "it adds a CPU limit to every new pod",
                    )
                )
            if "cpu" in (item.get("max") or {}):
                changes.append(
                    _first(
                        seen,
                        "limitrange",
                        limit_range["name"],
                        "max.cpu",
                        "it refuses pods without a CPU limit",
                    )
                )
    limit_ranger = _mutation(seen, "LimitRange")
    if limit_ranger and "cpu limit" in limit_ranger and not changes:
        # The namespace's objects may be unreadable; the pod's own annotation says who set the limit.
        changes.append(
            _first(seen, "limitrange", None, "default.cpu", "the LimitRanger plugin set this pod's CPU limit")
        )
    if _mutation(seen, "VerticalPodAutoscaler"):
        changes.append(
            _first(
                seen,
                "vpa",
                None,
                "controlledValues",
                "it rewrites the limits of new pods unless controlledValues is RequestsOnly",
            )
        )
    return changes, [item["name"] for item in changes]


def _mutation(seen, tool):
    """What an admission tool says that it changed on this pod (the evidence's ``mutations``), or None."""
    found = [item["text"] or "" for item in seen.pod.get("mutations") or [] if item["tool"] == tool]
    return " ".join(found) if found else None


def _first(seen, kind, name, field, why):
    """A change of what stands above the pod. name: None where only its trace on the pod is known."""
    command = f"kubectl{namespace_option(seen.pod)} " + (
        f"edit {kind}/{name}" if name else f"get {kind} -o yaml"
    )
    return change(
        "k8s",
        f"{kind}/{name}.{field}" if name else f"{kind}.{field}",
        "remove",
        why=f"change this first: {why}",
        command=command,
    )


def _thread_changes(seen, limit):
    """Thread pools are sized from the CPUs they see, not from the quota."""
    threads = seen.env("OMP_NUM_THREADS")
    whole = max(1, int(limit))
    if threads is not None and str(threads).isdigit() and int(threads) > limit:
        return [
            change(
                "env", "OMP_NUM_THREADS", "decrease", whole, "more threads than CPUs use the quota up at once"
            )
        ]
    if seen.on_cpu and threads is None and not seen.env("VLLM_CPU_OMP_THREADS_BIND"):
        return [
            change("env", "OMP_NUM_THREADS", "set", whole, "OpenMP starts a thread for every CPU of the node")
        ]
    return []
