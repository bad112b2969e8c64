# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes written to one object, and taken back: the one place where the collection writes to a cluster.

A write is one JSON patch of the object as it was read a moment before: the changed fields, the undo record and the mark of
the run, under a lock on the object's resourceVersion. What the API server makes of the change (defaults, webhooks) is asked
by a dry run first, so that the record tells what really changed. Where the lock doesn't hold, or an answer was lost, the
object is read again: the record's id tells whether the write was carried out.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
import socket
import uuid
from typing import Any, NamedTuple

from ..documents import UNDO_ANNOTATION, DocumentError
from ..engine.settings import engine_settings
from ..engine.versions import image_version
from ..evidence.client import ApiError
from ..evidence.pods import recognise_engine
from ..evidence.redact import Redactor
from ..remediation import as_written, differences, undo
from ..remediation.json_patch import same
from ..remediation.wording import run_name
from ..remediation.workload_kinds import layout_of
from . import dry_run, field_values, owners, places, records, rights, stuck_pods, wishes, wording
from .access import Unsettled, stamp
from .field_values import part_of

_TRIES = 12
_PAUSE = 0.5
# How long a controller may take to see a change before it counts as unfinished, in looks of half a second.
_LOOKS_FOR_CONTROLLER = 10
_MOST_PATHS = 4
# The API server's words for a patch whose test fails; what an object can't be it explains.
_TEST_FAILED = "the server rejected our request due to an error in our request"
# What is changed beside the pod template.
_OF_OBJECT = "strategy"


class Refused(DocumentError):
    """Nothing was written; the sentence says why. result: what is known all the same, of the fields that ``run`` returns."""

    def __init__(self, sentence, result):
        super().__init__(sentence)
        self.result = result


class _Again(Exception):
    """The object has moved meanwhile, or nobody knows: read it again. why: a sentence for when that doesn't help."""


class _Plan(NamedTuple):
    """What is to become of an object. after: raw, with the changes; applied: CHANGEs with what was before and after; refused:
    ``[{change, why}]``."""

    after: dict[str, Any]
    applied: list[dict[str, Any]]
    refused: list[dict[str, Any]]


def run(writer, place, options, check):
    """What module ``workload`` returns, without what Ansible adds.

    writer: ``access.Writer``; place: ``places.Place``; options: the module's, by name; check: nothing is written. Raises
    Refused, and DocumentError for options that can't be right.
    """
    wishes.check_given_ceiling(options.get("max_memory"))
    return _STATES[options["state"]](writer, place, options, check).run()


def renew(writer, place, run_id, lease):
    """The run's own mark prolonged by ``lease`` seconds from now; nothing where it isn't the run's. True where it is."""
    for _try in range(_TRIES):
        raw = places.read(writer, place)
        notes = records.notes_of(raw, place.shown)
        if notes.pending is None or notes.pending["run"] != run_id:
            return False
        mark = dict(records.mark(run_id, notes.pending["host"], writer.now(), lease), at=notes.pending["at"])
        patch = records.patch_notes(raw, records.Notes(mark, notes.records), place.shown)
        try:
            writer.patch(place.path, _locked(raw, patch))
        except Unsettled:
            writer.pause(_PAUSE)
        except ApiError as error:
            if not _is_stale(error):
                raise DocumentError(_refused_words(place, error, set())) from error
        else:
            return True
    raise DocumentError(f"{place.shown} changes too fast: its mark could not be renewed")


def content(raw):
    """What somebody set in an object: all of it but metadata and status."""
    return {name: value for name, value in raw.items() if name not in ("metadata", "status")}


def _locked(raw, patch):
    version = raw["metadata"].get("resourceVersion")
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *patch]


def _is_stale(error):
    """Whether the object isn't what the patch expects any more: the lock is another's, or a test in the patch fails."""
    return error.status == 409 or (error.status == 422 and error.message == _TEST_FAILED)


def _refused_words(place, error, secrets):
    if error.status == 403 and "cannot patch resource" in error.message:
        return f"{place.shown} can't be changed; needs: {place.right('patch')}"
    message = Redactor().text(error.message)
    if any(len(secret) > 3 and secret in message for secret in secrets):
        message = "its words would show a secret, so they are left out"
    return f"the API server refuses the change of {place.shown}: {message}"


