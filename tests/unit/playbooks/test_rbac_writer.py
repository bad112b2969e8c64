# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/rbac-writer.yaml grants the writes that are made, and nothing that creates, replaces or deletes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.workloads import KINDS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.workload_kinds import LAYOUTS

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
TEXT = (EXAMPLES / "rbac-writer.yaml").read_text(encoding="utf-8")
OBJECTS = yaml.safe_load(TEXT)["items"]
READER = yaml.safe_load((EXAMPLES / "rbac-reader.yaml").read_text(encoding="utf-8"))["items"]
LIVE = sorted((group, kind) for (group, kind), layout in LAYOUTS.items() if layout.live)


def roles(objects):
    return {
        item["metadata"]["name"]: item["rules"] for item in objects if item["kind"] in ("Role", "ClusterRole")
    }


def granted(objects, *names):
    return {
        (group, resource, verb)
        for name in names
        for rule in roles(objects)[name]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_as_it_stands_it_writes_to_kubernetes_own_kinds_only():
    assert granted(OBJECTS, *roles(OBJECTS)) == {
        *(
            ("apps", resource, verb)
            for resource in ("deployments", "statefulsets", "daemonsets")
            for verb in ("get", "patch")
        ),
        ("", "pods/portforward", "get"),
        ("", "pods/portforward", "create"),
        ("", "pods", "create"),
    }
    assert granted(OBJECTS, "vllm-oom-dry-run") == {("", "pods", "create")}


@pytest.mark.parametrize(("group", "kind"), LIVE)
def test_every_kind_that_is_written_live_is_granted_or_offered(group, kind):
    offered = yaml.safe_load(
        re.sub(r"^( +)# (?=- apiGroups|  (resources|verbs))", r"\1", TEXT, flags=re.MULTILINE)
    )["items"]
    assert (group, KINDS[group, kind].plural, "patch") in granted(offered, "vllm-oom-writer")


def test_nothing_else_is_offered():
    offered = yaml.safe_load(
        re.sub(r"^( +)# (?=- apiGroups|  (resources|verbs))", r"\1", TEXT, flags=re.MULTILINE)
    )["items"]
    patched = {
        (group, resource) for group, resource, verb in granted(offered, "vllm-oom-writer") if verb == "patch"
    }
    assert patched == {(group, KINDS[group, kind].plural) for group, kind in LIVE}


def test_writing_is_bound_in_the_namespace_only_and_reading_as_the_reader_reads():
    bound = {
        (item["kind"], item["metadata"].get("namespace"), item["roleRef"]["name"])
        for item in OBJECTS
        if "roleRef" in item
    }
    assert bound == {
        ("RoleBinding", "llm", "vllm-oom-writer"),
        ("RoleBinding", "llm", "vllm-oom-dry-run"),
        *(
            (item["kind"], item["metadata"].get("namespace"), item["roleRef"]["name"])
            for item in READER
            if "roleRef" in item
        ),
    }
    assert bound > {("RoleBinding", "llm", "vllm-oom-reader")}
    for item in OBJECTS:
        if "roleRef" in item:
            assert [subject["name"] for subject in item["subjects"]] == ["vllm-oom-writer"]
            assert item["roleRef"]["name"] in {**roles(OBJECTS), **roles(READER)}
