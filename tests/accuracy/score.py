# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Score the verdicts of ``classify.py`` and the sizes of ``size.py`` against what the case files expect.

    score.py                  the shared cases (../shared/cases beside the checkout, or $VLLM_OOM_CASES) and our own
    score.py --cases FILE     another case file
    score.py --sizing FILE    another file of size reports
    score.py --verdicts FILE  verdicts that are already there, instead of running classify.py
    score.py -v               what went wrong, case by case
    score.py --check          exit 1 when a figure is below the floor in floors.json

Five figures per file: the cause is right; ``is_memory`` is right; the memory is right; no change is recommended that
the case lists as wrong; a right change is among the first two recommended. The figures of the sizes: ``sizing_score.FIGURES``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import answers
import sizing_score

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLOORS = HERE / "floors.json"
SHARED_CASES = ROOT.parent / "shared" / "cases"
# The case file of the classification inside the folder of cases.
CLASSIFICATION = "oom_dev.jsonl"
# The size reports there, and ours: 176 public ones, collected in two rounds without sight of the code. At first contact, before
# the code had seen them, the first 139: weights 10.3 % off in the mean (55 reports, 11 over 5 %), KV memory calibrated 10 of 14 right,
# uncalibrated 14.9 % of total x utilization (49), tokens from the reported KV memory 27 of 43, concurrency 31 of 46,
# estimated length 7 of 8; nothing was left out then but what has no architecture or no total memory. The other 37: weights
# 2.43 % (26, one over 5 %), KV bytes 11 of 13, calibrated 5 of 5, uncalibrated 4.70 % (31), tokens 18 of 22, concurrency 21 of
# 25, length 1 of 2.
SIZING = "sizing_dev.jsonl"
OWN_SIZES = (HERE / "extra_sizing.jsonl",)
# Cases of our own, from the fact sheets and other public reports. The examiners' were written in three rounds without sight
# of the rules; at first contact, before the rules had seen them, their figures were (of 80, 116, 80): cause 55, 84, 72; memory
# or not 69, 102, 78; which memory 67, 100, 77; no wrong change 75, 116, 78; right change 60, 93, 71.
OWN_CASES = (HERE / "extra_cases.jsonl", HERE / "examiner_cases.jsonl")

# Figure -> what it counts.
FIGURES = {
    "cause": "cause right",
    "is_memory": "memory or not: right",
    "memory": "which memory: right",
    "no_wrong_change": "no change recommended that the case lists as wrong",
    "right_change": "a right change among the first two recommended",
}


def recommended_wrong(changes, wrong):
    """The recommended ``changes`` that one of the parsed patterns in ``wrong`` forbids."""
    found = []
    for position, change in enumerate(changes):
        for pattern in wrong:
            if not answers.matches(pattern, change):
                continue
            companions = change.get("with") or [other for other in changes[:2] if other is not change]
            if pattern["qualifier"] == "alone" and companions:
                continue
            if pattern["qualifier"] == "first" and position > 0:
                continue
            found.append(change)
            break
    return found


def compare(case, verdict, table):
    """``{figure: right or not}`` and the remarks that explain the misses of one case."""
    right, wrong = answers.answers(case, table)
    changes = verdict.get("recommend") or []
    forbidden = recommended_wrong(changes, wrong)
    first_two = changes[:2]
    results = {
        "cause": verdict.get("cause") == case["kind"],
        "is_memory": verdict.get("is_memory") == case["is_memory"],
        "memory": verdict.get("memory") == case["which_memory"],
        "no_wrong_change": not forbidden,
        "right_change": any(answers.matches(pattern, change) for pattern in right for change in first_two),
    }
    remarks = {
        "cause": f"is {verdict.get('cause')} {verdict.get('causes')}, want {case['kind']}",
        "is_memory": f"is {verdict.get('is_memory')}, want {case['is_memory']}",
        "memory": f"is {verdict.get('memory')}, want {case['which_memory']}",
        "no_wrong_change": f"recommends {show(forbidden)}",
        "right_change": f"first two are {show(first_two)}, want one of "
        + ", ".join(answers.show(entry) for entry in (case.get("expected") or {}).get("recommend") or []),
    }
    misses = {figure: remarks[figure] for figure, hit in results.items() if not hit}
    if verdict.get("error"):
        misses["error"] = verdict["error"]
    return results, misses


def show(changes):
    return (
        "; ".join(f"{change['target']} {change['name']} {change['direction']}" for change in changes)
        or "nothing"
    )


def read_lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]


