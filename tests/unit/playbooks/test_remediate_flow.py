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
    answers = json.load(script)
answer = answers.pop(0) if len(answers) > 1 else answers[0]
with open(f"{{folder}}/{name}.json", "w") as script:
    json.dump(answers, script)
module.fail_json(**answer) if "msg" in answer else module.exit_json(**answer)
"""
OPTIONS = {
    "workload": (
        "api_version kind name namespace container path state changes expected max_memory causes run lease verdict "
        "engine_version kubeconfig context"
    ),
    "changes_info": "namespace all_namespaces workload kubeconfig context",
    "serving_info": "api_version kind name namespace generation since request wait kubeconfig context",
    "evidence_info": "bundle namespace all_namespaces pod selector since exec kubeconfig context",
}
# The role verify is a module in these tests: what it is given becomes a call, its answer the fact.
VERIFY = [
    {
        "name": "Answer",
        "vllm_runbook.oom.verification": {
            name: "{{ verify_%s }}" % name
            for name in "namespace api_version kind name container since generation run causes timeout soak load_requests".split()
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
        if path.name != "modules":
            _link(ours / "plugins" / path.name, path)
    for path in (ROOT / "roles").iterdir():
        if path.name != "verify":
            _link(ours / "roles" / path.name, path)
    verify = ours / "roles/verify/tasks/main.yml"
    verify.parent.mkdir(parents=True)
    verify.write_text(json.dumps(VERIFY))
    modules = ours / "plugins/modules"
    modules.mkdir()
    options = {**OPTIONS, "verification": " ".join(VERIFY[0]["vllm_runbook.oom.verification"])}
    for name, given in options.items():
        (modules / f"{name}.py").write_text(STAND_IN.format(name=name, options=given.split()))
    return top


def _link(link, target):
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def _evidence(name="qwen3-32b", *, live=True, source="cluster"):
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


def _together(*documents):
    found = documents[0]
    for other in documents[1:]:
        found["pods"] += other["pods"]
    return found


WRITTEN = {
    "changed": True,
    "mode": "written",
    "sentence": "StatefulSet/qwen3-32b was changed.",
    "run": "run-1",
    "at": "2026-11-30T07:00:00Z",
    "object": {"uid": "uid-qwen3-32b", "generation": 2},
    "record": {"id": "r1"},
    "found": None,
}
RELEASED = {"changed": True, "mode": "written", "sentence": "The verdict was noted."}
RESTORED = {"changed": True, "mode": "written", "sentence": "Everything was taken back."}
SERVED = {
    "outcome": {
        "verdict": "served",
        "verifiable": True,
        "seconds": 12.0,
        "sentence": "It answered a request.",
        "serving": {"pods": []},
    }
}
FAILED = {
    "outcome": {
        "verdict": "failed",
        "verifiable": True,
        "seconds": 9.0,
        "sentence": "It died again.",
        "serving": {"pods": [{"name": "qwen3-32b-0", "ready": False}]},
    }
}
NOTHING_LEFT = {"objects": [], "unreadable": []}


class Stage:
    """A place with scripted answers in which the playbook is run."""

    def __init__(self, collections, folder):
        self.collections, self.folder = collections, folder
        self.output = folder / "out"
        self.say(evidence_info=[{"evidence": _evidence()}], changes_info=[NOTHING_LEFT])
        self.say(workload=[{"msg": "nobody asked for this"}], serving_info=[{"msg": "nobody asked for this"}])
        self.say(verification=[{"msg": "nobody asked for this"}])

    def say(self, **answers):
        """What each module says, one after the other, the last one for ever."""
        for name, listed in answers.items():
            (self.folder / f"{name}.json").write_text(json.dumps(listed))

    def run(self, *options, playbook="remediate_oom", **variables):
        given = {"vllm_oom_" + name: value for name, value in variables.items()}
        given["vllm_oom_output_dir"] = str(self.output)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG"))
        }
        return subprocess.run(
            [ANSIBLE_PLAYBOOK, f"vllm_runbook.oom.{playbook}", "-e", json.dumps(given), *options],
            cwd=self.folder,
            env={
                **kept,
                "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
                "LC_ALL": "C.UTF-8",
                "PWD": str(self.folder),
                "STAND_INS": str(self.folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    def apply(self, *options, **variables):
        return self.run(*options, **{"apply": True, "min_model_len": 1000, **variables})

    @property
    def calls(self):
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def called(self, name):
        return [call for call in self.calls if call["module"] == name]

    @property
    def outcome(self):
        return json.loads((self.output / "outcome.json").read_text())


@pytest.fixture
def stage(collections, tmp_path):
    return Stage(collections, tmp_path)


def test_what_serves_is_released_with_its_verdict(stage):
    stage.say(workload=[WRITTEN, RELEASED], verification=[SERVED])
    done = stage.apply()
    assert done.returncode == 0, done.stdout
    first, last = stage.called("workload")
    assert [change["name"] for change in first["changes"]] == ["--max-model-len"]
    assert first["expected"] == {"uid": "uid-qwen3-32b", "generation": 1}
    assert first["causes"] == ["kv_max_len"]
    assert (last["state"], last["verdict"], last["run"]) == ("released", "served", "run-1")
    (asked,) = stage.called("verification")
    assert (asked["generation"], asked["since"], asked["run"]) == (2, "2026-11-30T07:00:00Z", "run-1")
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "served"
    assert made["first_failure"]["cause"] == "kv_max_len"
    assert made["undo"] in done.stdout.replace("\n", " ")
    assert made["attempts"][0]["written"]["record"] == "r1"


def test_nothing_is_written_without_apply(stage):
    stage.say(
        workload=[
            {
                "changed": True,
                "mode": "dry_run",
                "sentence": "The API server takes it.",
                "patch": [{"op": "test"}],
            }
        ]
    )
    done = stage.run(min_model_len=1000, patch_dir=str(stage.folder / "patches"))
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert not stage.called("verification")
    (made,) = stage.outcome["objects"]
    assert made["verdict"] is None
    assert made["attempts"][0]["written"]["changed"] is False
    assert made["undo"] is None
    assert sorted(path.name for path in (stage.folder / "patches").iterdir()) == [
        "README.md",
        "llm.statefulset.qwen3-32b.json",
    ]
    assert (
        "kubectl -n llm patch statefulset qwen3-32b --type=json"
        in (stage.folder / "patches/README.md").read_text()
    )


def test_check_mode_with_apply_only_asks(stage):
    stage.say(workload=[{"changed": True, "mode": "dry_run", "sentence": "The API server takes it."}])
    done = stage.apply("--check")
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert not stage.called("verification")
    assert not stage.output.exists()


def test_what_fails_again_is_diagnosed_and_taken_back(stage):
    stage.say(workload=[WRITTEN, RESTORED], verification=[FAILED])
    done = stage.apply()
    assert done.returncode == 2, done.stdout
    last = stage.called("workload")[-1]
    assert (last["state"], last["run"]) == ("restored", "run-1")
    assert [call.get("pod") for call in stage.called("evidence_info")] == [None, "qwen3-32b-0"]
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "undone"
    assert made["last_failure"] == {
        "pod": "llm/qwen3-32b-0",
        "cause": "kv_max_len",
        "sentence": made["first_failure"]["sentence"],
    }
    assert made["undo"] is None


def test_a_failed_change_is_kept_where_that_was_asked(stage):
    stage.say(workload=[WRITTEN, RELEASED], verification=[FAILED])
    done = stage.apply(on_failure="keep")
    assert done.returncode == 2
    last = stage.called("workload")[-1]
    assert (last["state"], last["verdict"]) == ("released", "failed")
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "failed"
    assert "rollback_oom" in made["undo"]


def test_the_next_step_is_made_on_top(stage):
    stage.say(
        workload=[WRITTEN, dict(WRITTEN, object={"generation": 3}), RELEASED], verification=[FAILED, SERVED]
    )
    done = stage.apply(on_failure="next", allow=["kv_cache_dtype"], gpu="H100 80GB", max_gpus=4)
    assert done.returncode == 0, done.stdout
    first, second, last = stage.called("workload")
    assert "run" not in first
    assert second["run"] == "run-1"
    assert second["changes"] != first["changes"]
    assert last["verdict"] == "served"
    (made,) = stage.outcome["objects"]
    assert [attempt["verification"]["verdict"] for attempt in made["attempts"]] == ["failed", "served"]
    assert made["last_failure"]["cause"] == "kv_max_len"


def test_no_more_than_so_many_attempts_and_all_of_them_are_taken_back(stage):
    stage.say(workload=[WRITTEN, WRITTEN, RESTORED], verification=[FAILED])
    done = stage.apply(
        on_failure="next", max_attempts=2, allow=["kv_cache_dtype"], gpu="H100 80GB", max_gpus=4
    )
    assert done.returncode == 2
    assert [call.get("state", "present") for call in stage.called("workload")] == [
        "present",
        "present",
        "restored",
    ]
    assert stage.outcome["objects"][0]["verdict"] == "undone"


def test_a_refused_write_is_said_and_the_next_object_has_its_turn(stage):
    stage.say(
        evidence_info=[{"evidence": _together(_evidence("first"), _evidence("second"))}],
        workload=[{"msg": "StatefulSet/first is being changed by run x on host y."}, WRITTEN, RELEASED],
        verification=[SERVED],
    )
    done = stage.apply()
    assert done.returncode == 2
    assert [call["name"] for call in stage.called("workload")] == ["first", "second", "second"]
    first, second = stage.outcome["objects"]
    assert (first["verdict"], second["verdict"]) == (None, "served")
    assert "is being changed by run x" in first["sentence"]
    assert first["undo"] is None


def test_what_breaks_between_write_and_verdict_stays_and_is_named(stage):
    stage.say(workload=[WRITTEN], verification=[{"msg": "the API server can't be reached"}])
    done = stage.apply()
    assert done.returncode == 2
    assert len(stage.called("workload")) == 1
    (made,) = stage.outcome["objects"]
    assert made["verdict"] is None
    assert "the API server can't be reached" in made["sentence"]
    assert "rollback_oom -e vllm_oom_namespace=llm -e vllm_oom_workload=statefulset/qwen3-32b" in made["undo"]


def test_a_write_refused_after_a_failure_takes_back_what_failed(stage):
    stage.say(workload=[WRITTEN, {"msg": "the quota says no"}, RESTORED], verification=[FAILED])
    done = stage.apply(on_failure="next", allow=["kv_cache_dtype"], gpu="H100 80GB", max_gpus=4)
    assert done.returncode == 2
    assert stage.called("workload")[-1]["state"] == "restored"
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "undone"
    assert "the quota says no" in made["sentence"]


def test_what_cannot_be_taken_back_is_said(stage):
    stage.say(workload=[WRITTEN, {"msg": "somebody changed it since"}], verification=[FAILED])
    done = stage.apply()
    assert done.returncode == 2
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "failed"
    assert "somebody changed it since" in made["sentence"]
    assert made["undo"]


LEFT = {
    "api_version": "apps/v1",
    "kind": "StatefulSet",
    "namespace": "llm",
    "name": "qwen3-32b",
    "key": "llm/StatefulSet/qwen3-32b",
    "generation": 2,
    "run": "run-0",
    "at": "2026-11-30T06:00:00Z",
    "until": None,
    "host": None,
    "verdict": None,
    "causes": ["kv_max_len"],
    "records": 1,
    "problems": [],
    "held": False,
    "unfinished": True,
}
FOUND = dict(
    WRITTEN,
    changed=False,
    found={"run": "run-0", "at": "2026-11-30T06:00:00Z", "changes": ["set --max-model-len to 18224"]},
)


def test_a_killed_runs_change_is_verified_and_nothing_is_written_anew(stage):
    stage.say(
        changes_info=[{"objects": [LEFT], "unreadable": []}],
        workload=[FOUND, RELEASED],
        verification=[SERVED],
    )
    done = stage.apply()
    assert done.returncode == 0, done.stdout
    first, last = stage.called("workload")
    assert first["changes"] == []
    assert last["state"] == "released"
    (made,) = stage.outcome["objects"]
    assert made["verdict"] == "served"


def test_something_elses_object_gets_a_patch(stage):
    stage.say(
        evidence_info=[{"evidence": _evidence(live=False)}],
        workload=[{"msg": "Argo CD reverts it.", "patch": [{"op": "test"}]}],
    )
    done = stage.apply(patch_dir=str(stage.folder / "patches"))
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert (stage.folder / "patches/llm.statefulset.qwen3-32b.json").exists()
    assert stage.outcome["objects"][0]["verdict"] is None


@pytest.mark.parametrize(("fail_on", "rc"), [("failed", 0), ("unsolved", 2), ("none", 0)])
def test_a_refused_step_fails_the_run_only_when_asked(stage, fail_on, rc):
    done = stage.run(apply=True, fail_on=fail_on)
    assert done.returncode == rc, done.stdout
    assert not stage.called("workload")
    assert "min_model_len" in stage.outcome["objects"][0]["sentence"]


def test_saved_evidence_is_only_planned(stage):
    stage.say(evidence_info=[{"evidence": _evidence(source="bundle")}])
    done = stage.run(bundle="x.json", min_model_len=1000)
    assert done.returncode == 0, done.stdout
    assert {call["module"] for call in stage.calls} == {"evidence_info"}


OTHER = dict(LEFT, name="llama", key="llm/StatefulSet/llama", unfinished=False, verdict="served")


def test_rollback_goes_on_behind_a_refusal(stage):
    stage.say(
        changes_info=[{"objects": [OTHER, LEFT], "unreadable": []}],
        workload=[
            {
                "msg": "spec.x has been changed since, so it isn't taken back (before our change: 1; by our change: 2; now: 3)"
            },
            WRITTEN,
        ],
        serving_info=[{"serving": {"rollout": {"sentence": "1 of 1 pods is new"}}}],
    )
    done = stage.run(playbook="rollback_oom", namespace="llm")
    assert done.returncode == 2
    assert [call["state"] for call in stage.called("workload")] == ["restored", "restored"]
    refused, restored = stage.outcome["objects"]
    assert "now: 3" in refused["sentence"]
    assert refused["undo"]
    assert restored["verdict"] == "undone"
    assert "1 of 1 pods is new" in restored["sentence"]


def test_nothing_to_take_back_is_said(stage):
    done = stage.run(playbook="rollback_oom", namespace="llm")
    assert done.returncode == 0, done.stdout
    assert "Nothing is to be taken back" in done.stdout


def test_rollback_in_check_mode_asks_only(stage):
    stage.say(
        changes_info=[{"objects": [OTHER], "unreadable": []}],
        workload=[
            {
                "changed": True,
                "mode": "dry_run",
                "sentence": "It would be taken back.",
                "at": None,
                "object": {"generation": 2},
            }
        ],
    )
    done = stage.run("--check", playbook="rollback_oom", namespace="llm")
    assert done.returncode == 0, done.stdout
    assert [call["check"] for call in stage.called("workload")] == [True]
    assert not stage.called("serving_info")
    assert "It would be taken back." in done.stdout
