# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's config from a real server on loopback that answers, and refuses, as the Hugging Face Hub does."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from support.recorded_hub import COMMIT, RecordedHub, cut, drip, hang, unused_port

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_endpoint import Endpoint, shown
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_source import (
    CONFIG_LIMIT,
    ModelError,
)

TOKEN = "hf_QzR4vT9wLkPmNbXcJdYsEaUg"
CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
INDEX = {"metadata": {"total_size": 1000}, "weight_map": {f"layer.{i}": "x" for i in range(20000)}}


@pytest.fixture
def hub():
    with RecordedHub(TOKEN).running() as running:
        running.add(
            "org/plain",
            {"model-1.safetensors": 700, "model-2.safetensors": 340},
            config__json=CONFIG,
            model__safetensors__index__json=INDEX,
        )
        yield running


def read(hub, name="org/plain", revision="main", **options):
    return Endpoint(hub.url, **{"timeout": 5, **options}).model(name, revision)


def test_a_model(hub):
    assert read(hub) == {
        "source": "endpoint",
        "location": f"{hub.url}/org/plain",
        "revision": COMMIT,
        "config": CONFIG,
        "assumptions": [],
        "files": [
            {"name": "model-1.safetensors", "bytes": 700},
            {"name": "model-2.safetensors", "bytes": 340},
        ],
        "checkpoint_bytes": 1000,
        "largest_file_bytes": 700,
        "pickled": False,
    }
    assert [path for path, _token in hub.requests] == [
        "/org/plain/resolve/main/config.json",
        "/api/models/org/plain?blobs=true",
        "/org/plain/resolve/main/model.safetensors.index.json",
    ]


def test_a_mirror_that_lists_no_files(hub):
    hub.has_api = False
    found = read(hub)
    assert (found["config"], found["checkpoint_bytes"], found["files"]) == (CONFIG, 1000, [])
    assert "lists no files" in found["assumptions"][0]


@pytest.mark.parametrize("has_api", [True, False])
def test_a_quantizers_own_file(hub, has_api):
    hub.has_api = has_api
    hub.add("org/nvfp4", config__json=CONFIG, hf_quant_config__json={"quantization": {"quant_algo": "NVFP4"}})
    expected = {"quant_algo": "NVFP4", "quant_method": "modelopt"}
    assert read(hub, "org/nvfp4")["config"] == dict(CONFIG, quantization_config=expected)


@pytest.mark.parametrize("has_api", [True, False])
def test_mistrals_format(hub, has_api):
    hub.has_api = has_api
    hub.add("org/mistral", params__json={"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128})
    assert read(hub, "org/mistral")["config"]["hidden_size"] == 64


def test_a_revision_with_a_slash(hub):
    hub.revisions.add("refs/pr/1")
    assert read(hub, revision="refs/pr/1")["config"] == CONFIG
    assert hub.requests[0][0] == "/org/plain/resolve/refs%2Fpr%2F1/config.json"
    assert hub.requests[1][0] == "/api/models/org/plain/revision/refs%2Fpr%2F1?blobs=true"


def test_a_gated_model_with_a_token_that_may_read_it(hub):
    hub.gated.add("org/plain")
    hub.granted = True
    assert read(hub, token=TOKEN)["config"] == CONFIG


def test_the_token_isnt_shown_to_where_the_endpoint_redirects(hub):
    with RecordedHub(TOKEN).running() as elsewhere:
        elsewhere.faults["config.json"] = lambda handler: handler.answer(200, json.dumps(CONFIG).encode())
        hub.moved.add("config.json")
        hub.elsewhere = elsewhere.url
        assert read(hub, token=TOKEN)["config"] == CONFIG
        assert elsewhere.requests == [("/signed/org/plain/config.json?X-Amz-Signature=abc", None)]
    assert hub.requests[0][1] == f"Bearer {TOKEN}"


def test_the_token_stays_where_a_repository_was_renamed(hub):
    hub.gated.add("org/plain")
    hub.granted = True
    hub.faults["/old/name/resolve/main/config.json"] = lambda handler: handler.answer(
        307, Location="/org/plain/resolve/main/config.json"
    )
    assert read(hub, "old/name", token=TOKEN)["config"] == CONFIG


def answering(status, body=b"", **headers):
    return lambda handler: handler.answer(status, body, **headers)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            answering(429, Retry_After="37"),
            "too many requests (429); try again in 37 seconds, or give hf_token",
        ),
        (answering(429), "too many requests (429); try again later"),
        (answering(503, X_Error_Message="Maintenance"), "has a fault (503: Maintenance); try again later"),
        (answering(418), "answers 418 for org/plain; look at hf_endpoint"),
        (
            answering(403, X_Error_Message="Disabled"),
            "refuses org/plain (403: Disabled); hf_token needs the right",
        ),
        (answering(200, b"<html>Log in</html>"), "is a web page, not JSON; a proxy or a login page"),
        (answering(200, b'{"hidden_size": '), "isn't JSON (line 1"),
        (answering(200, b"[]"), "holds a JSON list"),
        (answering(200, b" " * (CONFIG_LIMIT + 5)), "is larger than 16 MiB"),
        (cut, "can't be read (the answer ends after 15 of 1000 bytes)"),
        (
            answering(302, Location="/org/plain/resolve/main/config.json"),
            "redirects more than 5 times, at last to",
        ),
        (
            answering(302, Location="file:///etc/passwd"),
            "redirects to file:///etc/passwd, which isn't http or https",
        ),
        (answering(302, Location="http://127.0.0.1:99999/"), "isn't http or https"),
        (answering(302), "answers 302 for org/plain"),
    ],
)
def test_a_fault_gets_a_sentence(hub, fault, words):
    hub.faults["config.json"] = fault
    with pytest.raises(ModelError) as caught:
        read(hub)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_hangs_doesnt_hold_the_module(hub):
    hub.faults["config.json"] = hang
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"doesn't answer in time \(timeout is 1 seconds\); give the config"):
        read(hub, timeout=1)
    assert time.monotonic() - start < 2.5


