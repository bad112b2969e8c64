# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence, or a model with flags, in; the budget document out.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import EVIDENCE_SCHEMA, MODEL_SCHEMA, DocumentError, budget_document, budget_entry, require
from ..engine.versions import parse_version
from ..quantities import quantity_bytes, show_bytes
from . import fit
from .budget import BudgetError, budget
from .gpus import gpu as product_of
from .host import host_memory
from .subjects import of_evidence, of_model, unknown_gpu
from .weights import weights

# What an entry holds of ``budget`` under the same name.
_GPU_PARTS = (
    *("capacity", "segments", "ranks", "available_kv", "available_kv_error", "kv", "kv_bytes_per_token"),
    *("outside", "problems", "contradictions"),
)
# Settings that are an architecture, or no option of vLLM's.
_OURS = (
    *("draft", "engine", "v2_runner", "checkpoint_bytes", "encoder", "estimate_graphs"),
    *("allow_long_max_model_len", "speculative_tokens", "draft_layers", "quantization_guessed"),
)
_FROM_A_LOG = "printed by the engine"


def budgets_of(document, models=None, gpu=None, search=True, **asked):
    """The budget document of ``document``: an evidence document or a model document.

    models: list of model documents, for names that the bundled table doesn't know; one alone stands for every
    model; gpu: a product's name where the evidence names none; search: whether to look for what would fit;
    asked: ``version``, and of a model document ``arguments``, ``count``, ``memory_limit``, ``env``.
    Raises DocumentError where the document is none, where ``gpu`` is no product, and for a count or limit that is none.
    """
    if gpu and product_of(gpu) is None:
        raise DocumentError(unknown_gpu(gpu))
    schema = document.get("schema") if isinstance(document, dict) else None
    _check(asked)
    if schema == MODEL_SCHEMA:
        source: str | None = "model"
        subjects = [of_model(document, gpu=gpu, **asked)]
    else:
        require(document, EVIDENCE_SCHEMA, "the memory budget")
        subjects = of_evidence(document, _by_name(models), gpu, asked.get("version"))
        source = (document.get("source") or {}).get("kind")
    result = budget_document(source)
    result["entries"] = [entry(subject, search) for subject in subjects]
    return result


def _check(asked):
    count, limit = asked.get("count"), asked.get("memory_limit")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise DocumentError(f"the number of GPUs is a whole number from 1 on, not {count!r}")
    if limit is not None and not (quantity_bytes(limit) or 0) > 0:
        raise DocumentError(f"the memory limit is a Kubernetes quantity such as 64Gi, not {limit!r}")
    words = [str(word).partition("=")[0] for word in asked.get("arguments") or ()]
    if words[:1] == ["vllm"] or "--model" in words:
        # Another model among them would be sized by this one's config.
        raise DocumentError(
            "the arguments are what follows 'vllm serve MODEL': give them without command and model"
        )
    version = asked.get("version")
    if version is not None and parse_version(version) is None:
        raise DocumentError(f"vLLM's version is a release such as 0.11.0, not {version!r}")


def _by_name(models):
    """Model documents by the names that they are known under."""
    given = [require(item, MODEL_SCHEMA, "the memory budget's models") for item in models or []]
    found = {item["name"]: item for item in given if item.get("name")}
    if len(given) == 1:
        found["*"] = given[0]
    return found


def entry(subject, search=True):
    """The budget of one engine: GPU segments of one rank, host segments of the pod, what fits, what would."""
    found = budget_entry(
        subject.ref,
        model=subject.model,
        gpu=subject.gpu,
        version=subject.version,
        engine=subject.generation,
        accelerator=subject.accelerator,
        settings={name: value for name, value in sorted(subject.settings.items()) if name not in _OURS},
        assumptions=list(subject.assumptions),
        undetermined=list(subject.missing),
    )
    if subject.accelerator == "cpu":
        found["undetermined"] = [
            "on the CPU backend weights and KV cache are host memory: see the host's part"
        ]
    elif subject.arch is None:
        found.update(_measured_alone(subject))
        _refuse(found, subject)
    else:
        _add_gpu(found, subject, search)
    found["host"] = _host(subject, found)
    for text in found["host"]["assumptions"]:
        _note(found["assumptions"], text)
    found["sentence"] = _sentence(found)
    return found


def _note(texts, text):
    if text not in texts:
        texts.append(text)


# The GPU.


