"""Where the error of an output comes from when no region is at fault: which healthy errors matter there, found by taking them out."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.contributions import candidates, output_without
from bisect_align.judgement.policy import beyond
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.result.result import Accumulation, Contributor, State
from bisect_align.search.answer import crossings
from bisect_align.session.certify import region_info
from bisect_align.session.hunt import Hunt, upwards

Array: TypeAlias = NDArray[Any]

TRIED = 12  # regions whose error is taken out, one pass each
LISTED = 5  # contributors in the result
MATTERS = 0.01  # of the output's error: what a contributor must change at least


def accumulation(hunt: Hunt) -> Accumulation | None:
    """The budget of the output that is furthest off; None where that is no float tensor that can be compared."""
    known = {t: f.rel_l2 for t in hunt.beyond() if (f := hunt.findings.compared[t].figures) is not None and f.rel_l2 is not None}
    if not known:
        return None
    output = max(known, key=lambda t: known[t])
    golden = next(iter(hunt.golden.stream([output])))[1]
    if isinstance(golden, Unavailable) or not is_float(golden.dtype):
        return None
    observed, rulings, judge = hunt.evidence.observed, hunt.findings.rulings, hunt.evidence.court.judge
    introduced = {t: r.judged.score.introduced for t, r in rulings.items() if not r.judged.score.unknown}
    gains = {t: gain for t in rulings if (gain := hunt.gain(t)) is not None}
    ranked = candidates(observed, output, introduced, gains)
    alone = {t: _error(hunt, golden, output, [t]) for t in ranked[:TRIED]}
    error = left = known[output]
    found: list[Contributor] = []
    taken: list[str] = []
    for tensor in sorted(alone, key=lambda t: alone[t]):
        if len(found) == LISTED or not alone[tensor] < (1 - MATTERS) * error:
            break
        together = _error(hunt, golden, output, [*taken, tensor]) if taken else alone[tensor]
        if together < (1 - MATTERS) * left:  # not where errors that cancel each other are taken apart
            left = together
            taken.append(tensor)
            area = region_info(hunt.case.model.graph, judge.region(tensor))
            found.append(Contributor(area, introduced[tensor], alone[tensor], together))
    return Accumulation(output, error, _crosses(hunt, output), tuple(found), len(alone), len(ranked))


def _error(hunt: Hunt, golden: Array, output: str, removed: Collection[str]) -> float:
    """Relative L2 of the output without what these regions introduced; infinite where that cannot be computed."""
    evidence = hunt.evidence
    value = output_without(hunt.bench, hunt.case.inputs.values, evidence.observed, evidence.observations, removed, output)
    error = None if value is None or value.shape != golden.shape else measure(golden, value).rel_l2
    return math.inf if error is None else error


def _crosses(hunt: Hunt, output: str) -> str | None:
    """The first tensor above the output that is beyond noise or a limit of the user's while all that it was made from is within."""
    limits = hunt.case.policy.thresholds
    states = {
        t: State.BAD if c.state is State.GOOD and c.figures is not None and beyond(c.figures, limits) else c.state
        for t, c in hunt.findings.compared.items()
    }
    above = set(upwards(hunt.evidence.observed, output))
    return next((c.tensor for c in crossings(hunt.evidence.observed, states) if c.tensor in above), None)
