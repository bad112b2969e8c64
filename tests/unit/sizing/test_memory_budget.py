# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget document: of evidence, of a model with flags."""

from __future__ import annotations

import json

import pytest
from sizing_samples import LLAMA
from test_subjects import MODEL, evidence

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

A100 = {"product": "NVIDIA-A100-SXM4-80GB"}


def entry_of(*args, models=(MODEL,), **kwargs):
    (found,) = budgets_of(evidence(*args, **kwargs), list(models))["entries"]
    return found


def test_an_entry_has_every_documented_field():
    found = entry_of(node=A100)
    assert set(found) == set(documents.budget_entry({}))
    json.dumps(found)


def test_what_a_log_measured_takes_the_place_of_the_model():
    # vLLM prints 14.99 GiB for this model.
    found = entry_of([("weights", 20 * GIB, None), ("gpu_total", 79 * GIB, None)], A100)
    parts = {item["name"]: item for item in found["segments"]}
    assert (parts["weights"]["bytes"], parts["weights"]["proof"]) == (20 * GIB, "measured")
    assert parts["activation_peak"]["proof"] == "modelled"
    (said,) = found["contradictions"]
    assert said["sentence"] == "weights: the log says 20.00 GiB, the model 14.99 GiB (-25%); the log counts."


def test_numbers_that_agree_are_no_contradiction():
    found = entry_of([("weights", int(14.99 * GIB), None)], A100)
    assert found["contradictions"] == []


def test_a_model_without_architecture_shows_what_the_log_gave():
    found = entry_of(
        [
            ("weights", 61 * GIB, None),
            ("kv_available", 4 * GIB, None),
            ("kv_needed", 10 * GIB, None),
            ("estimated_max_len", 18224, None),
        ],
        A100,
        models=(),
    )
    assert [(item["name"], item["proof"]) for item in found["segments"]] == [
        ("weights", "measured"),
        ("kv_available", "measured"),
    ]
    assert found["fits"] is False
    assert found["kv"]["estimated_max_len"] == 18224
    assert "needs 10.00 GiB of KV cache, 4.00 GiB are there" in found["sentence"]


def test_a_start_that_does_not_fit_gets_changes_and_hardware():
    found = entry_of(node=dict(A100, product="NVIDIA-L4"), settings={"gpu_memory_utilization": 0.7})
    assert found["fits"] is False
    helping = [item["name"] for item in found["changes"] if item["helps"]]
    assert "--max-model-len" in helping or "--gpu-memory-utilization" in helping
    assert found["hardware"]
    assert all(item["fits"] for item in found["hardware"])


def test_what_fits_needs_no_changes_and_says_how_much_would():
    found = entry_of(node=A100, settings={"max_model_len": 8192})
    assert found["fits"] is True
    assert (found["changes"], found["hardware"]) == ([], [])
    assert found["largest"]["max_model_len"] == 131072


def test_an_automatic_length_takes_what_fits():
    found = entry_of(node={"product": "NVIDIA-L4"}, settings={"max_model_len": -1})
    assert found["fits"] is True
    assert any("max_model_len is automatic" in text for text in found["assumptions"])


def test_settings_that_no_start_could_have_are_a_verdict():
    found = entry_of(node=A100, settings={"gpu_memory_utilization": -0.5})
    assert found["fits"] is False
    assert found["problems"] == ["gpu_memory_utilization lies above 0 and up to 1, not -0.5"]


def test_heads_that_can_not_be_divided_are_said_by_vllms_rule():
    found = entry_of(node=A100, settings={"tensor_parallel_size": 3})
    assert found["fits"] is False
    assert "32" in found["problems"][0]
    assert "3" in found["problems"][0]


