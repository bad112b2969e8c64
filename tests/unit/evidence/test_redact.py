# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Redaction: a planted secret never survives, and nothing that a diagnosis needs is lost."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.redact import (
    MASK,
    Redactor,
    is_secret_name,
)

SECRET_NAMES = [
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "VLLM_API_KEY",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "DB_PASSWORD",
    "--api-key",
    "--hf-token",
    "api_key",
    "hf_token",
    "password",
    "MY_KEY",
    "token",
    "AUTH",
    "AUTH_HEADER",
    "apiKey",
    "accessToken",
    "clientSecret",
    "GITHUB_PAT",
    "REDIS_DSN",
    "NGC_API_KEY",
    "HF_TOKEN_B64",
    "SECRET",
    "credentials",
    "API_KEYS",
    "API_TOKENS",
    "x-api-key",
]
PUBLIC_NAMES = [
    "max_num_batched_tokens",
    "max_tokens",
    "tokenizer",
    "HF_TOKEN_PATH",
    "--ssl-keyfile",
    "eos_token_id",
    "TOKENIZERS_PARALLELISM",
    "PATH",
    "HOME",
    "long_prefill_token_threshold",
    "num_kv_heads",
    "tokenizer_mode",
    "--max-num-batched-tokens",
    "sampling_params",
    "compilation_config",
    "kv_cache_dtype",
    "max_tokens_per_mm_item",
    "tokens",
    "KUBERNETES_PORT",
    "gpu_memory_utilization",
    "PYTORCH_CUDA_ALLOC_CONF",
    "skip_tokenizer_init",
    "K8S_AUTH_HOST",
    "CACHE_KEY",
    "enable_prompt_tokens_details",
    "NCCL_DEBUG",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_names(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_names(name):
    assert not is_secret_name(name)


# Where a secret can stand. ``@`` is the secret.
FORMS = [
    "--api-key @",
    "--api-key=@ --port 80",
    "vllm serve m --api-key @ --port 8000",
    "vllm serve m --api-key @ b@ --port 8000",
    "--api-key '@' --x",
    "sh -c 'vllm serve m --api-key \"@\"'",
    "non-default args: {'model': 'x', 'api_key': ['@'], 'max_model_len': 4096}",
    "non-default args: {'model': 'x', 'api_key': ['a@', '@'], 'max_model_len': 4096}",
    "args: Namespace(host=None, api_key='@', max_num_batched_tokens=2048, hf_token='@')",
    "args: Namespace(api_key=['@'], ssl_keyfile=None)",
    '{"api_key": "@", "port": 8000}',
    '{\\"api_key\\": \\"@\\", \\"port\\": 80}',
    "export HF_TOKEN=@; vllm serve x",
    "env HF_TOKEN=@ vllm serve x",
    "HF_TOKEN: @",
    "HF_TOKEN:  @   (from secret)",
    '{"name":"HF_TOKEN","value":"@"}',
    "- name: HF_TOKEN\n  value: @\n- name: X\n  value: y",
    '["vllm","serve","--api-key","@","--port","80"]',
    '["vllm", "serve", "--api-key=@", "--port", "80"]',
    '\\"--api-key\\",\\"@\\",\\"--port\\"',
    "- --api-key\n    - @\n    - --port",
    "https://user:@@host/x",
    "https://@@host/x",
    "postgres://user:a/@@host/db",
    "https://b.s3.amazonaws.com/x?X-Amz-Signature=@&a=1",
    "https://x.blob.core.windows.net/c/y?sv=1&sig=@",
    "https://host/x?token=@",
    '10.0.0.1:2 - "GET /v1/models?api_key=@ HTTP/1.1" 200 OK',
    "Authorization: Bearer @",
    "'authorization': 'Bearer @'",
    "Authorization: Basic @",
    "Cookie: session=@; b=2",
    "Set-Cookie: session=@",
    "x-api-key: @",
    'password = "@"',
    "password:@,",
    "token=@",
    "'api_key': ['@', 'cut off: @",
    "--api-key '@",
    "Received request cmpl-1: prompt: 'tell @', params: SamplingParams(n=1), prompt_token_ids: [1, 2], lora_request: None.",
    'Received request cmpl-1: prompt: "it\'s @", sampling params: SamplingParams(n=1), prompt token ids: [1, 2].',
    "Request chatcmpl-9 details: prompt: '@', prompt_token_ids: [1]",
    "Generated response cmpl-1: output: 'so @', output_token_ids: [1], finish_reason: stop",
    "NewRequestData(req_id=cmpl-1,prompt_token_ids=[1, '@'],mm_features=[x('@')],sampling_params=SamplingParams(stop=['@']))",
    "{'role': 'user', 'content': 'hello @'}",
    '{"messages": [{"role": "user", "content": "hello \\"@\\""}], "max_tokens": 5}',
    "{'type': 'missing', 'loc': ('body',), 'input': {'text': '@'}}",
    "aiohttp.ClientResponseError: 404, message='Not Found', url='https://h/@.png'",
    '{"image_url": {"url": "https://h/@.png"}}',
    "prompt: 'cut in the middle of @",
    "-----BEGIN RSA PRIVATE KEY-----\n@\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n@",
    "data:image/png;base64,@",
]
SECRETS = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40).filter(
    lambda secret: any(char.isdigit() for char in secret) and any(char.isalpha() for char in secret)
)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, deadline=None)
@given(secret=SECRETS)
def test_a_planted_secret_never_survives(form, secret):
    redactor = Redactor()
    shown = redactor.text(form.replace("@@", f"{secret}\0").replace("@", secret).replace("\0", "@"))
    assert secret not in shown
    assert MASK in shown
    assert redactor.summary()["count"] > 0


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aBcDeFgH12" * 3,
        "sk-proj-abcdefgh12345678",
        "ghp_abcdefghij1234567890",
        "glpat-abcdefghij12",
        "AKIAIOSFODNN7EXAMPLE",
        "nvapi-abcdefghij123456",
        "xoxb-12345678-abcdefgh",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "MIIEpAIBAAKCAQEA7bq98Zxy0123456789abcdefghijklmnopqrstuvwxyzABCDEF",
    ],
)
def test_tokens_are_known_by_their_shape(token):
    assert (
        Redactor().text(f"could not log in with {token}, giving up")
        == f"could not log in with {MASK}, giving up"
    )


