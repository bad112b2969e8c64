# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A narrow reader of the Kubernetes API: get, paged lists, log streams, exec; raw JSON over kept connections.

Plain credentials are read by ``kubeconfig``; for all other ways in, and for exec, the ``kubernetes`` package
supplies configuration (credential plugins, proxies, merged files) and transport. Neither its typed API nor its
dynamic client is used, since both cost more time than a whole run here. Options and their ``K8S_AUTH_*``
environment twins are those of kubernetes.core.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json
import os
import re
import time
import traceback
from urllib.parse import urlencode

from ..documents import DocumentError
from .kubeconfig import SERVICE_ACCOUNT, plain_access, ssl_context
from .redact import Redactor

URLLIB3_IMPORT_ERROR = None
try:
    import urllib3

    # urllib3 1.26 has it only there.
    from urllib3._collections import HTTPHeaderDict
except ImportError:
    URLLIB3_IMPORT_ERROR = traceback.format_exc()

PAGE = 500
CHUNK = 1 << 16
WORKERS = 8
# Answers to a log request that the API server gives when the node's kubelet doesn't.
NODE_FAILURES = (500, 502, 503, 504)
_RETRIED = (429, *NODE_FAILURES)
# A server that has just started answers so before it knows its users and roles.
_UNSETTLED = (401, 403)
_SETTLED_AFTER = 10.0
_PAUSES = (0.2, 0.5, 1.0)
# Between looks whether a server that went away is back: a restart of the only one takes 2 to 10 s.
_PAUSE_WHILE_AWAY = 1.0
_MAX_RETRY_AFTER = 5.0
# Seconds that all requests of a run together pause before they ask again.
_PAUSES_OF_A_RUN = 30.0
_CONNECT_TIMEOUT = 10.0
_READ_TIMEOUT = 20.0
# Seconds without any answer after which the server is given up for the rest of the run.
_PATIENCE = 40.0

# The client configuration's attribute for each option of kubernetes.core (its args_common.AUTH_ARG_MAP).
_OPTIONS = {
    "host": "host",
    "api_key": "api_key",
    "username": "username",
    "password": "password",
    "verify_ssl": "validate_certs",
    "ssl_ca_cert": "ca_cert",
    "cert_file": "client_cert",
    "key_file": "client_key",
    "proxy": "proxy",
    "no_proxy": "no_proxy",
    "kubeconfig": "kubeconfig",
    "context": "context",
    "persist_config": "persist_config",
    "proxy_headers": "proxy_headers",
    "impersonate_user": "impersonate_user",
    "impersonate_groups": "impersonate_groups",
}
_BOOLEANS = ("verify_ssl", "persist_config")
_PROXY_HEADERS = ("proxy_basic_auth", "basic_auth", "user_agent")
_NOT_ATTRIBUTES = (
    "kubeconfig",
    "context",
    "persist_config",
    "proxy_headers",
    "impersonate_user",
    "impersonate_groups",
)


class LibraryMissing(Exception):
    """The ``kubernetes`` package (or urllib3, which comes with it) is needed and absent.

    library: its name; details: the import's traceback.
    """

    def __init__(self, library, details):
        super().__init__(f"the Python library {library} is missing")
        self.library = library
        self.details = details


