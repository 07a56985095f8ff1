"""Inputs are found, checked and never bent: what does not fit is one error with both sides named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from bisect_align.dumps.catalogue import catalogue
from bisect_align.dumps.entry import Array
from bisect_align.errors import InputsError
from bisect_align.session.inputs import Inputs, load_inputs


@dataclass(frozen=True)
class Kind:
    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"


@dataclass(frozen=True)
class Stub:
    """What inputs need of a graph."""

    types: dict[str, Kind]
    upcast_from: np.dtype[Any] | None = None
    inputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.types))


def graph(**types: tuple[Any, tuple[int | str | None, ...]]) -> Any:
    return Stub({name: Kind(np.dtype(dtype), shape) for name, (dtype, shape) in types.items()})


X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = graph(x=(np.float32, (2, 3)))


def given_file(folder: Path, model: Any, **arrays: Array) -> Inputs:
    np.savez(folder / "given.npz", **arrays)
    return load_inputs(folder / "given.npz", model, None, folder / "model.onnx")


def test_npz_by_name_exact_and_sanitised(tmp_path: Path) -> None:
    model = Stub({"/In/a:0": Kind(np.dtype(np.float32), (2, 3)), "b": Kind(np.dtype(np.int64), (2,))})
    found = given_file(tmp_path, model, _in_a_0=X, b=np.array([1, 2]))
    assert list(found.values) == ["/In/a:0", "b"]
    np.testing.assert_array_equal(found.values["/In/a:0"], X)
    assert found.warnings == ()
    assert "given.npz" in found.source


def test_a_sanitised_name_that_fits_two_is_no_evidence(tmp_path: Path) -> None:
    model = Stub({"a.b": Kind(np.dtype(np.float32), (2, 3)), "a/b": Kind(np.dtype(np.float32), (2, 3))})
    with pytest.raises(InputsError, match="lack"):
        given_file(tmp_path, model, a_b=X)


def test_missing_names_say_what_is_wanted_and_what_was_meant(tmp_path: Path) -> None:
    model = graph(pixel_values=(np.float32, ("N", 3)), mask=(np.int64, (2,)))
    with pytest.raises(InputsError, match=r"pixel_values: float32 \[N, 3\]") as caught:
        given_file(tmp_path, model, pixel_value=X, mask=np.zeros(2, np.int64))
    assert "'pixel_value'" in caught.value.hint


def test_folder_of_npy_and_raw_and_leftovers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "b.raw").write_bytes(X.tobytes())
    np.save(tmp_path / "c.npy", X)
    model = graph(a=(np.float32, ("N", 3)), b=(np.float32, ("N", None)))
    found = load_inputs(tmp_path, model, None, tmp_path / "elsewhere" / "m.onnx")
    np.testing.assert_array_equal(found.values["b"], X)
    assert any("c.npy" in warning for warning in found.warnings)


def test_raw_with_two_open_sizes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_bytes(X.tobytes())
    with pytest.raises(InputsError, match="leaves its shape open"):
        load_inputs(tmp_path, graph(x=(np.float32, ("N", "M"))), None, tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["x.npy", "whatever.npy", "x.bin"])
def test_one_array_for_one_input(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    np.save(path, X) if name.endswith("npy") else path.write_bytes(X.tobytes())
    np.testing.assert_array_equal(load_inputs(path, ONE, None, tmp_path / "m.onnx").values["x"], X)


@pytest.mark.parametrize("named", [True, False])
def test_onnx_test_data_by_inner_name_else_by_index(tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    model = graph(b=(np.float32, (2, 3)), a=(np.float32, (2, 3)))
    for k, name in enumerate(("a", "b") if named else ("", "")):
        (folder / f"input_{k}.pb").write_bytes(numpy_helper.from_array(X + k, name).SerializeToString())
    (folder / "output_0.pb").write_bytes(numpy_helper.from_array(X, "a").SerializeToString())
    found = load_inputs(None, model, None, tmp_path / "model.onnx")
    np.testing.assert_array_equal(found.values["a"], X + (0 if named else 1))
    np.testing.assert_array_equal(found.values["b"], X + (1 if named else 0))
    assert found.source == "test_data_set_0 beside the model"


def test_the_dump_comes_before_files_beside_the_model(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    np.savez(dump / "t.npz", X=X + 1, y=X)
    np.savez(tmp_path / "inputs.npz", x=X)
    found = load_inputs(None, ONE, catalogue(dump), tmp_path / "m.onnx")
    np.testing.assert_array_equal(found.values["x"], X + 1)
    assert "dump" in found.source
    beside = load_inputs(None, ONE, None, tmp_path / "m.onnx")
    np.testing.assert_array_equal(beside.values["x"], X)
    assert beside.source == "inputs.npz beside the model"


def test_a_numbered_input_beside_outputs(tmp_path: Path) -> None:
    for place in ("inputs", "outputs/0"):
        (tmp_path / place).mkdir(parents=True)
    np.save(tmp_path / "inputs" / "0.npy", X)
    (tmp_path / "outputs" / "0" / "y.dat").write_bytes(bytes(8))
    np.testing.assert_array_equal(load_inputs(None, ONE, catalogue(tmp_path), tmp_path / "m.onnx").values["x"], X)


@pytest.mark.parametrize("copy", [X.T, X.astype(np.uint8)])
def test_a_copy_in_the_dump_that_does_not_fit_is_passed_over(tmp_path: Path, copy: Array) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    np.save(dump / "x.npy", copy)
    with pytest.raises(InputsError, match=r"x: float32 \[2, 3\]"):
        load_inputs(None, ONE, catalogue(dump), tmp_path / "m.onnx")
    np.savez(tmp_path / "inputs.npz", x=X)
    np.testing.assert_array_equal(load_inputs(None, ONE, catalogue(dump), tmp_path / "m.onnx").values["x"], X)


def test_a_quantised_copy_is_dequantised(tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes((X + 3).astype(np.uint8).tobytes())
    item = '{"file": "0.bin", "name": "x", "dtype": "uint8", "shape": [2, 3], "scale": 0.5, "zero_point": 3}'
    (tmp_path / "manifest.json").write_text(f"[{item}]")
    found = load_inputs(None, ONE, catalogue(tmp_path), tmp_path / "m.onnx")
    np.testing.assert_array_equal(found.values["x"], X / 2)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (1, 2, 3)])
def test_a_wrong_shape_names_both(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputsError, match=r"shape \[.*wants \[2, 3\]"):
        given_file(tmp_path, ONE, x=X.reshape(shape))


def test_a_symbolic_size_is_the_same_everywhere(tmp_path: Path) -> None:
    model = graph(a=(np.float32, ("N", 3)), b=(np.float32, ("N",)))
    assert given_file(tmp_path, model, a=X, b=X[:, 0]).values["b"].shape == (2,)
    with pytest.raises(InputsError, match="N = "):
        given_file(tmp_path, model, a=X, b=X[0])


CASTS = [
    (np.float64, np.float32, [0.5, 2], None),
    (np.float64, np.float32, [0.1, 2], "rounded"),
    (np.float16, np.float32, [0.1, 2], None),
    (ml_dtypes.bfloat16, np.float32, [0.1, 2], None),
    (np.float32, np.float16, [0.1, 2], "rounded"),
    (np.float32, np.int64, [1, 2], None),
    (np.int32, np.int64, [1, -2], None),
    (np.uint8, np.float32, [1, 255], None),
    (np.int64, np.float32, [2**24 + 1, 2], "rounded"),
    (np.int64, np.bool_, [0, 1], None),
    (">f4", np.float32, [0.1, 2], None),
]


@pytest.mark.parametrize(("have", "want", "values", "warning"), CASTS)
def test_casts(tmp_path: Path, have: Any, want: Any, values: list[float], warning: str | None) -> None:
    array = np.array(values).astype(have)
    found = given_file(tmp_path, graph(x=(want, (2,))), x=array)
    assert found.values["x"].dtype == np.dtype(want)
    assert found.values["x"].dtype.isnative
    np.testing.assert_array_equal(found.values["x"], array.astype(want))
    assert [warning in text for text in found.warnings] == ([True] if warning else []) if warning else found.warnings == ()


REFUSED = [
    (np.float32, np.int64, [0.5, 1]),
    (np.float32, np.int64, [np.nan, 1]),
    (np.float64, np.int64, [1e300, 1]),
    (np.uint8, np.int8, [200, 1]),
    (np.int64, np.uint64, [-1, 1]),
    (np.int64, np.bool_, [2, 1]),
    (np.float64, np.float32, [1e300, 1]),
    ("<U3", np.float32, [1, 2]),
]


@pytest.mark.parametrize(("have", "want", "values"), REFUSED)
def test_casts_that_lose_the_value_are_refused(tmp_path: Path, have: Any, want: Any, values: list[float]) -> None:
    with pytest.raises(InputsError, match="but the model wants"):
        given_file(tmp_path, graph(x=(want, (2,))), x=np.array(values).astype(have))


def test_values_that_are_not_finite_are_said(tmp_path: Path) -> None:
    found = given_file(tmp_path, graph(x=(np.float32, (2,))), x=np.array([np.nan, np.inf], np.float32))
    assert "2 values that are not finite" in found.warnings[0]


def test_a_damaged_file_names_the_input(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    np.save(tmp_path / "y.npy", X)
    with pytest.raises(InputsError, match=r"'x'.*header"):
        load_inputs(tmp_path, graph(x=(np.float32, (2, 3)), y=(np.float32, (2, 3))), None, tmp_path / "m.onnx")
    with pytest.raises(InputsError, match="cannot be read"):
        load_inputs(tmp_path / "missing.npz", ONE, None, tmp_path / "m.onnx")


def test_inputs_that_are_no_tensors_are_refused(tmp_path: Path) -> None:
    model: Any = Stub({"s": Kind(None, None, "sequence")})
    with pytest.raises(InputsError, match="sequence"):
        load_inputs(None, model, None, tmp_path / "m.onnx")


def test_a_model_without_inputs_needs_none(tmp_path: Path) -> None:
    model: Any = Stub({})
    assert load_inputs(None, model, None, tmp_path / "m.onnx").values == {}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]),
    st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]),
    st.lists(st.integers(-300, 300), min_size=1, max_size=4),
)
def test_a_silent_cast_keeps_every_value(
    tmp_path_factory: pytest.TempPathFactory, have: str, want: str, values: list[int]
) -> None:
    array = np.array(values).astype(have)
    folder = tmp_path_factory.mktemp("cast")
    try:
        found = given_file(folder, graph(x=(want, (None,))), x=array)
    except InputsError:
        return
    if not found.warnings:
        np.testing.assert_array_equal(found.values["x"].astype(np.float64), array.astype(np.float64))
