# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory: the runbook's table, the mechanism under it, versions, and cases that were killed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB, MIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import host

GB = 10**9


def segment(result, name):
    found = [item for item in result["segments"] if item["name"] == name]
    return found[0] if found else None


def need(settings=None, **more):
    return host.host_memory(settings or {}, **{"version": "0.20.0", **more})


# -- the table


@pytest.mark.parametrize(
    ("billions", "low", "high"), [(8, 16, 24), (13, 24, 32), (70, 48, 64), (10.5, 20, 28), (41.5, 36, 48)]
)
def test_the_runbooks_rows_are_the_limit(billions, low, high):
    ranks = host.usual_ranks(billions)
    result = need(parameters=billions, model_bytes=int(billions * 2 * GB), ranks=ranks)
    assert result["by"] == "table"
    assert result["limit_bounds"] == [low * GIB, high * GIB]
    assert result["limit_bytes"] == high * GIB
    assert result["request_bytes"] == high * GIB * 3 // 4
    assert result["need_bytes"] < high * GIB


def test_the_runbooks_example_is_a_request_of_48_under_a_limit_of_64():
    result = need(parameters=70, ranks=2)
    assert (result["request_bytes"], result["limit_bytes"]) == (48 * GIB, 64 * GIB)


@pytest.mark.parametrize("billions", [None, 0.5, 7.5, 73.6, 671])
def test_outside_the_table_only_the_mechanism_speaks(billions):
    result = need(parameters=billions)
    assert result["by"] == "mechanism"
    assert result["limit_bytes"] >= result["need_bytes"] + result["need_error_bytes"] - GIB
    assert result["limit_bounds"] == need()["limit_bounds"]


@pytest.mark.parametrize(("billions", "row"), [(7.62, 8), (7.9, 8), (70.55, 70), (73.4, 70)])
def test_a_class_of_models_has_its_row(billions, row):
    ranks = host.usual_ranks(row)
    found, expected = need(parameters=billions, ranks=ranks), need(parameters=row, ranks=ranks)
    assert found["limit_bounds"] == expected["limit_bounds"]


def test_the_table_is_read_by_the_name_where_it_tells():
    named = need({"model": "Qwen/Qwen3-32B"}, parameters=32.76, ranks=1)
    assert named["limit_bounds"] == need(parameters=32, ranks=1)["limit_bounds"]
    assert "the runbook's table for 32B" in named["words"]
    assert need({"model": "/mnt/models"}, parameters=32.76)["limit_bounds"] != named["limit_bounds"]


# From 37.5B on the table has a second worker counted in, so a given number of them is fewer on top.
@pytest.mark.parametrize("sizes", [(0.1, 37.5), (37.6, 1000)])
@given(st.data(), st.sampled_from([1, 2, 4]), st.sampled_from([{}, {"cpu_offload_gb": 7}]))
def test_the_limit_to_set_never_falls_with_the_size(sizes, data, ranks, settings):
    drawn = sorted(data.draw(st.tuples(st.floats(*sizes), st.floats(*sizes))))
    smaller, larger = (need(settings, parameters=size, ranks=ranks) for size in drawn)
    assert smaller["limit_bytes"] <= larger["limit_bytes"]


@pytest.mark.parametrize("edge", [7.6, 8, 70, 73.5])
def test_the_limit_to_set_has_no_step_at_the_ends_of_the_table(edge):
    below, above = (need(parameters=edge + step, ranks=2)["limit_bytes"] for step in (-0.01, 0.01))
    assert 0 <= above - below <= GIB


def test_beside_the_table_its_ends_bound_the_limit_to_set():
    small, large = need(parameters=7, ranks=1), need(parameters=405, ranks=8)
    assert need(parameters=0.5, ranks=1)["limit_bytes"] < small["limit_bytes"] <= 24 * GIB
    assert large["limit_bytes"] == (64 + 6 * 3) * GIB
    assert "at least what the runbook's table has for 70B" in large["words"]


