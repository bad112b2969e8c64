# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved Kubernetes objects and the trees that tools write: which file holds what, and whose log a file is.

Trees: ``kubectl cluster-info dump --output-directory`` (kubectl ``clusterinfo_dump.go``), OpenShift must-gather
(``oc adm inspect``, openshift/oc ``pkg/cli/admin/inspect``), Troubleshoot.sh support bundles
(replicatedhq/troubleshoot ``pkg/constants``), the kubelet's ``/var/log/pods``, and folders put together by hand.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re

from ..documents import DocumentError
from . import log_exports
from .events import involved
from .workloads import KINDS, api_group

try:
    import yaml
except ImportError:  # pragma: no cover - PyYAML comes with ansible-core
    yaml = None  # type: ignore[assignment]

# What the bundle reader uses. Secrets and ConfigMaps are never read.
_WANTED = frozenset(kind for _group, kind in KINDS) | frozenset(("Event", "ResourceQuota", "LimitRange"))
_KIND = re.compile(rb"""^\s*(?:- )?["']?kind["']?:\s*["']?(\w+)|[{,]\s*"kind":\s*"(\w+)""", re.MULTILINE)
# Objects in a list carry no kind of their own, and Troubleshoot.sh's older lists have none either: then the file's
# or folder's name tells.
_KIND_OF_NAME = {
    "pods": "Pod",
    "events": "Event",
    "nodes": "Node",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
    "resource-quota": "ResourceQuota",
    "resourcequotas": "ResourceQuota",
    "limitranges": "LimitRange",
    "replication-controllers": "ReplicationController",
    "replicationcontrollers": "ReplicationController",
}
_API_VERSION_OF_KIND = {kind: "apps/v1" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")}
_API_VERSION_OF_KIND["Job"] = "batch/v1"
# Nodes of one YAML document after aliases are followed; kubectl writes none, a bomb writes billions.
_MOST_YAML_NODES = 20_000_000


def load(data, name):
    """Every document of a JSON or YAML file (bytes): a list of dicts and lists.

    JSON may be several documents in a row. Raises DocumentError with file and line for malformed text.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    if text.lstrip()[:1] in ("{", "["):
        return _load_json(text, name)
    return _load_yaml(text, name)


def _load_json(text, name):
    decoder = json.JSONDecoder()
    documents, position = [], len(text) - len(text.lstrip())
    try:
        while position < len(text):
            document, position = decoder.raw_decode(text, position)
            documents.append(document)
            position += len(text[position:]) - len(text[position:].lstrip())
    except json.JSONDecodeError as error:
        raise DocumentError(
            f"{name}: malformed JSON in line {error.lineno} ({error.msg}): save it again, whole"
        ) from None
    except RecursionError:
        raise DocumentError(f"{name}: JSON nested too deep to be a Kubernetes object") from None
    return documents


def _load_yaml(text, name):
    if yaml is None:
        raise DocumentError(
            f"{name}: is YAML, and PyYAML is not installed on this host: install it, or save as JSON"
            " (kubectl get … -o json)"
        )
    try:
        documents = [document for document in yaml.load_all(text, Loader=_loader()) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not readable"
        raise DocumentError(f"{name}: malformed YAML{where} ({problem}): save it again, whole") from None
    except (RecursionError, ValueError) as error:
        raise DocumentError(f"{name}: YAML that cannot be read ({error}): save it again, whole") from None
    if sum(_size(document, {}) for document in documents) > _MOST_YAML_NODES:
        raise DocumentError(
            f"{name}: its YAML aliases expand without end, refused: save it again with kubectl -o json"
        )
    return documents


def _loader():
    """PyYAML's safe loader, in C where it is built in, that leaves times as the text they are."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _size(document, known):
    """Nodes of ``document`` with every alias written out; each object is walked once."""
    if not isinstance(document, (dict, list)):
        return 1
    if id(document) not in known:
        known[id(document)] = _MOST_YAML_NODES  # a document that holds itself is endless
        values = document.values() if isinstance(document, dict) else document
        known[id(document)] = 1 + sum(_size(value, known) for value in values)
    return known[id(document)]


def worth_parsing(data, name):
    """Whether a JSON or YAML file holds a kind that is used here; cheap, so that most files need no parser."""
    if _kind_of_name(name):
        return True
    kinds = {(match.group(1) or match.group(2)).decode() for match in _KIND.finditer(data)}
    return any(kind in _WANTED or _item_kind(kind) in _WANTED or kind == "List" for kind in kinds)


def _item_kind(kind):
    return kind[: -len("List")] if kind.endswith("List") else kind


def _kind_of_name(name):
    parts = re.split(r"[/\\]", name.lower())
    stem = parts[-1].split(".")[0]
    for candidate in (stem, *parts[-2:-1]):
        if candidate in _KIND_OF_NAME and "logs" not in parts:
            return _KIND_OF_NAME[candidate]
    return None


def objects_of(document, name=""):
    """The Kubernetes objects that are used here among ``document`` (an object, a list of them, a bare array).

    Each gets its ``kind`` and ``apiVersion`` back where a list left them out.
    """
    hint = _kind_of_name(name)
    if isinstance(document, list):
        found = [item for entry in document for item in objects_of(entry, name)]
    elif not isinstance(document, dict):
        found = []
    elif isinstance(document.get("items"), list):
        kind = _item_kind(str(document.get("kind") or "")) or hint
        found = [
            item
            for entry in document["items"]
            if isinstance(entry, dict)
            for item in objects_of(dict(entry, kind=entry.get("kind") or kind), name)
        ]
    else:
        kind = str(document.get("kind") or hint)
        known = kind in _WANTED and _is_named(document.get("metadata"))
        version = str(document.get("apiVersion") or _API_VERSION_OF_KIND.get(kind, "v1"))
        found = [dict(document, kind=kind, apiVersion=version)] if known else []
    return found


def _is_named(metadata):
    """Whether an object's metadata says by text what it is called and where."""
    if not isinstance(metadata, dict):
        return False
    return all(isinstance(metadata.get(key, ""), (str, type(None))) for key in ("name", "namespace", "uid"))


def kinds_of(document):
    """The kinds that ``document`` names, to say what a file holds instead of pods."""
    if isinstance(document, list):
        return sorted({kind for item in document for kind in kinds_of(item)})
    if not isinstance(document, dict):
        return []
    if isinstance(document.get("items"), list):
        return kinds_of(document["items"]) or [str(document.get("kind") or "List")]
    return [str(document["kind"])] if document.get("kind") else []


class Objects:
    """Saved objects by kind, namespace and name."""

    def __init__(self):
        self._kinds: dict[str, dict[tuple[str, str, str], dict]] = {}
        self._events: dict[str, list[dict]] | None = None

    def add(self, raw):
        """Keep ``raw``; of two that are the same object the one with the newer version counts."""
        metadata = raw.get("metadata") or {}
        key = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), _own_id(raw))
        same_kind = self._kinds.setdefault(raw["kind"], {})
        if key not in same_kind or _version(raw) >= _version(same_kind[key]):
            same_kind[key] = raw
            self._events = None

    def of_kind(self, kind, namespace=None):
        """All objects of ``kind``, in the order of namespace and name."""
        found = self._kinds.get(kind) or {}
        return [found[key] for key in sorted(found) if namespace in (None, key[0])]

    def events_about(self, name):
        """The events about objects called ``name`` (of whatever kind)."""
        if self._events is None:
            self._events = {}
            for raw in self.of_kind("Event"):
                self._events.setdefault(involved(raw).get("name") or "", []).append(raw)
        return self._events.get(name) or []

    def lookup(self, api_version, kind, namespace, name):
        """One object, or None; the API's version doesn't matter, its group does."""
        for key, raw in (self._kinds.get(kind) or {}).items():
            same_group = api_group(raw["apiVersion"]) == api_group(api_version)
            if key[1] == name and key[0] in ("", namespace) and same_group:
                return raw
        return None

    def listing(self, api_version, kind, namespace):
        """All objects of a kind in a namespace."""
        return [
            raw
            for raw in self.of_kind(kind, namespace)
            if api_group(raw["apiVersion"]) == api_group(api_version)
        ]


