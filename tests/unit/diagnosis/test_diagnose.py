# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of judgement, each as a table of situations: what happened, and what must and must not be proposed."""

from __future__ import annotations

import json

import pytest
from evidence_samples import evidence_of, excerpt, failed, gib, oom_text, pod_with

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis import causes
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.advice import ADVICE
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose

NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
NO_LENGTH = (
    "ValueError: To serve at least one request with the models's max seq len (262144), (36.0 GiB KV cache is needed, which is larger "
    "than the available KV cache memory (6.94 GiB). Based on the available memory, the estimated maximum model length is 50512."
)
NOT_FREE = (
    "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB). "
    "Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
UTILIZATION = "--gpu-memory-utilization"


def judged(evidence):
    return diagnose(evidence)["pods"][0]


def trigger(evidence):
    return next(item for item in judged(evidence)["findings"] if item["role"] == "trigger")


def proposed(item, name):
    return {(change["direction"], change["value"]) for change in item["recommend"] if change["name"] == name}


# -- the runbook's three literal messages -----------------------------------------------------------------------------


def test_runbook_error_1_cuda_oom_is_gpu_memory():
    verdict = judged(failed(["torch.cuda.OutOfMemoryError: CUDA out of memory."]))["verdict"]
    assert (verdict["is_memory"], verdict["memory"]) == (True, "gpu")


def test_runbook_error_2_nccl_oom_is_nccls_memory_on_the_gpu():
    verdict = judged(failed(["RuntimeError: NCCL error: out of memory"]))["verdict"]
    assert (verdict["cause"], verdict["memory"]) == ("nccl_gpu_oom", "nccl_gpu")


def test_runbook_error_3_exit_137_oomkilled_is_host_memory():
    evidence = failed([], exit_code=137, reason="OOMKilled", phase="load", limits={"memory": "16Gi"})
    verdict = judged(evidence)["verdict"]
    assert (verdict["is_memory"], verdict["memory"], verdict["cause"]) == (True, "host", "host_oom_load")


# -- the phase decides what a device OOM means ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "frames", "cause"),
    [
        ("load", (), "gpu_weights_oom"),
        ("profile", (), "profile_run_oom"),
        ("graph_capture", (), "cudagraph_capture_oom"),
        ("serving", (), "serving_gpu_oom"),
        # the traceback knows better than the last marker
        ("load", ("determine_available_memory", "profile_run", "_dummy_run"), "profile_run_oom"),
        ("kv_init", ("compile_or_warm_up_model", "capture_model"), "cudagraph_capture_oom"),
        ("load", ("wake_up",), "sleep_wakeup_oom"),
    ],
)
def test_phase_of_a_device_oom(phase, frames, cause):
    assert trigger(failed([oom_text()], phase=phase, frames=frames))["cause"] == cause


def test_graph_pools_show_that_capture_had_begun():
    assert trigger(failed([oom_text(pools=0.04)], phase="load"))["cause"] == "cudagraph_capture_oom"


def test_a_wrapper_that_names_the_warm_up_refines_the_oom_before_it():
    texts = [
        oom_text(tried=1.74),
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ]
    item = trigger(failed(texts, phase="load"))
    assert item["cause"] == "sampler_warmup_oom"
    assert [proof["line"] for proof in item["evidence"]] == [10, 11]
    assert proposed(item, "--max-num-seqs") == {("decrease", 256)}


@pytest.mark.parametrize(
    ("others", "ours", "utilization", "cause"),
    [
        (50.5, 28.2, 0.9, "gpu_held_by_other"),
        (0.4, 78.0, 0.9, "serving_gpu_oom"),
        # a card that is meant to be shared: the other tenant has what the utilization leaves it
        (38.0, 40.5, 0.5, "serving_gpu_oom"),
    ],
)
def test_who_holds_the_card(others, ours, utilization, cause):
    text = oom_text(processes=[(247, others), (477, ours)], allocated=ours - 1)
    evidence = failed([text], phase="serving", settings={"gpu_memory_utilization": utilization})
    assert trigger(evidence)["cause"] == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (oom_text(processes=[(247, 50.5), (477, 28.2)], allocated=27.5), "gpu_held_by_other"),
        (oom_text(tried=0.8, reserved=3.0), "gpu_fragmentation"),
        (oom_text(processes=[(477, 79.5)], allocated=78.5), "gpu_weights_oom"),
    ],
)
def test_the_hint_of_newer_releases_before_the_exception_does_not_hide_whose_memory_it_was(text, cause):
    """From 0.13 on load_model() logs it, with the exception's text in it, and raises again."""
    hint = (
        "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, "
        f"increasing --tensor-parallel-size, or using --quantization. (original error: {text.partition(': ')[2]})"
    )
    item = trigger(failed([hint, text], phase="load"))
    assert item["cause"] == cause
    assert 10 in [proof["line"] for proof in item["evidence"]]


