"""One run from model and dump to a verdict: what it must find, what it must never say, what it may cost, and what it leaves behind."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper
from tiny_target import (
    Fault,
    channel,
    convolutional,
    mixed,
    model_of,
    node,
    normal,
    offset,
    run_target,
    scaled,
    store,
    write_dump,
    write_model,
)

from bisect_align.errors import BisectAlignError, DumpError, EngineError, InputsError, MatchError, UsageError
from bisect_align.golden.protocol import Counters
from bisect_align.result import files
from bisect_align.result.result import Consumed, Kind, Result, State, Verdict
from bisect_align.session.case import prepare
from bisect_align.session.hunt import Hunt
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
RUNS = ["fp32", "fp16", "bf16", "int8"]
NET, ROWS = mixed(4), {"x": normal(91, 8, 24)}
MEMORY = 64 << 20


# ---- running ---------------------------------------------------------------------------------------------------------------
@cache
def validator() -> Any:
    text = (resources("bisect_align.result") / "result.schema.json").read_bytes()
    return jsonschema.Draft202012Validator(msgspec.json.decode(text))


def checked(folder: Path) -> Result:
    """The result that stands in a folder, once it has passed the schema that is shipped."""
    text = (folder / files.RESULT).read_bytes()
    validator().validate(msgspec.json.decode(text))
    return files.read(folder)


def options_of(
    folder: Path,
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    values: Mapping[str, Array],
    only: Collection[str] | None = None,
    **more: Any,
) -> Options:
    """Files in a folder, and the options that name them. The dump has no copy of the inputs unless `only` says so."""
    names = set(values) - set(inputs) if only is None else only
    return Options(
        model=write_model(folder, model),
        inputs=write_dump(folder / "inputs.npz", inputs),
        target_dump=write_dump(folder / "dump.npz", values, names),
        out=folder / "out",
        memory=MEMORY,
        **more,
    )


def run_on(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    values: Mapping[str, Array],
    only: Collection[str] | None = None,
    **more: Any,
) -> Result:
    """One run in a folder of its own; what it leaves there is the answer, valid, and the same as the one returned."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = run(options_of(folder, model, inputs, values, only, **more))
        left = checked(folder / "out")
        assert files.to_json(left) == files.to_json(result)
        assert (folder / "out" / files.TABLE).is_file()
    assert result.complete
    assert result.verdict is not None
    assert result.summary
    return result


def target(precision: str = "fp16", faults: Mapping[str, Fault] = {}, seed: int = 0) -> dict[str, Array]:
    return run_target(NET, ROWS, precision, faults, seed=seed)


def culprits(result: Result) -> list[str]:
    return [c.region.output for c in result.culprits]


# ---- faults and no faults --------------------------------------------------------------------------------------------------
def test_an_output_that_misses_its_activation_is_never_aligned() -> None:
    nodes = [node("Tanh", "x", "a"), node("MatMul", "a w", "b"), node("Tanh", "b", "c"), node("MatMul", "c w", "d")]
    nodes += [node("Softmax", "d", "y", axis=-1)]
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(3, 24, 24, scale=0.3)}), {"x": normal(4, 8, 24)}
    values = run_target(model, inputs, "fp16")
    result = run_on(model, inputs, {**values, "y": values["d"]}, only=["a", "b", "c", "y"], precision="fp16")
    assert result.verdict in (Verdict.UNDECIDED, Verdict.FAULT)
    assert "holds the value of 'd'" in result.summary or culprits(result) == ["y"]


@pytest.mark.parametrize("size", [5e-5, 1e-4, 1.5e-4])
@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_an_output_that_misses_its_bias_is_never_aligned_however_small_that_is(precision: str, size: float) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b w", "d"), node("Add", "d bias", "y")]
    weights = {"w": normal(3, 24, 24, scale=0.3), "bias": normal(5, 24, scale=size)}
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights=weights), {"x": normal(4, 8, 24)}
    values = run_target(model, inputs, "fp32")
    assert np.linalg.norm(values["y"] - values["d"]) < 2e-4 * np.linalg.norm(values["y"])
    result = run_on(model, inputs, {**values, "y": values["d"]}, only=["a", "b", "y"], precision=precision)
    assert result.verdict is Verdict.UNDECIDED
    assert "The entry of 'y' holds the value of 'd'" in result.summary


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_an_operator_that_was_left_out_is_no_wrong_name_where_what_follows_was_computed_from_it(precision: str) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b w", "c"), node("Sqrt", "p", "r")]
    nodes.insert(3, node("Exp", "c", "p"))
    nodes += [node("MatMul", "r w", "d"), node("Tanh", "d", "y")]
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(3, 24, 24, scale=0.3)}), {"x": normal(4, 8, 24)}
    left_out = run_target(model, inputs, precision, {"r": lambda y: y * y})
    result = run_on(model, inputs, left_out, only=["a", "b", "c", "r", "d", "y"], precision=precision)
    assert culprits(result) == ["r"]
    assert result.culprits[0].certificate.consumed is Consumed.YES


