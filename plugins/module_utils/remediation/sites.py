# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the changes of an object go: the engine's container, the places that the kind has of its own, and the templates beside it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..documents import DocumentError
from ..engine.command_line import is_engine_command
from ..evidence.manifest_checks import checked
from .object_paths import locate, locate_segments, segments_of, value_at
from .workload_kinds import TWINS, Layout, layout_of

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_READ = ("command", "args", "env", "resources", "volumeMounts", *PROBES)


class Site(NamedTuple):
    """Where the changes go. raw: the object, which is changed; path: of the container; container, pod: that container and
    the pod spec around it, empty where the kind has neither flags nor variables; config, running: as for ``operations.patch``."""

    raw: dict[str, Any]
    group: str
    kind: str
    path: str
    layout: Layout
    container: dict[str, Any]
    pod: dict[str, Any]
    config: dict[str, Any] | None
    running: dict[str, Any] | None


def site_of(raw, edit, config, running):
    """The Site in an object, as for ``operations.patch``; DocumentError where it has none, or not the API's types."""
    path = (edit or {}).get("path")
    if not path:
        raise DocumentError("it isn't known where the object keeps the engine's container")
    kind, group = str(raw.get("kind")), group_of(raw)
    layout = layout_of(group, kind, path)
    if "flag" in layout.refused and "env" in layout.refused:
        return Site(raw, group, kind, path, layout, {}, {}, config, running)
    place = locate(raw, path)
    container = value_at(raw, place)
    if not isinstance(container, dict):
        raise DocumentError(f"{path} of the object is no container")
    around = place[:-2] if place and isinstance(place[-1], int) else place[:-1]
    pod = value_at(raw, around)
    site = Site(
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
    for name in PROBES:
        for key, value in (container.get(name) or {}).items():
            if key.endswith(("Seconds", "Threshold")) and (
                isinstance(value, bool) or not isinstance(value, int)
            ):
                raise DocumentError(f"{name}.{key} is no whole number")


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
            holder, key = found_holder(site, path)
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


def group_of(raw):
    """The API group of an object, empty for the core."""
    return str(raw.get("apiVersion") or "").rpartition("/")[0]


def refuse(site, what):
    """DocumentError where the kind has no field for ``what`` (see ``workload_kinds.Layout.refused``)."""
    if what in site.layout.refused:
        raise DocumentError(site.layout.refused[what])


def own_path(site, path):
    """A path of the layout, with the part of the object that the container is in."""
    part = re.split(r"\.podTemplate\.|\.extraPodSpec\.", site.path)[0]
    return path.replace("{part}", part)


def found_holder(site, path):
    """As ``holder_of``, without making anything; (None, key) where it isn't there."""
    *above, key = segments_of(own_path(site, path))
    try:
        holder = value_at(site.raw, locate_segments(site.raw, above, path))
    except DocumentError:
        return None, key
    if holder is not None and not isinstance(holder, dict):
        raise DocumentError(f"{path}: what is above it is no map")
    return holder, key


def holder_of(site, path):
    """(the map that holds the path's last key, the key); maps on the way are made."""
    *above, key = segments_of(own_path(site, path))
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


def map_at(holder, key):
    """The map at a key, made where it is missing or null."""
    if holder.get(key) is None:
        holder[key] = {}
    return holder[key]


def put(holder, key, value):
    """A key of a map set, or removed with None."""
    if value is None:
        holder.pop(key, None)
    else:
        holder[key] = value


def twins(site):
    """Containers of the other templates of the same engine, as far as they start it."""
    found = []
    for here, there in TWINS:
        path, count = re.subn(here, there, site.path)
        if not count:
            continue
        holder, key = found_holder(site, re.sub(r"\[[^\]]*\]$", "", path))
        items = holder.get(key) if isinstance(holder, dict) else None
        items = [item for item in (items if isinstance(items, list) else [items]) if isinstance(item, dict)]
        for item in items:
            _check(site, item)
        found += [item for item in items if starts_engine(site, item)]
    return found


def starts_engine(site, container):
    """Whether options may be given to a container: it starts the engine, or leaves that to a template."""
    given = container.get("command") or container.get("args")
    return is_engine_command(container.get("command"), container.get("args")) or (
        site.layout.appends and not given
    )
