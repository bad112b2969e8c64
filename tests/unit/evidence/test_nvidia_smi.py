# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi's outputs in real situations (smi/README.md says whose), in pieces, and made to hurt."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import CAUSES
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import nvidia_smi

HOME = Path(__file__).parent / "smi"
RECORDED = sorted(path.name for path in HOME.glob("*.xml"))
MIB = 1 << 20


def recorded(name):
    return (HOME / name).read_text()


def read(name, **more):
    return nvidia_smi.read_query_xml(recorded(name), **more)


def only(found):
    (item,) = found["gpus"]
    return item


def mib(item, *fields):
    return tuple(None if item[field] is None else item[field] / MIB for field in fields)


def holders(found):
    return [
        (
            item["pid"],
            item["type"],
            item["name"],
            item["used"] and item["used"] // MIB,
            item["gi"],
            item["ci"],
        )
        for item in found["processes"]
    ]


# --- situations


@pytest.mark.parametrize("name", [name for name in RECORDED if not name.startswith("lost-named")])
def test_what_is_whole_is_read_whole(name):
    found = read(name)
    assert found["partial"] is None
    assert found["gpus"]
    assert all(item["uuid"] and item["bus_id"] and item["minor"] is not None for item in found["gpus"])
    assert {tuple(item) for item in found["gpus"]} == {tuple(nvidia_smi.gpu())}
    assert {tuple(item) for item in found["processes"]} <= {tuple(nvidia_smi.process())}


