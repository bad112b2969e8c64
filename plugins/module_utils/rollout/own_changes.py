# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects of a cluster carry our annotations: what was changed there, by which run, with which verdict.

Asked with ``MetadataClient``, the server sends no spec, and so no secret in one.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone

from ..documents import PENDING_ANNOTATION, UNDO_ANNOTATION, DocumentError
from ..evidence.client import ApiError, Client
from ..evidence.workloads import KINDS
from ..times import parse_time

# What is written by us, see ``remediation.delivery``: (API group, kind).
WRITTEN_KINDS = (
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("serving.kserve.io", "InferenceService"),
    ("serving.kserve.io", "LLMInferenceService"),
    ("production-stack.vllm.ai", "VLLMRuntime"),
    ("apps.nvidia.com", "NIMService"),
)
# What kubectl takes for a kind, too.
_SHORT = {"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "lws": "leaderworkerset", "isvc": "inferenceservice"}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


_RECORD = ("id", "run", "at", "causes", "changes", "verdict")
_MARK = ("run", "at", "until", "host")


class MetadataClient(Client):
    """A client that is sent the metadata of the objects in a list, and nothing else of them."""

    def _headers(self):
        return [
            (name, _METADATA if name == "Accept" else value) for name, value in super()._headers()
        ]



def own_changes(client, namespace=None, workload=None, now=None):
    """``{objects, unreadable}`` of one namespace, or of all where ``namespace`` is None.

    objects: ``[{api_version, kind, namespace, name, uid, generation, key, records, pending, held, unfinished}]``. key:
    ``NAMESPACE/KIND/NAME``; records: what was changed, the newest last, each ``{id, run, at, causes, changes, verdict}``;
    pending: ``{run, at, until, host}`` or None; held: whether it hasn't expired; unfinished: whether the newest change has
    no verdict and no run holds the object any more (it was killed).
    workload: ``kind/name``, the only object to look at. now: an aware datetime.

    Raises DocumentError where ``workload`` isn't one that can be changed or isn't there, or nothing could be read.
    """
    now = now or datetime.now(timezone.utc)
    wanted = _wanted(workload) if workload else None
    kinds = [item for item in WRITTEN_KINDS if wanted is None or item in wanted[0]]
    found, unreadable, seen = [], [], False
    for group, kind in kinds:
        version = _version(client, group)
        if version is None:
            continue
        plural = KINDS[group, kind].plural
        try:
            for raw in client.pages(_path(group, version, namespace, plural)):
                metadata = raw.get("metadata") or {}
                if wanted and metadata.get("name") != wanted[1]:
                    continue
                seen = True
                _add(found, unreadable, f"{group}/{version}", kind, metadata, now)
        except ApiError as error:
            if error.status != 404:
                unreadable.append(_unread(f"{plural}.{group}", namespace, error))
    if unreadable and not seen and len(unreadable) == len(kinds):
        first = unreadable[0]
        raise DocumentError(f"no object could be read: {first['object']}: {first['reason']}" + _needs(first))
    if wanted and not seen:
        where = f"namespace {namespace}" if namespace else "the cluster"
        raise DocumentError(f"there is no {workload} in {where}: give the kind and name of an object that is there")
    return {"objects": sorted(found, key=lambda item: item["key"]), "unreadable": unreadable}


def _wanted(workload):
    """``([(group, kind)], name)`` of ``kind/name`` or ``kind.group/name``, in the singular or plural, of any case."""
    given, slash, name = workload.strip().partition("/")
    kind, _dot, group = given.lower().partition(".")
    kind = _SHORT.get(kind, kind)
    matching = [
        item
        for item in WRITTEN_KINDS
        if kind in (item[1].lower(), KINDS[item].plural) and group in ("", item[0])
    ]
    if not slash or not name or not matching:
        known = ", ".join(item[1].lower() for item in WRITTEN_KINDS)
        raise DocumentError(f"{workload!r} is no kind/name such as deployment/llama; the kinds are {known}")
    return matching, name


def _version(client, group):
    """The version in which the server prefers a group, None where it doesn't have the group. Kubernetes' own is v1."""
    if group == "apps":
        return "v1"
    try:
        return client.get(f"/apis/{group}")["preferredVersion"]["version"]
    except (ApiError, KeyError, TypeError):
        return None


def _path(group, version, namespace, plural):
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{group}/{version}{place}/{plural}"


def _unread(resource, namespace, error):
    reason = "forbidden" if error.status == 403 else f"{error.status or 'no answer'}: {error.message}"
    where = f" in {namespace}" if namespace else ""
    return {
        "source": "api",
        "object": resource,
        "reason": reason,
        "needs": f"list on {resource}{where}" if error.status == 403 else None,
    }


def _needs(entry):
    return f" (needs {entry['needs']})" if entry["needs"] else ""


def _add(found, unreadable, api_version, kind, metadata, now):
    annotations = metadata.get("annotations") or {}
    if not {UNDO_ANNOTATION, PENDING_ANNOTATION} & set(annotations):
        return
    namespace, name = metadata.get("namespace"), metadata.get("name")
    key = f"{namespace}/{kind}/{name}"
    undo = _parsed(annotations.get(UNDO_ANNOTATION))
    mark = _parsed(annotations.get(PENDING_ANNOTATION))
    if undo is None or mark is None:
        broken = UNDO_ANNOTATION if undo is None else PENDING_ANNOTATION
        unreadable.append(
            {
                "source": "workload",
                "object": key,
                "reason": f"its annotation {broken} isn't what we wrote",
                "needs": None,
            }
        )
    records = [
        {field: item.get(field) for field in _RECORD}
        for item in (undo or {}).get("records") or []
        if isinstance(item, dict)
    ]
    pending = {field: mark.get(field) for field in _MARK} if mark else None
    until = parse_time((pending or {}).get("until"))
    held = bool(until and until > now)
    found.append(
        {
            "api_version": api_version,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": metadata.get("uid"),
            "generation": metadata.get("generation"),
            "key": key,
            "records": records,
            "pending": pending,
            "held": held,
            "unfinished": bool(records) and not records[-1]["verdict"] and not held,
        }
    )


def _parsed(text):
    """The object in an annotation; {} where there is none, None where it is no JSON object."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
