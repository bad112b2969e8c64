# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Going back to the revision that worked: when it is named, when it comes first, when it is no answer."""

from __future__ import annotations

from evidence_samples import excerpt, oom_text, pod_with

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose_pod

NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
DIFF = [
    {
        "container": "vllm",
        "field": "args",
        "before": "--max-model-len 8192",
        "after": "--max-model-len 32768",
        "why": None,
    }
]


def workload(revision="b", managers=()):
    return documents.workload(
        "Deployment",
        "vllm",
        "apps/v1",
        edit={"kind": "Deployment", "name": "vllm"},
        managers=list(managers),
        revisions=[
            {"revision": "6", "at": None, "diff": []},
            {"revision": "7", "at": None, "diff": DIFF},
        ],
        revision=revision,
    )


def trigger_of(texts, phase, sisters=(), managers=()):
    attempt = documents.attempt(0, "terminated", reason="Error", exit_code=1, log=excerpt(texts, phase))
    pod = pod_with([attempt], workload=workload(managers=managers))
    return next(item for item in diagnose_pod(pod, sisters=sisters)["findings"] if item["role"] == "trigger")


def position(item):
    names = [change["name"] for change in item["recommend"]]
    return names.index("rollback_revision") if "rollback_revision" in names else None


def sister(revision):
    pod = pod_with([documents.attempt(0, "running")], workload=workload(revision))
    pod["name"] = "vllm-old"
    pod["containers"][0]["ready"] = True
    return pod


def test_the_last_change_is_named_and_going_back_is_an_offer():
    item = trigger_of([NO_BLOCKS], "kv_init")
    assert "Revision 7 changed args: --max-model-len 8192 -> --max-model-len 32768" in item["explanation"]
    assert position(item) == len(item["recommend"]) - 1
    assert item["recommend"][-1]["command"] == "kubectl -n llm rollout undo deployment/vllm"


def test_it_comes_first_when_pods_of_the_older_revision_serve():
    assert position(trigger_of([NO_BLOCKS], "kv_init", sisters=[sister("a")])) == 0
    assert position(trigger_of([NO_BLOCKS], "kv_init", sisters=[sister("b")])) > 0


def test_it_is_no_answer_to_what_no_revision_brings_about():
    assert position(trigger_of([oom_text(processes=[(1, 50.0), (2, 20.0)], allocated=19.0)], "load")) is None
    assert position(trigger_of([oom_text()], "serving")) is None


def test_an_object_without_a_history_of_its_own_is_edited_back():
    attempt = documents.attempt(
        0, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS], "kv_init")
    )
    owner = {
        **workload(),
        "edit": {"kind": "NIMService", "name": "n", "api_version": "apps.nvidia.com/v1alpha1"},
    }
    trigger = diagnose_pod(pod_with([attempt], workload=owner))["findings"][0]
    assert trigger["recommend"][-1]["command"] == (
        "kubectl -n llm edit nimservice.apps.nvidia.com/n  # back to args: --max-model-len 8192"
    )


def test_with_a_manager_that_reverts_the_way_back_is_its_source():
    manager = {"tool": "Argo CD", "object": "Application/llm", "proof": "proof", "reverts": "now"}
    item = trigger_of([NO_BLOCKS], "kv_init", managers=[manager])
    assert "source of Argo CD (Application/llm)" in item["recommend"][-1]["command"]
