# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables, options and keys hold a secret, by their names: one rule for reading, settings and commands.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

_SECRET_WORDS = {
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "pass",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "creds",
    "apikey",
    "authtoken",
    "accesstoken",
    "authkey",
    "bearer",
    "authorization",
    "cookie",
    "dsn",
    "token",
    "pat",
    "jwt",
    "key",
    "keys",
    "tokens",
    "auth",
}
# Words beside one of those above that make the name harmless: it counts, points to a file or names a concept.
_HARMLESS_WORDS = frozenset((
    "max", "min", "num", "number", "per", "batched", "batch", "budget", "id", "ids", "len", "length", "limit",
    "limits", "count", "counts", "size", "type", "class", "index", "eos", "bos", "pad", "sep", "prompt",
    "prompts", "image", "video", "audio", "mm", "special", "next", "last", "first", "new", "input", "output",
    "completion", "generation", "prefill", "decode", "threshold", "level", "file", "files", "filename", "path",
    "dir", "directory", "url", "uri", "endpoint", "name", "ref", "mode", "timeout", "ttl", "interval", "enabled",
    "enable", "disable", "disabled", "public", "cache", "hash", "topology", "routing", "partition", "sort",
    "primary", "foreign", "label", "toleration", "lookahead", "speculative", "draft", "usage", "total", "return",
    "details", "automount", "logprobs", "chunk", "allowed", "stop", "thinking", "reasoning", "throughput", "rate",
    "seconds", "expiry", "expiration", "kv", "value_cache", "query", "head", "heads", "latency", "position",
    "positions", "placeholder",
))  # fmt: skip
# "key", "keys", "tokens" and "auth" alone say nothing in running text; one of these beside them does.
_QUALIFIERS = frozenset((
    "api", "access", "secret", "private", "auth", "encryption", "signing", "account", "shared", "master", "ssh",
    "rsa", "license", "subscription", "service", "openai", "anthropic", "azure", "hf", "hugging", "aws", "s3",
    "gcp", "wandb", "admin", "client", "session", "hub", "bearer", "ngc", "nvidia", "github", "gitlab", "storage",
    "refresh", "oauth", "vllm", "langfuse", "langsmith", "cohere", "mistral", "together", "gemini", "google",
    "dd", "datadog", "redis",
))  # fmt: skip
_WEAK_WORDS = frozenset(("key", "keys", "tokens", "auth", "pass", "pat"))
_VALUE_WORDS = frozenset(("header", "value", "data", "base", "raw", "string", "json"))
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_secret_name(name, in_text=False):
    """Whether a variable, option or key of this name holds a secret.

    in_text: the name was found in running text, where a bare ``key`` or ``auth`` means nothing yet.
    ``HF_TOKEN``, ``--api-key``, ``AWS_SECRET_ACCESS_KEY`` do; ``max_num_batched_tokens``, ``tokenizer``,
    ``HF_TOKEN_PATH``, ``ssl_keyfile`` don't.
    """
    words = [word.lower() for word in _WORD.findall(name) if not word.isdigit()]
    found = [word for word in words if word in _SECRET_WORDS]
    if "access" in words and "key" in words:
        return True
    if not found or any(word in _HARMLESS_WORDS for word in words):
        return False
    if any(word not in _WEAK_WORDS for word in found):
        return True
    if words[-1] not in _WEAK_WORDS and words[-1] not in _VALUE_WORDS:
        return False
    return not (in_text or name.startswith("-") or words[-1] == "tokens") or any(
        word in _QUALIFIERS for word in words
    )
