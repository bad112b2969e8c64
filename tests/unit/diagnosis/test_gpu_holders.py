# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who held the GPU's memory: a log of a failed start beside what the node lists."""

from __future__ import annotations

import pytest
from evidence_samples import excerpt, oom_text, pod_with
from node_samples import (
    H100,
    IDS,
    OTHER_UID,
    RESERVED,
    UID,
    UUIDS,
    document,
    gib,
    gpu,
    node,
    outside,
    process,
)

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB

# vLLM 0.11's words; 79.19 GiB is what torch sees of an H100's 81559 MiB.
FREE_TEXT = (
    "ValueError: Free memory on device ({free}/79.19 GiB) on startup is less than desired GPU memory utilization (0.9, 71.27 GiB). "
    "Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
DRIVER_TEXT = "torch.AcceleratorError: CUDA error: out of memory"


def run(index, state="terminated", container="first", texts=(), phase=None, **more):
    fields = {
        "terminated": {"exit_code": 1, "reason": "Error", "started_at": "2026-11-30T06:50:00Z", "finished_at": "2026-11-30T06:52:00Z"},
        "waiting": {"reason": "CrashLoopBackOff"},
        "running": {"started_at": "2026-11-30T06:53:00Z"},
    }[state]  # fmt: skip
    read = {"log": excerpt(list(texts), phase)} if texts else {}
    return documents.attempt(index, state, container_id=IDS.get(container), **dict(fields, **read, **more))


def crashing(text, phase=None, **more):
    """A pod whose first run failed with ``text`` and which waits to be started again."""
    return dict(
        pod_with([run(0, texts=[text], phase=phase), run(1, "waiting", container=None)], **more), uid=UID
    )


def other_pod():
    return documents.pod("llm", "neighbour-0", uid=OTHER_UID, node="gpu-0", containers=[])


def judged(pod, *processes, others=(), **fields):
    """The trigger of ``pod`` when its node lists ``processes``."""
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [pod, *others]
    seen = document(processes=processes, **fields)
    found = diagnose(evidence, nodes=[seen])["pods"][0]
    return next(item for item in found["findings"] if item["role"] == "trigger")


def actions(finding):
    return [item["name"] for item in finding["recommend"] if item["target"] == "action"]


def from_node(finding):
    return [item["text"] for item in finding["evidence"] if item["source"] == "node"]


def test_another_pod_is_named_with_its_bytes():
    tenant = process(60, uid=OTHER_UID, container="other")
    found = judged(crashing(FREE_TEXT.format(free="18.1")), tenant, others=[other_pod()])
    assert found["cause"] == "gpu_free_below_util"
    (shown,) = from_node(found)
    assert shown.startswith("pod llm/neighbour-0 holds 60.00 GiB of GPU 0: process 4711 (python3)")
    assert actions(found)[:2] == ["one_engine_per_gpu", "free_gpu"]
    stop = next(item for item in found["recommend"] if item["name"] == "free_gpu")
    assert stop["value"] == "pod llm/neighbour-0"
    assert "60.00 GiB" in stop["why"]


def test_a_pod_that_was_not_read_is_named_by_its_uid():
    found = judged(crashing(FREE_TEXT.format(free="18.1")), process(60, uid=OTHER_UID, container="other"))
    assert f"a pod that was not looked at (uid {OTHER_UID}) holds 60.00 GiB" in found["explanation"]


def test_what_an_earlier_run_left_behind_wants_a_new_pod():
    pod = pod_with(
        [
            run(0, container="first", texts=["INFO ok"]),
            run(1, container="second", texts=[FREE_TEXT.format(free="5.0")]),
        ]
    )
    pod["containers"][0]["attempts"][0]["log"] = documents.log(readable=False, reason="gone")
    pod["containers"][0]["attempts"][0]["finished_at"] = "2026-11-30T06:40:00Z"
    found = judged(dict(pod, uid=UID), process(73, uid=UID, container="first"))
    assert found["cause"] == "gpu_free_below_util"
    assert "an earlier run of container vllm that has not ended holds 73.00 GiB" in found["explanation"]
    assert actions(found)[:2] == ["recreate_pod", "wait_for_gpu"]


def test_a_run_that_the_api_no_longer_knows_is_an_earlier_one():
    pod = crashing(FREE_TEXT.format(free="5.0"))
    found = judged(pod, process(73, uid=UID, container="docker"))
    assert "an earlier run of container vllm" in found["explanation"]


def test_a_process_outside_of_kubernetes_is_named_with_its_pid():
    found = judged(crashing(FREE_TEXT.format(free="39.0")), outside(39.5))
    assert (
        "a process outside of Kubernetes holds 39.50 GiB of GPU 0: process 999 (python3)"
        in found["explanation"]
    )
    stop = found["recommend"][0]
    assert (stop["name"], stop["value"]) == (
        "free_gpu",
        "a process outside of Kubernetes, process 999 of the node",
    )


def test_a_container_of_the_same_pod_is_named():
    pod = crashing(FREE_TEXT.format(free="49.0"))
    beside = documents.container("embedder", attempts=[run(0, "running", container="sidecar")])
    pod["containers"].append(beside)
    found = judged(pod, process(30, uid=UID, container="sidecar"))
    assert "container embedder of the same pod holds 30.00 GiB" in found["explanation"]
    assert actions(found)[0] == "one_engine_per_gpu"


def test_memory_without_a_process_is_a_zombie():
    found = judged(crashing(FREE_TEXT.format(free="18.0")), gpus=[gpu(0, gib(61))])
    assert "61.00 GiB of GPU 0 are in use, and no process is listed for them" in found["explanation"]
    assert actions(found)[:2] == ["free_gpu", "reset_gpu"]


def test_a_process_that_has_ended_and_holds_on_is_one_too():
    dead = process(61, pid=77, alive=False, name=None, started_at=None)
    found = judged(crashing(FREE_TEXT.format(free="18.0")), dead)
    assert (
        "a process that has ended and whose memory was not released holds 61.00 GiB" in found["explanation"]
    )
    assert "reset_gpu" in actions(found)


def test_who_is_gone_by_now_is_waited_for_and_not_hunted():
    found = judged(crashing(FREE_TEXT.format(free="4.0")), gpus=[gpu(0, 0)])
    assert (
        "whoever held 75.19 GiB of GPU 0 had released it when the node was looked at" in found["explanation"]
    )
    assert actions(found)[0] == "wait_for_gpu"
    assert "free_gpu" not in actions(found)


def test_a_context_of_our_own_is_nobody_else():
    # 2 GiB missing at the start: the context, and nothing that the node would have to explain.
    found = judged(crashing(FREE_TEXT.format(free="77.2")), gpus=[gpu(0, 0)])
    assert from_node(found) == []


def test_monitors_and_small_contexts_are_no_tenants():
    small = [
        process(0.4, pid=1, name="/usr/bin/dcgm-exporter", uid=OTHER_UID, container="other"),
        outside(0.1, name="nvidia-persistenced"),
    ]
    assert from_node(judged(crashing(FREE_TEXT.format(free="70.0")), *small)) == [
        "whoever held 9.19 GiB of GPU 0 had released it when the node was looked at"
    ]


def test_a_monitor_that_takes_much_is_named_as_what_it_is():
    found = judged(
        crashing(FREE_TEXT.format(free="68.0")),
        process(11, name="/usr/bin/nv-hostengine", cgroup="/system.slice/dcgm.service"),
    )
    assert "a monitor (process 4711 (nv-hostengine)) holds 11.00 GiB" in found["explanation"]


def test_what_started_after_the_failure_did_not_hold_it_but_will_fail_the_next_start():
    late = process(60, uid=OTHER_UID, container="other", started_at="2026-11-30T06:58:00Z")
    found = judged(crashing(FREE_TEXT.format(free="18.1")), late, others=[other_pod()])
    assert (
        "since 2026-11-30T06:58:00Z, after the failure: the next start will find it there"
        in (found["explanation"])
    )
    assert "whoever held 61.09 GiB of GPU 0 had released it" in found["explanation"]
    assert actions(found)[:2] == ["free_gpu", "one_engine_per_gpu"]
    assert found["recommend"][0]["value"] == "pod llm/neighbour-0"


def test_a_plain_oom_is_not_blamed_on_who_came_later():
    late = process(63, uid=OTHER_UID, container="other", started_at="2026-11-30T06:58:00Z")
    text = oom_text(tried=0.2, total=79.19, free=0.05, allocated=14, reserved=0.2)
    found = judged(crashing(text, phase="load"), late, others=[other_pod()])
    assert (found["cause"], from_node(found)) == ("gpu_weights_oom", [])


def test_of_several_holders_all_are_to_be_stopped():
    found = judged(
        crashing(FREE_TEXT.format(free="9.0")),
        process(40, uid=OTHER_UID, container="other"),
        outside(30),
        others=[other_pod()],
    )
    stop = next(item for item in found["recommend"] if item["name"] == "free_gpu")
    assert stop["value"] == "pod llm/neighbour-0; a process outside of Kubernetes, process 999 of the node"
    assert (
        "pod llm/neighbour-0 40.00 GiB, a process outside of Kubernetes 30.00 GiB: together 70.00 GiB"
        in stop["why"]
    )
    assert "together they hold 70.00 GiB" in found["explanation"]


def test_no_more_than_three_holders_are_named():
    held = [outside(15 + number, pid=100 + number) for number in range(5)]
    found = judged(crashing(FREE_TEXT.format(free="1.0")), *held)
    stop = next(item for item in found["recommend"] if item["name"] == "free_gpu")
    assert [f"process {pid} of" in stop["value"] for pid in (104, 103, 102, 101)] == [True, True, True, False]
    assert "2 more: together 85.00 GiB" in stop["why"]


def test_beside_an_earlier_run_the_other_holder_is_to_be_stopped_too():
    pod = crashing(FREE_TEXT.format(free="5.0"))
    held = [process(50, uid=UID, container="docker"), process(23, uid=OTHER_UID, container="other")]
    found = judged(pod, *held, others=[other_pod()])
    assert actions(found)[:3] == ["recreate_pod", "wait_for_gpu", "free_gpu"]
    stop = next(item for item in found["recommend"] if item["name"] == "free_gpu")
    assert stop["value"] == "pod llm/neighbour-0"


@pytest.mark.parametrize(("free", "grown"), [("42.59", True), ("10.0", False)])
def test_a_holder_with_far_more_than_the_log_shows_has_grown(free, grown):
    tenant = process(69.5, uid=OTHER_UID, container="other")
    found = judged(crashing(FREE_TEXT.format(free=free)), tenant, others=[other_pod()])
    said = "when it failed only 36.60 GiB were in others' hands, so this has grown since"
    assert (said in found["explanation"]) is grown


@pytest.mark.parametrize(
    ("started_at", "earlier"), [("2026-11-30T06:50:20Z", True), ("2026-11-30T06:52:05Z", False)]
)
def test_our_own_next_run_is_not_an_earlier_one(started_at, earlier):
    # The process is of a container that the API's state at the time of reading doesn't have yet.
    mine = process(73, uid=UID, container="docker", started_at=started_at)
    found = judged(crashing(FREE_TEXT.format(free="5.0")), mine)
    assert ("an earlier run of container vllm" in found["explanation"]) is earlier


# -- our own process ------------------------------------------------------------------------------------------------------


def test_our_own_process_under_another_pid_is_never_accused():
    # torch names host pids: 4242 is what the container calls 1. The node lists it under our pod's uid.
    text = oom_text(
        tried=2, total=79.19, free=0.1, allocated=68, reserved=1, processes=[(4242, 70.1), (4243, 8.5)]
    )
    pod = dict(pod_with([run(0, "running", texts=[text], phase="load")]), uid=UID)
    mine = [
        process(70.1, pid=4242, uid=UID, container="first"),
        process(8.5, pid=4243, uid=UID, container="first"),
    ]
    mine = [dict(item, started_at="2026-11-30T06:53:10Z") for item in mine]
    found = judged(pod, *mine)
    assert found["cause"] != "gpu_held_by_other"
    assert from_node(found) == []


def test_beside_our_own_process_the_neighbour_is_found():
    text = oom_text(
        tried=2, total=79.19, free=0.1, allocated=38, reserved=1, processes=[(4242, 40.1), (4243, 38.5)]
    )
    pod = dict(pod_with([run(0, "running", texts=[text], phase="load")]), uid=UID)
    found = judged(
        pod,
        process(40.1, pid=4242, uid=UID, container="first", started_at="2026-11-30T06:53:10Z"),
        process(38.5, pid=4243, uid=OTHER_UID, container="other"),
        others=[other_pod()],
    )
    assert (found["cause"], found["confidence"]) == ("gpu_held_by_other", "certain")
    assert from_node(found) == [
        "pod llm/neighbour-0 holds 38.50 GiB of GPU 0: process 4243 (python3), since 2026-11-30T06:00:00Z"
    ]


def test_a_process_of_unknown_owner_may_be_ours_while_we_run():
    unknown = process(70, cgroup=None)
    running = pod_with([run(0, texts=[FREE_TEXT.format(free="9.0")]), run(1, "running", container="second")])
    assert from_node(judged(dict(running, uid=UID), unknown)) == []
    stopped = judged(crashing(FREE_TEXT.format(free="9.0")), unknown)
    assert "a process whose owner could not be read holds 70.00 GiB" in stopped["explanation"]


def test_evidence_without_container_ids_takes_every_process_of_the_pod_for_ours():
    pod = crashing(FREE_TEXT.format(free="9.0"))
    for attempt in pod["containers"][0]["attempts"]:
        attempt["container_id"] = None
    assert from_node(judged(pod, process(70, uid=UID, container="first"))) == []


# -- a plain out of memory, which the log doesn't settle ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [oom_text(tried=0.2, total=79.19, free=0.05, allocated=14, reserved=0.2), DRIVER_TEXT]
)
def test_a_plain_oom_beside_a_tenant_is_the_tenants(text):
    pod = crashing(text, phase="load")
    tenant = process(63, uid=OTHER_UID, container="other")
    found = judged(pod, tenant, others=[other_pod()])
    assert found["cause"] == "gpu_held_by_other"
    assert "pod llm/neighbour-0 holds 63.00 GiB" in found["explanation"]
    assert judged(pod, gpus=[gpu(0, 0)])["cause"] != "gpu_held_by_other"


