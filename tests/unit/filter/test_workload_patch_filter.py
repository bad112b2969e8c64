# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter workload_patch: a manifest in, the changed one or its patch out, and what it says of bad input."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.vllm_runbook.oom.plugins.filter import workload_patch
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.json_patch import apply

MANIFESTS = Path(__file__).parents[3] / "docs" / "examples" / "manifests"
FILTER = workload_patch.FilterModule().filters()["workload_patch"]
LENGTH = {"target": "flag", "name": "--max-model-len", "value": 4096}
NO_CPU = {"target": "k8s", "name": "resources.limits.cpu", "direction": "remove"}


LEADER = "spec.leaderWorkerTemplate.leaderTemplate.spec.containers[vllm-leader]"


def objects(name):
    found = yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))
    return {item["kind"]: item for item in found}


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm", "namespace": "llm"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {"name": "proxy", "image": "envoyproxy/envoy:v1.30"},
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.11.0",
                        "args": ["--model", "org/m", "--api-key", "s3cr3t", "--max_model_len=8192"],
                        "resources": {"limits": {"cpu": "4", "nvidia.com/gpu": "1"}},
                    },
                ]
            }
        }
    },
}


def engine_of(raw):
    return raw["spec"]["template"]["spec"]["containers"][1]


def test_the_engines_container_is_found_and_nothing_else_is_touched():
    before = copy.deepcopy(DEPLOYMENT)
    found = FILTER(DEPLOYMENT, [LENGTH, NO_CPU])
    assert before == DEPLOYMENT
    assert engine_of(found)["args"] == ["--model", "org/m", "--api-key", "s3cr3t", "--max_model_len=4096"]
    assert engine_of(found)["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    changed = copy.deepcopy(before)
    changed["spec"]["template"]["spec"]["containers"][1] = engine_of(found)
    assert found == changed


def test_the_patches_bring_the_object_there():
    changes = [LENGTH, NO_CPU]
    assert apply(DEPLOYMENT, FILTER(DEPLOYMENT, changes, format="json_patch")) == FILTER(DEPLOYMENT, changes)
    assert FILTER(DEPLOYMENT, changes, format="strategic_merge") == {
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "vllm",
                            "args": ["--model", "org/m", "--api-key", "s3cr3t", "--max_model_len=4096"],
                            "resources": {"limits": {"cpu": None}},
                        }
                    ],
                }
            }
        }
    }


def test_an_object_that_has_the_changes_needs_no_patch():
    done = FILTER(DEPLOYMENT, [LENGTH, NO_CPU])
    assert FILTER(done, [LENGTH, NO_CPU]) == done
    assert FILTER(done, [LENGTH, NO_CPU], format="json_patch") == []


def test_a_path_chooses_the_container():
    found = FILTER(
        DEPLOYMENT, [dict(NO_CPU, direction=None, value="2")], path="spec.template.spec.containers[proxy]"
    )
    assert found["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("name", "kind", "path", "where"),
    [
        ("inference-service.yaml", "InferenceService", None, lambda spec: spec["predictor"]["model"]["args"]),
        (
            "leader-worker-set.yaml",
            "LeaderWorkerSet",
            LEADER,
            lambda spec: spec["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]["args"],
        ),
    ],
)
def test_other_kinds_keep_options_where_they_are(name, kind, path, where):
    raw = objects(name)[kind]
    found = FILTER(raw, [LENGTH], path)
    assert "4096" in " ".join(map(str, where(found["spec"])))
    assert FILTER(found, [LENGTH], path, format="json_patch") == []
    with pytest.raises(AnsibleFilterError, match="knows no strategic merge patch"):
        FILTER(raw, [LENGTH], path, format="strategic_merge")


def test_several_engines_need_a_path():
    raw = objects("leader-worker-set.yaml")["LeaderWorkerSet"]
    with pytest.raises(
        AnsibleFilterError,
        match="; it has spec",
    ):
        FILTER(raw, [LENGTH])


def without(*keys):
    return {key: value for key, value in DEPLOYMENT.items() if key not in keys}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], [LENGTH]), "it takes one object of Kubernetes"),
        ((without("kind"), [LENGTH]), "it takes one object of Kubernetes"),
        ((DEPLOYMENT,), "the changes are a list, not NoneType"),
        ((DEPLOYMENT, "--max-model-len"), "the changes are a list, not str"),
        ((DEPLOYMENT, ["--max-model-len"]), "a change is a dictionary with target, name and value"),
        (
            (DEPLOYMENT, [LENGTH], None, "yaml"),
            "unknown format 'yaml': it is one of object, json_patch, strategic_merge",
        ),
        ((DEPLOYMENT, [LENGTH], "spec.containers[vllm]"), "the object has no spec.containers[vllm]"),
        ((DEPLOYMENT, [dict(LENGTH, value="many")]), "'many' is no value for --max-model-len"),
        ((DEPLOYMENT, [{"target": "flag", "name": "--api-key", "value": "x"}]), "holds a secret"),
        ((DEPLOYMENT, [{"target": "k8s", "name": "resources.memory", "value": "1Gi"}]), "is no field"),
        (
            ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}, [LENGTH]),
            "holds no pod template",
        ),
        ((dict(DEPLOYMENT, spec=5), [LENGTH]), "the object"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words):
    with pytest.raises(AnsibleFilterError) as error:
        FILTER(*arguments)
    assert words in str(error.value)
    assert str(error.value).startswith("vllm_runbook.oom.workload_patch: ")
    assert "\n" not in str(error.value)
    assert "s3cr3t" not in str(error.value)
