# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guide on the documents names what the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents

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
    ],
)
def test_the_guide_names_each_vocabulary(vocabulary):
    text = GUIDE.read_text(encoding="utf-8")
    assert not [word for word in vocabulary if not re.search(rf"\b{word}\b", text)]
