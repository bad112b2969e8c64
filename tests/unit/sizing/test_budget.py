# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The start-up budget: against logs, by version, and laws that hold for every setting."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing_samples import LLAMA

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.budget import (
    BudgetError,
    budget,
    graphs_subtracted,
    requested_bytes,
    rule,
)

ARCH = architecture(LLAMA)
H100 = {"total_bytes": int(79.19 * GIB), "free_bytes": int(78.68 * GIB), "name": "H100 80GB"}
SETTINGS = {"max_model_len": 8192, "gpu_memory_utilization": 0.95}
# planner-llama-3-1-8b-instruct-tp1pp1-len8192-bfloat16
MEASURED = {
    "weights": int(14.99 * GIB),
    "activation_peak": int(1.89 * GIB),
    "non_torch": int(0.25 * GIB),
}


def parts(result):
    return {segment["name"]: segment for segment in result["segments"]}


def test_the_budget_of_a_logged_start():
    result = budget(ARCH, H100, SETTINGS, "0.19.0")

    assert result["available_kv"] / GIB == pytest.approx(58.11, abs=0.1)
    assert result["kv"]["tokens"] == pytest.approx(58.11 * GIB / 131072, rel=0.002)
    assert result["fits"] is True
    assert result["problems"] == []
    assert {name: part["proof"] for name, part in parts(result).items()} == dict.fromkeys(
        ("weights", "activation_peak", "non_torch", "graph", "kv_available"), "modelled"
    )
    assert all(part["formula"] for part in result["segments"])
    assert abs(result["available_kv"] - 58.11 * GIB) <= result["available_kv_error"]


def test_measured_numbers_beat_modelled_ones():
    result = budget(ARCH, H100, SETTINGS, "0.19.0", MEASURED)
    found = parts(result)

    assert result["available_kv"] / GIB == pytest.approx(58.11, abs=0.01)
    assert found["weights"]["bytes"] == MEASURED["weights"]
    assert (found["weights"]["proof"], found["weights"]["error_bytes"]) == ("measured", 0)
    assert found["kv_available"]["proof"] == "measured"
    assert result["contradictions"] == []


def test_a_measured_number_that_contradicts_the_model_is_said():
    result = budget(ARCH, H100, SETTINGS, "0.19.0", {**MEASURED, "weights": 30 * GIB})

    (said,) = result["contradictions"]
    assert (said["name"], said["measured"]) == ("weights", 30 * GIB)
    assert said["difference"] == pytest.approx(-0.5, abs=0.01)


def test_measured_kv_memory_is_kept_and_compared():
    result = budget(ARCH, H100, SETTINGS, "0.19.0", {"kv_available": 40 * GIB})

    assert result["available_kv"] == 40 * GIB
    assert [item["name"] for item in result["contradictions"]] == ["kv_available"]


@given(
    utilization=st.floats(0.1, 1),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    version=st.sampled_from(
        ["0.5.4", "0.7.2", "0.8.5", "0.9.2", "0.13.0", "0.19.0", "0.25.0", "0.33.0", None]
    ),
    seqs=st.sampled_from([None, 1, 64, 1024]),
)
def test_the_budget_closes_to_the_byte(utilization, tp, pp, version, seqs):
    settings = {
        "gpu_memory_utilization": utilization,
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        "max_num_seqs": seqs,
    }

    result = budget(ARCH, {"total_bytes": 85 * 10**9}, settings, version)

    taken = sum(part["bytes"] for part in result["segments"] if part["in_budget"])
    assert taken == result["capacity"]["requested"]
    assert result["available_kv"] == min(stage["kv_available"] for stage in result["ranks"]["stages"])
    assert result["ranks"]["count"] == tp * pp
    json.dumps(result)


@pytest.mark.parametrize(
    ("version", "want"), [("0.7.2", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92), (None, 0.92)]
)
def test_the_default_utilization(version, want):
    result = budget(ARCH, H100, {}, version)

    assert result["capacity"]["utilization"] == want
    said = any("gpu_memory_utilization" in text for text in result["assumptions"])
    assert said == (version is None)


def test_the_requested_bytes_are_rounded_up_from_0_14():
    assert requested_bytes(101, 0.5, "0.13.0") == 50
    assert requested_bytes(101, 0.5, "0.14.0") == 51
    assert requested_bytes(101, 0.5, None) == 51


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        ({"version": "0.17.1"}, False),
        ({"version": "0.19.0"}, False),
        ({"version": "0.19.0", "estimate": True}, True),
        ({"version": "0.20.0"}, True),
        ({"version": "0.20.0", "estimate": False}, False),
        ({"version": "0.26.0", "runner2": True}, False),
        ({"version": "0.29.0", "runner2": True}, True),
        ({"version": "0.10.0", "generation": "V0", "estimate": True}, False),
        ({"version": None}, True),
    ],
)
def test_which_versions_subtract_the_graphs(facts, want):
    assert graphs_subtracted(**facts) is want


