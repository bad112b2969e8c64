# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expected and forbidden changes of the case files, as patterns that a CHANGE can be held against.

A case lists in words what helps (``expected.recommend``) and what doesn't (``expected.not_to_recommend``).
``answers.json`` says for every entry of the known cases which CHANGEs it stands for; it was reviewed entry by entry,
from the case's text alone. ``map_right`` and ``map_wrong`` do the same by keywords, for cases that nobody reviewed.

A pattern is one line: ``[alone|first] TARGET NAME DIRECTION [VALUE]``. NAME and VALUE may hold ``*``, DIRECTION may be
``*`` or alternatives joined by ``|``. ``alone``: counts only when nothing else is recommended with it; ``first``:
counts only as the first recommendation.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

TABLE = Path(__file__).with_name("answers.json")

# --- CHANGEs in one spelling -----------------------------------------------------------------------------------

# Options that set the same thing (old and new spellings), and switches that turn another one off.
_SAME_OPTION = {
    "kv_cache_memory": "kv_cache_memory_bytes",
    "cuda_graph_sizes": "cudagraph_capture_sizes",
    "max_cudagraph_capture_size": "cudagraph_capture_sizes",
    "compilation_config": "cudagraph_capture_sizes",
    "num_speculative_tokens": "speculative_config",
    "device_memory_utilization": "gpu_memory_utilization",
    "kv_offloading_size_gb": "kv_offloading_size",
    "max_pixels": "mm_processor_kwargs",
}
_ALLOCATOR_ENV = re.compile(r"PYTORCH_(CUDA_|HIP_)?ALLOC_CONF")
# Directions that mean the same for the named kind of change.
_SAME_DIRECTION = {"add": "set"}


def normal(change):
    """``change`` with one spelling for its name and direction."""
    target, name, direction = change["target"], str(change["name"]), change["direction"]
    if target == "flag":
        name = name.lstrip("-").replace("-", "_").partition(".")[0]
        if name.startswith("no_"):
            name, direction = (
                name[3:],
                {"add": "remove", "set": "remove", "remove": "set"}.get(direction, direction),
            )
        name = _SAME_OPTION.get(name, name)
    elif target == "env":
        name = _ALLOCATOR_ENV.sub("PYTORCH_ALLOC_CONF", name)
    direction = _SAME_DIRECTION.get(direction, direction)
    return {**change, "name": name, "direction": direction, "value": change.get("value")}


def parse_pattern(text):
    """``{qualifier, target, name, directions, value}`` of a pattern line; ValueError when it isn't one."""
    words = text.split(maxsplit=4 if text.startswith(("alone ", "first ")) else 3)
    qualifier = words.pop(0) if words[0] in ("alone", "first") else None
    if len(words) not in (3, 4) or words[0] not in ("flag", "env", "k8s", "action"):
        raise ValueError(f"not a pattern: {text!r}")
    target, name, direction = words[:3]
    spelled = [normal({"target": target, "name": name, "direction": word}) for word in direction.split("|")]
    return {
        "qualifier": qualifier,
        "target": target,
        "name": spelled[0]["name"],
        "directions": {change["direction"] for change in spelled},
        "value": words[3] if len(words) == 4 else None,
    }


def matches(pattern, change):
    """Whether ``change`` is what the parsed ``pattern`` describes (its qualifier aside)."""
    change = normal(change)
    if change["target"] != pattern["target"] or not fnmatchcase(change["name"], pattern["name"]):
        return False
    if pattern["target"] != "action" and not pattern["directions"] & {"*", change["direction"]}:
        return False
    if pattern["value"] is None or change["value"] is None:
        # A change that leaves the value open can't be told from one with the right value.
        return pattern["value"] is None
    return fnmatchcase(str(change["value"]).lower(), pattern["value"].lower())


# --- Entries without a reviewed mapping -------------------------------------------------------------------------

