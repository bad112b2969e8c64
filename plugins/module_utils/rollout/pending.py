# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeping the mark of a run on the object that it changed, while its rollout is waited for.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import DocumentError
from ..evidence.client import ApiError
from ..times import parse_time
from . import records
from . import writer as writing


def keep(writer, place, run, lease, raw):
    """Prolong the run's mark by ``lease`` seconds where less than half of them is left. Returns whether the run holds the object.

    writer: access.Writer; place: places.Place; raw: the object as it was read just now. Never fails: a mark that runs out
    costs the protection, not the run.
    """
    try:
        mark = records.notes_of(raw, place.shown).pending
        if not mark or mark["run"] != run:
            return False
        left = (parse_time(mark["until"]) - writer.now()).total_seconds()
        return left > lease / 2 or writing.renew(writer, place, run, lease)
    except (ApiError, DocumentError):
        return False
