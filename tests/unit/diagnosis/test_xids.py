# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids: the table against the list of shared facts "kubernetes-gpu-facts" section 9, and lines as the driver prints them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import xids

FACTS = Path(__file__).resolve().parents[4] / "shared" / "domain" / "kubernetes-gpu-facts.md"
# Section 9 of the facts, row by row: NVIDIA's immediate action for each code.
ACTIONS = {
    "RESTART_APP": (13, 31, 32, 68, 69, 94),
    "IGNORE": (43, 63, 92, 121, 157, 160, 161),
    "follow the other XID": (45,),
    "RESET_GPU": (46, 62, 64, 95, 109, 110, 119, 120, 140, 143, 155, 156, 158),
    "workflow": (48, 74, 144, 145, 146, 147, 148, 149, 150),
    "CONTACT_SUPPORT": (61,),
    "RESTART_BM": (79,),
    "see flow": (137,),
    "do what it says": (154,),
    "none listed": (168, 171, 172),
}
CODES = sorted(code for codes in ACTIONS.values() for code in codes)
# "Interpretation for OOM work": these are ECC, never "out of memory".
ECC = (48, 63, 64, 94, 95, 140, 171)


def test_the_table_holds_every_code_of_the_facts():
    assert sorted(xids.XIDS) == CODES


# In CI their absence is a failure, as it is for the cases.
@pytest.mark.skipif(not FACTS.exists() and not os.environ.get("CI"), reason="the shared facts aren't at hand")
def test_the_list_here_is_the_facts_own():
    section = FACTS.read_text(encoding="utf-8").partition("## 9. XID codes")[2].partition("## 10.")[0]
    cells = re.findall(r"^\| (\d[\d /-]*) \|", section, re.MULTILINE)
    listed = set()
    for cell in cells:
        numbers = [int(number) for number in re.findall(r"\d+", cell)]
        listed |= set(range(numbers[0], numbers[-1] + 1)) if "-" in cell else set(numbers)
    assert sorted(listed) == CODES


@pytest.mark.parametrize("code", CODES)
def test_every_row_is_complete_and_in_known_words(code):
    row = xids.XIDS[code]
    assert row.code == code
    assert row.meaning
    assert row.fault in ("program", "hardware", "driver", "handled")
    assert row.action in documents.ACTIONS
    assert row.confidence in (*documents.CONFIDENCES, None)


@pytest.mark.parametrize("code", ACTIONS["RESET_GPU"] + ACTIONS["RESTART_BM"])
def test_what_nvidia_resets_needs_a_reset(code):
    assert (xids.XIDS[code].reset, xids.XIDS[code].action) == (True, "reset_gpu")


@pytest.mark.parametrize("code", ACTIONS["RESTART_APP"])
def test_what_nvidia_restarts_needs_no_reset(code):
    assert (xids.XIDS[code].reset, xids.XIDS[code].action) == (False, "restart_pod")


@pytest.mark.parametrize("code", ACTIONS["IGNORE"] + ACTIONS["follow the other XID"])
def test_what_nvidia_ignores_accuses_nobody(code):
    row = xids.XIDS[code]
    assert (row.reset, row.action, row.confidence) == (False, "no_change", None)


@pytest.mark.parametrize("code", [code for code in CODES if xids.XIDS[code].fault == "program"])
def test_a_programs_fault_is_no_fault_of_the_gpu(code):
    assert xids.XIDS[code].confidence is None


@pytest.mark.parametrize("code", [code for code in ECC if code != 63])
def test_ecc_errors_are_certain_hardware(code):
    row = xids.XIDS[code]
    assert (row.fault, row.confidence) == ("hardware", "certain")


@pytest.mark.parametrize(
    ("line", "code", "bus", "program", "reset"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, "0000:3b:00", None, True),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=812, name=python3, MMU Fault", 31, "0000:3b:00", "python3", False),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid='<unknown>', name=<unknown>, Contained", 94, "0000:01:00", None, False),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 43, pid=9, name=VLLM, Ch 00000008", 43, "0000:01:00", "VLLM", False),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0 0x0)", 149, "0018:01:00", None, True),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x0 0x0)", 149, "0018:01:00", None, False),
        ("NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 154, "0000:5d:00", None, True),
        ("NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 154, "0000:5d:00", None, False),
    ],
)  # fmt: skip
def test_lines_as_the_driver_prints_them(line, code, bus, program, reset):
    found = xids.seen(line)
    assert (found.xid.code, found.bus, found.program, found.reset) == (code, bus, program, reset)


def test_an_entry_of_a_node_is_read_by_its_fields():
    entry = {
        "time": "2026-11-30T07:00:00Z",
        "code": 48,
        "bus_id": "00000000:3B:00.0",
        "pid": 7,
        "text": "DBE",
    }
    found = xids.seen(entry)
    assert (found.xid.code, found.bus, found.pid, found.text) == (48, "0000:3b:00", 7, "DBE")


def test_a_code_that_is_not_known_says_so_and_accuses_nobody():
    found = xids.seen({"code": 999, "text": None})
    assert (found.xid.confidence, found.xid.fault) == (None, None)
    assert xids.words(found) == "Xid 999 (a code that this runbook doesn't know)"


def test_a_line_without_a_code_is_none():
    assert xids.seen("NVRM: loading NVIDIA UNIX x86_64 Kernel Module") is None


@pytest.mark.parametrize(
    ("text", "bus"),
    [("00000000:83:00.0", "0000:83:00"), ("0000:83:00", "0000:83:00"), ("83:00.0", "0000:83:00"), ("x", None), (None, None)],
)  # fmt: skip
def test_addresses_are_made_alike(text, bus):
    assert xids.bus_address(text) == bus


@pytest.mark.parametrize(
    ("faults", "suspicious"),
    [
        ([(13, 1, "a"), (13, 2, "a")], []),
        ([(13, 1, "a"), (31, 2, "a"), (13, 3, "a")], ["0000:3b:00"]),
        ([(13, 1, "a"), (31, 2, "b")], ["0000:3b:00"]),
        ([(43, 1, "a"), (43, 2, "b"), (43, 3, "c")], []),
    ],
)
def test_the_same_fault_in_several_programs_points_at_the_gpu(faults, suspicious):
    found = [
        xids.seen(
            {
                "code": code,
                "pid": pid,
                "text": f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name={name}, x",
            }
        )
        for code, pid, name in faults
    ]
    assert xids.repeated(found) == suspicious


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "docsite" / "rst" / "guide_nodes.rst"


def numbers(text):
    """The numbers in a text, ranges such as 144-150 spelled out."""
    found = set()
    for first, last in re.findall(r"\b(\d+)(?:-(\d+))?\b", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_the_guide_says_whose_fault_each_one_is():
    rows = GUIDE.read_text(encoding="utf-8").partition("\nXids\n")[2].split("   * - ")[2:]
    words = {
        "the program's": "program",
        "the hardware's": "hardware",
        "the driver's or firmware's": "driver",
        "nobody's: handled": "handled",
    }
    told = {words[row.splitlines()[0]]: numbers(row) for row in rows}
    assert told == {
        fault: {code for code in CODES if xids.XIDS[code].fault == fault} for fault in words.values()
    }
