# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make demo` says of each example in docs/examples (its README tells what happened in each)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import console, view_model

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


def _named(change):
    """Name and direction of a change; a flag by its option's name."""
    return change["name"].lstrip("-").replace("-", "_"), change["direction"]


# example -> (cause, memory, phase, one of these changes is among the first two, none of these is recommended alone)
EXPECTED = {
    "gpu-weights": (
        "gpu_weights_oom",
        "gpu",
        "load",
        {("tensor_parallel_size", "increase"), ("smaller_quantization", "set")},
        {("gpu_memory_utilization", "decrease"), ("gpu_memory_utilization", "increase")},
    ),
    "kv-no-blocks.log": (
        "kv_no_blocks",
        "gpu",
        "kv_init",
        {("max_num_batched_tokens", "decrease"), ("max_num_seqs", "decrease")},
        {("gpu_memory_utilization", "decrease")},
    ),
    "max-model-len": (
        "kv_max_len",
        "gpu",
        "kv_init",
        {("max_model_len", "decrease")},
        {("gpu_memory_utilization", "decrease")},
    ),
    "neighbour-on-gpu.log": (
        "gpu_free_below_util",
        "gpu",
        "load",
        {("free_gpu", "set"), ("gpu_memory_utilization", "decrease")},
        {("gpu_memory_utilization", "increase"), ("max_model_len", "decrease")},
    ),
    "graph-capture.log": (
        "cudagraph_capture_oom",
        "gpu",
        "graph_capture",
        {("gpu_memory_utilization", "decrease"), ("enforce_eager", "add")},
        {("gpu_memory_utilization", "increase")},
    ),
    "serving-oom": (
        "serving_gpu_oom",
        "gpu",
        "serving",
        {("max_num_batched_tokens", "decrease"), ("gpu_memory_utilization", "decrease")},
        {("gpu_memory_utilization", "increase")},
    ),
    "nccl-oom.log": (
        "nccl_gpu_oom",
        "nccl_gpu",
        "graph_capture",
        {("gpu_memory_utilization", "decrease")},
        {("gpu_memory_utilization", "increase"), ("volumes.shm.sizeLimit", "increase")},
    ),
    "host-oomkilled": (
        "host_oom_load",
        "host",
        "load",
        {("safetensors_load_strategy", "set"), ("resources.limits.memory", "increase")},
        {("gpu_memory_utilization", "decrease")},
    ),
    "dev-shm": (
        "shm_exhausted",
        "shm",
        "load",
        {("volumes.shm", "add"), ("volumes.shm.sizeLimit", "increase")},
        {("gpu_memory_utilization", "decrease")},
    ),
    "cpu-limit.json": (
        "cpu_throttling",
        "none",
        "serving",
        {("resources.limits.cpu", "remove")},
        {("resources.limits.memory", "increase")},
    ),
    "probe-kill": (
        "probe_kill",
        "none",
        "profile",
        {("startupProbe", "increase")},
        {("resources.limits.memory", "increase"), ("gpu_memory_utilization", "decrease")},
    ),
}


def _demo_bundles():
    plays = yaml.safe_load((EXAMPLES / "demo.yml").read_text(encoding="utf-8"))
    return plays[0]["vars"]["demo_bundles"]


def test_the_demo_shows_every_example():
    shown = {path.name for path in EXAMPLES.iterdir() if path.is_dir() or path.suffix in (".log", ".json")}
    shown.remove("manifests")  # nothing has run there that could be diagnosed; test_manifests.py reads them
    assert sorted(_demo_bundles()) == sorted(shown) == sorted(EXPECTED)


@pytest.fixture(scope="module")
def diagnosed():
    """Example -> (evidence, diagnosis)."""
    found = {}
    for name in EXPECTED:
        evidence = read_bundle(str(EXAMPLES / name))
        found[name] = (evidence, diagnose(evidence))
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_understood(name, diagnosed):
    cause, memory, phase, right, wrong = EXPECTED[name]
    _evidence, diagnosis = diagnosed[name]
    assert len(diagnosis["pods"]) == 1
    verdict = diagnosis["pods"][0]["verdict"]
    assert (verdict["cause"], verdict["memory"], verdict["phase"]) == (cause, memory, phase)
    assert verdict["is_memory"] is (memory != "none")
    trigger = next(item for item in diagnosis["pods"][0]["findings"] if item["role"] == "trigger")
    assert right & {_named(change) for change in trigger["recommend"][:2]}
    assert not wrong & {_named(change) for change in trigger["recommend"] if not change["with"]}
    assert trigger["evidence"]
    assert trigger["check"]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_shown_in_20_lines(name, diagnosed):
    evidence, diagnosis = diagnosed[name]
    lines = console.render(view_model.view(diagnosis, evidence)).splitlines()
    assert len(lines) <= 20
    assert EXPECTED[name][0] in lines[0]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_takes_little_room(name, diagnosed):
    evidence, _diagnosis = diagnosed[name]
    assert len(view_model.as_json(evidence)) < 128 * 1024
