# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a message that does not settle its cause to the cause: by phase, numbers and settings.

Every function takes the facts of an attempt, the log line and the catalogue's match, and returns a ``Verdict``.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..quantities import GIB, show_bytes
from .causes import NATURE
from .facts import MULTIMODAL_OPTIONS, frame_functions, frame_phase
from .gpu_holders import alike
from .torch_oom import fragmented, held_by_others, parse_oom, refused_with_room

# reason: why this cause and no other, one sentence; numbers: parsed numbers of the message, or None.
Verdict = namedtuple("Verdict", "cause memory phase confidence reason numbers")

_BY_PHASE = {
    "load": "gpu_weights_oom",
    "profile": "profile_run_oom",
    "kv_init": "cudagraph_capture_oom",
    "graph_capture": "cudagraph_capture_oom",
    "warmup": "sampler_warmup_oom",
    "serving": "serving_gpu_oom",
    "unknown": "gpu_weights_oom",
}
# An allocation this small is no model: it is the first touch of a device.
_SMALL = 64 << 20
_PROCESSING_METHOD = re.compile(r"while processing method '?(\w+)")
_WAKING = re.compile(r":wake_up\b")
# The first things a worker does on its device: an OOM there is a card that was full before vLLM came.
_FIRST_TOUCH = re.compile(
    r":(?:init_device|set_device|_cuda_init|_lazy_init|mem_get_info|empty_cache|init_worker)\b"
)
_PINNING = re.compile(r"allocate_cpu_cache|pin_memory|cudaHostAlloc|cudaHostRegister|swap_blocks")
_SHM_TRACES = re.compile(
    r"/dev/shm|nccl-\w{6}\b|psm_[0-9a-f]+|shm_broadcast|shared_memory|shared_offload_region|all2all|SharedMemory|shm_open"
)
_ONE_LARGE_REQUEST = re.compile(r"logprobs|lora|rejection_sampl|embed_multimodal", re.IGNORECASE)
_COMPILING = re.compile(
    r"\bnvcc\b|\bcicc\b|\bptxas\b|\bninja\b|torch\.compile|Dynamo bytecode|JIT|Inductor", re.IGNORECASE
)
_KERNEL_COMPILER = re.compile(r"\bnvcc\b|\bcicc\b|\bptxas\b|\bninja\b")


def verdict(cause, confidence, reason, phase=None, memory=None, numbers=None):
    """A verdict with the cause's usual memory and phase where none is given."""
    nature = NATURE[cause]
    return Verdict(cause, memory or nature.memory, phase or nature.phase, confidence, reason, numbers)


def resolve(facts, line, match):
    """The verdict on one matched line."""
    signature = match.signature
    if signature.family:
        return _FAMILIES[signature.family](facts, line, match)
    direct = _DIRECT.get(signature.id)
    if direct:
        return direct(facts, line, match)
    phase = signature.phase or _known(facts.phase_at(line["line"]))
    return verdict(signature.cause, "certain", None, phase=phase, memory=signature.memory)


def _begun_phase(facts, line):
    """The phase of a line by its traceback, else by the markers before it."""
    phase = facts.traceback_phase(line)
    return facts.phase_at(line["line"]) if phase in (None, "compute") else phase


def _known(phase):
    return None if phase == "unknown" else phase


# -- device memory ----------------------------------------------------------------------------------------------------


def oom_phase(facts, line, numbers):
    """``(phase, confidence)`` of a device out-of-memory line: traceback, then markers, then what the allocator shows."""
    phase = facts.traceback_phase(line)
    if phase == "compute":
        # A forward pass: of requests, or of the profile run.
        marked = facts.phase_at(line["line"])
        if marked in ("unknown", "load"):
            marked = "serving" if facts.died_serving else "profile"
        return marked, "likely"
    if phase:
        return phase, "certain"
    for other in facts.lines:
        method = _PROCESSING_METHOD.search(other["text"])
        if method and abs(other["line"] - line["line"]) <= 40:
            phase = frame_phase([{"function": method.group(1)}])
            if phase:
                return phase, "certain"
    phase = facts.phase_at(line["line"])
    if phase in ("unknown", "load") and facts.died_serving:
        return "serving", "likely"
    # Private pools belong to CUDA graphs: where they exist, capture had begun. From 0.18 on the profile run captures a few.
    pools = (numbers or {}).get("pools")
    early = (
        ("unknown", "load") if facts.version and facts.version >= (0, 18) else ("unknown", "load", "profile")
    )
    if pools and phase in (*early, "kv_init"):
        return "graph_capture", "likely"
    if phase != "unknown":
        return phase, "likely"
    return "unknown", "possible"


