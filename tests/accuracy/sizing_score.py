# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizing half of ``score.py``: what ``size.py`` says of a report against what vLLM's log said.

Every report with the measured figure and a known architecture counts. What doesn't is printed with its reason: the
reasons that hold for one report alone are the reviewed table ``sizing_notes.json`` (``left_out``: id -> measure ->
reason, ``explained``: id -> why its weights are over 5 % off; such a report still counts in the mean).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import size
from size import GIB

NOTES = Path(__file__).resolve().parent / "sizing_notes.json"
# Beyond this share a weight figure needs its reason.
WEIGHTS_LIMIT = 0.05
KV_BYTES_LIMIT = 0.002
CALIBRATED_LIMIT = 0.01
CALIBRATED_GIB = 0.05
# The reports' GiB have two decimals.
_ROUNDING = 0.005
TOKENS_LIMIT = 0.01
_KNOWN_BLOCKS = re.compile(r"exact with (\d+)(?: blocks|/)")
_PROFILE = ("weights_gib", "activation_gib", "non_torch_gib")


class Row(NamedTuple):
    """One figure of one report. error: share (signed, ours over reported); hit: within the measure's limit."""

    measure: str
    id: str
    reported: float
    ours: float | None
    error: float | None
    hit: bool
    note: str = ""


_NO_TOTAL = "no total memory: no GPU, or one whose name doesn't tell"


class Left(NamedTuple):
    """A figure that doesn't count, and why."""

    measure: str
    id: str
    reason: str


# Figure -> (what it is, how it is printed). Those in shares are errors: smaller is better; the others count reports.
FIGURES = {
    "weights_reports": ("weights: reports", "{:d}"),
    "weights_mean": ("weights: mean absolute error", "{:.2%}"),
    "weights_over_5": ("weights: over 5 % without a reason", "{:d}"),
    "weights_explained": ("weights: over 5 % with its reason", "{:d}"),
    "kv_bytes_reports": ("KV bytes per token per rank: reports", "{:d}"),
    "kv_bytes_right": ("KV bytes per token per rank: within 0.2 %", "{:d}"),
    "calibrated_reports": ("available KV memory, calibrated: reports", "{:d}"),
    "calibrated_right": ("available KV memory, calibrated: within max(1 %, 0.05 GiB)", "{:d}"),
    "uncalibrated_reports": ("available KV memory, uncalibrated: reports", "{:d}"),
    "uncalibrated_mean": ("available KV memory, uncalibrated: mean error, of total x utilization", "{:.2%}"),
    "uncalibrated_of_kv": ("available KV memory, uncalibrated: mean error, of the KV figure", "{:.2%}"),
    "uncalibrated_median_of_kv": ("available KV memory, uncalibrated: median error, of the KV figure", "{:.2%}"),
    "exact_reports": ("token count of hybrids whose block arithmetic closes: reports", "{:d}"),
    "exact_right": ("token count of hybrids whose block arithmetic closes: exact", "{:d}"),
    "tokens_reports": ("token count from the reported KV memory: reports", "{:d}"),
    "tokens_right": ("token count from the reported KV memory: within 1 %", "{:d}"),
    "tokens_uncalibrated_median": ("token count, uncalibrated: median error", "{:.2%}"),
    "concurrency_reports": ("maximum concurrency from the reported KV memory: reports", "{:d}"),
    "concurrency_right": ("maximum concurrency from the reported KV memory: within 1 %", "{:d}"),
    "length_reports": ("estimated maximum length from the reported KV memory: reports", "{:d}"),
    "length_right": ("estimated maximum length from the reported KV memory: within one block", "{:d}"),
}  # fmt: skip
# Whether a figure must not rise (errors, misses) or must not fall.
CEILINGS = (
    *(name for name, (_text, form) in FIGURES.items() if form == "{:.2%}"),
    "weights_over_5",
    "weights_explained",
)


class Answers(NamedTuple):
    """What size.py says of a report: by itself, with the log's profile, with the log's KV memory, with its blocks."""

    plain: dict
    calibrated: dict
    given: dict | None
    exact: dict | None


def answers(report, configs=None):
    """The Answers for one report."""
    inputs = {name: report.get(name) for name in size.READ_FIELDS}
    measured = {**inputs, **{name: report.get(name) for name in size.CALIBRATION}}
    given = exact = None
    available = _number(report.get("available_kv_gib"))
    if available is not None:
        given = size.size(measured, configs, given=int(available * GIB))
    blocks = known_blocks(report)
    if blocks:
        exact = size.size(measured, configs, given=0, blocks=blocks)
    return Answers(size.size(inputs, configs), size.size(measured, configs), given, exact)


