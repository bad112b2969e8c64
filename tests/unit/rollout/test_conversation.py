# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking an engine: what is sent, by which way, and what is made of the answers."""

from __future__ import annotations

import json

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import (
    conversation,
    port_forward,
    server,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.port_forward import Answer

MODELS = {"data": [{"id": "m"}]}
TOKEN = {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}
WELL = {
    "/health": (200, None),
    "/v1/models": (200, MODELS),
    "/openapi.json": (404, None),
    "/v1/completions": (200, TOKEN),
}


def pod(*args, **more):
    containers = [
        {"name": "vllm", "command": ["vllm", "serve"], "args": ["m", *args]},
        *more.pop("others", ()),
    ]
    return {"metadata": {"name": "p", "namespace": "ns", **more}, "spec": {"containers": containers}}


class Server:
    """Answers of a pod's server by path, as ``(status, JSON)`` or an error; ``asked`` holds ``(path, headers)``."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def request(self, _writer, _namespace, _pod, _port, _method, path, _body, headers, _tls, _seconds):
        self.asked.append((path, dict(headers)))
        return self.answer(path)

    def answer(self, path):
        found = self.answers.get(path, (404, {"error": {"message": "Not Found"}}))
        if isinstance(found, Exception):
            raise found
        status, content = found
        return Answer(status, json.dumps(content).encode() if content is not None else b"")


class Proxy:
    """The API server with its proxy of pods."""

    def __init__(self, inner):
        self.inner = inner
        self.paths = []

    def _url(self, path, _params):
        return path

    def _ask(self, path, _log, sent):
        self.paths.append((path, sent[0] if sent else "GET"))
        return type("Response", (), {"status": (a := self.inner(path)).status, "data": a.body})


@pytest.fixture
def talk(monkeypatch):
    def make(answers=None, raw=None, writer=None, **options):
        there = Server({**WELL, **(answers or {})})
        monkeypatch.setattr(port_forward, "request", there.request)
        raw = raw or pod()
        return conversation.converse(writer, raw, server.server_of(raw), **options), there

    return make


def test_one_token(talk):
    told, there = talk(key="k")
    assert (told["outcome"], told["tokens"], told["requests"], told["by"]) == (
        "answered",
        1,
        1,
        "port_forward",
    )
    assert [path for path, _headers in there.asked] == [
        "/health",
        "/v1/models",
        "/openapi.json",
        "/v1/completions",
    ]
    assert all(headers["Authorization"] == "Bearer k" for _path, headers in there.asked)


def test_health_alone(talk):
    told, there = talk(request="health")
    assert (told["outcome"], told["health"], len(there.asked)) == ("healthy", True, 1)


def test_a_server_without_our_health_is_asked_on(talk):
    told, _there = talk({"/health": (404, None)})
    assert (told["outcome"], told["health"]) == ("answered", None)


def test_kserves_server_has_another_prefix(talk):
    told, there = talk(
        {
            "/v1/models": (404, None),
            "/openai/v1/models": (200, MODELS),
            "/openai/v1/completions": (200, TOKEN),
        }
    )
    assert told["outcome"] == "answered"
    assert there.asked[-1][0] == "/openai/v1/completions"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"/health": (503, None)}, "/health answers 503"),
        (
            {"/health": port_forward.NoServer(None, "nothing listens at the port")},
            "nothing answers at port 8000",
        ),
        ({"/v1/models": (500, None)}, "/v1/models answers 500"),
        (
            {"/v1/completions": (500, {"error": {"message": "EngineCore encountered an issue."}})},
            "EngineCore",
        ),
        ({"/v1/completions": ApiError(None, "no answer came in time")}, "in time"),
        ({"/v1/completions": port_forward.ConnectionLost(None, "gone")}, "gone"),
    ],
)
def test_what_may_pass(talk, answers, why):
    told, _there = talk(answers)
    assert told["outcome"] == "not yet"
    assert why in told["why"]


def test_an_answer_without_a_token_is_a_failure(talk):
    assert talk({"/v1/completions": (200, dict(TOKEN, choices=[]))})[0]["outcome"] == "failed"


def test_the_next_kind_is_tried(talk):
    cant = {"error": {"message": "The model does not support Completions API"}}
    embedding = {"data": [{"embedding": [0.1]}]}
    told, there = talk({"/v1/completions": (200, cant), "/v1/embeddings": (200, embedding)})
    assert (told["outcome"], told["task"]) == ("answered", "embed")
    assert [path for path, _body in there.asked[3:]] == [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
    ]


@pytest.mark.parametrize(
    ("answers", "raw", "why"),
    [
        ({"/v1/models": (401, {"error": "Unauthorized"})}, None, "set VLLM_OOM_API_KEY"),
        ({"/v1/models": (200, {"data": []})}, None, "lists no model"),
        ({"/v1/completions": (400, None)}, None, "no smallest request fits"),
        ({"/health": port_forward.ConnectionLost(None, "TLS fails (X)")}, None, "client's certificate"),
        (
            {"/health": port_forward.ConnectionLost(None, "reset")},
            pod(others=[{"name": "istio-proxy"}]),
            "strict mTLS",
        ),
        (
            {"/health": port_forward.NotForwarded(403, "refused (403)")},
            pod("--api-key", "x"),
            "can't carry the server's key",
        ),
        ({}, pod(labels={"llm-d.ai/role": "prefill"}), "prefill"),
    ],
)
def test_what_cannot_be_asked_from_here_is_no_failure(talk, answers, raw, why):
    told, _there = talk(answers, raw)
    assert told["outcome"] == "unverifiable"
    assert why in told["why"]


def test_a_wrong_key_is_said_to_be_one(talk):
    told, _there = talk({"/v1/models": (401, None)}, key="sk-live-7d1e9c3b5a8f4e2d")
    assert told["why"] == "the server refuses the key in VLLM_OOM_API_KEY (401)"


REFUSED = {"/health": port_forward.NotForwarded(403, "port-forward is refused (403)")}


def test_the_proxy_is_the_other_way(talk):
    writer = Proxy(lambda path: Server(WELL).answer(path.partition("/proxy")[2]))
    told, _there = talk(REFUSED, writer=writer)
    assert (told["outcome"], told["by"]) == ("answered", "proxy")
    assert writer.paths[0] == ("/api/v1/namespaces/ns/pods/p:8000/proxy/health", "GET")
    assert writer.paths[-1] == ("/api/v1/namespaces/ns/pods/p:8000/proxy/v1/completions", "POST")


@pytest.mark.parametrize(
    ("status", "message", "outcome"),
    [
        (403, "pods is forbidden", "unverifiable"),
        (503, "error trying to reach service: dial tcp: connect: connection refused", "not yet"),
        (502, "error trying to reach service: reset", "not yet"),
    ],
)
def test_what_the_api_server_says_in_the_pods_place(talk, status, message, outcome):
    own = {"kind": "Status", "apiVersion": "v1", "message": message}
    writer = Proxy(lambda _path: Answer(status, json.dumps(own).encode()))
    assert talk(REFUSED, writer=writer)[0]["outcome"] == outcome


def test_more_requests(talk):
    told, there = talk(count=20)
    assert (told["requests"], told["tokens"]) == (20, 20)
    assert sum(path == "/v1/completions" for path, _body in there.asked) == 20
