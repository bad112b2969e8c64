# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container's memory limit and request by the budget's host part: the loader, the runbook's table, a measured peak.

As large as the budget has it; where max_memory, the node, a quota or a limit range allow less, as large as they allow, down to
what the budget has at least. Neither is less than a quarter above the limit at which an attempt was killed: what that used is only
a lower bound of what it needs (the kernel kills at the limit, whatever was still to come), and the loader's files, a worker
process (1 to 3 GiB) and the ends of the runbook's table, a third apart at least, are all larger steps than a few per cent of it.
A nearer limit most often buys the same death. A CHANGE made here also has ``least``: the bytes that would do.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..documents import change
from ..quantities import GIB, quantity_bytes, show_bytes, to_gi
from ..sizing.host import REQUEST_OF_LIMIT, least_beyond_the_table, request_for
from .counterfactual import of_host, of_node
from .obstacles import ceilings
from .steps import Step

LIMIT, REQUEST = "resources.limits.memory", "resources.requests.memory"
SHM = ("volumes.shm", "volumes.shm.sizeLimit")
_BEYOND_A_KILL = 1.25
# The node's memory ran out, not the container's.
_OF_NODE = ("node_oom", "node_pressure")
_RESERVES = "the request reserves it on the node"
_NO_BUDGET = "a size needs a budget, and none was given for this attempt"


class Most(NamedTuple):
    """size: bytes, in whole GiB; by: what allows no more, in words."""

    size: int
    by: str


class Room(NamedTuple):
    """What a container's memory may be at most. limit, request: Most, or None where nothing bounds it; share: how much of its
    limit a request is."""

    limit: Most | None = None
    request: Most | None = None
    share: float = REQUEST_OF_LIMIT


