# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""remediate-oom.yml while something else goes on: another run, a kill, a deleted pod, a cordoned node, an image that can't
be pulled, an API server that goes away; a second death behind the first one; limits that can't be met.

The cases go on beside each other, each with a namespace and an object of its own.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import REMEDIATE, ROLLBACK, Kubectl, Run, Runbook, api_server_stopped, wait_for
from manifests import in_namespace, runs_for
from remediation_scenes import BY_PROBE, KILLED, ROOMY, engine_of, owned_by

pytestmark = [pytest.mark.kubelet, pytest.mark.ours]

PENDING, UNDO = "vllm-runbook.oom/pending", "vllm-runbook.oom/undo"
AT_ONCE = 3
TIMES = {"timeout": "60s", "soak": "1s"}


@dataclass
class Place:
    """One Deployment whose engine has died, alone in its namespace."""

    kubectl: Kubectl
    runbook: Runbook
    namespace: str
    name: str

    def object(self) -> dict:
        return self.kubectl.get("deployment", self.name, "-n", self.namespace)

    def spec(self) -> str:
        return json.dumps(self.object()["spec"], sort_keys=True)

    def generation(self) -> int:
        return self.object()["metadata"]["generation"]

    def note(self, annotation: str) -> dict | None:
        text = self.object()["metadata"].get("annotations", {}).get(annotation)
        return json.loads(text) if text else None

    def pods(self) -> list[dict]:
        return self.kubectl.items("pods", "-n", self.namespace)

    def start(self, **options) -> tuple[subprocess.Popen, Path]:
        given = {"playbook": REMEDIATE, "namespace": self.namespace, "apply": True, **TIMES, **options}
        return self.runbook.start(**given)

    def remediate(self, **options) -> Run:
        return self.runbook.finish(*self.start(**options))

    def written(self) -> None:
        """Until a run has changed the object."""
        wait_for(f"a run has changed {self.name}", lambda: self.note(PENDING), seconds=90, every=0.1)

    def new_pod(self, old: set[str]) -> str:
        def look() -> str | None:
            names = {pod["metadata"]["name"] for pod in self.pods() if pod["metadata"]["uid"] not in old}
            return next(iter(names), None)

        return wait_for(f"a new pod of {self.name}", look, every=0.1)

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods()}


def slow(name: str, **options) -> dict:
    """An engine whose probe gives up too early: what cures it is written at once, and takes a while to be seen."""
    return owned_by(name, engine_of(deaths="slow:4", startup=2, **options))


# --- the cases. Each returns what its test looks at.


def two_runs_at_once(place: Place) -> None:
    started = [place.start(), place.start()]
    runs = [place.runbook.finish(*run) for run in started]
    outcomes = [run.became(place.name) for run in runs]
    (winner,) = [became for became in outcomes if became["verdict"] == "served"]
    (other,) = [became for became in outcomes if became is not winner]
    assert not any((attempt["written"] or {}).get("changed") for attempt in other["attempts"]), other
    # Who holds it, where, until when.
    record = winner["attempts"][0]["written"]
    assert record["run"] in other["sentence"], other["sentence"]
    assert len(place.note(UNDO)["records"]) == 1


def killed_between_write_and_verify(place: Place) -> None:
    started, _output = place.start()
    place.written()
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    mark, changed = place.note(PENDING), place.spec()
    (record,) = place.note(UNDO)["records"]
    assert record["run"] == mark["run"]
    assert record["verdict"] is None

    # Nobody knows yet that the run is gone.
    refused = place.remediate()
    assert mark["run"] in json.dumps(refused.outcome), refused.output
    assert place.spec() == changed

    # Minutes later its mark has run out.
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=5)
    text = json.dumps({**mark, "until": past.strftime("%Y-%m-%dT%H:%M:%SZ")})
    place.kubectl(
        "annotate", "deployment", place.name, "-n", place.namespace, "--overwrite", f"{PENDING}={text}"
    )
    run = place.remediate()
    became = run.became(place.name)
    assert became["verdict"] == "served", became["sentence"]
    # (A Deployment's generation counts changes of its annotations too.)
    assert place.spec() == changed
    assert [item["verdict"] for item in place.note(UNDO)["records"]] == ["served"]
    assert place.note(PENDING) is None


