# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice on what is not memory: probes, signals, limits, configuration, drivers, faults."""

from __future__ import annotations

import math
import re

from ..quantities import show_bytes
from .advice_parts import (
    BATCH_TOKENS,
    EAGER,
    MEMORY_LIMIT,
    MODEL_LEN,
    NOT_LIMIT,
    NOT_SHM_SIZE,
    NOT_UTILIZATION,
    NOT_UTILIZATION_HOST,
    SEQUENCES,
    STEP_CPU,
    STEP_EXIT_1,
    STEP_EXIT_137,
    STEP_EXIT_143,
    STEP_GPU,
    STEP_NCCL,
    STEP_RESOURCES,
    SWAP,
    TENSOR_PARALLEL,
    UTILIZATION,
    Advice,
    action,
    allocator_variable,
    env_change,
    fixed,
    flag_change,
    groups_of,
    k8s_change,
    number_of,
)

# -- not memory -------------------------------------------------------------------------------------------------------


def probe_kill(facts, judged):
    probe = (facts.death.get("probe") or groups_of(judged).get("probe") or "startup") if judged else "startup"
    recommend = []
    if facts.env("VLLM_TRACE_FUNCTION") not in (None, "0"):
        recommend.append(
            env_change(
                "VLLM_TRACE_FUNCTION", "remove", "tracing every function makes the start many times slower"
            )
        )
    if probe == "liveness" and facts.serving_seen:
        recommend.insert(
            0,
            k8s_change(
                "livenessProbe",
                "increase",
                "a busy server answers late: give it more time and more tries before it is killed",
                "timeoutSeconds: 10, failureThreshold: 6",
            ),
        )
    else:
        recommend.insert(
            0,
            k8s_change(
                "startupProbe",
                "increase",
                "failureThreshold x periodSeconds must cover the longest start, compilation and download included",
                "failureThreshold: 60, periodSeconds: 10",
            ),
        )
    if probe == "liveness" and not facts.serving_seen:
        recommend.append(
            k8s_change(
                "livenessProbe",
                "set",
                "with a startupProbe it begins only when the start is over",
                "periodSeconds: 10, failureThreshold: 3",
            )
        )
    if not judged.match or judged.match.signature.id == "interrupted_start":
        recommend.append(
            action("find_sender", "the events name the probe, or somebody else who stopped the container")
        )
    return Advice(
        f"The kubelet's {probe} probe gave up on the container and stopped it. Nothing ran out of memory; the start took longer "
        "than the probe allows."
        if not facts.serving_seen
        else f"The kubelet's {probe} probe gave up on the container and stopped it. No memory ran out as far as the log shows; the "
        "server stopped answering in time.",
        STEP_EXIT_143,
        recommend,
        [
            NOT_LIMIT,
            NOT_UTILIZATION,
            k8s_change("livenessProbe", "remove", "the probe is right to exist; its time is too short"),
        ],
        []
        if judged.verdict.confidence == "certain"
        else ["events of the pod: 'failed startup probe, will be restarted'"],
    )


def eviction(facts, judged):
    resource = groups_of(judged).get("resource") or facts.death.get("resource") or ""
    if judged.verdict.memory == "node":
        return Advice(
            "The kubelet evicted the pod because the node was short of memory; pods above their request go first.",
            STEP_RESOURCES,
            [
                k8s_change(
                    "resources.requests.memory", "increase", "pods within their request are evicted last"
                ),
                action("move_pod", "another node may have room"),
                action("reserve_node_memory", "the node's own processes need their share"),
            ],
            [
                NOT_UTILIZATION_HOST,
                k8s_change(MEMORY_LIMIT, "remove", "it lets the pod take more of what is short"),
            ],
            ["kubectl describe node: MemoryPressure, and the requests of the other pods"],
        )
    recommend = [
        action("use_volume", "caches and model files belong on a volume, not on the node's disk"),
        k8s_change(
            "resources.requests.ephemeral-storage",
            "set",
            "the scheduler then places the pod where there is room",
        ),
    ]
    disk = next(
        (
            item["name"]
            for item in facts.container.get("env") or []
            if item.get("name", "").endswith("_DISK_SIZE") or "LOCAL_DISK" in item.get("name", "")
        ),
        None,
    ) or next((name for name in facts.settings if "LOCAL_DISK" in name), None)
    if disk:
        recommend.insert(
            0,
            env_change(
                disk, "decrease", "the cache is kept once per worker, so the node needs it that many times"
            ),
        )
    return Advice(
        f"The kubelet evicted the pod because of {resource or 'local storage'}; memory was not short.",
        STEP_RESOURCES,
        recommend,
        [NOT_LIMIT, NOT_UTILIZATION],
        [],
    )


