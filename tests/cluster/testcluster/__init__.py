# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes cluster in one temporary folder, for the tests: see README.md beside this package.

From the outside in: ``cluster`` (start, stop, find one), ``control_plane``, ``node`` and ``fleet`` (its parts),
``image``, ``programs`` and ``debian`` (what they are made of), ``processes`` and ``leftovers`` (that nothing stays).
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "tests" / "cluster"


class Missing(Exception):
    """This machine lacks something that a part of the cluster needs; the message says what, and what to do."""


class Failed(Exception):
    """A part of the cluster didn't start or answer; the message says which one and where its log is."""
