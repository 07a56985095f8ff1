from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bisect_align.metrics.inner import inner, norm, relative


@given(st.lists(st.integers(-1000, 1000), max_size=50))
def test_inner_is_the_sum_of_products(numbers: list[int]) -> None:
    x = np.array(numbers, np.float64)
    assert inner(x, x + 1) == sum(n * (n + 1) for n in numbers)


def test_inner_does_not_care_for_size() -> None:
    x = np.ones(1_000_003)
    assert inner(x, 2 * x) == 2_000_006


@given(st.lists(st.integers(-1000, 1000), max_size=50))
def test_norm_is_the_length(numbers: list[int]) -> None:
    assert norm(np.array(numbers, np.float64)) == math.sqrt(sum(n * n for n in numbers))


def test_relative_to_nothing() -> None:
    assert (relative(1.0, 4.0), relative(0.0, 0.0), relative(1e-30, 0.0)) == (0.25, 0.0, math.inf)
