# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading what somebody saved: every format, every way it can be bad, and no secret in what comes out."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import (
    BUDGET_SCHEMA,
    DIAGNOSIS_SCHEMA,
    EVIDENCE_SCHEMA,
    DocumentError,
    evidence,
    node,
    unreadable,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import trees
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.archives import LIMITS
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.bundle import read_bundle

DATA = Path(__file__).parent / "data" / "saved"
NOW = "2026-11-24T08:00:00Z"
KV_ERROR = "To serve at least one request"
OOM = "CUDA out of memory"


def read(path, **more):
    return read_bundle(str(path), now=NOW, **more)


def engine_of(item):
    (found,) = [container for container in item["containers"] if container["engine"]]
    return found


def logs_of(item):
    """{run number: (state, lines)} of the engine's runs whose log was read."""
    return {
        entry["index"]: (entry["state"], entry["log"]["lines"])
        for entry in engine_of(item)["attempts"]
        if entry["log"]["readable"]
    }


def errors_of(document):
    return " ".join(
        line["text"]
        for item in document["pods"]
        for container in item["containers"]
        for entry in container["attempts"]
        for line in entry["log"]["errors"]
    )


# What was given -> formats, pods (namespace, name, node), what the errors say.
FORMATS = [
    ("describe/crashloop.txt", ["describe"], [("llm", "llama-70b-6d8f9c7b54-x2v9k", "gpu-node-3")], ""),
    ("describe/piece.txt", ["describe"], [(None, "piece", None)], ""),
    ("describe/log_then_piece.txt", ["describe", "log"], [(None, "log_then_piece", None)], ""),
    ("plain/pod.yaml", ["kubernetes objects"], [("llm", "qwen-32b-0", "gpu-a")], ""),
    ("plain/kv.log", ["kubernetes objects", "log"], [("llm", "qwen-32b-0", "gpu-a")], KV_ERROR),
    (
        "stern/default.txt",
        ["log export"],
        [(None, "mistral-0", None), (None, "mistral-1", None)],
        "Free memory",
    ),
    ("stern/output.json", ["log export"], [("llm", "mistral-0", "gpu-a")], OOM),
    ("stern/kubectl_prefix.txt", ["log export"], [(None, "mistral-0", None)], OOM),
    ("loki/query_range.json", ["log export"], [("llm", "phi-7c9d8b6f5-k4zq2", "gpu-b")], OOM),
    ("loki/logcli.jsonl", ["log export"], [("llm", "phi-7c9d8b6f5-k4zq2", None)], OOM),
    ("loki/logcli.txt", ["log export"], [("llm", "phi-7c9d8b6f5-k4zq2", None)], OOM),
    ("elastic/search.json", ["log export"], [("llm", "gemma-0", "gpu-c")], OOM),
    ("elastic/dump.ndjson", ["log export"], [("llm", "gemma-0", "gpu-c")], OOM),
    ("dump", ["kubernetes objects", "log"], [("llm", "qwen-0", "gpu-a")], ""),
    ("must-gather", ["kubernetes objects", "log"], [("llm", "qwen-0", "gpu-a")], OOM),
    ("support-bundle", ["kubernetes objects", "log"], [("llm", "qwen-0", "gpu-a")], OOM),
]


@pytest.mark.parametrize(("name", "formats", "pods", "error"), FORMATS)
def test_it_finds_out_what_it_was_given(name, formats, pods, error):
    document = read(DATA / name)
    assert document["schema"] == EVIDENCE_SCHEMA
    assert document["collected_at"] == NOW
    assert document["source"]["kind"] == "bundle"
    assert document["source"]["formats"] == formats
    assert [(item["namespace"], item["name"], item["node"]) for item in document["pods"]] == pods
    assert error in errors_of(document)
    assert all(item["suspicious"] for item in document["pods"])
    assert json.loads(json.dumps(document)) == document


