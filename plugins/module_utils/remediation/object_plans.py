# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one edited object: what its pods' findings ask for, in which order, at what cost, and whether it is allowed.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..diagnosis.budgeted import WITHIN, of_container
from ..diagnosis.commands import in_cluster
from ..documents import change, object_plan, planned_change
from . import costs, host_memory, wording
from .candidates import candidates
from .choice import choose
from .delivery import delivered, restart_command
from .edited import edit_of, object_key, pod_key
from .limits import refusals, restart_refusals
from .obstacles import is_old, left_behind, of_object, of_operation, of_ratios, serving_template
from .revisions import way_back
from .side_effects import side_effects
from .single_operations import operation
from .steps import Step

_ROLES = ("trigger", "contributing", "risk")
_CHANGE = ("target", "name", "direction", "value", "with", "why", "proof", "command")
_LIMITS = "resources.limits."
_MOST_GPUS = 3
_HOW = {"live": "live", "patch": "in its source", "by_hand": "by hand"}
# Risk -> the fields that it is about.
_ABOUT = {
    "memory_limit_low": (host_memory.LIMIT,),
    "memory_limit_missing": (host_memory.LIMIT,),
    "shm_small": host_memory.SHM,
}


class Asked(NamedTuple):
    """limits, tried, run: as for ``plan``, checked."""

    limits: dict
    tried: list
    run: str | None


