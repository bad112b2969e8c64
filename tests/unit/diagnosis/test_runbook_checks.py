# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook's own checks: memory limit against the table, ratio, CPU limit, /dev/shm, unused room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import (
    checked,
    cpu_checks,
    headroom_checks,
    runbook_checks,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import host

GIB = 1 << 30
MIB = 1 << 20


def settings(**values):
    return {name: {"value": value, "from": "arg", "line": None} for name, value in values.items()}


def make(
    model="Qwen/Qwen3-8B",
    limits=None,
    requests=None,
    version="0.11.0",
    accelerator="cuda",
    options=None,
    env=(),
    attempts=(),
    mounts=(),
    **pod_fields,
):
    """(pod, container): an 8B model with 24Gi of memory and no CPU limit, unless told otherwise."""
    container = documents.container(
        "vllm",
        engine=documents.engine(version, "image", accelerator=accelerator),
        image="vllm/vllm-openai",
        resources={
            "requests": {"memory": "18Gi", "cpu": "8"} if requests is None else requests,
            "limits": {"memory": "24Gi", "nvidia.com/gpu": "1"} if limits is None else limits,
        },
        settings=settings(model=model, **(options or {})),
        env=list(env),
        attempts=list(attempts),
        mounts=list(mounts),
    )
    deployment = documents.workload(
        "Deployment", "vllm", "apps/v1", edit={"kind": "Deployment", "name": "vllm"}
    )
    fields = {"uid": "u", "node": "n1", "qos": "Burstable", "workload": deployment, "containers": [container]}
    return documents.pod("llm", "vllm-0", **dict(fields, **pod_fields)), container


def findings(node=None, namespace=None, **arguments):
    pod, container = make(**arguments)
    return runbook_checks.runbook_findings(pod, container, node, namespace)


def causes(**arguments):
    return [item["cause"] for item in findings(**arguments)]


def only(cause, found):
    (item,) = [entry for entry in found if entry["cause"] == cause]
    return item


def changes(item, field="recommend"):
    return {(entry["name"], entry["direction"]): entry["value"] for entry in item[field]}


def test_a_well_set_container_gives_nothing():
    assert causes() == []


def test_a_container_that_is_no_engine_is_not_checked():
    pod, container = make(limits={"cpu": "1"})
    container["engine"] = None
    assert runbook_checks.runbook_findings(pod, container) == []
    assert runbook_checks.runbook_notes(pod, container) == []


# -- the memory table


@pytest.mark.parametrize(
    ("billions", "low", "high"),
    [(8, 16, 24), (13, 24, 32), (70, 48, 64), (10.5, 20, 28), (41.5, 36, 48)],
)
def test_the_runbooks_table(billions, low, high):
    assert host.table_bounds(billions) == (low * GIB, high * GIB)


@pytest.mark.parametrize("billions", [None, 0.5, 7.5, 73.6, 671])
def test_outside_the_table_it_says_nothing(billions):
    assert host.table_bounds(billions) is None


@given(st.floats(8, 70), st.floats(8, 70))
def test_a_larger_model_never_needs_less(one, other):
    smaller, larger = sorted((one, other))
    low, high = host.table_bounds(smaller), host.table_bounds(larger)
    assert low[0] <= high[0]
    assert low[1] <= high[1]
    assert low[0] < low[1]


@pytest.mark.parametrize(
    ("model", "limit", "expected"),
    [
        ("Qwen/Qwen3-8B", "15Gi", ["memory_limit_low"]),
        ("Qwen/Qwen3-8B", "16Gi", []),
        ("Qwen/Qwen3-8B", "24Gi", []),
        ("Qwen/Qwen3-8B", "512Gi", []),
        ("meta-llama/Llama-2-13b-chat-hf", "20Gi", ["memory_limit_low"]),
        ("meta-llama/Llama-3.1-70B-Instruct", "32Gi", ["memory_limit_low"]),
        ("meta-llama/Llama-3.1-70B-Instruct", "48Gi", []),
        # outside the table: only what the processes need
        ("Qwen/Qwen3-0.6B", "4Gi", []),
        ("Qwen/Qwen3-0.6B", "1Gi", ["memory_limit_low"]),
        ("deepseek-ai/DeepSeek-R1", "48Gi", []),
        ("my-model", "8Gi", []),
    ],
)
def test_the_limit_against_the_table(model, limit, expected):
    assert causes(model=model, limits={"memory": limit}, requests={"memory": limit}) == expected


