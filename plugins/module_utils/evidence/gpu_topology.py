# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How GPUs, NICs and CPUs are connected: ``nvidia-smi topo -m`` and ``nvidia-smi nvlink -s``.

Tokens and traps: shared facts "kubernetes-gpu-facts", section 8.3. Pure: text in, plain data out, and no text makes it raise.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

_MAX_CHARACTERS = 1 << 20
_MAX_ROWS = 256

# The header line is underlined, even in a file.
_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_ROW = re.compile(r"GPU\d{1,3}")
_COLUMN = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|[a-z]\w{0,14}_\w{1,8}")
_LINK = re.compile(r"NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|X")
_CPUS = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?){0,255}")
_NIC = re.compile(r"\s*(NIC\d{1,3}):\s*(\S{1,64})\s*")
_NVLINK_GPU = re.compile(r"GPU (\d{1,3}):")
_NVLINK = re.compile(r"\s+Link \d{1,3}:\s*(?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<inactive>)")


def topology(matrix, nvlinks=""):
    """``topology`` of ``documents.node``: ``{links, affinity, nics, nvlinks}`` of both outputs, each of which may be missing.

    links: ``{GPU0: {GPU1: NV18, NIC0: PIX}}``, the rows of GPUs; affinity: ``{GPU0: {cpus: "0-23", numa: "0"}}``, None where
    nvidia-smi says N/A, as in many containers; nics: ``{NIC0: mlx5_0}``; nvlinks: ``{GPU0: {active, inactive, gbs}}``, counts
    of links, and GB/s in one direction of all active ones together.
    """
    links, affinity, nics = _read_matrix(_lines(matrix))
    return {"links": links, "affinity": affinity, "nics": nics, "nvlinks": _read_nvlinks(_lines(nvlinks))}


def _lines(text):
    return _ESCAPE.sub("", (text or "")[:_MAX_CHARACTERS]).splitlines()


def _read_matrix(lines):
    columns: list = []
    links: dict = {}
    affinity: dict = {}
    nics: dict = {}
    for line in lines:
        words = line.split()
        legend = _NIC.fullmatch(line)
        if legend and len(nics) < _MAX_ROWS:
            nics[legend.group(1)] = legend.group(2)
        elif words and not columns and "CPU" in words:
            names = words[: words.index("CPU")]
            columns = names if all(_COLUMN.fullmatch(name) for name in names) else []
        elif columns and words and _ROW.fullmatch(words[0]) and len(links) < _MAX_ROWS:
            # Between tabs, what is empty keeps its place; in a pasted table it doesn't.
            cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else words
            row = dict(zip(columns, cells[1:]))
            if len(row) == len(columns) and all(_LINK.fullmatch(link) for link in row.values()):
                links[words[0]] = {name: link for name, link in row.items() if link != "X"}
                affinity[words[0]] = _affinity(cells[1 + len(columns) :])
    # Older drivers write the NIC's own name over its column.
    nics.update((name, name) for name in columns if not name.startswith(("GPU", "NIC")))
    return links, affinity, nics


def _affinity(cells):
    """Of the columns "CPU Affinity" and "NUMA Affinity"."""
    cpus, numa = ([cell if _CPUS.fullmatch(cell) else None for cell in cells[:2]] + [None, None])[:2]
    return {"cpus": cpus, "numa": numa}


def _read_nvlinks(lines):
    found: dict = {}
    current = None
    for line in lines:
        head = _NVLINK_GPU.match(line)
        link = _NVLINK.match(line)
        if head and len(found) < _MAX_ROWS:
            current = found.setdefault(f"GPU{head.group(1)}", {"active": 0, "inactive": 0, "gbs": 0.0})
        elif link and current is not None:
            current["active" if link.group(1) else "inactive"] += 1
            current["gbs"] = round(current["gbs"] + float(link.group(1) or 0), 3)
    return found
