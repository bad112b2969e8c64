# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a model's config is read: a file, a directory, the Hugging Face cache, an endpoint of the Hub's kind.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import os
import re

from ..documents import DocumentError
from .gguf_header import GgufError, read_gguf
from .model_files import checkpoint, mistral_config, quantization_of

CONFIG = "config.json"
MISTRAL = "params.json"
ADAPTER = "adapter_config.json"
INDEX = "model.safetensors.index.json"

# The longest configs list every quantized module: 2.4 MB.
CONFIG_LIMIT = 16 << 20
# ``metadata.total_size`` stands at the beginning of an index, before the map of all tensors.
INDEX_HEAD = 64 << 10
_TOTAL_SIZE = re.compile(rb'"total_size"\s*:\s*(\d{1,18})(?:\.0)?\s*[,}\n]')
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


class ModelError(DocumentError):
    """A model's config that can't be had; the text says what, where and what to do.

    unknown: whether there is no model of that name, so that near names help.
    """

    def __init__(self, text, unknown=False):
        super().__init__(text)
        self.unknown = unknown


def found(source, location, config, revision=None, files=(), total=None, assumptions=()):
    """What every reader of this module returns; sizes are bytes, ``files`` [{name, bytes}] those of the weights."""
    return {
        "source": source,
        "location": location,
        "revision": revision,
        "config": config,
        "assumptions": list(assumptions),
        **checkpoint(files, total),
    }


def is_repository(name):
    """Whether ``name`` has the form of a repository id (``owner/model``, or ``model`` of the old ones)."""
    return bool(_REPOSITORY.fullmatch(name)) and "--" not in name and ".." not in name


def local_path(name):
    """The path that ``name`` is on this host, or None where there is none; ModelError where nobody may look."""
    path = os.path.expanduser(name)
    try:
        os.stat(path)
    except PermissionError as error:
        if is_repository(name):
            return None
        raise _unreadable(path, error) from error
    except (OSError, ValueError):
        return None
    return path


def from_path(path, revision="main"):
    """The model in a directory or file: ``config.json``, ``params.json``, a GGUF file, a directory of the cache."""
    try:
        if os.path.isdir(path):
            return _from_directory(path, revision)
        if os.path.isfile(path):
            return _from_file(path)
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise _unreadable(path, error) from error
    raise ModelError(f"there is no file or directory {path}; give the directory that holds {CONFIG}")


def _unreadable(path, error):
    where = "it and of the directories above it" if isinstance(error, PermissionError) else "it"
    return ModelError(
        f"{path} can't be read: {error.strerror or error}; look at the owner and mode of {where}"
    )


def from_cache(name, revision="main", environment=None):
    """The model ``name`` in the Hugging Face cache of this host, or None where it isn't there."""
    root = os.path.join(cache_directory(os.environ if environment is None else environment))
    directory = os.path.join(root, "models--" + name.replace("/", "--"))
    try:
        snapshot, commit = _snapshot(directory, revision)
        if snapshot is None or not _has_config(snapshot):
            return None
        return dict(_read_directory(snapshot, commit), source="cache")
    except OSError:
        return None


