"""Formats that toolchains made up, and the files beside a dump that tell shapes, types and scales."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bisect_align.dumps.catalogue import by_key, catalogue
from bisect_align.dumps.convention import load
from bisect_align.dumps.entry import Array, Entry, Expect
from bisect_align.errors import DumpError
from bisect_align.matching.fit import read

FLOAT = np.dtype(np.float32)


def one(path: Path) -> Entry:
    [entry] = catalogue(path).entries
    return entry


def fresh(factory: pytest.TempPathFactory, name: str, data: bytes) -> Path:
    path = factory.mktemp("dump") / name
    path.write_bytes(data)
    return path


# ---- OpenVINO --------------------------------------------------------------------------------------------------------------
PRECISIONS = [(10, "f4"), (4, "f4"), (11, "f2"), (3, "f2"), (70, "i4"), (9, "i4"), (72, "i8"), (10, "i8"), (40, "u1"), (50, "i1")]


def blob(precision: int, array: Array) -> bytes:
    sizes = [*array.shape, *([0] * 7)][:7]
    header = struct.pack("<4s2BBB7IB3x4Q", b"IEB0", 0, 1, precision, array.ndim, *sizes, 0xFF, 72, array.nbytes, 0, 0)
    return header + array.tobytes()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PRECISIONS), hnp.array_shapes(min_dims=1, max_dims=5, max_side=4), st.integers(0, 99))
def test_blobs_of_openvino(
    tmp_path_factory: pytest.TempPathFactory, kind: tuple[int, str], shape: tuple[int, ...], seed: int
) -> None:
    array = np.random.default_rng(seed).integers(0, 100, shape).astype(kind[1])
    entry = one(fresh(tmp_path_factory, "#1_Relu_a_out0.ieb", blob(kind[0], array)))
    loaded = entry.load()
    assert (entry.dtype, entry.shape) == (array.dtype, array.shape)
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


def test_a_blob_in_bfloat16_and_one_of_unknown_precision(tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    (tmp_path / "#1_Relu_a_out0.ieb").write_bytes(blob(12, array))
    (tmp_path / "#2_Relu_b_out0.ieb").write_bytes(blob(99, array.astype(np.float32)))
    found = catalogue(tmp_path)
    a, b = (by_key(found)[f"{name}.0"] for name in "ab")
    assert a.load().dtype == ml_dtypes.bfloat16
    assert b.load(Expect(FLOAT, (6,))).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(DumpError, match="precision"):
        b.load()
    assert [entry.order for entry in found.entries] == [1, 2]


@pytest.mark.parametrize("change", [{"cut": 40}, {"cut": -1}, {"at": 5, "to": 7}, {"at": 7, "to": 9}, {"at": 44, "to": 3}])
def test_a_damaged_blob_is_told(tmp_path: Path, change: dict[str, int]) -> None:
    data = bytearray(blob(10, np.zeros((2, 3), np.float32)))
    data = data[: change["cut"]] if "cut" in change else data
    if "at" in change:
        data[change["at"]] = change["to"]
    (tmp_path / "a.ieb").write_bytes(data)
    with pytest.raises(DumpError):
        catalogue(tmp_path)


HEADS = [
    ("FP32 4D shape: 1 2 1 3 (6) by address 0x55d0\n", (1, 2, 1, 3)),
    ("shape: [b:1, f:2, x:3, y:1, z:1, w:1, g:1] (count: 6, original format: b_fs_yx_fsv16)\n", (1, 2, 1, 3)),
    ("shape: [b:1, f:1, x:3, y:1, z:2, w:1, g:1] (count: 6, original format: bfzyx)\n", None),
    ("conv2d\ntype:1\nshape:1 2 1 3\n", (1, 2, 1, 3)),
    ("reduce\r\ntype:1\r\nshape:6\r\n", (6,)),
]


@pytest.mark.parametrize(("head", "shape"), HEADS)
def test_texts_that_begin_with_their_shape(tmp_path: Path, head: str, shape: tuple[int, ...] | None) -> None:
    (tmp_path / "a.txt").write_bytes(head.encode() + b"0\n1\n2\n3\n4\n5\n")
    entry = one(tmp_path)
    assert entry.shape == shape
    loaded = entry.load(Expect(FLOAT, (6,)))
    assert (loaded.shape, loaded.ravel().tolist()) == (shape or (6,), [0, 1, 2, 3, 4, 5])


def test_texts_with_an_index_before_each_value_and_with_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("[0] 1.500000 \n[1] -2.000000 \n")
    (tmp_path / "b.txt").write_text("1.5\t-2\t\n3\t4\t\n")
    found = by_key(catalogue(tmp_path))
    assert found["a"].load(Expect(FLOAT, (2,))).tolist() == [1.5, -2]
    assert found["b"].load(Expect(FLOAT, (2, 2))).tolist() == [[1.5, -2], [3, 4]]


def test_files_without_an_ending_are_read_where_the_convention_says_so(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / ".order").write_text("a_0\n")
    (tmp_path / "output" / "a_0").write_text("1\t2\t3\n4\t5\t6\n")
    (tmp_path / "output" / "Input_a_0").write_text("1\n")
    found = catalogue(tmp_path)
    assert found.convention == "mnn"
    [target] = [entry for entry in found.entries if entry.role.value == "target"]
    assert target.names[0] == "a"
    assert target.load(Expect(FLOAT, (2, 3))).tolist() == [[1, 2, 3], [4, 5, 6]]


# ---- Qualcomm --------------------------------------------------------------------------------------------------------------
def net(**tensors: dict[str, Any]) -> str:
    return json.dumps({"graph": {"tensors": tensors, "nodes": {"n": {"output_names": list(tensors)}}}})


def test_native_results_are_scaled_with_the_offset_of_qnn(tmp_path: Path) -> None:
    results = tmp_path / "Result_0"
    results.mkdir()
    codes = np.array([0, 10, 255], np.uint8)
    codes.tofile(results / "a_native.raw")
    np.array([-5, 0, 122.5], np.float32).tofile(results / "a.raw")
    np.array([1, 2, 3], np.int32).tofile(results / "ids.raw")
    params = {"definition": 1, "encoding": 0, "scale_offset": {"scale": 0.5, "offset": -10}}
    a = {"dims": [1, 3, 1], "data_type": 1032, "quant_params": params}
    ids = {"dims": [3], "data_type": "QNN_DATATYPE_INT_32"}
    (tmp_path / "model_net.json").write_text(net(a=a, ids=ids))
    found = by_key(catalogue(tmp_path))
    native, real = found["Result_0/a_native.raw"], found["Result_0/a.raw"]
    assert (native.dtype, native.shape, real.dtype, real.shape) == (np.uint8, (1, 3, 1), np.float32, (1, 3, 1))
    np.testing.assert_array_equal(read(native, FLOAT, (1, 3, 1)), read(real, FLOAT, (1, 3, 1)))
    assert read(native, FLOAT, (1, 3, 1)).ravel().tolist() == [-5, 0, 122.5]
    assert native.names[0] == real.names[0] == "a"
    assert found["ids"].load(Expect(np.dtype(np.int64), (3,))).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "[]",
        '{"graph": {"tensors": []}}',
        net(a={"dims": [-1], "data_type": 1032}),
        net(a={"dims": "x", "data_type": [], "quant_params": {"scale_offset": {"scale": "x"}}}),
        net(a={"dims": [2, 2], "data_type": 562}),
        net(a={"dims": [6], "quant_params": {"axis_scale_offset": {"axis": 9, "scale_offsets": [{"scale": 1}, 3]}}}),
    ],
)
def test_a_graph_that_tells_nonsense_is_not_believed(tmp_path: Path, document: str) -> None:
    (tmp_path / "Result_0").mkdir()
    np.arange(6, dtype=np.float32).tofile(tmp_path / "Result_0" / "a.raw")
    (tmp_path / "m_net.json").write_text(document)
    [entry] = catalogue(tmp_path).entries
    assert entry.load(Expect(FLOAT, (2, 3))).ravel().tolist() == [0, 1, 2, 3, 4, 5]


# ---- Texas Instruments -----------------------------------------------------------------------------------------------------
def test_traces_get_their_names_from_the_layer_info_by_whole_ids(tmp_path: Path) -> None:
    form = "tidl_trace_subgraph_0_{:04d}_0001_0001_00001_00002_000003x00001{}"
    for number in (1, 10, 11):
        np.full(6, number, np.float32).tofile(tmp_path / form.format(number, "_float.bin"))
        np.full(6, number, np.int8).tofile(tmp_path / form.format(number, ".y"))
    np.full(6, 3, np.int8).tofile(tmp_path / form.format(12, ".y"))
    (tmp_path / "m.layer_info.txt").write_text(
        "1 1 /l/conv1\n10 10 /l/conv10\n11 10 /l/relu10\n12 12 /l/conv12\n12 12 /l/other\n"
    )
    found = catalogue(tmp_path)
    assert found.convention == "tidl"
    entries = {entry.order: entry for entry in found.entries}
    assert {order: entry.names[0] for order, entry in entries.items() if order in (1, 10)} == {1: "/l/conv1", 10: "/l/conv10"}
    assert "conv" not in entries[11].names[0]
    assert (entries[10].shape, entries[10].load().ravel().tolist()) == ((1, 1, 1, 2, 1, 3), [10] * 6)
    assert [entry.format for entry in entries.values()] == ["raw"] * 4
    assert any("integer codes" in note for note in found.notes)
    assert any("two names" in note for note in found.notes)
    with pytest.raises(DumpError, match="int8"):  # codes without a scale are never compared with real values
        read(entries[12], FLOAT, (1, 2, 1, 3))


# ---- VeriSilicon, AMD, TFLite ----------------------------------------------------------------------------------------------
def test_texts_of_acuity_have_their_shape_in_the_name(tmp_path: Path) -> None:
    (tmp_path / "iter_0_Conv_conv1_12_out0_nchw_1_2_3.tensor").write_text("0\n1\n2\n3\n4\n5\n")
    (tmp_path / "iter_0_Conv_conv1_12_out0_nchw_1_2_3.qnt.tensor").write_text("0\n10\n20\n30\n40\n50\n")
    np.arange(6, dtype=np.float32).tofile(tmp_path / "iter_0_Relu_relu1_13_out0_1_2_3.tensor")
    found = catalogue(tmp_path)
    assert found.convention == "acuity"
    loaded = {entry.names[0]: entry.load(Expect(FLOAT, (6,))) for entry in found.entries}
    assert {name: (values.shape, values.ravel().tolist()) for name, values in loaded.items()} == {
        name: ((1, 2, 3), [0, 1, 2, 3, 4, 5]) for name in ("conv1.0", "relu1.0")
    }


def test_codes_of_quark_are_one_byte_in_spite_of_their_name(tmp_path: Path) -> None:
    np.array([3, 200], np.uint8).tofile(tmp_path / "a_QuantizeLinear_Output_float.bin")
    (tmp_path / "a_QuantizeLinear_Output_float.txt").write_text("3\n200\n")
    np.array([1.5, 2], np.float32).tofile(tmp_path / "a_float.bin")
    found = catalogue(tmp_path)
    assert found.convention == "quark"
    codes, real = (next(e for e in found.entries if e.key == f"a{middle}_float.bin") for middle in ("_QuantizeLinear_Output", ""))
    assert (codes.view, codes.load(Expect(np.dtype(np.uint8), (2,))).tolist()) == ("codes", [3, 200])
    assert (real.names[0], real.load(Expect(FLOAT, (2,))).tolist()) == ("a", [1.5, 2])


def test_details_of_an_interpreter_give_scales_and_order(tmp_path: Path) -> None:
    names = ["m/Relu;m/Conv", "m/Add"]
    np.savez(tmp_path / "t.npz", **{names[0]: np.array([1, 2], np.int8), names[1]: np.array([1, 2], np.int8)})
    params = {"scales": [0.5], "zero_points": [-1], "quantized_dimension": 0}
    details = [
        {"name": names[1], "index": 7, "scale": 2.0, "zero_point": 0},
        {"name": names[0], "index": 3, "quantization_parameters": params},
    ]
    (tmp_path / "tensor_details.json").write_text(json.dumps(details))
    found = by_key(catalogue(tmp_path))
    assert [(found[name].order, read(found[name], FLOAT, (2,)).tolist()) for name in names] == [(3, [1.0, 1.5]), (7, [2.0, 4.0])]


# ---- types that no header has ----------------------------------------------------------------------------------------------
def test_bits_of_bfloat16_and_float8_in_integers(tmp_path: Path) -> None:
    values = np.array([1.5, -2, 0.25, 8])
    items = []
    for name, kind, stored in (
        ("a", "bfloat16", "u2"),
        ("b", "bfloat16", "i2"),
        ("c", "float8_e4m3fn", "u1"),
        ("d", "float8_e5m2", "i1"),
    ):
        np.save(tmp_path / f"{name}.npy", values.astype(getattr(ml_dtypes, kind)).view(stored))
        items.append({"file": f"{name}.npy", "name": name, "dtype": kind, "shape": [4]})
        values.astype(getattr(ml_dtypes, kind)).tofile(tmp_path / f"{name}.bin")
        items.append({"file": f"{name}.bin", "name": f"raw_{name}", "dtype": kind, "shape": [4]})
    (tmp_path / "manifest.json").write_text(json.dumps({"tensors": items}))
    for entry in catalogue(tmp_path).entries:
        np.testing.assert_array_equal(entry.load().astype(np.float64), values)
        assert entry.dtype == entry.load().dtype


def test_uint16_of_tpu_mlir_is_bfloat16(tmp_path: Path) -> None:
    values = np.array([[1.5, -2], [3, 4]]).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "m_bm1684x_bf16_tpu_outputs.npz", a_Conv=values.view(np.uint16), b_Relu=np.zeros(2, np.float32))
    found = catalogue(tmp_path)
    assert found.convention == "tpu-mlir"
    loaded = by_key(found)["a_Conv"].load()
    assert loaded.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(loaded, values)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["int4", "uint4", "int2", "uint2"]), st.integers(2, 9), st.integers(0, 99))
def test_packed_integers_begin_in_the_low_bits(
    tmp_path_factory: pytest.TempPathFactory, kind: str, count: int, seed: int
) -> None:
    bits = int(kind[-1])
    low = -(1 << bits - 1) if kind.startswith("i") else 0
    values = np.random.default_rng(seed).integers(low, low + (1 << bits), count)
    whole = sum(int(value) % (1 << bits) << bits * place for place, value in enumerate(values))
    folder = tmp_path_factory.mktemp("dump")
    (folder / "x.bin").write_bytes(whole.to_bytes(-(-count * bits // 8), "little"))
    (folder / "manifest.json").write_text(json.dumps([{"file": "x.bin", "name": "x", "dtype": kind, "shape": [count]}]))
    entry = one(folder)
    assert (entry.dtype, entry.load().astype(int).tolist()) == (np.dtype(getattr(ml_dtypes, kind)), values.tolist())


# ---- torch.save ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def torch_save() -> Callable[..., bytes]:
    """What torch.save writes, without torch: stand-ins of its names, the same pickle, the same zip."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    exec("def _rebuild_tensor_v2(*arguments): ...", utils.__dict__)
    for word in ("Float", "Half", "Long", "BFloat16", "Bool"):
        setattr(torch, f"{word}Storage", type(f"{word}Storage", (), {"__module__": "torch"}))

    class Tensor:
        def __init__(self, array: Array, word: str) -> None:
            self.array, self.word = array, word

    class Pickler(pickle.Pickler):
        def __init__(self, stream: io.BytesIO, protocol: int) -> None:
            super().__init__(stream, protocol)
            self.storages: list[bytes] = []

        def persistent_id(self, value: Any) -> Any:
            if isinstance(value, tuple) and value and value[0] == "storage!":
                self.storages.append(value[2])
                return ("storage", getattr(torch, f"{value[1]}Storage"), str(len(self.storages) - 1), "cpu", value[3])
            return None

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, Tensor):
                array = value.array
                strides = tuple(step // array.itemsize for step in array.strides)
                base = array.base if isinstance(array.base, np.ndarray) else array
                storage = ("storage!", value.word, base.tobytes(), base.size)
                return utils._rebuild_tensor_v2, (storage, 0, array.shape, strides, False, OrderedDict())
            return NotImplemented

    def save(value: Any, protocol: int = 2) -> bytes:
        def dressed(item: Any) -> Any:
            if isinstance(item, dict):
                return OrderedDict((key, dressed(one)) for key, one in item.items())
            if isinstance(item, list):
                return [dressed(one) for one in item]
            if isinstance(item, np.ndarray):
                word = {"float32": "Float", "float16": "Half", "int64": "Long", "bfloat16": "BFloat16", "bool": "Bool"}[
                    item.dtype.name
                ]
                return Tensor(item, word)
            return item

        saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
        sys.modules |= {"torch": torch, "torch._utils": utils}
        try:
            stream = io.BytesIO()
            pickler = Pickler(stream, protocol)
            pickler.dump(dressed(value))
        finally:
            for name, module in saved.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("archive/data.pkl", stream.getvalue())
            archive.writestr("archive/byteorder", "little")
            for number, data in enumerate(pickler.storages):
                archive.writestr(f"archive/data/{number}", data)
        return out.getvalue()

    return save


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["f4", "f2", "i8", "?"]), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), st.integers(2, 5)
)
def test_tensors_of_torch(
    tmp_path_factory: pytest.TempPathFactory, torch_save: Callable[..., bytes], kind: str, shape: tuple[int, ...], protocol: int
) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    nested = {
        "layer.0/conv": array,
        "more": [np.asarray(array + array), {"half": np.ones(3, ml_dtypes.bfloat16)}],
        "epoch": 3,
        "name": "x",
    }
    found = by_key(catalogue(fresh(tmp_path_factory, "d.pt", torch_save(nested, protocol))))
    assert found.keys() == {"layer.0/conv", "more.0", "more.1.half"}
    for name, wanted in (("layer.0/conv", array), ("more.0", array + array)):
        loaded = found[name].load()
        assert (loaded.dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(loaded, wanted)
    assert found["more.1.half"].load().dtype == ml_dtypes.bfloat16


def test_one_tensor_a_file_and_views_with_strides(tmp_path: Path, torch_save: Callable[..., bytes]) -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (tmp_path / "conv1.out.pt").write_bytes(torch_save(turned))
    entry = one(tmp_path)
    assert (entry.key, entry.names[0]) == ("conv1.out.pt", "conv1.out")
    np.testing.assert_array_equal(entry.load(), turned)


class Evil:
    def __reduce__(self) -> Any:
        import os

        return os.mkdir, ("executed",)


@pytest.mark.parametrize("value", [Evil(), {"a": Evil()}, [print], complex, {"x": {1, 2}}])
def test_nothing_in_a_file_of_torch_is_ever_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_save: Callable[..., bytes], value: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pt").write_bytes(torch_save(value))
    with pytest.raises(DumpError, match="never loaded"):
        catalogue(tmp_path / "x.pt")
    assert not (tmp_path / "executed").exists()


def test_a_tensor_beyond_its_storage_is_told(tmp_path: Path, torch_save: Callable[..., bytes]) -> None:
    good = torch_save({"a": np.zeros(4, np.float32), "b": np.ones(4, np.float32)})
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as source, zipfile.ZipFile(stream, "w") as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member)[: 8 if member.filename.endswith("data/0") else None])
    (tmp_path / "x.pt").write_bytes(stream.getvalue())
    found = catalogue(tmp_path)
    assert [entry.names[0] for entry in found.entries] == ["b"]
    assert "beyond" in found.problems[0].reason


