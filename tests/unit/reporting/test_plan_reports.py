# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remediation plan as people read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_markdown import outside_of_code

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.limits import limits_of
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
    plan_console,
    remediation_markdown,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting.plan_view import (
    plan_summary,
    plan_view,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LONG = " ".join(["because"] * 40)


def made(
    name="--max-model-len", before=40960, after=18224, state="planned", target="flag", action="set", **more
):
    """A planned change; what belongs to its CHANGE by name, the rest to it."""
    direction = more.pop("direction", "set" if action else "keep")
    change = documents.change(
        target, name, direction, after, more.pop("why", "that many tokens fit"), more.pop("kind", "budget")
    )
    container = more.pop("container", "vllm")
    change = dict(change, container=container, action=action, before=before, after=after)
    facts = {
        "step": 1,
        "cause": "kv_max_len",
        "role": "trigger",
        "pod": "llm/qwen3-0",
        "proof": "with this change the first attempt would have had 3.10 GiB left",
        "takes": "how long a request may be",
        "restarts": {"pods": 1, "serving": 0},
        "downtime": {"seconds": 0.0, "at_most": 0.0, "sentence": "none: no replica serves now"},
        "delivery": documents.delivery(
            "live",
            "statefulset/qwen3 is edited and nothing is known to revert it",
            "kubectl -n llm edit statefulset/qwen3  # container vllm: set --max-model-len=18224",
        ),
    }
    return documents.planned_change(change, state, **dict(facts, **more))


def object_plan(*changes, name="qwen3", **more):
    edited = {
        "namespace": "llm",
        "kind": "StatefulSet",
        "name": name,
        "api_version": "apps/v1",
        "path": "spec.template.spec.containers[vllm]",
    }
    facts = {
        "causes": ["kv_max_len"],
        "sentence": f"StatefulSet/{name}: first set --max-model-len to 18224 (now 40960), live; steps: 1 planned.",
        "changes": list(changes),
    }
    return dict(documents.object_plan(edited, ["llm/qwen3-0"]), **dict(facts, **more))


def document(*plans, notes=(), **limits):
    return dict(documents.plan_document(limits_of(limits)), plans=list(plans), notes=list(notes))


def reason(name, why, direction="decrease"):
    return {"change": documents.change("flag", name, direction, None, why), "why": why}


def console(*plans, **more):
    return plan_console.render(plan_view(document(*plans, **more)))


def markdown(*plans, **more):
    return remediation_markdown.plans(plan_view(document(*plans, **more)))


# What an on-call engineer reads.


def test_one_step_in_full_what_else_there_is_and_what_not_to_do():
    pair = {
        "step": 2,
        "state": "refused",
        "refused": ["a pod would take 2 GPUs: give max_gpus (vllm_oom_max_gpus), 2 or more"],
    }
    shown = object_plan(
        made(),
        made("--tensor-parallel-size", 1, 2, **pair),
        made("resources.limits.nvidia.com/gpu", "1", "2", target="k8s", **pair),
        made("larger_gpu", None, None, "advised", "action", None, step=3, why="1 x H200 would hold it"),
        made(
            "resources.limits.cpu",
            "4",
            None,
            target="k8s",
            action="remove",
            step=4,
            role="risk",
            cause="cpu_limit_set",
        ),
        rejected=[reason("--gpu-memory-utilization", "it makes the KV cache still smaller")],
        considered=[reason("--enforce-eager", "it frees too little", "add")],
        notes=["the partition 1 keeps pods below that ordinal as they are"],
        apply={"step": 1, "with": [], "changes": [], "why": "it is the cheapest"},
    )
    assert console(shown) == (
        """\
StatefulSet/qwen3 (namespace llm): kv_max_len
  The KV cache is smaller than one sequence of max_model_len.
  Change    step 1, may be made:
            --max-model-len: 40960 -> 18224
  Why       that many tokens fit
  Proof     with this change the first attempt would have had 3.10 GiB left
  Costs     how long a request may be
  Restarts  1 pod is started anew; downtime none: no replica serves now; no spare GPU is needed
  How       live: statefulset/qwen3 is edited and nothing is known to revert it
            kubectl -n llm edit statefulset/qwen3
            # container vllm: set --max-model-len=18224
  Next      add -e vllm_oom_apply=true to write step 1 and watch what comes of it
  Refused   2. set --tensor-parallel-size to 2, set resources.limits.nvidia.com/gpu to 2: a pod
               would take 2 GPUs: give max_gpus (vllm_oom_max_gpus), 2 or more
  By hand   3. use a GPU or slice with more memory: 1 x H200 would hold it
  Also      4. against cpu_limit_set: remove resources.limits.cpu (costs how long a request may be;
               live)
  Don't     - lower --gpu-memory-utilization: it makes the KV cache still smaller
  Left out  - add --enforce-eager: it frees too little
  Note      - the partition 1 keeps pods below that ordinal as they are
"""
    )


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (made(before=None), "--max-model-len: vLLM's default -> 18224"),
        (made("--enforce-eager", False, True), "--enforce-eager: off -> on"),
        (made("--enforce-eager", True, None, action="remove"), "--enforce-eager: on -> removed"),
        (made("MAX_JOBS", None, "4", target="env"), "MAX_JOBS: not set -> 4"),
        (
            made("resources.limits.memory", None, "64Gi", target="k8s"),
            "resources.limits.memory: none -> 64Gi",
        ),
        (
            made(
                "startupProbe",
                {"failureThreshold": 15, "periodSeconds": 10.0},
                {"failureThreshold": 60, "periodSeconds": 10},
                target="k8s",
            ),
            "startupProbe: failureThreshold: 15, periodSeconds: 10 -> failureThreshold: 60, periodSeconds: 10",
        ),
        (
            made(
                "strategy",
                {"type": "RollingUpdate", "max_surge": "25%", "max_unavailable": None},
                {"type": "RollingUpdate", "max_surge": 0, "max_unavailable": 1},
                target="k8s",
            ),
            "strategy: RollingUpdate, maxSurge: 25% -> RollingUpdate, maxSurge: 0, maxUnavailable: 1",
        ),
    ],
)
def test_a_change_shows_what_was_and_what_will_be(change, shown):
    (step,) = plan_view(document(object_plan(change)))["plans"][0]["steps"]
    assert step["what"] == [shown]


