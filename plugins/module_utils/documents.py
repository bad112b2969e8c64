# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents that stages exchange: their shapes, their closed vocabularies, their validation.

Every stage takes and returns plain JSON data. The builders below spell out every field, so that a
reader finds here what a document holds and a consumer never meets a missing key: what is not known
is ``None`` (or an empty list) and is named in ``unreadable``.

Units: bytes, seconds (float), RFC 3339 times, fractions 0-1.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

EVIDENCE_SCHEMA = "vllm_runbook.oom/evidence/v1"
MODEL_SCHEMA = "vllm_runbook.oom/model/v1"
BUDGET_SCHEMA = "vllm_runbook.oom/budget/v1"
DIAGNOSIS_SCHEMA = "vllm_runbook.oom/diagnosis/v1"
PLAN_SCHEMA = "vllm_runbook.oom/plan/v1"
OUTCOME_SCHEMA = "vllm_runbook.oom/outcome/v1"

MEMORIES = ("gpu", "nccl_gpu", "host", "shm", "node", "unified", "none", "unknown")
PHASES = (
    "load",
    "profile",
    "kv_init",
    "graph_capture",
    "warmup",
    "serving",
    "shutdown",
    "unknown",
)
ROLES = ("trigger", "cascade", "contributing", "risk")
CONFIDENCES = ("certain", "likely", "possible")
TARGETS = ("flag", "env", "k8s", "action")
DIRECTIONS = ("increase", "decrease", "set", "add", "remove", "keep")
# How a node is, worst first.
NODE_STATES = ("bad", "warning", "unknown", "fine")
PROOFS = ("budget", "arithmetic", "log", "rule", "none")
# What becomes of a planned change: it may be made; it needs a permission or something else first; only a person can do it.
PLAN_STATES = ("planned", "refused", "advised")
DELIVERIES = ("live", "patch", "by_hand")
# What became of a change, best last but two: its rollout finished and the engine is healthy; it answered a request; it went on
# serving for the time that its cause needs; it failed; it was taken back.
VERDICTS = ("starts", "served", "held", "failed", "undone")

# Annotations of a changed object's metadata (never its pod template's, which would start pods anew).
# The stack of undo records, and who is at work on the object now.
UNDO_ANNOTATION = "vllm-runbook.oom/undo"
PENDING_ANNOTATION = "vllm-runbook.oom/pending"

# What a line of ``numbers`` can measure: name -> unit (vLLM log lines, shared facts "vllm-memory" section 4).
NUMBERS = {
    "weights": "bytes",
    "activation_peak": "bytes",
    "non_torch": "bytes",
    "graph_estimate": "bytes",
    "graph_actual": "bytes",
    "kv_available": "bytes",
    "kv_needed": "bytes",
    "kv_tokens": "tokens",
    "kv_blocks": "count",
    "max_concurrency": "count",
    "estimated_max_len": "tokens",
    "gpu_total": "bytes",
    "gpu_free": "bytes",
    "gpu_requested": "bytes",
    "gpu_free_after": "bytes",
    "gpu_used": "bytes",
    "gpu_used_after": "bytes",
    "gpu_consumed": "bytes",
    "weights_peak": "bytes",
    "weights_external": "bytes",
    "cpu_offloaded": "bytes",
    "checkpoint": "bytes",
    "non_kv": "bytes",
    "graph_encoder": "bytes",
    "mm_reserved": "bytes",
    "kv_reserved": "bytes",
    "kv_fits_requested": "bytes",
    "kv_fits_gpu": "bytes",
    "kv_blocks_profiled": "count",
    "kv_offload": "bytes",
    "cpu_blocks": "count",
    "max_len": "tokens",
    "utilization": "fraction",
    "utilization_without_graphs": "fraction",
    "utilization_with_graphs": "fraction",
    "kv_usage": "fraction",
    "running": "count",
    "waiting": "count",
    "preemptions": "count",
    "host_total": "bytes",
    "host_available": "bytes",
    "host_requested": "bytes",
    "cgroup_limit": "bytes",
    "cgroup_usage": "bytes",
    "swap_space": "bytes",
    "mmap_file": "bytes",
    "shm_needed": "bytes",
    "shm_free": "bytes",
}

