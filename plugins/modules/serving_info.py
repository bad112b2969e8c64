#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_info
short_description: Find out whether a vLLM workload rolled out, is healthy and answers a request
version_added: 1.0.0
description:
  - Watches the rollout of one object that runs vLLM, and asks one of its new engines for its health, its models and one
    token. It returns as soon as that is decided, when O(wait) is over, or earlier when something happened since O(seen).
  - A rollout that can't get on is named at once and not waited out, which is so when an image can't be pulled, no node has room, a
    quota or policy refuses the pods, a node is not ready, the progress deadline is exceeded or a new container ends. What passes by
    itself, such as an API server that is restarted, is waited for.
  - Finished means, of a Deployment, that its controller has seen the change, that all pods are of the newest revision and
    available, and that no older pod is left. A StatefulSet's partition and the strategy C(OnDelete) are respected. Of other kinds
    it means that pods were made since O(since), that all of them are ready and none is older, and that the Deployments, StatefulSets and
    DaemonSets below the object are finished.
  - The smallest request is one of one token (chat or completion), or of one word (embedding, classification, score, pooling),
    or one second of silence (transcription), as the model is. It is sent through a port-forward that the API server makes, so that
    nothing but the API server has to be reachable. Where that is not allowed and the server asks for no key, the
    API server's proxy of pods is used instead.
  - Of several replicas one new pod is asked, or each of them where O(requests) is at least their number. Ranks without a
    server (workers of a LeaderWorkerSet, C(--headless)) are not asked.
  - What can't be asked from here (a server that wants a key and got none, a strict service mesh, pods that do one half of
    a request only, missing rights) is RV(serving.verifiable=false) with what would be needed, and never a failure.
