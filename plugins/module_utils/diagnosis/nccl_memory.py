# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory NCCL's buffers take on each GPU, and in /dev/shm; what a setting of NCCL would free of it.

Formulas: shared facts "kubernetes-gpu-facts" 10.3. They are right within a factor of two either way: the number of channels
follows the topology. Where NCCL reported its channels and sizes, those are used.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..documents import change
from ..engine.versions import in_range
from ..quantities import KIB, MIB, show_bytes

# One connection of one channel has a buffer for each protocol (NCCL's init.cc).
LL, LL128, SIMPLE = 512 * KIB, 4915200, 4 * MIB
# The estimate is right within this factor.
ERROR = 2
STEPS = 8

# Channels of a ring by what links the GPUs, and of NVLS by the GPU's generation (SM90, SM100 in one node).
CHANNELS = {"nvlink": 24, "pcie": 2, None: 16}
NVLS_CHANNELS = {"hopper": 16, "blackwell": 24}
# The generation of GPUs that no NVSwitch with NVLink SHARP joins: older ones, those of workstations, other makers'.
WITHOUT_NVLS = "without NVLS"
_NVLS_ENABLE = "NCCL_NVLS_ENABLE"
_NVLS_CHUNK = 128 * KIB
# NCCL 2.17 to 2.20 gave NVLS the ordinary 4 MiB buffer.
_NVLS_OF_SIMPLE = ("2.17", "2.20")
_P2P_CHANNELS_PER_PEER = 2
# Fewer ranks than these use no NVLS (reported for Hopper with 2 GPUs).
_NVLS_RANKS = 3
_CAPS = ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS")
_FLOORS = ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS")

# In this order they cost the least bandwidth for what they free.
SAVINGS = (
    (_NVLS_ENABLE, "0", "the other algorithms do not need NVLS's buffers"),
    ("NCCL_MAX_CTAS", "8", "fewer channels need fewer buffers"),
    ("NCCL_BUFFSIZE", str(2 * MIB), "half the buffer of each channel, for some bandwidth"),
)


class Ranks(NamedTuple):
    """Who talks to whom. local: GPUs of one node in the largest collective group; link: nvlink, pcie or None (unknown);
    generation: hopper, blackwell, WITHOUT_NVLS, or None (unknown); collectives: communicators with a ring on each GPU; peers: how many
    others one GPU sends to and receives from directly (pipeline, experts); nodes: how many nodes the group spans."""

    local: int
    link: str | None = None
    generation: str | None = None
    collectives: int = 2
    peers: int = 0
    nodes: int = 1


def number(variables, name, default=None):
    """A whole number from NCCL's settings (``{NAME: text}``), or the default where it is none."""
    text = str((variables or {}).get(name, "")).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else default


def connection_bytes(variables=None):
    """The buffers of one connection on one channel."""
    return (
        number(variables, "NCCL_LL_BUFFSIZE", LL)
        + number(variables, "NCCL_LL128_BUFFSIZE", LL128)
        + number(variables, "NCCL_BUFFSIZE", SIMPLE)
    )


def _within(channels, variables):
    """The channels that caps and floors leave; a cap beats a floor."""
    floor = max([number(variables, name, 0) for name in _FLOORS])
    caps = [cap for cap in (number(variables, name) for name in _CAPS) if cap]
    return max(1, min([max(channels, floor), *caps]))


def _nvls_on(variables):
    return str((variables or {}).get(_NVLS_ENABLE, "2")).strip() != "0"


def nvls_bytes(ranks, variables=None, version=None, channels=None):
    """NVLS's buffers on each GPU: 0 where it is off, or can't be on. channels: as NCCL reported them, before any cap."""
    if not _nvls_on(variables) or ranks.local < _NVLS_RANKS:
        return 0
    usual = NVLS_CHANNELS.get(ranks.generation, 0) if ranks.link == "nvlink" else 0
    count = number(variables, "NCCL_NVLS_NCHANNELS", channels or usual) if usual or channels else 0
    if not count:
        return 0
    caps = [cap for cap in (number(variables, name) for name in _CAPS) if cap]
    buffer = number(variables, "NCCL_NVLS_CHUNKSIZE", _NVLS_CHUNK) * STEPS
    if in_range(version, *_NVLS_OF_SIMPLE):
        buffer = number(variables, "NCCL_BUFFSIZE", SIMPLE)
    return 2 * min([count, *caps]) * buffer * ranks.local


