# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's settings and surroundings: known-bad combinations and wrong values, one table.

Sources: shared facts "kubernetes-gpu-facts", section 10 (read in NCCL's releases 2.8 to 2.30), named in each row.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..documents import proof
from ..engine.versions import in_range
from ..quantities import GIB, MIB, show_bytes, to_gi
from ..sizing.host import EXAMPLE_SHM
from . import nccl_topology
from .advice_parts import NOT_LIMIT, NOT_UTILIZATION, STEP_NCCL, action, env_change, flag_change, k8s_change
from .commands import namespace_option
from .nccl_memory import ERROR, SIMPLE, WITHOUT_NVLS, connection_bytes, estimate, number, shm_bytes
from .nccl_seen import NcclSeen
from .shm_checks import shm_size

# test: (seen) -> what was seen, in words, or None; words: why it matters; changes: CHANGEs, or (seen) -> CHANGEs;
# effect: what the log holds where this has struck, then the finding contributes; shown_by: spec, node or log.
Row = namedtuple(
    "Row", "name cause confidence test words changes source effect shown_by", defaults=(None, "spec")
)

_SHM_EFFECT = re.compile(
    r"failed to extend /dev/shm/nccl|creating shared memory segment|posix_fallocate failed|[Bb]us error"
)
_OOM_EFFECT = re.compile(
    r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:malloc|calloc)|CUDA error 2 "
)
_NVLS_EFFECT = re.compile(r"NVLink SHARP|transport/nvls\.cc")
_MEMLOCK_EFFECT = re.compile(r"ibv_(?:reg_mr\w*|create_cq|create_qp) failed|Failed to register memory")
_INTERFACE_EFFECT = re.compile(
    r"no socket interface found|unable to find (?:an )?interface|Unable to find address for|connectFullMesh failed",
    re.IGNORECASE,
)
_CRASH_EFFECT = re.compile(r"[Ss]egmentation fault|SIGSEGV|Segfault")
_SAME_GPU_EFFECT = re.compile(r"Duplicate GPU detected|Multiple Ranks are using the same GPU")
_FILES_EFFECT = re.compile(r"Too many open files")

# RDMA registers hundreds of MiB; the kernel's default limit is 64 KiB, systemd's 8 MiB.
_MEMLOCK_ENOUGH = GIB
# One job of 144 ranks needed over 32 Ki descriptors: more than 220 for each rank.
_FILES_PER_RANK = 256
_FEW_RANKS = 16
_HIGH_UTILIZATION = 0.95
_ONE_IN_TEN = re.compile(r"_1$")
# Interfaces that are a card or what joins cards, and how many names a sentence holds.
_CARD = re.compile(r"eth|en|ib|bond|net\d|hs|rdma")
_SHOWN = 8

_NO_NVLS = env_change("NCCL_NVLS_ENABLE", "set", "the other algorithms do not need it", "0")


def _remove(name, why):
    return env_change(name, "remove", why)


# -- tests of the combinations ----------------------------------------------------------------------------------------


def _shm_for_p2p(seen):
    size, words = shm_size(seen)
    if not seen.no_p2p or not seen.cumem_host_off or size is None or seen.ranks < 2:
        return None
    channels = max((item["coll"] or 0 for item in seen.reported["communicators"]), default=0) or None
    need = shm_bytes(seen.ranks, seen.variables, channels)
    if size > max(64 * MIB, need):
        return None
    why = seen.words("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") or "the GPUs have no peer access"
    return f"{why}; {seen.cumem_host_off}; {words}; {seen.ranks} ranks on one node need about {show_bytes(need)} of it"


def _grow_shm(seen):
    need = shm_bytes(seen.ranks, seen.variables)
    mounted = bool((seen.pod.get("shm") or {}).get("mounted_at"))
    return [
        k8s_change(
            "volumes.shm.sizeLimit" if mounted else "volumes.shm",
            "increase" if mounted else "add",
            "without peer access NCCL's buffers are files there; they count against the memory limit",
            to_gi(max(EXAMPLE_SHM, need * ERROR)),
            proof="arithmetic",
            with_=("resources.limits.memory",),
        )
    ]


