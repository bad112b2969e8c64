# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel logs in every form that the tools print: what is kept of them, and that it stays within bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import kernel_oom
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.kernel_log import read_kernel_log
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import KIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.times import parse_time

RECORDED = Path(__file__).parent / "kernel"
# When that machine started, as its /proc/stat says.
BOOTED = 1796025700.0
KILLED_AT = parse_time("2026-11-30T15:06:40.4Z")
UID = "12950fa2-7608-40ad-9b5b-637e80599a55"
CONTAINER = "cf850b4eac14268162c981a5afad97d6c593461aabbbde226ba48bf5f3fb4c38"

OOM_KILL = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,oom_memcg={pod}/{id},"
    "task_memcg={pod}/{id},task=python3,pid={pid},uid=0"
)
KILLED = (
    "Memory cgroup out of memory: Killed process {pid} (python3) total-vm:31763532kB, anon-rss:13928044kB, "
    "file-rss:12208kB, shmem-rss:0kB, UID:0 pgtables:28092kB oom_score_adj:0"
)
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12950fa2_7608_40ad_9b5b_637e80599a55.slice"


def read(text, **more):
    return read_kernel_log(text.splitlines(), **more)


def texts(entries):
    return [entry["text"] for entry in entries]


def report(pid, tasks=1, stats=("anon 1", "file 2", "shmem 3", "slab 4")):
    """A report as kernels since 5.0 write it with cgroup version 2 (facts 3.1)."""
    return [
        "python3 invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
        "CPU: 3 PID: 2343 Comm: python3 Not tainted 5.15.0 #1",
        "Call Trace:",
        " dump_stack_lvl+0x4a/0x63",
        "memory: usage 33554432kB, limit 33554432kB, failcnt 20725",
        "swap: usage 0kB, limit 0kB, failcnt 0",
        f"Memory cgroup stats for {POD}:",
        *stats,
        "Tasks state (memory values in pages):",
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        *(
            f"[{number:7}]     0 {number:5}   317262 {number:8}   106496        0           999 task{number}"
            for number in range(tasks)
        ),
        OOM_KILL.format(pid=pid, pod=POD, id="a" * 64),
        KILLED.format(pid=pid),
        f"oom_reaper: reaped process {pid} (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.glob("*.*") if path.suffix != ".md"))
def test_every_form_of_one_log_tells_the_same(name):
    found = read((RECORDED / name).read_text(), booted=BOOTED)
    (seen,) = kernel_oom.parse(texts(found["kernel_oom"]))
    assert (seen["victim"], seen["pid"], seen["invoked_by"]) == ("tail", 23478, "tail")
    assert (seen["scope"], seen["pod_uid"], seen["container_id"]) == ("container", UID, CONTAINER)
    assert seen["anon"] == 32512 * KIB
    assert seen["limit"] == 32768 * KIB
    assert seen["stat"] == {"anon": 33337344, "file": 0, "shmem": 0}
    # Stack, registers and version 1's own-level zeros are gone, the cgroup's sums and the tasks are kept.
    assert found["kernel_oom"] == read((RECORDED / name).read_text(), booted=BOOTED)["kernel_oom"]
    assert len(found["kernel_oom"]) < 20
    assert any(text.startswith("total_rss ") for text in texts(found["kernel_oom"]))
    assert "shmem 0" not in texts(found["kernel_oom"])
    times = {entry["time"] for entry in found["kernel_oom"]}
    if name == "journal-short.txt":
        assert times == {None}, "its stamps have no year"
    elif name == "journal-short-iso.txt":
        assert {time[:16] for time in times} == {"2026-11-30T15:21"}, (
            "it has only the time at which journald read it"
        )
    else:
        assert all(abs((parse_time(time) - KILLED_AT).total_seconds()) < 1 for time in times)


def test_without_the_start_of_the_machine_plain_times_are_unknown():
    found = read((RECORDED / "dmesg.txt").read_text())
    assert {entry["time"] for entry in found["kernel_oom"]} == {None}


# kernel/older/README.md says where they are from: pod uid, container id, limit.
OLDER = {
    "rhel-7-docker.txt": (
        "0330b2c1-a15b-4cdd-b5e5-72d4a90bee82",
        "b27201334a41cd0749d053b18378d7ea65617b8e26277197ea25c974da1a5a8a",
        1048576,
    ),
    "5.4-cgroupfs.txt": ("200f55f9-b043-11ea-b578-fa163e82605e", None, 1048576),
}


@pytest.mark.parametrize("name", OLDER)
def test_reports_of_older_kernels(name):
    uid, container, limit = OLDER[name]
    found = read((RECORDED / "older" / name).read_text())
    (seen,) = kernel_oom.parse(texts(found["kernel_oom"]))
    assert (seen["pod_uid"], seen["container_id"], seen["limit"]) == (uid, container, limit * KIB)
    if name.startswith("5.4"):
        assert seen["stat"] == {"anon": 1062739968, "file": 0, "shmem": 0}
        assert {entry["time"] for entry in found["kernel_oom"]} == {"2020-06-17T10:37:10.000Z"}
        assert "kernel_stack 0" not in texts(found["kernel_oom"])


def test_of_many_tasks_the_five_largest_are_kept_in_their_order():
    kept = texts(read("\n".join(report(7, tasks=1500)))["kernel_oom"])
    assert [text.split()[-1] for text in kept if text.startswith("[") and "pid" not in text] == [
        f"task{number}" for number in range(1495, 1500)
    ]


def test_a_report_without_its_beginning_is_kept():
    lines = report(7)
    kept = texts(read("\n".join(lines[-3:]))["kernel_oom"])
    assert kept == lines[-3:]


def test_other_lines_between_and_after_are_left_out():
    lines = report(7)
    lines[5:5] = ["eth0: link up", "file 3 of 7 copied"]
    kept = texts(read("\n".join([*lines, "eth0: link down", "[  12] not a task"]))["kernel_oom"])
    assert not [text for text in kept if "link" in text or "copied" in text or "not a" in text]


def test_a_thousand_reports_stay_within_bounds_and_the_newest_are_whole():
    log = "\n".join(line for pid in range(1000) for line in report(pid, tasks=30))
    found = read(log)
    assert sum(map(len, texts(found["kernel_oom"]))) <= 20_000
    seen = kernel_oom.parse(texts(found["kernel_oom"]))
    assert seen[-1]["pid"] == 999
    assert seen[-1]["stat"] == {"anon": 1, "file": 2, "shmem": 3}
    assert seen[0]["stat"]["anon"] is None
    assert seen[0]["container_id"] == "a" * 64
    pids = [item["pid"] for item in seen]
    assert pids == list(range(1000 - len(pids), 1000))
    assert found["left_out"] == [], "the log could be read"


def test_a_line_without_end_is_cut():
    found = read(f"oom-kill:constraint=CONSTRAINT_MEMCG,{'x' * 100_000}")
    assert len(found["kernel_oom"][0]["text"]) == 1000


def test_since_leaves_out_what_is_older_but_keeps_what_has_no_time():
    log = """\
NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=a, timeless
[  100.5] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=a, old
[  300.5] NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=a, new
"""
    assert [item["code"] for item in read(log, booted=1000.0, since=1200.0)["xids"]] == [43, 45]


# Facts 3.3: the forms of Xid lines.
XIDS = [
    ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, "00000000:3B:00.0", None),
    ("NVRM: Xid (PCI:0000:83:00): 31, pid=2343, name=python3, Ch 00000008, MMU Fault", 31, "00000000:83:00.0", 2343),
    ("NVRM: Xid (PCI:0000:83:00): 45, pid='<unknown>', name=<unknown>, Ch 00000010", 45, "00000000:83:00.0", None),
    ("NVRM: Xid (PCI:0000:83:00): 45, pid='2343', name=python3, Ch 00000010 caused by previous Xid 31", 45, "00000000:83:00.0", 2343),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=71, name=python3, Contained", 94, "00000000:01:00.0", 71),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 43, pid=71, name=python3", 43, "00000000:01:00.0", 71),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0 0x0)", 149, "00000018:01:00.0", None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "bus", "pid"), XIDS)
