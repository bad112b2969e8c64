# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the running container's own files tell: throttling, /dev/shm, kills of children; by exec, when asked for."""

from __future__ import annotations

import pytest
from harness import wait_for, wait_for_metrics
from manifests import engine, in_namespace, pod, ready
from testcluster import cgroups

pytestmark = pytest.mark.kubelet

READY = {"exec": {"command": ["true"]}, "periodSeconds": 1}
# Fewer periods of 0.1 s aren't taken for a sample.
PERIODS = 110


@pytest.fixture
def start(kubectl, namespace):
    """Apply pods and wait until all are ready."""

    def apply_and_wait(*pods: dict) -> str:
        kubectl.apply(in_namespace(pods, namespace))
        wait_for("the pods are ready", lambda: ready(len(pods))(kubectl.items("pods", "-n", namespace)))
        return namespace

    return apply_and_wait


def burning(name: str, cpu_limit: str | None) -> dict:
    """A pod that burns CPU. No memory limit: with one, nothing enters it unless metrics-server is there."""
    return pod(
        name,
        engine(
            memory=None,
            cpu_limit=cpu_limit,
            env={"STANDIN_BUSY_THREADS": "1", "STANDIN_STEP": "0.01"},
            readinessProbe=READY,
        ),
    )


def cpu_causes(run, name: str) -> set[str]:
    return {finding["cause"] for finding in run.pod(name)["findings"]} & {"cpu_limit_set", "cpu_throttling"}


def container_id(kubectl, namespace: str, name: str) -> str:
    status = kubectl.get("pod", name, "-n", namespace)["status"]["containerStatuses"][0]
    return status["containerID"].split("//")[1]


def test_a_cpu_limit_that_throttles_is_found_with_its_share_and_its_absence_isnt(kubectl, start, runbook):
    namespace = start(burning("limited", "100m"), burning("free", None))
    limited = container_id(kubectl, namespace, "limited")
    wait_for(
        "enough periods", lambda: cgroups.cpu_statistics(limited).get("nr_periods", 0) > PERIODS, seconds=60
    )

    without = runbook(namespace=namespace, pod="limited")
    assert cpu_causes(without, "limited") == {"cpu_limit_set"}
    text = str(without.pod("limited"))
    assert "100m" in text
    assert "exec" in text, "the finding must say that the counters weren't read, and how they would be"

    entered = runbook(namespace=namespace, pod="limited", exec="running")
    assert cpu_causes(entered, "limited") == {"cpu_throttling"}
    seen = entered.seen("limited")["containers"][0]["attempts"][-1]["cgroup"]
    assert seen["version"] == cgroups.version()
    # The node's own figures, read afterwards: the counters only grow.
    now = cgroups.cpu_statistics(limited)
    assert 0 < seen["cpu"]["periods"] <= now["nr_periods"]
    assert 0 < seen["cpu"]["throttled"] <= now["nr_throttled"]
    share = seen["cpu"]["throttled"] / seen["cpu"]["periods"]
    assert share > 0.5
    assert f"{share:.0%}".replace("%", "") in str(entered.pod("limited")["findings"])

    free = runbook(namespace=namespace, pod="free", exec="running")
    assert cpu_causes(free, "free") == set()


def test_dev_shm_is_measured_in_the_container(start, runbook):
    namespace = start(
        pod("shm-used", engine(memory=None, deaths="shm_fill:40", readinessProbe=READY)),
    )
    found = wait_for(
        "40 MiB in /dev/shm",
        lambda: (
            (used := runbook(namespace=namespace, pod="shm-used", exec="running").seen("shm-used"))["shm"][
                "used"
            ]
            and used
        ),
    )
    assert found["shm"]["used"] >= 40 * 1024**2
    # Nothing is mounted there, so it is the container runtime's 64 MiB.
    assert found["shm"]["mounted_at"] is None or found["shm"]["size_limit"] == 64 * 1024**2


def scripted(name: str, script: str, memory: str) -> dict:
    """A pod whose container is taken for an engine by its image, and runs a script."""
    container = engine(memory=memory, readinessProbe=READY)
    return pod(name, {**container, "command": ["sh", "-c", script], "args": []})


def test_a_container_is_entered_only_where_it_has_memory_to_spare(kubectl, start, runbook):
    """/dev/shm of 64 MiB counts against the limit: 61 MiB in it leave no room for a process of ours."""
    fill = "dd if=/dev/zero of=/dev/shm/x bs=1M count=61; sleep 1000"
    child = "sh -c 'exec tail /dev/zero'; echo the child ended with $?; sleep 1000"
    namespace = start(scripted("full", fill, "66Mi"), scripted("roomy", child, "64Mi"))
    for name in ("full", "roomy"):
        wait_for_metrics(kubectl, namespace, name)

    full = runbook(namespace=namespace, pod="full", exec="running")
    assert full.unreadable("full/vllm"), full.evidence["unreadable"]
    (entry,) = full.unreadable("full/vllm")
    assert entry["reason"].startswith("not entered: it uses 9"), entry
    assert full.seen("full")["shm"]["used"] is None

    # PID 1 lives, and nothing in the pod's status says that the kernel has killed in this container.
    roomy = runbook(namespace=namespace, pod="roomy", exec="running")
    seen = roomy.seen("roomy")["containers"][0]
    assert seen["restart_count"] == 0
    assert seen["attempts"][-1]["cgroup"]["memory"]["oom_kills"] == 1
    finding = next(finding for finding in roomy.pod("roomy")["findings"] if finding["memory"] == "host")
    assert finding["role"] == "trigger", finding


def test_without_metrics_a_container_with_a_limit_is_not_entered(kubectl, start, runbook):
    namespace = start(pod("fresh", engine(readinessProbe=READY)))
    run = runbook(namespace=namespace, pod="fresh", exec="running")
    (entry,) = run.unreadable("not entered")
    assert "fresh" in entry["object"]


def test_nvidia_smi_in_the_container_tells_of_the_nodes_gpus(start, runbook):
    """A recorded A10G (image/recorded/nvidia-smi/a10g-idle says where from)."""
    environment = {"NVIDIA_SMI_RECORDED": "a10g-idle"}
    start_without_limit = engine(memory=None, env=environment, readinessProbe=READY)
    namespace = start(pod("with-gpu", start_without_limit))
    run = runbook(namespace=namespace, pod="with-gpu", exec="running")
    (gpu,) = run.evidence["nodes"]["gpu-node-1"]["gpus"]
    assert gpu["name"] == "NVIDIA A10G"
    sizes = {name: gpu[name] // 1024**2 for name in ("total", "used", "free")}
    assert sizes == {"total": 23028, "used": 22, "free": 22569}
