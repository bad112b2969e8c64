# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says can be written: each planned change as an operation on the object, at its own container."""

from __future__ import annotations

import pytest
from plan_samples import EVERYTHING, diagnosis, evidence, planned, workload
from test_causes import CHECKED, PLANNED, advised, finding, names, sick, sized

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.as_written import (
    operation_of,
    patch,
    path_of_container,
)

ENGINE = "spec.template.spec.containers[vllm]"


def manifest(**container):
    """The Deployment that ``test_causes.sick`` is a pod of."""
    engine = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": [
            *("--model", "org/model", "--api-key", "s3cr3t", "--max-model-len", "40960"),
            *("--gpu-memory-utilization", "0.9", "--tensor-parallel-size", "1"),
        ],
        "resources": {
            "limits": {"memory": "40Gi", "cpu": "4", "nvidia.com/gpu": "1"},
            "requests": {"memory": "32Gi", "cpu": "4"},
        },
        "startupProbe": {
            "httpGet": {"path": "/health", "port": 8000},
            "failureThreshold": 30,
            "periodSeconds": 10,
        },
        **container,
    }
    proxy = {"name": "proxy", "image": "envoy:v1", "resources": {"limits": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vllm", "namespace": "llm", "generation": 4},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [proxy, engine]}}},
    }


def engine_of(raw):
    return raw["spec"]["template"]["spec"]["containers"][1]


def deployed():
    seen = sick()
    counts = {"desired": 1, "ready": 0, "updated": 1}
    return dict(seen, workload=workload("Deployment", replicas=counts))


@pytest.mark.parametrize("cause", sorted(PLANNED))
def test_every_planned_change_of_a_cause_can_be_written(cause):
    seen = deployed()
    asked = advised(cause, seen)
    found = planned(diagnosis(asked), evidence(seen), sized(asked), **EVERYTHING)
    steps = {item["step"] for item in found["changes"] if item["state"] == "planned"}
    for step in steps:
        changes = [item["change"] for item in found["changes"] if item["step"] == step]
        made = patch(manifest(), ENGINE, changes)
        assert made.refused == []
        # the second run finds it done
        assert patch(made.after, ENGINE, changes).json_patch == []
    chosen = found["apply"]["changes"]
    assert bool(chosen) is bool(steps)
    assert patch(manifest(), ENGINE, chosen).refused == []


@pytest.mark.parametrize("cause", sorted(CHECKED))
def test_every_planned_change_against_a_risk_can_be_written(cause):
    seen, (recommended, expected) = deployed(), CHECKED[cause]
    changes = [documents.change(*item, why="a check", proof="arithmetic") for item in recommended]
    asked = finding(cause, *changes, role="risk", attempt=None)
    found = planned(diagnosis(asked), evidence(seen), sized(asked), **EVERYTHING)
    assert names(found) == expected
    planned_ = [item["change"] for item in found["changes"] if item["state"] == "planned"]
    assert patch(manifest(), ENGINE, planned_).refused == []


def as_planned(name, after, target="k8s", **more):
    made = documents.change(target, name, "set", None if isinstance(after, bool) else after)
    return dict(made, **dict({"container": "vllm", "action": "set", "before": None, "after": after}, **more))


@pytest.mark.parametrize(
    ("change", "where", "expected"),
    [
        (as_planned("--enforce-eager", True, "flag"), "args", "--enforce-eager"),
        (as_planned("image", "vllm/vllm-openai:v0.10.0"), "image", "vllm/vllm-openai:v0.10.0"),
        (
            as_planned("startupProbe", {"failureThreshold": 60, "periodSeconds": 10}),
            "startupProbe",
            {"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 60, "periodSeconds": 10},
        ),
    ],
)
def test_a_plans_words_are_the_objects(change, where, expected):
    made = patch(manifest(), ENGINE, [change])
    found = engine_of(made.after)[where]
    assert found[-1] == expected if where == "args" else found == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"type": "Recreate"}, {"type": "Recreate"}),
        (
            {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        ),
        ("Recreate", {"type": "Recreate"}),
        ({"maxSurge": 0}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}),
    ],
)
def test_a_strategy_in_either_spelling(after, expected):
    assert patch(manifest(), ENGINE, [as_planned("strategy", after)]).after["spec"]["strategy"] == expected


def test_each_change_goes_to_its_own_container():
    changes = [
        as_planned("resources.limits.cpu", None, action="remove", container="proxy"),
        as_planned("resources.limits.memory", "64Gi"),
    ]
    made = patch(manifest(), ENGINE, changes)
    proxy, engine = made.after["spec"]["template"]["spec"]["containers"]
    assert proxy["resources"] == {"limits": {}}
    assert engine["resources"]["limits"] == {"memory": "64Gi", "cpu": "4", "nvidia.com/gpu": "1"}
    assert [step["path"] for step in made.undo["steps"]] == [
        "spec.template.spec.containers[proxy].resources.limits.cpu",
        "spec.template.spec.containers[vllm].resources.limits.memory",
    ]


@pytest.mark.parametrize(
    ("path", "container", "expected"),
    [
        (ENGINE, None, ENGINE),
        (ENGINE, "vllm", ENGINE),
        (ENGINE, "proxy", "spec.template.spec.containers[proxy]"),
        ("spec.containers[main]", "side", "spec.containers[side]"),
        ("spec.predictor.model", None, "spec.predictor.model"),
        ("spec.predictor.model", "kserve-container", "spec.predictor.model"),
        (None, "proxy", None),
    ],
)
def test_the_path_of_a_container(path, container, expected):
    assert path_of_container(path, container) == expected


def test_a_container_that_the_object_does_not_have_is_refused():
    change = as_planned("resources.limits.cpu", None, action="remove", container="other")
    made = patch(manifest(), ENGINE, [change])
    assert [item["change"] for item in made.refused] == [change]
    assert "containers[other]" in made.refused[0]["why"]
    assert made.json_patch == []


def test_an_engine_in_fields_of_its_kind_has_the_name_that_the_operator_gives():
    raw = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "llama"},
        "spec": {"predictor": {"model": {"args": ["--max-model-len=8192"]}}},
    }
    made = patch(
        raw,
        "spec.predictor.model",
        [as_planned("--max-model-len", 4096, "flag", container="kserve-container")],
    )
    assert made.refused == []
    assert made.after["spec"]["predictor"]["model"]["args"] == ["--max-model-len=4096"]


def test_what_is_shown_as_before_is_never_written():
    """It comes from redacted evidence."""
    made = patch(manifest(), ENGINE, [as_planned("--max-model-len", 16384, "flag", before="***")])
    assert "***" not in str(made.json_patch)
    assert engine_of(made.after)["args"][2:6] == ["--api-key", "s3cr3t", "--max-model-len", "16384"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("--max-model-len", "a change is a dictionary with target, name and value"),
        ({"target": "flag"}, "a change is a dictionary with target, name and value"),
        (
            {"target": "file", "name": "x", "value": 1},
            "the target of a change is one of flag, env, k8s, action",
        ),
        (
            {"target": "flag", "name": "--x", "direction": "up", "value": 1},
            "the direction of a change is one of",
        ),
        ({"target": "flag", "name": "--x"}, "there is no value to set"),
        (documents.change("action", "free_gpu", "set"), "only a person can"),
        (as_planned("livenessProbe", None, action=None), "only a person can"),
    ],
)
def test_what_is_no_change_is_refused_in_one_sentence(change, said):
    with pytest.raises(DocumentError, match=said) as raised:
        operation_of(change)
    assert "\n" not in str(raised.value)
