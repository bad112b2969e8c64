# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan and what was done about it in; the outcome document out: what became of each edited object.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
import shlex

from ..documents import (
    DIAGNOSIS_SCHEMA,
    PLAN_SCHEMA,
    DocumentError,
    object_outcome,
    outcome_attempt,
    outcome_document,
    require,
)
from .wording import in_words, run_name

_CONSUMER = "the outcome of a remediation"
# Verdicts with which a run was for something.
GOOD = ("starts", "served", "held")
_WRITTEN = ("mode", "sentence", "at", "run", "warnings", "found")
_VERIFIED = ("verdict", "verifiable", "seconds", "sentence")
_OBJECT = ("namespace", "kind", "name", "api_version", "path")
_MOST_SHOWN = 4
# Values that mean themselves as ``-e name=value``, to the shell and to Ansible.
_PLAIN_VALUE = re.compile(r"[\w@%+:,./-]+", re.ASCII)
# What is said of a change that was only asked for.
_MODES = {
    "dry_run": "the API server would take it",
    "client_side": "the API server wasn't asked, since that takes the right to write",
    "unchanged": "it is so already",
}


def outcome(plan, done=(), diagnosis=None, found=None, access=None):
    """The outcome document (``documents.outcome_document``): an entry for each object of the plan, then those of ``done`` beside it.

    plan: a plan document, None where there was none (a rollback); diagnosis: the one that it was made from, for the first failure.

    done: ``[{object, live, rounds, problem, ended, kept, withdrawn, waited}]``, every key but the first may be missing.
    live: False where only the patch for its source was made.
    rounds: ``[{step, changes, written, verification, failure}]``, written: what module ``workload`` returned, verification: of
    role ``verify``, failure: ``{pod, cause, sentence}`` of the diagnosis after it. problem: ``{task, sentence}`` of a task that
    failed in between; ended: what ``workload`` returned of the end, which took everything back where the last verification
    failed and ``kept`` (a failed change was to stay) isn't true. withdrawn: that this was a rollback, whose result ``ended`` is,
    and the rollout's sentence after it ``waited``.

    found: what module ``changes_info`` returned before anything was done, for notes on what other runs are at work on and on what
    couldn't be read; None where it wasn't asked. access: ``{kubeconfig, context}`` as they were given, for the command that takes
    everything back.

    Raises DocumentError where a document isn't one.
    """
    if plan is not None:
        require(plan, PLAN_SCHEMA, _CONSUMER)
    if diagnosis is not None:
        require(diagnosis, DIAGNOSIS_SCHEMA, _CONSUMER)
    document = outcome_document()
    try:
        known = {_key(item["object"]): item for item in done or ()}
        for planned in (plan or {}).get("plans") or ():
            document["objects"].append(
                _of_object(planned, known.pop(_key(planned["object"]), {}), diagnosis, access)
            )
        for item in done or ():
            if _key(item["object"]) in known:
                document["objects"].append(_of_object({"object": item["object"]}, item, diagnosis, access))
        document["notes"] = _notes(found or {})
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise DocumentError(
            f"{_CONSUMER} was given a plan or results without their shape ({type(error).__name__}: {error}); make the plan again "
            "with the filter remediation_plan"
        ) from error
    return document


def _notes(found):
    notes = [
        f"{_name(item, {})} is being changed by {run_name(item['run'])} on host {item['host']}, which holds it until {item['until']}"
        for item in found.get("objects") or ()
        if item["held"]
    ]
    unread = found.get("unreadable") or ()
    if unread:
        named = "; ".join(f"{item['object']} ({item['reason']})" for item in unread)
        notes.append(f"where earlier runs have left changes isn't known of what couldn't be listed: {named}")
    return notes


def _key(edited):
    return tuple(edited.get(name) for name in ("namespace", "kind", "name"))


