"""A dump matched whole: by name first, then by value, and what was left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bisect_align.matching.fit import Tolerance
from bisect_align.matching.matcher import Matcher
from bisect_align.matching.nameless import match_by_value, unexplained_tail
from bisect_align.matching.observations import Observation, Status

TRUST_MIN = 6  # entries that fit nothing, from which a majority of them puts the names in doubt


@dataclass(frozen=True, slots=True)
class Matched:
    """placed: tensor -> observation. unknown: tensor -> why its entry is not compared. dropped: entry -> why it is nothing's value.

    twins: entry -> the entry that was read instead, or the graph input that it repeats. trouble: why the search for the places of
    nameless entries ended early, if it did. tail: see nameless.unexplained_tail.
    """

    placed: Mapping[str, Observation]
    unknown: Mapping[str, str]
    dropped: Mapping[str, str]
    twins: Mapping[str, str]
    tolerance: Tolerance
    trouble: str = ""
    tail: tuple[str, tuple[str, ...]] | None = None

    @property
    def trusted(self) -> bool:
        """False where most entries fit neither the tensor they are named after nor a neighbour: then it is hardly the operators."""
        doubtful = sum(o.status in (Status.UNSUPPORTED, Status.WRONG_SHAPE) for o in self.placed.values())
        supported = sum(o.supported or o.status is Status.ASSUMED for o in self.placed.values())
        return doubtful < TRUST_MIN or supported >= doubtful

    @property
    def used(self) -> set[str]:
        """Entries that were taken for a tensor, and those that repeat one of them or a graph input."""
        return {o.claim.entry for o in self.placed.values()} | set(self.twins)

    @property
    def aliases(self) -> dict[str, tuple[str, str]]:
        """Entry -> (tensor that it is named after, tensor whose value it holds)."""
        return {o.claim.entry: (o.claim.tensor, t) for t, o in self.placed.items() if o.status is Status.ALIAS}


def match(matcher: Matcher) -> Matched:
    """Place every entry that can be placed; the values are in `matcher.observations`."""
    matcher.by_name()
    trouble = match_by_value(matcher)
    return Matched(
        placed=matcher.placed,
        unknown=matcher.unknown,
        dropped=matcher.dropped,
        twins={**matcher.repeats, **matcher.twins},
        tolerance=matcher.known.tolerance,
        trouble=trouble,
        tail=unexplained_tail(matcher),
    )
