# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of shell scripts and where they stand, against Python's own splitter and against what a shell does."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.shell_words import (
    commands,
    requoted,
    words,
)


def texts(script):
    return [[word.text for word in command] for command in commands(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exec vllm serve m --port 80", [["exec", "vllm", "serve", "m", "--port", "80"]]),
        ("vllm serve m \\\n  --port 80 \\\n", [["vllm", "serve", "m", "--port", "80"]]),
        ("vllm serve m \\\r\n  --port 80\r\n", [["vllm", "serve", "m", "--port", "80"]]),
        (
            "sleep 5; vllm serve 'a b' && echo done",
            [["sleep", "5"], ["vllm", "serve", "a b"], ["echo", "done"]],
        ),
        ("A=1 B='x y' vllm serve m", [["vllm", "serve", "m"]]),
        ("ARGS=(--port 80\n --x 'a)b')\nvllm serve m", [["vllm", "serve", "m"]]),
        (
            "vllm serve m 2>&1 > /tmp/log --port 80 | tee x",
            [["vllm", "serve", "m", "--port", "80"], ["tee", "x"]],
        ),
        ("# vllm serve no\nvllm serve m # --port 80", [["vllm", "serve", "m"]]),
        ("cat <<EOF\nvllm serve no\nEOF\nvllm serve m", [["cat"], ["vllm", "serve", "m"]]),
        (
            'echo "$(a "b c")" ${X:-"d e"} `f g` "h\\"i"',
            [["echo", '$(a "b c")', '${X:-"d e"}', "`f g`", 'h"i']],
        ),
        ("(cd /x; vllm serve m)", [["cd", "/x"], ["vllm", "serve", "m"]]),
        ("'unclosed", [["unclosed"]]),
        ("", []),
    ],
)
def test_commands(script, expected):
    assert texts(script) == expected


def test_places_are_those_of_the_script():
    script = "vllm serve m \\\n  --port '80'"
    (found,) = commands(script)
    assert [script[word.start : word.end] for word in found] == ["vllm", "serve", "m", "--port", "'80'"]
    assert script[found[3].gap : found[3].start] == " \\\n  "


PLAIN = st.text("ab -'\"\\=", max_size=20)


@given(PLAIN)
def test_words_are_those_of_pythons_splitter(text):
    try:
        expected = shlex.split(text)
    except ValueError:
        return
    assert [word.text for word in words(text)] == expected


@given(st.text("ab $'\"\\{}!`", max_size=12), st.sampled_from(["x", "'x'", '"x"']))
def test_a_text_put_in_quotes_is_one_word_again(text, raw):
    assert [word.text for word in words(requoted(raw, text))] == [text]


def test_a_shell_reads_a_requoted_text_the_same_way():
    for text in ('{"a": 1}', "it's", "a b", "$HOME", "8192", "a\\b"):
        for raw in ("x", "'x'", '"x"'):
            script = "printf %s " + requoted(raw, text)
            assert (
                subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
                == text
            )
