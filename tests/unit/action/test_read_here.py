# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the modules that only read do so: in Ansible's own process or as a module beside it, and that both return the same."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.plugins.action.normal import ActionModule as RunModule
from support.recorded_api import RecordedApi

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import UNDO_ANNOTATION

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"
ACTIONS = "ansible_collections.vllm_runbook.oom.plugins.action"
BY_MODULE = {"by": "the module"}
BUNDLE = {"bundle": "dev-shm"}
NOWHERE = {"host": "http://127.0.0.1:1/planted-secret", "api_key": "planted-secret"}
LOOK = {"kind": "Deployment", "name": "llama", "namespace": "llm"}


@pytest.fixture
def run(monkeypatch):
    """A function that runs the action for a task on this machine: options, and what is different about the task."""

    def _run(
        args,
        module="evidence_info",
        transport="local",
        become=None,
        interpreter=sys.executable,
        basedir=EXAMPLES,
        **task,
    ):
        task = {"delegate_to": None, "async_val": 0, "environment": [], "args": args, **task}
        action = importlib.import_module(f"{ACTIONS}.{module}").ActionModule(
            task=SimpleNamespace(**task),
            connection=SimpleNamespace(transport=transport, become=become),
            play_context=None,
            loader=SimpleNamespace(get_basedir=lambda: str(basedir)),
            templar=SimpleNamespace(template=lambda value: value),
            shared_loader_obj=None,
        )
        return action.run(task_vars={"ansible_python_interpreter": interpreter})

    monkeypatch.setattr(RunModule, "run", lambda *_self_and_arguments: dict(BY_MODULE))
    return _run


def test_a_task_on_this_machine_reads_in_this_process(run):
    before = os.getcwd()
    result = run(BUNDLE)
    assert result["changed"] is False
    assert [item["name"] for item in result["evidence"]["pods"][0]["containers"]] == ["kserve-container"]
    assert os.getcwd() == before


@pytest.mark.parametrize(
    "task",
    [
        {"transport": "ssh"},
        {"become": "sudo"},
        {"interpreter": "/opt/other/bin/python"},
        {"interpreter": None},
        {"delegate_to": "bastion"},
        {"async_val": 60},
        {"environment": [{}, {"HTTPS_PROXY": "http://proxy:3128"}]},
        {"args": {"bundle": "dev-shm", "namespace": "llm"}},
        {"args": {"bundel": "dev-shm"}},
        {"module": "serving_info", "args": {"kind": "Deployment"}},
        {"module": "serving_info", "args": LOOK, "transport": "ssh"},
        {"module": "changes_info", "args": {"workload": "deployment/llama", "all_namespaces": True}},
        {"module": "changes_info", "args": {}, "become": "sudo"},
    ],
    ids=str,
)
def test_any_other_task_is_left_to_the_module(run, task):
    args = task.pop("args", BUNDLE)
    assert run(args, **task) == BY_MODULE


def test_an_error_is_one_sentence_without_the_secrets_of_the_options(run, tmp_path):
    before = os.getcwd()
    result = run({"bundle": "nowhere"}, basedir=tmp_path)
    assert result == {"changed": False, "failed": True, "msg": result["msg"]}
    assert result["msg"].startswith("nowhere: no such file or directory")
    assert os.getcwd() == before


@pytest.mark.parametrize(
    ("module", "args"),
    [("evidence_info", {}), ("serving_info", LOOK), ("changes_info", {"namespace": "llm"})],
)
def test_a_cluster_that_is_not_there_is_one_sentence_without_the_secrets_of_the_options(run, module, args):
    result = run({**args, **NOWHERE}, module=module)
    assert result == {"changed": False, "failed": True, "msg": result["msg"]}
    assert "http://127.0.0.1:1/" in result["msg"]
    assert "planted-secret" not in str(result)


def test_the_key_of_the_engine_is_in_no_result(run, monkeypatch):
    monkeypatch.setenv("VLLM_OOM_API_KEY", "planted-key")
    result = run({**LOOK, "kind": "planted-key", **NOWHERE}, module="serving_info")
    assert result["failed"]
    assert "api_version" in result["msg"]
    assert "planted-key" not in str(result)