def test_idle():
    found = read("idle.xml")
    assert found["driver"] == {"version": "580.105.08", "cuda": "13.0", "error": None}
    assert found["processes"] == []
    assert only(found) == nvidia_smi.gpu(
        index=0,
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        bus_id="00000000:53:00.0",
        minor=0,
        total=81559 * MIB,
        reserved=480 * MIB,
        used=0,
        free=81080 * MIB,
        mig={"enabled": False, "pending": False, "instances": []},
        virtualization="Pass-Through",
        compute_mode="Default",
        persistence=True,
        ecc={"enabled": True, "uncorrected": 0, "pending": True},
        remapped={"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        fabric={"state": "Completed", "status": "Success"},
    )


def test_full():
    found = read("full.xml")
    assert mib(only(found), "total", "used", "free") == (81559, 70323, 10757)
    assert holders(found) == [(117, "C", "VLLM::EngineCore", 70314, None, None)]
    assert found["processes"][0]["gpu"] == only(found)["uuid"]


def test_other_tenants():
    found = read("foreign-pod.xml")
    assert holders(found) == [
        (23824, "C", "python", 10725, None, None),
        (33724, "C", "tritonserver", 12247, None, None),
    ]


def test_memory_without_a_process():
    found = read("zombie-no-process.xml")
    item = only(found)
    assert found["processes"] == []
    assert mib(item, "used") == (58222,)
    assert (item["lost"], item["error"], item["recovery"]) == (False, "GPU requires reset", "Reset")


def test_processes_that_are_gone_have_no_name():
    found = read("zombie-unknown-name.xml")
    assert holders(found) == [(31794, "C", None, 5371, None, None), (27707, "C", None, 1011, None, None)]
    # The word stands for the process, not for the GPU.
    assert only(found)["error"] is None


def test_mig_idle_and_the_names_of_its_instances():
    found = read("mig-idle.xml")
    item = only(found)
    assert item["mig"]["enabled"]
    assert (item["minor"], item["persistence"]) == (1, False)
    assert [
        (part["gi"], part["ci"], *mib(part, "total", "used", "free")) for part in item["mig"]["instances"]
    ] == [
        (3, 0, 19968, 12, 19955),
        (4, 0, 19968, 12, 19955),
        (5, 0, 19968, 12, 19955),
        (6, 0, 19968, 12, 19955),
    ]
    nvidia_smi.name_instances(found["gpus"], recorded("mig-list.txt"))
    assert [(part["profile"], part["uuid"][:12]) for part in item["mig"]["instances"]] == [
        ("2g.20gb", f"MIG-0000000{number}") for number in range(4)
    ]


def test_instances_of_another_number_are_not_named():
    found = read("mig-idle.xml")
    listed = "\n".join(recorded("mig-list.txt").splitlines()[:-1])
    nvidia_smi.name_instances(found["gpus"], listed)
    assert [part["uuid"] for part in only(found)["mig"]["instances"]] == [None] * 4


def test_mig_in_use():
    found = read("mig-in-use.xml")
    assert holders(found) == [
        (34965, "C", "python", 14195, 3, 0),
        (42152, "C", "python3", 149, 3, 0),
        (46505, "C", "python", 9807, 5, 0),
    ]
    assert {item["gpu"] for item in found["processes"]} == {only(found)["uuid"]}


def test_mig_without_privilege_says_so_and_still_has_its_instances():
    item = only(read("mig-unprivileged.xml"))
    assert mib(item, "total", "reserved", "used", "free") == (None,) * 4
    assert (item["error"], item["lost"]) == ("Insufficient Permissions", False)
    assert mib(item["mig"]["instances"][0], "total") == (9856,)


def test_vgpu_guest():
    item = only(read("vgpu-guest.xml"))
    assert (item["virtualization"], item["name"], item["mig"]) == ("VGPU", "NVIDIA L40S-2Q", None)
    assert mib(item, "total", "reserved", "used", "free") == (2048, 458, 406, 1183)
    assert item["ecc"] == {"enabled": None, "uncorrected": None, "pending": None}


def test_row_remapping_and_a_change_of_ecc():
    pending, failed = read("remap-pending.xml")["gpus"]
    assert pending["remapped"] == {"correctable": 0, "uncorrectable": 4, "pending": True, "failure": False}
    assert pending["ecc"] == {"enabled": True, "uncorrected": 32, "pending": False}
    assert pending["recovery"] == "Drain and Reset"
    assert failed["remapped"] == {"correctable": 0, "uncorrectable": 12, "pending": False, "failure": True}


def test_lost_gpu_that_is_still_described():
    healthy, lost = read("lost-described.xml")["gpus"]
    assert (healthy["lost"], healthy["error"]) == (False, None)
    assert (lost["lost"], lost["error"], lost["bus_id"]) == (True, "GPU is lost", "00000000:0B:00.0")
    assert mib(lost, "total", "used") == (None, None)
    assert lost["remapped"]["pending"] is None


def test_lost_gpu_that_is_only_named_takes_its_place():
    found = read("lost-named.xml", complaint=recorded("lost-named.stderr.txt"), code=15)
    assert [item["index"] for item in found["gpus"]] == list(range(8))
    assert [item["index"] for item in found["gpus"] if item["lost"]] == [3]
    lost = found["gpus"][3]
    assert (lost["bus_id"], lost["uuid"]) == ("00000000:64:00.0", None)
    assert lost["error"] == "Unable to determine the device handle: Unknown Error"
    assert found["failure"]["cause"] == "gpu_hardware_fault"
    # The driver answers for the other seven, and no GPU is missing.
    assert (found["driver"]["error"], found["partial"]) == (None, None)


def test_gpu_that_nobody_names_is_missed():
    found = read("lost-named.xml")
    assert found["partial"] == "nvidia-smi counts 8 GPUs and names 7"
    assert [item["lost"] for item in found["gpus"]] == [False] * 7 + [True]
    assert found["gpus"][7] == nvidia_smi.gpu(lost=True, error="not listed by nvidia-smi, which counts 8")


def test_gpus_that_are_counted_beyond_reason_are_not_made_up():
    text = recorded("idle.xml").replace("<attached_gpus>1<", "<attached_gpus>999999999999<")
    assert len(nvidia_smi.read_query_xml(text)["gpus"]) == 1


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("for GPU7: 0000:DB:00.0: Unknown Error", 7),
        ("for GPU 0000:DB:00.0: Unknown Error", None),
        (
            "for GPU7: 0000:DB:00.0: Unknown Error\nUnable to determine the device handle for GPU 0000:DB:00.0: Unknown Error",
            7,
        ),
    ],
)
def test_a_lost_gpu_alone_keeps_the_number_that_nvidia_smi_gives_it(text, index):
    line = f"Unable to determine the device handle {text}\n"
    lost = only(nvidia_smi.read_query_xml(line, complaint=line, code=255))
    assert (lost["index"], lost["bus_id"], lost["lost"]) == (index, "00000000:DB:00.0", True)


