# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU says of its own health: lost, due for a reset, memory errors, slowed down (shared facts "kubernetes-gpu-facts" 8, 9).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from collections import namedtuple

# name: what is wrong, a name of node_findings.CHECKS. confidence: how sure it makes a fault of the hardware; None where it is none.
Trouble = namedtuple("Trouble", "name severity text action why confidence")

# Clock reasons that mean a fault of power or cooling; a power cap under load is how GPUs work.
_THROTTLED = {
    "hw_slowdown": "slowed down by the hardware (power or temperature)",
    "hw_thermal_slowdown": "slowed down by the hardware for its temperature",
    "hw_power_brake_slowdown": "slowed down by the power supply's brake",
    "sw_thermal_slowdown": "slowed down by the driver for its temperature",
}
_READY_FABRIC = ("completed", "n/a", "not supported", "")


def short(gpu):
    """``GPU 3``, or what else names it."""
    index = gpu.get("index")
    return f"GPU {index if index is not None else gpu.get('uuid') or gpu.get('bus_id') or '?'}"


def label(gpu):
    """``GPU 3 (NVIDIA H100 80GB HBM3)``."""
    return short(gpu) + (f" ({gpu['name']})" if gpu.get("name") else "")


def is_unreadable(gpu):
    """Whether the GPU wasn't read (no right to, or the output broke off): that says nothing of its health."""
    return gpu.get("lost", False) is None or "permission" in str(gpu.get("error") or "").lower()


def troubles(gpu):
    """What is wrong with one GPU of a node's ``gpus``, as ``Trouble``, the worst first."""
    return [found for check in _CHECKS for found in check(gpu)]


def _lost(gpu):
    if gpu.get("lost"):
        yield Trouble(
            "gpu_lost", "bad", gpu.get("error") or "the driver has lost it (fallen off the bus)",
            "reset_gpu", "a lost GPU comes back with a reboot of the node, or not at all", "certain",
        )  # fmt: skip
    elif gpu.get("error") and not is_unreadable(gpu):
        reset = "reset" in gpu["error"].lower()
        if reset and _asks(gpu):
            return  # its recovery action says the same
        yield Trouble(
            "reset_required" if reset else "gpu_error", "bad", gpu["error"],
            "reset_gpu", "the driver can't work with it as it is", "certain" if reset else "likely",
        )  # fmt: skip


def _asks(gpu):
    """What the driver wants done with the GPU, or None."""
    action = str(gpu.get("recovery") or "None")
    return None if action.lower() in ("none", "n/a", "no") else action


def _recovery(gpu):
    action = _asks(gpu)
    if action:
        yield Trouble(
            "reset_required", "bad", f"its driver asks for: {action}",
            "reset_gpu", "drain the node first", "certain",
        )  # fmt: skip


def _remapped(gpu):
    rows = gpu.get("remapped") or {}
    if rows.get("failure"):
        yield Trouble(
            "remap_failed", "bad", "row remapping failed: its memory has no spare rows left",
            "reset_gpu", "a failed remapping is a case for replacement", "certain",
        )  # fmt: skip
    if rows.get("pending"):
        yield Trouble(
            "remap_pending", "warning", "a row remapping waits for a reset of the GPU",
            "reset_gpu", "drain the node, then reset the GPU: the remapping is done at the reset", "likely",
        )  # fmt: skip
    if (gpu.get("retired") or {}).get("pending"):
        yield Trouble(
            "remap_pending", "warning", "retired memory pages wait for a reset of the GPU",
            "reset_gpu", "drain the node, then reset the GPU: the pages are retired at the reset", "likely",
        )  # fmt: skip


def _ecc(gpu):
    ecc = gpu.get("ecc") or {}
    if ecc.get("uncorrected"):
        yield Trouble(
            "ecc_uncorrected", "warning",
            f"{ecc['uncorrected']} uncorrected ECC errors since its last reset",
            "reset_gpu", "drain the node and reset the GPU; errors that come back are a case for the vendor", "likely",
        )  # fmt: skip
    if _differs(ecc):
        yield Trouble(
            "ecc_pending", "warning",
            f"ECC is {_on(ecc['enabled'])} and will be {_on(ecc['pending'])} after a reset: the memory's size changes with it",
            "reset_gpu", "the new mode begins with a reset", None,
        )  # fmt: skip


def _mig(gpu):
    mig = gpu.get("mig") or {}
    if _differs(mig):
        yield Trouble(
            "mig_pending", "warning",
            f"MIG is {_on(mig['enabled'])} and will be {_on(mig['pending'])} after a reset",
            "reset_gpu", "until then the GPU isn't what its configuration says", None,
        )  # fmt: skip


def _differs(mode):
    """Whether a mode that changes with a reset is to be another than it is."""
    enabled, pending = mode.get("enabled"), mode.get("pending")
    return enabled is not None and pending is not None and bool(enabled) != bool(pending)


def _on(enabled):
    return "on" if enabled else "off"


def _fabric(gpu):
    fabric = gpu.get("fabric") or {}
    state, status = (str(fabric.get(field) or "").strip() for field in ("state", "status"))
    failed = state.lower() == "completed" and status.lower() not in ("success", "n/a", "")
    if state.lower() not in _READY_FABRIC or failed:
        yield Trouble(
            "fabric_not_ready", "bad", f"not part of the NVLink fabric (state {state}, status {status or 'not known'})",
            "repair_fabric_manager", "without the fabric CUDA doesn't start on an NVSwitch box", None,
        )  # fmt: skip


def _throttle(gpu):
    reasons = [str(reason).lower().replace(" ", "_") for reason in gpu.get("throttle") or []]
    said = [words for name, words in _THROTTLED.items() if any(reason.endswith(name) for reason in reasons)]
    if said:
        yield Trouble(
            "throttled", "warning", "; ".join(said),
            "move_pod", "look at the node's cooling and power; until then the work is slower there", None,
        )  # fmt: skip


_CHECKS = (_lost, _recovery, _remapped, _ecc, _fabric, _mig, _throttle)