def test_forms_of_xids(line, code, bus, pid):
    found = read(f"[ 1843.308145] {line}", booted=1000.0)
    (xid,) = found["xids"]
    assert xid == {
        "time": "1970-01-01T00:47:23.308Z",
        "code": code,
        "bus_id": bus,
        "pid": pid,
        "text": line,
        "count": 1,
    }
    assert (found["nvrm"], found["kernel_oom"]) == ([], [])


def test_a_storm_of_one_xid_does_not_hide_another():
    storm = [
        f"NVRM: Xid (PCI:0000:3b:00): 13, pid={pid}, name=python3, Graphics Exception" for pid in range(5000)
    ]
    storm.insert(100, "NVRM: Xid (PCI:0000:af:00): 79, GPU has fallen off the bus.")
    found = read("\n".join(storm))
    assert [(item["code"], item["count"]) for item in found["xids"]] == [
        (13, 5000),
        (79, 1),
        (13, 5000),
        (13, 5000),
        (13, 5000),
    ]
    assert [item["pid"] for item in found["xids"]] == [0, None, 4997, 4998, 4999]


def test_other_lines_of_the_driver():
    # https://github.com/NVIDIA/NVSentinel/issues/155: one record of three lines, twice
    log = """\
[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
[ 1900.000000] NVRM: The NVIDIA GPU 0000:b3:00.0
[ 1901.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32
[ 1902.000000] usb 1-1: new device
"""
    found = read(log, booted=0.0)
    assert [(item["text"], item["count"]) for item in found["nvrm"]] == [
        ("NVRM: (PCI ID: 10de:26b5) installed in this system has", 1),
        ("NVRM: fallen off the bus and is not responding to commands.", 1),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0", 2),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32", 1),
    ]
    assert found["nvrm"][1]["time"] == "1970-01-01T00:30:43.308Z"


