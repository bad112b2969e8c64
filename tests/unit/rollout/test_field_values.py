# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change found in the live object and what it made of it, in one form."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation import as_written
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import wording
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.field_values import before_and_after
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.places import Place
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.wishes import changes_of

PATH = "spec.template.spec.containers[vllm]"
HEALTH = {"httpGet": {"path": "/health", "port": 8000}}
STRATEGIES = {"Deployment": "strategy", "StatefulSet": "updateStrategy"}
GPUS = {"limits": {"nvidia.com/gpu": "2", "memory": "8Gi"}, "requests": {"nvidia.com/gpu": "2"}}


def live(kind="Deployment", strategy=None, **container):
    """An object as the API server keeps it."""
    engine = {
        "name": "vllm",
        "command": ["vllm", "serve"],
        "args": ["m", "--max-model-len", "8192"],
        **container,
    }
    spec = {"template": {"spec": {"containers": [engine]}}}
    if strategy is not None:
        spec[STRATEGIES[kind]] = strategy
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {}, "spec": spec}


def told(raw, **wishes):
    """The change that these options of module workload are, in words."""
    (item,) = changes_of(wishes)
    made = as_written.patch(raw, PATH, [item], guard=False)
    assert not made.refused
    assert made.undo["steps"]
    place = Place("apps/v1", raw["kind"], "llm", "llama", "")
    before, after = before_and_after(item, PATH, place, raw, made)
    return wording.words_of(dict(item, container=None, before=before, after=after))


def planned(name, after):
    return {"changes": [{"target": "k8s", "name": name, "action": "set", "after": after, "direction": "set"}]}


DEFAULT = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
DEFAULT_WORDS = "type: RollingUpdate, max_surge: 25%, max_unavailable: 25%"


@pytest.mark.parametrize("strategy", [None, {}, DEFAULT], ids=["absent", "empty", "as the server writes it"])
def test_the_default_strategy_is_one(strategy):
    assert (
        told(live(strategy=strategy), strategy="Recreate") == f"strategy: {DEFAULT_WORDS} -> type: Recreate"
    )


@pytest.mark.parametrize(
    ("raw", "wanted", "words"),
    [
        (
            live(strategy=DEFAULT),
            {"max_surge": 0, "max_unavailable": 1},
            f"{DEFAULT_WORDS} -> type: RollingUpdate, max_surge: 0, max_unavailable: 1",
        ),
        (
            live(strategy={"type": "Recreate"}),
            {"max_surge": 0},
            "type: Recreate -> type: RollingUpdate, max_surge: 0, max_unavailable: 25%",
        ),
        (
            live("StatefulSet", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
            {"max_unavailable": 2},
            "type: RollingUpdate -> type: RollingUpdate, max_unavailable: 2",
        ),
    ],
)
def test_a_strategy_has_the_same_fields_on_both_sides(raw, wanted, words):
    assert told(raw, strategy=wanted) == f"strategy: {words}"


def test_a_strategy_of_a_plan_has_them_too():
    wanted = planned("strategy", {"type": "Recreate", "max_surge": None, "max_unavailable": None})
    assert told(live(strategy=DEFAULT), **wanted) == f"strategy: {DEFAULT_WORDS} -> type: Recreate"


@pytest.mark.parametrize(
    ("probes", "wanted", "words"),
    [
        (
            {"startupProbe": {**HEALTH, "failureThreshold": 2, "periodSeconds": 5, "initialDelaySeconds": 7}},
            {"startup_seconds": 607},
            "17 s -> 607 s",
        ),
        ({"startupProbe": HEALTH}, {"startup_seconds": 600}, "30 s -> 600 s"),
        # Probes come whole periods apart.
        ({"startupProbe": HEALTH}, {"startup_seconds": 601}, "30 s -> 610 s"),
        ({"livenessProbe": HEALTH}, {"startup_seconds": 600}, "not set -> 600 s"),
        (
            {"startupProbe": {**HEALTH, "failureThreshold": 2}},
            planned("startupProbe", {"failureThreshold": 60, "periodSeconds": 10}),
            "failureThreshold: 2, periodSeconds: 10 -> failureThreshold: 60, periodSeconds: 10",
        ),
        (
            {"startupProbe": HEALTH},
            planned("startupProbe", {"failureThreshold": 60}),
            "failureThreshold: 3 -> failureThreshold: 60",
        ),
    ],
)
def test_a_startup_probe_is_seconds_or_fields_as_it_was_asked_for(probes, wanted, words):
    assert told(live(**probes), **wanted) == f"startupProbe: {words}"


@pytest.mark.parametrize(
    ("container", "wanted", "words"),
    [
        ({}, {"engine_args": {"max_model_len": 4096}}, "--max-model-len: 8192 -> 4096"),
        ({}, {"engine_args": {"max_model_len": None}}, "--max-model-len: 8192 -> not set"),
        ({}, {"engine_args": {"enforce_eager": True}}, "--enforce-eager: not set -> on"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": {"A": "2"}}, "A: 1 -> 2"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": {"A": None}}, "A: 1 -> not set"),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
            {"env": {"A": None}},
            "A: a reference -> not set",
        ),
        ({}, {"env": {"A": "2"}}, "A: not set -> 2"),
        # A request and a limit that are one number.
        (
            {"resources": GPUS},
            {"resources": {"limits": {"nvidia.com/gpu": 4}}},
            "resources.limits.nvidia.com/gpu: 2 -> 4",
        ),
        ({"resources": GPUS}, {"resources": {"limits": {"gpu": 4}}}, "resources.limits.gpu: 2 -> 4"),
        (
            {"resources": GPUS},
            {"resources": {"limits": {"memory": "16Gi"}}},
            "resources.limits.memory: 8Gi -> 16Gi",
        ),
        (
            {"resources": GPUS},
            {"resources": {"requests": {"memory": "8Gi"}}},
            "resources.requests.memory: not set -> 8Gi",
        ),
        ({}, {"shm_size": "16Gi"}, "volumes.shm.sizeLimit: not set -> 16Gi"),
    ],
)
def test_other_fields_are_what_they_were(container, wanted, words):
    assert told(live(**container), **wanted) == words
