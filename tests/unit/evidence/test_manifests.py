# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests as evidence: every kind, what lies beside it, and every way a manifest can be bad."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
import yaml
from support.users import as_nobody

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import EVIDENCE_SCHEMA, DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.gpu_request import gpu_request
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifest_files import (
    MANIFEST_LIMITS,
    Document,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import (
    manifest_evidence,
    read_manifests,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "manifests"
NOW = "2026-11-24T08:00:00Z"


def container(**more):
    return {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model", "m/x", "--max-model-len", "4096"],
        "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "32Gi"}},
        **more,
    }


def pod_spec(*containers, **more):
    return {"containers": list(containers) or [container()], **more}


def template(**more):
    return {"metadata": {"labels": {"app": "x"}}, "spec": pod_spec(**more)}


def made(of, spec=None, name="x", namespace=None, **more):
    api_version, kind = of.rsplit(" ", 1)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        **({"spec": spec} if spec else {}),
        **more,
    }


def deployment(spec=None, **more):
    return made("apps/v1 Deployment", {"replicas": 1, "template": {"spec": spec or pod_spec()}}, **more)


def read(*objects):
    return manifest_evidence([Document("x.yaml", item) for item in objects], "x.yaml", NOW)


def only(document):
    (pod,) = document["pods"]
    (engine,) = [item for item in pod["containers"] if item["engine"]]
    return pod, engine


def value(engine, name):
    return engine["settings"][name]["value"]


def reasons(document):
    return " | ".join(f"{entry['object']}: {entry['reason']}" for entry in document["unreadable"])


def written(tmp_path, text, name="x.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


# --- kinds: where workload-kinds (sections 1 and 2) says that the pod template is

BY_TEMPLATE = {
    "apps/v1 Deployment": lambda pods: {"template": pods},
    "apps/v1 StatefulSet": lambda pods: {"template": pods},
    "apps/v1 DaemonSet": lambda pods: {"template": pods},
    "apps/v1 ReplicaSet": lambda pods: {"template": pods},
    "batch/v1 Job": lambda pods: {"template": pods},
    "batch/v1 CronJob": lambda pods: {"jobTemplate": {"spec": {"template": pods}}},
    "v1 Pod": lambda pods: pods["spec"],
    "argoproj.io/v1alpha1 Rollout": lambda pods: {"template": pods},
    "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": lambda pods: {
        "leaderWorkerTemplate": {"size": 1, "workerTemplate": pods}
    },
    "jobset.x-k8s.io/v1alpha2 JobSet": lambda pods: {
        "replicatedJobs": [{"name": "serve", "template": {"spec": {"template": pods}}}]
    },
    "serving.knative.dev/v1 Service": lambda pods: {"template": pods},
    "serving.kserve.io/v1beta1 InferenceService": lambda pods: {"predictor": pods["spec"]},
    "serving.kserve.io/v1alpha1 ServingRuntime": lambda pods: pods["spec"],
    "ray.io/v1 RayCluster": lambda pods: {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "template": pods}],
    },
    "ray.io/v1 RayJob": lambda pods: {
        "rayClusterSpec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "template": pods}],
        }
    },
    "orchestration.aibrix.ai/v1alpha1 StormService": lambda pods: {
        "template": {"spec": {"roles": [{"name": "all", "replicas": 1, "template": pods}]}}
    },
    "nvidia.com/v1beta1 DynamoGraphDeployment": lambda pods: {
        "components": [{"name": "w", "podTemplate": pods}]
    },
    "grove.io/v1alpha1 PodCliqueSet": lambda pods: {
        "template": {"cliques": [{"name": "w", "spec": {"replicas": 1, "podSpec": pods["spec"]}}]}
    },
    "ome.io/v1beta1 InferenceService": lambda pods: {
        "model": {"name": "m"},
        "engine": {"runner": pods["spec"]["containers"][0]},
    },
    "workload.serving.volcano.sh/v1alpha1 ModelServing": lambda pods: {
        "template": {"roles": [{"name": "all", "replicas": 1, "entryTemplate": pods}]}
    },
}


@pytest.mark.parametrize("of", BY_TEMPLATE)
def test_the_pod_template_of_a_kind_is_found(of):
    pod, engine = only(read(made(of, BY_TEMPLATE[of](template()))))
    assert pod["name"] in ("x", "x-worker")
    assert (value(engine, "max_model_len"), pod["gpu_request"]["count"]) == (4096, 2)
    assert engine["resources"]["limits"]["memory"] == "32Gi"
    assert (pod["uid"], pod["suspicious"], engine["attempts"]) == (None, False, [])
    kind = "InferenceService" if of.endswith("InferenceService") else of.rsplit(" ", 1)[1]
    assert (pod["workload"]["kind"], pod["workload"]["name"]) == (kind, "x")
    assert pod["workload"]["edit"]["path"]


