# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container's attempt ended: the matrix of shared facts "kubernetes-gpu-facts" 1.2 to 1.6, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import death_scene, deaths

UID = "6d1f0c3e-7a4b-4c55-9a43-0d5a3f3f1b11"
POD_PATH = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
STARTED, FINISHED = "2026-11-30T07:00:00Z", "2026-11-30T07:05:00Z"


def log(*texts, errors=()):
    """An excerpt whose tail has ``texts`` from line 1 on; those at the indices ``errors`` are error lines."""
    excerpt = documents.log(complete=True)
    lines = [documents.line(number, text) for number, text in enumerate(texts, 1)]
    excerpt["tail"] = lines
    excerpt["errors"] = [dict(lines[index], frames=[], context=[]) for index in errors]
    excerpt["first_error"] = excerpt["errors"][0] if excerpt["errors"] else None
    return excerpt


def ended(reason=None, exit_code=None, text=(), errors=(), **more):
    fields = {"started_at": STARTED, "finished_at": FINISHED, "log": log(*text, errors=errors)}
    return documents.attempt(0, "terminated", reason=reason, exit_code=exit_code, **dict(fields, **more))


def vllm(*attempts, limits=None):
    resources = {"requests": {}, "limits": {"memory": "64Gi"} if limits is None else limits}
    return documents.container(
        "vllm", engine=documents.engine(), resources=resources, attempts=list(attempts)
    )


def make_pod(container, **more):
    fields = {"uid": UID, "node": "n1", "qos": "Burstable", "containers": [container]}
    return documents.pod("llm", "vllm-0", **dict(fields, **more))


def kill_event(message, first=FINISHED, last=FINISHED, count=1):
    return documents.event("Killing", message, "Normal", "Pod/vllm-0", count, first, last)


def death(attempt, node=None, limits=None, **pod_fields):
    container = vllm(attempt, limits=limits)
    return deaths.death(make_pod(container, **pod_fields), container, attempt, node)


def kernel_node(line, time=None):
    return documents.node(kernel_oom=[{"text": line, "time": time}])


MEMCG_LINE = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
    f"oom_memcg={POD_PATH}/cri-containerd-{'ab' * 32}.scope,"
    f"task_memcg={POD_PATH}/cri-containerd-{'ab' * 32}.scope,task=python3,pid=2343,uid=0"
)
GLOBAL_LINE = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    f"task_memcg={POD_PATH}/cri-containerd-{'ab' * 32}.scope,task=python3,pid=2343,uid=0"
)
OTHER_LINE = MEMCG_LINE.replace("6d1f0c3e", "00000000")
NPD_LINE = (
    "Memory cgroup out of memory: Killed process 19023 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
)
DEAD_CORE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': -9}"
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.74 GiB."
PROBE = "Container vllm failed startup probe, will be restarted"
LIVENESS = "Container vllm failed liveness probe, will be restarted"
EVICTED = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 73180Ki. "
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "message": ""}


def disrupted(reason, message=""):
    return [dict(DISRUPTED, reason=reason, message=message)]


