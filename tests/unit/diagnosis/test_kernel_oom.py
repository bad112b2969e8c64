# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel OOM reports, in the forms of shared facts "kubernetes-gpu-facts" section 3."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import kernel_oom

UID = "6d1f0c3e-7a4b-4c55-9a43-0d5a3f3f1b11"
CID = "ab" * 32
SYSTEMD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6d1f0c3e_7a4b_4c55_9a43_0d5a3f3f1b11.slice"
CONTAINER = f"{SYSTEMD}/cri-containerd-{CID}.scope"

MEMCG = [
    "VLLM::Worker_TP invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=921",
    "memory: usage 33554432kB, limit 33554432kB, failcnt 20725",
    "swap: usage 0kB, limit 0kB, failcnt 0",
    f"Memory cgroup stats for {CONTAINER}:",
    "anon 21474836480",
    "file 12884901888",
    "shmem 8589934592",
    "Tasks state (memory values in pages):",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri,mems_allowed=0,"
    f"oom_memcg={CONTAINER},task_memcg={CONTAINER},task=VLLM::EngineCor,pid=2343,uid=0",
    "Memory cgroup out of memory: Killed process 2343 (VLLM::EngineCor) total-vm:31763532kB, anon-rss:13928044kB, "
    "file-rss:12208kB, shmem-rss:0kB, UID:0 pgtables:28092kB oom_score_adj:921",
    f"Tasks in {CONTAINER} are going to be killed due to memory.oom.group set",
    "Memory cgroup out of memory: Killed process 2301 (python3) total-vm:999kB, anon-rss:1000kB, "
    "file-rss:0kB, shmem-rss:16kB, UID:0 pgtables:92kB oom_score_adj:921",
    "oom_reaper: reaped process 2343 (VLLM::EngineCor), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
]


def test_a_limit_with_group_kill_is_one_event():
    (report,) = kernel_oom.parse(MEMCG)
    assert report["scope"] == "container"
    assert report["enforced_on"] == "limit"
    assert (report["victim"], report["pid"]) == ("VLLM::EngineCor", 2343)
    assert report["victims"] == [("VLLM::EngineCor", 2343), ("python3", 2301)]
    assert report["invoked_by"] == "VLLM::Worker_TP"
    assert report["limit"] == 32 << 30
    assert report["anon"] == (13928044 + 1000) * 1024
    assert report["stat"] == {"anon": 20 << 30, "file": 12 << 30, "shmem": 8 << 30}
    assert report["group"] is True
    assert (report["pod_uid"], report["container_id"]) == (UID, CID)
    assert report["index"] == 8


@pytest.mark.parametrize(
    "prefix", ["", "[1234.567] ", "Nov 30 07:00:00 node1 kernel: ", "[Mon Nov 30 07:00:00 2026] "]
)
def test_prefixes_of_dmesg_and_syslog_do_not_matter(prefix):
    (report,) = kernel_oom.parse([prefix + text for text in MEMCG])
    assert (report["scope"], report["victim"], report["invoked_by"]) == (
        "container",
        "VLLM::EngineCor",
        "VLLM::Worker_TP",
    )
    assert report["stat"]["anon"] == 20 << 30


@pytest.mark.parametrize(
    ("lines", "scope", "enforced"),
    [
        (
            [
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
                f"task_memcg={CONTAINER},task=python3,pid=1,uid=0",
                "Out of memory: Killed process 1 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
            ],
            "node",
            "global",
        ),
        # a NUMA-bound allocation that no limit stopped
        (
            [
                "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,global_oom,"
                f"task_memcg={CONTAINER},task=python3,pid=1,uid=0"
            ],
            "node",
            "global",
        ),
        # linux-mm has seen kernels that print CONSTRAINT_NONE with oom_memcg: the cgroup decides.
        (
            [
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
                f"oom_memcg={CONTAINER},task_memcg={CONTAINER},task=python3,pid=1,uid=0"
            ],
            "container",
            "limit",
        ),
        (
            [
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
                f"oom_memcg={SYSTEMD},task_memcg={CONTAINER},task=python3,pid=1,uid=0"
            ],
            "pod",
            "limit",
        ),
        (
            [
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
                f"oom_memcg=/kubepods.slice/kubepods-burstable.slice,task_memcg={CONTAINER},task=python3,pid=1,uid=0"
            ],
            "node",
            "allocatable",
        ),
        # kernels up to 4.x
        (
            [
                f"Task in /kubepods/burstable/pod{UID}/{CID} killed as a result of limit of /kubepods/burstable/pod{UID}/{CID}",
                "Memory cgroup out of memory: Kill process 1234 (python) score 950 or sacrifice child",
                "Killed process 1234 (python) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB",
            ],
            "container",
            "limit",
        ),
        (["Out of memory: Kill process 7 (python) score 950 or sacrifice child"], "node", "global"),
        # node-problem-detector's OOMKilling and the kubelet's SystemOOM
        (
            ["Memory cgroup out of memory: Killed process 19023 (python) total-vm:1kB, anon-rss:1kB"],
            "container",
            "limit",
        ),
        (["System OOM encountered, victim process: python3, pid: 812"], "node", "global"),
        (["System OOM encountered"], "node", "global"),
        # as people quote it
        (["kernel: Memory cgroup out of memory: Killed process (VLLM::EngineCor)"], "container", "limit"),
    ],
)
def test_whose_memory_was_full(lines, scope, enforced):
    (report,) = kernel_oom.parse(lines)
    assert (report["scope"], report["enforced_on"]) == (scope, enforced)


