# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's checks of /dev/shm: large enough for the parallel size, and counted in the memory limit.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change
from ..quantities import quantity_bytes, show_bytes, to_gi
from ..sizing.host import EXAMPLE_SHM, RUNTIME_SHM, shm_need, shm_users
from .memory_checks import advised_limit, demand, recommended_limit

_STEP_SHM = "/dev/shm: large enough for the parallel size, and counted in the memory limit"


def shm_size(seen):
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
    size, words = shm_size(seen)
    if size is None or not seen.spec_known:
        return []
    users = shm_users(seen.told, seen.version)
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
    elif need and recommended_limit(seen) and total and need[0] + total > limit:
        confidence = "likely"
    elif unlimited or total > limit / 2:
        confidence = "possible"
    else:
        return []
    names = ", ".join(
        f"{item['name']} {show_bytes(item['size_limit']) if item.get('size_limit') else 'without sizeLimit'}"
        for item in volumes
    )
    value = None
    if total:
        fits = recommended_limit(seen)
        value = fits if (quantity_bytes(fits) or 0) > limit else to_gi(limit + total)
        value = advised_limit(seen) or value
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