def room(pod, container, max_memory, namespace, node, pods):
    """The Room of a container of the evidence's ``pod``.

    max_memory: a quantity or None; namespace, node: of the evidence, empty where not read; pods: how many run with the template.
    """

    def most(name, bound):
        operation = {"name": name, "before": _quantity(container, bound), "after": None}
        found = [(int(item.most), item.by) for item in ceilings(operation, namespace, node, pods)]
        if max_memory is not None:
            found.append((quantity_bytes(max_memory), f"max_memory of {max_memory}"))
        return min((Most(size // GIB * GIB, by) for size, by in found), default=None)

    # Equal request and limit make a pod Guaranteed, which it must stay.
    share = 1.0 if pod.get("qos") == "Guaranteed" else REQUEST_OF_LIMIT
    return Room(most(LIMIT, "limits"), most(REQUEST, "requests"), share)


def limit(entry, container, finding, room):
    """The Step of limit and request, or the reason (str) why there is none.

    entry: of the budget, or None; container: of the evidence; finding: whose recommendation it is; room: the Room. Neither
    is ever lowered, and a limit that nobody recommends isn't set.
    """
    host = (entry or {}).get("host")
    if not host:
        return _NO_BUDGET
    if host["by"] != "measured" and (entry.get("model") or {}).get("parameters") is None:
        return "how large the model is isn't known, so neither is what it needs"
    now, requested = _of(container, "limits"), _of(container, "requests")
    if not any(item["name"] == LIMIT for item in finding["recommend"]):
        return _request_alone(host, now, requested, room)
    beyond = _beyond_a_kill(finding, now)
    if now is not None and host["limit_bytes"] <= now:
        enough = f"by the budget {show_bytes(host['limit_bytes'])} are enough, and"
        if beyond:
            return f"{enough} it was killed at {show_bytes(now)}: nothing says how much more it needs, or what holds it"
        return f"{enough} the limit is {show_bytes(now)}"
    least = max(_least(entry, now), beyond)
    most = _most_of_limit(room, requested)
    size, bounded = _allowed(max(host["limit_bytes"], beyond), least, most)
    asked = size if room.share == 1.0 else max(request_for(size), requested or 0)
    if room.request and most and size <= most.size:
        asked = min(asked, max(room.request.size, requested or 0))
    if finding["cause"] in _OF_NODE:
        # What isn't reserved is the next to be missing.
        asked = max(asked, host["need_bytes"])
    asked = min(asked, size)
    direction = "set" if now is None else "increase"
    why = host["words"]
    if beyond > host["limit_bytes"]:
        why = f"a quarter more than the {show_bytes(now)} at which it was killed; {why}"
    rows = [_row(LIMIT, direction, size, _words(size, bounded, why), least)]
    if asked != requested:
        rows.append(_row(REQUEST, "set", asked, _RESERVES, None))
    before = {"host_limit": now, "host_need": host["need_bytes"], "host_fits": host["fits"]}
    after = dict(before, host_limit=size, host_fits=True)
    if finding["cause"] in _OF_NODE:
        return Step(tuple(rows), "nothing", of_node(entry, requested, asked), before, after)
    return Step(tuple(rows), "nothing", of_host(entry, size, now, finding["cause"]), before, after)


def _request_alone(host, now, requested, room):
    wanted = min(host["request_bytes"], now or host["request_bytes"])
    if wanted <= (requested or 0):
        return f"by the budget a request of {show_bytes(host['request_bytes'])} is enough"
    least = min(wanted, max(_certain(host), (requested or 0) + 1))
    asked, bounded = _allowed(wanted, least, room.request)
    row = _row(REQUEST, "increase", asked, _words(asked, bounded, _RESERVES), least)
    return Step((row,), "nothing", f"{_RESERVES}: {host['words']}")


def for_shm(item, entry, container, room):
    """The changes that a volume at /dev/shm needs, in a list: what is written there counts against the limit.

    item: the CHANGE of the volume. Empty where the limit holds it beside what the engine needs.
    """
    now, size = _of(container, "limits"), quantity_bytes(item["value"])
    host = (entry or {}).get("host")
    if now is None or size is None or (host and now >= host["need_bytes"] + size):
        return []
    least = min(now + size, max(now + 1, _certain(host) + size)) if host else now + size
    requested = _of(container, "requests")
    wanted, bounded = _allowed(now + size, least, _most_of_limit(room, requested))
    why = _words(wanted, bounded, "what is written to /dev/shm counts against the limit")
    rows = [_row(LIMIT, "increase", wanted, why, least)]
    if room.share == 1.0:
        rows.append(_row(REQUEST, "increase", wanted, "the pod stays Guaranteed", None))
    return rows


def offloaded(entry, moved, room):
    """The changes of limit and request for ``moved`` bytes of weights in host memory; empty without a limit, which is raised
    only where it doesn't hold them."""
    host = (entry or {}).get("host") or {}
    now, requested = host.get("limit"), host.get("request")
    if now is None:
        return []
    why = f"{show_bytes(moved)} of weights move to host memory"
    least = min(now, max(host["limit_bounds"][0], _certain(host))) + moved
    size, rows = now, []
    if least > now:
        size, bounded = _allowed(now + moved, least, _most_of_limit(room, requested))
        rows.append(_row(LIMIT, "increase", size, _words(size, bounded, why), least))
    if requested is not None:
        rows.append(_row(REQUEST, "increase", min(requested + moved, size), why, None))
    return rows


def _of(container, bound):
    return quantity_bytes(_quantity(container, bound))


def _quantity(container, bound):
    return (((container or {}).get("resources") or {}).get(bound) or {}).get("memory")


def _certain(host):
    """Bytes that the engine needs, the error of that against it."""
    return host["need_bytes"] + host["need_error_bytes"]


def _least(entry, now):
    """The least limit that would do: from where on it is no risk, enough for what is needed, and more than there is."""
    host = entry["host"]
    found = [host["limit_bounds"][0], _certain(host), (now or 0) + 1]
    if host["by"] == "mechanism":
        found.append(least_beyond_the_table((entry.get("model") or {}).get("parameters")))
    return min(host["limit_bytes"], max(found))


def _beyond_a_kill(finding, now):
    """Bytes, in whole GiB, of the least limit after an attempt was killed at ``now``; 0 where none was."""
    if now is None or not finding["cause"].startswith("host_oom"):
        return 0
    return -int(-now * _BEYOND_A_KILL // GIB) * GIB


def _most_of_limit(room, requested):
    """The Most of a limit: a request in its proportion must be allowed, too."""
    found = [room.limit] if room.limit else []
    if room.request:
        found.append(
            Most(int(max(room.request.size, requested or 0) / room.share) // GIB * GIB, room.request.by)
        )
    return min(found, default=None)


def _allowed(wanted, least, most):
    """``(bytes, by)``: ``wanted``, or what ``most`` allows, with its words, where that is enough. Where it isn't, ``wanted`` is
    what a sentence refuses."""
    if most is None or wanted <= most.size or most.size < least:
        return wanted, None
    return most.size, most.by


def _words(size, bounded, why):
    return why if bounded is None else f"{to_gi(size)}: {bounded} allows no more; {why}"


def _row(name, direction, size, why, least):
    return dict(change("k8s", name, direction, to_gi(size), why, "arithmetic"), least=least)