class _Work:
    """One call of the module for one object."""

    def __init__(self, writer, place, options, check):
        self.writer, self.place, self.options, self.check = writer, place, options, check
        self.id = uuid.uuid4().hex[:12]
        self.run_id = options.get("run") or f"run-{uuid.uuid4().hex[:12]}"
        self.host = socket.gethostname() or "unknown"
        self.warnings: list[str] = []
        self.secrets: set[str] = set()
        # Whether a write was sent of which nobody knows whether it was carried out.
        self.unsettled = False
        self.result: dict[str, Any] = {
            "changed": False,
            "mode": None,
            "sentence": None,
            "run": self.run_id,
            "object": {
                "api_version": place.api_version,
                "kind": place.kind,
                "namespace": place.namespace,
                "name": place.name,
                "uid": None,
                "generation": None,
            },
            "applied": [],
            "refused": [],
            "rights": {"allowed": None, "missing": []},
            "record": None,
            "records": [],
            "found": None,
            "held_by": None,
            "at": None,
            "patch": None,
            "patch_withheld": None,
            "deleted": [],
            "diff": wording.difference(place, [], set()),
        }

    def run(self):
        why = None
        for number in range(_TRIES):
            raw = places.read(self.writer, self.place)
            self._note_object(raw)
            try:
                self._once(raw)
                break
            except _Again as again:
                why = str(again)
                self.writer.pause(_PAUSE if number else 0.0)
        else:
            self.refuse(f"{self.place.shown} could not be written in {_TRIES} tries: {why}")
        self.result["warnings"] = [*self.warnings, *self.writer.warnings]
        return self.result

    def _once(self, raw):
        raise NotImplementedError

    def refuse(self, sentence, **more):
        self.result.update(more, warnings=[*self.warnings, *self.writer.warnings])
        raise Refused(sentence, self.result)

    def _note_object(self, raw):
        about = raw["metadata"]
        self.secrets |= undo.secrets_of(content(raw))
        self.result["object"].update(uid=about.get("uid"), generation=about.get("generation"))

    def _note_records(self, notes):
        self.result["records"] = [records.brief(item) for item in notes.records]

    def warn(self, sentences):
        self.warnings += [text for text in sentences if text not in self.warnings]

    # --- what stands against it

    def _refuse_held(self, notes):
        held = records.held_by_other(notes, self.run_id, self.writer.now(), self.place.shown)
        if held:
            self.refuse(held, held_by=_holder(notes))

    def _refuse_unwritable(self, raw):
        """The kind, and who else manages the object."""
        why = owners.why_not_live(self.place, self.options.get("path") or "")
        if why:
            self.refuse(why)
        found = owners.managers(self.writer, self.place, raw)
        why = owners.who_reverts(self.place, raw, found)
        if why:
            self.refuse(why)
        self.warn(owners.later_reverts(self.place, found))

    # --- asking the API server

    def _rights(self):
        """Whether the caller may patch; in check mode only, since a write tells it by itself."""
        found = rights.rights(self.writer, self.place)
        self.result["rights"] = {"allowed": found.patch, "missing": found.missing}
        return found

    def _tried(self, raw, patch):
        """What the API server would make of a patch; None where it can't tell beforehand."""
        try:
            return self.writer.patch(self.place.path, _locked(raw, patch), dry_run=True)
        except ApiError as error:
            if error.status == 400 and "dry run" in error.message:
                self.warn(
                    [f"what the API server makes of it isn't known before it is written: {error.message}"]
                )
                return None
            return self._refused_by_server(error)

    def _refused_by_server(self, error):
        if _is_stale(error):
            raise _Again("others write to it all the time") from error
        if error.status is None:
            raise DocumentError(places.why_unread(self.writer, self.place, error)) from error
        if error.status == 403 and "cannot patch resource" in error.message:
            self.result["rights"] = {"allowed": False, "missing": [self.place.right("patch")]}
        return self.refuse(_refused_words(self.place, error, self.secrets))

    def _write(self, raw, patch):
        try:
            return self.writer.patch(self.place.path, _locked(raw, patch))
        except Unsettled as unsettled:
            self.unsettled = True
            raise _Again(unsettled.why) from unsettled
        except ApiError as error:
            return self._refused_by_server(error)

    def _replace_broken_pods(self, raw, written):
        """After a write of the template: pods that would hold it up for ever."""
        before, after = ((item.get("spec") or {}).get("template") for item in (raw, written))
        if not same(before, after):
            self.result["deleted"], left = stuck_pods.delete_broken_pods(self.writer, self.place, written)
            self.warn(left)

    def _offer(self, patch):
        """The patch for people, where it shows no secret."""
        self.result["patch"], self.result["patch_withheld"] = wording.safe_patch(patch, self.secrets)

    def _is_written(self, notes):
        """Whether a write of this call, whose answer was lost, was carried out."""
        return any(item["id"] == self.id for item in notes.records)


