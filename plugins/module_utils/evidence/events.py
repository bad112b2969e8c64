# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes events as evidence: both API shapes, aggregated ones, matched to objects by uid.

Shapes and traps: shared facts "kubernetes-gpu-facts", section 2.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import event

_COMBINED = "(combined from similar events): "

# Annotations that the kubelet puts on an Evicted event (pkg/kubelet/eviction/helpers.go).
_DETAILS = (
    "starved_resource",
    "offending_containers",
    "offending_containers_usage",
    "offending_pod",
    "offending_pod_usage",
)


def involved(raw_event):
    """The object that an event is about: ``involvedObject`` (v1) or ``regarding`` (events.k8s.io)."""
    return raw_event.get("involvedObject") or raw_event.get("regarding") or {}


def last_time(raw_event):
    """When an event was last seen: series, lastTimestamp, eventTime, creation; RFC 3339 or None.

    kubelet events carry lastTimestamp and count, scheduler events eventTime and series.
    """
    series = raw_event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or raw_event.get("lastTimestamp")
        or raw_event.get("deprecatedLastTimestamp")
        or raw_event.get("eventTime")
        or (raw_event.get("metadata") or {}).get("creationTimestamp")
    )


def first_time(raw_event):
    """When an event was first seen, RFC 3339 or None."""
    return (
        raw_event.get("firstTimestamp")
        or raw_event.get("deprecatedFirstTimestamp")
        or raw_event.get("eventTime")
        or (raw_event.get("metadata") or {}).get("creationTimestamp")
    )


def event_count(raw_event):
    """How often an event was seen (at least 1)."""
    series = raw_event.get("series") or {}
    return series.get("count") or raw_event.get("count") or raw_event.get("deprecatedCount") or 1


def event_evidence(raw_event, redactor):
    """One raw event (v1 or events.k8s.io/v1) as ``documents.event``, plus two fields:

    combined: the message stands for several similar events, whose texts differ; details: the kubelet's
    annotations on an eviction.
    """
    message = raw_event.get("message") or raw_event.get("note") or ""
    combined = message.startswith(_COMBINED)
    about = involved(raw_event)
    annotations = (raw_event.get("metadata") or {}).get("annotations") or {}
    kept = event(
        raw_event.get("reason"),
        redactor.text(message[len(_COMBINED) :] if combined else message).strip(),
        type=raw_event.get("type"),
        object=f"{about.get('kind')}/{about.get('name')}" if about.get("name") else about.get("kind"),
        count=event_count(raw_event),
        first_at=first_time(raw_event),
        last_at=last_time(raw_event),
    )
    kept["combined"] = combined
    kept["details"] = {key: redactor.text(annotations[key]) for key in _DETAILS if key in annotations}
    return kept


def concerns(raw_event, raw_object):
    """Whether an event is about this very object.

    By uid: a StatefulSet's next pod has the same name. Only an event without uid (node events of some
    senders, describe output) is matched by kind, namespace and name.
    """
    about = involved(raw_event)
    metadata = raw_object.get("metadata") or {}
    if about.get("uid") and metadata.get("uid"):
        # The kubelet writes a node's name as the uid of node events.
        return about["uid"] == metadata["uid"] or (
            about.get("kind") == "Node" and about["uid"] == metadata.get("name")
        )
    return (
        about.get("name") == metadata.get("name")
        and (about.get("namespace") or None) in (None, metadata.get("namespace"))
        and about.get("kind") in (None, raw_object.get("kind") or "Pod")
    )


def sort_events(events):
    """Event evidence, oldest last sighting first; those without a time come first."""
    return sorted(
        events, key=lambda item: (item["last_at"] or "", item["reason"] or "", item["message"] or "")
    )


def events_about(raw_object, raw_events, redactor):
    """The evidence of those of ``raw_events`` that concern ``raw_object``, oldest first."""
    return sort_events([event_evidence(item, redactor) for item in raw_events if concerns(item, raw_object)])