# (name, death's arguments, kind, rule, certain)
MATRIX = [
    # 1.2 OOMKilled
    ("oomkilled 137", {"attempt": ended("OOMKilled", 137)}, "oom_killed_container", "oom_137", False),
    (
        "oomkilled 137, kernel names the container's limit",
        {"attempt": ended("OOMKilled", 137), "node": kernel_node(MEMCG_LINE)},
        "oom_killed_container",
        "kernel_says_limit",
        True,
    ),
    (
        "oomkilled 137, kernel says global",
        {"attempt": ended("OOMKilled", 137), "node": kernel_node(GLOBAL_LINE)},
        "oom_killed_node",
        "kernel_says_node",
        True,
    ),
    (
        "oomkilled 137, the kernel's line is another pod's",
        {"attempt": ended("OOMKilled", 137), "node": kernel_node(OTHER_LINE)},
        "oom_killed_container",
        "oom_137",
        False,
    ),
    (
        "oomkilled 137, the kernel's line is an hour older",
        {"attempt": ended("OOMKilled", 137), "node": kernel_node(GLOBAL_LINE, "2026-11-30T06:00:00Z")},
        "oom_killed_container",
        "oom_137",
        False,
    ),
    (
        "oomkilled 137 without a memory limit",
        {"attempt": ended("OOMKilled", 137), "limits": {}},
        "oom_killed_node",
        "oom_without_limit",
        False,
    ),
    (
        "oomkilled 137, the pod's settings aren't known",
        {"attempt": ended("OOMKilled", 137), "limits": {}, "qos": None, "uid": None},
        "oom_killed_container",
        "oom_137",
        False,
    ),
    (
        "oomkilled 137 under a pod-level limit",
        {"attempt": ended("OOMKilled", 137), "limits": {}, "pod_resources": {"limits": {"memory": "64Gi"}}},
        "oom_killed_container",
        "oom_137",
        False,
    ),
    (
        "oomkilled 1, the log has the killed child",
        {"attempt": ended("OOMKilled", 1, [DEAD_CORE], [0])},
        "oom_killed_child",
        "oom_child_in_log",
        True,
    ),
    (
        "oomkilled 1, the log has nothing of its own",
        {
            "attempt": ended(
                "OOMKilled",
                1,
                ["Engine core proc EngineCore_DP0 died unexpectedly, shutting down client."],
                [0],
            )
        },
        "oom_killed_child",
        "oom_child_silent",
        False,
    ),
    (
        "oomkilled 1, but the log ends in a GPU error",
        {"attempt": ended("OOMKilled", 1, [CUDA_OOM], [0])},
        "oom_mark_sticky",
        "oom_sticky",
        False,
    ),
    ("oomkilled 0", {"attempt": ended("OOMKilled", 0)}, "oom_mark_sticky", "oom_sticky", False),
    ("oomkilled 143", {"attempt": ended("OOMKilled", 143)}, "oom_mark_sticky", "oom_sticky", False),
    (
        "error 1, kernel names a child of this container",
        {"attempt": ended("Error", 1, [DEAD_CORE], [0]), "node": kernel_node(MEMCG_LINE)},
        "oom_killed_child",
        "kernel_says_child",
        True,
    ),
    # the mark was lost (1.2 Error/137): only the kernel knows
    (
        "error 137, kernel names the limit",
        {"attempt": ended("Error", 137), "node": kernel_node(MEMCG_LINE)},
        "oom_killed_container",
        "kernel_says_limit",
        True,
    ),
    (
        "error 137, a nameless node event at that time",
        {
            "attempt": ended("Error", 137),
            "node": documents.node(events=[documents.event("OOMKilling", NPD_LINE, last_at=FINISHED)]),
        },
        "oom_killed_container",
        "kernel_near_limit",
        False,
    ),
    (
        "error 137, SystemOOM of the node at that time",
        {
            "attempt": ended("Error", 137),
            "node": documents.node(
                events=[
                    documents.event(
                        "SystemOOM", "System OOM encountered, victim process: x, pid: 1", last_at=FINISHED
                    )
                ]
            ),
        },
        "oom_killed_node",
        "kernel_near_node",
        False,
    ),
    (
        "the container's own log quotes the kernel",
        {
            "attempt": ended(
                None, None, ["kernel: Memory cgroup out of memory: Killed process (VLLM::EngineCor)"]
            )
        },
        "oom_killed_container",
        "kernel_says_limit",
        True,
    ),
    # 4.2 memory.events of a running container
    (
        "running, a child was killed",
        {
            "attempt": documents.attempt(
                0, "running", cgroup=dict(documents.cgroup(2), memory={"oom_kills": 2, "limit": 1})
            )
        },
        "oom_killed_child",
        "running_after_child_kill",
        True,
    ),
    ("running", {"attempt": documents.attempt(0, "running", started_at=STARTED)}, "running", "running", True),
    (
        "waiting",
        {"attempt": documents.attempt(1, "waiting", reason="CrashLoopBackOff")},
        "waiting",
        "waiting",
        True,
    ),
    (
        "waiting for its image",
        {"attempt": documents.attempt(0, "waiting", reason="ImagePullBackOff")},
        "start_error",
        "never_started",
        True,
    ),
    ("start error", {"attempt": ended("StartError", 128)}, "start_error", "never_started", True),
    ("cannot run", {"attempt": ended("ContainerCannotRun", 127)}, "start_error", "never_started", True),
    # 1.4 probes
    (
        "startup probe, 137",
        {"attempt": ended("Error", 137), "events": [kill_event(PROBE)]},
        "probe_kill",
        "probe",
        True,
    ),
    (
        "liveness probe, 143",
        {"attempt": ended("Error", 143), "events": [kill_event(LIVENESS)]},
        "probe_kill",
        "probe",
        True,
    ),
    (
        "probe, vLLM exits 0",
        {"attempt": ended("Completed", 0), "events": [kill_event(PROBE)]},
        "probe_kill",
        "probe",
        True,
    ),
    (
        "probe, vLLM exits 1 on the interrupt",
        {"attempt": ended("Error", 1, ["KeyboardInterrupt: terminated"], [0]), "events": [kill_event(PROBE)]},
        "probe_kill",
        "probe",
        True,
    ),
    (
        "the probe of another container",
        {
            "attempt": ended("Error", 137),
            "events": [kill_event("Container proxy failed liveness probe, will be restarted")],
        },
        "sigkill_unattributed",
        "sigkill",
        False,
    ),
    (
        "a probe kill of an earlier run",
        {
            "attempt": ended("Error", 137),
            "events": [kill_event(PROBE, "2026-11-30T05:00:00Z", "2026-11-30T05:00:00Z")],
        },
        "sigkill_unattributed",
        "sigkill",
        False,
    ),
    (
        "repeated probe kills cover this run",
        {
            "attempt": ended("Error", 137),
            "events": [kill_event(PROBE, "2026-11-30T05:00:00Z", "2026-11-30T07:30:00Z", 9)],
        },
        "probe_kill",
        "probe",
        True,
    ),
    (
        "a crash of its own although a probe was about to kill it",
        {"attempt": ended("Error", 1, [CUDA_OOM], [0]), "events": [kill_event(LIVENESS)]},
        "exit",
        "exit",
        True,
    ),
    # 1.5 pod level
    (
        "evicted",
        {"attempt": ended("Error", 137), "reason": "Evicted", "message": EVICTED},
        "eviction",
        "evicted",
        True,
    ),
    (
        "evicted, container lost",
        {"attempt": ended("ContainerStatusUnknown", 137), "reason": "Evicted", "message": EVICTED},
        "eviction",
        "evicted",
        True,
    ),
    ("evicted by the attempt's own reason", {"attempt": ended("Evicted", 137)}, "eviction", "evicted", True),
    (
        "node shutdown",
        {
            "attempt": ended("Error", 137),
            "reason": "Terminated",
            "message": "Pod was terminated in response to imminent node shutdown.",
        },
        "node_shutdown",
        "node_shutdown",
        True,
    ),
    (
        "preempted by the kubelet",
        {"attempt": ended("Error", 137), "reason": "Preempting"},
        "preempted",
        "preempted",
        True,
    ),
    # 1.6 DisruptionTarget
    (
        "preempted by the scheduler",
        {"attempt": ended("Error", 143), "conditions": disrupted("PreemptionByScheduler")},
        "preempted",
        "preempted",
        True,
    ),
    (
        "drained, 143",
        {"attempt": ended("Error", 143), "conditions": disrupted("EvictionByEvictionAPI")},
        "sigterm",
        "told_to_stop",
        True,
    ),
    (
        "taint manager, 137",
        {"attempt": ended("Error", 137), "conditions": disrupted("DeletionByTaintManager")},
        "grace_period_expired",
        "disrupted_137",
        True,
    ),
    (
        "kubelet: node shutdown",
        {
            "attempt": ended("Error", 143),
            "conditions": disrupted(
                "TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."
            ),
        },
        "node_shutdown",
        "node_shutdown",
        True,
    ),
    (
        "kubelet: node pressure",
        {"attempt": ended("Error", 137), "conditions": disrupted("TerminationByKubelet", EVICTED)},
        "eviction",
        "evicted",
        True,
    ),
    (
        "kubelet: critical pod",
        {
            "attempt": ended("Error", 137),
            "conditions": disrupted("TerminationByKubelet", "Preempted in order to admit critical pod"),
        },
        "preempted",
        "preempted",
        True,
    ),
    # stop from outside
    ("143", {"attempt": ended("Error", 143)}, "sigterm", "sigterm", True),
    ("signal field 15", {"attempt": ended("Error", None, signal=15)}, "sigterm", "sigterm", True),
    (
        "143 of a deleted pod",
        {"attempt": ended("Error", 143), "deleted_at": FINISHED},
        "sigterm",
        "told_to_stop",
        True,
    ),
    (
        "143 of a stopped container",
        {"attempt": ended("Error", 143), "events": [kill_event("Stopping container vllm")]},
        "sigterm",
        "told_to_stop",
        True,
    ),
    (
        "137 of a deleted pod",
        {"attempt": ended("Error", 137), "deleted_at": FINISHED, "grace_period": 30},
        "grace_period_expired",
        "grace_expired",
        True,
    ),
    (
        "137 of a stopped container",
        {"attempt": ended("Error", 137), "events": [kill_event("Stopping container vllm")]},
        "grace_period_expired",
        "grace_expired",
        True,
    ),
    (
        "137, the log saw SIGTERM",
        {"attempt": ended("Error", 137, ["[shutdown] EngineCore: trigger received signal=SIGTERM"])},
        "grace_period_expired",
        "grace_expired_in_log",
        False,
    ),
    (
        "exit 0, the log saw SIGTERM",
        {"attempt": ended("Completed", 0, ["[shutdown] EngineCore: trigger received signal=SIGTERM"])},
        "sigterm",
        "sigterm_in_log",
        False,
    ),
    (
        "SIGTERM came after an error of its own",
        {
            "attempt": ended(
                "Error", 1, [CUDA_OOM, "[shutdown] EngineCore: trigger received signal=SIGTERM"], [0]
            )
        },
        "exit",
        "exit",
        True,
    ),
    (
        "a crash before the pod was deleted",
        {"attempt": ended("Error", 1), "deleted_at": "2026-11-30T08:00:00Z", "grace_period": 30},
        "exit",
        "exit",
        True,
    ),
    (
        "a SIGKILL long before the node was drained",
        {
            "attempt": ended("Error", 137),
            "conditions": [dict(disrupted("EvictionByEvictionAPI")[0], since="2026-11-30T08:00:00Z")],
        },
        "sigkill_unattributed",
        "sigkill",
        False,
    ),
    (
        "the kubelet stopped repeating its Killing event",
        {
            "attempt": ended("Error", 137),
            "events": [
                kill_event(
                    "Container vllm failed liveness probe, will be restarted",
                    "2026-11-30T06:00:00Z",
                    "2026-11-30T06:20:00Z",
                    count=3,
                )
            ],
        },
        "probe_kill",
        "probe_before",
        False,
    ),
    (
        "one probe kill of an earlier run says nothing about this one",
        {
            "attempt": ended("Error", 137),
            "events": [
                kill_event(
                    "Container vllm failed liveness probe, will be restarted",
                    "2026-11-30T06:20:00Z",
                    "2026-11-30T06:20:00Z",
                )
            ],
        },
        "sigkill_unattributed",
        "sigkill",
        False,
    ),
    # nobody known
    ("error 137", {"attempt": ended("Error", 137)}, "sigkill_unattributed", "sigkill", False),
    (
        "exit 1 after a child's SIGKILL",
        {"attempt": ended("Error", 1, [DEAD_CORE], [0])},
        "sigkill_unattributed",
        "child_sigkill",
        False,
    ),
    (
        "a child's SIGKILL after an error of its own is vLLM's clean-up",
        {"attempt": ended("Error", 1, [CUDA_OOM, DEAD_CORE], [0, 1])},
        "exit",
        "exit",
        True,
    ),
    # synthetic
    (
        "status unknown",
        {"attempt": ended("ContainerStatusUnknown", 137)},
        "status_unknown",
        "status_unknown",
        True,
    ),
    ("lost exit status", {"attempt": ended("Unknown", 255)}, "status_unknown", "status_unknown", True),
    # signals
    ("SIGSEGV", {"attempt": ended("Error", 139)}, "signal", "signal", True),
    ("SIGABRT", {"attempt": ended("Error", 134)}, "signal", "signal", True),
    ("SIGBUS", {"attempt": ended("Error", 135)}, "signal", "signal", True),
    ("signal field", {"attempt": ended("Error", 1, signal=11)}, "signal", "signal", True),
    (
        "a child's SIGBUS",
        {
            "attempt": ended(
                "Error",
                1,
                ["Worker proc VllmWorker-1 died unexpectedly (exit code: -7), shutting down executor."],
                [0],
            )
        },
        "signal",
        "child_signal",
        False,
    ),
    # plain ends
    ("completed", {"attempt": ended("Completed", 0)}, "completed", "completed", True),
    ("exit 1", {"attempt": ended("Error", 1, [CUDA_OOM], [0])}, "exit", "exit", True),
    ("exit 2", {"attempt": ended("Error", 2)}, "exit", "exit", True),
    ("exit 126", {"attempt": ended("Error", 126)}, "exit", "exit", True),
    ("only a log", {"attempt": documents.attempt(0, log=log(CUDA_OOM, errors=[0]))}, "exit", "exit", False),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "rule", "certain"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX]
)
def test_how_it_ended(arguments, kind, rule, certain):
    found = death(**arguments)
    assert (found["kind"], found["rule"], found["certain"]) == (kind, rule, certain)
    assert found["evidence"]
    assert all(item["text"] for item in found["evidence"])
    if not certain:
        assert found["would_settle"]


