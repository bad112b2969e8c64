# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is planned really fits: the budget made anew with the planned settings says so."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_samples import CONFIG, EVERYTHING, budget, diagnosis, evidence, finding, planned, pod

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

MODEL = {"schema": documents.MODEL_SCHEMA, "name": "org/model", "config": CONFIG, "source": "given"}
CARDS = ("L4", "L40S", "H100 80GB", "A100 80GB", "RTX 4090")


def arguments(flags):
    """Flags as vLLM's command line."""
    words = []
    for name, value in flags.items():
        words += (
            [name]
            if value is True
            else [name, *map(str, value)]
            if isinstance(value, list)
            else [name, str(value)]
        )
    return words


def sized(card, flags, count=1):
    (entry,) = budgets_of(MODEL, gpu=card, arguments=arguments(flags), count=count, version="0.11.0")[
        "entries"
    ]
    return dict(
        entry,
        subject={"namespace": "llm", "pod": "vllm-0", "uid": "uid-vllm-0", "container": "vllm", "attempt": 0},
    )


def cause_of(entry):
    if (entry["available_kv"] or 0) <= 0:
        return "kv_no_blocks"
    return "cudagraph_capture_oom" if (entry["kv"] or {}).get("fits") else "kv_max_len"


STARTS = st.fixed_dictionaries(
    {
        "--max-model-len": st.sampled_from([4096, 32768, 65536, 131072]),
        "--gpu-memory-utilization": st.sampled_from([0.5, 0.7, 0.9, 0.95, 0.99]),
        "--max-num-batched-tokens": st.sampled_from([2048, 8192, 32768, 65536]),
        "--max-num-seqs": st.sampled_from([8, 256, 1024]),
    }
)


@settings(max_examples=25)
@given(card=st.sampled_from(CARDS), flags=STARTS)
def test_every_planned_step_makes_a_start_fit_that_did_not(card, flags):
    entry = sized(card, flags)
    assume(entry["fits"] is False)
    seen = pod(settings={name.lstrip("-").replace("-", "_"): value for name, value in flags.items()})
    found = planned(diagnosis(finding(cause_of(entry))), evidence(seen), budget(entry), **EVERYTHING)
    by_step: dict = {}
    for item in found["changes"]:
        if item["state"] == "planned":
            by_step.setdefault(item["step"], []).append(item["change"])
    for changes in by_step.values():
        after, count = dict(flags), 1
        for change in changes:
            if change["target"] == "flag":
                after[change["name"]] = change["after"]
                if change["action"] == "remove":
                    del after[change["name"]]
            elif change["name"] == "resources.limits.nvidia.com/gpu":
                count = int(change["after"])
        again = sized(card, after, count)
        # With more ranks the model's error is another than the one that the menu left over: then it may be close.
        enough = (True, None) if count > 1 else (True,)
        assert again["fits"] in enough, (changes, again["sentence"])


@settings(max_examples=10)
@given(card=st.sampled_from(CARDS), flags=STARTS)
def test_the_same_documents_give_the_same_plan(card, flags):
    entry = sized(card, flags)
    seen = pod(settings={name.lstrip("-").replace("-", "_"): value for name, value in flags.items()})
    documents_given = (diagnosis(finding(cause_of(entry))), evidence(seen), budget(entry))
    assert planned(*documents_given, **EVERYTHING) == planned(*documents_given, **EVERYTHING)
