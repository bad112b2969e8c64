# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Hugging Face Hub on loopback: resolves files, lists them, redirects to another host, and refuses as the Hub does.

What it does was read from the Hub's own answers as huggingface_hub relies on them: X-Error-Code and X-Error-Message,
X-Repo-Commit, 401 for a repository that isn't there where nobody is logged in, a redirect for large files.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"


class RecordedHub:
    """What the server knows; add to it before or while it runs.

    models: {repository: {file: bytes}}; sizes: {repository: {file: bytes it would have}}; gated: repositories that
    need ``token`` and its consent (``granted``); faults: {path's end: function(handler)} instead of an answer;
    moved: files that are redirected to ``elsewhere``; requests: (path, Authorization or None) in order.
    """

    def __init__(self, token="hf_recordedtoken"):
        self.token = token
        self.models = {}
        self.sizes = {}
        self.gated = set()
        self.granted = False
        self.revisions = {"main", COMMIT}
        self.has_api = True
        self.faults = {}
        self.moved = set()
        self.elsewhere = None
        self.requests = []
        self.url = None

    def add(self, repository, sizes=None, **files):
        """A model; files by name with dots as double underscores: dicts become JSON."""
        self.models[repository] = {
            name.replace("__", "."): json.dumps(body).encode() if isinstance(body, dict) else body
            for name, body in files.items()
        }
        self.sizes[repository] = dict(sizes or {})

    @contextmanager
    def running(self, certificate=None, key=None):
        hub = self

        class Handler(_Handler):
            known = hub

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        host = "localhost" if certificate else "127.0.0.1"
        self.url = f"http{'s' if certificate else ''}://{host}:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    known: RecordedHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        """Quiet."""

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def refuse(self, status, code=None, message=""):
        headers = {"X_Error_Code": code} if code else {}
        self.answer(status, json.dumps({"error": message}).encode(), X_Error_Message=message, **headers)

    def do_GET(self):
        hub, path = self.known, urlsplit(self.path).path
        given = self.headers.get("Authorization")
        hub.requests.append((self.path, given))
        for end, fault in hub.faults.items():
            if path.endswith(end):
                return fault(self)
        if given not in (None, f"Bearer {hub.token}"):
            return self.refuse(401, None, "Invalid credentials in Authorization header")
        if path.startswith("/api/models/"):
            return self.listing(path[len("/api/models/") :])
        repository, found, rest = path[1:].partition("/resolve/")
        if not found:
            return self.refuse(404, "RepoNotFound", "Repository not found")
        revision, _slash, name = rest.partition("/")
        return self.resolve(repository, unquote(revision), name, given)

    def resolve(self, repository, revision, name, given):
        hub = self.known
        if repository not in hub.models:
            # Who isn't logged in isn't told whether it is there.
            return self.refuse(404 if given else 401, "RepoNotFound", "Repository not found")
        if repository in hub.gated and not (given and hub.granted):
            message = f"Access to model {repository} is restricted and you are not in the authorized list."
            return self.refuse(403 if given else 401, "GatedRepo", message)
        if revision not in hub.revisions:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if name not in hub.models[repository]:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        if name in hub.moved:
            return self.answer(
                302,
                Location=f"{hub.elsewhere}/signed/{repository}/{name}?X-Amz-Signature=abc",
                X_Repo_Commit=COMMIT,
            )
        return self.answer(200, hub.models[repository][name], X_Repo_Commit=COMMIT)

    def listing(self, rest):
        hub = self.known
        repository = rest.partition("/revision/")[0]
        if not hub.has_api or repository not in hub.models:
            return self.refuse(404, None, "Not found")
        sizes = {name: len(body) for name, body in hub.models[repository].items()} | hub.sizes[repository]
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        return self.answer(200, json.dumps({"sha": COMMIT, "siblings": siblings}).encode())


def hang(handler):
    """Accepts and says nothing."""
    time.sleep(3)
    handler.close_connection = True


def drip(handler):
    """An answer that goes on and on, byte by byte."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.close_connection = True
    try:
        for _byte in range(60):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        # The reader has had enough.
        return


def cut(handler):
    """Half of an answer."""
    handler.answer(200, b'{"model_type": ', Content_Length="1000")
    handler.connection.shutdown(socket.SHUT_RDWR)


def unused_port():
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
