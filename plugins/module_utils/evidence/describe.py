# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``kubectl describe pod`` text, whole or in pieces, as the JSON that the API server would have given.

The text's form: kubernetes/kubernetes ``staging/src/k8s.io/kubectl/pkg/describe/describe.go`` (1.2x to 1.34).
It holds no absolute times of events, no probe grace periods and no ``uid``: those stay unknown.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timezone
from typing import Any

# A line of describe text: indentation, key, value. Values stand after a colon and blanks, or the key ends the line.
_KEY = re.compile(r"^(?P<indent>\s*)(?P<key>[A-Za-z][\w ./\-]*?):(?:\s+(?P<value>\S(?:.*\S)?))?\s*$")
_NAME = re.compile(r"^Name:\s+\S")
_NAMESPACE = re.compile(r"^Namespace:\s+\S")
# Where a pasted piece of describe text starts: a container's state, or its reason right before its exit code.
_PIECE = re.compile(r"^\s*(?:State|Last State):\s+(?:Waiting|Running|Terminated)\s*(?:[,;/].*)?$")
_REASON = re.compile(r"^\s*Reason:\s+\w+\s*(?:[,;/].*)?$")
_EXIT_CODE = re.compile(r"(?:^|[,;/])\s*Exit Code:\s+\d+")
# A piece that was pasted into one line.
_SEPARATOR = re.compile(
    r"[,;/]\s*(?=(?:Reason|Message|Exit Code|Signal|Started|Finished|Ready|Restart Count):)"
)
_STATE_KEYS = ("State", "Last State", "Reason", "Message", "Exit Code", "Signal", "Started", "Finished")
_PIECE_KEYS = frozenset(
    (*_STATE_KEYS, "Ready", "Restart Count", "Limits", "Requests", "Liveness", "Readiness", "Startup")
)
# Lines of a container that stand before its state.
_BEFORE_STATE = frozenset(
    (
        "Container ID",
        "Image",
        "Image ID",
        "Port",
        "Ports",
        "Host Port",
        "Host Ports",
        "Containers",
        "Init Containers",
    )
)
_NO_VALUE = frozenset(("", "<none>", "<unset>", "<nil>"))

_TOP_KEYS = frozenset(
    (
        "Name",
        "Namespace",
        "Priority",
        "Priority Class Name",
        "PriorityClassName",
        "Runtime Class Name",
        "Service Account",
        "Node",
        "Start Time",
        "Labels",
        "Annotations",
        "Status",
        "Termination Grace Period",
        "Reason",
        "Message",
        "SeccompProfile",
        "LocalhostProfile",
        "IP",
        "IPs",
        "Controlled By",
        "NominatedNodeName",
        "Resources",
        "Init Containers",
        "Containers",
        "Ephemeral Containers",
        "Readiness Gates",
        "Conditions",
        "Volumes",
        "QoS Class",
        "Node-Selectors",
        "Tolerations",
        "Topology Spread Constraints",
        "Events",
    )
)
# Keys that only a pod's description has right after its name, labels and annotations.
_POD_KEYS = frozenset(("Node", "Status", "Containers"))
# Longest run of lines without indentation that may belong to one status message (terminationMessagePolicy:
# FallbackToLogsOnError keeps 80 lines of log in it).
_MESSAGE_LINES = 120

