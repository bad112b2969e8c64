# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fit search: what fits at most, which change makes a start fit, which GPUs would.

Every answer is computed anew by ``budget``; nothing is concluded from a rule alone.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..documents import change
from ..engine.versions import in_range
from ..quantities import GIB, MIB
from .architecture import layer_list
from .budget import budget, capability_number
from .gpus import products, visible_bytes
from .weights import parallel_error

# What a change takes from the user, cheapest first (design, rules 5 and 8).
COSTS = ("nothing", "speed", "concurrency", "context", "precision", "quality", "features", "hardware")
GOALS = ("start", "outside", "free_check")

# Room to leave on the card when the utilization is raised: libraries' workspaces (vllm-memory 7.6).
_WORKSPACES = GIB // 2
# Up to this length V0 prefills whole prompts unless told otherwise.
_V0_WHOLE = 32768
_RANKS = (2, 4, 8, 16)
# What a further card costs in communication, slots and power, as a share of the memory.
_PER_CARD = 0.15
# Least compute capability: of arithmetic in fp8, of weights or KV caches that are only stored so, of bfloat16.
_FP8, _FP8_STORED, _BFLOAT16, _OLDEST = 8.9, 8.0, 8.0, 7.0
_FEWEST_TOKENS = 256
# vLLM's smallest default of a step's tokens: below it a prompt's steps become slow, and little memory is won.
_USUAL_TOKENS = 2048
# Weights in host memory cross PCIe in each step, at 64 GB/s at most (5.0, 16 lanes; 4.0 has half). A card reads its own memory at
# 0.9 (L40S), 3.4 (H100) to 4.8 TB/s (H200): 14 to 75 times as fast. With a tenth of the weights on the host a decoding step, which
# reads all of them, takes 2 to 8 times as long, with a quarter 4 to 20 times: then more cards come before it.
SMALL_SHARE, LARGE_SHARE = 0.1, 0.25
# From this place among the costs on two cheaper changes are better than one.
_DEAR = COSTS.index("hardware") - 0.5
_FEW_GRAPHS = (1, 2, 4, 8)
_FIXED = ("--num-gpu-blocks-override", "--kv-cache-memory-bytes")


def largest(arch, gpu, settings, version=None, measured=None):
    """What fits at most, everything else as set. The arguments are those of ``budget``.

    Returns ``{max_model_len, max_num_seqs, max_concurrency, limited_by: {max_model_len, max_num_seqs}}``:
    max_model_len is searched up to the model's own (or a set one beyond it), max_num_seqs up to
    max_num_batched_tokens, which it can't exceed; limited_by says ``memory`` or else what ended the search
    (``model``, ``max_num_batched_tokens``). Each is maximal: one more doesn't fit. None where nothing fits or
    memory or length aren't known.
    """
    return _Search(arch, gpu, settings, version, measured).largest()


def changes(arch, gpu, settings, version=None, measured=None, goal="start", needed=None):
    """The single changes that could reach ``goal``, each with its own budget; those that do come first, cheapest first.

    goal: ``start``: make a start fit that doesn't; ``outside``: ``needed`` more bytes (None: as many as the budget
    lacks) beside the budget, for an out-of-memory error in graph capture, warm-up, serving or NCCL;
    ``free_check``: ask for no more than is free.

    Returns CHANGEs (``documents.change``) with ``{helps: bool, costs: of COSTS, settings: {NAME: value} to set (None:
    to remove), after: {available_kv, fits, need_bytes, estimated_max_len, max_concurrency, outside}}``; outside: the margin of
    ``budget``'s. A value is the mildest that reaches the goal, of a change that doesn't help the strongest. Where no
    single change without new hardware helps, the cheapest pair of them follows: two changes, each ``with`` the other's
    name, and with the settings of both. Empty where the goal is reached already or can't be judged.
    """
    if goal not in GOALS:
        raise ValueError(f"goal is one of {', '.join(GOALS)}, not {goal!r}")
    return _Menu(_Search(arch, gpu, settings, version, measured), goal, needed).changes()


