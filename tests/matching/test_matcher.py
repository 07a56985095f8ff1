"""What matching promises: names are checked by value, layouts repaired, faults left where they are, doubt refused with a reason."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_target import (
    Fault,
    border,
    channel,
    convolutional,
    entry,
    mixed,
    model_of,
    node,
    normal,
    one_element,
    run_target,
    scaled,
    store,
)

from bisect_align.dumps.entry import Array, Entry, Quant, Role
from bisect_align.golden.segments import SegmentEngine
from bisect_align.matching.claims import claim
from bisect_align.matching.match import Matched
from bisect_align.matching.match import match as match_dump
from bisect_align.matching.matcher import Matcher
from bisect_align.matching.observations import Observations, Status
from bisect_align.model.graph import graph_of

RUNS = ["fp32", "fp16", "bf16", "int8"]
CONV, IMAGE = convolutional(), {"x": normal(51, 1, 3, 10, 8)}
NET, ROWS = mixed(3), {"x": normal(52, 8, 24)}
FAULTS: dict[str, Fault] = {
    "scale": scaled(2.0),
    "sign": scaled(-1.0),
    "channel": channel(1, -4.0),
    "element": one_element(60.0),
    "border": border(-6.0),
    "stale": lambda y: normal(53, *y.shape),
    "NaN": lambda y: np.where(np.arange(y.size).reshape(y.shape) == 5, np.nan, y),
}


@dataclass(frozen=True)
class Done:
    """A match and what it looked at."""

    found: Matched
    observations: Observations
    engine: SegmentEngine
    tensors: tuple[str, ...]

    def value(self, tensor: str) -> Array:
        return self.observations.value(tensor)

    def homes(self) -> dict[str, str]:
        """Tensor -> its entry."""
        return {t: o.claim.entry for t, o in self.found.placed.items()}

    def of(self, status: Status) -> list[str]:
        return [t for t in self.tensors if t in self.found.placed and self.found.placed[t].status is status]


def match(
    model: onnx.ModelProto, inputs: Mapping[str, Array], entries: Sequence[Entry], map: Mapping[str, str] | None = None
) -> Done:
    graph = graph_of(model)
    engine = SegmentEngine(graph)
    matcher = Matcher(graph, engine, inputs, entries, claim(entries, graph, map))
    found = match_dump(matcher)
    return Done(found, matcher.observations, engine, graph.tensors)


def entries_of(values: Mapping[str, Array], only: Collection[str] | None = None) -> list[Entry]:
    return [entry(name, value) for name, value in values.items() if name != "x" and (only is None or name in only)]


@cache
def healthy(net: str, precision: str) -> dict[str, Array]:
    return run_target(*((NET, ROWS) if net == "mixed" else (CONV, IMAGE)), precision)


def same(left: Array, right: Array) -> bool:
    return left.shape == right.shape and np.array_equal(left, right, equal_nan=True)


# ---- names that hold -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", ["exact", *RUNS])
@pytest.mark.parametrize("net", ["mixed", "convolutional"])
def test_a_healthy_run_with_exact_names_is_all_named(net: str, precision: str) -> None:
    values = healthy(net, precision)
    done = match(NET if net == "mixed" else CONV, ROWS if net == "mixed" else IMAGE, entries_of(values))
    assert done.of(Status.NAMED) == list(done.tensors)
    assert done.homes() == {t: t for t in done.tensors}
    assert (done.found.aliases, done.found.dropped, done.found.unknown, done.found.twins) == ({}, {}, {}, {})
    assert all(same(done.value(t), values[t]) for t in done.tensors)


@given(st.sampled_from(["exact", *RUNS]), st.sets(st.sampled_from([f"{k}{i}" for i in range(3) for k in "mbtg"]), min_size=1))
@settings(max_examples=30, deadline=None)
def test_a_healthy_dump_of_any_density_is_named_where_it_says(precision: str, only: set[str]) -> None:
    values = healthy("mixed", precision)
    done = match(NET, ROWS, entries_of(values, only))
    assert done.homes() == {t: t for t in only}
    assert not done.of(Status.UNSUPPORTED)
    assert all(same(done.value(t), values[t]) for t in only)


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_order_of_files_does_not_matter(random: Any) -> None:
    values = {**healthy("convolutional", "fp16")}
    values["c0"] = values["r0"]
    entries = entries_of(values, {"c0", "c1", "r1", "p"})
    shuffled = list(entries)
    random.shuffle(shuffled)
    assert match(CONV, IMAGE, shuffled).homes() == match(CONV, IMAGE, entries).homes()


def test_matching_reads_what_it_needs_and_passes_few_times_where_names_hold() -> None:
    loads: list[str] = []
    values = healthy("mixed", "fp16")
    done = match(NET, ROWS, [entry(n, v, loads=loads) for n, v in values.items() if n != "x"])
    assert done.engine.counters.local_passes <= 3
    assert done.engine.counters.node_runs <= 3 * len(done.tensors)
    assert all(loads.count(n) <= 3 for n in done.tensors)


def test_the_map_goes_before_every_name() -> None:
    values = healthy("mixed", "fp16")
    entries = [entry("g0" if n == "odd" else n, v) for n, v in {"odd": values["m1"], "b1": values["b1"]}.items()]
    done = match(NET, ROWS, entries, {"g0": "m1"})
    assert done.homes() == {"m1": "g0", "b1": "b1"}


# ---- fused names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", RUNS)
def test_entries_named_after_a_fused_predecessor_are_aliases_of_what_they_hold(precision: str) -> None:
    """A compiler folds Conv, BatchNormalization and Relu into one kernel and calls the result after the Conv."""
    values = healthy("convolutional", precision)
    dump = {"c0": values["r0"], "c1": values["r1"], "p": values["p"]}
    done = match(CONV, IMAGE, entries_of(dump))
    assert done.homes() == {"r0": "c0", "r1": "c1", "p": "p"}
    assert done.found.aliases == {"c0": ("c0", "r0"), "c1": ("c1", "r1")}
    assert same(done.value("r0"), values["r0"])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_entries_named_after_the_last_of_a_chain_may_hold_an_earlier_value(precision: str) -> None:
    """The value before the clamp under the name of the clamp."""
    values = healthy("convolutional", precision)
    dump = {"r0": values["n0"], "r1": values["n1"], "p": values["p"]}
    done = match(CONV, IMAGE, entries_of(dump))
    assert done.homes() == {"n0": "r0", "n1": "r1", "p": "p"}
    assert same(done.value("n1"), values["n1"])


def test_names_and_aliases_may_stand_side_by_side() -> None:
    values = healthy("convolutional", "fp16")
    done = match(CONV, IMAGE, entries_of({"c0": values["c0"], "c1": values["r1"], "p": values["p"]}))
    assert done.homes() == {"c0": "c0", "r1": "c1", "p": "p"}


def test_a_tensor_that_has_an_entry_of_its_own_takes_no_alias() -> None:
    values = healthy("convolutional", "fp16")
    done = match(CONV, IMAGE, entries_of({**values, "c0": values["r0"]}))
    assert done.homes()["r0"] == "r0"
    assert done.homes().get("c0") in (None, "c0")


# ---- layouts ---------------------------------------------------------------------------------------------------------------
def channels_last(y: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(y, 1, -1))


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize(
    "laid",
    [channels_last, lambda y: channels_last(y)[0], lambda y: y[0], lambda y: y.reshape(y.shape[0], y.shape[1], -1)],
    ids=["NHWC", "HWC", "CHW", "N C HW"],
)
def test_a_dump_in_another_layout_is_repaired(laid: Callable[[Array], Array], precision: str) -> None:
    values = healthy("convolutional", precision)
    done = match(CONV, IMAGE, entries_of({n: laid(v) for n, v in values.items()}))
    assert done.homes() == {t: t for t in done.tensors}
    assert not done.of(Status.UNSUPPORTED)
    assert all(same(done.value(t), values[t]) for t in done.tensors)


def square() -> onnx.ModelProto:
    nodes, x = [], "x"
    for k in range(5):
        nodes += [node("MatMul", f"{x} w{k}", f"m{k}"), node("Tanh", f"m{k}", f"t{k}")]
        x = f"t{k}"
    return model_of(nodes, {"x": (12, 12)}, weights={f"w{k}": normal(60 + k, 12, 12, scale=0.3) for k in range(5)})


SQUARE, SQUARED = square(), {"x": normal(66, 12, 12)}


@pytest.mark.parametrize("propagated", [True, False])
@pytest.mark.parametrize("precision", RUNS)
def test_a_transposed_square_tensor_is_a_fault_and_not_repaired_away(precision: str, propagated: bool) -> None:
    wrong: Fault = lambda y: y.T.copy()  # noqa: E731
    values = run_target(SQUARE, SQUARED, precision, {"m2": wrong} if propagated else {})
    if not propagated:
        values = {**values, "m2": values["m2"].T}
    done = match(SQUARE, SQUARED, entries_of(values))
    assert done.homes()["m2"] == "m2"
    assert same(done.value("m2"), values["m2"])
    assert "m2" in done.of(Status.UNSUPPORTED)


# ---- faults stay -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("tensor", ["m1", "b1", "g0"])
def test_a_faulty_entry_that_was_consumed_stays_at_its_tensor(tensor: str, fault: str, precision: str) -> None:
    values = run_target(NET, ROWS, precision, {tensor: FAULTS[fault]})
    done = match(NET, ROWS, entries_of(values))
    assert done.homes() == {t: t for t in done.tensors}
    assert done.of(Status.UNSUPPORTED) == [tensor]
    assert same(done.value(tensor), values[tensor])


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("fault", ["scale", "sign", "stale", "NaN"])
def test_one_wrong_file_stays_and_moves_no_neighbour(fault: str, precision: str) -> None:
    values = dict(run_target(NET, ROWS, precision))
    values["b1"] = np.asarray(FAULTS[fault](values["b1"].copy()), np.float32)
    done = match(NET, ROWS, entries_of(values))
    assert done.homes() == {t: t for t in done.tensors}
    assert "b1" in done.of(Status.UNSUPPORTED)


def test_a_fault_among_aliases_stays_where_the_habit_of_the_dump_puts_it() -> None:
    """Every Conv's file holds the value after its Relu; the faulty one too."""
    nodes, weights, x = [], {}, "x"
    for k in range(5):
        weights[f"w{k}"] = normal(70 + k, 4, 4, 3, 3, scale=0.3)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1, 1, 1]), node("Relu", f"c{k}", f"r{k}")]
        x = f"r{k}"
    model, inputs = model_of(nodes, {"x": (1, 4, 9, 8)}, weights=weights), {"x": normal(79, 1, 4, 9, 8)}
    values = run_target(model, inputs, "fp16", {"r2": channel(1, -3.0)})
    done = match(model, inputs, entries_of({f"c{k}": values[f"r{k}"] for k in range(5)}))
    assert done.homes() == {f"r{k}": f"c{k}" for k in range(5)}
    assert same(done.value("r2"), values["r2"])


