# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved logs and the runs that a pod's status knows."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import log
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import joining
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.joining import Log
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.pods import pod_evidence
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor

RUNNING = {"running": {"startedAt": "2026-11-24T07:13:50Z"}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
ENDED = {
    "terminated": {
        "reason": "Error",
        "exitCode": 1,
        "startedAt": "2026-11-24T07:09:55Z",
        "finishedAt": "2026-11-24T07:10:50Z",
    }
}
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 270.00 MiB.\n"
BANNER = "INFO 11-24 07:13:54 [api_server.py:1839] vLLM API server version 0.10.0\n"


def pod(state, last=None, restarts=2, containers=("vllm",)):
    statuses = [
        {
            "name": "vllm",
            "restartCount": restarts,
            "state": state or {},
            "lastState": last or {},
            "ready": False,
        }
    ]
    raw = {
        "metadata": {"name": "a-0", "namespace": "llm"},
        "spec": {"containers": [{"name": name, "image": "vllm/vllm-openai:v0.10.0"} for name in containers]},
        "status": {"containerStatuses": statuses if state is not None else []},
    }
    item = pod_evidence(raw, Redactor())
    joining.mark_engine(item, [])
    return item


def excerpt_of(text):
    scanner = LogScanner()
    scanner.feed(text.encode())
    return scanner.close()


def saved(*texts, name="a-0.log", mark=None, attempt=None, container=None):
    place = {"namespace": "llm", "pod": "a-0", "container": container, "mark": mark, "attempt": attempt}
    return Log(place, [excerpt_of(text) for text in texts], name)


def shown(item):
    """(run number, state, lines of its log or None) of the first container."""
    return [
        (entry["index"], entry["state"], entry["log"]["lines"] if entry["log"]["readable"] else None)
        for entry in item["containers"][0]["attempts"]
    ]


@pytest.mark.parametrize(
    ("item", "logs", "expected"),
    [
        # kubectl logs of a running container, and its --previous
        (pod(RUNNING, ENDED), [saved("one\n", mark="current")], [(1, "terminated", None), (2, "running", 1)]),
        (
            pod(RUNNING, ENDED),
            [saved("one\n", mark="previous")],
            [(1, "terminated", 1), (2, "running", None)],
        ),
        (
            pod(RUNNING, ENDED),
            [saved("one\n", mark="current"), saved("one\ntwo\n", mark="previous")],
            [(1, "terminated", 2), (2, "running", 1)],
        ),
        # while it waits both are the last run that ended
        (pod(WAITING, ENDED), [saved("one\n", mark="current")], [(2, "terminated", 1), (3, "waiting", None)]),
        (
            pod(WAITING, ENDED),
            [saved("one\n", mark="previous")],
            [(2, "terminated", 1), (3, "waiting", None)],
        ),
        # an error is that of the run that died
        (pod(RUNNING, ENDED), [saved(ERROR)], [(1, "terminated", 1), (2, "running", None)]),
        (pod(RUNNING, ENDED), [saved("one\n")], [(1, "terminated", None), (2, "running", 1)]),
        # unless the first line's time says otherwise
        (pod(RUNNING, ENDED), [saved(BANNER + ERROR)], [(1, "terminated", None), (2, "running", 2)]),
        # a previous run that the status doesn't know any more
        (pod(RUNNING), [saved("one\n", mark="previous")], [(1, "terminated", 1), (2, "running", None)]),
        # the kubelet's numbers
        (pod(RUNNING, ENDED), [saved("one\n", attempt=2)], [(1, "terminated", None), (2, "running", 1)]),
        (
            pod(RUNNING, ENDED),
            [saved("one\n", attempt=0)],
            [(0, "terminated", 1), (1, "terminated", None), (2, "running", None)],
        ),
        # several runs in one file
        (
            pod(WAITING, ENDED),
            [saved("one\n", "one\ntwo\n", "1\n2\n3\n")],
            [(0, "terminated", 1), (1, "terminated", 2), (2, "terminated", 3), (3, "waiting", None)],
        ),
        # no status at all: what was saved shows what ran
        (pod(None), [saved("one\n")], [(0, "terminated", 1)]),
        (
            pod(None),
            [saved("one\ntwo\n"), saved("one\n", mark="previous", name="a-0-previous.log")],
            [(0, "terminated", 1), (1, "terminated", 2)],
        ),
        (pod(CREATING, restarts=0), [saved("one\n")], [(0, "terminated", 1), (1, "waiting", None)]),
    ],
)
def test_every_log_finds_its_run(item, logs, expected):
    assert joining.join(item, logs) == []
    assert shown(item) == expected


def test_one_run_saved_twice_keeps_the_longer_log_and_says_so():
    for lines in (("one\n", "one\ntwo\n"), ("one\ntwo\n", "one\n")):
        item = pod(WAITING, ENDED)
        notes = joining.join(
            item, [saved(lines[0], mark="previous"), saved(lines[1], mark="current", name="b.log")]
        )
        assert shown(item)[0] == (2, "terminated", 2)
        assert [name for name, _reason in notes] == ["b.log"]


def test_parts_of_a_rotated_log_are_put_together():
    item = pod(RUNNING, ENDED)
    logs = [
        saved("three\n" + ERROR, attempt=2, name="vllm/2.log"),
        saved("one\ntwo\n", attempt=2, name="vllm/2.log.20261124-071000"),
    ]
    assert joining.join(item, logs) == []
    excerpt = item["containers"][0]["attempts"][1]["log"]
    assert excerpt["lines"] == 4
    assert excerpt["first_error"]["line"] == 4


def test_logs_go_to_their_containers():
    item = pod(RUNNING, containers=("vllm", "proxy"))
    notes = joining.join(
        item,
        [
            saved("one\n", container="proxy"),
            saved("one\ntwo\n"),
            saved("x\n", container="gone", name="gone.log"),
        ],
    )
    assert [entry["attempts"][-1]["log"]["lines"] for entry in item["containers"]] == [2, 1]
    assert notes == [("gone.log", "the pod a-0 has no container 'gone'")]


def test_an_early_version_line_proves_a_log_complete():
    item = pod(RUNNING)
    joining.join(item, [saved("2026-11-24T07:14:20.0Z " + BANNER)])
    assert item["containers"][0]["attempts"][-1]["log"]["complete"] is True
    item = pod(RUNNING)
    joining.join(item, [saved("2026-11-24T09:14:20.0Z one\n")])
    assert item["containers"][0]["attempts"][-1]["log"]["complete"] is False


def test_missing_logs_are_said_to_be_missing():
    item = pod(RUNNING, ENDED)
    joining.join(item, [])
    assert [entry["log"]["reason"] for entry in item["containers"][0]["attempts"]] == [
        "not in the bundle"
    ] * 2


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        (BANNER, True),
        (
            '  File "/usr/lib/python3/site-packages/vllm/v1/engine/core.py", line 1, in x\nValueError: y\n',
            True,
        ),
        ("(EngineCore_DP0 pid=64) INFO 11-24 07:10:31 [x.py:2338] Starting to load model x...\n", True),
        ("LOG:  database system is ready to accept connections\n", False),
        ("", False),
    ],
)
def test_shows_vllm(text, shows):
    assert joining.shows_vllm(excerpt_of(text)) is shows


def test_the_engine_is_the_container_whose_log_shows_it():
    raw = joining.raw_pod("llm", "a-0", [saved("x\n", container="proxy"), saved(BANNER, container="engine")])
    item = pod_evidence(raw, Redactor())
    joining.mark_engine(item, [saved("x\n", container="proxy"), saved(BANNER, container="engine")])
    assert {entry["name"]: bool(entry["engine"]) for entry in item["containers"]} == {
        "engine": True,
        "proxy": False,
    }


def test_an_empty_excerpt_joins():
    assert joining.joined(log(), excerpt_of(ERROR))["first_error"]["line"] == 1