def test_a_pod_template_of_kaito_is_below_inference():
    pod, engine = only(read(made("kaito.sh/v1beta1 Workspace", inference={"template": template()})))
    assert (value(engine, "model"), pod["gpu_request"]["count"]) == ("m/x", 2)
    assert pod["workload"]["edit"]["path"] == "inference.template.spec.containers[vllm]"


def test_the_document_is_evidence_that_a_diagnosis_takes():
    document = read(deployment(pod_spec(container(resources={"limits": {"nvidia.com/gpu": 1, "cpu": 4}}))))
    assert (document["schema"], document["source"]["kind"]) == (EVIDENCE_SCHEMA, "manifest")
    assert document["counts"] == {"pods_seen": 1, "engines": 1, "suspicious": 0}
    causes = {item["cause"] for item in diagnose(json.loads(json.dumps(document)))["pods"][0]["findings"]}
    assert "cpu_limit_set" in causes


def test_an_unknown_kind_with_a_pod_template_is_read_and_says_so():
    pod, _engine = only(read(made("apps.kruise.io/v1alpha1 CloneSet", {"template": template()})))
    assert "CloneSet isn't known" in pod["assumptions"][0]


def test_ranks_of_a_stateful_set_are_one_engine():
    ranks = container(args=["--model", "m/x", "--nnodes", "2", "--node-rank", "$(RANK)"])
    spec = {"replicas": 2, "template": {"spec": pod_spec(ranks)}}
    pod, _engine = only(read(made("apps/v1 StatefulSet", spec, namespace="llm")))
    assert (pod["group"], pod["members"]) == ("llm/StatefulSet/x", 2)


def test_leader_and_workers_are_one_group():
    spec = {
        "replicas": 3,
        "leaderWorkerTemplate": {"size": 4, "leaderTemplate": template(), "workerTemplate": template()},
    }
    document = read(made("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", spec, namespace="llm"))
    assert [(pod["name"], pod["members"]) for pod in document["pods"]] == [("x-leader", 1), ("x-worker", 3)]
    assert document["groups"] == [
        {"ref": "llm/LeaderWorkerSet/x/0", "pods": ["llm/x-leader", "llm/x-worker"]}
    ]


def test_sidecars_and_init_containers_stay_and_other_pods_go():
    proxy = {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}}
    spec = pod_spec(container(), {"name": "metrics"}, initContainers=[{"name": "load"}, proxy])
    document = read(deployment(spec), deployment(pod_spec({"name": "web", "image": "nginx"}), name="web"))
    pod, _engine = only(document)
    roles = {item["name"]: item["role"] for item in pod["containers"]}
    assert roles == {"load": "init", "proxy": "sidecar", "vllm": "main", "metrics": "main"}


def test_what_its_owner_in_the_files_says_is_read_once():
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    replica_set = made("apps/v1 ReplicaSet", {"template": template()}, name="x-abc")
    replica_set["metadata"]["ownerReferences"] = [owner]
    pod, _engine = only(read(deployment(), replica_set))
    assert pod["name"] == "x"


def test_lists_and_bare_arrays_are_opened():
    listed = {"apiVersion": "v1", "kind": "List", "items": [deployment(name="a")]}
    typed = {
        "apiVersion": "apps/v1",
        "kind": "DeploymentList",
        "items": [{"metadata": {"name": "b"}, "spec": deployment()["spec"]}],
    }
    document = read(listed, typed, [deployment(name="c")])
    assert [pod["name"] for pod in document["pods"]] == ["a", "b", "c"]


# --- what lies beside the workload


def test_variables_and_the_config_file_come_from_config_maps():
    data = {"MAX_LEN": "2048", "engine.yaml": "max-num-seqs: 7\n"}
    config = made("v1 ConfigMap", name="settings", data=data)
    engine = container(
        args=["--model", "m/x", "--max-model-len", "$(MAX_LEN)", "--config", "/etc/vllm/engine.yaml"],
        envFrom=[{"configMapRef": {"name": "settings"}}],
        volumeMounts=[{"name": "c", "mountPath": "/etc/vllm"}],
    )
    spec = pod_spec(engine, volumes=[{"name": "c", "configMap": {"name": "settings"}}])
    _pod, found = only(read(config, deployment(spec)))
    assert (value(found, "max_model_len"), value(found, "max_num_seqs")) == (2048, 7)
    assert found["settings"]["max_num_seqs"]["from"] == "config"
    missing = read(deployment(spec))
    assert "isn't in a ConfigMap of these files" in reasons(missing)


def test_one_variable_from_a_config_map():
    source = {"configMapKeyRef": {"name": "settings", "key": "len"}}
    engine = container(
        args=["--model", "m/x", "--max-model-len", "$(LEN)"], env=[{"name": "LEN", "valueFrom": source}]
    )
    config = made("v1 ConfigMap", name="settings", data={"len": 1024})
    _pod, found = only(read(deployment(pod_spec(engine)), config))
    assert value(found, "max_model_len") == 1024


