# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes on around a pod: messages as Kubernetes words them (shared facts "kubernetes-gpu-facts" 1.5, 1.6, 2, 6.4, 8.8, 9)."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import around_pod

DEPLOYMENT = documents.workload("Deployment", "vllm", "apps/v1", edit={"kind": "Deployment", "name": "vllm"})


def make_pod(attempts=(), env=(), limits=None, **more):
    container = documents.container(
        "vllm",
        engine=documents.engine(),
        image="vllm/vllm-openai:v0.11.0",
        env=list(env),
        resources={"requests": {}, "limits": {"memory": "64Gi"} if limits is None else limits},
        attempts=list(attempts),
    )
    fields = {"uid": "u", "node": "n1", "containers": [container], "workload": DEPLOYMENT}
    return documents.pod("llm", "vllm-0", **dict(fields, **more))


def only(cause, findings):
    return [item for item in findings if item["cause"] == cause]


def names(changes):
    return [(item["name"], item["direction"]) for item in changes]


def test_a_pod_in_peace_gives_nothing():
    quiet = make_pod([documents.attempt(0, "running")], conditions=[{"type": "Ready", "status": "True"}])
    node = documents.node(
        capacity={"nvidia.com/gpu": "8"},
        allocatable={"nvidia.com/gpu": "8"},
        conditions=[{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "False"}],
    )
    assert around_pod.surrounding_findings(quiet, {"quotas": [], "limit_ranges": []}, node) == []
    assert around_pod.surrounding_findings(quiet) == []


# -- eviction


@pytest.mark.parametrize(
    ("message", "memory", "recommended", "value"),
    [
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 73180Ki. Container vllm was "
            "using 61234Mi, request is 0, has larger consumption of memory. ",
            "node",
            ("resources.requests.memory", "increase"),
            "66Gi",
        ),
        (
            "The node had condition: [MemoryPressure]. ",
            "node",
            ("resources.requests.memory", "increase"),
            "64Gi",
        ),
        ("The node was low on resource: ephemeral-storage. ", "none", ("use_volume", "set"), None),
        ("The node was low on resource: inodes. ", "none", ("use_volume", "set"), None),
        (
            'Usage of EmptyDir volume "cache" exceeds the limit "10Gi". ',
            "none",
            ("volumes.cache.sizeLimit", "increase"),
            None,
        ),
        (
            'Container vllm exceeded its local ephemeral storage limit "20Gi". ',
            "none",
            ("use_volume", "set"),
            None,
        ),
        (
            "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi. ",
            "none",
            ("use_volume", "set"),
            None,
        ),
        ("The node was low on resource: pids. ", "none", ("raise_pids_limit", "set"), None),
    ],
)
def test_eviction(message, memory, recommended, value):
    (found,) = only("eviction", around_pod.surrounding_findings(make_pod(reason="Evicted", message=message)))
    assert (found["memory"], found["role"], found["confidence"]) == (memory, "trigger", "certain")
    assert names(found["recommend"])[0] == recommended
    assert found["recommend"][0]["value"] == value


def test_an_eviction_without_its_message_says_what_is_missing():
    (found,) = only("eviction", around_pod.surrounding_findings(make_pod(reason="Evicted")))
    assert found["memory"] == "unknown"
    assert found["would_settle"]


def test_a_full_disk_is_never_answered_with_memory():
    pod = make_pod(
        reason="Evicted",
        message="The node was low on resource: ephemeral-storage. ",
        env=[{"name": "LMCACHE_MAX_LOCAL_DISK_SIZE", "value": "640", "from": None}],
    )
    (found,) = only("eviction", around_pod.surrounding_findings(pod))
    assert names(found["recommend"])[0] == ("LMCACHE_MAX_LOCAL_DISK_SIZE", "decrease")
    assert ("resources.limits.memory", "increase") in names(found["rejected"])
    assert not [item for item in found["recommend"] if "memory" in item["name"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"events": [documents.event("Evicted", "The node was low on resource: memory. ")]},
        {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "TerminationByKubelet",
                    "message": "The node was low on resource: memory. ",
                }
            ]
        },
    ],
)
def test_an_eviction_is_seen_by_event_or_condition_too(fields):
    (found,) = only("eviction", around_pod.surrounding_findings(make_pod(**fields)))
    assert found["memory"] == "node"


# -- admission


