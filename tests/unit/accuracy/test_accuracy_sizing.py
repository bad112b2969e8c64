# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizing half of the score, what people write into reports, and the page with the figures."""

from __future__ import annotations

import json
import random

import listed_arch
import pytest
import report_fields
import score
import size
import sizing_page
import sizing_score

SHARED = score.shared_case_file(score.SIZING)
needs_reports = pytest.mark.skipif(SHARED is None, reason="the shared cases aren't beside this checkout")
NO_NOTES = {"left_out": {}, "explained": {}}


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.19.0", "0.19.0"),
        (">=0.21", "0.21"),
        ("v0.11.1rc2.dev5", "v0.11.1rc2.dev5"),
        ("0.8.x (March 2025)", "0.8.x (March 2025)"),
        ("April 2026", "0.19.0"),
        ("nightly 2026-03", "0.17.0"),
        ("0.13.0rc1 (main of June 2026)", "0.23.0"),
        ("0.1.dev20051+g487ecf187 (Sep 2026)", "0.29.0"),
        ("October (2026) build", "0.31.0"),
        ("26.03", "0.17.0"),
        ("V1", None),
        ("main", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_versions_as_people_write_them(text, release):
    assert report_fields.version(text) == release


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mtp, 3 tokens", ("mtp", 3)),
        ("mtp 2", ("mtp", 2)),
        ("eagle3", ("eagle", None)),
        ("ngram, 5 tokens", ("none", 5)),
        ("dflash draft model", ("draft", None)),
        ({"method": "deepseek_mtp", "num_speculative_tokens": 1}, ("mtp", 1)),
    ],
)
def test_speculation_as_people_write_it(value, expected):
    assert tuple(report_fields.speculation(value).values()) == expected


@pytest.mark.parametrize("value", [None, "", "none", "off", {}, [], 3])
def test_what_is_no_speculation(value):
    assert report_fields.speculation(value) is None


@pytest.mark.parametrize(
    ("value", "model", "expected"),
    [
        (None, "x", None),
        ("none", "x", None),
        ("bfloat16", "x", None),
        ("FP8", "x", "fp8"),
        ("gguf", "Llama-3.2-3B-Q8_0.gguf", "gguf q8_0"),
        ("Q4_K_M", None, "gguf q4_k_m"),
        ("compressed-tensors", "RedHatAI/x-quantized.w8a8", "w8a8"),
        ("bitsandbytes", "unsloth/x-bnb-4bit", "bnb-4bit"),
        ("fp8", "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "fbgemm_fp8"),
    ],
)
def test_quantizations_as_people_write_them(value, model, expected):
    assert report_fields.quantization(value, model) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen3-8B-AWQ", "awq"),
        ("x-W4A16", "w4a16"),
        ("7B quantized", "int4"),
        ("int8 KV", None),
        (None, None),
    ],
)
def test_quantizations_that_the_name_tells(model, expected):
    assert report_fields.named_quantization(model) == expected


@pytest.mark.parametrize(
    ("name", "gib"),
    [("RTX PRO 6000 (97887 MiB)", 95.1), ("Arc B60 24GB", 23.4), ("a GPU", None), (None, None)],
)
def test_memory_in_a_gpus_name(name, gib):
    assert report_fields.memory_in_name(name) == (gib if gib is None else pytest.approx(gib, abs=0.1))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),
        ("Qwen3.6-27B", "qwen3_5"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2"),
        ("DeepSeek-R1-0528", "deepseek_v3"),
        ("gemma-3-27b-it", "gemma3"),
        ("something", None),
    ],
)
def test_families_that_the_name_tells(name, family):
    assert listed_arch.model_type(name) == family


def test_listed_layers_are_spread_evenly():
    arch = {
        "num_hidden_layers": 6,
        "hidden_size": 64,
        "layer_type_counts": {"full_attention": 2, "sliding_attention": 4},
    }
    kinds = listed_arch.config(arch, "a model")["layer_types"]
    assert kinds.count("full_attention") == 2
    assert kinds[2] == kinds[5] == "full_attention"
    assert listed_arch.config(dict(arch, num_hidden_layers=7), "a model")["layer_types"] is None


@needs_reports
def test_what_the_list_says_agrees_with_the_config(monkeypatch):
    """The keys and values of every model come out of its list alone, but for these three.

    Two lists leave out what the attention compresses or indexes, one a checkpoint's own wish for an fp8 cache.
    """
    reports = {report["config_id"]: report for report in score.read_lines(SHARED) if report.get("arch")}
    inputs = [{name: report.get(name) for name in size.READ_FIELDS} for report in reports.values()]
    whole = [size.size(report)["kv_bytes_per_token_per_rank"] for report in inputs]
    monkeypatch.setattr(size, "_config_file", lambda name, folders: None)
    monkeypatch.setattr(size, "known_model", lambda name: None)
    listed = [size.size(report)["kv_bytes_per_token_per_rank"] for report in inputs]
    wrong = {
        report["config_id"] for report, one, two in zip(inputs, whole, listed, strict=True) if one != two
    }
    assert wrong == {
        "deepseek-ai/DeepSeek-V4-Flash",
        "nvidia/GLM-5.2-NVFP4",
        "nvidia/Gemma-4-31B-IT-NVFP4",
    }


