# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks of NCCL ask of a container and its node: settings, ranks, links, limits, and what NCCL reported.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from ..documents import log_lines, proof
from ..engine.defaults import default_of
from ..engine.versions import in_range, parse_version
from ..evidence.nccl_log import nccl_facts
from ..sizing import gpus
from .checked import Checked
from .nccl_memory import WITHOUT_NVLS, Ranks

_PRODUCTS = (
    ("blackwell", re.compile(r"\bG?B[23]00\b")),
    ("hopper", re.compile(r"\bG?H[128]00\b|\bH20\b")),
)
# Compute capabilities of the GPUs whose NVSwitches have NVLink SHARP, the number before the dot.
_SHARP = (9, 10)
_RACK = re.compile(r"\bGB[23]00\b")
_NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
_LINKED = re.compile(r"NV\d+$")
# Everything but a way across CPU sockets.
NEAR = ("PIX", "PXB", "PHB", "NODE")


def _without_nvls(product):
    """Whether every GPU that the name may mean is known to have no NVLink SHARP (Hopper's and Blackwell's NVSwitches have it)."""
    named = [gpus.gpu(name) for name in gpus.candidates(product, nearest=False)]
    return bool(named) and all(
        item["make"] != "cuda" or (item["compute_capability"] or _SHARP[:1])[0] not in _SHARP
        for item in named
    )


