"""The stand-alone judgement: what a healthy target of a precision returns agrees, planted faults differ, and shapes of trouble are told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_target import Fault, Values, bench_of, channel, mixed, normal, offset, one_element, run_target, scaled

from bisect_align.judgement.allowance import allowance
from bisect_align.judgement.bench import feeds_of, predict
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.model.region import region
from bisect_align.repro.alone import judge

Array = NDArray[Any]
NET, ROWS = mixed(2), {"x": normal(9, 8, 24)}
RULE = {"by": "noise", "limit": 2.0, "gain": 1e-6, "offset": 1e-6, "rounds": False}


def judged(tensor: str, precision: str, faults: dict[str, Fault], seed: int = 0) -> dict[str, Any]:
    values = run_target(NET, ROWS, precision, faults, seed=seed)
    bench = bench_of(NET, ROWS)
    area = region(bench.graph, tensor, values)
    feeds = feeds_of(area, Values(values), {})
    golden = predict(bench, area, feeds)
    assert isinstance(golden, np.ndarray)
    room = allowance(bench, area, feeds, golden, PRECISIONS[precision], values[tensor])
    return judge(golden, values[tensor], room.sigma, {**RULE, "gain": room.gain, "offset": room.offset})


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("tensor", ["m1", "b0", "t1", "g0"])
def test_a_healthy_target_agrees(tensor: str, precision: str) -> None:
    for seed in range(3):
        assert not judged(tensor, precision, {}, seed)["differs"]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "fault", [scaled(1.2), offset(0.3), one_element(6), channel(1)], ids=["scaled", "offset", "one", "channel"]
)
def test_a_faulty_one_differs(precision: str, fault: Fault) -> None:
    assert judged("b1", precision, {"b1": fault})["differs"]


@given(st.integers(0, 47), st.sampled_from([np.nan, np.inf, -np.inf]))
@settings(max_examples=20, deadline=None)
def test_new_nan_and_inf_differ_and_are_the_worst(place: int, value: float) -> None:
    golden = normal(1, 6, 8)
    target = golden.copy()
    target.flat[place] = value
    found = judge(golden, target, np.full(golden.shape, 1e-6), RULE)
    assert found["differs"]
    assert found["worst"][0]["index"] == np.unravel_index(place, golden.shape)
    assert not judge(target, target, np.full(golden.shape, 1e-6), RULE)["differs"]


def test_shapes_flips_and_the_old_error() -> None:
    golden = normal(1, 4, 6)
    sigma = np.full(golden.shape, 1e-6)
    assert judge(golden, golden[:2], sigma, RULE)["score"] == math.inf
    levels = np.arange(100, dtype=np.int8).reshape(10, 10)
    assert not judge(levels, levels + (np.indices(levels.shape).sum(0) % 2).astype(np.int8), np.ones(levels.shape), RULE)[
        "differs"
    ]
    assert judge(levels, levels + np.int8(1), np.ones(levels.shape), {**RULE, "rounds": True})["differs"]
    assert judge(levels, np.where(levels == 7, 9, levels), np.ones(levels.shape), RULE)["differs"]
    by_error = {**RULE, "by": "error", "error": 0.1}
    assert judge(golden, golden * np.float32(1.1), np.full(golden.shape, 1.0), by_error)["differs"]
    assert not judge(golden, golden * np.float32(1.05), np.full(golden.shape, 1.0), by_error)["differs"]


def test_nothing_agrees_with_nothing() -> None:
    nothing = np.zeros((0, 3), np.float32)
    assert not judge(nothing, nothing, np.zeros((0, 3)), RULE)["differs"]