def test_channels_last_behind_equal_sizes_in_a_small_dump_accuses_nobody_healthy() -> None:
    """Two square maps cannot show the order of their axes; the fault lies between them."""
    weights = {name: normal(seed, 6, 6, 3, 3, scale=0.2) for name, seed in (("w", 5), ("v", 6))}
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"), node("Conv", "r v", "b", pads=[1, 1, 1, 1])]
    nodes += [node("GlobalAveragePool", "b", "y")]
    model, inputs = model_of(nodes, {"x": (1, 6, 6, 6)}, weights=weights), {"x": normal(7, 1, 6, 6, 6)}
    for faults in ({}, {"r": channel(1)}):
        values = run_target(model, inputs, "fp16", faults)
        last = {n: np.ascontiguousarray(values[n].transpose(0, 2, 3, 1)) for n in "ab"} | {"y": values["y"]}
        result = run_on(model, inputs, last, precision="fp16")
        assert "a" not in culprits(result)


@pytest.mark.parametrize("faults", [{"b": scaled(1.5)}, {"s": channel(1)}, {"c": channel(1, -3.0)}], ids=lambda f: str(*f))
def test_few_entries_in_an_order_that_their_sizes_hide_accuse_nobody_and_say_why(faults: dict[str, Fault]) -> None:
    """With one fault among them too few entries are left to show that the dump has its channels last."""
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [node("Conv", "x u", "a", **pads), node("Relu", "a", "r"), node("Conv", "r v", "b", **pads), node("Relu", "b", "s")]
    nodes.append(node("Conv", "s w", "c", **pads))
    weights = {name: normal(seed, 12, 12, 3, 3, scale=0.12) for seed, name in enumerate("uvw")}
    model, inputs = model_of(nodes, {"x": (1, 12, 12, 12)}, weights=weights), {"x": normal(9, 1, 12, 12, 12)}
    values = run_target(model, inputs, "fp16", faults)
    last = {n: np.ascontiguousarray(values[n].transpose(0, 2, 3, 1)) for n in "abc"}
    result = run_on(model, inputs, last, precision="fp16")
    assert result.verdict is Verdict.UNDECIDED
    why = {skipped.tensor: skipped.reason for skipped in result.not_judged}
    assert why["b"] == "reads 'a', whose entry may lie in another order of axes"


def test_a_table_that_is_computed_from_constants_has_its_operator_named() -> None:
    nodes = [node("Cos", "k", "table"), node("Mul", "x table", "m"), node("Tanh", "m", "y")]
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights={"k": normal(3, 24)}), {"x": normal(4, 8, 24)}
    result = run_on(model, inputs, run_target(model, inputs, "fp16", {"table": scaled(1.3)}), precision="fp16")
    assert culprits(result) == ["table"]
    assert [n.op for n in result.culprits[0].region.nodes] == ["Cos"]


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("tensor", ["m0", "b2", "g3"])
@pytest.mark.parametrize("scan", [False, True], ids=["search", "scan"])
def test_a_fault_is_found_with_its_certificate(tensor: str, precision: str, scan: bool) -> None:
    result = run_on(NET, ROWS, target(precision, {tensor: scaled(1.5)}), scan=scan)
    assert result.verdict is Verdict.FAULT
    assert culprits(result) == [tensor]
    one = result.culprits[0]
    assert one.kind is Kind.WRONG_RESULT
    assert [n.outputs for n in one.region.nodes] == [(tensor,)]
    assert tensor in result.summary
    assert one.introduced.rel_l2 == pytest.approx(0.5, rel=0.1)
    assert one.noise.expected < 0.1
    assert one.noise.score > 2
    assert one.noise.precision == precision
    assert one.certificate.consumed is (Consumed.UNSEEN if tensor == "g3" else Consumed.YES)
    assert [b.tensor for b in one.certificate.boundary] == list(one.region.boundary)
    assert scan or result.next