def sigterm_shutdown(facts, judged):
    grace = facts.pod.get("grace_period")
    hook = (facts.container.get("lifecycle") or {}).get("pre_stop")
    parts = [
        "The container was told to stop from outside (SIGTERM). What the engine prints afterwards is its shutdown."
    ]
    if facts.death.get("sender"):
        parts.append(f"The sender was {facts.death['sender']}.")
    if grace is not None:
        parts.append(
            f"It has {grace:g} seconds to end, and {'a preStop hook that counts against them' if hook else 'no preStop hook'}."
        )
    cut = "running requests are cut off when the grace period ends before they do"
    return Advice(
        " ".join(parts),
        STEP_EXIT_143,
        [
            action(
                "find_sender",
                "rollouts, drains, preemption and people send it; the events of the last hour name it",
            ),
            k8s_change("terminationGracePeriodSeconds", "increase", f"only if requests were lost: {cut}"),
            *(
                []
                if hook
                else [
                    k8s_change(
                        "lifecycle.preStop",
                        "add",
                        "a few seconds of sleep let the endpoints forget the pod before it stops taking requests",
                        "sleep 15",
                    )
                ]
            ),
        ],
        [NOT_LIMIT, NOT_UTILIZATION],
        ["kubectl get events: Killing, Preempted, NodeShutdown; the ReplicaSet's history for a rollout"],
    )


def exit_code_masked(facts, judged):
    return Advice(
        "The exit code shows a consequence, not the cause: vLLM ends the remaining processes itself once one has failed"
        + (
            ", and a dead engine lets the server end with exit code 0."
            if facts.attempt.get("exit_code") == 0
            else "."
        ),
        STEP_EXIT_1,
        [
            action("read_earlier_log", "the first error stands further up, or in another rank or attempt"),
        ],
        [NOT_UTILIZATION]
        if facts.attempt.get("reason") == "OOMKilled"
        else [
            k8s_change(MEMORY_LIMIT, "increase", "a kill for memory would show SIGKILL (-9, 137)"),
            NOT_UTILIZATION,
        ],
        ["the whole log of this attempt from its first line", "the logs of the other ranks"],
    )


_HEAP_CORRUPTED = re.compile(r"double free|malloc\(\)|free\(\): invalid|corrupted (?:size|double-linked)")
_CUMEM_PROBE = re.compile(r"[cC]uMem(?:Host|Create)")


def native_crash(facts, judged):
    driver = action("upgrade_driver", "a crash in native code is a bug of driver, NCCL, framework or kernel")
    newer = action("upgrade", "the crash may be fixed in a later version")
    older = action("change_version", "go back if it began with the last change of the image")
    variable, value = facts.allocator_conf
    recommend = [newer, older, driver] if facts.mentions(_HEAP_CORRUPTED) else [newer, driver, older]
    if facts.mentions(_CUMEM_PROBE):
        recommend = [
            env_change(
                "NCCL_CUMEM_HOST_ENABLE", "set", "the crash is in NCCL's probe of that allocation", "0"
            ),
            env_change("NCCL_CUMEM_ENABLE", "set", "it keeps NCCL off that driver interface", "0"),
            driver,
            newer,
        ]
    if value:
        recommend.insert(0, env_change(variable, "remove", "allocator settings are known to break starts"))
    elif not facts.serving_seen and not facts.container.get("env") and recommend[0] is newer:
        why = "if the container sets it (its environment was not seen): allocator settings are known to break starts"
        recommend.insert(1, env_change(allocator_variable(facts), "remove", why))
    return Advice(
        "A process crashed in native code. No allocation failed as far as the log shows.",
        STEP_EXIT_1,
        recommend,
        [NOT_UTILIZATION, NOT_LIMIT, NOT_SHM_SIZE],
        [
            "the native stack (PYTHONFAULTHANDLER=1), and dmesg on the node for Xid lines at that time",
            *(
                []
                if value
                else ["is PYTORCH_CUDA_ALLOC_CONF set in the container? Allocator settings break some starts"]
            ),
        ],
    )