_GPU_MEMORY_FLAGS = [
    f"flag {name} *"
    for name in (
        "gpu_memory_utilization",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "cpu_offload_gb",
        "swap_space",
    )
]
_LIMIT_UP = "k8s resources.limits.memory increase|set"
_SHM = [
    "k8s volumes.*shm* increase|set",
    "k8s *sizeLimit increase|set",
    "k8s volumes.*emptyDir* increase|set",
]

# Words of a free text -> the changes that it means. All matching rows count.
_WORDS = (
    (r"\bmore memory\b", [_LIMIT_UP, "action larger_gpu *"]),
    (
        r"(?:rais|increas|larger|more|higher|set).{0,40}memory limit|^raising the limit|^host oom|memory limit.{0,12}(?:increase|rais|alone)",
        [_LIMIT_UP],
    ),
    (r"^(?:host |k8s |the )?memory limit", ["k8s resources.limits.memory *"]),
    (
        r"resources\.limits\.memory|more (?:host )?(?:memory|ram)\b|(?:rais|add).{0,20}(?:host memory|ram\b)",
        [_LIMIT_UP],
    ),
    (r"memory of the \w* ?worker pod|memory limit with head-?room|memory limit must cover", [_LIMIT_UP]),
    (r"remov\w* (?:the )?(?:memory )?limits?\b", ["k8s resources.limits.memory remove"]),
    (r"cpu limit", ["k8s resources.limits.cpu remove|increase"]),
    (
        r"^/dev/shm(?: size)?$|sizelimit|shm-size|(?:mount|rais|larger|bigger|increas|more).{0,60}(?:/dev/shm|emptydir)",
        _SHM,
    ),
    (r"delete the pod|recreate the pod|pod deletion|new emptydir", ["action recreate_pod *"]),
    (r"(?:remove|clear|delete|clean).{0,30}/dev/shm", ["action clear_shm *"]),
    (r"startup ?probe|failurethreshold", ["k8s startupProbe* *"]),
    (r"liveness", ["k8s livenessProbe* *"]),
    (r"strategy: recreate", ["k8s strategy* *"]),
    (r"grace ?period", ["k8s terminationGracePeriodSeconds increase|set"]),
    (r"wait.{0,40}(?:gpu is free|terminate|empty|released)|waits until", ["action wait_for_gpu *"]),
    (
        r"nvidia-smi|find the holder|(?:stop|move|free|kill|clos).{0,30}(?:process|tenant|instance)|empty gpu",
        ["action free_gpu *", "action read_gpu_memory *"],
    ),
    (r"one (?:model|pod|engine) per gpu", ["action one_engine_per_gpu *"]),
    (r"own container", ["action one_engine_per_gpu *"]),
    (r"cache daemon", ["action reconfigure_cache_daemon *"]),
    (r"smaller model", ["action smaller_model *"]),
    (r"quanti[sz](?:e|ed|ation)", ["action smaller_quantization *", "flag quantization set"]),
    (
        r"larger (?:gpu|mig|slice|instance)|whole gpu|more gpus?\b|bigger gpu",
        ["action larger_gpu *", "k8s resources.limits.*gpu* increase|set", "k8s resources.limits.*mig* *"],
    ),
    (r"larger node", ["action move_pod *", "action larger_gpu *"]),
    (r"another node|other node|move the pod", ["action move_pod *"]),
    (r"resources\.requests\.memory", ["k8s resources.requests.memory *", _LIMIT_UP]),
    (r"reset the gpu", ["action reset_gpu *"]),
    (r"page cache \(|drop_caches", ["action drop_page_cache *"]),
    (r"usable memory|for the slice", ["action size_for_slice *"]),
    (r"\bupgrade|newer|version (?:that|with)|take the later fix|fixed in", ["action upgrade *"]),
    (
        r"previous (?:image|version|torch)|pin the|older version|go back|downgrade|roll ?back|use image",
        ["action change_version *", "action rollback_revision *"],
    ),
    (r"driver really exposes", ["action check_memory_view *"]),
    (r"driver(?! really)", ["action match_driver *", "action upgrade_driver *"]),
    (r"fabric manager", ["action repair_fabric_manager *"]),
    (r"iommu|\bacs\b|pcie switch", ["action repair_gpu_peering *"]),
    (
        r"attention backend|another (?:quantization|attention)",
        ["action change_kernel_backend *", "env VLLM_ATTENTION_BACKEND *", "flag attention_backend *"],
    ),
    (r"pids|ulimit -u|threads-max", ["action raise_pids_limit *"]),
    (r"memlock|ipc_lock", ["action raise_memlock *"]),
    (r"safetensors|re-?shard", ["action convert_checkpoint *"]),
    (r"pre-?built|kernel cache|\baot\b", ["action prebuild_kernels *"]),
    (r"one after (?:the )?other|stagger", ["action stagger_starts *"]),
    (r"restart.{0,20}before|schedule restarts", ["action restart_before_limit *"]),
    (r"^(?:pod )?restart|retry", ["action restart_pod *"]),
    (r"sender|killing event|who sent|node drain|preempting", ["action find_sender *"]),
    (r"search upward|first (?:error|crash)|earlier in the log|other ranks", ["action read_earlier_log *"]),
    (r"kernel log|dmesg", ["action read_kernel_log *"]),
    (r"free (?:gpu )?memory at that moment", ["action read_gpu_memory *"]),
    (r"nccl_debug", ["action collect_nccl_debug *", "env NCCL_DEBUG set"]),
    (r"licen[cs]e", ["action accept_licence *"]),
    (r"rss|compare .{0,20}process", ["action compare_process_memory *"]),
    (r"working set|anonymous memory", ["action judge_by_anonymous_memory *"]),
    (r"no change", ["action no_change *"]),
    (r"reserved", ["action reserve_node_memory *"]),
    (r"\bpvc\b|volume", ["action use_volume *"]),
    (r"on linux", ["action use_linux *"]),
    (r"disk space", ["action use_volume *"]),
    (r"nccl settings", ["env NCCL_* *"]),
    (r"prefix cach\w* off", ["flag enable_prefix_caching remove"]),
    (r"longer timeout", ["env *TIMEOUT* *"]),
    (r"index 0|visible device|expose ", ["action fix_gpu_visibility *", "env CUDA_VISIBLE_DEVICES set"]),
    (r"fewer|smaller n\b|best_of|do not send|separate replica", ["action limit_requests *"]),
    (r"expandable_segments", ["env PYTORCH_ALLOC_CONF set *expandable_segments:true*"]),
    (r"max_split_size", ["env PYTORCH_ALLOC_CONF set *max_split_size*"]),
    (r"nvidia\.com/gpu: *\d", ["k8s resources.limits.*gpu* increase|set"]),
)
_FLAG = re.compile(r"--(?!ulimit|shm-size|ipc\b)[a-z][\w-]*(?:\.[\w-]+)?")
# A wrong text that speaks of all memory settings at once.
_ALL_MEMORY_SETTINGS = re.compile(r"memory (?:flags|settings)|gpu flags", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"\b(?!IPC_LOCK|NV_ERR)([A-Z][A-Z0-9]*(?:_[A-Za-z0-9]+)+)(?:=(\S+))?")
# Flags whose smaller or larger value is written out as a whole.
_WRITTEN_VALUES = re.compile(
    r"limit-mm|mm-processor|speculative-config|capture-sizes|graph-sizes|compilation"
)
_DIRECTION_WORDS = (
    (r"decreas|lower|reduc|smaller|shrink", "decrease"),
    (r"increas|higher|rais|larger|longer", "increase"),
    (r"remov|\boff\b|drop|disabl|unset", "remove"),
)
_RAISED = re.compile(r"\brais|\bincreas|\bhigher", re.IGNORECASE)
_ALONE = re.compile(r"\b(?:alone|only)\b")
_FIRST = re.compile(r"as (?:the )?first step|\bfirst$")


