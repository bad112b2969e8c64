# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching a rollout: what is read, what decides, and what is waited for, on an API server of dictionaries."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    DocumentError,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import (
    conversation,
    pending,
    places,
    watch,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import writer as writing
from ansible_collections.vllm_runbook.oom.plugins.modules.serving_info import argument_spec, query_of

NOW = datetime(2026, 11, 30, 7, 10, tzinfo=UTC)
PLACE = places.place_of("apps/v1", "StatefulSet", "llm", "s")
PATH = "/apis/apps/v1/namespaces/llm/statefulsets/s"
OBJECT = {
    "metadata": {"name": "s", "uid": "uid-s", "generation": 1},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "s"}}},
    "status": {"observedGeneration": 1, "updateRevision": "r"},
}
POD = {
    "metadata": {
        "name": "s-0",
        "namespace": "llm",
        "uid": "uid-0",
        "labels": {"controller-revision-hash": "r"},
        "creationTimestamp": "2026-11-30T07:00:00Z",
        "ownerReferences": [{"uid": "uid-s", "kind": "StatefulSet", "name": "s", "controller": True, "apiVersion": "apps/v1"}],
    },
    "spec": {"containers": [{"name": "vllm", "command": ["vllm", "serve"], "args": ["m"]}], "nodeName": "n"},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "vllm", "restartCount": 0, "state": {"running": {}}}],
    },
}  # fmt: skip


class Api:
    """An API server: objects by path; a path's value may be a list of answers, taken one after the other."""

    host = "https://x"

    def __init__(self, **more):
        self.pods = [copy.deepcopy(POD)]
        self.answers = {PATH: copy.deepcopy(OBJECT), "/api/v1/nodes/n": {"metadata": {"name": "n"}}, **more}
        self.paused = 0.0
        self.logs = [b"INFO 11-30 07:00:00 [x.py:1] Starting to load model m...\n"]
        self.asked = []

    def now(self):
        return NOW

    def pause(self, seconds):
        self.paused += seconds

    def get(self, path):
        found = self.answers.get(path)
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            raise ApiError(404, "not found")
        if isinstance(found, ApiError):
            raise found
        return copy.deepcopy(found)

    def pages(self, path, params=()):
        self.asked.append((path, dict(params)))
        if path.endswith("/pods"):
            return iter(copy.deepcopy(self.pods))
        return iter(())

    def log(self, _namespace, _pod, _params):
        return iter(self.logs)


def query(**options):
    given = {name: spec.get("default") for name, spec in argument_spec().items()}
    return query_of({**given, "kind": "StatefulSet", "name": "s", **options})


@pytest.fixture
def told(monkeypatch):
    """Answers of the engines, one after the other; the last one stays."""
    answers = []

    def converse(_writer, pod, _server, key, request, task, count):
        engine = {
            "pod": pod["metadata"]["name"],
            "models": ["m"],
            "requests": count,
            "tokens": count,
            "seconds": 0.1,
        }
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return {**engine, "outcome": answer, "why": None if answer == "answered" else "it says no"}

    monkeypatch.setattr(conversation, "converse", converse)
    return answers


@pytest.fixture
def clock(monkeypatch):
    """Time passes by pauses only: the api that is given to ``watched``."""

    def use(api):
        monkeypatch.setattr(watch.time, "monotonic", lambda: api.paused)

    return use


@pytest.fixture
def watched(clock):
    def make(api, **options):
        clock(api)
        return watch.watch(api, PLACE, query(**options))

    return make


def test_served(watched, told):
    told.append("answered")
    api = Api()
    serving = watched(api)
    assert (serving["decided"], serving["verdict"], serving["restarts"]) == (True, "served", {"uid-0": 0})
    assert ("/api/v1/namespaces/llm/pods", {"labelSelector": "app=s"}) in api.asked
    assert serving["at"] == "2026-11-30T07:10:00Z"