def packed(name, how):
    """A saved sample as one file (bytes)."""
    out = io.BytesIO()
    source = DATA / name
    if how == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(source.rglob("*")):
                archive.write(path, path.relative_to(DATA))
    elif how.startswith("tar"):
        with tarfile.open(fileobj=out, mode="w:gz" if how == "tar.gz" else "w") as archive:
            archive.add(source, arcname=name)
    else:
        out.write(gzip.compress(source.read_bytes()))
    return out.getvalue()


def without_places(document):
    return dict(document, source=None)


@pytest.mark.parametrize("how", ["tar", "tar.gz", "zip"])
@pytest.mark.parametrize("name", ["dump", "must-gather", "support-bundle"])
def test_a_tree_says_the_same_in_an_archive(tmp_path, name, how):
    (tmp_path / "b").write_bytes(packed(name, how))
    expected = without_places(read(DATA / name))
    assert without_places(read(tmp_path / "b")) == expected
    assert without_places(read("-", stdin=io.BytesIO(packed(name, how)))) == expected


@pytest.mark.parametrize("name", [entry[0] for entry in FORMATS if "." in entry[0]])
def test_a_file_says_the_same_as_gzip_and_on_standard_input(tmp_path, name):
    (tmp_path / "plain").mkdir()
    shutil.copy(DATA / name, tmp_path / "plain" / Path(name).name)
    (tmp_path / Path(name).name).write_bytes(packed(name, "gz"))
    expected = read(tmp_path / "plain" / Path(name).name)
    found = read(tmp_path / Path(name).name)
    assert without_places(found)["pods"] == expected["pods"]
    for given in (packed(name, "gz"), (DATA / name).read_bytes(), (DATA / name).read_text(encoding="utf-8")):
        document = read("-", stdin=given)
        assert document["source"]["detail"] == "standard input"
        assert len(document["pods"]) == len(expected["pods"])
        assert errors_of(document) == errors_of(expected)


def test_a_plain_log_is_one_pod_with_one_ended_run(tmp_path):
    shutil.copy(DATA / "plain/kv.log", tmp_path / "strange.name")
    document = read(tmp_path / "strange.name")
    (item,) = document["pods"]
    assert (item["namespace"], item["name"], item["node"]) == (None, "strange.name", None)
    (container,) = item["containers"]
    assert container["engine"]["version"] == "0.10.0"
    assert container["settings"]["max_model_len"]["value"] == 131072
    (run,) = container["attempts"]
    assert (run["state"], run["exit_code"], run["reason"], run["started_at"]) == (
        "terminated",
        None,
        None,
        None,
    )
    assert run["log"]["lines"] == 14
    assert run["log"]["complete"] is True
    assert document["unreadable"] == []


@pytest.mark.parametrize("lines", [1, 3])
def test_the_json_log_of_vllm_is_a_log(tmp_path, lines):
    line = '{"timestamp": "2026-11-24 07:10:04", "level": "ERROR", "message": "torch.OutOfMemoryError: CUDA out of memory."}\n'
    (tmp_path / "vllm.json").write_text(line * lines)
    document = read(tmp_path / "vllm.json")
    assert logs_of(document["pods"][0]) == {0: ("terminated", lines)}
    assert OOM in errors_of(document)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    data = packed("must-gather", "tar.gz")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[data])
    writer.start()
    document = read(tmp_path / "pipe")
    writer.join()
    assert without_places(document) == without_places(read(DATA / "must-gather"))


def test_several_runs_in_one_log(tmp_path):
    shutil.copy(DATA / "two_runs.log", tmp_path / "vllm.log")
    (item,) = read(tmp_path / "vllm.log")["pods"]
    assert logs_of(item) == {0: ("terminated", 4), 1: ("terminated", 3)}


