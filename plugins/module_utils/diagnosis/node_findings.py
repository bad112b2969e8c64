# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node by itself, whatever runs on it: driver, GPUs, their memory's holders, limits, host memory.

From what ``gpu_node_info`` reads (shared facts "kubernetes-gpu-facts" sections 3, 4, 8, 9).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import NODE_STATES, change, proof
from ..quantities import GIB, MIB, show_bytes
from . import gpu_holders, gpu_state, kernel_oom, xids
from .node_evidence import was_looked_at
from .times import seconds

_SEVERITIES = ("bad", "warning", "note")

# Findings of a node: name -> what it means, in words.
CHECKS = {
    "driver_unreachable": "nvidia-smi can't talk to the driver",
    "driver_mismatch": "the driver's library and its kernel module are of different versions",
    "driver_error": "nvidia-smi fails",
    "driver_hangs": "nvidia-smi does not answer",
    "no_nvidia_smi": "there is no nvidia-smi",
    "no_devices": "the driver finds no usable GPU",
    "gpu_lost": "a GPU is lost",
    "gpu_error": "a GPU can't be read",
    "gpus_missing": "fewer GPUs than the node should have",
    "reset_required": "a GPU needs a reset",
    "remap_failed": "a GPU's memory can't be repaired any more",
    "remap_pending": "a repair of a GPU's memory waits for a reset",
    "ecc_uncorrected": "a GPU had memory errors that ECC could not correct",
    "ecc_pending": "a GPU's ECC mode changes with the next reset",
    "mig_pending": "a GPU's MIG mode changes with the next reset",
    "fabric_not_ready": "a GPU is not part of the NVLink fabric",
    "fabric_manager_failed": "the fabric manager does not run on an NVSwitch box",
    "throttled": "a GPU is slowed down",
    "xid": "the kernel log has errors of a GPU",
    "xid_unknown": "the kernel log has an error of a GPU that isn't in the table",
    "xid_many": "programs failed on a GPU again and again",
    "kernel_log_unread": "the kernel log could not be read",
    "memory_without_process": "GPU memory is in use, and no process is listed for it",
    "dead_process": "a process that has ended still holds GPU memory",
    "foreign_process": "a process outside of Kubernetes holds GPU memory",
    "kernel_oom": "the kernel killed processes for memory",
    "memory_low": "the node's memory is nearly used up",
    "hugepages": "huge pages take memory that nobody uses",
    "memlock_low": "GPU processes may lock little memory",
    "nofile_low": "GPU processes may open few files",
}

# What nvidia-smi says when it fails, or what is said for it -> finding (facts 8.4). None: it says nothing of the GPUs.
_DRIVER_ERRORS = tuple(
    (re.compile(pattern, re.IGNORECASE), check)
    for pattern, check in (
        (r"permission|may not be executed", None),
        (
            r"couldn't communicate with the NVIDIA driver|driver not loaded|module isn't loaded",
            "driver_unreachable",
        ),
        (r"version mismatch", "driver_mismatch"),
        (r"no devices were found|no usable GPU", "no_devices"),
        (r"is lost|fallen off the bus|device handle", "gpu_lost"),
        (r"did not (?:answer|end|finish)|timed? ?out|hangs?\b", "driver_hangs"),
        (r"libnvidia-ml|shared library", "driver_error"),
        (r"no nvidia-smi|nvidia-smi\S* (?:command )?not found|no such file", "no_nvidia_smi"),
        (r"unknown error", "driver_error"),
    )
)
# Sources of ``unreadable`` whose reasons are nvidia-smi's.
_OF_GPUS = ("gpus", "nvidia-smi")
_OF_THE_KERNEL = "kernel log"
_CURES = {
    "driver_unreachable": ("load_driver", "modprobe nvidia; where that fails install the driver anew. Nothing runs before"),
    "driver_mismatch": ("reload_driver", "the driver was upgraded under the running module; afterwards both are of one version"),
    "no_devices": ("reset_gpu", "look into the kernel log for Xids, then reboot the node"),
    "gpu_lost": ("reset_gpu", "a lost GPU comes back with a reboot of the node, or not at all"),
    "driver_hangs": ("reset_gpu", "a driver that hangs blocks every start; reboot the node"),
    "driver_error": ("install_driver", "read the text; nothing can start on these GPUs before it is gone"),
    "no_nvidia_smi": ("install_driver", "without the driver's tools nothing is known of the GPUs; or name another node"),
}  # fmt: skip

