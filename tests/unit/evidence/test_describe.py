# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubectl describe text, whole and in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import describe

DATA = Path(__file__).parent / "data" / "saved" / "describe"
CRASHLOOP = (DATA / "crashloop.txt").read_text(encoding="utf-8").splitlines()


def whole():
    (start, end), *more = describe.find(CRASHLOOP)
    assert (start, end, more) == (0, len(CRASHLOOP), [])
    return describe.parse(CRASHLOOP)


def test_pod_fields():
    pod, _events = whole()
    assert pod["metadata"]["name"] == "llama-70b-6d8f9c7b54-x2v9k"
    assert pod["metadata"]["namespace"] == "llm"
    assert pod["metadata"]["labels"] == {"app": "llama-70b", "pod-template-hash": "6d8f9c7b54"}
    assert set(pod["metadata"]["annotations"]) == {
        "cni.projectcalico.org/podIP",
        "example.com/registry-token",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "llama-70b-6d8f9c7b54", "controller": True}
    ]
    assert pod["spec"]["nodeName"] == "gpu-node-3"
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["qosClass"] == "Burstable"
    assert pod["status"]["startTime"] == "2026-11-28T08:12:03Z"
    assert {"type": "Ready", "status": "False"} in pod["status"]["conditions"]
    assert len(pod["status"]["conditions"]) == 5


def test_container_spec():
    pod, _events = whole()
    (vllm,) = pod["spec"]["containers"]
    assert vllm["name"] == "vllm"
    assert vllm["image"] == "vllm/vllm-openai:v0.11.0"
    assert vllm["command"] == ["/bin/bash", "-c"]
    assert len(vllm["args"]) == 1
    assert vllm["args"][0].splitlines()[:2] == ["ulimit -n 65535", "exec vllm serve /models \\"]
    assert vllm["resources"]["limits"] == {"cpu": "16", "memory": "48Gi", "nvidia.com/gpu": "4"}
    assert vllm["resources"]["requests"]["memory"] == "32Gi"
    assert vllm["livenessProbe"] == {
        "httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"},
        "initialDelaySeconds": 60,
        "timeoutSeconds": 5,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert vllm["readinessProbe"]["exec"] == {"command": ["cat", "/tmp/ready"]}
    assert vllm["startupProbe"]["httpGet"]["port"] == "http"
    assert vllm["startupProbe"]["failureThreshold"] == 120
    assert vllm["envFrom"] == [{"configMapRef": {"name": "vllm-env"}}]
    assert vllm["env"][0] == {"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}
    assert vllm["env"][1] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}},
    }
    assert vllm["env"][3] == {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert vllm["volumeMounts"][:2] == [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "models", "mountPath": "/models", "readOnly": True},
    ]


def test_container_status():
    pod, _events = whole()
    (vllm,) = pod["status"]["containerStatuses"]
    assert vllm["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert vllm["lastState"] == {
        "terminated": {
            "reason": "OOMKilled",
            "exitCode": 137,
            "startedAt": "2026-11-28T09:02:11Z",
            "finishedAt": "2026-11-28T09:05:42Z",
        }
    }
    assert vllm["ready"] is False
    assert vllm["restartCount"] == 6
    assert vllm["containerID"].startswith("containerd://1a2b")


def test_init_containers_volumes_and_events():
    pod, events = whole()
    (fetch,) = pod["spec"]["initContainers"]
    assert fetch["command"][:2] == ["sh", "-c"]
    assert fetch["command"][2].splitlines()[0] == "set -e"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert pod["spec"]["volumes"][:2] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ]
    assert pod["spec"]["volumes"][2] == {"name": "kube-api-access-8h2zq"}
    assert [(event["type"], event["reason"], event["count"]) for event in events] == [
        ("Normal", "Scheduled", 1),
        ("Normal", "Pulled", 1),
        ("Warning", "Unhealthy", 12),
        ("Warning", "BackOff", 41),
    ]
    assert events[2]["message"].startswith('Startup probe failed: Get "http://10.42.3.17:8000/health"')
    assert events[0]["involvedObject"]["name"] == "llama-70b-6d8f9c7b54-x2v9k"


def test_message_of_several_lines_stays_in_its_description():
    blank = " "  # kubectl leaves blanks at the ends of lines
    text = f"""\
Name:         m-0
Namespace:    llm
Status:       Failed
Reason:       Evicted
Message:      The node was low on resource: memory. Threshold quantity: 100Mi, available: 73180Ki.{blank}
IP:          {blank}
Containers:
  vllm:
    Image:          vllm/vllm-openai:v0.10.0
    Last State:     Terminated
      Reason:       Error
      Message:      Traceback (most recent call last):
  File "/usr/bin/vllm", line 8, in <module>
torch.OutOfMemoryError: CUDA out of memory.

      Exit Code:    1
    Restart Count:  1
Events:         <none>
this is a log line again
""".splitlines()  # fmt: skip
    ((start, end),) = describe.find(text)
    assert text[end] == "this is a log line again"
    pod, events = describe.parse(text[start:end])
    assert pod["status"]["reason"] == "Evicted"
    assert pod["status"]["message"].endswith("available: 73180Ki.")
    last = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 1
    assert last["message"].splitlines()[-1] == "torch.OutOfMemoryError: CUDA out of memory."
    assert events == []


