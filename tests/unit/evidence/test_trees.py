# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved objects, and whose log a file of a tree is."""

from __future__ import annotations

import json

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import trees

UID = "0f6e9c1e-6a43-4b7c-9a35-3a8c1f7f2d11"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "mg/quay/namespaces/llm/pods/a-0/vllm/vllm/logs/current.log",
            ("llm", "a-0", "vllm", "current", None),
        ),
        ("namespaces/llm/pods/a-0/vllm/vllm/logs/previous.log", ("llm", "a-0", "vllm", "previous", None)),
        (
            "namespaces/llm/pods/a-0/vllm/vllm/logs/previous.insecure.log",
            ("llm", "a-0", "vllm", "previous", None),
        ),
        (
            "namespaces/llm/pods/a-0/vllm/vllm/logs/rotated/2.log.20261124-071000.gz",
            ("llm", "a-0", "vllm", None, 2),
        ),
        ("sb/cluster-resources/pods/logs/llm/a-0/vllm.log", ("llm", "a-0", "vllm", "current", None)),
        ("cluster-resources/pods/logs/llm/a-0/vllm-previous.log", ("llm", "a-0", "vllm", "previous", None)),
        (f"var/log/pods/llm_a-0_{UID}/vllm/3.log", ("llm", "a-0", "vllm", None, 3)),
        (f"var/log/pods/llm_a-0_{UID}/vllm/0.log.20261124-071000.gz", ("llm", "a-0", "vllm", None, 0)),
        (f"containers/a-0_llm_vllm-{'ab' * 32}.log", ("llm", "a-0", "vllm", "current", None)),
        ("dump/llm/a-0/logs.txt", ("llm", "a-0", None, "current", None)),
        ("a/b.log", None),
        ("namespaces/llm/pods/a-0/a-0.yaml", None),
        ("cluster-resources/pods/llm.json", None),
    ],
)
def test_log_place(path, expected):
    found = trees.log_place(path)
    keys = ("namespace", "pod", "container", "mark", "attempt")
    assert (found and tuple(found[key] for key in keys)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("vllm.log", ("vllm", None)),
        ("x/vllm-previous.log", ("vllm", "previous")),
        ("vllm.previous.log.gz", ("vllm", "previous")),
        ("vllm.log.previous", ("vllm.log", "previous")),
        ("previous-vllm.txt", ("vllm", "previous")),
        ("vllm_current.log", ("vllm", "current")),
        ("vllm-0.log.1", ("vllm-0", None)),
        ("current.log", ("current", None)),
    ],
)
def test_split_mark(path, expected):
    assert trees.split_mark(path) == expected


PODS = [
    ("llm", "vllm-1", ["vllm", "proxy"]),
    ("llm", "vllm-10", ["vllm", "proxy"]),
    ("stage", "vllm-1", ["vllm", "proxy"]),
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("logs/vllm-10.log", ("llm", "vllm-10", None, None)),
        ("logs/vllm-1.log", ("llm", "vllm-1", None, None)),
        ("stage/vllm-1-previous.log", ("stage", "vllm-1", None, "previous")),
        ("stage_vllm-1_proxy.log", ("stage", "vllm-1", "proxy", None)),
        ("vllm-10/vllm.log", ("llm", "vllm-10", "vllm", None)),
        ("vllm-100.log", None),
        ("other.log", None),
    ],
)
def test_log_place_by_names(path, expected):
    found = trees.log_place_by_names(path, PODS)
    assert (found and tuple(found[key] for key in ("namespace", "pod", "container", "mark"))) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1,\n "b": }', "x: malformed JSON in line 2"),
        ('{"a": 1}\n{"b"', "x: malformed JSON in line 2"),
        ("[" * 100_000, "x: JSON nested too deep"),
        ("a: [1\nb: 2\n", "x: malformed YAML in line 2"),
        ("a: 1\n\tb: 2\n", "x: malformed YAML in line 2"),
        ("a: !!python/object/apply:os.system ['true']", "x: malformed YAML in line 1"),
    ],
)
def test_malformed_text_is_one_sentence_with_its_line(text, sentence):
    with pytest.raises(DocumentError) as caught:
        trees.load(text.encode(), "x")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_yaml_aliases_that_expand_without_end_are_refused():
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="aliases expand without end"):
        trees.load("\n".join(levels).encode(), "bomb.yaml")
    with pytest.raises(DocumentError, match="aliases expand without end"):
        trees.load(b"a: &a\n  b: *a\n", "endless.yaml")


