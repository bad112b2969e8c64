# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest request for each kind of model, and whether it was answered. Pure: nothing is sent here.

Paths and shapes: vLLM's ``entrypoints`` (openai, pooling, speech_to_text), 0.8.5 to 0.28. Until 0.15 a server has the paths of
every task and answers those that its model can't do with an error in a 200; from 0.16 on it has those of its tasks only.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import io
import json
import wave
from typing import NamedTuple

from ..evidence.redact import Redactor

# What an option may ask for -> the requests that are tried, in this order.
TASKS = {
    "generate": ("completion", "chat"),
    "chat": ("chat",),
    "embed": ("embed",),
    "classify": ("classify", "pool"),
    "score": ("score",),
    "pool": ("pool",),
    "transcribe": ("transcribe",),
}
PATHS = {
    "completion": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embed": "/v1/embeddings",
    "classify": "/classify",
    "score": "/score",
    "pool": "/pooling",
    "transcribe": "/v1/audio/transcriptions",
}
# vLLM's own words for --task, --runner and --convert.
_BY_SETTING = {
    "generate": "generate",
    "draft": "generate",
    "embed": "embed",
    "embedding": "embed",
    "classify": "classify",
    "score": "score",
    "reward": "pool",
    "pooling": "pool",
    "transcription": "transcribe",
}
_WORD = "Hi"
_BOUNDARY = "vllm-runbook-oom"
_SHOWN = 200


class Ask(NamedTuple):
    """One request. kind: of PATHS; body: bytes."""

    kind: str
    path: str
    body: bytes
    content_type: str


class Reply(NamedTuple):
    """What became of a request.

    answered: True, False, or None where it doesn't fit the model and another kind may; tokens: generated, None for a model that
    generates none; passing: whether the same request may be answered soon; why: a sentence's end without anything secret.
    """

    answered: bool | None
    tokens: int | None = None
    passing: bool = False
    why: str | None = None


def task_of(settings):
    """The task (of TASKS) that an engine was told by runner, task or convert, or None. settings: of ``engine_settings``."""
    for name in ("convert", "task", "runner"):
        told = _BY_SETTING.get(str((settings.get(name) or {}).get("value") or "").lower())
        if told:
            return told
    return None


def kinds_for(task, settings, paths=None):
    """The kinds of requests to try. task: of TASKS or ``auto``; paths: those of the server's openapi.json, None when unknown."""
    chosen = task if task in TASKS else task_of(settings)
    kinds = TASKS[chosen] if chosen else tuple(PATHS)
    if not paths:
        return kinds
    there = tuple(kind for kind in kinds if _in(PATHS[kind], paths))
    return there or kinds


def _in(path, paths):
    return any(item == path or item == f"/openai{path}" for item in paths)


def ask(kind, model):
    """The smallest request of that kind for a served model's name."""
    content: dict[str, object] = {"model": model}
    if kind == "transcribe":
        return Ask(
            kind,
            PATHS[kind],
            _form(dict(content, response_format="json")),
            f"multipart/form-data; boundary={_BOUNDARY}",
        )
    shapes: dict[str, dict[str, object]] = {
        "completion": {"prompt": _WORD, "max_tokens": 1},
        "chat": {"messages": [{"role": "user", "content": _WORD}], "max_tokens": 1},
        "score": {"text_1": _WORD, "text_2": _WORD},
    }
    content.update(shapes.get(kind, {"input": _WORD}))
    return Ask(kind, PATHS[kind], json.dumps(content).encode(), "application/json")


def silence(seconds=1.0, rate=16_000):
    """A WAV file (bytes) in which nothing is heard: 16 bit, one channel, the rate that speech models are made for."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0\0" * int(seconds * rate))
    return written.getvalue()


def _form(fields):
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="silence.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return b"".join([*parts, head.encode(), silence(), f"\r\n--{_BOUNDARY}--\r\n".encode()])


def read_reply(kind, status, body):
    """The ``Reply`` in an answer's status and body (bytes)."""
    content = _object(body)
    error = _error(content)
    if status == 200 and not error:
        return _good(kind, content)
    said = f"{PATHS[kind]} answers {status}" + (f": {error}" if error else "")
    # 200: the servers until 0.15 say so that the model can't do this.
    if status in (200, 400, 404, 405, 415, 422, 501):
        return Reply(None, why=said)
    if status in (429, 503):
        return Reply(False, passing=True, why=said)
    return Reply(False, passing=status >= 500, why=said)


def _good(kind, content):
    usage = content.get("usage") if isinstance(content.get("usage"), dict) else {}
    if kind in ("completion", "chat"):
        tokens = usage.get("completion_tokens")
        if content.get("choices") and (tokens is None or tokens >= 1):
            return Reply(True, tokens=tokens or 1)
        return Reply(False, why=f"{PATHS[kind]} answers without a token")
    if kind == "transcribe":
        # Of silence an empty text is right.
        found = isinstance(content.get("text"), str)
    else:
        field = {"embed": "embedding", "score": "score", "classify": "probs", "pool": "data"}[kind]
        data = content.get("data")
        found = (
            isinstance(data, list)
            and bool(data)
            and isinstance(data[0], dict)
            and data[0].get(field) is not None
        )
    return Reply(True) if found else Reply(False, why=f"{PATHS[kind]} answers without a result")


def _object(body):
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _error(content):
    """The words of an error body, cut and redacted, or None. The shape with ``error`` is that of 0.10.1 and newer."""
    error = content.get("error")
    if isinstance(error, dict):
        text = error.get("message")
    elif error:
        text = error
    elif content.get("object") == "error":
        text = content.get("message")
    else:
        return None
    words = Redactor().text(" ".join(str(text).split()))
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"


def listed_models(body):
    """The names that ``/v1/models`` lists, in its order; empty when it is something else."""
    data = _object(body).get("data")
    if not isinstance(data, list):
        return []
    return [item["id"] for item in data if isinstance(item, dict) and isinstance(item.get("id"), str)]


def documented_paths(body):
    """The paths of an openapi.json, None when it is something else."""
    paths = _object(body).get("paths")
    return list(paths) if isinstance(paths, dict) else None
