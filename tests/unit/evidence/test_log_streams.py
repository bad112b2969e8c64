# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One text, several logs: sections, descriptions, runs, sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError, log, log_lines
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import (
    describe,
    log_exports,
    log_streams,
)
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_streams import (
    Attempts,
    Nowhere,
    Streams,
    exported,
    head_lines,
    joined,
    line_reader,
    lines_of,
    read_text,
)

BANNER = "(APIServer pid={0}) INFO 11-24 07:{1}:04 [api_server.py:1839] vLLM API server version 0.10.2\n"
LOGO = "INFO 11-24 07:{0}:04 [utils.py:1]  \u2584\u2584 \u2584\u2588 \u2588     \u2588     \u2588 \u2580\u2584\u2580 \u2588  version 0.19.0\n"
LOADING = (
    "(EngineCore_DP0 pid=64) INFO 11-24 07:10:31 [gpu_model_runner.py:2338] Starting to load model x...\n"
)
DEATH = (
    "(EngineCore_DP0 pid=64) ERROR 11-24 07:10:44 [core.py:718] torch.OutOfMemoryError: CUDA out of memory."
    " Tried to allocate 270.00 MiB. GPU 0 has a total capacity of 22.05 GiB of which 217.12 MiB is free.\n"
)


class Collector:
    """A scanner that keeps what it is fed."""

    def __init__(self):
        self.data = b""

    def feed(self, data):
        self.data += data

    def close(self):
        return dict(log(), text=self.data.decode())


def runs_of(text, size=1 << 16):
    attempts = Attempts(LogScanner)
    data = text.encode()
    for start in range(0, len(data), size):
        attempts.feed(data[start : start + size])
    return attempts.close()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [0]),
        (LOADING, [1]),
        (BANNER.format(1, 10) + LOADING + DEATH, [3]),
        (BANNER.format(1, 10) + DEATH + BANNER.format(1, 12) + LOADING, [2, 2]),
        (BANNER.format(1, 10) + DEATH + BANNER.format(1, 12) + DEATH + BANNER.format(1, 14), [2, 2, 1]),
        (LOGO.format(10) + DEATH + LOGO.format(12) + LOADING, [2, 2]),
        # No death in between: several API servers, or pods thrown together. That is not unambiguous.
        (BANNER.format(1, 10) + LOADING + BANNER.format(2, 10) + LOADING, [4]),
        # What comes before the first banner is a run of its own only when it shows an end.
        (LOADING + BANNER.format(1, 10), [2]),
        (DEATH + BANNER.format(1, 10), [2]),
        (
            "RuntimeError: Engine core initialization failed. See root cause above.\n" + BANNER.format(1, 10),
            [1, 1],
        ),
    ],
)
def test_runs_in_one_log(text, lines):
    assert [excerpt["lines"] for excerpt in runs_of(text)] == lines


@given(st.integers(min_value=1, max_value=200))
def test_runs_do_not_depend_on_the_size_of_chunks(size):
    text = BANNER.format(1, 10) + DEATH + BANNER.format(1, 12) + LOADING + DEATH
    found = runs_of(text, size)
    assert [excerpt["lines"] for excerpt in found] == [2, 3]
    assert [excerpt["bytes"] for excerpt in found] == [len(BANNER.format(1, 10)) + len(DEATH), len(text) - len(BANNER.format(1, 10)) - len(DEATH)]  # fmt: skip


def test_joined_parts_go_on_counting():
    earlier, later = runs_of(BANNER.format(1, 10) + LOADING)[0], runs_of(LOADING + DEATH)[0]
    whole = joined(earlier, later)
    assert whole["lines"] == 4
    assert whole["first_error"]["line"] == 4
    assert [line["line"] for line in whole["markers"]] == [line["line"] for line in earlier["markers"]] + [
        line["line"] + 2 for line in later["markers"]
    ]
    assert [line["line"] for line in log_lines(whole)] == [1, 2, 3, 4]
    twice = joined(runs_of("an ordinary line\n" + DEATH)[0], runs_of("another\n" + DEATH)[0])
    assert [[near["line"] for near in error["context"]] for error in twice["errors"]] == [[], []]
    more = joined(earlier, runs_of(LOADING + "an ordinary line\n")[0])
    assert [line["line"] for line in more["tail"]] == [4]


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_lines_of_chunks_are_those_of_the_whole(chunks):
    whole = b"".join(chunks).decode("utf-8", "replace")
    expected = [line.rstrip("\r") for line in whole.split("\n")]
    if expected[-1] == "" or b"".join(chunks).endswith(b"\n"):
        expected.pop()
    found = list(lines_of(chunks))
    assert [line.replace("\ufffd", "") for line in found if line] == [
        line.replace("\ufffd", "") for line in expected if line
    ]


@pytest.mark.parametrize(
    ("head", "is_export"),
    [
        (b'{"message":"m","podName":"p-0","containerName":"c"}\n', True),
        (b'{"timestamp":"t","level":"INFO","message":"own record"}\n', False),
        (b"[pod/p-0/c] INFO one\n[pod/p-0/c] INFO two\n", True),
        (b"INFO 11-24 07:10:04 [core.py:71] one\n", False),
        (b"", False),
    ],
)
def test_line_reader(head, is_export):
    assert (line_reader(head) is not None) is is_export