@pytest.mark.parametrize("precision", ["exact", *RUNS])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scan", [False, True], ids=["search", "scan"])
def test_a_clean_run_is_aligned_and_nobody_is_accused(precision: str, seed: int, scan: bool) -> None:
    result = run_on(NET, ROWS, target(precision, seed=seed), scan=scan)
    assert result.verdict is Verdict.ALIGNED
    assert (result.culprits, result.suspected_entries, result.crossings) == ((), (), ())


@pytest.mark.parametrize("precision", RUNS)
def test_aligned_needs_a_full_pass(precision: str) -> None:
    """Every observed region was judged and every observed tensor compared, also without --scan."""
    result = run_on(NET, ROWS, target(precision))
    assert result.verdict is Verdict.ALIGNED
    assert result.not_judged == ()
    assert all(row.score is not None and row.state is State.GOOD for row in result.tensors)
    assert result.coverage is not None
    assert f"{result.coverage.observed} of {result.coverage.tensors}" in result.summary


def test_a_fault_that_leaves_the_outputs_good_is_found_all_the_same() -> None:
    """What a Relu cuts off below cannot be seen at the output."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Tanh", "b", "y")]
    model = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(1, 24, 24)})
    result = run_on(model, ROWS, run_target(model, ROWS, "fp16", {"a": lambda a: np.where(a < 0, 3 * a, a)}))
    assert result.crossings
    assert culprits(result) == ["a"]


def test_several_faults_are_listed_by_scan_in_graph_order() -> None:
    values = target("fp16", {"b0": scaled(1.5), "m3": channel(1), "t2": offset(0.7)})
    assert culprits(run_on(NET, ROWS, values, scan=True)) == ["b0", "t2", "m3"]
    first = run_on(NET, ROWS, values)
    assert first.verdict is Verdict.FAULT
    assert set(culprits(first)) <= {"b0", "t2", "m3"}
    assert len(first.not_judged) > 0


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("policy", ["calibrated", "classic"])
def test_where_nan_begins_and_not_where_it_spreads(special: float, policy: str) -> None:
    def fault(y: Array) -> Array:
        y[1, 2] = special
        return y

    result = run_on(NET, ROWS, target("fp16", {"b1": fault}), policy=policy)
    assert culprits(result) == ["b1"]
    assert result.culprits[0].kind is Kind.NON_FINITE
    assert [c.tensor for c in result.crossings] == ["b1"]


def test_a_wrong_shape_is_a_culprit() -> None:
    values = target("fp16")
    values = {**values, **{t: values[t][:, :20] for t in ("m3", "b3", "t3", "g3")}}
    result = run_on(NET, ROWS, values)
    assert culprits(result) == ["m3"]
    assert result.culprits[0].kind is Kind.WRONG_SHAPE


# ---- what random nets must hold to -----------------------------------------------------------------------------------------
@st.composite
def nets(draw: st.DrawFn) -> onnx.ModelProto:
    """6 to 12 operators on (6, 16): products, sums of two branches, gates, activations, normalisation."""
    known, nodes = ["x"], []
    weights: dict[str, Array] = {"one": np.ones(16, np.float32)}
    for k in range(draw(st.integers(6, 12))):
        a, made = draw(st.sampled_from(known[-3:])), f"t{k}"
        op = draw(st.sampled_from(["MatMul", "Add", "Mul", "Tanh", "Sigmoid", "LayerNormalization", "Sum"]))
        if op == "MatMul":
            weights[f"w{k}"] = normal(draw(st.integers(0, 99)), 16, 16, scale=0.3)
            nodes.append(node(op, f"{a} w{k}", made))
        elif op in ("Add", "Mul"):
            weights[f"w{k}"] = 1 + normal(draw(st.integers(0, 99)), 16, scale=0.2)
            nodes.append(node(op, f"{a} w{k}", made))
        elif op == "Sum":
            nodes.append(node(op, f"{a} {draw(st.sampled_from(known))}", made))
        else:
            nodes.append(node(op, f"{a} one" if op == "LayerNormalization" else a, made))
        known.append(made)
    read = {name for n in nodes for name in n.input}
    return model_of(nodes, {"x": (6, 16)}, outputs=[t for t in known[1:] if t not in read], weights=weights)


SMALL = {"x": normal(92, 6, 16)}


@given(nets(), st.data())
@settings(max_examples=25, deadline=None)
def test_the_culprits_of_the_default_run_are_among_those_of_scan(model: onnx.ModelProto, data: st.DataObject) -> None:
    names = [n.output[0] for n in model.graph.node]
    precision = data.draw(st.sampled_from(RUNS))
    faults = {
        name: data.draw(st.sampled_from([scaled(1.5), scaled(1.01), channel(1, -2.0), offset(0.2), offset(3.0)]))
        for name in data.draw(st.sets(st.sampled_from(names), max_size=3))
    }
    only = data.draw(st.sets(st.sampled_from(names), min_size=1)) if data.draw(st.booleans()) else None
    values = run_target(model, SMALL, precision, faults)
    one, all_of_them = (run_on(model, SMALL, values, only, scan=scan, precision=precision) for scan in (False, True))
    assert set(culprits(one)) <= set(culprits(all_of_them))
    assert (one.verdict is Verdict.FAULT) is (all_of_them.verdict is Verdict.FAULT)
    if not faults:
        assert not one.culprits
        assert not all_of_them.culprits


@given(nets(), st.sampled_from(RUNS), st.data())
@settings(max_examples=15, deadline=None)
def test_a_gross_fault_in_a_full_dump_is_found_where_it_is(model: onnx.ModelProto, precision: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n.output[0] for n in model.graph.node]))
    values = run_target(model, SMALL, precision, {name: lambda y: -2 * y + 1})
    assert culprits(run_on(model, SMALL, values, precision=precision)) == [name]


# ---- determinism -----------------------------------------------------------------------------------------------------------
def lasting(folder: Path) -> bytes:
    """result.json without what may differ between two equal runs."""
    found = msgspec.json.decode((folder / files.RESULT).read_bytes())
    del found["environment"], found["timing"]
    return msgspec.json.encode(found)


@pytest.mark.parametrize("faults", [{}, {"b2": scaled(1.3)}], ids=["clean", "fault"])
@pytest.mark.parametrize("precision", RUNS)
def test_the_same_run_leaves_the_same_bytes(tmp_path: Path, precision: str, faults: Mapping[str, Fault]) -> None:
    asked = options_of(tmp_path, NET, ROWS, target(precision, faults))
    left = []
    for at, memory in enumerate((MEMORY, MEMORY, 1 << 10)):  # how much memory there is changes nothing but time
        run(replace(asked, out=tmp_path / f"out{at}", memory=memory))
        left.append(lasting(tmp_path / f"out{at}"))
    assert left[0] == left[1]
    assert left[0] == left[2]


# ---- the other verdicts ----------------------------------------------------------------------------------------------------
def test_another_input_is_said_before_anything_else() -> None:
    other = {"x": ROWS["x"] + np.float32(0.5)}
    result = run_on(NET, ROWS, run_target(NET, other, "fp16", {"b1": scaled(1.5)}), only={"x", "b1", "g3"})
    assert result.verdict is Verdict.INPUT_MISMATCH
    assert "'x'" in result.summary
    assert result.culprits == ()
    assert {row.state for row in result.tensors} == {State.UNKNOWN}
    assert result.inputs[0].checked is not None
    assert (result.inputs[0].checked.rel_l2 or 0) > 0.1


@pytest.mark.parametrize("stored", ["fp32", "fp16", "bf16", "int8"])
def test_an_input_that_was_only_stored_is_the_same_input(stored: str) -> None:
    values = {**target("fp16"), "x": store(ROWS["x"], stored, np.random.default_rng(0))}
    assert run_on(NET, ROWS, values, only=set(values)).verdict is Verdict.ALIGNED


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("scan", [False, True], ids=["search", "scan"])
def test_one_stale_file_is_the_files_fault(precision: str, scan: bool) -> None:
    values = target(precision)
    result = run_on(NET, ROWS, {**values, "b1": 1.5 * values["b1"]}, scan=scan)
    assert result.verdict is Verdict.DUMP_SUSPECT
    assert result.culprits == ()
    assert [(s.entry, s.tensor) for s in result.suspected_entries] == [("b1", "b1")]
    assert "b1" in result.summary


def test_a_stale_file_does_not_hide_a_fault() -> None:
    values = target("fp16", {"m3": scaled(1.5)})
    result = run_on(NET, ROWS, {**values, "b1": 1.5 * values["b1"]}, scan=True)
    assert result.verdict is Verdict.FAULT
    assert culprits(result) == ["m3"]
    assert [s.tensor for s in result.suspected_entries] == ["b1"]


def test_a_golden_that_stands_alone_is_suspect(tmp_path: Path) -> None:
    golden = run_target(NET, ROWS, "exact", {"b2": scaled(1.5)})
    folder = write_dump(tmp_path / "golden.npz", golden)
    result = run_on(NET, ROWS, target("fp16"), golden_dump=folder)
    assert result.verdict is Verdict.GOLDEN_SUSPECT
    assert result.culprits == ()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_right_golden_from_elsewhere_changes_nothing(tmp_path: Path, precision: str) -> None:
    folder = write_dump(tmp_path / "golden.npz", run_target(NET, ROWS, "fp32", seed=5))
    assert run_on(NET, ROWS, target(precision), golden_dump=folder).verdict is Verdict.ALIGNED
    result = run_on(NET, ROWS, target(precision, {"b2": scaled(1.5)}), golden_dump=folder)
    assert result.verdict is Verdict.FAULT
    assert culprits(result) == ["b2"]


def test_no_fault_but_beyond_what_the_user_allows_is_accumulation() -> None:
    values = target("fp16")
    beyond = run_on(NET, ROWS, values, thresholds={"max_abs": 1e-9})
    assert beyond.verdict is Verdict.ACCUMULATION
    assert "g3" in beyond.summary
    assert beyond.not_judged == ()
    within = run_on(NET, ROWS, values, thresholds={"cosine": 0.99, "max_abs": 0.5})
    assert within.verdict is Verdict.ALIGNED
    assert within.policy is not None
    assert within.policy.thresholds == {"cosine": 0.99, "max_abs": 0.5}


def test_a_threshold_does_not_hide_a_fault() -> None:
    result = run_on(NET, ROWS, target("fp16", {"b2": scaled(1.5)}), thresholds={"max_abs": 1e9})
    assert culprits(result) == ["b2"]


def test_classic_thresholds_say_where_the_error_crosses() -> None:
    values = target("fp16", {"m2": scaled(1.5)})
    result = run_on(NET, ROWS, values, policy="classic", thresholds={"rel_l2": 0.1}, scan=True)
    assert result.policy is not None
    assert result.policy.name == "classic"
    assert [c.tensor for c in result.crossings] == ["m2"]
    states = {row.name: row.state for row in result.tensors}
    assert {t for t, s in states.items() if s is State.BAD} >= {"m2", "b2"}
    assert all(states[t] is State.GOOD for t in ("m0", "g1"))


def test_what_cannot_be_judged_is_never_called_clean() -> None:
    """The precision cannot be told from one small tensor that is off."""
    result = run_on(NET, ROWS, target("bf16", {"g3": scaled(1.03)}), only={"g3"})
    assert result.verdict is not Verdict.ALIGNED


# ---- precision -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", RUNS)
def test_precision_is_found_or_taken_as_given(precision: str) -> None:
    found = run_on(NET, ROWS, target(precision))
    given_ = run_on(NET, ROWS, target(precision), precision=precision)
    for result in (found, given_):
        assert result.target is not None
        assert result.target.precision == precision
        assert result.target.precision_evidence
        assert result.verdict is Verdict.ALIGNED


def test_a_coarse_run_that_is_declared_fine_is_faulty() -> None:
    assert run_on(NET, ROWS, target("bf16"), precision="fp32").verdict is Verdict.FAULT


def test_a_fine_run_that_is_declared_coarse_hides_small_faults_and_says_how_small() -> None:
    values = target("fp32", {"b1": scaled(1.001)})
    assert culprits(run_on(NET, ROWS, values)) == ["b1"]
    assert run_on(NET, ROWS, values, precision="int8").verdict is Verdict.ALIGNED


@pytest.mark.parametrize("wrong", [{"precision": "fp8"}, {"policy": "strict"}, {"thresholds": {"cos": 1.0}}], ids=str)
def test_what_is_no_option_is_one_line(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        run(options_of(tmp_path, NET, ROWS, target(), **wrong))
    assert not (tmp_path / "out").exists()


# ---- runs that do not end --------------------------------------------------------------------------------------------------
STAGES = ["matching", "precision", "noise", "searching", "judging"]


class Cut:
    """Cuts a run short when a stage begins."""

    def __init__(self, stage: str, trouble: BaseException) -> None:
        self.at, self.trouble = stage, trouble
        self.seen: list[str] = []

    def stage(self, name: str, total: int | None = None) -> None:
        self.seen.append(name)
        if name == self.at:
            raise self.trouble

    def advance(self, n: int = 1) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), DumpError("gone", where="b1.npy"), EngineError("refused")], ids=repr)
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_is_cut_short_leaves_what_it_knows(tmp_path: Path, stage: str, trouble: BaseException) -> None:
    asked = options_of(tmp_path, NET, ROWS, target("fp16"))
    with pytest.raises(type(trouble)):
        run(asked, Cut(stage, trouble))
    left = checked(tmp_path / "out")
    assert (left.complete, left.verdict, left.culprits) == (False, None, ())
    assert "did not end" in left.summary
    assert len(left.tensors) == 16
    if stage in STAGES[STAGES.index("searching") :]:
        assert left.coverage is not None
        assert left.coverage.observed == 16
    if isinstance(trouble, BisectAlignError):
        assert trouble.what in left.summary


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    asked = options_of(tmp_path, NET, ROWS, target("fp16"))
    with pytest.raises(KeyboardInterrupt):
        run(asked, Cut("loading", KeyboardInterrupt()))
    assert not (tmp_path / "out").exists()


def test_a_dump_of_another_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MatchError):
        run(options_of(tmp_path, NET, ROWS, {"alpha": normal(1, 3, 3), "beta": normal(2, 5)}))


def test_inputs_that_are_nowhere_are_one_line(tmp_path: Path) -> None:
    asked = options_of(tmp_path, NET, ROWS, target("fp16"))
    (tmp_path / "inputs.npz").unlink()
    with pytest.raises(InputsError, match="x"):
        run(replace(asked, inputs=None))


# ---- what a run may cost ---------------------------------------------------------------------------------------------------
class Meter:
    """The engine's counters as each stage begins."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.seen: dict[str, Counters] = {}

    def stage(self, name: str, total: int | None = None) -> None:
        self.seen.setdefault(name, replace(self.counters))

    def advance(self, n: int = 1) -> None:
        pass

    def close(self) -> None:
        pass

    def spent(self, stage: str, until: str = "") -> Counters:
        """What was counted from the first beginning of a stage to that of another (default: the next); nothing where it never began."""
        names = list(self.seen)
        if stage not in names:
            return Counters()
        first, last = self.seen[stage], self.seen[until or names[names.index(stage) + 1]]
        return Counters(
            last.stream_passes - first.stream_passes,
            last.local_passes - first.local_passes,
            last.replays - first.replays,
            last.node_runs - first.node_runs,
        )