# Causes: identifier -> what it means, in words for a person on call.
CAUSES = {
    "gpu_weights_oom": "the GPU was full while the model was built or its weights were loaded",
    "kv_no_blocks": "weights and profile peak leave no GPU memory for a single KV cache block",
    "kv_max_len": "the KV cache is smaller than one sequence of max_model_len",
    "kv_budget_misestimate": "the start-up arithmetic gave the KV cache the wrong size",
    "gpu_free_below_util": "less GPU memory was free at start than gpu_memory_utilization asks for",
    "gpu_held_by_other": "other processes hold the GPU memory",
    "profiling_memory_changed": "GPU memory was released by somebody else while vLLM profiled it",
    "cudagraph_capture_oom": "GPU memory ran out while CUDA graphs were captured",
    "sampler_warmup_oom": "GPU memory ran out while the sampler was warmed up",
    "profile_run_oom": "GPU memory ran out in the profile run (batch tokens, images, encoder)",
    "serving_gpu_oom": "GPU memory ran out while serving, and the engine died",
    "serving_gpu_growth": "GPU memory grew request by request above the budget",
    "gpu_fragmentation": "GPU memory was reserved but in pieces too small for the request",
    "allocator_conf_side_effect": "an allocator setting breaks the start; nothing ran out",
    "nccl_gpu_oom": "NCCL could not get GPU memory for its communication buffers",
    "sleep_wakeup_oom": "a sleeping engine could not map its GPU memory again",
    "mig_oom_masked": "a MIG slice was full, behind an NVML assertion",
    "mig_vgpu_config": "MIG or vGPU identifiers or defaults are wrong; nothing ran out",
    "unified_memory_accounting": "memory shared by GPU and host was misread or ran out",
    "accelerator_hbm_oom": "the accelerator's HBM is exhausted",
    "false_oom_driver": "the driver reports out of memory although memory is free",
    "cuda_library_alloc": "a CUDA library failed in a way that a full GPU also produces",
    "kernel_workspace_overflow": "a fixed workspace of an attention library is too small",
    "kernel_shared_memory": "a kernel wants more on-chip shared memory than the GPU has",
    "shm_exhausted": "/dev/shm is full or too small",
    "host_oom_load": "host memory ran out while the model was loaded",
    "host_oom_compile": "host memory ran out while kernels were compiled",
    "host_oom_growth": "host memory grew with requests or time until the limit",
    "host_oom_offload": "swap space or offload pools are larger than the host memory allows",
    "host_oom_cpu_backend": "on the CPU backend weights and KV cache do not fit the host memory",
    "host_pin_limit": "pinning host memory failed",
    "host_page_cache_benign": "page cache looks like memory use; nothing is short",
    "kv_swap_pool_exhausted": "vLLM's fixed CPU swap pool is full although the host has memory",
    "cpu_backend_kv": "VLLM_CPU_KVCACHE_SPACE is too small",
    "node_oom": "the node ran out of memory; the victim need not be the culprit",
    "eviction": "the kubelet evicted the pod",
    "probe_kill": "a startup or liveness probe killed the container",
    "sigterm_shutdown": "the container was told to stop from outside (SIGTERM)",
    "exit_code_masked": "the exit code hides or misstates what happened",
    "device_oom_hidden_by_probe": "the exit code shows a termination, the first failure is a GPU out of memory",
    "sigkill_unattributed": "killed with SIGKILL, and nothing shows by whom",
    "native_crash": "native code crashed (SIGSEGV, SIGABRT, SIGBUS)",
    "pids_limit": "no more threads or processes may be created (pids limit)",
    "memlock_limit": "RDMA memory could not be locked (memlock limit)",
    "ray_memory_monitor": "Ray's own memory monitor killed the worker",
    "nccl_not_memory": "NCCL or Gloo failed for a reason that is not memory",
    "not_memory_config": "a configuration error; nothing ran out",
    "not_memory_driver": "driver, CUDA and image do not match",
    "not_memory_auth": "the model could not be downloaded or opened",
    "not_memory_cuda_fault": "a GPU kernel fault (illegal access); nothing ran out",
    "not_memory_hang": "processes wait for each other; nothing ran out",
    "cpu_throttling": "the CPU limit throttles the container",
    "undetermined": "the evidence does not settle what happened",
    "memory_limit_missing": "the container has no memory limit",
    "memory_limit_low": "the memory limit is below what a model of this size needs",
    "memory_ratio": "the memory request is far from the limit",
    "cpu_limit_set": "a CPU limit is set",
    "shm_small": "/dev/shm is too small for the parallel size",
    "shm_counts_against_limit": "memory-backed volumes count against the memory limit",
    "kv_bytes_too_large": "a fixed KV cache size does not fit the GPU",
    "slot_limit": "a number of slots ran out, not memory",
    "node_pressure": "the node reports pressure",
    "gpu_hardware_fault": "the GPU reports a hardware fault",
    "admission_rejected": "a quota or policy refuses the pod",
    "unschedulable": "no node has room for the pod",
    "start_error": "the container never started",
    "status_unknown": "the node lost the container; its exit code is synthetic",
    "headroom_unused": "the GPU has room that the settings do not use",
}

