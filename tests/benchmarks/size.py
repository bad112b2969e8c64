# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One budget and one fit search beside parsing the same model's config.json, for three kinds of large models.

``python tests/benchmarks/size.py [ROUNDS]``: the three in turn, after one round that isn't counted; prints the medians. A
fit search is all that the filter asks for a start that doesn't fit: what fits at most, which changes help, which GPUs do.
A budget must stay below 5 ms, a fit search below 50 ms. Beside them a playbook's task that computes a budget with its
search, as a multiple of a task that says something: what Ansible adds to each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import fit  # noqa: E402
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import (  # noqa: E402
    architecture,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.budget import budget  # noqa: E402

LLAMA_70B = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192},
    **{"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128},
    **{"intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072},
    **{"tie_word_embeddings": False, "torch_dtype": "bfloat16"},
}
DEEPSEEK_V3 = {
    **{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168},
    **{"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128},
    **{"intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256},
    **{"n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1},
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "num_nextn_predict_layers": 1, "vocab_size": 129280},
    **{"max_position_embeddings": 163840, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"},
}
QWEN3_NEXT = {
    **{"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048},
    **{"num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256},
    **{"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128},
    **{
        "intermediate_size": 5120,
        "moe_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
    },
    **{"shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "vocab_size": 151936},
    **{"max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
}
# Name, config, tensor parallel size: each on GPUs of 79 GiB and of a length that doesn't fit.
MODELS = (
    ("Llama-3-70B", LLAMA_70B, 2),
    ("DeepSeek-V3", DEEPSEEK_V3, 8),
    ("Qwen3-Next-80B", QWEN3_NEXT, 2),
)
GPU = {"total_bytes": int(79.19 * GIB), "name": "H100 80GB", "compute_capability": (9, 0), "nvlink": True}
VERSION = "0.26.0"


def milliseconds(call, times):
    start = time.perf_counter()
    for _time in range(times):
        call()
    return (time.perf_counter() - start) * 1000 / times


def search(arch, settings):
    fit.largest(arch, GPU, settings, VERSION)
    fit.changes(arch, GPU, settings, VERSION)
    fit.hardware(arch, settings, VERSION)


def one_round(config, ranks):
    """Milliseconds of parsing the config, of one budget and of one search."""
    text, arch = json.dumps(config), architecture(config)
    settings = {"tensor_parallel_size": ranks, "max_model_len": config["max_position_embeddings"]}
    return (
        milliseconds(lambda: json.loads(text), 500),
        milliseconds(lambda: budget(arch, GPU, settings, VERSION), 20),
        milliseconds(lambda: search(arch, settings), 2),
    )


# Ten tasks each, so that what starting ansible-playbook varies by doesn't drown them.
_TASKS = 10
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
"""
TASK = """
    - ansible.builtin.debug:
        msg: "{{ %s }}"
"""
FILTER = "model | vllm_runbook.oom.memory_budget(gpu='H100 80GB', version='0.26.0') | length"


def seconds_of_playbooks(rounds):
    """Medians of a playbook of one plain task, of one with ten more, and of one with ten budgets more."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    model = {"schema": "vllm_runbook.oom/model/v1", "name": "a/model", "config": LLAMA_70B}
    plain = TASK % "1"
    bodies = (plain, plain * (_TASKS + 1), plain + TASK % FILTER * _TASKS)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vars.json").write_text(json.dumps({"model": model}), encoding="utf-8")
        commands = []
        for number, body in enumerate(bodies):
            path = Path(folder) / f"{number}.yml"
            path.write_text(PLAY + body, encoding="utf-8")
            commands.append([program, str(path), "-e", f"@{folder}/vars.json"])
        environment = dict(os.environ, LC_ALL="C.UTF-8", ANSIBLE_LOCAL_TEMP=folder)
        runs = []
        for _round in range(rounds):
            row = []
            for command in commands:
                start = time.perf_counter()
                subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
                row.append(time.perf_counter() - start)
            runs.append(row)
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def main(rounds=7):
    runs = [[one_round(config, ranks) for _name, config, ranks in MODELS] for _round in range(rounds + 1)][1:]
    print(f"sizing, medians of {rounds} rounds in turn (ratio: to json.loads of the same config.json)")
    for (name, _config, _ranks), rows in zip(MODELS, zip(*runs, strict=True), strict=True):
        parse, one, whole = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"  {name:<15} budget     {one:7.2f} ms  ratio {one / parse:7.0f}  (target: below 5 ms)")
        print(f"  {'':<15} fit search {whole:7.2f} ms  ratio {whole / parse:7.0f}  (target: below 50 ms)")
    empty, plain, sized = seconds_of_playbooks(min(rounds, 3))
    each, mine = (plain - empty) * 1000 / _TASKS, (sized - empty) * 1000 / _TASKS
    print(
        f"  a filter task   {mine:7.0f} ms  ratio {mine / each:7.1f}  (to a task that says something, {each:.0f} ms)"
    )


if __name__ == "__main__":
    main(*[int(value) for value in sys.argv[1:2]])
