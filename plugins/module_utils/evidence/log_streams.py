# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One saved text, several logs: told apart by source (pod, container) and by attempt, each scanned as a stream.

A text can hold the lines of many containers (stern, Loki …), sections (``kubectl cluster-info dump``), pieces of
``kubectl describe`` beside a log, and several runs of one engine after another.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DocumentError, log_lines
from ..quantities import MIB, show_bytes
from . import log_exports

# The API server prints its version once, before anything else; a second time means a second run. The logo's line
# ends in the version too. All have _BANNER_PART in common.
_BANNERS = (b"vLLM API server version ", b"vLLM server version ", b"\xe2\x96\x88  version ")
_BANNER_PART = b" version "
# What nothing but the end of a run prints.
_ENDS = (
    "Engine core initialization failed",
    "EngineDeadError",
    "Finished server process",
    "core dumped",
    "Fatal Python error",
    "KeyboardInterrupt: terminated",
    "Killed",
)

_LONGEST_LINE = 8 * MIB
# Text of exported records that is held to bring it into order.
_HELD = 128 * MIB
_MOST_STREAMS = 2000


class Attempts:
    """The log of one container as a sequence of runs: a new banner after a death starts the next one.

    make_scanner: gives a new log scanner (``feed(bytes)``, ``close()``).
    """

    def __init__(self, make_scanner):
        self._make = make_scanner
        self._scanner = make_scanner()
        # What was scanned between two banners: (whether it begins with one, excerpt).
        self._parts = []
        self._banner = False
        self._rest = b""

    def feed(self, data):
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > _LONGEST_LINE:
            end = len(data)
        self._rest = data[end:]
        if end:
            self._whole_lines(data if end == len(data) else data[:end])

    def close(self):
        """The excerpts of all runs, oldest first; at least one."""
        if self._rest:
            self._whole_lines(self._rest)
            self._rest = b""
        self._parts.append((self._banner, self._scanner.close()))
        runs = []
        ended = True
        for has_banner, excerpt in self._parts:
            if ended:
                runs.append(excerpt)
            else:
                runs[-1] = joined(runs[-1], excerpt)
            ended = _shows_end(excerpt, has_banner)
        return runs

    def _whole_lines(self, data):
        if data.find(_BANNER_PART) < 0:
            self._scanner.feed(data)
            return
        start = 0
        for position in _positions(data, _BANNERS):
            line_start = data.rfind(b"\n", 0, position) + 1
            self._scanner.feed(data[start:line_start])
            start = max(start, line_start)
            self._parts.append((self._banner, self._scanner.close()))
            self._scanner = self._make()
            self._banner = True
        self._scanner.feed(data[start:])


def _positions(data, literals):
    found = set()
    for literal in literals:
        position = data.find(literal)
        while position >= 0:
            found.add(position)
            position = data.find(literal, position + 1)
    return sorted(found)


def _shows_end(excerpt, has_banner):
    """Whether a run ended in this part of a log. Before the first banner only what nothing else prints will do."""
    if has_banner and excerpt["errors"]:
        return True
    return any(end in line["text"] for line in log_lines(excerpt) for end in _ENDS)


_LINE_LISTS = ("errors", "notes", "markers", "numbers", "arguments")


def joined(earlier, later):
    """Two parts of one log as one excerpt: the line numbers of the later part go on from the earlier one's."""
    moved = {
        field: [_moved(line, earlier["lines"]) for line in later[field]] for field in (*_LINE_LISTS, "tail")
    }
    if earlier["first_error"] and later["first_error"]:
        # No longer the first: its context goes back to where the other errors have theirs.
        moved["errors"][0]["context"] = _moved(later["first_error"], earlier["lines"])["context"]
    whole = dict(later)
    for field in _LINE_LISTS:
        whole[field] = [*earlier[field], *moved[field]]
    whole["tail"] = moved["tail"] or earlier["tail"]
    whole["first_error"] = earlier["first_error"] or (
        _moved(later["first_error"], earlier["lines"]) if later["first_error"] else None
    )
    for field in ("lines", "bytes"):
        whole[field] = earlier[field] + later[field]
    whole["cut"] = [*earlier["cut"], *later["cut"]]
    whole["first_time"] = earlier.get("first_time") or later.get("first_time")
    return whole