def test_fragmentation_is_named_only_when_it_could_have_served_the_request():
    assert (
        trigger(failed([oom_text(tried=0.8, reserved=3.0)], phase="serving"))["cause"] == "gpu_fragmentation"
    )
    assert trigger(failed([oom_text(tried=0.8, reserved=0.5)], phase="serving"))["cause"] == "serving_gpu_oom"


def test_fixed_kv_size_takes_the_blame_of_a_late_oom():
    evidence = failed([oom_text()], phase="graph_capture", settings={"kv_cache_memory_bytes": 70 << 30})
    item = trigger(evidence)
    assert item["cause"] == "kv_bytes_too_large"
    assert UTILIZATION in {change["name"] for change in item["rejected"]}


# -- what is left of a log: tracebacks without prefixes, broken lines, last words --------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (['  File "vllm/worker/worker.py", line 125, in warm_up_model'], [], "cudagraph_capture_oom"),
        (["    with torch.cuda.graph(cudagraph, pool=self.graph_pool):"], [], "cudagraph_capture_oom"),
        (["    self.model_runner.profile_run()"], [], "profile_run_oom"),
        (
            ["    available_gpu_memory = self.model_executor.determine_available_memory()"],
            [],
            "profile_run_oom",
        ),
        (
            [],
            ['  File "vllm/engine.py", line 155, in start', "    self.run_engine_loop()"],
            "serving_gpu_oom",
        ),
        ([], ["EngineCore encountered a fatal error."], "serving_gpu_oom"),
        ([], ["Dumping input data for V1 LLM engine (v0.11.0) with config: model='m'"], "serving_gpu_oom"),
        # a forward pass is no loading: of the profile run when the start failed, of requests when the engine served
        (
            ['  File "m.py", line 8, in forward'],
            ["RuntimeError: Engine core initialization failed."],
            "profile_run_oom",
        ),
        (['  File "m.py", line 8, in forward'], ["EngineCore encountered a fatal error."], "serving_gpu_oom"),
        (
            ["The sequence length used for profiling (max_num_batched_tokens / max_num_seqs = 1) is"],
            [],
            "profile_run_oom",
        ),
    ],
)
def test_phase_without_start_up_lines(before, after, cause):
    assert trigger(failed([*before, oom_text(), *after]))["cause"] == cause


def test_the_innermost_call_decides_even_without_a_frame_of_its_own():
    texts = ["    self.model_runner.capture_model()", oom_text()]
    assert trigger(failed(texts, frames=("compile_or_warm_up_model",)))["cause"] == "cudagraph_capture_oom"


def test_one_allocation_larger_than_the_card_is_no_weight():
    assert trigger(failed([oom_text(tried=1029.5, total=79.0, free=19.2)]))["cause"] == "profile_run_oom"


@pytest.mark.parametrize("glue", ["", " "])
def test_a_message_broken_by_the_terminal_is_put_together(glue):
    whole = NO_LENGTH.replace("(36.0 GiB KV cache", "(36.0 GiB KV cache")
    cut = whole.index(" needed, which is")
    texts = [whole[:cut], whole[cut + (1 if glue else 0) :]]
    item = trigger(failed(texts))
    assert item["cause"] == "kv_max_len"
    assert proposed(item, "--max-model-len") == {("decrease", 50512)}


def test_a_quoted_source_line_gives_way_to_the_message_itself():
    quoted = 'raise ValueError("No available memory for the cache blocks. "'
    assert [proof["line"] for proof in trigger(failed([quoted, NO_BLOCKS]))["evidence"]] == [11]
    assert trigger(failed([quoted]))["cause"] == "kv_no_blocks"


def test_the_older_wording_shows_who_holds_the_card():
    text = (
        "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 0; 60.97 GiB total capacity; 10.24 GiB already "
        "allocated; 10.24 GiB current active; 19.52 MiB free; 10.65 GiB reserved in total by PyTorch)"
    )
    assert trigger(failed([text], phase="load", accelerator="npu"))["cause"] == "gpu_held_by_other"


