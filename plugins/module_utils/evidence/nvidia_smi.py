# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints, as ``driver``, ``gpus`` and ``processes`` of ``documents.node``: ``-q -x``, CSV queries, ``-L``.

Formats, units and traps: shared facts "kubernetes-gpu-facts", section 8. Both formats are brought to the field names of
``--query-gpu``, and one table says what becomes of each. Pure: text in, plain data out, and no text makes it raise.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from itertools import islice
from xml.etree import ElementTree

from ..quantities import MIB, parse_size

# 16 GPUs with their lists of clocks are 2 MB.
_MAX_CHARACTERS = 16 << 20
_MAX_ELEMENTS = 200_000
_MAX_DEPTH = 32
_MAX_GPUS = 256
_MAX_PROCESSES = 4096
_MAX_NAME = 120
_MAX_QUOTED = 200
_CHUNK = 1 << 16

# Fields of --query-gpu, the widest set first: an unknown one fails the whole query (facts 8.2), so drivers get older downwards.
_BASIC = ("index", "uuid", "name", "memory.total", "memory.used", "memory.free")
_SINCE_470 = (
    *_BASIC,
    "pci.bus_id",
    "driver_version",
    "compute_mode",
    "persistence_mode",
    "mig.mode.current",
    "mig.mode.pending",
    "ecc.mode.current",
    "ecc.mode.pending",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.double_bit.count",
    "retired_pages.pending",
    "remapped_rows.correctable",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
    # The old name is taken by new drivers too.
    "clocks_throttle_reasons.active",
)
GPU_QUERIES = (
    (*_SINCE_470, "memory.reserved", "gpu_recovery_action", "fabric.state", "fabric.status"),
    _SINCE_470,
    _BASIC,
)
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")

# Bits of clocks_throttle_reasons.active (nvml.h, nvmlClocksEventReason*). An idle GPU isn't held back: bit 0 has no name here.
_THROTTLE_BITS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
_IDLE = "gpu_idle"

# Field of --query-gpu: where -q -x has it. The first that is there counts; DTD v11 and older names come last.
_XML_PATHS = {
    "uuid": ("uuid",),
    "name": ("product_name",),
    "minor": ("minor_number",),
    "memory.total": ("fb_memory_usage/total",),
    "memory.reserved": ("fb_memory_usage/reserved",),
    "memory.used": ("fb_memory_usage/used",),
    "memory.free": ("fb_memory_usage/free",),
    "compute_mode": ("compute_mode",),
    "persistence_mode": ("persistence_mode",),
    "virtualization": ("gpu_virtualization_mode/virtualization_mode",),
    "mig.mode.current": ("mig_mode/current_mig",),
    "mig.mode.pending": ("mig_mode/pending_mig",),
    "ecc.mode.current": ("ecc_mode/current_ecc",),
    "ecc.mode.pending": ("ecc_mode/pending_ecc",),
    "retired_pages.double_bit.count": ("retired_pages/double_bit_retirement/retired_count",),
    "retired_pages.pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    "remapped_rows.correctable": ("remapped_rows/remapped_row_corr",),
    "remapped_rows.uncorrectable": ("remapped_rows/remapped_row_unc",),
    "remapped_rows.pending": ("remapped_rows/remapped_row_pending",),
    "remapped_rows.failure": ("remapped_rows/remapped_row_failure",),
    "gpu_recovery_action": ("gpu_recovery_action",),
    "fabric.state": ("fabric/state",),
    "fabric.status": ("fabric/status",),
}
# Uncorrected errors since the last reset: one total (v11), or one counter for each memory (v12, v13).
_ECC_TOTALS = ("ecc_errors/volatile/double_bit/total",)
_ECC_PARTS = (
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/dram_uncorrectable",
)

_UNKNOWN = frozenset(
    (
        "",
        "n/a",
        "not supported",
        "not found",
        "none",
        "unknown",
        "unknown error",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "gpu is lost",
        "gpu requires reset",
        "err!",
    )
)
# Values that say that the GPU doesn't answer, the worst first.
_FAULTS = ("gpu is lost", "gpu requires reset", "unknown error", "err!")
# Parts in which such a word isn't the GPU's: a process of which the name can't be read has "Unknown Error" for it.
_NOT_THE_GPU = frozenset(("processes", "accounted_processes", "mig_devices", "supported_clocks"))

