# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A one-pod diagnosis beside an ``ansible-playbook`` that does nothing (localhost, no facts, one debug).

``python tests/benchmarks/one_pod.py [ROUNDS [BUNDLE]]``: both in turn, after one round that isn't counted; prints the
medians and their ratio. The diagnosis must stay within three times the empty run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "docs" / "examples" / "gpu-weights"
EMPTY = """\
- name: Do nothing
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Say something
      ansible.builtin.debug:
        msg: something
"""


def seconds(command, environment):
    start = time.perf_counter()
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, text=True)
    took = time.perf_counter() - start
    if run.returncode:
        sys.exit(
            f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
        )
    return took


def main(rounds=5, bundle=BUNDLE):
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.yml"
        empty.write_text(EMPTY, encoding="utf-8")
        environment = dict(os.environ, LC_ALL="C.UTF-8", ANSIBLE_LOCAL_TEMP=folder)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        diagnose = [program, "diagnose-oom.yml", "-e", f"vllm_oom_bundle={bundle}"]
        pairs = [
            (seconds(diagnose, environment), seconds([program, str(empty)], environment))
            for _round in range(rounds + 1)
        ][1:]
    one, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"one pod from a bundle ({Path(bundle).name}), medians of {rounds} rounds in turn")
    print(f"  diagnose-oom.yml    {one:7.2f} s")
    print(f"  empty playbook      {bare:7.2f} s")
    print(f"  ratio               {one / bare:7.2f}        (target: at most 3)")


if __name__ == "__main__":
    main(*[int(value) for value in sys.argv[1:2]], *sys.argv[2:3])
