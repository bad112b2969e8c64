#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_info
short_description: Collect what can be seen of vLLM pods that failed, or of manifests before they ship
version_added: 1.0.0
description:
  - Reads what is known about vLLM pods that failed or are failing, and returns it as one evidence document
    (RV(evidence)) for the filter P(vllm_runbook.oom.diagnosis#filter). It judges nothing.
  - The source is either a live cluster or, with O(bundle), files that somebody saved, or, with O(manifest), manifests that
    no cluster runs yet.
  - On a cluster, vLLM pods are recognised by their command, the deployer's container name, the accelerator or the image.
    Only suspicious pods are looked at closely, which are those that terminated or restarted within O(since), are Failed,
    waiting or not Ready, have OOM, Killing or Evicted events, or fail their liveness probe. Healthy pods only count,
    unless O(pod) names one.
  - For each of these pods the document holds its containers (init containers and sidecars too) with the current and the
    previous attempt, an excerpt of each attempt's log, events, owners, revisions, quotas, limit ranges and node.
  - Whatever is refused or gone is listed in RV(evidence.unreadable) with the right that is missing, and the rest is read all
    the same. The module fails only when there is nothing to diagnose.
  - Secrets in environment variables, arguments, URLs and log lines, and users' prompts, are replaced while reading.
  - Where engine settings come from ConfigMaps (environment variables, or the file that C(--config) names), the right to
    get C(configmaps) is needed to read them. Objects of kind Secret are never read.
options:
  bundle:
    description:
      - A saved evidence document, a log file of any name (also compressed with gzip), or a directory or archive made by
        C(kubectl cluster-info dump), must-gather or Troubleshoot.sh, a C(kubectl describe pod) text, stern's output, the
        logs of C(docker compose) or C(journalctl -o json), or an export of Loki or Elasticsearch. What it is
        is found out by looking at it.
      - Of a directory that the role P(vllm_runbook.oom.diagnose#role) has saved, what the nodes said of themselves is taken
        along. The budget and the diagnosis in it are left aside.
      - No cluster is contacted then, and the Python library C(kubernetes) is not needed.
    type: path
  manifest:
    description:
      - Manifests before they ship, as a YAML or JSON file, a directory of such files, or V(-) for standard input.
      - Each pod template that runs vLLM becomes a pod of the evidence, without attempts, so that its settings can be judged
        like those of a running pod. Sidecars and init containers are kept, pods that run no vLLM are left out.
      - Read are Pods, the workloads of Kubernetes, Argo Rollouts, LeaderWorkerSet, JobSet, Knative Services, InferenceService,
        ServingRuntime and LLMInferenceService of KServe, OME's InferenceService, KubeRay's kinds, StormService,
        DynamoGraphDeployment, VLLMRuntime, NIMService, KAITO's Workspace, Kthena's ModelBooster and ModelServing, and
        KubeAI's Model.
      - So are Helm values of the charts vLLM production-stack, llm-d modelservice and vLLM's sample chart, which are known by
        their shape. Templates of other charts must be rendered first, with C(helm template).
      - ConfigMaps, runtimes, quotas and limit ranges that the workloads use are taken from the same files. What isn't there is
        in RV(evidence.unreadable) or, where a deployer ships it, in the pod's assumptions.
      - No cluster is contacted then, and the Python library C(kubernetes) is not needed.
    type: path
  pod_file:
    description:
      - The manifest or status of the pod (YAML or JSON, as C(kubectl get pod -o yaml) prints it) that belongs to the log
        given as O(bundle).
    type: path
  namespace:
    description:
      - The namespace to look at.
      - The default is that of the kubeconfig's context.
    type: str
  all_namespaces:
    description:
      - Look at all namespaces of the cluster.
    type: bool
  pod:
    description:
      - Look at this pod only, whether it seems healthy or not, and at the pods that form one engine with it.
    type: str
  selector:
    description:
      - A label selector that limits the pods, such as C(app=llama,tier!=test).
    type: str
    aliases: [label_selector]
  since:
    description:
      - How far back a termination, restart or event makes a pod suspicious, such as V(24h), V(90m), V(1d12h) or a number
        of seconds.
    type: str
    default: 24h
  exec:
    description:
      - Whether commands may be run in engine containers, to read their cgroup counters, the use of C(/dev/shm) and the
        GPU memory.
      - V(never) runs nothing. This needs read rights only.
      - V(running) runs C(cat), C(df) and C(nvidia-smi) in running engine containers, at most 5 seconds each. It needs the
        right to create and get C(pods/exec), and is left out where a container uses over 90 percent of its memory limit or
        where its use is not known (an exec'd process is charged to the container). For containers with a memory limit it
        takes metrics-server and the right to get C(pods.metrics.k8s.io) to know the use.
    type: str
    choices: [never, running]
    default: never
requirements:
  - Python >= 3.9
  - urllib3 and PyYAML, for a live cluster
  - PyYAML, for O(manifest)
  - kubernetes >= 24.2.0, for O(exec=running) and wherever the cluster is not reached by a token or a client certificate alone
    (credential plugins, proxies, several kubeconfig files, passwords). It brings the other two along.
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.info_module
  - vllm_runbook.oom.attributes.actiongroup_k8s
notes:
  - A task on the machine that Ansible runs on, with C(connection=local) and the Python that runs Ansible as
    C(ansible_python_interpreter), is done in Ansible's own process, which takes a fraction of the time. With C(become),
    C(environment), C(async) or C(delegate_to) it is run as any other module, with the same result.
seealso:
  - plugin: vllm_runbook.oom.diagnosis
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Look at the suspicious vLLM pods of a namespace
  vllm_runbook.oom.evidence_info:
    namespace: llm
  register: seen

- name: Show what went wrong
  ansible.builtin.debug:
    msg: "{{ seen.evidence | vllm_runbook.oom.diagnosis }}"

- name: Look at one pod, whether it seems healthy or not
  vllm_runbook.oom.evidence_info:
    kubeconfig: ~/.kube/gpu-cluster
    context: production
    namespace: llm
    pod: llama-70b-6f7d9c9b5-x2x4k

- name: Look at a fleet, as far back as two days, with the cgroup counters of running engines
  vllm_runbook.oom.evidence_info:
    all_namespaces: true
    selector: model.aibrix.ai/engine=vllm
    since: 2d
    exec: running

- name: Read a log that somebody sent, with the pod's status
  vllm_runbook.oom.evidence_info:
    bundle: /tmp/crash.log.gz
    pod_file: /tmp/pod.yaml

- name: Read manifests before they ship
  vllm_runbook.oom.evidence_info:
    manifest: deploy/llama-70b
  register: planned

- name: Show what could go wrong
  ansible.builtin.debug:
    msg: "{{ planned.evidence | vllm_runbook.oom.diagnosis }}"
"""

RETURN = r"""
evidence:
  description:
    - The evidence document. A field whose value isn't known is V(none). Sizes are bytes unless they are Kubernetes
      quantities (resources, allocatable, capacity, quotas), durations are seconds, times are RFC 3339.
    - When the module fails because there is nothing to diagnose, it is what was seen until then.
  returned: success, and failure when a pod was seen or something could not be read
  type: dict
  contains:
    schema:
      description: Kind and version of the document.
      type: str
      returned: always
      sample: vllm_runbook.oom/evidence/v1
    collected_at:
      description: When it was read.
      type: str
      returned: always
      sample: "2026-11-30T07:00:00Z"
    source:
      description: Where it was read.
      type: dict
      returned: always
      contains:
        kind:
          description: V(cluster), V(bundle) or V(manifest).
          type: str
          returned: always
          sample: cluster
        detail:
          description: The API server and what was selected, or the file.
          type: str
          returned: always
          sample: https://10.0.0.1:6443, namespace llm
    counts:
      description: How many pods were seen.
      type: dict
      returned: always
      contains:
        pods_seen:
          description: All pods that were listed.
          type: int
          returned: always
          sample: 41
        engines:
          description: Those that run vLLM.
          type: int
          returned: always
          sample: 12
        suspicious:
          description: Those of them that were looked at because something is wrong with them.
          type: int
          returned: always
          sample: 1
    pods:
      description: The pods that were looked at, by namespace and name.
      type: list
      elements: dict
      returned: always
      contains:
        namespace:
          description: Its namespace, empty where a manifest names none.
          type: str
          returned: always
          sample: llm
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
          description: The node it was scheduled to.
          type: str
          returned: always
          sample: gpu-3
        pod_phase:
          description: The pod's phase.
          type: str
          returned: always
          sample: Running
        reason:
          description: The pod's own reason, such as V(Evicted).
          type: str
          returned: always
          sample: Evicted
        message:
          description: The message of that reason.
          type: str
          returned: always
          sample: "The node was low on resource: memory."
        conditions:
          description: The pod's conditions.
          type: list
          elements: dict
          returned: always
          sample: [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": null, "since": null}]
        qos:
          description: Its quality-of-service class.
          type: str
          returned: always
          sample: Burstable
        created_at:
          description: When it was created.
          type: str
          returned: always
          sample: "2026-11-30T06:40:12Z"
        deleted_at:
          description: When its deletion takes effect.
          type: str
          returned: always
          sample: "2026-11-30T06:59:12Z"
        grace_period:
          description: Its termination grace period in seconds.
          type: float
          returned: always
          sample: 30.0
        suspicious:
          description: Whether something is wrong with it. A healthy pod is here because it was named or shares an engine.
          type: bool
          returned: always
          sample: true
        labels:
          description: The labels that say what it belongs to.
          type: dict
          returned: always
          sample: {"app": "llama-70b"}
        annotations:
          description: The annotations that say who changed it.
          type: dict
          returned: always
          sample: {}
        workload:
          description: What it belongs to.
          type: dict
          returned: always
          contains:
            kind:
              description: Kind of the owner at the top.
              type: str
              returned: always
              sample: Deployment
            name:
              description: Name of that owner.
              type: str
              returned: always
              sample: llama-70b
            api_version:
              description: API version of that owner.
              type: str
              returned: always
              sample: apps/v1
            edit:
              description: The object on which a change lasts, the path of the engine container in it, and that of the engine's
                flags where they are elsewhere. V(null) where no object of the cluster holds them (a static pod's file).
                RV(ignore:inferred) says whether it is a conclusion from the name of a ReplicaSet that could not be read.
                RV(ignore:uid) and RV(ignore:generation) are its own at the time, V(null) where it was not read itself.
              type: dict
              returned: always
              sample:
                kind: Deployment
                name: llama-70b
                api_version: apps/v1
                path: spec.template.spec.containers[vllm]
                arguments: null
                inferred: false
                uid: 9d1c4f0e-7a55-4f0c-9a52-2f1c6c0e4b8e
                generation: 3
            chain:
              description: All owners, from the nearest to the top. RV(ignore:read) says whether the object could be read,
                RV(ignore:inferred) whether it is a conclusion.
              type: list
              elements: dict
              returned: always
              sample:
                - kind: ReplicaSet
                  name: llama-70b-6f7d9c9b5
                  api_version: apps/v1
                  uid: 2f1c9a52-6c0e-4b8e-9b83-0d1f5a7e4c36
                  read: true
                  inferred: false
            replicas:
              description: Wanted, current, ready, available and updated pods, and how many of the same template are Ready.
              type: dict
              returned: always
              sample: {"desired": 2, "current": 2, "ready": 1, "available": 1, "updated": 2, "same_template_ready": 1}
            strategy:
              description: How it replaces its pods.
              type: dict
              returned: always
              sample: {"type": "RollingUpdate", "max_surge": "25%", "max_unavailable": "25%"}
            paused:
              description: Whether the object to edit, or the top owner, is paused, so that a change of it isn't rolled out. V(null)
                where its kind knows no pause or where it was not read.
              type: bool
              returned: always
              sample: false
            own_change:
              description:
                - What this collection changed at the object before, as the object's annotations have it. V(null) where it has none.
                - RV(ignore:run), RV(ignore:at) and RV(ignore:host) are of the run that is or was last at work there,
                  RV(ignore:until) is how long that run holds the object, V(null) where none does.
                - RV(ignore:verdict) and RV(ignore:causes) are of the newest undo record, RV(ignore:records) says how many changes
                  could be taken back, RV(ignore:problems) which annotation can't be read.
              type: dict
              returned: always
              sample:
                run: 4f1c9a52
                at: "2026-11-30T06:58:12Z"
                until: "2026-11-30T07:03:12Z"
                host: runner-7
                verdict: null
                causes: [kv_max_len]
                records: 1
                problems: []
            autoscalers:
              description: Autoscalers that point at one of the owners.
              type: list
              elements: dict
              returned: always
              sample: []
            managers:
              description: Tools that manage one of the owners, how sure that is, and when they undo a change of it; those of the
                object to edit come first.
              type: list
              elements: dict
              returned: always
              sample: [{"tool": "Helm", "object": "Deployment/llama-70b", "proof": "proof", "reverts": "on_upgrade"}]
            revisions:
              description: The last revisions, oldest first, with what changed (image, arguments, env, resources, defaults).
              type: list
              elements: dict
              returned: always
              sample:
                - revision: "3"
                  at: "2026-11-30T06:40:10Z"
                  current: true
                  change_cause: null
                  diff:
                    - {"container": "vllm", "field": "args.max_model_len", "before": 8192, "after": 32768, "why": null}
            revision:
              description: Hash of this pod's revision.
              type: str
              returned: on a cluster
              sample: 6f7d9c9b5
            conditions:
              description: Conditions of the owners that say that a rollout or the creation of pods fails.
              type: list
              elements: dict
              returned: on a cluster
              sample: []
        group:
          description: The engine that several pods form together.
          type: str
          returned: always
          sample: llm/LeaderWorkerSet/deepseek/0
        gpu_request:
          description:
            - What GPU it asks for. RV(ignore:product) is the value of the node label that its node selector or affinity names,
              RV(ignore:alternatives) further values, RV(ignore:preferred) values that the scheduler only prefers,
              RV(ignore:profile) that of a MIG instance, RV(ignore:from) what names them.
          type: dict
          returned: always
          sample:
            product: NVIDIA-H100-80GB-HBM3
            alternatives: []
            preferred: []
            count: 4
            resource: nvidia.com/gpu
            profile: null
            instance_type: null
            from: nodeSelector nvidia.com/gpu.product
        members:
          description: How many pods of its template form one engine.
          type: int
          returned: with O(manifest)
          sample: 1
        assumptions:
          description: What was taken for granted where the manifest doesn't say it.
          type: list
          elements: str
          returned: with O(manifest)
          sample: []
        file:
          description: The file that it was read from.
          type: str
          returned: with O(manifest)
          sample: deploy/llama-70b/deployment.yaml
        containers:
          description: Its containers, init containers first.
          type: list
          elements: dict
          returned: always
          contains:
            name:
              description: Its name.
              type: str
              returned: always
              sample: vllm
            role:
              description: V(main), V(init), V(sidecar) or V(ephemeral).
              type: str
              returned: always
              sample: main
            image:
              description: Its image.
              type: str
              returned: always
              sample: vllm/vllm-openai:v0.11.0
            engine:
              description: The engine it runs; V(none) for any other container.
              type: dict
              returned: always
              sample: {"name": "vllm", "version": "0.11.0", "version_from": "log", "accelerator": "cuda"}
            command:
              description: Its command.
              type: list
              elements: str
              returned: always
              sample: ["vllm", "serve"]
            args:
              description: Its arguments.
              type: list
              elements: str
              returned: always
              sample: ["meta-llama/Llama-3.1-70B-Instruct", "--tensor-parallel-size=4"]
            env:
              description: Its environment; RV(ignore:from) names the source of a value that the pod doesn't hold.
              type: list
              elements: dict
              returned: always
              sample: [{"name": "HF_TOKEN", "value": null, "from": "secret/hf/token"}]
            resources:
              description: Requests and limits as Kubernetes quantities.
              type: dict
              returned: always
              sample: {"requests": {"memory": "48Gi"}, "limits": {"memory": "64Gi", "nvidia.com/gpu": "4"}}
            probes:
              description: Startup, liveness and readiness probe.
              type: dict
              returned: always
              sample: {"startup": null, "liveness": null, "readiness": null}
            lifecycle:
              description: The preStop hook.
              type: dict
              returned: always
              sample: {"pre_stop": "exec sleep 30"}
            mounts:
              description: Where its volumes are mounted.
              type: list
              elements: dict
              returned: always
              sample: [{"volume": "dshm", "path": "/dev/shm"}]
            model_source:
              description: Where a deployer takes the weights from when the arguments may name only a folder.
              type: dict
              returned: with O(manifest), for the engine
              sample: {"value": "meta-llama/Llama-3.1-8B-Instruct", "from": "storageUri"}
            restart_count:
              description: How often it was restarted.
              type: int
              returned: always
              sample: 4
            ready:
              description: Whether it is ready.
              type: bool
              returned: always
              sample: false
            settings:
              description: What the engine was told, each with its value, where that was read, and the line of the log.
              type: dict
              returned: always
              sample: {"max_model_len": {"value": 8192, "from": "arg", "line": null}}
            unresolved:
              description: What the engine is told that isn't in the files, such as a file that C(--config) names, in sentences.
              type: list
              elements: str
              returned: always
              sample: []
            attempts:
              description: The attempts that are still known, oldest first.
              type: list
              elements: dict
              returned: always
              contains:
                index:
                  description: The attempt's number, from 0.
                  type: int
                  returned: always
                  sample: 3
                state:
                  description: V(running), V(waiting) or V(terminated).
                  type: str
                  returned: always
                  sample: terminated
                reason:
                  description: The reason that Kubernetes gives.
                  type: str
                  returned: always
                  sample: OOMKilled
                message:
                  description: The message of that reason.
                  type: str
                  returned: always
                  sample: null
                exit_code:
                  description: The exit code.
                  type: int
                  returned: always
                  sample: 137
                signal:
                  description: The signal, where the runtime tells it.
                  type: int
                  returned: always
                  sample: null
                started_at:
                  description: When it started.
                  type: str
                  returned: always
                  sample: "2026-11-30T06:50:01Z"
                finished_at:
                  description: When it ended.
                  type: str
                  returned: always
                  sample: "2026-11-30T06:52:44Z"
                log:
                  description:
                    - The excerpt of its log. It has the first and the other errors (with traceback and context), notes, phase
                      markers, memory numbers, version and argument lines and the last lines, and says what was cut.
                  type: dict
                  returned: always
                  sample: {"readable": true, "complete": true, "lines": 412, "bytes": 61233, "first_error": null}
                cgroup:
                  description: Memory and CPU counters of the running attempt, with O(exec=running).
                  type: dict
                  returned: always
                  sample: null
        volumes:
          description: Its volumes.
          type: list
          elements: dict
          returned: always
          sample:
            - {"name": "dshm", "kind": "emptyDir", "medium": "Memory", "size_limit": 17179869184, "claim": null}
        shm:
          description: What is mounted at C(/dev/shm).
          type: dict
          returned: always
          sample: {"size_limit": 17179869184, "medium": "Memory", "mounted_at": "/dev/shm", "used": null}
        events:
          description: Its events and the failures to create pods of its owners, oldest first.
          type: list
          elements: dict
          returned: always
          sample:
            - type: Warning
              reason: BackOff
              message: Back-off restarting failed container vllm
              count: 12
              first_at: "2026-11-30T06:45:00Z"
              last_at: "2026-11-30T06:58:00Z"
              object: Pod/llama-70b-6f7d9c9b5-x2x4k
    groups:
      description: Pods that form one engine together.
      type: list
      elements: dict
      returned: always
      sample: [{"ref": "llm/LeaderWorkerSet/deepseek/0", "pods": ["llm/deepseek-0", "llm/deepseek-0-1"]}]
    namespaces:
      description: Quotas and limit ranges by namespace.
      type: dict
      returned: always
      sample: {"llm": {"quotas": [], "limit_ranges": []}}
    nodes:
      description: The nodes of these pods by name, with sizes, conditions, memory events and GPU labels.
      type: dict
      returned: always
      sample: {"gpu-3": {"allocatable": {"memory": "1055761844Ki", "nvidia.com/gpu": "8"}}}
    metrics:
      description: Measured series, where a source has some.
      type: dict
      returned: always
      sample: {}
    unreadable:
      description:
        - What could not be read, why, and the right (or whatever else would help) that is missing.
        - From a cluster, objects of one source with the same reason are one entry that names them all, with commas between.
      type: list
      elements: dict
      returned: always
      sample:
        - {"source": "log", "object": "llm/llama/vllm", "reason": "forbidden", "needs": "get pods/log in namespace llm"}
    redactions:
      description: How many values were replaced, by kind.
      type: dict
      returned: always
      sample: {"count": 2, "kinds": {"env": 1, "url": 1}}
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.parameters import remove_values
from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.times import parse_duration

# Which options exclude or need each other, as AnsibleModule takes it.
RULES = {
    "mutually_exclusive": [
        *(
            (saved, query)
            for saved in ("bundle", "manifest")
            for query in ("namespace", "all_namespaces", "pod", "selector")
        ),
        ("bundle", "manifest"),
        ("namespace", "all_namespaces"),
        ("pod", "all_namespaces"),
        ("pod", "selector"),
    ],
    "required_by": {"pod_file": ["bundle"]},
}


def argument_spec():
    return {
        **AUTH_ARG_SPEC,
        "bundle": {"type": "path"},
        "manifest": {"type": "path"},
        "pod_file": {"type": "path"},
        "namespace": {"type": "str"},
        "all_namespaces": {"type": "bool"},
        "pod": {"type": "str"},
        "selector": {"type": "str", "aliases": ["label_selector"]},
        "since": {"type": "str", "default": "24h"},
        "exec": {"type": "str", "choices": ["never", "running"], "default": "never"},
    }


def from_bundle(params):
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle

    return read_bundle(params["bundle"], pod_file=params["pod_file"])


def from_manifest(params):
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.manifests import read_manifests

    return read_manifests(params["manifest"])


def from_cluster(params, since):
    # Imported here: a bundle needs neither the kubernetes library nor the time that importing it takes.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, cluster, kubeconfig

    query = {name: params[name] for name in ("namespace", "all_namespaces", "pod", "selector", "exec")}
    try:
        result = {"evidence": cluster.collect(client.connect(params), dict(query, since=since))}
    except client.LibraryMissing as missing:
        result = {"failed": True, "msg": missing_required_lib(missing.library), "exception": missing.details}
    except DocumentError as error:
        result = failure(error)
    return remove_values(result, kubeconfig.secrets_of(params))


def failure(error):
    """What is returned for an error: the sentence, and what was seen until then where that is anything."""
    partial = getattr(error, "evidence", None)
    seen = partial and (partial["pods"] or partial["unreadable"])
    return dict({"evidence": partial} if seen else {}, failed=True, msg=str(error))


def answer(params):
    """What is returned for these options: ``evidence``, or why there is none, with ``failed`` and ``msg``."""
    try:
        since = parse_duration(params["since"])
        if params["bundle"]:
            return {"evidence": from_bundle(params)}
        if params["manifest"]:
            return {"evidence": from_manifest(params)}
    except DocumentError as error:
        return failure(error)
    return from_cluster(params, since)


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True, **RULES)
    result = answer(module.params)
    if "failed" in result:
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