def _add_gpu(found, subject, search):
    inputs = (subject.arch, subject.gpu, subject.settings, subject.version, subject.measured)
    try:
        result = budget(*inputs)
        if subject.auto_length:
            inputs, result = _with_length_that_fits(inputs, result, found)
        found.update({name: result.get(name) for name in _GPU_PARTS})
        found["settings"].update(result["settings"])
        _judge(found, result, subject)
        found["contradictions"] = [
            dict(item, sentence=_contradiction(item)) for item in result["contradictions"]
        ]
        for text in result["assumptions"]:
            _note(found["assumptions"], text)
        if search and subject.gpu["total_bytes"] is not None:
            found.update(_searched(inputs, found, result))
    except BudgetError as error:
        found["fits"] = False
        found["problems"] = [str(error)]


def _judge(found, result, subject):
    """The verdict: what vLLM refuses, what isn't known, what is too close to tell, what lies beside the budget."""
    found["fits"] = result["fits"]
    missing = _lacking_beside(result, subject)
    if result["fits"] and missing > 0:
        found["fits"] = False
        found["problems"] = [
            f"CUDA graphs and what the driver holds need {show_bytes(missing)} more than this gpu_memory_utilization leaves "
            "beside the budget: it ends as an out-of-memory error while graphs are captured or at the first requests."
        ]
    elif result["fits"] is not None and not subject.auto_length and _too_close(result):
        found["fits"], found["close"] = None, True
    if subject.missing:
        found["fits"] = None
    _refuse(found, subject)


def _lacking_beside(result, subject):
    """Bytes that are surely missing beside the budget; none where the log shows that graphs were captured."""
    outside = result["outside"]
    if outside is None or "graph" in subject.measured:
        return 0
    return -outside["margin"] - outside["error_bytes"]


def _too_close(result):
    """Whether what remains and what one request needs differ by less than the model's error."""
    need, available = (result["kv"] or {}).get("need_bytes"), result["available_kv"]
    if need is None or available is None or _other_problems(result):
        return False
    return abs(available - need) < result["available_kv_error"]


def _other_problems(result):
    """Problems that no error of the model explains."""
    room = ("One request of", "No available memory")
    return [text for text in result["problems"] if not text.startswith(room)]


def _refuse(found, subject):
    """What vLLM doesn't take, and fewer GPUs than ranks: no start, whatever the memory."""
    refused = list(subject.refused)
    ranks = subject.ranks_of_a_replica
    if subject.gpus_given and ranks > subject.gpus_given:
        refused.append(
            f"The flags make {ranks} ranks, and {subject.gpus_given} GPUs are given: vLLM doesn't start."
        )
    if refused:
        found["fits"], found["close"] = False, False
        found["problems"] = refused + found["problems"]


def _searched(inputs, entry, result):
    """What surely fits at most; for a start that doesn't: what would make it fit, and which GPUs would hold it.

    Sure is what leaves the model's error over; nothing of that where the KV memory was measured.
    """
    arch, gpu, settings, version, measured = inputs
    sure = dict(settings, spare_bytes=result["available_kv_error"])
    found = {"largest": fit.largest(arch, gpu, sure, version, measured)}
    if entry["fits"] is False or entry["close"]:
        changes = fit.changes(arch, gpu, sure, version, measured, goal=_goal(entry))
        found["changes"] = [item for item in changes if not _is_in_force(item, entry["settings"])]
        found["hardware"] = fit.hardware(arch, sure, version, measured, gpu=gpu, unified=gpu["unified"])
    return found


def _is_in_force(change, used):
    """Whether a change that doesn't help is what is set already."""
    name = change["name"].lstrip("-").replace("-", "_")
    return not change["helps"] and change["value"] is not None and used.get(name) == change["value"]


def _goal(entry):
    """What a change must reach: the check of free memory, room beside the budget, or a KV cache that is large enough."""
    if entry["capacity"]["free_check"] is False:
        return "free_check"
    kv = entry["kv"] or {}
    return (
        "outside" if kv.get("fits") and not entry["close"] and (entry["available_kv"] or 0) > 0 else "start"
    )


def _with_length_that_fits(inputs, result, found):
    """``--max-model-len auto``: vLLM takes the largest length that fits (vllm-memory 3.6)."""
    estimated = (result["kv"] or {}).get("estimated_max_len")
    if result["fits"] is not False or not estimated:
        return inputs, result
    arch, gpu, settings, version, measured = inputs
    inputs = (arch, gpu, dict(settings, max_model_len=estimated), version, measured)
    _note(found["assumptions"], f"max_model_len is automatic: {estimated} tokens are what fits")
    return inputs, budget(*inputs)


