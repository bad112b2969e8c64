# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last steps of an evidence document: engine settings, groups, counts, size limits, a stable order.

Both sources (cluster and bundle) end here, so that their documents look the same.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import json

from ..documents import log_lines
from ..engine.settings import engine_accelerator, engine_settings, engine_version

# Design section 2: a pod typically takes up to 16 KiB, never more than 64 KiB.
TYPICAL_POD_BYTES = 16 << 10
MAX_POD_BYTES = 64 << 10


def finish_container(container, log_excerpts=(), labels=None, config=None):
    """Fill an engine container's version, accelerator and settings in place; others are left alone.

    log_excerpts: the container's log excerpts, oldest first; the newest that shows arguments counts, since
    an older attempt's start may have been cut off. labels: the pod's. config: a parsed ``--config`` file.
    """
    if not container["engine"]:
        return container
    arguments: list[dict] = next(
        (excerpt["arguments"] for excerpt in reversed(list(log_excerpts)) if excerpt.get("arguments")), []
    )
    version, source = engine_version(container["image"], arguments, labels=labels)
    container["engine"].update(version=version, version_from=source)
    # The engine knows best: a pod without a GPU resource may run on the CPU, or on a GPU it was not given by name.
    container["engine"]["accelerator"] = engine_accelerator(arguments) or container["engine"].get(
        "accelerator"
    )
    container["settings"] = engine_settings(
        container["command"],
        container["args"],
        container["env"],
        image=container["image"],
        log_arguments=arguments,
        config=config,
        version=version,
    )
    return container


def finish(evidence, redactor=None, limit=MAX_POD_BYTES):
    """Bring a collected evidence document into its final form, in place, and return it.

    Orders pods, unreadable entries and maps; fills groups; counts what the collector hasn't counted; cuts each
    pod to ``limit`` bytes of JSON (every cut is named in ``log.cut`` or ``pod.cut``); adds ``redactor``'s
    summary to the redactions.
    """
    evidence["pods"].sort(key=lambda item: (item["namespace"] or "", item["name"] or "", item["uid"] or ""))
    for item in evidence["pods"]:
        cap_pod(item, limit)
    evidence["groups"] = groups_of(evidence["pods"])
    counts = evidence["counts"]
    engines = [item for item in evidence["pods"] if any(entry["engine"] for entry in item["containers"])]
    counts["pods_seen"] = max(counts["pods_seen"], len(evidence["pods"]))
    counts["engines"] = max(counts["engines"], len(engines))
    counts["suspicious"] = max(
        counts["suspicious"], sum(bool(item["suspicious"]) for item in evidence["pods"])
    )
    for name in ("namespaces", "nodes"):
        evidence[name] = dict(sorted(evidence[name].items()))
    evidence["unreadable"] = _unique(evidence["unreadable"])
    if redactor is not None:
        add_redactions(evidence, redactor.summary())
    return evidence


def add_redactions(evidence, summary):
    """Add a redactor's summary ``{count, kinds}`` to the document's (kinds: {kind: count} or a list)."""
    total = evidence["redactions"]
    total["count"] += summary["count"]
    kinds = summary["kinds"]
    pairs = kinds.items() if isinstance(kinds, dict) else ((kind, 1) for kind in kinds)
    for kind, count in pairs:
        total["kinds"][kind] = total["kinds"].get(kind, 0) + count
    total["kinds"] = dict(sorted(total["kinds"].items()))


def groups_of(pods):
    """``[{ref, pods}]`` of pods that form one engine; ref is the pods' ``group``, pods are ``namespace/name``."""
    members: dict[str, list[str]] = {}
    for item in pods:
        if item["group"]:
            members.setdefault(item["group"], []).append(f"{item['namespace']}/{item['name']}")
    return [{"ref": ref, "pods": sorted(names)} for ref, names in sorted(members.items())]


def _unique(entries):
    kept = {json.dumps(entry, sort_keys=True): entry for entry in entries}
    return sorted(
        kept.values(), key=lambda entry: (entry["source"] or "", entry["object"] or "", entry["reason"] or "")
    )


# --- size


def size_of(document):
    """Bytes of ``document`` as JSON."""
    return len(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))


def cap_pod(pod, limit=MAX_POD_BYTES):
    """Cut ``pod`` in place until its JSON has at most ``limit`` bytes; least telling things go first.

    What is lost is named: in the log's ``cut`` for lines, in the pod's ``cut`` for the rest. The first error
    of every attempt stays to the last.
    """
    pod.setdefault("cut", [])
    for cut in _GENTLE_CUTS:
        if size_of(pod) <= min(TYPICAL_POD_BYTES, limit):
            break
        cut(pod)
    for cut in _CUTS:
        if size_of(pod) <= limit:
            break
        cut(pod)
    return pod


