# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import (
    engine_accelerator,
    engine_generation,
    engine_settings,
    uses_v2_runner,
    value_of,
)


def _settings(args, command=("vllm", "serve"), env=None, **more):
    env = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return engine_settings(list(command), args, env, defaults=False, **more)


def _values(*args, **more):
    return {name: setting["value"] for name, setting in _settings(*args, **more).items()}


# Every class of spelling in workload-kinds section 5 and the issue.
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--max-num-seqs", "256"], {"max_num_seqs": 256}),
        (["--max-num-seqs=256"], {"max_num_seqs": 256}),
        (["--max_num_seqs", "256"], {"max_num_seqs": 256}),
        (["--max-num_seqs=256"], {"max_num_seqs": 256}),
        (["--max-num-seqs 256"], {"max_num_seqs": 256}),
        (["max_num_seqs=256"], {"max_num_seqs": 256}),
        (["--max-num-seqs", "128", "--max-num-seqs=256"], {"max_num_seqs": 256}),
        (["-tp", "2"], {"tensor_parallel_size": 2}),
        (["-tp=2"], {"tensor_parallel_size": 2}),
        (
            ["-q", "awq", "-pp", "2", "-dp", "4"],
            {"quantization": "awq", "pipeline_parallel_size": 2, "data_parallel_size": 4},
        ),
        (["--tensor-para", "2"], {"tensor_parallel_size": 2}),
        (["--kv-cache-memory=2g"], {"kv_cache_memory_bytes": 2 * 10**9}),
        (["--kv-cache-memory-bytes", "2G"], {"kv_cache_memory_bytes": 2 << 30}),
        (["--max-model-len", "32k"], {"max_model_len": 32000}),
        (["--max-model-len", "1K"], {"max_model_len": 1024}),
        (["--max-model-len", "auto"], {"max_model_len": -1}),
        (["--max-model-len", "-1"], {"max_model_len": -1}),
        (["--gpu-memory-utilization", ".9"], {"gpu_memory_utilization": 0.9}),
        (["--enforce-eager"], {"enforce_eager": True}),
        (["--no-enforce-eager"], {"enforce_eager": False}),
        (["--enforce-eager", "--no-enforce-eager"], {"enforce_eager": False}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--no_enable_prefix_caching"], {"enable_prefix_caching": False}),
        (["--enable-chunked-prefill=False"], {"enable_chunked_prefill": False}),
        (["--enable-chunked-prefill", "false", "--seed", "1"], {"enable_chunked_prefill": False, "seed": 1}),
        (["enable_sleep_mode"], {"enable_sleep_mode": True}),
        (
            ["--limit-mm-per-prompt", '{"image": 2, "video": 0}'],
            {"limit_mm_per_prompt": {"image": 2, "video": 0}},
        ),
        (["--limit-mm-per-prompt", "image=2,video=0"], {"limit_mm_per_prompt": {"image": 2, "video": 0}}),
        (
            ["--limit-mm-per-prompt.image", "2", "--limit_mm_per_prompt.video=0"],
            {"limit_mm_per_prompt": {"image": 2, "video": 0}},
        ),
        (["--limit-mm-per-prompt.image.count", "2"], {"limit_mm_per_prompt": {"image": {"count": 2}}}),
        (["limit_mm_per_prompt={'image':2,'video':0}"], {"limit_mm_per_prompt": {"image": 2, "video": 0}}),
        (["-O3"], {"optimization_level": 3}),
        (["-O", "3"], {"optimization_level": 3}),
        (["-O=3"], {"optimization_level": 3}),
        (["--compilation-config", "3"], {"optimization_level": 3}),
        (["--optimization-level", "3"], {"optimization_level": 3}),
        (["-O.cudagraph_mode=NONE"], {"compilation_config": {"cudagraph_mode": "NONE"}}),
        (["-cc.cudagraph_mode", "NONE"], {"compilation_config": {"cudagraph_mode": "NONE"}}),
        (['-O{"cudagraph_mode": "NONE"}'], {"compilation_config": {"cudagraph_mode": "NONE"}}),
        (["-cc", '{"cudagraph_mode": "NONE"}'], {"compilation_config": {"cudagraph_mode": "NONE"}}),
        (["-cc.sizes+", "1,2", "-cc.sizes+=4"], {"compilation_config": {"sizes": ["1", "2", "4"]}}),
        (
            ["--cudagraph-capture-sizes", "1", "2", "4", "--seed", "0"],
            {"cudagraph_capture_sizes": [1, 2, 4], "seed": 0},
        ),
        (["--served-model-name", "a", "b"], {"served_model_name": ["a", "b"]}),
        (
            ["--speculative-config {num_speculative_tokens: 4}"],
            {"speculative_config": {"num_speculative_tokens": 4}},
        ),
        (['--speculative-config={"method": "mtp"}'], {"speculative_config": {"method": "mtp"}}),
        (["--gpu-memory-utilization 0.9 (default)"], {"gpu_memory_utilization": 0.9}),
        (
            ["--some-new-switch", "--some-new-size", "3", "--no-some-thing"],
            {"some_new_switch": True, "some_new_size": 3, "some_thing": False},
        ),
        (["VLLM_ATTENTION_BACKEND=FLASHINFER"], {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
        (["meta/llama"], {"model": "meta/llama"}),
        (["--seed", "1", "meta/llama"], {"seed": 1, "model": "meta/llama"}),
        (["--model", "meta/llama"], {"model": "meta/llama"}),
        (["--model=other", "meta/llama"], {"model": "meta/llama"}),
        ([], {}),
    ],
)
def test_spellings(args, expected):
    assert _values(args) == expected


@pytest.mark.parametrize(
    ("args", "name", "written"),
    [
        (["--kv-cache-memory-bytes", "2Gi"], "kv_cache_memory_bytes", "2Gi"),
        (["--max-model-len", "~250000"], "max_model_len", "~250000"),
        (["--max-model-len", "$(LEN)"], "max_model_len", "$(LEN)"),
        (["${MODEL}"], "model", "${MODEL}"),
        (["--speculative-config", "mtp"], "speculative_config", "mtp"),
        (["--cudagraph-capture-sizes", "1", "many"], "cudagraph_capture_sizes", "1 many"),
        (["--max-model-len"], "max_model_len", ""),
    ],
)
def test_what_cannot_be_read_is_kept_as_written(args, name, written):
    assert _settings(args)[name] == {"value": None, "from": "arg", "line": None, "written": written}


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (
            ["python3", "-m", "huggingfaceserver"],
            ["--model_id=m", "--model_name=n", "--max_model_len=8"],
            {"model": "m", "served_model_name": ["n"], "max_model_len": 8},
        ),
        (["python3", "-m", "huggingfaceserver"], ["--model_dir", "/mnt/models"], {"model": "/mnt/models"}),
        (
            ["python3", "-m", "dynamo.vllm"],
            ["--model", "m", "--is-prefill-worker"],
            {"model": "m", "is_prefill_worker": True},
        ),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model", "m", "stray"], {"model": "m"}),
        (["/entrypoint.sh"], ["--model", "m", "--unrelated", "1"], {"model": "m"}),
    ],
)
def test_other_command_lines(command, args, expected):
    assert _values(args, command=command) == expected


