# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deaths that are remediated on the cluster, each with the change that its mechanism allows.

One table: a scene is an owner whose engine dies for want of something, and what is right to change. The stand-in is
cured by nothing else (programs/engine/README.md, "What cures one"), so a served token proves the change.

The answers come from the mechanism, never from what the plan says: where two changes are right, either is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from harness import Kubectl
from manifests import ended, engine, http_probe, now_unready, owner, pod_spec, ready, runs_for, waiting
from scenes import READY
from testcluster.addresses import free_ports

API_KEY = "sk-remediation-4f1c9a77e2"
SMALL = ("Qwen/Qwen3-0.6B", "--max-model-len", "4096")
# Any model starts, without the lines that need recorded figures.
LAWLESS = {"STANDIN_LAW": "off", "STANDIN_STEP": "0.1"}
UTILIZATION = "--gpu-memory-utilization"
LIMIT, REQUEST = "resources.limits.memory", "resources.requests.memory"
MIB, GIB = 2**20, 2**30

Test = Callable[[object], bool]


def between(least: float, most: float) -> Test:
    """A number, also one that is written as a text."""
    return lambda value: least <= float(value) <= most


def memory(least_mib: int, most_mib: int) -> Test:
    """A Kubernetes quantity of memory."""
    units = {"Mi": MIB, "Gi": GIB, "Ki": 1024}

    def look(value: object) -> bool:
        text = str(value)
        size = float(text[:-2]) * units[text[-2:]] if text[-2:] in units else float(text)
        return least_mib * MIB <= size <= most_mib * MIB

    return look


def anything(value: object) -> bool:
    return True


def gone(value: object) -> bool:
    return value is None


@dataclass(frozen=True)
class Scene:
    """object: what to apply; its pods have the label app=NAME. settled(pods): whether the death has happened. act(kubectl, pod):
    what somebody does to its pod then, until ``after``.

    cause: of the trigger, None where nothing failed. remedies: what may be written, by the CHANGE's name, each with a test
    of the new value; at least one of ``needs`` (default: of them all) is. Empty: nothing may be written, whatever is
    allowed. verdict: of the outcome. never: names of changes that are wrong by the mechanism, also as a plan, some of them
    in one direction only ("NAME decrease"). says: texts that the outcome's sentence or the plan must hold.
    """

    name: str
    object: dict
    settled: Callable[[list[dict]], bool]
    cause: str | None
    remedies: dict[str, Test] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    verdict: str | None = None
    never: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    act: Callable[[Kubectl, dict], object] | None = None
    after: Callable[[list[dict]], bool] | None = None

    @property
    def deaths(self) -> set[str]:
        """The kinds of death in what its engine is told (STANDIN_DEATHS, STANDIN_DEATHS_<n>)."""
        (container,) = self.object["spec"]["template"]["spec"]["containers"]
        told = (entry["value"] for entry in container["env"] if entry["name"].startswith("STANDIN_DEATHS"))
        return {re.match(r"\w+", death).group() for text in told for death in re.split("[,+]", text)}


def engine_of(*arguments: str, startup: int | None = None, liveness: int | None = None, **options) -> dict:
    """An engine that is ready when it serves. startup, liveness: seconds after which that probe gives up."""
    port = free_ports(1)[0]
    env = {**LAWLESS, **options.pop("env", {})}
    if startup:
        options["startupProbe"] = http_probe(port, failureThreshold=startup)
    if liveness:
        options["livenessProbe"] = http_probe(port, failureThreshold=liveness)
    options.setdefault("readinessProbe", http_probe(port))
    return engine(*(arguments or SMALL), port=port, env=env, **options)


def _recorded(*arguments: str, gpu: str, version: str = "0.11.0", **options) -> dict:
    """An engine whose start is in the table of recorded ones."""
    env = {"STANDIN_LAW": "on", "STANDIN_GPU": gpu, **options.pop("env", {})}
    return engine_of(*arguments, version=version, env=env, **options)


def owned_by(
    name: str, container: dict, kind: str = "Deployment", volumes: Iterable[dict] = (), **fields
) -> dict:
    made = owner(kind, name, pod_spec(container, volumes=list(volumes) or None), **fields)
    if kind == "DaemonSet":
        del made["spec"]["replicas"]
    if kind == "StatefulSet":
        # The API's default: it waits for a pod that never becomes ready.
        del made["spec"]["podManagementPolicy"]
    return made