@pytest.mark.parametrize(("limit", "fits"), [("2Gi", False), ("12Gi", None), ("24Gi", True), (None, None)])
def test_the_host_limit_is_held_against_mechanism_and_table(limit, fits):
    # 8B: the table's limit is 16 to 24 Gi; the mechanism holds about 6.
    limits = {"limits": {"memory": limit} if limit else {}, "requests": {}}
    host = entry_of(node=A100, resources=limits)["host"]
    assert host["fits"] is fits
    assert host["limit"] == (None if limit is None else int(limit[:-2]) * GIB)


def test_a_limit_below_the_need_is_in_the_sentence():
    limits = {"limits": {"memory": "2Gi"}, "requests": {}}
    found = entry_of(node=A100, resources=limits)
    assert "The memory limit of 2.00 GiB is below" in found["sentence"]


def test_on_the_cpu_backend_the_host_is_all_there_is():
    document = evidence()
    document["pods"][0]["containers"][0]["engine"]["accelerator"] = "cpu"
    (found,) = budgets_of(document, [MODEL])["entries"]
    assert found["segments"] == []
    assert any("CPU backend" in text for text in found["undetermined"])
    assert found["host"]["segments"]


def test_a_single_model_document_stands_for_every_name():
    document = evidence(node=A100)
    (found,) = budgets_of(document, [dict(MODEL, name="/models/elsewhere")])["entries"]
    assert found["segments"]


def test_a_model_document_is_sized_with_its_flags():
    (found,) = budgets_of(MODEL, gpu="A100 80GB", arguments=["--max-model-len=8192"], version="0.11.0")[
        "entries"
    ]
    assert found["fits"] is True
    assert found["settings"]["max_model_len"] == 8192


@pytest.mark.parametrize("document", [None, [], {}, {"schema": "vllm_runbook.oom/diagnosis/v1"}])
def test_another_document_is_refused_in_a_sentence(document):
    with pytest.raises(
        DocumentError, match=r"the memory budget needs a document with schema vllm_runbook.oom/evidence/v1"
    ):
        budgets_of(document)


def test_search_can_be_left_out():
    (found,) = budgets_of(evidence(node={"product": "NVIDIA-L4"}), [MODEL], search=False)["entries"]
    assert (found["largest"], found["changes"], found["hardware"]) == (None, [], [])
    assert found["fits"] is False


def test_the_config_is_not_changed():
    before = json.dumps(LLAMA)
    entry_of(node=A100, settings={"hf_overrides": {"num_hidden_layers": 2}})
    assert json.dumps(LLAMA) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"max_model_len": 200000},
            "max_model_len 200000 is more than the 131072 that the model's config allows",
        ),
        ({"max_num_seqs": 100000}, "max_num_batched_tokens (2048) is smaller than max_num_seqs (100000)"),
        ({"dtype": "bfloat16"}, "bfloat16 needs compute capability 8.0, and T4 has 7.5"),
    ],
)
def test_what_vllm_refuses_is_no_start(settings, words):
    found = entry_of(node={"product": "Tesla-T4"}, settings=dict(settings, max_num_batched_tokens=2048))
    assert found["fits"] is False
    assert any(words in text for text in found["problems"])


def test_a_longer_context_is_taken_where_it_is_allowed():
    allowed = {"max_model_len": 200000, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": True}
    assert entry_of(node=A100, settings=allowed)["fits"] is True
    # An engine that printed numbers had passed that check.
    started = entry_of([("weights", int(14.99 * GIB), None)], A100, settings={"max_model_len": 200000})
    assert not any("allows" in text for text in started["problems"])


def written(name, text, known=None):
    document = evidence(node=A100)
    settings = document["pods"][0]["containers"][0]["settings"]
    settings[name] = {
        "value": known,
        "from": "arg",
        "line": None,
        **({"written": text} if known is None else {}),
    }
    (found,) = budgets_of(document, [MODEL])["entries"]
    return found


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("max_model_len", "abc", "--max-model-len abc: vLLM doesn't take that."),
        ("max_model_len", "", "--max-model-len without a value: vLLM doesn't take that."),
        ("gpu_memory_utilization", "two", "--gpu-memory-utilization two: vLLM doesn't take that."),
    ],
)
def test_a_value_that_vllm_does_not_take_is_no_start(name, text, words):
    found = written(name, text)
    assert found["fits"] is False
    assert found["problems"][0] == words


