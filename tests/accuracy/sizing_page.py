# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of ``docs/docsite/rst/sizing_figures.rst``, made from the code and the shared size reports.

sizing_page.py          prints what would stand there
sizing_page.py --write  writes it
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import size

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing import activation

PAGE = size.ROOT / "docs" / "docsite" / "rst" / "sizing_figures.rst"
_BEGIN, _END = ".. figures of {name}: begin", ".. figures of {name}: end"

# Report of the shared file -> how the page calls it.
MODELS = {
    "planner-llama-3-1-8b-instruct-tp1pp1-len8192-bfloat16": "Llama 3.1 8B, bf16, H100 80GB",
    "planner-llama-3-3-70b-instruct-fp8-dynamic-tp2pp1-len8192-bfloat16": "Llama 3.3 70B, FP8, 2 x H100 80GB",
    "planner-mixtral-8x7b-instruct-v0-1-tp2pp1-len8192-bfloat16": "Mixtral 8x7B, bf16, 2 x H100 80GB",
    "planner-gpt-oss-20b-tp2pp1-len8192-bfloat16": "gpt-oss 20B, MXFP4, 2 x H100 80GB",
    "planner-deepseek-v2-lite-chat-tp1pp1-len8192-bfloat16": "DeepSeek V2 Lite, bf16, H100 80GB",
    "planner-gemma-2-27b-it-tp1pp1-len8192-bfloat16": "Gemma 2 27B, bf16, H100 80GB",
    "vllm-15815-qwen25-32b-l40s-tp2": "Qwen2.5 32B, bf16, 2 x L40S",
    "club-127-qwen36-27b-tp4-3090": "Qwen3.6 27B, INT4 and MTP, 4 x RTX 3090",
}
# Column -> (field of a report and of size.py, form).
_COLUMNS = {
    "Weights": ("weights_gib", "{:.2f}"),
    "Activation": ("activation_gib", "{:.2f}"),
    "KV memory": ("available_kv_gib", "{:.2f}"),
    "KV tokens": ("kv_tokens", "{:,.0f}"),
    "Concurrency": ("max_concurrency", "{:.2f}"),
}


def models_table(reports):
    """The list-table of what is said, without any measured figure, and what vLLM's log said."""
    rows = [["Model and GPU", *_COLUMNS]]
    for name, title in MODELS.items():
        report = reports[name]
        said = size.size({field: report.get(field) for field in size.READ_FIELDS})
        rows.append(
            [
                f"`{title} <{report['url']}>`__",
                *(_cell(report, said, *column) for column in _COLUMNS.values()),
            ]
        )
    return _list_table("What is said, what vLLM reported", rows, (28, 14, 14, 14, 16, 14))


def _cell(report, said, field, form):
    reported, ours = report.get(field), said[field]
    if field == "kv_tokens" and reported is None and report.get("gpu_blocks"):
        reported = report["gpu_blocks"] * (report.get("block_size") or 16)
    if reported is None:
        return f"{form.format(ours)} / not reported"
    return f"{form.format(ours)} / {form.format(reported)} ({(ours - reported) / reported:+.1%})"


def errors_table():
    """The list-table of the models' stated errors: the 90th percentile on the development reports."""
    rows = [["Figure", "Where", "Value", "Error", "Reports"]]
    for name, (error, reports) in activation._ACTIVATION_ERROR.items():
        rows.append(["Activation peak", _SAMPLING[name], "computed", f"{error} GiB", str(reports)])
    for since, until, engine, one, several, reports in activation._OUTSIDE:
        where = f"{engine}, {since or 'start'} to {until or 'now'}"
        rows.append(["Outside torch, one GPU", where, f"{one[0]} GiB", f"{one[1]} GiB", str(reports)])
        rows.append(
            ["Outside torch, several GPUs", where, f"{several[0]} GiB", f"{several[1]} GiB", str(reports)]
        )
    for since, until, (fixed, each, experts), error, reports in activation._GRAPHS:
        value = f"{fixed} GiB + {each} GiB a layer" + (f" + {experts} GiB with experts" if experts else "")
        rows.append(
            [
                "CUDA graphs",
                f"V1, {since or 'start'} to {until or 'now'}",
                value,
                f"{error} GiB",
                str(reports),
            ]
        )
    return _list_table("The models' errors", rows, (24, 26, 26, 12, 12))


_SAMPLING = {
    "triton": "V1 from 0.17, runner 1",
    "sorted": "V0, and V1 up to 0.16",
    "runner2": "V1, runner 2",
}


def _list_table(title, rows, widths):
    lines = [
        f".. list-table:: {title}",
        "   :header-rows: 1",
        f"   :widths: {' '.join(map(str, widths))}",
        "",
    ]
    for row in rows:
        lines += [f"   {'* -' if index == 0 else '  -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def filled(text, tables):
    """``text`` with each table between its two comments."""
    for name, table in tables.items():
        begin, end = _BEGIN.format(name=name), _END.format(name=name)
        head, rest = text.split(begin, 1)
        text = f"{head}{begin}\n\n{table}\n{end}{rest.split(end, 1)[1]}"
    return text


def tables(path):
    """``{name: table}`` for the page, from the file of size reports at ``path``."""
    reports = {
        report["id"]: report for report in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }
    return {"the models": models_table(reports), "the errors": errors_table()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument(
        "--reports", type=Path, default=size.ROOT.parent / "shared" / "cases" / "sizing_dev.jsonl"
    )
    options = parser.parse_args(arguments)
    text = filled(PAGE.read_text(encoding="utf-8"), tables(options.reports))
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    sys.exit(main())
