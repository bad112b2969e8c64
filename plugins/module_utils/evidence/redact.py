# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take secrets and users' data out of everything that is kept.

Secrets are found by name (environment variables, options, keys of dicts) and by shape (tokens of known
issuers, JWT, PEM blocks, URLs with credentials). Users' data are prompts, token ids, images, request
bodies and the query strings of request URLs; vLLM logs them with ``--enable-log-requests`` and in the
dump after a failed forward pass. What is taken out becomes ``***``; numbers and memory words stay.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from functools import partial

from ..engine import flags
from ..secret_names import is_secret_name

MASK = "***"
LEFT_OUT = "…"

_CONSTANTS = frozenset(("none", "true", "false", "null", "nil", "", "''", '""', "[]", "{}", MASK))
_REFERENCE = re.compile(r"\$\(\w+\)|\$\{\w+\}|\$\w+|<[^<>]*>|valueFrom\b.*")

# A quoted value: plain, or escaped once or twice because it stands in a JSON string.
_QUOTED = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\"(?:[^"\\]|\\\\\\"|\\[^"])*\\"|\\\\\\"[^"]*\\\\\\")"""
# The same where the line was cut before the closing quote.
_UNCLOSED = r"""(?:[\[(]\s*[bru]?\\*["'][^\])]*|[bru]?\\*(?:"[^"]*|'[^']*))\Z"""
_OPENING = re.compile(r"""[\[(]?\s*[bru]?(?P<quote>\\*["'])""")
# Bounded, as all that may repeat before the text that decides is: a log line is as long as who sends the request wants.
_NAME = r"[A-Za-z_][\w.-]{0,127}"
# name = value, name: value, 'name': ['value', ...], name=['value']
_ASSIGNMENT = re.compile(
    rf"""(?P<head>(?<![\w$-])(?P<quote>(?<!\\)\\*["'])?(?P<name>{_NAME})(?(quote)\\*["'])\s*(?:=>|[:=])\s*)"""
    rf"""(?P<value>[\[(]\s*(?:[bru]?{_QUOTED}\s*(?:,\s*)?)+(?:[\])]|\Z)|[bru]?{_QUOTED}|{_UNCLOSED}"""
    r"""|[^\s"'\\\[({]+[^\s"'\\]*)"""
)
# --name value, --name=value, --name "two words"
_OPTION = re.compile(
    rf"""(?P<head>(?<![\w-])--?(?P<name>{_NAME})(?:=|[ \t]+))(?P<value>{_QUOTED}|{_UNCLOSED}|[^\s"'\\]+)"""
)
_MORE_VALUES = re.compile(r"""[ \t]+(?P<value>"[^"]*"|'[^']*'|[^\s"'\\&|;>-][^\s"'\\&|;>]*)""")
# "--name", "value" in a JSON or Python list, and as items of a YAML list
_LISTED = re.compile(
    rf"""(?P<head>(?P<quote>(?<!\\)\\*["'])--?(?P<name>{_NAME})(?P=quote)\s*,\s*)(?P<value>(?:{_QUOTED}\s*(?:,\s*)?)+)"""
)
_YAML_LISTED = re.compile(
    rf"""(?P<head>-[ \t]+["']?--?(?P<name>{_NAME})["']?[ \t]*\n\s*-[ \t]+)(?P<value>[^\n]+)"""
)
# {"name": "HF_TOKEN", "value": "..."}, and the same in YAML
_NAMED_VALUE = re.compile(
    rf"""(?P<head>\bname(?:\\*["'])?\s*:\s*(?:\\*["'])?(?P<name>{_NAME})(?:\\*["'])?\s*(?:,\s*)?(?:\\*["'])?"""
    r"""value(?:\\*["'])?\s*:\s*)"""
    rf"""(?P<value>{_QUOTED}|{_UNCLOSED}|[^\s"'\\,}}]+)"""
)

_SHAPES = (
    ("pem", re.compile(r"-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)", re.S)),
    ("token", re.compile(r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?")),
    ("token", re.compile(r"(?<![A-Za-z0-9])hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,})")),
    ("token", re.compile(r"(?<![\w-])sk-[A-Za-z0-9_-]{8,}")),
    ("token", re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{10,}|github_pat_\w{10,}|glpat-[\w-]{10,})")),
    ("token", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}")),
    ("token", re.compile(r"(?<![A-Za-z0-9])(?:AIza[\w-]{20,}|ya29\.[\w-]+|nvapi-[\w-]{10,}|xox[abprs]-[\w-]{8,})")),
    ("token", re.compile(r"(?<![A-Za-z0-9])(?:npm_|dckr_pat_|pypi-|wandb_v1_)[A-Za-z0-9_-]{16,}")),
    ("header", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{6,}|(?<=basic )(?=[A-Za-z0-9+/]*[A-Z0-9+/=])[A-Za-z0-9+/]{8,}={0,2}")),
    ("image", re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=_\\-]*")),
    ("data", re.compile(
        r"(?<![A-Za-z0-9+/])(?=[a-z0-9+/]{0,80}[A-Z])(?=[A-Z0-9+/]{0,80}[a-z])(?=[A-Za-z+/]{0,80}\d)"
        r"[A-Za-z0-9+/]{60,}={0,2}")),
    ("data", re.compile(
        r"^\s*(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*\d)[A-Za-z0-9+/]{20,}={0,2}\s*$", re.M)),
)  # fmt: skip
_COOKIE = re.compile(r"(?i)((?:\bset-)?\bcookie\b[\"']?\s*[:=]\s*)(?P<value>[^\n]+)")
_AUTHORIZATION = re.compile(
    r"(?i)(\bauthorization\b\\*[\"']?\s*[:=,]\s*\\*(?:b(?=[\"']))?[\"']?)(?P<value>[^\"'\\\n]+)"
)
_URL_USER = re.compile(
    r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,31}://)"
    r"(?P<value>[^\s/@:\"'<>]{0,512}:[^\s@\"'<>]{1,1024}|[^\s/@\"'<>]{1,1024})(?=@)"
)
_URL_QUERY = re.compile(
    r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,31}://[^\s?\"'<>#]{0,2048}\?)(?P<value>[^\s\"'<>)\]]+)"
)
_REQUEST_QUERY = re.compile(
    r"(?P<head>\b(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) /[^\s?\"]{0,2048}\?)(?P<value>[^\s\"]+)"
)
_REQUEST_URL = re.compile(r"(?P<head>\burl=(?:URL\()?[\"'])(?P<value>[a-z]{1,32}://[^\"']+)")

# A record of a whole request: everything after the request's id goes (prompt, parameters, token ids).
_REQUEST_RECORD = re.compile(
    r"(?P<head>\b(?:Received request|Generated response|Generated streaming response|Request) "
    r"[\w.-]+(?: details| \([^()]*\))?(?:: ))"
    r"(?=(?:prompt|params|prompt_token_ids|output|lora_request|request|input|messages)\b)(?P<value>.+)",
    re.S,
)
# Keys whose string, list or dict is users' data wherever it is printed; numbers behind them stay.
_USER_DATA = re.compile(
    r"(?<![\w.-])(?P<quote>(?<!\\)\\*[\"'])?(?P<name>[Pp]rompts?|prompt_token_ids|prompt_embeds|(?:new_|all_|output_|input_|stop_|resumed_)*token_ids"
    r"|input_ids|messages|content|reasoning_content|inputs?|instructions|multi_modal_data|mm_data|mm_inputs|mm_kwargs|mm_features|"
    r"mm_hashes|image_urls?|video_urls?|audio_urls?|input_audio|image|video|audio|raw_body|request_body|body|payload|documents|"
    r"query|text|text_1|text_2|outputs?|generated_text|stop|bad_words|guided_json|guided_decoding|structured_outputs|json_schema|"
    r"extra_args|logit_bias|prompt token ids|tools|suffix)(?(quote)\\*[\"'])\s*[:=]\s*(?=[bru]?\\*[\"'\[{(])"
)
_NUMBERS_STAY = frozenset(("image", "video", "audio"))  # {'image': {'count': 2}}: a limit, not a picture
_CLOSERS = {"[": "]", "{": "}", "(": ")"}

# Command lines of processes: options of which the value is a number or one of these names is no secret and no user's text.
_NUMBER_KINDS = frozenset(("int", "float", "count", "length", "ints", "level", "bool"))
_SHOWN_OPTIONS = frozenset((
    "model", "served_model_name", "tokenizer", "revision", "dtype", "quantization", "kv_cache_dtype", "load_format", "device", "task",
    "runner", "convert", "distributed_executor_backend", "attention_backend", "data_parallel_backend", "kv_offloading_backend",
))  # fmt: skip
_LONG_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]{0,60}")
_SHOWN_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,127}|/[A-Za-z0-9_./-]{1,127}")
_PYTHON = re.compile(r"python[0-9.]*")
_SCRIPT = re.compile(r"(?:[\w./-]*/)?(?P<name>[\w-]{1,60}\.py)|/(?:[\w.-]+/)*bin/(?P<program>[\w.-]{1,60})")
_MODULE = re.compile(r"[A-Za-z_][\w.]{0,120}")
_SUBCOMMANDS = frozenset(("serve", "bench", "chat", "complete", "run-batch"))  # of the program vllm


class Redactor:
    """Replaces secrets and users' data by ``***`` and counts what it replaced, by kind."""

    def __init__(self):
        self._kinds = {}

    def summary(self):
        """``{"count": replaced values, "kinds": {kind: count}}``."""
        return {"count": sum(self._kinds.values()), "kinds": dict(sorted(self._kinds.items()))}

    def env_value(self, name, value):
        """The value of the environment variable ``name``, masked as a whole if the name says it is secret."""
        if value is None:
            return None
        if is_secret_name(name) and not _is_plain(value):
            return self._mask("env")
        return self.text(value)

    def arguments(self, arguments):
        """A command or argument list (list of str): values of secret options masked, the rest as ``text`` does."""
        kept, option, given = [], None, False
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if argument.startswith("-") and " " not in name:
                secret = is_secret_name(name)
                option, given = (name if secret and not equals else None), False
                if secret and not _is_plain(value):
                    kept.append(f"{name}={self._mask('argument')}")
                else:
                    kept.append(argument if secret else self.text(argument))
            elif option and not _is_plain(argument) and (not given or _is_many(option)):
                kept.append(self._mask("argument"))
                given = True
            else:
                kept.append(self.text(argument))
                given = True
        return kept

    def command_line(self, arguments):
        """What a running process may be shown by (list of str -> list of str): any program's, so nothing unknown is let through.

        Kept are the names of the program (of Python's script or module too), vLLM's subcommand, the names of options, and values
        that are numbers or names by vLLM's table of options. ``…`` stands for the rest: words that hold prompts and passwords.
        """
        if not arguments:
            return []
        title = arguments[0].split()  # a process that has set a title has it in one piece
        program = (title[0] if title else "").rpartition("/")[2]
        kept = [self.text(program[:60]) or LEFT_OUT, *([LEFT_OUT] if len(title) > 1 else [])]
        rest = arguments[1:]
        if _PYTHON.fullmatch(program):
            program, shown, rest = _python_program(rest)
            kept += shown
        if program == "vllm" and rest[:1] and rest[0] in _SUBCOMMANDS:
            kept.append(rest[0])
            rest = rest[1:]
        option = None
        for argument in rest:
            shown = self._shown_value(option, argument) if option else None
            option = None
            if shown is None:
                shown, option = self._shown_flag(argument)
            if shown != LEFT_OUT or kept[-1] != LEFT_OUT:
                kept.append(shown)
        return kept

    def _shown_flag(self, argument):
        """``(text, option whose value comes next or None)``."""
        name, equals, value = argument.partition("=")
        option = flags.find_option(name)
        if option is None and not name.startswith("--") and re.match(r"-[A-Za-z]", name):
            # -pSECRET: the letter is the option.
            return name[:2] + (LEFT_OUT if len(argument) > 2 else ""), None
        if option is None and not _LONG_FLAG.fullmatch(name):
            return LEFT_OUT, None
        name = self.text(name)
        if not equals:
            return name, option
        return f"{name}={self._shown_value(option, value) or LEFT_OUT}", None

    def _shown_value(self, option, text):
        """A value that says nothing but a number or a name, or None."""
        if option is None or option.secret:
            return None
        if option.kind in _NUMBER_KINDS and len(text) <= 40:
            value = flags.read_value(option.kind, text)
            return None if value is None or isinstance(value, dict) else text
        shown = option.name in _SHOWN_OPTIONS and _SHOWN_VALUE.fullmatch(text)
        return self.text(text) if shown else None

    def text(self, text):
        """``text`` (a log line, a message, a command line, a document's value) without secrets and users' data."""
        if not text:
            return text
        text = self._requests(text)
        for kind, pattern in _SHAPES:
            text = pattern.sub(partial(self._replace, kind), text)
        if "://" in text:
            text = self._values(_URL_USER, "url", text)
            text = self._values(_REQUEST_URL, "request", text)
            text = self._values(_URL_QUERY, "url", text)
        if "?" in text:
            text = self._values(_REQUEST_QUERY, "request", text)
        lowered = text.lower()
        if "authorization" in lowered:
            text = self._values(_AUTHORIZATION, "header", text)
        if "cookie" in lowered:
            text = self._values(_COOKIE, "header", text)
        if not any(word in lowered for word in _SECRET_STEMS):
            return text
        text = self._named(_NAMED_VALUE, "env", text)
        text = self._named(_LISTED, "argument", text, items=True)
        text = self._named(_YAML_LISTED, "argument", text)
        text = self._options(text)
        return self._named(_ASSIGNMENT, "named", text, in_text=True)

    def _mask(self, kind):
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        return MASK

    def _replace(self, kind, _found):
        return self._mask(kind)

    def _values(self, pattern, kind, text):
        def replace(found):
            if found.group("value").strip() == MASK:
                return found.group(0)
            start = found.start("value") - found.start(0)
            return found.group(0)[:start] + self._mask(kind)

        return pattern.sub(replace, text)

    def _named(self, pattern, kind, text, in_text=False, items=False):
        def replace(found):
            value = found.group("value")
            bare = value.rstrip(",;)}]") if value[:1] not in "\"'\\[(bru" else value
            if not is_secret_name(found.group("name"), in_text) or _is_plain(value) or _is_plain(bare):
                return found.group(0)
            if in_text and _is_prose(found.group("name"), bare):
                return found.group(0)
            if items:
                return found.group("head") + self._mask_items(found.group("name"), value, kind)
            return found.group("head") + self._mask_inside(value, bare, kind)

        # A value may itself hold a name (``env: HF_TOKEN=x``), so a match that isn't secret is searched again inside.
        pieces, at = [], 0
        while True:
            found = pattern.search(text, at)
            if not found:
                break
            new = replace(found)
            if new == found.group(0):
                step = found.start("value")
                pieces.append(text[at:step])
                at = step
                if found.start("value") == found.end("value"):
                    at += 1
            else:
                pieces.append(text[at : found.start()] + new)
                at = found.end()
        pieces.append(text[at:])
        return "".join(pieces)

    def _mask_inside(self, value, bare, kind):
        """The mask in the value's own quotes, so that JSON and Python stay readable."""
        opening = _OPENING.match(value)
        if not opening:
            return self._mask(kind) + value[len(bare) :]
        quote = opening.group("quote")
        closing = ")" if value[0] == "(" else "]" if value[0] == "[" else ""
        return opening.group(0) + self._mask(kind) + quote + closing

    def _mask_items(self, name, value, kind):
        """Mask the listed values that belong to an option: the first, or all up to the next option."""
        pieces, at, first = [], 0, True
        for item in re.finditer(_QUOTED, value):
            content = item.group(0).strip("\\\"'")
            if content.startswith("-") or not (first or _is_many(name)):
                break
            pieces.append(value[at : item.start()])
            pieces.append(
                item.group(0) if _is_plain(content) else self._mask_inside(item.group(0), content, kind)
            )
            at, first = item.end(), False
        return "".join(pieces) + value[at:]

    def _options(self, text):
        pieces, at = [], 0
        while True:
            found = _OPTION.search(text, at)
            if not found:
                break
            name, value = found.group("name"), found.group("value")
            if not is_secret_name("--" + name) or value.startswith("-"):
                pieces.append(text[at : found.start("value")])
                at = found.start("value")
                continue
            bare = value if value[0] in "\"'\\" else value.rstrip(",;)}]")
            pieces.append(text[at : found.start("value")])
            pieces.append(
                value if _is_plain(value) or _is_plain(bare) else self._mask_inside(value, bare, "argument")
            )
            at = found.end()
            while _is_many(name):
                more = _MORE_VALUES.match(text, at)
                if not more:
                    break
                pieces.append(" " + self._mask("argument"))
                at = more.end()
        pieces.append(text[at:])
        return "".join(pieces)

    def _requests(self, text):
        if "eque" in text or "esponse" in text:
            text = self._values(_REQUEST_RECORD, "request", text)
        pieces, at = [], 0
        while True:
            found = _USER_DATA.search(text, at)
            if not found:
                break
            end = _end_of_value(text, found.end())
            value = text[found.end() : end]
            if (found.group("name") in _NUMBERS_STAY and value[0] in "{[(") or value.strip(
                "bru\\\"'[]{}() "
            ) in ("", MASK):
                pieces.append(text[at : found.end() + 1])
                at = found.end() + 1
                continue
            pieces.append(text[at : found.end()] + self._mask("request"))
            at = end
        return "".join(pieces) + text[at:] if pieces else text


# Cheap test whether a text can hold a secret's name at all.
_SECRET_STEMS = (
    "key",
    "token",
    "secret",
    "pass",
    "pwd",
    "cred",
    "auth",
    "bearer",
    "dsn",
    "jwt",
    "cookie",
    "pat",
)


def _python_program(arguments):
    """``(program, [what is shown of it], the arguments behind it)`` of Python's arguments."""
    at = 0
    while at < len(arguments) and re.fullmatch(r"-[BEIOSbdiqsuvx]+", arguments[at]):
        at += 1
    first, second = [*arguments[at:], "", ""][:2]
    if first == "-m" and _MODULE.fullmatch(second):
        return second, ["-m", second], arguments[at + 2 :]
    script = _SCRIPT.fullmatch(first)
    if script:
        name = script.group("name") or script.group("program")
        return name, [name], arguments[at + 1 :]
    return "", [], arguments


def _is_plain(value):
    """Whether a value is no secret whatever its name: empty, a constant, a reference to somewhere else."""
    content = value.strip().strip("\\\"'").strip()
    return content.lower() in _CONSTANTS or bool(_REFERENCE.fullmatch(content))


def _is_prose(name, value):
    """``per token: 128`` in running text is no secret; a password may be all digits, and short."""
    if not name.lower().endswith(("token", "tokens", "key", "keys")) or value[:1] in "\"'\\[(":
        return False
    return len(value) < 12 and (value.isdigit() or (name == "token" and len(value) < 6))


def _is_many(name):
    """vLLM's ``--api-key`` takes several values."""
    return name.replace("_", "-").lstrip("-") == "api-key"


def _end_of_value(text, start):
    """The end of the Python or JSON value that begins at ``start`` (quotes and brackets), or the text's end."""
    at = start
    if text[at : at + 1] in "bru":
        at += 1
    escaped = 0
    while text[at : at + 1] == "\\":
        at, escaped = at + 1, escaped + 1
    if text[at : at + 1] in "\"'":
        return _end_of_string(text, at, escaped)
    depth, size = 0, len(text)
    while at < size:
        char = text[at]
        if char in "\"'":
            at = _end_of_string(text, at, 0)
            continue
        if char in _CLOSERS:
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth <= 0:
                return at + 1
        at += 1
    return size


def _end_of_string(text, at, escaped):
    quote, at, size = text[at], at + 1, len(text)
    closing = "\\" * escaped + quote
    while at < size:
        if escaped and text.startswith(closing, at):
            return at + len(closing)
        if text[at] == "\\":
            at += 2
        elif text[at] == quote and not escaped:
            return at + 1
        else:
            at += 1
    return size