def cache_directory(environment):
    """Where huggingface_hub keeps what it downloaded, by the variables that it reads."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return os.path.expanduser(environment[variable])
    home = environment.get("HF_HOME") or os.path.join(
        environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface"
    )
    return os.path.join(os.path.expanduser(home), "hub")


def parsed(data, location):
    """The JSON object in the bytes ``data``; ModelError where it is anything else."""
    if len(data) > CONFIG_LIMIT:
        raise ModelError(f"{location} is larger than {CONFIG_LIMIT >> 20} MiB: that is no model's config")
    try:
        config = json.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        if data.lstrip()[:1] == b"<":
            raise ModelError(
                f"{location} is a web page, not JSON; a proxy or a login page may stand in between"
            ) from error
        raise ModelError(
            f"{location} isn't JSON ({_where(error)}); it may be cut or a Git LFS pointer"
        ) from error
    if not isinstance(config, dict):
        raise ModelError(f"{location} holds a JSON {_json_type(config)}; a model's config is an object")
    return config


def total_size(head):
    """``metadata.total_size`` from the first bytes of a safetensors index, or None."""
    match = _TOTAL_SIZE.search(head)
    return int(match.group(1)) if match else None


def adapter_error(adapter, location):
    """Why an adapter has no size of its own."""
    base = adapter.get("base_model_name_or_path")
    of = f" of {base}" if isinstance(base, str) and base else ""
    instead = base if of else "its base model"
    return ModelError(
        f"{location} is a LoRA or PEFT adapter{of}, not a model; give {instead}, and size the adapter with max_loras"
        " and max_lora_rank"
    )


def _where(error):
    line, column = getattr(error, "lineno", None), getattr(error, "colno", None)
    if line:
        return f"line {line}, column {column}"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "nested too deep"


def _json_type(value):
    names = ((bool, "boolean"), (list, "list"), (str, "string"), ((int, float), "number"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _read(path, limit):
    with open(path, "rb") as file:
        return file.read(limit)


def _from_file(path):
    head = _read(path, 4)
    if head == b"GGUF":
        try:
            config, assumptions = read_gguf(path)
        except GgufError as error:
            raise ModelError(f"{path} is a GGUF file whose header can't be read: {error}") from error
        files = [{"name": os.path.basename(path), "bytes": os.path.getsize(path)}]
        return found("file", path, config, files=files, assumptions=assumptions)
    if path.endswith((".safetensors", ".bin", ".pt", ".pth")):
        raise ModelError(f"{path} holds weights, not a config; give its directory, with {CONFIG} in it")
    config = parsed(_read(path, CONFIG_LIMIT + 1), path)
    name = os.path.basename(path)
    if name == ADAPTER or ("base_model_name_or_path" in config and "peft_type" in config):
        raise adapter_error(config, path)
    said: list[str] = []
    if name == MISTRAL or ("dim" in config and "n_layers" in config):
        config = mistral_config(config, said)
    return found("file", path, config, assumptions=said)


def _from_directory(path, revision):
    snapshot, commit = _snapshot(path, revision)
    if snapshot is not None:
        return dict(_read_directory(snapshot, commit), source="cache")
    if os.path.isdir(os.path.join(path, "snapshots")):
        raise ModelError(
            f"the cache {path} has no revision {revision} (refs/{revision}); download it, or name one it has"
        )
    return _read_directory(path, None)


def _snapshot(directory, revision):
    """(snapshot, commit) of a directory that huggingface_hub keeps, or (None, None)."""
    snapshots = os.path.join(directory, "snapshots")
    if not os.path.isdir(snapshots):
        return None, None
    reference = os.path.join(directory, "refs", revision)
    # A revision is a branch or tag, or a commit.
    commit = revision
    if ".." not in revision.split("/") and os.path.isfile(reference):
        commit = _read(reference, 256).decode("ascii", "replace").strip()
    snapshot = os.path.join(snapshots, commit)
    if not re.fullmatch(r"[\w.-]+", commit) or not os.path.isdir(snapshot):
        return None, None
    return snapshot, commit


def _has_config(directory):
    return any(os.path.isfile(os.path.join(directory, name)) for name in (CONFIG, MISTRAL))


def _read_directory(directory, commit):
    files = _listed(directory)
    names = {entry["name"] for entry in files}

    def load(name):
        path = os.path.join(directory, name)
        return parsed(_read(path, CONFIG_LIMIT + 1), path)

    assumptions: list[str] = []
    if CONFIG in names:
        config = quantization_of(load(CONFIG), names, load)
    elif MISTRAL in names:
        config = mistral_config(load(MISTRAL), assumptions)
    elif ADAPTER in names:
        raise adapter_error(load(ADAPTER), directory)
    else:
        ggufs = sorted(name for name in names if name.endswith(".gguf"))
        if len(ggufs) == 1:
            return _from_file(os.path.join(directory, ggufs[0]))
        hint = f"; give one of its GGUF files, such as {ggufs[0]}" if ggufs else ""
        raise ModelError(
            f"the directory {directory} has no {CONFIG}{hint or '; give the directory a model was downloaded to'}"
        )
    head = _read(os.path.join(directory, INDEX), INDEX_HEAD) if INDEX in names else b""
    return found("directory", directory, config, commit, files, total_size(head), assumptions)


def _listed(directory):
    """[{name, bytes}] of the files in ``directory`` itself; links of the cache count as what they lead to."""
    entries = []
    with os.scandir(directory) as listing:
        for entry in listing:
            try:
                if entry.is_file():
                    entries.append({"name": entry.name, "bytes": entry.stat().st_size})
            except OSError:
                # A link of the cache that leads nowhere: not downloaded.
                continue
    return sorted(entries, key=lambda entry: entry["name"])
