# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's config from files, directories, the cache and GGUF headers, and what is said when it isn't there."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path

import pytest
from support.users import as_nobody

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_files import (
    checkpoint,
    mistral_config,
    quantization_of,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_source import (
    CONFIG_LIMIT,
    INDEX_HEAD,
    ModelError,
    cache_directory,
    from_cache,
    from_path,
    is_repository,
    local_path,
    total_size,
)

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"


def write(directory, **files):
    """Files by name with dots as double underscores; a dict becomes JSON, a number that many bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, body in files.items():
        path = directory / name.replace("__", ".")
        if isinstance(body, int):
            with open(path, "wb") as file:
                file.truncate(body)
        else:
            path.write_bytes(json.dumps(body).encode() if isinstance(body, dict) else body)
    return directory


def test_a_directory_with_an_index(tmp_path):
    index = {"metadata": {"total_size": 1000}, "weight_map": {"a": "model-1.safetensors"}}
    write(
        tmp_path,
        config__json=CONFIG,
        model__safetensors__index__json=index,
        **{"model-1__safetensors": 700, "model-2__safetensors": 340, "consolidated__safetensors": 9000},
    )
    found = from_path(str(tmp_path))
    assert found == {
        "source": "directory",
        "location": str(tmp_path),
        "revision": None,
        "config": CONFIG,
        "assumptions": [],
        "files": [
            {"name": "model-1.safetensors", "bytes": 700},
            {"name": "model-2.safetensors", "bytes": 340},
        ],
        # By the index: what the files have beside tensors isn't counted.
        "checkpoint_bytes": 1000,
        "largest_file_bytes": 700,
        "pickled": False,
    }


def test_pickled_weights_are_said(tmp_path):
    write(tmp_path, config__json=CONFIG, pytorch_model__bin=500, training_args__bin=9, optimizer__pt=999)
    found = from_path(str(tmp_path))
    assert (found["checkpoint_bytes"], found["pickled"]) == (500, True)


def test_a_directory_with_a_config_only(tmp_path):
    found = from_path(str(write(tmp_path, config__json=CONFIG)))
    assert [found[key] for key in ("files", "checkpoint_bytes", "largest_file_bytes", "pickled")] == [
        [],
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        (
            "hf_quant_config__json",
            {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
            },
            {
                "producer": {"name": "modelopt"},
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "exclude_modules": ["lm_head"],
            },
        ),
        (
            "quantize_config__json",
            {"bits": 4, "group_size": 128},
            {"bits": 4, "group_size": 128, "quant_method": "gptq"},
        ),
        (
            "quant_config__json",
            {"w_bit": 4, "q_group_size": 128},
            {"w_bit": 4, "q_group_size": 128, "quant_method": "awq"},
        ),
    ],
)
def test_a_quantizers_own_file_counts_where_the_config_has_none(tmp_path, name, body, expected):
    write(tmp_path, config__json=CONFIG, **{name: body})
    assert from_path(str(tmp_path))["config"] == dict(CONFIG, quantization_config=expected)


@pytest.mark.parametrize("section", ["", "text_config"])
def test_the_configs_own_quantization_goes_first(section):
    own = {"quantization_config": {"quant_method": "fp8"}}
    config = dict(CONFIG, **({section: own} if section else own))
    assert quantization_of(config, {"hf_quant_config.json"}, pytest.fail) == config


def cache(tmp_path, name="meta-llama/Llama-3.1-8B"):
    """A repository as huggingface_hub keeps it: blobs, and links to them in the snapshot."""
    repository = tmp_path / "hub" / ("models--" + name.replace("/", "--"))
    snapshot = repository / "snapshots" / COMMIT
    write(repository / "blobs", one=CONFIG, two=1234)
    snapshot.mkdir(parents=True)
    os.symlink("../../blobs/one", snapshot / "config.json")
    os.symlink("../../blobs/two", snapshot / "model.safetensors")
    os.symlink("../../blobs/absent", snapshot / "tokenizer.json")
    write(repository / "refs", main=COMMIT.encode())
    return repository


def test_a_directory_of_the_cache(tmp_path):
    repository = cache(tmp_path)
    for path in (repository, repository / "snapshots" / COMMIT):
        found = from_path(str(path))
        assert (found["config"], found["checkpoint_bytes"]) == (CONFIG, 1234)
    found = from_path(str(repository))
    assert (found["source"], found["revision"]) == ("cache", COMMIT)


def test_a_model_in_the_cache_by_name(tmp_path):
    cache(tmp_path)
    environment = {"HF_HOME": str(tmp_path)}
    for revision in ("main", COMMIT):
        assert from_cache("meta-llama/Llama-3.1-8B", revision, environment)["source"] == "cache"
    assert from_cache("meta-llama/Llama-3.1-8B", "v2", environment) is None
    assert from_cache("meta-llama/Llama-3.1-70B", "main", environment) is None
    assert from_cache("meta-llama/Llama-3.1-8B", "../../../etc/passwd", environment) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_where_the_cache_is(environment, expected):
    assert cache_directory(environment) == expected


PARAMS = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 131072
}  # fmt: skip


def test_mistrals_params(tmp_path):
    write(tmp_path, params__json=PARAMS, consolidated__safetensors=4096)
    found = from_path(str(tmp_path))
    assert found["config"] == {
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 131072,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "max_position_embeddings": 128000,
    }
    assert found["checkpoint_bytes"] == 4096
    assert "128000" in found["assumptions"][0]


def test_mistrals_params_of_experts_and_towers():
    experts = mistral_config(
        dict(PARAMS, moe={"num_experts": 8, "num_experts_per_tok": 2}, max_seq_len=65536), []
    )
    assert (experts["architectures"], experts["num_local_experts"]) == (["MixtralForCausalLM"], 8)
    assert experts["max_position_embeddings"] == 65536
    vision = mistral_config(dict(PARAMS, vision_encoder={"hidden_size": 1024, "num_hidden_layers": 24}), [])
    assert vision["vision_config"]["hidden_size"] == 1024
    assert vision["text_config"]["hidden_size"] == 5120


def gguf(pairs, version=3, count=None):
    """The beginning of a GGUF file, by the format's own description (ggml, docs/gguf.md)."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def value(item):
        if isinstance(item, str):
            return struct.pack("<I", 8) + text(item)
        if isinstance(item, float):
            return struct.pack("<If", 6, item)
        if isinstance(item, list) and item and isinstance(item[0], str):
            return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(text(word) for word in item)
        if isinstance(item, list):
            return struct.pack(f"<IIQ{len(item)}I", 9, 4, len(item), *item)
        return struct.pack("<II", 4, item)

    body = b"".join(text(key) + value(item) for key, item in pairs.items())
    return struct.pack("<4sIQQ", b"GGUF", version, 0, len(pairs) if count is None else count) + body


QWEN = {
    "general.architecture": "qwen3moe",
    "general.file_type": 15,
    "qwen3moe.rope.freq_base": 1e6,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "qwen3moe.block_count": 48,
    "qwen3moe.embedding_length": 2048,
    "qwen3moe.attention.head_count": 32,
    "qwen3moe.attention.head_count_kv": [4, 4],
    "qwen3moe.expert_count": 128,
    "qwen3moe.context_length": 40960,
}


def test_a_gguf_file(tmp_path):
    path = write(tmp_path, model__gguf=gguf(QWEN) + bytes(100)) / "model.gguf"
    found = from_path(str(path))
    assert found["source"] == "file"
    assert found["config"] == {
        "model_type": "qwen3_moe",
        "vocab_size": 3,
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": [4, 4],
        "num_experts": 128,
        "max_position_embeddings": 40960,
        "quantization_config": {"quant_method": "gguf", "type": "q4_k_m"},
    }
    assert found["checkpoint_bytes"] == path.stat().st_size
    assert from_path(str(tmp_path))["config"] == found["config"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (gguf(QWEN)[:-3], "cut"),
        (gguf(QWEN, version=1), "version 1"),
        (gguf(QWEN, count=1 << 40), "too many"),
        (gguf({"general.name": "x"}), "general.architecture"),
        (b"GGUF", "cut"),
        (gguf({})[:-8] + struct.pack("<QQ", 1, 1 << 50), "a string of"),
    ],
)
def test_a_broken_gguf_file(tmp_path, body, words):
    path = write(tmp_path, model__gguf=body) / "model.gguf"
    with pytest.raises(ModelError, match=words):
        from_path(str(path))