def hardware(
    arch,
    settings,
    version=None,
    measured=None,
    gpu=None,
    gpus=None,
    counts=(1, 2, 4, 8),
    unified=False,
    most=5,
):
    """The GPUs that would hold the same settings: the least total memory first (many cards count as somewhat more than
    their memory), one entry for a size of card.

    measured: of the present start, on ``gpu`` (as for ``budget``); gpus: entries of the catalogue, None: all of NVIDIA's, with those that share
    their memory with the host only where ``unified``; counts: tensor parallel sizes to try, of which those that the
    heads allow are; most: entries at most.

    Returns ``[{gpu, same_size: [names of as much memory], tensor_parallel_size, count, total_gib, available_kv, fits,
    estimated_max_len, max_concurrency}]``; count: GPUs altogether.
    """
    found = gpus if gpus is not None else products("cuda", None if unified else False)
    if not gpu:
        # What a KV cache got says nothing without the GPU that it was on.
        measured = {name: value for name, value in (measured or {}).items() if name != "kv_available"}
    search = _Search(arch, gpu, settings, version, measured)
    return search.hardware(found, counts, most)


class _Search:
    """Budgets of variations of one start."""

    def __init__(self, arch, gpu, settings, version, measured):
        self.arch, self.gpu, self.version = arch, gpu or {}, version
        self.settings = {name: value for name, value in (settings or {}).items() if value is not None}
        self.measured = {name: value for name, value in (measured or {}).items() if value is not None}
        self.known: dict[Any, Any] = {}
        self.sizes: dict[Any, Any] = {}
        self.modelled = self._budget({}, self.gpu, {})
        self.base = self._budget({}, self.gpu, self.measured) if self.measured else self.modelled

    def _budget(self, changed, gpu, measured):
        return budget(self.arch, gpu, {**self.settings, **changed}, self.version, measured, self.known)

    def sized(self, changed, gpu=None):
        """The budget with ``changed`` settings (None: removed) and on another ``gpu``, measured numbers carried over."""
        gpu = self.gpu if gpu is None else gpu
        key = (gpu.get("name"), gpu.get("total_bytes"), repr(sorted(changed.items())))
        if key not in self.sizes:
            modelled = self._budget(changed, gpu, {})
            self.sizes[key] = (
                self._budget(changed, gpu, self._carried(modelled)) if self.measured else modelled
            )
        return self.sizes[key]

    def fits(self, changed):
        return self.sized(changed)["fits"] is True

    def _carried(self, modelled):
        """What the log measured, as it would be with the settings of the budget ``modelled``."""
        before, after = _bytes(self.modelled), _bytes(modelled)
        carried = {}
        for name, value in self.measured.items():
            part = "graph" if name == "graph_estimated" else name
            if part in before and part != "kv_available":
                carried[name] = _scaled(value, before[part], after[part])
        if "kv_available" in self.measured and _kv(self.modelled)["proof"] != "set":
            taken = _in_budget(modelled, carried) - _in_budget(self.modelled, self.measured)
            requested = (modelled["capacity"]["requested"] or 0) - (
                self.modelled["capacity"]["requested"] or 0
            )
            carried["kv_available"] = self.measured["kv_available"] + requested - taken
        return carried

    # --- what fits at most ---

    def largest(self):
        length = self.longest()
        seqs = self._most_sequences()
        own, tokens = self._longest_allowed(), self.base["settings"]["max_num_batched_tokens"]
        report = self.base["kv"]
        return {
            "max_model_len": length,
            "max_num_seqs": seqs,
            "max_concurrency": report["max_concurrency"] if self.base["fits"] and report else None,
            "limited_by": {
                "max_model_len": None if length is None else "model" if length == own else "memory",
                "max_num_seqs": None
                if seqs is None
                else "max_num_batched_tokens"
                if seqs == tokens
                else "memory",
            },
        }

    def _longest_allowed(self):
        return max(self.arch["max_position_embeddings"] or 0, self.settings.get("max_model_len") or 0)

    def longest(self, below=None):
        """The largest max_model_len that fits (``below`` a length), or None."""
        allowed = self._longest_allowed()
        for piece in self.lengths(allowed if below is None else min(allowed, below - 1)):
            longest = self._longest_of(piece)
            if longest is not None:
                return longest
        return None

    def lengths(self, most):
        """Lengths up to ``most``, longest first, in pieces within which a shorter one never needs more."""
        chosen = self.settings.keys() & {"max_num_batched_tokens", "enable_chunked_prefill"}
        border = 0 if chosen or self.base["settings"]["engine"] != "V0" else _V0_WHOLE
        pieces = (range(most, border, -1), range(min(most, border), 0, -1))
        return tuple(piece for piece in pieces if piece)

    def _longest_of(self, piece):
        def fits(length):
            return self.fits({"max_model_len": length})

        report = self.sized({"max_model_len": piece[0]})["kv"]
        # Mostly nothing but the KV cache depends on the length: then vLLM's own estimate is the answer.
        guess = report["estimated_max_len"] if report else 0
        if guess in piece and fits(guess) and (guess == piece[0] or not fits(guess + 1)):
            return guess
        index = _first(piece, fits)
        return None if index is None else piece[index]

    def _most_sequences(self):
        tokens = self.base["settings"]["max_num_batched_tokens"]
        counts = range(tokens, 0, -1)
        index = _first(counts, lambda count: self.fits({"max_num_seqs": count}))
        return None if index is None else counts[index]

    # --- other hardware ---

    def hardware(self, found, counts, most):
        stages = self.base["settings"]["pipeline_parallel_size"]
        least = _least_capability(self.arch, self.settings)
        usable = [item for item in found if (capability_number(item["compute_capability"]) or least) >= least]
        sizes: dict[int, list] = {}
        for item in usable:
            sizes.setdefault(round(item["visible_gib"]), []).append(item)
        ranks = [count for count in sorted(counts) if parallel_error(self.arch, count) is None]
        tried = [
            (visible_bytes(items[0]) * count * stages * (1 + _PER_CARD * (count - 1)), count, size, items)
            for size, items in sizes.items()
            for count in ranks
        ]
        own = {count: _bytes(self.sized({"tensor_parallel_size": count}))["weights"] for count in ranks}
        result, taken = [], set()
        for _total, count, size, items in sorted(tried, key=lambda row: row[:3]):
            if size in taken or own[count] >= visible_bytes(items[0]):
                continue
            sized = self.sized({"tensor_parallel_size": count}, gpu_of(items[0]))
            if sized["fits"] is not True or _lacks_room(sized):
                continue
            taken.add(size)
            result.append(
                {
                    "gpu": items[0]["name"],
                    "same_size": [item["name"] for item in items[1:]],
                    "tensor_parallel_size": count,
                    "count": count * stages,
                    "total_gib": round(items[0]["visible_gib"] * count * stages, 2),
                    **{name: value for name, value in _after(sized).items() if name != "outside"},
                }
            )
            if len(result) == most:
                break
        return result


