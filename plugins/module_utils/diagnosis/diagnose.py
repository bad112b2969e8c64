# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence in, diagnosis out: per pod the trigger first, then cascade, contributing findings and risks.

The order of the day (design, section 3): the first error of the first readable failing attempt is the trigger; an init
container fails before the main one; what happened around the pod explains a container that never ran.
"""

from __future__ import annotations

from .. import documents
from ..documents import BUDGET_SCHEMA, CAUSES, EVIDENCE_SCHEMA, diagnosis, finding, require
from ..evidence.node_joining import with_nodes
from . import (
    around_pod,
    budgeted,
    cpu_placement,
    gpu_holders,
    kernel_oom,
    nccl_checks,
    node_evidence,
    node_findings,
    replicas,
    runbook_checks,
    unready,
)
from .advice import ADVICE
from .causes import NATURE
from .commands import checks, command_for
from .deaths import time_to_death
from .facts import Facts
from .judge import judge
from .what_changed import with_revision

# Causes that say little: a later attempt, or the pod's surroundings, may say more.
_WEAK = ("undetermined", "exit_code_masked", "sigkill_unattributed", "status_unknown")
# The role of a sidecar's trigger until it is known whether the pod has a better one.
_BESIDE = "beside"
_ROLE_ORDER = {"init": 0, "main": 1, "sidecar": 2}
_FINDING_ORDER = {"trigger": 0, "contributing": 1, "cascade": 2, "risk": 3}
_MEMORY_WORDS = {
    "gpu": "GPU memory",
    "nccl_gpu": "NCCL's buffers in GPU memory",
    "host": "host memory",
    "shm": "/dev/shm",
    "node": "the node's memory",
    "unified": "memory shared by GPU and host",
    "none": "not a shortage of memory",
    "unknown": "which memory, if any, is not settled",
}


def diagnose(evidence, budget=None, nodes=None):
    """The diagnosis document of an evidence document.

    budget: the budget document, or None: without it the log's own numbers and the rules speak alone. nodes: evidence documents
    of ``gpu_node_info``, which are put beside what the evidence has of these nodes.
    Raises DocumentError when ``evidence`` is not an evidence document.
    """
    require(evidence, EVIDENCE_SCHEMA, "the diagnosis")
    evidence = with_nodes(evidence, nodes)
    if budget is not None:
        require(budget, BUDGET_SCHEMA, "the diagnosis' budget")
    entries = budgeted.by_attempt(budget)
    result = diagnosis()
    pods = evidence.get("pods") or []
    origin = evidence.get("source") or {}
    # Only a single plain log has line numbers that a reader can look up.
    source = origin.get("file")
    names = _names(pods)
    for pod in pods:
        node = (evidence.get("nodes") or {}).get(pod.get("node") or "")
        namespace = (evidence.get("namespaces") or {}).get(pod.get("namespace") or "")
        result["pods"].append(
            diagnose_pod(
                pod,
                node,
                namespace,
                _sisters(pod, pods),
                source,
                evidence.get("collected_at"),
                entries,
                names,
            )
        )
    if origin.get("kind") == "manifest":
        result["pods"] = [_of_a_manifest(item) for item in result["pods"]]
    result["groups"] = replicas.group_diagnoses(evidence, result["pods"])
    result["workloads"] = replicas.workload_diagnoses(evidence, result["pods"])
    result["nodes"] = node_findings.node_diagnoses(evidence, node_evidence.names(evidence))
    missing = node_evidence.not_given(pods, evidence, nodes)
    result["unreadable"] = [*(evidence.get("unreadable") or []), *missing]
    return result


def _names(pods):
    """``{uid: "namespace/name"}`` of the pods."""
    return {
        pod["uid"]: "/".join(str(part) for part in (pod.get("namespace"), pod["name"]) if part)
        for pod in pods
        if pod.get("uid")
    }


def _sisters(pod, pods):
    """The other pods of the same workload."""
    workload = pod.get("workload") or {}
    key = (workload.get("kind"), workload.get("name"))
    if key == (None, None):
        return []
    return [
        other
        for other in pods
        if other is not pod
        and other.get("namespace") == pod.get("namespace")
        and ((other.get("workload") or {}).get("kind"), (other.get("workload") or {}).get("name")) == key
    ]


def diagnose_pod(
    pod, node=None, namespace=None, sisters=(), source=None, collected_at=None, budgets=None, names=None
):
    """The diagnosis of one pod of the evidence: ``{namespace, name, uid, verdict, findings, notes, budgets, ruled_out}``.

    budgets: entries of the budget document by attempt (``budgeted.by_attempt``); names: ``{uid: "namespace/name"}`` of all pods.
    """
    findings, trigger_facts = [], None
    for container in sorted(_containers(pod), key=lambda item: _ROLE_ORDER.get(item.get("role"), 1)):
        own = budgeted.of_container(budgets or {}, pod, container)
        judged, facts = _judge_container(pod, container, node, sisters, source, own, names)
        if judged and judged[0]["role"] == "trigger" and trigger_facts is None:
            trigger_facts = facts
        findings.extend(judged)
    around = around_pod.surrounding_findings(pod, namespace, node)
    findings = _or_a_sidecar(_merge_around(_one_trigger(findings), around))
    if not any(item["role"] == "trigger" for item in findings):
        findings = unready.hang_findings(pod, collected_at)[:1] + findings
    for item in [each for each in findings if each["role"] == "trigger"]:
        findings += gpu_holders.beside_undetermined(pod, item, node, names)
    notes = []
    for container in pod.get("containers") or []:
        if container.get("engine"):
            checked = runbook_checks.runbook_findings(pod, container, node, namespace)
            checked += nccl_checks.nccl_findings(pod, container, node)
            checked += cpu_placement.placement_findings(pod, container, node)
            findings = _with_checks(findings, checked)
            notes.extend(runbook_checks.runbook_notes(pod, container))
    findings = [
        with_revision(item, pod, sisters) if item["role"] == "trigger" else item
        for item in _agreeing(_once_per_cause(findings))
    ]
    trigger = next((item for item in findings if item["role"] == "trigger"), None)
    beside = _budgets(pod, budgets or {}, trigger)
    notes += [item["sentence"] for entry in beside for item in entry["contradictions"]]
    return {
        "namespace": pod.get("namespace"),
        "name": pod["name"],
        "uid": pod.get("uid"),
        "verdict": _verdict(trigger, findings, pod, collected_at),
        "findings": findings,
        "notes": notes,
        "budgets": beside,
        "ruled_out": _ruled_out(trigger, trigger_facts),
    }


def _budgets(pod, budgets, trigger):
    """The budget of each engine: of the attempt that the trigger is about, else of its last."""
    found = []
    for container in pod.get("containers") or []:
        own = budgeted.of_container(budgets, pod, container)
        if own:
            told = trigger and trigger["container"] == container["name"] and own.get(trigger["attempt"])
            found.append(
                budgeted.shown(told or own[max(own, key=lambda index: -1 if index is None else index)])
            )
    return found


def _containers(pod):
    """The pod's containers; for a failed pod that shows none, one that stands for it, so that its status is judged."""
    if pod.get("containers") or not pod.get("reason"):
        return pod.get("containers") or []
    return [documents.container(pod["name"], attempts=[documents.attempt(0, "terminated")])]


