"""Further dumps of one run: what differs is named with its figures, where it begins is proven, and nothing is vouched for unseen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_target import Fault, mixed, normal, run_target, scaled, write_dump, write_model

from bisect_align.cli.main import main
from bisect_align.errors import BisectAlignError, DumpError, UsageError
from bisect_align.report.terminal import text
from bisect_align.result.repeats import Repeats
from bisect_align.result.result import Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
MODELS = Path(__file__).resolve().parents[2] / "models"
NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}
NAMES = [f"{kind}{k}" for k in range(4) for kind in "mbtg"]


def shaky(size: float) -> Fault:
    """One element moves by so much."""

    def fault(y: Array) -> Array:
        y[3, 5] += np.float32(size)
        return y

    return fault


def target(faults: dict[str, Fault] | None = None, inputs: dict[str, Array] = ROWS) -> dict[str, Array]:
    return run_target(NET, inputs, "fp16", faults or {})


def run_on(folder: Path, first: dict[str, Array], *others: dict[str, Array], only: list[str] = NAMES, **more: Any) -> Result:
    repeats = tuple(write_dump(folder / f"again{k}.npz", values, only) for k, values in enumerate(others))
    return run(
        Options(
            model=write_model(folder, NET),
            target_dump=write_dump(folder / "dump.npz", first, only),
            inputs=write_dump(folder / "inputs.npz", ROWS),
            repeat_dumps=repeats,
            **more,
        )
    )


def seen(result: Result) -> Repeats:
    assert result.repeats is not None
    return result.repeats


def test_a_target_that_makes_the_same_values_again(tmp_path: Path) -> None:
    result = run_on(tmp_path, target(), target(), target())
    repeats = seen(result)
    assert (repeats.compared, repeats.differing, repeats.begins, len(repeats.dumps)) == (16, (), None, 2)
    assert result.verdict is Verdict.ALIGNED
    assert "deterministic" not in result.summary
    assert "16 tensors compared bit for bit, 0 differ" in text(result, 200)


def test_what_differs_is_named_with_figures_and_where_it_begins(tmp_path: Path) -> None:
    result = run_on(tmp_path, target(), target(), target({"b1": shaky(0.25)}))
    repeats = seen(result)
    assert repeats.begins == "b1"
    first = repeats.differing[0]
    assert (first.tensor, first.entry, first.runs, first.mismatched, first.elements) == ("b1", "b1", 1, 1, 192)
    assert first.max_abs == pytest.approx(0.25, rel=0.01)
    assert [d.tensor for d in repeats.differing] == NAMES[NAMES.index("b1") :]
    assert "not deterministic" in result.summary
    assert "'b1'" in result.summary
    assert "'b1'" in result.next[0]
    assert result.verdict is Verdict.ALIGNED, "the first dump is healthy"
    assert "begins at" in text(result)


def test_the_run_that_differs_most_gives_the_figures(tmp_path: Path) -> None:
    result = run_on(tmp_path, target(), target({"g3": shaky(0.1)}), target({"g3": shaky(0.5)}))
    (only,) = seen(result).differing
    assert (only.tensor, only.runs) == ("g3", 2)
    assert only.max_abs == pytest.approx(0.5, rel=0.01)


def test_bits_count_not_values(tmp_path: Path) -> None:
    plus, minus = target(), target()
    plus["g3"][0, 0], minus["g3"][0, 0] = 0.0, -0.0
    (only,) = seen(run_on(tmp_path, plus, minus)).differing
    assert (only.tensor, only.mismatched, only.max_abs) == ("g3", 0, 0.0)


def test_two_nans_of_the_same_bits_are_the_same(tmp_path: Path) -> None:
    values = target({"g3": shaky(np.nan)})
    assert seen(run_on(tmp_path, values, {k: v.copy() for k, v in values.items()})).differing == ()


def test_a_beginning_needs_a_boundary_that_was_compared(tmp_path: Path) -> None:
    other = target({"b1": shaky(0.25)})
    del other["m1"]
    repeats = seen(run_on(tmp_path, target(), other))
    assert repeats.begins is None
    assert list(repeats.not_compared) == ["m1"]
    assert "again0.npz" in repeats.not_compared["m1"]
    assert repeats.compared == 15


def test_a_sparse_dump_names_the_region(tmp_path: Path) -> None:
    repeats = seen(run_on(tmp_path, target(), target({"m2": shaky(0.25)}), only=["g1", "g2", "g3"]))
    assert repeats.begins == "g2"


def test_runs_on_other_inputs_prove_nothing(tmp_path: Path) -> None:
    moved = {"x": ROWS["x"] + np.float32(1e-3)}
    result = run_on(tmp_path, target(), target(inputs=moved), only=["x", *NAMES])
    repeats = seen(result)
    assert repeats.begins is None
    assert repeats.inputs == "x differs"
    assert "not deterministic" not in result.summary
    assert "other inputs" in result.summary
    assert "one input" in result.next[0]


@pytest.mark.parametrize(("only", "said"), [(NAMES, "not compared"), (["x", *NAMES], "equal")])
def test_whether_the_inputs_were_the_same_is_said(tmp_path: Path, only: list[str], said: str) -> None:
    assert seen(run_on(tmp_path, target(), target({"b1": shaky(0.25)}), only=only)).inputs == said


def test_another_shape_is_another_value(tmp_path: Path) -> None:
    other = target()
    other["g3"] = other["g3"][:4]
    (only,) = seen(run_on(tmp_path, target(), other)).differing
    assert (only.tensor, only.max_abs) == ("g3", None)
    assert "(4, 24)" in only.reason


@pytest.mark.parametrize("scan", [False, True])
def test_the_certificate_of_a_culprit_says_whether_it_is_the_same_each_time(tmp_path: Path, scan: bool) -> None:
    fault = {"b1": scaled(1.5)}
    for again, expected, word in (
        (target(fault), True, "the same value in all of them"),
        (target({"b1": lambda y: shaky(0.25)(scaled(1.5)(y))}), False, "not deterministic"),
    ):
        result = run_on(tmp_path, target(fault), again, scan=scan)
        assert [c.region.output for c in result.culprits] == ["b1"]
        assert result.culprits[0].certificate.deterministic is expected
        assert word in text(result, 200)
    alone = run_on(tmp_path, target(fault), scan=scan)
    assert alone.repeats is None
    assert alone.culprits[0].certificate.deterministic is None


def test_what_no_dump_can_be_is_one_line(tmp_path: Path) -> None:
    options = Options(
        model=write_model(tmp_path, NET),
        target_dump=write_dump(tmp_path / "dump.npz", target(), NAMES),
        inputs=write_dump(tmp_path / "inputs.npz", ROWS),
    )
    foreign = write_dump(tmp_path / "foreign.npz", {"p": normal(1, 3), "q": normal(2, 3)})
    cases: tuple[tuple[Path, type[BisectAlignError], str], ...] = (
        (tmp_path / "nowhere", DumpError, "nowhere"),
        (foreign, DumpError, "no entry of the target's dump"),
        (options.target_dump, UsageError, "given twice"),
    )
    for path, kind, words in cases:
        with pytest.raises(kind, match=words):
            run(Options(model=options.model, target_dump=options.target_dump, inputs=options.inputs, repeat_dumps=(path,)))


def test_a_real_fault_that_comes_and_goes_begins_at_its_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A runtime with its fault, and the same without it, taken for two runs of one target."""
    case = MODELS / "bugs" / "ort-two-independent-faults"
    again = tmp_path / "again"
    shutil.copytree(case / "dump", again)
    words = [str(case / "model.onnx"), "--target-dump", str(case / "dump"), "-o", str(tmp_path / "out"), "--quiet"]
    assert main([*words, "--repeat-dump", str(again)]) == 1
    assert "deterministic" not in capsys.readouterr().out
    assert main([*words, "--repeat-dump", str(again), "--repeat-dump", str(case / "control")]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "it begins at '/ctx/norm/MeanVarianceNormalization_output_0'" in shown
