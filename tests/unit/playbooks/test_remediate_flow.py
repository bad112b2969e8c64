# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role remediate does in which order, and how it ends, when the cluster answers this or that.

The modules that touch a cluster, and the role verify, are stand-ins that give scripted answers and keep what they were asked;
filters, role and playbooks are those of this checkout. That the real ones answer so is held by tests/cluster.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs/examples/max-model-len"
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
STAND_IN = """
import json, os
from ansible.module_utils.basic import AnsibleModule

OPTIONS = {options!r}
module = AnsibleModule(argument_spec={{name: {{"type": "raw"}} for name in OPTIONS}}, supports_check_mode=True)
folder = os.environ["STAND_INS"]
asked = {{name: value for name, value in module.params.items() if value is not None}}
with open(f"{{folder}}/calls", "a") as calls:
    calls.write(json.dumps({{"module": {name!r}, "check": module.check_mode, **asked}}) + "\\n")
with open(f"{{folder}}/{name}.json") as script:
    by_name = json.load(script)
about = asked.get("name") or asked.get("pod")
answers = by_name[about if about in by_name else ""]
answer = answers.pop(0) if len(answers) > 1 else answers[0]
with open(f"{{folder}}/{name}.json", "w") as script:
    json.dump(by_name, script)
if answer == "break off":
    raise RuntimeError(answer)
module.fail_json(**answer) if "msg" in answer else module.exit_json(**answer)
"""
OPTIONS = {
    "workload": (
        *(
            "api_version",
            "kind",
            "name",
            "namespace",
            "container",
            "path",
            "state",
            "changes",
            "expected",
            "max_memory",
        ),
        *("causes", "run", "lease", "verdict", "restore", "kubeconfig", "context"),
    ),
    "changes_info": ("namespace", "all_namespaces", "workload", "kubeconfig", "context"),
    "serving_info": (
        *(
            "api_version",
            "kind",
            "name",
            "namespace",
            "generation",
            "since",
            "request",
            "wait",
            "kubeconfig",
            "context",
        ),
    ),
    "evidence_info": (
        *(
            "bundle",
            "namespace",
            "all_namespaces",
            "pod",
            "selector",
            "since",
            "exec",
            "kubeconfig",
            "context",
        ),
    ),
    "verification": (
        *(
            "api_version",
            "kind",
            "name",
            "namespace",
            "container",
            "since",
            "generation",
            "run",
            "causes",
            "timeout",
        ),
        *("soak", "load_requests"),
    ),
}
# The role verify is a module here: what it is given becomes a call, the answer the fact.
VERIFY = [
    {
        "name": "Answer",
        "vllm_runbook.oom.verification": {
            name: "{{ verify_" + name + " }}" for name in OPTIONS["verification"]
        },
        "register": "_verify_answer",
    },
    {"name": "Keep it", "ansible.builtin.set_fact": {"verify_outcome": "{{ _verify_answer.outcome }}"}},
]


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """A collection path on which ours has stand-ins."""
    top = tmp_path_factory.mktemp("collections")
    ours = top / "ansible_collections/vllm_runbook/oom"
    for path in ROOT.iterdir():
        if path.name in ("galaxy.yml", "meta", "playbooks", "remediate-oom.yml", "LICENSE"):
            _link(ours / path.name, path)
    for path in (ROOT / "plugins").iterdir():
        # Without the actions: they read in place of the module.
        if path.name not in ("modules", "action"):
            _link(ours / "plugins" / path.name, path)
    for path in (ROOT / "roles").iterdir():
        if path.name != "verify":
            _link(ours / "roles" / path.name, path)
    verify = ours / "roles/verify/tasks/main.yml"
    verify.parent.mkdir(parents=True)
    verify.write_text(json.dumps(VERIFY))
    modules = ours / "plugins/modules"
    modules.mkdir()
    for name, options in OPTIONS.items():
        (modules / f"{name}.py").write_text(STAND_IN.format(name=name, options=options))
    return top