def test_a_low_limit_says_what_to_set():
    found = only("memory_limit_low", findings(limits={"memory": "8Gi"}, requests={"memory": "8Gi"}))
    assert (found["role"], found["memory"], found["confidence"]) == ("risk", "host", "likely")
    assert changes(found) == {
        ("resources.limits.memory", "increase"): "24Gi",
        ("resources.requests.memory", "set"): "18Gi",
    }
    assert "set resources deployment/vllm -c vllm --limits=memory=24Gi" in found["recommend"][0]["command"]
    assert ("--gpu-memory-utilization", "decrease") in changes(found, "rejected")
    assert found["runbook"]


@pytest.mark.parametrize(
    ("options", "version", "needed", "named"),
    [
        ({"cpu_offload_gb": 10}, "0.11.0", 26, "cpu_offload_gb"),
        ({"swap_space": 4}, "0.7.3", 20, "swap_space"),
        ({"swap_space": 4}, "0.11.0", 16, None),  # V1 allocates none
        ({"kv_offloading_size": 20}, "0.11.0", 36, "kv_offloading_size"),
        ({"mm_processor_cache_gb": 4}, "0.11.0", 24, "mm_processor_cache_gb"),
    ],
)
def test_pools_that_the_settings_ask_for_come_on_top(options, version, needed, named):
    def with_limit(gib):
        size = {"memory": f"{gib}Gi"}
        return findings(options=options, version=version, limits=size, requests=size)

    assert [item["cause"] for item in with_limit(needed)] == []
    found = only("memory_limit_low", with_limit(needed - 1))
    assert (named is None) or (checked.option(named), "decrease") in changes(found)


def test_offload_pools_are_counted_per_worker():
    limits = {"memory": "48Gi", "nvidia.com/gpu": "4"}
    found = only(
        "memory_limit_low",
        findings(
            options={"cpu_offload_gb": 10, "tensor_parallel_size": 4},
            limits=limits,
            requests=limits,
            shm=BIG_SHM,
        ),
    )
    assert "40.00 GiB for cpu_offload_gb" in found["evidence"][0]["text"]
    assert "3 more worker processes" in found["evidence"][0]["text"]


def test_sleep_mode_counts_the_weights_that_the_log_measured():
    excerpt = documents.log()
    excerpt["numbers"] = [
        documents.line(3, "Model loading took", name="weights", value=15 * GIB, unit="bytes", rank=None)
    ]
    attempts = [documents.attempt(0, "terminated", log=excerpt)]
    size = {"memory": "24Gi"}
    assert causes(limits=size, requests=size, attempts=attempts) == []
    found = only(
        "memory_limit_low",
        findings(limits=size, requests=size, attempts=attempts, options={"enable_sleep_mode": True}),
    )
    assert "15.00 GiB for enable_sleep_mode" in found["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("version", "env", "limit", "expected"),
    [
        ("0.12.0", {}, "19Gi", ["memory_limit_low"]),  # 14.9 weights + 4 KV by default + 1
        ("0.12.0", {}, "24Gi", []),
        ("0.12.0", {"VLLM_CPU_KVCACHE_SPACE": "40"}, "48Gi", ["memory_limit_low"]),
        ("0.12.0", {"VLLM_CPU_KVCACHE_SPACE": "40"}, "64Gi", []),
    ],
)
def test_on_the_cpu_backend_weights_and_kv_are_host_memory(version, env, limit, expected):
    env = [
        {"name": name, "value": value, "from": None}
        for name, value in {**env, "OMP_NUM_THREADS": "8"}.items()
    ]
    size = {"memory": limit}
    assert causes(version=version, accelerator="cpu", env=env, limits=size, requests=size) == expected