def test_every_rule_has_a_row():
    assert {row[3] for row in MATRIX} == {rule.name for rule in deaths.RULES}


def test_every_kind_has_its_words():
    assert {rule.kind for rule in deaths.RULES} == set(deaths.SENTENCES)


@pytest.mark.parametrize(
    ("exit_code", "signal", "name"),
    [(137, 9, "SIGKILL"), (143, 15, "SIGTERM"), (139, 11, "SIGSEGV"), (135, 7, "SIGBUS")],
)
def test_the_signal_comes_from_the_exit_code(exit_code, signal, name):
    found = death(ended("Error", exit_code))
    assert (found["signal"], found["signal_name"]) == (signal, name)


@pytest.mark.parametrize("exit_code", [0, 1, 2, 126, 127, 128, 255, None])
def test_other_exit_codes_are_no_signal(exit_code):
    assert death_scene.exit_signal({"exit_code": exit_code}) is None


def test_only_the_last_run_can_have_been_ended_by_an_eviction():
    first, last = ended("Error", 1, [CUDA_OOM], [0]), ended("Error", 137)
    container = vllm(first, dict(last, index=1))
    pod = make_pod(container, reason="Evicted", message=EVICTED)
    assert deaths.death(pod, container, container["attempts"][0])["kind"] == "exit"
    assert deaths.death(pod, container, container["attempts"][1])["kind"] == "eviction"


