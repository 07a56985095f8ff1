"""Which tensors steer and which hold indices."""

from __future__ import annotations

import numpy as np
import pytest
from graph_strategies import model, value
from onnx import TensorProto, helper, numpy_helper

from bisect_align.model.graph import Node, graph_of
from bisect_align.model.parameters import indices, never_fed, shape_parameters

make = helper.make_node


def node(op: str, count: int, domain: str = "") -> Node:
    inputs = tuple("abcdefghijkl"[:count])
    return Node(0, "", op, domain, inputs, ("y",), (), make(op, inputs, ["y"], domain=domain))


@pytest.mark.parametrize(
    ("op", "count", "steering"),
    [
        ("Reshape", 2, "b"), ("Slice", 5, "bcde"), ("Resize", 4, "bcd"), ("Expand", 2, "b"), ("Tile", 2, "b"),
        ("Pad", 4, "bd"), ("TopK", 2, "b"), ("ReduceSum", 2, "b"), ("ReduceSum", 1, ""), ("Squeeze", 2, "b"),
        ("Unsqueeze", 2, "b"), ("Range", 3, "abc"), ("ConstantOfShape", 1, "a"), ("OneHot", 3, "b"), ("Split", 2, "b"),
        ("CumSum", 2, "b"), ("Trilu", 2, "b"), ("DFT", 3, "bc"), ("Loop", 4, "ab"), ("If", 1, "a"), ("Clip", 3, ""),
        ("QuantizeLinear", 3, "bc"), ("DequantizeLinear", 3, "bc"), ("QLinearConv", 9, "bcefgh"), ("QLinearMatMul", 8, "bcefgh"),
        ("QLinearConcat", 8, "abdegh"), ("Add", 2, ""), ("Conv", 3, ""), ("Upsample", 2, "b"), ("Where", 3, ""),
    ],
)  # fmt: skip
def test_steering_inputs(op: str, count: int, steering: str) -> None:
    assert shape_parameters(node(op, count)) == set(steering)


@pytest.mark.parametrize(
    ("op", "count", "domain", "held"),
    [
        ("Gather", 2, "", "b"), ("GatherND", 2, "", "b"), ("ScatterElements", 3, "", "b"), ("OneHot", 3, "", "a"),
        ("Add", 2, "", ""), ("RotaryEmbedding", 4, "com.microsoft", "b"), ("RotaryEmbedding", 4, "", "d"),
    ],
)  # fmt: skip
def test_index_inputs(op: str, count: int, domain: str, held: str) -> None:
    assert indices(node(op, count, domain)) == set(held)


def test_the_walk_goes_up_to_the_shape_and_stops_there() -> None:
    nodes = [
        make("Neg", ["x"], ["a"]), make("Shape", ["a"], ["s"]), make("Gather", ["s", "zero"], ["d"]),
        make("Mul", ["d", "two"], ["e"]), make("Concat", ["e", "minus"], ["to"], axis=0), make("Reshape", ["a", "to"], ["y"]),
    ]  # fmt: skip
    weights = [
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([2]), "two"),
        numpy_helper.from_array(np.array([-1]), "minus"),
    ]
    graph = graph_of(model(nodes, [value("x", shape=(4, 100))], [value("y", shape=None)], weights))
    assert never_fed(graph) == {"s", "d", "e", "to"}


def test_small_floats_of_a_shape_are_walked_through() -> None:
    nodes = [
        make("Shape", ["x"], ["s"]), make("Cast", ["s"], ["f"], to=TensorProto.FLOAT), make("Mul", ["f", "half"], ["g"]),
        make("Cast", ["g"], ["to"], to=TensorProto.INT64), make("Expand", ["a", "to"], ["y"]),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(np.array(0.5, np.float32), "half")]
    graph = graph_of(model(nodes, [value("x", shape=(4, 100)), value("a", shape=(1, 1))], [value("y", shape=None)], weights))
    assert never_fed(graph) == {"s", "f", "g", "to"}


def test_floats_computed_from_data_are_data_however_small() -> None:
    """A score that is compared with a threshold to choose a branch is a result of the model, and is judged."""
    nodes = [
        make("Neg", ["x"], ["large"]), make("ReduceMax", ["large"], ["small"], keepdims=0),
        make("Cast", ["small"], ["n"], to=TensorProto.INT64), make("Reshape", ["n", "one"], ["k"]),
        make("TopK", ["x", "k"], ["y", ""]),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(np.array([1]), "one")]
    graph = graph_of(model(nodes, [value("x", shape=(1000,))], [value("y", shape=None)], weights))
    assert never_fed(graph) == {"n", "k"}


def test_steering_inside_bodies_reaches_out() -> None:
    body = helper.make_graph(
        [make("Reshape", ["state", "size"], ["a"]), make("Reshape", ["a", "carried"], ["next"]),
         make("Identity", ["carried"], ["c2"]), make("Identity", ["go"], ["still"])],
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("state"),
         value("carried", TensorProto.INT64, (1,))],
        [value("still", TensorProto.BOOL, ()), value("next"), value("c2", TensorProto.INT64, (1,))],
    )  # fmt: skip
    nodes = [
        make("Shape", ["x"], ["size"]), make("Identity", ["size"], ["also"]), make("Neg", ["x"], ["v"]),
        make("Loop", ["n", "", "v", "also"], ["y", "z"], body=body),
    ]  # fmt: skip
    graph = graph_of(model(nodes, [value("x")], [value("y")], [numpy_helper.from_array(np.array(2), "n")]))
    assert never_fed(graph) == {"size", "also"}