# Actions: what a CHANGE with target ``action`` can ask a person to do.
ACTIONS = {
    "no_change": "leave the memory settings as they are",
    "free_gpu": "find out with nvidia-smi who holds the GPU memory and stop or move it",
    "one_engine_per_gpu": "run one engine per GPU",
    "wait_for_gpu": "wait until the previous holder has released the GPU before starting",
    "restart_pod": "start the pod again",
    "recreate_pod": "delete the pod so that its volumes are made anew",
    "clear_shm": "remove stale files from /dev/shm before the engine starts",
    "reconfigure_cache_daemon": "make the cache daemon release dead workers' GPU memory",
    "smaller_model": "use a smaller model",
    "smaller_quantization": "use a smaller quantization of the model",
    "larger_gpu": "use a GPU or slice with more memory",
    "size_for_slice": "size the model and the KV cache for the slice's usable memory, not the card's",
    "upgrade": "upgrade to a version in which this is fixed",
    "change_version": "go back to the version or image before the regression",
    "rollback_revision": "go back to the revision that worked",
    "match_driver": "use an image that matches the node's driver, or upgrade the driver",
    "upgrade_driver": "upgrade the GPU driver or NCCL",
    "load_driver": "load the GPU driver's kernel module on the node",
    "reload_driver": "reboot the node, or unload and load the GPU driver's kernel module",
    "install_driver": "repair or install the GPU driver on the node",
    "repair_fabric_manager": "restart or repair the fabric manager on the node",
    "repair_gpu_peering": "disable IOMMU/ACS or use GPUs under one PCIe switch",
    "reset_gpu": "drain the node and reset or replace the GPU",
    "fix_gpu_visibility": "expose the right GPU index or slice to the container",
    "check_memory_view": "check how much memory the driver really exposes",
    "read_gpu_memory": "read the free GPU memory at that moment",
    "read_kernel_log": "read the node's kernel log",
    "read_last_state": "look at the container's last state",
    "read_earlier_log": "look for the first error further up, in earlier attempts and in other ranks",
    "collect_nccl_debug": "run again with NCCL_DEBUG=INFO",
    "compare_process_memory": "compare the memory of the processes to place the growth",
    "judge_by_anonymous_memory": "judge by anonymous memory or working set, not by total usage",
    "restart_before_limit": "restart the pod before it reaches its limit",
    "convert_checkpoint": "convert the checkpoint to safetensors or smaller shards",
    "prebuild_kernels": "ship prebuilt kernels or mount a persistent kernel cache",
    "stagger_starts": "start engines one after the other",
    "limit_requests": "send fewer or smaller requests of the kind that needs the memory",
    "change_kernel_backend": "use another attention or quantization backend",
    "raise_pids_limit": "raise the pids limit of the pod or the user",
    "raise_memlock": "raise the memlock limit of the container runtime or add IPC_LOCK",
    "use_linux": "run on Linux instead of WSL",
    "find_sender": "find out who sent the signal",
    "accept_licence": "accept the model's licence with the token's account, or mount the weights",
    "reserve_node_memory": "reserve memory for the system on the node",
    "drop_page_cache": "drop the page cache of the node before the start (unified memory counts it as used)",
    "use_volume": "put large files on a volume instead of the node's disk",
    "move_pod": "run the pod on another node",
    "fix_spec": "correct the named setting",
}


