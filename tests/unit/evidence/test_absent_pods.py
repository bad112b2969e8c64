# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which events tell of pods that are not there."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import absent_pods


@pytest.mark.parametrize(
    ("kind", "spec", "status", "all_there"),
    [
        ("ReplicaSet", {"replicas": 2}, {"replicas": 1}, False),
        ("ReplicaSet", {"replicas": 2}, {"replicas": 2}, True),
        ("ReplicaSet", {"replicas": 0}, {"replicas": 0}, True),
        ("StatefulSet", {}, {"replicas": 0}, False),
        ("StatefulSet", {}, {"replicas": 1}, True),
        ("DaemonSet", {}, {"currentNumberScheduled": 1, "desiredNumberScheduled": 2}, False),
        ("DaemonSet", {}, {"currentNumberScheduled": 2, "desiredNumberScheduled": 2}, True),
        ("Job", {}, {}, False),
        ("Job", {}, {"active": 1}, True),
        ("Job", {"parallelism": 2, "completions": 2}, {"active": 1}, False),
        ("Job", {"parallelism": 2, "completions": 2}, {"active": 1, "succeeded": 1}, True),
        ("Mystery", {}, {}, False),
    ],
)
def test_refusal_is_over_when_the_owner_has_its_pods(kind, spec, status, all_there):
    assert absent_pods.has_all_pods({"kind": kind, "spec": spec, "status": status}) is all_there


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("llama-6f7d9c9b5-zzzzz", True),
        ("llama-7c8ddddddd-zzzzz", True),
        ("mistral-3", True),
        ("llama-web-6f7d9c9b5-zzzzz", False),
        ("web-0", False),
        ("my-vllm-0", True),
    ],
)
def test_gone_pod_is_known_by_its_sisters_or_its_words(name, engine):
    event = {"involvedObject": {"name": name}, "reason": "BackOff", "message": "Back-off"}
    assert absent_pods.looks_like_engine(event, ["llama-6f7d9c9b5-aaaaa", "mistral-0"]) is engine


@pytest.mark.parametrize(
    ("reason", "message", "ordinary"),
    [
        ("Killing", "Stopping container vllm", True),
        ("Killing", "Container vllm failed liveness probe, will be restarted", False),
        ("BackOff", "Stopping container vllm", False),
    ],
)
def test_deletion_in_good_order_is_told_from_a_death(reason, message, ordinary):
    assert absent_pods.is_ordinary({"reason": reason, "message": message}) is ordinary


def test_words_are_one_line_of_bounded_length():
    event = {"reason": "BackOff", "message": "a\nb" + "x" * 1000, "eventTime": "2026-11-30T07:00:00Z"}
    found = absent_pods.words(event)
    assert found.startswith("BackOff: a bxx")
    assert found.endswith("x… (at 2026-11-30T07:00:00Z)")
    assert len(found) < 400
