"""Did the target run on the inputs given? Asked of the dump's copies of them, else of what its first tensors follow from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError
from bisect_align.judgement.conviction import Court, Finding, Ruling
from bisect_align.judgement.input_relations import between
from bisect_align.judgement.judge import Judged, sample
from bisect_align.judgement.other_input import other_input
from bisect_align.judgement.precision import grid_step
from bisect_align.matching.claims import Claims, Rule
from bisect_align.matching.fit import LOOSEST, Votes, fit, read
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.result.result import Figures, Kind

Array: TypeAlias = NDArray[Any]

# An input copy may have gone through bfloat16 (8 bits of mantissa) or a text of six decimals on its way.
STORED_RELATIVE, STORED_ABSOLUTE = 2.0**-8, 1e-6
MUCH = 0.1  # what another form of the input may leave of an error that noise might explain as well
READERS = 16  # regions that read the input, asked whether they follow from it in another form


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The dump's own copy of a graph input against the input given; differs: by more than storing it explains. relation: what the copy
    is of the input given, behind its name ("with its channels reversed"), where that is known."""

    tensor: str
    entry: str
    figures: Figures
    differs: bool
    relation: str = ""


@dataclass(frozen=True, slots=True)
class WrongInput:
    """The target's value of `first` follows from graph input `tensor` only in another form (`relation`, behind its name).

    before, left: its error on the input given and on that form; also: how many more tensors read that input and agree.
    """

    tensor: str
    relation: str
    first: str
    before: float
    left: float
    also: int


def check_inputs(
    inputs: Mapping[str, Array], claims: Claims, entries: Mapping[str, Entry], warnings: list[str]
) -> Iterator[InputCheck]:
    """Compare the dump's own copies of the graph inputs (exact or mapped name) with the inputs given; what cannot be is a warning."""
    for one in claims.claims:
        if one.tensor not in inputs or one.rule not in (Rule.EXACT, Rule.MAP):
            continue
        given = inputs[one.tensor]
        try:
            raw = read(entries[one.entry], given.dtype, given.shape)
            got = fit(raw, given, Votes(), LOOSEST)
        except DumpError as trouble:
            warnings.append(f"the dump's copy of input {one.tensor!r} is not compared: {trouble}")
            continue
        if got is None:
            warnings.append(
                f"the dump's copy of input {one.tensor!r} has shape {raw.shape}, the input {given.shape}: not compared"
            )
            continue
        figures = measure(given, got.values)
        if stored(given, got.values, clips=True):
            yield InputCheck(one.tensor, one.entry, figures, False)
        else:
            yield InputCheck(one.tensor, one.entry, figures, True, between(given, got.values, stored))


def stored(given: Array, copy: Array, *, clips: bool = False) -> bool:
    """True where storing the values, in half a format or by steps, explains all that the copy differs by. clips: at the ends of the
    range of its steps too."""
    if not is_float(given.dtype):
        return np.array_equal(given, copy)
    x, y = given.astype(np.float64), copy.astype(np.float64)
    step = grid_step(y) or 0.0
    allowed = STORED_RELATIVE * np.abs(x) + STORED_ABSOLUTE + 0.51 * step
    inside = np.clip(x, y.min(), y.max()) if step and clips else x
    with np.errstate(invalid="ignore"):
        off = np.abs(inside - y) > allowed
    off |= np.isfinite(x) != np.isfinite(y)
    return not off.any()


def wrong_input(
    court: Court, rulings: Mapping[str, Ruling], bad: Collection[str], unseen: Mapping[str, Array]
) -> WrongInput | None:
    """The input of which the first regions at fault, or `bad` against the golden, show that the target had it in another form.

    unseen: the inputs given that the dump holds no copy of. Every region that reads the input must follow from that form: where one
    contradicts, the operators are at fault. A region that noise may explain must follow much better than from the input given.
    """
    judge = court.judge
    for name in unseen:
        readers = [t for t in court.graph.order if name in judge.region(t).boundary]
        first = next((r for t in readers if (r := rulings.get(t)) is not None and _doubtful(r, bad)), None)
        if first is None:
            continue
        found = other_input(
            judge.bench,
            first.judged.region,
            court.fed(first.tensor, first.replaced),
            name,
            judge.observed.value(first.tensor),
            precision=judge.precision,
            expected=first.judged.score.expected,
        )
        if found is None or (first.finding is not Finding.FAULT and found.left > MUCH * found.before):
            continue
        if all(_follows(court, t, name, found.relation.values) for t in sample(readers, READERS) if t != first.tensor):
            return WrongInput(name, found.relation.text, first.tensor, found.before, found.left, len(readers) - 1)
    return None


def _doubtful(ruling: Ruling, bad: Collection[str]) -> bool:
    if ruling.finding in (Finding.FILE, Finding.NAME, Finding.ABSORBED) or ruling.judged.score.kind is Kind.WRONG_SHAPE:
        return False
    return ruling.finding is Finding.FAULT or ruling.tensor in bad


def _follows(court: Court, tensor: str, name: str, values: Array) -> bool:
    judged = court.judge.judge(tensor)
    return not Judged(judged.region, court.judge.retry(tensor, override={name: values}), judged.factor).convicted