def pod_deleted(place: Place) -> None:
    old = place.uids()
    run = place.start()
    place.written()
    name = place.new_pod(old)
    # So late that the run has seen it.
    wait_for(
        f"{name} loads its model",
        lambda: runs_for(3)([pod for pod in place.pods() if pod["metadata"]["name"] == name]),
    )
    place.kubectl("delete", "pod", name, "-n", place.namespace, "--wait=false")
    done = place.runbook.finish(*run)
    assert done.became(place.name)["verdict"] == "served", done.output
    assert f"the new pod {name} is being deleted by somebody" in json.dumps(done.outcome)


def image_cannot_be_pulled(place: Place) -> None:
    run = place.start(timeout="40s")
    place.written()
    image = "docker.io/vllm/vllm-openai:v0.0.1"
    place.kubectl("set", "image", f"deployment/{place.name}", f"vllm={image}", "-n", place.namespace)
    done = place.runbook.finish(*run)
    became = done.became(place.name)
    assert became["verdict"] in ("failed", "undone"), became
    assert "ErrImageNeverPull" in json.dumps(became) or image in json.dumps(became), became["sentence"]
    # What somebody else has changed meanwhile isn't touched.
    assert place.object()["spec"]["template"]["spec"]["containers"][0]["image"] == image


def second_death_undone(place: Place) -> None:
    before = place.spec()
    done = place.remediate(min_concurrency=1)
    became = done.became(place.name)
    assert became["verdict"] == "undone", became["sentence"]
    assert done.rc != 0
    assert became["first_failure"]["cause"] == "probe_kill"
    assert became["last_failure"]["cause"] == "sampler_warmup_oom"
    assert place.spec() == before


def second_death_met_by_the_next_change(place: Place) -> None:
    before = place.spec()
    done = place.remediate(min_concurrency=1, on_failure="next")
    became = done.became(place.name)
    assert became["verdict"] == "served", became["sentence"]
    assert len(became["attempts"]) == 2
    names = [{change["name"] for change in attempt["changes"]} for attempt in became["attempts"]]
    assert "startupProbe" in names[0]
    assert "--gpu-memory-utilization" in names[1]
    back = place.runbook.finish(*place.runbook.start(playbook=ROLLBACK, namespace=place.namespace))
    assert back.rc == 0, back.output
    assert place.spec() == before


def quota_in_the_way(place: Place) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"limits.memory": "1Gi"}},
    }
    place.kubectl.apply(in_namespace([quota], place.namespace))
    wait_for(
        "the quota is counted",
        lambda: place.kubectl.get("resourcequota", "small", "-n", place.namespace)["status"].get("used"),
    )
    before = place.generation()
    became = place.remediate(max_memory="12Gi").became(place.name)
    assert "ResourceQuota small" in became["sentence"], became["sentence"]
    assert place.generation() == before


def ceiling_too_low(place: Place) -> None:
    before = place.generation()
    became = place.remediate(max_memory="1Gi").became(place.name)
    assert "above max_memory (vllm_oom_max_memory) of 1Gi" in became["sentence"], became["sentence"]
    assert place.generation() == before