def test_on_the_cpu_backend_the_weights_follow_from_the_parameters():
    told = {"model": "Qwen/Qwen3-8B", "VLLM_CPU_KVCACHE_SPACE": 40}
    found = need(told, parameters=8.19, accelerator="cpu")
    assert segment(found, "weights")["bytes"] == 16 * GB
    assert found["limit_bounds"][0] > 40 * GIB + 0.9 * 16 * GB
    assert (
        segment(need(told, parameters=8.19, accelerator="cpu", model_bytes=5 * GB), "weights")["bytes"]
        == 5 * GB
    )
    unknown = need({"VLLM_CPU_KVCACHE_SPACE": 40}, accelerator="cpu")
    assert segment(unknown, "weights") is None
    assert any("weights, which are host memory, aren't counted" in text for text in unknown["assumptions"])


def test_what_shm_may_hold_fits_under_the_limit():
    def limit(size, backed=True):
        shm = {"size_bytes": size * GIB, "memory_backed": backed}
        return need(parameters=8, ranks=1, shm=shm)["limit_bytes"]

    assert [limit(2), limit(8), limit(16), limit(16, False)] == [24 * GIB, 24 * GIB, 32 * GIB, 24 * GIB]


def test_pools_and_workers_come_on_top_of_the_table():
    plain = need(parameters=8, ranks=1)
    offload = need({"cpu_offload_gb": 10}, parameters=8, ranks=1)
    assert offload["limit_bytes"] == plain["limit_bytes"] + 10 * GIB
    more = need(parameters=8, ranks=4)
    assert more["limit_bounds"] == [(16 + 3) * GIB, (24 + 9) * GIB]
    servers = need({"api_server_count": 3}, parameters=8, ranks=1)
    assert servers["limit_bounds"] == [(16 + 2) * GIB, (24 + 6) * GIB]


# -- processes


def test_a_single_worker_lives_in_the_engine_core():
    one, four = need(ranks=1), need({"tensor_parallel_size": 2, "pipeline_parallel_size": 2})
    assert segment(one, "workers") is None
    assert segment(one, "engine_core")["bytes"] == 2 * GIB
    assert segment(four, "workers")["bytes"] == 8 * GIB
    assert segment(need({"api_server_count": 4}), "api_server")["bytes"] == 8 * GIB


def test_data_parallel_ranks_have_an_engine_core_each():
    result = need({"data_parallel_size": 4, "tensor_parallel_size": 2})
    assert segment(result, "engine_core")["bytes"] == 8 * GIB
    assert segment(result, "workers")["bytes"] == 16 * GIB
    assert segment(result, "shm_rings")["bytes"] == 4 * host.shm_need((0, 20), 2)[1]
    assert segment(need({"data_parallel_size": 4}), "workers") is None
    local = need({"data_parallel_size": 16, "data_parallel_size_local": 8})
    assert segment(local, "engine_core")["bytes"] == 16 * GIB


@pytest.mark.parametrize(
    "settings", [None, {}, {"tensor_parallel_size": -2}, {"api_server_count": "x"}, {"cpu_offload_gb": -1}]
)
def test_settings_that_make_no_sense_count_as_none(settings):
    assert need(settings)["need_bytes"] == need()["need_bytes"]


def test_without_compilation_nothing_is_compiled():
    assert segment(need(), "compile")
    assert segment(need({"enforce_eager": True}), "compile") is None


# -- loaders


@pytest.mark.parametrize(
    "settings", [{}, {"load_format": "safetensors"}, {"safetensors_load_strategy": "lazy"}]
)
def test_mapped_files_are_reclaimable(settings):
    result = need(settings, model_bytes=140 * GB, ranks=2)
    files = segment(result, "model_files")
    assert (files["kind"], files["bytes"]) == ("page_cache", 140 * GB)
    assert result["need_bytes"] == need(settings, model_bytes=1, ranks=2)["need_bytes"]


def test_prefetch_fills_the_page_cache_only():
    result = need({"safetensors_load_strategy": "prefetch"}, model_bytes=140 * GB)
    assert segment(result, "loader") is None
    assert segment(result, "model_files")["kind"] == "page_cache"


