# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the module that hold secrets, and the action group."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import VERDICTS
from ansible_collections.vllm_runbook.oom.plugins.modules import workload

COLLECTION = Path(workload.__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "secret", "harmless"),
    [
        ({"engine_args": {"api_key": "planted-1", "max_model_len": 8192}}, "planted-1", "8192"),
        ({"env": {"HF_TOKEN": "planted-2", "OMP_NUM_THREADS": "4"}}, "planted-2", "4"),
        ({"changes": [{"name": "--api-key", "value": "planted-3"}, {"name": "--seed", "value": 7}]}, "planted-3", "7"),
        ({"changes": [{"name": "HF_TOKEN", "after": "planted-4"}, "no dictionary"]}, "planted-4", "no dictionary"),
    ],
)  # fmt: skip
def test_secrets_in_options_are_kept_out_of_the_output(options, secret, harmless):
    found = workload.given_secrets(options)
    assert secret in found
    assert harmless not in found


def test_what_is_documented_is_what_is_taken():
    options = yaml.safe_load(workload.DOCUMENTATION)["options"]
    for name, documented in options.items():
        spec = workload.argument_spec()[name]
        for key in ("type", "default", "choices", "elements", "required"):
            assert documented.get(key) == spec.get(key), (name, key)
    assert options["verdict"]["choices"] == list(VERDICTS)
    group = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())["action_groups"]["k8s"]
    assert "workload" in group
