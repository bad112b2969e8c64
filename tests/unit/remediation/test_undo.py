# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences of objects, and changes taken back: the original is there again, or it is said why not."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.differences import (
    json_patch,
    steps,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.json_patch import apply, same
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.object_paths import (
    locate,
    value_at,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.operations import patch
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.undo import (
    ChangedSince,
    record,
    restore,
    undo,
)

EDIT = {"path": "spec.template.spec.containers[vllm]"}
SCRIPT = "exec vllm serve m \\\n  --max-model-len 8192 \\\n  --api-key=s3cr3t-value \\\n  --port 80\n"


def deployment(args, command=None, **more):
    engine = {"name": "vllm", "args": args, **({"command": command} if command else {}), **more}
    spec = {"template": {"spec": {"containers": [{"name": "proxy"}, engine]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def engine_of(raw):
    return raw["spec"]["template"]["spec"]["containers"][1]


def flag(value, name="max_model_len"):
    return change("flag", name, "set", value)


NO_CPU_LIMIT = change("k8s", "resources.limits.cpu", "remove", None)


@pytest.mark.parametrize("value", [4096, None])
@pytest.mark.parametrize(
    "raw",
    [
        deployment(["--max-model-len", "8192", "--api-key", "s3cr3t-value", "--max_model_len=1"]),
        deployment(["--api-key", "s3cr3t-value", "--max-model-len=8192"]),
        deployment([SCRIPT], ["sh", "-c"]),
        deployment(["--api-key=s3cr3t-value --max-model-len 8192"]),
    ],
)
def test_the_record_holds_no_secret_and_brings_the_original_back(raw, value):
    found = patch(raw, EDIT, [flag(value)])
    assert found.after != raw
    assert "s3cr3t-value" in str(found.after)
    assert "s3cr3t-value" not in json.dumps(found.undo)
    kept = json.loads(json.dumps(found.undo))  # as an annotation has it
    assert apply(found.after, undo(kept, found.after)) == raw
    assert undo(kept, raw) == []  # a second time


def test_of_a_script_only_the_changed_words_are_recorded():
    found = patch(deployment([SCRIPT], ["sh", "-c"]), EDIT, [flag(4096)])
    (step,) = found.undo["steps"]
    assert step["path"] == "spec.template.spec.containers[vllm].args[0]"
    assert [(part["before"], part["after"]) for part in step["words"]] == [("8192", "4096")]


def test_other_changes_since_survive():
    raw = deployment(["--max-model-len", "8192"], env=[{"name": "A", "value": "1"}])
    found = patch(raw, EDIT, [flag(4096), change("env", "B", "set", "2")])
    live = copy.deepcopy(found.after)
    live["spec"]["replicas"] = 3
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh"})
    live["spec"]["template"]["spec"]["containers"][2]["env"].insert(0, {"name": "Z", "value": "9"})
    restored = restore(found.undo, live)
    engine = restored["spec"]["template"]["spec"]["containers"][2]
    assert engine["args"] == raw["spec"]["template"]["spec"]["containers"][1]["args"]
    assert [item["name"] for item in engine["env"]] == ["Z", "A"]
    assert restored["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("raw", "planned", "since", "told"),
    [
        (deployment(["--max-model-len", "8192"]), flag(4096), ("args", ["--max-model-len", "16384"]), "by our change: 4096; now: 16384"),
        (deployment(["--max-model-len", "8192"]), flag(4096), ("args", ["--port", "1", "--max-model-len", "4096"]), "has been changed since"),
        (deployment(["--max-model-len", "8192"]), flag(4096), ("args", ["--max-model-len"]), "now: not set"),
        (deployment(["--max-model-len", "8192"]), flag(None), ("args", ["--enforce-eager"]), "has been changed since"),
        (deployment([SCRIPT], ["sh", "-c"]), flag(4096), ("args", [SCRIPT.replace("8192", "1024")]), "before our change: 8192; by our change: 4096; now: 1024"),
        (deployment([SCRIPT], ["sh", "-c"]), flag(4096), ("args", [SCRIPT.replace("8192", "4096") + "# more"]), "has been changed since"),
        (deployment(["x"], resources={"limits": {"cpu": "8"}}), NO_CPU_LIMIT, ("resources", {"limits": {"cpu": "9"}}), "8; by our change: not set; now: 9"),
        (deployment(["x"]), change("env", "A", "set", "1"), ("env", [{"name": "A", "value": "2"}]), "has been changed since"),
    ],
)  # fmt: skip
def test_a_field_that_somebody_changed_since_stays(raw, planned, since, told):
    found = patch(raw, EDIT, [planned])
    live = copy.deepcopy(found.after)
    engine_of(live)[since[0]] = since[1]
    with pytest.raises(DocumentError) as caught:
        undo(found.undo, live)
    assert told in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_a_secret_that_stands_there_now_isnt_shown():
    found = patch(deployment(["--max-model-len", "8192"]), EDIT, [flag(4096)])
    with pytest.raises(DocumentError, match=r"now: \*\*\*"):
        undo(found.undo, deployment(["--api-key", "s3cr3t-value"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"args": ["--api-key", "old-secret"]}, {"args": ["--api-key", "new-secret"]}),
        ({"args": ["--api-key=old-secret"]}, {"args": []}),
        ({"args": ["--api-key", "my old-secret"]}, {"args": ["--api-key"]}),
        ({"args": ["sh -c \"vllm serve m --api-key 'my old-secret'\""]}, {"args": ["sh"]}),
        ({"args": ["vllm serve m --api-key old-secret"]}, {"args": ["vllm serve m --api-key new-secret"]}),
        ({"env": [{"name": "HF_TOKEN", "value": "old-secret"}]}, {"env": [{"name": "HF_TOKEN", "value": "new-secret"}]}),
        ({"env": [{"name": "HF_TOKEN", "value": "old-secret"}]}, {"env": []}),
        ({"args": ["--download-dir", "s3://me:old-secret@host/x"]}, {"args": []}),
    ],
)  # fmt: skip
def test_a_changed_secret_is_refused(before, after):
    with pytest.raises(DocumentError, match="holds a secret") as caught:
        record(before, after)
    assert "old-secret" not in str(caught.value)
    assert "new-secret" not in str(caught.value)


# --- laws

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2),
    st.text("ab ", max_size=4),
    st.just("a b c"),
    st.just("a x c d"),
)
KEYS = st.sampled_from(["a", "b", "env", "a.b", "x/y", "m~n"])
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["p", "q", "r", "0", "1"])}, optional={"value": LEAVES}),
    max_size=4,
    unique_by=lambda item: item["name"],
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, st.one_of(JSON, NAMED), max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_patch_of_two_objects_makes_one_of_the_other(old, new):
    assert same(apply(old, json_patch(old, new)), new)
    assert (json_patch(old, new) == []) == same(old, new)


