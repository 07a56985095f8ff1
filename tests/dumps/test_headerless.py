"""Raw bytes and texts: what the model expects decides, and what stays open is refused with both sizes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_align.dumps.catalogue import catalogue
from bisect_align.dumps.entry import Array, Entry, Expect
from bisect_align.errors import DumpError

FLOAT = Expect(np.dtype(np.float32), (2, 3))


def one(folder: Path, name: str, data: bytes) -> Entry:
    (folder / name).write_bytes(data)
    [entry] = catalogue(folder).entries
    return entry


@pytest.mark.parametrize("ending", ["bin", "raw", "dat", "data"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.float64, ml_dtypes.bfloat16, np.uint8, np.bool_])
def test_raw_of_the_expected_type(tmp_path: Path, ending: str, dtype: type) -> None:
    array = np.array([[0, 1, 0], [1, 1, 0]]).astype(dtype)
    entry = one(tmp_path, f"x.{ending}", array.tobytes())
    assert (entry.dtype, entry.shape, entry.nbytes) == (None, None, array.nbytes)
    loaded = entry.load(Expect(array.dtype, (2, 3)))
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize("expected", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_four_bytes_an_element_are_float32(tmp_path: Path, expected: type) -> None:
    array = np.arange(6, dtype=np.float32)
    loaded = one(tmp_path, "x.bin", array.tobytes()).load(Expect(np.dtype(expected), (2, 3)))
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(loaded, array.reshape(2, 3))


@pytest.mark.parametrize("stored", [np.int32, np.float32])
def test_integers_may_come_in_four_bytes(tmp_path: Path, stored: type) -> None:
    array = np.array([0, -1, 7, 300, 2, 5]).astype(stored)
    loaded = one(tmp_path, "x.bin", array.tobytes()).load(Expect(np.dtype(np.int64), (2, 3)))
    np.testing.assert_array_equal(loaded, array.reshape(2, 3))


@pytest.mark.parametrize(
    ("size", "reason"), [(12, "float16 or bfloat16"), (6, "quantised"), (20, "holds 20 bytes.* takes 24"), (48, "holds 48")]
)
def test_other_sizes_are_refused_with_the_reason(tmp_path: Path, size: int, reason: str) -> None:
    with pytest.raises(DumpError, match=reason):
        one(tmp_path, "x.bin", bytes(size)).load(FLOAT)


def test_raw_without_expectation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="manifest"):
        one(tmp_path, "x.bin", bytes(24)).load()


def test_a_file_that_vanishes_is_one_error(tmp_path: Path) -> None:
    for name, data in (("x.bin", bytes(24)), ("x.txt", b"1 2 3 4 5 6")):
        entry = one(tmp_path, name, data)
        entry.source.unlink()
        with pytest.raises(DumpError, match="cannot be read"):
            entry.load(FLOAT)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=12), st.sampled_from(["\n", " ", "\t", "\r\n", ", "]))
def test_text_keeps_every_digit_that_it_has(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], separator: str
) -> None:
    folder = tmp_path_factory.mktemp("text")
    entry = one(folder, "x.txt", separator.join(repr(number) for number in numbers).encode())
    np.testing.assert_array_equal(entry.load(), np.array(numbers))
    loaded = entry.load(Expect(np.dtype(np.float32), (1, len(numbers))))
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(loaded, np.array([numbers], np.float32))


def test_text_of_integers_beyond_a_double(tmp_path: Path) -> None:
    wanted = np.array([2**62 + 1, -3])
    loaded: Array = one(tmp_path, "x.txt", b"4611686018427387905\n-3\n").load(Expect(np.dtype(np.int64), (2,)))
    assert loaded.dtype == np.int64
    np.testing.assert_array_equal(loaded, wanted)


def test_text_of_floats_for_integers_and_booleans(tmp_path: Path) -> None:
    entry = one(tmp_path, "x.txt", b"\xef\xbb\xbf1.000000\n0.000000\n")
    assert entry.load(Expect(np.dtype(np.int64), (2,))).tolist() == [1, 0]
    assert entry.load(Expect(np.dtype(np.bool_), (2,))).dtype == np.bool_


def test_text_of_another_length_names_both(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"holds 2 numbers.*takes 6"):
        one(tmp_path, "x.txt", b"1 2").load(FLOAT)


def test_text_with_words_behind_its_numbers_is_refused(tmp_path: Path) -> None:
    entry = one(tmp_path, "x.txt", b"1.5\n" * 2000 + b"end of file\n")
    with pytest.raises(DumpError, match="no numbers"):
        entry.load()


def test_logs_are_ignored_and_binary_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("layer 1 done\n")
    (tmp_path / "y.txt").write_bytes(b"1\0\0\0")
    (tmp_path / "x.txt").write_text("1\n2\n")
    found = catalogue(tmp_path)
    assert [entry.key for entry in found.entries] == ["x.txt"]
    assert found.ignored == ("1 .txt (run.txt)",)
    assert [(problem.names, problem.reason) for problem in found.problems] == [(("y",), "is no text")]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (b"0.000001\n-1.500000\nnan\n", 1e-6),
        (b"0.0000 12.2500", 1e-4),
        (b"0.5\n0.25\n", 0.0),
        (b"1e-05\n2e-07\n", 0.0),
        (b"3\n4\n", 0.0),
    ],
)
def test_a_text_of_equal_decimals_tells_its_step(tmp_path: Path, text: bytes, step: float) -> None:
    assert one(tmp_path, "x.txt", text).step == pytest.approx(step)


@pytest.mark.parametrize("name", ["conv1", "conv1.bin"])
def test_an_npy_is_known_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    np.save(tmp_path / "made.npy", array)
    data = (tmp_path / "made.npy").read_bytes()
    (tmp_path / "made.npy").unlink()
    entry = one(tmp_path, name, data)
    assert entry.shape == (2, 3)
    np.testing.assert_array_equal(entry.load(), array)


def test_a_text_without_an_ending_is_read_where_it_holds_numbers_only(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("one 2 three\n")
    (tmp_path / "pid").write_bytes(b"\0\1")
    (tmp_path / "lock").write_bytes(b"")
    assert one(tmp_path, "conv1", b"1 2 3\n4 5 6\n").load(FLOAT).tolist() == [[1, 2, 3], [4, 5, 6]]