def test_a_path_that_may_not_be_entered(tmp_path, monkeypatch):
    closed = str(tmp_path / "closed" / "model")
    stat = os.stat

    def refusing(path, *args, **kwargs):
        if str(path).startswith(str(tmp_path / "closed")) or path == "closed/model":
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refusing)
    for read in (local_path, from_path):
        with pytest.raises(ModelError, match=r"can't be read: Permission denied; .* directories above it"):
            read(closed)
    # The name of a repository is no path that somebody meant.
    assert local_path("closed/model") is None
    assert local_path("\0") is local_path("/" + 5000 * "x") is None


def test_where_there_is_nothing(tmp_path):
    with pytest.raises(ModelError, match=r"no file or directory .*absent; give the directory"):
        from_path(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no config.json; give the directory"),
        ({"a-Q4_K_M__gguf": 10, "b-Q8_0__gguf": 10}, "give one of its GGUF files, such as a-Q4_K_M.gguf"),
        (
            {"adapter_config__json": {"base_model_name_or_path": "Qwen/Qwen3-8B", "peft_type": "LORA"}},
            "adapter of Qwen/Qwen3-8B",
        ),
        ({"config__json": b"<!DOCTYPE html><html>"}, "web page"),
        ({"config__json": b"version https://git-lfs.github.com/spec/v1\n"}, "isn't JSON .*LFS"),
        ({"config__json": b'{"hidden_size": 64,'}, r"isn't JSON \(line 1"),
        ({"config__json": b"\xff\xfe\x00"}, "not UTF-8"),
        ({"config__json": b"[" * 100000}, "isn't JSON"),
        ({"config__json": b"[1, 2]"}, "JSON list"),
        ({"config__json": b"null"}, "JSON null"),
        ({"config__json": CONFIG_LIMIT + 2}, "larger than 16 MiB"),
    ],
)
def test_a_directory_without_a_model(tmp_path, files, words):
    with pytest.raises(ModelError, match=words):
        from_path(str(write(tmp_path / "model", **files)))