def test_a_graph_estimate_of_the_log_is_what_is_subtracted():
    measured = {**MEASURED, "graph": GIB, "graph_estimated": 2 * GIB}
    qwen = dict(ARCH, architectures=["SomeMoeForCausalLM"])

    new = parts(budget(qwen, H100, SETTINGS, "0.20.0", measured))["graph"]
    old = parts(budget(qwen, H100, SETTINGS, "0.19.0", measured))["graph"]

    assert (new["bytes"], new["in_budget"]) == (2 * GIB, True)
    assert (old["bytes"], old["in_budget"]) == (GIB, False)


def test_kv_cache_memory_bytes_replaces_the_formula_but_not_the_free_check():
    settings = {**SETTINGS, "kv_cache_memory_bytes": 10 * GIB, "gpu_memory_utilization": 1.0}

    result = budget(ARCH, H100, settings, "0.19.0")

    assert result["available_kv"] == 10 * GIB
    assert parts(result)["kv_available"]["proof"] == "set"
    assert result["capacity"]["free_check"] is False
    assert result["fits"] is False
    assert "less than desired GPU memory utilization" in result["problems"][0]


def test_kv_cache_memory_bytes_may_be_more_than_the_card_has():
    result = budget(ARCH, H100, {**SETTINGS, "kv_cache_memory_bytes": 70 * GIB}, "0.19.0")

    assert result["fits"] is False
    assert "torch out-of-memory" in result["problems"][0]


def test_kv_cache_memory_bytes_is_unknown_to_older_releases():
    result = budget(ARCH, H100, {**SETTINGS, "kv_cache_memory_bytes": GIB}, "0.10.1")

    assert result["available_kv"] != GIB


def test_num_gpu_blocks_override_decides_the_blocks():
    result = budget(ARCH, H100, {**SETTINGS, "num_gpu_blocks_override": 1000}, "0.19.0")

    assert result["kv"]["num_blocks"] == 1000
    assert result["kv"]["tokens"] == 16000


def test_free_memory_is_compared_from_0_9_1_only():
    busy = {**H100, "free_bytes": 60 * GIB}

    assert budget(ARCH, busy, SETTINGS, "0.19.0")["capacity"]["free_check"] is False
    assert budget(ARCH, busy, SETTINGS, "0.8.5")["capacity"]["free_check"] is None
    assert budget(ARCH, {**H100, "free_bytes": None}, SETTINGS, "0.19.0")["capacity"]["free_check"] is None


@pytest.mark.parametrize(
    ("engine", "version", "counted"),
    [
        ("V0", "0.6.4", True),
        ("V0", "0.6.2", False),
        ("V0", "0.7.2", False),
        ("V1", "0.8.5", True),
        ("V1", "0.9.1", False),
    ],
)
def test_other_processes_count_in_some_versions(engine, version, counted):
    settings = {**SETTINGS, "engine": engine}
    alone = budget(ARCH, {**H100, "free_bytes": H100["total_bytes"]}, settings, version)
    shared = budget(ARCH, {**H100, "free_bytes": H100["total_bytes"] - 10 * GIB}, settings, version)

    assert alone["available_kv"] - shared["available_kv"] == (10 * GIB if counted else 0)


def test_a_model_that_is_too_large():
    result = budget(ARCH, {"total_bytes": 12 * GIB}, SETTINGS, "0.19.0")

    assert result["available_kv"] < 0
    assert result["fits"] is False
    assert result["kv"]["num_blocks"] == 0
    assert "No available memory for the cache blocks" in result["problems"][0]


def test_a_length_that_is_too_long_names_the_longest_that_fits():
    result = budget(ARCH, {"total_bytes": 24 * GIB}, {"max_model_len": 131072, "max_num_seqs": 16}, "0.19.0")

    longest = result["kv"]["estimated_max_len"]
    assert result["fits"] is False
    assert f"estimated maximum length {longest}" in result["problems"][0]
    assert 0 < longest < 131072


def test_without_a_total_nothing_is_guessed():
    result = budget(ARCH, {}, SETTINGS, "0.19.0")

    assert result["available_kv"] is None
    assert result["fits"] is None
    assert result["capacity"]["requested"] is None
    assert result["kv_bytes_per_token"] == 131072