pids_limit = fixed(
    "A thread or process could not be created (EAGAIN): the pids limit of the pod or user is reached. That is not memory.",
    STEP_EXIT_1,
    [
        action("raise_pids_limit", "the kubelet's podPidsLimit or ulimit -u is what is reached"),
        env_change("OMP_NUM_THREADS", "set", "thread pools are sized by the host's cores", "1"),
        flag_change(
            "--distributed-executor-backend",
            "set",
            "Ray starts many threads; one node does not need it",
            "mp",
        ),
    ],
    [
        k8s_change(MEMORY_LIMIT, "increase", "EAGAIN is not ENOMEM"),
        NOT_UTILIZATION,
        flag_change(SWAP, "decrease", "no memory ran out"),
    ],
)
memlock_limit = fixed(
    "RDMA needs locked memory, and the container's memlock limit is too small for it: the kernel answers 'Cannot allocate memory' "
    "with plenty of memory free.",
    STEP_NCCL,
    [
        action(
            "raise_memlock",
            "LimitMEMLOCK=infinity on the container runtime, or the capability IPC_LOCK in the container",
        ),
        action(
            "read_kernel_log", "if it persists with an unlimited memlock, the kernel log names the real limit"
        ),
    ],
    [
        k8s_change(MEMORY_LIMIT, "increase", "memory is free; the limit is on locking it"),
        NOT_UTILIZATION,
        env_change("NCCL_IB_DISABLE", "set", "it only hides the loss of RDMA"),
    ],
    ["ulimit -l inside the container"],
)


# What a refused configuration says -> the changes that answer it, most conservative first.
_CONFIG_CURES = (
    (
        r"max_num_batched_tokens \(\d+\) is smaller than max_model_len \((?P<value>\d+)\)",
        (
            ("--enable-chunked-prefill", "add", None, "long prompts are then computed in pieces"),
            (BATCH_TOKENS, "increase", "value", "without chunked prefill a whole sequence must fit one step"),
            (MODEL_LEN, "decrease", None, "or no sequence may be longer than one step"),
        ),
    ),
    (
        r"must be greater than or equal to max_num_seqs \((?P<value>\d+)\)",
        (
            (BATCH_TOKENS, "increase", "value", "every sequence needs at least one token of a step"),
            (SEQUENCES, "decrease", None, "every sequence needs at least one token of a step"),
        ),
    ),
    (
        r"max_num_active_seqs \(\d+\) cannot be greater than max_num_seqs \((?P<value>\d+)\)",
        (("--max-num-active-seqs", "decrease", "value", "it can't exceed max_num_seqs"),),
    ),
    (
        r"greater than the derived max_model_len \([^\d)]*(?P<value>\d+)",
        ((MODEL_LEN, "decrease", "value", "the model's own configuration ends there"),),
    ),
    (
        r"LoRA rank (?P<value>\d+) is greater than max_lora_rank",
        (("--max-lora-rank", "increase", "value", "the slots must be as large as the largest adapter"),),
    ),
    (
        r"max_cpu_loras \(\d+\) must be >= max_loras \((?P<value>\d+)\)",
        (("--max-cpu-loras", "increase", "value", "the host must hold at least what the GPU holds"),),
    ),
    (
        r"max_tokens_per_mm_item \((?P<value>\d+)\) is larger than max_num_batched_tokens",
        ((BATCH_TOKENS, "increase", "value", "one item must fit one step"),),
    ),
    (
        r"unrecognized arguments: (?P<flag>--[\w-]+)",
        (("flag", "remove", None, "this version does not know the flag"),),
    ),
    (
        r"invalid literal for int\(\) with base 10: 'GPU-",
        (("CUDA_VISIBLE_DEVICES", "set", "0", "this version expects a number there, not an identifier"),),
    ),
    (
        r"must be divisible by tensor parallel size",
        ((TENSOR_PARALLEL, "set", None, "it must divide the number of attention heads"),),
    ),
    (
        r"Bfloat16 is only supported on GPUs",
        (("--dtype", "set", "half", "this GPU has no bfloat16"),),
    ),
    (
        r"GPU memory utilization must be less than 1|gpu_memory_utilization[\s\S]{0,80}(?:less than or equal to 1|greater than 0)",
        ((UTILIZATION, "set", 0.9, "it is a fraction of the card"),),
    ),
)


