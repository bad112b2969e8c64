# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One option set and removed in every form in which options are written (workload-kinds section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.engine.settings import engine_settings
from ansible_collections.vllm_runbook.oom.plugins.module_utils.remediation.arguments import set_option

SERVE = ["vllm", "serve", "m"]
FROM_SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


def env(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


def edited(command, args, variables, name, value, **more):
    return tuple(set_option(command, args, variables, name, value, **more)[:3])


# command, args, env with --max-model-len 8192 in it; then args (or env) with 4096; then without
FORMS = {
    "two items": (
        ["--max-model-len", "8192", "--api-key", "S"],
        ["--max-model-len", "4096", "--api-key", "S"],
        ["--api-key", "S"],
    ),
    "one item": (["--port=1", "--max-model-len=8192"], ["--port=1", "--max-model-len=4096"], ["--port=1"]),
    "underscores": (["--max_model_len", "8192"], ["--max_model_len", "4096"], []),
    "human-readable": (["--max-model-len=8k"], ["--max-model-len=4096"], []),
    "auto": (["--max-model-len", "auto", "-tp", "2"], ["--max-model-len", "4096", "-tp", "2"], ["-tp", "2"]),
    "repeated": (
        ["--max_model_len=1", "--port", "80", "--max-model-len", "8192"],
        ["--port", "80", "--max-model-len", "4096"],
        ["--port", "80"],
    ),
    "packed": (["--max-model-len 8192 --port 80"], ["--max-model-len 4096 --port 80"], ["--port 80"]),
    "beside references": (
        ["--served-model-name", "$(NAME)", "--max-model-len", "8192"],
        ["--served-model-name", "$(NAME)", "--max-model-len", "4096"],
        ["--served-model-name", "$(NAME)"],
    ),
}
SCRIPTS = {
    "continued lines": (
        "set -e\nexec vllm serve m \\\n  --max-model-len 8192 \\\n  --api-key 'a b' \\\n  --port \"80\"\n",
        "set -e\nexec vllm serve m \\\n  --max-model-len 4096 \\\n  --api-key 'a b' \\\n  --port \"80\"\n",
        "set -e\nexec vllm serve m \\\n  --api-key 'a b' \\\n  --port \"80\"\n",
    ),
    "quoted": (
        'vllm serve m --max-model-len "8192" | tee x',
        'vllm serve m --max-model-len "4096" | tee x',
        "vllm serve m | tee x",
    ),
    "quoted with its flag": (
        "vllm serve m '--max-model-len=8192'",
        "vllm serve m '--max-model-len=4096'",
        "vllm serve m",
    ),
    "inline quoted": (
        "vllm serve m --max-model-len='8192'",
        "vllm serve m --max-model-len='4096'",
        "vllm serve m",
    ),
    "default of a variable": (
        "vllm serve m --max-model-len ${LEN:-8192} $OTHER",
        "vllm serve m --max-model-len 4096 $OTHER",
        "vllm serve m $OTHER",
    ),
    "after a redirection": (
        "vllm serve m > /log --max-model-len 8192",
        "vllm serve m > /log --max-model-len 4096",
        "vllm serve m > /log",
    ),
    "second command": (
        "sleep 5; python3 -m vllm.entrypoints.openai.api_server --max-model-len 8192 && echo 8192",
        "sleep 5; python3 -m vllm.entrypoints.openai.api_server --max-model-len 4096 && echo 8192",
        "sleep 5; python3 -m vllm.entrypoints.openai.api_server && echo 8192",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_list_items(form):
    args, other, without = FORMS[form]
    assert edited(SERVE, args, None, "max_model_len", 4096) == (SERVE, other, None)
    assert edited(SERVE, args, None, "max_model_len", None) == (SERVE, without, None)
    # the same list as the command's tail, and as arguments for the image's entrypoint
    assert edited([*SERVE, *args], None, [], "max_model_len", 4096) == ([*SERVE, *other], None, [])
    assert edited(None, args, [], "max_model_len", 4096) == (None, other, [])


@pytest.mark.parametrize("form", SCRIPTS)
@pytest.mark.parametrize("field", ["command", "args"])
def test_scripts(form, field):
    def container(script):
        return (["bash", "-c", script], None, []) if field == "command" else (["sh", "-ec"], [script], [])

    script, other, without = SCRIPTS[form]
    assert edited(*container(script), "max_model_len", 4096) == container(other)
    assert edited(*container(script), "max_model_len", None) == container(without)


def test_positional_parameters_of_a_script():
    command = ["/bin/bash", "-c", 'exec vllm serve /mnt "$@"', "--"]
    args = ["--max-model-len", "8192", "--port", "80"]
    assert edited(command, args, [], "max_model_len", 4096) == (
        command,
        ["--max-model-len", "4096", *args[2:]],
        [],
    )
    assert edited(command, args, [], "max_model_len", None) == (command, ["--port", "80"], [])


@pytest.mark.parametrize(
    ("args", "name", "value", "expected"),
    [
        (["-tp", "2"], "tensor_parallel_size", 4, ["-tp", "4"]),
        (["--gpu_memory_utilization", "0.95"], "gpu_memory_utilization", 0.9, ["--gpu_memory_utilization", "0.9"]),
        (["--enforce-eager"], "enforce_eager", None, []),
        ([], "enforce_eager", True, ["--enforce-eager"]),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", True, ["--enable-prefix-caching"]),
        (["--enable_prefix_caching"], "enable_prefix_caching", False, ["--no_enable_prefix_caching"]),
        (["--enable-prefix-caching=True"], "enable_prefix_caching", False, ["--enable-prefix-caching=False"]),
        (["--enable-prefix-caching", "true"], "enable_prefix_caching", False, ["--enable-prefix-caching", "false"]),
        (["-O3"], "optimization_level", 1, ["-O1"]),
        (["-O.cudagraph_mode=FULL", "-O.x=1"], "compilation_config.cudagraph_mode", "NONE", ["-O.cudagraph_mode=NONE", "-O.x=1"]),
        (["--compilation-config.cudagraph_mode", "FULL"], "compilation_config.cudagraph_mode", None, []),
        (
            ["--compilation-config", '{"a":1,"cudagraph_mode":"FULL"}'],
            "compilation_config.cudagraph_mode",
            "NONE",
            ["--compilation-config", '{"a":1,"cudagraph_mode":"NONE"}'],
        ),
        (
            ["--compilation-config", '{"a": 1, "cudagraph_mode": "FULL"}'],
            "compilation_config.cudagraph_mode",
            None,
            ["--compilation-config", '{"a": 1}'],
        ),
        ([], "compilation_config.cudagraph_mode", "NONE", ["--compilation-config.cudagraph_mode", "NONE"]),
        (["--limit-mm-per-prompt", "image=4"], "limit_mm_per_prompt", {"image": 1}, ["--limit-mm-per-prompt", '{"image": 1}']),
        (["--cudagraph-capture-sizes", "1", "2", "-tp", "1"], "cudagraph_capture_sizes", [4], ["--cudagraph-capture-sizes", "4", "-tp", "1"]),
        (["--cudagraph-capture-sizes", "1"], "cudagraph_capture_sizes", [4, 8], ["--cudagraph-capture-sizes", "4", "8"]),
        (["--port=80"], "max_num_seqs", 16, ["--port=80", "--max-num-seqs=16"]),
        (["--port", "80"], "max_num_seqs", 16, ["--port", "80", "--max-num-seqs", "16"]),
        (["--made-up", "1"], "made_up", "2", ["--made-up", "2"]),
        (["--kv-cache-memory", "8G"], "kv_cache_memory_bytes", 4 * 10**9, ["--kv-cache-memory", "4000000000"]),
    ],
)  # fmt: skip
def test_options(args, name, value, expected):
    assert edited(SERVE, args, None, name, value) == (SERVE, expected, None)


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (["--max-model-len", "32k"], "max_model_len", 32000),
        (["--max-model-len", "1", "--max_model_len=32K"], "max_model_len", 32768),
        (["--gpu-memory-utilization", ".9"], "gpu_memory_utilization", 0.9),
        (["--enforce-eager"], "enforce_eager", True),
        (["--max-model-len", "$(LEN)"], "max_model_len", 8192),
        (["--port", "80"], "max_num_seqs", None),
        (["--compilation-config", '{"level": 3}'], "compilation_config.level", 3),
    ],
)
def test_what_is_so_already_is_no_change(args, name, value):
    found = set_option(SERVE, args, env(LEN="8192"), name, value)
    assert (found.args, found.changes) == (args, [])


def test_variables_that_carry_arguments():
    carried = env(VLLM_ADDITIONAL_ARGS="--max-model-len 8192 --api-key 'a  b'", OTHER="x")
    found = edited(None, None, carried, "max_model_len", 4096)
    assert found == (None, None, env(VLLM_ADDITIONAL_ARGS="--max-model-len 4096 --api-key 'a  b'", OTHER="x"))
    assert edited(None, None, carried, "max_model_len", None)[2][0]["value"] == "--api-key 'a  b'"
    assert edited(None, None, carried, "max_num_seqs", 8)[2][0]["value"].endswith("'a  b' --max-num-seqs 8")
    own = (["sh", "-c", "vllm serve m $ENGINE_ARGS"], None, env(ENGINE_ARGS="--port 1 --max-model-len 8192"))
    assert edited(*own, "max_model_len", 4096) == (*own[:2], env(ENGINE_ARGS="--port 1 --max-model-len 4096"))


def test_a_variable_that_is_the_value_is_changed_and_the_reference_kept():
    for args in (["--max-model-len", "$(LEN)"], ["--max-model-len=$(LEN)"]):
        assert edited(SERVE, args, env(LEN="8192"), "max_model_len", 4096) == (SERVE, args, env(LEN="4096"))
    twice = ["--max-model-len", "$(LEN)", "--max-num-batched-tokens", "$(LEN)"]
    found = edited(SERVE, twice, env(LEN="8192"), "max_model_len", 4096)
    assert found == (SERVE, ["--max-model-len", "4096", *twice[2:]], env(LEN="8192"))


def test_nims_own_variables():
    assert edited(None, None, env(NIM_MAX_MODEL_LEN="8192"), "max_model_len", 4096)[2] == env(
        NIM_MAX_MODEL_LEN="4096"
    )
    assert edited(None, None, env(NIM_MAX_MODEL_LEN="8192"), "max_model_len", None)[2] == []
    added = edited(None, None, env(NIM_MODEL_PROFILE="x"), "max_model_len", 4096)[2]
    assert added == env(NIM_MODEL_PROFILE="x", NIM_MAX_MODEL_LEN="4096")


@pytest.mark.parametrize(
    ("command", "args", "variables", "told"),
    [
        (SERVE, ["--config", "/etc/vllm.yaml"], [], "/etc/vllm.yaml"),
        (SERVE, ["--max-model-len", "$(LEN)"], [{"name": "LEN", "valueFrom": FROM_SECRET}], "variable LEN"),
        (["sh", "-c"], ["LEN=1\nvllm serve m --max-model-len $LEN"], [], r"LEN, which the script in args\[0\] sets"),
        (["sh", "-c"], ["A=(--max-model-len 1)\nvllm serve m ${A[@]}"], [], r"script in args\[0\]"),
        (["sh", "-c"], ["sh -c 'vllm serve m --max-model-len 1'"], [], "another shell"),
        (None, None, [{"name": "NIM_MAX_MODEL_LEN", "valueFrom": FROM_SECRET}], "NIM_MAX_MODEL_LEN"),
        (None, None, [], "neither command nor args"),
        (["sh", "-c"], ["echo $A; vllm serve m $A"], env(A="--max-model-len 1 -x"), "used more than once"),
    ],
)  # fmt: skip
def test_what_cannot_be_edited_safely_is_refused_with_its_place(command, args, variables, told):
    with pytest.raises(DocumentError, match=told):
        set_option(command, args, variables, "max_model_len", 4096)


def test_a_config_file_that_is_known():
    args = ["--config", "/etc/vllm.yaml"]
    with pytest.raises(DocumentError, match="is set in the file /etc/vllm"):
        set_option(SERVE, args, None, "max_model_len", 4096, config={"max-model-len": 8192})
    found = set_option(SERVE, args, None, "max_model_len", 4096, config={"port": 1})
    assert found.args == [*args, "--max-model-len", "4096"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("api_key", "x", "holds a secret"),
        ("hf_token", None, "holds a secret"),
        ("max_model_len", "2Gi", "no value for --max-model-len"),
        ("served_model_name", "$(rm)", "can't be written safely"),
        ("compilation_config.a.b", 1, "no object"),
    ],
)
def test_values_that_are_none(name, value, told):
    with pytest.raises(DocumentError, match=told):
        set_option(SERVE, ["--compilation-config", '{"a": 1}'], None, name, value)


