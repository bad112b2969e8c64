# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/examples/manifests say of themselves is what the budget says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import read_manifests
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

FOLDER = Path(__file__).parents[3] / "docs" / "examples" / "manifests"
FITS = {
    "deployment.yaml": [True],
    "inference-service.yaml": [True],
    "leader-worker-set.yaml": [True, True],
    "production-stack-values.yaml": [True, True],
    "stateful-set": [True],
    "too-large.yaml": [False],
}


@pytest.mark.parametrize("name", sorted(FITS))
def test_an_example_fits_or_not_as_it_says(name):
    entries = budgets_of(read_manifests(str(FOLDER / name)), gpu="L40S")["entries"]
    assert [entry["fits"] for entry in entries] == FITS[name], [entry["sentence"] for entry in entries]


def test_every_example_is_held():
    assert {path.name for path in FOLDER.iterdir()} == set(FITS)
