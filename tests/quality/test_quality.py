"""What the fault matrix counts: effects, regions, outcomes; and that a run is drawn the same way each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import baselines
import chip_dumps
import fault_matrix
import numpy as np
import pytest
import quality
import quality_blocks
import quality_table
import small_nets
import subjects

SUBJECTS = {s.name: s for s in subjects.small_subjects()}
CASE = quality.Case("residual", "fp16", "round", 0, 1.0, "npy", "fp16", False)


@pytest.fixture
def bench(tmp_path: Path) -> quality.Bench:
    return quality.Bench(SUBJECTS["residual"], tmp_path)


def test_blocks_are_drawn_by_number_and_seed_alone() -> None:
    nets = list(SUBJECTS.values())
    drawn = [quality_blocks.draw(n, 0, nets, ("fp16", "int8"), held_out=False)[1] for n in range(40)]
    assert drawn == [quality_blocks.draw(n, 0, nets, ("fp16", "int8"), held_out=False)[1] for n in range(40)]
    assert {c.precision for c in drawn} == {"fp16", "int8"}
    assert all(not subjects.held_back(SUBJECTS[c.model], c.seed) for c in drawn)
    held = [quality_blocks.draw(n, 0, nets, ("fp16",), held_out=True)[1] for n in range(40)]
    assert all(subjects.held_back(SUBJECTS[c.model], c.seed) for c in held)


def test_a_larger_fault_has_a_larger_effect(bench: quality.Bench) -> None:
    small, large = (replace(CASE, kind=kind, tensor="conv_3") for kind in ("scale-1.02", "scale-1.1"))
    effects = [bench.effect(case, bench.values(case)) for case in (small, large)]
    assert effects[1] == pytest.approx(5 * effects[0], rel=0.05)
    assert effects[0] > 20


@pytest.mark.parametrize("density", quality_blocks.DENSITIES)
def test_a_hidden_fault_is_held_by_the_regions_below(bench: quality.Bench, density: float) -> None:
    observed = chip_dumps.kept(bench.net, density)
    for tensor in bench.net.tensors:
        holders = bench.holders(tensor, observed)
        assert holders == [name for name in observed if tensor in bench.region(name, observed)]
        assert holders


def test_outcomes(bench: quality.Bench) -> None:
    planted = replace(CASE, kind="shift", tensor="conv_3")
    right = quality.Answer("fault", "", output="conv_3", first=("conv_3",), certified=True)
    cases = [
        (planted, right, "found"),
        (planted, replace(right, certified=False), "coarse"),
        (planted, replace(right, output="relu_5", first=("conv_3", "batchnormalization_4", "relu_5")), "coarse"),
        (planted, replace(right, output="conv_6", first=("conv_6",)), "wrong"),
        (planted, quality.Answer("input-mismatch", ""), "wrong"),
        (planted, quality.Answer("dump-suspect", "", files=("conv_6",)), "wrong"),
        (planted, quality.Answer("dump-suspect", "", files=("conv_3",)), "undecided"),
        (planted, quality.Answer("aligned", ""), "missed"),
        (planted, quality.Answer("trouble", ""), "trouble"),
        (CASE, quality.Answer("aligned", ""), "quiet"),
        (CASE, quality.Answer("accumulation", ""), "quiet"),
        (CASE, quality.Answer("undecided", ""), "undecided"),
        (CASE, right, "alarm"),
        (CASE, replace(right, kind=quality.LOSSY), "alarm"),
    ]
    for case, answer, outcome in cases:
        assert bench.outcome(case, answer) == outcome, answer


def test_a_limit_asks_for_less_than_the_healthy_error(bench: quality.Bench) -> None:
    seen: dict[str, float] = {}

    def judge(model: Path, inputs: Path, dump: Path, precision: str, scan: bool, limits: Mapping[str, float]) -> quality.Answer:
        seen.update(limits)
        return quality.Answer("accumulation", "")

    case = replace(CASE, kind="accumulation")
    bench.judge(case, bench.values(case), judge)
    golden, healthy = bench.golden(0)["gemm_14"], bench.values(case)["gemm_14"]
    error = float(np.linalg.norm(healthy - golden) / np.linalg.norm(golden))
    assert seen["rel_l2"] == pytest.approx(error / 2, rel=1e-3)


def test_simpler_methods_find_a_large_fault_and_the_floor_alone_names_a_hidden_one(bench: quality.Bench) -> None:
    case = replace(CASE, kind="permuted-channels", tensor="conv_6")
    values = bench.values(case)
    assert {name: bench.outcome_of(case, values, name) for name in baselines.METHODS} == dict.fromkeys(baselines.METHODS, "found")
    small = replace(CASE, kind="scale-1.02", tensor="conv_6")
    found = {name: bench.outcome_of(small, bench.values(small), name) for name in baselines.METHODS}
    assert found == {"first cosine < 0.99": "missed", "replay, fixed floor": "found", "index bisection": "missed"}


def test_a_model_of_a_folder_gets_other_inputs_by_seed(tmp_path: Path) -> None:
    subject = next(s for s in subjects.subjects_in(fault_matrix.ROOT / "models" / "nets") if s.name == "mnist")
    first, second = subject.inputs(0), subject.inputs(1)
    assert first.keys() == second.keys()
    name = next(iter(first))
    assert first[name].shape == second[name].shape
    assert not np.array_equal(first[name], second[name])
    assert np.array_equal(second[name], subject.inputs(1)[name])
    assert first[name].min() <= second[name].min() <= second[name].max() <= first[name].max()


def test_records_survive_their_file_and_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = quality.Answer("fault", "why", output="t", first=("t",), culprits=(("t",),))

    def block(plan: fault_matrix.Plan, number: int) -> list[quality.Record]:
        case = replace(CASE, kind="shift", tensor="t", seed=number)
        return [quality.Record(number, case, "found", float("inf"), 0.1, answer, baselines={"index bisection": "wrong"})] * 2

    monkeypatch.setattr(fault_matrix, "block", block)
    plan = fault_matrix.Plan(0, (), (), ("fp16",), False, ())
    out = tmp_path / "records.jsonl"
    assert len(fault_matrix.judge(plan, 3, out, 1)) == 4
    records = fault_matrix.judge(plan, 6, out, 1)
    assert [r.block for r in records] == [0, 0, 1, 1, 2, 2]
    assert [quality.line(r) for r in quality.load([out])] == [quality.line(r) for r in records]
    text = quality_table.table(quality.load([out]))
    assert "6/0/0/0 100.0%" in text
    assert "-/1.00/0.00" in text


def test_the_worst_stands_first() -> None:
    records = [
        quality.Record(0, replace(CASE, kind=kind), outcome, effect, 0.1, quality.Answer("", ""))
        for kind, outcome, effect in (
            ("shift", "missed", 9.0),
            ("healthy", "alarm", 0.0),
            ("nan", "wrong", 2.0),
            ("nan", "missed", 3.0),
        )
    ]
    assert [one.split()[0] for one in quality_table.failures(records)] == ["wrong", "alarm", "missed"]


def test_faults_are_planted_where_they_can_be_told_from_other_inputs_and_weights(tmp_path: Path) -> None:
    s = small_nets.Sketch("places", {"x": (2, 6)}, 0)
    moved = s.node("Reshape", s.node("Identity", "x"), s.integers([6, 2]))
    folded = s.node("Abs", s.normal(2, 3))
    model = s.model(s.node("MatMul", moved, folded))
    bench = quality.Bench(subjects.Subject("places", model, lambda seed: small_nets.inputs_of(model, seed)), tmp_path)
    assert bench.places(0) == [model.graph.output[0].name]


def test_a_weight_beyond_the_format_is_no_healthy_run(tmp_path: Path) -> None:
    s = small_nets.Sketch("range", {"x": (4, 3)}, 0)
    model = s.model(s.node("Div", "x", s.constant([1.0, 7e4, 2.0])))
    bench = quality.Bench(subjects.Subject("range", model, lambda seed: small_nets.inputs_of(model, seed)), tmp_path)
    assert bench.leaves_range(CASE)
    assert not bench.leaves_range(replace(CASE, precision="bf16", law="nearest"))