# Facts 8.4: what nvidia-smi says instead of an answer. (pattern, words, cause); the words hold the text that they stand for,
# so that `failure` knows them again. cause: one of documents.CAUSES, or None where it says nothing about the GPUs.
_FAILURES = (
    (
        r"couldn't communicate with the NVIDIA driver",
        "the NVIDIA kernel module isn't loaded (nvidia-smi couldn't communicate with the NVIDIA driver)",
        "not_memory_driver",
    ),
    (
        r"Driver/library version mismatch",
        "the driver's library is newer than the loaded kernel module (NVML: Driver/library version mismatch): reboot the node or load the module anew",
        "not_memory_driver",
    ),
    (
        r"(?:couldn't find|failed to load|cannot find|not find)\s[^\n]{0,40}libnvidia-ml|NVML: (?:NVML )?Shared Library Not Found",
        "the driver's library libnvidia-ml isn't there (NVML: Shared Library Not Found)",
        "not_memory_driver",
    ),
    (
        r"NVML: Driver Not Loaded",
        "the NVIDIA kernel module isn't loaded (NVML: Driver Not Loaded)",
        "not_memory_driver",
    ),
    (
        r"NVML: Insufficient Permissions",
        "the caller may not open the GPU devices (NVML: Insufficient Permissions)",
        "not_memory_config",
    ),
    (
        r"NVML: Unknown Error",
        "the GPU devices can't be opened (NVML: Unknown Error); in one running container alone it has lost the right to"
        " its devices, as after systemctl daemon-reload: recreate the pod",
        "not_memory_driver",
    ),
    (
        r"Unable to determine the device handle",
        "a GPU has fallen off the bus (Unable to determine the device handle)",
        "gpu_hardware_fault",
    ),
    (
        r"GPU is lost",
        "a GPU has fallen off the bus (GPU is lost)",
        "gpu_hardware_fault",
    ),
    (
        r"No devices were found",
        "the driver has no usable GPU (No devices were found)",
        "gpu_hardware_fault",
    ),
    (
        r"is not a valid field to query",
        "this driver doesn't know a field that was asked for (is not a valid field to query)",
        None,
    ),
    (
        r"nvidia-smi[\"']?:? (?:command not found|not found|no such file|executable file not found|stat )"
        r"|No such file or directory: b?[\"']?nvidia-smi",
        "there is no nvidia-smi (nvidia-smi: not found): no NVIDIA driver on the node, or none was given to the container",
        "not_memory_config",
    ),
    (
        r"did not end within|timed out",
        "nvidia-smi did not end (timed out): a GPU or the driver hangs, or persistence mode is off and many GPUs start up",
        None,
    ),
)
_FAILURE_PATTERNS = tuple((re.compile(pattern, re.I), words, cause) for pattern, words, cause in _FAILURES)
# nvidia-smi exits with NVML's return code; texts say more, so these count only without one.
_FAILURE_CODES = {
    4: "NVML: Insufficient Permissions",
    9: "NVML: Driver Not Loaded",
    12: "NVML: Shared Library Not Found",
    15: "GPU is lost",
    18: "Driver/library version mismatch",
    124: "timed out",
    127: "nvidia-smi: command not found",
}
_QUOTED_FAILURE = re.compile(r"nvidia-smi ended with exit code -?\d{1,3}: [^\n]{1,200}")

_BUS_ID = r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_LOST = re.compile(
    rf"Unable to determine the device handle for GPU\s?(?:(\d{{1,3}}):\s)?\s?({_BUS_ID}):[ \t]*([^\n]{{0,200}})"
)
_ANY_BUS_ID = re.compile(r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-9A-Fa-f]))?")
_COUNT = re.compile(r"\s*\[?([0-9]{1,15})\]?\s*")
_AMOUNT = re.compile(r"\s*([0-9]{1,15})(?:\.[0-9]{1,9})?\s*([KMGT]?i?B)?\s*")
_MOST_BYTES = 1 << 60
_TYPE = re.compile(r"[CGM](?:\+[CGM]){0,2}")
_BITS = re.compile(r"0x([0-9A-Fa-f]{1,16})")
_LISTED_GPU = re.compile(r"GPU (\d{1,3}): .{1,200}?\(UUID: (GPU-[0-9A-Za-z-]{1,64})\)")
_LISTED_MIG = re.compile(r"\s+MIG (\S{1,40})\s+Device\s+\d{1,3}: \(UUID: (MIG-[0-9A-Za-z/-]{1,96})\)")


