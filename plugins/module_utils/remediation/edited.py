# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The object that a person edits for a pod, and what pods and objects are called.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations


def pod_key(pod):
    """``namespace/name`` of a pod of the evidence or of the diagnosis."""
    return f"{pod.get('namespace') or ''}/{pod['name']}"


def edit_of(pod):
    """``workload.edit`` of the evidence's pod, empty where no object holds it."""
    return (pod.get("workload") or {}).get("edit") or {}


def object_key(pod):
    """What tells the edited objects of pods apart; a pod without one is its own."""
    edit = edit_of(pod)
    if not edit.get("name"):
        return ("pod", pod_key(pod))
    return (pod.get("namespace"), edit.get("api_version"), edit.get("kind"), edit["name"])


def object_name(item):
    """``Kind/name`` of an object, as ``managers`` of the evidence name it."""
    return f"{item.get('kind')}/{item.get('name')}"
