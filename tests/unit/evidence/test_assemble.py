# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last steps: settings, groups, order, redactions, and the hard cap on a pod's size."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.assemble import (
    MAX_POD_BYTES,
    add_redactions,
    cap_pod,
    finish,
    finish_container,
    size_of,
)


def excerpt(errors=0, tail=0, notes=0, numbers=0, width=80, frames=0, context=0):
    found = documents.log()
    found["lines"] = max(1, errors + tail + notes + numbers)
    frame = {"file": "/vllm/x.py", "line": 1, "function": "f" * min(width, 60)}
    found["errors"] = [
        documents.line(
            1000 + number,
            f"E{number} " + "é" * width,
            frames=[dict(frame) for _copy in range(frames)],
            context=[documents.line(900 + number, "c" * width) for _copy in range(context)],
        )
        for number in range(errors)
    ]
    found["first_error"] = copy.deepcopy(found["errors"][0]) if errors else None
    found["tail"] = [documents.line(5000 + number, f"T{number} " + "t" * width) for number in range(tail)]
    found["notes"] = [documents.line(3000 + number, f"N{number} " + "n" * width) for number in range(notes)]
    found["numbers"] = [
        documents.line(
            4000 + number, "w" * width, name="gpu_free", value=number, unit="bytes", rank=number % 8
        )
        for number in range(numbers)
    ]
    return found


def pod(logs=(), side_logs=(), **more):
    engine = documents.container(
        "vllm",
        engine=documents.engine(),
        attempts=[documents.attempt(number, "terminated", log=log) for number, log in enumerate(logs)],
    )
    side = documents.container(
        "side",
        attempts=[documents.attempt(number, "terminated", log=log) for number, log in enumerate(side_logs)],
    )
    return documents.pod("llm", "llama", containers=[engine, side], **more)


def test_a_small_pod_is_left_alone():
    given_pod = pod([excerpt(errors=2, tail=20)])
    before = copy.deepcopy(given_pod)
    assert cap_pod(given_pod) == {**before, "cut": []}


def test_the_newest_ended_attempt_keeps_its_hundred_last_lines():
    found = cap_pod(pod([excerpt(errors=3, tail=100), excerpt(errors=3, tail=100)]))
    attempts = found["containers"][0]["attempts"]
    assert [len(item["log"]["tail"]) for item in attempts] == [20, 100]
    assert attempts[0]["log"]["cut"] == ["tail: last 20 of 100 kept (size limit)"]
    assert attempts[0]["log"]["tail"][-1]["text"].startswith("T99 ")
    assert attempts[1]["log"]["cut"] == []


def test_cuts_name_what_was_there_at_first():
    found = cap_pod(pod([excerpt(errors=40, tail=100, notes=40, width=700, frames=12, context=5)]))
    assert size_of(found) <= MAX_POD_BYTES
    cuts = found["containers"][0]["attempts"][0]["log"]["cut"]
    assert any(item.startswith("tail: last ") and " of 100 kept" in item for item in cuts)
    assert len([item for item in cuts if item.startswith("tail:")]) == 1


def test_the_first_error_outlives_the_rest():
    found = cap_pod(
        pod(
            [excerpt(errors=40, tail=100, notes=40, numbers=200, width=3000)] * 2,
            [excerpt(errors=40, tail=100, width=3000)],
        )
    )
    assert size_of(found) <= MAX_POD_BYTES
    for item in found["containers"][0]["attempts"]:
        assert item["log"]["first_error"]["text"].startswith("E0 ")


def test_first_and_last_of_each_number_stay():
    found = cap_pod(pod([excerpt(numbers=400, width=300)]))
    kept = [item["value"] for item in found["containers"][0]["attempts"][0]["log"]["numbers"]]
    assert {0, 1, 7} <= set(kept)
    assert 399 in kept
    assert kept == sorted(kept)


