# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The estimate of NCCL's memory against the figures of the facts sheet ("kubernetes-gpu-facts" 10.3) and real logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.nccl_memory import (
    ERROR,
    Ranks,
    connection_bytes,
    estimate,
    freed,
    nvls_bytes,
    saving_changes,
    shm_bytes,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.nccl_seen import NcclSeen

MIB = 1 << 20
HGX = Ranks(8, "nvlink", "hopper", collectives=1)


def mib(size):
    return round(size / MIB)


def test_one_connection():
    assert connection_bytes() / MIB == pytest.approx(9.19, abs=0.005)


@pytest.mark.parametrize(("channels", "expected"), [(24, 220), (16, 147), (2, 18)])
def test_rings(channels, expected):
    reported = {"communicators": [{"ranks": 8, "coll": channels, "nvls": 0}], "nvls_bytes": None}
    assert abs(mib(estimate(HGX, reported=reported)["bytes"]) - expected) <= 1


@pytest.mark.parametrize(
    ("ranks", "variables", "version", "expected"),
    [
        (HGX, {}, "2.27.5", 256),
        (Ranks(8, "nvlink", "blackwell"), {}, "2.27.5", 384),
        (HGX, {"NCCL_NVLS_NCHANNELS": "32"}, "2.27.5", 512),
        (HGX, {}, "2.20.5", 1024),
        (HGX, {}, "2.17.1", 1024),
        (HGX, {}, "2.21.5", 256),
        (HGX, {"NCCL_NVLS_ENABLE": "0"}, "2.27.5", 0),
        (HGX, {"NCCL_MAX_CTAS": "8"}, "2.27.5", 128),
        (Ranks(4, "nvlink", "hopper"), {}, "2.27.5", 128),
        (Ranks(2, "nvlink", "hopper"), {}, "2.27.5", 0),
        (Ranks(8, "pcie", "hopper"), {}, "2.27.5", 0),
        (Ranks(8, "nvlink", None), {}, "2.27.5", 0),
    ],
)
def test_nvls(ranks, variables, version, expected):
    assert mib(nvls_bytes(ranks, variables, version)) == expected


