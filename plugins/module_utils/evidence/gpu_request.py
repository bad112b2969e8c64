# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPU a pod spec asks for: how many, of which resource, and of which product if it says so.

Node labels: shared facts "kubernetes-gpu-facts", section 8.7; GKE's is that of its documentation.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..engine.accelerators import devices, make_of

# Labels of nodes whose value is the name of a product, the more exact first.
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
_INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def gpu_request(pod_spec, container_index=None):
    """``{product, alternatives, count, resource, instance_type, from}`` of a raw PodSpec; None where it doesn't say.

    container_index: the container whose devices count (default: all of them). product: as the node label has it, such as
    ``NVIDIA-H100-80GB-HBM3`` or ``nvidia-l4``; alternatives: further products that would do; resource: the device
    plugin's name (``nvidia.com/gpu``, ``nvidia.com/mig-1g.10gb``); from: what names the product.
    """
    containers = pod_spec.get("containers") or []
    if container_index is not None:
        containers = containers[container_index : container_index + 1]
    asked = [_quantities(item) for item in containers]
    counts = [count for count in (devices(item, parts=True) for item in asked) if count]
    products, origin = _selected(pod_spec, _PRODUCT_LABELS)
    instances, _origin = _selected(pod_spec, _INSTANCE_LABELS)
    return {
        "product": products[0] if products else None,
        "alternatives": products[1:],
        "count": sum(counts) or None,
        "resource": next(
            (name for item in asked for name in sorted(item) if make_of({name: item[name]})), None
        ),
        "instance_type": instances[0] if len(instances) == 1 else None,
        "from": origin,
    }


def _quantities(container):
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _selected(pod_spec, keys):
    """``(values, what names them)`` that a node's label may have: by node selector, else by required, else by preferred
    affinity."""
    selector = pod_spec.get("nodeSelector") or {}
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    ) or []
    preferred = [
        item.get("preference") or {}
        for item in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    ]
    for key in keys:
        if selector.get(key):
            return [str(selector[key])], f"nodeSelector {key}"
    for terms, word in ((required, "nodeAffinity"), (preferred, "preferred nodeAffinity")):
        for key in keys:
            values = [
                str(value)
                for term in terms
                for expression in term.get("matchExpressions") or []
                if expression.get("key") == key and expression.get("operator") == "In"
                for value in expression.get("values") or []
            ]
            if values:
                return list(dict.fromkeys(values)), f"{word} {key}"
    return [], None
