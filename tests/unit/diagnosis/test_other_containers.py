# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pod's status on a real cluster taught: sidecars alone, lost containers of evicted pods, engines that aren't ready."""

from __future__ import annotations

import pytest
from evidence_samples import evidence_of, excerpt, pod_with

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose

STARTED = "2026-11-30T06:30:00Z"
NOW = "2026-11-30T07:00:00Z"


def attempt(index=0, state="terminated", **fields):
    made = documents.attempt(index, state)
    made.update(fields)
    return made


def quiet(text):
    """A log without an error, that ends with this line."""
    return dict(excerpt([text]), errors=[], first_error=None)


def serving_attempt():
    return attempt(state="running", started_at=STARTED, log=quiet("Application startup complete."))


def killed_sidecar():
    return documents.container(
        "exporter",
        role="sidecar",
        resources={"requests": {}, "limits": {"memory": "32Mi"}},
        attempts=[
            attempt(3, reason="OOMKilled", exit_code=137, started_at=STARTED, finished_at=NOW),
            attempt(4, "waiting", reason="CrashLoopBackOff"),
        ],
        restart_count=4,
    )


def verdict_of(pod, collected_at=NOW):
    evidence = evidence_of(pod)
    evidence["collected_at"] = collected_at
    (judged,) = diagnose(evidence)["pods"]
    return judged["verdict"], judged["findings"]


def test_a_sidecar_is_the_trigger_where_nothing_else_failed():
    pod = pod_with([serving_attempt()])
    pod["containers"].insert(0, killed_sidecar())
    verdict, findings = verdict_of(pod)
    assert (verdict["cause"], verdict["memory"]) == ("host_oom_growth", "host")
    assert "Container exporter, not the engine's" in verdict["sentence"]
    assert [item["container"] for item in findings if item["role"] == "trigger"] == ["exporter"]


def test_a_sidecar_only_contributes_where_the_engine_failed():
    oom = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    pod = pod_with([attempt(reason="Error", exit_code=1, log=excerpt(oom, phase="load"))])
    pod["containers"].insert(0, killed_sidecar())
    verdict, findings = verdict_of(pod)
    assert verdict["memory"] == "gpu"
    assert [item["role"] for item in findings if item["container"] == "exporter"] == ["contributing"]


def test_a_lost_container_of_an_evicted_pod_was_evicted():
    """Both terminations are made up by the kubelet (1.34, emptyDir over its limit); the pod's reason isn't."""
    lost = {"reason": "ContainerStatusUnknown", "exit_code": 137}
    before = attempt(
        0,
        message="The container could not be located when the pod was deleted. It used to be Running",
        **lost,
    )
    after = attempt(1, message="The container could not be located when the pod was terminated", **lost)
    pod = pod_with(
        [before, after],
        pod_phase="Failed",
        reason="Evicted",
        message='Usage of EmptyDir volume "cache" exceeds the limit "20Mi". ',
    )
    verdict, findings = verdict_of(pod)
    assert (verdict["cause"], verdict["memory"], verdict["is_memory"]) == ("eviction", "none", False)
    assert sum(item["role"] == "trigger" for item in findings) == 1


def unready_pod(last_line_at, ready=False):
    log = quiet("Loading safetensors checkpoint shards:  25% Completed | 1/4")
    log["tail"][-1]["time"] = last_line_at
    pod = pod_with([attempt(state="running", started_at=STARTED, log=log)])
    pod["containers"][0]["ready"] = ready
    return pod


def test_an_engine_that_isnt_ready_yet_is_said_to_be_so():
    verdict, findings = verdict_of(unready_pod("2026-11-30T06:59:00Z"))
    assert verdict["cause"] is None
    assert "container vllm has been running for 30 min without being ready" in verdict["sentence"]
    assert "Loading safetensors" in verdict["sentence"]
    assert not [item for item in findings if item["role"] == "trigger"]


def test_a_long_silence_of_one_that_isnt_ready_is_undetermined():
    verdict, findings = verdict_of(unready_pod("2026-11-30T06:45:00Z"))
    assert (verdict["cause"], verdict["is_memory"]) == ("undetermined", None)
    (trigger,) = [item for item in findings if item["role"] == "trigger"]
    assert "silent for 15 min" in trigger["explanation"]
    assert trigger["would_settle"]
    assert any("Loading safetensors" in proof["text"] for proof in trigger["evidence"])


