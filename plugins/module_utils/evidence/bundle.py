# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence from what somebody saved or sent: a log, pod YAML or JSON, describe text, log exports, whole trees.

What a file is shows in its content, never in its name alone. Nothing is lost silently: what could not be read or
was left aside is an ``unreadable`` entry; only when nothing useful is left does reading fail.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from datetime import datetime, timezone
from functools import partial
from typing import Any

from .. import documents
from ..documents import BUDGET_SCHEMA, DIAGNOSIS_SCHEMA, EVIDENCE_SCHEMA, DocumentError, unreadable
from ..quantities import MIB
from . import archives, assemble, joining, log_exports, log_streams, trees
from .archives import LIMITS, Folder, Reader, Tar, Zip, read_errors, spool
from .events import event_evidence, involved, sort_events
from .groups import group_of
from .joining import Log
from .log_scan import LogScanner
from .namespaces import namespace_evidence
from .node_joining import with_nodes
from .nodes import node_evidence
from .pods import MALFORMED, engine_container_index, is_suspicious, pod_evidence
from .redact import Redactor
from .workloads import workload_evidence

STDIN = "standard input"
# The same as a path: of this process, or of another one of this user.
STDIN_PATH = re.compile(r"/dev/(?:stdin|fd/0)|/proc/\w+/fd/0")
# A text of a tree up to this size is looked at for describe text before the logs are read.
_DESCRIPTION = 4 * MIB
_DOCUMENT_NAME = re.compile(r"\.(?:json|ya?ml)(?:\.gz)?$", re.IGNORECASE)
_ARCHIVE_NAME = re.compile(r"\.(?:tar|tar\.gz|tgz|zip)$", re.IGNORECASE)
_JSON_START = re.compile(rb'\s*(?:\{\s*(?:"|\}|$)|\[\s*(?:\{|\[|\]|$))')
_YAML_START = re.compile(
    rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*\s*(?:---|%YAML|apiVersion:|kind:|items:|metadata:|- )"
)
_YAML_KIND = re.compile(rb"^(?:- )?(?:apiVersion|kind):", re.MULTILINE)
# Files that, beside a log, describe its pod.
_BESIDE_STEMS = ("pod", "pods", "describe", "pod-describe", "describe-pod", "pod.describe")
_BESIDE_ENDINGS = (".yaml", ".yml", ".json", ".describe", ".describe.txt", "-describe.txt", "_describe.txt")
# What a log of another run or pod is named like.
_LOGS = (".log", ".log.gz")
_LOOKED_FOR = (
    "saved evidence, pods as YAML or JSON, kubectl describe text, vLLM logs, stern, Loki or Elasticsearch exports,"
    " a cluster-info dump, a must-gather or a support bundle"
)
# What the role diagnose saves beside the evidence: it is made of it anew.
_MADE_OF_EVIDENCE = {BUDGET_SCHEMA: "a budget", DIAGNOSIS_SCHEMA: "a diagnosis"}
# How many pods are in a sentence that says what was seen instead.
_NAMED = 5


def read_bundle(path, stdin=None, pod_file=None, now=None, limits=LIMITS):
    """The evidence document of what is at ``path``: a file, a directory, an archive, or ``-`` for standard input.

    stdin: what ``-`` reads (bytes, str or a binary stream; default: this process's standard input).
    pod_file: the pod's YAML, JSON or describe text that belongs to a plain log. now: when it is read, for
    ``collected_at`` (datetime or RFC 3339 text; default: the present).
    Raises DocumentError with one sentence when nothing useful can be read.
    """
    is_stdin_path = STDIN_PATH.fullmatch(str(path))
    bundle = _Bundle(STDIN if path == "-" or is_stdin_path else str(path), _time(now), limits)
    if pod_file:
        bundle.pod_file(str(pod_file))
    if path == "-":
        bundle.stream(standard_input(stdin))
    elif is_stdin_path:
        with opened(path) as stream:
            bundle.stream(stream)
    elif os.path.isdir(path):
        bundle.tree(Folder(str(path), limits))
    else:
        bundle.path(str(path), alone=not pod_file)
    return bundle.finish()


