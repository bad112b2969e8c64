# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to the API server for what is done to a cluster: the reader's connections, with questions that carry a body
and writes.

A write is sent once. Whether one without an answer was carried out, its caller finds out by reading again; where that is
safe is the caller's to know.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

from ..evidence import client
from ..evidence.client import ApiError

FIELD_MANAGER = "vllm-runbook-oom"
_JSON = "application/json"
_JSON_PATCH = "application/json-patch+json"
# Answers after which nobody knows whether the write was carried out, or that ask to come back: 429 and a server on its way.
_COME_BACK = (408, 429, 500, 502, 503, 504)
# A header such as: 299 - "spec.template...: deprecated".
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class Unsettled(Exception):
    """A write of which nobody knows whether it was carried out, or that the server couldn't take just then. why: a sentence."""

    def __init__(self, why):
        super().__init__(why)
        self.why = why


class Writer(client.Client):
    """Reads one cluster, asks it and writes to it.

    warnings: what the API server warned of, in order, each once.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.warnings = []
        self._offset = timedelta(0)

    def now(self):
        """The API server's time as an aware datetime in UTC, without fractions; this machine's until it has answered."""
        return (datetime.now(timezone.utc) - self._offset).replace(microsecond=0)

    def ask(self, path, body, params=()):
        """The JSON answer to a POST that changes nothing (a review, a dry run), asked again as a GET is. Raises ApiError."""
        sent = ("POST", _JSON, json.dumps(body).encode("utf-8"))
        return self._read(path, self._request(path, params, sent=sent))

    def patch(self, path, operations, dry_run=False):
        """The object that a JSON patch makes of the one at ``path``.

        dry_run: nothing is kept, and it is asked for again as a GET is. Else it is sent once. Raises ApiError where the server
        refuses it (409: the object has changed meanwhile); Unsettled.
        """
        params = [("fieldManager", FIELD_MANAGER), *([("dryRun", "All")] if dry_run else [])]
        sent = ("PATCH", _JSON_PATCH, json.dumps(operations).encode("utf-8"))
        if dry_run:
            return self._read(path, self._request(path, params, sent=sent))
        try:
            response = self._ask(self._url(path, params), False, sent)
        except (client.urllib3.exceptions.HTTPError, OSError) as error:
            raise Unsettled(client.why_not(error)) from error
        if response.status >= 400:
            refusal = client.refusal(response.status, response.data)
            if response.status in _COME_BACK or self._is_passing(response.status, log=False):
                raise Unsettled(f"{response.status}: {refusal.message}")
            raise refusal
        return self._read(path, response)

    def delete(self, path, uid):
        """Delete the object at ``path`` if it is the one with that uid. Raises ApiError; what is asked twice harms nothing."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        self._request(path, (), sent=("DELETE", _JSON, json.dumps(body).encode("utf-8")))

    def pause(self, seconds):
        self._pause(seconds)

    def _ask(self, url, log, sent=None):
        response = super()._ask(url, log, sent)
        self._take_time(response.headers.get("Date"))
        return response

    def _take_time(self, stamp):
        try:
            said = parsedate_to_datetime(stamp)
        except (TypeError, ValueError):
            return
        offset = datetime.now(timezone.utc) - said
        # A header has whole seconds.
        self._offset = offset if abs(offset) > timedelta(seconds=2) else timedelta(0)

    def _read(self, path, response):
        for line in response.headers.getlist("Warning"):
            for text in _WARNING.findall(line):
                said = text.replace('\\"', '"')
                if said not in self.warnings:
                    self.warnings.append(said)
        try:
            return json.loads(response.data)
        except ValueError as error:
            raise ApiError(
                response.status, f"{self.host} answered {path} with something that is no JSON"
            ) from error


def connect(params, environ=None):
    """A ``Writer`` for a module's parameters; raises as ``client.connect`` does."""
    return client.connect(params, environ, Writer)


def stamp(moment):
    """An aware datetime as the RFC 3339 text that documents hold."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment.utctimetuple())