@pytest.mark.parametrize(
    ("version", "env", "value"),
    [
        ("0.13.0", None, 46),  # 64 - 14.9 weights - 3
        ("0.23.0", None, 46),
        ("0.24.0", None, None),
        ("0.13.0", "20", None),
    ],
)
def test_a_cpu_backend_that_does_not_see_its_limit(version, env, value):
    variables = [("OMP_NUM_THREADS", "8"), ("VLLM_CPU_KVCACHE_SPACE", env)]
    env = [{"name": name, "value": given, "from": None} for name, given in variables if given]
    size = {"memory": "64Gi"}
    found = findings(version=version, accelerator="cpu", env=env, limits=size, requests=size)
    advised = [
        item["value"]
        for entry in found
        for item in entry["recommend"]
        if item["name"] == "VLLM_CPU_KVCACHE_SPACE"
    ]
    assert advised == ([value] if value else [])


def counters(**values):
    cgroup = documents.cgroup(2)
    cgroup["memory"].update({name: value for name, value in values.items() if name in cgroup["memory"]})
    cgroup["cpu"].update({name: value for name, value in values.items() if name in cgroup["cpu"]})
    cgroup["cpuset"] = values.get("cpuset")
    return cgroup


def serving(stats=(), **values):
    excerpt = documents.log(complete=True)
    excerpt["markers"] = [documents.line(1, "Application startup complete.", phase="serving")]
    excerpt["tail"] = [documents.line(number, text) for number, text in enumerate(stats, 2)]
    return documents.attempt(0, "running", log=excerpt, cgroup=counters(**values))


def test_a_measured_start_beats_the_table():
    size = {"memory": "12Gi"}
    low = {"limits": size, "requests": size}
    assert causes(attempts=[serving(peak=8 * GIB)], **low) == []
    assert causes(attempts=[serving(peak=11 * GIB)], **low) == ["memory_limit_low"]
    # a peak at the limit may be page cache: it speaks neither way
    assert causes(attempts=[serving(peak=12 * GIB)], **low) == ["memory_limit_low"]


def test_memory_that_cannot_be_reclaimed_near_the_limit_beats_the_table_too():
    found = only(
        "memory_limit_low", findings(attempts=[serving(anon=15 * GIB, shmem=8 * GIB, peak=24 * GIB)])
    )
    assert found["confidence"] == "certain"
    assert changes(found)[("resources.limits.memory", "increase")] == "31Gi"
    assert causes(attempts=[serving(anon=22 * GIB, shmem=0, peak=24 * GIB)]) == ["memory_limit_low"]
    assert causes(attempts=[serving(anon=21 * GIB, shmem=0, peak=24 * GIB)]) == []
    assert causes(attempts=[serving(anon=4 * GIB, shmem=0, file=20 * GIB, peak=24 * GIB)]) == []


def test_no_memory_limit():
    found = only("memory_limit_missing", findings(limits={"nvidia.com/gpu": "1"}))
    assert changes(found)[("resources.limits.memory", "add")] == "24Gi"
    found = only("memory_limit_missing", findings(model="my-model", limits={"nvidia.com/gpu": "1"}))
    assert changes(found) == {("resources.limits.memory", "add"): None}


def test_a_limit_that_cannot_be_read_is_not_missing():
    found = findings(limits={"memory": "48GiB"}, requests={}, file="deploy.yaml")
    assert [item["cause"] for item in found] == ["admission_rejected"]
    assert "can't be read" in found[0]["explanation"]
    assert changes(found[0]) == {("resources.limits.memory", "set"): "48Gi"}


QUOTA = {"quotas": [{"name": "gpus", "hard": {"requests.nvidia.com/gpu": "1"}, "scopes": []}]}
RANGE = {"limit_ranges": [{"name": "small", "limits": [{"type": "Container", "max": {"memory": "16Gi"}}]}]}


