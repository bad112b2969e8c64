# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""score.py counts what it says, and the reviewed table covers every entry of the shared cases."""

from __future__ import annotations

import json

import answers
import pytest
import score

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents


def change(target, name, direction, value=None, with_=()):
    return {"target": target, "name": name, "direction": direction, "value": value, "with": list(with_)}


def matches(pattern, candidate):
    return answers.matches(answers.parse_pattern(pattern), candidate)


@pytest.mark.parametrize(
    ("pattern", "candidate", "expected"),
    [
        ("flag gpu_memory_utilization decrease", ("flag", "--gpu-memory-utilization", "decrease"), True),
        ("flag gpu_memory_utilization decrease", ("flag", "gpu_memory_utilization", "increase"), False),
        ("flag gpu_memory_utilization *", ("flag", "gpu_memory_utilization", "increase"), True),
        ("flag enable_prefix_caching remove", ("flag", "--no-enable-prefix-caching", "add"), True),
        ("flag --no-enable-prefix-caching add", ("flag", "enable_prefix_caching", "remove"), True),
        ("flag enforce_eager add", ("flag", "--enforce-eager", "set"), True),
        ("flag kv_cache_memory_bytes set|decrease", ("flag", "--kv-cache-memory", "decrease"), True),
        ("flag cuda_graph_sizes decrease", ("flag", "--cudagraph-capture-sizes", "decrease"), True),
        ("env NCCL_* *", ("env", "NCCL_P2P_DISABLE", "set"), True),
        (
            "env PYTORCH_CUDA_ALLOC_CONF set *true*",
            ("env", "PYTORCH_ALLOC_CONF", "set", "expandable_segments:True"),
            True,
        ),
        (
            "env PYTORCH_CUDA_ALLOC_CONF set *true*",
            ("env", "PYTORCH_ALLOC_CONF", "set", "expandable_segments:False"),
            False,
        ),
        ("env PYTORCH_CUDA_ALLOC_CONF set *true*", ("env", "PYTORCH_ALLOC_CONF", "set"), False),
        ("k8s volumes.*shm* increase|set", ("k8s", "volumes.shm.sizeLimit", "increase"), True),
        ("k8s resources.limits.memory increase", ("k8s", "resources.limits.memory", "set"), False),
        ("action free_gpu *", ("action", "free_gpu", "set"), True),
        ("action free_gpu *", ("flag", "free_gpu", "set"), False),
    ],
)
def test_patterns(pattern, candidate, expected):
    assert matches(pattern, change(*candidate)) is expected


@pytest.mark.parametrize("text", ["", "flag", "flag name", "label name set", "alone flag name"])
def test_bad_pattern_is_refused(text):
    with pytest.raises((ValueError, IndexError)):
        answers.parse_pattern(text)


UTIL = change("flag", "--gpu-memory-utilization", "increase")
SEQS = change("flag", "--max-num-seqs", "decrease")


@pytest.mark.parametrize(
    ("pattern", "changes", "wrong"),
    [
        ("flag gpu_memory_utilization increase", [SEQS, UTIL], True),
        ("alone flag gpu_memory_utilization increase", [UTIL], True),
        ("alone flag gpu_memory_utilization increase", [UTIL, SEQS], False),
        ("alone flag gpu_memory_utilization increase", [{**UTIL, "with": ["--max-num-seqs"]}], False),
        ("first flag gpu_memory_utilization increase", [SEQS, UTIL], False),
        ("first flag gpu_memory_utilization increase", [UTIL, SEQS], True),
        ("flag max_model_len decrease", [UTIL, SEQS], False),
    ],
)
def test_wrong_changes(pattern, changes, wrong):
    assert bool(score.recommended_wrong(changes, [answers.parse_pattern(pattern)])) is wrong


CASE = {
    "id": "c",
    "kind": "kv_no_blocks",
    "is_memory": True,
    "which_memory": "gpu",
    "expected": {
        "recommend": [{"flag": "--max-num-seqs", "direction": "decrease"}],
        "not_to_recommend": [{"change": "--gpu-memory-utilization increase"}],
    },
}
RIGHT = {"id": "c", "is_memory": True, "memory": "gpu", "cause": "kv_no_blocks", "recommend": [SEQS]}


def test_totals_and_misses():
    totals, misses = score.score([CASE], [RIGHT], {})
    assert totals == dict.fromkeys(score.FIGURES, 1)
    assert misses == {}
    bad = {
        **RIGHT,
        "cause": "kv_max_len",
        "is_memory": None,
        "memory": "unknown",
        "recommend": [UTIL, UTIL, SEQS],
    }
    totals, misses = score.score([CASE], [bad], {})
    assert totals == dict.fromkeys(score.FIGURES, 0)
    assert set(misses["c"]) == set(score.FIGURES)
    totals, misses = score.score([CASE], [], {})
    assert totals["cause"] == 0
    assert misses["c"]["error"]


