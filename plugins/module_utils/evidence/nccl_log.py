# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL says about itself under ``NCCL_DEBUG``: communicators, channels, transports, sizes, settings.

The texts are those of NCCL 2.8 to 2.30 (shared facts "kubernetes-gpu-facts" 10.3 and 10.4); the prefixes of both eras are
taken off by ``log_lines``. ``info`` tells the scanner which INFO lines are worth a place in an excerpt, ``nccl_facts`` reads
them from one.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

INFO = "NCCL INFO "

# One rank's lines, each of which counts: its digits are what matters. The others stand for all lines of their kind.
_OF_ONE_RANK = ("channels", "complete", "layout", "nvls", "allocated", "shareable", "host")
_SUMMED = ("allocated", "shareable", "host")
# Alike but for their digits, and yet different.
_DIGITS_MATTER = ("variable", "place")

_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("transport", r"Channel \d+(?:/\d+)? : .+? via (?P<value>[A-Z]\S*(?: pointer)?)"),
        (
            "channels",
            r"(?P<coll>\d{1,15}) coll channels(?:, \d+ collnet channels)?(?:, (?P<nvls>\d{1,15}) nvls channels)?"
            r"(?:, (?P<p2p>\d{1,15}) p2p channels)?(?:, (?P<per_peer>\d{1,15}) p2p channels per peer)?",
        ),
        ("allocated", r"Cuda (?:Alloc|Calloc) Size (?P<bytes>\d{1,15}) pointer"),
        ("shareable", r"Allocated shareable buffer \S+ size (?P<bytes>\d{1,15})"),
        ("host", r"(?:CUMEM Host Alloc|Cuda Host Alloc) Size (?P<bytes>\d{1,15})"),
        (
            "nvls",
            r"NVLS comm (?P<comm>0x[0-9a-f]+) .*?(?:nHeads|nranks) (?P<heads>\d{1,15}).*?nvlsTotalSize (?P<bytes>\d{1,15})",
        ),
        (
            "layout",
            r"comm (?P<comm>0x[0-9a-f]+) rank \d+ n[Rr]anks (?P<ranks>\d{1,15}) nNodes (?P<nodes>\d{1,15}) localRanks (?P<local>\d{1,15})",
        ),
        (
            "complete",
            r"comm (?P<comm>0x[0-9a-f]+) rank \d+ nranks (?P<ranks>\d{1,15}) .*- Init COMPLETE",
        ),
        ("variable", r"(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>.*\S)"),
        ("bootstrap", r"Bootstrap ?: Using (?:\[\d+\])?(?P<value>[^\s:]+):"),
        ("ib", r"NET/IB ?: (?:Using (?P<value>\[\d+\][^;]*)|No device found)"),
        ("socket", r"NET/Socket ?: Using (?P<value>\[\d+\].*)"),
        ("network", r"Using network (?P<value>\S.*)"),
        ("version", r"NCCL version (?P<value>\d[\d.]*)"),
        ("cumem_host", r"cuMem host allocations do not appear to be working"),
        ("no_p2p", r"P2P is disabled between connected GPUs"),
        ("place", r"(?P<value>[\w./-]+\.(?:cc|cu|h):\d+)(?: \([^)]*\))? -> [1-9]\b"),
    )
)
_LISTED = re.compile(r"\[\d+\]([^\s:;<]+)")
_VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+)|vLLM is using nccl==(\d+(?:\.\d+)+)")
_GPU_WANTED = re.compile(
    r"Failed to CUDA (?:malloc|calloc)(?: async)? (\d{1,15}) bytes|"
    r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size (\d{1,15})"
)
_SHM_WANTED = re.compile(
    r"failed to extend /dev/shm/nccl-\S+ to (\d{1,15}) bytes|creating shared memory segment \S+ \(size (\d{1,15})\)"
)


class Info(NamedTuple):
    """An INFO line that is worth keeping.

    kind: see ``_KINDS``; key: lines of the same key say the same; size: bytes to be summed, or None; one_rank: one
    process's lines are enough; distinct: two such lines may differ in digits only, and both count.
    """

    kind: str
    key: str
    size: int | None
    one_rank: bool
    distinct: bool


def info(message):
    """What an NCCL INFO message (with its ``NCCL INFO``) tells, as Info, or None for one that tells nothing here."""
    found = _read(message)
    if found is None:
        return None
    kind, fields = found
    if kind in _SUMMED:
        return Info(kind, "", int(fields["bytes"]), True, True)
    if kind in _OF_ONE_RANK:
        return Info(kind, message, None, True, True)
    return Info(kind, " ".join(filter(None, fields.values())), None, False, kind in _DIGITS_MATTER)


def _read(message):
    for kind, pattern in _KINDS:
        found = pattern.search(message)
        if found:
            return kind, found.groupdict()
    return None


