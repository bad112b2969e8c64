# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved logs and the pod they belong to: which run of which container a log shows.

``kubectl logs`` gives the running container, or, while it waits to be restarted, the last one that ended; then
``--previous`` gives the very same (kubelet ``validateContainerLogStatus``).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from ..documents import attempt, engine, log_lines
from ..times import parse_time
from .log_scan import completeness
from .log_streams import joined

# How far apart the clock of a log's first line and of its container's start may be.
_NEAR = timedelta(seconds=120)


class Log(NamedTuple):
    """The runs that one saved log holds. place: ``{namespace, pod, container, mark, attempt}`` (see trees)."""

    place: dict[str, Any]
    excerpts: list[dict[str, Any]]
    name: str


def shows_vllm(excerpt):
    """Whether a log excerpt shows an engine: its arguments, its start-up, its numbers, or its name."""
    if excerpt["arguments"] or excerpt["markers"] or excerpt["numbers"]:
        return True
    texts = [line["text"] for line in log_lines(excerpt)]
    texts += [frame["file"] or "" for line in excerpt["errors"] for frame in line.get("frames") or []]
    return any("vllm" in text.lower() for text in texts)


def raw_pod(namespace, name, logs, pieces=()):
    """A raw Pod for logs without one. pieces: nameless pods of describe text; the last counts."""
    names = sorted({log.place["container"] for log in logs if log.place["container"]}) or ["vllm"]
    specs = [{"name": container} for container in names]
    statuses: list[dict[str, Any]] = []
    if pieces:
        spec, status = pieces[-1]["spec"]["containers"][0], pieces[-1]["status"]["containerStatuses"][0]
        first = spec["name"] or names[0]
        specs = [dict(spec, name=first), *specs[1:]]
        statuses = [dict(status, name=first)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"containers": specs},
        "status": {"containerStatuses": statuses},
    }


def mark_engine(pod, logs):
    """Call one container the engine where the pod alone doesn't show which: that whose log does, or the only one."""
    mains = [container for container in pod["containers"] if container["role"] == "main"]
    showing = {log.place["container"] for log in logs if any(shows_vllm(excerpt) for excerpt in log.excerpts)}
    chosen = next((container for container in mains if container["name"] in showing), None)
    if chosen is None and len(mains) == 1:
        chosen = mains[0]
    if chosen is not None:
        chosen["engine"] = dict(engine(), recognised_by="log" if showing else "given")


def join(pod, logs):
    """Put every log where it belongs; returns ``[(object, reason)]`` of logs that found no place."""
    notes = []
    by_container: list[list[Log]] = [[] for _container in pod["containers"]]
    for log in logs:
        index = _container_of(pod, log)
        if index is None:
            notes.append((log.name, f"the pod {pod['name']} has no container {log.place['container']!r}"))
        else:
            by_container[index].append(log)
    for container, own in zip(pod["containers"], by_container):
        for log in sorted(own, key=_order):
            notes.extend(_join(container["attempts"], log))
        if len(container["attempts"]) > 1:
            # What stands for a missing status is no run beside those that the logs show.
            container["attempts"] = [item for item in container["attempts"] if not _is_placeholder(item)]
        for item in container["attempts"]:
            if item["log"]["reason"] == "not read":
                item["log"]["reason"] = "not in the bundle"
    return notes


def _container_of(pod, log):
    """Index of the container whose log it is; the engine's when the log doesn't say. None when there is no such one."""
    name = log.place["container"]
    engines = [index for index, container in enumerate(pod["containers"]) if container["engine"]]
    named = [
        index
        for index, container in enumerate(pod["containers"])
        if name is None or container["name"] == name
    ]
    found = engines or named if name is None else named
    return found[0] if found else None


def _order(log):
    """Previous runs first; the parts of one rotated log (``0.log.20260101-…``) before its newest (``0.log``)."""
    base = log.name.rsplit("/", 1)[-1]
    return (log.place["mark"] != "previous", log.place["attempt"] or 0, base.endswith(".log"), log.name)