def gpu(**more):
    """One GPU of ``documents.node``; sizes in bytes, what isn't known None.

    index: as nvidia-smi counts, over all GPUs in the order of their bus ids; minor: of /dev/nvidia<minor>; used excludes
    reserved, which the driver keeps; mig: None where the GPU has none, else ``{enabled, pending, instances: [{uuid, gi, ci,
    profile, total, used, free}]}``; pending (of mig and ecc): the mode that the next reset brings; virtualization: VGPU
    (a guest's share), Pass-Through, Host VGPU, ...; ecc.uncorrected: errors since the last reset; throttle: what holds the
    clocks down, idleness apart; recovery: what the driver wants done (Reset, Reboot, Drain P2P, Drain and Reset);
    lost: counted or named by nvidia-smi, but not to be reached, None where it breaks off; error: its text where values can't be had; make: cuda or rocm.
    """
    return dict(
        {
            "index": None,
            "uuid": None,
            "name": None,
            "bus_id": None,
            "minor": None,
            "total": None,
            "reserved": None,
            "used": None,
            "free": None,
            "mig": None,
            "virtualization": None,
            "compute_mode": None,
            "persistence": None,
            "ecc": {"enabled": None, "uncorrected": None, "pending": None},
            "remapped": {"correctable": None, "uncorrectable": None, "pending": None, "failure": None},
            "retired": {"double_bit": None, "pending": None},
            "throttle": [],
            "recovery": None,
            "lost": False,
            "error": None,
            "fabric": {"state": None, "status": None},
            "numa": None,
            "make": "cuda",
        },
        **more,
    )


def process(**more):
    """One process that holds GPU memory. gpu: uuid of the (whole) GPU; used: bytes; gi, ci: of the MIG instance.

    name: None where the reader can't see the process (it is gone, or of another PID namespace). pid: in the namespace in
    which nvidia-smi ran. What follows command is for the node's reader, who has /proc.
    """
    return dict(
        {
            "gpu": None,
            "pid": None,
            "name": None,
            "type": None,
            "used": None,
            "gi": None,
            "ci": None,
            "cgroup": None,
            "pod_uid": None,
            "container_id": None,
            "started_at": None,
            "command": None,
        },
        **more,
    )


def failure(text, code=None):
    """``{error, cause}`` when a text holds what nvidia-smi says instead of an answer, else None.

    error: words for a person, which `failure` itself knows again; cause: of documents.CAUSES, or None. code: the exit status,
    asked when there is no text; a text that nobody knows is quoted.
    """
    text = (text or "")[:_MAX_CHARACTERS]
    for pattern, words, cause in _FAILURE_PATTERNS:
        if pattern.search(text):
            return {"error": words, "cause": cause}
    quoted = _QUOTED_FAILURE.match(text)
    printed = _CONTROLS.sub("", text).split("\n")
    first = next((line.strip()[:_MAX_QUOTED] for line in printed if line.strip()), "")
    if quoted or (code and first):
        error = quoted.group(0) if quoted else f"nvidia-smi ended with exit code {code}: {first}"
        return {"error": error, "cause": None}
    return failure(_FAILURE_CODES[code]) if code in _FAILURE_CODES else None


def normal_bus_id(text):
    """A PCI address in nvidia-smi's form ``00000000:83:00.0``, or None. Also of ``0000:83:00`` (Xid lines) and ``83:00.0``."""
    found = _ANY_BUS_ID.fullmatch((text or "").strip())
    if not found:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{(function or '0').upper()}"


def read_query_xml(printed, complaint="", code=None):
    """``{driver, gpus, processes, failure, partial}`` of ``nvidia-smi -q -x`` (DTD v10 to v13, with embedded DTD too).

    printed: standard output; complaint: standard error; code: exit status. driver: ``{version, cuda, error}``; failure: as
    `failure` gives it, or None; partial: None, or why not all is there, in words. GPUs that were read whole before the text
    broke off are kept, and GPUs that are only named as out of reach stand among the others with lost True.
    """
    before, document, after = _document(printed)
    found = _nothing()
    counted = None
    if document:
        counted = _read_document(document, found)
    said = "\n".join((before, after, (complaint or "")[:_MAX_CHARACTERS]))
    _with_lost(found["gpus"], said, counted)
    _with_missing(found, counted)
    _settle(found, said, code)
    return found


