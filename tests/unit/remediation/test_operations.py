# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planned changes on objects: what is in the patches, what the object is then, what is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifest_files import Document
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import manifest_evidence
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.json_patch import apply
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.operations import patch
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.undo import undo

SAMPLES = yaml.safe_load(
    (Path(__file__).parents[1] / "evidence" / "data" / "manifests" / "samples.yaml").read_text()
)


def deployment(container=None, pod=None, kind="Deployment", **spec):
    engine = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.10.0",
        "args": ["--model", "m", "--api-key", "s3cr3t", "--max-model-len", "8192"],
        "resources": {
            "limits": {"cpu": "8", "memory": "48Gi", "nvidia.com/gpu": "1"},
            "requests": {"cpu": "4"},
        },
        **(container or {}),
    }
    sidecar = {"name": "proxy", "image": "envoy"}
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [sidecar, engine], **(pod or {})},
    }
    metadata = {"name": "d", "namespace": "n", "generation": 7, "resourceVersion": "12"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


def custom(api_version, kind, spec):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


EDIT = {"path": "spec.template.spec.containers[vllm]"}
ENGINE = "/spec/template/spec/containers/1"


def flag(name, value):
    return change("flag", name, "set", value)


def k8s(name, value):
    return change("k8s", name, "set", value)


def variable(name, value):
    return change("env", name, "set", value)


def patched(raw, *changes, edit=None, running=None):
    """The ``Patch``, after the checks that hold for every one."""
    before = copy.deepcopy(raw)
    found = patch(raw, edit or EDIT, changes, running=running)
    assert raw == before
    assert apply(raw, found.json_patch) == found.after
    assert merged(raw, found.strategic_merge) == found.after if found.strategic_merge is not None else True
    again = patch(
        found.after, edit, [item for item in changes if item not in [r["change"] for r in found.refused]]
    )
    assert again.json_patch == []
    assert apply(found.after, undo(found.undo, found.after)) == raw
    return found


def merged(raw, given, key=None):
    """A strategic merge as kubectl's documentation describes it, for the lists of pod templates."""
    names = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
    if isinstance(given, list) and key in names and isinstance(raw, list):
        found = copy.deepcopy(raw)
        for item in given:
            at = next((i for i, old in enumerate(found) if old[names[key]] == item[names[key]]), None)
            if item.get("$patch") == "delete":
                del found[at]
            elif at is None:
                found.append(item)
            else:
                found[at] = merged(found[at], item)
        return found
    if not isinstance(given, dict) or not isinstance(raw, dict):
        return given
    found = copy.deepcopy(raw)
    for name, value in given.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value, name)
    return found


def engine_of(found):
    return found.after["spec"]["template"]["spec"]["containers"][1]


def done(found):
    return [
        (item["op"], item["path"], item.get("value")) for item in found.json_patch if item["op"] != "test"
    ]


def expectations(found):
    return {item["path"]: item["value"] for item in found.json_patch if item["op"] == "test"}


def test_a_flag_is_one_list_item_and_the_key_beside_it_is_in_no_operation():
    found = patched(deployment(), flag("--max-model-len", 4096))
    assert done(found) == [("replace", f"{ENGINE}/args/5", "4096")]
    assert expectations(found) == {
        "/metadata/generation": 7,
        "/spec/template/spec/containers/1/name": "vllm",
        f"{ENGINE}/args/5": "8192",
    }
    assert "s3cr3t" not in str(found.json_patch) + str(found.undo)
    assert engine_of(found)["args"][3] == "s3cr3t"


def test_a_patch_for_a_repository_has_no_generation():
    found = patch(deployment(), EDIT, [flag("max_model_len", 4096)], guard=False)
    assert "/metadata/generation" not in expectations(found)