PLAYBOOK = """\
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Here
      vllm_runbook.oom.MODULE: "{{ item }}"
      loop: "{{ asked }}"
      register: here
    - name: As a module
      vllm_runbook.oom.MODULE: "{{ item }}"
      loop: "{{ asked }}"
      register: there
      environment:
        ANY: thing
    - name: Keep both
      ansible.builtin.copy:
        dest: both.json
        mode: "0600"
        content: "{{ [here, there] | map(attribute='results') | map('map', attribute='KEY') | map('list') | to_json }}"
"""
TEMPLATE = "{{ lookup('ansible.builtin.pipe', 'touch x') }}"


def both_ways(folder, module, key, asked):
    """What both return for each of ``asked``."""
    (folder / "both.yml").write_text(PLAYBOOK.replace("MODULE", module).replace("KEY", key), encoding="utf-8")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "-vvv", str(folder / "both.yml"), "-e", json.dumps({"asked": asked})],
        cwd="/",
        env=dict(os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Not those of copy.
    modules = [line for line in done.stdout.splitlines() if "Using module file" in line and module in line]
    assert len(modules) == len(asked)
    return json.loads((folder / "both.json").read_text(encoding="utf-8"))


def test_both_ways_read_the_same_evidence(tmp_path):
    pod = yaml.safe_load((EXAMPLES / "gpu-weights/pod.yaml").read_text(encoding="utf-8"))
    metadata = pod["metadata"]
    api = RecordedApi([pod])
    log = (EXAMPLES / "gpu-weights/vllm.log").read_bytes() + f"\n{TEMPLATE}\n".encode()
    for previous in (False, True):
        api.add_log(metadata["namespace"], metadata["name"], "vllm", log, previous=previous)
    (tmp_path / "vllm.log").write_bytes(log)
    with api.serve():
        asked = [
            {"bundle": "vllm.log"},
            {"kubeconfig": api.kubeconfig(), "namespace": metadata["namespace"], "pod": metadata["name"]},
        ]
        here, there = both_ways(tmp_path, "evidence_info", "evidence", asked)
    for document in here + there:
        document.pop("collected_at")
    assert [document["source"]["kind"] for document in here] == ["bundle", "cluster"]
    assert "touch x" in json.dumps(here[0])
    assert here == there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.json", "both.yml", "vllm.log"]


def test_both_ways_see_the_same_rollout(tmp_path):
    """One that waits for a pod, whose log isn't there."""
    labels, api = {"app": "llama"}, RecordedApi()
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "llama", "uid": "u-set"}
    about = {"namespace": "llm", "creationTimestamp": "2026-11-30T07:00:00Z"}
    template = {
        "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "m"]}]
    }
    api.add(
        {
            **{name: owner[name] for name in ("apiVersion", "kind")},
            "metadata": {**about, "name": "llama", "uid": "u-set", "generation": 1},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"spec": template}},
            "status": {"observedGeneration": 1, "updateRevision": "r", "currentRevision": "r"},
        }
    )
    waiting = {"reason": "ImagePullBackOff", "message": TEMPLATE}
    api.add(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **about,
                "name": "llama-0",
                "uid": "u-pod",
                "labels": {**labels, "controller-revision-hash": "r"},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": template,
            "status": {
                "phase": "Pending",
                "containerStatuses": [{"name": "vllm", "restartCount": 0, "state": {"waiting": waiting}}],
            },
        }
    )
    with api.serve():
        asked = [{**LOOK, "kind": "StatefulSet", "kubeconfig": api.kubeconfig()}]
        (here,), (there,) = both_ways(tmp_path, "serving_info", "serving", asked)
    assert here["verdict"] == "failed"
    assert "touch x" in here["sentence"]
    assert {**here, "at": None} == {**there, "at": None}
    assert not (tmp_path / "x").exists()


def test_both_ways_see_the_same_changes(tmp_path):
    record = {
        "id": "r1",
        "run": TEMPLATE,
        "at": "2026-11-30T06:00:00Z",
        "causes": [],
        "changes": [],
        "steps": [],
    }
    annotations = {UNDO_ANNOTATION: json.dumps({"records": [{**record, "verdict": "served"}]})}
    metadata = {"namespace": "llm", "name": "llama", "uid": "u", "generation": 3, "annotations": annotations}
    api = RecordedApi([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}])
    with api.serve():
        asked = [{"namespace": "llm", "kubeconfig": api.kubeconfig()}]
        ((here,),), ((there,),) = both_ways(tmp_path, "changes_info", "objects", asked)
    assert (here["name"], here["verdict"], here["run"]) == ("llama", "served", TEMPLATE)
    assert here == there