@pytest.mark.parametrize(
    ("namespace", "gpus", "words"),
    [
        (QUOTA, "2", "ResourceQuota/gpus allows 1"),
        (QUOTA, "1", None),
        (RANGE, "1", "LimitRange/small allows 16Gi"),
        ({"quotas": [dict(QUOTA["quotas"][0], scopes=["Terminating"])]}, "2", None),
        ({"quotas": [{"name": "mem", "hard": {"limits.memory": "20Gi"}}]}, "1", "24.00 GiB of limits.memory"),
    ],
)
def test_what_a_namespace_refuses_is_a_risk_of_a_manifest(namespace, gpus, words):
    limits = {"memory": "24Gi", "nvidia.com/gpu": gpus}
    found = findings(namespace=namespace, limits=limits, file="deploy.yaml")
    refused = [item["evidence"][0]["text"] for item in found if item["cause"] == "admission_rejected"]
    assert len(refused) == bool(words)
    assert all(words in text for text in refused)
    # A pod that exists was admitted.
    assert "admission_rejected" not in [
        item["cause"] for item in findings(namespace=namespace, limits=limits)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "LimitRanger plugin set: cpu, memory request for container vllm; memory limit for container vllm",
            True,
        ),
        ("LimitRanger plugin set: memory limit for container vllm-proxy", False),
        ("LimitRanger plugin set: memory request for container vllm", False),
    ],
)
def test_a_limit_that_a_limit_range_has_set_is_said(text, said):
    found = findings(limits={"memory": "4Gi"}, mutations=[{"tool": "LimitRange", "text": text}])
    shown = only("memory_limit_low", found)["evidence"][0]["text"]
    assert ("the default of a LimitRange" in shown) == said


def test_a_pod_level_limit_is_a_limit():
    limits = {"nvidia.com/gpu": "1"}
    assert "memory_limit_missing" not in causes(limits=limits, pod_resources={"limits": {"memory": "24Gi"}})


def test_a_plain_log_says_nothing_about_limits():
    pod, container = make(limits={}, requests={}, qos=None, uid=None, options={"tensor_parallel_size": 4})
    assert runbook_checks.runbook_findings(pod, container) == []


@pytest.mark.parametrize(
    ("request_", "limit", "flagged"),
    [
        ("48Gi", "64Gi", False),
        ("64Gi", "64Gi", False),
        ("16Gi", "64Gi", True),
        (None, "64Gi", False),
        ("6G", "20G", True),
    ],
)
def test_the_ratio_of_request_and_limit(request_, limit, flagged):
    requests = {"memory": request_} if request_ else {"cpu": "8"}
    found = [
        item
        for item in findings(limits={"memory": limit}, requests=requests)
        if item["cause"] == "memory_ratio"
    ]
    assert bool(found) is flagged
    if limit == "64Gi" and found:
        assert changes(found[0]) == {("resources.requests.memory", "increase"): "48Gi"}


@pytest.mark.parametrize(("limit", "notes"), [("24Gi", 0), ("64Gi", 1), ("8Gi", 0)])
def test_a_generous_limit_is_a_note_and_no_finding(limit, notes):
    pod, container = make(limits={"memory": limit}, requests={"memory": limit})
    assert len(runbook_checks.runbook_notes(pod, container)) == notes


# -- CPU

CPU_LIMIT = {"memory": "24Gi", "cpu": "8"}
GUARANTEED = {"limits": CPU_LIMIT, "requests": CPU_LIMIT, "qos": "Guaranteed"}
REMOVE, KEEP = ("resources.limits.cpu", "remove"), ("resources.limits.cpu", "keep")


def test_a_cpu_limit_is_a_finding_and_the_request_stays():
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT))
    assert (found["role"], found["memory"], found["confidence"]) == ("risk", "none", "certain")
    assert changes(found) == {REMOVE: None}
    assert ("resources.requests.cpu", "remove") in changes(found, "rejected")
    assert '"limits": {"cpu": null}' in found["recommend"][0]["command"]


def test_a_request_that_was_a_copy_of_the_limit_must_be_stated():
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, requests={"memory": "18Gi"}))
    assert changes(found)[("resources.requests.cpu", "set")] == "8"


@pytest.mark.parametrize(
    ("periods", "throttled", "cause", "role", "words"),
    [
        (10000, 9900, "cpu_throttling", "contributing", "99% of its periods"),
        (10000, 2500, "cpu_throttling", "contributing", "25% of its periods"),
        (10000, 500, "cpu_limit_set", "risk", "5% of the periods"),
        (10000, 0, "cpu_limit_set", "risk", "0% of the periods"),
        (50, 50, "cpu_limit_set", "risk", "then starve the GPU."),  # too few to say
        (None, None, "cpu_limit_set", "risk", "then starve the GPU."),
    ],
)
def test_throttling_is_measured_not_guessed(periods, throttled, cause, role, words):
    attempts = [serving(periods=periods, throttled=throttled, throttled_seconds=12.0, peak=8 * GIB)]
    (found,) = findings(limits=CPU_LIMIT, attempts=attempts)
    assert (found["cause"], found["role"]) == (cause, role)
    assert words in found["explanation"]


