# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong fixes: for each failure that people answer with the wrong setting, what must not change, whatever is allowed.

Failures are logs as vLLM writes them, read, sized and diagnosed by the code itself; the pods are a Deployment's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_samples import EVERYTHING, workload

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
UTILIZATION, LENGTH, TOKENS = "--gpu-memory-utilization", "--max-model-len", "--max-num-batched-tokens"
GPU_SIZES = frozenset(
    (
        *(
            UTILIZATION,
            LENGTH,
            TOKENS,
            "--max-num-seqs",
            "--kv-cache-dtype",
            "--quantization",
            "--cpu-offload-gb",
        ),
        *("--enforce-eager", "--tensor-parallel-size", "--pipeline-parallel-size", "PYTORCH_CUDA_ALLOC_CONF"),
    )
)
HOST_SIZES = frozenset(
    ("resources.limits.memory", "resources.requests.memory", "volumes.shm", "volumes.shm.sizeLimit")
)
SIZES = GPU_SIZES | HOST_SIZES

KV_NONE = (
    "INFO 02-26 09:54:02 model_runner.py:1115] Loading model weights took 14.9888 GB\n"
    "INFO 02-26 09:54:05 worker.py:267] the current vLLM instance can use total_gpu_memory (22.06GiB) x gpu_memory_utilization (0.70) "
    "= 15.44GiB\n"
    "INFO 02-26 09:54:05 worker.py:267] model weights take 14.99GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory "
    "takes 1.42GiB; the rest of the memory reserved for KV Cache is -1.00GiB.\n"
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
)
WEIGHTS = (
    "INFO 11-30 07:00:00 [gpu_model_runner.py:2602] Starting to load model org/model-70b...\n"
    'ERROR 11-30 07:00:31 [core.py:708]   File "/vllm/v1/worker/gpu_worker.py", line 213, in load_model\n'
    "ERROR 11-30 07:00:31 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 462.00 MiB. GPU 0 has a total "
    "capacity of 79.19 GiB of which 215.06 MiB is free. Process 1 has 78.97 GiB memory in use. Of the allocated memory 78.40 GiB is "
    "allocated by PyTorch, and 10.10 MiB is reserved by PyTorch but unallocated.\n"
)
MIG = (
    "INFO 11-30 07:00:00 [gpu_worker.py:298] Available KV cache memory: 3.10 GiB\n"
    "ERROR 11-30 07:00:31 [core.py:708] RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
    '"/pytorch/c10/cuda/CUDACachingAllocator.cpp":1016, please report a bug to PyTorch.\n'
)
NEIGHBOUR = (
    "INFO 11-30 07:00:00 [gpu_model_runner.py:2602] Starting to load model facebook/opt-125m...\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 44.35 GiB of which 9.06 "
    "MiB is free. Process 4711 has 43.60 GiB memory in use. Process 4712 has 740.00 MiB memory in use. Of the allocated memory 300.00 "
    "MiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.\n"
)
TRANSPORT = (
    "[rank0]:[E1130 07:10:00.000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)
INTERFACE = (
    "ERROR 11-30 07:00:31 [core.py:708] RuntimeError: Gloo connectFullMesh failed with "
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
)
HANG = (
    "INFO 11-30 07:00:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n"
    "INFO 11-30 07:01:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second.\n"
)


def deployed(log, gpu=None, args=(), image="vllm/vllm-openai:v0.11.0"):
    """The evidence of a log, as if its pod were a Deployment's with everything known and a limit of each kind."""
    seen = read_bundle("-", stdin=log.encode())
    (pod,) = seen["pods"]
    (container,) = pod["containers"]
    container["image"] = image
    container["resources"] = {
        "limits": {"cpu": "4", "memory": "64Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "4", "memory": "48Gi"},
    }
    pod.update(namespace="llm", uid="u", node="gpu-0", workload=owner(container["name"]))
    seen["nodes"] = {"gpu-0": documents.node()}
    seen["nodes"]["gpu-0"]["gpu"].update(gpu or {})
    return seen


def owner(container):
    made = workload(
        "Deployment", replicas={"desired": 1, "current": 1, "ready": 0, "available": 0, "updated": 1}
    )
    made["edit"]["path"] = f"spec.template.spec.containers[{container}]"
    return made


def planned(seen):
    """(the first cause, the plan of the only object) with everything allowed and risks left alone."""
    sized = budgets_of(seen)
    judged = diagnose(seen, sized)
    (found,) = plan(judged, seen, sized, EVERYTHING)["plans"]
    return judged["pods"][0]["verdict"]["cause"], found


def touched(found, *roles):
    """{name: value after} of what could be written (planned, or planned once somebody removes an obstacle)."""
    return {
        item["change"]["name"]: item["change"]["after"]
        for item in found["changes"]
        if item["state"] != "advised" and item["role"] in (roles or ("trigger", "contributing"))
    }


def test_no_blocks_never_lowers_the_utilization():
    cause, found = planned(deployed(KV_NONE))
    assert cause == "kv_no_blocks"
    lowered = touched(found).get(UTILIZATION)
    assert lowered is None or lowered > 0.7
    assert not HOST_SIZES & touched(found).keys()
    assert (UTILIZATION, "decrease") in {
        (item["change"]["name"], item["change"]["direction"]) for item in found["rejected"]
    }


def test_weights_that_do_not_fit_leave_every_other_size_as_it_is():
    cause, found = planned(deployed(WEIGHTS))
    assert cause == "gpu_weights_oom"
    allowed = {"--tensor-parallel-size", "--pipeline-parallel-size", "--quantization", "--cpu-offload-gb"}
    assert not (SIZES - allowed) & touched(found).keys()


def test_a_mig_slice_behind_an_assertion_leaves_allocator_and_host_as_they_are():
    cause, found = planned(deployed(MIG))
    assert cause == "mig_oom_masked"
    assert not (HOST_SIZES | {"PYTORCH_CUDA_ALLOC_CONF"}) & touched(found).keys()
    assert found["apply"]["step"] is None


def test_a_neighbours_memory_leaves_our_settings_and_our_rollout_as_they_are():
    cause, found = planned(deployed(NEIGHBOUR))
    assert cause == "gpu_held_by_other"
    assert touched(found) == {}
    assert found["apply"]["changes"] == []
    assert "find out with nvidia-smi who holds the GPU memory" in found["apply"]["why"]


@pytest.mark.parametrize(
    ("log", "cause"),
    [(TRANSPORT, "nccl_not_memory"), (INTERFACE, "nccl_not_memory"), (HANG, "not_memory_hang")],
)
def test_ranks_that_wait_or_cannot_reach_each_other_leave_everything_as_it_is(log, cause):
    found_cause, found = planned(deployed(log))
    assert found_cause == cause
    assert touched(found) == {}
    assert found["apply"]["step"] is None


def test_a_probe_that_killed_changes_the_time_to_start_and_nothing_else():
    seen = read_bundle(str(EXAMPLES / "probe-kill"))
    cause, found = planned(seen)
    assert cause == "probe_kill"
    assert set(touched(found)) == {"startupProbe"}
    assert {item["name"] for item in found["apply"]["changes"]} <= {"startupProbe", "strategy"}


def test_a_probe_that_was_answered_is_not_given_more_time():
    seen = read_bundle(str(EXAMPLES / "probe-kill"))
    (pod,) = [pod for pod in seen["pods"] if any(item["engine"] for item in pod["containers"])]
    failed = documents.event("Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 404")
    pod["events"] = [event for event in pod["events"] if event["reason"] != "Unhealthy"] + [failed]
    _cause, found = planned(seen)
    assert "startupProbe" not in touched(found)
    assert "the probe's path or port is wrong" in " ".join(item["why"] for item in found["considered"])


def test_one_sick_replica_among_serving_ones_leaves_the_template_as_it_is():
    """What fails at start on one node while the same template serves elsewhere isn't the template's fault."""
    seen = deployed(
        "INFO 11-30 07:00:00 [gpu_worker.py:298] Available KV cache memory: 3.10 GiB\n"
        "INFO 11-30 07:00:01 [gpu_model_runner.py:3118] Capturing CUDA graphs (decode, FULL):   0%|          | 0/67\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which "
        "15.06 MiB is free. Process 1 has 79.17 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and "
        "10.00 MiB is reserved by PyTorch but unallocated.\n"
    )
    sick = seen["pods"][0]
    for number in (1, 2):
        sister = documents.pod(
            "llm",
            f"sister-{number}",
            uid=f"sister-{number}",
            node=f"gpu-{number}",
            pod_phase="Running",
            conditions=[{"type": "Ready", "status": "True"}],
            workload=sick["workload"],
            containers=[
                dict(
                    sick["containers"][0],
                    ready=True,
                    restart_count=0,
                    attempts=[documents.attempt(0, "running", started_at="2026-11-29T07:00:00Z")],
                )
            ],
        )
        seen["pods"].append(sister)
    sick["workload"]["replicas"].update(
        desired=3, current=3, ready=2, available=2, updated=3, same_template_ready=2
    )
    _cause, found = planned(seen)
    assert found["apply"]["step"] is None
    assert {item["state"] for item in found["changes"] if item["role"] == "trigger"} <= {"refused", "advised"}
    assert "serve with the same template" in found["apply"]["why"]


# The budget and the attempt.


def test_a_budget_that_the_attempt_contradicts_sizes_nothing():
    """An engine that served had room for its KV cache: a budget that denies it is of other settings."""
    log = (
        "INFO 11-30 07:00:00 [api_server.py:1] Application startup complete.\n"
        "INFO 11-30 07:10:00 [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which "
        "301.00 MiB is free.\n"
    )
    seen = deployed(log, gpu={"product": "NVIDIA-H100-80GB-HBM3", "count": 1})
    container = seen["pods"][0]["containers"][0]
    container["settings"]["model"] = {"value": "Qwen/Qwen2.5-72B-Instruct", "from": "arg", "line": None}
    cause, found = planned(seen)
    assert cause == "serving_gpu_oom"
    assert not GPU_SIZES & touched(found).keys()
    assert "the engine came further" in " ".join(item["why"] for item in found["considered"])