@pytest.mark.parametrize(
    ("text", "bus_id", "error"),
    [
        ("GPU3: 0000:5F:00.0: Unknown Error", "00000000:5F:00.0", "Unknown Error"),
        ("GPU0000:25:00.0: Unknown Error", "00000000:25:00.0", "Unknown Error"),
        ("GPU 0000:04:00.0: Not Found", "00000000:04:00.0", "Not Found"),
        (
            "GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU",
            "00000000:02:00.0",
            "GPU is lost",
        ),
    ],
)
def test_ways_to_name_a_lost_gpu(text, bus_id, error):
    found = nvidia_smi.read_query_xml(f"Unable to determine the device handle for {text}\n", code=255)
    assert (only(found)["bus_id"], only(found)["lost"]) == (bus_id, True)
    assert only(found)["error"] == f"Unable to determine the device handle: {error}"
    assert found["driver"]["error"] == "a GPU has fallen off the bus (Unable to determine the device handle)"


def test_eight_gpus_behind_nvswitch():
    found = read("nvswitch-8.xml")
    assert [item["bus_id"][9:11] for item in found["gpus"]] == [
        "04",
        "23",
        "43",
        "64",
        "84",
        "A3",
        "C3",
        "E4",
    ]
    assert [mib(item, "used")[0] for item in found["gpus"]] == [74953] + [4] * 7
    assert {item["fabric"]["status"] for item in found["gpus"]} == {"Success"}


def test_mps():
    found = read("mps.xml")
    assert only(found)["compute_mode"] == "Exclusive_Process"
    assert holders(found) == [
        (144377, "M+C", "/tmp/nbody", 107, None, None),
        (144379, "M+C", "/tmp/nbody", 107, None, None),
        (144443, "C", "nvidia-cuda-mps-server", 25, None, None),
    ]


def test_gb10_has_no_memory_of_its_own():
    found = read("gb10.xml")
    assert mib(only(found), "total", "reserved", "used", "free") == (None,) * 4
    assert (only(found)["error"], only(found)["lost"]) == (None, False)
    assert [item[:4] for item in holders(found)] == [
        (2553, "G", "/usr/lib/xorg/Xorg", 18),
        (2651, "G", "/usr/bin/gnome-shell", 6),
        (415592, "C", "VLLM::EngineCore", 69564),
    ]


def test_throttled_says_by_what_and_idle_is_no_throttle():
    assert only(read("throttled.xml"))["throttle"] == ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"]
    assert only(read("idle.xml"))["throttle"] == []
    old = recorded("old-driver.xml").replace("power_cap>Not Active", "power_cap>Active")
    assert only(nvidia_smi.read_query_xml(old))["throttle"] == ["sw_power_cap"]


def test_old_driver():
    found = read("old-driver.xml")
    item = only(found)
    assert found["driver"] == {"version": "460.73.01", "cuda": "11.2", "error": None}
    assert mib(item, "total", "reserved", "used", "free") == (32510, None, 31689, 821)
    assert item["ecc"] == {"enabled": True, "uncorrected": 0, "pending": True}
    assert item["retired"] == {"double_bit": 0, "pending": False}
    assert item["mig"] is None


