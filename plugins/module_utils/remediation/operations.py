# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planned changes made in one object: what it looks like then, and the patches that bring it there.

Each change is one operation on one flag, variable or field of the object as it is now; a change that the object has
already is none. Whatever isn't changed survives as it is, also what this code doesn't know.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ..documents import DocumentError
from ..engine import flags
from ..engine.command_line import is_engine_command
from ..evidence.manifest_checks import checked
from ..quantities import parse_quantity
from . import differences, undo
from .arguments import has_option, set_option
from .json_patch import copied
from .object_paths import locate, locate_segments, segments_of, value_at
from .workload_kinds import TWINS, Layout, layout_of

# Kinds of the API server itself: others know no strategic merge (kubernetes-gpu-facts 7.1).
_MERGED_GROUPS = ("", "apps", "batch")
_SHM_NAMES = ("dshm", "shm", "vllm-shm")
_PROBE = re.compile(r"(startupProbe|livenessProbe|readinessProbe)\.(\w+)")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_READ = ("command", "args", "env", "resources", "volumeMounts", *_PROBES)
_PERIOD = 10  # Kubernetes' default periodSeconds
_THRESHOLD = 3  # Kubernetes' default failureThreshold


class Patch(NamedTuple):
    """after: the object with the changes; json_patch: RFC 6902; strategic_merge: for kinds of the API server with a pod
    template, else None; undo: the record (``undo.record``); refused: ``[{change, why}]``, which are not in the others.
    Patches and ``after`` hold the object's own words, secrets included: they are for the API server, not for people."""

    after: dict[str, Any]
    json_patch: list[dict[str, Any]]
    strategic_merge: dict[str, Any] | None
    undo: dict[str, Any]
    refused: list[dict[str, Any]]


class _Site(NamedTuple):
    """Where the changes go. raw: the object, which is changed; path: of the container; container, pod: that container and
    the pod spec around it; config, running: as for ``patch``."""

    raw: dict[str, Any]
    group: str
    kind: str
    path: str
    layout: Layout
    container: dict[str, Any]
    pod: dict[str, Any]
    config: dict[str, Any] | None
    running: dict[str, Any] | None


def patch(raw, edit, changes, config=None, guard=True, running=None):
    """The ``Patch`` of planned changes on an object.

    raw: the live object or a manifest; edit: ``workload.edit`` of evidence (path of the engine's container); changes:
    CHANGEs with target flag, env or k8s (documents.change), value None removes, or with action and after as a plan has them, and
    with the container that is meant, where it isn't that of the path; config: the parsed --config file,
    where it is known; guard: see ``differences.json_patch``; running: the engine's container of a pod that was made from the
    object, by which it is checked whether arguments get through a template in between (KServe).

    k8s names: ``resources.limits.memory``; ``volumes.shm.sizeLimit``; ``image``; ``startupProbe`` (value: the seconds that a
    start may take, or fields of the probe) or ``livenessProbe.timeoutSeconds``; ``strategy`` (``Recreate``, ``{maxSurge,
    maxUnavailable}``, or what ``costs.rolling`` returns).
    """
    raw = copied(raw)
    after = copied(raw)
    refused = []
    for change in changes:
        tried = copied(after)
        try:
            site = _site(tried, _edit_of(edit, change), config, running)
            _TARGETS.get(change["target"], _other)(site, change["name"], asked(change))
            undo.record(raw, tried)
        except DocumentError as error:
            refused.append({"change": change, "why": str(error)})
        else:
            after = tried
    merged = None
    if _group(raw) in _MERGED_GROUPS:
        merged = differences.strategic_merge(raw, after)
    return Patch(after, differences.json_patch(raw, after, guard), merged, undo.record(raw, after), refused)


def asked(change):
    """The value that a CHANGE asks for, None where it removes what it names."""
    if change.get("action") is None:
        return change.get("value")
    return change.get("after") if change["action"] == "set" else None


def _edit_of(edit, change):
    """The edit with the path of the container that the change is for."""
    path, container = (edit or {}).get("path"), change.get("container")
    if not path or not container or not path.endswith("]"):
        return edit
    return dict(edit, path=f"{path[: path.rindex('[')]}[{container}]")


