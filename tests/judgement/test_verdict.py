"""The table of verdicts: one row a test, and exactly one verdict for whatever was found."""

from __future__ import annotations

from itertools import product

import pytest

from bisect_align.judgement.verdict import Facts, verdict
from bisect_align.result.result import Verdict

# First row that fits; what each row needs alone.
TABLE = [
    (Verdict.INPUT_MISMATCH, {"inputs_differ": True}),
    (Verdict.GOLDEN_SUSPECT, {"golden_suspect": True}),
    (Verdict.FAULT, {"convicted": 1}),
    (Verdict.DUMP_SUSPECT, {"suspected_entries": 1}),
    (Verdict.UNDECIDED, {"all_judged": False}),
    (Verdict.ACCUMULATION, {"beyond": True}),
    (Verdict.ALIGNED, {}),
]
FACTS = {
    "inputs_differ": (False, True),
    "golden_suspect": (False, True),
    "convicted": (0, 1, 7),
    "suspected_entries": (0, 1, 7),
    "beyond": (False, True),
    "all_judged": (True, False),
}
EVERY = [dict(zip(FACTS, values, strict=True)) for values in product(*FACTS.values())]


def of(**facts: int) -> Verdict:
    return verdict(Facts(**facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(("expected", "facts"), TABLE, ids=lambda x: str(x) if isinstance(x, Verdict) else "")
def test_each_row_alone(expected: Verdict, facts: dict[str, int]) -> None:
    assert of(**facts) is expected


def test_every_verdict_is_a_row() -> None:
    assert {row for row, _ in TABLE} == set(Verdict)


@pytest.mark.parametrize("place", range(len(TABLE)))
def test_a_row_goes_before_all_that_follow(place: int) -> None:
    expected, facts = TABLE[place]
    below = {name: value for _, more in TABLE[place + 1 :] for name, value in more.items()}
    assert of(**{**below, **facts}) is expected


def test_exactly_one_verdict_for_every_combination_and_precedence_holds() -> None:
    for facts in EVERY:
        holds = [name for name, needed in TABLE if all(bool(facts[k]) == bool(v) for k, v in needed.items())]
        assert of(**facts) is holds[0], facts


def test_aligned_means_that_nothing_was_found_and_everything_judged() -> None:
    assert [f for f in EVERY if of(**f) is Verdict.ALIGNED] == [
        {
            "inputs_differ": False,
            "golden_suspect": False,
            "convicted": 0,
            "suspected_entries": 0,
            "beyond": False,
            "all_judged": True,
        }
    ]


@pytest.mark.parametrize("name", ["aligned", "accumulation"])
def test_what_was_not_judged_is_never_called_clean(name: str) -> None:
    assert all(f["all_judged"] and not f["convicted"] for f in EVERY if of(**f).value == name)


def test_more_evidence_of_the_same_kind_changes_nothing() -> None:
    for facts in EVERY:
        if facts["convicted"] or facts["suspected_entries"]:
            fewer = {k: min(v, 1) if k in ("convicted", "suspected_entries") else v for k, v in facts.items()}
            assert of(**facts) is of(**fewer)
