# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the document of a model says of files that aren't the config's."""

from __future__ import annotations

import re

import pytest
from sizing_samples import LLAMA

from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_document import model_document

# Llama 3 8B: 8.03 billion parameters in 16 bits.
WHOLE = 2 * 8_030_261_248


def said(config, files, total=None):
    """What is assumed of ``files`` (bytes of each), ``total`` named by their index."""
    checkpoint = {
        "files": [{"name": f"{index}.safetensors", "bytes": size} for index, size in enumerate(files)],
        "checkpoint_bytes": total or (sum(files) if None not in files else None),
    }
    document = model_document("x", "directory", config, checkpoint=checkpoint)
    return [text for text in document["assumptions"] if "weight files" in text]


@pytest.mark.parametrize(
    ("config", "files", "total"),
    [
        (LLAMA, [WHOLE], None),
        (LLAMA, [WHOLE // 2, WHOLE // 2], WHOLE),
        (LLAMA, [int(0.97 * WHOLE)], None),
        # In 32 bits, as its config says.
        (dict(LLAMA, torch_dtype="float32"), [2 * WHOLE], None),
        # Quantized: the config doesn't tell the size to a twentieth.
        (dict(LLAMA, quantization_config={"quant_method": "fp8"}), [WHOLE // 3], None),
        # Sizes that the endpoint doesn't list.
        (LLAMA, [None, WHOLE // 2], None),
        (LLAMA, [], None),
    ],
)
def test_files_that_fit_the_config_need_no_word(config, files, total):
    assert said(config, files, total) == []


@pytest.mark.parametrize(
    ("config", "files", "total", "words"),
    [
        (LLAMA, [WHOLE // 3], None, r"hold 4\.99 GiB, the config describes 14\.96 GiB in .*: the download may be cut"),
        (LLAMA, [2 * WHOLE], None, r"hold 29\.92 GiB, the config describes 14\.96 GiB in .*its dtype another"),
        (LLAMA, [WHOLE // 2], WHOLE, r"hold 7\.48 GiB, their index names 14\.96 GiB: the download is cut; finish it"),
        # An index tells it of a quantized model too.
        (
            dict(LLAMA, quantization_config={"quant_method": "fp8"}),
            [WHOLE // 4],
            WHOLE // 2,
            r"their index names 7\.48 GiB: the download is cut",
        ),
    ],
)  # fmt: skip
def test_files_that_contradict_config_or_index_are_named(config, files, total, words):
    (text,) = said(config, files, total)
    assert re.search(words, text)
