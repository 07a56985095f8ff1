"""Every format gives back what was written, and damaged bytes give one DumpError, cheaply."""

from __future__ import annotations

import base64
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import numpy_helper
from safetensors.numpy import save as save_safetensors

from bisect_align.dumps.catalogue import catalogue
from bisect_align.dumps.entry import Array, Catalogue, Entry
from bisect_align.errors import DumpError

NATIVE = [
    np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64")
]
SMALL = [
    np.dtype(kind)
    for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4)
]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def arrays(dtypes: list[np.dtype[Any]]) -> st.SearchStrategy[Array]:
    def build(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
        values = np.random.default_rng(seed).integers(0, 8, size=shape)
        return np.asarray(values - (3 if dtype.kind in "if" else 0)).astype(dtype)

    return st.builds(build, st.sampled_from(dtypes), SHAPES, st.integers(0, 2**16))


def npy_bytes(array: Array, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version, allow_pickle=False)
    return stream.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bytes], Path]:
    """A file alone in a fresh folder: place("x.npy", data)."""

    def write(name: str, data: bytes) -> Path:
        path = tmp_path_factory.mktemp("dump") / name
        path.write_bytes(data)
        return path

    return write


def same(entry: Entry, array: Array) -> None:
    loaded = entry.load()
    assert loaded.dtype == array.dtype.newbyteorder("=") if array.dtype.kind != "V" else loaded.dtype == array.dtype
    assert entry.dtype == loaded.dtype
    assert entry.shape == loaded.shape == array.shape
    assert loaded.dtype.isnative
    np.testing.assert_array_equal(loaded.astype(np.float64), array.astype(np.float64))


Place = Callable[[str, bytes], Path]


@settings(max_examples=60, deadline=None)
@given(arrays(NATIVE), st.sampled_from([(1, 0), (2, 0), (3, 0)]), st.booleans(), st.booleans())
def test_npy_of_any_version_order_and_byte_order(
    place: Place, array: Array, version: tuple[int, int], fortran: bool, swap: bool
) -> None:
    stored = np.asfortranarray(array) if fortran and array.ndim else array
    stored = stored.astype(stored.dtype.newbyteorder(">")) if swap else stored
    [entry] = catalogue(place("some.name.npy", npy_bytes(stored, version))).entries
    same(entry, array)
    assert entry.names[0] == "some.name"


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=12), arrays(NATIVE), min_size=1
    ),
    st.booleans(),
)
def test_npz_members_keep_names_order_and_values(place: Place, tensors: dict[str, Array], packed: bool) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, array in tensors.items():
            archive.writestr(zipfile.ZipInfo(name.replace("\\", "/") + ".npy"), npy_bytes(array), archive.compression)
    found = catalogue(place("dump.npz", stream.getvalue()))
    expected = {name.replace("\\", "/"): array for name, array in tensors.items()}
    assert not found.problems or len(expected) < len(tensors)
    assert [entry.key for entry in sorted(found.entries, key=lambda entry: entry.order or 0)] == list(expected)
    for entry in found.entries:
        if entry.key in tensors:
            same(entry, tensors[entry.key])


@settings(max_examples=40, deadline=None)
@given(arrays(NATIVE))
def test_safetensors(place: Place, array: Array) -> None:
    tensors = {"a/b.weight": array, "other": np.arange(3, dtype=np.int64)}
    found = catalogue(place("t.safetensors", save_safetensors(tensors, metadata={"made": "by test"})))
    assert {entry.key for entry in found.entries} == set(tensors)
    for entry in found.entries:
        same(entry, tensors[entry.key])


def test_safetensors_bfloat16_and_float8(place: Place) -> None:
    values = {"BF16": np.arange(6).astype(ml_dtypes.bfloat16), "F8_E4M3": np.arange(4).astype(ml_dtypes.float8_e4m3fn)}
    header, data = {}, b""
    for name, array in values.items():
        header[name] = {"dtype": name, "shape": [2, array.size // 2], "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    found = catalogue(place("t.safetensors", len(text).to_bytes(8, "little") + text + data))
    for entry in found.entries:
        same(entry, values[entry.key].reshape(2, -1))


@settings(max_examples=60, deadline=None)
@given(arrays([*NATIVE, *SMALL]), st.text(min_size=1, max_size=10))
def test_pb_bears_its_name_inside(place: Place, array: Array, name: str) -> None:
    data = numpy_helper.from_array(array, name).SerializeToString()
    [entry] = catalogue(place("tensor_007.pb", data)).entries
    assert entry.names[:2] == tuple(dict.fromkeys((name, "tensor_007")))
    same(entry, array)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=6))
