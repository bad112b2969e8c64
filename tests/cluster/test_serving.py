# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""serving_info and role verify: rollouts that end, that can't get on, and engines that are asked in every way."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import api_server_stopped, run_environment, wait_for
from manifests import STATE, busybox, counted, engine, http_probe, in_namespace, owner, pod_spec, ready
from reader import as_user
from testcluster import ROOT, kinds
from testcluster.addresses import free_ports

from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import access, places, progress, watch
from ansible_collections.vllm_runbook.oom.plugins.modules.serving_info import argument_spec, query_of

pytestmark = pytest.mark.kubelet

OFF = {"STANDIN_LAW": "off", "STANDIN_STEP": "0.05"}
KEY = "sk-never-shown-8f2c"
PATIENCE_S = 90.0


class Engines:
    """Puts engines into a namespace and asks what serving_info says of them."""

    def __init__(self, cluster, kubectl, namespace):
        self.cluster = cluster
        self.kubectl = kubectl
        self.namespace = namespace
        self.port = free_ports(1)[0]

    def engine(self, *arguments, deaths="none", env=None, probe=True, **fields):
        container = engine(
            *(arguments or ("m",)), deaths=deaths, port=self.port, env={**OFF, **(env or {})}, **fields
        )
        if probe:
            container["readinessProbe"] = http_probe(self.port)
        return container

    def apply(self, *objects):
        self.kubectl.apply(in_namespace(objects, self.namespace))

    def start(self, container, kind="Deployment", name="llama", spec=None, **fields):
        """Write the owner of that engine, and wait until its controller has seen it."""
        made = owner(kind, name, {**pod_spec(container), **(spec or {})}, **fields)
        self.apply(made)
        return made

    def seen(
        self, kind="Deployment", name="llama", *, key=None, kubeconfig=None, api_version=None, **options
    ):
        access_to = kubeconfig or json.loads(self.cluster.kubeconfig.read_text())
        writer = access.connect({"kubeconfig": access_to}, environ={})
        params = {option: spec.get("default") for option, spec in argument_spec().items()}
        query = query_of({"wait": PATIENCE_S, **{k: v for k, v in params.items() if k != "wait"}, **options})
        place = places.place_of(api_version, kind, self.namespace, name)
        return watch.watch(writer, place, query, key)

    def pods(self):
        return self.kubectl.items("pods", "-n", self.namespace)

    def wait_until_ready(self, count=1):
        return wait_for("ready pods", lambda: ready(count)(self.pods()) and self.pods(), PATIENCE_S)


@pytest.fixture
def engines(cluster, kubectl, namespace):
    return Engines(cluster, kubectl, namespace)


# -- engines that serve


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_token_is_served(engines, kind):
    engines.apply(
        daemon_set(engines) if kind == "DaemonSet" else owner(kind, "llama", pod_spec(engines.engine()))
    )
    serving = engines.seen(kind)
    assert (serving["verdict"], serving["verifiable"], serving["problems"]) == ("served", True, [])
    assert serving["rollout"] | {"sentence": ""} == {
        "finished": True, "desired": 1, "updated": 1, "ready": 1, "old": 0, "to_delete": [], "sentence": "",
    }  # fmt: skip
    told = serving["engine"]
    assert (told["by"], told["task"], told["tokens"], told["models"]) == (
        "port_forward",
        "completion",
        1,
        ["m"],
    )


def daemon_set(engines):
    made = owner("DaemonSet", "llama", pod_spec(engines.engine()))
    del made["spec"]["replicas"]
    return made


VERSIONS = ("0.13.0", "0.19.1")
MODELS = (
    (("m", "--task", "embed"), "embed"),
    (("m", "--convert", "classify"), "classify"),
    (("m", "--task", "score"), "score"),
    (("m", "--convert", "reward"), "pool"),
    # Nothing tells these but the server.
    (("openai/whisper-large-v3",), "transcribe"),
    (("Qwen/Qwen3-Embedding-8B",), "embed"),
)


