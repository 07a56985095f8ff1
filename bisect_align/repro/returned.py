"""What a target made of single-operator cases, judged operator by operator, as the same operator in a model would be."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import BisectAlignError, DumpError, UsageError
from bisect_align.golden.segments import SegmentEngine
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.jitter import Ranges
from bisect_align.judgement.judge import CONVICT
from bisect_align.judgement.precision import FP16, INT8, LADDER, Precision, given
from bisect_align.judgement.trial import Score, try_region
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import graph_of
from bisect_align.model.load import read
from bisect_align.model.operators import DATA_SHAPED
from bisect_align.model.region import region
from bisect_align.repro.every import LAYOUT
from bisect_align.repro.folder import INDEX, SCHEMA_INDEX
from bisect_align.repro.outputs import found, returned, stored
from bisect_align.result.result import Figures
from bisect_align.session.golden import value_range
from bisect_align.session.progress import SILENT, Progress

Array: TypeAlias = NDArray[Any]

# Operators that compare values: ONNX leaves open how NaN is ordered.
_EXTREMES = ("ArgMax", "ArgMin", "Hardmax", "Max", "Min", "ReduceMax", "ReduceMin", "TopK")
_CLAMPS = ("Clip", "HardSigmoid", "HardSwish", "Relu")
ORDERING = frozenset((*_EXTREMES, *_CLAMPS, "GlobalMaxPool", "MaxPool", "MaxUnpool"))
FITS = 1.0  # median score of the real inputs below which a precision is believed


class State(StrEnum):
    """Of one output of one case under one set of inputs."""

    RIGHT = "right"
    WRONG = "wrong"
    UNREADABLE = "not readable"
    MISSING = "not returned"
    UNJUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One output. node, op: as in the model; kind: of the inputs (real, zeros, nan ...); score: as in a run, convicted above 2.

    taken: what was done to read it like the golden; file: which one is damaged."""

    case: str
    node: str
    op: str
    kind: str
    output: str
    state: State
    reason: str = ""
    score: float | None = None
    figures: Figures | None = None
    taken: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All verdicts, and the precision they were judged at, with the reason for it. unused: what else lies among the outputs."""

    precision: str
    evidence: str
    verdicts: tuple[Verdict, ...] = field(default_factory=tuple)
    unused: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Verdict, ...]:
        return self.of(State.WRONG)

    def of(self, state: State) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.state is state)

    @property
    def right(self) -> bool:
        """True where all that came back could be read, and nothing of it is wrong."""
        return not self.count(State.WRONG) and not self.count(State.UNREADABLE)

    def count(self, state: State) -> int:
        return sum(v.state is state for v in self.verdicts)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One output that came back, with all that is needed to judge it at any precision."""

    about: tuple[str, str, str, str, str]
    bench: Bench
    feeds: Mapping[str, Array]
    golden: Array
    target: Array
    taken: str

    def score(self, precision: Precision) -> Score:
        name = self.about[4]
        try:
            return try_region(self.bench, region(self.bench.graph, name, ()), self.feeds, self.target, precision)
        except BisectAlignError as error:
            return Score(None, note=str(error))


def judge_returned(folder: Path, outputs: Path, precision: str = "auto", progress: Progress = SILENT) -> Report:
    """Judge what lies in `outputs` against the cases of `folder` (see every.LAYOUT).

    precision: a name, or auto: the finest one at which the median operator is within noise on its real inputs. Raises UsageError
    where `folder` holds no cases, DumpError where nothing came back or nothing of it can be judged.
    """
    chosen, evidence = given(precision), "given by the user"
    index = _index(folder)
    if not outputs.is_dir():
        raise DumpError("is no folder", where=str(outputs), hint=LAYOUT)
    if outputs.resolve() == folder.resolve():
        raise UsageError("holds the cases themselves, whose outputs are the goldens", where=str(outputs), hint=LAYOUT)
    with np.errstate(all="ignore"):
        if chosen is None:
            chosen, evidence = _infer(folder, outputs, index)
        progress.stage("judging", len(index["cases"]))
        verdicts = []
        for case in index["cases"]:
            verdicts += [_judged(one, chosen) for one in _trials(folder, outputs, case)]
            progress.advance()
    report = Report(chosen.name, evidence, tuple(verdicts), _unused(outputs, index))
    if report.count(State.MISSING) == len(verdicts):
        raise DumpError("holds no output of any case", where=str(outputs), hint=LAYOUT)
    if not report.count(State.RIGHT) and not report.count(State.WRONG):
        reasons = Counter(v.reason for v in verdicts if v.state is not State.MISSING)
        said = "; ".join(f"{count} outputs: {reason}" for reason, count in reasons.most_common(3))
        raise DumpError(f"nothing in it can be judged: {said}", where=str(outputs))
    return report