def _link(link, target):
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def failed_pod(name="qwen3-32b", *, live=True, source="cluster"):
    """A pod that failed, as a cluster would have told of it."""
    found = copy.deepcopy(read_bundle(str(EXAMPLE)))
    found["source"]["kind"] = source
    (pod,) = found["pods"]
    pod["name"], pod["uid"] = f"{name}-0", f"uid-{name}-0"
    owner = {"kind": "StatefulSet", "name": name, "api_version": "apps/v1"}
    edit = dict(pod["workload"]["edit"], **owner, inferred=False, uid=f"uid-{name}", generation=1)
    pod["workload"].update(owner, edit=edit, chain=[dict(owner, read=True)])
    if not live:
        pod["workload"]["managers"] = [
            {"tool": "Argo CD", "object": f"StatefulSet/{name}", "proof": "proof", "reverts": "now"}
        ]
    return found


def together(*documents):
    found = documents[0]
    for other in documents[1:]:
        found["pods"] += other["pods"]
    return found


WRITTEN = {
    "changed": True,
    "mode": "written",
    "sentence": "It was changed.",
    "run": "of the module",
    "at": "2026-11-30T07:00:00Z",
    "object": {"generation": 2},
    "record": {"id": "r1"},
    "found": None,
    "held_by": None,
}
ENDED = {"changed": True, "mode": "written", "sentence": "It was ended."}
TRIED = dict(WRITTEN, mode="dry_run", at=None, record=None)
NOT_TRIED = {"msg": "nobody asked for this"}


def verified(verdict, sentence="That was seen.", *pods):
    return {
        "outcome": {
            "verdict": verdict,
            "verifiable": True,
            "seconds": 9.0,
            "sentence": sentence,
            "serving": {"pods": [{"name": name, "ready": False} for name in pods]},
        }
    }


NOTHING_LEFT = {"objects": [], "unreadable": []}


class Stage:
    """A place with scripted answers in which the playbook is run."""

    def __init__(self, collections, folder):
        self.collections, self.folder = collections, folder
        self.output, self.patches = folder / "out", folder / "patches"
        self.answers = {name: {"": [NOT_TRIED]} for name in OPTIONS}
        self.say(changes_info=[NOTHING_LEFT])

    def say(self, of="", **answers):
        """What each module says of an object, one after the other, the last one for ever. of: its name, or all others."""
        for name, listed in answers.items():
            self.answers[name][of] = listed

    def fleet(self, *names, **more):
        """Pods that failed, and what is seen of each when it is looked at alone."""
        self.say(evidence_info=[{"evidence": together(*(failed_pod(name, **more) for name in names))}])
        for name in names:
            self.say(of=f"{name}-0", evidence_info=[{"evidence": failed_pod(name)}])

    def run(self, *options, playbook="remediate_oom", **variables):
        for name, scripted in self.answers.items():
            (self.folder / f"{name}.json").write_text(json.dumps(scripted))
        given = {"vllm_oom_" + name: value for name, value in variables.items()}
        given["vllm_oom_output_dir"] = str(self.output)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG"))
        }
        ours = {
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "LC_ALL": "C.UTF-8",
            "PWD": str(self.folder),
            "STAND_INS": str(self.folder),
        }
        return subprocess.run(
            [ANSIBLE_PLAYBOOK, f"vllm_runbook.oom.{playbook}", "-e", json.dumps(given), *options],
            cwd=self.folder,
            env={**kept, **ours},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )

    def apply(self, *options, **variables):
        return self.run(*options, **{"apply": True, "min_model_len": 1000, **variables})

    def called(self, module, name=None):
        path = self.folder / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in calls if call["module"] == module and name in (None, call.get("name"))]

    def states(self, name):
        """What was asked of module workload for an object, in order."""
        return [call.get("state", "present") for call in self.called("workload", name)]

    @property
    def outcomes(self):
        """The outcome of each object, by its name."""
        document = json.loads((self.output / "outcome.json").read_text())
        return {item["object"]["name"]: item for item in document["objects"]}

    @property
    def notes(self):
        return json.loads((self.output / "outcome.json").read_text())["notes"]


@pytest.fixture
def stage(collections, tmp_path):
    return Stage(collections, tmp_path)


