"""Reading files: external data, refusals in one line, warnings."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_strategies import model, value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bisect_align.errors import ModelError
from bisect_align.model.load import load

make = helper.make_node


def external(folder: Path, location: str = "weights.bin", *, offset: int = 0, length: int | None = None) -> Path:
    """A model y = x + w whose w lies in a file."""
    source = model([make("Add", ["x", "w"], ["y"])], [value("x")], [value("y")])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)} | ({} if length is None else {"length": str(length)})
    for key, text in entries.items():
        tensor.external_data.add(key=key, value=text)
    source.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(source.SerializeToString())
    return path


@pytest.mark.parametrize(("offset", "length"), [(0, None), (8, 16)])
def test_external_data_is_read_on_demand(tmp_path: Path, offset: int, length: int | None) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(values.tobytes())
    loaded = load(external(tmp_path, offset=offset, length=length))
    assert not loaded.graph.constants["w"].raw_data
    np.testing.assert_array_equal(loaded.graph.constant("w"), values[offset // 4 :][:4])
    inside = loaded.graph.initializer("w")
    np.testing.assert_array_equal(numpy_helper.to_array(inside), values[offset // 4 :][:4])


def test_external_data_in_a_sub_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(16))
    assert not load(external(tmp_path, "data/w.bin")).graph.constant("w").any()


@pytest.mark.parametrize(
    "location", ["../w.bin", "data/../../w.bin", "/etc/passwd", "C:\\w.bin", "\\\\host\\w.bin", "", "data/.."]
)
def test_paths_out_of_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(ModelError) as caught:
        load(external(inner, location))
    assert "model.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "weights.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="leads out"):
        load(external(inner))


def test_missing_and_short_external_files_are_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    with pytest.raises(ModelError, match=r"weights\.bin.*missing"):
        load(path)
    (tmp_path / "weights.bin").write_bytes(bytes(15))
    with pytest.raises(ModelError, match=r"weights\.bin.*16 bytes"):
        load(path)


def test_external_tensors_inside_bodies_and_constants(tmp_path: Path) -> None:
    def away(name: str) -> TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="w.bin")
        return tensor

    body = helper.make_graph([make("Add", ["x", "inner"], ["o"])], "body", [], [value("o")], [away("inner")])
    nodes = [
        make("If", ["cond"], ["a"], then_branch=body, else_branch=body),
        make("Constant", [], ["k"], value=away("")),
        make("Add", ["a", "k"], ["y"]),
    ]
    source = model(nodes, [value("x")], [value("y")], [numpy_helper.from_array(np.array(True), "cond")])
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    (tmp_path / "w.bin").write_bytes(np.full(4, 2, np.float32).tobytes())
    graph = load(tmp_path / "m.onnx").graph
    np.testing.assert_array_equal(graph.constant("k"), np.full(4, 2))
    tensor = graph.nodes[0].proto.attribute[0].g.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.full(4, 2))


def test_packed_and_odd_types_in_external_files(tmp_path: Path) -> None:
    source = model([make("Identity", ["x"], ["y"])], [value("x")], [value("y")], opset=21, ir=10)
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    source.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    (tmp_path / "w.bin").write_bytes(bytes([0x21, 0x0F]))
    graph = load(tmp_path / "m.onnx").graph
    assert graph.constant("w").astype(int).tolist() == [1, 2, -1]
    assert numpy_helper.to_array(graph.initializer("w")).astype(int).tolist() == [1, 2, -1]


def test_a_healthy_model_says_who_it_is(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([make("Neg", ["x"], ["y"])], [value("x")], [value("y")]).SerializeToString())
    loaded = load(path)
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.path == path
    assert loaded.warnings == ()
    assert loaded.graph.upcast_from is None


def test_checker_findings_are_warnings(tmp_path: Path) -> None:
    nodes = [make("Neg", ["a"], ["y"]), make("Neg", ["x"], ["a"])]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, [value("x")], [value("y")]).SerializeToString())
    loaded = load(path)
    assert len(loaded.warnings) == 1
    assert "checker" in loaded.warnings[0]
    assert "\n" not in loaded.warnings[0]
    assert loaded.graph.tensors == ("a", "y")


def whole() -> bytes:
    weight = numpy_helper.from_array(np.arange(400, dtype=np.float32), "w")
    return model(
        [make("Add", ["x", "w"], ["y"])], [value("x", shape=(400,))], [value("y", shape=(400,))], [weight]
    ).SerializeToString()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"hello, this is text\n" * 10, "no ONNX model"),
        (b"{}", "text file"),
        (b"\x00" * 100, "no ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"PK\x03\x04" + b"\x00" * 50, "PyTorch"),
        (whole()[:-300], "no ONNX model, or is truncated"),
        (whole()[: len(whole()) // 2], "truncated"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no ONNX model"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_every_truncation_is_refused_or_reads(tmp_path: Path) -> None:
    full = whole()
    path = tmp_path / "m.onnx"
    for stop in range(0, len(full), 37):
        path.write_bytes(full[:stop])
        with pytest.raises(ModelError):
            load(path)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(whole())
    with pytest.raises(ModelError, match=r"folder.*net\.onnx"):
        load(tmp_path)
    with pytest.raises(ModelError, match="no such"):
        load(tmp_path / "other.onnx")
    with pytest.raises(ModelError, match=str(tmp_path)):
        load(tmp_path / "net.onnx" / "deeper")


def test_values_that_do_not_fit_their_dims(tmp_path: Path) -> None:
    source = onnx.ModelProto.FromString(whole())
    source.graph.initializer[0].dims[:] = [1 << 50]
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    graph = load(path).graph
    with pytest.raises(ModelError, match="do not fit"):
        graph.constant("w")


def test_refusals_name_file_and_node(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model([make("Neg", ["gone"], ["y"], name="n1")], [value("x")], [value("y")]).SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx.*n1.*gone"):
        load(path)


@given(st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_bytes_give_a_graph_or_a_model_error(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    kind = TensorProto.FLOAT16
    body = helper.make_graph([make("Cast", ["x"], ["o"], to=kind)], "b", [], [value("o", kind)])
    nodes = [
        make("Constant", [], ["v"], value_ints=[1, 2]),
        make("If", ["c"], ["t"], then_branch=body, else_branch=body),
        make("Add", ["t", "w"], ["y"]),
    ]
    weights = [helper.make_tensor("w", kind, [4], [1, 2, 3, 4]), numpy_helper.from_array(np.array(True), "c")]
    content = bytearray(model(nodes, [value("x")], [value("y", kind)], weights).SerializeToString())
    for place, byte in changes:
        content[place % len(content)] = byte
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        graph = load(path).graph
        for name in graph.constants:
            graph.constant(name)