def classify(path):
    """The verdicts of ``classify.py`` for a case file."""
    with Path(path).open("rb") as cases:
        run = subprocess.run(
            [sys.executable, str(HERE / "classify.py")], stdin=cases, stdout=subprocess.PIPE, check=True
        )
    return [json.loads(line) for line in run.stdout.decode("utf-8").splitlines()]


def score(cases, verdicts, table):
    """``({figure: number right}, {case id: {figure: remark}})``."""
    by_id = {verdict["id"]: verdict for verdict in verdicts}
    totals, misses = dict.fromkeys(FIGURES, 0), {}
    for case in cases:
        results, remarks = compare(
            case, by_id.get(case["id"]) or {"error": "no verdict for this case"}, table
        )
        for figure, hit in results.items():
            totals[figure] += hit
        if remarks:
            misses[case["id"]] = remarks
    return totals, misses


def print_table(totals, number):
    print("| measure | right | of |")
    print("| --- | ---: | ---: |")
    for figure, meaning in FIGURES.items():
        print(f"| {meaning} | {totals[figure]} | {number} |")


def below_floor(totals, floors):
    """A sentence for every figure below its floor."""
    return [
        f"{figure}: {totals[figure]} is below the floor of {floor} ({FIGURES[figure]})"
        for figure, floor in floors.items()
        if totals[figure] < floor
    ]


def shared_case_file(name=CLASSIFICATION):
    """A file of the shared cases, or None where this checkout hasn't got them."""
    path = Path(os.environ.get("VLLM_OOM_CASES") or SHARED_CASES) / name
    return path if path.is_file() else None


def check_floors(path, totals, below=below_floor):
    """The sentences of what is below the floors for the case file ``path``."""
    floors = json.loads(FLOORS.read_text(encoding="utf-8"))
    if path.name not in floors:
        return [f"no floors for {path.name} in {FLOORS}"]
    return below(totals, floors[path.name])


def report(path, options):
    """Score one case file, print its table; returns the sentences of what is below its floors."""
    cases = read_lines(path)
    verdicts = read_lines(options.verdicts) if options.verdicts else classify(path)
    totals, misses = score(cases, verdicts, answers.read_table())
    print(f"\n{path.name}\n")
    print_table(totals, len(cases))
    if options.verbose:
        for case_id, remarks in misses.items():
            print(f"\n{case_id}")
            for figure, remark in remarks.items():
                print(f"  {figure}: {remark}")
    return check_floors(path, totals) if options.check else []


def report_sizes(path, options):
    """Score one file of size reports, print its table and what doesn't count; returns what is below its floors."""
    notes = sizing_score.read_notes()
    rows, left = sizing_score.score(read_lines(path), notes)
    values = sizing_score.figures(rows, notes)
    print(f"\n{path.name}\n")
    sizing_score.print_table(values)
    sizing_score.print_reasons(rows, left, notes)
    if options.verbose:
        sizing_score.print_misses(rows)
    return check_floors(path, values, sizing_score.below_floor) if options.check else []


def main(arguments=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=Path, help="case file to score instead of the shared one and our own")
    parser.add_argument("--sizing", type=Path, help="file of size reports to score, and nothing else")
    parser.add_argument("--verdicts", type=Path, help="output of classify.py for the file given with --cases")
    parser.add_argument("--check", action="store_true", help="hold the floors")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every miss")
    options = parser.parse_args(arguments)
    if options.verdicts and not options.cases:
        parser.error("--verdicts needs the case file that they belong to: add --cases FILE")

    if options.cases or options.sizing:
        chosen = [(report, options.cases), (report_sizes, options.sizing)]
        failures = score_files([(scored, path) for scored, path in chosen if path], options)
    else:
        shared = [(report, CLASSIFICATION), (report_sizes, SIZING)]
        own = [(report, path) for path in OWN_CASES] + [(report_sizes, path) for path in OWN_SIZES]
        failures = []
        for scored, name in shared:
            path = shared_case_file(name)
            if path is not None:
                own.append((scored, path))
                continue
            print(
                f"the shared cases were not checked: no {name} in {SHARED_CASES};"
                " set VLLM_OOM_CASES to the folder of cases",
                file=sys.stderr,
            )
            if os.environ.get("CI") == "true":
                failures.append("CI needs the shared cases")
        failures += score_files(own, options)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def score_files(files, options):
    """Scores ``[(how, path)]``; returns what is missing or below its floors."""
    failures = []
    for scored, path in files:
        failures += scored(path, options) if path.is_file() else [f"no case file {path}"]
    return failures


if __name__ == "__main__":
    sys.exit(main())
