# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's version: read from log lines, image and labels; compared with ranges of releases.

A version is a tuple of ints. ``0.26.1rc1.dev77`` counts as 0.26.1, ``0.8.5.post1`` as 0.8.5: the ranges of
the shared facts name plain releases only.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NUMBER = r"\d{1,4}(?:\.\d{1,4}){1,3}(?![\dx])"
_SUFFIX = r"(?:\.?(?:rc|a|b|post|dev)\d*)*(?:\+[\w.]+)?"
_VERSION = re.compile(r"(?<![\w.])v?(" + _NUMBER + ")")
# A checkout without tags gives itself this version (setuptools_scm); it says nothing about the code.
_UNTAGGED = re.compile(r"v?0\.(?:0\.0|0|1)\.dev\d+|v?0\.0\.0\b|v?0\.1\.dev")

# vllm-memory section 1.1: the lines that carry vLLM's version. The logo's second line ends in it.
_LOG_LINES = tuple(
    re.compile(prefix + r"v?(" + _NUMBER + _SUFFIX + ")" + end)
    for prefix, end in (
        (r"(?:API|vLLM) server version ", ""),
        (r"LLM engine \(", r"\) with config"),
        (r"^[^0-9A-Za-z]*version ", r"\s*$"),
        (r"vLLM Version\s*: ", ""),
    )
)
# Only vLLM's own images are tagged with vLLM's version: docker.io/vllm/* (also behind a mirror's prefix)
# and the release repositories on public.ecr.aws. A tag that spells out "vllm" speaks for itself.
_OWN_IMAGE = re.compile(r"(?:^|/)(?:vllm|q9t5s3a7)/vllm-[\w.-]+$")
# A mirror in a registry of one's own may drop the owner (registry.corp/mirror/vllm-openai:v0.11.0). In a public registry
# another owner's image of that name is a build of its own, and so is LMCache's everywhere.
_MIRRORED_TAG = re.compile(r"v\d+\.\d+\.\d+")
_PUBLIC = (
    "docker.io",
    "index.docker.io",
    "ghcr.io",
    "quay.io",
    "nvcr.io",
    "gcr.io",
    "public.ecr.aws",
    "registry.redhat.io",
)
_OTHER_OWNERS = ("lmcache",)
_OWN_TAG = re.compile(r"v?(" + _NUMBER + r"(?:\.?(?:rc|post)\d+)?)(?![\d.])")
_NAMED_TAG = re.compile(r"(?:^|[_-])vllm[_-]?v?(" + _NUMBER + r"(?:\.?(?:rc|post)\d+)?)")
# Labels and annotations whose value is the version of vLLM (OpenShift AI; charts that name vllm).
_LABELS = ("opendatahub.io/runtime-version",)
_APP_NAME, _APP_VERSION = "app.kubernetes.io/name", "app.kubernetes.io/version"


def parse_version(text):
    """The first version in ``text`` as a tuple of ints (``v0.10.1.1`` -> ``(0, 10, 1, 1)``), or None.

    Two to four numbers; suffixes are dropped. ``0.8.x`` is ``(0, 8)``; ``0.2x`` and dates are no versions.
    """
    return text if isinstance(text, tuple) else _parsed(str(text)) if text else None


@lru_cache(maxsize=256)
def _parsed(text):
    if _UNTAGGED.match(text.strip()):
        return None
    match = _VERSION.search(text)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def compare(version, other):
    """-1, 0 or 1. Only the parts that both have count: 0.8 (any 0.8.x) equals 0.8.2; 0.8.0 is 0.8."""
    shared = min(len(version), len(other))
    left, right = version[:shared], other[:shared]
    return (left > right) - (left < right)


def in_range(version, since=None, until=None):
    """Whether ``version`` lies in ``since``-``until``, both ends included; None when the version isn't known.

    version, since, until: text or tuple; an end of None is open. ``until="0.13"`` includes 0.13.9, as in
    the facts' ranges. Of ``0.8.x`` only the known parts are compared.
    """
    version = parse_version(version)
    if version is None:
        return None
    if since is not None and compare(version, parse_version(since)) < 0:
        return False
    return until is None or compare(version, parse_version(until)) <= 0


def log_version(lines):
    """The version that vLLM printed about itself, as it printed it (``0.26.1rc1.dev77``), or None.

    lines: ``documents.line`` dicts or strings, without their log prefixes.
    """
    for item in lines:
        text = item if isinstance(item, str) else item.get("text") or ""
        for pattern in _LOG_LINES:
            match = pattern.search(text)
            if match and not _UNTAGGED.match(match.group(1)):
                return match.group(1)
    return None


def image_version(image):
    """The vLLM version that an image reference states, or None. A vendor's tag is never taken for vLLM's."""
    name = (image or "").partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        return None
    named = _NAMED_TAG.search(tag)
    if named:
        return named.group(1)
    own = _OWN_IMAGE.search(repository) or (_MIRRORED_TAG.match(tag) and _is_mirrored(repository))
    version = _OWN_TAG.match(tag) if own else None
    return version.group(1) if version else None


def _is_mirrored(repository):
    """Whether a repository is vLLM's own image in a registry that isn't public."""
    registry, _slash, path = repository.partition("/")
    private = re.search(r"[.:]|^localhost$", registry) and registry not in _PUBLIC
    *owners, name = path.split("/")
    return bool(private) and name == "vllm-openai" and not set(owners) & set(_OTHER_OWNERS)


def label_version(labels):
    """The vLLM version that labels or annotations state, or None."""
    labels = labels or {}
    keys = _LABELS + ((_APP_VERSION,) if "vllm" in str(labels.get(_APP_NAME, "")) else ())
    for key in keys:
        if parse_version(labels.get(key)):
            return str(labels[key]).strip().lstrip("v")
    return None
