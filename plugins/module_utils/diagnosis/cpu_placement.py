# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the container's CPUs are: next to its GPUs or across the socket; and how many threads run on them.

Shared facts "kubernetes-gpu-facts" 4.2, 6.2 and 8.3. The share of throttled periods is ``cpu_checks``'.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change, proof
from ..quantities import quantity_cores
from .advice_parts import STEP_CPU, action, env_change
from .nccl_seen import NcclSeen

_NO_CPU_LIMIT = change(
    "k8s",
    "resources.limits.cpu",
    "add",
    why="only with Guaranteed QoS, whole CPUs and the static CPU manager does a limit buy CPUs next to the GPU",
)


def placement_findings(pod, container, node=None):
    """Findings about the CPUs of an engine's container: none where they lie next to its GPUs, or where that isn't known.

    node: the evidence's entry of the pod's node, with what it says about its GPUs' CPUs (topology.affinity, cpu.numa).
    """
    if not container.get("engine"):
        return []
    seen = NcclSeen(pod, container, node)
    return [*_far_cpus(seen), *_threads(seen)]


def cpu_set(text):
    """The CPUs of a list such as ``0-3,8`` as a set, or None where the text is none."""
    found: set[int] = set()
    for part in str(text or "").split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
            return None
        if len(last) > 6 or int(first) > int(last):
            return None
        found.update(range(int(first), int(last) + 1))
    return found


def _numa_of(seen, cpus):
    """Names of the NUMA nodes that hold any of ``cpus``, in order."""
    nodes = (seen.node.get("cpu") or {}).get("numa") or {}
    return sorted((name for name, text in nodes.items() if (cpu_set(text) or set()) & cpus), key=_number)


def _number(name):
    return (len(str(name)), str(name))


def _gpu_cpus(seen):
    """``{GPU: its CPUs}`` of this container's GPUs; empty where they or their CPUs aren't known."""
    affinity = (seen.node.get("topology") or {}).get("affinity") or {}
    known = {name: cpu_set((affinity.get(name) or {}).get("cpus")) for name in seen.own_gpus or []}
    return {name: cpus for name, cpus in known.items() if cpus}


def _far_cpus(seen):
    own, gpus = cpu_set(seen.counters.get("cpuset")), _gpu_cpus(seen)
    if not own or not gpus:
        return []
    everything = set().union(*(cpu_set(text) or set() for text in _all_numa(seen)))
    if everything and own >= everything:
        # The container may run anywhere: the scheduler of the kernel keeps threads near their memory.
        return []
    far = [name for name, cpus in gpus.items() if not cpus & own]
    if not far:
        return []
    nodes = ", ".join(_numa_of(seen, own)) or "another socket"
    near = ", ".join(_numa_of(seen, set().union(*(gpus[name] for name in far)))) or "theirs"
    return [
        seen.finding(
            "not_memory_config",
            "risk",
            "certain" if len(far) == len(gpus) else "likely",
            [
                proof(
                    "cgroup",
                    seen.where,
                    f"cpuset of the container: {seen.counters['cpuset']} (NUMA node {nodes})",
                ),
                proof(
                    "node",
                    f"Node/{seen.pod.get('node')}",
                    f"CPUs next to {', '.join(far)}: {seen.node['topology']['affinity'][far[0]]['cpus']} (NUMA node {near})",
                ),
            ],
            "The container's exclusive CPUs lie on another socket than its GPUs: copies to and from the GPU, pinned memory and the "
            "launching of work all cross the socket. Nothing runs out of memory; it is slower, and timeouts come earlier.",
            STEP_CPU,
            recommend=[
                change(
                    "k8s",
                    "kubelet.topologyManagerPolicy",
                    "set",
                    "single-numa-node"
                    if len(_numa_of(seen, set().union(*gpus.values()))) < 2
                    else "restricted",
                    "the kubelet then gives CPUs and GPUs of one NUMA node together; static CPU manager and whole CPUs needed",
                    command="the node's kubelet configuration: topologyManagerPolicy, then restart the kubelet and recreate the pod",
                ),
                action("recreate_pod", "exclusive CPUs are given out when a pod starts, and stay"),
            ],
            rejected=[_NO_CPU_LIMIT] if not seen.limits.get("cpu") else [],
            check=["nvidia-smi topo -m  # on the node: the column CPU Affinity"],
        )
    ]


def _all_numa(seen):
    return ((seen.node.get("cpu") or {}).get("numa") or {}).values()


def _cpus(seen):
    """``(CPUs, words)`` that the container may count on: exclusive ones, else what it requests; (None, None) if unknown.

    With a limit ``cpu_checks`` judges the threads against it.
    """
    if quantity_cores(seen.limits.get("cpu")) is not None:
        return None, None
    own = cpu_set(seen.counters.get("cpuset"))
    node = quantity_cores((seen.node.get("capacity") or {}).get("cpu")) or (seen.node.get("cpu") or {}).get(
        "count"
    )
    if own and node and len(own) < node:
        return len(own), f"{len(own)} CPUs in the container's cpuset"
    request = quantity_cores(seen.requests.get("cpu"))
    return (request, f"a CPU request of {seen.requests['cpu']}") if request else (None, None)


def _threads(seen):
    """OpenMP's threads of all processes of this pod against its CPUs: each rank is a process with a pool of its own."""
    text = str(seen.env("OMP_NUM_THREADS") or "").strip()
    cpus, words = _cpus(seen)
    if cpus is None or not (text.isascii() and text.isdigit()) or len(text) > 6:
        return []
    each, ranks = int(text), max(1, seen.ranks)
    if each * ranks <= cpus or each < 2:
        return []
    value = max(1, int(cpus // ranks))
    return [
        seen.finding(
            "cpu_throttling",
            "risk",
            "possible",
            [
                seen.spec_proof(
                    f"OMP_NUM_THREADS={each} in {ranks} process{'es' if ranks > 1 else ''}, with {words}"
                )
            ],
            f"{each * ranks} OpenMP threads share {cpus:g} CPUs: the threads that launch work on the GPU wait for their turn.",
            STEP_CPU,
            recommend=[
                env_change(
                    "OMP_NUM_THREADS",
                    "decrease",
                    "each rank has a pool of its own; together they should not be more than the CPUs",
                    value,
                    "arithmetic",
                )
            ],
        )
    ]
