"""Words that the verdict's sentence, the report and the drill share: one way to say which figure convicts, how many, and whose name."""

from __future__ import annotations

from bisect_align.result.escape import visible
from bisect_align.result.result import Culprit, Kind

# Of each statistic (judgement.statistics), where it looks.
_PLACES = {
    "energy": "over its elements, each against its own noise",
    "peak": "at its worst element",
    "gain": "in the scale of all its values",
    "offset": "in its mean error",
    "slice": "in its worst slice",
    "clip": "in what is clipped",
}


def convicting(culprit: Culprit) -> str:
    """Which figure convicts and where, such as "2.4 times what int8 noise explains in its worst slice (index 480 of axis 1)"; "" where
    the error over all elements is larger than noise and says enough, or where the result does not say which one it was."""
    error, noise = culprit.introduced.rel_l2, culprit.noise
    if culprit.kind is not Kind.WRONG_RESULT or error is None or error > noise.expected:
        return ""
    statistic, _, detail = noise.statistic.partition(": ")
    if place := _PLACES.get(statistic):
        at = f" ({detail})" if detail else ""
        return f"{noise.score:.3g} times what {noise.precision} noise explains {place}{at}"
    return detail


def count(amount: int, thing: str) -> str:
    """Such as "1 pass", "2 passes", "3 entries"."""
    plural = thing + "es" if thing.endswith("s") else f"{thing[:-1]}ies" if thing.endswith("ry") else thing + "s"
    return f"{amount} {thing if amount == 1 else plural}"


def quoted(name: str) -> str:
    """A name in a sentence, escaped as it is wherever else it stands in a report."""
    return f"'{visible(name)}'"
