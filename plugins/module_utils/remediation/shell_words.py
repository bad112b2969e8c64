# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the words of a shell script stand, so that one of them can be changed and the rest stays as it is written.

``engine.command_line`` reads what a script means; this finds the places. Nothing is expanded: ``$VAR``, ``$(…)`` and
back-ticks stay in a word as they are.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

_BLANKS = re.compile(r"(?:[ \t]|\\\r?\n|\r(?=\n))+")
_REDIRECTION = re.compile(r"(?:\d+|&)?(<<-?(?!<)|<<<|>>|>&|<&|<>|>\||[<>])[ \t]*")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SPECIAL_IN_QUOTES = tuple('$`"\\')
_CLOSING = {"$(": ("(", ")"), "${": ("{", "}")}


class Word(NamedTuple):
    """One word of a script. text: without its quotes; gap: where the blanks before it begin; start, end: its place."""

    text: str
    gap: int
    start: int
    end: int


def commands(script):
    """The simple commands of a script, each the list of its ``Word`` s without assignments and redirections."""
    return _Reader(script).commands()


def words(text):
    """The words of a text without separators, such as a variable that carries arguments: quotes count, ``;`` doesn't."""
    return _Reader(text, separators="\n").flat()


def requoted(raw, text):
    """``text`` for a script, in the quotes in which the word ``raw`` stands, where they can hold it."""
    quote = raw[:1] if len(raw) > 1 and raw[:1] in ("'", '"') and raw.endswith(raw[:1]) else ""
    if quote and not re.search(r"['\"\\$`!\n]", text):
        return f"{quote}{text}{quote}"
    return shlex.quote(text)


class _Reader:
    def __init__(self, text, separators="\n;&|()"):
        self.text = text
        self.separators = separators
        self.position = 0
        self.gap = 0
        self.delimiters: list[str] = []

    def commands(self):
        found: list[list[Word]] = [[]]
        while self.position < len(self.text):
            if self._blanks() or self._comment() or self._redirection():
                continue
            if self.text[self.position] in self.separators:
                self._separator()
                found.append([])
                continue
            array = not found[-1] and _ARRAY.match(self.text, self.position)
            if array:
                self.position = self.gap = _closing(self.text, array.end() - 1, "(", ")")
                continue
            word = self._word()
            if found[-1] or not _ASSIGNMENT.match(self.text, word.start):
                found[-1].append(word)
        return [command for command in found if command]

    def flat(self):
        found = []
        while self.position < len(self.text):
            if self._blanks():
                continue
            if self.text[self.position] in self.separators:
                self.position += 1
                continue
            found.append(self._word())
        return found

    def _blanks(self):
        match = _BLANKS.match(self.text, self.position)
        if match:
            self.position = match.end()
        return bool(match)

    def _comment(self):
        if self.text[self.position] != "#":
            return False
        end = self.text.find("\n", self.position)
        self.position = self.gap = len(self.text) if end < 0 else end
        return True

    def _redirection(self):
        match = _REDIRECTION.match(self.text, self.position)
        if not match:
            return False
        self.position = match.end()
        target = self._word().text
        if match.group(1) in ("<<", "<<-"):
            self.delimiters.append(target)
        return True

    def _separator(self):
        self.position += 1
        if self.text[self.position - 1] == "\n":
            for delimiter in self.delimiters:
                body = re.compile(r"^\t*" + re.escape(delimiter) + r"$", re.MULTILINE)
                match = body.search(self.text, self.position)
                self.position = len(self.text) if match is None else match.end()
            self.delimiters = []
        self.gap = self.position

    def _word(self):
        gap, start, end = self.gap, self.position, self.position
        parts = []
        while self.position < len(self.text):
            continued = re.compile(r"\\\r?\n").match(self.text, self.position)
            if continued:
                self.position = continued.end()
                continue
            character = self.text[self.position]
            if character in " \t\r" or character in self.separators:
                break
            if character in "<>" and ";" in self.separators:
                break
            parts.append(self._part(character))
            end = self.position
        self.position = self.gap = end
        return Word("".join(parts), gap, start, end)

    def _part(self, character):
        """The next character of a word, or the next quoted or substituted part of it; without the quotes."""
        start = self.position
        if character == "'":
            self.position = _after(self.text, "'", start + 1)
            return self.text[start + 1 : self.position].removesuffix("'")
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            self.position = min(start + 2, len(self.text))
            return self.text[start + 1 : self.position] or "\\"
        return self._plain(character)

    def _plain(self, character):
        start = self.position
        brackets = _CLOSING.get(self.text[start : start + 2])
        if brackets:
            self.position = _closing(self.text, start + 1, *brackets)
        elif character == "`":
            self.position = _after(self.text, "`", start + 1)
        else:
            self.position = start + 1
        return self.text[start : self.position]

    def _double_quoted(self):
        parts = []
        self.position += 1
        while self.position < len(self.text) and self.text[self.position] != '"':
            following = self.text[self.position + 1 : self.position + 2]
            if self.text[self.position] == "\\" and following in (*_SPECIAL_IN_QUOTES, "\n"):
                parts.append(following.replace("\n", ""))
                self.position += 2
            else:
                parts.append(self._plain(self.text[self.position]))
        self.position = min(self.position + 1, len(self.text))
        return "".join(parts)


def _after(text, character, start):
    """The position after the next ``character``; the end of the text where there is none."""
    found = text.find(character, start)
    return len(text) if found < 0 else found + 1


def _closing(text, start, opening, closing):
    """The position after the bracket that closes the one at ``start``; quotes protect brackets."""
    depth, position, quote = 0, start, ""
    while position < len(text):
        character = text[position]
        if character == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in (opening, closing):
            depth += 1 if character == opening else -1
            if depth == 0:
                return position + 1
        position += 1
    return len(text)