def _time(now):
    if isinstance(now, str):
        return now
    return (now or datetime.now(timezone.utc)).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def standard_input(given):
    """What ``-`` reads, as a binary stream. given: see ``read_bundle``; DocumentError when nothing comes."""
    if isinstance(given, str):
        given = given.encode("utf-8", "replace")
    if isinstance(given, bytes):
        return io.BytesIO(given)
    if given is not None:
        return given
    # Ansible closes the one of its own processes.
    data = b"" if sys.stdin is None or sys.stdin.closed else sys.stdin.buffer.read(1)
    if not data:
        raise DocumentError(
            f"{STDIN}: nothing came: pipe the log into this command (through a playbook this works on Linux only),"
            " or give its path"
        )
    return archives.Joined(data, sys.stdin.buffer)


def kind_of(reader):
    """What a file is by its first bytes: empty, tar, zip, binary, document (JSON or YAML) or text."""
    head = reader.head
    if reader.is_zip():
        kind = "zip"
    elif reader.is_tar():
        kind = "tar"
    elif not head.strip(b"\x00 \t\r\n"):
        kind = "empty"
    elif reader.is_binary():
        kind = "binary"
    elif _JSON_START.match(head):
        kind = "text" if _is_json_log(head) else "document"
    elif _YAML_START.match(head) and _YAML_KIND.search(head):
        kind = "document"
    else:
        kind = "text"
    return kind


def _is_json_log(head):
    """Whether the first line is a JSON record of its own (NDJSON, JSON logging) and not the start of a document."""
    lines = [line for line in log_streams.head_lines(head, 20) if line.strip()]
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        return False
    if not isinstance(first, dict) or any(keys <= set(first) for keys in _DOCUMENT_KEYS):
        return False
    return len(lines) > 1 or bool(log_exports.of_object(first) or _RECORD_KEYS & set(first))


# What a whole document on one line has: Kubernetes, our own, Elasticsearch's answer, Loki's answer.
_DOCUMENT_KEYS = ({"apiVersion"}, {"kind", "metadata"}, {"items"}, {"schema"}, {"hits"}, {"status", "data"})
_RECORD_KEYS = frozenset(("message", "msg", "event"))


def opened(path):
    """``path`` as a binary stream; DocumentError says in one sentence why not."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        reason = "no such file or directory: check the path"
    except PermissionError:
        reason = "no permission to read it: make it readable for the user that runs this play"
    except OSError as error:
        reason = f"cannot be opened ({error.strerror or error})"
    raise DocumentError(f"{path}: {reason}")


def _other_logs(folder, stem):
    """Whether logs of another name lie there too: a pod.yaml among many logs belongs to one of them at most."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False
    return any(name.endswith(_LOGS) and trees.split_mark(name)[0] != stem for name in names)


