# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet check of simulated GPU nodes beside ansible.builtin.ping on the same inventory.

``python tests/benchmarks/nodes.py [NODES] [ROUNDS]``: the nodes (200) are this machine over the local connection, with a replayed
nvidia-smi of an eight-GPU box. Both run in turn; printed are the medians, their ratio and the peak memory of ansible-playbook (of its
largest process), and that of a quarter of the nodes. The table must come within 3 times the ping, and memory must stay flat.
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
RECORDED = ROOT / "tests" / "unit" / "evidence" / "smi" / "nvswitch-8.xml"
PLAYBOOK = ROOT / "playbooks" / "check_gpu_nodes.yml"
SLOWEST = 3.0
BATCH = 50
PING = f"""
- hosts: all
  gather_facts: false
  serial: {BATCH}
  tasks:
    - ansible.builtin.ping:
"""
# Only what the parser is asked for is answered; the rest is as on a node without NVLink.
NVIDIA_SMI = f"""#!/bin/sh
case "$*" in "-q -x") exec cat {RECORDED} ;; *) exit 0 ;; esac
"""


def inventory(folder, nodes):
    path = folder / f"{nodes}.ini"
    hosts = "\n".join(f"gpu-{number:03d}" for number in range(nodes))
    path.write_text(
        f"[all]\n{hosts}\n[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n"
    )
    return path


def run(folder, *arguments):
    """``(seconds, MiB, what was printed)`` of one ansible-playbook."""
    environment = dict(
        os.environ, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8"
    )
    printed = folder / "printed.txt"
    start = time.perf_counter()
    with printed.open("w") as out:
        command = [str(Path(sys.executable).with_name("ansible-playbook")), *map(str, arguments)]
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
        _pid, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - start
    text = printed.read_text()
    if status:
        sys.exit(f"ansible-playbook ended with {status}:\n{text[-3000:]}")
    return took, usage.ru_maxrss / 1024, text


def main(nodes=200, rounds=1):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ping, smi = folder / "ping.yml", folder / "nvidia-smi"
        ping.write_text(PING)
        smi.write_text(NVIDIA_SMI)
        smi.chmod(0o755)
        check = (PLAYBOOK, "-e", f"vllm_oom_nvidia_smi={smi}", "-e", f"vllm_oom_batch={BATCH}")
        fleet, quarter = inventory(folder, nodes), inventory(folder, max(1, nodes // 4))
        pinged, checked = [], []
        for _round in range(rounds):
            pinged.append(run(folder, "-i", fleet, ping))
            checked.append(run(folder, "-i", fleet, *check))
        few = run(folder, "-i", quarter, *check)
        said = [line.strip() for line in checked[-1][2].splitlines() if f"{nodes} nodes checked: " in line]
        if not said or f"{nodes} not known" in said[0]:
            sys.exit(f"no table of {nodes} nodes:\n{checked[-1][2][-3000:]}")
    seconds = [statistics.median(item[0] for item in runs) for runs in (pinged, checked)]
    ratio = seconds[1] / seconds[0]
    print(f"{nodes} nodes, {os.cpu_count()} CPUs, {rounds} round(s); {said[0]}")
    print(f"  ansible.builtin.ping  {seconds[0]:6.1f} s  peak {max(item[1] for item in pinged):4.0f} MiB")
    print(
        f"  check_gpu_nodes       {seconds[1]:6.1f} s  peak {max(item[1] for item in checked):4.0f} MiB   {ratio:.2f} x (at most {SLOWEST:g})"
    )
    print(f"  of {nodes // 4} nodes           {few[0]:6.1f} s  peak {few[1]:4.0f} MiB")
    return ratio <= SLOWEST


if __name__ == "__main__":
    sys.exit(0 if main(*map(int, sys.argv[1:3])) else 1)
