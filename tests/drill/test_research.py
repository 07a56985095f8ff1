"""Searching by hand ends with what the states say: an oracle walks the graph in the plain way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from drill_cases import terrain_of
from hypothesis import given
from hypothesis import strategies as st
from tiny_target import mixed

from bisect_align.drill.navigation import Learnt, Position
from bisect_align.drill.research import again, between
from bisect_align.errors import UsageError
from bisect_align.model.graph import graph_of
from bisect_align.result.result import State
from bisect_align.search.answer import Clean, Crossing

NAMES = graph_of(mixed(3)).tensors
states = st.fixed_dictionaries({name: st.sampled_from([State.GOOD, State.BAD]) for name in NAMES})
known = st.sets(st.sampled_from(NAMES))


class Oracle:
    """Tells the true states, and remembers what it was asked for."""

    def __init__(self, truth: Mapping[str, State]) -> None:
        self.truth, self.asked = truth, list[str]()

    def __call__(self, tensors: Collection[str]) -> dict[str, Learnt]:
        self.asked += tensors
        return {name: Learnt(self.truth[name]) for name in tensors}


def check(found: object, truth: Mapping[str, State]) -> None:
    """A crossing of a chain: BAD, and the tensor before it GOOD."""
    if isinstance(found, Crossing):
        assert truth[found.tensor] is State.BAD
        assert all(truth[name] is State.GOOD for name in found.boundary)
        assert found.boundary or found.tensor == NAMES[0]
    else:
        assert isinstance(found, Clean)
        assert truth[NAMES[-1]] is State.GOOD


@given(states, known)
def test_a_search_asks_only_for_what_is_not_known(truth: dict[str, State], given_: set[str]) -> None:
    oracle = Oracle(truth)
    position, found = again(Position("g0"), terrain_of({n: truth[n] for n in given_}), oracle)
    check(found, truth)
    assert not given_ & set(oracle.asked)
    assert set(position.learnt) == set(oracle.asked)
    second = Oracle(truth)
    assert again(position, terrain_of({n: truth[n] for n in given_}), second)[1] == found
    assert not second.asked


@given(states, st.dictionaries(st.sampled_from(NAMES), st.sampled_from([State.GOOD, State.BAD])))
def test_marks_win_over_states(truth: dict[str, State], marks: dict[str, State]) -> None:
    _, found = again(Position("g0", marks=marks), terrain_of(truth), Oracle(truth))
    check(found, truth | marks)


@given(states, known, st.sampled_from(range(len(NAMES) - 1)), st.data())
def test_a_cut_stays_between_its_ends(truth: dict[str, State], given_: set[str], top: int, data: st.DataObject) -> None:
    bottom = data.draw(st.sampled_from(range(top + 1, len(NAMES))))
    oracle = Oracle(truth)
    _, found = between(Position("g0"), terrain_of({n: truth[n] for n in given_}), NAMES[top], NAMES[bottom], oracle)
    assert isinstance(found, Crossing)
    assert top < NAMES.index(found.tensor) <= bottom
    check(found, truth | {NAMES[top]: State.GOOD, NAMES[bottom]: State.BAD})
    assert all(top < NAMES.index(name) < bottom for name in oracle.asked)


def test_a_cut_may_begin_at_a_graph_input() -> None:
    truth = dict.fromkeys(NAMES, State.BAD)
    _, found = between(Position("g0"), terrain_of({}), "x", "g1", Oracle(truth))
    assert found == Crossing("m0", ())


@pytest.mark.parametrize(("top", "bottom"), [("g1", "g0"), ("g0", "x"), ("t0", "g0"), ("g0", "t0"), ("g0", "g0")])
def test_a_cut_that_makes_no_sense_is_refused(top: str, bottom: str) -> None:
    with pytest.raises(UsageError):
        between(Position("g0"), terrain_of({}, missing=("t0",)), top, bottom, Oracle({}))


def test_what_cannot_be_compared_does_not_end_the_search() -> None:
    truth = dict.fromkeys(NAMES, State.BAD) | {"m0": State.GOOD, "b0": State.UNKNOWN}
    _, found = again(Position("g0"), terrain_of({}), Oracle(truth))
    assert found == Crossing("t0", ("m0",), ("b0",))
