"""Laws of the search: certified answers on any pattern, few rounds, linear work."""

import math
import random
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bisect_align.model.observed import ObservedGraph
from bisect_align.result.result import State
from bisect_align.search import Bisection, Clean, Crossing, Missing, crossings

GOOD, BAD, UNKNOWN = State.GOOD, State.BAD, State.UNKNOWN
modest = settings(max_examples=150, deadline=None)


def observed(parents):
    """A graph of tensors t0, t1, … from lists of parent indices."""
    names = [f"t{i}" for i in range(len(parents))]
    children = {name: [] for name in names}
    for i, above in enumerate(parents):
        for parent in above:
            children[f"t{parent}"].append(f"t{i}")
    return ObservedGraph(
        tuple(names),
        {f"t{i}": tuple(f"t{p}" for p in above) for i, above in enumerate(parents)},
        {name: tuple(below) for name, below in children.items()},
    )


def chain(n):
    return observed([[i - 1] if i else [] for i in range(n)])


@st.composite
def graphs(draw, most=30):
    n = draw(st.integers(0, most))
    return observed([sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(n)])


@st.composite
def patterns(draw, states=(GOOD, BAD, UNKNOWN)):
    graph = draw(graphs())
    return graph, {name: draw(st.sampled_from(states)) for name in graph.order}


def run(graph, states, cuts=16):
    """The finished search and all that it asked, in order."""
    search, asked = Bisection(graph, cuts=cuts), []
    while question := search.ask():
        assert search.ask() == question
        assert list(question) == sorted(question, key=graph.order.index)
        asked += question
        for tensor in question:
            search.tell(tensor, states[tensor])
    return search, asked


def boundary(graph, states, tensor):
    """Nearest tensors above that are not UNKNOWN, by the definition: recursive, naive."""
    found = set()
    for parent in graph.parents[tensor]:
        found |= boundary(graph, states, parent) if states[parent] == UNKNOWN else {parent}
    return found


def ancestors(graph, tensor):
    found = set()
    for parent in graph.parents[tensor]:
        found |= {parent} | ancestors(graph, parent)
    return found


@modest
@given(patterns(), st.integers(1, 5))
def test_any_pattern_ends_in_a_certified_answer(pattern, cuts):
    graph, states = pattern
    search, asked = run(graph, states, cuts)
    assert len(asked) == len(set(asked)) <= len(graph.order)
    assert search.ask() == ()
    told = {tensor: states[tensor] for tensor in asked}
    match search.answer:
        case Crossing(tensor, above, unknown):
            assert told[tensor] == BAD
            assert set(above) == boundary(graph, states, tensor)
            assert {told[name] for name in above} <= {GOOD}
            assert {told[name] for name in unknown} <= {UNKNOWN}
            assert set(unknown) <= ancestors(graph, tensor)
            assert search.answer in crossings(graph, states)
        case Clean(good):
            assert good
            assert {told[name] for name in good} == {GOOD}
            for tensor in graph.deepest:
                assert (boundary(graph, states, tensor) if states[tensor] == UNKNOWN else {tensor}) <= set(good)
        case Missing(tensors, reason):
            assert tensors == graph.order
            assert {told[name] for name in tensors} <= {UNKNOWN}
            assert ("no tensor is observed" in reason) == (not tensors)


@modest
@given(graphs(), st.integers(1, 5))
def test_a_first_question_holds_the_deepest_tensors_and_whole_cuts(graph, cuts):
    question = set(Bisection(graph, cuts=cuts).ask())
    assert set(graph.deepest) <= question
    n = len(graph.order)
    whole = 0
    for position in range(1, n):
        before, after = graph.order[:position], graph.order[position:]
        needed = {above for tensor in after for above in graph.parents[tensor]} & set(before)
        whole += needed | (set(graph.deepest) & set(before)) <= question
    assert whole >= min(cuts, n - 1)


