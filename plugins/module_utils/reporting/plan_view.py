# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plain view of a remediation plan that every report format shows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import CAUSES, PLAN_SCHEMA, PLAN_STATES, DocumentError, require
from ..quantities import show_bytes
from .view_model import PROOF_WORDS
from .wording import change_words, clean, value_words

_MAX_PLANS = 50
_HOW_WORDS = {"live": "live", "patch": "a patch for its source", "by_hand": "by hand"}
# target -> what there is where nothing is set.
_UNSET = {"flag": "vLLM's default", "env": "not set", "k8s": "none"}
# Fields of the budget before and after a step -> (words, whether they are bytes).
_PREDICTED = {
    "available_kv": ("KV cache", True),
    "need_bytes": ("one request of full length needs", True),
    "max_concurrency": ("requests of full length at once", False),
    "estimated_max_len": ("longest request, tokens", False),
    "outside": ("left beside the budget", True),
    "host_limit": ("memory limit", True),
    "host_need": ("host memory that can't be reclaimed", True),
}
_STRATEGY_FIELDS = {"max_surge": "maxSurge", "max_unavailable": "maxUnavailable"}
_TITLES = {"planned": "may be made", "refused": "needs something first", "advised": "for a person"}
_COMMENT = "  # "
# What is no command says in words where the change belongs.
_PROGRAMS = ("kubectl ", "vllm ", "export ")


def plan_view(plan):
    """``{summary, allowed, notes, plans}`` of a plan document; each object's plan as ``object_view`` has it.

    Raises DocumentError when it is another document.
    """
    _require(plan)
    return {
        "summary": plan_summary(plan),
        "allowed": _allowed(plan.get("limits") or {}),
        "notes": [clean(text) for text in plan.get("notes") or []],
        "plans": [object_view(item, plan.get("limits") or {}) for item in plan.get("plans") or []],
    }


def plan_summary(plan):
    """What a job leaves behind: ``{objects, changeable, refused, advised, blocked, plans, more}``; plans: at most 50.

    changeable, refused, advised: objects by the best that can be done about them; blocked: those of any of these that may
    not be written now.
    """
    _require(plan)
    plans = plan.get("plans") or []
    best = [_best(item) for item in plans]
    return {
        "objects": len(plans),
        "changeable": best.count("planned"),
        "refused": best.count("refused"),
        "advised": best.count("advised"),
        "nothing": best.count(None),
        "blocked": sum(bool(item.get("blocked")) for item in plans),
        "plans": [
            {
                "object": object_ref(item),
                "namespace": (item.get("object") or {}).get("namespace"),
                "causes": list(item.get("causes") or []),
                "sentence": clean(item.get("sentence")),
            }
            for item in plans[:_MAX_PLANS]
        ],
        "more": max(0, len(plans) - _MAX_PLANS),
    }


def _require(plan):
    require(plan, PLAN_SCHEMA, "The report")
    for item in plan.get("plans") or []:
        for made in item.get("changes") or []:
            if made.get("state") not in PLAN_STATES:
                raise DocumentError(
                    f"The report needs a known state in every change of a plan, got {made.get('state')!r}: make the plan again from "
                    "its diagnosis."
                )


def _best(item):
    states = {made["state"] for made in item.get("changes") or []}
    return next((state for state in PLAN_STATES if state in states), None)


def _allowed(limits):
    """What was allowed, as the variables that allow it."""
    said = [
        f"{name} {value_words(limits[name])}"
        for name in ("max_memory", "max_gpus", "min_model_len", "min_concurrency")
        if limits.get(name) is not None
    ]
    return said + (
        [f"allow {', '.join(clean(word) for word in limits['allow'])}"] if limits.get("allow") else []
    )


def object_view(item, limits):
    """One object's plan as text: ``{ref, namespace, means, causes, pods, sentence, blocked, first, next, steps, risks, rejected,
    considered, notes}``.

    first: the number of the step that is shown in full; steps: all, in order, see ``_step_view``, ``against`` harm that was
    done or a ``risk``; next: what to do now, in a sentence.
    """
    steps = _steps(item)
    first = _first(steps, item)
    return {
        "ref": object_ref(item),
        "namespace": clean((item.get("object") or {}).get("namespace")) or None,
        "pods": [clean(name).lstrip("/") for name in item.get("pods") or []],
        "causes": [
            {"cause": cause, "means": CAUSES.get(cause, clean(cause))} for cause in item.get("causes") or []
        ],
        "sentence": clean(item.get("sentence")),
        "blocked": [clean(text) for text in item.get("blocked") or []],
        "first": first["number"] if first else None,
        "next": _next(item, first, limits),
        "steps": steps,
        "rejected": _reasons(item.get("rejected") or []),
        "considered": _reasons(item.get("considered") or []),
        "notes": [clean(text) for text in item.get("notes") or []],
    }


