"""Reader of .pb: one ONNX TensorProto a file.

Listed by walking the wire format, so that no values are read before they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from bisect_align.dumps import buffers
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Piece
from bisect_align.errors import DumpError

VARINT, LENGTH = 0, 2
DIMS, DATA_TYPE, NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 8, 9, 13, 14
FIELDS = {field.number: field for field in onnx.TensorProto.DESCRIPTOR.fields}
FOREIGN = "is no TensorProto (a model, or another kind of message?)"
LONGEST_NAME = 1 << 16


def piece(path: Path) -> Piece:
    """The tensor of the file, its name as written inside.

    Raises DumpError for anything but a TensorProto that holds its own values.
    """
    held = buffers.size_of(path)
    if held == 0:
        raise DumpError("is empty", where=str(path))
    dims: list[int] = []
    code, name, raw, values = 0, "", None, 0
    data = buffers.window(path, 0, held)
    view = data.data
    for number, wire, value, begin in _fields(view):
        if number == DIMS:
            dims += [value] if wire == VARINT else list(_varints(view[begin : begin + value]))
        elif number == DATA_TYPE:
            code = value
        elif number == NAME:
            name = bytes(data[begin : begin + min(value, LONGEST_NAME)]).decode("utf-8", "backslashreplace")
        elif number == RAW_DATA:
            raw = value
        elif number == EXTERNAL_DATA or (number == DATA_LOCATION and value):
            raise DumpError("keeps its values in another file, which is not followed", where=str(path))
        else:
            values += value if wire == LENGTH else 1
    if code == onnx.TensorProto.UNDEFINED or code not in onnx.TensorProto.DataType.values():
        raise DumpError(FOREIGN if not code else f"has the unknown element type {code}", where=str(path))
    shape = buffers.checked_shape([size - (1 << 64) if size >> 63 else size for size in dims])
    text = code == onnx.TensorProto.STRING
    dtype = None if text else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    if dtype is not None and raw is not None:
        _check_raw(dtype.name, code, shape, raw)
    elif math.prod(shape) > max(values, 1) * 8:
        raise DumpError(f"holds {values} bytes of values, too few for {list(shape)}", where=str(path))
    return Piece(path, "pb", held, partial(_load, path), dtype, shape, name=name or None)


def _check_raw(name: str, code: int, shape: tuple[int, ...], held: int) -> None:
    bits = PACKED.get(code, 8 * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)).itemsize)
    needed = (math.prod(shape) * bits + 7) // 8
    if held != needed:
        raise DumpError(f"holds {held} bytes of values, but {name} {list(shape)} takes {needed}")


BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}
PACKED = {code: BITS[name] for name, code in onnx.TensorProto.DataType.items() if name in BITS}
"""Bits an element of the types that lie packed in raw_data."""


def _fields(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """(field number, wire type, value or length, where a length-delimited value begins).

    Raises DumpError on any other message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        field = FIELDS.get(number)
        if field is None:
            raise DumpError(FOREIGN)
        repeated_number = field.type not in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE) and number not in (2, 14)
        if wire == VARINT and field.type in (field.TYPE_INT32, field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_ENUM):
            value, at = _varint(data, at)
            yield number, wire, value, at
        elif wire == LENGTH and (repeated_number or field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE)):
            value, at = _varint(data, at)
            if value > len(data) - at:
                raise DumpError("breaks off in the middle, or is no TensorProto")
            yield number, wire, value, at
            at += value
        elif (wire, field.type) in ((5, field.TYPE_FLOAT), (1, field.TYPE_DOUBLE)):
            yield number, wire, 0, at
            at += 4 if wire == 5 else 8
        else:
            raise DumpError(FOREIGN)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise DumpError("breaks off in the middle, or is no TensorProto")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise DumpError(FOREIGN)


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _load(path: Path, expect: Expect | None) -> Array:
    piece(path)  # the file may be another by now
    try:
        tensor = onnx.TensorProto.FromString(buffers.whole(path))
        values = numpy_helper.to_array(tensor)
        return _text(values) if values.dtype.kind == "O" else values
    except DumpError:
        raise
    except Exception as error:  # protobuf and numpy answer with many kinds of error to damaged values
        raise DumpError("is a damaged TensorProto", where=str(path)) from error


def _text(values: Array) -> Array:
    """Strings as numpy strings, unless the padding to the longest one would blow them up."""
    words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in values.ravel()]
    longest = max((len(word) for word in words), default=1)
    if longest * len(words) > 64 * (sum(map(len, words)) + 1024):
        raise DumpError("holds strings of too unequal length")
    return np.array(words, dtype=f"<U{max(longest, 1)}").reshape(values.shape)
