# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Being another user for a moment: root may read everything, so what isn't readable is tried as nobody."""

from __future__ import annotations

import os
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def as_nobody():
    """The effective user is nobody where it was root; anybody else stays who they are."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