def _config_cures(text):
    """The changes that a refused configuration's own message asks for."""
    for pattern, cures in _CONFIG_CURES:
        found = re.search(pattern, text)
        if found:
            groups: dict = found.groupdict()
            return [
                (flag_change if name.startswith("--") or name == "flag" else env_change)(
                    groups.get(name, name), direction, why, groups.get(value, value), proof="log"
                )
                for name, direction, value, why in cures
            ]
    return []


_NO_DEVICE = re.compile(
    r"Failed to infer device type|No CUDA GPUs are available|No devices were found|no CUDA-capable device|libcuda\.so"
)


def not_memory_config(facts, judged):
    signature = judged.match.signature.id if judged.match else None
    text = judged.match.text if judged.match else ""
    base_rejected = [NOT_UTILIZATION, NOT_LIMIT]
    if signature == "duplicate_gpu":
        return Advice(
            "Two ranks were given the same GPU.",
            STEP_NCCL,
            [
                action("fix_gpu_visibility", "each rank needs a device of its own"),
                flag_change(TENSOR_PARALLEL, "decrease", "one device a rank", facts.gpus),
            ],
            base_rejected,
            ["nvidia-smi -L in the container: how many devices does it see?"],
        )
    if signature in ("device_ordinal",) or "larger than the number of available GPUs" in text:
        gpus = facts.gpus
        have = f" The container has {gpus}." if gpus else ""
        return Advice(
            f"The engine asks for more devices than the container has: --tensor-parallel-size is {facts.tensor_parallel}.{have}",
            STEP_EXIT_1,
            [
                flag_change(
                    TENSOR_PARALLEL, "decrease", "one device a rank", gpus, proof="log" if gpus else "rule"
                ),
                k8s_change(
                    "resources.limits.gpu", "increase", "if that many ranks are wanted", facts.world_size
                ),
            ],
            [*base_rejected, action("upgrade_driver", "the device count does not match; the driver is fine")],
            [],
        )
    if signature == "no_space":
        return Advice(
            "A file system is full. The message does not say which; memory is not short.",
            STEP_EXIT_1,
            [
                action("use_volume", "model downloads and compile caches belong on a volume"),
            ],
            base_rejected,
            ["df -h in the container: which file system is full?"],
        )
    if signature == "platform_not_detected" and _NO_DEVICE.search(text):
        return Advice(
            "The engine sees no accelerator: the container was given none, or the driver is not visible in it.",
            STEP_EXIT_1,
            [
                k8s_change(
                    "resources.limits.gpu",
                    "set",
                    "the container must ask for nvidia.com/gpu (or its like)",
                    facts.world_size,
                ),
                action(
                    "match_driver", "the image's libraries and the node's driver and runtime class must fit"
                ),
            ],
            base_rejected,
            ["nvidia-smi -L in the container"],
        )
    return Advice(
        "vLLM refused its configuration. Nothing ran out; the message names the setting.",
        STEP_EXIT_1,
        [
            *_config_cures(text),
            action("fix_spec", "the message names the setting and what it must be", proof="log"),
            action("rollback_revision", "if the setting came with the last change"),
        ],
        base_rejected,
        [],
    )


