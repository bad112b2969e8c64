# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.argument_echo import read_line, value_of

NON_DEFAULT = (
    "non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'model': 'Qwen/Qwen3-8B', 'api_key': ***, "
    "'kv_cache_dtype': <CacheDType.FP8: 'fp8'>, 'limit_mm_per_prompt': {'image': 2, 'video': 0}, "
    "'dtype': torch.bfloat16, 'my_plugin_option': [1, 2], 'max_model_len': 4096}"
)


def test_non_default_args():
    assert read_line(NON_DEFAULT) == (
        3,
        {
            "model": "Qwen/Qwen3-8B",
            "api_key": ["***"],
            "kv_cache_dtype": "fp8",
            "limit_mm_per_prompt": {"image": 2, "video": 0},
            "dtype": "bfloat16",
            "my_plugin_option": [1, 2],
            "max_model_len": 4096,
        },
    )


@pytest.mark.parametrize("cut", range(len("non-default args: {"), len(NON_DEFAULT)))
def test_a_cut_line_loses_only_its_last_value(cut):
    whole, found = read_line(NON_DEFAULT)[1], read_line(NON_DEFAULT[:cut])[1]
    assert all(whole[name] == value for name, value in found.items())


def test_namespace_keeps_what_matters_and_no_none():
    line = (
        "args: Namespace(subparser='serve', host=None, port=8080, tensor_parallel_size=4, swap_space=4, "
        "kv_transfer_config=KVTransferConfig(kv_connector='A', kv_rank=None), "
        "dispatch_function=<function ServeSubcommand.cmd at 0x7f>, gpu_memory_utilization=0.9)"
    )
    assert read_line(line) == (
        3,
        {
            "tensor_parallel_size": 4,
            "swap_space": 4.0,
            "kv_transfer_config": {"kv_connector": "A", "kv_rank": None},
            "gpu_memory_utilization": 0.9,
        },
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # V1 0.11 with enums; V1 0.8 with JSON; 0.2 without a version
        (
            "Initializing a V1 LLM engine (v0.11.0) with config: model='m', speculative_config=SpeculativeConfig("
            "method='eagle', model='e', num_spec_tokens=3), dtype=torch.float16, max_seq_len=4096, quantization=None, "
            "device_config=cuda, compilation_config={'mode': <CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': "
            "<CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'inductor_passes': {}, 'cudagraph_capture_sizes': [2, 1]}",
            {
                "model": "m",
                "speculative_config": {"method": "eagle", "model": "e", "num_speculative_tokens": 3},
                "dtype": "float16",
                "max_model_len": 4096,
                "device": "cuda",
                "compilation_config": {
                    "mode": 3,
                    "cudagraph_mode": "FULL_AND_PIECEWISE",
                    "cudagraph_capture_sizes": [2, 1],
                },
            },
        ),
        (
            "Initializing a V1 LLM engine (v0.8.3) with config: model='m', chunked_prefill_enabled=True, "
            'use_async_output_proc=True, compilation_config={"level":3,"use_inductor":true}',
            {"model": "m", "enable_chunked_prefill": True, "compilation_config": {"level": 3}},
        ),
        (
            "Initializing an LLM engine with config: model='m', max_seq_len=8192, load_format=auto, "
            "tensor_parallel_size=8",
            {"model": "m", "max_model_len": 8192, "load_format": "auto", "tensor_parallel_size": 8},
        ),
    ],
)
def test_configuration_echo(line, expected):
    assert read_line(line) == (2, expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Using max model len 40960", (1, {"max_model_len": 40960})),
        (
            "Chunked prefill is enabled with max_num_batched_tokens=2048.",
            (1, {"max_num_batched_tokens": 2048}),
        ),
        ("Using fp8 data type to store kv cache. It reduces the memory.", (1, {"kv_cache_dtype": "fp8"})),
        ("vLLM server version 0.20.0, serving model Qwen/Qwen3-8B", (1, {"model": "Qwen/Qwen3-8B"})),
        (" █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B", (1, {"model": "Qwen/Qwen3-8B"})),
        (
            "Setting attention block size to 1056 tokens to ensure that attention page size is >= mamba page size.",
            (4, {"block_size": 1056}),
        ),
    ],
)
def test_single_lines(line, expected):
    assert read_line(line) == expected


@pytest.mark.parametrize("line", ["", "Starting to load model m...", "non-default args:", "args: none"])
def test_other_lines(line):
    assert read_line(line) == (None, {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("('a', 1)", ["a", 1]),
        ("{'b', 'a'}", ["a", "b"]),
        ("PosixPath('/x')", "/x"),
        ("***", "***"),
        ("[<A.B: 'x'>, torch.int8]", ["x", "int8"]),
        ("().__class__.__bases__", "().__class__.__bases__"),
        ("lambda: 1 / 0", "lambda: 1 / 0"),
    ],
)
def test_values_are_data_and_never_code(written, expected):
    assert value_of(written) == expected
