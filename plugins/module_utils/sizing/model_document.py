# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of one model: its config as far as sizing reads it, and what that says.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from .architecture import architecture
from .model_fields import sized_config
from .quantization import quantization_plan
from .weights import parameter_counts

MODEL_SCHEMA = "vllm_runbook.oom/model/v1"

SOURCES = ("given", "file", "directory", "cache", "table", "endpoint")


def model_document(name, source, config, location=None, revision=None, checkpoint=None, assumptions=()):
    """A document of schema ``vllm_runbook.oom/model/v1`` for ``config`` (a config.json as a dict).

    source: one of SOURCES; location: where it was read; checkpoint: ``{files, checkpoint_bytes,
    largest_file_bytes, pickled}`` where files are known. ConfigError where the config describes no model.
    """
    config = sized_config(config)
    arch = architecture(config)
    total, active = parameter_counts(arch)
    said: list[str] = []
    plan = quantization_plan(None, arch, None, said)
    files: dict = {"files": [], "checkpoint_bytes": None, "largest_file_bytes": None, "pickled": None}
    files.update(checkpoint or {})
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
        "max_model_len": arch["max_position_embeddings"],
        "assumptions": list(dict.fromkeys([*assumptions, *arch["assumptions"], *said])),
    }