@pytest.fixture(scope="module")
def models(cluster, kubectl):
    """``{(version, index of MODELS): (Engines, name)}``: one engine for each, started together."""
    place = f"models-{os.getpid()}"
    kubectl("create", "namespace", place)
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", place, "--timeout=30s")
    started = {}
    for version in VERSIONS:
        for index, (arguments, _task) in enumerate(MODELS):
            engines, name = Engines(cluster, kubectl, place), f"v{version.replace('.', '-')}-{index}"
            engines.start(engines.engine(*arguments, version=version), name=name)
            started[version, index] = (engines, name)
    yield started
    kubectl("delete", "namespace", place, "--wait=false")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", range(len(MODELS)))
def test_each_kind_of_model_gets_its_own_request(models, version, index):
    engines, name = models[version, index]
    serving = engines.seen(name=name)
    assert (serving["verdict"], serving["engine"]["task"]) == ("served", MODELS[index][1]), serving


def test_an_engine_without_probes_is_waited_for_until_it_listens(engines):
    engines.start(engines.engine(probe=False, deaths="slow:4"))
    engines.wait_until_ready()
    first = engines.seen(wait=0)
    assert not first["decided"], "Kubernetes calls it ready, and it still loads"
    assert "nothing answers" in first["problems"][0]
    assert engines.seen()["verdict"] == "served"


def test_more_requests_are_a_wish(engines):
    engines.start(engines.engine())
    assert engines.seen(requests=1)["engine"]["requests"] == 1
    told = engines.seen(requests=20)["engine"]
    assert (told["answered"], told["requests"], told["tokens"]) == (True, 20, 20)


# -- keys and certificates


def test_a_key_is_used_and_in_no_output(engines, cluster, tmp_path):
    engines.start(engines.engine("m", "--api-key", KEY))
    serving = engines.seen(key=KEY)
    assert serving["verdict"] == "served"
    assert KEY not in json.dumps(serving)
    without = engines.seen()
    assert (without["verdict"], without["verifiable"]) == ("starts", False)
    assert "VLLM_OOM_API_KEY" in without["why"]
    wrong = engines.seen(key="sk-wrong")
    assert (wrong["verdict"], wrong["verifiable"]) == ("starts", False)
    assert "refuses the key" in wrong["why"]
    done = verify(cluster, tmp_path, engines.namespace, "-vvv", environment={"VLLM_OOM_API_KEY": KEY})
    assert done["outcome"]["verdict"] == "served", done["printed"]
    assert KEY not in done["printed"]


def test_https_with_a_certificate_of_its_own(engines, kubectl, namespace, tmp_path):
    for arguments in (("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=nobody", "-keyout", "key.pem", "-out", "cert.pem"),):  # fmt: skip
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)
    kubectl("create", "secret", "generic", "tls", f"--from-file={tmp_path}", "-n", namespace)
    container = engines.engine(
        "m", "--ssl-keyfile", "/tls/key.pem", "--ssl-certfile=/tls/cert.pem", probe=False
    )
    container["volumeMounts"] = [{"name": "tls", "mountPath": "/tls"}]
    engines.start(container, spec={"volumes": [{"name": "tls", "secret": {"secretName": "tls"}}]})
    serving = engines.seen()
    assert (serving["verdict"], serving["engine"]["tls"], serving["engine"]["by"]) == (
        "served",
        True,
        "port_forward",
    )


# -- what can't be asked from here


def test_a_prefill_pod_is_healthy_and_not_asked(engines):
    transfer = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_producer"})
    engines.start(engines.engine("m", "--kv-transfer-config", transfer))
    serving = engines.seen()
    assert (serving["verdict"], serving["verifiable"], serving["engine"]["health"]) == ("starts", False, True)
    assert "kv_producer" in serving["why"]
    assert serving["engine"]["requests"] == 0


def test_a_rank_without_a_server_is_not_asked(engines):
    engines.start(engines.engine("m", "--headless", probe=False))
    engines.wait_until_ready()
    serving = engines.seen()
    assert (serving["verdict"], serving["verifiable"], serving["engine"]) == ("starts", False, None)
    assert "headless" in serving["why"]


def rights(name, namespace, *rules):
    """A service account of the namespace with these rules."""
    place = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": place,
            "rules": list(rules),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


LOOK = (
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["get", "list"]},
)


