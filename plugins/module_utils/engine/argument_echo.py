# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's own word on its settings: argument and configuration lines of its log.

``non-default args: {…}``, ``args: Namespace(…)`` and the configuration echo ``LLM engine (v…) with config:
…`` are printed with Python's ``repr``: mostly literals, but also ``<Enum: 'x'>``, ``torch.bfloat16`` and
nested objects, and the line may be cut. They are taken apart item by item, so that one strange or cut value
costs only itself.
Source: vllm-memory section 1.1.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import ast
import json
import re

from .flags import BY_NAME, fit_value, name_of, nests_too_deep

_NON_DEFAULT = re.compile(r"non-default args: *(\{.*)", re.DOTALL)
_NAMESPACE = re.compile(r"\bargs: *Namespace\((.*)", re.DOTALL)
_CONFIG = re.compile(r"\bLLM engine (?:\(v[^)]*\) )?with config: *(.*)", re.DOTALL)
# Lines about one setting, and their rank. The block size of a hybrid model is forced on what was asked for.
_SINGLE = (
    (re.compile(r"Using max model len (\d+)"), "max_model_len", 1),
    (
        re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)"),
        "max_num_batched_tokens",
        1,
    ),
    (re.compile(r"Using (\S+) data type to store kv cache"), "kv_cache_dtype", 1),
    (re.compile(r"vLLM server version \S+, serving model (\S+)"), "model", 1),
    (re.compile(r"^[^0-9A-Za-z]*[\u2580-\u259f]\s+model\s+(\S+)\s*$"), "model", 1),
    (re.compile(r"Setting attention block size to (\d+) tokens"), "block_size", 4),
)
# What the configuration echo calls an option, where the names differ.
_ECHO_NAMES = {
    "max_seq_len": "max_model_len",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "model_tag": "model",
    "device_config": "device",
    "kv_cache_memory": "kv_cache_memory_bytes",
}
# Of the echo's compilation_config, which is long, what decides about CUDA graphs and compilation.
_COMPILATION_KEYS = (
    "level",
    "mode",
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_capture_size",
    "max_cudagraph_capture_size",
    "full_cuda_graph",
    "use_cudagraph",
)
_KEY = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\"|([A-Za-z_]\w*))\s*[:=]\s*")
_ENUM = re.compile(r"<(?:\w+\.)*(\w+): *(.+)>")
_CALL = re.compile(r"[A-Za-z_][\w.]*\((.*)\)", re.DOTALL)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MAX_TEXT = 300


def read_line(text):
    """(rank, {NAME: value}) of one log line; (None, {}) for any other line.

    rank: how much the line's word counts. 4: what vLLM forces; 3: the arguments as given; 2: the configuration
    echo, which also holds what vLLM chose itself; 1: another line about one setting.
    Values that the line cuts off, and None, are left out. Names are those of ``flags``. ``non-default args``
    holds what a person set and is kept whole; of the others, which hold everything, what matters to memory.
    """
    for pattern, rank, everything in ((_NON_DEFAULT, 3, True), (_NAMESPACE, 3, False), (_CONFIG, 2, False)):
        match = pattern.search(text)
        if match:
            echo = pattern is _CONFIG
            return rank, _settings(items(match.group(1), open_ended=echo), everything, echo)
    for pattern, name, rank in _SINGLE:
        match = pattern.search(text)
        if match:
            return rank, {name: fit_value(BY_NAME[name].kind, match.group(1))}
    return None, {}


def _settings(pairs, everything, echo):
    settings = {}
    for key, written in pairs:
        name = _ECHO_NAMES.get(key, key)
        option = BY_NAME.get(name)
        value = value_of(written)
        if value is None or not (everything or (option and option.memory)):
            continue
        if option:
            value = fit_value(option.kind, value)
            name = name_of(option, value)
        if echo and isinstance(value, dict):
            value = _NESTED.get(name, dict)(value)
        # a name of its own counts more than another name for it (model, model_tag)
        if value is not None and (name == key or name not in settings):
            settings[name] = value
    return settings


def _compilation(config):
    return {key: config[key] for key in _COMPILATION_KEYS if key in config}


def _speculation(config):
    return {("num_speculative_tokens" if key == "num_spec_tokens" else key): config[key] for key in config}


_NESTED = {"compilation_config": _compilation, "speculative_config": _speculation}


def items(body, open_ended=False):
    """``[(key, written value)]`` of a dict's, call's or configuration's repr (opening bracket optional).

    Stops at the closing bracket. A last value without an end (the line was cut) is dropped; open_ended: the
    configuration echo has no closing bracket, so its last value counts if it is balanced.
    """
    closed_by = "}" if body.startswith("{") else ")"
    position, found = (1 if body.startswith("{") else 0), []
    while position < len(body):
        match = _KEY.match(body, position)
        if not match:
            break
        end, complete, balanced = _value_end(body, match.end(), closed_by)
        if complete or (open_ended and balanced and not body.rstrip().endswith(("...", "…"))):
            found.append(
                (
                    next(group for group in match.groups() if group is not None),
                    body[match.end() : end].strip(),
                )
            )
        position = end + 1
        if end >= len(body) or body[end] == closed_by:
            break
    return found


def _value_end(body, start, closed_by):
    """(where the value that begins at ``start`` ends, whether that was seen, whether no bracket is open)."""
    stack: list[str] = []
    position = start
    while position < len(body):
        character = body[position]
        if character in "'\"":
            position = _string_end(body, position)
            if position >= len(body):
                return position, False, False
        elif not stack and character in ("," + closed_by):
            return position, True, True
        elif character in _BRACKETS:
            stack.append(_BRACKETS[character])
        elif stack and character == stack[-1]:
            stack.pop()
        position += 1
    return position, False, not stack


def _string_end(body, start):
    """Where the string literal that begins at ``start`` ends (its closing quote), or the length."""
    position = start + 1
    while position < len(body) and body[position] != body[start]:
        position += 2 if body[position] == "\\" else 1
    return position


def value_of(written):
    """A repr as plain data: literals, JSON, ``<Enum: 'x'>``, ``torch.bfloat16``, ``Class(a=1)``; else text."""
    if nests_too_deep(written):
        return written[:_MAX_TEXT]
    try:
        return _plain(ast.literal_eval(written))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    try:
        return json.loads(written)
    except ValueError:
        pass
    enum = _ENUM.fullmatch(written)
    if enum:
        value = value_of(enum.group(2))
        return value if isinstance(value, (str, int)) else enum.group(1)
    call = _CALL.fullmatch(written)
    if call:
        inner = items(call.group(1) + ")")
        return {key: value_of(value) for key, value in inner} if inner else value_of(call.group(1))
    if written[:1] == "{" and written[-1:] == "}":
        return {key: value_of(value) for key, value in items(written)}
    if written[:1] == "[" and written[-1:] == "]":
        return [value_of(part) for part in _elements(written[1:-1])]
    if _DOTTED.fullmatch(written):
        return written.rsplit(".", 1)[-1]
    return written[:_MAX_TEXT]


def _elements(body):
    position, found = 0, []
    while position < len(body):
        end = _value_end(body, position, "\0")[0]
        if body[position:end].strip():
            found.append(body[position:end].strip())
        position = end + 1
    return found


def _plain(value):
    """Tuples and sets as lists, so that a setting is JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(inner) for inner in value), key=str)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
