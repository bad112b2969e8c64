# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.command_line import (
    engine,
    engine_tokens,
    environment_values,
    expand_references,
    is_engine_command,
)


def _texts(command, args, **env):
    return [token["text"] for token in engine_tokens(command, args, _env(env))]


def _env(env):
    return [{"name": name, "value": value} for name, value in env.items()]


SAME = ["m", "--max-model-len", "4096", "--served-model-name", "a b"]


# One and the same engine, told in every way that workload-kinds section 5 lists.
@pytest.mark.parametrize(
    ("command", "args", "env"),
    [
        (["vllm", "serve"], SAME, {}),
        (["/opt/venv/bin/vllm"], ["serve", *SAME], {}),
        (None, SAME, {}),
        (["numactl", "--membind=0", "vllm", "serve"], SAME, {}),
        (["tini", "--", "uv", "run", "vllm", "serve"], SAME, {}),
        (
            ["vllm", "serve"],
            ["m", "--max-model-len", "$(LEN)", "--served-model-name", "$(NAME)"],
            {"LEN": "4096", "NAME": "a b"},
        ),
        (["sh", "-c"], ["vllm serve m --max-model-len 4096 --served-model-name 'a b'"], {}),
        (
            ["/bin/bash", "-lc"],
            ['exec vllm serve m \\\n  --max-model-len 4096 \\\n  --served-model-name "a b"'],
            {},
        ),
        (
            ["bash", "-euo", "pipefail", "-c"],
            ["vllm serve m --max-model-len 4096 --served-model-name a\\ b"],
            {},
        ),
        (
            ["sh", "-c", "vllm serve m --max-model-len 4096 --served-model-name 'a b' 2>&1 | tee /tmp/log"],
            None,
            {},
        ),
        (
            ["sh", "-c"],
            ['vllm serve $MODEL --max-model-len ${LEN} --served-model-name "$NAME"'],
            {"MODEL": "m", "LEN": "4096", "NAME": "a b"},
        ),
        (
            ["sh", "-c"],
            ['vllm serve ${MODEL:-m} --max-model-len ${LEN:=4096} --served-model-name "${NAME:-a b}"'],
            {},
        ),
        (["sh", "-c"], ['vllm serve m $EXTRA --served-model-name "a b"'], {"EXTRA": "--max-model-len 4096"}),
        (
            ["sh", "-c", 'vllm serve m "$@"', "--"],
            ["--max-model-len", "4096", "--served-model-name", "a b"],
            {},
        ),
        (["sh", "-c", 'exec "$0" "$@"', "vllm", "serve"], SAME, {}),
        (["sh", "-c"], ["eval \"vllm serve m \\\n --max-model-len 4096 --served-model-name 'a b'\""], {}),
        (
            ["bash", "-c"],
            ['ARGS=(--max-model-len 4096)\nARGS+=(--served-model-name "a b")\nvllm serve m "${ARGS[@]}"'],
            {},
        ),
        (
            ["bash", "-c"],
            [
                'set -e\nexport LEN=4096; N="a b"\ncd /tmp\n'
                'vllm serve m --max-model-len $LEN --served-model-name "$N" &\nwait'
            ],
            {},
        ),
        (["bash", "-c"], ['set -- --max-model-len 4096\nvllm serve m "$@" --served-model-name "a b"'], {}),
        (
            ["bash", "-c"],
            [
                "pip install -U vllm && VLLM_X=1 nohup vllm serve m --max-model-len 4096 --served-model-name 'a b' > /tmp/o"
            ],
            {},
        ),
        (
            ["bash", "-c"],
            [
                "cat <<EOF > /tmp/x\nvllm serve other\nEOF\n# vllm serve comment\nvllm serve m --max-model-len 4096 --served-model-name 'a b' # the end"
            ],
            {},
        ),
        (["bash", "-c", "bash -c \"vllm serve m --max-model-len 4096 --served-model-name 'a b'\""], [], {}),
        (
            ["bash", "-c"],
            ["if true; then\r\n  vllm serve m --max-model-len 4096 --served-model-name 'a b'\r\nfi"],
            {},
        ),
        (
            ["vllm", "serve"],
            ["m"],
            {"VLLM_ADDITIONAL_ARGS": "--max-model-len 4096 --served-model-name 'a b'"},
        ),
    ],
)
def test_one_engine_many_ways(command, args, env):
    assert _texts(command, args, **env) == SAME