def test_the_cpu_limit_is_removed_and_nothing_beside_it():
    found = patched(deployment(), k8s("resources.limits.cpu", None))
    assert done(found) == [("remove", f"{ENGINE}/resources/limits/cpu", None)]
    assert found.strategic_merge == {
        "spec": {
            "template": {"spec": {"containers": [{"name": "vllm", "resources": {"limits": {"cpu": None}}}]}}
        }
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([k8s("resources.limits.memory", "64Gi")], [("replace", "/resources/limits/memory", "64Gi")]),
        ([k8s("resources.limits.memory", "49152Mi")], []),  # the same quantity
        ([k8s("resources.requests.memory", "48Gi")], [("add", "/resources/requests/memory", "48Gi")]),
        ([k8s("resources.requests.ephemeral-storage", None)], []),
        (
            [k8s("resources.limits.nvidia.com/gpu", 2)],
            [("replace", "/resources/limits/nvidia.com~1gpu", "2")],
        ),
        ([k8s("resources.limits.gpu", 2)], [("replace", "/resources/limits/nvidia.com~1gpu", "2")]),
        ([variable("NCCL_DEBUG", "INFO")], [("add", "/env", [{"name": "NCCL_DEBUG", "value": "INFO"}])]),
        ([variable("NCCL_DEBUG", None)], []),
        (
            [flag("max_model_len", None), flag("enforce_eager", True)],
            [("replace", "/args/4", "--enforce-eager"), ("remove", "/args/5", None)],
        ),
    ],
)
def test_single_operations(changes, expected):
    found = patched(deployment(), *changes)
    assert [(kind, path.replace(ENGINE, ""), value) for kind, path, value in done(found)] == expected


def test_request_and_limit_of_a_device_are_one_number():
    raw = deployment({"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}})
    resources = engine_of(patched(raw, k8s("resources.limits.nvidia.com/gpu", 2)))["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}


def test_variables():
    raw = deployment(
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "x"}, {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "t"}}}]}
    )  # fmt: skip
    found = patched(raw, variable("A", None), variable("B", "y"), variable("C", 3))
    assert engine_of(found)["env"] == [
        {"name": "B", "value": "y"},
        raw["spec"]["template"]["spec"]["containers"][1]["env"][2],
        {"name": "C", "value": "3"},
    ]
    assert expectations(found)[f"{ENGINE}/env/0/name"] == "B"  # after A has gone


def test_dev_shm_is_added_as_a_volume_in_memory():
    found = patched(deployment(), k8s("volumes.shm.sizeLimit", "16Gi"))
    assert found.after["spec"]["template"]["spec"]["volumes"] == [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    ]
    assert engine_of(found)["volumeMounts"] == [{"name": "dshm", "mountPath": "/dev/shm"}]


SHM = {"volumeMounts": [{"name": "x", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}]}


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, "16Gi", {"emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, None, {"emptyDir": {"medium": "Memory"}}),
        ({"emptyDir": {"medium": "Memory"}}, "2Gi", {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}),
    ],
)  # fmt: skip
def test_dev_shm_that_is_there(source, value, expected):
    raw = deployment(SHM, {"volumes": [{"name": "x", "emptyDir": {}}, {"name": "shm", **source}]})
    found = patched(raw, k8s("volumes.shm.sizeLimit", value))
    assert found.after["spec"]["template"]["spec"]["volumes"][1] == {"name": "shm", **expected}


ASKS = {"httpGet": {"port": 1}}
LIVENESS = {
    "httpGet": {"path": "/health", "port": 8000},
    "periodSeconds": 20,
    "failureThreshold": 3,
    "successThreshold": 1,
}


@pytest.mark.parametrize(
    ("probes", "seconds", "expected"),
    [
        ({"startupProbe": {**ASKS, "periodSeconds": 10, "failureThreshold": 30}}, 1200, {**ASKS, "periodSeconds": 10, "failureThreshold": 120}),
        ({"startupProbe": {**ASKS, "initialDelaySeconds": 60}}, 1055, {**ASKS, "initialDelaySeconds": 60, "failureThreshold": 100}),
        ({"livenessProbe": LIVENESS}, 1200, {"httpGet": LIVENESS["httpGet"], "periodSeconds": 20, "failureThreshold": 60}),
    ],
)  # fmt: skip
def test_the_time_for_the_start(probes, seconds, expected):
    found = patched(deployment(probes), k8s("startupProbe", seconds))
    assert engine_of(found)["startupProbe"] == expected


TRIES = {"failureThreshold": 60, "periodSeconds": 10}