# -- attempts and containers ------------------------------------------------------------------------------------------


def _judge_container(pod, container, node, sisters, source, budgets, names):
    """The findings of one container over its attempts, and the facts of the attempt that gave the trigger."""
    runs = []
    for attempt in container.get("attempts") or []:
        if container.get("role") != "main" and not _ended_badly(attempt):
            continue
        budget = budgets.get(attempt.get("index"))
        facts = Facts(pod, container, attempt, node, sisters, source, budget, names)
        judged = judge(facts)
        if judged:
            runs.append((facts, judged))
    if not runs:
        return [], None
    telling = _telling(runs)
    facts, judged = telling
    findings = [_finding(facts, item) for item in judged]
    causes = {item["cause"] for item in findings}
    for other_facts, other_judged in runs:
        if other_facts is facts:
            continue
        for item in other_judged:
            if item.verdict.cause in causes or item.verdict.cause in _WEAK:
                continue
            causes.add(item.verdict.cause)
            later = other_facts.attempt["index"] > facts.attempt["index"]
            findings.append(_finding(other_facts, item._replace(role="cascade" if later else "contributing")))
    if container.get("role") == "sidecar":
        findings = [dict(item, role=_BESIDE) if item["role"] == "trigger" else item for item in findings]
    return findings, facts


