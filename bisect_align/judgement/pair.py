"""A wrong value beside the right one, prepared once for all that looks for a pattern in their difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.judgement.precision import rms
from bisect_align.result.result import Symptom

Array: TypeAlias = NDArray[Any]

# Larger tensors are looked at through every n-th element where only values matter, and in float32 where places do.
SAMPLE = 1 << 22
# What an explanation may leave: of the error, of the noise; half of the error at most.
LEFT, LEFT_NOISE, LEFT_MOST = 0.1, 2.0, 0.5
OFF = 4.0  # an element is off where it errs by this many times the noise (of its size)


@dataclass(frozen=True, eq=False)
class Pair:
    """target: what came out; replay: what should have, of one shape. boundary: what the operator was fed; inner: what it makes on the
    way to the replay. noise: rms that a healthy target introduces (absolute). All figures below are over elements that are finite in
    both; the others count as equal.
    """

    target: Array
    replay: Array
    op: str = ""
    boundary: Mapping[str, Array] | None = None
    noise: float = 0.0
    inner: Mapping[str, Array] | None = None

    @cached_property
    def t(self) -> Array:
        """The target as float, 0 where either is not finite."""
        return np.where(self._fine, self.target.astype(self._kind), 0)

    @cached_property
    def y(self) -> Array:
        return np.where(self._fine, self.replay.astype(self._kind), 0)

    @cached_property
    def d(self) -> Array:
        return self.t - self.y

    @cached_property
    def square(self) -> Array:
        """Squared error of each element."""
        return np.square(self.d)

    @cached_property
    def energy(self) -> float:
        return float(np.sum(self.square, dtype=np.float64))

    @cached_property
    def before(self) -> float:
        """rms of the error."""
        return float(np.sqrt(self.energy / self.d.size)) if self.d.size else 0.0

    @cached_property
    def allowed(self) -> float:
        """rms that an explanation may leave."""
        noise = LEFT_NOISE * self.noise
        return max(LEFT * self.before, min(noise, LEFT_MOST * self.before) if noise < self.before else 0.0)

    @cached_property
    def off(self) -> Array:
        """Elements that err by more than noise could make them."""
        found: Array = np.abs(self.d) > OFF * self.noise * self.sized
        return found

    @cached_property
    def sized(self) -> Array | float:
        """How many times the noise an element may err for being larger than most: what rounds, rounds in proportion."""
        level = rms(self.y)
        sized: Array | float = np.maximum(1, np.abs(self.y) / level) if level > 0 else 1.0
        return sized

    @cached_property
    def live(self) -> Array:
        """Elements that are off, or would be if they were scaled: a zero stays what it is under most faults."""
        found: Array = self.off | (np.abs(self.y) > self.noise)
        return found

    @cached_property
    def thin(self) -> Pair:
        """The same pair as two vectors of at most SAMPLE elements, for what needs no places."""
        step = -(-self.target.size // SAMPLE) or 1
        t, y = (x.reshape(-1)[::step] for x in (self.target, self.replay))
        return Pair(t, y, self.op, None, self.noise)

    def part(self, where: tuple[slice | Array, ...]) -> Pair:
        """The pair inside a place."""
        return Pair(self.target[where], self.replay[where], self.op, None, self.noise)

    def explains(self, left: float) -> bool:
        """True where an explanation that leaves this rms explains nearly all of the error."""
        return self.before > 0 and left <= self.allowed

    def symptom(self, name: str, text: str, left: float) -> Symptom:
        """What is said of an explanation that leaves this rms, with its figures."""
        share = 1 - (left / self.before) ** 2 if self.before > 0 else 0.0
        return Symptom(name, f"{text} (rms error {self.before:.3g}, without this {left:.3g})", round(max(share, 0.0), 4))

    @cached_property
    def _fine(self) -> Array:
        fine: Array = np.isfinite(self.target) & np.isfinite(self.replay)
        return fine

    @property
    def _kind(self) -> type[np.floating[Any]]:
        return np.float32 if self.target.size > SAMPLE else np.float64
