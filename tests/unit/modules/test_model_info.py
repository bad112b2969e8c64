# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: where it looks, what it returns, and that the token is in nothing it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.recorded_hub import RecordedHub, unused_port

from ansible_collections.vllm_runbook.oom.plugins.modules import model_info

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "hf_QzR4vT9wLkPmNbXcJdYsEaUg"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "transformers_version": "4.57.0",
}


@pytest.fixture
def hub():
    with RecordedHub(TOKEN).running() as running:
        running.add("org/plain", {"model.safetensors": 700}, config__json=CONFIG)
        running.add("org/gated", config__json=CONFIG)
        running.gated.add("org/gated")
        yield running


def run(tmp_path, environment=None, **options):
    """(exit status, result) of the module with ``options``, in a process of its own; nothing of this host's cache."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS"))
    }
    done = subprocess.run(
        [sys.executable, "-m", model_info.__name__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": options}),
        env={
            **kept,
            "PYTHONPATH": str(ROOT / ".ansible" / "collections"),
            "HF_HOME": str(tmp_path / "home"),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def model(tmp_path, **options):
    status, result = run(tmp_path, **options)
    assert (status, result.get("msg")) == (0, None)
    assert result["changed"] is False
    return result["model"]


def failure(tmp_path, **options):
    status, result = run(tmp_path, **options)
    assert (status, result["failed"]) == (1, True)
    return result["msg"]


def test_a_model_of_the_table(tmp_path):
    found = model(tmp_path, model="meta-llama/Llama-3.1-8B-Instruct", _ansible_check_mode=True)
    assert found.pop("config")["num_hidden_layers"] == 32
    assert found.pop("architecture")["layers"][0]["attention"]["kv_heads"] == 8
    assert found == {
        "schema": "vllm_runbook.oom/model/v1",
        "name": "meta-llama/Llama-3.1-8B-Instruct",
        "source": "table",
        "location": "meta-llama/Llama-3.1-8B-Instruct",
        "revision": None,
        # 8.03 billion, by the model card; a token uses all of them but the embedding.
        "parameters": {"total": 8030261248, "active": 7504928768, "billions": 8.03},
        "files": [],
        "checkpoint_bytes": None,
        "largest_file_bytes": None,
        "pickled": None,
        "quantization": "none",
        "quantization_guessed": False,
        "max_model_len": 131072,
        "assumptions": [],
    }


def test_a_quantization_by_name_alone_is_said_to_be_guessed(tmp_path):
    found = model(tmp_path, model="someone/Llama-3.1-8B-Instruct-FP8")
    assert (found["quantization"], found["quantization_guessed"]) == ("fp8", True)
    assert model(tmp_path, model="Qwen/Qwen3-30B-A3B-FP8")["quantization_guessed"] is False


def test_a_given_config_goes_first(tmp_path, hub):
    found = model(tmp_path, model="org/plain", config=CONFIG, hf_endpoint=hub.url)
    assert (found["source"], found["name"], found["location"]) == ("given", "org/plain", None)
    assert "transformers_version" not in found["config"]
    assert model(tmp_path, config=CONFIG)["name"] is None
    assert hub.requests == []


def test_a_directory_goes_before_the_table(tmp_path):
    directory = tmp_path / "Qwen3-8B"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "model.safetensors").write_bytes(bytes(100))
    found = model(tmp_path, model=str(directory))
    assert (found["source"], found["location"]) == ("directory", str(directory))
    assert (found["checkpoint_bytes"], found["max_model_len"]) == (100, 2048)
    assert model(tmp_path, model=str(directory / "config.json"))["source"] == "file"


def test_a_path_of_a_container_is_looked_up_by_its_name(tmp_path):
    found = model(tmp_path, model="/models/Qwen3-8B", offline=True)
    assert (found["source"], found["location"]) == ("table", "Qwen/Qwen3-8B")
    assert found["assumptions"] == ["models/Qwen3-8B is taken for a copy of Qwen/Qwen3-8B"]


def test_the_cache_goes_before_the_table(tmp_path):
    repository = tmp_path / "home" / "hub" / "models--Qwen--Qwen3-8B"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc" / "config.json").write_text(json.dumps(CONFIG))
    found = model(tmp_path, model="Qwen/Qwen3-8B")
    assert (found["source"], found["revision"], found["max_model_len"]) == ("cache", "abc", 2048)
    assert model(tmp_path, model="Qwen/Qwen3-8B", source="table")["max_model_len"] == 40960


def test_what_isnt_in_the_table_is_asked_for(tmp_path, hub):
    for more in ({"hf_endpoint": hub.url}, {"environment": {"HF_ENDPOINT": hub.url}}):
        found = model(tmp_path, model="org/plain", **more)
        assert (found["source"], found["location"]) == ("endpoint", f"{hub.url}/org/plain")
        assert found["files"] == [{"name": "model.safetensors", "bytes": 700}]
    assert model(tmp_path, model="hf://org/plain", hf_endpoint=hub.url)["source"] == "endpoint"


def test_the_endpoint_for_a_model_of_the_table(tmp_path, hub):
    hub.add("Qwen/Qwen3-8B", config__json=CONFIG)
    assert model(tmp_path, model="Qwen/Qwen3-8B", hf_endpoint=hub.url)["source"] == "table"
    assert hub.requests == []
    options = {"model": "Qwen/Qwen3-8B", "hf_endpoint": hub.url}
    assert model(tmp_path, source="endpoint", **options)["max_model_len"] == 2048
    hub.revisions.add("v2")
    assert model(tmp_path, revision="v2", **options)["source"] == "endpoint"


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_a_token_of_the_environment(tmp_path, hub, variable):
    hub.granted = True
    options = {"model": "org/gated", "hf_endpoint": hub.url}
    assert model(tmp_path, environment={variable: TOKEN}, **options)["source"] == "endpoint"
    assert f"Bearer {TOKEN}" in {shown for _path, shown in hub.requests}
    assert "gated" in failure(tmp_path, environment={variable: ""}, **options)


@pytest.mark.parametrize(
    ("environment", "is_offline"),
    [
        ({"HF_HUB_OFFLINE": "1"}, True),
        ({"TRANSFORMERS_OFFLINE": "YES"}, True),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "ON"}, True),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"HF_HUB_OFFLINE": ""}, False),
        ({"HF_HUB_OFFLINE": "never"}, False),
    ],
)
def test_the_offline_flag_of_the_environment(tmp_path, hub, environment, is_offline):
    options = {"environment": environment, "model": "org/plain", "hf_endpoint": hub.url}
    if is_offline:
        assert "hf_endpoint with offline=false" in failure(tmp_path, **options)
        assert hub.requests == []
    else:
        assert model(tmp_path, **options)["source"] == "endpoint"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "org/absent-7b"}, "has no model org/absent-7b, or it is private and needs hf_token"),
        (
            {"model": "Qwen/Qwen-3-8B"},
            "has no model Qwen/Qwen-3-8B, or it is private and needs hf_token; the nearest that are known: Qwen/Qwen3-8B",
        ),
        ({"model": "Qwen/Qwen-3-8B", "offline": True}, "isn't in the bundled table; the nearest that are known: Qwen/Qwen3-8B"),
        ({"model": "org/absent-7b", "offline": True}, "vllm_oom_model_config or vllm_oom_hf_endpoint in the playbooks"),
        ({"model": "org/gated"}, "org/gated is gated at"),
        ({"model": "org/gated", "hf_token": TOKEN}, "accept its terms with the account of hf_token"),
        ({"model": "org/plain", "revision": "v9"}, "has no revision v9"),
        ({"model": "org/plain", "source": "table"}, "the bundled table doesn't have org/plain"),
        ({"model": "org/plain", "source": "cache"}, "the Hugging Face cache of this host doesn't have org/plain"),
        ({"model": "/models/absent"}, "there is no file or directory /models/absent here"),
        ({"model": "s3://bucket/absent"}, "s3://bucket/absent is no repository"),
        ({"model": " "}, "model is empty"),
        ({}, "one of the following is required: model, config"),
        ({"config": {"hidden_size": 64}}, "config: the config names no number of layers (num_hidden_layers); give"),
        ({"config": {}}, "names no number of layers"),
        ({"config": dict(CONFIG, num_hidden_layers="36")}, 'config: num_hidden_layers is "36"; the number of layers is'),
        ({"model": "org/plain", "source": "web"}, "value of source must be one of"),
        ({"model": "org/plain", "timeout": "soon"}, "timeout"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_sentence(tmp_path, hub, options, words):
    assert words in failure(tmp_path, **{"hf_endpoint": hub.url, **options})


def test_a_config_without_layers_says_where_it_is(tmp_path, hub):
    hub.add("org/other", config__json={"hidden_size": 64})
    message = failure(tmp_path, model="org/other", hf_endpoint=hub.url)
    assert message.startswith(f"{hub.url}/org/other: the config names no number of layers")


@pytest.mark.parametrize("is_in_environment", [False, True])
def test_no_verbosity_shows_a_secret(tmp_path, hub, is_in_environment):
    """With -vvvv Ansible prints the options, the result, and all that passes between the two."""
    url = hub.url.replace("://", "://mirror:s3cretpassw0rd@")
    options = {}
    environment = {}
    if is_in_environment:
        environment = {"HF_TOKEN": TOKEN, "HF_ENDPOINT": url}
    else:
        options.update(hf_endpoint=url, hf_token=TOKEN)
    play = {"hosts": "localhost", "gather_facts": False, "tasks": []}
    # One that succeeds shows its options and result, one that fails its error.
    for name in ("org/plain", "org/gated"):
        play["tasks"].append({"vllm_runbook.oom.model_info": dict(options, model=name)})
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-vvvv", str(tmp_path / "play.yml")],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOG_PATH": str(tmp_path / "ansible.log"),
            # As older ones always do.
            "ANSIBLE_INJECT_INVOCATION": "1",
            "HF_HOME": str(tmp_path),
            **environment,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "accept its terms with the account of hf_token" in done.stdout
    assert '"hf_endpoint"' in done.stdout or "hf_endpoint:" in done.stdout
    printed = [done.stdout, done.stderr, (tmp_path / "ansible.log").read_text()]
    for secret in (TOKEN, "s3cretpassw0rd"):
        lines = [line for text in printed for line in text.splitlines() if secret in line]
        assert lines == []


def test_a_proxy_of_the_environment_is_honoured(tmp_path):
    proxy = f"http://127.0.0.1:{unused_port()}"
    message = failure(
        tmp_path,
        environment={"http_proxy": proxy, "no_proxy": ""},
        model="org/plain",
        hf_endpoint="http://hub.example",
    )
    assert "refuses connections; look at hf_endpoint and the proxy" in message
