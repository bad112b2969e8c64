# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the fields of a model's config: many families have many names for one thing.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations


def first(section, *keys):
    """The first of ``keys`` that is set (not None), or None."""
    for key in keys:
        if section.get(key) is not None:
            return section[key]
    return None


# No dimension of a model is larger; a config that says so is broken, and its field counts as not set.
_LARGEST = 1 << 32


def _whole(value):
    """``value`` as an int where it is a whole number of a sane size, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not -_LARGEST < value < _LARGEST or value != int(value):
        return None
    return int(value)


def integer(section, *keys):
    """The first of ``keys`` that is a whole number (not a bool), or None."""
    return next((value for value in (_whole(section.get(key)) for key in keys) if value is not None), None)


def positive(section, *keys):
    """The first of ``keys`` that is a whole number above zero, or None."""
    return next((value for value in (integer(section, key) for key in keys) if value and value > 0), None)


def of_layer(section, index, *keys):
    """As ``positive``, where the value may also be a list with one entry a layer."""
    for key in keys:
        value = section.get(key)
        if isinstance(value, list):
            value = value[index] if index < len(value) else None
        value = _whole(value)
        if value and value > 0:
            return value
    return None


def sequence(section, key):
    """The list under ``key``, or an empty one where it is anything else."""
    value = section.get(key)
    return value if isinstance(value, list) else []


def mapping(section, key):
    """The object under ``key``, or an empty one where it is anything else."""
    value = section.get(key)
    return value if isinstance(value, dict) else {}


def note(assumptions, sentence):
    """Adds a sentence once."""
    if sentence not in assumptions:
        assumptions.append(sentence)