def test_two_events_are_two_reports():
    first = "Memory cgroup out of memory: Killed process 1 (python) total-vm:1kB, anon-rss:4kB"
    second = "Memory cgroup out of memory: Killed process 2 (python) total-vm:1kB, anon-rss:8kB"
    reports = kernel_oom.parse([first, "unrelated", second])
    assert [(item["pid"], item["anon"], item["index"]) for item in reports] == [(1, 4096, 0), (2, 8192, 2)]


def test_two_full_reports_are_two():
    assert [item["pid"] for item in kernel_oom.parse(MEMCG + MEMCG)] == [2343, 2343]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB."],
        ["anon 4294967296", "file 30064771072"],
        ["INFO memory: usage of the cache is low"],
    ],
)
def test_lines_that_are_no_report(lines):
    assert kernel_oom.parse(lines) == []


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        (CONTAINER, "container"),
        (f"/kubepods/pod{UID}/{CID}", "container"),
        (f"/kubepods/pod{UID}/{CID}/init.scope", "container"),
        (f"/kubepods/besteffort/pod{UID}", "pod"),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice", "pod"),
        ("/kubepods.slice", "node"),
        (f"/docker/{CID}/kubelet.slice/kubelet-kubepods.slice", "node"),
        ("/system.slice/sshd.service", None),
        (None, None),
    ],
)
def test_whose_limit_a_cgroup_is(path, scope):
    assert kernel_oom.memcg_scope(path) == scope


def test_a_cgroup_that_the_container_made_is_the_containers():
    (report,) = kernel_oom.parse([text.replace(CONTAINER, f"{CONTAINER}/init.scope") for text in MEMCG])
    assert (report["scope"], report["pod_uid"], report["container_id"]) == ("container", UID, CID)


OLD_PATH = f"/kubepods/burstable/pod{UID}/{CID}"
SACRIFICE = [
    f"Task in {OLD_PATH} killed as a result of limit of {OLD_PATH}",
    "memory: usage 1048576kB, limit 1048576kB, failcnt 189",
    "Memory cgroup out of memory: Kill process 1234 (python3) score 950 or sacrifice child",
    "Killed process 1301 (VLLM::EngineCor) total-vm:9kB, anon-rss:2kB, file-rss:1kB, shmem-rss:0kB",
]


def test_a_sacrificed_child_is_the_victim_of_the_one_report():
    (report,) = kernel_oom.parse(SACRIFICE)
    assert report["victims"] == [("VLLM::EngineCor", 1301)]
    assert (report["victim"], report["pid"], report["index"]) == ("VLLM::EngineCor", 1301, 3)
    assert (report["scope"], report["pod_uid"], report["container_id"]) == ("container", UID, CID)
    assert (report["anon"], report["limit"]) == (2048, 1 << 30)


def test_a_process_without_a_name_is_sacrificed_for_too():
    reports = kernel_oom.parse([text.replace("python3", "") for text in SACRIFICE])
    assert [report["pid"] for report in reports] == [1301]


def test_after_a_sacrifice_the_next_one_is_another_report():
    again = [text.replace("1234", "77").replace("1301", "78") for text in SACRIFICE[2:]]
    assert [report["victims"] for report in kernel_oom.parse(SACRIFICE + again)] == [
        [("VLLM::EngineCor", 1301)],
        [("VLLM::EngineCor", 78)],
    ]


def test_where_the_context_names_the_announced_process_the_child_is_the_victim():
    lines = [text.replace("VLLM::EngineCor,pid=2343", "python3,pid=1234") for text in MEMCG[:9]]
    (report,) = kernel_oom.parse(lines + SACRIFICE[2:])
    assert (report["victim"], report["pid"], report["index"]) == ("VLLM::EngineCor", 1301, 8)
    assert report["victims"] == [("VLLM::EngineCor", 1301)]


def test_of_version_1_the_counters_with_those_of_the_cgroups_below_count():
    lines = [
        *MEMCG[:4],
        *("cache 1", "rss 2", "shmem 3", "total_cache 12884901888", "total_rss 21474836480"),
        *("total_rss_huge 7", "total_shmem 8589934592", "total_inactive_anon 9"),
        *MEMCG[7:],
    ]
    (report,) = kernel_oom.parse(lines)
    assert report["stat"] == {"anon": 20 << 30, "file": 12 << 30, "shmem": 8 << 30}


@pytest.mark.parametrize(
    ("uid", "ids", "expected"),
    [
        (UID, [f"containerd://{CID}"], True),
        (UID, ["containerd://" + "cd" * 32], False),
        (UID, [], True),
        ("00000000-0000-0000-0000-000000000000", [], False),
        (None, [None], None),
    ],
)
def test_a_report_is_matched_to_pod_and_container(uid, ids, expected):
    (report,) = kernel_oom.parse(MEMCG)
    assert kernel_oom.concerns(report, uid, ids) is expected