def _own_id(raw):
    """What tells events and pods of one name apart: a StatefulSet's next pod has the name of the one before."""
    return str((raw.get("metadata") or {}).get("uid") or "")


def _version(raw):
    text = str((raw.get("metadata") or {}).get("resourceVersion") or "")
    return (bool(raw.get("status")), int(text) if text.isdecimal() else 0)


# --- whose log a file is

_NAMES = r"(?P<namespace>[^/]+)/(?P<pod>[^/]+)/(?P<container>[^/]+?)"
_PREVIOUS = r"(?:[-_.](?P<mark>previous|prev|last|crashed|p))?"
_LOG_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        # must-gather: namespaces/NS/pods/POD/CONTAINER/CONTAINER/logs/{current,previous,previous.insecure}.log
        r"(?:^|/)namespaces/(?P<namespace>[^/]+)/pods/(?P<pod>[^/]+)/(?P<container>[^/]+)/(?P=container)/logs/"
        r"(?:rotated/(?P<attempt>\d+)\.log[^/]*|(?P<mark>current|previous)(?:\.insecure)?\.log(?:\.gz)?)$",
        # Troubleshoot.sh: cluster-resources/pods/logs/NS/POD/CONTAINER.log, CONTAINER-previous.log
        rf"(?:^|/)cluster-resources/pods/logs/{_NAMES}{_PREVIOUS}\.log(?:\.gz)?$",
        log_exports.POD_LOG_FILE.pattern,
        log_exports.CONTAINER_LOG_FILE.pattern,
    )
)
_DUMP_LOG = re.compile(r"(?:^|/)(?P<namespace>[^/]+)/(?P<pod>[^/]+)/logs\.txt$")
_MARK = re.compile(r"[-_.](?P<mark>previous|prev|last|crashed|current|p)$")
_MARK_BEFORE = re.compile(r"^(?P<mark>previous|prev|last|crashed|current)[-_.]")
_LOG_ENDING = re.compile(r"(\.(?:log|txt|out|err|stdout|stderr))?(\.\d+)?(\.gz)?$")
# What a file is called that surely is a log, that may be a text, and that may be anything in lines.
SURE_LOG_NAME = re.compile(r"\.(?:log|txt)(?:\.\d+)?(?:\.gz)?$")
PLAIN_NAME = re.compile(r"\.(?:log|txt|out|err)(?:\.\d+)?$|(?:^|/)[^./]+$")
_LINES_NAME = re.compile(r"\.(?:json|jsonl|ndjson)$|\.[a-z]+\.gz$", re.IGNORECASE)