class ApiError(Exception):
    """A request that got no usable answer. status: the HTTP status, or None when nobody answered."""

    def __init__(self, status, message, body=None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = body or {}


def auth_settings(params, environ=None):
    """kubernetes.core's options as client attributes: what ``params`` has, else the ``K8S_AUTH_*`` variable.

    params: module parameters by option name (others are ignored); environ: default ``os.environ``.
    """
    environ = os.environ if environ is None else environ
    found = {}
    for attribute, option in _OPTIONS.items():
        value = params.get(option)
        if value is None:
            value = _from_environment(environ, attribute, option)
        if value is not None:
            found[attribute] = value
    return found


def _from_environment(environ, attribute, option):
    if attribute == "proxy_headers":
        headers = {key: environ.get("K8S_AUTH_PROXY_HEADERS_" + key.upper()) for key in _PROXY_HEADERS}
        return {key: value for key, value in headers.items() if value} or None
    value = environ.get("K8S_AUTH_" + option.upper()) or environ.get("K8S_AUTH_" + attribute.upper())
    if value is None:
        return None
    if attribute in _BOOLEANS:
        return value.lower() not in ("0", "false", "no")
    if attribute == "impersonate_groups":
        return [item for item in value.split(",") if item]
    return value


def connect(params, environ=None, make=None):
    """A ``Client`` for a module's parameters. Raises DocumentError when no cluster is configured, LibraryMissing.

    The order is kubernetes.core's: host with credentials, else kubeconfig or context, else the pod's service
    account, else the default kubeconfig. make: a subclass of ``Client`` to be made instead.
    """
    if URLLIB3_IMPORT_ERROR:
        raise LibraryMissing("kubernetes", URLLIB3_IMPORT_ERROR)
    environ = os.environ if environ is None else environ
    make = make or Client
    auth = auth_settings(params, environ)
    urllib3.disable_warnings()
    # urllib3 1 can't check the name of a server that is addressed by number with a context of ours.
    access = plain_access(auth, environ) if int(urllib3.__version__.split(".")[0]) >= 2 else None
    if access:
        pool = _plain_pool(access)
        return make(
            pool,
            access["host"],
            access["namespace"] or "default",
            lambda: [("authorization", f"Bearer {access['token']}")] if access["token"] else [],
            _impersonation(auth),
            lambda: _configuration(auth)[0],
        )
    _check_kubeconfig_exists(auth, environ)
    configuration, namespace = _configuration(auth)
    return make(
        _library_pool(configuration),
        configuration.host,
        namespace or "default",
        lambda: _library_headers(configuration),
        _impersonation(auth),
        lambda: configuration,
    )


def _check_kubeconfig_exists(auth, environ):
    """Raises DocumentError where options or environment name a kubeconfig file (or several) and there is none."""
    if _explicit(auth):
        return
    given = auth.get("kubeconfig")
    if not given and not environ.get("KUBERNETES_SERVICE_HOST"):
        given = environ.get("KUBECONFIG")
    if not isinstance(given, str):
        return
    paths = [os.path.expanduser(path) for path in given.split(os.pathsep) if path]
    if paths and not any(os.path.exists(path) for path in paths):
        raise DocumentError(
            f"there is no kubeconfig file {' nor '.join(paths)}: give the path of one (option kubeconfig, or "
            "K8S_AUTH_KUBECONFIG or KUBECONFIG in the environment), or host and api_key"
        )


def _plain_pool(access):
    context = ssl_context(access)
    options = {}
    if context:
        options["ssl_context"] = context
    if context and access["server_name"]:
        options.update(server_hostname=access["server_name"], assert_hostname=access["server_name"])
    return urllib3.PoolManager(num_pools=4, maxsize=WORKERS, **options)


def _library_pool(configuration):
    from kubernetes.client.rest import RESTClientObject

    return RESTClientObject(configuration).pool_manager


def _library_headers(configuration):
    settings = configuration.auth_settings().values()
    headers = [("authorization", item["value"]) for item in settings if item.get("value")]
    if configuration.username and not headers:
        headers.append(("authorization", configuration.get_basic_auth_token()))
    return headers


def _configuration(auth):
    """``(client configuration, the context's namespace or None)`` by the ``kubernetes`` package."""
    try:
        from kubernetes.client.configuration import Configuration
    except ImportError:
        raise LibraryMissing("kubernetes", traceback.format_exc()) from None
    configuration = Configuration()
    configuration.connection_pool_maxsize = WORKERS
    namespace = None if _explicit(auth) else _load(auth, configuration)
    for attribute, value in auth.items():
        if attribute in _NOT_ATTRIBUTES:
            continue
        if attribute == "api_key":
            value = {"authorization": f"Bearer {value}"}
        setattr(configuration, attribute, value.rstrip("/") if attribute == "host" else value)
    if auth.get("proxy_headers"):
        given = {key: value for key, value in auth["proxy_headers"].items() if value}
        configuration.proxy_headers = urllib3.util.make_headers(**given)
    return configuration, namespace


def _explicit(auth):
    """Enough to authenticate without any kubeconfig."""
    return bool(
        auth.get("host")
        and (
            auth.get("api_key")
            or (auth.get("username") and auth.get("password"))
            or (auth.get("cert_file") and auth.get("key_file"))
        )
    )


def _load(auth, configuration):
    """Fill ``configuration`` from a kubeconfig or the service account; returns its namespace or None."""
    from kubernetes import config as kube_config

    given = auth.get("kubeconfig")
    if not given and not auth.get("context"):
        try:
            kube_config.load_incluster_config(client_configuration=configuration)
        except kube_config.ConfigException:
            pass
        else:
            return _in_cluster_namespace()
    options = {"context": auth.get("context"), "persist_config": auth.get("persist_config")}
    try:
        if isinstance(given, dict):
            kube_config.load_kube_config_from_dict(given, client_configuration=configuration, **options)
            return _context_namespace(given, auth.get("context"))
        kube_config.load_kube_config(given, client_configuration=configuration, **options)
        contexts, active = kube_config.list_kube_config_contexts(given)
    # The loader runs credential plugins and decodes user files: whatever it raises is about that input.
    except Exception as error:
        where = "the given kubeconfig" if isinstance(given, dict) else (given or "the default kubeconfig")
        # A credential plugin's own words may hold what it was to keep.
        why = Redactor().text(_first_line(error))
        raise DocumentError(
            f"no cluster can be read: {where} is not usable ({why}); give kubeconfig and context, "
            "or host and api_key, or their K8S_AUTH_ environment variables"
        ) from error
    chosen = next((item for item in contexts if item.get("name") == auth.get("context")), active)
    return (chosen.get("context") or {}).get("namespace")


def _context_namespace(kubeconfig, context):
    name = context or kubeconfig.get("current-context")
    for item in kubeconfig.get("contexts") or []:
        if item.get("name") == name:
            return (item.get("context") or {}).get("namespace")
    return None


def _in_cluster_namespace():
    try:
        with open(SERVICE_ACCOUNT + "/namespace", encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None


def _impersonation(auth):
    headers = []
    if auth.get("impersonate_user"):
        headers.append(("Impersonate-User", auth["impersonate_user"]))
    headers += [("Impersonate-Group", group) for group in auth.get("impersonate_groups") or []]
    return headers


class LogGone(ApiError):
    """The node no longer has a container's log, and the kubelet says so in its place."""


class BrokeOff(ApiError):
    """The connection ended in the middle of a log."""


class _Unreached(ApiError):
    """No request of several got through. between: when the last but one had failed, and when the last was sent."""

    def __init__(self, message, between):
        super().__init__(None, message)
        self.between = between


class _NothingCame(ApiError):
    """A log didn't begin in time: the node's fault or the server's."""


# No times in it: equal reasons are reported together.
_NO_ANSWER = "nothing came in time"
# The kubelet's errors when it has sent the headers of a log already (kuberuntime's GetContainerLogs and ReadLogs).
_REFUSED_LOG = re.compile(
    rb"\s*(?P<why>unable to retrieve container logs for \S+|"
    rb"failed to (?:try resolving symlinks in path|open log file) [^\n]+)\s*"
)
_REFUSAL_BYTES = 2000
_OBJECTS = re.compile(
    r"<[\w.]+ object at 0x[0-9a-f]+>:? ?|HTTPS?Connection(?:Pool)?\(host=[^)]*, port=\d+\): "
)


class Client:
    """Reads one cluster. Safe for use by several threads at once.

    namespace: the configured context's, for a caller that names none. credentials() returns headers; library()
    returns the ``kubernetes`` package's configuration, which exec needs.
    """

    def __init__(self, pool, host, namespace, credentials, impersonation=(), library=None, pause=time.sleep):
        self.host = host.rstrip("/")
        self.namespace = namespace
        self._pool = pool
        self._credentials = credentials
        self._impersonation = list(impersonation)
        self._library = library
        self._pause = pause
        self._pauses_left = _PAUSES_OF_A_RUN
        # Whether the server ever answered, and since when it does again.
        self._known = False
        self._back_at = None
        # After requests in vain: since when nothing was heard, why, and whether one of them was tried to its end.
        self._heard_at = time.monotonic()
        self._silent_since = None
        self._why_silent = _NO_ANSWER
        self._silent = False

    def get(self, path, params=()):
        """The JSON at ``path``. Raises ApiError."""
        response = self._request(path, params)
        try:
            return json.loads(response.data)
        except ValueError as error:
            raise ApiError(
                response.status, f"{self.host} answered {path} with something that is no JSON"
            ) from error

    def pages(self, path, params=(), limit=PAGE):
        """Every item of the list at ``path``, fetched page by page.

        When the server has dropped the list's state (410), it goes on with the token that comes with the
        answer, or starts again once and leaves out what was yielded.
        """
        token, seen, restarted = None, set(), False
        while True:
            query = [*_pairs(params), ("limit", str(limit))] + ([("continue", token)] if token else [])
            try:
                page = self.get(path, query)
            except ApiError as error:
                token_given = (error.body.get("metadata") or {}).get("continue")
                if error.status != 410 or (restarted and not token_given):
                    raise
                restarted, token = True, token_given
                continue
            kind = (page.get("kind") or "").replace("List", "")
            for item in page.get("items") or []:
                uid = _uid(item)
                if uid in seen:
                    continue
                if uid:
                    seen.add(uid)
                # Items of a list carry neither of the two; later stages tell objects apart by them.
                if isinstance(item, dict):
                    item.setdefault("kind", kind or None)
                    item.setdefault("apiVersion", page.get("apiVersion"))
                yield item
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return

    def log(self, namespace, pod, params=()):
        """A container's log as it comes, in chunks of bytes. Raises ApiError; BrokeOff in the middle; LogGone.

        What the API server says for a kubelet that doesn't answer (NODE_FAILURES) is not asked for again.
        A kubelet that keeps the server waiting counts as one of them: 504.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        try:
            response = self._request(path, params, log=True)
        except _NothingCame:
            self._ask_the_server()
            raise ApiError(504, f"nothing came within {_READ_TIMEOUT:g} s") from None
        yield from _without_refusal(self._chunks(response))

    def _ask_the_server(self):
        """Raise ApiError when the server itself doesn't answer."""
        try:
            self._request("/version", ())
        except ApiError as error:
            if error.status is None:
                raise

    def _chunks(self, response):
        try:
            for chunk in response.stream(CHUNK):
                self._heard()
                yield chunk
        except urllib3.exceptions.HTTPError as error:
            if isinstance(error, urllib3.exceptions.ReadTimeoutError):
                self._heard_nothing(self._heard_at, error)
                raise ApiError(None, f"the connection broke off ({_first_line(error)})") from error
            raise BrokeOff(None, f"the connection broke off ({_first_line(error)})") from error
        finally:
            # A connection that was read to its end goes back to the pool, any other is closed.
            if response.isclosed():
                response.release_conn()
            else:
                response.close()

    def exec(self, namespace, pod, container, command, timeout=5.0):
        """What ``command`` (a list) prints in a running container. Raises ApiError.

        Not with impersonation: the websocket transport would leave those headers out and act as the caller.
        """
        if self._impersonation:
            raise ApiError(None, "exec is not possible with impersonation")
        started = time.monotonic()
        self._patience()
        configuration = self._library()
        import websocket
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import ws_client

        query = [("container", container), ("stdout", "true"), ("stderr", "true"), ("stdin", "false")]
        query += [("command", part) for part in command]
        headers = {name.lower(): value for name, value in self._headers()}
        url = f"{self.host}/api/v1/namespaces/{namespace}/pods/{pod}/exec"
        # The handshake has no limit of its own.
        websocket.setdefaulttimeout(_CONNECT_TIMEOUT)
        try:
            socket = ws_client.websocket_call(
                configuration, "GET", url, query_params=query, headers=headers, _preload_content=False
            )
        except ApiException as error:
            status = re.search(r"status (\d{3})", str(error.reason))
            if not status:
                self._heard_nothing(started, error)
            raise ApiError(int(status.group(1)) if status else None, _first_line(error.reason)) from error
        self._heard()
        try:
            socket.run_forever(timeout=timeout)
            if socket.is_open():
                raise ApiError(None, f"{command[0]} did not end within {timeout:g} s")
            printed, complaint, outcome = (socket.read_channel(channel) for channel in (1, 2, 3))
        except (websocket.WebSocketException, OSError) as error:
            raise ApiError(None, f"the connection broke off ({_first_line(error)})") from error
        finally:
            # Not close(): it waits for the other side, which may be what hangs.
            socket.sock.shutdown()
        failure = _failed(outcome)
        if failure:
            # nvidia-smi says on standard output what is wrong.
            said = [_first_line(text) for text in (complaint, printed) if text.strip()]
            raise ApiError(None, "; ".join(said) or f"{command[0]}: {failure}")
        return printed

    def _headers(self):
        given = [("Accept", "application/json"), ("User-Agent", "vllm_runbook.oom")]
        return given + self._impersonation + self._credentials()

    def _request(self, path, params, log=False, sent=None):
        """The answer to a GET. Raises ApiError; for a log that doesn't begin in time _NothingCame.

        A server that went away in the middle of a run is waited for, once. sent: see ``_ask``; only of what may be asked twice.
        """
        url = self._url(path, params)
        try:
            return self._ask_repeatedly(url, log, sent)
        except _Unreached as unreached:
            # Where others were answered between its last tries, it is this request alone that fails.
            failed_at, tried_at = unreached.between
            alone = failed_at <= self._heard_at <= tried_at
            if not self._known or not (self._waited_for_return() or not alone):
                raise ApiError(None, unreached.message) from unreached
        return self._ask_repeatedly(url, log, sent)

    def _url(self, path, params):
        query = urlencode(_pairs(params))
        return f"{self.host}{path}" + (f"?{query}" if query else "")

    def _waited_for_return(self):
        """Whether the server was away and is back; False when it is there. Raises ApiError when it stays away."""
        away = False
        while True:
            try:
                self._ask(f"{self.host}/version", log=False)
                return away
            except (urllib3.exceptions.HTTPError, OSError):
                away = True
                self._pause(_PAUSE_WHILE_AWAY)

    def _ask_repeatedly(self, url, log, sent=None):
        """The answer to a GET. Raises _Unreached after several requests in vain, ApiError for a refusal."""
        # Once the server stayed silent through all tries, later requests don't wait for it again.
        pauses = () if self._silent else _PAUSES
        failed_at = time.monotonic()
        for pause in (*pauses, None):
            tried_at = time.monotonic()
            try:
                response = self._ask(url, log, sent)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if isinstance(error, urllib3.exceptions.SSLError) and not self._known:
                    raise ApiError(None, f"TLS to {self.host} fails ({_first_line(error)})") from error
                if log and isinstance(error, urllib3.exceptions.ReadTimeoutError):
                    raise _NothingCame(None, _NO_ANSWER) from error
                if not self._may_ask_again(pause):
                    self._silent = True
                    raise _Unreached(why_not(error), (failed_at, tried_at)) from error
                failed_at = time.monotonic()
                self._pause(pause)
                continue
            if response.status < 400:
                return response
            body = response.data
            wait = max(pause or 0.0, _retry_after(response))
            if not self._is_passing(response.status, log) or not self._may_ask_again(pause and wait):
                raise refusal(response.status, body)
            self._pause(wait)
        raise AssertionError("the last try returns or raises")

    def _ask(self, url, log, sent=None):
        """One GET, or another request: sent is ``(method, content type, body)``, as text.

        Raises urllib3's errors and OSError; ApiError when the server has been given up.
        """
        method, content_type, body = sent or ("GET", None, None)
        patience = self._patience()
        started = time.monotonic()
        headers = HTTPHeaderDict()
        for name, value in self._headers():
            headers.add(name, value)
        if log:
            headers["Accept"] = "*/*"
        else:
            headers["Accept-Encoding"] = "gzip"
        if content_type:
            headers["Content-Type"] = content_type
        timeout = urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, patience), read=min(_READ_TIMEOUT, patience))
        try:
            response = self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=not log,
                timeout=timeout,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._heard_nothing(started, error)
            raise
        self._heard()
        return response

    def _is_passing(self, status, log):
        """Whether the same request may get another answer soon."""
        if status in _UNSETTLED:
            return self._back_at is not None and time.monotonic() - self._back_at < _SETTLED_AFTER
        return status in _RETRIED and not (log and status in NODE_FAILURES)

    def _patience(self):
        """For how many seconds the server may still be waited for. Raises ApiError when it has been given up."""
        since = self._silent_since
        left = _PATIENCE if since is None else _PATIENCE - (time.monotonic() - since)
        if left <= 0:
            raise ApiError(None, self._why_silent)
        return left

    def _may_ask_again(self, pause):
        """Whether to ask again after ``pause`` seconds (None: that was the last try)."""
        if pause is None or self._pauses_left <= 0:
            return False
        self._pauses_left -= pause
        return True

    def _heard(self):
        self._heard_at = time.monotonic()
        if self._silent_since is not None and self._known:
            self._back_at = self._heard_at
        self._known = True
        self._silent_since = None
        self._silent = False

    def _heard_nothing(self, started, error):
        """A request in vain, sent at ``started``: other threads may have heard of the server meanwhile."""
        why = why_not(error)
        if self._silent_since is None:
            self._silent_since = max(started, self._heard_at)
            self._why_silent = why
        # The newest reason, but a refusal tells more than that nothing came.
        elif why != _NO_ANSWER:
            self._why_silent = why


