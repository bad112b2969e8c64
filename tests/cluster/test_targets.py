# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets of ansible-test and molecule that need a cluster, run as their own tools run them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import workplace
from harness import run_environment
from testcluster.image import vllm_image

pytestmark = pytest.mark.kubelet

TOOLS = Path(sys.executable).parent
NODE = "gpu-node-1"
VERSION = "0.19.1"
SCENARIOS = sorted(path.name for path in (workplace.ROOT / "extensions/molecule").glob("*_cluster"))
TARGETS = sorted(path.name for path in (workplace.ROOT / "tests/integration/targets").iterdir())


def run(argv: list[str | Path], cwd: Path, env: dict[str, str]) -> str:
    """What the tool printed; fails with that where the tool does."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_integration_target(cluster, target):
    """ansible-test passes no environment on, so the target gets its cluster by integration_config.yml."""
    copy = workplace.clean_copy("integration")
    workplace.lay_kubernetes_core(copy.parents[1])
    home = workplace.CACHE / "home"
    workplace.lay_pip_for_ansible_test(home)
    config = {
        f"{target}_kubeconfig": str(cluster.kubeconfig),
        f"{target}_image": vllm_image(VERSION),
        f"{target}_node": NODE,
    }
    (copy / "tests/integration/integration_config.yml").write_text(json.dumps(config))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    printed = run(
        [TOOLS / "ansible-test", "integration", "--color", "no", "--python", python, target],
        cwd=copy,
        env=run_environment(cluster.kubeconfig, HOME=str(home)),
    )
    assert "failed=0" in printed


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_molecule_scenario(cluster, scenario):
    copy = workplace.clean_copy("molecule-cluster")
    state = workplace.WORK / "molecule-cluster-state"
    # It would remember that another cluster was prepared.
    shutil.rmtree(state, ignore_errors=True)
    run(
        [TOOLS / "molecule", "test", "-s", scenario],
        cwd=copy / "extensions",
        env=run_environment(
            cluster.kubeconfig,
            ANSIBLE_COLLECTIONS_PATH=str(copy.parents[2]),
            MOLECULE_EPHEMERAL_DIRECTORY=str(state),
            MOLECULE_ENGINE_IMAGE=vllm_image(VERSION),
            MOLECULE_ENGINE_NODE=NODE,
        ),
    )
