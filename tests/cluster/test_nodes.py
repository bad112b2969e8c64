# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_node_info reads on a node whose containers really run: a kill by the kernel, GPU processes and their pods, a pod's inside.

The node is this machine. nvidia-smi replays the situations of tests/unit/evidence/smi, with processes of real containers in them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import workplace
from harness import run_environment, wait_for
from manifests import engine, in_namespace, pod, ready, terminations
from testcluster import ROOT, cgroups

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import kernel_oom
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.local_machine import Machine
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.node_reader import read_node

pytestmark = [pytest.mark.kubelet, pytest.mark.ours]

RECORDED = ROOT / "tests" / "unit" / "evidence" / "smi"
NODE = "gpu-node-1"
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
LIMIT = 64 << 20
READY = {"exec": {"command": ["true"]}, "periodSeconds": 1}
# Situation: how many processes its recording has. The first becomes the pod's, further ones stay somebody else's.
SITUATIONS = {
    "idle.xml": 0,
    "full.xml": 1,
    "foreign-pod.xml": 2,
    "zombie-unknown-name.xml": 2,
    "mig-in-use.xml": 3,
    "vgpu-guest.xml": 0,
    "remap-pending.xml": 0,
    "lost-named.xml": 1,
    "mps.xml": 3,
    "nvswitch-8.xml": 1,
}


def scripted(name: str, script: str, **fields) -> dict:
    """A pod whose container is an engine by its image and name, and runs a script."""
    made = engine(memory="64Mi", readinessProbe=READY, **fields)
    return pod(name, {**made, "command": ["sh", "-c", script], "args": []})


def container_id(status: dict) -> str:
    return status["containerID"].partition("://")[2]


def read(folder: Path, recording: str | None = None, pids: dict | None = None, **options) -> dict:
    """The node as root reads it on this machine. pids: recorded process number -> the one to name instead."""
    if recording:
        text = (RECORDED / recording).read_text()
        for old, new in (pids or {}).items():
            text = text.replace(f"<pid>{old}</pid>", f"<pid>{new}</pid>")
        (folder / "recorded.xml").write_text(text)
        said = RECORDED / f"{Path(recording).stem}.stderr.txt"
        complain = f"cat {said} >&2; " if said.exists() else ""
        script = folder / "nvidia-smi"
        script.write_text(
            f'#!/bin/sh\n{complain}[ "$*" = "-q -x" ] || exit 2\nexec cat {folder}/recorded.xml\n'
        )
        script.chmod(0o755)
        options["nvidia_smi"] = str(script)
    return read_node(NODE, machine=Machine(10), **options)


@pytest.fixture(scope="module")
def started(kubectl):
    """A namespace with a pod that runs and one that the kernel kills: ``{name: pod object}``."""
    namespace = f"nodes-{os.getpid()}"
    kubectl("create", "namespace", namespace)
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=30s")
    running = scripted("running", "NCCL_DEBUG=WARN exec sleep 1000", env={"NCCL_NVLS_ENABLE": "0"})
    killed = scripted("killed", "exec tail /dev/zero")
    killed["spec"]["restartPolicy"] = "Never"
    kubectl.apply(in_namespace([running, killed], namespace))

    def settled():
        pods = {item["metadata"]["name"]: item for item in kubectl.items("pods", "-n", namespace)}
        over = [end for end in terminations(pods["killed"]) if end["reason"] == "OOMKilled"]
        return pods if over and ready()([pods["running"]]) else None

    yield wait_for("one pod runs, one is killed", settled)
    kubectl("delete", "namespace", namespace, "--wait=false")


def test_the_kernels_report_leads_to_the_container_that_it_killed(started, tmp_path):
    killed = started["killed"]
    ended = killed["status"]["containerStatuses"][0]
    document = read(tmp_path, sources=["kernel"], since=3600)
    reports = kernel_oom.parse([entry["text"] for entry in document["nodes"][NODE]["kernel_oom"]])
    (report,) = [item for item in reports if item["container_id"] == container_id(ended)]
    assert report["pod_uid"] == killed["metadata"]["uid"]
    assert (report["victim"], report["enforced_on"]) == ("tail", "limit")
    # The pod's own cgroup has the same limit, with its one container.
    assert report["scope"] in ("container", "pod")
    assert report["limit"] == LIMIT
    # The share of each kind, of the process and of its cgroup.
    assert LIMIT // 2 < report["anon"] <= LIMIT
    assert report["shmem"] == 0
    (time,) = {
        entry["time"]
        for entry in document["nodes"][NODE]["kernel_oom"]
        if container_id(ended) in entry["text"] and "oom-kill:" in entry["text"]
    }
    finished = ended["state"]["terminated"]["finishedAt"]
    assert time[:16] in (finished[:16], ended["state"]["terminated"]["startedAt"][:16])


