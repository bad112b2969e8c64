# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one plain view of a memory budget that every report format shows.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..documents import BUDGET_SCHEMA, require
from ..quantities import GIB
from .wording import change_view, clean

_SEGMENT_WORDS = {
    "weights": "weights",
    "activation_peak": "activation peak of the profile run",
    "non_torch": "outside of torch (NCCL, kernels, context)",
    "graph": "CUDA graphs",
    "frontend_images": "images that the frontend decodes",
    "kv_available": "KV cache",
}
_SHORT_WORDS = {
    "weights": "weights",
    "activation_peak": "activation",
    "non_torch": "outside of torch",
    "graph": "graphs",
    "frontend_images": "images",
}
_PROOF_WORDS = {"measured": "this log", "modelled": "modelled", "set": "set"}
_VERDICT_WORDS = {True: "fits", False: "doesn't fit", None: "not known"}
_CLOSE = "too close"
_HOST_BY = {
    "table": "the runbook's table for this size of model, corrected by the mechanism",
    "mechanism": "the mechanism",
    "measured": "what was measured",
}
# Names of host segments that aren't a setting's.
_HOST_WORDS = {
    "api_server": "API server",
    "engine_core": "engine core",
    "workers": "workers",
    "staging": "pinned buffers to the GPU",
    "compile": "torch.compile",
    "model_files": "page cache of the checkpoint",
    "shm_rings": "/dev/shm: rings, NCCL",
}
_MAX_ENTRIES = 50


def budget_view(budget):
    """``{entries, summary}`` of a budget document; each entry's tables as rows of text.

    Raises DocumentError when it is another document.
    """
    require(budget, BUDGET_SCHEMA, "The report")
    return {
        "source": clean(budget.get("source")) or None,
        "summary": budget_summary(budget),
        "entries": [entry_view(entry) for entry in budget.get("entries") or []],
    }


def budget_summary(budget):
    """What a job leaves behind: ``{engines, fits, doesnt_fit, unknown, verdicts, more}``; verdicts: at most 50."""
    require(budget, BUDGET_SCHEMA, "The report")
    entries = budget.get("entries") or []
    verdicts = [verdict(entry) for entry in entries]
    return {
        "engines": len(entries),
        "fits": verdicts.count(True),
        "doesnt_fit": verdicts.count(False),
        "unknown": verdicts.count(None),
        "verdicts": [
            {
                "name": _ref(entry),
                "model": (entry.get("model") or {}).get("name"),
                "fits": known,
                "sentence": clean(entry.get("sentence")),
            }
            for entry, known in list(zip(entries, verdicts))[:_MAX_ENTRIES]
        ],
        "more": max(0, len(entries) - _MAX_ENTRIES),
    }


def verdict(entry):
    """Whether GPU and host both have room: True, False or None (one of them isn't known)."""
    host = (entry.get("host") or {}).get("fits")
    parts = [entry.get("fits"), host if (entry.get("host") or {}).get("limit") is not None else True]
    if False in parts:
        return False
    return None if None in parts else True


def entry_view(entry):
    """One engine's budget as text: ``{ref, title, verdict, sentence, gpu: rows, host: rows, ...}``."""
    return {
        "ref": _ref(entry),
        "title": _title(entry),
        "head": _head(entry),
        "verdict": _CLOSE
        if entry.get("close") and verdict(entry) is None
        else _VERDICT_WORDS[verdict(entry)],
        "sentence": clean(entry.get("sentence")),
        "line": _line(entry),
        "gpu_title": _gpu_title(entry),
        "gpu": _gpu_rows(entry),
        "host": _host_rows(entry.get("host")),
        "host_by": _HOST_BY.get(str((entry.get("host") or {}).get("by"))),
        "largest": _largest(entry),
        "do": [change_view(item) for item in entry.get("changes") or [] if item.get("helps")],
        "avoid": [change_view(item) for item in entry.get("changes") or [] if item.get("helps") is False],
        "hardware": [_hardware(item) for item in entry.get("hardware") or []],
        "contradictions": [clean(item.get("sentence")) for item in entry.get("contradictions") or []],
        "assumptions": [clean(text) for text in entry.get("assumptions") or []],
        "undetermined": [clean(text) for text in entry.get("undetermined") or []],
    }


def _ref(entry):
    subject = entry.get("subject") or {}
    name = "/".join(clean(subject[key]) for key in ("namespace", "pod") if subject.get(key))
    container = clean(subject.get("container"))
    return name if not container or container == clean(subject.get("pod")) else f"{name} ({container})"


def _head(entry):
    """Pod and model; of a model without a pod its name once."""
    ref, title = _ref(entry), _title(entry)
    return title if title.startswith(ref) else f"{ref}: {title}"


def _title(entry):
    model, gpu = entry.get("model") or {}, entry.get("gpu") or {}
    parts = [clean(model.get("name")) or "unknown model"]
    size = model.get("parameters")
    if size:
        parts[0] += f" ({size:g}B)"
    if gpu.get("name"):
        parts.append(f"{gpu.get('count') or 1} x {clean(gpu['name'])}")
    version = clean(entry.get("version"))
    parts.append(f"vLLM {version}" if version else "vLLM of unknown version")
    return ", ".join(parts)


