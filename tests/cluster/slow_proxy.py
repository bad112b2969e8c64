# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A way to the API server that is as bad as told. It passes bytes on, so TLS stays between client and server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_CHUNK = 4096


@dataclass
class Proxy:
    """How the way is; may be changed while it is used.

    delay: seconds before each answer. bytes_per_second: no answer comes faster. cut_after: answers longer than that
    many bytes break off there, the next ``cuts`` times. closed: whoever comes is sent away, as by a load balancer
    without a server behind it. answered: how many answers have begun.
    """

    upstream: tuple[str, int]
    delay: float = 0
    bytes_per_second: float = 0
    cut_after: int = 0
    cuts: int = 0
    closed: bool = False
    answered: int = 0
    url: str = ""
    _connections: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close_all(self) -> None:
        """Break every connection off and let nobody in until ``closed`` is False again."""
        self.closed = True
        with self._lock:
            for connection in self._connections:
                _break(connection)
            self._connections.clear()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            if self.closed:
                raise ConnectionError
            server = socket.create_connection(self.upstream)
        except OSError:
            client.close()
            return
        with self._lock:
            self._connections += [client, server]
        asked = threading.Event()
        threading.Thread(target=self._pass_questions, args=(client, server, asked), daemon=True).start()
        self._pass_answers(client, server, asked)

    @staticmethod
    def _pass_questions(client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK):
                asked.set()
                server.sendall(data)
        _break(server)

    def _pass_answers(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        length = 0
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK):
                if asked.is_set():
                    asked.clear()
                    length = 0
                    self.answered += 1
                    time.sleep(self.delay)
                length += len(data)
                if self.bytes_per_second:
                    time.sleep(len(data) / self.bytes_per_second)
                if self._cut(length):
                    break
                client.sendall(data)
        _break(client)
        _break(server)

    def _cut(self, length: int) -> bool:
        with self._lock:
            if not self.cuts or length <= self.cut_after:
                return False
            self.cuts -= 1
            return True


def _break(connection: socket.socket) -> None:
    """Close it so that the other side gets a reset."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def proxy_to(server: str, **manner) -> Iterator[Proxy]:
    """A proxy in front of ``server`` (an https address); ``manner`` are the fields of Proxy."""
    parts = urlsplit(server)
    listener = socket.create_server(("127.0.0.1", 0))
    made = Proxy((parts.hostname, parts.port), **manner)
    made.url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    threading.Thread(target=made._serve, args=(listener,), daemon=True).start()
    try:
        yield made
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        made.close_all()
