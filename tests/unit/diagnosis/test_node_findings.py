# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node: recorded situations of nvidia-smi, and one row for each check."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_samples import OTHER_UID, UID, document, gib, gpu, outside, process
from test_node_settles import kernel_lines

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import gpu_state, node_findings
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import nvidia_smi
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB

RECORDED = Path(__file__).resolve().parents[1] / "evidence" / "smi"


def seen(*nodes):
    evidence = documents.evidence("2026-11-30T07:00:00Z", "node", "a fleet")
    return diagnose(evidence, nodes=list(nodes))["nodes"]


def one(**fields):
    (found,) = seen(document(**fields))
    return found


def checks(found):
    return [(item["check"], item["severity"]) for item in found["findings"]]


# -- recorded situations --------------------------------------------------------------------------------------------------


def recorded(name):
    stem = RECORDED / name
    complaint = stem.with_suffix(".stderr.txt")
    read = nvidia_smi.read_query_xml(
        stem.with_suffix(".xml").read_text(encoding="utf-8"),
        complaint.read_text() if complaint.exists() else "",
    )
    return one(
        driver=read["driver"],
        gpus=read["gpus"],
        processes=read["processes"],
        reader={"pid_namespace": "host"},
    )


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("idle", "fine", []),
        ("full", "fine", []),
        ("foreign-pod", "fine", []),
        ("mig-idle", "fine", []),
        ("mig-in-use", "fine", []),
        ("vgpu-guest", "fine", []),
        ("mps", "fine", []),
        ("nvswitch-8", "fine", []),
        ("gb10", "fine", []),
        ("new-driver", "fine", []),
        ("mig-unprivileged", "unknown", []),
        ("zombie-no-process", "bad", [("reset_required", "bad"), ("memory_without_process", "warning")]),
        ("lost-described", "bad", [("gpu_lost", "bad")]),
        ("lost-named", "bad", [("gpu_lost", "bad")]),
        (
            "remap-pending",
            "bad",
            [("reset_required", "bad"), ("remap_failed", "bad"), ("remap_pending", "warning"), ("ecc_uncorrected", "warning"), ("ecc_pending", "warning")],
        ),
        ("old-driver", "warning", [("memory_without_process", "warning")]),
    ],
)  # fmt: skip
def test_recorded_situations(name, state, expected):
    found = recorded(name)
    assert (found["state"], checks(found)) == (state, expected)


def test_a_throttled_gpu_says_why():
    found = recorded("throttled")
    assert ("throttled", "warning") in checks(found)
    assert "slowed down by the hardware for its temperature" in found["sentence"]


# -- one row for each check -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "check"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest", 9, "driver_unreachable"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "driver_mismatch"),
        ("No devices were found", 6, "no_devices"),
        ("Failed to initialize NVML: Unknown Error", 255, "driver_error"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error", 255, "gpu_lost"),
        ("", 12, "driver_error"),
    ],
)  # fmt: skip
def test_a_driver_that_fails_is_bad(text, code, check):
    read = nvidia_smi.read_query_xml("", text, code)
    found = one(driver=read["driver"], gpus=read["gpus"])
    assert found["state"] == "bad"
    assert check in dict(checks(found))
    assert all(item["recommend"] for item in found["findings"])


def unread(reason, source="gpus"):
    return [documents.unreadable(source, "node gpu-0", reason)]


@pytest.mark.parametrize(
    ("reason", "state", "check"),
    [
        ("nvidia-smi did not end within 10 s", "bad", "driver_hangs"),
        ("there is no nvidia-smi, amd-smi or rocm-smi", "unknown", "no_nvidia_smi"),
        ("nvidia-smi may not be executed", "unknown", None),
        ("nvidia-smi's XML breaks off; 0 GPUs had been read whole", "unknown", None),
    ],
)
def test_what_could_not_be_read_says_why(reason, state, check):
    (found,) = seen(
        document(
            driver={}, gpus=[], memory={"total": gib(100), "available": gib(90)}, unreadable=unread(reason)
        )
    )
    assert found["state"] == state
    assert [name for name, _severity in checks(found)] == ([check] if check else [])
    assert reason in found["sentence"]