_API_VERSIONS = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicationController": "v1",
    "Job": "batch/v1",
}
_PROBES = {"Liveness": "livenessProbe", "Readiness": "readinessProbe", "Startup": "startupProbe"}
_PROBE = re.compile(
    r"^(?P<handler>(?:.*\S)?)\s*delay=(?P<delay>\d{1,9})s timeout=(?P<timeout>\d{1,9})s period=(?P<period>\d{1,9})s"
    r" #success=(?P<success>\d{1,9}) #failure=(?P<failure>\d{1,9})"
)
_HTTP_PROBE = re.compile(r"^http-get (?P<scheme>\w+)://(?P<host>[^/]*?):(?P<port>\w+)(?P<path>/\S*)?$")
_MOUNT = re.compile(r"^(?P<path>\S+) from (?P<volume>\S+) \((?P<flags>[^)]*)\)")
_SECRET_KEY = re.compile(r"^<set to the key '(?P<key>[^']*)' (?:in secret|of config map) '(?P<name>[^']*)'>")
_FIELD = re.compile(r"^(?P<value>(?:.*\S)?)\s*\((?P<version>v\d\w*):(?P<path>[\w.\[\]'/-]+)\)$")
_ENV = re.compile(r"^(\s+)([A-Za-z_][\w.-]*):(?:\s+(\S(?:.*\S)?))?\s*$")
_RESOURCE = re.compile(
    r"^\s*((?:cpu|memory|ephemeral-storage|hugepages-\w+|[a-z0-9.-]+/[\w.-]+)):\s+(\S+)\s*$"
)
_EVENT = re.compile(
    r"^\s*(?P<type>Normal|Warning)\s+(?P<reason>\S+)\s+(?:(?P<age>\S+(?: \S+)*)\s{2,})?(?P<source>\S+(?: \S+)*)\s{2,}(?P<message>\S.*)$"
)
_AGE_COUNT = re.compile(r"\(x(\d{1,9}) over ")


def find(lines):
    """The describe text among ``lines`` (str): list of (start, end) of its blocks, ends exclusive."""
    blocks: list[tuple[int, int]] = []
    position = 0
    while position < len(lines):
        if _NAME.match(lines[position]) and any(
            _NAMESPACE.match(line) for line in lines[position + 1 : position + 2]
        ):
            end = _block_end(lines, position)
            if not any(_top_key(line) in _POD_KEYS for line in lines[position:end]):
                # Something else was described: a Deployment, a claim.
                position = end
                continue
        elif _piece_starts(lines, position):
            end = _piece_end(lines, position)
            position = _piece_start(lines, position, blocks[-1][1] if blocks else 0)
        else:
            position += 1
            continue
        blocks.append((position, end))
        position = end
    return blocks


def _piece_starts(lines, position):
    if _PIECE.match(lines[position]):
        return True
    following = lines[position : position + 2]
    return bool(_REASON.match(lines[position]) and any(_EXIT_CODE.search(line) for line in following))


def _piece_start(lines, position, lowest):
    """Where the lines of the same container before its state begin (image, ports, its name)."""
    while position > lowest:
        match = _KEY.match(lines[position - 1])
        if not match or not (match.group("key") in _BEFORE_STATE or _container_head(match)):
            break
        position -= 1
    return position


def _container_head(match):
    return bool(
        match.group("indent") and not match.group("value") and re.fullmatch(r"[a-z0-9-]+", match.group("key"))
    )


def _top_key(line):
    """The key of a line that starts a section of a pod's description, or None."""
    match = _KEY.match(line)
    return (
        match.group("key")
        if match and not match.group("indent") and match.group("key") in _TOP_KEYS
        else None
    )


def _block_end(lines, start):
    """Where the description of one pod that starts at ``start`` ends."""
    position = start + 1
    last_key = section = None
    while position < len(lines):
        line = lines[position]
        match = _KEY.match(line)
        if _NAME.match(line):
            break
        if not line.strip():
            # Blank lines stand between descriptions and inside of messages; Events is the last section.
            if section == "Events":
                break
        elif _top_key(line):
            section = last_key = _top_key(line)
        elif line[0] in " \t":
            # A line of a status message may look like a key too.
            if match and (last_key != "Message" or match.group("key") in _CONTAINER_KEYS):
                last_key = match.group("key")
        elif last_key == "Message" and _message_end(lines, position):
            position = _message_end(lines, position)
            continue
        else:
            break
        position += 1
    while position > start and not lines[position - 1].strip():
        position -= 1
    return position


