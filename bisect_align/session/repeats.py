"""Further dumps of the same run: which values the target does not make again, and where that begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry, Expect, Role
from bisect_align.errors import DumpError, UsageError
from bisect_align.metrics.measure import measure
from bisect_align.result.repeats import Differing, Repeats
from bisect_align.session.case import Case, listed
from bisect_align.session.evidence import Evidence

Array: TypeAlias = NDArray[Any]


class Repeated:
    """The further dumps of a case, listed; entries are paired with the first dump's by key."""

    def __init__(self, case: Case) -> None:
        """Raises DumpError for a dump that cannot be read, UsageError for one that is given twice."""
        options = case.options
        self.case, self.dumps = case, options.repeat_dumps
        seen = {options.target_dump.resolve()}
        for path in self.dumps:
            if path.resolve() in seen:
                raise UsageError("is given twice", where=f"--repeat-dump {path}", hint="name another dump of the same run")
            seen.add(path.resolve())
        self._entries = [{e.key: e for e in listed(options, path).entries} for path in self.dumps]
        for path, entries in zip(self.dumps, self._entries, strict=True):
            if not entries.keys() & case.entries.keys():
                raise DumpError("holds no entry of the target's dump", where=str(path), hint="is it a dump of the same run?")

    def compare(self, evidence: Evidence) -> Repeats:
        """Every entry that is a tensor's value, a graph input's copy, or nobody's, against its namesakes: bit for bit."""
        graph, placed = self.case.model.graph, evidence.matched.placed
        tensors = {seen.claim.entry: tensor for tensor, seen in placed.items()}
        inputs = {c.entry: c.tensor for c in self.case.claims.claims if c.tensor in self.case.inputs.values}
        missed: dict[str, str] = {}
        equal: set[str] = set()
        differing: dict[str, Differing] = {}
        for key, entry in self.case.entries.items():
            if key not in tensors and key not in inputs and entry.role is not Role.TARGET:
                continue
            expect = evidence.matched.placed[tensors[key]] if key in tensors else None
            got = self._compared(entry, tensors.get(key, ""), None if expect is None else Expect(expect.dtype, expect.shape))
            if isinstance(got, str):
                missed[key] = got
            elif got is None:
                equal.add(key)
            else:
                differing[key] = got
        known = {t: key for key, t in tensors.items() if key in equal}
        named = {d.tensor: d for key, d in differing.items() if key in tensors}
        order = [t for t in graph.tensors if t in named]
        unsteady = [t for key, t in inputs.items() if key in differing]
        steady = {t for key, t in inputs.items() if key in equal}
        given = "equal" if steady >= set(graph.inputs) else "not compared"
        begins = next((t for t in order if self._begins(evidence, t, known.keys() | set(graph.inputs))), None)
        return Repeats(
            dumps=tuple(map(str, self.dumps)),
            compared=len(known) + len(named),
            differing=(
                *(named[t] for t in order),
                *(d for key, d in differing.items() if key not in tensors and key not in inputs),
            ),
            begins=None if unsteady else begins,
            inputs=f"{', '.join(sorted(unsteady))} differs" if unsteady else given,
            not_compared=missed,
        )

    def _begins(self, evidence: Evidence, tensor: str, steady: set[str]) -> bool:
        """All that the region read was the same each time."""
        return all(b in steady for b in evidence.court.judge.region(tensor).boundary)

    def _compared(self, entry: Entry, tensor: str, expect: Expect | None) -> Differing | str | None:
        """How an entry differs; None where all its namesakes are equal, a reason where not all can be compared."""
        found: Differing | None = None
        runs = 0
        try:
            first = entry.load(expect)
            for path, entries in zip(self.dumps, self._entries, strict=True):
                if entry.key not in entries:
                    return f"not in {path}"
                other = entries[entry.key].load(expect)
                if _identical(first, other):
                    continue
                runs += 1
                got = _difference(entry.key, tensor, first, other)
                if found is None or (got.max_abs or 0.0, got.mismatched) > (found.max_abs or 0.0, found.mismatched):
                    found = got
        except DumpError as trouble:
            return str(trouble)
        return None if found is None else replace(found, runs=runs)


def _identical(first: Array, other: Array) -> bool:
    """Same type, shape and bits: two NaNs are equal where their bits are, 0 and -0 are not."""
    if first.dtype != other.dtype or first.shape != other.shape:
        return False
    if first.dtype.hasobject:
        return bool(np.array_equal(first, other))
    bits, others = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (first, other))
    return bool(np.array_equal(bits, others))


def _difference(entry: str, tensor: str, first: Array, other: Array) -> Differing:
    if first.shape != other.shape or first.dtype != other.dtype:
        text = f"{first.dtype} {first.shape} in the first dump, {other.dtype} {other.shape} in another"
        return Differing(entry, tensor, 1, elements=first.size, reason=text)
    figures = measure(first, other)
    return Differing(entry, tensor, 1, figures.mismatched, figures.elements, figures.max_abs, figures.rel_l2)