# A process holds about so much beside what PyTorch has allocated for it: context, NCCL, libraries.
_CONTEXT = int(1.5 * GIB)
# A card of which this share is in use before the start belongs to somebody else.
_TAKEN_BEFORE = 0.2


def device_oom(facts, line, match):
    """A raw OOM of the framework's allocator: whose memory it was, then in which phase it struck."""
    numbers = parse_oom(line["text"])
    phase, confidence = oom_phase(facts, line, numbers)
    memory = "unified" if facts.unified else None
    # A client of MPS has a share of the card: what others hold and what is free doesn't matter then.
    share = facts.holders.share_used_up(numbers)
    if _WAKING.search(frame_functions(line)):
        return verdict("sleep_wakeup_oom", "certain", None, numbers=numbers)
    special = _by_numbers(facts, phase, numbers, memory) if numbers and not share else None
    special = special or (None if share else _by_node(facts, phase, numbers, memory))
    if special:
        return special
    used = facts.used_before(line) if phase in ("load", "unknown") and not numbers else None
    if used and used >= _TAKEN_BEFORE:
        held = f"nvidia-smi showed {used:.0%} of the card in use before the engine started"
        return verdict("gpu_held_by_other", "likely", held, phase="load", memory=memory)
    if facts.rollout and phase in ("load", "unknown"):
        return verdict(
            "gpu_held_by_other",
            "likely",
            "the same template runs when the GPU is empty, and another pod was being replaced on it at that time",
            phase="load",
            memory=memory,
            numbers=numbers,
        )
    if phase in ("kv_init", "graph_capture", "warmup"):
        if facts.fixed_kv:
            return verdict(
                "kv_bytes_too_large",
                confidence,
                f"the KV cache size is fixed by {facts.fixed_kv}, so nothing kept room for the rest",
                phase=phase,
                memory=memory,
                numbers=numbers,
            )
        if facts.sleep_mode:
            return verdict(
                "kv_budget_misestimate",
                "likely",
                "with sleep mode another allocator is used, and the start-up arithmetic counts part of the memory twice",
                phase="kv_init",
                memory=memory,
                numbers=numbers,
            )
    if phase == "serving":
        return _serving_oom(facts, line, numbers, confidence, memory)
    if facts.accelerator in ("tpu", "hpu"):
        return verdict("accelerator_hbm_oom", confidence, None, phase=phase, numbers=numbers)
    if phase == "kv_init" and frame_phase(line.get("frames")) == "kv_init":
        return verdict(
            "kv_budget_misestimate",
            "likely",
            "the KV cache that the budget allowed could not be allocated",
            phase=phase,
            memory=memory,
            numbers=numbers,
        )
    cause = _BY_PHASE[phase]
    reason: str | None = None
    if phase == "unknown":
        phase, reason = (
            "load",
            "nothing in the log shows how far the start had come; a full card at that point is the usual case",
        )
    return verdict(
        cause,
        confidence,
        reason,
        phase="graph_capture" if phase == "kv_init" else phase,
        memory=memory,
        numbers=numbers,
    )