@pytest.mark.parametrize(
    ("settings", "more", "size"),
    [
        ({"safetensors_load_strategy": "eager"}, {"largest_file": 5 * GB}, 4 * 5 * GB),
        ({"safetensors_load_strategy": "eager"}, {}, 4 * 5 * GB),
        ({"load_format": "pt"}, {"largest_file": 3 * GB}, 4 * 3 * GB),
        ({"load_format": "auto"}, {"pickled": True, "largest_file": 3 * GB}, 4 * 3 * GB),
        ({"load_format": "npcache"}, {}, 4 * 10 * GB),
        (
            {"load_format": "runai_streamer", "model_loader_extra_config": '{"memory_limit": 4000000000}'},
            {},
            4 * 4 * GB,
        ),
        ({"load_format": "runai_streamer", "model_loader_extra_config": {"memory_limit": 0}}, {}, 0),
        ({"load_format": "runai_streamer"}, {}, 4 * 40 * GB),
        ({"load_format": "runai_streamer", "RUNAI_STREAMER_MEMORY_LIMIT": 8 * GB}, {}, 4 * 8 * GB),
        ({"load_format": "runai_streamer", "RUNAI_STREAMER_MEMORY_LIMIT": -1}, {}, 4 * 140 * GB),
        ({"load_format": "tensorizer"}, {}, 4 * GIB),
    ],
)
def test_loaders_that_hold_copies_in_each_worker(settings, more, size):
    loader = segment(need(settings, model_bytes=140 * GB, ranks=4, **more), "loader")
    assert (loader["kind"], loader["bytes"]) == ("anonymous", size)


def test_a_guessed_file_size_is_an_assumption():
    assert any("largest file" in said for said in need({"load_format": "pt"})["assumptions"])
    assert not any(
        "largest file" in said for said in need({"load_format": "pt"}, largest_file=1)["assumptions"]
    )


def test_dummy_weights_read_nothing():
    result = need({"load_format": "dummy"}, model_bytes=140 * GB)
    assert segment(result, "model_files") is None


def test_an_unknown_loader_is_named():
    assert any("modelexpress" in said for said in need({"load_format": "modelexpress"})["assumptions"])


def test_files_in_a_memory_backed_volume_stay():
    result = need(model_bytes=16 * GB, storage="tmpfs")
    assert segment(result, "model_files")["kind"] == "shm"
    assert result["need_bytes"] > 16 * GB
    assert result["shm_bytes"] == 0


def test_the_loader_is_gone_when_the_pools_come():
    loading = need({"load_format": "pt"}, largest_file=20 * GB)["need_bytes"]
    both = need({"load_format": "pt", "kv_offloading_size": 10}, largest_file=20 * GB)["need_bytes"]
    assert both == loading


# -- pools


@pytest.mark.parametrize(
    ("version", "settings", "size"),
    [
        ("0.6.3", {}, 4 * 2 * GIB),
        ("0.6.3", {"swap_space": 16}, 16 * 2 * GIB),
        ("0.6.3", {"swap_space": 0}, None),
        ("0.8.5", {"swap_space": 16}, None),
        ("0.9.2", {"swap_space": 16, "VLLM_USE_V1": False}, 16 * 2 * GIB),
        ("0.9.2", {"swap_space": 16, "VLLM_USE_V1": "0"}, 16 * 2 * GIB),
        ("0.17.1", {"swap_space": 16}, None),
        ("0.18.0", {"swap_space": 16}, None),
        (None, {"swap_space": 16}, None),
    ],
)
def test_swap_space_is_memory_on_v0_only(version, settings, size):
    found = segment(need(settings, version=version, ranks=2), "swap_space")
    assert (found and found["bytes"]) == size
    assert found is None or found["kind"] == "pinned"


def test_cpu_offload_is_pinned_for_each_gpu():
    found = segment(need({"cpu_offload_gb": 20}, ranks=2), "cpu_offload_gb")
    assert (found["kind"], found["bytes"]) == ("pinned", 40 * GIB)


