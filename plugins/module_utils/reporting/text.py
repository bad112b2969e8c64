# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text in lines of a width.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import textwrap

# Where the rest of a cut list is: a report on a terminal doesn't know whether another one was saved.
KEEPS_ALL = "-e vllm_oom_output_dir=DIR keeps all in a Markdown report"


def wrap(text, width, indent=""):
    """``text`` in lines of at most ``width``; line breaks in it are kept as breaks."""
    return [
        line
        for part in text.splitlines()
        for line in textwrap.wrap(
            part, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        )
    ]


def shorten(text, width):
    return text if len(text) <= width else text[: width - 1].rstrip(" …") + "…"