class _Bundle:
    """What has been gathered so far; ``finish`` makes the evidence of it."""

    def __init__(self, detail, now, limits):
        self._limits = limits
        self._detail = detail
        self._redactor = Redactor()
        self._evidence = documents.evidence(now, "bundle", detail)
        self._formats = set()
        self._objects = trees.Objects()
        self._pieces = []
        self._logs = []
        self._nodes = {}
        self._saved = []
        self._kinds = set()
        # Whether the pods were given one by one: then each counts as an engine, whatever its image is called.
        self._given = True
        self._failing: set[Any] | None = None

    # --- ways in

    def stream(self, stream):
        reader = Reader(stream, self._detail, self._limits)
        kind = kind_of(reader)
        if kind in ("tar", "zip"):
            copy = spool(reader.stream(), self._detail, self._limits)

            def again():
                copy.seek(0)
                return os.fdopen(os.dup(copy.fileno()), "rb")

            self.tree((Tar if kind == "tar" else Zip)(self._detail, again, self._limits))
        else:
            self._file(reader, kind)

    def path(self, path, alone):
        """One file, and, when it came ``alone``, what lies beside it and belongs to it."""
        with opened(path) as stream:
            if not os.path.isfile(path):
                # A pipe (``<(kubectl logs …)``) can be read only once.
                self.stream(stream)
                return
            reader = Reader(stream, path, self._limits)
            kind = kind_of(reader)
            if kind not in ("tar", "zip"):
                self._file(reader, kind)
        if kind in ("tar", "zip"):
            self.tree((Tar if kind == "tar" else Zip)(path, lambda: opened(path), self._limits))
        elif alone and not self._saved:
            self._beside(path)

    def pod_file(self, path):
        """The file that the user named as the pod's; it must hold one."""
        with opened(path) as stream:
            reader = Reader(stream, path, self._limits)
            kind = kind_of(reader)
            if kind == "document":
                self._document(reader.document(), path)
            elif kind == "text":
                self._descriptions(reader)
        if not self._objects.of_kind("Pod") and not self._pieces:
            raise DocumentError(
                f"{path}: holds no pod{self._instead()}: save it with kubectl get pod NAME -o yaml"
            )

    def _beside(self, path):
        folder, own = os.path.split(path)
        stem, _mark = trees.split_mark(own)
        stem = _DOCUMENT_NAME.sub("", stem)
        if self._logs and not self._objects.of_kind("Pod") and not self._pieces:
            names = [stem + ending for ending in _BESIDE_ENDINGS]
            if not _other_logs(folder, stem):
                names += [
                    name + ending for name in _BESIDE_STEMS for ending in (".yaml", ".yml", ".json", ".txt")
                ]
        elif self._objects.of_kind("Pod") and not self._logs:
            names = [stem + ending for ending in ("-previous.log", ".previous.log", ".log", ".log.gz")]
        else:
            names = []
        for name in names:
            beside = os.path.join(folder, name)
            if name != own and os.path.isfile(beside):
                self._try(beside)

    def _try(self, path):
        """A file that was not asked for: what is wrong with it is named and no failure."""
        try:
            with opened(path) as stream:
                reader = Reader(stream, path, self._limits)
                kind = kind_of(reader)
                if kind in ("document", "text", "empty"):
                    self._file(reader, kind)
        except DocumentError as error:
            self._skip(path, str(error))
        except read_errors() as error:
            self._skip(path, str(error))

    # --- one file

    def _file(self, reader, kind):
        name = reader.name
        if kind == "binary":
            raise DocumentError(f"{name}: is a binary file, not a log: give {_LOOKED_FOR}")
        if kind == "document":
            found = self._document(reader.document(), name)
            if not found:
                raise DocumentError(f"{name}: holds no pod and no log{self._instead()}: give {_LOOKED_FOR}")
        else:
            if kind == "empty":
                self._name_empty(name)
            self._text(reader, _place_of_file(name))
        if reader.problem:
            self._skip(name, f"{reader.problem}; what came before was read", "the whole file")

    def _instead(self):
        """What a file holds in place of a pod, in words."""
        kinds = sorted(self._kinds - {"Pod"})
        return f" (it holds {', '.join(kinds)})" if kinds else ""

    def _skip(self, name, reason, needs=None):
        self._evidence["unreadable"].append(unreadable("bundle", name, self._redactor.text(reason), needs))

    def _name_empty(self, name):
        self._evidence["unreadable"].append(unreadable("log", name, "the file is empty", "the log itself"))

    def _document(self, data, name):
        """Take over what a JSON or YAML file holds; whether that was anything of use."""
        if b"==== START logs for container " in data:
            return self._dump(data, name)
        found = False
        for document in trees.load(data, name):
            found = self._one_document(document, name) or found
        return found

    def _one_document(self, document, name):
        if isinstance(document, list) and document and all(map(_schema_of, document)):
            taken = [self._one_document(item, name) for item in document]
            return any(taken)
        schema = _schema_of(document)
        if schema in _MADE_OF_EVIDENCE and not self._given:
            self._kinds.add(_MADE_OF_EVIDENCE[schema])
            return True
        if schema:
            self._saved.append(_saved(document, name))
            self._formats.add("evidence")
            return True
        objects = trees.objects_of(document, name)
        for raw in objects:
            self._objects.add(raw)
            self._kinds.add(raw["kind"])
        if objects:
            self._formats.add("kubernetes objects")
            return True
        records = log_exports.of_document(document)
        if records is None:
            self._kinds.update(trees.kinds_of(document))
            return False
        streams = self._streams()
        streams.records(records)
        self._formats.add("log export")
        self._take(streams, _place_of_file(name), name)
        return True

    def _dump(self, data, name):
        """``kubectl cluster-info dump`` to standard output: JSON lists and logs in one text."""
        self._given = False
        streams = self._streams()
        for section, text in log_streams.sections(data, None):
            if section:
                self._refused(log_streams.read_text([text], streams, section)[1], name)
            elif text.strip():
                for document in trees.load(text, name):
                    self._one_document(document, name)
        self._formats.add("cluster-info dump")
        self._take(streams, dict(_place_of_file(name), mark="current"), name)
        return True

    def _streams(self):
        return log_streams.Streams(lambda: LogScanner(redactor=self._redactor))

    def _text(self, reader, place, only_logs=False):
        """Scan a text file; ``only_logs``: its describe text was taken over before."""
        streams = self._streams()
        read_line = log_streams.line_reader(reader.head)
        if read_line:
            records = log_streams.exported(log_streams.lines_of(reader.chunks()), read_line)
            cut = streams.records(records)
            if cut:
                self._skip(reader.name, cut)
            self._formats.add("log export")
        else:
            blocks, refused = log_streams.read_text(reader.chunks(), streams)
            self._refused(refused, reader.name)
            if not only_logs:
                self._described(blocks)
            if not blocks and not refused and not streams:
                streams.of().feed(b"")
            if streams:
                self._formats.add("log")
        self._take(streams, place, reader.name)

    def _descriptions(self, reader):
        """The describe texts of a file, without its log lines."""
        blocks, _refused = log_streams.read_text(reader.chunks(), log_streams.Nowhere())
        self._described(blocks)

    def _described(self, blocks):
        if not blocks:
            return
        from . import describe

        for block in blocks:
            self._formats.add("describe")
            pod, events = describe.parse(block)
            if not pod["metadata"].get("name"):
                self._pieces.append(pod)
                continue
            self._objects.add(pod)
            for number, event in enumerate(events):
                event["apiVersion"] = "v1"
                event["metadata"] = {
                    "namespace": pod["metadata"].get("namespace"),
                    "name": f"{pod['metadata']['name']}.{number}",
                }
                self._objects.add(event)

    def _refused(self, refused, name):
        for source, reason in refused:
            about = "/".join(part for part in source[:3] if part) or name
            self._skip(about, f"its log was not given to whoever saved it ({reason})", f"the log of {about}")

    def _take(self, streams, place, name):
        self._nodes.update(streams.nodes)
        for (namespace, pod, container, attempt), excerpts in streams.close():
            own = {"namespace": namespace, "pod": pod, "container": container, "attempt": attempt}
            if not pod:
                own = {
                    key: value if own[key] is None else own[key] for key, value in place.items() if key in own
                }
            self._logs.append(Log(dict(place, **own), excerpts, name))

    # --- trees

    def tree(self, tree):
        """Two walks: what says which pods there are, then the logs of those that fail."""
        self._given = False
        names = []
        for entry in tree.entries():
            names.append(entry.name)
            self._guarded(tree, entry, self._first_look)
        pods = self._chosen()
        places = [place for place in map(trees.log_place, names) if place]
        by_place = bool(pods) and any(_key_of(place, pods) for place in places)
        known = _known(pods)
        for entry in tree.entries():
            place = self._log_of(entry.name, known, by_place)
            if place and (place["pod"] is None or self._is_wanted(place, pods)):
                self._guarded(tree, entry, self._read_log_of(place))
        self._evidence["unreadable"].extend(tree.problems)

    def _guarded(self, tree, entry, look):
        """Open one file of a tree for ``look``; what fails is named and the walk goes on."""
        try:
            look(tree, entry)
        except DocumentError as error:
            tree.skip(entry.name, str(error))
        except read_errors() as error:
            tree.skip(entry.name, f"cannot be read ({getattr(error, 'strerror', None) or error})")

    def _first_look(self, tree, entry):
        """Objects, exports and describe text; no logs yet."""
        if _ARCHIVE_NAME.search(entry.name):
            tree.skip(entry.name, "an archive inside, not opened", "its own path as the bundle")
            return
        is_document = _DOCUMENT_NAME.search(entry.name)
        is_text = trees.PLAIN_NAME.search(entry.name) and entry.size <= _DESCRIPTION
        if not is_document and (not is_text or trees.log_place(entry.name)):
            return
        with entry.open() as stream:
            reader = Reader(stream, entry.name, self._limits)
            kind = kind_of(reader)
            if kind == "document":
                data = reader.document()
                if trees.worth_parsing(data, entry.name) or _EXPORT.search(data):
                    self._document(data, entry.name)
            elif kind == "text" and not is_document:
                self._descriptions(reader)

    def _is_wanted(self, place, pods):
        """Whether the log of the pod that ``place`` names is read: it fails, or nothing is known of any pod."""
        if pods:
            return _key_of(place, pods) in self._kept(pods)
        return not self._objects.of_kind("Pod")

    def _log_of(self, name, known, by_place):
        """Whose log a file of a tree is, or None when it is none that is read.

        by_place: logs lie where the tools put them, so that a file elsewhere is none.
        """
        place = trees.log_place(name)
        may_be = trees.SURE_LOG_NAME.search(name) if by_place else trees.is_log_name(name)
        if (place is None or not by_place) and may_be:
            place = trees.log_place_by_names(name, known) or place
            if place is None and not by_place:
                place = _place_of_file(name)
        return place

    def _read_log_of(self, place):
        def read(tree, entry):
            with entry.open() as stream:
                reader = Reader(stream, entry.name, self._limits)
                kind = kind_of(reader)
                # A must-gather holds an empty one of every container that has had no previous run.
                if kind == "empty" and place["mark"] != "previous":
                    self._name_empty(entry.name)
                if kind in ("text", "empty"):
                    self._text(reader, place, only_logs=True)
                if reader.problem:
                    tree.skip(entry.name, f"{reader.problem}; what came before was read", "the whole file")

        return read

    # --- which pods

    def _chosen(self):
        """``{(namespace, name): raw pod}`` of the pods that go into the evidence.

        Those that run vLLM; a single pod that shows no sign of it counts all the same, since somebody sent it.
        """
        raw_pods = self._objects.of_kind("Pod")
        engines = [
            raw
            for raw in raw_pods
            if self._well_formed(_about(raw), partial(engine_container_index, raw)) is not None
        ]
        if not engines and len(raw_pods) == 1:
            engines = raw_pods
        engines.sort(key=lambda raw: str(raw["metadata"].get("creationTimestamp") or ""))
        return {(raw["metadata"].get("namespace"), raw["metadata"].get("name")): raw for raw in engines}

    def _kept(self, pods):
        """The keys of those ``pods`` that go into the evidence in full, their logs read.

        All that were given one by one. Of a tree those that fail, with the pods that form an engine with them; all
        when none fails, since somebody saved the tree for a reason.
        """
        if self._given:
            return set(pods)
        if self._failing is None:
            self._failing = {key for key, raw in pods.items() if self._fails(raw)}
            groups = {_group_of(pods[key]) for key in self._failing} - {None}
            self._failing |= {key for key, raw in pods.items() if _group_of(raw) in groups}
        return self._failing or set(pods)

    def _fails(self, raw):
        try:
            return is_suspicious(pod_evidence(raw, Redactor(), self._events_of(raw)), float("inf"))
        except MALFORMED:
            return True

    # --- the end

    def finish(self):
        pods = self._chosen()
        if self._saved:
            if pods or self._logs:
                self._skip(self._detail, "holds saved evidence; the pods and logs beside it were left aside")
            return _merged(self._saved, self._evidence["unreadable"])
        logs = self._logs_by_pod(pods)
        for key in sorted(self._kept(pods), key=str):
            self._add(pods[key], logs.pop(key, []))
        self._evidence["counts"]["engines"] = len(pods)
        if self._pieces and not logs and not pods:
            logs[(None, trees.split_mark(self._detail)[0])] = []
        for key in sorted(logs, key=lambda key: (key[0] or "", key[1])):
            self._add_without_object(key, logs[key], alone=len(logs) == 1 and not pods)
        if self._pieces and (pods or len(logs) > 1):
            self._skip(self._detail, "a piece of describe text doesn't say which pod it is about, left aside")
        if not self._evidence["pods"]:
            raise DocumentError(f"{self._detail}: {self._nothing_useful()}{self._not_read()}")
        self._add_surroundings()
        self._evidence["counts"]["pods_seen"] = len(self._objects.of_kind("Pod"))
        # Line numbers of the evidence are those of this file, where it is a single log.
        single = self._formats == {"log"} and os.path.isfile(self._detail)
        self._evidence["source"].update(formats=sorted(self._formats), file=self._detail if single else None)
        return assemble.finish(self._evidence, self._redactor)

    def _logs_by_pod(self, pods):
        """``{(namespace, pod): [Log]}``; a log whose pod isn't known goes under the name of its file."""
        known = _known(pods)
        found: dict[Any, list[Log]] = {}
        for log in self._logs:
            place = log.place
            if not place["pod"]:
                # Of a file that was given alone, the folders above it say nothing.
                name = os.path.basename(log.name) if self._given else log.name
                place = trees.log_place_by_names(name, known) or place
            key = _key_of(place, pods)
            if key is None and not place["pod"] and len(pods) == 1 and (self._given or _shows_vllm(log)):
                key = next(iter(pods))
            if key is None:
                key = (place["namespace"], place["pod"] or trees.split_mark(log.name)[0])
            merged = dict(place, container=place["container"] or log.place["container"])
            found.setdefault(key, []).append(log._replace(place=merged))
        return found

    def _add(self, raw, logs):
        about = _about(raw)
        events = self._events_of(raw)
        item = self._well_formed(about, lambda: pod_evidence(raw, self._redactor, events))
        if item is None:
            return
        if not any(container["engine"] for container in item["containers"]):
            joining.mark_engine(item, logs)
        if not any(container["engine"] for container in item["containers"]):
            return
        self._join(item, logs)
        objects = self._objects
        found = self._well_formed(
            f"the owners of {about}",
            lambda: workload_evidence(raw, objects.lookup, objects.listing, self._redactor),
        )
        if found is not None:
            item["workload"] = found
            item["events"] = sort_events(item["events"] + self._owner_events(found))
        item["group"] = _group_of(raw)

    def _well_formed(self, about, read):
        """What ``read()`` makes of saved objects; None, and named, where their fields aren't what the API's are."""
        try:
            return read()
        except MALFORMED as error:
            self._skip(
                about, f"not as the Kubernetes API writes it ({error}), left aside", "kubectl get -o yaml"
            )
            return None

    def _events_of(self, raw):
        return self._objects.events_about(raw["metadata"].get("name"))

    def _owner_events(self, workload):
        """Warnings about the objects that own a pod."""
        return [
            event_evidence(raw, self._redactor)
            for owner in workload["chain"]
            for raw in self._objects.events_about(owner["name"])
            if owner["uid"] and involved(raw).get("uid") == owner["uid"] and raw.get("type") == "Warning"
        ]

    def _add_without_object(self, key, logs, alone):
        """A pod of which only logs were saved; ``alone``: it is the only one, so that pieces of describe text are its."""
        namespace, name = key
        pieces = self._pieces if alone else []
        was_given = alone and self._given
        if not (was_given or pieces or any(_shows_vllm(log) for log in logs)):
            self._skip(name, "shows no sign of vLLM, left aside")
            return
        raw = joining.raw_pod(namespace, name, logs, pieces)
        item = pod_evidence(raw, self._redactor, self._events_of(raw))
        item["node"] = self._nodes.get(key)
        joining.mark_engine(item, logs)
        self._join(item, logs)

    def _join(self, item, logs):
        for note in joining.join(item, logs):
            self._skip(*note)
        item["suspicious"] = is_suspicious(item, float("inf"))
        for container in item["containers"]:
            self._name_missing_logs(item, container)
            excerpts = [attempt["log"] for attempt in container["attempts"] if attempt["log"]["readable"]]
            assemble.finish_container(container, excerpts, item["labels"])
        self._evidence["pods"].append(item)

    def _name_missing_logs(self, item, container):
        """Runs of an engine that ended and whose log nobody saved."""
        for attempt in container["attempts"]:
            if container["engine"] and attempt["state"] == "terminated" and not attempt["log"]["readable"]:
                name = "/".join(part for part in (item["namespace"], item["name"], container["name"]) if part)
                self._evidence["unreadable"].append(
                    unreadable(
                        "log",
                        f"{name} (run {attempt['index']})",
                        attempt["log"]["reason"],
                        f"the log of that run (kubectl logs {item['name']} -c {container['name']} --previous)",
                    )
                )

    def _add_surroundings(self):
        """Nodes and namespaces of the pods, as far as they were saved."""
        names = {item["node"] for item in self._evidence["pods"] if isinstance(item["node"], str)}
        for raw in self._objects.of_kind("Node"):
            if raw["metadata"].get("name") in names:
                name = raw["metadata"]["name"]
                found = self._well_formed(f"Node/{name}", partial(self._node, raw))
                if found is not None:
                    self._evidence["nodes"][name] = found
        for namespace in {item["namespace"] for item in self._evidence["pods"] if item["namespace"]}:
            quotas = self._objects.of_kind("ResourceQuota", namespace)
            ranges = self._objects.of_kind("LimitRange", namespace)
            if quotas or ranges:
                found = self._well_formed(
                    f"quotas of {namespace}", partial(namespace_evidence, quotas, ranges)
                )
                if found is not None:
                    self._evidence["namespaces"][namespace] = found

    def _node(self, raw):
        return node_evidence(raw, self._redactor, self._events_of(raw))

    def _not_read(self):
        """What could not be read, to explain why nothing is left."""
        entries = self._evidence["unreadable"]
        if not entries:
            return ""
        more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
        return f" (not read: {entries[0]['object']}, {entries[0]['reason']}{more})"

    def _nothing_useful(self):
        raw_pods = self._objects.of_kind("Pod")
        if not raw_pods:
            return f"holds nothing that can be diagnosed{self._instead()}: give {_LOOKED_FOR}"
        named = [
            f"{raw['metadata'].get('namespace')}/{raw['metadata'].get('name')}" for raw in raw_pods[:_NAMED]
        ]
        more = f" and {len(raw_pods) - _NAMED} more" if len(raw_pods) > _NAMED else ""
        return (
            f"none of its {len(raw_pods)} pods runs vLLM (it holds {', '.join(named)}{more}): give the dump of the"
            " namespace that vLLM runs in"
        )


