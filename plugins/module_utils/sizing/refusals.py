# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM refuses before it looks at memory, as far as it bears on sizes.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

_BFLOAT16 = (8, 0)


def refusals(settings, used, own_length, capability, gpu=None):
    """Sentences. settings: what somebody set; used: what is in force, as ``budget`` returns it; own_length: the model's,
    or None; capability: the GPU's compute capability as a pair, or None; gpu: its name."""
    found = (
        _too_long(settings, own_length),
        _more_sequences_than_tokens(settings, used),
        _no_bfloat16(settings, capability, gpu),
    )
    return [sentence for sentence in found if sentence]


def _too_long(settings, own):
    """vLLM's ModelConfig: a length over the config's needs VLLM_ALLOW_LONG_MAX_MODEL_LEN."""
    length = settings.get("max_model_len")
    if not length or not own or length <= own or settings.get("allow_long_max_model_len"):
        return None
    return (
        f"max_model_len {length} is more than the {own} that the model's config allows: vLLM refuses it "
        "(VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 overrides that)."
    )


def _more_sequences_than_tokens(settings, used):
    """vLLM's SchedulerConfig: a step holds at least one token of each sequence."""
    if not settings.get("max_num_seqs") or used["max_num_seqs"] <= used["max_num_batched_tokens"]:
        return None
    return (
        f"max_num_batched_tokens ({used['max_num_batched_tokens']}) is smaller than max_num_seqs ({used['max_num_seqs']}): "
        "vLLM refuses it."
    )


def _no_bfloat16(settings, capability, gpu):
    """vLLM's dtype check; an automatic dtype is left to it."""
    if settings.get("dtype") != "bfloat16" or capability is None or capability >= _BFLOAT16:
        return None
    major, minor = capability
    return f"bfloat16 needs compute capability 8.0, and {gpu or 'this GPU'} has {major}.{minor}: vLLM refuses it (use --dtype half)."
