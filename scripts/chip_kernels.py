"""Arithmetic of the fake chip: how a sum is accumulated, how a convolution is done, how a curve is looked up.

Everything here is numpy and shares nothing with the tool that judges it. Arrays are float32 unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from chip_numbers import to_fp16
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Dot: TypeAlias = Callable[[Array, Array], Array]
Curve: TypeAlias = Callable[[Array], Array]


# ---- accumulation: a[..., M, K] times b[..., K, N] ----
def dot_split(a: Array, b: Array, parts: int = 4) -> Array:
    """Split-K: the partial sums of K/4 terms are added last part first."""
    bounds = np.linspace(0, a.shape[-1], parts + 1).astype(int)
    spans = [slice(lo, hi) for lo, hi in pairwise(bounds) if hi > lo]
    total = a[..., spans[-1]] @ b[..., spans[-1], :]
    for span in reversed(spans[:-1]):
        total = total + a[..., span] @ b[..., span, :]
    return total


def dot_float64(a: Array, b: Array) -> Array:
    """Accumulated in float64, rounded once."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def dot_fma(a: Array, b: Array) -> Array:
    """One float32 accumulator fed by fused multiply-adds: product exact, each sum rounded once."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total = (total + wide_a[..., k : k + 1] * wide_b[..., k : k + 1, :]).astype(np.float32)
    return total


def dot_chunks16(a: Array, b: Array, chunk: int = 32) -> Array:
    """Chunks of 32 terms are summed in float32, the running total is kept in float16."""
    total = to_fp16(a[..., :chunk] @ b[..., :chunk, :])
    for lo in range(chunk, a.shape[-1], chunk):
        total = to_fp16(total + a[..., lo : lo + chunk] @ b[..., lo : lo + chunk, :])
    return total


# ---- convolution ----
def conv(x: Array, w: Array, bias: Array | None, attributes: Mapping[str, Any], dot: Dot) -> Array:
    """2-D convolution as a product of patches and kernels, so that every accumulation law serves it too.

    x: [N, C, H, W]; w: [M, C/group, kh, kw]; attributes: ONNX Conv's strides, pads, dilations, group.
    """
    groups = int(attributes.get("group", 1))
    sy, sx = attributes.get("strides", (1, 1))
    dy, dx = attributes.get("dilations", (1, 1))
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    kh, kw = w.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, ((kh - 1) * dy + 1, (kw - 1) * dx + 1), axis=(2, 3))
    windows = windows[:, :, ::sy, ::sx, ::dy, ::dx]  # [N, C, H', W', kh, kw]
    n, _, out_h, out_w = windows.shape[:4]
    outputs = []
    for part, kernels in zip(np.split(windows, groups, axis=1), np.split(w, groups), strict=True):
        rows = part.transpose(0, 2, 3, 1, 4, 5).reshape(n * out_h * out_w, -1)
        product = dot(rows, kernels.reshape(len(kernels), -1).T)
        outputs.append(product.reshape(n, out_h, out_w, -1).transpose(0, 3, 1, 2))
    y = np.concatenate(outputs, axis=1)
    return y if bias is None else (y + bias[:, None, None]).astype(np.float32)


# Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), F(2x2, 3x3).
_B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32)
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
_A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32)


def conv_winograd(x: Array, w: Array, bias: Array | None, pads: tuple[int, int, int, int]) -> Array:
    """3x3 convolution of stride 1, transformed tiles and kernels and their products all stored as float16."""
    top, left, bottom, right = pads
    out_h, out_w = x.shape[2] + top + bottom - 2, x.shape[3] + left + right - 2
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom + out_h % 2), (left, right + out_w % 2)))
    tiles = sliding_window_view(x, (4, 4), axis=(2, 3))[:, :, ::2, ::2]
    v = to_fp16(np.einsum("ij,nchwjk,lk->nchwil", _B, tiles, _B))
    u = to_fp16(np.einsum("ij,mcjk,lk->mcil", _G, w, _G))
    product = to_fp16(np.einsum("mcil,nchwil->nmhwil", u, v))
    y = np.einsum("ij,nmhwjk,lk->nmhiwl", _A, product, _A)
    n, m, rows, _, columns, _ = y.shape
    y = y.reshape(n, m, rows * 2, columns * 2)[:, :, :out_h, :out_w]
    return np.asarray(y if bias is None else y + bias[:, None, None], np.float32)


# ---- curves looked up in a table, linear in between ----
def _table(curve: Curve, low: float, high: float, entries: int, stored: Curve) -> Curve:
    knots = np.linspace(low, high, entries)
    held = stored(curve(knots).astype(np.float32))

    def look_up(x: Array) -> Array:
        return np.where(np.isnan(x), x, np.interp(x, knots, held)).astype(np.float32)

    return look_up


def _erf(x: Array) -> Array:
    # Abramowitz and Stegun 7.1.26, error below 1.5e-7: far below an entry of any table.
    t = 1 / (1 + 0.3275911 * np.abs(x))
    polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.sign(x) * (1 - polynomial * np.exp(-x * x)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _eight_bits(x: Array) -> Array:
    return np.asarray(np.rint(x * 128) / 128, np.float32)


@dataclass(frozen=True, slots=True)
class Tables:
    """Curves by operator, and the table of 2**x on 0 .. 1 that exponentials are made of."""

    curves: Mapping[str, Curve]
    power_of_two: Curve

    def look_up(self, op: str, x: Array, attributes: Mapping[str, Any]) -> Array | None:
        """The operator on x; None where it has no table."""
        if op == "Softmax":
            axis = attributes.get("axis", -1)
            powers = self.exp(x - x.max(axis=axis, keepdims=True))
            return np.asarray(powers / powers.sum(axis=axis, keepdims=True), np.float32)
        if op == "Exp":
            return self.exp(x)
        return self.curves[op](x) if op in self.curves else None

    def exp(self, x: Array) -> Array:
        """Whole powers of two are exact, the fraction is looked up."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.clip(x.astype(np.float64) / np.log(2.0), -1000, 1000)
            whole = np.floor(scaled)
            return np.where(np.isnan(x), x, self.power_of_two(scaled - whole) * np.exp2(whole)).astype(np.float32)


def _tables(entries: int, stored: Curve) -> Tables:
    spans: dict[str, tuple[Curve, float]] = {"Sigmoid": (_sigmoid, 8.0), "Tanh": (np.tanh, 5.0), "Erf": (_erf, 4.0)}
    curves = {op: _table(curve, -end, end, entries, stored) for op, (curve, end) in spans.items()}
    return Tables(curves, _table(np.exp2, 0.0, 1.0, entries, stored))


TABLES_FP16 = _tables(257, to_fp16)
TABLES_INT8 = _tables(256, _eight_bits)