# An exported log among JSON files (Loki's and Elasticsearch's answers, arrays of records), or a document of ours.
_EXPORT = re.compile(rb'"(?:hits|resultType|textPayload|_source|values|log|line)"\s*:|"vllm_runbook\.oom/')


def _group_of(raw):
    try:
        return group_of(raw)
    except MALFORMED:
        return None


def _about(raw):
    return f"Pod/{raw['metadata'].get('namespace')}/{raw['metadata'].get('name')}"


def _known(pods):
    return [(namespace, name, _container_names(raw)) for (namespace, name), raw in pods.items()]


def _place_of_file(name):
    """What a file's own name says of whose log it is. A dump's ``logs.txt`` names its containers inside."""
    place = trees.log_place(name)
    if place and place["container"]:
        return place
    return {
        "namespace": None,
        "pod": None,
        "container": None,
        "mark": trees.split_mark(name)[1],
        "attempt": None,
    }


def _container_names(raw):
    try:
        spec = raw.get("spec") or {}
        return [
            str(item["name"]) for field in ("containers", "initContainers") for item in spec.get(field) or []
        ]
    except MALFORMED:
        return []


def _key_of(place, pods):
    """The key in ``pods`` of the pod that ``place`` names, or None; a missing namespace fits when it is clear."""
    if (place["namespace"], place["pod"]) in pods:
        return place["namespace"], place["pod"]
    same_name = [key for key in pods if key[1] == place["pod"] and (not place["namespace"] or not key[0])]
    return same_name[0] if len(same_name) == 1 else None


