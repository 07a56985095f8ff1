"""An input in another form is told from an operator at fault: by what the first tensors follow from, and only where it is clear."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_target import (
    Array,
    Fault,
    Values,
    bench_of,
    border,
    channel,
    convolutional,
    mixed,
    model_of,
    node,
    normal,
    offset,
    run_target,
    scaled,
)

from bisect_align.judgement.input_relations import DEVIATION, MEAN, Kind, arrangements, channel_axis, codings
from bisect_align.judgement.judge import Judge
from bisect_align.judgement.other_input import OtherInput, other_input
from bisect_align.judgement.precision import PRECISIONS
from bisect_align.model.graph import graph_of

RUNS = ["fp32", "fp16", "bf16", "int8"]
CHANNELS = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)


def pixels(*shape: int) -> Array:
    """An image of 0 to 1, each channel brighter than the one before."""
    return ((np.random.default_rng(7).random(shape) + np.linspace(0, 1, 3).reshape(1, 3, 1, 1)) / 2).astype(np.float32)


NET, IMAGE = convolutional(), pixels(1, 3, 10, 8)
ROWS = normal(91, 8, 24)


def look(
    net: onnx.ModelProto,
    given_: Array,
    fed: Array,
    tensor: str,
    precision: str,
    faults: dict[str, Fault] | None = None,
    observed: set[str] | None = None,
) -> OtherInput | None:
    """What is said of the target's value of `tensor`, of a target that ran on `fed` where `given_` was given."""
    values = run_target(net, {"x": fed}, precision, faults or {})
    seen = {name: value for name, value in values.items() if observed is None or name in observed}
    bench = bench_of(graph_of(net), {"x": given_})
    judge = Judge(bench, Values({**seen, "x": given_}), tuple(n for n in seen if n != "x"), PRECISIONS[precision])
    judged = judge.judge(tensor)
    feeds = {b: given_ if b == "x" else values[b] for b in judged.region.boundary}
    expected = judged.score.expected
    return other_input(bench, judged.region, feeds, "x", values[tensor], precision=judge.precision, expected=expected)