def test_nim_variables():
    env = {"NIM_MODEL_PATH": "hf://m", "NIM_MAX_MODEL_LEN": "8192", "NIM_PASSTHROUGH_ARGS": "-tp 2 --seed 1"}
    found = _settings(["--seed", "2"], command=(), env=env)
    assert found["model"] == {"value": "hf://m", "from": "env", "line": None}
    assert {name: found[name]["value"] for name in ("max_model_len", "tensor_parallel_size", "seed")} == {
        "max_model_len": 8192,
        "tensor_parallel_size": 2,
        "seed": 2,
    }


def test_environment():
    env = {
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1",
        "VLLM_USE_V1": "0",
        "VLLM_CPU_KVCACHE_SPACE": "40",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_DEBUG": "INFO",
        "MAX_JOBS": "4",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "soon",
        "MY_DATABASE": "x",
    }
    found = _settings([], env=env)
    assert {name: setting["value"] for name, setting in found.items()} == {
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": True,
        "VLLM_USE_V1": False,
        "VLLM_CPU_KVCACHE_SPACE": 40.0,
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_DEBUG": "INFO",
        "MAX_JOBS": 4,
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": None,
    }
    assert found["VLLM_ENGINE_READY_TIMEOUT_S"]["written"] == "soon"


def test_environment_that_a_script_sets():
    found = _values(["export VLLM_USE_V1=0 X=1; NCCL_DEBUG=INFO vllm serve m"], command=("sh", "-c"))
    assert found == {"VLLM_USE_V1": False, "NCCL_DEBUG": "INFO", "model": "m"}


