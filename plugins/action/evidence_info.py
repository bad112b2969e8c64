# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of ``evidence_info``: see ``plugin_utils/read_here.py``."""

from __future__ import annotations

from ansible_collections.vllm_runbook.oom.plugins.plugin_utils.read_here import ReadHere


class ActionModule(ReadHere):
    """Reads here where it can."""

    def module(self):
        from ansible_collections.vllm_runbook.oom.plugins.modules import evidence_info

        return evidence_info
