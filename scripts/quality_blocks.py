"""Runs of fake chips, drawn by chance: what fault_matrix.py judges.

A *block* is one model on one chip (precision, law, seed): its healthy run, judged twice (as it is, and with a limit on the outputs
that its rounding does not meet), and some planted faults. Faults whose effect is below LEAST are not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import chip_dumps
import numpy as np
from chip_faults import KINDS, suits
from chip_laws import LAWS
from quality import Answer, Bench, Case, Judge, Record, bisect_align
from subjects import SEEDS, Subject, held_back

LEAST = 1.5
DENSITIES = (1.0, 0.5, 0.3)
FAULTS = 6
"""Faults in a block, each drawn up to TRIES times until one makes sense and is large enough."""
TRIES = 8


def draw(
    number: int, seed: int, subjects: Sequence[Subject], precisions: Collection[str], *, held_out: bool | None
) -> tuple[Subject, Case]:
    """The block of this number: model, precision, law, seed. held_out: of the models and seeds that nothing was tuned on, of the
    others, or of all (None). Raises ValueError where there are none."""
    rng = np.random.default_rng([seed, number])
    pairs = [(s, own) for s in subjects for own in range(SEEDS) if held_out in (None, held_back(s, own))]
    pairs = [(s, own) for s, own in pairs if not set(precisions).isdisjoint(s.precisions)]
    if not pairs:
        raise ValueError("no model and seed to draw from: all are held out of tuning, or none knows the precision")
    subject, own_seed = pairs[int(rng.integers(len(pairs)))]
    known = [p for p in subject.precisions if p in precisions]
    precision = known[int(rng.integers(len(known)))]
    law = list(LAWS[precision])[int(rng.integers(len(LAWS[precision])))]
    return subject, Case(subject.name, precision, law, own_seed, 1.0, "npy", precision, False)


def judge_block(
    number: int,
    seed: int,
    bench: Bench,
    start: Case,
    methods: Collection[str] = (),
    judge: Judge = bisect_align,
    *,
    faults: int = FAULTS,
) -> Iterator[Record]:
    """The records of a block, drawn by its number."""
    rng = np.random.default_rng([seed, number, 1])
    if bench.leaves_range(start):
        yield Record(number, start, "range", 0.0, 0.0, Answer("", ""), held_out=held_back(bench.subject, start.seed))
        return
    for kind in ("healthy", "accumulation"):
        case = _way(replace(start, kind=kind), rng)
        yield bench.record(number, case, bench.values(case), 0.0, methods, judge)
    everywhere = bench.places(start.seed)
    for _ in range(faults):
        for _ in range(TRIES):
            kind = list(KINDS)[int(rng.integers(len(KINDS)))]
            places = [name for name in everywhere if suits(kind, bench.net.producer[name])]
            if not places:
                continue
            case = _way(replace(start, kind=kind, tensor=places[int(rng.integers(len(places)))]), rng)
            try:
                values = bench.values(case)
                effect = bench.effect(case, values)
            except Exception:  # onnxruntime's own kinds among them: indices or shapes that the fault made impossible
                continue
            if effect >= LEAST:
                yield bench.record(number, case, values, effect, methods, judge)
                break


def _way(case: Case, rng: np.random.Generator) -> Case:
    """Density and form of the dump, and how the tool is called."""
    forms = list(chip_dumps.FORMS)
    return replace(
        case,
        density=DENSITIES[int(rng.integers(len(DENSITIES)))],
        form=forms[int(rng.integers(len(forms)))],
        declared="auto" if rng.random() < 0.2 else case.precision,
        scan=bool(rng.random() < 0.25),
    )