_FABRIC_NOT_READY = re.compile(r"Error 802|system not yet initialized")


def not_memory_driver(facts, judged):
    recommend = [
        action("match_driver", "the image's CUDA version must be one that the driver supports"),
        env_change(
            "LD_LIBRARY_PATH", "remove", "a CUDA compat folder in it shadows the driver's own libraries"
        ),
        action("upgrade_driver", "or bring the node's driver to the image's version"),
    ]
    explanation = "The CUDA libraries of the image and the node's driver do not match; the GPUs are empty."
    if judged.match and _FABRIC_NOT_READY.search(judged.match.text):
        explanation = "The GPUs of an NVSwitch machine wait for the fabric manager, which is not running or does not match the driver."
        recommend = [
            action("repair_fabric_manager", "it must run in the driver's own version before CUDA starts"),
            *recommend[:1],
        ]
    return Advice(explanation, STEP_EXIT_1, recommend, [NOT_UTILIZATION, NOT_LIMIT], [])


def not_memory_auth(facts, judged):
    rejected = [NOT_UTILIZATION, NOT_LIMIT, action("larger_gpu", "nothing was loaded")]
    if judged.match and "PermissionError" in judged.match.text:
        return Advice(
            "A file or folder could not be opened or written: the cache or the model's folder belongs to another user. Nothing was "
            "loaded.",
            STEP_EXIT_1,
            [
                env_change(
                    "HF_HOME", "set", "a folder that the container's user may write", "/tmp/huggingface"
                ),
                action("use_volume", "a volume with the right fsGroup keeps downloads over restarts"),
                action("fix_spec", "or run the container as the user that owns the folder"),
            ],
            rejected,
            [],
        )
    return Advice(
        "The model could not be downloaded or opened: the token is missing or not authorised, or the path is wrong. Nothing was "
        "loaded.",
        STEP_EXIT_1,
        [
            env_change("HF_TOKEN", "set", "from a Secret; the account must have access to the model"),
            action("accept_licence", "gated models need it, or mount the weights and set HF_HUB_OFFLINE=1"),
        ],
        rejected,
        [],
    )


not_memory_cuda_fault = fixed(
    "A GPU kernel touched an invalid address or failed otherwise: 'memory access' is not 'out of memory'.",
    STEP_EXIT_1,
    [
        action("upgrade", "it is a bug of a kernel; later versions may have the fix"),
        flag_change(EAGER, "add", "to see whether it belongs to the captured graphs"),
        env_change("CUDA_LAUNCH_BLOCKING", "set", "it names the kernel", "1"),
        flag_change("--no-enable-prefix-caching", "add", "to narrow it down"),
    ],
    [NOT_UTILIZATION, NOT_LIMIT],
    ["Xid lines in the node's kernel log: the same GPU again and again points at hardware"],
)


