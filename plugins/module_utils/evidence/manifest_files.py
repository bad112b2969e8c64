# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifest files before they ship: which files there are, and their YAML or JSON documents.

Stricter than for saved objects: what was written by hand may hold a key twice, aliases without end, or template
expressions that nobody rendered.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ..documents import DocumentError, unreadable
from ..quantities import MIB
from .archives import LIMITS, Reader
from .bundle import STDIN, STDIN_PATH, opened, standard_input

try:
    import yaml
except ImportError:  # pragma: no cover - PyYAML comes with ansible-core
    yaml = None  # type: ignore[assignment]

# What a folder may hold, and one file: the largest chart renders to a few MiB.
MANIFEST_LIMITS = LIMITS._replace(members=2000, total=64 * MIB, document=16 * MIB)
_NAME = re.compile(r"\.(?:ya?ml|json)$", re.IGNORECASE)
# Nodes of one file once aliases are followed, and how deep they may lie.
_MOST_NODES = 1_000_000
_DEEPEST = 100
_TEMPLATE = re.compile(r"\{\{|\{%")
RENDER = "render it first (helm template RELEASE CHART -f values.yaml, or kubectl kustomize FOLDER) and give the output"


class Document(NamedTuple):
    """One YAML or JSON document: the file it is from and what it holds."""

    name: str
    value: Any


def read_documents(path, stdin=None, limits=MANIFEST_LIMITS):
    """``([Document], [unreadable])`` of a file, of all YAML and JSON files below a folder, or of ``-``.

    stdin: as for ``bundle.read_bundle``. In a folder a bad file is an ``unreadable`` entry; given alone it raises
    DocumentError, as a folder does that holds no such file.
    """
    if path != "-" and os.path.isdir(path):
        return _folder(str(path), limits)
    if path == "-":
        return _documents(standard_input(stdin), STDIN, limits), []
    with opened(path) as stream:
        return _documents(stream, STDIN if STDIN_PATH.fullmatch(str(path)) else str(path), limits), []


def _folder(root, limits):
    names = sorted(
        os.path.join(folder, name)
        for folder, folders, files in os.walk(root)
        for name in files
        if _NAME.search(name) and not _is_hidden(os.path.relpath(os.path.join(folder, name), root))
    )
    if not names:
        raise DocumentError(f"{root}: holds no YAML or JSON file: give the folder or file with the manifests")
    if len(names) > limits.members:
        raise DocumentError(
            f"{root}: holds {len(names)} YAML and JSON files, at most {limits.members} are read: give the folder of"
            " one deployment"
        )
    found, problems, size = [], [], 0
    for name in names:
        try:
            size += os.path.getsize(name) if os.path.isfile(name) else 0
            if size > limits.total:
                raise DocumentError(
                    f"{root}: its files are larger than 64 MiB together: give the folder of one deployment"
                )
            with opened(name) as stream:
                found += _documents(stream, name, limits)
        except DocumentError as error:
            if size > limits.total:
                raise
            problems.append(unreadable("manifest", name, str(error).removeprefix(f"{name}: ")))
    return found, problems


def _is_hidden(relative):
    return any(part.startswith(".") for part in relative.split(os.sep))


def _documents(stream, name, limits):
    try:
        reader = Reader(stream, name, limits)
        if reader.is_binary():
            raise DocumentError(f"{name}: is a binary file, not a manifest: give YAML or JSON")
        data = reader.document()
    except OSError as error:
        raise DocumentError(f"{name}: cannot be read ({error.strerror or error})") from None
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    if not text.strip():
        raise DocumentError(f"{name}: is empty: give a file with Kubernetes objects or Helm values")
    return [Document(name, value) for value in parse(text, name) if value is not None]


def parse(text, name):
    """The documents of a YAML (or JSON) text; DocumentError names file, line and what to do."""
    if yaml is None:
        raise DocumentError(
            f"{name}: reading manifests takes PyYAML, which is not installed on this host: install it"
        )
    try:
        return _parse_yaml(text, name)
    except yaml.YAMLError as error:
        template = _TEMPLATE.search(text)
        if template:
            line = text.count("\n", 0, template.start()) + 1
            raise DocumentError(
                f"{name}: holds template expressions, the first in line {line}: {RENDER}"
            ) from None
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not readable"
        raise DocumentError(f"{name}: malformed YAML{where} ({problem}): correct it") from None
    except DocumentError:
        raise
    except RecursionError:
        raise DocumentError(f"{name}: nested too deep to be a manifest") from None
    except ValueError as error:
        raise DocumentError(f"{name}: a value that YAML cannot hold ({error}): put it in quotes") from None


def _parse_yaml(text, name):
    loader = _loader()(text)
    found = []
    try:
        while loader.check_node():
            node = loader.get_node()
            _check(node, name)
            found.append(loader.construct_document(node))
    finally:
        loader.dispose()
    return found


def _loader():
    """PyYAML's safe loader, in C where it is built in, that leaves times as the text they are, as Kubernetes does."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _check(root, name):
    """Refuse what a parser takes without a word: a key that stands twice, aliases without end, endless depth.

    Works on the node graph, in which an alias is one node however often it is used.
    """
    sizes: dict[int, int] = {}

    def size_of(node, depth):
        if depth > _DEEPEST:
            raise DocumentError(f"{name}: nested too deep to be a manifest")
        if id(node) in sizes:
            return sizes[id(node)]
        sizes[id(node)] = _MOST_NODES + 1  # a node that holds itself is endless
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, name)
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value if isinstance(node, yaml.SequenceNode) else []
        sizes[id(node)] = 1 + sum(size_of(child, depth + 1) for child in children)
        return sizes[id(node)]

    if size_of(root, 0) > _MOST_NODES:
        raise DocumentError(
            f"{name}: its YAML aliases expand to over {_MOST_NODES} values, refused: write them out"
        )


def _check_keys(node, name):
    seen = set()
    for key, _value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise DocumentError(
                f"{name}: line {key.start_mark.line + 1} has a key that is no text (a template expression such as {{{{ x }}}}"
                f" without quotes reads so): {RENDER}"
            )
        if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
            raise DocumentError(
                f"{name}: the key {key.value[:60]!r} stands twice in one map, again in line {key.start_mark.line + 1}:"
                " remove one of them"
            )
        seen.add(key.value)