def test_rights_decide_the_way(engines, cluster, kubectl, namespace):
    engines.start(engines.engine())
    assert engines.seen()["verdict"] == "served"
    ways = {"reader": "", "proxied": "pods/proxy", "forwarded": "pods/portforward"}
    seen = {}
    for name, resource in ways.items():
        more = [{"apiGroups": [""], "resources": [resource], "verbs": ["get", "create"]}] if resource else []
        engines.apply(*rights(name, namespace, *LOOK, *more))
        token = kubectl("create", "token", name, "-n", namespace).strip()
        seen[name] = engines.seen(kubeconfig=as_user(cluster, {"token": token}, namespace))
    assert (seen["reader"]["verdict"], seen["reader"]["verifiable"]) == ("starts", False)
    assert "pods/portforward" in seen["reader"]["why"]
    assert "pods/proxy" in seen["reader"]["why"]
    for name, by in (("proxied", "proxy"), ("forwarded", "port_forward")):
        assert (seen[name]["verdict"], seen[name]["engine"]["by"]) == ("served", by), seen[name]


def test_a_key_is_never_sent_through_the_proxy(engines, cluster, kubectl, namespace):
    engines.start(engines.engine("m", "--api-key", KEY))
    engines.wait_until_ready()
    proxied = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get", "create"]}
    engines.apply(*rights("proxied", namespace, *LOOK, proxied))
    token = kubectl("create", "token", "proxied", "-n", namespace).strip()
    serving = engines.seen(key=KEY, kubeconfig=as_user(cluster, {"token": token}, namespace))
    assert (serving["verdict"], serving["verifiable"], serving["engine"]["by"]) == ("starts", False, None)


# -- rollouts that can't get on


def failed(engines, *words, kind="Deployment", **options):
    serving = engines.seen(kind, **options)
    assert (serving["decided"], serving["verdict"]) == (True, "failed"), serving
    for word in words:
        assert word in serving["why"], serving
    return serving


def test_a_death_decides_at_once(engines):
    engines.start(counted(engines.engine(deaths="exit:3,none")), spec={"volumes": STATE})
    since = engines.seen(wait=0)["at"]
    serving = failed(engines, "exit code 3", since="2020-01-01T00:00:00Z")
    engines.wait_until_ready()
    # One restart, and well since: still the death of a new pod; for who doesn't know of a change it serves.
    failed(engines, "exit code 3", since="2020-01-01T00:00:00Z")
    assert engines.seen()["verdict"] == "served"
    restarts = engines.seen()["restarts"]
    assert list(restarts.values()) == [1]
    assert engines.seen(since=since, baseline=restarts)["verdict"] == "served"
    assert serving["pods"][0]["name"] in serving["why"]


def test_an_image_that_is_not_there(engines):
    container = dict(engines.engine(), image="docker.io/vllm/vllm-openai:v0.99", imagePullPolicy="Never")
    engines.start(container)
    failed(engines, "ErrImageNeverPull")


@pytest.fixture
def impatient(monkeypatch):
    """What may only have to wait is called hopeless sooner; how long that really takes is told by the unit tests."""
    monkeypatch.setattr(progress, "PATIENCE_S", 4.0)


def test_no_gpu_to_spare_beside_the_old_pod(engines, impatient):
    one_surge = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    engines.start(engines.engine(gpus=40), strategy=one_surge)
    assert engines.seen()["verdict"] == "served"
    engines.start(engines.engine("m", "--max-model-len", "4096", gpus=40), strategy=one_surge)
    serving = failed(engines, "finds no node", "nvidia.com/gpu")
    assert serving["rollout"]["old"] == 1


def test_a_quota_that_refuses(engines, impatient):
    engines.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"pods": "0"}},
        }
    )
    engines.start(engines.engine())
    engines.start(engines.engine(), kind="StatefulSet", name="other")
    failed(engines, "refused", "exceeded quota")
    failed(engines, "refused", "exceeded quota", kind="StatefulSet", name="other")


def test_a_paused_rollout(engines):
    engines.start(engines.engine(), paused=True)
    failed(engines, "paused")


def test_nothing_is_asked_of_no_pods(engines):
    engines.start(engines.engine(), replicas=0)
    serving = engines.seen()
    assert (serving["decided"], serving["verdict"], serving["verifiable"]) == (True, None, False)