def read_csv(printed, fields, complaint="", code=None):
    """The same of ``nvidia-smi --query-gpu=... --format=csv``, with or without header and units.

    fields: what was asked for, in that order (of GPU_QUERIES); a header that is there is believed instead. Numbers without
    unit are MiB. processes stay empty: see `read_process_csv`.
    """
    found = _nothing()
    text, found["partial"] = _bounded(printed)
    for row in _rows(text, fields):
        if len(found["gpus"]) == _MAX_GPUS:
            found["partial"] = f"more than {_MAX_GPUS} GPUs"
            break
        found["driver"]["version"] = found["driver"]["version"] or _version(row.get("driver_version"))
        found["gpus"].append(_gpu({key: value.strip("[]") for key, value in row.items()}))
    said = "\n".join((text, (complaint or "")[:_MAX_CHARACTERS]))
    _with_lost(found["gpus"], said)
    _settle(found, said, code)
    return found


def read_process_csv(printed, fields=PROCESS_FIELDS):
    """``[process]`` of ``nvidia-smi --query-compute-apps=... --format=csv``: compute processes only.

    In a container the list is empty or has other PIDs; that it is empty says nothing (facts 8.2).
    """
    text, _partial = _bounded(printed)
    found: list = []
    for row in _rows(text, fields, longest="process_name"):
        item = process(
            gpu=_word(row.get("gpu_uuid")),
            pid=_count(row.get("pid")),
            name=_process_name(row.get("process_name") or row.get("name")),
            type="C",
            used=_bytes((row.get("used_gpu_memory") or row.get("used_memory") or "").strip("[]")),
        )
        if item["pid"] is not None and len(found) < _MAX_PROCESSES:
            found.append(item)
    return found


def name_instances(gpus, printed):
    """Fill uuid and profile of MIG instances from ``nvidia-smi -L``, in place: ``-q -x`` has neither.

    Both list them in the same order; where they don't agree in number, nothing is filled.
    """
    listed: dict = {}
    current: list = []
    text, _partial = _bounded(printed)
    for line in text.splitlines():
        head = _LISTED_GPU.match(line)
        if head:
            current = listed.setdefault(head.group(2), [])
        else:
            slice_ = _LISTED_MIG.match(line)
            if slice_:
                current.append(slice_.groups())
    for item in gpus:
        instances = (item["mig"] or {}).get("instances") or []
        names = listed.get(item["uuid"]) or []
        if len(names) == len(instances):
            for instance, (profile, uuid) in zip(instances, names):
                instance.update(uuid=uuid, profile=profile)


def _nothing():
    return {
        "driver": {"version": None, "cuda": None, "error": None},
        "gpus": [],
        "processes": [],
        "failure": None,
        "partial": None,
    }


# --- text


def _bounded(text):
    text = text or ""
    if len(text) <= _MAX_CHARACTERS:
        return text, None
    return text[
        :_MAX_CHARACTERS
    ], f"nvidia-smi printed more than {_MAX_CHARACTERS >> 20} MiB of text; the rest was not read"


def _word(text):
    """A value, or None where nvidia-smi has none (``N/A``, ``[Not Supported]``, an error)."""
    text = (text or "").strip().strip("[]").strip()
    return None if text.lower() in _UNKNOWN else text[:_MAX_NAME]


def _count(text):
    found = _COUNT.fullmatch(text or "")
    return int(found.group(1)) if found else None


def _bytes(text):
    """A size with its unit, or in MiB without one."""
    found = _AMOUNT.fullmatch(text or "")
    if not found:
        return None
    size = parse_size(text) if found.group(2) else int(found.group(1)) * MIB
    return size if size is not None and size < _MOST_BYTES else None


_YES_NO = {"yes": True, "enabled": True, "active": True, "no": False, "disabled": False, "not active": False}


def _flag(text):
    return _YES_NO.get((text or "").strip().strip("[]").lower())


def _version(text):
    """Newer drivers print a remark behind it: ``610.43.02 [Deprecated; ...]``."""
    words = (_word((text or "").split("[", maxsplit=1)[0]) or "").split()
    return words[0] if words else None


def _process_name(text):
    """What the process calls itself, without arguments: they may hold a secret."""
    name = _word(text)
    return re.split(r"\s+-", name, maxsplit=1)[0] if name else None


