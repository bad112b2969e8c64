# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action of a module that only reads: it does so in Ansible's own process where the module would run beside it anyway.

To run a module, Ansible parses and packs all that it imports, starts a Python and compiles everything there once more.
For the evidence of one pod, or a look at a rollout, that takes several times as long as reading it.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import os
import sys

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action.normal import ActionModule as RunModule
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import plain


class ReadHere(RunModule):
    """Whatever isn't on this machine, with this user, Python and environment, is the module's, as without this plugin."""

    def module(self):
        """The module: its ``argument_spec()``, its ``RULES`` of options as AnsibleModule takes them, and ``answer(options)``, what
        it returns, with ``failed`` and ``msg`` where it fails. Called where it reads here only: else it is compiled in its own
        process.
        """
        raise NotImplementedError

    def run(self, tmp=None, task_vars=None):
        if self._would_run_here(task_vars or {}):
            module = self.module()
            rules = ArgumentSpecValidator(module.argument_spec(), **module.RULES)
            checked = rules.validate(plain(self._task.args))
            if not checked.error_messages:
                return self._read(module.answer, checked.validated_parameters)
        # Also for options that don't fit: the module says so in Ansible's usual words.
        return super().run(tmp, task_vars)

    def _would_run_here(self, task_vars):
        task = self._task
        return (
            self._connection.transport == "local"
            and not self._connection.become
            and not (task.delegate_to or task.async_val or any(task.environment or []))
            and self._templar.template(task_vars.get("ansible_python_interpreter")) == sys.executable
        )

    def _read(self, answer, options):
        called_in = os.getcwd()
        # Where a module on this machine runs, so that a relative path means the same.
        os.chdir(self._loader.get_basedir())
        try:
            # Log text comes from outside: it must never be taken for a template.
            return dict(wrap_var(answer(options)), changed=False)
        finally:
            os.chdir(called_in)
