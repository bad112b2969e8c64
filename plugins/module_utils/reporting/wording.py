# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a change, and text that is safe to show.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re

from ..documents import ACTIONS

# direction -> (words with a value, words without one); {name} and {value} are filled in.
_CHANGE_WORDS = {
    "increase": ("raise {name} to {value}", "raise {name}"),
    "decrease": ("lower {name} to {value}", "lower {name}"),
    "set": ("set {name} to {value}", "set {name}"),
    "add": ("add {name} with {value}", "add {name}"),
    "remove": ("remove {name} ({value})", "remove {name}"),
    "keep": ("leave {name} at {value}", "leave {name} as it is"),
}

# Colour codes, C0 and C1 controls, line and bidi overrides: log text must not steer a terminal.
_CONTROLS = re.compile(
    "\x1b\\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def clean(text):
    """``text`` as one string without characters that steer a terminal; None becomes an empty string."""
    if text is None:
        return ""
    return _CONTROLS.sub("", str(text).replace("\r\n", "\n").replace("\t", "    ")).strip()


def change_words(change):
    """A CHANGE as an imperative phrase: ``lower --max-model-len to 8192``."""
    value = value_words(change.get("value"))
    if change["target"] == "action":
        words = ACTIONS.get(change["name"], change["name"].replace("_", " "))
        return f"{words}: {value}" if value else words
    name = clean(change["name"])
    if change["target"] == "flag":
        name, value = _flag_words(name, change)
    with_value, without = _CHANGE_WORDS[change["direction"]]
    return (with_value if value else without).format(name=name, value=value)


def _flag_words(name, change):
    """A vLLM option as it is written on the command line, and its value (a switch has none)."""
    name = name if name.startswith("-") else "--" + name.replace("_", "-")
    value = change.get("value")
    if value is True or (value is False and change["direction"] in ("remove", "keep")):
        return name, ""
    if value is False:
        return name.replace("--", "--no-", 1), ""
    return name, value_words(value)


def value_words(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, sort_keys=True)
    return clean(value)


def change_view(change):
    return {
        "what": change_words(change),
        "why": clean(change.get("why")),
        "with": [clean(ACTIONS.get(name, name)) for name in change.get("with") or []],
        "command": clean(change.get("command")),
        "proof": change.get("proof"),
        "change": {key: change.get(key) for key in ("target", "name", "direction", "value")},
    }