@pytest.mark.parametrize("kept", [0.3, 0.5])
def test_the_habit_also_moves_a_faulty_entry_that_still_fits_its_name_loosely(kept: float) -> None:
    """int8: every file holds the scaled value; one that lost a part of a channel fits both its name and its place, badly."""
    nodes, weights, x = [], {}, "x"
    for k in range(5):
        weights[f"w{k}"] = normal(70 + k, 6, 6, 3, 3, scale=0.3)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1, 1, 1]), node("Mul", f"c{k} f", f"b{k}")]
        nodes += [node("HardSwish", f"b{k}", f"h{k}")]
        x = f"h{k}"
    weights["f"] = np.float32(1.2)
    model, inputs = model_of(nodes, {"x": (1, 6, 9, 8)}, weights=weights), {"x": normal(79, 1, 6, 9, 8)}
    values = run_target(model, inputs, "int8", {"b2": channel(1, kept)})
    shown = {f"c{k}": values[f"b{k}"] for k in range(5)} | {f"h{k}": values[f"h{k}"] for k in range(5)}
    done = match(model, inputs, entries_of(shown))
    assert {t: e for t, e in done.homes().items() if t[0] != "h"} == {f"b{k}": f"c{k}" for k in range(5)}


def test_an_operator_that_did_nothing_is_not_laundered() -> None:
    """Its file holds its input's value: wherever that is put, the tensor is not taken for healthy."""
    values = run_target(NET, ROWS, "fp16")
    skipped = run_target(NET, ROWS, "fp16", {"t1": lambda _: values["b1"]})
    done = match(NET, ROWS, entries_of(skipped))
    assert "t1" not in done.of(Status.NAMED)
    assert done.homes()["b1"] == "b1"


