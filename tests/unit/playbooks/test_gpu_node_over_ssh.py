# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gpu_node over a real sshd, as root, as a member of systemd-journal and as nobody in particular.

Real: sshd, journal, kernel log with an OOM kill in a cgroup that is called like a container's, processes, their files and rights.
Replayed: nvidia-smi, which names the real processes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import workplace
from support.loopback_sshd import JOURNAL_USER, PLAIN_USER, USERS, Missing, has_journal, loopback_sshd
from testcluster import cgroups

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import kernel_oom

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests" / "unit" / "evidence" / "smi" / "full.xml"
UID = "6c1f0d5e-90f4-4d0a-8a52-3f1b7a2c9e10"
CONTAINER = f"{os.getpid():064x}"
TOP = f"vllm-oom-ssh-{os.getpid()}"
CGROUP = f"/{TOP}/kubepods/burstable/pod{UID}/{CONTAINER}"
LIMIT = 16 << 20
SECRET = "sk-live-7d1e9c3b5a8f4e2d"
PLAYBOOK = """\
- hosts: all
  gather_facts: false
  roles:
    - role: vllm_runbook.oom.gpu_node
  tasks:
    - name: Save the evidence
      ansible.builtin.copy:
        content: "{{ gpu_node_evidence | to_json }}"
        dest: "{{ saved }}/{{ inventory_hostname }}.json"
        mode: "0600"
      delegate_to: localhost
      vars:
        ansible_connection: local
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
"""


@pytest.fixture(scope="module")
def folder():
    """One that other users may enter: pytest's own is closed to them."""
    with tempfile.TemporaryDirectory(prefix="vllm-oom-ssh-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def sshd(folder):
    try:
        with loopback_sshd(folder) as running:
            yield running
    except Missing as lack:
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(f"CI=true allows no skipped test: {lack}", pytrace=False)
        pytest.skip(str(lack))


@pytest.fixture(scope="module")
def cgroup(sshd):
    """The memory cgroup of a container, with a limit."""
    cgroups.make(TOP)
    tree = Path("/sys/fs/cgroup") / ("memory" if cgroups.version() == 1 else "")
    path = tree / TOP
    for part in Path(CGROUP).parts[2:]:
        if cgroups.version() == 2:
            (path / "cgroup.subtree_control").write_text("+memory")
        path /= part
        path.mkdir()
    (path / ("memory.limit_in_bytes" if cgroups.version() == 1 else "memory.max")).write_text(str(LIMIT))
    yield path
    cgroups.remove(TOP)


def inside(cgroup: Path, *command: str, **more) -> subprocess.Popen:
    """Start a command in the cgroup."""
    join = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
    return subprocess.Popen(["sh", "-c", join, "sh", *command], **more)


@pytest.fixture(scope="module")
def processes(sshd, cgroup):
    """Two that nvidia-smi will name: one of root in the container, one of the plain user outside; and one that the kernel kills."""
    environment = {
        "PATH": os.environ["PATH"],
        "NCCL_P2P_DISABLE": "1",
        "VLLM_API_KEY": SECRET,
        "HF_TOKEN": SECRET,
    }
    killed = inside(cgroup, "tail", "/dev/zero")
    assert killed.wait(timeout=30) == -9
    engine = inside(cgroup, "sleep", "600", env=environment)
    uid = USERS[PLAIN_USER]
    own = {**environment, "NCCL_P2P_DISABLE": "0"}
    plain = subprocess.Popen(["sleep", "601"], user=uid, group=uid, extra_groups=[], env=own)
    time.sleep(0.2)
    yield {"killed": killed.pid, "engine": engine.pid, "plain": plain.pid}
    for process in (engine, plain):
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def nvidia_smi(folder, processes):
    """A script that prints the recorded situation with our processes in it; the links of no recording."""
    before, tag, rest = RECORDED.read_text().partition("<process_info>")
    one, end, after = rest.partition("</process_info>")
    pid = one.partition("<pid>")[2].partition("<")[0]
    ours = "".join(
        tag + one.replace(f"<pid>{pid}<", f"<pid>{processes[name]}<") + end for name in ("engine", "plain")
    )
    (folder / "recorded.xml").write_text(before + ours + after)
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\n[ "$*" = "-q -x" ] || exit 2\nexec cat {folder}/recorded.xml\n')
    script.chmod(0o755)
    return script


def play(folder: Path, hosts: dict, *more: str) -> str:
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(PLAYBOOK)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, folder / "play.yml", *more],
        cwd=ROOT,
        env={**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def documents(folder, sshd, nvidia_smi):
    """What each user read, from one play over all of them."""
    hosts = {user: sshd.variables(user) for user in ("root", *USERS)}
    # The oldest Python that a node may have.
    oldest = workplace.real_pythons().get(workplace.OLDEST_PYTHON)
    if oldest:
        hosts["oldest"] = {**sshd.variables("root"), "ansible_python_interpreter": str(oldest)}
    play(
        folder,
        hosts,
        *("-e", f"saved={folder}"),
        *("-e", f"gpu_node_nvidia_smi={nvidia_smi}"),
        *("-e", "gpu_node_since=1h"),
    )
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in hosts}