def nccl_facts(lines):
    """What NCCL reported, from the lines of a log excerpt (``documents.log_lines``).

    Returns ``{version, communicators, transports, nvls_bytes, allocated_bytes, host_bytes, cumem_host, p2p, variables,
    interfaces, hcas, network, places, wanted, spoken}``. communicators: of one rank, ``[{ranks, nodes, local_ranks, coll,
    nvls, p2p, p2p_per_peer, nvls_bytes}]``; transports: ``{name: lines}``; allocated_bytes: GPU memory of one rank by ALLOC
    lines, without NVLS's; cumem_host, p2p: False where NCCL said that it can't, else None; variables: ``{NAME: [values]}``
    as the ranks saw them; interfaces, hcas: names; places: source positions that an error passed through; wanted:
    ``{gpu, shm}``, bytes that the first failing allocation asked for; spoken: whether INFO lines were there at all.
    """
    facts: dict = {
        "version": None,
        "communicators": [],
        "transports": {},
        "nvls_bytes": None,
        "allocated_bytes": None,
        "host_bytes": None,
        "cumem_host": None,
        "p2p": None,
        "variables": {},
        "interfaces": [],
        "hcas": [],
        "network": None,
        "places": [],
        "wanted": {"gpu": None, "shm": None},
        "spoken": False,
    }
    ranks: dict = {}
    counted: dict = {}
    for line in lines:
        text = line["text"]
        _plain(facts, text)
        if INFO not in text:
            continue
        facts["spoken"] = True
        found = _read(text)
        if found is None:
            continue
        kind, fields = found
        if kind in _OF_ONE_RANK:
            _take(ranks.setdefault(line.get("process"), _rank()), kind, fields, line)
        elif kind == "transport":
            _count(counted, _transport(fields["value"]), line)
        else:
            _general(facts, kind, fields)
    # A line that stands for many is counted already; what the tail holds of them is the same again.
    facts["transports"] = {name: max(most, single) for name, (most, single) in sorted(counted.items())}
    if ranks:
        _of_rank(facts, max(ranks.values(), key=lambda rank: (len(rank["communicators"]), rank["allocated"])))
    return facts


def _plain(facts, text):
    """What stands in lines of any level."""
    if "nccl" not in text and "NCCL" not in text and "CUDA" not in text:
        return
    found = _VERSION.search(text)
    if found and facts["version"] is None:
        facts["version"] = found.group(1) or found.group(2)
    for name, pattern in (("gpu", _GPU_WANTED), ("shm", _SHM_WANTED)):
        found = pattern.search(text)
        if found and facts["wanted"][name] is None:
            facts["wanted"][name] = int(found.group(1) or found.group(2))


def _count(counted, name, line):
    most, single = counted.get(name, (0, 0))
    counted[name] = (max(most, line.get("count") or 1), single + 1)


def _transport(value):
    """``P2P/CUMEM`` of ``P2P/CUMEM/read``, ``NET/IB/GDRDMA`` of ``NET/IB/0/GDRDMA``, ``NET/Socket`` of ``NET/Socket/0``."""
    parts = [part.partition("(")[0] for part in value.split("/") if part and not part[0].isdigit()]
    if parts[0] == "NET":
        return "/".join([*parts[:2], *(part for part in parts[2:] if part == "GDRDMA")])
    return "/".join(parts[:1] if parts[0] == "SHM" else parts[:2])


def _general(facts, kind, fields):
    value = fields.get("value")
    if kind == "variable":
        values = facts["variables"].setdefault(fields["name"], [])
        value = value.rstrip(".")
        if value not in values:
            values.append(value)
    elif kind == "bootstrap":
        _add(facts["interfaces"], value)
    elif kind == "socket":
        for name in _LISTED.findall(value):
            _add(facts["interfaces"], name)
    elif kind == "ib":
        for name in _LISTED.findall(value or ""):
            _add(facts["hcas"], name)
    elif kind == "network":
        facts["network"] = facts["network"] or value
    elif kind == "cumem_host":
        facts["cumem_host"] = False
    elif kind == "no_p2p":
        facts["p2p"] = False
    elif kind == "place":
        _add(facts["places"], value)


def _add(names, name):
    if name not in names:
        names.append(name)


def _rank():
    return {"communicators": {}, "channels": None, "allocated": 0, "shareable": 0, "host": 0, "summed": {}}


def _take(rank, kind, fields, line):
    """One line of one rank. The channels are printed just before their communicator is complete."""
    if kind in _SUMMED:
        # The scanner's line holds the sum of all; the tail's lines are among them.
        rank["summed"][kind] = rank["summed"].get(kind) or "bytes" in line
        if "bytes" in line or not rank["summed"][kind]:
            rank[kind] += line.get("bytes", int(fields["bytes"]))
        return
    if kind == "channels":
        rank["channels"] = {name: int(value) for name, value in fields.items() if value is not None}
        return
    known = rank["communicators"].setdefault(fields["comm"], {})
    if kind == "nvls":
        known["nvls_bytes"] = int(fields["bytes"])
    elif kind == "layout":
        known.update(ranks=int(fields["ranks"]), nodes=int(fields["nodes"]), local_ranks=int(fields["local"]))
    else:
        known["ranks"] = int(fields["ranks"])
        known.update(rank["channels"] or {})
        rank["channels"] = None


_NAMES = {"p2p": "p2p", "per_peer": "p2p_per_peer", "coll": "coll", "nvls": "nvls"}


def _of_rank(facts, rank):
    found = list(rank["communicators"].values())
    if rank["channels"]:
        # The log ends before the communicator was complete.
        open_ones = [item for item in found if "coll" not in item]
        (open_ones[-1] if open_ones else _appended(found)).update(rank["channels"])
    for item in found:
        entry = dict.fromkeys(
            ("ranks", "nodes", "local_ranks", "coll", "nvls", "p2p", "p2p_per_peer", "nvls_bytes")
        )
        entry.update({_NAMES.get(name, name): value for name, value in item.items()})
        facts["communicators"].append(entry)
    nvls = [item["nvls_bytes"] for item in facts["communicators"] if item["nvls_bytes"] is not None]
    facts["nvls_bytes"] = sum(nvls) if nvls else None
    # Without cuMem a shareable buffer is an ordinary allocation, and both lines are printed.
    cumem = any("CUMEM" in name for name in facts["transports"])
    size = rank["allocated"] + rank["shareable"] if cumem else max(rank["allocated"], rank["shareable"])
    facts["allocated_bytes"] = size or None
    facts["host_bytes"] = rank["host"] or None


def _appended(items):
    items.append({})
    return items[-1]
