# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container's memory limit and request by the budget's host part: the loader, the runbook's table, a measured peak.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change
from ..quantities import quantity_bytes, show_bytes, to_gi
from .counterfactual import of_host, of_node
from .steps import Step

LIMIT, REQUEST = "resources.limits.memory", "resources.requests.memory"
SHM = ("volumes.shm", "volumes.shm.sizeLimit")
# The node's memory ran out, not the container's.
_OF_NODE = ("node_oom", "node_pressure")
_RESERVES = "the request reserves it on the node"
_NO_BUDGET = "a size needs a budget, and none was given for this attempt"


def limit(entry, pod, container, finding):
    """The Step of limit and request, or the reason (str) why there is none.

    entry: of the budget, or None; pod, container: of the evidence; finding: whose recommendation it is. Neither is
    ever lowered, and a limit that nobody recommends isn't set.
    """
    host = (entry or {}).get("host")
    if not host:
        return _NO_BUDGET
    if host["by"] != "measured" and (entry.get("model") or {}).get("parameters") is None:
        return "how large the model is isn't known, so neither is what it needs"
    now, requested = _of(container, "limits"), _of(container, "requests")
    if not any(item["name"] == LIMIT for item in finding["recommend"]):
        asked = min(host["request_bytes"], now or host["request_bytes"])
        if asked <= (requested or 0):
            return f"by the budget a request of {show_bytes(host['request_bytes'])} is enough"
        row = change("k8s", REQUEST, "increase", to_gi(asked), _RESERVES, "arithmetic")
        return Step((row,), "nothing", f"{_RESERVES}: {host['words']}")
    if now is not None and host["limit_bytes"] <= now:
        return (
            f"by the budget {show_bytes(host['limit_bytes'])} are enough, and the limit is {show_bytes(now)}"
        )
    size = max(host["limit_bytes"], now or 0)
    # Equal request and limit make a pod Guaranteed, which it must stay.
    asked = size if pod.get("qos") == "Guaranteed" else max(host["request_bytes"], requested or 0)
    if finding["cause"] in _OF_NODE:
        # What isn't reserved is the next to be missing.
        asked = max(asked, host["need_bytes"])
    rows = []
    if size != now:
        direction = "set" if now is None else "increase"
        rows.append(change("k8s", LIMIT, direction, to_gi(size), host["words"], "arithmetic"))
    if asked != requested:
        rows.append(change("k8s", REQUEST, "set", to_gi(min(asked, size)), _RESERVES, "arithmetic"))
    if not rows:
        return "limit and request are as the budget has them"
    before = {"host_limit": now, "host_need": host["need_bytes"], "host_fits": host["fits"]}
    after = dict(before, host_limit=size, host_fits=True)
    if finding["cause"] in _OF_NODE:
        return Step(tuple(rows), "nothing", of_node(entry, requested, min(asked, size)), before, after)
    return Step(tuple(rows), "nothing", of_host(entry, size, now, finding["cause"]), before, after)


def for_shm(item, entry, container):
    """The change of the limit that a volume at /dev/shm needs, in a list: what is written there counts against it.

    item: the CHANGE of the volume. Empty where the limit holds it beside what the engine needs.
    """
    now, size = _of(container, "limits"), quantity_bytes(item["value"])
    host = (entry or {}).get("host")
    if now is None or size is None or (host and now >= host["need_bytes"] + size):
        return []
    why = "what is written to /dev/shm counts against the limit"
    return [change("k8s", LIMIT, "increase", to_gi(now + size), why, "arithmetic")]


def offloaded(entry, moved):
    """The changes of limit and request for ``moved`` bytes of weights in host memory; empty without a limit."""
    host = (entry or {}).get("host") or {}
    why = f"{show_bytes(moved)} of weights move to host memory"
    return [
        change("k8s", name, "increase", to_gi(host[part] + moved), why, "arithmetic")
        for name, part in ((LIMIT, "limit"), (REQUEST, "request"))
        if host.get("limit") is not None and host.get(part) is not None
    ]


def _of(container, bound):
    return quantity_bytes((((container or {}).get("resources") or {}).get(bound) or {}).get("memory"))
