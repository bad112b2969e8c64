# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request to a port of a pod, through the API server's port-forward.

The port-forward carries bytes, so that headers (a key) reach the server as they are and TLS is spoken with the server
itself. It is the websocket form (``v4.channel.k8s.io``) that API servers have had since 1.7 and that 1.34 still passes on
to the kubelet: two channels a port, data and errors, each begun by a frame with the port's number.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
from typing import NamedTuple

from ..evidence.client import ApiError

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CONNECT_S = 10.0
# More than any answer to the smallest request; a server that sends more isn't asked on.
_MOST_BYTES = 4 << 20
_PIECE = 1 << 16


class NotForwarded(ApiError):
    """The port-forward itself was refused or isn't possible: another way must be found. status: the API server's, or None."""


class NoServer(ApiError):
    """The port-forward stands, and nobody listens at the port (yet)."""


class ConnectionLost(ApiError):
    """The server took the connection and ended it without an answer."""


class Answer(NamedTuple):
    """An HTTP answer. body: bytes."""

    status: int
    body: bytes


def request(client, namespace, pod, port, method, path, body=None, headers=(), tls=False, timeout=60.0):
    """The ``Answer`` of a pod's server. Raises NotForwarded, NoServer, ConnectionLost; ApiError when it takes too long.

    headers: ``[(name, value)]``, of which nothing gets into an error; tls: the server speaks https. Its certificate isn't
    checked: it is for the name of a service, often made by the server itself, and the way to it is a tunnel that ends in the
    pod which the API server was asked for.
    """
    deadline = time.monotonic() + timeout
    stream = _Stream(_open(client, namespace, pod, port), deadline)
    try:
        # ``localhost`` is what the port-forward connects to inside the pod.
        lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        sent = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")
        channel = _Tls(stream) if tls else stream
        channel.write(sent)
        return _read_answer(channel, method)
    finally:
        stream.close()


def _open(client, namespace, pod, port):
    """The websocket of a port-forward. Raises NotForwarded, ApiError."""
    if client._impersonation:
        # Its transport would leave those headers out and act as the caller.
        raise NotForwarded(None, "port-forward isn't possible with impersonation")
    try:
        configuration = client._library()
        import websocket
        from kubernetes.stream import ws_client
    except ImportError:
        raise NotForwarded(None, "the Python library kubernetes is missing") from None
    except Exception as error:
        # LibraryMissing and what the kubeconfig's loader says; neither is about the pod.
        raise NotForwarded(None, f"no port-forward ({type(error).__name__})") from error
    headers = {name.lower(): value for name, value in client._headers()}
    headers["sec-websocket-protocol"] = _PROTOCOL
    url = f"{client.host}/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    # The handshake has no limit of its own.
    websocket.setdefaulttimeout(_CONNECT_S)
    try:
        return ws_client.create_websocket(
            configuration, ws_client.get_websocket_url(url, [("ports", str(port))]), headers
        )
    except websocket.WebSocketBadStatusException as error:
        raise NotForwarded(error.status_code, f"port-forward is refused ({error.status_code})") from error
    except (websocket.WebSocketException, OSError) as error:
        raise ApiError(None, f"no port-forward ({type(error).__name__})") from error


class _Stream:
    """The bytes of the one port. Ends (``read`` returns b"") when the other side has closed."""

    def __init__(self, socket, deadline):
        self._socket = socket
        self._deadline = deadline
        self._begun = set()

    def write(self, data):
        import websocket

        try:
            for start in range(0, len(data), _PIECE):
                self._socket.send_binary(bytes((_DATA,)) + data[start : start + _PIECE])
        except (websocket.WebSocketException, OSError) as error:
            raise ConnectionLost(None, "the connection broke off while the request was sent") from error

    def read(self):
        import websocket

        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise ApiError(None, "no answer came in time")
            self._socket.settimeout(left)
            try:
                code, frame = self._socket.recv_data_frame(True)
            except websocket.WebSocketTimeoutException:
                raise ApiError(None, "no answer came in time") from None
            except (websocket.WebSocketConnectionClosedException, OSError):
                return b""
            if code == websocket.ABNF.OPCODE_CLOSE:
                return b""
            if code != websocket.ABNF.OPCODE_BINARY or not frame.data:
                continue
            channel, data = frame.data[0], frame.data[1:]
            if channel not in self._begun:
                self._begun.add(channel)
            elif channel == _ERROR and data:
                raise _refused_inside(data.decode("utf-8", "replace"))
            elif channel == _DATA and data:
                return data

    def close(self):
        # Not close(): it waits for the other side.
        self._socket.shutdown()


def _refused_inside(text):
    """What the kubelet says of a port: most often that nothing listens there."""
    if "connection refused" in text:
        return NoServer(None, "nothing listens at the port")
    if "reset by peer" in text or "broken pipe" in text:
        return ConnectionLost(None, "the server reset the connection")
    return NoServer(None, "the kubelet can't connect to the port")


class _Tls:
    """TLS over a stream, without a socket."""

    def __init__(self, stream):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._do(self._tls.do_handshake)

    def write(self, data):
        self._do(self._tls.write, data)

    def read(self):
        try:
            return self._do(self._tls.read, _PIECE)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def _do(self, action, *arguments):
        while True:
            try:
                done = action(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._stream.read()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError as error:
                if isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError)):
                    if action == self._tls.read:
                        raise
                    raise ConnectionLost(None, "the server ended the TLS handshake") from error
                raise ConnectionLost(None, f"TLS fails ({error.reason or type(error).__name__})") from error
            else:
                self._flush()
                return done

    def _flush(self):
        data = self._outgoing.read()
        if data:
            self._stream.write(data)


class _Received:
    """What http.client takes for a socket."""

    def __init__(self, data):
        self._data = data

    def makefile(self, *_arguments, **_options):
        return io.BytesIO(self._data)


def _read_answer(channel, method):
    received = b""
    while len(received) <= _MOST_BYTES and not _is_whole(received):
        data = channel.read()
        if not data:
            break
        received += data
    if not received:
        raise ConnectionLost(None, "the server ended the connection without an answer")
    answer = http.client.HTTPResponse(_Received(received), method=method)  # type: ignore[arg-type]
    try:
        answer.begin()
        return Answer(answer.status, answer.read())
    except (http.client.HTTPException, ValueError) as error:
        raise ConnectionLost(None, f"the answer is no whole HTTP answer ({type(error).__name__})") from error


def _is_whole(received):
    """Whether the length that the answer names is there; without one the server's end of the connection counts."""
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _colon, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False
