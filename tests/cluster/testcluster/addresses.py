# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's address and free ports."""

from __future__ import annotations

import random
import socket
import subprocess

from . import Failed

# Below the range from which the kernel gives ports to outgoing connections, so that none of those takes one of
# ours between the look and the bind.
_PORTS = range(20_000, 32_000)


def node_address() -> str:
    """An address of this machine that isn't loopback: kubelet's logs and exec go by it."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    address = next((word for word in said if ":" not in word), None)
    if address is None:
        raise Failed(
            "this machine has no IPv4 address besides loopback; the kubelet needs one (hostname -I)."
        )
    return address


def free_ports(count: int) -> list[int]:
    """``count`` different ports on which nothing listens."""
    found: list[int] = []
    for port in random.sample(_PORTS, 500):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Failed(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}.")