def _unused(outputs: Path, index: Mapping[str, Any]) -> tuple[str, ...]:
    """What lies among the outputs and belongs to no case: the highest folder that does not, or a file."""
    used = {(case["folder"], one["folder"]): len(case["outputs"]) for case in index["cases"] for one in case["sets"]}
    cases = {case for case, _ in used}
    named = []
    for file in sorted(outputs.rglob("*")):
        case, *rest = parts = file.relative_to(outputs).parts
        if not file.is_file() or any(part.startswith(".") for part in parts):
            continue
        if case not in cases or not rest:
            named.append(case)
        elif (case, rest[0]) not in used:
            named.append("/".join(parts[:2]))
        elif file not in {found(outputs / case / rest[0], k) for k in range(used[case, rest[0]])}:
            named.append("/".join(parts))
    return tuple(dict.fromkeys(named))


class _Value(TypedDict):
    name: str


class _Set(TypedDict):
    folder: str
    kind: str


class _Case(TypedDict):
    folder: str
    node: str
    op: str
    golden_model: str
    inputs: list[_Value]
    outputs: list[_Value]
    sets: list[_Set]


class _Index(TypedDict):
    """What is read of index.json; further keys are for others."""

    cases: list[_Case]


def _index(folder: Path) -> dict[str, Any]:
    file = folder / INDEX
    hint = "make it with bisect-align repro MODEL --all -o DIR"
    try:
        index: dict[str, Any] = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError("holds no cases of single operators", where=str(folder), hint=hint) from error
    if index.get("schema") != SCHEMA_INDEX:
        raise UsageError("holds cases of another version", where=str(folder), hint=f"expected {SCHEMA_INDEX}")
    try:
        msgspec.convert(index, _Index)
    except msgspec.ValidationError as error:
        raise UsageError(f"is damaged: {error}", where=str(file), hint=hint) from error
    for case in index["cases"]:  # names that lead out of the folder come from somebody else
        for name in (case["folder"], case["golden_model"], *(one["folder"] for one in case["sets"])):
            if Path(name).name != name or name == "..":
                raise UsageError(f"names a path, not a file: {name!r}", where=str(file))
    return index


def _infer(folder: Path, outputs: Path, index: Mapping[str, Any]) -> tuple[Precision, str]:
    """The finest precision whose median score over the real inputs is within noise."""
    tried = [t for case in index["cases"] for t in _trials(folder, outputs, case, "real") if isinstance(t, _Trial)]
    telling = [t for t in tried if is_float(t.golden.dtype) and t.golden.size]
    said = []
    for precision in LADDER:
        scores = [s for t in telling if (s := t.score(precision).value) is not None and s > 0]
        median = statistics.median(scores) if scores else 0.0
        said.append(f"{precision.name}: median score {median:.2g}")
        if median < FITS:
            return precision, "; ".join(said)
    return LADDER[0], "no precision explains the median operator: " + "; ".join(said)


