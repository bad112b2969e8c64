# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures of which the log alone doesn't tell the cause, and what the node's kernel and processes make of them.

The logs are those of public reports: of ../shared/cases/oom_dev.jsonl and of tests/accuracy.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from evidence_samples import pod_with
from node_samples import IDS, OTHER_UID, UID, document, gib, gpu, node, process, slice_path

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle

ROOT = Path(__file__).resolve().parents[3]
ACCURACY = ROOT / "tests" / "accuracy"
SHARED = ROOT.parent / "shared" / "cases" / "oom_dev.jsonl"

DIED = "2026-11-30T06:52:00Z"


def kernel_lines(
    container="first",
    scope="limit",
    uid=UID,
    time=DIED,
    anon=30.1,
    file=0.2,
    shmem=0.4,
    task="VLLM::EngineCor",
):
    """An OOM report as Linux 6 prints it (facts 3.1), sizes in GiB."""
    path = slice_path(uid, IDS[container])
    kib = {name: int(value * (1 << 20)) for name, value in (("anon", anon), ("file", file), ("shmem", shmem))}
    if scope == "limit":
        head, whose = [f"memory: usage {32 << 20}kB, limit {32 << 20}kB, failcnt 20725"], f"oom_memcg={path}"
        constraint, prefix = "CONSTRAINT_MEMCG", "Memory cgroup out of memory"
    else:
        head, whose, constraint, prefix = ["Mem-Info:"], "global_oom", "CONSTRAINT_NONE", "Out of memory"
    lines = [
        f"{task} invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=921",
        *head,
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset=cri,mems_allowed=0,{whose},task_memcg={path},task={task},pid=2343,uid=0",
        f"{prefix}: Killed process 2343 ({task}) total-vm:31763532kB, anon-rss:{kib['anon']}kB, file-rss:{kib['file']}kB, "
        f"shmem-rss:{kib['shmem']}kB, UID:0 pgtables:28092kB oom_score_adj:921",
    ]
    return [{"time": time, "text": text} for text in lines]


# -- cases as they were reported ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported():
    """The evidence of a case by its id, on a node named ``node``, with the pod's uid and a first run that ended at DIED."""
    sys.path.insert(0, str(ACCURACY))
    import classify

    cases = {}
    for path in (SHARED, ACCURACY / "extra_cases.jsonl", ACCURACY / "examiner_cases.jsonl"):
        if path.exists() or os.environ.get("CI"):
            for line in path.read_text(encoding="utf-8").splitlines():
                case = json.loads(line)
                cases[case["id"]] = case

    def evidence(case_id):
        if case_id not in cases:
            pytest.skip("the shared cases aren't at hand")
        found = classify.evidence_of(classify.allowed(cases[case_id]))
        (pod,) = found["pods"]
        pod["uid"], pod["node"] = UID, "node"
        for container in pod["containers"]:
            for attempt in container["attempts"]:
                attempt.update(container_id=IDS["first"], started_at="2026-11-30T06:40:00Z", finished_at=DIED)
        return found

    return evidence


def trigger(evidence, *nodes):
    found = diagnose(evidence, nodes=list(nodes))["pods"][0]
    return next(item for item in found["findings"] if item["role"] == "trigger"), found["verdict"]


KILLS = ["x-sigkill-unknown", "h-sigkill-runai-stream", "v15664-137", "mugot17-killed", "h3-arctic-63-worker-killed", "h3-localllm-killed-128g"]  # fmt: skip


@pytest.mark.parametrize("case_id", KILLS)
def test_a_kill_by_an_unknown_hand_is_settled_by_the_kernels_report(reported, case_id):
    alone, verdict = trigger(reported(case_id))
    assert (alone["cause"], verdict["is_memory"]) == ("sigkill_unattributed", None)
    by_limit, verdict = trigger(reported(case_id), document("node", node(kernel_oom=kernel_lines())))
    assert by_limit["cause"].startswith("host_oom_")
    assert (verdict["is_memory"], verdict["memory"]) == (True, "host")
    killed = "The kernel killed VLLM::EngineCor (pid 2343 of the node), with 30.10 GiB anonymous, 204.8 MiB file, 409.6 MiB shared memory"
    assert f"{killed}: the container's memory limit was reached (32.00 GiB)" in by_limit["explanation"]
    by_node, verdict = trigger(
        reported(case_id), document("node", node(kernel_oom=kernel_lines(scope="node")))
    )
    assert (by_node["cause"], verdict["memory"]) == ("node_oom", "node")