@given(OBJECTS, OBJECTS)
def test_what_was_recorded_is_taken_back(old, new):
    kept = json.loads(json.dumps(record(old, new)))
    assert same(restore(kept, new), old)


@given(OBJECTS, OBJECTS)
def test_every_replaced_or_removed_value_is_tested_before(old, new):
    tested = {}
    for operation in json_patch(old, new):
        if operation["op"] == "test":
            tested[operation["path"]] = operation["value"]
        elif operation["op"] in ("replace", "remove"):
            assert operation["path"] in tested


@given(OBJECTS)
def test_paths_of_steps_lead_to_their_places(new):
    for step in steps({}, {"o": new}) + steps({"o": {}}, {"o": new}):
        assert value_at({"o": new}, locate({"o": new}, step.path)) == value_at({"o": new}, step.place)


ARGUMENTS = st.lists(
    st.sampled_from(
        [["--max-model-len", "8192"], ["--max_model_len=1"], ["--api-key", "s3cr3t-value"], ["-tp", "2"], ["--port", "80"],
         ["--enforce-eager"], ["--served-model-name", "m"], ["-O3"], ["--max-num-seqs", "8"]]
    ),
    max_size=7,
).map(lambda groups: [word for group in groups for word in group])  # fmt: skip
PLANNED = st.lists(
    st.sampled_from(
        [flag(4096), flag(None), flag(16, "max_num_seqs"), flag(True, "enforce_eager"), flag(None, "enforce_eager"),
         flag(4, "tensor_parallel_size"), change("env", "NCCL_DEBUG", "set", "INFO"),
         change("k8s", "resources.limits.cpu", "remove", None), change("k8s", "resources.limits.memory", "set", "64Gi"),
         change("k8s", "volumes.shm.sizeLimit", "set", "16Gi"), change("k8s", "startupProbe", "set", 900),
         change("k8s", "strategy", "set", "Recreate")]
    ),
    max_size=4,
)  # fmt: skip