def test_a_tenant_that_cannot_have_been_there_is_not_accused():
    # The text leaves 2 GiB beside ours: a tenant of 63 GiB came later, or is on another card.
    text = oom_text(tried=0.2, total=79.19, free=0.05, allocated=76, reserved=1)
    found = judged(
        crashing(text, phase="load"), process(63, uid=OTHER_UID, container="other", started_at=None)
    )
    assert found["cause"] == "gpu_weights_oom"


def test_a_small_tenant_beside_our_own_shortage_is_told_and_not_blamed():
    text = oom_text(tried=4, total=79.19, free=0.5, allocated=70, reserved=1)
    found = judged(
        crashing(text, phase="load"), process(6, uid=OTHER_UID, container="other"), others=[other_pod()]
    )
    assert found["cause"] == "gpu_weights_oom"
    assert "pod llm/neighbour-0 holds 6.00 GiB of GPU 0" in found["explanation"]
    assert "one_engine_per_gpu" not in actions(found)


# -- which GPU ------------------------------------------------------------------------------------------------------------


def test_of_several_gpus_the_one_that_fits_the_log_counts():
    busy = [
        process(60, index=1, uid=OTHER_UID, container="other"),
        process(20, index=2, pid=5, uid=OTHER_UID, container="docker"),
    ]
    gpus = [gpu(0, 0), gpu(1, gib(60)), gpu(2, gib(20)), gpu(3, 0)]
    found = judged(crashing(FREE_TEXT.format(free="58.5")), *busy, gpus=gpus, others=[other_pod()])
    assert from_node(found) == [
        "pod llm/neighbour-0 holds 20.00 GiB of GPU 2: process 5 (python3), since 2026-11-30T06:00:00Z"
    ]


