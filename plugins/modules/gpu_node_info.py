#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_info
short_description: Read what a GPU node itself tells of its GPUs and memory
version_added: 1.0.0
description:
  - Reads on a GPU node, or in a container on it, who holds the GPUs' memory, whether the GPUs and their links are sound, what the
    kernel's out-of-memory killer did, and what NCCL was told. It returns that as an evidence document (RV(evidence)) with one node,
    for the option O(vllm_runbook.oom.diagnosis#filter:nodes) of the filter P(vllm_runbook.oom.diagnosis#filter). It judges nothing.
  - Runs on the node over SSH, or in a pod through the connection P(kubernetes.core.kubectl#connection). It needs no Kubernetes client
    and no package beside Python.
  - Every source is optional. What can't be read, because a program or a right is missing, is listed in RV(evidence.unreadable), and the
    rest is read all the same. As an unprivileged user it usually lacks the kernel log and the environment of other users' processes.
  - Secrets in command lines and environment variables are replaced while reading. Of an environment only variables are kept that
    tell NCCL, PyTorch, MPS and vLLM how to use memory, GPUs and links.
options:
  node_name:
    description:
      - The node's name in the cluster, by which the evidence is joined to pods.
      - The default is the machine's own host name, which in a pod is the pod's name.
    type: str
  sources:
    description:
      - What to read.
      - V(gpus) is memory, MIG instances, errors and faults of each GPU from C(nvidia-smi -q -x), or from C(amd-smi) or C(rocm-smi).
      - V(processes) are the processes that hold GPU memory, each with its pod and container.
      - V(topology) are the links between GPUs and network cards, and the CPUs near them.
      - V(kernel) is the kernel log, with reports of the OOM killer, Xids and other messages of the NVIDIA driver.
      - V(cgroups) are memory and CPU counters of the containers that hold GPU memory.
      - V(limits) are the limits of locked memory, open files and stack.
      - V(memory) is the node's memory with huge pages, and C(/dev/shm).
      - V(services) are fabric manager, persistence daemon and MPS.
      - V(nccl) are variables and configuration files of NCCL and the network interfaces.
    type: list
    elements: str
    choices: [gpus, processes, topology, kernel, cgroups, limits, memory, services, nccl]
    default: [gpus, processes, topology, kernel, cgroups, limits, memory, services, nccl]
  since:
    description:
      - How far back the kernel log is read, such as V(24h), V(90m), V(1d12h) or a number of seconds.
    type: str
    default: 24h
  timeout:
    description:
      - How many seconds one command may take. C(nvidia-smi) is given up after the first call that takes longer.
    type: float
    default: 10
  nvidia_smi:
    description:
      - The path of C(nvidia-smi), where it isn't found by itself.
      - Searched are E(PATH), the usual folders, and the driver container of the GPU operator, which takes root.
    type: path
requirements:
  - Python >= 3.9 on the node
  - Linux
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.info_module
seealso:
  - module: vllm_runbook.oom.evidence_info
  - plugin: vllm_runbook.oom.diagnosis
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Read a GPU node over SSH
  vllm_runbook.oom.gpu_node_info:
    node_name: "{{ inventory_hostname }}"
  become: true
  register: node

- name: Who holds GPU memory there
  ansible.builtin.debug:
    msg: "{{ node.evidence.nodes[inventory_hostname].processes }}"

- name: Read the node of a pod from inside it
  vllm_runbook.oom.gpu_node_info:
    node_name: gpu-3
    sources: [gpus, topology, limits, memory, nccl]
  delegate_to: llama-0
  vars:
    ansible_connection: kubernetes.core.kubectl
    ansible_kubectl_namespace: llm
    ansible_kubectl_pod: llama-0
    ansible_kubectl_container: vllm
  register: node

- name: Only the kernel's last hour
  vllm_runbook.oom.gpu_node_info:
    node_name: "{{ inventory_hostname }}"
    sources: [kernel]
    since: 1h
  become: true
  register: node
"""

RETURN = r"""
evidence:
  description:
    - The evidence document. Sizes are bytes, durations seconds, times RFC 3339; what isn't known is null or empty.
  returned: success
  type: dict
  contains:
    schema:
      description: Name and version of the document's form.
      type: str
      returned: always
      sample: vllm_runbook.oom/evidence/v1
    collected_at:
      description: When it was read.
      type: str
      returned: always
      sample: "2026-11-30T07:00:00Z"
    source:
      description: That it was read on a node, on which and as whom.
      type: dict
      returned: always
      sample: {"kind": "node", "detail": "gpu-3, read on gpu-3 as root"}
    counts:
      description: Numbers of pods, which this module doesn't look at.
      type: dict
      returned: always
      sample: {"pods_seen": 0, "engines": 0, "suspicious": 0}
    pods:
      description: Empty.
      type: list
      elements: dict
      returned: always
      sample: []
    groups:
      description: Empty.
      type: list
      elements: dict
      returned: always
      sample: []
    namespaces:
      description: Empty.
      type: dict
      returned: always
      sample: {}
    metrics:
      description: Empty.
      type: dict
      returned: always
      sample: {}
    nodes:
      description:
        - The node under the name that O(node_name) gives. It has the keys that follow, beside those that only a cluster tells
          (RV(ignore:allocatable), RV(ignore:capacity), RV(ignore:conditions), RV(ignore:events), RV(ignore:gpu),
          RV(ignore:kubelet)) and that are empty here.
      type: dict
      returned: always
      contains:
        reader:
          description: Who read it. RV(ignore:pid_namespace) is V(own) in a container with process numbers of its own.
          type: dict
          returned: always
          sample: {"user": "root", "uid": 0, "pid_namespace": "host", "pod_uid": null, "container_id": null}
        driver:
          description: Versions of driver and CUDA, and what nvidia-smi says instead of an answer.
          type: dict
          returned: always
          sample: {"version": "550.54.15", "cuda": "12.4", "error": null}
        gpus:
          description:
            - Each GPU with its memory, MIG instances, modes, errors and faults. RV(ignore:lost) is true for one that nvidia-smi names and
              can't reach.
          type: list
          elements: dict
          returned: always
          sample:
            - {"index": 0, "uuid": "GPU-5a1f6e0c", "name": "NVIDIA H100 80GB HBM3", "bus_id": "00000000:1B:00.0", "total": 85520809984,
               "reserved": 502267904, "used": 0, "free": 85019590656, "mig": null, "lost": false, "error": null}
        processes:
          description:
            - Each process that holds GPU memory, with pod and container by its cgroup. RV(ignore:ns_pid) is its number inside its
              container, RV(ignore:alive) whether the kernel knows it, null where that can't be seen.
          type: list
          elements: dict
          returned: always
          sample:
            - {"gpu": "GPU-5a1f6e0c", "pid": 41213, "name": "VLLM::EngineCore", "type": "C", "used": 76235669504, "gi": null, "ci": null,
               "cgroup": "/kubepods.slice/kubepods-pod0b6ad5a2_0f6c_4d5a_9a62_0c6f0b7e1f11.slice/cri-containerd-4c8094633a.scope",
               "pod_uid": "0b6ad5a2-0f6c-4d5a-9a62-0c6f0b7e1f11", "container_id": "4c8094633a", "started_at": "2026-11-30T06:50:01Z",
               "command": "VLLM::EngineCore", "alive": true, "state": "S", "uid": 0, "ns_pid": 118}
        topology:
          description: Links between GPUs, CPUs and NUMA node near each, names of the network cards, NVLinks.
          type: dict
          returned: always
          sample:
            links: {"GPU0": {"GPU1": "NV18"}}
            affinity: {"GPU0": {"cpus": "0-23", "numa": "0"}}
            nics: {"NIC0": "mlx5_0"}
            nvlinks: {"GPU0": {"active": 18, "inactive": 0, "gbs": 478.1}}
        kernel_oom:
          description: Lines of the OOM killer's reports, without stack and registers; of older reports limit and victim only.
          type: list
          elements: dict
          returned: always
          sample:
            - time: "2026-11-30T06:52:44.101Z"
              text: "Memory cgroup out of memory: Killed process 2343 (python3) total-vm:31763532kB, anon-rss:13928044kB, file-rss:12208kB"
        xids:
          description:
            - Errors that the driver reported, of each code and GPU the first and the last three. RV(ignore:count) is how many there were.
          type: list
          elements: dict
          returned: always
          sample:
            - time: "2026-11-30T06:52:44.101Z"
              code: 79
              bus_id: "00000000:3B:00.0"
              pid: null
              text: "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
              count: 1
        nvrm:
          description: Other messages of the driver, alike ones once with their number and last time.
          type: list
          elements: dict
          returned: always
          sample: [{"time": "2026-11-30T06:52:44.101Z", "text": "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "count": 1}]
        cgroups:
          description: Memory and CPU counters by container id.
          type: dict
          returned: always
          sample: {"4c8094633a": {"version": 2, "memory": {"limit": 68719476736, "usage": 51539607552, "oom_kills": 0}}}
        limits:
          description: Soft limits of each GPU process; process 0 is the reader itself.
          type: list
          elements: dict
          returned: always
          sample: [{"pid": 0, "memlock": 8388608, "nofile": 1048576, "stack": 8388608}]
        memory:
          description: The machine's memory.
          type: dict
          returned: always
          sample: {"total": 1081101176832, "available": 1010827264000, "swap_total": 0, "swap_free": 0, "hugepages_total": 0,
                   "hugepages_free": 0, "hugepage_size": 2097152}
        shm:
          description: Size and use of the reader's C(/dev/shm), the pod's in a pod.
          type: dict
          returned: always
          sample: {"size": 67108864, "used": 0}
        cpu:
          description: Number of CPUs, those of each NUMA node, and the frequency governor.
          type: dict
          returned: always
          sample: {"count": 96, "numa": {"0": "0-47", "1": "48-95"}, "governor": "performance"}
        services:
          description: State of services, null where there is none.
          type: dict
          returned: always
          sample: {"fabric_manager": "active", "persistenced": "active", "mps": null}
        nccl:
          description:
            - What NCCL, PyTorch, MPS and vLLM were told. RV(ignore:processes) has the settings of the GPU processes, those that were told
              the same as one entry, and RV(ignore:variables) what all of them agree on.
            - Where no such process can be read, RV(ignore:variables) is what the reader itself would be told, in a container or on a node
              on which no container holds a GPU.
            - RV(ignore:file) is the configuration file that counts, RV(ignore:interfaces) are the reader's network interfaces,
              RV(ignore:hcas) the RDMA devices.
          type: dict
          returned: always
          sample:
            variables: {"NCCL_DEBUG": "WARN", "NCCL_P2P_DISABLE": "1"}
            file: null
            from: env
            processes:
              - pids: [41213]
                pod_uid: 0b6ad5a2-0f6c-4d5a-9a62-0c6f0b7e1f11
                variables: {"NCCL_DEBUG": "WARN", "NCCL_P2P_DISABLE": "1"}
                file: null
                from: env
                interfaces: ["lo", "eth0"]
            interfaces: ["eth0", "lo"]
            hcas: ["mlx5_0"]
    unreadable:
      description: What could not be read, why, and the right or whatever else is missing.
      type: list
      elements: dict
      returned: always
      sample:
        - source: kernel log
          object: node gpu-3
          reason: "the journal may not be read by this user; /dev/kmsg: Operation not permitted; dmesg: Operation not permitted"
          needs: "root, the group systemd-journal or adm, or kernel.dmesg_restrict=0"
    redactions:
      description: How many values were replaced, by kind.
      type: dict
      returned: always
      sample: {"count": 1, "kinds": {"env": 1}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.node_reader import SOURCES, read_node
from ansible_collections.vllm_runbook.oom.plugins.module_utils.times import parse_duration


def argument_spec():
    return {
        "node_name": {"type": "str"},
        "sources": {"type": "list", "elements": "str", "choices": list(SOURCES), "default": list(SOURCES)},
        "since": {"type": "str", "default": "24h"},
        "timeout": {"type": "float", "default": 10},
        "nvidia_smi": {"type": "path"},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    given = module.params
    if not 0 < given["timeout"] <= 300:
        module.fail_json(msg=f"timeout is {given['timeout']:g}: give seconds, more than 0 and at most 300.")
    try:
        evidence = read_node(
            name=given["node_name"],
            sources=given["sources"],
            since=parse_duration(given["since"]),
            timeout=given["timeout"],
            nvidia_smi=given["nvidia_smi"],
        )
    except DocumentError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, evidence=evidence)


if __name__ == "__main__":
    main()
