# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people see of a change: the changed fields, and no secret."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.operations import patch
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.undo import secrets_of
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import wording
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.places import Place

PLACE = Place("apps/v1", "Deployment", "llm", "llama", "deployments")
KEY = "planted-api-key-1"
LIST = ["m", "--api-key", KEY, "--max-model-len", "8192"]
SCRIPT = [f"exec vllm serve m --api-key={KEY} \\\n  --max-model-len 8192"]


def made(args, command):
    engine = {"name": "vllm", "command": command, "args": args}
    raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [engine]}}},
    }
    edit = {"path": "spec.template.spec.containers[vllm]"}
    return raw, patch(raw, edit, [change("flag", "max_model_len", "set", 4096)], guard=False)


@pytest.mark.parametrize(
    ("args", "command", "withheld"), [(LIST, ["vllm", "serve"], False), (SCRIPT, ["sh", "-c"], True)]
)
def test_a_patch_that_replaces_a_whole_script_is_withheld(args, command, withheld):
    raw, found = made(args, command)
    secrets = secrets_of(raw)
    shown, why = wording.safe_patch(found.json_patch, secrets)
    assert (shown is None, why) == (withheld, wording.WITHHELD if withheld else None)
    assert KEY not in str(shown)
    difference = wording.difference(PLACE, found.undo["steps"], secrets)
    assert KEY not in str(difference)
    assert difference["before"].rstrip().endswith(": 8192")
    assert difference["after"].rstrip().endswith(": 4096")
    assert difference["before"].count("\n") == difference["after"].count("\n") == 1


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/x", "value": f"--flag {KEY}"}],
        [{"op": "add", "path": "/x", "value": {"a": [f"x{KEY}y"]}}],
        [{"op": "test", "path": "/x", "value": "http://user:word@host/"}],
        [{"op": "add", "path": "/x", "value": "hf_abcdefGHIJKL0123456789"}],
    ],
)
def test_patches_with_secrets_of_any_shape_are_withheld(operations):
    assert wording.safe_patch(operations, {KEY}) == (None, wording.WITHHELD)


def test_a_change_in_words():
    item = {"container": "vllm", "name": "--max-model-len", "before": 8192, "after": 4096}
    assert wording.words_of(item) == "container vllm: --max-model-len: 8192 -> 4096"
    item = {"container": None, "name": "strategy", "before": None, "after": "Recreate"}
    assert wording.words_of(item) == "strategy: not set -> Recreate"
