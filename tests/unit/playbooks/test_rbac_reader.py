# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/rbac-reader.yaml grants what the cluster reader asks for, and nothing that writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.workloads import KINDS

MANIFEST = Path(__file__).resolve().parents[3] / "docs" / "examples" / "rbac-reader.yaml"
OBJECTS = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["items"]
ROLES = {
    item["metadata"]["name"]: item["rules"] for item in OBJECTS if item["kind"] in ("Role", "ClusterRole")
}


def granted(*roles):
    return {
        (group, resource, verb)
        for role in roles
        for rule in ROLES[role]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("group", "kind"), sorted(KINDS))
def test_every_kind_that_is_read_is_granted(group, kind):
    rights = granted("vllm-oom-reader", "vllm-oom-node-reader")
    assert {(group, KINDS[group, kind].plural, verb) for verb in ("get", "list")} <= rights


def test_logs_quotas_and_events_are_granted():
    rights = granted("vllm-oom-reader")
    assert ("", "pods/log", "get") in rights
    for resource in ("events", "resourcequotas", "limitranges"):
        assert ("", resource, "list") in rights
    assert ("", "events", "list") in granted("vllm-oom-node-events")


def test_only_exec_is_more_than_reading():
    assert {verb for *_resource, verb in granted(*set(ROLES) - {"vllm-oom-exec"})} == {"get", "list"}
    assert granted("vllm-oom-exec") == {
        ("", "pods/exec", "get"),
        ("", "pods/exec", "create"),
        ("metrics.k8s.io", "pods", "get"),
    }
    resources = {resource for _group, resource, _verb in granted(*ROLES)}
    assert not resources & {"secrets", "configmaps", "*"}


def test_configmaps_are_offered_and_not_granted():
    text = MANIFEST.read_text(encoding="utf-8")
    assert ("", "configmaps", "get") not in granted(*ROLES)
    offered = re.sub(r"^( +)# (?=-| {2})", r"\1", text, flags=re.MULTILINE)
    rules = next(
        item["rules"]
        for item in yaml.safe_load(offered)["items"]
        if item["metadata"]["name"] == "vllm-oom-reader" and "rules" in item
    )
    assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]} in rules


def test_every_binding_names_a_role_of_the_manifest():
    for item in OBJECTS:
        if item["kind"].endswith("Binding"):
            assert item["roleRef"]["name"] in ROLES
            assert item["subjects"][0]["name"] == "vllm-oom-reader"