def test_a_misspelled_option_names_the_right_one():
    found = written("max_modellen", None, known=4096)
    assert found["fits"] is False
    assert found["problems"][0] == "--max-modellen is no option of vLLM that is known; --max-model-len is."


def test_what_a_variable_stands_for_is_not_guessed():
    found = written("max_model_len", "$(LEN)")
    assert found["fits"] is None
    assert "what $(LEN) in --max-model-len stands for" in found["sentence"]


@pytest.mark.parametrize(("gpus", "fits"), [("1", False), ("2", True)])
def test_fewer_gpus_than_ranks_is_no_start(gpus, fits):
    limits = {"limits": {"nvidia.com/gpu": gpus}, "requests": {}}
    found = entry_of(node=A100, settings={"tensor_parallel_size": 2}, resources=limits)
    assert found["fits"] is fits
    assert fits or found["problems"][0] == "The flags make 2 ranks, and 1 GPUs are given: vLLM doesn't start."


def test_within_the_models_error_nothing_is_decided():
    # One request needs 16 GiB; find a length whose need is within the error of what is there.
    sure = entry_of(node={"product": "NVIDIA-L4"}, settings={"max_model_len": 131072})
    edge = sure["available_kv"] // sure["kv"]["bytes_per_token"] // 16 * 16
    close = entry_of(node={"product": "NVIDIA-L4"}, settings={"max_model_len": edge - 16})
    assert (sure["fits"], close["fits"], close["close"]) == (False, None, True)
    assert "Too close to tell" in close["sentence"]
    proposed = sure["largest"]["max_model_len"]
    again = entry_of(node={"product": "NVIDIA-L4"}, settings={"max_model_len": proposed})
    assert again["fits"] is True


def test_a_fixed_number_of_blocks_shows_what_it_gives():
    found = entry_of(node=A100, settings={"num_gpu_blocks_override": 100})
    assert any("0.20 GiB are there" in text for text in found["problems"])


def test_on_the_cpu_backend_weights_are_host_memory():
    document = evidence()
    document["pods"][0]["containers"][0]["engine"]["accelerator"] = "cpu"
    (found,) = budgets_of(document, [MODEL])["entries"]
    parts = {item["name"]: item["bytes"] for item in found["host"]["segments"]}
    assert parts["weights"] == pytest.approx(15 * GIB, rel=0.01)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"count": 0}, "the number of GPUs is a whole number from 1 on, not 0"),
        ({"memory_limit": "64gi"}, "the memory limit is a Kubernetes quantity"),
        ({"memory_limit": "-5Gi"}, "the memory limit is a Kubernetes quantity"),
        ({"version": "latest"}, "vLLM's version is a release such as 0.11.0, not 'latest'"),
    ],
)
def test_what_is_asked_for_is_checked(asked, words):
    with pytest.raises(DocumentError, match=words):
        budgets_of(MODEL, gpu="A100 80GB", **asked)


def test_a_release_is_taken_where_the_evidence_names_none():
    document = evidence(node=A100)
    document["pods"][0]["containers"][0]["engine"]["version"] = None
    (found,) = budgets_of(document, [MODEL], version="0.15.0")["entries"]
    assert found["version"] == "0.15.0"
    (own,) = budgets_of(evidence(node=A100), [MODEL], version="0.15.0")["entries"]
    assert own["version"] == "0.11.0"


@pytest.mark.parametrize(
    "arguments", [["--model", "org/other"], ["--model=x"], ["vllm", "serve", "org/other"]]
)
def test_arguments_that_name_a_model_are_refused(arguments):
    with pytest.raises(DocumentError, match="what follows 'vllm serve MODEL'"):
        budgets_of(MODEL, gpu="A100 80GB", arguments=arguments)