@pytest.mark.parametrize(
    "text",
    [
        "non-default args: {'model': 'x', 'api_key': None, 'max_num_batched_tokens': 2048, 'hf_token': None}",
        "--api-key $(VLLM_API_KEY) --max-num-batched-tokens 2048 --tokenizer-mode auto",
        "--api-key ${KEY} --ssl-keyfile /etc/tls/key.pem",
        'INFO:     10.0.0.4:60994 - "POST /v1/chat/completions HTTP/1.0" 200 OK',
        "The sequence length (8192) ... {'image': 163840, 'video': 16384} are reserved for multi-modal embeddings",
        "limit_mm_per_prompt={'image': {'count': 5, 'width': 512}}, 'limit_mm_per_prompt': {'image': 10}",
        "GPU KV cache size: 176,240 tokens, bytes per token: 131072",
        "Input prompt (5000 tokens) is too long and exceeds limit of 4096",
        "task_memcg=/kubepods.slice/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope",
        "Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3.1-70B/resolve/main/config.json.",
        "KeyError: 'token'",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ewjreo (size 33030528)",
        "hf_overrides={}, hf_config_path=None, disk-usage task-1234567890",
        "SchedulerOutput(scheduled_new_reqs=[], new_token_ids=[], num_scheduled_tokens={'cmpl-1': 5}, total_num_scheduled_tokens=5)",
    ],
)
def test_nothing_else_changes(text):
    redactor = Redactor()
    assert redactor.text(text) == text
    assert redactor.summary() == {"count": 0, "kinds": {}}


def test_numbers_beside_secrets_stay():
    shown = Redactor().text(
        "{'api_key': ['abcdef12'], 'max_model_len': 4096, 'gpu_memory_utilization': 0.95}"
    )
    assert shown == "{'api_key': ['***'], 'max_model_len': 4096, 'gpu_memory_utilization': 0.95}"
    json_text = Redactor().text('{"api_key": "abcdef12", "port": 8000}')
    assert json.loads(json_text) == {"api_key": MASK, "port": 8000}