@pytest.mark.parametrize(
    ("arguments", "node", "advice", "confidence"),
    [
        # Guaranteed, whole CPUs, policy unknown
        (GUARANTEED, {}, KEEP, "possible"),
        # policy known
        (GUARANTEED, {"kubelet": {"cpu_manager_policy": "none"}}, REMOVE, "certain"),
        (GUARANTEED, {"kubelet": {"cpu_manager_policy": "static"}}, None, None),
        # not the exception: fractional, unequal, not Guaranteed
        (
            dict(GUARANTEED, limits=dict(CPU_LIMIT, cpu="7500m"), requests=dict(CPU_LIMIT, cpu="7500m")),
            {},
            REMOVE,
            "certain",
        ),
        (dict(GUARANTEED, qos="Burstable"), {}, REMOVE, "certain"),
        # a cpuset of just that size shows the policy
        (dict(GUARANTEED, attempts=[serving(cpuset="0-7")]), {"capacity": {"cpu": "64"}}, None, None),
        (dict(GUARANTEED, attempts=[serving(cpuset="0-63")]), {"capacity": {"cpu": "64"}}, REMOVE, "certain"),
        (dict(GUARANTEED, attempts=[serving(cpuset="0-7")]), {"capacity": {"cpu": "8"}}, KEEP, "possible"),
    ],
)
def test_the_static_cpu_manager_is_the_exception(arguments, node, advice, confidence):
    found = [
        item
        for item in findings(node=documents.node(**node), **arguments)
        if item["cause"] in ("cpu_limit_set", "cpu_throttling")
    ]
    assert [item["confidence"] for item in found] == ([confidence] if confidence else [])
    if found:
        assert next(iter(changes(found[0]))) == advice
        assert bool(found[0]["would_settle"]) is (advice == KEEP)
        if advice == KEEP:
            assert any("configz" in text for text in found[0]["would_settle"])


def test_exclusive_cpus_that_are_throttled_all_the_same():
    attempts = [serving(periods=1000, throttled=900)]
    node = documents.node(kubelet={"cpu_manager_policy": "static"})
    found = only("cpu_throttling", findings(node=node, attempts=attempts, **GUARANTEED))
    assert list(changes(found)) == [("resources.limits.cpu", "increase")]
    assert REMOVE in changes(found, "rejected")


@pytest.mark.parametrize(
    ("namespace", "first"),
    [
        (
            {"quotas": [{"name": "gpu", "hard": {"limits.cpu": "64"}, "scopes": []}]},
            "resourcequota/gpu.limits.cpu",
        ),
        ({"quotas": [{"name": "gpu", "hard": {"requests.cpu": "64"}, "scopes": []}]}, None),
        ({"quotas": [{"name": "jobs", "hard": {"limits.cpu": "64"}, "scopes": ["Terminating"]}]}, None),
        (
            {"limit_ranges": [{"name": "lr", "limits": [{"type": "Container", "default": {"cpu": "1"}}]}]},
            "limitrange/lr.default.cpu",
        ),
        (
            {"limit_ranges": [{"name": "lr", "limits": [{"type": "Container", "max": {"cpu": "4"}}]}]},
            "limitrange/lr.max.cpu",
        ),
        (
            {
                "limit_ranges": [
                    {"name": "lr", "limits": [{"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}]}
                ]
            },
            None,
        ),
    ],
)
def test_what_demands_the_limit_is_changed_first(namespace, first):
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, namespace=namespace))
    order = [item["name"] for item in found["recommend"]]
    if first:
        assert order[:2] == [first, "resources.limits.cpu"]
        assert found["recommend"][1]["with"] == [first]
        assert "kubectl -n llm edit" in found["recommend"][0]["command"]
    else:
        assert order[0] == "resources.limits.cpu"
        assert found["recommend"][0]["with"] == []


@pytest.mark.parametrize(
    ("mutation", "first"),
    [
        (
            {"tool": "LimitRange", "text": "LimitRanger plugin set: cpu limit for container vllm"},
            "limitrange.default.cpu",
        ),
        ({"tool": "LimitRange", "text": "LimitRanger plugin set: memory limit for container vllm"}, None),
        (
            {
                "tool": "VerticalPodAutoscaler",
                "text": "Pod resources updated by vllm: container 0: cpu limit",
            },
            "vpa.controlledValues",
        ),
    ],
)
def test_who_set_the_limit_at_admission_comes_first(mutation, first):
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, mutations=[mutation]))
    removal = next(item for item in found["recommend"] if item["name"] == "resources.limits.cpu")
    assert removal["with"] == ([first] if first else [])


