"""Values on their way between numpy and ONNX Runtime, the types that numpy does not have included.

ONNX Runtime's own conversion stops at bfloat16, most float8 kinds and the packed integers, and hands float8e4m3fn out as plain
bytes. Such tensors therefore stay `OrtValue`s between nodes and are copied out byte by byte. Everything else is carried as the
Python object that `InferenceSession.run` gives: arrays (of objects, for strings), lists for sequences, None for empty optionals.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnxruntime import OrtValue

from bisect_align.golden.protocol import Array, Unavailable
from bisect_align.model.dtypes import elem_type, is_float, is_packed, numpy_dtype

# Eigen's reductions begin with scalar steps up to the first aligned address: where a buffer starts changes the last bits of a
# ReduceSum. ONNX Runtime's own buffers start at multiples of this, so what is fed has to as well.
_ALIGNMENT = 64

_ELEMENTS = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}
_NAMES = {number: name for name, number in _ELEMENTS.items()}

STRINGS = "tensor(string)"

_OTHER_KINDS = {"seq": "a sequence", "optional": "an optional", "map": "a map", "sparse_tensor": "a sparse tensor"}


@dataclass(frozen=True, slots=True)
class Carried:
    """What one node made and others read. data: as `InferenceSession.run` takes it; type: as ONNX Runtime spells it."""

    data: Any
    type: str
    nbytes: int

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy dtype of a tensor; None for everything else."""
        return dtype_of(self.type)


def element_of(type_name: str) -> int | None:
    """The ONNX element type in "tensor(...)"; None where this is no tensor, or its element type is not known here."""
    kind, _, inner = type_name.partition("(")
    return _ELEMENTS.get(inner[:-1]) if kind == "tensor" else None


def dtype_of(type_name: str) -> np.dtype[Any] | None:
    """The numpy dtype that stands for "tensor(...)"; None where this is no tensor, or one of an unknown element type."""
    element = element_of(type_name)
    return None if element is None else numpy_dtype(element)


def is_odd(type_name: str) -> bool:
    """True for tensors of an element type that plain numpy does not have."""
    dtype = dtype_of(type_name)
    return dtype is not None and dtype.isbuiltin != 1


