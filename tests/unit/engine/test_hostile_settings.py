# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments and log lines of one odd pod must not end the run over all pods."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.command_line import is_engine_command
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import engine_settings

DIGITS = "9" * 5000


def settings_of(*arguments, log=()):
    lines = [{"line": number, "text": text} for number, text in enumerate(log, 1)]
    return engine_settings(["vllm", "serve"], ["m", *arguments], [], log_arguments=lines, defaults=False)


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("--max-model-len", "max_model_len", DIGITS),
        ("--max-num-seqs", "max_num_seqs", f"{DIGITS}k"),
        ("--gpu-memory-utilization", "gpu_memory_utilization", "nan"),
        ("--gpu-memory-utilization", "gpu_memory_utilization", "1e999"),
        ("--hf-overrides", "hf_overrides", "[" * 60_000),
        ("--tensor-parallel-size", "tensor_parallel_size", DIGITS),
    ],
)
def test_a_value_without_measure_is_kept_as_it_is_written(flag, name, value):
    setting = settings_of(flag, value, "--block-size", "16")
    assert setting[name]["value"] is None
    assert value.startswith(setting[name]["written"])
    assert setting["block_size"]["value"] == 16


@pytest.mark.parametrize(
    "nested", ["[" * 6000 + "]" * 6000, "A(" * 3000 + ")" * 3000, "<A: " * 3000 + ">" * 3000]
)
def test_an_echo_that_nests_without_end_costs_only_itself(nested):
    setting = settings_of(log=[f"non-default args: {{'odd': {nested}, 'max_model_len': 4096}}"])
    assert setting["max_model_len"] == {"value": 4096, "from": "log", "line": 1}
    assert nested.startswith(setting["odd"]["value"])


@pytest.mark.parametrize("word", ["${" + DIGITS + "}", "${A:-" * 3000 + "}" * 3000])
def test_a_script_that_nests_without_end_is_still_recognised(word):
    assert is_engine_command(["sh", "-c", f"vllm serve m {word}"], [])
