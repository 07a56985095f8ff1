"""Operator, file or name: who is accused depends on what the consumers were computed from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import Fault, Values, bench_of, channel, convolutional, mixed, model_of, node, normal, offset, run_target, scaled

from bisect_align.judgement.conviction import Court, Finding
from bisect_align.judgement.judge import Judge
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.model.observed import observe
from bisect_align.result.result import Consumed

Array = NDArray[np.float32]
RUNS = ["fp32", "fp16", "bf16", "int8"]
NET, INPUTS = mixed(3), {"x": normal(41, 8, 24)}
CONV, IMAGE = convolutional(), {"x": normal(42, 1, 3, 10, 8)}


def court_of(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    target: Mapping[str, Array],
    precision: str = "fp16",
    only: Collection[str] | None = None,
    *,
    uncertain: Collection[str] = (),
    needs_consumer: Collection[str] = (),
    turned: Collection[str] = (),
) -> Court:
    bench = bench_of(model, inputs)
    kept = {n: v for n, v in target.items() if only is None or n in inputs or n in only}
    graph = observe(bench.graph, kept)
    judge = Judge(bench, Values(kept), graph.order, PRECISIONS[precision])
    names = {"uncertain": uncertain, "needs_consumer": needs_consumer, "turned": turned}
    return Court(judge, graph, **{kind: frozenset(given) for kind, given in names.items()})


def findings(court: Court) -> dict[Finding, list[str]]:
    found: dict[Finding, list[str]] = {}
    for tensor in court.graph.order:
        found.setdefault(court.rule(tensor).finding, []).append(tensor)
    return found


def stale(target: Mapping[str, Array], tensor: str, fault: Fault) -> dict[str, Array]:
    """One file wrong, nothing computed from it."""
    return {**target, tensor: fault(target[tensor].copy())}


@pytest.mark.parametrize("precision", RUNS)
def test_a_healthy_run_accuses_nobody(precision: str) -> None:
    found = findings(court_of(NET, INPUTS, run_target(NET, INPUTS, precision), precision))
    assert set(found) <= {Finding.HEALTHY, Finding.SUSPECT}


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("fault", [scaled(1.5), channel(1, -1.0), offset(0.5)], ids=["scale", "channel", "offset"])
def test_a_consumed_fault_is_the_operators(fault: Fault, precision: str) -> None:
    target = run_target(NET, INPUTS, precision, {"b1": fault})
    ruling = (court := court_of(NET, INPUTS, target, precision)).rule("b1")
    assert (ruling.finding, ruling.consumed, ruling.by) == (Finding.FAULT, Consumed.YES, ("t1",))
    assert findings(court)[Finding.FAULT] == ["b1"]


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("fault", [scaled(1.5), channel(1, -1.0), offset(0.5)], ids=["scale", "channel", "offset"])
def test_a_wrong_file_is_not_the_operators_fault_nor_its_consumers(fault: Fault, precision: str) -> None:
    target = stale(run_target(NET, INPUTS, precision), "b1", fault)
    court = court_of(NET, INPUTS, target, precision)
    assert court.judge.judge("t1").convicted  # on the file's word it would be
    found = findings(court)
    assert found[Finding.FILE] == ["b1"]
    assert Finding.FAULT not in found
    ruling = court.rule("b1")
    assert (ruling.consumed, ruling.by) == (Consumed.NO, ("t1",))
    assert court.rule("t1").finding is Finding.HEALTHY
    assert court.rule("t1").replaced == ("b1",)


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_the_order_of_questions_does_not_matter(order: str) -> None:
    target = stale(run_target(NET, INPUTS, "fp16", {"m2": scaled(1.5)}), "b1", scaled(1.5))
    court = court_of(NET, INPUTS, target)
    names = court.graph.order if order == "forwards" else court.graph.order[::-1]
    found = {t: court.rule(t).finding for t in names}
    assert found["b1"] is Finding.FILE
    assert found["m2"] is Finding.FAULT
    assert [t for t, f in found.items() if f not in (Finding.HEALTHY, Finding.SUSPECT)] == sorted(["b1", "m2"], key=names.index)


@pytest.mark.parametrize("precision", RUNS)
def test_a_fault_at_the_end_is_not_seen_downstream_and_stands(precision: str) -> None:
    target = run_target(NET, INPUTS, precision, {"g2": scaled(1.5)})
    ruling = court_of(NET, INPUTS, target, precision).rule("g2")
    assert (ruling.finding, ruling.consumed, ruling.by) == (Finding.FAULT, Consumed.UNSEEN, ())


def test_several_faults_are_several_findings() -> None:
    target = run_target(NET, INPUTS, "fp16", {"b0": scaled(1.5), "m2": channel(1)})
    assert findings(court_of(NET, INPUTS, target))[Finding.FAULT] == ["b0", "m2"]


def test_one_consumer_that_read_the_wrong_value_is_enough() -> None:
    """A branch that was computed before the value went wrong does not acquit it."""
    model = model_of(
        [node("Tanh", "x", "a"), node("MatMul", "a w", "b"), node("Mul", "a c", "d"), node("Add", "b d", "y")],
        {"x": (8, 24)},
        weights={"w": normal(1, 24, 24), "c": np.array(1.5, np.float32)},
    )
    wrong = run_target(model, INPUTS, "fp16", {"a": scaled(1.3)})
    right = run_target(model, INPUTS, "fp16")
    target = {**wrong, "d": right["d"], "y": wrong["b"] + right["d"]}
    ruling = court_of(model, INPUTS, target).rule("a")
    assert (ruling.finding, ruling.consumed, ruling.by) == (Finding.FAULT, Consumed.YES, ("b",))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("named", "held"), [("c0", "r0"), ("c0", "n0"), ("n0", "r0"), ("r0", "n0"), ("r1", "c1")])
def test_an_entry_that_holds_a_neighbours_value_is_a_name_and_never_a_fault(named: str, held: str, precision: str) -> None:
    """Files named after a fused Conv hold the value after the BatchNormalization and the ReLU; or the one before."""
    values = run_target(CONV, IMAGE, precision)
    target = {**{t: values[t] for t in ("r0", "r1", "p")}, named: values[held]}
    only = {"r0", "r1", "p", named} - ({held} if held != named else set())
    court = court_of(CONV, IMAGE, {**IMAGE, **target}, precision, only)
    ruling = court.rule(named)
    assert ruling.finding is Finding.NAME
    assert ruling.holds == held
    assert Finding.FAULT not in findings(court)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("one", "other"), [("n0", "r0"), ("c0", "n0"), ("n1", "r1")])
def test_two_files_of_a_chain_that_are_exchanged_are_no_fault(one: str, other: str, precision: str) -> None:
    values = run_target(CONV, IMAGE, precision)
    court = court_of(CONV, IMAGE, {**values, one: values[other], other: values[one]}, precision, uncertain=[one, other])
    ruling = court.rule(one)
    assert (ruling.finding, ruling.holds) == (Finding.FILE, other)
    assert Finding.FAULT not in findings(court)


def test_a_real_fault_is_no_alias() -> None:
    values = run_target(CONV, IMAGE, "fp16", {"n0": scaled(1.5)})
    court = court_of(CONV, IMAGE, values, only={"n0", "r1", "p"})
    assert findings(court)[Finding.FAULT] == ["n0"]


def test_nobody_is_convicted_on_an_uncertain_boundary_that_the_replay_acquits() -> None:
    """The parent is off by less than a table look-up errs, and a cancellation below it shows that: is it the entry, or the Sub?"""
    model = model_of([node("Tanh", "x", "a"), node("Sub", "x a", "y")], {"x": (8, 24)}, outputs=("y",))
    x = {"x": 0.05 * INPUTS["x"]}
    values = run_target(model, x)
    target = {**values, "a": (values["a"] + np.float32(5e-5)).astype(np.float32)}
    believed = court_of(model, x, target, "fp32")
    assert [believed.rule(t).finding for t in "ay"] == [Finding.HEALTHY, Finding.FAULT]
    doubted = court_of(model, x, target, "fp32", uncertain=["a"])
    assert [doubted.rule(t).finding for t in "ay"] == [Finding.HEALTHY, Finding.UNKNOWN]
    assert doubted.rule("y").replaced == ("a",)


@pytest.mark.parametrize("tensor", ["b1", "g2"])
def test_a_weak_name_is_believed_only_where_its_value_was_consumed(tensor: str) -> None:
    target = run_target(NET, INPUTS, "fp16", {tensor: scaled(1.5)})
    ruling = court_of(NET, INPUTS, target, needs_consumer=[tensor]).rule(tensor)
    assert ruling.finding is (Finding.FAULT if tensor == "b1" else Finding.SUSPECT)


SQUARE = model_of(
    [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("Tanh", "a", "d")],
    {"x": (12, 12)},
    ("b", "d"),
    {"w": normal(45, 12, 12), "v": normal(46, 12, 12)},
)


def turned(y: Array) -> Array:
    return np.ascontiguousarray(y.T)


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("seen", ["ab", "abd"])
def test_nobody_is_convicted_on_an_order_of_axes_that_nothing_consumed(seen: str, precision: str) -> None:
    """The file of a square tensor may have been read in the wrong order, and then what reads it only seems wrong."""
    inputs = {"x": normal(47, 12, 12)}
    target = stale(run_target(SQUARE, inputs, precision, {"b": scaled(1.5)}), "a", turned)
    assert Finding.FAULT in findings(court_of(SQUARE, inputs, target, precision, seen))
    court = court_of(SQUARE, inputs, target, precision, seen, turned="a")
    assert Finding.FAULT not in findings(court)
    assert court.rule("b").finding is Finding.UNKNOWN
    assert "'a'" in court.rule("b").judged.score.note


@pytest.mark.parametrize("precision", RUNS)
def test_an_order_of_axes_that_something_consumed_is_the_targets_own(precision: str) -> None:
    inputs = {"x": normal(47, 12, 12)}
    target = run_target(SQUARE, inputs, precision, {"a": turned, "b": scaled(1.5)})
    court = court_of(SQUARE, inputs, target, precision, turned="a")
    assert findings(court)[Finding.FAULT] == ["a", "b"]
    assert court.rule("a").consumed is Consumed.YES


def test_clipping_that_a_saturating_consumer_hides_is_absorbed() -> None:
    """int8: a compiler clips where the next operator saturates anyway."""
    nodes = [node("Add", "x c", "a"), node("Clip", "a low high", "y")]
    weights = {"c": np.array(0.5, np.float32), "low": np.array(-1.0, np.float32), "high": np.array(1.0, np.float32)}
    model = model_of(nodes, {"x": (8, 64)}, weights=weights)
    x = normal(43, 8, 64)
    a = np.clip(x + np.float32(0.5), -1, 1)
    step = np.float32(2 / 255)
    stored = np.asarray(np.rint(a / step) * step, np.float32)
    found = findings(court_of(model, {"x": x}, {"x": x, "a": stored, "y": stored}, "int8"))
    assert Finding.FAULT not in found
    assert Finding.FILE not in found


def test_a_region_that_cannot_be_judged_is_unknown() -> None:
    target = run_target(NET, INPUTS, "fp16")
    court = court_of(NET, INPUTS, {**target, "m1": target["m1"][:, :5], "b1": target["b1"][:, :5]}, only={"g0", "m1", "b1"})
    assert court.rule("b1").finding is Finding.UNKNOWN
    assert court.rule("m1").finding is Finding.FAULT


def test_a_wrong_shape_in_one_file_is_the_files() -> None:
    target = run_target(NET, INPUTS, "fp16")
    court = court_of(NET, INPUTS, {**target, "m1": target["m1"][:, :5]})
    assert findings(court)[Finding.FILE] == ["m1"]
    assert Finding.FAULT not in findings(court)


def test_a_chain_of_faults_is_ruled_without_recursion() -> None:
    count, room = 250, 200
    nodes = [node("Mul", f"{'x' if k == 0 else f'y{k - 1}'} c", f"y{k}") for k in range(count)]
    model = model_of(nodes, {"x": (2, 8)}, weights={"c": np.array(1.0, np.float32)})
    x = normal(44, 2, 8)
    target = {"x": x} | {f"y{k}": x * np.float32((-1.0) ** k) for k in range(count)}
    court = court_of(model, {"x": x}, target, "fp32")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + room)
    try:
        assert court.rule(f"y{count - 1}").finding is Finding.FAULT
    finally:
        sys.setrecursionlimit(limit)


def test_a_consumer_of_few_elements_is_heard_where_it_is_glaring() -> None:
    """Six class scores that follow to the last bit from one value, and from the other not at all."""
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Softmax", "r", "y")]
    net, inputs = model_of(nodes, {"x": (1, 6)}, weights={"w": normal(51, 6, 6)}), {"x": normal(52, 1, 6)}
    healthy = run_target(net, inputs, "fp32")
    left_out = run_target(net, inputs, "fp32", {"r": lambda _: healthy["m"]})
    stale_file = {**healthy, "r": healthy["r"][:, ::-1].copy()}
    for target, finding in ((left_out, Finding.FAULT), (stale_file, Finding.FILE)):
        ruling = court_of(net, inputs, target, "fp32", {"r", "y"}).rule("r")
        assert (ruling.finding, ruling.by) == (finding, ("y",))
