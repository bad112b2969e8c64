# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine import versions
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import engine_version

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.11.0", (0, 11, 0)),
        ("v0.10.1.1", (0, 10, 1, 1)),
        ("0.26.1rc1.dev77", (0, 26, 1)),
        ("0.8.5.post1", (0, 8, 5)),
        ("0.6.3.post2.dev171+g890ca360", (0, 6, 3)),
        ("0.8.x", (0, 8)),
        ("0.8.0/0.8.1", (0, 8, 0)),
        ("0.11.1+", (0, 11, 1)),
        ("0.2x (2026)", None),
        ("2026-04 main", None),
        ("0.1.dev1+g1234abc", None),
        ("latest", None),
        ("", None),
        (None, None),
    ],
)
def test_parse_version(text, expected):
    assert versions.parse_version(text) == expected


@pytest.mark.parametrize(
    ("version", "since", "until", "expected"),
    [
        ("0.20.0", "0.20", None, True),
        ("0.19.1", "0.20", None, False),
        ("0.13.9", "0.9.1", "0.13", True),
        ("0.14.0", "0.9.1", "0.13", False),
        ("0.9.0.1", "0.9.1", None, False),
        ("0.8.x", "0.8.2", "0.8.4", True),
        ("0.9.x", None, "0.8.4", False),
        (None, "0.8", None, None),
        ("main", None, None, None),
    ],
)
def test_in_range_is_inclusive_and_compares_what_is_known(version, since, until, expected):
    assert versions.in_range(version, since, until) is expected


# The lines of vllm-memory section 1.1, and lines from public reports.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vLLM API server version 0.22.1rc1.dev26", "0.22.1rc1.dev26"),
        ("vLLM API server version 0.6.3.post2.dev171+g890ca360", "0.6.3.post2.dev171+g890ca360"),
        ("vLLM server version 0.15.1, serving model Qwen/Qwen3-8B", "0.15.1"),
        (" ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.20.2", "0.20.2"),
        ("Initializing an LLM engine (v0.5.5) with config: model='x'", "0.5.5"),
        ("Initializing a V0 LLM engine (v0.7.2) with config: model='x'", "0.7.2"),
        ("Initializing a V1 LLM engine (v0.8.5.post1) with config: model='x'", "0.8.5.post1"),
        ("vLLM Version: 0.9.2", "0.9.2"),
        ("vLLM API server version 0.1.dev1+gabcdef", None),
        ("NCCL version 2.21.5+cuda12.4", None),
        ("  █▄█▀ █     █     █     █  model   org/version 0.3.0-chat", None),
    ],
)
def test_log_version(line, expected):
    assert versions.log_version([{"text": "noise"}, {"text": line}]) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("docker.io/vllm/vllm-openai:v0.11.0-x86_64@sha256:0123", "0.11.0"),
        ("registry.example:5000/proxy/vllm/vllm-openai:v0.10.1.1", "0.10.1.1"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.8.5", "0.8.5"),
        ("rocm/vllm:rocm6.3.1_vllm_0.8.5_20250521", "0.8.5"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:0123", None),
        ("registry.example:5000/vllm/vllm-openai", None),
        # a mirror that dropped the owner
        ("registry.corp/mirror/vllm-openai:v0.11.0", "0.11.0"),
        ("registry.corp:5000/vllm-openai:v0.11.0-x86_64", "0.11.0"),
        ("registry.corp/mirror/lmcache/vllm-openai:v0.3.5", None),
        ("registry.corp/mirror/vllm-openai:25.09", None),
        ("registry.corp/mirror/our-vllm-openai:v1.2.3", None),
        ("ghcr.io/someone/vllm-openai:v1.2.3", None),
        # vendors' tags count their own releases
        ("lmcache/vllm-openai:v0.3.5", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1", None),
        ("kserve/huggingfaceserver:v0.15.0-gpu", None),
        ("ghcr.io/llm-d/llm-d-cuda:v0.3.0", None),
        ("", None),
        (None, None),
    ],
)
def test_image_version(image, expected):
    assert versions.image_version(image) == expected


def test_engine_version_prefers_log_then_image_then_label():
    log = [{"text": "vLLM API server version 0.9.2"}]
    labels = {"opendatahub.io/runtime-version": "v0.9.1.0"}
    assert engine_version("vllm/vllm-openai:v0.9.1", log, labels) == ("0.9.2", "log")
    assert engine_version("vllm/vllm-openai:v0.9.1", [], labels) == ("0.9.1", "image")
    assert engine_version("vendor/image:1.0", [], labels) == ("0.9.1.0", "label")
    assert engine_version("vendor/image:1.0", [], {"app.kubernetes.io/version": "0.9.1"}) == (None, None)
    assert engine_version(None, None, None) == (None, None)
