# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody wants changed, as CHANGEs, and what of it can't be right whatever the object looks like.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib

from ..documents import DocumentError, change
from ..engine import flags, versions
from ..quantities import parse_quantity, quantity_bytes
from ..remediation.operations import asked

_TARGETS = ("flag", "env", "k8s")
_STRATEGY = {"max_surge": "maxSurge", "max_unavailable": "maxUnavailable"}
_MEMORY = ("resources.limits.memory", "resources.requests.memory")
# A fraction of one whole; what is outside ends the engine at its start.
_FRACTIONS = ("gpu_memory_utilization",)


def changes_of(params):
    """The CHANGEs of the module's options, in a fixed order. Raises DocumentError for what isn't one."""
    given = params.get("changes")
    if given is not None:
        return [_checked(item, number) for number, item in enumerate(given)]
    found = []
    for name, value in sorted((params.get("engine_args") or {}).items()):
        found.append(_set("flag", flags.flag_of(str(name).lstrip("-")), value))
    for name, value in sorted((params.get("env") or {}).items()):
        if isinstance(value, (dict, list)):
            raise DocumentError(f"env: {name} is no text: give a text, or null to remove the variable")
        found.append(_set("env", str(name), value))
    found += _resources(params.get("resources") or {})
    if params.get("shm_size") is not None:
        found.append(_set("k8s", "volumes.shm.sizeLimit", params["shm_size"]))
    if params.get("startup_seconds") is not None:
        found.append(_set("k8s", "startupProbe", params["startup_seconds"]))
    if params.get("strategy") is not None:
        found.append(_set("k8s", "strategy", _strategy(params["strategy"])))
    return found


def _set(target, name, value):
    action = "remove" if value is None else "set"
    made = change(target, name, action, value, "asked for", "none")
    return dict(made, container=None, action=action, before=None, after=value)


def _checked(item, number):
    where = f"changes[{number}]"
    if not isinstance(item, dict):
        raise DocumentError(f"{where} is no dictionary: give CHANGEs as a plan's step has them")
    if item.get("target") not in _TARGETS or not isinstance(item.get("name"), str):
        raise DocumentError(
            f"{where}: a change needs a target ({', '.join(_TARGETS)}) and a name; what a plan marks as an action only a person can do"
        )
    if item.get("action") not in (None, "set", "remove"):
        raise DocumentError(f"{where}: action {item['action']!r} is neither set nor remove")
    if item.get("action") == "set" and item.get("after") is None:
        raise DocumentError(f"{where}: it sets {item['name']} to nothing: give after, or action remove")
    if item.get("action") is None and "value" not in item:
        raise DocumentError(f"{where}: a change needs action and after, or a value")
    return {**item, "value": asked(item)}


def _resources(given):
    found = []
    for side, values in sorted(given.items()):
        if side not in ("limits", "requests") or not isinstance(values or {}, dict):
            raise DocumentError("resources: give {requests: {...}, limits: {...}}")
        for name, value in sorted((values or {}).items()):
            found.append(_set("k8s", f"resources.{side}.{name}", value if value is None else str(value)))
    return found


def _strategy(given):
    if given == "Recreate":
        return given
    if isinstance(given, dict) and given and set(given) <= set(_STRATEGY):
        return {_STRATEGY[name]: _share(value) for name, value in given.items()}
    raise DocumentError("strategy: give Recreate, or max_surge and max_unavailable")


def _share(value):
    """A number of pods, or a share of them in percent."""
    text = str(value)
    if text.isdigit():
        return int(text)
    if text.endswith("%") and text[:-1].isdigit():
        return text
    raise DocumentError(f"strategy: {value!r} is neither a number of pods nor a share such as 25%")


# --- what can't be right


def check_engine(item, settings, version):
    """Refuses a flag that this release of the engine hasn't, and a value that no release takes.

    settings: what the container says now (engine.settings); version: of the engine, or None. Returns sentences of warning.
    """
    if item["target"] == "env":
        return _check_variable(item, version)
    if item["target"] != "flag" or asked(item) is None:
        return []
    name = item["name"].lstrip("-").replace("-", "_").partition(".")[0]
    plain = name[len("no_") :] if name.startswith("no_") else name
    option = flags.find_option(flags.flag_of(name)) or flags.BY_NAME.get(plain)
    if option is None:
        if name in settings:
            return []
        near = difflib.get_close_matches(name, flags.BY_NAME, n=2, cutoff=0.75)
        shown = f" (nearest: {', '.join(map(flags.flag_of, near))})" if near else ""
        raise DocumentError(
            f"{flags.flag_of(name)} is no option of vLLM that is known here{shown}: an engine that doesn't know it ends at its start"
        )
    if option.name in _FRACTIONS:
        _check_fraction(option, asked(item))
    return _check_release(flags.flag_of(option.name), option, version)


def _check_fraction(option, value):
    number = flags.fit_value("float", value)
    if number is not None and not 0 < number <= 1:
        raise DocumentError(f"{flags.flag_of(option.name)}: {value} is no fraction above 0 and up to 1")


def _check_release(shown, option, version):
    if version is None:
        if option.since is None and option.until is None:
            return []
        return [f"whether this engine has {shown} isn't known: its version isn't (give engine_version)"]
    if versions.in_range(version, option.since, option.until) is not False:
        return []
    ended = option.until is not None and versions.in_range(version, None, option.until) is False
    when = f"it was removed after {option.until}" if ended else f"it came with {option.since}"
    raise DocumentError(
        f"vLLM {version} has no option {shown} ({when}): an engine that is given it ends at its start"
    )


def _check_variable(item, version):
    known = flags.BY_VARIABLE.get(item["name"])
    if known is None or version is None or asked(item) is None:
        return []
    if versions.in_range(version, known.since, known.until) is not False:
        return []
    return [f"vLLM {version} doesn't read {item['name']}: it has no effect"]


def check_ceiling(item, ceiling):
    """Refuses a size of host memory above ``max_memory``."""
    if ceiling is None or item["target"] != "k8s" or item["name"] not in _MEMORY:
        return
    size = quantity_bytes(asked(item))
    if size is not None and size > quantity_bytes(ceiling):
        raise DocumentError(f"{item['name']} of {asked(item)} is above the ceiling max_memory of {ceiling}")


def check_given_ceiling(ceiling):
    if ceiling is not None and not (quantity_bytes(ceiling) or 0) > 0:
        raise DocumentError(f"max_memory: {ceiling!r} is no Kubernetes quantity: give one such as 96Gi")


def check_resources(container, items, ceiling):
    """Refuses what the changed container's resources can't be: a limit below its request, a ceiling below that.

    container: raw, with the changes.
    """
    changed = [item["name"] for item in items if item["target"] == "k8s"]
    if not any(name.startswith("resources.") for name in changed):
        return
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    request = quantity_bytes(requests.get("memory"))
    if ceiling is not None and request is not None and quantity_bytes(ceiling) < request:
        raise DocumentError(
            f"max_memory of {ceiling} is below the container's memory request of {requests['memory']}: no limit within it is allowed;"
            " give a higher ceiling, or lower the request too"
        )
    for name, limit in sorted(limits.items()):
        pair = [parse_quantity(limit), parse_quantity(requests.get(name))]
        if None not in pair and pair[0] < pair[1]:
            raise DocumentError(
                f"resources.limits.{name} of {limit} would be below the request of {requests[name]}: give requests.{name} too"
            )
