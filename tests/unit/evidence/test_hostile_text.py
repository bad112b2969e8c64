# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that somebody wrote to stop a run: whoever can send a request to an engine writes into its log."""

from __future__ import annotations

import contextlib
import time

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import describe
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import MASK, Redactor

# Python refuses to read an int of over 4300 digits, and a float of over 308 is infinite.
DIGITS = "9" * 5000
# A line as long as the scanner keeps one. What is quadratic takes a minute at this length.
LONG = 64 * 1024
SECONDS = 5


def scan(text):
    scanner = LogScanner()
    scanner.feed(text.encode())
    return scanner.close()


@pytest.mark.parametrize(
    "line",
    [
        f"INFO 11-03 14:22:33 [gpu_worker.py:1] Available KV cache memory: {DIGITS} GiB",
        f"INFO 11-03 14:22:33 [a.py:1] a warning about memory [repeated {DIGITS}x across cluster]",
        f'Traceback (most recent call last):\n  File "a.py", line {DIGITS}, in f',
        '{"message": "x", "more": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"log":"x","stream":' + "[" * 20_000 + "}",
    ],
)
def test_a_hostile_line_costs_only_itself(line):
    excerpt = scan(f"{line}\nValueError: the real error\n")
    assert [item["text"] for item in excerpt["errors"]] == ["ValueError: the real error"]
    assert excerpt["numbers"] == []


def test_describe_text_with_numbers_without_end_leaves_them_out():
    lines = ["Name: a", "Namespace: b", f"Termination Grace Period: {DIGITS}s", "Containers:", "  vllm:"]
    lines += ["    Last State: Terminated", f"      Exit Code: {DIGITS}", f"    Restart Count: {DIGITS}"]
    pod, _events = describe.parse(lines)
    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] is None
    assert status["lastState"] == {"terminated": {"exitCode": None}}


@pytest.mark.parametrize(
    "piece",
    ["\\", '\\"', "Aa.", "▝", " ", "a", "1", "name:a ", "https://a:", "token ", "=", '"'],
)
@pytest.mark.parametrize("lead", ["", 'token \\"name\\" : \\"Aa', "GiB authorization"])
def test_a_long_line_of_one_piece_is_scanned_in_time(lead, piece):
    began = time.process_time()
    scan(lead + piece * (LONG // len(piece)) + "\n")
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    "text",
    [
        r"{\"name\": \"HF_TOKEN\", \"value\": \"PLANTED\"}",
        r'{"name" : "HF_TOKEN" , "value" : "PLANTED"}',
        "name: HF_TOKEN\n  value: PLANTED",
        r"[\"--api-key\", \"PLANTED\"]",
        r"x=\\\"HF_TOKEN\\\": \\\"PLANTED\\\"",
    ],
)
def test_escaped_quotes_hide_no_secret(text):
    shown = Redactor().text(text)
    assert "PLANTED" not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 60 + "a log line\n",
        " #a\n" * 2000 + "a log line\n",
        "-1" * (LONG // 2) + "\n",
        "State: Terminated\n" + " " * LONG + "\n",
        "Name: a\nNamespace: b\nNode: c\nEvents:\n  Normal  Killing " + " " * LONG + "\n",
        "Name: a\nNamespace: b\nNode: c\nEvents:\n  Normal  Killing  2m" + " a" * (LONG // 2) + "\n",
        "Name: a\nNamespace: b\nContainers:\n  vllm:\n    Environment:\n      A: b" + " " * LONG + "c\n",
    ],
)
def test_a_bundle_is_read_in_time(text):
    began = time.process_time()
    with contextlib.suppress(DocumentError):  # that it holds nothing to diagnose is an answer too
        read_bundle("-", stdin=text)
    assert time.process_time() - began < SECONDS
