# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain access without the kubernetes package, what is left to the package, and both against a TLS server."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys

import pytest
from support import kube_objects as kube
from support.recorded_api import RecordedApi

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.kubeconfig import (
    plain_access,
    secrets_of,
)

NOWHERE = "/nonexistent"


def kubeconfig(user=None, namespace="llm", **cluster):
    return {
        "current-context": "a",
        "contexts": [
            {"name": "a", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
            {"name": "b", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "http://kube:8080/", **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    }


def access(environ=None, **auth):
    return plain_access(auth, environ or {}, service_account=NOWHERE)


def test_token_of_a_kubeconfig():
    found = access(kubeconfig=kubeconfig())
    assert (found["host"], found["token"], found["namespace"]) == ("http://kube:8080", "t", "llm")
    assert access(kubeconfig=kubeconfig(), context="b")["namespace"] is None


def test_options_win_over_the_kubeconfig():
    found = access(kubeconfig=kubeconfig(), host="http://other/", api_key="mine")
    assert (found["host"], found["token"]) == ("http://other", "mine")


def test_host_and_token_need_no_file():
    assert access(host="http://kube", api_key="mine")["token"] == "mine"


def test_files_are_relative_to_the_kubeconfig(tmp_path):
    (tmp_path / "ca.pem").write_bytes(b"CA")
    (tmp_path / "token").write_bytes(b"from-file\n")
    config = kubeconfig(
        {"tokenFile": "token"},
        server="https://kube",
        **{"certificate-authority": "ca.pem", "tls-server-name": "api"},
    )
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    found = access(kubeconfig=str(path))
    assert (found["ca"], found["token"], found["server_name"]) == (b"CA", "from-file", "api")
    assert access(environ={"KUBECONFIG": str(path)})["token"] == "from-file"


def test_data_in_the_kubeconfig():
    data = base64.b64encode(b"CA").decode()
    found = access(kubeconfig=kubeconfig(server="https://kube", **{"certificate-authority-data": data}))
    assert found["ca"] == b"CA"


def test_service_account(tmp_path):
    for name, text in (("token", "sa\n"), ("ca.crt", "CA"), ("namespace", "jobs")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = plain_access({}, environ, service_account=str(tmp_path))
    assert (found["host"], found["token"], found["ca"], found["namespace"]) == (
        "https://[fd00::1]:443",
        "sa",
        b"CA",
        "jobs",
    )


@pytest.mark.parametrize(
    ("environ", "auth"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, {"kubeconfig": kubeconfig()}),
        ({}, {"kubeconfig": kubeconfig(), "proxy": "http://proxy:3128"}),
        ({}, {"kubeconfig": kubeconfig(), "username": "u", "password": "p"}),
        ({}, {"kubeconfig": kubeconfig({"exec": {"command": "aws"}})}),
        ({}, {"kubeconfig": kubeconfig({"auth-provider": {"name": "oidc"}})}),
        ({}, {"kubeconfig": kubeconfig({"username": "u", "password": "p"})}),
        ({}, {"kubeconfig": kubeconfig({"as": "jane", "token": "t"})}),
        ({}, {"kubeconfig": kubeconfig({})}),
        ({}, {"kubeconfig": kubeconfig(**{"proxy-url": "http://proxy"})}),
        # Which CAs to trust is the package's choice.
        ({}, {"kubeconfig": kubeconfig(server="https://kube")}),
        ({}, {"kubeconfig": kubeconfig(server="unix:///x")}),
        ({}, {"kubeconfig": kubeconfig(), "context": "ghost"}),
        ({}, {"kubeconfig": {}}),
        ({}, {"kubeconfig": "/a:/b"}),
        ({}, {"kubeconfig": "/nonexistent"}),
        ({}, {"kubeconfig": kubeconfig(**{"certificate-authority": "/nonexistent"})}),
        ({}, {"kubeconfig": kubeconfig(server="https://kube", **{"certificate-authority-data": "%%%"})}),
    ],
)
def test_everything_else_is_left_to_the_package(environ, auth):
    assert plain_access(auth, environ, service_account=NOWHERE) is None


def test_secrets_of_a_kubeconfig():
    config = kubeconfig(
        {"token": "a", "auth-provider": {"config": {"refresh-token": "b", "idp-issuer-url": "c"}}}
    )
    assert secrets_of(config) == {"a", "b"}
    assert secrets_of("~/.kube/config") == set()
    assert secrets_of(None) == set()


def test_a_plain_run_does_not_import_the_package():
    code = """
import sys
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client, cluster
client.connect({"host": "http://127.0.0.1:9", "api_key": "x"}, environ={})
sys.exit("kubernetes" in sys.modules)
"""
    path = [entry for entry in sys.path if entry]
    assert (
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}{code}"], check=False
        ).returncode
        == 0
    )


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client.configuration", None)
    with pytest.raises(client.LibraryMissing) as caught:
        client.connect({"kubeconfig": kubeconfig({"exec": {"command": "aws"}})}, environ={})
    assert caught.value.library == "kubernetes"


# --- TLS


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """A self-signed server certificate for 127.0.0.1 and another one that nobody uses."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "stranger"):
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    f"/CN={name}",
                ),
                *("-addext", "subjectAltName=IP:127.0.0.1,DNS:api.internal"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
            ],
            check=True,
            capture_output=True,
        )
    return folder


@pytest.fixture
def secure_api(pki):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    # Clients may show a certificate; whose it is doesn't matter here.
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(pki / "stranger.pem")
    with RecordedApi([kube.node()]).serve(context) as api:
        yield api


def read(api, user=None, proxy_settings=None, **cluster):
    config = api.kubeconfig()
    config["clusters"][0]["cluster"].update(cluster)
    if user:
        config["users"][0]["user"].update(user)
    found = client.connect({"kubeconfig": config, **(proxy_settings or {})}, environ={})
    found._pause = lambda _seconds: None
    return found.get("/api/v1/nodes/gpu-3")["metadata"]["name"]


# Without settings the plain way is taken; a proxy that serves no host leads through the package.
WAYS = pytest.mark.parametrize(
    "way", [None, {"no_proxy": "*", "proxy_headers": {"user_agent": "x"}}], ids=["plain", "package"]
)


@WAYS
def test_the_given_ca_is_trusted(secure_api, pki, way):
    assert (
        read(secure_api, proxy_settings=way, **{"certificate-authority": str(pki / "server.pem")}) == "gpu-3"
    )


@WAYS
def test_another_ca_is_not(secure_api, pki, way):
    with pytest.raises(
        client.ApiError, match=r"TLS to https://127.0.0.1:.* fails .*certificate verify failed"
    ):
        read(secure_api, proxy_settings=way, **{"certificate-authority": str(pki / "stranger.pem")})


@WAYS
def test_the_servers_name_is_checked(secure_api, pki, way):
    ca = {"certificate-authority": str(pki / "server.pem")}
    assert read(secure_api, proxy_settings=way, **ca, **{"tls-server-name": "api.internal"}) == "gpu-3"
    with pytest.raises(client.ApiError, match="TLS to"):
        read(secure_api, proxy_settings=way, **ca, **{"tls-server-name": "evil.internal"})


@WAYS
def test_verification_can_be_switched_off(secure_api, way):
    assert read(secure_api, proxy_settings=way, **{"insecure-skip-tls-verify": True}) == "gpu-3"


def test_client_certificate(secure_api, pki):
    data = {
        "client-certificate-data": base64.b64encode((pki / "stranger.pem").read_bytes()).decode(),
        "client-key-data": base64.b64encode((pki / "stranger.key").read_bytes()).decode(),
    }
    assert read(secure_api, user=data, **{"certificate-authority": str(pki / "server.pem")}) == "gpu-3"
