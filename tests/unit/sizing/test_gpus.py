# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU catalogue: names of labels, nvidia-smi and reports; what is open stays open; totals as vLLM printed them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import gpus

REPORTS = Path(__file__).parents[4] / "shared" / "cases" / "sizing_dev.jsonl"


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA-A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("A100-SXM4-80GB", "A100 80GB"),
        ("8x A800 40GB", "A100 40GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100 80GB"),
        ("NVIDIA H100 PCIe", "H100 80GB"),
        ("H100 80GB", "H100 80GB"),
        ("H100-SXM", "H100 80GB"),
        ("H100", "H100 80GB"),
        ("NVIDIA H800", "H100 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("H100 NVL (Standard_NC80adis_H100_v5)", "H100 NVL"),
        ("NVIDIA-H200-SHARED", "H200"),
        ("4 of 8x H200", "H200"),
        ("8xH200", "H200"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA H20", "H20"),
        ("GH200 96GB", "GH200 96GB"),
        ("NVIDIA B200", "B200"),
        ("B200 192GB", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("4 nodes GB200, TP=4 x DP=4", "GB200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("Tesla-T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100 32GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA-A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA-L40S", "L40S"),
        ("L40", "L40"),
        ("NVIDIA-GeForce-RTX-3090", "RTX 3090"),
        ("RTX 4090", "RTX 4090"),
        ("RTX 4090s", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("RTX PRO 6000 Blackwell Max-Q (97887 MiB)", "RTX PRO 6000 Blackwell"),
        ("RTX PRO 6000 96GB", "RTX PRO 6000 Blackwell"),
        ("NVIDIA GB10", "GB10"),
        ("GB10 (2x DGX Spark)", "GB10"),
        ("Jetson AGX Thor", "Jetson AGX Thor"),
        ("NVIDIA Thor", "Jetson AGX Thor"),
        ("Jetson AGX Orin 64GB", "Jetson AGX Orin 64GB"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("MI250X", "MI250 (one of two dies)"),
        ("tpu-v6e-slice", "TPU v6e"),
        ("tpu-v5-lite-podslice", "TPU v5e"),
        ("TPU7x", "TPU7x"),
    ],
)
def test_a_name_as_labels_nvidia_smi_and_reports_spell_it(name, product):
    assert gpus.gpu(name)["name"] == product
    assert gpus.candidates(name) == [product]


@pytest.mark.parametrize(
    ("name", "open_between"),
    [
        ("A100", ["A100 40GB", "A100 80GB"]),
        ("NVIDIA-A100-SXM4", ["A100 40GB", "A100 80GB"]),
        ("V100", ["V100 16GB", "V100 32GB"]),
        ("GH200", ["GH200 96GB", "GH200 144GB"]),
        ("RTX 6000", ["RTX 6000 Ada", "RTX PRO 6000 Blackwell"]),
        ("Jetson AGX Orin", ["Jetson AGX Orin 32GB", "Jetson AGX Orin 64GB"]),
        ("H200 or H20 (8x)", ["H20", "H200"]),
        ("L4/A10 24GB", ["A10", "L4"]),
        ("1x A100/H100 80GB", ["H100 80GB", "A100 80GB"]),
    ],
)
def test_a_name_of_several_products_is_none_of_them(name, open_between):
    assert gpus.gpu(name) is None
    assert gpus.candidates(name) == open_between


@pytest.mark.parametrize(
    ("name", "said"),
    [("4x A100 64GB", ["A100 40GB", "A100 80GB"]), ("B200 class (184 GiB)", ["B200"]), ("H20 vGPU", ["H20"])],
)
def test_a_size_that_contradicts_the_name_decides_nothing(name, said):
    assert gpus.gpu(name) is None
    assert gpus.candidates(name) == said


@pytest.mark.parametrize(
    "name", [None, "", "foo", "2 GPUs", "24GB class (21.98 GiB)", "2x 48GB", "multi-GPU", 8]
)
def test_what_names_no_product(name):
    assert gpus.gpu(name) is None
    assert gpus.candidates(name) == []


def test_a_gpu_that_does_not_exist_gets_the_nearest_names():
    assert "H100 80GB" in gpus.candidates("H1000")
    assert "RTX 4090" in gpus.candidates("RTX 4095")
    assert gpus.candidates("RTX 4095", nearest=False) == []


def test_a_gaming_board_is_known_but_not_offered():
    assert gpus.gpu("RTX5060 Ti 16GB")["total_mib"] == 16311
    assert "RTX 5060 Ti 16GB" not in [item["name"] for item in gpus.products()]


@pytest.mark.parametrize(
    ("name", "instance", "mib"),
    [
        ("A100-SXM4-40GB-MIG-1g.5gb", "A100 40GB MIG 1g.5gb", 4864),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "A100 80GB MIG 3g.40gb", 40192),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100 80GB MIG 1g.10gb", 9984),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb+me", "H100 80GB MIG 1g.10gb", 9984),
        ("H200 MIG 2g.35gb", "H200 MIG 2g.35gb", 33280),
        ("nvidia.com/mig-1g.18gb", "H200 MIG 1g.18gb", 16384),
        ("nvidia.com/mig-1g.18gb.me", "H200 MIG 1g.18gb", 16384),
        ("MIG 1c.3g.71gb", "H200 MIG 3g.71gb", 71424),
        ("A30 MIG 2g.12gb", "A30 MIG 2g.12gb", 11968),
        ("H200 MIG 18 GB slice (16 GB usable)", "H200 MIG 1g.18gb", 16384),
    ],
)
def test_a_mig_instance_has_its_own_memory(name, instance, mib):
    found = gpus.gpu(name)
    assert (found["name"], found["total_mib"], found["nvlink"]) == (instance, mib, False)
    assert found["parent"] + " MIG " + found["profile"] == instance


def test_a_mig_profile_of_several_cards_is_open():
    assert gpus.gpu("nvidia.com/mig-3g.40gb") is None
    assert gpus.candidates("nvidia.com/mig-3g.40gb") == ["A100 80GB MIG 3g.40gb", "H100 80GB MIG 3g.40gb"]
    assert gpus.gpu("NVIDIA H200 MIG") is None


def test_a_mig_instance_that_was_not_measured_says_so():
    found = gpus.gpu("NVIDIA B200 MIG 1g.23gb")
    assert "estimated" in found["source"]
    assert found["visible_error_gib"] > 0.5


@pytest.mark.parametrize(
    ("name", "size", "product"),
    [
        ("A100", 79.25 * GIB, "A100 80GB"),
        ("A100", 40960 * MIB, "A100 40GB"),
        ("H200 or H20", 95.0 * GIB, "H20"),
        ("nvidia.com/mig-3g.40gb", 40448 * MIB, None),
        ("A100 64GB", 63.0 * GIB, None),
    ],
)
def test_a_measured_total_decides_between_products(name, size, product):
    found = gpus.gpu(name, total_bytes=size)
    assert (found and found["name"]) == product


def test_what_a_product_is_like():
    assert gpus.gpu("GB10")["unified"]
    assert not gpus.gpu("H100")["unified"]
    assert gpus.gpu("H100")["compute_capability"] == (9, 0)
    assert gpus.gpu("L40S")["compute_capability"] == (8, 9)
    assert gpus.gpu("H100 SXM")["nvlink"] is True
    assert gpus.gpu("NVIDIA-H100-80GB-HBM3")["nvlink"] is True
    assert gpus.gpu("H100")["nvlink"] is None
    assert gpus.gpu("RTX 4090")["nvlink"] is False
    assert gpus.gpu("MI300X")["make"] == "rocm"
    assert gpus.gpu("A100 80GB")["mig"]["2g.20gb"] == 19968


@pytest.mark.parametrize("item", gpus.products(), ids=lambda item: item["name"])
def test_every_product_is_whole(item):
    assert item["source"]
    assert gpus.visible_bytes(item) <= gpus.total_bytes_of(item)
    # What can't be used of a card is small; a total of another card was copied otherwise.
    assert item["visible_gib"] > item["total_mib"] / 1024 * 0.92
    assert all(mib <= item["total_mib"] for mib in item["mig"].values())
    assert gpus.gpu(item["name"])["name"] == item["name"]


def test_products_come_smallest_first():
    sizes = [item["visible_gib"] for item in gpus.products(make="cuda", unified=False)]
    assert sizes == sorted(sizes)
    assert {item["make"] for item in gpus.products()} == {"cuda", "rocm", "tpu"}


def test_the_smallest_card_that_fits():
    assert gpus.smallest_that_fits(15.7 * GIB)[0]["name"] == "A10"
    first = gpus.smallest_that_fits(150 * GIB, count=2)[0]
    assert first["name"] == "H100 80GB"
    assert gpus.smallest_that_fits(10000 * GIB) == []
    assert all(not item["unified"] for item in gpus.smallest_that_fits(100 * GIB))


@given(st.integers(1, 400 * GIB), st.integers(1, 16))
def test_what_fits_really_fits_and_nothing_smaller_does(needed, count):
    fitting = gpus.smallest_that_fits(needed, count)
    every = gpus.products(make="cuda", unified=False)
    assert all(gpus.visible_bytes(item) * count >= needed for item in fitting)
    assert len(fitting) + sum(gpus.visible_bytes(item) * count < needed for item in every) >= len(every)


@given(st.text(max_size=60))
def test_any_name_gives_an_answer(name):
    found = gpus.gpu(name)
    assert found is None or found["total_mib"] > 0


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("Tesla T4", 14.56),
        ("L40S", 44.42),
        ("RTX 3090", 23.58),
        ("A100 40GB", 39.5),
        ("A100 80GB", 79.25),
        ("H100 80GB", 79.19),
        ("GB200", 184.31),
    ],
)
def test_totals_as_vllm_printed_them(name, total):
    assert gpus.gpu(name)["visible_gib"] == total


def _totals():
    for line in REPORTS.read_text().splitlines():
        report = json.loads(line)
        total = report.get("gpu_total_gib") or report.get("total_gib")
        if total and report.get("gpu") and gpus.gpu(report["gpu"]):
            yield pytest.param(report["gpu"], total, id=report["id"])


@pytest.mark.skipif(not REPORTS.exists(), reason="the shared reports aren't at hand")
def test_totals_of_the_reports():
    cases = list(_totals()) if REPORTS.exists() else []
    assert len(cases) >= 39
    for case in cases:
        name, total = case.values
        assert gpus.gpu(name)["visible_gib"] == pytest.approx(total, abs=0.16), case.id