class ObjectPlan:
    """The plan of one edited object. members: (evidence's pod, its diagnosis), the pod with the first error first."""

    def __init__(self, members, diagnosis, evidence, entries, asked):
        self.members, self.asked, self.entries = members, asked, entries
        self.limits = asked.limits
        self.pods = [pod for pod, _result in members]
        self.evidence = evidence
        self.judged = {
            name: item
            for item in reversed(diagnosis.get("workloads") or [])
            for name in item.get("pods") or []
        }
        own = {pod_key(pod) for pod in self.pods}
        known = [pod for pod in evidence["pods"] if object_key(pod) == object_key(self.pods[0])]
        self.restarted = costs.restarts(known or self.pods)
        edit = edit_of(self.pods[0])
        shown = {name: edit.get(name) for name in ("kind", "name", "api_version", "path")}
        self.plan = object_plan({"namespace": self.pods[0].get("namespace"), **shown}, sorted(own))
        # What a planned step begins with -> which pod and cause it is for, and the value.
        self.seen: dict[tuple, dict] = {}
        # Cause -> [(CHANGE, why it isn't planned)].
        self.reasons: dict[str, list] = {}
        # Cause -> that of the first failure, which rules out what would help against it.
        self.ruled_out: dict[str, str] = {}

    def made(self):
        """The plan (``documents.object_plan``)."""
        plan = self.plan
        failed = [pod for pod, result in self.members if _has_trigger(result)]
        plan["blocked"] = of_object(failed or self.pods, self.evidence["collected_at"], self.asked.run)
        self._findings(self._current(failed))
        _number(plan["changes"])
        kept = {_name(item["change"]) for item in plan["changes"]}
        plan["rejected"] = [item for item in plan["rejected"] if _name(item["change"]) not in kept]
        self._notes()
        plan["sentence"] = _sentence(plan)
        plan["apply"] = choose(plan, bool(failed), self.limits, self.asked.tried)
        edit = edit_of(self.pods[0])
        plan["expected"] = {name: edit.get(name) for name in plan["expected"]}
        return plan

    def _current(self, failed):
        """The members without pods of older revisions where newer ones count: what those died of, the newest may have cured."""
        if all(map(is_old, failed or self.pods)):
            return self.members
        old = [pod_key(pod) for pod in self.pods if is_old(pod)]
        if any(is_old(pod) for pod in failed):
            self.plan["notes"].append(
                f"{', '.join(old)}: of an older revision, so nothing is planned against what they died of"
            )
        return [(pod, result) for pod, result in self.members if not is_old(pod)]

    def _findings(self, members):
        for role in _ROLES:
            for pod, result in members:
                for finding in result["findings"]:
                    if finding["role"] == role:
                        self._finding(finding, pod, _trigger(result))

    # --- one finding ---

    def _finding(self, finding, pod, trigger):
        if finding["cause"] not in self.plan["causes"]:
            self.plan["causes"].append(finding["cause"])
        container = _container(pod, finding["container"])
        entry = self._entry(pod, container, finding["attempt"])
        if self._back(finding, pod, container):
            kept = [item for item in finding["recommend"] if item["name"] != "rollback_revision"]
            finding = dict(finding, recommend=kept)
        found = candidates(finding, entry, pod, container, self._room(pod, container))
        for step in found.steps:
            self._step(step, finding, pod, container)
        for item, why in found.considered:
            self._consider(item, why, finding)
        for item in finding["rejected"]:
            self._list("rejected", item, item["why"])
        if not finding["recommend"] and trigger is not None and trigger is not finding:
            # The diagnosis leaves out what the first failure's cause rules out.
            self.ruled_out.setdefault(finding["cause"], trigger["cause"])
        if finding["role"] == "trigger" and finding["cause"] in WITHIN:
            self._hardware(finding, pod, container, entry)

    def _entry(self, pod, container, attempt):
        if container is None:
            return None
        mine = of_container(self.entries, pod, container)
        if attempt is not None:
            # Without numbers of its own an attempt has no entry: the nearest one's is of the same settings.
            nearest = sorted(mine, key=lambda index: (index is not None, abs((index or 0) - attempt)))
            return mine.get(attempt) or next((mine[index] for index in nearest), None)
        return mine[max(mine, key=lambda index: -1 if index is None else index)] if mine else None

    def _back(self, finding, pod, container):
        """Back to the revision that ran, before anything else, for it costs nothing; whether there is one."""
        back = way_back(finding, pod)
        if back is None:
            return False
        rows, sentence, why = back
        if not rows:
            item = next(item for item in finding["recommend"] if item["name"] == "rollback_revision")
            item = dict(item, why=f"{item['why']} {why}")
            self._step(Step((item,), "nothing", sentence), finding, pod, container)
            return True
        made = [operation(row, pod, _container(pod, row["of"]) or container).change for row in rows]
        whole = [item for item in made if item is not None]
        # The pods that serve have that template already.
        self._add(whole, Step(tuple(rows), "nothing", sentence), finding, pod, container, back=True)
        return True

    def _step(self, step, finding, pod, container):
        made, first = [], True
        rows = (
            step.rows
            if in_cluster(pod)
            else [row for row in step.rows if row["target"] != "k8s"] or step.rows
        )
        for row in rows:
            result = operation(row, pod, container)
            if result.change is not None:
                made.append(result.change)
            elif first:
                self._consider(row, result.refused, finding)
                return
            first = False
        self._add(made, step, finding, pod, container)

    def _add(self, made, step, finding, pod, container, back=False):
        if not made or self._known(made[0], pod, finding):
            return
        refused = self._refused(made, step, finding, pod, container, back)
        advised = step.trial or any(item["action"] is None for item in made)
        state = "advised" if advised else "refused" if refused else "planned"
        tag = object()
        for item in made:
            self.plan["changes"].append(
                planned_change(
                    _shown(item),
                    state,
                    step=tag,
                    refused=[] if advised else refused,
                    cause=finding["cause"],
                    role=finding["role"],
                    pod=pod_key(pod),
                    proof=step.proof or item["why"],
                    predicted={"before": step.before, "after": step.after},
                    costs=step.costs,
                    takes=costs.in_words(step.costs),
                    delivery=delivered(
                        item, pod, _with_limits(_container(pod, item["container"]) or container, made)
                    ),
                    **({} if advised else self._restart(item, pod, container, back)),
                )
            )

    def _known(self, item, pod, finding):
        """Whether a step that begins with this change is in the object's plan already, for this or another finding.

        Another value for another finding is considered: the one that comes first is made first.
        """
        key = (item["container"], item["target"], item["name"], item["action"])
        mine = (pod_key(pod), finding["cause"])
        other = self.seen.setdefault(key, {"by": mine, "after": item["after"]})
        if other["by"] == mine:
            return any(_shown(item) == planned["change"] for planned in self.plan["changes"])
        if other["after"] != item["after"]:
            why = f"{' ('.join(other['by'])}) comes first, with {wording.value(other['after'])}"
            self._consider(item, why, finding)
            return True
        for planned in self.plan["changes"]:
            same = tuple(planned["change"][name] for name in ("container", "target", "name", "action")) == key
            if same and finding["cause"] not in (planned["cause"], *planned["also"]):
                planned["also"].append(finding["cause"])
        return True

    def _consider(self, item, why, finding):
        self._list("considered", item, why)
        self.reasons.setdefault(finding["cause"], []).append((item, why))

    def _list(self, where, item, why):
        listed = {"change": _plain(item), "why": why}
        if listed not in self.plan[where]:
            self.plan[where].append(listed)

    # --- what it needs and takes ---

    def _surroundings(self, pod):
        """``(namespace, node)`` of the evidence's pod, empty where they weren't read."""
        namespaces, nodes = self.evidence.get("namespaces") or {}, self.evidence.get("nodes") or {}
        return namespaces.get(pod.get("namespace")) or {}, nodes.get(pod.get("node")) or {}

    def _room(self, pod, container):
        namespace, node = self._surroundings(pod)
        most, pods = self.limits["max_memory"], self.restarted["pods"]
        return host_memory.room(pod, container, most, namespace, node, pods)

    def _refused(self, made, step, finding, pod, container, back):
        namespace, node = self._surroundings(pod)
        gpus = _more_gpus(step.rows, container)
        names = [item["name"] for item in made]
        found = [] if back else list(self.plan["blocked"])
        for item in made:
            # A request lies within its limit.
            within = item["name"] == "resources.requests.memory" and "resources.limits.memory" in names
            if not within and (not back or item["name"].startswith("resources.")):
                found += refusals(item, self.limits, step.costs, step.after, gpus)
            found += of_operation(item, pod, namespace, node, self.restarted["pods"])
        found += of_ratios(made, pod, namespace)
        if not back:
            found += restart_refusals(self.restarted["serving"], self.limits)
            found += serving_template(finding, self.judged.get(pod_key(pod)))
        return list(dict.fromkeys(found))

    def _restart(self, item, pod, container, back):
        restarted = dict(self.restarted, serving=0) if back else dict(self.restarted)
        strategy = (pod.get("workload") or {}).get("strategy")
        changed, extra = costs.rollout(
            edit_of(pod).get("kind"), strategy, restarted, costs.gpus_of(container)
        )
        return {
            "restarts": restarted,
            "downtime": costs.downtime(restarted, (container or {}).get("probes")),
            "strategy": changed,
            "extra_gpus": extra,
            "risks": side_effects(item, pod, extra),
        }

    def _hardware(self, finding, pod, container, entry):
        """Where no setting helps: the GPUs that would hold it, in words."""
        last = {
            id(item["step"]) for item in self.plan["changes"] if item["change"]["name"] == "--cpu-offload-gb"
        }
        helps = any(
            item["cause"] == finding["cause"]
            and item["state"] != "advised"
            and item["costs"] != "hardware"
            and id(item["step"]) not in last
            for item in self.plan["changes"]
        )
        found = (entry or {}).get("hardware") or []
        if helps or not found:
            return
        named = ", ".join(f"{item['count']} x {item['gpu']}" for item in found[:_MOST_GPUS])
        row = change(
            "action",
            "larger_gpu",
            "set",
            found[0]["gpu"],
            f"these would hold the same settings: {named}",
            "budget",
        )
        self.plan["changes"] = [
            item
            for item in self.plan["changes"]
            if (item["cause"], item["change"]["name"]) != (finding["cause"], "larger_gpu")
        ]
        self.seen.pop((container and container["name"], "action", "larger_gpu", None), None)
        self._step(Step((row,), "hardware"), finding, pod, container)

    def _notes(self):
        plan, pod = self.plan, self.pods[0]
        plan["notes"] += left_behind(pod.get("workload"), self.evidence["collected_at"])
        command = restart_command(pod)
        if command:
            plan["notes"].append(
                f"the strategy is OnDelete: the pods start anew only when they are deleted ({command})"
            )
        partition = ((pod.get("workload") or {}).get("strategy") or {}).get("partition")
        if partition:
            plan["notes"].append(f"the partition {partition} keeps pods below that ordinal as they are")
        for cause in plan["causes"]:
            if not any(cause in (item["cause"], *item["also"]) for item in plan["changes"]):
                why = self._set_already(cause) or _why_nothing(self.reasons.get(cause))
                plan["notes"].append(f"nothing is planned against {cause}: {why}")

    def _set_already(self, cause):
        """The sentence on a cause whose cure the first failure's cause leaves to its own step or rules out, or None."""
        first = self.ruled_out.get(cause)
        if first is None:
            return None
        names = _ABOUT.get(cause, ())
        for item in self.plan["changes"]:
            if item["change"]["name"] in names and item["state"] != "advised":
                return f"step {item['step']} against {item['cause']} sets {item['change']['name']} already"
        return f"{first} comes first, and what would help against {cause} is among what that rules out"