def _measured_alone(subject):
    """What a log tells of a model whose architecture isn't known: nothing is modelled."""
    measured, numbers = subject.measured, subject.numbers
    segments = [
        {
            "name": name,
            "bytes": measured[name],
            "proof": "measured",
            "formula": _FROM_A_LOG,
            "error_bytes": 0,
            "in_budget": name != "graph",
        }
        for name in ("weights", "activation_peak", "non_torch", "graph", "kv_available")
        if name in measured
    ]
    available, needed = measured.get("kv_available"), numbers.get("kv_needed")
    problems = []
    if available is not None and available <= 0:
        problems.append("No available memory for the cache blocks: weights and profile take all of it.")
    elif available is not None and needed is not None and needed > available:
        problems.append(
            f"One request of max_model_len tokens needs {show_bytes(needed)} of KV cache, {show_bytes(available)} are there."
        )
    requested = numbers.get("gpu_requested")
    return {
        "segments": segments,
        "available_kv": available,
        "capacity": {
            "total": subject.gpu["total_bytes"],
            "utilization": numbers.get("utilization") or subject.settings.get("gpu_memory_utilization"),
            "requested": None if requested is None else int(requested),
            "free": subject.gpu["free_bytes"],
            "free_check": None,
        },
        "kv": {
            "tokens": numbers.get("kv_tokens"),
            "max_concurrency": numbers.get("max_concurrency"),
            "need_bytes": needed,
            "estimated_max_len": numbers.get("estimated_max_len"),
        },
        "problems": problems,
        "fits": False if problems else None,
    }


# The host.


def _host(subject, found):
    facts = dict(subject.host)
    limit, request, written = facts.pop("limit_bytes"), facts.pop("request_bytes"), facts.pop("limit_written")
    if facts["model_bytes"] is None:
        facts["model_bytes"] = (
            _weights_on_cpu(subject) if subject.accelerator == "cpu" else _checkpoint(found)
        )
    result = host_memory(subject.told, subject.version, **facts)
    result.update(limit=limit, request=request, limit_written=written)
    result["fits"] = _host_fits(limit, result)
    return result


def _host_fits(limit, result):
    """Below what can't be reclaimed: no; above the runbook's lower bound: yes; between: not known."""
    if limit is None:
        return None
    if limit < result["least_bytes"]:
        return False
    return True if limit >= result["limit_bounds"][0] else None


def _weights_on_cpu(subject):
    """Bytes of quantized weights where they are host memory; None: ``host_memory`` takes 16 bits for each parameter."""
    if subject.arch is None or not (subject.settings.get("quantization") or subject.arch["quantization"]):
        return None
    given = subject.settings.get
    return weights(
        subject.arch, quantization=given("quantization"), dtype=given("dtype"), version=subject.version
    )["bytes"]


def _checkpoint(found):
    """The checkpoint's size from its weights: all ranks' together, the replicated parts counted once more."""
    stages = (found.get("ranks") or {}).get("stages") or []
    parallel = found["settings"].get("tensor_parallel_size") or 1
    return sum(stage["weights"] for stage in stages) * parallel or None


# Sentences.

_NAMES = {
    "weights": "weights",
    "activation_peak": "activation peak",
    "non_torch": "memory outside of torch",
    "graph": "CUDA graphs",
    "kv_available": "KV cache",
}


def _contradiction(item):
    share = "" if item["difference"] is None else f" ({item['difference']:+.0%})"
    return (
        f"{_NAMES[item['name']]}: the log says {show_bytes(item['measured'])}, the model "
        f"{show_bytes(item['modelled'])}{share}; the log counts."
    )


def _sentence(found):
    """What a person must know of the budget, in one or two sentences."""
    said = []
    kv, available, host = found["kv"] or {}, found["available_kv"], found["host"]
    if found["fits"] is False:
        said.append("Doesn't fit. " + " ".join(found["problems"][:2]))
    elif found["close"]:
        said.append(
            f"Too close to tell: {show_bytes(available)} remain for the KV cache, give or take "
            f"{show_bytes(found['available_kv_error'])}, and one request needs {show_bytes(kv['need_bytes'])}. A start will tell."
        )
    elif found["fits"]:
        concurrency = kv.get("max_concurrency")
        many = f", {concurrency:.1f} requests of full length at once" if concurrency else ""
        each = " of each GPU" if (found["ranks"] or {}).get("count", 1) > 1 else ""
        said.append(f"Fits the GPU: {show_bytes(available)} remain for the KV cache{each}{many}.")
    else:
        why = "; ".join(found["undetermined"]) or "how long a request may be (give --max-model-len)"
        said.append(f"Whether it fits the GPU isn't known. Not known is: {why}.")
    if host and host["fits"] is False:
        said.append(
            f"The memory limit of {show_bytes(host['limit'])} is below the {show_bytes(host['need_bytes'])} of host "
            "memory that it needs."
        )
        if found["fits"] is not False:
            said.insert(0, "Doesn't fit its memory limit.")
    elif host and host["limit"] is not None and host["fits"] is None:
        said.append(
            f"The memory limit of {show_bytes(host['limit'])} is below the {show_bytes(host['limit_bounds'][0])} that it should have "
            f"at least: a risk."
        )
    return " ".join(said)