def test_a_revision_that_the_cache_lacks(tmp_path):
    with pytest.raises(ModelError, match="has no revision v2"):
        from_path(str(cache(tmp_path)), "v2")


def test_weights_are_no_config(tmp_path):
    path = write(tmp_path, model__safetensors=10) / "model.safetensors"
    with pytest.raises(ModelError, match="holds weights"):
        from_path(str(path))


def test_what_may_not_be_read():
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = write(Path(folder), config__json=CONFIG) / "config.json"
        path.chmod(0)
        with as_nobody(), pytest.raises(ModelError, match="Permission denied"):
            from_path(str(path))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{\n  "metadata": {\n    "total_size": 16060522496\n  },', 16060522496),
        (b'{"metadata":{"total_parameters":8,"total_size":16.0},', 16),
        (b'{"metadata": {}, "weight_map": {', None),
        (b'{"metadata": {"total_size": 160605', None),
        (b"", None),
    ],
)
def test_the_total_of_an_index_stands_at_its_beginning(head, expected):
    assert total_size(head) == expected
    assert len(head) < INDEX_HEAD


def test_sizes_that_arent_known_give_no_total():
    files = [{"name": "model.safetensors", "bytes": None}, {"name": "original/model.safetensors", "bytes": 5}]
    assert checkpoint(files)["checkpoint_bytes"] is None
    assert checkpoint(files)["files"] == files[:1]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Qwen/Qwen3-8B", True),
        ("gpt2", True),
        ("meta-llama/Llama-3.1-8B", True),
        ("/models/x", False),
        ("a/b/c", False),
        ("../x", False),
        ("org/..", False),
        ("models--org--name", False),
        ("s3://bucket/x", False),
        ("org/na me", False),
        ("", False),
    ],
)
def test_what_is_a_repository(name, is_one):
    assert is_repository(name) is is_one
