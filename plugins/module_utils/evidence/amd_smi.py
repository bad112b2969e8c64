# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What amd-smi and rocm-smi print with ``--json``, in the shape of ``nvidia_smi``.

Formats: shared facts "kubernetes-gpu-facts", section 8.10. They differ between ROCm releases (a list, or a list in
``gpu_data``; amounts with and without unit), so whatever isn't as expected is left out. Pure, and no text makes it raise.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re

from ..quantities import GIB, KIB, MIB
from .nvidia_smi import gpu, normal_bus_id, process

_MAX_CHARACTERS = 8 << 20
_MAX_GPUS = 256
_MAX_PROCESSES = 4096
_MAX_TEXT = 120
_MOST_BYTES = 1 << 60

# amd-smi says MB and GB and means MiB and GiB (facts 8.10); processes come in B.
_UNITS = {"B": 1, "KB": KIB, "MB": MIB, "GB": GIB, "KIB": KIB, "MIB": MIB, "GIB": GIB}
_DIGITS = re.compile(r"[0-9]{1,19}(?:\.0)?")
_CARD = re.compile(r"card(\d{1,3})")
_UNKNOWN = frozenset(("", "n/a", "none", "unknown"))


def read_amd_smi(metric="", listing="", static="", processes=""):
    """``{driver, gpus, processes, partial}`` of amd-smi's ``metric``, ``list``, ``static`` and ``process`` (``--json``).

    Each may be missing. driver: ``{version, cuda, error}``, the version that of amdgpu; GPUs are joined by their number.
    partial: None, or which of the outputs could not be read.
    """
    outputs = {"metric": metric, "list": listing, "static": static, "process": processes}
    items = {name: _items(text) for name, text in outputs.items()}
    unread = [name for name, text in outputs.items() if (text or "").strip() and items[name] is None]
    found: dict = {number: gpu(index=number, make="rocm") for number in _numbers(items)}
    driver = {"version": None, "cuda": None, "error": None}
    for number, item in _numbered(items["list"]):
        found[number].update(uuid=_text(item.get("uuid")), bus_id=normal_bus_id(_text(item.get("bdf"))))
    for number, item in _numbered(items["static"]):
        card = found[number]
        card["name"] = _text(_dict(item, "asic").get("market_name"))
        card["bus_id"] = card["bus_id"] or normal_bus_id(_text(_dict(item, "bus").get("bdf")))
        card["total"] = _size(_dict(item, "vram").get("size"))
        card["numa"] = _number(_dict(item, "numa").get("node"))
        driver["version"] = driver["version"] or _text(_dict(item, "driver").get("version"))
    for number, item in _numbered(items["metric"]):
        memory, errors = _dict(item, "mem_usage"), _dict(item, "ecc")
        _fill_memory(
            found[number],
            _size(memory.get("total_vram")),
            _size(memory.get("used_vram")),
            _size(memory.get("free_vram")),
        )
        found[number]["ecc"]["uncorrected"] = _number(errors.get("total_uncorrectable_count"))
    listed = [
        taken
        for number, item in _numbered(items["process"])
        for taken in _processes(item.get("process_list"), found[number]["uuid"])
    ]
    return {
        "driver": driver,
        "gpus": [found[number] for number in sorted(found)],
        "processes": listed[:_MAX_PROCESSES],
        "partial": f"amd-smi {' and '.join(unread)}: no JSON that can be read" if unread else None,
    }