def _telling(runs):
    """The run that gives the container's trigger: the first that says something, one with a log before one without."""
    strong = [run for run in runs if run[1][0].verdict.cause not in _WEAK]
    ended = [run for run in strong if run[0].attempt.get("state") == "terminated"]
    readable = [run for run in ended if run[0].log.get("readable")]
    # Where none says much, one whose log can be quoted says more than one without.
    quotable = [run for run in runs if run[0].log.get("readable") and run[0].log.get("first_error")]
    return (readable or ended or strong or quotable or runs)[0]


def _ended_badly(attempt):
    return attempt.get("state") == "terminated" and attempt.get("exit_code") not in (0, None)


def _finding(facts, judged):
    """A documents.finding of a judged thing: verdict, advice with commands, and what would settle it."""
    verdict, pod, container = judged.verdict, facts.pod, facts.container
    advice = ADVICE[verdict.cause](facts, judged)
    recommend, rejected = budgeted.recomputed(facts.budget, verdict.cause, advice.recommend, advice.rejected)
    # What never started fails alike each time.
    started = verdict.cause != "start_error"
    unseen = unseen_words(facts) if judged.role == "trigger" and started else None
    confidence = "likely" if unseen and verdict.confidence == "certain" else verdict.confidence
    holders = gpu_holders.of_finding(facts, judged)
    recommend = gpu_holders.advised(judged, holders, recommend)
    witnessed = [_sentence(verdict.reason), *_witnessed(facts, judged, holders)]
    explanation = " ".join(part for part in (advice.explanation, *witnessed, unseen) if part)
    settle = list(advice.settle) + [
        item
        for item in facts.death.get("would_settle") or []
        if judged.role == "trigger" and not judged.match
    ]
    return finding(
        verdict.cause,
        verdict.memory,
        verdict.phase,
        judged.role,
        confidence,
        container=container["name"],
        attempt=facts.attempt.get("index"),
        evidence=list(judged.proofs) + gpu_holders.proofs(holders, facts.holders.name),
        explanation=explanation,
        runbook=advice.runbook,
        recommend=[
            dict(_with_gpus(facts, item), command=command_for(item, pod, container))
            for item in recommend
            if not in_force(facts, item)
        ],
        rejected=[item for item in rejected if not _is_companion(item, recommend)],
        would_settle=[] if confidence == "certain" else _unique(settle),
        check=checks(pod, container, judged.proofs, facts.source, facts.attempt.get("index")),
    )


def _witnessed(facts, judged, holders):
    """What node and kernel add to a finding, in sentences."""
    if holders:
        yield gpu_holders.explained(holders, facts.pod.get("node"))
    report = facts.death.get("kernel")
    if report and (judged.verdict.cause.startswith("host_") or judged.verdict.cause == "node_oom"):
        yield f"{_sentence(kernel_oom.words(report))}"


