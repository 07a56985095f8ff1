"""An output that came back is read as it was meant, or refused with a reason: never bent into the golden's type."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from onnx import numpy_helper

from bisect_align.errors import DumpError
from bisect_align.repro.outputs import Returned, returned

Array = NDArray[Any]
INTEGERS = [np.dtype(name) for name in ("bool", "int8", "uint8", "int32", "int64", "float32")]


def back(values: Array | bytes, golden: Array, half: str = "", op: str = "Conv", ending: str = ".npy") -> Returned:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / f"output_0{ending}"
        if isinstance(values, bytes):
            file.write_bytes(values)
        elif ending == ".pb":
            file.write_bytes(numpy_helper.from_array(values).SerializeToString())
        else:
            np.save(file, values)
        got = returned(file, golden, half, op, {})
        return Returned(got.values.copy(), got.taken)


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=4, max_side=5)), st.sampled_from([".npy", ".pb", ".bin"]), st.booleans())
def test_flat_or_not_the_values_are_the_same(golden: Array, ending: str, flat: bool) -> None:
    values = golden.ravel() if flat else golden
    got = back(values.tobytes() if ending == ".bin" else values, golden, ending=ending).values
    assert got.shape == golden.shape
    assert got.tobytes() == golden.tobytes()


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(INTEGERS[:-1]))
def test_whole_numbers_keep_their_value_or_are_refused(
    data: st.DataObject, given_type: np.dtype[Any], wanted: np.dtype[Any]
) -> None:
    values = np.array(data.draw(st.lists(st.integers(0 if given_type.kind in "bu" else -200, 200), min_size=1, max_size=8)))
    values = values.astype(given_type)
    same = np.array_equal(values.astype(np.int64), values.astype(wanted).astype(np.int64))
    if not same:
        with pytest.raises(DumpError, match=wanted.name):
            back(values, np.zeros(values.shape, wanted))
        return
    got = back(values, np.zeros(values.shape, wanted))
    assert got.values.dtype == wanted
    np.testing.assert_array_equal(got.values.astype(np.int64), values.astype(np.int64))
    assert bool(got.taken) == (given_type != wanted)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("ending", [".npy", ".pb", ".bin"])
def test_half_types_are_widened(name: str, ending: str) -> None:
    golden = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = golden.astype(np.dtype(getattr(ml_dtypes, name, name)))
    np.testing.assert_array_equal(
        back(values.tobytes() if ending == ".bin" else values, golden, name, ending=ending).values, golden
    )


@pytest.mark.parametrize(
    ("values", "golden", "ending", "said"),
    [
        (b"", np.zeros(3, np.float32), ".npy", "is empty"),
        (b"", np.zeros(3, np.float32), ".pb", "is empty"),
        (b"", np.zeros(3, np.float32), ".bin", "holds 0 bytes, expected 12 (float32 [3])"),
        (b"\x93NUMPY", np.zeros(3, np.float32), ".npy", "version"),
        (b"garbage", np.zeros(3, np.float32), ".pb", "TensorProto"),
        (np.zeros(3, np.int8), np.zeros(3, np.float32), ".npy", "holds int8 where the output is float32"),
        (np.array([0.5]), np.zeros(1, np.int64), ".npy", "fractions"),
        (np.array([np.nan]), np.zeros(1, np.int64), ".npy", "fractions or NaN"),
        (np.array([np.inf]), np.zeros(1, np.int64), ".npy", "int64"),
        (np.array(["a"]), np.zeros(1, np.int64), ".npy", "where the output is int64"),
    ],
)
def test_what_cannot_be_read_is_said(values: Array | bytes, golden: Array, ending: str, said: str) -> None:
    with pytest.raises(DumpError) as error:
        back(values, golden, ending=ending)
    assert said in error.value.what


def test_no_layout_bends_a_wrong_count_or_shape() -> None:
    golden = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert back(golden[:3], golden).values.shape == (3, 6)
    assert back(golden.reshape(2, 12), golden).values.shape == (2, 12)
    assert back(np.zeros((0, 1), np.int64), np.zeros((0, 2), np.int64)).values.shape == (0, 1)
