# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of /proc and /sys, as kernels print them, and cgroup paths of every kubelet and runtime."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import proc_files

UID = "0330b2c1-a15b-4cdd-b5e5-72d4a90bee82"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
ID = "b27201334a41cd0749d053b18378d7ea65617b8e26277197ea25c974da1a5a8a"
OTHER = "cf850b4eac14268162c981a5afad97d6c593461aabbbde226ba48bf5f3fb4c38"

# Facts 3.2: path, pod uid, container id, the container's own cgroup (where that isn't the whole path).
PATHS = {
    "systemd, Burstable, containerd": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID, ID, None,
    ),
    "systemd, BestEffort, containerd": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID, ID, None,
    ),
    "systemd, Guaranteed, containerd": (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID, ID, None),
    "systemd, CRI-O": (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope", UID, ID, None),
    "systemd, CRI-O, a cgroup of the container's own": (
        f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope/container", UID, ID,
        f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope",
    ),
    "systemd, docker": (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope", UID, ID, None),
    "cgroupfs, Burstable": (f"/kubepods/burstable/pod{UID}/{ID}", UID, ID, None),
    "cgroupfs, Guaranteed": (f"/kubepods/pod{UID}/{ID}", UID, ID, None),
    "cgroupfs, a cgroup of the container's own": (f"/kubepods/pod{UID}/{ID}/init.scope", UID, ID, f"/kubepods/pod{UID}/{ID}"),
    "static pod": (f"/kubepods/burstable/pod{STATIC}/{ID}", STATIC, ID, None),
    "containerd below its unit": (
        f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}", UID, ID, None,
    ),
    "kind, systemd": (
        "/docker/" + OTHER + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID, ID, None,
    ),
    "kind, all pods": (f"/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice", None, None, None),
    "kind, cgroupfs": (f"/docker/{OTHER}/kubelet/kubepods/burstable/pod{UID}/{ID}", UID, ID, None),
    "LXC around the kubelet": (f"/lxc.payload.node-lxc/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", UID, ID, None),
    "seen from another cgroup namespace": (f"/../../pod{UID}/{ID}", UID, ID, None),
    "the pod itself": (f"/kubepods/burstable/pod{UID}", UID, None, None),
    "docker alone": (f"/docker/{ID}", None, ID, None),
    "docker alone, systemd": (f"/system.slice/docker-{ID}.scope", None, ID, None),
    "podman, CRI-O's monitor": (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{ID}.scope", UID, ID, None),
    "a service": ("/system.slice/nvidia-dcgm.service", None, None, None),
    "a login": ("/user.slice/user-1000.slice/session-3.scope", None, None, None),
    "a container's own namespace": ("/", None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_pod_and_container_of_a_cgroup_path(name):
    path, uid, container, own = PATHS[name]
    assert proc_files.pod_of(path) == (uid, container)
    assert proc_files.container_path(path) == ((own or path) if container else None)


def test_no_path():
    assert proc_files.pod_of(None) == (None, None)
    assert proc_files.container_path(None) is None


@pytest.mark.parametrize(
    ("text", "memory", "cpu"),
    [
        (
            f"0::/kubepods.slice/cri-containerd-{ID}.scope\n",
            f"/kubepods.slice/cri-containerd-{ID}.scope",
            None,
        ),
        (
            "12:cpu,cpuacct:/kubepods/c\n4:memory:/kubepods/m\n1:name=systemd:/s\n0::/u\n",
            "/kubepods/m",
            "/kubepods/c",
        ),
        ("4:memory:/a:b\n", "/a:b", None),
        ("", None, None),
        ("garbage\n4\n:::\n", None, None),
    ],
)
def test_cgroups_of_a_process(text, memory, cpu):
    paths = proc_files.cgroup_paths(text)
    assert (proc_files.memory_cgroup(paths), paths.get("cpu")) == (memory, cpu)


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            20000                20000                files
Max locked memory         unlimited            unlimited            bytes
Max realtime priority     0                    0
"""


def test_limits():
    padded = "".join(f"{line}     \n" for line in LIMITS.splitlines())  # as the kernel prints it
    assert proc_files.limits_of(padded) == {"memlock": "unlimited", "nofile": 20000, "stack": 8388608}
    assert proc_files.limits_of("") == {"memlock": None, "nofile": None, "stack": None}


def test_this_process():
    """The kernel's own files: the only format that can't be remembered wrongly."""
    with (
        open("/proc/self/status") as status,
        open("/proc/self/stat") as stat,
        open("/proc/self/cmdline") as cmdline,
    ):
        found = proc_files.status_of(status.read())
        assert found["uid"] == os.getuid()
        assert found["state"] == "R"
        booted = proc_files.boot_time(Path("/proc/stat").read_text())
        started = proc_files.started_at(stat.read(), booted, os.sysconf("SC_CLK_TCK"))
        assert booted < started < time.time() + 2
        assert started > time.time() - time.monotonic()
        assert proc_files.arguments_of(cmdline.read()) == sys.orig_argv
    with open("/proc/meminfo") as file:
        memory = proc_files.memory_of(file.read())
    assert memory["total"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < memory["available"] <= memory["total"]


def test_a_process_in_a_container_that_is_dead():
    text = "Name:\tVLLM::EngineCor\nState:\tZ (zombie)\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t41213\t118\n"
    assert proc_files.status_of(text) == {"name": "VLLM::EngineCor", "state": "Z", "uid": 1000, "ns_pid": 118}
    assert proc_files.status_of("") == {"name": None, "state": None, "uid": None, "ns_pid": None}


@pytest.mark.parametrize("name", ["python3", "a b", "x) S (y", ")"])
def test_the_start_of_a_process_whatever_its_name(name):
    fields = " ".join(["S", *(["0"] * 18), "12345", *(["0"] * 30)])
    assert proc_files.started_at(f"77 ({name}) {fields}", 1000, 100) == 1123.45


@pytest.mark.parametrize("stat", [None, "", "77 (x) S 1", "garbage"])
def test_no_start(stat):
    assert proc_files.started_at(stat, 1000, 100) is None


def test_memory():
    text = "MemTotal:       1055761844 kB\nMemAvailable:    990000000 kB\nHugePages_Total:    1024\nHugePages_Free:      512\nHugepagesize:       2048 kB\n"
    assert proc_files.memory_of(text) == {
        "total": 1055761844 * 1024,
        "available": 990000000 * 1024,
        "swap_total": None,
        "swap_free": None,
        "hugepages_total": 1024,
        "hugepages_free": 512,
        "hugepage_size": 2048 * 1024,
    }


MOUNTS = f"""\
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k
30 25 0:27 / /dev/shm rw,nosuid shared:18 master:2 - shm shm rw,size=65536k
31 25 0:28 / /mnt/two\\040words rw - ext4 /dev/vda rw
32 25 253:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/vda1 rw
33 25 0:29 / /proc rw,nosuid - proc proc rw,hidepid=invisible
short line
"""


def test_mounts():
    assert proc_files.mount_at(MOUNTS, "/dev/shm") == "shm"
    assert proc_files.mount_at(MOUNTS, "/mnt/two words") == "ext4"
    assert proc_files.mount_at(MOUNTS, "/dev") is None
    assert proc_files.mount_at(None, "/dev/shm") is None
    assert proc_files.pod_of_mounts(MOUNTS) == UID
    assert proc_files.pod_of_mounts("1 2 0:1 / / rw - ext4 /dev/vda rw\n") is None


@pytest.mark.parametrize(
    ("option", "hides"),
    [
        ("rw,hidepid=2", True),
        ("rw,hidepid=invisible", True),
        ("rw,hidepid=0", False),
        ("rw,hidepid=off", False),
        ("rw", False),
    ],
)
def test_hidden_processes(option, hides):
    assert proc_files.hides_processes(f"33 25 0:29 / /proc rw,nosuid - proc proc {option}\n") is hides


@pytest.mark.parametrize(
    ("text", "count"), [("0-23,48-71\n", 48), ("0", 1), ("0,2,4", 3), ("", None), (None, None), ("a-b", None)]
)
def test_cpu_lists(text, count):
    assert proc_files.cpu_count(text) == count


def test_nccl_configuration_file():
    text = "# NCCL_DEBUG=TRACE\nNCCL_DEBUG=WARN\n NCCL_SOCKET_IFNAME = ^lo,docker \nnonsense\n=x\nNCCL_BUFFSIZE=\n"
    assert proc_files.nccl_settings(text) == {
        "NCCL_DEBUG": "WARN",
        "NCCL_SOCKET_IFNAME": "^lo,docker",
        "NCCL_BUFFSIZE": "",
    }


def test_environment_and_arguments():
    assert proc_files.environment_of("A=1\0B=x=y\0\0=z\0C\0") == {"A": "1", "B": "x=y"}
    assert proc_files.arguments_of("vllm\0serve\0--x=1\0") == ["vllm", "serve", "--x=1"]
    assert proc_files.arguments_of("VLLM::EngineCore\0\0\0\0") == ["VLLM::EngineCore"]


def test_interfaces():
    text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\n  eth0: 4 5 6\n"
    assert proc_files.interfaces_of(text) == ["lo", "eth0"]
    assert proc_files.interfaces_of(None) == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n",
            "550.54.15",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build\n",
            "570.158.01",
        ),
        ("", None),
        (None, None),
    ],
)
def test_version_of_the_driver(text, version):
    assert proc_files.driver_version(text) == version