def not_memory_hang(facts, judged):
    rejected = [
        k8s_change("volumes.shm.sizeLimit", "increase", "no space is missing"),
        NOT_UTILIZATION,
        NOT_LIMIT,
    ]
    settle = ["the logs of all ranks by time: which one fell silent first?", "py-spy dump of the workers"]
    if facts.said("engine_silent") or facts.attempt.get("exit_code"):
        return Advice(
            "A worker stopped answering and the engine gave up on it. The 'blocks' in the message are slots of a small ring buffer, "
            "not space.",
            STEP_NCCL,
            [
                action(
                    "read_earlier_log",
                    "a rank that died earlier, or hangs in a collective, makes the others wait",
                ),
                env_change("NCCL_DEBUG", "set", "it shows which rank waits for which", "INFO"),
                env_change(
                    "NCCL_P2P_DISABLE", "set", "peer access between the GPUs is what hangs most often", "1"
                ),
                env_change(
                    "VLLM_ENGINE_READY_TIMEOUT_S", "increase", "only if the start was still making progress"
                )
                if not facts.serving_seen
                else action("upgrade", "hangs while serving are bugs of the version or its kernels"),
            ],
            rejected,
            settle,
        )
    waiting = [
        env_change(
            "VLLM_RINGBUFFER_WARNING_INTERVAL",
            "set",
            "a compilation of over a minute prints it once a minute",
            "120",
        ),
        k8s_change(
            "startupProbe", "increase", "the start must be allowed to take as long as compilation needs"
        ),
    ]
    search = action("read_earlier_log", "if it goes on for minutes: which rank fell silent first, and why?")
    waited = facts.first("shm_broadcast_wait")
    if waited and facts.phase_at(waited[0]["line"]) == "serving":
        return Advice(
            "The engine was serving and a worker stopped answering. The 'blocks' in the message are slots of a small ring buffer, "
            "not space.",
            STEP_NCCL,
            [
                search,
                action("restart_pod", "a hung engine does not come back by itself"),
                action("upgrade", "hangs while serving are bugs of the version or its kernels"),
            ],
            rejected,
            settle,
        )
    return Advice(
        "Processes wait for each other: the 'blocks' in the message are slots of a small ring buffer, not space. A long compilation, "
        "or a peer that hangs or died, is behind it.",
        STEP_EXIT_1,
        # Once the server came up, it was a compilation; else a silent rank is the first thing to look for.
        [*waiting, search] if facts.serving_seen else [search, *waiting],
        [*rejected, action("restart_pod", "compilation would begin again")],
        [*settle, "does it end by itself?"],
    )


kernel_shared_memory = fixed(
    "A kernel wants more on-chip shared memory per block than this GPU has. That is neither GPU memory nor /dev/shm.",
    STEP_EXIT_1,
    [
        action("upgrade", "later versions bring a kernel configuration for this GPU"),
        action("change_kernel_backend", "another attention or quantization backend uses another kernel"),
    ],
    [
        k8s_change("volumes.shm.sizeLimit", "increase", "it is a different 'shared memory'"),
        flag_change(UTILIZATION, "decrease", "the limit is bytes per thread block"),
        flag_change("--block-size", "decrease", "the KV block is not the kernel's block"),
    ],
)


def kernel_workspace_overflow(facts, judged):
    groups = groups_of(judged)
    rejected = [
        flag_change(UTILIZATION, "decrease", "the pool has a fixed size; the GPU has memory"),
        action("larger_gpu", "the pool has a fixed size; the GPU has memory"),
    ]
    if judged.match and judged.match.signature.id == "workspace_locked":
        return Advice(
            "A workspace that is fixed after warm-up turned out too small for a shape that warm-up had not seen. More memory does "
            "not help.",
            STEP_EXIT_1,
            [
                action("upgrade", "it is a gap in the warm-up, fixed by versions"),
                action("change_kernel_backend", "another backend does not use that workspace"),
                flag_change(EAGER, "add", "to see whether it belongs to the captured graphs"),
            ],
            rejected,
            [],
        )
    size = number_of(groups, "size")
    available = number_of(groups, "available")
    need = ""
    value = None
    if size and available:
        need = f" It has {show_bytes(int(available))} and needed {show_bytes(int(size))} more at once."
        value = 1 << math.ceil(math.log2(size + available))
    return Advice(
        f"The attention library's fixed workspace is too small for this model's shape.{need} The GPU itself has memory.",
        STEP_EXIT_1,
        [
            env_change(
                "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
                "set",
                "the size of the workspace in bytes, in versions that have it (0.11.1 and later)",
                value,
                proof="log" if value else "rule",
            ),
            flag_change(SEQUENCES, "decrease", "fewer sequences need less of it"),
            action("change_kernel_backend", "another backend has no such pool"),
            action("upgrade", "later versions size the workspace themselves"),
        ],
        rejected,
        [],
    )