def _by_numbers(facts, phase, numbers, memory):
    """What the numbers of the message alone decide, or None."""
    tried, total = numbers.get("tried"), numbers.get("total")
    if tried and total and tried > total and phase in ("unknown", "load"):
        reason = (
            f"one allocation of {show_bytes(tried)} is more than the card: a batch or an image, never weights"
        )
        return verdict("profile_run_oom", "likely", reason, numbers=numbers)
    if facts.unified and tried and numbers.get("free") and numbers["free"] > tried:
        reason = f"{show_bytes(tried)} were refused with {show_bytes(numbers['free'])} shown as free: the host has taken them"
        return verdict("unified_memory_accounting", "likely", reason, phase=_known(phase), numbers=numbers)
    empty = (
        not numbers.get("allocated") and not numbers.get("reserved") and numbers.get("allocated") is not None
    )
    if empty and numbers.get("tried") and numbers["tried"] <= _SMALL and not numbers.get("free"):
        if facts.accelerator == "xpu":
            reason = "the first allocation was refused, and the process holds nothing"
            return verdict("false_oom_driver", "likely", reason, phase=_known(phase), numbers=numbers)
        reason = "the first allocation was refused while the process held nothing: somebody else has the card"
        return verdict("gpu_held_by_other", "likely", reason, phase=_known(phase), numbers=numbers)
    if refused_with_room(numbers) and not numbers.get("allowed") and not fragmented(numbers):
        return verdict(
            "false_oom_driver",
            "likely" if facts.accelerator not in (None, "cuda") else "possible",
            f"{show_bytes(numbers['tried'])} were refused while {show_bytes(numbers['free'])} were free",
            phase=_known(phase),
            numbers=numbers,
        )
    others, total = _others(facts, numbers), numbers.get("total")
    # Weights and profile take what they need whatever the utilization; afterwards others may have what it leaves them.
    if others and total and others >= GIB and others > total * _share_of_others(facts, phase):
        return verdict(
            "gpu_held_by_other",
            "certain" if len(numbers["processes"]) > 1 else "likely",
            f"other processes hold {show_bytes(others)} of the card's {show_bytes(total)}",
            phase=_known(phase),
            memory=memory,
            numbers=numbers,
        )
    if fragmented(numbers):
        return verdict(
            "gpu_fragmentation",
            "likely",
            f"{show_bytes(numbers['reserved'])} were reserved but unallocated, more than the "
            f"{show_bytes(numbers['tried'])} asked for",
            phase=_known(phase) or "load",
            memory=memory,
            numbers=numbers,
        )
    return None


def _share_of_others(facts, phase):
    """The share of a card that others may hold before it counts: afterwards what the utilization leaves them."""
    sized = phase in ("kv_init", "graph_capture", "warmup", "serving")
    return max(0.05, 1 - facts.utilization) if sized else 0.1


def _others(facts, numbers):
    """Bytes that others hold by the text, without those that the node shows to be of the pod's own processes."""
    others, own = held_by_others(numbers), facts.holders.own_sizes()
    listed = [process["used"] for process in numbers.get("processes") or []]
    foreign = [used for used in listed if not alike(used, own)]
    # Where the list is one process, and it is ours, the others are those whom it lacks.
    if not others or len(foreign) == len(listed) or len(listed) == 1:
        return others
    return min(others, sum(used for used in foreign if used >= GIB))


def _by_node(facts, phase, numbers, memory):
    """Where the text doesn't say whose memory it was, the node's list of processes may, or None."""
    numbers = numbers or {}
    total, known = numbers.get("total"), [numbers.get(name) for name in ("total", "free", "allocated")]
    room = None if None in known else max(0, known[0] - known[1] - known[2] - (numbers.get("reserved") or 0))
    found = facts.holders.find(total, room, [item["used"] for item in numbers.get("processes") or []])
    taken = sum(item.bytes for item in found if item.kind not in ("gone", "later"))
    card = total or facts.gpu_total or facts.holders.largest
    if not taken or not card or taken <= card * _share_of_others(facts, phase):
        return None
    if room is not None and taken > room + _CONTEXT:
        return None  # more than was beside ours in that moment: they came later, or it is another card
    return verdict(
        "gpu_held_by_other",
        "certain" if any(item.tied for item in found) else "likely",
        f"the node shows that others hold {show_bytes(taken)} of the card's {show_bytes(card)}",
        phase=_known(phase),
        memory=memory,
        numbers=numbers or None,
    )


def _serving_oom(facts, line, numbers, confidence, memory):
    one_request = _ONE_LARGE_REQUEST.search(frame_functions(line)) or facts.given("enable_lora")
    tried = (numbers or {}).get("tried")
    grew = (
        (facts.served_for(line) or 0) > _LONGEST_START
        or facts.gpu_use_rose
        or any(facts.given(name) is not None for name in MULTIMODAL_OPTIONS)
    )
    if facts.multimodal and grew and not one_request and (tried is None or tried < GIB):
        return verdict(
            "serving_gpu_growth",
            "likely",
            "a multimodal model's encoder and its caches grow outside the KV cache budget",
            memory=memory,
            numbers=numbers,
        )
    return verdict("serving_gpu_oom", confidence, None, memory=memory, numbers=numbers)