def object_ref(item):
    """``Kind/name`` of the edited object of a plan or an outcome; the pods' names where none is known."""
    shown = item.get("object") or {}
    if shown.get("name"):
        return f"{clean(shown.get('kind'))}/{clean(shown['name'])}"
    return ", ".join(clean(name).lstrip("/") for name in item.get("pods") or []) or "unknown"


def _steps(item):
    """The steps of a plan, each with the changes that go together."""
    found: dict = {}
    for made in item.get("changes") or []:
        found.setdefault(made.get("step"), []).append(made)
    blocked = {clean(text) for text in item.get("blocked") or []}
    containers = {made["change"].get("container") for made in item.get("changes") or []}
    several = len(containers - {None}) > 1
    steps = []
    for number, changes in found.items():
        step = _step_view(number, changes, several)
        # What stands against all of them is said once.
        step["refused"] = [text for text in step["refused"] if text not in blocked]
        if not (item.get("object") or {}).get("kind"):
            step["restarts"] = None
        steps.append(step)
    return steps


def _step_view(number, changes, several):
    """One step: ``{number, state, title, role, causes, changes, what, why, proof, takes, risks, restarts, strategy, how, delivery,
    commands, hints, refused, predicted}``; what: each change as ``name: before -> after``; restarts: None where nothing starts anew."""
    first = changes[0]
    why = _unique(clean(made.get("why")) for made in changes)
    return {
        "number": number,
        "state": first["state"],
        "title": _TITLES[first["state"]],
        "role": first.get("role"),
        "causes": _unique(
            cause for made in changes for cause in (made.get("cause"), *(made.get("also") or [])) if cause
        ),
        "what": [change_line(made["change"], several) for made in changes],
        "short": ", ".join(_short(made["change"]) for made in changes),
        "why": why,
        "proof": _proof(first, why),
        "takes": clean(first.get("takes")) or "nothing",
        "risks": _unique(clean(text) for made in changes for text in made.get("risks") or []),
        "restarts": _restarts(first),
        "strategy": _strategy(next((made["strategy"] for made in changes if made.get("strategy")), None)),
        "how": (first.get("delivery") or {}).get("how"),
        "delivery": _delivery(changes),
        "commands": _commands(changes),
        "hints": _hints(changes),
        "refused": _unique(clean(text) for made in changes for text in made.get("refused") or []),
        "predicted": _predicted(first.get("predicted") or {}),
    }


def _first(steps, item):
    """The step to decide on: the one that would be written, else the best against what the plan is against first; None where
    there is none against that, however much could be changed besides."""
    chosen = (item.get("apply") or {}).get("step")
    for step in steps:
        if step["number"] == chosen:
            return step
    wanted = (item.get("causes") or [None])[0]
    for state in PLAN_STATES:
        for step in steps:
            if step["state"] == state and wanted in step["causes"]:
                return step
    return None


def _next(item, first, limits):
    """What to do now, in a sentence; empty where the step says it all."""
    applied = item.get("apply") or {}
    if item.get("blocked"):
        return ""
    read = (item.get("expected") or {}).get("uid")
    if (
        applied.get("step") is None
        and first
        and read
        and (first["state"], first["how"]) == ("planned", "patch")
    ):
        return "the patch for its source is in the directory of vllm_oom_patch_dir, where one is given"
    if applied.get("step") is None:
        why = clean(applied.get("why"))
        # What the step needs, or who reverts it, is said beside it.
        said = [*first["refused"], first["delivery"].partition(": ")[2]] if first else []
        return "" if any(text and text in why for text in said) else why
    with_ = "".join(f" and {number}" for number in applied.get("with") or [])
    steps = f"step{'s' if with_ else ''} {applied['step']}{with_}"
    if limits.get("apply"):
        return f"{steps} {'are' if with_ else 'is'} to be written"
    return f"add -e vllm_oom_apply=true to write {steps} and watch what comes of it"


def change_line(change, several=False):
    """``--max-model-len: 40960 -> 18224``; what only a person does in words. several: whether to name the container."""
    if change.get("action") not in ("set", "remove"):
        return change_words(change)
    where = f" (container {clean(change['container'])})" if several and change.get("container") else ""
    return f"{clean(change['name'])}: {_state(change, 'before')} -> {_state(change, 'after')}{where}"