def left(name, **more):
    """An object that an earlier run has changed, as module changes_info tells of it."""
    entry = {
        "api_version": "apps/v1",
        "kind": "StatefulSet",
        "namespace": "llm",
        "name": name,
        "key": f"llm/StatefulSet/{name}",
        "generation": 2,
        "run": "run-0",
        "at": "2026-11-30T06:00:00Z",
        "until": None,
        "host": "h1",
        "verdict": None,
        "causes": ["kv_max_len"],
        "records": 1,
        "problems": [],
        "held": False,
        "unfinished": True,
    }
    return {**entry, **more}


# What a run that was killed has changed: the module says so when another one takes over.
TAKEN_OVER = dict(
    WRITTEN,
    found={"run": "run-0", "at": "2026-11-30T06:00:00Z", "changes": ["--max-model-len: 40960 -> 18224"]},
)


def test_each_object_ends_in_its_own_way_and_none_stops_the_next(stage):
    """In the order of the plan, behind the one that a killed run has left."""
    stage.fleet("serves", "fails", "refused", "breaks", "sticks", "taken", "unsaid")
    stage.say(
        changes_info=[
            {
                "objects": [left("killed"), left("busy", held=True, until="later", unfinished=False)],
                "unreadable": [],
            }
        ]
    )
    stage.say(of="killed", workload=[TAKEN_OVER, ENDED], verification=[verified("served")])
    stage.say(of="serves", workload=[WRITTEN, ENDED], verification=[verified("served")])
    stage.say(of="fails", workload=[WRITTEN, ENDED], verification=[verified("failed", "It died.", "fails-0")])
    stage.say(of="refused", workload=[{"msg": "run-x on host h2 holds it"}])
    stage.say(of="breaks", workload=[WRITTEN], verification=[{"msg": "the API server can't be reached"}])
    stage.say(
        of="sticks",
        workload=[WRITTEN, {"msg": "somebody changed it since"}],
        verification=[verified("failed", "It died.")],
    )
    stage.say(
        of="taken",
        workload=[
            dict(
                WRITTEN,
                changed=False,
                mode="unchanged",
                sentence="It is so already; run-y is at work",
                held_by={"run": "run-y"},
            )
        ],
    )
    stage.say(of="unsaid", workload=[WRITTEN], verification=[verified(None, "the API server doesn't answer")])
    done = stage.apply()
    assert done.returncode == 2, done.stdout
    ends = stage.outcomes
    assert list(ends) == ["serves", "fails", "refused", "breaks", "sticks", "taken", "unsaid", "killed"]
    assert {name: end["verdict"] for name, end in ends.items()} == {
        "serves": "served",
        "fails": "undone",
        "refused": None,
        "breaks": None,
        "sticks": "failed",
        "taken": None,
        "unsaid": None,
        "killed": "served",
    }
    # The first thing that is done is to go on with what was left, without a change of its own.
    calls = stage.called("workload")
    assert (calls[0]["name"], calls[0]["changes"]) == ("killed", [])
    assert "run-0" in ends["killed"]["sentence"]
    assert any("busy" in note and "run-0 on host h1" in note for note in stage.notes)

    first, last = stage.called("workload", "serves")
    assert [change["name"] for change in first["changes"]] == ["--max-model-len"]
    assert first["expected"] == {"uid": "uid-serves", "generation": 1}
    assert first["causes"] == ["kv_max_len"]
    assert (last["state"], last["verdict"]) == ("released", "served")
    (asked,) = stage.called("verification", "serves")
    assert (asked["generation"], asked["since"]) == (2, "2026-11-30T07:00:00Z")
    assert len({call["run"] for call in (*calls, asked)}) == 1
    assert ends["serves"]["first_failure"]["cause"] == "kv_max_len"
    assert ends["serves"]["attempts"][0]["written"]["record"] == "r1"
    assert ends["serves"]["undo"].endswith(
        "-e vllm_oom_namespace=llm -e vllm_oom_workload=statefulset/serves"
    )

    # What failed again was looked at alone, and all of this run's changes of it were taken back.
    assert [call.get("pod") for call in stage.called("evidence_info")] == [None, "fails-0"]
    last = stage.called("workload", "fails")[-1]
    assert (last["state"], last["restore"]) == ("restored", "run")
    assert ends["fails"]["last_failure"]["cause"] == "kv_max_len"
    assert ends["fails"]["undo"] is None

    assert "run-x on host h2 holds it" in ends["refused"]["sentence"]
    assert ends["refused"]["undo"] is None
    assert stage.states("breaks") == ["present"]
    assert "the API server can't be reached" in ends["breaks"]["sentence"]
    assert ends["breaks"]["undo"]
    assert "somebody changed it since" in ends["sticks"]["sentence"]
    assert ends["sticks"]["undo"]
    assert "run-y is at work" in ends["taken"]["sentence"]
    assert not stage.called("verification", "taken")
    assert stage.states("unsaid") == ["present"]
    assert "the API server doesn't answer" in ends["unsaid"]["sentence"]
    for name in ("fails", "refused", "breaks", "sticks", "taken", "unsaid"):
        assert f"StatefulSet llm/{name}: " in " ".join(done.stdout[done.stdout.index("fatal:") :].split())


