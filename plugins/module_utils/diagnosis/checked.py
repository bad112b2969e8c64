# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runbook's checks ask of a container: its resources, settings, counters and volumes, read once.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from functools import cached_property

from ..documents import proof
from ..engine.versions import parse_version
from ..quantities import quantity_bytes, quantity_cores
from ..sizing import host
from ..sizing.model_names import parameters_in_billions
from .death_scene import spec_known
from .pod_findings import pod_finding


def option(name):
    """A setting's name as vLLM's command line has it: ``cpu_offload_gb`` -> ``--cpu-offload-gb``."""
    return "--" + name.replace("_", "-")


class Checked:
    """What the checks ask of a container, read once."""

    def __init__(self, pod, container, node, namespace):
        self.pod = pod
        self.container = container
        self.node = node or {}
        self.namespace = namespace or {}
        self.engine = container.get("engine") or {}
        self.version = parse_version(self.engine.get("version"))
        resources = container.get("resources") or {}
        whole = pod.get("pod_resources") or {}
        self.requests, self.limits = resources.get("requests") or {}, resources.get("limits") or {}
        self.pod_limits = whole.get("limits") or {}
        self.parameters = parameters_in_billions(self.setting("model"))
        self.values = self._values()
        self.told = host.Told(self.values)

    def setting(self, name):
        return ((self.container.get("settings") or {}).get(name) or {}).get("value")

    def given(self, name):
        """The value if somebody set it, not vLLM's default."""
        entry = (self.container.get("settings") or {}).get(name) or {}
        return entry.get("value") if entry.get("from") != "default" else None

    def number(self, name, default=None):
        try:
            return float(self.setting(name))
        except (TypeError, ValueError):
            return default

    def env(self, name):
        value = self.setting(name)
        if value is not None:
            return value
        return next((i.get("value") for i in self.container.get("env") or [] if i.get("name") == name), None)

    @property
    def where(self):
        return f"Pod/{self.pod['name']}"

    @property
    def spec_known(self):
        return spec_known(self.pod, self.container)

    @property
    def is_planned(self):
        """Whether the pod is one of a manifest, which no admission has seen yet."""
        return bool(self.pod.get("file"))

    @property
    def on_cpu(self):
        return self.engine.get("accelerator") == "cpu"

    @property
    def memory_limit(self):
        """Bytes; the container's own limit, else the pod's, which the kubelet then applies (1.34+)."""
        return quantity_bytes(self.written_limit)

    @property
    def written_limit(self):
        """What is written as memory limit, readable or not."""
        return self.limits.get("memory") or self.pod_limits.get("memory")

    @property
    def limit_by_range(self):
        """Whether a LimitRange's default is this container's memory limit, as admission notes it on the pod."""
        sets = rf"memory limit[^;]* for container {re.escape(self.container['name'] or '')}(?![\w-])"
        notes = [
            item["text"] or "" for item in self.pod.get("mutations") or [] if item["tool"] == "LimitRange"
        ]
        return any(re.search(sets, text) for text in notes)

    @property
    def memory_request(self):
        whole = (self.pod.get("pod_resources") or {}).get("requests") or {}
        return quantity_bytes(self.requests.get("memory") or self.limits.get("memory") or whole.get("memory"))

    @property
    def ranks(self):
        """Worker processes of this pod: the GPUs it was given, at most what the engine uses."""
        total = 1
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            total *= int(self.number(name, 1) or 1)
        gpus = self.gpus
        return min(total, gpus) if gpus else total

    @property
    def gpus(self):
        for name, value in self.limits.items():
            if re.search(r"/(?:gpu(?:\.shared)?|tpu|gaudi|mig-.+)$", name):
                return int(quantity_cores(value) or 0) or None
        return None

    def _values(self):
        """The settings, and the environment variables that are none, as sizing reads them."""
        env = {item.get("name"): item.get("value") for item in self.container.get("env") or []}
        return {**env, **(self.container.get("settings") or {})}

    @property
    def workers(self):
        """Worker processes of this pod, those of further data parallel ranks counted in."""
        local = self.number("data_parallel_size_local") or self.number("data_parallel_size", 1)
        total, gpus = self.ranks * int(local or 1), self.gpus
        return min(total, gpus) if gpus else total

    @cached_property
    def host(self):
        """What the engine needs of host memory and the limit to set, as the budget says it (``host.host_memory``)."""
        return host.host_memory(
            self.values,
            self.version,
            model_bytes=self.weights,
            parameters=self.parameters,
            ranks=self.workers,
            accelerator=self.engine.get("accelerator") or "cuda",
            shm={"size_bytes": self.memory_volumes_size, "memory_backed": bool(self.memory_volumes)},
        )

    @property
    def weights(self):
        """The weights of all ranks by the log's own number in bytes, or None."""
        for attempt in reversed(self.container.get("attempts") or []):
            for item in (attempt.get("log") or {}).get("numbers") or []:
                if item["name"] == "weights" and item.get("value"):
                    return int(item["value"] * self.ranks)
        return None

    @property
    def memory_volumes(self):
        """The memory-backed emptyDirs mounted into this container, as the evidence's volumes."""
        mounted = {item.get("volume") for item in self.container.get("mounts") or []}
        return [
            item
            for item in self.pod.get("volumes") or []
            if item.get("medium") == "Memory" and item.get("name") in mounted
        ]

    @property
    def memory_volumes_size(self):
        return sum(quantity_bytes(item.get("size_limit")) or 0 for item in self.memory_volumes)

    @property
    def counters(self):
        """The newest attempt's cgroup counters, or an empty dict."""
        for attempt in reversed(self.container.get("attempts") or []):
            if attempt.get("cgroup"):
                return attempt["cgroup"]
        return {}

    @property
    def serving_log(self):
        """The log of the running attempt if it reached serving, or None."""
        attempts = self.container.get("attempts") or []
        if not attempts or attempts[-1].get("state") != "running":
            return None
        excerpt = attempts[-1].get("log") or {}
        served = any(item.get("phase") == "serving" for item in excerpt.get("markers") or [])
        return excerpt if served else None

    def spec_proof(self, text):
        return proof("spec", self.where, text)

    def finding(self, cause, role, confidence, proofs, explanation, step, **more):
        return pod_finding(
            self.pod, self.container, cause, role, confidence, proofs, explanation, runbook=step, **more
        )
