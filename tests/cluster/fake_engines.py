# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines on fake nodes: what they die of is a recorded log of docs/examples and a status like the kubelet's."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import Kubectl, wait_for
from testcluster import ROOT, fleet

# Of a server that is asked whether it is well.
_ORDINARY = '(APIServer pid=1) INFO:     10.244.3.1:41266 - "GET /health HTTP/1.1" 200 OK'
_EXAMPLES = ROOT / "docs" / "examples"


@dataclass(frozen=True)
class Death:
    """log: in docs/examples. cause: what is right to say about it."""

    log: str
    version: str
    arguments: tuple[str, ...]
    exit_code: int
    cause: str

    @property
    def lines(self) -> list[str]:
        lines = (_EXAMPLES / self.log).read_text().splitlines()
        # What kubectl cluster-info dump writes around a log.
        return [line for line in lines if not line.startswith("==== ")]

    @property
    def reason(self) -> str:
        return {0: "Completed", 137: "OOMKilled"}.get(self.exit_code, "Error")

    @property
    def image(self) -> str:
        return f"vllm/vllm-openai:v{self.version}"


_70B = ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "--max-model-len=16000", "--tensor-parallel-size=2")
DEATHS = {
    "weights": Death(
        "gpu-weights/vllm.log",
        "0.11.0",
        ("meta-llama/Llama-3.1-70B-Instruct", "--max-model-len=8192", "--served-model-name=llama-70b"),
        1,
        "gpu_weights_oom",
    ),
    "blocks": Death(
        "kv-no-blocks.log",
        "0.11.0",
        ("openai/gpt-oss-120b", "--served-model-name=gpt-oss-120b"),
        1,
        "kv_no_blocks",
    ),
    "length": Death(
        "max-model-len/vllm.log",
        "0.11.0",
        ("Qwen/Qwen3-32B", "--gpu-memory-utilization=0.9", "--served-model-name=qwen3-32b"),
        1,
        "kv_max_len",
    ),
    "neighbour": Death(
        "neighbour-on-gpu.log",
        "0.22.1",
        ("meta-llama/Llama-3.1-8B-Instruct", "--max-model-len=32768", "--served-model-name=llama-8b-canary"),
        1,
        "gpu_free_below_util",
    ),
    "serving": Death(
        "serving-oom/vllm.log",
        "0.13.0",
        ("Qwen/Qwen3-8B", "--max-model-len=16384", "--gpu-memory-utilization=0.95"),
        0,
        "serving_gpu_oom",
    ),
    "nccl": Death("nccl-oom.log", "0.9.1", (*_70B, "--gpu-memory-utilization=0.98"), 1, "nccl_gpu_oom"),
    "host": Death(
        "host-oomkilled/llm/llama-70b-fp8-0/logs.txt",
        "0.19.1",
        (*_70B, "--safetensors-load-strategy=eager"),
        137,
        "host_oom_load",
    ),
}


def engine_spec(death: Death, node: str) -> dict:
    """The spec of an engine's pod on the fake node."""
    container = {
        "name": "vllm",
        "image": death.image,
        "command": ["vllm", "serve"],
        "args": list(death.arguments),
        "resources": {"limits": {"memory": "24Gi", "nvidia.com/gpu": "1"}},
    }
    return fleet.on_node({"containers": [container], "terminationGracePeriodSeconds": 0}, node)


def wait_until_running(kubectl: Kubectl, namespace: str, count: int, *selected: str) -> list[dict]:
    """The namespace's pods, when kwok has made that many of them Running. selected: kubectl's arguments."""

    def running() -> list[dict]:
        pods = kubectl.items("pods", "-n", namespace, *selected)
        return pods if sum(pod["status"].get("phase") == "Running" for pod in pods) >= count else []

    return wait_for(f"{count} fake pods running in {namespace}", running)


def kill(
    kubectl: Kubectl, deaths: Iterable[tuple[Mapping, Death]], folder: Path, ordinary_lines: int = 0
) -> None:
    """Let pods have died a minute ago: their status is written, and their log lies on the node (its files in ``folder``).

    A pod that isn't started again has it as its current log, any other as the previous one. ordinary_lines: so many
    more are in each log.
    """
    finished = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    started = finished - datetime.timedelta(minutes=2)
    times = {"started": started, "finished": finished}
    statuses, logs = [], []
    for pod, death in deaths:
        place = {name: pod["metadata"][name] for name in ("namespace", "name")}
        for_good = pod["spec"]["restartPolicy"] == "Never"
        path = folder / f"{death.cause}-{ordinary_lines}.log"
        if not path.exists():
            lines = death.lines
            fleet.write_log(path, [*lines[:10], *[_ORDINARY] * ordinary_lines, *lines[10:]], **times)
        logs.append(fleet.log(**place, **{"current" if for_good else "previous": path}))
        status = fleet.ended(
            "vllm", death.image, exit_code=death.exit_code, reason=death.reason, for_good=for_good, **times
        )
        statuses.append({"apiVersion": "v1", "kind": "Pod", "metadata": place, "status": status})
    kubectl.apply(logs)
    kubectl.apply(statuses, "--subresource=status", "--force-conflicts")
    _wait_until_served(kubectl, logs[-1])


def _wait_until_served(kubectl: Kubectl, log: Mapping) -> None:
    """kwok hears of logs by a watch, in their order."""
    place = log["metadata"]
    previous = ["--previous"] if "previousLogsFile" in log["spec"]["logs"][0] else []
    words = ("logs", place["name"], "-n", place["namespace"], "--tail=1", *previous)

    def served() -> str:
        # kwok keeps what it knew when it was asked until it hears of something newer.
        kubectl.apply([{**log, "metadata": {**place, "labels": {"looked": str(time.monotonic_ns())}}}])
        return kubectl(*words, check=False)

    wait_for(f"the log of {place['name']}", served, every=0.1)
