# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts that the readers of manifests share: fields of objects that people wrote, containers, merging, /dev/shm.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..documents import DocumentError

_WORDS = {
    dict: "a map",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


_NOTHING: dict[str, str] = {}  # read only


class Template(NamedTuple):
    """One pod template of a manifest.

    spec: raw PodSpec; role: what the pod's name ends in, where an object has several templates; labels: those that the
    deployer puts on its pods, by which the pod's part is known; replicas: how many of them are wanted, where that is not
    ``spec.replicas``; members: how many pods of this template one engine has; config: engine settings that are kept
    neither in arguments nor in the environment, in the shape of a ``--config`` file; model: where the weights come from
    when the arguments name only a folder (``{value, from}``); path: of the engine container ``{c}``, as in
    ``workloads.Kind``, where that table has none; gpu: ``gpu_request`` fields known from elsewhere; assumptions: what was
    taken for granted.
    """

    spec: dict[str, Any]
    role: str = ""
    labels: dict[str, str] = _NOTHING
    annotations: dict[str, str] = _NOTHING
    replicas: int | None = None
    members: int = 1
    config: dict[str, Any] | None = None
    model: dict[str, str] | None = None
    path: str | None = None
    gpu: dict[str, Any] | None = None
    assumptions: tuple[str, ...] = ()


def word_for(value):
    """What a YAML value is, in words: ``a list``, ``a map``, ``a text``, ``a number``, ``true or false``."""
    return _WORDS.get(type(value), "empty")


def field(raw, path, kind=dict):
    """The value at ``path`` (``spec.template``) of nested maps, an empty one of ``kind`` where it is missing.

    Raises DocumentError when something on the way, or the value, is of another type.
    """
    value: Any = raw
    walked: list[str] = []
    for name in path.split(".") if path else []:
        _require(value, dict, ".".join(walked))
        walked.append(name)
        value = value.get(name)
        if value is None:
            return kind()
    _require(value, kind, path)
    return value


def maps(raw, path):
    """The list of maps at ``path``; an empty list where it is missing."""
    found = field(raw, path, list)
    for index, item in enumerate(found):
        _require(item, dict, f"{path}[{index}]")
    return found


def _require(value, kind, path):
    if not isinstance(value, kind):
        raise DocumentError(f"{path or 'the object'} is {word_for(value)}, {_WORDS[kind]} is needed")


def number(value, otherwise=None):
    """``value`` as a whole number, or ``otherwise`` where it is none."""
    try:
        return otherwise if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def scalar(value):
    """A YAML scalar as the text that a template engine prints for it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def flags(pairs):
    """``["--name", "value", …]`` of ``(flag, value)`` pairs; a pair without a value is left out, True gives the bare flag."""
    found = []
    for flag, value in pairs:
        if value is True:
            found.append(flag)
        elif value not in (None, "", False):
            found += [flag, scalar(value)]
    return found


def with_shm(spec, name, size=None, containers=("*",)):
    """``spec`` with a memory-backed volume at /dev/shm of its containers, as operators add it. size: a quantity or None."""
    empty_dir = dict({"medium": "Memory"}, **({"sizeLimit": scalar(size)} if size else {}))
    mount = {"name": name, "mountPath": "/dev/shm"}
    return dict(
        spec,
        volumes=[*(spec.get("volumes") or []), {"name": name, "emptyDir": empty_dir}],
        containers=[
            dict(item, volumeMounts=[*(item.get("volumeMounts") or []), mount])
            if "*" in containers or item.get("name") in containers
            else item
            for item in spec.get("containers") or []
        ],
    )


def merged_container(below, above, append_args=False):
    """Container ``above`` laid over ``below``: env and mounts by name, resources key by key, the rest replaced.

    append_args: whether ``above``'s arguments come after those below instead of replacing them.
    """
    result = {**below, **{key: value for key, value in above.items() if value is not None}}
    result["env"] = _by_key(below, above, "env", "name")
    result["volumeMounts"] = _by_key(below, above, "volumeMounts", "mountPath")
    resources = {
        kind: {**field(below, f"resources.{kind}"), **field(above, f"resources.{kind}")}
        for kind in ("requests", "limits")
    }
    result["resources"] = {**field(below, "resources"), **field(above, "resources"), **resources}
    if append_args:
        result["args"] = [*field(below, "args", list), *field(above, "args", list)]
    return result


def merged_spec(below, above):
    """PodSpec ``above`` laid over ``below``: containers and volumes by name, the rest replaced."""
    result = {**below, **{key: value for key, value in above.items() if value is not None}}
    for key in ("volumes", "initContainers"):
        if below.get(key) or above.get(key):
            result[key] = _by_key(below, above, key, "name")
    named = {item.get("name"): item for item in maps(below, "containers")}
    own = maps(above, "containers")
    result["containers"] = [merged_container(named.pop(item.get("name"), {}), item) for item in own]
    result["containers"] += list(named.values())
    return result


def _by_key(below, above, name, key):
    own = maps(above, name)
    taken = {item.get(key) for item in own}
    return [item for item in maps(below, name) if item.get(key) not in taken] + own


def hub_name(uri):
    """The repository of an ``hf://`` URI without its revision, or None for another scheme."""
    scheme, _separator, rest = str(uri or "").partition("://")
    if scheme not in ("hf", "huggingface") or not rest:
        return None
    return rest.strip("\"'").partition("@")[0].partition(":")[0].partition("?")[0].strip("/")