def hunted(options: Options) -> tuple[Hunt, Meter]:
    case = prepare(options)
    meter = Meter(case.engine.counters)
    hunt = Hunt(case, meter)
    hunt.run()
    meter.stage("end")
    return hunt, meter


LENGTH = 2000


def long_chain() -> onnx.ModelProto:
    """Add and Mul by turns: y0 ... y1999."""
    nodes, weights = [], {}
    for k in range(LENGTH):
        weights[f"c{k}"] = normal(k, 8, scale=0.1) if k % 2 else np.array(0.9 if k % 4 else 1.1, np.float32)
        nodes.append(node("Add" if k % 2 else "Mul", f"{'x' if k == 0 else f'y{k - 1}'} c{k}", f"y{k}"))
    return model_of(nodes, {"x": (4, 8)}, weights=weights)


def test_a_long_chain_costs_few_passes(tmp_path: Path) -> None:
    model, inputs = long_chain(), {"x": normal(93, 4, 8)}
    values = run_target(model, inputs, "fp16", {"y1234": channel(1, -3.0)})
    hunt, meter = hunted(replace(options_of(tmp_path, model, inputs, values), precision="fp16", memory=1 << 30))
    assert [t for t, r in hunt.findings.rulings.items() if r.finding == "fault"] == ["y1234"]
    few = math.ceil(math.log(LENGTH, 17)) + 2
    assert hunt.info().passes <= few
    searching, matching, ended = meter.spent("searching", "end"), meter.spent("matching"), meter.seen["end"]
    assert searching.stream_passes <= few
    assert searching.node_runs <= 3 * LENGTH
    assert ended.local_passes <= 3
    assert matching.node_runs <= 3 * LENGTH
    assert matching.replays <= 8  # looks along the chain of the one that fits nothing


