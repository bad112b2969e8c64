# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Laws of sizing that hold for every model and setting: shared configs and generated ones, drawn settings."""

from __future__ import annotations

import json

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sizing_samples import CONFIGS, LLAMA

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import fit
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.budget import budget
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.weights import parallel_error, weights

CONFIG_FILES = sorted(CONFIGS.glob("*.json"))
SHARED = [architecture(json.loads(path.read_text())) for path in CONFIG_FILES]
VERSIONS = (
    "0.6.2",
    "0.7.3",
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.12.0",
    "0.19.0",
    "0.20.2",
    "0.26.0",
    "0.33.0",
    None,
)
SIZES = (15, 24, 40, 48, 80, 141, 192)


@st.composite
def generated(draw):
    """A decoder of the usual kinds: grouped, latent, windowed, with experts, with states."""
    heads = draw(st.sampled_from((8, 16, 28, 32, 40, 64)))
    config = {
        **LLAMA,
        "num_hidden_layers": draw(st.integers(2, 96)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([size for size in (1, 2, 4, 8) if heads % size == 0])),
        "head_dim": draw(st.sampled_from((64, 128, 256))),
        "hidden_size": 128 * draw(st.integers(4, 80)),
        "intermediate_size": 128 * draw(st.integers(4, 300)),
        "vocab_size": draw(st.integers(1000, 300_000)),
        "max_position_embeddings": draw(st.sampled_from((2048, 8192, 32768, 40960, 131072, 1_048_576))),
        "tie_word_embeddings": draw(st.booleans()),
    }
    kind = draw(st.sampled_from(("dense", "latent", "windows", "experts", "states")))
    if kind == "latent":
        latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
        config.update(latent, model_type="deepseek_v3", q_lora_rank=1536)
    elif kind == "windows":
        config.update(model_type="gemma3_text", sliding_window=1024, sliding_window_pattern=6)
    elif kind == "experts":
        config.update(
            model_type="qwen3_moe", num_experts=64, num_experts_per_tok=8, moe_intermediate_size=768
        )
    elif kind == "states":
        sizes = {"linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_conv_kernel_dim": 4}
        widths = {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "full_attention_interval": 4}
        config.update(sizes, **widths, model_type="qwen3_next")
    return architecture(config)


ARCHS = st.one_of(generated(), st.sampled_from(SHARED)) if SHARED else generated()


