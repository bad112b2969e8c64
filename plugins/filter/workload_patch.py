# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``vllm_runbook.oom.workload_patch``."""

from __future__ import annotations

DOCUMENTATION = r"""
name: workload_patch
short_description: Make planned changes in a manifest, or the patch that makes them
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Takes an object of Kubernetes, from a file or from a cluster, and the changes of a plan, and returns the object with the changes or
    a patch of it. All spellings of an engine's options are found where they are written, and whatever isn't changed stays as it is.
  - Pure. Nothing is read from a cluster and nothing is written to one.
  - The result holds the object's own words, secrets included, so it is for the API server or for the file that the object came
    from. A change that would touch a secret is refused.
positional: changes
options:
  _input:
    description: The object, with C(apiVersion), C(kind) and C(metadata).
    type: dict
    required: true
  changes:
    description:
      - The changes, as RV(vllm_runbook.oom.remediation_plan#filter:_value.plans[].apply.changes) has them.
      - In short, each has RV(ignore:target) (V(flag), V(env) or V(k8s)), RV(ignore:name) and RV(ignore:value). With
        RV(ignore:direction) V(remove) it has no value.
    type: list
    elements: dict
    required: true
  path:
    description:
      - Where the engine's container is in the object, as RV(vllm_runbook.oom.evidence_info#module:evidence.pods[].workload.edit)
        names it, such as V(spec.template.spec.containers[vllm]).
      - By default the container that runs vLLM is looked for.
    type: str
  format:
    description:
      - V(object) is the changed object, V(json_patch) a list of operations by RFC 6902, which the API server refuses when the object
        has changed meanwhile, V(strategic_merge) a patch such as C(kubectl patch) and kustomize take, for kinds of Kubernetes itself
        only.
    type: str
    choices: [object, json_patch, strategic_merge]
    default: object
seealso:
  - plugin: vllm_runbook.oom.remediation_plan
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Change a manifest in its repository
  hosts: localhost
  gather_facts: false
  vars:
    manifest: "{{ lookup('ansible.builtin.file', 'deploy/llama.yaml') | from_yaml }}"
    changes:
      - target: flag
        name: --max-model-len
        value: 16384
      - target: k8s
        name: resources.limits.cpu
        direction: remove
  tasks:
    - name: Write the changed manifest
      ansible.builtin.copy:
        content: "{{ manifest | vllm_runbook.oom.workload_patch(changes) | to_nice_yaml(sort_keys=false) }}"
        dest: deploy/llama.yaml
        mode: preserve

    - name: Show the patch for a kustomization
      ansible.builtin.debug:
        msg: "{{ manifest | vllm_runbook.oom.workload_patch(changes, format='strategic_merge') | to_nice_yaml }}"
"""

RETURN = r"""
_value:
  description: The changed object, or the patch. A patch of an object that has all changes already is empty.
  type: raw
"""

from ansible.errors import AnsibleFilterError
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, plain

_FORMATS = {"object": "after", "json_patch": "json_patch", "strategic_merge": "strategic_merge"}


def _path_in(raw):
    """Where the object keeps the container that runs vLLM."""
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifest_files import Document
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import manifest_evidence

    # The time isn't used, and the present would make the same input give another document.
    found = manifest_evidence([Document("the object", raw)], "the object", "1970-01-01T00:00:00Z")
    edits = [pod["workload"]["edit"] for pod in found["pods"]]
    paths = list(dict.fromkeys(edit["path"] for edit in edits if edit and edit["path"]))
    if len(paths) != 1:
        shown = f"; it has {', '.join(paths)}" if paths else ""
        raise DocumentError(
            f"give the path of the engine's container: the object doesn't tell which one is meant{shown}"
        )
    return paths[0]


def workload_patch(manifest, changes=None, path=None, format="object"):
    """See DOCUMENTATION."""
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.as_written import patch

    raw, changes = plain(manifest), plain(changes)
    try:
        if format not in _FORMATS:
            raise DocumentError(f"unknown format {format!r}: it is one of {', '.join(_FORMATS)}")
        if not isinstance(raw, dict) or not all(
            isinstance(raw.get(key), str) for key in ("apiVersion", "kind")
        ):
            raise DocumentError("it takes one object of Kubernetes, a dictionary with apiVersion and kind")
        if not isinstance(changes, list):
            raise DocumentError(f"the changes are a list, not {type(changes).__name__}")
        found = patch(raw, str(path) if path else _path_in(raw), changes)
        if found.refused:
            raise DocumentError(found.refused[0]["why"])
        if format == "strategic_merge" and found.strategic_merge is None:
            raise DocumentError(
                f"{raw['kind']} of {raw['apiVersion']} knows no strategic merge patch: take the format json_patch or object"
            )
        return wrap_var(getattr(found, _FORMATS[format]))
    except DocumentError as exc:
        raise AnsibleFilterError(f"vllm_runbook.oom.workload_patch: {exc}") from None
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
            f"vllm_runbook.oom.workload_patch: the object isn't as its kind has it ({type(exc).__name__}: {exc})"
        ) from exc


class FilterModule:
    """The filter for Ansible."""

    def filters(self):
        return {"workload_patch": workload_patch}
