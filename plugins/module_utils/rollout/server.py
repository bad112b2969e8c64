# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod's server is: its port, TLS, key, and whether it can be asked at all. Pure: takes raw API JSON.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..engine.settings import engine_settings, value_of
from ..evidence.pods import recognise_engine

# Kubernetes' defaults of a probe.
PROBE_PERIOD = 10
PROBE_THRESHOLD = 3
_PORT = 8000
_MESHES = {"istio-proxy": "Istio", "linkerd-proxy": "Linkerd"}
_AMBIENT = ("ambient.istio.io/redirection", "enabled")
# Ranks of one engine that have no server: the label of the deployer -> the value of the one that has it.
_LEADERS = {
    "leaderworkerset.sigs.k8s.io/worker-index": "0",
    "ray.io/node-type": "head",
    "modelserving.volcano.sh/entry": "true",
}
_ROLE_LABEL = "llm-d.ai/role"


class Server(NamedTuple):
    """port; tls; needs_key; model: the name that it should serve, None when unknown; settings: what the engine was told
    (secrets in it: not for output); mesh: the service mesh's name or None; silent: why the pod has no server that answers for it,
    else None; partial: why it may not answer a request alone, else None.
    """

    port: int
    tls: bool
    needs_key: bool
    model: str | None
    settings: dict
    mesh: str | None
    silent: str | None
    partial: str | None


def engine_of(raw_pod, container=None):
    """The raw engine container of a pod: the one of that name, else the recognised one. None where the name isn't there."""
    containers = (raw_pod.get("spec") or {}).get("containers") or []
    if container:
        return next((item for item in containers if item.get("name") == container), None)
    found = recognise_engine(raw_pod, asked=True)
    return containers[found[0]] if found else None


def server_of(raw_pod, container=None, port=None):
    """The ``Server`` of a pod. port: overrides what is found; container: the engine's name."""
    engine = engine_of(raw_pod, container) or {}
    environment = [item for item in engine.get("env") or [] if isinstance(item, dict)]
    settings = engine_settings(
        [str(item) for item in engine.get("command") or []],
        [str(item) for item in engine.get("args") or []],
        [{"name": item.get("name"), "value": item.get("value")} for item in environment],
        image=engine.get("image"),
        defaults=False,
    )
    probe = _probe(engine)
    names = {item.get("name") for item in environment}
    return Server(
        port=port or _own_port(settings) or _probe_port(probe, engine) or _container_port(engine) or _PORT,
        tls=bool(
            value_of(settings, "ssl_keyfile")
            or value_of(settings, "ssl_certfile")
            or probe.get("scheme") == "HTTPS"
        ),
        needs_key="VLLM_API_KEY" in names or "api_key" in settings,
        model=_served_name(settings),
        settings=settings,
        mesh=_mesh(raw_pod),
        silent=_silent(raw_pod, settings),
        partial=_partial(raw_pod, settings),
    )


def _own_port(settings):
    value = value_of(settings, "port")
    return value if isinstance(value, int) and 0 < value < 65536 else None


def _probe(engine):
    """The first HTTP probe of the engine: whoever wrote it knows port and scheme."""
    for kind in ("readinessProbe", "startupProbe", "livenessProbe"):
        found = (engine.get(kind) or {}).get("httpGet")
        if found:
            return found
    return {}


def _probe_port(probe, engine):
    port = probe.get("port")
    if isinstance(port, int):
        return port
    return next(
        (
            item.get("containerPort")
            for item in engine.get("ports") or []
            if port and item.get("name") == port
        ),
        None,
    )


def _container_port(engine):
    """The port that the container declares, where that is only one or one is called so."""
    ports = [item for item in engine.get("ports") or [] if item.get("containerPort")]
    called = [item for item in ports if re.search(r"http|api|openai", item.get("name") or "")]
    chosen = ports if len(ports) == 1 else called
    return chosen[0]["containerPort"] if chosen else None


def _served_name(settings):
    name = value_of(settings, "served_model_name" if "served_model_name" in settings else "model")
    if isinstance(name, list):
        name = name[0] if name else None
    # Variables that only the container can resolve.
    return name if isinstance(name, str) and "$" not in name else None


def _mesh(raw_pod):
    spec, metadata = raw_pod.get("spec") or {}, raw_pod.get("metadata") or {}
    for item in (spec.get("initContainers") or []) + (spec.get("containers") or []):
        if item.get("name") in _MESHES:
            return _MESHES[item["name"]]
    key, value = _AMBIENT
    return "Istio" if (metadata.get("annotations") or {}).get(key) == value else None


def _silent(raw_pod, settings):
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    for label, leader in _LEADERS.items():
        if labels.get(label) not in (None, leader):
            return f"it is no leader of its group ({label}={labels[label]})"
    if value_of(settings, "headless"):
        return "it runs headless, without a server"
    if (value_of(settings, "node_rank") or 0) not in (0, "0"):
        return f"it is rank {value_of(settings, 'node_rank')} of its engine, and the server is with rank 0"
    if any(
        item.get("name") == "worker-container" for item in (raw_pod.get("spec") or {}).get("containers") or []
    ):
        return "it is a worker of a multi-node engine, and the server is with the head"
    if value_of(settings, "uds"):
        return "its server listens at a Unix socket, not at a port"
    return None


def _partial(raw_pod, settings):
    labels = (raw_pod.get("metadata") or {}).get("labels") or {}
    transfer = value_of(settings, "kv_transfer_config")
    role = transfer.get("kv_role") if isinstance(transfer, dict) else None
    if role in ("kv_producer", "kv_consumer"):
        return f"it does one half of each request only (kv_role {role})"
    if labels.get(_ROLE_LABEL) == "prefill":
        return f"it does the prefill of each request only ({_ROLE_LABEL}=prefill)"
    return None


def allowance(engine):
    """Seconds that a startup probe gives the engine to get ready, None where it has none."""
    probe = engine.get("startupProbe")
    if not probe:
        return None
    period, threshold = (
        probe.get("periodSeconds") or PROBE_PERIOD,
        probe.get("failureThreshold") or PROBE_THRESHOLD,
    )
    return float((probe.get("initialDelaySeconds") or 0) + period * threshold)