_LOW_MEMORY = 0.05
_LOW_FILES = 4096
_LOW_MEMLOCK = 64 * MIB
_OLD_XID = 24 * 3600.0
# One faulty program restarts a few times an hour; so many faults on one GPU are worth a look.
_MANY_XIDS = 10


def node_diagnoses(evidence, looked_at=()):
    """The entries of the diagnosis document's ``nodes``, worst first: the nodes that were looked at themselves.

    looked_at: names of nodes that were to be looked at, whether or not anything could be read of them.
    """
    found = [
        node_diagnosis(name, node, evidence)
        for name, node in (evidence.get("nodes") or {}).items()
        if name in looked_at or was_looked_at(node)
    ]
    return sorted(
        found, key=lambda item: (NODE_STATES.index(item["state"]), -len(item["findings"]), item["name"])
    )


def node_diagnosis(name, node, evidence=None):
    """One node's entry: ``{name, state, sentence, product, driver, cuda, used, total, findings, gpus}``; sizes in bytes."""
    evidence = evidence or {}
    checks = (
        _driver, _gpus, _missing, _xids, _unknown_xids, _many_xids, _no_kernel_log,
        _without_process, _dead, _foreign, _fabric_manager, _kernel_oom, _memory, _hugepages, _limits,
    )  # fmt: skip
    findings = [item for check in checks for item in check(name, node, evidence)]
    findings.sort(key=lambda item: _SEVERITIES.index(item["severity"]))
    unread = _unread(name, evidence)
    state = _state(node, findings, unread)
    gpus = [_gpu_row(node, gpu) for gpu in node.get("gpus") or []]
    return {
        "name": name,
        "state": state,
        "sentence": _sentence(node, state, findings, unread),
        "product": _product(node),
        "driver": (node.get("driver") or {}).get("version"),
        "cuda": (node.get("driver") or {}).get("cuda"),
        "used": _sum(gpus, "used"),
        "total": _sum(gpus, "total"),
        "findings": findings,
        "gpus": gpus,
    }


def _finding(check, severity, text, proofs=(), recommend=(), gpu=None):
    return {
        "check": check,
        "means": CHECKS[check],
        "severity": severity,
        "gpu": gpu,
        "sentence": f"{text[:1].upper()}{text[1:]}.",
        "evidence": list(proofs),
        "recommend": list(recommend),
    }


def _where(name):
    return f"Node/{name}"


def _cure(action, why, value=None):
    return change("action", action, "set", value=value, why=why)


# -- driver and GPUs ------------------------------------------------------------------------------------------------------


def _unread(name, evidence):
    """What could not be read of this node, as entries of ``unreadable``."""
    found = []
    for item in evidence.get("unreadable") or []:
        about = str(item.get("object") or "")
        if about in (name, _where(name), f"node {name}") or about.startswith(
            (f"{name}:", f"{name} ", f"{_where(name)} ")
        ):
            found.append(item)
    return found


def _driver(name, node, evidence):
    """Why nvidia-smi gave nothing: its own text, or what is said of it among what could not be read."""
    own = (node.get("driver") or {}).get("error")
    texts = [own] if own else []
    if not texts and not node.get("gpus"):
        texts = [
            item.get("reason") or "" for item in _unread(name, evidence) if item.get("source") in _OF_GPUS
        ]
    for text in texts:
        known = [check for pattern, check in _DRIVER_ERRORS if pattern.search(text)]
        check = known[0] if known else "driver_error" if own else None
        if check is None:
            continue
        action, why = _CURES[check]
        # A node without GPUs has no driver either, and that is as it should be.
        expected = (node.get("gpu") or {}).get("count")
        severity = "note" if check == "no_nvidia_smi" and not expected else "bad"
        yield _finding(
            check, severity, f"{CHECKS[check]}: {text.rstrip('.')}", [proof("node", _where(name), text)], [_cure(action, why)]
        )  # fmt: skip
        return


