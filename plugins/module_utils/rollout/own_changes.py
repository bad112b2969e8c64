# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects of a cluster carry our annotations: what was changed there, by which run, with which verdict.

Asked with ``MetadataClient``, the server sends no spec, and so no secret in one.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from datetime import datetime, timezone

from ..documents import DocumentError
from ..evidence.client import ApiError, Client
from ..evidence.own_change import own_change
from ..evidence.redact import Redactor
from ..evidence.workloads import KINDS
from ..remediation.workload_kinds import LAYOUTS
from ..times import parse_time

# (API group, kind) of what is ever written.
_KINDS = tuple(key for key, layout in LAYOUTS.items() if layout.live)
# What kubectl takes for a kind, too.
_SHORT = {
    "deploy": "deployment",
    "sts": "statefulset",
    "ds": "daemonset",
    "lws": "leaderworkerset",
    "isvc": "inferenceservice",
}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class MetadataClient(Client):
    """A client that is sent the metadata of the objects in a list, and nothing else of them."""

    def _headers(self):
        return [(name, _METADATA if name == "Accept" else value) for name, value in super()._headers()]


def own_changes(client, namespace=None, workload=None, now=None):
    """``{objects, unreadable}`` of one namespace, or of all where ``namespace`` is None.

    objects: ``[{api_version, kind, namespace, name, uid, generation, key, held, unfinished}]`` with what ``own_change`` says of
    each. key: ``NAMESPACE/KIND/NAME``; held: whether a run holds it now; unfinished: whether the newest change has no verdict
    although none does (its run was killed).
    workload: ``kind/name``, the only object to look at. now: an aware datetime.

    Raises DocumentError where ``workload`` isn't one that can be changed or isn't there, or nothing could be read.
    """
    now = now or datetime.now(timezone.utc)
    wanted = _wanted(workload) if workload else None
    kinds = [item for item in _KINDS if wanted is None or item in wanted[0]]
    versions = _versions(client)
    found, unreadable, listed, seen = [], [], False, False
    for group, kind in kinds:
        if group not in versions:
            continue
        plural, version = KINDS[group, kind].plural, versions[group]
        try:
            for raw in client.pages(_path(group, version, namespace, plural)):
                metadata = raw.get("metadata") or {}
                if wanted and metadata.get("name") != wanted[1]:
                    continue
                seen = True
                found.append(_entry(f"{group}/{version}", kind, metadata, now))
            listed = True
        except ApiError as error:
            if error.status in (None, 401):
                raise DocumentError(_out_of_reach(client, error)) from error
            if error.status != 404:
                unreadable.append(_unread(f"{plural}.{group}", namespace, error))
    if unreadable and not listed:
        first = unreadable[0]
        raise DocumentError(f"no object could be listed: {first['object']}: {first['reason']}{_needs(first)}")
    if wanted and not seen:
        where = f"namespace {namespace}" if namespace else "the cluster"
        raise DocumentError(
            f"there is no {workload} in {where}: give the kind and name of an object that is there"
        )
    return {"objects": sorted(filter(None, found), key=lambda item: item["key"]), "unreadable": unreadable}


def _wanted(workload):
    """``([(group, kind)], name)`` of ``kind/name`` or ``kind.group/name``, in the singular or plural, of any case."""
    given, slash, name = workload.strip().partition("/")
    kind, _dot, group = given.lower().partition(".")
    kind = _SHORT.get(kind, kind)
    matching = [
        item for item in _KINDS if kind in (item[1].lower(), KINDS[item].plural) and group in ("", item[0])
    ]
    if not slash or not name or not matching:
        known = ", ".join(item[1].lower() for item in _KINDS)
        raise DocumentError(f"{workload!r} is no kind/name such as deployment/llama; the kinds are {known}")
    return matching, name


def _versions(client):
    """The version in which the server prefers each of its API groups. Kubernetes' own is v1."""
    try:
        groups = client.get("/apis").get("groups") or []
    except ApiError:
        groups = []
    return {
        "apps": "v1",
        **{item["name"]: item["preferredVersion"]["version"] for item in groups if item["name"] != "apps"},
    }


def _path(group, version, namespace, plural):
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{group}/{version}{place}/{plural}"


def _out_of_reach(client, error):
    if error.status == 401:
        return (
            f"the Kubernetes API server at {client.host} refuses the credentials (401 Unauthorized); renew the token or choose"
            " another kubeconfig or context"
        )
    return (
        f"the Kubernetes API server at {client.host} can't be reached: {error.message}; check that the cluster is up and that"
        " kubeconfig, context or host name the right one"
    )


def _unread(resource, namespace, error):
    reason = "forbidden" if error.status == 403 else f"{error.status}: {error.message}"
    where = f" in {namespace}" if namespace else ""
    return {
        "source": "api",
        "object": resource,
        "reason": reason,
        "needs": f"list on {resource}{where}" if error.status == 403 else None,
    }


def _needs(entry):
    return f" (needs {entry['needs']})" if entry["needs"] else ""


def _entry(api_version, kind, metadata, now):
    """One of ``own_changes``' objects, None for an object without an annotation of ours."""
    own = own_change({"metadata": metadata}, Redactor())
    if own is None:
        return None
    namespace, name = metadata.get("namespace"), metadata.get("name")
    until = parse_time(own["until"])
    held = bool(until and until > now)
    return {
        "api_version": api_version,
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "uid": metadata.get("uid"),
        "generation": metadata.get("generation"),
        "key": f"{namespace}/{kind}/{name}",
        **own,
        "held": held,
        "unfinished": bool(own["records"]) and own["verdict"] is None and not held,
    }
