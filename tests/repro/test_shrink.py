"""The smallest case of one element: its golden is that of the whole, and little is left of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import model_of, node, normal

from bisect_align.repro.crop import Small, run
from bisect_align.repro.shrink import Shrunk, shrink

Array = NDArray[Any]
IMAGE = (2, 8, 16, 12)
NORM = {name: 1 + normal(k, 8) ** 2 for k, name in enumerate("sbmv")}


def shrunk(model: onnx.ModelProto, inputs: dict[str, Array], at: tuple[int, ...]) -> tuple[Shrunk, Array]:
    whole = run(model, inputs)
    assert whole is not None
    found = shrink(Small(model, inputs, at))
    assert found is not None
    golden, was = found.golden[found.small.at], whole[at]
    assert found.exact == (golden.tobytes() == was.tobytes())
    np.testing.assert_allclose(golden, was, rtol=2.0**-20)
    return found, whole


CASES = {
    "elementwise": (model_of([node("Add", "x y", "z")], {"x": IMAGE, "y": (12,)}), 2),
    "batch norm": (model_of([node("BatchNormalization", "x s b m v", "z")], {"x": IMAGE}, weights=NORM), 1),
    "conv": (model_of([node("Conv", "x w", "z", pads=[1, 1, 1, 1])], {"x": IMAGE}, weights={"w": normal(0, 5, 8, 3, 3)}), 8 * 9),
    "strided conv": (
        model_of(
            [node("Conv", "x w", "z", pads=[1, 1, 1, 1], strides=[2, 2])], {"x": IMAGE}, weights={"w": normal(0, 5, 8, 3, 3)}
        ),
        8 * 16,
    ),
    "depthwise conv": (
        model_of([node("Conv", "x w", "z", group=8, pads=[1, 1, 1, 1])], {"x": IMAGE}, weights={"w": normal(0, 8, 1, 3, 3)}),
        9,
    ),
    "max pool": (model_of([node("MaxPool", "x", "z", kernel_shape=[3, 3], strides=[2, 2])], {"x": IMAGE}), 16),
    "softmax": (model_of([node("Softmax", "x", "z", axis=-1)], {"x": IMAGE}), 12),
    "layer norm": (
        model_of([node("LayerNormalization", "x g b", "z")], {"x": IMAGE}, weights={"g": normal(1, 12), "b": normal(2, 12)}),
        12,
    ),
    "reduce": (model_of([node("ReduceMean", "x a", "z")], {"x": IMAGE}, weights={"a": np.array([2, 3])}), 16 * 12),
    "matmul": (model_of([node("MatMul", "x w", "z")], {"x": IMAGE}, weights={"w": normal(1, 12, 20)}), 12),
    "matmul of two": (model_of([node("MatMul", "x y", "z")], {"x": IMAGE, "y": (2, 8, 12, 20)}), 24),
    "gather": (model_of([node("Gather", "x i", "z", axis=2)], {"x": IMAGE}, weights={"i": np.array([3, 9, 14, 2])}), 1),
    "slice": (model_of([node("Slice", "x s e", "z")], {"x": IMAGE}, weights={"s": np.array([0, 1]), "e": np.array([2, 5])}), 10),
    "transpose": (model_of([node("Transpose", "x", "z", perm=[0, 2, 3, 1])], {"x": IMAGE}), 1),
    "concat": (model_of([node("Concat", "x y", "z", axis=1)], {"x": IMAGE, "y": IMAGE}), 20),
    "nearest resize": (
        model_of([node("Resize", "x - s", "z", mode="nearest")], {"x": IMAGE}, weights={"s": np.array([1, 1, 2, 2], np.float32)}),
        16,
    ),
    "chain": (model_of([node("Relu", "x", "r"), node("Mul", "r x", "m"), node("Softmax", "m", "z")], {"x": IMAGE}), 12),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_what_the_element_needs(name: str) -> None:
    model, most = CASES[name]
    inputs = {
        value.name: normal(k + 3, *(d.dim_value for d in value.type.tensor_type.shape.dim))
        for k, value in enumerate(model.graph.input)
    }
    whole = run(model, inputs)
    assert whole is not None
    at = tuple(n * 2 // 3 for n in whole.shape)
    found, _ = shrunk(model, inputs, at)
    assert found.small.size <= most


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_any_element_of_any_convolution_keeps_its_golden(data: st.DataObject) -> None:
    draw = data.draw
    kernel, stride, pad = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 1))
    group = draw(st.sampled_from([1, 2, 4]))
    model = model_of(
        [node("Conv", "x w", "z", pads=[pad] * 4, strides=[stride] * 2, group=group, dilations=[draw(st.integers(1, 2))] * 2)],
        {"x": (2, 4, 9, 8)},
        weights={"w": normal(1, 4, 4 // group, kernel, kernel)},
    )
    inputs = {"x": normal(2, 2, 4, 9, 8)}
    whole = run(model, inputs)
    assert whole is not None
    at = tuple(draw(st.integers(0, n - 1)) for n in whole.shape)
    found, _ = shrunk(model, inputs, at)
    assert found.small.size < inputs["x"].size


def test_many_crops_do_not_add_up_to_another_golden() -> None:
    model = model_of([node("Conv", "x w", "z")], {"x": (2, 4, 9, 8)}, weights={"w": normal(1, 4, 4, 2, 2)})
    found, _ = shrunk(model, {"x": normal(2, 2, 4, 9, 8)}, (0, 2, 0, 0))
    assert found.small.size < 2 * 4 * 9 * 8


def test_a_border_stays_a_border() -> None:
    model = model_of([node("AveragePool", "x", "z", kernel_shape=[5, 1], pads=[2, 0, 2, 0], count_include_pad=1)], {"x": IMAGE})
    found, _ = shrunk(model, {"x": normal(1, *IMAGE)}, (1, 3, 15, 4))
    assert found.small.at[2] == found.golden.shape[2] - 1


def test_nan_is_an_element_like_others() -> None:
    x = normal(1, 4, 6)
    x[2, 3] = np.nan
    found, whole = shrunk(model_of([node("Neg", "x", "z")], {"x": (4, 6)}), {"x": x}, (2, 3))
    assert np.isnan(whole[2, 3])
    assert found.small.size == 1
