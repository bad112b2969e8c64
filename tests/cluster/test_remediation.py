# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""remediate-oom.yml and rollback_oom on engines that have really died: one namespace each, one run for all in it.

All scenes are staged together, and the runs of the namespaces go on beside each other. What a run did is read from the
API server: the objects before and after, and its audit log.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from harness import REMEDIATE, ROLLBACK, Audit, Kubectl, Run, Runbook, wait_for
from manifests import in_namespace, terminations
from remediation_scenes import (
    API_KEY,
    Scene,
    by_name,
    gpu_scenes,
    host_scenes,
    probe_scenes,
    scenes_without_a_cure,
    scenes_without_permission,
    shm_scenes,
)
from testcluster import HOME

pytestmark = [pytest.mark.kubelet, pytest.mark.ours]

SETTLED_WITHIN_S = 60
NOT_RECORDED = 2  # the stand-in's exit code for what no recorded start-up tells
# Everything that can be allowed but a restart of what serves.
PERMITTED = {
    "max_memory": "12Gi",
    "max_gpus": 4,
    "min_model_len": 1024,
    "min_concurrency": 1,
    "timeout": "60s",
    "soak": "3s",
}
KEY = {"VLLM_OOM_API_KEY": API_KEY}
# The scenes by the part of their namespace's name.
STAGED = {
    "settings": by_name(host_scenes, probe_scenes),
    "shm": by_name(shm_scenes),
    "gpu": by_name(gpu_scenes),
    "incurable": by_name(scenes_without_a_cure),
    "unpermitted": by_name(scenes_without_permission),
}
CURABLE = ("settings", "shm", "gpu")
WRITES = ("create", "update", "patch", "delete", "deletecollection")


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass
class State:
    """An object as the API server has it."""

    spec: str
    generation: int
    template: str
    annotations: dict


@dataclass
class Stage:
    """The scenes of one namespace, what was run on them, and how the objects were before it and after each run."""

    kubectl: Kubectl
    audit: Audit
    name: str
    scenes: Mapping[str, Scene]
    runs: dict[str, Run] = field(default_factory=dict)
    states: dict[str, dict[str, State]] = field(default_factory=dict)
    written: dict[str, list[dict]] = field(default_factory=dict)
    error: BaseException | None = None

    def up(self) -> None:
        self.kubectl("create", "namespace", self.name)
        self.kubectl("wait", "--for=create", "serviceaccount/default", "-n", self.name, "--timeout=30s")
        self.kubectl.apply(in_namespace((scene.object for scene in self.scenes.values()), self.name))

    def down(self) -> None:
        self.kubectl("delete", "namespace", self.name, "--wait=false")

    def pods(self, name: str) -> list[dict]:
        return self.kubectl.items("pods", "-n", self.name, "-l", f"app={name}")

    def settle(self) -> None:
        for scene in self.scenes.values():
            wait_for(
                f"{scene.name} has happened", lambda s=scene: s.settled(self.pods(s.name)), SETTLED_WITHIN_S
            )
            if scene.act:
                scene.act(self.kubectl, *self.pods(scene.name))
                wait_for(
                    f"{scene.name} has happened, after what was done to it",
                    lambda s=scene: s.after(self.pods(s.name)),
                    SETTLED_WITHIN_S,
                )

    def look(self, when: str) -> None:
        """Keep how the objects are, and fail where the stand-in could not play what came of a change."""
        found = {}
        for kind in ("deployments", "statefulsets", "daemonsets"):
            for item in self.kubectl.items(kind, "-n", self.name):
                metadata, spec = item["metadata"], item["spec"]
                found[metadata["name"]] = State(
                    canonical(spec),
                    metadata["generation"],
                    canonical(spec["template"]),
                    metadata.get("annotations", {}),
                )
        self.states[when] = found
        unknown = [
            pod["metadata"]["name"]
            for pod in self.kubectl.items("pods", "-n", self.name)
            if any(end["exitCode"] == NOT_RECORDED for end in terminations(pod))
        ]
        assert not unknown, f"the stand-in can't play {unknown}"

    def run(self, when: str, runbook: Runbook, playbook: str = REMEDIATE, **options) -> Run:
        mark = self.audit.mark()
        run = runbook.finish(*runbook.start(playbook=playbook, namespace=self.name, env=KEY, **options))
        self.runs[when] = run
        self.written[when] = [entry for entry in self.audit.since(mark) if wrote(entry, self.name)]
        self.look(when)
        return run

    def changed(self, when: str, name: str) -> bool:
        return any(f"/{name}" in entry["requestURI"] for entry in self.written[when])