HUNGRY = {"deaths": "host_oom:160", "memory": "96Mi"}
BEHIND = "slow:4+cuda_oom@warmup?gpu_memory_utilization>0.95"
CASES: Mapping[str, tuple[Callable[[Place], None], Callable[[str], dict], Callable]] = {
    "two-runs": (two_runs_at_once, slow, BY_PROBE),
    "killed": (killed_between_write_and_verify, slow, BY_PROBE),
    # Some seconds pass before it is gone.
    "deleted": (
        pod_deleted,
        lambda name: owned_by(
            name, engine_of(deaths="slow:8", startup=2, lifecycle={"preStop": {"sleep": {"seconds": 2}}})
        ),
        BY_PROBE,
    ),
    "image": (image_cannot_be_pulled, slow, BY_PROBE),
    "undone": (
        second_death_undone,
        lambda name: owned_by(name, engine_of(*ROOMY, deaths=BEHIND, startup=2)),
        BY_PROBE,
    ),
    "next": (
        second_death_met_by_the_next_change,
        lambda name: owned_by(name, engine_of(*ROOMY, deaths=BEHIND, startup=2)),
        BY_PROBE,
    ),
    "quota": (quota_in_the_way, lambda name: owned_by(name, engine_of(**HUNGRY)), KILLED),
    "ceiling": (ceiling_too_low, lambda name: owned_by(name, engine_of(**HUNGRY)), KILLED),
}


@pytest.fixture(scope="module")
def running(
    kubectl: Kubectl, runbook: Runbook, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future]]:
    """The cases that were asked for, some at a time, in the order of their tests."""
    asked = {item.name for item in request.session.items}
    names = [name for name in CASES if f"test_meanwhile[{name}]" in asked]
    places = {name: Place(kubectl, runbook, f"meanwhile-{name}-{os.getpid()}", name) for name in names}
    for name, place in places.items():
        stage(place, CASES[name][1](name))

    def work(name: str) -> None:
        settled(places[name], CASES[name][2])
        CASES[name][0](places[name])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(work, name) for name in names}
    for place in places.values():
        kubectl("delete", "namespace", place.namespace, "--wait=false")


def stage(place: Place, made: dict) -> None:
    place.kubectl("create", "namespace", place.namespace)
    place.kubectl("wait", "--for=create", "serviceaccount/default", "-n", place.namespace, "--timeout=30s")
    place.kubectl.apply(in_namespace([made], place.namespace))


def settled(place: Place, condition: Callable[[list[dict]], bool]) -> None:
    wait_for(f"{place.name} has happened", lambda: condition(place.pods()))


@pytest.mark.parametrize("name", CASES)
def test_meanwhile(running, name):
    running[name].result()


# --- what touches all of the cluster: alone


@pytest.fixture
def place(kubectl: Kubectl, runbook: Runbook, namespace: str) -> Place:
    made = Place(kubectl, runbook, namespace, "llama")
    made.kubectl.apply(in_namespace([slow("llama")], namespace))
    settled(made, BY_PROBE)
    return made


def test_a_cordoned_node_is_named_and_the_change_taken_back(place, kubectl):
    before = place.spec()
    kubectl("cordon", "gpu-node-1")
    try:
        run = place.remediate(timeout="20s")
    finally:
        kubectl("uncordon", "gpu-node-1")
    became = run.became("llama")
    assert became["verdict"] == "undone", became["sentence"]
    said = json.dumps(became)
    assert "cordoned" in said or "unschedulable" in said, said
    assert place.spec() == before


def test_an_api_server_that_goes_away_between_write_and_verify_loses_nothing(place, cluster):
    run = place.start()
    place.written()
    with api_server_stopped(cluster):
        pass
    done = place.runbook.finish(*run)
    assert done.became("llama")["verdict"] == "served", done.output
    assert [item["verdict"] for item in place.note(UNDO)["records"]] == ["served"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"max_memory": "much"}, "much"),
        ({"allow": ["everything"]}, "everything"),
        ({"on_failure": "hope"}, "hope"),
        ({"max_memroy": "1Gi"}, "max_memroy"),
        ({"min_model_len": "-4"}, "-4"),
        ({"timeout": "soon"}, "soon"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_before_anything_is_read(runbook, namespace, variables, said):
    run = runbook.finish(*runbook.start(playbook=REMEDIATE, namespace=namespace, apply=True, **variables))
    assert run.rc != 0
    told = [line for line in run.output.splitlines() if said in line]
    assert told, run.output
    assert "Traceback" not in run.output
    assert run.evidence == {}
