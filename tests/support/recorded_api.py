# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes API server that answers from given objects and logs, on loopback, with faults on demand.

It does what the collection's reader relies on of a real one: paths by group and resource, paged lists with
``limit`` and ``continue``, label and field selectors, logs of the current and previous container, Status objects
for every refusal, bearer tokens. It does not authorize, watch or write.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# Kinds that the tests use, as an API server names them: (group/version, kind) -> (plural, namespaced).
RESOURCES = {
    ("v1", "Pod"): ("pods", True),
    ("v1", "Event"): ("events", True),
    ("v1", "Node"): ("nodes", False),
    ("v1", "Namespace"): ("namespaces", False),
    ("v1", "ConfigMap"): ("configmaps", True),
    ("v1", "ResourceQuota"): ("resourcequotas", True),
    ("v1", "LimitRange"): ("limitranges", True),
    ("apps/v1", "Deployment"): ("deployments", True),
    ("apps/v1", "ReplicaSet"): ("replicasets", True),
    ("apps/v1", "StatefulSet"): ("statefulsets", True),
    ("apps/v1", "ControllerRevision"): ("controllerrevisions", True),
    ("autoscaling/v2", "HorizontalPodAutoscaler"): ("horizontalpodautoscalers", True),
    ("serving.kserve.io/v1beta1", "InferenceService"): ("inferenceservices", True),
    ("acme.example/v1", "Llama"): ("llamas", True),
    ("metrics.k8s.io/v1beta1", "PodMetrics"): ("pods", True),
}
_REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired"}


class RecordedApi:
    """What the server knows. Add objects, logs and faults before or while it runs.

    requests: every path with query that was asked, in order; connections: how many were opened.
    """

    def __init__(self, objects=(), token="recorded-token"):
        self.token = token
        self.objects = {}
        self.logs = {}
        self.log_refusals = {}
        self.programs = {}
        self.faults = []
        self.requests = []
        self.connections = 0
        self.url = None
        for item in objects:
            self.add(item)

    def add(self, item):
        """Keep a raw object under its place in the API."""
        key = (item["apiVersion"], item["kind"])
        plural, namespaced = RESOURCES[key]
        metadata = item["metadata"]
        place = (item["apiVersion"], metadata.get("namespace") if namespaced else None, plural)
        self.objects.setdefault(place, {})[metadata["name"]] = item

    def add_log(self, namespace, pod, container, text, previous=False):
        """The log of a container; str or bytes, as the container wrote it (the server adds timestamps)."""
        raw = text.encode() if isinstance(text, str) else text
        self.logs[namespace, pod, container, previous] = raw

    def refuse_log(self, namespace, pod, container, text, previous=False):
        """What the kubelet writes in place of a log when it has sent status 200 already; without timestamps."""
        self.log_refusals[namespace, pod, container, previous] = text

    def add_program(self, command, printed, exit_code=0, stream=None):
        """What an exec'd command prints; unknown ones end with 1 and a complaint, None never ends.

        stream: 1 (standard output) or 2; by default that of success or failure.
        """
        self.programs[tuple(command)] = (printed, exit_code, stream or (2 if exit_code else 1))

    def fail(self, pattern, status=None, message="", times=None, when=None, **body):
        """Answer paths (with query) that match ``pattern`` with a refusal, the next ``times`` times, while ``when()``.

        status: an HTTP status; ``reset`` breaks the connection before an answer, ``break`` in the middle of the
        body, ``hang`` never answers. body: further fields of the Status object.
        """
        self.faults.append(
            {
                "pattern": re.compile(pattern),
                "status": status,
                "message": message,
                "left": times,
                "when": when,
                "body": body,
            }
        )

    def asked(self, pattern):
        """The requests so far that match ``pattern``."""
        return [path for path in self.requests if re.search(pattern, path)]

    @contextmanager
    def serve(self, tls=None):
        """Run on a free loopback port; yields the API, its ``url`` set. tls: an ssl.SSLContext for HTTPS."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def kubeconfig(self, namespace="llm"):
        """A kubeconfig (dict) whose only context points at the running server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "recorded",
            "contexts": [
                {
                    "name": "recorded",
                    "context": {"cluster": "recorded", "user": "reader", "namespace": namespace},
                }
            ],
            "clusters": [{"name": "recorded", "cluster": {"server": self.url}}],
            "users": [{"name": "reader", "user": {"token": self.token}}],
        }


