# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources, /dev/shm, probes, image and update strategy changed in an object, wherever its kind keeps them.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ..documents import DocumentError
from ..quantities import parse_quantity
from .json_patch import copied
from .sites import found_holder, holder_of, map_at, own_path, put, refuse

_SHM_NAMES = ("dshm", "shm", "vllm-shm")
_PROBE = re.compile(r"(startupProbe|livenessProbe|readinessProbe)\.(\w+)")
_PERIOD = 10  # Kubernetes' default periodSeconds
_THRESHOLD = 3  # Kubernetes' default failureThreshold


def set_field(site, name, value):
    """A field set, or removed with None; names: see ``operations.patch``."""
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
        raise DocumentError(f"{name} is nothing that a patch of the object can do")


def _resource(site, name, value):
    refuse(site, "resources")
    parts = name.split(".", 2)
    if len(parts) != 3 or parts[1] not in ("limits", "requests"):
        raise DocumentError(f"{name} is no field: write resources.limits.memory or the like")
    side, key = parts[1:]
    if value is not None and parse_quantity(value) is None:
        raise DocumentError(f"{value!r} is no Kubernetes quantity ({name})")
    if value is None and side == "limits":
        refuse(site, "removed limit")
    if site.layout.single:
        return _single_resource(site, key, value)
    holder, last = (
        found_holder(site, site.layout.resources) if site.layout.resources else (site.container, "resources")
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
                holder, last = holder_of(site, site.layout.resources)
            put(map_at(map_at(holder, last), part), key, _quantity(value))
    return None


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
            f"{own_path(site, site.layout.resources)}.{key} is request and limit at once: without it the pod has neither"
        )
    holder, last = found_holder(site, site.layout.resources)
    if not _equal((holder or {}).get(last), key, value):
        holder, last = holder_of(site, site.layout.resources)
        put(map_at(holder, last), key, _quantity(value))


def _shm(site, value):
    """The size of /dev/shm; None removes the limit. Where nothing is mounted, a volume in memory is."""
    refuse(site, "shm")
    if value is not None and parse_quantity(value) is None:
        raise DocumentError(f"{value!r} is no Kubernetes quantity (volumes.shm.sizeLimit)")
    mounted = [
        mount for mount in site.container.get("volumeMounts") or [] if mount.get("mountPath") == "/dev/shm"
    ]
    if site.layout.shm and not mounted:
        holder, key = found_holder(site, site.layout.shm)
        if not _equal(holder, key, value):
            holder, key = holder_of(site, site.layout.shm)
            put(holder, key, _quantity(value))
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
        put(map_at(volume, "emptyDir"), "sizeLimit", _quantity(value))


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


def _probe(site, name, value):
    refuse(site, "probes")
    match = _PROBE.fullmatch(name)
    if match:
        probe = site.container.get(match.group(1))
        if not isinstance(probe, dict):
            raise DocumentError(f"the container has no {match.group(1)}")
        put(probe, match.group(2), value)
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


def _image(site, value):
    """Another image, for a container that names one itself."""
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:/@+-]{1,512}", value):
        raise DocumentError("image: the value is a reference such as vllm/vllm-openai:v0.11.0")
    if not isinstance(site.container.get("image"), str):
        raise DocumentError(f"{site.path} names no image itself: change it where it comes from")
    site.container["image"] = value


def _strategy(site, value):
    """``Recreate``, or how many pods may come and go in a rolling update."""
    path = site.layout.strategy
    if path is None:
        raise DocumentError(f"a {site.kind} has no update strategy that can be changed here")
    if value == "Recreate":
        if site.kind != "Deployment":
            raise DocumentError(f"a {site.kind} knows no strategy Recreate")
        wanted: dict[str, Any] = {"type": "Recreate"}
    elif isinstance(value, dict) and value and value.keys() <= {"maxSurge", "maxUnavailable"}:
        wanted = _rolling(site, value)
    else:
        raise DocumentError("strategy: the value is Recreate or {maxSurge, maxUnavailable}")
    holder, key = holder_of(site, path)
    if holder.get(key) != wanted:
        holder[key] = wanted


def _rolling(site, value):
    holder, key = found_holder(site, site.layout.strategy)
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
