# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose fields a change takes over. managedFields: as Kubernetes 1.34 writes them of a Deployment."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import owners
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.access import FIELD_MANAGER

ENGINE = {"name": "vllm", "args": ["--max-model-len", "8192"], "resources": {"limits": {"memory": "64Gi"}}}
CONTAINERS = ("spec", "template", "spec", "containers")
NAME = 'k:{"name":"vllm"}'


def fields(inner):
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": {NAME: {".": {}, "f:name": {}, **inner}}}}}}


def raw(*entries):
    managed = [
        {"manager": name, "operation": "Update", "fieldsV1": owned, **more} for name, owned, more in entries
    ]
    spec = {"template": {"spec": {"containers": [{"name": "proxy"}, ENGINE]}}}
    return {"metadata": {"managedFields": managed}, "spec": spec}


MEMORY = ((*CONTAINERS, 1, "resources", "limits", "memory"), "limits.memory")
CPU = ((*CONTAINERS, 1, "resources", "limits", "cpu"), "limits.cpu")
ARGUMENT = ((*CONTAINERS, 1, "args", 1), "args[1]")
OWNS_MEMORY = fields({"f:resources": {"f:limits": {".": {}, "f:memory": {}}}})
OWNS_ARGS = fields({"f:args": {}})


@pytest.mark.parametrize(
    ("entries", "places", "told"),
    [
        ([("helm", OWNS_MEMORY, {})], [MEMORY], ["limits.memory is managed by helm"]),
        # A list of arguments is owned as a whole.
        ([("helm", OWNS_ARGS, {})], [ARGUMENT, MEMORY], ["args[1] is managed by helm"]),
        ([("helm", OWNS_MEMORY, {})], [CPU, ARGUMENT], []),
        ([("helm", OWNS_MEMORY, {"subresource": "status"})], [MEMORY], []),
        ([(FIELD_MANAGER, OWNS_MEMORY, {})], [MEMORY], []),
        # A person's single write.
        ([("kubectl-create", OWNS_MEMORY, {}), ("kubectl-edit", OWNS_MEMORY, {})], [MEMORY], []),
        # Of another container of the pod.
        (
            [("helm", {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"proxy"}': {"f:args": {}}}}}}}, {})],
            [ARGUMENT],
            [],
        ),
        (
            [("kubectl-client-side-apply", OWNS_ARGS, {}), ("argocd-controller", OWNS_MEMORY, {})],
            [ARGUMENT, MEMORY],
            ["limits.memory is managed by argocd-controller", "args[1] is managed by kubectl-client-side-apply"],
        ),
    ],
)  # fmt: skip
def test_the_manager_of_a_changed_field_is_named(entries, places, told):
    found = owners.field_owners(raw(*entries), places)
    assert len(found) == len(told)
    for sentence, beginning in zip(found, told, strict=True):
        assert sentence == f"{beginning}, which sets it back when it writes the next time"


@pytest.mark.parametrize("broken", [None, [], {"f:spec": None}, {"f:spec": []}, fields({'k:{"name': {}})])
def test_fields_of_another_shape_own_nothing(broken):
    assert owners.field_owners(raw(("helm", broken, {})), [MEMORY, ARGUMENT]) == []