@modest
@given(patterns())
def test_something_deep_and_bad_always_gives_a_crossing(pattern):
    graph, states = pattern
    search, _ = run(graph, states)
    if any(states[tensor] == BAD for tensor in graph.deepest):
        assert isinstance(search.answer, Crossing)


@modest
@given(graphs(), st.integers(1, 20), st.data())
def test_a_planted_fault_is_found_exactly(graph, cuts, data):
    if not graph.order:
        return
    fault = data.draw(st.sampled_from(graph.order))
    states = {
        tensor: BAD if tensor == fault or fault in ancestors(graph, tensor) else data.draw(st.sampled_from((GOOD, GOOD, UNKNOWN)))
        for tensor in graph.order
    }
    search, _ = run(graph, states, cuts)
    assert isinstance(search.answer, Crossing)
    assert search.answer.tensor == fault
    assert crossings(graph, states) == (search.answer,)


@modest
@given(patterns())
def test_crossings_are_all_that_the_definition_gives(pattern):
    graph, states = pattern
    found = crossings(graph, states)
    expected = [
        tensor
        for tensor in graph.order
        if states[tensor] == BAD and {states[above] for above in boundary(graph, states, tensor)} <= {GOOD}
    ]
    assert [crossing.tensor for crossing in found] == expected
    for crossing in found:
        assert set(crossing.boundary) == boundary(graph, states, crossing.tensor)
        assert list(crossing.boundary) == sorted(crossing.boundary, key=graph.order.index)
    known = {tensor: state for tensor, state in states.items() if state != UNKNOWN}
    assert crossings(graph, known) == found


@modest
@given(patterns(), st.data())
def test_states_may_come_unasked_and_answers_may_stay_out(pattern, data):
    graph, states = pattern
    search = Bisection(graph, cuts=2)
    told = set()
    while question := search.ask():
        assert not told & set(question)
        some = data.draw(st.sets(st.sampled_from(question), min_size=1))
        extra = data.draw(st.sets(st.sampled_from(graph.order), max_size=2))
        for tensor in [*some, *extra]:
            search.tell(tensor, states[tensor])
            told.add(tensor)
    match search.answer:
        case Crossing(tensor, above):
            assert states[tensor] == BAD
            assert set(above) == boundary(graph, states, tensor)
            assert {states[name] for name in above} <= {GOOD}
        case Clean(good):
            assert {states[name] for name in good} == {GOOD}
        case Missing(tensors):
            assert {states[name] for name in tensors} <= {UNKNOWN}


def test_later_states_do_not_change_an_answer():
    search, _ = run(chain(5), dict.fromkeys(chain(5).order, GOOD))
    answer = search.answer
    search.tell("t2", BAD)
    assert search.ask() == ()
    assert search.answer == answer == Clean(("t4",))


def test_a_later_good_tensor_does_not_hide_the_crossing():
    graph = chain(6)
    states = dict(zip(graph.order, (GOOD, BAD, GOOD, GOOD, BAD, BAD), strict=True))
    search, _ = run(graph, states, cuts=1)
    assert search.answer in (Crossing("t1", ("t0",)), Crossing("t4", ("t3",)))
    assert [crossing.tensor for crossing in crossings(graph, states)] == ["t1", "t4"]


def test_unknown_tensors_are_contracted():
    graph = observed([[], [], [0], [1], [2, 3]])
    states = dict(zip(graph.order, (GOOD, GOOD, UNKNOWN, GOOD, BAD), strict=True))
    search, _ = run(graph, states)
    assert search.answer == Crossing("t4", ("t0", "t3"), ("t2",))


def test_what_stands_above_an_unknown_output_is_looked_at():
    graph = observed([[], [0], [0]])
    search, _ = run(graph, {"t0": BAD, "t1": GOOD, "t2": UNKNOWN})
    assert search.answer == Crossing("t0", ())


