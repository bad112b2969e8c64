# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's options as changes, and what of them can't be right."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import wishes


def found(**options):
    return [(item["target"], item["name"], item["value"]) for item in wishes.changes_of(options)]


def test_options_become_changes():
    assert found(
        engine_args={"--max_model_len": 4096, "enforce_eager": None},
        env={"A": 1},
        resources={"limits": {"memory": "64Gi", "cpu": None}, "requests": {"cpu": 4}},
        shm_size="16Gi",
        startup_seconds=600,
        strategy={"max_surge": "0", "max_unavailable": "25%"},
    ) == [
        ("flag", "--max-model-len", 4096),
        ("flag", "--enforce-eager", None),
        ("env", "A", 1),
        ("k8s", "resources.limits.cpu", None),
        ("k8s", "resources.limits.memory", "64Gi"),
        ("k8s", "resources.requests.cpu", "4"),
        ("k8s", "volumes.shm.sizeLimit", "16Gi"),
        ("k8s", "startupProbe", 600),
        ("k8s", "strategy", {"maxSurge": 0, "maxUnavailable": "25%"}),
    ]
    assert found(strategy="Recreate") == [("k8s", "strategy", "Recreate")]


def planned(target, name, action, after, before=None):
    made = change(target, name, "set", after)
    return dict(made, container="vllm", action=action, before=before, after=after)


def test_a_plans_changes_are_taken_by_what_is_after_them():
    switch = dict(planned("flag", "--enforce-eager", "set", True), direction="add", value=None)
    strategy = planned("k8s", "strategy", "set", {"type": "Recreate", "max_surge": None})
    gone = dict(planned("k8s", "resources.limits.cpu", "remove", None, "8"), value="8")
    assert found(changes=[switch, strategy, gone]) == [
        ("flag", "--enforce-eager", True),
        ("k8s", "strategy", "Recreate"),
        ("k8s", "resources.limits.cpu", None),
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"env": {"A": {"b": 1}}}, "env: A is no text"),
        ({"resources": {"limit": {"cpu": 1}}}, "resources: give {requests: {...}, limits: {...}}"),
        ({"resources": {"limits": "64Gi"}}, "resources: give {requests"),
        ({"strategy": "recreate"}, "strategy: give Recreate, or max_surge and max_unavailable"),
        ({"strategy": {"max_surge": "some"}}, "strategy: 'some' is neither a number of pods nor a share"),
        ({"changes": ["x"]}, "changes[0]: a change is a dictionary"),
        ({"changes": [planned("flag", "--x", "set", None)]}, "changes[0]: --x: there is no value to set"),
    ],
)
def test_wrong_options(options, told):
    with pytest.raises(DocumentError) as refused:
        wishes.changes_of(options)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("name", "value", "version", "told"),
    [
        ("--swap-space", 4, "0.19.1", "vLLM 0.19.1 has no option --swap-space (it was removed after 0.17)"),
        ("--kv-cache-memory-bytes", 1, "0.10.0", "vLLM 0.10.0 has no option --kv-cache-memory-bytes (it came with 0.10.2)"),
        ("--max-modle-len", 1, None, "--max-modle-len is no option of vLLM that is known here (nearest: --max-model-len"),
        ("--gpu-memory-utilization", 95, None, "--gpu-memory-utilization: 95 is no fraction above 0 and up to 1"),
        ("--no-enable-chunked-prefill", True, "0.3.0", "vLLM 0.3.0 has no option --enable-chunked-prefill"),
    ],
)  # fmt: skip
def test_what_ends_an_engine_at_its_start(name, value, version, told):
    with pytest.raises(DocumentError) as refused:
        wishes.check_engine(planned("flag", name, "set", value), {}, version)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("item", "settings", "version", "warned"),
    [
        (planned("flag", "--swap-space", "set", 4), {}, "0.17.1", False),
        (planned("flag", "--swap-space", "remove", None), {}, "0.19.1", False),
        (planned("flag", "--swap-space", "set", 4), {}, None, True),
        (planned("flag", "--own-option", "set", 4), {"own_option": {"value": 3}}, "0.19.1", False),
        (planned("flag", "--own-option", "remove", None), {}, "0.19.1", False),
        (planned("flag", "--max-model-len", "set", 4096), {}, None, False),
        (planned("env", "VLLM_USE_V1", "set", "0"), {}, "0.19.1", True),
        (planned("env", "VLLM_USE_V1", "set", "0"), {}, "0.9.1", False),
        (planned("env", "MY_OWN", "set", "0"), {}, "0.9.1", False),
    ],
)
def test_what_may_be_set(item, settings, version, warned):
    assert bool(wishes.check_engine(item, settings, version)) is warned


def sized(limits, requests):
    return {"resources": {"limits": limits, "requests": requests}}


MEMORY = planned("k8s", "resources.limits.memory", "set", "8Gi")


@pytest.mark.parametrize(
    ("container", "ceiling", "told"),
    [
        (sized({"memory": "8Gi"}, {"memory": "16Gi"}), None, "resources.limits.memory of 8Gi would be below the request of 16Gi"),
        (sized({"memory": "16Gi"}, {"memory": "16Gi"}), None, None),
        (sized({"memory": "32Gi"}, {"memory": "16Gi"}), "15Gi", "max_memory of 15Gi is below the container's memory request of 16Gi"),
        (sized({"memory": "32Gi"}, {}), "15Gi", None),
        (sized({"cpu": "500m"}, {"cpu": "1"}), None, "resources.limits.cpu of 500m would be below the request of 1"),
    ],
)  # fmt: skip
def test_resources_that_contradict_each_other(container, ceiling, told):
    if told is None:
        wishes.check_resources(container, [MEMORY], ceiling)
        return
    with pytest.raises(DocumentError) as refused:
        wishes.check_resources(container, [MEMORY], ceiling)
    assert str(refused.value).startswith(told)
    # Nobody asked for another size: it isn't looked at.
    wishes.check_resources(container, [planned("env", "A", "set", "1")], ceiling)


@pytest.mark.parametrize(("size", "above"), [("64Gi", False), ("65Gi", True), (None, False)])
def test_the_ceiling(size, above):
    item = dict(MEMORY, value=size)
    if not above:
        wishes.check_ceiling(item, "64Gi")
        return
    with pytest.raises(DocumentError, match="is above the ceiling max_memory of 64Gi"):
        wishes.check_ceiling(item, "64Gi")
