"""What kinds of operators there are, as far as judging and matching care."""

from __future__ import annotations

# fmt: off
# Operators that move, select or compare values and compute none: they are exact in every number format, so they say nothing about
# the precision of a run, and no kernel family is noisier at them than another.
MOVES = frozenset({
    "Abs", "And", "Cast", "Clip", "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand", "Flatten",
    "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity", "Max", "MaxPool", "Min", "Neg", "NonZero", "Not", "Or", "Pad",
    "Range", "Relu", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split",
    "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
})

# Operators that multiply by a matrix of weights: the first whose precision a target lowers.
MATRIX = frozenset({"Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})

# Of these the operators whose output holds nothing but numbers that they read: rounded there, it is not rounded again.
KEEPS = MOVES - {"Cast", "Constant", "ConstantOfShape", "NonZero", "Range", "Shape", "Size"}

# Operators that add, multiply, select and move: nothing in them that a library would approximate, and no sum over a whole map, which in
# float32 one by one is off by 5e-5.
SUMS = MOVES | {
    "Add", "Conv", "ConvTranspose", "Gemm", "LeakyRelu", "MatMul", "Mean", "Mul", "PRelu", "ReduceMax", "ReduceMin", "Sub", "Sum",
}

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})

# Operators whose output shape depends on values: a shape that differs is no proof by itself.
DATA_SHAPED = frozenset({"Compress", "NonMaxSuppression", "NonZero", "StringNormalizer", "Unique"})

# Operators that a quantised graph consists of.
QUANTISING = frozenset({
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QGemm", "QLinearAdd", "QLinearConv", "QLinearMatMul",
    "QLinearMul", "QuantizeLinear",
})
# fmt: on