CONFIG = {
    "model": "m",
    "max-model-len": "32k",
    "tensor_parallel_size": 2,
    "gpu-memory-utilization": 1,
    "enforce-eager": False,
    "limit-mm-per-prompt": {"image": 1},
    "served-model-name": "n",
    "kv-cache-memory-bytes": "2Gi",
    "new-option": "x",
    "compilation-config": 3,
    "seed": None,
}


@pytest.mark.parametrize("config", [CONFIG, {"vllm": CONFIG, "max_probe_steps": 6}])
def test_config_file(config):
    found = _settings([], config=config)
    assert {name: setting["value"] for name, setting in found.items()} == {
        "model": "m",
        "max_model_len": 32000,
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 1.0,
        "enforce_eager": False,
        "limit_mm_per_prompt": {"image": 1},
        "served_model_name": ["n"],
        "kv_cache_memory_bytes": None,
        "new_option": "x",
        "optimization_level": 3,
    }
    assert {setting["from"] for setting in found.values()} == {"config"}


def test_what_wins():
    log = [{"line": 7, "text": "non-default args: {'max_num_seqs': 1, 'max_model_len': 100}"}]
    config = {"max_num_seqs": 3, "max_model_len": 3, "block_size": 3, "seed": 3}
    found = engine_settings(
        ["vllm", "serve"],
        ["--max-num-seqs", "2", "--block-size", "2"],
        [{"name": "NIM_MAX_MODEL_LEN", "value": "4"}, {"name": "NIM_TENSOR_PARALLEL_SIZE", "value": "4"}],
        log_arguments=log,
        config=config,
        version="0.20.0",
    )
    assert found["max_num_seqs"] == {"value": 1, "from": "log", "line": 7}
    assert found["max_model_len"] == {"value": 100, "from": "log", "line": 7}
    assert found["block_size"] == {"value": 2, "from": "arg", "line": None}
    assert found["seed"] == {"value": 3, "from": "config", "line": None}
    assert found["tensor_parallel_size"] == {"value": 4, "from": "env", "line": None}
    assert found["gpu_memory_utilization"] == {"value": 0.92, "from": "default", "line": None}
    assert list(found) == sorted(found)


def test_the_arguments_as_given_count_more_than_what_the_engine_made_of_them():
    log = [
        {"line": 1, "text": "non-default args: {'max_model_len': -1}"},
        {"line": 2, "text": "Using max model len 40960"},
        {
            "line": 3,
            "text": "Initializing a V1 LLM engine (v0.20.0) with config: max_seq_len=40960, dtype=torch.half",
        },
        {"line": 4, "text": "Chunked prefill is enabled with max_num_batched_tokens=8192."},
    ]
    found = _settings([], log_arguments=log)
    assert (found["max_model_len"]["value"], found["max_model_len"]["line"]) == (-1, 1)
    assert (found["dtype"]["value"], found["dtype"]["line"]) == ("half", 3)
    assert found["max_num_batched_tokens"]["value"] == 8192


@pytest.mark.parametrize(
    ("image", "log", "utilization"),
    [
        ("vllm/vllm-openai:v0.19.1", [], 0.9),
        ("vllm/vllm-openai:v0.20.0", [], 0.92),
        ("vllm/vllm-openai:v0.19.1", ["vLLM server version 0.20.0, serving model m"], 0.92),
        ("vendor/image:1", [], None),
    ],
)
def test_defaults_follow_the_version(image, log, utilization):
    found = engine_settings(["vllm", "serve", "m"], [], [], image=image, log_arguments=log)
    assert value_of(found, "gpu_memory_utilization") == utilization
    assert found["tensor_parallel_size"] == {"value": 1, "from": "default", "line": None}