@pytest.mark.parametrize(
    ("probes", "value", "expected"),
    [
        ({"startupProbe": {**ASKS, "initialDelaySeconds": 60}}, TRIES, {**ASKS, "initialDelaySeconds": 60, **TRIES}),
        ({"startupProbe": {**ASKS, "periodSeconds": 5}}, {"failureThreshold": 60}, {**ASKS, "periodSeconds": 5, "failureThreshold": 60}),
        ({"livenessProbe": LIVENESS}, TRIES, {"httpGet": LIVENESS["httpGet"], **TRIES}),
    ],
)  # fmt: skip
def test_the_tries_of_the_start_as_a_plan_has_them(probes, value, expected):
    found = patched(deployment(probes), k8s("startupProbe", value))
    assert engine_of(found)["startupProbe"] == expected


def test_another_image():
    found = patched(deployment(), k8s("image", "vllm/vllm-openai:v0.11.2"))
    assert done(found) == [("replace", f"{ENGINE}/image", "vllm/vllm-openai:v0.11.2")]


def test_a_field_of_a_probe():
    found = patched(deployment({"livenessProbe": LIVENESS}), k8s("livenessProbe.timeoutSeconds", 10))
    assert done(found) == [("add", f"{ENGINE}/livenessProbe/timeoutSeconds", 10)]


def test_update_strategies():
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    wanted = {"maxSurge": 0, "maxUnavailable": 1}
    found = patched(deployment(strategy=surge), k8s("strategy", wanted))
    assert found.after["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": wanted}
    assert patched(deployment(), k8s("strategy", wanted)).after["spec"]["strategy"]["rollingUpdate"] == wanted
    found = patched(deployment(strategy=surge), k8s("strategy", "Recreate"))
    assert found.after["spec"]["strategy"] == {"type": "Recreate"}
    assert found.strategic_merge == {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    found = patched(deployment(kind="StatefulSet"), k8s("strategy", wanted))
    assert found.after["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1},
    }


@pytest.mark.parametrize(
    ("raw", "planned", "told"),
    [
        (deployment(), flag("api_key", "x"), "holds a secret"),
        (deployment(), variable("HF_TOKEN", "x"), "holds a secret"),
        (deployment({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {}}}]}), variable("A", "x"), "comes from a ConfigMap"),
        (deployment({"command": ["sh", "-c"], "args": ["export A=1; vllm serve m"]}), variable("A", "x"), "script sets A"),
        (deployment(), k8s("resources.limits.memory", "64GB"), "no Kubernetes quantity"),
        (deployment(), k8s("resources.memory", "64Gi"), "is no field"),
        (deployment(), k8s("startupProbe", 600), "neither a startupProbe nor a livenessProbe"),
        (deployment(), k8s("startupProbe", "10m"), "seconds"),
        (deployment(), k8s("startupProbe", {"failureThreshold": 60}), "neither a startupProbe nor a livenessProbe"),
        (deployment({"startupProbe": ASKS}), k8s("startupProbe", {"timeoutSeconds": 3}), "its fields are"),
        (deployment({"startupProbe": ASKS}), k8s("startupProbe", {"failureThreshold": 1.5}), "whole numbers"),
        (deployment({"startupProbe": ASKS}), k8s("startupProbe", {"failureThreshold": True}), "whole numbers"),
        (deployment(), k8s("image", ""), "is a reference"),
        (deployment(), k8s("image", "a b"), "is a reference"),
        (deployment(), k8s("image", None), "is a reference"),
        (deployment(), k8s("replicas", 2), "nothing that a patch"),
        (deployment(), change("action", "larger_gpu", "set"), "nothing that a patch"),
        (deployment(SHM, {"volumes": [{"name": "shm", "hostPath": {"path": "/x"}}]}), k8s("volumes.shm.sizeLimit", "1Gi"), "no emptyDir"),
        (deployment(kind="StatefulSet"), k8s("strategy", "Recreate"), "knows no strategy Recreate"),
        (deployment(kind="ReplicaSet"), k8s("strategy", "Recreate"), "no update strategy"),
        (deployment(kind="StatefulSet"), k8s("strategy", {"maxSurge": 1}), "no maxSurge"),
    ],
)  # fmt: skip
def test_refused(raw, planned, told):
    found = patched(raw, planned)
    assert (found.json_patch, found.refused[0]["change"]) == ([], planned)
    assert told in found.refused[0]["why"]


