# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guide on remediation says what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from ansible_collections.vllm_runbook.oom.plugins.module_utils import documents
from ansible_collections.vllm_runbook.oom.plugins.module_utils.diagnosis.diagnose import diagnose
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation import limits
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.plan import plan
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.workload_kinds import LAYOUTS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting import plan_console
from ansible_collections.vllm_runbook.oom.plugins.module_utils.reporting.plan_view import plan_view
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.memory_budget import budgets_of

ROOT = Path(__file__).resolve().parents[3]
GUIDES = ROOT / "docs" / "docsite" / "rst"
TEXT = (GUIDES / "guide_remediate.rst").read_text(encoding="utf-8")


def table(title):
    """The rows of the list-table whose head holds ``title``, as lists of cells."""
    part = next(part for part in TEXT.split(".. list-table::")[1:] if title in part)
    rows = re.split(r"^   \* - ", part, flags=re.MULTILINE)[2:]
    cells = [re.split(r"^     - ?", row, flags=re.MULTILINE) for row in rows]
    return [[" ".join(cell.split("\n\n")[0].split()) for cell in row] for row in cells]


def test_the_report_in_the_guide_is_the_report():
    seen = read_bundle(str(ROOT / "docs" / "examples" / "host-oomkilled"))
    sized = budgets_of(seen)
    shown = plan_console.render(plan_view(plan(diagnose(seen, sized), seen, sized)))
    assert textwrap.indent(shown, "   ") in TEXT


def test_the_permissions_are_those_that_there_are():
    flags: dict = {}
    for flag, word in limits._NEEDED.items():
        flags.setdefault(word, set()).add(flag)
    for word, taken, what in table("Words of ``vllm_oom_allow``"):
        word = word.strip("`")
        assert limits.PERMISSIONS[word] == taken
        assert set(re.findall(r"``([\w-]+)``", what)) == flags.get(word, set())
    assert [row[0].strip("`") for row in table("Words of ``vllm_oom_allow``")] == list(limits.PERMISSIONS)


def test_the_verdicts_are_those_that_there_are():
    assert [row[0].strip("`") for row in table("Verdict\n")] == list(documents.VERDICTS)


@pytest.mark.parametrize("kind", sorted(kind for (_group, kind), layout in LAYOUTS.items() if layout.live))
def test_the_kinds_that_are_written_live_are_named(kind):
    line = re.search(r"These kinds are written live.*?Others get a patch", TEXT, re.DOTALL).group()
    assert re.search(rf"\b{kind}\b", line)


def test_no_other_kind_is_called_live():
    live = {kind for (_group, kind), layout in LAYOUTS.items() if layout.live}
    line = re.search(
        r"These kinds are written live, where nothing reverts it: (.*?)\. Others", TEXT, re.DOTALL
    ).group(1)
    assert set(re.findall(r"\b[A-Z]\w+\b", line)) == live | {"KServe"}


def test_the_annotations_are_named():
    assert f"``{documents.UNDO_ANNOTATION}``" in TEXT
    assert f"``{documents.PENDING_ANNOTATION}``" in TEXT


@pytest.mark.parametrize("playbook", ["remediate_oom", "rollback_oom"])
def test_every_variable_is_described(playbook):
    (play,) = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
    both = TEXT + (GUIDES / "guide_diagnose.rst").read_text(encoding="utf-8")
    known = set(re.findall(r"``vllm_oom_(\w+)", both))
    assert set(play["vars"]["_playbook_variables"]) <= known


def test_no_variable_is_made_up():
    known: set = set()
    for playbook in ("remediate_oom", "rollback_oom", "diagnose_oom"):
        (play,) = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
        known |= set(play["vars"]["_playbook_variables"])
    artifacts = {"outcome"}
    assert set(re.findall(r"\bvllm_oom_(\w+)", TEXT)) - artifacts <= known


def _sources() -> str:
    """The text of the code, with strings that go on in the next line put together."""
    rooms = ("remediation", "rollout", "diagnosis")
    files = [path for room in rooms for path in (ROOT / "plugins" / "module_utils" / room).glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(files))
    return re.sub(r"[\"']\n\s*f?[\"']", "", text)


def test_each_refusal_in_the_guide_is_one_that_is_said():
    said = _sources()
    rows = table("It says\n")
    assert len(rows) > 12
    for refusal, _go_on in rows:
        parts = [part.strip(" :;,.") for part in re.split("…|[(][)]|; ", refusal)]
        for part in (part for part in parts if len(part) > 2):
            for words in part.split(", give "):
                assert words.strip("() ") in said, (refusal, words)