def test_where_no_gpu_fits_the_log_nobody_is_accused():
    busy = [process(60, index=1, uid=OTHER_UID, container="other")]
    found = judged(crashing(FREE_TEXT.format(free="58.5")), *busy, gpus=[gpu(0, 0), gpu(1, gib(60))])
    assert from_node(found) == []


def test_a_gpu_named_in_the_environment_is_ours():
    busy = [
        process(60, index=1, uid=OTHER_UID, container="other"),
        process(61, index=0, pid=5, uid=OTHER_UID, container="docker"),
    ]
    pod = crashing(FREE_TEXT.format(free="18.5"), env=[("NVIDIA_VISIBLE_DEVICES", UUIDS[1])])
    found = judged(pod, *busy, gpus=[gpu(0, gib(61)), gpu(1, gib(60))])
    assert [text for text in from_node(found) if "GPU 1" in text] == from_node(found) != []


def test_another_kind_of_card_does_not_count():
    l4 = gpu(0, gib(20), total=23034 * MIB, reserved=434 * MIB, name="NVIDIA L4")
    found = judged(
        crashing(FREE_TEXT.format(free="18.1")), process(20, uid=OTHER_UID, container="other"), gpus=[l4]
    )
    assert from_node(found) == []


# -- shares ---------------------------------------------------------------------------------------------------------------