def test_a_flood_of_the_driver_is_bounded_and_said():
    found = read("\n".join(f"NVRM: GPU0 GSP RPC buffer {number}" for number in range(10_000)))
    assert len(found["nvrm"]) == 30
    assert found["nvrm"][-1]["text"].endswith(" 9999")
    assert found["left_out"] == ["9970 earlier lines of the GPU driver are left out"]


def test_journal_messages_that_are_bytes_or_broken():
    message = "NVRM: Xid (PCI:0000:3b:00): 79, GPU \xff off".encode("latin-1")
    lines = [
        json.dumps(
            {"MESSAGE": list(message), "__REALTIME_TIMESTAMP": "1796051201047506"}, separators=(",", ":")
        ),
        '{"MESSAGE":[null, "oom-kill"]}',
        '{"MESSAGE":null, "x": "oom-kill"}',
        '{"MESSAGE":"NVRM: broken',
        "-- No entries --",
    ]
    found = read("\n".join(lines))
    assert [(item["code"], item["time"]) for item in found["xids"]] == [(79, "2026-11-30T15:06:41.047Z")]
    assert (found["nvrm"], found["kernel_oom"]) == ([], [])


@pytest.mark.parametrize(
    "stamp",
    [
        "[Foo Xyz 99 15:06:40 2026] ",
        "[Mon Feb 31 15:06:40 2026] ",
        "2026-13-41T99:00:00+00:00 ",
        "9,9,9999999999999999999999999,-;",
    ],
)
def test_impossible_stamps_leave_the_text(stamp):
    (xid,) = read(f"{stamp}NVRM: Xid (PCI:0000:3b:00): 79, gone", booted=1.0)["xids"]
    assert (xid["time"], xid["code"]) == (None, 79)


def test_secrets_are_masked():
    found = read(
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=hf_secret",
        mask=lambda text: text.replace("hf_secret", "***"),
    )
    assert found["xids"][0]["text"].endswith("name=***")
