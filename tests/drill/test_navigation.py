"""Positions and steps: pure laws, on terrains with and without a graph."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from drill_cases import terrain_of
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_results import anything, fault
from tiny_target import mixed

from bisect_align.drill import navigation as step
from bisect_align.drill.navigation import Learnt, Position, Side, Sort
from bisect_align.drill.saved import FILE, Shelf, keep, resume
from bisect_align.drill.terrain import Terrain, start
from bisect_align.errors import UsageError
from bisect_align.model.graph import graph_of
from bisect_align.result.result import Result, State

STATES = {"g0": State.GOOD, "m1": State.GOOD, "b1": State.BAD, "t1": State.BAD, "g1": State.BAD, "m2": State.BAD}
NAMES = graph_of(mixed(3)).tensors
positions = st.builds(
    Position,
    tensor=st.sampled_from(NAMES),
    trail=st.lists(st.sampled_from(NAMES), max_size=3).map(tuple),
    reach=st.integers(0, 3),
    marks=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([State.GOOD, State.BAD])),
    learnt=st.dictionaries(
        st.sampled_from(NAMES), st.builds(Learnt, st.sampled_from(State), st.just("r"), st.none() | st.floats(0, 9))
    ),
    query=st.sampled_from(["", "m", "op:tanh", "bad", "g good"]),
    sort=st.sampled_from(Sort),
    anchor=st.sampled_from(["", *NAMES]),
    side=st.sampled_from(Side),
    element=st.none() | st.tuples(st.integers(0, 7), st.integers(0, 23)),
    turn=st.integers(0, 2),
)
MOVES = {
    "up": step.up,
    "down": step.down,
    "first": step.first_bad,
    "worst": step.worst,
    "next": step.following,
    "widen": step.widen,
    "back": lambda position, terrain: step.back(position),
    "narrow": lambda position, terrain: step.narrow(position),
}


@given(positions, st.lists(st.sampled_from(sorted(MOVES)), max_size=12), st.booleans())
def test_every_step_leads_to_a_place_or_says_why_not(position: Position, moves: list[str], graph: bool) -> None:
    terrain = terrain_of(STATES)
    terrain = terrain if graph else Terrain(terrain.result)
    for move in moves:
        there = position
        with contextlib.suppress(UsageError):
            there = MOVES[move](position, terrain)
        assert terrain.knows(there.tensor)
        assert there.reach >= 0
        assert len(there.trail) <= step.TRAIL
        assert (there.marks, there.learnt) == (position.marks, position.learnt)
        if there.tensor != position.tensor and move != "back":
            assert step.back(there).tensor == position.tensor
        position = there


@given(positions, st.sampled_from(NAMES))
def test_going_and_coming_back(position: Position, tensor: str) -> None:
    terrain = terrain_of(STATES)
    there = step.go(position, terrain, tensor)
    assert there.tensor == tensor
    if tensor != position.tensor:
        assert step.back(there) == replace(position, reach=0, element=None, turn=0)


@given(positions)
def test_up_undoes_down_along_a_chain(position: Position) -> None:
    terrain = terrain_of(STATES)
    if position.tensor != NAMES[-1]:
        assert step.up(step.down(position, terrain), terrain).tensor == position.tensor


@given(positions)
def test_hand_over_search_over_result(position: Position) -> None:
    terrain = terrain_of(STATES)
    for name, row in terrain.rows.items():
        learnt = position.learnt[name].state if name in position.learnt else row.state
        assert step.state(position, terrain, name) is position.marks.get(name, learnt)


@given(positions)
def test_the_table_is_a_filter_in_the_order_asked_for(position: Position) -> None:
    terrain = terrain_of(STATES)
    found = step.listed(position, terrain)
    assert len(set(found)) == len(found)
    everything = step.listed(replace(position, query=""), terrain)
    assert [name for name in everything if name in found] == list(found)
    assert set(everything) == set(terrain.rows)
    if position.query == "bad":
        assert set(found) == set(step.bad(position, terrain))
    if position.query == "op:tanh":
        assert set(found) == {"t0", "t1", "t2"}


@given(positions)
def test_what_is_kept_is_what_comes_back(tmp_path_factory: pytest.TempPathFactory, position: Position) -> None:
    place = Shelf(tmp_path_factory.mktemp("drill") / FILE, "a" * 64)
    assert resume(place) == (None, "")
    assert keep(place, position) == ""
    assert resume(place) == (position, "")
    kept, why = resume(replace(place, digest="b" * 64))
    assert kept is None
    assert "another result" in why


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"schema": "x"}', b"[]", b'{"schema":"bisect-align/drill/0"}'])
def test_a_damaged_state_is_said_and_not_used(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("drill") / FILE
    file.write_bytes(content)
    kept, why = resume(Shelf(file, "a"))
    assert kept is None
    assert "is not used" in why


def test_a_place_that_cannot_be_written_is_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("drill") / "gone"
    assert "not kept" in keep(Shelf(folder / FILE, "a"), Position("g0"))


def test_a_region_is_widened_by_generations() -> None:
    terrain = terrain_of(STATES, missing=("m1", "b1"))
    here = Position("t1")
    assert terrain.above("t1") == ("g0",)
    assert [n.op for n in terrain.nodes("t1")] == ["MatMul", "Add", "Tanh"]
    wider = step.widen(here, terrain)
    assert terrain.above("t1", wider.reach) == ("t0",)
    assert len(terrain.nodes("t1", wider.reach)) == 4
    assert step.narrow(wider) == here
    with pytest.raises(UsageError, match="narrow"):
        step.narrow(here)
    while True:
        try:
            wider = step.widen(wider, terrain)
        except UsageError:
            break
    assert terrain.above("t1", wider.reach) == ("x",)


def test_neighbours_skip_what_was_not_dumped_and_reach_the_inputs() -> None:
    terrain = terrain_of({}, missing=("m0", "b0", "g0"))
    assert terrain.above("t0") == ("x",)
    assert terrain.below("t0") == ("m1",)
    assert terrain.below("x") == ("t0",)
    assert terrain.above("x") == ()
    assert terrain.above("b0") == ("x",)
    assert terrain.ancestors("t1") == ("b1", "m1", "t0")


def test_without_the_graph_the_result_still_names_neighbours() -> None:
    terrain = Terrain(fault())
    culprit = "/smooth/AveragePool_output_0"
    assert start(terrain) == culprit
    assert terrain.above(culprit) == ("/r2/Relu_output_0",)
    assert terrain.below("/r2/Relu_output_0") == (culprit,)
    assert terrain.nodes(culprit)[0].op == "AveragePool"
    assert terrain.stops == (culprit,)


def test_marks_are_set_taken_away_and_refused_where_nothing_was_dumped() -> None:
    terrain = terrain_of(STATES, missing=("t0",))
    marked = step.mark(Position("g0"), terrain, "b1", State.GOOD)
    assert step.state(marked, terrain, "b1") is State.GOOD
    assert step.mark(marked, terrain, "b1", None) == Position("g0")
    with pytest.raises(UsageError, match="not in the dump"):
        step.mark(marked, terrain, "t0", State.BAD)


@settings(max_examples=25)
@given(anything(Result))
def test_any_result_is_a_terrain(result: Result) -> None:
    terrain = Terrain(result)
    for name in terrain.places:
        position = Position(name)
        assert all(terrain.knows(n) for n in (*terrain.above(name), *terrain.below(name)))
        assert step.listed(position, terrain) is not None
    assert start(terrain) == "" or terrain.knows(start(terrain))
