"""What several dumps of one run say about the target: which values come out the same each time, and which do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Differing:
    """An entry whose value is not the same, bit for bit, in all dumps of the run. tensor: where it was placed ("" where nowhere).

    runs: in how many of the further dumps it differs from the first. max_abs, rel_l2, mismatched: of the one that differs most;
    None where shapes or types differ (reason says so).
    """

    entry: str
    tensor: str
    runs: int
    mismatched: int = 0
    elements: int = 0
    max_abs: float | None = None
    rel_l2: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Further dumps of the same run against the first.

    compared: tensors that every one of them holds. differing: in graph order, entries without a tensor last. begins: the first
    differing tensor whose boundary was compared and is equal everywhere, if there is one. inputs: the same of the graph inputs;
    "equal", "not compared" (the dumps hold no copy), or which one differs. not_compared: entry -> why.
    """

    dumps: tuple[str, ...]
    compared: int
    differing: tuple[Differing, ...]
    begins: str | None
    inputs: str
    not_compared: dict[str, str]
