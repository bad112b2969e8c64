# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's config from a Hugging Face endpoint, or a mirror of its kind.

The token goes to the endpoint only, never to where it redirects, and into no text.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from ansible.module_utils.urls import open_url

from .model_files import QUANTIZATION_FILES, mistral_config, quantization_of
from .model_source import (
    ADAPTER,
    CONFIG,
    CONFIG_LIMIT,
    INDEX,
    INDEX_HEAD,
    MISTRAL,
    ModelError,
    adapter_error,
    found,
    parsed,
    total_size,
)

_REDIRECTS = 5
# How many times the timeout an answer may take in all: one that comes byte by byte is never silent.
_PATIENCE = 6
_REDIRECT_CODES = (301, 302, 303, 307, 308)
_MESSAGE_LIMIT = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Endpoint:
    """An endpoint with a token and how to reach it.

    url: such as https://huggingface.co; token: or None; timeout: seconds a server may stay silent; validate_certs,
    ca_path: as Ansible's uri module takes them.
    """

    def __init__(self, url, token=None, timeout=10, validate_certs=True, ca_path=None):
        parts = _split(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ModelError(
                f"hf_endpoint {shown(url)} isn't an http or https URL, such as https://huggingface.co"
            )
        self.url = url.rstrip("/")
        self.token = token or None
        self.timeout = timeout
        self.options = {"validate_certs": validate_certs, "ca_path": ca_path}
        self.secrets = [secret for secret in (token, parts.password) if secret]

    def model(self, name, revision="main"):
        """The model ``name`` at ``revision`` (see ``model_source.found``); ModelError says why there is none."""
        try:
            return self._model(name, revision)
        except ModelError as error:
            raise ModelError(self._hide(str(error)), error.unknown) from None

    def _model(self, name, revision):
        base = f"{self.url}/{quote(name)}/resolve/{quote(revision, safe='')}"
        assumptions: list[str] = []
        response = self._get(f"{base}/{CONFIG}", CONFIG_LIMIT + 1)
        listed, commit = self._listing(name, revision)
        names = {entry["name"] for entry in listed} if listed is not None else None

        def load(file):
            answer = self._get(f"{base}/{file}", CONFIG_LIMIT + 1)
            if answer.status != 200:
                raise self._refusal(answer, name, revision)
            return parsed(answer.body, shown(answer.url))

        def have(file):
            return file in names if names is not None else self._get(f"{base}/{file}", 1).status == 200

        if response.status == 200:
            config = parsed(response.body, shown(response.url))
            beside = {file for file in QUANTIZATION_FILES if have(file)} if _unquantized(config) else set()
            config = quantization_of(config, beside, load)
        elif not _is_missing_file(response):
            raise self._refusal(response, name, revision)
        elif have(MISTRAL):
            config = mistral_config(load(MISTRAL), assumptions)
        elif have(ADAPTER):
            raise adapter_error(load(ADAPTER), name)
        else:
            raise self._no_config(name, revision, listed)
        total = None
        if names is None or INDEX in names:
            index = self._get(f"{base}/{INDEX}", INDEX_HEAD)
            total = total_size(index.body) if index.status == 200 else None
        if listed is None:
            assumptions.append(f"{shown(self.url)} lists no files: their sizes aren't known")
        commit = response.headers.get("x-repo-commit") or commit or revision
        location = f"{shown(self.url)}/{name}"
        return found("endpoint", location, config, commit, listed or (), total, assumptions)

    def _listing(self, name, revision):
        """([{name, bytes}], commit) by the Hub's API, or (None, None) where it isn't offered."""
        at = "" if revision == "main" else f"/revision/{quote(revision, safe='')}"
        try:
            response = self._get(f"{self.url}/api/models/{quote(name)}{at}?blobs=true", CONFIG_LIMIT + 1)
            answer = json.loads(response.body) if response.status == 200 else None
        except (ModelError, ValueError, RecursionError):
            return None, None
        if not isinstance(answer, dict) or not isinstance(answer.get("siblings"), list):
            return None, None
        files = [
            {"name": entry["rfilename"], "bytes": entry.get("size")}
            for entry in answer["siblings"]
            if isinstance(entry, dict)
            and isinstance(entry.get("rfilename"), str)
            and isinstance(entry.get("size"), (int, type(None)))
        ]
        commit = answer.get("sha")
        return files, commit if isinstance(commit, str) else None

    def _get(self, url, limit):
        """The answer to a GET, at most ``limit`` bytes of it, after redirects; ModelError where none comes."""
        for _redirect in range(_REDIRECTS + 1):
            headers = {"Accept": "application/json, */*;q=0.5", "Accept-Encoding": "identity"}
            if self.token and _origin(url) == _origin(self.url):
                headers["Authorization"] = f"Bearer {self.token}"
            try:
                answer = self._open(url, headers, limit)
            except HTTPError as error:
                with error:
                    answer = _Answer(url, error.code, error.headers, b"")
            except (URLError, OSError, HTTPException, ValueError) as error:
                raise ModelError(self._unreachable(url, error)) from None
            target = answer.headers.get("location")
            if answer.status not in _REDIRECT_CODES or not target:
                return answer
            url = urljoin(url, target)
            parts = _split(url)
            if parts is None or parts.scheme not in ("http", "https"):
                raise ModelError(f"{shown(self.url)} redirects to {shown(url)}, which isn't http or https")
        raise ModelError(
            f"{shown(self.url)} redirects more than {_REDIRECTS} times, at last to {shown(url)}; look at hf_endpoint"
        )

    def _open(self, url, headers, limit):
        deadline = time.monotonic() + _PATIENCE * self.timeout
        response = open_url(
            url,
            headers=headers,
            timeout=self.timeout,
            follow_redirects="no",
            use_netrc=False,
            decompress=False,
            http_agent="vllm-runbook",
            **self.options,
        )
        with response:
            body = b""
            # A read gives what has come; only the end of the answer, or the limit, ends it.
            while len(body) < limit:
                part = response.read1(min(limit - len(body), 1 << 16))
                if not part:
                    break
                body += part
                if time.monotonic() > deadline:
                    raise TimeoutError
            length = response.headers.get("content-length")
            if length and length.isdigit() and len(body) < min(int(length), limit):
                raise HTTPException(f"the answer ends after {len(body)} of {length} bytes")
            return _Answer(url, response.status, response.headers, body)

    def _unreachable(self, url, error):
        where = shown(url)
        reason = getattr(error, "reason", error)
        text = str(reason)
        if isinstance(reason, (socket.timeout, TimeoutError)) or "timed out" in text:
            return f"{where} doesn't answer in time (timeout is {self.timeout} seconds); {_OFFLINE}"
        if any(word in text for word in _NO_TLS):
            return (
                f"{urlsplit(where).netloc} speaks no TLS; give hf_endpoint as http://{urlsplit(where).netloc}"
            )
        if isinstance(reason, ssl.SSLError) or "SSL" in text or "certificate" in text.lower():
            return f"the certificate of {urlsplit(where).netloc} can't be trusted ({_tls(text)}); give its CA as ca_path"
        if isinstance(reason, ConnectionRefusedError) or "refused" in text.lower():
            return f"{urlsplit(where).netloc} refuses connections; look at hf_endpoint and the proxy, or {_OFFLINE}"
        if isinstance(reason, socket.gaierror) or "Name or service" in text or "name resolution" in text:
            return f"the host name {urlsplit(where).hostname} isn't known here; {_OFFLINE}"
        return f"{where} can't be read ({_clean(text)}); {_OFFLINE}"

    def _refusal(self, answer, name, revision):
        """The ModelError for an answer that isn't 200."""
        code = answer.headers.get("x-error-code") or ""
        said = _clean(answer.headers.get("x-error-message") or "")
        at = shown(self.url)
        if code == "GatedRepo":
            todo = (
                "accept its terms with the account of hf_token"
                if self.token
                else "accept its terms, give hf_token"
            )
            return ModelError(f"{name} is gated at {at}; {todo}, or give its config")
        if answer.status == 401 and self.token and code != "RepoNotFound":
            return ModelError(f"{at} doesn't accept hf_token (401{_said(said)}); give one that is valid")
        if code == "RepoNotFound" or (answer.status in (401, 404) and not code):
            private = "" if self.token else ", or it is private and needs hf_token"
            return ModelError(f"{at} has no model {name}{private}", unknown=True)
        if code == "RevisionNotFound":
            return ModelError(
                f"{name} has no revision {revision} at {at}; give a branch, a tag or a commit of it"
            )
        if answer.status == 403:
            return ModelError(f"{at} refuses {name} (403{_said(said)}); hf_token needs the right to read it")
        if answer.status == 429:
            wait = _clean(answer.headers.get("retry-after") or "")
            later = f"try again in {wait} seconds" if wait.isdigit() else "try again later"
            return ModelError(f"{at} has had too many requests (429); {later}, or give hf_token")
        if answer.status >= 500:
            return ModelError(
                f"{at} has a fault ({answer.status}{_said(said)}); try again later, or {_OFFLINE}"
            )
        return ModelError(
            f"{at} answers {answer.status} for {name}{_said(said, ' (', ')')}; look at hf_endpoint"
        )

    def _no_config(self, name, revision, listed):
        ggufs = sorted(entry["name"] for entry in listed or () if entry["name"].endswith(".gguf"))
        hint = (
            f"its GGUF files ({ggufs[0]} ...) hold it: download one and give its path, or give the original model"
            if ggufs
            else "give a model in Transformers' format, or its config"
        )
        return ModelError(f"{name} at {shown(self.url)}, revision {revision}, has no {CONFIG}; {hint}")

    def _hide(self, text):
        for secret in self.secrets:
            text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text


# What OpenSSL says of an answer in plain HTTP, by its version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "wrong version number")
_OFFLINE = "give the config, a directory that has it, or a model of the bundled table (source=table)"


class _Answer:
    """Status, headers (their names in lower case) and body of an answer, and the URL that gave it."""

    def __init__(self, url, status, headers, body):
        self.url = url
        self.status = status
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.body = body


def shown(url):
    """``url`` without user, password, query and fragment: signed links carry secrets there."""
    parts = _split(url)
    if parts is None:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    return _clean(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))


def _split(url):
    try:
        parts = urlsplit(url)
        # Only reading the port tells whether it is a number.
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def _origin(url):
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


def _is_missing_file(answer):
    """Whether an answer says that the repository is there and the file isn't."""
    return answer.status == 404 and answer.headers.get("x-error-code") == "EntryNotFound"


def _unquantized(config):
    sections = (config, config.get("text_config"))
    return not any(isinstance(section, dict) and section.get("quantization_config") for section in sections)


def _said(text, before=": ", after=""):
    return f"{before}{text}{after}" if text else ""


def _tls(text):
    reason = re.search(r"certificate verify failed: ([^(]+)", text)
    return _clean((reason.group(1) if reason else text).strip())


def _clean(text):
    """Server's words in one line of bounded length."""
    text = _CONTROL.sub(" ", str(text)).strip().rstrip(".")
    return text if len(text) <= _MESSAGE_LIMIT else text[:_MESSAGE_LIMIT] + "…"