def known_blocks(report):
    """The number of blocks for which the report's arithmetic closes, or None."""
    blocks = (report.get("extra") or {}).get("blocks_inferred")
    if blocks is None:
        found = _KNOWN_BLOCKS.search(str((report.get("check") or {}).get("text") or ""))
        blocks = int(found.group(1)) if found else None
    return blocks


def _number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _error(ours, reported):
    return (ours - reported) / abs(reported) if ours is not None and reported else None


def _within(measure, report, reported, ours, limit):
    error = _error(ours, reported)
    return Row(measure, report["id"], reported, ours, error, error is not None and abs(error) <= limit)


# --- one function for each measure: a Row, a Left or None (the report hasn't got the figure) ---


def weights_row(report, said):
    reported = _number(report.get("weights_gib"))
    if reported is None:
        return None
    return _within("weights", report, reported, said.plain["weights_gib"], WEIGHTS_LIMIT)


def kv_bytes_row(report, said):
    expected = _number((report.get("check") or {}).get("expected_bytes_per_token_per_rank"))
    limit = KV_BYTES_LIMIT
    if expected is None:
        expected, rounding = _bytes_per_slot(report)
        limit += rounding
    if expected is None:
        return None
    return _within("kv_bytes", report, expected, said.plain["kv_bytes_per_token_per_rank"], limit)


def _bytes_per_slot(report):
    """(KV memory over the tokens that it holds, what its rounding leaves open), where the tokens are blocks x size."""
    memory, blocks = _number(report.get("available_kv_gib")), _number(report.get("gpu_blocks"))
    size_of_block = _number(report.get("block_size")) or 16
    tokens = blocks * size_of_block if blocks else None
    plain = report.get("kv_tokens_semantics") == "num_gpu_blocks * block_size"
    if tokens is None and plain:
        tokens = _number(report.get("kv_tokens"))
    if not (plain and tokens and memory and memory > _ROUNDING / KV_BYTES_LIMIT):
        return None, 0
    return memory * GIB / tokens, _ROUNDING / memory + size_of_block / tokens


def calibrated_row(report, said):
    reported = _number(report.get("available_kv_gib"))
    if reported is None or any(_number(report.get(name)) is None for name in _PROFILE):
        return None
    if size.requested_gib(report) is None:
        return Left("calibrated", report["id"], _NO_TOTAL)
    unsure = size.total_error_gib(report)
    if unsure > max(CALIBRATED_LIMIT * abs(reported), CALIBRATED_GIB):
        return Left(
            "calibrated",
            report["id"],
            f"its total memory isn't given, the catalogue's may be {unsure:.1f} GiB off",
        )
    version = size.version_of(report)
    subtracted = size.graphs_subtracted(version, size.engine_of(report) or "V1")
    graphs = [_number(report.get(name)) for name in ("graph_gib", "graph_estimated_gib")]
    if subtracted and not any(value is not None for value in graphs):
        return Left("calibrated", report["id"], "its version subtracts graphs, whose size isn't given")
    ours = said.calibrated["available_kv_gib"]
    limit = max(CALIBRATED_LIMIT, CALIBRATED_GIB / abs(reported) if reported else 0)
    return _within("calibrated", report, reported, ours, limit)


def uncalibrated_row(report, said):
    reported = _number(report.get("available_kv_gib"))
    if reported is None:
        return None
    requested = size.requested_gib(report)
    if requested is None:
        return Left("uncalibrated", report["id"], _NO_TOTAL)
    ours = said.plain["available_kv_gib"]
    error = None if ours is None else (ours - reported) / requested
    return Row("uncalibrated", report["id"], reported, ours, error, ours is not None)


def exact_row(report, said):
    reported = _number(report.get("kv_tokens"))
    if reported is None or said.exact is None:
        return None
    return _within("exact", report, reported, said.exact["kv_tokens"], 0)


def tokens_row(report, said):
    reported = _number(report.get("kv_tokens"))
    if reported is None or said.given is None:
        return None
    limit = TOKENS_LIMIT + _ROUNDING / abs(report["available_kv_gib"])
    return _within("tokens", report, reported, said.given["kv_tokens"], limit)


def plain_tokens_row(report, said):
    reported = _number(report.get("kv_tokens"))
    if reported is None:
        return None
    if size.requested_gib(report) is None:
        return Left("tokens_uncalibrated", report["id"], _NO_TOTAL)
    return _within("tokens_uncalibrated", report, reported, said.plain["kv_tokens"], TOKENS_LIMIT)