class DocumentError(ValueError):
    """A document that is not what its consumer needs; the message says what, where and what to do."""


def _known(what, word, words):
    if word not in words:
        raise DocumentError(f"unknown {what}: {word!r} is none of {', '.join(words)}")


def line(number, text, time=None, process=None, level=None, origin=None, count=1, **more):
    """A kept log line. ``text`` is the message without its prefixes, redacted.

    number: 1-based line in the log; time: RFC 3339 or the log's own stamp; process: e.g. ``EngineCore_DP0``;
    level: DEBUG, INFO, WARNING, ERROR, CRITICAL or None; origin: source position such as ``core.py:708``;
    count: how many lines of the same shape this one stands for.
    """
    return dict(
        {
            "line": number,
            "time": time,
            "process": process,
            "level": level,
            "origin": origin,
            "text": text,
            "count": count,
        },
        **more,
    )


def log(readable=True, complete=None, reason=None):
    """The excerpt of one attempt's log, empty.

    errors: ``line`` + ``frames`` (list of ``{file, line, function}``, outermost first) + ``context`` (lines before it
    that no other list holds);
    first_error: ``{line, time, process, text, context}`` of the earliest of ``errors``, which leaves its context to it,
    or None; notes: lines that matter and are no errors, some with ``bytes``, a sum over the lines that
    the note stands for;
    markers: ``line`` + ``phase`` (the start-up phase that the line begins or ends, see vllm-memory section 2);
    numbers: ``line`` + ``name`` (see NUMBERS), ``value``, ``unit``, ``rank``;
    arguments: version and argument lines; tail: the last lines, without those that another list or an error's frames
    hold. A line in several lists has its whole text in one of them; ``log_lines`` brings all together.
    """
    return {
        "readable": readable,
        "reason": reason,
        "complete": complete,
        "lines": 0,
        "bytes": 0,
        "first_error": None,
        "errors": [],
        "notes": [],
        "markers": [],
        "numbers": [],
        "arguments": [],
        "tail": [],
        "cut": [],
    }


# Texts of one line that are alike so far are one text, cut to different lengths.
_SAME = 40


def log_lines(excerpt):
    """Every kept line of a log excerpt once, in log order, as ``line`` dicts (errors keep their frames).

    Merges all lists, each of which may hold lines that no other holds, and takes the longest text of a line.
    """
    first = excerpt.get("first_error")
    kept: dict[int, dict] = {first["line"]: line(first["line"], "")} if first else {}
    for field in ("tail", "arguments", "numbers", "markers", "notes", "errors"):
        for item in excerpt.get(field) or []:
            kept[item["line"]] = _merged(kept.get(item["line"]) or {}, item)
    if first:
        kept[first["line"]] = _merged(kept[first["line"]], first)
    return [kept[number] for number in sorted(kept)]


