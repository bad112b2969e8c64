# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose pod it is: every deployer's owner chain, read from a real API server in one run of the runbook.

The chains and what is right about each: kinds.yaml. The operators aren't there: their objects are made with the owner
references that they would write. Where Kubernetes' own controllers work (ReplicaSets, Jobs, revisions, pods), they do.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml
from harness import Kubectl, Run, Runbook, wait_for
from in_process import connect, read
from reader import as_user
from testcluster import HOME, fleet, kinds
from testcluster.cluster import Cluster, ForeignCluster

# It installs CRDs: in somebody's own cluster they may be there, with operators behind them.
pytestmark = pytest.mark.ours

ROWS = {row["name"]: row for row in yaml.safe_load((HOME / "kinds.yaml").read_text())}
# A node without a kubelet: what is bound to it stays as the test writes it.
NODE = f"silent-{os.getpid()}"
ARGS = ("serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192")


# -- objects ------------------------------------------------------------------------------------------------

RESOURCES = MappingProxyType(
    {"requests": {"memory": "16Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"}}
)


def pod_template(
    chain: str,
    *,
    container: str = "vllm",
    labels: Mapping = MappingProxyType({}),
    annotations: Mapping = MappingProxyType({}),
    args: Iterable[str] = ARGS,
    env: Mapping = MappingProxyType({}),
    resources: Mapping = RESOURCES,
    finalizers: Iterable[str] = (),
) -> dict:
    """metadata and spec of an engine pod of ``chain``."""
    return {
        "metadata": {
            "labels": {"chain": chain, **labels},
            "annotations": dict(annotations),
            **({"finalizers": list(finalizers)} if finalizers else {}),
        },
        "spec": {
            "nodeName": NODE,
            "tolerations": [{"operator": "Exists"}],
            # Nobody is there to end it gracefully.
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": container,
                    "image": "vllm/vllm-openai:v0.19.1",
                    "command": ["vllm"],
                    "args": list(args),
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                    "resources": dict(resources),
                }
            ],
        },
    }


def controlled_spec(kind: str, name: str, template: dict) -> dict | None:
    """The spec of a kind whose pods Kubernetes' own controllers make; None for all others."""
    if kind in ("Job", "CronJob"):
        template = {**template, "spec": {**template["spec"], "restartPolicy": "OnFailure"}}
        job = {"template": template}
        once = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}}
        return job if kind == "Job" else once
    spec = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    return {
        "Deployment": {**spec, "strategy": {"type": "Recreate"}},
        "StatefulSet": {**spec, "serviceName": name, "podManagementPolicy": "Parallel"},
        "DaemonSet": spec,
        "ReplicaSet": spec,
    }.get(kind)


def controller(owner: dict) -> dict:
    """The ownerReference to the object that controls another."""
    about = owner["metadata"]
    named = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": about["name"],
        "uid": about["uid"],
    }
    return {**named, "controller": True}


def object_of(row: dict, chain: dict, namespace: str, owner: dict | None = None) -> dict:
    """The object of a row of ``owners`` or ``beside``."""
    api_version, kind = row["of"].split()

    def texts(key: str) -> dict:
        given = row.get(key) or {}
        return {name: str(value).format(chain["name"], namespace=namespace) for name, value in given.items()}

    name = row.get("name", "{}").format(chain["name"])
    spec = controlled_spec(kind, name, pod_template(chain["name"], **chain.get("pod") or {}))
    spec = {**(spec or {}), **row.get("spec", {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": texts("labels"),
            "annotations": texts("annotations"),
            **({"ownerReferences": [controller(owner)]} if owner else {}),
        },
        **({"spec": spec} if spec else {}),
        **row.get("root", {}),
    }


def oom_killed(pod: dict) -> dict:
    """The status that a kubelet writes of a pod whose engine was killed for memory and waits for its third start."""
    now = datetime.datetime.now(datetime.UTC)
    ended = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": f"{now - datetime.timedelta(minutes=3):%Y-%m-%dT%H:%M:%SZ}",
        "finishedAt": f"{now - datetime.timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}",
    }
    container = pod["spec"]["containers"][0]
    status = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: pod["metadata"][name] for name in ("name", "namespace")},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [status],
        },
    }


# -- making them --------------------------------------------------------------------------------------------