def concurrency_row(report, said):
    reported = _number(report.get("max_concurrency"))
    if not reported or said.given is None:
        return None
    limit = TOKENS_LIMIT + _ROUNDING / abs(report["available_kv_gib"]) + _ROUNDING / reported
    return _within("concurrency", report, reported, said.given["max_concurrency"], limit)


def length_row(report, said):
    reported = _number(report.get("estimated_max_len"))
    if not reported:
        return None
    if said.given is None:
        return Left("length", report["id"], "the KV memory isn't reported")
    ours = said.given["estimated_max_len"]
    # One block, and what the two decimals of the KV memory leave open.
    block = _number(report.get("block_size")) or 16
    slack = reported * _ROUNDING / abs(report["available_kv_gib"])
    return _within("length", report, reported, ours, (block + slack) / reported)


MEASURES = (
    weights_row,
    kv_bytes_row,
    calibrated_row,
    uncalibrated_row,
    exact_row,
    tokens_row,
    plain_tokens_row,
    concurrency_row,
    length_row,
)


def read_notes():
    return json.loads(NOTES.read_text(encoding="utf-8"))


def score(reports, notes, configs=None):
    """(Rows, Lefts) of all measures over ``reports``."""
    rows, left = [], []
    for report in reports:
        said = answers(report, configs)
        unknown = size.UNKNOWN_MODEL in said.plain["undetermined"]
        for measure in MEASURES:
            row = measure(report, said)
            if row is None:
                continue
            why = notes["left_out"].get(report["id"], {}).get(row.measure)
            if unknown:
                why = "the model's architecture isn't known (no config_id, no such config)"
            if why and isinstance(row, Row):
                row = Left(row.measure, row.id, why)
            (rows if isinstance(row, Row) else left).append(row)
    return rows, left


def figures(rows, notes):
    """``{figure: value}`` of FIGURES; a mean of nothing is 0."""
    by = {name: [row for row in rows if row.measure == name] for name in {row.measure for row in rows}}

    def of(name):
        return by.get(name, [])

    def errors(name):
        return [abs(row.error) for row in of(name) if row.error is not None]

    def average(values, how=mean):
        return how(values) if values else 0.0

    off = [row for row in of("weights") if not row.hit]
    shares = [
        abs(_error(row.ours, row.reported))
        for row in of("uncalibrated")
        if row.ours is not None and row.reported
    ]
    result = {
        "weights_mean": average(errors("weights")),
        "weights_over_5": sum(row.id not in notes["explained"] for row in off),
        "weights_explained": sum(row.id in notes["explained"] for row in off),
        "uncalibrated_mean": average(errors("uncalibrated")),
        "uncalibrated_of_kv": average(shares),
        "uncalibrated_median_of_kv": average(shares, median),
        "tokens_uncalibrated_median": average(errors("tokens_uncalibrated"), median),
    }
    for name in (
        "weights",
        "kv_bytes",
        "calibrated",
        "uncalibrated",
        "exact",
        "tokens",
        "concurrency",
        "length",
    ):
        result[f"{name}_reports"] = len(of(name))
        result[f"{name}_right"] = sum(row.hit for row in of(name))
    return {name: result[name] for name in FIGURES}


def print_table(values):
    print("| measure | figure |")
    print("| --- | ---: |")
    for name, (text, form) in FIGURES.items():
        print(f"| {text} | {form.format(values[name])} |")


def print_reasons(rows, left, notes):
    """Every weight figure over 5 % and every figure that doesn't count, with the reason."""
    for row in rows:
        if row.measure == "weights" and not row.hit:
            print(f"  weights over 5 %: {_line(row)}: {notes['explained'].get(row.id, 'NO REASON')}")
        elif row.ours is None:
            print(f"  not answered: {row.measure} of {row.id}")
    for item in left:
        print(f"  left out: {item.measure} of {item.id}: {item.reason}")


def print_misses(rows):
    for row in rows:
        if not row.hit or (row.measure == "uncalibrated" and abs(row.error or 0) > 0.04):
            print(f"  {row.measure}: {_line(row)}")


def _line(row):
    error = "none" if row.error is None else f"{row.error:+.2%}"
    return f"{row.id}: {row.ours} is said, {row.reported} reported ({error})"


def below_floor(values, floors):
    """A sentence for each figure that is worse than its floor (of errors: ceiling)."""
    failures = []
    for name, floor in floors.items():
        text, form = FIGURES[name]
        if name in CEILINGS and values[name] > floor:
            failures.append(
                f"{name}: {form.format(values[name])} is above the ceiling of {form.format(floor)} ({text})"
            )
        elif name not in CEILINGS and values[name] < floor:
            failures.append(
                f"{name}: {form.format(values[name])} is below the floor of {form.format(floor)} ({text})"
            )
    return failures
