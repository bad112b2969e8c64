# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A one-pod diagnosis beside an ``ansible-playbook`` that does nothing (localhost, no facts, one debug).

``python tests/benchmarks/one_pod.py [ROUNDS]``: the same pod from a bundle and from a recorded API server, in turn with
the empty run, after one round that isn't counted; prints the medians and their ratios. A diagnosis must stay within three
times the empty run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.recorded_api import RecordedApi  # noqa: E402

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


def recorded(bundle):
    """A recorded API server with the bundle's pod and log, and the options that choose the pod."""
    pod = yaml.safe_load((bundle / "pod.yaml").read_text(encoding="utf-8"))
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    api = RecordedApi([pod])
    for container in pod["spec"]["containers"]:
        for previous in (False, True):
            api.add_log(
                namespace, name, container["name"], (bundle / "vllm.log").read_bytes(), previous=previous
            )
    return api, ["-e", f"vllm_oom_namespace={namespace}", "-e", f"vllm_oom_pod={name}"]


def main(rounds=5):
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    api, chosen = recorded(BUNDLE)
    with tempfile.TemporaryDirectory() as folder, api.serve():
        empty, kubeconfig = Path(folder) / "empty.yml", Path(folder) / "kubeconfig"
        empty.write_text(EMPTY, encoding="utf-8")
        kubeconfig.write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
        environment = dict(os.environ, LC_ALL="C.UTF-8", ANSIBLE_LOCAL_TEMP=folder)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        diagnose = [program, "diagnose-oom.yml", "-e"]
        commands = (
            [program, str(empty)],
            [*diagnose, f"vllm_oom_bundle={BUNDLE}"],
            [*diagnose, f"vllm_oom_kubeconfig={kubeconfig}", *chosen],
        )
        runs = [[seconds(command, environment) for command in commands] for _round in range(rounds + 1)][1:]
    bare, bundle, live = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"one pod ({BUNDLE.name}), medians of {rounds} rounds in turn")
    print(f"  empty playbook      {bare:7.2f} s")
    for what, took in (("from a bundle", bundle), ("from an API server", live)):
        print(f"  {what:<18}  {took:7.2f} s     ratio {took / bare:5.2f}  (target: at most 3)")


if __name__ == "__main__":
    main(*[int(value) for value in sys.argv[1:2]])