@given(ARGUMENTS, PLANNED, st.booleans())
def test_changes_of_a_deployment_are_made_once_and_taken_back(words, planned, script):
    args = ["exec vllm serve m \\\n  " + " \\\n  ".join(words)] if script else ["--model", "m", *words]
    probe = {"httpGet": {"port": 1}}
    raw = deployment(
        args, ["sh", "-c"] if script else None, resources={"limits": {"cpu": "8"}}, livenessProbe=probe
    )
    found = patch(raw, EDIT, planned)
    assert not found.refused
    assert "s3cr3t" not in json.dumps(found.undo)
    assert apply(raw, found.json_patch) == found.after
    # of two changes of one field the later one holds
    last = {(item["target"], item["name"]): item for item in planned}.values()
    assert patch(found.after, EDIT, last).json_patch == []
    assert apply(found.after, undo(found.undo, found.after)) == raw


def by_hand(live, field, value):
    found = copy.deepcopy(live)
    engine_of(found)[field] = value
    return found


@pytest.mark.parametrize(
    ("planned", "field", "value"),
    [
        # One of two changed items, an added item, an added variable; the rest stays to be taken back.
        ([flag(4096), flag(16, "max_num_seqs")], "args", ["--max-model-len", "8192", "--max-num-seqs", "16"]),
        (
            [flag(4096), flag(True, "enforce_eager")],
            "args",
            ["--max-model-len", "4096", "--max-num-seqs", "8"],
        ),
        ([flag(4096), change("env", "A", "set", "1")], "env", []),
        ([flag(4096), change("env", "A", "set", "1")], "env", None),
    ],
)
def test_what_was_taken_back_by_hand_is_passed_over(planned, field, value):
    raw = deployment(["--max-model-len", "8192", "--max-num-seqs", "8"], env=[])
    found = patch(raw, EDIT, planned)
    assert not found.refused
    live = by_hand(found.after, field, value)
    expected = by_hand(raw, field, value) if value is None else raw
    assert restore(found.undo, live) == expected


def test_an_item_that_has_come_in_since_is_not_taken_for_ours():
    raw = deployment(["--max-model-len", "8192"])
    found = patch(raw, EDIT, [flag(True, "enforce_eager")])
    live = by_hand(found.after, "args", ["--max-model-len", "8192", "--port"])
    with pytest.raises(DocumentError, match="by our change: --enforce-eager; now: --port"):
        restore(found.undo, live)


def test_all_fields_that_were_changed_since_are_named():
    raw = deployment(["--max-model-len", "8192"], resources={"limits": {"memory": "8Gi"}}, env=[])
    planned = [
        flag(4096),
        change("k8s", "resources.limits.memory", "set", "12Gi"),
        change("k8s", "resources.requests.memory", "set", "9Gi"),
    ]
    found = patch(raw, EDIT, planned)
    assert not found.refused
    live = by_hand(found.after, "resources", {"limits": {"memory": "16Gi"}, "requests": {"memory": "10Gi"}})
    with pytest.raises(ChangedSince) as refused:
        restore(found.undo, live)
    text = str(refused.value)
    assert len(refused.value.paths) == 2
    assert (
        "resources.limits.memory has been changed since (before our change: 8Gi; by our change: 12Gi; now: 16Gi)"
        in text
    )
    assert "by our change: memory: 9Gi; now: memory: 10Gi" in text
    assert "args" not in text


def test_an_item_that_was_changed_since_names_no_others_of_its_list():
    raw = deployment(["--max-model-len", "8192", "--max-num-seqs", "8"])
    found = patch(raw, EDIT, [flag(4096), flag(16, "max_num_seqs")])
    with pytest.raises(ChangedSince) as refused:
        restore(found.undo, by_hand(found.after, "args", ["--port", "1"]))
    assert len(refused.value.paths) == 1
