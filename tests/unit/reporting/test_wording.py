# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a change, and text that is safe to show."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import wording


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("flag", "max_model_len", "decrease", 18224), "lower --max-model-len to 18224"),
        (("flag", "--gpu-memory-utilization", "increase", None), "raise --gpu-memory-utilization"),
        (("flag", "enforce_eager", "set", True), "set --enforce-eager"),
        (("flag", "enable_prefix_caching", "set", False), "set --no-enable-prefix-caching"),
        (("flag", "enforce_eager", "remove", None), "remove --enforce-eager"),
        (("flag", "limit_mm_per_prompt", "set", {"image": 1}), 'set --limit-mm-per-prompt to {"image": 1}'),
        (("env", "NCCL_NVLS_ENABLE", "set", 0), "set NCCL_NVLS_ENABLE to 0"),
        (("k8s", "resources.limits.cpu", "remove", None), "remove resources.limits.cpu"),
        (("k8s", "resources.limits.cpu", "keep", None), "leave resources.limits.cpu as it is"),
        (("k8s", "volumes.shm.sizeLimit", "add", "4Gi"), "add volumes.shm.sizeLimit with 4Gi"),
        (("action", "free_gpu", "set", None), documents.ACTIONS["free_gpu"]),
        (("action", "upgrade", "set", "0.20.0"), documents.ACTIONS["upgrade"] + ": 0.20.0"),
    ],
)
def test_a_change_is_an_imperative_phrase(change, words):
    assert wording.change_words(documents.change(*change)) == words


@pytest.mark.parametrize("direction", documents.DIRECTIONS)
@pytest.mark.parametrize("target", ["flag", "env", "k8s"])
def test_every_target_and_direction_has_words(target, direction):
    for value in (None, "8Gi"):
        words = wording.change_words(documents.change(target, "some_name", direction, value))
        assert "name" in words
        assert "None" not in words


def test_text_of_a_log_cannot_steer_a_terminal():
    assert wording.clean("\x1b[31mred\x1b[0m\x07 \x9b2J\u202eback\r\nnext") == "red 2Jback\nnext"
    assert wording.clean(None) == ""
