# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams, directories, tar and zip: what is read, what is refused, what is named."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.vllm_runbook.oom.plugins.module_utils.documents import DocumentError
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence import archives
from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.archives import (
    LIMITS,
    Folder,
    Reader,
    Tar,
    Zip,
    safe_name,
    spool,
)

TEXT = b"".join(b"INFO 11-24 07:10:%02d [core.py:1] line %d\n" % (n % 60, n) for n in range(3000))


def read(data, limits=LIMITS):
    reader = Reader(io.BytesIO(data), "it", limits)
    return b"".join(reader.chunks()), reader


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (TEXT, TEXT),
        (gzip.compress(TEXT), TEXT),
        (gzip.compress(gzip.compress(TEXT)), TEXT),
        (gzip.compress(b"one\n") + gzip.compress(b"two\n"), b"one\ntwo\n"),
        (gzip.compress(b"one\n") + b"\0" * 40, b"one\n"),
        (b"\xef\xbb\xbfone\n", b"one\n"),
        ("one\r\nzwei ü\r\n".encode("utf-16"), "one\r\nzwei ü\r\n".encode()),
        (b"\xfe\xff" + "one\n".encode("utf-16-be"), b"one\n"),
    ],
)
def test_reader_gives_the_text_whatever_its_packing(data, expected):
    assert read(data)[0] == expected


@given(st.binary(max_size=400), st.integers(min_value=0, max_value=60))
def test_truncated_gzip_keeps_what_came_before_and_says_so(data, missing):
    data = b"log " + data
    packed = gzip.compress(data, mtime=0)
    assume(len(packed) - missing > 2)
    kept, reader = read(packed[: len(packed) - missing])
    assert data.startswith(kept)
    if missing:
        assert "truncated" in reader.problem
    else:
        assert kept == data
        assert reader.problem is None


def test_damaged_gzip_ends_where_it_breaks():
    # A stored block whose length and its complement disagree after the first, whole block.
    packed = zlib.compressobj(0, wbits=31)
    good = packed.compress(TEXT) + packed.flush(zlib.Z_FULL_FLUSH)
    kept, reader = read(good + b"\x00\x05\x00\x00\x00" + b"x" * 40)
    assert kept == TEXT
    assert "damaged" in reader.problem


@pytest.mark.parametrize(
    ("magic", "command"),
    [(b"\x28\xb5\x2f\xfd", "unzstd"), (b"\xfd7zXZ\x00", "unxz"), (b"BZh91AY", "bunzip2")],
)
def test_other_compressions_are_named_with_their_tool(magic, command):
    with pytest.raises(DocumentError, match=command):
        Reader(io.BytesIO(magic + b"\0" * 100), "log.x")


def test_decompression_bomb_is_refused():
    limits = LIMITS._replace(ratio_free=1 << 20, ratio=100)
    with pytest.raises(DocumentError, match="decompression bomb"):
        read(gzip.compress(b"\0" * (8 << 20)), limits)


def test_one_document_has_a_limit():
    reader = Reader(io.BytesIO(b"a: 1\n" * 1000), "pods.yaml", LIMITS._replace(document=1000))
    with pytest.raises(DocumentError, match=r"pods\.yaml: larger than 1000 bytes"):
        reader.document()


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a/b.log", "a/b.log"),
        ("./a//b.log", "a/b.log"),
        ("../b.log", None),
        ("a/../../b.log", None),
        ("/etc/passwd", None),
        ("a\\..\\..\\b", None),
        ("C:/x", None),
        ("C:\\x", None),
    ],
)
def test_safe_name(name, safe):
    assert safe_name(name) == safe


@given(st.text(alphabet="ab./\\:C", max_size=12))
def test_safe_names_stay_inside(name):
    found = safe_name(name)
    if found is not None:
        root = os.path.join(os.sep, "root")
        assert os.path.normpath(os.path.join(root, found)).startswith(root)