def _rows(text, fields, longest=None):
    """``{field: text}`` of each CSV line that has as many values as fields. longest: the field that may itself hold commas."""
    for line in _CONTROLS.sub("", text).splitlines():
        values = [value.strip() for value in line.split(",")]
        names = [value.split(" [", maxsplit=1)[0] for value in values]
        if len(names) > 1 and all(re.fullmatch(r"[a-z_]+[A-Za-z0-9_.]*", name) for name in names):
            fields = tuple(names)
            continue
        if longest in fields and len(values) > len(fields):
            at = fields.index(longest)
            over = at + len(values) - len(fields) + 1
            values[at:over] = [", ".join(values[at:over])]
        if len(values) == len(fields):
            yield dict(zip(fields, values))


# --- one GPU, whichever format it came in


def _gpu(raw):
    """A GPU from ``{field of --query-gpu: text}``; MIG instances, minor and virtualization where -q -x gave them."""
    current = _flag(raw.get("mig.mode.current"))
    fault = next(
        (word for word in _FAULTS if any(word == value.strip().lower() for value in raw.values())), None
    )
    return gpu(
        index=_count(raw.get("index")),
        uuid=_word(raw.get("uuid")),
        name=_word(raw.get("name")),
        bus_id=normal_bus_id(raw.get("pci.bus_id")),
        minor=_count(raw.get("minor")),
        total=_bytes(raw.get("memory.total")),
        reserved=_bytes(raw.get("memory.reserved")),
        used=_bytes(raw.get("memory.used")),
        free=_bytes(raw.get("memory.free")),
        mig=None
        if current is None
        else {"enabled": current, "pending": _flag(raw.get("mig.mode.pending")), "instances": []},
        virtualization=_word(raw.get("virtualization")),
        compute_mode=_word(raw.get("compute_mode")),
        persistence=_flag(raw.get("persistence_mode")),
        ecc={
            "enabled": _flag(raw.get("ecc.mode.current")),
            "uncorrected": _count(raw.get("ecc.errors.uncorrected.volatile.total")),
            "pending": _flag(raw.get("ecc.mode.pending")),
        },
        remapped={
            "correctable": _count(raw.get("remapped_rows.correctable")),
            "uncorrectable": _count(raw.get("remapped_rows.uncorrectable")),
            "pending": _flag(raw.get("remapped_rows.pending")),
            "failure": _flag(raw.get("remapped_rows.failure")),
        },
        retired={
            "double_bit": _count(raw.get("retired_pages.double_bit.count")),
            "pending": _flag(raw.get("retired_pages.pending")),
        },
        throttle=_throttle(
            raw.get("clocks_throttle_reasons.active") or raw.get("clocks_event_reasons.active")
        ),
        recovery=_word(raw.get("gpu_recovery_action"))
        or ("Reset" if fault == "gpu requires reset" else None),
        lost=fault == "gpu is lost",
        error=_error(raw, fault),
        fabric={"state": _word(raw.get("fabric.state")), "status": _word(raw.get("fabric.status"))},
    )


def _throttle(text):
    found = _BITS.fullmatch((text or "").strip())
    bits = int(found.group(1), 16) if found else 0
    return [name for bit, name in _THROTTLE_BITS.items() if bits & bit]


def _error(raw, fault):
    """Why values can't be had, in nvidia-smi's words; of its many fields, missing rights count for the memory alone."""
    if fault is None and raw.get("memory.total", "").strip().lower() == "insufficient permissions":
        fault = "insufficient permissions"
    return next((value.strip() for value in raw.values() if value.strip().lower() == fault), None)


# --- GPUs that are only named, and failures


def _with_lost(gpus, said, counted=None):
    """Add or mark the GPUs that a message names as out of reach, in place. counted: how many there are, or None."""
    named: dict = {}
    for found in islice(_LOST.finditer(said), _MAX_GPUS):
        index, bus_id, reason = found.groups()
        number, words = named.get(normal_bus_id(bus_id), (None, ""))
        reason = re.split(r"\.\s|\.$", reason, maxsplit=1)[0].strip()
        named[normal_bus_id(bus_id)] = (_count(index) if number is None else number, words or reason)
    known = {item["bus_id"]: item for item in gpus}
    added = False
    for bus_id, (index, reason) in named.items():
        error = (
            f"Unable to determine the device handle: {reason}"
            if reason
            else "Unable to determine the device handle"
        )
        if bus_id in known:
            known[bus_id].update(lost=True, error=known[bus_id]["error"] or error)
        else:
            gpus.append(gpu(index=index, bus_id=bus_id, lost=True, error=error))
            added = True
    if added and all(item["bus_id"] for item in gpus):
        # nvidia-smi counts in the order of the bus ids, and a lost GPU keeps its place; where GPUs are missing, places say nothing.
        gpus.sort(key=lambda item: item["bus_id"])
        if len(gpus) == counted:
            for place, item in enumerate(gpus):
                item["index"] = place