def _gpu_title(entry):
    ranks = (entry.get("ranks") or {}).get("count") or 1
    return "GPU memory" if ranks == 1 else f"GPU memory of each of {ranks} GPUs"


def _line(entry):
    """One GPU's budget in a line: a sum where it is computed, a list where the log gave its end."""
    parts = {item["name"]: item for item in entry.get("segments") or []}
    kv = parts.pop("kv_available", None)
    taken = [
        _short(_SHORT_WORDS[name], item)
        for name, item in parts.items()
        if name in _SHORT_WORDS and item.get("in_budget", True)
    ]
    if kv is None or kv["bytes"] is None or not taken:
        return ""
    requested = (entry.get("capacity") or {}).get("requested")
    need = (entry.get("kv") or {}).get("need_bytes")
    needed = "" if need is None else f"; one request of full length needs {gib(need)}"
    room = _short("KV cache", kv)
    one = "each GPU" if ((entry.get("ranks") or {}).get("count") or 1) > 1 else "the GPU"
    if requested is None or kv["proof"] != "modelled":
        return f"GiB of {one}: {', '.join([*taken, room])}{needed}"
    return f"GiB of {one}: {gib(requested)} requested - {' - '.join(taken)} = {room}{needed}"


def _short(words, item):
    known = "" if item["proof"] == "modelled" else f" ({_PROOF_WORDS[item['proof']]})"
    return f"{words} {gib(item['bytes'])}{known}"


def gib(size):
    """``size`` bytes as GiB with two decimals, or a dash."""
    return "-" if size is None else f"{size / GIB:.2f}"


def _gpu_rows(entry):
    """Rows ``(what, GiB, how it is known)`` from the card's total down to the KV cache."""
    capacity = entry.get("capacity") or {}
    rows = []
    if capacity.get("total") is not None:
        rows.append(("total", gib(capacity["total"]), clean((entry.get("gpu") or {}).get("from"))))
    if capacity.get("free") is not None:
        rows.append(("free at start", gib(capacity["free"]), "this log"))
    if capacity.get("requested") is not None:
        share = capacity.get("utilization")
        rows.append((f"requested: gpu-memory-utilization {share:g}", gib(capacity["requested"]), ""))
    for item in entry.get("segments") or []:
        rows.append(_segment_row(item))
    outside = entry.get("outside")
    if outside:
        rows.append(("left beside the budget", gib(outside["margin"]), f"±{gib(outside['error_bytes'])}"))
    kv = entry.get("kv") or {}
    if kv.get("need_bytes") is not None:
        length = (entry.get("settings") or {}).get("max_model_len")
        words = f"one request of {length} tokens needs" if length else "one request of full length needs"
        rows.append((words, gib(kv["need_bytes"]), ""))
    return rows


def _segment_row(item):
    name = _SEGMENT_WORDS.get(item["name"], item["name"])
    how = _PROOF_WORDS.get(item["proof"], item["proof"])
    if item.get("error_bytes"):
        how += f" ±{gib(item['error_bytes'])}"
    if item["name"] == "kv_available":
        return (f"= {name}", gib(item["bytes"]), how)
    if not item.get("in_budget", True):
        return (f"beside it: {name}", gib(item["bytes"]), how)
    return (f"- {name}", gib(item["bytes"]), how)


def _host_rows(host):
    """Rows ``(what, GiB, remark)`` of the pod's host memory."""
    if not host:
        return []
    rows = []
    for item in host.get("segments") or []:
        name = _HOST_WORDS.get(item["name"], item["name"])
        remark = clean(item.get("why"))
        if item["kind"] == "page_cache":
            remark = f"page cache, not counted: {remark}"
        rows.append((name, gib(item["bytes"]), remark))
    rows.append(("needed at the worst moment", gib(host.get("need_bytes")), "what can't be reclaimed"))
    set_to = f"request {gib(host.get('request_bytes'))}; {clean(host.get('words'))}".rstrip("; ")
    rows.append(("memory limit to set", gib(host.get("limit_bytes")), set_to))
    written = clean(host.get("limit_written"))
    unread = f"{written} can't be read" if written else "none is set"
    rows.append(("memory limit now", gib(host.get("limit")), "" if host.get("limit") else unread))
    return rows


def _largest(entry):
    largest = entry.get("largest") or {}
    words = (("max_model_len", "--max-model-len"), ("max_num_seqs", "--max-num-seqs"))
    said = [f"{flag} {largest[name]}" for name, flag in words if largest.get(name)]
    if len(said) > 1:
        said = [f"{' or '.join(said)}, each with everything else as it is"]
    if largest.get("max_concurrency"):
        said.append(f"{largest['max_concurrency']:.2f} requests of full length at once")
    return said


def _hardware(item):
    parallel = item.get("tensor_parallel_size") or 1
    length = item.get("estimated_max_len")
    fits = "" if item.get("fits") else f", up to {length} tokens" if length else ""
    each = " each" if parallel > 1 else ""
    return f"{parallel} x {clean(item.get('gpu'))} (KV cache {gib(item.get('available_kv'))} GiB{each}{fits})"
