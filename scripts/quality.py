"""One run of a fake chip, judged: what it is, how large its fault is, and how the answer counts.

Faults count by *effect*: the error that the fault introduces in a region that holds the node, over what the healthy chip introduces
there (rms over rms, by exact float32 replays of our own; at least what storing the tensor costs).

planted  found      fault, and the first culprit's region holds the planted node, is the smallest that the dump allows, and certified
         coarse     the same, but a larger region
         wrong      somebody healthy is named first: a region, a file, an input
         undecided  nobody is named and nothing is cleared, or only a file that shows the fault is named
         missed     aligned, or accumulation
healthy  quiet      aligned, or accumulation
         undecided  nobody is named
         alarm      somebody is named
both     loss       precision loss, where the healthy chip does destroy the signal (LOSS)
         range      the healthy run leaves the range of its format: not judged
         trouble    the tool ended with an error
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import baselines
import chip_dumps
import fake_chip
import numpy as np
import onnx
from chip_faults import KINDS
from chip_net import Net
from numpy.typing import NDArray
from subjects import SEEDS as SEEDS
from subjects import Subject, held_back
from subjects import subjects_in as subjects_in

Array: TypeAlias = NDArray[Any]
Values: TypeAlias = Mapping[str, Array]

CALIBRATION = tuple(range(1000, 1008))
"""Seeds of the inputs that int8 ranges are taken from."""
LOSSY = "precision-loss"
LOSS = 0.1
"""Error that the healthy chip introduces in a region, over the spread of the bulk of its values."""
# What storing a value costs at least (relative): the bar where the healthy chip introduces nothing, as in Relu or Concat.
_STORAGE = {"fp32": 2.0**-24, "tf32": 2.0**-12, "fp16": 2.0**-12, "bf16": 2.0**-9, "int8": 0.0}
_INT8_STEPS = 255 * 12**0.5


# ---- runs ----
@dataclass(frozen=True, slots=True)
class Case:
    """One run of the chip. kind: "healthy", "accumulation" or one of chip_faults.KINDS. declared: the precision that the tool is
    told, or auto. scan: it is asked for all culprits."""

    model: str
    precision: str
    law: str
    seed: int
    density: float
    form: str
    declared: str
    scan: bool
    kind: str = "healthy"
    tensor: str = ""

    @property
    def planted(self) -> bool:
        return self.kind in KINDS

    def __str__(self) -> str:
        what = f"{self.kind}@{self.tensor}" if self.tensor else self.kind
        how = f"{self.form} {self.density:.0%}, declared {self.declared}" + (", scan" if self.scan else "")
        return f"{self.model} {self.precision}/{self.law} seed {self.seed} ({how}): {what}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool said. first: outputs of the nodes of the first culprit's region; culprits: of all, the region's own output
    first, and kinds: of all."""

    verdict: str
    summary: str
    output: str = ""
    first: tuple[str, ...] = ()
    kind: str = ""
    certified: bool = False
    score: float = 0.0
    statistic: str = ""
    culprits: tuple[tuple[str, ...], ...] = ()
    kinds: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A case and how it ended. others: culprits of the tool that do not hold the planted node. baselines: outcome by method."""

    block: int
    case: Case
    outcome: str
    effect: float
    seconds: float
    answer: Answer
    others: int = 0
    held_out: bool = False
    baselines: dict[str, str] = field(default_factory=dict)


# model, inputs, dump, declared precision, scan, limits on the outputs
Judge: TypeAlias = Callable[[Path, Path, Path, str, bool, Mapping[str, float]], Answer]


def bisect_align(model: Path, inputs: Path, dump: Path, precision: str, scan: bool, thresholds: Mapping[str, float]) -> Answer:
    """The tool itself, in this process. An error of its own, foreseen or not, is the verdict "trouble"."""
    from bisect_align.session.options import Options
    from bisect_align.session.run import run

    options = Options(model=model, target_dump=dump, inputs=inputs, precision=precision, scan=scan, thresholds=thresholds)
    try:
        result = run(options)
    except Exception as trouble:
        return Answer("trouble", f"{type(trouble).__name__}: {trouble}")
    verdict = "none" if result.verdict is None else result.verdict.value
    files = tuple(entry.tensor for entry in result.suspected_entries)
    if not result.culprits:
        return Answer(verdict, result.summary, files=files)
    regions = [c.region for c in result.culprits]
    culprits = tuple(tuple({r.output: None} | {name: None for node in r.nodes for name in node.outputs}) for r in regions)
    first = result.culprits[0]
    certified = (bool(first.certificate.boundary) or not regions[0].boundary) and first.certificate.replay.elements > 0
    return Answer(
        verdict, result.summary, first.region.output, culprits[0], first.kind.value, certified,
        first.noise.score, first.noise.statistic, culprits, tuple(c.kind.value for c in result.culprits), files,
    )  # fmt: skip


class Bench:
    """One model with all that its runs share: files, the golden, ranges, and the healthy run of the last chip."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject, self.folder = subject, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.net = Net(subject.model)
        self.path = folder / "model.onnx"
        onnx.save(subject.model, self.path)
        self._inputs: dict[int, dict[str, Array]] = {}
        self._golden: dict[int, dict[str, Array]] = {}
        self._ranges: fake_chip.Ranges | None = None
        self._last: tuple[tuple[str, str, int], fake_chip.Chip, dict[str, Array]] | None = None

    # ---- values ----
    def inputs(self, seed: int) -> dict[str, Array]:
        if seed not in self._inputs:
            given = self.subject.inputs(seed)
            self._inputs[seed] = {name: given[name] for name in self.net.inputs}
        return self._inputs[seed]

    def inputs_file(self, seed: int) -> Path:
        path = self.folder / f"inputs-{seed}.npz"
        if not path.exists():
            arrays: dict[str, Any] = self.inputs(seed)
            np.savez(path, **arrays)
        return path

    def golden(self, seed: int) -> dict[str, Array]:
        if seed not in self._golden:
            self._golden = {seed: self.net.golden(self.inputs(seed))}
        return self._golden[seed]

    def healthy(self, precision: str, law: str, seed: int) -> tuple[fake_chip.Chip, dict[str, Array]]:
        """The chip and its healthy values."""
        key = (precision, law, seed)
        if self._last is None or self._last[0] != key:
            if precision == "int8" and self._ranges is None:
                self._ranges = fake_chip.ranges_of(self.net, [self.inputs(s) for s in CALIBRATION])
            chip = fake_chip.Chip(self.net, precision, law, seed, self._ranges)
            self._last = key, chip, chip.run(self.inputs(seed))
        return self._last[1:]

    def values(self, case: Case) -> dict[str, Array]:
        """What the chip computes in this case. Raises ValueError where the fault makes no sense, onnxruntime's exceptions where
        what follows from it cannot be run."""
        chip, healthy = self.healthy(case.precision, case.law, case.seed)
        if not case.planted:
            return healthy
        return chip.run(self.inputs(case.seed), fake_chip.Fault(case.kind, case.tensor), healthy)

    # ---- regions ----
    def region(self, tensor: str, observed: Collection[str]) -> tuple[str, ...]:
        """Tensors between `tensor` (itself included) and the nearest observed tensors above, in file order."""
        inside, todo = {tensor}, [tensor]
        while todo:
            for read in self.net.reads[id(self.net.producer[todo.pop()])]:
                if read in self.net.producer and read not in observed and read not in inside:
                    inside.add(read)
                    todo.append(read)
        return tuple(name for name in self.net.tensors if name in inside) if len(inside) > 1 else (tensor,)

    def replay(self, tensor: str, observed: Collection[str], values: Values, seed: int) -> Array:
        """The region of a tensor computed exactly on the dumped values above it."""
        known = {**self.inputs(seed), **{name: values[name] for name in observed if name != tensor}}
        for name in self.region(tensor, observed):
            known[name] = self.net.exact(name, known)
        return known[tensor]

    def introduced(self, tensor: str, observed: Collection[str], values: Values, seed: int) -> tuple[float, float]:
        """L2 norms of a dumped tensor minus its region's replay (new NaN, other shape: infinite), and of the replay."""
        replay, dumped = (np.asarray(v, np.float64) for v in (self.replay(tensor, observed, values, seed), values[tensor]))
        if replay.shape != dumped.shape or (np.isfinite(replay) & ~np.isfinite(dumped)).any():
            return float("inf"), 0.0
        both = np.isfinite(replay) & np.isfinite(dumped)
        return float(np.linalg.norm((dumped - replay)[both])), float(np.linalg.norm(replay[both]))

    def holders(self, tensor: str, observed: Collection[str]) -> list[str]:
        """Observed tensors whose region holds the node of `tensor`."""
        if tensor in observed:
            return [tensor]
        below, found = {tensor}, []
        for node in self.net.nodes:
            if below.isdisjoint(self.net.reads[id(node)]):
                continue
            for name in filter(None, node.output):
                if name in observed:
                    found.append(name)
                else:
                    below.add(name)
        return found

    def effect(self, case: Case, values: Values) -> float:
        """The largest introduced error over what the healthy chip introduces, among the regions that hold the planted node."""
        observed = frozenset(chip_dumps.kept(self.net, case.density))
        _, healthy = self.healthy(case.precision, case.law, case.seed)
        largest = 0.0
        for tensor in self.holders(case.tensor, observed):
            if values[tensor].dtype != np.float32:
                continue
            introduced, _ = self.introduced(tensor, observed, values, case.seed)
            bar, signal = self.introduced(tensor, observed, healthy, case.seed)
            span = float(np.ptp(np.append(healthy[tensor], 0.0)))  # a range holds zero
            stored = (
                span / _INT8_STEPS * healthy[tensor].size ** 0.5
                if case.precision == "int8"
                else _STORAGE[case.precision] * signal
            )
            largest = max(largest, introduced / max(bar, stored, 1e-37))
        return largest

    def lossy(self, case: Case, tensor: str) -> bool:
        """Whether the healthy chip destroys the signal of this region: its own error over the spread of the bulk."""
        observed = frozenset(chip_dumps.kept(self.net, case.density))
        _, healthy = self.healthy(case.precision, case.law, case.seed)
        replay = self.replay(tensor, observed, healthy, case.seed).astype(np.float64)
        error = healthy[tensor] - replay
        median = np.median(np.abs(replay))
        bulk = np.abs(replay) <= 100 * median if median > 0 else np.ones(replay.shape, bool)
        return bool(np.sqrt(np.mean(np.square(error[bulk]))) > LOSS * np.std(replay[bulk]))

    def leaves_range(self, case: Case) -> bool:
        """Whether the healthy chip makes NaN or infinity of finite values or weights."""
        chip, healthy = self.healthy(case.precision, case.law, case.seed)
        exact, held = {**self.net.constants, **self.golden(case.seed)}, {**chip.weights, **healthy}
        floats = (name for name, value in held.items() if value.dtype == np.float32)
        return any(bool((np.isfinite(exact[n]) & ~np.isfinite(held[n])).any()) for n in floats)

    def places(self, seed: int) -> list[str]:
        """Where faults can be planted: float tensors that depend on an input and are more than an input in another shape, or as it is
        (a fault there cannot be told from another input, nor one in a constant from another weight)."""
        golden = {**self.golden(seed), **self.inputs(seed)}
        moved, live = set(self.net.inputs), set(self.net.inputs)
        for node in self.net.nodes:
            if not live.isdisjoint(self.net.reads[id(node)]):
                live.update(node.output)
            first = node.input[0] if node.input else ""
            same = first in golden and node.output[0] in golden and np.array_equal(golden[node.output[0]], golden[first])
            if first in moved and (same or node.op_type in fake_chip.MOVES):
                moved.update(node.output)
        floats = (name for name, value in self.golden(seed).items() if value.dtype == np.float32 and value.ndim and value.size)
        return [name for name in floats if name in live and name not in moved]

    # ---- one case ----
    def judge(self, case: Case, values: Values, judge: Judge = bisect_align) -> tuple[Answer, float]:
        """The answer, and the seconds that it took."""
        chip, _ = self.healthy(case.precision, case.law, case.seed)
        observed = chip_dumps.kept(self.net, case.density)
        limits = self.limit(case, values) if case.kind == "accumulation" else {}
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            dump = Path(scratch) / ("dump.npz" if case.form == "npz" else "dump")
            chip_dumps.write({name: values[name] for name in observed}, dump, case.form, case.precision, chip.grids)
            begun = time.perf_counter()
            answer = judge(self.path, self.inputs_file(case.seed), dump, case.declared, case.scan, limits)
            return answer, time.perf_counter() - begun

    def limit(self, case: Case, values: Values) -> dict[str, float]:
        """A limit on the relative L2 error of the outputs that the worst of them misses by a factor of two."""
        worst = 0.0
        for name in self.net.outputs:
            golden, value = self.golden(case.seed).get(name), values.get(name)
            if golden is not None and value is not None and golden.dtype == np.float32 and golden.any():
                difference = np.nan_to_num(value.astype(np.float64) - golden)
                worst = max(worst, float(np.linalg.norm(difference) / np.linalg.norm(np.nan_to_num(golden.astype(np.float64)))))
        return {"rel_l2": worst / 2} if worst > 0 else {}

    def outcome(self, case: Case, answer: Answer) -> str:
        """One word of the head of this file."""
        if answer.verdict == "trouble":
            return "trouble"
        observed = frozenset(chip_dumps.kept(self.net, case.density))
        if case.tensor not in answer.first and answer.kind == LOSSY and self.lossy(case, answer.output):
            return "loss"
        if answer.verdict in ("aligned", "accumulation"):
            return "missed" if case.planted else "quiet"
        held = self.holders(case.tensor, observed) if case.planted else ()
        if answer.verdict == "undecided" or (answer.verdict == "dump-suspect" and set(answer.files) <= set(held)):
            return "undecided"
        if not case.planted:
            return "alarm"
        if answer.verdict != "fault" or case.tensor not in answer.first:
            return "wrong"
        golden = self.golden(case.seed)
        beside = set(answer.first) - self._outputs_in(answer.output, observed) if answer.output in observed else {case.tensor}
        # what steers a shape is compared by nobody, dumped or not
        smallest = all(name in golden and golden[name].dtype != np.float32 for name in beside)
        return "found" if smallest and answer.certified else "coarse"

    def _outputs_in(self, tensor: str, observed: Collection[str]) -> set[str]:
        return {out for name in self.region(tensor, observed) for out in self.net.producer[name].output}

    def record(self, block: int, case: Case, values: Values, effect: float, methods: Collection[str], judge: Judge) -> Record:
        answer, seconds = self.judge(case, values, judge)
        named = zip(answer.culprits, answer.kinds, strict=True)
        others = sum(not (case.tensor in held or (kind == LOSSY and self.lossy(case, held[0]))) for held, kind in named)
        theirs = {name: self.outcome_of(case, values, name) for name in methods}
        outcome, held_out = self.outcome(case, answer), held_back(self.subject, case.seed)
        return Record(block, case, outcome, effect, seconds, answer, others, held_out, theirs)

    def outcome_of(self, case: Case, values: Values, method: str) -> str:
        """How a simpler method does on the same values, in the same words."""
        observed = chip_dumps.kept(self.net, case.density)
        run = baselines.Run(
            observed=tuple(name for name in observed if values[name].dtype == np.float32),
            outputs=self.net.outputs,
            golden=self.golden(case.seed),
            target=values,
            precision=case.precision,
            replay=lambda tensor: self.replay(tensor, observed, values, case.seed),
        )
        accused = baselines.METHODS[method](run)
        if not case.planted:
            return "quiet" if accused is None else "alarm"
        if accused is None:
            return "missed"
        return "found" if case.tensor in self._outputs_in(accused, observed) else "wrong"


# ---- files of records ----
def line(record: Record) -> str:
    """One JSON object."""
    return json.dumps(asdict(record))


def load(paths: Sequence[Path]) -> list[Record]:
    lines = (json.loads(text) for path in paths for text in path.read_text(encoding="utf-8").splitlines())
    return [Record(**{**one, "case": Case(**one["case"]), "answer": Answer(**one["answer"])}) for one in lines]
