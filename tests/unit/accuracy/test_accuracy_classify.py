# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""classify.py reads what it may read, and survives whatever a case line holds."""

from __future__ import annotations

import json

import classify
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Design, section 8: must not be read beyond echoing ``id``.
FORBIDDEN = (
    "kind",
    "brief_kinds",
    "is_memory",
    "which_memory",
    "phase",
    "expected",
    "resolution_source",
    "url",
    "evidence_quality",
    "evidence_note",
    "padding",
)
FIELDS = {"id", "is_memory", "memory", "phase", "cause", "causes", "recommend", "rejected"}
CASE = {
    "id": "one",
    "vllm_version": "0.9.1",
    "accelerator": "cuda",
    "evidence_log": "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    "pod_status": {"exit_code": 1, "reason": "Error"},
    "gpu": "A10 24GB",
    "args": ["--gpu-memory-utilization 0.5"],
}
LIES = {
    "kind": "eviction",
    "brief_kinds": [99],
    "is_memory": False,
    "which_memory": "none",
    "phase": "serving",
    "expected": {"root_cause": "Evicted: the node was low on resource: ephemeral-storage."},
    "resolution_source": "reporter",
    "url": "https://example.org/evicted",
    "evidence_quality": "none",
    "evidence_note": "OOMKilled 137",
    "padding": {"what": "Evicted"},
}


def run(case):
    return classify.classify(json.dumps(case))


def test_only_the_named_fields_are_read():
    assert not set(classify.READ_FIELDS) & set(FORBIDDEN)
    assert set(LIES) == set(FORBIDDEN)
    assert set(classify.allowed({**CASE, **LIES})) == set(classify.READ_FIELDS)


def test_forbidden_fields_change_nothing():
    plain = run(CASE)
    assert plain["cause"] == "kv_no_blocks"
    assert run({**CASE, **LIES}) == plain


def test_output_has_the_fixed_fields():
    assert set(run(CASE)) == FIELDS
    assert run({**CASE, "id": ["any", 1]})["id"] == ["any", 1]


@pytest.mark.parametrize("line", ["{", "[]", "null", "7", '"text"', "\ufffd\x00", '{"id": 1,'])
def test_unusable_line_gets_one_sentence(line):
    result = classify.classify(line)
    assert result["cause"] == "undetermined"
    assert result["is_memory"] is None
    assert result["error"]
    assert "\n" not in result["error"]


def test_empty_case_is_judged_without_error():
    result = run({})
    assert set(result) == FIELDS
    assert result["id"] is None
    assert result["is_memory"] is None
    assert result["cause"] == "undetermined"
    assert result == run(dict.fromkeys((*classify.READ_FIELDS, *FORBIDDEN)))


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.text(max_size=40),
    st.lists(st.one_of(st.none(), st.text(max_size=20), st.integers(0, 9)), max_size=4),
    st.dictionaries(
        st.sampled_from(["exit_code", "reason", "event", "note", "restarts", "env"]),
        st.one_of(
            st.none(),
            st.text(max_size=20),
            st.integers(-9, 255),
            st.dictionaries(st.text(max_size=5), st.none()),
        ),
        max_size=4,
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(classify.READ_FIELDS, _VALUES)))
def test_any_values_are_survived(case):
    result = run(case)
    assert "error" not in result
    assert set(result) == FIELDS
    json.dumps(result)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.9.1", "0.9.1"),
        ("0.7.x", "0.7"),
        ("0.28.0-0.29.0", "0.28.0"),
        ("0.8.0/0.8.1", "0.8.0"),
        ("0.11.1+", "0.11.1"),
        ("v0.22.1rc1.dev26", "0.22.1rc1.dev26"),
        ("0.8.5.post1", "0.8.5.post1"),
        ("0.2x (2026)", None),
        ("2026-04 main", None),
        (None, None),
        (7, None),
    ],
)
def test_engine_version(text, version):
    assert classify.engine_version(text) == version


