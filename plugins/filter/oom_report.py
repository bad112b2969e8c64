# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that turns a diagnosis into a report."""

from __future__ import annotations

DOCUMENTATION = r"""
name: oom_report
short_description: Show a diagnosis or a memory budget of vLLM to people and tools
version_added: 1.0.0
author:
  - vLLM runbook maintainers (@vllm-runbook)
description:
  - Takes the document that P(vllm_runbook.oom.diagnosis#filter) or P(vllm_runbook.oom.memory_budget#filter) makes and returns the
    report on it.
  - The report says for each pod, the worst first, which memory ran out and in which phase, the line of the log that
    shows it, why it happened, what to do in which order and with which command, and what not to do and why.
  - The report on a budget is a table for each engine, of one GPU's memory and of the pod's host memory, with what fits and what would.
  - The same input always gives the same output. Nothing is read or written.
positional: _input
options:
  _input:
    description: A diagnosis document or a budget document.
    type: dict
    required: true
  evidence:
    description:
      - The evidence document that the diagnosis was made from.
      - Without it the report cannot name the process of a log line, nor what could be seen only in part.
    type: dict
  format:
    description:
      - V(console) is text of at most 20 lines a pod and 100 characters a line, without colour.
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

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import BUDGET_SCHEMA, DocumentError

_FORMATS = ("console", "markdown", "json", "summary")


def _renderers():
    """Format -> the report on a diagnosis, and on a budget."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import (
        budget_console,
        budget_view,
        console,
        markdown,
        view_model,
    )

    return {
        "console": (
            lambda diagnosis, evidence: console.render(view_model.view(diagnosis, evidence)),
            lambda budget: budget_console.render(budget_view.budget_view(budget)),
        ),
        "markdown": (
            lambda diagnosis, evidence: markdown.render(view_model.view(diagnosis, evidence)),
            lambda budget: markdown.budgets(budget_view.budget_view(budget)),
        ),
        "json": (
            lambda diagnosis, evidence: view_model.as_json(view_model.view(diagnosis, evidence)),
            lambda budget: view_model.as_json(budget_view.budget_view(budget)),
        ),
        "summary": (
            lambda diagnosis, evidence: view_model.summary(diagnosis),
            budget_view.budget_summary,
        ),
    }


def oom_report(document, evidence=None, format="console"):
    """The report on ``document`` in ``format``, see DOCUMENTATION."""
    if format not in _FORMATS:
        raise AnsibleFilterError(
            f"vllm_runbook.oom.oom_report: format must be one of {', '.join(_FORMATS)}, got {format!r}."
        )
    try:
        # A report quotes log lines: what looks like a template in them must never be evaluated (core < 2.19).
        on_diagnosis, on_budget = _renderers()[format]
        if isinstance(document, dict) and document.get("schema") == BUDGET_SCHEMA:
            return wrap_var(on_budget(document))
        return wrap_var(on_diagnosis(document, evidence))
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