def is_small_offload(gib, weights):
    """Whether ``gib`` GiB are so small a share of a GPU's ``weights`` (bytes, None: not known) that a step waits little for them."""
    return bool(weights) and gib * GIB <= SMALL_SHARE * weights


def gpu_of(product):
    """The ``gpu`` argument of ``budget`` for an entry of the catalogue."""
    facts = {key: product[key] for key in ("name", "compute_capability", "nvlink", "unified")}
    return dict(facts, total_bytes=visible_bytes(product))


class _Lever(NamedTuple):
    """One setting that can be changed. values: pieces of values, mildest first, within each the effect only grows;
    option: its name among the settings; text: what it does; refused: why it can't be done at all; needs: what else
    must change; more: settings that go with it; last: only before new hardware, whatever its cost, and behind it where it's much; shown: the value to
    show where it doesn't help, None: the strongest; usual: the strongest that is usual, to which a pair goes first, None: any."""

    name: str
    option: str
    direction: str
    costs: str
    text: str
    values: tuple[Sequence, ...]
    refused: str | None = None
    target: str = "flag"
    needs: tuple[str, ...] = ()
    more: dict = {}  # noqa: RUF012
    last: bool = False
    shown: Any = None
    usual: Any = None

    def settings(self, value):
        return {self.option: value, **self.more}

    @property
    def rank(self):
        """Its place among the costs; of the last resort the one before hardware."""
        return COSTS.index("hardware") - 0.5 if self.last else COSTS.index(self.costs)


