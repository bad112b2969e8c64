# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine was told: every setting once, with its value and where it comes from.

A setting is ``{"value", "from", "line"}``. from: log (the engine's own word), arg, config (the --config
file), env, default; line: the log line, else None. A setting that was given but can't be read (``2Gi``, an unresolved
``$VAR``) has the value None and what was written in ``written``. Names: vLLM's option in snake_case, or the
environment variable in capitals. Secrets are ``***``.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from . import argument_echo, command_line, defaults, flags, versions
from .versions import in_range

what_an_upgrade_changes = defaults.what_an_upgrade_changes

# Names of other command lines that pass options on, where they differ from vLLM's.
_DIALECTS = {
    "huggingfaceserver": {"model_id": "model", "model_dir": "model", "model_name": "served_model_name"},
    "dynamo": {"model_path": "model"},
}
# NIM's own variables for vLLM's options (NIM LLM, environment variables); the command line wins over them.
_NIM_OPTIONS = {
    "NIM_MODEL_PATH": "model",
    "NIM_SERVED_MODEL_NAME": "served_model_name",
    "NIM_MAX_MODEL_LEN": "max_model_len",
    "NIM_TENSOR_PARALLEL_SIZE": "tensor_parallel_size",
    "NIM_PIPELINE_PARALLEL_SIZE": "pipeline_parallel_size",
    "NIM_DISABLE_CUDA_GRAPH": "enforce_eager",
}
FLAG = re.compile(r"--?[A-Za-z][\w.+-]*")
_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
_ASSIGNED = re.compile(r"([a-z][a-z0-9_]+)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]+)=(.*)", re.DOTALL)
LEVEL = re.compile(r"-O=?([^.].*)", re.DOTALL)
LITERALS = ("true", "false", "True", "False")
_MAX_WRITTEN = 300
SEVERAL = ("ints", "strings")


def engine_settings(
    command,
    args,
    env,
    image=None,
    log_arguments=(),
    config=None,
    defaults=True,
    version=None,
    facts=None,
):
    """All settings of an engine: ``{NAME: {"value", "from", "line"}}``, sorted by name.

    command, args: lists of str as in a Kubernetes container, or None; env: list of ``{name, value}``;
    log_arguments: the ``arguments`` lines of a log excerpt; config: the parsed --config YAML (also KAITO's,
    with its ``vllm`` key); defaults: whether to add the release's defaults; version: overrides what log and
    image say; facts: for the defaults, see ``defaults.default_of`` (also ``accelerator``).

    What wins: the log, the command line (there the last), --config, the environment, the defaults.
    """
    lines = [_as_line(item) for item in log_arguments or ()]
    engine = command_line.engine(command, args, env)
    variables = {**command_line.environment_values(env), **engine.environment}
    given, assigned = parse_arguments(engine)
    variables.update(assigned)
    settings = {}
    for origin, found in (("env", _environment(variables)), ("config", _config_file(config)), ("arg", given)):
        settings.update({name: _setting(name, value, origin) for name, value in found.items()})
    settings.update(_from_log(lines))
    if defaults:
        version = version or engine_version(image, lines)[0]
        for name, value in _defaults(settings, version, lines, facts or {}).items():
            settings.setdefault(name, {"value": value, "from": "default", "line": None})
    return {name: settings[name] for name in sorted(settings)}


def engine_version(image, log_arguments, labels=None):
    """(version, where it was read); (None, None) if unknown. The log counts first, then image, then labels.

    where: ``log``, ``image`` or ``label``. log_arguments: as for ``engine_settings``.
    """
    for origin, version in (
        ("log", versions.log_version(log_arguments or ())),
        ("image", versions.image_version(image)),
        ("label", versions.label_version(labels)),
    ):
        if version:
            return version, origin
    return None, None


