# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.defaults import (
    CHANGES,
    DEFAULTS,
    default_of,
    default_runner_is_v2,
    engine_generation,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.flags import BY_NAME, is_kept_variable
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import what_an_upgrade_changes
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.versions import parse_version

GIB = 1 << 30


@pytest.mark.parametrize(
    ("option", "version", "expected"),
    [
        ("gpu_memory_utilization", "0.3.3", 0.9),
        ("gpu_memory_utilization", "0.19.1", 0.9),
        ("gpu_memory_utilization", "0.20.0", 0.92),
        ("gpu_memory_utilization", "0.33.0", 0.92),
        ("gpu_memory_utilization", None, None),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.17.1", None),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.18.0", False),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0.20.0", True),
        ("swap_space", "0.17.1", 4.0),
        ("swap_space", "0.18.0", None),
        ("enable_prefix_caching", "0.7.3", False),
        ("enable_prefix_caching", "0.11.0", True),
        ("enable_chunked_prefill", "0.7.3", None),
        ("block_size", "0.11.0", 16),
        ("tensor_parallel_size", None, 1),
        ("mm_processor_cache_gb", "0.10.0", None),
        ("mm_processor_cache_gb", "0.10.1.1", 4.0),
        ("VLLM_MM_INPUT_CACHE_GIB", "0.8.1", 8.0),
        ("VLLM_MM_INPUT_CACHE_GIB", "0.9.2", 4.0),
        ("NCCL_CUMEM_ENABLE", "0.10.1.1", 0),
        ("NCCL_CUMEM_ENABLE", "0.10.2", None),
        ("no_such_option", "0.11.0", None),
    ],
)
def test_default_of(option, version, expected):
    assert default_of(option, version) == expected


# vllm-memory 7.3
@pytest.mark.parametrize(
    ("version", "gpu", "gib", "usage", "tokens", "seqs"),
    [
        ("0.8.0", "NVIDIA H100 80GB HBM3", 80, "server", 8192, 1024),
        ("0.8.0", "NVIDIA H100 80GB HBM3", 80, "llm", 16384, 1024),
        ("0.8.3", "NVIDIA A10", 24, "server", 2048, 1024),
        ("0.8.3", None, None, "server", None, 1024),
        ("0.8.5", "NVIDIA A100-SXM4-80GB", 80, "server", 8192, 1024),
        ("0.9.0", "NVIDIA A100-SXM4-80GB", 80, "server", 2048, 256),
        ("0.11.0", "NVIDIA H200", 139, "server", 8192, 1024),
        ("0.11.0", "NVIDIA L4", 22, "server", 2048, 256),
        ("0.11.0", None, 22, "llm", 8192, 256),
        ("0.11.0", None, 80, "server", None, None),
        ("0.11.0", None, None, "server", None, None),
        ("0.28.0", "NVIDIA B200", 178, "server", 16384, 1024),
        ("0.27.0", "NVIDIA B200", 178, "server", 8192, 1024),
        ("0.33.0", "NVIDIA GB10", 119, "server", 2048, 256),
        ("0.32.0", "NVIDIA GB10", 119, "server", 8192, 1024),
        (None, "NVIDIA B200", 178, "server", None, None),
    ],
)
def test_batch_defaults_of_v1(version, gpu, gib, usage, tokens, seqs):
    facts = {"gpu_name": gpu, "gpu_memory_bytes": gib and gib * GIB, "usage": usage}
    assert default_of("max_num_batched_tokens", version, **facts) == tokens
    assert default_of("max_num_seqs", version, **facts) == seqs


def test_batch_defaults_elsewhere():
    assert default_of("max_num_seqs", "0.7.3") == 256
    assert default_of("max_num_batched_tokens", "0.7.3") is None
    assert default_of("max_num_batched_tokens", "0.7.3", chunked_prefill=False, max_model_len=8192) == 8192
    assert default_of("max_num_batched_tokens", "0.7.3", chunked_prefill=True) == 2048
    assert default_of("max_num_seqs", "0.11.0", accelerator="cpu", world_size=2) == 256
    assert default_of("max_num_seqs", "0.11.0", accelerator="tpu") is None
    small = {"gpu_memory_bytes": 24 * GIB, "performance_mode": "throughput"}
    assert default_of("max_num_seqs", "0.17.0", **small) == 512
    assert default_of("max_num_seqs", "0.16.0", **small) == 256


