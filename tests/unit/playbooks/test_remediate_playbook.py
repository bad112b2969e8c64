# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-playbook remediate-oom.yml` and rollback_oom on saved evidence, and how they end on bad input.

What they do in a cluster: test_remediate_flow.py (with stand-ins) and tests/cluster.
"""

from __future__ import annotations

import json
import stat

import pytest
from test_diagnose_playbook import EXAMPLES, ROOT, SECRETS, run

REMEDIATE, ROLLBACK = ROOT / "remediate-oom.yml", ROOT / "playbooks/rollback_oom.yml"


def play(playbook, *options, **variables):
    given = {f"vllm_oom_{name}": value for name, value in variables.items()}
    return run(playbook, "-e", json.dumps(given), *options)


def test_saved_evidence_is_planned_and_saved(tmp_path):
    out = tmp_path / "out"
    done = play(
        REMEDIATE,
        bundle=str(EXAMPLES / "max-model-len"),
        min_model_len="8000",
        allow="eager, risks",
        output_dir=str(out),
    )
    assert done.returncode == 0, done.stdout
    assert "--max-model-len: 40960 -> 18224" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == [
        *(
            "budget.json",
            "diagnosis.json",
            "evidence.json",
            "outcome.json",
            "outcome.md",
            "plan.json",
            "report.md",
        )
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    (made,) = json.loads((out / "outcome.json").read_text())["objects"]
    assert (made["verdict"], made["attempts"]) == (None, [])
    assert made["first_failure"]["cause"] == "kv_max_len"
    limits = json.loads((out / "plan.json").read_text())["limits"]
    assert (limits["min_model_len"], limits["apply"], limits["max_memory"]) == (8000, False, None)
    assert limits["allow"] == ["eager", "risks"]


@pytest.mark.parametrize(
    ("playbook", "variables", "sentence"),
    [
        (
            REMEDIATE,
            {"bundle": "x", "apply": "true"},
            "vllm_oom_bundle and vllm_oom_apply exclude each other",
        ),
        (
            REMEDIATE,
            {"aply": "true"},
            "vllm_oom_aply is no variable of this playbook; did you mean vllm_oom_apply?",
        ),
        (REMEDIATE, {"api_key": "x"}, "give the engine's key in the environment variable VLLM_OOM_API_KEY."),
        (
            REMEDIATE,
            {"speed": "x"},
            "vllm_oom_speed is no variable of this playbook; it knows vllm_oom_all_namespaces,",
        ),
        (REMEDIATE, {"apply": "perhaps"}, "vllm_oom_apply must be true or false, not perhaps."),
        (REMEDIATE, {"on_failure": "panic"}, "vllm_oom_on_failure must be undo or next or keep, not panic."),
        (
            REMEDIATE,
            {"max_memory": "lots"},
            "vllm_oom_max_memory must be a size such as 96Gi, without a blank, not lots.",
        ),
        (REMEDIATE, {"max_memory": "96 Gi"}, "must be a size such as 96Gi, without a blank, not 96 Gi."),
        (REMEDIATE, {"max_memory": 96}, "vllm_oom_max_memory of 96 is 96 bytes: did you mean 96Gi?"),
        (REMEDIATE, {"max_gpus": "0"}, "vllm_oom_max_gpus must be a whole number, at least 1, not 0."),
        (
            REMEDIATE,
            {"min_concurrency": "0.0"},
            "vllm_oom_min_concurrency must be a number above 0, not 0.0.",
        ),
        (REMEDIATE, {"soak": "soon"}, "vllm_oom_soak must be a duration such as 30m"),
        (REMEDIATE, {"allow": "eager, speed"}, "vllm_oom_allow must name only cpu_offload, eager"),
        (REMEDIATE, {"allow": ["eager", "speed"]}, "not speed."),
        (
            REMEDIATE,
            {"allow": {"eager": True}},
            "vllm_oom_allow must be a list or a text with commas of cpu_offload,",
        ),
        (
            REMEDIATE,
            {"fail_on": "certain"},
            "vllm_oom_fail_on must be none or failed or unsolved, not certain.",
        ),
        (ROLLBACK, {"workload": "llama"}, "vllm_oom_workload must be kind and name such as deployment/llama"),
        (ROLLBACK, {"workload": "sts/a", "all_namespaces": "true"}, "exclude each other"),
        (ROLLBACK, {"apply": "true"}, "vllm_oom_apply is no variable of this playbook"),
    ],
)
def test_a_wrong_variable_is_one_sentence(playbook, variables, sentence):
    done = play(playbook, **variables)
    assert done.returncode != 0
    assert sentence in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout
    assert len(done.stdout.splitlines()) < 30


@pytest.mark.parametrize("playbook", [REMEDIATE, ROLLBACK])
def test_no_cluster_is_said_without_its_token(playbook, tmp_path):
    kubeconfig = {
        "current-context": "nowhere",
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "me"}}],
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "me", "user": {"token": SECRETS["header"]}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig), encoding="utf-8")
    done = play(playbook, "-vvv", kubeconfig=str(tmp_path / "kubeconfig"), namespace="llm")
    assert done.returncode == 2
    assert "127.0.0.1:9" in done.stdout
    assert "Traceback" not in done.stdout
    assert SECRETS["header"] not in done.stdout