def _is_mine(notes, run_id):
    return notes.pending is not None and notes.pending["run"] == run_id


def _holder(notes):
    return {name: notes.pending[name] for name in ("run", "at", "until", "host")}


class _Present(_Work):
    """The wanted changes made."""

    def __init__(self, writer, place, options, check):
        super().__init__(writer, place, options, check)
        self.wanted = wishes.changes_of(options)
        self.looks = 0
        self.steps: list[dict[str, Any]] = []
        self.record: dict[str, Any] | None = None

    def _once(self, raw):
        notes = records.notes_of(raw, self.place.shown)
        if self.record is not None and self._is_written(notes):
            self._done(raw, notes)
            return
        self._find(notes)
        path = self._path(raw)
        plan = self._plan(raw, path)
        self.result.update(applied=plan.applied, refused=plan.refused)
        if plan.refused:
            self.refuse("; ".join(dict.fromkeys(item["why"] for item in plan.refused)))
        patch = differences.json_patch(raw, plan.after, guard=False)
        if not patch:
            self._nothing_to_do(raw, notes)
            return
        self._offer(patch)
        self.steps = undo.record(content(raw), content(plan.after))["steps"]
        self.result["diff"] = wording.difference(self.place, self.steps, self.secrets)
        self._check_result(plan.after, path)
        self._refuse_held(notes)
        self._refuse_unexpected(raw)
        self._refuse_unwritable(raw)
        self._refuse_moving(raw, notes)
        self.warn(owners.field_owners(raw, _fields(raw, plan.after)))
        if self.check:
            self._show(raw, plan, patch)
            return
        self._make(raw, notes, plan, patch)

    def _path(self, raw):
        given, container = self.options.get("path"), self.options.get("container")
        if given:
            return places.checked_path(raw, self.place, given, container)
        return places.container_path(raw, self.place, container)

    def _find(self, notes):
        self._note_records(notes)
        if self.unsettled and self.result["found"]:
            return
        unfinished = notes.unfinished(self.run_id)
        held = records.held_by_other(notes, self.run_id, self.writer.now(), self.place.shown)
        self.result["held_by"] = _holder(notes) if held else None
        if unfinished and not held:
            self.result["found"] = {name: unfinished[name] for name in ("run", "at", "changes")}

    # --- what is to be changed

    def _plan(self, raw, path):
        current, applied, refused = raw, [], []
        running = _running(self.writer, self.place, path)
        for item in self.wanted:
            try:
                self._check_wish(current, path, item)
                made = as_written.patch(current, path, [item], guard=False, running=running)
            except DocumentError as error:
                refused.append({"change": item, "why": str(error)})
                continue
            if made.refused:
                refused += made.refused
            elif made.undo["steps"]:
                applied.append(self._applied(item, path, current, made))
                current = made.after
        return _Plan(current, applied, refused)

    def _check_wish(self, raw, path, item):
        container = part_of(raw, path)
        command, args = (
            container.get(name) if _is_texts(container.get(name)) else None for name in ("command", "args")
        )
        settings = engine_settings(command, args, None, defaults=False)
        image = container.get("image")
        version = self.options.get("engine_version") or (
            image_version(image) if isinstance(image, str) else None
        )
        self.warn(wishes.check_engine(item, settings, version))
        wishes.check_ceiling(item, self.options.get("max_memory"))

    def _applied(self, item, path, raw, made):
        """The change with what was before and after it in the live object."""
        asked = item["value"]
        named = re.search(r"\[([^\]]+)\]$", path)
        before, after = field_values.before_and_after(item, path, self.place, raw, made)
        return {
            **item,
            "container": item.get("container")
            or (named.group(1) if named and item["name"] != _OF_OBJECT else None),
            "action": "remove" if asked is None else "set",
            "before": self._safe(item["name"], before),
            "after": self._safe(item["name"], after),
        }

    def _safe(self, name, value):
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return (
            value
            if not undo.holds_secret([value], self.secrets)
            else wording.shown(value, self.secrets, name)
        )

    def _check_result(self, after, path):
        container = part_of(after, path)
        try:
            wishes.check_resources(container, self.wanted, self.options.get("max_memory"))
        except DocumentError as error:
            self.refuse(
                str(error), refused=[{"change": item, "why": str(error)} for item in _sizes(self.wanted)]
            )

    # --- what stands against it now

    def _refuse_unexpected(self, raw):
        expected, about = self.options.get("expected") or {}, raw["metadata"]
        if expected.get("uid") and expected["uid"] != about.get("uid"):
            self.refuse(
                f"{self.place.shown} isn't the object that was diagnosed, but a new one of its name: diagnose again"
            )
        generation = expected.get("generation")
        if generation is not None and generation != about.get("generation"):
            self.refuse(
                f"{self.place.shown} was changed since it was diagnosed (generation {generation}, now {about.get('generation')}):"
                " diagnose again"
            )

    def _refuse_moving(self, raw, notes):
        """Paused, or in the middle of a rollout that nobody has looked at."""
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        if spec.get("paused") is True:
            self.refuse(
                f"{self.place.shown} is paused: resume it, or ask who paused it, before it is changed"
            )
        ours = _is_mine(notes, self.run_id)
        seen, generation = status.get("observedGeneration"), raw["metadata"].get("generation")
        if ours or (self.options.get("expected") or {}).get("generation") is not None:
            return
        if seen is not None and generation is not None and seen < generation:
            self.looks += 1
            if self.looks < _LOOKS_FOR_CONTROLLER:
                raise _Again(f"its controller hasn't seen generation {generation}")
            self.refuse(
                f"the controller of {self.place.shown} hasn't seen its last change yet (generation {generation}): wait for it"
            )
        wanted, updated = _updated(raw)
        if wanted is not None and updated < wanted:
            self.refuse(
                f"a rollout of {self.place.shown} hasn't ended ({updated} of {wanted} pods are of the newest revision): wait for it,"
                " or give expected with the generation that was diagnosed"
            )

    # --- showing and doing it

    def _show(self, raw, plan, patch):
        found = self._rights()
        tried = self._tried(raw, patch) if found.patch else None
        self.result.update(changed=True, mode="client_side" if tried is None else "dry_run")
        if tried is None:
            self._say("would be changed (what the API server says of it wasn't asked)")
            return
        self._refuse_dropped(tried)
        self._take_steps(raw, tried)
        self._ask_for_pod(raw, tried, asked=found.pods)
        self._say("would be changed")

    def _refuse_dropped(self, made):
        """Fields that this API server doesn't know, or has switched off, it leaves out without a word."""
        left = self._plan(made, self._path(made)).applied
        if left:
            names = ", ".join(item["name"] for item in left)
            self.refuse(f"the API server doesn't keep the change of {names}: this cluster doesn't support it")

    def _take_steps(self, raw, made):
        """What really changed, as the API server has it."""
        self.steps = undo.record(content(raw), content(made))["steps"]
        self.result["diff"] = wording.difference(self.place, self.steps, self.secrets)

    def _ask_for_pod(self, raw, tried, asked=True):
        if not asked:
            self.warn([dry_run.unasked(self.place)] if dry_run.pod_of(tried) else [])
            return
        said = dry_run.ask_for_pod(self.writer, self.place, raw, tried)
        self.warn(said.notes)
        if said.refused:
            self.refuse(said.refused)

    def _make(self, raw, notes, plan, patch):
        tried = self._tried(raw, patch)
        if tried is not None:
            self._refuse_dropped(tried)
            self._take_steps(raw, tried)
            self._ask_for_pod(raw, tried)
        now = self.writer.now()
        self.record = {
            "id": self.id,
            "run": self.run_id,
            "at": stamp(now),
            "causes": list(self.options.get("causes") or []),
            "changes": [wording.words_of(item) for item in plan.applied],
            "steps": self.steps,
            "verdict": None,
        }
        pending = self._mark(now)
        wanted = records.with_record(notes, self.record, pending)
        written = self._write(raw, [*patch, *records.patch_notes(raw, wanted, self.place.shown)])
        self._correct(raw, written, tried if tried is not None else plan.after)
        self._replace_broken_pods(raw, written)
        self._done(written, records.notes_of(written, self.place.shown))

    def _mark(self, now):
        lease = self.options.get("lease")
        return records.mark(self.run_id, self.host, now, lease) if lease else None

    def _correct(self, raw, written, expected):
        """The record tells what the write really did, also where a webhook did something else in the dry run."""
        if same(content(written), content(expected)):
            return
        self._take_steps(raw, written)
        for _try in range(_TRIES):
            notes = records.notes_of(written, self.place.shown)
            for item in notes.records:
                if item["id"] == self.id:
                    item["steps"] = self.steps
            patch = records.patch_notes(written, notes, self.place.shown)
            if not patch:
                return
            try:
                written.update(self._write(written, patch))
                return
            except _Again:
                self.writer.pause(_PAUSE)
                written.update(places.read(self.writer, self.place))
        self.warn([f"the undo record of {self.place.shown} may lack what a webhook changed"])

    def _done(self, written, notes):
        self._note_object(written)
        self._note_records(notes)
        record = self.record or {}
        self.result.update(changed=True, mode="written", record=records.brief(record), at=record["at"])
        self.result["rights"] = {"allowed": True, "missing": []}
        self._say("was changed")

    def _say(self, word):
        told = "; ".join(wording.words_of(item) for item in self.result["applied"])
        self.result["sentence"] = f"{self.place.shown} {word}: {told}"

    def _nothing_to_do(self, raw, notes):
        """Already so. A mark that a killed run has left is taken over by a run that was named and goes on with it."""
        found, held = self.result["found"], self.result["held_by"]
        self.result.update(mode="unchanged", sentence=f"{self.place.shown} is so already")
        if held:
            self.result["sentence"] += (
                f"; {run_name(held['run'])} on host {held['host']} is at work on it until {held['until']}"
            )
        if not found:
            return
        if self.unsettled and _is_mine(notes, self.run_id):
            self.result.update(changed=True, mode="written")
            return
        self.result["at"] = found["at"]
        self.result["sentence"] += (
            f"; {run_name(found['run'])} changed it at {found['at']} and didn't come to a verdict"
        )
        if not (self.options.get("run") and self.options.get("lease")) or owners.why_not_live(self.place):
            return
        self.result["changed"] = True
        if self.check:
            self.result["mode"] = "dry_run"
            return
        taken = records.taken_over(notes, found["run"], self._mark(self.writer.now()))
        written = self._write(raw, records.patch_notes(raw, taken, self.place.shown))
        self._note_object(written)
        self.result.update(mode="written")
        self.result["sentence"] += ": this run goes on with it"