def _with_missing(found, counted):
    """Add an entry for each GPU that nvidia-smi counts and doesn't describe: lost, or None where its output breaks off."""
    listed = len(found["gpus"])
    if counted is None or not listed < counted <= _MAX_GPUS:
        return
    lost: bool | None = True
    error = f"not listed by nvidia-smi, which counts {counted}"
    if found["partial"]:
        lost, error = None, "not read: the output breaks off"
    else:
        found["partial"] = f"nvidia-smi counts {counted} GPUs and names {listed}"
    found["gpus"] += [gpu(lost=lost, error=error) for _missing in range(counted - listed)]


def _settle(found, said, code):
    """Say what went wrong; it is the driver's error where no GPU answers."""
    found["failure"] = failure(said, code)
    if any(item["lost"] is False for item in found["gpus"]):
        if found["failure"] and _QUOTED_FAILURE.match(found["failure"]["error"]):
            found["failure"] = failure("", code)  # what was printed is the answer
        return
    if found["failure"]:
        found["driver"]["error"] = found["failure"]["error"]
    elif not found["gpus"] and not found["partial"]:
        found["partial"] = "nvidia-smi printed nothing that describes a GPU"


# --- the XML document


_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_ROOT = "<nvidia_smi_log"


def _document(printed):
    """``(text before, (document, why it is cut) or None, text after)``."""
    text, partial = _bounded(printed)
    root = text.find(_ROOT)
    if root < 0:
        return text, None, ""
    start = next(
        (at for at in (text.find("<?xml", 0, root), text.find("<!DOCTYPE", 0, root)) if at >= 0), root
    )
    end = text.find("</nvidia_smi_log>", root)
    end = len(text) if end < 0 else end + len("</nvidia_smi_log>")
    if "<!ENTITY" in text[start:root]:
        return (
            text[:start],
            (None, "the XML declares entities, which nvidia-smi never does: not read"),
            text[end:],
        )
    return text[:start], (text[root:end], partial), text[end:]


def _read_document(document, found):
    """Fill ``found``; how many GPUs the document says that there are, or None."""
    text, found["partial"] = document
    if text is None:
        return None
    # From the root element on: without the DTD there is nothing in the text that could grow.
    parser: ElementTree.XMLPullParser = ElementTree.XMLPullParser(("start", "end"))
    counted = None
    try:
        for path, element in _elements(parser, _well_formed(text), found):
            if path == 2 and element.tag == "gpu":
                _take_gpu(element, found)
                element.clear()
            elif path == 2 and element.tag in ("driver_version", "kmd_version"):
                found["driver"]["version"] = found["driver"]["version"] or _version(element.text)
            elif path == 2 and element.tag in ("cuda_version", "cuda_umd_version"):
                found["driver"]["cuda"] = found["driver"]["cuda"] or _version(element.text)
            elif path == 2 and element.tag == "attached_gpus":
                counted = _count(element.text)
    except (ElementTree.ParseError, ValueError) as error:
        found["partial"] = found["partial"] or _broken(text, error, len(found["gpus"]))
    return counted


def _broken(text, error, gpus):
    kept = f"{gpus} GPU{'' if gpus == 1 else 's'} had been read whole"
    if not text.rstrip().endswith("</nvidia_smi_log>"):
        return f"nvidia-smi's XML breaks off; {kept}"
    return f"nvidia-smi's XML can't be read further ({str(error)[:80]}); {kept}"


def _well_formed(text):
    """Without what would stop the parser in front of good GPUs (raw characters in names), and without the lists of clocks."""
    text = _CONTROLS.sub("", text).encode("utf-8", "replace").decode("utf-8")
    text = _inside(text, "supported_mem_clock", lambda _listed: "")
    text = _inside(text, "process_name", lambda name: name.replace("<", "&lt;"))
    return _BARE_AMPERSAND.sub("&amp;", text)