@pytest.mark.parametrize(("arguments", "advice"), [(GUARANTEED, KEEP), ({"limits": CPU_LIMIT}, REMOVE)])
def test_the_same_advice_for_throttling_that_only_a_log_shows(arguments, advice):
    pod, container = make(**arguments)
    found = cpu_checks.cpu_advice(pod, container)
    assert next(iter(changes(found))) == advice
    assert found["recommend"][0]["command"]
    assert bool(found["would_settle"]) is (advice == KEEP)
    assert cpu_checks.cpu_advice(*make()) is None


def test_kserve_puts_the_limit_back():
    edit = {"kind": "InferenceService", "name": "vllm"}
    workload = documents.workload("InferenceService", "vllm", "serving.kserve.io/v1beta1", edit=edit)
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, workload=workload))
    assert "ServingRuntime" in found["recommend"][0]["why"]


def test_a_manager_that_reverts_gets_the_change_in_its_source():
    workload = documents.workload(
        "Deployment",
        "vllm",
        managers=[{"tool": "Argo CD", "object": "app llm", "proof": "proof", "reverts": "on_sync"}],
    )
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, workload=workload))
    assert "Argo CD" in found["recommend"][0]["command"]


@pytest.mark.parametrize(
    ("threads", "accelerator", "expected"),
    [("64", "cuda", ("decrease", 8)), ("8", "cuda", None), (None, "cuda", None), (None, "cpu", ("set", 8))],
)
def test_more_threads_than_cpus(threads, accelerator, expected):
    env = [{"name": "OMP_NUM_THREADS", "value": threads, "from": None}] if threads else []
    found = only("cpu_limit_set", findings(limits=CPU_LIMIT, accelerator=accelerator, env=env))
    advised = [
        (item["direction"], item["value"]) for item in found["recommend"] if item["name"] == "OMP_NUM_THREADS"
    ]
    assert advised == ([expected] if expected else [])


# -- /dev/shm

BIG_SHM = {
    "size_limit": 16 * GIB,
    "medium": "Memory",
    "mounted_at": "/dev/shm",
    "volume": "shm",
    "used": None,
}


@pytest.mark.parametrize(
    ("version", "ranks", "single", "total"),
    [
        # rings of 10 MiB chunks, no response rings before V1
        ((0, 7, 3), 2, 100, 100 + 2 * 33 + 24),
        ((0, 9, 0), 2, 100, 100 + 2 * (100 + 33) + 24),
        ((0, 9, 1), 2, 160, 160 + 2 * (100 + 33) + 24),
        ((0, 11, 0), 8, 240, 160 + 8 * (240 + 33) + 24),
        (None, 8, 240, 160 + 8 * (240 + 33) + 24),
        ((0, 27, 0), 1, 0, 0),
    ],
)
def test_what_an_engine_puts_into_shm(version, ranks, single, total):
    assert host.shm_need(version, ranks) == (single * MIB, total * MIB)


def shm(size=None, medium="Memory", mounted="/dev/shm", host_ipc=False):
    return {
        "size_limit": size,
        "medium": medium,
        "mounted_at": mounted,
        "used": None,
        "host_ipc": host_ipc,
        "volume": "shm",
    }


PARALLEL = {"memory": "64Gi", "nvidia.com/gpu": "4"}
NO_MOUNT = shm(mounted=None, medium=None)


