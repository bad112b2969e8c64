# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back to the revision that ran: the newest change of the template, undone field by field.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import change
from ..engine.flags import HIDDEN, is_secret

# What a new image brings by itself, and goes back with it.
_FOLLOWS = "engine."
_ELSEWHERE = "(from elsewhere)"


def way_back(finding, pod):
    """``(rows, sentence, why)``: the changes that undo the newest revision, each a CHANGE with ``of`` (the container).

    Only where the diagnosis recommends it and a revision before is known to serve; then rows are empty where a
    field can't be undone singly, and why says so. None where there is nothing to go back to.
    """
    back = next((item for item in finding["recommend"] if item["name"] == "rollback_revision"), None)
    revisions = (pod.get("workload") or {}).get("revisions") or []
    changed = next(
        (index for index in range(len(revisions) - 1, 0, -1) if revisions[index].get("diff")), None
    )
    if back is None or back["proof"] != "log" or changed is None:
        return None
    number = revisions[changed - 1]["revision"]
    sentence = f"revision {number} ran and serves now; this goes back to it"
    rows = []
    for item in revisions[changed]["diff"]:
        if str(item.get("field")).startswith(_FOLLOWS):
            continue
        row = _undone(item, number)
        if row is None:
            return [], sentence, f"{item.get('field')} can't be set back by itself: go back with the command"
        rows.append(dict(row, of=item.get("container")))
    return rows, sentence, None


def _undone(item, number):
    field, before = str(item.get("field")), item.get("before")
    if before == _ELSEWHERE or HIDDEN in str(before) or HIDDEN in str(item.get("after")):
        return None
    target, name = _target(field)
    if target is None or (target == "env" and (is_secret(name) or item.get("after") == _ELSEWHERE)):
        return None
    direction = "remove" if before is None else "set"
    return change(target, name, direction, before, f"as in revision {number}", "log")


def _target(field):
    """``(target, name)`` of a diff's field, or Nones for what is no single flag, variable or field."""
    prefix, _dot, rest = field.partition(".")
    if prefix == "args" and rest:
        return "flag", "--" + rest.replace("_", "-")
    if prefix == "env" and rest:
        return "env", rest
    if prefix == "resources" or field == "image":
        return "k8s", field
    return None, None