class Chains:
    """The chains of one namespace as they are on the API server."""

    def __init__(self, kubectl: Kubectl, namespace: str):
        self.kubectl = kubectl
        self.namespace = namespace
        # name of the chain -> its owners from the top down, with uid; its pod
        self.owners: dict[str, list[dict]] = {}
        self.pods: dict[str, dict] = {}

    def make(self, chains: Iterable[dict]) -> None:
        """Make the owners, wait for their pods, and have all engines killed for memory."""
        chains = list(chains)
        for wave in (
            [chain for chain in chains if "under" not in chain],
            [chain for chain in chains if "under" in chain],
        ):
            self._make_wave(wave)
        self._make_second_revisions([chain for chain in chains if "then" in chain])
        self._lose([chain for chain in chains if any("gone" in row for row in chain["owners"])])
        self.write([oom_killed(pod) for pod in self.pods.values()], "kubelet", "--subresource=status")

    def write(self, objects: list[dict], by: str = "operator", *arguments: str) -> list[dict]:
        """Create or change them as the field manager ``by``, and return what they are then."""
        if not objects:
            return []
        way = ["--server-side", "--force-conflicts", f"--field-manager={by}"]
        if by == "kubectl-apply":
            way = []
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        written = json.loads(self.kubectl("apply", *way, "-f", "-", "-o", "json", *arguments, stdin=items))
        return written["items"] if written["kind"] == "List" else [written]

    def _make_wave(self, chains: list[dict]) -> None:
        self.owners |= {chain["name"]: [] for chain in chains}
        for depth in range(max((len(chain["owners"]) for chain in chains), default=0)):
            self._make_owners([chain for chain in chains if depth < len(chain["owners"])], depth)
        self.write(
            [object_of(row, chain, self.namespace) for chain in chains for row in chain.get("beside", ())]
        )
        self.write([pod for chain in chains if (pod := self._pod_without_controller(chain))])
        for chain in chains:
            self._start(chain)
        self._wait_for_pods(chains)

    def _make_owners(self, chains: list[dict], depth: int) -> None:
        """One object of each chain; all those of one writer together."""
        by_writer: dict[str, list[dict]] = {}
        for chain in chains:
            by_writer.setdefault(chain.get("by", "operator"), []).append(chain)
        for by, written in by_writer.items():
            present = [chain for chain in written if chain["owners"][depth].get("gone") != "absent"]
            objects = [
                object_of(chain["owners"][depth], chain, self.namespace, self._above(chain))
                for chain in present
            ]
            made = dict(zip([chain["name"] for chain in present], self.write(objects, by), strict=True))
            for chain in written:
                found = made.get(chain["name"]) or _absent(chain["owners"][depth], chain)
                self.owners[chain["name"]].append(found)

    def _above(self, chain: dict) -> dict | None:
        """What owns the next object of the chain."""
        known = self.owners[chain["name"]]
        return known[-1] if known else self.pods.get(chain.get("under", ""))

    def _pod_without_controller(self, chain: dict) -> dict | None:
        """The pod that an operator makes itself; None where a controller of Kubernetes does."""
        owner = self._above(chain)
        if owner and controlled_spec(owner["kind"], "", pod_template("")) is not None:
            return None
        pod = pod_template(chain["name"], **chain.get("pod") or {})
        pod["metadata"] |= {"name": f"{chain['name']}-pod", "namespace": self.namespace}
        if owner:
            pod["metadata"]["ownerReferences"] = [controller(owner)]
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def _start(self, chain: dict) -> None:
        """A CronJob that has missed a run makes its Job at once, not in the next minute."""
        for owner in self.owners[chain["name"]]:
            if owner["kind"] == "CronJob":
                missed = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=2)
                status = {"lastScheduleTime": f"{missed:%Y-%m-%dT%H:%M:%SZ}"}
                self.kubectl.patch_status("cronjob", owner["metadata"]["name"], self.namespace, status)

    def _wait_for_pods(
        self, chains: Iterable[dict], fits: Callable[[dict], bool] = lambda _pod: True
    ) -> None:
        names = {chain["name"] for chain in chains}

        def look() -> bool:
            found: dict[str, list[dict]] = {}
            for pod in self.kubectl.items("pods", "-n", self.namespace):
                found.setdefault(pod["metadata"]["labels"].get("chain"), []).append(pod)
            ready = {name for name, pods in found.items() if len(pods) == 1 and fits(pods[0])}
            self.pods |= {name: found[name][0] for name in names & ready}
            return names <= ready

        wait_for(f"a pod of each of {', '.join(sorted(names))}", look)

    def _make_second_revisions(self, chains: list[dict]) -> None:
        """Change the template of the owner whose controller makes the pod, and wait for the pod of the new one."""
        changed = []
        for chain in chains:
            second = {**chain, "pod": {**chain.get("pod", {}), **chain["then"]}}
            above = self.owners[chain["name"]][-2:-1]
            changed.append(
                object_of(chain["owners"][-1], second, self.namespace, above[0] if above else None)
            )
        self.write(changed)
        self._wait_for_pods(chains, lambda pod: pod["spec"]["containers"][0]["args"][-1] == "32768")

    def _lose(self, chains: list[dict]) -> None:
        """Take away the owners that are to be gone."""
        for chain in chains:
            for row, owner in zip(chain["owners"], self.owners[chain["name"]], strict=True):
                if row.get("gone") in ("deleted", "remade"):
                    self.kubectl("delete", owner["kind"], owner["metadata"]["name"], "-n", self.namespace)
                if row.get("gone") == "remade":
                    self.write([object_of(row, chain, self.namespace)])

    def chain(self, name: str) -> list[dict]:
        """What the evidence must say of its owners, from the nearest to the top."""
        row = ROWS[name]
        owners = [
            {**_named(owner), "read": "gone" not in made_from, "inferred": False}
            for made_from, owner in zip(row["owners"], self.owners[name], strict=True)
        ]
        owners.reverse()
        for nearest in self.pods[name]["metadata"].get("ownerReferences", ()):
            # What a controller of Kubernetes put between (a Deployment's ReplicaSet, a CronJob's Job).
            if nearest["uid"] != owners[0]["uid"]:
                named = _named({**nearest, "metadata": nearest})
                owners.insert(0, {**named, "read": True, "inferred": False})
        if "under" in row:
            pod = self.pods[row["under"]]
            owners += [{**_named(pod), "read": True, "inferred": False}, *self.chain(row["under"])]
        return owners