def is_log_name(path):
    """Whether a file whose place says nothing is looked at for log lines."""
    return bool(PLAIN_NAME.search(path) or _LINES_NAME.search(path))


def log_place(path):
    """Whose log a file is by its place: ``{namespace, pod, container, mark, attempt}``, or None.

    mark: ``current``, ``previous`` or None; attempt: the kubelet's restart number or None; container is None for
    a dump's ``logs.txt``, which names its containers inside.
    """
    for pattern in _LOG_PLACES:
        match = pattern.search(path)
        if match:
            found = match.groupdict()
            attempt = found.get("attempt")
            # The folder structure without a mark (Troubleshoot.sh, kubelet) means the current run.
            mark = found.get("mark") or (None if attempt else "current")
            return {
                "namespace": found.get("namespace"),
                "pod": found["pod"],
                "container": found.get("container"),
                "mark": "current" if mark == "current" else "previous" if mark else None,
                "attempt": int(attempt) if attempt else None,
            }
    match = _DUMP_LOG.search(path)
    if match:
        return dict(match.groupdict(), container=None, mark="current", attempt=None)
    return None


def split_mark(path):
    """``(stem, mark)`` of a log's path: without its endings and without what marks it as previous or current."""
    stem = _LOG_ENDING.sub("", path.rsplit("/", 1)[-1])
    match = _MARK.search(stem)
    if match:
        stem = stem[: match.start()]
    else:
        match = _MARK_BEFORE.match(stem)
        if match:
            stem = stem[match.end() :]
    mark = match.group("mark") if match else None
    return stem, ("current" if mark == "current" else "previous" if mark else None)


def log_place_by_names(path, pods):
    """Like ``log_place``, by the names of known pods in the path. pods: ``[(namespace, pod, [container])]``.

    The longest name that fits counts (``vllm-1`` is part of ``vllm-10``); None when none does.
    """
    stem, mark = split_mark(path)
    parts = [*path.split("/")[:-1], stem]
    fitting = [entry for entry in pods if entry[1] and any(_holds(part, entry[1]) for part in parts)]
    if not fitting:
        return None
    longest = max(len(entry[1]) for entry in fitting)
    fitting = [entry for entry in fitting if len(entry[1]) == longest]
    in_namespace = [entry for entry in fitting if entry[0] and any(_holds(part, entry[0]) for part in parts)]
    namespace, pod, containers = (in_namespace or fitting)[0]
    rest = [part.replace(pod, "") for part in parts]
    named = [
        name for name in sorted(containers, key=len, reverse=True) if any(_holds(part, name) for part in rest)
    ]
    return {
        "namespace": namespace,
        "pod": pod,
        "container": named[0] if named else None,
        "mark": mark,
        "attempt": None,
    }


def _holds(part, name):
    """Whether ``name`` stands in ``part`` as a whole word (dashes belong to names, but end them at either side)."""
    return re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", part) is not None
