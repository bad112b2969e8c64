# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layers share a block table, and the block and page sizes that follow (vllm-memory 6.2 and 6.3).

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from ..engine.versions import in_range
from .config_fields import note
from .kv_pages import Spec


class Group(NamedTuple):
    """Layers with one block table. spec: of its layers (of the first, where ``mixed``); layers: their indices.

    page: bytes of one block of all its layers: of ``width`` layers, padding counted; filled: bytes of it that its
    layers use, where that is less.
    """

    spec: Spec
    layers: tuple[int, ...]
    width: int
    page: int
    filled: int = 0


class Limits(NamedTuple):
    """What a request's need depends on besides its length. tokens: that one step (and those in flight) brings;
    state_blocks: of one request in a state layer, 0: one for every block of tokens; context: dcp x pcp as far as it divides a request."""

    tokens: int
    state_blocks: int = 1
    context: int = 1


def blocks_of_request(spec, length, limits):
    """Blocks of one group that one request of ``length`` tokens takes (6.2)."""
    if spec.kind == "state":
        return limits.state_blocks or -(-length // spec.block)
    if spec.kind == "sliding":
        tokens = min(spec.window - 1 + limits.tokens, length)
        return -(-tokens // spec.block) + 1
    if spec.kind == "chunked":
        return -(-min(spec.window + limits.tokens, length) // spec.block)
    if spec.kind == "cross":
        return -(-spec.window // spec.block)
    mine = (length + limits.context - 1) // limits.context
    return -(-mine // spec.block)


def hybrid_block_size(attention, states, given, alignment=16):
    """The attention block size of a model with state layers: the least whose page holds a state.

    attention: bytes of one token in the widest attention layer; states: bytes of the widest state; given: the
    user's block size or None, kept where it is larger.
    """
    if not attention or not states:
        return given or alignment
    least = alignment * -(-states // (alignment * attention))
    return max(least, given or 0)


def grouped(specs, version, hybrid_disabled, assumptions):
    """The Groups of layers with ``specs`` ([(layer index, Spec)])."""
    if not specs:
        return []
    if hybrid_disabled or in_range(version, None, "0.9.0"):
        specs = [(index, _as_full(spec)) for index, spec in specs]
    kinds = {_kind_key(spec) for _index, spec in specs}
    if len(kinds) == 1:
        # One type, perhaps of several sizes: one group that holds every layer as it is.
        layers = tuple(index for index, _spec in specs)
        return [Group(specs[0][1], layers, len(layers), sum(spec.page for _index, spec in specs))]
    if any(spec.alignment > 1 for _index, spec in specs):
        return _packed(specs, version)
    specs = _with_one_page(specs, version, assumptions)
    return _split(specs, version)


def _kind_key(spec):
    """What makes layers need the same blocks: the kind, its window and the tokens of a block."""
    return (spec.kind, spec.window if spec.kind != "full" else 0, spec.block)


def _as_full(spec):
    if spec.kind in ("sliding", "chunked"):
        return spec._replace(kind="full", window=0)
    return spec


def _with_one_page(specs, version, assumptions):
    """Every layer's page made as large as the largest: by more tokens, or by padding."""
    largest = max(spec.page for _index, spec in specs)
    result = []
    for index, spec in specs:
        if spec.page == largest:
            result.append((index, spec))
            continue
        if spec.kind == "state":
            result.append((index, spec._replace(page=largest)))
            continue
        if largest % spec.page == 0:
            result.append((index, spec._replace(block=spec.block * (largest // spec.page), page=largest)))
            continue
        note(assumptions, "page sizes of the layers don't divide each other: smaller pages are padded")
        factor = largest // spec.page
        result.append((index, spec._replace(block=spec.block * factor, page=largest)))
    return result


def group_size(counts, version):
    """Layers of a group, from the layers of each type (6.3)."""
    least, most = min(counts), max(counts)
    if in_range(version, None, "0.11"):
        return least
    limit = 1.25 if in_range(version, None, "0.17") else 1.5
    return most if most < least * limit else least


def _split(specs, version):
    types: dict[Spec, list[int]] = {}
    for index, spec in specs:
        types.setdefault(spec, []).append(index)
    size = group_size([len(layers) for layers in types.values()], version)
    groups = []
    for spec, layers in types.items():
        count = -(-len(layers) // size)
        for part in range(count):
            groups.append(Group(spec, tuple(layers[part::count]), size, spec.page * size))
    width = max(len(group.layers) for group in groups)
    return [group._replace(width=width, page=group.spec.page * width) for group in groups]


def _packed(specs, version):
    """DeepSeek-V4: layers with pages of several sizes share a block; the group that keeps every token comes first."""
    kinds: dict[tuple, list[tuple[int, Spec]]] = {}
    for index, spec in sorted(specs, key=lambda item: item[1].kind != "full"):
        kinds.setdefault(_kind_key(spec), []).append((index, spec))
    sizes = sorted({spec.page for _index, spec in next(iter(kinds.values()))})
    newest = in_range(version, "0.29")
    if not newest:
        # Pages of window layers grow to the next size that the first group has.
        kinds = {
            key: [(index, spec._replace(page=_next_size(spec.page, sizes))) for index, spec in members]
            for key, members in kinds.items()
        }
    repeats = {key: _repeats(members) for key, members in kinds.items()}
    mixed = [count for key, count in repeats.items() if len({spec.page for _i, spec in kinds[key]}) > 1]
    width = _least_padding(list(repeats.values()), max(mixed, default=1))
    groups = []
    for key, members in kinds.items():
        count = -(-repeats[key] // width)
        for part in range(count):
            chosen = members[part::count]
            page = sum(spec.page for _index, spec in chosen)
            groups.append(Group(chosen[0][1], tuple(index for index, _spec in chosen), width, page, page))
    block = max(group.page for group in groups) if newest else width * sum(sizes)
    return [group._replace(page=block) for group in groups]


def _next_size(page, sizes):
    return next((size for size in sizes if size >= page), page)


def _repeats(members):
    """Layers of the most frequent page size."""
    pages = [spec.page for _index, spec in members]
    return max(pages.count(page) for page in set(pages))


def _least_padding(counts, least):
    """The group width from ``least`` on that pads the ``counts`` of layers least."""
    return min(
        range(least, max(counts) + 1), key=lambda width: (sum(-count % width for count in counts), width)
    )
