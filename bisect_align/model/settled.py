"""Shape values that do not depend on data: the same on every healthy target that is given inputs of these shapes."""

from __future__ import annotations

import onnx

from bisect_align.model.graph import RANDOM, Graph, Node
from bisect_align.model.operators import DATA_SHAPED
from bisect_align.model.parameters import never_fed, shape_parameters
from bisect_align.model.scopes import bodies

# fmt: off
# Their steering inputs decide values, never the shape of an output.
_STEERED_IN_VALUE = frozenset({
    "Attention", "ConvInteger", "CumProd", "CumSum", "DequantizeLinear", "Dropout", "GRU", "LSTM", "MatMulInteger", "QLinearConv",
    "QLinearMatMul", "QuantizeLinear", "RNN", "Trilu",
})

# Of ONNX Runtime's contributed operators those whose output shapes follow from the shapes of what they read, whatever steers them.
_CONTRIBUTED = frozenset({
    "Attention", "BiasGelu", "BiasSoftmax", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "GroupNorm", "MatMulBnb4",
    "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "QAttention", "QEmbedLayerNormalization", "QGemm", "QLinearAdd",
    "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul",
    "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu", "RotaryEmbedding",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "TransposeMatMul",
})
# fmt: on


def settled_by_shapes(graph: Graph) -> frozenset[str]:
    """Tensors that steer shapes (`never_fed`) and whose values follow from constants and the shapes of the graph's inputs alone.

    A value follows from shapes where Shape or Size makes it of a tensor whose shape does, or a standard operator that draws nothing
    at random of values that do. The shape of a tensor does where one operator makes it of such tensors, and what steers its shape is
    such a value. What holds a body, handles sequences, or is not known settles no shape.
    """
    values, shapes = set(graph.constants), {*graph.constants, *graph.inputs}
    for node in graph.nodes:
        if any(bodies(node.proto)):
            continue
        known = not node.domain and onnx.defs.has(node.op)
        if known and node.op in ("Shape", "Size"):
            follows = shapes.issuperset(node.reads)
        else:
            follows = known and node.op not in RANDOM and values.issuperset(node.reads)
        if follows:
            values.update(node.makes)
        if follows or (shapes.issuperset(node.reads) and values.issuperset(_shaped_by(node)) and _shapes_follow(node)):
            shapes.update(node.makes)
    return frozenset((values - graph.constants.keys()) & never_fed(graph))


def _shapes_follow(node: Node) -> bool:
    """Whether the operator's output shapes follow from the shapes that it reads and from what steers it."""
    if node.domain:
        return node.domain == "com.microsoft" and node.op in _CONTRIBUTED
    apart = node.op in DATA_SHAPED or node.op in ("ImageDecoder", "StringSplit") or "Sequence" in node.op or "Optional" in node.op
    return onnx.defs.has(node.op) and not apart


def _shaped_by(node: Node) -> frozenset[str]:
    """The inputs whose values decide the shape of an output."""
    return frozenset() if node.domain or node.op in _STEERED_IN_VALUE else shape_parameters(node)
