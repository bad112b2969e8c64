# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remediation's plan and outcome as Markdown, everything that they hold: for a ticket, a merge request or a post-mortem.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .markdown import block, code, escape, listed, table

_AGAINST = {
    "trigger": "what happened",
    "contributing": "what made it likelier or worse",
    "risk": "what did no harm yet",
}


def plans(view):
    """The Markdown report of a ``plan_view.plan_view`` as text."""
    lines = ["# vLLM remediation plan", ""]
    lines.append(
        "Allowed: "
        + ("; ".join(escape(text) for text in view["allowed"]) or "nothing beyond what costs nothing")
        + "."
    )
    lines += listed("## Notes", [escape(text) for text in view["notes"]])
    if not view["plans"]:
        lines += ["", "Nothing to change: no finding asks for it."]
    for item in view["plans"]:
        lines += ["", *_plan(item)]
    return "\n".join(lines) + "\n"


def _title(item):
    where = f" (namespace {escape(item['namespace'])})" if item["namespace"] else ""
    return f"## {escape(item['ref'])}{where}"


def _plan(item):
    lines = [_title(item), "", f"**{escape(item['sentence'])}**"]
    lines += ["", *[f"- Against {code(entry['cause'])}: {entry['means']}" for entry in item["causes"]]]
    if item["pods"]:
        lines.append(f"- Pods: {', '.join(code(name) for name in item['pods'])}")
    lines += listed("### Nothing may be written now", [escape(text) for text in item["blocked"]])
    if item["next"]:
        lines += ["", f"Next: {escape(item['next'])}."]
    for step in item["steps"]:
        lines += ["", *_step(step)]
    for heading, entries in (("### Don't do that", item["rejected"]), ("### Left out", item["considered"])):
        lines += listed(heading, [escape(_reason(entry)) for entry in entries])
    return lines + listed("### Worth knowing", [escape(text) for text in item["notes"]])


def _reason(entry):
    what = entry["what"][:1].upper() + entry["what"][1:]
    return f"{what}: {entry['why']}" if entry["why"] else what


def _step(step):
    causes = ", ".join(code(cause) for cause in step["causes"])
    advised = step["state"] == "advised"
    lines = [f"### Step {step['number']}: {step['title']}", ""]
    lines += [f"- {escape(text) if advised else code(text)}" for text in step["what"]]
    lines += ["", f"Against {_AGAINST.get(step['role'], 'a finding')}: {causes}.", ""]
    facts = [("Needs", text) for text in step["refused"]] + [("Why", text) for text in step["why"]]
    facts.append(("Proof", step["proof"]))
    if not advised:
        facts += [("Costs", step["takes"]), *[("Mind", text) for text in step["risks"]]]
        facts += [("Restarts", step["restarts"]), ("Rollout", step["strategy"])]
    facts += [("How", text) for text in (step["delivery"], *step["hints"])]
    lines += [f"- {name}: {escape(text)}" for name, text in facts if text]
    if step["commands"]:
        lines += ["", *block("\n".join(step["commands"]), "shell")]
    if step["predicted"]:
        lines += ["", *table(("of the budget", "as it was", "with this step"), step["predicted"])]
    return lines


def outcomes(view):
    """The Markdown report of an ``outcome_view.outcome_view`` as text."""
    lines = ["# Outcome of the vLLM remediation"]
    lines += listed("## Notes", [escape(text) for text in view["notes"]])
    if not view["objects"]:
        lines += ["", "Nothing was changed: no pod has a finding that a change could answer."]
    for item in view["objects"]:
        lines += ["", *_outcome(item)]
    return "\n".join(lines) + "\n"


def _outcome(item):
    lines = [_title(item), "", f"**{escape(item['words'][:1].upper() + item['words'][1:])}.**"]
    if item["sentence"]:
        lines += ["", escape(item["sentence"])]
    facts = [("Plan", escape(item["plan"])), ("Failed before", _failure(item["first"]))]
    facts += [("Last failure", _failure(item["last"]))]
    shown = [f"- {name}: {text}" for name, text in facts if text]
    if shown:
        lines += ["", *shown]
    for attempt in item["attempts"]:
        lines += ["", *_attempt(attempt)]
    if item["undo"]:
        lines += ["", "### Take it back", "", *block(item["undo"], "shell")]
    return lines


def _failure(failure):
    if not failure:
        return ""
    parts = [
        code(failure["pod"]) if failure["pod"] else "",
        code(failure["cause"]) if failure["cause"] else "",
    ]
    return ": ".join(part for part in (*parts, escape(failure["sentence"] or failure["means"])) if part)


def _attempt(attempt):
    step = f" (step {attempt['step']} of the plan)" if attempt["step"] is not None else ""
    title = f"### Attempt {attempt['number']}{step}" if attempt["what"] or step else "### Afterwards"
    lines = [title, "", *[f"- {code(text)}" for text in attempt["what"]]]
    took = f" (after {attempt['seconds']:.0f} s)" if attempt["seconds"] is not None else ""
    facts = [
        ("Written", escape(attempt["written"])),
        ("Needs", escape(", ".join(attempt["missing"]))),
        *[("Warning", escape(text)) for text in attempt["warnings"]],
        ("At", escape(attempt["at"] or "")),
        ("Undo record", code(attempt["record"]) if attempt["record"] else ""),
        ("Verdict", f"{attempt['verdict']}{took}" if attempt["verdict"] else ""),
        ("Seen", escape(attempt["result"])),
    ]
    return [*lines, *[f"- {name}: {text}" for name, text in facts if text]]
