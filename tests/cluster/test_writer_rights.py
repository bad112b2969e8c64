# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/examples/rbac-writer.yaml against a real API server: enough as it stands, and each missing right is named.

Real service accounts and real tokens; what they may do is decided by the API server's RBAC.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fake_engines import DEATHS, engine_spec
from harness import REMEDIATE, ROLLBACK, Audit, Kubectl, Runbook, wait_for
from manifests import ended, engine, http_probe, in_namespace, owner, pod_spec
from reader import READER, WRITER, Granted, granted, manifest, of_account
from testcluster import fleet
from testcluster.addresses import free_ports
from testcluster.cluster import Cluster

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    DocumentError,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import (
    access,
    pending,
    places,
    watch,
    writer,
)
from ansible_collections.vllm_runbook.oom.plugins.modules import serving_info

NAMESPACE = f"writes-{os.getpid()}"
NODE = f"fake-{NAMESPACE}"
DRY_RUN = "vllm-oom-dry-run"
# Kind -> its plural.
KINDS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
PATCH = {plural: (WRITER, "apps", plural) for plural in KINDS.values()}
PORT_FORWARD, CREATE_PODS = (WRITER, "", "pods/portforward"), (DRY_RUN, "", "pods")
# Any model starts, without the lines that need recorded figures.
LAWLESS = {"STANDIN_LAW": "off", "STANDIN_STEP": "0.1"}
CHANGE = {"engine_args": {"max_model_len": 4096}}

pytestmark = pytest.mark.ours


# --- the scene


def _workload(kind: str) -> dict:
    name = kind.lower()
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": engine_spec(DEATHS["weights"], NODE)}
    spec: dict = {"template": template, "selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "Deployment":
        spec["strategy"] = {"type": "Recreate"}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def scene(kubectl: Kubectl) -> Iterator[None]:
    """A workload of each kind of Kubernetes itself, on a node of its own."""
    kubectl("create", "namespace", NAMESPACE)
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s")
    kubectl.apply([fleet.node(NODE), *map(_workload, KINDS)])
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "node", NODE)


@pytest.fixture(scope="module")
def roles(kubectl: Kubectl, scene: None) -> Iterator[Granted]:
    """What the writer is granted: both manifests, as they stand."""
    objects = manifest(NAMESPACE) + manifest(NAMESPACE, "rbac-writer.yaml")
    with granted(kubectl, objects):
        whole = Granted(kubectl, NAMESPACE, objects, WRITER)
        whole.wait_until(True, "patch", "daemonsets", "apps")
        whole.wait_until(True, "list", "pods")
        yield whole


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster, kubectl: Kubectl, roles: Granted) -> dict:
    return of_account(cluster, kubectl, NAMESPACE, WRITER)


@pytest.fixture(scope="module")
def reads_only(cluster: Cluster, kubectl: Kubectl, roles: Granted) -> dict:
    return of_account(cluster, kubectl, NAMESPACE, READER)


def change(kubeconfig: Mapping, kind: str, check: bool = False, name: str | None = None, **options) -> dict:
    """What module ``workload`` does with these options as that user."""
    connected = access.connect({"kubeconfig": dict(kubeconfig)}, environ={})
    place = places.place_of("apps/v1", kind, options.pop("namespace", NAMESPACE), name or kind.lower())
    return writer.run(connected, place, {"state": "present", "lease": 180, **options}, check)


def refused(*arguments, **options) -> tuple[str, dict]:
    """The sentence with which it is refused, and what is known all the same."""
    with pytest.raises(DocumentError) as caught:
        change(*arguments, **options)
    return str(caught.value), getattr(caught.value, "result", {})


def unasked(result: dict) -> list[str]:
    """What could not be asked for want of rights."""
    return [text for text in result["warnings"] if "needs" in text]


def added(moment: str, seconds: int) -> str:
    """That time and so many seconds, as the API writes it."""
    later = datetime.datetime.fromisoformat(moment) + datetime.timedelta(seconds=seconds)
    return later.strftime("%Y-%m-%dT%H:%M:%SZ")