def test_a_node_that_must_have_gpus_without_nvidia_smi_is_bad():
    there = unread("there is no nvidia-smi, amd-smi or rocm-smi")
    (found,) = seen(
        document(driver={}, gpus=[], gpu={"count": 8, "product": "NVIDIA-H100"}, unreadable=there)
    )
    assert (found["state"], found["product"]) == ("bad", "NVIDIA-H100")


def test_a_node_of_which_nothing_was_read_is_named():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "node", "a fleet")
    evidence["nodes"]["gpu-9"] = {}
    evidence["unreadable"] = [documents.unreadable("ansible", "node gpu-9", "unreachable: no route to host")]
    (found,) = diagnose(evidence)["nodes"]
    assert (found["name"], found["state"]) == ("gpu-9", "unknown")
    assert found["sentence"] == "Not known: unreachable: no route to host."


@pytest.mark.parametrize(
    ("change", "check", "severity"),
    [
        ({"lost": True}, "gpu_lost", "bad"),
        ({"error": "Unknown Error"}, "gpu_error", "bad"),
        ({"error": "GPU requires reset"}, "reset_required", "bad"),
        ({"recovery": "Drain and Reset"}, "reset_required", "bad"),
        ({"remapped": {"failure": True}}, "remap_failed", "bad"),
        ({"remapped": {"pending": True}}, "remap_pending", "warning"),
        ({"retired": {"pending": True}}, "remap_pending", "warning"),
        ({"ecc": {"enabled": True, "pending": True, "uncorrected": 3}}, "ecc_uncorrected", "warning"),
        ({"ecc": {"enabled": True, "pending": False, "uncorrected": 0}}, "ecc_pending", "warning"),
        ({"mig": {"enabled": False, "pending": True, "instances": []}}, "mig_pending", "warning"),
        ({"fabric": {"state": "In Progress", "status": "N/A"}}, "fabric_not_ready", "bad"),
        ({"fabric": {"state": "Completed", "status": "Unknown Error"}}, "fabric_not_ready", "bad"),
        ({"throttle": ["hw_power_brake_slowdown"]}, "throttled", "warning"),
    ],
)
def test_a_sick_gpu(change, check, severity):
    found = one(gpus=[gpu(0), gpu(1, 0, **change)])
    assert checks(found) == [(check, severity)]
    assert found["state"] == severity
    assert found["findings"][0]["gpu"] == 1
    assert found["gpus"][0]["wrong"] == []
    assert len(found["gpus"][1]["wrong"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"recovery": "None"},
        {"throttle": ["sw_power_cap", "applications_clocks_setting"]},
        {"fabric": {"state": "Completed", "status": "Success"}},
        {"ecc": {"enabled": None, "pending": None, "uncorrected": None}},
        {"mig": None, "remapped": {}, "retired": {}, "ecc": {}, "fabric": {}},
    ],
)
def test_a_sound_gpu(change):
    assert one(gpus=[gpu(0, 0, **change)])["state"] == "fine"


def xid(code, bus="0000:3b:00", time="2026-11-30T06:00:00Z", name="python3", pid=7):
    return {
        "time": time,
        "code": code,
        "bus_id": bus,
        "pid": pid,
        "text": f"NVRM: Xid (PCI:{bus}): {code}, pid={pid}, name={name}, x",
    }


@pytest.mark.parametrize(
    ("xids", "state", "words"),
    [
        ([xid(79)], "bad", "Xid 79 (GPU has fallen off the bus) on GPU 0"),
        ([xid(79, time="2026-11-28T06:00:00Z")], "warning", "Xid 79"),
        ([xid(79, bus="0000:99:00", time="2026-11-28T06:00:00Z")], "bad", "on 0000:99:00"),
        ([xid(94), xid(94)], "warning", "on GPU 0, 2 times"),
        ([xid(109)], "warning", "Xid 109"),
        ([xid(13), xid(13), xid(45), xid(43)], "fine", "Nothing is wrong"),
        ([xid(13), xid(31, name="trtllm", pid=8)], "warning", "in several programs, which points at the GPU"),
        ([xid(999)], "warning", "Xid 999 isn't in the table: the driver reported it on GPU 0"),
        ([dict(xid(94), count=40)], "warning", "on GPU 0, 40 times"),
    ],
)
def test_xids(xids, state, words):
    found = one(gpus=[gpu(0)], xids=xids)
    assert found["state"] == state
    assert words in found["sentence"]