@pytest.mark.parametrize(
    ("outcome", "verdict", "verifiable"), [("healthy", "starts", True), ("unverifiable", "starts", False)]
)
def test_starts(watched, told, outcome, verdict, verifiable):
    told.append(outcome)
    serving = watched(Api(), wait=60)
    assert (serving["decided"], serving["verdict"], serving["verifiable"]) == (True, verdict, verifiable)


def test_what_does_not_answer_yet_is_waited_for(watched, told):
    told.extend(["not yet"] * 4 + ["answered"])
    api = Api()
    assert watched(api, wait=60)["verdict"] == "served"
    assert api.paused == 8
    told[:] = ["not yet"]
    serving = watched(Api(), wait=10)
    assert (serving["decided"], serving["problems"]) == (False, ["pod s-0 doesn't answer yet: it says no"])


def test_a_refusal_counts_when_it_comes_again(watched, told):
    told.extend(["failed", "failed", "answered"])
    assert watched(Api(), wait=60)["verdict"] == "served"
    told[:] = ["failed"]
    serving = watched(Api(), wait=60)
    assert (serving["verdict"], serving["why"]) == ("failed", "pod s-0: it says no")


def test_nothing_is_asked_where_only_the_rollout_is_meant(watched):
    assert watched(Api(), request="none")["verdict"] == "starts"


def two_pods():
    api = Api()
    second = copy.deepcopy(POD)
    second["metadata"].update(name="s-1", uid="uid-1")
    api.pods.append(second)
    api.answers[PATH]["spec"]["replicas"] = 2
    return api


def test_of_replicas_one_is_asked_or_all(watched, told):
    told.append("answered")
    one = watched(two_pods())
    assert (one["engine"]["pod"], one["engine"]["requests"]) == ("s-0", 1)
    assert watched(two_pods(), requests=5)["engine"]["requests"] == 5
    told[:] = ["answered", "failed"]
    both = watched(two_pods(), requests=2)
    assert (both["verdict"], both["engine"]["pod"]) == ("failed", "s-1")


def test_a_start_is_shown_by_its_log(watched):
    api = Api()
    api.pods[0]["status"]["conditions"][0]["status"] = "False"
    serving = watched(api)
    assert (serving["decided"], serving["pods"][0]["phase_of_start"]) == (False, "load")
    assert serving["sentence"] == (
        "StatefulSet/s: 1 of 1 pods updated, 0 ready; s-0 loads the model: Starting to load model m..."
    )


def test_a_secret_in_the_last_line_is_not_shown(watched):
    api = Api()
    api.pods[0]["status"]["conditions"][0]["status"] = "False"
    api.logs = [b"INFO 11-30 07:00:00 [x.py:1] {'api_key': 'sk-live-7d1e9c3b5a8f4e2d'}\n"]
    serving = watched(api)
    assert serving["pods"][0]["last_line"]
    assert "7d1e9c3b5a8f4e2d" not in json.dumps(serving)


def test_a_change_of_the_state_ends_the_watch_at_half_time(watched, told):
    told.append("not yet")
    api = Api()
    watched(api, wait=60, seen="something else")
    assert 30 <= api.paused < 40
    state = watched(Api())["state"]
    api = Api()
    watched(api, wait=60, seen=state)
    assert api.paused >= 60


def test_holding_asks_nothing_and_ends_by_a_death_only(watched):
    api = Api()
    serving = watched(api, wait=30, hold=True, baseline={"uid-0": 0})
    assert (serving["decided"], serving["engine"]) == (False, None)
    assert api.paused >= 30
    api = Api()
    dead = api.pods[0]["status"]["containerStatuses"][0]
    dead.update(restartCount=1, lastState={"terminated": {"exitCode": 1}})
    assert watched(api, wait=30, hold=True, baseline={"uid-0": 0})["verdict"] == "failed"
    assert watched(api, wait=3, hold=True, baseline={"uid-0": 1})["verdict"] is None


AWAY = ApiError(None, "Connection refused")