def test_arguments_in_all_spellings():
    args, env = classify.arguments_of(
        [
            "--max-model-len 4096",
            "max_num_seqs=16",
            "-tp 2",
            "TP=8",
            "enable_sleep_mode",
            "LMCACHE_MAX_LOCAL_DISK_SIZE=640",
            "--kv-offloading-size 200 (400)",
            "--max-model-len ~250000",
            "limit_mm_per_prompt={'image':10,'video':1}",
            "--enable-lora --max-lora-rank 64",
            "RAY_memory_usage_threshold=0.9",
            None,
            "",
        ]
    )
    assert args == [
        "--max-model-len",
        "4096",
        "--max-num-seqs=16",
        "-tp",
        "2",
        "--tensor-parallel-size=8",
        "--enable-sleep-mode",
        "--kv-offloading-size",
        "200",
        "--max-model-len",
        "250000",
        "--limit-mm-per-prompt={'image':10,'video':1}",
        "--enable-lora",
        "--max-lora-rank",
        "64",
    ]
    assert [(item["name"], item["value"]) for item in env] == [
        ("LMCACHE_MAX_LOCAL_DISK_SIZE", "640"),
        ("RAY_memory_usage_threshold", "0.9"),
    ]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "count", "memory", "mig", "unified"),
    [
        ("2x MI50 16GB", 2, 16 * GIB, None, None),
        ("4 of 8x H200", 8, None, None, None),
        ("8 GPUs (TP=8)", 8, None, None, None),
        ("H200 MIG 18 GB slice (16 GB usable)", None, 16 * GIB, True, None),
        ("H200 MIG 2g.35gb", None, 35 * GIB, "2g.35gb", None),
        ("H20 vGPU (24000 MiB slice)", None, 24000 << 20, None, None),
        ("24GB class (21.98 GiB)", None, round(21.98 * GIB), None, None),
        ("Ryzen AI Max (Strix Halo) 128GB", None, 128 * GIB, None, True),
        ("2x GB10, TP=2", 2, None, None, True),
    ],
)
def test_gpu_words(text, count, memory, mig, unified):
    gpu = classify.gpu_of(text, False)
    assert (gpu["count"], gpu["memory_bytes"], gpu["mig"], gpu["unified"]) == (count, memory, mig, unified)


@pytest.mark.parametrize(
    ("status", "restarts"),
    [
        ({"restarts": 3}, 3),
        ({"restarts": ">0"}, 1),
        ({"restarts": "many"}, 2),
        ({"note": "CrashLoopBackOff; 6 restarts; only pod deletion recovers"}, 6),
        ({"restarts": None, "note": None}, None),
        ({"restarts": True}, None),
    ],
)
def test_restarts(status, restarts):
    assert classify.restarts_of(status) == restarts


def test_second_log_and_environment_reach_the_evidence():
    second = classify.evidence_of(classify.allowed({**CASE, "extra_evidence": "MemoryError"}))
    attempts = second["pods"][0]["containers"][0]["attempts"]
    assert [attempt["log"]["readable"] for attempt in attempts] == [True, True]
    given_env = classify.evidence_of(
        classify.allowed({**CASE, "extra_evidence": {"env": {"OMP_NUM_THREADS": "1"}}})
    )
    assert {"name": "OMP_NUM_THREADS", "value": "1", "from": None} in given_env["pods"][0]["containers"][0][
        "env"
    ]


def test_status_words_reach_pod_node_and_attempts():
    def status(**fields):
        return classify.evidence_of(classify.allowed({"pod_status": fields, "evidence_log": "INFO x"}))

    waiting = status(exit_code=1, reason="CrashLoopBackOff")["pods"][0]["containers"][0]["attempts"]
    assert [(attempt["state"], attempt["reason"]) for attempt in waiting] == [
        ("terminated", None),
        ("waiting", "CrashLoopBackOff"),
    ]
    evicted = status(exit_code=137, reason="Evicted")["pods"][0]
    assert (evicted["pod_phase"], evicted["reason"]) == ("Failed", "Evicted")
    probe = status(exit_code=143, event="Container vllm failed startup probe, will be restarted")["pods"][0]
    assert probe["events"][0]["reason"] == "Killing"
    lost = status(reason="NodeNotReady")
    assert lost["nodes"][classify.NODE]["conditions"][0]["status"] == "Unknown"
    running = status(note="Running")["pods"][0]["containers"][0]["attempts"]
    assert running[0]["state"] == "running"


def _prefixed(prefix):
    return lambda log: "\n".join(prefix + line for line in log.split("\n"))


OWN_CASES = [
    json.loads(line)
    for line in (classify.ROOT / "tests" / "accuracy" / "extra_cases.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


@pytest.mark.parametrize(
    "rewrite",
    [
        _prefixed("2026-01-01T00:00:07.123456789Z stderr F "),
        _prefixed("2026-01-01T00:00:07.123456789Z "),
        _prefixed("vllm-llm-1  | "),
        _prefixed("[pod/vllm-0/vllm] "),
        lambda log: "\n".join(f"\x1b[0;36m{line}\x1b[0m" for line in log.split("\n")),
        lambda log: log.replace("\n", "\r\n"),
    ],
    ids=["cri", "timestamps", "compose", "kubectl", "ansi", "crlf"],
)
def test_who_carried_the_log_changes_nothing(rewrite):
    for case in OWN_CASES[::4]:
        plain, carried = run(case), run({**case, "evidence_log": rewrite(case["evidence_log"])})
        assert (carried["cause"], carried["memory"]) == (plain["cause"], plain["memory"]), case["id"]
