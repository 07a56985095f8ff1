"""Golden values for the search: ONNX Runtime's, or a folder's that the user trusts more; with the frontier of a search kept warm."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.catalogue import catalogue
from bisect_align.dumps.entry import Entry
from bisect_align.errors import DumpError, MatchError
from bisect_align.golden.protocol import Golden, Unavailable, Value
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.precision import Precision
from bisect_align.judgement.shadow import NoiseLevel, accumulated_noise
from bisect_align.matching.claims import claim
from bisect_align.matching.fit import LOOSEST, Votes, fit, read
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.session.case import CACHE_SHARE, Case

Array: TypeAlias = NDArray[Any]


class GoldenValues:
    """Streams golden values of wanted tensors. budget: bytes of GOOD probes that are kept, so that the next pass of a search starts
    from them instead of from the inputs (bit-identical: a node's value does not depend on what else is run)."""

    def __init__(
        self, graph: Graph, engine: Golden, inputs: Mapping[str, Array], budget: int, foreign: Foreign | None = None
    ) -> None:
        self.graph, self.engine, self.inputs, self.foreign = graph, engine, inputs, foreign
        self._budget, self._held = budget, 0
        self._kept: dict[str, Array] = {}
        self._ranges: dict[str, tuple[float, float]] | None = None
        self.noise: dict[str, dict[str, NoiseLevel]] = {}

    def stream(self, wanted: Collection[str]) -> Iterator[tuple[str, Value]]:
        """The values to compare the target with."""
        for name, value in self.own(wanted):
            yield name, value if self.foreign is None else self.foreign.value(name, value)

    def own(self, wanted: Collection[str]) -> Iterator[tuple[str, Value]]:
        """ONNX Runtime's own golden, whatever the user trusts."""
        yield from self.engine.stream({**self.inputs, **self._kept}, wanted)

    def value(self, name: str) -> Array | None:
        """ONNX Runtime's golden of one tensor."""
        got = next(iter(self.own([name])))[1]
        return None if isinstance(got, Unavailable) else got

    def keep(self, name: str, value: Array) -> None:
        """Start later passes from this golden value, while memory allows."""
        if name not in self._kept and self._held + value.nbytes <= self._budget:
            self._kept[name] = value
            self._held += value.nbytes

    def range(self, name: str) -> tuple[float, float]:
        """(min, max) of the golden over finite elements; one pass for all tensors at the first call."""
        if self._ranges is None:
            names = (*self.graph.inputs, *self.graph.tensors)
            self._ranges = {n: value_range(v) for n, v in self.engine.stream(self.inputs, names)}
        return self._ranges.get(name, (0.0, 0.0))


def golden_of(case: Case) -> tuple[GoldenValues, Bench]:
    """The golden of a case, and what its noise is measured with."""
    graph, foreign = case.model.graph, case.options.golden_dump
    budget = case.memory // (2 * CACHE_SHARE)
    golden = GoldenValues(graph, case.engine, case.inputs.values, budget, Foreign(foreign, graph) if foreign else None)
    return golden, Bench(graph, case.engine, golden.range, golden.value, case.model.sha256)


def noise_levels(golden: GoldenValues, bench: Bench, wanted: Collection[str], precision: Precision) -> dict[str, NoiseLevel]:
    """Accumulated noise of the wanted tensors, measured once a precision (all that is needed of the dump is which tensors)."""
    known = golden.noise.setdefault(precision.name, {})
    if any(name not in known for name in wanted):
        known.update(accumulated_noise(bench, golden.inputs, {*known, *wanted}, precision))
    return {name: known[name] for name in wanted if name in known}


def value_range(value: Value) -> tuple[float, float]:
    """(min, max) of the finite elements of a float tensor; (0, 0) where there are none."""
    if isinstance(value, Unavailable) or not is_float(value.dtype):
        return 0.0, 0.0
    finite = value[np.isfinite(value)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


class Foreign:
    """A golden that somebody else made (--golden-dump): its entries by name, laid out by the value of ONNX Runtime's golden."""

    def __init__(self, path: Path, graph: Graph) -> None:
        found = catalogue(path)
        self._entries: dict[str, Entry] = {}
        by_key = {e.key: e for e in found.entries}
        for one in claim(found.entries, graph).claims:
            if not one.weak and one.tensor in graph.order:
                self._entries.setdefault(one.tensor, by_key[one.entry])
        if not self._entries:
            raise MatchError(
                "no entry is named like a tensor that the model computes",
                where=str(path),
                hint="--golden-dump needs exact names",
            )
        self._votes = Votes()

    def value(self, name: str, own: Value) -> Value:
        """The foreign value of a tensor; Unavailable where it has none that can be read and laid out."""
        entry = self._entries.get(name)
        if entry is None:
            return Unavailable("not in the golden dump")
        if isinstance(own, Unavailable):
            return Unavailable(f"layout of the golden dump unknown: {own.reason}")
        try:
            got = fit(read(entry, own.dtype, own.shape), own, self._votes, LOOSEST)
        except DumpError as trouble:
            return Unavailable(str(trouble))
        return Unavailable("shape differs from ONNX Runtime's golden") if got is None else got.values
