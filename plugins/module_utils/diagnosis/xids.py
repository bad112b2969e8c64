# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids, the error codes of NVIDIA's kernel driver: what each means, whose fault it is, what to do (shared facts
"kubernetes-gpu-facts" section 9, from NVIDIA's Xid catalogue and the open kernel modules).

A CUDA out of memory writes no Xid: none of them says that memory ran out.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

# meaning: in words. fault: program, hardware, driver (with the GPU's firmware) or handled (nothing is left to do). reset: whether
# the GPU needs a reset, None where the line itself says it. action: a name of documents.ACTIONS. confidence: how sure the Xid
# makes a fault of the GPU or its driver; None where it doesn't speak of one, or as well of a program's.
Xid = namedtuple("Xid", "code meaning fault reset action confidence")

_RESET = "reset_gpu"
_RESTART = "restart_pod"
_NOTHING = "no_change"

_NVLINK5 = {144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW_CTRL", 149: "NETIR", 150: "MSE"}

_ROWS = (
    (13, "graphics engine exception: a faulty kernel, out of bounds", "program", False, _RESTART, None),
    (31, "GPU memory page fault: an illegal address", "program", False, _RESTART, None),
    (32, "invalid or corrupted push buffer", "program", False, _RESTART, None),
    (43, "GPU stopped processing: the program's channel was reset", "program", False, _NOTHING, None),
    (45, "clean-up after an earlier error, or after a killed process", "handled", False, _NOTHING, None),
    (46, "GPU timeout", "hardware", True, _RESET, "likely"),
    (48, "double bit ECC error", "hardware", True, _RESET, "certain"),
    (61, "breakpoint of the power management unit", "driver", False, "upgrade_driver", "possible"),
    (62, "internal micro-controller halt", "hardware", True, _RESET, "likely"),
    (63, "row remapping or page retirement recorded", "handled", False, _NOTHING, None),
    (64, "row remapping or page retirement failed", "hardware", True, _RESET, "certain"),
    (68, "NVDEC exception", "program", False, _RESTART, None),
    (69, "graphics engine class error", "program", False, _RESTART, None),
    (74, "NVLink error", "hardware", True, _RESET, "likely"),
    (79, "GPU has fallen off the bus", "hardware", True, _RESET, "certain"),
    (92, "high rate of single-bit ECC errors", "handled", False, _NOTHING, None),
    (94, "contained memory error: only the program that used the page dies", "hardware", False, _RESTART, "certain"),
    (95, "uncontained memory error", "hardware", True, _RESET, "certain"),
    (109, "context switch timeout: a program or the driver", "driver", True, _RESET, None),
    (110, "security fault", "hardware", True, _RESET, "likely"),
    (119, "GSP RPC timeout", "driver", True, _RESET, "likely"),
    (120, "GSP error", "driver", True, _RESET, "likely"),
    (121, "corrected error of the chip-to-chip link", "handled", False, _NOTHING, None),
    (137, "NVLink privilege error: access to a peer that had faulted", "program", False, _RESTART, None),
    (140, "unrecovered ECC error", "hardware", True, _RESET, "certain"),
    (143, "GPU initialisation error", "hardware", True, _RESET, "likely"),
    *(
        (code, f"NVLink fault ({part})", "hardware", None, _RESET, "possible")
        for code, part in _NVLINK5.items()
    ),
    (154, "the GPU's recovery action changed", "driver", None, _RESET, None),
    (155, "NVLink error defined by software", "driver", True, _RESET, "possible"),
    (156, "resource retirement", "hardware", True, _RESET, "likely"),
    (157, "resource retirement failed", "handled", False, _NOTHING, None),
    (158, "fatal GPU timeout", "hardware", True, _RESET, "certain"),
    (160, "channel retirement", "handled", False, _NOTHING, None),
    (161, "channel retirement failed", "handled", False, _NOTHING, None),
    (168, "less GPU memory usable than before", "hardware", False, "check_memory_view", "likely"),
    (171, "uncorrectable DRAM error", "hardware", True, _RESET, "certain"),
    (172, "uncorrectable SRAM error", "hardware", True, _RESET, "certain"),
)  # fmt: skip
XIDS = {row[0]: Xid(*row) for row in _ROWS}

# Codes that a faulty program gives, and a faulty GPU to one program after the other.
REPEATED = (13, 31)

_LINE = re.compile(r"Xid \((?:PCI:)?(?P<bus>[^)]*)\): (?P<code>\d+)")
_PROGRAM = re.compile(r"\bname=(?!<unknown>)(?P<name>[^,\s]+)")
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?", re.IGNORECASE)
# What Xid 154 says: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)".
_RECOVERY = re.compile(r"changed from .*? to \S+ \((?P<action>[^)]*)\)")
# NVLink5 lines name their severity after the unit: "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08".
_FATAL = re.compile(r"\b(?:Fatal|Nonfatal|Non-fatal)\b", re.IGNORECASE)

# entry: the Xid's row, an unknown code's included; text, time and count (how many alike) as the node has them; bus: address as ``bus_address`` makes it.
Seen = namedtuple("Seen", "xid reset bus program pid text time count")


def xid(code):
    """The row of ``code``; for one that isn't known a row that says so and accuses nobody."""
    return XIDS.get(code) or Xid(code, "a code that this runbook doesn't know", None, None, _NOTHING, None)


def is_known(code):
    """Whether the table has a row for ``code``."""
    return code in XIDS


def bus_address(text):
    """``domain:bus:device`` with four digits of the domain, in lower case, or None: Xids and nvidia-smi write it differently."""
    match = _ADDRESS.search(text or "")
    if not match:
        return None
    domain = (match.group(1) or "0")[-4:].rjust(4, "0")
    return f"{domain}:{match.group(2)}:{match.group(3)}".lower()


def seen(item):
    """A ``Seen`` of one entry of a node's ``xids`` (a kernel line, or a dict with code, text, time, bus_id, pid), or None."""
    entry = {"text": item} if isinstance(item, str) else item
    text = entry.get("text") or ""
    match, program = _LINE.search(text), _PROGRAM.search(text)
    code, bus = entry.get("code"), entry.get("bus_id")
    if match:
        code = int(match.group("code")) if code is None else code
        bus = bus or match.group("bus")
    if code is None:
        return None
    row = xid(code)
    name = program.group("name") if program else None
    return Seen(
        row,
        _reset(row, text),
        bus_address(bus),
        name,
        entry.get("pid"),
        text or f"Xid {code}",
        entry.get("time"),
        entry.get("count") or 1,
    )


def _reset(row, text):
    """Whether this very Xid asks for a reset; where the row doesn't say it, its text does."""
    if row.reset is not None:
        return row.reset
    if row.code == 154:
        said = _RECOVERY.search(text)
        return said is not None and said.group("action").strip().lower() != "none"
    fatal = _FATAL.search(text)
    return fatal is not None and fatal.group(0).lower() == "fatal"


def words(item):
    """A ``Seen`` in words: ``Xid 79 (GPU has fallen off the bus)``."""
    return f"Xid {item.xid.code} ({item.xid.meaning})"


def repeated(items):
    """Addresses of GPUs on which at least three different processes, or two programs, ran into the same kind of program fault.

    One faulty program restarts and faults again; several different ones point at the GPU.
    """
    by_gpu: dict[str, list] = {}
    for item in items:
        if item.xid.code in REPEATED and item.bus:
            by_gpu.setdefault(item.bus, []).append(item)
    return [
        bus
        for bus, found in by_gpu.items()
        if len({item.program for item in found if item.program}) >= 2
        or len({item.pid for item in found if item.pid}) >= 3
    ]
