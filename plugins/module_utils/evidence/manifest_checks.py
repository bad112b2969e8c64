# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a PodSpec that somebody wrote has the types of the API, before it is read like one from the API.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from typing import Any

from ..documents import DocumentError
from ..quantities import parse_quantity
from .manifest_parts import scalar, word_for

_TEXT, _QUANTITY = "text", "quantity"
_MAP: dict[str, Any] = {}  # whatever it holds
_QUANTITIES = {"*": _QUANTITY}
_ENV = {"name": _TEXT, "value": _TEXT, "valueFrom": {"*": _MAP}}
_CONTAINER = {
    "name": _TEXT,
    "image": _TEXT,
    "command": [_TEXT],
    "args": [_TEXT],
    "env": [_ENV],
    "envFrom": [{"configMapRef": _MAP, "secretRef": _MAP, "prefix": _TEXT}],
    "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": [_MAP]},
    "volumeMounts": [{"name": _TEXT, "mountPath": _TEXT, "subPath": _TEXT}],
    "startupProbe": _MAP,
    "livenessProbe": _MAP,
    "readinessProbe": _MAP,
    "lifecycle": {"*": _MAP},
}
_POD_SPEC = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [{"name": _TEXT, "emptyDir": {"sizeLimit": _QUANTITY}, "configMap": _MAP}],
    "nodeSelector": {"*": _TEXT},
    "affinity": {"nodeAffinity": _MAP},
    "resources": {"requests": _QUANTITIES, "limits": _QUANTITIES},
}


# Fields of a container that are written beside ``containers`` by a wrong indentation.
_OF_A_CONTAINER = ("args", "command", "env", "envFrom", "image", "ports", "volumeMounts")


def misplaced(spec):
    """Sentences about fields of a container that stand in the pod spec, where nothing reads them."""
    return [
        f"{name} stands beside 'containers' instead of inside a container, where nothing reads it: move it into the container"
        for name in _OF_A_CONTAINER
        if name in spec
    ]


def checked(spec):
    """``(spec, notes)``: the spec with texts where the API wants texts, and what the API would refuse in it, in words.

    Raises DocumentError where a field has a type that cannot be read as what it should be.
    """
    notes: list[str] = []
    return _fitted(spec, _POD_SPEC, "", notes), notes


def _fitted(value, shape, path, notes):
    if value is None:
        return None
    if isinstance(shape, str):
        return _scalar(value, shape, path, notes)
    if not isinstance(value, type(shape)):
        wanted = "a list" if isinstance(shape, list) else "a map"
        raise DocumentError(f"{path} is {word_for(value)}, {wanted} is needed")
    if isinstance(shape, list):
        return [_item(item, shape[0], f"{path}[{index}]", notes) for index, item in enumerate(value)]
    return {
        key: _fitted(item, shape.get(key, shape.get("*")), f"{path}.{key}".strip("."), notes)
        if key in shape or "*" in shape
        else item
        for key, item in value.items()
    }


def _item(value, shape, path, notes):
    if value is None:
        raise DocumentError(f"{path} is empty, {'a text' if isinstance(shape, str) else 'a map'} is needed")
    return _fitted(value, shape, path, notes)


def _scalar(value, shape, path, notes):
    if isinstance(value, (dict, list)):
        raise DocumentError(
            f"{path} is {word_for(value)}, {'a text' if shape == _TEXT else 'a quantity'} is needed"
        )
    if shape == _QUANTITY:
        if parse_quantity(value) is None:
            notes.append(f"{path} is no Kubernetes quantity (such as 64Gi, 64G or 500m)")
        return value
    if not isinstance(value, str):
        notes.append(f"{path} is {word_for(value)}, and the API takes texts only: put it in quotes")
    return scalar(value)