@pytest.mark.parametrize("cuts", [1, 2, 3, 16, 64])
@pytest.mark.parametrize("n", [1, 2, 16, 17, 288, 289, 290, 2000])
def test_rounds_on_chains(n, cuts):
    graph = chain(n)
    bound = next(r for r in range(20) if (cuts + 1) ** r >= n) + 1
    rng = random.Random(n)
    for fault in {0, n - 1, n // 2, *(rng.randrange(n) for _ in range(12))}:
        states = {f"t{i}": BAD if i >= fault else GOOD for i in range(n)}
        search, _ = run_fast(graph, states, cuts)
        assert search.answer.tensor == f"t{fault}"
        assert search.rounds <= bound
    for _ in range(5):
        states = {f"t{i}": rng.choice((GOOD, BAD)) for i in range(n - 1)} | {f"t{n - 1}": BAD}
        assert run_fast(graph, states, cuts)[0].rounds <= bound


def run_fast(graph, states, cuts):
    search, asked = Bisection(graph, cuts=cuts), 0
    while question := search.ask():
        asked += len(question)
        for tensor in question:
            search.tell(tensor, states[tensor])
    return search, asked


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("cuts", [1, 16])
def test_unknown_stretches_cost_few_rounds(share, cuts):
    n = 2000
    graph, rng = chain(n), random.Random(5)
    for fault in (1, 700, 1999):
        states = {f"t{i}": UNKNOWN if rng.random() < share else BAD if i >= fault else GOOD for i in range(n)}
        search, _ = run_fast(graph, states, cuts)
        assert search.rounds <= 2 * math.log2(n)
        block = {f"t{i}": UNKNOWN if fault <= i < 1900 else BAD if i >= fault else GOOD for i in range(n)}
        assert run_fast(graph, block, cuts)[0].rounds <= 2 * math.log2(n)


@pytest.mark.parametrize("width", [1, 40, 4000])
def test_work_is_linear_a_round(width):
    n = 8000
    parents = [[p for p in {i - width, i - width - 1} if p >= 0] for i in range(n)]
    graph = observed(parents)
    size = n + sum(map(len, parents))
    states = {f"t{i}": BAD if i >= n // 3 else GOOD for i in range(n)}
    search, asked = run_fast(graph, states, 16)
    assert isinstance(search.answer, Crossing)
    assert search.visits <= 4 * size * (search.rounds + 1)
    assert asked <= n


def test_shared_unknown_regions_are_walked_once():
    layers, width = 12, 30
    parents = [[] if i < width else [*range(i // width * width - width, i // width * width)] for i in range(layers * width)]
    graph = observed([*parents, [*range((layers - 1) * width, layers * width)]])
    last = layers * width
    states = {f"t{i}": GOOD if i < width else UNKNOWN if i < last else BAD for i in range(last + 1)}
    search, _ = run_fast(graph, states, 16)
    assert search.answer == crossings(graph, states)[0]
    assert len(search.answer.boundary) == width
    assert search.visits <= 4 * (sum(map(len, parents)) + width + last) * (search.rounds + 1)


@modest
@given(patterns())
@example((chain(40), dict.fromkeys(chain(40).order, BAD)))
def test_deterministic(pattern):
    first, again = run(*pattern), run(*pattern)
    assert first[1] == again[1]
    assert (first[0].answer, first[0].rounds, first[0].visits) == (again[0].answer, again[0].rounds, again[0].visits)


def test_misuse_is_refused():
    graph = chain(3)
    with pytest.raises(ValueError, match="cuts"):
        Bisection(graph, cuts=0)
    with pytest.raises(ValueError, match="topological"):
        Bisection(ObservedGraph(("b", "a"), {"a": (), "b": ("a",)}, {"a": ("b",), "b": ()}))
    with pytest.raises(KeyError):
        Bisection(graph).tell("elsewhere", GOOD)
    with pytest.raises(RuntimeError, match="not done"):
        _ = Bisection(graph).answer


def test_the_answer_is_there_without_another_question():
    search = Bisection(chain(1))
    search.tell("t0", BAD)
    assert search.answer == Crossing("t0", ())
    assert search.rounds == 0


def test_search_loads_no_arrays_and_no_models():
    code = "import sys, bisect_align.search; print(sorted({'numpy', 'onnx'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
