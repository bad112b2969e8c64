# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where ``evidence_info`` reads: in Ansible's own process or as a module beside it, and that both return the same."""

from __future__ import annotations

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

from ansible_collections.vllm_runbook.oom.plugins.action.evidence_info import ActionModule

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"
BY_MODULE = {"by": "the module"}


@pytest.fixture
def run(monkeypatch):
    """A function that runs the action for a task on this machine: options, and what is different about the task."""

    def _run(args, transport="local", become=None, interpreter=sys.executable, basedir=EXAMPLES, **task):
        task = {"delegate_to": None, "async_val": 0, "environment": [], "args": args, **task}
        action = ActionModule(
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
    result = run({"bundle": "dev-shm"})
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
    ],
    ids=str,
)
def test_any_other_task_is_left_to_the_module(run, task):
    args = task.pop("args", {"bundle": "dev-shm"})
    assert run(args, **task) == BY_MODULE


def test_an_error_is_one_sentence_without_the_secrets_of_the_options(run, tmp_path):
    before = os.getcwd()
    result = run({"bundle": "nowhere"}, basedir=tmp_path)
    assert result == {"changed": False, "failed": True, "msg": result["msg"]}
    assert result["msg"].startswith("nowhere: no such file or directory")
    assert os.getcwd() == before
    result = run({"host": "http://127.0.0.1:1/planted-secret", "api_key": "planted-secret"})
    assert result["failed"]
    assert "http://127.0.0.1:1/" in result["msg"]
    assert "planted-secret" not in str(result)


PLAYBOOK = """\
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Here
      vllm_runbook.oom.evidence_info: "{{ item }}"
      loop: "{{ asked }}"
      register: here
    - name: As a module
      vllm_runbook.oom.evidence_info: "{{ item }}"
      loop: "{{ asked }}"
      register: there
      environment:
        ANY: thing
    - name: Keep both
      ansible.builtin.copy:
        dest: both.json
        mode: "0600"
        content: "{{ [here, there] | map(attribute='results') | map('map', attribute='evidence') | map('list') | to_json }}"
"""


def test_both_ways_return_the_same(tmp_path):
    pod = yaml.safe_load((EXAMPLES / "gpu-weights/pod.yaml").read_text(encoding="utf-8"))
    metadata = pod["metadata"]
    api = RecordedApi([pod])
    log = (EXAMPLES / "gpu-weights/vllm.log").read_bytes()
    log += b"\n{{ lookup('ansible.builtin.pipe', 'touch x') }}\n"
    for previous in (False, True):
        api.add_log(metadata["namespace"], metadata["name"], "vllm", log, previous=previous)
    (tmp_path / "vllm.log").write_bytes(log)
    (tmp_path / "both.yml").write_text(PLAYBOOK, encoding="utf-8")
    with api.serve():
        asked = [
            {"bundle": "vllm.log"},
            {"kubeconfig": api.kubeconfig(), "namespace": metadata["namespace"], "pod": metadata["name"]},
        ]
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        done = subprocess.run(
            [program, "-vvv", str(tmp_path / "both.yml"), "-e", json.dumps({"asked": asked})],
            cwd="/",
            env=dict(
                os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8"
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    # Of evidence_info, not of copy.
    modules = [
        line for line in done.stdout.splitlines() if "Using module file" in line and "evidence_info" in line
    ]
    assert len(modules) == len(asked)
    here, there = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))
    for document in here + there:
        document.pop("collected_at")
    assert [document["source"]["kind"] for document in here] == ["bundle", "cluster"]
    assert "touch x" in json.dumps(here[0])
    assert here == there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.json", "both.yml", "vllm.log"]
