# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods judged together: whose error was first in one engine, and which replicas of a workload fail in which way."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import replicas

REF = "llm/LeaderWorkerSet/vllm/0"


def make_pod(name, group=None, ready=False, finished=None, readable=True, template="abc", workload=None):
    attempt = documents.attempt(0, "terminated", finished_at=finished, log=documents.log(readable=readable))
    container = documents.container("vllm", engine=documents.engine(), attempts=[attempt])
    return documents.pod(
        "llm",
        name,
        uid=f"uid-{name}",
        group=group,
        conditions=[{"type": "Ready", "status": "True" if ready else "False"}],
        labels={"pod-template-hash": template} if template else {},
        containers=[container],
        workload=workload or documents.workload(),
    )


def result(pod, cause=None, time=None, memory="gpu", confidence="certain"):
    found = []
    if cause:
        shown = [documents.proof("log", "vllm", cause, line=1, time=time)]
        found.append(
            documents.finding(
                cause, memory, "load", "trigger", confidence, container="vllm", attempt=0, evidence=shown
            )
        )
    return {"namespace": "llm", "name": pod["name"], "uid": pod["uid"], "findings": found}


def evidence(pods, group=True):
    document = documents.evidence("2026-11-30T08:00:00Z", "bundle", "x")
    document["pods"] = pods
    if group:
        document["groups"] = [{"ref": REF, "pods": [f"llm/{pod['name']}" for pod in pods]}]
    return document


# -- groups


@pytest.mark.parametrize(
    ("leader", "worker", "first"),
    [
        # (cause, log time, end of the attempt)
        (
            ("serving_gpu_oom", "2026-11-30T07:00:09Z", None),
            ("cudagraph_capture_oom", "2026-11-30T07:00:01Z", None),
            "worker",
        ),
        (
            ("serving_gpu_oom", "2026-11-30T09:00:00+02:00", None),
            ("cudagraph_capture_oom", "2026-11-30T07:00:01Z", None),
            "leader",
        ),
        (
            ("serving_gpu_oom", "11-30 07:00:09", None),
            ("cudagraph_capture_oom", "11-30 07:00:01", None),
            "worker",
        ),
        # stamps of different kinds can't be compared: the ends of the runs can
        (
            ("serving_gpu_oom", "11-30 07:00:09", "2026-11-30T07:00:20Z"),
            ("cudagraph_capture_oom", "2026-11-30T06:00:00Z", "2026-11-30T07:00:30Z"),
            "leader",
        ),
        # a rank that lost its peer is a victim, also when its clock is ahead
        (
            ("nccl_not_memory", "2026-11-30T07:00:01Z", None),
            ("serving_gpu_oom", "2026-11-30T07:00:02Z", None),
            "worker",
        ),
        (
            ("sigterm_shutdown", "2026-11-30T06:59:59Z", None),
            ("nccl_gpu_oom", "2026-11-30T07:00:02Z", None),
            "worker",
        ),
        (("nccl_not_memory", None, None), ("nccl_not_memory", None, None), "leader"),
    ],
)
def test_the_first_real_error_of_an_engine_is_its_trigger(leader, worker, first):
    pods = [make_pod("leader", REF, finished=leader[2]), make_pod("worker", REF, finished=worker[2])]
    results = [result(pods[0], leader[0], leader[1]), result(pods[1], worker[0], worker[1])]
    (group,) = replicas.group_diagnoses(evidence(pods), results)
    assert group["trigger_pod"] == f"llm/{first}"
    assert group["ref"] == REF
    assert group["pods"] == ["llm/leader", "llm/worker"]
    assert [item["role"] for item in group["findings"]] == ["trigger", "cascade"]
    assert group["findings"][0]["pod"] == f"llm/{first}"


def test_the_pods_own_findings_are_not_changed():
    pods = [make_pod("leader", REF), make_pod("worker", REF)]
    results = [result(pod, "serving_gpu_oom", "2026-11-30T07:00:09Z") for pod in pods]
    replicas.group_diagnoses(evidence(pods), results)
    assert [item["findings"][0]["role"] for item in results] == ["trigger", "trigger"]
    assert "pod" not in results[0]["findings"][0]