def test_containers_are_named_where_there_are_several():
    view = plan_view(
        document(object_plan(made(), made("MAX_JOBS", None, "4", target="env", container="sidecar")))
    )
    assert view["plans"][0]["steps"][0]["what"] == [
        "--max-model-len: 40960 -> 18224 (container vllm)",
        "MAX_JOBS: not set -> 4 (container sidecar)",
    ]


def test_edits_of_one_object_are_one_command():
    other = documents.delivery(
        "live", "w", "kubectl -n llm edit statefulset/qwen3  # container vllm: set --max-num-seqs=8"
    )
    (step,) = plan_view(document(object_plan(made(), made("--max-num-seqs", 256, 8, delivery=other))))[
        "plans"
    ][0]["steps"]
    assert step["commands"] == [
        "kubectl -n llm edit statefulset/qwen3  # container vllm: set --max-model-len=18224; container vllm: set --max-num-seqs=8"
    ]


def test_a_step_goes_as_its_least_direct_change_goes():
    patch = documents.delivery("patch", "Argo CD (Application/llm) reverts a live edit", None)
    (step,) = plan_view(document(object_plan(made(), made("MAX_JOBS", None, "4", delivery=patch))))["plans"][
        0
    ]["steps"]
    assert step["delivery"] == "a patch for its source: Argo CD (Application/llm) reverts a live edit"


def test_what_is_no_command_is_not_shown_as_one():
    words = "change it in the file that was given to kubectl apply: set --x to 4"
    by_hand = object_plan(
        made(delivery=documents.delivery("by_hand", "no object of the cluster holds it", words))
    )
    assert f"no object of the cluster holds it\n            {words}\n" in console(by_hand)
    assert f"- How: {words}\n" in markdown(by_hand)
    assert "```" not in markdown(by_hand)
    source = "change it in the source of Argo CD (Application/llm): set MAX_JOBS to 4; a live edit would be reverted"
    patch = object_plan(
        made(delivery=documents.delivery("patch", "Argo CD (Application/llm) reverts it", source))
    )
    assert source not in " ".join(console(patch).split())


