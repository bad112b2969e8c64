# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest requests and what counts as an answer: bodies as vLLM sends them."""

from __future__ import annotations

import io
import json
import wave

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import engine_settings
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import requests


def settings(*arguments):
    return engine_settings(["vllm", "serve", "m", *arguments], [], [], defaults=False)


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        ((), None),
        (("--task", "embedding"), "embed"),
        (("--task=score",), "score"),
        (("--runner", "pooling"), "pool"),
        (("--runner", "pooling", "--convert", "embed"), "embed"),
        (("--convert", "none", "--task", "reward"), "pool"),
        (("--runner", "auto"), None),
    ],
)
def test_the_task_is_what_the_engine_was_told(arguments, task):
    assert requests.task_of(settings(*arguments)) == task


def test_which_requests_are_tried():
    assert requests.kinds_for("auto", settings()) == tuple(requests.PATHS)
    assert requests.kinds_for("auto", settings("--task", "embed"))[0] == "embed"
    assert requests.kinds_for("chat", settings("--task", "embed")) == ("chat",)
    there = ["/health", "/v1/embeddings", "/pooling"]
    assert requests.kinds_for("auto", settings(), there) == ("embed", "pool")
    assert requests.kinds_for("auto", settings(), ["/openai/v1/completions"]) == ("completion",)
    # A server whose documents hold nothing that is known is tried all the same.
    assert requests.kinds_for("auto", settings(), ["/health"]) == tuple(requests.PATHS)


def test_one_token_is_asked_for():
    assert json.loads(requests.ask("completion", "m").body) == {"model": "m", "prompt": "Hi", "max_tokens": 1}
    chat = json.loads(requests.ask("chat", "m").body)
    assert chat == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    assert json.loads(requests.ask("score", "m").body) == {"model": "m", "text_1": "Hi", "text_2": "Hi"}
    assert json.loads(requests.ask("pool", "m").body) == {"model": "m", "input": "Hi"}


def test_a_second_of_silence_is_sent():
    ask = requests.ask("transcribe", "m")
    boundary = ask.content_type.partition("boundary=")[2].encode()
    fields = ask.body.split(b"--" + boundary)
    assert b'name="model"\r\n\r\nm\r\n' in fields[1]
    sound = fields[3].partition(b"\r\n\r\n")[2]
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 16_000)
        assert set(file.readframes(16_000)) == {0}


USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@pytest.mark.parametrize(
    ("kind", "body", "tokens"),
    [
        ("completion", {"choices": [{"text": "a", "finish_reason": "length"}], "usage": USAGE}, 1),
        ("chat", {"choices": [{"message": {"content": None}}], "usage": USAGE}, 1),
        ("embed", {"data": [{"object": "embedding", "embedding": [0.1]}]}, None),
        ("score", {"data": [{"score": 0.0}]}, None),
        ("classify", {"data": [{"label": "A", "probs": [1.0]}]}, None),
        ("pool", {"data": [{"data": [[0.1]]}]}, None),
        ("transcribe", {"text": ""}, None),
    ],
)
def test_answers(kind, body, tokens):
    reply = requests.read_reply(kind, 200, json.dumps(body).encode())
    assert (reply.answered, reply.tokens) == (True, tokens)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("completion", {"choices": [], "usage": USAGE}),
        ("completion", {"choices": [{"text": ""}], "usage": dict(USAGE, completion_tokens=0)}),
        ("embed", {"data": []}),
        ("transcribe", {}),
    ],
)
def test_an_answer_without_a_result_is_none(kind, body):
    assert requests.read_reply(kind, 200, json.dumps(body).encode()).answered is False


# Both shapes of vLLM's errors; until 0.15 they come with a 200.
REFUSALS = [
    {
        "object": "error",
        "message": "The model does not support Completions API",
        "type": "BadRequestError",
        "code": 400,
    },
    {
        "error": {
            "message": "The model does not support Completions API",
            "type": "BadRequestError",
            "code": 400,
        }
    },
]


@pytest.mark.parametrize("body", REFUSALS)
@pytest.mark.parametrize("status", [200, 400, 404])
def test_what_a_model_cannot_do_is_tried_otherwise(status, body):
    reply = requests.read_reply("completion", status, json.dumps(body).encode())
    assert (reply.answered, reply.passing) == (None, False)
    assert reply.why == f"/v1/completions answers {status}: The model does not support Completions API"


@pytest.mark.parametrize(("status", "passing"), [(500, True), (503, True), (429, True), (401, False)])
def test_other_refusals(status, passing):
    reply = requests.read_reply("completion", status, b"Internal Server Error")
    assert (reply.answered, reply.passing) == (False, passing)


def test_an_error_is_cut_and_redacted():
    message = "bad header Authorization: Bearer sk-live-7d1e9c3b5a8f4e2d " + "x" * 1000
    reply = requests.read_reply("chat", 400, json.dumps({"error": {"message": message}}).encode())
    assert "7d1e9c3b5a8f4e2d" not in reply.why
    assert len(reply.why) < 300


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 1}', b'{"data": [1, {"id": 2}]}'])
def test_a_list_of_models_that_is_none(body):
    assert requests.listed_models(body) == []


def test_models_and_paths():
    assert requests.listed_models(b'{"data": [{"id": "a"}, {"id": "b"}]}') == ["a", "b"]
    assert requests.documented_paths(b'{"paths": {"/health": {}}}') == ["/health"]
    assert requests.documented_paths(b"nothing") is None