@pytest.mark.parametrize("own", ["llm", None])
def test_quotas_and_limit_ranges_go_to_the_namespace(own):
    quota = made("v1 ResourceQuota", {"hard": {"limits.memory": "64Gi"}}, name="q")
    limits = made(
        "v1 LimitRange", {"limits": [{"type": "Container", "default": {"memory": "8Gi"}}]}, name="l"
    )
    document = read(quota, limits, deployment(namespace=own))
    found = document["namespaces"][own or ""]
    assert found["quotas"][0]["hard"] == {"limits.memory": "64Gi"}
    assert found["limit_ranges"][0]["limits"][0]["default"] == {"memory": "8Gi"}


def test_a_limit_range_gives_its_defaults_as_admission_does():
    limits = {
        "type": "Container",
        "default": {"memory": "4Gi", "cpu": "2"},
        "defaultRequest": {"memory": "1Gi"},
    }
    range_ = made("v1 LimitRange", {"limits": [limits]}, name="small")
    pod, engine = only(
        read(
            deployment(
                pod_spec(container(command=["vllm", "serve", "m/x"], resources={"limits": {"cpu": "8"}}))
            ),
            range_,
        )
    )
    assert engine["resources"]["limits"] == {"cpu": "8", "memory": "4Gi"}
    assert engine["resources"]["requests"] == {"memory": "1Gi"}
    assert pod["assumptions"] == ["container vllm gets the default limits of LimitRange/small: memory 4Gi"]
    assert "memory limit" in pod["mutations"][0]["text"]


def test_quotas_of_another_namespace_stay_out():
    quota = made("v1 ResourceQuota", {"hard": {}}, name="q", namespace="other")
    assert read(quota, deployment(namespace="llm"))["namespaces"] == {}