def test_on_delete_says_what_to_delete(engines):
    manual = {"updateStrategy": {"type": "OnDelete"}}
    engines.start(engines.engine(), kind="StatefulSet", **manual)
    assert engines.seen("StatefulSet")["verdict"] == "served"
    engines.start(engines.engine("m", "--seed", "1"), kind="StatefulSet", **manual)
    serving = wait_for("the new revision", lambda: by_hand(engines))
    assert (serving["verdict"], serving["verifiable"]) == (None, False)
    engines.kubectl("delete", "pod", "llama-0", "-n", engines.namespace)
    assert engines.seen("StatefulSet")["verdict"] == "served"


def by_hand(engines):
    serving = engines.seen("StatefulSet", wait=0)
    return serving if "kubectl delete pod llama-0" in (serving["why"] or "") else None


def test_a_statefulset_that_waits_for_its_broken_pod_is_named(engines):
    ordered = {"podManagementPolicy": "OrderedReady"}
    engines.start(engines.engine(deaths="exit:1"), kind="StatefulSet", **ordered)
    assert engines.seen("StatefulSet")["verdict"] == "failed"
    engines.start(engines.engine("m", "--seed", "1"), kind="StatefulSet", **ordered)
    generation = engines.kubectl.get("statefulset/llama", "-n", engines.namespace)["metadata"]["generation"]
    serving = failed(engines, "kubectl delete pod llama-0", kind="StatefulSet", generation=generation)
    assert serving["rollout"]["to_delete"] == ["llama-0"]
    engines.kubectl("delete", "pod", "llama-0", "-n", engines.namespace)
    assert engines.seen("StatefulSet", generation=generation)["verdict"] == "served"


def test_what_happens_around_it_is_named_and_waited_for(engines, kubectl):
    engines.start(engines.engine())
    before = engines.seen()
    assert before["verdict"] == "served"
    pod = before["pods"][0]
    node = pod["node"]
    kubectl("cordon", node)
    try:
        cordoned = engines.seen(hold=True, wait=0)
        assert f"node {node} of pod {pod['name']} is cordoned" in cordoned["problems"]
        assert not cordoned["decided"]
    finally:
        kubectl("uncordon", node)
    kubectl("delete", "pod", pod["name"], "-n", engines.namespace, "--wait=true")
    after = engines.seen(baseline=before["restarts"])
    assert (after["verdict"], after["problems"]) == (
        "served",
        ["a pod that was there is gone: deleted by somebody"],
    )


@pytest.mark.ours
def test_an_api_server_that_is_restarted_is_waited_for(engines, cluster):
    engines.start(engines.engine(deaths="slow:12"))
    with ThreadPoolExecutor() as pool:
        watching = pool.submit(engines.seen, seen="", wait=PATIENCE_S)
        time.sleep(3)
        with api_server_stopped(cluster):
            time.sleep(3)
        assert watching.result()["verdict"] != "failed"
    assert engines.seen()["verdict"] == "served"


def test_a_kind_of_another_maker_goes_by_the_pods_made_since(engines, kubectl, namespace):
    """The test plays the operator: it owns a Deployment, and changes it."""
    parent = {
        "apiVersion": "production-stack.vllm.ai/v1alpha1",
        "kind": "VLLMRuntime",
        "metadata": {"name": "llama", "namespace": namespace},
        "spec": {},
    }
    kinds.install(kubectl)
    kubectl.apply([parent])
    made = kubectl.get("vllmruntimes.production-stack.vllm.ai/llama", "-n", namespace)
    reference = {key: parent[key] for key in ("apiVersion", "kind")} | {
        "name": "llama", "uid": made["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    child = owner("Deployment", "llama", pod_spec(engines.engine()), strategy={"type": "Recreate"})
    child["metadata"]["ownerReferences"] = [reference]
    engines.apply(child)
    runtime = {"kind": "VLLMRuntime", "api_version": "production-stack.vllm.ai/v1alpha1"}
    serving = engines.seen(**runtime)
    assert serving["verdict"] == "served"
    since = serving["at"]
    waiting = engines.seen(**runtime, since=later(since), wait=0)
    assert not waiting["decided"], "the operator has done nothing yet"
    changed = copy.deepcopy(child)
    changed["spec"]["template"]["spec"]["containers"][0]["args"] += ["--seed", "1"]
    engines.apply(changed)
    assert engines.seen(**runtime, since=since)["verdict"] == "served"


def later(moment):
    """One second after a time of the API."""
    import datetime

    return (datetime.datetime.fromisoformat(moment) + datetime.timedelta(seconds=1)).isoformat()


# -- the role


def verify(cluster, folder: Path, namespace, *arguments, environment=None, **variables):
    """Run role verify on Deployment/llama: ``{outcome, printed}``."""
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "tasks": [
                {"ansible.builtin.include_role": {"name": "vllm_runbook.oom.verify"}},
                {"ansible.builtin.copy": {"dest": str(folder / "outcome.json"), "content": "{{ verify_outcome | to_json }}", "mode": "0600"}},
            ],
        }
    ]  # fmt: skip
    (folder / "play.yml").write_text(json.dumps(play))
    given = {"verify_namespace": namespace, "verify_kind": "Deployment", "verify_name": "llama", **variables}
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            folder / "play.yml",
            "-e",
            json.dumps(given),
            *arguments,
        ],
        cwd=ROOT,
        env=run_environment(cluster.kubeconfig, **(environment or {})),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        "outcome": json.loads((folder / "outcome.json").read_text()),
        "printed": done.stdout + done.stderr,
    }


