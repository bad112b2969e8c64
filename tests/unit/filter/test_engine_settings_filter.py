# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.vllm_runbook.oom.plugins.filter import engine_settings as plugin
from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents

CONTAINER = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.20.0",
    "command": ["sh", "-c"],
    "args": ["exec vllm serve Qwen/Qwen3-8B --max-model-len 32k -tp $GPUS"],
    "env": [
        {"name": "GPUS", "value": "2"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    ],
}


def _filter(*args, **options):
    return plugin.FilterModule().filters()["engine_settings"](*args, **options)


def test_a_kubernetes_container():
    given = copy.deepcopy(CONTAINER)
    found = _filter(given)
    assert found["model"] == {"value": "Qwen/Qwen3-8B", "from": "arg", "line": None}
    assert found["max_model_len"]["value"] == 32000
    assert found["tensor_parallel_size"]["value"] == 2
    assert found["gpu_memory_utilization"] == {"value": 0.92, "from": "default", "line": None}
    assert found["HF_TOKEN"]["value"] == "***"
    assert given == CONTAINER


def test_an_evidence_container():
    older, newer = documents.attempt(0), documents.attempt(1)
    older["log"]["arguments"] = [documents.line(4, "non-default args: {'max_num_seqs': 1}")]
    container = documents.container(
        "vllm",
        image="vendor/image:1",
        engine=documents.engine("0.19.1"),
        args=["--max-num-seqs", "2"],
        attempts=[older, newer],
    )
    found = _filter(container)
    assert found["max_num_seqs"] == {"value": 1, "from": "log", "line": 4}
    assert found["gpu_memory_utilization"]["value"] == 0.9


def test_options():
    assert set(_filter({"args": ["m"]}, defaults=False)) == {"model"}
    assert _filter({}, version="0.19.1")["gpu_memory_utilization"]["value"] == 0.9
    config = {"max-model-len": 8192}
    assert _filter({"args": ["m"]}, config=config, defaults=False)["max_model_len"]["from"] == "config"


def test_the_example_is_true():
    example = yaml.safe_load(plugin.EXAMPLES)[0]
    assert _filter(example["vars"]["container"])["gpu_memory_utilization"]["value"] == 0.92


@pytest.mark.parametrize(
    ("container", "options", "message"),
    [
        (["vllm"], {}, "needs a container (a mapping), got list"),
        (None, {}, "needs a container (a mapping), got nothing"),
        ({"args": "--model m"}, {}, "needs a list in the container's 'args', got str"),
        ({"command": {"a": 1}}, {}, "needs a list in the container's 'command', got dict"),
        ({"env": [{"value": "1"}]}, {}, "needs a mapping with a name in the container's env[0]"),
        ({"env": ["A=1"]}, {}, "needs a mapping with a name in the container's env[0]"),
        ({}, {"config": "max-model-len: 1"}, "needs a mapping as config, got str; parse the file first"),
    ],
)
def test_wrong_input_is_one_sentence(container, options, message):
    with pytest.raises(AnsibleFilterError) as caught:
        _filter(container, **options)
    assert str(caught.value) == f"vllm_runbook.oom.engine_settings {message}"
