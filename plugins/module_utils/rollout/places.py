# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which object is meant, where it is on the API server, and where it keeps the engine's container.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple

from ..documents import DocumentError
from ..evidence.client import ApiError
from ..evidence.pods import recognise_engine
from ..evidence.workloads import KINDS, api_group, kind_of
from ..remediation.object_paths import locate, value_at

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_NAMED = re.compile(r"\[([^\]]+)\]$")
# What ``{r}`` of a kind's path may be, the first that the object has.
_PARTS = {
    "LeaderWorkerSet": ("leaderTemplate", "workerTemplate"),
    "InferenceService": ("model", "containers[{c}]", "huggingface", "engine.runner"),
    "LLMInferenceService": ("template",),
}


class Place(NamedTuple):
    """One object of a cluster. plural: of its kind, as in its address."""

    api_version: str
    kind: str
    namespace: str
    name: str
    plural: str

    @property
    def path(self):
        return f"{self.listing}/{self.name}"

    @property
    def listing(self):
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        return f"{root}/namespaces/{self.namespace}/{self.plural}"

    @property
    def group(self):
        return api_group(self.api_version)

    @property
    def shown(self):
        return f"{self.kind}/{self.name}"

    def right(self, verb):
        """The right that ``verb`` takes, in words."""
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{verb} {resource} in namespace {self.namespace}"


def place_of(api_version, kind, namespace, name):
    """The ``Place`` of an object. api_version None: that of Kubernetes' own kinds. DocumentError where it can't be one."""
    for what, text in (("namespace", namespace), ("name", name)):
        if not _NAME.fullmatch(text):
            raise DocumentError(f"{what}: {text!r} is no name: give one as kubectl prints it")
    if api_version is None:
        api_version = _own_version(kind)
    known = kind_of(api_version, kind)
    if known is None:
        raise DocumentError(
            f"kind: nothing is known of {kind} in {api_version}, so nothing says where its settings are: change it by hand"
        )
    return Place(api_version, kind, namespace, name, known.plural)


def _own_version(kind):
    if ("apps", kind) in KINDS:
        return "apps/v1"
    if ("batch", kind) in KINDS:
        return "batch/v1"
    if kind == "Pod":
        return "v1"
    near = difflib.get_close_matches(kind, [name for _group, name in KINDS], n=2)
    if kind in near or not near:
        raise DocumentError(f"api_version: {kind} is no kind of Kubernetes itself: give its api_version")
    raise DocumentError(f"kind: {kind!r} isn't known (nearest: {', '.join(near)})")


def read(writer, place):
    """The raw object. Raises DocumentError with a sentence for what stands against it."""
    try:
        raw = writer.get(place.path)
    except ApiError as error:
        raise DocumentError(why_unread(writer, place, error)) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
        raise DocumentError(f"{writer.host} answers {place.path} with something that is no object")
    raw.setdefault("kind", place.kind)
    raw.setdefault("apiVersion", place.api_version)
    return raw


def why_unread(writer, place, error):
    if error.status is None:
        return (
            f"the Kubernetes API server at {writer.host} can't be reached: {error.message}; check that the cluster is up and that"
            " kubeconfig, context or host name the right one"
        )
    if error.status == 401:
        return (
            f"the Kubernetes API server at {writer.host} refuses the credentials (401 Unauthorized); renew the token or choose"
            " another kubeconfig or context"
        )
    if error.status == 403:
        return f"{place.shown} can't be read; needs: {place.right('get')}"
    if error.status == 404:
        return _why_absent(writer, place)
    return f"the API server answers the request for {place.shown} with {error.status}: {error.message}"


def _why_absent(writer, place):
    where = f"namespace {place.namespace}"
    try:
        writer.get(f"/api/v1/namespaces/{place.namespace}")
    except ApiError as error:
        if error.status == 404:
            return f"there is no namespace {place.namespace} on {writer.host}"
    try:
        names = [item["metadata"]["name"] for item in writer.pages(place.listing)]
    except ApiError as error:
        if error.status == 404:
            return f"{writer.host} serves no {place.plural} of {place.api_version}"
        names = []
    near = difflib.get_close_matches(place.name, names, n=3, cutoff=0.5)
    shown = f"; nearest names: {', '.join(near)}" if near else ""
    return f"there is no {place.kind} {place.name} in {where}{shown}"


def container_path(raw, place, container=None):
    """The path of a container in the object, by default that of the engine. DocumentError where it isn't there."""
    pattern = kind_of(place.api_version, place.kind).path
    if pattern is None:
        raise DocumentError(f"{place.shown} keeps no container: give path, or change it by hand")
    if "{r}" in pattern:
        pattern = _with_part(raw, place, pattern)
    if "{c}" not in pattern:
        return pattern
    holder = pattern[: pattern.index("[{c}]")]
    items = value_at(raw, locate(raw, holder))
    return f"{holder}[{_chosen(raw, place, items, holder, container)}]"


def _with_part(raw, place, pattern):
    for part in _PARTS.get(place.kind, ()):
        path = pattern.replace("{r}", part)
        above = path.partition("[{c}]")[0]
        if _there(raw, above):
            return path
    raise DocumentError(f"path: it can't be told where {place.shown} keeps the engine's container: give path")


def _there(raw, path):
    try:
        return value_at(raw, locate(raw, path)) is not None
    except DocumentError:
        return False


def _chosen(raw, place, items, holder, container):
    names = [item.get("name") for item in items or [] if isinstance(item, dict)]
    if container is not None:
        if container not in names:
            raise DocumentError(
                f"container: {place.shown} has no container {container!r}: it has {', '.join(map(str, names)) or 'none'}"
            )
        return container
    template = value_at(raw, locate(raw, holder.rpartition(".spec")[0])) if ".spec." in f"{holder}." else {}
    labels = (template.get("metadata") or {}).get("labels") if isinstance(template, dict) else None
    pod: dict[str, Any] = {"metadata": {"labels": labels or {}}, "spec": {"containers": items or []}}
    found = recognise_engine(pod)
    if found is None and len(names) != 1:
        raise DocumentError(
            f"container: none of the containers of {place.shown} is known to run vLLM ({', '.join(map(str, names)) or 'there is none'}):"
            " give container"
        )
    return names[found[0] if found else 0]


def checked_path(raw, place, path, container):
    """``path`` as given, whose container must be there, and be ``container`` where that is given too."""
    located = value_at(raw, locate(raw, path))
    if not isinstance(located, dict):
        raise DocumentError(f"path: {path} of {place.shown} is no container")
    named = _NAMED.search(path)
    if container and named and named.group(1) != container:
        raise DocumentError(
            f"container: {container!r} isn't the container of path {path}: give one of the two"
        )
    return path
