"""What `bisect-align match` answers with: which entry is which tensor, how that is known, and what is left."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "bisect-align/match/1"


@dataclass(frozen=True, slots=True)
class MatchRow:
    """One tensor that an entry was found for. named: the tensor that the entry's name says, where its value is another's.

    residual: relative L2 from the value predicted from the entries above it; status: named, alias, name-only, unsupported, wrong-shape.
    """

    tensor: str
    op: str
    entry: str
    rule: str
    status: str
    fix: str
    residual: float
    confidence: float
    named: str | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """An entry, or a tensor, that is not in the table, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class MatchReport:
    """rows: in graph order. missing: tensors without an entry (fused away, not dumped, not comparable). unmatched: entries that are no
    tensor's value. twins: entries that repeat another one. stale: entries that look like leftovers of something else. tolerance: the
    relative L2 up to which an entry fits, learnt from the dump."""

    model: str
    dump: str
    tensors: int
    entries: int
    tolerance: float
    rows: tuple[MatchRow, ...]
    missing: tuple[Leftover, ...]
    unmatched: tuple[Leftover, ...]
    twins: tuple[Leftover, ...]
    colliding: tuple[Leftover, ...]
    unreadable: tuple[Leftover, ...]
    stale: tuple[Leftover, ...]
    references: int
    notes: tuple[str, ...]
    schema: str = SCHEMA

    @property
    def classes(self) -> dict[str, int]:
        """How many tensors and entries are in each class."""
        by_value = sum(r.rule == "value" for r in self.rows)
        aliases = sum(r.status == "alias" for r in self.rows)
        return {
            "by name": len(self.rows) - by_value - aliases,
            "alias": aliases,
            "by value": by_value,
            "not in the dump": len(self.missing),
            "twins": len(self.twins),
            "unmatched entries": len(self.unmatched),
            "colliding": len(self.colliding),
            "unreadable": len(self.unreadable),
        }