# ---- damage ----------------------------------------------------------------------------------------------------------------
def load_all(path: Path, convention: str) -> None:
    try:
        found = catalogue(path, load(convention))
    except DumpError:
        return
    for entry in found.entries:
        for expect in (None, Expect(FLOAT, (2, 3))):
            try:
                entry.load(expect)
            except DumpError:
                continue


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(["pt", "ieb", "text", "qnn", "tidl", "csv"]), st.data())
def test_damage_raises_nothing_but_dump_error(
    tmp_path_factory: pytest.TempPathFactory, torch_save: Callable[..., bytes], kind: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    trace = "tidl_trace_subgraph_0_0001_0001_0001_00001_00002_000003x00001_float.bin"
    a = {"dims": [1, 2, 3], "data_type": 1032, "quant_params": {"scale_offset": {"scale": 0.5, "offset": -10}}}
    samples: dict[str, tuple[str, str, bytes]] = {
        "pt": ("generic", "x.pt", torch_save({"a": np.zeros(4, np.float32), "b": [np.ones((2, 3), np.int64)]})),
        "ieb": ("openvino", "#1_Relu_a_out0.ieb", blob(10, np.zeros((2, 3), np.float32))),
        "text": ("nncase", "Runtime/1$conv", data.draw(st.sampled_from(HEADS))[0].encode() + b"0\n1\n2\n3\n4\n5\n"),
        "qnn": ("qnn", "m_net.json", net(a=a).encode()),
        "tidl": ("tidl", "m.layer_info.txt", b"1 1 /l/conv1\n10 10 /l/conv10\n"),
        "csv": ("ascend-msaccucmp", "mapping.csv", b'123,"Relu.a.1.1.1796042114887486"\n'),
    }
    convention, name, content = samples[kind]
    damaged = bytearray(content)
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
    for place, bytes_ in (
        (name, bytes(damaged)),
        (trace, bytes(24)),
        ("Result_0/a_native.raw", bytes(6)),
        ("123.output.0.npy", b""),
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(bytes_)
    load_all(folder, convention)