def mig_node():
    """An H100 with 3g.40gb and 1g.10gb: 40448 and 9984 MiB (facts 8.5)."""
    instances = [
        {"uuid": "MIG-a", "gi": 1, "ci": 0, "profile": "3g.40gb", "total": 40448 * MIB, "used": gib(30), "free": 40448 * MIB - gib(30)},
        {"uuid": "MIG-b", "gi": 9, "ci": 0, "profile": "1g.10gb", "total": 9984 * MIB, "used": gib(8), "free": 9984 * MIB - gib(8)},
    ]  # fmt: skip
    held = [
        process(30, pid=1, uid=OTHER_UID, container="other", gi=1, ci=0),
        process(8, pid=2, uid=OTHER_UID, container="docker", gi=9, ci=0),
    ]
    return held, [gpu(0, gib(38), mig={"enabled": True, "pending": True, "instances": instances})]


def test_of_a_mig_card_the_instance_counts():
    held, gpus = mig_node()
    text = "ValueError: Free memory on device (1.5/9.62 GiB) on startup is less than desired GPU memory utilization (0.9, 8.66 GiB)."
    found = judged(crashing(text), *held, gpus=gpus, others=[other_pod()])
    assert from_node(found) == [
        "pod llm/neighbour-0 holds 8.00 GiB of MIG 1g.10gb (9/0) of GPU 0: process 2 (python3), since 2026-11-30T06:00:00Z"
    ]