def _named(raw: dict) -> dict:
    about = raw["metadata"]
    return {"kind": raw["kind"], "name": about["name"], "api_version": raw["apiVersion"], "uid": about["uid"]}


def _absent(row: dict, chain: dict) -> dict:
    api_version, kind = row["of"].split()
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": chain["name"], "uid": str(uuid.uuid4())},
    }


@contextmanager
def new_namespace(kubectl: Kubectl, name: str) -> Iterator[str]:
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        for pod in kubectl.items("pods", "-n", name):
            if pod["metadata"].get("finalizers"):
                released = json.dumps({"metadata": {"finalizers": None}})
                kubectl("patch", "pod", pod["metadata"]["name"], "-n", name, "--type=merge", "-p", released)
        kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def served_kinds(cluster: Cluster | ForeignCluster, kubectl: Kubectl) -> Iterator[None]:
    """The custom kinds, and the node that the pods are bound to."""
    if cluster.without_ours:
        # The marker is looked at only after this.
        pytest.skip(cluster.without_ours)
    kinds.install(kubectl)
    node = fleet.node(NODE)
    del node["metadata"]["annotations"]
    kubectl.apply([node])
    yield
    kubectl("delete", "node", NODE, "--wait=false")


@pytest.fixture(scope="module")
def chains(kubectl: Kubectl, served_kinds: None) -> Iterator[Chains]:
    """All chains of kinds.yaml in one namespace."""
    with new_namespace(kubectl, f"owners-{os.getpid()}") as namespace:
        chains = Chains(kubectl, namespace)
        chains.make(ROWS.values())
        resize(kubectl, chains.pods["scaled"])
        yield chains


@pytest.fixture(scope="module")
def run(chains: Chains, runbook: Runbook) -> Run:
    """One run over all of them."""
    return runbook(namespace=chains.namespace)


VPA_UPDATE = "Pod resources updated by scaled: container 0: memory limit"