def _gpus(name, node, evidence):
    for gpu in node.get("gpus") or []:
        for trouble in gpu_state.troubles(gpu):
            text = f"{gpu_state.short(gpu)}: {trouble.text}"
            yield _finding(
                trouble.name, trouble.severity, text, [proof("node", _where(name), text)],
                [_cure(trouble.action, trouble.why)], gpu.get("index"),
            )  # fmt: skip


def _devices_of_cluster(node):
    """How many cards the node's labels say it has, or None: with MIG they count slices, and resources count shares."""
    labels = (node.get("gpu") or {}).get("labels") or {}
    sliced = (node.get("gpu") or {}).get("mig") or any(
        (gpu.get("mig") or {}).get("enabled") for gpu in node.get("gpus") or []
    )
    count = str(labels.get("nvidia.com/gpu.count") or "")
    return int(count) if count.isdigit() and not sliced else None


def _missing(name, node, evidence):
    expected, seen = _devices_of_cluster(node), len(node.get("gpus") or [])
    if expected and seen and seen < expected:
        text = f"nvidia-smi lists {seen} GPUs, and the node's labels say {expected}"
        yield _finding(
            "gpus_missing", "bad", text, [proof("node", _where(name), text)], [_cure(*_CURES["gpu_lost"])]
        )


def _xids(name, node, evidence):
    seen = [item for item in map(xids.seen, node.get("xids") or []) if item]
    suspicious = xids.repeated(seen)
    by_kind: dict[tuple, list] = {}
    for item in seen:
        if item.xid.confidence or item.reset or (item.bus in suspicious and item.xid.code in xids.REPEATED):
            by_kind.setdefault((item.xid.code, item.bus), []).append(item)
    for (code, bus), items in by_kind.items():
        last = items[-1]
        healthy = _answers(node, bus) and _old(last, evidence)
        sure = last.xid.confidence in ("certain", "likely")
        severity = "bad" if sure and last.reset and not healthy else "warning"
        count = sum(item.count for item in items)
        times = f", {count} times" if count > 1 else ""
        repeated = " in several programs, which points at the GPU" if code in xids.REPEATED else ""
        text = f"{xids.words(last)} on {_at(node, bus)}{times}{repeated}"
        recommend = [
            _cure(
                last.xid.action if last.xid.action != "restart_pod" or not repeated else "reset_gpu",
                _xid_why(last),
            )
        ]
        yield _finding(
            "xid", severity, text,
            [proof("kernel", _where(name), item.text, time=item.time) for item in items[-2:]],
            [] if last.xid.action == "no_change" else recommend,
        )  # fmt: skip


def _unknown_xids(name, node, evidence):
    """Codes without a row: newer drivers have more of them, and not to know one is no reason to call the node sound."""
    by_kind: dict[tuple, list] = {}
    for item in filter(None, map(xids.seen, node.get("xids") or [])):
        if not xids.is_known(item.xid.code):
            by_kind.setdefault((item.xid.code, item.bus), []).append(item)
    for (code, bus), items in by_kind.items():
        text = f"Xid {code} isn't in the table: the driver reported it on {_at(node, bus)}, and its line must be read by hand"
        why = f"NVIDIA's catalogue of Xids says what {code} means"
        yield _finding(
            "xid_unknown", "warning", text,
            [proof("kernel", _where(name), item.text, time=item.time) for item in items[-2:]],
            [_cure("read_kernel_log", why)], (_gpu_at(node, bus) or {}).get("index"),
        )  # fmt: skip


def _many_xids(name, node, evidence):
    """Faults of programs that ``_xids`` doesn't lay to the GPU: one program's, over and over."""
    by_gpu: dict[str, list] = {}
    seen = list(filter(None, map(xids.seen, node.get("xids") or [])))
    suspicious = xids.repeated(seen)
    for item in seen:
        if item.xid.fault == "program" and item.bus not in suspicious:
            by_gpu.setdefault(item.bus, []).append(item)
    for bus, items in by_gpu.items():
        count = sum(item.count for item in items)
        if count < _MANY_XIDS:
            continue
        codes = ", ".join(str(code) for code in sorted({item.xid.code for item in items}))
        text = f"{count} errors of programs on {_at(node, bus)} (Xid {codes}); if another program has them too, look at the GPU"
        yield _finding(
            "xid_many", "note", text, [proof("kernel", _where(name), items[-1].text, time=items[-1].time)],
            gpu=(_gpu_at(node, bus) or {}).get("index"),
        )  # fmt: skip


