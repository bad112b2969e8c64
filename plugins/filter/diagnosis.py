# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.diagnosis``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: diagnosis
short_description: Say which memory ran out, why, and what to change
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Takes an evidence document as M(vllm_runbook.oom.evidence_info) returns it and judges every pod in it.
  - The first error of the first readable failing attempt is the trigger; what follows from it is listed as cascade.
  - Pure. The same evidence always gives the same diagnosis, and nothing is read from a cluster or a file.
options:
  _input:
    description: The evidence document.
    type: dict
    required: true
  budget:
    description: The budget document of the same pods. Without it the diagnosis says less about sizes.
    type: dict
  nodes:
    description:
      - Evidence documents of M(vllm_runbook.oom.gpu_node_info), one for each node. What they say of a node counts beside what the
        cluster says of it, and RV(_value.nodes) judges the nodes themselves.
      - A node is found by its name; where the inventory calls it otherwise, by the pods whose processes run on it.
    type: list
    elements: dict
    default: []
seealso:
  - module: vllm_runbook.oom.evidence_info
"""

EXAMPLES = r"""
---
- name: Diagnose a saved log
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the log
      vllm_runbook.oom.evidence_info:
        bundle: vllm.log
      register: seen

    - name: Show the verdict on each pod
      ansible.builtin.debug:
        msg: "{{ (seen.evidence | vllm_runbook.oom.diagnosis).pods | map(attribute='verdict.sentence') | list }}"
"""

RETURN = r"""
_value:
  description: The diagnosis document.
  type: dict
  contains:
    schema:
      description: V(vllm_runbook.oom/diagnosis/v1).
      type: str
    pods:
      description: One entry a pod, in the order of the evidence.
      type: list
      elements: dict
      contains:
        namespace:
          description: The pod's namespace, or V(null) for a log without a pod.
          type: str
        name:
          description: The pod's name.
          type: str
        uid:
          description: The pod's uid, or V(null).
          type: str
        verdict:
          description:
            - What the trigger says. RV(_value.pods[].verdict.is_memory) is V(null) where the evidence does not settle it,
              RV(_value.pods[].verdict.cause) is V(null) where nothing failed.
          type: dict
          contains:
            is_memory:
              description: Whether memory ran out.
              type: bool
            memory:
              description: Which memory, one of V(gpu), V(nccl_gpu), V(host), V(shm), V(node), V(unified), V(none), V(unknown).
              type: str
            phase:
              description: The phase of the engine's life in which it happened.
              type: str
            cause:
              description: The cause's identifier.
              type: str
            confidence:
              description: V(certain), V(likely) or V(possible).
              type: str
            sentence:
              description: All of it in one sentence.
              type: str
        findings:
          description: The findings, the trigger first, then contributing findings, cascade and risks.
          type: list
          elements: dict
          contains:
            cause:
              description: The cause's identifier.
              type: str
            memory:
              description: Which memory the finding is about.
              type: str
            phase:
              description: The phase in which it happened.
              type: str
            role:
              description: V(trigger), V(contributing), V(cascade) or V(risk).
              type: str
            confidence:
              description: V(certain), V(likely) or V(possible).
              type: str
            container:
              description: The container, or V(null) for the pod as a whole.
              type: str
            attempt:
              description: The run of the container, counted from 0.
              type: int
            evidence:
              description: What the finding rests on, each with source, object, line, time and text.
              type: list
              elements: dict
            explanation:
              description: What happened, in a few sentences.
              type: str
            runbook:
              description: Which step of the runbook speaks about it.
              type: str
            recommend:
              description: The changes that help, cheapest first, each with target, name, direction, value, why, proof and command.
              type: list
              elements: dict
            rejected:
              description: The changes that do not help, each with the reason.
              type: list
              elements: dict
            would_settle:
              description: The observations that would settle an open question.
              type: list
              elements: str
            check:
              description: The commands that show the evidence again.
              type: list
              elements: str
        notes:
          description: Sentences on what is no risk but worth knowing, such as a memory limit far above the usual.
          type: list
          elements: str
        ruled_out:
          description: Causes that the evidence speaks against, each with the reason.
          type: list
          elements: dict
    groups:
      description: Pods that form one engine, judged together.
      type: list
      elements: dict
    workloads:
      description: Replicas of one workload, those that fail differently listed apart.
      type: list
      elements: dict
    nodes:
      description: The nodes that were looked at themselves, worst first; empty where none was.
      type: list
      elements: dict
      contains:
        name:
          description: The node's name.
          type: str
        state:
          description: V(bad), V(warning), V(unknown) or V(fine).
          type: str
        sentence:
          description: What is wrong, in one sentence.
          type: str
        product:
          description: The GPUs' product.
          type: str
        driver:
          description: The driver's version.
          type: str
        cuda:
          description: The newest CUDA version that the driver runs.
          type: str
        used:
          description: GPU memory in use, in bytes.
          type: int
        total:
          description: GPU memory of all GPUs, in bytes.
          type: int
        findings:
          description:
            - What is wrong with it, the worst first, each with check, means, severity (V(bad), V(warning) or V(note)), gpu, sentence,
              evidence and recommend.
          type: list
          elements: dict
        gpus:
          description: Its GPUs in short, each with index, name, total, used, free, mig, processes and wrong.
          type: list
          elements: dict
    unreadable:
      description: What could not be read, each with the right or address that is missing.
      type: list
      elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, plain


def diagnosis(evidence, budget=None, nodes=None):
    """See DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose

    try:
        # Log text comes from outside: it must never be taken for a template.
        return wrap_var(plain(diagnose(plain(evidence), plain(budget), plain(nodes))))
    except DocumentError as exc:
        raise AnsibleFilterError(f"vllm_runbook.oom.diagnosis: {exc}") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise AnsibleFilterError(
            "vllm_runbook.oom.diagnosis: the evidence document has the right schema but not its shape "
            f"({type(exc).__name__}: {exc}); collect it again with vllm_runbook.oom.evidence_info"
        ) from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"diagnosis": diagnosis}
