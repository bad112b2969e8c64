# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines that travelled through another tool: stern, kubectl --prefix, Loki, Elasticsearch, Docker, the journal.

Each format is turned into RECORDs ``{message, time, pod, namespace, container, node, attempt}`` (all but ``message``
may be None; ``time`` RFC 3339; ``attempt`` the kubelet's restart number where a file name shows it).

Sources of the formats: stern ``cmd/cmd.go`` (default templates, ``-o json``, 1.2x to 1.33); Loki HTTP API
``query_range`` and ``logcli -o jsonl|default``; Grafana's log download; Elasticsearch ``_search`` and elasticdump
with Filebeat/ECS, Fluent Bit/Fluentd/OpenShift (ViaQ), Vector and OpenTelemetry field names; Cloud Logging
``gcloud logging read --format json``; Docker's json-file driver; ``docker compose logs``; ``journalctl -o json``
(systemd.journal-fields(7), Docker's and Podman's journald drivers).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

from ..times import read_stamp

_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Field of a RECORD -> where the tools write it; the first one that is there counts. A dot goes one level down, or
# stands in a flattened name ("kubernetes.pod.name" as one key).
FIELDS = {
    "message": (
        "message",
        "log",
        "line",
        "textPayload",
        "jsonPayload.message",
        "body.text",
        "body.string",
        "body",
        "Body",
        "msg",
    ),
    "time": ("@timestamp", "timestamp", "time", "ts", "date", "tsNs", "observedTimestamp"),
    "pod": (
        "kubernetes.pod.name",
        "kubernetes.pod_name",
        "podName",
        "pod",
        "pod_name",
        "k8s.pod.name",
        "k8s_pod_name",
        "resource.labels.pod_name",
        "resource.attributes.k8s.pod.name",
        "resource.k8s.pod.name",
        "Resource.k8s.pod.name",
        "kubernetes_pod_name",
    ),
    "namespace": (
        "kubernetes.namespace",
        "kubernetes.namespace_name",
        "kubernetes.pod_namespace",
        "namespace",
        "namespace_name",
        "k8s.namespace.name",
        "k8s_namespace_name",
        "resource.labels.namespace_name",
        "resource.attributes.k8s.namespace.name",
        "resource.k8s.namespace.name",
        "Resource.k8s.namespace.name",
        "kubernetes_namespace_name",
    ),
    "container": (
        "kubernetes.container.name",
        "kubernetes.container_name",
        "containerName",
        "container",
        "container_name",
        "k8s.container.name",
        "k8s_container_name",
        "resource.labels.container_name",
        "resource.attributes.k8s.container.name",
        "resource.k8s.container.name",
        "Resource.k8s.container.name",
        "kubernetes_container_name",
    ),
    "node": (
        "kubernetes.node.name",
        "kubernetes.host",
        "kubernetes.pod_node_name",
        "nodeName",
        "node_name",
        "k8s.node.name",
        "k8s_node_name",
        "resource.attributes.k8s.node.name",
    ),
    "file": ("log.file.path", "filename", "file", "kubernetes.filename"),
}
# /var/log/pods/NAMESPACE_POD_UID/CONTAINER/RESTART.log (kubelet) and /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log
POD_LOG_FILE = re.compile(
    r"(?:^|/)(?P<namespace>[a-z0-9-]+)_(?P<pod>[a-z0-9.-]+)_(?P<uid>[0-9a-f-]{32,36})/"
    r"(?P<container>[a-z0-9-]+)/(?P<attempt>\d+)\.log(?:\.[\d-]+)?(?:\.gz)?$"
)
CONTAINER_LOG_FILE = re.compile(
    r"(?:^|/)(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log$"
)


def record(message, time=None, pod=None, namespace=None, container=None, node=None, attempt=None):
    return {
        "message": message,
        "time": time,
        "pod": pod,
        "namespace": namespace,
        "container": container,
        "node": node,
        "attempt": attempt,
    }


def _lookup(document, path):
    """The value at dotted ``path`` of nested or flattened ``document``; None when it is not there."""
    if not isinstance(document, dict):
        return None
    if path in document:
        return document[path]
    head, dot, rest = path.partition(".")
    while dot:
        if isinstance(document.get(head), dict):
            found = _lookup(document[head], rest)
            if found is not None:
                return found
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"
    return None


def _field(documents, field, kind=str):
    for path in FIELDS[field]:
        for document in documents:
            value = _lookup(document, path)
            # Some shippers index every field as a list of one.
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, kind) and not isinstance(value, bool) and value != "":
                return value
    return None