def read_rocm_smi(printed):
    """The same of ``rocm-smi --showmeminfo vram --json``; with --showproductname, --showuniqueid, --showbus and
    --showdriverversion it also has names. processes stay empty.
    """
    whole = _json(printed)
    cards = whole if isinstance(whole, dict) else {}
    gpus: list = []
    for key, raw in cards.items():
        number = _CARD.fullmatch(key)
        if number and isinstance(raw, dict) and len(gpus) < _MAX_GPUS:
            card = {name.lower(): value for name, value in raw.items()}
            item = gpu(
                index=int(number.group(1)),
                make="rocm",
                uuid=_text(card.get("unique id")),
                name=_text(card.get("card series")),
                bus_id=normal_bus_id(_text(card.get("pci bus"))),
            )
            _fill_memory(
                item,
                _bounded(card.get("vram total memory (b)")),
                _bounded(card.get("vram total used memory (b)")),
                None,
            )
            gpus.append(item)
    system = {name.lower(): value for name, value in _dict(cards, "system").items()}
    return {
        "driver": {"version": _text(system.get("driver version")), "cuda": None, "error": None},
        "gpus": sorted(gpus, key=lambda item: item["index"]),
        "processes": [],
        "partial": None if gpus or not (printed or "").strip() else "rocm-smi: no JSON that can be read",
    }


# --- JSON that may be anything


def _json(text):
    """The JSON of a command that may print warnings in front of it, or None."""
    lines = (text or "")[:_MAX_CHARACTERS].splitlines(keepends=True)
    start = next((place for place, line in enumerate(lines) if line.lstrip()[:1] in ("{", "[")), None)
    if start is None:
        return None
    decoder = json.JSONDecoder(parse_int=_digits, parse_constant=lambda _name: None)
    try:
        return decoder.raw_decode("".join(lines[start:]).lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _digits(text):
    # Long digits take time that grows with their square, and no size has so many.
    return int(text) if len(text) <= 20 else None


def _items(text):
    """The entries for each GPU: ``[...]``, ``{"gpu_data": [...]}`` or a single one; None when it is neither."""
    whole = _json(text)
    if isinstance(whole, dict):
        whole = whole.get("gpu_data", [whole])
    return [item for item in whole if isinstance(item, dict)] if isinstance(whole, list) else None


def _numbered(items):
    """``(number, entry)`` of the entries that say which GPU they are of."""
    pairs = ((_number(item.get("gpu")), item) for item in items or ())
    return [(number, item) for number, item in pairs if number is not None and number < _MAX_GPUS]


def _numbers(items):
    return sorted({number for entries in items.values() for number, _item in _numbered(entries)})


def _dict(item, key):
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def _text(value):
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return None if text.lower() in _UNKNOWN else text[:_MAX_TEXT]


def _number(value):
    """A count, also as a string or as ``{"value": n}``."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value.strip().split(".", maxsplit=1)[0])
    if isinstance(value, float) and value.is_integer() and 0 <= value < _MOST_BYTES:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _bounded(value):
    size = _number(value)
    return size if size is not None and size < _MOST_BYTES else None


def _size(value, unit="MB"):
    """Bytes of ``{"value": 196592, "unit": "MB"}`` or of a bare number in ``unit``."""
    if isinstance(value, dict):
        unit = value.get("unit", unit)
    factor = _UNITS.get(unit.upper()) if isinstance(unit, str) else None
    number = _number(value)
    return _bounded(number * factor) if number is not None and factor else None


def _fill_memory(card, total, used, free):
    card["total"] = card["total"] if total is None else total
    card["used"] = used
    if free is None and card["total"] is not None and used is not None and used <= card["total"]:
        free = card["total"] - used
    card["free"] = free


def _processes(entries, uuid):
    """Of ``process_list``; a GPU without processes has a sentence in the place of one."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        info = entry.get("process_info", entry) if isinstance(entry, dict) else None
        if not isinstance(info, dict):
            continue
        number = _number(info.get("pid"))
        if number is not None:
            memory = _size(_dict(info, "memory_usage").get("vram_mem"), "B")
            memory = _size(info.get("mem_usage"), "B") if memory is None else memory
            name = _text(info.get("name"))
            name = re.split(r"\s+-", name, maxsplit=1)[0] if name else None
            found.append(process(gpu=uuid, pid=number, name=name, type="C", used=memory))
    return found