def wrote(entry: Mapping, namespace: str) -> bool:
    """Whether a request changed something for good: no dry run, no question about rights, no port-forward."""
    uri = entry["requestURI"]
    return (
        entry["verb"] in WRITES
        and f"/namespaces/{namespace}/" in uri
        and "dryRun=" not in uri
        and "selfsubject" not in uri
        and "/portforward" not in uri
    )


@pytest.fixture(scope="module")
def stages(kubectl: Kubectl, audit: Audit, runbook: Runbook) -> Iterator[dict[str, Stage]]:
    """What was done to each namespace, a few beside each other."""
    found = {
        name: Stage(kubectl, audit, f"remedy-{name}-{os.getpid()}", scenes) for name, scenes in STAGED.items()
    }
    for stage in found.values():
        stage.up()

    def cure(*curing: Stage) -> None:
        for stage in curing:
            stage.run("check", runbook, options=["--check", "--diff"], apply=True, **PERMITTED)
            stage.run("apply", runbook, options=["--diff"], apply=True, **PERMITTED)
            stage.run("again", runbook, apply=True, **PERMITTED)
            stage.run("rollback", runbook, ROLLBACK)

    def refuse(*refusing: Stage) -> None:
        for stage in refusing:
            allowed = PERMITTED if stage is found["incurable"] else {"timeout": "30s"}
            stage.run("apply", runbook, apply=True, **allowed)

    def work(what: Callable, *on: Stage) -> threading.Thread:
        def safely() -> None:
            try:
                for stage in on:
                    stage.settle()
                    stage.look("before")
                what(*on)
            except BaseException as error:  # shown by the tests of those namespaces
                for stage in on:
                    stage.error = error

        thread = threading.Thread(target=safely)
        thread.start()
        return thread

    # The node's memory holds what those of "settings" ask for, and not that of "shm" beside it.
    threads = [work(cure, found["settings"], found["shm"]), work(cure, found["gpu"])]
    threads.append(work(refuse, found["incurable"], found["unpermitted"]))
    for thread in threads:
        thread.join()
    yield found
    for stage in found.values():
        stage.down()


CURED = [(where, name) for where in CURABLE for name in STAGED[where]]
REFUSED = [(where, name) for where in ("incurable", "unpermitted") for name in STAGED[where]]
of_the_cured = pytest.mark.parametrize(("where", "name"), CURED)
of_the_refused = pytest.mark.parametrize(("where", "name"), REFUSED)
of_all = pytest.mark.parametrize(("where", "name"), CURED + REFUSED)


def stage_of(stages: Mapping[str, Stage], where: str, run: str) -> Stage:
    stage = stages[where]
    if run not in stage.runs and stage.error:
        raise stage.error
    if run not in stage.runs:
        raise AssertionError(f"{stage.name}: there was no run {run}")
    return stage


def changes_of(became: Mapping) -> list[dict]:
    """The changes of an outcome that were written, in order; the rollout's strategy is no change of the engine."""
    return [
        change
        for attempt in became["attempts"]
        if attempt["written"] and attempt["written"]["changed"]
        for change in attempt["changes"]
        if change["name"] != "strategy"
    ]