def _attempts(pod):
    """``(container, attempt, is_newest_ended)``: the engine's newest ended attempt is the one to keep whole."""
    for entry in pod["containers"]:
        ended = [item for item in entry["attempts"] if item["log"]["lines"]]
        for item in entry["attempts"]:
            yield entry, item, bool(entry["engine"]) and bool(ended) and item is ended[-1]


def _keep_last(field, count, spare_newest=False):
    def cut(pod):
        for _container, item, newest in _attempts(pod):
            if not (spare_newest and newest):
                _shorten(item["log"], field, count, last=True)

    return cut


def _keep_first(field, count):
    def cut(pod):
        for _container, item, _newest in _attempts(pod):
            _shorten(item["log"], field, count, last=False)

    return cut


def _shorten(excerpt, field, count, last):
    lines = excerpt[field]
    if len(lines) <= count:
        return
    excerpt[field] = lines[len(lines) - count :] if last else lines[:count]
    _name_cut(
        excerpt["cut"],
        field,
        f"{field}: {'last' if last else 'first'} {count} of {len(lines)} kept (size limit)",
    )


def _name_cut(cuts, field, text):
    """One entry a field: a later, harder cut replaces the earlier one but keeps its total."""
    for index, earlier in enumerate(cuts):
        if isinstance(earlier, str) and earlier.startswith(f"{field}: ") and earlier.endswith("(size limit)"):
            total = earlier.split(" of ")[-1].split(" ")[0]
            now = text.split(" of ")
            cuts[index] = f"{now[0]} of {total} kept (size limit)" if len(now) == 2 else text
            return
    cuts.append(text)


def _spread_numbers(count):
    """Of each measured name and rank the first and the last are kept before anything between them."""

    def cut(pod):
        for _container, item, _newest in _attempts(pod):
            numbers = item["log"]["numbers"]
            if len(numbers) <= count:
                continue
            ends: dict[tuple, list[dict]] = {}
            for number in numbers:
                ends.setdefault((number.get("name"), number.get("rank")), []).append(number)
            kept = [line for lines in ends.values() for line in (lines[0], lines[-1])]
            chosen = {id(line) for line in kept[: count * 2]}
            item["log"]["numbers"] = [line for line in numbers if id(line) in chosen][:count]
            _name_cut(
                item["log"]["cut"], "numbers", f"numbers: first {count} of {len(numbers)} kept (size limit)"
            )

    return cut


def _thin_errors(frames, context, from_index):
    """Errors from ``from_index`` on keep at most so many frames (the innermost) and context lines."""

    def cut(pod):
        for _container, item, _newest in _attempts(pod):
            excerpt = item["log"]
            listed = excerpt["errors"][from_index:]
            first = [excerpt["first_error"]] if excerpt["first_error"] and from_index == 0 else []
            changed = False
            for error in listed + first:
                for field, count in (("frames", frames), ("context", context)):
                    if len(error.get(field) or []) > count:
                        error[field] = error[field][len(error[field]) - count :]
                        changed = True
            if changed:
                _name_cut(
                    excerpt["cut"],
                    "frames",
                    f"frames: {frames} and {context} lines of context an error (size limit)",
                )

    return cut


def _cut_texts(length):
    """Long texts of lines, messages, arguments and values are cut to ``length`` characters."""

    def cut(pod):
        for _container, item, _newest in _attempts(pod):
            excerpt = item["log"]
            if sum([_cut_text(entry, "text", length) for entry in _all_lines(excerpt)]):
                _name_cut(excerpt["cut"], "text", f"text: lines cut to {length} characters (size limit)")
            _cut_text(item, "message", length)
        changed = _cut_text(pod, "message", length)
        for field in ("labels", "annotations"):
            shown = {key: _cut(value, length) for key, value in pod[field].items()}
            changed += shown != pod[field]
            pod[field] = shown
        for entry in pod.get("mutations") or []:
            changed += _cut_text(entry, "text", length)
        for entry in pod["events"] + pod["conditions"]:
            changed += _cut_text(entry, "message", length)
        for entry in pod["containers"]:
            for value in entry["env"]:
                changed += _cut_text(value, "value", length)
            for field in ("command", "args"):
                if any(len(text) > length for text in entry[field]):
                    entry[field] = [_cut(text, length) for text in entry[field]]
                    changed += 1
            for value in entry["settings"].values():
                changed += _cut_text(value, "value", length)
        if changed:
            pod["cut"].append(f"texts cut to {length} characters (size limit)")

    return cut


def _all_lines(excerpt):
    """Every line dict that an excerpt holds, the context lines of its errors included."""
    lines = log_lines(excerpt)
    for field in ("errors", "notes", "markers", "numbers", "arguments", "tail"):
        lines += excerpt[field]
    if excerpt["first_error"]:
        lines.append(excerpt["first_error"])
    return lines + [
        context for line in list(lines) for context in line.get("context") or [] if isinstance(context, dict)
    ]