def test_a_negative_kv_size_says_it_all():
    assert trigger(failed(["Available KV cache memory: -0.87 GiB"]))["cause"] == "kv_no_blocks"


def test_a_crash_is_only_the_way_it_ended():
    texts = [
        "terminate called after throwing an instance of 'std::system_error'",
        "RuntimeError: can't start new thread",
    ]
    assert trigger(failed(texts, exit_code=134))["cause"] == "pids_limit"


def test_rays_list_of_common_causes_is_no_crash():
    text = (
        "A worker died or was killed while executing a task by an unexpected system error. Some common causes include: (1) the "
        "process was killed by the OOM killer due to high memory usage, (3) the worker crashed unexpectedly due to SIGSEGV"
    )
    assert trigger(failed([text]))["cause"] == "undetermined"


@pytest.mark.parametrize(
    ("text", "phase", "cause"),
    [
        ("(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM)", "load", "host_oom_load"),
        (
            "which exceeds the memory usage threshold of 0.95. Ray killed this worker",
            "load",
            "ray_memory_monitor",
        ),
        ("ray.exceptions.OutOfMemoryError: Task was killed", "serving", "ray_memory_monitor"),
    ],
)
def test_rays_monitor_names_its_threshold(text, phase, cause):
    assert trigger(failed([text], phase=phase))["cause"] == cause


@pytest.mark.parametrize(
    ("limit", "cause"), [("64", "memlock_limit"), ("unlimited", "host_pin_limit"), (None, "host_pin_limit")]
)
def test_pinning_refused_by_a_small_memlock_limit(limit, cause):
    texts = ["RuntimeError: Unable to pin host memory with error code: -1"]
    assert trigger(failed(texts + (["$ ulimit -l", limit] if limit else [])))["cause"] == cause


def test_unified_memory_is_judged_by_what_the_host_left():
    node = {"gpu": dict(documents.node()["gpu"], unified=True)}
    idle = NOT_FREE.replace("31.44/47.38", "101.9/121.69")
    taken = NOT_FREE.replace("31.44/47.38", "36.75/121.63")
    assert trigger(failed([idle], node=node))["cause"] == "gpu_free_below_util"
    item = trigger(failed([taken], node=node))
    assert (item["cause"], item["memory"]) == ("unified_memory_accounting", "unified")
    assert "drop_page_cache" in {change["name"] for change in item["recommend"]}


def test_what_is_in_force_already_is_not_proposed():
    item = trigger(
        failed([oom_text()], phase="graph_capture", settings={"max_num_seqs": 1, "enforce_eager": True})
    )
    names = {change["name"] for change in item["recommend"]}
    assert not names & {"--max-num-seqs", "--enforce-eager"}


def test_advice_agrees_with_the_trigger():
    first = documents.attempt(
        0, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS], "kv_init")
    )
    second = documents.attempt(
        1, "terminated", reason="Error", exit_code=1, log=excerpt([oom_text()], "serving")
    )
    findings = judged(evidence_of(pod_with([first, second])))["findings"]
    lowered = [
        item
        for item in findings
        if ("decrease", None) in proposed(item, UTILIZATION) or proposed(item, UTILIZATION)
    ]
    assert all(
        direction != "decrease" for item in lowered for direction, _value in proposed(item, UTILIZATION)
    )


def test_a_container_without_an_engine_loads_no_model():
    pod = pod_with(
        [documents.attempt(0, "terminated", reason="OOMKilled", exit_code=137)], limits={"memory": "2Gi"}
    )
    pod["containers"][0]["engine"] = None
    assert trigger(evidence_of(pod))["cause"] == "host_oom_growth"


# -- rule 4: where the utilization helps, where it harms, where it does nothing ---------------------------------------


@pytest.mark.parametrize(
    ("texts", "phase", "helps"),
    [
        ([oom_text()], "warmup", True),
        ([oom_text()], "graph_capture", True),
        ([oom_text()], "serving", True),
        ([NOT_FREE], "load", True),
        (["RuntimeError: NCCL error: out of memory"], "serving", True),
        ([NO_BLOCKS], "kv_init", False),
        ([NO_LENGTH], "kv_init", False),
        ([oom_text()], "load", False),
        ([oom_text()], "profile", False),
    ],
)
def test_lowering_the_utilization(texts, phase, helps):
    item = trigger(failed(texts, phase=phase))
    lowered = any(direction == "decrease" for direction, _value in proposed(item, UTILIZATION))
    assert lowered is helps
    refused = {(change["name"], change["direction"]) for change in item["rejected"]}
    assert ((UTILIZATION, "decrease") in refused) is not helps