@pytest.mark.parametrize("case_id", KILLS[:2])
def test_somebody_elses_kill_settles_nothing(reported, case_id):
    foreign = kernel_lines(container="other", uid=OTHER_UID)
    earlier = kernel_lines(time="2026-11-30T03:00:00Z")
    for lines in (foreign, earlier):
        found, _verdict = trigger(reported(case_id), document("node", node(kernel_oom=lines)))
        assert found["cause"] == "sigkill_unattributed"


def test_pinned_memory_in_the_report_names_the_offload_pool(reported):
    lines = kernel_lines(anon=3, file=0.1, shmem=28)
    found, _verdict = trigger(reported("x-sigkill-unknown"), document("node", node(kernel_oom=lines)))
    assert found["cause"] == "host_oom_offload"
    assert "28.00 GiB shared memory" in found["explanation"]


def test_what_died_silently_is_settled_by_the_kernels_report(reported):
    assert trigger(reported("h3-vllm-27549-core-died-unexpectedly"))[0]["cause"] == "undetermined"
    found, verdict = trigger(
        reported("h3-vllm-27549-core-died-unexpectedly"), document("node", node(kernel_oom=kernel_lines()))
    )
    assert found["cause"].startswith("host_oom_")
    assert verdict["is_memory"] is True


def test_a_rollout_without_numbers_gets_the_name_of_the_old_pod(reported):
    evidence = reported("lmcache-4631-rolling-update")
    evidence["pods"][0]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    old = process(60, uid=OTHER_UID, container="other")
    found, _verdict = trigger(evidence, document("node", node([old])))
    assert found["cause"] == "gpu_held_by_other"
    assert f"(uid {OTHER_UID}) holds 60.00 GiB" in found["explanation"]


# -- runs and times -------------------------------------------------------------------------------------------------------


def killed_twice(*lines):
    """The diagnosis of a container of which both known runs ended with 137."""
    return diagnose(evidence_of_two_kills(), nodes=[document(kernel_oom=list(lines))])["pods"][0]


def evidence_of_two_kills():
    runs = (
        ("first", "2026-11-30T05:00:00Z", "2026-11-30T05:52:00Z"),
        ("second", "2026-11-30T06:00:00Z", DIED),
    )
    attempts = [
        documents.attempt(
            index,
            "terminated",
            reason="Error",
            exit_code=137,
            started_at=start,
            finished_at=end,
            container_id=IDS[name],
        )
        for index, (name, start, end) in enumerate(runs)
    ]
    pod = dict(pod_with(attempts, limits={"memory": "32Gi"}), uid=UID)
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [pod]
    return evidence


def attempts_of(found, cause):
    return [item["attempt"] for item in found["findings"] if item["cause"].startswith(cause)]


@pytest.mark.parametrize(
    ("container", "time", "attempt"),
    [("first", "2026-11-30T05:52:00Z", 0), ("second", DIED, 1), ("second", None, 1)],
)
def test_a_report_belongs_to_the_run_whose_container_it_names(container, time, attempt):
    found = killed_twice(*kernel_lines(container=container, time=time))
    assert attempts_of(found, "host_oom_") == [attempt]


def test_a_report_of_the_pod_without_run_and_time_is_not_certain():
    lines = [
        dict(line, time=None, text=line["text"].replace(f"/cri-containerd-{IDS['first']}.scope", ""))
        for line in kernel_lines()
    ]
    found = killed_twice(*lines)
    shown = next(item for item in found["findings"] if item["cause"].startswith("host_oom_"))
    assert shown["confidence"] != "certain"