def _direction(text):
    return next((direction for words, direction in _DIRECTION_WORDS if re.search(words, text, re.I)), "*")


def _of_words(text):
    lowered = text.lower()
    return [pattern for words, patterns in _WORDS if re.search(words, lowered) for pattern in patterns]


def _structured(entry):
    if entry.get("flag"):
        direction = entry.get("direction") or "*"
        if direction == "set":
            # A value that is to be set may be above or below the present one.
            direction = "set|decrease|increase"
        elif _WRITTEN_VALUES.search(entry["flag"]) and direction in ("decrease", "increase"):
            direction += "|set"
        return [f"flag {entry['flag']} {direction}"]
    if entry.get("env"):
        removed = re.search(r"\b(?:remove|unset)", f"{entry.get('direction')} {entry.get('note')}")
        value = str(entry.get("value") or "")
        if "expandable_segments" in value:
            # The same variable with the other value is the opposite change.
            return [f"env {entry['env']} set *{value}*", *([f"env {entry['env']} remove"] if removed else [])]
        return [f"env {entry['env']} {'remove' if removed and not value else '*'}"]
    return None


def map_right(entry):
    """Patterns of one entry of ``expected.recommend`` that nobody reviewed."""
    structured = _structured(entry)
    if structured is not None:
        return structured
    text = str(entry.get("k8s") or entry.get("action") or "")
    named = [f"env {name} *" for name, _value in _ENVIRONMENT.findall(text)]
    return [*_of_words(text), *named, *(f"flag {flag} {_direction(text)}" for flag in _FLAG.findall(text))]


