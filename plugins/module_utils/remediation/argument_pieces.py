# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's arguments where they are written: list items, words of a script, words in a variable.

What the engine is told is read by ``engine.command_line``; this finds the text that tells it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..engine import command_line
from . import shell_words

_REST = ("$@", "${@}")
# One list item that holds a flag with its value, or several flags (see engine.settings).
_PACKED = re.compile(r"--?[A-Za-z][\w.+-]*(=\S*\s+--?[A-Za-z]|\s)", re.DOTALL)
_PACKED_JSON = re.compile(r"--?[A-Za-z][\w.+-]*\s+[{\[]", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|([A-Za-z_]\w*))")


class Piece(NamedTuple):
    """One argument. text: as the program gets it, apart from references; field, position: the list item, or ``env`` and the
    variable's name; gap, start, end: its place in that text; whole: it is the list item, without a shell's quotes."""

    text: str
    field: str
    position: int | str
    gap: int
    start: int
    end: int
    whole: bool


class Written(NamedTuple):
    """pieces: the engine's arguments in order; script: place of the script that starts it (field, index), or None;
    end: where the last word of the engine's command ends in that script; gap: the blanks that it puts before a flag."""

    pieces: list[Piece]
    script: tuple[str, int] | None
    end: int
    gap: str


def literal_values(env):
    """``{NAME: text}`` of the variables that are written in a Kubernetes env list; of a repeated one the last counts."""
    found: dict[str, str] = {}
    for item in env or []:
        found.pop(item["name"], None)
        if item.get("value") is not None or "valueFrom" not in item:
            found[item["name"]] = str(item.get("value") or "")
    return found


def written(command, args, env):
    """The ``Written`` of a container; None where its script starts the engine in a way that isn't followed here
    (a shell in the shell, ``eval``)."""
    items = [
        ("command" if field is command else "args", index, str(text))
        for field in (command, args)
        for index, text in enumerate(field or [])
    ]
    values = literal_values(env)
    position = _script(items)
    tokens = command_line.engine_tokens(command, args, env)
    if position is None:
        places = {(token["field"], token["index"]) for token in tokens}
        own = [piece for item in items if item[:2] in places for piece in _of_item(*item)]
        found: Written | None = Written(own, None, 0, " ")
    else:
        found = _of_script(items, position)
    if found is None:
        return None
    pieces = [part for piece in found.pieces for part in _opened(piece, values)]
    names = dict.fromkeys(token["index"] for token in tokens if token["field"] == "env")
    first = bool(tokens) and tokens[0]["field"] == "env"
    carried = [part for name in names for part in _of_variable(name, values)]
    return found._replace(pieces=carried + pieces if first else pieces + carried)


def _script(items):
    """The position of the script that a shell is given with ``-c``, or None."""
    words = [{"text": text, "field": field, "index": index} for field, index, text in items]
    found = command_line.script_of(words)
    if found is None or words[0]["text"] == "eval":
        return None
    return next(at for at, word in enumerate(words) if word is found[1])


def _word(word, field, position):
    return Piece(word.text, field, position, word.gap, word.start, word.end, False)


def _of_item(field, index, text):
    packed = _PACKED.match(text)
    if packed and not _PACKED_JSON.match(text):
        return [_word(word, field, index) for word in shell_words.words(text)]
    if packed:
        flag = text.split(maxsplit=1)[0]
        value = text[len(flag) :].lstrip()
        start = len(text) - len(value)
        return [
            Piece(flag, field, index, 0, 0, len(flag), True),
            Piece(value, field, index, len(flag), start, len(text), True),
        ]
    return [Piece(text, field, index, 0, 0, len(text), True)]


def _of_script(items, position):
    field, index, script = items[position]
    engines = [
        words
        for words in shell_words.commands(script)
        if command_line.is_engine_command([word.text for word in words], None)
    ]
    if not engines:
        return None
    words = engines[-1]
    texts = [word.text for word in words]
    count = len(command_line.engine_tokens(texts, None, []))
    if count and not _are(texts[-count:], command_line.engine_tokens(texts, None, [])):
        return None
    pieces: list[Piece] = []
    for word in words[len(words) - count :]:
        if word.text in _REST:
            pieces += [piece for item in items[position + 2 :] for piece in _of_item(*item)]
        else:
            pieces.append(_word(word, field, index))
    gaps = [
        script[piece.gap : piece.start] for piece in pieces if (piece.field, piece.position) == (field, index)
    ]
    flags = [piece for piece in pieces if piece.text.startswith("-") and not piece.whole]
    gap = script[flags[-1].gap : flags[-1].start] if flags else (gaps or [" "])[-1]
    return Written(pieces, (field, index), words[-1].end, gap or " ")


def _are(texts, tokens):
    return all(text == token["text"] or "$$" in text or text in _REST for text, token in zip(texts, tokens))


def variable_of(text):
    """The name of the variable that a text is nothing but a reference to, or None."""
    match = _VARIABLE.fullmatch(text)
    return next(filter(None, match.groups()), None) if match else None


def variables_in(text):
    """The names of all variables that a text refers to."""
    return {name for name in re.findall(r"\$[({]{0,2}\s*([A-Za-z_]\w*)", text) if name}


def mentions(command, args, env, name):
    """How often a container's texts refer to a variable."""
    texts = [*(command or []), *(args or []), *(item.get("value") or "" for item in env or [])]
    pattern = re.compile(r"\$[({]?" + re.escape(name) + r"\b")
    return sum(len(pattern.findall(str(text))) for text in texts)


def _opened(piece, values):
    """A piece that is a reference to a variable with flags in it: that variable's words."""
    name = variable_of(piece.text)
    words = _of_variable(name, values) if name in values else []
    return words if any(word.text.startswith("-") and len(word.text) > 2 for word in words) else [piece]


def _of_variable(name, values):
    return [_word(word, "env", name) for word in shell_words.words(values.get(name) or "")]
