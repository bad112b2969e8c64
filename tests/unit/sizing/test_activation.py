# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile's peak, memory outside torch and CUDA graphs: against what logs printed, and by mechanism."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sizing_samples import LLAMA, load, shared

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.activation import (
    Load,
    activation_peak,
    capture_sizes,
    graph_memory,
    non_torch,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import architecture

NEW = {"tokens": 8192, "seqs": 1024, "version": "0.19.0"}


def peak(arch, last=True, **facts):
    return activation_peak(arch, Load(**{**NEW, **facts}), last)


# What vLLM printed as activation peak (shared/cases/sizing_dev.jsonl): config, load, GiB.
REPORTED = [
    ("meta-llama/Llama-3.1-8B-Instruct", {}, 1.89),
    ("meta-llama/Llama-3.1-8B-Instruct", {"dtype": "float32"}, 2.21),
    ("Qwen/Qwen2.5-7B-Instruct", {"tp": 4}, 2.21),
    ("Qwen/Qwen3-14B", {"version": "0.15.0"}, 5.64),
    ("Qwen/Qwen3-14B", {"version": "0.18.0"}, 2.23),
    ("codellama/CodeLlama-7b-hf", {}, 0.77),
    ("google/gemma-2-27b-it", {}, 3.66),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", {}, 1.93),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"tp": 2}, 1.21),
    ("Qwen/Qwen1.5-MoE-A2.7B", {}, 2.47),
    ("openai/gpt-oss-20b", {"tp": 2, "quantization": "mxfp4"}, 2.87),
    ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", {"tp": 2, "version": "0.11.0"}, 4.84),
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        {"tokens": 32768, "seqs": 256, "version": "0.7.2", "generation": "V0"},
        2.02,
    ),
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        {"tokens": 4096, "seqs": 256, "version": "0.7.2", "generation": "V0"},
        1.40,
    ),
]


@shared
@pytest.mark.parametrize(("config", "facts", "want"), REPORTED)
def test_peaks_that_logs_printed(config, facts, want):
    estimate = peak(load(config), **facts)

    assert estimate.bytes / GIB == pytest.approx(want, abs=0.08)
    assert abs(estimate.bytes - want * GIB) <= estimate.error_bytes


def test_only_the_last_stage_of_a_pipeline_samples():
    arch = architecture(LLAMA)

    assert peak(arch, last=False, pp=2).bytes / GIB == pytest.approx(1.10, abs=0.02)
    assert peak(arch, last=True, pp=2).bytes / GIB == pytest.approx(2.01, abs=0.02)


def test_sampling_takes_the_whole_vocabulary_whatever_the_tensor_parallelism():
    arch = architecture(LLAMA)

    assert peak(arch).bytes == peak(arch, tp=8).bytes
    assert peak(arch).formula.startswith("sampling")


def test_few_sequences_leave_the_mlp_as_the_peak_and_it_is_split():
    arch = architecture(LLAMA)

    assert peak(arch, seqs=8).formula.startswith("MLP")
    assert peak(arch, seqs=8, tp=2).bytes < peak(arch, seqs=8).bytes


@pytest.mark.parametrize("name", ["tokens", "seqs"])
def test_more_work_never_takes_less(name):
    arch = architecture(LLAMA)
    sizes = [peak(arch, **{name: value}).bytes for value in (16, 256, 1024, 8192, 65536)]

    assert all(low <= high for low, high in pairwise(sizes))


def test_a_sparse_index_keeps_room_for_whole_contexts():
    arch = architecture(LLAMA)
    arch["layers"] = [
        dict(run, attention=dict(run["attention"], indexer={"heads": 64, "head_size": 128}))
        for run in arch["layers"]
    ]

    assert peak(arch, max_model_len=163840).bytes - peak(arch).bytes == 5 * 163840 * 576 * 2


def test_an_encoder_of_dynamic_resolution_is_profiled_with_its_largest_image_unless_it_is_off():
    tower = {"kind": "vision", "hidden_size": 1152, "intermediate_size": 4304, "split": True}
    arch = dict(architecture(LLAMA), outer_type="qwen3_5", encoders=[tower])

    seen = peak(arch, seqs=256)

    assert seen.formula.startswith("largest image")
    assert seen.bytes / GIB == pytest.approx(2.55, abs=0.1)
    assert peak(arch, seqs=256, encoder=False).bytes < GIB
    assert peak(arch, seqs=256, tp=4).bytes < seen.bytes