# Digits of a count since 1970 -> its unit's fraction of a second: seconds, milli-, micro- and nanoseconds.
_UNITS = ((11, 1), (14, 10**3), (17, 10**6), (20, 10**9))


def time_of(value):
    """Any of the tools' times (RFC 3339, or seconds to nanoseconds since 1970) as RFC 3339; None otherwise.

    UTC, always nine digits of fraction, so that times sort as text. A time without a zone is taken as UTC.
    """
    text = str(value).strip()
    number = re.fullmatch(r"(\d{9,19})(?:\.(\d{1,9})\d*)?", text)
    if number:
        return _since_1970(int(number.group(1)), number.group(2) or "")
    stamp = read_stamp(text)
    return _shown(stamp.moment, stamp.fraction) if stamp else None


def _since_1970(count, fraction):
    scale = next(scale for digits, scale in _UNITS if len(str(count)) <= digits)
    seconds, rest = divmod(count, scale)
    digits = str(rest).zfill(len(str(scale)) - 1) if scale > 1 else fraction
    return _shown(datetime.fromtimestamp(seconds, timezone.utc), digits.ljust(9, "0"))


def _shown(moment, fraction):
    return f"{moment.strftime('%Y-%m-%dT%H:%M:%S')}.{fraction}Z"


def of_object(document):
    """The RECORD that one exported JSON object holds, or None when it is none (an object of vLLM's own JSON log).

    It is one when it names a pod (or a container's log file) beside its message, or is Docker's json-file form.
    """
    if not isinstance(document, dict):
        return None
    if "MESSAGE" in document:
        return _of_journal(document)
    hit = next((document[key] for key in ("_source", "fields") if isinstance(document.get(key), dict)), None)
    labels = next(
        (document[key] for key in ("labels", "stream") if isinstance(document.get(key), dict)), None
    )
    places = [place for place in (hit, labels, document) if place]
    message = _field(places, "message")
    if message is None:
        return None
    found = {name: _field(places, name) for name in ("pod", "namespace", "container", "node")}
    found.update(of_file_name(_field(places, "file") or "", found))
    if not found["pod"] and not _is_docker(document) and hit is None and labels is None:
        return None
    time = _field(places, "time", (str, int, float))
    return record(message.rstrip("\r\n"), time_of(time) if time is not None else None, **found)


