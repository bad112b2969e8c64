# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that is slow, breaks off, goes away and comes back, and pods that vanish while they are read."""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import fake_engines
import pytest
from fake_engines import DEATHS, engine_spec
from harness import Audit, Kubectl, Runbook, api_server_stopped, wait_for
from in_process import Read, connect, read
from reader import reader
from slow_proxy import Proxy, proxy_to
from testcluster import fleet
from testcluster.cluster import Cluster

from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import client
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.cluster import CollectionError

NAMESPACE = f"away-{os.getpid()}"
NODE = f"fake-{NAMESPACE}"
DEATH = DEATHS["weights"]
LONG = [f"long-{number}" for number in range(30)]
SHORT = [f"short-{number}" for number in range(3)]
# 300 KB of log for each of the long ones.
ORDINARY_LINES = 2500

pytestmark = pytest.mark.ours


def _pods(kubectl: Kubectl, namespace: str, names: list[str]) -> list[dict]:
    """Engines that run on the fake node, the part of their name before the dash as a label."""
    spec = {**engine_spec(DEATH, NODE), "nodeName": NODE}
    part = names[0].split("-")[0]
    place = {"namespace": namespace, "labels": {"part": part}}
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", namespace, "--timeout=60s")
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **place}, "spec": spec}
        for name in names
    )
    return fake_engines.wait_until_running(kubectl, namespace, len(names), f"--selector=part={part}")


def _dead_pods(kubectl: Kubectl, namespace: str, names: list[str], folder: Path, lines: int = 0) -> None:
    pods = _pods(kubectl, namespace, names)
    fake_engines.kill(kubectl, [(pod, DEATH) for pod in pods], folder, ordinary_lines=lines)


