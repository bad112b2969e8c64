# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod's server is, by its spec."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.rollout import server


def pod(*args, labels=None, annotations=None, env=(), others=(), **container):
    engine = {
        "name": "vllm",
        "command": ["vllm", "serve"],
        "args": ["m", *args],
        "env": list(env),
        **container,
    }
    return {
        "metadata": {"name": "p", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"containers": [engine, *others]},
    }


HTTP = {"httpGet": {"path": "/health", "port": 9000}}


@pytest.mark.parametrize(
    ("made", "port"),
    [
        (pod(), 8000),
        (pod("--port", "8123", readinessProbe=HTTP), 8123),
        (pod("--port=$(PORT)", readinessProbe=HTTP), 9000),
        (pod(livenessProbe=HTTP, ports=[{"containerPort": 1}]), 9000),
        (pod(readinessProbe={"httpGet": {"port": "web"}}, ports=[{"name": "web", "containerPort": 81}]), 81),
        (pod(ports=[{"containerPort": 8080}]), 8080),
        (pod(ports=[{"name": "metrics", "containerPort": 1}, {"name": "http1", "containerPort": 2}]), 2),
        (pod(ports=[{"containerPort": 1}, {"containerPort": 2}]), 8000),
    ],
)
def test_its_port(made, port):
    assert server.server_of(made).port == port
    assert server.server_of(made, port=77).port == 77


def test_https_and_the_key():
    plain = server.server_of(pod())
    assert (plain.tls, plain.needs_key) == (False, False)
    assert server.server_of(pod("--ssl-keyfile", "/k", "--ssl-certfile", "/c")).tls
    assert server.server_of(pod(readinessProbe={"httpGet": {"port": 1, "scheme": "HTTPS"}})).tls
    assert server.server_of(pod("--api-key", "x")).needs_key
    secret = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert server.server_of(pod(env=[secret])).needs_key


def test_the_name_that_it_should_serve():
    assert server.server_of(pod()).model == "m"
    assert server.server_of(pod("--served-model-name", "a", "b")).model == "a"
    assert server.server_of(pod("--served-model-name", "$(NAME)")).model is None


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (pod("--headless"), "headless"),
        (pod("--node-rank", "1"), "rank 1"),
        (pod("--uds", "/run/s"), "Unix socket"),
        (pod(labels={"leaderworkerset.sigs.k8s.io/worker-index": "2"}), "no leader"),
        (pod(labels={"ray.io/node-type": "worker"}), "no leader"),
    ],
)
def test_ranks_without_a_server(made, word):
    assert word in server.server_of(made).silent


@pytest.mark.parametrize(
    "made",
    [
        pod("--node-rank", "0"),
        pod(labels={"leaderworkerset.sigs.k8s.io/worker-index": "0"}),
        pod(labels={"ray.io/node-type": "head"}),
    ],
)
def test_leaders_have_one(made):
    assert server.server_of(made).silent is None


def test_halves_of_a_request():
    transfer = '{"kv_connector": "NixlConnector", "kv_role": "%s"}'
    assert "kv_consumer" in server.server_of(pod("--kv-transfer-config", transfer % "kv_consumer")).partial
    assert "prefill" in server.server_of(pod(labels={"llm-d.ai/role": "prefill"})).partial
    assert server.server_of(pod("--kv-transfer-config", transfer % "kv_both")).partial is None
    assert server.server_of(pod(labels={"llm-d.ai/role": "decode"})).partial is None


def test_the_mesh():
    assert server.server_of(pod()).mesh is None
    assert server.server_of(pod(others=[{"name": "istio-proxy"}])).mesh == "Istio"
    native = pod()
    native["spec"]["initContainers"] = [{"name": "linkerd-proxy", "restartPolicy": "Always"}]
    assert server.server_of(native).mesh == "Linkerd"
    assert server.server_of(pod(annotations={"ambient.istio.io/redirection": "enabled"})).mesh == "Istio"


def test_which_container_is_the_engine():
    made = pod(others=[{"name": "other", "args": ["--port", "1"]}])
    assert server.engine_of(made)["name"] == "vllm"
    assert server.engine_of(made, "other")["name"] == "other"
    assert server.engine_of(made, "nobody") is None
    assert server.engine_of({}) is None


def test_what_a_startup_probe_allows():
    assert server.allowance({}) is None
    assert server.allowance({"startupProbe": {"httpGet": {}}}) == 30.0
    probe = {"initialDelaySeconds": 60, "periodSeconds": 5, "failureThreshold": 120}
    assert server.allowance({"startupProbe": probe}) == 660.0
