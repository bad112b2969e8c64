# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The KV cache as vLLM counts it, by version: blocks, tokens, concurrency, the check at start (vllm-memory 6).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..engine.versions import in_range, parse_version
from .architecture import dtype_bytes, layer_list
from .config_fields import note
from .kv_groups import Limits, blocks_of_request, grouped, hybrid_block_size
from .kv_pages import Spec, cache_dtype, indexer_bytes, state_bytes, token_bytes
from .weights import pipeline_split

_BLOCK = 16
_SPARSE_BLOCK = 64
_COMPRESSED_BLOCK = 256
_COMPRESSED_ALIGNMENT = 576


class KvCache:
    """The KV cache of one model under one set of settings; every number of one rank.

    arch: of ``architecture``; kv_cache_dtype, dtype: as the flags, None: auto; generation: V0 or V1; block_size:
    the flag's value, None: vLLM's choice; batched_tokens: max_num_batched_tokens, None: not known (8192 is
    assumed where it matters); prefix_caching: None: the version's default; speculative_tokens: per step, 0: none;
    draft_layers: attention layers of an MTP module that share the pool; draft: architecture of a draft model of
    its own (Eagle and the like), whose layers share it too; mamba_mode: none, align, all or None;
    mamba_state_dtype: ``--mamba-ssm-cache-dtype``; async_scheduling: None: on from 0.26; capability: compute
    capability of the GPU ((9, 0)), None: not known; skip_layers: ``--kv-cache-dtype-skip-layers``: indices of layers
    that stay in the model's dtype, as strings, and ``sliding_window`` for all such.

    What comes out: ``block_size`` (tokens), ``groups``, ``bytes_per_block`` (of the pool), ``bytes_per_token`` (of
    the model without drafts), ``assumptions``, and the methods; ``report`` gives all of it as plain data.
    """

    def __init__(
        self,
        arch,
        kv_cache_dtype=None,
        dtype=None,
        tp=1,
        pp=1,
        dcp=1,
        pcp=1,
        version=None,
        generation="V1",
        block_size=None,
        batched_tokens=None,
        prefix_caching=None,
        speculative_tokens=0,
        draft_layers=0,
        draft=None,
        mamba_mode=None,
        mamba_state_dtype=None,
        mla_disabled=False,
        hybrid_disabled=False,
        async_scheduling=None,
        capability=None,
        skip_layers=(),
    ):
        self.arch = arch
        self.version = version = parse_version(version)
        self.generation = generation
        self.tp = tp
        self.pp = pp
        self.dcp, self.pcp = dcp, pcp
        self.assumptions: list[str] = []
        element = dtype_bytes(dtype if dtype not in (None, "auto") else arch["dtype"])
        self.cache = cache_dtype(kv_cache_dtype, arch, element, mamba_state_dtype)
        known = in_range(version, "0.19") is not False
        self._skipped = frozenset(map(str, skip_layers or ())) if known else frozenset()
        self._plain_cache = cache_dtype("auto", dict(arch, quantization=None), element, mamba_state_dtype)
        self._mla_disabled = mla_disabled
        self._capability = capability
        self._speculative_tokens = speculative_tokens
        self._hybrid_disabled = hybrid_disabled
        self.layers = self._layers(draft_layers)
        if draft:
            drafted = [layer["attention"] for layer in layer_list(draft)]
            self.layers += drafted
            draft_layers += len(drafted)
        self.block_size = self._block_size(block_size)
        own = len(self.layers) - draft_layers
        specs = self._specs()
        self.groups = self._grouped(specs)
        self.limits = self._limits(batched_tokens, prefix_caching, mamba_mode, async_scheduling)
        self.bytes_per_block = self._bytes_per_block(self.groups)
        # Of a search's many questions the version's part is answered once.
        self._needs_of_layers = generation == "V1" and bool(in_range(version, None, "0.13"))
        self._null_block = bool(in_range(version, "0.29"))
        # Of the model alone; a draft's layers come on top.
        alone = (
            self._grouped([(index, spec) for index, spec in specs if index < own])
            if draft_layers
            else self.groups
        )
        self.bytes_per_token = self._bytes_per_token(alone)

    # --- what the layers keep ---

    def _layers(self, draft_layers):
        layers = [layer["attention"] for layer in layer_list(self.arch)]
        if draft_layers:
            draft = self.arch["draft"]
            last = [item for item in layers if item and item["kind"] in ("full", "mla", "compressed")]
            item = draft["attention"] if draft else last[-1] if last else None
            layers += [item] * draft_layers
        return layers

    def _grouped(self, specs):
        if self.generation == "V0":
            # V0 keeps states apart and every token of window layers.
            specs = [(index, spec) for index, spec in specs if spec.kind != "state"]
        version = "0.8" if self.generation == "V0" else self.version
        return grouped(specs, version, self._hybrid_disabled, self.assumptions)

    def _branches(self):
        """(layer index, attention) of all that keeps something; a parallel layer gives several."""
        for index, item in enumerate(self.layers):
            if item is None or item.get("kv_from"):
                continue
            for branch in item.get("branches", (item,)):
                yield index, branch

    def _token(self, item, index):
        cache = self._plain_cache if self._is_skipped(item, index) else self.cache
        return token_bytes(
            item, cache, self.tp, self.version, self.generation, self._mla_disabled, self._capability
        )

    def _is_skipped(self, item, index):
        if not self._skipped:
            return False
        return str(index) in self._skipped or (
            item["kind"] == "sliding" and "sliding_window" in self._skipped
        )

    def _state(self, item):
        return state_bytes(item, self.cache, self.tp, self._speculative_tokens)

    def _block_size(self, given):
        items = [item for _index, item in self._branches()]
        states = max((self._state(item) for item in items), default=0)
        if states and self.generation == "V1":
            tokens = [self._token(item, index) for index, item in self._branches()]
            return hybrid_block_size(max(tokens, default=0), states, given)
        if given:
            return given
        if any(item["kind"] == "compressed" for item in items):
            return _COMPRESSED_BLOCK
        return _SPARSE_BLOCK if any(item.get("indexer") for item in items) else _BLOCK

    def _specs(self):
        specs = []
        for index, item in self._branches():
            if item["kind"] == "compressed":
                row = self._token(item, index)
                specs += [(index, spec) for spec in _compressed_specs(item, self.block_size, row)]
                continue
            specs += [(index, spec) for spec in self._plain_specs(item, index)]
        widest = max((spec.page for _index, spec in specs if spec.kind != "state"), default=0)
        # A state's page is padded to the attention's.
        return [
            (index, spec._replace(page=max(spec.page, widest)) if spec.kind == "state" else spec)
            for index, spec in specs
        ]

    def _plain_specs(self, item, index):
        token, state, block = self._token(item, index), self._state(item), self.block_size
        if state:
            yield Spec("state", block, 0, state, state)
        if token:
            kind = "full" if item["kind"] == "mla" else item["kind"]
            window = item.get("window") or item.get("chunk") or 0
            yield Spec(kind, block, token, token * block, 0, window if kind in ("sliding", "chunked") else 0)
        indexer = indexer_bytes(item)
        if indexer:
            yield Spec("full", block, indexer, indexer * block)
        if item.get("cross"):
            yield Spec("cross", block, token, token * block, 0, item["cross"]["tokens"])

    # --- what a request needs ---

    def _limits(self, batched_tokens, prefix_caching, mamba_mode, async_scheduling):
        tokens = batched_tokens
        if tokens is None:
            tokens = 8192
            if any(group.spec.kind in ("sliding", "chunked") for group in self.groups):
                note(
                    self.assumptions, "max_num_batched_tokens isn't known: 8192 is assumed for window layers"
                )
        if in_range(self.version, "0.26") and async_scheduling is not False:
            tokens *= 2
        context = self.dcp * self.pcp
        if in_range(self.version, "0.26"):
            context = self.dcp
        return Limits(tokens, self._state_blocks(prefix_caching, mamba_mode), context)

    def _state_blocks(self, prefix_caching, mamba_mode):
        if not any(spec_group.spec.kind == "state" for spec_group in self.groups):
            return 1
        if in_range(self.version, None, "0.14"):
            # One until 0.11; then one for every block of tokens where states are cached.
            return 0 if prefix_caching and in_range(self.version, "0.12") else 1
        if mamba_mode is None:
            mamba_mode = self._mamba_mode(prefix_caching)
        if mamba_mode == "all":
            return 0
        return (2 if mamba_mode == "align" else 1) + self._speculative_tokens

    def _mamba_mode(self, prefix_caching):
        """align where states are cached or drafts must be rolled back (0.20+), else none."""
        if prefix_caching is None:
            # Hybrids: opt-in until 0.27 (vLLM pull request 50991).
            prefix_caching = in_range(self.version, "0.28")
            if prefix_caching is None:
                note(self.assumptions, "neither version nor prefix caching is known: it is taken as on")
                prefix_caching = True
        drafts = self._speculative_tokens and in_range(self.version, "0.20") is not False
        return "align" if prefix_caching or drafts else "none"

    def blocks_per_request(self, length):
        """Blocks over all groups that one request of ``length`` tokens takes."""
        return sum(blocks_of_request(group.spec, length, self.limits) for group in self.groups)

    def need_bytes(self, length):
        """Bytes of one request of ``length`` tokens, as the check at start counts them (6.2)."""
        if self._needs_of_layers:
            return sum(
                blocks_of_request(group.spec, length, self.limits) * self._page_of_layers(group)
                for group in self.groups
            )
        return self.blocks_per_request(length) * self.bytes_per_block

    def _page_of_layers(self, group):
        """Bytes of one block of the layers that ``group`` really has on this stage."""
        if len(self.groups) == 1:
            return self.bytes_per_block
        return group.spec.page * max(self._layers_on_stage(group))

    # --- blocks ---

    def _stages(self):
        counts = pipeline_split(len(layer_list(self.arch)), self.pp)
        ends = [sum(counts[: stage + 1]) for stage in range(self.pp)]
        # Draft layers live on the last stage.
        ends[-1] = len(self.layers)
        return list(zip([0, *ends[:-1]], ends))

    def _layers_on_stage(self, group):
        return [sum(begin <= index < end for index in group.layers) for begin, end in self._stages()]

    def _bytes_per_block(self, groups):
        if not groups:
            return 0
        if self.pp == 1 or groups[0].filled:
            return max(group.page for group in groups)
        if len(groups) == 1:
            group = groups[0]
            share = max(self._layers_on_stage(group))
            return group.page * share // len(group.layers)
        return max(group.spec.page * max(self._layers_on_stage(group)) for group in groups)

    def share_of_stage(self, stage):
        """Bytes of a block on a pipeline stage, as a share of those on the stage that keeps most of it (0-1)."""
        if self.pp == 1 or not self.groups or self.groups[0].filled:
            return 1.0
        kept = [group.spec.page * self._layers_on_stage(group)[stage] for group in self.groups]
        most = [group.spec.page * max(self._layers_on_stage(group)) for group in self.groups]
        return max(kept) / max(most) if max(most) else 1.0

    def _bytes_per_token(self, groups):
        """Bytes of one more token while every layer grows: attention only, the padding of groups counted."""
        if not groups:
            return 0
        block = self._bytes_per_block(groups)
        if groups[0].filled:
            return block // groups[0].spec.block
        if len(groups) == 1:
            return block // groups[0].spec.block if groups[0].spec.kind != "state" else 0
        return sum(block // group.spec.block for group in groups if group.spec.kind != "state")

    def num_blocks(self, available, override=None):
        """Blocks of the pool in ``available`` bytes, the null block counted; the override replaces it."""
        if override:
            return override
        return max(0, int(available) // self.bytes_per_block) if self.bytes_per_block else 1

    def tokens(self, blocks, length=None):
        """What ``GPU KV cache size`` says for ``blocks`` blocks (6.4), or None without the length it takes."""
        if not self.groups:
            return None
        if self._by_length():
            return int(self.concurrency(blocks, length) * length) if length else None
        return self.physical_tokens(blocks) if not self._plain() else blocks * self.block_size

    def physical_tokens(self, blocks):
        """Tokens that fit when every group has the same number of blocks."""
        smallest = min(group.spec.block for group in self.groups)
        return blocks // len(self.groups) * smallest * self.dcp * self.pcp

    def _plain(self):
        return self.generation == "V0" or bool(in_range(self.version, None, "0.9.0"))

    def _by_length(self):
        """Whether the printed size is concurrency times length: from 0.20.2; of unknown versions when it matters."""
        if self._plain():
            return False
        known = in_range(self.version, "0.20.2")
        if known is None:
            return len(self.groups) > 1
        return known

    def concurrency(self, blocks, length):
        """``Maximum concurrency`` for requests of ``length`` tokens."""
        if self._plain():
            return blocks * self.block_size / length
        if self.groups and self.groups[0].filled and not in_range(self.version, "0.27"):
            # Counted in blocks of the first group's own bytes, not of the pool's.
            need = sum(
                blocks_of_request(group.spec, length, self.limits) * group.filled for group in self.groups
            )
            return blocks / -(-need // self.groups[0].filled)
        return blocks / self.blocks_per_request(length)

    # --- the check at start ---

    def usable(self, available, override=None):
        """Bytes that the check plans with: from 0.29 without the null block."""
        size = override * self.bytes_per_block if override else available
        return size - self.bytes_per_block if self._null_block else size

    def fits(self, available, length, override=None):
        """Whether one request of ``length`` tokens fits, as the check at start decides."""
        if self.generation == "V0":
            return self.num_blocks(available, override) * self.block_size >= length
        usable = self.usable(available, override)
        return usable > 0 and self.need_bytes(length) <= usable

    def estimated_max_len(self, available, length, override=None):
        """vLLM's ``estimated maximum model length``: the largest up to ``length`` that fits, 0 for none."""
        if not self.fits(available, 1, override):
            return 0
        low, high, result = 1, length, 1
        while low <= high:
            middle = (low + high) // 2
            if self.fits(available, middle, override):
                result, low = middle, middle + 1
            else:
                high = middle - 1
        return result

    def report(self, available, length, override=None):
        """All of it as plain data, for ``available`` bytes and requests of ``length`` tokens.

        ``{block_size, bytes_per_token, bytes_per_block, groups: [{kind, layers, block_size, page_bytes,
        blocks_per_request}], num_blocks, tokens, physical_tokens, max_concurrency, need_bytes, fits,
        estimated_max_len, kv_cache_dtype, assumptions}``; None where the length isn't known.
        """
        blocks = self.num_blocks(available, override)
        groups = [
            {
                "kind": group.spec.kind,
                "layers": len(group.layers),
                "block_size": group.spec.block,
                "page_bytes": group.spec.page,
                "blocks_per_request": blocks_of_request(group.spec, length, self.limits) if length else None,
            }
            for group in self.groups
        ]
        return {
            "block_size": self.block_size,
            "bytes_per_token": self.bytes_per_token,
            "bytes_per_block": self.bytes_per_block,
            "groups": groups,
            "num_blocks": blocks,
            "tokens": self.tokens(blocks, length),
            "physical_tokens": self.physical_tokens(blocks) if self.groups else None,
            "max_concurrency": self.concurrency(blocks, length) if length and self.groups else None,
            "need_bytes": self.need_bytes(length) if length else None,
            "fits": self.fits(available, length, override) if length else None,
            "estimated_max_len": self.estimated_max_len(available, length, override) if length else None,
            "kv_cache_dtype": self.cache.name,
            "assumptions": list(self.assumptions),
        }


def _compressed_specs(item, block, row):
    """DeepSeek-V4: a window cache for every layer; compressed entries, an index and the compressor's states."""
    align = _COMPRESSED_ALIGNMENT

    def padded(size):
        return -(-size // align) * align

    yield Spec("sliding", 64, row, padded(64 * row), 0, item["window"], align)
    ratio = item["ratio"]
    if not ratio:
        return
    yield Spec("full", block, row, padded(block // ratio * row), 0, 0, align, ratio)
    # States in 32 bits, key and score; windows of four overlap, which doubles them.
    twice = 2 if ratio == 4 else 1
    state_block = 4 if ratio == 4 else 8
    state = 2 * twice * item["head_size"] * 4
    yield Spec("sliding", state_block, state, padded(state_block * state), 0, twice * ratio, align)
    if item["indexer"]:
        entry = indexer_bytes(item)
        yield Spec("full", block, entry, padded(block // ratio * entry), 0, 0, align, ratio)
        state = 2 * twice * item["indexer"]["head_size"] * 4
        yield Spec("sliding", state_block, state, padded(state_block * state), 0, twice * ratio, align)