# vLLM's platform names (vllm/platforms) and its config echo's device -> the accelerator of documents.engine.
_PLATFORM = re.compile(
    r"detected platform (\w+)|Platform plugin (\w+) is activated|device_config=(?:device\()?'?(\w+)"
)
_ACCELERATORS = {"cuda": "cuda", "rocm": "rocm", "tpu": "tpu", "xpu": "xpu", "hpu": "hpu", "cpu": "cpu"}
_ACCELERATORS.update({"ascend": "npu", "npu": "npu", "habana": "hpu", "gaudi": "hpu"})


def engine_accelerator(log_arguments):
    """The accelerator that the engine says it runs on (``cuda``, ``cpu``, …), or None where its log does not say it.

    log_arguments: the ``arguments`` lines of a log excerpt. The last word counts: a plugin may replace the platform.
    """
    found = None
    for item in log_arguments or ():
        for names in _PLATFORM.findall(_as_line(item)["text"] or ""):
            found = _ACCELERATORS.get(next(name for name in names if name).lower(), found)
    return found


def engine_generation(version, settings=None, log_arguments=()):
    """``V0``, ``V1`` or None: by the engine's own line, else by version and VLLM_USE_V1 (vllm-memory 0.2)."""
    for item in log_arguments or ():
        line = _as_line(item)
        match = re.search(r"Initializing a (V[01]) LLM engine", line["text"] or "")
        if match:
            return match.group(1)
        if str(line.get("process") or "").startswith("EngineCore"):
            return "V1"
    return defaults.engine_generation(version, value_of(settings or {}, "VLLM_USE_V1"))


def uses_v2_runner(version, settings=None, log_arguments=(), model=None, accelerator="cuda"):
    """Whether the engine runs on runner 2 ("V2 model runner"): True, False or None (vllm-memory 5.4).

    By the engine's own lines, else by VLLM_USE_V2_MODEL_RUNNER, else by version and model
    (``{"architecture", "quantized", "moe", "hybrid"}`` as far as known).
    """
    for item in log_arguments or ():
        text = _as_line(item)["text"] or ""
        if "Model Runner V2 does not yet support" in text:
            return False
        if "Using V2 Model Runner" in text:
            return True
    chosen = value_of(settings or {}, "VLLM_USE_V2_MODEL_RUNNER")
    if chosen is not None and in_range(version, "0.12") is not False:
        return bool(chosen)
    return defaults.default_runner_is_v2(version, model, accelerator)


def value_of(settings, name, otherwise=None):
    """The value of a setting, or ``otherwise`` when it isn't set or couldn't be read."""
    value = (settings.get(name) or {}).get("value")
    return otherwise if value is None else value


def _as_line(item):
    return {"text": item, "line": None} if isinstance(item, str) else item


class _Written(str):
    """What was written for a setting whose value can't be read."""


def _setting(name, value, origin, line=None):
    setting = {"value": flags.without_secrets(name, value), "from": origin, "line": line}
    if isinstance(value, _Written):
        written = flags.without_secrets(name, str(value))
        setting.update(
            value=flags.HIDDEN if written == flags.HIDDEN else None, written=written[:_MAX_WRITTEN]
        )
    return setting


def _read(option, text):
    """``text`` as the option's value; unreadable or unresolved text is ``_Written``."""
    if command_line.is_unresolved(text):
        return _Written(text)
    value = flags.read_value(option.kind, text)
    return _Written(text) if value is None else value


def _from_log(lines):
    ranked: dict[str, tuple[int, dict[str, Any]]] = {}
    for line in lines:
        rank, found = argument_echo.read_line(line["text"] or "")
        for name, value in found.items():
            # the last line of the highest rank: a log may hold several starts
            if name not in ranked or rank >= ranked[name][0]:
                ranked[name] = (rank, _setting(name, value, "log", line["line"]))
    return {name: setting for name, (_rank, setting) in ranked.items()}


