# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents for the tests of the plan, made by hand from the documents' builders, and by the sizing itself."""

from __future__ import annotations

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import change
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, show_bytes
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan

# A model of 7 billion parameters, as its config.json says it.
CONFIG = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
EVERYTHING = {
    "max_memory": "900Gi",
    "max_gpus": 16,
    "min_model_len": 1,
    "min_concurrency": 0.01,
    "allow": [
        *("eager", "quantization", "kv_cache_dtype", "cpu_offload", "prefix_caching", "speculative_decoding"),
        *("modalities", "lora", "sleep_mode", "restart_of_serving"),
    ],
}


def workload(kind="StatefulSet", api_version="apps/v1", **more):
    edit = {
        "kind": kind,
        "name": "vllm",
        "api_version": api_version,
        "path": "spec.template.spec.containers[vllm]",
        "arguments": None,
        "inferred": False,
        "uid": "uid-of-the-object",
        "generation": 4,
    }
    return documents.workload(kind, "vllm", api_version, **dict({"edit": edit}, **more))


def pod(name="vllm-0", settings=None, limits=None, requests=None, env=None, probes=None, gpus=1, **more):
    """A pod that failed once. settings: given as arguments; limits, requests: resources beside the GPUs."""
    counted = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = documents.container(
        "vllm",
        engine=documents.engine("0.11.0", "log", accelerator="cuda"),
        settings={
            key: {"value": value, "from": "arg", "line": None} for key, value in (settings or {}).items()
        },
        resources={"requests": dict(requests or {}), "limits": dict(limits or {}, **counted)},
        env=[{"name": key, "value": value, "from": None} for key, value in (env or {}).items()],
        probes=probes or {"startup": None, "liveness": None, "readiness": None},
        attempts=[documents.attempt(0, "terminated", exit_code=1)],
    )
    facts = {"uid": f"uid-{name}", "node": "gpu-0", "containers": [container], "workload": workload()}
    return documents.pod("llm", name, **dict(facts, **more))


def evidence(*pods, namespace=None, node=None):
    document = documents.evidence("2026-11-30T07:00:00Z", "cluster", "test")
    document["pods"] = list(pods) or [pod()]
    document["namespaces"] = {"llm": namespace or {}}
    document["nodes"] = {"gpu-0": documents.node(**(node or {}))}
    return document


def finding(cause="kv_max_len", *recommend, role="trigger", confidence="certain", phase="kv_init", **more):
    facts = {"container": "vllm", "attempt": 0, "recommend": list(recommend)}
    return documents.finding(cause, "gpu", phase, role, confidence, **dict(facts, **more))


def diagnosis(*findings, pod="vllm-0", others=(), workloads=()):
    """The diagnosis of one pod; others: ``(pod, [findings])`` of more."""
    document = documents.diagnosis()
    for name, found in ((pod, list(findings)), *others):
        document["pods"].append(
            {"namespace": "llm", "name": name, "uid": f"uid-{name}", "findings": list(found)}
        )
    document["workloads"] = list(workloads)
    return document


def row(
    name,
    direction,
    value,
    costs="nothing",
    helps=True,
    target="flag",
    available=6.0,
    need=4.0,
    outside=1.0,
    **more,
):
    """A row of the budget's menu; sizes in GiB."""
    after = {
        "available_kv": int(available * GIB),
        "fits": helps,
        "need_bytes": int(need * GIB),
        "estimated_max_len": None,
        "max_concurrency": available / need,
        "outside": int(outside * GIB),
    }
    made = change(target, name, direction, value, "recomputed", "budget", more.pop("with_", ()))
    return dict(made, helps=helps, costs=costs, settings={}, after=dict(after, **more))


def entry(*menu, pod="vllm-0", attempt=0, host=None, **more):
    """A budget's entry of a start on 80 GiB that lacks 6 GiB of KV cache."""
    facts = {
        "available_kv": 4 * GIB,
        "available_kv_error": GIB // 4,
        "kv": {"need_bytes": 10 * GIB, "max_concurrency": 0.4, "estimated_max_len": 16384},
        "capacity": {
            "total": 80 * GIB,
            "utilization": 0.9,
            "requested": 72 * GIB,
            "free": None,
            "free_check": None,
        },
        "outside": {"margin": -GIB // 2, "error_bytes": 0},
        "settings": {"max_model_len": 40960, "max_num_batched_tokens": 8192},
        "fits": False,
        "changes": list(menu),
        "model": {"name": "org/model", "parameters": 70.55},
        "host": dict(HOST, **(host or {})),
    }
    subject = {"namespace": "llm", "pod": pod, "uid": f"uid-{pod}", "container": "vllm", "attempt": attempt}
    return documents.budget_entry(subject, **dict(facts, **more))


HOST = {
    "need_bytes": 30 * GIB,
    "need_error_bytes": 4 * GIB,
    "least_bytes": 28 * GIB,
    "limit_bytes": 64 * GIB,
    "limit_bounds": [48 * GIB, 64 * GIB],
    "request_bytes": 48 * GIB,
    "words": "48.00 GiB to 64.00 GiB by the runbook's table for 70B",
    "by": "table",
    "limit": None,
    "request": None,
    "fits": False,
}


def budget(*entries):
    document = documents.budget_document("cluster")
    document["entries"] = list(entries)
    return document


def planned(diagnosed, seen=None, sized=None, **limits):
    """The only plan of these documents."""
    (found,) = plan(diagnosed, seen or evidence(), sized, limits)["plans"]
    return found


def steps(found, state=None):
    """``[(state, {name: after})]`` of a plan's steps, in order."""
    shown: dict = {}
    for item in found["changes"]:
        shown.setdefault(item["step"], (item["state"], {}))[1][item["change"]["name"]] = item["change"][
            "after"
        ]
    return [step for step in shown.values() if state in (None, step[0])]


def oom(tried, free):
    """The proof of a finding: torch's text; sizes in GiB."""
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {show_bytes(int(tried * GIB))}. GPU 0 has a total capacity of "
        f"80.00 GiB of which {show_bytes(int(free * GIB))} is free. Of the allocated memory 70.00 GiB is allocated by PyTorch."
    )
    return documents.proof("log", "vllm-0/vllm", text, 10)
