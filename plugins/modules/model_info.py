#!/usr/bin/python
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Find out what a model is made of
version_added: 1.0.0
description:
  - Returns what a model's config says about its memory, as one document (RV(model)). Its layers, attention, experts and
    encoders, its parameters, quantization and the size of its files are what a budget is made from.
  - The config is the one given as O(config), or that of the file or directory O(model), or it is looked for in the Hugging
    Face cache of this host, in the bundled table of well-known models, and at last at O(hf_endpoint), in this order.
  - For models of the table no network is needed. Only the endpoint has other models, and says how large the files are.
  - No weights are read or downloaded, and no Kubernetes cluster is contacted.
options:
  model:
    description:
      - What C(vllm serve) is told to serve, which is a repository of the Hugging Face Hub (V(Qwen/Qwen3-8B)), or the path of a
        directory, a C(config.json), a C(params.json) of Mistral or a GGUF file.
      - A path that isn't on this host, and a URI such as V(s3://bucket/models/Llama-3.1-8B-Instruct), is looked up in the table
        by the last of its parts that names a model.
      - Other makers' copies of a well-known model, and quantized ones, are found in the table by their name. What is
        concluded from a name is listed in RV(model.assumptions).
    type: str
  config:
    description:
      - The C(config.json) as a dictionary. Nothing is looked up then.
    type: dict
  source:
    description:
      - Where to look for O(model) when it is no file or directory of this host.
      - V(auto) takes the first that has it, of cache, table and endpoint. Where O(offline) is set, the endpoint is left out.
      - V(cache), V(table) and V(endpoint) look there only. Give V(endpoint) for the exact config of a quantized copy, and for
        the sizes of the files.
    type: str
    choices: [auto, cache, table, endpoint]
    default: auto
  revision:
    description:
      - The branch, tag or commit of the repository. The table is not asked for any other than V(main).
    type: str
    default: main
  hf_endpoint:
    description:
      - The Hugging Face Hub, or a mirror of it.
      - The default is the environment variable E(HF_ENDPOINT), or V(https://huggingface.co).
    type: str
  hf_token:
    description:
      - The token to show to O(hf_endpoint), for models that are gated or private. It is not sent to where that redirects.
      - The default is the environment variable E(HF_TOKEN) or E(HUGGING_FACE_HUB_TOKEN).
    type: str
  offline:
    description:
      - Whether to contact no endpoint.
      - The default is whether the environment variable E(HF_HUB_OFFLINE) or E(TRANSFORMERS_OFFLINE) is set to V(1), V(on),
        V(true) or V(yes).
    type: bool
  timeout:
    description:
      - How many seconds the endpoint may stay silent. An answer may take six times as long in all.
    type: int
    default: 10
  validate_certs:
    description:
      - Whether the certificate of the endpoint has to be valid.
    type: bool
    default: true
  ca_path:
    description:
      - A file with the certificates (PEM) of the authorities to trust.
    type: path
requirements:
  - Python >= 3.9
author:
  - vLLM runbook maintainers (@vllm-runbook)
extends_documentation_fragment:
  - vllm_runbook.oom.attributes
  - vllm_runbook.oom.attributes.info_module
seealso:
  - module: vllm_runbook.oom.evidence_info
  - name: Environment variables of huggingface_hub
    description: What E(HF_ENDPOINT), E(HF_TOKEN), E(HF_HOME) and E(HF_HUB_OFFLINE) mean.
    link: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

EXAMPLES = r"""
---
- name: Look at a well-known model, without network
  vllm_runbook.oom.model_info:
    model: meta-llama/Llama-3.3-70B-Instruct
  register: llama

- name: Show how many parameters it has
  ansible.builtin.debug:
    msg: "{{ llama.model.parameters.billions }} billion"

- name: Look at a model that was downloaded
  vllm_runbook.oom.model_info:
    model: /models/my-finetune

- name: Read the exact config of a gated model and the sizes of its files, from a mirror
  vllm_runbook.oom.model_info:
    model: meta-llama/Llama-4-Scout-17B-16E-Instruct
    source: endpoint
    hf_endpoint: https://hub.example.com
    hf_token: "{{ vault_hf_token }}"

- name: Look at a config that is at hand
  vllm_runbook.oom.model_info:
    model: my-org/my-model
    config: "{{ lookup('ansible.builtin.file', 'config.json') | from_json }}"
"""

RETURN = r"""
model:
  description: What the model is made of. A field whose value isn't known is V(none). Sizes are bytes.
  returned: success
  type: dict
  contains:
    schema:
      description: Kind and version of the document.
      type: str
      returned: always
      sample: vllm_runbook.oom/model/v1
    name:
      description: The model, as it was asked for.
      type: str
      returned: always
      sample: meta-llama/Llama-3.1-8B-Instruct
    source:
      description: Where the config is from, V(given), V(file), V(directory), V(cache), V(table) or V(endpoint).
      type: str
      returned: always
      sample: table
    location:
      description: The path or URL it was read from, or for V(table) the repository whose row it is.
      type: str
      returned: always
      sample: meta-llama/Llama-3.1-8B-Instruct
    revision:
      description: The commit that was read, where it is known.
      type: str
      returned: always
      sample: 0e9e39f249a16976918f6564b8830bc894c89659
    config:
      description: The fields of the config that say something about memory.
      type: dict
      returned: always
      sample: {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_key_value_heads": 8}
    architecture:
      description: What they mean. Runs of equal layers with their attention and MLP or experts, encoder towers, draft layers.
      type: dict
      returned: always
      sample:
        hidden_size: 4096
        vocab_size: 128256
        layers:
          - count: 32
            attention: {"kind": "full", "heads": 32, "kv_heads": 8, "head_size": 128}
            mlp: {"kind": "dense", "width": 14336, "gated": true}
    parameters:
      description: How many parameters it has in all, how many of them a token uses, and the former in billions.
      type: dict
      returned: always
      sample: {"total": 8030261248, "active": 7504928768, "billions": 8.03}
    files:
      description: The files that vLLM loads the weights from, where they are known.
      type: list
      elements: dict
      returned: always
      sample: [{"name": "model-00001-of-00004.safetensors", "bytes": 4976698672}]
    checkpoint_bytes:
      description: Size of the weights as they are stored, by the index of the files, or the files themselves.
      type: int
      returned: always
      sample: 16060522496
    largest_file_bytes:
      description: Size of the largest of these files.
      type: int
      returned: always
      sample: 4999802720
    pickled:
      description: Whether these files are PyTorch's, which take host memory while they are loaded.
      type: bool
      returned: always
      sample: false
    quantization:
      description: How the weights are quantized, or the word none.
      type: str
      returned: always
      sample: none
    quantization_guessed:
      description: Whether this is concluded from the model's name, so that what is left in 16 bits isn't known.
      type: bool
      returned: always
      sample: false
    max_model_len:
      description: The longest context that the config names.
      type: int
      returned: always
      sample: 131072
    assumptions:
      description: What was assumed where the config, or the table, doesn't tell.
      type: list
      elements: str
      returned: always
      sample: []
"""

import os

from ansible.module_utils.basic import AnsibleFallbackNotFound, AnsibleModule, env_fallback

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_source import (
    ModelError,
    from_cache,
    from_path,
    is_repository,
    local_path,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.architecture import ConfigError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.model_document import model_document

HUB = "https://huggingface.co"
# What huggingface_hub takes for yes.
YES = ("1", "on", "yes", "true")


def yes_in_environment(*variables):
    """Whether one of ``variables`` says yes; AnsibleFallbackNotFound where none is set."""
    values = [os.environ[name] for name in variables if os.environ.get(name)]
    if not values:
        raise AnsibleFallbackNotFound
    return any(value.strip().lower() in YES for value in values)


def argument_spec():
    return {
        "model": {"type": "str"},
        "config": {"type": "dict"},
        "source": {"type": "str", "choices": ["auto", "cache", "table", "endpoint"], "default": "auto"},
        "revision": {"type": "str", "default": "main"},
        "hf_endpoint": {"type": "str", "fallback": (env_fallback, ["HF_ENDPOINT"])},
        "hf_token": {
            "type": "str",
            "no_log": True,
            "fallback": (env_fallback, ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]),
        },
        "offline": {
            "type": "bool",
            "fallback": (yes_in_environment, ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]),
        },
        "timeout": {"type": "int", "default": 10},
        "validate_certs": {"type": "bool", "default": True},
        "ca_path": {"type": "path"},
    }


