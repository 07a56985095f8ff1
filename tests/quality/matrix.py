"""The fault matrix: every kind of fault at every node of every small graph, in two precisions, with full and half dumps.

A case is *effective* where its fault shows in the dump: the error that it introduces in some region that holds the culprit is
at least EFFECT times what any healthy law of the precision introduces there. Both are measured here, by exact float32 replays
of our own. Only effective cases are judged:

- right: verdict `fault`, and the first culprit's region holds the node where the fault was planted, with a certificate;
- wrong: verdict `fault`, and another region is first;
- missed: any other verdict.

Healthy runs (kind "") are `quiet` (verdict `aligned`) or an `alarm`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import chip_faults
import fake_chip
import graphs
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

EFFECT = 8.0
DENSITIES = (1.0, 0.5)
SEEDS = (0, 1, 2)
# What storing a value costs at least (relative): the bar where no healthy law introduces anything, as in Relu or Concat.
STORAGE = {"fp32": 2.0**-24, "fp16": 2.0**-12}


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the chip. kind "" = healthy; declared: the precision that the tool is told."""

    graph: str
    precision: str
    law: str
    seed: int
    density: float
    kind: str = ""
    tensor: str = ""
    declared: str = ""

    def __str__(self) -> str:
        what = f"{self.kind}@{self.tensor}" if self.kind else f"healthy (declared {self.declared})"
        return f"{self.graph} {self.precision}/{self.law} seed {self.seed} density {self.density:g}: {what}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the judge said: the verdict, the outputs of the nodes of the first culprit's region, whether it is certified."""

    verdict: str
    first: frozenset[str] = frozenset()
    certified: bool = False
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A case and how it ended; effect: introduced error over the bar (infinite for a NaN, 0 in healthy runs)."""

    case: Case
    outcome: str
    verdict: str
    summary: str
    effect: float
    seconds: float


# model, inputs, dump, declared precision
Judge: TypeAlias = Callable[[Path, Path, Path, str], Answer]


def bisect_align(model: Path, inputs: Path, dump: Path, precision: str) -> Answer:
    """The tool itself, in this process."""
    from bisect_align.session.options import Options
    from bisect_align.session.run import run

    result = run(Options(model=model, target_dump=dump, inputs=inputs, precision=precision))
    verdict = "none" if result.verdict is None else result.verdict.value
    if not result.culprits:
        return Answer(verdict, summary=result.summary)
    first = result.culprits[0]
    outputs = frozenset(name for node in first.region.nodes for name in node.outputs)
    certified = bool(first.certificate.boundary) and first.certificate.replay.elements > 0
    return Answer(verdict, outputs, certified, result.summary)


class Bench:
    """One graph with all that its cases share: the model file, inputs and healthy runs."""

    def __init__(self, graph: str, folder: Path) -> None:
        self.name = graph
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.model = graphs.GRAPHS[graph]()
        self.net = fake_chip.Net(self.model)
        self.path = folder / "model.onnx"
        self.path.write_bytes(self.model.SerializeToString())
        self._inputs: dict[int, dict[str, Array]] = {}
        self._healthy: dict[tuple[str, str, int], dict[str, Array]] = {}
        self._bars: dict[tuple[str, int, float, str], float] = {}

    # ---- which cases ----
    def planted(self, precision: str) -> Iterator[Case]:
        """All candidates in a fixed order; laws and seeds take turns, so that each kind and each tensor meets several."""
        laws = fake_chip.LAWS[precision]
        for t, tensor in enumerate(self.net.tensors):
            for (k, kind), density in product(enumerate(chip_faults.KINDS), DENSITIES):
                turn = t + k + (density < 1)
                yield Case(self.name, precision, laws[turn % len(laws)], SEEDS[(t + 2 * k) % 3], density, kind, tensor, precision)

    def healthy(self, precision: str, seeds: Collection[int]) -> Iterator[Case]:
        """Every law, declared as it is and left to be inferred."""
        for law, seed, density in product(fake_chip.LAWS[precision], seeds, DENSITIES):
            yield Case(self.name, precision, law, seed, density, declared=precision)
            if density == 1:
                yield Case(self.name, precision, law, seed, density, declared="auto")

    # ---- one case ----
    def judge(self, case: Case, judge: Judge = bisect_align) -> Record | None:
        """The record of a case; None where the fault makes no sense at this tensor or is not effective."""
        values: Mapping[str, Array] = self.healthy_values(case.precision, case.law, case.seed)
        effect = 0.0
        if case.kind:
            chip = fake_chip.Chip(self.net, case.precision, case.law, case.seed)
            try:
                values = chip.run(self.inputs(case.seed), fake_chip.Fault(case.kind, case.tensor), values)
            except ValueError:
                return None
            effect = self.effect(case, values)
            if effect < EFFECT:
                return None
        dump = self.folder / "dump.npz"
        _save(dump, {name: values[name] for name in fake_chip.kept(self.net, case.density)})
        begun = time.perf_counter()
        try:
            answer = judge(self.path, self.inputs_file(case.seed), dump, case.declared)
        finally:
            dump.unlink()
        return Record(case, outcome(case, answer), answer.verdict, answer.summary, effect, time.perf_counter() - begun)

    def effect(self, case: Case, values: Mapping[str, Array]) -> float:
        """Largest introduced error over the bar, among the observed tensors whose region holds the culprit."""
        observed = frozenset(fake_chip.kept(self.net, case.density))
        largest = 0.0
        for tensor in observed:
            if case.tensor in self.region(tensor, observed):
                introduced, _ = self.introduced(tensor, observed, values, case.seed)
                largest = max(largest, introduced / self._bar(case, tensor, observed))
        return largest

    def introduced(self, tensor: str, observed: Collection[str], values: Mapping[str, Array], seed: int) -> tuple[float, float]:
        """L2 norms of a dumped tensor minus its region's exact replay on dumped values (new NaN: infinite), and of the replay."""
        known = {**self.inputs(seed), **{name: values[name] for name in observed if name != tensor}}
        for name in self.region(tensor, observed):
            known[name] = self.net.exact(name, known)
        replay, dumped = (np.asarray(v, np.float64) for v in (known[tensor], values[tensor]))
        if (np.isfinite(replay) & ~np.isfinite(dumped)).any():
            return float("inf"), 0.0
        both = np.isfinite(replay) & np.isfinite(dumped)
        return float(np.linalg.norm((dumped - replay)[both])), float(np.linalg.norm(replay[both]))

    def region(self, tensor: str, observed: Collection[str]) -> tuple[str, ...]:
        """Tensors between `tensor` (itself included) and the nearest observed tensors above, in file order."""
        inside = {tensor}
        for name in reversed(self.net.tensors):
            if name in inside:
                reads = self.net.reads[id(self.net.producer[name])]
                inside |= {read for read in reads if read in self.net.producer and read not in observed}
        return tuple(name for name in self.net.tensors if name in inside)

    def _bar(self, case: Case, tensor: str, observed: Collection[str]) -> float:
        key = (case.precision, case.seed, case.density, tensor)
        if key not in self._bars:
            bar = 0.0
            for law in fake_chip.LAWS[case.precision]:
                values = self.healthy_values(case.precision, law, case.seed)
                introduced, signal = self.introduced(tensor, observed, values, case.seed)
                bar = max(bar, introduced, STORAGE[case.precision] * signal)
            self._bars[key] = bar
        return self._bars[key]

    # ---- what the cases share ----
    def inputs(self, seed: int) -> dict[str, Array]:
        if seed not in self._inputs:
            self._inputs[seed] = graphs.inputs_of(self.model, seed)
        return self._inputs[seed]

    def inputs_file(self, seed: int) -> Path:
        path = self.folder / f"inputs-{seed}.npz"
        if not path.exists():
            _save(path, self.inputs(seed))
        return path

    def healthy_values(self, precision: str, law: str, seed: int) -> dict[str, Array]:
        key = (precision, law, seed)
        if key not in self._healthy:
            self._healthy[key] = fake_chip.Chip(self.net, precision, law, seed).run(self.inputs(seed))
        return self._healthy[key]