def _check_own_places(site):
    """As ``_check``, of the places outside the container that the kind has for settings."""
    layout = site.layout
    wanted = {
        layout.env: list,
        layout.more: list,
        layout.config: dict,
        layout.resources: dict,
        layout.script: str,
    }
    for path, kind in wanted.items():
        if path:
            holder, key = _found(site, path)
            value = holder.get(key) if holder else None
            _require(value, kind, path)
            if path == layout.env:
                _require_names(value, path)
            if path == layout.resources:
                for side in ("limits", "requests"):
                    _require((value or {}).get(side), dict, f"{path}.{side}")


def _require(value, kind, path):
    if value is not None and not isinstance(value, kind):
        raise DocumentError(f"{path} isn't the {kind.__name__} that it must be")


def _require_names(items, path):
    for item in items or []:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise DocumentError(f"an item of {path} has no name")


def _group(raw):
    return str(raw.get("apiVersion") or "").rpartition("/")[0]


def _site(raw, edit, config, running):
    path = (edit or {}).get("path")
    if not path:
        raise DocumentError("it isn't known where the object keeps the engine's container")
    kind, group = str(raw.get("kind")), _group(raw)
    layout = layout_of(group, kind, path)
    if "flag" in layout.refused and "env" in layout.refused:
        return _Site(raw, group, kind, path, layout, {}, {}, config, running)
    place = locate(raw, path)
    container = value_at(raw, place)
    if not isinstance(container, dict):
        raise DocumentError(f"{path} of the object is no container")
    around = place[:-2] if place and isinstance(place[-1], int) else place[:-1]
    pod = value_at(raw, around)
    site = _Site(
        raw, group, kind, path, layout, container, pod if isinstance(pod, dict) else {}, config, running
    )
    _check(site, container)
    _check_own_places(site)
    return site


def _check(site, container):
    """DocumentError where what is read of a container hasn't the types of the API."""
    names = [name for name in _READ if not (name == "env" and site.layout.env_map)]
    if site.layout.env_map:
        _require(container.get("env"), dict, f"{site.path}.env")
    part = {name: container.get(name) for name in names}
    checked({"containers": [part], "volumes": site.pod.get("volumes")})
    for name in names:
        if name in ("env", "volumeMounts"):
            _require_names(container.get(name), name)
    for name in _PROBES:
        for key, value in (container.get(name) or {}).items():
            if key.endswith(("Seconds", "Threshold")) and (
                isinstance(value, bool) or not isinstance(value, int)
            ):
                raise DocumentError(f"{name}.{key} is no whole number")


def _refuse(site, what):
    if what in site.layout.refused:
        raise DocumentError(site.layout.refused[what])


def _other(_site, name, _value):
    raise DocumentError(f"{name} is nothing that a patch of the object can do")


def _part(site, path):
    """A path of the layout, with the part of the object that the container is in."""
    part = re.split(r"\.podTemplate\.|\.extraPodSpec\.", site.path)[0]
    return path.replace("{part}", part)


def _holder(site, path):
    """(the map that holds the path's last key, the key); maps on the way are made."""
    *above, key = segments_of(_part(site, path))
    value: Any = site.raw
    for segment in above:
        if isinstance(value, dict):
            if value.get(segment) is None:
                value[segment] = {}
            value = value[segment]
        else:
            value = value[locate_segments(value, [segment], path)[0]]
    if not isinstance(value, dict):
        raise DocumentError(f"{path}: what is above it is no map")
    return value, key


def _put(holder, key, value):
    """A key of a map set, or removed with None."""
    if value is None:
        holder.pop(key, None)
    else:
        holder[key] = value


# --- engine options


def _flag(site, name, value):
    _refuse(site, "flag")
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


def _container_option(site, container, name, value):
    lists = {key: container.get(key) for key in ("command", "args")}
    env = container.get("env")
    if site.layout.env_map:
        env = [{"name": key, "value": text} for key, text in (env or {}).items()]
    elif site.layout.env and container is site.container:
        holder, key = _found(site, site.layout.env)
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