def test_a_log_with_its_pod_in_every_way(tmp_path):
    expected = None
    log, pod = DATA / "plain/kv.log", DATA / "plain/pod.yaml"
    for number, (log_name, pod_name, given) in enumerate(
        [
            ("vllm.log", "vllm.yaml", None),
            ("any.txt", "pod.yml", None),
            ("x", "elsewhere/p.yaml", "elsewhere/p.yaml"),
        ]
    ):
        folder = tmp_path / str(number)
        (folder / "elsewhere").mkdir(parents=True)
        shutil.copy(log, folder / log_name)
        shutil.copy(pod, folder / pod_name)
        (item,) = read(folder / log_name, pod_file=str(folder / given) if given else None)["pods"]
        expected = expected or item
        assert item == expected
    assert expected["name"] == "qwen-32b-0"
    assert logs_of(expected) == {3: ("terminated", 14)}
    assert engine_of(expected)["attempts"][0]["exit_code"] == 1
    # The other way round: the pod was given, its log lies beside it.
    (item,) = read(tmp_path / "0/vllm.yaml")["pods"]
    assert item == expected


def test_describe_text_as_the_pod_of_a_log(tmp_path):
    shutil.copy(DATA / "plain/kv.log", tmp_path / "vllm.log")
    (item,) = read(tmp_path / "vllm.log", pod_file=str(DATA / "describe/crashloop.txt"))["pods"]
    assert item["name"] == "llama-70b-6d8f9c7b54-x2v9k"
    assert logs_of(item) == {6: ("terminated", 14)}
    assert [event["reason"] for event in item["events"]] == ["BackOff", "Pulled", "Scheduled", "Unhealthy"]
    assert item["shm"]["size_limit"] == 2 << 30


def test_a_piece_of_describe_text_beside_the_log_gives_the_status():
    (item,) = read(DATA / "describe/log_then_piece.txt")["pods"]
    ended, waiting = engine_of(item)["attempts"]
    assert (ended["reason"], ended["exit_code"], ended["log"]["lines"]) == ("OOMKilled", 137, 8)
    assert waiting["reason"] == "CrashLoopBackOff"


def test_a_pod_beside_many_logs_belongs_to_none_of_them_for_sure(tmp_path):
    for name in ("one.log", "other.log"):
        shutil.copy(DATA / "plain/kv.log", tmp_path / name)
    shutil.copy(DATA / "plain/pod.yaml", tmp_path / "pod.yaml")
    assert [item["name"] for item in read(tmp_path / "one.log")["pods"]] == ["one"]
    shutil.copy(DATA / "plain/pod.yaml", tmp_path / "one.yaml")
    assert [item["name"] for item in read(tmp_path / "one.log")["pods"]] == ["qwen-32b-0"]


def test_a_folder_of_logs(tmp_path):
    sources = (("a-0.log", "plain/kv"), ("a-0-previous.log", "two_runs"), ("b.log", "plain/kv"))
    for name, source in sources:
        shutil.copy(DATA / f"{source}.log", tmp_path / name)
    (tmp_path / "notes.txt").write_text("call Bob\n")
    document = read(tmp_path)
    assert {item["name"]: logs_of(item) for item in document["pods"]} == {
        "a-0": {0: ("terminated", 4), 1: ("terminated", 3), 2: ("terminated", 14)},
        "b": {0: ("terminated", 14)},
    }
    assert [entry["object"] for entry in document["unreadable"]] == ["notes"]


def test_a_folder_with_a_pod_and_its_logs_of_any_name(tmp_path):
    shutil.copy(DATA / "plain/pod.yaml", tmp_path / "deployment-pod.yaml")
    shutil.copy(DATA / "plain/kv.log", tmp_path / "output.txt")
    (tmp_path / "free.txt").write_text("              total        used\nMem:             62          13\n")
    (item,) = read(tmp_path)["pods"]
    assert item["name"] == "qwen-32b-0"
    assert logs_of(item) == {3: ("terminated", 14)}


def test_current_and_previous_log_of_a_tree():
    (item,) = read(DATA / "must-gather")["pods"]
    assert logs_of(item) == {1: ("terminated", 4), 2: ("running", 2)}
    assert engine_of(item)["name"] == "kserve-container"
    assert item["workload"]["kind"] == "StatefulSet"
    assert [event["reason"] for event in item["events"]] == ["BackOff"]