@pytest.fixture(scope="module")
def access(cluster: Cluster, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """A namespace of dead engines, and a kubeconfig of one who may read it."""
    folder = tmp_path_factory.mktemp("logs")
    kubectl("create", "namespace", NAMESPACE)
    kubectl.apply([fleet.node(NODE)])
    _dead_pods(kubectl, NAMESPACE, SHORT, folder)
    _dead_pods(kubectl, NAMESPACE, LONG, folder, ORDINARY_LINES)
    with reader(cluster, kubectl, NAMESPACE) as made:
        yield made
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    kubectl("delete", "node", NODE)


def _nothing_is_missing(seen: Read, names: list[str]) -> None:
    assert seen.evidence["unreadable"] == []
    assert seen.causes == dict.fromkeys(sorted(names), DEATH.cause)


# --- it goes away and comes back


def _wait_until_logs_are_read(audit: Audit, mark: int) -> None:
    """Until some have been read; that many are read at once, and each has an entry when it begins and when it ends."""
    wait_for(
        "a request for a log",
        lambda: sum("/log?" in entry["requestURI"] for entry in audit.since(mark)) > 2 * client.WORKERS,
        every=0.01,
    )


def test_restarted_in_the_middle_of_a_run(
    cluster: Cluster, runbook: Runbook, audit: Audit, access: dict, tmp_path: Path
) -> None:
    path = tmp_path / "reader.conf"
    path.write_text(json.dumps(access))
    mark = audit.mark()
    started = runbook.start(kubeconfig=path)
    _wait_until_logs_are_read(audit, mark)
    with api_server_stopped(cluster):
        back = audit.mark()
        # Longer than a client that only tries again at once.
        time.sleep(2)
    run = runbook.finish(*started)
    assert run.rc == 0, run.output
    assert run.evidence["unreadable"] == []
    assert {pod["verdict"]["cause"] for pod in run.diagnosis["pods"]} == {DEATH.cause}
    assert len(run.diagnosis["pods"]) == len(LONG + SHORT)
    after = {entry["requestURI"] for entry in audit.since(back) if "/log?" in entry["requestURI"]}
    assert 0 < len(after) <= len(LONG + SHORT)
    print(f"{len(after)} of {len(LONG + SHORT)} logs were read when it was back")


def test_stopped_for_good(
    cluster: Cluster,
    runbook: Runbook,
    audit: Audit,
    access: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_PATIENCE", 4)
    path = tmp_path / "reader.conf"
    path.write_text(json.dumps(access))
    mark = audit.mark()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(read, connect(access))
        _wait_until_logs_are_read(audit, mark)
        with api_server_stopped(cluster):
            stopped = time.monotonic()
            seen = running.result()
            waited = time.monotonic() - stopped
            # Who comes now is told in one sentence, and soon: nobody has heard of it.
            monkeypatch.undo()
            started = time.monotonic()
            with pytest.raises(
                CollectionError, match=r"can't be read: .*refused; check that the cluster is up"
            ):
                read(connect(access))
            refused_after = time.monotonic() - started
            run = runbook(kubeconfig=path, rc=2)
    assert waited < 20
    assert refused_after < 10
    assert "check that the cluster is up" in " ".join(run.output.split())
    assert "Traceback" not in run.output

    entries = [entry for entry in seen.evidence["unreadable"] if entry["source"] == "log"]
    missing = Counter(name for entry in entries for name in entry["object"].split(", "))
    assert 0 < len(missing) < len(LONG + SHORT)
    assert set(missing.values()) == {1}
    assert all("refused" in entry["reason"] or "broke off" in entry["reason"] for entry in entries)
    # All that the pods themselves tell is there.
    assert len(seen.diagnosis["pods"]) == len(LONG + SHORT)
    unread = {name.split("/")[1] for name in missing}
    assert {cause for name, cause in seen.causes.items() if name not in unread} == {DEATH.cause}
    print(f"{len(missing)} logs were not read, given up after {waited:.1f} s")


# --- the way to it is bad


@contextmanager
def _by(access: dict, **manner) -> Iterator[tuple[Proxy, dict]]:
    """A proxy, and a kubeconfig that goes by it."""
    there = access["clusters"][0]["cluster"]
    with proxy_to(there["server"], **manner) as proxy:
        cluster = {"name": "test", "cluster": {**there, "server": proxy.url}}
        yield proxy, {**access, "clusters": [cluster]}


@pytest.mark.parametrize(
    ("manner", "at_least"), [({"delay": 0.7}, 3), ({"bytes_per_second": 20_000}, 1)], ids=["late", "trickle"]
)
def test_slow(access: dict, manner: dict, at_least: float) -> None:
    started = time.monotonic()
    with _by(access, **manner) as (_proxy, slow):
        seen = read(connect(slow), selector="part=short")
    took = time.monotonic() - started
    _nothing_is_missing(seen, SHORT)
    assert took > at_least
    print(f"{took:.1f} s with {manner}")


@pytest.mark.parametrize(
    ("cut_after", "repeated"), [(3000, "/pods?"), (150_000, "/log?")], ids=["list", "log"]
)
def test_an_answer_that_breaks_off_is_asked_for_again(
    access: dict, audit: Audit, cut_after: int, repeated: str
) -> None:
    mark = audit.mark()
    with _by(access, cut_after=cut_after, cuts=1) as (proxy, cutting):
        seen = read(connect(cutting))
        assert proxy.cuts == 0
    _nothing_is_missing(seen, LONG + SHORT)
    assert [log["lines"] for log in seen.logs(LONG[0])] == [len(DEATH.lines) + ORDINARY_LINES, 0]
    asked = Counter({entry["auditID"]: entry["requestURI"] for entry in audit.since(mark)}.values())
    twice = [uri for uri, times in asked.items() if times > 1]
    assert len(twice) == 1
    assert repeated in twice[0]


def test_a_load_balancer_without_a_server(access: dict) -> None:
    """It takes connections and closes them before TLS has begun."""
    with _by(access) as (proxy, through), ThreadPoolExecutor() as pool:
        running = pool.submit(read, connect(through))
        wait_for("the middle of a run", lambda: proxy.answered >= 30, every=0.01)
        proxy.close_all()
        time.sleep(3)
        proxy.closed = False
        _nothing_is_missing(running.result(), LONG + SHORT)


# --- what is read changes meanwhile


def test_pods_deleted_while_they_are_read(
    cluster: Cluster, kubectl: Kubectl, namespace: str, access: dict, tmp_path: Path
) -> None:
    names = ["gone-0", "gone-1", "gone-2"]
    _dead_pods(kubectl, namespace, names, tmp_path)
    connected = connect(cluster.kubeconfig)
    log = connected.log

    def log_of_a_deleted_pod(namespace: str, pod: str, params: dict):
        if pod != "gone-2":
            kubectl("delete", "pod", pod, "-n", namespace, "--force", "--grace-period=0")
        return log(namespace, pod, params)

    connected.log = log_of_a_deleted_pod
    seen = read(connected, namespace=namespace)
    assert seen.evidence["unreadable"] == [
        {
            "source": "log",
            "object": f"{namespace}/gone-0/vllm (previous), {namespace}/gone-1/vllm (previous)",
            "reason": "the pod was deleted while it was read",
            "needs": None,
        }
    ]
    assert list(seen.causes) == names
    assert seen.causes["gone-2"] == DEATH.cause


def test_a_node_that_has_no_log(cluster: Cluster, kubectl: Kubectl, namespace: str, access: dict) -> None:
    _pods(kubectl, namespace, ["nothing-0"])
    seen = read(connect(cluster.kubeconfig), namespace=namespace, pod="nothing-0")
    (entry,) = seen.evidence["unreadable"]
    assert (entry["source"], entry["object"]) == ("log", f"{namespace}/nothing-0/vllm")
    assert entry["reason"].startswith("the node gives none (no logs found")


def test_a_list_whose_state_the_server_has_dropped(cluster: Cluster, kubectl: Kubectl, access: dict) -> None:
    """The rest of a list is asked for after etcd has been compacted, as happens every five minutes."""
    connected = connect(cluster.kubeconfig)
    refused = []
    get = connected.get

    def watched(path, params=()):
        try:
            page = get(path, params)
        except client.ApiError as error:
            refused.append(error.status)
            raise
        token = page["metadata"].get("continue")
        if token and not refused:
            _compact(cluster)
            wait_for("the end of the list's state", lambda: _is_dropped(kubectl, path, token))
        return page

    connected.get = watched
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    names = [pod["metadata"]["name"] for pod in connected.pages(path, limit=20)]
    assert sorted(names) == sorted(LONG + SHORT)
    assert refused == [410]


def _compact(cluster: Cluster) -> None:
    """What another API server does: it writes down how far it compacts, and does so."""
    arguments = cluster.processes.known()["etcd"]["argv"]
    (etcd,) = (word.partition("=")[2] for word in arguments if word.startswith("--listen-client-urls="))

    def ask(what: str, question: dict) -> dict:
        asked = urllib.request.Request(
            f"{etcd}/v3/kv/{what}", json.dumps(question).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.load(answer)

    key = base64.b64encode(b"compact_rev_key").decode()
    # Newer than the list.
    revision = ask("put", {"key": key, "value": base64.b64encode(b"0").decode()})["header"]["revision"]
    ask("put", {"key": key, "value": base64.b64encode(revision.encode()).decode()})
    ask("compaction", {"revision": revision})


def _is_dropped(kubectl: Kubectl, path: str, token: str) -> bool:
    """Whether the API server, which keeps lists for a while itself, has seen that."""
    return not kubectl("get", "--raw", f"{path}?limit=20&continue={token}", check=False)
