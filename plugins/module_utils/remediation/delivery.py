# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a planned change reaches its object: a live write, a patch for the object's source, or a person's hand.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..diagnosis.commands import command_for, edited_object, in_cluster, namespace_option, reverting_manager
from ..documents import delivery
from ..evidence.workloads import api_group
from .as_written import is_list_of_containers
from .edited import edit_of, object_name
from .workload_kinds import layout_of, refused_in

_REVERTING = ("now", "on_sync", "unknown")
_BY_PERSON = "only a person can do it"
# Tool -> what overwrites an object of it, and where the change lasts.
_LATER = {
    "kubectl apply": "the next kubectl apply of its manifest overwrites it: change the manifest too",
    "Helm": "the next helm upgrade of its release overwrites it: change the release's values too",
    "Flux HelmRelease": "the next upgrade of its HelmRelease overwrites it: change the HelmRelease's values too",
    "Terraform": "the next terraform apply overwrites it: change the Terraform configuration too",
    "Pulumi": "the next pulumi up overwrites it: change the Pulumi program too",
}
_NEXT_RELEASE = "the next release of {tool} overwrites it: change its source too"


def delivered(operation, pod, container):
    """The delivery of an operation on a container of the evidence's ``pod`` (see ``documents.delivery``)."""
    # The diagnosis' own command has the diagnosis' value; the plan may have computed another one.
    stated = operation.get("command") if operation["action"] is None else None
    command = stated or command_for(_as_change(operation), pod, container)
    if operation["action"] is None:
        return delivery("by_hand", _BY_PERSON, command)
    if not in_cluster(pod):
        return delivery("by_hand", "no object of a cluster is known", command)
    edit = edit_of(pod)
    if not edit.get("name"):
        return delivery("by_hand", "no object of the cluster holds it", command)
    where = edited_object(pod)
    layout = layout_of(api_group(edit.get("api_version")), edit.get("kind"), edit.get("path") or "")
    if layout.not_live:
        return delivery("by_hand", f"{where}: {layout.not_live}", command)
    refused = refused_in(layout, operation)
    if refused:
        return delivery("by_hand", f"{where}: {refused}", command)
    if not _is_own(edit, container):
        return delivery(
            "by_hand", f"{where} has no container {container['name']} of its own to change", command
        )
    why = _patch_reason(edit, where, pod) or _not_written(layout, edit, where)
    if why:
        return delivery("patch", why, command)
    return delivery("live", f"{where} is edited and nothing is known to revert it", command)


def _as_change(operation):
    """The CHANGE for the command; a switch is added, not set to true."""
    shown = operation["after"]
    if isinstance(shown, dict):
        shown = ", ".join(f"{name}: {value}" for name, value in shown.items())
    elif isinstance(shown, (list, tuple)):
        shown = " ".join(str(value) for value in shown)
    elif shown is True:
        return dict(operation, direction="add", value=None)
    return dict(operation, value=shown)


def _patch_reason(edit, where, pod):
    manager = reverting_manager(pod)
    if manager:
        return f"{manager['tool']} ({manager['object']}) reverts a live edit: change it in its source"
    if edit.get("inferred") or _unread(edit, pod):
        return f"{where} itself wasn't in the evidence, so nobody knows who manages it"
    for other in _managers(pod):
        if other.get("reverts") in _REVERTING:
            return f"{other['tool']} ({other['object']}) may revert a live edit: change it in its source"
    return None


def _not_written(layout, edit, where):
    if not layout.live:
        return f"live writes to {where} aren't tested: {edit.get('api_version')} {edit.get('kind')}"
    if not edit.get("path"):
        return f"it isn't known where {where} keeps the engine's container"
    return None


def _is_own(edit, container):
    """Whether the object holds the container itself, and as one of the ordinary ones: init containers are left alone."""
    if container is None or not edit.get("path"):
        return True
    # Kinds without a list of containers keep the engine's in fields of their own, and no other.
    own = is_list_of_containers(edit["path"]) or container.get("engine") is not None
    return own and (container.get("role") or "main") == "main"


def _unread(edit, pod):
    return any(
        (item.get("kind"), item.get("name")) == (edit["kind"], edit["name"]) and item.get("read") is False
        for item in (pod.get("workload") or {}).get("chain") or []
    )


def later_reverts(pod):
    """Sentences: what overwrites a live edit of the pod's edited object later."""
    return overwritten_later(_managers(pod))


def _managers(pod):
    """Those of the edited object itself, of the evidence."""
    name = object_name(edit_of(pod))
    return [item for item in (pod.get("workload") or {}).get("managers") or [] if item.get("object") == name]


def overwritten_later(managers):
    """Sentences: what overwrites a live edit of an object later, and where else it must be made. managers: of that object
    (``evidence.workloads``)."""
    return [
        _LATER.get(item["tool"], _NEXT_RELEASE).format(tool=item["tool"])
        for item in managers
        if item.get("reverts") == "on_upgrade"
    ]


def restart_command(pod):
    """How to start the pods anew where a change of the template doesn't (strategy OnDelete), or None."""
    strategy = (pod.get("workload") or {}).get("strategy") or {}
    if strategy.get("type") != "OnDelete":
        return None
    return f"kubectl{namespace_option(pod)} delete pod {pod['name']}"