@st.composite
def starts(draw):
    """(arch, gpu, settings, version) of a start; not each of them fits."""
    arch, version = draw(ARCHS), draw(st.sampled_from(VERSIONS))
    total = int((draw(st.sampled_from(SIZES)) - draw(st.floats(0, 1))) * GIB)
    gpu = {"total_bytes": total, "compute_capability": draw(st.sampled_from((7.5, 8.6, (9, 0), None)))}
    if draw(st.booleans()):
        gpu["free_bytes"] = int(total * draw(st.floats(0.5, 1)))
    sizes = [size for size in (1, 2, 4, 8) if parallel_error(arch, size) is None]
    longest = arch["max_position_embeddings"] or 8192
    chosen = {
        "tensor_parallel_size": draw(st.sampled_from(sizes)),
        "pipeline_parallel_size": draw(st.sampled_from((1, 1, 2))),
        "max_model_len": draw(st.sampled_from((longest, max(1, longest // 3), 1000))),
        "gpu_memory_utilization": draw(st.sampled_from((None, 0.3, 0.85, 0.95, 1.0))),
        "max_num_seqs": draw(st.sampled_from((None, 1, 16, 256))),
        "max_num_batched_tokens": draw(st.sampled_from((None, 512, 2048, 16384))),
        "kv_cache_dtype": draw(st.sampled_from((None, "fp8"))),
        "enforce_eager": draw(st.booleans()),
        "kv_cache_memory_bytes": draw(st.sampled_from((None, None, None, 2 * GIB, 60 * GIB))),
        "num_gpu_blocks_override": draw(st.sampled_from((None, None, None, 500))),
        "cpu_offload_gb": draw(st.sampled_from((None, None, 4))),
        "enable_chunked_prefill": draw(st.sampled_from((None, None, True, False))),
    }
    return arch, gpu, {name: value for name, value in chosen.items() if value is not None}, version


def fits(start, changed=()):
    arch, gpu, chosen, version = start
    return budget(arch, gpu, {**chosen, **dict(changed)}, version)["fits"] is True


@given(arch=ARCHS, ep=st.booleans(), version=st.sampled_from(VERSIONS))
def test_more_ranks_never_raise_the_weights_of_one(arch, ep, version):
    sizes = [size for size in (1, 2, 4, 8, 16) if parallel_error(arch, size) is None]
    each = [weights(arch, tp=size, expert_parallel=ep, version=version)["bytes"] for size in sizes]

    assert each == sorted(each, reverse=True)


@given(start=starts())
def test_the_budget_closes_to_the_byte(start):
    arch, gpu, chosen, version = start
    result = budget(arch, gpu, chosen, version)
    kv = next(part for part in result["segments"] if part["name"] == "kv_available")
    counts_others = version in ("0.8.5",)
    assume(kv["proof"] == "modelled" and not (counts_others and "free_bytes" in gpu))

    assert (
        sum(part["bytes"] for part in result["segments"] if part["in_budget"])
        == result["capacity"]["requested"]
    )
    # Of several stages each counts in its own layers' bytes.
    least = min(stage["kv_available"] for stage in result["ranks"]["stages"])
    assert result["available_kv"] == least or chosen.get("pipeline_parallel_size", 1) > 1
    assert result["available_kv"] >= least


@given(start=starts(), low=st.floats(0.05, 1), high=st.floats(0.05, 1))
def test_more_utilization_never_gives_less(start, low, high):
    arch, gpu, chosen, version = start
    low, high = sorted((low, high))
    less, more = (
        budget(arch, gpu, {**chosen, "gpu_memory_utilization": value}, version) for value in (low, high)
    )

    assert less["available_kv"] <= more["available_kv"]
    assert (less["kv"]["num_blocks"], less["kv"]["estimated_max_len"]) <= (
        more["kv"]["num_blocks"],
        more["kv"]["estimated_max_len"],
    )
    if less["outside"] and less["available_kv"] > 0:
        assert less["outside"]["margin"] >= more["outside"]["margin"]


@given(start=starts(), lengths=st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)))
def test_a_longer_context_never_needs_less(start, lengths):
    arch, gpu, chosen, version = start
    # V0 prefills in chunks from 32k on, unless told: then a longer context takes smaller steps.
    chosen = {"max_num_batched_tokens": 2048, **chosen}
    short, long = (
        budget(arch, gpu, {**chosen, "max_model_len": length}, version) for length in sorted(lengths)
    )

    assert short["kv"]["need_bytes"] <= long["kv"]["need_bytes"]
    assert short["available_kv"] >= long["available_kv"]
    assert short["fits"] or not long["fits"]


@given(start=starts())
def test_the_largest_that_fits_is_the_largest(start):
    arch, _gpu, chosen, _version = start
    found = fit.largest(*start)
    own = max(arch["max_position_embeddings"] or 0, chosen["max_model_len"])
    now = budget(*start)
    tokens = now["settings"]["max_num_batched_tokens"]

    length = found["max_model_len"]
    assert length is not None or not fits(start, {"max_model_len": 1})
    if length is not None:
        assert fits(start, {"max_model_len": length})
        assert length == own or not fits(start, {"max_model_len": length + 1})
        assert not (length < chosen["max_model_len"] and fits(start))
    seqs = found["max_num_seqs"]
    assert seqs is not None or not fits(start, {"max_num_seqs": 1})
    if seqs is not None:
        assert fits(start, {"max_num_seqs": seqs})
        assert seqs == tokens or not fits(start, {"max_num_seqs": seqs + 1})
    assert found["max_concurrency"] == (now["kv"]["max_concurrency"] if now["fits"] else None)


@given(start=starts())
def test_one_block_more_does_not_fit(start):
    arch, gpu, chosen, version = start
    assume("num_gpu_blocks_override" not in chosen)
    result = budget(arch, gpu, chosen, version)
    report = result["kv"]
    assume(report["bytes_per_block"])

    assert report["num_blocks"] * report["bytes_per_block"] <= max(0, result["available_kv"])
    assert (report["num_blocks"] + 1) * report["bytes_per_block"] > result["available_kv"]


@given(start=starts(), share=st.floats(0, 1.2))
def test_the_estimated_length_is_the_longest_the_memory_holds(start, share):
    arch, gpu, chosen, version = start
    fixed = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
    chosen = {name: value for name, value in chosen.items() if name not in fixed}
    whole = budget(arch, gpu, chosen, version)
    # What a step takes stays as it is, so that only the KV cache decides.
    chosen["max_num_batched_tokens"] = whole["settings"]["max_num_batched_tokens"]
    chosen["enable_chunked_prefill"] = True
    there = {"kv_available": int(whole["kv"]["need_bytes"] * share) + 1}

    def holds(length):
        return budget(arch, gpu, {**chosen, "max_model_len": length}, version, there)["kv"]["fits"]

    estimate = budget(arch, gpu, chosen, version, there)["kv"]["estimated_max_len"]
    assert holds(estimate) if estimate else not holds(1)
    assert estimate == chosen["max_model_len"] or not holds(estimate + 1)


def check_changes(start, rows, before, goal, needed):
    arch, gpu, chosen, version = start
    for row in rows:
        after = budget(arch, gpu, {**chosen, **row["settings"]}, version)
        assert row["costs"] in fit.COSTS
        assert row["after"]["fits"] == after["fits"]
        assert row["after"]["available_kv"] == after["available_kv"]
        if goal == "start":
            assert after["fits"] is True or not row["helps"]
        elif goal == "free_check":
            assert after["capacity"]["requested"] <= after["capacity"]["free"] or not row["helps"]
        elif row["helps"]:
            assert after["fits"] is not False
            assert after["outside"]["margin"] >= before["outside"]["margin"] + needed


@given(start=starts(), goal=st.sampled_from(fit.GOALS), needed=st.integers(1, 4 * GIB))
@settings(max_examples=60)
def test_every_change_that_helps_does(start, goal, needed):
    before = budget(*start)
    rows = fit.changes(*start, goal=goal, needed=needed)

    check_changes(start, rows, before, goal, needed)
    helping = [row["helps"] for row in rows]
    assert helping == sorted(helping, reverse=True)
    if goal == "start":
        assert bool(rows) == (before["fits"] is False)
    # Of a pair each is named by the other.
    pairs = [
        row for row in rows if any(name.startswith("--") for name in row["with"]) and len(row["settings"]) > 1
    ]
    names = {row["name"] for row in rows}
    assert all(
        name in names or not name.startswith("--") or name == "--enable-chunked-prefill"
        for row in pairs
        for name in row["with"]
    )


@given(start=starts())
@settings(max_examples=30)
def test_no_change_is_stronger_than_it_must_be(start):
    """The value next to the one proposed, on the milder side, doesn't reach the goal."""
    arch, gpu, chosen, version = start
    rows = {row["name"]: row for row in fit.changes(*start) if row["helps"] and len(row["settings"]) == 1}
    steps = {"--max-model-len": 1, "--gpu-memory-utilization": -0.01, "--tensor-parallel-size": None}
    for name in rows.keys() & steps.keys():
        (option, value), step = next(iter(rows[name]["settings"].items())), steps[name]
        if rows[name]["direction"] == "decrease" and name == "--gpu-memory-utilization":
            step = 0.01
        milder = value // 2 if step is None else round(value + step, 2)
        changed = {option: milder}
        if milder == chosen.get(option) or (name == "--tensor-parallel-size" and milder <= chosen[option]):
            continue
        after = budget(arch, gpu, {**chosen, **changed}, version)
        assert after["fits"] is not True or (after["outside"] or {"margin": -1})["margin"] < 0


@given(arch=ARCHS, version=st.sampled_from(VERSIONS), length=st.sampled_from((1000, 8192)))
@settings(max_examples=20)
@example(arch=architecture(LLAMA), version="0.19.0", length=8192)
def test_hardware_that_is_named_holds_it(arch, version, length):
    chosen = {"max_model_len": length, "max_num_seqs": 64}
    rows = fit.hardware(arch, chosen, version)

    # Each card beyond the first counts as 15 % more.
    totals = [row["total_gib"] * (1 + 0.15 * (row["tensor_parallel_size"] - 1)) for row in rows]
    assert totals == sorted(totals)
    assert len(rows) <= 5
    for row in rows:
        assert row["fits"] is True
        assert parallel_error(arch, row["tensor_parallel_size"]) is None
        assert row["estimated_max_len"] == length
