# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from evidence, and from a model with flags, before it is sized."""

from __future__ import annotations

import pytest
from sizing_samples import LLAMA

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.subjects import of_evidence, of_model

MODEL = {"schema": documents.MODEL_SCHEMA, "name": "org/model", "config": LLAMA, "source": "given"}


def told(**settings):
    return {name: {"value": value, "from": "arg", "line": None} for name, value in settings.items()}


def evidence(numbers=(), node=None, settings=None, attempts=None, **container):
    """One engine; numbers: ``(name, value, rank)`` of its log."""
    log = documents.log(complete=True)
    log["numbers"] = [
        documents.line(index, name, name=name, value=value, unit=documents.NUMBERS[name], rank=rank)
        for index, (name, value, rank) in enumerate(numbers, 1)
    ]
    engine = documents.container(
        "vllm",
        engine=documents.engine("0.11.0", "image", accelerator="cuda"),
        settings=told(**{"model": "org/model", **(settings or {})}),
        attempts=[documents.attempt(0, "terminated", log=log)] if attempts is None else attempts,
        **container,
    )
    document = documents.evidence("2026-11-30T07:00:00Z", "bundle", "test")
    document["pods"].append(documents.pod("llm", "vllm-0", uid="u-1", node="gpu-0", containers=[engine]))
    document["nodes"]["gpu-0"] = documents.node(gpu=dict(documents.node()["gpu"], **(node or {})))
    return document


def subject(*args, gpu=None, **kwargs):
    (found,) = of_evidence(evidence(*args, **kwargs), {"org/model": MODEL}, gpu)
    return found


def test_each_attempt_that_tells_a_number_is_a_subject():
    def attempt(index, numbers):
        log = documents.log(complete=True)
        log["numbers"] = [
            documents.line(1, name, name=name, value=value, unit="bytes", rank=None)
            for name, value in numbers
        ]
        return documents.attempt(index, "terminated", log=log)

    attempts = [attempt(0, [("weights", GIB)]), attempt(1, []), attempt(2, [("weights", 2 * GIB)])]
    found = of_evidence(evidence(attempts=attempts), {"org/model": MODEL})
    assert [(item.ref["attempt"], item.measured) for item in found] == [
        (0, {"weights": GIB}),
        (2, {"weights": 2 * GIB}),
    ]
    silent = of_evidence(evidence(attempts=[attempt(0, []), attempt(1, [])]), {"org/model": MODEL})
    assert [item.ref["attempt"] for item in silent] == [1]
    planned = of_evidence(evidence(attempts=[]), {"org/model": MODEL})
    assert [item.ref["attempt"] for item in planned] == [None]


def test_containers_that_are_no_engine_are_left_out():
    document = evidence()
    document["pods"][0]["containers"].append(documents.container("proxy", role="sidecar"))
    assert [item.ref["container"] for item in of_evidence(document)] == ["vllm"]


def test_the_first_ranks_numbers_count_and_the_least_room():
    numbers = [
        ("weights", 10 * GIB, 0),
        ("weights", 11 * GIB, 1),
        ("kv_available", 5 * GIB, 0),
        ("kv_available", 4 * GIB, 1),
        ("graph_actual", GIB, 0),
        ("graph_estimate", 2 * GIB, 0),
    ]
    assert subject(numbers).measured == {
        "weights": 10 * GIB,
        "kv_available": 4 * GIB,
        "graph": GIB,
        "graph_estimated": 2 * GIB,
    }


@pytest.mark.parametrize(
    ("numbers", "node", "asked", "total", "origin"),
    [
        (
            [("gpu_total", 79.1 * GIB, None)],
            {"product": "NVIDIA-A100-SXM4-80GB"},
            None,
            int(79.1 * GIB),
            "log",
        ),
        ([], {"product": "NVIDIA-H100-80GB-HBM3"}, "L4", int(79.19 * GIB), "node"),
        ([], {"product": "Unheard-of 3000", "memory_bytes": 40 * GIB}, None, 40 * GIB, "node"),
        ([], None, "L4", int(22.03 * GIB), "given"),
        ([], None, None, None, None),
    ],
)
def test_the_log_beats_the_node_and_the_node_what_was_asked_for(numbers, node, asked, total, origin):
    gpu = subject(numbers, node, gpu=asked).gpu
    assert gpu["from"] == origin
    assert gpu["total_bytes"] == (None if total is None else pytest.approx(total, rel=0.005))


