# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines as stern, kubectl, Loki, Elasticsearch and Docker export them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import log_exports

DATA = Path(__file__).parent / "data" / "saved"


def text_of(name):
    return (DATA / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # stern -o json
        (
            {"message": "m", "nodeName": "n", "namespace": "s", "podName": "p", "containerName": "c"},
            ("m", None, "p", "s", "c", "n"),
        ),
        # logcli -o jsonl
        (
            {
                "labels": {"pod": "p", "container": "c", "namespace": "s"},
                "line": "m",
                "timestamp": "2026-11-24T07:00:00Z",
            },
            ("m", "2026-11-24T07:00:00.000000000Z", "p", "s", "c", None),
        ),
        # Filebeat, nested and flattened
        (
            {
                "_source": {
                    "message": "m",
                    "kubernetes": {"pod": {"name": "p"}, "namespace": "s", "container": {"name": "c"}},
                }
            },
            ("m", None, "p", "s", "c", None),
        ),
        (
            {"_source": {"message": "m", "kubernetes.pod.name": "p", "kubernetes": {"container.name": "c"}}},
            ("m", None, "p", None, "c", None),
        ),
        # Kibana's "fields": every value a list
        (
            {
                "fields": {
                    "message": ["m"],
                    "kubernetes.pod.name": ["p"],
                    "@timestamp": ["2026-11-24T07:00:00.5Z"],
                }
            },
            ("m", "2026-11-24T07:00:00.500000000Z", "p", None, None, None),
        ),
        # Fluent Bit
        (
            {
                "log": "m\n",
                "kubernetes": {"pod_name": "p", "namespace_name": "s", "container_name": "c", "host": "n"},
            },
            ("m", None, "p", "s", "c", "n"),
        ),
        # Vector
        (
            {
                "message": "m",
                "timestamp": "2026-11-24T08:00:00+01:00",
                "kubernetes": {"pod_name": "p", "pod_namespace": "s"},
            },
            ("m", "2026-11-24T07:00:00.000000000Z", "p", "s", None, None),
        ),
        # OpenTelemetry
        (
            {
                "body": {"text": "m"},
                "resource": {"attributes": {"k8s.pod.name": "p", "k8s.namespace.name": "s"}},
            },
            ("m", None, "p", "s", None, None),
        ),
        # Cloud Logging
        (
            {
                "textPayload": "m",
                "resource": {"labels": {"pod_name": "p", "namespace_name": "s", "container_name": "c"}},
            },
            ("m", None, "p", "s", "c", None),
        ),
        # a container log's file name in place of labels
        (
            {
                "labels": {"filename": "/var/log/pods/s_p-0_0f6e9c1e-6a43-4b7c-9a35-3a8c1f7f2d11/c/0.log"},
                "line": "m",
            },
            ("m", None, "p-0", "s", "c", None),
        ),
        # journalctl -o json: a unit, a container of Docker's journald driver, text with colours (bytes)
        (
            {
                "__REALTIME_TIMESTAMP": "1795504304000001",
                "_HOSTNAME": "gpu-3",
                "_SYSTEMD_UNIT": "vllm.service",
                "MESSAGE": "m",
            },
            ("m", "2026-11-24T07:11:44.000001000Z", "vllm", None, "vllm", "gpu-3"),
        ),
        (
            {"_SYSTEMD_UNIT": "docker.service", "CONTAINER_NAME": "vllm-a-1", "MESSAGE": "m"},
            ("m", None, "vllm-a-1", None, "vllm-a-1", None),
        ),
        (
            {"_SYSTEMD_UNIT": "vllm.service", "MESSAGE": list(b"\x1b[31mm")},
            ("\x1b[31mm", None, "vllm", None, "vllm", None),
        ),
        # what systemd and the kernel say of a unit
        (
            {"_SYSTEMD_UNIT": "init.scope", "UNIT": "vllm.service", "MESSAGE": "m"},
            ("m", None, "vllm", None, "vllm", None),
        ),
        (
            {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": "m"},
            ("kernel: m", None, None, None, "kernel", None),
        ),
        # Docker's json-file
        (
            {"log": "m\n", "stream": "stderr", "time": "2026-11-24T07:00:00.1Z"},
            ("m", "2026-11-24T07:00:00.100000000Z", None, None, None, None),
        ),
    ],
)
def test_records_of_the_tools(document, expected):
    found = log_exports.of_object(document)
    assert (
        tuple(found[key] for key in ("message", "time", "pod", "namespace", "container", "node")) == expected
    )


