"""Reader of .npz: members listed from the directory and their own headers; values streamed or mapped on demand.

Member names are only names: they may hold "/" or "..", and nothing is ever unpacked to disk. A stream that is longer than its
directory entry says is refused while it is read, so what is held is bounded by what was declared, and what is declared by what
deflate can make of the bytes in the file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bisect_align.dumps import buffers, npy
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

MAGIC = b"PK\x03\x04"
MOST_EXPANSION = 1040
"""Deflate makes at most 1032 bytes of one."""
CHUNK = 1 << 20


def listing(path: Path) -> Listing:
    """All arrays of the archive, in the order they were written; members that are no arrays are left out. Raises DumpError."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        handle = path.open("rb")
    except OSError as error:
        raise buffers.unreadable(error, path) from error
    except Exception as error:  # a damaged directory raises BadZipFile, ValueError, struct.error, NotImplementedError ...
        raise DumpError("is no readable .npz archive", where=str(path)) from error
    pieces: list[Piece] = []
    faults: list[Fault] = []
    seen: set[str] = set()
    with handle:
        for member in members:
            name = member.filename.removesuffix(".npy")
            try:
                found = _listed(path, handle, member, len(pieces))
                if found is None:
                    continue
                if name in seen:
                    raise DumpError("stands twice in the archive")
            except DumpError as error:
                faults.append(Fault(path, error.what, name))
            else:
                seen.add(name)
                pieces.append(found)
    return Listing(tuple(pieces), tuple(faults))


def _listed(path: Path, handle: BinaryIO, member: zipfile.ZipInfo, order: int) -> Piece | None:
    if member.is_dir():
        return None
    _check(path, member)
    start = bytearray()
    for block in _blocks(handle, member, npy.HEAD):
        start += block
        if len(start) >= npy.HEAD:
            break
    if not member.filename.endswith(".npy") and not start.startswith(npy.MAGIC):
        return None
    found = npy.header(bytes(start[: npy.HEAD]), member.file_size)
    name = member.filename.removesuffix(".npy")
    reader = partial(_load, path, member)
    return Piece(path, "npz", found.nbytes, reader, npy.native(found.dtype), found.shape, name=name, member=name, order=order)


def _check(path: Path, member: zipfile.ZipInfo) -> None:
    if member.flag_bits & 0x1:
        raise DumpError("is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DumpError("is compressed in a way that numpy does not write")
    expansion = 1 if member.compress_type == zipfile.ZIP_STORED else MOST_EXPANSION
    if member.compress_size > buffers.size_of(path) or member.file_size > member.compress_size * expansion:
        raise DumpError(f"claims {member.file_size} bytes, more than the archive can hold")


def _begin(handle: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Where the member's stream begins: behind its local header, whose own name and extra field may differ in length."""
    try:
        handle.seek(member.header_offset)
        local = handle.read(30)
    except (OSError, ValueError, OverflowError) as error:
        raise DumpError("has a damaged place in the archive") from error
    if len(local) < 30 or not local.startswith(MAGIC):
        raise DumpError("has a damaged place in the archive")
    return member.header_offset + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")


def _blocks(handle: BinaryIO, member: zipfile.ZipInfo, step: int = CHUNK) -> Iterator[bytes]:
    """The member's bytes, at most `step` at a time and never more than declared. Raises DumpError."""
    deflated = member.compress_type == zipfile.ZIP_DEFLATED
    try:
        handle.seek(_begin(handle, member))
        left, total = member.compress_size, 0
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        pending = b""
        while True:
            if not pending and left:
                pending = handle.read(min(step, left))
                left = left - len(pending) if pending else 0
            block = engine.decompress(pending, step) if deflated else pending
            pending = engine.unconsumed_tail if deflated else b""
            if not block and not pending and not left:
                return
            total += len(block)
            if total > member.file_size:
                raise DumpError(f"is longer than the {member.file_size} bytes that the archive declares")
            yield block
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}") from error
    except zlib.error as error:
        raise DumpError("is damaged (its compressed stream breaks off)") from error


def _load(path: Path, member: zipfile.ZipInfo, expect: Expect | None) -> Array:
    data = member_bytes(path, member)
    where = f"{path}::{member.filename}"
    try:
        found = npy.header(data[: npy.HEAD].tobytes(), data.size)
        return npy.values(data[found.offset : found.offset + found.nbytes], found)
    except DumpError as error:
        raise DumpError(error.what, where=error.where or where, hint=error.hint) from error


def member_bytes(path: Path, member: zipfile.ZipInfo) -> buffers.Bytes:
    """The bytes of a member of any zip, mapped or inflated, their checksum tested. Raises DumpError."""
    where = f"{path}::{member.filename}"
    try:
        _check(path, member)
        data = _mapped(path, member) if member.compress_type == zipfile.ZIP_STORED else _inflated(path, member)
        if zlib.crc32(data.data) != member.CRC:
            raise DumpError("is damaged (its checksum differs)")
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}", where=where) from error
    except DumpError as error:
        raise DumpError(error.what, where=error.where or where, hint=error.hint) from error
    return data


def _mapped(path: Path, member: zipfile.ZipInfo) -> buffers.Bytes:
    with path.open("rb") as handle:
        begin = _begin(handle, member)
    return buffers.window(path, begin, member.file_size)


def _inflated(path: Path, member: zipfile.ZipInfo) -> buffers.Bytes:
    data = np.empty(member.file_size, np.uint8)
    filled = 0
    with path.open("rb") as handle:
        for block in _blocks(handle, member):
            data[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
            filled += len(block)
    if filled != member.file_size:
        raise DumpError(f"holds {filled} of the {member.file_size} bytes that the archive declares")
    return data