def _no_kernel_log(name, node, evidence):
    if any(node.get(field) for field in ("kernel_oom", "xids", "nvrm")):
        return  # it was read, if not to its end
    for item in _unread(name, evidence):
        if item.get("source") == _OF_THE_KERNEL:
            text = f"the kernel log could not be read: {str(item.get('reason') or '').rstrip('.')}"
            why = (
                f"needs {item['needs']}; without it nothing is known of Xids"
                if item.get("needs")
                else "without it nothing is known of Xids"
            )
            yield _finding(
                "kernel_log_unread", "note", text, [proof("node", _where(name), text)], [_cure("read_kernel_log", why)]
            )  # fmt: skip
            return


def _xid_why(item):
    if item.reset:
        return "drain the node first; a fault that comes back is a case for the vendor"
    return "no reset is needed for this one"


def _gpu_at(node, bus):
    return next(
        (gpu for gpu in node.get("gpus") or [] if bus and xids.bus_address(gpu.get("bus_id")) == bus), None
    )


def _at(node, bus):
    gpu = _gpu_at(node, bus)
    return gpu_state.short(gpu) if gpu else bus or "an unnamed GPU"


def _answers(node, bus):
    """Whether the GPU that an Xid was about is in use again: it is listed and asks for nothing."""
    gpu = _gpu_at(node, bus)
    return gpu is not None and not any(item.severity == "bad" for item in gpu_state.troubles(gpu))


def _old(item, evidence):
    then, now = seconds(item.time), seconds(evidence.get("collected_at"))
    return then is not None and now is not None and now - then > _OLD_XID


def _without_process(name, node, evidence):
    for device in gpu_holders.devices(node):
        lost = gpu_holders.without_process(node, device)
        if not lost or lost < GIB:
            continue
        text = f"{show_bytes(lost)} of {device.label} are in use without a listed process"
        yield _finding(
            "memory_without_process", "warning", text, [proof("node", _where(name), text)],
            [
                _cure("free_gpu", "fuser -v /dev/nvidia* on the node shows processes that nvidia-smi doesn't list"),
                _cure("reset_gpu", "memory that stays in use when no process has the device open is released by a reset only"),
            ],
        )  # fmt: skip


def _dead(name, node, evidence):
    for process in node.get("processes") or []:
        if (process.get("alive") is not False and process.get("state") != "Z") or (
            process.get("used") or 0
        ) < gpu_holders.TENANT:
            continue
        gpu: dict = next((gpu for gpu in node.get("gpus") or [] if gpu.get("uuid") == process.get("gpu")), {})
        text = f"{gpu_holders.called(process)} has ended and still holds {show_bytes(process['used'])} of {gpu_state.short(gpu)}"
        yield _finding(
            "dead_process", "warning", text, [proof("node", _where(name), text, time=process.get("started_at"))],
            [_cure("free_gpu", "its parent must reap it: end the container or service that started it", f"process {process.get('pid')} of the node")],
            gpu.get("index"),
        )  # fmt: skip


def _foreign(name, node, evidence):
    in_kubernetes = any(item.get("pod_uid") for item in node.get("processes") or []) or bool(
        node.get("conditions")
    )
    if not in_kubernetes:
        return
    for process in node.get("processes") or []:
        outside = (process.get("cgroup") or process.get("container_id")) and not process.get("pod_uid")
        dead = process.get("alive") is False or process.get("state") == "Z"
        if not outside or dead or (process.get("used") or 0) < gpu_holders.TENANT:
            continue
        gpu: dict = next((gpu for gpu in node.get("gpus") or [] if gpu.get("uuid") == process.get("gpu")), {})
        text = f"{gpu_holders.called(process)} outside of Kubernetes holds {show_bytes(process['used'])} of {gpu_state.short(gpu)}"
        yield _finding(
            "foreign_process", "warning", text, [proof("node", _where(name), text, time=process.get("started_at"))],
            [_cure("free_gpu", "Kubernetes hands this GPU out as if it were empty", f"process {process.get('pid')} of the node")],
            gpu.get("index"),
        )  # fmt: skip


