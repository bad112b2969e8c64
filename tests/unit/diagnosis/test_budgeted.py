# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes are recomputed by the budget before they are proposed."""

from __future__ import annotations

import pytest
from evidence_samples import failed, gib, oom_text

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.budgeted import recomputed
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change

UTILIZATION, LENGTH, BATCH = "--gpu-memory-utilization", "--max-model-len", "--max-num-batched-tokens"


def row(name, direction, value, helps, available, need=10.0, **more):
    """A row of the budget's menu; sizes in GiB."""
    after = {"available_kv": gib(available), "need_bytes": gib(need), "fits": helps, "max_concurrency": None}
    return dict(change("flag", name, direction, value, "a why"), helps=helps, after=dict(after, **more))


def entry(*menu, available=4.0, need=10.0, error=0.0, attempt=0, **more):
    """A budget's entry whose start lacks 6 GiB of KV cache on a card of 80 GiB."""
    return documents.budget_entry(
        {"namespace": "llm", "pod": "vllm-0", "uid": "u-1", "container": "vllm", "attempt": attempt},
        available_kv=gib(available),
        available_kv_error=gib(error),
        kv={"need_bytes": gib(need)},
        capacity={
            "total": gib(80),
            "utilization": 0.9,
            "requested": gib(72),
            "free": None,
            "free_check": None,
        },
        fits=available >= need,
        changes=list(menu),
        **more,
    )


def test_without_a_budget_nothing_changes():
    changes = [change("flag", LENGTH, "decrease", 4096)]
    assert recomputed(None, "kv_max_len", changes, []) == (changes, [])


def test_a_change_that_helps_gets_the_computed_value_and_the_proof():
    menu = entry(row(LENGTH, "decrease", 18224, True, 4.0, need=4.0, max_concurrency=1.0))
    (found,), rejected = recomputed(
        menu, "kv_max_len", [change("flag", LENGTH, "decrease", 16000, "why")], []
    )
    assert (found["value"], found["proof"]) == (18224, "budget")
    assert found["why"] == "why; the budget then has 4.00 GiB for the KV cache, 1.00 requests of full length"
    assert rejected == []


def test_the_engines_own_word_on_a_value_is_kept():
    menu = entry(row(LENGTH, "decrease", 18000, True, 4.0, need=4.0))
    (found,), _rejected = recomputed(
        menu, "kv_max_len", [change("flag", LENGTH, "decrease", 18224, "w", "log")], []
    )
    assert (found["value"], found["proof"]) == (18224, "budget")


def test_a_change_that_is_not_enough_says_what_is_still_missing():
    menu = entry(row(BATCH, "decrease", 256, False, 7.0))
    (found,), _rejected = recomputed(menu, "kv_max_len", [change("flag", BATCH, "decrease", None, "w")], [])
    assert found["why"] == "w; alone it isn't enough: 3.00 GiB are still missing"


def test_a_change_that_makes_it_worse_is_rejected_with_the_figure():
    menu = entry(row(UTILIZATION, "decrease", 0.85, False, 0.0))
    kept, (refused,) = recomputed(
        menu, "kv_no_blocks", [change("flag", UTILIZATION, "decrease", 0.85, "w")], []
    )
    assert kept == []
    assert refused["why"] == "recomputed: the KV cache would have 4.00 GiB less"


def test_within_the_models_error_nothing_is_rejected():
    menu = entry(row(UTILIZATION, "decrease", 0.85, False, 0.0), error=8.0)
    changes = [change("flag", UTILIZATION, "decrease", 0.85, "w")]
    assert recomputed(menu, "kv_no_blocks", changes, []) == (changes, [])


def test_a_change_that_is_rejected_anew_takes_the_old_ones_place():
    menu = entry(row(UTILIZATION, "decrease", 0.85, False, 0.0))
    old = change("flag", UTILIZATION, "decrease", None, "an old reason")
    _kept, refused = recomputed(menu, "kv_no_blocks", [change("flag", UTILIZATION, "decrease", 0.85)], [old])
    assert [item["why"] for item in refused] == ["recomputed: the KV cache would have 4.00 GiB less"]


