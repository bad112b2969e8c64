# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter ``engine_settings``: what a vLLM container was told, from its command, arguments, environment and log."""

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_settings
short_description: Read what a vLLM engine was told
version_added: 1.0.0
author:
  - vllm_runbook maintainers (@vllm-runbook)
description:
  - Reads the engine settings of one container from its command, arguments and environment, from its
    C(--config) file when that is given, and from the log's own argument line where the container comes from
    an evidence document.
  - All spellings that vLLM takes give the same setting. These are hyphens and underscores, C(=) or a
    separate item, short and abbreviated flags, C(--no-) twins, JSON and dotted values, human-readable
    numbers, shell strings with variables, and arguments that an environment variable carries.
  - Where a setting is given more than once, the log wins over the command line, that over the C(--config)
    file, that over the environment, and all of them over the defaults. On the command line the last one counts.
  - Nothing is executed or read, and no secret is returned.
positional: _input
options:
  _input:
    description:
      - A container of a pod or of a pod template as Kubernetes has it, with C(image), C(command), C(args)
        and C(env); or a container of an evidence document.
    type: dict
    required: true
  config:
    description:
      - The content of the file that the engine is given with C(--config), already parsed.
      - KAITO's C(inference_config.yaml) can be given as it is.
    type: dict
  version:
    description:
      - The version of vLLM, for the defaults.
      - By default it is read from the log or the image, or the defaults that depend on it are left out.
    type: str
  defaults:
    description:
      - Whether to add the defaults of that version of vLLM to what was set.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Show how much of the GPU an engine asks for
  ansible.builtin.debug:
    msg: "{{ (container | vllm_runbook.oom.engine_settings).gpu_memory_utilization.value }}"
  vars:
    container:
      image: vllm/vllm-openai:v0.20.0
      command: [sh, -c]
      args: ["exec vllm serve Qwen/Qwen3-8B --max-model-len 32k -tp $GPUS"]
      env:
        - name: GPUS
          value: "2"
  # => 0.92, the default of 0.20.0

- name: Only what somebody set
  ansible.builtin.debug:
    var: deployment.spec.template.spec.containers[0] | vllm_runbook.oom.engine_settings(defaults=false)
"""

RETURN = r"""
_value:
  description:
    - One entry for each setting, sorted by name.
    - The name is vLLM's option with underscores, or the name of the environment variable in capitals.
  type: dict
  contains:
    value:
      description:
        - The setting's value, in the option's own type.
        - It is V(null) when something was set that cannot be read, such as C(2Gi) or a variable that is not
          known here.
        - Human-readable numbers are integers, and a model length of C(auto) is V(-1). A secret is V(***).
      type: raw
    from:
      description:
        - Where the value comes from. One of V(log), V(arg), V(config), V(env), V(default).
      type: str
    line:
      description:
        - The number of the log line, V(null) when the value does not come from a log.
      type: int
    written:
      description:
        - What was written, for a value that cannot be read.
      type: str
      returned: when the value cannot be read
  sample:
    gpu_memory_utilization:
      value: 0.92
      from: default
      line: null
    max_model_len:
      value: 32000
      from: arg
      line: null
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

NAME = "vllm_runbook.oom.engine_settings"


def _type_name(value: Any) -> str:
    if value is None:
        return "nothing"
    # ansible-core 2.19 hands over _AnsibleTaggedStr and the like
    return type(value).__name__.lstrip("_").replace("AnsibleTagged", "").lower()


def _items(container: Mapping[str, Any], field: str) -> list[Any]:
    value = container.get(field)
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise AnsibleFilterError(f"{NAME} needs a list in the container's {field!r}, got {_type_name(value)}")
    return list(value)


def _environment(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    items = _items(container, "env")
    for index, item in enumerate(items):
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise AnsibleFilterError(f"{NAME} needs a mapping with a name in the container's env[{index}]")
    return items


def _log_arguments(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The argument lines of the latest attempt whose log has any (evidence containers only)."""
    for attempt in reversed(_items(container, "attempts")):
        lines = ((attempt or {}).get("log") or {}).get("arguments")
        if lines:
            return list(lines)
    return []


def engine_settings(
    container: Any, config: Any = None, version: Any = None, defaults: bool = True
) -> dict[str, Any]:
    """The filter; see DOCUMENTATION."""
    # For one filter Ansible loads all of a collection, in each task anew: what each needs is imported when it is called.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine import settings

    if not isinstance(container, Mapping):
        raise AnsibleFilterError(f"{NAME} needs a container (a mapping), got {_type_name(container)}")
    if config is not None and not isinstance(config, Mapping):
        raise AnsibleFilterError(
            f"{NAME} needs a mapping as config, got {_type_name(config)}; parse the file first"
        )
    engine = container.get("engine") or {}
    return settings.engine_settings(
        _items(container, "command"),
        _items(container, "args"),
        _environment(container),
        image=container.get("image"),
        log_arguments=_log_arguments(container),
        config=None if config is None else dict(config),
        defaults=defaults,
        version=version or (engine.get("version") if isinstance(engine, Mapping) else None),
    )


class FilterModule:
    """The collection's filter ``engine_settings``."""

    def filters(self) -> dict[str, Any]:
        return {"engine_settings": engine_settings}