_NVLINK = re.compile(r"NV(\d+)")


def is_nvswitch_box(node):
    """Whether the node's GPUs are joined by NVSwitches: one of them says it is in a fabric, or all pairs of eight have many links."""
    fabric = [str((gpu.get("fabric") or {}).get("state") or "").lower() for gpu in node.get("gpus") or []]
    if any(state in ("completed", "in progress", "not started") for state in fabric):
        return True
    links = (node.get("topology") or {}).get("links") or {}
    gpus = [one for one in links if str(one).startswith("GPU")]
    found = [
        _NVLINK.fullmatch(str(links[one].get(other) or "")) for one in gpus for other in gpus if one != other
    ]
    return len(gpus) >= 8 and all(found) and min(int(match.group(1)) for match in found if match) >= 6


def _fabric_manager(name, node, evidence):
    state = (node.get("services") or {}).get("fabric_manager")
    box = is_nvswitch_box(node)
    if state not in ("failed", "inactive") or (state == "inactive" and not box):
        return
    text = f"the fabric manager is {state}" + (" on a box with NVSwitches" if box else "")
    why = "systemctl status nvidia-fabricmanager; its version must be the driver's. Without it CUDA fails with error 802"
    yield _finding(
        "fabric_manager_failed", "bad" if box else "warning", text, [proof("node", _where(name), text)],
        [_cure("repair_fabric_manager", why)],
    )  # fmt: skip


# -- host memory and limits -----------------------------------------------------------------------------------------------


def _kernel_oom(name, node, evidence):
    lines, times = [], []
    for item in node.get("kernel_oom") or []:
        text, time = (item, None) if isinstance(item, str) else (item.get("text") or "", item.get("time"))
        for part in text.splitlines():
            lines.append(part)
            times.append(time)
    reports = [item for item in kernel_oom.parse(lines) if item["victims"]]
    if not reports:
        return
    whole = [item for item in reports if item["scope"] == "node"]
    last = (whole or reports)[-1]
    many = f"{len(reports)} times" if len(reports) > 1 else "once"
    text = f"the kernel killed processes for memory {many}, the last: {kernel_oom.words(last)}"
    recommend = (
        [_cure("reserve_node_memory", "the kubelet then acts before the kernel does")] if whole else []
    )
    shown = proof(
        "kernel", _where(name), last["text"], time=None if last["index"] is None else times[last["index"]]
    )
    yield _finding("kernel_oom", "warning" if whole else "note", text, [shown], recommend)


def _memory(name, node, evidence):
    memory = node.get("memory") or {}
    total, available = memory.get("total"), memory.get("available")
    if not total or available is None or available >= _LOW_MEMORY * total:
        return
    text = f"{show_bytes(available)} of the node's {show_bytes(total)} memory are available"
    yield _finding(
        "memory_low", "warning", text, [proof("node", _where(name), text)],
        [_cure("reserve_node_memory", "below 100 MiB the kubelet evicts pods, and the kernel may be faster")],
    )  # fmt: skip


def _hugepages(name, node, evidence):
    memory = node.get("memory") or {}
    total, count, size = memory.get("total"), memory.get("hugepages_total"), memory.get("hugepage_size")
    if not total or not count or not size or count * size < 0.1 * total:
        return
    free = (memory.get("hugepages_free") or 0) * size
    if free < 0.05 * total:
        return
    text = f"{show_bytes(count * size)} are set aside as huge pages and {show_bytes(free)} of them are unused; no other memory can use them"
    yield _finding(
        "hugepages", "warning", text, [proof("node", _where(name), text)],
        [_cure("reserve_node_memory", "lower vm.nr_hugepages: vLLM asks for no huge pages unless the pod requests them")],
    )  # fmt: skip