def resize(kubectl: Kubectl, pod: dict) -> None:
    """Raise a pod's memory limit in place, as a VerticalPodAutoscaler's updater does."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    container = {"name": "vllm", "resources": {"limits": {"memory": "48Gi"}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    kubectl("patch", "pod", name, "-n", namespace, "--subresource=resize", "-p", patch)
    kubectl("annotate", "pod", name, "-n", namespace, f"vpaUpdates={VPA_UPDATE}")


def workload_of(run: Run, chains: Chains, chain: str) -> dict:
    return run.seen(chains.pods[chain]["metadata"]["name"])["workload"]


def split_rows(rows: Iterable[str]) -> list[tuple]:
    """``a | b | 1 | null`` of the table as ("a", "b", 1, None)."""
    return [tuple(yaml.safe_load(cell) for cell in row.split(" | ")) for row in rows]


# -- what the run must say ----------------------------------------------------------------------------------

each_chain = pytest.mark.parametrize("name", ROWS)


@each_chain
def test_every_owner_up_to_the_top_is_named(run, chains, name):
    found = workload_of(run, chains, name)
    expected = chains.chain(name)
    assert found["chain"] == expected
    top = expected[-1] if expected else {"kind": "Pod", "name": f"{name}-pod", "api_version": "v1"}
    assert {key: found[key] for key in ("kind", "name", "api_version")} == {
        key: top[key] for key in ("kind", "name", "api_version")
    }


@each_chain
def test_a_change_goes_where_it_lasts(run, chains, name):
    given = ROWS[name]["edit"]
    found = workload_of(run, chains, name)["edit"]
    if given is None:
        assert found is None
        return
    row = given if isinstance(given, dict) else {"path": given}
    top = chains.chain(name)[-1:] or [{"kind": "Pod", "name": None, "api_version": "v1"}]
    api_version, kind = row.get("of", f"{top[0]['api_version']} {top[0]['kind']}").split()
    # Which object of that name, and in which state, is the API server's own.
    assert set(found) == {"kind", "name", "api_version", "path", "arguments", "inferred", "uid", "generation"}
    assert {key: found[key] for key in found if key not in ("uid", "generation")} == {
        "kind": kind,
        "name": row.get("name", top[0]["name"]),
        "api_version": api_version,
        "path": row["path"],
        "arguments": row.get("arguments"),
        "inferred": False,
    }


@each_chain
def test_pods_of_one_engine_are_a_group(run, chains, name):
    group = ROWS[name].get("group")
    found = run.seen(chains.pods[name]["metadata"]["name"])["group"]
    assert found == (group and f"{chains.namespace}/{group}")


@each_chain
def test_who_undoes_a_change(run, chains, name):
    found = workload_of(run, chains, name)["managers"]
    assert [
        tuple(item[key] for key in ("tool", "object", "proof", "reverts")) for item in found
    ] == split_rows(ROWS[name].get("managers", ()))


@each_chain
def test_who_scales_it(run, chains, name):
    found = workload_of(run, chains, name)["autoscalers"]
    assert [
        tuple(item[key] for key in ("kind", "name", "target", "min", "max", "mode")) for item in found
    ] == split_rows(ROWS[name].get("scaled", ()))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "then" in row])
def test_what_changed_is_named(run, chains, name):
    first, second = workload_of(run, chains, name)["revisions"]
    assert [item["current"] for item in (first, second)] == [False, True]
    assert [(item["field"], item["before"], item["after"]) for item in second["diff"]] == [
        ("args.max_model_len", 8192, 32768),
        ("resources.limits.memory", "32Gi", "24Gi"),
    ]
    (trigger,) = [
        item
        for item in run.pod(chains.pods[name]["metadata"]["name"])["findings"]
        if item["role"] == "trigger"
    ]
    assert "Revision 2 changed args.max_model_len: 8192 -> 32768" in trigger["explanation"]
    assert "rollback_revision" in {item["name"] for item in trigger["recommend"]}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("argo", "Argo CD (Deployment/argo)"),
        ("argo-kserve", "Argo CD (InferenceService/argo-kserve)"),
        ("flux", "Flux (Deployment/flux)"),
        ("release-drift", "Flux HelmRelease (Deployment/release-drift)"),
        # Nobody undoes a live change here, or nothing proves it.
        *((name, None) for name in ("argo-copy", "flux-off", "flux-half", "release", "terraform", "kueue")),
    ],
)
def test_a_proven_owner_turns_the_command_to_its_source(run, chains, name, source):
    trigger = run.pod(chains.pods[name]["metadata"]["name"])["findings"][0]
    command = trigger["recommend"][0]["command"]
    if source:
        assert command.startswith(f"change it in the source of {source}")
    else:
        assert command.startswith(f"kubectl -n {chains.namespace} set resources deployment/{name} ")


@each_chain
def test_the_command_names_the_object_to_edit_and_no_namesake(run, chains, name):
    """kubectl finds by the command's words what the evidence calls the object to edit."""
    command = run.pod(chains.pods[name]["metadata"]["name"])["findings"][0]["recommend"][0]["command"]
    edit = workload_of(run, chains, name)["edit"]
    if command.startswith("change it in"):
        assert edit is None or "source of" in command
        return
    found = re.search(r"(?:edit|set resources|get) (\S+/\S+)", command)
    if any("gone" in row for row in ROWS[name]["owners"]) or edit["kind"] == "ConfigMap":
        assert found.group(1).endswith(f"/{edit['name']}")
        return
    live = chains.kubectl.get(found.group(1), "-n", chains.namespace)
    assert (live["kind"], live["metadata"]["name"]) == (edit["kind"], edit["name"])
    assert live["apiVersion"].rpartition("/")[0] == edit["api_version"].rpartition("/")[0]


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("kserve", "kubectl -n {} edit inferenceservice.serving.kserve.io/kserve "),
        ("knative", "kubectl -n {} edit service.serving.knative.dev/knative "),
        ("nim-kserve", "kubectl -n {} edit nimservice.apps.nvidia.com/nim-kserve "),
        ("dynamo-grove", "kubectl -n {} edit dynamographdeployment.nvidia.com/dynamo-grove "),
        ("rollout-of", "kubectl -n {} set resources deployment/referred "),
        ("skypilot", "change it in the file that was given to SkyPilot: "),
    ],
)
def test_what_an_operator_undoes_below_is_no_obstacle(run, chains, name, starts):
    command = run.pod(chains.pods[name]["metadata"]["name"])["findings"][0]["recommend"][0]["command"]
    assert command.startswith(starts.format(chains.namespace))


