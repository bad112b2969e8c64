# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's own argument list, from a container's command, args and environment.

What Kubernetes, a shell and the usual wrappers do to a command is done here, on paper: ``$(VAR)`` references,
``sh -c`` scripts (quotes, continuation lines, variables, arrays, ``&&``, pipes, ``exec``, ``"$@"``),
arguments that an environment variable carries. Nothing is executed: a command substitution stays as it is
written, and both branches of an ``if`` count as run.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_KEYWORDS = (
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "while",
    "until",
    "do",
    "done",
    "time",
    "!",
    "{",
    "}",
    "esac",
)
_DECLARE = ("export", "declare", "local", "readonly", "typeset")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!-]|\d")
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*|[@*]|\d{1,4})(?:\[([@*])\])?(?:(:?[-=+?])(.*))?\}", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\$|\(([^()\s]*)\))")
_UNRESOLVED = re.compile(r"\$(?:\{|\(|[A-Za-z_@*\d])|`")
_MAX_DEPTH = 3  # shells in shells
_MAX_NESTING = 20  # of ``${A:-${B:-…}}``

# workload-kinds section 6.2: a module, script or program, and which command line it takes ("dialect").
_MODULES = tuple(
    (re.compile(r"(?:.*/)?" + name + r"(?:[./:].*)?", re.DOTALL), dialect)
    for name, dialect in (
        (r"vllm[./]entrypoints", "vllm"),
        (r"dynamo[./]vllm", "dynamo"),
        (r"huggingfaceserver", "huggingfaceserver"),
        (r"ray\.serve\.llm", "ray"),
    )
)
_VLLM = re.compile(r"vllm|.*/bin/vllm")
# Subcommands of ``vllm`` that run no engine.
_CLIENTS = (("chat",), ("complete",), ("collect-env",), ("bench", "serve"))
_ENTRY_SUBCOMMANDS = ("serve", "run-batch", "bench", "chat", "complete", "collect-env", "launch")
# Environment variables whose value is a list of engine arguments, and whether the command line wins over them
# (KServe puts them after the built-in flags; NIM ranks them below the command line).
_ARGUMENT_VARIABLES = (("VLLM_ADDITIONAL_ARGS", False), ("NIM_PASSTHROUGH_ARGS", True))


class Command(NamedTuple):
    """One simple command: its words, each with where it comes from, and the environment it is given."""

    words: list[dict[str, Any]]
    environment: dict[str, str]


class Engine(NamedTuple):
    """The engine's command.

    dialect: vllm, dynamo, huggingfaceserver, ray, image (only arguments are known: the image's entrypoint
    takes them) or None (no engine was recognised; its arguments may still be flags). serve: takes the model
    as first positional. tokens: the arguments after the program. environment: variables that a script sets.
    """

    dialect: str | None
    serve: bool
    tokens: list[dict[str, Any]]
    environment: dict[str, str]


def is_unresolved(text):
    """Whether a token still holds a reference that could not be resolved (``$VAR``, ``$(…)``, back-ticks)."""
    return bool(_UNRESOLVED.search(text))


def environment_values(env):
    """``{NAME: value}`` of a Kubernetes env list; a value that only the cluster knows (valueFrom) is None.

    ``$(OTHER)`` refers to variables earlier in the list, as in Kubernetes.
    """
    values: dict[str, str | None] = {}
    for item in env or []:
        value = item.get("value")
        unknown = value is None and bool(item.get("valueFrom") or item.get("from"))
        values[item["name"]] = None if unknown else expand_references(str(value or ""), values)
    return values


def expand_references(text, values):
    """Kubernetes' own expansion: ``$(VAR)`` of known variables, ``$$`` for ``$``; the rest stays as it is."""

    def replace(match):
        if match.group(0) == "$$":
            return "$"
        value = values.get(match.group(1))
        return match.group(0) if value is None else value

    return _REFERENCE.sub(replace, text)