def driver_oom(facts, line, match):
    """The driver's own OOM text: pinned host memory, a full GPU at context creation, or a graph."""
    if _PINNING.search(facts.near(line)):
        return verdict(
            "host_pin_limit",
            "likely",
            "the failing call pins host memory; its error text is CUDA's",
            phase=frame_phase(line.get("frames")) or "kv_init",
        )
    if facts.gpu_used_seen is not None and facts.gpu_used_seen < 0.05:
        return verdict(
            "false_oom_driver",
            "likely",
            f"nvidia-smi shows {facts.gpu_used_seen:.0%} of the card in use",
            phase=_known(facts.phase_at(line["line"])) or "load",
        )
    if facts.unified and facts.phase_at(line["line"]) in ("unknown", "load"):
        reason = (
            "GPU and host share this memory: page cache and other processes of the host leave the driver none"
        )
        return verdict("unified_memory_accounting", "likely", reason, phase="load")
    touched = _FIRST_TOUCH.search(frame_functions(line)) and frame_phase(line.get("frames")) in (None, "load")
    if touched or (
        not line.get("frames") and facts.phase_at(line["line"]) == "unknown" and not facts.unified
    ):
        return verdict(
            "gpu_held_by_other",
            "likely",
            "the driver refused before the engine had allocated anything of its own, so the card was full already",
            phase="load",
        )
    return device_oom(facts, line, match)


def cumem_oom(facts, line, match):
    """The sleep-mode allocator: at wake-up somebody else took the memory, at start the KV cache was sized wrong."""
    phase = frame_phase(line.get("frames")) or facts.phase_at(line["line"])
    if phase in ("load", "profile", "kv_init", "graph_capture", "warmup"):
        return verdict(
            "kv_budget_misestimate",
            "likely",
            "the sleep-mode allocator could not map the KV cache that the budget allowed",
            phase="kv_init",
        )
    return verdict("sleep_wakeup_oom", "certain" if phase == "serving" else "likely", None)


def nvrm_no_memory(facts, line, match):
    """The kernel driver could not get memory: on unified memory that is the whole machine's."""
    if facts.unified:
        return verdict(
            "unified_memory_accounting",
            "likely",
            "the GPU driver could not get memory, which neither MemAvailable nor the container's counters show",
            phase=_known(facts.last_phase) and "graph_capture",
        )
    return verdict(
        "gpu_held_by_other", "possible", "the GPU driver could not get memory", phase=_known(facts.last_phase)
    )


def nvml_assert(facts, line, match):
    """The allocator asks NVML while it composes its OOM text; on a MIG slice that query fails first."""
    return verdict(
        "mig_oom_masked",
        "likely" if facts.mig else "possible",
        "PyTorch asserts on NVML while it reports an out of memory, which a MIG slice forbids",
        phase=_known(facts.phase_at(line["line"]))
        if facts.phase_at(line["line"]) not in ("load",)
        else "kv_init",
    )


def cuda_library(facts, line, match):
    """cuBLAS, cuDNN: an allocation status is a full card; an internal error may be one."""
    phase = _known(facts.phase_at(line["line"]))
    return verdict(
        "cuda_library_alloc",
        "likely",
        "the library could not allocate its workspace, which is how a full card shows there",
        phase="profile" if phase in (None, "load") else phase,
    )


def cuda_library_internal(facts, line, match):
    return verdict(
        "cuda_library_alloc",
        "possible",
        "the status is printed for a full card and for real faults alike; the free memory at that moment decides",
        phase=_known(facts.phase_at(line["line"])) or "serving",
    )


# -- KV cache on the CPU backend, start-up arithmetic -----------------------------------------------------------------


def kv_sizing(facts, line, match):
    """The KV messages name the GPU also on the CPU backend, where the pool is host memory."""
    if facts.accelerator == "cpu":
        return verdict("cpu_backend_kv", "certain", "the CPU backend keeps its KV cache in host memory")
    if match.signature.cause == "kv_no_blocks" and _books_neighbours(facts) and _unexplained(facts):
        return verdict(
            "kv_budget_misestimate",
            "likely",
            "this version books every other process' GPU memory as its own when it sizes the KV cache",
        )
    return verdict(
        match.signature.cause,
        "certain",
        None,
        phase=match.signature.phase,
        memory="unified" if facts.unified else None,
    )


def _books_neighbours(facts):
    """Whether this version counts every other process' GPU memory as its own (vllm facts 5.2)."""
    if not facts.version:
        return False
    if facts.generation == "V1":
        return (0, 6, 4) <= facts.version < (0, 9, 1)
    return (0, 6, 3) <= facts.version < (0, 6, 5)


