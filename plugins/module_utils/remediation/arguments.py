# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine option set or removed in a container, in the spelling and at the place where it is written.

All spellings of workload-kinds section 5: two list items, ``--flag=value``, underscores, short forms, ``--no-`` twins,
dotted keys of JSON options, one shell string, variables that carry arguments. Repeated flags become one. Whatever
else the container says stays byte for byte. Every edit is read back by the engine's own reader before it is returned.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from ..documents import DocumentError
from ..engine import flags
from ..engine.command_line import is_engine_command
from ..engine.settings import FLAG, LEVEL, LITERALS, SEVERAL, engine_settings, is_flag
from . import shell_words
from .argument_pieces import Piece, literal_values, mentions, variable_of, variables_in, written

_UNKNOWN = "scalar"  # kind of an option that the table lacks
# -O3 is a value of compilation_config and is read as the other (flags.name_of).
_LEVELS = ("compilation_config", "optimization_level")


class Edited(NamedTuple):
    """command, args, env: the new lists (the old ones where nothing changed); changes: ``[{field, index, before, after}]``
    with what is written for the option before and after, None where it isn't; index: list position or variable."""

    command: list[str] | None
    args: list[str] | None
    env: list[dict[str, Any]] | None
    changes: list[dict[str, Any]]


class _Target(NamedTuple):
    """name: the setting, as the engine's reader calls it; keys: below it, of a dotted name; kind: of ``flags.Option``, or scalar."""

    name: str
    keys: tuple[str, ...]
    kind: str
    value: Any

    @property
    def flag(self):
        return flags.flag_of(self.name)

    @property
    def shown(self):
        return ".".join([self.flag, *self.keys])


class _Found(NamedTuple):
    """One place where the option is given. flag: the piece with the flag; values: pieces that are its value; form: inline
    (``--flag=value``), words, switch, negated, dotted, level; keys: of a dotted flag."""

    flag: Piece
    values: list[Piece]
    form: str
    keys: tuple[str, ...] = ()


def set_option(command, args, env, name, value, config=None, appends=False, nim=False):
    """``Edited`` of a container in which the engine's option ``name`` has ``value``; None removes it.

    command, args: lists of str or None; env: list of ``{name, value | valueFrom}`` or None, as in a Kubernetes container.
    name: vLLM's in snake_case, with dots for a key of a JSON option (``compilation_config.cudagraph_mode``). value: int,
    float, bool, str, dict, list, or None. config: the parsed --config file, where it is known. appends: args of this
    object go behind those of a template (KServe), so that they may be added where there are none. nim: the container is a
    NIM, which reads options from variables of its own.

    Nothing changes where the option has the value already. Raises DocumentError, with the place, where the option
    can't be edited safely: in a --config file, in a variable from a ConfigMap or Secret, in a variable of a script.
    """
    edit = _Edit(command, args, env, _target(name, value), config, appends, nim)
    return edit.run()


def has_option(command, args, env, name, value):
    """Whether the engine's option ``name`` has ``value`` already (None: isn't given); arguments as for ``set_option``."""
    return _Edit(command, args, env, _target(name, value), None, False, False).has_it()


def _target(name, value):
    head, *keys = name.replace("-", "_").split(".")
    option = flags.find_option(flags.flag_of(head))
    head = option.name if option else head
    if flags.is_secret(head):
        raise DocumentError(f"{flags.flag_of(head)} holds a secret: it isn't changed here")
    guessed = "bool" if isinstance(value, bool) else "json" if isinstance(value, dict) else _UNKNOWN
    kind = option.kind if option else guessed
    target = _Target(head, tuple(keys), kind, value)
    if value is not None:
        texts = _texts(target)
        if any("$" in text or "\n" in text for text in texts):
            raise DocumentError(f"{target.shown}: a value with $ or a line break can't be written safely")
        if not keys and _read(target, texts) is None:
            raise DocumentError(f"{value!r} is no value for {target.shown}")
    return target


