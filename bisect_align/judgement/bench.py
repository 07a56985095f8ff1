"""What is asked of the engine about one region: its output on given values, as they are or moved by rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.golden.protocol import Golden, Unavailable
from bisect_align.judgement.jitter import Jitter, JitteredWeights, Ranges, seed
from bisect_align.judgement.precision import Precision, rms
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.region import Region

Array: TypeAlias = NDArray[Any]

DESTROYED = 0.5  # of the signal: one rounding that moves the output by more leaves nothing of it
ROOM = 0.25  # of the golden's range: what inherited noise may add to it


class Observed(Protocol):
    """The target's values by tensor name, graph inputs among them."""

    def __contains__(self, name: object) -> bool: ...
    def value(self, name: str) -> Array: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What every trial needs: graph, engine, golden ranges (int8), golden values (ties), and the seed of the run.

    coarse: int8 steps of this target over those that the golden ranges ask for (see `steps.coarseness`)."""

    graph: Graph
    engine: Golden
    ranges: Ranges
    golden: Callable[[str], Array | None]
    digest: str
    coarse: float = 1.0

    def jitter(self, precision: Precision, of: str, tag: str, k: int, *, exact: bool = False, amount: float = 1.0) -> Jitter:
        """Draw number k; where the precision may cut off, every second one does."""
        return Jitter(
            self.graph,
            precision,
            self.ranges,
            seed(self.digest, of, tag, k),
            exact,
            amount,
            self.coarse,
            precision.cuts and k % 2 == 1,
        )


def predict(bench: Bench, region: Region, feeds: Mapping[str, Array]) -> Array | Unavailable:
    """The region's output replayed on the feeds, weights as they are."""
    return bench.engine.replay(region.nodes, feeds, [region.output])[region.output]


def feeds_of(region: Region, observed: Observed, override: Mapping[str, Array]) -> dict[str, Array]:
    """The target's own values on the boundary, but for those overridden."""
    return {b: override[b] if b in override else observed.value(b) for b in region.boundary}


def jitters(
    bench: Bench, region: Region, precision: Precision, amount: float, count: int, tag: str, first: int = 0
) -> list[Jitter]:
    """Independent draws number first, first + 1, ... of this region."""
    exact = tag not in ("", "flip")
    return [bench.jitter(precision, region.output, tag, k, exact=exact, amount=amount) for k in range(first, first + count)]


def replay_jittered(
    bench: Bench,
    region: Region,
    feeds: Mapping[str, Array],
    jitter: Jitter,
    base: Mapping[str, Array],
    matrices: Mapping[str, bool],
) -> Array | None:
    """The region's output with boundary, weights (base, see `weights_of`) and hidden tensors moved; None where it cannot run."""
    got = bench.engine.replay(
        region.nodes,
        {name: jitter.boundary(name, x) for name, x in feeds.items()},
        [region.output],
        weights=JitteredWeights(base, matrices, jitter) if base else None,
        perturb=jitter.hidden,
    )[region.output]
    return None if isinstance(got, Unavailable) else got


def destroyer(bench: Bench, region: Region, feeds: Mapping[str, Array], precision: Precision) -> str | None:
    """The one tensor, read or made in the region, whose rounding alone moves the output by half of its signal; None where only many
    roundings together do: then the region is too long to say that the format is at fault. None too where steps that suit the golden
    do not suit the feeds: that is the doing of what is above."""
    left = precision.stepped and any(leaves(x, *bench.ranges(b)) for b, x in feeds.items())

    def look(name: str, h: Array) -> Array:
        nonlocal left
        left = left or (precision.stepped and leaves(h, *bench.ranges(name)))
        return h

    plain = bench.engine.replay(region.nodes, feeds, [region.output], perturb=look)[region.output]
    if left or isinstance(plain, Unavailable):
        return None
    (jitter,) = jitters(bench, region, precision, 1.0, 1, "alone")

    def moved_by(name: str) -> float:
        got = bench.engine.replay(
            region.nodes,
            {b: jitter.boundary(b, x) if b == name else x for b, x in feeds.items()},
            [region.output],
            perturb=lambda hidden, h: jitter.hidden(hidden, h) if hidden == name else h,
        )[region.output]
        if isinstance(got, Unavailable) or got.shape != plain.shape:
            return 0.0
        with np.errstate(invalid="ignore"):
            moved = got.astype(np.float64) - plain
        return rms(moved[np.isfinite(moved)])

    limit = DESTROYED * rms(plain[np.isfinite(plain)])
    return next((name for name in (*region.boundary, *region.hidden) if moved_by(name) > limit), None)


def leaves(x: Array, lowest: float, highest: float) -> bool:
    """Whether x reaches beyond the range by a good part of it."""
    finite = x[np.isfinite(x)] if is_float(x.dtype) else x[:0]
    room = ROOM * (highest - lowest)
    return bool(((finite < lowest - room) | (finite > highest + room)).any())