@pytest.mark.parametrize("lost", [0.1, 0.2, 0.3])
def test_an_entry_that_the_next_one_was_computed_from_stays_at_its_name_in_a_loose_dump_too(lost: float) -> None:
    """int8: a sum whose other operand was lost equals the tensor above it, and what follows fits either; one of them clearly better."""
    nodes, weights, x = [], {"side": normal(86, 24, scale=lost)}, "x"
    for k in range(4):
        nodes += [node("MatMul", f"{x} w{k}", f"p{k}"), node("Add", f"p{k} side", f"s{k}"), node("MatMul", f"s{k} v{k}", f"y{k}")]
        weights |= {f"{w}{k}": normal(seed + k, 24, 24, scale=24**-0.5) for w, seed in (("w", 60), ("v", 70))}
        x = f"y{k}"
    model = model_of(nodes, {"x": (8, 24)}, weights=weights)
    values = run_target(model, ROWS, "int8", {"s1": lambda y: y - weights["side"]})
    done = match(model, ROWS, entries_of(values, {f"{t}{k}" for t in "sy" for k in range(4)}))
    assert done.homes() == {f"{t}{k}": f"{t}{k}" for t in "sy" for k in range(4)}
    assert same(done.value("s1"), values["s1"])


# ---- shapes ----------------------------------------------------------------------------------------------------------------
def test_a_wrong_shape_under_a_strong_name_stays_where_names_hold() -> None:
    values = dict(run_target(NET, ROWS, "fp16"))
    for tensor in ("m2", "b2", "t2", "g2"):
        values[tensor] = values[tensor][:, :20]
    done = match(NET, ROWS, entries_of(values))
    assert done.found.placed["m2"].status is Status.WRONG_SHAPE
    assert same(done.value("m2"), values["m2"])
    above = done.tensors[: done.tensors.index("m2")]
    assert {t: e for t, e in done.homes().items() if t in above} == {t: t for t in above}
    assert all(t in done.found.unknown for t in done.tensors if t not in done.found.placed)