def _text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value)


def _texts(target):
    """The value's words."""
    if target.kind in SEVERAL and isinstance(target.value, (list, tuple)) and not target.keys:
        return [_text(item) for item in target.value]
    return [_text(target.value)]


def _read(target, texts):
    """The value as the engine's reader will see it."""
    if target.keys or target.kind == _UNKNOWN:
        return flags.scalar(texts[0])
    if target.kind in SEVERAL:
        read = [flags.read_value(target.kind, text) for text in texts]
        return None if None in read else [item for part in read for item in part]
    return flags.read_value(target.kind, texts[0])


class _Edit:
    def __init__(self, command, args, env, target, config, appends, nim):
        self.before = {"command": command, "args": args}
        self.env = env
        self.target = target
        self.config = config
        self.appends = appends
        self.nim = nim or any(item["name"].startswith("NIM_") for item in env or [])
        self.settings = engine_settings(command, args, env, defaults=False)
        self.values = literal_values(env)
        # what is to be done: splices of a text, (start, end, new); whole items dropped or replaced; items added
        self.splices: dict[tuple[str, Any], list[tuple[int, int, str]]] = {}
        self.items: dict[tuple[str, int], list[str]] = {}
        self.added: list[str] = []
        self.variables: dict[str, str | None] = {}
        self.changes: list[dict[str, Any]] = []

    def run(self):
        if self.has_it():
            return Edited(self.before["command"], self.before["args"], self.env, [])
        self.written = written(self.before["command"], self.before["args"], self.env)
        if self.written is None:
            self._refuse_script()
        found = _occurrences(self.written.pieces, self.target)
        variables = self._option_variables()
        self._refuse_hidden(found, variables)
        if self.target.value is None:
            self._remove(found, variables)
        elif found:
            self._replace(found)
        elif variables:
            self._set_variable(variables[-1])
        else:
            self._add()
        edited = self._edited()
        self._read_back(edited)
        return edited

    # --- what there is

    def _now(self, settings):
        """The option's value, below its keys; ``...`` where it isn't given."""
        given = self._setting(settings)
        if given is None:
            return ...
        value = given["value"]
        for key in self.target.keys:
            if not isinstance(value, dict) or key not in value:
                return ...
            value = value[key]
        return value

    def _setting(self, settings):
        """The setting; a compilation_config that is a level is the other setting, see ``flags.name_of``."""
        name = self.target.name
        if name == "compilation_config" and not self.target.keys and isinstance(self._wanted(), int):
            name = "optimization_level"
        return settings.get(name)

    def _wanted(self):
        return ... if self.target.value is None else _read(self.target, _texts(self.target))

    def has_it(self):
        now, wanted = self._now(self.settings), self._wanted()
        if self.config and self._in_config() and now is ...:
            return False
        if wanted is ... and now is ... and "config" in self.settings:
            return False
        return now is wanted if isinstance(wanted, bool) or wanted is ... else now == wanted

    def _in_config(self):
        inner = self.config.get("vllm") if isinstance(self.config.get("vllm"), dict) else self.config
        return self.target.name in {str(key).replace("-", "_") for key in inner}

    def _where(self):
        """The place of the script that starts the engine, or of the arguments."""
        place = self.written.script if getattr(self, "written", None) else None
        if place:
            return f"the script in {place[0]}[{place[1]}]"
        return "args" if self.before["args"] else "command"

    def _refuse_script(self):
        shown = self.target.shown
        if is_engine_command(self.before["command"], self.before["args"]):
            raise DocumentError(
                f"{self._where()} starts the engine through another shell or eval: change {shown} there by hand"
            )
        raise DocumentError(
            f"{self._where()} starts no engine: set {shown} where the engine is started (the leader or head of its group)"
        )

    def _option_variables(self):
        """The variables that set just this option (NIM's), in the order of the list."""
        return [
            item for item in self.env or [] if not self.target.keys and _sets(item["name"], self.target.name)
        ]

    def _refuse_hidden(self, found, variables):
        """What holds the option but can't be edited here: a file, a variable of a script."""
        shown = self.target.shown
        if found or variables:
            return
        if self._now(self.settings) is not ...:
            raise DocumentError(
                f"{shown} comes from a variable or array that {self._where()} sets: change it there by hand"
            )
        file = self.settings.get("config")
        if not file:
            return
        name = file["value"] or file.get("written")
        if self.config is None:
            raise DocumentError(
                f"the engine also reads the file {name} (--config), which isn't known here and may set {shown}: change it"
                " there, in the ConfigMap that is mounted"
            )
        if self._in_config():
            raise DocumentError(
                f"{shown} is set in the file {name} (--config): change it there, in the ConfigMap that is mounted"
            )

    # --- what to do

    def _remove(self, found, variables):
        for item in found:
            if self.target.keys and not item.keys:
                self._change_key(item)
            else:
                self._drop(item)
        for item in variables:
            self.variables[item["name"]] = None
            self._changed("env", item["name"], item.get("value"), None)

    def _drop(self, found):
        self._changed(found.flag.field, found.flag.position, self._raw(found), None)
        for piece in (found.flag, *found.values):
            self._drop_piece(piece)

    def _drop_piece(self, piece):
        text = self._source(piece)
        if piece.whole and piece.start == 0 and piece.end == len(text):
            self.items[piece.field, piece.position] = []
            return
        self._unshared(piece)
        self._splice(piece, piece.gap, piece.end, "")

    def _replace(self, found):
        last = found[-1]
        whole = [item for item in found if not item.keys]
        if self.target.keys and not any(item.keys for item in found):
            # vLLM lets dotted flags win over the whole object, so the key goes where the others are
            self._change_key(whole[-1])
            found = whole[:-1]
            for item in found:
                self._drop(item)
            return
        if self.target.keys:
            found = [item for item in found if item.keys == self.target.keys]
            if not found:
                return self._add()
            last = found[-1]
        for item in found[:-1]:
            self._drop(item)
        return self._rewrite(last)

    def _change_key(self, found):
        """A key in the JSON object that is given whole, set or removed."""
        text = found.values[0].text if found.values else found.flag.text.partition("=")[2]
        value = flags.read_value("json", text)
        if not isinstance(value, dict):
            raise DocumentError(f"{self.target.shown}: the object {self.target.flag} can't be read as JSON")
        inner = value
        for key in self.target.keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise DocumentError(
                f"{self.target.shown}: what is above that key in {self.target.flag} is no object"
            )
        if self.target.value is None:
            inner.pop(self.target.keys[-1], None)
        else:
            inner[self.target.keys[-1]] = self.target.value
        separators = (", ", ": ") if re.search(r"[,:]\s", text) else (",", ":")
        self._put(found, [json.dumps(value, separators=separators)])

    def _rewrite(self, found):
        texts = _texts(self.target)
        if self.target.kind == "bool" and not self.target.keys:
            return self._rewrite_switch(found)
        if found.form == "level":
            return self._put_flag(
                found, f"-O{texts[0]}" if texts[0].isdigit() else f"{self.target.flag}={texts[0]}"
            )
        if found.keys and not self.target.keys:
            return self._put_flag(found, f"{self.target.flag}={texts[0]}")
        return self._put(found, texts)

    def _rewrite_switch(self, found):
        flag, equals, text = found.flag.text.partition("=")
        literal = found.values[0].text if found.values else text if equals else None
        if literal is not None:
            word = _text(self.target.value)
            return self._put(found, [word.title() if literal[:1].isupper() else word])
        separator = "_" if "_" in flag else "-"
        plain = flag if flag.startswith("--") else self.target.flag
        if plain.startswith(("--no-", "--no_")) and found.form == "negated":
            plain = "--" + plain[len("--no-") :]
        return self._put_flag(found, plain if self.target.value else f"--no{separator}{plain[2:]}")

    def _put_flag(self, found, text):
        """The flag and its value replaced by one word."""
        self._changed(found.flag.field, found.flag.position, self._raw(found), text)
        for piece in found.values:
            self._drop_piece(piece)
        self._put_text(found.flag, text)

    def _put(self, found, texts):
        """The value replaced; a variable that is nothing but this value is changed instead."""
        before = self._raw(found)
        if not found.values:
            flag = found.flag.text.partition("=")[0]
            name = variable_of(found.flag.text.partition("=")[2])
            if not self._through_variable(found.flag.text.partition("=")[2], name, texts):
                self._put_inline(found.flag, flag, texts[0])
                self._changed(found.flag.field, found.flag.position, before, f"{flag}={texts[0]}")
            return
        first, *others = found.values
        if not self._through_variable(first.text, variable_of(first.text), texts):
            self._changed(first.field, first.position, before, " ".join([found.flag.text, *texts]))
            self._put_texts(first, texts)
            for piece in others:
                self._drop_piece(piece)

    def _through_variable(self, text, name, texts):
        """Whether the value is a variable's, which then was changed; DocumentError where it can't be."""
        script = self._source_of(*self.written.script) if self.written.script else ""
        for used in variables_in(text):
            if used in self.values:
                continue
            if any(item["name"] == used for item in self.env or []):
                raise DocumentError(
                    f"{self.target.shown} is the variable {used}, which comes from a ConfigMap, Secret or field (valueFrom):"
                    " change it there"
                )
            if re.search(rf"(?:^|[\s;&|(]){re.escape(used)}\+?=", script):
                raise DocumentError(
                    f"{self.target.shown} is the variable {used}, which {self._where()} sets: change it there by hand"
                )
        texts_of = (self.before["command"], self.before["args"], self.env)
        if name in self.values and len(texts) == 1 and mentions(*texts_of, name) == 1:
            self.variables[name] = texts[0]
            self._changed("env", name, self.values[name], texts[0])
            return True
        return False

    def _put_inline(self, piece, flag, text):
        """``--flag=value`` with another value, in the quotes of the old one."""
        raw = self._source(piece)[piece.start : piece.end]
        if piece.whole:
            self._put_text(piece, f"{flag}={text}")
        elif raw.startswith(flag + "="):
            start = piece.start + len(flag) + 1
            self._unshared(piece)
            self._splice(piece, start, piece.end, shell_words.requoted(raw[len(flag) + 1 :], text))
        else:
            self._put_text(piece, f"{flag}={text}")

    def _put_text(self, piece, text):
        self._put_texts(piece, [text])

    def _put_texts(self, piece, texts):
        source = self._source(piece)
        if piece.whole and piece.start == 0 and piece.end == len(source):
            self.items[piece.field, piece.position] = texts
            return
        raw = source[piece.start : piece.end]
        quoted = texts if piece.whole else [shell_words.requoted(raw, text) for text in texts]
        self._unshared(piece)
        self._splice(piece, piece.start, piece.end, " ".join(quoted))

    def _set_variable(self, item):
        if item["name"] not in self.values:
            raise DocumentError(
                f"{self.target.shown} is the variable {item['name']}, which comes from a ConfigMap, Secret or field"
                " (valueFrom): change it there"
            )
        text = _texts(self.target)[0]
        if self.target.kind == "bool":
            text = "1" if self.target.value else "0"
        self.variables[item["name"]] = text
        self._changed("env", item["name"], self.values[item["name"]], text)

    def _add(self):
        texts = self._new_flag()
        shown = " ".join(texts)
        if self.written.script:
            field, index = self.written.script
            quoted = " ".join(shell_words.requoted("x", text) for text in texts)
            self._splice_at((field, index), self.written.end, self.written.end, self.written.gap + quoted)
            self._changed(field, index, None, shown)
        elif self.before["args"] or self.before["command"] or self.appends:
            self.added = texts
            field = self._end()
            self._changed(field, len(self.before[field] or []), None, shown)
        elif self.written.pieces:
            piece = self.written.pieces[-1]
            quoted = " ".join(shell_words.requoted("x", text) for text in texts)
            self._splice(piece, piece.end, piece.end, f" {quoted}")
            self._changed("env", piece.position, None, shown)
        else:
            self._add_variable()

    def _end(self):
        """The list that new arguments go to."""
        return "args" if self.before["args"] is not None or not self.before["command"] else "command"

    def _add_variable(self):
        name = f"NIM_{self.target.name.upper()}"
        if not self.nim or self.target.keys or not _sets(name, self.target.name):
            raise DocumentError(
                f"{self.target.shown}: the container has neither command nor args, so arguments given here would replace"
                " those that the image brings: write its whole command by hand"
            )
        self.variables[name] = _texts(self.target)[0]
        self._changed("env", name, None, self.variables[name])

    def _new_flag(self):
        """The flag's words where there was none, in the form of its neighbours."""
        flag = ".".join([self.target.flag, *self.target.keys])
        if self.target.kind == "bool" and not self.target.keys:
            return [flag if self.target.value else f"--no-{flag[2:]}"]
        texts = _texts(self.target)
        given = [piece.text for piece in self.written.pieces if FLAG.match(piece.text)]
        inline = bool(given) and all("=" in text for text in given)
        return [f"{flag}={texts[0]}"] if inline and len(texts) == 1 else [flag, *texts]

    # --- carrying it out

    def _changed(self, field, index, before, after):
        self.changes.append({"field": field, "index": index, "before": before, "after": after})

    def _source_of(self, field, index):
        return self.values[index] if field == "env" else str(self.before[field][index])

    def _source(self, piece):
        return self._source_of(piece.field, piece.position)

    def _raw(self, found):
        return " ".join(self._source(piece)[piece.start : piece.end] for piece in (found.flag, *found.values))

    def _unshared(self, piece):
        """A variable that is used twice carries its arguments to somebody else as well."""
        if piece.field == "env" and (
            mentions(self.before["command"], self.before["args"], self.env, piece.position) > 1
        ):
            raise DocumentError(
                f"{self.target.shown} is in the variable {piece.position}, which is used more than once: change it by hand"
            )

    def _splice(self, piece, start, end, text):
        self._splice_at((piece.field, piece.position), start, end, text)

    def _splice_at(self, place, start, end, text):
        self.splices.setdefault(place, []).append((start, end, text))

    def _spliced(self, place):
        source = text = self._source_of(*place)
        for start, end, new in sorted(self.splices[place], reverse=True):
            text = text[:start] + new + text[end:]
        # the first word's removal leaves the blanks behind it
        return text if source[:1].isspace() or self.written.script == place else text.lstrip()

    def _edited(self):
        changed = {}
        for place in self.splices:
            text = self._spliced(place)
            if place[0] == "env":
                self.variables[place[1]] = text
            else:
                self.items[place] = [text] if text else []
        for field, items in self.before.items():
            places = {index: new for (where, index), new in self.items.items() if where == field}
            changed[field] = items
            if places:
                changed[field] = [
                    text for index, item in enumerate(items) for text in places.get(index, [item])
                ]
        if self.added:
            field = self._end()
            changed[field] = [*(changed[field] or []), *self.added]
        env = _with_variables(self.env, self.variables)
        return Edited(changed["command"], changed["args"], env, self.changes)

    def _read_back(self, edited):
        """The engine's own reader must find the new value, and everything else as it was."""
        after = engine_settings(edited.command, edited.args, edited.env, defaults=False)
        now, wanted = self._now(after), self._wanted()
        if not (now is wanted or (wanted is not ... and now == wanted)):
            raise DocumentError(
                f"{self.target.shown} can't be changed safely in {self._where()}, where something else sets it as well:"
                " change it there by hand"
            )
        aside = {self.target.name, *self.variables, *(_LEVELS if self.target.name in _LEVELS else ())}
        if _others(self.settings, aside) != _others(after, aside):
            raise DocumentError(
                f"{self.target.shown} can't be changed in {self._where()} without a change of something else there: change"
                " it by hand"
            )


