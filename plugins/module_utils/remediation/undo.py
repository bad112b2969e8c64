# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record with which a change can be taken back, also days later, and the patch that does it.

The record holds the changed fields and nothing else: of a list the items, of a script the words. It is kept in an
annotation and in documents, so a changed secret is refused.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re

from ..documents import DocumentError
from ..engine import flags
from ..secret_names import is_secret_name
from . import shell_words
from .differences import ABSENT, blocks, json_patch, steps
from .json_patch import copied, same
from .object_paths import NAMES, locate_segments, segments_of, value_at
from .wording import value as in_words

_FLAG = re.compile(r"--?[A-Za-z]")
_INNER_FLAG = re.compile(r"\s--?[A-Za-z]")
_BETWEEN = r"[\s'\"=]+"  # what stands between the words of a text that may hold a secret
_MAX_SHOWN = 200
_MAX_DEPTH = 3  # shells in shells


def record(old, new):
    """The undo record of a change: ``{"steps": [{path, before, after, at, length, named, words, text_length}]}``, in the order of the change.

    before, after: the field's values; a missing key means no field. at, length, named: of a list item, its index, the
    list's length after the step, and whether the path chooses it by its name. words: instead of before and after where both are texts of several words:
    ``[{at, before, after}]`` with the offset in the new text, whose length is ``text_length``.

    Raises DocumentError where the change touches a secret.
    """
    secrets = secrets_of(old) | secrets_of(new)
    found = []
    for step in steps(old, new):
        item = _recorded(step)
        _refuse_secret(item, secrets)
        found.append(item)
    return {"steps": found}


def _recorded(step):
    item = {"path": step.path}
    if step.length is not None:
        item.update(at=step.place[-1], length=step.length, named=step.named)
    texts = [value for value in (step.before, step.after) if isinstance(value, str)]
    if len(texts) == 2 and any(re.search(r"\s", text) for text in texts):
        item.update(words=_changed_words(*texts), text_length=len(step.after))
        return item
    for key, value in (("before", step.before), ("after", step.after)):
        if value is not ABSENT:
            item[key] = copied(value)
    return item


def _changed_words(before, after):
    """``[{at, before, after}]`` of two texts."""
    left, right = (re.findall(r"\s*\S+|\s+", text) for text in (before, after))
    found, at = [], 0
    for kind, start, end, new_start, new_end in blocks(left, right):
        new = "".join(right[new_start:new_end])
        if kind != "equal":
            old = "".join(left[start:end])
            blanks = _common_blanks(old, new)
            found.append({"at": at + blanks, "before": old[blanks:], "after": new[blanks:]})
        at += len(new)
    return found


def _common_blanks(one, other):
    """How many blanks both texts begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count] and one[count].isspace():
        count += 1
    return count


# --- secrets


def secrets_of(value):
    """All texts in an object that are secrets: values of variables and arguments with such names."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("command", "args") and isinstance(inner, list):
                found |= _secret_words(inner)
            elif isinstance(inner, str):
                found |= _secret_words([inner])
                # "key" alone is a name in Kubernetes (secretKeyRef, tolerations)
                name = value.get("name") if key == "value" else key
                if key != "key" and is_secret_name(str(name)):
                    found.add(inner)
            else:
                found |= secrets_of(inner)
    elif isinstance(value, list):
        for inner in value:
            found |= secrets_of(inner)
    parts = {part for text in found for part in re.split(_BETWEEN, text) if not part.startswith("-")}
    return (found | parts) - {""}


def _secret_words(items):
    """What follows a secret flag, up to the next flag."""
    found: set[str] = set()
    secret = False
    for text in [text for item in items for text in _words_of(str(item))]:
        flag, inline, value = text.partition("=")
        if _FLAG.match(text) and not re.search(r"\s", flag):
            secret = flags.is_secret(flag.lstrip("-").replace("-", "_"))
            if inline and secret:
                found |= {text, value}
                secret = False
        elif secret:
            found.add(text)
    return found


def _words_of(item, depth=0):
    """The arguments in a list item, which is one itself unless it holds several flags; scripts in scripts are opened."""
    if item.startswith("-") and not _INNER_FLAG.search(item):
        return [item]
    found = [] if item.startswith("-") else [item]
    for word in shell_words.words(item):
        nested = depth < _MAX_DEPTH and word.text != item and re.search(r"\s", word.text)
        found += _words_of(word.text, depth + 1) if nested else [word.text]
    return found


def holds_secret(value, secrets):
    """Whether a text in ``value`` is, or has in it, one of ``secrets`` (see ``secrets_of``) or a login in a URL."""
    return any(
        {text, *re.split(_BETWEEN, text)} & secrets or flags.without_secrets("", text) != text
        for text in _texts_in(value)
    )


def _refuse_secret(item, secrets):
    for part in (item, *item.get("words", ())):
        if holds_secret([part.get("before"), part.get("after")], secrets):
            raise DocumentError(
                f"{item['path']} holds a secret, which a change isn't allowed to touch (it would be in the undo record):"
                " change it by hand"
            )


def _texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)


# --- taking it back


def undo(undo_record, live):
    """The JSON patch that takes a change back on the object as it is now; empty where it has been taken back already.

    Raises ChangedSince, with three values for each of them, where somebody has changed fields since.
    """
    restored = restore(undo_record, live)
    return json_patch(live, restored)


