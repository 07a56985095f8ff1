"""Values that the model file (or a file beside it) holds: initializers, Constant nodes, sparse and external tensors."""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from bisect_align.errors import ModelError, one_line
from bisect_align.model.dtypes import is_packed, numpy_dtype

Array: TypeAlias = NDArray[Any]

# Key among a tensor's external_data: the element type that the file holds, where the graph reads it as another one.
# An up-cast half weight stays on disk as it is and becomes float32 only when it is read.
STORED = "bisect_align.stored"

# A sparse tensor's file size says nothing of its dense size, so a limit stands in for it.
_DENSE_LIMIT = 1 << 28


def is_external(tensor: TensorProto) -> bool:
    """True where the values stand in another file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def constant_of(node: onnx.NodeProto) -> TensorProto | None:
    """The dense tensor of a Constant node, named like its output; None where the node has no value of its own.

    All forms are taken: value, value_float(s), value_int(s), value_string(s), sparse_value.
    """
    name = node.output[0] if node.output else ""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = name
            return tensor
        if attribute.name == "sparse_value":
            return dense(attribute.sparse_tensor, name)
        value: Any = onnx.helper.get_attribute_value(attribute)
        if attribute.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.asarray(value, np.float32), name)
        if attribute.name in ("value_int", "value_ints"):
            return numpy_helper.from_array(np.asarray(value, np.int64), name)
        if attribute.name in ("value_string", "value_strings"):
            many = attribute.name == "value_strings"
            texts = list(value) if many else [value]
            return onnx.helper.make_tensor(name, TensorProto.STRING, [len(texts)] if many else [], texts)
    return None


def dense(sparse: onnx.SparseTensorProto, name: str) -> TensorProto:
    """The sparse tensor with its zeros written out. Raises ModelError where indices do not fit or it would be too large."""
    shape = tuple(sparse.dims)
    size = math.prod(shape)
    if any(d < 0 for d in shape) or size > _DENSE_LIMIT:
        raise ModelError(f"sparse tensor of shape {list(shape)} is too large to be written out", where=name)
    values, places = array_of(sparse.values), array_of(sparse.indices)
    full = np.zeros(size, values.dtype)
    try:
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape)
        full[flat] = values
    except (IndexError, ValueError):
        raise ModelError(f"indices of the sparse tensor do not fit its shape {list(shape)}", where=name) from None
    return numpy_helper.from_array(full.reshape(shape), name)


def external_span(tensor: TensorProto, folder: Path | None) -> tuple[Path, int, int, int]:
    """(file, offset, bytes, element type in the file) of an external tensor.

    The file must lie in the model's folder: absolute paths, `..` and symbolic links that lead out are refused, and the file
    must be as long as the tensor needs. Raises ModelError.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"weight {tensor.name!r}"
    if folder is None:
        raise ModelError(f"its data stands in {location!r}, and the model's folder is not known", where=where)
    parts = PurePosixPath(location.replace("\\", "/")).parts
    if not location or PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive or location[0] in "/\\":
        raise ModelError(
            f"external data location {location!r} is not a relative path", where=where, hint="save the weights beside the model"
        )
    try:
        root = folder.resolve()
        file = (root / location).resolve()
        missing = not file.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, a loop of links, a null byte
        raise ModelError(
            f"external data location {location[:80]!r} cannot be reached", where=where, hint="save the weights beside the model"
        ) from None
    if ".." in parts or not file.is_relative_to(root):
        raise ModelError(
            f"external data location {location!r} leads out of the model's folder",
            where=where,
            hint="copy the weights beside the model; links that lead elsewhere are not followed",
        )
    if missing:
        raise ModelError(f"external data file {location!r} is missing", where=where, hint=f"expected in {folder}")
    stored = int(entries.get(STORED, tensor.data_type))
    needed = nbytes(tensor, stored)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or needed)
    except ValueError:
        raise ModelError("offset or length of its external data is no number", where=where, hint="export it anew") from None
    if offset < 0 or length != needed or offset + length > file.stat().st_size:
        raise ModelError(
            f"external data file {location!r} does not hold {needed} bytes at offset {offset}",
            where=where,
            hint="truncated copy?",
        )
    return file, offset, length, stored


def nbytes(tensor: TensorProto, elem_type: int | None = None) -> int:
    """Bytes that the tensor's dims and element type ask for (packed types rounded up)."""
    kind = tensor.data_type if elem_type is None else elem_type
    dtype = numpy_dtype(kind)
    if dtype is None or any(d < 0 for d in tensor.dims):
        raise ModelError(f"element type {kind} or dims {list(tensor.dims)} are not valid", where=f"weight {tensor.name!r}")
    size = math.prod(tensor.dims)
    if is_packed(kind):
        bits = 2 if onnx.TensorProto.DataType.Name(kind) in ("INT2", "UINT2") else 4
        return int(size * bits + 7) // 8
    return int(size * dtype.itemsize)


def array_of(tensor: TensorProto, folder: Path | None = None) -> Array:
    """The tensor's values (read-only); external ones are memory-mapped. Raises ModelError where bytes and dims disagree."""
    if is_external(tensor):
        return _external_array(tensor, folder)
    try:
        values = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"its values do not fit dims {list(tensor.dims)}: {one_line(error)}"
        raise ModelError(what, where=f"weight {tensor.name!r}") from None
    values.flags.writeable = False
    return values


def _external_array(tensor: TensorProto, folder: Path | None) -> Array:
    file, offset, length, stored = external_span(tensor, folder)
    dtype = numpy_dtype(stored)
    shape = tuple(tensor.dims)
    assert dtype is not None  # external_span has asked for its size
    if dtype.kind == "O":
        raise ModelError("strings cannot stand in an external file", where=f"weight {tensor.name!r}")
    values: Array
    if length == 0:
        values = np.zeros(shape, dtype)
    elif is_packed(stored):
        with file.open("rb") as stream:
            stream.seek(offset)
            loaded = TensorProto(dims=shape, data_type=stored, raw_data=stream.read(length))
        values = np.asarray(numpy_helper.to_array(loaded))
    else:
        values = np.memmap(file, dtype=np.uint8, mode="r", offset=offset, shape=(length,)).view(dtype).reshape(shape)
    if stored != tensor.data_type:
        wanted = numpy_dtype(tensor.data_type)
        values = values.astype(wanted)
    values.flags.writeable = False
    return values


def embedded(tensor: TensorProto, folder: Path | None, name: str) -> TensorProto:
    """The tensor with its values inside, under this name; a copy."""
    copy = TensorProto()
    if is_external(tensor):
        values = _external_array(tensor, folder)
        if is_packed(tensor.data_type):
            copy.CopyFrom(numpy_helper.from_array(values, name))
        else:
            copy.data_type = tensor.data_type
            copy.dims.extend(values.shape)
            copy.raw_data = values.tobytes()
    else:
        copy.CopyFrom(tensor)
    copy.name = name
    return copy
