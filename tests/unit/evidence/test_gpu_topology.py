# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi topo -m`` and ``nvlink -s`` of real machines (smi/README.md says whose)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.gpu_topology import topology

HOME = Path(__file__).parent / "smi"


def recorded(name):
    return (HOME / name).read_text()


def test_nvswitch_with_nics_and_escapes_in_the_header():
    assert "\x1b[4m" in recorded("topo-h100.txt")
    found = topology(recorded("topo-h100.txt"))
    assert set(found["links"]) == {f"GPU{number}" for number in range(6)}
    assert {link for name, link in found["links"]["GPU0"].items() if name.startswith("GPU")} == {"NV18"}
    assert (found["links"]["GPU3"]["NIC4"], found["links"]["GPU3"]["NIC0"]) == ("PIX", "SYS")
    assert "GPU0" not in found["links"]["GPU0"]
    assert found["affinity"]["GPU0"] == {"cpus": "0-23,96-119", "numa": "0"}
    assert found["affinity"]["GPU5"] == {"cpus": "48-71,144-167", "numa": "2"}
    assert found["nics"] == {f"NIC{number}": f"mlx5_{number}" for number in range(9)}


def test_spaces_in_the_place_of_tabs():
    found = topology(recorded("topo-pasted.txt"))
    assert found["links"]["GPU3"] == dict.fromkeys(("GPU0", "GPU1", "GPU2"), "NV6") | {
        "NIC0": "SYS",
        "NIC1": "SYS",
        "NIC2": "SYS",
        "NIC3": "PIX",
    }
    assert found["affinity"]["GPU1"] == {"cpus": "4,12,20,28", "numa": "1"}


def test_in_a_container_the_affinity_is_empty():
    found = topology(recorded("topo-container.txt"))
    assert found["affinity"] == {name: {"cpus": None, "numa": None} for name in ("GPU0", "GPU1")}
    assert found["links"]["GPU0"] == {"GPU1": "NV12", "NIC0": "SYS", "NIC1": "PXB"}


def test_older_drivers_name_the_nics_in_the_columns():
    found = topology("\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\t0-11\nmlx5_0\tPIX\t X \n")
    assert found["links"] == {"GPU0": {"mlx5_0": "PIX"}}
    assert found["nics"] == {"mlx5_0": "mlx5_0"}
    assert found["affinity"] == {"GPU0": {"cpus": "0-11", "numa": None}}


def test_nvlinks():
    v100 = topology("", recorded("nvlink-v100.txt"))["nvlinks"]
    assert v100 == {"GPU3": {"active": 4, "inactive": 2, "gbs": 103.124}}
    gb200 = topology("", recorded("nvlink-gb200.txt"))["nvlinks"]
    assert gb200 == {name: {"active": 18, "inactive": 0, "gbs": 956.25} for name in ("GPU0", "GPU1")}


def test_nothing_and_refusals_are_empty():
    empty = {"links": {}, "affinity": {}, "nics": {}, "nvlinks": {}}
    assert topology("") == topology(None, None) == empty
    assert topology("Failed to initialize NVML: Unknown Error\n", "No devices were found\n") == empty


def test_rows_that_are_cut_are_left_out():
    text = recorded("topo-h100.txt")
    cut = topology(text[: text.index("GPU4\tNV18") + 30])
    assert set(cut["links"]) == {"GPU0", "GPU1", "GPU2", "GPU3"}


@pytest.mark.parametrize(
    "text",
    ["GPU0\t" * 200_000, "\x1b[" * 500_000, "0-1," * 300_000, "GPU0 CPU\n" + "GPU0 X 1\n" * 100_000],
    ids=["columns", "escapes", "cpus", "rows"],
)
def test_hostile_text_costs_little(text):
    started = time.process_time()
    topology(text, text)
    assert time.process_time() - started < 5


@given(st.text(max_size=300))
def test_any_text_is_taken(text):
    json.dumps(topology(text, text))