@pytest.mark.parametrize(
    ("message", "words", "change"),
    [
        (
            'pods "vllm-1" is forbidden: failed quota: gpu: must specify limits.cpu for: vllm',
            "ResourceQuota gpu demands that every container states limits.cpu",
            ("resources.limits.cpu", "add"),
        ),
        (
            'pods "vllm-1" is forbidden: failed quota: gpu: must specify limits.cpu,limits.memory',
            "limits.cpu,limits.memory",
            ("resources.limits.cpu", "add"),
        ),
        (
            'pods "vllm-1" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=4, used: '
            "requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=8",
            "ResourceQuota gpu has no room: requests.nvidia.com/gpu=4 asked",
            ("fix_spec", "set"),
        ),
        (
            'pods "vllm-1" is forbidden: maximum memory usage per Container is 32Gi, but limit is 64Gi',
            "LimitRange of the namespace sets a maximum memory of 32Gi",
            ("fix_spec", "set"),
        ),
        (
            'admission webhook "validate.kyverno.svc-fail" denied the request: require-limits',
            "webhook validate.kyverno.svc-fail refuses",
            ("fix_spec", "set"),
        ),
        (
            'pods "vllm-1" is forbidden: violates PodSecurity "restricted:latest": host namespaces',
            "Pod Security level restricted:latest",
            ("fix_spec", "set"),
        ),
    ],
)
def test_pods_that_a_namespace_refuses(message, words, change):
    event = documents.event("FailedCreate", message, "Warning", "ReplicaSet/vllm-7d9", 12)
    (found,) = only("admission_rejected", around_pod.surrounding_findings(make_pod(events=[event])))
    assert words in found["explanation"]
    assert names(found["recommend"])[0] == change
    assert found["memory"] == "none"
    assert "(x12)" in found["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("reason", "message", "words", "change"),
    [
        (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
            "Requested: 1, Available: 0, which is unexpected",
            "race, not memory",
            "recreate_pod",
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu",
            "unhealthy",
            "reset_gpu",
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: maximum "
            "request size for shared resources is 1, which is unexpected",
            "time-slicing: more than 1",
            "resources.limits.nvidia.com/gpu",
        ),
        (
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
            "NUMA",
            "resources.requests.cpu",
        ),
        (
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 68719476736, used: 400, capacity: 540",
            "not enough memory",
            "move_pod",
        ),
        (
            "OutOfnvidia.com/gpu",
            "Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 7, capacity: 8",
            "not enough nvidia.com/gpu",
            "move_pod",
        ),
    ],
)
def test_pods_that_a_kubelet_refuses(reason, message, words, change):
    findings = around_pod.surrounding_findings(make_pod(reason=reason, message=message, pod_phase="Failed"))
    (found,) = only("admission_rejected", findings)
    assert words in found["explanation"]
    assert found["recommend"][0]["name"] == change


def test_a_controllers_other_failures_are_no_refusal():
    event = documents.event("FailedCreate", "Error creating: etcdserver: request timed out")
    assert around_pod.surrounding_findings(make_pod(events=[event])) == []


def test_the_same_refusal_counts_once():
    text = 'pods "x" is forbidden: exceeded quota: gpu, requested: a=1, used: a=1, limited: a=1'
    events = [documents.event("FailedCreate", text), documents.event("FailedCreate", text)]
    assert len(only("admission_rejected", around_pod.surrounding_findings(make_pod(events=events)))) == 1


# -- scheduling


@pytest.mark.parametrize(
    ("message", "words", "change", "value"),
    [
        (
            "0/7 nodes are available: 3 Insufficient nvidia.com/gpu, 4 node(s) didn't match Pod's node affinity/selector. "
            "preemption: 0/7 nodes are available: 3 No preemption victims found for incoming pod.",
            "no node has enough free nvidia.com/gpu; no node matches",
            "free_gpu",
            None,
        ),
        ("0/3 nodes are available: 3 Insufficient amd.com/gpu.", "free amd.com/gpu", "free_gpu", None),
        ("0/3 nodes are available: 3 Insufficient memory.", "host memory", "resources.requests.memory", None),
        ("0/3 nodes are available: 3 Insufficient cpu.", "unreserved CPU", "resources.requests.cpu", None),
        ("0/3 nodes are available: 3 Insufficient ephemeral-storage.", "disk", "use_volume", None),
        (
            "0/3 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}.",
            "taint nvidia.com/gpu",
            "fix_spec",
            None,
        ),
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            "volume",
            "fix_spec",
            None,
        ),
    ],
)
def test_no_node_has_room(message, words, change, value):
    pod = make_pod(node=None, events=[documents.event("FailedScheduling", message)])
    (found,) = only("unschedulable", around_pod.surrounding_findings(pod))
    assert words in found["explanation"]
    assert (found["recommend"][0]["name"], found["recommend"][0]["value"]) == (change, value)
    assert ("--gpu-memory-utilization", "decrease") in names(found["rejected"])