def _message_end(lines, start):
    """The line that continues the description after a status message of several lines, or None."""
    for position in range(start, min(start + _MESSAGE_LINES, len(lines))):
        match = _KEY.match(lines[position])
        if (
            match
            and match.group("indent")
            and match.group("key") in ("Exit Code", "Signal", "Started", "Ready")
        ):
            return position
        if (
            match
            and _top_key(lines[position])
            and match.group("key") in ("IP", "SeccompProfile", "Controlled By")
        ):
            return position
    return None


def _piece_end(lines, start):
    position = start + 1
    while position < len(lines):
        match = _KEY.match(lines[position])
        if not (match and match.group("key") in _PIECE_KEYS) and not _RESOURCE.match(lines[position]):
            # One blank line between "State" and "Last State" is what a paste often has.
            following = lines[position + 1] if position + 1 < len(lines) else ""
            if lines[position].strip() or not _PIECE.match(following):
                break
        position += 1
    return position


def parse(lines):
    """One block of describe text (see ``find``) as ``(pod, events)``: raw API objects.

    A piece gives a pod without a name whose one container has no name either.
    """
    return _Pod(lines).read() if _NAME.match(lines[0]) else (_piece(lines), [])


def time_of(text):
    """RFC 1123 (``Mon, 02 Jan 2006 15:04:05 -0700``) as RFC 3339 in UTC; None for anything else."""
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    # Go prints a time that was never set as 1 January of year 1, which mail's rules take for 2001.
    if moment is None or moment.tzinfo is None or " 0001 " in text:
        return None
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _piece(lines):
    heads = [match for match in map(_KEY.match, lines) if match and _container_head(match)]
    container = _Container(heads[0].group("key") if heads else None)
    if _REASON.match(lines[0]):
        container.line("Last State: Terminated")
    for line in lines:
        for part in _SEPARATOR.split(line):
            container.line(part)
    spec, status = container.result()
    return {
        "kind": "Pod",
        "metadata": {},
        "spec": {"containers": [spec]},
        "status": {"containerStatuses": [status]},
    }


_LISTS = {
    "Init Containers": ("initContainers", "initContainerStatuses"),
    "Containers": ("containers", "containerStatuses"),
    "Ephemeral Containers": ("ephemeralContainers", "ephemeralContainerStatuses"),
}


