# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.remediation_work``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: remediation_work
short_description: List what a plan would do now, object by object
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Takes a plan document as P(vllm_runbook.oom.remediation_plan#filter) makes it and returns what is to be written, with the options
    that M(vllm_runbook.oom.workload) takes. The role P(vllm_runbook.oom.remediate#role) goes through it.
  - Pure. Nothing is read or written.
positional: _input
options:
  _input:
    description: The plan document.
    type: dict
    required: true
  found:
    description:
      - What earlier runs changed, RV(vllm_runbook.oom.changes_info#module:objects). A change that was never verified because its run
        was killed comes first.
    type: list
    elements: dict
    default: []
  evidence:
    description: An evidence document. Where it is given, only earlier changes of its objects are gone on with.
    type: dict
seealso:
  - plugin: vllm_runbook.oom.remediation_plan
    plugin_type: filter
  - module: vllm_runbook.oom.changes_info
"""

EXAMPLES = r"""
---
- name: Name the objects that would be changed
  ansible.builtin.debug:
    msg: "{{ (plan | vllm_runbook.oom.remediation_work).write | map(attribute='label') }}"
"""

RETURN = r"""
_value:
  description: What is to be done. Both lists have the same fields.
  type: dict
  contains:
    write:
      description: What is written, one object after the other.
      type: list
      elements: dict
      contains:
        object:
          description: The object, with namespace, kind, name, api_version and path.
          type: dict
        label:
          description: Kind, namespace and name in one.
          type: str
        container:
          description: The container that is changed, or V(null).
          type: str
        causes:
          description: What it is against.
          type: list
          elements: str
        step:
          description: The plan's step.
          type: int
        changes:
          description: The changes, with container, action, before and after.
          type: list
          elements: dict
        expected:
          description: Uid and generation of the object as it was diagnosed.
          type: dict
        found:
          description: Run and time of an earlier change that was never verified, or V(null).
          type: dict
        live:
          description: Whether it is written, and not only for the object's source.
          type: bool
    patch:
      description: Objects that something else manages, so that only a patch for their source can be made.
      type: list
      elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, plain


def remediation_work(plan, found=(), evidence=None):
    """See DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.work import work

    try:
        # It quotes what a cluster said: that must never be taken for a template.
        return wrap_var(work(plain(plan), plain(found), plain(evidence)))
    except DocumentError as exc:
        raise AnsibleFilterError(f"vllm_runbook.oom.remediation_work: {exc}") from None


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"remediation_work": remediation_work}
