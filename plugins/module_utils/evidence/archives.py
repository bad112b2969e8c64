# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files as somebody sent them: a stream, a directory, a tar or a zip, each read as a stream and within limits.

Nothing is ever unpacked onto the disk. A member of an archive that points outside of it (absolute, ``..``)
makes the whole archive refused; links, devices and the like are skipped and named.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import codecs
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

from ..documents import DocumentError, unreadable
from ..quantities import GIB, MIB, show_bytes

CHUNK = 256 * 1024
HEAD = 64 * 1024
TAR_BLOCK = 512


class Limits(NamedTuple):
    """What a bundle may hold.

    members: files of a tree; total: bytes of a tree, unpacked; document: bytes of one JSON or YAML file;
    ratio: unpacked bytes for one packed byte, once more than ratio_free bytes came out (deflate ends at about
    1030; ordinary serving logs reach 5 to 60, one line repeated over and over about 300).
    """

    members: int = 200_000
    total: int = 16 * GIB
    document: int = 128 * MIB
    ratio: int = 400
    ratio_free: int = 256 * MIB


LIMITS = Limits()


class Entry(NamedTuple):
    """A file of a tree. ``open`` gives a binary stream that is valid until the next entry is asked for."""

    name: str
    size: int
    open: Callable[[], Any]


# First bytes -> what it is, for the compressions that are not read here.
_OTHER_COMPRESSIONS = (
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"\xfd7zXZ\x00", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z", "7z x"),
    (b"Rar!", "rar", "unrar x"),
)
_GZIP = b"\x1f\x8b"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
# Control characters that no log, JSON or YAML holds in number (a log may hold a few: escape, form feed, NUL).
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b\b"))


def read_errors():
    """What reading a stream of this room can raise besides DocumentError, for ``except read_errors()``.

    Like everything here about tar and zip it imports their modules only when they are needed: most bundles are neither.
    """
    import tarfile
    import zipfile

    return (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


class Joined:
    """``head`` again, then the rest of ``stream``."""

    def __init__(self, head, stream):
        self._head = head
        self._stream = stream

    def read(self, size=-1):
        if size is None or size < 0:
            data, self._head = self._head + self._stream.read(), b""
        elif self._head:
            data, self._head = self._head[:size], self._head[size:]
        else:
            data = self._stream.read(size)
        return data


class _Counted:
    """``stream``, and how many bytes it gave."""

    def __init__(self, stream):
        self._stream = stream
        self.size = 0

    def read(self, size=-1):
        data = self._stream.read(size)
        self.size += len(data)
        return data


class _Gunzip:
    """The unpacked bytes of a gzip stream (also of several members in a row).

    A truncated or damaged stream ends where it breaks, and ``problem`` says so: what came before is kept.
    """

    def __init__(self, stream, name, limits):
        self._stream = stream
        self._name = name
        self._limits = limits
        self._inflate = zlib.decompressobj(wbits=31)
        self._packed = 0
        self._unpacked = 0
        self._waiting = b""
        self._ended = False
        self.problem = None

    def read(self, size=-1):
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(CHUNK), b""))
        out = b""
        while not out and not self._ended and size:
            out = self._more(size)
        return out

    def _more(self, size):
        if not self._waiting:
            self._waiting = self._stream.read(CHUNK)
            self._packed += len(self._waiting)
            if not self._waiting:
                return self._end()
        if self._inflate.eof:
            # Zero padding or anything that is no further gzip member ends the stream, as gzip(1) does.
            if not self._waiting.startswith(_GZIP):
                self._ended = True
                return b""
            self._inflate = zlib.decompressobj(wbits=31)
        before = self._inflate.copy()
        try:
            out = self._inflate.decompress(self._waiting, size)
        except zlib.error as error:
            out = _up_to_the_damage(before, self._waiting)
            self._unpacked += len(out)
            self.problem = f"gzip data is damaged after {show_bytes(self._unpacked)} ({error})"
            self._ended = True
            return out
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._unpacked += len(out)
        self._check()
        return out

    def _end(self):
        self._ended = True
        if not self._inflate.eof:
            self.problem = f"gzip data ends early, after {show_bytes(self._unpacked)} (truncated)"
        return b""

    def _check(self):
        limits = self._limits
        if self._unpacked > limits.total or (
            self._unpacked > limits.ratio_free and self._unpacked > limits.ratio * max(self._packed, 1)
        ):
            raise DocumentError(
                f"{self._name}: unpacks to more than {show_bytes(self._unpacked)} from {show_bytes(self._packed)},"
                " refused as a decompression bomb: unpack it yourself and give the file that matters"
            )


def _up_to_the_damage(inflate, packed):
    """What comes out of ``packed`` before the byte at which unpacking fails."""
    out = b""
    for position in range(len(packed)):
        try:
            out += inflate.decompress(packed[position : position + 1])
        except zlib.error:
            break
    return out