@pytest.mark.parametrize(
    ("version", "kind"), [("0.12.0", "pinned"), ("0.26.0", "pinned"), ("0.27.0", "shm"), (None, "shm")]
)
def test_kv_offload_is_a_file_in_shm_from_0_27(version, kind):
    result = need({"kv_offloading_size": 50}, version=version)
    found = segment(result, "kv_offloading_size")
    assert (found["kind"], found["bytes"]) == (kind, 50 * GIB)
    assert result["shm_bytes"] == (50 * GIB if kind == "shm" else 0)


@pytest.mark.parametrize(
    ("config", "more", "kind", "size"),
    [
        ({"kv_connector": "LMCacheConnectorV1"}, {}, "pinned", 2 * 5 * GIB),
        (
            {"kv_connector": "LMCacheConnectorV1"},
            {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"},
            "pinned",
            2 * 20 * GIB,
        ),
        ({"kv_connector": "LMCacheConnectorV1"}, {"LMCACHE_LOCAL_CPU": "False"}, None, None),
        (
            {
                "kv_connector": "OffloadingConnector",
                "kv_connector_extra_config": {"cpu_bytes_to_use": 8 * GB},
            },
            {},
            "pinned",
            8 * GB,
        ),
        (
            {
                "kv_connector": "OffloadingConnector",
                "kv_connector_extra_config": {
                    "spec_name": "TieringOffloadingSpec",
                    "cpu_bytes_to_use": 8 * GB,
                },
            },
            {},
            "shm",
            8 * GB,
        ),
        (
            '{"kv_connector": "SimpleCPUOffloadConnector", "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 1000}}',
            {},
            "pinned",
            2000,
        ),
        ({"kv_connector": "NixlConnector"}, {}, None, None),
        ("not json", {}, None, None),
    ],
)
def test_connectors_with_a_pool(config, more, kind, size):
    result = need({"kv_transfer_config": config, **more}, ranks=2)
    found = segment(result, "kv_transfer_config") or segment(result, "LMCACHE_MAX_LOCAL_CPU_SIZE")
    assert (found and found["kind"], found and found["bytes"]) == (kind, size)


def test_the_cache_of_images_is_in_each_api_server_and_rank():
    settings = {"mm_processor_cache_gb": 4, "api_server_count": 3, "data_parallel_size": 2}
    assert segment(need(settings), "mm_processor_cache_gb")["bytes"] == 4 * 5 * GIB
    assert segment(need(multimodal=True), "mm_processor_cache_gb")["bytes"] == 8 * GIB
    assert segment(need(multimodal=False), "mm_processor_cache_gb") is None
    assert segment(need({"mm_processor_cache_gb": 0}, multimodal=True), "mm_processor_cache_gb") is None
    shared = need({**settings, "mm_processor_cache_type": "shm"})
    assert (segment(shared, "mm_processor_cache_gb")["kind"], shared["shm_bytes"]) == ("shm", 4 * GIB)
    assert any("takes no images" in said for said in need()["assumptions"])


def test_the_older_cache_of_images_is_in_two_processes():
    found = segment(need({"VLLM_MM_INPUT_CACHE_GIB": 8}, version="0.8.1"), "VLLM_MM_INPUT_CACHE_GIB")
    assert found["bytes"] == 16 * GIB


def test_sleep_mode_copies_the_weights():
    found = segment(need({"enable_sleep_mode": True}, model_bytes=16 * GB), "enable_sleep_mode")
    assert (found["kind"], found["bytes"]) == ("pinned", 16 * GB)


def test_settings_as_the_engine_gives_them():
    settings = {
        "cpu_offload_gb": {"value": 10.0, "from": "arg", "line": None},
        "mm_processor_cache_gb": {"value": 4.0, "from": "default", "line": None},
        "kv_offloading_size": {"value": None, "from": "arg", "line": None, "written": "$SIZE"},
    }
    result = need(settings)
    assert segment(result, "cpu_offload_gb")["bytes"] == 10 * GIB
    assert segment(result, "mm_processor_cache_gb") is None
    assert segment(result, "kv_offloading_size") is None


# -- /dev/shm


@pytest.mark.parametrize(
    ("version", "ranks", "single", "total"),
    [
        ((0, 27), 1, 0, 0),
        ((0, 27), 8, 240, 160 + 8 * (240 + 33) + 24),
        (None, 2, 240, 160 + 2 * (240 + 33) + 24),
        ((0, 10), 2, 160, 160 + 2 * (100 + 33) + 24),
        ((0, 9, 0), 2, 100, 100 + 2 * (100 + 33) + 24),
        ((0, 6), 2, 100, 100 + 2 * 33 + 24),
    ],
)
def test_what_the_workers_put_into_shm(version, ranks, single, total):
    assert host.shm_need(version, ranks) == (single * MIB, total * MIB)


def test_shm_counts_and_may_be_too_small():
    result = need(ranks=8, shm={"size_bytes": 64 * MIB, "memory_backed": True})
    assert result["shm_fits"] is False
    assert need(ranks=8, shm={"size_bytes": 16 * GIB, "memory_backed": True})["shm_fits"] is True
    assert need(ranks=8)["shm_fits"] is None
    on_disk = need(ranks=8, shm={"memory_backed": False})
    assert on_disk["need_bytes"] == result["need_bytes"] - result["shm_bytes"]


# -- the measured peak


def test_a_measured_use_beats_the_model():
    result = need(parameters=8, measured={"held": 5 * GIB, "peak": 30 * GIB})
    assert (result["by"], result["need_bytes"]) == ("measured", 5 * GIB)
    assert result["limit_bytes"] == 7 * GIB
    assert any("measured" in said for said in result["assumptions"])


def test_a_peak_with_page_cache_only_bounds_the_need():
    below = need({"kv_offloading_size": 100}, measured={"peak": 40 * GIB})
    assert (below["by"], below["need_bytes"]) == ("measured", 40 * GIB)
    above = need(measured={"peak": 400 * GIB})
    assert above["need_bytes"] == need()["need_bytes"]


def test_the_peak_of_a_killed_attempt_is_a_lower_bound():
    result = need(parameters=8, measured={"peak": 64 * GIB, "killed": True})
    assert result["need_bytes"] == 64 * GIB
    assert result["limit_bytes"] > 64 * GIB
    low = need(measured={"peak": 1 * GIB, "killed": True})
    assert low["need_bytes"] == need()["need_bytes"]


# -- cases that people reported (ids of the out-of-memory cases)


def test_case_llama4_scout_streamed_copies():
    # vllm-44430-runai-clone-retained: 218 GB x 4 workers of a host = ~800 GB; a 140 GB model takes ~560.
    told = {"load_format": "runai_streamer", "distributed_executor_backend": "ray", "tensor_parallel_size": 8}
    result = need(told, version="0.22.1rc1.dev26", model_bytes=218 * GB, parameters=109, ranks=4)
    assert 800 * GB < result["need_bytes"] < 1100 * GB
    assert need(told, version="0.21.0", model_bytes=218 * GB, ranks=4)["need_bytes"] < 200 * GB


def test_case_bin_shards_times_ranks():
    # vllm-322-bin-shards-times-ranks: 8 workers load a 9.8 GB file each at the same time.
    result = need({"tensor_parallel_size": 8}, version="0.2.0", pickled=True, largest_file=int(9.8 * GB))
    assert segment(result, "loader")["bytes"] == pytest.approx(78.4 * GB)


def test_case_sixteen_compilers():
    # vllm-54237-cicc-16-jobs: 91.5 GiB of compilers, vLLM itself under 5 GiB; two engines reached 187 GiB.
    result = need(version="0.28.0", builds_kernels=True, ranks=2)
    assert segment(result, "kernel_compile")["bytes"] == pytest.approx(91.5 * GIB, abs=16)
    assert any("MAX_JOBS" in said for said in result["assumptions"])
    bounded = need({"MAX_JOBS": 2}, builds_kernels=True)
    assert segment(bounded, "kernel_compile")["bytes"] < 12 * GIB


def test_case_offload_takes_twice_the_flag():
    # vllm-53042-kv-offload-192x: --kv-offloading-size 200 took 385 GiB of shared memory.
    found = segment(need({"kv_offloading_size": 200}, version="0.26.0", ranks=4), "kv_offloading_size")
    assert found["bytes"] <= 385 * GIB <= found["bytes"] + found["error"]


def test_case_default_swap_and_kv_on_a_small_cpu_machine():
    # kubeai-418-cpu-swap-and-kv: opt-125m on 7.75 GiB, killed: 4 GiB of swap space and 4 GiB of KV cache.
    result = need(version="0.7.2", accelerator="cpu", parameters=0.125, model_bytes=250 * 10**6)
    assert segment(result, "swap_space")["bytes"] == 4 * GIB
    assert segment(result, "kv_cache")["bytes"] == 4 * GIB
    assert result["need_bytes"] > 7.75 * GIB


def test_case_a_second_offload_region_does_not_fit_the_limit():
    # vllm-54002-shm-region-leak-crashloop: a region of 17.18 GB under a limit of 24Gi, a second beside it doesn't fit.
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 17.18 * GB},
    }
    result = need({"kv_transfer_config": config}, version="0.26.1rc1.dev77")
    assert result["shm_bytes"] == pytest.approx(17.18 * GB)
    assert result["need_bytes"] < 24 * GIB < result["need_bytes"] + result["shm_bytes"]


