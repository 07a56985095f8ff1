"""What a target made of single-operator cases, judged operator by operator, as the same operator in a model would be."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from bisect_align.errors import DumpError, UsageError
from bisect_align.golden.segments import SegmentEngine
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.jitter import Ranges
from bisect_align.judgement.judge import CONVICT
from bisect_align.judgement.precision import FP16, INT8, LADDER, Precision, given
from bisect_align.judgement.trial import Score, try_region
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.model.load import load
from bisect_align.model.region import region
from bisect_align.repro.alone import read_output, shaped
from bisect_align.repro.every import LAYOUT
from bisect_align.repro.folder import INDEX, SCHEMA_INDEX
from bisect_align.result.result import Figures
from bisect_align.session.golden import value_range
from bisect_align.session.progress import SILENT, Progress

Array: TypeAlias = NDArray[Any]

ENDINGS = (".npy", ".pb", ".bin")
# Operators that compare values: ONNX leaves open how NaN is ordered.
_EXTREMES = ("ArgMax", "ArgMin", "Hardmax", "Max", "Min", "ReduceMax", "ReduceMin", "TopK")
_CLAMPS = ("Clip", "HardSigmoid", "HardSwish", "Relu")
ORDERING = frozenset((*_EXTREMES, *_CLAMPS, "GlobalMaxPool", "MaxPool", "MaxUnpool"))
FITS = 1.0  # median score of the real inputs below which a precision is believed


class State(StrEnum):
    """Of one output of one case under one set of inputs."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSING = "not returned"
    UNJUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One output. node, op: as in the model; kind: of the inputs (real, zeros, nan ...); score: as in a run, convicted above 2."""

    case: str
    node: str
    op: str
    kind: str
    output: str
    state: State
    reason: str = ""
    score: float | None = None
    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All verdicts, and the precision they were judged at, with the reason for it."""

    precision: str
    evidence: str
    verdicts: tuple[Verdict, ...] = field(default_factory=tuple)

    @property
    def wrong(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.state is State.WRONG)

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

    def score(self, precision: Precision) -> Score:
        name = self.about[4]
        return try_region(self.bench, region(self.bench.graph, name, ()), self.feeds, self.target, precision)


def judge_returned(folder: Path, outputs: Path, precision: str = "auto", progress: Progress = SILENT) -> Report:
    """Judge what lies in `outputs` against the cases of `folder` (see every.LAYOUT).

    precision: a name, or auto: the finest one at which the median operator is within noise on its real inputs. Raises UsageError
    where `folder` holds no cases, DumpError where nothing came back.
    """
    chosen, evidence = given(precision), "given by the user"
    index = _index(folder)
    if not outputs.is_dir():
        raise DumpError("is no folder", where=str(outputs), hint=LAYOUT)
    with np.errstate(all="ignore"):
        if chosen is None:
            chosen, evidence = _infer(folder, outputs, index)
        progress.stage("judging", len(index["cases"]))
        verdicts = []
        for case in index["cases"]:
            verdicts += [_judged(one, chosen) for one in _trials(folder, outputs, case)]
            progress.advance()
    report = Report(chosen.name, evidence, tuple(verdicts))
    if report.count(State.MISSING) == len(verdicts):
        raise DumpError("holds no output of any case", where=str(outputs), hint=LAYOUT)
    return report


def _index(folder: Path) -> dict[str, Any]:
    file = folder / INDEX
    try:
        index: dict[str, Any] = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        hint = "make it with bisect-align repro MODEL --all -o DIR"
        raise UsageError("holds no cases of single operators", where=str(folder), hint=hint) from error
    if index.get("schema") != SCHEMA_INDEX:
        raise UsageError("holds cases of another version", where=str(folder), hint=f"expected {SCHEMA_INDEX}")
    for case in index["cases"]:  # names that lead out of the folder come from somebody else
        for name in (case["folder"], case["golden_model"], *(one["folder"] for one in case["sets"])):
            if Path(name).name != name:
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
    model = load(place / case["golden_model"])
    graph = model.graph
    engine = SegmentEngine(graph)
    for one in case["sets"]:
        if only and one["kind"] != only:
            continue
        data = place / one["folder"]
        feeds = {g["name"]: np.load(data / f"input_{k}.npy", allow_pickle=False) for k, g in enumerate(case["inputs"])}
        goldens = {g["name"]: np.load(data / f"output_{k}.npy", allow_pickle=False) for k, g in enumerate(case["outputs"])}
        bench = Bench(graph, engine, _ranges({**feeds, **goldens}), goldens.get, model.sha256)
        for k, (name, golden) in enumerate(goldens.items()):
            about = (case["folder"], case["node"], case["op"], one["kind"], name)
            try:
                target = _read(outputs / case["folder"] / one["folder"], k, golden)
            except (OSError, ValueError, DumpError) as error:
                yield Verdict(*about, State.UNJUDGED, f"cannot be read: {error}")
                continue
            yield Verdict(*about, State.MISSING) if target is None else _Trial(about, bench, feeds, golden, target)


def _ranges(values: Mapping[str, Array]) -> Ranges:
    found = {name: value_range(value) for name, value in values.items()}
    return lambda name: found.get(name, (0.0, 0.0))


def _read(place: Path, k: int, golden: Array) -> Array | None:
    file = next((f for end in ENDINGS if (f := place / f"output_{k}{end}").is_file()), None)
    if file is None:
        return None
    if file.suffix == ".pb":
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(file.read_bytes())
            values = numpy_helper.to_array(tensor)
        except Exception as error:  # protobuf's own class, which states no types
            raise DumpError("is no ONNX tensor", where=str(file)) from error
        values = shaped(values, golden)
    else:
        values = read_output(file, golden)
    if is_float(golden.dtype) != is_float(values.dtype):
        raise DumpError(f"holds {values.dtype} where the output is {golden.dtype}", where=str(file))
    return np.asarray(values.astype(golden.dtype))


def _judged(one: _Trial | Verdict, precision: Precision) -> Verdict:
    if isinstance(one, Verdict):
        return one
    if (reason := _beyond(one, precision)) is not None:
        return Verdict(*one.about, State.UNJUDGED, reason)
    same = one.golden.shape == one.target.shape
    figures = measure(one.golden, one.target) if same else None
    score = one.score(precision)
    if score.value is None:
        # in a run a replay that is not finite proves nothing; here the golden says what the operator makes of these very values
        lone = same and is_float(one.golden.dtype) and bool((np.isfinite(one.target) & ~np.isfinite(one.golden)).any())
        state = State.WRONG if lone else State.UNJUDGED
        return Verdict(*one.about, state, "finite where the golden is NaN or infinite" if lone else score.note, figures=figures)
    state = State.WRONG if score.kind is not None or score.value > CONVICT else State.RIGHT
    if state is State.WRONG and one.about[2] in ORDERING and one.about[3] == "nan":
        return Verdict(*one.about, State.UNJUDGED, "ONNX leaves open how NaN is ordered", score.value, figures)
    return Verdict(*one.about, state, score.note, score.value, figures)


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