GPU_SIZES = (UTILIZATION, "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens")
OTHER_MEMORY = (LIMIT, "volumes.shm", "volumes.shm.sizeLimit")
ROOMY = (*SMALL, UTILIZATION, "0.97", "--max-num-seqs", "1024")
SERVES_SHORTLY = {"STANDIN_SERVING_SECONDS": "0.2"}
DEAD, KILLED, BY_PROBE = ended(exitCode=1), ended(reason="OOMKilled"), ended(exitCode=143)


AT_SHM = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}


def in_memory(size: str) -> dict:
    """The volume of AT_SHM."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def host_scenes() -> Iterator[Scene]:
    """Host memory."""
    more = {LIMIT: memory(161, 12288), REQUEST: memory(32, 12288)}
    yield Scene(
        "host",
        owned_by("host", engine_of(*SMALL, "--api-key", API_KEY, deaths="host_oom:160", memory="96Mi")),
        KILLED,
        "host_oom_load",
        more,
        (LIMIT,),
        "served",
        never=GPU_SIZES,
    )
    yield Scene(
        # The kernel takes the engine core, and the container ends with 1.
        "child",
        owned_by("child", engine_of(deaths="host_oom_child:160", memory="96Mi")),
        ended(reason="OOMKilled", exitCode=1),
        "host_oom_load",
        more,
        (LIMIT,),
        "served",
        never=GPU_SIZES,
    )


def shm_scenes() -> Iterator[Scene]:
    """/dev/shm: the 64 MiB that a container has by default, or a volume of that size."""
    # What is written there counts against the limit.
    counted = {LIMIT: memory(612, 12288), REQUEST: memory(32, 12288)}
    told = {"PYTHONFAULTHANDLER": "1", "NCCL_DEBUG": "WARN"}

    def crowd(deaths: str, **options) -> dict:
        """Two ranks, with what makes them say what they ran out of."""
        return engine_of(*SMALL, "-tp", "2", deaths=deaths, memory="512Mi", gpus=2, env=told, **options)

    for name, container in (
        ("shm", crowd("shm:100")),
        ("segments", crowd("shm_nccl:100")),
        # vLLM's own check finds that 160 MiB don't fit.
        ("checked", crowd("shm:100", version="0.28.0")),
    ):
        yield Scene(
            name,
            owned_by(name, container),
            DEAD,
            "shm_exhausted",
            {"volumes.shm": memory(101, 65536), **counted},
            ("volumes.shm",),
            "served",
            never=GPU_SIZES,
        )
    yield Scene(
        "volume",
        owned_by("volume", crowd("shm:100", **AT_SHM), volumes=[in_memory("64Mi")]),
        DEAD,
        "shm_exhausted",
        {"volumes.shm.sizeLimit": memory(101, 65536), **counted},
        ("volumes.shm.sizeLimit",),
        "served",
        never=GPU_SIZES,
    )
    yield Scene(
        # What is left in a memory-backed /dev/shm counts: there is room in it, and none in the limit.
        "counted",
        owned_by(
            "counted",
            engine_of(*SMALL, deaths="shm_fill:160", memory="96Mi", **AT_SHM),
            volumes=[in_memory("512Mi")],
        ),
        KILLED,
        "host_oom_load",
        {LIMIT: memory(161, 12288), REQUEST: memory(32, 12288)},
        (LIMIT,),
        "served",
        never=(*GPU_SIZES, "volumes.shm", "volumes.shm.sizeLimit"),
    )


def probe_scenes() -> Iterator[Scene]:
    """Starts that take longer than a probe allows, by themselves or under a CPU limit."""
    more_time = {"startupProbe": lambda probe: probe["failureThreshold"] * probe["periodSeconds"] >= 10}
    yield Scene(
        "startup",
        owned_by("startup", engine_of(deaths="slow:5", startup=2), "StatefulSet"),
        BY_PROBE,
        "probe_kill",
        more_time,
        (),
        "served",
        never=(*GPU_SIZES, LIMIT),
    )
    yield Scene(
        "liveness",
        owned_by("liveness", engine_of(deaths="slow:5", liveness=2), "DaemonSet"),
        BY_PROBE,
        "probe_kill",
        more_time,
        (),
        "served",
        never=(*GPU_SIZES, LIMIT),
    )
    yield Scene(
        "throttled",
        # Two seconds of CPU time take twenty.
        owned_by("throttled", engine_of(deaths="cpu:2", cpu_limit="100m", startup=5)),
        BY_PROBE,
        "probe_kill",
        {**more_time, "resources.limits.cpu": gone},
        (),
        "served",
        never=(*GPU_SIZES, LIMIT),
    )


def gpu_scenes() -> Iterator[Scene]:
    """GPU memory, within the budget and beside it."""
    below = {UTILIZATION: between(0.5, 0.95), "--max-num-seqs": between(1, 256)}
    yield Scene(
        "warmup",
        owned_by(
            "warmup",
            engine_of(*ROOMY, deaths="cuda_oom@warmup?gpu_memory_utilization>0.95&max_num_seqs>256"),
        ),
        DEAD,
        "sampler_warmup_oom",
        below,
        (),
        "served",
        never=OTHER_MEMORY,
    )
    yield Scene(
        "graphs",
        owned_by("graphs", engine_of(*ROOMY, deaths="cuda_oom@graph_capture?gpu_memory_utilization>0.95")),
        DEAD,
        "cudagraph_capture_oom",
        below,
        (UTILIZATION,),
        "served",
        never=OTHER_MEMORY,
    )
    yield Scene(
        "serving",
        owned_by(
            "serving",
            engine_of(*ROOMY, deaths="cuda_oom_exit0?gpu_memory_utilization>0.95", env=SERVES_SHORTLY),
        ),
        # While it serves again, for as long as that lasts, nobody restarts it.
        waiting("CrashLoopBackOff"),
        "serving_gpu_oom",
        below,
        (UTILIZATION,),
        "held",
        never=OTHER_MEMORY,
    )
    lazily = "nccl_oom@warmup?gpu_memory_utilization>0.9&$NCCL_RUNTIME_CONNECT!=0"
    yield Scene(
        "nccl-late",
        owned_by("nccl-late", engine_of(*SMALL, UTILIZATION, "0.95", "-tp", "2", deaths=lazily, gpus=2)),
        DEAD,
        "nccl_gpu_oom",
        # Connections made at the first use take memory that vLLM hasn't measured.
        {UTILIZATION: between(0.5, 0.9), "NCCL_RUNTIME_CONNECT": lambda value: str(value) == "0"},
        (),
        "served",
        never=OTHER_MEMORY,
    )
    buffers = "nccl_oom@init?$NCCL_NVLS_ENABLE!=0&$NCCL_BUFFSIZE=unset&$NCCL_MAX_CTAS=unset"
    yield Scene(
        "nccl-early",
        owned_by("nccl-early", engine_of(*SMALL, "-tp", "2", deaths=buffers, gpus=2)),
        DEAD,
        "nccl_gpu_oom",
        # Before the KV cache is sized the utilization has nothing to do with it.
        dict.fromkeys(("NCCL_NVLS_ENABLE", "NCCL_BUFFSIZE", "NCCL_MAX_CTAS"), anything),
        (),
        "served",
        never=OTHER_MEMORY,
    )
    yield Scene(
        "length",
        owned_by(
            "length",
            _recorded(
                "Qwen/Qwen3-VL-30B-A3B-Instruct",
                *(UTILIZATION, "0.9", "--max-model-len", "262144"),
                gpu="A100 80GB",
            ),
        ),
        DEAD,
        "kv_max_len",
        # vLLM itself called 87840 the largest.
        {"--max-model-len": between(81920, 87840)},
        (),
        "served",
        never=OTHER_MEMORY,
    )
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    conditions = "&".join(f"${name}!=expandable_segments:True" for name in names)
    yield Scene(
        "fragmented",
        owned_by("fragmented", engine_of(deaths=f"fragmented?{conditions}")),
        DEAD,
        "gpu_fragmentation",
        dict.fromkeys(names, lambda value: value == "expandable_segments:True"),
        (),
        "held",
        never=OTHER_MEMORY,
    )


def send_sigterm(kubectl: Kubectl, pod: dict) -> None:
    """To the engine's first process, as somebody does from inside the container."""
    metadata = pod["metadata"]
    kubectl("exec", metadata["name"], "-n", metadata["namespace"], "-c", "vllm", "--", "kill", "1")