def _others(settings, aside):
    return {
        name: (item["value"], item.get("written")) for name, item in settings.items() if name not in aside
    }


def _with_variables(env, variables):
    """The env list with other values; a repeated name is set where it counts, and removed everywhere."""
    if not variables:
        return env
    last = {item["name"]: index for index, item in enumerate(env or [])}
    found = []
    for index, item in enumerate(env or []):
        name = item["name"]
        if name not in variables:
            found.append(item)
        elif variables[name] is not None:
            found.append(dict(item, value=variables[name]) if last[name] == index else item)
    new = [
        {"name": name, "value": value}
        for name, value in variables.items()
        if name not in last and value is not None
    ]
    return found + new


def _sets(variable, name):
    """Whether a variable sets the option by itself."""
    probe = [{"name": variable, "value": "1"}]
    setting = engine_settings(["x"], None, probe, defaults=False).get(name)
    return setting is not None and setting["from"] == "env"


# --- where the option is given


def _occurrences(pieces, target):
    """All ``_Found`` of the option, in order; the walk is that of vLLM's parser (see engine.settings)."""
    found, position = [], 0
    while position < len(pieces):
        piece = pieces[position]
        position += 1
        if not FLAG.match(piece.text):
            continue
        name, item = _read_flag(piece, pieces[position:], target)
        position += len(item.values)
        if name == target.name and _concerns(item, target):
            found.append(item)
    return found