def test_a_refused_change_leaves_the_others():
    found = patched(deployment(), flag("api_key", "x"), flag("max_model_len", 4096))
    assert done(found) == [("replace", f"{ENGINE}/args/5", "4096")]
    assert len(found.refused) == 1


def test_an_object_that_has_changed_is_refused_by_the_patch():
    raw = deployment()
    found = patch(raw, EDIT, [flag("max_model_len", 4096)], guard=False)
    changed = copy.deepcopy(raw)
    changed["spec"]["template"]["spec"]["containers"][1]["args"][5] = "16384"
    with pytest.raises(DocumentError, match="has been changed"):
        apply(changed, found.json_patch)
    changed = copy.deepcopy(raw)
    changed["spec"]["template"]["spec"]["containers"].reverse()
    with pytest.raises(DocumentError, match="has been changed"):
        apply(changed, found.json_patch)


def test_no_strategic_merge_where_a_name_stands_twice():
    raw = deployment({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})
    found = patched(raw, variable("A", "3"))
    assert found.strategic_merge is None
    assert done(found) == [("replace", f"{ENGINE}/env/1", {"name": "A", "value": "3"})]
    assert len(done(patched(raw, variable("A", None)))) == 2


def test_parts_that_an_anchor_of_yaml_shares_are_changed_apart():
    shared = {"limits": {"memory": "8Gi"}}
    raw = deployment({"resources": shared})
    raw["spec"]["template"]["spec"]["containers"][0]["resources"] = shared
    found = patched(raw, k8s("resources.limits.memory", "9Gi"))
    assert found.after["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "8Gi"


JUNK = ("text", True, None, ["a"], [{}], {"a": 1})
EVERYTHING = [
    flag("max_model_len", 4096), variable("A", "1"), k8s("resources.limits.memory", "9Gi"), k8s("volumes.shm.sizeLimit", "1Gi"),
    k8s("startupProbe", 900), k8s("strategy", {"maxSurge": 0}), k8s("livenessProbe.timeoutSeconds", 9),
]  # fmt: skip


def places(value, path=()):
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*path, key))


def test_any_field_of_another_type_is_a_sentence_and_no_traceback():
    probe = {**LIVENESS, "initialDelaySeconds": 5}
    full = {**SHM, "env": [{"name": "A", "value": "2"}], "startupProbe": probe, "livenessProbe": probe}
    volumes = [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]
    raw = deployment(
        full, {"volumes": volumes}, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    )
    for path in list(places(raw))[1:]:
        for junk in JUNK:
            broken = copy.deepcopy(raw)
            holder = broken
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = junk
            found = patch(broken, EDIT, EVERYTHING)
            assert apply(broken, found.json_patch) == found.after
            assert all(item["why"] for item in found.refused)


# --- templates that start one engine together


def group(leader, worker):
    templates = {
        part: {"spec": {"containers": [{"name": part, "command": command}]}}
        for part, command in (("leaderTemplate", leader), ("workerTemplate", worker))
    }
    return custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": templates})


SERVE = ["vllm", "serve", "m", "--max-model-len=8192"]
RAY = ["sh", "-c", "ray start --address=$LWS_LEADER_ADDRESS --block"]


@pytest.mark.parametrize("part", ["leaderTemplate", "workerTemplate"])
@pytest.mark.parametrize(("worker", "both"), [(SERVE, True), (RAY, False)])
def test_leader_and_workers_get_the_same_options(part, worker, both):
    edit = {"path": f"spec.leaderWorkerTemplate.{part}.spec.containers[{part}]"}
    found = patched(group(SERVE, worker), flag("max_model_len", 4096), edit=edit)
    parts = ["leaderTemplate", "workerTemplate"] if both else ["leaderTemplate"]
    assert [path.split("/")[3] for _op, path, _value in done(found)] == parts
    found = patched(group(SERVE, worker), k8s("resources.limits.memory", "9Gi"), edit=edit)
    assert [path.split("/")[3] for _op, path, _value in done(found)] == [part]


def test_an_engine_that_is_started_nowhere():
    edit = {"path": "spec.leaderWorkerTemplate.workerTemplate.spec.containers[workerTemplate]"}
    found = patched(group(RAY, RAY), flag("max_model_len", 4096), edit=edit)
    assert "starts no engine" in found.refused[0]["why"]


# --- kinds that keep settings elsewhere