def test_the_run_before_a_back_off_is_the_current_one():
    container = vllm(ended("Error", 137), documents.attempt(1, "waiting", reason="CrashLoopBackOff"))
    assert death_scene.current_attempt(container)["exit_code"] == 137
    assert death_scene.current_attempt(vllm()) is None


@pytest.mark.parametrize(
    ("arguments", "memory", "resource"),
    [
        ({"message": EVICTED}, "node", "memory"),
        ({"message": "The node had condition: [MemoryPressure]. "}, "node", "memory"),
        ({"message": "The node was low on resource: ephemeral-storage. "}, "none", "ephemeral-storage"),
        (
            {"message": 'Usage of EmptyDir volume "cache" exceeds the limit "10Gi". '},
            "none",
            "ephemeral-storage",
        ),
        (
            {"message": 'Container vllm exceeded its local ephemeral storage limit "20Gi". '},
            "none",
            "ephemeral-storage",
        ),
        ({"message": "The node was low on resource: pids. "}, "none", "pids"),
        ({"message": None}, "unknown", None),
        (
            {
                "message": None,
                "events": [dict(documents.event("Evicted", "gone"), details={"starved_resource": "memory"})],
            },
            "node",
            "memory",
        ),
    ],
)
def test_an_eviction_is_memory_only_when_memory_was_short(arguments, memory, resource):
    found = death(ended("Error", 137), reason="Evicted", **arguments)
    assert (found["memory"], found["resource"]) == (memory, resource)


