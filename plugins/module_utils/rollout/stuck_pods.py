# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Broken pods that a controller waits for, so that a change of its template never reaches them, and their deletion.

A StatefulSet replaces no pod while one isn't ready (pod management policy OrderedReady, the default), and with the strategy
OnDelete nothing but a deletion replaces a pod. A pod that is broken is deleted once its template has changed; one that is
ready, or that is still starting for the first time, never is.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import DocumentError
from ..evidence.client import ApiError
from . import places, progress

# How long the controller may take to see the change: a pod that is deleted before that may come back as it was.
_LOOKS = 20
_PAUSE = 0.5


def waits(raw):
    """Whether the controller of an object waits for its broken pods."""
    spec = raw.get("spec") or {}
    on_delete = (spec.get("updateStrategy") or {}).get("type") == "OnDelete"
    if raw.get("kind") == "StatefulSet":
        return on_delete or spec.get("podManagementPolicy") != "Parallel"
    return raw.get("kind") == "DaemonSet" and on_delete


def broken_pods(writer, place, raw):
    """The raw pods of the object that are broken, by name. Raises ApiError."""
    labels = ((raw.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    query = {"labelSelector": ",".join(f"{name}={value}" for name, value in sorted(labels.items()))}
    uid = progress.meta(raw).get("uid")
    found = [
        pod
        for pod in writer.pages(f"/api/v1/namespaces/{place.namespace}/pods", query)
        if any(item.get("uid") == uid for item in progress.meta(pod).get("ownerReferences") or [])
    ]
    return sorted(filter(progress.is_stuck, found), key=progress.name_of)


def _wait_for_controller(writer, place, raw):
    """Until the controller has seen the change, or it takes too long."""
    generation = progress.meta(raw).get("generation") or 0
    for _look in range(_LOOKS):
        if ((raw.get("status") or {}).get("observedGeneration") or 0) >= generation:
            return
        writer.pause(_PAUSE)
        raw = places.read(writer, place)


def delete_broken_pods(writer, place, raw):
    """``(names, sentences)``: the pods that were deleted, and what a person must do because it couldn't be done."""
    if not waits(raw):
        return [], []
    try:
        _wait_for_controller(writer, place, raw)
        pods = broken_pods(writer, place, raw)
    except (ApiError, DocumentError) as error:
        # The change is written: it fails for nothing that only comes after it.
        return [], [f"whether broken pods of {place.shown} hold up the change isn't known: {error}"]
    deleted, left = [], []
    for pod in pods:
        name = progress.name_of(pod)
        try:
            writer.delete(f"/api/v1/namespaces/{place.namespace}/pods/{name}", progress.meta(pod).get("uid"))
            deleted.append(name)
        except ApiError as error:
            if error.status not in (404, 409):  # gone already, or another one of its name
                needs = "" if error.status != 403 else f" (needs: delete pods in namespace {place.namespace})"
                left.append(
                    f"{place.shown} waits for its broken pod {name}: kubectl -n {place.namespace} delete pod {name}{needs}"
                )
    return deleted, left
