# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking an engine whether it serves: health, the model's name, the smallest request.

The way is the API server's port-forward; where that isn't to be had and the server asks for no key, its proxy of pods. (It
takes away the Authorization header, and a key in any other place would be shown to the API server.)

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from ..evidence.client import ApiError
from . import port_forward, requests
from .port_forward import Answer, ConnectionLost, NoServer, NotForwarded

_QUICK_S = 15.0
# The first request of a shape may compile kernels.
_REQUEST_S = 120.0
_AT_ONCE = 8
# What came of asking, in the order in which one of several pods counts.
FAILED, NOT_YET, UNVERIFIABLE, HEALTHY, ANSWERED = "failed", "not yet", "unverifiable", "healthy", "answered"


def converse(writer, raw_pod, server, key=None, request="token", task="auto", count=1):
    """Ask one pod's server. Returns what module serving_info calls ``engine``, with ``outcome`` (see above) and ``why``.

    server: server.Server of the pod; key: for the Authorization header; request: health or token; task: of requests.TASKS or
    ``auto``; count: so many smallest requests. Raises ApiError when the API server doesn't answer.
    """
    told = {
        "pod": raw_pod["metadata"]["name"],
        "port": server.port,
        "tls": server.tls,
        "by": None,
        "health": None,
        "models": [],
        "task": None,
        "answered": None,
        "requests": 0,
        "tokens": None,
        "seconds": None,
        "why": None,
    }
    way = _Way(writer, raw_pod, server, key)
    try:
        outcome = _talk(way, server, told, request, task, count)
    except NoServer as error:
        outcome = NOT_YET
        told["why"] = f"nothing answers at port {server.port} ({error.message})"
    except NotForwarded as error:
        outcome = UNVERIFIABLE
        told["why"] = _refused_way(error, raw_pod, server)
    except ConnectionLost as error:
        outcome, told["why"] = _lost(error, server)
    told["by"] = way.by
    return dict(told, outcome=outcome)


def _talk(way, server, told, request, task, count):
    health = way.get("/health")
    # Servers around vLLM have theirs elsewhere.
    told["health"] = None if health.status == 404 else health.status == 200
    if told["health"] is False:
        told["why"] = f"/health answers {health.status}"
        if health.status in (401, 403):
            return _unverifiable(told, _wants_key(way))
        return NOT_YET
    if request == "health":
        return HEALTHY
    listing = way.get("/v1/models")
    if listing.status == 404:
        # KServe's server has the paths of OpenAI's interface below another one.
        way.prefix = "/openai"
        listing = way.get("/v1/models")
    if listing.status in (401, 403):
        return _unverifiable(told, _wants_key(way))
    if listing.status >= 500:
        told["why"] = f"/v1/models answers {listing.status}"
        return NOT_YET
    told["models"] = requests.listed_models(listing.body)
    if listing.status != 200 or not told["models"]:
        return _unverifiable(told, f"/v1/models lists no model ({listing.status})")
    if server.partial:
        return _unverifiable(told, server.partial)
    model = server.model if server.model in told["models"] else told["models"][0]
    return _ask_for_it(way, server, told, model, task, count)


def _ask_for_it(way, server, told, model, task, count):
    chosen = requests.task_of(server.settings) if task == "auto" else task
    paths = None if chosen else _documented(way)
    refused = []
    for kind in requests.kinds_for(task, server.settings, paths):
        started = time.monotonic()
        reply = _send(way, requests.ask(kind, model))
        told["seconds"] = round(time.monotonic() - started, 3)
        if reply.answered is None:
            refused.append(reply.why)
            continue
        told.update(task=kind, answered=reply.answered, requests=1, tokens=reply.tokens, why=reply.why)
        if reply.answered and count > 1:
            _send_more(way, told, kind, model, count - 1)
        if told["answered"]:
            return ANSWERED
        if told["why"] and " 401" in told["why"]:
            return _unverifiable(told, _wants_key(way))
        return NOT_YET if reply.passing else FAILED
    return _unverifiable(told, "no smallest request fits this model: " + "; ".join(refused[:3]))


def _send_more(way, told, kind, model, count):
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, count)) as pool:
        replies = list(pool.map(lambda _number: _send(way, requests.ask(kind, model)), range(count)))
    told["requests"] += sum(1 for reply in replies if reply.answered)
    told["tokens"] = (told["tokens"] or 0) + sum(reply.tokens or 0 for reply in replies) or told["tokens"]
    bad = next((reply for reply in replies if not reply.answered), None)
    if bad:
        told.update(
            answered=False, why=f"of {count + 1} requests {told['requests']} were answered: {bad.why}"
        )