def test_case_growth_is_not_predicted_but_bounded_from_below():
    # vllm-50150-worker-rss-64gi: 64Gi were used up by a leak; the model alone says far less.
    told = {"tensor_parallel_size": 2}
    plain = need(told, version="0.24.0", parameters=31, model_bytes=31 * GB)
    killed = need(told, version="0.24.0", parameters=31, measured={"peak": 64 * GIB, "killed": True})
    assert plain["limit_bytes"] < 64 * GIB < killed["limit_bytes"]


def test_case_page_cache_is_not_need():
    # vllm-3035-page-cache-not-oom: 4 GiB anonymous, 28 GiB of files; nothing is short.
    result = need(parameters=7, measured={"held": 4 * GIB, "peak": 32 * GIB})
    assert result["need_bytes"] == 4 * GIB


# -- laws


_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "cpu_offload_gb": st.integers(0, 200),
        "kv_offloading_size": st.integers(0, 400),
        "swap_space": st.integers(0, 64),
        "api_server_count": st.integers(1, 8),
        "load_format": st.sampled_from(["auto", "pt", "runai_streamer", "tensorizer", "dummy", "x"]),
        "safetensors_load_strategy": st.sampled_from(["lazy", "eager", "prefetch"]),
        "enforce_eager": st.booleans(),
        "model_loader_extra_config": st.one_of(
            st.text(max_size=20), st.dictionaries(st.text(), st.integers())
        ),
    },
)
_VERSIONS = st.sampled_from([None, "0.2.0", "0.6.3", "0.8.5", "0.10.2", "0.18.0", "0.26.0", "0.33.0"])


@given(_SETTINGS, _VERSIONS, st.floats(0.1, 1000), st.integers(1, 16))
def test_the_result_is_consistent(settings, version, parameters, ranks):
    result = host.host_memory(settings, version, int(parameters * 2 * GB), parameters, ranks)
    assert result["need_bytes"] <= result["limit_bytes"]
    assert result["request_bytes"] <= result["limit_bytes"]
    assert result["limit_bounds"][0] <= result["limit_bounds"][1]
    assert result["need_bytes"] <= sum(i["bytes"] for i in result["segments"] if i["kind"] != "page_cache")
    assert all(item["kind"] in ("anonymous", "page_cache", "shm", "pinned") for item in result["segments"])
    assert all(item["bytes"] >= 0 and item["error"] >= 0 and item["why"] for item in result["segments"])


@given(_SETTINGS, _VERSIONS, st.integers(1, 15))
def test_more_workers_never_need_less(settings, version, ranks):
    few, many = (
        host.host_memory(settings, version, 16 * GB, 8, count)["need_bytes"] for count in (ranks, ranks + 1)
    )
    assert few <= many