def test_surroundings_of_a_tree():
    document = read(DATA / "must-gather")
    assert document["nodes"]["gpu-a"]["gpu"]["product"] == "NVIDIA-A10"
    assert document["namespaces"]["llm"]["quotas"][0]["used"] == {"requests.nvidia.com/gpu": "1"}
    ranges = read(DATA / "support-bundle")["namespaces"]["llm"]["limit_ranges"]
    assert ranges == [{"name": "defaults", "limits": [{"type": "Container", "default": {"cpu": "2"}}]}]
    (owner,) = read(DATA / "dump")["pods"][0]["workload"]["managers"]
    assert owner["tool"] == "Helm"


def test_counts_name_pods_that_are_not_shown():
    document = read(DATA / "dump")
    assert document["counts"] == {"pods_seen": 2, "engines": 1, "suspicious": 1}


def test_a_log_that_nobody_saved_is_named():
    entries = read(DATA / "dump")["unreadable"]
    assert [(entry["source"], entry["object"], entry["reason"]) for entry in entries] == [
        ("log", "llm/qwen-0/vllm (run 1)", "not in the bundle")
    ]
    assert "kubectl logs qwen-0 -c vllm --previous" in entries[0]["needs"]


def pods_of(folder, name="pods.json"):
    """The sample dump's pod list, to change it."""
    path = folder / "llm" / name
    return path, json.loads(path.read_text(encoding="utf-8"))