def test_a_consumer_that_can_run_on_the_wrong_shape_is_matched_against_what_it_read() -> None:
    nodes = [
        node("Tanh", "x", "a"),
        node("Mul", "a a", "b"),
        node("Conv", "b w", "c"),
        node("Relu", "c", "r"),
        node("Conv", "r v", "d"),
        node("Tanh", "d", "y"),
    ]
    weights = {"w": normal(84, 4, 3, 3, 3, scale=0.3), "v": normal(85, 4, 4, 3, 3, scale=0.3)}
    model = model_of(nodes, {"x": (1, 3, 10, 8)}, weights=weights)
    right, wrong = run_target(model, IMAGE, "fp16"), run_target(model, {"x": IMAGE["x"][..., 1:-1, 1:-1]}, "fp16")
    done = match(model, IMAGE, entries_of({**right, **{n: wrong[n] for n in "crdy"}}))
    assert [(t, done.found.placed[t].status) for t in "crdy"] == [
        ("c", Status.WRONG_SHAPE),
        ("r", Status.NAMED),
        ("d", Status.NAMED),
        ("y", Status.NAMED),
    ]


def test_a_wrong_shape_under_a_weak_name_is_refused_with_both_shapes() -> None:
    values = dict(run_target(NET, ROWS, "fp16"))
    entries = [entry("m1_reordered" if n == "m1" else n, v[:, :20] if n == "m1" else v) for n, v in values.items() if n != "x"]
    done = match(NET, ROWS, entries)
    assert "m1" not in done.found.placed
    assert "(8, 20)" in done.found.unknown["m1"]
    assert "(8, 24)" in done.found.unknown["m1"]


# ---- refused with a reason -------------------------------------------------------------------------------------------------
def test_a_value_that_fits_nothing_under_a_weak_name_is_dropped_with_a_reason() -> None:
    values = run_target(NET, ROWS, "fp16")
    entries = [entry(n, v) for n, v in values.items() if n not in ("x", "b1")]
    entries.append(entry("b1_workspace", normal(80, 8, 24)))
    done = match(NET, ROWS, entries)
    assert "b1" not in done.found.placed
    assert "b1" in done.found.dropped["b1_workspace"]
    assert not done.of(Status.UNSUPPORTED)