def test_arguments_must_get_through_the_template():
    """KServe's args go behind the runtime's: nothing hears them behind a script without "$@"."""
    raw = custom(
        "serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"model": {"args": ["--port=1"]}}}
    )
    edit = {"path": "spec.predictor.model"}

    def tried(value, command, *args):
        found = patch(
            raw,
            edit,
            [flag("max_model_len", value)],
            running={"command": command, "args": [*args, "--port=1"]},
        )
        return found.refused[0]["why"] if found.refused else done(found)[0][2]

    assert tried(4096, ["python3", "-m", "huggingfaceserver"]) == "--max-model-len=4096"
    assert tried(4096, ["bash", "-c"], 'vllm serve m "$@"', "--") == "--max-model-len=4096"
    assert "does not pass them on" in tried(4096, ["bash", "-c"], "vllm serve m")
    assert "gives this option itself" in tried(None, ["vllm", "serve"], "--max-model-len=8192")


VLLM_RUNTIME = custom(
    "production-stack.vllm.ai/v1alpha1",
    "VLLMRuntime",
    {
        "model": {"modelURL": "m", "maxModelLen": 8192},
        "vllmConfig": {
            "gpuMemoryUtilization": "0.9",
            "extraArgs": ["--api-key", "s3cr3t", "--max_num_seqs=8"],
        },
        "deploymentConfig": {"resources": {"cpu": "8", "memory": "32Gi", "gpu": "1"}},
    },
)
DYNAMO = custom(
    "nvidia.com/v1alpha1",
    "DynamoGraphDeployment",
    {
        "services": {
            "decode": {
                "resources": {"limits": {"gpu": "1"}},
                "extraPodSpec": {
                    "mainContainer": {"command": ["python3", "-m", "dynamo.vllm"], "args": ["--model", "m"]}
                },
            }
        }
    },
)
KUBEAI = custom(
    "kubeai.org/v1", "Model", {"args": ["--max-model-len=8192"], "env": {"A": "1"}, "resourceProfile": "x:1"}
)
BOOSTER = custom(
    "workload.serving.volcano.sh/v1alpha1",
    "ModelBooster",
    {"backend": {"workers": [{"type": "server", "config": {"max_model_len": 8192}, "resources": {}}]}},
)
NIM = custom("apps.nvidia.com/v1alpha1", "NIMService", {"image": {"repository": "r"}, "storage": {}})
KSERVE = custom(
    "serving.kserve.io/v1beta1",
    "InferenceService",
    {"predictor": {"model": {"resources": {"limits": {"memory": "8Gi"}}}}},
)
RAY_JOB = custom(
    "ray.io/v1",
    "RayJob",
    {
        "entrypoint": "python3 -m vllm.entrypoints.openai.api_server --max-model-len 8192 --port 1",
        "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}}},
    },
)
MAIN = "spec.services.decode.extraPodSpec.mainContainer"
RAY_HEAD = "spec.rayClusterSpec.headGroupSpec.template.spec.containers[ray-head]"