def tar_of(*members):
    """A tar file (bytes) of (name, data or TarInfo type, link target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content, target in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes) and len(content) != 1:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = content, target
                archive.addfile(member)
    return out.getvalue()


def walk(tree):
    return {entry.name: entry.open().read() for entry in tree.entries()}


def opened(data):
    return lambda: io.BytesIO(data)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_tar_is_walked_without_unpacking(pack):
    data = pack(tar_of(("./b/one.log", b"one\n", None), ("b/two.log", b"two\n", None)))
    tree = Tar("b.tar", opened(data))
    assert walk(tree) == {"b/one.log": b"one\n", "b/two.log": b"two\n"}
    assert walk(tree) == {"b/one.log": b"one\n", "b/two.log": b"two\n"}
    assert tree.problems == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../x"])
def test_archives_that_point_outside_are_refused(name):
    with pytest.raises(DocumentError, match="points outside"):
        walk(Tar("b.tar", opened(tar_of((name, b"hi", None)))))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "hi")
    with pytest.raises(DocumentError, match="points outside"):
        walk(Zip("b.zip", opened(out.getvalue())))


def test_links_and_devices_of_a_tar_are_skipped_and_named():
    data = tar_of(
        ("b/vllm.log", b"one\n", None),
        ("b/inside", tarfile.SYMTYPE, "vllm.log"),
        ("b/outside", tarfile.SYMTYPE, "../../etc/shadow"),
        ("b/absolute", tarfile.SYMTYPE, "/etc/shadow"),
        ("b/hard", tarfile.LNKTYPE, "../x"),
        ("b/null", tarfile.CHRTYPE, ""),
        ("b/pipe", tarfile.FIFOTYPE, ""),
    )
    tree = Tar("b.tar", opened(data))
    assert walk(tree) == {"b/vllm.log": b"one\n"}
    assert {entry["object"]: entry["reason"] for entry in tree.problems} == {
        "b/outside": "a link that leaves the archive, not followed",
        "b/absolute": "a link that leaves the archive, not followed",
        "b/hard": "a link that leaves the archive, not followed",
        "b/null": "a device in an archive, not read",
        "b/pipe": "a pipe in an archive, not read",
    }


def test_truncated_tar_keeps_what_came_before():
    data = gzip.compress(tar_of(("a.log", b"one\n", None), ("b.log", os.urandom(60_000), None)))
    tree = Tar("b.tar.gz", opened(data[: len(data) // 2]))
    names = []
    for entry in tree.entries():
        names.append(entry.name)
        if entry.name == "a.log":
            assert entry.open().read() == b"one\n"
    assert names[0] == "a.log"
    assert "truncated" in tree.problems[0]["reason"]


def test_zip_with_a_link_and_a_bomb():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one.log", "one\n")
        link = zipfile.ZipInfo("a/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/shadow")
    tree = Zip("b.zip", opened(out.getvalue()))
    assert walk(tree) == {"a/one.log": b"one\n"}
    assert [entry["object"] for entry in tree.problems] == ["a/link"]
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/zeros", b"\0" * (4 << 20))
    with pytest.raises(DocumentError, match="decompression bomb"):
        walk(Zip("b.zip", opened(out.getvalue()), LIMITS._replace(ratio_free=1 << 20, ratio=100)))


def test_folder_skips_links_that_leave_it_and_pipes(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/one.log").write_text("one\n")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "b/out").symlink_to(tmp_path / "secret")
    (tmp_path / "b/outdir").symlink_to(tmp_path)
    (tmp_path / "b/in").symlink_to("one.log")
    (tmp_path / "b/gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "b/pipe")
    tree = Folder(str(tmp_path / "b"), LIMITS)
    assert walk(tree) == {"one.log": b"one\n"}
    assert {entry["object"]: entry["reason"] for entry in tree.problems} == {
        "out": "a link that leaves the directory, not followed",
        "outdir": "a link that leaves the directory, not followed",
        "pipe": "neither a file nor a directory",
    }


@pytest.mark.parametrize("limits", [LIMITS._replace(members=2), LIMITS._replace(total=8)])
def test_trees_have_limits(tmp_path, limits):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("1234")
    with pytest.raises(DocumentError, match="holds more than"):
        list(Folder(str(tmp_path), limits).entries())


def test_spool_gives_a_pipe_twice_and_has_a_limit():
    copy = spool(io.BytesIO(TEXT), "standard input")
    assert copy.read() == TEXT
    copy.seek(0)
    assert copy.read(4) == TEXT[:4]
    with pytest.raises(DocumentError, match="standard input: larger than"):
        spool(io.BytesIO(TEXT), "standard input", LIMITS._replace(total=1000))


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (TEXT, False),
        ("ü€ 漢字 \x1b[32mINFO\x1b[0m\n".encode() * 10, False),
        (b"some log\n" * 50 + b"\0" * 4, False),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 60, True),
        (bytes(range(256)) * 8, True),
    ],
)
def test_is_binary(data, binary):
    assert Reader(io.BytesIO(data), "it").is_binary() is binary


def test_a_reader_never_holds_a_large_log():
    class Endless:
        """A gigabyte of log lines, made while it is read."""

        left = 1 << 30

        def read(self, size):
            size = min(size, self.left)
            self.left -= size
            return b"x" * size

    total = sum(len(data) for data in Reader(Endless(), "big").chunks())
    assert total == 1 << 30
    assert archives.CHUNK < 1 << 20