def healthy(pod, name):
    """A serving copy of a pod."""
    copy = json.loads(json.dumps(pod))
    copy["metadata"].update(name=name, uid=f"uid-{name}")
    copy["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    status = copy["status"]["containerStatuses"][0]
    status.update(ready=True, restartCount=0, lastState={})
    return copy


def test_of_a_tree_the_failing_pods_are_kept(tmp_path):
    folder = tmp_path / "dump"
    shutil.copytree(DATA / "dump", folder)
    path, pods = pods_of(folder)
    pods["items"].append(healthy(pods["items"][0], "qwen-1"))
    path.write_text(json.dumps(pods), encoding="utf-8")
    document = read(folder)
    assert [item["name"] for item in document["pods"]] == ["qwen-0"]
    assert document["counts"] == {"pods_seen": 3, "engines": 2, "suspicious": 1}


def test_of_a_tree_without_failing_pods_all_engines_are_kept(tmp_path):
    folder = tmp_path / "dump"
    shutil.copytree(DATA / "dump", folder)
    path, pods = pods_of(folder)
    pods["items"] = [healthy(pods["items"][0], "qwen-0"), healthy(pods["items"][0], "qwen-1")]
    path.write_text(json.dumps(pods), encoding="utf-8")
    document = read(folder)
    assert [(item["name"], item["suspicious"]) for item in document["pods"]] == [
        ("qwen-0", False),
        ("qwen-1", False),
    ]
    assert logs_of(document["pods"][0]) == {0: ("running", 2)}


def test_a_dump_to_standard_output():
    parts = []
    for path in ("nodes.json", "llm/events.json", "llm/pods.json", "llm/qwen-0/logs.txt"):
        parts.append((DATA / "dump" / path).read_text(encoding="utf-8"))
    parts.append((DATA / "dump/kube-system/pods.json").read_text(encoding="utf-8"))
    parts.append((DATA / "dump/kube-system/coredns-abc12/logs.txt").read_text(encoding="utf-8"))
    document = read("-", stdin="".join(parts))
    (item,) = document["pods"]
    assert logs_of(item) == {2: ("running", 2)}
    assert document["nodes"]["gpu-a"]["gpu"]["count"] == 1
    assert document["counts"]["pods_seen"] == 2


def test_a_list_of_pods(tmp_path):
    pod = json.loads((DATA / "dump/llm/pods.json").read_text(encoding="utf-8"))["items"][0]
    (tmp_path / "list.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [dict(pod, kind="Pod"), dict(healthy(pod, "qwen-1"), kind="Pod")]})
    )  # fmt: skip
    document = read(tmp_path / "list.json")
    assert [item["name"] for item in document["pods"]] == ["qwen-0", "qwen-1"]


def test_a_pod_that_shows_no_vllm_counts_when_it_was_given(tmp_path):
    (tmp_path / "pod.yaml").write_text(
        "kind: Pod\nmetadata: {name: llm-server-0, namespace: x}\nspec: {containers: [{name: main, image: corp/llm:3}]}\n"
    )
    (item,) = read(tmp_path / "pod.yaml")["pods"]
    assert engine_of(item)["engine"]["recognised_by"] == "given"


# --- saved evidence


def test_saved_evidence_comes_back_as_it_was(tmp_path):
    document = read(DATA / "must-gather")
    (tmp_path / "e.json").write_text(json.dumps(document))
    (tmp_path / "e.json.gz").write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    assert read(tmp_path / "e.json") == document
    assert read(tmp_path / "e.json.gz") == document
    assert read("-", stdin=json.dumps(document)) == document


def test_several_saved_documents_are_one(tmp_path):
    first, second = read(DATA / "must-gather"), read(DATA / "describe/crashloop.txt")
    (tmp_path / "a.json").write_text(json.dumps(first))
    (tmp_path / "b.json").write_text(json.dumps(second))
    whole = read(tmp_path)
    assert [item["name"] for item in whole["pods"]] == ["qwen-0", "llama-70b-6d8f9c7b54-x2v9k"]
    assert whole["counts"]["engines"] == 2
    assert whole["redactions"]["count"] == first["redactions"]["count"] + second["redactions"]["count"]


def of_node(name, **fields):
    found = evidence(NOW, "node", name)
    found["nodes"] = {name: node(**fields)}
    return found


def test_what_nodes_said_goes_to_the_nodes_of_the_saved_evidence(tmp_path):
    """The files are those of roles/diagnose/tasks/save.yml."""
    saved = read(DATA / "must-gather")
    name = saved["pods"][0]["node"] or "gpu-3"
    saved["pods"][0]["node"] = name
    saved["nodes"][name] = node(capacity={"nvidia.com/gpu": "8"})
    silent = dict(
        of_node("gpu-9"), nodes={"gpu-9": {}}, unreadable=[unreadable("ansible", "node gpu-9", "off", "")]
    )
    (tmp_path / "evidence.json").write_text(json.dumps(saved, indent=4))
    (tmp_path / "nodes.json").write_text(
        json.dumps([of_node(name, reader={"user": "root"}, memory={"total": 7}), silent], indent=4)
    )
    for file, schema in (("budget.json", BUDGET_SCHEMA), ("diagnosis.json", DIAGNOSIS_SCHEMA)):
        (tmp_path / file).write_text(json.dumps({"schema": schema, "pods": [{"name": "x"}]}, indent=4))
    (tmp_path / "report.md").write_text("# OOM\n\n    ERROR torch.OutOfMemoryError: CUDA out of memory.\n")
    whole = read(tmp_path)
    assert whole["pods"] == saved["pods"]
    assert whole["source"] == saved["source"]
    assert whole["unreadable"] == [*saved["unreadable"], *silent["unreadable"]]
    joined = whole["nodes"][name]
    assert (joined["capacity"], joined["memory"], joined["reader"]) == (
        {"nvidia.com/gpu": "8"},
        {"total": 7},
        {"user": "root"},
    )
    assert whole["nodes"]["gpu-9"] == {"reader": {}}


def test_saved_nodes_alone_are_evidence(tmp_path):
    (tmp_path / "nodes.json").write_text(json.dumps([of_node("a"), of_node("b")]))
    assert sorted(read(tmp_path / "nodes.json")["nodes"]) == ["a", "b"]


def test_what_was_made_of_evidence_alone_is_nothing_to_diagnose(tmp_path):
    (tmp_path / "diagnosis.json").write_text(json.dumps({"schema": DIAGNOSIS_SCHEMA}))
    with pytest.raises(DocumentError, match=r"holds nothing that can be diagnosed \(it holds a diagnosis\)"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"schema": "vllm_runbook.oom/evidence/v9"}, "is evidence of schema vllm_runbook.oom/evidence/v9"),
        ({"schema": "vllm_runbook.oom/diagnosis/v1"}, "has schema vllm_runbook.oom/diagnosis/v1, evidence"),
        ({"schema": EVIDENCE_SCHEMA, "pods": {}}, "field 'pods' is missing or damaged"),
        (dict(evidence(NOW, "bundle", "x"), nodes=None), "field 'nodes' is missing or damaged"),
    ],
)
def test_other_documents_of_ours_are_refused(tmp_path, document, sentence):
    (tmp_path / "e.json").write_text(json.dumps(document))
    with pytest.raises(DocumentError, match=sentence):
        read(tmp_path / "e.json")