def unread(document: dict, source: str) -> list[dict]:
    """What was refused. Not what the bounds have cut: other tests' kills are in the same log."""
    return [entry for entry in document["unreadable"] if entry["source"] == source and entry["needs"]]


def the_kill(document: dict, user: str) -> dict:
    """The report of our process, in what was read."""
    lines = [entry["text"] for entry in document["nodes"][user]["kernel_oom"]]
    (found,) = [report for report in kernel_oom.parse(lines) if report["container_id"] == CONTAINER]
    return found


def test_every_user_sees_the_gpus_and_whose_the_memory_is(documents, processes):
    for user, document in documents.items():
        node = document["nodes"][user]
        assert node["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
        engine, plain = node["processes"]
        assert (engine["pod_uid"], engine["container_id"]) == (UID, CONTAINER), user
        assert (engine["pid"], engine["command"], engine["alive"]) == (processes["engine"], "sleep …", True)
        assert (plain["pod_uid"], plain["uid"]) == (None, USERS[PLAIN_USER])
        assert node["cgroups"][CONTAINER]["memory"]["limit"] == LIMIT
        assert node["cgroups"][CONTAINER]["memory"]["oom_kills"] == 1
        assert [entry["pid"] for entry in node["limits"]] == [0, processes["engine"], processes["plain"]]
        assert node["memory"]["total"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert not unread(document, "gpus")


def test_root_reads_everything(documents, processes):
    document = documents["root"]
    report = the_kill(document, "root")
    assert (report["victim"], report["pid"], report["scope"]) == ("tail", processes["killed"], "container")
    assert report["pod_uid"] == UID
    assert 0 < report["anon"] <= LIMIT
    settings = {
        pid: item["variables"]
        for item in document["nodes"]["root"]["nccl"]["processes"]
        for pid in item["pids"]
    }
    assert settings == {
        processes["engine"]: {"NCCL_P2P_DISABLE": "1", "VLLM_API_KEY": "***"},
        processes["plain"]: {"NCCL_P2P_DISABLE": "0", "VLLM_API_KEY": "***"},
    }
    assert not unread(document, "kernel log")
    assert not unread(document, "nccl")


def test_a_member_of_the_journals_group_reads_the_kernel_log(documents):
    if not has_journal():
        pytest.skip("no journald on this machine")
    document = documents[JOURNAL_USER]
    assert the_kill(document, JOURNAL_USER)["pod_uid"] == UID
    assert not unread(document, "kernel log")
    (entry,) = unread(document, "nccl")
    assert entry["reason"] == "the environment of a GPU process may not be read"


def test_an_unprivileged_user_is_told_what_is_missing(documents, processes):
    document = documents[PLAIN_USER]
    node = document["nodes"][PLAIN_USER]
    (log,) = unread(document, "kernel log")
    assert (node["kernel_oom"], node["xids"]) == ([], [])
    assert "/dev/kmsg: Operation not permitted" in log["reason"]
    assert "dmesg: read kernel buffer failed: Operation not permitted" in log["reason"]
    if has_journal():
        assert log["reason"].startswith("the journal may not be read by this user; ")
    assert log["needs"] == "root, the group systemd-journal or adm, or kernel.dmesg_restrict=0"
    (environment,) = unread(document, "nccl")
    assert environment["object"] == f"process {processes['engine']}"
    assert environment["needs"] == "root, or the user that runs the process"
    # Its own process it may look at.
    assert [item["pids"] for item in node["nccl"]["processes"]] == [[processes["plain"]]]
    assert node["reader"] == {
        "user": PLAIN_USER,
        "uid": USERS[PLAIN_USER],
        "pid_namespace": "host",
        "pod_uid": None,
        "container_id": None,
    }


def test_the_oldest_python_reads_the_same(documents):
    if "oldest" not in documents:
        pytest.skip(f"no Python {'.'.join(map(str, workplace.OLDEST_PYTHON))} on this machine")
    old, new = documents["oldest"]["nodes"]["oldest"], documents["root"]["nodes"]["root"]
    for field in ("gpus", "processes", "kernel_oom", "limits", "services", "cpu"):
        assert old[field] == new[field], field


def test_no_secret_is_in_any_document(documents):
    assert SECRET not in json.dumps(documents)


def test_check_mode_reads_and_changes_nothing(folder, sshd, nvidia_smi):
    printed = play(
        folder,
        {"root": sshd.variables("root")},
        *("--check", "--diff"),
        *("-e", f"gpu_node_nvidia_smi={nvidia_smi}"),
        *("-e", f"saved={folder}/nowhere"),
        *("-e", '{"gpu_node_sources": ["memory"]}'),
    )
    assert UID not in printed, "only the memory was asked for"
    assert re.search(r'"nodes": \{"root": ', printed), printed
    assert not (folder / "nowhere").exists()