def _unexplained(facts):
    """Whether weights and activation leave at least three quarters of the budget that the KV cache did not get."""
    total, weights = facts.gpu_total, facts.number("weights")
    if total is None or weights is None:
        return False
    # An nvidia-smi table beside the log says it outright.
    if any(used - weights > 0.1 * total for used in facts.gpu_used_samples):
        return True
    budget = total * facts.utilization
    explained = weights + (facts.number("activation_peak") or 0) + max(facts.number("kv_available") or 0, 0)
    return budget - explained > 0.75 * budget


def device_not_as_expected(facts, line, match):
    """Device identifiers and queries: on a MIG slice or a vGPU it is the slicing that is wrong, else the given cause."""
    if facts.mig or facts.vgpu or "MIG" in line["text"]:
        return verdict(
            "mig_vgpu_config",
            "likely",
            "the container sees a slice, and the device was addressed as a whole GPU",
        )
    return verdict(match.signature.cause, "certain", None, phase=match.signature.phase)


# An idle host leaves at least this share of unified memory free.
_LEFT_BY_HOST = 2 / 3


def free_below_desired(facts, line, match):
    if facts.unified:
        reason = "GPU and host share this memory: page cache and other processes of the host count as used"
        available, asked = facts.mem_available, match.groups.get("requested")
        if available is not None and asked and available >= float(asked) * GIB:
            reason = f"the host could give {show_bytes(available)}, but page cache counts as used where free memory is read"
            return verdict("unified_memory_accounting", "likely", reason, phase="load")
        free, total = float(match.groups["free"]), float(match.groups["total"])
        if free < _LEFT_BY_HOST * total:
            reason = "over a third of the shared memory was taken before the engine touched it: page cache or the host"
            return verdict("unified_memory_accounting", "likely", reason, phase="load")
        return verdict("gpu_free_below_util", "certain", reason, memory="unified")
    return verdict("gpu_free_below_util", "certain", None)


# -- NCCL -------------------------------------------------------------------------------------------------------------

# The NCCL line that names the reason, where the Python exception only says that there is one.
# Of all ranks the earliest counts; what only follows from another rank's end, or names no rank, comes last.
_NCCL_REASONS = (
    (
        *(
            "nccl_out_of_memory",
            "nccl_cuda_malloc",
            "nvls_bind_out_of_memory",
            "nccl_host_malloc",
            "nccl_plain_malloc",
        ),
        *(
            "nccl_shm_segment",
            "nccl_shm_not_mapped",
            "shm_insufficient",
            "rdma_registration",
            "nvls_bind_failed",
        ),
        *("nccl_cuda_failure", "nccl_no_interface", "duplicate_gpu"),
    ),
    ("cuda_fault",),
    ("nccl_shm_attach", "nccl_watchdog_timeout"),
    ("no_space",),
)
# Where NCCL's host buffers are made: a failed allocation that came through here is memory of the host.
_NCCL_HOST_BUFFERS = re.compile(
    r"NCCL INFO (?:transport/shm\.cc|misc/shmutils\.cc|include/shm\.h|os/linux\.cc):\d+"
)
_NCCL_GPU_BUFFERS = re.compile(r"NCCL INFO transport/(?:p2p|nvls|net|coll_net)\.cc:\d+")


def nccl_reason(facts):
    """The ``(line, Match)`` of the NCCL line that names what an ``unhandled … error`` was, or None."""
    return next((found for found in (facts.first(*ids) for ids in _NCCL_REASONS) if found), None)


def nccl_generic(facts, line, match):
    """``unhandled … error``: the reason stands in another NCCL line, in /dev/shm's size, or nowhere."""
    found = nccl_reason(facts)
    if found:
        return resolve(facts, *found)
    small_shm = facts.first("shm_default_size")
    what = match.groups.get("what") or ("unhandled system error" if "System" in match.text else "")
    if "system error" in what and small_shm and facts.world_size > 1:
        return verdict(
            "shm_exhausted",
            "likely",
            f"/dev/shm has {show_bytes(int(small_shm[1].groups['bytes']))}, and NCCL's segments for local ranks live there",
        )
    if what == "unhandled cuda error":
        return verdict(
            "undetermined",
            "possible",
            "NCCL says this of an out of memory and of other errors alike; which one, its own log names (NCCL_DEBUG=WARN)",
            phase=_known(facts.phase_at(line["line"])),
        )
    return verdict(
        "nccl_not_memory",
        "possible",
        "the text does not say what failed: an out of memory of NCCL would be named in its own log",
        phase=_known(facts.phase_at(line["line"])),
    )


