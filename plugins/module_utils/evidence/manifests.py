# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence from manifests before they ship: one pod for each pod template that runs vLLM, with no attempts.

The pods are read by the code that reads running pods, so that later stages need not know the difference. A pod has more
fields here: members (how many pods of this template one engine has), assumptions, file; its engine container
model_source (``{value, from}``: where the weights come from when the arguments name only a folder; or None). A manifest
that names no namespace gets the namespace ``""``.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from typing import Any

from .. import documents
from ..documents import DocumentError, unreadable
from ..engine.command_line import is_unresolved
from ..engine.flags import flag_of
from . import assemble, helm_values, manifest_files, trees
from .bundle import STDIN, STDIN_PATH
from .container_files import config_map_of, parse_config
from .groups import group_of
from .manifest_checks import checked, misplaced
from .manifest_kinds import READERS, UNRENDERED, VALUES
from .manifest_parts import Template, field, maps, number, scalar
from .namespaces import namespace_evidence
from .pods import MALFORMED, accelerator_of, pod_evidence, recognise_engine
from .redact import Redactor
from .workloads import api_group, workload_evidence

# How many objects or containers a sentence names that says what was found instead.
_NAMED = 5
# Values of a ConfigMap that are longer are files, not environment variables.
_LONGEST_VALUE = 2000
# A flag and more in one item of a list; a value after "=" may hold blanks.
_SEVERAL_WORDS = re.compile(r"--[A-Za-z][\w.-]*\s+\S|--[A-Za-z][\w.-]*=\S+\s+--[A-Za-z]")
# What only Helm understands; KServe's runtimes and chat templates have expressions of their own, which stay.
_HELM = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files)\b|(?:include|template|tpl|toYaml|required)\b)"
)
# Any template expression where a plain value is needed.
_UNFILLED = re.compile(
    r'"(?:image|name|namespace|memory|cpu|[a-z.]+/gpu|replicas)": "[^"]*(?:\{\{(?!\s*\.Name\s*\}\})|\{%)'
)


def read_manifests(path, stdin=None, now=None, limits=manifest_files.MANIFEST_LIMITS):
    """The evidence document of the manifests at ``path``: a YAML or JSON file, a folder of them, or ``-``.

    stdin: what ``-`` reads (see ``bundle.read_bundle``); now: for ``collected_at`` (RFC 3339 text; default: the present).
    Raises DocumentError with one sentence when no pod template in them runs vLLM.
    """
    found, problems = manifest_files.read_documents(path, stdin, limits)
    detail = STDIN if path == "-" or STDIN_PATH.fullmatch(str(path)) else str(path)
    now = now or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return manifest_evidence(found, detail, now, problems)


def manifest_evidence(found, detail, now, problems=()):
    """The evidence document of parsed documents. found: ``[manifest_files.Document]``; problems: ``unreadable`` entries."""
    return _Manifests(detail, now, problems).read(found)