@pytest.mark.parametrize(
    ("options", "volume", "expected"),
    [
        ({"tensor_parallel_size": 4}, NO_MOUNT, ("likely", "add", "2Gi")),
        ({"pipeline_parallel_size": 2}, NO_MOUNT, ("likely", "add", "2Gi")),
        ({"tensor_parallel_size": 1}, NO_MOUNT, None),
        ({"tensor_parallel_size": 4}, shm(64 * MIB), ("likely", "increase", "2Gi")),
        ({"tensor_parallel_size": 4}, shm(GIB), ("possible", "increase", "2Gi")),
        ({"tensor_parallel_size": 4}, shm(2 * GIB), None),
        ({"tensor_parallel_size": 4}, shm(None), None),
        ({"tensor_parallel_size": 4}, shm(mounted=None, host_ipc=True), None),
        ({"tensor_parallel_size": 4}, shm(None, medium=None), None),
        ({"mm_processor_cache_type": "shm"}, NO_MOUNT, ("likely", "add", "5Gi")),
        ({"mm_processor_cache_type": "lru"}, NO_MOUNT, None),
    ],
)
def test_shm_against_the_parallel_size(options, volume, expected):
    found = findings(options=options, limits=PARALLEL, requests=PARALLEL, shm=volume)
    found = [item for item in found if item["cause"] == "shm_small"]
    if expected is None:
        assert found == []
        return
    (item,) = found
    confidence, direction, value = expected
    assert (item["confidence"], item["memory"], item["role"]) == (confidence, "shm", "risk")
    name = "volumes.shm" if direction == "add" else "volumes.shm.sizeLimit"
    assert changes(item) == {(name, direction): value}
    assert item["recommend"][0]["with"] == ["resources.limits.memory"]
    assert ("--gpu-memory-utilization", "decrease") in changes(item, "rejected")


@pytest.mark.parametrize(("version", "expected"), [("0.26.1", []), ("0.27.0", ["shm_small"])])
def test_the_kv_offload_region_moved_into_shm(version, expected):
    limits = {"memory": "128Gi", "nvidia.com/gpu": "1"}
    found = causes(
        version=version, options={"kv_offloading_size": 20}, shm=shm(2 * GIB), limits=limits, requests=limits
    )
    assert found == expected


def memory_volume(name="shm", size=None, medium="Memory"):
    return {
        "name": name,
        "kind": "emptyDir",
        "medium": medium,
        "size_limit": size,
        "claim": None,
        "source": None,
    }


@pytest.mark.parametrize(
    ("volumes", "model", "expected"),
    [
        ([memory_volume(size=2 * GIB)], "Qwen/Qwen3-8B", None),
        ([memory_volume(size=10 * GIB)], "Qwen/Qwen3-8B", "likely"),  # 16 + 10 > 24
        ([memory_volume(size=24 * GIB)], "Qwen/Qwen3-8B", "certain"),
        ([memory_volume(size=10 * GIB)], "my-model", None),
        ([memory_volume(size=13 * GIB)], "my-model", "possible"),  # over half of the limit
        ([memory_volume(size=None)], "my-model", "possible"),
        ([memory_volume("cache", 40 * GIB, medium=None)], "Qwen/Qwen3-8B", None),
        ([memory_volume("elsewhere", 40 * GIB)], "Qwen/Qwen3-8B", None),
    ],
)
def test_memory_backed_volumes_count_against_the_limit(volumes, model, expected):
    mounts = [{"volume": "shm", "path": "/dev/shm"}, {"volume": "cache", "path": "/cache"}]
    found = findings(model=model, volumes=volumes, mounts=mounts, shm=dict(BIG_SHM))
    assert [item["confidence"] for item in found if item["cause"] == "shm_counts_against_limit"] == (
        [expected] if expected else []
    )


def test_a_large_shm_needs_as_much_more_limit():
    mounts = [{"volume": "shm", "path": "/dev/shm"}]
    found = only(
        "shm_counts_against_limit",
        findings(volumes=[memory_volume(size=16 * GIB)], mounts=mounts, shm=dict(BIG_SHM)),
    )
    assert changes(found)[("resources.limits.memory", "increase")] == "32Gi"
    found = only(
        "shm_counts_against_limit", findings(volumes=[memory_volume()], mounts=mounts, shm=dict(BIG_SHM))
    )
    assert changes(found) == {("volumes.shm.sizeLimit", "set"): "2Gi"}