@pytest.mark.parametrize(
    ("version", "use_v1", "expected"),
    [
        ("0.6.3", True, "V0"),
        ("0.7.3", None, "V0"),
        ("0.7.3", True, "V1"),
        ("0.8.0", None, "V1"),
        ("0.10.2", False, "V0"),
        ("0.11.0", False, "V1"),
        (None, None, None),
        (None, True, "V1"),
    ],
)
def test_engine_generation(version, use_v1, expected):
    assert engine_generation(version, use_v1) == expected


QWEN = {"architecture": "Qwen3ForCausalLM", "moe": False, "hybrid": False, "quantized": False}
LLAMA = dict(QWEN, architecture="LlamaForCausalLM")
GEMMA = dict(QWEN, architecture="Gemma3ForCausalLM")


# vllm-memory 5.4
@pytest.mark.parametrize(
    ("version", "model", "expected"),
    [
        ("0.21.0", QWEN, False),
        ("0.22.0", QWEN, True),
        ("0.22.0", dict(QWEN, quantized=True), False),
        ("0.22.0", LLAMA, False),
        ("0.23.0", LLAMA, True),
        ("0.24.0", dict(LLAMA, quantized=True), True),
        ("0.24.0", GEMMA, False),
        ("0.25.0", GEMMA, True),
        ("0.25.0", dict(GEMMA, moe=True), None),
        ("0.23.0", None, None),
        ("0.29.0", None, True),
        (None, QWEN, None),
    ],
)
def test_default_runner(version, model, expected):
    assert default_runner_is_v2(version, model) is expected


def test_default_runner_on_rocm():
    assert default_runner_is_v2("0.30.0", None, "rocm") is None
    assert default_runner_is_v2("0.31.0", None, "rocm") is True


def _changed(old, new):
    return {
        (row["option"], row["on"]): (row["before"], row["after"]) for row in what_an_upgrade_changes(old, new)
    }


def test_an_upgrade_over_0_20():
    changed = _changed("0.19.1", "0.20.2")
    assert changed["gpu_memory_utilization", None] == (0.9, 0.92)
    assert changed["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", None] == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "option"),
    [
        ("0.7.3", "0.8.0", "engine"),
        ("0.10.1.1", "0.10.2", "NCCL_CUMEM_ENABLE"),
        ("0.10.2", "0.11.0", "memory_snapshot"),
        ("0.17.1", "0.18.0", "swap_space"),
        ("0.21.0", "0.22.0", "model_runner"),
        ("0.26.0", "0.27.0", "shm_space_check"),
    ],
)
def test_an_upgrade_names_what_changed_with_it(old, new, option):
    assert option in {row["option"] for row in what_an_upgrade_changes(old, new)}
    assert all(row["why"] for row in what_an_upgrade_changes(old, new))


def test_steps_are_joined_and_cancel_out():
    changed = _changed("0.7.3", "0.9.2")
    assert ("max_num_seqs", "GPUs below 70 GiB") not in changed
    assert changed["max_num_seqs", "GPUs from 70 GiB, A100 aside"] == (256, 1024)
    assert ("gpu_budget", None) not in changed
    assert changed["VLLM_MM_INPUT_CACHE_GIB", None] == (None, 4.0)


def test_a_downgrade_is_the_upgrade_backwards():
    there = what_an_upgrade_changes("0.17.1", "0.20.0")
    back = what_an_upgrade_changes("0.20.0", "0.17.1")
    assert [(row["option"], row["after"], row["before"]) for row in reversed(back)] == [
        (row["option"], row["before"], row["after"]) for row in there
    ]


@pytest.mark.parametrize(("old", "new"), [("0.20.0", "0.20.0"), (None, "0.20.0"), ("0.20.0", "main")])
def test_no_change_without_two_versions(old, new):
    assert what_an_upgrade_changes(old, new) == []


def test_changes_agree_with_the_defaults():
    """A change of an option's value is the difference of its defaults in the releases before and after."""
    told = [
        row for row in CHANGES if row.on is None and any(row.option == known.option for known in DEFAULTS)
    ]
    assert len(told) > 12
    for row in told:
        if isinstance(row.after, str) or isinstance(row.before, str):
            continue
        assert default_of(row.option, row.version) == row.after, row


def test_tables_name_known_options_in_order():
    assert all(row.option in BY_NAME or is_kept_variable(row.option) for row in DEFAULTS)
    versions = [parse_version(row.version) for row in CHANGES]
    assert versions == sorted(versions)
