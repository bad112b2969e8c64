# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared wording of the ``attributes`` section of this collection's modules.

Private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations


class ModuleDocFragment:
    """One class attribute for each ``extends_documentation_fragment: vllm_runbook.oom.attributes[.variant]``."""

    # What every module states; the module itself gives `support` (and `details` where it isn't `full`).
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Whether the module can run in check mode and then tells what it would do without doing it.
  diff_mode:
    description: Whether the module returns what changed, or would change, when diff mode is on.
  idempotent:
    description:
      - Whether running the module again with the same options, when nothing else changed in between, changes nothing.
"""

    # Modules that only read.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module only reads, so check mode makes no difference.
  diff_mode:
    support: N/A
    details:
      - This module only reads, so there is never a difference to show.
  idempotent:
    support: full
    details:
      - This module only reads.
"""

    # Modules that take kubernetes.core's authentication options.
    ACTIONGROUP_K8S = r"""
options: {}
attributes:
  action_group:
    description: Set shared options once with C(module_defaults) and C(group/vllm_runbook.oom.k8s).
    support: full
    membership:
      - vllm_runbook.oom.k8s
"""
