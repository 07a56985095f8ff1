"""The budget of every judged region, and what the error of an output is made of where nobody is at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import mixed, model_of, node, normal, run_target, scaled, store, write_dump, write_model

from bisect_align.golden.segments import SegmentEngine
from bisect_align.metrics.measure import measure
from bisect_align.model.graph import graph_of
from bisect_align.report.terminal import text
from bisect_align.result.result import Result, TensorRow, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}
PRECISIONS = ["fp32", "fp16", "bf16", "int8"]


def run_on(folder: Path, model: onnx.ModelProto, inputs: dict[str, Array], values: dict[str, Array], **more: Any) -> Result:
    dump = write_dump(folder / "dump.npz", values, set(values) - set(inputs))
    return run(
        Options(model=write_model(folder, model), target_dump=dump, inputs=write_dump(folder / "inputs.npz", inputs), **more)
    )


def rows(result: Result) -> dict[str, TensorRow]:
    return {row.name: row for row in result.tensors}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_budget_is_what_its_definition_says(tmp_path: Path, precision: str) -> None:
    values, golden = run_target(NET, ROWS, precision), run_target(NET, ROWS)
    graph = graph_of(NET)
    found = rows(run_on(tmp_path, NET, ROWS, values, precision=precision))
    for at, name in enumerate(graph.tensors):
        (source,) = (n for n in graph.nodes[at].reads if n not in graph.constants)
        replay = SegmentEngine(graph).replay([at], {source: values[source]}, [name])[name]
        assert isinstance(replay, np.ndarray)
        row = found[name]
        assert row.inherited == measure(golden[name], replay).rel_l2
        fed = measure(golden[source], values[source]).rel_l2 or 0.0
        assert row.gain == (None if fed == 0 else pytest.approx((row.inherited or 0.0) / fed))
        assert row.introduced is not None
        assert row.hides is not None
        assert row.introduced <= row.hides, "nothing was convicted, so what was introduced is hidden"


def test_the_gain_of_operators_whose_gain_is_known(tmp_path: Path) -> None:
    """Doubled: passed on. Far from zero: damped. A difference of near equals: amplified."""
    nodes = [node("Tanh", "x", "a"), node("Mul", "a two", "m"), node("Add", "m far", "s"), node("Sub", "s far", "d")]
    weights = {"two": np.array(2, np.float32), "far": np.full(24, 100, np.float32)}
    model = model_of(nodes, {"x": (8, 24)}, weights=weights)
    found = rows(run_on(tmp_path, model, ROWS, run_target(model, ROWS, "fp16"), precision="fp16"))
    assert found["a"].gain is None, "the graph's input has no error"
    assert found["m"].gain == pytest.approx(1)
    assert (found["s"].gain or 1) < 0.05
    assert (found["d"].gain or 0) > 20


def test_the_default_run_gives_the_budget_of_what_it_judged(tmp_path: Path) -> None:
    result = run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, "fp16", {"b2": scaled(1.5)}))
    (culprit,) = result.culprits
    row = rows(result)["b2"]
    assert culprit.inherited is not None
    assert row.inherited == culprit.inherited.rel_l2
    assert row.gain == culprit.gain
    assert row.introduced == pytest.approx(culprit.introduced.rel_l2, rel=0.01)
    assert row.hides == culprit.noise.hides
    assert (rows(result)["m0"].hides is None) == (rows(result)["m0"].score is None)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_error_beyond_what_could_hide_does_not_hide(tmp_path: Path, precision: str) -> None:
    hides = rows(run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, precision), precision=precision))["m2"].hides
    assert hides is not None
    signs = np.where(np.random.default_rng(7).random((8, 24)) < 0.5, -1, 1).astype(np.float32)

    def fault(y: Array) -> Array:
        return y + signs * np.float32(3 * hides * np.sqrt(np.mean(y**2)))

    result = run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, precision, {"m2": fault}), precision=precision)
    assert [c.region.output for c in result.culprits] == ["m2"]


def test_equal_values_hide_nothing(tmp_path: Path) -> None:
    found = rows(run_on(tmp_path, NET, ROWS, run_target(NET, ROWS), precision="fp32"))
    assert {row.hides for row in found.values()} == {0.0}


# ---- accumulation ----------------------------------------------------------------------------------------------------------
def heavy(tensor: str) -> dict[str, Array]:
    """An fp32 target that rounds one tensor to bf16, and says so in no way: with bf16 declared it is healthy."""
    rng = np.random.default_rng(0)
    return run_target(NET, ROWS, "fp32", {tensor: lambda y: store(y, "bf16", rng)})


@pytest.mark.parametrize("tensor", ["m0", "t2", "g3"])
def test_the_region_that_makes_the_error_is_the_first_contributor(tmp_path: Path, tensor: str) -> None:
    result = run_on(tmp_path, NET, ROWS, heavy(tensor), precision="bf16", thresholds={"rel_l2": 1e-5})
    assert result.verdict is Verdict.ACCUMULATION
    sums = result.accumulation
    assert sums is not None
    assert sums.output == "g3"
    assert sums.error == rows(result)["g3"].accumulated.rel_l2  # type: ignore[union-attr]
    first = sums.contributors[0]
    assert first.region.output == tensor
    assert first.without == first.together < 0.01 * sums.error
    assert sums.crosses == tensor
    assert any(repr(tensor) in step and "higher precision" in step for step in result.next)
    assert tensor in text(result, 200)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_each_contributor_lessens_what_is_left(tmp_path: Path, precision: str) -> None:
    result = run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, precision), precision=precision, thresholds={"rel_l2": 1e-6})
    sums = result.accumulation
    assert sums is not None
    left = [sums.error, *(c.together for c in sums.contributors)]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == len(left) > 1
    assert all(c.without < sums.error for c in sums.contributors)
    assert sums.tried <= sums.regions <= 16
    assert result.next


def test_no_other_verdict_speaks_of_contributors(tmp_path: Path) -> None:
    assert run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, "fp16")).accumulation is None
    assert run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, "fp16", {"b2": scaled(1.5)})).accumulation is None


# ---- figures on request ----------------------------------------------------------------------------------------------------
def test_full_metrics_are_of_every_compared_tensor_and_class_scores_of_outputs(tmp_path: Path) -> None:
    values = run_target(NET, ROWS, "int8")
    plain, full = (run_on(tmp_path, NET, ROWS, values, precision="int8", metrics=m) for m in ("plain", "full"))
    assert all(row.accumulated and row.accumulated.kl is None for row in plain.tensors)
    for row in full.tensors:
        assert row.accumulated is not None
        assert row.accumulated.kl is not None
        assert row.accumulated.median_rel is not None
        assert row.output is (row.name == "g3")
        assert (row.accumulated.top1 is not None) is row.output
    assert "Outputs" in text(full)
    assert "Top-1" in text(full)
    assert "Top-1" not in text(plain)
    assert plain.verdict is full.verdict


def test_a_culprit_has_them_too(tmp_path: Path) -> None:
    result = run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, "fp16", {"b2": scaled(1.5)}), metrics="full")
    assert result.culprits[0].introduced.kl is not None
    assert "introduced: KL" in text(result)


def test_a_limit_on_one_of_them_is_kept(tmp_path: Path) -> None:
    values = run_target(NET, ROWS, "int8")
    assert run_on(tmp_path, NET, ROWS, values, precision="int8", thresholds={"top1": 0.0}).verdict is Verdict.ALIGNED
    beyond = run_on(tmp_path, NET, ROWS, values, precision="int8", thresholds={"kl": 1e-9, "histogram": 1e-9})
    assert beyond.verdict is Verdict.ACCUMULATION


def test_classic_says_where_in_the_tensor(tmp_path: Path) -> None:
    def fault(y: Array) -> Array:
        y[5:, 3:] *= 1.5
        return y

    result = run_on(tmp_path, NET, ROWS, run_target(NET, ROWS, "fp32", {"b1": fault}), policy="classic", scan=True)
    assert "63 of 192 elements off by more than 1%, the first at [5, 3]" in rows(result)["b1"].reason
    assert [c.tensor for c in result.crossings] == ["b1"]