@pytest.mark.parametrize(
    "document",
    [
        {"timestamp": "2026-11-24 07:00:00", "level": "INFO", "message": "vLLM's own JSON record"},
        {"log": "a setting of some program", "level": 3},
        {"kind": "Pod", "metadata": {"name": "p"}},
        {"pod": "p"},
        ["message"],
        "text",
        None,
    ],
)
def test_other_objects_are_no_records(document):
    assert log_exports.of_object(document) is None


def test_the_attempt_is_in_the_file_name():
    (first, *_rest) = log_exports.of_document(json.loads(text_of("loki/query_range.json")))
    assert first["attempt"] == 2


@pytest.mark.parametrize("name", ["loki/query_range.json", "elastic/search.json"])
def test_documents_come_out_oldest_first(name):
    records = log_exports.of_document(json.loads(text_of(name)))
    assert "version" in records[0]["message"]
    assert "out of memory" in records[-1]["message"]
    assert {record["pod"] for record in records} <= {"phi-7c9d8b6f5-k4zq2", "gemma-0"}


def test_lines_of_one_instant_keep_their_order():
    # newest first, three lines of a traceback with one and the same time
    messages = ["third", "second", "first"]
    values = [["1795504304000000000", message] for message in messages] + [["1795504303000000000", "before"]]
    document = {"data": {"result": [{"stream": {"pod": "p"}, "values": values}]}}
    assert [record["message"] for record in log_exports.of_document(document)] == [
        "before",
        "first",
        "second",
        "third",
    ]


def test_streams_of_loki_are_merged_in_time():
    document = {
        "data": {
            "resultType": "streams",
            "result": [
                {
                    "stream": {"pod": "a"},
                    "values": [["1795504305000000000", "a2"], ["1795504301000000000", "a1"]],
                },
                {
                    "stream": {"pod": "b"},
                    "values": [["1795504304000000000", "b2"], ["1795504302000000000", "b1"]],
                },
            ],
        }
    }
    assert [record["message"] for record in log_exports.of_document(document)] == ["a1", "b1", "b2", "a2"]