@pytest.mark.parametrize("net", ["mixed", "convolutional"])
@pytest.mark.parametrize("precision", RUNS)
def test_where_names_hold_matching_runs_each_node_at_most_three_times(tmp_path: Path, net: str, precision: str) -> None:
    model, inputs = (NET, ROWS) if net == "mixed" else (convolutional(), {"x": normal(94, 1, 3, 10, 8)})
    hunt, meter = hunted(options_of(tmp_path, model, inputs, run_target(model, inputs, precision)))
    matching = meter.spent("matching")
    assert matching.local_passes <= 3
    assert matching.node_runs <= 3 * len(hunt.case.model.graph.nodes) + matching.replays
    assert meter.seen["end"].local_passes <= 3


def test_a_healthy_scan_replays_each_region_a_few_times(tmp_path: Path) -> None:
    """The gate clears most regions by one replay for each way to round weights; only the rest is replayed on jitter."""
    hunt, meter = hunted(options_of(tmp_path, NET, ROWS, target("fp16"), precision="fp16"))
    assert hunt.findings.full
    assert meter.seen["end"].replays <= 4 * len(hunt.evidence.observed.order)


# ---- dumps with little in them ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_dump_of_the_outputs_alone_accuses_the_whole_model_and_says_so(precision: str) -> None:
    result = run_on(NET, ROWS, target(precision, {"b2": channel(1, -3.0)}), only={"g3"}, precision=precision)
    assert result.verdict is Verdict.FAULT
    assert culprits(result) == ["g3"]
    assert len(result.culprits[0].region.nodes) == 16
    assert "whole model" in result.summary
    assert any("Dump" in step for step in result.next)