def _handler(api):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body leave in one packet; without this every answer waits for a delayed ACK.
        wbufsize = -1

        def setup(self):
            super().setup()
            api.connections += 1

        def log_message(self, *_args):
            pass

        def do_GET(self):
            api.requests.append(self.path)
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            fault = self._fault()
            if fault:
                self._refuse(fault["status"], fault["message"], fault["body"])
            elif api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                self._refuse(401, "Unauthorized")
            elif parts.path.endswith("/exec"):
                self._exec(parse_qs(parts.query).get("command") or [])
            else:
                self._answer(parts.path, query)
            self.wfile.flush()

        def _fault(self):
            for fault in api.faults:
                over = fault["left"] == 0 or (fault["when"] and not fault["when"]())
                if not over and fault["pattern"].search(self.path):
                    if fault["left"] is not None:
                        fault["left"] -= 1
                    return fault
            return None

        def _answer(self, path, query):
            if path == "/apis":
                groups = sorted({place[0].rpartition("/")[0] for place in api.objects} - {""})
                return self._json(
                    200, {"kind": "APIGroupList", "groups": [{"name": name} for name in groups]}
                )
            match = re.fullmatch(
                r"/(?:api|apis)/(?P<version>v1|[^/]+/[^/]+?)"
                r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?P<log>/log)?)?",
                path,
            )
            if match:
                version, namespace, plural = (
                    match.group("version"),
                    match.group("namespace"),
                    match.group("plural"),
                )
                if match.group("log"):
                    return self._log(namespace, match.group("name"), query)
                if match.group("name"):
                    return self._one(version, namespace, plural, match.group("name"))
                if any(plural == known[0] and key[0] == version for key, known in RESOURCES.items()):
                    return self._list(version, namespace, plural, query)
            match = re.fullmatch(r"/(?:api|apis)/(v1|[^/]+/[^/]+)", path)
            if match:
                listed = [
                    {"name": plural, "kind": kind, "namespaced": namespaced}
                    for (version, kind), (plural, namespaced) in RESOURCES.items()
                    if version == match.group(1)
                ]
                if listed:
                    return self._json(200, {"kind": "APIResourceList", "resources": listed})
            return self._refuse(404, "the server could not find the requested resource")

        def _one(self, version, namespace, plural, name):
            found = (api.objects.get((version, namespace, plural)) or {}).get(name)
            if not found:
                return self._refuse(404, f'{plural} "{name}" not found')
            return self._json(200, found)

        def _list(self, version, namespace, plural, query):
            items = [
                item
                for (known, place, resource), listed in sorted(api.objects.items(), key=str)
                if (known, resource) == (version, plural) and namespace in (None, place)
                for item in listed.values()
                if _selected(item, query)
            ]
            start = int(query.get("continue") or 0)
            end = start + int(query.get("limit") or len(items) or 1)
            kind = next(
                key[1] for key, known in RESOURCES.items() if known[0] == plural and key[0] == version
            )
            # Items of a list have no kind and apiVersion of their own.
            page = [
                {key: item[key] for key in item if key not in ("kind", "apiVersion")}
                for item in items[start:end]
            ]
            metadata = {"resourceVersion": "1"}
            if end < len(items):
                metadata["continue"] = str(end)
            return self._json(
                200, {"kind": kind + "List", "apiVersion": version, "metadata": metadata, "items": page}
            )

        def _log(self, namespace, name, query):
            pod = (api.objects.get(("v1", namespace, "pods")) or {}).get(name)
            if not pod:
                return self._refuse(404, f'pods "{name}" not found')
            container = query.get("container")
            previous = query.get("previous") == "true"
            text = api.logs.get((namespace, name, container, previous))
            refusal = api.log_refusals.get((namespace, name, container, previous))
            if refusal is not None:
                self._chunks([refusal.encode()])
                self.wfile.write(b"0\r\n\r\n")
                return None
            if text is None and previous:
                return self._refuse(
                    400, f'previous terminated container "{container}" in pod "{name}" not found'
                )
            if text is None:
                return self._refuse(
                    400, f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
                )
            if query.get("timestamps") == "true":
                text = _with_timestamps(text)
            self._chunks(text[at : at + 4096] for at in range(0, len(text), 4096))
            self.wfile.write(b"0\r\n\r\n")
            return None

        def _exec(self, command):
            """The remote command protocol over a websocket: channel 1 stdout, 2 stderr, 3 the outcome."""
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header(
                "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            )
            self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
            self.end_headers()
            self.wfile.flush()
            missing = (f"{command[0]}: {command[-1]}: No such file or directory", 1, 2)
            printed, exit_code, stream = api.programs.get(tuple(command), missing)
            if printed is None:
                self.connection.settimeout(5)
                self.rfile.read(1)
                return
            self._frame(2, bytes([stream]) + printed.encode())
            outcome = {"status": "Success"}
            if exit_code:
                causes = [{"reason": "ExitCode", "message": str(exit_code)}]
                outcome = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            self._frame(2, b"\x03" + json.dumps(outcome).encode())
            self._frame(8, struct.pack("!H", 1000))
            self.close_connection = True

        def _frame(self, kind, data):
            size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack("!H", len(data))
            self.wfile.write(bytes([0x80 | kind]) + size + data)
            self.wfile.flush()

        def _refuse(self, status, message, body=None):
            if status == "reset":
                # SO_LINGER 0 makes close() send RST.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return None
            if status == "hang":
                self.connection.settimeout(60)
                self.rfile.read(1)
                self.close_connection = True
                return None
            if status == "break":
                self._chunks([(body or {}).get("sent", b"")])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
            details = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": _REASONS.get(status, "InternalError"),
                "code": status,
            }
            return self._json(status, {**details, **(body or {})})

        def _chunks(self, pieces):
            """Logs come without a length, in chunks; the last, empty one isn't sent here."""
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

        def _json(self, status, document):
            return self._send(status, "application/json", json.dumps(document).encode())

        def _send(self, status, kind, data):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _selected(item, query):
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, (query.get("labelSelector") or "").split(",")):
        key, _equals, value = term.partition("=")
        if labels.get(key) != value:
            return False
    for term in filter(None, (query.get("fieldSelector") or "").split(",")):
        path, _equals, value = term.partition("=")
        found = item
        for name in path.split("."):
            found = (found or {}).get(name)
        if found != value:
            return False
    return True


def _with_timestamps(text):
    """As the kubelet gives them: one time before each line, nanoseconds, UTC."""
    lines = text.split(b"\n")
    ended = lines[-1] == b""
    stamped = [
        b"2026-11-30T06:50:%02d.%09dZ " % (1 + index // 60 % 59, index) + line
        for index, line in enumerate(lines[:-1] if ended else lines)
    ]
    return b"\n".join(stamped) + (b"\n" if ended else b"")