def test_descriptions_of_several_pods():
    text = [*CRASHLOOP, "", "", *CRASHLOOP, ""]
    assert describe.find(text) == [(0, len(CRASHLOOP)), (len(CRASHLOOP) + 2, 2 * len(CRASHLOOP) + 2)]


def test_terminating_pod_has_no_phase():
    pod, _events = describe.parse(
        ["Name:  a", "Namespace:  b", "Status:  Terminating (lasts 5m)", "Termination Grace Period:  30s"]
    )
    assert pod["status"]["phase"] is None
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30


OOM = {"reason": "OOMKilled", "exitCode": 137}


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137", OOM),
        ("Last State: Terminated\nReason: OOMKilled\nExit Code: 137", OOM),
        (
            "State: Waiting\nReason: CrashLoopBackOff\n\nLast State: Terminated\nReason: OOMKilled\nExit Code: 137",
            OOM,
        ),
        ("Last State: Terminated, Reason: OOMKilled, Exit Code: 137", OOM),
        ("Last State: Terminated / Reason: OOMKilled", {"reason": "OOMKilled"}),
    ],
)
def test_pieces(text, last):
    lines = ["INFO 11-24 07:10:04 [x.py:1] before", *text.splitlines(), "INFO 11-24 07:10:05 [x.py:1] after"]
    assert describe.find(lines) == [(1, len(lines) - 1)]
    pod, events = describe.parse(lines[1:-1])
    assert pod["status"]["containerStatuses"][0]["lastState"] == {"terminated": last}
    assert (pod["metadata"], events) == ({}, [])


def test_a_piece_starting_with_the_reason_is_that_of_the_last_state():
    lines = ["Reason:       OOMKilled", "Exit Code:    137"]
    assert describe.find(lines) == [(0, 2)]
    pod, _events = describe.parse(lines)
    assert pod["status"]["containerStatuses"][0]["lastState"] == {"terminated": OOM}


def test_a_piece_takes_its_image_name_and_sizes_along():
    lines = (DATA / "piece.txt").read_text(encoding="utf-8").splitlines()
    lines = ["Containers:", "  engine:", "    Image:          vllm/vllm-openai:v0.9.2", *lines]
    assert describe.find(lines) == [(0, len(lines))]
    pod, _events = describe.parse(lines)
    (container,) = pod["spec"]["containers"]
    assert container["name"] == "engine"
    assert container["image"] == "vllm/vllm-openai:v0.9.2"
    assert container["resources"]["limits"] == {"memory": "24Gi"}
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "Name:                   a\nNamespace:              llm\nCreationTimestamp:      Sat, 28 Nov 2026 09:12:03 +0100\n"
        "Pod Template:\n  Containers:\n   vllm:\n    Image:      vllm/vllm-openai:v0.11.0",
        "Name:          models\nNamespace:     llm\nStorageClass:  fast\nStatus:        Bound",
    ],
)
def test_other_descriptions_are_no_pods(text):
    assert describe.find(text.splitlines()) == []


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-24 07:10:04 [core.py:71] State: Waiting for the workers",
        "Name: not a pod",
        "Reason: the model does not fit",
        "    State: done",
    ],
)
def test_log_lines_are_no_describe_text(line):
    assert describe.find(["before", line, "after"]) == []


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("Sat, 28 Nov 2026 10:02:11 +0100", "2026-11-28T09:02:11Z"),
        ("Mon, 01 Jan 0001 00:00:00 +0000", None),
        ("<unknown>", None),
        ("", None),
    ],
)
def test_time_of(text, time):
    assert describe.time_of(text) == time


_LINES = st.lists(
    st.one_of(
        st.sampled_from(CRASHLOOP),
        st.text(max_size=40).map(lambda text: text.replace("\n", " ").replace("\r", " ")),
    ),
    max_size=40,
)


@given(_LINES)
def test_blocks_never_overlap_and_always_parse(lines):
    blocks = describe.find(lines)
    position = 0
    for start, end in blocks:
        assert position <= start < end <= len(lines)
        pod, _events = describe.parse(lines[start:end])
        assert pod["kind"] == "Pod"
        position = end


def test_an_event_whose_age_somebody_cut_out_is_still_an_event():
    text = (
        "Name: a\nNamespace: b\nEvents:\n  Normal   Killing    kubelet  Container vllm failed startup probe\n"
    )
    _pod, events = describe.parse(text.splitlines())
    assert [(item["reason"], item["count"], item["message"]) for item in events] == [
        ("Killing", 1, "Container vllm failed startup probe")
    ]