def type_proto(type_name: str) -> onnx.TypeProto:
    """ONNX Runtime's spelling of a type, such as "seq(tensor(float))", as a protobuf type without a shape. Raises ValueError."""
    kind, _, inner = type_name.partition("(")
    inner = inner[:-1]
    if kind == "tensor" and inner in _ELEMENTS:
        return onnx.helper.make_tensor_type_proto(_ELEMENTS[inner], None)
    if kind == "seq":
        return onnx.helper.make_sequence_type_proto(type_proto(inner))
    if kind == "optional":
        return onnx.helper.make_optional_type_proto(type_proto(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return onnx.helper.make_map_type_proto(_ELEMENTS[key], type_proto(value.strip()))
    raise ValueError(f"values of type {type_name} cannot be handed from one node to the next")


def carry(array: Array) -> Carried:
    """An array from outside, made fit for ONNX Runtime: own byte order, contiguous, aligned, strings as objects.

    The array itself is carried where it fits already. Raises ValueError for a dtype that ONNX does not have.
    """
    array = np.asarray(array)
    element = elem_type(array.dtype)
    name = f"tensor({_NAMES[element]})"
    if name == STRINGS:
        return _carry_strings(array)
    array = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    if is_odd(name):
        return Carried(_odd_value(array, element), name, array.nbytes)
    return Carried(aligned(array), name, array.nbytes)


def aligned(array: Array) -> Array:
    """The contiguous array, copied where its memory does not start as ONNX Runtime's own buffers do."""
    if array.size == 0 or (array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous):
        return array
    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy: Array = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def received(data: Any, type_name: str) -> Carried:
    """What a session gave for an output of this type."""
    if isinstance(data, OrtValue):
        if is_odd(type_name):
            return Carried(data, type_name, data.tensor_size_in_bytes())
        data = data.numpy()
    if isinstance(data, np.ndarray):
        # A reader that writes into it would change what later nodes are fed.
        data.setflags(write=False)
    return Carried(data, type_name, _size(data))


def to_ort(carried: Carried) -> OrtValue:
    """The value as an OrtValue. Raises ValueError where ONNX Runtime takes none: strings and what is no tensor."""
    if isinstance(carried.data, OrtValue):
        return carried.data
    if carried.dtype is None or carried.type == STRINGS:
        raise ValueError(f"a value of type {carried.type} cannot be fed beside a tensor of a type that numpy lacks")
    return OrtValue.ortvalue_from_numpy(carried.data)


def shown(carried: Carried) -> Array | Unavailable:
    """The value as consumers outside the engine see it: an array (read-only, or a copy), or why there is none."""
    if carried.type == STRINGS:
        return Unavailable("a string tensor")
    if isinstance(carried.data, OrtValue):
        return _odd_array(carried.data)
    if isinstance(carried.data, np.ndarray) and carried.dtype is not None:
        return carried.data
    kind = carried.type.partition("(")[0]
    return Unavailable(f"{_OTHER_KINDS.get(kind, 'no tensor')}, not a tensor: {carried.type}")


def cast(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """The array in the graph's dtype, native byte order. Raises ValueError unless the two are equal or both floating point."""
    given = np.asarray(array)
    if given.dtype == dtype or (dtype.kind == "O" and given.dtype.kind in "OUST"):
        return given
    if given.dtype.newbyteorder("=") != dtype and not (is_float(given.dtype) and is_float(dtype)):
        raise ValueError(f"{name!r} is {dtype} in the model and cannot be fed with {given.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        return given.astype(dtype)


def _carry_strings(array: Array) -> Carried:
    # Bytes would be read as the text of their repr.
    texts = [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel().tolist()]
    fit = np.empty(array.shape, object)
    fit.ravel()[...] = texts
    return Carried(fit, STRINGS, sum(map(len, texts)))


def _odd_value(array: Array, element: int) -> OrtValue:
    if not is_packed(element):
        codes = aligned(array).view(f"u{array.dtype.itemsize}")
        return OrtValue.ortvalue_from_numpy_with_onnx_type(codes, element)
    # The reinterpretation above would take the shape of the packed bytes.
    value = OrtValue.ortvalue_from_shape_and_type(array.shape, element)
    packed = _pack(array, element)
    if packed.size:
        ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return value


def _odd_array(value: OrtValue) -> Array:
    element, shape, size = value.element_type(), tuple(value.shape()), value.tensor_size_in_bytes()
    dtype = numpy_dtype(element)
    assert dtype is not None
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size) if size else b"", np.uint8)
    if is_packed(element):
        return _unpack(raw, element, math.prod(shape), dtype).reshape(shape)
    return raw.view(dtype).reshape(shape)


def _width(element: int) -> int:
    return 2 if _NAMES[element].endswith("int2") else 4


def _pack(array: Array, element: int) -> Array:
    """Several values a byte, the first one in the low bits."""
    bits = _width(element)
    each = 8 // bits
    codes = array.reshape(-1).view(np.uint8) & (2**bits - 1)
    codes = np.pad(codes, (0, -codes.size % each)).reshape(-1, each)
    packed: Array = (codes << np.arange(0, 8, bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    return packed


def _unpack(raw: Array, element: int, count: int, dtype: np.dtype[Any]) -> Array:
    bits = _width(element)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((raw[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[:count]
    values: Array
    if _NAMES[element].startswith("int"):
        top = np.uint8(1 << (bits - 1))
        values = ((codes ^ top) - top).view(np.int8).astype(dtype)
    else:
        values = codes.view(dtype)
    return values


def _size(data: Any) -> int:
    if isinstance(data, np.ndarray):
        return sum(len(str(text)) for text in data.flat) if data.dtype == object else data.nbytes
    if isinstance(data, dict):
        return sum(_size(item) for item in data.values())
    if isinstance(data, (list, tuple)):
        return sum(_size(item) for item in data)
    return 0
