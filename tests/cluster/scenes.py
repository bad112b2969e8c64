# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The deaths that are staged on the cluster, each with what is right to say about it.

One table: a scene is its objects, how one sees that it has happened, and the right answers. What the engine is told
to die of stands in its environment (STANDIN_DEATHS); everything that follows (OOM kill, probe, restart, eviction) is
done by the kernel and the kubelet.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from harness import Kubectl
from manifests import (
    STATE,
    busybox,
    condition,
    counted,
    ended,
    engine,
    http_probe,
    now_unready,
    owner,
    pod,
    pod_field,
    pod_spec,
    ready,
    restarted,
    runs_for,
    waiting,
)
from testcluster import cgroups
from testcluster.addresses import free_ports
from testcluster.node import NodeSettings

# Restarts after a second, for what shows itself only after many.
FAST = NodeSettings("gpu-node-2", restart_period="1s")
# Wants more free memory than there is on a machine that runs a cluster, so that it evicts whoever comes.
PRESSED = NodeSettings("gpu-node-3", memory_threshold="99%")
OUT_OF_MEMORY = NodeSettings("gpu-node-4")


@dataclass(frozen=True)
class Answer:
    """What is right about one pod.

    trigger: a text that the trigger's evidence must quote. says: texts that the verdict's sentence or the trigger's
    explanation must hold. container: whose it is, where it isn't the engine's. at_most: the highest confidence.
    """

    cause: str | None
    memory: str
    is_memory: bool | None
    trigger: str = ""
    says: tuple[str, ...] = ()
    container: str = "vllm"
    at_most: str = "certain"


class Staged(Protocol):
    """Where the scenes are: kubectl, and their namespace."""

    kubectl: Kubectl
    namespace: str


@dataclass(frozen=True)
class Scene:
    """objects: what to apply; their pods have the label app=NAME.

    settled(pods): whether it has happened. act(staged, pods): what somebody does to them then, until ``after``.
    answers: by the end of the pod's name. also(diagnosis): what must hold beyond them. ask: further variables of the
    playbook.
    """

    name: str
    objects: list[dict]
    settled: Callable[[list[dict]], bool]
    answers: dict[str, Answer]
    act: Callable[[Staged, list[dict]], None] | None = None
    after: Callable[[list[dict]], bool] | None = None
    ask: dict[str, object] = field(default_factory=dict)
    also: Callable[[dict], object] = lambda diagnosis: True


def host(trigger: str = "OOMKilled", cause: str = "host_oom_load", **more) -> Answer:
    return Answer(cause, "host", True, trigger, **more)


def gpu(cause: str, trigger: str, **more) -> Answer:
    return Answer(cause, more.pop("memory", "gpu"), True, trigger, **more)


def not_memory(cause: str, trigger: str = "", **more) -> Answer:
    return Answer(cause, "none", False, trigger, **more)


# Ready at once, so that a scene can be told from one whose engine hasn't come up.
READY = {"exec": {"command": ["true"]}, "periodSeconds": 1}


def engine_scenes() -> Iterator[Scene]:
    """One container, killed by the kernel or ended by itself."""
    for name, deaths, memory, settled, answer in (
        ("host-oom", "host_oom", "96Mi", ended(reason="OOMKilled", exitCode=137), host()),
        ("child-killed", "host_oom_child", "96Mi", ended(reason="OOMKilled", exitCode=1), host()),
        (
            "weights",
            "cuda_oom@load",
            "256Mi",
            ended(exitCode=1),
            gpu("gpu_weights_oom", "CUDA out of memory"),
        ),
        (
            "engine-dead",
            "cuda_oom_exit0",
            "256Mi",
            ended(exitCode=0),
            gpu("serving_gpu_oom", "CUDA out of memory"),
        ),
        ("nccl", "nccl_oom", "256Mi", ended(exitCode=1), gpu("nccl_gpu_oom", "NCCL", memory="nccl_gpu")),
        ("shm", "shm", "256Mi", ended(exitCode=1), Answer("shm_exhausted", "shm", True)),
        ("crash", "segv", "256Mi", ended(exitCode=1), not_memory("native_crash")),
    ):
        yield Scene(name, [pod(name, engine(deaths=deaths, memory=memory))], settled, {"": answer})

    port = free_ports(1)[0]
    yield Scene(
        "child-lives",
        [
            pod(
                "child-lives",
                engine(
                    deaths="host_oom_child_lives@serving",
                    memory="96Mi",
                    port=port,
                    readinessProbe=http_probe(port),
                ),
            )
        ],
        now_unready,
        # Its log says that the engine is dead, not who killed it; the counter of its own cgroup does.
        {"": host("1 OOM kill among its processes", cause="host_oom_growth")},
        ask={"exec": "running"},
    )