def _inside(text, tag, change):
    """``text`` with the content of each ``tag`` changed; linear, also where nothing is closed."""
    first, *parts = text.split(f"<{tag}>")
    changed = [first]
    for part in parts:
        content, closing, rest = part.partition(f"</{tag}>")
        changed.append(f"<{tag}>{change(content)}{closing}{rest}" if closing else f"<{tag}>{part}")
    return "".join(changed)


def _elements(parser, text, found):
    """``(depth, element)`` of every element that ends, as the text is read; depth 1 is the root."""
    depth = seen = 0
    for start in range(0, len(text), _CHUNK):
        parser.feed(text[start : start + _CHUNK])
        for event, element in parser.read_events():
            if event == "end":
                yield depth, element
                depth -= 1
                continue
            depth, seen = depth + 1, seen + 1
            if depth > _MAX_DEPTH or seen > _MAX_ELEMENTS:
                raise ValueError("more elements than nvidia-smi has")
            if depth == 1 and element.tag != "nvidia_smi_log":
                raise ValueError("it is no nvidia_smi_log")
    parser.close()


def _take_gpu(element, found):
    if len(found["gpus"]) == _MAX_GPUS:
        found["partial"] = f"more than {_MAX_GPUS} GPUs"
        return
    item = _gpu(_raw(element, len(found["gpus"])))
    item["throttle"] = _xml_throttle(element)
    if item["mig"] is not None:
        item["mig"]["instances"] = [_instance(part) for part in element.findall("mig_devices/mig_device")]
    reset = element.find("gpu_reset_status")
    if item["recovery"] is None and reset is not None:
        item["recovery"] = _old_recovery(reset)
    found["gpus"].append(item)
    for part in element.findall("processes/process_info"):
        taken = _xml_process(part, item["uuid"])
        if taken["pid"] is not None and len(found["processes"]) < _MAX_PROCESSES:
            found["processes"].append(taken)


def _raw(element, place):
    raw = {"index": str(place), "pci.bus_id": element.get("id") or element.findtext("pci/pci_bus_id") or ""}
    for field, paths in _XML_PATHS.items():
        raw[field] = next((text for text in map(element.findtext, paths) if _word(text)), "") or (
            element.findtext(paths[0]) or ""
        )
    raw["ecc.errors.uncorrected.volatile.total"] = _uncorrected(element)
    # A GPU that doesn't answer says so in whichever value it was asked for.
    for part in element:
        if part.tag not in _NOT_THE_GPU:
            for text in ((child.text or "").strip() for child in part.iter()):
                if text.lower() in _FAULTS[:2]:
                    raw[text.lower()] = text
    return raw


def _uncorrected(element):
    totals = [_count(element.findtext(path)) for path in _ECC_TOTALS]
    parts = [_count(element.findtext(path)) for path in _ECC_PARTS]
    known = [count for count in totals if count is not None] or [
        count for count in parts if count is not None
    ]
    return str(sum(known)) if known else ""


def _xml_throttle(element):
    """The active reasons by name: ``clocks_event_reasons`` (v12 and later) or ``clocks_throttle_reasons``."""
    reasons = []
    for block, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        for part in element.findall(f"{block}/*"):
            if part.tag.startswith(prefix) and _flag(part.text):
                reasons.append(part.tag[len(prefix) :][:_MAX_NAME])
    return [reason for reason in reasons if reason != _IDLE]


def _instance(part):
    return {
        "uuid": None,
        "gi": _count(part.findtext("gpu_instance_id")),
        "ci": _count(part.findtext("compute_instance_id")),
        "profile": None,
        "total": _bytes(part.findtext("fb_memory_usage/total")),
        "used": _bytes(part.findtext("fb_memory_usage/used")),
        "free": _bytes(part.findtext("fb_memory_usage/free")),
    }


def _old_recovery(reset):
    """Drivers before 570 say it as two yes/no values."""
    if _flag(reset.findtext("drain_and_reset_recommended")):
        return "Drain and Reset"
    return "Reset" if _flag(reset.findtext("reset_required")) else None


def _xml_process(part, uuid):
    kind = (part.findtext("type") or "").strip()
    return process(
        gpu=uuid,
        pid=_count(part.findtext("pid")),
        name=_process_name(part.findtext("process_name")),
        type=kind if _TYPE.fullmatch(kind) else None,
        used=_bytes(part.findtext("used_memory")),
        gi=_count(part.findtext("gpu_instance_id")),
        ci=_count(part.findtext("compute_instance_id")),
    )