def _uid(item):
    """An object's uid, or None where it has none that is a text."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else None


def _failed(outcome):
    """Why an exec'd command failed, by the Status object of the error channel, or None if it didn't."""
    try:
        status = json.loads(outcome)
    except ValueError:
        return "how it ended is not known"
    return None if status.get("status") == "Success" else status.get("message") or "it failed"


def _without_refusal(chunks):
    """``chunks`` of a log; raises LogGone when the kubelet's refusal is all there is."""
    held = b""
    passed = False
    try:
        for chunk in chunks:
            if passed:
                yield chunk
                continue
            held += chunk
            if len(held) > _REFUSAL_BYTES:
                passed = True
                yield held
    except ApiError:
        if not passed:
            yield held
        raise
    if not passed:
        refused = _REFUSED_LOG.fullmatch(held)
        if refused:
            raise LogGone(None, refused.group("why").decode("utf-8", "replace").strip())
        yield held


def _pairs(params):
    return list(params.items()) if isinstance(params, dict) else list(params)


def refusal(status, body):
    """ApiError of an HTTP refusal; the message is the Status object's, else the first line of the text."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        details = json.loads(text)
    except ValueError:
        details = {}
    if not isinstance(details, dict):
        details = {}
    return ApiError(status, details.get("message") or _first_line(text) or f"HTTP {status}", details)


def _retry_after(response):
    try:
        return min(_MAX_RETRY_AFTER, float(response.headers.get("Retry-After") or 0))
    except ValueError:
        return 0.0


def why_not(error):
    """Why a request got no answer, without times and paths, so that equal reasons read alike."""
    late = (urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ConnectTimeoutError)
    # urllib3 1 derives a refused connection from the timeout.
    refused = urllib3.exceptions.NewConnectionError
    return (
        _NO_ANSWER
        if isinstance(error, late) and not isinstance(error, refused)
        else _first_line(_innermost(error))
    )


def _innermost(error):
    """urllib3 wraps the reason: the last one in the chain tells what happened."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, BaseException) else error


def _first_line(error):
    """The first line of an error's text, without the names of Python objects, at most 300 characters."""
    text = str(error).strip() or type(error).__name__
    return _OBJECTS.sub("", text.splitlines()[0])[:300]
