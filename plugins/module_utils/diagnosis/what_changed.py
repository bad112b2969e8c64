# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first question on call: what changed? From the revisions that the workload's controllers keep."""

from __future__ import annotations

from ..documents import change
from .commands import edited_object, namespace_option, reverting_manager

# Causes that a change of image, arguments, environment or resources can bring about; a neighbour's memory, a signal
# from outside or a broken node is not one of them.
_NOT_BY_REVISION = frozenset(
    (
        "gpu_held_by_other",
        "profiling_memory_changed",
        "sleep_wakeup_oom",
        "sigterm_shutdown",
        "eviction",
        "node_oom",
        "node_pressure",
        "gpu_hardware_fault",
        "status_unknown",
        "sigkill_unattributed",
        "exit_code_masked",
        "undetermined",
        "unschedulable",
    )
)
_MOST_SHOWN = 4
_ROLLED_OUT = ("Deployment", "StatefulSet", "DaemonSet")


def last_change(pod):
    """The newest revision of the pod's workload that differs from the one before it, or None."""
    revisions = (pod.get("workload") or {}).get("revisions") or []
    return next((item for item in reversed(revisions) if item.get("diff")), None)


def describe(revision):
    """What a revision changed, in words: ``args: --max-model-len 8192 -> 32768; image: … -> …``."""
    shown = [
        f"{item.get('field')}: {_value(item.get('before'))} -> {_value(item.get('after'))}"
        for item in revision["diff"][:_MOST_SHOWN]
    ]
    more = len(revision["diff"]) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _value(value):
    return "none" if value in (None, "", [], {}) else str(value)


def with_revision(finding, pod, sisters=()):
    """The trigger with the workload's last change named, and going back to it among its recommendations.

    It comes first when a sister pod of another revision serves: that revision is then known to work.
    """
    revision = last_change(pod)
    if revision is None or finding["cause"] in _NOT_BY_REVISION or finding["phase"] == "serving":
        return finding
    told = f"Revision {revision['revision']} changed {describe(revision)}."
    own = (pod.get("workload") or {}).get("revision")
    works = any(
        (other.get("workload") or {}).get("revision") not in (None, own) and _ready(other)
        for other in sisters
    )
    back = change(
        "action",
        "rollback_revision",
        "set",
        value=None,
        why=told
        + (
            " Pods of another revision serve."
            if works
            else " If the one before it ran, it is the cheapest way back."
        ),
        proof="log" if works else "rule",
        command=_undo(pod),
    )
    recommend = [back, *finding["recommend"]] if works else [*finding["recommend"], back]
    return dict(finding, explanation=f"{finding['explanation']} {told}", recommend=recommend)


def _ready(pod):
    return any(container.get("ready") for container in pod.get("containers") or [] if container.get("engine"))


def _undo(pod):
    manager = reverting_manager(pod)
    if manager:
        return f"go back in the source of {manager.get('tool')} ({manager.get('object')}); a live rollback would be reverted"
    kind = ((pod.get("workload") or {}).get("edit") or {}).get("kind")
    if kind is not None and kind not in _ROLLED_OUT:
        # kubectl goes back only in what keeps its own history.
        return f"kubectl{namespace_option(pod)} edit {edited_object(pod)}  # back to {_as_before(last_change(pod))}"
    return f"kubectl{namespace_option(pod)} rollout undo {edited_object(pod)}"


def _as_before(revision):
    """The values that a revision changed, as they were before it."""
    shown = revision["diff"][:_MOST_SHOWN]
    return "; ".join(f"{item.get('field')}: {_value(item.get('before'))}" for item in shown)