def test_a_healthy_dump_of_the_outputs_alone_is_aligned_and_says_how_little_was_seen() -> None:
    result = run_on(NET, ROWS, target("fp16"), only={"g3"}, precision="fp16")
    assert result.verdict is Verdict.ALIGNED
    assert "1 of 16" in result.summary


def test_an_output_that_the_dump_lacks_is_named() -> None:
    result = run_on(NET, ROWS, target("fp16"), only={"m0", "g1", "b3"})
    assert result.coverage is not None
    assert result.coverage.outputs_missing == ("g3",)
    assert "'g3'" in result.summary


def test_the_culprit_of_a_sparse_dump_holds_the_faulty_node() -> None:
    result = run_on(NET, ROWS, target("fp16", {"b1": channel(1, -3.0)}), only={"g0", "g1", "g2", "g3"})
    assert culprits(result) == ["g1"]
    assert {o for n in result.culprits[0].region.nodes for o in n.outputs} == {"m1", "b1", "t1", "g1"}
    assert result.culprits[0].certificate.consumed is Consumed.YES


def test_every_tensor_and_every_entry_is_accounted_for() -> None:
    values = {**target("fp16"), "left_over": normal(1, 3), "b1": target("fp16")["b1"]}
    result = run_on(NET, ROWS, values, only={"b1", "g2", "g3", "left_over"})
    coverage = result.coverage
    assert coverage is not None
    assert coverage.observed + coverage.not_dumped + coverage.ambiguous == coverage.tensors == 16
    assert (coverage.entries, coverage.used, coverage.unmatched) == (4, 3, ("left_over",))
    assert [row.order for row in result.tensors] == list(range(16))