def _why_nothing(reasons):
    """reasons: ``[(CHANGE, why)]`` of what was considered, or None."""
    if not reasons:
        return "its mechanism allows no change of the settings"
    items: dict[str, list] = {}
    for item, why in reasons:
        items.setdefault(why, []).append(f"{item['direction']} {item['name']}")
    why, named = next(iter(items.items()))
    # The reason of one is often that of all.
    return why if len(items) == 1 else f"{named[0]}: {why}"


def _more_gpus(rows, container):
    """How many GPUs the container has with a step's changes, or None where it needs no more than it has."""
    counts = [
        int(row["value"])
        for row in rows
        if row["target"] == "k8s" and costs.is_gpu(row["name"][len(_LIMITS) :])
    ]
    return max(counts) if counts and max(counts) > costs.gpus_of(container) else None


def _has_trigger(result):
    return _trigger(result) is not None


def _trigger(result):
    return next((item for item in result["findings"] if item["role"] == "trigger"), None)


def _container(pod, name):
    containers = pod.get("containers") or []
    return next((item for item in containers if item["name"] == name), None)


def _with_limits(container, made):
    """The container with the limits of a step: the command for its request is given after that for its limit."""
    limits = {
        item["name"][len(_LIMITS) :]: item["after"]
        for item in made
        if item["name"].startswith(_LIMITS) and item["container"] == (container or {}).get("name")
    }
    if not limits:
        return container
    resources = container.get("resources") or {}
    return dict(container, resources=dict(resources, limits={**(resources.get("limits") or {}), **limits}))


