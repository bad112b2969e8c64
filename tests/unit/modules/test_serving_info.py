# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of serving_info that can't be used get one clear sentence."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import requests
from ansible_collections.vllm_runbook.oom.plugins.modules.serving_info import argument_spec, query_of


def options(**given):
    return {**{name: spec.get("default") for name, spec in argument_spec().items()}, **given}


def test_the_defaults_look_once():
    query = query_of(options(kind="Deployment", name="d"))
    assert (query["wait"], query["request"], query["requests"], query["since"], query["soak"]) == (
        0, "token", 1, None, 1800.0,
    )  # fmt: skip


def test_values_are_read():
    query = query_of(options(since="2026-11-30T07:00:00+01:00", timeout="20m", baseline={"a": "2"}))
    assert (query["since"].hour, query["timeout"], query["baseline"]) == (6, 1200.0, {"a": 2})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"since": "yesterday"}, "since: 'yesterday' is no time: give one such as"),
        ({"timeout": "soon"}, "timeout: 'soon' is no duration: give one such as"),
        ({"soak": "-1"}, "soak: '-1' is no duration"),
        ({"requests": 0}, "requests: 0 is not between 1 and 10000"),
        ({"port": 70000}, "port: 70000 is not between 1 and 65535"),
        ({"lease": 1}, "lease: 1 is not between 10"),
        ({"wait": -1.0}, "wait: -1.0 is not between 0"),
        ({"baseline": {"a": "often"}}, "baseline: 'often' is no number of restarts"),
    ],
)
def test_bad_values_are_named(given, words):
    with pytest.raises(DocumentError) as raised:
        query_of(options(**given))
    assert str(raised.value).startswith(words)


def test_every_task_of_the_option_has_requests():
    assert argument_spec()["task"]["choices"] == ["auto", *requests.TASKS]
