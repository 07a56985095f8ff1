"""KL divergence, histogram distance, median relative error, Top-1 and Top-5: their values, their limits, their edge cases."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from bisect_align.metrics.distributions import BINS_MOST, FULL, agreement, distance, divergence, extended, histograms
from bisect_align.metrics.measure import measure
from bisect_align.metrics.places import located
from bisect_align.result.result import Figures

Array = NDArray[Any]
X = np.random.default_rng(3).standard_normal(10_000).astype(np.float32)


def full(golden: Array, target: Array, scores: bool = True) -> Figures:
    return extended(measure(golden, target), golden, target, scores=scores)


def test_what_is_on_request_is_not_in_the_plain_figures() -> None:
    assert all(getattr(measure(X, X), name) is None for name in FULL)
    assert {name for name, value in asdict(full(X, X)).items() if value is not None} >= FULL


def test_equal_tensors_are_at_no_distance() -> None:
    found = full(X, X)
    assert (found.kl, found.histogram, found.median_rel, found.top1, found.top5) == (0, 0, 0, 1, 1)


def test_the_divergence_of_two_coins() -> None:
    p, q = np.array([30.0, 70.0]), np.array([50.0, 50.0])
    a, b = np.array([30.5, 70.5]) / 101, np.array([50.5, 50.5]) / 101
    assert divergence(p, q) == pytest.approx(a[0] * math.log(a[0] / b[0]) + a[1] * math.log(a[1] / b[1]))
    assert distance(p, q) == pytest.approx(0.2)


def test_disjoint_values_are_as_far_as_can_be_and_finite() -> None:
    found = full(X, X + 100, scores=False)
    assert found.histogram == 1
    assert found.kl is not None
    assert 1 < found.kl < math.inf


def test_the_further_the_values_move_the_greater_both_are() -> None:
    found = [full(X, X + np.float32(shift), scores=False) for shift in (0.0, 0.1, 0.5, 2.0)]
    assert sorted(f.kl or 0 for f in found) == [f.kl for f in found]
    assert sorted(f.histogram or 0 for f in found) == [f.histogram for f in found]


def test_an_order_of_elements_is_not_seen() -> None:
    """A permuted tensor has the same distribution: that is what these figures are blind for."""
    found = full(X, X[::-1].copy(), scores=False)
    assert (found.kl, found.histogram) == (0, 0)
    assert found.cosine is not None
    assert found.cosine < 0.1


def test_the_median_is_not_moved_by_a_few_wild_elements() -> None:
    wild = X.copy()
    wild[:100] *= 1e6
    assert full(X, wild).median_rel == 0
    assert full(X, X * np.float32(1.5)).median_rel == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
        (np.float32(1), np.float32(2)),
        (np.zeros(9, np.float32), np.ones(9, np.float32)),
        (np.ones(9, np.float32), np.ones(9, np.float32)),
        (np.full(4, np.nan, np.float32), np.full(4, 1.0, np.float32)),
        (np.array([1, np.inf, 3], np.float32), np.array([1, 2, -np.inf], np.float32)),
        (np.array([1e308, -1e308]), np.array([-1e308, 1e308])),
        (np.array([5e-324, 0, 1e-320]), np.array([0, 5e-324, 0.0])),
        (np.arange(9, dtype=np.int64), np.arange(9, dtype=np.int64)[::-1].copy()),
        (np.ones(8, ml_dtypes.bfloat16), np.zeros(8, ml_dtypes.bfloat16)),
    ],
    ids=["empty", "scalar", "zeros", "constant", "nan", "inf", "huge", "tiny", "ints", "bfloat16"],
)
def test_odd_tensors_have_finite_answers(golden: Array, target: Array) -> None:
    golden, target = np.asarray(golden), np.asarray(target)
    found = full(golden, target)
    assert found.kl is not None
    assert found.kl >= 0
    assert math.isfinite(found.kl)
    assert found.histogram is not None
    assert 0 <= found.histogram <= 1
    assert found.median_rel is not None
    assert not math.isnan(found.median_rel)


@pytest.mark.parametrize("values", [np.array([True, False]), np.array(["a", "b"]), np.array([1j, 2j])])
def test_what_has_no_order_has_none_of_these(values: Array) -> None:
    assert full(values, values) == measure(values, values)


FLOATS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=9), elements=st.floats(-1e4, 1e4, width=32))


@settings(max_examples=80, deadline=None)
@given(st.data(), FLOATS)
def test_laws(data: st.DataObject, golden: Array) -> None:
    target = data.draw(hnp.arrays(np.float32, golden.shape, elements=st.floats(-1e4, 1e4, width=32)))
    p, q = histograms(*(x.astype(np.float64).ravel() for x in (golden, target)))
    assert p.size == q.size <= BINS_MOST
    assert p.sum() == q.sum() == golden.size
    assert 0 <= distance(p, q) <= 1
    assert distance(p, q) == distance(q, p)
    assert divergence(p, q) >= 0
    best, top = agreement(golden.astype(np.float64), target.astype(np.float64))
    assert all(share is None or 0 <= share <= 1 for share in (best, top))
    assert located(golden, target, 0.01)[0] <= golden.size


# ---- class scores ----------------------------------------------------------------------------------------------------------
SCORES = np.array([[0.0, 3, 2, 1, -1, -2, -3, -4], [9.0, 1, 2, 3, 4, 5, 6, 7]])


def test_of_class_scores_the_divergence_is_that_of_their_softmax() -> None:
    """Ten logits have three bins: what 10 % does to them stands in the probabilities, not in the histogram."""
    golden = np.array([[1.0, 5, 2, 0, -1, 3, 4, -2, 0.5, 1.5]], np.float32)
    target = golden * np.float32(1.1)
    p, q = (np.exp(x) / np.exp(x).sum() for x in (golden.astype(np.float64), target.astype(np.float64)))
    expected = float((p * np.log(p / q)).sum())
    assert expected > 1e-3
    assert full(golden, target).kl == pytest.approx(expected, rel=1e-4)
    assert full(p, q).kl == pytest.approx(expected, rel=1e-4)  # probabilities are taken as they are
    assert full(golden, golden + np.float32(3)).kl == pytest.approx(0, abs=1e-9)  # which a softmax does not see


def test_a_class_that_the_target_gives_no_chance_leaves_the_divergence_finite() -> None:
    found = full(np.array([[0.5, 0.5, 0]]), np.array([[1.0, 0, 0]])).kl
    assert found is not None
    assert 5 < found < 20


def test_the_best_class_and_the_five_best() -> None:
    other = SCORES.copy()
    other[0, [1, 2]] = other[0, [2, 1]]  # the best is another one, the five are the same
    other[1, 7] = -1  # one of the five is gone
    assert agreement(SCORES, other) == (0.5, 0.9)


def test_a_tie_of_the_golden_is_no_miss() -> None:
    assert agreement(np.array([1.0, 1, 0]), np.array([0.9, 1, 0])) == (1.0, None)
    assert agreement(np.array([1.0, 0.99, 0]), np.array([0.9, 1, 0])) == (0.0, None)


def test_a_nan_agrees_in_nothing() -> None:
    broken = SCORES.copy()
    broken[0, 3] = np.nan
    assert agreement(SCORES, broken) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        *(((8,), True), ((3, 8), True), ((1, 8), True), ((3, 8, 1, 1), True), ((1, 1, 1, 8), True), ((1,), False)),
        *(((3, 1), False), ((), False), ((0, 8), False), ((1, 5, 8), False), ((2, 3, 4, 4), False)),
    ],
)
def test_which_tensors_are_class_scores(shape: tuple[int, ...], told: bool) -> None:
    scores = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    assert agreement(scores, scores) == ((1.0, 1.0) if told else (None, None))


def test_only_where_the_caller_says_so_and_of_floats() -> None:
    assert full(SCORES, SCORES, scores=False).top1 is None
    assert full(np.arange(8), np.arange(8)).top1 is None


# ---- where -----------------------------------------------------------------------------------------------------------------
def test_elements_beyond_a_relative_error_are_counted_and_the_first_is_named() -> None:
    golden = np.array([[1.0, 2, 0], [np.nan, np.inf, 4]])
    target = np.array([[1.005, 2.1, 0], [np.nan, -np.inf, np.nan]])
    assert located(golden, target, 0.01) == (3, (0, 1))
    assert located(golden, golden, 0.0) == (0, None)
    assert located(np.zeros(3), np.array([0, 0, 1e-12]), 0.01) == (0, None)
    assert located(np.zeros(3), np.array([0, 0, 1e-6]), 0.01) == (1, (2,))