def probe_scenes() -> Iterator[Scene]:
    """137 and 143 that have nothing to do with memory."""
    port = free_ports(1)[0]
    killed = http_probe(port, failureThreshold=2, initialDelaySeconds=2)
    yield Scene(
        "liveness",
        [pod("liveness", engine(deaths="hang@load", port=port, livenessProbe=killed))],
        ended(exitCode=137),
        {"": not_memory("probe_kill")},
    )
    port = free_ports(1)[0]
    killed = http_probe(port, failureThreshold=4)
    yield Scene(
        "startup",
        [pod("startup", engine(deaths="slow:600@load", port=port, startupProbe=killed))],
        ended(exitCode=143),
        {"": not_memory("probe_kill")},
    )
    yield Scene(
        "sigterm",
        [pod("sigterm", engine(deaths="sigterm", env={"STANDIN_TERM_CODE": "143"}, readinessProbe=READY))],
        ready(),
        {"": not_memory("sigterm_shutdown")},
        act=lambda staged, pods: staged.kubectl(
            "exec", "sigterm", "-n", staged.namespace, "-c", "vllm", "--", "kill", "1"
        ),
        after=ended(exitCode=143),
    )
    port = free_ports(1)[0]
    yield Scene(
        "hang",
        [pod("hang", engine(deaths="hang@load", port=port, readinessProbe=http_probe(port)))],
        runs_for(15),
        # Fifteen seconds without a word are no hang yet; that it isn't ready, and how far it got, is said.
        {"": Answer(None, "none", False, says=("without being ready", "rank 0 in world size 1"))},
    )


def recorded_scenes() -> Iterator[Scene]:
    """Starts that failed in public reports for want of GPU memory; the table of programs/engine has their figures."""
    vl = ("Qwen/Qwen3-VL-30B-A3B-Instruct", "--gpu-memory-utilization")
    for name, gpu_name, arguments, cause, trigger, gpus, version in (
        (
            "no-blocks",
            "H100 80GB",
            ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "--max-model-len", "16000"),
            "kv_no_blocks",
            "No available memory for the cache blocks",
            1,
            "0.11.0",
        ),
        (
            "max-len",
            "A100 80GB",
            (*vl, "0.9", "--max-model-len", "262144"),
            "kv_max_len",
            "estimated maximum model length is 87840",
            1,
            "0.11.0",
        ),
        (
            "graph",
            "A100 80GB",
            (*vl, "0.95", "--max-model-len", "100000"),
            "cudagraph_capture_oom",
            "CUDA out of memory",
            1,
            "0.11.0",
        ),
        (
            "too-big",
            "H100 80GB",
            ("deepseek-ai/DeepSeek-R1", "--max-model-len", "16000"),
            "gpu_weights_oom",
            "CUDA out of memory",
            1,
            "0.11.0",
        ),
        (
            "occupied",
            "80GB beside another engine",
            ("meta-llama/Llama-3.1-8B",),
            "gpu_free_below_util",
            "less than desired GPU memory utilization",
            1,
            "0.9.1",
        ),
    ):
        container = engine(*arguments, env={"STANDIN_GPU": gpu_name}, gpus=gpus, version=version)
        yield Scene(name, [pod(name, container)], ended(exitCode=1), {"": gpu(cause, trigger)})


