#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: changes_info
short_description: List what this collection has changed in a cluster and can take back
version_added: 1.0.0
description:
  - Lists the objects that M(vllm_runbook.oom.workload) has changed and that still carry the record with which the change can be
    taken back, with who is at work on them now.
  - Reads metadata only. Not even the objects' specs are sent by the API server.
options:
  namespace:
    description:
      - The namespace to look at.
      - The default is that of the kubeconfig's context.
    type: str
  all_namespaces:
    description:
      - Look at all namespaces of the cluster.
    type: bool
    default: false
  workload:
    description:
      - The only object to look at, as kind and name such as V(deployment/llama). Short and plural names that C(kubectl) takes are
        known for Kubernetes' own kinds, V(kind.group/name) for namesakes.
      - The module fails where there is no such object. That it carries no record is no failure.
    type: str
requirements:
  - Python >= 3.9
  - urllib3 and PyYAML
  - kubernetes >= 24.2.0, wherever the cluster is not reached by a token or a client certificate alone
    (credential plugins, proxies, several kubeconfig files, passwords)
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.info_module
  - vllm_runbook.oom.attributes.actiongroup_k8s
seealso:
  - module: vllm_runbook.oom.workload
"""

EXAMPLES = r"""
---
- name: List what was changed in a namespace
  vllm_runbook.oom.changes_info:
    namespace: llm
  register: made

- name: Show the objects with a change that was never verified
  ansible.builtin.debug:
    msg: "{{ made.objects | selectattr('unfinished') | map(attribute='key') }}"
"""

RETURN = r"""
objects:
  description: The objects that carry our record, by namespace, kind and name.
  returned: success
  type: list
  elements: dict
  contains:
    api_version:
      description: The API version in which the object was read.
      returned: always
      type: str
      sample: apps/v1
    kind:
      description: Its kind.
      returned: always
      type: str
      sample: Deployment
    namespace:
      description: Its namespace.
      returned: always
      type: str
      sample: llm
    name:
      description: Its name.
      returned: always
      type: str
      sample: llama
    uid:
      description: Its uid.
      returned: always
      type: str
      sample: 6d0e2c3a-5b8c-4e0e-9f6a-1f2b3c4d5e6f
    generation:
      description: The generation of its spec.
      returned: always
      type: int
      sample: 3
    key:
      description: Namespace, kind and name in one.
      returned: always
      type: str
      sample: llm/Deployment/llama
    run:
      description: The run that is or was last at work on it.
      returned: always
      type: str
      sample: 8a4e1d20
    at:
      description: When that was.
      returned: always
      type: str
      sample: "2026-11-30T07:00:00Z"
    until:
      description: How long that run holds the object, or V(null) where none does.
      returned: always
      type: str
      sample: null
    host:
      description: The machine that the run is on, or V(null).
      returned: always
      type: str
      sample: null
    verdict:
      description: What was found of the newest change, V(null) as long as nothing is verified.
      returned: always
      type: str
      sample: served
    causes:
      description: What the newest change is against.
      returned: always
      type: list
      elements: str
      sample: [host_oom_load]
    records:
      description: How many changes can be taken back.
      returned: always
      type: int
      sample: 1
    problems:
      description: Annotations that aren't as this collection writes them.
      returned: always
      type: list
      elements: str
      sample: []
    held:
      description: Whether that run holds the object still.
      returned: always
      type: bool
      sample: false
    unfinished:
      description: Whether the newest change has no verdict although no run holds the object. The run was killed.
      returned: always
      type: bool
      sample: false
unreadable:
  description: What could not be read, each with source, object, reason and needs (the right that is missing).
  returned: success
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.parameters import remove_values
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, kubeconfig
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout.own_changes import (
    MetadataClient,
    own_changes,
)

# Which options exclude or need each other, as AnsibleModule takes it.
RULES = {"mutually_exclusive": [("workload", "all_namespaces")]}


def argument_spec():
    return {
        **AUTH_ARG_SPEC,
        "namespace": {"type": "str"},
        "all_namespaces": {"type": "bool", "default": False},
        "workload": {"type": "str"},
    }


def answer(params):
    """What is returned for these options: what ``own_changes`` found, or why there is nothing, with ``failed`` and ``msg``."""
    try:
        access = client.connect(params, make=MetadataClient)
        namespace = None if params["all_namespaces"] else params["namespace"] or access.namespace
        result = own_changes(access, namespace, params["workload"])
    except client.LibraryMissing as missing:
        result = {"failed": True, "msg": missing_required_lib(missing.library), "exception": missing.details}
    except (DocumentError, client.ApiError) as error:
        result = {"failed": True, "msg": str(error)}
    return remove_values(result, kubeconfig.secrets_of(params))


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **RULES)
    result = answer(module.params)
    if "failed" in result:
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
