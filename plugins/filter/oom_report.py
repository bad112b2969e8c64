# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that turns a diagnosis into a report."""

from __future__ import annotations

DOCUMENTATION = r"""
name: oom_report
short_description: Show a diagnosis of vLLM out-of-memory failures to people and tools
version_added: 1.0.0
author:
  - vLLM runbook maintainers (@vllm-runbook)
description:
  - Takes the document that P(vllm_runbook.oom.diagnosis#filter) makes and returns the report on it.
  - The report says for each pod, the worst first, which memory ran out and in which phase, the line of the log that
    shows it, why it happened, what to do in which order and with which command, and what not to do and why.
  - The same input always gives the same output. Nothing is read or written.
positional: _input
options:
  _input:
    description: A diagnosis document.
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

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import console, markdown, view_model

_FORMATS = {
    "console": lambda diagnosis, evidence: console.render(view_model.view(diagnosis, evidence)),
    "markdown": lambda diagnosis, evidence: markdown.render(view_model.view(diagnosis, evidence)),
    "json": lambda diagnosis, evidence: view_model.as_json(view_model.view(diagnosis, evidence)),
    "summary": lambda diagnosis, evidence: view_model.summary(diagnosis),
}


def oom_report(diagnosis, evidence=None, format="console"):
    """The report on ``diagnosis`` in ``format``, see DOCUMENTATION."""
    if format not in _FORMATS:
        raise AnsibleFilterError(
            f"vllm_runbook.oom.oom_report: format must be one of {', '.join(_FORMATS)}, got {format!r}."
        )
    try:
        # A report quotes log lines: what looks like a template in them must never be evaluated (core < 2.19).
        return wrap_var(_FORMATS[format](diagnosis, evidence))
    except DocumentError as error:
        raise AnsibleFilterError(f"vllm_runbook.oom.oom_report: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise AnsibleFilterError(
            "vllm_runbook.oom.oom_report: the document has the right schema but not its shape "
            f"({type(error).__name__}: {error}); make it again with vllm_runbook.oom.diagnosis"
        ) from error


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"oom_report": oom_report}