def _shown(item):
    return {name: item[name] for name in (*_CHANGE, "container", "action", "before", "after")}


def _plain(item):
    return {name: item.get(name) for name in _CHANGE}


def _name(item):
    return (item["target"], item["name"].lstrip("-").replace("-", "_"), item["direction"])


def _number(changes):
    """Steps as numbers from 1 on, in order."""
    numbers: dict[int, int] = {}
    for item in changes:
        item["step"] = numbers.setdefault(id(item["step"]), len(numbers) + 1)


def _sentence(plan):
    counts = {
        state: len({item["step"] for item in plan["changes"] if item["state"] == state})
        for state in ("planned", "refused", "advised")
    }
    shown = plan["object"]
    name = f"{shown['kind']}/{shown['name']}" if shown["name"] else plan["pods"][0].lstrip("/")
    first = next((item for item in plan["changes"] if item["state"] == "planned"), None)
    if first is None:
        text = f"{name}: nothing can be changed as it is allowed now"
    else:
        text = f"{name}: first {wording.in_words(first['change'])}, {_HOW[first['delivery']['how']]}"
    parts = [f"{counts[state]} {state}" for state in ("planned", "refused", "advised") if counts[state]]
    return f"{text}; steps: {', '.join(parts)}." if parts else f"{text}."
