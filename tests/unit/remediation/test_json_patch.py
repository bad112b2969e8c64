# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON patches as RFC 6902 says: its own examples (appendix A), and the pointers of RFC 6901, section 5."""

from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.json_patch import (
    apply,
    pointer,
    segments_of,
)


def op(kind, path, *value):
    return {"op": kind, "path": path, **({"value": value[0]} if value else {})}


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"foo": "bar"}, [op("add", "/baz", "qux")], {"baz": "qux", "foo": "bar"}),  # A.1
        ({"foo": ["bar", "baz"]}, [op("add", "/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}),  # A.2
        ({"baz": "qux", "foo": "bar"}, [op("remove", "/baz")], {"foo": "bar"}),  # A.3
        ({"foo": ["bar", "qux", "baz"]}, [op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),  # A.4
        ({"baz": "qux", "foo": "bar"}, [op("replace", "/baz", "boo")], {"baz": "boo", "foo": "bar"}),  # A.5
        (  # A.8
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [op("test", "/baz", "qux"), op("test", "/foo/1", 2)],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (  # A.10
            {"foo": "bar"},
            [op("add", "/child", {"grandchild": {}})],
            {"foo": "bar", "child": {"grandchild": {}}},
        ),
        ({"foo": "bar"}, [{**op("add", "/baz", "qux"), "xyz": 123}], {"foo": "bar", "baz": "qux"}),  # A.11
        ({"/": 9, "~1": 10}, [op("test", "/~01", 10)], {"/": 9, "~1": 10}),  # A.14
        ({"foo": ["bar"]}, [op("add", "/foo/-", ["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),  # A.16
        ({"foo": "bar"}, [op("replace", "", [1])], [1]),
        ({"foo": None}, [op("test", "/foo", None)], {"foo": None}),
    ],
)
def test_examples(document, patch, expected):
    assert apply(document, patch) == expected


@pytest.mark.parametrize(
    ("document", "patch", "told"),
    [
        ({"baz": "qux"}, [op("test", "/baz", "bar")], "has been changed"),  # A.9
        ({"foo": "bar"}, [op("add", "/baz/bat", "qux")], "/baz/bat isn't there"),  # A.12
        ({"/": 9, "~1": 10}, [op("test", "/~01", "10")], "has been changed"),  # A.15
        ({"foo": 1}, [op("test", "/foo", True)], "has been changed"),
        ({"foo": ["a"]}, [op("remove", "/foo/1")], "isn't there"),
        ({"foo": ["a"]}, [op("add", "/foo/2", "b")], "isn't there"),
        ({"foo": ["a"]}, [op("remove", "/foo/00")], "isn't there"),
        ({"foo": ["a"]}, [op("remove", "/foo/-")], "isn't there"),
        ({"foo": 1}, [op("replace", "/bar", 2)], "isn't there"),
        ({}, [op("move", "/a", 1)], "isn't one of test, add, replace, remove"),
        ({}, [op("add", "/a")], "needs a path and a value"),
        ({}, [op("add", "a", 1)], "no JSON pointer"),
    ],
)
def test_refused_as_the_api_server_would(document, patch, told):
    with pytest.raises(DocumentError, match=told):
        apply(document, patch)


def test_a_patch_that_fails_half_way_leaves_the_document_alone():
    document = {"foo": ["a"]}
    with pytest.raises(DocumentError):
        apply(document, [op("add", "/foo/-", "b"), op("test", "/foo/0", "b")])
    assert document == {"foo": ["a"]}


@pytest.mark.parametrize(
    ("text", "segments"),
    [("", []), ("/foo/0", ["foo", "0"]), ("/", [""]), ("/a~1b", ["a/b"]), ("/m~0n", ["m~n"]), ("/ ", [" "])],
)
def test_pointers(text, segments):
    assert segments_of(text) == segments
    assert pointer(segments) == text
