# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU memory budget of a start, by vLLM's version (vllm-memory, section 5).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from math import ceil, isfinite

from ..engine.defaults import default_of, default_runner_is_v2, engine_generation
from ..engine.versions import in_range, parse_version
from ..quantities import GIB
from .activation import Load, activation_peak, graph_memory, non_torch
from .architecture import default_length, layer_list
from .config_fields import note
from .kv_cache import KvCache
from .refusals import refusals
from .weights import draft_bytes, encoder_split, lora_bytes, parallel_error, weights

# Beyond this share a measured and a modelled number contradict each other.
CONTRADICTION = 0.05
# Of the mean weights error on the development reports; a file's size is exact.
_WEIGHTS_ERROR = 0.01
# Of a quantization that only the checkpoint's name tells: makers leave out different layers (public reports: up to 22 %).
_GUESSED_ERROR = 0.1
_STATE_KINDS = ("mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "short_conv")
_LONG_CONTEXT = 32768
# Whose defaults an unknown version is given.
_NEWEST = "0.33"
_FALLBACK = {"max_num_batched_tokens": 8192, "max_num_seqs": 256}
# Families whose images and videos aren't split over steps: a default below the largest one's tokens is raised to them.
_LEAST_TOKENS = {"gemma4": 2496}
# What the profile is made of: its name in ``measured`` and here.
NAMES = ("weights", "activation_peak", "non_torch", "graph", "kv_available")


# Section 5.2: engine, first and last release, what the KV memory is. W weights, A activation peak, N memory outside
# torch, G graphs; F0, F1: free before and after the profile run.
_RULES = (
    ("V0", None, "0.6.2", "total x utilization - (F0 - F1), torch's cache included"),
    (
        "V0",
        "0.6.3",
        "0.6.4",
        "total x utilization - (torch's peak + all else on the GPU, other processes too)",
    ),
    ("V0", "0.6.5", "0.10.2", "total x utilization - W - A - N"),
    ("V1", None, "0.9.0", "total x utilization - (torch's peak + all else on the GPU, other processes too)"),
    ("V1", "0.9.1", "0.10.2", "total x utilization - (W + A + N), NCCL's buffers in N"),
    ("V1", "0.11.0", "0.19", "total x utilization - (W + A + N), context and NCCL before F0"),
    ("V1", "0.20.0", "0.26", "total x utilization - (W + A + N) - G"),
    ("V1", "0.27", None, "total x utilization - (F0 - F1) - transient part of A - G"),
)


# Taken before vLLM first looks at the free memory: the context and, from 0.11 with several ranks, NCCL's buffers.
# (GiB, error), from total - free of 34 development reports; without NVLink from the context and the most that a start
# on two RTX 3090 at 0.95 can have left.
_BEFORE = {"one GPU": (0.51, 0.1), "several GPUs": (1.8, 0.7), "unlinked": (0.8, 0.4)}


class BudgetError(ValueError):
    """The settings describe no start; the text says what is wrong."""


def budget(arch, gpu, settings, version=None, measured=None, known=None):
    """The start-up budget of one rank as plain data.

    arch: of ``architecture``; gpu: ``{total_bytes, free_bytes, name, compute_capability, nvlink, unified}`` (free_bytes at
    the start; each may be missing); settings: vLLM's options by name (``tensor_parallel_size``, ``max_model_len`` ...; what is
    missing takes the version's default) and beside them ``engine`` (V0 or V1), ``speculative_tokens``,
    ``draft_layers`` (in-checkpoint drafts that run), ``draft`` (an architecture), ``encoder`` (as ``weights``) and
    ``checkpoint_bytes``, ``spare_bytes`` (what must remain beyond need),
    ``estimate_graphs`` (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS), ``v2_runner``;
    measured: bytes that a log gave, any of ``weights, activation_peak, non_torch, graph, graph_estimated,
    kv_available``, one rank's; known: an empty dict that a search passes to all its calls for one arch and version,
    so that weights, peaks and KV layout are computed once for equal settings.

    Returns ``{segments, ranks, settings, capacity, available_kv, available_kv_error, outside, fits, problems, kv,
    weights, contradictions, assumptions}``:

    - segments: ``[{name, bytes, proof: measured|modelled|set, formula, error_bytes, in_budget}]`` of the rank with
      the least room (of a pipeline with measured numbers: of its first stage); with ``kv_available`` those in the
      budget add up to what is requested, to the byte, wherever the KV memory is neither measured nor set and no
      other process is counted;
    - ranks: ``{count, shown: the stage that segments are of, stages: [{weights, activation_peak, kv_available}]}``,
      modelled but for the KV memory;
    - available_kv: what decides the number of blocks: the least room of all stages, in bytes of the layers of the stage that keeps most;
    - settings: ``{NAME: value}`` of those that count most, as used (set or the version's default);
    - outside: what stays on the card beside what the budget holds, of the stage shown: ``{bytes, graphs, margin,
      error_bytes}``, graphs: those that no budget counts, margin: bytes less graphs (below 0: an out-of-memory error at
      graph capture or in serving is to be expected), error_bytes: the margin's; None where total or KV memory isn't known;
    - capacity: ``{total, utilization, requested, free, free_check: True|False|None}``;
    - fits: True, False or None (no length is known); problems: sentences;
    - kv: ``KvCache.report``; contradictions: ``[{name, measured, modelled, difference}]`` over 5 %.

    Raises BudgetError for settings that no start could have.
    """
    known = {} if known is None else known
    return _Budget(arch, gpu, settings, version, dict(measured or {}), known).result()


def requested_bytes(total, utilization, version=None):
    """``total x utilization`` as vLLM rounds it: up from 0.14, down before."""
    product = total * utilization
    return ceil(product) if in_range(version, "0.14") is not False else int(product)


def rule(version=None, generation="V1"):
    """How that version and engine compute the KV memory, in words; of an unknown version: the newest's."""
    rows = [row for row in _RULES if row[0] == generation]
    return next((row for row in rows if in_range(version, row[1], row[2])), rows[-1])[3]


def graphs_subtracted(version, generation="V1", estimate=None, runner2=False):
    """Whether the graph estimate is taken off the KV memory. estimate: the environment's value (bool) or None."""
    if generation == "V0" or in_range(version, "0.18") is False:
        return False
    if runner2 and in_range(version, "0.22", "0.28"):
        return False
    if estimate is not None:
        return bool(estimate)
    return in_range(version, "0.20") is not False


class _Budget:
    def __init__(self, arch, gpu, settings, version, measured, known):
        self.arch, self.gpu, self.settings = arch, gpu or {}, settings or {}
        self.version, self.measured, self.known = parse_version(version), measured, known
        self.assumptions: list[str] = []
        self.problems: list[str] = []
        self.contradictions: list[dict] = []
        given = self.settings.get("engine")
        self.generation = given if given in ("V0", "V1") else engine_generation(self.version) or "V1"
        if self.version is None:
            note(self.assumptions, "vLLM's version isn't known: the newest rules are taken")
        self.tp = self._whole("tensor_parallel_size", 1)
        self.pp = self._whole("pipeline_parallel_size", 1)
        self.dp = self._whole("data_parallel_size", 1)
        self.length = self._whole("max_model_len", None) or default_length(arch, self.version)
        self.total = self._bytes("total")
        self.free = self._bytes("free")
        self.utilization = self._utilization()
        self.towers = not self.settings.get("language_model_only") and self.settings.get("encoder") != "none"
        self.load = self._load()

    # --- settings ---

    def _whole(self, name, otherwise):
        value = self.settings.get(name)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BudgetError(f"{name} is a whole number from 1 on, not {value!r}")
        return value

    def _bytes(self, name):
        value = self.gpu.get(f"{name}_bytes")
        if value is None:
            return None
        least = 1 if name == "total" else 0
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not least <= value < float("inf"):
            raise BudgetError(f"the GPU's {name} memory is a number of bytes from {least} on, not {value!r}")
        return int(value)

    def _utilization(self):
        value = self.settings.get("gpu_memory_utilization")
        if value is None:
            value = default_of("gpu_memory_utilization", self.version)
            if value is None:
                value = 0.9 if self.generation == "V0" else 0.92
                note(self.assumptions, f"gpu_memory_utilization is taken as {value}: the version isn't known")
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise BudgetError(f"gpu_memory_utilization is a number, not {value!r}")
        if not 0 < value <= 1:
            raise BudgetError(f"gpu_memory_utilization lies above 0 and up to 1, not {value}")
        return value

    def _batch(self, name):
        value = self._whole(name, None)
        if value is not None:
            return value
        if self.generation == "V0" and name == "max_num_batched_tokens":
            return self._v0_batch()
        known = self.version is not None
        value = default_of(
            name,
            self.version if known else _NEWEST,
            self.generation,
            gpu_memory_bytes=self.total,
            gpu_name=self.gpu.get("name"),
            usage="server",
            max_model_len=self.length,
        )
        if value is None or not known:
            value = value or _FALLBACK[name]
            note(self.assumptions, f"{name} is taken as {value}: version or GPU leave the default open")
        if name == "max_num_batched_tokens" and self.settings.get("enable_chunked_prefill") is False:
            # Whole prompts must fit one step (vllm-memory 7.3).
            value = max(value, self.length or 0)
        if name == "max_num_batched_tokens" and in_range(self.version, "0.20") is not False:
            value = max(value, _LEAST_TOKENS.get(self.arch["outer_type"], 0))
        return value

    def _v0_batch(self):
        """V0 prefills whole prompts up to 32k of context and in chunks beyond (vllm-memory 7.3)."""
        chunked = self.settings.get("enable_chunked_prefill")
        if chunked is None:
            chunked = bool(self.length and self.length > _LONG_CONTEXT)
        return 2048 if chunked or not self.length else max(self.length, 2048)

    def _runner2(self):
        given = self.settings.get("v2_runner")
        if given is not None:
            return bool(given)
        layers = layer_list(self.arch)
        kinds = [(layer["attention"] or {}).get("kind") for layer in layers]
        facts = {
            "architecture": next(iter(self.arch["architectures"]), None),
            "quantized": bool(self.settings.get("quantization") or self.arch["quantization"]),
            "moe": any(layer["mlp"] and layer["mlp"]["kind"] == "moe" for layer in layers),
            "hybrid": any(kind in _STATE_KINDS or kind == "parallel" for kind in kinds),
        }
        return bool(default_runner_is_v2(self.version, facts))

    def _load(self):
        setting = self.settings.get
        return Load(
            tokens=self._batch("max_num_batched_tokens"),
            seqs=self._batch("max_num_seqs"),
            version=self.version,
            generation=self.generation,
            tp=self.tp,
            pp=self.pp,
            dp=self.dp,
            dtype=setting("dtype"),
            expert_parallel=bool(setting("enable_expert_parallel")),
            max_model_len=self.length,
            runner2=self._runner2(),
            encoder=self.towers and not _no_inputs(setting("limit_mm_per_prompt"), self.arch),
            graphs=not setting("enforce_eager"),
            nvlink=self.gpu.get("nvlink"),
            unified=bool(self.gpu.get("unified")),
            capability=_capability_pair(self.gpu.get("compute_capability")),
            sizes=len(setting("cudagraph_capture_sizes") or ()) or None,
        )

    # --- parts ---

    def _once(self, build, *args, **options):
        """``build(*args, **options)``, of equal ones of a search the first result."""
        key = (build, *map(_identity, args), *((name, _identity(value)) for name, value in options.items()))
        if key not in self.known:
            # What is only known by its identity must live as long as the key.
            self.known[key] = (build(*args, **options), args, options)
        return self.known[key][0]

    def _weights(self):
        """(bytes of LoRA slots and a draft model less what is offloaded, what ``weights`` gives)."""
        setting = self.settings.get
        error = parallel_error(self.arch, self.tp)
        if error:
            self.problems.append(error)
        encoder = setting("encoder") or encoder_split(setting("model"), setting("mm_encoder_tp_mode"))
        result = self._once(
            weights,
            self.arch,
            quantization=setting("quantization"),
            dtype=setting("dtype"),
            tp=self.tp,
            pp=self.pp,
            dp=self.dp,
            expert_parallel=self.load.expert_parallel,
            version=self.version,
            checkpoint_bytes=setting("checkpoint_bytes"),
            draft=bool(setting("draft_layers")),
            encoder=encoder if self.towers else "none",
        )
        size = 0
        if setting("enable_lora"):
            size += self._once(
                lora_bytes,
                self.arch,
                self.tp,
                setting("max_loras") or 1,
                setting("max_lora_rank") or 16,
                fully_sharded=bool(setting("fully_sharded_loras")),
                version=self.version,
                expert_parallel=self.load.expert_parallel,
            )
        if setting("draft"):
            size += self._once(
                draft_bytes,
                setting("draft"),
                self.arch,
                self.tp,
                self.pp,
                dtype=setting("dtype"),
                version=self.version,
            )
        return size - self._offloaded(result["parts"]), result

    def _offloaded(self, parts):
        """Bytes that --cpu-offload-gb keeps on the host: of the layers' weights, not of embedding and head."""
        offload = self.settings.get("cpu_offload_gb")
        if not offload or in_range(self.version, "0.5.5") is False:
            return 0
        if (
            isinstance(offload, bool)
            or not isinstance(offload, (int, float))
            or not 0 < offload < float("inf")
        ):
            raise BudgetError(f"cpu_offload_gb is a number of GiB from 0 on, not {offload!r}")
        return min(int(offload * GIB), sum(parts[name] for name in ("attention", "mlp", "experts")))

    def _cache(self):
        setting = self.settings.get
        return self._once(
            KvCache,
            self.arch,
            kv_cache_dtype=setting("kv_cache_dtype"),
            dtype=setting("dtype"),
            tp=self.tp,
            pp=self.pp,
            dcp=self._whole("decode_context_parallel_size", 1),
            pcp=self._whole("prefill_context_parallel_size", 1),
            version=self.version,
            generation=self.generation,
            block_size=self._whole("block_size", None),
            batched_tokens=self.load.tokens,
            prefix_caching=setting("enable_prefix_caching"),
            speculative_tokens=setting("speculative_tokens") or 0,
            draft_layers=setting("draft_layers") or 0,
            draft=setting("draft"),
            mamba_mode=setting("mamba_cache_mode"),
            mamba_state_dtype=setting("mamba_ssm_cache_dtype"),
            hybrid_disabled=bool(setting("disable_hybrid_kv_cache_manager")),
            async_scheduling=setting("async_scheduling"),
            capability=_capability_pair(self.gpu.get("compute_capability")),
            skip_layers=_listed(setting("kv_cache_dtype_skip_layers")),
        )

    def _segment(self, name, modelled, error, formula, key=None, in_budget=True):
        """One segment: what a log measured beats the model; a difference over 5 % is said."""
        given = self.measured.get(key or name)
        proof, size = "modelled", int(modelled)
        if given is not None:
            proof, size, error = "measured", int(given), 0
            self._compare(name, size, int(modelled))
        return {
            "name": name,
            "bytes": size,
            "proof": proof,
            "formula": formula,
            "error_bytes": int(error),
            "in_budget": in_budget,
        }

    def _compare(self, name, measured, modelled):
        difference = (modelled - measured) / abs(measured) if measured else None
        if difference is None or abs(difference) > CONTRADICTION:
            self.contradictions.append(
                {"name": name, "measured": measured, "modelled": modelled, "difference": difference}
            )

    def _graph(self, subtracted):
        estimated = subtracted and self.measured.get("graph_estimated") is not None
        key = "graph_estimated" if estimated else "graph"
        model = graph_memory(self.arch, self.load, subtracted)
        formula = model.formula + ("" if subtracted else "; not taken off the KV memory by this version")
        return self._segment("graph", model.bytes, model.error_bytes, formula, key, subtracted)

    # --- the sum ---

    def result(self):
        extra, weighed = self._weights()
        self.load = self.load._replace(quantization=weighed["quantization"])
        peaks = [
            self._once(activation_peak, self.arch, self.load, stage == self.pp - 1)
            for stage in range(self.pp)
        ]
        stages = [size + extra for size in weighed["stages"]]
        sums = [size + peak.bytes for size, peak in zip(stages, peaks)]
        # The number of blocks is that of the stage with the least room; a log's first numbers are the first stage's.
        least = sums.index(max(sums))
        stage = 0 if self.pp > 1 and self.measured.keys() & {"weights", "activation_peak"} else least
        size = stages[stage]
        for text in weighed["assumptions"]:
            note(self.assumptions, text)
        subtracted = graphs_subtracted(
            self.version, self.generation, self.settings.get("estimate_graphs"), self.load.runner2
        )
        formula = f"weights of one rank ({weighed['quantization']}, {weighed['source']})"
        share = _GUESSED_ERROR if self.settings.get("quantization_guessed") else _WEIGHTS_ERROR
        segments = [self._segment("weights", size, size * share, formula)]
        for name, model in (
            ("activation_peak", peaks[stage]),
            ("non_torch", non_torch(self.load)),
        ):
            segments.append(self._segment(name, model.bytes, model.error_bytes, model.formula))
        segments.append(self._graph(subtracted))
        images = self.settings.get("mm_ipc_gpu_memory_gb")
        if images and in_range(self.version, "0.25") is not False:
            formula = "mm_ipc_gpu_memory_gb: room for images that the frontend decodes"
            segments.append(dict(self._fixed("frontend_images", int(images * GIB), formula), proof="set"))
        capacity = self._capacity()
        kv_segment = self._available(segments, capacity)
        segments.append(kv_segment)
        cache = self._cache()
        capability = _capability_pair(self.gpu.get("compute_capability"))
        own = default_length(self.arch, self.version)
        self.problems += refusals(self.settings, self._used(), own, capability, self.gpu.get("name"))
        rooms = self._rooms(kv_segment, [total - sums[stage] for total in sums])
        available = None
        if kv_segment["bytes"] is not None:
            # The fewest blocks of all stages, each in its own layers' bytes; a stage without KV layers has none.
            shares = [cache.share_of_stage(number) for number in range(self.pp)]
            available = min(
                int(room / share) if room > 0 else room for room, share in zip(rooms, shares) if share
            )
        override = self._whole("num_gpu_blocks_override", None)
        # What must be left over besides: a search leaves the model's error.
        sure = None if available is None else available - (self.settings.get("spare_bytes") or 0)
        report = None if sure is None else cache.report(max(0, sure), self.length, override)
        for text in cache.assumptions:
            note(self.assumptions, text)
        pool = override * cache.bytes_per_block if override else kv_segment["bytes"]
        held = sum(
            segment["bytes"] for segment in segments if segment["in_budget"] and segment is not kv_segment
        )
        outside = self._outside(segments, capacity, held, pool)
        fits = self._verdict(sure, capacity, report, override, segments[0]["bytes"], pool)
        return {
            "segments": segments,
            "ranks": {
                "count": self.tp * self.pp * self.dp,
                "shown": stage,
                "stages": [
                    {"weights": own, "activation_peak": peak.bytes, "kv_available": room}
                    for own, peak, room in zip(stages, peaks, rooms)
                ],
            },
            "settings": self._used(),
            "capacity": capacity,
            "available_kv": available,
            "available_kv_error": kv_segment["error_bytes"],
            "outside": outside,
            "kv_bytes_per_token": cache.bytes_per_token,
            "fits": fits,
            "problems": self.problems,
            "kv": report,
            "weights": weighed,
            "contradictions": self.contradictions,
            "assumptions": self.assumptions,
        }

    def _rooms(self, kv_segment, more):
        """KV memory of each stage, from that of the shown one and what each needs ``more`` by the models."""
        size = kv_segment["bytes"]
        if size is None or kv_segment["proof"] == "set":
            return [size] * self.pp
        return [size - difference for difference in more]

    def _capacity(self):
        requested = (
            None if self.total is None else requested_bytes(self.total, self.utilization, self.version)
        )
        free = self.free
        check = None
        # Only V1 from 0.9.1 compares free memory with what is requested.
        checked = self.generation == "V1" and in_range(self.version, "0.9.1") is not False
        if checked and free is not None and requested is not None:
            check = free >= requested
            if not check:
                self.problems.append(
                    f"Free memory on device ({free / GIB:.2f}/{self.total / GIB:.2f} GiB) on startup is less than "
                    f"desired GPU memory utilization ({self.utilization}, {requested / GIB:.2f} GiB)."
                )
        return {
            "total": self.total,
            "utilization": self.utilization,
            "requested": requested,
            "free": free,
            "free_check": check,
        }

    def _neighbours(self, free):
        """Bytes of other processes that the formula counts as this one's (V0 0.6.3-0.6.4, V1 up to 0.9.0)."""
        counted = in_range(self.version, "0.6.3", "0.6.4" if self.generation == "V0" else "0.9.0")
        if not counted or free is None or self.measured.get("non_torch") is not None:
            return 0
        return max(0, self.total - free)

    def _available(self, segments, capacity):
        """The segment of the KV cache by the version's formula."""
        name, counted = "kv_available", [segment for segment in segments if segment["in_budget"]]
        fixed = self._whole("kv_cache_memory_bytes", None)
        if fixed is not None and in_range(self.version, "0.10.2") is not False:
            formula = "kv_cache_memory_bytes: nothing is subtracted, gpu_memory_utilization only decides the free check"
            return dict(self._fixed(name, fixed, formula), proof="set")
        size, formula = None, "total isn't known"
        if capacity["requested"] is not None:
            others = self._neighbours(capacity["free"])
            size = capacity["requested"] - sum(segment["bytes"] for segment in counted) - others
            formula = rule(self.version, self.generation)
            graphs = any(segment["name"] == "graph" for segment in counted)
            if graphs != ("- G" in formula):
                formula += "; here with - G" if graphs else "; G is 0 here: no estimate is made"
        given = self.measured.get(name)
        if given is not None:
            if size is not None:
                self._compare(name, int(given), size)
            return dict(self._fixed(name, int(given), formula), proof="measured")
        error = sum(segment["error_bytes"] ** 2 for segment in counted) ** 0.5
        proof = "measured" if all(segment["proof"] == "measured" for segment in counted) else "modelled"
        return dict(self._fixed(name, size, formula), proof=proof, error_bytes=int(error))

    @staticmethod
    def _fixed(name, size, formula):
        return {
            "name": name,
            "bytes": size,
            "proof": "modelled",
            "formula": formula,
            "error_bytes": 0,
            "in_budget": True,
        }

    def _used(self):
        return {
            "engine": self.generation,
            "tensor_parallel_size": self.tp,
            "pipeline_parallel_size": self.pp,
            "data_parallel_size": self.dp,
            "max_model_len": self.length,
            "max_num_seqs": self.load.seqs,
            "max_num_batched_tokens": self.load.tokens,
            "gpu_memory_utilization": self.utilization,
        }

    def _outside(self, segments, capacity, held, pool):
        """What stays beside ``held`` bytes and the KV cache's ``pool``; see ``budget``."""
        if capacity["total"] is None or pool is None:
            return None
        free, uncertain = capacity["free"], 0.0
        if free is None:
            nccl = self.tp * self.pp > 1 and in_range(self.version, "0.11") is not False
            linked = "unlinked" if self.gpu.get("nvlink") is False else "several GPUs"
            taken, uncertain = _BEFORE[linked if nccl else "one GPU"]
            free = capacity["total"] - int(taken * GIB)
        others = [segment for segment in segments if not segment["in_budget"]]
        graphs = sum(segment["bytes"] for segment in others)
        error = ((uncertain * GIB) ** 2 + sum(segment["error_bytes"] ** 2 for segment in others)) ** 0.5
        size = free - held - max(0, pool)
        return {
            "bytes": size,
            "error_bytes": int(error),
            "graphs": graphs,
            "margin": size - graphs,
        }

    def _verdict(self, available, capacity, report, override, own, pool):
        if self.problems:
            return False
        if available is None or report is None:
            return None
        if available <= 0 and not override:
            self.problems.append(
                "No available memory for the cache blocks: weights and profile take all of it."
            )
            return False
        self._check_room(own, pool, capacity)
        self._check_states(report)
        if report["fits"] is False:
            room = override * report["bytes_per_block"] if override else available
            self.problems.append(
                f"One request of {self.length} tokens needs {report['need_bytes'] / GIB:.2f} GiB of KV cache, "
                f"{room / GIB:.2f} GiB are there; estimated maximum length {report['estimated_max_len']}."
            )
        return False if self.problems else report["fits"]

    def _fixed_by(self):
        """The setting that fixes the KV cache's size, as far as this version knows it, or None."""
        if self.settings.get("num_gpu_blocks_override") is not None:
            return "num_gpu_blocks_override"
        given = self.settings.get("kv_cache_memory_bytes") is not None
        return "kv_cache_memory_bytes" if given and in_range(self.version, "0.10.2") is not False else None

    def _check_room(self, own, pool, capacity):
        """A KV cache whose size was set may still not fit the whole card; ``own``: bytes of the weights."""
        name = self._fixed_by()
        if name is None or capacity["total"] is None:
            return
        free = capacity["free"] if capacity["free"] is not None else capacity["total"]
        if own + pool > free:
            self.problems.append(
                f"weights and {name} take {(own + pool) / GIB:.2f} GiB of {free / GIB:.2f} GiB: nothing "
                "guards against that, it ends as a torch out-of-memory error."
            )

    def _check_states(self, report):
        """Graphs want a state of its own for each sequence (vllm-memory 3.4)."""
        states = any(group["kind"] == "state" for group in report["groups"])
        if not states or not self.load.graphs or not in_range(self.version, "0.20"):
            return
        if self.load.seqs > report["num_blocks"]:
            self.problems.append(
                f"max_num_seqs ({self.load.seqs}) exceeds available Mamba cache blocks ({report['num_blocks']})."
            )


def _listed(value):
    """An option of several values as a tuple: a list, or a text with spaces or commas between them."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _identity(value):
    """A key for an argument: dicts and lists (an architecture, a quantization_config) count by identity."""
    return id(value) if isinstance(value, (dict, list)) else value


def capability_number(value):
    """The compute capability as a number, from 9.0 or the catalogue's (9, 0); None where it isn't known."""
    if isinstance(value, (list, tuple)) and value:
        return float(".".join(str(part) for part in value[:2]))
    return value if isinstance(value, (int, float)) else None


def _no_inputs(limits, arch):
    """Whether --limit-mm-per-prompt lets none of what the towers take in: then no towers are profiled."""
    if not isinstance(limits, dict):
        return False
    counts = {
        name: value.get("count") if isinstance(value, dict) else value for name, value in limits.items()
    }
    names = {"vision": ("image", "video"), "audio": ("audio",)}
    kinds = {tower["kind"] for tower in arch["encoders"]}
    return bool(kinds) and all(
        counts.get(name) == 0 for kind in kinds for name in names.get(kind, ("image",))
    )


def _capability_pair(value):
    """The compute capability as a pair, from the catalogue's (9, 0), a list or 9.0; None where it isn't known."""
    number = capability_number(value)
    return None if number is None else (int(number), round(number * 10) % 10)