def nccl_cuda_malloc(facts, line, match):
    """NCCL's failed allocation: of GPU memory, or of host buffers that cuMem makes, by the way that the error took."""
    phase = _known(facts.phase_at(line["line"]))
    if facts.mentions(_NCCL_HOST_BUFFERS) and not facts.mentions(_NCCL_GPU_BUFFERS):
        reason = "the error came from where NCCL makes its buffers in host memory (NCCL_CUMEM_HOST_ENABLE=0 puts them into /dev/shm)"
        return verdict("host_pin_limit", "likely", reason, phase=phase)
    return verdict("nccl_gpu_oom", "certain", None, phase=phase)


# -- host memory ------------------------------------------------------------------------------------------------------


def offload_pool(facts):
    """Host memory in bytes that swap space and offload pools take by the settings and the log, ``(bytes, what)``."""
    pools = []
    size = (
        facts.number_setting("kv_offloading_size") if facts.given("kv_offloading_size") is not None else None
    )
    if size:
        pools.append((size * GIB, "kv_offloading_size"))
    size = facts.number_setting("cpu_offload_gb") if facts.given("cpu_offload_gb") is not None else None
    if size:
        pools.append((size * GIB * facts.world_size, "cpu_offload_gb"))
    v0 = facts.version is None or facts.version < (0, 8)
    size = facts.number_setting("swap_space")
    if size and v0 and (facts.given("swap_space") is not None or facts.version is not None):
        pools.append((size * GIB * facts.tensor_parallel, "swap_space"))
    size = _lmcache_size(facts)
    if size:
        pools.append((size * GIB * facts.world_size, "LMCACHE_MAX_LOCAL_CPU_SIZE"))
    if facts.given("kv_transfer_config") is not None or facts.said("offload_pool"):
        found = facts.first("offload_pool")
        size = found and found[1].groups.get("size")
        if size:
            unit = 10**9 if found[1].groups["unit"] == "GB" else 1 << 20
            pools.append((float(size) * unit, "KV offload region"))
    return max(pools) if pools else (0, None)


_LMCACHE_SIZE = re.compile(r"max_local_cpu_size'?\W+([\d.]+)")


def _lmcache_size(facts):
    """LMCache's local CPU pool in GiB for each rank, by the environment or its own log line, or None."""
    value = facts.env("LMCACHE_MAX_LOCAL_CPU_SIZE")
    for line in facts.lines:
        found = _LMCACHE_SIZE.search(line["text"])
        if found and value is None:
            value = found.group(1)
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


# Seconds after which a container without a log is taken for one that was serving.
_LONGEST_START = 3600


def host_cause(facts, phase=None, numbers=None):
    """Why the host memory of the container ran out: what was going on, and which pool is large.

    Used for kernel kills and refused host allocations alike.
    """
    phase = phase or facts.last_phase
    limit = facts.memory_limit or facts.host_memory.get("limit")
    pool, pool_name = offload_pool(facts)
    memory = facts.host_memory
    usage = memory.get("usage") or memory.get("peak")
    if facts.accelerator == "cpu":
        return verdict(
            "host_oom_cpu_backend",
            "likely",
            "on the CPU backend weights, KV cache and swap space are all host memory",
            phase=_known(phase) or "load",
        )
    if not facts.engine.get("name") and facts.container.get("role") != "init":
        reason = "no model is loaded in this container, so its memory grew with what it does"
        return verdict("host_oom_growth", "possible", reason, phase=_known(phase))
    if facts.mentions(_KERNEL_COMPILER) and phase != "serving":
        return verdict(
            "host_oom_compile",
            "likely",
            "kernels were being compiled by many parallel compiler processes, each with gigabytes of its own",
            phase=_known(phase) if phase in ("profile", "warmup", "graph_capture") else "warmup",
        )
    pinned = usage and memory.get("shmem") and memory["shmem"] >= 0.5 * usage
    chosen = pool_name != "swap_space" or facts.given("swap_space") is not None
    large = pool and (pool >= 0.5 * limit if limit else chosen)
    if pool_name and (pinned or large) and phase != "serving":
        return verdict(
            "host_oom_offload",
            "certain" if pinned else "likely",
            f"{pool_name} takes {show_bytes(int(pool))} of host memory that can't be reclaimed",
            phase="kv_init",
        )
    if pinned:
        return verdict(
            "host_oom_offload",
            "likely",
            "most of the container's memory is shared or pinned memory, which can't be reclaimed",
            phase=_known(phase) or "kv_init",
        )
    if phase == "serving":
        return verdict(
            "host_oom_growth",
            "likely",
            "the model was already serving, so the memory grew with requests or time",
        )
    if phase in ("profile", "warmup", "graph_capture") and facts.mentions(_COMPILING):
        return verdict("host_oom_compile", "possible", "the model was loaded and being compiled", phase=phase)
    if phase == "unknown" and (facts.death.get("seconds") or 0) > _LONGEST_START:
        reason = "the container ran for longer than a start takes, so the memory grew while it served"
        return verdict("host_oom_growth", "possible", reason)
    return verdict(
        "host_oom_load",
        "likely" if phase == "load" else "possible",
        None if phase == "load" else "nothing shows that the model was ready, so loading is the usual reason",
        phase=phase if phase not in ("unknown",) else "load",
    )