MPS = {"env": [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=20G")]}


@pytest.mark.parametrize(
    ("pod", "node_gpu"),
    [
        (MPS, {}),
        ({}, {"sharing": "mps", "memory_bytes": H100, "labels": {"nvidia.com/gpu.replicas": "4"}}),
    ],
)
def test_under_mps_the_share_ran_out_and_not_the_card(pod, node_gpu):
    # Allocation beyond the share fails as a CUDA OOM while nvidia-smi still shows free memory (facts 8.6).
    text = oom_text(tried=1.5, total=79.19, free=40, allocated=18.5, reserved=0.3)
    found = judged(
        crashing(text, phase="load", **pod),
        process(20, uid=OTHER_UID, container="other"),
        gpu=dict(documents.node()["gpu"], **node_gpu),
        services={"mps": "active", "fabric_manager": None, "persistenced": None},
        others=[other_pod()],
    )
    assert found["cause"] == "gpu_weights_oom"
    assert (
        "under MPS this container may have" in found["explanation"].lower()
        or "Under MPS this container may have" in found["explanation"]
    )
    assert actions(found)[0] == "size_for_slice"


def test_without_mps_a_refusal_with_room_is_the_drivers():
    text = oom_text(tried=1.5, total=79.19, free=40, allocated=18.5, reserved=0.3)
    assert judged(crashing(text, phase="load"), gpus=[gpu(0, 0)])["cause"] == "false_oom_driver"


# -- what can't be told ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"reader": {"pid_namespace": "own"}},
        {"gpus": [gpu(0, gib(61), virtualization="VGPU")]},
        {"gpus": [gpu(0, gib(61), make="rocm")]},
        {"gpus": [gpu(0, 0, used=None, free=None)]},
    ],
)
def test_memory_without_a_process_is_only_said_where_it_can_be_told(fields):
    found = judged(crashing(FREE_TEXT.format(free="18.0")), **dict({"gpus": [gpu(0, gib(61))]}, **fields))
    assert not any("no process is listed" in text for text in from_node(found))