@pytest.mark.parametrize(
    ("available", "value", "words", "with_"),
    [
        (20.0, 0.85, "16.00 GiB remain for the KV cache, one request of full length needs 10.00 GiB", []),
        (12.0, 0.85, "only 8.00 GiB would remain for the KV cache", [LENGTH]),
    ],
)
def test_a_lower_utilization_is_held_against_what_a_request_needs(available, value, words, with_):
    changes = [change("flag", UTILIZATION, "decrease", value, "w")]
    (found,), _rejected = recomputed(entry(available=available), "cudagraph_capture_oom", changes, [])
    assert words in found["why"]
    assert (found["with"], found["proof"]) == (with_, "budget")


def test_causes_that_have_no_budget_are_left_alone():
    changes = [change("flag", UTILIZATION, "decrease", 0.85, "w")]
    assert recomputed(entry(), "probe_kill", changes, []) == (changes, [])


def document(*entries):
    return dict(documents.budget_document("bundle"), entries=list(entries))


NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."


def test_the_diagnosis_shows_the_budget_and_its_contradictions():
    said = "weights: the log says 20.00 GiB, the model 15.00 GiB (-25%); the log counts."
    evidence = failed([NO_BLOCKS], phase="kv_init")
    mine = entry(sentence="Doesn't fit.", contradictions=[{"name": "weights", "sentence": said}])
    (pod,) = diagnose(evidence, document(mine, entry(attempt=7)))["pods"]
    (shown,) = pod["budgets"]
    assert (shown["subject"]["attempt"], shown["sentence"]) == (0, "Doesn't fit.")
    assert "changes" not in shown
    assert said in pod["notes"]


def test_without_a_budget_the_diagnosis_has_none():
    (pod,) = diagnose(failed([NO_BLOCKS], phase="kv_init"))["pods"]
    assert pod["budgets"] == []


def test_the_budget_changes_no_verdict():
    for texts, phase in (([NO_BLOCKS], "kv_init"), ([oom_text()], "graph_capture")):
        evidence = failed(texts, phase=phase)
        with_budget, without = diagnose(evidence, document(entry())), diagnose(evidence)
        assert with_budget["pods"][0]["verdict"] == without["pods"][0]["verdict"]


def test_a_document_that_is_no_budget_is_refused():
    with pytest.raises(DocumentError, match="the diagnosis' budget needs a document with schema"):
        diagnose(failed([NO_BLOCKS]), {"schema": "x"})


def test_weights_over_more_ranks_are_proved_by_the_budget():
    menu = entry(row("--tensor-parallel-size", "increase", 2, True, 3.5, need=2.0, max_concurrency=1.75))
    changes = [change("flag", "--tensor-parallel-size", "increase", 2, "w")]
    (found,), _rejected = recomputed(menu, "gpu_weights_oom", changes, [])
    assert (found["value"], found["proof"]) == (2, "budget")
    assert "3.50 GiB for the KV cache, 1.75 requests of full length" in found["why"]


HELD = oom_text(
    total=79.18, free=0.1, allocated=12.1, reserved=0.1, processes=[(4711, 12.62), (4712, 66.0)]
)  # fmt: skip


def held(mine=None):
    """The trigger of a start beside a tenant of 66 GiB."""
    document_ = document(mine) if mine else None
    (pod,) = diagnose(failed([HELD], phase="load"), document_)["pods"]
    return next(item for item in pod["findings"] if item["role"] == "trigger")


def test_beside_a_holder_a_model_that_does_not_fit_alone_is_not_said_to_fit():
    found = held(entry(available=-60.0, need=2.0))
    assert (found["cause"], found["confidence"]) == ("gpu_held_by_other", "likely")
    assert "-60.00 GiB for the KV cache, 62.00 GiB too little" in found["explanation"]
    assert not {"smaller_model", "smaller_quantization", LENGTH} & {
        item["name"] for item in found["rejected"]
    }


@pytest.mark.parametrize("mine", [None, entry(available=20.0), entry(available=9.0, error=2.0)])
def test_beside_a_holder_a_model_that_fits_alone_needs_no_change(mine):
    found = held(mine)
    assert (found["cause"], found["confidence"]) == ("gpu_held_by_other", "certain")
    assert "smaller_model" in {item["name"] for item in found["rejected"]}


def test_one_listed_process_that_is_ours_leaves_the_rest_to_somebody_else():
    text = oom_text(total=79.18, free=0.55, allocated=12.09, reserved=0.02, processes=[(4711, 12.62)])
    (pod,) = diagnose(failed([text], phase="load"))["pods"]
    assert pod["findings"][0]["cause"] == "gpu_held_by_other"