def test_arguments():
    redactor = Redactor()
    given_arguments = [
        "vllm",
        "--api-key",
        "one1",
        "two2",
        "--port",
        "80",
        "--hf-token",
        "tok3",
        "model",
        "--api-key=four4",
    ]
    given_arguments += ["-c", "vllm serve --api-key five5", "--max-model-len", "4096", "--api-key", "$(KEY)"]
    assert redactor.arguments(given_arguments) == [
        *["vllm", "--api-key", MASK, MASK, "--port", "80", "--hf-token", MASK, "model", f"--api-key={MASK}"],
        *["-c", f"vllm serve --api-key {MASK}", "--max-model-len", "4096", "--api-key", "$(KEY)"],
    ]
    assert redactor.summary() == {"count": 5, "kinds": {"argument": 5}}


def test_environment_values():
    redactor = Redactor()
    assert redactor.env_value("HF_TOKEN", "abc") == MASK
    assert redactor.env_value("HF_TOKEN", "") == ""
    assert redactor.env_value("HF_TOKEN", None) is None
    assert redactor.env_value("HF_TOKEN", "$(OTHER)") == "$(OTHER)"
    assert redactor.env_value("VLLM_ATTENTION_BACKEND", "FLASHINFER") == "FLASHINFER"
    assert redactor.env_value("HTTP_PROXY", "http://user:pw12@proxy:3128") == f"http://{MASK}@proxy:3128"
    assert redactor.summary() == {"count": 2, "kinds": {"env": 1, "url": 1}}


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_redaction_is_stable(text):
    once = Redactor().text(text)
    assert Redactor().text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "api_key=[" + "'a' " * 5000,
        '"token": ' * 5000,
        '\\"' * 10000,
        "A1b/" * 16000,
        "https://" * 8000,
        "'content': [" * 3000,
    ],
    ids=["list", "names", "quotes", "base64", "urls", "brackets"],
)
def test_hostile_lines_take_no_time(text):
    """Quadratic patterns would take minutes here; the run's time-out is the check."""
    assert len(Redactor().text(text)) <= len(text) + 3


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["VLLM::EngineCore"], "VLLM::EngineCore"),
        (["nginx: worker for bob"], "nginx: …"),
        (["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen2.5-7B", "--tensor-parallel-size=2",
          "--max-model-len", "32k", "--seed", "-1", "--api-key", "a", "b", "--served-model-name", "qwen"],
         "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B --tensor-parallel-size=2"
         " --max-model-len 32k --seed -1 --api-key … --served-model-name qwen"),
        (["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "Qwen/Qwen3-8B", "-tp", "8", "--enforce-eager"],
         "python3 vllm serve … -tp 8 --enforce-eager"),
        (["python", "-u", "chat.py", "--prompt", "my diagnosis is", "--prompt=my diagnosis"],
         "python chat.py --prompt … --prompt=…"),
        (["python", "-c", "print('hunter2')"], "python -c …"),
        (["curl", "-u", "bob:hunter2", "-k", "hunter2", "--data=hunter2"], "curl -u … -k … --data=…"),
        (["mysql", "-phunter2", "-p=hunter2", "hunter2"], "mysql -p… -p… …"),
        (["vllm", "serve", "--chat-template", "{{ messages }}", "--max-num-seqs", "hunter2", "--password", "12345678"],
         "vllm serve --chat-template … --max-num-seqs … --password …"),
        (["vllm", "serve", "--model", "s3://bucket/x?token=hunter2", "--model", "what is my diagnosis"], "vllm serve --model … --model …"),
        (["vllm", "serve", "--compilation-config", '{"a": "hunter2"}', "--tell me my diagnosis"], "vllm serve --compilation-config …"),
        (["sh", "-c", "exec vllm serve --api-key hunter2"], "sh -c …"),
        ([], ""),
    ],
)  # fmt: skip
def test_of_a_process_only_names_and_numbers_are_shown(arguments, shown):
    text = " ".join(Redactor().command_line(arguments))
    assert text == shown
    assert "hunter2" not in text
    assert "diagnosis" not in text
