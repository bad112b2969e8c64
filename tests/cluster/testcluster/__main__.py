# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m testcluster up|down``: the cluster of ``make cluster-up`` and ``make cluster-down``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from . import Failed, Missing, programs
from .cluster import GIVEN, guard, standing_cluster


def build() -> int:
    for program in programs.ALL:
        print(programs.build(program))
    return 0


def up() -> int:
    cluster = standing_cluster()
    broken = cluster.why_broken() if cluster.folder.exists() else None
    if broken:
        print(f"the one in {cluster.folder} is broken ({broken}): taking it down first", file=sys.stderr)
        cluster.stop()
    if cluster.folder.exists():
        print(f"there is one in {cluster.folder} already (make cluster-down takes it down):", file=sys.stderr)
    else:
        started = time.monotonic()
        cluster.start()
        print(f"up after {time.monotonic() - started:.1f} s", file=sys.stderr)
    if cluster.without_kubelet:
        print(f"control plane and fake nodes only: {cluster.without_kubelet}", file=sys.stderr)
    kubeconfig, programs_folder = (
        shlex.quote(str(path)) for path in (cluster.kubeconfig, cluster.kubectl_program.parent)
    )
    print(f"export KUBECONFIG={kubeconfig}")
    print(f"export PATH={programs_folder}:$PATH   # its kubectl")
    print(f"# make cluster-test uses it with: export {GIVEN}={kubeconfig}")
    return 0


def down() -> int:
    cluster = standing_cluster()
    if not cluster.folder.exists():
        print(f"no cluster in {cluster.folder}")
        return 0
    cluster.stop()
    left = {kind: found for kind, found in cluster.left().items() if found}
    for kind, found in left.items():
        print(f"still there, {kind}: {', '.join(map(str, found))}", file=sys.stderr)
    if not left:
        print("down; nothing is left")
    return 1 if left else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="testcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start one and print how to use it")
    commands.add_parser("down", help="take it down")
    commands.add_parser("build", help="only build its programs")
    watcher = commands.add_parser("guard", help="(internal) take a cluster down when its owner ends")
    watcher.add_argument("folder", type=Path)
    watcher.add_argument("owner", type=int)
    arguments = parser.parse_args()
    try:
        if arguments.command == "guard":
            guard(arguments.folder, arguments.owner)
            return 0
        return {"build": build, "up": up, "down": down}[arguments.command]()
    except KeyboardInterrupt:
        print("test cluster: interrupted; what had been started is taken down", file=sys.stderr)
        return 130
    except (Missing, Failed) as problem:
        print(f"test cluster: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
