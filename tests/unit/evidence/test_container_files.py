# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi in running containers: drivers of different age, containers of one node, answers that are failures."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import nvidia_smi
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.container_files import read_inside

MIB = 1 << 20
VALUES = {
    "index": "0",
    "uuid": "GPU-1",
    "name": "NVIDIA H100 80GB HBM3",
    "pci.bus_id": "00000000:8D:00.0",
    "driver_version": "580.173.02",
    "memory.total": "81559",
    "memory.used": "70323",
    "memory.free": "10757",
    "memory.reserved": "480",
}


class Driver:
    """Answers like a driver that knows the fields of ``query``; everything else in the container isn't there."""

    def __init__(self, query, apps="", values=()):
        self.query, self.apps, self.values, self.asked = query, apps, dict(VALUES, **dict(values)), []

    def __call__(self, command):
        if command[0] != "nvidia-smi":
            raise ApiError(None, "No such file or directory")
        self.asked.append(command)
        option, names = command[1].split("=")
        if option == "--query-compute-apps":
            return self.apps
        fields = names.split(",")
        if not set(fields) <= set(self.query):
            raise ApiError(None, "nvidia-smi: command terminated with non-zero exit code: exit status 2")
        return ", ".join(self.values.get(field, "[N/A]") for field in fields) + "\n"


class Silent:
    """A container in which nvidia-smi says only this."""

    def __init__(self, printed=None, complaint=None):
        self.printed, self.complaint, self.asked = printed, complaint, 0

    def __call__(self, command):
        if command[0] != "nvidia-smi":
            raise ApiError(None, "No such file or directory")
        self.asked += 1
        if self.complaint:
            raise ApiError(None, self.complaint)
        return self.printed


def look(run, node=None):
    node = node or documents.node()
    pod = documents.pod("llm", "engine")
    read_inside(run, pod, documents.container("vllm", attempts=[documents.attempt(state="running")]), node)
    return node


@pytest.mark.parametrize("age", range(len(nvidia_smi.GPU_QUERIES)))
def test_each_driver_is_asked_for_what_it_knows(age):
    driver = Driver(nvidia_smi.GPU_QUERIES[age])
    (item,) = look(driver)["gpus"]
    assert (item["uuid"], item["used"], item["free"]) == ("GPU-1", 70323 * MIB, 10757 * MIB)
    assert item["reserved"] == (480 * MIB if age == 0 else None)
    # The query for processes comes last.
    assert len(driver.asked) == age + 2
    assert all(command[2] == "--format=csv,noheader,nounits" for command in driver.asked)


def test_processes_where_they_are_shown():
    node = look(Driver(nvidia_smi.GPU_QUERIES[0], apps="GPU-1, 117, VLLM::EngineCore, 70314\n"))
    assert node["driver"] == {"version": "580.173.02", "cuda": None, "error": None}
    assert node["processes"] == [
        nvidia_smi.process(gpu="GPU-1", pid=117, name="VLLM::EngineCore", type="C", used=70314 * MIB)
    ]


def test_containers_of_one_node_add_their_gpus():
    node = look(Driver(nvidia_smi.GPU_QUERIES[0], apps="GPU-1, 117, python, 10\n"))
    look(
        Driver(nvidia_smi.GPU_QUERIES[0], apps="GPU-2, 117, python, 10\n", values={"uuid": "GPU-2"}.items()),
        node,
    )
    look(Driver(nvidia_smi.GPU_QUERIES[0], apps="GPU-1, 117, python, 10\n"), node)
    # Both containers count from 0.
    assert [(item["uuid"], item["index"]) for item in node["gpus"]] == [("GPU-1", 0), ("GPU-2", None)]
    assert [item["gpu"] for item in node["processes"]] == ["GPU-1", "GPU-2"]


def test_container_that_lost_its_devices():
    node = look(Silent(complaint="Failed to initialize NVML: Unknown Error"))
    assert node["gpus"] == []
    assert "recreate the pod" in node["driver"]["error"]


def test_hanging_nvidia_smi_is_asked_once():
    run = Silent(complaint="nvidia-smi did not end within 5 s")
    assert "did not end" in look(run)["driver"]["error"]
    assert run.asked == 1


@pytest.mark.parametrize(
    "complaint", ["No such file or directory", 'exec: "nvidia-smi": executable file not found in $PATH']
)
def test_image_without_nvidia_smi_says_nothing_about_the_node(complaint):
    run = Silent(complaint=complaint)
    node = look(run)
    assert (node["gpus"], node["driver"]) == ([], {})
    assert run.asked == 1


def test_output_that_is_no_csv():
    assert look(Silent(printed="hello\n"))["gpus"] == []


def test_refused_exec_is_passed_on():
    def refused(_command):
        raise ApiError(403, "forbidden")

    with pytest.raises(ApiError):
        look(refused)
