# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public samples of the deployers are read right: what each says is in data/manifests/samples.yaml."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifest_files import Document
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import manifest_evidence
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import quantity_bytes

NOW = "2026-11-24T08:00:00Z"
SAMPLES = yaml.safe_load((Path(__file__).parent / "data" / "manifests" / "samples.yaml").read_text())
SETTINGS = {
    "model": "model",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "max_model_len": "max_model_len",
    "utilization": "gpu_memory_utilization",
}


def read(sample):
    found = [Document("sample.yaml", value) for value in sample.get("objects") or [sample["manifest"]]]
    return manifest_evidence(found, "sample.yaml", NOW)


def engine_of(pod):
    (found,) = [container for container in pod["containers"] if container["engine"]]
    return found


def told(engine, name):
    setting = engine["settings"].get(SETTINGS[name])
    return setting["value"] if setting and setting["from"] != "default" else None


def shm_of(pod):
    shm = pod["shm"]
    return None if shm["mounted_at"] is None else shm["size_limit"] or "none"


def seen(pod, expected):
    """What was read of a pod, in the words of the samples' file."""
    engine, request, work = engine_of(pod), pod["gpu_request"], pod["workload"]
    found = {name: told(engine, name) for name in SETTINGS}
    found.update(
        gpus=request["count"],
        memory=engine["resources"]["limits"].get("memory"),
        shm=shm_of(pod),
        members=pod["members"],
        group=pod["group"],
        source=(engine["model_source"] or {}).get("value"),
        others=[item["name"] for item in pod["containers"] if item is not engine],
    )
    optional = {
        "resource": request["resource"],
        "product": request["product"],
        "instance_type": request["instance_type"],
        "version": engine["engine"]["version"],
        "replicas": (work["replicas"] or {}).get("desired"),
        "edit": work["edit"]["path"],
        "arguments": work["edit"]["arguments"],
        "managers": [item["tool"] for item in work["managers"]],
        "env": {
            item["name"]: item["value"] for item in engine["env"] if item["name"] in expected.get("env", {})
        },
    }
    found.update({name: value for name, value in optional.items() if name in expected})
    return found


def right(expected):
    found = dict.fromkeys([*SETTINGS, "gpus", "memory", "shm", "group", "source"])
    found.update(members=1, others=[])
    found.update(expected)
    if found["shm"] not in (None, "none"):
        found["shm"] = quantity_bytes(found["shm"])
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["from"])
def test_a_public_sample_is_read_as_its_deployer_renders_it(sample):
    if "nothing" in sample:
        with pytest.raises(DocumentError) as caught:
            read(sample)
        assert sample["nothing"] in str(caught.value)
        return
    pods = {pod["name"]: pod for pod in read(sample)["pods"]}
    assert {name: seen(pod, sample["pods"].get(name, {})) for name, pod in pods.items()} == {
        name: right(expected) for name, expected in sample["pods"].items()
    }


def test_there_are_samples_of_many_deployers():
    assert len([sample for sample in SAMPLES if "pods" in sample]) >= 20


JUNK = ("text", 0, True, None, [], {}, ["a"], [None], {"a": 1}, {1: 2}, float("inf"))


def places(value, path=()):
    """The paths of all values below ``value``."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*path, key))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["from"])
def test_any_field_of_another_type_is_a_sentence_and_no_traceback(sample):
    """Each field is replaced by something else, by turns of everything that YAML has."""
    objects = sample.get("objects") or [sample["manifest"]]
    sentences = []
    for turn, path in enumerate(places(objects)):
        changed = copy.deepcopy(objects)
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = JUNK[turn % len(JUNK)]
        try:
            json.dumps(read({"objects": changed}))
        except DocumentError as error:
            sentences.append(str(error))
    assert sentences
    assert not [text for text in sentences if "\n" in text]
