"""--quant-params: scales of integer entries from a file; the key says which sign its offset has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_target import entry, mixed, normal, run_target, write_dump, write_model

from bisect_align.dumps.entry import Array, Catalogue, Entry, Quant
from bisect_align.errors import UsageError
from bisect_align.matching.fit import read
from bisect_align.result.result import Verdict
from bisect_align.session.options import Options
from bisect_align.session.quant import with_parameters
from bisect_align.session.run import run

NET, ROWS = mixed(2), {"x": normal(91, 8, 24)}
F32 = np.dtype(np.float32)


def attached(folder: Path, document: object, entries: Sequence[Entry]) -> dict[str, Entry]:
    found, _ = with_parameters(Catalogue(folder, tuple(entries)), written(folder, document))
    return {one.key: one for one in found.entries}


def written(folder: Path, document: object) -> Path:
    path = folder / "scales.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def real(one: Entry) -> Array:
    values = one.load()
    return read(one, F32, values.shape)


@given(st.sampled_from(["int8", "uint8", "int16", "uint16"]), st.integers(-40000, 40000), st.floats(1e-6, 1e3), st.randoms())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_offset_is_a_zero_point_with_the_other_sign(tmp_path: Path, dtype: str, zero: int, scale: float, random: Any) -> None:
    codes = np.array([random.randint(0, 127) for _ in range(9)], dtype)
    subtracted = attached(tmp_path, {"tensors": {"t": {"scale": scale, "zero_point": zero}}}, [entry("t", codes)])["t"]
    added = attached(tmp_path, {"tensors": {"t": {"scale": scale, "offset": -zero}}}, [entry("t", codes)])["t"]
    expected = (codes.astype(np.float64) - zero) * scale
    np.testing.assert_allclose(real(subtracted), expected, rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_array_equal(real(added), real(subtracted))


@given(st.floats(-50, 0), st.floats(0.1, 50), st.sampled_from([8, 16]), st.booleans(), st.booleans())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_ends_of_a_calibration_range_are_those_of_the_codes(
    tmp_path: Path, low: float, high: float, bits: int, signed_file: bool, signed_entry: bool
) -> None:
    """Whichever integers the file counts, and whichever the entry holds: its lowest code is the low end of the range."""
    scale = (high - low) / (2**bits - 1)
    steps = round(low / scale)
    offset = steps + (2 ** (bits - 1) if signed_file else 0)
    encoding = {"bitwidth": bits, "scale": scale, "offset": offset, "min": steps * scale, "max": high, "is_symmetric": "False"}
    dtype = np.dtype(f"{'int' if signed_entry else 'uint'}{bits}")
    codes = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    one = attached(tmp_path, {"version": "0.6.1", "activation_encodings": {"t": [encoding]}}, [entry("t", codes)])["t"]
    np.testing.assert_allclose(real(one), [low, high], atol=1.01 * scale)


@pytest.mark.parametrize(
    "document",
    [
        {
            "activation_encodings": [
                {"name": "t", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "scale": [0.5], "offset": [-3]}
            ]
        },
        {"activation_encodings": {"t": [{"bitwidth": 8, "dtype": "int", "scale": 0.5, "offset": -3}], "u": [{"dtype": "float"}]}},
        {"tensors": {"t": {"scale": [0.5], "zero_point": [3], "dtype": "uint8"}}},
    ],
)
def test_the_shapes_that_tools_write(tmp_path: Path, document: object) -> None:
    one = attached(tmp_path, document, [entry("t", np.array([3, 5], np.uint8))])["t"]
    np.testing.assert_array_equal(real(one), [0, 1])


def test_scales_by_channel_go_along_their_axis(tmp_path: Path) -> None:
    codes = np.arange(6, dtype=np.int8).reshape(3, 2)
    document = {"tensors": {"t": {"scale": [1, 2, 4], "zero_point": [0, 1, 0], "axis": -2}}}
    one = attached(tmp_path, document, [entry("t", codes)])["t"]
    np.testing.assert_array_equal(real(one), [[0, 1], [2, 4], [16, 20]])


def test_names_are_exact_or_sanitised_and_never_parts_of_names(tmp_path: Path) -> None:
    codes = np.array([1, 2], np.int8)
    names = ["a/b", "c_d", "conv10", "e_f"]
    document = {"tensors": {n: {"scale": 1, "zero_point": 0} for n in ("a/b", "c/d", "conv1", "e/f", "e:f")}}
    found = attached(tmp_path, document, [entry(n, codes) for n in names])
    assert [n for n in names if found[n].quant is not None] == ["a/b", "c_d"]


def test_what_the_dump_says_is_overruled_and_floats_are_left_alone(tmp_path: Path) -> None:
    document = {"tensors": {n: {"scale": 2, "zero_point": 0} for n in "tf"}}
    codes = entry("t", np.array([1, 2], np.int8), quant=Quant(np.array(9.0), np.array(0)))
    found = attached(tmp_path, document, [codes, entry("f", normal(1, 2))])
    np.testing.assert_array_equal(real(found["t"]), [2, 4])
    assert found["f"].quant is None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "activation_encodings"),
        ({"tensors": {}}, "activation_encodings"),
        ({"tensors": {"t": 3}}, "no scale"),
        ({"tensors": {"t": {"scale": 1}}}, "neither zero_point nor offset"),
        ({"tensors": {"t": {"scale": 1, "zero_point": 0, "offset": 0}}}, "both"),
        ({"tensors": {"t": {"scale": 0, "zero_point": 0}}}, "not positive"),
        ({"tensors": {"t": {"scale": "x", "zero_point": 0}}}, "no number"),
        ({"tensors": {"t": {"scale": 1, "zero_point": 0.5}}}, "zero_point"),
        ({"tensors": {"t": {"scale": 1, "zero_point": 0, "dtype": "float32"}}}, "no codes"),
        ({"tensors": {"t": {"scale": [1, 2], "zero_point": 0}}}, "no axis"),
        ({"tensors": {"t": {"scale": [1, 2, 3], "zero_point": 0, "axis": 0}}}, "not that long"),
        ({"tensors": {"t": {"scale": 1, "offset": 9, "min": -9.0}}}, "min"),
        ({"tensors": {"other": {"scale": 1, "zero_point": 0}}}, "names no entry"),
        ({"activation_encodings": [{"scale": 1, "offset": 0}]}, "no name"),
        ({"activation_encodings": {"t": [{"dtype": "float"}]}}, "floats"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, document: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        attached(tmp_path, document, [entry("t", np.array([1, 2], np.int8))])
    assert "\n" not in str(caught.value)
    assert "scales.json" in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        with_parameters(Catalogue(tmp_path, (entry("t", np.array([1, 2], np.int8)),)), tmp_path / "nope.json")


@pytest.mark.parametrize("headerless", [False, True])
def test_a_dump_of_codes_is_judged_in_real_units(tmp_path: Path, headerless: bool) -> None:
    values = run_target(NET, ROWS, "int8")
    folder, tensors = tmp_path / "dump", {}
    folder.mkdir()
    for name, value in values.items():
        if name == "x":
            continue
        scale = float((max(value.max(), 0) - min(value.min(), 0)) / 255)
        zero = -round(min(float(value.min()), 0) / scale)
        codes = np.clip(np.rint(value / scale) + zero, 0, 255).astype(np.uint8)
        tensors[name] = {"scale": scale, "offset": -zero, "dtype": "uint8"}
        if headerless:
            codes.tofile(folder / f"{name}.raw")
        else:
            np.save(folder / f"{name}.npy", codes)
    write_dump(tmp_path / "in.npz", ROWS)
    model, scales = write_model(tmp_path, NET), written(tmp_path, {"tensors": tensors})
    result = run(Options(model=model, target_dump=folder, inputs=tmp_path / "in.npz", quant_params=scales))
    assert result.verdict is Verdict.ALIGNED
    assert result.coverage is not None
    assert result.coverage.observed == len(tensors)