def _moved(line, offset):
    context = [
        _moved(item, offset) if isinstance(item, dict) and "line" in item else item
        for item in line.get("context") or []
    ]
    moved = dict(line, line=line["line"] + offset)
    if "context" in line:
        moved["context"] = context
    return moved


class Streams:
    """Logs by source. A source is ``(namespace, pod, container, attempt)``, each None where it isn't known."""

    def __init__(self, make_scanner):
        self._make = make_scanner
        self._attempts = {}
        self.nodes = {}

    def __bool__(self):
        return bool(self._attempts)

    def of(self, namespace=None, pod=None, container=None, attempt=None):
        source = (namespace, pod, container, attempt)
        if source not in self._attempts:
            if len(self._attempts) >= _MOST_STREAMS:
                raise DocumentError(
                    f"more than {_MOST_STREAMS} containers in one log: cut it down to the namespace that matters"
                )
            self._attempts[source] = Attempts(self._make)
        return self._attempts[source]

    def record(self, record):
        """Scan one RECORD of log_exports; its time goes before every line as ``kubectl logs --timestamps`` puts it."""
        stream = self.of(record["namespace"], record["pod"], record["container"], record["attempt"])
        if record["node"] and record["pod"]:
            self.nodes[(record["namespace"], record["pod"])] = record["node"]
        prefix = f"{record['time']} " if record["time"] else ""
        for text in record["message"].split("\n"):
            stream.feed(f"{prefix}{text}\n".encode("utf-8", "replace"))

    def records(self, records):
        """Scan RECORDs in the order of time. Returns None, or the sentence that says what was left out.

        Exports come newest first; to turn them around they are held up to a limit. Past it an export that was in
        order already goes on as a stream, and of one that wasn't the older lines are left out.
        """
        held = []
        size = 0
        records = iter(records)
        cut = None
        for record in records:
            held.append(record)
            size += len(record["message"])
            if size > _HELD:
                if log_exports.newest_first(held):
                    cut = f"only the newest {show_bytes(size)} of text were read (the export is newest first)"
                    records = iter(())
                break
        for record in log_exports.in_order(held):
            self.record(record)
        for record in records:
            self.record(record)
        return cut

    def close(self):
        """``[(source, excerpts)]`` in the order of their names."""
        order = sorted(
            self._attempts, key=lambda source: tuple(str("" if part is None else part) for part in source)
        )
        return [(source, self._attempts[source].close()) for source in order]


class Nowhere:
    """Stands in for Streams where only the describe text of a file is wanted."""

    def of(self, *_source):
        return self

    def feed(self, data):
        """Drop ``data``."""


def lines_of(chunks):
    """The lines (str, without line ends) of ``chunks`` of bytes; broken UTF-8 is replaced."""
    rest = b""
    for data in chunks:
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
            rest = b""
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace").rstrip("\r")


def head_lines(head, most=200):
    """The first whole lines of a file's head, as str."""
    end = head.rfind(b"\n")
    text = (head[:end] if end >= 0 else head).decode("utf-8", "replace")
    return [line.rstrip("\r") for line in text.split("\n")[:most]]


def line_reader(head):
    """The function that turns one line of this file into a RECORD (or None), or None for an ordinary log."""
    lines = [line for line in head_lines(head) if line.strip()]
    if not lines:
        return None
    fitting = sum(1 for line in lines if log_exports.of_json_line(line))
    if fitting * 100 >= 80 * len(lines):
        return log_exports.of_json_line
    found = log_exports.text_format(lines)
    return found[1] if found else None


def exported(lines, reader):
    """RECORDs of ``lines``; what has no source of its own (a line, the kernel's record) goes with the one before."""
    last = None
    for line in lines:
        if log_exports.is_note(line):
            continue
        found = reader(line)
        if found is None and last is not None and line:
            found = dict(last, message=line)
        elif found is not None and found["container"] == log_exports.KERNEL and not found["pod"]:
            source = last or dict(found, container=None)
            found = dict(source, message=found["message"], time=found["time"])
        if found is not None:
            last = found
            yield found