def live(kubectl: Kubectl, kind: str) -> dict:
    return kubectl.get(kind.lower(), kind.lower(), "-n", NAMESPACE)


def settled(kubectl: Kubectl, kind: str) -> dict:
    """The object once its controller has carried out what was asked for."""

    def look() -> dict | None:
        found = live(kubectl, kind)
        status, generation = found.get("status", {}), found["metadata"]["generation"]
        counts = [
            status.get(name, 0)
            for name in ("updatedReplicas", "updatedNumberScheduled", "readyReplicas", "numberReady")
        ]
        done = status.get("observedGeneration") == generation and sum(count >= 1 for count in counts) == 2
        return found if done and status.get("updateRevision") == status.get("currentRevision") else None

    return wait_for(f"{kind} is rolled out", look)


# --- with the manifest as it stands


def test_every_right_is_left_out_once(roles: Granted) -> None:
    assert roles.rights(WRITER, DRY_RUN) == {*PATCH.values(), PORT_FORWARD, CREATE_PODS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_is_enough(kind: str, kubectl: Kubectl, kubeconfig: dict, roles: Granted) -> None:
    """Tried, written, its mark prolonged and dropped, taken back."""
    roles.without()
    before = settled(kubectl, kind)
    tried = change(kubeconfig, kind, check=True, **CHANGE)
    assert (tried["mode"], tried["rights"]) == ("dry_run", {"allowed": True, "missing": []})
    assert unasked(tried) == []
    assert live(kubectl, kind)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    written = change(kubeconfig, kind, **CHANGE)
    assert (written["mode"], written["changed"]) == ("written", True)
    assert written["diff"] == tried["diff"]
    after = settled(kubectl, kind)
    assert "--max-model-len=4096" in after["spec"]["template"]["spec"]["containers"][0]["args"]
    place = places.place_of("apps/v1", kind, NAMESPACE, kind.lower())
    connected = access.connect({"kubeconfig": kubeconfig}, environ={})
    assert pending.keep(connected, place, written["run"], 600, connected.get(place.path)) is True
    mark = json.loads(connected.get(place.path)["metadata"]["annotations"][PENDING_ANNOTATION])
    assert mark["until"] > added(written["at"], 500)

    released = change(kubeconfig, kind, state="released", run=written["run"], verdict="served")
    assert released["record"]["verdict"] == "served"
    restored = change(kubeconfig, kind, state="restored")
    assert restored["mode"] == "written"
    assert settled(kubectl, kind)["spec"] == before["spec"]


def test_it_asks_for_nothing_beyond_its_rights(
    kubectl: Kubectl, kubeconfig: dict, roles: Granted, audit: Audit
) -> None:
    roles.without()
    settled(kubectl, "StatefulSet")
    mark = audit.mark()
    written = change(kubeconfig, "StatefulSet", **CHANGE)
    change(kubeconfig, "StatefulSet", state="restored", run=written["run"])
    settled(kubectl, "StatefulSet")
    asked = audit.since(mark)
    # 409: the object's status moved between reading and writing it, and it is read again.
    assert {entry["responseStatus"]["code"] for entry in asked} <= {200, 201, 409}
    verbs = {(entry["verb"], entry["objectRef"]["resource"]) for entry in asked if "objectRef" in entry}
    assert ("patch", "statefulsets") in verbs
    assert {verb for verb, _resource in verbs} <= {"get", "list", "patch", "create"}
    # The only thing that it creates is a pod that never becomes one.
    created = [
        entry for entry in asked if entry["verb"] == "create" and entry["objectRef"]["resource"] == "pods"
    ]
    assert created
    assert all("dryRun=All" in entry["requestURI"] for entry in created)


# --- with a part of it


@pytest.mark.parametrize("kind", KINDS)
def test_without_patch_nothing_is_written_and_the_difference_is_labelled(
    kind: str, kubectl: Kubectl, kubeconfig: dict, roles: Granted
) -> None:
    plural = KINDS[kind]
    needs = f"patch {plural}.apps in namespace {NAMESPACE}"
    roles.without()
    before = settled(kubectl, kind)
    asked = change(kubeconfig, kind, check=True, **CHANGE)
    roles.without(PATCH[plural])
    shown = change(kubeconfig, kind, check=True, **CHANGE)
    assert (shown["mode"], shown["rights"]) == ("client_side", {"allowed": False, "missing": [needs]})
    assert "wasn't asked" in shown["sentence"]
    # It is the difference that the API server computes.
    assert shown["diff"] == asked["diff"]
    assert shown["patch"] == asked["patch"]
    sentence, known = refused(kubeconfig, kind, **CHANGE)
    assert sentence == f"{kind}/{kind.lower()} can't be changed; needs: {needs}"
    assert known["rights"] == {"allowed": False, "missing": [needs]}
    assert known["patch"] == asked["patch"]
    assert live(kubectl, kind)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_without_creating_pods_quotas_are_not_asked_and_it_is_said(
    kubectl: Kubectl, kubeconfig: dict, roles: Granted
) -> None:
    needs = f"create pods in namespace {NAMESPACE}"
    roles.without(CREATE_PODS)
    before = settled(kubectl, "StatefulSet")
    tried = change(kubeconfig, "StatefulSet", check=True, **CHANGE)
    assert (tried["mode"], tried["rights"]) == ("dry_run", {"allowed": True, "missing": [needs]})
    assert unasked(tried) == [
        f"whether quotas, limit ranges and policies let its pods in was not asked: needs {needs}"
    ]
    written = change(kubeconfig, "StatefulSet", **CHANGE)
    assert (written["mode"], unasked(written)) == ("written", unasked(tried))
    change(kubeconfig, "StatefulSet", state="restored", run=written["run"])
    assert settled(kubectl, "StatefulSet")["spec"] == before["spec"]


def test_with_creating_pods_a_quota_speaks_before_the_rollout(
    kubectl: Kubectl, kubeconfig: dict, roles: Granted
) -> None:
    roles.without()
    before = settled(kubectl, "DaemonSet")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": NAMESPACE},
        "spec": {"hard": {"limits.memory": "80Gi"}},
    }
    kubectl.apply([quota])
    wait_for(
        "the quota is counted",
        lambda: kubectl.get("quota", "small", "-n", NAMESPACE).get("status", {}).get("used"),
    )
    more = {"resources": {"limits": {"memory": "64Gi"}}}
    try:
        for check in (True, False):
            sentence, _known = refused(kubeconfig, "DaemonSet", check=check, **more)
            assert sentence.startswith(
                "ResourceQuota small would refuse its pods (limits.memory: a pod asks for 64Gi"
            )
    finally:
        kubectl("delete", "quota", "small", "-n", NAMESPACE)
    assert live(kubectl, "DaemonSet")["metadata"]["generation"] == before["metadata"]["generation"]