def _merged(earlier, later):
    merged = dict(earlier, **later)
    text = earlier.get("text") or ""
    if len(text) > len(later["text"]) and text[:_SAME] == later["text"][:_SAME]:
        merged["text"] = text
    return merged


def attempt(index=0, state=None, **more):
    """One run of a container. state: running, waiting or terminated. The last of a container's attempts is the current one."""
    return dict(
        {
            "index": index,
            "state": state,
            "reason": None,
            "message": None,
            "exit_code": None,
            "signal": None,
            "started_at": None,
            "finished_at": None,
            "container_id": None,
            "log": log(readable=False, reason="not read"),
            "cgroup": None,
        },
        **more,
    )


def cgroup(version=None):
    """Memory and CPU counters of a container's cgroup (bytes, counts, seconds)."""
    return {
        "version": version,
        "memory": dict.fromkeys(("limit", "usage", "peak", "oom_kills", "shmem", "file", "anon")),
        "cpu": dict.fromkeys(("limit", "periods", "throttled", "throttled_seconds")),
        "cpuset": None,
    }


def container(name, role="main", **more):
    """One container of a pod. role: main, init or sidecar.

    engine: None for a container that is no vLLM engine. resources: Kubernetes quantities as given.
    env: list of ``{name, value, from}`` with secrets redacted. settings: what the engine was told, see engine.settings.
    probes: ``{startup, liveness, readiness}``, each None or
    ``{failure_threshold, period_seconds, initial_delay_seconds, timeout_seconds, grace_period_seconds, handler}``.
    mounts: list of ``{volume, path}``. unresolved: sentences, what the engine is told that isn't at hand (a file, a
    variable).
    """
    return dict(
        {
            "name": name,
            "role": role,
            "image": None,
            "engine": None,
            "command": [],
            "args": [],
            "env": [],
            "resources": {"requests": {}, "limits": {}},
            "probes": {"startup": None, "liveness": None, "readiness": None},
            "lifecycle": {"pre_stop": None},
            "mounts": [],
            "restart_count": None,
            "ready": None,
            "settings": {},
            "unresolved": [],
            "attempts": [],
        },
        **more,
    )


def engine(version=None, version_from=None, name="vllm", accelerator=None):
    """The engine in a container. accelerator: cuda, rocm, tpu, xpu, hpu, npu, cpu or None."""
    return {
        "name": name,
        "version": version,
        "version_from": version_from,
        "accelerator": accelerator,
    }


def workload(kind=None, name=None, api_version=None, **more):
    """What a pod belongs to: the object to edit, the owner chain, who manages it, what changed."""
    return dict(
        {
            "kind": kind,
            "name": name,
            "api_version": api_version,
            "edit": None,
            "chain": [],
            "replicas": None,
            "strategy": None,
            "paused": None,
            "autoscalers": [],
            "managers": [],
            "revisions": [],
            "own_change": None,
        },
        **more,
    )


def pod(namespace, name, **more):
    """One pod of the evidence."""
    return dict(
        {
            "namespace": namespace,
            "name": name,
            "uid": None,
            "node": None,
            "pod_phase": None,
            "reason": None,
            "message": None,
            "conditions": [],
            "qos": None,
            "created_at": None,
            "deleted_at": None,
            "grace_period": None,
            "suspicious": None,
            "labels": {},
            "annotations": {},
            "workload": workload(),
            "group": None,
            "containers": [],
            "volumes": [],
            "shm": {
                "size_limit": None,
                "medium": None,
                "mounted_at": None,
                "used": None,
            },
            "events": [],
        },
        **more,
    )


def event(
    reason,
    message,
    type=None,
    object=None,
    count=None,
    first_at=None,
    last_at=None,
):
    """A Kubernetes event. object: ``Kind/name``."""
    return {
        "type": type,
        "reason": reason,
        "message": message,
        "count": count,
        "first_at": first_at,
        "last_at": last_at,
        "object": object,
    }