@pytest.mark.parametrize(
    ("product", "words"),
    [
        (None, "which GPU it runs on (name it with vllm_oom_gpu)"),
        ("A100", "isn't one product of the catalogue; name one of A100 40GB, A100 80GB"),
        ("RTX 4900", "name one of RTX 4090"),
        ("toaster", "the GPU 'toaster' isn't one product of the catalogue"),
    ],
)
def test_a_gpu_that_is_not_known_is_said_with_the_nearest_names(product, words):
    assert any(words in text for text in subject(node={"product": product}).missing)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_model_len": -1}, {}),
        ({"max_model_len": "auto"}, {}),
        ({"max_model_len": 8192.0}, {"max_model_len": 8192}),
        ({"kv_cache_dtype": "auto", "dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ({"limit_mm_per_prompt": {"image": 0}}, {"limit_mm_per_prompt": {"image": 0}}),
        ({"limit_mm_per_prompt": '{"image": 2}'}, {"limit_mm_per_prompt": {"image": 2}}),
        ({"limit_mm_per_prompt": "image=2"}, {}),
        ({"kv_cache_memory_bytes": 0}, {}),
        ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}, {"speculative_tokens": 4}),
        (
            {"speculative_config": '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}'},
            {"speculative_tokens": 3},
        ),
    ],
)
def test_settings_are_read_as_the_budget_takes_them(given, expected):
    settings = subject(settings=given).settings
    settings.pop("engine")
    settings.pop("v2_runner", None)
    assert settings == expected


def test_an_automatic_length_is_whatever_fits():
    assert subject(settings={"max_model_len": -1}).auto_length is True
    assert subject(settings={"max_model_len": 4096}).auto_length is False
    assert subject().auto_length is False


def test_a_draft_model_that_is_not_known_is_said():
    found = subject(settings={"speculative_config": {"method": "eagle", "model": "no/such-draft"}})
    assert any("no/such-draft isn't known" in text for text in found.assumptions)


def test_overrides_of_the_config_count():
    found = subject(settings={"hf_overrides": {"num_hidden_layers": 16}})
    assert sum(run["count"] for run in found.arch["layers"]) == 16
    assert LLAMA["num_hidden_layers"] == 32


def test_a_model_that_the_table_does_not_know_is_said_with_what_to_do():
    (found,) = of_evidence(evidence())
    assert found.arch is None
    assert any(
        "the architecture of org/model" in text and "vllm_oom_model_config" in text for text in found.missing
    )


def test_a_config_without_layers_is_said():
    broken = dict(MODEL, config={"hidden_size": 10})
    (found,) = of_evidence(evidence(), {"org/model": broken})
    assert any("num_hidden_layers" in text for text in found.missing)


def test_a_model_with_flags():
    found = of_model(
        MODEL, ["--max-model-len", "32k", "-tp", "2"], "H100 80GB", version="0.11.0", memory_limit="64Gi"
    )
    assert found.settings["max_model_len"] == 32000
    assert found.settings["tensor_parallel_size"] == 2
    assert found.gpu["count"] == 2
    assert found.host["limit_bytes"] == 64 * GIB
    assert found.model["parameters"] == pytest.approx(8.03, rel=0.01)


def test_a_worker_of_a_group_runs_what_its_leader_is_told():
    document = evidence(settings={"tensor_parallel_size": 8})
    leader = document["pods"][0]
    worker = dict(
        leader,
        name="vllm-1",
        uid="u-2",
        containers=[dict(leader["containers"][0], name="worker", settings={}, attempts=[])],
    )
    for pod in (leader, worker):
        pod["group"] = "llm/LeaderWorkerSet/vllm"
    document["pods"].append(worker)
    first, second = of_evidence(document, {"org/model": MODEL})
    assert (second.ref["pod"], second.model["name"]) == ("vllm-1", "org/model")
    assert second.settings == first.settings


def test_a_folder_is_what_the_manifest_puts_there():
    document = evidence(settings={"model": "/mnt/models"})
    document["pods"][0]["containers"][0]["model_source"] = {"value": "hf://org/model", "from": "storageUri"}
    (found,) = of_evidence(document, {"hf://org/model": MODEL})
    assert found.arch is not None
    assert found.model["name"] == "hf://org/model"


def asking(request, limits=None, **node):
    document = evidence(node=node, resources={"limits": limits or {}, "requests": {}})
    document["pods"][0]["gpu_request"] = request
    (found,) = of_evidence(document, {"org/model": MODEL})
    return found.gpu


def test_of_several_products_the_smallest_must_hold_it():
    assert asking({"product": "NVIDIA-A100-SXM4-80GB", "alternatives": ["NVIDIA-L4"]})["name"] == "L4"


def test_a_slice_of_the_selected_card_is_no_card():
    limits = {"nvidia.com/mig-2g.20gb": "1"}
    assert asking({"product": "NVIDIA-H100-80GB-HBM3"}, limits)["name"] == "H100 80GB MIG 2g.20gb"
    assert asking({}, limits, product="NVIDIA-H100-80GB-HBM3")["total_bytes"] < 20 * GIB


def test_a_given_document_does_not_replace_what_the_table_knows():
    document = evidence(settings={"model": "Qwen/Qwen3-14B"})
    (found,) = of_evidence(document, {"/models/x": MODEL, "*": MODEL})
    assert found.model["parameters"] == pytest.approx(14.77, rel=0.01)
