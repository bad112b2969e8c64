# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A memory budget as people read it."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
    budget_console,
    markdown,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting.budget_view import (
    budget_summary,
    budget_view,
    entry_view,
    verdict,
)


def segment(name, size, proof="modelled", error=0.0, in_budget=True):
    return {
        "name": name,
        "bytes": int(size * GIB),
        "proof": proof,
        "formula": "f",
        "error_bytes": int(error * GIB),
        "in_budget": in_budget,
    }


def entry(**more):
    values = {
        "model": {"name": "org/x", "parameters": 32.8},
        "gpu": {"name": "H100 80GB", "count": 2, "from": "node"},
        "version": "0.11.0",
        "sentence": "Doesn't fit. It is too large.",
        "fits": False,
        "capacity": {
            "total": 80 * GIB,
            "utilization": 0.9,
            "requested": 72 * GIB,
            "free": None,
            "free_check": None,
        },
        "segments": [
            segment("weights", 61, "measured"),
            segment("activation_peak", 1.5, error=0.25),
            segment("graph", 1.25, in_budget=False),
            segment("kv_available", 9.5, error=0.3),
        ],
        "kv": {"need_bytes": 10 * GIB},
        "changes": [
            dict(change("flag", "--max-model-len", "decrease", 4096, "needs less"), helps=True),
            dict(change("flag", "--gpu-memory-utilization", "decrease", 0.8, "worse"), helps=False),
        ],
        "host": {
            "segments": [],
            "need_bytes": 6 * GIB,
            "limit_bytes": 44 * GIB,
            "request_bytes": 33 * GIB,
            "limit": None,
            "fits": None,
            "by": "table",
        },
    }
    return documents.budget_entry(
        {"namespace": "llm", "pod": "x-0", "container": "vllm"}, **{**values, **more}
    )


def document(*entries):
    return dict(documents.budget_document("manifest"), entries=list(entries))


@pytest.mark.parametrize(
    ("gpu", "limit", "host", "expected"),
    [
        (True, 1, True, True),
        (True, None, None, True),
        (True, 1, None, None),
        (True, 1, False, False),
        (False, 1, True, False),
        (None, None, None, None),
    ],
)
def test_gpu_and_host_must_both_have_room(gpu, limit, host, expected):
    assert verdict({"fits": gpu, "host": {"limit": limit, "fits": host}}) is expected


def test_a_sum_that_is_computed_is_shown_as_one():
    assert entry_view(entry())["line"] == (
        "GiB of the GPU: 72.00 requested - weights 61.00 (this log) - activation 1.50 = KV cache 9.50; "
        "one request of full length needs 10.00"
    )


def test_an_end_that_was_measured_is_no_sum():
    measured = entry(segments=[segment("weights", 61), segment("kv_available", 4.45, "measured")])
    assert entry_view(measured)["line"] == (
        "GiB of the GPU: weights 61.00, KV cache 4.45 (this log); one request of full length needs 10.00"
    )


def test_the_table_goes_from_the_card_to_the_need():
    assert entry_view(entry())["gpu"] == [
        ("total", "80.00", "node"),
        ("requested: gpu-memory-utilization 0.9", "72.00", ""),
        ("- weights", "61.00", "this log"),
        ("- activation peak of the profile run", "1.50", "modelled ±0.25"),
        ("beside it: CUDA graphs", "1.25", "modelled"),
        ("= KV cache", "9.50", "modelled ±0.30"),
        ("one request of full length needs", "10.00", ""),
    ]


def test_an_engine_that_is_too_close_to_tell_is_shown_so():
    shown = entry_view(entry(fits=None, close=True))
    assert shown["verdict"] == "too close"
    assert entry_view(entry(fits=None))["verdict"] == "not known"


def test_limits_that_hold_alone_are_not_read_as_a_pair():
    shown = entry_view(entry(largest={"max_model_len": 21664, "max_num_seqs": 711, "max_concurrency": None}))
    assert shown["largest"] == [
        "--max-model-len 21664 or --max-num-seqs 711, each with everything else as it is"
    ]


def test_a_model_without_a_pod_is_named_once():
    alone = documents.budget_entry(
        {"pod": "org/x", "container": "org/x"}, model={"name": "org/x", "parameters": 8.03}
    )
    assert entry_view(alone)["head"] == "org/x (8.03B), vLLM of unknown version"


def test_actions_that_belong_together_are_shown_in_words():
    both = dict(change("flag", "--x", "set", 1, "w", with_=["smaller_quantization"]), helps=True)
    assert entry_view(entry(changes=[both]))["do"][0]["with"] == [documents.ACTIONS["smaller_quantization"]]


def test_what_is_not_known_leaves_no_empty_table():
    text = budget_console.render(budget_view(document(documents.budget_entry({"pod": "x-0"}))))
    assert "GPU memory" not in text
    assert "Host memory" not in text


def test_console_lines_are_narrow_and_several_engines_have_an_overview():
    text = budget_console.render(budget_view(document(entry(), entry(fits=True, sentence="Fits."))))
    assert text.startswith("2 engines sized: 1 fit, 1 don't, 0 not known.\n")
    assert max(map(len, text.splitlines())) <= budget_console.WIDTH
    assert "1. lower --max-model-len to 4096: needs less" in text
    assert "- lower --gpu-memory-utilization to 0.8: worse" in text


def test_markdown_shows_texts_literally():
    hostile = entry(model={"name": "<b>|x"}, sentence="a | b\n# c")
    text = markdown.budgets(budget_view(document(hostile)))
    assert r"\<b\>\|x" in text
    assert r"a \| b \# c" in text
    assert "\n# c" not in text


def test_no_engine_is_said():
    assert budget_console.render(budget_view(document())) == "Nothing to size: no vLLM engine was found.\n"


def test_the_summary_is_bounded_and_holds_no_numbers_of_a_log():
    many = budget_summary(document(*[entry() for _index in range(60)]))
    assert (many["engines"], len(many["verdicts"]), many["more"]) == (60, 50, 10)
    assert set(many["verdicts"][0]) == {"name", "model", "fits", "sentence"}


def test_another_document_is_refused():
    with pytest.raises(DocumentError, match="budget/v1"):
        budget_view({"schema": "x"})