def test_shared_card_utilization_is_below_what_is_free():
    item = trigger(failed([NOT_FREE], version="0.9.1"))
    ((direction, value),) = proposed(item, UTILIZATION)
    assert direction == "decrease"
    assert value * 47.38 < 31.44
    assert (value + 0.02) * 47.38 > 31.44


def test_length_comes_from_vllms_own_estimate():
    assert proposed(trigger(failed([NO_LENGTH])), "--max-model-len") == {("decrease", 50512)}


def test_length_follows_from_the_sizes_where_no_estimate_is_printed():
    text = (
        "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (9.97 GiB). Try increasing `gpu_memory_utilization`"
    )
    item = trigger(failed([text], version="0.8.3"))
    ((direction, value),) = proposed(item, "--max-model-len")
    assert direction == "decrease"
    assert value % 16 == 0
    assert value <= 1048576 * 9.97 / 24.00 < value + 16


def test_raising_the_utilization_is_proposed_only_when_it_closes_the_gap():
    small_gap = NO_LENGTH.replace("36.0 GiB", "8.0 GiB")
    numbers = {"gpu_total": gib(80)}
    raised = trigger(failed([small_gap], numbers=numbers, settings={"gpu_memory_utilization": 0.9}))
    assert proposed(raised, UTILIZATION) == {("increase", 0.92)}
    refused = trigger(failed([NO_LENGTH], numbers=numbers, settings={"gpu_memory_utilization": 0.9}))
    assert proposed(refused, UTILIZATION) == set()
    assert "cannot add" in next(
        change["why"] for change in refused["rejected"] if change["direction"] == "increase"
    )


def test_no_blocks_with_a_low_utilization_raises_it_by_arithmetic():
    numbers = {
        "gpu_total": gib(8),
        "kv_available": gib(-1.05),
        "weights": gib(5.2),
        "activation_peak": gib(1.42),
    }
    item = trigger(
        failed([NO_BLOCKS], numbers=numbers, settings={"gpu_memory_utilization": 0.7}, version="0.7.3")
    )
    ((direction, value),) = proposed(item, UTILIZATION)
    assert direction == "increase"
    assert value * 8 > 5.2 + 1.42
    assert item["recommend"][0]["name"] == UTILIZATION


def test_no_blocks_when_the_weights_fill_the_card_offers_no_setting():
    numbers = {"gpu_total": gib(80), "kv_available": gib(-3), "weights": gib(74), "activation_peak": gib(1)}
    item = trigger(failed([NO_BLOCKS], numbers=numbers, settings={"gpu_memory_utilization": 0.9}))
    assert proposed(item, UTILIZATION) == set()
    assert item["recommend"][0]["name"] == "--tensor-parallel-size"


# -- host memory: what was going on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "more", "cause"),
    [
        ("load", {}, "host_oom_load"),
        ("serving", {}, "host_oom_growth"),
        ("load", {"accelerator": "cpu"}, "host_oom_cpu_backend"),
        (
            "kv_init",
            {"settings": {"kv_offloading_size": 200}, "limits": {"memory": "256Gi"}},
            "host_oom_offload",
        ),
        ("kv_init", {"settings": {"kv_offloading_size": 4}, "limits": {"memory": "256Gi"}}, "host_oom_load"),
    ],
)
def test_oomkilled_by_what_was_going_on(phase, more, cause):
    more = dict({"limits": {"memory": "32Gi"}}, **more)
    assert trigger(failed([], exit_code=137, reason="OOMKilled", phase=phase, **more))["cause"] == cause


def test_compilers_in_the_log_explain_a_kill():
    texts = ["[2/27] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile"]
    evidence = failed(texts, exit_code=137, reason="OOMKilled", phase="warmup", limits={"memory": "64Gi"})
    assert trigger(evidence)["cause"] == "host_oom_compile"


def test_compilers_of_the_start_do_not_explain_a_kill_while_serving():
    texts = ["[2/27] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile"]
    evidence = failed(texts, exit_code=137, reason="OOMKilled", phase="serving", limits={"memory": "64Gi"})
    assert trigger(evidence)["cause"] == "host_oom_growth"


@pytest.mark.parametrize("text", ["Bus error (core dumped)", "Unexpected bus error encountered in worker."])
def test_a_bus_error_is_shared_memory(text):
    assert trigger(failed([text]))["cause"] == "shm_exhausted"