def test_a_surge_without_a_spare_gpu_is_a_deployments_matter():
    event = documents.event("FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    (found,) = around_pod.surrounding_findings(make_pod(node=None, events=[event]))
    assert ("strategy", "set") in names(found["recommend"])
    stateful = documents.workload("StatefulSet", "vllm", "apps/v1")
    (found,) = around_pod.surrounding_findings(make_pod(node=None, events=[event], workload=stateful))
    assert ("strategy", "set") not in names(found["recommend"])


def test_a_condition_says_it_after_the_events_are_gone():
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "3 Insufficient memory.",
    }
    (found,) = around_pod.surrounding_findings(make_pod(node=None, conditions=[condition]))
    assert found["cause"] == "unschedulable"


def test_a_gate_is_named():
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": None}
    (found,) = around_pod.surrounding_findings(make_pod(node=None, conditions=[condition]))
    assert "Kueue" in found["explanation"]


def test_a_pod_that_was_placed_later_is_not_unschedulable():
    event = documents.event("FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    assert around_pod.surrounding_findings(make_pod(node="n1", events=[event])) == []


# -- containers that never started


@pytest.mark.parametrize(
    ("state", "reason", "exit_code", "message", "memory", "change"),
    [
        (
            "terminated",
            "StartError",
            128,
            "failed to create containerd task: OCI runtime create failed: container init was OOM-killed (memory limit too low?)",
            "host",
            "resources.limits.memory",
        ),
        (
            "terminated",
            "StartError",
            128,
            "error running hook #0: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8",
            "none",
            "match_driver",
        ),
        (
            "waiting",
            "RunContainerError",
            None,
            'exec: "vllm": executable file not found in $PATH',
            "none",
            "fix_spec",
        ),
        (
            "waiting",
            "ImagePullBackOff",
            None,
            'Back-off pulling image "vllm/vllm-openai:v9"',
            "none",
            "fix_spec",
        ),
        ("waiting", "CreateContainerConfigError", None, 'secret "hf-token" not found', "none", "fix_spec"),
        ("terminated", "ContainerCannotRun", 127, "something new", "none", "fix_spec"),
    ],
)
def test_a_container_that_never_started(state, reason, exit_code, message, memory, change):
    attempt = documents.attempt(0, state, reason=reason, exit_code=exit_code, message=message)
    (found,) = around_pod.surrounding_findings(make_pod([attempt]))
    assert (found["cause"], found["memory"], found["container"]) == ("start_error", memory, "vllm")
    assert found["recommend"][0]["name"] == change
    assert message[:30] in found["evidence"][0]["text"]


def test_a_crash_loop_is_no_start_error():
    waiting = documents.attempt(1, "waiting", reason="CrashLoopBackOff")
    assert (
        around_pod.surrounding_findings(make_pod([documents.attempt(0, "terminated", exit_code=1), waiting]))
        == []
    )


def test_a_start_error_before_the_back_off_still_counts():
    failed = documents.attempt(
        0, "terminated", reason="StartError", exit_code=128, message="no such file or directory"
    )
    waiting = documents.attempt(1, "waiting", reason="CrashLoopBackOff")
    (found,) = around_pod.surrounding_findings(make_pod([failed, waiting]))
    assert (found["cause"], found["attempt"]) == ("start_error", 0)


# -- node and status


@pytest.mark.parametrize(
    ("reason", "exit_code", "made_up"), [("ContainerStatusUnknown", 137, "137"), ("Unknown", 255, "255")]
)
def test_a_lost_containers_exit_code_is_made_up(reason, exit_code, made_up):
    attempt = documents.attempt(0, "terminated", reason=reason, exit_code=exit_code)
    (found,) = around_pod.surrounding_findings(make_pod([attempt]))
    assert found["cause"] == "status_unknown"
    assert f"exit code {made_up}" in found["explanation"]


def test_a_node_that_went_down_under_a_pod_without_limit():
    node = documents.node(
        conditions=[
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
            }
        ]
    )
    (found,) = around_pod.surrounding_findings(make_pod(limits={"nvidia.com/gpu": "1"}), None, node)
    assert (found["cause"], found["memory"], found["confidence"]) == ("node_oom", "node", "likely")
    assert names(found["recommend"])[0] == ("resources.limits.memory", "add")
    (found,) = around_pod.surrounding_findings(make_pod(), None, node)
    assert (found["cause"], found["memory"], found["role"]) == ("status_unknown", "unknown", "trigger")