def test_the_next_step_is_made_on_top(stage):
    stage.fleet("cured", "incurable", "refused")
    both = [WRITTEN, dict(WRITTEN, object={"generation": 3}), ENDED]
    for name in ("cured", "incurable", "refused"):
        stage.say(of=name, workload=both, verification=[verified("failed", "It died.", f"{name}-0")])
    stage.say(of="cured", verification=[verified("failed", "It died.", "cured-0"), verified("served")])
    stage.say(of="refused", workload=[WRITTEN, {"msg": "the quota says no"}, ENDED])
    done = stage.apply(
        on_failure="next", max_attempts=2, allow=["kv_cache_dtype"], gpu="H100 80GB", max_gpus=4
    )
    assert done.returncode == 2, done.stdout
    ends = stage.outcomes
    first, second, last = stage.called("workload", "cured")
    assert second["changes"]
    assert second["changes"] != first["changes"]
    assert last["verdict"] == "served"
    assert [attempt["verification"]["verdict"] for attempt in ends["cured"]["attempts"]] == [
        "failed",
        "served",
    ]
    assert ends["cured"]["last_failure"]["cause"] == "kv_max_len"
    assert stage.states("incurable") == ["present", "present", "restored"]
    assert ends["incurable"]["verdict"] == "undone"
    # A step that can't be written ends it, and what failed before is taken back all the same.
    assert stage.states("refused") == ["present", "present", "restored"]
    assert ends["refused"]["verdict"] == "undone"
    assert "the quota says no" in ends["refused"]["sentence"]


def test_a_failed_change_is_kept_where_that_was_asked(stage):
    stage.fleet("kept")
    stage.say(workload=[WRITTEN, ENDED], verification=[verified("failed", "It died.", "kept-0")])
    done = stage.apply(on_failure="keep", context="other")
    assert done.returncode == 2, done.stdout
    last = stage.called("workload")[-1]
    assert (last["state"], last["verdict"]) == ("released", "failed")
    assert stage.outcomes["kept"]["verdict"] == "failed"
    assert "rollback_oom" in stage.outcomes["kept"]["undo"]
    assert stage.outcomes["kept"]["undo"].endswith(" -e vllm_oom_context=other")


def test_nothing_is_written_without_apply(stage):
    stage.fleet("asked", "refused", "broken")
    stage.say(of="asked", workload=[dict(TRIED, patch=[{"op": "test"}])])
    stage.say(of="refused", workload=[{"msg": "the quota says no"}])
    stage.say(of="broken", workload=["break off"])
    done = stage.run(min_model_len=1000, patch_dir="patches")
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True, True, True]
    assert not stage.called("verification")
    # Only the patches and the documents were made.
    assert (
        "changed: [localhost] => (item=" not in done.stdout.split("Ask the cluster what")[1].split("TASK")[0]
    )
    ends = stage.outcomes
    assert {end["verdict"] for end in ends.values()} == {None}
    assert ends["asked"]["attempts"][0]["written"]["changed"] is False
    assert ends["asked"]["undo"] is None
    assert "the quota says no" in ends["refused"]["sentence"]
    assert "without saying why" in ends["broken"]["sentence"]
    assert sorted(path.name for path in stage.patches.iterdir()) == [
        "README.md",
        "llm.statefulset.asked.json",
    ]
    readme = (stage.patches / "README.md").read_text()
    assert (
        "kubectl -n llm patch statefulset asked --type=json --patch-file llm.statefulset.asked.json" in readme
    )