def estimate(ranks, variables=None, version=None, reported=None):
    """NCCL's buffers on each GPU: ``{segments: [{name, bytes, formula, proof}], bytes, low, high}``.

    ranks: Ranks; variables: NCCL's settings by name; version: NCCL's, or None; reported: ``nccl_log.nccl_facts`` of this
    pod's log, or None. proof: ``measured`` where NCCL printed the number of channels or the size, else ``modelled``.
    Without the fixed part of each communicator (100 to 400 MiB of kernels and queues), which no setting changes.
    """
    told = [item for item in (reported or {}).get("communicators") or [] if item.get("coll")]
    each = connection_bytes(variables)
    segments = [_rings(ranks, variables, told, each), _nvls(ranks, variables, version, reported, told)]
    if ranks.peers:
        segments.append(_peers(ranks, variables, told, each))
    segments = [item for item in segments if item["bytes"]]
    total = sum(item["bytes"] for item in segments)
    return {"segments": segments, "bytes": total, "low": total // ERROR, "high": total * ERROR}


def _segment(name, size, formula, measured):
    return {"name": name, "bytes": size, "formula": formula, "proof": "measured" if measured else "modelled"}


def _rings(ranks, variables, told, each):
    if ranks.local * ranks.nodes < 2 and not told:
        return _segment("rings", 0, "one rank needs none", False)
    if told:
        counts = [_within(item["coll"], variables) for item in told if (item.get("ranks") or 2) > 1]
    else:
        counts = [_within(CHANNELS[ranks.link], variables)] * ranks.collectives
    words = " + ".join(str(count) for count in counts)
    return _segment("rings", sum(counts) * each, f"({words}) channels x {show_bytes(each)}", bool(told))


def _nvls(ranks, variables, version, reported, told):
    printed = (reported or {}).get("nvls_bytes")
    channels = max((item.get("nvls") or 0 for item in told), default=0) if told else None
    if printed and _nvls_on(variables):
        # What a cap leaves of what was printed.
        caps = [cap for cap in (number(variables, name) for name in _CAPS) if cap]
        size = printed * min([channels, *caps]) // channels if channels else printed
        return _segment("nvls", size, "as NCCL printed it", True)
    size = 0 if channels == 0 else nvls_bytes(ranks, variables, version, channels)
    return _segment("nvls", size, f"2 x channels x buffer x {ranks.local} GPUs", bool(channels))


def _peers(ranks, variables, told, each):
    per_peer = max((item.get("p2p_per_peer") or 0 for item in told), default=0) or _P2P_CHANNELS_PER_PEER
    per_peer = min(per_peer, number(variables, "NCCL_MAX_P2P_NCHANNELS") or per_peer)
    size = per_peer * ranks.peers * each
    return _segment(
        "p2p", size, f"{per_peer} channels x {ranks.peers} peers x {show_bytes(each)}", bool(told)
    )


def freed(ranks, name, value, variables=None, version=None, reported=None):
    """Bytes that setting ``name`` to ``value`` frees on each GPU, by the estimate; 0 where it frees nothing."""
    before = estimate(ranks, variables, version, reported)["bytes"]
    after = estimate(ranks, dict(variables or {}, **{name: value}), version, reported)["bytes"]
    return max(0, before - after)


def known(ranks, reported=None):
    """Whether it is known what NCCL uses here: it said so, or node and GPUs tell. Otherwise only the rules speak."""
    told = any(item.get("coll") for item in (reported or {}).get("communicators") or [])
    return told or ranks.link == "pcie" or (ranks.link == "nvlink" and ranks.generation is not None)


def saving_changes(ranks, variables=None, version=None, reported=None, wanted=None):
    """``(recommended, rejected)``: NCCL's settings that free GPU memory, each with what it frees, and those that don't.

    wanted: bytes that the failing allocation asked for, or None. A setting that frees less even at the upper end of the
    estimate's error is rejected. Where it isn't known what NCCL uses, a setting is recommended by the rule alone.
    """
    recommended, rejected = [], []
    for name, value, what in SAVINGS:
        size = freed(ranks, name, value, variables, version, reported)
        proof = "log" if (reported or {}).get("communicators") else "arithmetic"
        has_none = name == _NVLS_ENABLE and ranks.generation == WITHOUT_NVLS
        if not (size or has_none or name in (variables or {}) or known(ranks, reported)):
            recommended.append(change("env", name, "set", value, what))
        elif not size:
            why = "it has nothing to free here: " + _nothing(name, variables)
            rejected.append(change("env", name, "set", value, why, proof))
        elif wanted and size * ERROR < wanted:
            why = f"it frees {show_bytes(size)}, at most {show_bytes(size * ERROR)}; the failing allocation asked for {show_bytes(wanted)}"
            rejected.append(change("env", name, "set", value, why, proof))
        else:
            why = f"{what}: about {show_bytes(size)} of each GPU, right within a factor of {ERROR}"
            if wanted:
                why += f"; the failing allocation asked for {show_bytes(wanted)}"
            recommended.append(change("env", name, "set", value, why, proof))
    return recommended, rejected


def _nothing(name, variables):
    if (variables or {}).get(name) is not None:
        return f"{name} is {variables[name]} already"
    return "these ranks use no NVLS" if name == _NVLS_ENABLE else "the buffers are no larger"


def shm_bytes(local, variables=None, channels=None):
    """/dev/shm that the shared-memory transport of ``local`` ranks takes: one connection for each rank of a ring and channel.

    channels: as NCCL reported them, or None for those of GPUs without peer access.
    """
    if local < 2:
        return 0
    return local * _within(channels or CHANNELS["pcie"], variables) * connection_bytes(variables)