def test_the_kernels_records_go_with_the_one_before():
    lines = [
        '{"MESSAGE": "early", "_TRANSPORT": "kernel"}',
        '{"MESSAGE": "one", "_SYSTEMD_UNIT": "vllm.service"}',
        '{"MESSAGE": "Out of memory", "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1795504304000001"}',
    ]
    found = list(exported(lines, line_reader("\n".join([*lines, ""]).encode())))
    assert [(item["pod"], item["container"], item["message"]) for item in found] == [
        (None, None, "kernel: early"),
        ("vllm", "vllm", "one"),
        ("vllm", "vllm", "kernel: Out of memory"),
    ]
    assert found[-1]["time"] == "2026-11-24T07:11:44.000001000Z"


def test_head_lines_are_whole():
    assert head_lines(b"one\r\ntwo\nthr") == ["one", "two"]
    assert head_lines(b"one") == ["one"]


def test_records_go_to_their_sources():
    streams = Streams(Collector)
    for pod, message in (("a-0", "one"), ("b-0", "two"), ("a-0", "three\nfour")):
        streams.record(log_exports.record(message, "2026-11-24T07:00:00Z", pod, "llm", "vllm", "node-1"))
    found = streams.close()
    assert [source for source, _runs in found] == [("llm", "a-0", "vllm", None), ("llm", "b-0", "vllm", None)]
    assert found[0][1][0]["text"].splitlines() == [
        "2026-11-24T07:00:00Z one",
        "2026-11-24T07:00:00Z three",
        "2026-11-24T07:00:00Z four",
    ]
    assert streams.nodes == {("llm", "a-0"): "node-1", ("llm", "b-0"): "node-1"}


@pytest.mark.parametrize("newest_first", [False, True])
def test_large_exports_are_not_held(monkeypatch, newest_first):
    monkeypatch.setattr(log_streams, "_HELD", 1000)
    records = [
        log_exports.record(f"line {number:04}", f"2026-11-24T07:00:{number // 60:02}.{number:09}Z", "a-0")
        for number in range(400)
    ]
    streams = Streams(Collector)
    cut = streams.records(reversed(records) if newest_first else records)
    ((_source, (excerpt,)),) = streams.close()
    lines = [line.split(" ", 1)[1] for line in excerpt["text"].splitlines()]
    if newest_first:
        assert "only the newest" in cut
        assert lines[-1] == "line 0399"
        assert 80 < len(lines) < 120
        assert lines == sorted(lines)
    else:
        assert cut is None
        assert lines == [record["message"] for record in records]


def test_too_many_sources_are_refused(monkeypatch):
    monkeypatch.setattr(log_streams, "_MOST_STREAMS", 3)
    streams = Streams(Collector)
    for number in range(3):
        streams.of("llm", f"pod-{number}")
    with pytest.raises(DocumentError, match="more than 3 containers"):
        streams.of("llm", "pod-3")


DUMP = """\
==== START logs for container fetch of pod llm/a-0 ====
fetching
==== END logs for container fetch of pod llm/a-0 ====
==== START logs for container vllm of pod llm/a-0 ====
one
two
==== END logs for container vllm of pod llm/a-0 ====
==== START logs for container proxy of pod llm/a-0 ====
Request log error: container "proxy" in pod "a-0" is waiting to start: PodInitializing
==== END logs for container proxy of pod llm/a-0 ====
==== START logs for container quiet of pod llm/a-0 ====
==== END logs for container quiet of pod llm/a-0 ====
"""


def test_sections_of_a_dump():
    streams = Streams(Collector)
    blocks, refused = read_text([DUMP.encode()], streams)
    assert blocks == []
    assert refused == [
        (("llm", "a-0", "proxy", None), 'container "proxy" in pod "a-0" is waiting to start: PodInitializing')
    ]
    assert {source[2]: runs[0]["text"] for source, runs in streams.close()} == {
        "fetch": "fetching\n",
        "vllm": "one\ntwo\n",
        "quiet": "",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'Error from server (BadRequest): previous terminated container "vllm" in pod "a-0" not found\n',
            'previous terminated container "vllm" in pod "a-0" not found',
        ),
        (
            "unable to retrieve container logs for containerd://1a2b",
            "unable to retrieve container logs for containerd://1a2b",
        ),
    ],
)
def test_a_refusal_in_place_of_a_log(text, reason):
    streams = Streams(Collector)
    assert read_text([text.encode()], streams)[1] == [((None,) * 4, reason)]
    assert not streams


def test_describe_text_is_taken_out_of_the_log():
    text = (
        "one\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\ntwo\n"
    )
    streams = Streams(Collector)
    blocks, _refused = read_text([text[:20].encode(), text[20:].encode()], streams)
    assert len(blocks) == 1
    assert (
        describe.parse(blocks[0])[0]["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"]
        == 137
    )
    ((_source, (excerpt,)),) = streams.close()
    assert excerpt["text"] == "one\ntwo\n"


def test_descriptions_alone_need_no_scanner():
    blocks, _refused = read_text([b"Name:  a\nNamespace:  b\nStatus:  Failed\n"], Nowhere())
    assert [block[0] for block in blocks] == ["Name:  a"]