@pytest.mark.parametrize(("count", "expected"), [(8, []), (9, [("xid_many", "note")])])
def test_many_errors_of_programs_are_a_note(count, expected):
    found = one(gpus=[gpu(0)], xids=[dict(xid(13), count=count), xid(43)])
    assert checks(found) == expected
    assert found["state"] == "fine"


def test_a_node_that_was_read_in_part_is_not_known():
    (found,) = seen(
        document(gpus=[gpu(0), gpu(1)], unreadable=unread("nvidia-smi counts 8 GPUs and names 2"))
    )
    assert (found["state"], found["sentence"]) == (
        "unknown",
        "Not known: nvidia-smi counts 8 GPUs and names 2.",
    )


def test_one_gpu_that_may_not_be_read_makes_the_node_unknown():
    assert one(gpus=[gpu(0), gpu(1, error="Insufficient Permissions")])["state"] == "unknown"


def test_a_kernel_log_that_was_not_read_is_told():
    there = [documents.unreadable("kernel log", "node gpu-0", "the journal may not be read", "root")]
    (found,) = seen(document(gpus=[gpu(0)], unreadable=there))
    assert checks(found) == [("kernel_log_unread", "note")]
    assert found["sentence"] == "Nothing is wrong with its GPU, but its kernel log was not read."
    (cut,) = seen(document(gpus=[gpu(0)], xids=[xid(45)], unreadable=there))
    assert checks(cut) == []


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "reload_driver"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "load_driver"),
        ("couldn't find libnvidia-ml.so library", "install_driver"),
    ],
)
def test_a_driver_that_fails_gets_the_cure_for_it(text, action):
    found = one(driver={"version": None, "cuda": None, "error": text}, gpus=[])
    assert [change["name"] for change in found["findings"][0]["recommend"]] == [action]


def test_foreign_processes_count_where_kubernetes_runs():
    mine = process(3, pid=1, uid=UID, container="first")
    found = one(processes=[mine, outside(12)])
    assert checks(found) == [("foreign_process", "warning")]
    assert found["sentence"] == "Process 999 (python3) outside of Kubernetes holds 12.00 GiB of GPU 0."
    # A workstation without Kubernetes has processes, and that is all.
    assert one(processes=[outside(12)])["state"] == "fine"
    assert one(processes=[mine, outside(0.3)])["state"] == "fine"


def test_the_dead_hold_on():
    found = one(processes=[process(12, pid=5, alive=False, name=None)])
    assert checks(found) == [("dead_process", "warning")]
    assert found["sentence"] == "Process 5 has ended and still holds 12.00 GiB of GPU 0."


@pytest.mark.parametrize(
    ("service", "links", "state"),
    [
        ("failed", "NV18", "bad"),
        ("inactive", "NV18", "bad"),
        ("inactive", "PHB", "fine"),
        ("failed", "PHB", "warning"),
        ("active", "NV18", "fine"),
        (None, "NV18", "fine"),
    ],
)
def test_the_fabric_manager_counts_on_nvswitch_boxes(service, links, state):
    names = [f"GPU{number}" for number in range(8)]
    topology = {"links": {one: {other: "X" if one == other else links for other in names} for one in names}}
    gpus = [gpu(number) for number in range(8)]
    assert one(gpus=gpus, topology=topology, services={"fabric_manager": service})["state"] == state