def _with_gpus(facts, change):
    """More ranks need as many GPUs: the change says so where the container was given fewer."""
    ranks, gpus = change["value"], facts.gpus
    if change["name"] != "--tensor-parallel-size" or not isinstance(ranks, int) or not gpus or ranks <= gpus:
        return change
    return dict(change, why=f"{change['why']}; give the container {ranks} GPUs too, its limit is {gpus}")


def _is_companion(rejected, recommended):
    """Whether a rejected change is needed together with a recommended one: then "don't" would contradict."""
    return any(rejected["name"] in item["with"] for item in recommended)


def in_force(facts, change):
    """Whether a recommended flag is as proposed already, or as low as it can get."""
    if change["target"] != "flag":
        return False
    current = facts.setting(change["name"].lstrip("-").replace("-", "_"))
    if current is None:
        return False
    if change["direction"] == "add":
        return current is True
    if change["direction"] == "set":
        return change["value"] is not None and str(current) == str(change["value"])
    if change["direction"] != "decrease" or isinstance(current, (bool, str, list, dict)):
        return False
    lowest = (
        change["value"]
        if isinstance(change["value"], (int, float))
        else (1 if isinstance(current, int) else 0)
    )
    return current <= lowest


def _sentence(reason):
    return f"{reason[0].upper()}{reason[1:]}." if reason else None


def _unique(items):
    return list(dict.fromkeys(items))


def unseen_words(facts):
    """What of this container's history was not seen, in one sentence, or None: it limits the confidence (design, rule 1)."""
    restarts = facts.restarts
    seen = sum(run.get("state") != "waiting" for run in facts.container.get("attempts") or [])
    # The newest run is the one that waits to start when no other is known: it hasn't run.
    started = restarts + bool(seen) if isinstance(restarts, int) else 0
    parts = []
    if started > seen:
        times = "once" if started == 1 else f"{started} times"
        parts.append(f"the container started {times} and {seen} of these runs could be read")
    if facts.log.get("readable") and facts.log.get("complete") is False:
        parts.append("the log does not reach back to the start of the run")
    if not facts.log.get("readable") and facts.attempt.get("state") == "terminated":
        parts.append("the log of this run could not be read")
    return f"Not seen: {'; '.join(parts)}; an earlier error may be the real trigger." if parts else None


# -- putting findings together ----------------------------------------------------------------------------------------


def _one_trigger(findings):
    """Only the first container's trigger stays one, unless it says little and a later one says more."""
    triggers = [item for item in findings if item["role"] == "trigger"]
    if len(triggers) > 1:
        keep = next((item for item in triggers if item["cause"] not in _WEAK), triggers[0])
        findings = _demoted(findings, keep)
    return findings


def _demoted(findings, keep):
    """The findings with ``keep`` as the only trigger. What settles nothing is not worth telling beside it."""
    others = [item for item in findings if item is keep or item["role"] != "trigger"]
    lesser = [
        dict(item, role="contributing")
        for item in findings
        if item["role"] == "trigger" and item is not keep and item["cause"] != "undetermined"
    ]
    return others + lesser


def _or_a_sidecar(findings):
    """Where nothing else failed, what a sidecar failed of is the trigger; else it only contributes."""
    alone = not any(item["role"] == "trigger" for item in findings)
    promoted = next((item for item in findings if item["role"] == _BESIDE), None) if alone else None
    roles = {_BESIDE: "contributing"}
    return [
        dict(item, role="trigger" if item is promoted else roles.get(item["role"], item["role"]))
        for item in findings
    ]


def _merge_around(findings, around):
    """Findings about the pod's surroundings: they are the trigger where no container gives a telling one."""
    trigger = next((item for item in findings if item["role"] == "trigger"), None)
    merged = list(findings)
    for item in around:
        if item["role"] != "trigger":
            merged.append(item)
        elif trigger is None or (trigger["cause"] in _WEAK and item["cause"] not in _WEAK):
            if trigger is not None:
                merged = _demoted(merged, item)
            merged.append(item)
            trigger = item
        elif item["cause"] == trigger["cause"]:
            merged = [_joined(other, item) if other is trigger else other for other in merged]
            trigger = next(other for other in merged if other["role"] == "trigger")
        else:
            merged.append(dict(item, role="contributing"))
    return merged


