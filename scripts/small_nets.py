"""Small models of the kinds that people run on chips, generated: 11 to 16 nodes, weights as after training (He-scaled, with
biases and lived-in normalisation parameters), inputs that vary with a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array: TypeAlias = NDArray[Any]


class Sketch:
    """Collects nodes and weights in order; `node` returns the name of its output."""

    def __init__(self, name: str, inputs: dict[str, tuple[int, ...]], seed: int) -> None:
        self.name = name
        self.inputs = inputs
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def bytes(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.rng.integers(-127, 128, shape).astype(np.int8), name))
        return name

    def through_int8(self, x: str, scale: float) -> str:
        """Quantised and back."""
        step = self.constant(scale)
        zero = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.int8(-3), zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, step, zero), step, zero)

    def integers(self, value: Sequence[int]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, np.int64), name))
        return name

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> str:
        return self.constant(mean + scale * self.rng.standard_normal(shape))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def conv(self, x: str, c: int, m: int, kernel: int, **attributes: Any) -> str:
        weight = self.normal(m, c, kernel, kernel, scale=(2 / (c * kernel * kernel)) ** 0.5)
        return self.node("Conv", x, weight, self.normal(m, scale=0.2), pads=[kernel // 2] * 4, **attributes)

    def gemm(self, x: str, k: int, n: int) -> str:
        return self.node("Gemm", x, self.normal(k, n, scale=(2 / k) ** 0.5), self.normal(n, scale=0.2))

    def matmul(self, x: str, k: int, n: int) -> str:
        return self.node("MatMul", x, self.normal(k, n, scale=k**-0.5))

    def batch_norm(self, x: str, c: int) -> str:
        variance = self.constant(self.rng.uniform(0.4, 2.0, c))
        scale, shift, mean = self.normal(c, scale=0.2, mean=1.0), self.normal(c, scale=0.3), self.normal(c, scale=0.3)
        return self.node("BatchNormalization", x, scale, shift, mean, variance)

    def layer_norm(self, x: str, n: int) -> str:
        return self.node("LayerNormalization", x, self.normal(n, scale=0.2, mean=1.0), self.normal(n, scale=0.2))

    def model(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def chain() -> onnx.ModelProto:
    """Conv, Relu, Pool, Conv, Relu, Pool, then a classifier: 11 nodes."""
    s = Sketch("chain", {"image": (1, 3, 16, 16)}, 1)
    x = s.node("Relu", s.conv("image", 3, 8, 3))
    x = s.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = s.node("Relu", s.conv(x, 8, 12, 3))
    x = s.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = s.node("Flatten", x)
    x = s.node("Relu", s.gemm(x, 192, 64))
    x = s.gemm(x, 64, 10)
    return s.model(s.node("Softmax", x, axis=-1))


def residual() -> onnx.ModelProto:
    """A residual block with batch normalisation, then a strided convolution: 15 nodes."""
    s = Sketch("residual", {"image": (1, 4, 12, 12)}, 2)
    stem = s.node("Relu", s.batch_norm(s.conv("image", 4, 12, 3), 12))
    x = s.node("Relu", s.batch_norm(s.conv(stem, 12, 12, 3), 12))
    x = s.batch_norm(s.conv(x, 12, 12, 3), 12)
    x = s.node("Relu", s.node("Add", x, stem))
    x = s.node("GlobalAveragePool", s.node("Relu", s.conv(x, 12, 24, 3, strides=[2, 2])))
    return s.model(s.gemm(s.node("Flatten", x), 24, 16))


def inception() -> onnx.ModelProto:
    """Three branches, Concat, squeeze and excite: 15 nodes, two outputs."""
    s = Sketch("inception", {"image": (1, 4, 12, 12)}, 3)
    stem = s.node("Relu", s.conv("image", 4, 8, 3))
    one = s.node("Relu", s.conv(stem, 8, 8, 1))
    three = s.node("Relu", s.conv(s.node("Relu", s.conv(stem, 8, 6, 1)), 6, 8, 3))
    pool = s.conv(s.node("MaxPool", stem, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]), 8, 6, 1)
    joined = s.node("Concat", one, three, pool, axis=1)
    gate = s.node("Sigmoid", s.conv(s.node("GlobalAveragePool", joined), 22, 22, 1))
    return s.model(s.node("Mul", joined, gate), gate)


def attention() -> onnx.ModelProto:
    """One head with a causal mask of -10000, residual, normalisation, a gated end: 16 nodes."""
    s = Sketch("attention", {"tokens": (1, 12, 32)}, 4)
    x = s.layer_norm("tokens", 32)
    q, k, v = (s.matmul(x, 32, 32) for _ in range(3))
    scores = s.node("MatMul", q, s.node("Transpose", k, perm=[0, 2, 1]))
    scores = s.node("Mul", scores, s.constant(32**-0.5))
    mask = s.constant(np.triu(np.full((12, 12), -10000.0), 1)[None])
    weights = s.node("Softmax", s.node("Add", scores, mask), axis=-1)
    mixed = s.matmul(s.node("MatMul", weights, v), 32, 32)
    x = s.layer_norm(s.node("Add", mixed, "tokens"), 32)
    return s.model(s.matmul(s.node("Tanh", s.matmul(x, 32, 48)), 48, 24))


def towers() -> onnx.ModelProto:
    """Two inputs, a tower each, merged elementwise: 14 nodes."""
    s = Sketch("towers", {"left": (8, 32), "right": (8, 24)}, 5)
    left = s.gemm(s.node("Tanh", s.gemm("left", 32, 40)), 40, 24)
    right = s.gemm(s.node("Sigmoid", s.gemm("right", 24, 40)), 40, 24)
    product = s.node("Mul", left, right)
    distance = s.node("Abs", s.node("Sub", left, right))
    x = s.node("Relu", s.gemm(s.node("Concat", product, distance, axis=1), 48, 16))
    return s.model(s.node("Sigmoid", s.gemm(x, 16, 12)))


def decomposed() -> onnx.ModelProto:
    """GELU and layer normalisation spelled out in small operators, as exporters leave them: 16 nodes."""
    s = Sketch("decomposed", {"tokens": (2, 16, 24)}, 6)
    x = s.node("Add", s.matmul("tokens", 24, 32), s.normal(32, scale=0.2))
    bell = s.node("Erf", s.node("Div", x, s.constant(2**0.5)))
    x = s.node("Mul", s.node("Mul", x, s.node("Add", bell, s.constant(1.0))), s.constant(0.5))
    x = s.node("Add", s.matmul(x, 32, 24), "tokens")
    centred = s.node("Sub", x, s.node("ReduceMean", x, axes=[-1], keepdims=1))
    variance = s.node("ReduceMean", s.node("Mul", centred, centred), axes=[-1], keepdims=1)
    spread = s.node("Sqrt", s.node("Add", variance, s.constant(1e-5)))
    return s.model(s.node("Div", centred, spread))


def mobile() -> onnx.ModelProto:
    """Depthwise convolutions, hard swish, squeeze and excite, an average pool with padding: 15 nodes."""
    s = Sketch("mobile", {"image": (2, 4, 12, 12)}, 7)
    x = s.node("HardSwish", s.batch_norm(s.conv("image", 4, 16, 3), 16))
    x = s.node("HardSwish", s.conv(x, 1, 16, 3, group=16))
    gate = s.node("Relu", s.conv(s.node("GlobalAveragePool", x), 16, 8, 1))
    x = s.node("Mul", x, s.node("HardSigmoid", s.conv(gate, 8, 16, 1)))
    x = s.conv(x, 16, 12, 1)
    x = s.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    x = s.node("LeakyRelu", s.conv(x, 12, 12, 3, dilations=[1, 1]), alpha=0.1)
    return s.model(x)


def upsampler() -> onnx.ModelProto:
    """Resize, transposed convolution, learnt slopes, pixels out of channels: 11 nodes."""
    s = Sketch("upsampler", {"image": (1, 3, 10, 10)}, 8)
    x = s.node("PRelu", s.conv("image", 3, 12, 3), s.constant(s.rng.uniform(0.05, 0.4, (12, 1, 1))))
    skip = s.node("Resize", x, "", s.constant([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="half_pixel")
    weight = s.normal(12, 12, 3, 3, scale=(2 / 108) ** 0.5)
    up = s.node("ConvTranspose", x, weight, s.normal(12, scale=0.2), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    x = s.node("Elu", s.node("Add", up, skip), alpha=0.8)
    x = s.node("InstanceNormalization", s.conv(x, 12, 12, 3), s.normal(12, scale=0.2, mean=1.0), s.normal(12, scale=0.3))
    return s.model(s.node("Tanh", s.node("DepthToSpace", s.node("Clip", x, s.constant(-2.0), s.constant(2.0)), blocksize=2)))


def recurrent() -> onnx.ModelProto:
    """A GRU and an LSTM over time, a classifier over both: 12 nodes."""
    s = Sketch("recurrent", {"frames": (10, 2, 16)}, 9)
    x = s.node("Tanh", s.node("Add", s.matmul("frames", 16, 24), s.normal(24, scale=0.2)))
    gru = s.node(
        "GRU", x, s.normal(1, 60, 24, scale=0.2), s.normal(1, 60, 20, scale=0.2), s.normal(1, 120, scale=0.1), hidden_size=20
    )
    lstm = s.node(
        "LSTM", x, s.normal(1, 80, 24, scale=0.2), s.normal(1, 80, 20, scale=0.2), s.normal(1, 160, scale=0.1), hidden_size=20
    )
    both = s.node("Concat", *(s.node("Reshape", y, s.integers([10, 2, 20])) for y in (gru, lstm)), axis=-1)
    x = s.node("Relu", s.node("Add", s.matmul(both, 40, 24), s.normal(24, scale=0.2)))
    return s.model(s.node("LogSoftmax", s.matmul(x, 24, 12), axis=-1))


def brittle() -> onnx.ModelProto:
    """Ill-conditioned on purpose: a difference of near equals, a small denominator, rows that are nearly constant before they
    are normalised, a softmax of near ties: 13 nodes."""
    s = Sketch("brittle", {"tokens": (4, 12, 24)}, 10)
    x = s.node("Add", s.matmul("tokens", 24, 24), s.normal(24, scale=0.2))
    near = s.node("Sub", x, s.node("Mul", x, s.constant(0.98)))
    ratio = s.node("Div", near, s.node("Add", s.node("Abs", x), s.constant(0.02)))
    flat = s.node("Add", s.node("Mul", ratio, s.constant(0.01)), s.constant(3.0))
    normal = s.layer_norm(flat, 24)
    ties = s.node("Softmax", s.node("Mul", normal, s.constant(1e-3)), axis=-1)
    return s.model(s.matmul(s.node("Add", s.node("Mul", ties, s.constant(24.0)), normal), 24, 16))


def quantised() -> onnx.ModelProto:
    """The quantisation in the graph, as a static quantiser writes it: 13 nodes."""
    s = Sketch("quantised", {"image": (1, 3, 12, 12)}, 11)
    x = s.through_int8("image", 0.03)
    weight = s.node("DequantizeLinear", s.bytes(8, 3, 3, 3), s.constant(0.003))
    x = s.through_int8(s.node("Relu", s.node("Conv", x, weight, s.normal(8, scale=0.2), pads=[1] * 4)), 0.03)
    x = s.node("Flatten", s.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    return s.model(s.node("Softmax", s.through_int8(s.gemm(x, 288, 10), 0.05), axis=-1))


GRAPHS: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build
    for build in (chain, residual, inception, attention, towers, decomposed, mobile, upsampler, recurrent, brittle, quantised)
}


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Values for the graph inputs: smooth in space where there is space, as images are, plus detail."""
    rng = np.random.default_rng([seed, 2024])
    weights = {t.name for t in model.graph.initializer}
    return {i.name: _signal(rng, _shape(i)) for i in model.graph.input if i.name not in weights}


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value for d in info.type.tensor_type.shape.dim)


def _signal(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    detail = rng.standard_normal(shape)
    if len(shape) == 4:
        rows, columns = (np.linspace(0, np.pi, n) for n in shape[2:])
        phase = rng.uniform(0, 2 * np.pi, (2, *shape[:2], 1, 1))
        detail = 0.4 * detail + np.sin(2 * rows[:, None] + phase[0]) + np.cos(3 * columns + phase[1])
    return detail.astype(np.float32)