def _shm_and_p2p_off(seen):
    off = seen.is_set("NCCL_SHM_DISABLE", "1") and seen.no_p2p and seen.ranks > 1
    return seen.words("NCCL_SHM_DISABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if off else None


def _different_shm(seen):
    mounts = seen.shm_of_engines
    if len(mounts) < 2:
        return None
    shown = [
        f"{count} with {'volume ' + name if name else 'the sandbox of the pod'}"
        for name, count in sorted(mounts.items(), key=lambda item: item[0] or "")
    ]
    return f"engine containers of this pod with different /dev/shm: {', '.join(shown)}"


def _mnnvl_without_cumem(seen):
    if seen.is_set("NCCL_MNNVL_ENABLE", "1") and seen.cumem_off:
        return f"NCCL_MNNVL_ENABLE=1; {seen.cumem_off}"
    return None


def _cumem_off_on_rack(seen):
    if seen.rack_scale and seen.is_set("NCCL_CUMEM_ENABLE", "0"):
        return f"NCCL_CUMEM_ENABLE=0 on {seen.product}"
    return None


def _cumem_host_forced(seen):
    if not seen.is_set("NCCL_CUMEM_HOST_ENABLE", "1"):
        return None
    if in_range(seen.nccl, "2.24", "2.26.4") and not seen.may("SYS_NICE"):
        return f"NCCL_CUMEM_HOST_ENABLE=1 with NCCL {seen.reported['version']}, which doesn't test it first"
    driver = (seen.node.get("driver") or {}).get("cuda")
    if seen.no_p2p and driver and in_range(driver, None, "12.99"):
        return f"NCCL_CUMEM_HOST_ENABLE=1 without peer access, with a driver of CUDA {driver}"
    return None


def _broken_fabric(seen):
    state = (seen.node.get("services") or {}).get("fabric_manager")
    fabrics = {
        str((item.get("fabric") or {}).get("state"))
        for item in seen.node.get("gpus") or []
        if (item.get("fabric") or {}).get("state") not in (None, "N/A", "Not Supported", "Completed")
    }
    if seen.is_set("NCCL_NVLS_ENABLE", "0") or seen.generation == WITHOUT_NVLS:
        return None
    if state not in ("failed", "inactive") and not fabrics:
        return None
    if not fabrics and (seen.nvlink is not True or len(seen.links) < 4):
        # Without NVSwitch no fabric manager is needed.
        return None
    words = [f"fabric manager: {state}"] if state in ("failed", "inactive") else []
    words += [f"fabric state of the GPUs: {', '.join(sorted(fabrics))}"] if fabrics else []
    return "; ".join(words)


def _nvls_forced(seen):
    if not seen.is_set("NCCL_NVLS_ENABLE", "1"):
        return None
    if seen.is_set("NCCL_MULTI_RANK_GPU_ENABLE", "1"):
        return "NCCL_NVLS_ENABLE=1 with NCCL_MULTI_RANK_GPU_ENABLE=1"
    return "NCCL_NVLS_ENABLE=1"


def _nvls_in_little_room(seen):
    utilization = seen.number("gpu_memory_utilization")
    found = estimate(seen.layout, seen.variables, seen.reported["version"], seen.reported)
    nvls = next((item["bytes"] for item in found["segments"] if item["name"] == "nvls"), 0)
    if utilization is None or utilization < _HIGH_UTILIZATION or not nvls or _silent_nvls(seen):
        return None
    return (
        f"--gpu-memory-utilization {utilization:g}; NVLS wants about {show_bytes(nvls)} of each GPU beside it"
    )


def _silent_nvls(seen):
    """NCCL 2.27 and 2.28 went on without NVLS where its memory could not be had."""
    return in_range(seen.nccl, "2.27", "2.28") is True


def _graph_order(seen):
    if seen.is_set("NCCL_GRAPH_STREAM_ORDERING", "0") and not seen.is_set("NCCL_GRAPH_MIXING_SUPPORT", "0"):
        return "NCCL_GRAPH_STREAM_ORDERING=0 with graph mixing on (its default)"
    return None


_SAME_ON_ALL = ("NCCL_BUFFSIZE", "NCCL_ALGO", "NCCL_PROTO")


def _ranks_differ(seen):
    for name in _SAME_ON_ALL:
        values = set(seen.reported["variables"].get(name) or ())
        for other in seen.pod.get("containers") or []:
            if other.get("engine"):
                values.update(
                    str(item["value"])
                    for item in other.get("env") or []
                    if item.get("name") == name and item.get("value") is not None
                )
        if len(values) > 1:
            return f"{name} differs between ranks: {', '.join(sorted(values))}"
    return None


def _stack_unlimited(seen):
    value, pid = seen.limit("stack")
    if value != "unlimited" or in_range(seen.nccl, "2.28") is True:
        return None
    return f"stack size of process {pid}: unlimited"


def _few_files(seen):
    value, pid = seen.limit("nofile")
    if value in (None, "unlimited") or seen.world < _FEW_RANKS or value >= seen.world * _FILES_PER_RANK:
        return None
    return f"open files of process {pid}: at most {value}, for {seen.world} ranks"


def _debug_left_on(seen):
    loud = seen.is_set("NCCL_DEBUG", "TRACE") or (seen.is_set("NCCL_DEBUG", "INFO") and seen.serving)
    return seen.words("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS") if loud else None


# -- tests of single values -------------------------------------------------------------------------------------------


def _hca_names(text):
    """``(excluding, exact, [names])`` of NCCL_IB_HCA; ports are left out."""
    excluding, text = text.startswith("^"), text.lstrip("^")
    exact, text = text.startswith("="), text.lstrip("=")
    return excluding, exact, [item.partition(":")[0].strip() for item in text.split(",") if item.strip()]


def _hca_prefix(seen):
    excluding, exact, names = _hca_names(seen.variables.get("NCCL_IB_HCA", ""))
    if exact:
        return None
    for name in names:
        more = [other for other in seen.hcas if other.startswith(name) and other != name]
        if name in seen.hcas and more:
            also = "excludes" if excluding else "takes"
            return f"NCCL_IB_HCA={seen.variables['NCCL_IB_HCA']}: {name} also {also} {', '.join(more)}"
        if not seen.hcas and _ONE_IN_TEN.search(name):
            return f"NCCL_IB_HCA={seen.variables['NCCL_IB_HCA']}: {name} also matches {name}0 and following"
    return None


def _hca_exact(seen):
    text = seen.variables["NCCL_IB_HCA"]
    return [
        env_change(
            "NCCL_IB_HCA",
            "set",
            "with = names count as they are, without it as prefixes",
            ("^=" if text.startswith("^") else "=") + text.lstrip("^"),
        )
    ]


def _hca_missing(seen):
    excluding, exact, names = _hca_names(seen.variables.get("NCCL_IB_HCA", ""))
    nics = seen.node_hcas
    if excluding or not names or not nics:
        return None
    missing = [name for name in names if not any(n == name if exact else n.startswith(name) for n in nics)]
    if not missing:
        return None
    return f"NCCL_IB_HCA={seen.variables['NCCL_IB_HCA']}: the node has {', '.join(nics)}, not {', '.join(missing)}"


def _interface_missing(seen):
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = seen.variables.get(name) or str(seen.env(name) or "")
        if not value or value.startswith("^"):
            continue
        exact = value.startswith("=") or name.startswith("GLOO")
        asked = [item.partition(":")[0].strip() for item in value.lstrip("=").split(",") if item.strip()]
        if not any(
            have == item if exact else have.startswith(item)
            for item in asked
            for have in _pod_interfaces(seen)
        ):
            known = [item for item in seen.interfaces or [] if item != "lo"]
            if known:
                more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
                return f"{name}={value}: the pod has {', '.join(known[:_SHOWN])}{more}"
            if seen.said(_INTERFACE_EFFECT) and not seen.reported["interfaces"]:
                return f"{name}={value}, and no such interface was found"
    return None


def _pod_interfaces(seen):
    return [*(seen.interfaces or []), *seen.reported["interfaces"]]


def _set_interface(seen):
    has = _pod_interfaces(seen)
    known = next((item for item in [*seen.reported["interfaces"], *has] if _CARD.match(item)), "eth0")
    why = "the interface that the pods can reach each other on"
    names = [
        name
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        if name in seen.variables or seen.env(name)
    ]
    return [env_change(name, "set", why, known) for name in names]


def _loopback(seen):
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = seen.variables.get(name) or str(seen.env(name) or "")
        if value.lstrip("=") == "lo" and seen.over_nodes:
            return f"{name}={value}, with {seen.world} ranks over several pods"
    return None


def _memlock(seen):
    value, pid = seen.limit("memlock")
    if not seen.uses_rdma or value in (None, "unlimited") or value >= _MEMLOCK_ENOUGH or seen.may("IPC_LOCK"):
        return None
    return f"memlock of process {pid}: {show_bytes(value)}"


def _p2p_off_with_nvlink(seen):
    return (
        "NCCL_P2P_DISABLE=1; the GPUs are joined by NVLink"
        if (seen.is_set("NCCL_P2P_DISABLE", "1") and seen.nvlink)
        else None
    )


def _huge_buffers(seen):
    size = number(seen.variables, "NCCL_BUFFSIZE")
    if size is None or size < 2 * SIMPLE:
        return None
    now = estimate(seen.layout, seen.variables, seen.reported["version"], seen.reported)["bytes"]
    usual = estimate(
        seen.layout, dict(seen.variables, NCCL_BUFFSIZE=str(SIMPLE)), seen.reported["version"], seen.reported
    )["bytes"]
    return (
        f"NCCL_BUFFSIZE={size}: {show_bytes(connection_bytes(seen.variables))} a connection instead of "
        f"{show_bytes(connection_bytes())}, about {show_bytes(now - usual)} more on each GPU (within a factor of {ERROR})"
    )


def _many_channels(seen):
    for name in ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS"):
        count = number(seen.variables, name)
        if count and count >= 32:
            return (
                f"{name}={count}: {show_bytes(count * connection_bytes(seen.variables))} for one ring of them"
            )
    return None


def _growing_network_buffers(seen):
    if seen.over_nodes and (
        seen.is_set("NCCL_NET_SHARED_BUFFERS", "0") or seen.is_set("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "1")
    ):
        return seen.words("NCCL_NET_SHARED_BUFFERS", "NCCL_ALLOC_P2P_NET_LL_BUFFERS")
    return None


def _ll128_forced(seen):
    value = seen.variables.get("NCCL_PROTO", "")
    if value.startswith("^") or "LL128" not in [item.strip().upper() for item in value.split(",")]:
        return None
    return f"NCCL_PROTO={value}"


def _cumem_costs_graphs(seen):
    old = in_range(seen.nccl, None, "2.22.2") is True
    said = seen.said(_CUMEM_SAID)
    if seen.is_set("NCCL_CUMEM_ENABLE", "1") and (old or (seen.nccl is None and said)):
        return f"NCCL_CUMEM_ENABLE=1 with NCCL {seen.reported['version'] or 'of this vLLM'}"
    return None


_CUMEM_SAID = re.compile(r"NCCL_CUMEM_ENABLE explicitly set to 1, skipping override")


def _mig_ranks(seen):
    allowed = seen.is_set("NCCL_MULTI_RANK_GPU_ENABLE", "1") and in_range(seen.nccl, "2.30") is not False
    if not seen.mig or seen.ranks < 2 or allowed:
        return None
    return f"{seen.ranks} ranks on MIG devices"


def _late_connections(seen):
    utilization = seen.number("gpu_memory_utilization")
    if (
        seen.world < 2
        or utilization is None
        or utilization < _HIGH_UTILIZATION
        or seen.is_set("NCCL_RUNTIME_CONNECT", "0")
        or in_range(seen.nccl, None, "2.21") is True
    ):
        return None
    size = estimate(seen.layout, seen.variables, seen.reported["version"], seen.reported)["bytes"]
    return f"--gpu-memory-utilization {utilization:g}; NCCL's buffers: about {show_bytes(size)} of each GPU (within a factor of {ERROR})"


def _one_debug_file(seen):
    value = seen.variables.get("NCCL_DEBUG_FILE", "")
    if value and "%p" not in value and seen.ranks > 1:
        return f"NCCL_DEBUG_FILE={value}"
    return None


# -- the table --------------------------------------------------------------------------------------------------------

_LOWER_UTILIZATION = flag_change(
    "--gpu-memory-utilization", "decrease", "NCCL's buffers lie outside the budget: leave room for them", 0.9
)

ROWS = (
    Row(
        "p2p_off_small_shm",
        "shm_exhausted",
        "likely",
        _shm_for_p2p,
        "Without peer access the ranks of a node exchange data through files in /dev/shm, and it is too small for them: NCCL stops "
        "with 'failed to extend /dev/shm/nccl-…'.",
        _grow_shm,
        "10.2",
        _SHM_EFFECT,
    ),
    Row(
        "shm_and_p2p_off",
        "nccl_not_memory",
        "likely",
        _shm_and_p2p_off,
        "With peer access and shared memory both off, the ranks of one node talk over the network card or loopback: slow, or it "
        "fails.",
        lambda seen: [
            _remove("NCCL_SHM_DISABLE", "shared memory is the way that is left without peer access"),
        ],
        "10.2",
    ),
    Row(
        "different_shm",
        "nccl_not_memory",
        "possible",
        _different_shm,
        "NCCL compares the /dev/shm of its ranks: where they differ it uses neither shared memory nor peer access between them.",
        (
            k8s_change(
                "volumes.shm", "add", "all containers of one engine need the same volume at /dev/shm", "8Gi"
            ),
        ),
        "10.2",
    ),
    Row(
        "mnnvl_without_cumem",
        "nccl_not_memory",
        "certain",
        _mnnvl_without_cumem,
        "NVLink between nodes needs NCCL's cuMem allocator, and that is off: the start fails.",
        (env_change("NCCL_CUMEM_ENABLE", "set", "multi-node NVLink needs it", "1"),),
        "10.1, 10.2",
    ),
    Row(
        "cumem_off_on_rack",
        "nccl_not_memory",
        "likely",
        _cumem_off_on_rack,
        "Without cuMem NCCL does not use NVLink between the nodes of this machine, but the slower network.",
        (_remove("NCCL_CUMEM_ENABLE", "NCCL 2.22.3 ended what it cost; its default is right here"),),
        "10.1",
    ),
    Row(
        "cumem_host_forced",
        "nccl_not_memory",
        "likely",
        _cumem_host_forced,
        "Forcing host buffers through cuMem fails in a container that may not make NUMA calls (CAP_SYS_NICE), and without peer "
        "access on drivers before CUDA 13; the error looks like a failed allocation.",
        (
            env_change("NCCL_CUMEM_HOST_ENABLE", "set", "NCCL then uses /dev/shm, whose size counts", "0"),
            action("upgrade_driver", "from 2.26.5 on NCCL tests it first and falls back"),
        ),
        "10.2",
        re.compile(r"transport/shm\.cc|ncclCuMemHostAlloc|CuMemHost"),
    ),
    Row(
        "broken_fabric",
        "nccl_not_memory",
        "likely",
        _broken_fabric,
        "NVLink SHARP needs the fabric of the NVSwitches, and it isn't up: NCCL fails while it binds multicast memory. That is no "
        "shortage of memory.",
        (action("repair_fabric_manager", "the GPUs can't join the fabric without it"), _NO_NVLS),
        "10.2",
        _NVLS_EFFECT,
        "node",
    ),
    Row(
        "nvls_forced",
        "nccl_not_memory",
        "possible",
        _nvls_forced,
        "A forced NVLS makes NCCL fail where it can't have it, for the fabric's state, for want of memory, or with several ranks on "
        "a GPU; by default it is used where it is supported.",
        (_remove("NCCL_NVLS_ENABLE", "the default uses it where the hardware has it"),),
        "10.2",
        _NVLS_EFFECT,
    ),
    Row(
        "nvls_in_little_room",
        "nccl_gpu_oom",
        "possible",
        _nvls_in_little_room,
        "NVLS takes its buffers outside of vLLM's budget, and this NCCL fails where it can't get them.",
        (_LOWER_UTILIZATION, _NO_NVLS),
        "10.1, 10.2",
        _OOM_EFFECT,
    ),
    Row(
        "graph_order",
        "nccl_not_memory",
        "likely",
        _graph_order,
        "NCCL does not support this order of streams together with graph mixing.",
        (_remove("NCCL_GRAPH_STREAM_ORDERING", "its default fits graph mixing"),),
        "10.2",
    ),
    Row(
        "ranks_differ",
        "nccl_not_memory",
        "possible",
        _ranks_differ,
        "The ranks of a group must agree on buffers, algorithms and protocols: where they don't, they hang or compute garbage.",
        (action("fix_spec", "give all ranks the same value"),),
        "10.2",
    ),
    Row(
        "stack_unlimited",
        "native_crash",
        "possible",
        _stack_unlimited,
        "With an unlimited stack size NCCL's threads get stacks of 2 MiB only, too small for its graph search: a segmentation fault "
        "at start. NCCL 2.28 mends it.",
        (action("fix_spec", "start the engine with a limited stack: ulimit -s 8192"),),
        "10.2",
        _CRASH_EFFECT,
        "node",
    ),
    Row(
        "few_files",
        "nccl_not_memory",
        "possible",
        _few_files,
        "Each rank holds descriptors for every peer and channel; a large job runs out of them.",
        (action("fix_spec", "raise LimitNOFILE of the container runtime, or ulimit -n in the container"),),
        "10.2",
        _FILES_EFFECT,
        "node",
    ),
    Row(
        "debug_left_on",
        "nccl_not_memory",
        "possible",
        _debug_left_on,
        "NCCL's messages fill the log while it serves; when it fails, the lines that matter have been rotated away.",
        (env_change("NCCL_DEBUG", "set", "WARN is silent until something fails", "WARN"),),
        "10.2",
    ),
    Row(
        "hca_prefix",
        "nccl_not_memory",
        "possible",
        _hca_prefix,
        "NCCL_IB_HCA takes names as prefixes: cards that weren't meant are used, or left out.",
        _hca_exact,
        "10.1",
    ),
    Row(
        "hca_missing",
        "nccl_not_memory",
        "likely",
        _hca_missing,
        "The named RDMA device isn't there: NCCL goes over sockets, or finds no network.",
        (_remove("NCCL_IB_HCA", "NCCL chooses the nearest cards by itself"),),
        "10.1",
    ),
    Row(
        "interface_missing",
        "nccl_not_memory",
        "likely",
        _interface_missing,
        "The ranks look for each other on a network interface that the pod doesn't have.",
        _set_interface,
        "10.1",
        _INTERFACE_EFFECT,
    ),
    Row(
        "loopback",
        "nccl_not_memory",
        "certain",
        _loopback,
        "Over the loopback interface a rank reaches no other pod.",
        _set_interface,
        "10.1",
        _INTERFACE_EFFECT,
    ),
    Row(
        "memlock",
        "memlock_limit",
        "likely",
        _memlock,
        "RDMA registers its buffers as locked memory, and this limit is too low for them: 'ibv_reg_mr failed … Cannot allocate "
        "memory' with plenty of memory free. Kubernetes has no field for it.",
        (
            action(
                "raise_memlock", "LimitMEMLOCK=infinity for containerd or CRI-O, or the capability IPC_LOCK"
            ),
        ),
        "10.4, 4.4",
        _MEMLOCK_EFFECT,
        "node",
    ),
    Row(
        "p2p_off_with_nvlink",
        "nccl_not_memory",
        "possible",
        _p2p_off_with_nvlink,
        "Peer access is switched off, so NVLink isn't used: the ranks exchange data through host memory and /dev/shm. It is a way "
        "to find out whether peer access hangs, no setting to keep.",
        (_remove("NCCL_P2P_DISABLE", "the GPUs are joined by NVLink"),),
        "10.1",
    ),
    Row(
        "huge_buffers",
        "nccl_gpu_oom",
        "likely",
        _huge_buffers,
        "Every connection has a buffer of this size on each channel, outside of vLLM's budget.",
        (_remove("NCCL_BUFFSIZE", "its default is 4 MiB"),),
        "10.1, 10.3",
        _OOM_EFFECT,
    ),
    Row(
        "many_channels",
        "nccl_gpu_oom",
        "possible",
        _many_channels,
        "Every channel has buffers of its own, in each communicator.",
        lambda seen: [
            _remove(name, "NCCL chooses as many channels as the links need")
            for name in ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS")
            if (number(seen.variables, name) or 0) >= 32
        ],
        "10.1, 10.3",
        _OOM_EFFECT,
    ),
    Row(
        "growing_network_buffers",
        "nccl_gpu_oom",
        "possible",
        _growing_network_buffers,
        "With this setting the network buffers of each GPU grow with the number of ranks.",
        lambda seen: [
            _remove(name, "by default the peers share one pool")
            for name in ("NCCL_NET_SHARED_BUFFERS", "NCCL_ALLOC_P2P_NET_LL_BUFFERS")
            if name in seen.variables
        ],
        "10.1",
        _OOM_EFFECT,
    ),
    Row(
        "ll128_forced",
        "nccl_not_memory",
        "possible",
        _ll128_forced,
        "Where the hardware doesn't support the LL128 protocol, forcing it corrupts data.",
        (_remove("NCCL_PROTO", "NCCL uses LL128 where it is safe"),),
        "10.1",
    ),
    Row(
        "cumem_costs_graphs",
        "nccl_gpu_oom",
        "likely",
        _cumem_costs_graphs,
        "Before NCCL 2.22.3 the cuMem allocator cost 1 to 2 GiB of each GPU together with CUDA graphs, which is why vLLM switched it "
        "off then.",
        (_remove("NCCL_CUMEM_ENABLE", "vLLM then sets what fits its NCCL"),),
        "10.1",
        _OOM_EFFECT,
    ),
    Row(
        "mig_ranks",
        "not_memory_config",
        "likely",
        _mig_ranks,
        "NCCL refuses several ranks on slices of one GPU, and slices have no peer access to each other.",
        (
            flag_change("--tensor-parallel-size", "set", "one slice holds one rank", 1),
            action("size_for_slice", "a model that needs several slices needs a larger one, or whole GPUs"),
        ),
        "8.5, 10.4",
        _SAME_GPU_EFFECT,
    ),
    Row(
        "late_connections",
        "nccl_gpu_oom",
        "possible",
        _late_connections,
        "From 2.22 on NCCL takes the buffers of an algorithm at its first use, after vLLM has sized the KV cache: little is left "
        "for them.",
        (
            _LOWER_UTILIZATION,
            env_change("NCCL_RUNTIME_CONNECT", "set", "NCCL then connects before vLLM measures", "0"),
        ),
        "10.1",
        _OOM_EFFECT,
    ),
    Row(
        "one_debug_file",
        "nccl_not_memory",
        "possible",
        _one_debug_file,
        "All ranks write to one file and overwrite each other: the line that matters is lost.",
        lambda seen: [
            env_change(
                "NCCL_DEBUG_FILE",
                "set",
                "each process its own file",
                seen.variables["NCCL_DEBUG_FILE"] + ".%h.%p",
            )
        ],
        "10.1",
    ),
    *(
        Row(name, "nccl_not_memory", confidence, test, words, changes, "8.3, the runbook", None, shown_by)
        for name, confidence, test, words, changes, shown_by in nccl_topology.ROWS
    ),
)

_CONFIDENCES = ("possible", "likely", "certain")
_TOPOLOGY = "nvidia-smi topo -m  # on the node"
# What shows it again, where the usual commands don't. exec: kubectl exec into the container.
_CHECKS = {
    "memlock": "{exec} sh -c 'ulimit -l'",
    "stack_unlimited": "{exec} sh -c 'ulimit -s'",
    "few_files": "{exec} sh -c 'ulimit -n'",
    "p2p_off_small_shm": "{exec} df -h /dev/shm",
    "broken_fabric": "nvidia-smi -q | grep -A 3 Fabric; systemctl status nvidia-fabricmanager  # on the node",
    "interface_missing": "{exec} ls /sys/class/net",
    "hca_missing": "{exec} ls /sys/class/infiniband",
    "tensor_across_islands": _TOPOLOGY,
    "p2p_off_with_nvlink": _TOPOLOGY,
}
_REJECTED = {"nccl_not_memory": [NOT_UTILIZATION, NOT_LIMIT], "memlock_limit": [NOT_UTILIZATION, NOT_LIMIT]}


def nccl_findings(pod, container, node=None):
    """What NCCL's settings and surroundings put at risk, or have contributed to: findings, one for each cause.

    None for a container that is no engine, or that runs on one GPU. node: the evidence's entry of the pod's node.
    """
    if not container.get("engine"):
        return []
    seen = NcclSeen(pod, container, node)
    if not seen.communicates:
        return []
    hits: dict[str, list] = {}
    for row in ROWS:
        text = row.test(seen)
        if text:
            hits.setdefault(row.cause, []).append((row, text))
    return [_finding(seen, cause, found) for cause, found in hits.items()]


def _finding(seen, cause, found):
    proofs: list[dict] = []
    effects: list[dict] = []
    changes: list[dict] = []
    for row, text in found:
        where = f"Node/{seen.pod.get('node')}" if row.shown_by == "node" else seen.where
        proofs.append(proof(row.shown_by, where, text))
        effect = seen.said(row.effect) if row.effect else None
        if effect and effect not in effects:
            effects.append(effect)
        known = {(item["target"], item["name"]) for item in changes}
        more = row.changes(seen) if callable(row.changes) else row.changes
        changes.extend(
            item for item in more if (item["target"], item["name"]) not in known or item["target"] == "action"
        )
    confidence = max((row.confidence for row, _text in found), key=_CONFIDENCES.index)
    into = f"kubectl{namespace_option(seen.pod)} exec {seen.pod['name']} -c {seen.container['name']} --"
    shown = [_CHECKS[row.name].replace("{exec}", into) for row, _text in found if row.name in _CHECKS]
    return seen.finding(
        cause,
        "contributing" if effects else "risk",
        confidence,
        proofs + effects,
        " ".join(dict.fromkeys(row.words for row, _text in found)),
        STEP_NCCL,
        recommend=changes,
        # What is wrong for a failure of this kind; before one there is nothing to reject.
        rejected=_REJECTED.get(cause, []) if effects else [],
        check=list(dict.fromkeys(shown)),
    )
