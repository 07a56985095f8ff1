"""The output without what single regions introduced: nothing removed is the target, all removed is the golden, and what is foretold for
one region is what a target without that error makes in fact."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import Values, bench_of, convolutional, mixed, model_of, node, normal, run_target, scaled

from bisect_align.judgement.contributions import candidates, output_without
from bisect_align.judgement.precision import rms
from bisect_align.model.graph import graph_of
from bisect_align.model.observed import ObservedGraph, observe

Array = NDArray[Any]
NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}
IMAGES = {"x": normal(94, 1, 3, 10, 8)}


def without(
    model: onnx.ModelProto, inputs: dict[str, Array], values: dict[str, Array], removed: Collection[str], output: str
) -> Array:
    bench = bench_of(model, inputs)
    tensors = {t: v for t, v in values.items() if t in bench.graph.order}
    found = output_without(bench, inputs, observe(bench.graph, tensors), Values({**inputs, **values}), removed, output)
    assert found is not None
    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_nothing_removed_is_the_target_and_all_removed_is_the_golden(precision: str) -> None:
    for model, inputs, output in ((NET, ROWS, "g3"), (convolutional(), IMAGES, "p")):
        values = run_target(model, inputs, precision)
        golden = run_target(model, inputs)
        assert np.array_equal(without(model, inputs, values, (), output), values[output])
        assert np.array_equal(without(model, inputs, values, graph_of(model).tensors, output), golden[output])


def test_what_is_not_above_the_output_changes_nothing() -> None:
    values = run_target(NET, ROWS, "fp16", {"b3": scaled(1.01)})
    assert np.array_equal(without(NET, ROWS, values, ["b3", "g3"], "g1"), values["g1"])


def test_the_only_error_is_taken_out_whole() -> None:
    values = run_target(NET, ROWS, faults={"b1": scaled(1.01)})
    assert np.array_equal(without(NET, ROWS, values, ["b1"], "g3"), run_target(NET, ROWS)["g3"])


@pytest.mark.parametrize("tensor", ["m0", "b1", "t2", "g3"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_what_is_foretold_is_what_a_target_without_that_error_makes(tensor: str, precision: str) -> None:
    """The truth: the same target, that rounds as before but is not off at this one tensor."""

    def target(off: float) -> dict[str, Array]:
        return run_target(NET, ROWS, precision, {tensor: scaled(off)}, seed=3)

    values, truth = target(1.1), target(1.0)
    foretold = without(NET, ROWS, values, [tensor], "g3")
    assert rms(foretold - truth["g3"]) < 0.25 * rms(values["g3"] - truth["g3"])


def test_integers_are_the_targets_where_their_inputs_make_no_difference() -> None:
    nodes = [
        node("Mul", "x two", "a"),
        node("ArgMax", "a", "i", axis=1, keepdims=0),
        node("Cast", "i", "y", to=onnx.TensorProto.FLOAT),
    ]
    model = model_of(nodes, {"x": (6, 5)}, weights={"two": np.array(2, np.float32)})
    inputs = {"x": normal(2, 6, 5)}
    values = run_target(model, inputs, "fp16", {"i": lambda i: (i + 1) % 5})
    assert np.array_equal(without(model, inputs, values, ["a"], "y"), values["y"])
    assert np.array_equal(without(model, inputs, values, ["i"], "y"), run_target(model, inputs)["y"])


def test_the_error_that_grows_most_on_its_way_is_tried_first() -> None:
    graph = ObservedGraph(("a", "b", "c", "d", "y"), {"a": (), "b": (), "c": ("a",), "d": ("b",), "y": ("c", "d")}, {})
    introduced = {"a": 1e-3, "b": 2e-3, "c": 1e-3, "y": 5e-3, "d": 0.0}
    assert candidates(graph, "y", introduced, {"c": 10.0, "d": 0.1, "y": 1.0}) == ("a", "y", "c", "b")
    assert candidates(graph, "c", introduced, {}) == ("a", "c")
