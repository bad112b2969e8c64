# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that turns a diagnosis, a budget, a plan or an outcome into a report."""

from __future__ import annotations

DOCUMENTATION = r"""
name: oom_report
short_description: Show a diagnosis, a memory budget, a plan or its outcome to people and tools
version_added: 1.0.0
author:
  - vLLM runbook maintainers (@vllm-runbook)
description:
  - Takes the document that P(vllm_runbook.oom.diagnosis#filter), P(vllm_runbook.oom.memory_budget#filter) or
    P(vllm_runbook.oom.remediation_plan#filter) makes, or the outcome that P(vllm_runbook.oom.remediate#role) saves, and returns the
    report on it.
  - The report says for each pod, the worst first, which memory ran out and in which phase, the line of the log that
    shows it, why it happened, what to do in which order and with which command, and what not to do and why.
  - The report on a budget is a table for each engine, of one GPU's memory and of the pod's host memory, with what fits and what would.
  - The report on a plan says for each edited object which change comes first (before and after), why, by which proof, what it costs,
    which pods it starts anew and how it is made, with the command; what else there is, what that needs, and what isn't done and why.
  - The report on an outcome says for each object what was changed, what came of it, how it failed before, and how to take it back.
  - The same input always gives the same output. Nothing is read or written.
positional: _input
options:
  _input:
    description: A diagnosis, budget, plan or outcome document.
    type: dict
    required: true
  evidence:
    description:
      - The evidence document that the diagnosis was made from.
      - Without it the report cannot name the process of a log line, nor what could be seen only in part.
      - The other documents don't need it.
    type: dict
  format:
    description:
      - V(console) is text of at most 20 lines a pod (25 an object of a plan) and 100 characters a line, without colour.
      - V(markdown) is the full report.
      - V(json) is everything that the reports show, as JSON text for other tools.
      - V(summary) is a small dictionary for M(ansible.builtin.set_stats), which never holds evidence.
    type: str
    choices:
      - console
      - markdown
      - json
      - summary
    default: console
seealso:
  - plugin: vllm_runbook.oom.diagnosis
    plugin_type: filter
  - plugin: vllm_runbook.oom.memory_budget
    plugin_type: filter
  - plugin: vllm_runbook.oom.remediation_plan
    plugin_type: filter
  - module: vllm_runbook.oom.evidence_info
"""

EXAMPLES = r"""
---
- name: Read what is known about one pod
  vllm_runbook.oom.evidence_info:
    namespace: llm
    pod: llama-70b-0
  register: seen

- name: Show what happened to it
  ansible.builtin.debug:
    msg: "{{ seen.evidence | vllm_runbook.oom.diagnosis | vllm_runbook.oom.oom_report(evidence=seen.evidence) }}"

- name: Keep the full report
  ansible.builtin.copy:
    content: >-
      {{ seen.evidence | vllm_runbook.oom.diagnosis
         | vllm_runbook.oom.oom_report(evidence=seen.evidence, format='markdown') }}
    dest: report.md
    mode: "0600"
"""

RETURN = r"""
_value:
  description:
    - The report as text; a dictionary when O(format=summary).
  type: raw
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    BUDGET_SCHEMA,
    OUTCOME_SCHEMA,
    PLAN_SCHEMA,
    DocumentError,
)

_FORMATS = ("console", "markdown", "json", "summary")


def _on_diagnosis(document, evidence, format):
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import view_model

    if format == "summary":
        return view_model.summary(document)
    view = view_model.view(document, evidence)
    if format == "json":
        return view_model.as_json(view)
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import console, markdown

    return console.render(view) if format == "console" else markdown.render(view)


def _on_budget(document, _evidence, format):
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
        budget_console,
        budget_view,
        markdown,
        view_model,
    )

    if format == "summary":
        return budget_view.budget_summary(document)
    view = budget_view.budget_view(document)
    return _shown(view, format, budget_console.render, markdown.budgets, view_model.as_json)


def _on_plan(document, _evidence, format):
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
        plan_console,
        plan_view,
        remediation_markdown,
        view_model,
    )

    if format == "summary":
        return plan_view.plan_summary(document)
    view = plan_view.plan_view(document)
    return _shown(view, format, plan_console.render, remediation_markdown.plans, view_model.as_json)


def _on_outcome(document, _evidence, format):
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
        outcome_console,
        outcome_view,
        remediation_markdown,
        view_model,
    )

    if format == "summary":
        return outcome_view.outcome_summary(document)
    view = outcome_view.outcome_view(document)
    return _shown(view, format, outcome_console.render, remediation_markdown.outcomes, view_model.as_json)


def _shown(view, format, console, markdown, as_json):
    return {"console": console, "markdown": markdown, "json": as_json}[format](view)


# Schema -> the report on a document of it; whatever else is taken for a diagnosis, which says what is missing.
_REPORTS = {BUDGET_SCHEMA: _on_budget, PLAN_SCHEMA: _on_plan, OUTCOME_SCHEMA: _on_outcome}


def oom_report(document, evidence=None, format="console"):
    """The report on ``document`` in ``format``, see DOCUMENTATION."""
    if format not in _FORMATS:
        raise AnsibleFilterError(
            f"vllm_runbook.oom.oom_report: format must be one of {', '.join(_FORMATS)}, got {format!r}."
        )
    try:
        # A report quotes log lines: what looks like a template in them must never be evaluated (core < 2.19).
        schema = document.get("schema") if isinstance(document, dict) else None
        report = _REPORTS.get(schema, _on_diagnosis) if isinstance(schema, str) else _on_diagnosis
        return wrap_var(report(document, evidence, format))
    except DocumentError as error:
        raise AnsibleFilterError(f"vllm_runbook.oom.oom_report: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise AnsibleFilterError(
            "vllm_runbook.oom.oom_report: the document has the right schema but not its shape "
            f"({type(error).__name__}: {error}); make it again with the filter that made it"
        ) from error


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"oom_report": oom_report}
