"""Weights of a culprit that the dump holds too: is the kernel wrong, or what it was given?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import DumpError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.conviction import Ruling
from bisect_align.judgement.hypotheses import misfit, tolerated
from bisect_align.judgement.weights import STORES, difference
from bisect_align.matching.fit import read, residual
from bisect_align.matching.layout import fixes
from bisect_align.result.result import Symptom
from bisect_align.session.hunt import Hunt

Array: TypeAlias = NDArray[Any]


def wrong_weight(hunt: Hunt, ruling: Ruling, fed: Mapping[str, Array], target: Array, right: Array) -> Symptom | None:
    """What the dump's own copies of a culprit's weights say; None where it holds none, or they are the model's.

    Where the operator, run with the weights as they stand in the dump, makes what the target made, its kernel is acquitted.
    """
    area = ruling.judged.region
    differing = {name: (held, words) for name, held, words in _differing(hunt, area.nodes)}
    if not differing:
        return None
    held = {name: value for name, (value, _) in differing.items()}
    made = hunt.bench.engine.replay(area.nodes, fed, [area.output], weights=held)[area.output]
    if isinstance(made, Unavailable):
        return None
    before, left = misfit(target, right), misfit(target, made)
    limit = tolerated(hunt.bench, area, target, before, hunt.evidence.precision.precision, ruling.judged.score.expected)
    said = "; ".join(f"weight {name!r} in the dump differs from the model's, {words}" for name, (_, words) in differing.items())
    if left <= limit:
        text = f"{said}; run with what the dump holds, the error falls from {before:.3g} to {left:.2g}: the kernel is right"
        return Symptom("wrong weight", text, round(max(1 - (left / before) ** 2, 0.0), 4) if np.isfinite(before) else 1.0)
    # not the cause: rounded as the run was, or in the vendor's own layout
    if all(_in_some_layout(hunt.bench.graph.constant(name), value) for name, value in held.items()):
        return None
    return Symptom(
        "weight differs", f"{said}; run with it, the error is {left:.3g} instead of {before:.3g}: not the cause alone", 0.0
    )


def _differing(hunt: Hunt, nodes: tuple[int, ...]) -> Iterator[tuple[str, Array, str]]:
    """(name, what the dump holds, in words) of each constant that these nodes read and the dump has otherwise."""
    graph, case = hunt.bench.graph, hunt.case
    read_here = {name for i in nodes for name in graph.nodes[i].reads}
    for claim in case.claims.weights:
        if claim.tensor not in read_here or claim.tensor not in graph.constants:
            continue
        model = graph.constant(claim.tensor)
        try:
            held = read(case.entries[claim.entry], model.dtype, model.shape)
        except DumpError:
            continue
        if held.size != model.size or model.dtype.kind != "f":
            continue
        held = held.reshape(model.shape)
        words, apart = difference(model, held)
        if words:
            yield claim.tensor, held, f"{words} (relative L2 {apart:.2g})"


def _in_some_layout(model: Array, held: Array) -> bool:
    return any(residual(fix.apply(held), model) <= STORES for fix in fixes(held.shape, model.shape) if not fix.crops)