class _Manifests:
    """The objects and values of the files, and the evidence that is made of them. It is the ``files`` of the readers."""

    def __init__(self, detail, now, problems):
        self._detail = detail
        self._redactor = Redactor()
        self._evidence = documents.evidence(now, "manifest", detail)
        self._evidence["unreadable"] += list(problems)
        self._objects = trees.Objects()
        self._listed = []
        self._named = {}
        self._values = []
        self._profiles = {}
        self._without_engine = []
        self._other = []

    def read(self, found):
        for name, value in found:
            self._take(value, name)
        for raw, name in self._listed:
            self._guarded(raw, name, self._read_object)
        for values, name in self._values:
            self._read_values(values, name)
        if not self._evidence["pods"]:
            raise DocumentError(f"{self._detail}: {self._nothing_found()}")
        self._add_namespaces()
        return assemble.finish(self._evidence, self._redactor)

    # --- what the readers ask for

    def of_kind(self, group, kind):
        """All objects of a kind."""
        return [raw for raw in self._objects.of_kind(kind) if api_group(raw["apiVersion"]) == group]

    def find(self, group, kind, name, beside):
        """The object of that name in the namespace of ``beside``, or in none; None where the files don't hold it."""
        namespaces = (beside["metadata"].get("namespace"), None)
        named = self._named.get((group, kind, name)) or []
        return next(
            (raw for space in namespaces for raw in named if raw["metadata"].get("namespace") == space), None
        )

    def resource_profiles(self):
        """KubeAI's ``resourceProfiles`` of values in the files."""
        return self._profiles

    def missing(self, raw, reason, needs=None):
        """Name what could not be told about an object."""
        self._skip(_about(raw), reason, needs)

    def _skip(self, about, reason, needs=None):
        entry = unreadable("manifest", about, self._redactor.text(reason), needs)
        self._evidence["unreadable"].append(entry)

    # --- sorting what the files hold

    def _take(self, value, name):
        if isinstance(value, list):
            for item in value:
                self._take(item, name)
        elif not isinstance(value, dict):
            self._other.append(f"a bare text in {os.path.basename(name)}")
        elif isinstance(value.get("items"), list) and str(value.get("kind") or "List").endswith("List"):
            kind = str(value.get("kind") or "")[: -len("List")]
            for item in value["items"]:
                # Items of a typed list carry neither kind nor apiVersion.
                typed = kind and isinstance(item, dict)
                self._take(
                    {"kind": kind, "apiVersion": value.get("apiVersion"), **item} if typed else item, name
                )
        elif value.get("kind") and value.get("apiVersion"):
            self._take_object(value, name)
        elif helm_values.chart_of(value):
            self._values.append((value, name))
        elif isinstance(value.get("resourceProfiles"), dict):
            self._profiles.update(
                {key: item for key, item in value["resourceProfiles"].items() if isinstance(item, dict)}
            )
        else:
            self._other.append(f"a map of {', '.join(map(str, list(value)[:3]))} in {os.path.basename(name)}")

    def _take_object(self, raw, name):
        metadata = raw.get("metadata")
        kind, version = raw["kind"], raw["apiVersion"]
        if not isinstance(kind, str) or not isinstance(version, str):
            self._skip(name, "an object whose kind or apiVersion is no text, left aside")
            return
        values = _carried_values(raw)
        if values and helm_values.chart_of(values):
            self._values.append((values, name))
            return
        if (api_group(version), kind) in UNRENDERED:
            self._skip(
                f"{kind} in {name}",
                "stands for objects that aren't in it",
                UNRENDERED[api_group(version), kind],
            )
            self._other.append(kind)
            return
        if not isinstance(metadata, dict):
            self._skip(f"{kind} in {name}", "has no metadata, left aside", "metadata.name")
            return
        # A Job or Pod may leave its name to the API.
        own = metadata.get("name") or metadata.get("generateName")
        if not isinstance(own, str) or not isinstance(metadata.get("namespace") or "", str):
            self._skip(
                f"{kind} in {name}", "its metadata.name or namespace is no text, left aside", "metadata.name"
            )
            return
        raw = dict(raw, metadata=dict(metadata, name=own))
        if kind == "Secret":
            self._other.append(kind)
            return
        earlier = self.find(api_group(version), kind, own, raw)
        if earlier is not None and earlier["metadata"].get("namespace") == metadata.get("namespace"):
            self._skip(
                f"{kind}/{own} in {name}",
                "the files hold this object twice; the first one was read",
                f"one of the two, or if one is a patch of the other: {manifest_files.RENDER}",
            )
            return
        self._objects.add(raw)
        self._named.setdefault((api_group(version), kind, own), []).append(raw)
        self._listed.append((raw, name))

    # --- objects

    def _guarded(self, raw, name, read):
        """Read one object; what is wrong with it is named, and the others are read all the same."""
        try:
            read(raw, name)
        except DocumentError as error:
            self._skip(_about(raw), str(error), "that field as the kind's API has it")
        except MALFORMED as error:
            self._skip(
                _about(raw), f"not as its API has it ({error})", "kubectl apply --dry-run=server -f FILE"
            )

    def _read_object(self, raw, name):
        reader = READERS.get((api_group(raw["apiVersion"]), raw["kind"]))
        assumed: dict[str, Any] = {}
        if reader is None and _has_template(raw):
            reader = READERS["apps", "Deployment"]
            text = f"the kind {raw['kind']} isn't known here; its spec.template was read as a pod template"
            assumed = {"path": "spec.template.spec.containers[{c}]", "assumptions": (text,)}
        if reader is None:
            self._other.append(_about(raw))
            return
        text = json.dumps(raw, default=str)
        if _HELM.search(text) or _UNFILLED.search(text):
            self._skip(_about(raw), "holds template expressions", manifest_files.RENDER)
            return
        if self._is_owned(raw):
            return
        for template in reader(raw, self):
            self._add(raw, template._replace(**assumed), name)

    def _is_owned(self, raw):
        """Whether what owns the object is in the files too and says the same of it."""
        owners = raw["metadata"].get("ownerReferences") or []
        return any(
            self.find(api_group(owner.get("apiVersion")), owner.get("kind"), owner.get("name"), raw)
            for owner in owners
        )

    def _add(self, raw, template, name):
        raw_pod = _raw_pod(raw, template)
        item = self._pod(raw_pod, template, _about(raw), name)
        if item is None:
            return
        item["workload"] = workload_evidence(
            raw_pod, self._objects.lookup, self._objects.listing, self._redactor
        )
        if item["group"] and item["members"] == 1:
            item["members"] = _ranks(raw)
        wanted = template.replicas
        if wanted is None:
            wanted = field(raw, "spec").get("replicas") if isinstance(raw.get("spec"), dict) else None
        item["workload"]["replicas"] = _replicas(wanted)
        if template.path and item["workload"]["edit"]:
            engine = next(container["name"] for container in item["containers"] if container["engine"])
            item["workload"]["edit"]["path"] = template.path.replace("{c}", scalar(engine))
        self._evidence["pods"].append(item)

    def _pod(self, raw_pod, template, about, name):
        """The evidence of one pod template, or None where it runs no vLLM."""
        raw_pod["spec"], notes = checked(raw_pod["spec"])
        item = pod_evidence(raw_pod, self._redactor)
        notes += misplaced(raw_pod["spec"])
        if not any(container["engine"] for container in item["containers"]):
            names = [
                scalar(container["name"]) for container in item["containers"] if container["role"] == "main"
            ]
            why = "; ".join(["", *misplaced(raw_pod["spec"])])
            self._without_engine.append(f"{about} (containers: {', '.join(names[:_NAMED]) or 'none'}{why})")
            return None
        shared = _add_engines(item, raw_pod)
        for note in notes:
            self._skip(about, f"{note}; read all the same")
        for container in item["containers"]:
            container["attempts"] = []
            self._fill_environment(container, raw_pod)
            self._settle(container, raw_pod, item["labels"], template)
            for note in _joined(container):
                self._skip(about, note)
        group = group_of(raw_pod)
        if group is None and template.members > 1:
            group = "/".join([item["namespace"], about, *([template.role] if template.role else [])])
        item.update(
            suspicious=False,
            group=group,
            members=template.members,
            assumptions=[*template.assumptions, *shared],
            file=name,
        )
        item["gpu_request"].update(template.gpu or {})
        return item

    def _settle(self, container, raw_pod, labels, template):
        """Settings and the source of the model of an engine container."""
        if not container["engine"]:
            return
        assemble.finish_container(container, labels=labels)
        config = self._config_file(container, raw_pod)
        if template.config:
            config = {**(config or {}), **self._redacted(template.config)}
        if config:
            assemble.finish_container(container, labels=labels, config=config)
        container["model_source"] = template.model
        container["unresolved"] += _unresolved(container)

    def _redacted(self, config):
        return {
            scalar(key): self._redactor.env_value(scalar(key), value) if isinstance(value, str) else value
            for key, value in config.items()
        }

    def _config_map(self, raw_pod, name):
        return field(self.find("", "ConfigMap", name, raw_pod) or {}, "data")

    def _fill_environment(self, container, raw_pod):
        """Values of variables that come from ConfigMaps of the files."""
        filled = []
        for entry in container["env"]:
            word, _slash, rest = (entry["from"] or "").partition("/")
            name, _slash, key = rest.partition("/")
            data = self._config_map(raw_pod, name) if word == "configMap" else {}
            if not key and entry["name"].endswith("*"):
                prefix = entry["name"][:-1]
                chosen = [(prefix + each, data[each], f"configMap/{name}/{each}") for each in sorted(data)]
            else:
                chosen = [(entry["name"], data[key], entry["from"])] if key in data else []
            filled += [self._from_map(*each) for each in chosen] or [entry]
        container["env"] = filled

    def _from_map(self, name, value, source):
        text = scalar(value)
        value = self._redactor.env_value(name, text) if len(text) <= _LONGEST_VALUE else None
        return {"name": name, "value": value, "from": source}

    def _config_file(self, container, raw_pod):
        """The parsed file that ``--config`` names, when it is mounted from a ConfigMap of the files; else None."""
        path = (container["settings"].get("config") or {}).get("value")
        if not isinstance(path, str):
            return None
        found = config_map_of(path, raw_pod, container)
        text = self._config_map(raw_pod, found[0]).get(found[1]) if found else None
        config = parse_config(text, self._redactor) if isinstance(text, str) else None
        if config is None:
            container["unresolved"].append(f"the --config file {path} isn't in these files")
            self._skip(
                f"--config {path} of container {container['name']}",
                "the file isn't in a ConfigMap of these files; its settings aren't known",
                "that ConfigMap in a file beside it" if found else "its settings as flags",
            )
        return config

    # --- values

    def _read_values(self, values, name):
        chart = helm_values.chart_of(values)
        about = f"values of the chart {chart}"
        try:
            for release in helm_values.releases(values):
                self._add_release(release, f"{about} at {release.path}", name)
        except DocumentError as error:
            self._skip(f"{about} in {name}", str(error), "that field as the chart has it")
        except MALFORMED as error:
            self._skip(
                f"{about} in {name}",
                f"not as the chart has it ({error})",
                f"that field, or {manifest_files.RENDER}",
            )

    def _add_release(self, release, about, name):
        owner = {"apiVersion": release.api_version, "kind": release.kind, "metadata": {"name": release.name}}
        text = f"values of the chart {release.chart}, read without the chart's defaults and without other values files"
        template = release.template._replace(assumptions=(*release.template.assumptions, text))
        item = self._pod(_raw_pod(owner, template), template, about, name)
        if item is None:
            return
        if template.members > 1:
            item["group"] = f"/{release.kind}/{release.name}"
        item["workload"] = documents.workload(
            release.kind,
            release.name,
            release.api_version,
            edit={
                "kind": "Helm values",
                "name": os.path.basename(name),
                "api_version": None,
                "path": release.path,
                "arguments": None,
                "inferred": False,
                "uid": None,
                "generation": None,
            },
            replicas=_replicas(template.replicas),
            managers=[
                {
                    "tool": "Helm",
                    "object": f"{release.kind}/{release.name}",
                    "proof": "hint",
                    "reverts": "on_upgrade",
                }
            ],
            revision=None,
            conditions=[],
        )
        self._evidence["pods"].append(item)

    # --- the end

    def _add_namespaces(self):
        kept = self._evidence["namespaces"]
        for namespace in {item["namespace"] for item in self._evidence["pods"]}:
            # Objects without a namespace go wherever the others of the same files go.
            quotas, ranges = (
                [
                    raw
                    for raw in self.of_kind("", kind)
                    if raw["metadata"].get("namespace") in (None, "", namespace)
                ]
                for kind in ("ResourceQuota", "LimitRange")
            )
            if not quotas and not ranges:
                continue
            try:
                kept[namespace] = namespace_evidence(quotas, ranges)
                self._add_defaults(namespace, kept[namespace]["limit_ranges"])
            except MALFORMED as error:
                self._skip(
                    f"quotas of {namespace or 'the namespace'}",
                    f"not as the API has them ({error}), left aside",
                )

    def _add_defaults(self, namespace, limit_ranges):
        """Limits and requests that a LimitRange gives to containers without, as admission does."""
        for limit_range in limit_ranges:
            for entry in limit_range["limits"]:
                if entry.get("type") != "Container":
                    continue
                for item in self._evidence["pods"]:
                    if item["namespace"] == namespace:
                        _defaulted(item, limit_range["name"], entry)

    def _nothing_found(self):
        unread = self._evidence["unreadable"]
        why = ""
        if unread:
            first = unread[0]
            more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
            needs = f"; needed: {first['needs']}" if first["needs"] else ""
            why = f" (not read: {first['object']}: {first['reason']}{needs}{more})"
        if self._without_engine:
            shown = ", ".join(self._without_engine[:_NAMED]) + _rest(self._without_engine)
            return f"no container runs vLLM; it holds {shown}{why}: give the manifest of the vLLM engine"
        if why:
            return f"nothing that runs vLLM could be read{why}"
        if self._other:
            kinds = sorted(set(self._other))
            return (
                f"holds no pod template and no values of a known chart (it holds {', '.join(kinds[:_NAMED])}{_rest(kinds)}):"
                " give a workload's manifest, or values of vLLM production-stack, llm-d modelservice or vLLM's sample chart"
            )
        return "holds no Kubernetes object and no Helm values: give a workload's manifest"