@pytest.mark.parametrize(
    ("readable", "times", "confidence"),
    [
        (True, ("2026-11-30T07:00:01Z", "2026-11-30T07:00:02Z"), "certain"),
        (False, ("2026-11-30T07:00:01Z", "2026-11-30T07:00:02Z"), "likely"),
        (True, (None, None), "likely"),
    ],
)
def test_what_was_not_seen_limits_the_confidence(readable, times, confidence):
    pods = [make_pod("leader", REF), make_pod("worker", REF, readable=readable)]
    results = [result(pod, "serving_gpu_oom", time) for pod, time in zip(pods, times, strict=True)]
    (group,) = replicas.group_diagnoses(evidence(pods), results)
    assert group["findings"][0]["confidence"] == confidence
    assert any("llm/worker" in text for text in group["findings"][0]["would_settle"]) is not readable


def test_a_pod_that_is_gone_limits_it_too():
    pods = [make_pod("leader", REF)]
    document = evidence(pods)
    document["groups"][0]["pods"].append("llm/worker")
    (group,) = replicas.group_diagnoses(document, [result(pods[0], "nccl_not_memory", memory="none")])
    assert group["findings"][0]["confidence"] == "likely"
    assert any("llm/worker" in text for text in group["findings"][0]["would_settle"])


def test_a_group_in_peace_and_a_pod_alone():
    pods = [make_pod("leader", REF, ready=True), make_pod("worker", REF, ready=True)]
    (group,) = replicas.group_diagnoses(evidence(pods), [result(pod) for pod in pods])
    assert (group["trigger_pod"], group["findings"]) == (None, [])
    assert replicas.group_diagnoses(evidence(pods[:1]), [result(pods[0])]) == []
    assert replicas.group_diagnoses(evidence(pods, group=False), [result(pod) for pod in pods]) == []


# -- workloads


def deployment(desired=2, same_template_ready=None):
    counts = {"desired": desired, "ready": 0, "same_template_ready": same_template_ready}
    edit = {"kind": "Deployment", "name": "vllm"}
    return documents.workload("Deployment", "vllm", "apps/v1", edit=edit, replicas=counts)


def replicas_of(*pods_and_causes, **counts):
    pods, results = [], []
    for number, (cause, fields) in enumerate(pods_and_causes):
        pods.append(make_pod(f"vllm-{number}", workload=deployment(**counts), **fields))
        results.append(result(pods[-1], cause))
    return replicas.workload_diagnoses(evidence(pods, group=False), results)


def test_replicas_that_fail_alike_are_one_entry_and_the_template_is_suspect():
    (entry,) = replicas_of(("kv_no_blocks", {}), ("kv_no_blocks", {}))
    assert entry["ref"] == "llm/Deployment/vllm"
    assert entry["pods"] == ["llm/vllm-0", "llm/vllm-1"]
    assert entry["findings"][0]["pods"] == entry["pods"]
    assert entry["template_suspect"] is True


def test_replicas_that_fail_differently_are_listed_apart():
    entries = replicas_of(("gpu_free_below_util", {}), ("kv_no_blocks", {}), ("kv_no_blocks", {}))
    assert [entry["pods"] for entry in entries] == [["llm/vllm-1", "llm/vllm-2"], ["llm/vllm-0"]]
    assert all("2 different ways" in entry["sentence"] for entry in entries)
    assert [entry["template_suspect"] for entry in entries] == [None, None]


@pytest.mark.parametrize(
    ("sister", "counts", "suspect"),
    [
        ({"ready": True}, {}, False),
        ({"ready": True, "template": "old"}, {}, None),  # it serves with another template
        ({"ready": False}, {}, None),
        ({"ready": False}, {"same_template_ready": 3}, False),  # healthy pods are in the counts only
    ],
)
def test_sisters_that_serve_with_the_same_template_clear_it(sister, counts, suspect):
    (entry,) = replicas_of(("serving_gpu_oom", {}), (None, sister), **counts)
    assert entry["pods"] == ["llm/vllm-0"]
    assert entry["template_suspect"] is suspect
    assert ("same template serve" in entry["sentence"]) is (suspect is False)


def test_a_single_pod_is_no_set_of_replicas():
    assert replicas_of(("kv_no_blocks", {}), desired=1) == []
    (entry,) = replicas_of(("kv_no_blocks", {}), desired=3, same_template_ready=2)
    assert entry["template_suspect"] is False


def test_pods_without_a_workload_are_left_alone():
    pods = [make_pod("a"), make_pod("b")]
    assert (
        replicas.workload_diagnoses(
            evidence(pods, group=False), [result(pod, "kv_no_blocks") for pod in pods]
        )
        == []
    )
