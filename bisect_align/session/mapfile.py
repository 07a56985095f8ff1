"""The user's map file, read from disk, and the lines of it that could not be obeyed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from bisect_align.dumps.entry import Entry
from bisect_align.errors import MatchError
from bisect_align.matching.claims import Claims, Rule
from bisect_align.matching.maps import parse_map
from bisect_align.matching.match import Matched
from bisect_align.model.graph import Graph
from bisect_align.result.words import quoted

KIND = "--map takes a TOML or JSON file"


def read_map(path: Path) -> Mapping[str, str]:
    """Entry -> tensor, "" = leave the entry out. Raises MatchError for a file that is no map."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as trouble:
        raise MatchError(f"cannot be read: {(trouble.strerror or str(trouble)).lower()}", where=str(path), hint=KIND) from None
    except UnicodeDecodeError:
        raise MatchError("is no UTF-8 text", where=str(path), hint=KIND) from None
    return parse_map(text, name=str(path))


def disobeyed(claims: Claims, matched: Matched, entries: Mapping[str, Entry], graph: Graph) -> Iterator[str]:
    """One sentence for each line of the map whose entry was not taken for its tensor, and where the entry is instead."""
    places = {seen.claim.entry: tensor for tensor, seen in matched.placed.items()}
    for claim in claims.claims:
        entry, tensor = claim.entry, claim.tensor
        if claim.rule is not Rule.MAP or tensor not in graph.order or entry in matched.twins:
            continue
        place = places.get(entry)
        if place is not None and (place == tensor or matched.placed[place].claim.rule is Rule.MAP):
            continue
        why = (
            _shapes(entries[entry], graph, tensor)
            or matched.dropped.get(entry)
            or matched.unknown.get(tensor)
            or "it does not fit"
        )
        yield f"map: {quoted(entry)} is not {quoted(tensor)}: {why}" + (
            f"; its values are those of {quoted(place)}" if place else ""
        )


def _shapes(entry: Entry, graph: Graph, tensor: str) -> str:
    """Why an entry cannot be a tensor: it has another number of elements. "" where it may be, or where that is not known."""
    known = graph.types.get(tensor)
    if entry.shape is None or known is None or known.size is None or math.prod(entry.shape) == known.size:
        return ""
    return f"shape {entry.shape}, the tensor has {known.shape}"