# What the role is asked about, by the part of a namespace's name: options of the engine, variables of the role.
SERVING_CAUSE = {"verify_causes": ["serving_gpu_oom"]}
DIES_AFTER_ITS_ANSWER = {"deaths": "cuda_oom@serving", "env": {"STANDIN_SERVING_REQUESTS": "1"}}
ASKED = {
    "loads": ({"deaths": "slow:10"}, {}),
    "soaked": ({}, {**SERVING_CAUSE, "verify_soak": "8s"}),
    "at-once": ({}, {"verify_causes": ["kv_max_len"], "verify_soak": "300s"}),
    "dies": (DIES_AFTER_ITS_ANSWER, {**SERVING_CAUSE, "verify_soak": "300s"}),
    "hangs": ({"deaths": "hang"}, {"verify_timeout": "15"}),
}


@pytest.fixture(scope="module")
def asked(cluster, kubectl, tmp_path_factory):
    """What the role said of each, some at a time: they mostly wait."""

    def ask(name):
        place = f"verify-{name}-{os.getpid()}"
        kubectl("create", "namespace", place)
        kubectl("wait", "--for=create", "serviceaccount/default", "-n", place, "--timeout=30s")
        try:
            engines = Engines(cluster, kubectl, place)
            options, variables = ASKED[name]
            engines.start(engines.engine(**options))
            return verify(cluster, tmp_path_factory.mktemp(name), place, **variables)
        finally:
            kubectl("delete", "namespace", place, "--wait=false")

    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(ask, name) for name in ASKED}


def test_the_role_shows_how_far_it_is(asked):
    done = asked["loads"].result()
    assert (done["outcome"]["verdict"], done["outcome"]["verifiable"]) == ("served", True)
    assert "loads the model" in done["printed"]
    assert done["printed"].count("TASK [") < 20


def test_a_serving_cause_is_held_only_after_the_soak(asked):
    held = asked["soaked"].result()["outcome"]
    assert held["verdict"] == "held"
    assert held["seconds"] >= 8
    served = asked["at-once"].result()["outcome"]
    assert served["verdict"] == "served"
    assert served["seconds"] < 300


def test_a_death_within_the_soak_is_a_failure(asked):
    outcome = asked["dies"].result()["outcome"]
    assert outcome["verdict"] == "failed"
    assert "served before" in outcome["sentence"]


def test_everything_ends_by_the_timeout(asked):
    outcome = asked["hangs"].result()["outcome"]
    assert outcome["verdict"] == "failed"
    assert "not decided within" in outcome["sentence"]
    assert outcome["seconds"] < 60


def test_a_sidecar_that_ends_is_no_death_of_the_engine(engines):
    engines.start(
        engines.engine(), spec={"containers": [engines.engine(), busybox("side", "sleep 2; exit 1")]}
    )
    serving = wait_for("served", lambda: (s := engines.seen(wait=20.0))["verdict"] == "served" and s, 60)
    assert serving["restarts"]
