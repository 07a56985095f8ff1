"""ONNX element types and numpy dtypes, ml_dtypes included (bfloat16, float8, float4, int4, int2)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import DTypeLike

FLOAT16 = int(onnx.TensorProto.FLOAT16)
BFLOAT16 = int(onnx.TensorProto.BFLOAT16)
FLOAT = int(onnx.TensorProto.FLOAT)
STRING = int(onnx.TensorProto.STRING)

# Several of these pack two or four values in a byte, so that the bytes of a file are no array yet.
_PACKED = frozenset(
    int(getattr(onnx.TensorProto, name))
    for name in ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")
    if hasattr(onnx.TensorProto, name)
)


def numpy_dtype(elem_type: int) -> np.dtype[Any] | None:
    """The numpy dtype of an ONNX element type (object for strings); None for undefined or unknown ones."""
    if elem_type == STRING:
        return np.dtype(object)
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError, TypeError):
        return None


def elem_type(dtype: DTypeLike) -> int:
    """The ONNX element type of a dtype. Raises ValueError where ONNX has none."""
    wanted = np.dtype(dtype)
    if wanted.kind in "OUST":
        return STRING
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(wanted))
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"ONNX has no element type for dtype {wanted}") from None


def is_float(dtype: DTypeLike | None) -> bool:
    """True for real floating point, numpy's own and those of ml_dtypes."""
    if dtype is None:
        return False
    given = np.dtype(dtype)
    if given.kind == "f":
        return True
    try:
        ml_dtypes.finfo(given)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, KeyError):
        return False
    return given.kind != "c"


def is_half_type(elem_type: int) -> bool:
    """True for the ONNX element types float16 and bfloat16."""
    return elem_type in (FLOAT16, BFLOAT16)


def is_packed(elem_type: int) -> bool:
    """True where a byte of raw data holds more than one value."""
    return elem_type in _PACKED