class _Pod:
    """Reads one pod's description, section by section."""

    def __init__(self, lines):
        self._lines = lines
        self._meta: dict[str, Any] = {"labels": {}, "annotations": {}}
        self._spec: dict[str, Any] = {"containers": []}
        self._status: dict[str, Any] = {"conditions": []}
        self._events = []

    def read(self):
        for key, value, body in self._sections():
            self._section(key, value, body)
        for event in self._events:
            event["involvedObject"] = {
                "kind": "Pod",
                "name": self._meta.get("name"),
                "namespace": self._meta.get("namespace"),
            }
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": self._meta,
            "spec": self._spec,
            "status": self._status,
        }
        return pod, self._events

    def _sections(self):
        """(key, value, lines under it) of every top-level key, in order."""
        found: list[tuple[str, str, list[str]]] = []
        for line in self._lines:
            match = _KEY.match(line)
            if match and _top_key(line):
                found.append((match.group("key"), match.group("value") or "", []))
            elif found:
                found[-1][2].append(line)
        return found

    def _section(self, key, value, body):
        simple = _SIMPLE.get(key)
        if simple:
            target, name, convert = simple
            if value not in _NO_VALUE:
                {"meta": self._meta, "spec": self._spec, "status": self._status}[target][name] = convert(
                    value
                )
        elif key in _LISTS:
            self._containers(*_LISTS[key], body)
        elif key in _READERS:
            _READERS[key](self, value, body)

    def _node(self, value, _body):
        if value not in _NO_VALUE:
            self._spec["nodeName"] = value.split("/")[0]

    def _phase(self, value, _body):
        # A pod that is being deleted shows "Terminating (lasts 5m)" in place of its phase.
        if not value.startswith("Terminating"):
            self._status["phase"] = value
        else:
            self._status["phase"] = None

    def _labels(self, value, body):
        for item in [value, *body]:
            name, equals, text = item.strip().partition("=")
            if equals:
                self._meta["labels"][name] = text

    def _annotations(self, value, body):
        for item in [value, *body]:
            name, colon, text = item.strip().partition(":")
            if colon and " " not in name:
                self._meta["annotations"][name] = text.strip()

    def _message(self, value, body):
        self._status["message"] = "\n".join([value, *(line.strip() for line in body)]).strip()

    def _owner(self, value, _body):
        kind, _slash, name = value.partition("/")
        self._meta["ownerReferences"] = [
            {"apiVersion": _API_VERSIONS.get(kind), "kind": kind, "name": name, "controller": True}
        ]

    def _conditions(self, _value, body):
        for line in body:
            words = line.split()
            if len(words) >= 2 and words[1] in ("True", "False", "Unknown"):
                self._status["conditions"].append({"type": words[0], "status": words[1]})

    def _resources(self, _value, body):
        container = _Container(None)
        for line in body:
            container.line(line)
        self._spec["resources"] = container.result()[0]["resources"]

    def _containers(self, specs, statuses, body):
        containers = []
        for line in body:
            match = _KEY.match(line)
            if match and len(match.group("indent")) == 2 and not match.group("value"):
                containers.append(_Container(match.group("key")))
            elif containers:
                containers[-1].line(line)
        results = [container.result() for container in containers]
        self._spec[specs] = [spec for spec, _status in results]
        self._status[statuses] = [status for _spec, status in results]

    def _volumes(self, _value, body):
        volumes = []
        fields: dict[str, str] = {}
        for line in body:
            match = _KEY.match(line)
            if not match:
                continue
            if len(match.group("indent")) == 2 and not match.group("value"):
                fields = {}
                volumes.append((match.group("key"), fields))
            else:
                fields[match.group("key")] = match.group("value") or ""
        self._spec["volumes"] = [_volume(name, fields) for name, fields in volumes]

    def _read_events(self, _value, body):
        for line in body:
            match = _EVENT.match(line)
            if match:
                count = _AGE_COUNT.search(match.group("age") or "")
                self._events.append(
                    {
                        "kind": "Event",
                        "type": match.group("type"),
                        "reason": match.group("reason"),
                        "message": match.group("message").strip(),
                        "count": int(count.group(1)) if count else 1,
                        "source": {"component": match.group("source").strip()},
                        "metadata": {},
                    }
                )


_SIMPLE: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "Name": ("meta", "name", str),
    "Namespace": ("meta", "namespace", str),
    "Start Time": ("status", "startTime", time_of),
    "Reason": ("status", "reason", str),
    "QoS Class": ("status", "qosClass", str),
    "Runtime Class Name": ("spec", "runtimeClassName", str),
    "Priority Class Name": ("spec", "priorityClassName", str),
    "Service Account": ("spec", "serviceAccountName", str),
    "Termination Grace Period": (
        "meta",
        "deletionGracePeriodSeconds",
        lambda text: _whole(text[:-1]),
    ),
}
_READERS = {
    "Node": _Pod._node,
    "Status": _Pod._phase,
    "Labels": _Pod._labels,
    "Annotations": _Pod._annotations,
    "Message": _Pod._message,
    "Controlled By": _Pod._owner,
    "Conditions": _Pod._conditions,
    "Resources": _Pod._resources,
    "Volumes": _Pod._volumes,
    "Events": _Pod._read_events,
}