def _found(site, path):
    """As ``_holder``, without making anything; (None, key) where it isn't there."""
    *above, key = segments_of(_part(site, path))
    try:
        holder = value_at(site.raw, locate_segments(site.raw, above, path))
    except DocumentError:
        return None, key
    if holder is not None and not isinstance(holder, dict):
        raise DocumentError(f"{path}: what is above it is no map")
    return holder, key


def _twins(site):
    """Containers of the other templates of the same engine, as far as they start it."""
    found = []
    for here, there in TWINS:
        path, count = re.subn(here, there, site.path)
        if not count:
            continue
        holder, key = _found(site, re.sub(r"\[[^\]]*\]$", "", path))
        items = holder.get(key) if isinstance(holder, dict) else None
        items = [item for item in (items if isinstance(items, list) else [items]) if isinstance(item, dict)]
        for item in items:
            _check(site, item)
        found += [item for item in items if _starts_engine(site, item)]
    return found


def _starts_engine(site, container):
    """Whether options may be given to a container: it starts the engine, or leaves that to a template."""
    given = container.get("command") or container.get("args")
    return is_engine_command(container.get("command"), container.get("args")) or (
        site.layout.appends and not given
    )


def _engines(site):
    """The containers that get the engine's options: the one that is meant, unless only another one of its group starts
    the engine, and those that start it together with that."""
    twins = _twins(site)
    own = [site.container]
    if twins and site.container.get("command") and not _starts_engine(site, site.container):
        own = []
    return [*own, *twins]


def _config_key(site, name, value):
    """A map of options, in whatever spelling a key has."""
    holder, key = _holder(site, site.layout.config)
    config = holder.setdefault(key, {})
    head, *keys = name.split(".")
    known = [key for key in config if key.replace("-", "_") == head]
    if keys:
        raise DocumentError(f"{name}: set the whole object {head} in {_part(site, site.layout.config)}")
    if known and str(config[known[-1]]) == str(value):
        return
    for key in known:
        if value is None or key != known[-1]:
            del config[key]
    if value is not None:
        config[known[-1] if known else head.replace("_", "-")] = value


def _script_option(site, name, value):
    holder, key = _found(site, site.layout.script)
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
    holder, key = _found(site, site.layout.more)
    more = holder.get(key) if holder else None
    engine = ["vllm", "serve", "model"]
    removed = set_option(engine, [str(item) for item in more or []], None, name, None)
    path = site.layout.flags.get(name)
    if path is None or removed.changes:
        edited = set_option(engine, [str(item) for item in more or []], None, name, value)
        if edited.changes:
            holder, key = _holder(site, site.layout.more)
            holder[key] = edited.args
        if value is not None or path is None:
            return
    holder, key = _found(site, path)
    if value is None and not (holder and key in holder):
        return
    holder, key = _holder(site, path)
    if value is None or str(holder.get(key)) != str(value):
        _put(holder, key, str(value) if name == "gpu_memory_utilization" and value is not None else value)


# --- environment


def _env(site, name, value):
    _refuse(site, "env")
    if flags.is_secret(name):
        raise DocumentError(f"{name} holds a secret: it isn't changed here")
    for container in (site.container, *_twins(site)):
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
            _put(holder.setdefault(key, {}), name, text)
        return
    own = [item for item in container.get("env") or [] if item.get("name") == name]
    if site.layout.env and container is site.container and not own:
        holder, key = _found(site, site.layout.env)
        if not holder or (text is not None and key not in holder):
            if text is None:
                return
            holder, key = _holder(site, site.layout.env)
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


# --- fields


def _field(site, name, value):
    if name.startswith("resources."):
        _resource(site, name, value)
    elif name in ("volumes.shm", "volumes.shm.sizeLimit"):
        _shm(site, value)
    elif name == "startupProbe" or _PROBE.fullmatch(name):
        _probe(site, name, value)
    elif name == "strategy":
        _strategy(site, value)
    elif name == "image":
        _image(site, value)
    else:
        _other(site, name, value)


