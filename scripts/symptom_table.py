"""Plant one wrong pattern at a time in runs of the fake chip, and see whether the first symptom that is named is that pattern.

    python scripts/symptom_table.py [--models DIR ...] [--count 12] [--kind WORD] [--precision fp32 ...] [--seed 0] [--show]

Models: every *.onnx with inputs.npz beside it (default: all of models/). Each fault is put into a tensor that a healthy chip made,
which is stored again at the chip's precision (int8: on its own steps; a draw that its range would clip is drawn again, since that is a
clamp too). The tensor's region is judged as in a run, on all tensors or on half of them. Only faults whose error is at least EFFECT
times that of the healthy chip count.

right   the first symptom has the planted name (or one of the equivalents of its kind, see KINDS) and the figures that were planted
wrong   another one comes first
none    nothing is named

A third of the models and of the seeds is held out and reported apart.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import chip_dumps
import numpy as np
import onnx
import quality
from chip_laws import LAWS
from numpy.typing import NDArray
from symptom_plants import KINDS, Site

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.judgement.bench import Bench, predict
from bisect_align.judgement.precision import PRECISIONS, rms
from bisect_align.judgement.symptoms import symptoms
from bisect_align.judgement.trial import try_region
from bisect_align.model.graph import graph_of
from bisect_align.model.region import region
from bisect_align.result.result import Symptom
from bisect_align.session.golden import GoldenValues

Array: TypeAlias = NDArray[Any]
EFFECT, SMALLEST, TRIES = 8.0, 32, 40
CLIPPED = 0.001  # share of the elements that an int8 range may cut off before the draw is no longer what was planted
WORDS = ("right", "wrong", "none")
PRECISION_NAMES = ("fp32", "fp16", "bf16", "int8")
ROOT = Path(__file__).resolve().parents[1]


# ---- one run ----
@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    precision: str
    held_out: bool
    word: str
    where: str
    said: str


class Ground:
    """One healthy run of a chip on a model, and the judge's bench on it."""

    def __init__(self, own: quality.Bench, precision: str, law: str, seed: int) -> None:
        self.own, self.precision = own, precision
        self.inputs = own.inputs(seed)
        self.chip, self.values = own.healthy(precision, law, seed)
        graph = graph_of(own.subject.model)
        engine = SegmentEngine(graph)
        golden = GoldenValues(graph, engine, self.inputs, 1 << 28, None)
        self.bench = Bench(graph, engine, golden.range, golden.value, own.subject.name)

    def site(self, tensor: str, rng: np.random.Generator) -> Site:
        net, known = self.own.net, {**self.own.net.constants, **self.inputs, **self.values}
        node = net.producer[tensor]
        given = [known.get(name) if name else None for name in node.input]
        before = [
            t for t in net.tensors[: net.tensors.index(tensor)] if t not in node.input and self.values[t].dtype == np.float32
        ]
        older = self.values[before[int(rng.integers(len(before)))]] if before else None
        value = self.values[tensor]
        return Site(value, node, given[0] if given else None, _bias(node, given, net.constants, value), older, rng)

    def stored(self, tensor: str, wrong: Array) -> Array | None:
        """As the chip would hold it; None where int8 clips it."""
        if wrong.dtype.kind not in "f":
            return wrong
        wrong = wrong.astype(np.float32)
        if self.chip.law.int8 is None:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.where(np.isfinite(wrong), self.chip.law.store(wrong), wrong)
        grid = self.chip.grids.get(tensor) if self.chip.law.int8.everything else None
        if grid is None:
            return wrong
        kept = np.where(np.isfinite(wrong), grid(np.nan_to_num(wrong)), wrong)
        near = np.abs(kept - wrong) <= 0.51 * float(grid.scale) + 1e-6 * np.abs(wrong)
        return kept if float(np.mean(~near & np.isfinite(wrong))) <= CLIPPED else None

    def first(self, tensor: str, target: Array, observed: frozenset[str]) -> tuple[float, Symptom | None] | None:
        """Effect, and the first symptom; None where the region cannot be replayed."""
        seen = {name: v for name, v in {**self.inputs, **self.values}.items() if name in observed or name in self.inputs}
        area = region(self.bench.graph, tensor, seen)
        fed = {b: seen[b] for b in area.boundary}
        right = predict(self.bench, area, fed)
        if isinstance(right, Unavailable) or right.shape != self.values[tensor].shape:
            return None
        inner = {
            n: v for n, v in self.bench.engine.replay(area.nodes, fed, area.hidden).items() if not isinstance(v, Unavailable)
        }
        score = try_region(self.bench, area, fed, target, PRECISIONS[self.precision])
        finite = right[np.isfinite(right)] if right.dtype.kind == "f" else right[:0]
        op = self.bench.graph.nodes[self.bench.graph.producer[tensor]].op
        found = symptoms(target, right, op, boundary=fed, noise_rms=score.expected * rms(finite), inner=inner)
        effect = float("inf")
        if target.shape == right.shape and np.isfinite(target[np.isfinite(right)]).all():
            stored = float(np.ptp(finite)) / 255 / 12**0.5 if self.precision == "int8" else _STORAGE[self.precision] * rms(finite)
            bar = max(rms(_gap(self.values[tensor], right)), stored)
            effect = rms(_gap(target, right)) / max(bar, 1e-30)
        return effect, found[0] if found else None


_STORAGE = {"fp32": 2.0**-24, "fp16": 2.0**-12, "bf16": 2.0**-9}


def _gap(a: Array, b: Array) -> Array:
    return np.nan_to_num(a.astype(np.float64) - b.astype(np.float64), posinf=0, neginf=0)


