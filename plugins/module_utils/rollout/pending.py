# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeping the mark of a run on the object that it changed, while its rollout is waited for.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import socket

from ..documents import PENDING_ANNOTATION, DocumentError
from ..evidence.client import ApiError
from ..times import parse_time
from . import records
from .access import Unsettled


def renew(writer, place, run, lease, raw=None):
    """Hold the object for ``lease`` more seconds where less than half of them is left. Returns whether the run (still) holds it.

    writer: access.Writer; place: places.Place; raw: the object as it was read just now. A mark of another run is left alone,
    and so is an object without a mark. The patch tests what it replaces, so that a mark set meanwhile stays. Never fails: a
    mark that runs out costs the protection, not the run.
    """
    try:
        raw = raw if raw is not None else writer.get(place.path)
        notes = records.notes_of(raw, place.shown)
    except (ApiError, DocumentError):
        return False
    if not notes.pending or notes.pending["run"] != run:
        return False
    now = writer.now()
    if (parse_time(notes.pending["until"]) - now).total_seconds() > lease / 2:
        return True
    mark = dict(
        records.mark(run, notes.pending["host"] or socket.gethostname(), now, lease), at=notes.pending["at"]
    )
    try:
        operations = records.patch_notes(raw, notes._replace(pending=mark), place.shown)
        # Not by resourceVersion: the status moves all the time while a rollout goes on.
        there = {
            "op": "test",
            "path": operations[0]["path"],
            "value": raw["metadata"]["annotations"][PENDING_ANNOTATION],
        }
        writer.patch(place.path, [there, *operations])
    except (ApiError, DocumentError, Unsettled):
        return False
    return True