def _volume(name, fields):
    """One volume in the API's shape; the kinds that matter for memory, others by name alone."""
    kind = fields.get("Type", "").split(" ")[0]

    def given(key):
        return None if fields.get(key, "") in _NO_VALUE else fields[key]

    sources = {
        "EmptyDir": ("emptyDir", {"medium": given("Medium"), "sizeLimit": given("SizeLimit")}),
        "PersistentVolumeClaim": ("persistentVolumeClaim", {"claimName": given("ClaimName")}),
        "HostPath": ("hostPath", {"path": given("Path")}),
        "Secret": ("secret", {"secretName": given("SecretName")}),
        "ConfigMap": ("configMap", {"name": given("Name")}),
    }
    volume = {"name": name}
    if kind in sources:
        field, source = sources[kind]
        volume[field] = {key: value for key, value in source.items() if value is not None}
    return volume


_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh"))
_SCRIPT_OPTION = re.compile(r"-[a-z]*c")


def _scripts(command, args):
    """Command and args with the lines of a script after ``sh -c`` put together again: they are one argument."""
    words = [*command, *args]
    start = _script_start(words)
    if start is None or start >= len(words):
        return command, args
    if start < len(command):
        return [*command[:start], "\n".join(command[start:])], args
    start -= len(command)
    return command, [*args[:start], "\n".join(args[start:])]


def _script_start(words):
    """Index of the word after a shell's ``-c`` (or ``-lc`` …); None when no shell is asked for."""
    if words and words[0] == "-c":
        return 1
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    return next((index + 1 for index, word in enumerate(words) if _SCRIPT_OPTION.fullmatch(word)), None)


class _Container:
    """Reads one container's description line by line; ``result`` gives its spec and its status."""

    def __init__(self, name):
        self._spec = {"name": name, "command": [], "args": [], "env": [], "envFrom": [], "volumeMounts": []}
        self._spec["resources"] = {"limits": {}, "requests": {}}
        self._status = {"name": name, "state": {}, "lastState": {}}
        self._section = None
        self._indent = 0
        self._state = None

    def result(self):
        command, args = _scripts(self._spec["command"], self._spec["args"])
        return dict(self._spec, command=command, args=args), self._status

    def line(self, line):
        if not line.strip():
            return
        match = _KEY.match(line)
        indent = len(line) - len(line.lstrip())
        if self._section in _ITEMS and (indent > self._indent or self._still_resource(line)):
            _ITEMS[self._section](self, line)
            return
        if not match or (
            match.group("key") not in _CONTAINER_KEYS and self._state and "message" in self._state
        ):
            self._continue_message(line)
            return
        key, value = match.group("key"), match.group("value") or ""
        self._section = None
        if key in _ITEMS:
            self._section, self._indent = key, indent
        elif key in ("State", "Last State"):
            self._start_state("state" if key == "State" else "lastState", value)
        elif key in _STATE_FIELDS:
            self._state_field(*_STATE_FIELDS[key], value)
        elif key in _PROBES:
            self._spec[_PROBES[key]] = _probe(value)
        elif key in _FIELDS:
            target, name, convert = _FIELDS[key]
            (self._spec if target == "spec" else self._status)[name] = convert(value)

    def _still_resource(self, line):
        # Pasted text often lost its indentation; a quantity is recognised all the same.
        return self._section in ("Limits", "Requests") and _RESOURCE.match(line)

    def _start_state(self, field, value):
        kind = value.lower()
        if kind in ("running", "waiting", "terminated"):
            self._state = {}
            self._status[field] = {kind: self._state}

    def _state_field(self, name, convert, value):
        if self._state is not None:
            self._state[name] = convert(value)

    def _continue_message(self, line):
        if self._state and "message" in self._state:
            self._state["message"] = f"{self._state['message']}\n{line.strip()}"

    def _command(self, line):
        self._spec["command"].append(line.strip())

    def _args(self, line):
        self._spec["args"].append(line.strip())

    def _limits(self, line):
        self._resource("limits", line)

    def _requests(self, line):
        self._resource("requests", line)

    def _resource(self, field, line):
        match = _RESOURCE.match(line)
        if match:
            self._spec["resources"][field][match.group(1)] = match.group(2)

    def _environment(self, line):
        match = _ENV.match(line)
        if match:
            self._spec["env"].append(_env(match.group(2), match.group(3) or ""))
        elif self._spec["env"] and "value" in self._spec["env"][-1]:
            self._spec["env"][-1]["value"] += "\n" + line.strip()

    def _environment_from(self, line):
        words = line.split()
        if len(words) >= 2 and words[1] in ("ConfigMap", "Secret"):
            field = "configMapRef" if words[1] == "ConfigMap" else "secretRef"
            self._spec["envFrom"].append({field: {"name": words[0]}})

    def _mounts(self, line):
        match = _MOUNT.match(line.strip())
        if match:
            mount = {"name": match.group("volume"), "mountPath": match.group("path")}
            if "ro" in match.group("flags").split(","):
                mount["readOnly"] = True
            self._spec["volumeMounts"].append(mount)