class _Shell:
    """Splits a script into simple commands, keeping variables as it goes.

    Words are lists of fields: an unquoted variable or ``"$@"`` may give none or several.
    """

    def __init__(self, variables, positional, origin, depth=0):
        self.variables = dict(variables)
        self.positional = list(positional)
        self.origin = origin
        self.depth = depth
        self.commands: list[Command] = []
        self.heredocs: list[str] = []

    def run(self, script):
        self.text = script.replace("\r\n", "\n").replace("\\\n", "")
        self.position = 0
        words: list[str] = []
        assigned: dict[str, Any] = {}
        while self.position < len(self.text):
            if self._separator():
                self._finish(words, assigned)
                words, assigned = [], {}
                continue
            if self._blank() or self._redirection():
                continue
            match = _ASSIGNMENT.match(self.text, self.position)
            if match and (not words or words[0] in _DECLARE):
                self._assign(match, assigned, bool(words))
                continue
            fields = self._word(split=True)
            if words or len(fields) != 1 or fields[0] not in _KEYWORDS:
                words.extend(fields)
        self._finish(words, assigned)
        return self.commands

    def _peek(self, length=1):
        return self.text[self.position : self.position + length]

    def _blank(self):
        character = self._peek()
        if character == "#":
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end
            return True
        if character in " \t":
            self.position += 1
            return True
        return False

    def _separator(self):
        character = self._peek()
        if character not in "\n;&|()" or self._peek(2) == "&>":
            return False
        self.position += 1
        if character == "\n":
            self._skip_heredocs()
        return True

    def _redirection(self):
        match = re.compile(r"(?:\d+|&)?(<<-?|<<<|>>|>&|<&|>\||[<>])[ \t]*").match(self.text, self.position)
        if not match:
            return False
        self.position = match.end()
        target = "".join(self._word(split=False))
        if match.group(1) in ("<<", "<<-"):
            self.heredocs.append(target)
        return True

    def _skip_heredocs(self):
        for delimiter in self.heredocs:
            match = re.compile(r"^\t*" + re.escape(delimiter) + r"$", re.MULTILINE).search(
                self.text, self.position
            )
            self.position = len(self.text) if match is None else min(match.end() + 1, len(self.text))
        self.heredocs = []

    def _assign(self, match, assigned, declared):
        self.position = match.end()
        name, append = match.group(1), match.group(2) == "+"
        value: Any
        if self._peek() == "(":
            self.position += 1
            value = self._array()
        else:
            value = "".join(self._word(split=False))
        before = assigned.get(name, self.variables.get(name))
        if append and before is not None:
            value = (
                list(before) + value
                if isinstance(value, list) and isinstance(before, list)
                else before + value
            )
        assigned[name] = value
        if declared:
            self.variables[name] = value

    def _array(self):
        items: list[str] = []
        while self.position < len(self.text) and self._peek() != ")":
            if self._peek() == "\n":
                self.position += 1
            elif not self._blank():
                items.extend(self._word(split=True))
        self.position += 1
        return items

    def _word(self, split):
        """The next word's fields. split: split unquoted expansions at blanks (not in assignments)."""
        fields: list[str] = []
        current: str | None = None
        while self.position < len(self.text):
            character = self._peek()
            if character in " \t\n;&|()<>":
                break
            if character == "'":
                end = self.text.find("'", self.position + 1)
                end = len(self.text) if end < 0 else end
                current = (current or "") + self.text[self.position + 1 : end]
                self.position = end + 1
            elif character == '"':
                parts = self._double_quoted()
                if parts is None:
                    continue
                current = (current or "") + parts[0]
                for part in parts[1:]:
                    fields.append(current)
                    current = part
            elif character == "\\":
                current = (current or "") + (self.text[self.position + 1 : self.position + 2] or "\\")
                self.position += 2
            elif character in "$`":
                value = self._expansion()
                if not split:
                    current = (current or "") + (" ".join(value) if isinstance(value, list) else value)
                    continue
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(value, list) and current is not None and part is not value[0]:
                        fields.append(current)
                        current = None
                    fields, current = _split_into(fields, current, part)
            else:
                current = (current or "") + character
                self.position += 1
        return fields if current is None else [*fields, current]

    def _double_quoted(self):
        """The fields of a double-quoted part; None if it is ``"$@"`` of nothing, which is no word at all."""
        self.position += 1
        parts, empty = [""], False
        while self.position < len(self.text) and self._peek() != '"':
            character = self._peek()
            if character == "\\" and self._peek(2)[1:] in tuple('$`"\\\n'):
                parts[-1] += self._peek(2)[1:].replace("\n", "")
                self.position += 2
            elif character in "$`":
                value = self._expansion()
                if isinstance(value, list):
                    empty = not value
                    parts[-1] += value[0] if value else ""
                    parts.extend(value[1:])
                else:
                    parts[-1] += value
            else:
                parts[-1] += character
                self.position += 1
        self.position += 1
        return None if empty and parts == [""] else parts

    def _expansion(self):
        """The value at ``$…`` or back-ticks: text; a list for ``$@`` and arrays; unknown: as written."""
        start = self.position
        if self._peek() == "`":
            end = self.text.find("`", start + 1)
            self.position = len(self.text) if end < 0 else end + 1
            return self.text[start : self.position]
        if self._peek(2) == "$(":
            self.position = _closing(self.text, start + 1, "(", ")")
            return self.text[start : self.position]
        if self._peek(2) == "${":
            self.position = _closing(self.text, start + 1, "{", "}")
            return self._braced(self.text[start : self.position])
        match = _NAME.match(self.text, start + 1)
        if not match:
            self.position += 1
            return "" if self._peek() in ("'", '"') else "$"
        self.position = match.end()
        value = self._lookup(match.group(0))
        if isinstance(value, list) and match.group(0) not in "@*":
            value = value[0] if value else ""
        return self.text[start : self.position] if value is None else value

    def _braced(self, written):
        match = _BRACED.fullmatch(written)
        if not match:
            return written
        name, whole, operator, word = match.groups()
        value = self._lookup(name)
        if isinstance(value, list) and not whole and name not in "@*":
            value = value[0] if value else ""
        if operator is None:
            return written if value is None else value
        known_but_hidden = name in self.variables and value is None
        if known_but_hidden:
            return written
        is_set = bool(value) if operator.startswith(":") else value is not None
        if operator[-1] == "+":
            return self._nested(word) if is_set else ""
        if is_set or operator[-1] == "?":
            return written if value is None else value
        default = self._nested(word)
        if operator[-1] == "=":
            self.variables[name] = default
        return default

    def _nested(self, word):
        if self.depth >= _MAX_NESTING:
            return word
        inner = _Shell(self.variables, self.positional, self.origin, self.depth + 1)
        return "".join(inner._only_word(word))

    def _only_word(self, word):
        self.text, self.position = word, 0
        parts = []
        while self.position < len(self.text):
            before = self.position
            parts.extend(self._word(split=False))
            if self.position == before:
                parts.append(self._peek())
                self.position += 1
        return parts

    def _lookup(self, name):
        if name in "@*":
            return self.positional[1:]
        if name.isdigit():
            return self.positional[int(name)] if int(name) < len(self.positional) else ""
        return self.variables.get(name)

    def _finish(self, words, assigned):
        if not words or words[0] in _DECLARE:
            self.variables.update(assigned)
            return
        if words[0] == "set" and "--" in words:
            self.positional = (self.positional or [""])[:1] + words[words.index("--") + 1 :]
            return
        known = {**self.variables, **assigned}
        texts = {name: value for name, value in known.items() if isinstance(value, str)}
        self.commands.append(Command([dict(self.origin, text=word) for word in words], texts))


