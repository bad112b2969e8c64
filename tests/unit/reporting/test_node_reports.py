# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes in the reports: one table, worst first, the bad ones in a few lines, all of it in Markdown."""

from __future__ import annotations

import json

import pytest
from report_documents import pod, verdict, weights_finding

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.quantities import GIB
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import console, markdown, view_model


def finding(sentence="GPU 3: the driver has lost it.", severity="bad", **more):
    return dict(
        {
            "check": "gpu_lost",
            "means": "a GPU is lost",
            "severity": severity,
            "gpu": 3,
            "sentence": sentence,
            "evidence": [
                documents.proof(
                    "kernel", "Node/gpu-a", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
                )
            ],
            "recommend": [documents.change("action", "reset_gpu", "set", why="drain the node first")],
        },
        **more,
    )


def node(name, state="fine", findings=(), gpus=2, **more):
    row = {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "total": 80 * GIB,
        "used": 30 * GIB,
        "free": 50 * GIB,
        "mig": None,
        "processes": 1,
        "wrong": [],
    }
    return dict(
        {
            "name": name,
            "state": state,
            "sentence": " ".join(item["sentence"] for item in findings) or "Nothing is wrong with its 2 GPUs.",
            "product": "NVIDIA H100 80GB HBM3",
            "driver": "590.48.01",
            "cuda": "13.1",
            "used": gpus * 30 * GIB,
            "total": gpus * 80 * GIB,
            "findings": list(findings),
            "gpus": [dict(row, index=index) for index in range(gpus)],
        },
        **more,
    )  # fmt: skip


def report(*nodes, pods=()):
    return dict(documents.diagnosis(), nodes=list(nodes), pods=list(pods))


def on_console(*nodes, **more):
    return console.render(view_model.view(report(*nodes, **more)))


def test_one_table_with_the_worst_first():
    slow = finding("GPU 0: slowed down.", "warning", check="throttled")
    text = on_console(
        node("fine-1"),
        node("warm-1", "warning", [slow]),
        node("bad-1", "bad", [finding()]),
        node("dark-1", "unknown", gpus=0, total=None),
    )
    lines = text.splitlines()
    assert lines[0] == "4 nodes checked: 1 bad, 1 with warnings, 1 not known, 1 fine."
    rows = [line.split()[0] for line in lines[1:] if line.startswith("  ") and not line.startswith("   ")]
    assert rows[:5] == ["node", "bad-1", "warm-1", "dark-1", "fine-1"]
    assert "  fine-1  2     H100 80GB HBM3  590.48.01  60/160          fine" in lines
    assert "  dark-1  -     H100 80GB HBM3  590.48.01  -               not known" in text


def test_bad_ones_and_warnings_in_a_few_lines_and_no_others():
    warm = finding("GPU 0: warm.", "warning")
    text = on_console(
        node("bad-1", "bad", [finding(), warm, finding("A note.", "note")]),
        node("warm-1", "warning", [warm] * 5),
        node("fine-1"),
    )
    cure = "    drain the node and reset or replace the GPU: drain the node first"
    _table, bad, warned = text.split("\n\n")
    assert bad.splitlines() == [
        "Node bad-1: NVIDIA H100 80GB HBM3",
        "  - GPU 3: the driver has lost it.",
        cure,
        "  - GPU 0: warm.",
        cure,
        "  and 1 more; -e vllm_oom_output_dir=DIR keeps all in a Markdown report",
    ]
    assert warned.count("  - GPU 0: warm.") == 3
    assert "  and 2 more; " in warned
    assert "Node fine-1" not in text


@pytest.mark.parametrize(
    ("state", "words"),
    [("fine", "fine       kernel log not read"), ("unknown", "kernel log not read; No answer.")],
)
def test_a_kernel_log_that_was_not_read_is_marked_in_the_table(state, words):
    unlogged = finding("The kernel log could not be read.", "note", check="kernel_log_unread")
    text = on_console(node("n", state, [unlogged], sentence="No answer."))
    assert " ".join(words.split()) in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100])
def test_lines_keep_to_the_width(width):
    many = [
        node(f"gpu-node-{number:03d}.very-long-domain.example.org", "bad", [finding("word " * 60)])
        for number in range(30)
    ]
    text = console.render(view_model.view(report(*many)), width=width)
    assert max(map(len, text.splitlines())) <= max(width, 94)
    assert "10 more bad nodes are in the table above" in text


def test_without_nodes_nothing_is_said_of_them():
    text = on_console(pods=[pod("a", [weights_finding()], verdict())])
    assert "nodes checked" not in text
    assert "## Nodes" not in markdown.render(
        view_model.view(report(pods=[pod("a", [weights_finding()], verdict())]))
    )


def test_nodes_alone_have_no_words_on_pods():
    shown = view_model.view(report(node("fine-1")))
    assert console.render(shown).startswith("1 node checked: 1 fine.\n")
    assert markdown.render(shown).startswith("# GPU nodes\n")
    assert "pod" not in console.render(shown) + markdown.render(shown)


def test_markdown_has_everything():
    text = markdown.render(
        view_model.view(
            report(
                node("bad-1", "bad", [finding()]),
                node("fine-1"),
                pods=[pod("a", [weights_finding()], verdict())],
            )
        )
    )
    assert (
        "| bad-1 | 2 | H100 80GB HBM3 | 590.48.01 | 60/160 | bad | GPU 3: the driver has lost it. |" in text
    )
    assert "### Node bad-1: bad" in text
    assert "#### Bad: a GPU is lost" in text
    assert "NVRM: Xid (PCI:0000:3b:00): 79" in text
    assert "1. Drain the node and reset or replace the GPU: drain the node first" in text
    assert "| 1 | NVIDIA H100 80GB HBM3 | 30.0 | 80.0 | 50.0 | 1 |  |" in text
    assert "### Node fine-1" not in text


def test_the_summary_counts_them():
    told = view_model.summary(report(node("a"), node("b", "bad", [finding()]), node("c", "bad", [finding()])))
    assert told["nodes"] == {"nodes": 3, "bad": 2, "warning": 0, "unknown": 0, "fine": 1}


def test_text_of_a_node_can_not_steer_the_reader():
    evil = node(
        "a\x1b[31m\nb|c", "bad", [finding("# <script>\n| x |")], product="H100\n\n# title", driver="`1`"
    )
    shown = view_model.view(report(evil))
    text = console.render(shown)
    assert "\x1b" not in text
    assert "  a b|c" in text
    assert "\n# title" not in markdown.render(shown)
    assert "<script>" not in markdown.render(shown).replace("\\<script\\>", "")
    json.loads(view_model.as_json(shown))


@pytest.mark.parametrize("broken", [{"state": "odd"}, {"name": None}])
def test_a_node_that_can_not_be_shown_is_named(broken):
    with pytest.raises(documents.DocumentError, match="known state of every node"):
        view_model.view(report(dict(node("a"), **broken)))


def test_the_same_gap_on_many_nodes_is_told_once():
    gaps = [
        documents.unreadable("kernel log", f"node n{number}", "the journal may not be read", "root")
        for number in range(9)
    ]
    text = console.render(view_model.view(dict(report(node("n1")), unreadable=gaps)))
    assert (
        "  - kernel log node n0, node n1, node n2 and 6 more: the journal may not be read (needs root)"
        in text
    )