def test_new_driver_says_its_versions_twice():
    text = recorded("new-driver.xml")
    expected = {"version": "615.23", "cuda": "13.4", "error": None}
    assert nvidia_smi.read_query_xml(text)["driver"] == expected
    for gone in ("driver_version", "cuda_version"):
        text = text.replace(f"<{gone}>", "<gone>").replace(f"</{gone}>", "</gone>")
    assert nvidia_smi.read_query_xml(text)["driver"] == expected


def test_reset_that_drivers_before_570_ask_for():
    text = recorded("mig-idle.xml")
    asked = text.replace("<reset_required>No", "<reset_required>Yes")
    drained = text.replace("<drain_and_reset_recommended>No", "<drain_and_reset_recommended>Yes")
    seen = [only(nvidia_smi.read_query_xml(each))["recovery"] for each in (text, asked, drained)]
    assert seen == [None, "Reset", "Drain and Reset"]


# --- CSV


def test_csv_with_header_and_units_says_the_same_as_xml():
    found = nvidia_smi.read_csv(recorded("query-h200-mig.csv"), ())
    item = only(found)
    assert found["driver"]["version"] == "610.43.02"
    assert mib(item, "total", "reserved", "used", "free") == (143771, 623, 44, 143105)
    assert item["mig"] == {"enabled": True, "pending": True, "instances": []}
    assert (item["bus_id"], item["recovery"], item["throttle"]) == ("00000000:83:00.0", None, [])
    assert item["remapped"] == {"correctable": None, "uncorrectable": None, "pending": None, "failure": None}


def test_csv_of_every_query_in_its_order():
    for fields in nvidia_smi.GPU_QUERIES:
        row = ", ".join(
            {"index": "3", "memory.used": "44", "clocks_throttle_reasons.active": "0x0000000000000049"}.get(
                field, "[N/A]"
            )
            for field in fields
        )
        item = only(nvidia_smi.read_csv(row + "\n", fields))
        assert (item["index"], item["used"], item["total"]) == (3, 44 * MIB, None)
        named = "clocks_throttle_reasons.active" in fields
        assert item["throttle"] == (["hw_slowdown", "hw_thermal_slowdown"] if named else [])


def test_csv_of_a_gpu_that_wants_a_reset():
    found = nvidia_smi.read_csv(recorded("query-requires-reset.csv"), ())
    assert (only(found)["error"], only(found)["recovery"]) == ("GPU requires reset", "Reset")


def test_processes_as_csv():
    (item,) = nvidia_smi.read_process_csv(recorded("compute-apps.csv"))
    assert (item["pid"], item["name"], item["used"]) == (
        40170,
        "/opt/rh/rh-python38/root/usr/bin/python3",
        185 * MIB,
    )
    bare = "GPU-1, 31794, [Not Found], [N/A]\nGPU-1, 7, run, this, 12\nNo running processes found\n"
    gone, odd = nvidia_smi.read_process_csv(bare)
    assert (gone["gpu"], gone["pid"], gone["name"], gone["used"]) == ("GPU-1", 31794, None, None)
    assert (odd["pid"], odd["name"], odd["used"]) == (7, "run, this", 12 * MIB)


# --- failures


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA"
            " driver is installed and running.",
            "not_memory_driver",
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
            "not_memory_driver",
        ),
        ("Failed to initialize NVML: Unknown Error", "not_memory_driver"),
        ("Failed to initialize NVML: Insufficient Permissions", "not_memory_config"),
        ("No devices were found", "gpu_hardware_fault"),
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", "gpu_hardware_fault"),
        ("bash: nvidia-smi: command not found", "not_memory_config"),
        ('exec: "nvidia-smi": executable file not found in $PATH', "not_memory_config"),
        ("[Errno 2] No such file or directory: b'nvidia-smi'", "not_memory_config"),
        ('Field "cuda_version" is not a valid field to query.', None),
        ("nvidia-smi did not end within 5 s", None),
    ],
)
def test_failure_texts(text, cause):
    found = nvidia_smi.read_query_xml("", complaint=text, code=9)
    assert found["failure"]["cause"] == cause
    assert found["driver"]["error"] == found["failure"]["error"]
    # nvidia-smi prints most of them on standard output.
    assert nvidia_smi.read_query_xml(text + "\n")["failure"] == found["failure"]
    assert nvidia_smi.read_csv(text + "\n", nvidia_smi.GPU_QUERIES[0])["failure"] == found["failure"]