def _resource(site, name, value):
    _refuse(site, "resources")
    parts = name.split(".", 2)
    if len(parts) != 3 or parts[1] not in ("limits", "requests"):
        raise DocumentError(f"{name} is no field: write resources.limits.memory or the like")
    side, key = parts[1:]
    if value is not None and parse_quantity(value) is None:
        raise DocumentError(f"{value!r} is no Kubernetes quantity ({name})")
    if value is None and side == "limits":
        _refuse(site, "removed limit")
    if site.layout.single:
        return _single_resource(site, key, value)
    holder, last = (
        _found(site, site.layout.resources) if site.layout.resources else (site.container, "resources")
    )
    resources = (holder or {}).get(last) or {}
    key = _device_key(resources, key)
    sides = [side]
    if "/" in key or key == "gpu":  # extended resources: request and limit are one number
        other = "requests" if side == "limits" else "limits"
        sides += [other] if key in (resources.get(other) or {}) else []
    for part in sides:
        if not _equal(resources.get(part), key, value):
            if site.layout.resources and holder is None:
                holder, last = _holder(site, site.layout.resources)
            _put(_map(_map(holder, last), part), key, _quantity(value))
    return None


def _map(holder, key):
    """The map at a key, made where it is missing or null."""
    if holder.get(key) is None:
        holder[key] = {}
    return holder[key]


def _device_key(resources, key):
    """``gpu`` is whatever resource of a GPU the container has."""
    if key != "gpu":
        return key
    names = [name for part in ("limits", "requests") for name in resources.get(part) or {}]
    return next(
        (name for name in names if name.endswith("/gpu")), "gpu" if "gpu" in names else "nvidia.com/gpu"
    )


def _equal(held, key, value):
    now = (held or {}).get(key)
    if now is None or value is None:
        return now is value
    return parse_quantity(now) is not None and parse_quantity(now) == parse_quantity(value)


def _quantity(value):
    return value if value is None else str(value)


def _single_resource(site, key, value):
    """One value is request and limit at once (VLLMRuntime)."""
    key = "gpu" if key.endswith("/gpu") else key
    if value is None:
        raise DocumentError(
            f"{_part(site, site.layout.resources)}.{key} is request and limit at once: without it the pod has neither"
        )
    holder, last = _found(site, site.layout.resources)
    if not _equal((holder or {}).get(last), key, value):
        holder, last = _holder(site, site.layout.resources)
        _put(_map(holder, last), key, _quantity(value))


def _shm(site, value):
    """The size of /dev/shm; None removes the limit. Where nothing is mounted, a volume in memory is."""
    _refuse(site, "shm")
    if value is not None and parse_quantity(value) is None:
        raise DocumentError(f"{value!r} is no Kubernetes quantity (volumes.shm.sizeLimit)")
    mounted = [
        mount for mount in site.container.get("volumeMounts") or [] if mount.get("mountPath") == "/dev/shm"
    ]
    if site.layout.shm and not mounted:
        holder, key = _found(site, site.layout.shm)
        if not _equal(holder, key, value):
            holder, key = _holder(site, site.layout.shm)
            _put(holder, key, _quantity(value))
        return
    volumes = site.pod.get("volumes") or []
    if not mounted:
        _new_shm(site, volumes, value)
        return
    name = mounted[-1].get("name")
    volume = next((item for item in volumes if item.get("name") == name), None)
    if volume is None or "emptyDir" not in volume:
        raise DocumentError(
            f"/dev/shm is the volume {name}, which is no emptyDir of this object: its size is set where it comes from"
        )
    if not _equal(volume["emptyDir"], "sizeLimit", value):
        _put(_map(volume, "emptyDir"), "sizeLimit", _quantity(value))


def _new_shm(site, volumes, value):
    if value is None:
        return
    taken = {item.get("name") for item in volumes}
    name = next((name for name in _SHM_NAMES if name not in taken), None)
    if name is None:
        raise DocumentError(f"the volume names {', '.join(_SHM_NAMES)} are taken: mount /dev/shm by hand")
    site.pod["volumes"] = [
        *volumes,
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": _quantity(value)}},
    ]
    mounts = site.container.get("volumeMounts") or []
    site.container["volumeMounts"] = [*mounts, {"name": name, "mountPath": "/dev/shm"}]