@pytest.mark.parametrize(
    ("uid", "said"),
    [
        ("5f1c", "the patch for its source is in the directory of vllm_oom_patch_dir, where one is given"),
        (None, ""),
    ],
)
def test_a_patch_can_be_had_of_an_object_that_was_read(uid, said):
    patch = documents.delivery("patch", "Argo CD (Application/llm) reverts it")
    why = {"step": None, "with": [], "changes": [], "why": "Argo CD (Application/llm) reverts it"}
    shown = object_plan(made(delivery=patch), apply=why, expected={"uid": uid, "generation": 7})
    assert plan_view(document(shown))["plans"][0]["next"] == said


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, "1 pod is started anew; downtime none: no replica serves now; no spare GPU is needed"),
        (
            {
                "restarts": {"pods": 3, "serving": 1},
                "downtime": {"sentence": "one start of the engine, at most 300 s by its startup probe"},
                "extra_gpus": 2,
            },
            "3 pods are started anew; 1 of them serves now; downtime one start of the engine, at most 300 s by its startup probe; "
            "2 spare GPUs are needed",
        ),
        (
            {"restarts": {"pods": 1, "serving": 1}, "downtime": {"sentence": None}, "extra_gpus": None},
            "1 pod is started anew; it serves now; whether the rollout needs a spare GPU isn't known",
        ),
        ({"restarts": {"pods": 0, "serving": 0}}, None),
    ],
)
def test_restarts_say_who_serves_and_for_how_long_nobody_does(more, sentence):
    (step,) = plan_view(document(object_plan(made(**more))))["plans"][0]["steps"]
    assert step["restarts"] == sentence


def test_a_rollout_that_would_wait_for_gpus_gets_another_strategy():
    strategy = {
        "before": {"type": "RollingUpdate", "max_surge": "25%"},
        "after": {"type": "Recreate"},
        "why": "one GPU",
    }
    (step,) = plan_view(document(object_plan(made(strategy=strategy))))["plans"][0]["steps"]
    assert (
        step["strategy"] == "the update strategy becomes Recreate (now RollingUpdate, maxSurge: 25%): one GPU"
    )


def test_a_log_alone_says_nothing_of_restarts():
    alone = dict(
        object_plan(made()), object=dict.fromkeys(("namespace", "kind", "name", "api_version", "path"))
    )
    view = plan_view(document(alone))["plans"][0]
    assert view["ref"] == "llm/qwen3-0"
    assert view["steps"][0]["restarts"] is None
    assert "Restarts" not in console(alone)


def test_what_stands_against_everything_is_said_once_and_first():
    text = console(
        object_plan(
            made(state="refused", refused=["StatefulSet/qwen3 is paused: resume it", "give min_model_len"]),
            blocked=["StatefulSet/qwen3 is paused: resume it"],
        )
    )
    assert text.count("is paused") == 1
    assert text.index("Blocked") < text.index("Change") < text.index("give min_model_len")


# Which step is shown in full.


@pytest.mark.parametrize(
    ("changes", "apply", "first"),
    [
        ([made(state="refused"), made("--x", 1, 2, step=2)], None, 2),
        ([made(state="advised", action=None), made("--x", 1, 2, "refused", step=2)], None, 2),
        ([made(state="refused"), made("--x", 1, 2, step=2, role="risk", cause="cpu_limit_set")], None, 1),
        ([made(role="risk")], None, 1),
        ([made(), made("--x", 1, 2, step=2)], {"step": 2}, 2),
        ([], None, None),
    ],
)
def test_the_step_to_decide_on(changes, apply, first):
    shown = object_plan(*changes, **({"apply": apply} if apply else {}))
    assert plan_view(document(shown))["plans"][0]["first"] == first