def test_every_death_of_the_stand_in_is_staged():
    """The table of programs/engine/settings.go, which has each with the phase that it comes in."""
    source = (HOME / "programs" / "engine" / "settings.go").read_text()
    table = re.search(r"^var naturalPhase = map\[string\]phase\{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    known = set(re.findall(r'"(\w+)":', table.group(1)))
    assert {"none", "host_oom", "cpu"} < known
    staged = {death for scenes in STAGED.values() for scene in scenes.values() for death in scene.deaths}
    assert staged == known


@of_all
def test_the_plan_is_against_what_it_died_of(stages, where, name):
    run = stage_of(stages, where, "apply").runs["apply"]
    scene = stages[where].scenes[name]
    planned = run.planned(name)
    if scene.cause:
        assert planned["causes"][0] == scene.cause, planned["causes"]
    # What is wrong by its mechanism isn't planned against it, not even where nobody has allowed it.
    against = [
        item["change"]
        for item in planned["changes"]
        if item["role"] == "trigger" and item["state"] != "advised"
    ]
    wrong = [
        change
        for change in against
        if {change["name"], f"{change['name']} {change['direction']}"} & set(scene.never)
    ]
    assert not wrong, wrong


@of_the_cured
def test_it_serves_a_token_after_the_change_that_its_mechanism_asks_for(stages, where, name):
    stage = stage_of(stages, where, "apply")
    scene, became = stage.scenes[name], stage.runs["apply"].became(name)
    assert became["verdict"] == scene.verdict, became["sentence"]
    changes = changes_of(became)
    names = {change["name"] for change in changes}
    assert names & set(scene.needs or scene.remedies), changes
    for change in changes:
        assert change["name"] in scene.remedies, change
        assert scene.remedies[change["name"]](change["after"]), change
    assert stage.changed("apply", name)
    assert became["first_failure"]["cause"] == scene.cause
    assert became["undo"]


@of_the_cured
def test_a_second_run_changes_nothing(stages, where, name):
    stage = stage_of(stages, where, "again")
    assert stage.runs["again"].rc == 0, stage.runs["again"].output
    assert not stage.changed("again", name), stage.written["again"]
    assert stage.states["again"][name] == stage.states["apply"][name]


@of_the_cured
def test_a_check_run_writes_nothing_and_shows_what_is_then_done(stages, where, name):
    stage = stage_of(stages, where, "apply")
    assert stage.runs["check"].rc == 0, stage.runs["check"].output
    assert stage.written["check"] == []
    assert stage.states["check"] == stage.states["before"]
    shown = diffs(stage.runs["check"].output)
    assert shown, "no diff was shown"
    assert diff_of(shown, name) == diff_of(diffs(stage.runs["apply"].output), name)


def diffs(output: str) -> list[str]:
    """The unified diffs of a run's output, in order, each from its header to the next empty line."""
    return [
        found.group(0)
        for found in re.finditer(r"^--- .*\n\+\+\+ .*\n(?:[ @+\\-].*\n)+", output, re.MULTILINE)
    ]


def diff_of(found: list[str], name: str) -> str:
    mine = [text for text in found if re.search(rf"[/ ]{re.escape(name)}\b", text.splitlines()[0])]
    assert len(mine) == 1, f"{len(mine)} diffs of {name} among {[text.splitlines()[0] for text in found]}"
    return mine[0]


@of_the_cured
def test_taken_back_it_is_as_it_was(stages, where, name):
    stage = stage_of(stages, where, "rollback")
    assert stage.runs["rollback"].rc == 0, stage.runs["rollback"].output
    before, after = stage.states["before"][name], stage.states["rollback"][name]
    assert after.spec == before.spec
    assert after.generation > before.generation
    assert {key: value for key, value in after.annotations.items() if "vllm-runbook.oom" in key} == {}


@of_the_refused
def test_what_has_no_cure_or_no_permission_stays_as_it_is(stages, where, name):
    stage = stage_of(stages, where, "apply")
    scene, run = stage.scenes[name], stage.runs["apply"]
    became = run.became(name)
    assert became["verdict"] == scene.verdict, became["sentence"]
    assert stage.states["apply"][name].spec == stage.states["before"][name].spec
    if not scene.remedies:
        assert not stage.changed("apply", name)
        assert changes_of(became) == []
        assert stage.states["apply"][name].generation == stage.states["before"][name].generation
    else:
        for change in changes_of(became):
            assert change["name"] in scene.remedies, change
    said = became["sentence"] + json.dumps(run.planned(name))
    for text in scene.says:
        assert text in said, said


def test_nothing_shows_the_key(stages):
    stage = stage_of(stages, "settings", "rollback")
    for when, run in stage.runs.items():
        shown = run.output + run.report + json.dumps([run.evidence, run.diagnosis, run.plan, run.outcome])
        assert API_KEY not in shown, when
    for when, state in stage.states.items():
        assert API_KEY in state["host"].spec, when
        assert API_KEY not in json.dumps(state["host"].annotations), when