def _is_texts(value):
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _sizes(wanted):
    return [item for item in wanted if item["target"] == "k8s" and item["name"].startswith("resources.")]


def _fields(raw, after):
    return [(step.place, step.path) for step in differences.steps(content(raw), content(after))]


def _updated(raw):
    """``(pods wanted, pods of the newest revision)``; wanted is None where the kind doesn't tell or nothing rolls."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    kind = raw.get("kind")
    if kind == "Deployment":
        return spec.get("replicas", 1), status.get("updatedReplicas") or 0
    if kind == "StatefulSet" and status.get("updateRevision") != status.get("currentRevision"):
        return spec.get("replicas", 1), status.get("updatedReplicas") or 0
    if kind == "DaemonSet":
        return status.get("desiredNumberScheduled") or 0, status.get("updatedNumberScheduled") or 0
    return None, 0


# Kinds whose arguments go behind those of a template -> the label that their pods have.
_POD_LABELS = {
    ("serving.kserve.io", "InferenceService"): "serving.kserve.io/inferenceservice={}",
    ("ome.io", "InferenceService"): "ome.io/inferenceservice={}",
    (
        "serving.kserve.io",
        "LLMInferenceService",
    ): "app.kubernetes.io/part-of=llminferenceservice,app.kubernetes.io/name={}",
}


def _running(writer, place, path):
    """The engine's container of a pod that was made from the object, where what the template adds to it matters."""
    label = _POD_LABELS.get((place.group, place.kind))
    if label is None or not layout_of(place.group, place.kind, path).appends:
        return None
    try:
        selector = {"labelSelector": label.format(place.name)}
        pods = list(writer.pages(f"/api/v1/namespaces/{place.namespace}/pods", selector))
    except ApiError:
        return None
    for pod in pods:
        found = recognise_engine(pod)
        if found:
            return pod["spec"]["containers"][found[0]]
    return None


