# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the message rows out of the fact sheets, so that the committed table can be held against them.

Rows: ``{section, cell, range}``. ``cell`` is the row's first cell (or the bullet) in raw Markdown, ``range`` the
releases, where the row names them. ``python tests/unit/diagnosis/message_rows.py FACTS_FOLDER`` prints what
``message_templates.json`` lacks and what it holds too much.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TABLE = Path(__file__).with_name("message_templates.json")

# Fact sheet -> prefix of its sections in the table, and the sections whose rows hold messages.
SHEETS = {
    "vllm-memory.md": ("vllm", [f"3.{number}" for number in range(1, 22)] + ["10.1"]),
    "kubernetes-gpu-facts.md": ("k8s", ["1.5", "2", "10.4"]),
}
# Tables of the sections above that list no messages: their first header cell.
_NO_MESSAGES = {"torch"}
# Where the message isn't in the first cell: header of the column that holds it.
_MESSAGE_COLUMNS = (
    "Template",
    "Text",
    "Message form",
    "Message",
    "WARN text",
    "Line (shortened only where `…`)",
)
_RANGE_COLUMNS = ("Range", "Release")
# The only bullets that list messages.
_BULLET_SECTIONS = {"3.21"}
# The only fenced block that is a message.
_BLOCK_SECTIONS = {"3.20"}
_HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? ")
_CELL_END = re.compile(r"(?<!\\)\|")


def _cells(line):
    """The cells of a Markdown table line."""
    return [cell.strip() for cell in _CELL_END.split(line.strip().strip("|"))]


def _sections(text):
    """Section number -> its lines, without those of its subsections."""
    sections: dict[str | None, list[str]] = {}
    current = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            current = heading.group(1)
        sections.setdefault(current, []).append(line)
    return sections


def _table_rows(lines):
    """(message cell, range) of every row of the message tables in ``lines``."""
    header = None
    for line in lines:
        if not line.startswith("|"):
            header = None
            continue
        cells = _cells(line)
        if header is None:
            header = cells
            continue
        if set("".join(cells)) <= set("-: ") or header[0] in _NO_MESSAGES:
            continue
        by_name = dict(zip(header, cells, strict=False))
        message = next((by_name[name] for name in _MESSAGE_COLUMNS if name in by_name), None)
        if message is not None and "object" not in header[0].lower():
            yield message, next((by_name[name] for name in _RANGE_COLUMNS if name in by_name), None)
        elif message is not None:
            yield f"{by_name.get('type / reason', '')}: {message}", None


def _bullets(lines):
    """The bullets in ``lines``, each on one line."""
    bullet = None
    for line in [*lines, ""]:
        if line.startswith("* "):
            if bullet:
                yield bullet
            bullet = line[2:].strip()
        elif bullet and line.startswith("  "):
            bullet += " " + line.strip()
        else:
            if bullet:
                yield bullet
            bullet = None


def _blocks(lines):
    """The fenced blocks in ``lines``, each on one line."""
    inside, block = False, list[str]()
    for line in lines:
        if line.startswith("```"):
            if inside:
                yield " ".join(part.strip() for part in block)
            inside, block = not inside, []
        elif inside:
            block.append(line)


def extract(folder):
    """The rows of the fact sheets in ``folder``, in their order."""
    rows = []
    for name, (sheet, wanted) in SHEETS.items():
        sections = _sections((Path(folder) / name).read_text(encoding="utf-8"))
        for section in wanted:
            lines = sections[section]
            found = list(_table_rows(lines))
            if section in _BLOCK_SECTIONS:
                found = [(block, None) for block in _blocks(lines)] + found
            if section in _BULLET_SECTIONS:
                found += [(bullet, None) for bullet in _bullets(lines)]
            rows += [{"section": f"{sheet} {section}", "cell": cell, "range": span} for cell, span in found]
    return rows


def key(row):
    return row["section"], row["cell"], row["range"]


def main(folder):
    fresh = {key(row) for row in extract(folder)}
    committed = {key(row) for row in json.loads(TABLE.read_text(encoding="utf-8"))["rows"]}
    for sign, rows in (("+", fresh - committed), ("-", committed - fresh)):
        for row in sorted(rows, key=str):
            print(sign, json.dumps(row, ensure_ascii=False))
    return 1 if fresh != committed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