@pytest.mark.parametrize(
    "pod",
    [unready_pod("2026-11-30T06:45:00Z", ready=True), unready_pod("2026-11-30T06:45:00Z", ready=None)],
    ids=["ready", "unknown"],
)
def test_one_that_is_ready_or_of_which_it_isnt_known_is_left_alone(pod):
    verdict, _findings = verdict_of(pod)
    assert verdict["sentence"].startswith("Nothing failed in what could be read.")


def test_a_straggling_line_of_the_start_does_not_undo_serving():
    """Seen on a kubelet: 'Application startup complete.' (stdout) before 'init engine ... took' (stderr)."""
    log = quiet("Engine core proc died")
    log["markers"] = [
        documents.line(number, phase, phase=phase, marker="test")
        for number, phase in enumerate(("load", "profile", "graph_capture", "serving", "warmup"), 1)
    ]
    pod = pod_with([attempt(reason="OOMKilled", exit_code=137, log=log)], limits={"memory": "64Gi"})
    verdict, _findings = verdict_of(pod)
    assert (verdict["cause"], verdict["phase"]) == ("host_oom_growth", "serving")


def created_never(reason, message):
    event = documents.event(reason, message, "Warning", "Pod/vllm-0", last_at=NOW)
    waiting = attempt(0, "waiting", reason="ContainerCreating")
    return pod_with([waiting], pod_phase="Pending", events=[event])


def test_a_pod_whose_sandbox_cannot_be_made_never_started():
    words = 'failed to setup network for sandbox "9f1": failed to find network info'
    verdict, findings = verdict_of(created_never("FailedCreatePodSandBox", words))
    assert (verdict["cause"], verdict["is_memory"]) == ("start_error", False)
    assert words in findings[0]["evidence"][0]["text"]


def test_a_pod_that_is_being_created_without_complaints_is_left_alone():
    verdict, _findings = verdict_of(created_never("Pulled", "Container image is already present"))
    assert verdict["cause"] is None


def test_a_container_that_never_starts_hides_nothing_and_raises_no_request_above_its_limit():
    message = 'failed to create containerd task: exec: "--model": executable file not found in $PATH'
    broken = attempt(2, reason="StartError", exit_code=128, message=message)
    pod = pod_with(
        [broken], limits={"memory": "300Mi"}, settings={"model": "meta-llama/Llama-3.1-8B-Instruct"}
    )
    pod["containers"][0].update(
        restart_count=3, resources={"requests": {"memory": "32Mi"}, "limits": {"memory": "300Mi"}}
    )
    _verdict, findings = verdict_of(pod)
    assert findings[0]["cause"] == "start_error"
    assert "Not seen" not in findings[0]["explanation"]
    changed = {change["name"] for item in findings for change in item["recommend"]}
    assert not changed & {"resources.limits.memory", "resources.requests.memory"}


def test_a_port_in_use_is_no_memory():
    line = "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
    pod = pod_with([attempt(reason="Error", exit_code=1, log=excerpt([line]))])
    verdict, _findings = verdict_of(pod)
    assert (verdict["cause"], verdict["is_memory"]) == ("not_memory_config", False)


@pytest.mark.parametrize(
    ("version", "file"), [(1, "memory/memory.oom_control"), (2, "memory.events"), (None, "memory.events")]
)
def test_the_counters_are_shown_where_that_cgroup_version_has_them(version, file):
    counters = documents.cgroup(version)
    counters["memory"]["oom_kills"] = 1
    running = attempt(
        state="running", started_at=STARTED, log=quiet("Application startup complete."), cgroup=counters
    )
    _verdict, findings = verdict_of(pod_with([running], limits={"memory": "64Gi"}))
    assert any(f"cat /sys/fs/cgroup/{file} " in command for command in findings[0]["check"])


@pytest.mark.parametrize("state", ["terminated", "waiting", "running"])
def test_of_runs_that_settle_nothing_the_one_whose_log_is_left_is_quoted(state):
    """The kubelet has removed the older dead container already; the newer one's log is there."""
    gone = attempt(0, reason="Error", exit_code=1, log=documents.log(readable=False))
    left = attempt(1, state, log=excerpt(["ValueError: something that nobody has seen before"]))
    if state == "terminated":
        left.update(reason="Error", exit_code=1)
    verdict, findings = verdict_of(pod_with([gone, left]))
    assert verdict["cause"] == "undetermined"
    assert any("nobody has seen before" in proof["text"] for proof in findings[0]["evidence"])
    assert "no log of the failing run could be read" not in findings[0]["explanation"]
