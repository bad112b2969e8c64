# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of one model: its config as far as sizing reads it, and what that says.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import show_bytes
from .architecture import architecture
from .model_fields import sized_config
from .quantization import quantization_plan
from .weights import FILES_DIFFER, checkpoint_size, parameter_counts

MODEL_SCHEMA = "vllm_runbook.oom/model/v1"

SOURCES = ("given", "file", "directory", "cache", "table", "endpoint")


def model_document(
    name, source, config, location=None, revision=None, checkpoint=None, assumptions=(), guessed=False
):
    """A document of schema ``vllm_runbook.oom/model/v1`` for ``config`` (a config.json as a dict).

    source: one of SOURCES; location: where it was read; checkpoint: ``{files, checkpoint_bytes,
    largest_file_bytes, pickled}`` where files are known; guessed: whether the quantization is concluded from the name
    (see ``known_model``). ConfigError where the config describes no model.
    """
    config = sized_config(config)
    arch = architecture(config)
    total, active = parameter_counts(arch)
    said: list[str] = []
    plan = quantization_plan(None, arch, None, said)
    files: dict = {"files": [], "checkpoint_bytes": None, "largest_file_bytes": None, "pickled": None}
    files.update(checkpoint or {})
    said += _contradictions(arch, plan, files)
    return {
        "schema": MODEL_SCHEMA,
        "name": name,
        "source": source,
        "location": location,
        "revision": revision,
        "config": config,
        "architecture": arch,
        "parameters": {"total": total, "active": active, "billions": round(total / 1e9, 2)},
        **files,
        "quantization": plan.name,
        "quantization_guessed": bool(guessed),
        "max_model_len": arch["max_position_embeddings"],
        "assumptions": list(dict.fromkeys([*assumptions, *arch["assumptions"], *said])),
    }


def _contradictions(arch, plan, files):
    """What the sizes of the files say against their index, or against the config of an unquantized model."""
    sizes = [entry["bytes"] for entry in files["files"]]
    total = files["checkpoint_bytes"]
    held = sum(sizes) if sizes and None not in sizes else total
    if not held:
        return []
    if total and held < (1 - FILES_DIFFER) * total:
        return [
            f"the weight files hold {show_bytes(held)}, their index names {show_bytes(total)}: the download is cut;"
            " finish it"
        ]
    described = checkpoint_size(arch, plan)
    if plan.name != "none" or abs(held - described) <= FILES_DIFFER * described:
        return []
    why = "the download may be cut" if held < described else "it may be another model's, or its dtype another"
    return [
        f"the weight files hold {show_bytes(held)}, the config describes {show_bytes(described)} in"
        f" {arch['stored_dtype']}: {why}"
    ]
