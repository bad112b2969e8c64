# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPU a pod spec asks for: how many, of which resource, and of which product if it says so.

Node labels: shared facts "kubernetes-gpu-facts", section 8.7; GKE's is that of its documentation.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..engine.accelerators import devices, make_of

# Labels of nodes whose value is the name of a product, the more exact first.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_PROFILE = re.compile(r"\bmig-(\d{1,2}g\.\d{1,4}gb)", re.IGNORECASE)
_INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def gpu_request(pod_spec, container_index=None):
    """What a raw PodSpec asks for; None where it doesn't say.

    ``{product, alternatives, preferred, count, resource, profile, instance_type, from}``. container_index: the container
    whose devices count (default: all of them). product: as the node label has it, such as ``NVIDIA-H100-80GB-HBM3`` or
    ``nvidia-l4``; alternatives: further products that it may be placed on just as well; preferred: products that the
    scheduler tries first, while any other will do; resource: the device plugin's name (``nvidia.com/gpu``,
    ``nvidia.com/gpu.shared``, ``nvidia.com/mig-1g.10gb``); profile: of the MIG instance (``1g.10gb``), by resource or
    product; from: what names the product.
    """
    containers = pod_spec.get("containers") or []
    if container_index is not None:
        containers = containers[container_index : container_index + 1]
    asked = [_quantities(item) for item in containers]
    counts = [count for count in (devices(item, parts=True) for item in asked) if count]
    products, origin = _required(pod_spec, _PRODUCT_LABELS)
    instances, _origin = _required(pod_spec, _INSTANCE_LABELS)
    resource = next((name for item in asked for name in sorted(item) if make_of({name: item[name]})), None)
    profile = next(filter(None, map(_profile, [resource, *products[:1]])), None)
    return {
        "product": products[0] if products else None,
        "alternatives": products[1:],
        "preferred": [] if products else _preferred(pod_spec, _PRODUCT_LABELS),
        "count": sum(counts) or None,
        "resource": resource,
        "profile": profile,
        "instance_type": instances[0] if len(instances) == 1 else None,
        "from": origin,
    }


def _quantities(container):
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _profile(name):
    """The MIG profile of a resource (``nvidia.com/mig-2g.20gb``) or of a product (``...-MIG-2g.20gb``), or None."""
    match = _PROFILE.search(name or "")
    return match.group(1) if match else None


def _node_affinity(pod_spec):
    return (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}


def _required(pod_spec, keys):
    """``(values, what names them)`` that a node's label must have one of: by node selector, else by affinity."""
    selector = pod_spec.get("nodeSelector") or {}
    for key in keys:
        if selector.get(key):
            return [str(selector[key])], f"nodeSelector {key}"
    required = _node_affinity(pod_spec).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    found = [_of_term(term, keys) for term in required.get("nodeSelectorTerms") or []]
    # One term is enough for a node: a term that leaves the label open allows every product.
    if not found or any(key is None for key, _values in found):
        return [], None
    values = [value for _key, values in found for value in values]
    return list(dict.fromkeys(values)), f"nodeAffinity {found[0][0]}"


def _of_term(term, keys):
    """``(label, values)`` that a term allows, or ``(None, [])`` where it leaves all of the labels open."""
    expressions = term.get("matchExpressions") or []
    for key in keys:
        own = [item for item in expressions if item.get("key") == key]
        allowed = [_texts(item) for item in own if item.get("operator") == "In"]
        if allowed:
            excluded = [value for item in own if item.get("operator") == "NotIn" for value in _texts(item)]
            return key, [
                value
                for value in allowed[0]
                if value not in excluded and all(value in others for others in allowed)
            ]
    return None, []


def _texts(expression):
    return [str(value) for value in expression.get("values") or []]


def _preferred(pod_spec, keys):
    """Values that the scheduler prefers; a pod may land on any other all the same."""
    listed = _node_affinity(pod_spec).get("preferredDuringSchedulingIgnoredDuringExecution") or []
    values = [value for item in listed for value in _of_term(item.get("preference") or {}, keys)[1]]
    return list(dict.fromkeys(values))