def test_owners_and_tools_are_known_by_their_marks():
    item = deployment(namespace="llm")
    item["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "a:apps/Deployment:llm/x"}
    scaler = made(
        "autoscaling/v2 HorizontalPodAutoscaler",
        {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 4},
        namespace="llm",
    )
    pod, _engine = only(read(item, scaler))
    assert [entry["tool"] for entry in pod["workload"]["managers"]] == ["Argo CD"]
    assert [entry["max"] for entry in pod["workload"]["autoscalers"]] == [4]
    assert pod["workload"]["replicas"] == {
        "desired": 1,
        "current": None,
        "ready": None,
        "available": None,
        "updated": None,
    }


# --- KServe


def service(model=None, **predictor):
    return made("serving.kserve.io/v1beta1 InferenceService", {"predictor": {"model": model, **predictor}})


def test_a_service_is_laid_over_its_runtime():
    runtime = made(
        "serving.kserve.io/v1alpha1 ClusterServingRuntime",
        {
            "supportedModelFormats": [{"name": "vLLM"}],
            "containers": [
                {
                    "name": "kserve-container",
                    "image": "vllm/vllm-openai:v0.10.0",
                    "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                    "args": ["--model=/mnt/models", "--max-model-len=1000", "--served-model-name={{.Name}}"],
                    "env": [{"name": "A", "value": "below"}, {"name": "B", "value": "below"}],
                    "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
                    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                }
            ],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}],
        },
        name="vllm-runtime",
    )
    model = {
        "modelFormat": {"name": "vLLM"},
        "runtime": "vllm-runtime",
        "args": ["--max-model-len=2000"],
        "env": [{"name": "B", "value": "above"}],
        "resources": {"limits": {"memory": "40Gi", "nvidia.com/gpu": "1"}},
        "storageUri": "hf://meta/llama:rev1",
    }
    pod, engine = only(read(service(model, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"}), runtime))
    assert engine["resources"]["limits"] == {"cpu": "1", "memory": "40Gi", "nvidia.com/gpu": "1"}
    assert value(engine, "max_model_len") == 2000  # the service's arguments come last
    assert {item["name"]: item["value"] for item in engine["env"]} == {"A": "below", "B": "above"}
    assert (pod["shm"]["size_limit"], pod["gpu_request"]["product"]) == (2 * GIB, "NVIDIA-L4")
    assert engine["model_source"] == {"value": "meta/llama", "from": "storageUri"}
    assert pod["workload"]["edit"]["path"] == "spec.predictor.model"
    assert engine["args"][2] == "--served-model-name=x"
    assert not pod["assumptions"]


def test_a_runtime_that_is_nowhere_is_named_with_what_to_do():
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    document = read(service({"modelFormat": {"name": "vLLM"}, "runtime": "ours", "resources": gpu}))
    assert "the ServingRuntime or ClusterServingRuntime ours isn't in the files" in reasons(document)
    assert document["unreadable"][0]["needs"].startswith("kubectl get clusterservingruntime ours")
    assert len(document["pods"]) == 1


def test_a_shipped_runtime_is_an_assumption_and_brings_its_cpu_limit():
    model = {
        "modelFormat": {"name": "huggingface"},
        "resources": {"limits": {"memory": "20Gi", "nvidia.com/gpu": "1"}},
    }
    pod, engine = only(read(service(model)))
    assert engine["resources"]["limits"]["cpu"] == "1"
    assert "taken as kserve-huggingfaceserver" in pod["assumptions"][0]


def test_the_older_form_of_a_hugging_face_predictor():
    old = {"args": ["--model_id=m/x"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod, engine = only(
        read(made("serving.kserve.io/v1beta1 InferenceService", {"predictor": {"huggingface": old}}))
    )
    assert (value(engine, "model"), pod["workload"]["edit"]["path"]) == ("m/x", "spec.predictor.huggingface")


def test_base_refs_of_an_llm_service():
    base = made(
        "serving.kserve.io/v1alpha1 LLMInferenceServiceConfig",
        {"template": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Gi"}}}]}},
        name="large",
    )
    main = {
        "name": "main",
        "args": ["--max-model-len=9000"],
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
    }
    spec = {
        "baseRefs": [{"name": "large"}],
        "model": {"uri": "hf://m/x"},
        "parallelism": {"tensor": 4},
        "template": {"containers": [main]},
    }
    item = made("serving.kserve.io/v1alpha2 LLMInferenceService", spec)
    _pod, engine = only(read(base, item))
    assert engine["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "4"}
    assert (value(engine, "tensor_parallel_size"), value(engine, "max_model_len")) == (4, 9000)
    assert "the LLMInferenceServiceConfig large isn't in the files" in reasons(read(item))


# --- others that are rendered


def test_profiles_of_kubeai_come_from_its_values():
    profile = {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"memory": "10Gi"},
        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    }
    values = {"resourceProfiles": {"ours": profile}}
    model = made("kubeai.org/v1 Model", {"url": "hf://m/x", "engine": "VLLM", "resourceProfile": "ours:2"})
    pod, engine = only(read(values, model))
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert (pod["gpu_request"]["product"], pod["gpu_request"]["count"]) == ("nvidia-l4", 2)


def test_a_nim_takes_its_model_from_its_cache():
    cache = made(
        "apps.nvidia.com/v1alpha1 NIMCache",
        {"source": {"hf": {"namespace": "meta-llama", "modelName": "Llama-3.2-1B-Instruct"}}},
        name="cache",
    )
    spec = {
        "image": {"repository": "nvcr.io/nim/nvidia/model-free-nim", "tag": "3.0.0"},
        "storage": {"nimCache": {"name": "cache"}, "sharedMemorySizeLimit": "4Gi"},
        "env": [{"name": "NIM_MAX_MODEL_LEN", "value": "8192"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "multiNode": {"parallelism": {"pp": 2, "tp": 8}},
    }
    pod, engine = only(read(cache, made("apps.nvidia.com/v1alpha1 NIMService", spec)))
    assert engine["model_source"]["value"] == "meta-llama/Llama-3.2-1B-Instruct"
    names = ("max_model_len", "tensor_parallel_size", "pipeline_parallel_size")
    assert [value(engine, name) for name in names] == [8192, 8, 2]
    assert (pod["shm"]["size_limit"], pod["members"]) == (4 * GIB, 2)


def test_several_models_of_one_ray_service_are_several_engines():
    config = {
        "applications": [
            {
                "args": {
                    "llm_configs": [
                        {
                            "model_loading_config": {"model_id": name},
                            "engine_kwargs": {"tensor_parallel_size": size},
                        }
                        for name, size in (("a", 2), ("b", 8))
                    ]
                }
            }
        ]
    }
    workers = [{"groupName": "gpu", "template": {"spec": pod_spec(container(args=[]))}}]
    spec = {
        "serveConfigV2": yaml.safe_dump(config),
        "rayClusterConfig": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}},
            "workerGroupSpecs": workers,
        },
    }
    pods = read(made("ray.io/v1 RayService", spec))["pods"]
    assert [(pod["name"], pod["members"]) for pod in pods] == [("x-worker-a", 1), ("x-worker-b", 4)]


def test_the_entrypoint_of_a_ray_job_is_the_command():
    spec = {
        "entrypoint": "vllm serve m/y --tensor-parallel-size 2",
        "rayClusterSpec": {"headGroupSpec": {"template": {"spec": pod_spec(container(args=["x"]))}}},
    }
    _pod, engine = only(read(made("ray.io/v1 RayJob", spec)))
    assert value(engine, "model") == "m/y"


def test_a_rollout_of_a_deployment_is_read_there():
    rollout = made(
        "argoproj.io/v1alpha1 Rollout", {"workloadRef": {"kind": "Deployment", "name": "x"}}, name="r"
    )
    pod, _engine = only(read(rollout, deployment()))
    assert pod["name"] == "x"
    other = read(rollout, deployment(name="y"))
    assert "isn't in the files" in reasons(other)


@pytest.mark.parametrize(
    ("of", "carry"),
    [
        ("helm.toolkit.fluxcd.io/v2 HelmRelease", lambda values: {"values": values}),
        ("argoproj.io/v1alpha1 Application", lambda values: {"source": {"helm": {"valuesObject": values}}}),
    ],
)
def test_values_in_an_object_of_a_gitops_tool(of, carry):
    values = {"servingEngineSpec": {"modelSpec": [{"name": "a", "modelURL": "m/x", "requestGPU": 2}]}}
    pod, engine = only(read(made(of, carry(values))))
    assert (value(engine, "model"), pod["gpu_request"]["count"]) == ("m/x", 2)
    with pytest.raises(DocumentError, match="stands for objects that aren't in it"):
        read(made(of, carry({"other": 1})))


def test_llm_d_values_derive_parallel_sizes_and_gpus():
    values = {
        "multinode": True,
        "modelArtifacts": {"name": "m/x", "uri": "pvc+hf://claim/cache/m/x"},
        "decode": {
            "parallelism": {"tensor": 2, "data": 8, "dataLocal": 4},
            "acceleratorTypes": {
                "labelKey": "nvidia.com/gpu.product",
                "labelValues": ["NVIDIA-H100-80GB-HBM3"],
            },
            "containers": [{"image": "vllm/vllm-openai:v0.11.0", "modelCommand": "vllmServe"}],
        },
    }
    pod, engine = only(read(values))
    assert pod["gpu_request"]["count"] == 8  # ranks on this node times tensor parallel size
    assert pod["gpu_request"]["product"] == "NVIDIA-H100-80GB-HBM3"
    names = ("model", "tensor_parallel_size", "data_parallel_size", "data_parallel_size_local")
    assert [value(engine, name) for name in names] == ["m/x", 2, 8, 4]
    assert pod["members"] == 2


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"storageUri": "hf://m/x"}, "/mnt/models"),
        ({"env": [{"name": "MODEL_ID", "value": "m/x"}]}, "m/x"),
    ],
)
def test_the_shipped_vllm_runtime(model, expected):
    model = {
        "modelFormat": {"name": "vllm"},
        "args": ["--max-model-len=5000"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        **model,
    }
    _pod, engine = only(read(service(model)))
    assert (value(engine, "model"), value(engine, "max_model_len")) == (expected, 5000)


# --- which GPU


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
            ("NVIDIA-L4", [], "nodeSelector nvidia.com/gpu.product"),
        ),
        (
            {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}},
            ("nvidia-h100-80gb", [], "nodeSelector cloud.google.com/gke-accelerator"),
        ),
        ({}, (None, [], None)),
    ],
)
def test_the_product_by_node_selector(spec, expected):
    found = gpu_request(spec)
    assert (found["product"], found["alternatives"], found["from"]) == expected


