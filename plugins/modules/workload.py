#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: workload
short_description: Change the settings of a workload that runs vLLM, and take the changes back
version_added: 1.0.0
description:
  - Changes resources, engine arguments, environment variables, C(/dev/shm), the time that a start may take and the update strategy
    of one workload, at the object that a person edits.
  - The live object is read again and only what is asked for is changed in it, each as one operation. All the rest, such as secrets
    and fields that nobody here knows, stays as it is. Engine arguments keep the place and the spelling in which they are written,
    be that a list, a shell command or a variable.
  - Each write leaves an undo record in an annotation of the object. It holds the changed fields only, and never a secret, so a
    change that touches a secret is refused. O(state=restored) takes the recorded changes back, also days later.
  - A second annotation marks the run that is at work on the object. Other runs are refused until it is released or expires.
  - Nothing is written to kinds for which that isn't tested, to objects that something else sets back (such as an operator, Argo CD
    or Flux), to a paused object, or while a rollout goes on. The module then fails with the reason, and still returns
    RV(patch) for the object's source.
options:
  api_version:
    description:
      - The API version of the object.
      - The default is that of Kubernetes' own kinds, such as V(apps/v1) for a Deployment. Other kinds need it.
    type: str
  kind:
    description:
      - The kind of the object.
    type: str
    required: true
  name:
    description:
      - The name of the object.
    type: str
    required: true
  namespace:
    description:
      - The namespace of the object.
      - The default is that of the kubeconfig's context.
    type: str
  container:
    description:
      - The container whose settings are changed.
      - The default is the one that runs vLLM.
    type: str
  path:
    description:
      - The path of that container in the object, such as V(spec.template.spec.containers[vllm]). The evidence of
        M(vllm_runbook.oom.evidence_info) has it as C(workload.edit.path).
      - The default is found by the kind and the container.
    type: str
  state:
    description:
      - V(present) makes the changes that are given.
      - V(restored) takes back everything that the undo records hold, or with O(restore=run) what those of O(run) do. It is
        refused where somebody else has changed one of the fields since.
      - V(released) drops the mark of O(run) and notes O(verdict) in its undo records, and changes nothing else.
    type: str
    choices: [present, restored, released]
    default: present
  engine_args:
    description:
      - Arguments of the engine, by name in any spelling, such as C(max_model_len) or C(--max-model-len). V(null) removes one.
      - Switches take V(true) or V(false). A key of an argument that is a JSON object is given with a dot, such as
        C(compilation_config.cudagraph_mode).
    type: dict
  env:
    description:
      - Environment variables. V(null) removes one.
      - Variables whose names say that they hold a secret are refused.
    type: dict
  resources:
    description:
      - Resources of the container, as V(requests) and V(limits). V(null) removes one.
    type: dict
  shm_size:
    description:
      - The size of C(/dev/shm), such as V(16Gi). Where nothing is mounted there, a volume in memory is added.
    type: str
  startup_seconds:
    description:
      - How many seconds a start may take before the startup probe ends it. Where there is only a liveness probe, a startup probe
        that asks the same is added.
    type: int
  strategy:
    description:
      - How pods are replaced. V(Recreate), or a dictionary with C(max_surge) and C(max_unavailable), each a number of pods or a
        share such as V(25%).
    type: raw
  changes:
    description:
      - The changes of a step of a plan, as the filter P(vllm_runbook.oom.remediation_plan#filter) returns them.
      - What was before is read from the live object, never taken from here.
    type: list
    elements: dict
  engine_version:
    description:
      - The release of vLLM, by which arguments are checked, such as V(0.11.0).
      - The default is what the tag of the container's image says.
    type: str
  max_memory:
    description:
      - The largest host memory that may be asked for, as request or limit.
    type: str
  expected:
    description:
      - The object as it was diagnosed. Where it isn't that any more, the change is refused.
    type: dict
    suboptions:
      uid:
        description:
          - Its UID.
        type: str
      generation:
        description:
          - Its generation. Where it is given, a rollout of it that hasn't ended is no obstacle.
        type: int
  run:
    description:
      - The name of the run that is at work on the object. A write marks the object with it.
      - The default is a new one, which is returned.
      - It is needed for O(state=released) and for O(restore=run).
      - A run that is named also takes over the mark that another run has left and that has expired.
    type: str
  lease:
    description:
      - For how many seconds the mark of the run holds unless it is prolonged. V(0) leaves no mark.
    type: int
    default: 180
  causes:
    description:
      - What the change is against, as the diagnosis calls it. It is noted in the undo record.
    type: list
    elements: str
  restore:
    description:
      - Which undo records O(state=restored) takes back. V(all) is all of them, V(run) those of O(run).
    type: str
    choices: [all, run]
    default: all
  verdict:
    description:
      - What became of the change, to be noted with O(state=released).
    type: str
    choices: [starts, served, held, failed, undone]
notes:
  - In check mode the API server is asked what the caller may do (SelfSubjectAccessReview). With the right to patch the object it
    tries the patch without keeping it, and with the right to create pods it also tries a bare pod of the changed template,
    since quotas, limit ranges and policies speak only there. Without the right to patch, the difference is computed here
    and RV(mode) is V(client_side).
  - A write needs the rights to get and patch the object. The right to create pods lets a write that the namespace's quota would
    defeat be refused beforehand.
  - It warns of what the API server warns of, of others who manage the changed fields, and of what could not be checked.
  - The field manager of all writes is C(vllm-runbook-oom).
requirements:
  - Python >= 3.9
  - urllib3 and PyYAML
  - kubernetes >= 24.2.0, wherever the cluster is not reached by a token or a client certificate alone (credential plugins, proxies,
    several kubeconfig files, passwords). It brings the other two along.
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.actiongroup_k8s
attributes:
  check_mode:
    support: full
    details:
      - What the API server can't be asked is computed here, see RV(mode).
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: vllm_runbook.oom.evidence_info
"""

EXAMPLES = r"""
---
- name: Shorten the context and raise the memory limit, at most to 96Gi
  vllm_runbook.oom.workload:
    kind: Deployment
    name: llama-70b
    namespace: llm
    engine_args:
      max_model_len: 8192
    resources:
      limits:
        memory: 64Gi
    max_memory: 96Gi
  register: changed

- name: Note that it serves, and let others change the workload again
  vllm_runbook.oom.workload:
    kind: Deployment
    name: llama-70b
    namespace: llm
    state: released
    run: "{{ changed.run }}"
    verdict: served

- name: Remove a CPU limit and a switch
  vllm_runbook.oom.workload:
    kind: StatefulSet
    name: mistral
    namespace: llm
    resources:
      limits:
        cpu: null
    engine_args:
      enforce_eager: null

- name: Take back everything that was changed
  vllm_runbook.oom.workload:
    kind: Deployment
    name: llama-70b
    namespace: llm
    state: restored
"""

RETURN = r"""
mode:
  description:
    - V(written), V(unchanged), or in check mode V(dry_run) (the API server tried it) or V(client_side) (it was only computed here).
    - V(none) where the module failed.
  type: str
  returned: always, and on failure once the object was read
  sample: written
sentence:
  description: What was done, in words.
  type: str
  returned: always, and on failure once the object was read
  sample: "Deployment/llama-70b was changed: container vllm: --max-model-len: 32768 -> 8192"
run:
  description: The run's name.
  type: str
  returned: always, and on failure once the object was read
  sample: run-1f0c2a7b9d3e
object:
  description: The object as it is now.
  type: dict
  returned: always, and on failure once the object was read
  contains:
    api_version:
      description: Its API version.
      type: str
      returned: always
      sample: apps/v1
    kind:
      description: Its kind.
      type: str
      returned: always
      sample: Deployment
    namespace:
      description: Its namespace.
      type: str
      returned: always
      sample: llm
    name:
      description: Its name.
      type: str
      returned: always
      sample: llama-70b
    uid:
      description: Its UID.
      type: str
      returned: always
      sample: 2f0a1c9e-6b1d-4a6f-9b1e-0c8f5a3d7e21
    generation:
      description: Its generation, which a write raises.
      type: int
      returned: always
      sample: 8
applied:
  description:
    - The changes that were made, or would be. Each is the CHANGE that was asked for with C(container), C(action), and C(before) and
      C(after) as the live object has them. Empty for what was so already.
  type: list
  elements: dict
  returned: always, and on failure once the object was read
  sample:
    - target: flag
      name: --max-model-len
      container: vllm
      action: set
      before: 32768
      after: 8192
refused:
  description: The changes that can't be made, each as C(change), with C(why). With one of them the module fails and makes none.
  type: list
  elements: dict
  returned: always, and on failure once the object was read
  sample: []
rights:
  description: What the caller may do.
  type: dict
  returned: always, and on failure once the object was read
  contains:
    allowed:
      description: Whether the object may be patched. V(none) where nobody had to ask.
      type: bool
      returned: always
      sample: true
    missing:
      description: The rights that are missing.
      type: list
      elements: str
      returned: always
      sample: ["patch deployments.apps in namespace llm"]
record:
  description:
    - The undo record of the write, the newest that was taken back, or the newest of the run that was released, without its steps.
      RV(ignore:changes) has it in words.
  type: dict
  returned: always, and on failure once the object was read
  sample:
    id: 6a1d2c3b4e5f
    run: run-1f0c2a7b9d3e
    at: "2026-11-30T07:00:00Z"
    causes: [kv_max_len]
    changes: ["container vllm: --max-model-len: 32768 -> 8192"]
    verdict: null
records:
  description: All undo records of the object, the oldest first, without their steps.
  type: list
  elements: dict
  returned: always, and on failure once the object was read
  sample: []
found:
  description:
    - The newest change of another run that came to no verdict and holds the object no longer, because it was killed.
  type: dict
  returned: always, and on failure once the object was read
  sample: {"run": "run-0a1b2c3d4e5f", "at": "2026-11-30T06:20:00Z", "changes": ["container vllm: --max-model-len: 32768 -> 8192"]}
held_by:
  description: The other run that is at work on the object.
  type: dict
  returned: always, and on failure once the object was read
  sample: null
at:
  description: When it was written, by the API server's clock. Pods that were created before don't have the change.
  type: str
  returned: always, and on failure once the object was read
  sample: "2026-11-30T07:00:00Z"
patch:
  description:
    - The change as a JSON patch of the object, without the annotations. V(none) where there is none, and where it would show a secret.
  type: list
  elements: dict
  returned: always, and on failure once the object was read
  sample:
    - {"op": "test", "path": "/spec/template/spec/containers/0/args/3", "value": "32768"}
    - {"op": "replace", "path": "/spec/template/spec/containers/0/args/3", "value": "8192"}
patch_withheld:
  description: Why there is no RV(patch) although there is a change.
  type: str
  returned: always, and on failure once the object was read
  sample: null
deleted:
  description:
    - Pods that were deleted after the write, since their controller would wait for them for ever. They are broken ones (neither ready
      nor starting for the first time) of a StatefulSet with the pod management policy C(OrderedReady), or with the strategy
      C(OnDelete). Where that isn't allowed, a warning says what to delete.
  type: list
  elements: str
  returned: always, and on failure once the object was read
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import VERDICTS, DocumentError

WISHES = ("engine_args", "env", "resources", "shm_size", "startup_seconds", "strategy")


def argument_spec():
    return {
        **AUTH_ARG_SPEC,
        "api_version": {"type": "str"},
        "kind": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str"},
        "container": {"type": "str"},
        "path": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "restored", "released"], "default": "present"},
        "engine_args": {"type": "dict"},
        "env": {"type": "dict"},
        "resources": {"type": "dict"},
        "shm_size": {"type": "str"},
        "startup_seconds": {"type": "int"},
        "strategy": {"type": "raw"},
        "changes": {"type": "list", "elements": "dict"},
        "engine_version": {"type": "str"},
        "max_memory": {"type": "str"},
        "expected": {"type": "dict", "options": {"uid": {"type": "str"}, "generation": {"type": "int"}}},
        "run": {"type": "str"},
        "lease": {"type": "int", "default": 180},
        "causes": {"type": "list", "elements": "str"},
        "restore": {"type": "str", "choices": ["all", "run"], "default": "all"},
        "verdict": {"type": "str", "choices": list(VERDICTS)},
    }