def _cut_text(holder, field, length):
    text = holder.get(field)
    if isinstance(text, str) and len(text) > length:
        holder[field] = _cut(text, length)
        return 1
    return 0


def _cut(text, length):
    return text if len(text) <= length else text[: max(0, length - 2)] + " …"


def _keep_events(count):
    def cut(pod):
        if len(pod["events"]) > count:
            pod["cut"].append(f"events: last {count} of {len(pod['events'])} kept (size limit)")
            pod["events"] = pod["events"][len(pod["events"]) - count :]

    return cut


def _drop_defaults(pod):
    for entry in pod["containers"]:
        given = {name: value for name, value in entry["settings"].items() if value.get("from") != "default"}
        if len(given) < len(entry["settings"]):
            entry["settings"] = given
            pod["cut"].append(f"settings of {entry['name']}: defaults left out (size limit)")


def _keep_revisions(count):
    def cut(pod):
        revisions = pod["workload"]["revisions"]
        if len(revisions) > count:
            pod["workload"]["revisions"] = revisions[len(revisions) - count :]
            pod["cut"].append(f"revisions: last {count} of {len(revisions)} kept (size limit)")

    return cut


def _drop_side_logs(pod):
    """The logs of containers that are no engine go, then everything but errors of the engine's older attempts."""
    for entry, item, newest in _attempts(pod):
        if newest or not item["log"]["lines"]:
            continue
        for field in (
            ("notes", "tail", "context") if entry["engine"] else ("notes", "tail", "errors", "numbers")
        ):
            if item["log"].get(field):
                item["log"][field] = []
                _name_cut(item["log"]["cut"], field, f"{field}: left out (size limit)")


def _drop_environment(pod):
    for entry in pod["containers"]:
        if not entry["engine"] or len(entry["env"]) > 20:
            entry["env"] = entry["env"][:20] if entry["engine"] else []
            pod["cut"].append(f"env of {entry['name']}: shortened (size limit)")


def _drop_maps(pod):
    """Labels, annotations, mounts and volumes: what remains when a pod's own spec is that large."""
    for field in ("labels", "annotations"):
        pod[field] = dict(list(pod[field].items())[:20])
    pod["volumes"] = pod["volumes"][:20]
    for entry in pod["containers"]:
        entry["mounts"] = entry["mounts"][:20]
        entry["args"] = entry["args"][:100]
        entry["command"] = entry["command"][:100]
    for name in ("managers", "chain", "autoscalers"):
        pod["workload"][name] = pod["workload"][name][:10]
    pod["conditions"] = pod["conditions"][:10]
    pod["cut"].append("labels, annotations, volumes, mounts and arguments shortened (size limit)")


def _keep_containers(count):
    """The engine, and of the others the first ``count`` (init containers come first)."""

    def cut(pod):
        others = [entry for entry in pod["containers"] if not entry["engine"]]
        if len(others) > count:
            kept = {id(entry) for entry in others[:count]}
            pod["containers"] = [entry for entry in pod["containers"] if entry["engine"] or id(entry) in kept]
            pod["cut"].append(
                f"containers beside the engine: first {count} of {len(others)} kept (size limit)"
            )

    return cut


def _drop_side_commands(pod):
    for entry in pod["containers"]:
        if not entry["engine"] and (entry["command"] or entry["args"] or entry["env"]):
            entry["command"], entry["args"], entry["env"] = [], [], []
            pod["cut"].append(f"command, args and env of {entry['name']}: left out (size limit)")


_GENTLE_CUTS = (
    _keep_last("tail", 20, spare_newest=True),
    _thin_errors(4, 1, from_index=3),
    _drop_defaults,
)
_CUTS = (
    _keep_last("tail", 50),
    _keep_first("notes", 20),
    _spread_numbers(60),
    _thin_errors(6, 2, from_index=1),
    _cut_texts(1000),
    _keep_last("tail", 20),
    _drop_defaults,
    _keep_events(30),
    _keep_revisions(3),
    _keep_first("errors", 15),
    _keep_first("notes", 8),
    _spread_numbers(30),
    _keep_containers(20),
    _cut_texts(400),
    _drop_side_logs,
    _drop_side_commands,
    _drop_environment,
    _keep_events(10),
    _keep_revisions(1),
    _keep_first("errors", 6),
    _thin_errors(3, 1, from_index=0),
    _keep_first("markers", 10),
    _keep_first("arguments", 5),
    _cut_texts(150),
    _keep_last("tail", 5),
    _spread_numbers(10),
    _drop_maps,
    _keep_containers(5),
    _thin_errors(0, 0, from_index=0),
    _keep_first("errors", 3),
    _cut_texts(60),
)