def test_numbers_that_nccl_printed_come_first():
    reported = {
        "communicators": [{"ranks": 8, "coll": 24, "nvls": 16}, {"ranks": 1, "coll": 32, "nvls": 0}],
        "nvls_bytes": 256 * MIB,
    }
    found = estimate(HGX, reported=reported)
    assert [(item["name"], mib(item["bytes"]), item["proof"]) for item in found["segments"]] == [
        ("rings", 220, "measured"),
        ("nvls", 256, "measured"),
    ]
    assert (found["low"], found["high"]) == (found["bytes"] // ERROR, found["bytes"] * ERROR)
    assert mib(freed(HGX, "NCCL_NVLS_ENABLE", "0", reported=reported)) == 256
    assert mib(freed(HGX, "NCCL_MAX_CTAS", "8", reported=reported)) == 128 + 16 * 9 + 3


def test_nccl_that_uses_no_nvls_says_so():
    reported = {"communicators": [{"ranks": 8, "coll": 24, "nvls": 0}], "nvls_bytes": None}
    assert freed(HGX, "NCCL_NVLS_ENABLE", "0", reported=reported) == 0


def test_one_gpu_needs_nothing():
    assert estimate(Ranks(1))["bytes"] == 0


def test_pipeline_and_experts():
    found = estimate(Ranks(1, nodes=2, peers=2, collectives=1, link="pcie"))
    assert {item["name"]: mib(item["bytes"]) for item in found["segments"]} == {"rings": 18, "p2p": 37}


def names(changes):
    return [item["name"] for item in changes]


def test_savings_in_their_order():
    recommended, rejected = saving_changes(HGX, version="2.27.5")
    assert names(recommended) == ["NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE"]
    assert not rejected
    assert "256.0 MiB" in recommended[0]["why"]
    assert {item["proof"] for item in recommended} == {"arithmetic"}


def test_a_saving_must_reach_what_the_allocation_wanted():
    recommended, rejected = saving_changes(HGX, version="2.27.5", wanted=400 * MIB)
    assert names(recommended) == ["NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS"]
    assert names(rejected) == ["NCCL_BUFFSIZE"]
    assert "asked for 400.0 MiB" in rejected[0]["why"]


def test_what_is_set_already_frees_nothing():
    recommended, rejected = saving_changes(HGX, {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "8"}, "2.27.5")
    assert names(recommended) == ["NCCL_BUFFSIZE"]
    assert names(rejected) == ["NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS"]
    assert "is 0 already" in rejected[0]["why"]


def test_gpus_without_nvls():
    _recommended, rejected = saving_changes(Ranks(2, "pcie"))
    assert "use no NVLS" in rejected[0]["why"]


@pytest.mark.parametrize(
    ("product", "advised"),
    [
        ("Tesla-V100-SXM2-32GB", False),
        ("8x V100", False),
        ("NVIDIA-A100-SXM4-80GB", False),
        ("NVIDIA-L40S", False),
        ("NVIDIA-GeForce-RTX-5090", False),
        ("MI300X", False),
        ("NVIDIA-H100-80GB-HBM3", True),
        ("NVIDIA-B200", True),
        ("GPUs of some kind", True),
        (None, True),
    ],
)
def test_only_gpus_that_may_have_nvls_are_told_to_do_without(product, advised):
    pod = documents.pod("llm", "vllm-0")
    container = documents.container(
        "vllm", settings={"tensor_parallel_size": {"value": 8, "from": "arg", "line": None}}
    )
    seen = NcclSeen(pod, container, documents.node(gpu={"product": product, "count": 8}))
    recommended, rejected = saving_changes(seen.layout)
    assert ("NCCL_NVLS_ENABLE" in names(recommended)) == advised
    assert ("NCCL_NVLS_ENABLE" in names(rejected)) != advised
    # What isn't known of the links is left to the rules.
    assert "NCCL_MAX_CTAS" in names(recommended)


def test_seven_connections_fill_the_usual_shm():
    assert 6 * connection_bytes() < 64 * MIB < 7 * connection_bytes()
    assert shm_bytes(2) < 64 * MIB < shm_bytes(4)
    assert shm_bytes(1) == 0


@given(st.integers(1, 64), st.integers(1, 64), st.integers(2, 8))
def test_more_channels_never_take_less(one, other, gpus):
    low, high = sorted((one, other))

    def size(channels):
        reported = {
            "communicators": [{"ranks": gpus, "coll": channels, "nvls": channels}],
            "nvls_bytes": None,
        }
        return estimate(Ranks(gpus, "nvlink", "hopper"), {}, "2.27.5", reported)["bytes"]

    assert size(low) <= size(high)


@given(st.integers(1, 1 << 28), st.integers(1, 1 << 28), st.sampled_from(["2.18.3", "2.27.5", None]))
def test_larger_buffers_never_take_less(one, other, version):
    low, high = sorted((one, other))
    sizes = [estimate(HGX, {"NCCL_BUFFSIZE": str(size)}, version)["bytes"] for size in (low, high)]
    assert sizes[0] <= sizes[1]
    assert shm_bytes(4, {"NCCL_BUFFSIZE": str(low)}) <= shm_bytes(4, {"NCCL_BUFFSIZE": str(high)})


@given(
    st.dictionaries(
        st.sampled_from(
            ["NCCL_BUFFSIZE", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_NVLS_NCHANNELS", "NCCL_NVLS_ENABLE"]
        ),
        st.one_of(st.integers(0, 1 << 40).map(str), st.text(max_size=5)),
    )
)
def test_no_change_frees_more_than_there_is(variables):
    total = estimate(HGX, variables, "2.27.5")["bytes"]
    for name, value in (("NCCL_NVLS_ENABLE", "0"), ("NCCL_MAX_CTAS", "8"), ("NCCL_BUFFSIZE", "1048576")):
        assert 0 <= freed(HGX, name, value, variables, "2.27.5") <= total


def test_where_nothing_is_known_the_rule_speaks():
    recommended, rejected = saving_changes(Ranks(4))
    assert [(item["name"], item["proof"]) for item in recommended][:1] == [("NCCL_NVLS_ENABLE", "rule")]
    assert not rejected