@pytest.mark.parametrize(
    ("node", "memory", "change"),
    [
        (
            {
                "conditions": [
                    {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"}
                ]
            },
            "node",
            "resources.requests.memory",
        ),
        ({"conditions": [{"type": "DiskPressure", "status": "True"}]}, "none", "use_volume"),
        ({"conditions": [{"type": "PIDPressure", "status": "True"}]}, "none", "raise_pids_limit"),
        (
            {
                "events": [
                    documents.event("NodeHasMemoryPressure", "Node n1 status is now: NodeHasMemoryPressure")
                ]
            },
            "node",
            "resources.requests.memory",
        ),
        (
            {"events": [documents.event("SystemOOM", "System OOM encountered, victim process: x, pid: 1")]},
            "node",
            "resources.requests.memory",
        ),
        (
            {"events": [documents.event("EvictionThresholdMet", "Attempting to reclaim ephemeral-storage")]},
            "none",
            "use_volume",
        ),
    ],
)
def test_node_pressure(node, memory, change):
    (found,) = around_pod.surrounding_findings(make_pod(), None, documents.node(**node))
    assert (found["cause"], found["memory"], found["role"]) == ("node_pressure", memory, "contributing")
    assert found["recommend"][0]["name"] == change
    assert found["check"] == ["kubectl describe node n1"]
    assert f"The node {'is' if 'conditions' in node else 'was'} short of" in found["explanation"]


@pytest.mark.parametrize(("at", "counts"), [("2026-11-30T06:00:00Z", False), ("2026-11-30T07:02:00Z", True)])
def test_a_nodes_trouble_before_the_pods_first_run_is_not_its_own(at, counts):
    run = documents.attempt(0, "terminated", started_at="2026-11-30T07:00:00Z")
    oom = documents.event("SystemOOM", "System OOM encountered, victim process: x, pid: 1", last_at=at)
    found = around_pod.surrounding_findings(make_pod([run]), None, documents.node(events=[oom]))
    assert bool(only("node_pressure", found)) is counts


def test_a_request_near_the_limit_is_not_raised():
    pod = make_pod()
    pod["containers"][0]["resources"]["requests"] = {"memory": "48Gi"}
    node = documents.node(conditions=[{"type": "MemoryPressure", "status": "True"}])
    (found,) = around_pod.surrounding_findings(pod, None, node)
    assert names(found["recommend"]) == [("reserve_node_memory", "set")]
    assert found["evidence"][0]["object"] == "Node/n1"


# -- GPU health


@pytest.mark.parametrize(
    ("line", "confidence"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "certain"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=812, name=python3, DBE at 0x1", "certain"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 95, pid='<unknown>', name=<unknown>, Uncontained", "certain"),
        (
            "NVRM: Xid (PCI:0000:3b:00): 119, pid=812, name=python3, Timeout waiting for RPC from GSP!",
            "likely",
        ),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08", "possible"),
    ],
)
def test_hardware_xids(line, confidence):
    (found,) = around_pod.surrounding_findings(make_pod(), None, documents.node(xids=[line]))
    assert (found["cause"], found["confidence"], found["memory"]) == (
        "gpu_hardware_fault",
        confidence,
        "none",
    )
    assert found["evidence"][0]["text"] == line


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 109, 154])
def test_xids_of_programs_and_notices_are_no_fault(code):
    node = documents.node(xids=[{"code": code, "text": f"Xid {code}"}])
    assert around_pod.surrounding_findings(make_pod(), None, node) == []


def test_devices_out_of_service():
    node = documents.node(capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "7"})
    (found,) = around_pod.surrounding_findings(make_pod(), None, node)
    assert found["confidence"] == "likely"
    assert "1 of 8 nvidia.com/gpu out of service" in found["explanation"]


def test_reserved_host_memory_is_no_device_out_of_service():
    node = documents.node(
        capacity={"memory": "100Gi", "cpu": "8"}, allocatable={"memory": "90Gi", "cpu": "7"}
    )
    assert around_pod.surrounding_findings(make_pod(), None, node) == []


def test_an_unhealthy_device_of_this_container():
    pod = make_pod()
    pod["containers"][0]["device_health"] = [
        {"resource": "nvidia.com/gpu", "id": "GPU-1", "health": "Unhealthy"}
    ]
    (found,) = around_pod.surrounding_findings(pod)
    assert (found["cause"], found["confidence"]) == ("gpu_hardware_fault", "certain")


# -- what every finding holds


def test_every_change_tells_how_and_every_finding_how_to_look():
    event = documents.event("FailedScheduling", "0/3 nodes are available: 3 Insufficient memory.")
    for pod, node in (
        (make_pod(reason="Evicted", message="The node was low on resource: memory. "), None),
        (make_pod(node=None, events=[event]), None),
        (make_pod(), documents.node(conditions=[{"type": "MemoryPressure", "status": "True"}])),
    ):
        (found,) = around_pod.surrounding_findings(pod, None, node)
        assert any(command.startswith("kubectl") for command in found["check"])
        resources = [item for item in found["recommend"] if item["target"] == "k8s"]
        assert resources
        assert all("deployment/vllm" in item["command"] and "-n llm" in item["command"] for item in resources)
