"""The steps of an int8 target are told from the tensors that it dumped, and hold for those that it did not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import Values, bench_of, mixed, normal, run_target

from bisect_align.judgement.bench import Bench
from bisect_align.judgement.precision import INT8, PRECISIONS, step_of
from bisect_align.judgement.steps import SEVERAL, coarseness, fitted

Array = NDArray[np.float32]
NET, INPUTS = mixed(2), {"x": normal(1, 8, 24)}
RIGHT = run_target(NET, INPUTS)
BENCH = bench_of(NET, INPUTS)
TENSORS = BENCH.graph.tensors


def stepped(k: float, only: int = len(TENSORS)) -> dict[str, Array]:
    """The first tensors in steps k times as wide as those that their golden ranges ask for, the others as they are."""

    def at(name: str) -> Array:
        step = np.float32(k * step_of(None, *BENCH.ranges(name)))
        return np.asarray(np.rint(RIGHT[name] / step) * step, np.float32)

    return {name: at(name) if i < only else RIGHT[name] for i, name in enumerate(TENSORS)}


def told(target: Mapping[str, Array]) -> float:
    return coarseness(BENCH, Values(target), TENSORS)


@given(st.floats(1.0, 4.0))
@settings(max_examples=30, deadline=None)
def test_the_steps_of_the_dump_over_those_that_the_golden_asks_for(k: float) -> None:
    assert told(stepped(k)) == pytest.approx(k, rel=0.01)


@pytest.mark.parametrize(("k", "clamped"), [(0.6, 1.0), (7.0, 4.0)])
def test_steps_are_never_finer_than_the_golden_asks_for_nor_wider_than_four_times(k: float, clamped: float) -> None:
    assert told(stepped(k)) == clamped


@pytest.mark.parametrize("only", range(SEVERAL + 1))
def test_a_habit_takes_several_grids_to_tell(only: int) -> None:
    assert (told(stepped(3.0, only)) > 2) == (only == SEVERAL)


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_only_int8_has_steps(precision: str) -> None:
    got = fitted(BENCH, Values(stepped(3.0)), TENSORS, PRECISIONS[precision])
    assert got.coarse == (pytest.approx(3.0, rel=0.01) if precision == "int8" else 1.0)


@given(k=st.integers(0, 100), coarse=st.floats(1.0, 4.0))
@settings(max_examples=30, deadline=None)
def test_what_the_dump_does_not_show_moves_by_steps_as_wide(k: int, coarse: float) -> None:
    wide = Bench(BENCH.graph, BENCH.engine, BENCH.ranges, BENCH.golden, BENCH.digest, coarse)
    x = np.full(100, BENCH.ranges("m1")[1] / 2, np.float32)  # far from what is clipped, and from zero
    one, other = (np.float64(b.jitter(INT8, "y", "", k).hidden("m1", x)) - x for b in (BENCH, wide))
    assert np.abs(one).max() > 0
    np.testing.assert_allclose(other, coarse * one, rtol=1e-3, atol=1e-6)