def test_the_resource_may_stand_in_a_pasted_log():
    found = death(ended("Evicted", 137, ["Message: The node was low on resource: ephemeral-storage."]))
    assert (found["memory"], found["resource"]) == ("none", "ephemeral-storage")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"events": [kill_event(PROBE)]}, "startup probe"),
        ({"events": [kill_event(LIVENESS)]}, "liveness probe"),
        ({"deleted_at": FINISHED}, "deleted the pod"),
        ({"conditions": disrupted("EvictionByEvictionAPI")}, "eviction API"),
        ({"conditions": disrupted("PreemptionByScheduler")}, "scheduler"),
    ],
)
def test_the_sender_is_named(arguments, words):
    assert words in death(ended("Error", 143), **arguments)["sender"]


def test_an_unknown_sender_is_not_invented():
    assert death(ended("Error", 143))["sender"] is None


@pytest.mark.parametrize(
    ("grace", "hook", "left", "words"),
    [
        (30.0, None, 30.0, "is 30 s."),
        (60.0, "exec sleep 45", 15.0, "15 s are left"),
        (30.0, "sleep 45", 0.0, "0 s are left"),
        (60.0, "httpGet :8000/drain", None, "takes its time from it"),
        (None, "exec sleep 5", None, None),
    ],
)
def test_the_time_to_drain(grace, hook, left, words):
    container = dict(vllm(ended("Error", 143)), lifecycle={"pre_stop": hook})
    pod = make_pod(container, grace_period=grace)
    found = deaths.death(pod, container, container["attempts"][0])["drain"]
    assert found["left"] == left
    assert words is None or words in found["sentence"]


