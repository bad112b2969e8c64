# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of workloads on a real API server: what is written, what is there again after they are taken back, who is
refused and why.

Most objects here have no pods: what is written doesn't depend on them. Where pods matter, kwok's fake node has them.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from harness import Audit, Kubectl, api_server_stopped, run_environment, wait_for
from reader import as_user, reader
from testcluster import ROOT, fleet, kinds
from testcluster.cluster import Cluster

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    PENDING_ANNOTATION,
    UNDO_ANNOTATION,
    DocumentError,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import access, places, writer

# It installs CRDs and reads the audit log.
pytestmark = pytest.mark.ours

NAMESPACE = f"workload-{os.getpid()}"
NODE = f"fake-{NAMESPACE}"
KEY = "planted-api-key-1"
TOKEN = "hf_plantedTOKENofTheTests99"
IMAGE = "docker.io/vllm/vllm-openai:v0.19.1"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LIST = {
    "command": ["vllm", "serve"],
    "args": [MODEL, "--api-key", KEY, "--max-model-len", "8192", "--gpu-memory-utilization=0.95"],
}
SHELL = {
    "command": ["bash", "-c"],
    "args": [f"exec vllm serve {MODEL} \\\n  --api-key={KEY} \\\n  --max-model-len 8192 \\\n  --port 8000\n"],
}
LIVENESS = {"livenessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5}}
# Everything at once, in spellings that the API server makes others of.
EVERYTHING = {
    "engine_args": {"max_model_len": 4096, "enforce_eager": True},
    "env": {"OMP_NUM_THREADS": "4"},
    "resources": {
        "limits": {"memory": "1024Mi", "cpu": "2000m"},
        "requests": {"cpu": "0.5", "memory": "512Mi"},
    },
    "shm_size": "2048Mi",
    "startup_seconds": 600,
}


def container(**fields) -> dict:
    env = [{"name": "HF_TOKEN", "value": TOKEN}, {"name": "STANDIN_GPU", "value": "H100 80GB"}]
    resources = {
        "limits": {"nvidia.com/gpu": "1", "memory": "256Mi"},
        "requests": {"cpu": "10m", "memory": "32Mi"},
    }
    made = {"name": "vllm", "image": IMAGE, "env": env, "resources": resources, **LIVENESS, **LIST}
    return {name: value for name, value in {**made, **fields}.items() if value is not None}


def workload(
    name: str, engine: dict | None = None, kind: str = "Deployment", replicas: int = 0, **fields
) -> dict:
    labels = {"app": name}
    pod = {
        "nodeName": NODE,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "proxy", "image": "envoy"}, engine or container()],
    }
    if kind == "DaemonSet":
        del pod["nodeName"]
        pod["nodeSelector"] = {"nowhere": "at-all"}
    template = {"metadata": {"labels": labels}, "spec": {**pod, **fields.pop("pod", {})}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    about = {"name": name, "namespace": NAMESPACE, **fields.pop("metadata", {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": about, "spec": {**spec, **fields}}


class Scene:
    """The namespace of these tests, and what the module does in it."""

    def __init__(self, cluster: Cluster, kubectl: Kubectl):
        self.cluster = cluster
        self.kubectl = kubectl

    def apply(self, raw: Mapping, manager: str = "test") -> None:
        self.kubectl.apply([raw], f"--field-manager={manager}", "--force-conflicts")
        kind, name = raw["kind"], raw["metadata"]["name"]

        def seen() -> bool:
            live = self.get(kind, name)
            return live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"]

        wait_for(f"the controller of {kind} {name}", seen, every=0.05)

    def get(self, kind: str, name: str) -> dict:
        return self.kubectl.get(kind.lower(), name, "-n", NAMESPACE, "--show-managed-fields")

    def spec(self, kind: str, name: str) -> str:
        return json.dumps(self.get(kind, name)["spec"], sort_keys=True)

    def notes(self, kind: str, name: str) -> tuple[dict | None, list[dict]]:
        annotations = self.get(kind, name)["metadata"].get("annotations") or {}
        pending, undo = (annotations.get(key) for key in (PENDING_ANNOTATION, UNDO_ANNOTATION))
        return json.loads(pending) if pending else None, json.loads(undo)["records"] if undo else []

    def do(
        self, kind: str, name: str, check: bool = False, kubeconfig: Mapping | Path | None = None, **options
    ) -> dict:
        """What the module returns."""
        given = {"state": "present", "lease": 180, **options}
        config = kubeconfig or self.cluster.kubeconfig
        to = access.connect({"kubeconfig": dict(config) if isinstance(config, Mapping) else str(config)}, {})
        place = places.place_of(given.pop("api_version", None), kind, NAMESPACE, name)
        return writer.run(to, place, given, check)

    def refused(self, kind: str, name: str, **options) -> writer.Refused:
        with pytest.raises(writer.Refused) as refused:
            self.do(kind, name, **options)
        return refused.value

    def wait_for_pods(self, name: str, count: int) -> None:
        def there() -> bool:
            pods = self.kubectl.items("pods", "-n", NAMESPACE, "-l", f"app={name}")
            return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)

        wait_for(f"{count} pods of {name}", there)
        wait_for(
            f"the counts of {name}",
            lambda: self.get("Deployment", name)["status"].get("replicas", 0) == count,
        )


@pytest.fixture(scope="module")
def scene(cluster: Cluster, kubectl: Kubectl) -> Iterator[Scene]:
    kubectl("create", "namespace", NAMESPACE)
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s")
    kubectl.apply([fleet.node(NODE)])
    yield Scene(cluster, kubectl)
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "node", NODE)


def verbs(audit: Audit, mark: int, name: str) -> list[str]:
    """What was asked of one object since then, without dry runs."""
    about = [item for item in audit.since(mark) if f"/{NAMESPACE}/" in item["requestURI"]]
    return [
        item["verb"]
        for item in about
        if item["requestURI"].partition("?")[0].endswith(f"/{name}") and "dryRun" not in item["requestURI"]
    ]


# --- taken back, nothing is left


EMPTY_RESOURCES = container(resources={}, livenessProbe=None)
WITH_SHM = container(volumeMounts=[{"name": "dshm", "mountPath": "/dev/shm"}])
SHM = {"volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]}
STARTUP = {"startupProbe": {"httpGet": {"path": "/health", "port": 8000}}}
SURGING = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
RECREATING = {"strategy": {"type": "Recreate"}}
LIMITS = {"resources": {"limits": {"memory": "64Gi"}}}

OBJECTS = {
    "deployment-list": (workload("list"), {**EVERYTHING, "strategy": "Recreate"}),
    "deployment-shell": (
        workload("shell", container(**SHELL)),
        {**EVERYTHING, "strategy": {"max_surge": 0, "max_unavailable": 1}},
    ),
    "stateful-list": (workload("stateful", kind="StatefulSet"), EVERYTHING),
    "stateful-shell": (workload("stateful-sh", container(**SHELL), "StatefulSet"), EVERYTHING),
    "daemon-list": (
        workload("daemon", kind="DaemonSet"),
        {**EVERYTHING, "strategy": {"max_surge": 0, "max_unavailable": 1}},
    ),
    "daemon-shell": (workload("daemon-sh", container(**SHELL), "DaemonSet"), EVERYTHING),
    "nothing-there": (workload("bare", EMPTY_RESOURCES), {**LIMITS, "env": {"A": "1"}, "shm_size": "1Gi"}),
    "shm-there": (workload("shm", WITH_SHM, pod=SHM), {"shm_size": "16384Mi"}),
    "probe-there": (workload("probe", container(**STARTUP)), {"startup_seconds": 1200}),
    "surge-there": (workload("surge", **SURGING), {"strategy": {"max_surge": 0, "max_unavailable": 1}}),
    "recreate-there": (workload("recreate", **RECREATING), {"strategy": {"max_surge": 0}}),
    "last-limit-removed": (
        workload("last", container(resources={"limits": {"cpu": "4"}})),
        {"resources": {"limits": {"cpu": None}}},
    ),
    "args-removed": (
        workload("less"),
        {"engine_args": {"max_model_len": None, "gpu_memory_utilization": None}},
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_spec_is_the_same_after_it_was_taken_back(name: str, scene: Scene, audit: Audit) -> None:
    raw, wishes = OBJECTS[name]
    kind, called = raw["kind"], raw["metadata"]["name"]
    scene.apply(raw)
    before = scene.spec(kind, called)
    shown = scene.do(kind, called, check=True, **wishes)
    assert (shown["mode"], shown["changed"], scene.spec(kind, called)) == ("dry_run", True, before)

    done = scene.do(kind, called, **wishes)
    assert (done["mode"], done["changed"], done["refused"]) == ("written", True, [])
    assert done["diff"] == shown["diff"]
    assert done["diff"]["before"] != done["diff"]["after"]
    changed = scene.spec(kind, called)
    assert changed != before
    assert (KEY in changed, TOKEN in changed) == (True, True)

    mark = audit.mark()
    again = scene.do(kind, called, **wishes)
    assert (again["mode"], again["changed"], again["applied"]) == ("unchanged", False, [])
    assert again["diff"]["after"] == ""
    assert verbs(audit, mark, called) == ["get"]

    scene.do(kind, called, state="released", run=done["run"], verdict="served")
    pending, records = scene.notes(kind, called)
    assert pending is None
    assert [item["verdict"] for item in records] == ["served"]
    assert KEY not in json.dumps(records)
    back = scene.do(kind, called, state="restored")
    assert (back["mode"], back["changed"]) == ("written", True)
    assert not [text for text in back["warnings"] if "sets more" in text]
    assert scene.spec(kind, called) == before
    assert scene.notes(kind, called) == (None, [])
    assert scene.do(kind, called, state="restored")["mode"] == "unchanged"


def test_several_changes_are_taken_back_together(scene: Scene) -> None:
    scene.apply(workload("several"))
    before = scene.spec("Deployment", "several")
    first = scene.do("Deployment", "several", engine_args={"max_model_len": 4096}, run="r", **LIMITS)
    scene.do("Deployment", "several", engine_args={"max_model_len": 2048, "enforce_eager": True}, run="r")
    scene.do(
        "Deployment",
        "several",
        resources={"limits": {"memory": "96Gi"}},
        engine_args={"enforce_eager": None},
        run="r",
    )
    assert first["record"]["changes"][0] == "container vllm: --max-model-len: 8192 -> 4096"
    assert len(scene.notes("Deployment", "several")[1]) == 3
    scene.do("Deployment", "several", state="restored", run="r")
    assert scene.spec("Deployment", "several") == before


def test_one_run_takes_back_its_own_and_leaves_the_others(scene: Scene) -> None:
    scene.apply(workload("stack"))
    scene.do("Deployment", "stack", engine_args={"max_model_len": 4096}, run="monday", lease=0)
    kept = scene.spec("Deployment", "stack")
    scene.do("Deployment", "stack", run="tuesday", lease=0, **LIMITS)
    scene.do("Deployment", "stack", state="restored", restore="run", run="tuesday")
    assert scene.spec("Deployment", "stack") == kept
    assert [item["run"] for item in scene.notes("Deployment", "stack")[1]] == ["monday"]


MAX_LEN_AT = "/spec/template/spec/containers/1/args/4"


def _by_hand(scene: Scene, name: str, path: str, value: str) -> None:
    patch = [{"op": "replace", "path": path, "value": value}]
    scene.kubectl("patch", "deployment", name, "-n", NAMESPACE, "--type=json", "-p", json.dumps(patch))


def test_what_was_taken_back_by_hand_needs_nothing_more(scene: Scene) -> None:
    scene.apply(workload("hand"))
    before = scene.spec("Deployment", "hand")
    scene.do("Deployment", "hand", lease=0, **LIMITS)
    scene.do("Deployment", "hand", engine_args={"max_model_len": 4096, "enforce_eager": True}, lease=0)
    # The last change's own half; the other half and the change before it stay to be taken back.
    _by_hand(scene, "hand", MAX_LEN_AT, "8192")
    scene.do("Deployment", "hand", state="restored")
    assert scene.spec("Deployment", "hand") == before


def test_a_field_that_somebody_changed_since_is_left_with_its_three_values(scene: Scene) -> None:
    scene.apply(workload("since"))
    scene.do("Deployment", "since", engine_args={"max_model_len": 4096}, lease=0)
    _by_hand(scene, "since", MAX_LEN_AT, "16384")
    now = scene.spec("Deployment", "since")
    refused = scene.refused("Deployment", "since", state="restored")
    assert "before our change: 8192; by our change: 4096; now: 16384" in str(refused)
    assert str(refused).endswith(f"kubectl -n {NAMESPACE} annotate deployment since vllm-runbook.oom/undo-")
    assert scene.spec("Deployment", "since") == now


def test_other_changes_since_survive(scene: Scene) -> None:
    scene.apply(workload("others"))
    before = json.loads(scene.spec("Deployment", "others"))
    scene.do("Deployment", "others", lease=0, **EVERYTHING)
    scene.kubectl("-n", NAMESPACE, "set", "env", "deployment/others", "-c", "vllm", "NEW=1")
    scene.do("Deployment", "others", state="restored")
    after = json.loads(scene.spec("Deployment", "others"))
    env = after["template"]["spec"]["containers"][1]["env"]
    assert env.pop() == {"name": "NEW", "value": "1"}
    assert after == before


def test_what_the_server_drops_is_refused(scene: Scene) -> None:
    """A StatefulSet's maxUnavailable is behind a feature gate: where that is off, it is left out without a word."""
    scene.apply(workload("dropped", kind="StatefulSet"))
    refused = scene.refused("StatefulSet", "dropped", strategy={"max_unavailable": 2}, **LIMITS)
    assert "the API server doesn't keep the change of strategy" in str(refused)
    assert scene.notes("StatefulSet", "dropped") == (None, [])


def test_what_a_webhook_or_the_server_adds_goes_too(scene: Scene) -> None:
    """A limit range doesn't touch templates, defaults do: they are in the record."""
    scene.apply(workload("defaults"))
    done = scene.do("Deployment", "defaults", startup_seconds=300, lease=0)
    assert "successThreshold" in done["diff"]["after"]
    (record,) = scene.notes("Deployment", "defaults")[1]
    assert record["steps"][0]["after"]["successThreshold"] == 1


# --- secrets


PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  module_defaults:
    group/vllm_runbook.oom.k8s:
      kubeconfig: "{{ kubeconfig }}"
    vllm_runbook.oom.workload:
      kind: Deployment
      namespace: "{{ here }}"
  tasks:
"""
# Of one object, NAME; debug shows all that the module returns.
CHANGE = """
    - name: Change NAME
      vllm_runbook.oom.workload: &change-NAME
        name: NAME
        engine_args: {max_model_len: 4096, enforce_eager: true}
        env: {OMP_NUM_THREADS: "4"}
        run: r1
      register: done
      failed_when: done is not changed
    - name: Show NAME
      ansible.builtin.debug:
        var: done
"""
AGAIN = """
    - vllm_runbook.oom.workload:
        <<: *change-NAME
      register: done
      failed_when: done is changed
    - ansible.builtin.debug:
        var: done
"""
WRONG = """
    - vllm_runbook.oom.workload:
        name: NAME
        engine_args: {no_such_option: 1}
      register: wrong
      failed_when: "'is no option of vLLM' not in wrong.msg"
    - vllm_runbook.oom.workload:
        name: NAME
        engine_args: {api_key: given-by-mistake-1}
      register: secret
      failed_when: "'holds a secret' not in secret.msg"
"""
UNDO = """
    - vllm_runbook.oom.workload:
        name: NAME
        state: restored
        run: r1
"""


class Played:
    """A playbook run with -vvv and --diff."""

    def __init__(self, scene: Scene, folder: Path):
        self.scene, self.folder = scene, folder

    def __call__(self, tasks: str, names: Iterable[str], *arguments: str) -> str:
        """What it printed. tasks: done for each name in turn."""
        book = self.folder / "play.yml"
        book.write_text(PLAY + "".join(tasks.replace("NAME", name) for name in names))
        given = {"kubeconfig": str(self.scene.cluster.kubeconfig), "here": NAMESPACE}
        done = subprocess.run(
            [
                Path(sys.executable).parent / "ansible-playbook",
                book,
                "-vvv",
                "--diff",
                "-e",
                json.dumps(given),
                *arguments,
            ],
            cwd=ROOT,
            env=run_environment(self.scene.cluster.kubeconfig),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def played(scene: Scene, tmp_path: Path) -> Played:
    return Played(scene, tmp_path)


def test_no_output_shows_the_key_and_the_container_keeps_it(scene: Scene, played: Played) -> None:
    """Also where the arguments are one text, in which a patch would show it."""
    names = {"keyed-list": LIST, "keyed-shell": SHELL}
    for name, form in names.items():
        scene.apply(workload(name, container(**form)))
    before = {name: scene.spec("Deployment", name) for name in names}
    checked = played(CHANGE, names, "--check")
    assert {name: scene.spec("Deployment", name) for name in names} == before
    made = played(CHANGE + AGAIN, names)
    changed = {name: scene.spec("Deployment", name) for name in names}
    undone = played(WRONG + UNDO, names)
    assert {name: scene.spec("Deployment", name) for name in names} == before
    for printed in (checked, made, undone):
        assert KEY not in printed
        assert TOKEN not in printed
        assert "given-by-mistake" not in printed
        assert "Traceback" not in printed
    for live in (*before.values(), *changed.values()):
        assert (KEY in live, TOKEN in live) == (True, True)
    assert '"4096"' in changed["keyed-list"]
    assert "--max-model-len 4096" in changed["keyed-shell"]
    for printed in (checked, made):
        assert withheld(printed) == {"keyed-list": False, "keyed-shell": True}
    # --check --diff showed just what was then done, and the second time there was nothing to show.
    lines = [[line for line in text.splitlines() if line[:1] in ("+", "-")] for text in (checked, made)]
    assert lines[0] == lines[1] != []


def withheld(printed: str) -> dict[str, bool]:
    """Whether the result that is shown of an object has no patch, since that would show a secret."""
    shown = re.findall(r"^TASK \[Show (\S+)\](.*?)(?=^TASK|^PLAY RECAP)", printed, re.MULTILINE | re.DOTALL)
    return {name: "the patch would show a secret" in text for name, text in shown}


# --- rights


def test_the_reader_is_shown_a_difference_that_is_labelled(
    scene: Scene, kubectl: Kubectl, cluster: Cluster
) -> None:
    scene.apply(workload("read-only"))
    before = scene.spec("Deployment", "read-only")
    with reader(cluster, kubectl, NAMESPACE) as config:
        shown = scene.do("Deployment", "read-only", check=True, kubeconfig=config, **EVERYTHING)
        assert (shown["mode"], shown["changed"]) == ("client_side", True)
        assert shown["rights"] == {
            "allowed": False,
            "missing": [
                f"patch deployments.apps in namespace {NAMESPACE}",
                f"create pods in namespace {NAMESPACE}",
            ],
        }
        assert "args[4]: 4096" in shown["diff"]["after"]
        assert shown["patch"]
        refused = scene.refused("Deployment", "read-only", kubeconfig=config, **EVERYTHING)
        assert str(refused) == (
            f"Deployment/read-only can't be changed; needs: patch deployments.apps in namespace {NAMESPACE}"
        )
        assert refused.result["rights"]["missing"] == [f"patch deployments.apps in namespace {NAMESPACE}"]
        for state in ("restored", "released"):
            assert (
                scene.do("Deployment", "read-only", kubeconfig=config, state=state, run="r")["mode"]
                == "unchanged"
            )
    assert scene.spec("Deployment", "read-only") == before


WRITER = ROOT / "docs" / "examples" / "rbac-writer.yaml"


@pytest.fixture(scope="module")
def writer_config(scene: Scene, kubectl: Kubectl, cluster: Cluster) -> Iterator[dict]:
    """A kubeconfig with the rights of docs/examples/rbac-writer.yaml and no others."""
    text = WRITER.read_text(encoding="utf-8").replace("namespace: llm", f"namespace: {NAMESPACE}")
    objects = yaml.safe_load(text)["items"]
    kubectl.apply(objects)
    token = kubectl("create", "token", "vllm-oom-writer", "-n", NAMESPACE).strip()
    yield as_user(cluster, {"token": token}, NAMESPACE)
    kubectl("delete", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def test_the_writer_role_is_enough_and_no_more(scene: Scene, writer_config: dict, kubectl: Kubectl) -> None:
    scene.apply(workload("least"))
    before = scene.spec("Deployment", "least")

    def allowed() -> bool:
        return scene.do("Deployment", "least", check=True, kubeconfig=writer_config, **LIMITS)["rights"][
            "allowed"
        ]

    wait_for("the role", allowed)
    shown = scene.do("Deployment", "least", check=True, kubeconfig=writer_config, **EVERYTHING)
    assert (shown["mode"], shown["rights"]) == ("dry_run", {"allowed": True, "missing": []})
    done = scene.do("Deployment", "least", kubeconfig=writer_config, **EVERYTHING)
    assert done["mode"] == "written"
    scene.do(
        "Deployment", "least", kubeconfig=writer_config, state="released", run=done["run"], verdict="held"
    )
    scene.do("Deployment", "least", kubeconfig=writer_config, state="restored")
    assert scene.spec("Deployment", "least") == before
    may = json.loads(
        kubectl(
            "auth",
            "can-i",
            "--list",
            "-n",
            NAMESPACE,
            "--as",
            f"system:serviceaccount:{NAMESPACE}:vllm-oom-writer",
            "-o",
            "json",
            check=False,
        )
        or "{}"
    )
    assert "secrets" not in json.dumps(may)


# --- what stands against it


def test_two_runs_at_once(scene: Scene) -> None:
    """The mark of the one that was first keeps the other away, also where both have read the object before."""
    scene.apply(workload("race"))
    ready, results = threading.Barrier(2), {}

    def change(run: str, length: int) -> None:
        ready.wait()
        try:
            results[run] = scene.do("Deployment", "race", engine_args={"max_model_len": length}, run=run)
        except writer.Refused as refused:
            results[run] = refused

    for _attempt in range(3):
        results.clear()
        threads = [threading.Thread(target=change, args=item) for item in (("one", 4096), ("two", 2048))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [run for run, result in results.items() if not isinstance(result, Exception)]
        assert len(won) == 1, results
        (lost,) = set(results) - set(won)
        assert f"Deployment/race is being changed by run {won[0]} on host " in str(results[lost])
        assert results[lost].result["held_by"]["run"] == won[0]
        assert [item["run"] for item in scene.notes("Deployment", "race")[1]] == won
        scene.do("Deployment", "race", state="restored", run=won[0])


class Interfering(access.Writer):
    """Whenever the object is about to be written, something else has just written it."""

    times = 0
    what = ()

    def patch(self, path, operations, dry_run=False):
        if not dry_run and type(self).times:
            type(self).times -= 1
            type(self).what()
        return super().patch(path, operations, dry_run)


@pytest.fixture
def interfering(monkeypatch: pytest.MonkeyPatch) -> type[Interfering]:
    class Here(Interfering):
        pass

    monkeypatch.setattr(access, "Writer", Here)
    return Here


def test_a_status_that_moves_is_no_obstacle(scene: Scene, interfering: type[Interfering]) -> None:
    scene.apply(workload("moving"))
    interfering.times = 3
    interfering.what = lambda: scene.kubectl(
        "annotate", "deployment", "moving", "-n", NAMESPACE, "--overwrite", f"touched={interfering.times}"
    )
    done = scene.do("Deployment", "moving", engine_args={"max_model_len": 4096})
    assert (done["mode"], interfering.times) == ("written", 0)
    assert len(scene.notes("Deployment", "moving")[1]) == 1
    assert scene.get("Deployment", "moving")["metadata"]["annotations"]["touched"] == "0"


def test_a_field_that_moves_is(scene: Scene, interfering: type[Interfering]) -> None:
    scene.apply(workload("moved"))
    generation = scene.get("Deployment", "moved")["metadata"]["generation"]
    interfering.times = 1
    interfering.what = lambda: _by_hand(scene, "moved", MAX_LEN_AT, "1024")
    refused = scene.refused(
        "Deployment", "moved", engine_args={"max_model_len": 4096}, expected={"generation": generation}
    )
    assert f"was changed since it was diagnosed (generation {generation}, now {generation + 1})" in str(
        refused
    )
    assert '"1024"' in scene.spec("Deployment", "moved")


class Losing(access.Writer):
    """The answer to the first write that was carried out never comes."""

    lost = False

    def _ask(self, url, log, sent=None):
        response = super()._ask(url, log, sent)
        written = sent and sent[0] == "PATCH" and "dryRun" not in url and response.status == 200
        if written and not type(self).lost:
            type(self).lost = True
            raise ConnectionResetError("the connection was lost")
        return response


@pytest.mark.parametrize("state", ["present", "restored", "released"])
def test_a_lost_answer_is_looked_up_and_nothing_is_written_twice(
    state: str, scene: Scene, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lost-{state}"
    scene.apply(workload(name))
    before = scene.spec("Deployment", name)
    wishes = {"engine_args": {"max_model_len": 4096}}
    if state != "present":
        scene.do("Deployment", name, run="r", **wishes)
        wishes = {"state": state, "verdict": "served"}
    lossy = type("Lossy", (Losing,), {})
    monkeypatch.setattr(access, "Writer", lossy)
    mark = audit.mark()
    done = scene.do("Deployment", name, run="r", **wishes)
    assert (done["mode"], done["changed"]) == ("written", True)
    assert done["sentence"]
    assert lossy.lost
    assert verbs(audit, mark, name)[-2:] == ["patch", "get"]
    pending, records = scene.notes("Deployment", name)
    if state == "present":
        assert (pending["run"], len(records)) == ("r", 1)
        assert done["record"]["id"] == records[0]["id"]
    elif state == "restored":
        assert (pending, records, scene.spec("Deployment", name)) == (None, [], before)
    else:
        assert (pending, [item["verdict"] for item in records]) == (None, ["served"])


def test_an_api_server_that_goes_away_before_the_write_is_waited_for(
    scene: Scene, cluster: Cluster, interfering: type[Interfering]
) -> None:
    scene.apply(workload("away"))
    gone = threading.Event()

    def away() -> None:
        with api_server_stopped(cluster):
            gone.set()
            time.sleep(2)

    thread = threading.Thread(target=away)

    def leave() -> None:
        thread.start()
        gone.wait()

    interfering.times, interfering.what = 1, leave
    done = scene.do("Deployment", "away", engine_args={"max_model_len": 4096}, run="r")
    thread.join()
    assert (done["mode"], done["changed"], gone.is_set()) == ("written", True, True)
    assert [item["run"] for item in scene.notes("Deployment", "away")[1]] == ["r"]
    assert '"4096"' in scene.spec("Deployment", "away")


def test_a_run_that_was_killed_is_gone_on_with(scene: Scene) -> None:
    scene.apply(workload("killed"))
    before = scene.spec("Deployment", "killed")
    wishes = {"engine_args": {"max_model_len": 4096}}
    first = scene.do("Deployment", "killed", run="dead", lease=1, **wishes)
    held = scene.do("Deployment", "killed", run="next", **wishes)
    assert (held["mode"], held["held_by"]["run"], held["found"]) == ("unchanged", "dead", None)
    time.sleep(2)
    shown = scene.do("Deployment", "killed", run="next", check=True, **wishes)
    found = {"run": "dead", "at": first["at"], "changes": first["record"]["changes"]}
    assert (shown["mode"], shown["found"]) == ("dry_run", found)
    assert scene.notes("Deployment", "killed")[0]["run"] == "dead"
    # Somebody who only looks whether it is so takes nothing over.
    assert scene.do("Deployment", "killed", **wishes)["mode"] == "unchanged"
    taken = scene.do("Deployment", "killed", run="next", **wishes)
    assert (taken["mode"], taken["changed"], taken["applied"]) == ("written", True, [])
    assert (taken["found"], taken["at"]) == (found, first["at"])
    assert scene.notes("Deployment", "killed")[0]["run"] == "next"
    more = scene.do("Deployment", "killed", run="next", **LIMITS)
    assert more["mode"] == "written"
    scene.do("Deployment", "killed", state="released", run="next", verdict="served")
    assert [item["verdict"] for item in scene.notes("Deployment", "killed")[1]] == ["served", "served"]
    scene.do("Deployment", "killed", state="restored")
    assert scene.spec("Deployment", "killed") == before


def test_a_mark_is_prolonged_by_its_own_run_only(scene: Scene, cluster: Cluster) -> None:
    scene.apply(workload("lease"))
    scene.do("Deployment", "lease", run="mine", lease=5, **LIMITS)
    to = access.connect({"kubeconfig": str(cluster.kubeconfig)}, {})
    place = places.place_of(None, "Deployment", NAMESPACE, "lease")
    until = scene.notes("Deployment", "lease")[0]["until"]
    assert writer.renew(to, place, "mine", 600) is True
    assert scene.notes("Deployment", "lease")[0]["until"] > until
    assert writer.renew(to, place, "another", 600) is False
    assert scene.notes("Deployment", "lease")[0]["run"] == "mine"


@pytest.mark.parametrize(
    ("manager", "metadata", "told", "refuses"),
    [
        ("helm", {}, "containers[vllm].args[4] is managed by helm", False),
        ("kubectl-client-side-apply", {}, "is managed by kubectl-client-side-apply", False),
        (
            "argocd-controller",
            {},
            "Argo CD may revert a live edit of Deployment/owned-2: change it in its source",
            True,
        ),
        (
            "test",
            {"annotations": {"argocd.argoproj.io/tracking-id": f"llm:apps/Deployment:{NAMESPACE}/owned-3"}},
            "Argo CD reverts a live edit of Deployment/owned-3",
            True,
        ),
        (
            "test",
            {
                "ownerReferences": [
                    {
                        "apiVersion": "example.com/v1",
                        "kind": "Chat",
                        "name": "c",
                        "uid": "u",
                        "controller": True,
                    }
                ]
            },
            "Deployment/owned-4 is made by Chat/c, whose controller sets it back: change it there",
            True,
        ),
    ],
)
def test_who_else_has_a_hand_in_it(
    manager: str, metadata: dict, told: str, refuses: bool, scene: Scene
) -> None:
    names = {"helm": "owned-0", "kubectl-client-side-apply": "owned-1", "argocd-controller": "owned-2"}
    name = names.get(manager, "owned-3" if "annotations" in metadata else "owned-4")
    raw = workload(name, metadata=copy.deepcopy(metadata))
    if "ownerReferences" in metadata:
        # The garbage collector would delete the child of an owner that isn't there.
        raw["metadata"]["finalizers"] = ["tests.example.com/kept"]
    scene.apply(raw, manager)
    wishes = {"engine_args": {"max_model_len": 4096}}
    if refuses:
        refused = scene.refused("Deployment", name, **wishes)
        assert told in str(refused)
        assert refused.result["patch"]
        assert '"8192"' in scene.spec("Deployment", name)
    else:
        done = scene.do("Deployment", name, **wishes)
        assert [text for text in done["warnings"] if told in text], done["warnings"]
    if "ownerReferences" in metadata:
        patch = json.dumps({"metadata": {"finalizers": None}})
        scene.kubectl("patch", "deployment", name, "-n", NAMESPACE, "--type=merge", "-p", patch)


def test_paused_and_rolling_objects(scene: Scene) -> None:
    scene.apply(workload("paused", paused=True))
    wishes = {"engine_args": {"max_model_len": 4096}}
    assert "Deployment/paused is paused: resume it" in str(scene.refused("Deployment", "paused", **wishes))
    # A pod that no node takes never becomes one of the newest revision that counts as available; the other isn't made.
    scene.apply(workload("rolling", replicas=2))
    scene.wait_for_pods("rolling", 2)
    stuck = workload("rolling", container(image="vllm/vllm-openai:v0.19.2"), replicas=2, minReadySeconds=60)
    stuck["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    scene.apply(stuck)
    wait_for(
        "a pod of the new revision",
        lambda: scene.get("Deployment", "rolling")["status"].get("updatedReplicas") == 1,
    )
    refused = scene.refused("Deployment", "rolling", **wishes)
    assert "a rollout of Deployment/rolling hasn't ended (1 of 2 pods are of the newest revision)" in str(
        refused
    )
    generation = scene.get("Deployment", "rolling")["metadata"]["generation"]
    done = scene.do("Deployment", "rolling", expected={"generation": generation}, **wishes)
    assert done["mode"] == "written"


# --- bad input


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"resources": {"limits": {"memory": "24Mi"}}, "max_memory": "24Mi"}, "max_memory of 24Mi is below the container's memory request of 32Mi"),
        ({"resources": {"limits": {"memory": "24Mi"}}}, "resources.limits.memory of 24Mi would be below the request of 32Mi"),
        ({"resources": {"limits": {"memory": "2Gi"}}, "max_memory": "1Gi"}, "resources.limits.memory of 2Gi is above the ceiling max_memory of 1Gi"),
        ({"engine_args": {"max_modle_len": 1}}, "--max-modle-len is no option of vLLM that is known here (nearest: --max-model-len"),
        ({"engine_args": {"swap_space": 4}}, "vLLM 0.19.1 has no option --swap-space (it was removed after 0.17)"),
        ({"engine_args": {"mm_ipc_gpu_memory_gb": 4}}, "vLLM 0.19.1 has no option --mm-ipc-gpu-memory-gb (it came with 0.25)"),
        ({"engine_args": {"max_model_len": "many"}}, "'many' is no value for --max-model-len"),
        ({"resources": {"limits": {"memory": "64GB"}}}, "'64GB' is no Kubernetes quantity"),
        ({"env": {"HF_TOKEN": "x"}}, "HF_TOKEN holds a secret"),
        ({"container": "vlm", "env": {"A": "1"}}, "has no container 'vlm': it has proxy, vllm"),
        ({"changes": [{"target": "action", "name": "free_gpu", "value": None}]}, "only a person can"),
    ],
)  # fmt: skip
def test_wrong_wishes_are_told_in_one_sentence(wishes: dict, sentence: str, scene: Scene) -> None:
    if not scene.kubectl("get", "deployment", "wrong", "-n", NAMESPACE, "--ignore-not-found"):
        scene.apply(workload("wrong"))
    with pytest.raises(DocumentError) as refused:
        scene.do("Deployment", "wrong", **wishes)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert scene.notes("Deployment", "wrong") == (None, [])


@pytest.mark.parametrize(
    ("kind", "name", "options", "sentence"),
    [
        ("Deployment", "wrnog", {}, "there is no Deployment wrnog in namespace"),
        ("Widget", "w", {"api_version": "example.com/v1"}, "nothing is known of Widget in example.com/v1"),
        (
            "InferenceService",
            "w",
            {},
            "InferenceService is no kind of Kubernetes itself: give its api_version",
        ),
        ("Deployment", "Wrong!", {}, "'Wrong!' is no name"),
    ],
)
def test_objects_that_are_not_there(kind: str, name: str, options: dict, sentence: str, scene: Scene) -> None:
    with pytest.raises(DocumentError) as refused:
        scene.do(kind, name, env={"A": "1"}, **options)
    assert sentence in str(refused.value)


def test_pods_jobs_and_kinds_without_a_rule_get_a_patch_and_no_write(scene: Scene) -> None:
    template = workload("x")["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone", "namespace": NAMESPACE},
        "spec": template["spec"],
    }
    job = copy.deepcopy(template)
    job["spec"]["restartPolicy"] = "Never"
    scene.kubectl.apply([
        pod,
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": NAMESPACE}, "spec": {"suspend": True, "template": job}},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": NAMESPACE},
         "spec": {"schedule": "0 3 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": job}}}},
    ])  # fmt: skip
    for kind, name, words in (
        ("Pod", "alone", "its pod template can't be changed in place"),
        ("Job", "once", "its pod template can't be changed in place"),
        ("CronJob", "nightly", "live writes to CronJob of batch/v1 aren't tested"),
    ):
        refused = scene.refused(kind, name, engine_args={"max_model_len": 4096})
        assert words in str(refused)
        assert refused.result["patch"][-1]["value"] == "4096"


# --- kinds of operators


ENGINE_ARGS = ["--api-key", KEY, "--max-model-len", "8192"]
PLAIN = {
    "name": "vllm",
    "image": IMAGE,
    **LIST,
    "resources": {"limits": {"memory": "64Gi", "nvidia.com/gpu": "4"}},
}
# What a person writes for each, the changes that its fields can hold, and some text that it has afterwards.
OPERATED = {
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        {
            "replicas": 1,
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}},
            "leaderWorkerTemplate": {
                "size": 2,
                "leaderTemplate": {"metadata": {"labels": {"role": "leader"}}, "spec": {"containers": [PLAIN]}},
                "workerTemplate": {"spec": {"containers": [{"name": "vllm", "image": IMAGE, **SHELL}]}},
            },
        },
        {
            "engine_args": {"max_model_len": 4096},
            "env": {"OMP_NUM_THREADS": "4"},
            "resources": {"limits": {"memory": "96Gi"}},
            "shm_size": "16Gi",
            "strategy": {"max_surge": 0, "max_unavailable": 2},
        },
        ["--max-model-len 4096", '"4096"'],
    ),
    "InferenceService": (
        "serving.kserve.io/v1beta1",
        {
            "predictor": {
                "minReplicas": 1,
                "model": {
                    "modelFormat": {"name": "huggingface"},
                    "storageUri": "hf://meta-llama/Llama-3.1-8B-Instruct",
                    "args": ENGINE_ARGS,
                    "env": [{"name": "HF_TOKEN", "value": TOKEN}],
                    "resources": {"limits": {"memory": "32Gi", "nvidia.com/gpu": "1"}},
                },
            }
        },
        {
            "engine_args": {"max_model_len": 4096, "enforce_eager": True},
            "env": {"OMP_NUM_THREADS": "4"},
            "resources": {"limits": {"memory": "48Gi"}, "requests": {"memory": "48Gi"}},
        },
        ['"4096"', "--enforce-eager"],
    ),
    "LLMInferenceService": (
        "serving.kserve.io/v1alpha2",
        {
            "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
            "template": {"containers": [{"name": "main", "args": ENGINE_ARGS, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        },
        {"engine_args": {"max_model_len": 4096}, "resources": {"limits": {"memory": "48Gi"}}, "shm_size": "16Gi"},
        ['"4096"', "dshm"],
    ),
    "VLLMRuntime": (
        "production-stack.vllm.ai/v1alpha1",
        {
            "model": {"modelURL": "meta-llama/Llama-3.1-8B-Instruct", "maxModelLen": 8192, "maxNumSeqs": 256},
            "vllmConfig": {
                "gpuMemoryUtilization": "0.9",
                "extraArgs": ["--api-key", KEY],
                "env": [{"name": "HF_TOKEN", "value": TOKEN}],
            },
            "deploymentConfig": {"resources": {"cpu": "8", "memory": "32Gi", "gpu": "1"}},
        },
        {
            "engine_args": {"max_model_len": 4096, "gpu_memory_utilization": 0.95, "enforce_eager": True},
            "env": {"OMP_NUM_THREADS": "4"},
            "resources": {"limits": {"memory": "48Gi"}},
            "shm_size": "16Gi",
        },
        ['"maxModelLen": 4096', '"0.95"', "--enforce-eager", '"shmSize": "16Gi"'],
    ),
    "NIMService": (
        "apps.nvidia.com/v1alpha1",
        {
            "image": {"repository": "nvcr.io/nim/meta/llama-3.1-8b-instruct", "tag": "1.8.3"},
            "env": [{"name": "NIM_MAX_MODEL_LEN", "value": "8192"}, {"name": "HF_TOKEN", "value": TOKEN}],
            "resources": {"limits": {"memory": "32Gi", "nvidia.com/gpu": 1}},
            "storage": {"sharedMemorySizeLimit": "8Gi", "nimCache": {"name": "c"}},
            "note": KEY,
        },
        {"engine_args": {"max_model_len": 4096}, "resources": {"limits": {"memory": "48Gi"}}, "shm_size": "16Gi"},
        ['"4096"', '"sharedMemorySizeLimit": "16Gi"'],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def operated(scene: Scene, kubectl: Kubectl) -> None:
    kinds.install(kubectl)


@pytest.mark.parametrize("kind", OPERATED)
@pytest.mark.usefixtures("operated")
def test_kinds_of_operators_are_written_at_the_top_and_taken_back(
    kind: str, scene: Scene, audit: Audit
) -> None:
    api_version, spec, wishes, texts = OPERATED[kind]
    about = {"name": "top", "namespace": NAMESPACE}
    scene.kubectl.apply([{"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec}])
    before = scene.spec(f"{kind}.{api_version.partition('/')[0]}", "top")
    wishes = {"api_version": api_version, **wishes}
    shown = scene.do(kind, "top", check=True, **wishes)
    done = scene.do(kind, "top", run="r", **wishes)
    assert (shown["mode"], done["mode"], done["diff"]) == ("dry_run", "written", shown["diff"])
    changed = scene.spec(f"{kind}.{api_version.partition('/')[0]}", "top")
    for text in (*texts, KEY):
        assert text in changed, text
    mark = audit.mark()
    assert scene.do(kind, "top", run="r", **wishes)["mode"] == "unchanged"
    assert verbs(audit, mark, "top") == ["get"]
    scene.do(kind, "top", api_version=api_version, state="restored", run="r")
    assert scene.spec(f"{kind}.{api_version.partition('/')[0]}", "top") == before


@pytest.mark.usefixtures("operated")
def test_a_kind_without_a_rule_gets_a_patch(scene: Scene) -> None:
    spec = {"url": "hf://m", "engine": "VLLM", "resourceProfile": "gpu:1", "args": ["--max-model-len=8192"]}
    scene.kubectl.apply([
        {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "m", "namespace": NAMESPACE}, "spec": spec}
    ])  # fmt: skip
    refused = scene.refused("Model", "m", api_version="kubeai.org/v1", engine_args={"max_model_len": 4096})
    assert "live writes to Model of kubeai.org/v1 aren't tested, so nothing is written" in str(refused)
    assert refused.result["patch"][-1] == {
        "op": "replace",
        "path": "/spec/args/0",
        "value": "--max-model-len=4096",
    }


# --- what the namespace lets in


@pytest.fixture
def ruled(kubectl: Kubectl, scene: Scene) -> Iterator:
    """``ruled(object)`` makes a quota or a limit range, which goes after the test."""
    made: list[dict] = []

    def make(kind: str, spec: dict) -> None:
        rule = {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": "rule", "namespace": NAMESPACE},
            "spec": spec,
        }
        kubectl.apply([rule])
        made.append(rule)
        if kind == "ResourceQuota":
            wait_for(
                "the quota's count",
                lambda: kubectl.get("resourcequota", "rule", "-n", NAMESPACE).get("status", {}).get("used"),
            )

    yield make
    for rule in made:
        kubectl("delete", rule["kind"].lower(), "rule", "-n", NAMESPACE)


def test_a_limit_range_speaks_before_anything_is_written(scene: Scene, ruled) -> None:
    scene.apply(workload("ranged"))
    before = scene.spec("Deployment", "ranged")
    ruled(
        "LimitRange",
        {
            "limits": [
                {
                    "type": "Container",
                    "max": {"memory": "1Gi"},
                    "default": {"memory": "1Gi"},
                    "defaultRequest": {"memory": "1Mi"},
                }
            ]
        },
    )
    for check in (True, False):
        refused = scene.refused("Deployment", "ranged", check=check, **LIMITS)
        assert (
            f"namespace {NAMESPACE} would refuse its pods: maximum memory usage per Container is 1Gi, but limit is 64Gi"
            in str(refused)
        )
    assert scene.spec("Deployment", "ranged") == before
    assert (
        scene.do("Deployment", "ranged", check=True, resources={"limits": {"memory": "900Mi"}})["mode"]
        == "dry_run"
    )


@pytest.mark.parametrize(
    ("strategy", "how"),
    [
        ({"strategy": "Recreate"}, "strategy Recreate"),
        ({"strategy": {"max_surge": 0, "max_unavailable": 1}}, "maxSurge 0"),
        ({}, None),
    ],
    ids=["recreate", "no-surge", "surge"],
)
def test_a_quota_that_only_the_old_pod_fills(strategy: dict, how: str | None, scene: Scene, ruled) -> None:
    name = f"quota-{'surge' if how is None else how.split()[-1].lower()}"
    scene.apply(workload(name, replicas=1))
    scene.wait_for_pods(name, 1)
    used = sum(1 for pod in scene.kubectl.items("pods", "-n", NAMESPACE) if pod["spec"].get("containers"))
    ruled("ResourceQuota", {"hard": {"requests.nvidia.com/gpu": str(used)}})
    counted = {"hard": {"requests.nvidia.com/gpu": str(used)}}
    wait_for(
        "the quota's count",
        lambda: scene.kubectl.get("resourcequota", "rule", "-n", NAMESPACE)["status"]["used"].get(
            "requests.nvidia.com/gpu"
        ),
    )
    now = scene.kubectl.get("resourcequota", "rule", "-n", NAMESPACE)["status"]["used"][
        "requests.nvidia.com/gpu"
    ]
    if now != str(used):
        counted["hard"]["requests.nvidia.com/gpu"] = now
        scene.kubectl(
            "patch",
            "resourcequota",
            "rule",
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            json.dumps({"spec": counted}),
        )
        wait_for(
            "the quota's size",
            lambda: (
                scene.kubectl.get("resourcequota", "rule", "-n", NAMESPACE)["status"]["hard"][
                    "requests.nvidia.com/gpu"
                ]
                == now
            ),
        )
    wishes = {"engine_args": {"max_model_len": 4096}, **strategy}
    if how is None:
        refused = scene.refused("Deployment", name, check=True, **wishes)
        assert (
            f"ResourceQuota rule would refuse its pods (requests.nvidia.com/gpu: a pod asks for 1, {now} of {now} are used)"
            in str(refused)
        )
    else:
        shown = scene.do("Deployment", name, check=True, **wishes)
        (note,) = [text for text in shown["warnings"] if "quota" in text]
        assert f"the rollout deletes them first ({how}), which frees requests.nvidia.com/gpu=1" in note


def test_a_quota_that_demands_the_limit_that_is_to_go(scene: Scene, ruled) -> None:
    limits = {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    raw = workload("demanded", container(resources=limits))
    raw["spec"]["template"]["spec"]["containers"][0]["resources"] = limits
    scene.apply(raw)
    ruled("ResourceQuota", {"hard": {"limits.cpu": "1000"}})
    refused = scene.refused("Deployment", "demanded", check=True, resources={"limits": {"cpu": None}})
    assert "failed quota: rule: must specify limits.cpu for: vllm" in str(refused)