REPORT = {
    "id": "one",
    "engine": "V1",
    "vllm_version": "0.19.0",
    "tp": 1,
    "gpu": "H100 80GB",
    "total_gib": 79.19,
    "gpu_memory_utilization": 0.95,
    "max_model_len": 8192,
    "weights_gib": 10.0,
    "activation_gib": 1.0,
    "non_torch_gib": 0.5,
    "available_kv_gib": 63.7,
    "kv_tokens": 1000,
    "max_concurrency": 2.0,
    "estimated_max_len": 500,
    "check": {"expected_bytes_per_token_per_rank": 100, "text": "exact with 12 blocks of 16"},
}
SAID = {
    "weights_gib": 10.2,
    "available_kv_gib": 63.73,
    "kv_bytes_per_token_per_rank": 100,
    "kv_tokens": 1000,
    "max_concurrency": 2.0,
    "estimated_max_len": 510,
    "undetermined": [],
}


@pytest.fixture(name="scored")
def _scored(monkeypatch):
    def run(report=None, said=None, notes=None):
        answer = {**SAID, **(said or {})}
        monkeypatch.setattr(
            sizing_score,
            "answers",
            lambda report, configs: sizing_score.Answers(answer, answer, answer, answer),
        )
        notes = {**NO_NOTES, **(notes or {})}
        rows, left = sizing_score.score([{**REPORT, **(report or {})}], notes)
        return sizing_score.figures(rows, notes), left

    return run


def test_every_measure_counts_a_whole_report(scored):
    values, left = scored()
    assert left == []
    assert values["weights_mean"] == pytest.approx(0.02)
    assert values["weights_over_5"] == 0
    for name in ("kv_bytes", "calibrated", "exact", "tokens", "concurrency", "length"):
        assert (values[f"{name}_right"], values[f"{name}_reports"]) == (1, 1), name
    assert values["uncalibrated_mean"] == pytest.approx(0.03 / (79.19 * 0.95))


@pytest.mark.parametrize(
    ("said", "figure", "value"),
    [
        ({"weights_gib": 11}, "weights_over_5", 1),
        ({"weights_gib": None}, "weights_over_5", 1),
        ({"kv_bytes_per_token_per_rank": 101}, "kv_bytes_right", 0),
        ({"available_kv_gib": 64.4}, "calibrated_right", 0),
        ({"kv_tokens": 1001}, "exact_right", 0),
        ({"kv_tokens": 1020}, "tokens_right", 0),
        ({"max_concurrency": 2.1}, "concurrency_right", 0),
        ({"estimated_max_len": 530}, "length_right", 0),
    ],
)
def test_what_is_off_is_no_hit(scored, said, figure, value):
    assert scored(said=said)[0][figure] == value


def test_a_weight_with_its_reason_still_counts_in_the_mean(scored):
    values, _left = scored(said={"weights_gib": 11}, notes={"explained": {"one": "why"}})
    assert (values["weights_over_5"], values["weights_explained"]) == (0, 1)
    assert values["weights_mean"] == pytest.approx(0.1)


def test_what_does_not_count_has_its_reason(scored):
    values, left = scored(notes={"left_out": {"one": {"weights": "why"}}})
    assert values["weights_reports"] == 0
    assert [(item.measure, item.reason) for item in left] == [("weights", "why")]
    _values, left = scored({"total_gib": None, "gpu": None})
    assert {item.measure for item in left} == {"calibrated", "uncalibrated", "tokens_uncalibrated"}
    _values, left = scored(said={"undetermined": [size.UNKNOWN_MODEL]})
    assert {item.measure for item in left} >= {"weights", "kv_bytes", "uncalibrated"}
    _values, left = scored({"vllm_version": "0.21.0"})
    assert [item.reason for item in left] == ["its version subtracts graphs, whose size isn't given"]


def test_bytes_of_a_token_come_from_the_blocks_where_nothing_is_expected(scored):
    slots = {
        "check": None,
        "kv_tokens_semantics": "num_gpu_blocks * block_size",
        "kv_tokens": None,
        "gpu_blocks": 4000000,
    }
    right = round(63.7 * size.GIB / (4000000 * 16))
    assert scored(slots, {"kv_bytes_per_token_per_rank": right})[0]["kv_bytes_right"] == 1
    assert scored(slots, {"kv_bytes_per_token_per_rank": right * 1.01})[0]["kv_bytes_right"] == 0


