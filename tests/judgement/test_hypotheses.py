"""What is planted as a misread operator is named as that; an error that no misreading makes names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import bench_of, model_of, node, normal

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.hypotheses import MOST, hypotheses
from bisect_align.judgement.hypothesis_table import TABLE
from bisect_align.judgement.precision import BF16, FP32, INT8, Precision
from bisect_align.judgement.rival import Rival, Site
from bisect_align.model.region import Region, region

Array = NDArray[Any]


def image(*shape: int, seed: int = 0) -> Array:
    return normal(seed, *shape)


SQUARE = normal(1, 6, 6)
KERNEL = normal(2, 4, 3, 3, 3)
GRID = np.random.default_rng(3).uniform(-1.3, 1.3, (2, 5, 5, 2)).astype(np.float32)
NORM = {"s": 1 + normal(4, 3), "b": normal(5, 3), "m": normal(6, 3), "v": 1 + normal(7, 3) ** 2}
GATES = {"w": normal(8, 1, 16, 3), "r": normal(9, 1, 16, 4), "i": normal(10, 1, 32)}
POOL: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 0], "strides": [2, 2]}
POINTS = np.array([[1], [1], [-2]])
GRU = {"w": normal(8, 1, 12, 3), "r": normal(9, 1, 12, 4), "i": normal(10, 1, 24)}
RNN = {"w": normal(8, 1, 4, 3), "r": normal(9, 1, 4, 4), "i": normal(10, 1, 8)}
CODES = {"s": 1 + normal(0, 4) ** 2, "z": np.arange(1, 5, dtype=np.uint8)}
ROIS = {"o": np.float32([[1, 1, 7, 5], [0, 2, 4, 8]]), "n": np.zeros(2, np.int64)}
ROI: dict[str, Any] = {"output_height": 3, "output_width": 3, "sampling_ratio": 2}
PART = {"b": np.array([1, -3]), "e": np.array([6, 6]), "a": np.array([1, 0]), "t": np.array([2, 1])}
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Min", "Prod", "SumSquare")
FOUR = {"s": normal(1, 4), "b": normal(2, 4)}
CELLS = np.array([[1, -2], [0, 0]])
WIDE = np.array([5, 2**33 + 7, -3])
PADS = {"pads": np.array([0, 1, 2, 0])}

# One node of each kind that a misreading changes: node, x, constants, opset.
NODES: dict[str, tuple[onnx.NodeProto, Array, Mapping[str, Array], int]] = {
    "AveragePool": (node("AveragePool", "x", "y", **POOL, ceil_mode=1, count_include_pad=1), image(2, 3, 8, 8), {}, 13),
    "AveragePool auto": (node("AveragePool", "x", "y", kernel_shape=[4, 1], auto_pad="SAME_UPPER"), image(2, 3, 8, 8), {}, 19),
    "MaxPool": (node("MaxPool", "x", "y", kernel_shape=[3, 2], pads=[0, 0, 1, 1], strides=[2, 1]), image(1, 3, 7, 7) - 1, {}, 13),
    "Conv": (node("Conv", "x k b", "y", pads=[0, 1, 2, 1], dilations=[2, 1]), image(2, 3, 9, 9), {"k": KERNEL, "b": normal(0, 4)}, 21),
    "ConvTranspose": (node("ConvTranspose", "x k", "y", auto_pad="SAME_LOWER", strides=[2, 2]), image(1, 4, 5, 5), {"k": KERNEL}, 21),
    "Softmax": (node("Softmax", "x", "y", axis=1), image(2, 3, 4), {}, 11),
    "Softmax 13": (node("Softmax", "x", "y", axis=1), image(2, 3, 4), {}, 13),
    "BatchNormalization": (node("BatchNormalization", "x s b m v", "y"), image(4, 3, 5, 5), NORM, 13),
    "InstanceNormalization": (node("InstanceNormalization", "x s b", "y"), image(3, 3, 5, 5), NORM, 21),
    "LayerNormalization": (node("LayerNormalization", "x l", "y", epsilon=0.01), image(2, 6, 6), {"l": 1 + normal(1, 6)}, 21),
    "MeanVarianceNormalization": (node("MeanVarianceNormalization", "x", "y", axes=[2, 3]), image(3, 4, 5, 5), {}, 13),
    "LRN": (node("LRN", "x", "y", size=5, alpha=0.5, beta=0.6), image(1, 8, 4, 4), {}, 13),
    "Gemm": (node("Gemm", "x w c", "y", alpha=0.5, beta=2.0), image(6, 6), {"w": SQUARE, "c": normal(1, 6)}, 21),
    "MatMul": (node("MatMul", "x w", "y"), image(6, 6), {"w": SQUARE}, 21),
    "Add": (node("Add", "x c", "y"), image(5, 5), {"c": normal(3, 5)}, 21),
    "Sub": (node("Sub", "x c", "y"), image(5, 5), {"c": normal(3, 5)}, 21),
    "PRelu": (node("PRelu", "x c", "y"), image(2, 5, 5, 5), {"c": normal(3, 5, 1, 1)}, 21),
    "Celu": (node("Celu", "x", "y", alpha=0.4), image(40), {}, 21),
    "LeakyRelu": (node("LeakyRelu", "x", "y", alpha=0.2), image(40), {}, 21),
    "Clip": (node("Clip", "x - c", "y"), image(40), {"c": np.float32(0.7)}, 21),
    "Gelu": (node("Gelu", "x", "y"), image(400), {}, 20),
    "Resize": (node("Resize", "x - k", "y", mode="cubic", cubic_coeff_a=-0.5), image(1, 2, 6, 6), {"k": np.float32([1, 1, 1.5, 2])}, 21),
    "Resize nearest": (node("Resize", "x - k", "y", mode="nearest"), image(1, 2, 6, 6), {"k": np.float32([1, 1, 1.5, 2.5])}, 21),
    "GridSample": (node("GridSample", "x g", "y", mode="cubic", padding_mode="border"), image(2, 3, 6, 6), {"g": GRID}, 21),
    "ReduceMean": (node("ReduceMean", "x", "y", axes=[2], keepdims=1), image(2, 4, 4), {}, 13),
    "ReduceSum": (node("ReduceSum", "x a", "y"), image(4, 4, 4), {"a": np.array([1])}, 21),
    "LSTM": (node("LSTM", "x w r i", "y", hidden_size=4, direction="reverse"), image(5, 2, 3), GATES, 21),
    "ScatterND": (node("ScatterND", "x p u", "y", reduction="add"), image(6, 3), {"p": POINTS, "u": normal(1, 3, 3)}, 18),
    "Gather": (node("Gather", "x p", "y"), image(5, 5), {"p": np.array([1, -2, 3])}, 21),
    "Concat": (node("Concat", "x w", "y", axis=0), image(6, 6), {"w": SQUARE}, 21),
    "Transpose": (node("Transpose", "x", "y", perm=[1, 2, 0]), image(4, 4, 4), {}, 21),
    "DepthToSpace": (node("DepthToSpace", "x", "y", blocksize=2), image(1, 8, 3, 3), {}, 21),
    "CumSum": (node("CumSum", "x p", "y"), image(4, 5), {"p": np.int64(1)}, 21),
    "Pad": (node("Pad", "x pads v", "y"), image(5, 5), {**PADS, "v": np.float32(2)}, 21),
    "Trilu": (node("Trilu", "x", "y"), image(5, 5), {}, 21),
    "Round": (node("Round", "x", "y"), np.round(image(60) * 8) / 4, {}, 21),
    "QuantizeLinear": (node("QuantizeLinear", "x s z", "y"), np.round(image(60) * 8) / 4, {"s": np.float32(0.5), "z": np.int8(3)}, 21),
    "ArgMax": (node("ArgMax", "x", "y", axis=1), np.round(image(30, 6)), {}, 13),
    "Where": (node("Where", "q x w", "y"), image(6, 6), {"q": SQUARE > 0, "w": SQUARE}, 21),
    "ArgMin": (node("ArgMin", "x", "y", axis=1), np.round(image(30, 6)), {}, 13),
    "Cast": (node("Cast", "x", "y", to=onnx.TensorProto.INT8), 60 * image(60), {}, 21),
    "Conv of groups": (node("Conv", "x k b", "y", group=2), image(2, 6, 9, 9), {"k": KERNEL, "b": normal(0, 4)}, 21),
    "DequantizeLinear": (node("DequantizeLinear", "x s z", "y"), np.arange(16, dtype=np.uint8).reshape(4, 4), CODES, 21),
    "Div": (node("Div", "x c", "y"), image(5, 5), {"c": 2 + normal(3, 5) ** 2}, 21),
    "Elu": (node("Elu", "x", "y", alpha=0.4), image(40), {}, 21),
    "Equal": (node("Equal", "x p", "y"), WIDE, {"p": WIDE + 2**32}, 21),
    "Erf": (node("Erf", "x", "y"), image(400), {}, 13),
    "Flatten": (node("Flatten", "x", "y", axis=2), image(2, 3, 4), {}, 13),
    "GRU": (node("GRU", "x w r i", "y", hidden_size=4, linear_before_reset=1), image(5, 2, 3), GRU, 21),
    "GatherElements": (node("GatherElements", "x p", "y", axis=1), image(4, 4), {"p": np.array([[1, -2], [0, 3], [-1, 2], [2, 2]])}, 21),
    "GatherND": (node("GatherND", "x p", "y"), image(5, 5, 2), {"p": np.array([[1, -2], [0, -1], [4, 2]])}, 21),
    "GlobalAveragePool": (node("GlobalAveragePool", "x", "y"), image(2, 3, 4, 4), {}, 21),
    "GlobalMaxPool": (node("GlobalMaxPool", "x", "y"), image(2, 3, 4, 4), {}, 21),
    "Greater": (node("Greater", "x c", "y"), np.round(image(9, 6)), {"c": np.zeros((9, 6), np.float32)}, 21),
    "GreaterOrEqual": (node("GreaterOrEqual", "x c", "y"), np.round(image(9, 6)), {"c": np.zeros((9, 6), np.float32)}, 21),
    "GroupNormalization": (node("GroupNormalization", "x s b", "y", num_groups=2), image(2, 4, 5, 5) / 9, FOUR, 21),
    "HardSigmoid": (node("HardSigmoid", "x", "y", alpha=0.3), image(40), {}, 21),
    "HardSwish": (node("HardSwish", "x", "y"), image(40), {}, 21),
    "Hardmax": (node("Hardmax", "x", "y", axis=1), image(2, 3, 4), {}, 11),
    "Less": (node("Less", "x c", "y"), np.round(image(9, 6)), {"c": np.zeros((9, 6), np.float32)}, 21),
    "LessOrEqual": (node("LessOrEqual", "x c", "y"), np.round(image(9, 6)), {"c": np.zeros((9, 6), np.float32)}, 21),
    "LogSoftmax": (node("LogSoftmax", "x", "y", axis=1), image(2, 3, 4), {}, 13),
    "LpNormalization": (node("LpNormalization", "x", "y", axis=1), image(4, 4), {}, 21),
    "LpPool": (node("LpPool", "x", "y", **POOL), image(2, 3, 8, 8), {}, 18),
    "Max": (node("Max", "x c", "y"), image(5, 5), {"c": normal(3, 5)}, 21),
    "Min": (node("Min", "x c", "y"), image(5, 5), {"c": normal(3, 5)}, 21),
    "Mod": (node("Mod", "x c", "y", fmod=1), image(5, 5), {"c": normal(3, 5)}, 21),
    "Mul": (node("Mul", "x c", "y"), image(5, 5), {"c": normal(3, 5)}, 21),
    "OneHot": (node("OneHot", "x d v", "y"), np.array([1, -2, 3]), {"d": np.int64(5), "v": np.float32([0, 1])}, 13),
    "Pow": (node("Pow", "x c", "y"), 1 + image(5, 5) ** 2, {"c": 1 + normal(3, 5) ** 2}, 21),
    "RMSNormalization": (node("RMSNormalization", "x l", "y", epsilon=0.01), image(2, 6, 6), {"l": 1 + normal(1, 6)}, 23),
    "RNN": (node("RNN", "x w r i", "y", hidden_size=4, direction="reverse"), image(5, 2, 3), RNN, 21),
    **{f"Reduce{k}": (node(f"Reduce{k}", "x", "y", axes=[1]), 1 + image(4, 4, 4) ** 2, {}, 12) for k in REDUCTIONS},
    "Relu": (node("Relu", "x", "y"), image(40), {}, 21),
    "Reshape": (node("Reshape", "x a", "y"), image(4, 6), {"a": np.array([0, 2, -1])}, 21),
    "Resize by scales": (node("Resize", "x - k", "y", mode="linear"), image(1, 2, 7, 7), {"k": np.float32([1, 1, 1.5, 1.5])}, 21),
    "ReverseSequence": (node("ReverseSequence", "x p", "y", batch_axis=1, time_axis=0), image(4, 4, 2), {"p": np.array([1, 3, 2, 4])}, 21),
    "RoiAlign": (node("RoiAlign", "x o n", "y", **ROI), image(1, 2, 9, 9), ROIS, 16),
    "ScatterElements": (node("ScatterElements", "x p u", "y", reduction="add"), image(4, 4), {"p": CELLS, "u": normal(1, 2, 2)}, 18),
    "Selu": (node("Selu", "x", "y", alpha=2.0, gamma=1.5), image(40), {}, 21),
    "Shrink": (node("Shrink", "x", "y", bias=0.3, lambd=0.8), image(40), {}, 21),
    "Sigmoid": (node("Sigmoid", "x", "y"), image(40), {}, 21),
    "Slice": (node("Slice", "x b e a t", "y"), image(6, 6), PART, 21),
    "Softplus": (node("Softplus", "x", "y"), image(40), {}, 21),
    "SpaceToDepth": (node("SpaceToDepth", "x", "y", blocksize=2), image(1, 3, 4, 4), {}, 21),
    "Split": (node("Split", "x", "y other", axis=0, num_outputs=2), image(4, 4), {}, 21),
    "Swish": (node("Swish", "x", "y", alpha=1.7), image(40), {}, 24),
    "Tanh": (node("Tanh", "x", "y"), image(40), {}, 21),
    "ThresholdedRelu": (node("ThresholdedRelu", "x", "y", alpha=0.5), image(40), {}, 21),
    "TopK": (node("TopK", "x k1", "y places", axis=0), image(5, 5), {"k1": np.array([3])}, 21),
}  # fmt: skip


def bench(kind: str) -> tuple[Bench, Region, dict[str, Array]]:
    proto, x, weights, opset = NODES[kind]
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    used = {k: v for k, v in weights.items() if k in proto.input}
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    model = model_of([proto], {"x": x.shape}, weights=used, opset=opset, kind=kind)
    return bench_of(model, {"x": x}), region(bench_of(model, {"x": x}).graph, "y", {"x"}), {"x": x}


def right(of: Bench, area: Region, feeds: Mapping[str, Array]) -> Array:
    value = of.engine.replay(area.nodes, feeds, [area.output])[area.output]
    assert not isinstance(value, Unavailable)
    return value


def rivals(of: Bench, feeds: Mapping[str, Array]) -> list[tuple[Rival, Array]]:
    """The misreadings that run, and what they make."""
    doubted = of.graph.nodes[0]

    def value(name: str) -> Array | None:
        return feeds[name] if name in feeds else of.graph.constant(name) if name in of.graph.constants else None

    found = []
    for change in TABLE[doubted.op]:
        for rival in change(Site(doubted.proto, of.graph.opsets[""], value, of.graph.constants)):
            read = {name for proto in rival.nodes for name in proto.input}
            fed = {k: v for k, v in {**feeds, **rival.feeds}.items() if k in read}
            made = of.engine.try_nodes(rival.nodes, fed, ["y"], opset=rival.opset)["y"]
            if not isinstance(made, Unavailable):
                found.append((rival, made))
    return found


def guessed(of: Bench, area: Region, feeds: Mapping[str, Array], target: Array, precision: Precision = FP32) -> tuple[str, ...]:
    expected = 2 * precision.unit
    return hypotheses(of, area, feeds, target, right(of, area, feeds), precision=precision, expected=expected)


def stored(value: Array, precision: Precision) -> Array:
    if value.dtype != np.float32 or precision is FP32:
        return value
    return value.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", sorted(NODES))
def test_every_misreading_that_matters_is_named(kind: str, precision: Precision) -> None:
    of, area, feeds = bench(kind)
    y = right(of, area, feeds)
    tried = 0
    for rival, made in rivals(of, feeds):
        if made.shape == y.shape and np.linalg.norm(made.astype(float) - y) <= 32 * precision.unit * np.linalg.norm(y):
            continue  # no error to explain, or one that the format could hide
        tried += 1
        found = guessed(of, area, feeds, stored(made, precision), precision)
        assert found, rival.text
        assert all(text.startswith("behaves as if `") for text in found)
        if len(found) < MOST:
            assert any(f"`{rival.text}`" in text for text in found), (rival.text, found)
    assert tried or precision is BF16, "the node is too tame to test its misreadings"


@pytest.mark.parametrize("kind", sorted(NODES))
def test_another_error_names_none(kind: str) -> None:
    of, area, feeds = bench(kind)
    y = right(of, area, feeds)
    wrong = y + 1 if y.dtype.kind in "iu" else y + normal(99, *y.shape)
    assert guessed(of, area, feeds, wrong) == ()


@pytest.mark.parametrize("kind", sorted(NODES))
def test_a_healthy_value_names_none(kind: str) -> None:
    of, area, feeds = bench(kind)
    assert guessed(of, area, feeds, right(of, area, feeds)) == ()


def test_the_figures_are_told() -> None:
    of, area, feeds = bench("Celu")
    x = feeds["x"]
    (text,) = guessed(of, area, feeds, np.where(x > 0, x, np.expm1(x)))
    assert text.startswith("behaves as if `alpha ignored (1)`: relative error 0.")
    assert " -> " in text


def test_statistics_of_the_batch_mixed_in() -> None:
    of, area, feeds = bench("BatchNormalization")
    x = feeds["x"].astype(np.float64)
    shape = (1, 3, 1, 1)
    mean = 0.9 * NORM["m"] + 0.1 * x.mean((0, 2, 3))
    var = 0.9 * NORM["v"] + 0.1 * x.var((0, 2, 3))
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5) * NORM["s"].reshape(shape) + NORM["b"].reshape(shape)
    (text,) = guessed(of, area, feeds, y.astype(np.float32))
    assert "blended with those of the batch by momentum" in text


def test_softmax_of_the_other_opset() -> None:
    of, area, feeds = bench("Softmax")
    x = np.exp(feeds["x"])
    (text,) = guessed(of, area, feeds, x / x.sum(1, keepdims=True))
    assert "opset 13 (one axis, not flattened)" in text


def test_levels_are_counted_for_integers() -> None:
    of, area, feeds = bench("QuantizeLinear")
    target = np.clip(np.trunc(feeds["x"] / 0.5) + 3, -128, 127).astype(np.int8)
    texts = guessed(of, area, feeds, target)
    assert any("`truncation towards zero`: share of wrong elements" in t for t in texts)
    assert all(t.endswith("-> 0") for t in texts)


def test_a_wrong_shape_is_explained_too() -> None:
    of, area, feeds = bench("ConvTranspose")
    target = of.engine.try_nodes([node("ConvTranspose", "x k", "y", strides=[2, 2])], feeds, ["y"])["y"]
    assert not isinstance(target, Unavailable)
    texts = guessed(of, area, feeds, target)
    assert any("auto_pad=VALID" in t and "beyond comparison ->" in t for t in texts)


# ---- regions ---------------------------------------------------------------------------------------------------------------
def chain(*alphas: float) -> tuple[Bench, Region, dict[str, Array]]:
    """Elu, Mul, Elu, Mul, ..., of which only the end is seen."""
    nodes = []
    for k, alpha in enumerate(alphas):
        nodes += [node("Elu", f"h{k - 1}" if k else "x", f"e{k}", alpha=alpha), node("Mul", f"e{k} c", f"h{k}")]
    x = {"x": normal(0, 6, 30)}
    of = bench_of(model_of(nodes, {"x": (6, 30)}, weights={"c": np.float32(-1.5)}), x)
    return of, region(of.graph, f"h{len(alphas) - 1}", {"x"}), x


def test_the_node_of_a_region_is_named() -> None:
    of, area, feeds = chain(0.3, 0.6)
    target = right(*chain(1.0, 0.6))
    (text,) = guessed(of, area, feeds, target)
    assert "`alpha ignored (1)` at Elu 'n_e0'" in text


def test_all_of_an_operator_are_named_together() -> None:
    of, area, feeds = chain(0.3, 0.6, 0.2)
    target = right(*chain(1.0, 1.0, 1.0))
    (text,) = guessed(of, area, feeds, target)
    assert "`alpha ignored (1)` at Elu 'n_e0', 'n_e1', 'n_e2'" in text


def test_a_large_region_is_left_alone() -> None:
    of, area, feeds = chain(*[0.3] * 10)
    runs = of.engine.counters.node_runs
    assert hypotheses(of, area, feeds, normal(1, 6, 30), normal(2, 6, 30), precision=FP32, expected=1e-6) == ()
    assert of.engine.counters.node_runs == runs


def test_nan_is_not_explained_by_a_misreading_that_has_none() -> None:
    of, area, feeds = bench("LayerNormalization")
    target = right(of, area, feeds).copy()
    target[0, 0] = np.nan
    assert guessed(of, area, feeds, target) == ()


# ---- a part of the output, levels ------------------------------------------------------------------------------------------
def test_one_channel_alone_is_misread() -> None:
    of, area, feeds = bench("BatchNormalization")
    y = right(of, area, feeds)
    (negated,) = (made for rival, made in rivals(of, feeds) if rival.text == "the folded bias negated")
    target = y.copy()
    target[:, 2] = negated[:, 2]
    assert guessed(of, area, feeds, target) == ()  # a third of the channels is no exception
    x = np.concatenate([normal(0, 2, 8, 4, 4)])
    proto = node("Conv", "x k b", "y")
    of = bench_of(model_of([proto], {"x": x.shape}, weights={"k": normal(1, 8, 8, 1, 1), "b": normal(2, 8)}), {"x": x})
    area, feeds = region(of.graph, "y", {"x"}), {"x": x}
    target = right(of, area, feeds).copy()
    target[:, 5] -= 2 * of.graph.constant("b")[5]
    (text,) = guessed(of, area, feeds, target)
    assert "`the bias negated` (at index 5 of axis 1 alone)" in text


@pytest.mark.parametrize("way", ["floor", "towards 0", "towards a level"])
def test_levels_of_an_int8_tensor_rounded_another_way(way: str) -> None:
    x = normal(3, 4, 300)
    of = bench_of(model_of([node("LeakyRelu", "x", "y", alpha=0.9)], {"x": x.shape}), {"x": x})
    area, feeds = region(of.graph, "y", {"x"}), {"x": x}
    levels = right(of, area, feeds).astype(np.float64) / 0.04
    middle = {"floor": -200, "towards 0": 0, "towards a level": 30}[way]
    target = ((np.trunc(levels - middle) + middle) * 0.04).astype(np.float32)
    texts = hypotheses(of, area, feeds, target, right(of, area, feeds), precision=INT8, expected=0.02)
    told = {"floor": "rounding down (floor)", "towards 0": "truncation towards zero", "towards a level": "truncation towards 1.2"}
    assert any(f"`levels by {told[way]}`" in text for text in texts), texts


def test_an_int8_target_is_compared_within_its_range() -> None:
    of, area, feeds = bench("Celu")
    x = feeds["x"]
    target = np.clip(np.where(x > 0, x, np.expm1(x)), -0.5, 1.0).astype(np.float32)
    (text,) = guessed(of, area, feeds, target, INT8)
    assert "alpha ignored" in text


# ---- the table -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", sorted(TABLE))
def test_every_operator_of_the_table_is_one_and_is_tried(op: str) -> None:
    assert onnx.defs.has(op)
    assert TABLE[op]
    assert op in {proto.op_type for proto, *_ in NODES.values()}