def _shows_vllm(log):
    return any(joining.shows_vllm(excerpt) for excerpt in log.excerpts)


def _schema_of(document):
    """The schema of a document of ours, or None."""
    schema = document.get("schema") if isinstance(document, dict) else None
    return schema if isinstance(schema, str) and schema.startswith("vllm_runbook.oom/") else None


def _saved(document, name):
    """A saved evidence document, checked; DocumentError when it is another or an unknown one."""
    schema = document["schema"]
    if schema != EVIDENCE_SCHEMA:
        family = EVIDENCE_SCHEMA.rpartition("/")[0]
        if schema.startswith(family):
            raise DocumentError(
                f"{name}: is evidence of schema {schema}, this version of the collection reads {EVIDENCE_SCHEMA}:"
                " use the version of the collection that saved it, or collect again"
            )
        raise DocumentError(f"{name}: has schema {schema}, evidence ({EVIDENCE_SCHEMA}) is needed")
    for field, kind in (("pods", list), ("nodes", dict), ("namespaces", dict), ("unreadable", list)):
        if not isinstance(document.get(field), kind):
            raise DocumentError(
                f"{name}: evidence whose field {field!r} is missing or damaged: save it again"
            )
    return document


def _is_of_a_node(document):
    return (document.get("source") or {}).get("kind") == "node"


def _merged(saved, more_unreadable):
    """Several saved evidence documents as one; a single one stays as it is. What nodes said themselves goes to their nodes."""
    of_nodes = [document for document in saved if _is_of_a_node(document)]
    others = [document for document in saved if not _is_of_a_node(document)]
    if of_nodes and others:
        return with_nodes(_merged(others, more_unreadable), of_nodes)
    if len(saved) == 1:
        return dict(saved[0], unreadable=[*saved[0]["unreadable"], *more_unreadable])
    first = saved[0]
    whole = documents.evidence(first.get("collected_at"), "bundle", f"{len(saved)} evidence documents")
    for document in saved:
        for field in ("pods", "unreadable"):
            whole[field].extend(document[field])
        for field in ("nodes", "namespaces", "metrics"):
            whole[field].update(document.get(field) or {})
        for field in whole["counts"]:
            whole["counts"][field] += (document.get("counts") or {}).get(field) or 0
        summary = document.get("redactions") or {}
        assemble.add_redactions(
            whole, {"count": summary.get("count") or 0, "kinds": summary.get("kinds") or {}}
        )
    whole["unreadable"].extend(more_unreadable)
    whole["groups"] = assemble.groups_of(whole["pods"])
    return whole
