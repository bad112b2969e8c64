# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many runs of a container were not seen: those that waited to start never ran."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import unseen_words
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.pods import attempts_of
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import Redactor

TERMINATED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def unseen(restarts, state, last=None):
    status = {"restartCount": restarts, "state": state, "lastState": last or {}}
    attempts = attempts_of(status, Redactor())
    facts = SimpleNamespace(
        restarts=restarts,
        container={"attempts": attempts},
        attempt=attempts[-1],
        log={"readable": True, "complete": True},
    )
    return unseen_words(facts)


@pytest.mark.parametrize(
    "reason", ["ImagePullBackOff", "CreateContainerConfigError", "PodInitializing", "ContainerCreating"]
)
def test_container_that_never_ran_has_no_unseen_run(reason):
    assert unseen(0, {"waiting": {"reason": reason}}) is None


@pytest.mark.parametrize(
    ("restarts", "state", "last", "words"),
    [
        (0, TERMINATED, None, None),
        (1, TERMINATED, TERMINATED, None),
        (0, {"waiting": {"reason": "CrashLoopBackOff"}}, TERMINATED, None),
        (2, {"waiting": {"reason": "CrashLoopBackOff"}}, TERMINATED, "started 3 times and 1 of these"),
        (2, {"running": {}}, TERMINATED, "started 3 times and 2 of these"),
        (1, {"running": {}}, None, "started 2 times and 1 of these"),
        (1, {"waiting": {"reason": "ContainerCreating"}}, None, "started once and 0 of these"),
    ],
)
def test_runs_that_were_not_seen_are_counted(restarts, state, last, words):
    found = unseen(restarts, state, last)
    assert (words is None and found is None) or words in found
