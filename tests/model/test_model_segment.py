"""Segments: any cut of the node list into models gives the same bits when the pieces run one after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_strategies import dags, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.segment import segment

make = helper.make_node


def run(source: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, NDArray[Any]]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(source.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def piece(graph: Graph, nodes: list[int], values: dict[str, Any]) -> dict[str, NDArray[Any]]:
    made = {name for index in nodes for name in graph.nodes[index].makes}
    reads = {name for index in nodes for name in graph.nodes[index].reads} - made - set(graph.constants)
    feeds = {name: values[name] for name in sorted(reads)}
    wanted = [name for index in nodes for name in graph.nodes[index].makes]
    return run(segment(graph, nodes, {name: array.dtype for name, array in feeds.items()}, wanted), feeds)


@given(dags(most=8), st.data())
@settings(max_examples=25, deadline=None)
def test_random_cuts_compose(source: onnx.ModelProto, data: st.DataObject) -> None:
    graph = graph_of(source)
    if not graph.nodes:
        return
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=4).astype(np.float32) for name in ("x0", "x1")}
    whole = run(segment(graph, range(len(graph.nodes)), {n: np.dtype("f4") for n in feeds}, graph.tensors), feeds)
    nameless = onnx.ModelProto()
    nameless.CopyFrom(source)
    for node in nameless.graph.node:
        node.name = ""  # ONNX Runtime refuses repeated node names; segments do without them
    plain = run(nameless, feeds)
    cuts = data.draw(st.sets(st.integers(1, len(graph.nodes))))
    values: dict[str, Any] = dict(feeds)
    for start, stop in pairwise(sorted({0, *cuts, len(graph.nodes)})):
        values.update(piece(graph, list(range(start, stop)), values))
    for name in graph.tensors:
        np.testing.assert_array_equal(values[name], whole[name])
    for name, array in plain.items():
        np.testing.assert_array_equal(values[name] if name in values else graph.constant(name), array)


def chain() -> onnx.ModelProto:
    nodes = [make("Split", ["x"], ["a", "b"], axis=0), make("Mul", ["a", "w"], ["c"]), make("Add", ["c", "b"], ["y"])]
    weight = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    source = model(nodes, [value("x")], [value("y", shape=(2,))], [weight], opset=13)
    source.metadata_props.add(key="author", value="me")
    return source


def test_what_is_kept_and_what_is_not_edited() -> None:
    source = chain()
    before = source.SerializeToString()
    graph = graph_of(source)
    part = segment(graph, [1], {"a": np.dtype("f4")}, ["c", "w", "a"])
    assert [opset.version for opset in part.opset_import] == [13]
    assert part.metadata_props[0].key == "author"
    assert [tensor.name for tensor in part.graph.initializer] == ["w"]
    assert not part.graph.input[0].type.tensor_type.HasField("shape")
    assert set(run(part, {"a": np.ones(2, np.float32)})) == {"c", "w", "a"}
    part.graph.node[0].output[0] = "spoilt"
    assert source.SerializeToString() == before
    assert graph.nodes[1].proto.output[0] == "c"


def test_constants_can_be_inputs_or_references() -> None:
    graph = graph_of(chain())
    part = segment(graph, [1], {"a": np.dtype("f4")}, ["c"], as_inputs=["w"])
    assert [i.name for i in part.graph.input] == ["a", "w"]
    np.testing.assert_array_equal(run(part, {"a": np.ones(2, np.float32), "w": np.full(2, 5, np.float32)})["c"], [5, 5])
    part = segment(graph, [1], {"a": np.dtype("f4")}, ["c"], by_reference=4)
    assert part.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert not part.graph.initializer[0].raw_data


def test_a_feed_wins_over_the_node_that_makes_it() -> None:
    graph = graph_of(chain())
    part = segment(graph, [0, 1, 2], {"x": np.dtype("f4"), "b": np.dtype("f4")}, ["y"])
    x, b = np.arange(4, dtype=np.float32), np.array([10, 20], np.float32)
    np.testing.assert_array_equal(run(part, {"x": x, "b": b})["y"], x[:2] * [2, 3] + b)


def test_missing_feeds_are_refused() -> None:
    graph = graph_of(chain())
    with pytest.raises(ValueError, match="'c'"):
        segment(graph, [2], {"b": np.dtype("f4")}, ["y"])
    with pytest.raises(ValueError, match="'y'"):
        segment(graph, [1], {"a": np.dtype("f4")}, ["y"])


def test_sequences_keep_their_type() -> None:
    nodes = [make("SequenceConstruct", ["x", "x"], ["s"]), make("ConcatFromSequence", ["s"], ["y"], axis=0)]
    graph = graph_of(model(nodes, [value("x")], [value("y", shape=(8,))]))
    part = segment(graph, [1], {"s": np.dtype("f4")}, ["y"])
    assert part.graph.input[0].type.WhichOneof("value") == "sequence_type"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(part, {"s": [x, x]})["y"], np.concatenate([x, x]))


def test_local_functions_come_along() -> None:
    twice = helper.make_function("my", "Twice", ["a"], ["b"], [make("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)])
    nodes = [make("Twice", ["x"], ["t"], domain="my"), make("Neg", ["t"], ["y"])]
    graph = graph_of(model(nodes, [value("x")], [value("y")], functions=[twice], domains=("my",)))
    part = segment(graph, [0], {"x": np.dtype("f4")}, ["t"])
    np.testing.assert_array_equal(run(part, {"x": np.ones(4, np.float32)})["t"], np.full(4, 2))
