# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.remediation_outcome``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: remediation_outcome
short_description: Say what became of a plan
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Takes a plan document as P(vllm_runbook.oom.remediation_plan#filter) makes it and what was done about it, and returns the outcome
    document. The role P(vllm_runbook.oom.remediate#role) calls it.
  - Pure. Nothing is read or written.
positional: _input
options:
  _input:
    description: The plan document. V(null) where there was no plan, as for a rollback.
    type: dict
    required: true
  done:
    description:
      - What was done, an entry for each object, with C(object) and as far as it happened C(live), C(rounds), C(problem), C(ended),
        C(kept), C(withdrawn) and C(waited).
      - Each of C(rounds) has C(step), C(changes), C(written) (what M(vllm_runbook.oom.workload) returned), C(verification) (what the
        role P(vllm_runbook.oom.verify#role) found) and C(failure) (C(pod), C(cause) and C(sentence) of the diagnosis after it).
    type: list
    elements: dict
    default: []
  diagnosis:
    description: The diagnosis document that the plan was made from, for the first failure.
    type: dict
  found:
    description:
      - What M(vllm_runbook.oom.changes_info) returned before anything was done, for notes on what other runs are at work on and on what
        couldn't be read.
    type: dict
  access:
    description: C(kubeconfig) and C(context) as they were given, for the command that takes everything back.
    type: dict
seealso:
  - plugin: vllm_runbook.oom.remediation_plan
    plugin_type: filter
  - plugin: vllm_runbook.oom.oom_report
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Say why nothing is done
  ansible.builtin.debug:
    msg: "{{ (plan | vllm_runbook.oom.remediation_outcome).objects | map(attribute='sentence') }}"
"""

RETURN = r"""
_value:
  description: The outcome document.
  type: dict
  contains:
    schema:
      description: V(vllm_runbook.oom/outcome/v1).
      type: str
    objects:
      description: One entry for each edited object, in the order of the plan.
      type: list
      elements: dict
      contains:
        object:
          description: The object, with namespace, kind, name, api_version and path.
          type: dict
        plan:
          description: The plan's sentence.
          type: str
        attempts:
          description: What was changed, each with step, changes, written and verification.
          type: list
          elements: dict
        verdict:
          description:
            - V(starts), V(served), V(held), V(failed) or V(undone). V(null) where nothing was written or the run ended before that
              was verified.
          type: str
        first_failure:
          description: Pod, cause and sentence of the diagnosis before the first change.
          type: dict
        last_failure:
          description: The same of the last change that failed.
          type: dict
        problem:
          description: Why nothing was written although it was to be, or why the run ended early.
          type: str
        undo:
          description: The command that takes back what is still changed, or V(null).
          type: str
        sentence:
          description: All of it in one or two sentences.
          type: str
    notes:
      description: Sentences on the run as a whole.
      type: list
      elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, plain


def remediation_outcome(plan, done=(), diagnosis=None, found=None, access=None):
    """See DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.outcome import outcome

    try:
        # It quotes what a cluster said: that must never be taken for a template.
        return wrap_var(outcome(plain(plan), plain(done), plain(diagnosis), plain(found), plain(access)))
    except DocumentError as exc:
        raise AnsibleFilterError(f"vllm_runbook.oom.remediation_outcome: {exc}") from None


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"remediation_outcome": remediation_outcome}
