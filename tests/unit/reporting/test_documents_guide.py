# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guide on the documents names what the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.limits import limits_of

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "docsite" / "rst" / "documents.rst"


def test_the_guide_lists_the_causes():
    listed = re.findall(
        r"^   \* - ``(\w+)``\n     - (.+)\.$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {cause: meaning.lower() for cause, meaning in listed} == {
        cause: meaning.lower() for cause, meaning in documents.CAUSES.items()
    }


@pytest.mark.parametrize(
    "vocabulary",
    [
        documents.MEMORIES,
        documents.PHASES,
        documents.ROLES,
        documents.CONFIDENCES,
        documents.TARGETS,
        documents.DIRECTIONS,
        documents.PROOFS,
        documents.NODE_STATES,
        documents.PLAN_STATES,
        documents.DELIVERIES,
        documents.VERDICTS,
    ],
)
def test_the_guide_names_each_vocabulary(vocabulary):
    text = GUIDE.read_text(encoding="utf-8")
    assert not [word for word in vocabulary if not re.search(rf"\b{word}\b", text)]


CHANGE = documents.change("flag", "--x", "set", 1, "w")


@pytest.mark.parametrize(
    ("section", "builders"),
    [
        (
            "Plan",
            [
                documents.plan_document({}),
                documents.plan_document({})["limits"],
                documents.object_plan({}, []),
                documents.object_plan({}, [])["apply"],
                documents.object_plan({}, [])["expected"],
                documents.planned_change(CHANGE, "planned"),
                documents.delivery("live", "w"),
                CHANGE,
                limits_of(None),
            ],
        ),
        (
            "Outcome",
            [
                documents.outcome_document(),
                documents.object_outcome({}),
                documents.outcome_attempt(),
            ],
        ),
    ],
)
def test_the_guide_shows_every_field(section, builders):
    text = GUIDE.read_text(encoding="utf-8")
    part = re.split(r"^(\S[^\n]*)\n-+\n", text, flags=re.MULTILINE)
    (shown,) = (body for title, body in zip(part[1::2], part[2::2], strict=True) if title == section)
    assert not [name for builder in builders for name in builder if not re.search(rf"\b{name}:", shown)]