def _of_object(planned, item, diagnosis, access):
    edited = {name: planned["object"].get(name) for name in _OBJECT}
    rounds = item.get("rounds") or []
    verdict = _verdict(item, rounds)
    problem = (item.get("problem") or {}).get("sentence") or _unsaid(rounds) or _not_restored(item)
    if item.get("live") is False:
        problem = None
    made = object_outcome(
        edited,
        plan=planned.get("sentence"),
        attempts=[_attempt(one) for one in rounds],
        verdict=verdict,
        first_failure=_first_failure(planned, diagnosis),
        last_failure=next((one["failure"] for one in reversed(rounds) if one.get("failure")), None),
        # Why it ended before its end, or nothing was written although it was to be; None where all went its way.
        problem=problem,
    )
    if _remains(item, rounds, verdict):
        made["undo"] = undo_command(edited, access or {})
    made["sentence"] = _sentence(made, planned, item, rounds)
    return made


def undo_command(edited, access):
    """The command that takes back everything that the collection has changed at an object, in the same cluster."""
    options = {
        "namespace": edited.get("namespace"),
        "workload": f"{edited['kind'].lower()}/{edited['name']}",
        **{name: access.get(name) for name in ("kubeconfig", "context")},
    }
    given = " ".join(_extra(f"vllm_oom_{name}", value) for name, value in options.items() if value)
    return f"ansible-playbook vllm_runbook.oom.rollback_oom {given}"


def _extra(name, value):
    """``-e name=value``, as JSON where Ansible would split the value or look for quotes in it."""
    if _PLAIN_VALUE.fullmatch(value):
        return f"-e {name}={value}"
    return "-e " + shlex.quote(json.dumps({name: value}, ensure_ascii=False))


def _attempt(one):
    written, verified = one.get("written"), one.get("verification")
    return outcome_attempt(
        step=one.get("step"),
        changes=list(one.get("changes") or []),
        written=written and _written(written),
        verification=verified and {name: verified.get(name) for name in _VERIFIED},
    )


def _written(result):
    """What is kept of module ``workload``'s answer. changed: whether something is in the cluster by it; record: its id."""
    record = result.get("record")
    found = {name: result.get(name) for name in _WRITTEN}
    return dict(
        found,
        changed=_is_written({"written": result}) and not _is_asked({"written": result}),
        missing=list((result.get("rights") or {}).get("missing") or []),
        record=record.get("id") if isinstance(record, dict) else record,
    )


def _is_written(one):
    """Whether something is in the cluster by this round: written by it, or found there from a run that was killed."""
    written = one.get("written") or {}
    return bool(written.get("found")) or (written.get("mode") == "written" and bool(written.get("changed")))


def _is_asked(one):
    """Whether the cluster was only asked what the change would do."""
    return (one.get("written") or {}).get("mode") in ("dry_run", "client_side")


def _verdict(item, rounds):
    ended = item.get("ended") or {}
    restored = ended.get("mode") in ("written", "unchanged") and not ended.get("failed")
    if item.get("withdrawn"):
        return "undone" if restored else None
    verdict = ((rounds[-1].get("verification") or {}) if rounds else {}).get("verdict")
    taken_back = verdict == "failed" and not item.get("kept") and any(_is_written(one) for one in rounds)
    return "undone" if taken_back and restored else verdict


def _unsaid(rounds):
    """Why nothing can be said of the last change although it was looked at, or None."""
    verified = (rounds[-1].get("verification") or {}) if rounds else {}
    return verified.get("sentence") if verified and verified.get("verdict") is None else None


def _not_restored(item):
    """Why a rollback didn't take anything back, or None."""
    ended = item.get("ended") or {}
    return (
        ended.get("msg") or "no reason was given" if item.get("withdrawn") and ended.get("failed") else None
    )


def _remains(item, rounds, verdict):
    """Whether a change of ours is still at the object that the command takes back. What has just refused would refuse again: its
    sentence says the way out."""
    if item.get("withdrawn"):
        return verdict != "undone" and not _not_restored(item)
    return verdict != "undone" and any(_is_written(one) for one in rounds)


