# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as files and programs that are laid out in a folder: what becomes of each, and of each that is missing, hangs or lies.

nvidia-smi is a script that replays what `evidence/smi` has recorded.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import node_reader
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.local_machine import Machine

RECORDED = Path(__file__).parent / "smi"
UID = "0330b2c1-a15b-4cdd-b5e5-72d4a90bee82"
CONTAINER = "b27201334a41cd0749d053b18378d7ea65617b8e26277197ea25c974da1a5a8a"
CGROUP = f"/kubepods/burstable/pod{UID}/{CONTAINER}"
LIMITS = "Max stack size   8388608   unlimited   bytes\nMax open files   1024   1024   files\nMax locked memory   65536   65536   bytes\n"
HOST, OWN = "pid:[4026531836]", "pid:[4026532500]"


class Node:
    """A root folder with files, a folder of programs, and what the reader makes of both."""

    def __init__(self, folder):
        self.root = folder / "root"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.environ = {"PATH": str(self.bin), "HOME": "/root"}
        self.timeout = 5
        self.file("/proc/stat", "cpu 1\nbtime 1000\n")
        self.file("/proc/self/cgroup", "0::/\n")
        self.file("/proc/self/limits", LIMITS)
        self.file("/proc/self/mountinfo", "30 25 0:27 / /dev/shm rw - tmpfs shm rw,size=65536k\n")
        self.file("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
        self.pids(HOST)

    def file(self, path, text):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def pids(self, namespace):
        link = self.root / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)

    def program(self, name, script):
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def smi(self, **answers):
        """nvidia-smi, by the first word of its arguments (``q``: -q -x): a recording, or a script."""
        cases = ""
        for word, answer in answers.items():
            pattern = {"q": "-q", "list": "-L"}.get(word, word)
            known = RECORDED / answer
            cases += f"{pattern}) {f'/bin/cat {known}' if known.is_file() else answer} ;;\n"
        self.program("nvidia-smi", f'case "$1" in\n{cases}*) echo "Invalid argument $1" >&2; exit 2 ;;\nesac')

    def process(self, pid, cgroup=CGROUP, **more):
        folder = f"/proc/{pid}"
        self.file(
            f"{folder}/status",
            more.get("status", f"Name:\tvllm\nState:\tS (sleeping)\nUid:\t0\t0\nNSpid:\t{pid}\t118\n"),
        )
        self.file(f"{folder}/cgroup", f"0::{cgroup}\n")
        self.file(f"{folder}/stat", f"{pid} (vllm) S {' '.join(['0'] * 18)} 12345 0 0")
        self.file(f"{folder}/cmdline", more.get("cmdline", "VLLM::EngineCore\0"))
        self.file(f"{folder}/limits", LIMITS)
        self.file(f"{folder}/comm", more.get("comm", "vllm\n"))
        if "environ" in more:
            self.file(f"{folder}/environ", more["environ"])

    def read(self, **options):
        machine = Machine(self.timeout, root=str(self.root), environ=self.environ, folders=())
        document = node_reader.read_node(name="gpu-3", machine=machine, **options)
        json.dumps(document)
        return document, document["nodes"]["gpu-3"]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def unread(document, source):
    return [
        (entry["reason"], entry["needs"]) for entry in document["unreadable"] if entry["source"] == source
    ]


def pid_of(recording):
    text = (RECORDED / recording).read_text()
    return int(text.partition("<process_info>")[2].partition("<pid>")[2].partition("<")[0])


