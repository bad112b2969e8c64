# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching an object's rollout to its end, and whether its new engines serve.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import time
from typing import Any

from ..documents import log_lines
from ..evidence import workloads
from ..evidence.client import ApiError
from ..evidence.log_scan import LogScanner
from . import conversation, pending, places, progress, server, soaking
from .access import stamp

# Between two looks at a rollout.
_PAUSE_S = 2.0
_MOST_LOGS = 4
_MOST_NODES = 16
_LOG_LINES = 200
_LINE = 160
# How often a request that the server answers with an error is sent again before it counts.
_TRIES = 3
# What the API server answers while it starts, before it knows its users.
_UNSETTLED = (401, 403)
_MOST_UNSETTLED = 5
_PHASES = {
    "load": "loads the model",
    "profile": "profiles its memory",
    "kv_init": "sizes the KV cache",
    "graph_capture": "captures CUDA graphs",
    "warmup": "warms up",
    "serving": "serves",
    "shutdown": "shuts down",
}


def watch(writer, place, query, key=None):
    """What module serving_info returns as ``serving``. Raises DocumentError with one sentence.

    writer: access.Writer; place: places.Place; query: the module's options by name (since: an aware datetime or None); key:
    of the engine's server.
    """
    return _Watch(writer, place, query, key).run()