def _first_failure(planned, diagnosis):
    names = planned.get("pods") or []
    found = {
        f"{pod.get('namespace') or ''}/{pod['name']}": pod.get("verdict") or {}
        for pod in (diagnosis or {}).get("pods") or []
    }
    for cause in planned.get("causes") or []:
        for name in names:
            if (found.get(name) or {}).get("cause") == cause:
                return {"pod": name, "cause": cause, "sentence": found[name].get("sentence")}
    return None


# --- in a sentence


def _sentence(made, planned, item, rounds):
    name = _name(made["object"], planned)
    if item.get("withdrawn"):
        return f"{name}: {_withdrawn(item, made)}"
    last = rounds[-1] if rounds else None
    what = _changes(rounds)
    if last is None or item.get("live") is False:
        why = made["problem"] or (planned.get("apply") or {}).get("why") or "nothing is planned"
        return f"{name}: nothing was written: {_stop(why)}"
    if last.get("verification") is None and (_is_asked(last) or not any(map(_is_written, rounds))):
        written = last.get("written") or {}
        if made["problem"]:
            return f"{name}: {what} would be refused: {_stop(made['problem'])}"
        return f"{name}: would {what} ({_MODES.get(str(written.get('mode')), 'nothing is to be written')})."
    return f"{name}: {_ended(made, item, last, what)}"


def _ended(made, item, last, what):
    verified = last.get("verification") or {}
    stays = f"take it back with: {made['undo']}"
    if made["verdict"] in GOOD:
        return " ".join(
            [f"{what};", _stop(verified.get("sentence") or made["verdict"])]
            + ([_stop(made["problem"])] if made["problem"] else [])
        )
    if made["verdict"] is None:
        why = made["problem"] or "it wasn't verified"
        return f"{what}; the run ended before that was verified: {_stop(why)} The change is in the cluster; {stays}"
    failure = (last.get("failure") or {}).get("sentence") or verified.get("sentence") or "no reason is known"
    text = f"{what}; it failed again: {_stop(failure)}"
    if made["problem"]:
        text += f" {_stop(made['problem'])}"
    if made["verdict"] == "undone":
        return f"{text} Everything that this run had changed was taken back."
    if item.get("kept"):
        return f"{text} The change was kept, as asked; {stays}"
    if not any(attempt["written"] and attempt["written"]["changed"] for attempt in made["attempts"]):
        return f"{text} Nothing was written, for the object had that already."
    why = (item.get("ended") or {}).get("msg") or "the run ended before"
    return f"{text} It could not be taken back: {_stop(why)} Try again with: {made['undo']}"


def _withdrawn(item, made):
    if made["problem"]:
        return f"not taken back: {_stop(made['problem'])}"
    said = [(item.get("ended") or {}).get("sentence") or "everything was taken back", item.get("waited")]
    return " ".join(_stop(text) for text in said if text)


def _name(edited, planned):
    if not edited.get("name"):
        return ", ".join(planned.get("pods") or []) or "an object that isn't known"
    place = f"{edited['namespace']}/" if edited.get("namespace") else ""
    return f"{edited['kind']} {place}{edited['name']}"


def _changes(rounds):
    """All changes of the rounds in words, each once."""
    found = [in_words(item) for one in rounds for item in one.get("changes") or ()]
    found[:0] = [
        _inherited(one["written"]["found"]) for one in rounds if (one.get("written") or {}).get("found")
    ]
    found = list(dict.fromkeys(found))
    more = len(found) - _MOST_SHOWN
    text = ", ".join(found[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return text or "no change"


def _inherited(found):
    return f"go on with what {run_name(found['run'])} changed at {found['at']} ({'; '.join(found.get('changes') or [])})"


def _stop(text):
    """``text`` on one line, with a full stop."""
    text = " ".join(str(text).split())
    return text if text.endswith((".", "!", "?")) else f"{text}."