@pytest.mark.parametrize(
    ("raw", "path", "planned", "expected"),
    [
        (VLLM_RUNTIME, "spec", flag("max_model_len", 4096), ("replace", "/spec/model/maxModelLen", 4096)),
        (VLLM_RUNTIME, "spec", flag("max_model_len", None), ("remove", "/spec/model/maxModelLen", None)),
        (VLLM_RUNTIME, "spec", flag("gpu_memory_utilization", 0.8), ("replace", "/spec/vllmConfig/gpuMemoryUtilization", "0.8")),
        (VLLM_RUNTIME, "spec", flag("max_num_seqs", 4), ("replace", "/spec/vllmConfig/extraArgs/2", "--max_num_seqs=4")),
        (VLLM_RUNTIME, "spec", flag("tensor_parallel_size", 2), ("add", "/spec/vllmConfig/tensorParallelSize", 2)),
        (VLLM_RUNTIME, "spec", k8s("resources.limits.memory", "64Gi"), ("replace", "/spec/deploymentConfig/resources/memory", "64Gi")),
        (VLLM_RUNTIME, "spec", k8s("resources.limits.nvidia.com/gpu", "2"), ("replace", "/spec/deploymentConfig/resources/gpu", "2")),
        (VLLM_RUNTIME, "spec", k8s("volumes.shm.sizeLimit", "8Gi"), ("add", "/spec/deploymentConfig/shmSize", "8Gi")),
        (VLLM_RUNTIME, "spec", variable("A", "1"), ("add", "/spec/vllmConfig/env", [{"name": "A", "value": "1"}])),
        (DYNAMO, MAIN, k8s("resources.limits.memory", "64Gi"), ("add", "/spec/services/decode/resources/limits/memory", "64Gi")),
        (DYNAMO, MAIN, k8s("volumes.shm.sizeLimit", "8Gi"), ("add", "/spec/services/decode/sharedMemory", {"size": "8Gi"})),
        (DYNAMO, MAIN, variable("A", "1"), ("add", "/spec/services/decode/envs", [{"name": "A", "value": "1"}])),
        (KUBEAI, "spec", flag("max_model_len", 4096), ("replace", "/spec/args/0", "--max-model-len=4096")),
        (KUBEAI, "spec", variable("B", "2"), ("add", "/spec/env/B", "2")),
        (KUBEAI, "spec", variable("A", None), ("remove", "/spec/env/A", None)),
        (BOOSTER, "spec.backend.workers[server]", flag("max_model_len", 4096), ("replace", "/spec/backend/workers/0/config/max_model_len", 4096)),
        (BOOSTER, "spec.backend.workers[server]", flag("max_num_seqs", 4), ("add", "/spec/backend/workers/0/config/max-num-seqs", 4)),
        (BOOSTER, "spec.backend.workers[server]", variable("A", "1"), ("add", "/spec/backend/env", [{"name": "A", "value": "1"}])),
        (NIM, "spec", k8s("volumes.shm.sizeLimit", "8Gi"), ("add", "/spec/storage/sharedMemorySizeLimit", "8Gi")),
        (NIM, "spec", flag("max_model_len", 4096), ("add", "/spec/env", [{"name": "NIM_MAX_MODEL_LEN", "value": "4096"}])),
        (KSERVE, "spec.predictor.model", flag("max_model_len", 4096), ("add", "/spec/predictor/model/args", ["--max-model-len", "4096"])),
        (KSERVE, "spec.predictor.model", k8s("resources.limits.memory", "9Gi"), ("replace", "/spec/predictor/model/resources/limits/memory", "9Gi")),
        (RAY_JOB, RAY_HEAD, flag("max_model_len", 4096), ("replace", "/spec/entrypoint", RAY_JOB["spec"]["entrypoint"].replace("8192", "4096"))),
    ],
)  # fmt: skip
def test_own_fields_of_kinds(raw, path, planned, expected):
    found = patched(raw, planned, edit={"path": path})
    assert done(found) == [expected], found.refused
    assert found.strategic_merge is None


@pytest.mark.parametrize(
    ("raw", "path", "planned", "told"),
    [
        (VLLM_RUNTIME, "spec", k8s("resources.limits.cpu", None), "request and limit at once"),
        (VLLM_RUNTIME, "spec", k8s("startupProbe", 600), "makes the probes itself"),
        (VLLM_RUNTIME, "spec", k8s("image", "vllm/vllm-openai:v0.11.2"), "names no image itself"),
        (KUBEAI, "spec", k8s("resources.limits.memory", "9Gi"), "spec.resourceProfile"),
        (BOOSTER, "spec.backend.workers[server]", k8s("volumes.shm.sizeLimit", "8Gi"), "no field for it"),
        (KSERVE, "spec.predictor.model", k8s("resources.limits.cpu", None), "copy of the ServingRuntime"),
        (KSERVE, "spec.predictor.containers[x]", flag("max_model_len", 1), "the object has no spec.predictor.containers[x]"),
        (KSERVE, None, flag("max_model_len", 1), "isn't known where"),
        (custom("ray.io/v1", "RayService", {"serveConfigV2": "x"}), "spec", flag("max_model_len", 1), "spec.serveConfigV2"),
        (custom("v1", "ConfigMap", {}), "data[inference_config.yaml].vllm", flag("max_model_len", 1), "inference_config.yaml"),
    ],
)  # fmt: skip
def test_what_a_kind_keeps_elsewhere_is_refused_with_its_place(raw, path, planned, told):
    found = patched(raw, planned, edit={"path": path})
    assert found.json_patch == []
    assert told in found.refused[0]["why"]


