# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.memory_budget``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: memory_budget
short_description: Compute what a vLLM engine needs of GPU and host memory, and whether it fits
version_added: 1.0.0
author:
  - vLLM runbook maintainers (@vllm-runbook)
description:
  - Takes an evidence document as M(vllm_runbook.oom.evidence_info) returns it and sizes every engine in it, or a model document
    as M(vllm_runbook.oom.model_info) returns it and sizes that model with O(arguments) on O(gpu).
  - The GPU's part follows the formula of the engine's version. What a log measured takes the place of what is modelled, and where
    both differ by more than 5 % it says so.
  - The host's part is the runbook's table of memory limits, corrected by the mechanism (processes, loader, offload pools,
    C(/dev/shm), a measured peak).
  - Pure. Nothing is read from a cluster, a file or the network. The architectures of well-known models are bundled.
positional: _input
options:
  _input:
    description: An evidence document or a model document.
    type: dict
    required: true
  models:
    description:
      - Model documents of M(vllm_runbook.oom.model_info), for models that the bundled table does not know.
      - They are matched with the engines by name. A single one stands for every engine.
    type: list
    elements: dict
    default: []
  gpu:
    description:
      - The GPU's product, such as V(H100 80GB), V(NVIDIA-A100-SXM4-40GB) or V(H200 MIG 3g.71gb), where the evidence names none.
    type: str
  arguments:
    description: Of a model document. The further arguments of C(vllm serve), as one text or as a list.
    type: raw
  count:
    description: Of a model document. How many GPUs the pod gets. By default as many as the arguments make ranks.
    type: int
  version:
    description: The release of vLLM, of evidence where it names none. By default the newest one's rules are taken, and the budget
      says so.
    type: str
  memory_limit:
    description: Of a model document. The container's memory limit as a Kubernetes quantity.
    type: str
  search:
    description: Whether to look for what would fit, which are RV(_value.entries[].largest), RV(_value.entries[].changes) and
      RV(_value.entries[].hardware).
    type: bool
    default: true
seealso:
  - module: vllm_runbook.oom.model_info
  - module: vllm_runbook.oom.evidence_info
  - plugin: vllm_runbook.oom.diagnosis
    plugin_type: filter
  - plugin: vllm_runbook.oom.oom_report
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Size a model before it is deployed
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Find its architecture
      vllm_runbook.oom.model_info:
        model: Qwen/Qwen3-32B
      register: found

    - name: Show its budget on two cards
      ansible.builtin.debug:
        msg: >-
          {{ found.model
             | vllm_runbook.oom.memory_budget(gpu='A100 80GB', arguments='--tensor-parallel-size 2 --max-model-len 32768',
                                              version='0.11.0')
             | vllm_runbook.oom.oom_report }}
"""

RETURN = r"""
_value:
  description: The budget document. Sizes are bytes.
  type: dict
  contains:
    schema:
      description: V(vllm_runbook.oom/budget/v1).
      type: str
    source:
      description: What was sized, V(cluster), V(bundle), V(manifest) or V(model).
      type: str
    entries:
      description: One entry for each engine container and each of its attempts that tells a number.
      type: list
      elements: dict
      contains:
        subject:
          description: Namespace, pod, uid, container and attempt.
          type: dict
        model:
          description: The model's name, where its architecture comes from, its parameters in billions, its checkpoint's bytes.
          type: dict
        gpu:
          description: The product, how many of it, its total and free bytes, and where they come from.
          type: dict
        version:
          description: The release of vLLM, or V(null).
          type: str
        engine:
          description: V(V0), V(V1) or V(null).
          type: str
        accelerator:
          description: The accelerator, such as V(cuda), or V(null).
          type: str
        settings:
          description: The options that somebody set and that count.
          type: dict
        sentence:
          description: The verdict in words.
          type: str
        fits:
          description: Whether the start succeeds on the GPU, or V(null) where that is not known.
          type: bool
        capacity:
          description: Total, utilization, requested and free memory of one GPU, and the outcome of the check of free memory.
          type: dict
        segments:
          description:
            - The parts of one rank's memory, each with name, bytes, proof (V(measured), V(modelled) or V(set)), formula, error and
              whether the version counts it in the budget.
          type: list
          elements: dict
        ranks:
          description: How many ranks, which pipeline stage the segments are of, and the parts of every stage.
          type: dict
        available_kv:
          description: What remains for the KV cache on the rank with the least room.
          type: int
        available_kv_error:
          description: How far the modelled value may be off.
          type: int
        kv:
          description: Block size, blocks, tokens, concurrency, what one request of full length needs, the longest that fits.
          type: dict
        kv_bytes_per_token:
          description: Bytes of KV cache that a token takes on one rank.
          type: int
        outside:
          description: What the card has beside the budget, and what needs it.
          type: dict
        problems:
          description: Why it does not fit, in sentences.
          type: list
          elements: str
        contradictions:
          description: Numbers whose measured and modelled values differ by more than 5 %.
          type: list
          elements: dict
        largest:
          description: The largest max_model_len and max_num_seqs that fit, and the concurrency.
          type: dict
        changes:
          description: Single changes, each recomputed, cheapest first, those that do not help with the reason.
          type: list
          elements: dict
        hardware:
          description: GPUs and tensor parallel sizes that would hold the same settings, smallest first.
          type: list
          elements: dict
        host:
          description: The pod's host memory by segments, what it needs, the limit and request to set, and whether the limit fits.
          type: dict
        assumptions:
          description: What was assumed, in sentences.
          type: list
          elements: str
        undetermined:
          description: What is not known, and how to tell it.
          type: list
          elements: str
"""

import shlex

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    MODEL_SCHEMA,
    DocumentError,
    plain,
)

_NAME = "vllm_runbook.oom.memory_budget"
_ASKED = ("arguments", "count", "version", "memory_limit")
# What evidence may be asked with, too.
_OF_EVIDENCE = ("version",)


def memory_budget(document, models=(), gpu=None, search=True, **asked):
    """See DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

    unknown = sorted(set(asked) - set(_ASKED))
    if unknown:
        raise AnsibleFilterError(f"{_NAME}: unknown option {unknown[0]!r}")
    given = {name: value for name, value in asked.items() if value not in (None, "", [])}
    foreign = sorted(set(given) - set(_OF_EVIDENCE))
    if foreign and isinstance(document, dict) and document.get("schema") != MODEL_SCHEMA:
        raise AnsibleFilterError(
            f"{_NAME}: {', '.join(foreign)} go with a model document only; the evidence has its own"
        )
    arguments = given.get("arguments", [])
    if not isinstance(arguments, (str, list)) or not all(isinstance(item, str) for item in arguments):
        raise AnsibleFilterError(f"{_NAME}: arguments are a text or a list of texts, not {arguments!r}")
    try:
        if isinstance(given.get("arguments"), str):
            given["arguments"] = shlex.split(given["arguments"])
    except ValueError as exc:
        raise AnsibleFilterError(f"{_NAME}: arguments are no shell words ({exc}): check the quotes") from None
    try:
        return wrap_var(plain(budgets_of(document, models, gpu or None, search, **given)))
    except DocumentError as exc:
        raise AnsibleFilterError(f"{_NAME}: {exc}") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise AnsibleFilterError(
            f"{_NAME}: the document has the right schema but not its shape ({type(exc).__name__}: {exc}); "
            "make it again with vllm_runbook.oom.evidence_info or vllm_runbook.oom.model_info"
        ) from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"memory_budget": memory_budget}