_SECTION = re.compile(
    rb"^==== (START|END) logs for container (?P<container>\S+) of pod (?P<namespace>\S+?)/(?P<pod>\S+) ====\r?$",
    re.MULTILINE,
)
# A dump starts with a section; what is in the first piece shows whether there are any.
_SECTION_MARK = b"==== START logs for container "
# What stands in place of a log that the API server didn't give (kubectl's messages).
_REFUSED = re.compile(
    rb"\s*(?:Create log request error: |Request log error: |[Ee]rror from server \(\w+\): )(?P<why>.*)|"
    rb"\s*(?P<whole>unable to retrieve container logs for .*)"
)
_SHORT = 2000
# Literals without which a chunk of text holds no describe text (see ``describe.find``).
_DESCRIBE_MARKS = (b"State:", b"\nNamespace:", b"Exit Code:")
# How much text after a mark of describe text is looked at together: the longest descriptions have some 64 KiB.
_WINDOW = MIB


def read_text(chunks, streams, source=(None, None, None, None)):
    """Scan a text that may hold sections and descriptions beside log lines.

    streams: Streams; source: where lines outside of a section belong. Returns ``(blocks, refused)``: the describe
    texts (lists of lines) and ``[(source, reason)]`` of logs in whose place the API server's refusal stands.
    """
    blocks, refused = [], []
    section = has_sections = None
    for piece, marked in _windows(chunks):
        if has_sections is None:
            has_sections = _SECTION_MARK in piece
        for section_of_text, text in sections(piece, section) if has_sections else ((None, piece),):
            section = section_of_text
            place = section or tuple(source)
            reason = _refusal(text)
            if reason:
                refused.append((place, reason))
                continue
            log_text, described = _without_descriptions(text) if marked else (text, [])
            blocks.extend(described)
            if log_text or section:
                streams.of(*place).feed(log_text)
    return blocks, refused


def _refusal(text):
    match = _REFUSED.match(text) if len(text) < _SHORT else None
    return (match.group("why") or match.group("whole")).decode("utf-8", "replace").strip() if match else None


def _windows(chunks):
    """``(piece, marked)``: ``chunks`` in whole lines, and whether a mark of describe text is in them.

    A piece with a mark goes on for a while, so that the description is in it to its end.
    """
    rest = b""
    wanted = 0
    for data in chunks:
        rest = rest + data if rest else data
        if not wanted and any(mark in rest for mark in _DESCRIBE_MARKS):
            wanted = len(rest) + _WINDOW
        end = rest.rfind(b"\n") + 1
        if len(rest) < wanted or (end == 0 and len(rest) < _LONGEST_LINE):
            continue
        end = end or len(rest)
        yield rest[:end], bool(wanted)
        rest = rest[end:]
        wanted = 0
    if rest:
        yield rest, any(mark in rest for mark in _DESCRIBE_MARKS)


def sections(piece, section):
    """``[(section or None, text)]`` of a piece of a cluster-info dump that starts inside of ``section``."""
    parts = []
    start = 0
    for match in _SECTION.finditer(piece):
        parts.append((section, piece[start : match.start()]))
        names = (match.group(name).decode("utf-8", "replace") for name in ("namespace", "pod", "container"))
        section = (*names, None) if match.group(1) == b"START" else None
        start = match.end() + 1
    parts.append((section, piece[start:]))
    return parts


def _without_descriptions(text):
    """``(log text, blocks)``: the describe texts in ``text`` taken out."""
    from . import describe

    lines = text.split(b"\n")
    shown = [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
    kept, blocks, position = [], [], 0
    for start, end in describe.find(shown):
        kept.extend(lines[position:start])
        blocks.append(shown[start:end])
        position = end
    kept.extend(lines[position:])
    remaining = b"\n".join(kept)
    return (remaining if remaining.strip() else b""), blocks