@pytest.mark.parametrize(
    ("command", "dialect", "serve"),
    [
        (["vllm", "serve", "m"], "vllm", True),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], "vllm", False),
        (["python", "/vllm/vllm/entrypoints/openai/api_server.py"], "vllm", False),
        (["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"], "vllm", True),
        (["python3", "-m", "dynamo.vllm", "--model", "m"], "dynamo", False),
        (["python3", "-m", "huggingfaceserver"], "huggingfaceserver", False),
        (["serve", "run", "ray.serve.llm:build_openai_app"], "ray", False),
        (["ray", "start", "--block"], None, False),
        ([], "image", True),
    ],
)
def test_dialects(command, dialect, serve):
    found = engine(command, [], [])
    assert (found.dialect, found.serve) == (dialect, serve)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (["vllm", "serve", "m"], [], True),
        (["sh", "-c"], ["sleep 5; exec vllm serve m"], True),
        (["vllm"], ["run-batch", "-i", "x"], True),
        (["python3", "-m"], ["vllm.entrypoints.openai.api_server"], True),
        (["sh", "-c"], ["ray start --head && python3 -m huggingfaceserver --model_id=m"], True),
        (["sh", "-c"], ["pip install vllm"], False),
        (["vllm", "bench", "serve"], ["--model", "m"], False),
        (["python3", "-m", "vllm_router.app"], [], False),
        (["vllm-router"], ["--model", "vllm"], False),
        (["curl"], ["http://vllm:8000/health"], False),
        (["sh", "-c"], ["echo waiting for vllm to start; sleep 10"], False),
        (["vllm"], [], True),
        (None, None, False),
    ],
)
def test_is_engine_command(command, args, expected):
    assert is_engine_command(command, args) is expected


def test_tokens_say_where_they_come_from():
    tokens = engine_tokens(
        ["vllm", "serve"], ["m", "-tp", "2"], _env({"VLLM_ADDITIONAL_ARGS": "--enforce-eager"})
    )
    assert tokens[0] == {"text": "m", "field": "args", "index": 0}
    assert tokens[2] == {"text": "2", "field": "args", "index": 2}
    assert tokens[3] == {"text": "--enforce-eager", "field": "env", "index": "VLLM_ADDITIONAL_ARGS"}
    script = engine_tokens(["sh", "-c"], ["exec vllm serve m"], [])
    assert script == [{"text": "m", "field": "args", "index": 0}]


def test_carried_arguments_are_not_added_twice():
    args = ["vllm serve m $VLLM_ADDITIONAL_ARGS"]
    assert _texts(["sh", "-c"], args, VLLM_ADDITIONAL_ARGS="-tp 2") == ["m", "-tp", "2"]


def test_nim_arguments_come_before_the_command_line():
    assert _texts(["vllm", "serve"], ["m", "-tp", "4"], NIM_PASSTHROUGH_ARGS="-tp 2") == [
        "-tp",
        "2",
        "m",
        "-tp",
        "4",
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("vllm serve m --n $(nproc)", ["m", "--n", "$(nproc)"]),
        ('vllm serve m --n "`cat /x`"', ["m", "--n", "`cat /x`"]),
        ("vllm serve $MODEL", ["$MODEL"]),
        ("vllm serve m ${A:+--b}", ["m"]),
        ("vllm serve m '$HOME' \"\\$HOME\"", ["m", "$HOME", "$HOME"]),
        ("vllm serve m --c '{\"a\": 1}'", ["m", "--c", '{"a": 1}']),
        ('vllm serve m --c {\\"a\\":1}', ["m", "--c", '{"a":1}']),
        ('vllm serve m --x "unfinished', ["m", "--x", "unfinished"]),
    ],
)
def test_what_a_shell_does_to_a_word(script, expected):
    assert _texts(["sh", "-c"], [script]) == expected


def test_a_value_from_a_secret_stays_unresolved():
    env = [{"name": "LEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    assert [token["text"] for token in engine_tokens(["sh", "-c"], ["vllm serve m -l ${LEN:-5}"], env)] == [
        "m",
        "-l",
        "${LEN:-5}",
    ]


def test_variables_that_a_script_sets_reach_the_engine():
    found = engine(["sh", "-c"], ["export A=1\nB=${A}2 vllm serve m\nC=3"], [])
    assert found.environment == {"A": "1", "B": "12"}


def test_kubernetes_references():
    values = {"A": "1", "HIDDEN": None}
    assert expand_references("$(A) $$(A) $(B) $(HIDDEN) $A", values) == "1 $(A) $(B) $(HIDDEN) $A"
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(C)"},
        {"name": "C", "value": "3"},
        {"name": "D"},
    ]
    assert environment_values(env) == {"A": "1", "B": "1$(C)", "C": "3", "D": ""}
