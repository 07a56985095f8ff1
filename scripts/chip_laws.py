"""Healthy chips: how each precision may round, add and look up. Faults come on top (chip_faults.py).

fp32: `split` (sums over K in four parts), `fma` (one accumulator of fused multiply-adds), `float64` (wide, rounded once).
tf32, float32 tensors: `nearest`, `truncated` (what a matrix unit does to its operands), `stored` (every tensor rounded).
fp16, weights and tensors: `round` (float32 sums), `chunks` (float16 sums of chunks of 32), `table` (curves from 257 entries),
`stochastic` (outputs rounded up or down by chance), `flush` (no subnormals), `winograd` (3x3 convolutions by F(2x2, 3x3)).
bf16, weights and tensors: `nearest`, `truncated`.
int8, on ranges seen with other inputs, so that outliers are clipped: `channel` (one step a weight channel), `tensor` (one step a
weight), `power` (symmetric, steps that are powers of two), `table` (curves from 256 entries of 8 bits), `matrix` (only what a
convolution or matrix product reads is quantised, its output is float).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import chip_kernels as kernels
import chip_numbers as numbers
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Store: TypeAlias = Callable[[Array], Array]
Write: TypeAlias = Callable[[Array, np.random.Generator], Array]

# Operators whose float32 result depends on the library: a polynomial, a reciprocal, an order of summation.
_CURVES = ("Sigmoid", "Tanh", "Erf", "Exp", "Log", "Softmax", "Gelu", "Sqrt", "Div", "Pow", "Reciprocal", "Sin", "Cos")
_SUMS = ("ReduceMean", "ReduceSum", "AveragePool", "GlobalAveragePool", "ConvTranspose", "LSTM", "GRU", "STFT", "DFT")
_NORMS = ("LayerNormalization", "BatchNormalization", "InstanceNormalization")
INEXACT = frozenset(_CURVES + _SUMS + _NORMS)


def _as_it_is(x: Array) -> Array:
    return x


def _two_ulps(x: Array, rng: np.random.Generator) -> Array:
    return numbers.ulps(x, rng)


@dataclass(frozen=True, slots=True)
class Int8:
    """per_channel: of weights. everything: all tensors; else only what matrix products read."""

    per_channel: bool = True
    power_of_two: bool = False
    everything: bool = True


@dataclass(frozen=True, slots=True)
class Law:
    """What a chip does to numbers.

    store: keeping a tensor or a constant. folded: the same for the parameters of a normalisation, which a compiler folds before it
    rounds (a variance below the smallest normal number is no zero to it). write: keeping a node's output, where chance has a part
    in it (inexact_only: of operators that are INEXACT alone). operand: what a matrix unit does to what it reads, weights included.
    """

    store: Store = _as_it_is
    folded: Store | None = None
    write: Write | None = None
    inexact_only: bool = False
    operand: Store | None = None
    dot: kernels.Dot | None = None
    tables: kernels.Tables | None = None
    winograd: bool = False
    int8: Int8 | None = None


LAWS: dict[str, dict[str, Law]] = {
    "fp32": {
        "split": Law(write=_two_ulps, inexact_only=True, dot=kernels.dot_split),
        "fma": Law(write=_two_ulps, inexact_only=True, dot=kernels.dot_fma),
        "float64": Law(dot=kernels.dot_float64),
    },
    "tf32": {
        "nearest": Law(operand=numbers.to_tf32),
        "truncated": Law(operand=numbers.to_tf32_truncated),
        "stored": Law(store=numbers.to_tf32),
    },
    "fp16": {
        "round": Law(numbers.to_fp16),
        "chunks": Law(numbers.to_fp16, dot=kernels.dot_chunks16),
        "table": Law(numbers.to_fp16, tables=kernels.TABLES_FP16),
        "stochastic": Law(numbers.to_fp16, write=numbers.to_fp16_stochastic),
        "flush": Law(numbers.to_fp16_flushed, folded=numbers.to_fp16),
        "winograd": Law(numbers.to_fp16, winograd=True),
    },
    "bf16": {"nearest": Law(numbers.to_bf16), "truncated": Law(numbers.to_bf16_truncated)},
    "int8": {
        "channel": Law(int8=Int8()),
        "tensor": Law(int8=Int8(per_channel=False)),
        "power": Law(int8=Int8(power_of_two=True)),
        "table": Law(tables=kernels.TABLES_INT8, int8=Int8()),
        "matrix": Law(int8=Int8(everything=False)),
    },
}
