# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain cluster access, read without the ``kubernetes`` package.

Importing that package takes as long as the rest of a whole run here (its configuration loader brings OAuth,
requests and websockets along). So the usual ways in are read directly: a host with a token or client certificate,
the pod's service account, a kubeconfig whose user has a token or certificate. Everything else (credential
plugins, auth providers, proxies, several merged files, passwords, no CA given, anything odd) is the package's
business: ``plain_access`` then says None.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_PLAIN_USER = {
    "token",
    "tokenFile",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
}
_SECRET_KEYS = {
    "api_key",
    "basic_auth",
    "proxy_basic_auth",
    "token",
    "password",
    "client-key-data",
    "client-secret",
    "access-token",
    "refresh-token",
    "id-token",
}
_PLAIN_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "extensions",
}


def plain_access(auth, environ, service_account=SERVICE_ACCOUNT):
    """How to reach the cluster, or None when the ``kubernetes`` package must find out.

    auth: client attributes as of client.auth_settings; environ: a mapping. Returns ``{host, token, namespace,
    verify, ca, certificate, key, server_name}``: ca, certificate and key are bytes in PEM form or None;
    namespace is the context's or None. The order of the sources is kubernetes.core's.
    """
    if any(environ.get(name) or environ.get(name.upper()) for name in _PROXY_VARIABLES):
        return None
    if auth.get("proxy") or auth.get("proxy_headers") or auth.get("username") or auth.get("password"):
        return None
    try:
        found = _source(auth, environ, service_account)
        return None if found is None else _with_options(found, auth)
    # A file that is missing, broken or shaped unusually: the package says what is wrong with it.
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _source(auth, environ, service_account):
    if auth.get("host") and (auth.get("api_key") or (auth.get("cert_file") and auth.get("key_file"))):
        return dict(_NOTHING)
    if not auth.get("kubeconfig") and not auth.get("context"):
        found = _in_cluster(environ, service_account)
        if found:
            return found
    kubeconfig = auth.get("kubeconfig")
    if isinstance(kubeconfig, dict):
        return _from_kubeconfig(kubeconfig, auth.get("context"), None)
    path = os.path.expanduser(kubeconfig or environ.get("KUBECONFIG") or "~/.kube/config")
    if os.pathsep in path or yaml is None:
        return None
    with open(path, encoding="utf-8") as file:
        try:
            document = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            return None
    return _from_kubeconfig(document, auth.get("context"), os.path.dirname(os.path.abspath(path)))


_NOTHING = {
    "host": None,
    "token": None,
    "namespace": None,
    "verify": True,
    "ca": None,
    "certificate": None,
    "key": None,
    "server_name": None,
}


def _in_cluster(environ, folder):
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not os.path.exists(os.path.join(folder, "token")):
        return None
    host = f"[{host}]" if ":" in host else host
    namespace = os.path.join(folder, "namespace")
    return dict(
        _NOTHING,
        host=f"https://{host}:{port}",
        token=_read(os.path.join(folder, "token")).decode().strip(),
        ca=_read(os.path.join(folder, "ca.crt")),
        namespace=_read(namespace).decode().strip() if os.path.exists(namespace) else None,
    )


def _from_kubeconfig(document, context, folder):
    context = _named(document["contexts"], context or document["current-context"])["context"]
    cluster = _named(document["clusters"], context["cluster"])["cluster"]
    user = _named(document["users"], context["user"])["user"] or {}
    if set(cluster) - _PLAIN_CLUSTER or set(user) - _PLAIN_USER:
        return None
    token = user.get("token")
    if not token and user.get("tokenFile"):
        token = _read(_beside(folder, user["tokenFile"])).decode().strip()
    return dict(
        _NOTHING,
        host=cluster["server"],
        token=token,
        namespace=context.get("namespace"),
        verify=not cluster.get("insecure-skip-tls-verify"),
        ca=_data_or_file(cluster, "certificate-authority", folder),
        certificate=_data_or_file(user, "client-certificate", folder),
        key=_data_or_file(user, "client-key", folder),
        server_name=cluster.get("tls-server-name"),
    )


def _with_options(found, auth):
    """Module options win over the source, one by one, as in kubernetes.core."""
    found = dict(found)
    if auth.get("host"):
        found["host"] = auth["host"]
    if auth.get("api_key"):
        found["token"] = auth["api_key"]
    if auth.get("verify_ssl") is not None:
        found["verify"] = bool(auth["verify_ssl"])
    for option, name in (("ssl_ca_cert", "ca"), ("cert_file", "certificate"), ("key_file", "key")):
        if auth.get(option):
            found[name] = _read(os.path.expanduser(auth[option]))
    found["host"] = found["host"].rstrip("/")
    if not found["token"] and not (found["certificate"] and found["key"]):
        return None
    secure = found["host"].startswith("https://")
    # Which CAs to trust when none is given is the package's choice.
    if (secure and found["verify"] and not found["ca"]) or not (
        secure or found["host"].startswith("http://")
    ):
        return None
    return found


def _named(entries, name):
    return next(item for item in [*entries, None] if item is None or item.get("name") == name) or {}


def _data_or_file(holder, name, folder):
    if holder.get(name + "-data"):
        return base64.b64decode(holder[name + "-data"], validate=True)
    return _read(_beside(folder, holder[name])) if holder.get(name) else None


def _beside(folder, path):
    """Paths in a kubeconfig are relative to its own folder."""
    return os.path.join(folder or "", os.path.expanduser(path))


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def secrets_of(options):
    """The secret strings in a module's options or a kubeconfig given as a dict (at any depth), to keep them out of its output."""
    found = set()
    if isinstance(options, dict):
        for key, value in options.items():
            if key in _SECRET_KEYS and isinstance(value, str):
                found.add(value)
            else:
                found |= secrets_of(value)
    elif isinstance(options, list):
        for item in options:
            found |= secrets_of(item)
    return found


def ssl_context(access):
    """The TLS context for ``plain_access``'s result, or None for plain HTTP."""
    if not access["host"].startswith("https://"):
        return None
    context = ssl.create_default_context(cadata=access["ca"].decode() if access["ca"] else None)
    if not access["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access["certificate"] and access["key"]:
        # OpenSSL takes client certificates from files only; the file is gone as soon as it was read.
        with tempfile.NamedTemporaryFile() as file:
            file.write(access["certificate"] + b"\n" + access["key"])
            file.flush()
            context.load_cert_chain(file.name)
    return context
