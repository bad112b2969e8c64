# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's options and environment variables changed in an object, wherever its kind keeps them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DocumentError
from ..engine import flags
from ..engine.command_line import is_engine_command
from .arguments import has_option, set_option
from .sites import found_holder, holder_of, own_path, put, refuse, starts_engine, twins


def set_flag(site, name, value):
    """An option of the engine set, or removed with None; name: a setting or a flag in any spelling."""
    refuse(site, "flag")
    layout = site.layout
    setting, value = _setting(name, value)
    if layout.config:
        _config_key(site, setting, value)
    elif layout.script:
        _script_option(site, setting, value)
    elif layout.more:
        _own_field(site, setting, value)
    else:
        for container in _engines(site):
            _container_option(site, container, setting, value)


def _setting(name, value):
    """``(setting, value)`` of a change's name, which is a setting or a flag; ``--no-`` before a switch turns it round."""
    setting = name.lstrip("-").replace("-", "_")
    plain = setting[len("no_") :] if setting.startswith("no_") else None
    switch = plain and setting not in flags.BY_NAME and flags.BY_NAME.get(plain)
    if switch and switch.kind == "bool" and value in (True, False, None):
        return plain, None if value is None else not value
    return setting, value


def _engines(site):
    """The containers that get the engine's options: the one that is meant, unless only another one of its group starts
    the engine, and those that start it together with that."""
    others = twins(site)
    own = [site.container]
    if others and site.container.get("command") and not starts_engine(site, site.container):
        own = []
    return [*own, *others]


def _container_option(site, container, name, value):
    lists = {key: container.get(key) for key in ("command", "args")}
    env = container.get("env")
    if site.layout.env_map:
        env = [{"name": key, "value": text} for key, text in (env or {}).items()]
    elif site.layout.env and container is site.container:
        holder, key = found_holder(site, site.layout.env)
        env = [*(env or []), *(holder.get(key) or [])] if holder else env
    edited = set_option(
        lists["command"],
        lists["args"],
        env,
        name,
        value,
        site.config,
        site.layout.appends,
        _is_nim(site, container),
    )
    if site.layout.appends and site.running and container is site.container:
        _refuse_unheard(site.running, lists["args"] or [], edited, name, value)
    for key, items in (("command", edited.command), ("args", edited.args)):
        if items != lists[key]:
            container[key] = items
    names = {item["index"] for item in edited.changes if item["field"] == "env"}
    values = {item["name"]: item.get("value") for item in edited.env or []}
    for variable in sorted(names):
        _set_variable(site, container, variable, values.get(variable))


def _refuse_unheard(running, own, edited, name, value):
    """Arguments go behind the template's own; a script there may not pass them on, or the template gives the option."""
    args = list(running.get("args") or [])
    given = args[: len(args) - len(own)]
    if [*given, *own] != args:
        return
    env = [*(running.get("env") or []), *(edited.env or [])]
    command = edited.command or running.get("command")
    if not has_option(command, [*given, *(edited.args or [])], env, name, value):
        raise DocumentError(
            f"{flags.flag_of(name)}: the object's arguments go behind those of a template (ServingRuntime, config), which"
            f" {'gives this option itself' if value is None else 'does not pass them on to the engine'}: change it there"
        )


def _is_nim(site, container):
    return site.layout.nim or "/nim/" in str(container.get("image") or "")


def _config_key(site, name, value):
    """A map of options, in whatever spelling a key has."""
    holder, key = holder_of(site, site.layout.config)
    config = holder.setdefault(key, {})
    head, *keys = name.split(".")
    known = [key for key in config if key.replace("-", "_") == head]
    if keys:
        raise DocumentError(f"{name}: set the whole object {head} in {own_path(site, site.layout.config)}")
    if known and str(config[known[-1]]) == str(value):
        return
    for key in known:
        if value is None or key != known[-1]:
            del config[key]
    if value is not None:
        config[known[-1] if known else head.replace("_", "-")] = value


def _script_option(site, name, value):
    holder, key = found_holder(site, site.layout.script)
    text = holder.get(key) if isinstance(holder, dict) else None
    command = ["sh", "-c", text]
    if not isinstance(text, str) or not is_engine_command(command, None):
        raise DocumentError(f"{site.layout.script} starts no engine: its options aren't known")
    edited = set_option(command, None, site.container.get("env"), name, value, site.config)
    if any(item["field"] == "env" for item in edited.changes):
        raise DocumentError(f"{name} is in a variable that {site.layout.script} uses: change it by hand")
    holder[key] = edited.command[-1]


def _own_field(site, name, value):
    """A field of the option's own, unless the list of other options, which counts more, has it."""
    holder, key = found_holder(site, site.layout.more)
    more = holder.get(key) if holder else None
    engine = ["vllm", "serve", "model"]
    removed = set_option(engine, [str(item) for item in more or []], None, name, None)
    path = site.layout.flags.get(name)
    if path is None or removed.changes:
        edited = set_option(engine, [str(item) for item in more or []], None, name, value)
        if edited.changes:
            holder, key = holder_of(site, site.layout.more)
            holder[key] = edited.args
        if value is not None or path is None:
            return
    holder, key = found_holder(site, path)
    if value is None and not (holder and key in holder):
        return
    holder, key = holder_of(site, path)
    if value is None or str(holder.get(key)) != str(value):
        put(holder, key, str(value) if name == "gpu_memory_utilization" and value is not None else value)


def set_variable(site, name, value):
    """An environment variable set, or removed with None, in the container and in those that start the engine with it."""
    refuse(site, "env")
    if flags.is_secret(name):
        raise DocumentError(f"{name} holds a secret: it isn't changed here")
    for container in (site.container, *twins(site)):
        texts = [str(text) for key in ("command", "args") for text in container.get(key) or []]
        if any(re.search(rf"(?:^|[\s;&|(]){re.escape(name)}=", text) for text in texts):
            raise DocumentError(f"the container's own script sets {name}: change it there by hand")
        _set_variable(site, container, name, None if value is None else _variable_text(value))


def _variable_text(value):
    return str(int(value)) if isinstance(value, bool) else str(value)


def _set_variable(site, container, name, text):
    """One variable in the container's list, or in the kind's own place for it."""
    holder, key = container, "env"
    if site.layout.env_map:
        variables = holder.get(key) or {}
        if text is not None or name in variables:
            put(holder.setdefault(key, {}), name, text)
        return
    own = [item for item in container.get("env") or [] if item.get("name") == name]
    if site.layout.env and container is site.container and not own:
        holder, key = found_holder(site, site.layout.env)
        if not holder or (text is not None and key not in holder):
            if text is None:
                return
            holder, key = holder_of(site, site.layout.env)
    items = holder.get(key) or []
    last = max((at for at, item in enumerate(items) if item.get("name") == name), default=None)
    if last is None:
        if text is not None:
            holder[key] = [*items, {"name": name, "value": text}]
        return
    if text is None:
        holder[key] = [item for item in items if item.get("name") != name]
    elif items[last].get("valueFrom"):
        raise DocumentError(
            f"the variable {name} comes from a ConfigMap, Secret or field (valueFrom): change it there"
        )
    elif items[last].get("value") != text:
        items[last]["value"] = text
