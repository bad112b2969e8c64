# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known about one run of one container: the facts that the rules of judgement ask for, read once from the evidence."""

from __future__ import annotations

import re

from ..documents import log_lines
from ..engine import defaults, settings, versions
from ..engine.accelerators import devices
from ..quantities import MIB, parse_size, quantity_bytes
from . import deaths, kernel_oom, signatures
from .gpu_holders import Holders
from .times import apart

_MULTIMODAL_NAME = re.compile(
    r"(?i)(?:^|[-_/.])(?:vl|vlm|vision|omni|llava|pixtral|internvl|image|video|multimodal|mm|qwen\d*(?:\.\d+)?-?vl|"
    r"minicpm-v|molmo|phi-?\d?-vision|paligemma|ocr)(?:[-_/.\d]|$)"
)
_MULTIMODAL_LINE = re.compile(r"multi-modal|MM cache hit rate")
MULTIMODAL_OPTIONS = (
    "limit_mm_per_prompt",
    "mm_encoder_tp_mode",
    "mm_processor_kwargs",
    "mm_processor_cache_gb",
    "skip_mm_profiling",
)
# A log without a version line: the default that held for the longest time (up to 0.19) is taken.
_VERSION_IF_UNKNOWN = (0, 9, 0)
_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")

# What comes between the load of a start and its serving.
_ON_THE_WAY = ("profile", "kv_init", "graph_capture", "warmup")

# Functions in a traceback that say where a start-up stood: the innermost known one decides (vLLM V0 and V1).
_FRAME_PHASES = (
    (("wake_up", "create_and_map"), "serving"),
    # The profile run captures and warms up too, but never the other way round.
    (
        (
            "profile_run",
            "determine_num_available_blocks",
            "determine_available_memory",
            "profile_cudagraph_memory",
        ),
        "profile",
    ),
    (
        (
            "capture_model",
            "warm_up_model",
            "capture_graph",
            "_capture_cudagraphs",
            "graph_capture",
            "capture",
            "capture_begin",
            "capture_end",
            "graph",
        ),
        "graph_capture",
    ),
    (("_dummy_sampler_run", "_dummy_pooler_run", "compile_or_warm_up_model", "kernel_warmup"), "warmup"),
    (("_dummy_run",), "profile"),
    (
        (
            "_allocate_kv_cache",
            "_allocate_kv_cache_tensors",
            "allocate_cpu_cache",
            "allocate_gpu_cache",
            "_allocate_kv_cache_from_config",
            "initialize_kv_cache",
            "initialize_cache",
            "initialize_from_config",
            "_init_cache_engine",
        ),
        "kv_init",
    ),
    (
        ("load_model", "load_weights", "create_weights", "make_layers", "process_weights_after_loading"),
        "load",
    ),
    (
        (
            "execute_model",
            "sample_tokens",
            "_get_prompt_logprobs_dict",
            "compute_logprobs",
            "step",
            "step_async",
            "engine_step",
            "run_engine_loop",
            "run_busy_loop",
            "_process_engine_step",
            "step_with_batch_queue",
            "_run_workers_async",
            "add_request",
            "generate",
        ),
        "serving",
    ),
    (("init_device", "init_worker_distributed_environment", "init_distributed_environment"), "load"),
)
# Lines that only one phase prints, beside the markers that the scanner keeps.
_PHASE_LINES = (
    (
        re.compile(r'Avg (?:prompt|generation) throughput|"(?:POST|GET) /v1/|Exception in ASGI application'),
        "serving",
    ),
    (re.compile(r"length used for profiling \(max_num_batched_tokens|Starting profile run"), "profile"),
)
# What an engine that was serving prints when it dies; a start that fails has other words.
_DIED_SERVING = re.compile(
    r"EngineCore encountered a fatal error|EngineCore encountered an issue|Dumping (?:input data|scheduler)|EngineDeadError|"
    r"AsyncLLM output_handler failed|failed \(engine dead\)|Background loop has errored"
)
_FAILED_START = re.compile(
    r"[Ii]nitialization failed|failed to start|failed during engine core initialization"
)
# Function names in a pasted traceback, whatever became of its prefixes: "in NAME" of a frame, ".NAME(" of its source line.
_TRACEBACK_NAME = re.compile(r"line \d+, in (\w+)|\.(\w+)\(")
_LISTED_ALLOCATOR = re.compile(r"^(?:export )?(PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)=(\S+)")
# Terminals wrap at 80 columns and more; the prefix of the line is gone from its text.
_WRAPPED_FROM = 60
_SOURCE_LINE = re.compile(r"\s*(?:raise|assert|return|self\.\w+\(|super\()")
_COMPUTING = re.compile(r"(?:^|_)(?:forward|sdpa|attn|attention|mlp|logits)(?:_|$)")
_ROLLING_UPDATE = re.compile(r"rolling update|Scaled down replica set", re.IGNORECASE)
_PASTED_COUNTER = re.compile(
    r"^(?P<name>memory\.(?:current|peak|max)|anon|file|shmem)[ :=]+(?P<value>[\d.]+)\s*(?P<unit>[KMGT]?i?B)?\b"
)
_PASTED_SMI = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_MEMLOCK_TABLE = re.compile(r"Max locked memory\s+(\d+)")
_MEM_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")
_PASTED_THROTTLED = re.compile(
    r"throttled_periods(?:_total)?.{0,80}?(?:~|=|≈|:)\s*(?P<share>[01](?:\.\d+)?)\b|nr_throttled\s+(?P<throttled>\d+)"
)
_PASTED_PERIODS = re.compile(r"^nr_periods\s+(?P<periods>\d+)")


