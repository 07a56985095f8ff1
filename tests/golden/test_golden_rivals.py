"""Nodes that are not the model's: run with its constants and functions, never an error, never a change to what the engine says."""

from __future__ import annotations

import numpy as np
import pytest
from golden_graphs import make, node, same
from onnx import TensorProto, helper

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)
BIG = np.random.default_rng(2).standard_normal((6, 9000)).astype(np.float32)  # handed to ONNX Runtime beside the model


def engine(opset: int = 13) -> SegmentEngine:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"], axis=0)]
    return SegmentEngine(make(nodes, constants={"w": W, "big": BIG}, opset=opset))


def test_the_models_own_nodes_give_the_models_own_bits() -> None:
    of = engine()
    own = of.replay([0, 1], {"x": X}, ["m", "y"])
    tried = of.try_nodes([n.proto for n in of._graph.nodes], {"x": X}, ["m", "y"])
    assert all(same(own[name], tried[name]) for name in own)


def test_other_attributes_inputs_and_names() -> None:
    nodes = [node("MatMul", ["x", "big"], ["new"]), node("Transpose", ["new"], ["y"])]
    tried = engine().try_nodes(nodes, {"x": X}, ["new", "y"])
    np.testing.assert_allclose(tried["y"], (X @ BIG).T, rtol=1e-4, atol=1e-4)


def test_another_opset() -> None:
    of, soft = engine(), node("Softmax", ["m"], ["y"], axis=0)
    flat = of.try_nodes([soft], {"m": X}, ["y"], opset=11)["y"]
    np.testing.assert_allclose(flat, np.exp(X) / np.exp(X).sum(), rtol=1e-5)
    np.testing.assert_allclose(of.try_nodes([soft], {"m": X}, ["y"])["y"], np.exp(X) / np.exp(X).sum(0), rtol=1e-5)


def test_a_feed_wins_over_a_constant() -> None:
    tried = engine().try_nodes([node("MatMul", ["x", "w"], ["m"])], {"x": X, "w": 2 * W}, ["m"])["m"]
    np.testing.assert_allclose(tried, 2 * X @ W, rtol=1e-4, atol=1e-5)


def test_an_output_may_have_another_type_than_the_models() -> None:
    tried = engine().try_nodes([node("Cast", ["x"], ["m"], to=TensorProto.INT32)], {"x": X}, ["m"])["m"]
    assert isinstance(tried, np.ndarray)
    assert tried.dtype == np.int32


@pytest.mark.parametrize(
    "nonsense",
    [
        node("MatMul", ["x", "x"], ["m"]),
        node("NoSuchOperator", ["x"], ["m"]),
        node("Softmax", ["x"], ["m"], axis=7),
        node("Relu", ["nowhere"], ["m"]),
        node("Relu", ["x"], ["elsewhere"]),
        node("Relu", ["x", "w"], ["m"]),
        helper.make_node("Conv", ["x", "w"], ["m"], pads=[-1]),
    ],
)
def test_nonsense_is_unavailable_with_a_reason(nonsense: object) -> None:
    of = engine()
    tried = of.try_nodes([nonsense], {"x": X}, ["m"])["m"]  # type: ignore[list-item]
    assert isinstance(tried, Unavailable)
    assert tried.reason


def test_the_engine_is_left_as_it_was_and_counts() -> None:
    of = engine()
    before = of.replay([0, 1], {"x": X}, ["y"])["y"]
    runs = of.counters.node_runs
    of.try_nodes([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    assert of.counters.node_runs == runs + 1
    assert same(before, of.replay([0, 1], {"x": X}, ["y"])["y"])
