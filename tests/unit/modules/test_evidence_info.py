# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module says when it fails."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.cluster import CollectionError
from ansible_collections.vllm_runbook.oom.plugins.modules.evidence_info import failure


@pytest.mark.parametrize(
    ("pods", "unreadable", "is_kept"),
    [
        ([], [], False),
        ([], [documents.unreadable("events", "namespace llm", "forbidden")], True),
        ([documents.pod("llm", "llama-0")], [], True),
    ],
)
def test_a_failure_keeps_what_was_seen_and_nothing_empty(pods, unreadable, is_kept):
    partial = documents.evidence("2026-11-30T07:00:00Z", "cluster", "https://x")
    partial.update(pods=pods, unreadable=unreadable)
    expected = {"failed": True, "msg": "no pods", **({"evidence": partial} if is_kept else {})}
    assert failure(CollectionError("no pods", partial)) == expected


def test_a_failure_before_anything_was_seen():
    assert failure(documents.DocumentError("no such file")) == {"failed": True, "msg": "no such file"}