def test_pb_with_typed_fields_instead_of_raw_bytes(place: Place, numbers: list[float]) -> None:
    tensor = onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [len(numbers)], numbers)
    [entry] = catalogue(place("t.pb", tensor.SerializeToString())).entries
    same(entry, np.array(numbers, np.float32))


def test_pb_refuses_external_data_models_and_other_messages(place: Place) -> None:
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    graph = onnx.helper.make_graph([], "g", [], [])
    for data, reason in (
        (tensor.SerializeToString(), "another file"),
        (onnx.helper.make_model(graph).SerializeToString(), "no TensorProto"),
        (b"", "empty"),
        (b"\x00\xff" * 40, "no TensorProto"),
    ):
        with pytest.raises(DumpError, match=reason):
            catalogue(place("t.pb", data))


@settings(max_examples=60, deadline=None)
@given(arrays([*NATIVE, *SMALL]), st.booleans())
def test_manifest(place: Place, array: Array, bare: bool) -> None:
    item = {"file": "raw/0.bin", "name": "/a/Conv:0", "dtype": array.dtype.name, "shape": list(array.shape), "index": 5}
    path = place("manifest.json", json.dumps([item] if bare else {"tensors": [item]}).encode())
    (path.parent / "raw").mkdir()
    (path.parent / "raw" / "0.bin").write_bytes(array.tobytes())
    for dump in (path, path.parent):
        [entry] = catalogue(dump).entries
        same(entry, array)
        assert (entry.key, entry.names[0], entry.order) == ("raw/0.bin", "/a/Conv:0", 5)


def test_polygraphy_runners(place: Place) -> None:
    def outputs(value: float) -> list[Any]:
        text = base64.b64encode(npy_bytes(np.full((2, 3), value, np.float32))).decode()
        return [{"outputs": {"y": {"values": {"array": text}}}}]

    runs = {"lst": [["onnxrt-runner-N0", outputs(1)], ["trt-runner-N0", outputs(2)]], "polygraphy_class": "RunResults"}
    found = catalogue(place("outputs.json", json.dumps(runs).encode()))
    values = {str(entry.role): entry for entry in found.entries}
    assert values["target"].load().max() == 2
    assert values["target"].key == "y"
    assert values["reference"].load().max() == 1
    assert any("trt-runner" in note for note in found.notes)


def test_bfloat16_of_numpy_save_is_read_and_nameless_bytes_are_refused(place: Place) -> None:
    array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    [entry] = catalogue(place("x.npy", npy_bytes(array))).entries
    same(entry, array)
    for bad in (np.zeros(3, ml_dtypes.float8_e5m2), np.zeros(3, "V2")):
        with pytest.raises(DumpError, match="does not say what"):
            catalogue(place("x.npy", npy_bytes(bad)))


def test_pickles_records_and_dates_are_refused_without_being_read(place: Place) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DumpError, match="pickle"):
        catalogue(place("x.npy", stream.getvalue()))
    for array in (np.zeros(2, [("a", "f4")]), np.zeros(2, "M8[s]")):
        with pytest.raises(DumpError):
            catalogue(place("x.npy", npy_bytes(array)))