def test_heads_that_do_not_divide_are_said_in_vllms_words():
    result = budget(ARCH, H100, {**SETTINGS, "tensor_parallel_size": 3}, "0.19.0")

    assert result["fits"] is False
    assert "must be divisible by tensor parallel size (3)" in result["problems"][0]


def test_the_stage_that_samples_decides_the_blocks_of_a_pipeline():
    settings = {**SETTINGS, "pipeline_parallel_size": 2}
    # planner-llama-3-1-8b-instruct-tp1pp2-len8192-bfloat16: the first stage's numbers, and the tokens of both.
    measured = {
        "weights": int(7.51 * GIB),
        "activation_peak": int(1.10 * GIB),
        "non_torch": int(0.07 * GIB),
    }

    result = budget(ARCH, H100, settings, "0.19.0", measured)

    assert result["ranks"]["shown"] == 0
    assert result["ranks"]["stages"][0]["kv_available"] / GIB == pytest.approx(66.54, abs=0.02)
    assert result["kv"]["tokens"] == pytest.approx(1075312, rel=0.0005)


def test_layers_skipped_by_the_kv_dtype_are_read_from_a_list_or_a_text():
    eight_bits = {**SETTINGS, "kv_cache_dtype": "fp8"}
    plain = budget(ARCH, H100, eight_bits, "0.19.0")["kv_bytes_per_token"]
    for told in (["0", "1"], "0 1", "0,1"):
        skipped = budget(ARCH, H100, {**eight_bits, "kv_cache_dtype_skip_layers": told}, "0.19.0")
        assert skipped["kv_bytes_per_token"] == plain * 34 // 32


def test_the_length_of_a_start_without_one_is_vllms():
    config = dict(LLAMA, original_max_position_embeddings=4096, rope_scaling={"type": "longrope"})
    lengths = [
        budget(architecture(config), H100, {}, version)["settings"]["max_model_len"]
        for version in ("0.11.0", "0.19.0")
    ]
    assert lengths == [131072, 4096]


def test_lora_slots_and_a_draft_model_are_weights():
    alone = budget(ARCH, H100, SETTINGS, "0.19.0")
    lora = budget(
        ARCH, H100, {**SETTINGS, "enable_lora": True, "max_loras": 4, "max_lora_rank": 64}, "0.19.0"
    )
    draft = budget(ARCH, H100, {**SETTINGS, "draft": ARCH}, "0.19.0")

    assert parts(lora)["weights"]["bytes"] > parts(alone)["weights"]["bytes"]
    assert parts(draft)["weights"]["bytes"] == 2 * parts(alone)["weights"]["bytes"]


@pytest.mark.parametrize(
    "settings",
    [
        {"gpu_memory_utilization": -0.1},
        {"gpu_memory_utilization": 0},
        {"gpu_memory_utilization": 1.5},
        {"gpu_memory_utilization": float("nan")},
        {"gpu_memory_utilization": "0.9"},
        {"tensor_parallel_size": 0},
        {"max_model_len": -1},
        {"max_num_seqs": True},
        {"block_size": "16"},
    ],
)
def test_settings_that_no_start_could_have(settings):
    with pytest.raises(BudgetError, match=next(iter(settings))):
        budget(ARCH, H100, settings, "0.19.0")


@pytest.mark.parametrize("total", [0, -1, "80", float("inf"), float("nan"), True])
def test_a_total_that_no_gpu_has(total):
    with pytest.raises(BudgetError, match="total memory"):
        budget(ARCH, {"total_bytes": total}, SETTINGS, "0.19.0")


@pytest.mark.parametrize("free", [-1, "80", float("nan"), False])
def test_free_memory_that_no_gpu_has(free):
    with pytest.raises(BudgetError, match="free memory"):
        budget(ARCH, {**H100, "free_bytes": free}, SETTINGS, "0.19.0")


@pytest.mark.parametrize(
    ("version", "generation", "said"),
    [
        ("0.5.4", "V0", "F0 - F1"),
        ("0.6.4", "V0", "other processes"),
        ("0.8.5", "V0", "W - A - N"),
        ("0.8.5", "V1", "other processes"),
        ("0.10.2", "V1", "NCCL's buffers in N"),
        ("0.19.1", "V1", "before F0"),
        ("0.20.0", "V1", "(W + A + N) - G"),
        ("0.33.0", "V1", "transient part of A"),
        (None, "V1", "transient part of A"),
        (None, "V0", "W - A - N"),
    ],
)
def test_the_rule_of_each_version(version, generation, said):
    assert said in rule(version, generation)
    settings = {**SETTINGS, "engine": generation}
    assert parts(budget(ARCH, H100, settings, version))["kv_available"]["formula"] == rule(
        version, generation
    )