def test_the_kernels_report_is_passed_on():
    found = death(ended("OOMKilled", 137), kernel_node(MEMCG_LINE))
    assert found["scope"] == "container"
    assert found["kernel"]["victim"] == "python3"
    assert found["evidence"][0]["source"] == "kernel"


def test_reports_of_several_sources_are_not_mixed():
    events = [documents.event("OOMKilling", NPD_LINE, last_at=FINISHED)]
    node = documents.node(kernel_oom=[{"text": MEMCG_LINE, "time": None}], events=events)
    found = death(ended("OOMKilled", 137), node)
    assert (found["rule"], found["kernel"]["victims"]) == ("kernel_says_limit", [("python3", 2343)])


def run(minutes, served_after=None, complete=True, index=0):
    excerpt = documents.log(complete=complete)
    if served_after is not None:
        time = f"2026-11-30T07:{served_after:02d}:00Z"
        excerpt["markers"] = [documents.line(9, "Application startup complete.", time=time, phase="serving")]
    hours, rest = divmod(minutes, 60)
    finished = f"2026-11-30T{7 + hours:02d}:{rest:02d}:00Z"
    return documents.attempt(
        index, "terminated", reason="OOMKilled", started_at=STARTED, finished_at=finished, log=excerpt
    )


@pytest.mark.parametrize(
    ("attempts", "pattern", "similar"),
    [
        ([run(120, served_after=5)], "growth", None),
        ([run(6, served_after=5)], "sudden", None),
        ([run(3)], "sudden", None),
        ([run(40)], "sudden", None),  # a complete log without a sign of serving
        ([run(40, complete=False)], None, None),  # it may have served
        ([run(3, complete=False)], "sudden", None),
        ([run(100, served_after=5), run(120, served_after=5, index=1)], "growth", True),
        ([run(3), run(120, served_after=5, index=1)], "growth", False),
        ([documents.attempt(0, "running", started_at=STARTED)], None, None),
        ([], None, None),
    ],
)
def test_growth_or_sudden(attempts, pattern, similar):
    found = deaths.time_to_death(vllm(*attempts))
    assert (found["pattern"], found["similar"]) == (pattern, similar)
    assert (found["sentence"] is None) == (not found["seconds"])


def test_restarts_that_are_no_longer_known_are_said():
    container = dict(vllm(run(3)), restart_count=7)
    assert "1 of 8 runs" in deaths.time_to_death(container)["sentence"]


@given(
    state=st.sampled_from([None, "running", "waiting", "terminated"]),
    reason=st.sampled_from([None, "OOMKilled", "Error", "Completed", "Unknown", "Evicted", "New"]),
    exit_code=st.none() | st.integers(-1, 255),
    signal=st.none() | st.integers(0, 64),
    messages=st.lists(
        st.none() | st.sampled_from([PROBE, LIVENESS, "Stopping container vllm", ""]), max_size=3
    ),
    texts=st.lists(
        st.sampled_from([DEAD_CORE, CUDA_OOM, NPD_LINE, "KeyboardInterrupt: terminated", ""]), max_size=3
    ),
    pod_reason=st.sampled_from([None, "Evicted", "Terminated", "Preempting", "NodeLost"]),
)
def test_every_end_has_a_reading(state, reason, exit_code, signal, messages, texts, pod_reason):
    attempt = documents.attempt(
        0, state, reason=reason, exit_code=exit_code, signal=signal, log=log(*texts, errors=range(len(texts)))
    )
    events = [documents.event("Killing", message) for message in messages]
    found = death(attempt, reason=pod_reason, events=events)
    assert found["kind"] in deaths.SENTENCES
    assert found["evidence"]
    # Design, rule 2: OOMKilled with another exit code is never the container's own kill.
    if reason == "OOMKilled" and exit_code not in (137, None) and not signal and not found["kernel"]:
        assert found["kind"] != "oom_killed_container"