def _split_into(fields, current, text):
    """Add an unquoted expansion to a word: split at blanks, unless it stayed unresolved."""
    parts = [text] if is_unresolved(text) and re.match(r"\$[({]|`", text) else text.split()
    if not parts:
        return fields, current
    if text[:1].isspace() and current is not None:
        fields, current = [*fields, current], None
    fields = [*fields, (current or "") + parts[0], *parts[1:]]
    return fields[:-1], fields[-1]


def _closing(text, start, opening, closing):
    """The position after the bracket that closes the one at ``start``; quotes protect brackets."""
    depth, position, quote = 0, start, ""
    while position < len(text):
        character = text[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "\\":
            position += 1
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return len(text)


def _basename(text):
    return text.rsplit("/", 1)[-1]


def script_of(words):
    """(script, where it stands, its ``$0`` and arguments) when the words run a shell or ``eval``, else None."""
    if words and words[0]["text"] == "eval":
        return " ".join(word["text"] for word in words[1:]), words[0], []
    shell = next((index for index, word in enumerate(words) if _basename(word["text"]) in SHELLS), None)
    if shell is None or _program(words[:shell]):
        return None
    index, script = shell + 1, False
    while index < len(words) and words[index]["text"][:1] in ("-", "+"):
        option = words[index]["text"]
        script = script or (option[0] == "-" and not option.startswith("--") and "c" in option)
        index += 2 if not option.startswith("--") and option.endswith("o") else 1
    if not script or index >= len(words):
        return None
    return words[index]["text"], words[index], [word["text"] for word in words[index + 1 :]]


def _commands(words, values, depth=0):
    """The simple commands that a command line runs; shell scripts are opened."""
    found = script_of(words) if depth < _MAX_DEPTH else None
    if not found:
        return [Command(list(words), {})]
    script, place, positional = found
    shell = _Shell(values, positional, {"field": place["field"], "index": place["index"]})
    commands = []
    for command in shell.run(script):
        for inner in _commands(command.words, {**values, **command.environment}, depth + 1):
            commands.append(Command(inner.words, {**command.environment, **inner.environment}))
    return commands


def _program(words):
    """(dialect, index after the program, takes a positional model) of the engine in a command, or None."""
    texts = [word["text"] for word in words]
    if "install" in texts:
        return None
    for index, text in enumerate(texts):
        module = next((dialect for pattern, dialect in _MODULES if pattern.fullmatch(text)), None)
        if module and (index == 0 or not texts[index - 1].startswith("--")):
            serve = "serve" in texts[index + 1 : index + 2]
            return module, index + (2 if serve else 1), serve
        if not _VLLM.fullmatch(text):
            continue
        following = texts[index + 1 : index + 3]
        if any(tuple(following[: len(client)]) == client for client in _CLIENTS):
            return None
        if following[:1] and following[0] in _ENTRY_SUBCOMMANDS:
            return "vllm", index + 2, following[0] == "serve"
        if index == 0:
            return "vllm", 1, False
    return None


def _words(command, args, values):
    return [
        {"text": expand_references(str(text), values), "field": field, "index": index}
        for field, items in (("command", command or []), ("args", args or []))
        for index, text in enumerate(items)
    ]


def _carried(values, written):
    """Arguments in environment variables that the command line doesn't mention itself: (before, after)."""
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for name, first in _ARGUMENT_VARIABLES:
        if values.get(name) and name not in written:
            try:
                parts = shlex.split(values[name])
            except ValueError:
                parts = values[name].split()
            (before if first else after).extend(
                {"text": part, "field": "env", "index": name} for part in parts
            )
    return before, after


def engine(command, args, env):
    """The ``Engine`` that a container starts.

    command, args: lists of str as in a Kubernetes container (or None); env: list of ``{name, value}``.
    """
    values = environment_values(env)
    words = _words(command, args, values)
    commands = _commands(words, values)
    before, after = _carried(values, " ".join(str(text) for text in [*(command or []), *(args or [])]))
    for candidate in reversed(commands):
        program = _program(candidate.words)
        if program:
            dialect, start, serve = program
            return Engine(dialect, serve, before + candidate.words[start:] + after, candidate.environment)
    last = commands[-1] if commands else Command([], {})
    dialect = None if command else "image"
    return Engine(dialect, not command, before + last.words + after, last.environment)


def engine_tokens(command, args, env):
    """The engine's arguments, resolved, in order: ``[{text, field, index}]``.

    field: command, args or env; index: position in that list (of the shell string for a script's words), or
    the variable's name. Arguments and results as for ``engine``.
    """
    return engine(command, args, env).tokens


def is_engine_command(command, args):
    """Whether command and args name an engine (workload-kinds 6.2): ``vllm``, ``vllm.entrypoints.*``, …"""
    return any(_program(candidate.words) for candidate in _commands(_words(command, args, {}), {}))