def _save(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def outcome(case: Case, answer: Answer) -> str:
    if not case.kind:
        return "quiet" if answer.verdict == "aligned" else "alarm"
    if answer.verdict != "fault":
        return "missed"
    if case.tensor not in answer.first:
        return "wrong"
    return "right" if answer.certified else "missed"


@dataclass(frozen=True)
class Score:
    """Counts over records."""

    records: tuple[Record, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(record.outcome for record in self.records)

    @property
    def planted(self) -> int:
        return sum(self.counts[name] for name in ("right", "wrong", "missed"))

    @property
    def right(self) -> float:
        """Share of the effective faults that were found; 1 where there are none."""
        return self.counts["right"] / self.planted if self.planted else 1.0

    def where(self, **fields: Any) -> Score:
        """The records whose case has these field values."""
        return Score(tuple(r for r in self.records if all(getattr(r.case, k) == v for k, v in fields.items())))

    def failures(self) -> list[str]:
        """One line for each record that is not as it should be."""
        return [
            f"{r.outcome:6} {r.case}, effect {r.effect:.3g}: {r.verdict}: {r.summary}"
            for r in self.records
            if r.outcome not in ("right", "quiet")
        ]

    def table(self) -> str:
        """right/wrong/missed by kind, precision and density; then by graph and by law; then the healthy runs."""
        columns = [{"precision": p, "density": d} for p, d in product(fake_chip.LAWS, DENSITIES)]
        names = [f"{c['precision']} {'full' if c['density'] == 1 else 'half'}" for c in columns]
        lines = [f"{'right/wrong/missed':20}" + "".join(f"{name:>14}" for name in [*names, "right"])]

        def row(title: str, part: Score) -> str:
            cells = [part.where(**column) for column in columns]
            return f"{title:20}" + "".join(f"{_cell(c):>14}" for c in cells) + f"{part.right:14.1%}"

        planted = Score(tuple(r for r in self.records if r.case.kind))
        lines += [row(kind, planted.where(kind=kind)) for kind in chip_faults.KINDS]
        lines += ["", *(row(graph, planted.where(graph=graph)) for graph in graphs.GRAPHS)]
        laws = [(p, law) for p, all_laws in fake_chip.LAWS.items() for law in all_laws]
        lines += ["", *(row(f"{p} {law}", planted.where(precision=p, law=law)) for p, law in laws)]
        lines += ["", row("all", planted), "", f"{'healthy':20}{'alarms/runs':>14}"]
        for p, law in laws:
            runs = self.where(kind="", precision=p, law=law)
            lines.append(f"{p + ' ' + law:20}{runs.counts['alarm']:>7}/{len(runs.records)}")
        seconds = [r.seconds for r in self.records] or [0.0]
        lines += ["", f"{len(self.records)} runs, {np.mean(seconds):.3f} s each (longest {max(seconds):.3f} s)"]
        return "\n".join(lines)


def _cell(score: Score) -> str:
    return "/".join(str(score.counts[name]) for name in ("right", "wrong", "missed")) if score.planted else "-"


def score(bench: Bench, cases: Iterable[Case], judge: Judge = bisect_align) -> Score:
    """Judge the cases one by one; those that are not effective leave no record."""
    records = (bench.judge(case, judge) for case in cases)
    return Score(tuple(record for record in records if record is not None))


def save(score: Score, path: Path) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in score.records), encoding="utf-8")


def load(paths: Iterable[Path]) -> Score:
    lines = [json.loads(line) for path in sorted(paths) for line in path.read_text(encoding="utf-8").splitlines()]
    return Score(tuple(Record(**{**line, "case": Case(**line["case"])}) for line in lines))