def _send(way, ask):
    try:
        answer = way.post(ask.path, ask.body, ask.content_type)
    except (ConnectionLost, NoServer) as error:
        # Health and model list came the same way: it is this request.
        return requests.Reply(False, passing=True, why=f"{ask.path}: {error.message}")
    except ApiError as error:
        return requests.Reply(False, passing=True, why=f"{ask.path}: {error.message}")
    return requests.read_reply(ask.kind, answer.status, answer.body)


def _documented(way):
    try:
        answer = way.get("/openapi.json")
    except ApiError:
        return None
    return requests.documented_paths(answer.body) if answer.status == 200 else None


def _unverifiable(told, why):
    told["why"] = why
    return UNVERIFIABLE


def _wants_key(way):
    if way.key:
        return "the server refuses the key in VLLM_OOM_API_KEY (401)"
    return "the server asks for an API key (401): set VLLM_OOM_API_KEY in the environment"


def _lost(error, server):
    if server.mesh:
        return UNVERIFIABLE, (
            f"{server.mesh} ends the connection ({error.message}): with strict mTLS only pods of the mesh may ask; permit the port"
            " (PeerAuthentication or policy), or ask from a pod of the mesh"
        )
    if "TLS" in error.message:
        return (
            UNVERIFIABLE,
            f"{error.message}: the server may ask for a client's certificate, or not speak https at all",
        )
    return NOT_YET, error.message


def _refused_way(error, raw_pod, server):
    namespace = raw_pod["metadata"]["namespace"]
    needs = f"needs get and create pods/portforward in namespace {namespace}"
    if server.needs_key:
        return f"{error.message}; {needs} (the API server's proxy can't carry the server's key)"
    return f"{error.message}; {needs}, or get and create pods/proxy"


class _Way:
    """How requests get to the server. by: port_forward or proxy, None before the first."""

    def __init__(self, writer, raw_pod, server, key):
        self.by = None
        self.prefix = ""
        self.key = key
        self._writer = writer
        self._namespace = raw_pod["metadata"]["namespace"]
        self._name = raw_pod["metadata"]["name"]
        self._server = server

    def get(self, path):
        prefix = self.prefix if path.startswith("/v1") else ""
        return self._send("GET", prefix + path, None, None, _QUICK_S)

    def post(self, path, body, content_type):
        prefix = self.prefix if path.startswith("/v1") else ""
        return self._send("POST", prefix + path, body, content_type, _REQUEST_S)

    def _send(self, method, path, body, content_type, seconds):
        if self.by == "proxy":
            return self._by_proxy(method, path, body, content_type)
        headers = [("Accept", "application/json")]
        if content_type:
            headers.append(("Content-Type", content_type))
        if self.key:
            headers.append(("Authorization", f"Bearer {self.key}"))
        server = self._server
        try:
            answer = port_forward.request(
                self._writer,
                self._namespace,
                self._name,
                server.port,
                method,
                path,
                body,
                headers,
                server.tls,
                seconds,
            )
        except NotForwarded:
            if server.needs_key or self.by:
                raise
            answer = self._by_proxy(method, path, body, content_type)
            self.by = "proxy"
            return answer
        self.by = "port_forward"
        return answer

    def _by_proxy(self, method, path, body, content_type):
        scheme = "https:" if self._server.tls else ""
        address = (
            f"/api/v1/namespaces/{self._namespace}/pods/{scheme}{self._name}:{self._server.port}/proxy{path}"
        )
        status, content = _sent_once(self._writer, method, address, body, content_type)
        said = _status_object(content)
        if said is None:
            return Answer(status, content)
        message = str(said.get("message") or "")
        if status in (401, 403):
            raise NotForwarded(status, f"port-forward and proxy are refused ({status})")
        if "refused" in message:
            raise NoServer(None, "nothing listens at the port")
        raise ConnectionLost(None, "the API server can't reach the port")


def _sent_once(writer, method, path, body, content_type):
    """``(status, bytes)`` of one request to the API server, whatever its status."""
    import urllib3

    try:
        response = writer._ask(writer._url(path, ()), False, (method, content_type, body) if body else None)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ApiError(None, "the API server gave no answer in time") from error
    return response.status, response.data


def _status_object(body):
    """The API server's own answer in place of the pod's, or None."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    own = isinstance(content, dict) and content.get("kind") == "Status" and content.get("apiVersion") == "v1"
    return content if own else None