# --- public samples


def read(objects):
    return manifest_evidence([Document("s.yaml", item) for item in objects], "s.yaml", "2026-11-24T08:00:00Z")


def sampled():
    """(objects, position of the edited one, the pod's name, its edit) of all samples that are objects."""
    for sample in SAMPLES:
        objects = sample.get("objects") or [sample["manifest"]]
        for pod in read(objects)["pods"] if "pods" in sample else ():
            edit = pod["workload"]["edit"]
            for at, item in enumerate(objects):
                if (
                    edit["path"]
                    and item.get("kind") == edit["kind"]
                    and item["metadata"].get("name") == edit["name"]
                ):
                    yield pytest.param(objects, at, pod["name"], edit, id=f"{sample['from']} {pod['name']}")


def told(objects, name):
    """What the engines of the same group are told, besides the log and the defaults; and the rest of the pod."""
    (pod,) = [pod for pod in read(objects)["pods"] if pod["name"] == name]
    settings = [
        {
            key: item["value"]
            for key, item in container["settings"].items()
            if item["from"] not in ("default", "log")
        }
        for container in pod["containers"]
        if container["engine"]
    ]
    return settings[0], [(item["name"], item["image"], item["resources"]) for item in pod["containers"]]


# A template that isn't in the object, YAML in a text: where the sentence sends the reader.
ELSEWHERE = {
    "RayService": "spec.serveConfigV2",
    "ConfigMap": "inference_config.yaml",
    "InferenceService": "the object",
}


@pytest.mark.parametrize(("objects", "at", "name", "edit"), list(sampled()))
def test_a_public_sample_gets_another_length_and_nothing_else(objects, at, name, edit):
    raw = objects[at]
    (pod,) = [pod for pod in read(objects)["pods"] if pod["name"] == name]
    (running,) = [item for item in pod["containers"] if item["engine"]]
    found = patched(raw, flag("max_model_len", 1234), edit=edit, running=running)
    if found.refused:
        assert ELSEWHERE[edit["kind"]] in found.refused[0]["why"]
        return
    before, rest = told(objects, name)
    for value in (1234, None):
        found = patched(found.after, flag("max_model_len", value), edit=edit)
        after, others = told([*objects[:at], found.after, *objects[at + 1 :]], name)
        assert after.get("max_model_len") == (value if after else None)
        carried = ("VLLM_ADDITIONAL_ARGS", "NIM_MAX_MODEL_LEN")
        for settings in (before, after):
            for key in ("max_model_len", *carried):
                settings.pop(key, None)
        assert (after, others) == (before, rest)


def test_most_samples_are_edited():
    found = [patch(p.values[0][p.values[1]], p.values[3], [flag("max_model_len", 1234)]) for p in sampled()]
    assert len([item for item in found if not item.refused]) >= 20


@pytest.mark.parametrize(
    ("args", "value", "left"),
    [
        (["--enable-prefix-caching"], True, ["--no-enable-prefix-caching"]),
        (["--no-enable-prefix-caching"], None, []),
        (["--no-enable-prefix-caching"], False, ["--enable-prefix-caching"]),
        (["--port", "1"], True, ["--port", "1", "--no-enable-prefix-caching"]),
    ],
)
def test_a_switch_that_is_named_by_its_opposite(args, value, left):
    found = patched(
        deployment({"args": ["m", *args], "command": ["vllm", "serve"]}),
        flag("--no-enable-prefix-caching", value),
    )
    assert engine_of(found)["args"] == ["m", *left]


def test_a_startup_probe_by_its_fields():
    raw = deployment({"startupProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 10}})
    wanted = {"failureThreshold": 60, "periodSeconds": 20}
    assert engine_of(patched(raw, k8s("startupProbe", wanted)))["startupProbe"] == {
        "tcpSocket": {"port": 1},
        **wanted,
    }
    for wrong in ({"failureThreshold": 0}, {"failureThreshold": "60"}, {"timeoutSeconds": 1}):
        (refused,) = patched(raw, k8s("startupProbe", wrong)).refused
        assert refused["why"].startswith("startupProbe: its fields are failureThreshold and periodSeconds")