class _Watch:
    def __init__(self, writer, place, query, key):
        self.writer = writer
        self.place = place
        self.query = query
        self.key = key
        self.objects = {}
        self.tries = 0
        self.unsettled = 0
        self.noticed = list(query.get("noticed") or [])

    def run(self):
        begun = time.monotonic()
        wait = self.query["wait"]
        while True:
            serving = self._look()
            self.noticed = list(dict.fromkeys([*self.noticed, *serving["noticed"]]))
            serving["noticed"] = self.noticed
            left = begun + wait - time.monotonic()
            # Many small steps of a large rollout are told together.
            changed = (
                left <= wait / 2 and self.query["seen"] is not None and serving["state"] != self.query["seen"]
            )
            if serving["decided"] or changed or left <= 0:
                return serving
            self.writer.pause(min(_PAUSE_S, max(0.1, left)))

    def _look(self):
        try:
            raw = self.writer.get(self.place.path)
            self.unsettled = 0
            return self._judge(raw)
        except ApiError as error:
            return self._without_answer(error)

    def _without_answer(self, error):
        """An API server that was read before may be restarted: it is waited for."""
        passing = error.status is None or error.status >= 500 or error.status == 429
        if error.status in _UNSETTLED:
            self.unsettled += 1
            passing = self.unsettled <= _MOST_UNSETTLED
        if self.query["seen"] is None or not passing:
            raise places.DocumentError(places.why_unread(self.writer, self.place, error)) from error
        said = "the API server doesn't answer; it is waited for"
        return dict(_EMPTY, state="no answer", sentence=said, problems=[said], noticed=[said])

    def _judge(self, raw):
        raw.setdefault("kind", self.place.kind)
        raw.setdefault("apiVersion", self.place.api_version)
        query, now = self.query, self.writer.now()
        if query["run"]:
            pending.keep(self.writer, self.place, query["run"], query["lease"], raw)
        self.objects = {}
        pods, replica_sets, children = self._read_pods(raw)
        done, new = progress.progress_of(
            raw, pods, query["since"], query["generation"], replica_sets, children
        )
        events = self._read_events(done, new, pods)
        nodes = self._read_nodes(new)
        problems = progress.problems_of(raw, pods, new, events, nodes, now, query["since"], done)
        problems += self._gone(pods, events)
        lines = self._read_last_lines(new)
        shown = [self._describe(pod, lines) for pod in sorted(new, key=progress.name_of)]
        serving = dict(
            _EMPTY,
            at=stamp(now),
            rollout=dict(
                {name: getattr(done, name) for name in ("finished", "desired", "updated", "ready", "old")},
                to_delete=list(done.to_delete),
                sentence=done.sentence,
            ),
            pods=shown,
            restarts={
                progress.meta(pod).get("uid"): progress.restarts(pod, query["container"]) for pod in new
            },
            problems=[item.sentence for item in problems],
            # What is over before it is decided is told all the same.
            noticed=[item.sentence for item in problems if not item.final],
            limit=query["timeout"] or progress.time_limit(raw, done, self._start_seconds(raw, new)),
            soak_seconds=query["soak"] if soaking.needs_soak(query["causes"]) else 0.0,
        )
        self._decide(serving, raw, done, new, problems)
        phases = sorted(item["phase_of_start"] or "" for item in shown)
        serving["state"] = ";".join(
            [
                f"{done.updated}/{done.desired} updated",
                f"{done.ready} ready",
                f"{done.old} old",
                ",".join(filter(None, phases)),
                serving["engine"]["outcome"] if serving["engine"] else "",
                f"{len(problems)} problems",
            ]
        )
        serving["sentence"] = _sentence(self.place, serving, done)
        return serving

    # --- reading

    def _read_pods(self, raw):
        """``(raw pods of the object, ReplicaSets, children of an object that is none of apps)``."""
        if self.place.kind == "Pod":
            return [raw], [], []
        namespace = self.place.namespace
        selector = _selector(raw) if self.place.group == "apps" else None
        params = {"labelSelector": selector} if selector else {}
        pods = list(self.writer.pages(f"/api/v1/namespaces/{namespace}/pods", params))
        replica_sets, children = [], []
        if self.place.group != "apps" or self.place.kind == "Deployment":
            replica_sets = self._listed("replicasets", params)
        if self.place.group != "apps":
            for kind, plural in (
                ("Deployment", "deployments"),
                ("StatefulSet", "statefulsets"),
                ("DaemonSet", "daemonsets"),
            ):
                for item in self._listed(plural, {}):
                    item.update(kind=kind, apiVersion="apps/v1")
                    if self._is_below(item, raw):
                        children.append(item)
        return [pod for pod in pods if self._is_below(pod, raw)], replica_sets, children

    def _listed(self, plural, params):
        try:
            return list(
                self.writer.pages(f"/apis/apps/v1/namespaces/{self.place.namespace}/{plural}", params)
            )
        except ApiError as error:
            if error.status != 403:
                raise
            return []

    def _is_below(self, raw, top):
        uid = progress.meta(top).get("uid")
        chain = workloads.owner_chain(raw, self._lookup)
        return any(
            reference.get("uid") == uid
            if reference.get("uid")
            else (reference.get("kind"), reference.get("name")) == (self.place.kind, self.place.name)
            for reference, _item in chain
        )

    def _lookup(self, api_version, kind, namespace, name):
        known = workloads.kind_of(api_version or "", kind)
        if known is None or kind == "Node":
            return None
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        path = f"{root}/namespaces/{namespace}/{known.plural}/{name}"
        if path not in self.objects:
            try:
                self.objects[path] = dict(self.writer.get(path), kind=kind, apiVersion=api_version)
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                self.objects[path] = None
        return self.objects[path]

    def _read_events(self, done, new, pods):
        """Only where they can tell something: why pods don't come, aren't placed, or are gone."""
        gone = set(self.query["baseline"]) - {progress.meta(pod).get("uid") for pod in pods}
        unplaced = [pod for pod in new if not (pod.get("spec") or {}).get("nodeName")]
        if not gone and not unplaced and done.updated >= done.desired:
            return []
        try:
            return list(self.writer.pages(f"/api/v1/namespaces/{self.place.namespace}/events"))
        except ApiError as error:
            if error.status != 403:
                raise
            return []

    def _read_nodes(self, new):
        names = sorted({pod["spec"]["nodeName"] for pod in new if (pod.get("spec") or {}).get("nodeName")})
        found = {}
        for name in names[:_MOST_NODES]:
            try:
                found[name] = self.writer.get(f"/api/v1/nodes/{name}")
            except ApiError as error:
                if error.status in (401, 403):
                    break
                if error.status != 404:
                    raise
        return found

    def _gone(self, pods, events):
        """Pods of the baseline that are no more."""
        there = {progress.meta(pod).get("uid") for pod in pods}
        gone = set(self.query["baseline"]) - there
        if not gone:
            return []
        told = progress.evictions(gone, events)
        if told:
            return [progress.Problem(sentence, True) for sentence in told]
        words = "a pod that was there is" if len(gone) == 1 else f"{len(gone)} pods that were there are"
        return [progress.Problem(f"{words} gone: deleted by somebody", False)]

    def _read_last_lines(self, new):
        """``{uid: (phase, last line)}`` of engines that aren't ready, or that died."""
        found = {}
        for pod in [pod for pod in new if not progress.is_ready(pod) and not progress.is_going(pod)][
            :_MOST_LOGS
        ]:
            engine = server.engine_of(pod, self.query["container"])
            status = progress.status_of(pod, (engine or {}).get("name"))
            state = status.get("state") or {}
            previous = "waiting" in state and bool((status.get("lastState") or {}).get("terminated"))
            if not status or ("waiting" in state and not previous):
                continue
            found[progress.meta(pod)["uid"]] = self._last_line(pod, engine["name"], previous)
        return found

    def _last_line(self, pod, container, previous):
        params = {"container": container, "tailLines": str(_LOG_LINES)}
        if previous:
            params["previous"] = "true"
        scanner = LogScanner()
        try:
            for chunk in self.writer.log(self.place.namespace, progress.name_of(pod), params):
                scanner.feed(chunk)
        except ApiError:
            return None, None
        excerpt = scanner.close()
        phase = excerpt["markers"][-1]["phase"] if excerpt["markers"] else None
        lines = log_lines(excerpt)
        text = lines[-1]["text"] if lines else None
        return phase, text if text is None or len(text) <= _LINE else f"{text[: _LINE - 1]}…"

    def _start_seconds(self, raw, new):
        template = (raw.get("spec") or {}).get("template")
        engines = [server.engine_of(pod, self.query["container"]) or {} for pod in new or [template or {}]]
        return max((server.allowance(item) or 0.0 for item in engines), default=0.0) or None

    def _describe(self, pod, lines):
        engine = server.engine_of(pod, self.query["container"]) or {}
        status = progress.status_of(pod, engine.get("name"))
        state = status.get("state") or {}
        name = next(iter(state), None)
        phase, line = lines.get(progress.meta(pod).get("uid")) or (None, None)
        return {
            "name": progress.name_of(pod),
            "uid": progress.meta(pod).get("uid"),
            "node": (pod.get("spec") or {}).get("nodeName"),
            "phase": (pod.get("status") or {}).get("phase"),
            "ready": progress.is_ready(pod),
            "restarts": status.get("restartCount") or 0,
            "container_state": name,
            "reason": (state.get(name) or {}).get("reason") if name else None,
            "phase_of_start": phase,
            "last_line": line,
        }

    # --- deciding

    def _decide(self, serving, raw, done, new, problems):
        query = self.query
        deaths = [
            sentence
            for sentence in (
                progress.death_of(pod, query["since"], query["baseline"], query["container"]) for pod in new
            )
            if sentence
        ]
        final = next((item for item in problems if item.final), None)
        if deaths:
            more = f" (and {len(deaths) - 1} more pods)" if len(deaths) > 1 else ""
            _end(serving, "failed", deaths[0] + more)
        elif final:
            _end(serving, "failed", final.sentence)
        elif done.by_hand:
            _end(serving, None, done.by_hand, verifiable=False)
        elif done.observed and _wants_none(raw):
            _end(
                serving,
                None,
                "it is scaled to no pods: there is nothing that could be asked",
                verifiable=False,
            )
        elif query["hold"] or not done.finished:
            return
        elif query["request"] == "none":
            _end(serving, "starts", "its rollout is finished")
        else:
            self._ask(serving, new)

    def _ask(self, serving, new):
        """Ask one of the new pods, or all where at least as many requests as pods are wanted."""
        query = self.query
        candidates = sorted((pod for pod in new if progress.is_ready(pod)), key=progress.name_of)
        known = [(pod, server.server_of(pod, query["container"], query["port"])) for pod in candidates]
        able = [item for item in known if item[1].silent is None]
        if not able:
            why = known[0][1].silent if known else "no new pod is ready"
            _end(
                serving,
                "starts",
                f"not verifiable here: pod {progress.name_of(known[0][0])}: {why}",
                verifiable=False,
            )
            return
        count = query["requests"]
        chosen = able if count >= len(able) > 1 else able[:1]
        told = []
        for number, (pod, item) in enumerate(chosen):
            share = count // len(chosen) + (1 if number < count % len(chosen) else 0)
            told.append(
                conversation.converse(
                    self.writer, pod, item, self.key, query["request"], query["task"], max(1, share)
                )
            )
        order = [
            conversation.FAILED,
            conversation.NOT_YET,
            conversation.UNVERIFIABLE,
            conversation.HEALTHY,
            conversation.ANSWERED,
        ]
        worst = min(told, key=lambda item: order.index(item["outcome"]))
        serving["engine"] = dict(
            worst,
            requests=sum(item["requests"] for item in told),
            tokens=sum(item["tokens"] or 0 for item in told) or None,
        )
        model = chosen[0][1].model
        if worst["models"] and model and model not in worst["models"]:
            serving["problems"].append(
                f"/v1/models doesn't list {model}: it lists {', '.join(worst['models'][:5])}"
            )
        self._conclude(serving, worst)

    def _conclude(self, serving, worst):
        outcome = worst["outcome"]
        if outcome == conversation.ANSWERED:
            _end(
                serving, "served", f"pod {worst['pod']} answered the smallest request in {worst['seconds']} s"
            )
        elif outcome == conversation.HEALTHY:
            _end(serving, "starts", f"pod {worst['pod']} is healthy")
        elif outcome == conversation.UNVERIFIABLE:
            _end(
                serving,
                "starts",
                f"not verifiable here: pod {worst['pod']}: {worst['why']}",
                verifiable=False,
            )
        elif outcome == conversation.FAILED:
            self.tries += 1
            serving["problems"].append(f"pod {worst['pod']}: {worst['why']}")
            if self.tries >= _TRIES or self.query["wait"] <= 0:
                _end(serving, "failed", f"pod {worst['pod']}: {worst['why']}")
        else:
            serving["problems"].append(f"pod {worst['pod']} doesn't answer yet: {worst['why']}")


