"""The second opinion agrees where both are right, and is not asked where it is known to be wrong or would take long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import mixed, model_of, node, normal

from bisect_align.golden.opinion import NODES_MOST, Opinion, second_opinion
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.graph import graph_of

Array = NDArray[Any]
NORM = {"s": 1 + normal(4, 3), "b": normal(5, 3), "m": normal(6, 3), "v": 1 + normal(7, 3) ** 2}
GATES = {"w": normal(8, 1, 16, 3), "r": normal(9, 1, 16, 4)}


def asked(model: onnx.ModelProto, x: Array, sizes: Mapping[str, int] | None = None) -> tuple[Opinion, Array]:
    graph = graph_of(model)
    nodes = range(len(graph.nodes))
    golden = SegmentEngine(graph).replay(nodes, {"x": x}, [graph.tensors[-1]])[graph.tensors[-1]]
    assert not isinstance(golden, Unavailable)
    return second_opinion(graph, nodes, {"x": x}, graph.tensors[-1], sizes or {}), golden


def of_node(proto: onnx.NodeProto, x: Array, weights: Mapping[str, Array], opset: int = 21) -> tuple[Opinion, Array]:
    used = {k: v for k, v in weights.items() if k in proto.input}
    return asked(model_of([proto], {"x": x.shape}, weights=used, opset=opset), x)


@pytest.mark.parametrize(
    ("proto", "x", "weights", "opset"),
    [
        (node("Conv", "x k", "y", pads=[1, 1, 1, 1]), normal(0, 1, 3, 8, 8), {"k": normal(1, 4, 3, 3, 3)}, 21),
        (node("BatchNormalization", "x s b m v", "y"), normal(0, 2, 3, 4, 4), NORM, 15),
        (node("Softmax", "x", "y"), normal(0, 4, 6), {}, 13),
        (node("LSTM", "x w r", "y", hidden_size=4), normal(0, 5, 2, 3), GATES, 21),
        (node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1, 1, 1, 1]), normal(0, 1, 2, 6, 6), {}, 21),
    ],
)
def test_it_agrees_in_float64(proto: onnx.NodeProto, x: Array, weights: Mapping[str, Array], opset: int) -> None:
    opinion, golden = of_node(proto, x, weights, opset)
    assert opinion.by.endswith("in float64")
    assert not isinstance(opinion.value, Unavailable)
    assert opinion.value.dtype == np.float64
    np.testing.assert_allclose(opinion.value, golden, rtol=1e-4, atol=1e-5)


def test_a_chain_is_run_as_one() -> None:
    x = normal(0, 8, 24)
    opinion, golden = asked(mixed(2), x)
    assert not isinstance(opinion.value, Unavailable)
    np.testing.assert_allclose(opinion.value, golden, rtol=1e-4, atol=1e-5)


def test_integers_are_asked_for_in_float32() -> None:
    """In float64 a tie is none any more."""
    x = (np.arange(60, dtype=np.float32) - 30) * np.float32(0.05)
    opinion, golden = of_node(node("QuantizeLinear", "x s z", "y"), x, {"s": np.float32(0.1), "z": np.uint8(100)})
    assert opinion.by.endswith("in float32")
    assert np.array_equal(opinion.value, golden)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("proto", "x", "weights", "opset", "why"),
    [
        (node("Softmax", "x", "y"), normal(0, 4, 6), {}, 12, "before opset 13"),
        (node("LRN", "x", "y", size=3), normal(0, 1, 4, 4, 4), {}, 21, "as many channels as there are images"),
        (node("BatchNormalization", "x s b m v", "y"), normal(0, 2, 3, 4, 4), NORM, 13, "before opset 14"),
        (node("LSTM", "x w r", "y", hidden_size=4, direction="reverse"), normal(0, 5, 2, 3), GATES, 21, "ignores the direction"),
        (node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[0, 0, 1, 1]), normal(0, 1, 2, 6, 6), {}, 21, "pads that differ"),
        (node("GridSample", "x g", "y", mode="bilinear"), normal(0, 1, 2, 4, 4), {"g": normal(1, 1, 3, 3, 2)}, 16, "cannot run"),
    ],
)
def test_it_is_not_heard_where_it_is_wrong(
    proto: onnx.NodeProto, x: Array, weights: Mapping[str, Array], opset: int, why: str
) -> None:
    opinion, _ = of_node(proto, x, weights, opset)
    assert isinstance(opinion.value, Unavailable)
    assert why in opinion.value.reason


def test_it_is_not_asked_what_would_take_long() -> None:
    model = model_of([node("MaxPool", "x", "y", kernel_shape=[3, 3])], {"x": (1, 2, 6, 6)})
    x = normal(0, 1, 2, 6, 6)
    assert not isinstance(asked(model, x, {"y": 32})[0].value, Unavailable)
    opinion, _ = asked(model, x, {"y": 1 << 20})
    assert isinstance(opinion.value, Unavailable)
    assert "would take it seconds" in opinion.value.reason


def test_a_long_region_is_not_put_to_it() -> None:
    opinion, _ = asked(mixed(NODES_MOST), normal(0, 8, 24))
    assert isinstance(opinion.value, Unavailable)
    assert "nodes" in opinion.value.reason