def test_all_checks_advise_the_same_limit():
    found = findings(
        limits={"memory": "12Gi"},
        requests={"memory": "4Gi"},
        volumes=[memory_volume(size=16 * GIB)],
        mounts=[{"volume": "shm", "path": "/dev/shm"}],
        shm=dict(BIG_SHM),
    )
    assert [item["cause"] for item in found] == [
        "memory_limit_low",
        "memory_ratio",
        "shm_counts_against_limit",
    ]
    advised = {
        change["value"]
        for item in found
        for change in item["recommend"]
        if change["name"] == "resources.limits.memory"
    }
    requested = {
        change["value"]
        for item in found
        for change in item["recommend"]
        if change["name"] == "resources.requests.memory"
    }
    assert (advised, requested) == ({"32Gi"}, {"24Gi"})


# -- unused room

V1 = (
    "Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 80.1 tokens/s, Running: {r} reqs, "
    "Waiting: {w} reqs, GPU KV cache usage: {u}%, Prefix cache hit rate: 10.0%"
)
V0 = (
    "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 80.1 tokens/s, Running: {r} reqs, Swapped: 0 reqs, "
    "Pending: {w} reqs, GPU KV cache usage: {u}%, CPU KV cache usage: 0.0%."
)
V1_OLD = (
    "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1.0 tokens/s, Running: {r} reqs, "
    "Waiting: {w} reqs GPU KV cache usage: {u}%."
)
NEWEST = V1.replace("GPU KV", "TPU KV").replace("Waiting: {w} reqs,", "Waiting: {w} reqs, Deferred: 1 reqs,")


def stats(template, *samples):
    return [template.format(r=running, w=waiting, u=usage) for running, waiting, usage in samples]


@pytest.mark.parametrize("template", [V0, V1, V1_OLD, NEWEST])
def test_the_stats_line_of_every_version(template):
    lines = [documents.line(1, text) for text in stats(template, (5, 2, 31.5))]
    assert [item[:3] for item in headroom_checks.kv_usage(lines)] == [(5, 2, 31.5)]


@pytest.mark.parametrize(
    ("samples", "flagged"),
    [
        ([(5, 0, 12.0), (6, 0, 20.5), (4, 0, 9.0)], True),
        ([(5, 0, 12.0), (6, 0, 20.5)], False),  # too few
        ([(5, 0, 12.0), (6, 3, 20.5), (4, 0, 9.0), (4, 0, 9.0)], False),  # somebody waits
        ([(5, 0, 12.0), (6, 0, 70.0), (4, 0, 9.0)], False),  # the cache is used
        ([(0, 0, 0.0), (0, 0, 0.0), (0, 0, 0.0)], False),  # nobody came
    ],
)
def test_unused_room_comes_from_measured_lines_only(samples, flagged):
    attempts = [serving(stats(V1, *samples))]
    assert ("headroom_unused" in causes(attempts=attempts)) is flagged


def test_preempted_requests_speak_against_unused_room():
    lines = stats(V1, (5, 0, 12.0), (6, 0, 20.5), (4, 0, 9.0))
    lines[1] += ", Preemptions: 3"
    assert causes(attempts=[serving(lines)]) == []


def test_more_slots_only_when_all_were_taken():
    lines = stats(V1, (5, 0, 12.0), (8, 0, 20.5), (4, 0, 9.0))
    found = only("headroom_unused", findings(attempts=[serving(lines)], options={"max_num_seqs": 8}))
    assert ("--max-num-seqs", "increase") in changes(found)
    found = only("headroom_unused", findings(attempts=[serving(lines)], options={"max_num_seqs": 256}))
    assert ("--max-num-seqs", "increase") not in changes(found)
    assert ("--gpu-memory-utilization", "increase") in changes(found, "rejected")


def test_a_container_that_died_has_no_room_to_speak_of():
    attempt = dict(serving(stats(V1, (5, 0, 12.0), (6, 0, 20.5), (4, 0, 9.0))), state="terminated")
    assert causes(attempts=[attempt]) == []
