# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubectl commands beside changes and proofs: they must work as they are printed."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.commands import (
    checks,
    command_for,
    edited_object,
    reverting_manager,
)

OWNERS = {
    "deployment": documents.workload(
        "Deployment", "llm", "apps/v1", edit={"kind": "Deployment", "name": "llm"}
    ),
    "job": documents.workload("Job", "batch", "batch/v1", edit={"kind": "Job", "name": "batch"}),
    "none": documents.workload(),
}


def pod_of(owner="deployment", **fields):
    return documents.pod("ns", "p-0", uid="u", workload=OWNERS[owner], **dict({"node": "n1"}, **fields))


def vllm(*states, **fields):
    attempts = [documents.attempt(index, state) for index, state in enumerate(states)]
    return documents.container("vllm", attempts=attempts, restart_count=max(0, len(states) - 1), **fields)


def k8s(name, value=None, direction="increase"):
    return documents.change("k8s", name, direction, value, "because")


@pytest.mark.parametrize(
    ("limit", "request_", "ending"),
    [
        ("64Gi", "48Gi", "--requests=memory=48Gi"),
        # a request above the limit is refused by the API server
        ("32Gi", "48Gi", "--requests=memory=48Gi --limits=memory=48Gi"),
        (None, "48Gi", "--requests=memory=48Gi"),
    ],
)
def test_a_request_stays_within_the_limit(limit, request_, ending):
    container = vllm(resources={"requests": {}, "limits": {"memory": limit} if limit else {}})
    command = command_for(k8s("resources.requests.memory", request_), pod_of(), container)
    assert command == f"kubectl -n ns set resources deployment/llm -c vllm {ending}"


@pytest.mark.parametrize(("owner", "edited"), [("job", "job/batch"), ("none", "pod/p-0")])
def test_what_cannot_be_edited_is_replaced(owner, edited):
    command = command_for(k8s("resources.limits.memory", "64Gi"), pod_of(owner), vllm())
    assert command.startswith(f"kubectl -n ns get {edited} -o yaml > ")
    assert "replace --force" in command
    assert " edit " not in command.split("#")[0]
    assert "'" not in command  # an odd quote can't be wrapped by the report


def test_a_pod_without_owner_is_never_just_deleted():
    again = documents.change("action", "recreate_pod", "set")
    assert command_for(again, pod_of(), vllm()) == "kubectl -n ns delete pod p-0"
    assert "delete" not in command_for(again, pod_of("none"), vllm())


def test_a_pod_that_was_never_placed_has_no_gpu_to_look_at():
    free = documents.change("action", "free_gpu", "set")
    assert "exec" in command_for(free, pod_of(), vllm())
    assert "exec" not in command_for(free, pod_of(node=None, pod_phase="Pending"), vllm())


@pytest.mark.parametrize(
    ("states", "attempt", "previous"),
    [
        (("terminated",), 0, False),
        (("terminated", "running"), 0, True),
        (("terminated", "waiting"), 0, True),
        (("terminated", "terminated"), 1, False),
        (("terminated", "terminated"), 0, True),
        # a finding about the pod as a whole: the last run that ended
        (("terminated", "running"), None, True),
        (("terminated",), None, False),
    ],
)
def test_the_log_of_the_attempt_that_is_meant(states, attempt, previous):
    proofs = [documents.proof("log", "p-0/vllm", "Error", line=3)]
    (command,) = checks(pod_of(), vllm(*states), proofs, attempt=attempt)
    assert ("--previous" in command) is previous


def test_an_init_containers_status_stands_elsewhere():
    proofs = [documents.proof("status", "Pod/p-0", "terminated")]
    (command,) = checks(pod_of(), vllm("terminated", role="init"), proofs)
    assert command.endswith("'{.status.initContainerStatuses}'")


def test_only_what_has_revisions_is_rolled_back():
    back = documents.change("action", "rollback_revision", "set")
    assert command_for(back, pod_of(), vllm()) == "kubectl -n ns rollout undo deployment/llm"
    assert command_for(back, pod_of("none"), vllm()) is None


# --- the object that a command names

LIMIT = documents.change("k8s", "resources.limits.memory", "increase", "48Gi")


def owned(kind, name, api_version, chain=(), managers=(), **more):
    edit = {"kind": kind, "name": name, "api_version": api_version}
    return {
        "namespace": "llm",
        "name": "p",
        "workload": {
            **documents.workload(kind, name, api_version, edit=edit, managers=list(managers)),
            "chain": [dict(zip(("kind", "name"), item.split("/"), strict=True)) for item in chain],
            **more,
        },
    }


@pytest.mark.parametrize(
    ("kind", "api_version", "named"),
    [
        ("Deployment", "apps/v1", "deployment/m"),
        ("Model", "kubeai.org/v1", "model.kubeai.org/m"),
        # kubectl would take a bare service/m for another.
        ("Service", "serving.knative.dev/v1", "service.serving.knative.dev/m"),
        ("Workspace", None, "workspace/m"),
    ],
)
def test_kinds_that_may_have_namesakes_are_named_with_their_group(kind, api_version, named):
    assert edited_object(owned(kind, "m", api_version)) == named


def test_what_an_operator_does_to_the_objects_below_is_no_obstacle():
    kserve = {"tool": "KServe", "object": "Deployment/m-predictor", "proof": "proof", "reverts": "now"}
    argo = {"tool": "Argo CD", "object": "InferenceService/m", "proof": "proof", "reverts": "on_sync"}
    chain = ("ReplicaSet/m-predictor-5c7", "Deployment/m-predictor", "InferenceService/m")
    group = "serving.kserve.io/v1beta1"
    below = owned("InferenceService", "m", group, chain, [kserve])
    assert reverting_manager(below) is None
    assert reverting_manager(owned("InferenceService", "m", group, chain, [kserve, argo])) == argo


@pytest.mark.parametrize(
    ("kind", "name", "managers", "file"),
    [
        ("Node", "gpu-3", (), "the static pod's manifest on node gpu-3"),
        ("Pod", "p", [{"tool": "SkyPilot", "proof": "proof"}], "the file that was given to SkyPilot"),
    ],
)
def test_a_pod_that_no_object_of_the_cluster_holds(kind, name, managers, file):
    pod = owned(kind, name, "v1", managers=managers, edit=None)
    assert command_for(LIMIT, pod, {"name": "vllm"}) == (
        f"change it in {file}: increase resources.limits.memory to 48Gi"
    )
