# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cgroup files of both versions, with values as kernels print them."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.cgroup import parse_cgroup

V2 = {
    "/sys/fs/cgroup/memory.max": "34359738368\n",
    "/sys/fs/cgroup/memory.current": "34359734272\n",
    "/sys/fs/cgroup/memory.peak": "34359738368\n",
    "/sys/fs/cgroup/memory.stat": "anon 751619276\nfile 33285996544\nkernel 12345\nshmem 4194304\nfile_mapped 1\n",
    "/sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 512\noom 3\noom_kill 2\noom_group_kill 0\n",
    "/sys/fs/cgroup/cpu.max": "800000 100000\n",
    "/sys/fs/cgroup/cpu.stat": "usage_usec 7\nuser_usec 4\nsystem_usec 3\nnr_periods 1200\nnr_throttled 300\nthrottled_usec 45000000\n",
    "/sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
}
V1 = {
    "memory.limit_in_bytes": "34359738368",
    "memory.usage_in_bytes": "1073741824",
    "memory.max_usage_in_bytes": "2147483648",
    "memory.stat": "cache 1\nrss 2\nshmem 3\ntotal_cache 100\ntotal_rss 200\ntotal_shmem 50\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    "cpu.cfs_quota_us": "400000",
    "cpu.cfs_period_us": "100000",
    "cpu.stat": "nr_periods 10\nnr_throttled 5\nthrottled_time 2500000000\n",
    "cpuset.cpus": "0-15\n",
}


def test_version_2():
    found = parse_cgroup(V2)
    assert found["version"] == 2
    assert found["memory"] == {
        "limit": 34359738368,
        "usage": 34359734272,
        "peak": 34359738368,
        "oom_kills": 2,
        "shmem": 4194304,
        "file": 33285996544,
        "anon": 751619276,
    }
    assert found["cpu"] == {"limit": 8.0, "periods": 1200, "throttled": 300, "throttled_seconds": 45.0}
    assert found["cpuset"] == "0-7"


def test_version_1_counts_time_in_nanoseconds():
    found = parse_cgroup(V1)
    assert found["version"] == 1
    assert found["memory"]["oom_kills"] == 4
    assert (found["memory"]["anon"], found["memory"]["file"], found["memory"]["shmem"]) == (200, 100, 50)
    assert found["cpu"] == {"limit": 4.0, "periods": 10, "throttled": 5, "throttled_seconds": 2.5}


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"memory.max": "max\n", "cpu.max": "max 100000\n"}, 2),
        (
            {
                "memory.limit_in_bytes": "9223372036854771712\n",
                "cpu.cfs_quota_us": "-1\n",
                "cpu.cfs_period_us": "100000",
            },
            1,
        ),
    ],
)
def test_no_limit_is_none(files, version):
    found = parse_cgroup(files)
    assert (found["version"], found["memory"]["limit"], found["cpu"]["limit"]) == (version, None, None)


def test_missing_and_broken_files_leave_none():
    found = parse_cgroup(
        {"memory.max": "garbage", "memory.stat": "anon\nfile x\nshmem 3 4\n", "cpu.stat": ""}
    )
    assert found["version"] == 2
    assert set(found["memory"].values()) == {None}
    assert parse_cgroup({})["version"] is None


@pytest.mark.parametrize(("stat", "version"), [("anon 5\n", 2), ("total_rss 5\n", 1)])
def test_version_shows_in_memory_stat_alone(stat, version):
    found = parse_cgroup({"memory.stat": stat})
    assert (found["version"], found["memory"]["anon"]) == (version, 5)