def test_a_rule_for_one_object_holds_for_that_one(kubectl: Kubectl, kubeconfig: dict, roles: Granted) -> None:
    """As the manifest's comment says it."""
    named = copy.deepcopy(roles.objects)
    for item in named:
        for rule in item.get("rules", ()):
            if "patch" in rule["verbs"]:
                rule["resourceNames"] = ["statefulset", "another"]
    roles.without()
    kubectl.apply(named)
    try:
        roles.wait_until(False, "patch", "deployments", "apps")
        assert change(kubeconfig, "StatefulSet", check=True, **CHANGE)["mode"] == "dry_run"
        assert change(kubeconfig, "Deployment", check=True, **CHANGE)["mode"] == "client_side"
    finally:
        kubectl.apply(roles.objects)
        roles.wait_until(True, "patch", "deployments", "apps")


# --- asking the engine


@pytest.fixture(scope="module")
def engine_that_serves(kubectl: Kubectl, scene: None) -> str:
    """The name of a Deployment whose engine really runs and answers."""
    port = free_ports(1)[0]
    container = engine(
        "Qwen/Qwen3-0.6B",
        port=port,
        env=LAWLESS,
        readinessProbe=http_probe(port),
    )
    kubectl.apply(in_namespace([owner("Deployment", "serves", pod_spec(container))], NAMESPACE))
    kubectl("rollout", "status", "deployment/serves", "-n", NAMESPACE, "--timeout=60s")
    return "serves"