def test_defaults_that_need_facts():
    facts = {"gpu_memory_bytes": 24 << 30, "accelerator": "cuda"}
    found = engine_settings(["vllm", "serve", "m"], [], [], version="0.11.0", facts=facts)
    assert (found["max_num_seqs"]["value"], found["max_num_batched_tokens"]["value"]) == (256, 2048)
    assert found["block_size"]["value"] == 16
    assert "max_num_seqs" not in engine_settings(["vllm", "serve", "m"], [], [], version="0.11.0")


def test_v0_by_switch_has_v0_defaults():
    found = engine_settings(["vllm", "serve"], [], [{"name": "VLLM_USE_V1", "value": "0"}], version="0.9.2")
    assert (found["enable_prefix_caching"]["value"], found["max_num_seqs"]["value"]) == (False, 256)


def test_no_secret_gets_out():
    env = {
        "HF_TOKEN": "hf_abc",
        "VLLM_API_KEY": "sk-abc",
        "NGC_API_KEY": "ng-abc",
        "HTTPS_PROXY": "http://u:pw-abc@p",
    }
    args = [
        "s3://key:pw-abc@bucket/m",
        "--api-key",
        "sk-abc",
        "--hf-token=hf_abc",
        "--my-password",
        "pw-abc",
        "--model-loader-extra-config",
        '{"s3_secret_access_key": "sec-abc", "endpoint": "https://u:pw-abc@s3"}',
    ]
    log = ["non-default args: {'api_key': ['sk-abc'], 'hf_token': 'hf_abc'}"]
    for found in (_settings(args, env=env), _settings(args, env=env, log_arguments=log)):
        assert "abc" not in json.dumps(found)
        assert found["api_key"]["value"] == "***"
        assert found["HF_TOKEN"]["value"] == "***"


@pytest.mark.parametrize(
    ("version", "env", "log", "expected"),
    [
        ("0.9.2", {}, [{"text": "Initializing a V0 LLM engine (v0.9.2) with config: x=1"}], "V0"),
        ("0.7.3", {}, [{"text": "Initializing a V1 LLM engine (v0.7.3) with config: x=1"}], "V1"),
        ("0.7.0", {}, [{"text": "Initializing an LLM engine (v0.7.0)", "process": "EngineCore_0"}], "V1"),
        ("0.9.2", {"VLLM_USE_V1": "0"}, [], "V0"),
        ("0.9.2", {}, [], "V1"),
        (None, {}, [], None),
    ],
)
def test_engine_generation(version, env, log, expected):
    assert engine_generation(version, _settings([], env=env), log) == expected


@pytest.mark.parametrize(
    ("version", "env", "log", "expected"),
    [
        ("0.21.0", {}, [], False),
        ("0.21.0", {"VLLM_USE_V2_MODEL_RUNNER": "1"}, [], True),
        ("0.30.0", {"VLLM_USE_V2_MODEL_RUNNER": "0"}, [], False),
        ("0.10.0", {"VLLM_USE_V2_MODEL_RUNNER": "1"}, [], False),
        ("0.24.0", {}, ["Using V2 Model Runner"], True),
        (
            "0.30.0",
            {},
            [
                "Using V2 Model Runner",
                "Model Runner V2 does not yet support x; using the V1 model runner instead.",
            ],
            True,
        ),
        ("0.30.0", {}, ["Model Runner V2 does not yet support x; using the V1 model runner instead."], False),
        ("0.24.0", {}, [], None),
    ],
)
def test_uses_v2_runner(version, env, log, expected):
    assert uses_v2_runner(version, _settings([], env=env), log) is expected