def host_kill(facts, line, match):
    """A kernel line about a memory cgroup."""
    return host_cause(facts, phase=facts.last_phase)


def host_alloc(facts, line, match):
    """The allocation was refused by the host, without a kill."""
    return host_cause(facts, phase=frame_phase(line.get("frames")) or facts.phase_at(line["line"]))


_RAY_THRESHOLD = re.compile(
    r"exceeds the memory usage threshold|Ray killed this worker|RAY_memory_usage_threshold"
)


def ray_memory_monitor(facts, line, match):
    """The monitor names its threshold where it explains itself; where it doesn't, a kill while loading is the load's."""
    phase = _begun_phase(facts, line)
    if facts.mentions(_RAY_THRESHOLD):
        return verdict("ray_memory_monitor", "certain", None, phase=_known(phase))
    # Ray versions of vLLM print little: an engine that was initialising and never announced a server was loading.
    if phase in ("load", "profile", "kv_init"):
        return verdict(
            "host_oom_load",
            "likely",
            "the node's memory filled up while the model was being loaded; Ray's monitor killed the worker first",
            phase="load",
        )
    return verdict("ray_memory_monitor", "certain", None, phase=_known(phase))


# -- /dev/shm, threads, crashes ---------------------------------------------------------------------------------------


def no_space(facts, line, match):
    """ENOSPC: of /dev/shm if the line, its traceback or the listing around it says so, else of a disk."""
    where = (
        line["text"]
        + " "
        + frame_functions(line)
        + " "
        + " ".join(str(near) for near in line.get("context") or [])
    )
    if _SHM_TRACES.search(where) or facts.said("shm_leftovers"):
        return verdict(
            "shm_exhausted",
            "likely",
            "the files that could not grow live in /dev/shm",
            phase=_known(facts.phase_at(line["line"])) if not facts.said("shm_leftovers") else "load",
        )
    return verdict(
        "not_memory_config",
        "possible",
        "a file system is full; nothing shows that it was /dev/shm",
        phase=_known(facts.phase_at(line["line"])),
    )


def tmpfs_refused_pages(facts, line, match):
    """EFAULT from a mapping of /dev/shm: the tmpfs has no pages left for it."""
    if _SHM_TRACES.search(line["text"] + " " + frame_functions(line)) or facts.said("offload_pool"):
        return verdict(
            "shm_exhausted",
            "likely",
            "the shared region is mapped from /dev/shm, and the tmpfs had no pages left for it",
            phase="kv_init",
        )
    return verdict("native_crash", "possible", None, phase=_known(facts.phase_at(line["line"])))


def bus_error(facts, line, match):
    """SIGBUS of a worker: a page of a tmpfs mapping could not be had."""
    return verdict(
        "shm_exhausted",
        "likely",
        "a bus error is how a full /dev/shm shows to the process that touches a page of it",
        phase=_known(facts.phase_at(line["line"])),
    )


# Locked memory below this is a limit that was never raised, not one that pools have used up.
_USUAL_MEMLOCK = GIB