_EMPTY: dict[str, Any] = {
    "state": None,
    "decided": False,
    "verdict": None,
    "verifiable": True,
    "why": None,
    "at": None,
    "rollout": None,
    "pods": [],
    "restarts": {},
    "engine": None,
    "problems": [],
    "noticed": [],
    "limit": None,
    "soak_seconds": 0.0,
    "sentence": None,
}


def _wants_none(raw):
    """Whether an object is scaled to nothing; one whose kind doesn't say how many pods it wants isn't."""
    if raw.get("kind") == "DaemonSet":
        return (raw.get("status") or {}).get("desiredNumberScheduled") == 0
    return (raw.get("spec") or {}).get("replicas") == 0


def _end(serving, verdict, why, verifiable=True):
    serving.update(decided=True, verdict=verdict, why=why, verifiable=verifiable)


def _sentence(place, serving, done):
    if serving["decided"]:
        words = {"starts": "starts", "served": "serves", "failed": "failed", None: "can't be verified"}
        return f"{place.shown} {words[serving['verdict']]}: {serving['why']}"
    parts = [done.sentence]
    for pod in serving["pods"]:
        if pod["phase_of_start"] or pod["last_line"]:
            does = _PHASES.get(pod["phase_of_start"], "starts")
            parts.append(f"{pod['name']} {does}" + (f": {pod['last_line']}" if pod["last_line"] else ""))
            break
    parts += serving["problems"][:2]
    return f"{place.shown}: " + "; ".join(parts)


def _selector(raw):
    """The label selector of an object's pods as the API takes it, or None."""
    selector = (raw.get("spec") or {}).get("selector") or {}
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for item in selector.get("matchExpressions") or []:
        key, operator, values = item.get("key"), item.get("operator"), item.get("values") or []
        if operator in ("In", "NotIn"):
            parts.append(f"{key} {operator.lower()} ({','.join(values)})")
        elif operator in ("Exists", "DoesNotExist"):
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(parts) or None