def test_a_weak_name_whose_value_was_consumed_is_kept() -> None:
    values = run_target(NET, ROWS, "fp16", {"b1": scaled(2.0)})
    entries = [entry("b1_out" if n == "b1" else n, v) for n, v in values.items() if n != "x"]
    done = match(NET, ROWS, entries)
    assert done.homes() == {t: "b1_out" if t == "b1" else t for t in done.tensors}


def test_a_spelling_that_two_tensors_share_is_put_at_neither_by_name() -> None:
    """`a/b` and `a:b` are both a_b on a disk."""
    nodes = [node("Tanh", "x", "a/b"), node("MatMul", "a/b w", "a:b"), node("Tanh", "a:b", "y")]
    model = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(81, 24, 24, scale=0.3)})
    values = run_target(model, ROWS, "fp16")
    for held in ("a/b", "a:b"):
        done = match(model, ROWS, [entry("a_b", values[held]), entry("y", values["y"])])
        assert {t for t, e in done.homes().items() if e == "a_b"} <= {held}
    done = match(model, ROWS, [entry("a_b", normal(82, 8, 24)), entry("y", values["y"])])
    assert "a_b" not in done.homes().values()


@pytest.mark.parametrize("order", [0, 1])
def test_two_entries_for_one_tensor_that_differ_are_never_resolved_by_the_better_one(order: int) -> None:
    values = run_target(NET, ROWS, "fp16")
    pair = [entry("b1", values["b1"], key="one/b1"), entry("b1", normal(83, 8, 24), key="two/b1")]
    entries = [*entries_of(values, set(values) - {"b1"}), *(pair if order else pair[::-1])]
    done = match(NET, ROWS, entries)
    assert "b1" not in done.found.placed
    assert "one/b1" in done.found.unknown["b1"]
    assert "two/b1" in done.found.unknown["b1"]


def test_the_vendors_own_reference_is_never_the_target() -> None:
    values = run_target(NET, ROWS, "fp16", {"b1": scaled(2.0)})
    right = run_target(NET, ROWS)
    references = [entry(n, v, key=f"golden/{n}", role=Role.REFERENCE) for n, v in right.items() if n != "x"]
    done = match(NET, ROWS, [*references, *entries_of(values)])
    assert done.homes() == {t: t for t in done.tensors}
    assert same(done.value("b1"), values["b1"])


def test_codes_without_scales_are_refused_with_a_reason_and_the_rest_goes_on() -> None:
    values = dict(run_target(NET, ROWS, "fp16"))
    codes = np.rint(values["b1"] * 20).astype(np.int8)
    plain = match(NET, ROWS, entries_of({**values, "b1": codes}))
    assert "b1" not in plain.found.placed
    assert "int8" in plain.found.unknown["b1"]
    assert "scale" in plain.found.unknown["b1"]
    assert len(plain.found.placed) == len(plain.tensors) - 1
    quant = Quant(np.array(0.05), np.array(0))
    entries = [entry(n, codes if n == "b1" else v, quant=quant if n == "b1" else None) for n, v in values.items() if n != "x"]
    scaled_codes = match(NET, ROWS, entries)
    assert scaled_codes.homes()["b1"] == "b1"
    assert same(scaled_codes.value("b1"), codes.astype(np.float32) * np.float32(0.05))


def test_constants_are_placed_by_name_only_and_prove_nothing() -> None:
    nodes = [node("Mul", "x zero", "z"), node("Add", "z x", "y"), node("Tanh", "y", "t")]
    model = model_of(nodes, {"x": (8, 24)}, outputs=("t",), weights={"zero": np.array(0, np.float32)})
    done = match(model, ROWS, entries_of(run_target(model, ROWS)))
    assert done.of(Status.NAME_ONLY) == ["z"]
    assert done.of(Status.NAMED) == ["y", "t"]