def _join(attempts, log):
    """Put one log into ``attempts``; returns the notes of what was left aside."""
    target = _target(attempts, log)
    last = attempts[target]
    excerpt = log.excerpts[-1]
    notes = []
    if last["log"]["readable"]:
        if log.place["attempt"] is not None:
            _set(last, joined(last["log"], excerpt))
            return []
        # The same run saved twice, as ``kubectl logs`` with and without --previous does while a container waits.
        if min(last["log"]["lines"], excerpt["lines"]):
            notes = [(log.name, "shows a run of which there is a log already; the longer one was kept")]
        if last["log"]["lines"] >= excerpt["lines"]:
            return notes
    _set(last, excerpt)
    # What the log holds of earlier runs goes to the attempts before, as far as they have no log of their own.
    for earlier in reversed(log.excerpts[:-1]):
        target -= 1
        if target < 0 or attempts[target]["log"]["readable"]:
            target += 1
            attempts.insert(target, attempt(max(0, attempts[target]["index"] - 1), "terminated"))
        _set(attempts[target], earlier)
    if len({item["index"] for item in attempts}) < len(attempts):
        for index, item in enumerate(attempts):
            item["index"] = index
    return notes


def _set(item, excerpt):
    item["log"] = excerpt
    excerpt["complete"] = completeness(excerpt, item["started_at"])


def _target(attempts, log):
    """Index of the attempt that a log shows; it is made where the pod's status knows none that fits."""
    number, mark = log.place["attempt"], log.place["mark"]
    runs = [index for index, item in enumerate(attempts) if item["state"] != "waiting"]
    waiting = bool(attempts) and attempts[-1]["state"] == "waiting"
    if number is not None:
        return _numbered(attempts, number)
    if not runs:
        return _first_run(attempts)
    if mark == "previous" and not waiting:
        if len(runs) > 1:
            return runs[-2]
        attempts.insert(runs[-1], attempt(max(0, attempts[runs[-1]]["index"] - 1), "terminated"))
        return runs[-1]
    if mark is None and len(runs) > 1:
        timely = [index for index in runs if _started_with(attempts[index], log.excerpts[-1])]
        if timely:
            return timely[0]
        # A log that ends in an error is that of the run that died, not of the one that runs.
        if attempts[runs[-1]]["state"] == "running" and log.excerpts[-1]["errors"]:
            return runs[-2]
    newest = attempts[runs[-1]]
    if newest["log"]["readable"] and newest["started_at"] is None and newest["exit_code"] is None:
        # That run is known from its log alone; this is another one.
        attempts.insert(runs[-1] + 1, attempt(newest["index"] + 1, "terminated"))
        return runs[-1] + 1
    return runs[-1]


def _numbered(attempts, number):
    for index, item in enumerate(attempts):
        if item["index"] == number and item["state"] != "waiting":
            return index
    position = sum(1 for item in attempts if item["index"] < number)
    # The kubelet's number of a waiting run is that of the run before, whose log is the newest there is.
    attempts.insert(position, attempt(number, "terminated"))
    return position


def _is_placeholder(item):
    return item["state"] == "waiting" and item["reason"] is None and not item["log"]["readable"]


def _first_run(attempts):
    """The place for a log of a container of which no run is known."""
    if attempts and _is_placeholder(attempts[-1]):
        # There is no status at all; the log shows that it ran.
        attempts[-1]["state"] = "terminated"
        return len(attempts) - 1
    attempts.insert(max(0, len(attempts) - 1), attempt(0, "terminated"))
    return max(0, len(attempts) - 2)


def _started_with(item, excerpt):
    """Whether a log's first line is from about when an attempt started (vLLM's own stamps have no year, and UTC)."""
    started = parse_time(item["started_at"])
    text = excerpt.get("first_time") or ""
    if started is None or not text:
        return False
    first = parse_time(text) or parse_time(f"{started.year}-{text.strip()}")
    return first is not None and abs(first - started) <= _NEAR