def test_a_log_that_ends_with_killed_says_so():
    verdict = judged(failed(["Loading shards: 40%", "Killed"], exit_code=None, reason=None))["verdict"]
    assert (verdict["cause"], verdict["memory"]) == ("sigkill_unattributed", "host")


def test_more_ranks_need_more_gpus():
    item = trigger(failed([oom_text()], phase="load"))
    change = next(change for change in item["recommend"] if change["name"] == "--tensor-parallel-size")
    assert "give the container 2 GPUs too, its limit is 1" in change["why"]


def test_137_without_oomkilled_is_not_called_a_memory_kill():
    verdict = judged(failed(["INFO loading"], exit_code=137, phase="load"))["verdict"]
    assert verdict["cause"] == "sigkill_unattributed"
    assert verdict["is_memory"] is None


def test_a_device_oom_before_a_termination_is_not_lost():
    result = judged(failed([oom_text()], exit_code=143, phase="load"))
    assert result["verdict"]["cause"] == "device_oom_hidden_by_probe"
    assert result["verdict"]["memory"] == "gpu"
    assert "gpu_weights_oom" in [item["cause"] for item in result["findings"]]


def test_survivors_complaints_do_not_hide_a_kill():
    texts = ["Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)"]
    evidence = failed(texts, exit_code=137, reason="OOMKilled", phase="serving", limits={"memory": "64Gi"})
    assert trigger(evidence)["cause"] == "host_oom_growth"


# -- trigger and cascade ----------------------------------------------------------------------------------------------


def test_the_first_error_is_the_trigger_and_the_rest_is_cascade():
    texts = [
        oom_text(),
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ]
    findings = judged(failed(texts, phase="load"))["findings"]
    assert [(item["cause"], item["role"]) for item in findings if item["role"] != "risk"] == [
        ("gpu_weights_oom", "trigger"),
        ("not_memory_cuda_fault", "cascade"),
    ]


def test_the_first_readable_attempt_counts():
    first = documents.attempt(
        0, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS], "kv_init")
    )
    second = documents.attempt(1, "terminated", reason="Error", exit_code=1, log=excerpt([NOT_FREE], "load"))
    findings = judged(evidence_of(pod_with([first, second])))["findings"]
    assert [(item["cause"], item["role"]) for item in findings if item["role"] in ("trigger", "cascade")] == [
        ("kv_no_blocks", "trigger"),
        ("gpu_free_below_util", "cascade"),
    ]


def test_an_incomplete_log_is_never_certain_and_says_so():
    attempt = documents.attempt(
        0, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS], complete=False)
    )
    item = trigger(evidence_of(pod_with([attempt])))
    assert item["confidence"] == "likely"
    assert "does not reach back" in item["explanation"]


def test_more_restarts_than_runs_is_said():
    attempt = documents.attempt(4, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS]))
    pod = pod_with([attempt])
    pod["containers"][0]["restart_count"] = 4
    item = trigger(evidence_of(pod))
    assert item["confidence"] == "likely"
    assert "started 5 times and 1 of these runs" in item["explanation"]


def test_generic_ends_alone_are_not_a_cause():
    texts = ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"]
    assert judged(failed(texts))["verdict"]["cause"] == "undetermined"


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        ("{'EngineCore_DP0': -9}", "sigkill_unattributed"),
        ("{'EngineCore_DP0': -7}", "shm_exhausted"),
        ("{'EngineCore_DP0': -11}", "native_crash"),
    ],
)
def test_signals_of_dead_processes(codes, cause):
    texts = [
        f"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {codes}"
    ]
    assert judged(failed(texts))["verdict"]["cause"] == cause


def test_exit_code_0_after_engine_death_is_named():
    result = judged(failed([oom_text()], exit_code=0, reason="Completed", phase="serving"))
    assert result["verdict"]["cause"] == "serving_gpu_oom"
    assert "exit_code_masked" in [item["cause"] for item in result["findings"]]


def test_nothing_failed_is_an_answer():
    running = documents.attempt(0, "running", log=excerpt([], "serving"))
    verdict = judged(evidence_of(pod_with([running], limits={"memory": "64Gi"})))["verdict"]
    assert (verdict["cause"], verdict["is_memory"]) == (None, False)


