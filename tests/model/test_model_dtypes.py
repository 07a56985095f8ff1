"""Element types there and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from bisect_align.model.dtypes import elem_type, is_float, numpy_dtype


@pytest.mark.parametrize("kind", [v for k, v in onnx.TensorProto.DataType.items() if k != "UNDEFINED"])
def test_round_trip(kind: int) -> None:
    dtype = numpy_dtype(kind)
    assert dtype is not None
    assert elem_type(dtype) == kind


def test_what_has_no_counterpart() -> None:
    assert numpy_dtype(0) is None
    assert numpy_dtype(999) is None
    with pytest.raises(ValueError, match="datetime"):
        elem_type(np.dtype("datetime64[s]"))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_floats(dtype: type) -> None:
    assert is_float(dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.uint64, np.complex64, ml_dtypes.int4, object, None])
def test_no_floats(dtype: type | None) -> None:
    assert not is_float(dtype)