def test_an_api_server_that_was_there_is_waited_for(watched, told):
    told.append("answered")
    api = Api(**{PATH: [AWAY, ApiError(503, "starting"), ApiError(403, "no roles yet"), OBJECT]})
    assert watched(api, wait=60, seen="x")["verdict"] == "served"
    serving = watched(Api(**{PATH: AWAY}), wait=4, seen="x")
    assert (serving["decided"], serving["state"], serving["rollout"]) == (False, "no answer", None)


@pytest.mark.parametrize(
    ("answer", "seen", "words"),
    [
        (AWAY, None, "can't be reached"),
        (ApiError(403, "no"), None, "needs: get statefulsets.apps in namespace llm"),
        (ApiError(403, "no"), "x", "needs: get statefulsets.apps in namespace llm"),
        (ApiError(404, "no"), "x", "there is no"),
    ],
)
def test_what_waiting_does_not_help(watched, answer, seen, words):
    with pytest.raises(DocumentError, match=words):
        watched(Api(**{PATH: answer}), wait=600, seen=seen)


def test_what_was_in_the_way_and_is_over_is_told_too(watched, told):
    told.append("answered")
    api = Api(**{PATH: [AWAY, OBJECT]})
    serving = watched(api, wait=60, seen="x", noticed=["the new pod llama-0 is being deleted by somebody"])
    assert (serving["verdict"], serving["problems"]) == ("served", [])
    assert serving["noticed"] == [
        "the new pod llama-0 is being deleted by somebody",
        "the API server doesn't answer; it is waited for",
    ]


def test_pods_that_are_gone_are_named(watched, told):
    told.append("answered")
    serving = watched(Api(), baseline={"uid-0": 0, "uid-gone": 0})
    assert (serving["verdict"], serving["problems"]) == (
        "served",
        ["a pod that was there is gone: deleted by somebody"],
    )


def test_the_limit_is_by_the_template_while_there_are_no_pods(watched):
    api = Api()
    api.pods = []
    probe = {"periodSeconds": 10, "failureThreshold": 60}
    engine = dict(POD["spec"]["containers"][0], startupProbe=probe)
    api.answers[PATH]["spec"]["template"] = {"spec": {"containers": [engine]}}
    assert watched(api)["limit"] == 900.0
    assert watched(api, timeout="20m")["limit"] == 1200.0


def test_the_soak_is_for_causes_of_serving_only(watched, told):
    told.append("answered")
    assert watched(Api(), causes=["serving_gpu_oom"], soak="10m")["soak_seconds"] == 600.0
    assert watched(Api(), causes=["kv_max_len"], soak="10m")["soak_seconds"] == 0.0


# -- the mark of the run


def marked(until, run="r1"):
    mark = {"run": run, "at": "2026-11-30T07:00:00Z", "until": until, "host": "h"}
    return dict(OBJECT, metadata=dict(OBJECT["metadata"], annotations={PENDING_ANNOTATION: json.dumps(mark)}))


@pytest.mark.parametrize(
    ("raw", "held", "renewals"),
    [
        (OBJECT, False, 0),
        (marked("2026-11-30T07:12:00Z", run="other"), False, 0),
        (marked("2026-11-30T07:12:00Z"), True, 0),
        (marked("2026-11-30T07:11:00Z"), True, 1),
        (marked("2026-11-30T07:09:00Z"), True, 1),
    ],
)
def test_the_mark_is_renewed_when_half_of_it_is_over(monkeypatch, raw, held, renewals):
    calls = []
    monkeypatch.setattr(writing, "renew", lambda *arguments: calls.append(arguments) or True)
    api = Api()
    assert pending.keep(api, PLACE, "r1", 180, raw) is held
    assert calls == [(api, PLACE, "r1", 180)] * renewals


def test_a_mark_that_cannot_be_renewed_ends_nothing(monkeypatch, watched, told):
    def fails(*_arguments):
        raise DocumentError("the right is missing")

    told.append("answered")
    monkeypatch.setattr(writing, "renew", fails)
    assert watched(Api(**{PATH: marked("2026-11-30T07:11:00Z")}), run="r1")["verdict"] == "served"