@pytest.mark.parametrize(
    ("apply", "limits", "said"),
    [
        ({"step": 1, "with": []}, {"apply": True}, "step 1 is to be written"),
        ({"step": 1, "with": [3]}, {"apply": True}, "steps 1 and 3 are to be written"),
        (
            {"step": 1, "with": [2, 3]},
            {},
            "add -e vllm_oom_apply=true to write steps 1 and 2 and 3 and watch what comes of it",
        ),
        ({"step": None, "why": "all was tried without success"}, {}, "all was tried without success"),
        ({"step": None, "why": "--x: statefulset/qwen3 is edited and nothing is known to revert it"}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_what_comes_next(apply, limits, said):
    assert plan_view(document(object_plan(made(), apply=apply), **limits))["plans"][0]["next"] == said


def test_what_is_only_a_risk_is_no_answer_to_what_happened():
    shown = object_plan(
        made("resources.limits.memory", "256Mi", "10Gi", target="k8s", role="risk", cause="memory_limit_low"),
        causes=["sampler_warmup_oom", "memory_limit_low"],
        apply={
            "step": None,
            "with": [],
            "changes": [],
            "why": "nothing is planned against sampler_warmup_oom: too little",
        },
    )
    text = console(shown)
    assert "  Change    nothing is planned against sampler_warmup_oom\n" in text
    assert "  Next      nothing is planned against sampler_warmup_oom: too little\n" in text
    assert "  Also      1. against memory_limit_low: set resources.limits.memory to 10Gi" in text


def test_of_a_pod_that_did_not_fail_the_risk_is_what_it_is_about():
    text = console(object_plan(made(role="risk", cause="cpu_limit_set"), causes=["cpu_limit_set"]))
    assert "  Change    step 1, may be made:\n" in text


@pytest.mark.parametrize("said", ["that many tokens fit", "that many tokens fit (by budget)", None])
def test_a_proof_that_only_repeats_why_says_what_it_rests_on(said):
    (step,) = plan_view(document(object_plan(made(proof=said))))["plans"][0]["steps"]
    assert step["proof"] == "shown by the memory budget"


# Room.


def crowded(many=12):
    needs = [f"give something {number}: {LONG[:120]}" for number in range(2)]
    steps = [
        made(
            f"--option-{number}",
            number,
            number + 1,
            state,
            step=number,
            why=LONG,
            proof=LONG,
            risks=[LONG],
            refused=needs,
            role=role,
        )
        for number, (state, role) in enumerate(
            [(state, role) for state in documents.PLAN_STATES for role in ("trigger", "risk")] * many, 1
        )
    ]
    reasons = [reason(f"--wrong-{number}", f"{number} {LONG}") for number in range(many)]
    return object_plan(*steps, rejected=reasons, considered=reasons, notes=[LONG] * many)


def test_an_object_takes_at_most_25_lines_of_100_characters():
    lines = console(crowded()).splitlines()
    assert len(lines) <= plan_console.LINES_PER_OBJECT == 25
    assert max(map(len, lines)) <= plan_console.WIDTH == 100
    shown = "\n".join(lines)
    for label in (
        "Change",
        "Why",
        "Proof",
        "Costs",
        "Restarts",
        "How",
        "Or",
        "Refused",
        "By hand",
        "Also",
        "Don't",
        "Left out",
    ):
        assert f"\n  {label} " in shown
    assert "# container vllm: set --max-model-len=18224" in shown


def test_what_is_left_out_is_counted():
    text = console(
        object_plan(made(), rejected=[reason(f"--wrong-{number}", f"{number}") for number in range(40)])
    )
    assert "(and 2" in text.split("Don't")[1]
    assert len(text.splitlines()) <= 25


def test_the_same_reason_is_given_once():
    view = plan_view(
        document(object_plan(considered=[reason("--a", "too little"), reason("--b", "too little")]))
    )
    assert view["plans"][0]["considered"] == [{"what": "lower --a, lower --b", "why": "too little"}]


def test_what_a_step_needs_is_never_cut():
    needs = [f"give limit {number}" for number in range(6)]
    text = console(crowded(), object_plan(made(state="refused", refused=needs, why=LONG, proof=LONG)))
    assert all(f"- {need}\n" in text for need in needs)


def test_a_fleet_begins_with_an_overview():
    plans = [object_plan(made(), name=f"m-{number:02}") for number in range(21)]
    plans.append(object_plan(made(state="refused"), name="refused"))
    plans.append(object_plan(name="nothing"))
    lines = console(*plans).splitlines()
    assert (
        lines[0] == "23 objects planned: 21 can be changed, 1 need something first, 1 have nothing to change."
    )
    assert lines[1] == "  StatefulSet/m-00 (namespace llm): kv_max_len"
    assert sum(line.startswith("StatefulSet/") for line in lines) == plan_console.OBJECTS
    assert lines[-1].startswith("3 more are in the overview above; -e vllm_oom_output_dir=DIR keeps all")


def test_what_was_allowed_is_said():
    text = console(object_plan(made()), max_memory="96Gi", allow=["eager"], notes=["no budget was given"])
    assert text.endswith("\n\nAllowed: max_memory 96Gi; allow eager.\nNote: no budget was given.\n")


def test_no_plan_is_said():
    assert console() == "Nothing to change: no finding asks for it.\n"
    assert "Nothing to change" in markdown()


# Markdown holds everything.


def test_markdown_shows_every_step_in_full():
    predicted = {
        "before": {"available_kv": 4 * GIB, "fits": False},
        "after": {"available_kv": 10 * GIB, "fits": True},
    }
    text = markdown(
        object_plan(
            made(predicted=predicted, risks=["less is left"]),
            made("larger_gpu", None, None, "advised", "action", None, step=2, why="1 x H200 would hold it"),
            rejected=[reason("--swap-space", "CPU blocks aren't what is missing", "increase")],
            considered=[reason("--enforce-eager", "it frees too little", "add")],
            blocked=["it is paused"],
            notes=["worth it"],
        )
    )
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# vLLM remediation plan",
        "## StatefulSet/qwen3 (namespace llm)",
        "### Nothing may be written now",
        "### Step 1: may be made",
        "### Step 2: for a person",
        "### Don't do that",
        "### Left out",
        "### Worth knowing",
    ]
    assert "- `--max-model-len: 40960 -> 18224`\n\nAgainst what happened: `kv_max_len`.\n" in text
    assert "| KV cache | 4.00 GiB | 10.00 GiB |" in text
    assert (
        "```shell\nkubectl -n llm edit statefulset/qwen3  # container vllm: set --max-model-len=18224\n```"
        in text
    )
    assert "- Mind: less is left\n" in text
    assert "- Raise --swap-space: CPU blocks aren't what is missing\n" in text


@pytest.mark.parametrize(
    "text",
    [
        "```\n# not a title\n```",
        "| cell |",
        "<script>alert(1)</script>",
        "[x](http://example.org)",
        "a `tick`\nb",
    ],
)
def test_text_cannot_become_markup(text):
    everywhere = made(
        "--served-model-name",
        text,
        text,
        why=text,
        proof=text,
        risks=[text],
        refused=[text],
        takes=text,
        delivery=documents.delivery("live", text, text),
        downtime={"sentence": text},
    )
    shown = object_plan(
        everywhere, sentence=text, blocked=["blocked " + text], notes=[text], rejected=[reason("--x", text)]
    )
    for line in outside_of_code(markdown(shown, notes=[text])):
        bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
        assert not bare.startswith("# not")
        assert "<script>" not in bare
        assert not re.search(r"(?<!\\)\]\(http", bare)
        assert "| cell |" not in bare


@given(st.text(max_size=200))
def test_no_text_steers_the_terminal_or_breaks_the_limits(text):
    shown = object_plan(
        made(
            before=text,
            after=text,
            why=text,
            proof=text,
            risks=[text],
            refused=[text],
            delivery=documents.delivery("live", text, text),
        ),
        sentence=text,
        blocked=[text],
        notes=[text],
        considered=[reason("--x", text)],
    )
    lines = console(shown, notes=[text])
    assert not [character for character in lines if ord(character) < 32 and character != "\n"]
    assert "\x1b" not in lines
    assert "\x9b" not in lines


# Others.


def test_the_summary_is_bounded():
    many = plan_summary(document(*[object_plan(made()) for _index in range(60)]))
    assert (many["objects"], many["changeable"], len(many["plans"]), many["more"]) == (60, 60, 50, 10)
    assert set(many["plans"][0]) == {"object", "namespace", "causes", "sentence"}


def test_another_document_is_refused():
    with pytest.raises(DocumentError, match="plan/v1"):
        plan_view({"schema": "x"})


def test_a_state_that_is_none_is_refused():
    with pytest.raises(DocumentError, match="known state"):
        plan_view(document(object_plan(dict(made(), state="perhaps"))))


# Real plans.


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("cpu-limit.json", "resources.limits.cpu: 6 -> removed"),
        ("host-oomkilled", "--safetensors-load-strategy: eager -> lazy"),
        ("max-model-len", "--max-model-len: 40960 -> 18224"),
        ("serving-oom", "--gpu-memory-utilization: 0.95 -> 0.91"),
        ("probe-kill", "startupProbe: failureThreshold: 15, periodSeconds: 10 -> failureThreshold: 60,"),
        ("dev-shm", "volumes.shm: none -> 2Gi"),
        ("nccl-oom.log", "NCCL_RUNTIME_CONNECT: not set -> 0"),
    ],
)
def test_an_example_is_shown_with_its_first_change_and_its_command(name, first):
    seen = read_bundle(str(EXAMPLES / name))
    sized = budgets_of(seen)
    found = plan(diagnose(seen, sized), seen, sized)
    lines = plan_console.render(plan_view(found)).splitlines()
    assert lines[3] == f"            {first}"
    assert len(lines) <= 25
    command = next(item["delivery"]["command"] for item in found["plans"][0]["changes"])
    assert command.split("  #")[0].split(" -p ")[0] in "\n".join(lines)


def test_what_is_refused_for_two_causes_is_listed_once():
    flag = "--gpu-memory-utilization"
    text = console(
        object_plan(made(), rejected=[reason(flag, "the cache shrinks"), reason(flag, "no room beside it")])
    )
    assert f"  Don't     - lower {flag}: the cache shrinks; no room beside it\n" in text
    assert text.count(f"lower {flag}") == 1
