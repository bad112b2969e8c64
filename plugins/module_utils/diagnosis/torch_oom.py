# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading PyTorch's out-of-memory text (torch 2.1 to 2.14; vllm-memory facts, section 3.20).

The text names the card's total and free memory, the processes on it (by NVML, so by host pid) and what
PyTorch's own allocator holds. Everything else follows from those numbers.
"""

from __future__ import annotations

import re

from ..quantities import GIB, parse_size

_SIZE = r"(-?[\d.]+ (?:bytes|[KMG]i?B))"
_TRIED = re.compile(rf"Tried to allocate (?:more than )?{_SIZE}")
_TOTAL = re.compile(rf"total capac(?:i)?ty of {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free|has {_SIZE} free")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_PROCESS = re.compile(rf"\bProcess (?:(\d+) )?has {_SIZE} memory in use")
_ALLOWED = re.compile(rf"{_SIZE} allowed;")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_POOLS = re.compile(rf"with {_SIZE} allocated in private pools")
_RESERVED = re.compile(rf"(?:and|,) {_SIZE} is reserved by PyTorch but unallocated")
# torch up to 2.0 and torch_npu: (GPU 0; 23.69 GiB total capacity; 21.94 GiB already allocated; 12.12 MiB free; 22.21 GiB
# reserved in total by PyTorch)
_OLD_TOTAL = re.compile(rf"{_SIZE} total capacity")
_OLD_ALLOCATED = re.compile(rf"{_SIZE} already allocated")
_OLD_FREE = re.compile(rf"{_SIZE} free;")
_OLD_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")

# A process smaller than this beside ours is a CUDA context, not a tenant.
_CONTEXT_ONLY = GIB
# Our process holds so much at most beside PyTorch's memory: context, NCCL, libraries.
_OWN_BESIDE = int(1.5 * GIB)


def _first_size(pattern, text):
    match = pattern.search(text)
    return parse_size(next(group for group in match.groups() if group)) if match else None


def parse_oom(text):
    """The numbers of a torch OOM text, in bytes: ``{tried, total, free, own, processes, allowed, allocated, pools, reserved}``.

    ``processes`` is a list of ``{pid, used}``; a number that the text lacks is None. Returns None for a text that
    carries no number at all.
    """
    numbers = _old_numbers(text) or {
        "tried": _first_size(_TRIED, text),
        "total": _first_size(_TOTAL, text),
        "free": _first_size(_FREE, text),
        "own": _first_size(_OWN, text),
        "allowed": _first_size(_ALLOWED, text),
        "allocated": _first_size(_ALLOCATED, text),
        "pools": _first_size(_POOLS, text),
        "reserved": _first_size(_RESERVED, text),
    }
    total = numbers.get("total")
    # Some drivers print 17179869184.00 GiB for their own process: no number at all.
    if numbers["own"] is not None and total is not None and numbers["own"] > 2 * total:
        numbers["own"] = None
    numbers["processes"] = [
        {"pid": pid, "used": parse_size(used)} for pid, used in _PROCESS.findall(text) if parse_size(used)
    ]
    if not numbers["processes"] and all(value is None for value in numbers.values() if value != []):
        return None
    return numbers


def _old_numbers(text):
    """The numbers of the older wording, or None. What PyTorch has reserved in total stands for our own use, but for the context."""
    reserved, allocated = _first_size(_OLD_RESERVED, text), _first_size(_OLD_ALLOCATED, text)
    if reserved is None:
        return None
    return {
        "tried": _first_size(_TRIED, text),
        "total": _first_size(_OLD_TOTAL, text),
        "free": _first_size(_OLD_FREE, text),
        "own": reserved + _CONTEXT_ONLY,
        "allowed": None,
        "allocated": allocated,
        "pools": None,
        "reserved": None if allocated is None else reserved - allocated,
    }


def held_by_others(oom):
    """Bytes of the card that processes other than ours hold, as far as the text shows it; None if it doesn't.

    NVML names processes by host pid, so our own appears as a ``Process N`` clause in a container: the smallest one
    that can hold what PyTorch holds is ours. Without per-process clauses the rest of the card is somebody else's.
    """
    held = (oom.get("allocated") or 0) + (oom.get("reserved") or 0)
    processes = sorted(process["used"] for process in oom.get("processes") or [])
    own = oom.get("own")
    if processes and not own:
        able = [used for used in processes if used >= held * 0.98]
        if able:
            processes.remove(able[0])
        elif len(processes) == 1:
            return None  # one process, smaller than what we hold: the clause can't be read that way
        if not processes and able and able[0] <= held + _OWN_BESIDE:
            own = able[
                0
            ]  # ours alone is listed; what else is in use is held by somebody whom NVML doesn't show here
            return _beside_own(oom, own) or 0
        return sum(used for used in processes if used >= _CONTEXT_ONLY)
    return _beside_own(oom, own) if own else None


def _beside_own(oom, own):
    """Bytes of the card in use beside ``own``, or None where the text doesn't tell."""
    if oom.get("total") is None or oom.get("free") is None:
        return None
    return max(0, oom["total"] - oom["free"] - own)


def outside_allocator(oom):
    """Bytes that our own process holds beyond PyTorch's allocator (context, NCCL, graphs), or None."""
    own = oom.get("own")
    processes = oom.get("processes") or []
    if not own and len(processes) == 1:
        own = processes[0]["used"]
    if not own or oom.get("allocated") is None:
        return None
    return max(0, own - oom["allocated"] - (oom.get("reserved") or 0))


def fragmented(oom):
    """Whether memory that PyTorch had reserved but not used could have served the request.

    It counts only when that memory is a notable share of the card (3 %): every process keeps some slack.
    """
    reserved, tried, total = oom.get("reserved"), oom.get("tried"), oom.get("total")
    if reserved is None or tried is None:
        return False
    return reserved >= tried and (total is None or reserved >= 0.03 * total)


def refused_with_room(oom):
    """Whether the allocation failed although far more was free than it asked for."""
    free, tried = oom.get("free"), oom.get("tried")
    return free is not None and tried is not None and free >= GIB and free >= 8 * tried