class _Recoded:
    """A UTF-16 stream (what PowerShell's ``>`` writes) as UTF-8."""

    def __init__(self, stream, encoding):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._out = b""
        self._ended = False

    def read(self, size=-1):
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(CHUNK), b""))
        while not self._out and not self._ended:
            data = self._stream.read(CHUNK)
            self._ended = not data
            text = self._decoder.decode(data, final=self._ended)
            self._out = text.replace("\ufeff", "").encode("utf-8", "replace")
        out, self._out = self._out[:size], self._out[size:]
        return out


class Reader:
    """A byte stream with a look at its head, unpacked (gzip) and recoded (UTF-16) when its first bytes say so.

    head: the first bytes (at most HEAD); name: for messages; ``problem``: None, or why it ended early.
    Raises DocumentError for a compression that is not read here.
    """

    def __init__(self, stream, name, limits=LIMITS):
        self.name = name
        self._limits = limits
        self._packings: list[_Gunzip] = []
        self._stream = stream
        self.head = self._peek()
        while self.head.startswith(_GZIP):
            packed = _Gunzip(Joined(self.head, self._stream), name, limits)
            if len(self._packings) == 3:
                raise DocumentError(f"{name}: gzip inside gzip more than three times: unpack it yourself")
            self._packings.append(packed)
            self._stream = packed
            self.head = self._peek()
        for magic, kind, command in _OTHER_COMPRESSIONS:
            if self.head.startswith(magic):
                raise DocumentError(
                    f"{name}: is {kind} compressed, which is not read here: unpack it with {command}"
                )
        encoding = _UTF16.get(self.head[:2])
        if encoding:
            self._stream = _Recoded(Joined(self.head, self._stream), encoding)
            self.head = self._peek()
        elif self.head.startswith(codecs.BOM_UTF8):
            self.head = self.head[len(codecs.BOM_UTF8) :]

    @property
    def packed(self):
        return bool(self._packings)

    @property
    def problem(self):
        return next((packing.problem for packing in self._packings if packing.problem), None)

    def _peek(self):
        head = b""
        while len(head) < HEAD:
            data = self._stream.read(HEAD - len(head))
            if not data:
                break
            head += data
        return head

    def stream(self):
        """Head and rest as one stream. Call once."""
        return Joined(self.head, self._stream)

    def chunks(self):
        """Head and rest in pieces. Call once."""
        if self.head:
            yield self.head
        while True:
            data = self._stream.read(CHUNK)
            if not data:
                return
            yield data

    def document(self):
        """All of it as bytes; DocumentError when it is larger than one document may be. Call once."""
        parts, size = [], 0
        for data in self.chunks():
            parts.append(data)
            size += len(data)
            if size > self._limits.document:
                raise DocumentError(
                    f"{self.name}: larger than {show_bytes(self._limits.document)}, the limit for one JSON or"
                    " YAML file: cut it down to the pods that matter"
                )
        return b"".join(parts)

    def is_binary(self):
        """Whether this is no text: more than one control character in fifty, or text that no encoding explains."""
        sample = self.head[:8192]
        controls = len(sample) - len(sample.translate(None, _CONTROLS))
        return controls * 50 > len(sample)

    def is_tar(self):
        return self.head[257:262] == b"ustar" and len(self.head) >= TAR_BLOCK

    def is_zip(self):
        return self.head.startswith(_ZIP)


def safe_name(name):
    """``name`` of an archive member as a relative POSIX path, or None when it points outside of the archive."""
    name = name.replace("\\", "/")
    if name.startswith("/") or name[1:3] == ":/":
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)


class _Tree:
    """Files under one root. ``entries`` may be walked several times; ``problems`` holds what was not read."""

    def __init__(self, name, limits):
        self.name = name
        self.limits = limits
        self._problems: dict[str, dict[str, Any]] = {}

    @property
    def problems(self):
        """``unreadable`` entries, one an object."""
        return [self._problems[key] for key in sorted(self._problems)]

    def skip(self, name, reason, needs=None):
        self._problems[name] = unreadable("bundle", name, reason, needs)

    def entries(self) -> Iterator[Entry]:
        """Files in a stable order, within the limits; DocumentError when a limit is passed."""
        total = 0
        for members, entry in enumerate(self._files(), start=1):
            total += entry.size
            if members > self.limits.members or total > self.limits.total:
                raise DocumentError(
                    f"{self.name}: holds more than {self.limits.members} files or {show_bytes(self.limits.total)}:"
                    " give the part of it that matters (a namespace's folder)"
                )
            yield entry

    def _files(self) -> Iterator[Entry]:
        raise NotImplementedError

    def _refuse(self, member):
        raise DocumentError(
            f"{self.name}: member {member!r} points outside of the archive, refused: look into it, unpack it"
            " yourself and give the directory"
        )