def test_a_pooling_model_samples_nothing():
    assert peak(dict(architecture(LLAMA), pooling=True)).bytes < GIB


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        ({"version": "0.19.0"}, 0.25),
        ({"version": "0.19.0", "tp": 2}, 2.09),
        ({"version": "0.19.0", "pp": 2}, 0.07),
        ({"version": "0.15.0"}, 0.13),
        ({"version": "0.7.2", "generation": "V0"}, 0.05),
        ({"version": None}, 0.25),
        ({"version": None, "generation": "V0"}, 0.05),
        ({"version": "0.25.0", "tp": 2, "nvlink": False}, 0.25),
        ({"version": "0.25.0", "unified": True}, 3.75),
    ],
)
def test_memory_outside_torch(facts, want):
    estimate = non_torch(Load(8192, 1024, **facts))

    assert estimate.bytes / GIB == pytest.approx(want, abs=0.01)
    assert estimate.error_bytes > 0


def test_every_generation_and_version_has_a_row_of_memory_outside_torch():
    for version in (
        "0.4.0",
        "0.6.2",
        "0.6.4",
        "0.8.5",
        "0.9.0",
        "0.9.2",
        "0.10.2",
        "0.11",
        "0.17.1",
        "0.33.0",
    ):
        for generation in ("V0", "V1"):
            if generation == "V0" and version > "0.10.2" and not version.startswith("0.4"):
                continue
            assert non_torch(Load(1, 1, version, generation)).bytes > 0, (version, generation)


@pytest.mark.parametrize(
    ("facts", "count", "largest"),
    [
        ({"generation": "V0", "seqs": 256, "version": "0.7.2"}, 35, 256),
        ({"generation": "V0", "seqs": 16, "version": "0.7.2"}, 5, 16),
        ({"seqs": 1024, "version": "0.8.5"}, 67, 512),
        ({"seqs": 1024, "version": "0.19.0"}, 51, 512),
        ({"seqs": 16, "version": "0.19.0"}, 7, 32),
        ({"seqs": 1, "version": "0.19.0"}, 2, 2),
    ],
)
def test_captured_sizes(facts, count, largest):
    sizes = capture_sizes(Load(tokens=8192, **facts))

    assert (len(sizes), sizes[-1]) == (count, largest)


def test_graphs_by_version_and_estimate():
    arch = architecture(LLAMA)

    def graphs(estimated=False, **facts):
        return graph_memory(arch, Load(**{**NEW, **facts}), estimated).bytes / GIB

    assert graphs() == pytest.approx(0.91, abs=0.1)
    assert graphs(True) == pytest.approx(0.84, abs=0.1)
    assert graphs(pp=2) == pytest.approx(0.65, abs=0.1)
    assert graphs(version="0.31.0") == pytest.approx(0.23, abs=0.05)
    assert graphs(graphs=False) == 0
    assert graphs(seqs=4) < graphs()
    assert graphs(True, version="0.26.0", runner2=True) == 0
    assert graphs(True, version="0.31.0", runner2=True) > 0


@shared
def test_v0_profiles_an_image_and_a_video_in_one_step():
    """A log of 0.9 or 0.10 on V0 printed 4.92 GiB for this model (extra_sizing.jsonl, rep-qwen25vl-7b-awq-orin-retry)."""
    arch = load("Qwen/Qwen2.5-VL-72B-Instruct")
    old = {"tokens": 4096, "seqs": 8, "generation": "V0", "version": "0.9.2"}

    assert peak(arch, **old).bytes / GIB == pytest.approx(4.92, abs=0.05)
    assert peak(arch, **{**old, "generation": "V1"}).bytes == peak(arch, **old).bytes // 2


def test_boards_that_only_a_bridge_would_link():
    arch_of_3090, arch_of_h100 = {"capability": (8, 6)}, {"capability": (9, 0)}
    for linked, expected in ((None, 0.25), (False, 0.25), (True, 0.95)):
        said = non_torch(Load(**{**NEW, "version": "0.21.0"}, tp=2, nvlink=linked, **arch_of_3090))
        assert said.bytes / GIB == pytest.approx(expected, abs=0.01)
    assert non_torch(Load(**{**NEW, "version": "0.21.0"}, tp=2, **arch_of_h100)).bytes / GIB == pytest.approx(
        0.95, abs=0.01
    )


@shared
def test_deep_gemm_sorts_the_inputs_and_keeps_two_wide_workspaces():
    """H100, 0.20.0: 57344 more batched tokens took 9.8 GiB more (extra_sizing.jsonl, h100x4-qwen3-235b-fp8-...)."""
    arch = load("Qwen/Qwen3-235B-A22B-FP8")
    facts = {"tp": 4, "seqs": 128, "version": "0.20.0", "quantization": "fp8", "capability": (9, 0)}

    more = peak(arch, tokens=65536, **facts).bytes - peak(arch, tokens=8192, **facts).bytes
    assert more / GIB == pytest.approx(9.8, rel=0.08)
    for other in ({"capability": (8, 0)}, {"version": "0.10.2"}, {"quantization": "none"}):
        assert peak(arch, **{**facts, **other}).bytes < peak(arch, **facts).bytes