# Any spelling of the same flags gives the same settings.
OPTIONS = {
    "max_num_seqs": st.integers(1, 4096),
    "max_model_len": st.integers(1, 10**6),
    "gpu_memory_utilization": st.sampled_from([0.5, 0.85, 0.9, 0.925]),
    "tensor_parallel_size": st.integers(1, 16),
    "quantization": st.sampled_from(["awq", "gptq", "fp8"]),
    "enforce_eager": st.booleans(),
    "enable_prefix_caching": st.booleans(),
    "served_model_name": st.lists(
        st.text("abc-/ ", min_size=1).filter(lambda text: text[0] in "abc"), min_size=1, max_size=3
    ),
    "limit_mm_per_prompt": st.dictionaries(
        st.sampled_from(["image", "video"]), st.integers(0, 9), min_size=1
    ),
    "cudagraph_capture_sizes": st.lists(st.integers(1, 512), min_size=1, max_size=4),
}
SHORT = {"tensor_parallel_size": "-tp", "quantization": "-q"}


@st.composite
def _spelled(draw, name, value):
    """The items of one flag in one of its spellings."""
    flag = "--" + (name if draw(st.booleans()) else name.replace("_", "-"))
    if isinstance(value, bool):
        return [flag] if value else [flag.replace("--", "--no-" if "-" in flag[2:] else "--no_", 1)]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    if isinstance(value, dict):
        dotted = [f"{flag}.{key}={inner}" for key, inner in value.items()]
        apart = [part for key, inner in value.items() for part in (f"{flag}.{key}", str(inner))]
        return draw(
            st.sampled_from([[flag, json.dumps(value)], [f"{flag}={json.dumps(value)}"], dotted, apart])
        )
    if name in SHORT and draw(st.booleans()):
        flag = SHORT[name]
    text = str(value)
    if name == "max_model_len" and value % 1000 == 0:
        text = f"{value // 1000}k"
    return draw(st.sampled_from([[flag, text], [f"{flag}={text}"]]))


@st.composite
def _engines(draw):
    """(command, args, env, the settings that they mean)."""
    meant = draw(st.fixed_dictionaries({}, optional=OPTIONS))
    flags = []
    for name in draw(st.permutations(sorted(meant))):
        if draw(st.booleans()) and not isinstance(meant[name], (dict, list)):
            flags.append(draw(_spelled(name, draw(OPTIONS[name]))))
        flags.append(draw(_spelled(name, meant[name])))
    words = ["m", *(word for flag in flags for word in flag)]
    shape = draw(st.sampled_from(["list", "shell", "positional", "variable", "image"]))
    if shape == "list":
        return ["vllm"], ["serve", *words], {}, meant
    if shape == "image":
        return None, words, {}, meant
    if shape == "positional":
        return ["sh", "-c", 'exec vllm serve "$@"', "--"], words, {}, meant
    if shape == "variable":
        env = {f"A{index}": word for index, word in enumerate(words)}
        return ["vllm", "serve"], [f"$({name})" for name in env], env, meant
    return ["bash", "-c"], ["vllm serve " + " \\\n  ".join(map(shlex.quote, words)) + " | tee x"], {}, meant


@given(_engines())
def test_any_spelling_of_the_same_flags_gives_the_same_settings(engine):
    command, args, env, meant = engine
    assert _values(args, command=command or (), env=env) == {"model": "m", **meant}


@given(
    st.lists(st.text("-=.{}'\"$ \\abO0,:"), max_size=6),
    st.lists(st.text("-=.{}'\"$()`\\;|<>&\n ab@*:"), max_size=2),
)
def test_no_input_is_a_traceback(args, scripts):
    assert isinstance(_settings(args), dict)
    assert isinstance(_settings(scripts, command=("sh", "-c")), dict)
    assert isinstance(_settings([], log_arguments=[f"non-default args: {text}" for text in args]), dict)


@pytest.mark.parametrize(
    ("lines", "accelerator"),
    [
        (["INFO 11-18 [__init__.py:216] Automatically detected platform cpu."], "cpu"),
        (["Automatically detected platform cuda."], "cuda"),
        (["Platform plugin ascend is activated"], "npu"),
        (["Initializing a V0 LLM engine (v0.7.2) with config: model='m', device_config=cpu, seed=0"], "cpu"),
        (["Automatically detected platform cuda.", "Platform plugin ascend is activated"], "npu"),
        (["vLLM API server version 0.11.0"], None),
        ([], None),
    ],
)
def test_accelerator_by_the_engines_own_word(lines, accelerator):
    assert engine_accelerator(lines) == accelerator
