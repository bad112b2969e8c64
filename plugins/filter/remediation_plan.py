# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.remediation_plan``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: remediation_plan
short_description: Plan what to change against an out-of-memory failure, and at which object
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Takes a diagnosis as P(vllm_runbook.oom.diagnosis#filter) returns it, with its evidence and its memory budget, and makes one plan
    for each object that a person edits.
  - Every change is one operation on one flag, one environment variable or one field, with a computed value, the proof, what it takes
    from the users, how many pods it starts anew and the command that makes it by hand.
  - What raises a resource needs a ceiling in O(limits), what takes something from the users a floor or a permission. None is given by
    default, and what is refused says what to give.
  - Pure. Nothing is read from a cluster and nothing is written by making a plan.
positional: _input
options:
  _input:
    description: The diagnosis document.
    type: dict
    required: true
  evidence:
    description: The evidence document that the diagnosis was made from.
    type: dict
    required: true
  budget:
    description: The budget document of the same pods. Without it only what the log or a rule proves is planned, and sizes are not.
    type: dict
  limits:
    description: What a plan may raise and what it may take from the users.
    type: dict
    suboptions:
      max_memory:
        description: A container's memory limit and request at most, as a Kubernetes quantity.
        type: str
      max_gpus:
        description: GPUs of one pod at most.
        type: int
      min_model_len:
        description: Tokens of the longest request at least.
        type: int
      min_concurrency:
        description: Requests at once at least, of full length where the KV cache decides.
        type: float
      allow:
        description:
          - What may be taken from the users besides.
          - V(risks) lets changes against risks and contributing causes be made together with the change against the trigger, as far
            as they cost nothing.
        type: list
        elements: str
        choices:
          - eager
          - quantization
          - kv_cache_dtype
          - cpu_offload
          - prefix_caching
          - speculative_decoding
          - modalities
          - lora
          - sleep_mode
          - restart_of_serving
          - risks
      apply:
        description: Whether anything may be written. It is only passed on.
        type: bool
  tried:
    description:
      - Changes that were made already without success, as RV(_value.plans[].apply.changes) had them.
      - A step is not chosen again where all of it was tried, nor where it would take a tried change back.
    type: list
    elements: dict
    default: []
  run:
    description: The id of the run that asks. Its own pending mark at an object is no obstacle.
    type: str
seealso:
  - plugin: vllm_runbook.oom.diagnosis
    plugin_type: filter
  - plugin: vllm_runbook.oom.memory_budget
    plugin_type: filter
  - plugin: vllm_runbook.oom.workload_patch
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Plan what to change
  hosts: localhost
  gather_facts: false
  vars:
    evidence: "{{ seen.evidence }}"
    budget: "{{ evidence | vllm_runbook.oom.memory_budget }}"
    diagnosis: "{{ evidence | vllm_runbook.oom.diagnosis(budget=budget) }}"
  tasks:
    - name: Read the saved pods
      vllm_runbook.oom.evidence_info:
        bundle: must-gather.tar.gz
      register: seen

    - name: Show what would be written, or why nothing would
      ansible.builtin.debug:
        msg: "{{ plan.plans | map(attribute='apply.why') | list }}"
      vars:
        limits:
          max_memory: 96Gi
          min_model_len: 16384
        plan: "{{ diagnosis | vllm_runbook.oom.remediation_plan(evidence=evidence, budget=budget, limits=limits) }}"
"""

RETURN = r"""
_value:
  description: The plan document.
  type: dict
  contains:
    schema:
      description: V(vllm_runbook.oom/plan/v1).
      type: str
    limits:
      description: The limits that it was made with, every one named.
      type: dict
    notes:
      description: Sentences about the plan as a whole.
      type: list
      elements: str
    plans:
      description: One entry for each object to edit, of pods with a finding.
      type: list
      elements: dict
      contains:
        object:
          description: The object to edit, with namespace, kind, name, api_version and the path of the engine's container in it. Kind
            and name are V(null) where no object of the cluster is known.
          type: dict
        pods:
          description: The pods it is about, each as namespace and name.
          type: list
          elements: str
        causes:
          description: What it is against, the trigger first.
          type: list
          elements: str
        sentence:
          description: All of it in one sentence.
          type: str
        apply:
          description: What would be written now.
          type: dict
          contains:
            step:
              description: The number of the step, or V(null) where nothing may be written.
              type: int
            with:
              description: Numbers of the steps against risks that go with it.
              type: list
              elements: int
            changes:
              description: The changes of all of these steps, and of the update strategy where the pods could otherwise wait for a spare
                GPU.
              type: list
              elements: dict
            why:
              description: One sentence. Where nothing may be written it says what to give, or who must do it.
              type: str
        expected:
          description: The uid and the generation of the object when it was diagnosed, each V(null) where it wasn't read. A writer
            refuses when they have changed.
          type: dict
        changes:
          description: The changes in order.
          type: list
          elements: dict
          contains:
            step:
              description: Changes of one step go together. The steps of a trigger are alternatives, the cheapest first.
              type: int
            state:
              description: V(planned) may be made, V(refused) needs something first, V(advised) only a person can do.
              type: str
            refused:
              description: What must be given or done first, in sentences.
              type: list
              elements: str
            cause:
              description: The cause it is against.
              type: str
            also:
              description: Further causes that it is right for.
              type: list
              elements: str
            role:
              description: V(trigger), V(contributing) or V(risk).
              type: str
            pod:
              description: The pod whose finding asks for it.
              type: str
            change:
              description: The change, with target, name, direction, value, with, why, proof, command, container, action (V(set),
                V(remove) or V(null)), before and after.
              type: dict
            why:
              description: Why it helps.
              type: str
            proof:
              description: What would have been with it.
              type: str
            predicted:
              description: The budget before and after it.
              type: dict
            costs:
              description: What it takes, V(nothing), V(speed), V(concurrency), V(context), V(precision), V(quality), V(features)
                or V(hardware).
              type: str
            takes:
              description: The same in words.
              type: str
            restarts:
              description: How many pods it starts anew, and how many of them serve now.
              type: dict
            downtime:
              description: How long nothing serves, with seconds, at_most and a sentence.
              type: dict
            extra_gpus:
              description: GPUs needed in addition while it is rolled out, V(null) where that isn't known.
              type: int
            strategy:
              description: The update strategy that goes with it, with before, after and why, or V(null).
              type: dict
            delivery:
              description: How it reaches the object, with how (V(live), V(patch) or V(by_hand)), why and the command that makes it by
                hand.
              type: dict
            risks:
              description: What it makes worse, in sentences.
              type: list
              elements: str
        rejected:
          description: Changes that are wrong by their mechanism, each with the reason.
          type: list
          elements: dict
        considered:
          description: Changes that aren't enough, that nothing proves or that are in force, each with the reason.
          type: list
          elements: dict
        blocked:
          description: Why nothing of it may be written now, in sentences.
          type: list
          elements: str
        notes:
          description: What isn't known, in sentences.
          type: list
          elements: str
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, plain


def remediation_plan(diagnosis, evidence=None, budget=None, limits=None, tried=None, run=None):
    """See DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan

    try:
        # An empty text stands for an option that isn't given, as Jinja's omit does.
        given = [plain(item) or None for item in (budget, limits, tried, run)]
        return wrap_var(plain(plan(plain(diagnosis), plain(evidence), *given)))
    except DocumentError as exc:
        raise AnsibleFilterError(f"vllm_runbook.oom.remediation_plan: {exc}") from None
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as exc:
        raise AnsibleFilterError(
            "vllm_runbook.oom.remediation_plan: the documents have the right schemas but not their shape "
            f"({type(exc).__name__}: {exc}); make them again from the evidence"
        ) from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"remediation_plan": remediation_plan}