class NcclSeen(Checked):
    """A container with several ranks. variables: ``{NAME: text}`` of NCCL's settings; reported: ``nccl_facts`` of the newest
    log in which NCCL spoke; nccl: NCCL's version as a tuple or None."""

    def __init__(self, pod, container, node):
        super().__init__(pod, container, node, None)
        self.lines: list[dict] = []
        self.reported = nccl_facts([])
        for attempt in reversed(container.get("attempts") or []):
            lines = log_lines(attempt.get("log") or {})
            facts = nccl_facts(lines)
            if not self.lines:
                self.lines, self.reported = lines, facts
            if facts["spoken"]:
                self.lines, self.reported = lines, facts
                break
        self.nccl = parse_version(self.reported["version"])
        self.variables = self._variables()

    # -- what the node tells of this pod ----------------------------------------------------------------------------

    @property
    def _of_node(self):
        return self.node.get("nccl") or {}

    @property
    def _of_processes(self):
        """What this pod's GPU processes were told, an entry for those told the same."""
        uid = self.pod.get("uid")
        return [item for item in self._of_node.get("processes") or [] if uid and item.get("pod_uid") == uid]

    @property
    def _reader_uid(self):
        """The pod that the node was read from, or None where that was no pod."""
        return (self.node.get("reader") or {}).get("pod_uid")

    @property
    def _read_inside(self):
        return bool(self._reader_uid) and self._reader_uid == self.pod.get("uid")

    @property
    def _told_on_node(self):
        """``{NAME: text}`` that the processes of this pod agree on. What the reader itself would be told says something of the pod
        it is in, and where nothing else is known and it is in no other pod."""
        own = [item.get("variables") or {} for item in self._of_processes]
        if own:
            return {
                name: value for name, value in own[0].items() if all(item.get(name) == value for item in own)
            }
        is_read_outside = not self._reader_uid and not self._of_node.get("processes")
        return dict(self._of_node.get("variables") or {}) if is_read_outside or self._read_inside else {}

    def _variables(self):
        found = self._told_on_node
        for item in self.container.get("env") or []:
            if str(item.get("name") or "").startswith("NCCL_") and item.get("value") is not None:
                found[item["name"]] = item["value"]
        for name in self.container.get("settings") or {}:
            if name.startswith("NCCL_") and self.given(name) is not None:
                found[name] = self.given(name)
        for name, values in self.reported["variables"].items():
            found.setdefault(name, values[0])
        return {name: _text(value) for name, value in found.items()}

    def is_set(self, name, *values):
        """Whether a setting is there with one of ``values`` (any value where none is given)."""
        value = self.variables.get(name)
        return value is not None and (not values or value in values)

    def words(self, *names):
        """``NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1`` of those that are set."""
        return ", ".join(f"{name}={self.variables[name]}" for name in names if name in self.variables)

    # -- ranks ------------------------------------------------------------------------------------------------------

    def parallel(self, name):
        return int(self.number(f"{name}_parallel_size", 1) or 1)

    @property
    def world(self):
        """Ranks of the whole engine: tensor x pipeline."""
        return self.parallel("tensor") * self.parallel("pipeline")

    @property
    def over_nodes(self):
        """Whether the engine's ranks are more than this pod's GPUs: the rest is in other pods."""
        return bool(self.gpus) and self.world > self.gpus

    @property
    def communicates(self):
        """Whether NCCL has anything to do here."""
        return self.world > 1 or self.parallel("data") > 1 or bool(self.reported["communicators"])

    @property
    def layout(self):
        """The ``nccl_memory.Ranks`` of one of this container's GPUs."""
        local = max(1, min(self.parallel("tensor"), self.gpus or self.parallel("tensor")))
        pipeline = self.parallel("pipeline")
        nodes = -(-self.parallel("tensor") // local)
        # vLLM's own communicator of the tensor parallel group, and torch's of all ranks.
        return Ranks(local, self.link, self.generation, 2, min(2, pipeline - 1), nodes)

    # -- GPUs and their links ---------------------------------------------------------------------------------------

    @property
    def product(self):
        gpus = self.node.get("gpus") or []
        return str((self.node.get("gpu") or {}).get("product") or (gpus[0].get("name") if gpus else "") or "")

    @property
    def generation(self):
        """As in ``nccl_memory.Ranks``."""
        name = self.product.replace("-", " ")
        found = next((found for found, pattern in _PRODUCTS if pattern.search(name)), None)
        return found or (WITHOUT_NVLS if _without_nvls(self.product) else None)

    @property
    def rack_scale(self):
        """Whether NVLink reaches beyond the node (GB200, GB300)."""
        return bool(_RACK.search(self.product.replace("-", " ")))

    @property
    def own_gpus(self):
        """The topology's names (``GPU0``) of the GPUs that this pod's processes hold; all of the node's where it has all, else None."""
        by_uuid = {item.get("uuid"): f"GPU{item.get('index')}" for item in self.node.get("gpus") or []}
        uid = self.pod.get("uid")
        held = {
            by_uuid[item.get("gpu")]
            for item in self.node.get("processes") or []
            if uid and item.get("pod_uid") == uid and item.get("gpu") in by_uuid
        }
        links = self.links
        if len(held) > 1:
            return sorted((name for name in held if name in links), key=_index) or None
        everything = sorted(links, key=_index)
        return everything if everything and self.gpus == len(everything) else None

    @property
    def links(self):
        """``{GPU0: {GPU1: NV18}}`` between GPUs."""
        table = (self.node.get("topology") or {}).get("links") or {}
        return {
            name: {other: link for other, link in (row or {}).items() if other.startswith("GPU")}
            for name, row in table.items()
            if name.startswith("GPU")
        }

    def link_between(self, one, other):
        return self.links.get(one, {}).get(other) or self.links.get(other, {}).get(one)

    @property
    def islands(self):
        """The GPUs of this container in groups that NVLink joins, else that one CPU socket joins; [] where unknown."""
        names = self.own_gpus or []
        if any(is_nvlink(self.link_between(a, b)) for a in names for b in names):
            return _groups(names, lambda a, b: is_nvlink(self.link_between(a, b)))
        return _groups(names, lambda a, b: self.link_between(a, b) in NEAR)

    @property
    def nvlink(self):
        """Whether all of this container's GPUs are joined by NVLink: True, False or None."""
        names = self.own_gpus
        if not names or len(names) < 2:
            return None
        return all(is_nvlink(self.link_between(a, b)) for a in names for b in names if a != b)

    @property
    def link(self):
        """nvlink, pcie or None: by the node's topology, else by the number of channels that NCCL chose."""
        if self.nvlink is not None:
            return "nvlink" if self.nvlink else "pcie"
        if any(item["nvls"] for item in self.reported["communicators"]):
            return "nvlink"
        return None

    @property
    def no_p2p(self):
        """Whether the GPUs reach each other through host memory: by setting, or as NCCL said."""
        transports = self.reported["transports"]
        through_host = "SHM" in transports and not any(name.startswith("P2P") for name in transports)
        return (
            self.is_set("NCCL_P2P_DISABLE", "1")
            or self.is_set("NCCL_P2P_LEVEL", "LOC", "0")
            or self.reported["p2p"] is False
            or through_host
        )

    # -- cuMem ------------------------------------------------------------------------------------------------------

    @property
    def cumem_off(self):
        """Why NCCL's cuMem allocator is off, in words, or None. vLLM switched it off itself up to 0.10.1."""
        if self.is_set("NCCL_CUMEM_ENABLE"):
            return "NCCL_CUMEM_ENABLE=0" if self.is_set("NCCL_CUMEM_ENABLE", "0") else None
        if self.version and default_of("NCCL_CUMEM_ENABLE", self.version) == 0:
            return "this vLLM sets NCCL_CUMEM_ENABLE=0 itself"
        return None

    @property
    def cumem_host_off(self):
        """Why host buffers are files in /dev/shm, in words, or None where cuMem holds them or that isn't known."""
        if self.reported["cumem_host"] is False:
            return "NCCL said that cuMem host allocations don't work here"
        if self.is_set("NCCL_CUMEM_HOST_ENABLE", "0"):
            return "NCCL_CUMEM_HOST_ENABLE=0"
        if self.cumem_off:
            return self.cumem_off
        if in_range(self.nccl, None, "2.23"):
            return f"NCCL {self.reported['version']} has no cuMem host buffers (2.24 brought them)"
        driver = parse_version((self.node.get("driver") or {}).get("cuda"))
        if driver and driver < (12, 6):
            return f"the driver's CUDA {self.node['driver']['cuda']} is older than the 12.6 that cuMem host buffers need"
        return None

    # -- limits and network -----------------------------------------------------------------------------------------

    def limit(self, name):
        """``(value, pid)`` of the lowest limit of this pod's GPU processes, else of all GPU processes; (None, None) if unknown.

        value: int or ``unlimited``. The reader's own limits (pid 0) say nothing about a container that it isn't in.
        """
        uid = self.pod.get("uid")
        own = {
            item.get("pid") for item in self.node.get("processes") or [] if uid and item.get("pod_uid") == uid
        }
        known = [
            item
            for item in self.node.get("limits") or []
            if item.get("pid") and item.get(name) is not None and (not own or item["pid"] in own)
        ]
        if not known:
            return None, None
        lowest = min(known, key=lambda item: float("inf") if item[name] == "unlimited" else item[name])
        return lowest[name], lowest["pid"]

    def may(self, capability):
        """Whether the container was given a Linux capability (``IPC_LOCK``) beside the usual ones."""
        given = self.container.get("capabilities") or []
        return capability in given or "ALL" in given

    @property
    def interfaces(self):
        """Names of the pod's network interfaces, or None where they aren't known."""
        seen = [name for item in self._of_processes for name in item.get("interfaces") or []]
        on_host = self.pod.get("host_network") and not self._reader_uid
        if not seen and (on_host or self._read_inside):
            seen = self._of_node.get("interfaces") or []
        if seen:
            return list(dict.fromkeys(seen))
        status = (self.pod.get("annotations") or {}).get(_NETWORK_STATUS)
        try:
            listed = json.loads(status) if status else []
        except ValueError:
            listed = []
        names = [item.get("interface") or "eth0" for item in listed if isinstance(item, dict)]
        if names:
            return [*names, "lo"]
        return ["eth0", "lo"] if self.pod.get("host_network") is False else None

    @property
    def node_hcas(self):
        """RDMA devices by the node's topology and its kernel."""
        nics = (self.node.get("topology") or {}).get("nics") or {}
        return sorted({*nics.values(), *(self._of_node.get("hcas") or [])})

    @property
    def hcas(self):
        """The node's RDMA devices and those that NCCL used."""
        return sorted({*self.node_hcas, *self.reported["hcas"]})

    @property
    def uses_rdma(self):
        asked = any("rdma" in name or "/hca" in name or "infiniband" in name for name in self.limits)
        if self.is_set("NCCL_IB_DISABLE", "1"):
            return False
        return bool(asked or self.reported["hcas"] or self.is_set("NCCL_IB_HCA"))

    @property
    def mig(self):
        if any(name.startswith("nvidia.com/mig-") for name in self.limits):
            return True
        return "MIG" in self.product

    @property
    def serving(self):
        return self.serving_log is not None

    def said(self, pattern):
        """The first kept log line that ``pattern`` matches, as a proof, or None."""
        for line in self.lines:
            if pattern.search(line["text"]):
                where = f"{self.pod['name']}/{self.container['name']}"
                return proof("log", where, line["text"], line=line["line"], time=line.get("time"))
        return None

    @property
    def shm_of_engines(self):
        """Per engine container of this pod: the volume at its /dev/shm, None for the sandbox's."""
        return Counter(
            next(
                (item["volume"] for item in other.get("mounts") or [] if item.get("path") == "/dev/shm"), None
            )
            for other in self.pod.get("containers") or []
            if other.get("engine")
        )


def is_nvlink(link):
    return bool(link and _LINKED.match(link))


def _text(value):
    return {True: "1", False: "0"}[value] if isinstance(value, bool) else str(value).strip()


def _index(name):
    digits = name[3:]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _groups(names, joined):
    """``names`` in groups whose members are joined, directly or through each other, in the order of the names."""
    groups: list[list[str]] = []
    for name in names:
        near = [group for group in groups if any(joined(name, other) for other in group)]
        merged = sorted([name, *(other for group in near for other in group)], key=_index)
        groups = [group for group in groups if group not in near] + [merged]
    return groups
