# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's checks of /dev/shm: large enough for the parallel size, and counted in the memory limit.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change
from ..quantities import GIB, MIB, quantity_bytes, show_bytes, to_gi
from .memory_checks import advised_limit, demand

# containerd's and CRI-O's tmpfs at /dev/shm, one for the pod (kubernetes-gpu-facts 4.5).
RUNTIME_SHM = 64 * MIB
EXAMPLE_SHM = 2 * GIB  # vLLM's own Kubernetes page (vllm-memory 8.4)

_STEP_SHM = "/dev/shm: large enough for the parallel size, and counted in the memory limit"


def shm_need(version, ranks):
    """``(largest single buffer, all of them)`` in bytes that one engine's processes put into /dev/shm.

    vllm-memory 8.2: a ring from the engine core to the workers, from 0.11 on (V1 before: smaller) a response
    ring for each worker, the tensor parallel group's broadcaster, and NCCL's segments where there is no peer
    access. An unknown version counts as the newest. One rank needs none of it.
    """
    if ranks < 2:
        return 0, 0
    ring = 100 * MIB if version is not None and version < (0, 9, 1) else 160 * MIB
    response = 240 * MIB
    if version is not None and version < (0, 11):
        response = 0 if version < (0, 8) else 100 * MIB
    nccl = 33 * MIB
    return max(ring, response), ring + ranks * (response + nccl) + 24 * MIB


def _shm_users(seen):
    """What else the settings put into /dev/shm: ``(option, bytes)``."""
    found = []
    version = seen.version
    if str(seen.given("mm_processor_cache_type")) == "shm":
        found.append(("mm_processor_cache_gb", int((seen.number("mm_processor_cache_gb", 4) or 4) * GIB)))
    if str(seen.given("enable_shm_tensor_arena")).lower() in ("true", "1"):
        found.append(("enable_shm_tensor_arena", 2 * GIB))
    offload = seen.number("kv_offloading_size")
    if offload and seen.given("kv_offloading_size") is not None and (version is None or version >= (0, 27)):
        found.append(("kv_offloading_size", int(offload * GIB)))
    return found


def _shm_size(seen):
    """``(bytes, words)`` of the container's /dev/shm, or (None, None) where nothing at hand says it."""
    shm = seen.pod.get("shm") or {}
    if shm.get("host_ipc"):
        return None, None
    if not shm.get("mounted_at"):
        return RUNTIME_SHM, "no volume is mounted at /dev/shm, so it has the runtime's 64 MiB"
    size = quantity_bytes(shm.get("size_limit"))
    if size is None or shm.get("medium") != "Memory":
        return None, None
    return size, f"the volume mounted at /dev/shm has sizeLimit {show_bytes(size)}"


def shm_small(seen):
    size, words = _shm_size(seen)
    if size is None or not seen.spec_known:
        return []
    users = _shm_users(seen)
    single, total = shm_need(seen.version, seen.ranks)
    need = total + sum(bytes_ for _name, bytes_ in users)
    largest = max([single] + [bytes_ for _name, bytes_ in users])
    if need <= size:
        return []
    parts = [f"{show_bytes(total)} for {seen.ranks} worker processes"] if total else []
    parts.extend(f"{show_bytes(bytes_)} for {name}" for name, bytes_ in users)
    value = to_gi(max(EXAMPLE_SHM, need * 1.25))
    mounted = bool((seen.pod.get("shm") or {}).get("mounted_at"))
    return [
        seen.finding(
            "shm_small",
            "risk",
            "likely" if largest > size else "possible",
            [seen.spec_proof(f"{words}; needed: {' + '.join(parts)}")],
            f"/dev/shm holds {show_bytes(size)}, and this engine's processes exchange data through buffers "
            f"of {show_bytes(need)} in it. A full /dev/shm shows as a bus error, 'No space left on device' "
            "or an NCCL error.",
            _STEP_SHM,
            recommend=[
                change(
                    "k8s",
                    "volumes.shm.sizeLimit" if mounted else "volumes.shm",
                    "increase" if mounted else "add",
                    value,
                    "an emptyDir with medium Memory at /dev/shm; what is written there counts against the "
                    "memory limit",
                    "arithmetic",
                    with_=["resources.limits.memory"],
                )
            ],
            rejected=[
                change(
                    "k8s", "resources.limits.memory", "increase", why="alone it doesn't make /dev/shm larger"
                ),
                change("flag", "--gpu-memory-utilization", "decrease", why="/dev/shm is host memory"),
            ],
        )
    ]


def shm_counts(seen):
    limit, volumes = seen.memory_limit, seen.memory_volumes
    if limit is None or not volumes:
        return []
    total, need = seen.memory_volumes_size, demand(seen)
    unlimited = [item for item in volumes if not item.get("size_limit")]
    if total >= limit:
        confidence = "certain"
    elif need and (seen.table_bounds or seen.on_cpu) and total and need[0] + total > limit:
        confidence = "likely"
    elif unlimited or total > limit / 2:
        confidence = "possible"
    else:
        return []
    names = ", ".join(
        f"{item['name']} {show_bytes(item['size_limit']) if item.get('size_limit') else 'without sizeLimit'}"
        for item in volumes
    )
    value = (advised_limit(seen) or to_gi(limit + total)) if total else None
    changes = [
        change(
            "k8s",
            "volumes.shm.sizeLimit"
            if item["name"] == (seen.pod.get("shm") or {}).get("volume")
            else f"volumes.{item['name']}.sizeLimit",
            "set",
            to_gi(max(EXAMPLE_SHM, shm_need(seen.version, seen.ranks)[1] * 1.25)),
            "without a sizeLimit it may fill the whole memory limit",
        )
        for item in unlimited
    ]
    if value:
        changes.append(
            change(
                "k8s",
                "resources.limits.memory",
                "increase",
                value,
                "files in a memory-backed volume use the limit up as memory of the process does",
                "arithmetic",
                with_=["resources.requests.memory"],
            )
        )
    return [
        seen.finding(
            "shm_counts_against_limit",
            "risk",
            confidence,
            [seen.spec_proof(f"memory-backed volumes: {names}; memory limit {show_bytes(limit)}")],
            "Files in memory-backed volumes count against the container's memory limit, and they stay when "
            "the container restarts in the same pod. When they fill up, the container is OOMKilled again "
            "and again.",
            _STEP_SHM,
            recommend=changes,
        )
    ]