def _add_engines(item, raw_pod):
    """Further containers whose command starts vLLM, as engines of the pod; returns what is assumed of them."""
    assumed = []
    containers = [entry for entry in item["containers"] if entry["role"] == "main"]
    for raw, container in zip(raw_pod["spec"]["containers"], containers):
        found = recognise_engine(dict(raw_pod, spec={"containers": [raw]}))
        if container["engine"] or not found or found[1] != "command":
            continue
        requested, make = accelerator_of(raw)
        container["engine"] = dict(documents.engine(accelerator=make), recognised_by="command")
        if not requested:
            assumed.append(
                f"container {container['name']} runs vLLM and asks for no GPU of its own: it shares those of the pod's other engine"
            )
    return assumed


def _joined(container):
    """Sentences about list items that hold a flag and its value, or several flags, in one string."""
    if not container["engine"]:
        return
    for name in ("command", "args"):
        for index, text in enumerate(container[name]):
            if _SEVERAL_WORDS.match(text):
                yield (
                    f"{name}[{index}] of container {container['name']} holds several words in one string, and vLLM refuses it: "
                    "make each flag and each value an item of its own; read all the same"
                )


def _unresolved(container):
    """Sentences about settings that were given but whose value isn't in these files."""
    found = []
    sources = {entry["name"]: entry["from"] for entry in container["env"]}
    for name, setting in container["settings"].items():
        written = setting.get("written")
        if written is None or setting["value"] is not None:
            continue
        if sources.get(name):
            found.append(f"{name} comes from {sources[name]}, which isn't in these files")
        elif is_unresolved(written):
            found.append(f"{written} in {flag_of(name)} isn't set")
        elif written:
            found.append(f"{written} in {flag_of(name)} can't be read")
    return found