def test_an_init_container_fails_before_the_main_one():
    pod = pod_with([documents.attempt(0, "waiting", reason="PodInitializing")])
    init = documents.container(
        "download",
        role="init",
        resources={"requests": {}, "limits": {"memory": "1Gi"}},
        attempts=[documents.attempt(0, "terminated", reason="OOMKilled", exit_code=137)],
    )
    pod["containers"].append(init)
    result = judged(evidence_of(pod))
    item = result["findings"][0]
    assert (item["container"], item["memory"]) == ("download", "host")
    assert result["verdict"]["sentence"].startswith("Container download, not the engine's")
    assert "undetermined" not in [other["cause"] for other in result["findings"]]
    assert "convert_checkpoint" not in [change["name"] for change in item["recommend"]]


def test_a_neighbour_container_is_named_and_its_model_is_not_discussed():
    pod = pod_with([documents.attempt(0, "running", log=excerpt([], "serving"))], limits={"memory": "64Gi"})
    killed = documents.attempt(0, "terminated", reason="OOMKilled", exit_code=137)
    limits = {"requests": {}, "limits": {"memory": "64Mi"}}
    pod["containers"].append(documents.container("metrics", resources=limits, attempts=[killed]))
    result = judged(evidence_of(pod))
    assert result["verdict"]["sentence"].startswith("Container metrics, not the engine's")
    item = result["findings"][0]
    assert item["recommend"][0]["name"] == "resources.limits.memory"
    assert "model" not in item["explanation"].split("No model is loaded")[0]


def test_a_run_with_a_log_says_more_than_one_without():
    unread = documents.attempt(0, "terminated", reason="OOMKilled", exit_code=137)
    read = documents.attempt(
        1, "terminated", reason="Error", exit_code=1, log=excerpt([NO_BLOCKS], "kv_init")
    )
    assert trigger(evidence_of(pod_with([unread, read])))["cause"] == "kv_no_blocks"


def test_an_oom_kill_of_the_runtimes_own_start_is_host_memory():
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        "unable to start container process: container init was OOM-killed (memory limit too low?)"
    )
    attempt = documents.attempt(0, "terminated", reason="StartError", exit_code=128, message=message)
    result = judged(evidence_of(pod_with([attempt], limits={"memory": "4Mi"})))
    assert (result["verdict"]["is_memory"], result["verdict"]["memory"]) == (True, "host")
    item = result["findings"][0]
    assert proposed(item, "resources.limits.memory")
    assert "resources.limits.memory" not in [change["name"] for change in item["rejected"]]


# -- laws -------------------------------------------------------------------------------------------------------------


def test_every_cause_has_a_nature():
    assert causes.NATURE.keys() == documents.CAUSES.keys()
    assert set(ADVICE) <= set(documents.CAUSES)


def _all_findings():
    texts = [
        NO_BLOCKS,
        NO_LENGTH,
        NOT_FREE,
        "RuntimeError: NCCL error: out of memory",
        oom_text(),
        "Bus error (core dumped)",
    ]
    for text in texts:
        for phase in documents.PHASES[:6]:
            for code, reason in ((1, "Error"), (137, "OOMKilled"), (143, "Error")):
                yield from judged(failed([text], phase=phase, exit_code=code, reason=reason))["findings"]


def test_nothing_is_both_proposed_and_rejected():
    for item in _all_findings():
        keys = [
            {(c["target"], c["name"], c["direction"], str(c["value"]), tuple(c["with"])) for c in changes}
            for changes in (item["recommend"], item["rejected"])
        ]
        assert not keys[0] & keys[1], item["cause"]


def test_every_change_and_finding_is_complete():
    for item in _all_findings():
        assert item["explanation"]
        assert item["memory"] in documents.MEMORIES
        assert item["phase"] in documents.PHASES
        assert item["confidence"] in documents.CONFIDENCES
        if item["role"] == "trigger":
            assert item["recommend"], item["cause"]
        if item["role"] == "cascade":
            assert item["recommend"] == []
        for change in item["recommend"] + item["rejected"]:
            assert change["why"]
            assert change["target"] in documents.TARGETS
            assert change["direction"] in documents.DIRECTIONS
            assert change["proof"] in documents.PROOFS
        for change in item["recommend"]:
            if change["target"] != "action":
                assert change["command"], change["name"]


def test_a_diagnosis_is_plain_json_and_deterministic():
    evidence = failed([oom_text()], phase="load")
    assert json.dumps(diagnose(evidence)) == json.dumps(diagnose(evidence))


def test_another_document_is_refused_in_one_sentence():
    with pytest.raises(
        documents.DocumentError, match=r"needs a document with schema vllm_runbook\.oom/evidence/v1"
    ):
        diagnose({"schema": "other/v1"})
