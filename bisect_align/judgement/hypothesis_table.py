"""What may be misread about each operator, as data. To add a hypothesis, add one entry here.

An entry is made by the functions of `rival` (another attribute, an input left out or rewritten) or `misreadings` (whatever takes more).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement import misread_places as places
from bisect_align.judgement import misreadings as m
from bisect_align.judgement.rival import (
    Change,
    Site,
    drops,
    feeds,
    ignores,
    is_op,
    lacks,
    moves_axis,
    multiplies,
    of_data,
    reads_as_opset,
    replaces,
    sets,
    swaps_inputs,
)
from bisect_align.judgement.weights import misread_weight

Array: TypeAlias = NDArray[Any]

EPSILONS = sets("epsilon", 1e-5, 1e-3, 1e-6, 1e-12, 0.0)
WINDOW = (m.pads_misread, m.per_axis_reversed("strides"), m.ones("dilations"))
KERNEL = (
    of_data(1, replaces(1, "the kernel transposed (height for width)", m.last_two)),
    of_data(1, replaces(1, "the kernel turned round", m.turned)),
    lacks(2, "no bias"),
    replaces(2, "the bias negated", np.negative),
    sets("group", 1),
    places.groups_interleaved,
    misread_weight(1),
)
REDUCE = (sets("keepdims", 0, 1), m.reduced_over, sets("noop_with_empty_axes", 0, 1))
SOFTMAX = (
    reads_as_opset("opset 13 (one axis, not flattened)", lambda v: v < 13, 13),
    reads_as_opset("opset 11 (flattened from axis on)", lambda v: v >= 13, 11),
    moves_axis(),
)
BOUNDS = (lacks(1, "no lower bound"), lacks(2, "no upper bound"), drops("min", "max"))
NARROW = (replaces(0, "int64 read as int32", m.narrow), replaces(1, "int64 read as int32", m.narrow))
SECOND = (
    swaps_inputs(),
    m.across(0, "the first input"),
    m.across(1, "the second input"),
    replaces(0, "the first element of the first input for all", m.first_alone),
    replaces(1, "the first element of the second input for all", m.first_alone),
    *NARROW,
)
INDICES = (replaces(1, "negative indices as 0", m.unsigned), replaces(1, "int64 indices as int32", m.narrow))
GATHER = (moves_axis(), *INDICES)
SCATTER = (drops("reduction"), sets("reduction", "add", "mul", "max", "min"), moves_axis(), *INDICES)
ARG = (sets("select_last_index", 0, 1), sets("keepdims", 0, 1), moves_axis())
RECURRENT = (
    sets("direction", "forward", "reverse"),
    lacks(3, "no bias"),
    lacks(4, "sequence_lens ignored"),
    drops("activations", "clip", "activation_alpha", "activation_beta", "input_forget"),
    misread_weight(1),
    misread_weight(2),
)
LEFT_OUT = is_op("Identity", "the operator left out")
ALPHA = (drops("alpha", "beta", "gamma"), LEFT_OUT)
PRODUCT = (
    replaces(0, "the first matrix transposed", m.last_two),
    of_data(1, replaces(1, "the second matrix transposed", m.last_two)),
    misread_weight(1),
)

TABLE: dict[str, tuple[Change, ...]] = {
    "Add": (ignores(1, "the second input left out", 0), ignores(0, "the first input left out", 0), *SECOND[1:], is_op("Sub")),
    "ArgMax": ARG,
    "ArgMin": ARG,
    "AveragePool": (sets("count_include_pad", 0, 1), sets("ceil_mode", 0, 1), m.divisors, *WINDOW),
    "BatchNormalization": (
        feeds("stored statistics blended with those of the batch by momentum (training)", m.blended_by_momentum),
        feeds("the statistics of the batch", m.statistics_of(None)),
        EPSILONS,
        ignores(1, "no scale", 1),
        ignores(2, "no bias", 0),
        ignores(3, "mean ignored", 0),
        ignores(4, "variance ignored", 1),
        feeds("the folded bias negated", m.folded_bias_negated),
        replaces(4, "the variance read as a standard deviation", lambda x: np.square(x)),
    ),
    "Cast": (m.casts, replaces(0, "int64 read as int32", m.narrow)),
    "Celu": ALPHA,
    "Clip": (
        LEFT_OUT,
        feeds("a missing lower bound as 0", lambda s: _zero(s, 1)),
        feeds("a missing upper bound as 0", lambda s: _zero(s, 2)),
        *BOUNDS,
    ),
    "Concat": (moves_axis(), swaps_inputs()),
    "Conv": (*WINDOW, *KERNEL),
    "ConvTranspose": (*WINDOW, drops("output_padding", "output_shape", "auto_pad"), *KERNEL),
    "CumSum": (sets("exclusive", 0, 1), sets("reverse", 0, 1)),
    "DepthToSpace": (sets("mode", "DCR", "CRD"),),
    "DequantizeLinear": (ignores(2, "zero point ignored", 0), moves_axis()),
    "Div": (*SECOND, ignores(1, "the second input left out", 1), is_op("Mul")),
    "Elu": (*ALPHA, is_op("Relu")),
    "Equal": NARROW,
    "Erf": (*m.ERF, LEFT_OUT),
    "Flatten": (moves_axis(beyond=1),),
    "GRU": (
        sets("linear_before_reset", 0, 1),
        *RECURRENT,
        lacks(5, "initial state ignored"),
        m.gates(("gates in the order r z h", (1, 0, 2)), ("gates in the order h r z", (2, 1, 0))),
    ),
    "Gather": (*GATHER, places.unwrapped),
    "GatherElements": GATHER,
    "GatherND": (sets("batch_dims", 0, 1), *INDICES, places.unwrapped),
    "Gelu": (sets("approximate", "none", "tanh"), LEFT_OUT),
    "Gemm": (
        sets("transA", 0, 1),
        sets("transB", 0, 1),
        drops("alpha", "beta"),
        lacks(2, "no bias"),
        replaces(2, "the bias negated", np.negative),
        *PRODUCT,
    ),
    "GlobalAveragePool": (is_op("GlobalMaxPool"),),
    "GlobalMaxPool": (is_op("GlobalAveragePool"),),
    "Greater": (is_op("GreaterOrEqual"), is_op("Less"), swaps_inputs(), *NARROW),
    "GreaterOrEqual": (is_op("Greater"), is_op("LessOrEqual"), swaps_inputs(), *NARROW),
    "GridSample": (
        sets("align_corners", 0, 1),
        sets("padding_mode", "zeros", "border", "reflection"),
        sets("mode", "linear", "bilinear", "cubic", "bicubic", "nearest"),
        feeds("the sampled point held inside the picture before its neighbours are taken", m.clamped_points),
    ),
    "GroupNormalization": (EPSILONS, sets("num_groups", 1)),
    "HardSigmoid": (*ALPHA, is_op("Sigmoid"), sets("alpha", 1 / 6, 0.2)),
    "HardSwish": (LEFT_OUT, is_op("Relu")),
    "Hardmax": SOFTMAX,
    "InstanceNormalization": (
        EPSILONS,
        m.statistics_shared,
        ignores(1, "no scale", 1),
        ignores(2, "no bias", 0),
        m.first_image_scaled,
    ),
    "LRN": (
        m.loops_over_batch,
        sets("size", 1, 3, 5),
        drops("alpha", "beta", "bias"),
        multiplies("alpha", lambda site: site.attribute("size"), "alpha not divided by size"),
    ),
    "LSTM": (
        *RECURRENT,
        lacks(5, "initial state ignored"),
        lacks(7, "peepholes ignored"),
        m.gates(("gates in the order i f g o", (0, 2, 3, 1)), ("gates in the order i f o g", (0, 2, 1, 3))),
    ),
    "LayerNormalization": (moves_axis(), EPSILONS, ignores(1, "no scale", 1), lacks(2, "no bias")),
    "LeakyRelu": (*ALPHA, is_op("Relu")),
    "Less": (is_op("LessOrEqual"), is_op("Greater"), swaps_inputs(), *NARROW),
    "LessOrEqual": (is_op("Less"), is_op("GreaterOrEqual"), swaps_inputs(), *NARROW),
    "LogSoftmax": (*SOFTMAX, is_op("Softmax", "Softmax (no logarithm)", ("axis",))),
    "LpNormalization": (moves_axis(), sets("p", 1, 2)),
    "LpPool": (sets("p", 1, 2), *WINDOW),
    "MatMul": PRODUCT,
    "Max": (is_op("Min"), *NARROW),
    "MaxPool": (m.zero_padded, sets("ceil_mode", 0, 1), *WINDOW),
    "MeanVarianceNormalization": (m.normalised_over_image,),
    "Min": (is_op("Max"), *NARROW),
    "Mod": (sets("fmod", 0, 1), swaps_inputs()),
    "Mul": (*SECOND[1:], ignores(1, "the second input left out", 1), ignores(0, "the first input left out", 1)),
    "OneHot": (feeds("rows of off values for negative indices", m.one_hot_negative), moves_axis(beyond=1)),
    "PRelu": (
        m.across(1, "slope"),
        replaces(1, "the first slope for all", m.first_alone),
        ignores(1, "Relu (slope 0)", 0),
        ignores(1, "slope 0.25", 0.25),
        ignores(1, "slope 0.01", 0.01),
        LEFT_OUT,
    ),
    "Pad": (
        sets("mode", "constant", "reflect", "edge"),
        sets("mode", "wrap"),
        lacks(2, "padding with 0"),
        drops("value"),
        feeds("pads swapped", lambda s: _swapped(s)),
    ),
    "Pow": (swaps_inputs(), LEFT_OUT),
    "QuantizeLinear": (m.quantises, ignores(2, "zero point ignored", 0), moves_axis()),
    "RNN": (*RECURRENT, lacks(5, "initial state ignored")),
    "RMSNormalization": (moves_axis(), EPSILONS, ignores(1, "no scale", 1)),
    "ReduceL1": REDUCE,
    "ReduceL2": (*REDUCE, is_op("ReduceSumSquare", "ReduceSumSquare", ("axes", "keepdims"))),
    "ReduceLogSum": REDUCE,
    "ReduceLogSumExp": REDUCE,
    "ReduceMax": REDUCE,
    "ReduceMean": (*REDUCE, is_op("ReduceSum", "ReduceSum", ("axes", "keepdims"))),
    "ReduceMin": REDUCE,
    "ReduceProd": REDUCE,
    "ReduceSum": (*REDUCE, is_op("ReduceMean", "ReduceMean", ("axes", "keepdims"))),
    "ReduceSumSquare": (*REDUCE, is_op("ReduceL2", "ReduceL2", ("axes", "keepdims"))),
    "Relu": (LEFT_OUT,),
    "Reshape": (places.column_by_column,),
    "Resize": (
        sets("cubic_coeff_a", -0.75, -0.5),
        sets(
            "coordinate_transformation_mode",
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        ),
        sets("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        sets("mode", "nearest", "linear", "cubic"),
        sets("antialias", 0, 1),
        sets("exclude_outside", 0, 1),
        feeds("scales worked out again from the sizes", places.scales_of_sizes),
    ),
    "ReverseSequence": (places.axes_exchanged,),
    "RoiAlign": (
        sets("coordinate_transformation_mode", "half_pixel", "output_half_pixel"),
        sets("mode", "avg", "max"),
        sets("sampling_ratio", 0, 1, 2),
    ),
    "Round": (m.rounds,),
    "ScatterElements": SCATTER,
    "ScatterND": SCATTER,
    "Selu": ALPHA,
    "Shrink": (drops("bias", "lambd"), LEFT_OUT),
    "Sigmoid": (is_op("HardSigmoid", "HardSigmoid"), LEFT_OUT),
    "Slice": (
        replaces(3, "axes ignored", lambda x: np.arange(x.size, dtype=x.dtype)),
        replaces(4, "steps ignored", np.ones_like),
        replaces(1, "starts ignored", np.zeros_like),
        replaces(1, "negative starts as 0", m.unsigned),
    ),
    "Softmax": (*SOFTMAX, is_op("LogSoftmax", "LogSoftmax", ("axis",)), LEFT_OUT),
    "Softplus": (LEFT_OUT, is_op("Relu")),
    "SpaceToDepth": (places.depth_first,),
    "Split": (moves_axis(),),
    "Sub": (*SECOND, is_op("Add")),
    "Swish": ALPHA,
    "Tanh": (LEFT_OUT,),
    "ThresholdedRelu": ALPHA,
    "TopK": (sets("largest", 0, 1), sets("sorted", 0, 1), moves_axis()),
    "Transpose": (m.rearranged,),
    "Trilu": (sets("upper", 0, 1), lacks(1, "k ignored")),
    "Where": (feeds("the condition inverted", lambda s: None if (c := s.given(0)) is None else {0: ~c}),),
}


def _zero(site: Site, place: int) -> Mapping[int, Array | None] | None:
    """0 for an input that is absent."""
    x = site.given(0)
    return None if x is None or site.given(place) is not None or site.opset < 11 else {place: np.zeros((), x.dtype)}


def _swapped(site: Site) -> Mapping[int, Array | None] | None:
    """Pads: begin for end."""
    pads = site.given(1)
    return None if pads is None else {1: np.roll(pads, pads.size // 2)}
