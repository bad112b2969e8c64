# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runbook's rules say of a manifest: risks, and no command on a pod that doesn't exist."""

from __future__ import annotations

from evidence_samples import evidence_of, pod_with

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose


def judged(limits):
    evidence = evidence_of(
        pod_with([], settings={"model": "meta-llama/Llama-3.1-8B-Instruct"}, limits=limits)
    )
    evidence["source"] = {"kind": "manifest", "detail": "deploy.yaml"}
    (pod,) = diagnose(evidence)["pods"]
    return pod


def test_risks_come_without_commands():
    pod = judged({"memory": "4Gi", "cpu": "2"})
    assert {item["cause"] for item in pod["findings"]} >= {"memory_limit_low", "cpu_limit_set"}
    assert all(item["check"] == [] for item in pod["findings"])
    assert {each["command"] for item in pod["findings"] for each in item["recommend"]} == {None}
    assert pod["verdict"]["sentence"] == f"{len(pod['findings'])} settings could cause a failure."


def test_a_manifest_without_risks_is_said():
    pod = judged({"memory": "24Gi"})
    assert [item["cause"] for item in pod["findings"] if item["cause"].startswith("memory")] == []