def passwords(url):
    """What no output may show of ``hf_endpoint``: a mirror's password may stand in it."""
    credentials, at, _host = (url or "").rpartition("@")
    _user, colon, password = credentials.rpartition("/")[2].partition(":")
    return {password} if at and colon and password else set()


def find(params):
    """The model document for the module's options; ModelError or ConfigError where there is none."""
    name = (params["model"] or "").strip()
    if params["config"] is not None:
        return model_document(name or None, "given", params["config"])
    if not name:
        raise ModelError("model is empty; give a repository, a path, or config")
    path = local_path(name)
    if path:
        return document(name, from_path(path, params["revision"]))
    repository = name[len("hf://") :] if name.startswith("hf://") else name
    for look in LOOKS[params["source"]]:
        model = look(name, repository, params)
        if model is not None:
            return model
    raise ModelError(f"{ELSEWHERE[params['source']]} doesn't have {name}{near(name)}; {GIVE}")


def document(name, found, assumptions=()):
    """The document for what a reader of module_utils.evidence.model_source found."""
    try:
        return model_document(
            name,
            found["source"],
            found["config"],
            found["location"],
            found["revision"],
            {key: found[key] for key in ("files", "checkpoint_bytes", "largest_file_bytes", "pickled")},
            [*assumptions, *found["assumptions"]],
        )
    except ConfigError as error:
        raise ModelError(f"{found['location']}: {error}; give the config of a language model") from error