@pytest.mark.parametrize(
    ("memory", "check"),
    [
        ({"available": gib(10)}, "memory_low"),
        ({"hugepages_total": 65536, "hugepages_free": 65536, "hugepage_size": 2 * MIB}, "hugepages"),
        ({"hugepages_total": 65536, "hugepages_free": 0, "hugepage_size": 2 * MIB}, None),
        ({"hugepages_total": 64, "hugepages_free": 64, "hugepage_size": 2 * MIB}, None),
        ({"total": None, "available": 1}, None),
    ],
)  # fmt: skip
def test_host_memory(memory, check):
    memory = dict({"total": gib(512), "available": gib(200)}, **memory)
    assert checks(one(gpus=[gpu(0)], memory=memory)) == ([(check, "warning")] if check else [])


@pytest.mark.parametrize(
    ("limits", "nics", "expected"),
    [
        (
            [{"pid": 7, "memlock": 8 * MIB, "nofile": 1048576}],
            {"NIC0": "mlx5_0"},
            [("memlock_low", "warning")],
        ),
        (
            [{"pid": 7, "memlock": 8 * MIB, "nofile": 1024}],
            {},
            [("memlock_low", "note"), ("nofile_low", "note")],
        ),
        ([{"pid": 7, "memlock": "unlimited", "nofile": 1048576}], {"NIC0": "mlx5_0"}, []),
        ([{"pid": 0, "memlock": 65536, "nofile": 256}], {"NIC0": "mlx5_0"}, []),
    ],
)
def test_limits_of_gpu_processes(limits, nics, expected):
    assert checks(one(gpus=[gpu(0)], limits=limits, topology={"nics": nics})) == expected


@pytest.mark.parametrize(("scope", "severity"), [("limit", "note"), ("node", "warning")])
def test_kills_by_the_kernel(scope, severity):
    found = one(gpus=[gpu(0)], kernel_oom=kernel_lines(scope=scope))
    assert checks(found) == [("kernel_oom", severity)]
    assert "VLLM::EngineCor (pid 2343 of the node)" in found["findings"][0]["sentence"]


# -- the document ---------------------------------------------------------------------------------------------------------


def test_worst_first_and_sizes_summed():
    two = [process(10, 0, uid=UID, container="first"), process(20, 1, uid=OTHER_UID, container="other")]
    found = seen(
        document("a-fine", gpus=[gpu(0, gib(10)), gpu(1, gib(20))], processes=two),
        document("b-unknown", gpus=[], driver={}, memory={"total": GIB, "available": GIB}),
        document("c-warning", gpus=[gpu(0, 0, throttle=["hw_slowdown"])]),
        document("d-bad", gpus=[gpu(0, 0, lost=True)]),
    )
    assert [item["name"] for item in found] == ["d-bad", "c-warning", "b-unknown", "a-fine"]
    fine = found[-1]
    assert (fine["used"], fine["total"]) == (gib(30), 2 * gpu(0)["total"])
    assert fine["sentence"] == "Nothing is wrong with its 2 GPUs."
    assert [row["processes"] for row in fine["gpus"]] == [1, 1]


def test_a_finding_says_what_its_check_means():
    (item,) = one(gpus=[gpu(0, 0, lost=True)])["findings"]
    assert item["means"] == node_findings.CHECKS["gpu_lost"]


def test_nodes_of_the_cluster_alone_are_not_judged():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["nodes"]["n1"] = documents.node(
        capacity={"nvidia.com/gpu": "8"}, conditions=[{"type": "Ready", "status": "True"}]
    )
    assert diagnose(evidence)["nodes"] == []


def test_an_instance_is_not_the_card():
    sizes = {"total": gib(39), "used": gib(30), "free": gib(9)}
    instances = [dict({"uuid": None, "gi": 1, "ci": 0, "profile": "3g.40gb"}, **sizes)]
    card = gpu(0, gib(30), mig={"enabled": True, "pending": True, "instances": instances})
    found = one(gpus=[card], processes=[process(30, gi=1, ci=0, uid=UID, container="first")])
    assert (found["state"], found["gpus"][0]["mig"]) == ("fine", ["3g.40gb"])


def test_a_gpu_behind_the_end_of_a_broken_output_is_not_known_and_no_fault():
    broken = {"index": None, "lost": None, "error": "not read: the output breaks off"}
    assert list(gpu_state.troubles(broken)) == []
    assert [item.severity for item in gpu_state.troubles(dict(broken, lost=True))] == ["bad"]
