"""Accumulated noise: nothing where nothing is rounded, more the longer the way and the coarser the format, and always the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import bench_of, mixed, model_of, node, normal, run_target

from bisect_align.judgement.policy import NOISE_FACTOR
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.judgement.shadow import NoiseLevel, accumulated_noise

Array = NDArray[np.float32]
NET, INPUTS = mixed(6), {"x": normal(31, 8, 24)}


def noise(model: onnx.ModelProto, inputs: dict[str, Array], precision: str, shadows: int = 8) -> dict[str, NoiseLevel]:
    bench = bench_of(model, inputs)
    return accumulated_noise(bench, inputs, bench.graph.tensors, PRECISIONS[precision], shadows)


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_what_is_not_rounded_has_no_noise(precision: str) -> None:
    nodes = [node("Shape", "x", "s"), node("Greater", "x far", "b"), node("Mul", "x zero", "z")]
    weights = {"far": np.array(99, np.float32), "zero": np.array(0, np.float32)}
    model = model_of(nodes, {"x": (8, 24)}, outputs=("s", "b", "z"), weights=weights)
    got = noise(model, INPUTS, precision)
    assert {t: (n.relative, n.share) for t, n in got.items() if t in "sb"} == {"s": (0.0, 0.0), "b": (0.0, 0.0)}
    if precision != "int8":
        assert (got["z"].relative, got["z"].peak, got["z"].level) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_noise_grows_along_a_chain_of_sums(precision: str) -> None:
    depth = 12
    nodes = [node("Add", f"{'x' if k == 0 else f'y{k - 1}'} c", f"y{k}") for k in range(depth)]
    model = model_of(nodes, {"x": (8, 24)}, weights={"c": np.array(0.0, np.float32)})
    got = noise(model, INPUTS, precision)
    levels = [got[f"y{k}"].relative for k in range(depth)]
    assert levels[0] > 0
    assert levels[3] > levels[0]
    assert levels[11] > levels[3]
    assert all(n.level == pytest.approx(np.sqrt(np.mean(INPUTS["x"] ** 2)), rel=1e-6) for n in got.values())


def test_noise_grows_with_the_coarseness_of_the_format() -> None:
    levels = [noise(NET, INPUTS, p)["g5"] for p in ("fp32", "fp16", "bf16")]
    assert [n.relative for n in levels] == sorted(n.relative for n in levels)
    assert [n.peak for n in levels] == sorted(n.peak for n in levels)
    assert levels[2].relative > 20 * levels[0].relative


def test_more_shadows_see_no_less() -> None:
    few, many = noise(NET, INPUTS, "fp16", 3), noise(NET, INPUTS, "fp16", 8)
    assert all(many[t].relative >= few[t].relative for t in few)


def test_the_same_run_has_the_same_noise() -> None:
    assert noise(NET, INPUTS, "bf16") == noise(NET, INPUTS, "bf16")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_healthy_target_stays_within_the_noise(precision: str) -> None:
    got = noise(NET, INPUTS, precision)
    golden = run_target(NET, INPUTS)
    target = run_target(NET, INPUTS, precision)
    for name, level in got.items():
        d = target[name].astype(np.float64) - golden[name]
        assert np.linalg.norm(d) <= NOISE_FACTOR * level.relative * np.linalg.norm(golden[name])


def test_integers_flip_in_a_share() -> None:
    model = model_of([node("Greater", "x zero", "b")], {"x": (100, 100)}, weights={"zero": np.array(1.0, np.float32)})
    x = np.ones((100, 100), np.float32)
    assert 0.3 < noise(model, {"x": x}, "fp16")["b"].share <= 1
    assert noise(model, {"x": x + 1}, "fp16")["b"].share == 0


def test_non_finite_elements_do_not_count() -> None:
    x = np.abs(normal(3, 8, 24)) + 1
    x[0, 0] = -1
    got = noise(model_of([node("Log", "x", "y")], {"x": (8, 24)}), {"x": x}, "fp16")["y"]
    assert np.isfinite(got.relative)
    assert np.isfinite(got.level)
    assert got.relative > 0