def expression(operator, *values, key="nvidia.com/gpu.product"):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([[expression("In", "A", "B"), expression("NotIn", "C")]], ["A", "B"]),
        ([[expression("In", "A", "B"), expression("NotIn", "B")]], ["A"]),
        ([[expression("In", "A", "B"), expression("In", "B", "C")]], ["B"]),
        ([[expression("In", "A")], [expression("In", "B", "A")]], ["A", "B"]),
        ([[expression("NotIn", "A")]], []),
        # one term is enough, and this one allows any product
        ([[expression("In", "A")], [expression("In", "here", key="zone")]], []),
    ],
)
def test_the_products_that_affinity_requires(terms, expected):
    terms = [{"matchExpressions": each} for each in terms]
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = gpu_request({"affinity": {"nodeAffinity": node}})
    assert [found["product"], *found["alternatives"]] == (expected or [None])
    assert found["from"] == ("nodeAffinity nvidia.com/gpu.product" if expected else None)


def test_a_preferred_product_is_not_required():
    preference = {"matchExpressions": [expression("In", "A", "B")]}
    node = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": preference}]}
    found = gpu_request({"affinity": {"nodeAffinity": node}})
    assert (found["product"], found["preferred"], found["from"]) == (None, ["A", "B"], None)
    selected = gpu_request(
        {"affinity": {"nodeAffinity": node}, "nodeSelector": {"nvidia.com/gpu.product": "L4"}}
    )
    assert (selected["product"], selected["preferred"]) == ("L4", [])