def _without_stragglers(phases):
    """The phases without those of a start that come after its serving began.

    Standard output (uvicorn) and standard error (vLLM) reach the log by two ways, so neighbours may change places.
    """
    serving = False
    for number, phase in phases:
        if phase in _ON_THE_WAY and serving:
            continue
        serving = phase == "serving"
        yield number, phase


class Facts:
    """The facts of one attempt of one container.

    ``source``: where the evidence came from (a path, for a bundle), or None; ``budget``: the attempt's entry of the memory
    budget, or None; ``pods``: ``{uid: "namespace/name"}`` of all pods that were seen; ``holders``: who holds GPU memory beside it;
    ``lines``: the kept log lines in order (dicts
    of documents.line); ``matches``: list of ``(line, Match)`` with the strongest catalogue row of each line that has one.
    """

    def __init__(self, pod, container, attempt, node=None, sisters=(), source=None, budget=None, pods=None):
        self.pod = pod
        self.budget = budget
        self.container = container
        self.attempt = attempt
        self.node = node or {}
        self.sisters = list(sisters)
        self.source = source
        self.engine = container.get("engine") or {}
        self.settings = container.get("settings") or {}
        self.version = versions.parse_version(self.engine.get("version"))
        self.log = attempt.get("log") or {}
        self.lines = log_lines(self.log)
        self.matches = _matches(self.lines)
        self.death = deaths.death(pod, container, attempt, node)
        self.holders = Holders(pod, container, attempt, node, pods)

    # -- settings ---------------------------------------------------------------------------------------------------

    def setting(self, name):
        """The value of an engine option or environment variable, or None."""
        return (self.settings.get(name) or {}).get("value")

    def given(self, name):
        """The value of an option that somebody set (not vLLM's default), or None."""
        entry = self.settings.get(name) or {}
        return entry.get("value") if entry.get("from") != "default" else None

    def env(self, name):
        """The value of an environment variable of the container, or None."""
        value = self.setting(name)
        if value is not None:
            return value
        for item in self.container.get("env") or []:
            if item.get("name") == name:
                return item.get("value")
        return None

    def number_setting(self, name):
        """An option's value as a number, or None."""
        try:
            return float(self.setting(name))
        except (TypeError, ValueError):
            return None

    @property
    def generation(self):
        """The engine's generation, V0 or V1, or None."""
        return settings.engine_generation(self.version, self.settings, self.log.get("arguments") or ())

    @property
    def utilization(self):
        """gpu_memory_utilization in force: as set, else the version's default (0.90, from 0.20 on 0.92)."""
        value = self.number_setting("gpu_memory_utilization")
        if value is None:
            value = defaults.default_of("gpu_memory_utilization", self.version or _VERSION_IF_UNKNOWN)
        return value

    @property
    def tensor_parallel(self):
        return int(self.number_setting("tensor_parallel_size") or 1)

    @property
    def world_size(self):
        return self.tensor_parallel * int(self.number_setting("pipeline_parallel_size") or 1)

    @property
    def allocator_conf(self):
        """``(variable, value)`` of the torch allocator setting in force, or ``(None, "")``."""
        for name in _ALLOCATOR_VARIABLES:
            value = self.env(name)
            if value:
                return name, str(value)
        for line in self.lines:
            listed = _LISTED_ALLOCATOR.match(line["text"])
            if listed:
                return listed.group(1), listed.group(2)
        return None, ""

    @property
    def fixed_kv(self):
        """The option that fixes the KV cache size, or None: it takes the utilization out of the sizing."""
        for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"):
            if self.given(name) is not None:
                return name
        return None

    @property
    def sleep_mode(self):
        return self.setting("enable_sleep_mode") in (True, "true", "True", "1", "", 1)

    @property
    def multimodal(self):
        """Whether the model takes images, audio or video, by its options, its name or its log."""
        if any(self.given(name) is not None for name in MULTIMODAL_OPTIONS):
            return True
        if _MULTIMODAL_NAME.search(str(self.setting("model") or "")):
            return True
        return self.said("encoder_budget") or any(
            _MULTIMODAL_LINE.search(line["text"]) for line in self.lines
        )

    # -- device -----------------------------------------------------------------------------------------------------

    @property
    def accelerator(self):
        return self.engine.get("accelerator")

    @property
    def unified(self):
        """Whether GPU and host share one memory."""
        return bool((self.node.get("gpu") or {}).get("unified"))

    @property
    def mig(self):
        """Whether the container runs on a MIG slice."""
        limits = (self.container.get("resources") or {}).get("limits") or {}
        gpu = self.node.get("gpu") or {}
        return (
            any(name.startswith("nvidia.com/mig-") for name in limits)
            or "MIG" in str(gpu.get("product") or "")
            or self.said("mig_slice_listed")
        )

    @property
    def vgpu(self):
        return self.said("vgpu_shim_error") or "vGPU" in str(
            (self.node.get("gpu") or {}).get("product") or ""
        )

    @property
    def gpu_total(self):
        """Memory of one GPU in bytes: as the log says, else as the node's labels say, or None."""
        logged = self.number("gpu_total")
        return logged if logged is not None else (self.node.get("gpu") or {}).get("memory_bytes")

    @property
    def gpu_used_samples(self):
        """Bytes of GPU memory in use in the order of the pasted nvidia-smi lines of one card's size; empty when cards differ."""
        pairs = [pair for line in self.lines for pair in _PASTED_SMI.findall(line["text"])]
        return (
            [int(used) * MIB for used, _total in pairs] if len({total for _used, total in pairs}) == 1 else []
        )

    def used_before(self, line):
        """Share of a GPU in use by an nvidia-smi row that was pasted before ``line``, or None."""
        for other in self.lines:
            if other["line"] >= line["line"]:
                return None
            for used, total in _PASTED_SMI.findall(other["text"]):
                if int(total):
                    return int(used) / int(total)
        return None

    @property
    def gpu_use_rose(self):
        """``(first, last)`` bytes of at least three pasted nvidia-smi samples that only rise, by a tenth or more; else None."""
        used = self.gpu_used_samples
        rose = len(used) >= 3 and used == sorted(used) and used[-1] >= 1.1 * used[0]
        return (used[0], used[-1]) if rose else None

    def served_for(self, line):
        """Seconds from the end of the start-up to ``line`` by the log's own stamps, or the attempt's length, or None."""
        ready = next((item for item in self.log.get("markers") or [] if item["phase"] == "serving"), None)
        between = apart(ready.get("time"), line.get("time")) if ready else None
        return self.death.get("seconds") if between is None else between

    @property
    def gpu_used_seen(self):
        """The largest share of a GPU's memory in use that a pasted nvidia-smi table shows (0-1), or None."""
        shares = [
            int(used) / int(total)
            for line in self.lines
            for used, total in _PASTED_SMI.findall(line["text"])
            if int(total)
        ]
        return max(shares) if shares else None

    @property
    def gpus(self):
        """How many accelerators the container was given, or None."""
        limits = (self.container.get("resources") or {}).get("limits") or {}
        return devices(limits, parts=True)

    # -- log --------------------------------------------------------------------------------------------------------

    def said(self, *signature_ids):
        """Whether a line matched one of these rows as its strongest."""
        return any(row.signature.id in signature_ids for _line, row in self.matches)

    def first(self, *signature_ids):
        """The first ``(line, Match)`` of these rows, or None."""
        for line, row in self.matches:
            if row.signature.id in signature_ids:
                return line, row
        return None

    def mentions(self, pattern):
        """Whether any kept line, frame or context line matches ``pattern`` (a compiled regular expression)."""
        return any(
            pattern.search(line["text"])
            or any(pattern.search(str(frame)) for frame in line.get("frames") or [])
            or any(pattern.search(str(near)) for near in line.get("context") or [])
            for line in self.lines
        )

    def number(self, name):
        """The last value of a memory number that the log gives, or None."""
        values = [item["value"] for item in self.log.get("numbers") or [] if item.get("name") == name]
        return values[-1] if values else None

    @property
    def phases(self):
        """``(line number, phase that runs from there on)`` in log order: the markers, and lines that only a server prints."""
        found = [(marker["line"], marker["phase"]) for marker in self.log.get("markers") or []]
        found += [
            (line["line"], phase)
            for line in self.lines
            for pattern, phase in _PHASE_LINES
            if pattern.search(line["text"])
        ]
        return list(_without_stragglers(sorted(found)))

    def phase_at(self, number):
        """The phase that the engine had reached at log line ``number``, or ``unknown``."""
        phase = "unknown"
        for start, begun in self.phases:
            if number is not None and start > number:
                break
            phase = begun
        return phase

    @property
    def died_serving(self):
        """Whether the engine's last words are those of one that was serving, wherever in the log they stand."""
        return self.mentions(_DIED_SERVING) and not self.mentions(_FAILED_START)

    @property
    def serving_seen(self):
        return any(phase == "serving" for _start, phase in self.phases)

    @property
    def last_phase(self):
        """The last phase before the shutdown, or ``unknown``."""
        return next((phase for _start, phase in reversed(self.phases) if phase != "shutdown"), "unknown")

    def traceback_phase(self, line):
        """The phase that the traceback of ``line`` shows, by its own frames or what stands just before and after it.

        ``compute``: a forward pass, of requests or of the profile run. None: it shows nothing.
        """
        own = list(line.get("frames") or [])
        # With frames of its own only the source lines right above may add to them: the innermost call has no frame yet.
        before, after = (14, 1) if frame_phase(own) else (40, 30)
        names = own + [
            {"function": name}
            for other in self.lines
            if line["line"] - before <= other["line"] <= line["line"] + after
            for pair in _TRACEBACK_NAME.findall(other["text"])
            for name in pair
            if name
        ]
        phase = frame_phase(names)
        computing = any(_COMPUTING.search(str(item.get("function") or "")) for item in names)
        return phase or ("compute" if computing else None)

    def near(self, line, before=12):
        """The texts of ``line``, of the lines just before it, of its context and its frames, as one string to search in."""
        around = [
            other["text"] for other in self.lines if line["line"] - before <= other["line"] <= line["line"]
        ]
        return "\n".join([*around, *(str(item) for item in line.get("context") or []), frame_functions(line)])

    # -- host -------------------------------------------------------------------------------------------------------

    @property
    def memory_limit(self):
        """The container's memory limit in bytes, as its spec or the kernel's report says, or None."""
        limits = (self.container.get("resources") or {}).get("limits") or {}
        stated = quantity_bytes(limits.get("memory"))
        return stated if stated is not None else (self.death.get("kernel") or {}).get("limit")

    @property
    def host_memory(self):
        """Measured host memory ``{usage, peak, anon, file, shmem, limit}`` in bytes: the cgroup's counters, else the kernel's report
        of the kill, else what was pasted into the log."""
        counters = dict((self.attempt.get("cgroup") or {}).get("memory") or {})
        report = self.death.get("kernel")
        if report and report["scope"] != "node":
            for name, size in kernel_oom.held(report).items():
                if counters.get(name) is None:
                    counters[name] = size
        names = {"memory.current": "usage", "memory.peak": "peak", "memory.max": "limit"}
        for line in self.lines:
            pasted = _PASTED_COUNTER.match(line["text"])
            if pasted:
                name = names.get(pasted["name"], pasted["name"])
                size = (
                    parse_size(f"{pasted['value']} {pasted['unit']}")
                    if pasted["unit"]
                    else float(pasted["value"])
                )
                if counters.get(name) is None and size is not None:
                    counters[name] = int(size)
        return {name: value for name, value in counters.items() if value is not None}

    @property
    def memlock(self):
        """The memlock limit in bytes that was pasted into the log (``ulimit -l`` in KiB, or a limits table), or None."""
        asked = False
        for line in self.lines:
            table = _MEMLOCK_TABLE.search(line["text"])
            if table:
                return int(table.group(1))
            if asked and line["text"].strip().isdigit():
                return int(line["text"]) * 1024
            asked = "ulimit -l" in line["text"]
        return None

    @property
    def mem_available(self):
        """The host's available memory in bytes by a pasted /proc/meminfo, or None."""
        for line in self.lines:
            found = _MEM_AVAILABLE.match(line["text"].strip())
            if found:
                return int(found.group(1)) * 1024
        return None

    @property
    def throttled_share(self):
        """Share of CPU periods in which the container was throttled (0-1), or None."""
        cpu = (self.attempt.get("cgroup") or {}).get("cpu") or {}
        throttled, periods = cpu.get("throttled"), cpu.get("periods")
        for line in self.lines:
            hit = _PASTED_THROTTLED.search(line["text"])
            if hit and hit["share"]:
                return float(hit["share"])
            if hit and hit["throttled"] and throttled is None:
                throttled = int(hit["throttled"])
            hit = _PASTED_PERIODS.match(line["text"])
            if hit and periods is None:
                periods = int(hit["periods"])
        return throttled / periods if throttled is not None and periods else None

    @property
    def rollout(self):
        """Whether another pod of the same workload was leaving this node while the container started."""
        node = self.pod.get("node")
        leaving = any(
            sister.get("deleted_at") and node and sister.get("node") == node for sister in self.sisters
        )
        told = any(
            _ROLLING_UPDATE.search(event.get("message") or "") for event in self.pod.get("events") or []
        )
        return leaving or told

    @property
    def restarts(self):
        return self.container.get("restart_count")


