# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A planned change in words, the same in every sentence of a plan.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import ACTIONS


def value(given):
    """A value of a change: ``failureThreshold: 60, periodSeconds: 10``, ``on`` for a switch."""
    if isinstance(given, dict):
        return ", ".join(f"{name}: {value(item)}" for name, item in given.items())
    if isinstance(given, float):
        return f"{given:g}"
    return "on" if given is True else given


def run_name(run):
    """``run-1f0c2a7b9d3e``, and an id that was given as ``run ID``."""
    return run if str(run).startswith("run-") else f"run {run}"


def _asked(change):
    """Of what only a person does, as it is recommended."""
    text = f"{change['direction']} {change['name']}"
    return text if change["value"] is None else f"{text} to {value(change['value'])}"


def in_words(change):
    """``set --max-model-len to 18224 (now 40960)``; change: a CHANGE with action, before and after."""
    if change["target"] == "action":
        return ACTIONS[change["name"]]
    if change["action"] is None:
        return _asked(change)
    if change["action"] == "remove":
        text = f"remove {change['name']}"
    elif change["after"] is True:
        text = f"add {change['name']}"
    else:
        text = f"set {change['name']} to {value(change['after'])}"
    return text if change["before"] is None else f"{text} (now {value(change['before'])})"