@pytest.mark.parametrize(
    ("limits", "product", "profile"),
    [
        ({"nvidia.com/mig-2g.20gb": 1}, "NVIDIA-H100-80GB-HBM3", "2g.20gb"),
        ({"nvidia.com/mig-1g.10gb.me": 1}, None, "1g.10gb"),
        ({"nvidia.com/gpu": 1}, "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "1g.10gb"),
        ({"nvidia.com/gpu.shared": 1}, "NVIDIA-L4-SHARED", None),
    ],
)
def test_the_profile_of_a_mig_instance(limits, product, profile):
    selector = {"nvidia.com/gpu.product": product} if product else {}
    found = gpu_request({"containers": [{"resources": {"limits": limits}}], "nodeSelector": selector})
    assert (found["resource"], found["product"], found["profile"]) == (next(iter(limits)), product, profile)


@pytest.mark.parametrize(
    ("limits", "count", "resource"),
    [
        ({"nvidia.com/gpu": 4}, 4, "nvidia.com/gpu"),
        ({"nvidia.com/mig-3g.40gb": "2"}, 2, "nvidia.com/mig-3g.40gb"),
        ({"amd.com/gpu": "8", "memory": "1Gi"}, 8, "amd.com/gpu"),
        ({"nvidia.com/gpu.shared": 2}, 2, "nvidia.com/gpu.shared"),
        ({"nvidia.com/gpumem": "20000"}, None, "nvidia.com/gpumem"),
        ({"nvidia.com/gpu": "0"}, None, None),
        ({"memory": "1Gi"}, None, None),
    ],
)
def test_how_many_of_which_resource(limits, count, resource):
    found = gpu_request({"containers": [{"resources": {"limits": limits}}]})
    assert (found["count"], found["resource"]) == (count, resource)


def test_only_the_engines_devices_count():
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": count}}} for count in ("1", "4")]}
    assert (gpu_request(spec, 1)["count"], gpu_request(spec)["count"]) == (4, 5)


# --- files


def test_a_folder_is_read_as_one(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    written(tmp_path, yaml.safe_dump(deployment(name="a")), "a.yaml")
    written(tmp_path, json.dumps(deployment(name="b")), "sub/b.json")
    written(tmp_path, yaml.safe_dump(deployment(name="hidden")), ".git/c.yaml")
    written(tmp_path, "no manifest", "README.md")
    written(tmp_path, "a: [1\n", "sub/bad.yml")
    document = read_manifests(str(tmp_path), now=NOW)
    assert [pod["name"] for pod in document["pods"]] == ["a", "b"]
    assert document["pods"][1]["file"].endswith("sub/b.json")
    assert document["unreadable"][0]["object"].endswith("bad.yml")
    assert "malformed YAML in line 2" in document["unreadable"][0]["reason"]


def test_standard_input_and_a_pipe(tmp_path):
    text = yaml.safe_dump(deployment())
    assert read_manifests("-", stdin=text, now=NOW)["pods"][0]["name"] == "x"
    assert (
        read_manifests("-", stdin=io.BytesIO(text.encode()), now=NOW)["source"]["detail"] == "standard input"
    )


def test_several_documents_in_one_file(tmp_path):
    text = (
        "---\n# nothing\n---\n"
        + yaml.safe_dump(deployment(name="a"))
        + "---\n"
        + yaml.safe_dump(deployment(name="b"))
    )
    document = read_manifests(written(tmp_path, text), now=NOW)
    assert [pod["name"] for pod in document["pods"]] == ["a", "b"]


def test_an_object_in_two_files_is_read_once_and_named():
    first, second = deployment(), deployment(pod_spec(container(args=["--max-model-len", "1"])))
    document = read(first, second)
    _pod, engine = only(document)
    assert value(engine, "max_model_len") == 4096
    assert "twice" in reasons(document)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_read_without_a_gap(path):
    document = read_manifests(str(path), now=NOW)
    assert document["pods"]
    assert document["unreadable"] == []


def test_a_chart_that_nobody_rendered(tmp_path):
    (tmp_path / "templates").mkdir()
    written(tmp_path, "apiVersion: v2\nname: ours\nversion: 1.0.0\n", "Chart.yaml")
    written(tmp_path, "image: {repository: ours}\n", "values.yaml")
    written(tmp_path, "{{- if .Values.a }}\nkind: Deployment\n{{- end }}\n", "templates/deployment.yaml")
    text = refused(tmp_path)
    assert "templates/deployment.yaml" in text
    assert "helm template" in text


# --- secrets


def test_no_secret_comes_out():
    secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    engine = container(
        args=["--model", "m/x", "--api-key", secret],
        env=[{"name": "HF_TOKEN", "value": secret}, {"name": "URL", "value": f"https://u:{secret}@host/"}],
        envFrom=[{"configMapRef": {"name": "c"}}],
    )
    config = made("v1 ConfigMap", name="c", data={"AWS_SECRET_ACCESS_KEY": secret})
    kept = made("v1 Secret", name="s", stringData={"token": secret})
    document = read(config, kept, deployment(pod_spec(engine)))
    assert secret not in json.dumps(document)
    assert document["redactions"]["count"] >= 4


# --- bad input


def refused(path, **more):
    with pytest.raises(DocumentError) as caught:
        read_manifests(str(path), now=NOW, **more)
    text = str(caught.value)
    assert "\n" not in text
    return text


BAD_FILES = {
    "empty": ("", "is empty"),
    "only comments": ("# nothing\n---\n", "holds no Kubernetes object and no Helm values"),
    "no YAML": ("kind: [\n", "malformed YAML in line"),
    "a tab": ("a:\n\tb: 1\n", "malformed YAML in line 2"),
    "JSON cut short": ('{"kind": "Pod",', "malformed YAML in line"),
    "text": ("hello there\n", "it holds a bare text in x.yaml"),
    "other values": ("replicaCount: 1\nimage: {repository: nginx}\n", "no values of a known chart"),
    "a service": ("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", "it holds Service/s"),
    "no metadata": ("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: vllm}]}\n", "has no metadata"),
    "a number as name": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 1}\n",
        "its metadata.name or namespace is no text",
    ),
    "a key twice": (
        "apiVersion: v1\nkind: Pod\nkind: Pod\n",
        "the key 'kind' stands twice in one map, again in line 3",
    ),
    "Helm, no YAML": (
        "{{- if .Values.x }}\nkind: Pod\n{{- end }}\n",
        "holds template expressions, the first in line 1: render it first",
    ),
    "Helm without quotes": ("kind: {{ .Values.kind }}\n", "kubectl kustomize FOLDER) and give the output"),
    "Jinja": ("{% if x %}\nkind: Pod\n{% endif %}\n", "render it first"),
    "a Python object": ("a: !!python/object/apply:os.system ['true']\n", "malformed YAML"),
    "binary": ("\x00\x01\x02\x03" * 50, "binary file"),
    "kustomize": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
        "kubectl kustomize",
    ),
    "deep": ("[" * 300 + "]" * 300 + "\n", "nested too deep"),
    "holds itself": ("a: &a [*a]\n", "aliases expand"),
    "no date": ("a: 2026-99-99\n", "a map of a"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_sentence(tmp_path, name):
    text, expected = BAD_FILES[name]
    said = refused(written(tmp_path, text))
    assert expected in said
    assert "render it first" not in said or said.endswith("and give the output")


def test_no_file_and_no_yaml_in_a_folder(tmp_path):
    assert "no such file or directory: check the path" in refused(tmp_path / "gone.yaml")
    assert "holds no YAML or JSON file" in refused(tmp_path)
    assert "standard input: is empty" in refused("-", stdin=b"")


def test_aliases_without_end_are_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    assert "aliases expand" in refused(written(tmp_path, "\n".join(lines)))


def test_large_files_and_folders_are_refused(tmp_path):
    path = written(tmp_path, "a: " + "x" * 5000)
    assert "larger than" in refused(path, limits=MANIFEST_LIMITS._replace(document=1000))
    assert "larger than" in refused(tmp_path, limits=MANIFEST_LIMITS._replace(total=1000))
    written(tmp_path, "a: 1", "y.yaml")
    assert "at most 1 are read" in refused(tmp_path, limits=MANIFEST_LIMITS._replace(members=1))


def test_merge_keys_and_anchors_are_no_duplicates(tmp_path):
    text = """
apiVersion: v1
kind: Pod
metadata: {name: x}
spec:
  containers:
    - &one
      name: vllm
      image: vllm/vllm-openai:v0.11.0
      resources: {limits: {nvidia.com/gpu: 1}}
    - <<: *one
      name: second
"""
    (pod,) = read_manifests(written(tmp_path, text), now=NOW)["pods"]
    assert [item["name"] for item in pod["containers"]] == ["vllm", "second"]


BAD_FIELDS = {
    "args is a text": (container(args="--model m/x"), "containers[0].args is a text, a list is needed"),
    "command is a map": (container(command={"a": 1}), "containers[0].command is a map, a list is needed"),
    "resources is a list": (container(resources=[1]), "containers[0].resources is a list, a map is needed"),
    "limits is a text": (
        container(resources={"limits": "8Gi"}),
        "resources.limits is a text, a map is needed",
    ),
    "a limit is a map": (
        container(resources={"limits": {"memory": {}}}),
        "limits.memory is a map, a quantity is needed",
    ),
    "env is a map": (container(env={"A": "1"}), "containers[0].env is a map, a list is needed"),
    "an env is a text": (container(env=["A=1"]), "containers[0].env[0] is a text, a map is needed"),
    "an argument is a list": (
        container(args=[["--model"]]),
        "containers[0].args[0] is a list, a text is needed",
    ),
    "an argument is empty": (container(args=[None]), "containers[0].args[0] is empty, a text is needed"),
    "a container is a text": ("vllm", "containers[0] is a text, a map is needed"),
    "a probe is a list": (container(startupProbe=[1]), "startupProbe is a list, a map is needed"),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_field_of_another_type_is_named(name):
    bad, expected = BAD_FIELDS[name]
    with pytest.raises(DocumentError) as caught:
        read(deployment(pod_spec(bad)))
    assert expected in str(caught.value)
    document = read(deployment(pod_spec(bad)), deployment(name="good"))
    assert [pod["name"] for pod in document["pods"]] == ["good"]
    assert expected in reasons(document)


@pytest.mark.parametrize("of", BY_TEMPLATE)
@pytest.mark.parametrize(
    "wrong", ["text", ["a"], 3, None, {"containers": "x"}, {"template": []}, {"predictor": [1]}]
)
def test_a_kind_whose_fields_are_anything_is_one_sentence(of, wrong):
    with pytest.raises(DocumentError) as caught:
        read(dict(made(of), spec=wrong))
    assert "\n" not in str(caught.value)


def test_what_the_api_refuses_is_read_and_named():
    engine = container(
        args=["--model", "m/x", "--max-model-len", 8192],
        env=[{"name": "A", "value": True}],
        resources={"limits": {"nvidia.com/gpu": 1, "memory": "64GB"}},
    )
    document = read(deployment(pod_spec(engine)))
    _pod, found = only(document)
    assert value(found, "max_model_len") == 8192
    assert "containers[0].args[3] is a number, and the API takes texts only: put it in quotes" in reasons(
        document
    )
    assert "containers[0].env[0].value is true or false" in reasons(document)
    assert "containers[0].resources.limits.memory is no Kubernetes quantity" in reasons(document)


def test_templates_in_an_object_that_parses():
    engine = container(image="vllm/vllm-openai:{{ .Values.tag }}")
    with pytest.raises(DocumentError, match="holds template expressions; needed: render it first"):
        read(deployment(pod_spec(engine)))


def test_a_chat_template_is_no_helm_template():
    engine = container(
        args=["--model", "m/x", "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}"]
    )
    assert len(read(deployment(pod_spec(engine)))["pods"]) == 1


def test_no_engine_says_what_was_found():
    with pytest.raises(DocumentError) as caught:
        read(deployment(pod_spec({"name": "web"}, {"name": "log"})), made("v1 Service", {"ports": []}))
    assert "no container runs vLLM; it holds Deployment/x (containers: web, log)" in str(caught.value)


def test_values_with_fields_of_another_type():
    with pytest.raises(DocumentError) as caught:
        read({"servingEngineSpec": {"modelSpec": "llama"}})
    assert "modelSpec is a text, a list is needed" in str(caught.value)


def test_a_file_without_permission(tmp_path):
    path = written(tmp_path, "a: 1")
    os.chmod(path, 0)
    with as_nobody():
        assert "no permission to read it" in refused(path)


def test_an_engine_without_a_gpu_of_its_own_stays():
    second = container(
        name="embed",
        command=["vllm", "serve", "m/embed"],
        args=[],
        resources={},
        env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    )
    (pod,) = read(deployment(pod_spec(container(command=["vllm", "serve"]), second, {"name": "web"})))["pods"]
    engines = {item["name"]: item for item in pod["containers"] if item["engine"]}
    assert sorted(engines) == ["embed", "vllm"]
    assert value(engines["embed"], "model") == "m/embed"
    assert pod["assumptions"] == [
        "container embed runs vLLM and asks for no GPU of its own: it shares those of the pod's other engine"
    ]


def test_arguments_beside_the_container_are_named():
    spec = pod_spec({"name": "vllm", "image": "vllm/vllm-openai:v0.11.0"}, args=["--model", "m/x"])
    with pytest.raises(DocumentError, match="containers: vllm; args stands beside 'containers'"):
        read(deployment(spec))
    spec = pod_spec(container(), env=[{"name": "A", "value": "1"}])
    assert "env stands beside 'containers'" in reasons(read(deployment(spec)))


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--model m/x --max-model-len 4096"], True),
        (["--model=m/x", "--max-model-len 4096"], True),
        (["--model=m/x --max-model-len 4096"], True),
        (["--model", "m/x", "--max-model-len", "4096"], False),
        (["--model=m/x", "--chat-template={{ a b }}", "--max-model-len=4096"], False),
    ],
)
def test_several_arguments_in_one_string_are_named(args, named):
    document = read(deployment(pod_spec(container(args=args))))
    _pod, engine = only(document)
    assert (value(engine, "model"), value(engine, "max_model_len")) == ("m/x", 4096)
    assert ("holds several words in one string, and vLLM refuses it" in reasons(document)) == named


def test_what_is_told_from_elsewhere_is_unresolved():
    engine = container(
        args=[
            "--model",
            "m/x",
            "--config",
            "/etc/x.yaml",
            "--max-model-len",
            "$(LEN)",
            "--max-num-seqs",
            "8",
        ],
        env=[{"name": "VLLM_USE_V1", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
    )
    _pod, found = only(read(deployment(pod_spec(engine))))
    assert found["unresolved"] == [
        "the --config file /etc/x.yaml isn't in these files",
        "VLLM_USE_V1 comes from configMap/c/k, which isn't in these files",
        "$(LEN) in --max-model-len isn't set",
    ]
    _pod, found = only(read(deployment()))
    assert found["unresolved"] == []
