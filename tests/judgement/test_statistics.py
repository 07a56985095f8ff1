"""Healthy noise stays below the threshold whatever its seed; planted errors do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisect_align.judgement import statistics
from bisect_align.judgement.judge import CONVICT
from bisect_align.judgement.precision import PRECISIONS, Precision, rms, storing_cost

Array = NDArray[np.float64]
SHAPES = [(64,), (8, 24), (1, 6, 10, 8), (4, 8, 16)]
REPLAYS = 8


class Region:
    """A region made of numbers: its value y, storing cost a, and what computing it in this precision moves."""

    def __init__(self, seed: int, shape: tuple[int, ...], precision: Precision) -> None:
        self.rng = np.random.default_rng(seed)
        self.precision = precision
        self.y = self.rng.standard_normal(shape)
        self.step = float(np.ptp(self.y)) / 255
        self.a = storing_cost(precision, self.y, "Add", self.step)
        self.deviations = [self.inner() for _ in range(REPLAYS)]

    def inner(self) -> Array:
        size = self.step if self.precision.stepped else 2 * self.precision.unit * (np.abs(self.y) + 0.5)
        return self.rng.uniform(-1, 1, self.y.shape) * size

    def healthy(self) -> Array:
        return self.inner() + self.rng.uniform(-1, 1, self.y.shape) * self.a

    def score(self, d: Array) -> float:
        got = statistics.judge(d, self.y, self.a, self.deviations, precision=self.precision, nodes=1, clip=(0.0, 0.0))
        return got.score


def scale(r: Region, d: Array, e: float) -> None:
    d += e * r.y


def offset(r: Region, d: Array, e: float) -> None:
    d += e * rms(r.y)


def one_channel(r: Region, d: Array, e: float) -> None:
    np.moveaxis(d, -1, 0)[2] += e * np.moveaxis(r.y, -1, 0)[0]


def one_element(r: Region, d: Array, e: float) -> None:
    d.flat[d.size // 2] += 4 * e * rms(r.y)


def border(r: Region, d: Array, e: float) -> None:
    d[..., -1] += e * r.y[..., -2]


PLANTED = {f.__name__: f for f in (scale, offset, one_channel, one_element, border)}


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_healthy_noise_is_never_convicted(precision: Precision, shape: tuple[int, ...]) -> None:
    for seed in range(60):
        region = Region(seed, shape, precision)
        assert region.score(region.healthy()) < CONVICT


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gate_passes_what_storing_explains_and_nothing_more(precision: Precision, shape: tuple[int, ...]) -> None:
    for seed in range(20):
        region = Region(seed, shape, precision)
        stored = region.rng.uniform(-1, 1, shape) * region.a
        passed = statistics.gate(stored, region.a)
        assert passed is not None
        assert passed < CONVICT / 4
        assert statistics.gate(4 * stored, region.a) is None
        lone = np.zeros(shape)
        lone.flat[seed] = 4.1 * region.a.flat[seed]
        assert statistics.gate(lone, region.a) is None


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=lambda p: p.name)
@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_a_planted_error_is_convicted(precision: Precision, kind: str) -> None:
    """Forty times the rounding unit (int8: fourteen steps); one element errs four times as much."""
    for seed in range(10):
        for shape in SHAPES[1:]:
            region = Region(seed, shape, precision)
            d = region.healthy()
            PLANTED[kind](region, d, 14 * region.step if precision.stepped else 40 * precision.unit)
            assert region.score(d) > CONVICT, (seed, shape)


@given(st.integers(0, 10_000), st.sampled_from(sorted(PLANTED)), st.sampled_from(["fp32", "fp16", "bf16"]))
@settings(max_examples=40)
def test_a_larger_error_scores_no_less(seed: int, kind: str, name: str) -> None:
    region = Region(seed, (6, 20), PRECISIONS[name])
    scores = []
    for e in (100, 400, 1600):
        d = np.zeros(region.y.shape)
        PLANTED[kind](region, d, e * region.precision.unit)
        scores.append(region.score(d))
    assert scores == sorted(scores)


@given(st.integers(0, 10_000), st.sampled_from(list(PRECISIONS.values())), st.floats(1e-3, 1e3))
@settings(max_examples=40)
def test_a_score_has_no_unit(seed: int, precision: Precision, factor: float) -> None:
    """The same region in other units of measure has the same score (but for what half precision loses near zero)."""
    region = Region(seed, (6, 20), precision)
    d = region.healthy()
    before = region.score(d)
    region.y, region.a = factor * region.y, factor * region.a
    region.deviations = [factor * x for x in region.deviations]
    assert region.score(factor * d) == pytest.approx(before, rel=1e-6)


def test_where_noise_is_half_of_the_signal_a_moderate_score_proves_nothing() -> None:
    region = Region(1, (8, 24), PRECISIONS["fp16"])
    region.deviations = [region.rng.uniform(-1, 1, region.y.shape) for _ in range(REPLAYS)]
    assert region.score(region.rng.uniform(-4, 4, region.y.shape)) < CONVICT
    assert region.score(np.full(region.y.shape, 1e4)) > CONVICT


def test_noise_has_no_holes_where_replays_left_elements_untouched() -> None:
    moved = np.array([0.0, 1.0, 2.0, 3.0])
    n = statistics.noise_of([moved, -moved / 2])
    assert np.all(n > 0)
    np.testing.assert_array_equal(n[1:], moved[1:])
    np.testing.assert_array_equal(statistics.noise_of([np.zeros(3)]), np.zeros(3))


@pytest.mark.parametrize("excess", [0.0, 0.02])
def test_calibration_clips_few_elements_and_only_where_the_span_is_kept(excess: float) -> None:
    y = np.linspace(-1, 1, 101)
    step = 2 / 255
    t = np.clip(y, -1 + excess, 1 - excess)
    inside, norm, beyond = statistics.clipped(t, y, np.full(y.shape, step / 2), step)
    np.testing.assert_array_equal(inside, t)
    assert (norm > 0) is (excess > 0)
    assert beyond == pytest.approx(excess / 2)


def test_a_target_that_spans_little_is_not_excused_as_clipped() -> None:
    y = np.linspace(-1, 1, 101)
    a = np.full(y.shape, 1 / 255)
    for t in (np.zeros(101), np.clip(y, -0.4, 0.4), np.clip(y, -0.9, 0.6)):
        reference, norm, beyond = statistics.clipped(t, y, a, 2 / 255)
        assert reference is y
        assert (norm, beyond) == (0.0, 0.0)
