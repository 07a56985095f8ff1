"""Cutting regions through onnx-graphsurgeon: valid stand-alone models, same bits, nothing edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_strategies import dags, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bisect_align.errors import ModelError
from bisect_align.model.cut import cut
from bisect_align.model.graph import TensorType, graph_of
from bisect_align.model.load import load
from bisect_align.model.region import region
from bisect_align.model.segment import segment

make = helper.make_node


def session(source: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(source.SerializeToString(), options)


@given(dags(most=8), st.data())
@settings(max_examples=20, deadline=None)
def test_a_cut_is_valid_and_computes_what_its_segment_computes(source: onnx.ModelProto, data: st.DataObject) -> None:
    before = source.SerializeToString()
    graph = graph_of(source)
    if not graph.tensors:
        return
    observed = data.draw(st.sets(st.sampled_from(graph.tensors)))
    part = region(graph, data.draw(st.sampled_from(graph.tensors)), observed)
    alone = cut(source, graph, part)
    onnx.checker.check_model(alone, full_check=True)
    assert source.SerializeToString() == before
    assert [i.name for i in alone.graph.input] == list(part.boundary)
    rng = np.random.default_rng(1)
    feeds = {}
    for name in part.boundary:
        dtype = graph.types[name].dtype
        assert dtype is not None
        feeds[name] = rng.permutation(4).astype(dtype)
    plain = segment(graph, part.nodes, {name: array.dtype for name, array in feeds.items()}, [part.output])
    np.testing.assert_array_equal(session(alone).run(None, feeds)[0], session(plain).run(None, feeds)[0])


def test_types_opsets_functions_and_metadata_are_kept(tmp_path: Path) -> None:
    twice = helper.make_function("my", "Twice", ["a"], ["b"], [make("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)])
    nodes = [make("Neg", ["x"], ["n"]), make("Twice", ["n"], ["t"], domain="my", name="the node"), make("Add", ["t", "w"], ["y"])]
    weight = numpy_helper.from_array(np.float32(3), "w")
    source = model(
        nodes, [value("x", shape=("rows", 4))], [value("y", shape=("rows", 4))], [weight], functions=[twice], domains=("my",)
    )
    source.metadata_props.add(key="author", value="me")
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    graph = load(path).graph
    alone = cut(path, graph, region(graph, "y", {"n"}))
    assert {(o.domain, o.version) for o in alone.opset_import} == {("", 17), ("my", 1)}
    assert alone.ir_version == source.ir_version
    assert [f.name for f in alone.functions] == ["Twice"]
    assert alone.metadata_props[0].value == "me"
    assert [n.name for n in alone.graph.node][:1] == ["the node"]
    assert [d.dim_param or d.dim_value for d in alone.graph.input[0].type.tensor_type.shape.dim] == ["rows", 4]
    np.testing.assert_array_equal(session(alone).run(None, {"n": np.ones((2, 4), np.float32)})[0], np.full((2, 4), 5))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_a_half_model_is_cut_as_it_is_or_up_cast(tmp_path: Path, kind: int) -> None:
    weight = helper.make_tensor("w", kind, [4], [0.5, 1, 2, 4])
    nodes = [make("Add", ["x", "w"], ["a"]), make("Cast", ["a"], ["b"], to=kind), make("Mul", ["b", "w"], ["y"])]
    source = model(nodes, [value("x", kind)], [value("y", kind)], [weight])
    path = tmp_path / "m.onnx"
    path.write_bytes(source.SerializeToString())
    graph = load(path).graph
    part = region(graph, "y", {"a"})
    raw = cut(path, graph, part)
    assert raw.graph.input[0].type.tensor_type.elem_type == kind
    assert raw.graph.initializer[0].data_type == kind
    assert [n.op_type for n in raw.graph.node] == ["Cast", "Mul"]
    onnx.checker.check_model(raw, full_check=True)
    wide = cut(None, graph, part)
    fed = np.array([1 / 3, 1 / 7, 1 / 11, 1 / 13], np.float32)
    rounded = fed.astype(np.dtype(helper.tensor_dtype_to_np_dtype(kind))).astype(np.float32)
    np.testing.assert_array_equal(session(wide).run(None, {"a": fed})[0], rounded * np.array([0.5, 1, 2, 4], np.float32))


def test_unknown_types_must_be_given(tmp_path: Path) -> None:
    nodes = [make("Odd", ["x"], ["o"], domain="odd"), make("Neg", ["o"], ["y"])]
    source = model(nodes, [value("x")], [value("y")], domains=("odd",))
    graph = graph_of(source)
    part = region(graph, "y", {"o"})
    with pytest.raises(ModelError, match=r"'o'.*not known"):
        cut(source, graph, part)
    alone = cut(source, graph, part, types={"o": TensorType(np.dtype("f4"), (4,))})
    assert alone.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 4
    with pytest.raises(ModelError, match="no tensor"):
        cut(model([make("Neg", ["x"], ["z"])], [value("x")], [value("z")]), graph, part)