# --- bad input


def sentence_of(path, **more):
    with pytest.raises(DocumentError) as caught:
        read(path, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("standard input" if path == "-" else str(path))
    return text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x7fELF" + bytes(200), "is a binary file"),
        (b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: [x\n", "malformed YAML in line 5"),
        (b'{"kind": "Pod",\n "metadata": {', "malformed JSON in line 2"),
        (b'{"a": 1}', "holds no pod and no log: give saved evidence"),
        (b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", "(it holds Deployment)"),
        (b"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "(it holds Secret)"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "is zstd compressed"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, content, sentence):
    (tmp_path / "it").write_bytes(content)
    assert sentence in sentence_of(tmp_path / "it")


def test_no_such_file(tmp_path):
    assert "no such file or directory" in sentence_of(tmp_path / "nothing")


@pytest.fixture
def nobody():
    """Run as a user whom a file's mode can stop, also where root runs the tests."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_no_permission(nobody):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it"
        path.write_text("x")
        path.chmod(0)
        assert "no permission to read it" in sentence_of(path)


def test_a_directory_with_nothing_useful(tmp_path):
    (tmp_path / "readme.md").write_text("hello")
    text = sentence_of(tmp_path)
    assert "holds nothing that can be diagnosed" in text
    for wanted in ("kubectl describe", "must-gather", "cluster-info dump", "Loki"):
        assert wanted in text


def test_a_tree_without_vllm_names_what_it_saw(tmp_path):
    shutil.copytree(DATA / "dump/kube-system", tmp_path / "kube-system")
    path = tmp_path / "kube-system/pods.json"
    pods = json.loads(path.read_text(encoding="utf-8"))
    pods["items"] = [healthy(pods["items"][0], f"coredns-{number}") for number in range(7)]
    path.write_text(json.dumps(pods), encoding="utf-8")
    text = sentence_of(tmp_path)
    assert "none of its 7 pods runs vLLM" in text
    assert "kube-system/coredns-0" in text
    assert "and 2 more" in text


@pytest.mark.parametrize(("data", "lines"), [(b"", None), (b"one\ntwo\n", 2)])
def test_standard_input_of_the_process(monkeypatch, data, lines):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    if lines is None:
        assert "nothing came" in sentence_of("-")
    else:
        assert logs_of(read("-")["pods"][0]) == {0: ("terminated", lines)}


def test_services_of_docker_compose_are_logs_of_their_own(tmp_path):
    crash = (DATA / "plain" / "kv.log").read_text(encoding="utf-8").splitlines()
    lines = [f"\x1b[36mvllm-a-1  | \x1b[0m{line}" for line in crash]
    lines += [
        "\x1b[33mvllm-b-1  | \x1b[0mINFO 11-24 07:10:04 [api_server.py:1] vLLM API server version 0.11.0"
    ] * 3
    lines += ["nginx-1   | 10.0.0.1 GET /health", "vllm-a-1 exited with code 1"]
    (tmp_path / "compose.log").write_text("\n".join(lines), encoding="utf-8")
    document = read(tmp_path / "compose.log")
    assert [(item["name"], item["containers"][0]["name"]) for item in document["pods"]] == [
        ("vllm-a-1", "vllm-a"),
        ("vllm-b-1", "vllm-b"),
    ]
    first, second = (item["containers"][0]["attempts"][-1]["log"] for item in document["pods"])
    assert first["errors"]
    assert not second["errors"]
    assert [item["object"] for item in document["unreadable"]] == ["nginx-1"]


def test_an_empty_file_is_an_empty_log(tmp_path):
    (tmp_path / "vllm.log").write_bytes(b"")
    document = read(tmp_path / "vllm.log")
    (pod,) = document["pods"]
    assert logs_of(pod) == {0: ("terminated", 0)}
    (container,) = pod["containers"]
    (attempt,) = container["attempts"]
    assert (attempt["log"]["readable"], attempt["log"]["tail"], attempt["log"]["errors"]) == (True, [], [])
    assert (attempt["exit_code"], attempt["reason"], container["engine"]["version"]) == (None, None, None)
    name = str(tmp_path / "vllm.log")
    assert document["unreadable"] == [unreadable("log", name, "the file is empty", "the log itself")]


def test_an_empty_log_of_a_tree_is_named(tmp_path):
    (tmp_path / "vllm.log").write_text((DATA / "plain" / "kv.log").read_text(encoding="utf-8"))
    (tmp_path / "other.log").write_bytes(b"")
    found = [(entry["source"], entry["object"], entry["reason"]) for entry in read(tmp_path)["unreadable"]]
    assert ("log", "other.log", "the file is empty") in found


def test_truncated_gzip_keeps_what_was_read(tmp_path):
    data = packed("plain/kv.log", "gz")
    (tmp_path / "vllm.log.gz").write_bytes(data[: len(data) * 2 // 3])
    document = read(tmp_path / "vllm.log.gz")
    assert 0 < logs_of(document["pods"][0])[0][1] < 14
    (entry,) = document["unreadable"]
    assert "truncated" in entry["reason"]


def test_a_truncated_archive_keeps_what_was_read(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.add(DATA / "plain/kv.log", arcname="b/kv.log")
        end = out.tell()
        archive.add(DATA / "describe/crashloop.txt", arcname="b/x.bin")
    (tmp_path / "b.tar").write_bytes(out.getvalue()[: end + 600])
    document = read(tmp_path / "b.tar")
    assert KV_ERROR in errors_of(document)
    assert any("ends early" in entry["reason"] for entry in document["unreadable"])


def test_bad_files_of_a_tree_are_named_and_the_rest_is_read(tmp_path):
    folder = tmp_path / "dump"
    shutil.copytree(DATA / "dump", folder)
    (folder / "llm/events.json").write_text('{"kind": "EventList",\n')
    (folder / "nodes.json").write_text("kind: Node\n\tx")
    (folder / "old.tar.gz").write_bytes(b"\x1f\x8b")
    document = read(folder)
    assert [item["name"] for item in document["pods"]] == ["qwen-0"]
    found = {entry["object"]: entry["reason"] for entry in document["unreadable"]}
    assert "malformed JSON in line 2" in found["llm/events.json"]
    assert "malformed YAML in line 2" in found["nodes.json"]
    assert found["old.tar.gz"] == "an archive inside, not opened"


@pytest.mark.parametrize(
    ("name", "change", "about"),
    [
        ("pods.json", {"spec": "text"}, "Pod/llm/qwen-0"),
        ("pods.json", {"status": {"containerStatuses": {"a": 1}}}, "Pod/llm/qwen-0"),
        ("statefulsets.json", {"metadata": {"name": "qwen", "namespace": "llm", "ownerReferences": "x"}}, "the owners of Pod/llm/qwen-0"),
    ],
)  # fmt: skip
def test_objects_with_fields_of_other_types_are_named(tmp_path, name, change, about):
    folder = tmp_path / "dump"
    shutil.copytree(DATA / "dump", folder)
    path, listed = pods_of(folder, name)
    listed["items"][0].update(change)
    path.write_text(json.dumps(listed), encoding="utf-8")
    if name == "pods.json":
        assert f"(not read: {about}, not as the Kubernetes API writes it" in sentence_of(folder)
    else:
        document = read(folder)
        assert [item["name"] for item in document["pods"]] == ["qwen-0"]
        assert about in [entry["object"] for entry in document["unreadable"]]


def test_a_refused_log_of_a_tree_is_named(tmp_path):
    folder = tmp_path / "sb"
    shutil.copytree(DATA / "support-bundle", folder)
    refused = (
        'Error from server (BadRequest): previous terminated container "vllm" in pod "qwen-0" not found\n'
    )
    (folder / "cluster-resources/pods/logs/llm/qwen-0/vllm-previous.log").write_text(refused)
    document = read(folder)
    assert logs_of(document["pods"][0]) == {2: ("running", 2)}
    assert any('"vllm" in pod "qwen-0" not found' in entry["reason"] for entry in document["unreadable"])


def test_an_archive_that_points_outside_is_refused(tmp_path):
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        archive.add(DATA / "plain/kv.log", arcname="../../tmp/kv.log")
    assert "points outside of the archive" in sentence_of(tmp_path / "b.tgz")


def test_bombs_are_refused(tmp_path):
    limits = LIMITS._replace(ratio=100, ratio_free=1 << 20)
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"\n" * (8 << 20)))
    assert "decompression bomb" in sentence_of(tmp_path / "log.gz", limits=limits)
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 8 << 20
        archive.addfile(member, io.BytesIO(bytes(8 << 20)))
    assert "decompression bomb" in sentence_of(tmp_path / "b.tgz", limits=limits)


def test_a_bad_pod_file_is_the_users_to_correct(tmp_path):
    (tmp_path / "d.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
    with pytest.raises(DocumentError, match=r"d\.yaml: holds no pod \(it holds Deployment\)"):
        read(DATA / "plain/kv.log", pod_file=str(tmp_path / "d.yaml"))
    with pytest.raises(DocumentError, match="no such file"):
        read(DATA / "plain/kv.log", pod_file=str(tmp_path / "nothing.yaml"))


def test_a_bad_file_beside_a_log_is_only_named(tmp_path):
    shutil.copy(DATA / "plain/kv.log", tmp_path / "vllm.log")
    (tmp_path / "vllm.yaml").write_text("kind: Pod\nmetadata: [\n")
    document = read(tmp_path / "vllm.log")
    assert KV_ERROR in errors_of(document)
    assert "malformed YAML" in document["unreadable"][0]["reason"]


def test_yaml_without_pyyaml_says_what_to_do(monkeypatch):
    monkeypatch.setattr(trees, "yaml", None)
    assert "PyYAML is not installed" in sentence_of(DATA / "plain/pod.yaml")


# --- size and secrets


def test_a_large_log_is_read_as_a_stream(tmp_path):
    tracemalloc = pytest.importorskip("tracemalloc")
    line = b"INFO 11-24 07:10:04 [loggers.py:123] Engine 000: Avg prompt throughput: 12.3 tokens/s, Running: 3 reqs\n"
    with open(tmp_path / "big.log", "wb") as out:
        out.write((DATA / "plain/kv.log").read_bytes())
        for _block in range(10):
            out.write(line * 10_000)
    tracemalloc.start()
    try:
        document = read(tmp_path / "big.log")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert logs_of(document["pods"][0]) == {0: ("terminated", 100_014)}
    assert peak < 6 << 20


SECRETS = (
    "sk-live-0123456789abcdef",
    "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "hunter2-not-for-you",
    "s3cr3tpass",
    "glpat-AbCdEfGhIjKlMnOpQrSt",
    "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "hvs.CAESIJlongvaulttokenvalue0123456789",
    "aGZfQWJDZEVmR2hJaktsTW5PcFFyU3Q=",
)


def test_the_samples_hold_the_secrets():
    text = " ".join(path.read_text(encoding="utf-8") for path in DATA.rglob("*") if path.is_file())
    assert [secret for secret in SECRETS if secret not in text] == []


@pytest.mark.parametrize("name", [entry[0] for entry in FORMATS])
def test_no_secret_is_in_the_evidence(name):
    text = json.dumps(read(DATA / name))
    assert [secret for secret in SECRETS if secret in text] == []


def test_no_secret_is_in_a_sentence(tmp_path):
    (tmp_path / "vllm.log").write_text(
        'Error from server (Forbidden): pods "x" is forbidden: token=hf_AbCdEfGhIjKlMnOpQrStUvWx\n'
    )
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / "vllm.log")
    assert "hf_AbCd" not in str(caught.value)