def verdict(kubeconfig: Mapping, name: str) -> dict:
    """What module ``serving_info`` returns, as that user."""
    connected = access.connect({"kubeconfig": dict(kubeconfig)}, environ={})
    place = places.place_of("apps/v1", "Deployment", NAMESPACE, name)
    options = {key: item.get("default") for key, item in serving_info.argument_spec().items()}
    query = serving_info.query_of({**options, "kind": "Deployment", "name": name, "wait": 20.0})
    return watch.watch(connected, place, query)


@pytest.mark.kubelet
def test_the_engine_is_asked_with_the_manifest_as_it_stands(
    kubeconfig: dict, roles: Granted, engine_that_serves: str
) -> None:
    roles.without()
    serving = verdict(kubeconfig, engine_that_serves)
    assert (serving["verdict"], serving["verifiable"]) == ("served", True), serving
    assert serving["engine"]["by"] == "port_forward"


@pytest.mark.kubelet
def test_without_port_forward_the_engine_cannot_be_asked_and_that_is_no_failure(
    kubectl: Kubectl, kubeconfig: dict, roles: Granted, engine_that_serves: str
) -> None:
    roles.without(PORT_FORWARD)
    serving = verdict(kubeconfig, engine_that_serves)
    assert (serving["verdict"], serving["verifiable"]) == ("starts", False), serving
    assert f"needs get and create pods/portforward in namespace {NAMESPACE}" in serving["why"]


@pytest.mark.kubelet
def test_the_proxy_is_enough_for_a_server_without_a_key(
    kubectl: Kubectl, kubeconfig: dict, roles: Granted, engine_that_serves: str
) -> None:
    """What the manifest offers in the place of port-forward."""
    changed = copy.deepcopy(roles.objects)
    for item in changed:
        for rule in item.get("rules", ()):
            rule["resources"] = [
                "pods/proxy" if name == "pods/portforward" else name for name in rule["resources"]
            ]
    roles.without()
    kubectl.apply(changed)
    try:
        roles.wait_until(True, "create", "pods/proxy")
        serving = verdict(kubeconfig, engine_that_serves)
        assert (serving["verdict"], serving["engine"]["by"]) == ("served", "proxy"), serving
    finally:
        kubectl.apply(roles.objects)
        roles.wait_until(True, "create", "pods/portforward")


# --- as somebody else


def test_the_reader_writes_nothing_and_sees_the_difference(
    kubectl: Kubectl, reads_only: dict, roles: Granted
) -> None:
    roles.without()
    before = settled(kubectl, "Deployment")
    shown = change(reads_only, "Deployment", check=True, **CHANGE)
    missing = [f"patch deployments.apps in namespace {NAMESPACE}", f"create pods in namespace {NAMESPACE}"]
    assert (shown["mode"], shown["rights"]) == ("client_side", {"allowed": False, "missing": missing})
    assert shown["diff"]["before"] != shown["diff"]["after"]
    sentence, _known = refused(reads_only, "Deployment", **CHANGE)
    assert sentence == f"Deployment/deployment can't be changed; needs: {missing[0]}"
    assert live(kubectl, "Deployment")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_the_reader_takes_nothing_back(
    kubectl: Kubectl, kubeconfig: dict, reads_only: dict, roles: Granted
) -> None:
    roles.without()
    before = settled(kubectl, "Deployment")
    written = change(kubeconfig, "Deployment", lease=0, **CHANGE)
    settled(kubectl, "Deployment")
    shown = change(reads_only, "Deployment", check=True, state="restored")
    assert shown["mode"] == "client_side"
    # The difference, the other way round.
    assert (shown["diff"]["before"], shown["diff"]["after"]) == (
        written["diff"]["after"],
        written["diff"]["before"],
    )
    sentence, _known = refused(reads_only, "Deployment", state="restored")
    assert sentence.endswith(f"needs: patch deployments.apps in namespace {NAMESPACE}")
    change(kubeconfig, "Deployment", state="restored")
    assert settled(kubectl, "Deployment")["spec"] == before["spec"]


