# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects carry our annotations, as an API server tells of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from support.recorded_api import RecordedApi

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    UNDO_ANNOTATION,
    DocumentError,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.own_changes import (
    MetadataClient,
    own_changes,
)

NOW = datetime(2026, 11, 30, 7, tzinfo=UTC)
RECORD = {
    "id": "r1",
    "run": "run-1",
    "at": "2026-11-30T06:00:00Z",
    "causes": ["kv_max_len"],
    "changes": [],
    "steps": [],
    "verdict": None,
}
MARK = {"run": "run-1", "at": "2026-11-30T06:00:00Z", "host": "h1"}


def obj(name, kind="Deployment", record=None, until=None, namespace="llm", **more):
    annotations = {}
    if record:
        annotations[UNDO_ANNOTATION] = json.dumps({"records": [record]})
    if until:
        annotations[PENDING_ANNOTATION] = json.dumps(dict(MARK, until=until))
    annotations.update(more)
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{kind}-{name}",
            "generation": 3,
            "annotations": annotations,
        },
        "spec": {"template": {}},
    }


@pytest.fixture
def api():
    found = RecordedApi(
        [
            obj("plain"),
            obj("served", record=dict(RECORD, verdict="served")),
            obj("killed", record=RECORD, until="2026-11-30T06:03:00Z"),
            obj("released", kind="StatefulSet", record=RECORD),
            obj("busy", record=RECORD, until="2026-11-30T07:03:00Z"),
            obj("odd", **{UNDO_ANNOTATION: "no JSON"}),
            obj("killed", namespace="web", record=RECORD),
        ]
    )
    with found.serve():
        yield found


def asked(api, *arguments):
    access = client.connect({"host": api.url, "api_key": api.token}, {}, MetadataClient)
    return own_changes(access, *arguments, now=NOW)


def test_each_object_is_told_with_who_holds_it(api):
    found = asked(api, "llm")
    assert {
        item["name"]: (item["held"], item["unfinished"], item["records"]) for item in found["objects"]
    } == {
        "busy": (True, False, 1),
        "killed": (False, True, 1),
        "odd": (False, False, 0),
        "released": (False, True, 1),
        "served": (False, False, 1),
    }
    killed = next(item for item in found["objects"] if item["name"] == "killed")
    assert killed["key"] == "llm/Deployment/killed"
    assert (killed["generation"], killed["run"], killed["causes"]) == (3, "run-1", ["kv_max_len"])
    assert [item["name"] for item in found["objects"] if item["problems"]] == ["odd"]


def test_all_namespaces_are_listed_at_once(api):
    keys = [item["key"] for item in asked(api, None)["objects"]]
    assert "web/Deployment/killed" in keys
    assert "llm/Deployment/killed" in keys


@pytest.mark.parametrize(
    "name", ["deployment/killed", "Deployments/killed", "deploy/killed", "deployment.apps/killed"]
)
def test_one_object_is_found_in_every_spelling(api, name):
    assert [item["key"] for item in asked(api, "llm", name)["objects"]] == ["llm/Deployment/killed"]
    assert not api.asked("statefulsets")


def test_an_object_without_a_record_is_no_failure(api):
    assert asked(api, "llm", "deployment/plain")["objects"] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deployment/none", "there is no deployment/none in namespace llm"),
        ("deployment", "is no kind/name such as deployment/llama"),
        ("pod/llama-0", "the kinds are deployment"),
    ],
)
def test_what_is_no_object_is_one_sentence(api, name, words):
    with pytest.raises(DocumentError, match=words):
        asked(api, "llm", name)


def test_a_kind_that_cannot_be_listed_is_named_and_the_rest_is_read(api):
    api.fail("/daemonsets", status=403, message="daemonsets.apps is forbidden")
    found = asked(api, "llm")
    assert [item["needs"] for item in found["unreadable"]] == ["list on daemonsets.apps in llm"]
    assert found["objects"]


def test_where_nothing_can_be_listed_the_right_is_named(api):
    api.fail("/apps/v1", status=403, message="forbidden")
    with pytest.raises(DocumentError, match=r"needs list on deployments.apps in llm"):
        asked(api, "llm")
