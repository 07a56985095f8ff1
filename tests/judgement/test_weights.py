"""A weight that differs from the model's is told in words, and one that is the same is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import normal

from bisect_align.judgement.weights import ROUNDINGS, STORES, difference, misplaced, orders, variants

Array = NDArray[Any]
SHAPES = [(6, 6), (4, 6), (8,), (4, 3, 3, 3), (5, 5, 3), (3, 4, 2, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_variant_is_told(shape: tuple[int, ...]) -> None:
    w = normal(3, *shape)
    made = list(variants(w))
    assert made
    for _, other in made:
        words, apart = difference(w, other)
        equal = [text for text, same in made if np.linalg.norm(same - other) <= STORES * apart * np.linalg.norm(w)]
        assert words in equal
        assert apart > 0


@given(seed=st.integers(0, 999), shape=st.sampled_from(SHAPES), factor=st.sampled_from([0.5, 2.0, 17.0]))
@settings(max_examples=40, deadline=None)
def test_a_factor_is_told(seed: int, shape: tuple[int, ...], factor: float) -> None:
    w = normal(seed, *shape)
    assert difference(w, w * np.float32(factor))[0] == f"{factor:.6g} times the model's"


@given(seed=st.integers(0, 999), shape=st.sampled_from(SHAPES))
@settings(max_examples=40, deadline=None)
def test_the_same_weight_differs_in_nothing_and_another_in_nothing_known(seed: int, shape: tuple[int, ...]) -> None:
    w = normal(seed, *shape)
    assert difference(w, w.copy())[0] == misplaced(w, w) == ""
    words, apart = difference(w, normal(seed + 1, *shape))
    assert words == "as none of the known mistakes"
    assert apart > STORES
    assert misplaced(w, normal(seed + 1, *shape)) == ""


@pytest.mark.parametrize("how", [how for how in ROUNDINGS if "int4" not in how and "power" not in how])
def test_rounding_does_not_misplace(how: str) -> None:
    w = normal(1, 6, 6)
    assert misplaced(w, ROUNDINGS[how](w)) == ""
    assert misplaced(w, ROUNDINGS[how](w.T)) == "axes [1, 0] exchanged"
    assert misplaced(w, ROUNDINGS[how](-w)) == "negated"


def test_zeros_and_constants_are_no_weights_to_tell() -> None:
    zeros = np.zeros((3, 4), np.float32)
    assert difference(zeros, zeros)[0] == misplaced(zeros, zeros + 1) == ""
    assert difference(zeros, zeros + 1)[0] == "as none of the known mistakes"
    assert all(other.shape == (3, 4) for _, other in orders(zeros))
