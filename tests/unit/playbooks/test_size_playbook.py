# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-playbook playbooks/size_model.yml` as a person runs it: what it prints and saves, how it ends."""

from __future__ import annotations

import json
import stat

import pytest
from test_diagnose_playbook import EXAMPLES, ROOT, run

PLAYBOOK = ROOT / "playbooks" / "size_model.yml"
MANIFESTS = EXAMPLES / "manifests"
MODEL = ("model=Qwen/Qwen3-32B", "gpu=H100 80GB", "vllm_version=0.11.0")


def size(*extra, **more):
    options = [
        part
        for name_and_value in extra
        for part in (
            "-e",
            json.dumps({"vllm_oom_" + name_and_value.split("=", 1)[0]: name_and_value.split("=", 1)[1]}),
        )
    ]
    return run(PLAYBOOK, *options, **more)


def failure(done):
    """The message of the failed task, on one line."""
    return " ".join(done.stdout[done.stdout.index("fatal:") :].split())


def test_a_model_by_name_is_shown_and_saved(tmp_path):
    out = tmp_path / "report"
    done = size(*MODEL, f"output_dir={out}")
    assert done.returncode == 0, done.stdout
    assert "Doesn't fit. One request of 40960 tokens needs 10.00 GiB of KV cache" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["budget.json", "budget.md"]
    assert stat.S_IMODE((out / "budget.json").stat().st_mode) == 0o600
    (entry,) = json.loads((out / "budget.json").read_text(encoding="utf-8"))["entries"]
    assert entry["fits"] is False


def test_what_does_not_fit_fails_the_run_only_when_asked():
    done = size(f"manifest={MANIFESTS / 'too-large.yaml'}", "fail_on=doesnt_fit")
    assert done.returncode == 2
    assert "1 of 1 engines: llm/llama-70b (vllm)" in failure(done)
    assert "Doesn't fit." in done.stdout
    assert "cpu_limit_set" in done.stdout


def test_what_fits_passes_the_check():
    done = size(f"manifest={MANIFESTS / 'deployment.yaml'}", "fail_on=doesnt_fit")
    assert done.returncode == 0, done.stdout
    assert "Fits the GPU: " in done.stdout


def test_a_relative_path_starts_where_the_command_is_called(tmp_path):
    (tmp_path / "mine.yaml").write_text((MANIFESTS / "deployment.yaml").read_text())
    done = size("manifest=mine.yaml", "output_dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out" / "budget.md").exists()


def test_a_models_own_config_counts(tmp_path):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "intermediate_size": 4096,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = size("model_config=config.json", "gpu=L4", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "Fits the GPU: " in done.stdout


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ((), "Give either manifests"),
        (("modle=x",), "vllm_oom_modle is no variable of this playbook"),
        (("model=x", "manifest=y"), "vllm_oom_manifest and vllm_oom_model exclude each other"),
        (("model=x", "fail_on=certain"), "vllm_oom_fail_on must be none or doesnt_fit or any, not certain"),
        (("manifest=/nowhere/x.yaml",), "/nowhere/x.yaml"),
        (("model=no-such/model-of-9",), "no-such/model-of-9"),
        (("model=Qwen/Qwen3-32B", "flags=--x 'y"), "arguments are no shell words"),
        (("model=Qwen/Qwen3-32B", "gpu=RTX 4900"), "name one of RTX 4090"),
    ],
)
def test_bad_input_is_one_clear_sentence(extra, words):
    done = size(*extra)
    assert done.returncode == 2
    assert words in failure(done)
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--gpu-memory-utilization -0.5", "gpu_memory_utilization lies above 0 and up to 1, not -0.5"),
        ("--tensor-parallel-size 3", "3"),
    ],
)
def test_settings_that_no_start_could_have_are_a_verdict(flags, words):
    done = size(*MODEL, f"flags={flags}", "fail_on=doesnt_fit")
    assert done.returncode == 2
    assert "Doesn't fit." in done.stdout
    assert words in done.stdout


def test_words_behind_a_space_are_not_dropped_without_a_word():
    done = run(PLAYBOOK, "-e", "vllm_oom_model=Qwen/Qwen3-8B", "-e", "vllm_oom_gpu=H200 MIG 3g.71gb")
    assert done.returncode == 2
    assert "MIG 3g.71gb belongs to no variable: a value with spaces is quoted twice" in failure(done)
    quoted = run(PLAYBOOK, "-e", "vllm_oom_model=Qwen/Qwen3-8B", "-e", 'vllm_oom_gpu="H200 MIG 3g.71gb"')
    assert quoted.returncode == 0
    assert "1 x H200 MIG 3g.71gb" in quoted.stdout


def test_risks_fail_the_run_where_anything_is_to(tmp_path):
    text = (MANIFESTS / "deployment.yaml").read_text(encoding="utf-8")
    (tmp_path / "risky.yaml").write_text(
        text.replace("limits: {memory: 24Gi,", 'limits: {cpu: "4", memory: 24Gi,')
    )
    done = size(f"manifest={tmp_path / 'risky.yaml'}", "fail_on=any")
    assert done.returncode == 2
    assert "cpu_limit_set" in failure(done)
    assert size(f"manifest={tmp_path / 'risky.yaml'}", "fail_on=doesnt_fit").returncode == 0