def _limits(name, node, evidence):
    """The limits of processes that use a GPU; the reader's own (pid 0) say nothing of a pod's."""
    links = bool((node.get("topology") or {}).get("nics"))
    low_lock = [
        item
        for item in node.get("limits") or []
        if item.get("pid") and _below(item.get("memlock"), _LOW_MEMLOCK)
    ]
    low_files = [
        item
        for item in node.get("limits") or []
        if item.get("pid") and _below(item.get("nofile"), _LOW_FILES)
    ]
    if low_lock:
        text = f"{_process_words(low_lock)} may lock {show_bytes(low_lock[0]['memlock'])} of memory only, and RDMA needs far more"
        yield _finding(
            "memlock_low", "warning" if links else "note", text, [proof("node", _where(name), text)],
            [_cure("raise_memlock", "LimitMEMLOCK=infinity on the container runtime's unit, then start the pods again")],
        )  # fmt: skip
    if low_files:
        text = f"{_process_words(low_files)} may open {low_files[0]['nofile']} files only; each connection of a client is one"
        yield _finding("nofile_low", "note", text, [proof("node", _where(name), text)])


def _below(value, bound):
    return isinstance(value, int) and not isinstance(value, bool) and value < bound


def _process_words(items):
    return f"process {items[0]['pid']}" + (f" and {len(items) - 1} more" if len(items) > 1 else "")


# -- the entry ------------------------------------------------------------------------------------------------------------


def _state(node, findings, unread):
    """Fine is only a node all of whose GPUs answered."""
    severities = {item["severity"] for item in findings}
    if "bad" in severities:
        return "bad"
    if "warning" in severities:
        return "warning"
    gpus = node.get("gpus") or []
    partial = any(item.get("source") in _OF_GPUS for item in unread)
    silent = any(gpu_state.is_unreadable(gpu) for gpu in gpus)
    return "fine" if gpus and not silent and not partial else "unknown"


def _sentence(node, state, findings, unread):
    told = (
        [item["sentence"].rstrip(".") for item in findings if item["severity"] == findings[0]["severity"]]
        if findings
        else []
    )
    if state in ("bad", "warning"):
        more = len(told) - 2
        return "; ".join(told[:2]) + (f"; and {more} more." if more > 0 else ".")
    if state == "unknown":
        refused = [
            f"its GPUs may not be read ({gpu['error']})"
            for gpu in node.get("gpus") or []
            if gpu_state.is_unreadable(gpu)
        ]
        # Why the node as a whole, or its GPUs, could not be read; what else is missing doesn't make it unknown.
        told_why = [
            str(item.get("reason") or "no reason was given").rstrip(".")
            for item in unread
            if item.get("source") in (*_OF_GPUS, "ansible")
        ]
        reasons = "; ".join(dict.fromkeys(refused or told_why))
        said = reasons or (told[0] if told else "nothing was read of its GPUs")
        return f"Not known: {said}."
    gpus = len(node.get("gpus") or [])
    of_what = f"its {gpus} GPUs" if gpus > 1 else "its GPU"
    unlogged = any(item["check"] == "kernel_log_unread" for item in findings)
    return f"Nothing is wrong with {of_what}" + (", but its kernel log was not read." if unlogged else ".")


def _product(node):
    names = list(dict.fromkeys(gpu.get("name") for gpu in node.get("gpus") or [] if gpu.get("name")))
    return ", ".join(names) or (node.get("gpu") or {}).get("product")


def _sum(rows, field):
    known = [row[field] for row in rows if row[field] is not None]
    return sum(known) if known else None


def _gpu_row(node, gpu):
    """A GPU in short; wrong: what is wrong with it, in words."""
    on_it = [
        item for item in node.get("processes") or [] if item.get("gpu") and item["gpu"] == gpu.get("uuid")
    ]
    mig = gpu.get("mig") or {}
    return {
        "index": gpu.get("index"),
        "name": gpu.get("name"),
        "total": gpu.get("total"),
        "used": gpu.get("used"),
        "free": gpu.get("free"),
        "mig": [item.get("profile") for item in mig.get("instances") or []] if mig.get("enabled") else None,
        "processes": len(on_it),
        "wrong": [trouble.text for trouble in gpu_state.troubles(gpu)],
    }