def _image(site, value):
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:/@+-]{1,512}", value):
        raise DocumentError("image: the value is a reference such as vllm/vllm-openai:v0.11.0")
    if not isinstance(site.container.get("image"), str):
        raise DocumentError(
            "image: the object has no container with an image of its own: change it where that comes from"
        )
    site.container["image"] = value


def _probe(site, name, value):
    _refuse(site, "probes")
    match = _PROBE.fullmatch(name)
    if match:
        probe = site.container.get(match.group(1))
        if not isinstance(probe, dict):
            raise DocumentError(f"the container has no {match.group(1)}")
        _put(probe, match.group(2), value)
        return
    seconds = value if not isinstance(value, dict) else 1
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 10**6:
        raise DocumentError("startupProbe: the value is the seconds that a start may take")
    probe = site.container.get("startupProbe")
    if probe is None:
        probe = _probe_of_liveness(site)
    site.container["startupProbe"] = probe
    if isinstance(value, dict):
        _probe_fields(probe, value)
        return
    period = probe.get("periodSeconds") or _PERIOD
    wanted = max(1, math.ceil((value - (probe.get("initialDelaySeconds") or 0)) / period))
    if wanted != (probe.get("failureThreshold") or _THRESHOLD):
        probe["failureThreshold"] = wanted


def _probe_fields(probe, value):
    for name, number in value.items():
        whole = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 10**6
        if name not in ("failureThreshold", "periodSeconds") or not whole:
            raise DocumentError(
                "startupProbe: its fields are failureThreshold and periodSeconds, whole numbers"
            )
        probe[name] = number


def _probe_of_liveness(site):
    """A startup probe that asks what the liveness probe asks, and holds that one back until the start is over."""
    liveness = site.container.get("livenessProbe")
    if not isinstance(liveness, dict):
        raise DocumentError(
            "the container has neither a startupProbe nor a livenessProbe: no probe ends its start"
        )
    asks = ("httpGet", "tcpSocket", "exec", "grpc", "timeoutSeconds", "periodSeconds")
    return copied({key: liveness[key] for key in asks if key in liveness})


def _strategy(site, value):
    """``Recreate``, or how many pods may come and go in a rolling update."""
    path = site.layout.strategy
    if path is None:
        raise DocumentError(f"a {site.kind} has no update strategy that can be changed here")
    if isinstance(value, dict) and "type" in value:
        value = _strategy_of_a_plan(value)
    if value == "Recreate":
        if site.kind != "Deployment":
            raise DocumentError(f"a {site.kind} knows no strategy Recreate")
        wanted: dict[str, Any] = {"type": "Recreate"}
    elif isinstance(value, dict) and value and value.keys() <= {"maxSurge", "maxUnavailable"}:
        wanted = _rolling(site, value)
    else:
        raise DocumentError("strategy: the value is Recreate or {maxSurge, maxUnavailable}")
    holder, key = _holder(site, path)
    if holder.get(key) != wanted:
        holder[key] = wanted


def _strategy_of_a_plan(value):
    """``{type, max_surge, max_unavailable}`` (``costs.rolling``) in the form of the other values."""
    if value["type"] == "Recreate":
        return "Recreate"
    names = {"max_surge": "maxSurge", "max_unavailable": "maxUnavailable"}
    return {names.get(name, name): number for name, number in value.items() if name != "type"}


def _rolling(site, value):
    holder, key = _found(site, site.layout.strategy)
    now = copied((holder or {}).get(key) or {})
    if not isinstance(now, dict) or not isinstance(now.get("rollingUpdate") or {}, dict):
        raise DocumentError(f"{site.layout.strategy} is no strategy that can be read")
    type_, inner = "RollingUpdate", "rollingUpdate"
    if site.kind == "LeaderWorkerSet":
        inner = "rollingUpdateConfiguration"
    if site.kind == "StatefulSet" and value.get("maxSurge"):
        raise DocumentError("a StatefulSet replaces its pods in place: it has no maxSurge")
    given = {
        name: number for name, number in value.items() if (site.kind, name) != ("StatefulSet", "maxSurge")
    }
    return {**now, "type": type_, inner: {**(now.get(inner) or {}), **given}}


_TARGETS = {"flag": _flag, "env": _env, "k8s": _field}
