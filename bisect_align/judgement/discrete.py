"""Integers and booleans: compared exactly, but a flip under a near-tie of the parent floats is benign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ROUNDING = frozenset({"QuantizeLinear", "Round", "Cast", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"})
ARG = frozenset({"ArgMax", "ArgMin"})
SIGN_TEST = 4.0  # standard deviations of up against down flips that no unbiased rounding shows
GROSS = 2.5  # least score of a mismatch that even the widest jitter does not reach


@dataclass(frozen=True, slots=True)
class Flips:
    """unexcused: elements that no jitter explains; gross: of these, not even 16 times the rounding; up, down: direction of the
    mismatches by one; text: what is behind the score."""

    mismatched: int
    unexcused: int
    gross: int
    up: int
    down: int
    size: int

    @property
    def sign(self) -> float:
        total = self.up + self.down
        return abs(self.up - self.down) / np.sqrt(total) if total else 0.0

    def score(self, op: str) -> float:
        """100 x unexcused share; a one-sided rounding counts even where each flip is excused."""
        share = 100 * self.unexcused / max(self.size, 1)
        biased = GROSS * self.sign / SIGN_TEST if op in ROUNDING and self.sign >= SIGN_TEST else 0.0
        return float(max(share, GROSS if self.gross else 0.0, biased))


def compare(target: Array, predicted: Array, flipped: Array, flipped_widely: Array) -> Flips:
    """Mismatches of two equal-shaped integer or bool arrays; flipped, flipped_widely: elements that jittered replays changed."""
    wrong = target != predicted
    unexcused = wrong & ~flipped
    up = down = 0
    if target.dtype != bool:
        difference = target.astype(np.float64) - predicted.astype(np.float64)
        up, down = int(np.count_nonzero(difference == 1)), int(np.count_nonzero(difference == -1))
    return Flips(
        mismatched=int(np.count_nonzero(wrong)),
        unexcused=int(np.count_nonzero(unexcused)),
        gross=int(np.count_nonzero(unexcused & ~flipped_widely)),
        up=up,
        down=down,
        size=target.size,
    )


def chosen_gap(scores: Array, target: Array, predicted: Array, axis: int, keepdims: bool) -> tuple[Array, Array]:
    """ArgMax/ArgMin: (|score at the target's index - score at the predicted index|, target index in range), shaped like target."""
    index_t, index_p = (x if keepdims else np.expand_dims(x, axis) for x in (target, predicted))
    count = scores.shape[axis]
    valid = (index_t >= 0) & (index_t < count)
    at_t = np.take_along_axis(scores, np.where(valid, index_t, 0).astype(np.int64), axis)
    at_p = np.take_along_axis(scores, np.clip(index_p, 0, count - 1).astype(np.int64), axis)
    gap = np.abs(at_t.astype(np.float64) - at_p.astype(np.float64))
    if not keepdims:
        gap, valid = np.squeeze(gap, axis), np.squeeze(valid, axis)
    return gap, valid