def test_a_full_gpu_and_whose_the_memory_is(node):
    pid = pid_of("full.xml")
    node.smi(q="full.xml", topo="topo-h100.txt", nvlink="nvlink-v100.txt")
    node.process(
        pid,
        environ="NCCL_P2P_DISABLE=1\0VLLM_API_KEY=sk-live-7d1e9c3b5a8f\0HF_TOKEN=hf_QzR4vT9wLkPm\0HOME=/root\0",
    )
    files = {
        "memory.max": "68719476736",
        "memory.current": "51539607552",
        "memory.events": "oom 1\noom_kill 2\n",
        "cpu.max": "max 100000",
    }
    for name, text in files.items():
        node.file(f"/sys/fs/cgroup{CGROUP}/{name}", text)
    document, seen = node.read()

    assert document["source"]["kind"] == "node"
    assert seen["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    (process,) = seen["processes"]
    assert (process["pid"], process["pod_uid"], process["container_id"]) == (pid, UID, CONTAINER)
    assert (process["alive"], process["state"], process["ns_pid"], process["uid"]) == (True, "S", 118, 0)
    assert process["started_at"] == "1970-01-01T00:18:43Z"
    assert process["command"] == "VLLM::EngineCore"
    assert process["cgroup"] == CGROUP
    counters = seen["cgroups"][CONTAINER]
    assert (counters["version"], counters["memory"]["limit"], counters["memory"]["oom_kills"]) == (
        2,
        68719476736,
        2,
    )
    assert seen["limits"] == [
        {"pid": 0, "memlock": 65536, "nofile": 1024, "stack": 8388608},
        {"pid": pid, "memlock": 65536, "nofile": 1024, "stack": 8388608},
    ]
    assert seen["nccl"]["variables"] == {"NCCL_P2P_DISABLE": "1", "VLLM_API_KEY": "***"}
    assert seen["nccl"]["from"] == "env"
    assert seen["topology"]["links"]["GPU0"]
    assert "hf_" not in json.dumps(document)
    assert "sk-live" not in json.dumps(document)
    assert document["redactions"]["count"] == 1


def test_every_field_of_the_contract_is_there(node):
    _document, seen = node.read()
    assert set(documents.node()) <= set(seen)


def test_a_secret_in_a_command_line(node):
    pid = pid_of("full.xml")
    node.smi(q="full.xml")
    node.process(
        pid,
        cmdline="vllm\0serve\0--api-key\0sk-live-7d1e9c3b5a8f4e2d\0--hf-token=hf_QzR4vT9wLkPmNbXc\0"
        + "x" * 999,
    )
    _document, seen = node.read()
    assert seen["processes"][0]["command"] == "vllm serve --api-key … --hf-token=… …"


def test_version_1_counts_each_controller_in_its_own_tree(node):
    pid = pid_of("full.xml")
    node.smi(q="full.xml")
    node.process(pid)
    node.file(f"/proc/{pid}/cgroup", f"5:cpu,cpuacct:{CGROUP}/sub\n4:memory:{CGROUP}/sub\n0::/other\n")
    node.file(f"/sys/fs/cgroup/memory{CGROUP}/memory.limit_in_bytes", "1073741824")
    node.file(f"/sys/fs/cgroup/cpu{CGROUP}/cpu.cfs_quota_us", "400000")
    node.file(f"/sys/fs/cgroup/cpu{CGROUP}/cpu.cfs_period_us", "100000")
    _document, seen = node.read(sources=["cgroups"])
    counters = seen["cgroups"][CONTAINER]
    assert (counters["version"], counters["memory"]["limit"], counters["cpu"]["limit"]) == (
        1,
        1073741824,
        4.0,
    )
    assert (seen["gpus"], seen["processes"], seen["driver"]) == ([], [], {}), "they weren't asked for"


def test_a_process_that_the_kernel_does_not_know(node):
    node.smi(q="full.xml")
    _document, seen = node.read()
    (process,) = seen["processes"]
    assert (process["alive"], process["pod_uid"], process["used"] > 0) == (False, None, True)


def test_a_hidden_process_is_not_called_dead(node, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    node.smi(q="full.xml")
    node.file("/proc/self/mountinfo", "33 25 0:29 / /proc rw - proc proc rw,hidepid=2\n")
    document, seen = node.read()
    assert seen["processes"][0]["alive"] is None
    assert unread(document, "processes") == [
        ("/proc is mounted with hidepid", "root, or the group that the mount's gid names")
    ]


@pytest.mark.parametrize(
    ("uid", "mounts", "first", "alive"),
    [
        (1000, "33 25 0:29 / /proc rw - proc proc rw,hidepid=invisible\n", True, False),
        (1000, "33 25 0:29 / /proc rw - proc proc rw\n", False, False),
        (
            1000,
            "33 25 0:29 / /proc rw - proc proc rw\n34 33 0:30 / /proc rw - proc proc rw,hidepid=2\n",
            False,
            None,
        ),
        (0, "33 25 0:29 / /proc rw - proc proc rw,hidepid=2\n", False, False),
        (1000, None, False, None),
    ],
)
def test_only_who_sees_all_processes_calls_one_dead(node, monkeypatch, uid, mounts, first, alive):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    node.smi(q="full.xml")
    if mounts is None:
        (node.root / "proc/self/mountinfo").unlink()
    else:
        node.file("/proc/self/mountinfo", mounts)
    if first:
        node.process(1)
    document, seen = node.read()
    assert seen["processes"][0]["alive"] is alive
    assert bool(unread(document, "processes")) is (alive is None)


def test_in_a_container_other_process_numbers_are_nobodys(node):
    """Process 1234 of the node isn't process 1234 of this container."""
    pid = pid_of("full.xml")
    node.smi(q="full.xml")
    node.process(pid, environ="NCCL_DEBUG=INFO\0")
    node.pids(OWN)
    node.file(
        "/proc/self/mountinfo",
        f"32 25 253:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
    )
    document, seen = node.read()
    (process,) = seen["processes"]
    assert (process["cgroup"], process["command"], process["pod_uid"]) == (None, None, None)
    assert seen["reader"]["pod_uid"] == UID
    assert seen["reader"]["pid_namespace"] == "own"
    assert [entry["pid"] for entry in seen["limits"]] == [0]
    assert seen["nccl"]["variables"] == {}
    ((reason, needs),) = unread(document, "processes")
    assert "process numbers of its own" in reason
    assert "hostPID" in needs


def test_a_container_reads_its_own_counters(node):
    node.pids(OWN)
    node.file("/proc/self/cgroup", f"4:memory:{CGROUP}\n3:cpu:{CGROUP}\n")
    node.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824")
    _document, seen = node.read(sources=["cgroups"])
    assert seen["cgroups"][CONTAINER]["memory"]["limit"] == 1073741824


def test_no_gpu_programs(node):
    document, seen = node.read()
    assert (seen["gpus"], seen["driver"]) == ([], {})
    assert unread(document, "gpus") == [
        (
            "there is no nvidia-smi, amd-smi or rocm-smi",
            "a node with GPUs, or the path of nvidia-smi in nvidia_smi",
        )
    ]


def test_a_driver_without_nvidia_smi(node):
    node.file(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n"
    )
    document, seen = node.read()
    assert seen["driver"]["version"] == "550.54.15"
    assert (
        unread(document, "gpus")[0][0] == "the NVIDIA driver 550.54.15 is loaded, but there is no nvidia-smi"
    )


def test_nvidia_smi_that_hangs_is_named_and_not_called_again(node):
    node.timeout = 0.5
    node.program("nvidia-smi", f"echo called >> {node.bin}/calls; /bin/sleep 60")
    document, seen = node.read()
    assert (node.bin / "calls").read_text() == "called\n"
    assert unread(document, "nvidia-smi") == [
        (
            "nvidia-smi -q -x did not end within 0.5 s",
            "a GPU driver that answers, or a longer timeout where persistence mode is off",
        )
    ]
    assert "did not end" in seen["driver"]["error"]
    assert seen["memory"]["total"] == 1000 * 1024, "the rest is read all the same"


def test_nvidia_smi_that_hangs_after_it_has_answered_once(node):
    node.timeout = 0.5
    node.smi(
        q="full.xml",
        topo=f"echo called >> {node.bin}/calls; /bin/sleep 60",
        nvlink=f"echo called >> {node.bin}/calls",
    )
    document, seen = node.read()
    assert len(seen["gpus"]) == 1
    assert (node.bin / "calls").read_text() == "called\n"
    assert unread(document, "nvidia-smi")[0][0] == "nvidia-smi topo -m did not end within 0.5 s"


NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_nvidia_smi_without_a_driver(node, stream):
    node.smi(q=f'echo "{NO_DRIVER}"{stream}; exit 9')
    document, seen = node.read()
    ((reason, _needs),) = unread(document, "gpus")
    assert "couldn't communicate with the NVIDIA driver" in reason
    assert seen["driver"]["error"] == reason
    assert not unread(document, "nvidia-smi")


def test_truncated_xml_keeps_what_was_whole(node):
    node.smi(q=f"/usr/bin/head -c 12000 {RECORDED}/nvswitch-8.xml")
    document, seen = node.read()
    assert 0 < len([gpu for gpu in seen["gpus"] if gpu["lost"] is False]) < 8
    assert len(seen["gpus"]) == 8
    assert seen["gpus"][7]["lost"] is None
    assert unread(document, "gpus")


def test_output_that_is_no_xml(node):
    node.smi(q="echo hello")
    document, seen = node.read()
    assert seen["gpus"] == []
    assert unread(document, "gpus")


def test_a_product_that_nobody_knows(node):
    text = (RECORDED / "idle.xml").read_text()
    name = text.partition("<product_name>")[2].partition("<")[0]
    (node.bin / "new.xml").write_text(text.replace(name, "NVIDIA X999 1TB"))
    node.smi(q=f"/bin/cat {node.bin}/new.xml")
    document, seen = node.read()
    assert seen["gpus"][0]["name"] == "NVIDIA X999 1TB"
    assert not unread(document, "gpus")


def test_nvidia_smi_that_may_not_be_executed(node):
    (node.bin / "smi").write_text("")
    document, _seen = node.read(nvidia_smi=str(node.bin / "smi"))
    assert unread(document, "nvidia-smi") == [
        (f"{node.bin}/smi -q -x may not be executed", "the right to execute nvidia-smi")
    ]


def test_mig_instances_get_their_names(node):
    node.smi(q="mig-in-use.xml", list="mig-list.txt")
    _document, seen = node.read()
    instances = [item for gpu in seen["gpus"] for item in (gpu["mig"] or {}).get("instances") or []]
    assert instances


def test_the_driver_of_the_gpu_operator_is_entered(node):
    """Its programs run in the driver container's root."""
    node.file("/run/nvidia/driver/usr/bin/nvidia-smi", "")
    node.program("chroot", f'echo "$@" >> {node.bin}/calls; /bin/cat {RECORDED}/idle.xml')
    _document, seen = node.read(sources=["gpus"])
    assert seen["gpus"]
    assert (node.bin / "calls").read_text() == f"{node.root}/run/nvidia/driver nvidia-smi -q -x\n"


def test_amd_gpus(node):
    answers = "".join(
        f"{word}) /bin/cat {RECORDED}/amd-smi-{word}.json ;;\n"
        for word in ("metric", "list", "static", "process")
    )
    node.program("amd-smi", f'case "$1" in\n{answers}esac')
    document, seen = node.read()
    assert {gpu["make"] for gpu in seen["gpus"]} == {"rocm"}
    assert seen["gpus"][0]["total"]
    assert not unread(document, "gpus")


def test_amd_smi_that_hangs(node):
    node.timeout = 0.5
    node.program("amd-smi", "/bin/sleep 60")
    node.program("rocm-smi", f"/bin/cat {RECORDED}/rocm-smi-vram.json")
    document, seen = node.read()
    assert seen["gpus"] == []
    assert [reason for reason, _needs in unread(document, "gpus")] == [
        "amd-smi metric --mem-usage --ecc --json did not end within 0.5 s"
    ]


def test_amd_gpus_of_older_rocm(node):
    node.program("rocm-smi", f"/bin/cat {RECORDED}/rocm-smi-vram.json")
    _document, seen = node.read()
    assert [gpu["make"] for gpu in seen["gpus"]][:1] == ["rocm"]


def test_many_processes_are_bounded(node):
    text = (RECORDED / "full.xml").read_text()
    before, _tag, rest = text.partition("<process_info>")
    one, _tag, after = rest.partition("</process_info>")
    pid = str(pid_of("full.xml"))
    many = "".join(
        f"<process_info>{one.replace(pid, str(number))}</process_info>" for number in range(1, 301)
    )
    (node.bin / "many.xml").write_text(before + many + after)
    node.smi(q=f"/bin/cat {node.bin}/many.xml")
    document, seen = node.read()
    assert len(seen["processes"]) == 64
    assert unread(document, "processes")[0][0].startswith("236 of 300 processes")


# -- the kernel log


RECORD = {
    "__REALTIME_TIMESTAMP": "{now}",
    "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
}
HINT = (
    "Hint: You are currently not seeing messages from other users and the system.\n"
    "      Users in groups 'adm', 'systemd-journal' can see all messages.\n"
)
NO_JOURNAL = "No journal files were opened due to insufficient permissions.\n"
NEEDS = "root, the group systemd-journal or adm, or kernel.dmesg_restrict=0"


def journal_line():
    now = str(int(node_reader.time.time() * 1e6))
    return json.dumps({name: value.replace("{now}", now) for name, value in RECORD.items()})


def test_the_journal_comes_first(node):
    node.program("journalctl", f"echo '{journal_line()}'; echo \"$@\" > {node.bin}/asked")
    node.program("dmesg", "echo '[1.0] NVRM: Xid (PCI:0000:3b:00): 31, wrong'")
    document, seen = node.read(sources=["kernel"], since=3600)
    assert [xid["code"] for xid in seen["xids"]] == [79]
    assert document["unreadable"] == []
    asked = (node.bin / "asked").read_text().split()
    assert asked[0] == "_TRANSPORT=kernel", "over all boots, so not -k"
    assert abs(float(asked[1].partition("@")[2]) - (node_reader.time.time() - 3600)) < 60


@pytest.mark.parametrize("said", [HINT, NO_JOURNAL])
def test_a_journal_without_rights_and_dmesg_without_rights(node, said):
    status = 1 if said == NO_JOURNAL else 0
    (node.bin / "said").write_text(said)
    node.program("journalctl", f"/bin/cat {node.bin}/said >&2; exit {status}")
    node.program("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    document, seen = node.read(sources=["kernel"])
    assert (seen["xids"], seen["kernel_oom"]) == ([], [])
    ((reason, needs),) = unread(document, "kernel log")
    assert reason == (
        "the journal may not be read by this user; /dev/kmsg: No such file or directory; "
        "dmesg: dmesg: read kernel buffer failed: Operation not permitted"
    )
    assert needs == NEEDS


def test_a_journal_that_only_the_own_messages_are_seen_of_is_not_believed(node):
    node.program("journalctl", f"echo '{journal_line()}'; echo \"{HINT}\" >&2")
    node.program("dmesg", "echo '[1.0] NVRM: Xid (PCI:0000:3b:00): 31, x'")
    _document, seen = node.read(sources=["kernel"], since=1e12)
    assert [xid["code"] for xid in seen["xids"]] == [31]


def test_dmesg_where_there_is_no_journal(node):
    node.program("dmesg", "echo '[1.0] NVRM: Xid (PCI:0000:3b:00): 31, x'")
    document, seen = node.read(sources=["kernel"], since=1e12)
    assert [xid["code"] for xid in seen["xids"]] == [31]
    assert seen["xids"][0]["time"]
    assert document["unreadable"] == []


def test_a_journal_of_a_quiet_kernel_is_no_lack(node):
    node.program("journalctl", "exit 0")
    node.file("/run/log/journal/3d1219c7/system.journal", "")
    document, seen = node.read(sources=["kernel"])
    assert (seen["xids"], document["unreadable"]) == ([], [])


def test_journalctl_without_a_journal_is_a_lack(node):
    """As in a container: it says nothing and ends with 0."""
    node.program("journalctl", "exit 0")
    document, _seen = node.read(sources=["kernel"])
    ((reason, needs),) = unread(document, "kernel log")
    assert reason == "the journal is empty; /dev/kmsg: No such file or directory; dmesg: missing"
    assert needs == NEEDS


def test_a_journal_that_hangs_in_the_middle_is_kept_and_said(node):
    node.timeout = 0.5
    node.program("journalctl", f"echo '{journal_line()}'; /bin/sleep 60")
    document, seen = node.read(sources=["kernel"])
    assert [xid["code"] for xid in seen["xids"]] == [79]
    assert "did not end" in unread(document, "kernel log")[0][0]


# -- the machine


def test_memory_shm_and_cpus(node):
    (node.root / "dev/shm").mkdir(parents=True)
    node.file("/sys/devices/system/cpu/online", "0-95\n")
    node.file("/sys/devices/system/node/node0/cpulist", "0-47\n")
    node.file("/sys/devices/system/node/node1/cpulist", "48-95\n")
    node.file("/sys/devices/system/node/node2/cpulist", "\n")  # memory without CPUs
    node.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    _document, seen = node.read()
    assert seen["cpu"] == {"count": 96, "numa": {"0": "0-47", "1": "48-95"}, "governor": "performance"}
    size, _used = Machine(1).file_system(str(node.root))
    assert seen["shm"]["size"] == size


def test_no_shm(node):
    node.file("/proc/self/mountinfo", "")
    document, seen = node.read(sources=["memory"])
    assert seen["shm"] == {}
    assert unread(document, "shm") == [("nothing is mounted at /dev/shm", None)]


SYSTEMCTL = """\
Id=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=failed

Id=nvidia-persistenced.service
LoadState=not-found
ActiveState=inactive
"""


def test_services(node):
    (node.bin / "units").write_text(SYSTEMCTL)
    node.program("systemctl", f"/bin/cat {node.bin}/units")
    node.process(77, comm="nvidia-cuda-mps\n")
    _document, seen = node.read(sources=["services"])
    assert seen["services"] == {"fabric_manager": "failed", "persistenced": None, "mps": "active"}


def test_a_fabric_manager_that_runs_in_a_container(node):
    node.program("systemctl", "echo 'System has not been booted with systemd' >&2; exit 1")
    node.process(77, comm="nv-fabricmanage\n")
    document, seen = node.read(sources=["services"])
    assert seen["services"] == {"fabric_manager": "active", "persistenced": None, "mps": None}
    assert document["unreadable"] == []


def test_a_container_sees_no_services(node):
    node.pids(OWN)
    document, seen = node.read(sources=["services"])
    assert set(seen["services"].values()) == {None}
    assert "neither systemd" in unread(document, "services")[0][0]


# -- NCCL


def nccl(node, **environments):
    node.smi(q="full.xml")
    node.process(pid_of("full.xml"), **environments)
    return node.read(sources=["nccl"])


def test_nccl_settings_from_files_count_below_the_environment(node):
    pid = pid_of("full.xml")
    node.file(f"/proc/{pid}/root/etc/nccl.conf", "NCCL_DEBUG=INFO\nNCCL_BUFFSIZE=1048576\nPATH=/evil\n")
    node.file(f"/proc/{pid}/root/home/v/.nccl.conf", "NCCL_BUFFSIZE=2097152\n")
    node.file("/etc/nccl.conf", "NCCL_ALGO=Tree\n")
    _document, seen = nccl(node, environ="HOME=/home/v\0NCCL_DEBUG=WARN\0")
    (process,) = seen["nccl"]["processes"]
    assert process["variables"] == {"NCCL_BUFFSIZE": "2097152", "NCCL_DEBUG": "WARN"}
    assert (process["from"], process["file"]) == ("env", "/home/v/.nccl.conf")
    # The node's own file isn't the container's.
    assert seen["nccl"]["variables"] == {"NCCL_BUFFSIZE": "2097152", "NCCL_DEBUG": "WARN"}


def test_nccl_settings_from_a_file_alone(node):
    node.file("/etc/conf", "NCCL_P2P_DISABLE=1\n")
    node.environ["NCCL_CONF_FILE"] = "/etc/conf"
    _document, seen = node.read(sources=["nccl"])
    assert seen["nccl"]["variables"]["NCCL_P2P_DISABLE"] == "1"
    assert seen["nccl"]["file"] == "/etc/conf"


def test_ranks_that_were_told_the_same_are_one_entry(node):
    recording = "mps.xml"
    text = (RECORDED / recording).read_text()
    numbers = list(dict.fromkeys(int(part.partition("<")[0]) for part in text.split("<pid>")[1:]))
    node.smi(q=recording)
    for number in numbers:
        node.process(number, environ=f"NCCL_BUFFSIZE={1 << 20 if number == numbers[-1] else 4 << 20}\0")
    _document, seen = node.read(sources=["nccl"])
    assert [(item["pids"], item["variables"]) for item in seen["nccl"]["processes"]] == [
        (numbers[:-1], {"NCCL_BUFFSIZE": "4194304"}),
        (numbers[-1:], {"NCCL_BUFFSIZE": "1048576"}),
    ]
    assert {item["pod_uid"] for item in seen["nccl"]["processes"]} == {UID}
    assert seen["nccl"]["variables"] == {}, "nothing that holds for all of them"


def test_the_readers_own_settings_are_not_an_engines(node):
    node.environ["NCCL_P2P_DISABLE"] = "1"
    _document, seen = nccl(node)
    assert seen["nccl"]["variables"] == {}, (
        "the engine's environment can't be read, and it lives in a container"
    )


def test_in_a_container_the_readers_settings_are_the_containers(node):
    node.environ["NCCL_P2P_DISABLE"] = "1"
    node.pids(OWN)
    _document, seen = node.read(sources=["nccl"])
    assert seen["nccl"]["variables"] == {"NCCL_P2P_DISABLE": "1"}


def test_a_configuration_file_that_never_ends_is_not_read(node):
    os.mkfifo(node.root / "pipe")
    _document, seen = nccl(node, environ="NCCL_CONF_FILE=/pipe\0")
    assert seen["nccl"]["processes"][0]["file"] is None


def test_an_environment_that_may_not_be_read(node, monkeypatch):
    original = Machine.read

    def read(self, path):
        if path.endswith("/environ"):
            raise PermissionError(13, "Permission denied")
        return original(self, path)

    monkeypatch.setattr(Machine, "read", read)
    document, seen = nccl(node, environ="NCCL_DEBUG=INFO\0")
    assert seen["nccl"]["processes"] == []
    assert unread(document, "nccl") == [
        ("the environment of a GPU process may not be read", "root, or the user that runs the process")
    ]


def test_network_interfaces(node):
    for name in ("eth0", "lo"):
        (node.root / "sys/class/net" / name).mkdir(parents=True)
    (node.root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    _document, seen = node.read(sources=["nccl"])
    assert (seen["nccl"]["interfaces"], seen["nccl"]["hcas"]) == (["eth0", "lo"], ["mlx5_0"])


# -- bad input


def test_a_machine_of_another_kind(monkeypatch):
    monkeypatch.setattr(node_reader.platform, "system", lambda: "Darwin")
    with pytest.raises(
        DocumentError,
        match=r"GPU nodes are read on Linux, and .* runs Darwin: limit the play to the GPU nodes",
    ):
        node_reader.read_node()


def test_nothing_at_all(node):
    """A root without /proc: everything is missing, nothing raises."""
    shutil.rmtree(node.root)
    document, seen = node.read()
    assert seen["gpus"] == []
    assert {entry["source"] for entry in document["unreadable"]} >= {"gpus", "kernel log", "memory", "shm"}


@pytest.mark.parametrize("source", node_reader.SOURCES)
def test_each_source_alone(node, source):
    node.smi(q="full.xml", topo="topo-h100.txt", nvlink="nvlink-v100.txt")
    node.process(pid_of("full.xml"), environ="NCCL_DEBUG=INFO\0")
    _document, seen = node.read(sources=[source])
    filled = {field for field, value in seen.items() if value and field not in ("gpu", "reader")}
    allowed = {
        "gpus": {"driver", "gpus"},
        "topology": {"topology", "cpu"},
        "kernel": {"kernel_oom", "xids", "nvrm"},
        "memory": {"memory", "shm"},
    }
    assert filled <= allowed.get(source, {source})
