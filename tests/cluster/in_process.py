# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What diagnose-oom.yml does, without Ansible: for tests that do it many times, or change something in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, cluster
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import markdown, view_model


@dataclass(frozen=True)
class Read:
    """What was seen, what it means, and the report that says so."""

    evidence: dict
    diagnosis: dict
    report: str

    @property
    def causes(self) -> dict[str, str]:
        """pod -> what it died of."""
        return {pod["name"]: pod["verdict"]["cause"] for pod in self.diagnosis["pods"]}

    @property
    def missing_rights(self) -> set[str]:
        return {entry["needs"] for entry in self.evidence["unreadable"] if entry["reason"] == "forbidden"}

    def logs(self, name: str) -> list[dict]:
        """The excerpts of that pod's engine's logs, the oldest attempt first."""
        pod = next(pod for pod in self.evidence["pods"] if pod["name"] == name)
        return [entry["log"] for item in pod["containers"] if item["engine"] for entry in item["attempts"]]


def connect(access: Mapping | Path, **options) -> client.Client:
    """access: a kubeconfig; options: of kubernetes.core."""
    given = dict(access) if isinstance(access, Mapping) else str(access)
    return client.connect({"kubeconfig": given, **options}, environ={})


def read(connected: client.Client, **query) -> Read:
    """Raises cluster.CollectionError where nothing can be diagnosed."""
    evidence = cluster.collect(connected, {"since": 3600, **query})
    diagnosis = diagnose(evidence)
    return Read(evidence, diagnosis, markdown.render(view_model.view(diagnosis, evidence)))