def test_a_server_that_drips_doesnt_hold_the_module(hub):
    hub.faults["config.json"] = drip
    start = time.monotonic()
    with pytest.raises(ModelError, match="doesn't answer in time"):
        read(hub, timeout=0.2)
    assert time.monotonic() - start < 2.5


@pytest.mark.parametrize(
    ("name", "revision", "options", "words"),
    [
        (
            "org/gated",
            "main",
            {},
            "org/gated is gated at {url}; accept its terms, give hf_token, or give its config",
        ),
        (
            "org/gated",
            "main",
            {"token": TOKEN},
            "gated at {url}; accept its terms with the account of hf_token",
        ),
        ("org/absent", "main", {}, "{url} has no model org/absent, or it is private and needs hf_token"),
        ("org/absent", "main", {"token": TOKEN}, "{url} has no model org/absent"),
        ("org/plain", "main", {"token": "hf_wrong"}, "doesn't accept hf_token (401: Invalid credentials"),
        ("org/plain", "v9", {}, "org/plain has no revision v9 at {url}; give a branch"),
        ("org/empty", "main", {}, "org/empty at {url}, revision main, has no config.json; give a model"),
        ("org/gguf", "main", {}, "has no config.json; its GGUF files (x-Q4_K_M.gguf ...)"),
        (
            "org/lora",
            "main",
            {},
            "org/lora is a LoRA or PEFT adapter of org/plain, not a model; give org/plain",
        ),
    ],
)
def test_a_refusal_gets_a_sentence(hub, name, revision, options, words):
    hub.add("org/gated", config__json=CONFIG)
    hub.gated.add("org/gated")
    hub.add("org/empty", README__md=b"x")
    hub.add("org/gguf", {"x-Q4_K_M.gguf": 5, "x-Q8_0.gguf": 9}, README__md=b"x")
    hub.add("org/lora", adapter_config__json={"base_model_name_or_path": "org/plain", "peft_type": "LORA"})
    with pytest.raises(ModelError) as caught:
        read(hub, name, revision, **options)
    assert words.format(url=hub.url) in str(caught.value)
    assert caught.value.unknown is (name == "org/absent")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            lambda: f"http://127.0.0.1:{unused_port()}",
            "refuses connections; look at hf_endpoint and the proxy",
        ),
        (lambda: "http://hub.invalid", "host name hub.invalid isn't known here"),
        (lambda: "ftp://hub.example", "hf_endpoint ftp://hub.example isn't an http or https URL"),
        (lambda: "huggingface.co", "isn't an http or https URL"),
        (lambda: "https://hub:port", "isn't an http or https URL"),
        (lambda: "", "isn't an http or https URL"),
    ],
)
def test_an_endpoint_that_cant_be_reached(url, words):
    with pytest.raises(ModelError) as caught:
        Endpoint(url(), timeout=5).model("org/plain")
    assert words in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of localhost, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    paths = directory / "server.pem", directory / "server.key"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost", "-out", paths[0], "-keyout", paths[1]),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def test_a_server_without_tls_is_named_so():
    with RecordedHub().running() as hub:
        host = hub.url.partition("://")[2]
        with pytest.raises(ModelError, match=f"{host} speaks no TLS; give hf_endpoint as http://{host}"):
            Endpoint(f"https://{host}").model("org/model")


def test_a_certificate_is_checked(certificate):
    with RecordedHub().running(*certificate) as hub:
        hub.add("org/plain", config__json=CONFIG)
        with pytest.raises(
            ModelError, match=r"certificate of localhost:\d+ can't be trusted \(.*\); give its CA"
        ):
            read(hub)
        assert read(hub, ca_path=str(certificate[0]))["config"] == CONFIG
        assert read(hub, validate_certs=False)["config"] == CONFIG


def echo(handler):
    """A server that repeats what it was shown."""
    handler.refuse(403, None, f"You sent {handler.headers.get('Authorization')}")


@pytest.mark.parametrize("fault", [echo, hang, cut, answering(302, Location=f"ftp://x/{TOKEN}")])
def test_no_error_holds_a_secret(hub, fault):
    hub.faults["config.json"] = fault
    url = hub.url.replace("://", "://mirror:s3cretpassw0rd@")
    with pytest.raises(ModelError) as caught:
        Endpoint(url, token=TOKEN, timeout=1).model("org/plain")
    error = caught.value
    texts = [str(error), repr(error), repr(error.__cause__), repr(error.__dict__)]
    assert not [text for text in texts if TOKEN in text or "s3cretpassw0rd" in text]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:pass@hub.example:8443/a/?sig=x#y", "https://hub.example:8443/a"),
        ("https://hub.example/", "https://hub.example"),
        ("https://[::1", "(not a URL)"),
        ("https://hub\n.example/", "https://hub.example"),
    ],
)
def test_what_is_shown_of_a_url(url, expected):
    assert shown(url) == expected