class _Menu:
    """The changes of a search towards one goal."""

    def __init__(self, search, goal, needed):
        self.search, self.goal, self.needed = search, goal, needed
        self.base, self.settings, self.version = search.base, search.settings, search.version
        self.used = self.base["settings"]
        self.total = self.base["capacity"]["total"]

    # --- goals ---

    def gained(self, result):
        """Whether ``result`` has what the goal asks for, whatever becomes of the KV cache; None: not known."""
        capacity = result["capacity"]
        if self.goal == "start":
            return result["fits"]
        if self.goal == "free_check":
            known = None not in (capacity["free"], capacity["requested"])
            return capacity["requested"] <= capacity["free"] if known else None
        if result["outside"] is None:
            return None
        margin = result["outside"]["margin"]
        return margin >= (0 if self.needed is None else self.base["outside"]["margin"] + self.needed)

    def reached(self, result):
        """Whether the goal is reached and no out-of-memory error beside the budget is bought with it."""
        fits = result["fits"] is True if self.goal == "start" else result["fits"] is not False
        return bool(self.gained(result)) and fits and self._no_worse(result)

    def _no_worse(self, result):
        before = self.base["outside"]
        # Where the budget left no KV cache, or its size was set, the room beside it wasn't the user's choice.
        chosen = before and (self.base["available_kv"] or 0) > 0 and not self._fixed_by()
        return not _lacks_room(result, min(0, before["margin"]) if chosen else 0)

    # --- the menu ---

    def changes(self):
        if self.gained(self.base) is not False:
            return []
        levers = sorted((lever for build in _LEVERS for lever in build(self)), key=lambda lever: lever.rank)
        rows = [(lever, self._row(lever)) for lever in levers]
        cheap = [row for lever, row in rows if row["helps"] and lever.rank < _DEAR]
        dear = [(self._place(lever, row), row) for lever, row in rows if row["helps"] and lever.rank >= _DEAR]
        dear = [row for _place, row in sorted(dear, key=lambda item: item[0])]
        pair = [] if cheap else self._pair([lever for lever in levers if lever.rank < _DEAR])
        return cheap + pair + dear + [row for _lever, row in rows if not row["helps"]]

    def _place(self, lever, row):
        """The place among the dear changes: a last resort that slows each step down much is behind new hardware."""
        if not lever.last or is_small_offload(row["value"], _bytes(self.base)["weights"]):
            return lever.rank
        return COSTS.index("hardware") + 0.5

    def _row(self, lever):
        if lever.refused:
            value = lever.values[0][0] if lever.values else None
            return self._change(lever, value, {}, self.base, False, lever.refused)
        for piece in lever.values:
            index = _first(piece, lambda value: self._enough(lever, value))
            if index is not None:
                value = piece[index]
                break
        else:
            value = lever.values[-1][-1] if lever.shown is None else lever.shown
        changed = lever.settings(value)
        after = self.search.sized(changed)
        return self._change(lever, value, changed, after, self.reached(after), lever.text)

    def _enough(self, lever, value):
        """Whether ``value`` does what this lever can do for the goal; a stronger one then does, too."""
        result = self.search.sized(lever.settings(value))
        if self.goal == "start" and _lowers_utilization(lever):
            return result["capacity"]["free_check"] is not False
        if self.goal == "start" and lever.name in _FIXED and result["outside"]:
            return result["fits"] is True and result["outside"]["margin"] >= 0
        return bool(self.gained(result))

    def _pair(self, levers):
        """The cheapest two changes that reach the goal together, the milder the better; [] where there are none."""
        levers = [lever for lever in levers if not lever.refused]
        pairs = [
            (first, second)
            for index, first in enumerate(levers)
            for second in levers[index + 1 :]
            if first.option != second.option
        ]
        pairs.sort(key=lambda pair: (max(item.rank for item in pair), sum(item.rank for item in pair)))
        for pair in pairs:
            found = self._together(*pair)
            if found:
                return found
        return []

    def _together(self, first, second):
        """The two changes that reach the goal together; beyond what is usual only where it must be."""
        for usual in (True, False):
            if usual is False or first.usual or second.usual:
                found = self._as_mild_as_can_be(first, second, usual)
                if found:
                    return found
        return []

    def _as_mild_as_can_be(self, first, second, usual):
        strongest = [self._strongest(lever, usual) for lever in (first, second)]
        changed = [lever.settings(value) for lever, value in zip((first, second), strongest)]
        if not self.reached(self.search.sized({**changed[0], **changed[1]})):
            return []
        # Each as mild as the other allows.
        for index, lever in ((1, second), (0, first)):
            other = changed[1 - index]
            piece = lever.values[-1]
            if _lowers_utilization(lever):
                continue
            at = _first(piece, partial(self._both, lever, other))
            if at is not None:
                strongest[index], changed[index] = piece[at], lever.settings(piece[at])
        both = {**changed[0], **changed[1]}
        after = self.search.sized(both)
        return [
            dict(
                self._change(lever, value, both, after, True, lever.text),
                **{"with": [*lever.needs, other.name]},
            )
            for lever, value, other in zip((first, second), strongest, (second, first))
        ]

    def _both(self, lever, other, value):
        return self.reached(self.search.sized({**lever.settings(value), **other}))

    def _strongest(self, lever, usual):
        """The value that does most, or of those that are usual; of a lower utilization the one that is just enough."""
        if usual and lever.usual is not None:
            return lever.usual
        piece = lever.values[-1]
        if _lowers_utilization(lever):
            index = _first(piece, lambda value: self._enough(lever, value))
            return piece[-1] if index is None else piece[index]
        return piece[-1]

    def _change(self, lever, value, changed, after, helps, text):
        why = text if lever.refused else f"{text}: {self._figures(after, helps)}"
        # A switch has no value.
        shown = None if isinstance(value, bool) else value
        row = change(lever.target, lever.name, lever.direction, shown, why, "budget", lever.needs)
        return dict(row, helps=helps, costs=lever.costs, settings=changed, after=_after(after))

    def _figures(self, after, helps):
        """What changes for the goal, in words, and what is still wrong."""
        before = self.base
        parts = []
        if self.goal == "outside":
            parts = [_step("outside the budget", before["outside"]["margin"], after["outside"]["margin"])]
        elif self.goal == "free_check":
            free = _gib(after["capacity"]["free"])
            parts = [_step("requested", before["capacity"]["requested"], after["capacity"]["requested"])]
            parts.append(f"free {free}")
        parts.append(_step("KV cache memory", before["available_kv"], after["available_kv"]))
        if not helps and after["problems"]:
            return f"{', '.join(parts)}; still: {after['problems'][0]}"
        if not helps and self.goal == "start" and not self._no_worse(after):
            missing = _gib(-after["outside"]["margin"])
            return f"{', '.join(parts)}; but {missing} are missing beside the budget (context, NCCL, graphs)"
        if after["kv"] and after["kv"]["need_bytes"] is not None:
            parts.append(f"one request needs {_gib(after['kv']['need_bytes'])}")
        return ", ".join(parts)

    # --- the levers ---

    def utilization(self):
        """Up as far as the card and what lies outside the budget allow, and down."""
        option, name = "gpu_memory_utilization", "--gpu-memory-utilization"
        if self.total is None:
            return
        fixed = self._fixed_by()
        now = self.used[option]
        up, down = "asks for more of the card", "asks for less of the card and leaves more beside the budget"
        steps = _hundredths_down(now)
        if fixed:
            down = f"{fixed} fixes the KV cache's size, only the check of free memory changes"
            up = f"{fixed} fixes the KV cache's size, which the utilization then doesn't change"
        if steps:
            # Where nothing wants it lower, or it doesn't help, five hundredths show what it does.
            shown = steps[min(4, len(steps) - 1)]
            wanted = self.goal != "start" or self.base["capacity"]["free_check"] is False
            costs = "nothing" if fixed else "concurrency"
            values = steps if wanted else [shown]
            yield _Lever(name, option, "decrease", costs, down, (values,), shown=shown)
        values = self._higher(now)
        if values:
            yield _Lever(name, option, "increase", "nothing", up, (values,))
        else:
            refused = "the card has no room beside the budget for a higher one: " + self._room()
            yield _Lever(name, option, "increase", "nothing", up, ((now,),), refused)

    def _higher(self, now):
        """Utilizations above ``now`` with which everything outside the budget still has room."""
        values = []
        for hundredths in range(int(now * 100) + 1, 100):
            value = hundredths / 100
            if value <= now:
                continue
            after = self.search.sized({"gpu_memory_utilization": value})
            outside = after["outside"]
            if after["capacity"]["free_check"] is False or outside is None:
                break
            if outside["margin"] < max(_WORKSPACES, outside["error_bytes"]):
                break
            values.append(value)
        return values

    def _room(self):
        outside = self.base["outside"]
        if outside is None:
            return "its size isn't known"
        return (
            f"{_gib(outside['bytes'])} stay there at {self.used['gpu_memory_utilization']:g}, CUDA graphs outside the "
            f"budget take {_gib(outside['graphs'])} of it and {_gib(max(_WORKSPACES, outside['error_bytes']))} are kept for workspaces"
        )

    def _fixed_by(self):
        """The flag that fixes the KV cache's size, or None."""
        if self.settings.get("num_gpu_blocks_override") is not None:
            return "--num-gpu-blocks-override"
        return "--kv-cache-memory-bytes" if _kv(self.base)["proof"] == "set" else None

    def fixed_size(self):
        """Another size of a KV cache that is set, or none."""
        fixed, report = self._fixed_by(), self.base["kv"]
        if not fixed or not report:
            return
        option = fixed[2:].replace("-", "_")
        now, need = self.settings[option], report["need_bytes"] or 0
        text = "the KV cache takes what is set, whatever the utilization"
        if option == "num_gpu_blocks_override":
            step, least = 1, need // max(1, report["bytes_per_block"]) + 1
        else:
            step, least = MIB, need
        values = _multiples_down(now, least, step)
        if values:
            yield _Lever(fixed, option, "decrease", "concurrency", text, (values,))
        if now < least and self.goal == "start":
            more = range((now // step + 1) * step, least + 2 * step, step)
            yield _Lever(fixed, option, "increase", "nothing", text, (more,))
        free = (self.search.sized({option: None})["kv"] or report)["num_blocks"]
        costs = "nothing" if free >= report["num_blocks"] else "concurrency"
        yield _Lever(
            fixed, option, "remove", costs, "the budget's formula then sizes the KV cache", ((None,),)
        )

    def length(self):
        now = self.used["max_model_len"]
        if not now or now == 1:
            return
        shown, pieces = None, self.search.lengths(now - 1)
        text = "one request of fewer tokens needs less KV cache"
        if self.goal == "start":
            longest = self.search.longest(now)
            # As good as known: a search in steps would find the same.
            pieces = ((longest,),) if longest else pieces
        else:
            shown = max(1, now // 2)
            text += ", which takes what the budget leaves all the same"
        yield _Lever("--max-model-len", "max_model_len", "decrease", "context", text, pieces, shown=shown)

    def tokens(self):
        now, seqs = self.used["max_num_batched_tokens"], self.used["max_num_seqs"]
        whole = self.settings.get("enable_chunked_prefill") is False or (
            self.used["engine"] == "V0" and "max_num_batched_tokens" not in self.settings and now > 2048
        )
        # Without chunks a whole prompt must fit one step: shorter steps come with chunks only.
        more = {"enable_chunked_prefill": True} if whole else {}
        least = max(_FEWEST_TOKENS, seqs if "max_num_seqs" in self.settings else 0)
        values = _multiples_down(now, least, _FEWEST_TOKENS)
        if values:
            yield _Lever(
                "--max-num-batched-tokens",
                "max_num_batched_tokens",
                "decrease",
                "speed",
                "the profile run's activations are those of fewer tokens",
                (values,),
                needs=("--enable-chunked-prefill",) if whole else (),
                more=more,
                usual=_USUAL_TOKENS if _USUAL_TOKENS in values else None,
            )

    def sequences(self):
        now = self.used["max_num_seqs"]
        values = _multiples_down(now, 1, 8 if now > 16 else 1)
        if values:
            text = "the sampler's buffers and the graphs are those of fewer sequences"
            yield _Lever("--max-num-seqs", "max_num_seqs", "decrease", "concurrency", text, (values,))

    def cache_dtype(self):
        report = self.base["kv"]
        now = str((report or {}).get("kv_cache_dtype") or "")
        if not report or now not in ("auto", "float16", "bfloat16", "half", "float32"):
            return
        # Without fp8 arithmetic: from 0.20 on the same (development reports on RTX 3090 and A6000), before that only
        # fp8_e5m2, and not for a checkpoint of fp8.
        value, least = "fp8", _FP8
        if in_range(self.version, "0.20") is not False:
            least = _FP8_STORED
        elif self._unable(_FP8, value) and not self.base["weights"]["quantization"].startswith("fp8"):
            value, least = "fp8_e5m2", _FP8_STORED
        refused = self._unable(least, "an fp8 KV cache")
        text = "keys and values take 8 bits"
        if self.search.gpu.get("compute_capability") is None:
            text += f" (needs compute capability {least:g} or newer; this GPU's isn't known)"
        yield _Lever("--kv-cache-dtype", "kv_cache_dtype", "set", "precision", text, ((value,),), refused)

    def _unable(self, least, what):
        """Why this GPU can't do ``what``, or None."""
        capability = capability_number(self.search.gpu.get("compute_capability"))
        if capability is not None and capability < least:
            return f"{what}: needs compute capability {least:.1f}, this GPU has {capability:.1f}"
        return None

    def graphs(self):
        if self.settings.get("enforce_eager"):
            return
        if in_range(self.version, "0.11.1") is not False and not self.settings.get("cudagraph_capture_sizes"):
            text = "CUDA graphs for a few batch sizes only"
            yield _Lever(
                "--cudagraph-capture-sizes",
                "cudagraph_capture_sizes",
                "set",
                "speed",
                text,
                ((list(_FEW_GRAPHS),),),
            )
        text = "no CUDA graphs are captured"
        yield _Lever("--enforce-eager", "enforce_eager", "add", "speed", text, ((True,),))

    def towers(self):
        if not self.search.arch["encoders"] or self.settings.get("language_model_only"):
            return
        if in_range(self.version, "0.17") is not False:
            text = "neither weights nor activations of the encoder towers"
            yield _Lever("--language-model-only", "language_model_only", "add", "features", text, ((True,),))
        if in_range(self.version, "0.5.5") is not False:
            names = {"vision": ("image", "video"), "audio": ("audio",)}
            kinds = {tower["kind"] for tower in self.search.arch["encoders"]}
            none = {name: 0 for kind in sorted(kinds) for name in names.get(kind, ("image",))}
            text = "no inputs of the encoder towers are profiled"
            yield _Lever("--limit-mm-per-prompt", "limit_mm_per_prompt", "set", "features", text, ((none,),))

    def states(self):
        report = self.base["kv"]
        if report and any(group["kind"] == "state" for group in report["groups"]):
            if self.settings.get("enable_prefix_caching") is not False:
                text = "without prefix caching a request keeps fewer states"
                yield _Lever(
                    "--no-enable-prefix-caching", "enable_prefix_caching", "add", "speed", text, ((False,),)
                )
        elif self.settings.get("disable_hybrid_kv_cache_manager"):
            text = "window layers then keep their window only"
            yield _Lever(
                "--disable-hybrid-kv-cache-manager",
                "disable_hybrid_kv_cache_manager",
                "remove",
                "nothing",
                text,
                ((None,),),
            )

    def bits(self):
        """Weights of fewer bits: fp8 at load, or another checkpoint."""
        stored = self.base["weights"]["quantization"]
        if stored == "none":
            refused = self._unable(_FP8_STORED, "fp8 weights")
            whole = _bytes(self.base)["weights"]
            free = self.base["capacity"]["free"] or self.total
            if refused is None and free is not None and whole > free:
                refused = (
                    f"they are loaded in 16 bits first, and {_gib(whole)} don't fit {_gib(free)} of the card"
                )
            text = "the weights are quantized to 8 bits while they are loaded"
            yield _Lever("--quantization", "quantization", "set", "precision", text, (("fp8",),), refused)
        small = any(word in stored for word in ("4", "awq", "gptq", "round", "bitsandbytes", "gguf"))
        if not small and not self.settings.get("checkpoint_bytes"):
            text = "a checkpoint with weights of 4 bits"
            yield _Lever(
                "smaller_quantization",
                "quantization",
                "set",
                "precision",
                text,
                (("awq",),),
                target="action",
            )

    def offload(self):
        if in_range(self.version, "0.5.5") is False or self.settings.get("cpu_offload_gb"):
            return
        parts = self.base["weights"]["parts"]
        most = sum(parts[name] for name in ("attention", "mlp", "experts")) // GIB
        if most >= 1:
            text = "layers of the model stay in host memory (as many GiB for each GPU) and cross the bus in each step"
            yield _Lever(
                "--cpu-offload-gb",
                "cpu_offload_gb",
                "set",
                "speed",
                text,
                (range(1, int(most) + 1),),
                needs=("resources.limits.memory",),
                last=True,
            )

    def drafts(self):
        names = [name for name in ("speculative_tokens", "draft_layers", "draft") if self.settings.get(name)]
        if names:
            more = dict.fromkeys(names)
            text = "no draft model, whose weights and KV cache this GPU holds too"
            yield _Lever("--speculative-config", names[0], "remove", "speed", text, ((None,),), more=more)
        slots = self.settings.get("max_loras") or 1
        if self.settings.get("enable_lora") and slots > 1:
            text = "fewer slots for LoRA adapters"
            yield _Lever("--max-loras", "max_loras", "decrease", "features", text, (range(slots - 1, 0, -1),))

    def context_parallel(self):
        """Ranks that hold the same KV heads can share a request's tokens instead (0.10.2 and newer)."""
        tp, now = self.used["tensor_parallel_size"], self.settings.get("decode_context_parallel_size") or 1
        if tp == 1 or self.used["engine"] == "V0" or in_range(self.version, "0.10.2") is False:
            return
        copies = _copies(self.search.arch, tp)
        values = [size for size in range(now + 1, copies + 1) if copies % size == 0]
        if values:
            text = "ranks that hold the same KV heads keep a share of the tokens each"
            yield _Lever(
                "--decode-context-parallel-size",
                "decode_context_parallel_size",
                "increase",
                "speed",
                text,
                (values,),
            )

    def ranks(self):
        """More GPUs: the next size that the heads allow and that is enough."""
        arch, tp, pp = (
            self.search.arch,
            self.used["tensor_parallel_size"],
            self.used["pipeline_parallel_size"],
        )
        needs = ("resources.limits.nvidia.com/gpu",)
        values = [size for size in _RANKS if size > tp and parallel_error(arch, size) is None]
        if values:
            text = "each GPU holds a smaller share of weights and KV heads"
            yield _Lever(
                "--tensor-parallel-size",
                "tensor_parallel_size",
                "increase",
                "hardware",
                text,
                (values,),
                needs=needs,
                shown=values[0],
            )
        values = [size for size in _RANKS if pp < size <= len(layer_list(arch))]
        if values:
            text = "each GPU holds fewer layers"
            yield _Lever(
                "--pipeline-parallel-size",
                "pipeline_parallel_size",
                "increase",
                "hardware",
                text,
                (values,),
                needs=needs,
                shown=values[0],
            )


# In the order of the menu among equal costs.
_LEVERS: tuple[Callable[[_Menu], Any], ...] = (
    _Menu.fixed_size,
    _Menu.utilization,
    _Menu.states,
    _Menu.tokens,
    _Menu.context_parallel,
    _Menu.graphs,
    _Menu.drafts,
    _Menu.sequences,
    _Menu.length,
    _Menu.cache_dtype,
    _Menu.bits,
    _Menu.towers,
    _Menu.offload,
    _Menu.ranks,
)


def _first(values, enough):
    """The index of the first of ``values`` that is ``enough`` (later ones are too), or None."""
    if not values or not enough(values[-1]):
        return None
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if enough(values[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _multiples_down(now, least, step):
    """Multiples of ``step`` below ``now`` down to ``least`` (or the next above it), largest first."""
    highest, lowest = (now - 1) // step * step, -(-least // step) * step
    return range(highest, lowest - 1, -step)


def _hundredths_down(now):
    return [value / 100 for value in range(int(round(now * 100, 6)), 4, -1) if value / 100 < now]


def _lacks_room(result, least=0):
    """Whether what lies outside the budget certainly has less room than ``least``."""
    outside = result["outside"]
    return outside is not None and outside["margin"] + outside["error_bytes"] < least


def _lowers_utilization(lever):
    return (lever.option, lever.direction) == ("gpu_memory_utilization", "decrease")


def _copies(arch, tp):
    """On how many ranks of ``tp`` the same KV heads lie, in the layers with the fewest copies."""
    copies = []
    for run in arch["layers"]:
        item = run["attention"] or {}
        if item.get("kind") == "mla":
            copies.append(tp)
        elif item.get("kv_heads"):
            copies.append(max(1, tp // item["kv_heads"]))
    return min(copies, default=1)


def _scaled(value, before, after):
    """A measured ``value`` where the model goes from ``before`` to ``after`` bytes: the larger of both ways."""
    if before == after:
        return value
    if after == 0 or before == 0:
        return after
    return max(0, int(value * after / before), value + after - before)


def _bytes(result):
    return {segment["name"]: segment["bytes"] for segment in result["segments"]}


def _kv(result):
    return next(segment for segment in result["segments"] if segment["name"] == "kv_available")


def _in_budget(modelled, measured):
    """Bytes of all that the budget counts beside the KV cache, by the log where it gave a number."""
    size = 0
    for segment in modelled["segments"]:
        if segment["in_budget"] and segment["name"] != "kv_available":
            given = measured.get(segment["name"])
            if segment["name"] == "graph":
                given = measured.get("graph_estimated", given)
            size += segment["bytes"] if given is None else given
    return size


def _after(result):
    report = result["kv"] or {}
    return {
        "available_kv": result["available_kv"],
        "fits": result["fits"],
        "need_bytes": report.get("need_bytes"),
        "estimated_max_len": report.get("estimated_max_len"),
        "max_concurrency": report.get("max_concurrency"),
        "outside": result["outside"]["margin"] if result["outside"] else None,
    }


def _least_capability(arch, settings):
    dtype = str(settings.get("dtype") or "auto")
    name = arch["dtype"] if dtype == "auto" else dtype
    quantized = settings.get("quantization") or arch["quantization"]
    return _OLDEST if name in ("float16", "half") and not quantized else _BFLOAT16


def _step(what, before, after):
    return f"{what} {_gib(before)} -> {_gib(after)}"


def _gib(size):
    return "unknown" if size is None else f"{size / GIB:.2f} GiB"
