# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The full report as Markdown."""

from __future__ import annotations

import re

import pytest
from report_documents import diagnosis, evidence_of, healthy_pod, weights_pod

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import markdown, view_model


def render(*pods, evidence=None, **more):
    return markdown.render(view_model.view(diagnosis(*pods, **more), evidence))


def test_a_pod_is_reported_in_full():
    text = render(weights_pod(), evidence=evidence_of())
    sections = [line for line in text.splitlines() if line.startswith("#")]
    assert sections == [
        "# vLLM out-of-memory diagnosis",
        "## llm/llama-70b-0",
        "### What was seen",
        "### Why",
        "### Do this",
        "### Don't do that",
        "### What would settle it",
        "### See for yourself",
        "### Risk: cpu_limit_set (possible)",
        "#### Why",
        "### Ruled out",
    ]
    assert (
        "1. Raise --tensor-parallel-size to 2, together with `resources.limits.nvidia.com/gpu`: each GPU then holds half "
        "of the weights (shown by arithmetic on the numbers of this log)\n\n"
        "   ```shell\n   kubectl -n llm edit deployment/llama-70b\n   ```\n" in text
    )
    assert "- Lower --gpu-memory-utilization: the fraction does not limit the weights\n" in text
    assert "- `gpu_held_by_other`: one process holds all of the memory\n" in text


def test_a_fleet_has_an_overview():
    text = render(healthy_pod(), weights_pod())
    assert (
        "| llm/llama-70b-0 | GPU memory | while the model was loaded | `gpu_weights_oom` | certain |" in text
    )


@pytest.mark.parametrize(
    "text",
    [
        "```\n# not a title\n```",
        "a `tick` b",
        "| cell |",
        "<script>alert(1)</script>",
        "[x](http://example.org)",
    ],
)
def test_text_of_a_log_cannot_become_markup(text):
    entry = weights_pod(
        evidence=[documents.proof("log", "container vllm", text, line=1)],
        explanation=text,
        would_settle=[text],
    )
    entry["verdict"]["sentence"] = text
    for line in outside_of_code(render(entry)):
        assert not line.startswith("# not")
        assert "<script>" not in line
        assert not re.search(r"(?<!\\)\]\(http", line)
        assert "| cell |" not in line


def outside_of_code(text):
    """The lines of a Markdown text that are not in a fenced block."""
    fence = None
    for line in text.splitlines():
        bare = line.strip()
        if fence is None and bare.startswith("```"):
            fence = bare[: len(bare) - len(bare.lstrip("`"))]
        elif fence is not None and bare == fence:
            fence = None
        elif fence is None:
            yield line


@pytest.mark.parametrize(
    ("text", "shown"), [("plain", "`plain`"), ("a`b", "``a`b``"), ("`x`", "`` `x` ``"), ("a\nb", "`a b`")]
)
def test_inline_code_survives_back_ticks(text, shown):
    assert markdown.code(text) == shown


def test_what_could_not_be_read_is_a_section():
    unread = [documents.unreadable("node", "gpu-1", "forbidden (403)", "get on nodes")]
    text = render(weights_pod(), unreadable=unread)
    assert "## What could not be read\n\n- `node gpu-1`: forbidden (403); needs get on nodes\n" in text