def _environment(variables):
    found = {}
    for name, value in variables.items():
        if name in _NIM_OPTIONS and value:
            option = flags.BY_NAME[_NIM_OPTIONS[name]]
            found[option.name] = _read(option, value)
        elif flags.is_kept_variable(name):
            known = flags.BY_VARIABLE.get(name)
            found[name] = _variable(known.kind if known else "str", value)
    return found


def _variable(kind, text):
    if text is None:
        return _Written("set from elsewhere")
    if kind != "str" and not text.strip():
        return _Written(text)
    value = flags.read_value(kind, text)
    return _Written(text) if value is None or command_line.is_unresolved(text) else value


def _config_file(config):
    """Settings of a --config file. Keys with hyphens or underscores; KAITO keeps vLLM's under ``vllm``."""
    if not isinstance(config, dict):
        return {}
    inner = config.get("vllm")
    found = {}
    for key, value in (inner if isinstance(inner, dict) else config).items():
        if value is None:
            continue
        option = flags.find_option(flags.flag_of(str(key)))
        if option is None:
            found[str(key).replace("-", "_")] = value
            continue
        fitted = flags.fit_value(option.kind, value)
        found[flags.name_of(option, fitted)] = _Written(value) if fitted is None else fitted
    return found


def _defaults(settings, version, lines, facts):
    facts = dict(facts)
    accelerator = facts.pop("accelerator", None) or value_of(settings, "device")
    generation = engine_generation(version, settings, lines)
    for name in ("max_model_len", "performance_mode"):
        facts.setdefault(name, value_of(settings, name))
    facts.setdefault("chunked_prefill", value_of(settings, "enable_chunked_prefill"))
    names = [*defaults.OPTIONS_WITH_DEFAULT, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"]
    values = {name: defaults.default_of(name, version, generation, accelerator, **facts) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def parse_arguments(engine):
    """``({NAME: value}, {VARIABLE: text})`` of an ``command_line.Engine``'s tokens.

    The second holds variables that stand among the arguments (``NAME=value``). Dotted flags of one option
    make one object, which counts as given last, as in vLLM's parser.
    """
    reader = _Arguments(engine)
    items = [_unpack(token["text"]) for token in engine.tokens]
    # only a list item by itself can be the positional model, not a word that follows a flag in one string
    alone = [len(item) == 1 for item in items for _text in item]
    reader.read([text for item in items for text in item], alone)
    return reader.settings, reader.variables


def _unpack(text):
    """One list item that holds a flag and its value in one string (``--max-model-len 4096``), taken apart."""
    match = re.match(r"(--?[A-Za-z][\w.+-]*)([=\s])\s*(.*)", text, re.DOTALL)
    if not match or not re.search(r"\s", text):
        return [text]
    flag, separator, rest = match.groups()
    if separator == "=" and not re.search(r"\s--?[A-Za-z]", rest):
        return [text]
    if rest[:1] in ("{", "["):
        return [flag, rest]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class _Arguments:
    """Reads an argument list the way vLLM's parser does (``FlexibleArgumentParser``)."""

    def __init__(self, engine):
        self.dialect = engine.dialect
        self.names = _DIALECTS.get(engine.dialect, {})
        self.takes_model = engine.serve
        self.settings = {}
        self.variables = {}
        self.dotted = {}

    def read(self, texts, alone):
        position, positional = 0, None
        while position < len(texts):
            text = texts[position]
            position += 1
            if FLAG.match(text):
                position += self._flag(text, texts[position:])
            elif self._assigned(text):
                continue
            elif positional is None and self.takes_model and alone[position - 1]:
                positional = text
        for name, value in self.dotted.items():
            self.settings[name] = value
        if positional is not None:
            self.settings["model"] = _read(flags.BY_NAME["model"], positional)

    def _assigned(self, text):
        """``max_model_len=4096`` as in Python, ``NAME=value`` as in a shell, a bare name of a switch."""
        variable = _VARIABLE.fullmatch(text)
        if variable:
            self.variables[variable.group(1)] = variable.group(2)
            return True
        keyword = _ASSIGNED.fullmatch(text)
        option = flags.BY_NAME.get(keyword.group(1) if keyword else text)
        if option and keyword:
            self.settings[option.name] = _read(option, keyword.group(2))
        elif option and option.kind == "bool":
            self.settings[option.name] = True
        return bool(option and (keyword or option.kind == "bool"))

    def _flag(self, text, following):
        """Read one flag; the number of following items that belong to it."""
        level = LEVEL.fullmatch(text)
        if level:
            return self._set(flags.BY_NAME["compilation_config"], level.group(1), 0)
        flag, has_value, value = text.partition("=")
        if "." in flag:
            return self._dotted_flag(flag, value if has_value else None, following)
        option, negated = self._option(flag)
        if option is None:
            return self._unknown(flag, value if has_value else None, following, negated)
        if negated:
            self.settings[option.name] = False
            return 0
        if option.kind == "bool":
            return self._switch(option, value if has_value else None, following)
        if has_value:
            return self._set(option, value, 0)
        values = self._values(following) if option.kind in SEVERAL else following[:1]
        if not values or is_flag(values[0]):
            self.settings[option.name] = _Written("")
            return 0
        if option.kind in SEVERAL:
            return self._several(option, values)
        return self._set(option, values[0], 1)

    def _option(self, flag):
        name = self.names.get(flag.lstrip("-").replace("-", "_"))
        option = flags.BY_NAME[name] if name else flags.find_option(flag)
        flag = flag.replace("_", "-")
        if option or not flag.startswith("--no-"):
            return option, False
        option = flags.find_option("--" + flag[len("--no-") :])
        return (option, True) if option and option.kind == "bool" else (None, True)

    def _set(self, option, text, used):
        value = _read(option, text)
        self.settings[flags.name_of(option, value)] = value
        return used

    def _switch(self, option, text, following):
        used = 0
        if text is None and following and following[0] in LITERALS:
            text, used = following[0], 1
        self.settings[option.name] = True if text is None else _read(option, text)
        return used

    def _values(self, following):
        end = next((index for index, text in enumerate(following) if is_flag(text)), len(following))
        return following[:end]

    def _several(self, option, values):
        read = [_read(option, value) for value in values]
        if any(isinstance(value, _Written) for value in read):
            self.settings[option.name] = _Written(" ".join(values))
        else:
            self.settings[option.name] = [item for part in read for item in part]
        return len(values)

    def _dotted_flag(self, flag, text, following):
        used = 0
        if text is None:
            text, used = (following[0], 1) if following else ("", 0)
        head, *keys = flag.split(".")
        option = flags.find_option(head)
        name = option.name if option else head.lstrip("-").replace("-", "_")
        value = text.split(",") if keys[-1].endswith("+") else flags.scalar(text)
        _insert(self.dotted.setdefault(name, {}), [key.rstrip("+") for key in keys], value)
        return used

    def _unknown(self, flag, text, following, negated):
        """A flag that the table lacks: kept as it is written, if an engine was recognised."""
        used = 0
        if self.dialect is None or not flag.startswith("--"):
            return used
        name = flag[len("--no-" if negated else "--") :].replace("-", "_")
        if text is None and not negated and following and not is_flag(following[0]):
            text, used = following[0], 1
        if text is None or negated:
            self.settings[name] = not negated
        else:
            self.settings[name] = _Written(text) if command_line.is_unresolved(text) else flags.scalar(text)
        return used


def is_flag(text):
    """Whether an argument is a flag, and not a negative number."""
    return bool(FLAG.match(text)) and not _NEGATIVE.fullmatch(text)


def _insert(target, keys, value):
    for key in keys[:-1]:
        inner = target.get(key)
        target[key] = inner if isinstance(inner, dict) else {}
        target = target[key]
    before = target.get(keys[-1])
    target[keys[-1]] = before + value if isinstance(before, list) and isinstance(value, list) else value
