# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on a terminal."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_documents import (
    OOM_LINE,
    diagnosis,
    evidence_of,
    healthy_pod,
    pod,
    risk_finding,
    verdict,
    weights_pod,
)

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import console, sections, view_model


def render(*pods, evidence=None, **more):
    return console.render(view_model.view(diagnosis(*pods, **more), evidence))


def test_one_pod_says_what_a_tired_person_needs():
    assert render(weights_pod(), evidence=evidence_of()) == (
        """\
llm/llama-70b-0: gpu_weights_oom (certain)
  GPU memory ran out.
  Seen   log, container vllm, line 31, 10-25 13:05:14, EngineCore_DP0:
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total
         capacity of 79.18 GiB of which 566.56 MiB is free. Process 41873 has 78.62 GiB memory in
         use. Of the allocated memory 78.09 GiB is allocated by PyTorch, and 13.75 MiB is reserved …
  Why    The weights of 70 billion parameters need more than this card has.
  Do     1. raise --tensor-parallel-size to 2 together with resources.limits.nvidia.com/gpu: each
            GPU then holds half of the weights
            kubectl -n llm edit deployment/llama-70b
         2. use a smaller quantization of the model: FP8: halves the weights
  Don't  - lower --gpu-memory-utilization: the fraction does not limit the weights
  Also   - risk cpu_limit_set (possible): A CPU limit throttles tokenization.
  Settle - the size of the checkpoint
  Check  kubectl -n llm logs llama-70b-0 -c vllm --previous | grep -n OutOfMemoryError
"""
    )


@pytest.mark.parametrize("many", [1, 4, 30])
def test_a_pod_takes_at_most_20_lines_of_100_characters(many):
    changes = [
        documents.change(
            "flag", "max_num_seqs", "decrease", 64, why="because " * 30, command="kubectl edit it"
        )
        for _item in range(many)
    ]
    crowded = weights_pod(recommend=changes, rejected=changes, would_settle=["look " * 40] * many)
    crowded["findings"] += [risk_finding(explanation="words " * 60)] * many
    lines = render(crowded, evidence=evidence_of(restart_count=9, complete=False)).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    shown = "\n".join(lines)
    for label in ("Seen", "Why", "Do ", "Don't", "Also", "Settle", "Check"):
        assert f"\n  {label}" in shown
    assert "1. lower --max-num-seqs to 64" in shown


def test_what_is_cut_is_marked():
    crowded = weights_pod(would_settle=[f"look at this {number}" for number in range(30)])
    settle = [line for line in render(crowded).splitlines() if "look at this" in line]
    assert len(settle) < 30
    assert settle[-1].endswith("…")


def test_a_fleet_starts_with_an_overview_worst_first():
    lines = render(healthy_pod(), weights_pod()).splitlines()
    assert lines[:4] == [
        "2 pods diagnosed: 1 ran out of memory, 1 nothing found.",
        "  memory  cause            confidence  pod",
        "  gpu     gpu_weights_oom  certain     llm/llama-70b-0",
        "  none    -                -           llm/healthy-0",
    ]


def test_a_large_fleet_shows_the_worst_in_detail():
    many = [weights_pod(f"pod-{number:02}") for number in range(30)]
    lines = render(*many, healthy_pod()).splitlines()
    assert sum(line.startswith("llm/pod-") for line in lines) == 20
    assert sum(line.startswith("  gpu     gpu_weights_oom  certain     llm/pod-") for line in lines) == 30
    assert lines[-1].startswith("10 more are in the overview above; -e vllm_oom_output_dir=DIR keeps all")
    assert not [line for line in lines if line.startswith("llm/healthy-0")]


def test_no_suspicious_pod_is_said_too():
    seen = dict(evidence_of(), pods=[])
    assert console.render(view_model.view(diagnosis(), seen)) == (
        "Nothing to diagnose: none of the 1 vLLM pods (of 3 pods seen) looks suspicious.\n"
    )
    assert console.render(view_model.view(diagnosis())) == "Nothing to diagnose: no vLLM pod was seen.\n"


def test_what_could_not_be_read_names_the_right():
    unread = [documents.unreadable("logs", "llm/llama-70b-0", "forbidden (403)", "get on pods/log in llm")]
    assert render(weights_pod(), unreadable=unread).endswith(
        "Could not be read:\n  - logs llm/llama-70b-0: forbidden (403) (needs get on pods/log in llm)\n"
    )


def test_groups_say_in_which_pod_it_began():
    group = {
        "ref": "llm/LeaderWorkerSet/r1",
        "pods": ["llm/r1-0", "llm/r1-0-1"],
        "trigger_pod": "llm/r1-0-1",
        "sentence": "r1-0-1 failed first; r1-0 followed.",
        "findings": [documents.finding("nccl_gpu_oom", "nccl_gpu", "load", "trigger", "likely")],
    }
    shown = render(weights_pod(), groups=[group])
    assert shown.endswith(
        "\n\nGroup llm/LeaderWorkerSet/r1 (llm/r1-0, llm/r1-0-1): r1-0-1 failed first; r1-0 followed.\n"
    )


def test_what_was_not_seen_of_other_containers_is_said():
    other = weights_pod(container="another")
    assert "  Unseen - vllm ran 3 times, and the last 1 can be looked at.\n" in render(
        other, evidence=evidence_of(restart_count=2)
    )


def test_a_risk_is_not_called_a_failure():
    shown = render(pod("x", [risk_finding()], verdict(None, "none", "unknown", False, "The pod runs.")))
    assert shown.startswith("llm/x: cpu_limit_set (possible)\n  The pod runs.\n")


_WORDS = st.text(alphabet="abc'\"\\ {}:,$-=/", max_size=60).map(shlex.quote)


@given(st.lists(_WORDS, min_size=1, max_size=12), st.integers(30, 100))
def test_a_broken_command_is_still_the_same_command(words, width):
    text = "kubectl " + " ".join(words)
    lines = sections.command_lines(text, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(text)


@given(st.text(max_size=300))
def test_any_sentence_keeps_the_limits(sentence):
    entry = weights_pod(explanation=sentence)
    entry["verdict"]["sentence"] = sentence
    lines = render(entry).splitlines()
    assert len(lines) <= 20
    words = sentence.split() or [""]
    assert max(map(len, lines)) <= max(100, max(map(len, words)) + 12)


@given(st.text(max_size=200), st.integers(20, 100))
def test_no_character_of_a_command_is_lost(text, width):
    kept = "".join(sections.command_lines(text, width)).replace(" \\", "")
    for character in set(text) - set(" \\#") - {item for item in text if item.isspace()}:
        assert kept.count(character) == text.count(character)


def test_a_comment_never_becomes_a_command():
    lines = sections.command_lines(
        "kubectl -n llm edit deployment/x  # container vllm: set --max-model-len to 18224 in args", 40
    )
    assert lines == [
        "kubectl -n llm edit deployment/x",
        "# container vllm: set --max-model-len to",
        "# 18224 in args",
    ]


def test_the_oom_line_is_shown_from_its_start():
    assert OOM_LINE[:60] in render(weights_pod())