def _defaulted(item, name, entry):
    """Give a pod's containers the defaults of a LimitRange's entry, and say so."""
    limits = entry.get("default") or {}
    requests = {**limits, **(entry.get("defaultRequest") or {})}
    for container in item["containers"]:
        own = container["resources"]
        added = {key: scalar(value) for key, value in limits.items() if key not in own["limits"]}
        # A limit that is written is the request too, before the LimitRange is asked.
        asked = {
            key: scalar(value)
            for key, value in requests.items()
            if key not in own["requests"] and key not in own["limits"]
        }
        own["limits"].update(added)
        own["requests"].update(asked)
        if added and container["engine"]:
            shown = ", ".join(f"{key} {value}" for key, value in sorted(added.items()))
            item["assumptions"].append(
                f"container {container['name']} gets the default limits of LimitRange/{name}: {shown}"
            )
            words = ", ".join(f"{key} limit" for key in sorted(added))
            text = f"LimitRange {name} sets: {words} for container {container['name']}"
            item["mutations"].append({"tool": "LimitRange", "text": text})


def _rest(listed):
    return f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""


def _about(raw):
    return f"{raw['kind']}/{raw['metadata']['name']}"


def _carried_values(raw):
    """The Helm values that an object of a GitOps tool carries, or None."""
    path = VALUES.get((api_group(raw["apiVersion"]), raw["kind"]))
    try:
        return field(raw, path) if path else None
    except DocumentError:
        return None