class Folder(_Tree):
    """A directory. Links that leave it are not followed."""

    def _files(self):
        root = os.path.realpath(self.name)
        for folder, folders, files in os.walk(self.name, onerror=self._not_listed):
            folders.sort()
            for name in [name for name in folders if os.path.islink(os.path.join(folder, name))]:
                self._linked(root, os.path.join(folder, name))
            for name in sorted(files):
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, self.name).replace(os.sep, "/")
                try:
                    if os.path.islink(path):
                        self._linked(root, path)
                        continue
                    status = os.stat(path)
                except OSError as error:
                    self.skip(relative, error.strerror or str(error))
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield Entry(relative, status.st_size, partial(open, path, "rb"))
                else:
                    self.skip(relative, "neither a file nor a directory")

    def _linked(self, root, path):
        target = os.path.realpath(path)
        if target != root and not target.startswith(root + os.sep):
            relative = os.path.relpath(path, self.name).replace(os.sep, "/")
            self.skip(relative, "a link that leaves the directory, not followed")

    def _not_listed(self, error):
        relative = os.path.relpath(error.filename or self.name, self.name).replace(os.sep, "/")
        self.skip(relative, error.strerror or str(error), f"permission to read {error.filename}")


# TarInfo's tests for a member that is no file.
_SPECIAL = (
    ("ischr", "a device"),
    ("isblk", "a device"),
    ("isfifo", "a pipe"),
)


class Tar(_Tree):
    """A tar file, plain or gzip. ``opened``: gives the bytes of the tar file anew for each walk."""

    def __init__(self, name, opened, limits=LIMITS):
        super().__init__(name, limits)
        self._opened = opened

    def _files(self):
        import tarfile

        with self._opened() as raw:
            reader = Reader(raw, self.name, self.limits)
            counted: Any = _Counted(reader.stream())
            end = 0
            try:
                with tarfile.open(fileobj=counted, mode="r|", errorlevel=0) as archive:
                    for member in archive:
                        end = member.offset_data + (member.size if member.isreg() else 0)
                        yield from self._member(archive, member)
            except read_errors() as error:
                self.skip(self.name, f"the archive ends early or is damaged ({reader.problem or error})")
            # tarfile takes the end of a truncated stream for the end of the archive.
            if reader.problem or counted.size < end:
                self.skip(self.name, reader.problem or "the archive ends early, inside of a member")

    def _member(self, archive, member):
        name = safe_name(member.name)
        if name is None:
            self._refuse(member.name)
        if member.islnk() or member.issym():
            self._link(member, name)
        elif member.isreg() and not member.issparse():
            yield Entry(name, member.size, lambda: archive.extractfile(member))
        elif not member.isdir():
            what = next((words for test, words in _SPECIAL if getattr(member, test)()), "no ordinary file")
            self.skip(name, f"{what} in an archive, not read")

    def _link(self, member, name):
        # A hard link names its target from the archive's root, a symbolic link from its own folder.
        base = "" if member.islnk() else os.path.dirname(name)
        target = os.path.normpath(os.path.join(base, member.linkname)).replace(os.sep, "/")
        if safe_name(target) is None:
            self.skip(name, "a link that leaves the archive, not followed")


class Zip(_Tree):
    """A zip file. ``opened``: gives the bytes of the zip file anew for each walk."""

    def __init__(self, name, opened, limits=LIMITS):
        super().__init__(name, limits)
        self._opened = opened

    def _files(self):
        import zipfile

        try:
            with self._opened() as raw, zipfile.ZipFile(raw) as archive:
                for member in archive.infolist():
                    yield from self._member(archive, member)
        except read_errors() as error:
            self.skip(self.name, f"the archive ends early or is damaged ({error})")

    def _member(self, archive, member):
        name = safe_name(member.filename)
        if name is None:
            self._refuse(member.filename)
        if member.is_dir():
            return
        limits = self.limits
        if member.file_size > limits.ratio_free and member.file_size > limits.ratio * max(
            member.compress_size, 1
        ):
            raise DocumentError(
                f"{self.name}: member {member.filename!r} unpacks to {show_bytes(member.file_size)} from"
                f" {show_bytes(member.compress_size)}, refused as a decompression bomb: unpack it yourself and"
                " give the file that matters"
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            self.skip(name, "a link in an archive, not followed")
        elif member.flag_bits & 1:
            self.skip(name, "encrypted", "the archive unpacked with its password")
        else:
            yield Entry(name, member.file_size, lambda: archive.open(member))


def spool(stream, name, limits=LIMITS) -> IO[bytes]:
    """``stream`` (a pipe) as a file that can be read twice; it has no name on the disk and goes with its handle."""
    import tempfile

    copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it outlives this function
    size = 0
    for data in iter(lambda: stream.read(CHUNK), b""):
        size += len(data)
        if size > limits.total:
            copy.close()
            raise DocumentError(
                f"{name}: larger than {show_bytes(limits.total)}: give the part of it that matters"
            )
        copy.write(data)
    copy.seek(0)
    return copy