def test_a_node_document_with_holes_does_no_harm():
    empty = {"gpu": None, "pid": None, "used": None}
    found = judged(
        crashing(FREE_TEXT.format(free="18.0")),
        empty,
        gpus=[{"index": None, "uuid": None, "total": None}, {}],
    )
    assert found["cause"] == "gpu_free_below_util"


def test_the_numbers_of_the_samples_are_nvidias():
    empty = gpu(0)
    assert empty["total"] == empty["reserved"] + empty["used"] + empty["free"]
    assert (H100 - RESERVED) // MIB == 81080
    assert node().get("gpus")[0]["total"] > 79 * GIB


def beside_a_silent_death(*processes, text=None, **fields):
    """What is said of other holders beside a failure without an explanation."""
    pod = dict(
        pod_with([run(0, texts=[text or "Engine core initialization failed. See root cause above."])]),
        uid=UID,
    )
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [pod, other_pod()]
    findings = diagnose(evidence, nodes=[document(processes=processes, **fields)])["pods"][0]["findings"]
    return findings[0]["cause"], [item for item in findings if item["cause"] == "gpu_held_by_other"]


def test_beside_what_stays_unexplained_the_other_tenant_is_told():
    cause, (found,) = beside_a_silent_death(process(60, uid=OTHER_UID, container="other"))
    assert cause == "undetermined"
    assert (found["role"], found["confidence"], found["memory"], found["attempt"]) == (
        "contributing",
        "possible",
        "gpu",
        0,
    )
    assert "pod llm/neighbour-0 holds 60.00 GiB of GPU 0" in found["explanation"]
    assert actions(found) == ["one_engine_per_gpu", "free_gpu"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"processes": []},
        {"processes": [process(60, uid=UID, container="first")]},
        {"processes": [process(0.4, uid=OTHER_UID, container="other")]},
        {"processes": [process(60, uid=OTHER_UID, container="other", started_at="2026-11-30T06:59:00Z")]},
        # It may be on the other GPU, ours on a free one.
        {"processes": [process(60, uid=OTHER_UID, container="other")], "gpus": [gpu(0, gib(60)), gpu(1)]},
        {
            "processes": [process(60, uid=OTHER_UID, container="other")],
            "text": "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        },
    ],
)
def test_beside_what_stays_unexplained_nobody_is_told_without_need(arguments):
    given = dict(arguments)
    _cause, found = beside_a_silent_death(*given.pop("processes"), **given)
    assert found == []