def _with_checks(findings, checked):
    """The runbook's checks beside the findings. Where a check is about the trigger's own cause, its advice counts.

    The check has seen the quality of service, quotas and limit ranges, which a log knows nothing of.
    """
    merged = list(findings)
    for item in checked:
        same = next(
            (other for other in merged if other["role"] == "trigger" and other["cause"] == item["cause"]),
            None,
        )
        if same is None:
            merged.append(item)
            continue
        proofs = same["evidence"] + [entry for entry in item["evidence"] if entry not in same["evidence"]]
        advice = {field: item[field] for field in ("recommend", "rejected", "would_settle") if item[field]}
        merged[merged.index(same)] = dict(same, evidence=proofs, **advice)
    return merged


def _joined(kept, other):
    """One finding for what the container and its surroundings say alike: the proofs of both, the surroundings' commands."""
    if kept["memory"] == "none" and other["memory"] not in ("none", "unknown"):
        # The surroundings have read the runtime's message, which names the memory.
        kept = dict(other, container=kept["container"], evidence=kept["evidence"])
    proofs = kept["evidence"] + [item for item in other["evidence"] if item not in kept["evidence"]]
    known = {(item["target"], item["name"], item["direction"]) for item in kept["recommend"]}
    more = [
        item for item in other["recommend"] if (item["target"], item["name"], item["direction"]) not in known
    ]
    return dict(
        kept,
        evidence=proofs,
        recommend=kept["recommend"] + more,
        check=_unique(kept["check"] + other["check"]),
    )


def _once_per_cause(findings):
    """Each cause once per container, in the order of roles; what came first stays."""
    seen, kept = set(), []
    for item in sorted(findings, key=lambda entry: _FINDING_ORDER[entry["role"]]):
        key = (item["cause"], item["container"])
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


def _agreeing(findings):
    """The findings without advice against the trigger's: what it rejects is not proposed elsewhere, and cascade needs no cure."""
    trigger = next((item for item in findings if item["role"] == "trigger"), None)
    if trigger is None:
        return findings
    refused = {(change["target"], change["name"], change["direction"]) for change in trigger["rejected"]}
    return [item if item is trigger else dict(item, recommend=_allowed(item, refused)) for item in findings]


def _allowed(item, refused):
    if item["role"] == "cascade":
        return []
    names = {name for _target, name, _direction in refused}
    return [
        change
        for change in item["recommend"]
        if (change["target"], change["name"], change["direction"]) not in refused
        # What needs a refused one beside it isn't possible alone, as a request above its limit.
        and not names.intersection(change["with"])
    ]


# -- the verdict ------------------------------------------------------------------------------------------------------


def is_memory(item):
    """Whether memory ran out, by a finding: True, False or None (not settled)."""
    cause = item["cause"]
    if cause in ("eviction", "start_error"):
        return {"node": True, "host": True, "none": False}.get(item["memory"])
    if cause == "cuda_library_alloc" and item["confidence"] == "possible":
        return None
    return NATURE[cause].is_memory


def _settings_words(risks):
    return f"{len(risks)} setting{'s' if len(risks) > 1 else ''}"


def _of_a_manifest(pod):
    """What is said of a pod that doesn't exist yet: no command can show or change it."""
    findings = [
        dict(item, check=[], recommend=[dict(each, command=None) for each in item["recommend"]])
        for item in pod["findings"]
    ]
    risks = (
        f"{_settings_words(findings)} could cause a failure." if findings else "No rule speaks against it."
    )
    return dict(pod, findings=findings, verdict=dict(pod["verdict"], sentence=risks))