def test_words_of_a_failure_are_known_again():
    for _pattern, words, cause in nvidia_smi._FAILURES:
        assert nvidia_smi.failure(words) == {"error": words, "cause": cause}
        assert cause is None or cause in CAUSES


@pytest.mark.parametrize("code", sorted(nvidia_smi._FAILURE_CODES))
def test_exit_status_alone(code):
    assert nvidia_smi.failure("", code)["error"]
    assert nvidia_smi.failure("", 0) is None


def test_nothing_at_all_is_said():
    found = nvidia_smi.read_query_xml("")
    assert (found["gpus"], found["failure"]) == ([], None)
    assert found["partial"] == "nvidia-smi printed nothing that describes a GPU"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:83:00.0", "00000000:83:00.0"),
        ("0000:5f:00", "00000000:5F:00.0"),
        ("0002:81:00.0", "00000002:81:00.0"),
        ("83:00.0", "00000000:83:00.0"),
        ("GPU 3", None),
        (None, None),
    ],
)
def test_bus_ids_of_nvidia_smi_and_of_the_kernel_are_one(text, normal):
    assert nvidia_smi.normal_bus_id(text) == normal


# --- text that is broken or made to hurt


def test_text_that_breaks_off_keeps_the_gpus_before():
    text = recorded("nvswitch-8.xml")
    cut = text[: text.index('<gpu id="00000000:64:00.0">') + 900]
    found = nvidia_smi.read_query_xml(cut)
    assert [item["index"] for item in found["gpus"]] == [0, 1, 2, *[None] * 5]
    assert found["gpus"][3:] == [nvidia_smi.gpu(lost=None, error="not read: the output breaks off")] * 5
    assert found["partial"] == "nvidia-smi's XML breaks off; 3 GPUs had been read whole"
    assert found["driver"]["version"] == "570.158.01"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RECORDED), st.integers(min_value=0, max_value=30000))
def test_wherever_it_breaks_off_no_gpu_is_half_read(name, at):
    whole = read(name)["gpus"]
    cut = nvidia_smi.read_query_xml(recorded(name)[:at])
    taken = [item for item in cut["gpus"] if item["lost"] is not None]
    assert taken == whole[: len(taken)]
    assert cut["partial"] or len(cut["gpus"]) == len(whole)


def test_warnings_around_the_document():
    text = "WARNING: infoROM is corrupted at gpu 0000:53:00.0\n" + recorded("idle.xml") + "\nsome more\n"
    found = nvidia_smi.read_query_xml(text)
    assert only(found)["name"] == "NVIDIA H100 80GB HBM3"
    assert found["partial"] is None


def test_raw_characters_in_a_process_name():
    text = recorded("full.xml").replace("VLLM::EngineCore", "a & b <defunct> \x1b[0m&unknown; \x00")
    found = nvidia_smi.read_query_xml(text)
    assert found["partial"] is None
    assert found["processes"][0]["name"] == "a & b <defunct> [0m&unknown;"


def test_arguments_of_a_process_are_left_out():
    text = recorded("full.xml").replace("VLLM::EngineCore", "/usr/bin/python3 --api-key sk-1234567890abcdef")
    found = nvidia_smi.read_query_xml(text)
    assert found["processes"][0]["name"] == "/usr/bin/python3"
    assert "sk-1234567890abcdef" not in json.dumps(found)