allocator_conf_side_effect = fixed(
    "The allocator setting in the environment breaks the start; no allocation failed.",
    STEP_EXIT_1,
    [
        env_change("PYTORCH_CUDA_ALLOC_CONF", "set", "or unset it", "expandable_segments:False"),
        action("upgrade", "later versions refuse or support the combination"),
    ],
    [
        env_change(
            "PYTORCH_CUDA_ALLOC_CONF", "set", "it is what breaks the start", "expandable_segments:True"
        ),
        NOT_UTILIZATION,
        action("larger_gpu", "nothing ran out"),
    ],
)
mig_oom_masked = fixed(
    "The slice was full. PyTorch asks NVML while it reports that, which is forbidden on a MIG slice, so an assertion is printed in "
    "place of 'out of memory'. vLLM may also have been told the whole card's memory.",
    STEP_GPU,
    [
        action("size_for_slice", "the usable memory is that of the slice, somewhat less than its name says"),
        k8s_change("resources.limits.gpu", "set", "a larger nvidia.com/mig-* profile, or a whole GPU"),
        flag_change(UTILIZATION, "decrease", "the budget was computed from the whole card"),
        flag_change(MODEL_LEN, "decrease", "a shorter sequence needs less KV cache"),
        env_change(
            "PYTORCH_CUDA_ALLOC_CONF",
            "set",
            "it removes one NVML path, so that the real message appears; no cure by itself",
            "expandable_segments:False",
        ),
    ],
    [
        env_change(
            "PYTORCH_CUDA_ALLOC_CONF", "set", "it is a path that asks NVML", "expandable_segments:True"
        ),
        action("no_change", "'please report a bug' in the message is misleading: the allocation did not fit"),
    ],
)
cpu_throttling = fixed(
    "The CPU limit stops all threads of the container for the rest of each period once it is used up; a stalled tokenizer or launch "
    "thread starves the GPU.",
    STEP_CPU,
    [
        k8s_change("resources.limits.cpu", "remove", "requests never throttle; keep the request"),
        env_change("OMP_NUM_THREADS", "set", "thread pools are sized by the host's cores, not by the limit"),
        action("limit_requests", "requests with many distinct grammars compile them on the CPU"),
    ],
    [
        action("larger_gpu", "the GPU waits for the CPU"),
        flag_change(SEQUENCES, "decrease", "the GPU is not the bottleneck"),
    ],
    ["cpu.stat of the container over a minute: nr_throttled against nr_periods"],
)
slot_limit = fixed(
    "A number of slots or the size of a fixed pool was reached, not the memory behind it.",
    STEP_EXIT_1,
    [
        action("fix_spec", "raise the number that the message names", proof="log"),
        action("limit_requests", "or send fewer such requests at once"),
    ],
    [NOT_UTILIZATION, NOT_LIMIT],
)


def undetermined(facts, judged):
    recommend = [
        action(
            "read_earlier_log", "the first error may stand further up, or in another process, rank or attempt"
        ),
        action("read_last_state", "OOMKilled, an exit code or a signal there says which way to look"),
        action("rollback_revision", "if it began with the last change of image, arguments or settings"),
    ]
    if facts.said("nccl_generic", "nccl_peer_gone"):
        recommend.insert(
            0,
            action(
                "collect_nccl_debug", "NCCL then names the call that failed, and how much memory it wanted"
            ),
        )
    return Advice(
        "The evidence does not settle what happened"
        + (": no log of the failing run could be read." if not facts.log.get("readable") else "."),
        STEP_EXIT_1,
        recommend,
        [],
        [
            "the whole log of the first failing attempt, from the vLLM banner on",
            "the container's last state: reason and exit code (kubectl describe pod)",
            "the node's kernel log around the time of death",
        ],
    )


status_unknown = fixed(
    "The node lost track of the container, and the status was filled in afterwards: its exit code means nothing.",
    STEP_EXIT_137,
    [
        action("read_kernel_log", "what happened on the node at that time: restart, memory, runtime"),
        action("find_sender", "events of the node name a reboot or a shutdown"),
    ],
    [k8s_change(MEMORY_LIMIT, "increase", "the 137 is synthetic: nothing shows a kill for memory")],
    ["kubectl describe node: Rebooted, NotReady, kubelet restarts"],
)
start_error = fixed(
    "The container never started: entrypoint, device, mount or image. vLLM did not run.",
    STEP_EXIT_1,
    [action("fix_spec", "the status message names what failed", proof="log")],
    [NOT_LIMIT, NOT_UTILIZATION],
)