def scenes_without_a_cure() -> Iterator[Scene]:
    """Deaths that no setting cures: whatever is allowed, nothing is written, or what was tried is taken back."""
    wrong = (*GPU_SIZES, *OTHER_MEMORY)
    yield Scene(
        "no-blocks",
        owned_by(
            "no-blocks",
            _recorded(
                "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "--max-model-len", "16000", gpu="H100 80GB"
            ),
        ),
        DEAD,
        "kv_no_blocks",
        never=(f"{UTILIZATION} decrease", *OTHER_MEMORY),
    )
    yield Scene(
        "too-big",
        owned_by(
            "too-big", _recorded("deepseek-ai/DeepSeek-R1", "--max-model-len", "16000", gpu="H100 80GB")
        ),
        DEAD,
        "gpu_weights_oom",
        never=GPU_SIZES,
    )
    # On a slice the sizes would be right, and nothing says how large it is.
    yield Scene("mig", owned_by("mig", engine_of(deaths="mig")), DEAD, "mig_oom_masked", never=OTHER_MEMORY)
    yield Scene(
        "beside", owned_by("beside", engine_of(deaths="neighbour")), DEAD, "gpu_held_by_other", never=wrong
    )
    transport = engine_of(*SMALL, "-tp", "2", deaths="nccl_timeout", gpus=2)
    yield Scene(
        "transport",
        owned_by("transport", transport),
        DEAD,
        "nccl_not_memory",
        never=wrong,
    )
    yield Scene("crash", owned_by("crash", engine_of(deaths="segv")), DEAD, "native_crash", never=wrong)
    yield Scene(
        "unexplained",
        owned_by("unexplained", engine_of(deaths="exit:3")),
        ended(exitCode=3),
        "undetermined",
        never=wrong,
    )
    yield Scene("hang", owned_by("hang", engine_of(deaths="hang")), runs_for(5), None, never=wrong)
    # 137 without a word of the kernel or the kubelet: nobody knows who sent it.
    yield Scene(
        "unattributed",
        owned_by("unattributed", engine_of(deaths="exit:137")),
        ended(exitCode=137, reason="Error"),
        "sigkill_unattributed",
        never=wrong,
    )
    yield Scene(
        "stopped",
        owned_by("stopped", engine_of(deaths="sigterm", env={"STANDIN_TERM_CODE": "143"})),
        ready(),
        "sigterm_shutdown",
        never=wrong,
        act=send_sigterm,
        after=ended(exitCode=143),
    )
    # It takes fewer batched tokens, or fewer sequences, and by the budget of this model there is room: nothing says how many.
    yield Scene(
        "profile",
        owned_by("profile", engine_of(deaths="cuda_oom@profile")),
        DEAD,
        "profile_run_oom",
        never=(UTILIZATION, *OTHER_MEMORY),
    )
    # ENOSPC alone names no file system.
    yield Scene(
        "left",
        owned_by("left", engine_of(deaths="shm_fill:100", memory="512Mi")),
        DEAD,
        "not_memory_config",
        never=wrong,
    )
    # Memory that grew while it served: a larger limit alone only moves the kill to a later time.
    yield Scene(
        "growth",
        owned_by("growth", engine_of(deaths="host_oom_child_exit0:160", memory="96Mi")),
        ended(reason="OOMKilled", exitCode=0),
        "host_oom_growth",
        never=wrong,
    )
    # The server goes on without its engine, and nothing that can be read tells who killed that.
    yield Scene(
        "headless",
        owned_by("headless", engine_of(deaths="host_oom_child_lives:160", memory="96Mi")),
        now_unready,
        "undetermined",
        never=wrong,
    )
    # Two of three serve with the same template. They share the node's network: each takes a port that is free.
    sick = engine_of(
        memory="96Mi", env={"STANDIN_DEATHS_1": "host_oom:160"}, pod_name=True, readinessProbe=READY
    )
    sick["args"][-1] = "0"
    yield Scene(
        "one-of-three",
        owned_by("one-of-three", sick, "StatefulSet", replicas=3),
        KILLED,
        "host_oom_load",
        never=GPU_SIZES,
        says=("serve with the same template",),
    )


def scenes_without_permission() -> Iterator[Scene]:
    """Deaths with a cure that takes something which nobody has allowed: nothing is written, and what to give is named."""
    yield Scene(
        "occupied",
        owned_by(
            "occupied",
            _recorded("meta-llama/Llama-3.1-8B", gpu="80GB beside another engine", version="0.9.1"),
        ),
        DEAD,
        "gpu_free_below_util",
        never=("--max-model-len", "--max-num-batched-tokens", *OTHER_MEMORY),
        says=("vllm_oom_min_concurrency",),
    )
    curable = {scene.name: scene for scene in (*host_scenes(), *gpu_scenes())}
    for name, needed in (("host", "vllm_oom_max_memory"), ("length", "vllm_oom_min_model_len")):
        yield replace(curable[name], remedies={}, needs=(), verdict=None, says=(needed,))


def by_name(*makers: Callable[[], Iterator[Scene]]) -> dict[str, Scene]:
    return {scene.name: scene for make in makers for scene in make()}