def restore(undo_record, live):
    """The object as it would be without the change; see ``undo``. A step that was taken back by hand is none."""
    found = copied(live)
    refused: list[_FieldChanged] = []
    try:
        for item in reversed(undo_record["steps"]):
            # The other places of a list mean nothing once one of its items couldn't be taken back.
            if any(_share_list(item, error.item) for error in refused):
                continue
            try:
                if not _is_back(item, found):
                    _back(item, found, "after", "before")
            except _FieldChanged as error:
                refused.append(error)
    except DocumentError:
        if not refused and not _is_undone(undo_record, live):
            raise
    else:
        if not refused:
            return found
    if _is_undone(undo_record, live):
        return live
    raise ChangedSince(list(reversed(refused)), secrets_of(live))


def _share_list(one, other):
    """Whether two steps are at items of the same list that are told apart by their place alone."""
    if "at" not in one or "at" not in other or one["named"] or other["named"]:
        return False
    return segments_of(one["path"])[:-1] == segments_of(other["path"])[:-1]


def _is_back(item, raw):
    """Whether a step's field is as it was before it, and not as the step left it."""
    try:
        _back(item, copied(raw), "after", "before")
        return False
    except DocumentError:
        pass
    try:
        _back(item, copied(raw), "before", "after")
    except DocumentError:
        return "before" not in item and "words" not in item and not _has_parent(item, raw)
    return True


def _has_parent(item, raw):
    try:
        parent = value_at(raw, locate_segments(raw, segments_of(item["path"])[:-1], item["path"]))
    except DocumentError:
        return False
    return isinstance(parent, (dict, list))


def _is_undone(undo_record, live):
    """Whether the change could be made again, so that it isn't there now."""
    again = copied(live)
    try:
        for item in undo_record["steps"]:
            _back(item, again, "before", "after")
    except DocumentError:
        return False
    return True


def _back(item, raw, now, then):
    """One step made in ``raw``: from its value ``now`` to its value ``then``."""
    segments = segments_of(item["path"])
    holder = value_at(raw, locate_segments(raw, segments[:-1], item["path"]))
    key = _place(holder, segments[-1], item, now)
    current = ABSENT if key is None else holder[key]
    if "words" in item:
        holder[key] = _text_back(item, current, now, then)
        return
    wanted, value = item.get(now, ABSENT), item.get(then, ABSENT)
    if wanted is ABSENT or current is ABSENT:
        if wanted is not current:
            _refuse(item, current)
    elif not same(current, wanted):
        _refuse(item, current)
    if value is ABSENT:
        del holder[key]
    elif current is ABSENT and isinstance(holder, list):
        holder.insert(min(item["at"], len(holder)), copied(value))
    else:
        holder[segments[-1] if key is None else key] = copied(value)


def _place(holder, segment, item, now):
    """The key or index of a step's field as it stands; None where the field isn't there."""
    if isinstance(holder, dict):
        return segment if segment in holder else None
    if not isinstance(holder, list) or "at" not in item:
        return _refuse(item, ABSENT)
    if item["named"]:
        return next((at for at, value in enumerate(holder) if _is_called(value, segment)), None)
    # among items without names a place means something only while the list is as long as it was
    there = now in item or "words" in item
    if not _length(holder, item, now) or (there and item["at"] >= len(holder)):
        return _refuse(item, holder[item["at"] : item["at"] + 1])
    return item["at"] if there else None


def _is_called(value, name):
    return isinstance(value, dict) and name in (value.get(key) for key in NAMES)


def _length(holder, item, now):
    """Whether a list is as long as it was beside the step."""
    after = item["length"]
    before = after + ("before" in item) - ("after" in item) if "words" not in item else after
    return len(holder) == (after if now == "after" else before)


def _text_back(item, current, now, then):
    if not isinstance(current, str):
        _refuse(item, current)
    grown = sum(len(part["after"]) - len(part["before"]) for part in item["words"])
    shift, text = 0, current
    for part in item["words"]:
        # offsets are those of the new text; in the old one the parts before have another length
        at = part["at"] - (0 if now == "after" else shift)
        if current[at : at + len(part[now])] != part[now]:
            _refuse(part | {"path": item["path"]}, current[at : at + len(part[now])])
        shift += len(part["after"]) - len(part["before"])
    if len(current) != item["text_length"] - (0 if now == "after" else grown):
        _refuse(item, current)
    shift = 0
    for part in item["words"]:
        at = part["at"] if now != "after" else part["at"] - shift
        text = text[:at] + part[then] + text[at + len(part[now]) :]
        shift += len(part["after"]) - len(part["before"])
    return text


def _refuse(item, current):
    raise _FieldChanged(item, current)


class _FieldChanged(DocumentError):
    """Somebody has changed one field since."""

    def __init__(self, item, current):
        super().__init__(f"{item['path']} has been changed since")
        self.item, self.current = item, current

    def sentence(self, secrets):
        """With the three values; of a text in which some words were changed there are none."""
        path = self.item["path"]
        if "words" in self.item:
            return f"{path} has been changed since"
        values = {
            "before our change": self.item.get("before", ABSENT),
            "by our change": self.item.get("after", ABSENT),
            "now": self.current,
        }
        name = segments_of(path)[-1]
        shown = "; ".join(f"{word}: {_shown(name, value, secrets)}" for word, value in values.items())
        return f"{path} has been changed since ({shown})"


class ChangedSince(DocumentError):
    """Somebody has changed fields since: ``paths``, in the order of the change."""

    def __init__(self, errors, secrets):
        super().__init__("; ".join(error.sentence(secrets) for error in errors))
        self.paths = list(dict.fromkeys(error.item["path"] for error in errors))


def _shown(name, value, secrets):
    if value is ABSENT or value == []:
        return "not set"
    if any({text, *re.split(_BETWEEN, text)} & secrets for text in _texts_in([value])):
        return flags.HIDDEN
    hidden = flags.without_secrets(name, value)
    items = hidden if isinstance(hidden, list) else [hidden]
    return ", ".join(str(in_words(item)) for item in items)[:_MAX_SHOWN]