def claims(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    "shape", ["(1 << 60,)", "(1152921504606846976,)", "(65536, 65536, 4)", "(-1,)", "(True,)", "(3.0,)", "(10**9, 0, 10**12)"]
)
def test_headers_that_claim_too_much_cost_nothing(place: Place, shape: str) -> None:
    path = place("x.npy", claims(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n", bytes(64)))
    assert peak_of(lambda: read_all(path)) < 1 << 20


def test_a_bomb_in_an_archive_is_refused(place: Place) -> None:
    honest = npy_bytes(np.zeros((1 << 20,), np.float32))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", honest)
    data = bytearray(stream.getvalue())
    central = data.rindex(b"PK\x01\x02")
    for size in (200, 2**31):  # the stream is longer than declared; more is declared than deflate could hold
        data[central + 24 : central + 28] = size.to_bytes(4, "little")
        path = place("x.npz", bytes(data))
        assert peak_of(lambda path=path: read_all(path)) < 2 << 20
        with pytest.raises(DumpError):
            catalogue(path)


def test_a_stream_longer_than_declared_is_refused_while_it_is_read(place: Place) -> None:
    body = npy_bytes(np.zeros(16, np.float32))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", body + bytes(1 << 22))
    data = bytearray(stream.getvalue())
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (len(body) + 20_000).to_bytes(4, "little")
    path = place("x.npz", bytes(data))
    [entry] = catalogue(path).entries
    with pytest.raises(DumpError, match="longer than"):
        entry.load()


def test_flipped_bits_in_an_archive_are_noticed(place: Place) -> None:
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", compression) as archive:
            archive.writestr("a/../../x.npy", npy_bytes(np.random.default_rng(0).random(1000)))
        data = bytearray(stream.getvalue())
        data[len(data) // 2] ^= 16
        [entry] = catalogue(place("x.npz", bytes(data))).entries
        assert entry.key == "a/../../x"
        with pytest.raises(DumpError, match="damaged"):
            entry.load()


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def read_all(path: Path) -> Catalogue | None:
    """Whatever can be read is read; only DumpError may be raised, and its text is one line."""
    found, text = attempt(lambda: catalogue(path))
    assert "\n" not in text
    for entry in found.entries if found else ():
        loaded, text = attempt(entry.load)
        assert "\n" not in text
        assert loaded is None or entry.shape in (None, loaded.shape)
    return found


def attempt(work: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return work(), ""
    except DumpError as error:
        return None, str(error)


def samples() -> dict[str, bytes]:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    stream = io.BytesIO()
    np.savez_compressed(stream, **{"a/b": array, "c": array.astype(np.int8)})
    item = {
        "file": "a.bin",
        "name": "x",
        "dtype": "float32",
        "shape": [2, 3],
        "scale": [0.5, 1.0],
        "zero_point": [1, 2],
        "axis": 0,
    }
    text = base64.b64encode(npy_bytes(array)).decode()
    runs = {"lst": [["r", [{"outputs": {"y": {"values": {"array": text}}}}]]], "polygraphy_class": "RunResults"}
    return {
        "x.npy": npy_bytes(array),
        "x.npz": stream.getvalue(),
        "x.safetensors": save_safetensors({"a": array, "b": array}),
        "x.pb": numpy_helper.from_array(array, "x").SerializeToString(),
        "t.pb": onnx.helper.make_tensor("t", onnx.TensorProto.INT64, [4], [1, 2, 3, 400]).SerializeToString(),
        "s.pb": onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [2], ["ab", "c"]).SerializeToString(),
        "x.txt": b"1.5 2.5\n-3e4\tnan\n",
        "manifest.json": json.dumps({"tensors": [item]}).encode(),
        "runs.json": json.dumps(runs).encode(),
    }


SAMPLES = samples()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_damaged_bytes_raise_nothing_but_dump_error(place: Place, name: str, data: st.DataObject) -> None:
    damaged = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        match data.draw(st.sampled_from(["cut", "flip", "insert", "repeat"])):
            case "cut":
                del damaged[at:]
            case "flip" if damaged:
                damaged[at] = data.draw(st.integers(0, 255))
            case "insert":
                damaged[at:at] = data.draw(st.binary(max_size=8))
            case "repeat":
                damaged += damaged[at : at + 64]
    path = place(name, bytes(damaged))
    assert peak_of(lambda: read_all(path)) < (1 << 20) + 1100 * len(damaged)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=80))
def test_garbage_raises_nothing_but_dump_error(place: Place, name: str, garbage: bytes) -> None:
    read_all(place(name, garbage))
    read_all(place(name, SAMPLES[name][:12] + garbage))
