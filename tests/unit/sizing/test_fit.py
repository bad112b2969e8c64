# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fit search: what fits at most, the menu of changes for each goal, the GPUs that would do."""

from __future__ import annotations

import pytest
from sizing_samples import LLAMA

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import ACTIONS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine import flags
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import fit, gpus
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.budget import budget

ARCH = architecture(LLAMA)
STATES = architecture(
    {
        **LLAMA,
        "model_type": "qwen3_next",
        "full_attention_interval": 4,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
)
LATENT = architecture(
    {
        **LLAMA,
        "model_type": "deepseek_v3",
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
)
TOWERS = architecture(
    {
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        **{key: LLAMA[key] for key in LLAMA if key not in ("model_type", "architectures")},
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 4096,
            "patch_size": 14,
        },
    }
)
L4 = {"total_bytes": int(22.06 * GIB), "name": "L4", "compute_capability": (8, 9), "nvlink": False}
H100 = {"total_bytes": int(79.19 * GIB), "name": "H100 80GB", "compute_capability": (9, 0), "nvlink": True}


def card(gib, **facts):
    return {"total_bytes": int(gib * GIB), "compute_capability": (8, 9), **facts}


def menu(*start, **goal):
    """{(name, direction): row}; of a change that stands there twice the first."""
    rows = {}
    for row in fit.changes(*start, **goal):
        rows.setdefault((row["name"], row["direction"]), row)
    return rows


def helping(rows):
    return [name for (name, _direction), row in rows.items() if row["helps"]]


# --- what fits at most ---


def test_the_longest_context_is_vllms_estimate_and_no_token_more_fits():
    settings = {"max_model_len": 131072}
    found = fit.largest(ARCH, L4, settings, "0.19.0")
    failing = budget(ARCH, L4, settings, "0.19.0")

    assert found["max_model_len"] == failing["kv"]["estimated_max_len"]
    assert budget(ARCH, L4, {"max_model_len": found["max_model_len"]}, "0.19.0")["fits"]
    assert not budget(ARCH, L4, {"max_model_len": found["max_model_len"] + 1}, "0.19.0")["fits"]
    assert found["limited_by"]["max_model_len"] == "memory"
    assert (found["max_num_seqs"], found["max_concurrency"]) == (None, None)


def test_the_models_own_context_and_the_step_end_the_search():
    found = fit.largest(ARCH, H100, {"max_model_len": 8192}, "0.19.0")

    assert (found["max_model_len"], found["max_num_seqs"]) == (131072, 8192)
    assert found["limited_by"] == {"max_model_len": "model", "max_num_seqs": "max_num_batched_tokens"}
    assert (
        found["max_concurrency"]
        == budget(ARCH, H100, {"max_model_len": 8192}, "0.19.0")["kv"]["max_concurrency"]
    )


def test_sequences_that_the_samplers_buffers_forbid():
    settings = {"max_model_len": 1024, "max_num_batched_tokens": 16384}
    seqs = fit.largest(ARCH, card(20), settings, "0.19.0")["max_num_seqs"]

    assert 1 < seqs < 16384
    assert budget(ARCH, card(20), {**settings, "max_num_seqs": seqs}, "0.19.0")["fits"]
    assert not budget(ARCH, card(20), {**settings, "max_num_seqs": seqs + 1}, "0.19.0")["fits"]


def test_v0_takes_whole_prompts_until_32k_so_a_longer_context_may_fit_where_a_shorter_does_not():
    gpu, settings = card(23.5), {"max_model_len": 131072, "max_num_seqs": 8}
    found = fit.largest(ARCH, gpu, settings, "0.7.3")["max_model_len"]

    assert not budget(ARCH, gpu, {**settings, "max_model_len": 32768}, "0.7.3")["fits"]
    assert found > 32768
    assert budget(ARCH, gpu, {**settings, "max_model_len": found}, "0.7.3")["fits"]
    assert not budget(ARCH, gpu, {**settings, "max_model_len": found + 1}, "0.7.3")["fits"]


def test_where_a_step_is_as_long_as_a_prompt_the_estimate_is_not_the_longest():
    short = architecture({**LLAMA, "max_position_embeddings": 16384})
    gpu, settings = card(20.6), {"enable_chunked_prefill": False, "max_num_seqs": 8}
    estimate = budget(short, gpu, settings, "0.19.0")["kv"]["estimated_max_len"]
    found = fit.largest(short, gpu, settings, "0.19.0")["max_model_len"]

    assert 0 < estimate < found
    assert not budget(short, gpu, {**settings, "max_model_len": found + 1}, "0.19.0")["fits"]


def test_nothing_fits_or_nothing_is_known():
    nothing = {"max_model_len": None, "max_num_seqs": None, "max_concurrency": None}

    for gpu in (card(10), {}):
        found = fit.largest(ARCH, gpu, {"max_model_len": 8192}, "0.19.0")
        assert {name: found[name] for name in nothing} == nothing
        assert found["limited_by"] == {"max_model_len": None, "max_num_seqs": None}


# --- a start that doesn't fit ---


def test_a_kv_cache_that_is_too_small_for_one_request():
    settings = {"max_model_len": 35000}
    rows = menu(ARCH, L4, settings, "0.19.0")

    up = rows["--gpu-memory-utilization", "increase"]
    assert (up["helps"], up["costs"], up["value"]) == (True, "nothing", 0.91)
    # The hundredth below isn't enough.
    assert not budget(ARCH, L4, settings, "0.19.0")["fits"]
    assert up["settings"] == {"gpu_memory_utilization": 0.91}
    assert (up["target"], up["proof"], up["with"]) == ("flag", "budget", [])
    assert (
        up["after"]["available_kv"]
        == budget(ARCH, L4, {**settings, **up["settings"]}, "0.19.0")["available_kv"]
    )
    assert helping(rows)[0] == "--gpu-memory-utilization"
    length = rows["--max-model-len", "decrease"]
    assert length["value"] == fit.largest(ARCH, L4, settings, "0.19.0")["max_model_len"]
    assert length["costs"] == "context"


def test_the_utilization_rises_only_as_far_as_the_rest_has_room():
    settings = {"max_model_len": 131072}
    up = menu(ARCH, L4, settings, "0.19.0")["--gpu-memory-utilization", "increase"]
    highest, beyond = (
        budget(ARCH, L4, {**settings, "gpu_memory_utilization": round(up["value"] + step, 2)}, "0.19.0")[
            "outside"
        ]
        for step in (0, 0.01)
    )

    assert not up["helps"]
    assert highest["margin"] >= max(GIB // 2, highest["error_bytes"])
    assert beyond["margin"] < max(GIB // 2, beyond["error_bytes"])


def test_more_ranks_need_room_for_nccl_beside_the_budget():
    gpu = card(11.6, nvlink=True)
    ranks = menu(ARCH, gpu, {"max_model_len": 8192}, "0.20.2")["--tensor-parallel-size", "increase"]

    assert ranks["after"]["fits"] is True
    assert ranks["after"]["outside"] < 0
    assert not ranks["helps"]
    assert "missing beside the budget" in ranks["why"]


def test_a_lower_utilization_is_rejected_with_what_it_would_take():
    down = menu(ARCH, L4, {"max_model_len": 35000}, "0.19.0")["--gpu-memory-utilization", "decrease"]
    lower = budget(ARCH, L4, {"max_model_len": 35000, "gpu_memory_utilization": 0.85}, "0.19.0")

    assert (down["helps"], down["value"]) == (False, 0.85)
    assert f"-> {lower['available_kv'] / GIB:.2f} GiB" in down["why"]
    assert lower["problems"][0] in down["why"]


def test_costs_come_in_order_and_what_does_not_help_last():
    rows = fit.changes(ARCH, L4, {"max_model_len": 35000}, "0.19.0")
    costs = [
        fit.COSTS.index(row["costs"]) for row in rows if row["helps"] and row["name"] != "--cpu-offload-gb"
    ]

    assert costs == sorted(costs)
    assert [row["helps"] for row in rows] == sorted((row["helps"] for row in rows), reverse=True)


@pytest.mark.parametrize(("gib", "first"), [(18.0, "--cpu-offload-gb"), (11.6, "--tensor-parallel-size")])
def test_much_of_the_weights_on_the_host_comes_after_more_gpus(gib, first):
    rows = fit.changes(
        ARCH, card(gib, compute_capability=(8, 6), nvlink=False), {"max_model_len": 8192}, "0.19.0"
    )
    dear = [
        row for row in rows if row["helps"] and row["name"] in ("--cpu-offload-gb", "--tensor-parallel-size")
    ]
    offload = next(row["value"] for row in dear if row["name"] == "--cpu-offload-gb")
    assert dear[0]["name"] == first
    # Of 15 GiB of weights.
    assert (offload <= 1) == (first == "--cpu-offload-gb")


def test_every_change_is_one_that_vllm_or_the_collection_knows():
    starts = (
        (ARCH, L4, {"max_model_len": 131072, "enable_lora": True, "max_loras": 4, "speculative_tokens": 2}),
        (TOWERS, L4, {"max_model_len": 131072, "num_gpu_blocks_override": 100}),
        (STATES, L4, {"max_model_len": 131072, "kv_cache_memory_bytes": GIB, "enable_prefix_caching": True}),
        (LATENT, card(16), {"max_model_len": 131072, "tensor_parallel_size": 8}),
    )
    known = {option.name.replace("_", "-") for option in flags.OPTIONS}
    for arch, gpu, settings in starts:
        for row in fit.changes(arch, gpu, settings, "0.20.2"):
            name = row["name"].replace("--no-", "--")
            assert name in ACTIONS if row["target"] == "action" else name[2:] in known, row["name"]


def test_weights_that_are_too_large():
    gpu = card(11.6, compute_capability=(8, 6), nvlink=False)
    rows = menu(ARCH, gpu, {"max_model_len": 8192}, "0.19.0")

    assert helping(rows)[0] == "smaller_quantization"
    assert not rows["--quantization", "set"]["helps"]
    assert "loaded in 16 bits first" in rows["--quantization", "set"]["why"]
    up = rows["--gpu-memory-utilization", "increase"]
    assert not up["helps"]
    assert "no room" in up["why"]
    ranks = rows["--tensor-parallel-size", "increase"]
    assert (ranks["helps"], ranks["value"], ranks["costs"]) == (True, 2, "hardware")
    assert ranks["with"] == ["resources.limits.nvidia.com/gpu"]
    offload = rows["--cpu-offload-gb", "set"]["value"]
    less = {"max_model_len": 8192, "cpu_offload_gb": offload - 1}
    assert not budget(ARCH, gpu, less, "0.19.0")["fits"]


def test_eight_bits_need_a_gpu_that_has_them():
    start = {"max_model_len": 131072}
    old = menu(ARCH, card(20, compute_capability=(7, 0)), start, "0.19.0")
    ampere = menu(ARCH, card(20, compute_capability=(8, 6)), start, "0.19.0")
    newer = menu(ARCH, card(20, compute_capability=(8, 6)), start, "0.21.0")
    ada = menu(ARCH, card(20), start, "0.19.0")
    unknown = menu(ARCH, card(20, compute_capability=None), start, "0.19.0")

    assert "compute capability 8.0, this GPU has 7.0" in old["--kv-cache-dtype", "set"]["why"]
    assert old["--quantization", "set"]["settings"] == {}
    assert ampere["--kv-cache-dtype", "set"]["value"] == "fp8_e5m2"
    assert newer["--kv-cache-dtype", "set"]["value"] == ada["--kv-cache-dtype", "set"]["value"] == "fp8"
    assert "isn't known" in unknown["--kv-cache-dtype", "set"]["why"]


def test_a_kv_cache_of_eight_bits_isnt_offered_twice():
    rows = menu(ARCH, L4, {"max_model_len": 131072, "kv_cache_dtype": "fp8"}, "0.19.0")

    assert ("--kv-cache-dtype", "set") not in rows


def test_where_no_single_change_is_enough_the_cheapest_two_are():
    gpu = card(15.5, compute_capability=(7, 0))
    settings = {"max_model_len": 131072, "max_num_batched_tokens": 2048}
    rows = fit.changes(ARCH, gpu, settings, "0.10.2")

    first, second = rows[:2]
    assert (first["helps"], second["helps"]) == (True, True)
    assert first["with"] == [second["name"]]
    assert second["with"] == [first["name"]]
    assert first["settings"] == second["settings"]
    assert budget(ARCH, gpu, {**settings, **first["settings"]}, "0.10.2")["fits"]
    assert len(first["settings"]) == 2
    for option, value in first["settings"].items():
        assert not budget(ARCH, gpu, {**settings, option: value}, "0.10.2")["fits"]


def test_of_two_pairs_the_cheaper_is_taken():
    gpu, settings = card(17.4), {"max_model_len": 131072}
    rows = fit.changes(ARCH, gpu, settings, "0.20.2")
    # This would do as well, at a higher price; so would 4 bits and a shorter context.
    fewer = {"max_num_seqs": 8, "max_model_len": 1000}

    assert budget(ARCH, gpu, fewer, "0.20.2")["fits"]
    assert budget(ARCH, gpu, {"quantization": "awq", "max_model_len": 1000}, "0.20.2")["fits"]
    assert [row["name"] for row in rows[:2]] == ["--gpu-memory-utilization", "--max-model-len"]
    assert rows[0]["settings"] == rows[1]["settings"]


def test_a_pair_takes_no_more_tokens_than_it_must():
    settings = {"max_num_batched_tokens": 131072}
    rows = fit.changes(ARCH, L4, settings, "0.11.0")
    tokens, length = rows[:2]
    assert [row["name"] for row in (tokens, length)] == ["--max-num-batched-tokens", "--max-model-len"]
    assert tokens["value"] == 2048
    # So few would win next to nothing.
    least = dict(settings, max_num_batched_tokens=256, max_model_len=length["value"] + 512)
    assert not budget(ARCH, L4, least, "0.11.0")["fits"]


def test_a_pair_takes_fewer_tokens_than_usual_where_nothing_else_does():
    few = {"max_num_batched_tokens": 131072, "max_model_len": 1}
    gib = next(
        size / 100
        for size in range(1500, 2300)
        if budget(ARCH, card(size / 100), dict(few, max_num_batched_tokens=1024), "0.11.0")["fits"]
    )
    rows = fit.changes(ARCH, card(gib), {"max_num_batched_tokens": 131072}, "0.11.0")
    pair = {row["name"]: row["value"] for row in rows[:2] if row["helps"]}
    assert not budget(ARCH, card(gib), dict(few, max_num_batched_tokens=2048), "0.11.0")["fits"]
    assert pair.get("--max-num-batched-tokens", 2048) < 2048


def test_a_fixed_kv_cache_is_what_must_shrink():
    settings = {"max_model_len": 8192, "kv_cache_memory_bytes": 9 * GIB}
    rows = menu(ARCH, L4, settings, "0.19.0")

    smaller = rows["--kv-cache-memory-bytes", "decrease"]
    assert smaller["helps"]
    assert smaller["value"] % MIB == 0
    assert smaller["after"]["outside"] >= 0
    more = {**settings, "kv_cache_memory_bytes": smaller["value"] + MIB}
    assert budget(ARCH, L4, more, "0.19.0")["outside"]["margin"] < 0
    assert not rows["--gpu-memory-utilization", "decrease"]["helps"]
    assert "fixes the KV cache's size" in rows["--gpu-memory-utilization", "decrease"]["why"]
    assert rows["--kv-cache-memory-bytes", "remove"]["settings"] == {"kv_cache_memory_bytes": None}


def test_a_fixed_kv_cache_may_also_be_too_small():
    settings = {"max_model_len": 8192, "kv_cache_memory_bytes": GIB // 2}
    rows = menu(ARCH, L4, settings, "0.19.0")

    larger = rows["--kv-cache-memory-bytes", "increase"]
    assert (larger["helps"], larger["value"]) == (True, GIB)
    assert rows["--kv-cache-memory-bytes", "remove"]["costs"] == "nothing"


def test_blocks_that_the_card_cannot_hold():
    settings = {"max_model_len": 8192, "num_gpu_blocks_override": 8000}
    fewer = menu(ARCH, L4, settings, "0.19.0")["--num-gpu-blocks-override", "decrease"]

    assert fewer["helps"]
    more = {**settings, "num_gpu_blocks_override": fewer["value"] + 1}
    assert budget(ARCH, L4, more, "0.19.0")["outside"]["margin"] < 0


def test_mamba_blocks_limit_the_sequences():
    settings = {"max_model_len": 8192, "max_num_seqs": 1024}
    gpu = card(24)
    rows = menu(STATES, gpu, settings, "0.20.2")

    assert "Mamba cache blocks" in budget(STATES, gpu, settings, "0.20.2")["problems"][0]
    fewer = rows["--max-num-seqs", "decrease"]
    assert fewer["helps"]
    assert not budget(STATES, gpu, {**settings, "max_num_seqs": fewer["value"] + 8}, "0.20.2")["fits"]


def test_latent_caches_that_lie_on_every_rank_can_be_shared_out():
    gpu, settings = card(8), {"max_model_len": 131072, "tensor_parallel_size": 8}
    shared = menu(LATENT, gpu, settings, "0.19.0")["--decode-context-parallel-size", "increase"]

    assert shared["helps"]
    assert 8 % shared["value"] == 0
    assert ("--decode-context-parallel-size", "increase") not in menu(LATENT, gpu, settings, "0.10.1")
    # Each of two ranks has KV heads of its own.
    grouped = menu(ARCH, card(12), {"max_model_len": 131072, "tensor_parallel_size": 2}, "0.19.0")
    assert ("--decode-context-parallel-size", "increase") not in grouped


def test_towers_can_be_left_out():
    rows = menu(TOWERS, card(18.5), {"max_model_len": 4096, "max_num_seqs": 8}, "0.19.0")

    assert rows["--language-model-only", "add"]["value"] is None
    assert rows["--language-model-only", "add"]["costs"] == "features"
    assert rows["--limit-mm-per-prompt", "set"]["value"] == {"image": 0, "video": 0}
    less, only = (
        rows[name]["after"]["available_kv"]
        for name in (("--limit-mm-per-prompt", "set"), ("--language-model-only", "add"))
    )
    assert (
        budget(TOWERS, card(18.5), {"max_model_len": 4096, "max_num_seqs": 8}, "0.19.0")["available_kv"]
        < less
        < only
    )
    assert ("--language-model-only", "add") not in menu(
        TOWERS, card(18.5), {"max_model_len": 131072}, "0.16.0"
    )


def test_shorter_steps_without_chunks_need_chunks():
    settings = {"max_model_len": 16384, "enable_chunked_prefill": False}
    row = menu(ARCH, card(17), settings, "0.19.0")["--max-num-batched-tokens", "decrease"]

    assert row["with"] == ["--enable-chunked-prefill"]
    assert row["settings"]["enable_chunked_prefill"] is True


def test_a_window_manager_that_was_switched_off_costs_nothing():
    windows = architecture(
        {**LLAMA, "model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 6}
    )
    settings = {"max_model_len": 65536, "disable_hybrid_kv_cache_manager": True, "max_num_seqs": 64}
    row = menu(windows, L4, settings, "0.19.0")["--disable-hybrid-kv-cache-manager", "remove"]

    assert (row["helps"], row["costs"]) == (True, "nothing")


def test_a_start_that_fits_or_that_nobody_can_judge_needs_no_change():
    assert fit.changes(ARCH, H100, {"max_model_len": 8192}, "0.19.0") == []
    assert fit.changes(ARCH, {}, {"max_model_len": 8192}, "0.19.0") == []
    assert fit.changes(ARCH, {}, {"max_model_len": 8192}, "0.19.0", goal="outside", needed=GIB) == []
    assert fit.changes(ARCH, H100, {"max_model_len": 8192}, "0.19.0", goal="free_check") == []


def test_a_goal_that_does_not_exist():
    with pytest.raises(ValueError, match="start, outside, free_check"):
        fit.changes(ARCH, L4, {}, "0.19.0", goal="speed")


# --- memory outside the budget ---


def test_room_outside_the_budget_comes_from_a_lower_utilization():
    settings = {"max_model_len": 8192, "gpu_memory_utilization": 0.97}
    before = budget(ARCH, L4, settings, "0.12.0")["outside"]
    rows = menu(ARCH, L4, settings, "0.12.0", goal="outside", needed=GIB)

    down = rows["--gpu-memory-utilization", "decrease"]
    assert (down["helps"], down["costs"]) == (True, "concurrency")
    # 1 GiB of 22.06 are 4.54 hundredths.
    assert down["value"] == 0.92
    assert down["after"]["outside"] - before["margin"] >= GIB
    assert not rows["--gpu-memory-utilization", "increase"]["helps"]
    length = rows["--max-model-len", "decrease"]
    assert (length["helps"], length["value"], length["after"]["outside"]) == (False, 4096, before["margin"])
    assert "takes what the budget leaves" in length["why"]


def test_graphs_that_no_budget_counts_are_given_up_for_speed():
    settings = {"max_model_len": 8192, "gpu_memory_utilization": 0.97}
    rows = menu(ARCH, L4, settings, "0.12.0", goal="outside", needed=GIB // 2)

    assert rows["--enforce-eager", "add"]["helps"]
    assert rows["--enforce-eager", "add"]["costs"] == "speed"
    # From 0.20 on they are in the budget: without them the KV cache grows, not the room beside it.
    later = menu(ARCH, L4, settings, "0.20.2", goal="outside", needed=GIB // 2)
    assert not later["--enforce-eager", "add"]["helps"]


def test_a_fixed_kv_cache_gives_the_room():
    settings = {"max_model_len": 8192, "gpu_memory_utilization": 0.8, "kv_cache_memory_bytes": 5 * GIB}
    rows = menu(ARCH, L4, settings, "0.12.0", goal="outside", needed=GIB)

    assert rows["--kv-cache-memory-bytes", "decrease"]["value"] == 4 * GIB
    assert not rows["--gpu-memory-utilization", "decrease"]["helps"]


def test_without_a_figure_what_the_budget_lacks_is_needed():
    settings = {"max_model_len": 8192, "gpu_memory_utilization": 0.97}
    rows = menu(ARCH, L4, settings, "0.12.0", goal="outside")

    assert budget(ARCH, L4, settings, "0.12.0")["outside"]["margin"] < 0
    down = rows["--gpu-memory-utilization", "decrease"]
    assert 0 <= down["after"]["outside"] < 0.01 * L4["total_bytes"]


# --- the check of free memory ---


def test_no_more_is_asked_for_than_is_free():
    busy = {**H100, "free_bytes": 60 * GIB}
    rows = menu(ARCH, busy, {"max_model_len": 8192}, "0.19.0", goal="free_check")

    # 60 / 79.19 = 0.757
    assert rows["--gpu-memory-utilization", "decrease"]["value"] == 0.75
    assert helping(rows) == ["--gpu-memory-utilization"]


@pytest.mark.parametrize("goal", ["free_check", "start"])
def test_what_is_free_may_be_too_little_for_the_length(goal):
    busy = {**H100, "free_bytes": 23 * GIB}
    rows = fit.changes(ARCH, busy, {"max_model_len": 131072}, "0.19.0", goal=goal)

    assert [row["name"] for row in rows if row["helps"]] == ["--gpu-memory-utilization", "--max-model-len"]
    assert rows[0]["value"] == 0.29
    both = {"max_model_len": 131072, **rows[0]["settings"]}
    assert budget(ARCH, busy, both, "0.19.0")["fits"]
    longer = {**both, "max_model_len": both["max_model_len"] + 1}
    assert not budget(ARCH, busy, longer, "0.19.0")["fits"]


# --- numbers of the log ---


def test_measured_numbers_follow_the_change():
    # Half a GiB more than the model says, of everything that doesn't depend on what is changed.
    settings = {"max_model_len": 40000}
    modelled = budget(ARCH, L4, settings, "0.19.0")
    measured = {"weights": modelled["segments"][0]["bytes"] + GIB // 2}
    rows = menu(ARCH, L4, settings, "0.19.0", measured)

    eager = rows["--enforce-eager", "add"]["after"]["available_kv"]
    assert eager == budget(ARCH, L4, {**settings, "enforce_eager": True}, "0.19.0", measured)["available_kv"]
    # Of the weights each of two ranks has its share of what was measured.
    ranks = rows["--tensor-parallel-size", "increase"]
    halved = budget(ARCH, L4, {**settings, "tensor_parallel_size": ranks["value"]}, "0.19.0")
    own = halved["segments"][0]["bytes"]
    share = int(measured["weights"] * own / modelled["segments"][0]["bytes"])
    assert halved["available_kv"] - ranks["after"]["available_kv"] == pytest.approx(share - own, abs=GIB // 4)


def test_a_measured_kv_cache_moves_with_what_is_requested():
    settings = {"max_model_len": 35000, "gpu_memory_utilization": 0.8}
    measured = {"kv_available": 2 * GIB}
    up = menu(ARCH, L4, settings, "0.19.0", measured)["--gpu-memory-utilization", "increase"]
    asked = [
        budget(ARCH, L4, {**settings, "gpu_memory_utilization": value}, "0.19.0")["capacity"]["requested"]
        for value in (0.8, up["value"])
    ]

    assert up["after"]["available_kv"] == 2 * GIB + asked[1] - asked[0]


def test_a_measured_kv_cache_gets_what_the_rest_gives_up():
    settings = {"max_model_len": 35000}
    measured = {"kv_available": 2 * GIB, "graph_estimated": GIB}
    eager = menu(ARCH, L4, settings, "0.20.2", measured)["--enforce-eager", "add"]

    assert eager["after"]["available_kv"] == 3 * GIB


# --- other hardware ---


def test_the_least_memory_that_holds_a_model_of_70_billion():
    large = architecture(
        {
            **LLAMA,
            "num_hidden_layers": 80,
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "intermediate_size": 28672,
        }
    )
    rows = fit.hardware(large, {"max_model_len": 32768}, "0.19.0")

    # Each card beyond the first counts as 15 % more.
    totals = [row["total_gib"] * (1 + 0.15 * (row["tensor_parallel_size"] - 1)) for row in rows]
    assert totals == sorted(totals)
    # 131.4 GiB of weights and a KV cache of 10 GiB.
    assert totals[0] * 0.9 > 141
    assert len({round(row["total_gib"] / row["count"]) for row in rows}) == len(rows) == 5
    for row in rows:
        product = gpus.gpu(row["gpu"])
        assert product["compute_capability"] >= (8, 0)
        assert not product["unified"]
        settings = {"max_model_len": 32768, "tensor_parallel_size": row["tensor_parallel_size"]}
        assert budget(large, fit.gpu_of(product), settings, "0.19.0")["fits"]


def test_ranks_that_the_heads_do_not_allow_arent_named():
    odd = architecture(
        {**LLAMA, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584, "head_dim": 128}
    )
    rows = fit.hardware(odd, {"max_model_len": 8192}, "0.19.0", counts=(8, 3, 7), most=50)

    assert {row["tensor_parallel_size"] for row in rows} == {7}


def test_old_gpus_hold_what_is_float16_only():
    small = {**LLAMA, "num_hidden_layers": 16}
    half, other = architecture({**small, "torch_dtype": "float16"}), architecture(small)
    wanted = [gpus.gpu("Tesla T4")]

    assert fit.hardware(half, {"max_model_len": 2048}, "0.19.0", gpus=wanted)[0]["gpu"] == "T4"
    assert fit.hardware(other, {"max_model_len": 2048}, "0.19.0", gpus=wanted) == []
    assert fit.hardware(other, {"max_model_len": 2048, "dtype": "half"}, "0.19.0", gpus=wanted)


def test_gpus_that_share_their_memory_are_named_when_asked_for():
    settings = {"max_model_len": 131072, "max_num_seqs": 16}

    assert all(not gpus.gpu(row["gpu"])["unified"] for row in fit.hardware(ARCH, settings, "0.19.0", most=50))
    rows = fit.hardware(ARCH, settings, "0.19.0", unified=True, most=50)
    assert any(gpus.gpu(name)["unified"] for row in rows for name in (row["gpu"], *row["same_size"]))


def test_measured_weights_count_on_other_hardware():
    settings = {"max_model_len": 8192}
    heavier = {"weights": 30 * GIB, "kv_available": GIB}
    plain = fit.hardware(ARCH, settings, "0.19.0", counts=(1,))
    rows = fit.hardware(ARCH, settings, "0.19.0", heavier, counts=(1,))

    assert rows[0]["total_gib"] > plain[0]["total_gib"]
    assert rows[0]["total_gib"] * 0.9 > 31


def test_a_kv_cache_measured_here_tells_of_the_one_there():
    settings, wanted = {"max_model_len": 8192}, [gpus.gpu("L40S")]
    here, there = (budget(ARCH, gpu, settings, "0.19.0") for gpu in (L4, fit.gpu_of(wanted[0])))
    # The log had a GiB less than the model says.
    measured = {"kv_available": here["available_kv"] - GIB}
    (row,) = fit.hardware(ARCH, settings, "0.19.0", measured, gpu=L4, gpus=wanted, counts=(1,))

    assert row["available_kv"] == there["available_kv"] - GIB