_ITEMS = {
    "Command": _Container._command,
    "Args": _Container._args,
    "Limits": _Container._limits,
    "Requests": _Container._requests,
    "Environment": _Container._environment,
    "Environment Variables from": _Container._environment_from,
    "Mounts": _Container._mounts,
}


def _whole(text):
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


_STATE_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "Reason": ("reason", str),
    "Message": ("message", str),
    "Exit Code": ("exitCode", _whole),
    "Signal": ("signal", _whole),
    "Started": ("startedAt", time_of),
    "Finished": ("finishedAt", time_of),
}
_FIELDS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "Container ID": ("status", "containerID", str),
    "Image": ("spec", "image", str),
    "Image ID": ("status", "imageID", str),
    "Ready": ("status", "ready", lambda text: text == "True"),
    "Restart Count": ("status", "restartCount", _whole),
    "Restart Policy": ("spec", "restartPolicy", str),
}


# Every key of a container's description; a line with another one belongs to a message.
_CONTAINER_KEYS = frozenset(
    (
        *_ITEMS,
        *_PROBES,
        *_STATE_KEYS,
        *_FIELDS,
        "Port",
        "Ports",
        "Host Port",
        "Host Ports",
        "Devices",
        "SeccompProfile",
    )
)


def _env(name, value):
    """One environment entry in the API's shape. A secret's value is never in describe text, only its name."""
    reference = _SECRET_KEY.match(value)
    if reference:
        field = "secretKeyRef" if " in secret " in value else "configMapKeyRef"
        return {
            "name": name,
            "valueFrom": {field: {"name": reference.group("name"), "key": reference.group("key")}},
        }
    field_ref = _FIELD.match(value)
    if field_ref:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_ref.group("path")}}}
    return {"name": name, "value": value}


def _probe(text):
    """One probe in the API's shape, from ``http-get http://:8000/health delay=0s timeout=1s period=10s …``."""
    match = _PROBE.match(text)
    if not match:
        return None
    probe = {
        "initialDelaySeconds": int(match.group("delay")),
        "timeoutSeconds": int(match.group("timeout")),
        "periodSeconds": int(match.group("period")),
        "successThreshold": int(match.group("success")),
        "failureThreshold": int(match.group("failure")),
    }
    probe.update(_handler(match.group("handler")))
    return probe


def _handler(text):
    http = _HTTP_PROBE.match(text)
    if http:
        port = http.group("port")
        return {
            "httpGet": {
                "path": http.group("path") or "/",
                "port": int(port) if port.isdecimal() else port,
                "scheme": http.group("scheme").upper(),
            }
        }
    kind, _space, rest = text.partition(" ")
    if kind == "exec":
        return {"exec": {"command": rest.strip("[]").split(" ")}}
    if kind in ("tcp-socket", "grpc"):
        port = rest.rpartition(":")[2].split(" ")[0]
        return {
            "tcpSocket" if kind == "tcp-socket" else "grpc": {"port": int(port) if port.isdecimal() else port}
        }
    return {}