def cached(name, repository, params):
    if not is_repository(repository):
        return None
    found = from_cache(repository, params["revision"])
    return found and document(name, found)


def bundled(name, _repository, params):
    if params["revision"] != "main":
        return None
    # Imported here: what is read elsewhere needs no table.
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.known_models import known_model

    known = known_model(name)
    return known and model_document(
        name,
        "table",
        known["config"],
        location=known["name"],
        assumptions=known["assumptions"],
        guessed=known["guessed"],
    )


def served(name, repository, params):
    if not is_repository(repository):
        if os.path.isabs(name) or name.startswith((".", "~")):
            raise ModelError(
                f"there is no file or directory {name} here, and its name is no well-known model's{near(name)};"
                f" {GIVE}"
            )
        raise ModelError(
            f"{name} is no repository, and its name is no well-known model's{near(name)}; {GIVE}"
        )
    if params["offline"]:
        raise ModelError(f"{name} isn't in the bundled table{near(name)}; {GIVE_OR_ASK}")
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.model_endpoint import Endpoint

    endpoint = Endpoint(
        params["hf_endpoint"] or HUB,
        params["hf_token"],
        params["timeout"],
        params["validate_certs"],
        params["ca_path"],
    )
    try:
        return document(name, endpoint.model(repository, params["revision"]))
    except ModelError as error:
        if error.unknown:
            raise ModelError(f"{error}{near(name)}") from error
        raise


def near(name):
    """The names of known models that are near, as a part of a sentence."""
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.sizing.known_models import nearest_models

    names = nearest_models(name)
    return f"; the nearest that are known: {', '.join(names)}" if names else ""


LOOKS = {"auto": (cached, bundled, served), "cache": (cached,), "table": (bundled,), "endpoint": (served,)}
ELSEWHERE = {"cache": "the Hugging Face cache of this host", "table": "the bundled table"}
# What a user can do: with the options of this module, or with the variables of the collection's playbooks.
GIVE = "give its config.json or its directory (config or model; vllm_oom_model_config in the playbooks)"
GIVE_OR_ASK = (
    "give its config.json, its directory or an endpoint to ask (config, model, or hf_endpoint with offline=false;"
    " vllm_oom_model_config or vllm_oom_hf_endpoint in the playbooks)"
)


def main():
    module = AnsibleModule(
        argument_spec=argument_spec(),
        supports_check_mode=True,
        required_one_of=[("model", "config")],
    )
    module.no_log_values.update(passwords(module.params["hf_endpoint"]))
    try:
        model = find(module.params)
    except ModelError as error:
        module.fail_json(msg=str(error))
    except ConfigError as error:
        module.fail_json(msg=f"config: {error}; give the whole config.json of a language model")
    module.exit_json(changed=False, model=model)


if __name__ == "__main__":
    main()