def kill_from_outside(staged: Staged, pods: list[dict]) -> None:
    """SIGKILL to the engine's first process, from the node: no limit, no probe, no kubelet."""
    container = pods[0]["status"]["containerStatuses"][0]["containerID"].split("//")[1]
    os.kill(min(cgroups.processes_of(container)), signal.SIGKILL)


def kill_as_the_node_would(staged: Staged, pods: list[dict]) -> None:
    """The same, and the event that a kubelet writes for its node when the kernel was out of memory.

    A node that really runs out would take this machine with it; the event's text is kubelet's
    (pkg/kubelet/oom/oom_watcher_linux.go, 1.34).
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    node = pods[0]["spec"]["nodeName"]
    kill_from_outside(staged, pods)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node}.", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        "reason": "SystemOOM",
        "message": "System OOM encountered, victim process: VLLM::EngineCor, pid: 31415",
        "type": "Warning",
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    staged.kubectl("create", "-f", "-", stdin=json.dumps(event))


def kill_scenes() -> Iterator[Scene]:
    """137 by a SIGKILL that no limit sent."""
    killed = ended(exitCode=137, reason="Error")
    yield Scene(
        "killed",
        [pod("killed", engine(readinessProbe=READY))],
        ready(),
        {"": Answer("sigkill_unattributed", "unknown", None)},
        act=kill_from_outside,
        after=killed,
    )
    # On a node of its own: the event speaks for every pod of the node.
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": OUT_OF_MEMORY.name}}
    yield Scene(
        "node-oom",
        [pod("node-oom", engine(readinessProbe=READY), **elsewhere)],
        ready(),
        {"": Answer("node_oom", "node", True, "System OOM", at_most="likely")},
        act=kill_as_the_node_would,
        after=killed,
    )


def other_container_scenes() -> Iterator[Scene]:
    """The engine is well, or never came to it: somebody else in the pod ran out."""
    hungry = "echo downloading; sleep 1; exec tail /dev/zero"
    yield Scene(
        "init-oom",
        [pod("init-oom", engine(), initContainers=[busybox("download", hungry, memory="32Mi")])],
        ended(reason="OOMKilled"),
        {"": host(container="download")},
    )
    yield Scene(
        "native-sidecar",
        [
            pod(
                "native-sidecar",
                engine(readinessProbe=READY),
                initContainers=[busybox("exporter", hungry, memory="32Mi", restartPolicy="Always")],
            )
        ],
        ended(reason="OOMKilled"),
        {"": host(cause="host_oom_growth", container="exporter")},
    )
    yield Scene(
        "neighbour",
        [pod("neighbour", engine(readinessProbe=READY), busybox("metrics", hungry, memory="32Mi"))],
        ended(reason="OOMKilled"),
        {"": host(cause="host_oom_growth", container="metrics")},
    )


def many_attempts_scenes() -> Iterator[Scene]:
    """What the API has kept of many attempts: the last two."""
    fast = {"nodeSelector": {"kubernetes.io/hostname": FAST.name}}
    yield Scene(
        "ten-attempts",
        [pod("ten-attempts", engine(deaths="host_oom", memory="96Mi"), **fast)],
        restarted(10),
        {"": host(at_most="likely", says=(" runs ",))},
    )
    attempts = "cuda_oom@serving,nccl_timeout,nccl_timeout"
    yield Scene(
        "hidden",
        [pod("hidden", counted(engine(deaths=attempts)), volumes=STATE, **fast)],
        restarted(4),
        {"": not_memory("nccl_not_memory", at_most="likely", says=(" runs ",))},
    )


def pod_scenes() -> Iterator[Scene]:
    """What is done to the pod as a whole."""
    cache = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    yield Scene(
        "evicted-storage",
        [
            pod(
                "evicted-storage",
                engine(),
                busybox("writer", "sleep 3; dd if=/dev/zero of=/cache/x bs=1M count=60; sleep 1000", **cache),
                volumes=[{"name": "cache", "emptyDir": {"sizeLimit": "20Mi"}}],
            )
        ],
        pod_field("reason", "Evicted"),
        {"": not_memory("eviction", "exceeds the limit")},
    )
    yield Scene(
        "evicted-memory",
        # By name: the scheduler sends nobody to a node under pressure.
        [pod("evicted-memory", engine(), nodeName=PRESSED.name, nodeSelector=None)],
        condition("DisruptionTarget", "TerminationByKubelet"),
        {"": Answer("eviction", "node", True, "memory")},
    )
    yield Scene(
        "memory-backed",
        [
            pod(
                "memory-backed",
                engine(
                    deaths="shm_fill:300",
                    memory="128Mi",
                    volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
                ),
                volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
            )
        ],
        ended(reason="OOMKilled"),
        {"": host()},
    )


def never_started_scenes() -> Iterator[Scene]:
    """Pods that never came to running anything."""
    yield Scene(
        "no-room",
        [pod("no-room", engine(gpus=500))],
        condition("PodScheduled", "Unschedulable", status="False"),
        {"": not_memory("unschedulable", "nvidia.com/gpu")},
    )
    yield Scene(
        "no-image",
        [pod("no-image", {**engine(), "image": "docker.io/vllm/vllm-openai:v0.0.1"})],
        waiting("ErrImageNeverPull"),
        {"": not_memory("start_error", "ErrImageNeverPull")},
    )


def several_pods_scenes() -> Iterator[Scene]:
    """Replicas that fail differently, and pods that form one engine."""
    yield Scene(
        "differ",
        [
            owner(
                "StatefulSet",
                "differ",
                pod_spec(
                    engine(
                        deaths="none",
                        memory="96Mi",
                        env={"STANDIN_DEATHS_0": "host_oom", "STANDIN_DEATHS_1": "cuda_oom@load"},
                        pod_name=True,
                    )
                ),
                replicas=2,
            )
        ],
        ended(2),
        {"-0": host(), "-1": gpu("gpu_weights_oom", "CUDA out of memory")},
        # One workload; what fails alike is listed together, and that there are two ways is said.
        also=lambda diagnosis: (
            [len(entry["pods"]) for entry in diagnosis["workloads"]] == [1, 1]
            and all("in 2 different ways" in entry["sentence"] for entry in diagnosis["workloads"])
        ),
    )
    group = {
        "leaderworkerset.sigs.k8s.io/name": "group",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "app": "group",
    }

    def member(index: int, name: str, deaths: str) -> dict:
        place = {"leaderworkerset.sigs.k8s.io/worker-index": str(index)}
        arguments = ("meta-llama/Llama-3.1-405B-Instruct", "--tensor-parallel-size", "8")
        nodes = ("--pipeline-parallel-size", "2", "--nnodes", "2", "--node-rank", str(index))
        return pod(
            name,
            engine(*arguments, *nodes, deaths=deaths, memory="96Mi", env={"STANDIN_LAW": "off"}),
            labels=group | place,
            restartPolicy="Never",
        )

    yield Scene(
        "group",
        [member(0, "group-0", "nccl_timeout"), member(1, "group-0-1", "host_oom")],
        ended(2),
        {"-0": Answer("nccl_not_memory", "none", False), "-0-1": host()},
        also=lambda diagnosis: diagnosis["groups"][0]["trigger_pod"].endswith("group-0-1"),
    )


def all_scenes() -> list[Scene]:
    """Every scene, by name."""
    makers = (
        engine_scenes,
        recorded_scenes,
        probe_scenes,
        kill_scenes,
        other_container_scenes,
        many_attempts_scenes,
        pod_scenes,
        never_started_scenes,
        several_pods_scenes,
    )
    scenes = [scene for make in makers for scene in make()]
    return sorted(scenes, key=lambda scene: scene.name)
