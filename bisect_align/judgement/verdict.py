"""The verdict as one pure function: the first row that fits."""

from __future__ import annotations

from dataclasses import dataclass

from bisect_align.result.result import Verdict


@dataclass(frozen=True, slots=True)
class Facts:
    """What a complete run has established.

    inputs_differ: the dump's own copy of an input is not the input given. golden_suspect: a foreign golden stands alone against
    target and ONNX Runtime. convicted: regions with a certificate that rests on no suspected entry. suspected_entries: files that
    their consumers contradict. beyond: an output, or else a deepest tensor, is beyond what the sum of noise explains or a threshold
    that the user gave. all_judged: every observed region was judged.
    """

    inputs_differ: bool = False
    golden_suspect: bool = False
    convicted: int = 0
    suspected_entries: int = 0
    beyond: bool = False
    all_judged: bool = True


def verdict(facts: Facts) -> Verdict:
    """Exactly one verdict for every combination of facts."""
    rows = (
        (facts.inputs_differ, Verdict.INPUT_MISMATCH),
        (facts.golden_suspect, Verdict.GOLDEN_SUSPECT),
        (facts.convicted > 0, Verdict.FAULT),
        (facts.suspected_entries > 0, Verdict.DUMP_SUSPECT),
        (not facts.all_judged, Verdict.UNDECIDED),
        (facts.beyond, Verdict.ACCUMULATION),
    )
    return next((name for holds, name in rows if holds), Verdict.ALIGNED)