def node(**more):
    """One node of the evidence. gpu.unified: GPU and host share one memory (GB10, Jetson, APU).

    What only the node itself tells (``gpu_node_info``), sizes in bytes: driver: ``{version, cuda, error}``; gpus: as nvidia-smi has
    them; processes: ``[{gpu, pid, name, type, used, gi, ci, cgroup, pod_uid, container_id, started_at, command, alive, state, uid,
    ns_pid}]`` (alive: whether /proc has it, None where it is hidden; state: one letter of proc(5); ns_pid: as its container sees it);
    topology: ``{links, affinity, nics, nvlinks}``; kernel_oom: ``[{time, text}]``, lines of OOM reports; xids: ``[{time, code, bus_id,
    pid, text, count}]``; nvrm: ``[{time, text, count}]``; cgroups: counters by container id; limits: ``[{pid, memlock, nofile,
    stack}]``, pid 0: the reader; memory: ``{total, available, swap_total, swap_free, hugepages_total, hugepages_free,
    hugepage_size}``; shm: ``{size, used}``; cpu: ``{count, numa, governor}``; services: ``{fabric_manager, persistenced, mps}``; nccl:
    ``{variables, file, from, processes, interfaces, hcas}`` (processes: ``[{pids, pod_uid, variables, file, from, interfaces}]``, an
    entry for those told the same; interfaces, hcas: names that the reader sees).

    And, only where a node was to be read itself, reader: ``{user, uid, pid_namespace, pod_uid, container_id}``, empty where that failed.
    """
    return dict(
        {
            "allocatable": {},
            "capacity": {},
            "conditions": [],
            "events": [],
            "gpu": {
                "product": None,
                "count": None,
                "memory_bytes": None,
                "mig": None,
                "unified": None,
                "labels": {},
            },
            "driver": {},
            "gpus": [],
            "processes": [],
            "topology": {},
            "kernel_oom": [],
            "xids": [],
            "nvrm": [],
            "cgroups": {},
            "limits": [],
            "memory": {},
            "shm": {},
            "cpu": {},
            "services": {},
            "nccl": {},
            "kubelet": {},
        },
        **more,
    )


def unreadable(source, object, reason, needs=None):
    """Something that could not be read. needs: the right or address that is missing, in words."""
    return {"source": source, "object": object, "reason": reason, "needs": needs}


def evidence(collected_at, source_kind, source_detail):
    """An empty evidence document. source_kind: cluster, bundle, manifest, or node (what a node told of itself)."""
    return {
        "schema": EVIDENCE_SCHEMA,
        "collected_at": collected_at,
        "source": {"kind": source_kind, "detail": source_detail},
        "counts": {"pods_seen": 0, "engines": 0, "suspicious": 0},
        "pods": [],
        "groups": [],
        "namespaces": {},
        "nodes": {},
        "metrics": {},
        "unreadable": [],
        "redactions": {"count": 0, "kinds": {}},
    }


def change(target, name, direction, value=None, why=None, proof="rule", with_=(), command=None):
    """A CHANGE, the one shape of every recommendation, rejection and planned change.

    command: the kubectl command (or the edit) that makes it by hand. with_: other changes' names that it needs.
    """
    if target == "action" and name not in ACTIONS:
        raise DocumentError(f"unknown action {name!r}: add it to ACTIONS in documents.py")
    _known("target of a change", target, TARGETS)
    _known("direction of a change", direction, DIRECTIONS)
    _known("proof of a change", proof, PROOFS)
    return {
        "target": target,
        "name": name,
        "direction": direction,
        "value": value,
        "with": list(with_),
        "why": why,
        "proof": proof,
        "command": command,
    }