def test_what_steers_a_shape_is_not_compared() -> None:
    """A wrong shape fed into Reshape would break what follows instead of showing it."""
    nodes = [node("Shape", "x", "s"), node("Tanh", "x", "a"), node("Reshape", "a s", "y")]
    model = model_of(nodes, {"x": (8, 24)}, outputs=("y",))
    values = {**run_target(model, ROWS), "s": np.array([4, 48])}
    done = match(model, ROWS, entries_of(values))
    assert "s" not in done.found.placed
    assert "shape" in done.found.unknown["s"]
    assert done.of(Status.NAMED) == ["a", "y"]


def test_integers_and_bools_are_matched_too_and_fed_to_what_follows() -> None:
    nodes = [node("ArgMax", "x", "i", axis=-1), node("GatherElements", "x i", "v", axis=-1), node("Greater", "v c", "b")]
    model = model_of(nodes, {"x": (8, 24)}, outputs=("v", "b"), weights={"c": np.array(1.7, np.float32)})
    values = run_target(model, ROWS, faults={"i": lambda i: (i + 1) % 24})
    done = match(model, ROWS, entries_of(values))
    assert done.homes() == {"i": "i", "v": "v", "b": "b"}
    assert same(done.value("i"), values["i"])
    assert done.found.placed["v"].status is not Status.UNSUPPORTED


# ---- twins -----------------------------------------------------------------------------------------------------------------
def test_of_a_pair_around_a_quantiser_the_one_is_read_that_consumers_read() -> None:
    """The value before it is quantised, and after it came back: what follows was computed from the latter."""
    before: dict[str, Array] = {}
    rng = np.random.default_rng(0)

    def quantised(name: str) -> Fault:
        def fault(y: Array) -> Array:
            before[name] = y.copy()
            return store(y, "int8", rng)

        return fault

    names = ["m0", "g0", "m1", "g1"]
    after = run_target(NET, ROWS, "exact", {n: quantised(n) for n in names})
    entries = [entry(n, before[n]) for n in names]
    entries += [entry(f"{n}_DequantizeLinear_Output", after[n]) for n in names]
    done = match(NET, ROWS, [*entries, entry("g2", after["g2"])])
    for name in names:
        assert same(done.value(name), after[name])
        assert done.homes()[name] == f"{name}_DequantizeLinear_Output"
        assert done.found.twins[name] == f"{name}_DequantizeLinear_Output"


# ---- values on demand ------------------------------------------------------------------------------------------------------
def test_observations_keep_no_more_than_their_memory() -> None:
    """Counted by what is alive: each entry hands out a fresh array."""
    values = run_target(NET, ROWS, "fp16")
    size = values["m0"].nbytes
    alive: list[weakref.ref[Array]] = []

    def fresh(one: Entry, array: Array) -> Entry:
        def reader(expect: Any) -> Array:
            made = array.copy()
            alive.append(weakref.ref(made))
            return made

        return replace(one, reader=reader)

    entries = [fresh(entry(n, v), v) for n, v in values.items() if n != "x"]
    graph = graph_of(NET)
    for room in (0, 3, 100):
        matcher = Matcher(graph, SegmentEngine(graph), ROWS, entries, claim(entries, graph), memory=room * size)
        placed = match_dump(matcher).placed
        alive.clear()
        observations = Observations(matcher.entries, ROWS, placed, room * size)
        for _ in range(2):
            for tensor in graph.tensors:
                assert same(observations.value(tensor), values[tensor])
                assert sum(ref() is not None for ref in alive) <= max(room, 1)
        assert len(alive) == (len(placed) if room == 100 else 2 * len(placed))


def test_graph_inputs_are_observed_and_others_are_not() -> None:
    done = match(NET, ROWS, entries_of(run_target(NET, ROWS), {"g2"}))
    assert "x" in done.observations
    assert "g2" in done.observations
    assert "m0" not in done.observations
    assert same(done.value("x"), ROWS["x"])
    with pytest.raises(KeyError):
        done.value("m0")


def test_the_same_dump_is_matched_the_same_way() -> None:
    values = run_target(NET, ROWS, "bf16", {"b1": scaled(2.0)})
    first, second = (match(NET, ROWS, entries_of(values)).found for _ in range(2))
    assert first.placed == second.placed
    assert (first.unknown, first.dropped, first.tolerance) == (second.unknown, second.dropped, second.tolerance)