def _state(change, when):
    value = change.get(when)
    if value is None:
        return "removed" if when == "after" else _UNSET.get(change["target"], "not set")
    if value is True:
        return "on"
    return "off" if value is False else in_words(value)


def in_words(value):
    """A value of a change: fields as ``name: value``, in the names that Kubernetes has for them."""
    if isinstance(value, dict):
        return ", ".join(
            in_words(part)
            if name == "type"
            else f"{_STRATEGY_FIELDS.get(name, clean(name))}: {in_words(part)}"
            for name, part in value.items()
            if part is not None
        )
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value_words(value)


def _short(change):
    """A change as an imperative phrase, without what there was before."""
    if change.get("action") == "set" and isinstance(change.get("after"), dict):
        return f"set {clean(change['name'])} to {in_words(change['after'])}"
    if change.get("action") == "remove":
        return f"remove {clean(change['name'])}"
    return change_words(change)


def _proof(made, why):
    """The counterfactual; where there is none, what the change rests on."""
    said = clean(made.get("proof"))
    proof = str(made["change"].get("proof"))
    only_why = not said or said in why or said.removesuffix(f" (by {proof})") in why
    return PROOF_WORDS.get(proof, "") if only_why else said


def _restarts(made):
    counts = made.get("restarts") or {}
    pods, serving = counts.get("pods") or 0, counts.get("serving") or 0
    if not pods:
        return None
    started = "1 pod is started anew" if pods == 1 else f"{pods} pods are started anew"
    now = (
        "it serves now"
        if pods == serving == 1
        else f"{serving} of them serve{'s' if serving == 1 else ''} now"
        if serving
        else None
    )
    down = clean((made.get("downtime") or {}).get("sentence"))
    extra = made.get("extra_gpus")
    gpus = (
        "whether the rollout needs a spare GPU isn't known"
        if extra is None
        else "no spare GPU is needed"
        if extra == 0
        else f"{extra} spare GPU{'s are' if extra > 1 else ' is'} needed"
    )
    return "; ".join(part for part in (started, now, f"downtime {down}" if down else None, gpus) if part)


def _strategy(change):
    if not change:
        return None
    before = f" (now {in_words(change['before'])})" if change.get("before") else ""
    why = f": {clean(change['why'])}" if change.get("why") else ""
    return f"the update strategy becomes {in_words(change['after'])}{before}{why}"


def _delivery(changes):
    """How a step reaches its object and why so; it goes as its least direct change goes."""
    order = list(_HOW_WORDS)
    found = [made["delivery"] for made in changes if made.get("delivery")]
    if not found:
        return ""
    least = max(found, key=lambda item: order.index(item["how"]))
    return f"{_HOW_WORDS[least['how']]}: {clean(least['why'])}"


def _commands(changes):
    """The commands of a step, each once; edits of one object become one, with everything that is to be edited behind it."""
    edits: dict = {}
    for made in changes:
        command = clean((made.get("delivery") or {}).get("command"))
        head, _mark, comment = command.partition(_COMMENT)
        if command.startswith(_PROGRAMS):
            edits.setdefault(head, [])
            if comment and comment not in edits[head]:
                edits[head].append(comment)
    return [head + (_COMMENT + "; ".join(comments) if comments else "") for head, comments in edits.items()]


def _hints(changes):
    """Where a person makes the change, in words; empty where the delivery says it already."""
    found = [clean((made.get("delivery") or {}).get("command")) for made in changes]
    known = any((made.get("delivery") or {}).get("how") == "patch" for made in changes)
    return [] if known else _unique(text for text in found if not text.startswith(_PROGRAMS))


def _predicted(predicted):
    """Rows ``(what, before, after)`` of what the budget says of it; none where it says nothing."""
    before, after = predicted.get("before") or {}, predicted.get("after") or {}
    return [
        (words, _size(before.get(name), is_bytes), _size(after.get(name), is_bytes))
        for name, (words, is_bytes) in _PREDICTED.items()
        if before.get(name) is not None or after.get(name) is not None
    ]


def _size(value, is_bytes):
    if value is None:
        return "-"
    if is_bytes:
        return show_bytes(value)
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _reasons(entries):
    """``[{what, why}]``: changes that aren't made, each once with all its reasons, those with the same reasons together."""
    reasons: dict = {}
    for entry in entries:
        reasons.setdefault(change_words(entry["change"]), []).append(clean(entry.get("why")))
    found: dict = {}
    for what, why in reasons.items():
        found.setdefault("; ".join(_unique(why)), []).append(what)
    return [{"what": ", ".join(what), "why": why} for why, what in found.items()]


def _unique(texts):
    return list(dict.fromkeys(text for text in texts if text))
