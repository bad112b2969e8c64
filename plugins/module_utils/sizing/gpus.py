# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU catalogue: what a product's name says about its memory.

A fallback for where nothing was measured: the total depends on ECC and on the driver's generation, so a log's
own number always wins. A name that fits two products is no product: ``candidates`` says which they are.

Sources, named in each row: "facts 8.11" and "facts 8.5" are those sections of the shared Kubernetes and GPU
facts; "report ID" is a line of the sizing reports (vLLM's own total); "seen" is what torch printed as "total
capacity" in public logs; the rest names its page. Compute capabilities: developer.nvidia.com/cuda-gpus.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple

from ..quantities import GIB, MIB


class Product(NamedTuple):
    """One product.

    words: a pattern of the name, after ``_plain``; total_mib: what nvidia-smi (amd-smi, the data sheet of a TPU)
    reports; visible_gib: what torch, and so vLLM, takes as the total, error_gib: how far reports lie from it;
    capability: CUDA's, None for others; nvlink: None where it depends on the form (PCIe, SXM, a bridge);
    sizes: sizes in GB that the product goes by, besides those that follow from total_mib; mig: key of ``MIG``.
    """

    name: str
    words: str
    total_mib: int
    visible_gib: float
    error_gib: float
    capability: tuple[int, int] | None
    nvlink: bool | None
    sizes: tuple[int, ...]
    source: str
    make: str = "cuda"
    unified: bool = False
    mig: str = ""


# Profiles and their MiB. Names overstate: plan with the MiB.
_A100_LIST = "nvidia-smi mig -lgip, as public logs show it (GiB x 1024)"
MIG: dict[str, tuple[str, dict[str, int]]] = {
    "A30": (
        _A100_LIST + "; 4g.24gb also seen with 24064",
        {"1g.6gb": 5952, "2g.12gb": 11968, "4g.24gb": 24000},
    ),
    "A100 40GB": (
        _A100_LIST + "; older drivers 9.62 GiB for 10gb, 19.50 GiB for 20gb",
        {
            "1g.5gb": 4864,
            "1g.10gb": 9984,
            "2g.10gb": 9984,
            "3g.20gb": 20096,
            "4g.20gb": 20096,
            "7g.40gb": 40448,
        },
    ),
    "A100 80GB": (
        _A100_LIST,
        {
            "1g.10gb": 9728,
            "1g.20gb": 19968,
            "2g.20gb": 19968,
            "3g.40gb": 40192,
            "4g.40gb": 40192,
            "7g.80gb": 80640,
        },
    ),
    "H100 80GB": (
        "facts 8.5; 1g.20gb, 4g.40gb, 7g.80gb: jbarrow.ai/field_notes/nvidia-mig",
        {
            "1g.10gb": 9984,
            "1g.20gb": 20096,
            "2g.20gb": 20096,
            "3g.40gb": 40448,
            "4g.40gb": 40448,
            "7g.80gb": 81152,
        },
    ),
    "H100 NVL": (
        _A100_LIST,
        {
            "1g.12gb": 10880,
            "1g.24gb": 22016,
            "2g.24gb": 22016,
            "3g.47gb": 47232,
            "4g.47gb": 47232,
            "7g.94gb": 94848,
        },
    ),
    "H200": (
        "facts 8.5; 1g.35gb and 4g.71gb have the same memory slices; 7g.141gb: " + _A100_LIST,
        {
            "1g.18gb": 16384,
            "1g.35gb": 33280,
            "2g.35gb": 33280,
            "3g.71gb": 71424,
            "4g.71gb": 71424,
            "7g.141gb": 143360,
        },
    ),
    # No listing of a real B200 or B300 was found: H200's share of the card for the same memory slices.
    "B200": (
        "estimated: H200's share of the card; names: facts 8.5",
        {
            "1g.23gb": 20896,
            "1g.45gb": 42444,
            "2g.45gb": 42444,
            "3g.90gb": 91091,
            "4g.90gb": 91091,
            "7g.180gb": 182834,
        },
    ),
    "B300": (
        "estimated: H200's share of the card; names: facts 8.5",
        {
            "1g.34gb": 31343,
            "1g.67gb": 63666,
            "2g.67gb": 63666,
            "3g.135gb": 136638,
            "4g.135gb": 136638,
            "7g.269gb": 274254,
        },
    ),
}

_ADA, _AMPERE, _HOPPER, _BLACKWELL = (8, 9), (8, 6), (9, 0), (10, 0)
# Without a report of its own: the reserved part of nvidia-smi's total is 430 to 730 MiB (facts 8.11).
_LESS = "visible: total less the reserved part"
_BOARD = "nvidia-smi's usual total for that board, visible: 0.42 GiB less, as the 3090 and the 4090 show; not checked"


def _less(total_mib):
    return round(total_mib / 1024 - 0.55, 2)


def _board(name, words, total_mib, capability, size):
    """A workstation's or gaming board: driver and display keep some 0.4 GiB, as on the boards that reports show."""
    visible = round(total_mib / 1024 - 0.42, 2)
    return Product(name, words, total_mib, visible, 0.3, capability, False, (size,), _BOARD)


PRODUCTS: tuple[Product, ...] = (
    Product(
        "T4",
        r"t4",
        15360,
        14.56,
        0.2,
        (7, 5),
        False,
        (16,),
        "facts 8.11; report colab-t4-qwen25-15b-fp16",
    ),
    Product("V100 16GB", r"v100s?", 16384, _less(16384), 0.5, (7, 0), None, (16,), "facts 8.11; " + _LESS),
    Product(
        "V100 32GB", r"v100s?", 32768, 31.73, 0.1, (7, 0), None, (32,), "facts 8.11; seen on V100-SXM2-32GB"
    ),
    Product("A10", r"a10", 23028, 22.0, 0.3, _AMPERE, False, (24,), "facts 8.11; seen 21.98 to 22.3"),
    Product("A10G", r"a10g", 23028, 22.0, 0.3, _AMPERE, False, (24,), "facts 8.11; seen 21.98 to 22.3"),
    Product("A30", r"a30", 24576, _less(24576), 0.5, (8, 0), None, (24,), "facts 8.11; " + _LESS, mig="A30"),
    Product(
        "A40",
        r"a40",
        46068,
        _less(46068),
        0.2,
        _AMPERE,
        None,
        (48,),
        "facts 8.11 (ECC on; 49140 without); " + _LESS,
    ),
    Product(
        "RTX A6000",
        r"(?:rtx )?a6000",
        49140,
        47.4,
        0.2,
        _AMPERE,
        None,
        (48,),
        "facts 8.11 (ECC off; 46068 with); seen 47.27 to 47.53",
    ),
    Product(
        "RTX 6000 Ada",
        r"(?:rtx )?6000 ada",
        49140,
        47.4,
        0.2,
        _ADA,
        False,
        (48,),
        "facts 8.11 (ECC off; 46068 with); seen 47.27 to 47.53",
    ),
    Product(
        "RTX A5000",
        r"(?:rtx )?a5000",
        24564,
        _less(24564),
        0.3,
        _AMPERE,
        None,
        (24,),
        "facts 8.11; " + _LESS,
    ),
    Product("L4", r"l4", 23034, 22.06, 0.1, _ADA, False, (24,), "facts 8.11; report l4-qwen25-math-15b"),
    Product(
        "L40S",
        r"l40s",
        46068,
        44.42,
        0.15,
        _ADA,
        False,
        (48,),
        "facts 8.11; report vllm-15815-qwen25-32b-l40s-tp2",
    ),
    Product("L40", r"l40", 46068, _less(46068), 0.3, _ADA, False, (48,), "as L40S, the same board; " + _LESS),
    Product(
        "L20",
        r"l20",
        46068,
        _less(46068),
        0.3,
        _ADA,
        False,
        (48,),
        "estimated: as L40S, another 48 GB Ada board with ECC; " + _LESS,
    ),
    Product(
        "RTX 3090",
        r"(?:rtx )?3090(?: ?ti|s)?",
        24576,
        23.58,
        0.1,
        _AMPERE,
        None,
        (24,),
        "facts 8.11; report vllm-10517-llama31-8b-3090-20k",
    ),
    Product(
        "RTX 4080 SUPER",
        r"(?:rtx )?4080 ?super",
        16376,
        _less(16376),
        0.2,
        _ADA,
        False,
        (16,),
        "facts 8.11; " + _LESS,
    ),
    Product(
        "RTX 4090", r"(?:rtx )?4090(?: ?d|s)?", 24564, 23.52, 0.15, _ADA, False, (24,), "facts 8.11; seen"
    ),
    Product(
        "RTX 5090",
        r"(?:rtx )?5090(?: ?d|s)?",
        32607,
        31.36,
        0.05,
        (12, 0),
        False,
        (32,),
        "facts 8.11; seen, many",
    ),
    Product(
        "RTX PRO 6000 Blackwell",
        r"(?:rtx )?pro 6000",
        97887,
        94.97,
        0.1,
        (12, 0),
        False,
        (96,),
        "facts 8.11; seen, many",
    ),
    _board("RTX 2080 Ti", r"(?:rtx )?2080 ?ti", 11264, (7, 5), 11),
    _board("TITAN RTX", r"titan rtx", 24576, (7, 5), 24),
    _board("Quadro RTX 8000", r"rtx 8000", 48601, (7, 5), 48),
    _board("P40", r"p40", 23040, (6, 1), 24),
    _board("P100", r"p100", 16384, (6, 0), 16),
    _board("A2", r"a2", 15356, _AMPERE, 16),
    _board("A16", r"a16", 15356, _AMPERE, 16),
    _board("RTX A4000", r"(?:rtx )?a4000", 16376, _AMPERE, 16),
    _board("RTX A4500", r"(?:rtx )?a4500", 20470, _AMPERE, 20),
    _board("RTX 3060", r"(?:rtx )?3060", 12288, _AMPERE, 12),
    _board("RTX 3060 Ti", r"(?:rtx )?3060 ?ti", 8192, _AMPERE, 8),
    _board("RTX 3070", r"(?:rtx )?3070(?: ?ti)?", 8192, _AMPERE, 8),
    _board("RTX 3080", r"(?:rtx )?3080", 10240, _AMPERE, 10),
    _board("RTX 3080 Ti", r"(?:rtx )?3080 ?ti", 12288, _AMPERE, 12),
    _board("RTX 4060", r"(?:rtx )?4060", 8188, _ADA, 8),
    _board("RTX 4060 Ti 8GB", r"(?:rtx )?4060 ?ti", 8188, _ADA, 8),
    _board("RTX 4060 Ti 16GB", r"(?:rtx )?4060 ?ti", 16380, _ADA, 16),
    _board("RTX 4070", r"(?:rtx )?4070(?: ?(?:super|ti))?", 12282, _ADA, 12),
    _board("RTX 4070 Ti SUPER", r"(?:rtx )?4070 ?ti ?super", 16376, _ADA, 16),
    _board("RTX 4080", r"(?:rtx )?4080", 16376, _ADA, 16),
    _board("RTX 2000 Ada", r"(?:rtx )?2000 ada", 16380, _ADA, 16),
    _board("RTX 4000 Ada", r"(?:rtx )?4000 ada", 20475, _ADA, 20),
    _board("RTX 4500 Ada", r"(?:rtx )?4500 ada", 24570, _ADA, 24),
    _board("RTX 5000 Ada", r"(?:rtx )?5000 ada", 32760, _ADA, 32),
    _board("RTX 5060", r"(?:rtx )?5060", 8151, (12, 0), 8),
    _board("RTX 5060 Ti 8GB", r"(?:rtx )?5060 ?ti", 8151, (12, 0), 8),
    _board("RTX 5060 Ti 16GB", r"(?:rtx )?5060 ?ti", 16311, (12, 0), 16),
    _board("RTX 5070", r"(?:rtx )?5070", 12227, (12, 0), 12),
    _board("RTX 5070 Ti", r"(?:rtx )?5070 ?ti", 16303, (12, 0), 16),
    _board("RTX 5080", r"(?:rtx )?5080", 16303, (12, 0), 16),
    _board("RTX PRO 4000 Blackwell", r"(?:rtx )?pro 4000", 24467, (12, 0), 24),
    Product(
        "A100 40GB",
        r"a[18]00",
        40960,
        39.5,
        0.1,
        (8, 0),
        None,
        (40,),
        "facts 8.11; report vllm-12330-llama3-8b-a100-40",
        mig="A100 40GB",
    ),
    Product(
        "A100 80GB",
        r"a[18]00",
        81920,
        79.25,
        0.15,
        (8, 0),
        None,
        (80,),
        "facts 8.11; report repo-llama31-8b-a100-v031; notebook-phi4-4bit-a100 has 79.15",
        mig="A100 80GB",
    ),
    Product(
        "H100 80GB",
        r"h[18]00",
        81559,
        79.19,
        0.15,
        _HOPPER,
        None,
        (80,),
        "facts 8.11; 33 reports 79.18 or 79.19 (planner-codellama-7b-hf-tp1pp1-len8192-bfloat16)",
        mig="H100 80GB",
    ),
    Product(
        "H100 NVL",
        r"h100 nvl|nc\d+adis h100 v5",
        95830,
        93.1,
        0.1,
        _HOPPER,
        None,
        (94,),
        "facts 8.11; seen",
        mig="H100 NVL",
    ),
    Product(
        "H20",
        r"h20",
        97871,
        95.0,
        0.3,
        _HOPPER,
        True,
        (96,),
        "facts 8.11; seen 95.0 and 95.2 on Hopper cards of that total",
    ),
    Product(
        "H20 141GB",
        r"h20 ?3e|h20(?= 141)",
        143771,
        139.8,
        0.3,
        _HOPPER,
        True,
        (141,),
        "estimated: as H200, the same memory",
    ),
    Product(
        "GH200 96GB",
        r"gh200",
        97871,
        94.5,
        0.3,
        _HOPPER,
        True,
        (96,),
        "facts 8.11; seen; the host's memory is separate, joined by NVLink-C2C",
    ),
    Product(
        "GH200 144GB",
        r"gh200",
        146831,
        142.8,
        2.5,
        _HOPPER,
        True,
        (144,),
        "estimated: H200's total x 144/141, not checked",
    ),
    Product(
        "H200",
        r"h200(?: nvl)?",
        143771,
        139.8,
        0.1,
        _HOPPER,
        True,
        (141,),
        "facts 8.11 (reserved 614); seen, many",
        mig="H200",
    ),
    Product(
        "B200",
        r"b200",
        183359,
        178.35,
        0.1,
        _BLACKWELL,
        True,
        (180, 183),
        "facts 8.11; seen, many",
        mig="B200",
    ),
    Product(
        "GB200",
        r"gb200",
        189471,
        184.31,
        0.1,
        _BLACKWELL,
        True,
        (186, 192),
        "facts 8.11; report repo-glm52-nvfp4-4xb200 has the same total",
    ),
    Product(
        "GB300",
        r"gb300",
        284208,
        276.6,
        1.0,
        (10, 3),
        True,
        (279, 288),
        "data sheet: 279 GB usable; " + _LESS,
    ),
    Product("B300", r"b300", 275040, 267.69, 0.2, (10, 3), True, (270, 288), "facts 8.11; seen", mig="B300"),
    Product(
        "GB10",
        r"gb10|dgx spark",
        124611,
        121.69,
        2.6,
        (12, 1),
        False,
        (128,),
        "github.com/MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks/issues/47; other firmware 119.2 to 119.7",
        unified=True,
    ),
    Product(
        "Jetson AGX Thor",
        r"(?:jetson )?(?:agx )?thor",
        125748,
        122.8,
        0.2,
        (11, 0),
        False,
        (128,),
        "seen: device query 122.8 GiB",
        unified=True,
    ),
    Product(
        "Jetson AGX Orin 64GB",
        r"(?:jetson )?(?:agx )?orin",
        62874,
        61.4,
        1.0,
        (8, 7),
        False,
        (64,),
        "estimated: 64 GB less what the board keeps, in Thor's proportion",
        unified=True,
    ),
    Product(
        "Jetson AGX Orin 32GB",
        r"(?:jetson )?(?:agx )?orin",
        31437,
        30.7,
        1.0,
        (8, 7),
        False,
        (32,),
        "estimated: 32 GB less what the board keeps, in Thor's proportion",
        unified=True,
    ),
    Product(
        "MI210",
        r"mi210",
        65520,
        63.98,
        0.1,
        None,
        False,
        (64,),
        "seen: HIP's total capacity of 64 GB parts",
        make="rocm",
    ),
    Product(
        "MI250 (one of two dies)",
        r"mi250x?",
        65520,
        63.98,
        0.1,
        None,
        False,
        (64, 128),
        "seen: HIP's total capacity of 64 GB parts; each card shows as two devices",
        make="rocm",
    ),
    Product(
        "MI300X",
        r"mi300x",
        196592,
        191.98,
        0.3,
        None,
        False,
        (192,),
        "facts 8.11; seen 191.98, newer drivers 191.69",
        make="rocm",
    ),
    Product("MI325X", r"mi325x?", 262128, 255.98, 0.3, None, False, (256,), "seen, 255.69 too", make="rocm"),
    Product("MI355X", r"mi35[05]x?", 294896, 287.98, 0.3, None, False, (288,), "seen, many", make="rocm"),
    Product(
        "TPU v5e",
        r"(?:tpu )?v5 ?(?:e|lite(?:pod| podslice)?)",
        16384,
        15.75,
        0.5,
        None,
        False,
        (16,),
        "docs.cloud.google.com/tpu/docs/v5e (16 GB); visible: estimated",
        make="tpu",
    ),
    Product(
        "TPU v6e",
        r"(?:tpu )?v6e|trillium",
        32768,
        31.25,
        0.8,
        None,
        False,
        (32,),
        "brendanjameslynskey.github.io/Google_TPU_02_Generations_Overview; visible: estimated",
        make="tpu",
    ),
    Product(
        "TPU v5p",
        r"(?:tpu )?v5p",
        97280,
        95.0,
        1.0,
        None,
        False,
        (95,),
        "brendanjameslynskey.github.io/Google_TPU_02_Generations_Overview; visible: estimated",
        make="tpu",
    ),
    Product(
        "TPU7x",
        r"(?:tpu ?)?v?7x|ironwood",
        196608,
        192.0,
        3.0,
        None,
        False,
        (192,),
        "brendanjameslynskey.github.io/Google_TPU_02_Generations_Overview (a chip, two devices); visible: estimated",
        make="tpu",
    ),
)

# Names that leave open which product is meant: pattern -> the products.
_OPEN = (
    (r"rtx 6000", ("RTX 6000 Ada", "RTX PRO 6000 Blackwell")),
    (r"jetson agx(?! (?:thor|orin))", ("Jetson AGX Thor", "Jetson AGX Orin 64GB", "Jetson AGX Orin 32GB")),
)
_PROFILE = re.compile(r"(?<![\w.])(?:\d+c\.)?(\d+g\.\d+gb)(?:[+.]me)?(?![\w])")
_SIZE = re.compile(r"(?<![\w.])(\d{1,3}) ?g(?:i?b)?(?!\w)")
_BRANDS = re.compile(r"\b(?:nvidia|amd|google|tesla|geforce|instinct|radeon|quadro|com/gpu|com/mig)\b")
# A part of a card whose size only the card's own numbers tell.
_PART = re.compile(r"\b(?:vgpu|slice|mig)\b")
# Forms that always have NVLink. "H100 80GB HBM3" is the SXM card's name; the PCIe card says PCIe.
_LINKED = re.compile(r"\b(?:sxm\d?|hgx)\b|\bh[18]00 80 ?gb hbm3")


def gpu(name, total_bytes=None):
    """The product that ``name`` means, or None: unknown, or it fits several (see ``candidates``).

    name: a node label's value (``NVIDIA-H100-80GB-HBM3``, with ``-MIG-1g.10gb`` or ``-SHARED``), nvidia-smi's
    name, a resource (``nvidia.com/mig-1g.18gb``), or words of a report (``8x H100 80GB``). total_bytes: a
    measured total, which decides between products that the name leaves open.

    Returns ``{name, make, total_mib, visible_gib, visible_error_gib, compute_capability, nvlink, unified, mig,
    source}`` and for a MIG instance ``parent`` and ``profile``; total_mib as nvidia-smi reports it, visible_gib
    as torch and vLLM do, mig: ``{profile: MiB}``.
    """
    found, agrees = _matches(name)
    if total_bytes is not None:
        found, agrees = [item for item in found if _has_total(item, total_bytes)], True
    return found[0] if agrees and len(found) == 1 else None


def candidates(name, nearest=True):
    """The names of the products that ``name`` may mean, smallest first: one if it is known, several if it is open.

    Where a size in the name contradicts it: the products of that name. For a name that is no product's at all: with
    ``nearest`` those of the nearest spelling, otherwise none.
    """
    found, _agrees = _matches(name)
    if not found:
        return _nearest(name) if nearest else []
    return [item["name"] for item in sorted(found, key=lambda item: (item["total_mib"], item["name"]))]


def visible_bytes(product):
    """Bytes of one GPU as vLLM counts them (int), for an entry that ``gpu`` gave."""
    return int(product["visible_gib"] * GIB)


def total_bytes_of(product):
    """Bytes of one GPU as nvidia-smi reports them (int), for an entry that ``gpu`` gave."""
    return product["total_mib"] * MIB


def products(make=None, unified=None):
    """The products that one would buy for a cluster, smallest first.

    make: only cuda, rocm or tpu; unified: only those with (or without) memory that the host shares.
    """
    offered = [item for item in PRODUCTS if item.source != _BOARD]
    found = [
        _entry(item) for item in offered if make in (None, item.make) and unified in (None, item.unified)
    ]
    return sorted(found, key=lambda item: (item["visible_gib"], item["name"]))


def smallest_that_fits(needed, count=1, make="cuda", unified=False):
    """The products of which ``count`` hold ``needed`` bytes together, smallest first.

    needed: bytes, already divided by what of a card may be used; each card must hold its equal share.
    """
    share = -(-int(needed) // count)
    return [item for item in products(make, unified) if visible_bytes(item) >= share]


def _plain(name):
    """Lower case, brands and punctuation taken out, single spaces: ``NVIDIA-A100-SXM4-40GB`` -> ``a100 sxm4 40gb``."""
    text = re.sub(r"(?<=\d)x(?= ?[a-z]{1,3}\d)|\(tm\)|\(r\)", " ", str(name).lower())
    text = re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", _BRANDS.sub(" ", text))
    return re.sub(r"[^\w.+]+|_", " ", text).strip()


def _matches(name):
    """``(entries, whether the name's own size agrees)`` of the products that the name may mean."""
    text = _plain(name)
    profile = _PROFILE.search(text)
    if profile:
        return _slices(_PROFILE.sub(" ", text), profile.group(1)), True
    found, agrees = _named(text)
    if found and found[0]["make"] == "cuda" and _PART.search(text):
        return _parts(found, text)
    return found, agrees


def _parts(found, text):
    """The MIG instances that a part of a card may be, by a size in the text; the cards where there is none."""
    sizes = {int(number) for number in _SIZE.findall(text)}
    every = [_slice(item, profile) for item in found for profile in item["mig"]]
    of_size = [item for item in every if int(re.sub(r".*[.]|gb", "", item["profile"])) in sizes]
    # A part of unknown size isn't the whole card.
    return (of_size or every, True) if every and "vgpu" not in text else (found, False)


def _named(text):
    """``(entries, agrees)``: the products whose name stands in ``text``, less those that its size contradicts.

    agrees is False where the size contradicts all of them: then neither the name nor the size is taken.
    """
    named = _spelled(text) or [
        item for words, names in _OPEN if re.search(words, text) for item in PRODUCTS if item.name in names
    ]
    sizes = {int(number) for number in _SIZE.findall(text)}
    fitting = [item for item in named if not sizes or sizes & _sizes(item)]
    linked = True if _LINKED.search(text) else None
    return [_entry(item, linked) for item in fitting or named], bool(fitting)


def _spelled(text):
    """The products whose pattern stands in ``text``; the longest one at a place counts."""
    spans = [
        (match.start(), match.end(), product)
        for product in PRODUCTS
        for match in re.finditer(r"(?<![\w.])(?:" + product.words + r")(?![\w.])", text)
    ]
    kept = {
        product.name: product
        for start, end, product in spans
        if not any(s <= start and end <= e and e - s > end - start for s, e, _other in spans)
    }
    return list(kept.values())


def _sizes(product):
    """Sizes in GB or GiB that may be meant by this product's name."""
    in_gib, in_gb = product.total_mib / 1024, product.total_mib * MIB / 1e9
    return set(product.sizes) | {round(size) + step for size in (in_gib, in_gb) for step in (-1, 0, 1)}


def _slices(text, profile):
    """The MIG instances of that profile: of the card that ``text`` names, else of every card that has it."""
    parents = _named(text)[0] or [_entry(item) for item in PRODUCTS]
    return [_slice(item, profile) for item in parents if profile in item["mig"]]


def _slice(parent, profile):
    mib = parent["mig"][profile]
    return dict(
        parent,
        name=f"{parent['name']} MIG {profile}",
        total_mib=mib,
        visible_gib=round(mib / 1024, 2),
        visible_error_gib=round(mib / 1024 * 0.05, 2) if "estimated" in _mig_source(parent) else 0.1,
        nvlink=False,
        mig={},
        parent=parent["name"],
        profile=profile,
        source=_mig_source(parent),
    )


def _mig_source(parent):
    return MIG[parent["name"]][0]


def _entry(product, linked=None) -> dict[str, Any]:
    return {
        "name": product.name,
        "make": product.make,
        "total_mib": product.total_mib,
        "visible_gib": product.visible_gib,
        "visible_error_gib": product.error_gib,
        "compute_capability": product.capability,
        "nvlink": linked if product.nvlink is None else product.nvlink,
        "unified": product.unified,
        "mig": dict(MIG[product.mig][1]) if product.mig else {},
        "source": product.source,
    }


def _has_total(product, size):
    """Whether a measured total is that product's: as nvidia-smi or as torch reports it, within 1.5 %."""
    return any(abs(size - own) <= 0.015 * own for own in (visible_bytes(product), total_bytes_of(product)))


def _nearest(name):
    text = re.sub(r"\s+", " ", _SIZE.sub(" ", _plain(name))).strip()
    if not re.search(r"[a-z]\w*\d|\d{4}", text):
        return []
    known = {_SIZE.sub("", _plain(item.name)).strip(): item.name for item in reversed(PRODUCTS)}
    return [known[item] for item in difflib.get_close_matches(text, known, 3, 0.6)]