# --- laws

GIVEN = st.sampled_from(
    [["--port", "80"], ["--api-key", "s3cr3t"], ["--max_model_len=1"], ["--max-model-len", "8192"], ["--max-model-len=32k"],
     ["-tp", "2"], ["--enforce-eager"], ["--no-enable-prefix-caching"], ["--served-model-name", "a b"], ["--enforce-eager=False"],
     ["--served-model-name", "$(NAME)"], ["-O3"], ["--max-num-seqs=4"], ["--speculative-config", '{"n": 1}'],
     ["--revision", "it's"], ["--max-num-seqs", "$(NUMBER)"], ["--no-enforce-eager"], ["--middleware", "a", "b"]]
)  # fmt: skip
OPTIONS = st.sampled_from(
    [("max_model_len", 4096), ("enforce_eager", True), ("tensor_parallel_size", 8), ("max_num_seqs", 1)]
)


def quoted(word, quote):
    return (
        word
        if quote == "" and word.replace("-", "").replace("=", "").isalnum()
        else "'" + word.replace("'", "'\\''") + "'"
    )


@st.composite
def containers(draw):
    items = [word for words in draw(st.lists(GIVEN, max_size=6)) for word in words]
    variables = env(NAME="n", NUMBER="4")
    form = draw(st.sampled_from(["args", "command", "script", "image"]))
    if form == "script":
        blank = draw(st.sampled_from([" ", "  ", " \\\n  "]))
        text = blank.join(
            ["exec vllm serve m", *(quoted(word, draw(st.sampled_from(["", "'"]))) for word in items)]
        )
        return ["sh", "-c"], [text + draw(st.sampled_from(["", "\n", " | tee x"]))], variables
    if form == "command":
        return [*SERVE, *items], None, variables
    return (SERVE if form == "args" else None), items or ["--port=1"], variables


@given(containers(), OPTIONS)
def test_written_values_are_read_and_nothing_else_changes(container, option):
    name, value = option
    found = set_option(*container, name, value)
    before = engine_settings(*container, defaults=False)
    after = engine_settings(*found[:3], defaults=False)
    assert after[name]["value"] == value
    assert {**before, name: None} == {**after, name: None}
    assert set_option(*found[:3], name, value)[:3] == found[:3]
    without = set_option(*found[:3], name, None)
    assert name not in engine_settings(*without[:3], defaults=False)
    assert set_option(*without[:3], name, None).changes == []


@pytest.mark.parametrize(
    "options", [["-o", "pipefail", "-c"], ["-euo", "pipefail", "-c"], ["-c", "-e"], ["-ceo", "pipefail"]]
)
def test_a_shells_own_options_are_passed_over(options):
    script = "vllm serve m --max-model-len 8192"
    found = set_option(["bash", *options, script], None, None, "max_model_len", 4096)
    assert found.command == ["bash", *options, "vllm serve m --max-model-len 4096"]
