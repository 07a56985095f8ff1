"""Shapes that are computed in the graph: who only lends a shape is never accused, and a wrong shape is the fault of one region."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import shape_inference
from tiny_target import Fault, Values, bench_of, model_of, node, normal, one_element, run_target, write_dump, write_model

from bisect_align.judgement.judge import Judge
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.model.settled import settled_by_shapes
from bisect_align.repro.content import content
from bisect_align.result.result import Kind, Result, Verdict
from bisect_align.session.case import prepare
from bisect_align.session.options import Options
from bisect_align.session.reopen import Reopened
from bisect_align.session.run import run

Array = NDArray[Any]
X = {"x": normal(7, 8, 24)}


def dynamic(sizes: Any = ("m", "n")) -> onnx.ModelProto:
    """x (8, 24): m, t = m^T, then r = Reshape(t, Shape(t)) and y; g, and its part s as long as half of t, and z."""
    nodes = [
        node("MatMul", "x w", "m"),
        node("Transpose", "m", "t", perm=[1, 0]),
        node("Shape", "t", "shape"),
        node("Gather", "shape i0", "rows"),
        node("Concat", "rows minus", "to", axis=0),
        node("Reshape", "t to", "r"),
        node("Tanh", "r", "y"),
        node("Transpose", "x", "g", perm=[1, 0]),
        node("Div", "rows two", "half"),
        node("Slice", "g i0 half i0", "s"),
        node("Mul", "s s", "z"),
    ]
    weights = {"w": normal(8, 24, 24, scale=0.2), "i0": [0], "minus": [-1], "two": [2]}
    return shape_inference.infer_shapes(model_of(nodes, {"x": sizes}, ["y", "z"], weights))


def ran(folder: Path, faults: dict[str, Fault], without: str = "", **more: Any) -> tuple[Result, Options]:
    values = run_target(dynamic(), X, "fp32", faults)
    kept = set(values) - {"x", "shape", "rows", "to", "half", *without.split()}
    options = Options(
        model=write_model(folder, dynamic()),
        inputs=write_dump(folder / "inputs.npz", X),
        target_dump=write_dump(folder / "dump.npz", values, kept),
        out=folder / "out",
        precision="fp32",
        **more,
    )
    return run(options), options


def test_a_region_holds_no_node_that_only_lends_its_shape(tmp_path: Path) -> None:
    result, options = ran(tmp_path, {"s": one_element(3)}, without="t m r")
    (culprit,) = result.culprits
    assert culprit.region.output == "s"
    assert [n.op for n in culprit.region.nodes] == ["Slice"]
    assert culprit.region.boundary == ("g",)
    alone = onnx.load(tmp_path / "out" / str(culprit.repro))
    assert [n.op_type for n in alone.graph.node] == ["Slice"]
    made = content(Reopened(result, options), culprit)
    assert [given.name for given in made.inputs] == ["g"]
    session = ort.InferenceSession(made.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (again,) = session.run(None, {"g": made.inputs[0].values})
    assert np.array_equal(again, made.outputs[0].golden)
    wider = content(Reopened(result, options), culprit, context=1)
    assert {n.op_type for n in wider.model.graph.node} == {"Transpose", "Slice", "Mul"}
    assert [given.name for given in wider.inputs] == ["x"]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda y: y[:-2] * 1.5, id="fewer rows"),
        pytest.param(lambda y: np.pad(y, ((0, 4), (0, 0)), mode="edge") * 1.5, id="more rows"),
    ],
)
@pytest.mark.parametrize("scan", [True, False])
def test_what_follows_a_wrong_shape_is_not_accused_of_it(tmp_path: Path, wrong: Fault, scan: bool) -> None:
    result, _ = ran(tmp_path, {"t": wrong}, scan=scan)
    assert result.verdict is Verdict.FAULT
    assert [(c.region.output, c.kind) for c in result.culprits] == [("t", Kind.WRONG_SHAPE)]
    assert not result.suspects
    rows = {row.name: row for row in result.tensors}
    assert all((rows[name].score or 0.0) < 1 for name in ("r", "s"))
    if scan:  # judged on the shapes that the target's own tensors have
        assert not {"r", "s"} & {skipped.tensor for skipped in result.not_judged}


def test_below_a_wrong_shape_of_the_same_size_the_target_s_own_shapes_count() -> None:
    """Where the replay on the golden's shapes runs, and gives another shape than the target rightly made."""
    bench = bench_of(dynamic(), X)
    graph = bench.engine.settle({n: v for n in settled_by_shapes(bench.graph) if (v := bench.golden(n)) is not None})  # type: ignore[attr-defined]
    for wrong, lent in ((lambda y: y.reshape(12, 16), 4), (lambda y: y + 0, 1)):
        made = run_target(dynamic(), X, "exact", {"t": wrong})
        values = Values({name: made[name] for name in ("x", "m", "t", "r", "g", "s")})
        judge = Judge(replace(bench, graph=graph), values, ("t", "r", "g", "s"), PRECISIONS["fp32"])
        assert (judge.raw("r").value, judge.raw("s").value) == (0.0, 0.0)
        assert len(judge.region("s").nodes) == lent


def test_a_wrong_shape_that_an_operator_makes_itself_is_its_own(tmp_path: Path) -> None:
    result, _ = ran(tmp_path, {"s": lambda y: y[:-2]}, scan=True)
    (culprit,) = result.culprits
    assert (culprit.region.output, culprit.kind) == ("s", Kind.WRONG_SHAPE)
    assert [n.op for n in culprit.region.nodes] == ["Shape", "Gather", "Div", "Slice"]  # any of them may have made it


def test_a_healthy_target_stays_aligned_and_the_shapes_cost_one_pass(tmp_path: Path) -> None:
    result, options = ran(tmp_path, {}, without="t r", scan=True)
    assert result.verdict is Verdict.ALIGNED
    counters = prepare(options).engine.counters
    assert (counters.stream_passes, counters.local_passes, counters.replays) == (1, 0, 0)
    assert counters.node_runs == len(["MatMul", "Transpose", "Shape", "Gather", "Concat", "Div"])


def test_a_model_without_computed_shapes_costs_no_pass(tmp_path: Path) -> None:
    model = model_of(
        [node("MatMul", "x w", "m"), node("Reshape", "m to", "y")],
        {"x": (8, 24)},
        weights={"w": np.eye(24, dtype=np.float32), "to": [24, 8]},
    )
    dump = write_dump(tmp_path / "dump.npz", run_target(model, X), {"m", "y"})
    case = prepare(Options(model=write_model(tmp_path, model), target_dump=dump, inputs=write_dump(tmp_path / "inputs.npz", X)))
    assert case.engine.counters.stream_passes == 0
    assert not case.model.graph.settled