def _matches(lines):
    """``(line, Match)`` of every line that a catalogue row fits; source lines of a traceback only where they are all there is.

    A traceback quotes the code that raises, message included: the exception's own line is the better witness.
    """
    matched = []
    for number, line in enumerate(lines):
        row = signatures.best(line["text"]) or _rejoined(line, lines[number + 1 : number + 4])
        if row:
            matched.append((line, row))
    known = {row.signature.id for line, row in matched if not _SOURCE_LINE.match(line["text"])}
    return [
        (line, row)
        for line, row in matched
        if not _SOURCE_LINE.match(line["text"]) or row.signature.id not in known
    ]


def _rejoined(line, following):
    """The match of a message that a terminal or a chat has broken over up to four lines, or None."""
    text, last = line["text"], line
    for piece in following[:3]:
        broken = len(last["text"]) >= _WRAPPED_FROM and piece["line"] == last["line"] + 1
        own = (
            piece.get("level")
            or piece.get("origin")
            or piece.get("process") not in (None, line.get("process"))
        )
        if not broken or own or signatures.best(piece["text"]):
            return None
        # A terminal breaks within words, a chat between them.
        for joined in (text + piece["text"], f"{text} {piece['text']}"):
            row = signatures.best(joined)
            if row:
                return row
        text, last = text + piece["text"], piece
    return None


def frame_phase(frames):
    """The phase that a traceback's frames show, or None. ``frames``: list of ``{file, line, function}``, outermost first."""
    names = [str(frame.get("function") or "") for frame in frames or []]
    for functions, phase in _FRAME_PHASES:
        if any(name in functions for name in names):
            return phase
    return None


def frame_functions(line):
    """The functions of a line's frames, as one string to search in."""
    return " ".join(f"{frame.get('file')}:{frame.get('function')}" for frame in line.get("frames") or [])
