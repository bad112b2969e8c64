# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of labelled sections on a terminal that share a number of lines, and commands that stay whole in them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .text import shorten, wrap

# A shell word, quotes included: a command is only broken between words.
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""")


class Section(NamedTuple):
    """A labelled part of a block.

    versions: its lines in several lengths, the longest first; floor: how many lines it must keep; rank: who gets room that is
    left first, the lowest; commands: those of its lines that are part of a command.
    """

    label: str
    versions: list
    floor: int
    rank: int
    commands: tuple = ()


def fit(sections, room, width, indent):
    """The sections' lines, cut so that all of them together take at most ``room`` lines.

    Every section keeps its first lines; what is left goes to the sections in their order of rank. Of a
    section with several versions the longest that fits is taken; a cut within one is marked. indent: where the text
    begins, behind the label; lines without a label begin at 2.
    """
    left = room - sum(section.floor for section in sections)
    shown = {}
    for section in sorted(sections, key=lambda item: item.rank):
        mine = section.floor + max(0, left)
        lines = next((version for version in section.versions if len(version) <= mine), section.versions[-1])
        if len(lines) > mine:
            last = lines[mine - 1]
            lines = [*lines[: mine - 1], last if last in section.commands else marked(last, width - indent)]
        left -= len(lines) - section.floor
        shown[section.label] = lines
    out = []
    for section in sections:
        for number, line in enumerate(shown[section.label]):
            lead = f"  {section.label}" if number == 0 else ""
            out.append((lead.ljust(indent if section.label else 2) + line).rstrip())
    return out[:room]


def marked(line, width):
    """``line`` with the sign that something follows that is not shown."""
    return shorten(line + " …", width)


def bullets(texts, width):
    return [line for text in texts for line in wrap(f"- {text}", width, "  ")]


def command_lines(text, width):
    """A shell command in lines joined by a backslash, broken between words only; a comment becomes lines of its own."""
    words = _SHELL_WORD.findall(text)
    if "".join("".join(words).split()) != "".join(text.split()):
        return [text]  # an odd quote: what is no shell word can't be broken safely
    number = next((index for index, word in enumerate(words) if word.startswith("#")), len(words))
    lines = [""]
    for word in words[:number]:
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines.append("    " + word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    comment = wrap(" ".join(words[number:]), width, "# ")
    return [f"{line} \\" for line in lines[:-1]] + [line for line in lines[-1:] if line] + comment