def test_floors_of_counts_and_ceilings_of_errors():
    values = dict.fromkeys(sizing_score.FIGURES, 1)
    assert sizing_score.below_floor(values, {"kv_bytes_right": 1, "weights_mean": 1}) == []
    failures = sizing_score.below_floor(values, {"kv_bytes_right": 2, "weights_mean": 0.5})
    assert "below the floor of 2" in failures[0]
    assert "above the ceiling of 50.00%" in failures[1]


def test_sizing_is_scored_and_held(tmp_path, capsys, monkeypatch):
    reports, floors = tmp_path / "reports.jsonl", tmp_path / "floors.json"
    reports.write_text(json.dumps({**REPORT, "model": "nobody"}) + "\n", encoding="utf-8")
    monkeypatch.setattr(score, "FLOORS", floors)
    floors.write_text(json.dumps({"reports.jsonl": {"weights_reports": 1}}), encoding="utf-8")
    assert score.main(["--sizing", str(reports), "-v"]) == 0
    assert score.main(["--sizing", str(reports), "--check"]) == 1
    output = capsys.readouterr()
    assert "left out: weights of one: the model's architecture isn't known" in output.out
    assert "weights_reports: 0 is below the floor of 1" in output.err


@needs_reports
def test_the_notes_are_of_reports_and_measures_that_there_are():
    notes = sizing_score.read_notes()
    known = {report["id"] for path in (SHARED, *score.OWN_SIZES) for report in score.read_lines(path)}
    measures = {name.rsplit("_", 1)[0] for name in sizing_score.FIGURES if name.endswith("_reports")}
    assert set(notes["left_out"]) | set(notes["explained"]) <= known
    for reasons in notes["left_out"].values():
        assert set(reasons) <= measures | {"tokens_uncalibrated"}
        assert all(reasons.values())


@needs_reports
def test_the_page_holds_what_the_code_says():
    text = sizing_page.PAGE.read_text(encoding="utf-8")
    assert text == sizing_page.filled(text, sizing_page.tables(SHARED)), (
        "run tests/accuracy/sizing_page.py --write"
    )
    assert len(sizing_page.MODELS) == 8


VALUES = {
    "quantization": (
        None,
        "fp8",
        "none",
        "W4A16",
        "bitsandbytes 4bit",
        "nvfp4",
        "mxfp4",
        "gguf q4_k_m",
        "weird",
    ),
    "vllm_version": (
        None,
        ">=0.21",
        "nightly 2026-03",
        "V1",
        "0.5.4",
        "0.8.2",
        "0.9.1",
        "0.15.0",
        "0.21.0",
        "0.33.0",
    ),
    "gpu": (
        "2x RTX 3090",
        "H100 SXM",
        "GB10",
        "MI300X",
        None,
        "a 24GB card",
        "B200 class (184 GiB)",
        "A100",
        "zorp",
    ),
    "speculative": (None, "mtp 2 tokens", "eagle3", "ngram", "dflash draft"),
    "kv_cache_dtype": (None, "auto", "fp8", "nvfp4", "int8_per_token_head", "turboquant_k8v4", "weird"),
    "tp": (1, 2, 3, 8, 16, None),
    "pp": (1, 2, None),
    "dp": (None, 8),
    "dcp": (None, 2),
    "max_model_len": (None, 1, 131072),
    "max_num_seqs": (None, 1, 1024),
    "max_num_batched_tokens": (None, 512, 65536),
    "enforce_eager": (None, True),
    "block_size": (None, 32, 1568),
    "engine": (None, "V1", "V0"),
    "dtype": (None, "float16", "float32"),
}


@needs_reports
def test_odd_settings_of_every_model_give_sane_numbers():
    chosen = random.Random(5)
    for config in sorted(
        {report["config_id"] for report in score.read_lines(SHARED) if report.get("config_id")}
    ):
        for model in (config, None, "other/" + config.rsplit("/", 1)[-1] + "-AWQ"):
            report = {name: chosen.choice(values) for name, values in VALUES.items()}
            said = size.size(
                {**dict.fromkeys(size.READ_FIELDS), **report, "config_id": config, "model": model}
            )
            assert said["weights_gib"] > 0, (config, report, said["undetermined"])
            assert said["kv_bytes_per_token_per_rank"] > 0, (config, report)
            assert 0 <= said["activation_gib"] < 300, (config, report)
            assert min(said["non_torch_gib"], said["graph_gib"], said["kv_tokens"] or 0) >= 0, (
                config,
                report,
            )