@pytest.mark.parametrize(
    "document",
    [
        {"data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "2"]]}]}},
        {"status": "success"},
        [],
        [{"a": 1}],
        [{"kind": "Pod"}],
        "text",
    ],
)
def test_other_documents_are_no_exports(document):
    assert log_exports.of_document(document) is None


def test_an_export_without_lines_is_one():
    assert log_exports.of_document({"hits": {"hits": []}}) == []


@pytest.mark.parametrize(
    ("name", "form", "sources"),
    [
        ("stern/default.txt", "stern", {(None, "mistral-0", "vllm"), (None, "mistral-1", "vllm"), (None, "mistral-1", "istio-proxy")}),
        ("stern/kubectl_prefix.txt", "kubectl --prefix", {(None, "mistral-0", "vllm")}),
        ("loki/logcli.txt", "logcli", {("llm", "phi-7c9d8b6f5-k4zq2", "vllm")}),
    ],
)  # fmt: skip
def test_text_formats(name, form, sources):
    lines = text_of(name).splitlines()
    found, reader = log_exports.text_format(lines)
    assert found == form
    records = [reader(line) for line in lines if not log_exports.is_note(line)]
    assert {(record["namespace"], record["pod"], record["container"]) for record in records} == sources
    assert not any("\x1b" in record["message"] for record in records)


def test_stern_of_several_namespaces():
    lines = [
        "prod qwen-0 vllm INFO 11-24 07:10:04 [core.py:71] one",
        "stage qwen-7d9c5b8f4-x2x9k vllm INFO 11-24 07:10:05 [core.py:71] two",
    ]
    _form, reader = log_exports.text_format(lines)
    assert [(found["namespace"], found["pod"], found["message"][:4]) for found in map(reader, lines)] == [
        ("prod", "qwen-0", "INFO"),
        ("stage", "qwen-7d9c5b8f4-x2x9k", "INFO"),
    ]


@pytest.mark.parametrize("text", ["INFO one", "", "a | b", "2026-11-24T07:10:04Z INFO one"])
@pytest.mark.parametrize(
    ("prefix", "pod", "container"),
    [
        ("vllm-a-1  | ", "vllm-a-1", "vllm-a"),
        ("vllm-2    | ", "vllm-2", "vllm"),
        ("vllm_1  | ", "vllm_1", "vllm"),
        ("My.Engine  | ", "My.Engine", "My.Engine"),
        ("\x1b[36mvllm-a-1  | \x1b[0m", "vllm-a-1", "vllm-a"),
    ],
)
def test_docker_compose(prefix, pod, container, text):
    form, reader = log_exports.text_format([prefix + text])
    found = reader(prefix + text)
    assert (form, found["pod"], found["container"]) == ("docker compose", pod, container)
    assert found["message"] == text
    ended = reader(f"{pod} exited with code 137")
    assert (ended["pod"], ended["container"]) == (pod, container)
    assert ended["message"].endswith("exited with code 137")


@pytest.mark.parametrize(
    "lines",
    [
        ["| NVIDIA-SMI 550.54  Driver Version: 550.54 |", "|   0  N/A  N/A  4711  C  python3  71234MiB |"],
        ["[1;36m|", "rank 0 | loading", "a sentence | with a bar"],
        ["INFO 11-24 07:10:04 [core.py:71] one", "ERROR 11-24 07:10:05 [core.py:71] two"],
        ["loading the model now", "this takes a while", "step-1 of many"],
        ["(EngineCore_DP0 pid=64) INFO 11-24 07:10:04 [core.py:71] one"],
        ["[rank0]: Traceback (most recent call last):"],
        ["2026-11-24T07:10:04Z stdout F INFO 11-24 07:10:04 [core.py:71] one"],
        [""],
        [],
    ],
)
def test_ordinary_logs_have_no_text_format(lines):
    assert log_exports.text_format(lines) is None


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("1795504304000000001", "2026-11-24T07:11:44.000000001Z"),
        (1795504304000, "2026-11-24T07:11:44.000000000Z"),
        (1795504304, "2026-11-24T07:11:44.000000000Z"),
        (1795504304.25, "2026-11-24T07:11:44.250000000Z"),
        ("2026-11-24T07:31:44+01:00", "2026-11-24T06:31:44.000000000Z"),
        ("2026-11-24 06:31:44,5", "2026-11-24T06:31:44.500000000Z"),
        ("2026-13-24T06:31:44Z", None),
        ("yesterday", None),
    ],
)
def test_time_of(value, time):
    assert log_exports.time_of(value) == time


@given(
    st.lists(st.tuples(st.integers(min_value=10**18, max_value=2 * 10**18), st.text(max_size=5)), max_size=12)
)
def test_order_is_that_of_time_and_loses_nothing(entries):
    records = [log_exports.record(text, log_exports.time_of(time)) for time, text in entries]
    ordered = log_exports.in_order(records)
    assert sorted(map(str, ordered)) == sorted(map(str, records))
    times = [record["time"] for record in ordered]
    assert times == sorted(times)