def test_several_documents_and_times_as_text():
    text = "---\nkind: Pod\nmetadata:\n  creationTimestamp: 2026-11-24T07:09:50Z\n---\n---\nkind: Node\n"
    assert trees.load(text.encode(), "x") == [
        {"kind": "Pod", "metadata": {"creationTimestamp": "2026-11-24T07:09:50Z"}},
        {"kind": "Node"},
    ]
    assert trees.load(b'{"a": 1}\n\n{"b": 2}\n', "x") == [{"a": 1}, {"b": 2}]


POD = {"metadata": {"name": "a-0", "namespace": "llm"}}


@pytest.mark.parametrize(
    ("document", "name", "kinds"),
    [
        (dict(POD, kind="Pod", apiVersion="v1"), "x.yaml", ["Pod"]),
        ({"kind": "PodList", "apiVersion": "v1", "items": [POD, POD]}, "llm/pods.json", ["Pod", "Pod"]),
        ({"kind": "List", "items": [dict(POD, kind="Pod"), dict(POD, kind="Event")]}, "x", ["Pod", "Event"]),
        ([POD], "cluster-resources/pods/llm.json", ["Pod"]),
        ([POD], "cluster-resources/statefulsets/llm.json", ["StatefulSet"]),
        ([POD], "x.json", []),
        ({"kind": "SecretList", "items": [POD]}, "core/secrets.yaml", []),
        (dict(POD, kind="ConfigMap"), "x", []),
        ({"kind": "Pod"}, "x", []),
        ({"kind": "PodList", "items": ["text", None]}, "x", []),
        ("text", "pods.json", []),
    ],
)
def test_objects_of(document, name, kinds):
    found = trees.objects_of(document, name)
    assert [raw["kind"] for raw in found] == kinds
    assert all(raw["apiVersion"] for raw in found)


@pytest.mark.parametrize(
    ("text", "name", "worth"),
    [
        ("apiVersion: v1\nitems:\n- kind: Pod\nkind: PodList\n", "x.yaml", True),
        ('{"kind":"Pod"}', "x.json", True),
        ('{"apiVersion":"v1", "kind": "EventList", "items": []}', "x.json", True),
        ("apiVersion: v1\nkind: Secret\n", "x.yaml", False),
        ('{"kind":"SecretList","items":[]}', "x.json", False),
        ("[]", "cluster-resources/pods/llm.json", True),
        ("[]", "cluster-resources/pods/logs/llm/x.json", False),
        ("a: 1\n", "x.yaml", False),
    ],
)
def test_worth_parsing(text, name, worth):
    assert trees.worth_parsing(text.encode(), name) is worth


def test_objects_are_found_by_group_and_the_newest_counts():
    objects = trees.Objects()
    for version, replicas in (("9", 1), ("10", 2), ("2", 3)):
        objects.add(
            {
                "kind": "Deployment",
                "apiVersion": "apps/v1",
                "metadata": {"name": "a", "namespace": "llm", "resourceVersion": version},
                "spec": {"replicas": replicas},
            }
        )
    assert objects.lookup("apps/v1beta1", "Deployment", "llm", "a")["spec"]["replicas"] == 2
    assert objects.lookup("apps/v1", "Deployment", "other", "a") is None
    assert objects.lookup("example.com/v1", "Deployment", "llm", "a") is None
    assert len(objects.listing("apps/v1", "Deployment", "llm")) == 1
    assert objects.listing("apps/v1", "Deployment", "other") == []


def test_kinds_of():
    assert trees.kinds_of(
        json.loads('[{"kind": "Secret"}, {"kind": "List", "items": [{"kind": "Role"}]}]')
    ) == [
        "Role",
        "Secret",
    ]
    assert trees.kinds_of({"kind": "PodList", "items": []}) == ["PodList"]
    assert trees.kinds_of(7) == []