class _Restored(_Work):
    """What the undo records tell, taken back."""

    def _once(self, raw):
        notes = records.notes_of(raw, self.place.shown)
        self._note_records(notes)
        self._refuse_held(notes)
        taken = [item for item in notes.records if self._is_meant(item)]
        left = [item for item in notes.records if not self._is_meant(item)]
        if not taken and self.unsettled:
            self.result.update(mode="written")
            return
        if not taken:
            self.result.update(mode="unchanged", sentence=self._nothing(notes))
            return
        after = raw
        try:
            for item in reversed(taken):
                after = undo.restore(item, after)
        except undo.ChangedSince as error:
            self.refuse(f"{self.place.shown}: {error}. {self._way_out(error.paths)}")
        except DocumentError as error:
            self.refuse(f"{self.place.shown}: {error}")
        patch = differences.json_patch(raw, after, guard=False)
        self._offer(patch)
        self._take_steps(raw, after)
        self.result.update(applied=[], record=records.brief(taken[-1]))
        self._refuse_unwritable(raw)
        self.warn(owners.field_owners(raw, _fields(raw, after)))
        if (raw.get("spec") or {}).get("paused") is True:
            self.warn([f"{self.place.shown} is paused: its pods are made anew when it is resumed"])
        kept = records.Notes(None, left)
        self._carry_out(raw, after, patch, kept, taken)

    def _is_meant(self, item):
        return self.options.get("restore") != "run" or item["run"] == self.options.get("run")

    def _way_out(self, paths):
        """What to do where somebody has changed the fields ``paths`` since."""
        space = f"-n {self.place.namespace} " if self.place.namespace else ""
        kind = self.place.kind.lower() + ("" if self.place.group in ("", "apps") else f".{self.place.group}")
        return (
            f"Set {', '.join(paths)} by hand to what our change made of it and take it back again, or give up the record and keep"
            f" all as it is: kubectl {space}annotate {kind} {self.place.name} {UNDO_ANNOTATION}-"
        )

    def _nothing(self, notes):
        if not notes.records:
            return f"{self.place.shown} has no undo record: nothing was changed by this collection, or it was taken back already"
        return f"{self.place.shown} has no undo record of {run_name(self.options.get('run'))}"

    def _take_steps(self, raw, made):
        steps = undo.record(content(raw), content(made))["steps"]
        self.result["diff"] = wording.difference(self.place, steps, self.secrets)

    def _carry_out(self, raw, after, patch, kept, taken):
        told = "; ".join(text for item in reversed(taken) for text in item["changes"])
        noted = [*patch, *records.patch_notes(raw, kept, self.place.shown)]
        self.result["changed"] = True
        if self.check and not self._rights().patch:
            self.result.update(
                mode="client_side",
                sentence=f"{self.place.shown} would be restored (what the API server says of it wasn't asked), taking back: {told}",
            )
            return
        tried = self._tried(raw, noted)
        if tried is not None and not same(content(tried), content(after)):
            self._take_steps(raw, tried)
            paths = [step.path for step in differences.steps(content(after), content(tried))]
            self.warn([f"the API server sets more than is taken back: {', '.join(paths[:_MOST_PATHS])}"])
        if self.check:
            mode = "client_side" if tried is None else "dry_run"
            self.result.update(
                mode=mode, sentence=f"{self.place.shown} would be restored, taking back: {told}"
            )
            return
        # Before it is written: where the answer is lost, they are told all the same.
        self.result.update(
            at=stamp(self.writer.now()), sentence=f"{self.place.shown} was restored, taking back: {told}"
        )
        written = self._write(raw, noted)
        self._replace_broken_pods(raw, written)
        self._note_object(written)
        self._note_records(kept)
        self.result.update(mode="written", rights={"allowed": True, "missing": []})


class _Released(_Work):
    """The run's mark dropped, its verdict noted."""

    def _once(self, raw):
        notes = records.notes_of(raw, self.place.shown)
        wanted = records.with_verdict(notes, self.options.get("run"), self.options.get("verdict"))
        patch = records.patch_notes(raw, wanted, self.place.shown)
        self._note_records(wanted)
        mine = [item for item in wanted.records if item["run"] == self.options.get("run")]
        self.result["record"] = records.brief(mine[-1]) if mine else None
        if not patch and self.unsettled:
            self.result.update(mode="written")
            return
        if not patch:
            self.result.update(mode="unchanged", sentence=f"{self.place.shown} isn't held by this run")
            return
        self.result["changed"] = True
        verdict = self.options.get("verdict")
        told = f"{self.place.shown} {{}} released" + (f", verdict {verdict}" if verdict else "")
        if self.check:
            self.result.update(mode="client_side", sentence=told.format("would be"))
            return
        self.result["sentence"] = told.format("was")
        written = self._write(raw, patch)
        self._note_object(written)
        self.result.update(mode="written")


_STATES = {"present": _Present, "restored": _Restored, "released": _Released}
