# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine import flags

FACTS = Path(__file__).resolve().parents[4] / "shared" / "domain" / "vllm-memory.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("-1", -1),
        ("32k", 32000),
        ("32K", 32768),
        ("25.6k", 25600),
        ("2g", 2 * 10**9),
        ("2G", 2**31),
        ("1.5m", 1500000),
        # vLLM rejects these (vllm-memory 5.3)
        ("1.5G", None),
        ("2Gi", None),
        ("4GB", None),
        ("many", None),
        ("", None),
    ],
)
def test_human_readable_int(text, expected):
    assert flags.human_readable_int(text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("length", "auto", -1),
        ("length", "1K", 1024),
        ("float", "0.95", 0.95),
        ("float", "a lot", None),
        ("int", "2.0", None),
        ("bool", "False", False),
        ("json", '{"image": 2}', {"image": 2}),
        ("json", "{'image': 2}", {"image": 2}),
        ("json", "image=10,video=1", {"image": 10, "video": 1}),
        ("json", "{num_speculative_tokens: 4, method: mtp}", {"num_speculative_tokens": 4, "method": "mtp"}),
        ("json", "mtp 3", None),
        ("level", "3", 3),
        ("level", '{"level": 3}', {"level": 3}),
        ("ints", "1,2,4", [1, 2, 4]),
        ("ints", "[1, 2]", [1, 2]),
        ("ints", "1,two", None),
        ("strings", '["a", "b"]', ["a", "b"]),
        ("strings", "a", ["a"]),
    ],
)
def test_read_value(kind, text, expected):
    assert flags.read_value(kind, text) == expected


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--max-model-len", "max_model_len"),
        ("--max_model_len", "max_model_len"),
        ("--gpu_memory-utilization", "gpu_memory_utilization"),
        ("-tp", "tensor_parallel_size"),
        ("-q", "quantization"),
        ("-cc", "compilation_config"),
        ("--device-memory-utilization", "gpu_memory_utilization"),
        ("--kv-cache-memory", "kv_cache_memory_bytes"),
        ("--gpu-mem", "gpu_memory_utilization"),
        ("--quant", "quantization"),
        ("--max-num", None),
        ("--no-such-thing", None),
        ("-x", None),
    ],
)
def test_find_option(flag, name):
    option = flags.find_option(flag)
    assert (option and option.name) == name


def test_names_and_spellings_are_unique():
    spellings = [flags.flag_of(option.name) for option in flags.OPTIONS]
    spellings += [spelling for option in flags.OPTIONS for spelling in option.spellings]
    assert len(spellings) == len(set(spellings))
    assert len(flags.BY_VARIABLE) == len(flags.VARIABLES)


def _table(section):
    text = FACTS.read_text(encoding="utf-8")
    body = text.split(f"\n### {section} ", 1)[1].split("\n### ", 1)[0]
    return [line for line in body.splitlines() if line.startswith("| `")]


@pytest.mark.skipif(not FACTS.exists(), reason="the shared facts are not beside this checkout")
def test_every_flag_of_the_facts_is_in_the_table():
    rows = [row.split("|")[1] for section in ("7.1", "7.2") for row in _table(section)]
    written = [flag for row in rows for flag in re.findall(r"`(--?[\w-]+)", row)]
    assert len(written) >= 70
    missing = [flag for flag in written if flag != "-O0" and not flags.find_option(flag)]
    assert not missing
    assert not [flag for flag in written if flag != "-O0" and not flags.find_option(flag).memory]


@pytest.mark.skipif(not FACTS.exists(), reason="the shared facts are not beside this checkout")
def test_every_variable_of_the_facts_is_kept():
    written = [
        name for row in _table("7.5") for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row.split("|")[1])
    ]
    assert len(written) > 25
    assert not [name for name in written if not flags.is_kept_variable(name)]
    assert not [name for name in written if name.startswith("VLLM_") and name not in flags.BY_VARIABLE]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("hf_token", True),
        ("HF_TOKEN", True),
        ("VLLM_API_KEY", True),
        ("s3_secret_access_key", True),
        ("s3_access_key_id", True),
        ("password", True),
        ("max_num_batched_tokens", False),
        ("tokenizer", False),
        ("ssl_keyfile", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("mm_shm_cache_max_object_size_mb", False),
    ],
)
def test_is_secret(name, secret):
    assert flags.is_secret(name) is secret


def test_secrets_are_hidden_wherever_they_stand():
    value = {
        "uri": "s3://user:pass@host/bucket",
        "auth": {"s3_secret_access_key": "abc"},
        "list": ["redis://:pw@r/0"],
    }
    shown = str(flags.without_secrets("model_loader_extra_config", value))
    assert "pass" not in shown
    assert "abc" not in shown
    assert ":pw" not in shown
    assert "host/bucket" in shown
