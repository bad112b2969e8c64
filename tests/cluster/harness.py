# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests do with a cluster: write objects, wait, run the runbook, read what the API server was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import workplace
from testcluster import ROOT
from testcluster.cluster import Cluster

PLAYBOOK_TIMEOUT_S = 300


DIAGNOSE, REMEDIATE, ROLLBACK = "diagnose-oom.yml", "remediate-oom.yml", "playbooks/rollback_oom.yml"


@dataclass(frozen=True)
class Run:
    """A finished run of a playbook and the documents that it wrote ({} where it wrote none)."""

    rc: int
    output: str
    report: str
    evidence: dict
    diagnosis: dict
    plan: dict = field(default_factory=dict)
    outcome: dict = field(default_factory=dict)

    def pod(self, name: str) -> dict:
        """The diagnosis of one pod, by its name or the beginning of it (a Deployment's pods)."""
        return _named(self.diagnosis["pods"], name)

    def seen(self, name: str) -> dict:
        """The evidence of one pod."""
        return _named(self.evidence["pods"], name)

    def planned(self, name: str) -> dict:
        """The plan of the object with that name."""
        return _of_object(self.plan["plans"], name)

    def became(self, name: str) -> dict:
        """What became of the object with that name."""
        return _of_object(self.outcome["objects"], name)

    def unreadable(self, text: str) -> list[dict]:
        """The entries of what couldn't be read that have ``text`` in them."""
        return [entry for entry in self.evidence["unreadable"] if text in json.dumps(entry)]


def _named(pods: list[dict], name: str) -> dict:
    exact = [pod for pod in pods if pod["name"] == name]
    found = exact or [pod for pod in pods if pod["name"].startswith(name)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} pods called {name} among {[pod['name'] for pod in pods]}")
    return found[0]


def _of_object(entries: list[dict], name: str) -> dict:
    found = [entry for entry in entries if entry["object"]["name"] == name]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} entries of {name} among {[e['object']['name'] for e in entries]}")
    return found[0]


def run_environment(kubeconfig: Path, **more: str) -> dict[str, str]:
    """The caller's environment without what would change a run; the cluster by KUBECONFIG."""
    changing = ("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG", "PYTHON", "MOLECULE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    ours = {"PATH": workplace.path_without_shims(), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    return {**kept, **ours, "KUBECONFIG": str(kubeconfig), **more}


class Runbook:
    """Runs the playbooks of this checkout against a cluster."""

    def __init__(self, kubeconfig: Path, folder: Path):
        self.kubeconfig = kubeconfig
        self.folder = folder
        self._runs = 0

    def start(
        self,
        *,
        kubeconfig: Path | None = None,
        playbook: str = DIAGNOSE,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **variables,
    ) -> tuple[subprocess.Popen, Path]:
        """Start a run; ``variables`` without their prefix ``vllm_oom_``. Ends in ``finish``.

        options: of ansible-playbook. The run has a process group of its own.
        """
        self._runs += 1
        output = self.folder / f"run-{self._runs}"
        named = {f"vllm_oom_{name}": value for name, value in variables.items()}
        named["vllm_oom_output_dir"] = str(output)
        started = subprocess.Popen(
            [
                Path(sys.executable).parent / "ansible-playbook",
                playbook,
                *options,
                "-e",
                json.dumps(named),
            ],
            cwd=ROOT,
            env=run_environment(kubeconfig or self.kubeconfig, **(env or {})),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return started, output

    def finish(self, started: subprocess.Popen, output: Path) -> Run:
        printed = started.communicate(timeout=PLAYBOOK_TIMEOUT_S)[0]

        def document(name: str) -> dict:
            path = output / name
            return json.loads(path.read_text()) if path.exists() else {}

        report = output / "report.md"
        return Run(
            rc=started.returncode,
            output=printed,
            report=report.read_text() if report.exists() else "",
            evidence=document("evidence.json"),
            diagnosis=document("diagnosis.json"),
            plan=document("plan.json"),
            outcome=document("outcome.json"),
        )

    def __call__(self, **options) -> Run:
        """Run it to its end; it must be green unless ``rc`` says otherwise."""
        rc = options.pop("rc", 0)
        run = self.finish(*self.start(**options))
        assert run.rc == rc, run.output
        return run


class Kubectl:
    """kubectl as admin, with objects in and out."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster

    def __call__(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [self.cluster.kubectl_program, f"--kubeconfig={self.cluster.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, objects: Iterable[Mapping], *arguments: str) -> None:
        """Create or change objects (``kubectl apply --server-side``, which keeps no copy in an annotation)."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "--server-side", "-f", "-", *arguments, stdin=json.dumps(items))

    def get(self, *arguments: str) -> dict:
        """An object or a list, as a dict."""
        return json.loads(self("get", *arguments, "-o", "json"))

    def items(self, *arguments: str) -> list[dict]:
        return self.get(*arguments)["items"]

    def patch_status(self, kind: str, name: str, namespace: str, status: Mapping) -> None:
        """Write an object's status, as its controller or kubelet would."""
        patch = json.dumps({"status": status})
        self("patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


class Audit:
    """The API server's audit log: every request with its user, verb and path."""

    def __init__(self, path: Path):
        self.path = path

    def mark(self) -> int:
        """A place in the log, for ``since``."""
        return self.path.stat().st_size

    def since(self, mark: int) -> list[dict]:
        """The requests since then that the collection's client made."""
        with self.path.open("rb") as log:
            log.seek(mark)
            entries = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [entry for entry in entries if "vllm_runbook" in entry.get("userAgent", "")]


def wait_for(what: str, look: Callable[[], object], seconds: float = 60, every: float = 0.3):
    """Call ``look`` until it returns something true, and return that; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not seen within {seconds:.0f} s: {what}")
        time.sleep(every)


def wait_for_metrics(kubectl: Kubectl, namespace: str, pod: str) -> None:
    """Until metrics-server knows the usage of a pod's containers: it has to see them twice."""
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{pod}"

    def usage() -> bool:
        printed = kubectl("get", "--raw", path, check=False)
        return bool(printed and json.loads(printed)["containers"])

    wait_for(f"the PodMetrics of {pod}", usage, seconds=90)


@contextmanager
def api_server_stopped(cluster: Cluster) -> Iterator[None]:
    """Within, the API server is gone as after a crash; after it, it is ready again, and so is all that lives on it."""
    processes = cluster.processes
    processes.stop("kube-apiserver", patience_s=0)
    try:
        yield
    finally:
        processes.restart("kube-apiserver")
        cluster.control_plane.wait_until_ready()
        # They wait longer and longer between their looks for it, up to a minute; new ones look at once.
        for name in processes.known():
            if not name.startswith(("etcd", "kube-apiserver", "containerd", "guard")):
                processes.stop(name, patience_s=0)
                processes.restart(name)