options:
  api_version:
    description:
      - API version of the object. It may be left out for kinds of Kubernetes itself.
    type: str
  kind:
    description:
      - Kind of the object, such as V(Deployment), V(StatefulSet) or V(LeaderWorkerSet).
    type: str
    required: true
  name:
    description:
      - Name of the object.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the object.
      - The default is that of the kubeconfig's context.
    type: str
  container:
    description:
      - Name of the container that runs vLLM. It is recognised when left out.
    type: str
  generation:
    description:
      - The object's C(metadata.generation) of which the rollout is meant, or a newer one.
    type: int
  since:
    description:
      - When the change was written (RFC 3339, by the API server's clock), such as V(2026-11-30T07:00:00Z).
      - Of kinds that are not Deployment, StatefulSet or DaemonSet only pods made since then count as new, and any end of a container in
        a pod made since then is a failure. In older pods only ends after that time are.
    type: str
  request:
    description:
      - How far the engine is asked.
      - V(none) looks at the rollout only, V(health) asks for C(/health), V(token) for the models and the smallest request too.
    type: str
    choices: [none, health, token]
    default: token
  task:
    description:
      - What the model does, where neither its settings nor its server tell it.
    type: str
    choices: [auto, generate, chat, embed, classify, score, pool, transcribe]
    default: auto
  requests:
    description:
      - How many smallest requests are sent, up to 8 at a time. More than one is load on a server that others may use.
    type: int
    default: 1
  port:
    description:
      - The port of the engine's server.
      - The default is C(--port), else that of the container's probes, else the container's own port, else 8000.
    type: int
  wait:
    description:
      - For how many seconds to watch at most. V(0) looks once. A request that is on its way is not broken off, and may take two minutes more.
    type: float
    default: 0
  seen:
    description:
      - The RV(serving.state) of an earlier call. The module returns when the state is another one, but not before half of O(wait) has
        passed, and waits for an API server that doesn't answer.
      - An empty text returns with the first look.
    type: str
  hold:
    description:
      - Whether to watch on for O(wait) seconds, without asking anything, although the rollout is finished. Only a failure ends
        it earlier.
    type: bool
    default: false
  baseline:
    description:
      - The RV(serving.restarts) of an earlier call. Restarts up to these numbers do not count as failures, and a pod of it
        that is gone is named.
    type: dict
    default: {}
  noticed:
    description:
      - The RV(serving.noticed) of an earlier call, so that the last one tells of all.
    type: list
    elements: str
    default: []
  causes:
    description:
      - The causes that the change was made against. RV(serving.soak_seconds) tells whether one of them shows only after a while of serving.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - What RV(serving.limit) is instead of what is found from the rollout, such as V(20m) or a number of seconds.
    type: str
  soak:
    description:
      - What RV(serving.soak_seconds) is where one of O(causes) needs it.
    type: str
    default: 30m
  run:
    description:
      - The run that holds the object, as P(vllm_runbook.oom.workload#module) returned it. Its mark on the object is renewed while
        watching, which takes the right to patch the object.
    type: str
  lease:
    description:
      - For how many seconds the mark of O(run) holds when it is renewed.
    type: int
    default: 180
requirements:
  - Python >= 3.9
  - kubernetes >= 24.2.0
  - urllib3
notes:
  - The key of the engine's server is taken from the environment variable E(VLLM_OOM_API_KEY) of the module's process, and from
    nowhere else, so that it gets into no log. It is sent through the port-forward only.
  - A certificate of the engine's own server is not checked, since it is for the name of a service and the port-forward ends in the pod
    that was asked for.
  - It needs the rights to get the object, to list pods and to get C(pods/log), of a Deployment to list C(replicasets), and to ask the
    engine to get and create C(pods/portforward). With the rights to list events and to get nodes it tells more.
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.info_module
  - vllm_runbook.oom.attributes.actiongroup_k8s
seealso:
  - module: vllm_runbook.oom.evidence_info
"""

EXAMPLES = r"""
---
- name: Ask whether a model serves
  vllm_runbook.oom.serving_info:
    namespace: llm
    kind: Deployment
    name: llama-70b
  register: seen

- name: Show it
  ansible.builtin.debug:
    msg: "{{ seen.serving.sentence }}"

- name: Wait for a rollout, for ten minutes at most
  vllm_runbook.oom.serving_info:
    namespace: llm
    kind: Deployment
    name: llama-70b
    since: "2026-11-30T07:00:00Z"
    wait: 600

- name: Look at a model of embeddings at a port that its settings don't tell
  vllm_runbook.oom.serving_info:
    namespace: llm
    kind: StatefulSet
    name: e5
    port: 8080
    task: embed
"""

RETURN = r"""
serving:
  description: What was seen last.
  returned: success
  type: dict
  contains:
    state:
      description: A short text that changes when something happened, for O(seen).
      type: str
      returned: always
      sample: "0/1 updated;0 ready;1 old;load;;0 problems"
    decided:
      description: Whether there is nothing more to wait for.
      type: bool
      returned: always
      sample: true
    verdict:
      description: V(starts), V(served) or V(failed), V(none) while it is not decided and where nothing can be asked.
      type: str
      returned: always
      sample: served
    verifiable:
      description: Whether the engine can be asked from here. Where not, V(starts) is the most that can be said.
      type: bool
      returned: always
      sample: true
    why:
      description: What decided it.
      type: str
      returned: always
      sample: pod llama-70b-6f7d9c9b5-x2x4k answered the smallest request in 0.412 s
    at:
      description: The API server's time of the last look.
      type: str
      returned: always
      sample: "2026-11-30T07:04:12Z"
    rollout:
      description: How far the rollout is, V(none) while the API server doesn't answer.
      type: dict
      returned: always
      contains:
        finished:
          description: Whether nothing is left to be done.
          type: bool
          returned: always
          sample: true
        desired:
          description: How many new pods there should be.
          type: int
          returned: always
          sample: 1
        updated:
          description: How many there are.
          type: int
          returned: always
          sample: 1
        ready:
          description: How many of them are ready.
          type: int
          returned: always
          sample: 1
        old:
          description: How many older pods are left.
          type: int
          returned: always
          sample: 0
        to_delete:
          description:
            - Older pods without whose deletion it can't get on, which are those of the strategy C(OnDelete), and broken ones of a
              StatefulSet with the pod management policy C(OrderedReady).
          type: list
          elements: str
          returned: always
          sample: []
        sentence:
          description: All of it in words.
          type: str
          returned: always
          sample: 1 of 1 pods updated, 1 ready
    pods:
      description: The new pods by name.
      type: list
      elements: dict
      returned: always
      contains:
        name:
          description: Its name.
          type: str
          returned: always
          sample: llama-70b-6f7d9c9b5-x2x4k
        uid:
          description: Its UID.
          type: str
          returned: always
          sample: 5b6a7f0e-0a87-4d0c-8f6b-6b1a3c8c9f11
        node:
          description: Its node.
          type: str
          returned: always
          sample: gpu-3
        phase:
          description: The pod's phase.
          type: str
          returned: always
          sample: Running
        ready:
          description: Whether it is ready.
          type: bool
          returned: always
          sample: true
        restarts:
          description: How often the engine's container was restarted.
          type: int
          returned: always
          sample: 0
        container_state:
          description: V(running), V(waiting) or V(terminated), of the engine's container.
          type: str
          returned: always
          sample: running
        reason:
          description: Its reason.
          type: str
          returned: always
          sample: CrashLoopBackOff
        phase_of_start:
          description: The last phase of the start that its log shows, while it is not ready.
          type: str
          returned: always
          sample: load
        last_line:
          description: The last line of its log, redacted and cut, while it is not ready.
          type: str
          returned: always
          sample: Starting to load model meta-llama/Llama-3.1-70B-Instruct...
    restarts:
      description: The number of restarts by pod's UID, for O(baseline).
      type: dict
      returned: always
      sample: {"5b6a7f0e-0a87-4d0c-8f6b-6b1a3c8c9f11": 0}
    engine:
      description: What the engine answered, V(none) when it was not asked.
      type: dict
      returned: always
      contains:
        pod:
          description: The pod that was asked.
          type: str
          returned: always
          sample: llama-70b-6f7d9c9b5-x2x4k
        port:
          description: The port that was asked.
          type: int
          returned: always
          sample: 8000
        tls:
          description: Whether by https.
          type: bool
          returned: always
          sample: false
        by:
          description: V(port_forward) or V(proxy).
          type: str
          returned: always
          sample: port_forward
        health:
          description: Whether C(/health) is well, V(none) where the server has none or gave no answer.
          type: bool
          returned: always
          sample: true
        models:
          description: The names that it lists.
          type: list
          elements: str
          returned: always
          sample: [llama-70b]
        task:
          description: The kind of the request.
          type: str
          returned: always
          sample: completion
        answered:
          description: Whether it was answered.
          type: bool
          returned: always
          sample: true
        requests:
          description: How many requests were answered.
          type: int
          returned: always
          sample: 1
        tokens:
          description: How many tokens were generated, V(none) for a model that generates none.
          type: int
          returned: always
          sample: 1
        seconds:
          description: How long the first answer took.
          type: float
          returned: always
          sample: 0.412
        outcome:
          description: V(answered), V(healthy), V(unverifiable), V(not yet) or V(failed).
          type: str
          returned: always
          sample: answered
        why:
          description: What was wrong.
          type: str
          returned: always
          sample: null
    problems:
      description: What is or may be in the way, the gravest first.
      type: list
      elements: str
      returned: always
      sample: [node gpu-3 of pod llama-70b-6f7d9c9b5-x2x4k is cordoned]
    noticed:
      description: What was in the way at some time, also what is over, each once; with O(noticed) that of earlier calls too.
      type: list
      elements: str
      returned: always
      sample: [the new pod llama-70b-6f7d9c9b5-x2x4k is being deleted by somebody]
    limit:
      description:
        - How many seconds this rollout may take. That is what a startup probe allows (half an hour without one), as often as pods
          come one after the other, and five minutes more, from ten minutes to four hours.
      type: float
      returned: always
      sample: 900.0
    soak_seconds:
      description: O(soak) in seconds where one of O(causes) shows only after a while of serving, else 0.
      type: float
      returned: always
      sample: 0.0
    sentence:
      description: All of it in one sentence.
      type: str
      returned: always
      sample: "Deployment/llama-70b serves: pod llama-70b-6f7d9c9b5-x2x4k answered the smallest request in 0.412 s"
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.parameters import remove_values
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, kubeconfig
from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import access, places, watch
from ansible_collections.vllm_runbook.oom.plugins.module_utils.times import parse_duration, parse_time

KEY_VARIABLE = "VLLM_OOM_API_KEY"
# Which options exclude or need each other, as AnsibleModule takes it.
RULES: dict[str, Any] = {}


def argument_spec():
    return {
        **AUTH_ARG_SPEC,
        "api_version": {"type": "str"},
        "kind": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str"},
        "container": {"type": "str"},
        "generation": {"type": "int"},
        "since": {"type": "str"},
        "request": {"type": "str", "choices": ["none", "health", "token"], "default": "token"},
        "task": {
            "type": "str",
            "choices": ["auto", "generate", "chat", "embed", "classify", "score", "pool", "transcribe"],
            "default": "auto",
        },
        "requests": {"type": "int", "default": 1},
        "port": {"type": "int"},
        "wait": {"type": "float", "default": 0},
        "seen": {"type": "str"},
        "hold": {"type": "bool", "default": False},
        "baseline": {"type": "dict", "default": {}},
        "noticed": {"type": "list", "elements": "str", "default": []},
        "causes": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "str"},
        "soak": {"type": "str", "default": "30m"},
        "run": {"type": "str"},
        "lease": {"type": "int", "default": 180},
    }


def duration(name, text):
    """Seconds of a duration, None for none. Raises DocumentError that names the option."""
    try:
        return None if text is None else parse_duration(text)
    except DocumentError:
        raise DocumentError(
            f"{name}: {text!r} is no duration: give one such as 20m, 1h or a number of seconds"
        ) from None


def query_of(params):
    """The options as ``watch`` takes them. Raises DocumentError with a sentence for a value that can't be used."""
    since = parse_time(params["since"]) if params["since"] else None
    if params["since"] and since is None:
        raise DocumentError(
            f"since: {params['since']!r} is no time: give one such as 2026-11-30T07:00:00Z (RFC 3339)"
        )
    for name, least, most in (
        ("requests", 1, 10_000),
        ("wait", 0, 86_400),
        ("lease", 10, 86_400),
        ("port", 1, 65_535),
    ):
        if params[name] is not None and not least <= params[name] <= most:
            raise DocumentError(f"{name}: {params[name]} is not between {least} and {most}")
    durations = {name: duration(name, params[name]) for name in ("timeout", "soak")}
    baseline = {}
    for uid, count in params["baseline"].items():
        if not str(count).isdigit():
            raise DocumentError(
                f"baseline: {count!r} is no number of restarts: give serving.restarts of an earlier call"
            )
        baseline[uid] = int(count)
    return dict(params, since=since, baseline=baseline, **durations)


def answer(params):
    """What is returned for these options: ``serving``, or why there is none, with ``failed`` and ``msg``."""
    key = os.environ.get(KEY_VARIABLE) or None
    try:
        query = query_of(params)
        writer = access.connect(params)
        namespace = query["namespace"] or writer.namespace
        place = places.place_of(query["api_version"], query["kind"], namespace, query["name"])
        result = {"serving": watch.watch(writer, place, query, key)}
    except client.LibraryMissing as missing:
        result = {"failed": True, "msg": missing_required_lib(missing.library), "exception": missing.details}
    except DocumentError as error:
        result = {"failed": True, "msg": str(error)}
    return remove_values(result, kubeconfig.secrets_of(params) | ({key} if key else set()))


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **RULES)
    result = answer(module.params)
    if "failed" in result:
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