def given_secrets(params):
    """Texts in the options that must not be shown again: values of arguments and variables with the names of secrets."""
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.undo import secrets_of

    named = {name: params.get(name) for name in ("engine_args", "env")}
    listed = [
        {"name": item.get("name"), "value": str(item[key])}
        for item in params.get("changes") or []
        for key in ("value", "before", "after")
        if isinstance(item, dict) and item.get(key) is not None
    ]
    texts = {key: {name: str(value) for name, value in (found or {}).items()} for key, found in named.items()}
    return secrets_of([texts, listed])


def warned(module, result):
    """The result without its warnings, which Ansible takes by another way."""
    for text in result.get("warnings", ()):
        module.warn(text)
    return {name: value for name, value in result.items() if name != "warnings"}


def main():
    module = AnsibleModule(
        argument_spec=argument_spec(),
        supports_check_mode=True,
        mutually_exclusive=[("changes", wish) for wish in WISHES],
        required_if=[
            ("state", "present", ("changes", *WISHES), True),
            ("state", "released", ("run",)),
            ("restore", "run", ("run",)),
        ],
    )
    # Imported here, so that wrong options are told without the time that importing it takes.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, kubeconfig
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import access, places, writer

    params = module.params
    module.no_log_values.update(kubeconfig.secrets_of(params["kubeconfig"]), given_secrets(params))
    try:
        access_to = access.connect(params)
        place = places.place_of(
            params["api_version"], params["kind"], params["namespace"] or access_to.namespace, params["name"]
        )
        result = writer.run(access_to, place, params, module.check_mode)
    except client.LibraryMissing as missing:
        module.fail_json(msg=missing_required_lib(missing.library), exception=missing.details)
    except writer.Refused as refused:
        module.fail_json(msg=str(refused), **warned(module, refused.result))
    except (DocumentError, client.ApiError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**warned(module, result))


if __name__ == "__main__":
    main()