def pin_refused(facts, line, match):
    """Pinning failed: by the memlock limit where one was seen that is small, else by what the platform allows."""
    if facts.memlock is not None and facts.memlock < _USUAL_MEMLOCK:
        reason = f"the memlock limit is {show_bytes(facts.memlock)}"
        return verdict("memlock_limit", "likely", reason, phase=_known(facts.phase_at(line["line"])))
    return verdict("host_pin_limit", "likely", None, phase=_known(facts.phase_at(line["line"])))


def crash(facts, line, match):
    """A native crash; an allocator setting that is known to break starts is named instead."""
    _name, value = facts.allocator_conf
    if "expandable_segments:True" in value and not facts.serving_seen:
        return verdict(
            "allocator_conf_side_effect",
            "likely",
            "the process aborted at start with expandable_segments:True set, and no allocation failed",
            phase=_known(facts.phase_at(line["line"])),
        )
    return verdict("native_crash", "likely", None, phase=_known(facts.phase_at(line["line"])))


def allocation_not_shareable(facts, line, match):
    """GPU memory could not be handed to another process: expandable segments take another way to do that."""
    if "expandable_segments:True" in facts.allocator_conf[1] or "pidfd_getfd" in line["text"]:
        return verdict(
            "allocator_conf_side_effect",
            "likely",
            "memory of expandable segments is shared between processes in a way that is not available here",
            phase=_known(facts.phase_at(line["line"])),
        )
    return verdict("nccl_not_memory", "possible", None, phase=_known(facts.phase_at(line["line"])))


def node_gone(facts, line, match):
    """The node stopped reporting: without a memory limit the pod can take it down."""
    if facts.memory_limit is None:
        return verdict(
            "node_oom",
            "likely",
            "nothing limits the container's memory, so it can take the whole node down",
        )
    return verdict("status_unknown", "likely", "the node stopped reporting")


def eviction(facts, line, match):
    """Which resource the node was short of."""
    resource = match.groups.get("resource") or ""
    starved = "memory" in resource or match.groups.get("condition") == "MemoryPressure"
    return verdict(
        "eviction", "certain", None, memory="node" if starved else "none", phase=_known(facts.last_phase)
    )


def interrupted_start(facts, line, match):
    """``KeyboardInterrupt: terminated``: SIGTERM during start-up is a probe that gave up; later it is a shutdown."""
    if facts.serving_seen or facts.phase_at(line["line"]) == "serving":
        return verdict("sigterm_shutdown", "likely", None)
    return verdict(
        "probe_kill",
        "likely",
        "the start was interrupted by SIGTERM, which is what a startup or liveness probe does",
        phase=_known(facts.last_phase),
    )


def invalid_argument(facts, line, match):
    """CUDA's ``invalid argument``: of a call that pins host memory, of shared expandable segments, or a plain fault."""
    if _PINNING.search(facts.near(line)):
        reason = "the failing call pins host memory; its error text is CUDA's"
        return verdict("host_pin_limit", "likely", reason, phase=_known(facts.phase_at(line["line"])))
    if "expandable_segments:True" in facts.allocator_conf[1]:
        return allocation_not_shareable(facts, line, match)
    return verdict("not_memory_cuda_fault", "possible", None, phase=_known(facts.phase_at(line["line"])))


_FAMILIES = {
    "invalid_argument": invalid_argument,
    "device_oom": device_oom,
    "driver_oom": driver_oom,
    "cumem_oom": cumem_oom,
    "nvrm_no_memory": nvrm_no_memory,
    "nccl_generic": nccl_generic,
    "host_kill": host_kill,
    "host_alloc": host_alloc,
    "ray_memory_monitor": ray_memory_monitor,
    "no_space": no_space,
    "tmpfs_refused_pages": tmpfs_refused_pages,
    "bus_error": bus_error,
    "crash": crash,
    "allocation_not_shareable": allocation_not_shareable,
    "node_gone": node_gone,
    "interrupted_start": interrupted_start,
}
_DIRECT = {
    "kv_no_blocks": kv_sizing,
    "kv_below_one_sequence": kv_sizing,
    "max_seq_len_above_kv": kv_sizing,
    "free_below_desired": free_below_desired,
    "nvml_assert": nvml_assert,
    "cublas_alloc": cuda_library,
    "cuda_library_internal": cuda_library_internal,
    "evicted_low_resource": eviction,
    "pin_refused": pin_refused,
    "nvml_query_refused": device_not_as_expected,
    "duplicate_gpu": device_not_as_expected,
    "nccl_cuda_malloc": nccl_cuda_malloc,
}
