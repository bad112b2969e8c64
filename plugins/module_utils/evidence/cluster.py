# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live cluster as an evidence document, in one pass over the API.

Pods are listed page by page; only the suspicious ones (and the pods that form an engine with them) are kept
and looked at: events, owners, quotas, node, and the logs of the containers that matter, several at once, each
streamed through the scanner. What is refused or gone becomes an ``unreadable`` entry that names the missing
right, and the rest goes on.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial

from ..documents import DocumentError, evidence, log, unreadable
from . import absent_pods, assemble, container_files, groups, workloads
from .client import NODE_FAILURES, WORKERS, ApiError, BrokeOff, LogGone
from .events import (
    concerns,
    event_evidence,
    events_about,
    first_time,
    involved,
    last_time,
    sort_events,
)
from .log_scan import LogScanner, completeness
from .namespaces import namespace_evidence
from .nodes import node_evidence
from .pods import (
    DEFAULT_SINCE,
    MALFORMED,
    is_bad_event,
    is_suspicious,
    parse_time,
    pod_evidence,
    recognise_engine,
)
from .redact import Redactor

_MAX_EVENTS_OF_ONE_OBJECT = 50
_MAX_NAMED = 8
# Owners' events that tell why pods don't come (quota, webhook, limit range); facts section 2.
_OWNER_KINDS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "LeaderWorkerSet", "Deployment")
# API groups that a cluster need not have: asking for their kinds without the group only yields refusals.
_OPTIONAL_GROUPS = ("keda.sh", "autoscaling.k8s.io")
_MAX_VALUE = 2000
_METRICS_GROUP = "metrics.k8s.io"
# What helps where a node has removed a log.
_LOG_STORE = "an export of the cluster's log store, if it has one"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_FORBIDDEN = re.compile(r'User "([^"]*)" cannot (\w+) resource "([^"]+)"')


class CollectionError(DocumentError):
    """Nothing could be diagnosed. ``evidence`` is what was seen until then, ``unreadable`` entries included."""

    def __init__(self, message, partial):
        super().__init__(message)
        self.evidence = partial


def collect(client, query):
    """The evidence of what ``query`` selects, read with ``client`` (client.Client or something like it).

    query: ``namespace`` (default: the client's), ``all_namespaces``, ``pod``, ``selector``, ``since`` (seconds),
    ``exec`` (never, running). Raises CollectionError with one sentence when there is nothing to diagnose:
    cluster not reachable, credentials refused, no right to list pods, unknown namespace or pod, no vLLM pods.
    """
    for kind in ("namespace", "pod"):
        if query.get(kind) and not _NAME.fullmatch(query[kind]):
            raise DocumentError(f"{query[kind]!r} is no name of a {kind}: give a name as kubectl prints it")
    return _Collection(client, query).run()


class _Kept:
    """A pod that goes into the document: its raw object, its evidence and its own redactor."""

    def __init__(self, raw, redactor, asked=False):
        self.raw = raw
        self.redactor = redactor
        self.evidence = pod_evidence(raw, redactor, asked=asked)
        self.evidence["group"] = groups.group_of(raw)
        # Raw events of owners that may not create this pod's replicas.
        self.refusals = []


