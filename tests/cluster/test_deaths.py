# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""diagnose-oom.yml on pods that have really died, each in its own way: right cause, memory and trigger."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from harness import wait_for, wait_for_metrics
from manifests import counted, ended, engine, in_namespace, owner, pod_spec, ready, restarted, terminations
from scenes import FAST, OUT_OF_MEMORY, PRESSED, READY, Answer, Scene, all_scenes

pytestmark = pytest.mark.kubelet

SCENES = {scene.name: scene for scene in all_scenes()}
NAMESPACE = f"deaths-{os.getpid()}"
SETTLED_WITHIN_S = 100
# The stand-in's exit code for what no recorded start-up tells (it says so in its log).
NOT_RECORDED = 2
CONFIDENCES = ("possible", "likely", "certain")


class Stage:
    """All scenes, started together, so that their restarts pass while other tests run."""

    def __init__(self, cluster, kubectl):
        self.kubectl = kubectl
        self.namespace = NAMESPACE
        existing = {node.settings.name for node in cluster.nodes()}
        for settings in (FAST, PRESSED, OUT_OF_MEMORY):
            if settings.name not in existing:
                cluster.add_node(settings)
        kubectl("create", "namespace", NAMESPACE)
        kubectl.apply(in_namespace((item for s in SCENES.values() for item in s.objects), NAMESPACE))

    def pods(self, name: str) -> list[dict]:
        return self.kubectl.items("pods", "-n", NAMESPACE, "-l", f"app={name}")

    def seen(self, scene: Scene, condition: Callable[[list[dict]], bool]) -> bool:
        """Whether the condition holds; fails at once where the stand-in can't play the scene."""
        pods = self.pods(scene.name)
        for item in pods:
            if any(end["exitCode"] == NOT_RECORDED for end in terminations(item)):
                name = item["metadata"]["name"]
                log = self.kubectl(
                    "logs", name, "-n", self.namespace, "--tail=3", "--all-containers", check=False
                )
                raise AssertionError(f"the stand-in can't play {name}: {log}")
        return condition(pods)

    def settle(self, scene: Scene) -> None:
        """Wait until the scene has happened."""
        wait_for(f"{scene.name} has happened", lambda: self.seen(scene, scene.settled), SETTLED_WITHIN_S)
        if scene.act:
            scene.act(self, self.pods(scene.name))
            what = f"{scene.name} has happened, after what was done to it"
            wait_for(what, lambda: self.seen(scene, scene.after), SETTLED_WITHIN_S)

    def clear(self, scene: Scene) -> None:
        """Take the scene away, so that its restarts don't keep the machine busy."""
        objects = in_namespace(scene.objects, self.namespace)
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("delete", "--wait=false", "-f", "-", stdin=json.dumps(items), check=False)


@pytest.fixture(scope="module")
def stage(cluster, kubectl):
    staged = Stage(cluster, kubectl)
    yield staged
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("name", SCENES)
def test_a_death_is_told_for_what_it_was(stage, runbook, name):
    scene = SCENES[name]
    stage.settle(scene)
    if "exec" in scene.ask:
        wait_for_metrics(stage.kubectl, NAMESPACE, name)
    run = runbook(namespace=NAMESPACE, selector=f"app={name}", **scene.ask)
    for suffix, answer in scene.answers.items():
        check(run.pod(f"{name}{suffix}"), answer)
    assert scene.also(run.diagnosis), {key: run.diagnosis[key] for key in ("groups", "workloads")}
    stage.clear(scene)


def check(pod: dict, answer: Answer) -> None:
    """Compare a pod's diagnosis with the right answer; the message shows what was said instead."""
    verdict = pod["verdict"]
    said = f"{pod['name']}: {verdict}"
    assert (verdict["cause"], verdict["memory"], verdict["is_memory"]) == (
        answer.cause,
        answer.memory,
        answer.is_memory,
    ), said
    trigger = next((finding for finding in pod["findings"] if finding["role"] == "trigger"), None)
    if trigger:
        quoted = " ".join(proof["text"] or "" for proof in trigger["evidence"])
        assert answer.trigger in quoted, quoted
        assert trigger["container"] in (answer.container, None), trigger
        assert CONFIDENCES.index(trigger["confidence"]) <= CONFIDENCES.index(answer.at_most), trigger
    explained = f"{verdict['sentence']} {trigger['explanation'] if trigger else ''}"
    for text in answer.says:
        assert text in explained, said


def test_of_a_pod_that_its_deployment_has_replaced_only_events_are_left(
    kubectl, runbook, namespace, tmp_path
):
    """Two OOM kills, then somebody deletes the pod; the next one finds the counter of the starts and lives."""
    container = counted(engine(deaths="host_oom,host_oom,none", memory="96Mi", readinessProbe=READY))
    volumes = [{"name": "state", "hostPath": {"path": str(tmp_path)}}]
    kubectl.apply(
        in_namespace([owner("Deployment", "replaced", pod_spec(container, volumes=volumes))], namespace)
    )

    def pods() -> list[dict]:
        return kubectl.items("pods", "-n", namespace)

    wait_for("two kills", lambda: restarted(1)(pods()) and ended(reason="OOMKilled")(pods()))
    gone = pods()[0]["metadata"]["name"]
    wait_for("the event of the second", lambda: "BackOff" in kubectl("get", "events", "-n", namespace))
    kubectl("delete", "pod", gone, "-n", namespace)
    wait_for("the next pod serves", lambda: ready()(pods()))

    run = runbook(namespace=namespace)
    (entry,) = run.unreadable(gone)
    assert "gone with its logs; its last event is BackOff" in entry["reason"]
    # It is named to the user too, and nothing is made up about it. The one that lives now is well.
    assert gone in run.report
    assert run.diagnosis["pods"] == []
    assert run.evidence["counts"] == {"pods_seen": 1, "engines": 1, "suspicious": 0}
