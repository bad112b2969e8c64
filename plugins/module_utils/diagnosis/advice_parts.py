# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the advice on every cause is made of: changes, the runbook's steps, and the changes that are wrong for many causes."""

from __future__ import annotations

from collections import namedtuple

from ..documents import change
from ..quantities import GIB, show_bytes, to_gi
from .checked import Checked
from .memory_checks import demand
from .torch_oom import fragmented

# explanation: two or three sentences; runbook: which step of the runbook speaks about it; settle: observations.
Advice = namedtuple("Advice", "explanation runbook recommend rejected settle")

UTILIZATION = "--gpu-memory-utilization"
BATCH_TOKENS = "--max-num-batched-tokens"
SEQUENCES = "--max-num-seqs"
MODEL_LEN = "--max-model-len"
TENSOR_PARALLEL = "--tensor-parallel-size"
KV_DTYPE = "--kv-cache-dtype"
EAGER = "--enforce-eager"
SWAP = "--swap-space"
MEMORY_LIMIT = "resources.limits.memory"

STEP_RESOURCES = "check the container's resources first"
STEP_HOST = "OOMKilled (exit 137) is host memory, not GPU memory"
STEP_GPU = "'out of memory' in the log: lower --gpu-memory-utilization or use a bigger GPU"
STEP_GPU_WORSE = STEP_GPU + " (here lowering makes it worse)"
STEP_GPU_NO_HELP = STEP_GPU + " (here lowering does not help)"
STEP_NCCL = "NCCL: check the communication between the GPUs, prefer one node with several GPUs"
STEP_CPU = "CPU limits: remove them, keep the requests"
STEP_EXIT_1 = "exit code 1: read the last 100 log lines; the first error is the trigger"
STEP_EXIT_137 = "exit code 137: raise the limit or find the leak"
STEP_EXIT_143 = "exit code 143 is SIGTERM: check the graceful shutdown"

# Highest utilization worth proposing on a card that nobody else uses: the CUDA context, NCCL and graphs live outside.
HIGHEST_UTILIZATION = 0.95
# Graph capture, NCCL and context together rarely need more than this outside the budget (vllm facts 7.6).
MARGIN_OUTSIDE = 2 * GIB


def flag_change(name, direction, why, value=None, proof="rule", with_=()):
    return change("flag", name, direction, value=value, why=why, proof=proof, with_=with_)


def env_change(name, direction, why, value=None, proof="rule"):
    return change("env", name, direction, value=value, why=why, proof=proof)


def k8s_change(name, direction, why, value=None, proof="rule", with_=()):
    return change("k8s", name, direction, value=value, why=why, proof=proof, with_=with_)


def action(name, why, proof="rule"):
    return change("action", name, "set", why=why, proof=proof)


def fixed(explanation, runbook, recommend=(), rejected=(), settle=()):
    """Advice that does not depend on numbers."""

    def advice(facts, judged):
        return Advice(explanation, runbook, list(recommend), list(rejected), list(settle))

    return advice


# -- changes that are wrong for a whole class of causes ---------------------------------------------------------------

NOT_UTILIZATION_HOST = flag_change(UTILIZATION, "decrease", "it sizes GPU memory; this is memory of the host")
NOT_UTILIZATION = flag_change(UTILIZATION, "decrease", "no GPU memory ran out")
NOT_LIMIT = k8s_change(MEMORY_LIMIT, "increase", "no host memory ran out")
NOT_LIMIT_GPU = k8s_change(MEMORY_LIMIT, "increase", "the limit is host memory; the GPU ran out")
NOT_SHM_SIZE = k8s_change("volumes.shm.sizeLimit", "increase", "/dev/shm is not involved")
NOT_UTILIZATION_UP = flag_change(
    UTILIZATION, "increase", "it leaves less memory outside the budget, which is where it ran out"
)
NOT_LENGTH = flag_change(
    MODEL_LEN, "decrease", "the KV cache takes what the utilization gives, whatever the length of a sequence"
)


def rejected_expandable(facts, judged):
    """Why not to follow PyTorch's own hint, where its numbers speak against it."""
    numbers = judged.verdict.numbers or {}
    reserved = numbers.get("reserved")
    if facts.sleep_mode:
        return [
            env_change(
                allocator_variable(facts),
                "set",
                "it is not compatible with the sleep-mode allocator",
                "expandable_segments:True",
            )
        ]
    if reserved is None or fragmented(numbers):
        return []
    why = f"only {show_bytes(reserved)} were reserved but unallocated: fragmentation is not the problem"
    return [env_change(allocator_variable(facts), "set", why, "expandable_segments:True", proof="log")]


def allocator_variable(facts):
    """The allocator variable that this build reads."""
    if facts.accelerator == "rocm":
        return "PYTORCH_HIP_ALLOC_CONF"
    return facts.allocator_conf[0] or "PYTORCH_CUDA_ALLOC_CONF"


def lower_utilization(facts, why, step=0.05, proof="rule", with_=()):
    """Utilization down from what is in force, to a value two decimals wide; no value when it is low already."""
    current = facts.utilization
    value = round(current - step, 2) if current - step >= 0.3 else None
    return flag_change(UTILIZATION, "decrease", why, value, proof, with_)


def next_parallel(facts):
    """The next tensor-parallel size: twice as many ranks halve the weights on each."""
    return facts.tensor_parallel * 2


def groups_of(judged):
    return judged.match.groups if judged.match else {}


def number_of(groups, name):
    try:
        return float(groups[name])
    except (KeyError, ValueError):
        return None


def fitting_length(groups):
    """The largest length that the available KV memory holds: vLLM's own estimate, else the proportion, in whole blocks of 16.

    The proportion holds for models with one attention type (vllm facts, rule 10.7).
    """
    if groups.get("estimate"):
        return int(groups["estimate"]), "log"
    if groups.get("tokens"):
        tokens = int(groups["tokens"])
        return (tokens, "log") if tokens > 0 else (None, "none")
    needed, available = number_of(groups, "needed"), number_of(groups, "available")
    length = number_of(groups, "max_model_len")
    if needed and available and available > 0 and length:
        return int(length * available / needed) // 16 * 16 or None, "arithmetic"
    return None, "none"


def _usual_need(facts):
    """What a model of this size needs by the runbook's table and the pools that are set, in bytes; 0 where that isn't known."""
    need = demand(Checked(facts.pod, facts.container, facts.node, None))
    return need[1] if need else 0


def raise_limit(facts, why, proof="rule"):
    limit = facts.memory_limit
    value = to_gi(max(limit * 1.3, _usual_need(facts))) if limit else None
    return k8s_change(MEMORY_LIMIT, "increase" if limit else "set", why, value, proof)


def graph_sizes_flag(facts):
    """The flag that names the captured batch sizes in this version (vllm facts 7.1)."""
    if facts.version and facts.version < (0, 11, 1):
        return "--cuda-graph-sizes" if facts.version >= (0, 9) else "--max-seq-len-to-capture"
    return "--cudagraph-capture-sizes"
