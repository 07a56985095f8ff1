"""A dump that holds little gives a short report: one cause is said once, and nothing is asked for that could change nothing."""

from __future__ import annotations

from pathlib import Path

from tiny_target import Fault, mixed, normal, run_target, scaled, write_dump, write_model

from bisect_align.report.terminal import text
from bisect_align.result.result import Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}


def outputs_alone(folder: Path, precision: str, faults: dict[str, Fault] | None = None) -> Result:
    dump = write_dump(folder / "dump.npz", run_target(NET, ROWS, precision, faults or {}), ["g3"])
    return run(Options(model=write_model(folder, NET), target_dump=dump, inputs=write_dump(folder / "in.npz", ROWS)))


def test_an_uncertain_precision_is_one_step_and_its_figures_stand_once(tmp_path: Path) -> None:
    result = outputs_alone(tmp_path, "int8")
    assert result.verdict is Verdict.UNDECIDED
    shown = " ".join(text(result).split())
    assert shown.count("--precision") == 1
    assert shown.count("fp32: median") == 1


def test_who_is_convicted_at_the_coarsest_precision_needs_no_other(tmp_path: Path) -> None:
    result = outputs_alone(tmp_path, "fp32", {"g3": scaled(1.5)})
    assert result.verdict is Verdict.FAULT
    assert result.target is not None
    assert result.target.precision == "int8"
    shown = " ".join(text(result).split())
    assert "--precision" not in shown
    assert shown.count("fp32: median") == 1