def test_of_missing_owners_it_says_which_and_no_other_was_unreadable(run):
    # What isn't served any more has no address to ask for.
    missing = "RayCluster/deleted, resources of gone.example/v1"
    assert [
        (item["object"], item["reason"]) for item in run.evidence["unreadable"] if item["source"] != "log"
    ] == [(missing, "not found")]


def test_a_pod_resized_by_the_vertical_autoscaler(run, chains):
    seen = run.seen(chains.pods["scaled"]["metadata"]["name"])
    (template,) = chains.owners["scaled"][0]["spec"]["template"]["spec"]["containers"]
    assert template["resources"]["limits"]["memory"] == "32Gi"
    assert seen["containers"][0]["resources"]["limits"]["memory"] == "48Gi"
    assert [(item["tool"], item["text"]) for item in seen["mutations"]] == [
        ("VerticalPodAutoscaler", VPA_UPDATE)
    ]


# -- what can't be read -------------------------------------------------------------------------------------


READS_PODS = ({"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list"]},)
READS_APPS = (
    *READS_PODS,
    {"apiGroups": ["apps"], "resources": ["replicasets", "deployments"], "verbs": ["get", "list"]},
)


def read_as(access: Mapping | Path, **query) -> Run:
    """What the runbook reads and says with that kubeconfig."""
    done = read(connect(access), **query)
    return Run(rc=0, output="", report=done.report, evidence=done.evidence, diagnosis=done.diagnosis)