def test_floors_hold(tmp_path, capsys, monkeypatch):
    cases, verdicts, floors = tmp_path / "some.jsonl", tmp_path / "verdicts.jsonl", tmp_path / "floors.json"
    cases.write_text(json.dumps(CASE) + "\n", encoding="utf-8")
    verdicts.write_text(json.dumps(RIGHT) + "\n", encoding="utf-8")
    monkeypatch.setattr(score, "FLOORS", floors)
    arguments = ["--cases", str(cases), "--verdicts", str(verdicts), "--check"]

    floors.write_text(json.dumps({"some.jsonl": {"cause": 1}}), encoding="utf-8")
    assert score.main(arguments) == 0
    floors.write_text(json.dumps({"some.jsonl": {"cause": 2}}), encoding="utf-8")
    assert score.main(arguments) == 1
    assert "cause: 1 is below the floor of 2" in capsys.readouterr().err
    floors.write_text("{}", encoding="utf-8")
    assert score.main(arguments) == 1
    assert "no floors for some.jsonl" in capsys.readouterr().err


def test_absent_cases(tmp_path, capsys, monkeypatch):
    own, floors = tmp_path / "own.jsonl", tmp_path / "floors.json"
    own.write_text(json.dumps(CASE) + "\n", encoding="utf-8")
    floors.write_text(json.dumps({"own.jsonl": {"cause": 1}}), encoding="utf-8")
    monkeypatch.setattr(score, "OWN_CASES", (own,))
    monkeypatch.setattr(score, "OWN_SIZES", ())
    monkeypatch.setattr(score, "FLOORS", floors)
    monkeypatch.setattr(score, "classify", lambda path: [RIGHT])
    monkeypatch.setenv("VLLM_OOM_CASES", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    assert score.main(["--check"]) == 0
    assert "the shared cases were not checked" in capsys.readouterr().err
    monkeypatch.setenv("CI", "true")
    assert score.main(["--check"]) == 1
    assert score.main(["--cases", str(tmp_path / "no.jsonl")]) == 1
    (tmp_path / score.CLASSIFICATION).write_text(json.dumps(CASE) + "\n", encoding="utf-8")
    (tmp_path / score.SIZING).write_text("", encoding="utf-8")
    held = {"own.jsonl": {"cause": 1}, score.CLASSIFICATION: {"cause": 1}, score.SIZING: {"weights_mean": 0}}
    floors.write_text(json.dumps(held), encoding="utf-8")
    assert score.main(["--check"]) == 0


def test_verdicts_need_their_cases(tmp_path):
    with pytest.raises(SystemExit):
        score.main(["--verdicts", str(tmp_path / "verdicts.jsonl")])


TABLE = answers.read_table()


def test_every_pattern_of_the_table_can_match_something():
    for case_id, sides in TABLE.items():
        for patterns in (*sides["right"].values(), *sides["wrong"].values()):
            for text in patterns:
                pattern = answers.parse_pattern(text)
                if pattern["target"] == "action":
                    assert pattern["name"] in documents.ACTIONS, f"{case_id}: {text}"
                assert pattern["directions"] <= {"*", *documents.DIRECTIONS}, f"{case_id}: {text}"


@pytest.mark.skipif(score.shared_case_file() is None, reason="the shared cases aren't beside this checkout")
def test_table_covers_every_entry_of_the_shared_cases():
    cases = {case["id"]: case["expected"] for case in score.read_lines(score.shared_case_file())}
    assert set(TABLE) == set(cases)
    for case_id, expected in cases.items():
        assert set(TABLE[case_id]["right"]) == {answers.show(entry) for entry in expected["recommend"]}
        assert set(TABLE[case_id]["wrong"]) == {answers.show(entry) for entry in expected["not_to_recommend"]}


@pytest.mark.parametrize("side", ["recommend", "not_to_recommend"])
def test_extra_cases_are_mapped_by_keywords(side):
    """Every entry of our own unreviewed cases means at least one change, so the mapper knows their words."""
    mapper = answers.map_right if side == "recommend" else answers.map_wrong
    for case in score.read_lines(score.HERE / "extra_cases.jsonl"):
        assert case["kind"] in documents.CAUSES
        assert case["which_memory"] in documents.MEMORIES
        for entry in case["expected"][side]:
            patterns = [answers.parse_pattern(pattern) for pattern in mapper(entry)]
            assert patterns, f"{case['id']}: {answers.show(entry)}"