# ---- models of every kind --------------------------------------------------------------------------------------------------
def both_ways(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    tensor: str,
    fault: Fault = lambda y: -y,
    precision: str = "fp32",
    **more: Any,
) -> Sequence[Result]:
    """A healthy run is aligned, and a faulty one convicts the tensor."""
    healthy = run_on(model, inputs, run_target(model, inputs, precision), **more)
    assert healthy.verdict is Verdict.ALIGNED, healthy.summary
    faulty = run_on(model, inputs, run_target(model, inputs, precision, {tensor: fault}), **more)
    assert culprits(faulty) == [tensor], faulty.summary
    return healthy, faulty


def body(name: str, nodes: list[onnx.NodeProto], inputs: Sequence[Any] = (), outputs: Sequence[str] = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, list(inputs), [onnx.ValueInfoProto(name=o) for o in outputs])


@pytest.mark.parametrize("tensor", ["a", "i", "y"])
def test_a_model_with_if(tensor: str) -> None:
    then, other = body("then", [node("Neg", "a", "p")], (), ["p"]), body("else", [node("Exp", "a", "q")], (), ["q"])
    nodes = [
        node("Tanh", "x", "a"),
        node("ReduceSum", "a", "s", keepdims=0),
        node("Greater", "s far", "c"),
        helper.make_node("If", ["c"], ["i"], name="branch", then_branch=then, else_branch=other),
        node("MatMul", "i w", "y"),
    ]
    model = model_of(nodes, {"x": (8, 24)}, weights={"far": np.array(-1e6, np.float32), "w": normal(1, 24, 24, scale=0.3)})
    both_ways(model, ROWS, tensor)


