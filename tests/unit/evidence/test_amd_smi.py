# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""amd-smi's and rocm-smi's JSON as recorded (smi/README.md says whose), and JSON that is something else."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.amd_smi import (
    read_amd_smi,
    read_rocm_smi,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.nvidia_smi import gpu, process

HOME = Path(__file__).parent / "smi"
MIB = 1 << 20


def recorded(name):
    return (HOME / name).read_text()


def all_outputs():
    return {
        "metric": recorded("amd-smi-metric.json"),
        "listing": recorded("amd-smi-list.json"),
        "static": recorded("amd-smi-static.json"),
        "processes": recorded("amd-smi-process.json"),
    }


def test_mi300x():
    found = read_amd_smi(**all_outputs())
    assert found["driver"] == {"version": "6.19.14", "cuda": None, "error": None}
    assert found["partial"] is None
    first, second = found["gpus"]
    assert first == gpu(
        index=0,
        uuid="00ff74a1-0000-1000-8000-000000000000",
        name="AMD Instinct MI300X",
        bus_id="00000000:83:00.0",
        total=196592 * MIB,
        used=17153 * MIB,
        free=179439 * MIB,
        ecc={"enabled": None, "uncorrected": 0, "pending": None},
        make="rocm",
    )
    assert (second["index"], second["uuid"][:2], second["total"], second["used"]) == (1, "11", None, None)


def test_processes_of_a_gpu_with_and_one_without():
    (item,) = read_amd_smi(**all_outputs())["processes"]
    assert item == process(
        gpu="00ff74a1-0000-1000-8000-000000000000", pid=2828560, name="vllm", type="C", used=17859346432
    )


def test_each_output_alone():
    for name, text in all_outputs().items():
        found = read_amd_smi(**{name: text})
        assert found["gpus"][0]["index"] == 0
        assert {item["make"] for item in found["gpus"]} == {"rocm"}


def test_older_processes_have_one_amount():
    text = '[{"gpu": 1, "process_list": [{"process_info": {"pid": "12", "mem_usage": {"value": 270846402560, "unit": "B"}}}]}]'
    (item,) = read_amd_smi(processes=text)["processes"]
    assert (item["pid"], item["used"], item["gpu"]) == (12, 270846402560, None)


def test_what_is_no_json_is_named():
    found = read_amd_smi(metric="ERROR: no GPUs\n", listing=recorded("amd-smi-list.json")[:60])
    assert (found["gpus"], found["partial"]) == ([], "amd-smi metric and list: no JSON that can be read")


def test_rocm_smi():
    (item,) = read_rocm_smi(recorded("rocm-smi-vram.json"))["gpus"]
    assert (item["index"], item["total"], item["used"]) == (0, 206141652992, 297611264)
    assert item["free"] == 206141652992 - 297611264
    found = read_rocm_smi(
        "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n" + recorded("rocm-smi-names.json")
    )
    assert found["driver"]["version"] == "6.7.0"
    assert (found["gpus"][0]["name"], found["gpus"][0]["uuid"]) == ("Radeon RX 7900 XTX", "0x1234abcd")
    assert read_rocm_smi("No AMD GPUs")["partial"] == "rocm-smi: no JSON that can be read"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -1,
        1.5,
        "N/A",
        "lots",
        [],
        {},
        {"value": "N/A", "unit": "MB"},
        {"value": 1, "unit": 3},
        10**30,
        "9" * 40,
    ],
)
def test_amounts_that_are_none(value):
    text = json.dumps([{"gpu": 0, "mem_usage": {"total_vram": value}, "ecc": value}])
    (item,) = read_amd_smi(metric=text)["gpus"]
    assert item["total"] is None


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "N/A", "lots", [], {}, 10**30, "9" * 40])
def test_amounts_of_rocm_smi_that_are_none(value):
    (item,) = read_rocm_smi(json.dumps({"card0": {"VRAM Total Memory (B)": value}}))["gpus"]
    assert (item["total"], item["free"]) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "9" * 5_000_000,
        '{"a":' * 50_000,
        "[" + "9" * 5_000_000 + "]",
        '[{"gpu": NaN}]',
        "{" * (9 << 20),
    ],
    ids=["lists", "digits", "dicts", "number", "nan", "long"],
)
def test_hostile_json_costs_little(text):
    started = time.process_time()
    found = read_amd_smi(text, text, text, text)
    assert (found["gpus"], found["processes"]) == ([], [])
    assert read_rocm_smi(text)["gpus"] == []
    assert time.process_time() - started < 10


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "gpu",
                    "gpu_data",
                    "mem_usage",
                    "process_list",
                    "process_info",
                    "pid",
                    "value",
                    "unit",
                    "card0",
                    "bdf",
                    "asic",
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_any_json_is_taken(value):
    text = json.dumps(value)
    json.dumps(read_amd_smi(text, text, text, text))
    json.dumps(read_rocm_smi(text))
