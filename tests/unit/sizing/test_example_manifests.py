# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/examples/manifests say of themselves is what the budget says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifest_files import Document
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import (
    manifest_evidence,
    read_manifests,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import quantity_bytes
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

FOLDER = Path(__file__).parents[3] / "docs" / "examples" / "manifests"
FITS = {
    "deployment.yaml": [True],
    "inference-service.yaml": [True],
    "leader-worker-set.yaml": [True, True],
    "production-stack-values.yaml": [True, True],
    "stateful-set": [True],
    "too-large.yaml": [False],
}


@pytest.mark.parametrize("name", sorted(FITS))
def test_an_example_fits_or_not_as_it_says(name):
    entries = budgets_of(read_manifests(str(FOLDER / name)), gpu="L40S")["entries"]
    assert [entry["fits"] for entry in entries] == FITS[name], [entry["sentence"] for entry in entries]


@pytest.mark.parametrize("name", sorted(set(FITS) - {"too-large.yaml"}))
def test_an_example_has_the_memory_that_the_budget_and_the_findings_want(name):
    evidence = read_manifests(str(FOLDER / name))
    for entry in budgets_of(evidence, gpu="L40S")["entries"]:
        host = entry["host"]
        # Ray's object store comes on top of what the budget counts.
        over = host["limit"] - host["limit_bytes"]
        assert over == 0 or (over > 0 and name == "leader-worker-set.yaml"), host["words"]
        assert host["request"] >= host["request_bytes"]
    causes = {found["cause"] for pod in diagnose(evidence)["pods"] for found in pod["findings"]}
    assert not causes & {"memory_limit_missing", "memory_limit_low", "memory_ratio", "shm_small"}


def test_budget_and_finding_want_the_same_limit():
    evidence = read_manifests(str(FOLDER / "too-large.yaml"))
    (entry,) = budgets_of(evidence)["entries"]
    (pod,) = diagnose(evidence)["pods"]
    (found,) = [item for item in pod["findings"] if item["cause"] == "memory_limit_low"]
    advised = {item["name"]: quantity_bytes(item["value"]) for item in found["recommend"]}
    assert advised["resources.limits.memory"] == entry["host"]["limit_bytes"]
    assert advised["resources.requests.memory"] == entry["host"]["request_bytes"]
    assert entry["host"]["words"] in found["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("model", "limit", "image", "env"),
    [
        ("Qwen/Qwen3-8B", "48Gi", "vllm/vllm-openai-cpu:v0.11.0", {"VLLM_CPU_KVCACHE_SPACE": "40"}),
        ("Qwen/Qwen2.5-7B-Instruct", "2Gi", "vllm/vllm-openai:v0.11.0", {}),
        ("Qwen/Qwen3-32B", "8Gi", "vllm/vllm-openai:v0.11.0", {}),
        ("openai/gpt-oss-120b", "2Gi", "vllm/vllm-openai:v0.11.0", {}),
    ],
)
def test_of_any_size_budget_and_finding_want_the_same(model, limit, image, env):
    limits = {"memory": limit} if env else {"memory": limit, "nvidia.com/gpu": "1"}
    container = {
        "name": "vllm",
        "image": image,
        "command": ["vllm", "serve", model],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": limits, "requests": limits},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container]}}
    evidence = manifest_evidence([Document("x.yaml", pod)], "x.yaml", None)
    (entry,) = budgets_of(evidence, gpu="H100 80GB")["entries"]
    found = {item["cause"]: item for item in diagnose(evidence)["pods"][0]["findings"]}["memory_limit_low"]
    assert entry["host"]["words"] in found["evidence"][0]["text"]
    assert quantity_bytes(found["recommend"][0]["value"]) == entry["host"]["limit_bytes"]


def test_every_example_is_held():
    assert {path.name for path in FOLDER.iterdir()} == set(FITS)