def _concerns(item, target):
    """Whether a flag of the option has to do with the key that is meant: a whole object has, another key hasn't."""
    return not item.keys or not target.keys or item.keys[: len(target.keys)] == target.keys


def _read_flag(piece, following, target):
    """(the setting's name, ``_Found``) of a flag."""
    level = LEVEL.fullmatch(piece.text)
    if level:
        return _level_name(level.group(1), target), _Found(piece, [], "level")
    flag, inline, text = piece.text.partition("=")
    if "." in flag:
        head, *keys = flag.split(".")
        option = flags.find_option(head)
        name = option.name if option else head.lstrip("-").replace("-", "_")
        return name, _Found(
            piece, [] if inline else following[:1], "dotted", tuple(key.rstrip("+") for key in keys)
        )
    option = flags.find_option(flag)
    plain = "--" + flag.replace("_", "-")[len("--no-") :]
    if option is None and flag.replace("_", "-").startswith("--no-"):
        negated = flags.find_option(plain)
        name = negated.name if negated and negated.kind == "bool" else plain[2:].replace("-", "_")
        return name, _Found(piece, [], "negated")
    name = option.name if option else flag.lstrip("-").replace("-", "_")
    kind = option.kind if option else target.kind if name == target.name else "str"
    if inline:
        name = _level_name(text, target) if kind == "level" else name
        return name, _Found(piece, [], "inline")
    if kind == "bool":
        values = following[:1] if following and following[0].text in LITERALS else []
        return name, _Found(piece, values, "switch")
    values = following[:1] if following and not is_flag(following[0].text) else []
    if kind in SEVERAL:
        end = next((at for at, item in enumerate(following) if is_flag(item.text)), len(following))
        values = following[:end]
    if kind == "level" and values:
        name = _level_name(values[0].text, target)
    return name, _Found(piece, values, "words")


def _level_name(text, target):
    """A level replaces the other spelling of it, whichever of the two is meant."""
    value = flags.read_value("level", text)
    if isinstance(value, int) and target.name in _LEVELS:
        return target.name
    return flags.name_of(flags.BY_NAME["compilation_config"], value)