def _trials(folder: Path, outputs: Path, case: Mapping[str, Any], only: str = "") -> Iterator[_Trial | Verdict]:
    """What came back of a case, and a verdict for each output that did not, or cannot be read."""
    place = folder / case["folder"]
    sets = [one for one in case["sets"] if one["kind"] == (only or one["kind"])]
    names = [made["name"] for made in case["outputs"]]
    abouts = [[(case["folder"], case["node"], case["op"], one["kind"], name) for name in names] for one in sets]
    try:
        # as it stands: it is in float32 already, and the halves in it are roundings that the model asks for
        model, digest = read(place / case["golden_model"])
        graph = graph_of(model, folder=place)
    except BisectAlignError as error:
        yield from (_unreadable(about, error, place / case["golden_model"]) for row in abouts for about in row)
        return
    engine = SegmentEngine(graph)
    for one, row in zip(sets, abouts, strict=True):
        data, there = place / one["folder"], outputs / case["folder"] / one["folder"]
        files = [found(there, k) for k in range(len(names))]
        yield from (Verdict(*about, State.MISSING) for about, file in zip(row, files, strict=True) if file is None)
        at = data
        try:
            held: dict[str, Array] = {}
            for stem in ("input", "output"):
                for k, value in enumerate(case[f"{stem}s"]):
                    at = data / f"{stem}_{k}.npy"
                    held[value["name"]] = stored(at)
        except DumpError as error:
            yield from (_unreadable(about, error, at) for about, file in zip(row, files, strict=True) if file is not None)
            continue
        feeds = {value["name"]: held[value["name"]] for value in case["inputs"]}
        bench = Bench(graph, engine, _ranges(held), held.get, digest)
        for about, file, made in zip(row, files, case["outputs"], strict=True):
            if file is None:
                continue
            golden = held[made["name"]]
            try:
                got = returned(file, golden, made.get("half", ""), case["op"], feeds)
            except DumpError as error:
                yield _unreadable(about, error, file)
            else:
                yield _Trial(about, bench, feeds, golden, got.values, got.taken)


def _unreadable(about: tuple[str, str, str, str, str], error: BisectAlignError, file: Path) -> Verdict:
    return Verdict(*about, State.UNREADABLE, error.what, file=str(file))


def _ranges(values: Mapping[str, Array]) -> Ranges:
    found = {name: value_range(value) for name, value in values.items()}
    return lambda name: found.get(name, (0.0, 0.0))


def _judged(one: _Trial | Verdict, precision: Precision) -> Verdict:
    if isinstance(one, Verdict):
        return one
    if (reason := _beyond(one, precision)) is not None:
        return Verdict(*one.about, State.UNJUDGED, reason, taken=one.taken)
    same = one.golden.shape == one.target.shape
    figures = measure(one.golden, one.target) if same else None
    score = one.score(precision)
    if score.value is None:
        # in a run a replay that is not finite, or a shape that hangs on values, proves nothing; here the golden says what the
        # operator makes of these very values
        lone = same and is_float(one.golden.dtype) and bool((np.isfinite(one.target) & ~np.isfinite(one.golden)).any())
        exact = not any(is_float(fed.dtype) for fed in one.feeds.values())
        counted = not same and one.about[2] in DATA_SHAPED and exact
        note = "finite where the golden is NaN or infinite" if lone else score.note
        if counted:
            note = f"shape {list(one.target.shape)} instead of {list(one.golden.shape)}"
        state = State.WRONG if lone or counted else State.UNJUDGED
        return Verdict(*one.about, state, note, figures=figures, taken=one.taken)
    state = State.WRONG if score.kind is not None or score.value > CONVICT else State.RIGHT
    note = score.note
    if state is State.WRONG and one.about[2] in ORDERING and one.about[3] == "nan":
        state, note = State.UNJUDGED, "ONNX leaves open how NaN is ordered"
    return Verdict(*one.about, state, note, score.value, figures, one.taken)


def _beyond(one: _Trial, precision: Precision) -> str | None:
    """Why a set of inputs says nothing at this precision: its numbers do not exist there."""
    kind = one.about[3]
    if precision is INT8 and kind not in ("real", "zeros", "negatives"):
        return "int8 has no such values"
    if precision is FP16:
        values = [x for x in (*one.feeds.values(), one.golden) if is_float(x.dtype)]
        top = max((float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in values), default=0.0)
        if top > float(np.finfo(np.float16).max):
            return "values beyond the range of fp16"
        if kind in ("tiny", "denormal"):
            return "values below what fp16 holds"
    return None