# The container of the kernel's records, which belong to no pod.
KERNEL = "kernel"
# Who wrote a record of the journal: the container that a runtime names, the unit that systemd speaks of, the
# writer's own unit, or its name.
_JOURNAL_SOURCES = ("CONTAINER_NAME", "UNIT", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER")


def _of_journal(document):
    """The RECORD of one object of ``journalctl -o json``, or None where it has no text."""
    message = document["MESSAGE"]
    if isinstance(message, list) and all(isinstance(item, int) and 0 <= item < 256 for item in message):
        # Text with control characters (colours) comes as a list of bytes.
        message = bytes(message).decode("utf-8", "replace")
    if not isinstance(message, str):
        return None
    time = time_of(document.get("_SOURCE_REALTIME_TIMESTAMP") or document.get("__REALTIME_TIMESTAMP"))
    host = document.get("_HOSTNAME")
    node = host if isinstance(host, str) else None
    if document.get("_TRANSPORT") == "kernel":
        return record(f"{KERNEL}: {message}", time, container=KERNEL, node=node)
    names = (document.get(field) for field in _JOURNAL_SOURCES)
    name = next((name for name in names if name and isinstance(name, str)), None)
    name = re.sub(r"\.service$", "", name) if name else None
    return record(message, time, pod=name, container=name, node=node)


def _is_docker(document):
    return set(document) <= {"log", "stream", "time", "attrs"} and "log" in document and "time" in document


def of_file_name(name, known=None):
    """Pod, namespace, container and attempt from the name of a kubelet's log file; ``known`` values win."""
    known = known or {}
    match = POD_LOG_FILE.search(name) or CONTAINER_LOG_FILE.search(name)
    found = match.groupdict() if match else {}
    attempt = found.get("attempt")
    result = {field: known.get(field) or found.get(field) for field in ("pod", "namespace", "container")}
    return dict(result, attempt=int(attempt) if attempt else None)


def of_document(document):
    """Every RECORD of one whole JSON document in the order of time, or None when it is no log export."""
    found = None
    if isinstance(document, dict):
        found = _loki(document)
        if found is None:
            found = _hits(document)
    elif isinstance(document, list):
        found = [of_object(item) for item in document]
        if not found or None in found:
            return None
    return None if found is None else in_order(found)


def _loki(document):
    """``query_range``: ``{data: {resultType: streams, result: [{stream: {LABEL: …}, values: [[NANOSECONDS, LINE]]}]}}``."""
    data = document.get("data") if isinstance(document.get("data"), dict) else document
    result = data.get("result", data.get("streams"))
    if not isinstance(result, list) or not all(
        isinstance(item, dict) and isinstance(item.get("values"), list) for item in result
    ):
        return None
    if result and not any(isinstance(item.get("stream"), dict) for item in result):
        return None
    found = []
    for item in result:
        for value in item["values"]:
            if not (isinstance(value, list) and len(value) > 1):
                continue
            # A third element holds structured metadata, which may name the pod.
            more = value[2] if len(value) > 2 and isinstance(value[2], dict) else {}
            wrapped = {
                "labels": dict(item.get("stream") or {}, **more),
                "line": value[1],
                "timestamp": value[0],
            }
            entry = of_object(wrapped)
            if entry:
                found.append(entry)
    return found


def _hits(document):
    """``_search``: ``{hits: {hits: [{_source: {…}}]}}``, also inside Kibana's ``rawResponse``."""
    for path in ("hits.hits", "rawResponse.hits.hits", "response.hits.hits"):
        hits = _lookup(document, path)
        if isinstance(hits, list):
            return [entry for entry in map(of_object, hits) if entry]
    return None


def newest_first(records):
    """Whether the times of ``records`` mostly fall: Loki and Elasticsearch give the newest first."""
    times = [entry["time"] for entry in records if entry["time"]]
    steps = list(zip(times, times[1:]))
    return sum(1 for one, two in steps if one > two) > sum(1 for one, two in steps if one < two)


def in_order(records):
    """``records`` in the order of time; one without a time keeps its place after the last that has one.

    Records of one and the same time that come from a newest-first export are turned around too, so that the frames
    of a traceback stay in order.
    """
    ordered = list(reversed(records)) if newest_first(records) else records
    keyed = []
    last = ""
    for position, entry in enumerate(ordered):
        last = entry["time"] or last
        keyed.append((last, position, entry))
    keyed.sort(key=lambda item: item[:2])
    return [entry for _time, _position, entry in keyed]


def of_json_line(line):
    """The RECORD of one line of NDJSON (stern ``-o json``, logcli ``-o jsonl``, elasticdump, Docker), or None."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return of_object(json.loads(line))
    except (ValueError, RecursionError):
        return None


# Text formats: each line carries where it comes from. Names are DNS labels as Kubernetes makes them.
_POD = r"(?P<pod>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"
_CONTAINER = r"(?P<container>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)"
_SPACE = r"(?P<namespace>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)"
_KUBECTL_PREFIX = re.compile(rf"^\[pod/{_POD}/{_CONTAINER}\] (?P<message>.*)$")
_LOGCLI = re.compile(r"^(?P<time>\d{4}-\d\d-\d\dT\S+) \{(?P<labels>[^}]*)\} (?P<message>.*)$")
_STERN = re.compile(rf"^{_POD} {_CONTAINER}(?: (?P<message>.*))?$")
_STERN_SPACED = re.compile(rf"^{_SPACE} {_POD} {_CONTAINER}(?: (?P<message>.*))?$")
_STERN_NOTE = re.compile(r"^[+-] (?:\S+ )?\S+ › \S+$")
# How controllers end a pod's name: Deployment (hash and suffix), StatefulSet and LeaderWorkerSet (ordinals),
# DaemonSet, Job and bare ReplicaSet (suffix).
_MADE_POD = re.compile(
    r"-(?:[a-z0-9]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}|\d+(?:-\d+)*|[bcdfghjklmnpqrstvwxz2456789]{5})$"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _from_match(match):
    found = match.groupdict()
    return record(
        found.get("message") or "",
        pod=found["pod"],
        namespace=found.get("namespace"),
        container=found["container"],
    )


def _kubectl(line):
    match = _KUBECTL_PREFIX.match(line)
    return _from_match(match) if match else None


def _logcli(line):
    match = _LOGCLI.match(line)
    if not match:
        return None
    labels = dict(_LABEL.findall(match.group("labels")))
    return of_object(
        {"labels": labels, "line": match.group("message") or " ", "timestamp": match.group("time")}
    )


def _stern(line):
    match = _STERN.match(_ANSI.sub("", line, count=4))
    return _from_match(match) if match and _MADE_POD.search(match.group("pod")) else None


def _stern_spaced(line):
    match = _STERN_SPACED.match(_ANSI.sub("", line, count=6))
    return _from_match(match) if match and _MADE_POD.search(match.group("pod")) else None


# docker compose pads names to the longest one's width. A container is called SERVICE-NUMBER (version 1: SERVICE_NUMBER),
# or what the service's container_name says.
_COMPOSE = re.compile(
    r"^(?P<pod>(?P<container>[a-zA-Z0-9][\w.-]{0,127}?)(?:[-_]\d{1,4})?) +\|(?: (?P<message>.*))?$"
)
_COMPOSE_END = re.compile(
    r"^(?P<pod>(?P<container>[a-zA-Z0-9][\w.-]{0,127}?)(?:[-_]\d{1,4})?) exited with code \d+$"
)


def _compose(line):
    text = _ANSI.sub("", line, count=2)
    match = _COMPOSE.match(text)
    if match:
        return record(
            match.group("message") or "", pod=match.group("pod"), container=match.group("container")
        )
    match = _COMPOSE_END.match(text)
    return record(text, pod=match.group("pod"), container=match.group("container")) if match else None


# Text format -> (reader of one line, how many of a hundred lines must have the form). Of the forms that fit, the
# first counts: "namespace pod container" also looks like "pod container" when the namespace is named like a pod.
TEXT_FORMATS = (
    ("kubectl --prefix", _kubectl, 90),
    ("logcli", _logcli, 90),
    ("stern", _stern_spaced, 95),
    ("stern", _stern, 95),
    ("docker compose", _compose, 90),
)


def is_note(line):
    """Whether ``line`` is stern's own (``+ pod › container``)."""
    return bool(_STERN_NOTE.match(_ANSI.sub("", line).strip()))


def text_format(lines):
    """``(name, reader)`` of the text format that ``lines`` (the head of a file, whole lines) have, or None."""
    notes = any(is_note(line) for line in lines)
    lines = [line for line in lines if line.strip() and not is_note(line)]
    if not lines:
        return None
    for name, reader, share in TEXT_FORMATS:
        fitting = sum(1 for line in lines if reader(line))
        # stern's start notes are proof enough for the odd line that another tool put between.
        needed = share - 25 if notes and name == "stern" else share
        if fitting and fitting * 100 >= needed * len(lines):
            return name, reader
    return None