BOMB = """<?xml version="1.0"?>
<!DOCTYPE nvidia_smi_log [
<!ENTITY a "aaaaaaaaaaaaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c SYSTEM "file:///etc/passwd">
]>
<nvidia_smi_log><driver_version>&b;&c;</driver_version><gpu id="1"/></nvidia_smi_log>
"""


def test_entities_are_refused():
    found = nvidia_smi.read_query_xml(BOMB)
    assert (found["gpus"], found["driver"]["version"]) == ([], None)
    assert "declares entities" in found["partial"]


def test_an_embedded_dtd_without_entities_is_nvidia_smis_own():
    text = recorded("idle.xml").replace(
        'SYSTEM "nvsmi_device_v13.dtd">',
        "[\n<!ELEMENT nvidia_smi_log (timestamp, driver_version, gpu*)>\n<!ATTLIST gpu id CDATA #REQUIRED>\n]>",
    )
    assert nvidia_smi.read_query_xml(text) == read("idle.xml")


@pytest.mark.parametrize(
    "text",
    [
        "<nvidia_smi_log>" + "<a>" * 500_000,
        "<nvidia_smi_log>" + "<a/>" * 1_000_000 + "</nvidia_smi_log>",
        "<nvidia_smi_log>" + "<process_name>" * 500_000,
        "<nvidia_smi_log>" + "<supported_mem_clock>" * 500_000,
        "<nvidia_smi_log>" + "&" * 3_000_000,
        "Unable to determine the device handle for GPU " * 100_000,
        "Unable to determine the device handle for GPU 0000:02:00.0: x\n" * 50_000,
        "<nvidia_smi_log>\ud800\ufffe</nvidia_smi_log>",
        "<html><nvidia_smi_log/></html>",
        "<nvidia_smi_log " + "a='1' " * 100_000,
        "a," * 1_000_000,
        "x" * (17 << 20),
    ],
    ids=lambda text: text[:30].encode("ascii", "replace").decode(),
)
def test_hostile_text_costs_little_and_raises_nothing(text):
    started = time.process_time()
    found = nvidia_smi.read_query_xml(text)
    nvidia_smi.read_csv(text, nvidia_smi.GPU_QUERIES[0])
    nvidia_smi.read_process_csv(text)
    nvidia_smi.name_instances(found["gpus"], text)
    assert found["partial"] or found["gpus"] or found["failure"]
    assert len(found["gpus"]) <= 256
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "number", ["9" * 400, "-5 MiB", "1e9 MiB", "12 parsecs", "999999999999999 TiB", "0x10", "٣ MiB"]
)
def test_numbers_that_are_none(number):
    text = (
        recorded("full.xml")
        .replace("<used>70323 MiB", f"<used>{number}")
        .replace("<pid>117", f"<pid>{number}")
    )
    found = nvidia_smi.read_query_xml(text)
    assert only(found)["used"] is None
    assert found["processes"] == []


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_taken(text):
    for each in (text, f"<nvidia_smi_log><gpu id='{text}'>{text}</gpu></nvidia_smi_log>"):
        json.dumps(nvidia_smi.read_query_xml(each, complaint=text))
        json.dumps(nvidia_smi.read_csv(each, nvidia_smi.GPU_QUERIES[-1]))
        json.dumps(nvidia_smi.read_process_csv(each))


@pytest.mark.parametrize("code", [9, 139])
@pytest.mark.parametrize("text", ["Segmentation fault", "Failed to initialize NVML: Not Found"])
def test_a_failure_that_nobody_knows_is_quoted(text, code):
    found = nvidia_smi.read_query_xml(text + "\n", code=code)
    assert found["failure"] == {"error": f"nvidia-smi ended with exit code {code}: {text}", "cause": None}
    assert found["driver"]["error"] == found["failure"]["error"]
    assert nvidia_smi.failure(found["driver"]["error"]) == found["failure"], "known again"


def test_an_exit_code_alone_still_says_why():
    assert nvidia_smi.failure("", 9)["error"].endswith("(NVML: Driver Not Loaded)")