@pytest.fixture(scope="module")
def run_as(
    cluster: Cluster, kubectl: Kubectl, chains: Chains
) -> Callable[[str, Iterable[Mapping], list[str]], Run]:
    """``run_as(user, rules, names)``: a run over the pods of those chains by a service account with these rights."""

    def run(user: str, rules: Iterable[Mapping], names: list[str]) -> Run:
        about = {"name": user, "namespace": chains.namespace}
        rbac = "rbac.authorization.k8s.io"
        binding = {
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
            "subjects": [{"kind": "ServiceAccount", **about}],
        }
        kubectl.apply(
            [
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
                {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": about, "rules": list(rules)},
                {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": about, **binding},
            ]
        )
        token = kubectl("create", "token", user, "-n", chains.namespace).strip()
        access = as_user(cluster, {"token": token}, chains.namespace)
        return read_as(access, namespace=chains.namespace, selector=f"chain in ({','.join(names)})")

    return run


def test_a_chain_that_may_not_be_read_to_its_top(run_as, chains):
    run = run_as("apps-reader", READS_APPS, ["nim-kserve", "helm-kserve"])

    found = workload_of(run, chains, "nim-kserve")
    replica_set, deployment, service = chains.chain("nim-kserve")[:3]
    # The NIMService above can't be known.
    assert found["chain"] == [replica_set, deployment, {**service, "read": False}]
    assert (found["edit"]["kind"], found["edit"]["name"]) == ("InferenceService", "nim-kserve")
    (refused,) = run.unreadable("InferenceService/")
    assert refused["object"] == "InferenceService/helm-kserve, InferenceService/nim-kserve"
    assert refused["needs"] == f"get inferenceservices.serving.kserve.io in namespace {chains.namespace}"
    assert f"needs {refused['needs']}" in run.report

    # What KServe copied to its Deployment is a hint of what stands on the object that can't be read.
    managers = workload_of(run, chains, "helm-kserve")["managers"]
    assert [(item["tool"], item["object"], item["proof"]) for item in managers] == [
        ("KServe", "Deployment/helm-kserve-predictor", "proof"),
        ("Helm", "Deployment/helm-kserve-predictor", "hint"),
    ]


def test_where_only_pods_may_be_read_a_deployment_is_concluded(run_as, chains):
    run = run_as("pods-reader", READS_PODS, ["plain", "stateful"])

    replica_set, deployment = chains.chain("plain")
    found = workload_of(run, chains, "plain")
    assert found["chain"] == [
        {**replica_set, "read": False},
        {**deployment, "uid": None, "read": False, "inferred": True},
    ]
    assert (found["edit"]["kind"], found["edit"]["name"], found["edit"]["inferred"]) == (
        "Deployment",
        "plain",
        True,
    )
    # Of others nothing is concluded.
    assert workload_of(run, chains, "stateful")["chain"] == [{**chains.chain("stateful")[0], "read": False}]
    for right in ("get replicasets.apps", "get deployments.apps", "get statefulsets.apps"):
        assert run.unreadable(f"{right} in namespace {chains.namespace}"), right


# -- what admission filled in -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited(kubectl: Kubectl, served_kinds: None) -> Iterator[Chains]:
    """A Deployment without limits in a namespace whose LimitRange sets them."""
    with new_namespace(kubectl, f"limited-{os.getpid()}") as namespace:
        default = {"type": "Container", "default": {"cpu": "4", "memory": "24Gi"}}
        about = {"name": "defaults", "namespace": namespace}
        kubectl.apply(
            [{"apiVersion": "v1", "kind": "LimitRange", "metadata": about, "spec": {"limits": [default]}}]
        )
        resources = {"requests": {"memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}}
        chains = Chains(kubectl, namespace)
        chains.make(
            [{"name": "unlimited", "owners": [{"of": "apps/v1 Deployment"}], "pod": {"resources": resources}}]
        )
        yield chains


def test_a_limit_that_no_parent_has(limited, cluster):
    (template,) = limited.owners["unlimited"][0]["spec"]["template"]["spec"]["containers"]
    assert template["resources"]["limits"] == {"nvidia.com/gpu": "1"}

    run = read_as(cluster.kubeconfig, namespace=limited.namespace)

    seen = run.seen("unlimited")
    limits = seen["containers"][0]["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("4", "24Gi")
    assert [(item["tool"], item["text"]) for item in seen["mutations"]] == [
        (
            "LimitRange",
            "LimitRanger plugin set: cpu request for container vllm; cpu, memory limit for container vllm",
        )
    ]
    (risk,) = [item for item in run.pod("unlimited")["findings"] if item["cause"] == "cpu_limit_set"]
    first = risk["recommend"][0]
    assert first["name"] == "limitrange/defaults.default.cpu"
    assert first["command"] == f"kubectl -n {limited.namespace} edit limitrange/defaults"