def test_room_for_images_of_the_frontend_is_taken_off():
    settings = {**SETTINGS, "mm_ipc_gpu_memory_gb": 2}

    assert [
        budget(ARCH, H100, SETTINGS, version)["available_kv"]
        - budget(ARCH, H100, settings, version)["available_kv"]
        for version in ("0.24.0", "0.25.0")
    ] == [0, 2 * GIB]


def test_graphs_that_the_versions_rule_leaves_open_are_said():
    asked = budget(ARCH, H100, {**SETTINGS, "estimate_graphs": True}, "0.19.0")
    runner2 = budget(ARCH, H100, {**SETTINGS, "v2_runner": True}, "0.24.0")

    assert parts(asked)["kv_available"]["formula"].endswith("here with - G")
    assert parts(runner2)["kv_available"]["formula"].endswith("no estimate is made")


# --- beside the budget ---


def test_what_is_free_beyond_the_request_stays_outside():
    result = budget(ARCH, H100, SETTINGS, "0.19.0")
    graphs = parts(result)["graph"]["bytes"]

    assert result["outside"] == {
        "bytes": H100["free_bytes"] - result["capacity"]["requested"],
        "error_bytes": parts(result)["graph"]["error_bytes"],
        "graphs": graphs,
        "margin": H100["free_bytes"] - result["capacity"]["requested"] - graphs,
    }
    # From 0.20 on the graphs are within the budget, and nothing of the rest is modelled.
    later = budget(ARCH, H100, SETTINGS, "0.20.2")["outside"]
    assert (later["graphs"], later["error_bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("ranks", "nvlink", "version", "free"),
    [
        # planner-llama-3-1-8b-instruct-tp1pp1-len8192-bfloat16
        (1, True, "0.19.0", 78.68),
        # planner-mixtral-8x7b-instruct-v0-1-tp2pp1-len8192-bfloat16
        (2, True, "0.19.0", 77.18),
        # repo-llava16-mistral-7b-h100; NCCL starts after the snapshot.
        (2, True, "0.10.2", 78.66),
    ],
)
def test_unknown_free_memory_is_modelled_with_its_error(ranks, nvlink, version, free):
    gpu = {"total_bytes": int(79.19 * GIB), "nvlink": nvlink}
    settings = {**SETTINGS, "tensor_parallel_size": ranks, "enforce_eager": True}
    result = budget(ARCH, gpu, settings, version)
    modelled = result["outside"]["bytes"] + result["capacity"]["requested"]

    assert abs(modelled - free * GIB) <= result["outside"]["error_bytes"]


def test_a_pool_that_was_set_takes_from_the_room_beside_the_budget():
    fixed = budget(ARCH, H100, {**SETTINGS, "kv_cache_memory_bytes": 10 * GIB}, "0.19.0")
    more = budget(ARCH, H100, {**SETTINGS, "kv_cache_memory_bytes": 11 * GIB}, "0.19.0")
    blocks = budget(ARCH, H100, {**SETTINGS, "num_gpu_blocks_override": 10 * GIB // 2**21}, "0.19.0")

    assert fixed["outside"]["bytes"] - more["outside"]["bytes"] == GIB
    assert blocks["outside"]["bytes"] == fixed["outside"]["bytes"]


def test_without_a_total_nothing_is_said_about_the_rest():
    assert budget(ARCH, {}, SETTINGS, "0.19.0")["outside"] is None


def test_blocks_that_the_card_cannot_hold():
    result = budget(ARCH, H100, {**SETTINGS, "num_gpu_blocks_override": 40_000}, "0.19.0")

    assert result["fits"] is False
    assert "num_gpu_blocks_override" in result["problems"][0]


def test_a_kv_size_that_the_release_does_not_know_is_no_problem():
    settings = {**SETTINGS, "kv_cache_memory_bytes": 70 * GIB}

    assert budget(ARCH, H100, settings, "0.10.1")["fits"] is True


# --- settings that change parts ---


def test_offloaded_weights_are_not_on_the_gpu():
    whole = parts(budget(ARCH, H100, SETTINGS, "0.19.0"))["weights"]["bytes"]
    offloaded = [
        parts(budget(ARCH, H100, {**SETTINGS, "cpu_offload_gb": size}, "0.19.0"))["weights"]["bytes"]
        for size in (4, 0.5, 100)
    ]

    assert [whole - size for size in offloaded[:2]] == [4 * GIB, GIB // 2]
    # Embedding and head stay: two of 128256 x 4096 in 16 bits.
    assert offloaded[2] >= 2 * 128256 * 4096 * 2
    with pytest.raises(BudgetError, match="cpu_offload_gb"):
        budget(ARCH, H100, {**SETTINGS, "cpu_offload_gb": -1}, "0.19.0")


def test_towers_whose_inputs_are_refused_are_loaded_but_not_profiled():
    towers = architecture(
        {
            **LLAMA,
            "model_type": "qwen2_5_vl",
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "vision_config": {
                "depth": 32,
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "out_hidden_size": 4096,
            },
        }
    )
    plain, images, none, counted, only = (
        parts(budget(towers, H100, {**SETTINGS, **more}, "0.19.0"))
        for more in (
            {},
            {"limit_mm_per_prompt": {"image": 2, "video": 0}},
            {"limit_mm_per_prompt": {"image": 0, "video": 0}},
            {"limit_mm_per_prompt": {"image": {"count": 0}, "video": 0}},
            {"language_model_only": True},
        )
    )

    assert plain["activation_peak"]["bytes"] == images["activation_peak"]["bytes"]
    assert none["activation_peak"]["bytes"] < plain["activation_peak"]["bytes"]
    assert counted["activation_peak"] == none["activation_peak"]
    assert none["weights"] == plain["weights"]
    assert only["weights"]["bytes"] < plain["weights"]["bytes"]


def test_without_chunks_a_step_holds_the_longest_prompt():
    settings = {"max_model_len": 32768, "enable_chunked_prefill": False}

    assert budget(ARCH, H100, settings, "0.19.0")["settings"]["max_num_batched_tokens"] == 32768
    assert (
        budget(ARCH, H100, {"max_model_len": 32768}, "0.19.0")["settings"]["max_num_batched_tokens"] == 8192
    )


@pytest.mark.parametrize(
    ("version", "eager", "said"), [("0.20.2", False, True), ("0.19.0", False, False), ("0.20.2", True, False)]
)
def test_graphs_want_a_state_for_each_sequence(version, eager, said):
    states = {
        **{"model_type": "qwen3_next", "full_attention_interval": 4, "linear_conv_kernel_dim": 4},
        **{"linear_num_value_heads": 32, "linear_num_key_heads": 16},
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
    }
    gpu, settings = {"total_bytes": 24 * GIB}, {"max_model_len": 8192, "max_num_seqs": 1024}
    result = budget(architecture({**LLAMA, **states}), gpu, {**settings, "enforce_eager": eager}, version)

    assert any("Mamba cache blocks" in text for text in result["problems"]) == said
    assert result["fits"] is not said


@pytest.mark.parametrize("capability", [(9, 0), [9, 0], 9.0])
def test_a_capability_as_the_catalogue_or_a_log_gives_it(capability):
    sparse = architecture(
        {
            **LLAMA,
            "model_type": "deepseek_v32",
            **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
            **{"v_head_dim": 128, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        }
    )
    hopper = budget(
        sparse, {**H100, "compute_capability": capability}, {**SETTINGS, "kv_cache_dtype": "fp8"}, "0.19.0"
    )
    blackwell = budget(
        sparse, {**H100, "compute_capability": (10, 0)}, {**SETTINGS, "kv_cache_dtype": "fp8"}, "0.19.0"
    )

    # 656 bytes of a token's row against 576 plain ones, in each of 32 layers.
    assert hopper["kv_bytes_per_token"] - blackwell["kv_bytes_per_token"] == 32 * (656 - 576)


def test_what_a_search_knows_changes_nothing():
    known = {}
    for settings in (
        SETTINGS,
        {**SETTINGS, "kv_cache_dtype": "fp8"},
        {**SETTINGS, "tensor_parallel_size": 2},
    ):
        alone = budget(ARCH, H100, settings, "0.19.0")
        assert budget(ARCH, H100, settings, "0.19.0", known=known) == alone
        assert budget(ARCH, H100, settings, "0.19.0", known=known) == alone


def test_the_blocks_of_a_pipeline_are_those_of_the_stage_with_the_fewest():
    arch = architecture(dict(LLAMA, num_hidden_layers=27))
    gpu = {"total_bytes": 24 * GIB}
    found = budget(arch, gpu, {"pipeline_parallel_size": 2, "max_model_len": 4096}, "0.11.0")
    rooms = [stage["kv_available"] for stage in found["ranks"]["stages"]]
    # A block of 16 tokens in each layer: 65536 bytes; the last stage samples and has one layer less.
    blocks = [rooms[0] // (14 * 65536), rooms[1] // (13 * 65536)]
    assert found["kv"]["num_blocks"] == pytest.approx(min(blocks), abs=1)
    assert blocks[0] != blocks[1]