def test_check_mode_with_apply_only_asks(stage):
    stage.fleet("asked")
    stage.say(workload=[TRIED])
    done = stage.apply("--check", "--diff")
    assert done.returncode == 0, done.stdout
    # The difference is that of the cluster, not of the reports.
    assert "evidence.json" in done.stdout
    assert '"schema"' not in done.stdout
    assert "changed: [localhost] => (item=" in done.stdout.split("Ask the cluster what")[1].split("TASK")[0]
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert not stage.called("verification")
    assert not stage.output.exists()


def test_check_mode_only_says_what_a_killed_run_left(stage):
    stage.fleet("killed")
    stage.say(workload=[dict(TAKEN_OVER, mode="dry_run")])
    done = stage.apply("--check")
    assert done.returncode == 0, done.stdout
    assert "  Would  1. --max-model-len: 40960 -> 18224" in done.stdout
    assert "rollback_oom" in done.stdout


def test_what_something_else_manages_gets_a_patch(stage):
    stage.fleet("managed", live=False)
    stage.say(workload=[{"msg": "Argo CD reverts it.", "patch": [{"op": "test"}], "mode": None}])
    done = stage.apply(patch_dir="patches")
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert (stage.patches / "llm.statefulset.managed.json").exists()
    assert stage.outcomes["managed"]["verdict"] is None


@pytest.mark.parametrize(("fail_on", "rc"), [("failed", 0), ("unsolved", 2)])
def test_a_step_that_is_not_allowed_fails_the_run_only_when_asked(stage, fail_on, rc):
    stage.fleet("bound")
    done = stage.run(apply=True, fail_on=fail_on)
    assert done.returncode == rc, done.stdout
    assert not stage.called("workload")
    assert "min_model_len" in stage.outcomes["bound"]["sentence"]


def test_saved_evidence_is_only_planned(stage):
    stage.fleet("saved", source="bundle")
    done = stage.run(bundle="x.json", min_model_len=1000)
    assert done.returncode == 0, done.stdout
    assert not stage.called("workload")
    assert not stage.called("changes_info")


def test_rollback_goes_on_behind_a_refusal(stage):
    stage.say(
        changes_info=[
            {
                "objects": [
                    left("changed", verdict="served"),
                    left("killed"),
                    left("odd", records=0, problems=["unreadable"]),
                ],
                "unreadable": [],
            }
        ]
    )
    stage.say(
        of="changed",
        workload=[{"msg": "it has been changed since (before our change: 1; by our change: 2; now: 3)"}],
    )
    stage.say(
        of="killed",
        workload=[WRITTEN],
        serving_info=[{"serving": {"rollout": {"sentence": "1 of 1 pods is new"}}}],
    )
    stage.say(of="odd", workload=["break off"])
    done = stage.run(playbook="rollback_oom", namespace="llm", context="other")
    assert done.returncode == 2, done.stdout
    assert [call["state"] for call in stage.called("workload")] == ["restored"] * 3
    ends = stage.outcomes
    assert "now: 3" in ends["changed"]["sentence"]
    assert ends["changed"]["undo"] is None
    assert ends["killed"]["verdict"] == "undone"
    assert "1 of 1 pods is new" in ends["killed"]["sentence"]
    assert ends["odd"]["verdict"] is None


def test_nothing_to_take_back_is_said(stage):
    done = stage.run(playbook="rollback_oom", namespace="llm")
    assert done.returncode == 0, done.stdout
    assert "Nothing is to be taken back" in done.stdout


def test_rollback_in_check_mode_asks_only(stage):
    stage.say(changes_info=[{"objects": [left("changed")], "unreadable": []}])
    stage.say(workload=[dict(TRIED, sentence="It would be restored.")])
    done = stage.run("--check", playbook="rollback_oom", namespace="llm")
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert not stage.called("serving_info")
    assert "It would be restored." in done.stdout
    assert "as it was" not in done.stdout
