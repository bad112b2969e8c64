# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events: both API shapes, aggregation, matching by uid, order."""

from __future__ import annotations

from support import kube_objects as kube

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.events import (
    concerns,
    event_evidence,
    events_about,
    last_time,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor

SCHEDULER_EVENT = {
    "metadata": {"name": "llama.17f", "creationTimestamp": "2026-11-30T06:00:00Z"},
    "involvedObject": {
        "kind": "Pod",
        "name": "llama-6f7d9c9b5-x2x4k",
        "namespace": "llm",
        "uid": kube.POD_UID,
    },
    "reason": "FailedScheduling",
    "message": "0/7 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "type": "Warning",
    "eventTime": "2026-11-30T06:00:00.123456Z",
    "series": {"count": 9, "lastObservedTime": "2026-11-30T06:30:00.000000Z"},
    "firstTimestamp": None,
    "lastTimestamp": None,
}


def test_kubelet_shape_has_count_and_two_times():
    found = event_evidence(kube.event("BackOff", "Back-off restarting failed container vllm"), Redactor())
    assert (found["count"], found["first_at"], found["last_at"]) == (
        3,
        "2026-11-30T06:41:00Z",
        "2026-11-30T06:53:00Z",
    )
    assert found["object"] == "Pod/llama-6f7d9c9b5-x2x4k"


def test_scheduler_shape_has_series():
    found = event_evidence(SCHEDULER_EVENT, Redactor())
    assert (found["count"], found["last_at"]) == (9, "2026-11-30T06:30:00.000000Z")
    assert found["first_at"] == "2026-11-30T06:00:00.123456Z"


def test_events_k8s_io_shape():
    found = event_evidence(
        {
            "metadata": {"creationTimestamp": "2026-11-30T06:00:00Z"},
            "regarding": {"kind": "Node", "name": "gpu-3"},
            "note": "System OOM encountered, victim process: python3, pid: 4711",
            "reason": "SystemOOM",
            "deprecatedCount": 2,
            "deprecatedLastTimestamp": "2026-11-30T06:10:00Z",
        },
        Redactor(),
    )
    assert found["message"].startswith("System OOM encountered")
    assert (found["object"], found["count"], found["last_at"]) == ("Node/gpu-3", 2, "2026-11-30T06:10:00Z")


def test_single_event_without_series_uses_event_time():
    assert last_time({**SCHEDULER_EVENT, "series": None}) == "2026-11-30T06:00:00.123456Z"


def test_aggregated_message_is_marked_and_stripped():
    found = event_evidence(
        kube.event("Killing", "(combined from similar events): Stopping container vllm"), Redactor()
    )
    assert (found["message"], found["combined"]) == ("Stopping container vllm", True)


def test_eviction_details_are_kept_and_secrets_are_not():
    raw = kube.event("Evicted", "pulled from https://bob:hunter22@registry.example/x failed")
    raw["metadata"]["annotations"] = {"starved_resource": "memory", "kubectl.kubernetes.io/x": "y"}
    found = event_evidence(raw, Redactor())
    assert found["details"] == {"starved_resource": "memory"}
    assert "hunter22" not in found["message"]


def test_same_name_with_another_uid_is_another_pod():
    old = kube.event(
        "Killing",
        "Stopping container vllm",
        about={"kind": "Pod", "name": "llama-0", "namespace": "llm", "uid": "old"},
    )
    assert not concerns(
        old, {"kind": "Pod", "metadata": {"name": "llama-0", "namespace": "llm", "uid": "new"}}
    )
    assert concerns(old, {"kind": "Pod", "metadata": {"name": "llama-0", "namespace": "llm", "uid": "old"}})


def test_node_events_carry_the_nodes_name_as_uid():
    raw = kube.event(
        "SystemOOM", "System OOM encountered", about={"kind": "Node", "name": "gpu-3", "uid": "gpu-3"}
    )
    assert concerns(raw, kube.node())
    assert not concerns(raw, kube.node("gpu-4"))


def test_event_without_uid_is_matched_by_name_kind_and_namespace():
    raw = kube.event("Killing", "x", about={"kind": "Pod", "name": "llama-0", "namespace": "llm"})
    assert concerns(raw, {"kind": "Pod", "metadata": {"name": "llama-0", "namespace": "llm"}})
    assert not concerns(raw, {"kind": "Pod", "metadata": {"name": "llama-0", "namespace": "other"}})
    assert not concerns(raw, {"kind": "StatefulSet", "metadata": {"name": "llama-0", "namespace": "llm"}})


def test_events_are_ordered_by_last_sighting():
    listed = [
        kube.event("BackOff", "later"),
        kube.event("Pulled", "earlier", lastTimestamp="2026-11-30T06:42:00Z"),
        kube.event(
            "Pulled", "another pod", about={"kind": "Pod", "name": "x", "namespace": "llm", "uid": "x"}
        ),
    ]
    found = events_about(kube.pod(), listed, Redactor())
    assert [item["message"] for item in found] == ["earlier", "later"]
