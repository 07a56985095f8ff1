"""A second implementation is quoted with its figures, whomever it sides with, and with the reason where it was not heard."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_target import normal

from bisect_align.golden.protocol import Unavailable, Value
from bisect_align.judgement.opinion import witnessed

GOLDEN = normal(0, 40)
TARGET = GOLDEN + normal(1, 40)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (GOLDEN.astype(np.float64) * (1 + 1e-8), "agrees with the golden: relative L2 "),
        (TARGET, "sides with the target: relative L2 "),
        (normal(2, 40), "agrees with neither: relative L2 "),
        (normal(2, 41), "agrees with neither: shape [41], the golden has [40]"),
        (np.arange(40), "agrees with neither: shape [40]"),
        (Unavailable("its LRN is wrong"), "no second opinion on the golden: somebody was not heard, its LRN is wrong"),
    ],
)
def test_whom_it_sides_with(value: Value, words: str) -> None:
    assert words in witnessed(value, "somebody", GOLDEN, TARGET)


def test_integers_are_counted() -> None:
    golden = np.arange(10)
    text = witnessed(golden.copy(), "somebody", golden, golden + 1)
    assert text.endswith("agrees with the golden: share of unequal elements 0 from the golden, 1 from the target")


def test_a_target_of_another_shape_has_no_figure() -> None:
    assert witnessed(GOLDEN, "somebody", GOLDEN, TARGET[:5]).endswith("0 from the golden, no number from the target")