def _verdict(trigger, findings, pod, collected_at):
    risks = [item for item in findings if item["role"] == "risk"]
    if trigger is None:
        starting = unready.starting_words(pod, collected_at)
        sentence = "Nothing failed in what could be read" + (f", but {starting}." if starting else ".")
        if risks:
            sentence += f" {_settings_words(risks)} could still cause a failure."
        return {
            "is_memory": False,
            "memory": "none",
            "phase": "unknown",
            "cause": None,
            "confidence": None,
            "sentence": sentence,
        }
    memory, ran_out = trigger["memory"], is_memory(trigger)
    words = _MEMORY_WORDS["none" if ran_out is False else memory]
    if ran_out is None and memory not in ("unknown", "none"):
        words = f"perhaps {words}"
    phase = "" if trigger["phase"] == "unknown" else f", phase {trigger['phase']}"
    cause = CAUSES[trigger["cause"]]
    sentence = f"{cause[0].upper()}{cause[1:]} ({words}; {trigger['confidence']}{phase})."
    if _beside_engine(pod, trigger["container"]):
        sentence = f"Container {trigger['container']}, not the engine's: {sentence[0].lower()}{sentence[1:]}"
    lived = _lifetimes(pod, trigger)
    if lived:
        sentence = f"{sentence} {lived}"
    return {
        "is_memory": ran_out,
        "memory": memory,
        "phase": trigger["phase"],
        "cause": trigger["cause"],
        "confidence": trigger["confidence"],
        "sentence": sentence,
    }


def _beside_engine(pod, name):
    """Whether a container of that name is not the engine's in a pod that has an engine."""
    engines = [item["name"] for item in pod.get("containers") or [] if item.get("engine")]
    return bool(name and engines and name not in engines)


def _lifetimes(pod, trigger):
    """The sentence on time to death over restarts, for host memory only: a growth or a sudden peak."""
    if trigger["memory"] != "host" or trigger["container"] is None:
        return None
    container = next((item for item in pod["containers"] if item["name"] == trigger["container"]), None)
    lived = time_to_death(container) if container else None
    return lived.get("sentence") if lived else None


# -- what was ruled out -----------------------------------------------------------------------------------------------


def _ruled_out(trigger, facts):
    """The usual suspects that the evidence speaks against, ``[{cause, why}]``: only where something was read that would show them."""
    if trigger is None or facts is None:
        return []
    found = []
    code, reason = facts.attempt.get("exit_code"), facts.attempt.get("reason")
    memory = trigger["memory"]
    signatures = {row.signature.id for _line, row in facts.matches}
    if (
        memory != "host"
        and code is not None
        and reason != "OOMKilled"
        and code != 137
        and "kernel_memcg_oom" not in signatures
    ):
        found.append(
            {
                "cause": "host_oom_load" if facts.last_phase != "serving" else "host_oom_growth",
                "why": f"the container ended with exit code {code} and reason {reason or 'none'}, not OOMKilled",
            }
        )
    log_known = facts.log.get("readable") and facts.log.get("complete") is not False
    families = {row.signature.family for _line, row in facts.matches}
    if (
        memory not in ("gpu", "nccl_gpu", "unified")
        and log_known
        and not families & {"device_oom", "driver_oom", "cumem_oom"}
    ):
        found.append({"cause": "serving_gpu_oom", "why": "the log holds no GPU out-of-memory message"})
    shm = {"shm_insufficient", "nccl_shm_segment", "bus_error", "no_space"}
    if memory != "shm" and log_known and not signatures & shm and facts.world_size > 1:
        found.append({"cause": "shm_exhausted", "why": "the log holds no /dev/shm message and no bus error"})
    if (
        trigger["cause"] != "probe_kill"
        and facts.death.get("kind") not in ("probe_kill", None)
        and facts.pod.get("events")
    ):
        found.append({"cause": "probe_kill", "why": "no probe event names this container"})
    return [item for item in found if item["cause"] != trigger["cause"]]