@pytest.mark.parametrize("tensor", ["a", "l", "y"])
def test_a_model_with_loop(tensor: str) -> None:
    info = helper.make_tensor_value_info
    steps = body(
        "steps",
        [node("Identity", "go", "on"), node("Mul", "v half", "h"), node("Add", "h a", "u")],
        [info("k", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, None)],
        ["on", "u"],
    )
    nodes = [
        node("Tanh", "x", "a"),
        helper.make_node("Loop", ["times", "yes", "a"], ["l"], name="repeat", body=steps),
        node("MatMul", "l w", "y"),
    ]
    weights = {
        "times": np.array(3, np.int64),
        "yes": np.array(True),
        "half": np.array(0.5, np.float32),
        "w": normal(2, 24, 24, scale=0.3),
    }
    both_ways(model_of(nodes, {"x": (8, 24)}, weights=weights), ROWS, tensor)


@pytest.mark.parametrize("tensor", ["a", "f", "y"])
def test_a_model_with_local_functions(tensor: str) -> None:
    gelu = helper.make_function(
        "local",
        "Gate",
        ["v"],
        ["u"],
        [helper.make_node("Sigmoid", ["v"], ["s"]), helper.make_node("Mul", ["v", "s"], ["u"])],
        [helper.make_opsetid("", 21)],
    )
    nodes = [
        node("Tanh", "x", "a"),
        helper.make_node("Gate", ["a"], ["f"], name="gate", domain="local"),
        node("MatMul", "f w", "y"),
    ]
    model = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(3, 24, 24, scale=0.3)}, functions=[gelu])
    both_ways(model, ROWS, tensor)


@pytest.mark.parametrize("tensor", ["n", "h", "y"])
def test_a_model_with_optional_outputs(tensor: str) -> None:
    nodes = [
        node("LayerNormalization", "x one", "n - d"),
        node("Unsqueeze", "n zero", "u"),
        node("GRU", "u w r", "- h", hidden_size=5),
        node("Squeeze", "h zero", "q"),
        node("Mul", "q two", "y"),
    ]
    weights = {
        "one": np.ones(24, np.float32),
        "zero": np.array([0]),
        "w": normal(4, 1, 15, 24, scale=0.3),
        "r": normal(5, 1, 15, 5, scale=0.3),
        "two": np.array(2, np.float32),
    }
    model = model_of(nodes, {"x": (8, 24)}, outputs=("y", "d"), weights=weights)
    both_ways(model, ROWS, tensor)


def half_model() -> onnx.ModelProto:
    nodes, x = [], "x"
    weights: dict[str, Array] = {}
    for k in range(3):
        weights[f"w{k}"] = normal(6 + k, 24, 24, scale=0.2).astype(np.float16)
        nodes += [node("MatMul", f"{x} w{k}", f"m{k}"), node("Tanh", f"m{k}", f"t{k}")]
        x = f"t{k}"
    return model_of(nodes, {"x": (8, 24)}, weights=weights, kind=TensorProto.FLOAT16)


@pytest.mark.parametrize("tensor", ["m0", "t1", "t2"])
def test_a_half_precision_model_is_judged_against_its_upcast(tensor: str) -> None:
    inputs = {"x": ROWS["x"].astype(np.float16)}
    for result in both_ways(half_model(), inputs, tensor):
        assert result.golden is not None
        assert result.golden.upcast
        assert result.target is not None
        assert result.target.precision in ("fp16", "bf16")


def quantised_model() -> onnx.ModelProto:
    """Quantise, dequantise, MatMul, Tanh, twice."""
    nodes, x = [], "x"
    weights: dict[str, Array] = {"scale": np.array(0.02, np.float32), "zero": np.array(0, np.int8)}
    for k in range(2):
        weights[f"w{k}"] = normal(10 + k, 24, 24, scale=0.2)
        nodes += [
            node("QuantizeLinear", f"{x} scale zero", f"q{k}"),
            node("DequantizeLinear", f"q{k} scale zero", f"d{k}"),
            node("MatMul", f"d{k} w{k}", f"m{k}"),
            node("Tanh", f"m{k}", f"t{k}"),
        ]
        x = f"t{k}"
    return model_of(nodes, {"x": (8, 24)}, weights=weights)


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [("q0", lambda q: q + 1), ("d1", scaled(1.1)), ("m0", scaled(1.1)), ("t1", channel(1, -1.0))],
    ids=["q0", "d1", "m0", "t1"],
)
def test_a_model_that_holds_its_quantisation_is_judged_at_float_precision(tensor: str, fault: Callable[[Array], Array]) -> None:
    for result in both_ways(quantised_model(), ROWS, tensor, fault):
        assert result.target is not None
        assert result.target.precision == "fp32"