class _Collection:
    def __init__(self, client, query):
        self.client = client
        self.query = query
        self.now = datetime.now(timezone.utc)
        self.since = query.get("since") or DEFAULT_SINCE
        self.namespace = None if query.get("all_namespaces") else (query.get("namespace") or client.namespace)
        self.redactors = []
        self.document = evidence(
            self.now.strftime("%Y-%m-%dT%H:%M:%SZ"), "cluster", self._clean(self._source())
        )
        self.kept = {}
        self.engines = {}
        self.members = []
        self.others = []
        self.replicas = {}
        self.refused = set()
        self.seen = set()
        self.nodes_with_logs = set()
        self.silent_nodes = {}
        self.owner_events = {}
        self.last_words = {}
        self.node_events = []
        self.objects = {}
        self.api_groups = None

    def run(self):
        try:
            self._list_pods()
        except ApiError as error:
            raise self._failure(self._why(error)) from error
        pod_events = self._read_events()
        self._keep_by_events(pod_events)
        self._well_formed("event", "events of refused pods", self._keep_beside_refused)
        self._well_formed("event", "events of pods that are gone", self._note_the_gone)
        self._keep_groups()
        for uid, item in self.kept.items():
            item.evidence["events"] = sort_events(
                self._events_about(item, pod_events.get(uid, ()))
                + [event_evidence(event, item.redactor) for event in item.refusals]
            )
            item.evidence["suspicious"] = is_suspicious(item.evidence, self.since, self.now)
        self._read_the_rest()
        return self._finish()

    # --- which pods

    def _list_pods(self):
        """Sort the pods into kept, healthy engines and others; raises ApiError or CollectionError."""
        if self.query.get("pod"):
            self._find_pod()
            return
        params = {"labelSelector": self.query["selector"]} if self.query.get("selector") else {}
        path = f"/api/v1/namespaces/{self.namespace}/pods" if self.namespace else "/api/v1/pods"
        for raw in self.client.pages(path, params):
            self._sort_pod(raw)
        self.document["counts"]["engines"] = len(self.engines)
        if not self.engines:
            raise self._failure(self._no_engines())

    def _sort_pod(self, raw):
        self.document["counts"]["pods_seen"] += 1
        self._well_formed("pod", _name_of(raw), partial(self._sort_well_formed, raw))

    def _sort_well_formed(self, raw):
        metadata = raw.get("metadata") or {}
        metadata.pop("managedFields", None)
        self.seen.add(metadata.get("uid"))
        group = groups.group_of(raw)
        engine = recognise_engine(raw)
        if engine is None and group is None:
            if len(self.others) < _MAX_NAMED:
                self.others.append(_describe(raw))
            return
        place = _place(raw, group)
        _texts(
            place["uid"], place["namespace"] or 0, place["name"] or 0, (raw.get("spec") or {}).get("nodeName")
        )
        seen = pod_evidence(raw, Redactor())
        suspicious = is_suspicious(seen, self.since, self.now)
        if engine:
            self._count_replica(raw, seen)
            self.engines[place["uid"]] = place
        else:
            self.members.append(place)
        if engine and suspicious:
            self.kept[place["uid"]] = _Kept(raw, self._redactor())
        elif group is None:
            # A healthy pod stays as a name only: a fleet's objects aren't held.
            place["raw"] = None

    def _find_pod(self):
        name = self.query["pod"]
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        try:
            raw = self.client.get(f"{path}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            raise self._failure(self._unknown_pod(name)) from error
        self._sort_pod(raw)
        try:
            uid = (raw.get("metadata") or {}).get("uid")
            self.kept[uid] = _Kept(raw, self._redactor(), asked=True)
        except MALFORMED as error:
            raise self._failure(
                f"the pod {name} in namespace {self.namespace} is {_not_the_apis(error)}"
            ) from error
        self.engines.setdefault(uid, _place(raw, groups.group_of(raw)))
        selector = self._relatives(raw)
        if selector:
            try:
                for other in self.client.pages(path, {"labelSelector": selector}):
                    if (other.get("metadata") or {}).get("uid") != uid:
                        self._sort_pod(other)
            except ApiError as error:
                self._note(error, "pods", f"other pods of {name}", f"list pods in namespace {self.namespace}")
        self._drop_strangers(uid)
        self.document["counts"]["engines"] = len(self.engines)

    @staticmethod
    def _relatives(raw):
        """A label selector for the pods that form an engine with this one, else for its replicas."""
        found = groups.group_labels(raw)
        if found:
            return ",".join(f"{key}={value}" for key, value in found[1].items())
        labels = (raw.get("metadata") or {}).get("labels") or {}
        for key in ("pod-template-hash", "controller-revision-hash"):
            if labels.get(key):
                return f"{key}={labels[key]}"
        return None

    def _drop_strangers(self, uid):
        """A named pod's replicas only count; they are looked at when they were asked for or share its engine."""
        group = self.kept[uid].evidence["group"]
        for other in [key for key, item in self.kept.items() if key != uid]:
            if group is None or self.kept[other].evidence["group"] != group:
                del self.kept[other]

    def _count_replica(self, raw, seen):
        """How many pods of the same template are Ready: if sisters serve, the template isn't the first suspect."""
        key = _template_key(raw)
        total = self.replicas.setdefault(key, {"pods": 0, "ready": 0})
        total["pods"] += 1
        total["ready"] += any(
            item["type"] == "Ready" and item["status"] == "True" for item in seen["conditions"]
        )

    def _keep_by_events(self, pod_events):
        """Healthy looking pods with OOM, Killing or Evicted events are suspicious too."""
        for uid, events in pod_events.items():
            place = self.engines.get(uid)
            if uid in self.kept or place is None or self.query.get("pod"):
                continue
            if not any(is_bad_event(event_evidence(item, Redactor())) for item in events):
                continue
            item = self._fetch(place)
            if not item:
                continue
            item.evidence["events"] = self._events_about(item, events)
            if is_suspicious(item.evidence, self.since, self.now):
                self.kept[uid] = item

    def _fetch(self, place):
        """A pod of which only the name was kept, as ``_Kept``, or None."""
        raw = place["raw"] or self._try(
            lambda: self.client.get(f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}"),
            "pod",
            f"{place['namespace']}/{place['name']}",
            f"get pods in namespace {place['namespace']}",
        )
        return raw and self._well_formed("pod", _name_of(raw), partial(_Kept, raw, self._redactor()))

    def _keep_beside_refused(self):
        """Replicas that a quota or policy refuses exist only as events of their owner: a pod beside them tells of it.

        Where there is none, the refusal is named on its own, if the owner's template is an engine.
        """
        for raw, owner in self._refusals():
            about = involved(raw)
            places = [
                place
                for place in self.engines.values()
                if place["namespace"] == about.get("namespace")
                and absent_pods.is_under(place["owner"], about, owner)
            ]
            if not places:
                # The query may hide the pods that are there.
                if _has_engine(owner) and not self.query.get("pod") and not self.query.get("selector"):
                    self._note_absent(f"{about.get('kind')}/{about.get('name')}", raw, "its pods are refused")
                continue
            place = next((item for item in places if item["uid"] in self.kept), places[0])
            if place["uid"] not in self.kept and not self.query.get("pod"):
                item = self._fetch(place)
                if item:
                    self.kept[place["uid"]] = item
            if place["uid"] in self.kept:
                self.kept[place["uid"]].refusals.append(raw)

    def _refusals(self):
        """``(newest refusal, its raw owner)`` of owners that lack pods now; the owner is {} when it may not be read."""
        for events in list(self.owner_events.values()):
            raw = absent_pods.refusal([event for event in events if self._is_recent(event)])
            owner = raw and self._well_formed("event", _name_of(raw), partial(self._short_owner, raw))
            if owner is not None:
                yield raw, owner

    def _short_owner(self, raw):
        """The object that a refusal is about, ``{}`` when it may not be read, None when it is gone or has its pods."""
        about = involved(raw)
        known = workloads.kind_of(about.get("apiVersion") or "", about.get("kind"))
        if known is None:
            return {}
        path = f"{_root(about['apiVersion'])}/namespaces/{about.get('namespace')}/{known.plural}/{about.get('name')}"
        if path not in self.objects:
            try:
                self.objects[path] = self.client.get(path)
            except ApiError as error:
                return None if error.status == 404 else {}
        owner = self.objects[path] or {}
        return None if absent_pods.has_all_pods(owner) else owner

    def _note_the_gone(self):
        """Pods that died and are no more are named with the last that was heard of them."""
        # A selector hides pods that are still there.
        if self.query.get("pod") or self.query.get("selector"):
            return
        names = [place["name"] for place in self.engines.values()]
        telling = [
            raw
            for raw in self._gone()
            if absent_pods.looks_like_engine(raw, names)
            and not (self.engines and absent_pods.is_ordinary(raw))
        ]
        there = {(place["namespace"], place["name"]) for place in self.engines.values()}
        for raw in telling[:_MAX_NAMED]:
            about = involved(raw)
            again = (about.get("namespace"), about.get("name")) in there
            what = "an earlier pod of this name is gone with its logs" if again else "gone with its logs"
            self._note_absent(about.get("name"), raw, what)

    def _note_absent(self, name, raw, what):
        namespace = involved(raw).get("namespace")
        reason = self._clean(f"{what}; its last event is {absent_pods.words(raw)}")
        self.document["unreadable"].append(unreadable("pod", self._clean(f"{namespace}/{name}"), reason))

    def _gone(self):
        """The most telling event of each pod that is gone, newest first."""
        recent = [raw for raw in self.last_words.values() if self._is_recent(raw)]
        return sorted(recent, key=lambda raw: last_time(raw) or "", reverse=True)

    def _is_recent(self, raw):
        seen = parse_time(last_time(raw))
        return seen is None or (self.now - seen).total_seconds() <= self.since

    def _keep_groups(self):
        """Every pod of an engine of which one pod is suspicious: the first error may be in another pod."""
        wanted = {item.evidence["group"] for item in self.kept.values() if item.evidence["group"]}
        for place in [*self.engines.values(), *self.members]:
            if place["group"] in wanted and place["uid"] not in self.kept and place["raw"]:
                self.kept[place["uid"]] = _Kept(place["raw"], self._redactor())

    # --- events

    def _read_events(self):
        """``{pod uid: [raw events]}`` of the engines; owners' and nodes' events are set aside."""
        found: dict[str, list[dict]] = {}
        namespace = self.namespace
        path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
        where = f"namespace {namespace}" if namespace else "all namespaces"
        try:
            for raw in self.client.pages(path):
                if self._well_formed("event", _name_of(raw), partial(_checked_event, raw)) is None:
                    continue
                about = involved(raw)
                if about.get("kind") == "Pod" and about.get("uid") in self.engines:
                    _append(found.setdefault(about["uid"], []), raw)
                elif about.get("kind") == "Pod" and about.get("uid") not in self.seen:
                    if absent_pods.is_death(raw):
                        known = self.last_words.get(about.get("uid"))
                        self.last_words[about.get("uid")] = absent_pods.more_telling(known, raw)
                elif about.get("kind") in _OWNER_KINDS and raw.get("type") == "Warning":
                    _append(self.owner_events.setdefault(about.get("uid"), []), raw)
                elif about.get("kind") == "Node":
                    self.node_events.append(raw)
        except ApiError as error:
            self._note(error, "events", where, f"list events in {where}")
        return found

    def _events_about(self, item, events):
        read = partial(events_about, dict(item.raw, kind="Pod"), events, item.redactor)
        return self._well_formed("event", f"events of {_name_of(item.raw)}", read) or []

    def _read_node_events(self):
        """The kubelet and node-problem-detector write node events into the namespace default."""
        if self.namespace in (None, "default"):
            return
        params = {"fieldSelector": "involvedObject.kind=Node"}
        try:
            self.node_events += list(self.client.pages("/api/v1/namespaces/default/events", params))
        except ApiError as error:
            self._note(error, "events", "nodes", "list events in namespace default")

    # --- the rest, several at once

    def _read_the_rest(self):
        kept = list(self.kept.values())
        if not kept:
            return
        names = sorted({item.evidence["namespace"] for item in kept})
        nodes = sorted({item.evidence["node"] for item in kept if item.evidence["node"]})
        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            waiting = [pool.submit(self._read_owners, kept)]
            waiting += [pool.submit(self._read_namespace, name) for name in names]
            waiting.append(pool.submit(self._read_nodes, nodes))
            for item in kept:
                waiting += [pool.submit(self._read_log, *task) for task in self._log_tasks(item)]
            for future in waiting:
                future.result()
            if self.query.get("exec") == "running":
                for future in [pool.submit(self._look_inside, item) for item in kept]:
                    future.result()
        for item in kept:
            self._finish_pod(item)

    def _read_owners(self, kept):
        for item in kept:
            found = self._well_formed(
                "object",
                f"the owners of {_name_of(item.raw)}",
                partial(workloads.workload_evidence, item.raw, self._lookup, self._listing, item.redactor),
            )
            if found is None:
                continue
            if found["replicas"] is not None:
                total = self.replicas.get(_template_key(item.raw)) or {}
                found["replicas"]["same_template_ready"] = total.get("ready")
            item.evidence["workload"] = found
            owners = [entry["uid"] for entry in found["chain"] if entry["uid"]]
            raw_events = [
                event
                for uid in owners
                for event in self.owner_events.get(uid, ())
                if not any(event is known for known in item.refusals)
            ]
            item.evidence["events"] = sort_events(
                item.evidence["events"] + [event_evidence(event, item.redactor) for event in raw_events]
            )

    def _lookup(self, api_version, kind, namespace, name):
        if kind == "Node":
            return None
        plural = self._plural(api_version, kind)
        if plural is None:
            return None
        raw = self._read_once(
            f"{_root(api_version)}/namespaces/{namespace}/{plural}/{name}",
            f"{kind}/{name}",
            f"get {_resource(plural, api_version)} in namespace {namespace}",
        )
        if isinstance(raw, dict):
            raw.setdefault("kind", kind)
            raw.setdefault("apiVersion", api_version)
        return raw

    def _listing(self, api_version, kind, namespace):
        group = workloads.api_group(api_version)
        if group in _OPTIONAL_GROUPS and group not in self._groups():
            return []
        plural = workloads.KINDS[group, kind].plural
        path = f"{_root(api_version)}/namespaces/{namespace}/{plural}"
        if path not in self.objects:
            self.objects[path] = (
                self._try(
                    lambda: list(self.client.pages(path)),
                    plural,
                    f"namespace {namespace}",
                    f"list {_resource(plural, api_version)} in namespace {namespace}",
                    absent_is_fine=True,
                )
                or []
            )
        return self.objects[path]

    def _groups(self):
        """The API groups that the cluster serves; all optional ones when it doesn't say."""
        if self.api_groups is None:
            try:
                served = self.client.get("/apis").get("groups") or []
                self.api_groups = {item.get("name") for item in served}
            except ApiError:
                self.api_groups = set(_OPTIONAL_GROUPS)
        return self.api_groups

    def _plural(self, api_version, kind):
        known = workloads.kind_of(api_version, kind)
        if known:
            return known.plural
        listed = self._read_once(
            _root(api_version), f"resources of {api_version}", f"get {_root(api_version)}"
        )
        return next(
            (
                item.get("name")
                for item in (listed or {}).get("resources") or []
                if item.get("kind") == kind and "/" not in (item.get("name") or "")
            ),
            None,
        )

    def _read_once(self, path, name, needs):
        if path not in self.objects:
            self.objects[path] = self._try(lambda: self.client.get(path), "object", name, needs)
        return self.objects[path]

    def _read_namespace(self, name):
        listed = {}
        for plural in ("resourcequotas", "limitranges"):
            path = f"/api/v1/namespaces/{name}/{plural}"
            listed[plural] = (
                self._try(
                    lambda path=path: list(self.client.pages(path)),
                    plural,
                    f"namespace {name}",
                    f"list {plural} in namespace {name}",
                )
                or []
            )
        found = self._well_formed(
            "object",
            f"quotas of {name}",
            partial(namespace_evidence, listed["resourcequotas"], listed["limitranges"]),
        )
        if found is not None:
            self.document["namespaces"][name] = found

    def _read_nodes(self, names):
        if not names:
            return
        self._read_node_events()
        for name in names:
            raw = self._try(
                lambda name=name: self.client.get(f"/api/v1/nodes/{name}"),
                "node",
                name,
                "get nodes (a ClusterRole)",
            )
            found = raw and self._well_formed("node", name, partial(self._node, raw))
            if found:
                self.document["nodes"][name] = found

    def _node(self, raw):
        events = [item for item in self.node_events if concerns(item, dict(raw, kind="Node"))]
        return node_evidence(raw, self._redactor(), events)

    # --- logs

    def _log_tasks(self, item):
        """``(kept pod, container, attempt, previous)`` of each log to read."""
        together = item.evidence["group"] is not None
        tasks = []
        for container in item.evidence["containers"]:
            attempts = container["attempts"]
            for entry in attempts:
                previous = entry is not attempts[-1]
                if entry["state"] != "waiting" and (
                    container["engine"] or (together and container["role"] == "main") or _went_wrong(entry)
                ):
                    tasks.append((item, container, entry, previous))
        return tasks

    def _read_log(self, item, container, entry, previous):
        pod = item.evidence
        right = f"get pods/log in namespace {pod['namespace']}"
        name = f"{pod['namespace']}/{pod['name']}/{container['name']}" + (" (previous)" if previous else "")
        known, needs = self._known_refusal(pod, right)
        if known:
            entry["log"] = log(readable=False, reason=known)
            self.document["unreadable"].append(unreadable("log", name, known, needs))
            return
        params = {"container": container["name"], "timestamps": "true"}
        if previous:
            params["previous"] = "true"
        excerpt, redactor, error = self._scan_log(pod, params)
        if isinstance(error, BrokeOff):
            # Once more from the beginning: the API server may have been restarted meanwhile.
            again = self._scan_log(pod, params)
            if again[0]["lines"] >= excerpt["lines"]:
                excerpt, redactor, error = again
        self.redactors.append(redactor)
        reason = None
        if error:
            reason, needs = self._refused_log(error, pod, previous, right)
            self.document["unreadable"].append(unreadable("log", name, reason, needs))
        if reason and not excerpt["lines"]:
            entry["log"] = log(readable=False, reason=reason)
        else:
            excerpt.update(complete=completeness(excerpt, entry["started_at"]), reason=reason)
            entry["log"] = excerpt

    def _scan_log(self, pod, params):
        """``(excerpt, its redactor, error)`` of one request for a log; error is None when it was read to its end."""
        redactor = Redactor()
        scanner = LogScanner(redactor)
        failure = None
        try:
            for chunk in self.client.log(pod["namespace"], pod["name"], params):
                scanner.feed(chunk)
            self.nodes_with_logs.add(pod["node"])
        except ApiError as error:
            failure = error
        return scanner.close(), redactor, failure

    def _known_refusal(self, pod, right):
        """``(reason, what is needed)`` when an earlier answer says that this log can't be had, else (None, None)."""
        if right in self.refused:
            return "forbidden", right
        return self.silent_nodes.get(pod["node"]), None

    def _refused_log(self, error, pod, previous, right):
        """``(reason, what is needed)`` of a log that was refused, remembered where it holds for others too."""
        if error.status == 403:
            self.refused.add(right)
            return "forbidden", right
        if error.status in NODE_FAILURES and pod["node"]:
            why = re.sub(r'^Get "[^"]*": ', "", error.message)
            reason = self._clean(f"the kubelet of node {pod['node']} gives no logs ({error.status}: {why})")
            # A node that has given one is not silent as a whole.
            if pod["node"] not in self.nodes_with_logs:
                reason = self.silent_nodes.setdefault(pod["node"], reason)
            return reason, None
        gone = isinstance(error, LogGone) or (error.status == 400 and previous)
        return self._clean(_log_refusal(error, previous)), _LOG_STORE if gone else None

    # --- inside containers, only when asked for

    def _look_inside(self, item):
        for container in item.evidence["containers"]:
            if not container["engine"] or container["attempts"][-1]["state"] != "running":
                continue
            name = f"{item.evidence['namespace']}/{item.evidence['name']}/{container['name']}"
            reason, needs = self._reason_to_stay_out(item, container)
            if reason:
                self.document["unreadable"].append(unreadable("exec", name, reason, needs))
                continue
            try:
                container_files.read_inside(
                    lambda command, name=container["name"]: self.client.exec(
                        item.evidence["namespace"], item.evidence["name"], name, command
                    ),
                    item.evidence,
                    container,
                    self.document["nodes"].get(item.evidence["node"]),
                )
            except ApiError as error:
                self._note(
                    error, "exec", name, f"create and get pods/exec in namespace {item.evidence['namespace']}"
                )

    def _reason_to_stay_out(self, item, container):
        """``(reason, what is needed)``: an exec'd process is charged to the container and may be the last straw."""
        namespace, pod = item.evidence["namespace"], item.evidence["name"]
        if not container_files.has_memory_limit(container):
            return None, None
        try:
            metrics = self.client.get(f"/apis/{_METRICS_GROUP}/v1beta1/namespaces/{namespace}/pods/{pod}")
        except ApiError as error:
            why, needs = self._why_no_metrics(error, namespace)
            return self._clean(f"not entered: how much of its memory limit it uses is unknown ({why})"), needs
        return container_files.reason_to_stay_out(container, metrics), None

    def _why_no_metrics(self, error, namespace):
        if error.status == 403:
            return "PodMetrics: forbidden", f"get pods.{_METRICS_GROUP} in namespace {namespace}"
        if error.status == 404 and _METRICS_GROUP in self._groups():
            return (
                "metrics-server has no PodMetrics of this pod yet",
                "a second run, a minute after the pod's start",
            )
        if error.status == 404:
            return "the cluster serves no PodMetrics", "metrics-server"
        return f"PodMetrics: {_reason(error)}", "a metrics-server that answers"

    # --- settings from elsewhere

    def _finish_pod(self, item):
        for container in item.evidence["containers"]:
            if not container["engine"]:
                continue
            self._fill_environment(item, container)
            excerpts = [entry["log"] for entry in container["attempts"]]
            labels = item.evidence["labels"]
            assemble.finish_container(container, excerpts, labels)
            config = self._config_file(item, container)
            if config:
                assemble.finish_container(container, excerpts, labels, config)

    def _config_map(self, namespace, name):
        raw = self._read_once(
            f"/api/v1/namespaces/{namespace}/configmaps/{name}",
            f"ConfigMap/{name}",
            f"get configmaps in namespace {namespace}",
        )
        return (raw or {}).get("data") or {}

    def _fill_environment(self, item, container):
        """Values that come from ConfigMaps, so that ``$(NAME)`` in arguments can be resolved; never Secrets."""
        filled = []
        for entry in container["env"]:
            word, _slash, rest = (entry["from"] or "").partition("/")
            name, _slash, key = rest.partition("/")
            if word != "configMap":
                filled.append(entry)
                continue
            data = self._config_map(item.evidence["namespace"], name)
            if entry["name"].endswith("*") and not key:
                prefix = entry["name"][:-1]
                filled += [
                    self._from_map(item, prefix + each, data[each], f"configMap/{name}/{each}")
                    for each in sorted(data)
                ]
            elif key in data:
                filled.append(self._from_map(item, entry["name"], data[key], entry["from"]))
            else:
                filled.append(entry)
        container["env"] = filled

    @staticmethod
    def _from_map(item, name, value, source):
        value = item.redactor.env_value(name, value) if len(value) <= _MAX_VALUE else None
        return {"name": name, "value": value, "from": source}

    def _config_file(self, item, container):
        """The parsed file that ``--config`` names, when it is mounted from a ConfigMap; else None."""
        path = (container["settings"].get("config") or {}).get("value")
        if not isinstance(path, str):
            return None
        found = container_files.config_map_of(path, item.raw, container)
        if found is None:
            return None
        text = self._config_map(item.evidence["namespace"], found[0]).get(found[1])
        return container_files.parse_config(text, item.redactor)

    # --- results and failures

    def _finish(self):
        self.document["pods"] = [item.evidence for item in self.kept.values()]
        for redactor in self.redactors:
            assemble.add_redactions(self.document, redactor.summary())
        self.document["counts"]["suspicious"] = sum(
            bool(item.evidence["suspicious"]) for item in self.kept.values()
        )
        return self._assembled()

    def _failure(self, sentence):
        return CollectionError(self._clean(sentence), self._assembled())

    def _assembled(self):
        self.document["unreadable"] = _together(self.document["unreadable"])
        return assemble.finish(self.document)

    def _redactor(self):
        """A redactor that counts into the document; one for each task, since they don't count safely together."""
        redactor = Redactor()
        self.redactors.append(redactor)
        return redactor

    def _clean(self, text):
        return self._redactor().text(text)

    def _try(self, read, source, name, needs, absent_is_fine=False):
        """What ``read()`` returns, or None with an unreadable entry."""
        try:
            return read()
        except ApiError as error:
            if not (absent_is_fine and error.status == 404):
                self._note(error, source, name, needs)
            return None

    def _well_formed(self, source, name, read):
        """What ``read()`` makes of API objects; None with an unreadable entry where their fields have odd types."""
        try:
            return read()
        except MALFORMED as error:
            reason = self._clean(f"{_not_the_apis(error)}, left aside")
            self.document["unreadable"].append(unreadable(source, self._clean(name), reason))
            return None

    def _note(self, error, source, name, needs):
        self.document["unreadable"].append(
            unreadable(source, name, self._clean(_reason(error)), needs if error.status == 403 else None)
        )

    def _source(self):
        parts = [self.client.host, f"namespace {self.namespace}" if self.namespace else "all namespaces"]
        parts += [f"{key} {self.query[key]}" for key in ("pod", "selector") if self.query.get(key)]
        return ", ".join(parts)

    def _why(self, error):
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        host = self.client.host
        if error.status is None:
            return (
                f"the Kubernetes API server at {host} can't be read: {error.message}; check that the cluster is "
                "up and that kubeconfig, context or host name the right one"
            )
        if error.status == 401:
            return (
                f"the Kubernetes API server at {host} refuses the credentials (401 Unauthorized); renew the "
                "token or choose another kubeconfig or context"
            )
        if error.status == 403:
            return f"the API server at {host} {self._why_forbidden(error.message, where)}"
        if error.status == 400 and self.query.get("selector"):
            return f"the API server refuses the label selector {self.query['selector']!r}: {error.message}"
        return f"the API server at {host} answers the request for pods in {where} with {error.status}: {error.message}"

    def _why_forbidden(self, message, where):
        """The rest of a sentence about the refusal to read pods, by the API server's own words."""
        refused = _FORBIDDEN.search(message)
        user, verb, resource = refused.groups() if refused else ("", "", "")
        if user == "system:anonymous":
            return (
                "was given neither a token nor a client certificate, and lets nobody read pods without; choose "
                "another kubeconfig or context, or give host and api_key"
            )
        if verb == "impersonate":
            return f"does not allow {user} to act as somebody else; needs: impersonate {resource}"
        wanted = "get" if self.query.get("pod") else "list"
        return f"does not allow {user + ' ' if user else ''}to read pods; needs: {wanted} pods in {where}"

    def _no_engines(self):
        where = f"namespace {self.namespace}" if self.namespace else "the cluster"
        seen = self.document["counts"]["pods_seen"]
        if seen:
            shown = ", ".join(self.others) or "none that could be read"
            more = f" and {seen - len(self.others)} more" if seen > len(self.others) else ""
            absent = self._why_no_pods(others=True)
            return f"{where} has no vLLM pods{self._selected()}; seen instead: {shown}{more}{absent}"
        if self.namespace and not self._namespace_exists():
            return f"there is no namespace {self.namespace} on {self.client.host}"
        return f"{where} has no pods{self._selected()}" + self._why_no_pods()

    def _selected(self):
        return f" that match the selector {self.query['selector']}" if self.query.get("selector") else ""

    def _why_no_pods(self, others=False):
        """What events tell of pods that are not there, as the end of a sentence; others: there are pods, no engines.

        A quota or webhook that refuses pods shows only as events of their owners.
        """
        self._read_events()
        self._well_formed("event", "events of pods that are gone", self._note_the_gone)
        told = self._well_formed("event", "events of absent pods", partial(self._newest_of_absent, others))
        return f"; {told}" if told else ""

    def _newest_of_absent(self, others):
        refused = absent_pods.newest(
            [
                raw
                for raw, owner in self._refusals()
                if not others or _has_engine(owner) or absent_pods.looks_like_engine(raw, ())
            ]
        )
        if refused:
            about = involved(refused)
            count = "its pods" if others else "any"
            return (
                f"{about.get('kind')} {about.get('name')} could not create {count}: {refused.get('message')}"
            )
        gone = self._gone() if not self.query.get("selector") else []
        gone = [raw for raw in gone if not others or absent_pods.looks_like_engine(raw, ())]
        if not gone:
            return None
        about = involved(gone[0])
        return (
            f"the newest event of a pod that is gone, {about.get('namespace')}/{about.get('name')}, is "
            f"{absent_pods.words(gone[0])}"
        )

    def _namespace_exists(self):
        try:
            self.client.get(f"/api/v1/namespaces/{self.namespace}")
        except ApiError as error:
            return error.status != 404
        return True

    def _unknown_pod(self, name):
        sentence = f"there is no pod {name} in namespace {self.namespace}" + self._last_event_of(name)
        try:
            names = [
                (raw.get("metadata") or {}).get("name") or ""
                for raw in self.client.pages(f"/api/v1/namespaces/{self.namespace}/pods")
            ]
        except ApiError:
            return sentence
        if not names and not self._namespace_exists():
            return f"there is no namespace {self.namespace} on {self.client.host}"
        import difflib

        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            return f"{sentence}; nearest names: {', '.join(near)}"
        return f"{sentence}; it has {len(names)} pods" + (
            f", e.g. {', '.join(sorted(names)[:3])}" if names else ""
        )

    def _last_event_of(self, name):
        """What events still tell of a pod that is gone, as a part of a sentence."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        selector = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
        try:
            raw = absent_pods.newest(
                [
                    item
                    for item in self.client.pages(path, selector)
                    if self._well_formed("event", _name_of(item), partial(_checked_event, item))
                ]
            )
        except ApiError:
            return ""
        told = raw and self._well_formed("event", _name_of(raw), partial(absent_pods.words, raw))
        return f" any more, and its last event is {told}" if told else ""


def _together(entries):
    """Unreadable entries that differ in the object only, as one that names all of them."""
    names: dict[tuple, list[str]] = {}
    for entry in entries:
        key = (entry["source"], entry["reason"], entry["needs"])
        if entry["object"] not in names.setdefault(key, []):
            names[key].append(entry["object"])
    return [
        unreadable(source, ", ".join(sorted(objects)), reason, needs)
        for (source, reason, needs), objects in names.items()
    ]


def _has_engine(owner):
    """Whether the pods of a raw owner would run vLLM; False when its template isn't known."""
    template = (owner.get("spec") or {}).get("template") or {}
    return bool(template) and recognise_engine(template) is not None


def _place(raw, group):
    """What is remembered of an engine pod or a member of a group: raw is None once it proved healthy."""
    metadata = raw.get("metadata") or {}
    return {
        "raw": raw,
        "group": group,
        "uid": metadata.get("uid"),
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "owner": next(
            (item for item in metadata.get("ownerReferences") or [] if item.get("controller")), None
        ),
    }


def _name_of(raw):
    """``namespace/name`` of a raw object, as far as it can be told."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return "an object without a name"
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))


def _not_the_apis(error):
    return f"not as the Kubernetes API writes it ({error})"


def _texts(*values):
    """Raises TypeError where one of ``values`` is there and no text."""
    for value in values:
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{value!r} stands where a text belongs")


def _checked_event(raw):
    """``raw``, an event, when the fields that sort it out have the API's types; raises one of MALFORMED."""
    about = involved(raw)
    message = raw.get("message") or raw.get("note")
    _texts(about.get("kind"), about.get("uid"), raw.get("reason"), message, first_time(raw), last_time(raw))
    return raw


def _append(events, raw):
    events.append(raw)
    if len(events) > _MAX_EVENTS_OF_ONE_OBJECT:
        del events[0]


def _template_key(raw):
    """What pods of one template share: namespace, controller and template hash."""
    metadata = raw.get("metadata") or {}
    labels = metadata.get("labels") or {}
    owners = metadata.get("ownerReferences") or [{}]
    template = labels.get("pod-template-hash") or labels.get("controller-revision-hash")
    return metadata.get("namespace"), owners[0].get("uid"), template


def _went_wrong(entry):
    return entry["state"] == "terminated" and (entry["exit_code"] != 0 or entry["reason"] == "OOMKilled")


def _describe(raw):
    containers = (raw.get("spec") or {}).get("containers") or [{}]
    return f"{(raw.get('metadata') or {}).get('name')} ({containers[0].get('image')})"


def _root(api_version):
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _resource(plural, api_version):
    group = workloads.api_group(api_version)
    return f"{plural}.{group}" if group else plural


def _reason(error):
    if error.status is None:
        return f"no answer: {error.message}"
    if error.status == 403:
        return "forbidden"
    if error.status == 401:
        return "the credentials are no longer accepted (401)"
    if error.status == 404:
        return "not found"
    return f"{error.status}: {error.message}"


def _log_refusal(error, previous):
    """Why a log wasn't read, in words; the kubelet says most of it in a 400."""
    if isinstance(error, LogGone):
        return f"the node no longer has it ({error.message})"
    if error.status == 404:
        return "the pod was deleted while it was read"
    if error.status == 400 and previous:
        return f"the node no longer has the previous container's log ({error.message})"
    if error.status == 400 and "waiting to start" in error.message:
        return f"the container has not started ({error.message})"
    if error.status == 400:
        return f"the node gives none ({error.message})"
    return _reason(error)