@settings(max_examples=25)
@given(
    errors=st.integers(0, 40),
    tail=st.integers(0, 100),
    notes=st.integers(0, 40),
    width=st.sampled_from([10, 300, 3000]),
    attempts=st.integers(0, 2),
    side=st.integers(0, 2),
    env=st.integers(0, 150),
    args=st.integers(0, 150),
    value=st.sampled_from(["x", "y" * 2000, "ü" * 400]),
    events=st.integers(0, 50),
    containers=st.integers(0, 25),
)
def test_no_pod_is_larger_than_the_cap(
    errors, tail, notes, width, attempts, side, env, args, value, events, containers
):
    one = excerpt(errors=errors, tail=tail, notes=notes, width=width, frames=12, context=5)
    given_pod = pod(
        [copy.deepcopy(one) for _copy in range(attempts)], [copy.deepcopy(one) for _copy in range(side)]
    )
    engine = given_pod["containers"][0]
    engine["env"] = [{"name": f"N{number}", "value": value, "from": None} for number in range(env)]
    engine["args"] = [value] * args
    engine["settings"] = {f"o{number}": {"value": value, "from": "arg", "line": None} for number in range(30)}
    given_pod["labels"] = {f"app.kubernetes.io/{number}": "v" * 63 for number in range(40)}
    given_pod["annotations"] = {"vpaUpdates": value * 3}
    given_pod["events"] = [documents.event("BackOff", value) for _copy in range(events)]
    given_pod["containers"] += [
        documents.container(
            f"init-{number}",
            "init",
            env=copy.deepcopy(engine["env"]),
            args=list(engine["args"]),
            attempts=[documents.attempt(0, "terminated")],
        )
        for number in range(containers)
    ]
    cap_pod(given_pod)
    assert size_of(given_pod) <= MAX_POD_BYTES
    json.dumps(given_pod)


# --- settings


ARGUMENTS = [
    documents.line(1, "vLLM API server version 0.11.0"),
    documents.line(2, "non-default args: {'model': 'm', 'max_model_len': 4096}"),
]


def test_settings_and_version_come_from_the_newest_log_that_shows_them():
    old, new = documents.log(), documents.log()
    old["arguments"] = ARGUMENTS
    container = documents.container(
        "vllm", image="vllm/vllm-openai:v0.10.0", args=["--max-num-seqs", "8"], engine=documents.engine()
    )
    finish_container(container, [old, new])
    assert (container["engine"]["version"], container["engine"]["version_from"]) == ("0.11.0", "log")
    assert (
        container["settings"]["max_model_len"]["value"],
        container["settings"]["max_model_len"]["from"],
    ) == (4096, "log")
    assert container["settings"]["max_num_seqs"]["value"] == 8


def test_other_containers_have_no_settings():
    container = documents.container("proxy", args=["--max-model-len", "8"])
    assert finish_container(container, [])["settings"] == {}


# --- the whole document


def test_finish_orders_counts_and_groups():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "bundle", "x")
    evidence["pods"] = [
        documents.pod("llm", "b", group="llm/RayCluster/c", suspicious=False),
        documents.pod(
            "llm",
            "a",
            group="llm/RayCluster/c",
            suspicious=True,
            containers=[documents.container("v", engine=documents.engine())],
        ),
        documents.pod("a", "z"),
    ]
    evidence["nodes"] = {"n2": {}, "n1": {}}
    twice = documents.unreadable("log", "llm/a/v", "forbidden", "get pods/log in namespace llm")
    evidence["unreadable"] = [
        twice,
        documents.unreadable("events", "namespace llm", "forbidden"),
        dict(twice),
    ]
    finish(evidence)
    assert [(item["namespace"], item["name"]) for item in evidence["pods"]] == [
        ("a", "z"),
        ("llm", "a"),
        ("llm", "b"),
    ]
    assert evidence["groups"] == [{"ref": "llm/RayCluster/c", "pods": ["llm/a", "llm/b"]}]
    assert evidence["counts"] == {"pods_seen": 3, "engines": 1, "suspicious": 1}
    assert list(evidence["nodes"]) == ["n1", "n2"]
    assert [item["source"] for item in evidence["unreadable"]] == ["events", "log"]


def test_counts_of_the_collector_win():
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "x")
    evidence["counts"] = {"pods_seen": 100, "engines": 40, "suspicious": 0}
    assert finish(evidence)["counts"]["pods_seen"] == 100


@pytest.mark.parametrize("kinds", [{"env": 2, "url": 1}, ["env", "url"]])
def test_redactions_add_up(kinds):
    evidence = documents.evidence("2026-11-30T07:00:00Z", "cluster", "x")
    add_redactions(evidence, {"count": 3, "kinds": kinds})
    add_redactions(evidence, {"count": 1, "kinds": {"env": 1}})
    assert evidence["redactions"]["count"] == 4
    assert list(evidence["redactions"]["kinds"]) == ["env", "url"]