FORMS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "reversed": (lambda x: x[:, ::-1], "with its channels reversed"),
    "stored": (lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape), "stored as NHWC and read as NCHW"),
    "read": (lambda x: x.reshape(1, 10, 8, 3).transpose(0, 3, 1, 2), "read as if it were NHWC"),
    "both": (lambda x: x[:, ::-1].transpose(0, 2, 3, 1).reshape(x.shape), "reversed (RGB for BGR), stored as NHWC"),
    "255": (lambda x: 255 * x, "as 255 * x (0 to 255 in the place of 0 to 1)"),
    "/255": (lambda x: x / 255, "0 to 1 in the place of 0 to 255"),
    "-1 to 1": (lambda x: 2 * x - 1, "as 2 * x - 1 (-1 to 1 in the place of 0 to 1)"),
    "imagenet": (lambda x: (x - MEAN.reshape(1, 3, 1, 1)) / DEVIATION.reshape(1, 3, 1, 1), "ImageNet's mean and deviation"),
    "reversed and 255": (lambda x: 255 * x[:, ::-1], "with its channels reversed (RGB for BGR), as 255 * x"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", RUNS)
def test_an_input_in_another_form_is_named(form: str, precision: str) -> None:
    change, text = FORMS[form]
    found = look(NET, IMAGE, np.asarray(change(IMAGE), np.float32), "c0", precision)
    assert found is not None
    assert text in found.relation.text
    assert found.left < 0.5 * found.before
    if form in ("reversed", "255"):
        np.testing.assert_allclose(found.relation.values, change(IMAGE), rtol=1e-6)


@pytest.mark.parametrize("form", ["reversed", "255", "imagenet"])
@pytest.mark.parametrize("observed", [{"r0"}, {"r1"}], ids=["behind Relu", "behind all"])
def test_the_region_may_be_longer_than_one_node(form: str, observed: set[str]) -> None:
    change, text = FORMS[form]
    (tensor,) = observed
    found = look(NET, IMAGE, np.asarray(change(IMAGE), np.float32), tensor, "fp32", observed=observed)
    assert found is not None
    assert text in found.relation.text


@pytest.mark.parametrize("tensor", ["c0", "r0"])
def test_any_scale_and_shift_is_fitted_where_the_region_is_linear(tensor: str) -> None:
    found = look(NET, IMAGE, 1.3 * IMAGE + np.float32(0.2), tensor, "fp32", observed={tensor})
    assert found is not None
    assert found.relation.text == "as 1.3 * x + 0.2"


def test_a_mean_and_deviation_of_ones_own_are_fitted_by_channel() -> None:
    wide = model_of(
        [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")],
        {"x": (1, 3, 10, 8)},
        weights={"w": normal(3, 16, 3, 3, 3), "b": normal(4, 16)},
    )
    fed = ((IMAGE - 0.1 - 0.1 * CHANNELS) / (0.5 + 0.1 * CHANNELS)).astype(np.float32)
    found = look(wide, IMAGE, fed, "c", "fp16")
    assert found is not None
    assert "by channel" in found.relation.text
    assert np.abs(found.relation.values - fed).max() < 0.02


FAULTS: dict[str, Fault] = {
    "scaled": scaled(1.5),
    "slightly scaled": scaled(1.1),
    "offset": offset(0.5),
    "channel": channel(1),
    "channel scaled": channel(1, 1.7),
    "border": border(),
    "rolled": lambda y: np.roll(y, 1),
    "zeros": lambda y: 0 * y,
    "negated": lambda y: -y,
    "halved and shifted": lambda y: 0.5 * y + 0.5,
    "transposed": lambda y: y.transpose(0, 1, 3, 2).reshape(y.shape) if y.ndim == 4 else y.T.reshape(y.shape),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("tensor", ["c0", "m0"])
def test_a_fault_of_the_first_operator_is_not_the_inputs(fault: str, precision: str, tensor: str) -> None:
    net, x = (NET, IMAGE) if tensor == "c0" else (mixed(2), ROWS)
    assert look(net, x, x, tensor, precision, {tensor: FAULTS[fault]}) is None


def test_a_channel_that_the_kernel_leaves_out_is_the_kernels_fault() -> None:
    fed = IMAGE * (CHANNELS < 2)
    assert look(NET, IMAGE, fed, "c0", "fp32") is None


def test_a_shift_of_a_quantised_input_may_be_its_zero_point() -> None:
    assert look(NET, IMAGE, IMAGE + np.float32(0.5), "c0", "int8") is None
    assert look(NET, IMAGE, IMAGE + np.float32(0.5), "c0", "fp32") is not None


@cache
def moved(op: str) -> onnx.ModelProto:
    first = {
        "Transpose": node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        "Gather": node("Gather", "x k", "t", axis=1),
        "Div": node("Div", "x d", "t"),
        "Sub": node("Sub", "x m", "t"),
    }[op]
    mean = (255 * MEAN).reshape(1, 3, 1, 1).astype(np.float32)
    weights = {"k": np.array([2, 1, 0]), "d": np.array(255, np.float32), "m": mean}
    return model_of([first, node("Relu", "t", "y")], {"x": (1, 3, 10, 8)}, weights={n: weights[n] for n in first.input[1:]})


@pytest.mark.parametrize(
    ("op", "change", "told"),
    [
        ("Transpose", lambda x: x[:, ::-1], True),  # no transposition reverses channels
        ("Transpose", lambda x: 255 * x, True),  # or scales
        ("Transpose", lambda x: 1.7 * x + 0.1, True),
        ("Transpose", lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape), False),  # it may have been left out
        ("Gather", lambda x: x[:, ::-1], False),  # the same
        ("Div", lambda x: 255 * x, False),  # the same
        ("Div", lambda x: x[:, ::-1], True),
        ("Sub", lambda x: 255 * x, True),  # means by channel tell a scale before them from one behind them
    ],
)
def test_what_the_first_operator_could_have_done_itself_is_not_the_inputs(
    op: str, change: Callable[[Array], Array], told: bool
) -> None:
    found = look(moved(op), IMAGE, np.asarray(change(IMAGE), np.float32), "t", "fp32")
    assert (found is not None) == told


def test_a_right_input_needs_no_relation() -> None:
    assert look(NET, IMAGE, IMAGE, "c0", "fp32") is None


shapes = st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=60, deadline=None)
@given(shapes, st.booleans())
def test_an_arrangement_keeps_every_value_and_a_coding_every_place(shape: tuple[int, ...], last: bool) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = x.transpose(0, 2, 3, 1) if last else x
    for relation in arrangements(x):
        assert relation.values.shape == x.shape
        np.testing.assert_array_equal(np.sort(relation.values, None), np.sort(x, None))
        assert Kind.VALUES not in relation.kinds
    for relation in codings(x):
        assert (relation.values.shape, relation.values.dtype) == (x.shape, x.dtype)
        assert relation.kinds == {Kind.VALUES}


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 3, 8, 8), 1), ((1, 8, 8, 3), 3), ((3, 8, 8), 0), ((8, 8, 3), 2), ((1, 16, 64), None), ((8, 24), None), ((), None)],
)
def test_where_the_channels_of_an_image_are(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(shape) == axis