def map_wrong(entry):
    """Patterns of one entry of ``expected.not_to_recommend`` that nobody reviewed."""
    text = str(entry.get("change") or "")
    patterns = [f"flag {flag} {_direction(text)}" for flag in _FLAG.findall(text)]
    patterns += [
        f"env {name} *{f' *{value}*' if value and ':' in value else ''}"
        for name, value in _ENVIRONMENT.findall(text)
    ]
    patterns += [] if patterns else _of_words(text)
    patterns += [*_GPU_MEMORY_FLAGS, _LIMIT_UP] if _ALL_MEMORY_SETTINGS.search(text) else []
    # To look at something is never the wrong thing to do.
    patterns = [pattern for pattern in patterns if not pattern.startswith("action read_")]
    if _RAISED.search(text):
        # To set a limit where none was is another change than to raise one.
        patterns = [pattern.removesuffix("|set") for pattern in patterns]
    qualifier = "alone " if _ALONE.search(text) else "first " if _FIRST.search(text) else ""
    return [qualifier + pattern for pattern in patterns]


# --- The reviewed table -------------------------------------------------------------------------------------------


def show(entry):
    """An entry of a case file as the key that it has in the table."""
    if entry.get("flag"):
        return f"{entry['flag']} {entry.get('direction') or ''}".strip()
    if entry.get("env"):
        value = f"={entry['value']}" if entry.get("value") is not None else ""
        return f"{entry['env']}{value}"
    return str(entry.get("k8s") or entry.get("action") or entry.get("change") or "")


def read_table(path=TABLE):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def answers(case, table):
    """``(right, wrong)``: parsed patterns of ``case``, from ``table`` where it is listed there, else by keywords."""
    expected = case.get("expected") or {}
    listed = table.get(case["id"])
    result = []
    for field, side, mapper in (("recommend", "right", map_right), ("not_to_recommend", "wrong", map_wrong)):
        patterns = []
        for entry in expected.get(field) or []:
            known = listed[side].get(show(entry)) if listed else None
            patterns += mapper(entry) if known is None else known
        result.append([parse_pattern(pattern) for pattern in patterns])
    return tuple(result)
