# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every message of the fact sheets is known, as what the facts say that it is.

``message_templates.json`` holds the rows of the fact sheets' message tables (see ``message_rows.py``), each with the
texts it stands for and a judgement made from the facts: ``cause`` (with the acceptable identifiers; null where the
text alone doesn't name one), ``context`` (says something about a failure, isn't one) or ``false_friend`` (looks
like a shortage of memory, isn't one). ``status`` and ``event`` texts are judged by a whole diagnosis.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import message_rows
import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import diagnose, signatures
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import log_lines

ROWS = json.loads(message_rows.TABLE.read_text(encoding="utf-8"))["rows"]
FACTS = Path(os.environ.get("VLLM_OOM_FACTS") or Path(__file__).resolve().parents[4] / "shared" / "domain")

# Sections whose lines needn't be known as long as they never become a cause.
_UNKNOWN_IS_FINE = {"vllm 3.21", "vllm 10.1"}
_FAILURE_KINDS = ("root", "refines")
# What a placeholder of a template stands for; every other one is a number.
_PLACEHOLDERS = {
    "L": "131072",
    "M": "37376",
    "N": "30768",
    "avail": "4.0",
    "caller": "fused_moe.py:812:forward",
    "dev": "cuda:0",
    "device": "GPU",
    "dict": "{'EngineCore_DP0': 1}",
    "e": "CUDA error",
    "engine": "60.12",
    "err": "cudaErrorMemoryAllocation",
    "free": "31.44",
    "hash": "9f2c41",
    "id": "chatcmpl-12",
    "key": "moe_workspace",
    "method": "sample_tokens",
    "modality": "image",
    "name": "EngineCore_DP0",
    "need": "4.38",
    "path": "/dev/shm/vllm_offload_0001.mmap",
    "ranks": "[1]",
    "requested": "71.2",
    "sizes": "[65536, 131072]",
    "task": "embed",
    "total": "79.15",
    "trace": "Traceback (most recent call last):",
    "type": "decoder",
    "util": "0.9",
    "v": "1",
    "ver": "0.11.0",
}
_NUMBER = "12"


def instantiate(template):
    """The text with its ``{placeholders}`` filled in."""
    return re.sub(r"\{(\w+)\}", lambda found: _PLACEHOLDERS.get(found.group(1), _NUMBER), template)


def as_list(value):
    return value if isinstance(value, list) else [value]


def entries(field):
    """(test id, section, entry) of the table's entries that have ``field``."""
    return [
        pytest.param(row["section"], entry, id=f"{row['section']}: {str(entry[field])[:70]}")
        for row in ROWS
        for entry in row["texts"]
        if field in entry
    ]


def verdicts(text):
    """The signatures that decide what ``text`` is: the refining ones, else the root ones, else none."""
    found = [match.signature for match in signatures.match(text)]
    for kind in reversed(_FAILURE_KINDS):
        deciding = [signature for signature in found if signature.kind == kind]
        if deciding:
            return found, deciding
    return found, []


@pytest.mark.parametrize(("section", "entry"), entries("text"))
def test_text_is_known_as_what_it_is(section, entry):
    text = log_lines.parse(instantiate(entry["text"]))["text"]
    found, deciding = verdicts(text)
    kinds = as_list(entry["kind"])
    shown = [(signature.id, signature.kind, signature.cause, signature.memory) for signature in found]

    if not found:
        assert section in _UNKNOWN_IS_FINE, f"no signature knows: {text}"
        assert "cause" not in kinds, f"no signature knows: {text}"
        return
    if not deciding:
        assert {"context", "false_friend"} & set(kinds), f"{text}: should be a cause, is {shown}"
        return
    if "cause" not in kinds:
        assert "false_friend" in kinds, f"{text}: should be context, is {shown}"
        assert {signature.memory for signature in deciding} == {"none"}, f"{text}: not a shortage, is {shown}"
        return
    wanted = as_list(entry.get("cause"))
    if wanted != [None]:
        assert {signature.cause for signature in deciding} & set(wanted), f"{text}: is {shown}, want {wanted}"
    if entry.get("memory"):
        memories = {signature.memory for signature in deciding}
        assert memories & {*as_list(entry["memory"]), None}, f"{text}: is {shown}, want {entry['memory']}"


def evidence_of(reason=None, message=None, event=None, exit_code=None, scheduled=True):
    """A pod that shows the given status and event, otherwise nothing."""
    failed = reason is not None
    attempt = documents.attempt(0, "waiting")
    if exit_code is not None:
        attempt = documents.attempt(0, "terminated", reason="Error", exit_code=exit_code)
    pod = documents.pod(
        "llm",
        "vllm-0",
        node="gpu-0" if scheduled else None,
        pod_phase="Failed" if failed else "Pending" if exit_code is None else "Running",
        reason=reason,
        message=message,
        containers=[]
        if failed
        else [
            documents.container("vllm", engine=documents.engine(), attempts=[attempt] if scheduled else [])
        ],
    )
    evidence = documents.evidence("2026-11-30T07:00:00Z", "bundle", "test")
    evidence["pods"].append(pod)
    evidence["nodes"]["gpu-0"] = documents.node()
    if event:
        built = documents.event(
            event["reason"], event["message"], type="Warning", object=event["object"], count=1
        )
        home = evidence["nodes"]["gpu-0"] if event["object"].startswith("Node/") else pod
        home["events"].append(built)
    return evidence


def check_verdict(entry, evidence):
    result = diagnose.diagnose(evidence)["pods"][0]
    verdict = result["verdict"]
    wanted = as_list(entry["cause"])
    causes = [finding["cause"] for finding in result["findings"]]
    assert verdict["cause"] in wanted or set(causes) & set(wanted), (
        f"{verdict}, findings {causes}, want {wanted}"
    )
    if verdict["cause"] in wanted:
        assert verdict["memory"] in as_list(entry["memory"])


@pytest.mark.parametrize(("section", "entry"), entries("status"))
def test_pod_status_is_known(section, entry):
    check_verdict(entry, evidence_of(entry["status"]["reason"], entry["status"]["message"]))


@pytest.mark.parametrize(("section", "entry"), entries("event"))
def test_event_is_known(section, entry):
    check_verdict(
        entry,
        evidence_of(
            event=entry["event"], exit_code=entry.get("exit_code"), scheduled=entry.get("scheduled", True)
        ),
    )


def test_every_row_is_judged():
    unjudged = [row["cell"] for row in ROWS if not row["texts"] and not row.get("note")]
    assert unjudged == []
    causes = {cause for row in ROWS for entry in row["texts"] for cause in as_list(entry.get("cause"))} - {
        None
    }
    assert causes <= set(documents.CAUSES)


@pytest.mark.skipif(not FACTS.is_dir(), reason=f"no fact sheets at {FACTS}")
def test_table_holds_exactly_the_rows_of_the_facts():
    fresh = [message_rows.key(row) for row in message_rows.extract(FACTS)]
    assert [message_rows.key(row) for row in ROWS] == fresh
