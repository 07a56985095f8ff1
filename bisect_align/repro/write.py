"""From a culprit to a folder that stands alone and that has shown the failure before it is handed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bisect_align.errors import BisectAlignError
from bisect_align.repro.content import Content, content, held
from bisect_align.repro.folder import MODEL, SCHEMA, UPCAST, check, half_names, put_in_place, write_values, write_words
from bisect_align.repro.minimal import minimal
from bisect_align.repro.readme import readme
from bisect_align.repro.verify import HEALTHY, Verified, changed, verify
from bisect_align.result.result import Culprit, Result
from bisect_align.session.reopen import Reopened

WIDEST = 2  # levels above that are tried where the operator alone does not show the failure


@dataclass(frozen=True, slots=True)
class Repro:
    """A repro that was written. nodes: operators in the model; context, above: levels that were taken in
    around the culprit and above it.
    verified: it showed the failure of the run; text: what was seen. fed: elements of all inputs. notes: what else is to be known."""

    folder: Path
    tensor: str
    nodes: int
    context: int
    above: int
    verified: bool
    text: str
    fed: int
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What the case is and whether it shows the failure."""
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        if self.text == HEALTHY:
            return f"{nodes}, {self.text}"
        return f"{nodes}, {'shows the failure' if self.verified else 'DOES NOT SHOW the failure of the run'}: {self.text}"


def write(opened: Reopened, result: Result, culprit: Culprit, folder: Path, *, context: int = 0, minimize: bool = False) -> Repro:
    """Write the case of a culprit. Where it does not show the failure of the run, wider cuts are tried; where none does, or the dump
    is another by now, the folder says so. A region that nobody accuses may well be healthy. minimize: cut it down to one wrong element,
    where that can be done. Raises BisectAlignError where no case can be made, or the folder may not be written.
    """
    check(folder)
    tried: list[tuple[Content, Verified]] = []
    accused = culprit in result.culprits
    held(opened, culprit.region.output)  # whatever is wrong with its file is said before anything is written
    alone = content(opened, culprit)
    stale = changed(alone, culprit)

    def fill(aside: Path) -> Path:
        for made in _cuts(opened, culprit, alone, context, minimize=minimize):
            place = aside / str(len(tried))
            write_values(place, made)
            write_words(place, _manifest(opened, result, culprit, made), "")
            seen = verify(place, culprit if made.context == made.above == 0 else None, accused=accused)
            tried.append((made, replace(seen, same=False, text=stale) if stale else seen))
            if seen.same or stale or not accused:
                break
        at = len(tried) - 1 if tried[-1][1].same else 0
        made, seen = tried[at] = _explained(*tried[at], tried[0][1])
        text = readme(made, culprit, result, "" if seen.same else seen.text)
        write_words(aside / str(at), _manifest(opened, result, culprit, made, seen), text)
        tried[:] = [tried[at]]
        return aside / str(at)

    put_in_place(folder, fill)
    made, seen = tried[0]
    fed = sum(int(given.values.size) for given in made.inputs)
    return Repro(
        folder, culprit.region.output, len(made.model.graph.node), made.context, made.above, seen.same, seen.text, fed, made.notes
    )


def _cuts(opened: Reopened, culprit: Culprit, alone: Content, context: int, *, minimize: bool) -> Iterator[Content]:
    """The case (alone: without neighbours), cut down first if asked for, then with more of what stands above. Raises BisectAlignError
    for the first one only."""
    first = content(opened, culprit, context) if context else alone
    if minimize:
        small = minimal(first)
        if small is not None:
            yield small
        first = replace(first, notes=(*first.notes, "It could not be cut down to one element."))
    yield first
    for above in range(1, WIDEST + 1):
        try:
            yield content(opened, culprit, context, above)
        except BisectAlignError:
            return


def _explained(made: Content, seen: Verified, first: Verified) -> tuple[Content, Verified]:
    if seen.text == HEALTHY:
        return replace(made, notes=(*made.notes, f"{HEALTHY[0].upper()}{HEALTHY[1:]}.")), seen
    if not seen.same or not made.above:
        return made, seen
    note = f"The operator alone does not show the failure: {first.text}. With what stands above it does."
    return replace(made, notes=(*made.notes, note)), seen


def _manifest(opened: Reopened, result: Result, culprit: Culprit, made: Content, seen: Verified | None = None) -> dict[str, Any]:
    """repro.json: what the script needs, and everything that is known for programs."""
    fed, made_in = half_names(made.model.graph.input), half_names(made.model.graph.output)
    return {
        "schema": SCHEMA,
        "tensor": culprit.region.output,
        "model": MODEL,
        "golden_model": MODEL if made.upcast is None else UPCAST,
        "inputs": [
            {"name": g.name, "dtype": str(g.values.dtype), "half": half, "shape": g.values.shape, "source": g.source}
            for g, half in zip(made.inputs, fed, strict=True)
        ],
        "outputs": [
            {"name": e.name, "dtype": str(e.golden.dtype), "half": half, "shape": e.golden.shape, "rule": dict(e.rule)}
            | ({} if e.element is None else {"element": e.element})
            for e, half in zip(made.outputs, made_in, strict=True)
        ],
        "context": made.context,
        "above": made.above,
        "notes": made.notes,
        "verified": seen is not None and seen.same,
        "seen": "" if seen is None else seen.text,
        "culprit": msgspec.to_builtins(culprit),
        "precision": opened.precision.name,
        "golden": msgspec.to_builtins(result.golden),
        "target": msgspec.to_builtins(result.target),
        "command": result.command,
        "environment": result.environment,
    }