def finding(cause, memory, phase, role, confidence, **more):
    """One finding of a diagnosis. evidence: list of ``proof`` dicts."""
    if cause not in CAUSES:
        raise DocumentError(f"unknown cause {cause!r}: add it to CAUSES in documents.py")
    _known("memory of a finding", memory, MEMORIES)
    _known("phase of a finding", phase, PHASES)
    _known("role of a finding", role, ROLES)
    _known("confidence of a finding", confidence, CONFIDENCES)
    return dict(
        {
            "cause": cause,
            "memory": memory,
            "phase": phase,
            "role": role,
            "confidence": confidence,
            "container": None,
            "attempt": None,
            "evidence": [],
            "explanation": None,
            "runbook": None,
            "recommend": [],
            "rejected": [],
            "would_settle": [],
            "check": [],
        },
        **more,
    )


def proof(source, object, text, line=None, time=None):
    """What a finding rests on. source: log, status, event, spec, kernel, cgroup, node, workload."""
    return {
        "source": source,
        "object": object,
        "line": line,
        "time": time,
        "text": text,
    }


def budget_document(source=None):
    """An empty budget document. source: what it was made from (cluster, bundle, manifest, model)."""
    return {"schema": BUDGET_SCHEMA, "source": source, "entries": []}


def budget_entry(subject, **more):
    """The budget of one engine: one rank's GPU memory, the pod's host memory. Sizes in bytes.

    subject: ``{namespace, pod, uid, container, attempt}``; model: ``{name, source, parameters (billions), ...}``; gpu: ``{name,
    count, total_bytes, free_bytes, from}``; settings: what somebody set; segments: ``[{name, bytes, proof: measured|modelled|set,
    formula, error_bytes, in_budget}]``; capacity: ``{total, utilization, requested, free, free_check}``; kv: block size, tokens,
    concurrency, what one request needs; fits: True, False or None; close: whether
    that is None because the model's error decides; largest: ``{max_model_len, max_num_seqs, max_concurrency}``;
    changes: CHANGEs with ``helps``, ``costs`` and what the budget is ``after`` each; hardware: GPUs that would hold it;
    host: see ``sizing.host.host_memory``, with limit, request and fits; undetermined: what isn't known, and how to tell it.
    """
    return dict(
        {
            "subject": subject,
            "model": {},
            "gpu": {},
            "version": None,
            "engine": None,
            "accelerator": None,
            "settings": {},
            "sentence": None,
            "fits": None,
            "close": False,
            "capacity": None,
            "segments": [],
            "ranks": None,
            "available_kv": None,
            "available_kv_error": None,
            "kv": None,
            "kv_bytes_per_token": None,
            "outside": None,
            "problems": [],
            "contradictions": [],
            "largest": None,
            "changes": [],
            "hardware": [],
            "host": None,
            "assumptions": [],
            "undetermined": [],
        },
        **more,
    )


def diagnosis():
    """An empty diagnosis document."""
    return {
        "schema": DIAGNOSIS_SCHEMA,
        "pods": [],
        "groups": [],
        "workloads": [],
        "nodes": [],
        "unreadable": [],
    }


def plan_document(limits):
    """An empty plan document. limits: what was allowed, see ``remediation.limits``."""
    return {"schema": PLAN_SCHEMA, "limits": limits, "plans": [], "notes": []}


def object_plan(edited, pods):
    """The plan of one edited object, empty.

    edited: ``{namespace, kind, name, api_version, path}``, kind and name None where no object of the cluster is known;
    pods: ``namespace/name`` of those that the plan is about; causes: what it is against, the trigger first; changes:
    ``planned_change`` dicts in order; rejected: ``[{change, why}]``, wrong by their mechanism; considered: the same
    of changes that don't suffice, that nothing proves or that are in force; blocked: sentences, why nothing of it may be written
    now; notes: sentences, what isn't known; apply: what would be written now, see ``remediation.choice``; expected: ``{uid,
    generation}`` of the edited object as the evidence saw it, each None where it wasn't read.
    """
    return {
        "object": edited,
        "pods": list(pods),
        "causes": [],
        "sentence": None,
        "changes": [],
        "rejected": [],
        "considered": [],
        "blocked": [],
        "notes": [],
        "apply": {"step": None, "with": [], "changes": [], "why": None},
        "expected": {"uid": None, "generation": None},
    }


