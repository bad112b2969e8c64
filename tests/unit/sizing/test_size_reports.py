# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/accuracy/size.py: what it reads, what it writes, and what it says when an input is missing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from sizing_samples import LLAMA

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("accuracy_size", ROOT / "tests" / "accuracy" / "size.py")
size = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(size)

REPORT = {
    "id": "one",
    "model": "some/Llama",
    "config_id": "some/Llama",
    "engine": "V1",
    "vllm_version": "0.19.0",
    "tp": 1,
    "pp": 1,
    "gpu": "H100 80GB",
    "total_gib": 79.19,
    "free_gib": 78.68,
    "gpu_memory_utilization": 0.95,
    "max_model_len": 8192,
}
MEASURED = {
    "weights_gib": 15.5,
    "activation_gib": 2.0,
    "non_torch_gib": 0.5,
    "graph_gib": 3.0,
    "available_kv_gib": 1.0,
    "kv_tokens": 1,
    "gpu_blocks": 1,
}


@pytest.fixture(name="sized")
def _sized(tmp_path):
    (tmp_path / "some__Llama.json").write_text(json.dumps(LLAMA))
    return lambda calibrated=False, **fields: size.size_line(
        json.dumps({**REPORT, **fields}), calibrated, tmp_path
    )


def test_the_fields_of_the_output(sized):
    result = sized()

    assert set(result) == {"id", *size.OUTPUT, "undetermined"}
    assert result["id"] == "one"
    assert result["weights_gib"] == pytest.approx(14.99, abs=0.02)
    assert result["available_kv_gib"] == pytest.approx(58.11, abs=0.1)
    assert result["kv_bytes_per_token_per_rank"] == 131072
    assert result["undetermined"] == []


def test_measured_fields_are_read_only_when_calibrated(sized):
    assert sized(**MEASURED) == sized()

    calibrated = sized(True, **MEASURED)
    assert (calibrated["weights_gib"], calibrated["activation_gib"]) == (15.5, 2.0)
    # 79.19 x 0.95 - 15.5 - 2.0 - 0.5: this version doesn't subtract the graphs, so they aren't read.
    assert calibrated["available_kv_gib"] == pytest.approx(57.23, abs=0.01)
    assert calibrated["graph_gib"] == sized()["graph_gib"]


def test_graphs_are_read_where_the_version_subtracts_them(sized):
    result = sized(True, **{**MEASURED, "vllm_version": "0.21.0", "graph_estimated_gib": 1.0})

    assert result["available_kv_gib"] == pytest.approx(56.23, abs=0.01)
    assert result["graph_gib"] == 1.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"vllm_version": None}, "version isn't known"),
        ({"total_gib": None}, "total memory isn't given: 79.19 GiB"),
        ({"total_gib": None, "gpu": "A100"}, "'A100' may be"),
        ({"total_gib": None, "gpu": "H200 or H20 (8x)"}, "names GPUs of several sizes"),
        ({"total_gib": None, "gpu": "zorp"}, "the GPU 'zorp' isn't known"),
        ({"total_gib": None, "gpu": None}, "available_kv_gib: the GPU's total memory isn't known"),
        ({"max_model_len": None}, "max_model_len isn't given"),
        ({"tp": None}, "tensor_parallel_size isn't given"),
        ({"speculative": "eagle"}, "number of speculative tokens isn't given"),
        ({"gpu_memory_utilization": None, "vllm_version": None}, "gpu_memory_utilization is taken as 0.92"),
        ({"gpu": None, "total_gib": 24}, ""),
        ({"config_id": "nobody/None", "model": "None"}, "no config.json"),
        ({"config_id": "nobody/None", "model": None, "arch": {"num_hidden_layers": 3}}, "ConfigError"),
        ({"gpu_memory_utilization": -1}, "BudgetError"),
        ({"tp": 3}, "must be divisible"),
    ],
)
def test_what_is_missing_or_wrong_is_said(sized, fields, said):
    assert said in " | ".join(sized(**fields)["undetermined"])


@pytest.mark.parametrize("line", ["", "null", "[]", "{}", "{", '{"tp": "x"}', '{"config_id": 7, "arch": 5}'])
def test_any_line_gives_an_answer(line):
    result = size.size_line(line)

    assert result["available_kv_gib"] is None
    assert result["undetermined"]


@pytest.mark.parametrize("name", size.READ_FIELDS)
@pytest.mark.parametrize("value", [None, "x", -1, [], {}, True, 1e308])
def test_a_field_of_a_wrong_kind_breaks_nothing(sized, name, value):
    assert "undetermined" in sized(**{name: value})


def test_a_name_tells_the_quantization_that_the_report_leaves_out(sized):
    plain, named = sized(), sized(model="some/Llama-FP8")

    assert named["weights_gib"] < 0.7 * plain["weights_gib"]


def test_of_several_gpus_the_smallest_that_holds_the_model_is_assumed(sized):
    small = sized(total_gib=None, gpu="A100")
    large = sized(total_gib=None, gpu="A100", dtype="float32", gpu_memory_utilization=0.7)

    assert any("A100 40GB is assumed" in text for text in small["undetermined"])
    assert any("A100 80GB is assumed" in text for text in large["undetermined"])


def test_main_writes_one_line_for_each(sized, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", [json.dumps(REPORT) + "\n", "\n", "nonsense\n"])

    size.main(["--configs", str(tmp_path)])

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == ["one", None]


@pytest.mark.parametrize(("gpu", "bits", "gib"), [("L4", "the config's own", 8), ("RTX 3090", "4 bits", 5.5)])
def test_where_16_bits_do_not_fit_the_most_that_the_gpu_computes_in_are_assumed(tmp_path, gpu, bits, gib):
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "some__Llama.json").write_text(json.dumps(config))

    report = {**REPORT, "model": "another name", "gpu": gpu, "total_gib": 12}
    result = size.size_line(json.dumps(report), False, tmp_path)

    assert result["weights_gib"] == pytest.approx(gib, abs=0.6)
    assert result["available_kv_gib"] > 0
    assert any(f"{bits} are assumed for its weights" in text for text in result["undetermined"])