@pytest.mark.parametrize("recording", SITUATIONS)
def test_a_process_on_a_gpu_leads_to_its_pod(started, tmp_path, recording):
    running = started["running"]
    container = container_id(running["status"]["containerStatuses"][0])
    (pid,) = cgroups.processes_of(container)
    numbers = list(dict.fromkeys(re.findall(r"<pid>(\d+)</pid>", (RECORDED / recording).read_text())))
    pids = dict.fromkeys(numbers[:1], pid)
    document = read(tmp_path, recording, pids, sources=["gpus", "processes", "cgroups", "limits", "nccl"])
    node = document["nodes"][NODE]
    assert len(node["processes"]) == SITUATIONS[recording]
    ours = [item for item in node["processes"] if item["pod_uid"] == running["metadata"]["uid"]]
    assert len(ours) == min(1, SITUATIONS[recording])
    for process in ours:
        assert (process["pid"], process["container_id"], process["alive"]) == (pid, container, True)
        assert process["command"] == "sleep …"
        assert process["ns_pid"] == 1
        counters = node["cgroups"][container]
        assert (counters["version"], counters["memory"]["limit"]) == (cgroups.version(), LIMIT)
        # A recorded number may be that of some other process that lives here.
        assert [item["variables"] for item in node["nccl"]["processes"] if pid in item["pids"]] == [
            {"NCCL_DEBUG": "WARN", "NCCL_NVLS_ENABLE": "0"}
        ]
        assert {entry["pid"] for entry in node["limits"]} >= {0, pid}
    # Recorded process numbers that aren't ours belong to nobody here, or to something that isn't the pod.
    assert all(item["pod_uid"] is None for item in node["processes"] if item not in ours)


PLAYBOOK = """\
- hosts: all
  gather_facts: false
  roles:
    - role: vllm_runbook.oom.gpu_node
  tasks:
    - name: Save the evidence
      ansible.builtin.copy:
        content: "{{ gpu_node_evidence | to_json }}"
        dest: "{{ saved }}"
        mode: "0600"
      delegate_to: localhost
      vars:
        ansible_connection: local
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
"""


def with_python(name: str, folder: Path) -> dict:
    """An engine's pod with the Python of this machine in it, and with its programs of ``folder`` in /smi."""
    made = scripted(name, "sleep 1000", env={"NCCL_NVLS_ENABLE": "0", "HF_TOKEN": "hf_QzR4vT9wLkPmNbXcJd"})
    mounts = {"/usr": "/usr", "/usr/lib": "/lib", "/usr/lib64": "/lib64", str(folder): "/smi"}
    made["spec"]["volumes"] = [
        {"name": f"host-{number}", "hostPath": {"path": path}} for number, path in enumerate(mounts)
    ]
    made["spec"]["containers"][0]["volumeMounts"] = [
        {"name": f"host-{number}", "mountPath": place, "readOnly": True}
        for number, place in enumerate(mounts.values())
    ]
    made["spec"]["containers"][0]["resources"]["limits"]["memory"] = "256Mi"
    return made


def test_in_a_pod_through_the_kubectl_connection(cluster, kubectl, namespace, tmp_path):
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no /usr/bin/python3 on this machine that a container could use")
    programs = tmp_path / "smi"
    programs.mkdir()
    (programs / "nvidia-smi").write_text('#!/bin/sh\n[ "$*" = "-q -x" ] || exit 2\nexec cat /smi/full.xml\n')
    (programs / "nvidia-smi").chmod(0o755)
    (programs / "full.xml").write_bytes((RECORDED / "full.xml").read_bytes())
    kubectl.apply(in_namespace([with_python("llama", programs)], namespace))
    wait_for("the pod is ready", lambda: ready()(kubectl.items("pods", "-n", namespace)))

    host = {
        "ansible_connection": "kubernetes.core.kubectl",
        "ansible_kubectl_kubeconfig": str(cluster.kubeconfig),
        "ansible_kubectl_namespace": namespace,
        "ansible_kubectl_pod": "llama",
        "ansible_kubectl_container": "vllm",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_remote_tmp": "/tmp/ansible",
        "gpu_node_name": NODE,
        "gpu_node_nvidia_smi": "/smi/nvidia-smi",
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": {"llama": host}}}))
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    saved = tmp_path / "evidence.json"
    environment = run_environment(cluster.kubeconfig, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
    environment["PATH"] = f"{cluster.kubectl_program.parent}:{workplace.path_without_shims()}"
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "-i", tmp_path / "inventory.json", tmp_path / "play.yml", "-e", f"saved={saved}"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    document = json.loads(saved.read_text())
    node = document["nodes"][NODE]
    (item,) = kubectl.items("pods", "-n", namespace)
    assert node["reader"]["pod_uid"] == item["metadata"]["uid"]
    assert node["reader"]["pid_namespace"] == "own"
    assert node["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    # The recorded process number means another process here, or none.
    assert [process["pod_uid"] for process in node["processes"]] == [None]
    assert node["nccl"]["variables"] == {"NCCL_NVLS_ENABLE": "0"}
    assert node["shm"]["size"] == 64 << 20
    assert [entry["pid"] for entry in node["limits"]] == [0]
    missing = {entry["source"] for entry in document["unreadable"]}
    assert {"processes", "kernel log", "services"} <= missing
    assert "hf_QzR4" not in saved.read_text()
    own = container_id(item["status"]["containerStatuses"][0])
    if cgroups.version() == 1:
        assert node["cgroups"][own]["memory"]["limit"] == 256 << 20