def test_other_namespaces_are_refused_by_name(kubeconfig: dict, roles: Granted) -> None:
    sentence, _known = refused(kubeconfig, "Deployment", namespace="kube-system", name="coredns", **CHANGE)
    assert sentence.endswith("needs: get deployments.apps in namespace kube-system")


def test_secrets_are_out_of_reach(kubectl: Kubectl, kubeconfig: dict, roles: Granted) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": roles.user,
            "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": NAMESPACE},
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["allowed"] is False


# --- the playbooks


@pytest.fixture(scope="module")
def dies(kubectl: Kubectl, scene: None) -> str:
    """The name of a Deployment whose engine's memory limit is too low to load."""
    port = free_ports(1)[0]
    container = engine(
        "Qwen/Qwen3-0.6B",
        "--max-model-len",
        "4096",
        deaths="host_oom:160",
        memory="96Mi",
        port=port,
        env=LAWLESS,
        readinessProbe=http_probe(port),
    )
    kubectl.apply(in_namespace([owner("Deployment", "dies", pod_spec(container))], NAMESPACE))
    killed = ended(reason="OOMKilled")
    wait_for("it is killed", lambda: killed(kubectl.items("pods", "-n", NAMESPACE, "-l", "app=dies")))
    return "dies"


def _file(kubeconfig: dict, folder: Path) -> Path:
    path = folder / "account.conf"
    path.write_text(json.dumps(kubeconfig))
    return path


@pytest.mark.kubelet
def test_the_playbook_shows_the_reader_what_would_be_written(
    runbook: Runbook, kubectl: Kubectl, reads_only: dict, roles: Granted, dies: str, tmp_path: Path
) -> None:
    roles.without()
    before = kubectl.get("deployment", dies, "-n", NAMESPACE)
    named = {"namespace": NAMESPACE, "selector": f"app={dies}", "max_memory": "12Gi", "apply": True}
    run = runbook(
        playbook=REMEDIATE, kubeconfig=_file(reads_only, tmp_path), options=["--check", "--diff"], **named
    )
    printed = " ".join(run.output.split())
    assert "-spec.template.spec.containers[vllm].resources.limits.memory: 96Mi" in printed
    assert "not written: computed here, the API server wasn't asked" in printed
    assert f"patch deployments.apps in namespace {NAMESPACE}" in printed
    refused = runbook(playbook=REMEDIATE, kubeconfig=_file(reads_only, tmp_path), rc=2, **named)
    assert f"needs: patch deployments.apps in namespace {NAMESPACE}" in " ".join(refused.output.split())
    assert "Traceback" not in refused.output
    after = kubectl.get("deployment", dies, "-n", NAMESPACE)
    assert (after["spec"], after["metadata"].get("annotations")) == (
        before["spec"],
        before["metadata"].get("annotations"),
    )


@pytest.mark.kubelet
def test_the_playbooks_change_verify_and_take_back_with_the_writers_token(
    runbook: Runbook, kubectl: Kubectl, kubeconfig: dict, roles: Granted, dies: str, tmp_path: Path
) -> None:
    roles.without()
    before = kubectl.get("deployment", dies, "-n", NAMESPACE)
    named = {"namespace": NAMESPACE, "kubeconfig": _file(kubeconfig, tmp_path)}
    run = runbook(playbook=REMEDIATE, selector=f"app={dies}", max_memory="12Gi", apply=True, **named)
    assert run.became(dies)["verdict"] == "served", run.output
    # A log that the kubelet has just removed is no right that is missing.
    unread = [
        entry for entry in run.evidence["unreadable"] if "the node no longer has it" not in entry["reason"]
    ]
    assert unread == []
    back = runbook(playbook=ROLLBACK, workload=f"deployment/{dies}", **named)
    assert back.became(dies)["verdict"] == "undone", back.output
    assert kubectl.get("deployment", dies, "-n", NAMESPACE)["spec"] == before["spec"]
