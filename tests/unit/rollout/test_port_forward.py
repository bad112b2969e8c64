# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bytes of a port-forward: frames of the websocket in, an HTTP answer out."""

from __future__ import annotations

import pytest
import websocket

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.client import ApiError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import port_forward

BINARY, CLOSE, PING = websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_CLOSE, websocket.ABNF.OPCODE_PING
# Each channel begins with the port's number, 8000, little end first.
BEGUN = [(BINARY, b"\x00\x40\x1f"), (BINARY, b"\x01\x40\x1f")]


class Frame:
    def __init__(self, data):
        self.data = data


class Socket:
    """A websocket that has these frames for the client, and keeps what it sends."""

    def __init__(self, *frames):
        self.frames = list(frames)
        self.sent = b""
        self.is_shut = False

    def settimeout(self, seconds):
        assert seconds > 0

    def send_binary(self, data):
        assert data[:1] == b"\x00"
        self.sent += data[1:]

    def recv_data_frame(self, _control):
        if not self.frames:
            raise websocket.WebSocketTimeoutException("timed out")
        code, data = self.frames.pop(0)
        return code, Frame(data)

    def shutdown(self):
        self.is_shut = True


@pytest.fixture
def answered(monkeypatch):
    """``answered(*frames)`` makes a request over a port-forward with these frames: ``(result, socket)``."""

    def make(*frames, **options):
        socket = Socket(*BEGUN, *frames)
        monkeypatch.setattr(port_forward, "_open", lambda *_arguments: socket)
        try:
            return port_forward.request(None, "ns", "p", 8000, "GET", "/health", **options), socket
        finally:
            assert socket.is_shut

    return make


def data(text):
    return BINARY, b"\x00" + text


def test_an_answer_in_pieces(answered):
    answer, socket = answered(
        data(b"HTTP/1.1 200 OK\r\nContent-Le"), (PING, b""), data(b"ngth: 4\r\n\r\nab"), data(b"cd"),
        headers=[("Authorization", "Bearer k")], body=b"xy",
    )  # fmt: skip
    assert (answer.status, answer.body) == (200, b"abcd")
    head, body = socket.sent.split(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"GET /health HTTP/1.1"
    assert b"Authorization: Bearer k" in head
    assert b"Content-Length: 2" in head
    assert body == b"xy"


def test_an_answer_that_ends_with_the_connection(answered):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert answered(data(chunked), (CLOSE, b""))[0].body == b"abc"
    assert answered(data(b"HTTP/1.1 200 OK\r\n\r\nabc"), (CLOSE, b""))[0].body == b"abc"


def test_nobody_listens(answered):
    said = b"\x01error forwarding port 8000: dial tcp4 127.0.0.1:8000: connect: connection refused"
    with pytest.raises(port_forward.NoServer, match="nothing listens"):
        answered((BINARY, said))


@pytest.mark.parametrize(
    "frames", [[(CLOSE, b"")], [data(b"no HTTP at all\r\n\r\n"), (CLOSE, b"")], [(BINARY, b"\x01read: connection reset by peer")]]
)  # fmt: skip
def test_the_server_ends_the_connection(answered, frames):
    with pytest.raises(port_forward.ConnectionLost):
        answered(*frames)


def test_no_answer_in_time(answered):
    with pytest.raises(ApiError, match="in time") as raised:
        answered(data(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"))
    assert not isinstance(raised.value, (port_forward.NotForwarded, port_forward.ConnectionLost))


def test_a_server_that_speaks_no_tls(answered):
    with pytest.raises(port_forward.ConnectionLost, match="TLS"):
        answered(data(b"HTTP/1.1 400 Bad Request\r\n\r\n"), tls=True)


def test_impersonation_is_no_way_through():
    class Impersonating:
        _impersonation = (("Impersonate-User", "somebody"),)

    with pytest.raises(port_forward.NotForwarded, match="impersonation"):
        port_forward.request(Impersonating(), "ns", "p", 8000, "GET", "/health")