def test_counters_of_the_nodes_cgroup_reach_the_running_container():
    counters = documents.cgroup(2)
    counters["memory"].update(limit=gib(32), usage=gib(31), anon=gib(2), file=gib(29), shmem=0, oom_kills=0)
    pod = dict(pod_with([documents.attempt(0, "running", container_id=IDS["first"])]), uid=UID)
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [pod]
    found = diagnose(evidence, nodes=[document(cgroups={IDS["first"]: counters})])["pods"][0]
    assert found["verdict"]["cause"] == "host_page_cache_benign"
    assert evidence["pods"][0]["containers"][0]["attempts"][0]["cgroup"] is None


# -- joining by name or by the pods on it ---------------------------------------------------------------------------------


def test_a_node_that_the_inventory_calls_otherwise_is_found_by_its_pods():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [dict(pod_with([documents.attempt(0, "running", container_id=IDS["first"])]), uid=UID)]
    evidence["nodes"]["gpu-0"] = documents.node(capacity={"nvidia.com/gpu": "1"})
    seen = document(
        "10.0.0.5", node([process(3, uid=UID, container="first")], gpus=[gpu(0, gib(3), recovery="Reset")])
    )
    found = diagnose(evidence, nodes=[seen])
    assert [item["name"] for item in found["nodes"]] == ["gpu-0"]
    assert [item["cause"] for item in found["pods"][0]["findings"] if item["cause"] == "gpu_hardware_fault"]


def test_a_node_under_another_name_that_nothing_ties_to_the_pod_is_told():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["pods"] = [pod_with([documents.attempt(0, "running")])]
    (gap,) = diagnose(evidence, nodes=[document("gpu-9", gpus=[gpu(0)])])["unreadable"]
    assert gap["reason"] == "no node document for gpu-0; there are gpu-9"
    assert diagnose(evidence, nodes=[document("gpu-0", gpus=[gpu(0)])])["unreadable"] == []
    assert diagnose(evidence)["unreadable"] == []


def test_what_the_cluster_says_of_a_node_stays():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    evidence["nodes"]["gpu-0"] = documents.node(
        conditions=[{"type": "MemoryPressure", "status": "True"}],
        gpu={"product": "NVIDIA-H100", "count": 2, "labels": {"nvidia.com/gpu.count": "2"}},
    )
    (shown,) = diagnose(evidence, nodes=[document(gpus=[gpu(0)])])["nodes"]
    assert [item["check"] for item in shown["findings"]] == ["gpus_missing"]
    assert "lists 1 GPUs, and the node's labels say 2" in shown["sentence"]


def test_a_saved_folder_is_diagnosed_alike(tmp_path):
    """The files are those of roles/diagnose/tasks/save.yml."""
    evidence = evidence_of_two_kills()
    silent = documents.evidence("2026-11-30T07:00:00Z", "node", "gpu-9")
    silent.update(
        nodes={"gpu-9": {}}, unreadable=[documents.unreadable("ansible", "node gpu-9", "no such host", "")]
    )
    nodes = [document(kernel_oom=kernel_lines()), silent]
    first = diagnose(evidence, nodes=nodes)
    for name, saved in (("evidence", evidence), ("nodes", nodes), ("diagnosis", first)):
        (tmp_path / f"{name}.json").write_text(json.dumps(saved, indent=4))
    assert {item["name"] for item in first["nodes"]} >= {"gpu-9"}
    assert diagnose(read_bundle(str(tmp_path))) == first


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"schema": "x"}, "must be a list of evidence documents, got dict"),
        (["x"], "needs a document with schema vllm_runbook.oom/evidence/v1, got str"),
        ([{"schema": "x"}], "got x"),
    ],
)
def test_other_documents_are_refused_in_one_sentence(nodes, words):
    with pytest.raises(documents.DocumentError, match="the diagnosis' nodes") as error:
        diagnose(documents.evidence("2026-11-30T07:00:00Z", "cluster", "test"), nodes=nodes)
    assert words in str(error.value)
