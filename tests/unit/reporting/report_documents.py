# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnosis and evidence documents written by hand, for the tests of the reports."""

from __future__ import annotations

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents

OOM_LINE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 79.18 GiB "
    "of which 566.56 MiB is free. Process 41873 has 78.62 GiB memory in use. Of the allocated memory 78.09 GiB is "
    "allocated by PyTorch, and 13.75 MiB is reserved by PyTorch but unallocated."
)


def weights_finding(**more):
    """A trigger with everything that a finding can hold."""
    fields = {
        "container": "vllm",
        "attempt": 0,
        "evidence": [documents.proof("log", "container vllm", OOM_LINE, line=31)],
        "explanation": "The weights of 70 billion parameters need more than this card has.",
        "runbook": "CUDA out of memory while loading: the model does not fit.",
        "recommend": [
            documents.change(
                "flag",
                "tensor_parallel_size",
                "increase",
                2,
                why="each GPU then holds half of the weights",
                proof="arithmetic",
                with_=["resources.limits.nvidia.com/gpu"],
                command="kubectl -n llm edit deployment/llama-70b",
            ),
            documents.change("action", "smaller_quantization", "set", "FP8", why="halves the weights"),
        ],
        "rejected": [
            documents.change(
                "flag", "gpu_memory_utilization", "decrease", why="the fraction does not limit the weights"
            )
        ],
        "would_settle": ["the size of the checkpoint"],
        "check": ["kubectl -n llm logs llama-70b-0 -c vllm --previous | grep -n OutOfMemoryError"],
    }
    return documents.finding("gpu_weights_oom", "gpu", "load", "trigger", "certain", **dict(fields, **more))


def risk_finding(cause="cpu_limit_set", **more):
    return documents.finding(
        cause,
        "none",
        "unknown",
        "risk",
        "possible",
        **dict({"container": "vllm", "explanation": "A CPU limit throttles tokenization."}, **more),
    )


def verdict(
    cause="gpu_weights_oom", memory="gpu", phase="load", is_memory=True, sentence="GPU memory ran out."
):
    return {"cause": cause, "memory": memory, "phase": phase, "is_memory": is_memory, "sentence": sentence}


def pod(name, findings, pod_verdict, ruled_out=()):
    return {
        "namespace": "llm",
        "name": name,
        "verdict": pod_verdict,
        "findings": list(findings),
        "ruled_out": list(ruled_out),
    }


def weights_pod(name="llama-70b-0", **more):
    ruled_out = [{"cause": "gpu_held_by_other", "why": "one process holds all of the memory"}]
    return pod(name, [weights_finding(**more), risk_finding()], verdict(), ruled_out)


def healthy_pod(name="healthy-0"):
    return pod(
        name, [], verdict(cause=None, memory="none", phase="unknown", is_memory=False, sentence="Nothing.")
    )


def diagnosis(*pods, **more):
    return dict(documents.diagnosis(), pods=list(pods), **more)


def evidence_of(name="llama-70b-0", process="EngineCore_DP0", restart_count=0, complete=True):
    """Evidence in which line 31 of attempt 0 was written by ``process``."""
    log = dict(
        documents.log(complete=complete),
        errors=[documents.line(31, OOM_LINE, time="10-25 13:05:14", process=process)],
    )
    container = documents.container(
        "vllm",
        engine=documents.engine("0.11.0", "log"),
        restart_count=restart_count,
        attempts=[documents.attempt(0, "terminated", log=log)],
    )
    document = documents.evidence("2025-10-25T13:20:00Z", "bundle", "gpu-weights")
    document["pods"] = [documents.pod("llm", name, containers=[container])]
    document["counts"] = {"pods_seen": 3, "engines": 1, "suspicious": 1}
    return document
