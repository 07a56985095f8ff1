"""A run that has ended, open again: golden and target values of any tensor, replays of any region, states that the run did not need.

Nothing is matched or judged a second time: the result says which entry is which tensor, by which layout, and at which precision.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.errors import DumpError, EngineError, ModelError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.precision import FP32, PRECISIONS
from bisect_align.judgement.steps import fitted
from bisect_align.judgement.trial import Score, try_region
from bisect_align.matching.fit import read
from bisect_align.matching.layout import fixes
from bisect_align.metrics.measure import measure
from bisect_align.model.graph import Graph
from bisect_align.model.region import Region
from bisect_align.result.result import Figures, Result, TensorRow
from bisect_align.session.case import Case, prepare
from bisect_align.session.golden import golden_of, noise_levels
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT, Progress
from bisect_align.session.states import Compared, compared

Array: TypeAlias = NDArray[Any]
Side: TypeAlias = Literal["golden", "target"]


@dataclass(frozen=True, slots=True)
class Replay:
    """A region run by the golden engine on chosen boundary values.

    made: what it makes of them. against: the target's value measured against `made`. score: introduced error over what noise
    explains, before peers soften it; None where the boundary is the golden's, or where it was not asked for.
    """

    made: Array
    against: Figures
    score: Score | None = None


class Reopened:
    """Values of an ended run. One golden value is kept, so that a tensor that is looked at from several sides is made once."""

    def __init__(self, result: Result, options: Options) -> None:
        """Loads what the run loaded. Raises BisectAlignError where something is gone, or is not what the run saw."""
        self.result = result
        self.case: Case = prepare(options)
        self.graph = self.case.model.graph
        known = result.golden.model_sha256 if result.golden else self.case.model.sha256
        if known != self.case.model.sha256:
            raise ModelError("has changed since the run", where=str(self.case.model.path), hint="run bisect-align again")
        self.rows: Mapping[str, TensorRow] = {row.name: row for row in result.tensors}
        named = result.target.precision if result.target else ""
        self.precision = PRECISIONS.get(named, FP32)
        self._golden, self._bench = golden_of(self.case)
        self._last: tuple[str, Array] | None = None

    @cached_property
    def bench(self) -> Bench:
        """As the run had it, with the steps that the dump shows."""
        held = [name for name in self.graph.tensors if name in self.rows and self.rows[name].entry in self.case.entries]
        try:
            return fitted(self._bench, _Targets(self), held, self.precision)
        except DumpError:  # of a tensor that may not be asked for at all
            return self._bench

    def golden(self, tensor: str, progress: Progress = SILENT) -> Array:
        """The golden value that the run compared with. Raises KeyError, or EngineError where there is none.

        progress advances with every tensor on the way to it, so that a long pass can be watched and broken off.
        """
        if tensor in self.case.inputs.values:
            return self.case.inputs.values[tensor]
        if self._last is None or self._last[0] != tensor:
            self._last = tensor, self._made(tensor, progress)
        return self._last[1]

    def target(self, tensor: str) -> Array:
        """The target's value in the tensor's own layout and type. Raises KeyError, or DumpError where the dump has none."""
        if tensor in self.case.inputs.values:
            return self.case.inputs.values[tensor]
        row = self.rows[tensor]
        entry = self.case.entries.get(row.entry or "")
        if entry is None:
            raise DumpError(
                "is no longer in the dump" if row.entry else "is not in the dump", where=row.entry or f"tensor {tensor!r}"
            )
        dtype, shape = self._kind(tensor)
        raw = read(entry, dtype, shape)
        if row.fix is None:
            return raw
        fix = next((found for found in fixes(raw.shape, shape) if found.label == row.fix), None)
        if fix is None:
            raise DumpError(f"has another shape {raw.shape} than at the run", where=entry.key, hint="run bisect-align again")
        return fix.apply(raw)

    def replay(self, region: Region, on: Side, progress: Progress = SILENT) -> Replay:
        """Run the region on the target's or the golden's boundary values. Raises EngineError where it cannot run, DumpError."""
        with np.errstate(all="ignore"):
            feeds = {}
            progress.stage(f"{on} values at the boundary", len(region.boundary))
            for name in region.boundary:
                feeds[name] = self.target(name) if on == "target" else self.golden(name)
                progress.advance()
            progress.stage("replaying")
            made = self.case.engine.replay(region.nodes, feeds, [region.output])[region.output]
            if isinstance(made, Unavailable):
                raise EngineError(made.reason, where=f"region of {region.output!r}")
            target = self.target(region.output)
            figures = measure(made, target) if made.shape == target.shape else Figures(max_abs=math.inf)
            if on == "golden":
                return Replay(made, figures)
            progress.stage("measuring noise")
            return Replay(made, figures, try_region(self.bench, region, feeds, target, self.precision))

    def compare(self, tensors: Collection[str], progress: Progress = SILENT) -> Iterator[tuple[str, Compared]]:
        """States of observed tensors, as the run would have found them, one at a time."""
        wanted = [name for name in tensors if name in self.graph.order]
        noise = {}
        with np.errstate(all="ignore"):
            if self.case.policy.calibrated:
                progress.stage("measuring noise")
                noise = noise_levels(self._golden, self.bench, wanted, self.precision)
            progress.stage("comparing", len(wanted))
            for name, golden in self._golden.stream(wanted):
                progress.advance()
                yield name, compared(self.case, name, golden, self.target, noise.get(name), self.precision.name)

    def _made(self, tensor: str, progress: Progress) -> Array:
        way = _way_to(self.graph, tensor)
        progress.stage("golden", len(way))
        for name, own in self._golden.own(way):
            progress.advance()
            if name == tensor:
                value = own if self._golden.foreign is None else self._golden.foreign.value(name, own)
                if isinstance(value, Unavailable):
                    raise EngineError(value.reason, where=f"golden of {tensor!r}")
                return value
        raise KeyError(tensor)

    def _kind(self, tensor: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Type and shape of a tensor, from the model where it says so, else from its golden value."""
        known = self.graph.types.get(tensor)
        if known is not None and known.dtype is not None and known.shape is not None and known.size is not None:
            return known.dtype, tuple(d for d in known.shape if isinstance(d, int))
        value = self._golden.value(tensor)
        if value is None:
            raise EngineError("has no golden value, so its type and shape are not known", where=f"tensor {tensor!r}")
        return value.dtype, value.shape


def _way_to(graph: Graph, tensor: str) -> list[str]:
    """The tensor and all that it is computed from, in topological order."""
    seen: set[str] = set()
    waiting = [tensor]
    while waiting:
        name = waiting.pop()
        if name in graph.producer and name not in seen:
            seen.add(name)
            waiting += graph.nodes[graph.producer[name]].reads
    return sorted(seen, key=graph.order.__getitem__)


class _Targets:
    """The target's values by name."""

    def __init__(self, opened: Reopened) -> None:
        self._opened = opened

    def __contains__(self, name: object) -> bool:
        return name in self._opened.rows

    def value(self, name: str) -> Array:
        return self._opened.target(name)
