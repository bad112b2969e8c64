# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes: bytes, GiB and Kubernetes quantities.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?)([numkKMGTPE]?i?)")
_SIZE = re.compile(r"(-?(?<!\d)\d{1,25}(?:\.\d{1,25})?)\s*([KMGT]?i?B|bytes)")
_SIZE_UNITS = {
    "B": 1,
    "bytes": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 1 << 40,
}


def parse_quantity(value):
    """A Kubernetes quantity (``64Gi``, ``500m``, ``2``, ``1e3``) as Decimal, or None if it isn't one."""
    if value is None or isinstance(value, bool):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if not match or match.group(2) not in _SUFFIXES:
        return None
    try:
        return Decimal(match.group(1)) * _SUFFIXES[match.group(2)]
    except InvalidOperation:
        return None


def quantity_bytes(value):
    """A Kubernetes memory quantity in whole bytes (rounded up, as the API server does), or None."""
    number = parse_quantity(value)
    return None if number is None else int(number.to_integral_value(ROUND_CEILING))


def quantity_cores(value):
    """A Kubernetes CPU quantity in cores (float), or None."""
    number = parse_quantity(value)
    return None if number is None else float(number)


def parse_size(text):
    """A printed size such as ``1.74 GiB``, ``605.88 MiB`` or ``0 bytes`` in bytes (int), or None."""
    match = _SIZE.search(text or "")
    if not match or match.group(2) not in _SIZE_UNITS:
        return None
    return round(float(match.group(1)) * _SIZE_UNITS[match.group(2)])


def gib(size):
    """``size`` bytes as GiB (float)."""
    return size / GIB


def show_bytes(size):
    """``size`` bytes for a person: ``1.74 GiB``, ``605.9 MiB``, ``12 KiB``."""
    if size is None:
        return "unknown"
    sign, size = ("-" if size < 0 else ""), abs(size)
    if size >= GIB:
        return f"{sign}{size / GIB:.2f} GiB"
    if size >= MIB:
        return f"{sign}{size / MIB:.1f} MiB"
    if size >= KIB:
        return f"{sign}{size / KIB:.0f} KiB"
    return f"{sign}{size} bytes"


def to_gi(size):
    """``size`` bytes as a Kubernetes quantity in whole Gi, rounded up."""
    return f"{-(-int(size) // GIB)}Gi"
