"""A target that ran on another input: said with what that input is of the one given, and no operator is blamed for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import onnx
import pytest
from tiny_target import (
    Array,
    Fault,
    convolutional,
    mixed,
    model_of,
    node,
    normal,
    run_target,
    scaled,
    store,
    write_dump,
    write_model,
)

from bisect_align.result.result import Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

RUNS = ["fp32", "fp16", "bf16", "int8"]
NET = convolutional()
IMAGE = ((np.random.default_rng(7).random((1, 3, 10, 8)) + np.linspace(0, 1, 3).reshape(1, 3, 1, 1)) / 2).astype(np.float32)


def result_of(
    folder: Path,
    fed: Array,
    precision: str = "fp32",
    *,
    net: onnx.ModelProto = NET,
    given: Array = IMAGE,
    only: Collection[str] | None = None,
    faults: dict[str, Fault] | None = None,
    copy: Array | None = None,
    **options: object,
) -> Result:
    """The target ran on `fed`, the user gives `given`. copy: what the dump holds as the input; by default nothing."""
    values = run_target(net, {"x": np.asarray(fed, np.float32)}, precision, faults or {})
    kept = {name: value for name, value in values.items() if name != "x" and (only is None or name in only)}
    if copy is not None:
        kept["x"] = copy
    paths = Options(
        model=write_model(folder, net),
        inputs=write_dump(folder / "inputs.npz", {"x": given}),
        target_dump=write_dump(folder / "dump.npz", kept),
        **options,  # type: ignore[arg-type]
    )
    return run(paths)


CHANGES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "reversed": (lambda x: x[:, ::-1], "'x' with its channels reversed (RGB for BGR)"),
    "layout": (lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape), "'x' stored as NHWC and read as NCHW"),
    "range": (lambda x: 255 * x, "'x' as 255 * x (0 to 255 in the place of 0 to 1)"),
    "shift": (lambda x: 0.7 * x + 0.3, "'x' as 0.7 * x + 0.3"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("scan", [False, True], ids=["search", "scan"])
def test_without_a_copy_the_first_tensors_tell(tmp_path: Path, change: str, precision: str, scan: bool) -> None:
    turned, said = CHANGES[change]
    result = result_of(tmp_path, turned(IMAGE), precision, scan=scan)
    if (change, precision) in (("shift", "int8"), ("shift", "bf16")):  # a fitted line is as coarse as the format
        assert result.verdict is not Verdict.ALIGNED
        return
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert f"'c0' follows from {said}" in result.summary
    assert result.culprits == ()


@pytest.mark.parametrize("only", [{"r1"}, {"r0", "r1"}, {"c1", "p"}], ids=["one tensor", "behind Relu", "second Conv"])
def test_a_sparse_dump_tells_as_well(tmp_path: Path, only: set[str]) -> None:
    result = result_of(tmp_path, IMAGE[:, ::-1], only=only)
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert "with its channels reversed" in result.summary


def test_a_few_numbers_prove_no_other_input(tmp_path: Path) -> None:
    assert result_of(tmp_path, IMAGE[:, ::-1], only={"p"}, precision="fp32").verdict is not Verdict.INPUT_MISMATCH


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_in_the_dump_is_named_for_what_it_is(tmp_path: Path, change: str, precision: str) -> None:
    turned, said = CHANGES[change]
    fed = np.asarray(turned(IMAGE), np.float32)
    result = result_of(tmp_path, fed, precision, copy=store(fed, precision, np.random.default_rng(0)))
    assert result.verdict is Verdict.INPUT_MISMATCH
    if change != "shift" or precision in ("fp32", "fp16"):
        assert f"it is {said}" in result.summary


def test_a_copy_of_black_and_white_is_not_taken_for_a_clipped_one(tmp_path: Path) -> None:
    image = np.round(np.random.default_rng(3).random(IMAGE.shape) * 4).astype(np.float32) / 4
    result = result_of(tmp_path, image, given=255 * image, copy=image)
    assert "it is 'x' as x / 255 (0 to 1 in the place of 0 to 255)" in result.summary


def test_a_copy_of_something_else_has_no_name(tmp_path: Path) -> None:
    other = np.random.default_rng(8).random(IMAGE.shape).astype(np.float32)
    result = result_of(tmp_path, other, copy=other)
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert "it is" not in result.summary


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("factor", [0.5, 2.0, -1.0])
def test_a_first_operator_that_scales_is_at_fault(tmp_path: Path, precision: str, factor: float) -> None:
    result = result_of(tmp_path, IMAGE, precision, faults={"c0": scaled(factor)})
    assert result.verdict is Verdict.FAULT
    assert [c.region.output for c in result.culprits] == ["c0"]


def test_a_second_reader_of_the_right_input_acquits_the_input(tmp_path: Path) -> None:
    """One of two operators that read the input got reversed channels: that operator is at fault, or what feeds it."""
    weights = {"w": normal(1, 6, 3, 3, 3), "v": normal(2, 6, 3, 3, 3)}
    net = model_of(
        [node("Conv", "x w", "a"), node("Conv", "x v", "b"), node("Relu", "a", "c"), node("Add", "b c", "y")],
        {"x": (1, 3, 10, 8)},
        weights=weights,
    )
    wrong = run_target(net, {"x": np.ascontiguousarray(IMAGE[:, ::-1])})
    one = result_of(tmp_path / "one", IMAGE, net=net, faults={"a": lambda _: wrong["a"]})
    assert one.verdict is Verdict.FAULT
    assert [c.region.output for c in one.culprits] == ["a"]
    both = result_of(tmp_path / "both", IMAGE[:, ::-1], net=net)
    assert both.verdict is Verdict.INPUT_MISMATCH
    assert "(so does 1 more tensor that reads it too)" in both.summary


def test_a_fault_further_down_leaves_the_input_alone(tmp_path: Path) -> None:
    result = result_of(tmp_path, IMAGE, faults={"c1": lambda y: y[:, ::-1]})
    assert result.verdict is Verdict.FAULT
    assert [c.region.output for c in result.culprits] == ["c1"]


def test_rows_of_another_scale_are_an_input_only_where_a_shift_shows_it(tmp_path: Path) -> None:
    net, rows = mixed(2), normal(91, 8, 24)
    scale_and_shift = result_of(tmp_path / "line", 1.5 * rows + 0.5, net=net, given=rows)
    assert scale_and_shift.verdict is Verdict.INPUT_MISMATCH
    assert "as 1.5 * x + 0.5" in scale_and_shift.summary
    scale_alone = result_of(tmp_path / "scale", 1.5 * rows, net=net, given=rows)
    assert scale_alone.verdict is Verdict.FAULT
    assert any("'x'" in step for step in scale_alone.next)
