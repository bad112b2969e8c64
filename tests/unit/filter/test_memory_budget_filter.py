# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter memory_budget: what it takes, and what it says of bad input."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.vllm_runbook.oom.plugins.filter import memory_budget, oom_report
from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents

FILTER = memory_budget.FilterModule().filters()["memory_budget"]
REPORT = oom_report.FilterModule().filters()["oom_report"]
MODEL = {
    "schema": documents.MODEL_SCHEMA,
    "name": "org/eight-billion",
    "source": "given",
    "config": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
}
EVIDENCE = documents.evidence("2026-11-30T07:00:00Z", "bundle", "test")


def sized(**asked):
    (entry,) = FILTER(MODEL, **{"gpu": "A100 80GB", "version": "0.11.0", **asked})["entries"]
    return entry


def test_arguments_are_a_text_or_a_list():
    as_text, as_list = sized(arguments="--max-model-len 8192"), sized(arguments=["--max-model-len", "8192"])
    assert as_text == as_list
    assert as_text["settings"]["max_model_len"] == 8192


def test_empty_options_count_as_not_given():
    assert sized(arguments="", memory_limit="", count=None) == sized()
    FILTER(EVIDENCE, gpu="", arguments="", version="")


def test_the_result_is_plain_data():
    json.dumps(FILTER(MODEL, gpu="A100 80GB"))


@pytest.mark.parametrize(
    ("document", "options", "words"),
    [
        (None, {}, "needs a document with schema vllm_runbook.oom/evidence/v1, got NoneType"),
        ({"schema": "x"}, {}, "got x"),
        (MODEL, {"arguments": "--x 'unclosed"}, "arguments are no shell words"),
        (
            MODEL,
            {"gpu": "RTX 4900"},
            "the GPU 'RTX 4900' isn't one product of the catalogue; name one of RTX 4090",
        ),
        (MODEL, {"colour": "red"}, "unknown option 'colour'"),
        (EVIDENCE, {"count": 2}, "count go with a model document only"),
        (MODEL, {"count": -1}, "the number of GPUs is a whole number from 1 on, not -1"),
        (MODEL, {"arguments": 5}, "arguments are a text or a list of texts, not 5"),
        (
            MODEL,
            {"memory_limit": "64GB"},
            "the memory limit is a Kubernetes quantity such as 64Gi, not '64GB'",
        ),
        (MODEL, {"version": "banana"}, "vLLM's version is a release such as 0.11.0, not 'banana'"),
        (EVIDENCE, {"models": [{"schema": "x"}]}, "the memory budget's models needs a document with schema"),
        (dict(EVIDENCE, pods=[{"containers": 5}]), {}, "has the right schema but not its shape"),
    ],
)
def test_bad_input_is_one_sentence(document, options, words):
    with pytest.raises(AnsibleFilterError) as error:
        FILTER(document, **options)
    assert words in str(error.value)
    assert str(error.value).startswith("vllm_runbook.oom.memory_budget: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("format", "start"),
    [
        ("console", "org/eight-billion (8.03B), 1 x A100 80GB, vLLM 0.11.0"),
        ("markdown", "# vLLM memory budget"),
    ],
)
def test_a_report_on_a_budget(format, start):
    text = REPORT(FILTER(MODEL, gpu="A100 80GB", version="0.11.0"), format=format)
    assert text.startswith(start)
    assert "KV cache" in text


def test_the_summary_of_a_budget_counts():
    summary = REPORT(FILTER(MODEL, gpu="L4", version="0.11.0"), format="summary")
    assert (summary["engines"], summary["doesnt_fit"], summary["fits"], summary["unknown"]) == (1, 1, 0, 0)
    assert summary["verdicts"][0]["fits"] is False


def test_a_budget_as_json_is_what_the_reports_show():
    shown = json.loads(REPORT(FILTER(MODEL, gpu="A100 80GB"), format="json"))
    assert shown["entries"][0]["verdict"] in ("fits", "doesn't fit", "not known")