def _bias(node: onnx.NodeProto, given: list[Array | None], constants: Mapping[str, Array], value: Array) -> Array | None:
    """What the node adds to each channel, in the value's rank; of a quantising node (scale, zero point)."""
    if node.op_type in ("Round", "QuantizeLinear"):
        scale, zero = (*given[1:3], None, None)[:2]
        if (scale is not None and scale.size > 1) or (zero is not None and zero.size > 1):
            return None
        return np.array([1.0 if scale is None else float(scale), 0.0 if zero is None else float(zero)])
    slot = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "Add": 1, "BatchNormalization": 2, "LayerNormalization": 2}.get(
        node.op_type
    )
    if slot is None or slot >= len(node.input) or node.input[slot] not in constants or given[slot] is None:
        return None
    bias = np.asarray(given[slot])
    if bias.size < 2 or bias.size != max(bias.shape) or value.ndim < 2:
        return None
    if node.op_type in ("Conv", "ConvTranspose", "BatchNormalization"):
        return bias.reshape([-1 if a == 1 else 1 for a in range(value.ndim)])
    return bias


def outcomes(
    folder: Path, subjects: list[quality.Subject], kinds: list[str], precisions: list[str], count: int, seed: int
) -> Iterator[Outcome]:
    """So many of each kind at each precision, the models in turn."""
    for precision in precisions:
        done: Counter[str] = Counter()
        for turn in range(TRIES):
            if all(done[kind] >= count for kind in kinds):
                break
            for number in np.random.default_rng([seed, turn, PRECISION_NAMES.index(precision)]).permutation(len(subjects)):
                subject = subjects[number]
                todo = [kind for kind in kinds if done[kind] < count]
                if not todo or precision not in subject.precisions:
                    continue
                rng = np.random.default_rng([seed, turn, number, PRECISION_NAMES.index(precision)])
                run_seed = int(rng.integers(quality.SEEDS))
                laws = list(LAWS[precision])
                try:
                    ground = Ground(
                        quality.Bench(subject, folder / subject.name), precision, laws[int(rng.integers(len(laws)))], run_seed
                    )
                except (ValueError, KeyError, RuntimeError):
                    continue
                held_out = quality.held_back(subject, run_seed)
                for kind in todo:
                    found = _one(ground, kind, rng)
                    if found is not None:
                        done[kind] += 1
                        yield Outcome(kind, precision, held_out, *found)


def _one(ground: Ground, kind: str, rng: np.random.Generator) -> tuple[str, str, str] | None:
    """(word, where, what was said) of one fault; None where no tensor that was drawn suits."""
    plant, names = KINDS[kind]
    observed = frozenset(chip_dumps.kept(ground.own.net, float(rng.choice([1.0, 0.5]))))
    places = [t for t in sorted(observed) if ground.values[t].size >= SMALLEST]
    rng.shuffle(places)
    for tensor in places[:TRIES]:
        value = ground.values[tensor]
        if kind != "rounding" and (value.dtype.kind != "f" or not np.isfinite(value).all() or not float(np.ptp(value))):
            continue
        planted = plant(ground.site(tensor, rng))
        target = None if planted is None else ground.stored(tensor, np.asarray(planted.wrong))
        judged = None if target is None else ground.first(tensor, target, observed)
        if planted is None or target is None or judged is None or judged[0] < EFFECT:
            continue
        effect, symptom = judged
        where = (
            f"{ground.own.subject.name} {tensor} ({ground.own.net.producer[tensor].op_type} {value.shape}, effect {effect:.3g})"
        )
        if symptom is None:
            return "none", where, ""
        right = symptom.name in names | planted.names and planted.told(symptom.text)
        return "right" if right else "wrong", where, f"{symptom.name}: {symptom.text}"
    return None


# ---- the table ----
def table(found: list[Outcome]) -> Iterator[str]:
    for title, part in (
        ("tuned on", [o for o in found if not o.held_out]),
        ("held out", [o for o in found if o.held_out]),
        ("all", found),
    ):
        if not part:
            continue
        precisions = [p for p in PRECISION_NAMES if any(o.precision == p for o in part)]
        yield ""
        yield f"{title}, right/wrong/none:"
        yield ""
        yield f"| kind | {' | '.join(precisions)} |"
        yield "|---" * (len(precisions) + 1) + "|"
        for kind in [*KINDS, ""]:
            rows = [o for o in part if kind in ("", o.kind)]
            if rows:
                cells = [Counter(o.word for o in rows if o.precision == p) for p in precisions]
                yield f"| {kind or 'all'} | {' | '.join('/'.join(str(c[word]) for word in WORDS) for c in cells)} |"
        right = sum(o.word == "right" for o in part)
        yield ""
        yield f"{right} of {len(part)} right ({right / len(part):.1%})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="+", default=[ROOT / "models"], metavar="DIR")
    parser.add_argument("--count", type=int, default=12, help="faults of each kind at each precision")
    parser.add_argument("--kind", default="", help="only kinds that hold this word")
    parser.add_argument("--precision", nargs="+", choices=PRECISION_NAMES, default=list(PRECISION_NAMES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="what was said where it was not right")
    asked = parser.parse_args()
    subjects = [s for folder in asked.models for s in quality.subjects_in(folder)]
    found = []
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        kinds = [kind for kind in KINDS if asked.kind in kind]
        for one in outcomes(Path(folder), subjects, kinds, asked.precision, asked.count, asked.seed):
            found.append(one)
            if asked.show and one.word != "right":
                print(
                    f"{one.word} {one.kind} {one.precision}{' (held out)' if one.held_out else ''} at {one.where}: {one.said}",
                    flush=True,
                )
    print(*table(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