def planned_change(change, state, **more):
    """One change of a plan: one operation on one flag, environment variable or field.

    change: a CHANGE with ``container``, ``action`` (set, remove, None for what only a person does), ``before`` and ``after``;
    step: changes of the same step go together, steps of a trigger are alternatives, the cheapest first; refused:
    sentences, what must be given or done first; also: further causes that it is right for; proof: the counterfactual in
    words; predicted: ``{before, after}`` of the budget; costs: what it takes from the user, see ``sizing.fit.COSTS``; restarts: ``{pods, serving}``; downtime:
    ``{seconds, at_most, sentence}``; extra_gpus: for the rollout; strategy: None or ``{before, after, why}``;
    delivery: ``{how, why, command}``; risks: sentences, what it makes worse.
    """
    _known("state of a planned change", state, PLAN_STATES)
    return dict(
        {
            "step": None,
            "state": state,
            "refused": [],
            "cause": None,
            "also": [],
            "role": None,
            "pod": None,
            "change": change,
            "why": change["why"],
            "proof": None,
            "predicted": {"before": None, "after": None},
            "costs": "nothing",
            "takes": None,
            "restarts": {"pods": 0, "serving": 0},
            "downtime": {"seconds": None, "at_most": None, "sentence": None},
            "extra_gpus": 0,
            "strategy": None,
            "delivery": None,
            "risks": [],
        },
        **more,
    )


def outcome_document():
    """An empty outcome document. objects: ``object_outcome`` dicts in the order of the plan."""
    return {"schema": OUTCOME_SCHEMA, "objects": [], "notes": []}


def object_outcome(edited, **more):
    """What became of one edited object.

    edited: as for ``object_plan``; plan: the plan's sentence; attempts: ``outcome_attempt`` dicts in order; verdict: of
    VERDICTS, None where nothing was written; first_failure, last_failure: ``{pod, cause, sentence}`` of the diagnosis before
    the first change and of the last attempt that failed, or None; undo: the command that takes everything back, or None;
    sentence: all of it in one.
    """
    return dict(
        {
            "object": edited,
            "plan": None,
            "attempts": [],
            "verdict": None,
            "first_failure": None,
            "last_failure": None,
            "undo": None,
            "sentence": None,
        },
        **more,
    )


def outcome_attempt(**more):
    """One change of an object and what came of it.

    step: of the plan; changes: its CHANGEs; written: what module ``workload`` returned of its write (``changed, mode, sentence, at,
    run, record, missing, warnings``, and ``found: {run, at, changes}`` where a killed run had changed it before); verification:
    what role ``verify`` found (``verdict, verifiable, seconds, sentence``), or None.
    """
    return dict({"step": None, "changes": [], "written": None, "verification": None}, **more)


def delivery(how, why, command=None):
    """How a change reaches the object. how: live, patch (for the source of the object) or by_hand."""
    _known("delivery of a planned change", how, DELIVERIES)
    return {"how": how, "why": why, "command": command}


def plain(value):
    """``value`` as plain dicts and lists: ansible-core 2.19 and newer hand filters containers that can't be copied."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def require(document, schema, consumer):
    """Return ``document`` if it has ``schema``; else raise DocumentError naming ``consumer`` and what was given."""
    if not isinstance(document, dict):
        raise DocumentError(
            f"{consumer} needs a document with schema {schema}, got {type(document).__name__}"
        )
    found = document.get("schema")
    if found != schema:
        shown = found if isinstance(found, str) else "no schema"
        raise DocumentError(f"{consumer} needs a document with schema {schema}, got {shown}")
    return document
