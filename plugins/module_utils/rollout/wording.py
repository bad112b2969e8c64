# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of an object as people see it: the changed fields only, and no secret among them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..engine import flags
from ..engine.settings import engine_settings
from ..evidence.redact import Redactor
from ..remediation.undo import holds_secret
from ..remediation.wording import value as value_in_words

_ABSENT = object()
_MAX_SHOWN = 500
# Shorter ones are in other words by chance.
_TOLD_APART = 4
WITHHELD = (
    "the patch would show a secret that stands in the same text as what is changed (a script, or an argument list that is"
    " replaced as a whole): make the change by hand, or with kubectl edit"
)


def difference(place, steps, secrets):
    """Ansible's ``diff`` of the steps of an undo record: the fields before and after, a line each."""
    before, after = [], []
    for step in steps:
        for old, new, path in _values(step):
            before += _line(path, old, secrets)
            after += _line(path, new, secrets)
    where = f"{place.namespace} {place.shown}"
    return {
        "before_header": where,
        "after_header": where,
        "before": "".join(before),
        "after": "".join(after),
    }


def turned(steps):
    """Steps the other way round, as a change that takes them back makes them."""
    found = []
    for step in reversed(steps):
        item = {name: value for name, value in step.items() if name not in ("before", "after")}
        item.update(
            {new: step[old] for old, new in (("before", "after"), ("after", "before")) if old in step}
        )
        if "words" in step:
            item["words"] = turned(step["words"])
        found.append(item)
    return found


def _values(step):
    if "words" not in step:
        return [(step.get("before", _ABSENT), step.get("after", _ABSENT), step["path"])]
    return [(part["before"], part["after"], f"{step['path']} …") for part in step["words"]]


def _line(path, value, secrets):
    return [] if value is _ABSENT or value == "" else [f"{path}: {shown(value, secrets, path)}\n"]


def shown(value, secrets, name=""):
    """A value as text, ``***`` where it is or holds a secret."""
    if value is None:
        return "not set"
    if holds_secret([value], secrets):
        return flags.HIDDEN
    key = name.rpartition(".")[2]
    hidden = value if key == "key" else flags.without_secrets(key, value)
    text = (
        hidden
        if isinstance(hidden, str)
        else json.dumps(hidden, sort_keys=True, ensure_ascii=False, default=str)
    )
    return Redactor().text(text.strip())[:_MAX_SHOWN]


def words_of(item):
    """An applied change in words: ``container vllm: --max-model-len: 8192 -> 4096``."""
    where = f"container {item['container']}: " if item.get("container") else ""
    before, after = (
        "not set" if item[side] is None else _in_words(item[side], item["name"])[:_MAX_SHOWN]
        for side in ("before", "after")
    )
    return f"{where}{item['name']}: {before} -> {after}"


def _in_words(value, name):
    seconds = name == "startupProbe" and not isinstance(value, (dict, str))
    return f"{value} s" if seconds else str(value_in_words(value))


def safe_patch(operations, secrets):
    """``(patch, None)``, or ``(None, why)`` where it would show a secret."""
    values = [item.get("value") for item in operations]
    text = json.dumps(values, ensure_ascii=False)
    if holds_secret(values, secrets) or any(
        len(secret) >= _TOLD_APART and secret in text for secret in secrets
    ):
        return None, WITHHELD
    strings = [value for value in _strings(values) if Redactor().text(value) != value]
    return (None, WITHHELD) if strings else (operations, None)


def _strings(value):
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


def setting_of(container, layout, name):
    """The value of an engine option in a raw container as text, None where nobody sets it there."""
    env = container.get("env")
    if layout.env_map:
        env = [{"name": key, "value": value} for key, value in (env or {}).items()]
    given = engine_settings(container.get("command"), container.get("args"), env, defaults=False)
    item = given.get(name)
    if item is None:
        return None
    return item["value"] if item["value"] is not None else item.get("written")