def _has_template(raw):
    spec = raw.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("containers"), list)


def _ranks(raw):
    """How many pods form the engine where the pods of one StatefulSet or Job are its ranks."""
    counted = {"StatefulSet": "replicas", "Job": "parallelism"}.get(raw["kind"])
    return number(field(raw, "spec").get(counted), 1) or 1 if counted else 1


def _replicas(wanted):
    """Wanted pods; how many there are isn't known before the manifest ships."""
    if not isinstance(wanted, int):
        return None
    return dict(dict.fromkeys(("current", "ready", "available", "updated")), desired=wanted)


def _raw_pod(raw, template: Template):
    """A raw Pod as the object's controller makes it of one template, owned by the object."""
    metadata = raw["metadata"]
    name = "-".join(word for word in (metadata["name"], template.role.lower().replace(" ", "-")) if word)
    made = {
        "namespace": metadata.get("namespace") or "",
        "name": name,
        "labels": {key: scalar(value) for key, value in template.labels.items() if value is not None},
        "annotations": {
            key: scalar(value) for key, value in template.annotations.items() if value is not None
        },
    }
    if raw["kind"] != "Pod":
        owner = {
            "apiVersion": raw["apiVersion"],
            "kind": raw["kind"],
            "name": metadata["name"],
            "controller": True,
        }
        made["ownerReferences"] = [owner]
    if not maps(template.spec, "containers"):
        raise DocumentError("its pod template has no containers")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template.spec}
